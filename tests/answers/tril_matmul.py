"""Answers to the exercises of rung 2."""

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


right(
    "causal_mean_matmul",
    product_in_float64=lambda x: (normalized(ones(x).double().tril()) @ x.double()).to(x.dtype),
    product_row_by_row_under_vmap=lambda x: torch.vmap(
        lambda row: (row[:, None] * x).sum(-2) / row.sum(), out_dims=-2
    )(ones(x).tril()),
)
wrong(
    "causal_mean_matmul",
    "not_normalized",
    "leaves_itself_out",
    sum_of_the_others=lambda x: x.cumsum(dim=-2) - x,
)


@wrong("band_matrix")
def band_with_negative_starts(T, k):
    band = torch.zeros(T, T)
    for t in range(T):
        band[t, t - k + 1 : t + 1] = 1
    return band / band.sum(1, keepdim=True).clamp(min=1)


right("band_matrix", band_by_tril_and_triu=lambda T, k: normalized(torch.ones(T, T).tril().triu(1 - k)))
wrong(
    "band_matrix",
    band_as_wide_as_the_text_sees_all_of_it=lambda T, k: (
        torch.full((T, T), 1 / T) if k >= T else normalized(torch.ones(T, T).tril().triu(1 - k))
    ),
    band_never_as_wide_as_the_text=lambda T, k: normalized(
        torch.ones(T, T).tril().triu(1 - max(1, min(k, T - 1)))
    ),
)
right("shift_matrix", shift_by_comparison=lambda T: (steps_back(T) == 1).float())
wrong(
    "shift_matrix",
    shift_of_index_minus_one=lambda T: torch.eye(T)[torch.arange(T) - 1] * (T > 1),
    shift_that_is_nearly_one=lambda T: (
        torch.softmax(5.0 * (steps_back(T) == 1), dim=-1) * (torch.arange(T)[:, None] > 0)
    ),
)
wrong(
    "band_matrix",
    "not_float32",
    band_in_float64=lambda T, k: normalized(torch.ones(T, T).double().tril().triu(1 - k)),
)
wrong(
    "shift_matrix",
    "not_float32",
    shift_in_float64=lambda T: (steps_back(T) == 1).double(),
    shift_in_float16=lambda T: (steps_back(T) == 1).half(),
)
