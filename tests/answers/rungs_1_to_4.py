"""Answers to the exercises of notebooks 01 to 04."""

import math

import numpy as np
import torch
import torch.nn.functional as F

from answers import right, wrong
from attention_course.attention import attention_weights, causal_mask

# ---------------------------------------------------------------- causal_mean_loop


@right("causal_mean_loop")
def by_loops_with_an_extra_branch_for_the_batch(x):
    if x.dim() == 2:
        T, C = x.shape
        out = torch.zeros(T, C)
        for t in range(T):
            out[t] = x[: t + 1].mean(dim=0)
        return out
    B, T, C = x.shape
    out = torch.zeros(B, T, C)
    for b in range(B):
        for t in range(T):
            out[b, t] = x[b, : t + 1].mean(dim=0)
    return out


@right("causal_mean_loop")
def by_cumsum_and_counts(x):
    counts = torch.arange(1, x.shape[-2] + 1)
    return x.cumsum(dim=-2) / counts[:, None]


@right("causal_mean_loop")
def by_a_view_of_the_batch(x):
    T, C = x.shape[-2:]
    texts = x.view(-1, T, C)
    out = torch.empty(len(texts), T, C)
    for t in range(T):
        torch.mean(texts[:, : t + 1], dim=1, out=out[:, t])
    return out.view(x.shape)


@right("causal_mean_loop")
def by_list_comprehension_and_stack(x):
    return torch.stack([x[..., : t + 1, :].mean(dim=-2) for t in range(x.shape[-2])], dim=-2)


@right("causal_mean_loop")
def by_a_mean_that_moves_towards_each_new_token(x):
    mean = torch.zeros_like(x[..., 0, :])
    rows = []
    for t, token in enumerate(x.unbind(dim=-2)):
        mean = mean + (token - mean) / (t + 1)
        rows.append(mean)
    return torch.stack(rows, dim=-2)


@right("causal_mean_loop")
def backwards_in_place_on_a_copy(x):
    out = x.clone()
    for t in reversed(range(x.shape[-2])):
        out[..., t, :] = out[..., : t + 1, :].mean(dim=-2)
    return out


@right("causal_mean_loop")
def by_numpy(x):
    a = x.numpy()
    T = a.shape[-2]
    return torch.from_numpy((np.cumsum(a, axis=-2) / np.arange(1, T + 1)[:, None]).astype(a.dtype))


@right("causal_mean_loop")
def by_vmap_over_the_batch(x):
    def one_text(text):
        return torch.stack([text[: t + 1].mean(dim=0) for t in range(len(text))])

    return one_text(x) if x.dim() == 2 else torch.vmap(one_text)(x)


@right("causal_mean_loop")
def by_recursion_over_the_batch_and_python_floats(x):
    if x.dim() == 3:
        return torch.stack([by_recursion_over_the_batch_and_python_floats(text) for text in x])
    T, C = x.shape
    table = [[sum(x[s, c].item() for s in range(t + 1)) / (t + 1) for c in range(C)] for t in range(T)]
    return torch.tensor(table, dtype=x.dtype)


@right("causal_mean_loop")
def in_float64_and_back(x):
    total, out = torch.zeros_like(x[..., 0, :], dtype=torch.float64), torch.empty_like(x)
    for t in range(x.size(-2)):
        total += x[..., t, :]
        out[..., t, :] = (total / (t + 1)).to(x.dtype)
    return out


@wrong("causal_mean_loop")
def divides_by_the_length_of_the_text(x):
    T = x.shape[-2]
    out = torch.zeros_like(x)
    for t in range(T):
        out[..., t, :] = x[..., : t + 1, :].sum(dim=-2) / T
    return out


@wrong("causal_mean_loop")
def leaves_the_token_itself_out(x):
    out = x.clone()
    for t in range(1, x.shape[-2]):
        out[..., t, :] = x[..., :t, :].mean(dim=-2)
    return out


@wrong("causal_mean_loop")
def slice_excludes_but_count_includes(x):
    out = torch.zeros_like(x)
    for t in range(x.shape[-2]):
        out[..., t, :] = x[..., :t, :].sum(dim=-2) / (t + 1)
    return out


@wrong("causal_mean_loop")
def one_number_for_all_channels(x):
    out = torch.zeros_like(x)
    for t in range(x.shape[-2]):
        out[..., t, :] = x[..., : t + 1, :].mean(dim=(-2, -1)).unsqueeze(-1)
    return out


@wrong("causal_mean_loop")
def one_number_for_all_texts_and_channels(x):
    out = torch.zeros_like(x)
    for t in range(x.shape[-2]):
        out[..., t, :] = x[..., : t + 1, :].mean()
    return out


@wrong("causal_mean_loop")
def halfway_between_the_last_mean_and_the_token(x):
    out = x.clone()
    for t in range(1, x.shape[-2]):
        out[..., t, :] = (out[..., t - 1, :] + x[..., t, :]) / 2
    return out


@wrong("causal_mean_loop")
def running_mean_with_a_step_of_1_over_t(x):
    out = x.clone()
    for t in range(1, x.shape[-2]):
        out[..., t, :] = out[..., t - 1, :] + (x[..., t, :] - out[..., t - 1, :]) / t
    return out


@wrong("causal_mean_loop")
def reads_rows_that_are_already_means(x):
    out = x.clone()
    for t in range(x.shape[-2]):
        out[..., t, :] = out[..., : t + 1, :].mean(dim=-2)
    return out


@wrong("causal_mean_loop")
def loops_over_the_first_dimension(x):
    out = torch.zeros_like(x)
    for t in range(len(x)):
        out[t] = x[: t + 1].mean(dim=0)
    return out


@wrong("causal_mean_loop")
def writes_into_the_argument(x):
    for t in reversed(range(x.shape[-2])):
        x[..., t, :] = x[..., : t + 1, :].mean(dim=-2)
    return x


@wrong("causal_mean_loop")
def mean_of_the_future(x):
    out = torch.zeros_like(x)
    for t in range(x.shape[-2]):
        out[..., t, :] = x[..., t:, :].mean(dim=-2)
    return out


@wrong("causal_mean_loop")
def sees_one_token_ahead(x):
    out = torch.zeros_like(x)
    for t in range(x.shape[-2]):
        out[..., t, :] = x[..., : t + 2, :].mean(dim=-2)
    return out


@wrong("causal_mean_loop")
def last_row_left_zero(x):
    out = torch.zeros_like(x)
    for t in range(x.shape[-2] - 1):
        out[..., t, :] = x[..., : t + 1, :].mean(dim=-2)
    return out


@wrong("causal_mean_loop")
def first_row_left_zero(x):
    out = torch.zeros_like(x)
    for t in range(1, x.shape[-2]):
        out[..., t, :] = x[..., : t + 1, :].mean(dim=-2)
    return out


@wrong("causal_mean_loop")
def only_the_eight_tokens_of_the_notebook(x):
    out = torch.zeros_like(x)
    for t, _ in zip(range(8), range(x.shape[-2]), strict=False):
        out[..., t, :] = x[..., : t + 1, :].mean(dim=-2)
    return out


@wrong("causal_mean_loop")
def stacks_in_front_and_reshapes(x):
    rows = [x[..., : t + 1, :].mean(dim=-2) for t in range(x.shape[-2])]
    return torch.stack(rows).reshape(x.shape)


@wrong("causal_mean_loop")
def takes_the_length_from_dimension_1(x):
    return torch.stack([x[..., : t + 1, :].mean(dim=-2) for t in range(x.shape[1])], dim=-2)


@wrong("causal_mean_loop")
def the_running_sum_is_not_reset_between_texts(x):
    out = torch.zeros_like(x)
    total = torch.zeros(x.shape[-1], dtype=x.dtype)
    for text, means in zip(x.reshape(-1, *x.shape[-2:]), out.view(-1, *x.shape[-2:]), strict=True):
        for t in range(len(text)):
            total = total + text[t]
            means[t] = total / (t + 1)
    return out


@wrong("causal_mean_loop")
def squeezes_the_result(x):
    out = torch.zeros_like(x)
    for t in range(x.shape[-2]):
        out[..., t, :] = x[..., : t + 1, :].mean(dim=-2)
    return out.squeeze()


@wrong("causal_mean_loop")
def counts_only_entries_that_are_not_zero(x):
    counts = (x != 0).cumsum(dim=-2).clamp(min=1)
    return x.cumsum(dim=-2) / counts


# ---------------------------------------------------------------- windowed_mean


@right("windowed_mean")
def window_by_a_slice_from_max(x, k):
    out = torch.zeros_like(x)
    for t in range(x.shape[-2]):
        out[..., t, :] = x[..., max(0, t - k + 1) : t + 1, :].mean(dim=-2)
    return out


@right("windowed_mean")
def window_by_the_last_k_of_the_past(x, k):
    return torch.stack([x[..., : t + 1, :][..., -k:, :].mean(dim=-2) for t in range(x.shape[-2])], dim=-2)


@right("windowed_mean")
def window_by_the_difference_of_running_sums(x, k):
    T = x.shape[-2]
    sums = F.pad(x.cumsum(dim=-2), (0, 0, 1, 0))
    end = torch.arange(1, T + 1)
    start = (end - k).clamp(min=0)
    return (sums[..., end, :] - sums[..., start, :]) / (end - start)[:, None]


@right("windowed_mean")
def window_by_einsum_with_a_band(x, k):
    t = torch.arange(x.shape[-2])
    band = ((t[None, :] <= t[:, None]) & (t[None, :] > t[:, None] - k)).to(x.dtype)
    return torch.einsum("ts,...sc->...tc", band / band.sum(1, keepdim=True), x)


@right("windowed_mean")
def window_by_a_sliding_sum(x, k):
    total = torch.zeros_like(x[..., 0, :], dtype=torch.float64)
    rows = []
    for t in range(x.shape[-2]):
        total = total + x[..., t, :]
        if t >= k:
            total = total - x[..., t - k, :]
        rows.append((total / min(t + 1, k)).to(x.dtype))
    return torch.stack(rows, dim=-2)


@right("windowed_mean")
def window_by_padding_and_unfold(x, k):
    padded = F.pad(x, (0, 0, k - 1, 0))
    ones = F.pad(torch.ones(x.shape[-2], dtype=x.dtype), (k - 1, 0))
    return padded.unfold(-2, k, 1).sum(dim=-1) / ones.unfold(0, k, 1).sum(dim=-1, keepdim=True)


@right("windowed_mean")
def window_by_vmap_of_where(x, k):
    t = torch.arange(x.shape[-2])

    def one_text(text):
        def one_row(i):
            seen = (t <= i) & (i - t < k)
            return torch.where(seen[:, None], text, torch.zeros_like(text)).sum(0) / seen.sum()

        return torch.vmap(one_row)(t)

    return torch.vmap(one_text)(x) if x.dim() == 3 else one_text(x)


@right("windowed_mean")
def window_by_python_loops(x, k):
    out = x.clone()
    for index in np.ndindex(*x.shape[:-2]):
        for t in range(x.shape[-2]):
            for c in range(x.shape[-1]):
                values = [float(x[(*index, s, c)]) for s in range(t, -1, -1)][:k]
                out[(*index, t, c)] = sum(values) / len(values)
    return out


@wrong("windowed_mean")
def window_of_k_plus_1(x, k):
    out = torch.zeros_like(x)
    for t in range(x.shape[-2]):
        out[..., t, :] = x[..., max(0, t - k) : t + 1, :].mean(dim=-2)
    return out


@wrong("windowed_mean")
def window_of_k_minus_1(x, k):
    out = x.clone()
    for t in range(1, x.shape[-2]):
        if k > 1:
            out[..., t, :] = x[..., max(0, t - k + 2) : t + 1, :].mean(dim=-2)
    return out


@wrong("windowed_mean")
def the_k_tokens_before_this_one(x, k):
    out = x.clone()
    for t in range(1, x.shape[-2]):
        out[..., t, :] = x[..., max(0, t - k) : t, :].mean(dim=-2)
    return out


@wrong("windowed_mean")
def always_divides_by_k(x, k):
    out = torch.zeros_like(x)
    for t in range(x.shape[-2]):
        out[..., t, :] = x[..., max(0, t - k + 1) : t + 1, :].sum(dim=-2) / k
    return out


@wrong("windowed_mean")
def start_of_the_slice_may_be_negative(x, k):
    out = torch.zeros_like(x)
    for t in range(x.shape[-2]):
        out[..., t, :] = x[..., t - k + 1 : t + 1, :].mean(dim=-2)
    return out


@wrong("windowed_mean")
def empty_slices_become_zero(x, k):
    out = torch.zeros_like(x)
    for t in range(x.shape[-2]):
        out[..., t, :] = x[..., t - k + 1 : t + 1, :].mean(dim=-2).nan_to_num()
    return out


@wrong("windowed_mean")
def window_goes_round_in_a_circle(x, k):
    return sum(x.roll(i, dims=-2) for i in range(k)) / k


@wrong("windowed_mean")
def pads_the_start_with_the_first_token(x, k):
    first = x[..., :1, :]
    padded = torch.cat([first] * (k - 1) + [x], dim=-2)
    return padded.unfold(-2, k, 1).mean(dim=-1)


@wrong("windowed_mean")
def the_next_k_tokens(x, k):
    return torch.stack([x[..., t : t + k, :].mean(dim=-2) for t in range(x.shape[-2])], dim=-2)


@wrong("windowed_mean")
def window_centred_on_the_token(x, k):
    T = x.shape[-2]
    out = torch.zeros_like(x)
    for t in range(T):
        start = max(0, t - k // 2)
        out[..., t, :] = x[..., start : start + k, :].mean(dim=-2)
    return out


@wrong("windowed_mean")
def blocks_of_k(x, k):
    out = torch.zeros_like(x)
    for t in range(x.shape[-2]):
        out[..., t, :] = x[..., t // k * k : t + 1, :].mean(dim=-2)
    return out


@wrong("windowed_mean")
def window_is_one_short_of_a_window_as_long_as_the_text(x, k):
    k = max(1, min(k, x.shape[-2] - 1))
    out = torch.zeros_like(x)
    for t in range(x.shape[-2]):
        out[..., t, :] = x[..., max(0, t - k + 1) : t + 1, :].mean(dim=-2)
    return out


@wrong("windowed_mean")
def a_window_larger_than_the_text_takes_all_of_it(x, k):
    if k >= x.shape[-2]:
        return x.mean(dim=-2, keepdim=True).expand_as(x)
    out = torch.zeros_like(x)
    for t in range(x.shape[-2]):
        out[..., t, :] = x[..., max(0, t - k + 1) : t + 1, :].mean(dim=-2)
    return out


@wrong("windowed_mean")
def tokens_before_the_first_window_are_copied(x, k):
    out = x.clone()
    for t in range(k - 1, x.shape[-2]):
        out[..., t, :] = x[..., t - k + 1 : t + 1, :].mean(dim=-2)
    return out


@wrong("windowed_mean")
def before_the_first_window_stand_zeros(x, k):
    out = torch.zeros_like(x)
    for t in range(k - 1, x.shape[-2]):
        out[..., t, :] = x[..., t - k + 1 : t + 1, :].mean(dim=-2)
    return out


@wrong("windowed_mean")
def window_over_the_texts(x, k):
    out = torch.zeros_like(x)
    for t in range(len(x)):
        out[t] = x[max(0, t - k + 1) : t + 1].mean(dim=0)
    return out


@wrong("windowed_mean")
def averages_means_instead_of_tokens(x, k):
    out = x.clone()
    for t in range(x.shape[-2]):
        out[..., t, :] = out[..., max(0, t - k + 1) : t + 1, :].mean(dim=-2)
    return out


@wrong("windowed_mean")
def ignores_k(x, k):
    return x.cumsum(dim=-2) / torch.arange(1, x.shape[-2] + 1)[:, None]


@wrong("windowed_mean")
def running_sums_subtracted_one_too_late(x, k):
    T = x.shape[-2]
    sums = x.cumsum(dim=-2)
    out = sums.clone()
    for t in range(T):
        if t > k:
            out[..., t, :] = sums[..., t, :] - sums[..., t - k, :]
    return out / torch.arange(1, T + 1).clamp(max=k)[:, None]


@wrong("windowed_mean")
def window_mean_writes_into_the_argument(x, k):
    for t in reversed(range(x.shape[-2])):
        x[..., t, :] = x[..., max(0, t - k + 1) : t + 1, :].mean(dim=-2)
    return x


# ---------------------------------------------------------------- forgetting_mean


@right("forgetting_mean")
def fades_by_a_table_of_distances(x):
    t = torch.arange(x.shape[-2])
    weights = torch.tril(0.5 ** (t[:, None] - t))
    return weights / weights.sum(dim=-1, keepdim=True) @ x


@right("forgetting_mean")
def fades_by_two_recursions(x):
    total, norm, rows = 0, 0, []
    for token in x.unbind(dim=-2):
        total = total / 2 + token
        norm = norm / 2 + 1
        rows.append(total / norm)
    return torch.stack(rows, dim=-2)


@right("forgetting_mean")
def fades_by_loops_and_a_closed_form(x):
    out = torch.zeros_like(x)
    for t in range(x.shape[-2]):
        for s in range(t + 1):
            out[..., t, :] += x[..., s, :] * 0.5 ** (t - s)
        out[..., t, :] /= 2 - 0.5**t
    return out


@right("forgetting_mean")
def fades_by_softmax_of_minus_the_distance(x):
    t = torch.arange(x.shape[-2])
    scores = -(t[:, None] - t) * math.log(2)
    scores = torch.where(t[:, None] >= t, scores, -torch.inf)
    return torch.softmax(scores, dim=-1) @ x


@right("forgetting_mean")
def fades_by_flipped_powers(x):
    rows = []
    for t in range(x.size(-2)):
        powers = (0.5 ** torch.arange(t + 1)).flip(0)
        rows.append(torch.einsum("s,...sc->...c", powers / powers.sum(), x[..., : t + 1, :]))
    return torch.stack(rows, -2)


@right("forgetting_mean")
def fades_in_float64_by_numpy(x):
    a = x.numpy().astype(np.float64)
    T = a.shape[-2]
    distance = np.subtract.outer(np.arange(T), np.arange(T))
    w = np.where(distance >= 0, 0.5 ** np.maximum(distance, 0), 0.0)
    return torch.from_numpy(w / w.sum(1, keepdims=True) @ a).to(x.dtype)


@right("forgetting_mean")
def fades_by_vmap_over_the_batch(x):
    def one_text(text):
        T = len(text)
        weights = torch.stack([F.pad(0.5 ** torch.arange(t, -1, -1.0), (0, T - 1 - t)) for t in range(T)])
        return (weights[:, :, None] * text).sum(dim=1) / weights.sum(dim=1)[:, None]

    return torch.vmap(one_text)(x) if x.dim() == 3 else one_text(x)


@right("forgetting_mean")
def fades_by_cumsum_of_growing_powers_in_float64(x):
    powers = 2.0 ** torch.arange(x.shape[-2], dtype=torch.float64)[:, None]
    return ((x * powers).cumsum(dim=-2) / powers.cumsum(dim=-2)).to(x.dtype)


@wrong("forgetting_mean")
def fading_sum_not_divided(x):
    t = torch.arange(x.shape[-2])
    return torch.tril(0.5 ** (t[:, None] - t)) @ x


@wrong("forgetting_mean")
def divides_by_two_the_limit_of_the_weights(x):
    t = torch.arange(x.shape[-2])
    return torch.tril(0.5 ** (t[:, None] - t)) @ x / 2


@wrong("forgetting_mean")
def half_the_old_output_half_the_token(x):
    out = x.clone()
    for t in range(1, x.shape[-2]):
        out[..., t, :] = (out[..., t - 1, :] + x[..., t, :]) / 2
    return out


@wrong("forgetting_mean")
def the_oldest_token_counts_most(x):
    T = x.shape[-2]
    weights = torch.tril((0.5 ** torch.arange(T)).expand(T, T))
    return weights / weights.sum(dim=-1, keepdim=True) @ x


@wrong("forgetting_mean")
def fading_weights_divided_by_column_sums(x):
    t = torch.arange(x.shape[-2])
    weights = torch.tril(0.5 ** (t[:, None] - t))
    return weights / weights.sum(dim=0, keepdim=True) @ x


@wrong("forgetting_mean")
def fading_sum_divided_by_the_count(x):
    T = x.shape[-2]
    t = torch.arange(T)
    return torch.tril(0.5 ** (t[:, None] - t)) @ x / torch.arange(1, T + 1)[:, None]


@wrong("forgetting_mean")
def fades_by_e_instead_of_a_half(x):
    t = torch.arange(x.shape[-2])
    weights = torch.tril(torch.exp(-(t[:, None] - t).to(x.dtype)))
    return weights / weights.sum(dim=-1, keepdim=True) @ x


@wrong("forgetting_mean")
def fades_like_one_over_the_distance(x):
    t = torch.arange(x.shape[-2])
    weights = torch.tril(1 / (1 + (t[:, None] - t).abs()))
    return weights / weights.sum(dim=-1, keepdim=True) @ x


@wrong("forgetting_mean")
def fades_to_both_sides(x):
    t = torch.arange(x.shape[-2])
    weights = 0.5 ** (t[:, None] - t).abs()
    return weights / weights.sum(dim=-1, keepdim=True) @ x


@wrong("forgetting_mean")
def forgets_the_triangle(x):
    t = torch.arange(x.shape[-2])
    weights = 0.5 ** (t[:, None] - t)
    return weights / weights.sum(dim=-1, keepdim=True) @ x


@wrong("forgetting_mean")
def divides_before_the_triangle(x):
    t = torch.arange(x.shape[-2])
    weights = 0.5 ** (t[:, None] - t).abs()
    weights = weights / weights.sum(dim=-1, keepdim=True)
    return weights.tril() @ x


@wrong("forgetting_mean")
def closed_form_one_step_off(x):
    t = torch.arange(x.shape[-2])
    sums = 2 - 0.5 ** (t + 1)
    return torch.tril(0.5 ** (t[:, None] - t)) @ x / sums[:, None]


@wrong("forgetting_mean")
def only_three_weights(x):
    t = torch.arange(x.shape[-2])
    weights = torch.tril(0.5 ** (t[:, None] - t)).triu(diagonal=-2)
    return weights / weights.sum(dim=-1, keepdim=True) @ x


@wrong("forgetting_mean")
def starts_at_the_token_before(x):
    t = torch.arange(x.shape[-2])
    weights = torch.tril(0.5 ** (t[:, None] - t - 1), diagonal=-1)
    weights = weights / weights.sum(dim=-1, keepdim=True).clamp(min=0.5)
    return weights @ x


@wrong("forgetting_mean")
def the_total_starts_with_a_norm_of_one(x):
    total, norm, rows = 0, 1, []
    for token in x.unbind(dim=-2):
        total = total / 2 + token
        rows.append(total / norm)
        norm = norm + 0.5
    return torch.stack(rows, dim=-2)


@wrong("forgetting_mean")
def the_state_is_carried_into_the_next_text(x):
    tokens = x.reshape(-1, x.shape[-1])
    t = torch.arange(len(tokens))
    weights = torch.tril(0.5 ** (t[:, None] - t).double())
    weights = weights / weights.sum(dim=-1, keepdim=True)
    return (weights @ tokens.double()).to(x.dtype).reshape(x.shape)


@wrong("forgetting_mean")
def fades_in_the_argument_itself(x):
    norm = 1.0
    out = x.clone()
    for t in range(1, x.shape[-2]):
        x[..., t, :] += x[..., t - 1, :] / 2
        norm = norm / 2 + 1
        out[..., t, :] = x[..., t, :] / norm
    return out


@wrong("forgetting_mean")
def adds_the_faded_mean_instead_of_the_faded_sum(x):
    rows, mean, norm = [], 0, 0.0
    for token in x.unbind(dim=-2):
        norm = norm / 2 + 1
        mean = (mean / 2 + token) / norm
        rows.append(mean)
    return torch.stack(rows, dim=-2)


@wrong("forgetting_mean")
def remembers_ten_tokens_only(x):
    t = torch.arange(x.shape[-2])
    distance = t[:, None] - t
    weights = torch.where((distance >= 0) & (distance < 10), 0.5**distance, 0.0).to(x.dtype)
    return weights / weights.sum(dim=-1, keepdim=True) @ x


@wrong("forgetting_mean")
def overflows_after_128_tokens(x):
    powers = torch.tensor(2.0) ** torch.arange(x.shape[-2])[:, None]
    return (x * powers).cumsum(dim=-2) / powers.cumsum(dim=-2)


# ---------------------------------------------------------------- causal_mean_matmul


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
    T = x.shape[-2]
    upper = torch.triu(x.new_ones(T, T))
    upper = upper / upper.sum(dim=0)
    return (x.transpose(-2, -1) @ upper).transpose(-2, -1)


@right("causal_mean_matmul")
def product_by_bmm_with_a_repeated_table(x):
    batch = x if x.dim() == 3 else x[None]
    B, T, _ = batch.shape
    position = torch.arange(T)
    weights = torch.where(position[:, None] >= position, 1 / (position[:, None] + 1), 0.0).to(x.dtype)
    return torch.bmm(weights.expand(B, T, T), batch).reshape(x.shape)


@right("causal_mean_matmul")
def product_in_float64(x):
    T = x.shape[-2]
    weights = torch.tril(torch.ones(T, T, dtype=torch.float64))
    weights = weights / weights.sum(dim=-1, keepdim=True)
    return (weights @ x.double()).to(x.dtype)


@right("causal_mean_matmul")
def product_sums_first_and_divides_after(x):
    T = x.shape[-2]
    triangle = torch.tril(torch.ones(T, T, dtype=x.dtype))
    return (triangle @ x) / triangle.sum(dim=-1, keepdim=True)


@right("causal_mean_matmul")
def product_by_normalize(x):
    T = x.shape[-2]
    return F.normalize(torch.ones(T, T).tril().type_as(x), p=1, dim=-1).matmul(x)


@right("causal_mean_matmul")
def product_of_texts_side_by_side(x):
    T = x.shape[-2]
    weights = (torch.ones(T, T) / torch.arange(1, T + 1).unsqueeze(1)).tril().to(x)
    flat = x.movedim(-2, 0).reshape(T, -1)
    return (weights @ flat).reshape(T, *x.shape[:-2], x.shape[-1]).movedim(0, -2)


@right("causal_mean_matmul")
def product_by_vmap(x):
    T = x.shape[-2]
    weights = torch.tensor(
        [[1 / (t + 1) if s <= t else 0.0 for s in range(T)] for t in range(T)], dtype=x.dtype
    )
    return weights @ x if x.dim() == 2 else torch.vmap(lambda text: weights @ text)(x)


@wrong("causal_mean_matmul")
def upper_triangle(x):
    T = x.shape[-2]
    weights = torch.triu(torch.ones(T, T, dtype=x.dtype))
    return weights / weights.sum(dim=-1, keepdim=True) @ x


@wrong("causal_mean_matmul")
def sums_without_keepdim(x):
    T = x.shape[-2]
    weights = torch.tril(torch.ones(T, T, dtype=x.dtype))
    return weights / weights.sum(1) @ x


@wrong("causal_mean_matmul")
def sums_of_the_columns(x):
    T = x.shape[-2]
    weights = torch.tril(torch.ones(T, T, dtype=x.dtype))
    return weights / weights.sum(dim=0, keepdim=True) @ x


@wrong("causal_mean_matmul")
def triangle_not_divided(x):
    T = x.shape[-2]
    return torch.tril(torch.ones(T, T, dtype=x.dtype)) @ x


@wrong("causal_mean_matmul")
def triangle_divided_by_the_length(x):
    T = x.shape[-2]
    return torch.tril(torch.ones(T, T, dtype=x.dtype)) / T @ x


@wrong("causal_mean_matmul")
def no_triangle(x):
    T = x.shape[-2]
    weights = torch.ones(T, T, dtype=x.dtype)
    return weights / weights.sum(dim=-1, keepdim=True) @ x


@wrong("causal_mean_matmul")
def divided_before_the_triangle(x):
    T = x.shape[-2]
    weights = torch.ones(T, T, dtype=x.dtype) / torch.arange(T, 0, -1, dtype=x.dtype)[:, None]
    return weights.tril() @ x


@wrong("causal_mean_matmul")
def triangle_without_the_diagonal(x):
    T = x.shape[-2]
    weights = torch.tril(torch.ones(T, T, dtype=x.dtype), diagonal=-1)
    return weights / weights.sum(dim=-1, keepdim=True).clamp(min=1) @ x


@wrong("causal_mean_matmul")
def triangle_without_the_diagonal_gives_nan(x):
    T = x.shape[-2]
    weights = torch.tril(torch.ones(T, T, dtype=x.dtype), diagonal=-1)
    return weights / weights.sum(dim=-1, keepdim=True) @ x


@wrong("causal_mean_matmul")
def triangle_with_one_diagonal_too_many(x):
    T = x.shape[-2]
    weights = torch.tril(torch.ones(T, T, dtype=x.dtype), diagonal=1)
    return weights / weights.sum(dim=-1, keepdim=True) @ x


@wrong("causal_mean_matmul")
def weights_transposed(x):
    T = x.shape[-2]
    weights = torch.tril(torch.ones(T, T, dtype=x.dtype))
    weights = weights / weights.sum(dim=-1, keepdim=True)
    return weights.transpose(-2, -1) @ x


@wrong("causal_mean_matmul")
def softmax_of_the_triangle(x):
    T = x.shape[-2]
    return torch.softmax(torch.tril(torch.ones(T, T, dtype=x.dtype)), dim=-1) @ x


@wrong("causal_mean_matmul")
def counts_from_zero(x):
    T = x.shape[-2]
    counts = torch.arange(T, dtype=x.dtype).clamp(min=1)
    return torch.tril(torch.ones(T, T, dtype=x.dtype)) / counts[:, None] @ x


@wrong("causal_mean_matmul")
def mean_of_the_texts_first(x):
    T = x.shape[-2]
    weights = torch.tril(torch.ones(T, T, dtype=x.dtype))
    weights = weights / weights.sum(dim=-1, keepdim=True)
    return (weights @ (x.mean(dim=0, keepdim=True) if x.dim() == 3 else x)).expand_as(x)


@wrong("causal_mean_matmul")
def one_long_text(x):
    tokens = x.reshape(-1, x.shape[-1])
    T = len(tokens)
    weights = torch.tril(torch.ones(T, T, dtype=x.dtype))
    return (weights / weights.sum(dim=-1, keepdim=True) @ tokens).reshape(x.shape)


@wrong("causal_mean_matmul")
def squeezed_product(x):
    T = x.shape[-2]
    weights = torch.tril(torch.ones(T, T, dtype=x.dtype))
    return (weights / weights.sum(dim=-1, keepdim=True) @ x).squeeze()


@wrong("causal_mean_matmul")
def einsum_adds_up_the_texts(x):
    T = x.shape[-2]
    weights = torch.tril(torch.ones(T, T, dtype=x.dtype))
    weights = weights / weights.sum(dim=-1, keepdim=True)
    return torch.einsum("ts,bsc->tc", weights, x.reshape(-1, *x.shape[-2:])).expand_as(x)


@wrong("causal_mean_matmul")
def side_by_side_put_back_in_the_wrong_order(x):
    T = x.shape[-2]
    weights = torch.tril(torch.ones(T, T, dtype=x.dtype))
    weights = weights / weights.sum(dim=-1, keepdim=True)
    return (weights @ x.movedim(-2, 0).reshape(T, -1)).reshape(x.shape)


@wrong("causal_mean_matmul")
def reshape_instead_of_transpose(x):
    T, C = x.shape[-2:]
    weights = torch.tril(torch.ones(T, T, dtype=x.dtype))
    weights = weights / weights.sum(dim=-1, keepdim=True)
    mirrored = x.reshape(*x.shape[:-2], C, T) @ weights.T
    return mirrored.reshape(x.shape)


@wrong("causal_mean_matmul")
def integer_division(x):
    T = x.shape[-2]
    weights = torch.tril(torch.ones(T, T, dtype=torch.long))
    weights = weights // weights.sum(dim=-1, keepdim=True)
    return weights.to(x.dtype) @ x


@wrong("causal_mean_matmul")
def divided_twice(x):
    T = x.shape[-2]
    weights = torch.tril(torch.ones(T, T, dtype=x.dtype))
    weights = weights / weights.sum(dim=-1, keepdim=True)
    return weights @ x / torch.arange(1, T + 1, dtype=x.dtype)[:, None]


@wrong("causal_mean_matmul")
def divided_by_the_root_of_the_count(x):
    T = x.shape[-2]
    return F.normalize(torch.tril(torch.ones(T, T, dtype=x.dtype)), dim=-1) @ x


@wrong("causal_mean_matmul")
def writes_the_product_into_the_argument(x):
    T = x.shape[-2]
    weights = torch.tril(torch.ones(T, T, dtype=x.dtype))
    out = weights / weights.sum(dim=-1, keepdim=True) @ x
    x.copy_(out)
    return x


# ---------------------------------------------------------------- band_matrix


@right("band_matrix")
def band_from_distances(T, k):
    position = torch.arange(T)
    distance = position[:, None] - position
    window = ((distance >= 0) & (distance < k)).float()
    return window / window.sum(dim=-1, keepdim=True)


@right("band_matrix")
def band_by_tril_and_triu(T, k):
    band = torch.ones(T, T).tril().triu(1 - k)
    return band / band.sum(1, keepdim=True)


@right("band_matrix")
def band_row_by_row(T, k):
    weights = torch.zeros(T, T)
    for t in range(T):
        start = max(0, t - k + 1)
        weights[t, start : t + 1] = 1 / (t + 1 - start)
    return weights


@right("band_matrix")
def band_by_the_difference_of_two_triangles(T, k):
    ones = torch.ones(T, T)
    return (ones.tril() - ones.tril(-k)) / torch.arange(1, T + 1).clamp(max=k)[:, None]


@right("band_matrix")
def band_of_nested_lists(T, k):
    rows = [[1 / min(t + 1, k) if t - k < s <= t else 0.0 for s in range(T)] for t in range(T)]
    return torch.tensor(rows)


@right("band_matrix")
def band_by_softmax(T, k):
    t = torch.arange(T)
    hidden = (t[:, None] < t) | (t[:, None] - t >= k)
    return torch.zeros(T, T).masked_fill(hidden, -torch.inf).softmax(-1)


@right("band_matrix")
def band_of_diagonals(T, k):
    band = sum(torch.diag(torch.ones(T - d), -d) for d in range(min(T, k)))
    return band / band.sum(dim=1, keepdim=True)


@right("band_matrix")
def band_by_numpy_and_float(T, k):
    band = np.tril(np.ones((T, T))) - np.tril(np.ones((T, T)), -k)
    return torch.from_numpy(band / band.sum(axis=1, keepdims=True)).float()


@right("band_matrix")
def band_in_float64_by_numpy(T, k):
    band = np.tril(np.ones((T, T))) - np.tril(np.ones((T, T)), -k)
    return torch.from_numpy(band / band.sum(axis=1, keepdims=True))


@right("band_matrix")
def band_as_the_windows_of_the_unit_vectors(T, k):
    return torch.stack([torch.eye(T)[max(0, t - k + 1) : t + 1].mean(0) for t in range(T)])


@wrong("band_matrix")
def band_of_k_plus_1(T, k):
    band = torch.ones(T, T).tril().triu(-k)
    return band / band.sum(1, keepdim=True)


@wrong("band_matrix")
def band_of_k_minus_1(T, k):
    band = torch.ones(T, T).tril().triu(min(0, 2 - k))
    return band / band.sum(1, keepdim=True)


@wrong("band_matrix")
def band_without_the_token_itself(T, k):
    position = torch.arange(T)
    distance = position[:, None] - position
    band = ((distance > 0) & (distance <= k)).float()
    return band / band.sum(dim=-1, keepdim=True).clamp(min=1)


@wrong("band_matrix")
def band_to_both_sides(T, k):
    position = torch.arange(T)
    band = ((position[:, None] - position).abs() < k).float()
    return band / band.sum(dim=-1, keepdim=True)


@wrong("band_matrix")
def band_divided_by_k(T, k):
    return torch.ones(T, T).tril().triu(1 - k) / k


@wrong("band_matrix")
def band_divided_by_k_or_the_length(T, k):
    return torch.ones(T, T).tril().triu(1 - k) / min(k, T)


@wrong("band_matrix")
def band_above_the_diagonal(T, k):
    band = torch.ones(T, T).triu().tril(k - 1)
    return band / band.sum(1, keepdim=True)


@wrong("band_matrix")
def band_divided_by_the_columns(T, k):
    band = torch.ones(T, T).tril().triu(1 - k)
    return band / band.sum(0, keepdim=True)


@wrong("band_matrix")
def band_divided_without_keepdim(T, k):
    band = torch.ones(T, T).tril().triu(1 - k)
    return band / band.sum(1)


@wrong("band_matrix")
def band_divided_by_the_count_of_the_whole_past(T, k):
    past = torch.ones(T, T).tril()
    return (past / past.sum(1, keepdim=True)).triu(1 - k)


@wrong("band_matrix")
def band_that_goes_round(T, k):
    eye = torch.eye(T)
    return sum(eye.roll(d, dims=0) for d in range(k)) / k


@wrong("band_matrix")
def band_with_negative_starts(T, k):
    band = torch.zeros(T, T)
    for t in range(T):
        band[t, t - k + 1 : t + 1] = 1
    return band / band.sum(1, keepdim=True).clamp(min=1)


@wrong("band_matrix")
def band_that_begins_with_the_first_full_window(T, k):
    band = torch.zeros(T, T)
    for t in range(k - 1, T):
        band[t, t - k + 1 : t + 1] = 1 / k
    return band


@wrong("band_matrix")
def band_whose_first_rows_copy(T, k):
    band = torch.eye(T)
    for t in range(k - 1, T):
        band[t, t - k + 1 : t + 1] = 1 / k
    return band


@wrong("band_matrix")
def band_as_wide_as_the_text_sees_all_of_it(T, k):
    if k >= T:
        return torch.full((T, T), 1 / T)
    band = torch.ones(T, T).tril().triu(1 - k)
    return band / band.sum(1, keepdim=True)


@wrong("band_matrix")
def band_never_as_wide_as_the_text(T, k):
    k = max(1, min(k, T - 1))
    band = torch.ones(T, T).tril().triu(1 - k)
    return band / band.sum(1, keepdim=True)


@wrong("band_matrix")
def band_of_three(T, k):
    band = torch.ones(T, T).tril().triu(-2)
    return band / band.sum(1, keepdim=True)


@wrong("band_matrix")
def band_of_blocks(T, k):
    t = torch.arange(T)
    band = (t[:, None] // k == t // k).float().tril()
    return band / band.sum(1, keepdim=True)


@wrong("band_matrix")
def band_that_repeats_the_first_token(T, k):
    band = torch.zeros(T, T)
    for t in range(T):
        for d in range(k):
            band[t, max(0, t - d)] += 1 / k
    return band


@wrong("band_matrix")
def band_of_the_first_k_tokens(T, k):
    band = torch.zeros(T, T)
    for t in range(T):
        band[t, : t + 1][:k] = 1
    return band / band.sum(1, keepdim=True)


# ---------------------------------------------------------------- shift_matrix


@right("shift_matrix")
def shift_by_diag(T):
    return torch.diag(torch.ones(T - 1), diagonal=-1)


@right("shift_matrix")
def shift_by_comparison(T):
    position = torch.arange(T)
    return (position[:, None] - position == 1).float()


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
    ones = torch.ones(T, T)
    return ones.tril(-1) - ones.tril(-2)


@wrong("shift_matrix")
def shift_to_the_next_token(T):
    return torch.diag(torch.ones(T - 1), diagonal=1)


@wrong("shift_matrix")
def shift_by_two(T):
    return torch.ones(T, T).tril(-2) - torch.ones(T, T).tril(-3)


@wrong("shift_matrix")
def shift_that_goes_round(T):
    return torch.eye(T).roll(1, dims=0)


@wrong("shift_matrix")
def shift_that_goes_round_the_other_way(T):
    return torch.eye(T).roll(-1, dims=0)


@wrong("shift_matrix")
def shift_whose_first_token_copies_itself(T):
    m = torch.zeros(T, T)
    for t in range(T):
        m[t, max(0, t - 1)] = 1
    return m


@wrong("shift_matrix")
def shift_of_index_minus_one(T):
    m = torch.zeros(T, T)
    for t in range(T):
        m[t, t - 1] = 1.0
    m[0, 0] = 0.0
    return m


@wrong("shift_matrix")
def shift_of_integers(T):
    m = torch.zeros(T, T, dtype=torch.long)
    for t in range(1, T):
        m[t, t - 1] = 1
    return m


@wrong("shift_matrix")
def no_shift_but_a_first_row_of_zeros(T):
    m = torch.eye(T)
    m[0] = 0
    return m


@wrong("shift_matrix")
def all_tokens_before(T):
    return torch.ones(T, T).tril(-1)


@wrong("shift_matrix")
def mean_of_all_tokens_before(T):
    m = torch.ones(T, T).tril(-1)
    return m / m.sum(-1, keepdim=True).clamp(min=1)


@wrong("shift_matrix")
def shift_with_a_first_row_of_nan(T):
    m = torch.ones(T, T).tril(-1) - torch.ones(T, T).tril(-2)
    return m / m.sum(-1, keepdim=True)


@wrong("shift_matrix")
def shift_that_is_nearly_one(T):
    position = torch.arange(T)
    scores = 5.0 * (position[:, None] == position + 1)
    m = torch.softmax(scores, dim=-1)
    m[0] = 0
    return m


@wrong("shift_matrix")
def a_single_token_copies_itself(T):
    return torch.ones(1, 1) if T == 1 else torch.diag(torch.ones(T - 1), diagonal=-1)


@wrong("shift_matrix")
def shift_without_the_last_row(T):
    m = torch.zeros(T, T)
    for t in range(1, T - 1):
        m[t, t - 1] = 1
    return m


@wrong("shift_matrix")
def shift_whose_loop_begins_at_two(T):
    m = torch.zeros(T, T)
    for s in range(T - 2):
        m[s + 2, s + 1] = 1
    return m


@wrong("shift_matrix")
def difference_to_the_token_before(T):
    return torch.eye(T) - torch.diag(torch.ones(T - 1), diagonal=-1)


@wrong("shift_matrix")
def the_token_and_the_one_before(T):
    return torch.eye(T) + torch.diag(torch.ones(T - 1), diagonal=-1)


@wrong("shift_matrix")
def shift_flattened_one_to_the_right(T):
    return torch.eye(T).flatten().roll(1).view(T, T)


@wrong("shift_matrix")
def shift_flattened_one_to_the_left(T):
    return torch.eye(T).flatten().roll(-1).view(T, T)


@wrong("shift_matrix")
def shift_of_the_six_tokens_of_the_notebook(T):
    m = torch.zeros(T, T)
    for t in range(1, min(T, 6)):
        m[t, t - 1] = 1
    return m


@wrong("shift_matrix")
def shift_one_row_too_large(T):
    return F.pad(torch.eye(T), (0, 0, 1, 0))


# ---------------------------------------------------------------- causal_mean_softmax


@right("causal_mean_softmax")
def softmax_by_the_notebook(x):
    T = x.shape[-2]
    scores = torch.zeros(T, T, dtype=x.dtype)
    mask = torch.ones(T, T, dtype=torch.bool).tril()
    return torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1) @ x


@right("causal_mean_softmax")
def softmax_of_the_log_of_the_triangle(x):
    T = x.shape[-2]
    return torch.softmax(torch.tril(torch.ones(T, T, dtype=x.dtype)).log(), dim=-1) @ x


@right("causal_mean_softmax")
def softmax_of_triu_of_minus_infinity(x):
    T = x.shape[-2]
    scores = torch.full((T, T), -torch.inf, dtype=x.dtype).triu(diagonal=1)
    return torch.einsum("ts,...sc->...tc", scores.softmax(-1), x)


@right("causal_mean_softmax")
def softmax_with_where(x):
    position = torch.arange(x.shape[-2])
    scores = torch.where(position[:, None] >= position[None, :], 0.0, float("-inf"))
    return F.softmax(scores, dim=1).to(x.dtype) @ x


@right("causal_mean_softmax")
def softmax_with_scores_for_each_text(x):
    zeros = x @ x.transpose(-2, -1) * 0
    mask = torch.ones_like(zeros, dtype=torch.bool).tril()
    return torch.softmax(zeros.masked_fill(~mask, float("-inf")), dim=-1) @ x


@right("causal_mean_softmax")
def softmax_by_hand_in_float64(x):
    T = x.shape[-2]
    scores = torch.zeros(T, T, dtype=torch.float64)
    scores[torch.triu_indices(T, T, 1).unbind()] = -math.inf
    weights = scores.exp() / scores.exp().sum(-1, keepdim=True)
    return (weights @ x.double()).to(x.dtype)


@right("causal_mean_softmax")
def softmax_with_pytorch_attention(x):
    query = torch.zeros_like(x)
    return F.scaled_dot_product_attention(query, x, x, is_causal=True)


@right("causal_mean_softmax")
def softmax_row_by_row(x):
    T = x.shape[-2]
    rows = []
    for t in range(T):
        scores = torch.tensor([0.0] * (t + 1) + [float("-inf")] * (T - t - 1), dtype=x.dtype)
        rows.append((torch.softmax(scores, dim=0)[:, None] * x).sum(dim=-2))
    return torch.stack(rows, dim=-2)


@right("causal_mean_softmax")
def softmax_with_minus_a_billion(x):
    T = x.shape[-2]
    scores = torch.zeros(T, T).masked_fill(torch.ones(T, T).triu(1).bool(), -1e9)
    return torch.matmul(F.softmax(scores, dim=-1), x)


@right("causal_mean_softmax")
def softmax_by_vmap(x):
    T = x.shape[-2]
    weights = torch.softmax(torch.zeros(T, T).masked_fill(torch.ones(T, T).tril() == 0, -math.inf), -1)
    return torch.vmap(weights.to(x.dtype).matmul)(x) if x.ndim == 3 else weights.to(x.dtype) @ x


@wrong("causal_mean_softmax")
def softmax_down_the_columns(x):
    T = x.shape[-2]
    mask = torch.ones(T, T, dtype=torch.bool).tril()
    return torch.softmax(torch.zeros(T, T).masked_fill(~mask, float("-inf")), dim=-2) @ x


@wrong("causal_mean_softmax")
def softmax_dim_1_of_a_batch_of_scores(x):
    T = x.shape[-2]
    mask = torch.ones(T, T, dtype=torch.bool).tril()
    scores = torch.zeros(*x.shape[:-1], T).masked_fill(~mask, float("-inf"))
    return torch.softmax(scores, dim=1) @ x


@wrong("causal_mean_softmax")
def softmax_with_the_mask_not_turned_around(x):
    T = x.shape[-2]
    mask = torch.ones(T, T, dtype=torch.bool).tril()
    return torch.softmax(torch.zeros(T, T).masked_fill(mask, float("-inf")), dim=-1) @ x


@wrong("causal_mean_softmax")
def softmax_of_the_future_without_the_nan(x):
    T = x.shape[-2]
    mask = torch.ones(T, T, dtype=torch.bool).tril()
    weights = torch.softmax(torch.zeros(T, T).masked_fill(mask, float("-inf")), dim=-1)
    return weights.nan_to_num() @ x


@wrong("causal_mean_softmax")
def softmax_without_a_mask(x):
    T = x.shape[-2]
    return torch.softmax(torch.zeros(T, T), dim=-1) @ x


@wrong("causal_mean_softmax")
def softmax_then_the_mask(x):
    T = x.shape[-2]
    return torch.softmax(torch.zeros(T, T), dim=-1).tril() @ x


@wrong("causal_mean_softmax")
def minus_infinity_after_the_softmax(x):
    T = x.shape[-2]
    mask = torch.ones(T, T, dtype=torch.bool).tril()
    return torch.softmax(torch.zeros(T, T), dim=-1).masked_fill(~mask, float("-inf")) @ x


@wrong("causal_mean_softmax")
def softmax_of_a_triangle_of_ones(x):
    T = x.shape[-2]
    return torch.softmax(torch.ones(T, T).tril(), dim=-1) @ x


@wrong("causal_mean_softmax")
def softmax_with_minus_one_for_the_future(x):
    T = x.shape[-2]
    mask = torch.ones(T, T, dtype=torch.bool).tril()
    return torch.softmax(torch.zeros(T, T).masked_fill(~mask, -2.0), dim=-1) @ x


@wrong("causal_mean_softmax")
def softmax_with_minus_ten_for_the_future(x):
    T = x.shape[-2]
    mask = torch.ones(T, T, dtype=torch.bool).tril()
    return torch.softmax(torch.zeros(T, T).masked_fill(~mask, -10.0), dim=-1) @ x


@wrong("causal_mean_softmax")
def softmax_that_hides_the_token_itself(x):
    T = x.shape[-2]
    mask = torch.ones(T, T, dtype=torch.bool).tril(diagonal=-1)
    return torch.softmax(torch.zeros(T, T).masked_fill(~mask, float("-inf")), dim=-1) @ x


@wrong("causal_mean_softmax")
def softmax_that_hides_the_token_itself_without_nan(x):
    T = x.shape[-2]
    mask = torch.ones(T, T, dtype=torch.bool).tril(diagonal=-1)
    weights = torch.softmax(torch.zeros(T, T).masked_fill(~mask, float("-inf")), dim=-1)
    return weights.nan_to_num(0.0) @ x


@wrong("causal_mean_softmax")
def softmax_that_sees_the_next_token(x):
    T = x.shape[-2]
    mask = torch.ones(T, T, dtype=torch.bool).tril(diagonal=1)
    return torch.softmax(torch.zeros(T, T).masked_fill(~mask, float("-inf")), dim=-1) @ x


@wrong("causal_mean_softmax")
def softmax_of_the_dot_products(x):
    scores = x @ x.transpose(-2, -1)
    mask = torch.ones_like(scores, dtype=torch.bool).tril()
    return torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1) @ x


@wrong("causal_mean_softmax")
def softmax_of_the_mask_times_infinity(x):
    T = x.shape[-2]
    future = torch.ones(T, T).triu(diagonal=1)
    return torch.softmax(future * float("-inf"), dim=-1) @ x


@wrong("causal_mean_softmax")
def softmax_of_positions(x):
    T = x.shape[-2]
    mask = torch.ones(T, T, dtype=torch.bool).tril()
    scores = torch.arange(T).expand(T, T).to(x.dtype)
    return torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1) @ x


@wrong("causal_mean_softmax")
def softmax_of_the_transposed_mask(x):
    T = x.shape[-2]
    mask = torch.ones(T, T, dtype=torch.bool).triu()
    return torch.softmax(torch.zeros(T, T).masked_fill(~mask, float("-inf")), dim=-1) @ x


@wrong("causal_mean_softmax")
def softmax_and_a_product_with_the_transpose(x):
    T = x.shape[-2]
    mask = torch.ones(T, T, dtype=torch.bool).tril()
    weights = torch.softmax(torch.zeros(T, T).masked_fill(~mask, float("-inf")), dim=-1)
    mirrored = x.transpose(-2, -1) @ weights
    return mirrored.transpose(-2, -1) if x.dim() == 3 else weights @ x


@wrong("causal_mean_softmax")
def softmax_mix_squeezed(x):
    T = x.shape[-2]
    mask = torch.ones(T, T, dtype=torch.bool).tril()
    return (torch.softmax(torch.zeros(T, T).masked_fill(~mask, float("-inf")), dim=-1) @ x).squeeze()


@wrong("causal_mean_softmax")
def softmax_fills_the_argument(x):
    T = x.shape[-2]
    mask = torch.ones(T, T, dtype=torch.bool).tril()
    x.copy_(torch.softmax(torch.zeros(T, T).masked_fill(~mask, float("-inf")), dim=-1) @ x)
    return x


@wrong("causal_mean_softmax")
def softmax_of_the_first_text_for_all(x):
    T = x.shape[-2]
    mask = torch.ones(T, T, dtype=torch.bool).tril()
    weights = torch.softmax(torch.zeros(T, T).masked_fill(~mask, float("-inf")), dim=-1)
    return (weights @ x.reshape(-1, T, x.shape[-1])[0]).expand_as(x)


# ---------------------------------------------------------------- stable_softmax


@right("stable_softmax")
def stable_by_amax(x):
    exp = (x - x.amax(dim=-1, keepdim=True)).exp()
    return exp / exp.sum(dim=-1, keepdim=True)


@right("stable_softmax")
def stable_by_logsumexp(x):
    return torch.exp(x - torch.logsumexp(x, dim=-1, keepdim=True))


@right("stable_softmax")
def stable_by_log_softmax(x):
    return F.log_softmax(x, -1).exp()


@right("stable_softmax")
def stable_by_pairwise_differences(x):
    return 1 / (x[..., None, :] - x[..., :, None]).exp().sum(dim=-1)


@right("stable_softmax")
def stable_in_float64_with_max_values(x):
    y = x.double()
    e = torch.exp(y - y.max(-1, keepdim=True).values)
    return (e / torch.einsum("...c->...", e)[..., None]).to(x.dtype)


@right("stable_softmax")
def stable_row_by_row(x):
    rows = x.reshape(-1, x.shape[-1])
    out = []
    for row in rows:
        e = (row - row.max()).exp()
        out.append(e / e.sum())
    return torch.stack(out).reshape(x.shape)


@right("stable_softmax")
def stable_by_numpy(x):
    a = x.numpy()
    e = np.exp(a - a.max(axis=-1, keepdims=True))
    return torch.from_numpy(e / e.sum(axis=-1, keepdims=True))


@right("stable_softmax")
def stable_online(x):
    largest, total = torch.full_like(x[..., 0], -math.inf), torch.zeros_like(x[..., 0])
    for score in x.unbind(-1):
        new = torch.maximum(largest, score)
        total = total * (largest - new).exp() + (score - new).exp()
        largest = new
    return (x - largest[..., None]).exp() / total[..., None]


@right("stable_softmax")
def stable_in_place_on_a_copy(x):
    out = x.clone()
    out -= out.amax(-1, keepdim=True)
    out.exp_()
    out /= out.sum(-1, keepdim=True)
    return out


@right("stable_softmax")
def weights_by_vmap_over_all_rows(x):
    def one_row(row):
        exp = (row - row.amax()).exp()
        return exp / exp.sum()

    return torch.vmap(one_row)(x.reshape(-1, x.shape[-1])).reshape(x.shape)


@wrong("stable_softmax")
def softmax_in_float64_without_the_subtraction(x):
    exp = x.double().exp()
    return (exp / exp.sum(dim=-1, keepdim=True)).to(x.dtype)


@wrong("stable_softmax")
def largest_of_the_whole_tensor(x):
    exp = (x - x.max()).exp()
    return exp / exp.sum(dim=-1, keepdim=True)


@wrong("stable_softmax")
def softmax_along_the_first_dimension(x):
    exp = (x - x.amax(dim=0, keepdim=True)).exp()
    return exp / exp.sum(dim=0, keepdim=True)


@wrong("stable_softmax")
def softmax_along_the_queries(x):
    dim = -2 if x.dim() > 1 else -1
    exp = (x - x.amax(dim=dim, keepdim=True)).exp()
    return exp / exp.sum(dim=dim, keepdim=True)


@wrong("stable_softmax")
def largest_of_each_row_sum_of_each_column(x):
    exp = (x - x.amax(dim=-1, keepdim=True)).exp()
    return exp / exp.sum(dim=0, keepdim=True)


@wrong("stable_softmax")
def subtracts_the_mean(x):
    exp = (x - x.mean(dim=-1, keepdim=True)).exp()
    return exp / exp.sum(dim=-1, keepdim=True)


@wrong("stable_softmax")
def subtracts_the_smallest(x):
    exp = (x - x.amin(dim=-1, keepdim=True)).exp()
    return exp / exp.sum(dim=-1, keepdim=True)


@wrong("stable_softmax", "subtracts_the_largest_absolute_score")
def subtracts_the_largest_absolute_score(x):
    exp = (x - x.abs().amax(dim=-1, keepdim=True)).exp()
    return exp / exp.sum(dim=-1, keepdim=True)


@wrong("stable_softmax", "subtracts_large_maxima_only")
def subtracts_the_largest_only_if_it_is_positive(x):
    exp = (x - x.amax(dim=-1, keepdim=True).clamp(min=0)).exp()
    return exp / exp.sum(dim=-1, keepdim=True)


@wrong("stable_softmax", "subtracts_large_maxima_only")
def subtracts_only_from_large_scores(x):
    if x.max() > 80:
        x = x - x.amax(dim=-1, keepdim=True)
    exp = x.exp()
    return exp / exp.sum(dim=-1, keepdim=True)


@wrong("stable_softmax")
def divides_by_the_largest(x):
    exp = (x / x.abs().amax(dim=-1, keepdim=True)).exp()
    return exp / exp.sum(dim=-1, keepdim=True)


@wrong("stable_softmax")
def clamps_the_scores(x):
    exp = x.clamp(max=80).exp()
    return exp / exp.sum(dim=-1, keepdim=True)


@wrong("stable_softmax")
def clamps_the_differences(x):
    exp = (x - x.amax(dim=-1, keepdim=True)).clamp(min=-10).exp()
    return exp / exp.sum(dim=-1, keepdim=True)


@wrong("stable_softmax")
def adds_a_little_to_the_sum(x):
    exp = (x - x.amax(dim=-1, keepdim=True)).exp()
    return exp / (exp.sum(dim=-1, keepdim=True) + 1e-3)


@wrong("stable_softmax")
def the_log_of_the_softmax(x):
    return x - x.logsumexp(dim=-1, keepdim=True)


@wrong("stable_softmax")
def subtracts_from_the_argument_in_place(x):
    x -= x.amax(dim=-1, keepdim=True)
    exp = x.exp()
    return exp / exp.sum(dim=-1, keepdim=True)


@wrong("stable_softmax")
def running_sum_is_not_rescaled(x):
    largest = torch.full_like(x[..., 0], -math.inf)
    total = torch.zeros_like(largest)
    for score in x.unbind(-1):
        largest = torch.maximum(largest, score)
        total = total + (score - largest).exp()
    return (x - largest[..., None]).exp() / total[..., None]


# ---------------------------------------------------------------- padding_weights


@right("padding_weights")
def padding_by_a_broadcast_mask(scores, lengths):
    mask = torch.arange(scores.shape[-1]) < lengths[:, None, None]
    weights = torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)
    return weights.masked_fill(~mask, 0.0)


@right("padding_weights")
def padding_text_by_text(scores, lengths):
    out = torch.zeros_like(scores)
    for b, length in enumerate(lengths.tolist()):
        if length > 0:
            out[b, :, :length] = torch.softmax(scores[b, :, :length], dim=-1)
    return out


@right("padding_weights")
def padding_by_nan_to_num(scores, lengths):
    B, T_q, T_k = scores.shape
    hidden = (torch.arange(T_k).repeat(B, 1) >= lengths.unsqueeze(1)).unsqueeze(1).expand(B, T_q, T_k)
    s = scores.clone()
    s[hidden] = -torch.inf
    return torch.nan_to_num(s.softmax(dim=2))


@right("padding_weights")
def padding_by_where_for_empty_texts(scores, lengths):
    padding = torch.arange(scores.size(2)) >= lengths.view(-1, 1, 1)
    weights = F.softmax(torch.where(padding, -math.inf, scores), dim=-1)
    return torch.where((lengths == 0)[:, None, None], torch.zeros(()), weights)


@right("padding_weights")
def padding_by_hand_with_a_safe_largest(scores, lengths):
    mask = torch.arange(scores.shape[-1])[None, None] < lengths[:, None, None]
    s = scores.double().masked_fill(~mask, -math.inf)
    largest = s.amax(-1, keepdim=True)
    exp = (s - largest.masked_fill(largest.isinf(), 0.0)).exp()
    return (exp / exp.sum(-1, keepdim=True).clamp(min=1e-300)).to(scores.dtype)


@right("padding_weights")
def padding_by_list_and_pad(scores, lengths):
    T_k = scores.shape[-1]
    parts = [F.pad(s[:, :n].softmax(-1), (0, T_k - n)) for s, n in zip(scores, lengths.tolist(), strict=True)]
    return torch.stack(parts)


@right("padding_weights")
def padding_by_vmap(scores, lengths):
    keys = torch.arange(scores.shape[-1])

    def one_text(s, n):
        seen = keys < n
        return torch.softmax(s.masked_fill(~seen, -1e30), dim=-1) * seen

    return torch.vmap(one_text)(scores, lengths)


@wrong("padding_weights")
def hides_queries_instead_of_keys(scores, lengths):
    mask = torch.arange(scores.shape[1])[None, :, None] < lengths[:, None, None]
    weights = torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)
    return weights.nan_to_num()


@wrong("padding_weights")
def hides_queries_as_well(scores, lengths):
    _, T_q, T_k = scores.shape
    keys = torch.arange(T_k) < lengths[:, None, None]
    queries = torch.arange(T_q)[:, None] < lengths[:, None, None]
    mask = keys & queries
    return torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1).nan_to_num()


@wrong("padding_weights")
def sees_one_key_of_the_padding(scores, lengths):
    mask = torch.arange(scores.shape[-1]) <= lengths[:, None, None]
    weights = torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)
    return weights.masked_fill(~mask, 0.0)


@wrong("padding_weights")
def sees_one_key_of_the_padding_but_not_of_empty_texts(scores, lengths):
    mask = torch.arange(scores.shape[-1]) <= lengths[:, None, None]
    weights = torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)
    weights[lengths == 0] = 0
    return weights


@wrong("padding_weights")
def misses_the_last_key(scores, lengths):
    mask = torch.arange(scores.shape[-1]) < lengths[:, None, None] - 1
    weights = torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)
    return weights.masked_fill(~mask, 0.0)


@wrong("padding_weights")
def the_longest_length_for_all(scores, lengths):
    out = torch.zeros_like(scores)
    longest = int(lengths.max())
    out[:, :, :longest] = torch.softmax(scores[:, :, :longest], dim=-1)
    return out


@wrong("padding_weights")
def the_first_key_for_empty_texts(scores, lengths):
    mask = torch.arange(scores.shape[-1]) < lengths.clamp(min=1)[:, None, None]
    return torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)


@wrong("padding_weights")
def renormalises_what_underflows(scores, lengths):
    mask = torch.arange(scores.shape[-1]) < lengths[:, None, None]
    weights = torch.softmax(scores, dim=-1) * mask
    return weights / weights.sum(dim=-1, keepdim=True).clamp(min=1e-12)


@wrong("padding_weights")
def renormalises_and_removes_nan(scores, lengths):
    mask = torch.arange(scores.shape[-1]) < lengths[:, None, None]
    weights = torch.softmax(scores, dim=-1) * mask
    return (weights / weights.sum(dim=-1, keepdim=True)).nan_to_num()


@wrong("padding_weights")
def exps_that_overflow(scores, lengths):
    mask = torch.arange(scores.shape[-1]) < lengths[:, None, None]
    exp = scores.exp() * mask
    return exp / exp.sum(dim=-1, keepdim=True).clamp(min=1e-30)


@wrong("padding_weights")
def padding_scores_minus_one_hundred(scores, lengths):
    mask = torch.arange(scores.shape[-1]) < lengths[:, None, None]
    return torch.softmax(scores.masked_fill(~mask, -100.0), dim=-1) * mask


@wrong("padding_weights")
def padding_scores_just_below_the_smallest(scores, lengths):
    mask = torch.arange(scores.shape[-1]) < lengths[:, None, None]
    low = scores.amin(dim=-1, keepdim=True) - 10
    return torch.softmax(torch.where(mask, scores, low), dim=-1) * mask


@wrong("padding_weights")
def mask_of_texts_taken_for_a_mask_of_queries(scores, lengths):
    mask = torch.arange(scores.shape[-1]) < lengths[:, None]
    return torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1).nan_to_num()


@wrong("padding_weights")
def scores_of_padding_are_zero(scores, lengths):
    mask = torch.arange(scores.shape[-1]) < lengths[:, None, None]
    weights = torch.softmax(scores * mask, dim=-1)
    return weights.masked_fill((lengths == 0)[:, None, None], 0.0)


@wrong("padding_weights")
def scores_of_padding_are_zero_and_hidden_afterwards(scores, lengths):
    mask = torch.arange(scores.shape[-1]) < lengths[:, None, None]
    return torch.softmax(scores * mask, dim=-1) * mask


@wrong("padding_weights")
def padding_at_the_front(scores, lengths):
    T_k = scores.shape[-1]
    mask = torch.arange(T_k) >= T_k - lengths[:, None, None]
    return torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1).masked_fill(~mask, 0.0)


@wrong("padding_weights")
def softmax_over_the_queries(scores, lengths):
    mask = torch.arange(scores.shape[-1]) < lengths[:, None, None]
    return torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=1).masked_fill(~mask, 0.0)


@wrong("padding_weights")
def padding_and_causal(scores, lengths):
    mask = torch.arange(scores.shape[-1]) < lengths[:, None, None]
    mask = mask & torch.ones(scores.shape[1:], dtype=torch.bool).tril()
    return torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1).masked_fill(~mask, 0.0)


@wrong("padding_weights")
def fills_the_scores_in_place(scores, lengths):
    mask = torch.arange(scores.shape[-1]) < lengths[:, None, None]
    scores.masked_fill_(~mask, float("-inf"))
    return torch.softmax(scores, dim=-1).nan_to_num()


@wrong("padding_weights")
def the_length_of_the_first_text_for_all(scores, lengths):
    mask = (torch.arange(scores.shape[-1]) < lengths[0]).expand_as(scores)
    return torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1).masked_fill(~mask, 0.0)


@wrong("padding_weights")
def one_empty_text_empties_the_batch(scores, lengths):
    if (lengths == 0).any():
        return torch.zeros_like(scores)
    mask = torch.arange(scores.shape[-1]) < lengths[:, None, None]
    return torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)


@wrong("padding_weights")
def only_a_batch_of_empty_texts_is_special(scores, lengths):
    if not lengths.any():
        return torch.zeros_like(scores)
    mask = torch.arange(scores.shape[-1]) < lengths[:, None, None]
    return torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)


# ---------------------------------------------------------------- attention_weights


@right("attention_weights")
def weights_with_two_fills(q, k, mask):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1).masked_fill(~mask, 0.0)


@right("attention_weights")
def weights_by_einsum_and_nan_to_num(q, k, mask):
    scores = torch.einsum("...qd,...kd->...qk", q, k) * k.size(-1) ** -0.5
    scores = torch.where(mask, scores, -torch.inf)
    return scores.softmax(dim=-1).nan_to_num(0.0)


@right("attention_weights")
def weights_with_each_side_scaled_by_the_fourth_root(q, k, mask):
    root = q.shape[-1] ** 0.25
    scores = (q / root) @ (k / root).mT
    scores = scores + torch.zeros(mask.shape).masked_fill(~mask, -math.inf)
    weights = scores.softmax(-1)
    return torch.where(mask.any(-1, keepdim=True), weights, 0.0)


@right("attention_weights")
def weights_by_hand_in_float64(q, k, mask):
    scores = q.double() @ k.double().transpose(-1, -2) / q.shape[-1] ** 0.5
    scores = scores.masked_fill(~mask, -math.inf)
    largest = scores.amax(-1, keepdim=True).clamp(min=-1e300)
    exp = (scores - largest).exp()
    total = exp.sum(-1, keepdim=True)
    return (exp / torch.where(total == 0, 1.0, total)).to(q.dtype)


@right("attention_weights")
def weights_by_elementwise_products_and_a_log_of_the_mask(q, k, mask):
    scores = (q.unsqueeze(-2) * k.unsqueeze(-3)).sum(dim=-1) / float(np.sqrt(q.shape[-1]))
    weights = F.softmax(scores + mask.to(q.dtype).log(), dim=-1)
    return torch.where(weights.isnan(), 0.0, weights)


@right("attention_weights")
def weights_query_by_query(q, k, mask):
    mask = mask.expand(*q.shape[:-1], k.shape[-2])
    out = q.new_zeros(mask.shape)
    for index in np.ndindex(*q.shape[:-1]):
        seen = mask[index].nonzero().flatten()
        if len(seen):
            keys = k[index[:-1]][seen]
            out[(*index, seen)] = torch.softmax(keys @ q[index] / q.shape[-1] ** 0.5, dim=0)
    return out


@right("attention_weights")
def weights_with_a_large_negative_number_and_a_mask(q, k, mask):
    scores = torch.matmul(q, k.transpose(-2, -1)) / (q.shape[-1] ** 0.5)
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return torch.softmax(scores, dim=-1) * mask


@right("attention_weights")
def weights_by_pytorch_attention_of_the_unit_vectors(q, k, mask):
    T_k = k.shape[-2]
    eye = torch.eye(T_k, dtype=q.dtype).expand(*k.shape[:-2], T_k, T_k)
    return F.scaled_dot_product_attention(q, k, eye, attn_mask=mask)


@right("attention_weights")
def weights_by_vmap_over_texts_and_heads(q, k, mask):
    def one_text(q, k, mask):
        scores = torch.where(mask, q @ k.T / q.shape[-1] ** 0.5, -torch.inf)
        return torch.where(mask, scores.softmax(dim=-1), 0.0)

    function = one_text
    for _ in q.shape[:-2]:
        function = torch.vmap(function)
    return function(q, k, mask.expand(*q.shape[:-1], k.shape[-2]))


@right("attention_weights")
def weights_in_place_on_the_scores(q, k, mask):
    weights = q @ k.mT
    weights /= q.shape[-1] ** 0.5
    weights[~mask.expand_as(weights)] = -torch.inf
    weights -= weights.amax(dim=-1, keepdim=True).clamp(min=-1e30)
    weights.exp_()
    weights /= weights.sum(dim=-1, keepdim=True).clamp(min=1e-30)
    return weights


@wrong("attention_weights")
def scaled_by_the_number_of_keys(q, k, mask):
    scores = q @ k.transpose(-2, -1) / k.shape[-2] ** 0.5
    return torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1).masked_fill(~mask, 0.0)


@wrong("attention_weights")
def scaled_on_both_sides(q, k, mask):
    root = q.shape[-1] ** 0.5
    scores = (q / root) @ (k / root).transpose(-2, -1) / root
    return torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1).masked_fill(~mask, 0.0)


@wrong("attention_weights")
def scaled_by_a_whole_root(q, k, mask):
    scores = q @ k.transpose(-2, -1) / math.isqrt(q.shape[-1])
    return torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1).masked_fill(~mask, 0.0)


@wrong("attention_weights")
def scaled_after_the_softmax(q, k, mask):
    scores = (q @ k.transpose(-2, -1)).masked_fill(~mask, float("-inf"))
    return torch.softmax(scores, dim=-1).masked_fill(~mask, 0.0) / q.shape[-1] ** 0.5


@wrong("attention_weights")
def looks_where_it_may_not(q, k, mask):
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    return torch.softmax(scores.masked_fill(mask, float("-inf")), dim=-1).masked_fill(mask, 0.0)


@wrong("attention_weights")
def even_weights_for_who_sees_nothing(q, k, mask):
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    return torch.softmax(scores.masked_fill(~mask, -1e9), dim=-1)


@wrong("attention_weights")
def hidden_keys_score_zero(q, k, mask):
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    return torch.softmax(scores * mask, dim=-1) * mask


@wrong("attention_weights")
def mask_added_as_a_number(q, k, mask):
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    return torch.softmax(scores + mask, dim=-1).masked_fill(~mask.any(-1, keepdim=True), 0.0)


@wrong("attention_weights")
def weights_divided_by_what_underflows(q, k, mask):
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    weights = torch.softmax(scores, dim=-1) * mask
    return weights / weights.sum(dim=-1, keepdim=True).clamp(min=1e-9)


@wrong("attention_weights")
def hidden_scores_are_minus_one_hundred(q, k, mask):
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    return torch.softmax(scores.masked_fill(~mask, -100.0), dim=-1) * mask


@wrong("attention_weights")
def exps_of_scores_without_the_largest(q, k, mask):
    exp = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).exp() * mask
    return exp / exp.sum(dim=-1, keepdim=True).clamp(min=1e-30)


@wrong("attention_weights")
def softmax_over_who_asks(q, k, mask):
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    return torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-2).masked_fill(~mask, 0.0)


@wrong("attention_weights")
def softmax_along_dim_1(q, k, mask):
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    return torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=1).masked_fill(~mask, 0.0)


@wrong("attention_weights")
def always_causal(q, k, mask):
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    mask = torch.ones_like(scores, dtype=torch.bool).tril()
    return torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)


@wrong("attention_weights")
def keys_reshaped_instead_of_transposed(q, k, mask):
    columns = k.reshape(*k.shape[:-2], k.shape[-1], k.shape[-2])
    scores = q @ columns / q.shape[-1] ** 0.5
    return torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1).masked_fill(~mask, 0.0)


@wrong("attention_weights")
def zeros_only_if_nobody_may_look(q, k, mask):
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    if not mask.any():
        return torch.zeros_like(scores)
    return torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)


@wrong("attention_weights")
def blind_queries_found_along_dim_1(q, k, mask):
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    weights = torch.softmax(scores.masked_fill(~mask, -1e9), dim=-1)
    return weights.masked_fill(~mask.any(dim=1, keepdim=True), 0.0)


@wrong("attention_weights")
def scales_the_queries_in_place(q, k, mask):
    q *= q.shape[-1] ** -0.5
    scores = (q @ k.transpose(-2, -1)).masked_fill(~mask, float("-inf"))
    return torch.softmax(scores, dim=-1).masked_fill(~mask, 0.0)


@wrong("attention_weights", "detached")
def detached_weights(q, k, mask):
    with torch.no_grad():
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        return torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1).masked_fill(~mask, 0.0)


# ---------------------------------------------------------------- head_forward


@right("head_forward")
def head_with_the_function_of_the_package(x, W_query, W_key, W_value, mask):
    return attention_weights(x @ W_query, x @ W_key, mask) @ (x @ W_value)


@right("head_forward")
def head_from_scratch(x, W_query, W_key, W_value, mask):
    q, k, v = x @ W_query, x @ W_key, x @ W_value
    scores = q @ k.transpose(-2, -1) / math.sqrt(k.shape[-1])
    weights = torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)
    return weights.masked_fill(~mask, 0.0) @ v


@right("head_forward")
def head_by_pytorch_attention(x, W_query, W_key, W_value, mask):
    return F.scaled_dot_product_attention(x @ W_query, x @ W_key, x @ W_value, attn_mask=mask)


@right("head_forward")
def head_by_einsum_that_mixes_before_it_projects(x, W_query, W_key, W_value, mask):
    bilinear = W_query @ W_key.T / W_query.shape[1] ** 0.5
    scores = torch.einsum("...tc,cd,...sd->...ts", x, bilinear, x)
    weights = torch.where(mask, scores, -torch.inf).softmax(-1).nan_to_num()
    return torch.einsum("...ts,...sc,cv->...tv", weights, x, W_value)


@right("head_forward")
def head_by_one_projection_split_in_three(x, W_query, W_key, W_value, mask):
    sizes = [W_query.shape[1], W_key.shape[1], W_value.shape[1]]
    q, k, v = (x @ torch.cat([W_query, W_key, W_value], dim=1)).split(sizes, dim=-1)
    return attention_weights(q, k, mask) @ v


@right("head_forward")
def head_by_vmap_over_the_batch(x, W_query, W_key, W_value, mask):
    def one_text(text):
        scores = (text @ W_query) @ (text @ W_key).T * W_query.shape[1] ** -0.5
        return torch.softmax(scores.masked_fill(~mask, -1e30), dim=-1).masked_fill(~mask, 0.0) @ (
            text @ W_value
        )

    return one_text(x) if x.dim() == 2 else torch.vmap(one_text)(x)


@right("head_forward")
def head_in_float64(x, W_query, W_key, W_value, mask):
    q, k, v = (x.double() @ W.double() for W in (W_query, W_key, W_value))
    return (attention_weights(q, k, mask) @ v).to(x.dtype)


@right("head_forward")
def head_text_by_text_and_query_by_query(x, W_query, W_key, W_value, mask):
    if x.dim() == 3:
        return torch.stack(
            [head_text_by_text_and_query_by_query(text, W_query, W_key, W_value, mask) for text in x]
        )
    rows = []
    for t in range(len(x)):
        seen = x[mask[t]]
        weights = torch.softmax((seen @ W_key) @ (x[t] @ W_query) / W_key.shape[1] ** 0.5, dim=0)
        rows.append(weights @ (seen @ W_value))
    return torch.stack(rows)


@right("head_forward")
def head_by_linear(x, W_query, W_key, W_value, mask):
    q, k, v = F.linear(x, W_query.T), F.linear(x, W_key.T), F.linear(x, W_value.T)
    bias = torch.zeros_like(mask, dtype=x.dtype).masked_fill(~mask, -math.inf)
    weights = (q.matmul(k.mT) / W_key.size(1) ** 0.5 + bias).softmax(-1)
    return weights.masked_fill(~mask.any(-1, keepdim=True), 0.0).matmul(v)


@wrong("head_forward")
def mixes_the_tokens_and_never_uses_the_values(x, W_query, W_key, W_value, mask):
    return attention_weights(x @ W_query, x @ W_key, mask) @ x


@wrong("head_forward")
def mixes_the_keys(x, W_query, W_key, W_value, mask):
    q, k = x @ W_query, x @ W_key
    return attention_weights(q, k, mask) @ k


@wrong("head_forward")
def head_that_forgets_the_mask(x, W_query, W_key, W_value, mask):
    return attention_weights(x @ W_query, x @ W_key) @ (x @ W_value)


@wrong("head_forward")
def head_that_is_always_causal(x, W_query, W_key, W_value, mask):
    mask = causal_mask(x.shape[-2])
    return attention_weights(x @ W_query, x @ W_key, mask) @ (x @ W_value)


@wrong("head_forward")
def query_and_key_swapped(x, W_query, W_key, W_value, mask):
    return attention_weights(x @ W_key, x @ W_query, mask) @ (x @ W_value)


@wrong("head_forward")
def queries_ask_each_other(x, W_query, W_key, W_value, mask):
    q = x @ W_query
    return attention_weights(q, q, mask) @ (x @ W_value)


@wrong("head_forward")
def keys_ask_each_other(x, W_query, W_key, W_value, mask):
    k = x @ W_key
    return attention_weights(k, k, mask) @ (x @ W_value)


@wrong("head_forward")
def tokens_ask_each_other(x, W_query, W_key, W_value, mask):
    return attention_weights(x, x, mask) @ (x @ W_value)


@wrong("head_forward")
def mask_transposed(x, W_query, W_key, W_value, mask):
    return attention_weights(x @ W_query, x @ W_key, mask.T) @ (x @ W_value)


@wrong("head_forward")
def mask_inverted(x, W_query, W_key, W_value, mask):
    return attention_weights(x @ W_query, x @ W_key, ~mask) @ (x @ W_value)


@wrong("head_forward")
def weights_transposed_before_the_mix(x, W_query, W_key, W_value, mask):
    weights = attention_weights(x @ W_query, x @ W_key, mask)
    return weights.transpose(-2, -1) @ (x @ W_value)


@wrong("head_forward")
def head_without_a_scale(x, W_query, W_key, W_value, mask):
    return attention_weights(x @ W_query, x @ W_key, mask, scale=1.0) @ (x @ W_value)


@wrong("head_forward")
def head_scaled_by_the_channels(x, W_query, W_key, W_value, mask):
    return attention_weights(x @ W_query, x @ W_key, mask, scale=x.shape[-1] ** -0.5) @ (x @ W_value)


@wrong("head_forward")
def head_scaled_by_the_size_of_the_values(x, W_query, W_key, W_value, mask):
    scale = W_value.shape[1] ** -0.5
    return attention_weights(x @ W_query, x @ W_key, mask, scale=scale) @ (x @ W_value)


@wrong("head_forward")
def head_scaled_twice(x, W_query, W_key, W_value, mask):
    q = x @ W_query / W_query.shape[1] ** 0.5
    return attention_weights(q, x @ W_key, mask) @ (x @ W_value)


@wrong("head_forward")
def head_with_nan_for_blind_queries(x, W_query, W_key, W_value, mask):
    q, k, v = x @ W_query, x @ W_key, x @ W_value
    scores = q @ k.transpose(-2, -1) / k.shape[-1] ** 0.5
    return torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1) @ v


@wrong("head_forward")
def head_with_the_mean_for_blind_queries(x, W_query, W_key, W_value, mask):
    q, k, v = x @ W_query, x @ W_key, x @ W_value
    scores = q @ k.transpose(-2, -1) / k.shape[-1] ** 0.5
    return torch.softmax(scores.masked_fill(~mask, -1e9), dim=-1) @ v


@wrong("head_forward")
def head_that_masks_after_the_softmax(x, W_query, W_key, W_value, mask):
    weights = attention_weights(x @ W_query, x @ W_key)
    return weights * mask @ (x @ W_value)


@wrong("head_forward")
def head_that_divides_by_what_underflows(x, W_query, W_key, W_value, mask):
    weights = attention_weights(x @ W_query, x @ W_key) * mask
    weights = weights / weights.sum(dim=-1, keepdim=True).clamp(min=1e-9)
    return weights @ (x @ W_value)


@wrong("head_forward")
def head_with_exps_that_overflow(x, W_query, W_key, W_value, mask):
    exp = ((x @ W_query) @ (x @ W_key).transpose(-2, -1) / W_key.shape[1] ** 0.5).exp() * mask
    return exp @ (x @ W_value) / exp.sum(dim=-1, keepdim=True).clamp(min=1e-30)


@wrong("head_forward")
def head_that_scales_its_parameter_in_place(x, W_query, W_key, W_value, mask):
    W_query *= W_query.shape[1] ** -0.5
    return attention_weights(x @ W_query, x @ W_key, mask, scale=1.0) @ (x @ W_value)


@wrong("head_forward")
def head_with_softmax_over_the_queries(x, W_query, W_key, W_value, mask):
    q, k, v = x @ W_query, x @ W_key, x @ W_value
    scores = (q @ k.transpose(-2, -1) / k.shape[-1] ** 0.5).masked_fill(~mask, float("-inf"))
    return torch.softmax(scores, dim=-2).nan_to_num() @ v


@wrong("head_forward")
def head_with_softmax_along_dim_1(x, W_query, W_key, W_value, mask):
    q, k, v = x @ W_query, x @ W_key, x @ W_value
    scores = (q @ k.transpose(-2, -1) / k.shape[-1] ** 0.5).masked_fill(~mask, float("-inf"))
    return torch.softmax(scores, dim=1).nan_to_num() @ v


@wrong("head_forward")
def the_weights_of_the_first_text_for_all(x, W_query, W_key, W_value, mask):
    weights = attention_weights(x @ W_query, x @ W_key, mask)
    return (weights[0] if x.dim() == 3 else weights) @ (x @ W_value)


@wrong("head_forward", "detached")
def head_with_detached_weights(x, W_query, W_key, W_value, mask):
    weights = attention_weights(x @ W_query, x @ W_key, mask).detach()
    return weights @ (x @ W_value)


@wrong("head_forward", "detached")
def head_rebuilt_from_data(x, W_query, W_key, W_value, mask):
    q, k, v = (x @ W.data for W in (W_query, W_key, W_value))
    return attention_weights(q, k, mask) @ v


@wrong("head_forward")
def head_over_the_whole_batch(x, W_query, W_key, W_value, mask):
    tokens = x.reshape(-1, x.shape[-1])
    copies = len(tokens) // x.shape[-2]
    weights = attention_weights(tokens @ W_query, tokens @ W_key, mask.repeat(copies, copies))
    return (weights @ (tokens @ W_value)).reshape(*x.shape[:-1], W_value.shape[1])


@wrong("head_forward")
def head_returns_the_weights(x, W_query, W_key, W_value, mask):
    return attention_weights(x @ W_query, x @ W_key, mask)


# ---------------------------------------------------------------- previous_token


def position_weights(W_query, W_key):
    positions = torch.eye(len(W_query))
    return attention_weights(positions @ W_query, positions @ W_key, causal_mask(len(W_query)))


@right("previous_token")
def previous_by_a_shifted_eye(T):
    W_query = torch.zeros(T, T)
    for t in range(1, T):
        W_query[t, t - 1] = 1000
    W_key = torch.eye(T)
    return position_weights(W_query, W_key)


@right("previous_token")
def previous_by_rolled_keys(T):
    W_query = torch.eye(T) * 100
    W_key = torch.eye(T).roll(1, dims=1) * T**0.5
    return position_weights(W_query, W_key)


@right("previous_token")
def previous_by_a_parabola_of_two_columns(T):
    t = torch.arange(T, dtype=torch.float32)
    W_query = torch.stack([2 * (t - 1), -torch.ones(T)], dim=1) * 10
    W_key = torch.stack([t, t**2], dim=1)
    return position_weights(W_query, W_key)


@right("previous_token")
def previous_by_the_angle_on_a_circle(T):
    step = 2 * math.pi / (T + 1)
    strength = 20 / (1 - math.cos(step))
    angle = torch.arange(T) * step
    W_query = strength * torch.stack([(angle - step).cos(), (angle - step).sin()], dim=1)
    W_key = torch.stack([angle.cos(), angle.sin()], dim=1)
    return position_weights(W_query, W_key)


@right("previous_token")
def previous_by_a_thermometer(T):
    i = torch.arange(T)
    W_key = (i <= i[:, None]).float()
    W_query = torch.where(i <= i[:, None] - 1, 1.0, -1.0) * 20 * T**0.5
    return position_weights(W_query, W_key)


@right("previous_token")
def previous_by_random_keys(T):
    generator = torch.Generator().manual_seed(0)
    W_key = torch.randn(T, 2000, generator=generator)
    W_query = W_key.roll(1, dims=0)
    return position_weights(W_query, W_key)


@right("previous_token")
def previous_by_a_table_of_scores_as_the_query(T):
    scores = torch.full((T, T), -50.0)
    scores[torch.arange(1, T), torch.arange(T - 1)] = 50.0
    return position_weights(scores * math.sqrt(T), torch.eye(T))


@right("previous_token")
def previous_by_training(T):
    torch.manual_seed(0)
    W_query = torch.randn(T, 16, requires_grad=True)
    W_key = torch.randn(T, 16, requires_grad=True)
    optimizer = torch.optim.Adam([W_query, W_key], lr=0.5)
    for _ in range(40):
        weights = position_weights(W_query, W_key)
        loss = -weights.diagonal(-1).clamp(min=1e-9).log().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return position_weights(W_query, W_key)


@wrong("previous_token")
def previous_with_scores_of_one(T):
    W_query = torch.diag(torch.ones(T - 1), -1)
    return position_weights(W_query, torch.eye(T))


@wrong("previous_token")
def previous_with_the_strength_of_six_positions(T):
    W_query = torch.diag(torch.full((T - 1,), 20.0), -1)
    return position_weights(W_query, torch.eye(T))


@wrong("previous_token")
def previous_with_a_strength_of_five(T):
    W_query = torch.diag(torch.full((T - 1,), 5.0), -1)
    return position_weights(W_query, torch.eye(T))


@wrong("previous_token")
def previous_with_a_strength_that_grows_too_slowly(T):
    W_query = torch.diag(torch.full((T - 1,), 4.0 * T**0.5), -1)
    return position_weights(W_query, torch.eye(T))


@wrong("previous_token")
def asks_for_the_next_token(T):
    W_query = torch.diag(torch.full((T - 1,), 1000.0), 1)
    return position_weights(W_query, torch.eye(T))


@wrong("previous_token")
def asks_for_itself(T):
    return position_weights(1000 * torch.eye(T), torch.eye(T))


@wrong("previous_token")
def asks_for_the_token_two_before(T):
    W_query = torch.zeros(T, T)
    for t in range(2, T):
        W_query[t, t - 2] = 1000
    return position_weights(W_query, torch.eye(T))


@wrong("previous_token")
def asks_for_the_first_token(T):
    W_query = torch.zeros(T, T)
    W_query[:, 0] = 1000
    return position_weights(W_query, torch.eye(T))


@wrong("previous_token")
def previous_but_not_for_the_last(T):
    W_query = torch.zeros(T, T)
    for t in range(1, T - 1):
        W_query[t, t - 1] = 1000
    return position_weights(W_query, torch.eye(T))


@wrong("previous_token")
def previous_but_not_for_position_one(T):
    W_query = torch.zeros(T, T)
    for t in range(2, T):
        W_query[t, t - 1] = 1000
    return position_weights(W_query, torch.eye(T))


@wrong("previous_token")
def previous_of_six_positions(T):
    W_query = torch.zeros(T, T)
    for t in range(1, min(T, 6)):
        W_query[t, t - 1] = 1000
    return position_weights(W_query, torch.eye(T))


@wrong("previous_token")
def asks_for_all_before(T):
    W_query = torch.full((T, T), 1000.0).tril(-1)
    return position_weights(W_query, torch.eye(T))


@wrong("previous_token")
def parabola_with_its_top_at_the_token_itself(T):
    t = torch.arange(T, dtype=torch.float32)
    W_query = torch.stack([2 * t, -torch.ones(T)], dim=1) * 10
    return position_weights(W_query, torch.stack([t, t**2], dim=1))


@wrong("previous_token")
def parabola_with_its_top_between_two_tokens(T):
    t = torch.arange(T, dtype=torch.float32)
    W_query = torch.stack([2 * t - 1, -torch.ones(T)], dim=1) * 10
    return position_weights(W_query, torch.stack([t, t**2], dim=1))


@wrong("previous_token")
def parabola_that_is_too_flat(T):
    t = torch.arange(T, dtype=torch.float32)
    W_query = torch.stack([2 * (t - 1), -torch.ones(T)], dim=1)
    return position_weights(W_query, torch.stack([t, t**2], dim=1) * 2)


@wrong("previous_token")
def parabola_without_the_square(T):
    t = torch.arange(T, dtype=torch.float32)
    return position_weights((t - 1)[:, None] * 100, t[:, None])


@wrong("previous_token")
def angle_that_comes_round_again(T):
    t = torch.arange(T)
    W_query = 100 * torch.stack([(t - 1.0).cos(), (t - 1.0).sin()], dim=1)
    W_key = torch.stack([t.cos(), t.sin()], dim=1)
    return position_weights(W_query, W_key)


@wrong("previous_token")
def circle_as_long_as_the_text_with_a_fixed_strength(T):
    angle = 2 * math.pi * torch.arange(T) / T
    step = 2 * math.pi / T
    W_query = 30 * torch.stack([(angle - step).cos(), (angle - step).sin()], dim=1)
    return position_weights(W_query, torch.stack([angle.cos(), angle.sin()], dim=1))


@wrong("previous_token")
def even_and_odd_positions(T):
    parity = torch.arange(T) % 2
    W_query = 1000 * F.one_hot(1 - parity, 2).float()
    return position_weights(W_query, F.one_hot(parity, 2).float())


@wrong("previous_token")
def two_bits_for_the_position(T):
    t = torch.arange(T)
    W_query = 1000 * F.one_hot((t - 1) % 4, 4).float()
    return position_weights(W_query, F.one_hot(t % 4, 4).float())


@wrong("previous_token")
def eight_columns_for_any_number_of_positions(T):
    t = torch.arange(T)
    W_query = 1000 * F.one_hot((t - 1) % 8, 8).float()
    return position_weights(W_query, F.one_hot(t % 8, 8).float())


@wrong("previous_token")
def shift_matrix_and_no_attention(T):
    return torch.diag(torch.ones(T - 1), -1)
