"""Attention, from masks to multi-head attention, and a probe for leaks from the future."""
# pyright: reportOperatorIssue=false
# (pyright cannot type head_size ** -0.5, an int to a negative power)

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import NoneType

import torch
import torch.nn as nn
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attention_course.checks import (
    check_attention,
    check_batch,
    check_channels,
    check_device,
    check_flags,
    check_lengths,
    check_new_keys,
    check_probe,
    check_queries_and_keys,
    check_scale,
    check_scores,
    check_sizes,
    check_type,
    check_values,
)


def causal_mask(
    T_q: int, T_k: int | None = None, *, device: torch.device | str | None = None
) -> Bool[Tensor, "T_q T_k"]:
    """Return the causal mask: each query may look at itself and at the past.

    Args:
        T_q: number of queries.
        T_k: number of keys; T_q if left out. The last query is aligned with the last key.
        device: the device of the mask.

    Returns:
        A boolean mask, shape (T_q, T_k), True where a query may look, as
        `torch.nn.functional.scaled_dot_product_attention` reads it. (Its `is_causal=True` aligns the first
        query with the first key instead.)
    """
    T_k = T_q if T_k is None else T_k
    check_sizes("causal_mask", 0, T_q=T_q, T_k=T_k)
    check_device(device, "causal_mask")
    return torch.ones(T_q, T_k, dtype=torch.bool, device=device).tril(T_k - T_q)


def window_mask(
    T_q: int, window: int, T_k: int | None = None, *, device: torch.device | str | None = None
) -> Bool[Tensor, "T_q T_k"]:
    """Return a causal mask of the last `window` tokens, its own included (Beltagy et al. 2020, 3.1)."""
    check_sizes("window_mask", 1, window=window)
    mask = causal_mask(T_q, T_k, device=device)
    return mask & ~mask.tril(mask.shape[1] - T_q - window)  # without what is `window` or more steps back


def prefix_mask(
    T_q: int, prefix: int, T_k: int | None = None, *, device: torch.device | str | None = None
) -> Bool[Tensor, "T_q T_k"]:
    """Return a causal mask in which all see the first `prefix` tokens, too (Raffel et al. 2020, figure 3)."""
    check_sizes("prefix_mask", 0, prefix=prefix)
    mask = causal_mask(T_q, T_k, device=device)
    mask[:, :prefix] = True
    return mask


def padding_mask(lengths: Int[Tensor, " B"], T_k: int) -> Bool[Tensor, "B 1 T_k"]:
    """Return the mask that hides the padding at the end of each sequence of a batch.

    Args:
        lengths: number of tokens in each sequence without padding, shape (B,), from 0 to T_k.
        T_k: the common length after padding.

    Returns:
        A boolean mask, shape (B, 1, T_k): the same keys for every query of a sequence.
    """
    check_lengths("padding_mask", lengths, T_k)
    return (torch.arange(T_k, device=lengths.device) < lengths[:, None])[:, None]  # (B, 1, T_k)


def softmax(x: Float[Tensor, "*shape"], dim: int) -> Float[Tensor, "*shape"]:
    """Turn scores into weights of at least 0 that sum to 1 along `dim`, as `torch.softmax` does.

    The largest score is subtracted first. That changes no weight, and exp cannot overflow, since its
    argument is at most 0. Where all scores are -inf the result is NaN.

    Args:
        x: scores, any shape.
        dim: the dimension along which the weights sum to 1.

    Returns:
        Weights, same shape and dtype.
    """
    check_scores(x, dim, "softmax")
    exp = (x - x.amax(dim=dim, keepdim=True)).exp()
    return exp / exp.sum(dim=dim, keepdim=True)


def attention_weights(
    q: Float[Tensor, "*batch T_q head_size"],
    k: Float[Tensor, "*#batch T_k head_size"],
    mask: Bool[Tensor, "..."] | None = None,
    scale: float | None = None,
) -> Float[Tensor, "... T_q T_k"]:
    """Compute attention weights: compare each query with each key (Vaswani et al. 2017, section 3.2.1).

    Args:
        q: queries, shape (..., T_q, head_size).
        k: keys, shape (..., T_k, head_size).
        mask: boolean, broadcasts to (..., T_q, T_k), True where a query may look. None: everywhere.
        scale: factor of the dot products; 1 / sqrt(head_size) if left out.

    Returns:
        Weights, shape (..., T_q, T_k); each row sums to 1. A fully masked row is zeros, as in
        `torch.nn.functional.scaled_dot_product_attention`: softmax alone would give NaN, which spreads
        through a whole model. In float16 a dot product above 65504 overflows to inf and its row becomes NaN,
        where PyTorch's function keeps scores in float32; convert q and k first.
    """
    check_queries_and_keys(q, k, mask, "attention_weights")
    check_scale(scale, "attention_weights")
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = q @ k.transpose(-2, -1) * scale  # (T_q, head_size) @ (head_size, T_k) -> (T_q, T_k)
    if mask is None:
        return torch.softmax(scores, dim=-1)
    scores = scores.masked_fill(~mask, float("-inf"))
    return torch.softmax(scores, dim=-1).masked_fill(~mask, 0.0)  # the NaN of a row that sees nothing


def attention(
    q: Float[Tensor, "*batch T_q head_size"],
    k: Float[Tensor, "*#batch T_k head_size"],
    v: Float[Tensor, "*#batch T_k d_v"],
    mask: Bool[Tensor, "..."] | None = None,
    scale: float | None = None,
) -> tuple[Float[Tensor, "... T_q d_v"], Float[Tensor, "... T_q T_k"]]:
    """Compute attention: average the values, weighted by `attention_weights`.

    Args:
        q: queries, shape (..., T_q, head_size).
        k: keys, shape (..., T_k, head_size).
        v: values, shape (..., T_k, d_v).
        mask: boolean, broadcasts to (..., T_q, T_k), True where a query may look. None: everywhere.
        scale: factor of the dot products; 1 / sqrt(head_size) if left out.

    Returns:
        The output, shape (..., T_q, d_v), and the weights, shape (..., T_q, T_k).
    """
    check_values(q, k, v, "attention")  # attention_weights checks the rest
    weights = attention_weights(q, k, mask, scale)
    return weights @ v, weights  # (T_q, T_k) @ (T_k, d_v) -> (T_q, d_v)


class Head(nn.Module):
    """One head of self-attention.

    Args:
        n_embd: channels of a token.
        head_size: channels of a query and of a key.
        d_v: channels of a value; head_size if left out.
    """

    def __init__(self, n_embd: int, head_size: int, d_v: int | None = None):
        check_sizes("Head", 1, n_embd=n_embd, head_size=head_size, d_v=head_size if d_v is None else d_v)
        super().__init__()
        self.query = nn.Linear(n_embd, head_size, bias=False)
        self.key = nn.Linear(n_embd, head_size, bias=False)
        self.value = nn.Linear(n_embd, d_v or head_size, bias=False)

    def forward(
        self, x: Float[Tensor, "*B T n_embd"], mask: Bool[Tensor, "..."] | None = None
    ) -> tuple[Float[Tensor, "*B T d_v"], Float[Tensor, "*B T T"]]:
        """Map x (B, T, n_embd) to an output (B, T, d_v) and weights (B, T, T)."""
        check_channels("Head", x=(x, self.query))
        return attention(self.query(x), self.key(x), self.value(x), mask)


class CrossAttentionHead(nn.Module):
    """One head of cross-attention: queries from one sequence, keys and values from another.

    Args:
        n_embd: channels of a token that makes a query.
        n_context: channels of a token that makes a key and a value.
        head_size: channels of a query and of a key.
        d_v: channels of a value; head_size if left out.
    """

    def __init__(self, n_embd: int, n_context: int, head_size: int, d_v: int | None = None):
        check_sizes(
            "CrossAttentionHead",
            1,
            n_embd=n_embd,
            n_context=n_context,
            head_size=head_size,
            d_v=head_size if d_v is None else d_v,
        )
        super().__init__()
        self.query = nn.Linear(n_embd, head_size, bias=False)
        self.key = nn.Linear(n_context, head_size, bias=False)
        self.value = nn.Linear(n_context, d_v or head_size, bias=False)

    def forward(
        self,
        x: Float[Tensor, "*B T_q n_embd"],
        context: Float[Tensor, "*B T_k n_context"],
        mask: Bool[Tensor, "..."] | None = None,
    ) -> tuple[Float[Tensor, "*B T_q d_v"], Float[Tensor, "*B T_q T_k"]]:
        """Map x (B, T_q, n_embd) and context (B, T_k, n_context) to (B, T_q, d_v) and (B, T_q, T_k)."""
        check_channels("CrossAttentionHead", x=(x, self.query), context=(context, self.key))
        return attention(self.query(x), self.key(context), self.value(context), mask)


def head_size_of(n_embd: int, n_head: int) -> int:
    """Return n_embd / n_head. Where that is not an integer, raise ValueError."""
    check_sizes("head_size_of", 1, n_embd=n_embd, n_head=n_head)
    if n_embd % n_head:
        raise ValueError(
            f"n_embd = {n_embd} cannot be split into n_head = {n_head} heads of equal size. "
            f"Choose an n_head that divides {n_embd}."
        )
    return n_embd // n_head


class MultiHeadAttentionList(nn.Module):
    """Multi-head attention as a list of heads; `MultiHeadAttention` computes the same, all heads at once.

    Args:
        n_embd: channels of a token, in and out.
        n_head: number of heads, a divisor of n_embd; each has head_size = n_embd / n_head.
    """

    def __init__(self, n_embd: int, n_head: int):
        super().__init__()
        head_size = head_size_of(n_embd, n_head)
        self.heads = nn.ModuleList(Head(n_embd, head_size) for _ in range(n_head))
        self.c_proj = nn.Linear(n_embd, n_embd, bias=False)

    def forward(
        self, x: Float[Tensor, "B T n_embd"], mask: Bool[Tensor, "..."] | None = None
    ) -> tuple[Float[Tensor, "B T n_embd"], Float[Tensor, "B n_head T T"]]:
        """Map x (B, T, n_embd) to an output (B, T, n_embd) and weights (B, n_head, T, T)."""
        check_batch("MultiHeadAttentionList", x, self.c_proj, mask)
        outputs, weights = zip(*(head(x, mask) for head in self.heads), strict=True)
        # side by side, the outputs (B, T, head_size) have n_head · head_size = n_embd channels
        return self.c_proj(torch.cat(outputs, dim=-1)), torch.stack(weights, dim=1)


_recordings: ContextVar[tuple[list[Tensor], ...]] = ContextVar("_recordings", default=())
_open_recordings = 0  # over all threads


@contextmanager
def record_weights() -> Iterator[list[Tensor]]:
    """Record the attention weights of every call of `attend` in this context.

    `with record_weights() as layers: logits = model(ids)` leaves one tensor per layer in `layers`.

    Yields:
        A list that grows by a tensor (B, n_head, T_q, T_k) per call, in order. The output is computed from
        the recorded weights. Calls in other threads are not recorded.
    """
    global _open_recordings
    layers: list[Tensor] = []
    outside = _recordings.set((*_recordings.get(), layers))
    _open_recordings += 1
    try:
        yield layers
    finally:
        _open_recordings -= 1
        _recordings.reset(outside)


def sdpa_is_slow(q: Float[Tensor, "*batch T_q head_size"]) -> bool:
    """Return whether `attention` is faster than `F.scaled_dot_product_attention` for these queries.

    This is so on a CPU in bfloat16 for short sequences: three times as fast for 128 tokens, equally fast for
    256. In float32 it takes up to 4 times as long.
    """
    return q.device.type == "cpu" and q.dtype == torch.bfloat16 and q.shape[-2] <= 128


def attend(
    q: Float[Tensor, "... T_q head_size"],
    k: Float[Tensor, "... T_k head_size"],
    v: Float[Tensor, "... T_k d_v"],
    mask: Bool[Tensor, "..."] | None = None,
    is_causal: bool = False,
    enable_gqa: bool = False,
) -> Float[Tensor, "... T_q d_v"]:
    """Return the output of `attention`, using the fastest kernel unless weights are being recorded.

    Args:
        q: queries, shape (..., T_q, head_size).
        k: keys, shape (..., T_k, head_size).
        v: values, shape (..., T_k, d_v).
        mask: boolean, broadcasts to (..., T_q, T_k), True where a query may look. None: everywhere.
        is_causal: apply `causal_mask` as well. Without another mask it is not materialized: the fastest GPU
            kernels accept no mask tensor.
        enable_gqa: the third dimension from the end counts heads, and k and v have fewer of them than q: each
            serves a group of neighbouring query heads (Ainslie et al. 2023, section 2.2).
    """
    check_flags("attend", is_causal=is_causal, enable_gqa=enable_gqa)
    check_attention(q, k, v, mask, "attend", enable_gqa)
    T_q, T_k = q.shape[-2], k.shape[-2]
    is_causal = is_causal and T_q > 1  # a single query is the last one: it may look at every key
    recordings = _recordings.get() if _open_recordings else ()  # torch.compile cannot read a ContextVar
    explicit = bool(recordings) or sdpa_is_slow(q)
    only_causal = is_causal and mask is None and T_q == T_k
    # fused kernels never write the (T_q, T_k) scores to memory, and the fastest take no mask tensor
    if only_causal and not explicit:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=enable_gqa)
    if only_causal and not recordings and not enable_gqa:  # a GPT in training; adding is faster than filling
        hidden = torch.full((T_q, T_k), float("-inf"), dtype=q.dtype, device=q.device).triu(1)
        return torch.softmax(q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5 + hidden, dim=-1) @ v
    if is_causal:
        causal = causal_mask(T_q, T_k, device=q.device)
        mask = causal if mask is None else mask & causal
    if not explicit:
        if mask is not None and mask.dim() < 2:
            mask = mask.expand(T_q, T_k)  # PyTorch wants a row for each query
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=enable_gqa)
    if enable_gqa:  # neighbouring query heads get copies of the keys and values that they share
        k, v = (shared.repeat_interleave(q.shape[-3] // shared.shape[-3], dim=-3) for shared in (k, v))
    output, weights = attention(q, k, v, mask)
    if recordings:
        record(weights)
    return output


def record(weights: Float[Tensor, "..."]) -> None:
    """Add weights to each open recording; see `record_weights`."""
    for layers in _recordings.get():
        layers.append(weights)


class Cache:
    """A KV cache: the keys and values of the tokens that a model has read (`DynamicCache` in transformers).

    `len(cache)` is the number of these tokens. The model counts them when all its layers are done, so a call
    that was interrupted leaves the cache as it was.
    """

    def __init__(self):
        self._kept: dict[nn.Module, tuple[Tensor, Tensor]] = {}  # with room for more tokens
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def extend(
        self, layer: nn.Module, k: Float[Tensor, "B H T D"], v: Float[Tensor, "B H T D_v"]
    ) -> tuple[Float[Tensor, "B H T_k D"], Float[Tensor, "B H T_k D_v"]]:
        """Append the keys and values (B, n_head, T, ...) of new tokens; return all that the layer has.

        Raises:
            ValueError: the cache belongs to another model, or to another number of sequences or heads.
        """
        check_type(layer, nn.Module, "Cache", "layer")
        check_new_keys(k, v, "Cache")
        start, T = len(self), k.shape[2]
        kept = self._kept.get(layer) if start else None
        if start and (kept is None or len(kept[0]) != len(k)):
            holds = "nothing of this model" if kept is None else f"{len(kept[0])} sequences"
            raise ValueError(
                f"Cache: it holds {holds}, expected {len(k)} sequences. Start with a new Cache()."
            )
        for past, new in zip(kept or (), (k, v), strict=False):
            (heads, width), given = past.shape[1::2], new.shape[1::2]
            if given != (heads, width):
                raise ValueError(
                    f"Cache: it holds {heads} heads of {width} channels, and got {given[0]} of {given[1]}."
                )
        # room doubles when it is full: T tokens cost log T copies of the cache, not T as with torch.cat
        if kept is None or kept[0].shape[2] < start + T:
            k_room, v_room = (new.new_empty(*new.shape[:2], 2 * (start + T), new.shape[3]) for new in (k, v))
            if kept is not None:
                k_room[:, :, :start], v_room[:, :, :start] = (past[:, :, :start] for past in kept)
            kept = self._kept[layer] = k_room, v_room
        for room, new in zip(kept, (k, v), strict=True):  # written over, if an interrupted call left some
            room.narrow(2, start, T).copy_(new)
        return kept[0].narrow(2, 0, start + T), kept[1].narrow(2, 0, start + T)

    def advance(self, T: int) -> None:
        """Count T more tokens, once every layer has been extended by them."""
        self._length += T

    def numel(self) -> int:
        """Return the number of elements of all keys and values."""
        return sum(room[:, :, : len(self)].numel() for kept in self._kept.values() for room in kept)


class MultiHeadAttention(nn.Module):
    """Multi-head attention, all heads at once (`CausalSelfAttention` in nanoGPT's model.py).

    Args:
        n_embd: channels of a token, in and out.
        n_head: number of heads, a divisor of n_embd; each has head_size = n_embd / n_head.
        bias: whether the two linear layers have a bias.
    """

    def __init__(self, n_embd: int, n_head: int, bias: bool = False):
        check_flags("MultiHeadAttention", bias=bias)
        super().__init__()
        self.head_size = head_size_of(n_embd, n_head)
        self.c_attn = nn.Linear(n_embd, 3 * n_embd, bias=bias)
        self.c_proj = nn.Linear(n_embd, n_embd, bias=bias)

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        mask: Bool[Tensor, "..."] | None = None,
        is_causal: bool = False,
        cache: Cache | None = None,
    ) -> Float[Tensor, "B T C"]:
        """Map x (B, T, n_embd) to an output of the same shape.

        A mask of shape (B, 1, T) or (T, T) applies to every head; `is_causal` is `causal_mask(T)` without
        materializing it. With a cache, the tokens also look at those that it holds, and it is extended by
        them. `record_weights` records the weights, shape (B, n_head, T, T).
        """
        check_batch("MultiHeadAttention", x, self.c_attn, mask)
        check_type(cache, (Cache, NoneType), "MultiHeadAttention", "cache")
        B, T, C = x.shape
        q, k, v = (
            part.view(B, T, -1, self.head_size).transpose(1, 2)  # (B, n_head, T, head_size)
            for part in self.c_attn(x).split(C, dim=-1)  # all heads in one product: (B, T, 3C)
        )
        if cache is not None:
            k, v = cache.extend(self, k, v)
        if mask is not None and mask.dim() == 3:
            mask = mask[:, None]  # (B, 1, T_q, T_k): the same for every head
        output = attend(q, k, v, mask, is_causal)
        return self.c_proj(output.transpose(1, 2).reshape(B, T, C))


def fuse(heads: MultiHeadAttentionList) -> MultiHeadAttention:
    """Copy the parameters of a list of heads into the fused module; both give the same output."""
    check_type(heads, MultiHeadAttentionList, "fuse", "heads")
    fused = MultiHeadAttention(heads.c_proj.out_features, len(heads.heads)).to(heads.c_proj.weight)
    # rows of c_attn: the queries of all heads, then all keys, then all values
    parts = [getattr(head, part).weight for part in ("query", "key", "value") for head in heads.heads]
    with torch.no_grad():
        fused.c_attn.weight.copy_(torch.cat(parts))
        fused.c_proj.weight.copy_(heads.c_proj.weight)
    return fused


def to_torch(fused: MultiHeadAttention) -> nn.MultiheadAttention:
    """Copy all parameters into PyTorch's module. In its boolean masks, True hides a key."""
    check_type(fused, MultiHeadAttention, "to_torch", "fused")
    n_embd, bias = fused.c_proj.out_features, fused.c_proj.bias is not None
    theirs = nn.MultiheadAttention(n_embd, n_embd // fused.head_size, bias=bias, batch_first=True)
    theirs = theirs.to(fused.c_proj.weight)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(fused.c_attn.weight)
        theirs.out_proj.weight.copy_(fused.c_proj.weight)
        if bias:
            theirs.in_proj_bias.copy_(fused.c_attn.bias)
            theirs.out_proj.bias.copy_(fused.c_proj.bias)
    return theirs


def leak_probe(function: Callable[[Tensor], Tensor], x: Float[Tensor, "*B T C"]) -> Bool[Tensor, "T_out T"]:
    """Find which outputs change when an input is perturbed.

    Noise of the scale of the tokens is added to one position at a time, and outputs are compared bit for bit.
    A causal function gives a lower triangle; any entry above the diagonal is a leak from the future.

    Args:
        function: maps tokens (T, C) or (B, T, C) to (T_out, D) or (B, T_out, D). Called T + 3 times; it
            must be deterministic (no dropout).
        x: the tokens to perturb.

    Returns:
        Boolean, shape (T_out, T): entry [i, j] is True if output i changed when input j did.

    Raises:
        ValueError: the function is not deterministic or returns NaN or inf, or `x` is empty, not finite or
            too large for noise.
    """
    check_probe(function, x, "leak_probe")
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(0)).to(x)
    noise = noise * (1 + x.abs())  # small noise on large tokens would be lost to rounding
    before = function(x.clone()).clone()  # the function may return a buffer that it reuses
    columns = []
    for j in range(x.shape[-2]):
        perturbed = x.clone()
        perturbed[..., j, :] += noise[..., j, :]
        after = function(perturbed)
        moved = (after != before).any(dim=-1)
        columns.append(moved.reshape(-1, moved.shape[-1]).any(dim=0))  # (T_out,)
    return torch.stack(columns, dim=-1)
