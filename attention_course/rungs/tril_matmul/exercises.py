"""Weights as a matrix: the causal mean, a band, and a shift."""

import torch
from jaxtyping import Float
from torch import Tensor

from attention_course.averaging import causal_mean_matmul
from attention_course.exercises.comparing import close
from attention_course.exercises.exercise import Property, exercise
from attention_course.rungs.bag_of_words.exercises import OF_A_MEAN, draw_tokens


def band_matrix(T: int, k: int) -> Float[Tensor, "T T"]:
    """Return the weights of the mean of the last k tokens.

    Args:
        T: number of tokens.
        k: number of tokens in a mean, at least 1.

    Returns:
        A matrix, shape (T, T), whose rows sum to 1: `band_matrix(T, k) @ x` is the windowed mean of x.
    """
    ones = torch.ones(T, T)
    band = ones.tril() - ones.tril(-k)  # 1 where the token lies 0 to k - 1 steps back
    return band / band.sum(dim=-1, keepdim=True)


def shift_matrix(T: int) -> Float[Tensor, "T T"]:
    """Return the matrix that copies the previous token.

    Args:
        T: number of tokens.

    Returns:
        A matrix, shape (T, T), with ones right below the diagonal: row t of `shift_matrix(T) @ x` is token
        t - 1 of x, and row 0 is zeros.
    """
    position = torch.arange(T)
    return (position[:, None] - 1 == position).float()


def draw_sizes(generator: torch.Generator) -> list[tuple]:
    """Draw T and k, small to large: T = 1, k = 1, 1 < k < T, k = T, k > T, and a longer one."""
    T = int(torch.randint(6, 10, (), generator=generator))
    k = int(torch.randint(2, 4, (), generator=generator))
    return [(1, 1), (1, 4), (3, 1), (3, 2), (4, 4), (5, 8), (T, k), (T, T - 1), (70, 5)]


def draw_token_counts(generator: torch.Generator) -> list[tuple]:
    """Draw T: 1, 2, 3, one up to 9, and one longer than the words of the notebook."""
    return [(1,), (2,), (3,), (int(torch.randint(4, 10, (), generator=generator)),), (70,)]


def negative_start(T, k):
    """Assign to slices with a negative start, which Python counts from the end."""
    weights = torch.zeros(T, T)
    for t in range(T):
        weights[t, t - k + 1 : t + 1] = 1 / min(k, t + 1)
    return weights


OF_FLOAT32 = "Its product with tokens in float32 raises no error."


def multiplies_tokens(matrix, *sizes):
    """Multiply tokens in float32, which a matrix of another dtype refuses."""
    found = matrix(*sizes)
    return (found @ torch.ones(len(found), 1, dtype=torch.float32)).isfinite().all()


OF_A_BAND = (
    Property("Each row sums to 1.", lambda f, T, k: close(torch.ones(T), f(T, k).sum(dim=1))),
    Property("There is nothing above the diagonal.", lambda f, T, k: not f(T, k).triu(1).any()),
    Property("Every token sees itself.", lambda f, T, k: (f(T, k).diagonal() > 0).all()),
    Property("No row has more than k weights.", lambda f, T, k: ((f(T, k) != 0).sum(dim=1) <= k).all()),
    Property(OF_FLOAT32, multiplies_tokens, "not_float32"),
)
OF_A_SHIFT = (
    Property("Row 0 is zeros.", lambda f, T: not f(T)[0].any()),
    Property("Every other row sums to 1.", lambda f, T: close(torch.ones(T - 1), f(T)[1:].sum(dim=1))),
    Property("There is nothing on the diagonal or above it.", lambda f, T: not f(T).triu().any()),
    Property(OF_FLOAT32, multiplies_tokens, "not_float32"),
)

EXERCISES = (
    exercise(__name__, causal_mean_matmul, draw_tokens, OF_A_MEAN),
    exercise(__name__, band_matrix, draw_sizes, OF_A_BAND, functions=(negative_start,)),
    exercise(__name__, shift_matrix, draw_token_counts, OF_A_SHIFT),
)
