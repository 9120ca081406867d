"""The causal mean, the mean of a window, and an exponentially weighted mean, with loops."""

import torch
from jaxtyping import Float
from torch import Tensor

from attention_course.averaging import causal_mean_loop
from attention_course.exercises.comparing import close
from attention_course.exercises.exercise import Property, exercise


def windowed_mean(x: Float[Tensor, "*B T C"], k: int) -> Float[Tensor, "*B T C"]:
    """Average each token with the k - 1 tokens before it, or with as many as there are.

    Args:
        x: tokens, shape (T, C) or (B, T, C).
        k: number of tokens in a mean, at least 1.

    Returns:
        The means, same shape.
    """
    out = torch.zeros_like(x)
    for t in range(x.shape[-2]):
        start = max(0, t - k + 1)
        out[..., t, :] = x[..., start : t + 1, :].mean(dim=-2)
    return out


def forgetting_mean(x: Float[Tensor, "*B T C"]) -> Float[Tensor, "*B T C"]:
    """Average each token with all tokens before it, with shares that halve with each step back.

    Args:
        x: tokens, shape (T, C) or (B, T, C).

    Returns:
        The means, same shape. The shares in each mean sum to 1.
    """
    out = torch.zeros_like(x)
    for t in range(x.shape[-2]):
        age = torch.arange(t, -1, -1, device=x.device)  # t, ..., 1, 0: the newest token has age 0
        share = 0.5**age
        share = share / share.sum()
        out[..., t, :] = (share[:, None] * x[..., : t + 1, :]).sum(dim=-2)
    return out


def draw_tokens(generator: torch.Generator) -> list[tuple]:
    """Draw tokens: T = 1, B = 1, C == T, B, T and C all different, T = 70, large values, C = 1."""
    B, T, C = (torch.randperm(4, generator=generator)[:3] + 3).tolist()
    small = [(1, 2), (3, 2), (1, 3, 2), (2, 1, 3), (4, 4)]
    large = [(T, C), (B, T, C), (B, T, T), (70, 2), (9, 5), (9, 1)]
    drawn = [torch.randint(-9, 10, shape, generator=generator).float() for shape in small]
    drawn += [torch.randn(shape, generator=generator) for shape in large]
    drawn[1][:2, 0] = torch.tensor([4.0, 0.0])  # zeros must count too
    drawn[-3][3] = 0  # and so must a token of zeros
    drawn[-2] *= 1e4
    return [(x,) for x in drawn]


def draw_longer_tokens(generator: torch.Generator) -> list[tuple]:
    """Draw tokens, and a sequence of 24, in which a wrong share is still large enough to detect."""
    return [*draw_tokens(generator), (torch.randn(24, 2, generator=generator),)]


def draw_windows(generator: torch.Generator) -> list[tuple]:
    """Draw tokens, each with a k: 1, less than T, T, and more than T."""
    return [
        (x, k) for (x,), k in zip(draw_tokens(generator), (1, 2, 2, 4, 4, 2, 3, 9, 12, 3, 1), strict=True)
    ]


def first_row_is_first_token(mean, x, *k):
    """Compare row 0 with token 0; `mean` is the answer, and `k` is its window if it takes one."""
    return close(x[..., 0, :], mean(x, *k)[..., 0, :])


def future_is_unseen(mean, x, *k):
    """Change the last token, and compare all rows but the last."""
    changed = torch.cat([x[..., :-1, :], -x[..., -1:, :] - 1], dim=-2)
    return close(mean(x, *k)[..., :-1, :], mean(changed, *k)[..., :-1, :])


def equal_tokens_stay(mean, x, *k):
    """Average tokens that are all ones."""
    return close(torch.ones_like(x), mean(torch.ones_like(x), *k))


def batch_rows_apart(mean, x, *k):
    """Compare the first sequence of a batch with the same sequence alone."""
    return x.dim() == 2 or close(mean(x[0], *k), mean(x, *k)[0])


def long_text_is_finite(mean, x):
    """Repeat the sequence of 24 tokens to a length of 140, and compare with the reference."""
    if x.shape[-2] < 24:
        return True
    x = x.repeat(6, 1)[:140]
    return close(forgetting_mean(x), mean(x))


OF_A_MEAN = (
    Property("Row 0 is token 0: there is nothing else to average.", first_row_is_first_token),
    Property("A change of the last token moves no earlier row.", future_is_unseen),
    Property("Equal tokens give that token back, as in every mean.", equal_tokens_stay),
    Property("A text in a batch gives what it gives alone.", batch_rows_apart),
)
OF_A_FORGETTING_MEAN = (
    *OF_A_MEAN,
    Property("A text of 140 tokens is no problem: no power of 2 overflows on the way.", long_text_is_finite),
)

EXERCISES = (
    exercise(__name__, causal_mean_loop, draw_tokens, OF_A_MEAN),
    exercise(__name__, windowed_mean, draw_windows, OF_A_MEAN),
    exercise(__name__, forgetting_mean, draw_longer_tokens, OF_A_FORGETTING_MEAN),
)
