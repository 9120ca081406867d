"""The causal mean as a softmax, a numerically stable softmax, and a padding mask."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attention_course.attention import padding_mask
from attention_course.averaging import causal_mean_softmax
from attention_course.exercises.comparing import close
from attention_course.exercises.exercise import Property, exercise
from attention_course.rungs.bag_of_words.exercises import OF_A_MEAN, draw_tokens


def stable_softmax(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Turn scores into weights of at least 0 that sum to 1 along the last dimension.

    Args:
        x: scores, any shape.

    Returns:
        Weights, same shape. Subtracting the largest score first changes no weight, and exp never gets a
        number above 0.
    """
    largest = x.amax(dim=-1, keepdim=True)
    exp = (x - largest).exp()
    return exp / exp.sum(dim=-1, keepdim=True)


def padding_weights(
    scores: Float[Tensor, "B T_q T_k"], lengths: Int[Tensor, " B"]
) -> Float[Tensor, "B T_q T_k"]:
    """Turn scores into weights, with no weight on the padding of each text.

    Args:
        scores: shape (B, T_q, T_k).
        lengths: how many keys of each text are real, shape (B,), from 0 to T_k. The rest is padding.

    Returns:
        Weights, same shape: 0 for padding, and each row sums to 1. With no real key a row is zeros.
    """
    position = torch.arange(scores.shape[-1], device=scores.device)
    mask = position < lengths[:, None, None]  # (B, 1, T_k), True where a query may look
    weights = torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)
    return weights.masked_fill(~mask, 0.0)  # with no real key, softmax gave NaN


def draw_scores(generator: torch.Generator) -> list[tuple]:
    """Draw scores: one number, one row, C == T, batches, heads, far apart, near 1000 or -1000, wide."""
    T, C = (torch.randperm(4, generator=generator)[:2] + 3).tolist()
    shapes = [(1,), (3,), (1, 2), (2, 3), (4, 4), (1, T, C), (2, T, C), (3, 4, 4), (2, 3, T, C)]
    drawn = [torch.randn(shape, generator=generator) for shape in shapes]
    one_high, one_low = torch.tensor([[[0.0], [1000.0]], [[-1000.0], [0.0]]])
    shifted = [drawn[3] + one_high, drawn[3] + one_low, drawn[1] + 1000, drawn[4] - 1000]
    wide = 1000 * drawn[6].round().clamp(-2, 2)
    wide[..., 0] = wide[..., 0].abs()  # all-negative rows are covered above
    wide[0, 0] = -2000.0
    wide[0, 0, 0] = 1000.0
    return [(x,) for x in (*drawn, *shifted, wide)]


def draw_padded(generator: torch.Generator) -> list[tuple]:
    """Draw scores and lengths: T = 1, B = 1, equal sizes, T_k = 70, lengths 0 and T_k, huge values."""
    shapes = [(1, 1, 1), (1, 2, 3), (2, 3, 4), (2, 3, 3), (3, 3, 5), (4, 2, 5), (3, 5, 7), (2, 2, 70)]
    drawn = []
    for B, T_q, T_k in shapes:
        lengths = torch.randint(1, T_k + 1, (B,), generator=generator)
        drawn.append((torch.randn(B, T_q, T_k, generator=generator), lengths))
    drawn[2][1][:] = torch.tensor([2, 4])
    drawn[3][1][:] = torch.tensor([2, 0])
    drawn[4][1][:] = torch.tensor([1, 3, 5])
    drawn[6][1][:] = torch.tensor([0, 3, 6])
    drawn[6][0][1, 0, 4] = 5.0  # padding with a score far above all keys
    drawn[6][0][1, 1, :3] -= 9.0  # keys with scores that a finite fill may exceed
    drawn[6][0].mul_(1e4)
    return [*drawn, (-1e10 * (1 + torch.rand(2, 2, 4, generator=generator)), torch.tensor([2, 3]))]


def hidden(scores, lengths):
    """Return a mask in the shape of `scores`, True at the padding."""
    return ~padding_mask(lengths, scores.shape[-1]).expand_as(scores)


OF_A_SOFTMAX = (
    Property(
        "The weights along the last dimension sum to 1.",
        lambda f, x: close(torch.ones(x.shape[:-1]), f(x).sum(dim=-1)),
    ),
    Property("No weight is negative.", lambda f, x: (f(x) >= 0).all()),
    Property(
        "The largest score gets the largest weight.", lambda f, x: (f(x).argmax(-1) == x.argmax(-1)).all()
    ),
    Property(
        "Adding 1 to every score changes nothing.", lambda f, x: close(f(x), f(x + 1)) or x.abs().max() > 99
    ),
    Property(
        "A score that lies 100 below the largest of its row gets practically no weight.",
        lambda f, x: not (f(x) > 1e-9)[x < x.amax(dim=-1, keepdim=True) - 100].any(),
    ),
)
OF_PADDED_WEIGHTS = (
    Property("Padding gets no weight.", lambda f, s, n: not f(s, n)[hidden(s, n)].any()),
    Property(
        "Each row of a text with a key sums to 1.",
        lambda f, s, n: close(torch.ones_like(s[n > 0, :, 0]), f(s, n).sum(dim=-1)[n > 0]),
    ),
    Property("A text of length 0 has rows of zeros.", lambda f, s, n: not f(s, n)[n == 0].any()),
    Property(
        "Scores of padding change nothing.",
        lambda f, s, n: close(f(s, n), f(s.masked_fill(hidden(s, n), 7.0), n)),
    ),
)

EXERCISES = (
    exercise(__name__, causal_mean_softmax, draw_tokens, OF_A_MEAN),
    exercise(__name__, stable_softmax, draw_scores, OF_A_SOFTMAX),
    exercise(__name__, padding_weights, draw_padded, OF_PADDED_WEIGHTS),
)
