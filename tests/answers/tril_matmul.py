"""Answers to the exercises of rung 2."""

import numpy as np
import torch

from answers import right, wrong


def ones(x):
    """Return a (T, T) matrix of ones."""
    return torch.ones(x.shape[-2], x.shape[-2], dtype=x.dtype)


def normalized(weights):
    """Divide each row by its sum."""
    return weights / weights.sum(dim=-1, keepdim=True)


def steps_back(T):
    """Return t - j in row t and column j, shape (T, T)."""
    return torch.arange(T)[:, None] - torch.arange(T)


# causal_mean_matmul

right(
    "causal_mean_matmul",
    product_in_float64=lambda x: (normalized(ones(x).double().tril()) @ x.double()).to(x.dtype),
    product_row_by_row_under_vmap=lambda x: torch.vmap(
        lambda row: (row[:, None] * x).sum(-2) / row.sum(), out_dims=-2
    )(ones(x).tril()),
)


@wrong("causal_mean_matmul", "whole_sequence")
def mean_of_the_whole_text(x):
    return x.mean(dim=-2, keepdim=True).expand_as(x)


@wrong("causal_mean_matmul", "not_normalized", "leaves_itself_out")
def sum_of_the_others(x):
    return x.cumsum(dim=-2) - x


# band_matrix

right(
    "band_matrix",
    band_by_tril_and_triu=lambda T, k: normalized(torch.ones(T, T).tril().triu(1 - k)),
)


@right("band_matrix")
def band_row_by_row(T, k):
    weights = torch.zeros(T, T)
    for t in range(T):
        weights[t, max(0, t - k + 1) : t + 1] = 1 / min(t + 1, k)
    return weights


@right("band_matrix")
def band_in_float64_by_numpy(T, k):
    band = np.tril(np.ones((T, T))) - np.tril(np.ones((T, T)), -k)
    return torch.from_numpy(band / band.sum(axis=1, keepdims=True))


@wrong("band_matrix")
def band_with_negative_starts(T, k):
    band = torch.zeros(T, T)
    for t in range(T):
        band[t, t - k + 1 : t + 1] = 1
    return band / band.sum(1, keepdim=True).clamp(min=1)


wrong(
    "band_matrix",
    band_as_wide_as_the_text_sees_all_of_it=lambda T, k: (
        torch.full((T, T), 1 / T) if k >= T else normalized(torch.ones(T, T).tril().triu(1 - k))
    ),
    band_never_as_wide_as_the_text=lambda T, k: normalized(
        torch.ones(T, T).tril().triu(1 - max(1, min(k, T - 1)))
    ),
    band_of_three=lambda T, k: normalized(torch.ones(T, T).tril().triu(-2)),
)


# shift_matrix

right(
    "shift_matrix",
    shift_by_comparison=lambda T: (steps_back(T) == 1).float(),
)


@right("shift_matrix")
def shift_by_diag(T):
    return torch.diag(torch.ones(T - 1), diagonal=-1)


@right("shift_matrix")
def shift_by_a_loop(T):
    m = torch.zeros(T, T)
    for t in range(1, T):
        m[t, t - 1] = 1
    return m


@wrong("shift_matrix", "copies_the_next", "row_0_copies_itself")
def shift_flattened_one_to_the_right(T):
    return torch.eye(T).flatten().roll(1).view(T, T)


wrong(
    "shift_matrix",
    shift_of_index_minus_one=lambda T: torch.eye(T)[torch.arange(T) - 1] * (T > 1),
    shift_of_integers=lambda T: (steps_back(T) == 1).long(),
    shift_that_is_nearly_one=lambda T: (
        torch.softmax(5.0 * (steps_back(T) == 1), dim=-1) * (torch.arange(T)[:, None] > 0)
    ),
)
