"""The causal mean, in three implementations that agree.

The loop is the specification. The matrix product computes all rows at once. The softmax has the form of
attention: scores, a mask, weights.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from attention_course.checks import check_tokens


def causal_mean_loop(x: Float[Tensor, "*B T C"]) -> Float[Tensor, "*B T C"]:
    """Average each token with all tokens before it, one position at a time.

    Args:
        x: tokens, shape (T, C) or (B, T, C).

    Returns:
        The means, same shape, dtype and device. Row t is the mean of rows 0 to t of `x`.
    """
    check_tokens(x, "causal_mean_loop")
    out = torch.zeros_like(x)
    for t in range(x.shape[-2]):
        out[..., t, :] = x[..., : t + 1, :].mean(dim=-2)
    return out


def causal_mean_matmul(x: Float[Tensor, "*B T C"]) -> Float[Tensor, "*B T C"]:
    """Average each token with all tokens before it, as one matrix product.

    A weight of 0 does not hide inf and NaN, since 0 · inf is NaN: one such entry makes the earlier means
    of its channel NaN. In the loop those stay finite.

    Args:
        x: tokens, shape (T, C) or (B, T, C).

    Returns:
        The result of `causal_mean_loop`, up to rounding: the order of summation differs.
    """
    check_tokens(x, "causal_mean_matmul")
    T = x.shape[-2]
    weights = torch.tril(torch.ones(T, T, dtype=x.dtype, device=x.device))
    weights = weights / weights.sum(dim=-1, keepdim=True)
    return weights @ x


def causal_mean_softmax(x: Float[Tensor, "*B T C"]) -> Float[Tensor, "*B T C"]:
    """Average each token with all tokens before it, as a softmax over equal scores.

    The future gets the score -inf, and exp(-inf) is exactly 0. This is causal attention in which every
    query gives every key the same score (for the mask, see Vaswani et al. 2017, section 3.2.3).
    It treats inf and NaN as `causal_mean_matmul` does.

    Args:
        x: tokens, shape (T, C) or (B, T, C).

    Returns:
        The result of `causal_mean_loop`, up to rounding.
    """
    check_tokens(x, "causal_mean_softmax")
    T = x.shape[-2]
    scores = torch.zeros(T, T, dtype=x.dtype, device=x.device)
    mask = torch.ones(T, T, dtype=torch.bool, device=x.device).tril()
    scores = scores.masked_fill(~mask, float("-inf"))
    weights = torch.softmax(scores, dim=-1)
    return weights @ x
