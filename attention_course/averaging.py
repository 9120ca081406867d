"""Rungs 1 to 3: the mean of a token and its past, written in three ways that agree.

The loop is the specification. The matrix product is the same sum, all rows at once. The softmax says
the same thing in the form that attention needs: scores, a mask, weights.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def check_tokens(x: object, name: str) -> None:
    """Raise unless `x` is a float tensor of shape (T, C) or (B, T, C) with at least one token.

    Args:
        x: what somebody passed.
        name: the function that it was passed to, for the message.

    Raises:
        TypeError: `x` is no tensor, or holds integers, booleans or complex numbers.
        ValueError: `x` has another number of dimensions, or T = 0.
    """
    expected = f"{name} expects a float tensor of shape (T, C) or (B, T, C)"
    if not isinstance(x, Tensor):
        raise TypeError(f"{expected}, but got a {type(x).__name__}. Make one with torch.tensor(...).")
    if not x.is_floating_point():
        raise TypeError(f"{expected}, but its dtype is {x.dtype}. Convert it first: x.float().")
    shape = tuple(x.shape)
    if x.dim() < 2:
        raise ValueError(f"{expected}, but its shape is {shape}. Add the missing dimension: x[:, None].")
    if x.dim() > 3:
        raise ValueError(f"{expected}, but its shape is {shape}. Merge the leading ones: x.flatten(0, -3).")
    if x.shape[-2] == 0:
        raise ValueError(f"{expected}, but its shape is {shape}: T = 0. Pass at least one token.")


def causal_mean_loop(x: Float[Tensor, "*B T C"]) -> Float[Tensor, "*B T C"]:
    """Average each token with all tokens before it, one position at a time.

    Args:
        x: tokens, shape (T, C) or (B, T, C).

    Returns:
        The means, same shape, dtype and device. Row t is the mean of rows 0 to t of `x`.

    Raises:
        TypeError: `x` is not a float tensor.
        ValueError: `x` has another rank, or T = 0.
    """
    check_tokens(x, "causal_mean_loop")
    out = torch.zeros_like(x)
    for t in range(x.shape[-2]):
        out[..., t, :] = x[..., : t + 1, :].mean(dim=-2)
    return out


def causal_mean_matmul(x: Float[Tensor, "*B T C"]) -> Float[Tensor, "*B T C"]:
    """Average each token with all tokens before it, as one matrix product.

    Args:
        x: tokens, shape (T, C) or (B, T, C).

    Returns:
        What `causal_mean_loop` returns, up to rounding: the sums run in another order.

    Raises:
        TypeError: `x` is not a float tensor.
        ValueError: `x` has another rank, or T = 0.
    """
    check_tokens(x, "causal_mean_matmul")
    T = x.shape[-2]
    weights = torch.tril(torch.ones(T, T, dtype=x.dtype, device=x.device))
    weights = weights / weights.sum(dim=-1, keepdim=True)
    return weights @ x


def causal_mean_softmax(x: Float[Tensor, "*B T C"]) -> Float[Tensor, "*B T C"]:
    """Average each token with all tokens before it, as a softmax over equal scores.

    The future gets the score -inf, and exp(-inf) is exactly 0. This is causal attention in which every
    query finds every key equally interesting (Vaswani et al. 2017, section 3.2.3, is where the mask is).

    Args:
        x: tokens, shape (T, C) or (B, T, C).

    Returns:
        What `causal_mean_loop` returns, up to rounding.

    Raises:
        TypeError: `x` is not a float tensor.
        ValueError: `x` has another rank, or T = 0.
    """
    check_tokens(x, "causal_mean_softmax")
    T = x.shape[-2]
    scores = torch.zeros(T, T, dtype=x.dtype, device=x.device)
    mask = torch.ones(T, T, dtype=torch.bool, device=x.device).tril()
    scores = scores.masked_fill(~mask, float("-inf"))
    weights = torch.softmax(scores, dim=-1)
    return weights @ x
