"""Answers to the exercises of rung 2."""

import numpy as np
import torch
import torch.nn.functional as F

from answers import right, wrong


def ones(x):
    """Return a (T, T) matrix of ones."""
    return torch.ones(x.shape[-2], x.shape[-2], dtype=x.dtype)


def normalised(weights):
    """Divide each row by its sum."""
    return weights / weights.sum(dim=-1, keepdim=True)


def steps_back(T):
    """Return t - j in row t and column j, shape (T, T)."""
    return torch.arange(T)[:, None] - torch.arange(T)


# causal_mean_matmul


@right("causal_mean_matmul")
def product_with_ones_over_the_count(x):
    T = x.shape[-2]
    return torch.tril(torch.ones(T, T, dtype=x.dtype)) / torch.arange(1, T + 1, dtype=x.dtype)[:, None] @ x


@right("causal_mean_matmul")
def product_by_einsum(x):
    T = x.shape[-2]
    weights = torch.ones(T, T, dtype=x.dtype, device=x.device).tril()
    weights /= weights.sum(1, keepdim=True)
    return torch.einsum("ts,...sc->...tc", weights, x)


@right("causal_mean_matmul")
def product_of_the_mirrored(x):
    upper = ones(x).triu()
    return (x.transpose(-2, -1) @ (upper / upper.sum(dim=0))).transpose(-2, -1)


@right("causal_mean_matmul")
def product_by_bmm_with_a_repeated_table(x):
    batch = x if x.dim() == 3 else x[None]
    B, T, _ = batch.shape
    position = torch.arange(T)
    weights = torch.where(position[:, None] >= position, 1 / (position[:, None] + 1), 0.0).to(x.dtype)
    return torch.bmm(weights.expand(B, T, T), batch).reshape(x.shape)


@right("causal_mean_matmul")
def product_in_float64(x):
    return (normalised(ones(x).double().tril()) @ x.double()).to(x.dtype)


@right("causal_mean_matmul")
def product_sums_first_and_divides_after(x):
    triangle = torch.tril(ones(x))
    return (triangle @ x) / triangle.sum(dim=-1, keepdim=True)


@right("causal_mean_matmul")
def product_by_normalize(x):
    return F.normalize(ones(x).tril(), p=1, dim=-1).matmul(x)


@right("causal_mean_matmul")
def product_of_texts_side_by_side(x):
    T = x.shape[-2]
    weights = (torch.ones(T, T) / torch.arange(1, T + 1).unsqueeze(1)).tril().to(x)
    flat = x.movedim(-2, 0).reshape(T, -1)
    return (weights @ flat).reshape(T, *x.shape[:-2], x.shape[-1]).movedim(0, -2)


@right("causal_mean_matmul")
def product_by_vmap(x):
    T = x.shape[-2]
    table = [[1 / (t + 1) if s <= t else 0.0 for s in range(T)] for t in range(T)]
    weights = torch.tensor(table, dtype=x.dtype)
    return weights @ x if x.dim() == 2 else torch.vmap(lambda text: weights @ text)(x)


@right("causal_mean_matmul")
def product_row_by_row_under_vmap(x):
    past = torch.ones(x.shape[-2], x.shape[-2]).tril()
    return torch.vmap(lambda row: (row[:, None] * x).sum(-2) / row.sum(), out_dims=-2)(past)


@right("causal_mean_matmul")
def no_matrix_at_all(x):
    return x.cumsum(dim=-2) / torch.arange(1, x.shape[-2] + 1)[:, None]


@wrong("causal_mean_matmul", "whole_sequence")
def mean_of_the_whole_text(x):
    return x.mean(dim=-2, keepdim=True).expand_as(x)


@wrong("causal_mean_matmul", "diagonal_excluded")
def a_mask_of_earlier_positions(x):
    past = (steps_back(x.shape[-2]) > 0).to(x.dtype)
    return past / past.sum(dim=1, keepdim=True).clamp(min=1) @ x


@wrong("causal_mean_matmul", "diagonal_excluded")
def the_past_without_itself_but_row_0(x):
    means = (x.cumsum(dim=-2) - x) / torch.arange(x.shape[-2]).clamp(min=1)[:, None]
    means[..., 0, :] = x[..., 0, :]
    return means


@wrong("causal_mean_matmul", "one_step_ahead")
def a_softmax_from_the_second_diagonal(x):
    return torch.zeros_like(ones(x)).masked_fill(ones(x).triu(2) == 1, -torch.inf).softmax(dim=-1) @ x


@wrong("causal_mean_matmul", "transposed")
def einsum_over_the_rows_of_the_weights(x):
    return torch.einsum("ts,...tc->...sc", normalised(ones(x).tril()), x)


@wrong("causal_mean_matmul", "not_normalised", "diagonal_excluded")
def sum_of_the_others(x):
    return x.cumsum(dim=-2) - x


@wrong("causal_mean_matmul")
def divided_before_the_triangle(x):
    return (ones(x) / torch.arange(x.shape[-2], 0, -1)[:, None]).tril() @ x


@wrong("causal_mean_matmul")
def mean_of_the_texts_first(x):
    return (normalised(ones(x).tril()) @ (x.mean(dim=0, keepdim=True) if x.dim() == 3 else x)).expand_as(x)


@wrong("causal_mean_matmul")
def one_long_text(x):
    tokens = x.reshape(-1, x.shape[-1])
    return (normalised(ones(tokens).tril()) @ tokens).reshape(x.shape)


@wrong("causal_mean_matmul")
def squeezed_product(x):
    return (normalised(ones(x).tril()) @ x).squeeze()


@wrong("causal_mean_matmul")
def einsum_adds_up_the_texts(x):
    texts = x.reshape(-1, *x.shape[-2:])
    return torch.einsum("ts,bsc->tc", normalised(ones(x).tril()), texts).expand_as(x)


@wrong("causal_mean_matmul")
def side_by_side_put_back_in_the_wrong_order(x):
    flat = x.movedim(-2, 0).reshape(x.shape[-2], -1)
    return (normalised(ones(x).tril()) @ flat).reshape(x.shape)


@wrong("causal_mean_matmul")
def reshape_instead_of_transpose(x):
    mirrored = x.reshape(*x.shape[:-2], x.shape[-1], x.shape[-2])
    return (mirrored @ normalised(ones(x).tril()).T).reshape(x.shape)


@wrong("causal_mean_matmul")
def divided_by_the_root_of_the_count(x):
    return F.normalize(ones(x).tril(), dim=-1) @ x


@wrong("causal_mean_matmul")
def writes_the_product_into_the_argument(x):
    return x.copy_(normalised(ones(x).tril()) @ x)


# band_matrix


@right("band_matrix")
def band_from_distances(T, k):
    window = ((steps_back(T) >= 0) & (steps_back(T) < k)).float()
    return window / window.sum(dim=-1, keepdim=True)


@right("band_matrix")
def band_by_tril_and_triu(T, k):
    band = torch.ones(T, T).tril().triu(1 - k)
    return band / band.sum(1)[:, None]


@right("band_matrix")
def band_row_by_row(T, k):
    weights = torch.zeros(T, T)
    for t in range(T):
        start = max(0, t - k + 1)
        weights[t, start : t + 1] = 1 / (t + 1 - start)
    return weights


@right("band_matrix")
def band_over_counts(T, k):
    return (torch.ones(T, T).tril() - torch.ones(T, T).tril(-k)) / torch.arange(1, T + 1).clamp(max=k)[
        :, None
    ]


@right("band_matrix")
def band_of_nested_lists(T, k):
    return torch.tensor([[1 / min(t + 1, k) if t - k < s <= t else 0.0 for s in range(T)] for t in range(T)])


@right("band_matrix")
def band_by_softmax(T, k):
    hidden = (steps_back(T) < 0) | (steps_back(T) >= k)
    return torch.zeros(T, T).masked_fill(hidden, -torch.inf).softmax(-1)


@right("band_matrix")
def band_of_diagonals(T, k):
    band = sum(torch.diag(torch.ones(T - d), -d) for d in range(min(T, k)))
    return band / band.sum(dim=1, keepdim=True)


@right("band_matrix")
def band_by_numpy_and_float(T, k):
    return band_in_float64_by_numpy(T, k).float()


@right("band_matrix")
def band_in_float64_by_numpy(T, k):
    band = np.tril(np.ones((T, T))) - np.tril(np.ones((T, T)), -k)
    return torch.from_numpy(band / band.sum(axis=1, keepdims=True))


@right("band_matrix")
def band_as_the_windows_of_the_unit_vectors(T, k):
    return torch.stack([torch.eye(T)[max(0, t - k + 1) : t + 1].mean(0) for t in range(T)])


@wrong("band_matrix", "diagonal_excluded")
def band_without_the_token_itself(T, k):
    band = ((steps_back(T) > 0) & (steps_back(T) <= k)).float()
    return band / band.sum(dim=-1, keepdim=True).clamp(min=1)


@wrong("band_matrix", "diagonal_excluded", "columns_normalised")
def columns_without_the_token_itself(T, k):
    band = ((steps_back(T) > 0) & (steps_back(T) <= k)).float()
    return band / band.sum(dim=0, keepdim=True).clamp(min=1)


@wrong("band_matrix", "both_sides")
def band_of_distances_without_a_sign(T, k):
    return normalised((steps_back(T).abs() < k).float())


@wrong("band_matrix", "all_later_tokens")
def band_of_distances_below_k(T, k):
    return normalised((steps_back(T) < k).float())


@wrong("band_matrix", "always_divides_by_k")
def row_by_row_over_k(T, k):
    weights = torch.zeros(T, T)
    for t in range(T):
        weights[t, max(0, t - k + 1) : t + 1] = 1 / k
    return weights


@wrong("band_matrix", "looks_ahead", "not_normalised")
def ones_above_the_diagonal(T, k):
    return ((steps_back(T) <= 0) & (steps_back(T) > -k)).float()


@wrong("band_matrix", "wraps_around")
def columns_counted_from_the_end(T, k):
    weights = torch.zeros(T, T)
    for t in range(T):
        for back in range(min(k, T)):
            weights[t, t - back] = 1 / min(k, T)
    return weights


@wrong("band_matrix", "first_rows_left_at_zero")
def band_that_begins_with_the_first_full_window(T, k):
    band = torch.zeros(T, T)
    for t in range(k - 1, T):
        band[t, t - k + 1 : t + 1] = 1 / k
    return band


@wrong("band_matrix", "first_rows_copied")
def band_whose_first_rows_copy(T, k):
    band = torch.eye(T)
    for t in range(k - 1, T):
        band[t, t - k + 1 : t + 1] = 1 / k
    return band


@wrong("band_matrix", "blocks")
def band_of_blocks(T, k):
    block = torch.arange(T) // k
    return normalised((block[:, None] == block).float().tril())


@wrong("band_matrix", "first_token_repeated")
def band_that_repeats_the_first_token(T, k):
    band = torch.zeros(T, T)
    for t in range(T):
        for d in range(k):
            band[t, max(0, t - d)] += 1 / k
    return band


@wrong("band_matrix")
def band_with_negative_starts(T, k):
    band = torch.zeros(T, T)
    for t in range(T):
        band[t, t - k + 1 : t + 1] = 1
    return band / band.sum(1, keepdim=True).clamp(min=1)


@wrong("band_matrix")
def band_as_wide_as_the_text_sees_all_of_it(T, k):
    return torch.full((T, T), 1 / T) if k >= T else normalised(torch.ones(T, T).tril().triu(1 - k))


@wrong("band_matrix")
def band_never_as_wide_as_the_text(T, k):
    return normalised(torch.ones(T, T).tril().triu(1 - max(1, min(k, T - 1))))


@wrong("band_matrix")
def band_of_three(T, k):
    return normalised(torch.ones(T, T).tril().triu(-2))


@wrong("band_matrix")
def band_of_the_first_k_tokens(T, k):
    return normalised(torch.ones(T, T).tril() * (torch.arange(T) < k))


# shift_matrix


@right("shift_matrix")
def shift_by_diag(T):
    return torch.diag(torch.ones(T - 1), diagonal=-1)


@right("shift_matrix")
def shift_by_comparison(T):
    return (steps_back(T) == 1).float()


@right("shift_matrix")
def shift_by_a_loop(T):
    m = torch.zeros(T, T)
    for t in range(1, T):
        m[t, t - 1] = 1
    return m


@right("shift_matrix")
def shift_by_rolling_and_clearing(T):
    m = torch.eye(T).roll(1, dims=0)
    m[0] = 0
    return m


@right("shift_matrix")
def shift_by_an_eye_in_a_corner(T):
    m = torch.zeros(T, T)
    m[1:, :-1] = torch.eye(T - 1)
    return m


@right("shift_matrix")
def shift_by_cat(T):
    return torch.cat([torch.zeros(1, T), torch.eye(T)[:-1]])


@right("shift_matrix")
def shift_by_numpy_eye(T):
    return torch.tensor(np.eye(T, k=-1))


@right("shift_matrix")
def shift_by_padding(T):
    return F.pad(torch.eye(T), (0, 0, 1, 0))[:T]


@right("shift_matrix")
def shift_of_nested_lists(T):
    return torch.tensor([[1.0 if s == t - 1 else 0.0 for s in range(T)] for t in range(T)])


@right("shift_matrix")
def shift_by_fancy_indexing(T):
    m = torch.zeros((T, T))
    t = torch.arange(1, T)
    m[t, t - 1] = 1.0
    return m


@right("shift_matrix")
def shift_as_the_difference_of_triangles(T):
    return torch.ones(T, T).tril(-1) - torch.ones(T, T).tril(-2)


@wrong("shift_matrix", "copies_the_next")
def shift_to_the_next_token(T):
    return torch.diag(torch.ones(T - 1), diagonal=1)


@wrong("shift_matrix", "copies_the_next", "wraps_around")
def shift_that_goes_round_the_other_way(T):
    return torch.eye(T).roll(-1, dims=0)


@wrong("shift_matrix", "copies_the_next", "every_earlier_token")
def every_later_token(T):
    return torch.ones(T, T).triu(1)


@wrong("shift_matrix", "wraps_around")
def shift_by_a_loop_from_0(T):
    m = torch.zeros(T, T)
    for t in range(T):
        m[t, t - 1] = 1
    return m


@wrong("shift_matrix", "row_0_copies_itself")
def shift_whose_first_token_copies_itself(T):
    return torch.eye(T)[(torch.arange(T) - 1).clamp(min=0)]


@wrong("shift_matrix", "identity_without_row_0")
def no_shift_but_a_first_row_of_zeros(T):
    return torch.diag(torch.arange(T).clamp(max=1).float())


@wrong("shift_matrix", "mean_of_earlier_tokens")
def mean_of_all_tokens_before(T):
    m = torch.ones(T, T).tril(-1)
    return m / m.sum(-1, keepdim=True).clamp(min=1)


@wrong("shift_matrix", "itself_as_well")
def the_token_and_the_one_before(T):
    return torch.eye(T) + torch.diag(torch.ones(T - 1), diagonal=-1)


@wrong("shift_matrix", "loop_ends_too_early")
def shift_without_the_last_row(T):
    m = torch.zeros(T, T)
    for t in range(1, T - 1):
        m[t, t - 1] = 1
    return m


@wrong("shift_matrix")
def shift_of_index_minus_one(T):
    m = shift_by_a_loop_from_0(T)
    m[0, 0] = 0.0
    return m


@wrong("shift_matrix")
def shift_of_integers(T):
    return (steps_back(T) == 1).long()


@wrong("shift_matrix")
def shift_that_is_nearly_one(T):
    m = torch.softmax(5.0 * (steps_back(T) == 1), dim=-1)
    m[0] = 0
    return m


@wrong("shift_matrix")
def a_single_token_copies_itself(T):
    return torch.ones(1, 1) if T == 1 else torch.diag(torch.ones(T - 1), diagonal=-1)


@wrong("shift_matrix")
def shift_whose_loop_begins_at_two(T):
    return (steps_back(T) == 1).float() * (torch.arange(T)[:, None] > 1)


@wrong("shift_matrix")
def difference_to_the_token_before(T):
    return torch.eye(T) - torch.diag(torch.ones(T - 1), diagonal=-1)


@wrong("shift_matrix", "copies_the_next", "row_0_copies_itself")
def shift_flattened_one_to_the_right(T):
    return torch.eye(T).flatten().roll(1).view(T, T)


@wrong("shift_matrix")
def shift_flattened_one_to_the_left(T):
    return torch.eye(T).flatten().roll(-1).view(T, T)


@wrong("shift_matrix")
def shift_of_the_six_tokens_of_the_notebook(T):
    return (steps_back(T) == 1).float() * (torch.arange(T)[:, None] < 6)


@wrong("shift_matrix")
def shift_one_row_too_large(T):
    return F.pad(torch.eye(T), (0, 0, 1, 0))
