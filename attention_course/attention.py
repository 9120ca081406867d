"""Rungs 3 to 7: what attention is made of, and the probe that finds a leak from the future."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attention_course.averaging import takes_tokens


def causal_mask(T_q: int, T_k: int | None = None, *, device=None) -> Bool[Tensor, "T_q T_k"]:
    """Let each query look at itself and at the past.

    Args:
        T_q: number of queries.
        T_k: number of keys; as many as queries if left out. The last query is aligned with the last key.
        device: where the mask is made.

    Returns:
        A boolean mask, shape (T_q, T_k), True where a query may look, as
        `torch.nn.functional.scaled_dot_product_attention` reads it.
    """
    T_k = T_q if T_k is None else T_k
    return torch.ones(T_q, T_k, dtype=torch.bool, device=device).tril(T_k - T_q)


def softmax(x: Float[Tensor, "*shape"], dim: int) -> Float[Tensor, "*shape"]:
    """Turn scores into positive weights that sum to 1 along `dim`, as `torch.softmax` does.

    The largest score is subtracted first. That changes no weight, and exp never sees a number above 0,
    so it cannot overflow. Where all scores are -inf there is nothing to share out: the result is NaN.

    Args:
        x: scores, any shape.
        dim: the dimension whose entries share one total of 1.

    Returns:
        Weights, same shape and dtype.
    """
    exp = (x - x.amax(dim=dim, keepdim=True)).exp()
    return exp / exp.sum(dim=dim, keepdim=True)


@takes_tokens
def leak_probe(function: Callable[[Tensor], Tensor], x: Float[Tensor, "*B T C"]) -> Bool[Tensor, "T_out T"]:
    """Find out which outputs move when an input is perturbed.

    Noise is added to each input position in turn, and every bit of the output is compared. Causal
    functions give a lower triangle; anything above the diagonal is a leak from the future.

    Args:
        function: maps tokens (T, C) or (B, T, C) to (T_out, D) or (B, T_out, D). Called T + 1 times; it
            must give the same output for the same input (no dropout).
        x: the tokens to perturb.

    Returns:
        Boolean, shape (T_out, T): entry [i, j] is True if output i moved when input j did.

    Raises:
        TypeError: `x` is not a float tensor.
        ValueError: `x` has another rank, or T = 0.
    """
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(0)).to(x)
    before = function(x.clone())
    columns = []
    for j in range(x.shape[-2]):
        perturbed = x.clone()
        perturbed[..., j, :] += noise[..., j, :]
        after = function(perturbed)
        moved = (after != before) & ~(after.isnan() & before.isnan())
        columns.append(moved.any(dim=-1).reshape(-1, moved.shape[-2]).any(dim=0))
    return torch.stack(columns, dim=-1)
