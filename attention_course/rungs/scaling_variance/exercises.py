"""Scaled attention weights, the variance of scores, and the scale for a given variance."""

import torch
from jaxtyping import Float
from torch import Tensor

from attention_course.exercises.comparing import close, differentiable
from attention_course.exercises.exercise import Property, exercise


def scaled_weights(
    x: Float[Tensor, "*B T C"],
    w_query: Float[Tensor, "C head_size"],
    w_key: Float[Tensor, "C head_size"],
) -> Float[Tensor, "*B T T"]:
    """Return attention weights without a mask, with scores scaled by 1 / sqrt(head_size).

    Args:
        x: tokens, shape (T, C) or (B, T, C).
        w_query: query matrix, shape (C, head_size).
        w_key: key matrix, shape (C, head_size).

    Returns:
        Weights, shape (T, T) or (B, T, T); each row sums to 1.
    """
    q, k = x @ w_query, x @ w_key
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    return torch.softmax(scores, dim=-1)


def predicted_variance(
    var_q: Float[Tensor, " heads"], var_k: Float[Tensor, " heads"], head_size: int, scale: float
) -> Float[Tensor, " heads"]:
    """Predict the variance of the scores q · k * scale, for independent entries with mean 0.

    Args:
        var_q: variance of the entries of the queries in each head.
        var_k: variance of the entries of the keys in each head.
        head_size: channels of a query and of a key.
        scale: factor of the dot products.

    Returns:
        The variance of the scores of each head, same shape.
    """
    one_product = var_q * var_k
    one_score = head_size * one_product  # the variances of independent terms add up
    return one_score * scale**2


def scale_for_variance(
    var_q: Float[Tensor, " heads"], var_k: Float[Tensor, " heads"], head_size: int, variance: float
) -> Float[Tensor, " heads"]:
    """Return the positive scale with which the scores have a given variance.

    Args:
        var_q: variance of the entries of the queries in each head.
        var_k: variance of the entries of the keys in each head.
        head_size: channels of a query and of a key.
        variance: the wanted variance of the scores.

    Returns:
        The factor of the dot products in each head, same shape.
    """
    at_scale_1 = head_size * var_q * var_k
    return (variance / at_scale_1) ** 0.5


def draw_heads(generator: torch.Generator) -> list[tuple]:
    """Draw tokens and both matrices: T = 1, integers, all sizes different, scores far apart."""
    T, C, head_size = (torch.randperm(4, generator=generator)[:3] + 3).tolist()
    sizes = [((1,), 2, 3), ((2,), 3, 4), ((T,), C, head_size), ((2, T), C, head_size), ((3, 4), 6, 2)]
    drawn = []
    for tokens, channels, size in sizes:
        x = torch.randint(-2, 3, (*tokens, channels), generator=generator).float()
        w_query, w_key = 0.3 * torch.randn(2, channels, size, generator=generator)
        drawn.append((x, w_query, w_key))
    drawn[1][0][:] = torch.tensor([[1.0, 0.0, 2.0], [0.0, 1.0, -1.0]])  # never two equal tokens
    drawn.append((torch.randn(7, 8, generator=generator), *torch.randn(2, 8, 16, generator=generator)))
    keys = torch.randint(10, 14, (4,), generator=generator).float()
    x = torch.stack([torch.tensor([1.0, -1.0, 0.0, 1.0]), keys], dim=1)
    w_query, w_key = torch.eye(2)[:, :, None]
    drawn.append((x, 75 * w_query, w_key))  # rows of 750 to 975, of -750 to -975, and of zeros
    return drawn


def draw_variances(generator: torch.Generator) -> list[tuple]:
    """Draw variances of one head and of several, a head_size, and a scale or a wanted variance.

    In the second input, the wanted variance needs a scale above 1. In the last, q and k come from matrices
    with GPT-2's standard deviation of 0.02, and their variances are tiny.
    """
    drawn = [
        (torch.tensor([4.0]), torch.tensor([1.0]), 16, 0.5),
        (torch.tensor([4.0]), torch.ones(1), 1, 9.0),
    ]
    for heads, head_size in ((1, 9), (2, 64), (3, 5)):
        var_q, var_k = 0.25 + 4 * torch.rand(2, heads, generator=generator)
        number = 0.1 + torch.rand((), generator=generator).item()
        drawn.append((var_q, var_k, head_size, number))
    return [*drawn, (torch.full((2,), 4e-4), torch.tensor([4e-4, 1e-3]), 16, 1.0)]


def measured_variance(
    var_q: Tensor, var_k: Tensor, head_size: int, scale: Tensor | float
) -> Float[Tensor, " heads"]:
    """Measure the variance of the scores of 4000 random pairs per head."""
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 4000, len(var_q), head_size, generator=generator)
    return ((q * k).sum(dim=-1) * (var_q * var_k).sqrt() * scale).var(dim=0)


def near(measured: Tensor, predicted: Tensor) -> bool:
    """Return whether they agree within 25 %, more than the sampling error of 4000 draws."""
    return measured.shape == predicted.shape and bool((measured / predicted - 1).abs().max() < 0.25)


OF_WEIGHTS = (
    Property(
        "Each row sums to 1.", lambda f, x, a, b: close(torch.ones(x.shape[:-1]), f(x, a, b).sum(dim=-1))
    ),
    Property(
        "A query matrix of zeros gives every token the same weight.",
        lambda f, x, a, b: close(torch.full((*x.shape[:-1], x.shape[-2]), 1 / x.shape[-2]), f(x, 0 * a, b)),
    ),
    Property(
        "Repeating each channel of q and k four times doubles the scores.",
        lambda f, x, a, b: close(f(x, 2 * a, b), f(x, a.repeat(1, 4), b.repeat(1, 4))),
    ),
    differentiable(scaled_weights),
)
OF_A_VARIANCE = (
    Property(
        "Twice the head_size gives twice the variance.",
        lambda f, a, b, n, s: close(2 * f(a, b, n, s), f(a, b, 2 * n, s)),
    ),
    Property(
        "Twice the scale gives four times the variance.",
        lambda f, a, b, n, s: close(4 * f(a, b, n, s), f(a, b, n, 2 * s)),
    ),
    Property(
        "The scores of 4000 random pairs have this variance, within 25 %.",
        lambda f, a, b, n, s: near(measured_variance(a, b, n, s), f(a, b, n, s)),
    ),
)
OF_A_SCALE = (
    Property(
        "By the formula, the scale gives the wanted variance.",
        lambda f, a, b, n, v: close(torch.full_like(a, v), n * a * b * f(a, b, n, v) ** 2),
    ),
    Property("The scale is positive.", lambda f, a, b, n, v: (f(a, b, n, v) > 0).all()),
    Property(
        "If all variances are 1, the wanted one too, the scale is 1/√head_size.",
        lambda f, a, b, n, v: close(
            torch.full_like(a, n**-0.5), f(torch.ones_like(a), torch.ones_like(b), n, 1.0)
        ),
    ),
    Property(
        "The scores of 4000 random pairs have the wanted variance, within 25 %.",
        lambda f, a, b, n, v: near(measured_variance(a, b, n, f(a, b, n, v)), torch.full_like(a, v)),
    ),
)

EXERCISES = (
    exercise(__name__, scaled_weights, draw_heads, OF_WEIGHTS),
    exercise(__name__, predicted_variance, draw_variances, OF_A_VARIANCE),
    exercise(__name__, scale_for_variance, draw_variances, OF_A_SCALE),
)
