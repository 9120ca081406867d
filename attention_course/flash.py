"""Attention without its table of scores, in blocks, by an online softmax."""

import math
import weakref
from collections.abc import Iterable, Iterator

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from attention_course.checks import check_attention, check_block, check_blocks, check_flags, check_sizes


def online_softmax(
    blocks: Iterable[tuple[Float[Tensor, "... T_q T_block"], Float[Tensor, "... T_block d_v"]]],
) -> tuple[Float[Tensor, "... T_q d_v"], Float[Tensor, "... T_q"]]:
    """Average values, weighted by the softmax of scores, with one block of them at a time.

    A sum of exps is kept relative to the largest score so far, and corrected when a larger one comes
    (Milakov and Gimelshein 2018, algorithm 3); so is the weighted sum of values (Rabe and Staats 2021).

    Args:
        blocks: scores, shape (..., T_q, T_block), and the values of these keys, shape (..., T_block, d_v).

    Returns:
        The mean of all values, shape (..., T_q, d_v): `softmax(scores, dim=-1) @ values` of all blocks side
        by side. The logarithm of the sum of all exps, shape (..., T_q), as `torch.logsumexp`. Where all
        scores are -inf they are 0 and -inf.
    """
    check_blocks(blocks, "online_softmax")
    largest, total, output = -math.inf, 0.0, 0.0
    for block in blocks:
        check_block(block, "online_softmax")
        scores, values = block
        before, lowest = largest, torch.finfo(scores.dtype).min  # -inf minus -inf would be NaN
        largest = scores.amax(dim=-1, keepdim=True).clamp(min=lowest).clamp(min=before)
        correction = (before - largest).exp()  # of what was summed relative to an older maximum
        exp = (scores - largest).exp()  # (..., T_q, T_block)
        total = total * correction + exp.sum(dim=-1, keepdim=True)
        output = output * correction + exp @ values  # (..., T_q, d_v), divided by the total at the end
    if not isinstance(total, Tensor):
        raise ValueError("online_softmax: there is no block, expected at least one pair (scores, values).")
    # The largest score alone adds 1 to its total: less than that is 0, of a row with nothing to see.
    return output / total.clamp(min=1), (largest + total.log()).squeeze(-1)


def block_slices(T_q: int, T_k: int, block_size: int, is_causal: bool) -> Iterator[tuple[slice, list[slice]]]:
    """Slice the table of scores into blocks.

    Yields:
        A slice of queries, and the slices of keys that at least one of them may look at.
    """
    for start in range(0, T_q, block_size):
        stop = min(start + block_size, T_q)
        seen = stop + T_k - T_q if is_causal else T_k  # by the last of these queries
        yield slice(start, stop), [slice(s, min(s + block_size, seen)) for s in range(0, seen, block_size)]


def scores_of_block(
    q: Float[Tensor, "*batch T_q head_size"],
    k: Float[Tensor, "*batch T_k head_size"],
    mask: Bool[Tensor, "*batch T_q T_k"] | None,
    is_causal: bool,
    rows: slice,
    columns: slice,
) -> Float[Tensor, "*batch rows columns"]:
    """Compute one block of the table: scores of some queries and some keys, -inf where they are masked."""
    scores = q[..., rows, :] @ k[..., columns, :].transpose(-2, -1)
    if mask is not None:
        scores = scores.masked_fill(~mask[..., rows, columns], -math.inf)
    last_seen = rows.start + k.shape[-2] - q.shape[-2]  # by the first of these queries
    if is_causal and columns.stop > last_seen + 1:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device)
        scores = scores.masked_fill(hidden.triu(last_seen - columns.start + 1), -math.inf)
    return scores


class FlashAttention(torch.autograd.Function):
    """Attention by blocks, forward and backward (Dao et al. 2022, algorithms 1 and 4).

    Between the two it keeps its inputs, the output, and a number for each query. With that number,
    the logarithm of the sum of exps, the weights of a block are recomputed: exp(scores - log_sum).
    """

    @staticmethod
    def forward(ctx, q, k, v, mask, is_causal, block_size):
        """Map q (..., T_q, head_size), k and v (..., T_k, ...) to (..., T_q, d_v); scores are not scaled."""
        output = q.new_zeros(*q.shape[:-1], v.shape[-1])
        log_sums = q.new_full(q.shape[:-1], -math.inf)
        for rows, seen in block_slices(q.shape[-2], k.shape[-2], block_size, is_causal):
            if seen:
                output[..., rows, :], log_sums[..., rows] = online_softmax(
                    (scores_of_block(q, k, mask, is_causal, rows, columns), v[..., columns, :])
                    for columns in seen
                )
        ctx.save_for_backward(q, k, v, mask, output, log_sums)
        ctx.how = is_causal, block_size
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx, d_output):
        """Return the gradients of q, k and v, block by block."""
        q, k, v, mask, output, log_sums = ctx.saved_tensors
        is_causal, block_size = ctx.how
        d_q, d_k, d_v = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        # the sums of weights * d_weights over a row, without either (D in Dao et al.)
        delta = (d_output * output).sum(dim=-1, keepdim=True)
        log_sums = log_sums.clamp(min=torch.finfo(q.dtype).min)
        for rows, seen in block_slices(q.shape[-2], k.shape[-2], block_size, is_causal):
            d_out = d_output[..., rows, :]
            for columns in seen:
                scores = scores_of_block(q, k, mask, is_causal, rows, columns)
                weights = (scores - log_sums[..., rows, None]).exp()  # (..., rows, columns), recomputed
                d_weights = d_out @ v[..., columns, :].transpose(-2, -1)
                d_scores = weights * (d_weights - delta[..., rows, :])  # the derivative of softmax
                d_q[..., rows, :] += d_scores @ k[..., columns, :]
                d_k[..., columns, :] += d_scores.transpose(-2, -1) @ q[..., rows, :]
                d_v[..., columns, :] += weights.transpose(-2, -1) @ d_out
        return d_q, d_k, d_v, None, None, None


def flash_attention(
    q: Float[Tensor, "*batch T_q head_size"],
    k: Float[Tensor, "*#batch T_k head_size"],
    v: Float[Tensor, "*#batch T_k d_v"],
    mask: Bool[Tensor, "..."] | None = None,
    is_causal: bool = False,
    block_size: int = 128,
) -> Float[Tensor, "... T_q d_v"]:
    """Return the output of `attention` without its table: memory grows with T, not with its square.

    Computed in float32, or in float64 for such inputs. No second derivatives.

    Args:
        q: queries, shape (..., T_q, head_size).
        k: keys, shape (..., T_k, head_size).
        v: values, shape (..., T_k, d_v).
        mask: boolean, broadcasts to (..., T_q, T_k), True where a query may look. None: everywhere.
        is_causal: apply `causal_mask` as well. It is never made whole, and blocks that it hides are skipped.
        block_size: queries and keys of a block.
    """
    check_attention(q, k, v, mask, "flash_attention")
    check_sizes("flash_attention", 1, block_size=block_size)
    check_flags("flash_attention", is_causal=is_causal)
    batch, accum_dtype = q.shape[:-2], torch.promote_types(q.dtype, torch.float32)
    k, v = (x.to(accum_dtype).expand(*batch, *x.shape[-2:]) for x in (k, v))
    if mask is not None:
        mask = mask.expand(*q.shape[:-1], k.shape[-2])
    with torch.autocast(q.device.type, enabled=False):
        scaled = q.to(accum_dtype) * q.shape[-1] ** -0.5  # q instead of each block of scores
        return FlashAttention.apply(scaled, k, v, mask, is_causal, block_size).to(q.dtype)


class MemoryMeter(TorchDispatchMode):
    """Count the bytes of the tensors that are allocated in this context: `with MemoryMeter() as meter: ...`.

    What a kernel of PyTorch uses inside, between its inputs and its outputs, is not seen.

    Attributes:
        live: bytes of those that still exist.
        peak: the most that existed at one time.
        largest: bytes of the largest one.
    """

    def __init__(self):
        super().__init__()
        self.live = self.peak = self.largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Run one operation of PyTorch, and count what it made: results that share no memory with inputs."""
        result = func(*args, **(kwargs or {}))
        given, made = storages((args, kwargs)), storages(result)
        for key in made.keys() - given.keys():
            size = made[key].nbytes()
            weakref.finalize(made[key], self._count, -size)
            self._count(size)
        return result

    def _count(self, size: int) -> None:
        self.live += size
        self.peak, self.largest = max(self.peak, self.live), max(self.largest, size)


def storages(tree: object) -> dict[int, torch.UntypedStorage]:
    """Return the memory of all tensors in nested tuples, lists and dicts, by its identity."""
    leaves = [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor) and not leaf.is_meta]
    found = [leaf.untyped_storage() for leaf in leaves]
    return {id(storage): storage for storage in found}
