"""Answers to the exercises of rung 1."""

import math

import numpy as np
import torch
import torch.nn.functional as F

from answers import right, wrong


def rows(x, row):
    """Stack row(0), row(1), ... into the rows of a result."""
    return torch.stack([row(t) for t in range(x.shape[-2])], dim=-2)


def distances(x):
    """Return t - j in row t and column j, shape (T, T)."""
    t = torch.arange(x.shape[-2])
    return t[:, None] - t


# causal_mean_loop


@right("causal_mean_loop")
def loops_with_an_extra_branch_for_the_batch(x):
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
def cumsum_and_counts(x):
    return x.cumsum(dim=-2) / torch.arange(1, x.shape[-2] + 1)[:, None]


@right("causal_mean_loop")
def a_view_of_the_batch(x):
    T, C = x.shape[-2:]
    texts = x.view(-1, T, C)
    out = torch.empty(len(texts), T, C)
    for t in range(T):
        torch.mean(texts[:, : t + 1], dim=1, out=out[:, t])
    return out.view(x.shape)


@right("causal_mean_loop")
def list_comprehension_and_stack(x):
    return torch.stack([x[..., : t + 1, :].mean(dim=-2) for t in range(x.shape[-2])], dim=-2)


@right("causal_mean_loop")
def a_mean_that_moves_towards_each_new_token(x):
    mean = torch.zeros_like(x[..., 0, :])
    means = []
    for t, token in enumerate(x.unbind(dim=-2)):
        mean = mean + (token - mean) / (t + 1)
        means.append(mean)
    return torch.stack(means, dim=-2)


@right("causal_mean_loop")
def backwards_in_place_on_a_copy(x):
    out = x.clone()
    for t in reversed(range(x.shape[-2])):
        out[..., t, :] = out[..., : t + 1, :].mean(dim=-2)
    return out


@right("causal_mean_loop")
def means_by_numpy(x):
    a = x.numpy()
    return torch.from_numpy((a.cumsum(axis=-2) / np.arange(1, a.shape[-2] + 1)[:, None]).astype(a.dtype))


@right("causal_mean_loop")
def vmap_over_the_batch(x):
    def one_text(text):
        return torch.stack([text[: t + 1].mean(dim=0) for t in range(len(text))])

    return one_text(x) if x.dim() == 2 else torch.vmap(one_text)(x)


@right("causal_mean_loop")
def recursion_over_the_batch_and_python_floats(x):
    if x.dim() == 3:
        return torch.stack([recursion_over_the_batch_and_python_floats(text) for text in x])
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


@right("causal_mean_loop")
def a_result_that_asks_for_gradients(x):
    return rows(x, lambda t: x[..., : t + 1, :].mean(dim=-2)) * torch.ones((), requires_grad=True)


@wrong("causal_mean_loop", "leaves_itself_out")
def leaves_itself_out_and_keeps_row_0(x):
    out = x.clone()
    for t in range(1, x.shape[-2]):
        out[..., t, :] = x[..., :t, :].mean(dim=-2)
    return out


@wrong("causal_mean_loop", "leaves_itself_out")
def leaves_itself_out_and_row_0_at_zero(x):
    return (x.cumsum(dim=-2) - x) / torch.arange(x.shape[-2]).clamp(min=1)[:, None]


@wrong("causal_mean_loop", "divides_by_t")
def running_mean_with_a_step_of_1_over_t(x):
    out = x.clone()
    for t in range(1, x.shape[-2]):
        out[..., t, :] = out[..., t - 1, :] + (x[..., t, :] - out[..., t - 1, :]) / t
    return out


@wrong("causal_mean_loop", "one_tensor_appended")
def one_running_tensor(x):
    total, means = torch.zeros_like(x[..., 0, :]), []
    for token in x.unbind(dim=-2):
        total += token
        means.append(total)
    return torch.stack(means, dim=-2) / torch.arange(1, len(means) + 1)[:, None]


@wrong("causal_mean_loop", "one_step_ahead")
def running_sum_of_the_next(x):
    padded = F.pad(x, (0, 0, 0, 1)).cumsum(dim=-2)[..., 1:, :]
    return padded / torch.arange(2, x.shape[-2] + 2).clamp(max=x.shape[-2])[:, None]


@wrong("causal_mean_loop", "running_average")
def halfway_between_the_last_mean_and_the_token(x):
    out = x.clone()
    for t in range(1, x.shape[-2]):
        out[..., t, :] = (out[..., t - 1, :] + x[..., t, :]) / 2
    return out


@wrong("causal_mean_loop", "averages_over_the_batch")
def loops_over_the_first_dimension(x):
    out = torch.zeros_like(x)
    for t in range(len(x)):
        out[t] = x[: t + 1].mean(dim=0)
    return out


@wrong("causal_mean_loop", "mean_of_the_future", "averages_over_the_batch")
def the_future_of_the_first_dimension(x):
    return torch.stack([x[t:].mean(dim=0) for t in range(len(x))])


@wrong("causal_mean_loop", "loop_ends_too_early")
def last_row_left_zero(x):
    means = rows(x, lambda t: x[..., : t + 1, :].mean(dim=-2))
    means[..., -1, :] = 0
    return means


@wrong("causal_mean_loop")
def writes_into_the_argument(x):
    for t in reversed(range(x.shape[-2])):
        x[..., t, :] = x[..., : t + 1, :].mean(dim=-2)
    return x


@wrong("causal_mean_loop")
def only_the_eight_tokens_of_the_notebook(x):
    return rows(x, lambda t: x[..., : t + 1, :].mean(dim=-2) * (t < 8))


@wrong("causal_mean_loop")
def stacks_in_front_and_reshapes(x):
    return torch.stack([x[..., : t + 1, :].mean(dim=-2) for t in range(x.shape[-2])]).reshape(x.shape)


@wrong("causal_mean_loop")
def takes_the_length_from_dimension_1(x):
    return torch.stack([x[..., : t + 1, :].mean(dim=-2) for t in range(x.shape[1])], dim=-2)


@wrong("causal_mean_loop")
def the_running_sum_is_not_reset_between_texts(x):
    tokens = x.reshape(-1, x.shape[-1])
    sums = tokens.cumsum(dim=0).view(x.shape)
    return sums / torch.arange(1, x.shape[-2] + 1)[:, None]


@wrong("causal_mean_loop")
def squeezes_the_result(x):
    return rows(x, lambda t: x[..., : t + 1, :].mean(dim=-2)).squeeze()


@wrong("causal_mean_loop")
def counts_only_entries_that_are_not_zero(x):
    return x.cumsum(dim=-2) / (x != 0).cumsum(dim=-2).clamp(min=1)


# windowed_mean


@right("windowed_mean")
def window_by_the_last_k_of_the_past(x, k):
    return torch.stack([x[..., : t + 1, :][..., -k:, :].mean(dim=-2) for t in range(x.shape[-2])], dim=-2)


@right("windowed_mean")
def window_by_the_difference_of_running_sums(x, k):
    sums = F.pad(x.cumsum(dim=-2), (0, 0, 1, 0))
    end = torch.arange(1, x.shape[-2] + 1)
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
    means = []
    for t in range(x.shape[-2]):
        total = total + x[..., t, :]
        if t >= k:
            total = total - x[..., t - k, :]
        means.append((total / min(t + 1, k)).to(x.dtype))
    return torch.stack(means, dim=-2)


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


@wrong("windowed_mean", "window_one_too_short")
def window_of_k_minus_1_but_never_empty(x, k):
    return rows(x, lambda t: x[..., max(0, t - max(k - 2, 0)) : t + 1, :].mean(dim=-2))


@wrong("windowed_mean", "window_one_too_short")
def running_sums_subtracted_one_too_early(x, k):
    sums = x.cumsum(dim=-2)
    total = rows(x, lambda t: sums[..., t, :] - (sums[..., t - k + 1, :] if t >= k else 0))
    return total / torch.arange(1, x.shape[-2] + 1).clamp(max=k)[:, None]


@wrong("windowed_mean", "leaves_itself_out")
def the_k_tokens_before_this_one(x, k):
    out = x.clone()
    for t in range(1, x.shape[-2]):
        out[..., t, :] = x[..., max(0, t - k) : t, :].mean(dim=-2)
    return out


@wrong("windowed_mean", "wraps_around")
def window_goes_round_in_a_circle(x, k):
    return sum(x.roll(i, dims=-2) for i in range(k)) / k


@wrong("windowed_mean", "wraps_around")
def running_sums_rolled(x, k):
    sums = x.cumsum(dim=-2)
    return (sums - sums.roll(k, dims=-2)) / torch.arange(1, x.shape[-2] + 1).clamp(max=k)[:, None]


@wrong("windowed_mean", "first_token_repeated")
def pads_the_start_with_the_first_token(x, k):
    return torch.cat([x[..., :1, :]] * (k - 1) + [x], dim=-2).unfold(-2, k, 1).mean(dim=-1)


@wrong("windowed_mean", "window_centred")
def window_centred_on_the_token(x, k):
    starts = [max(0, t - k // 2) for t in range(x.shape[-2])]
    return rows(x, lambda t: x[..., starts[t] : starts[t] + k, :].mean(dim=-2))


@wrong("windowed_mean", "averages_over_the_batch")
def window_over_the_texts(x, k):
    return torch.stack([x[max(0, t - k + 1) : t + 1].mean(dim=0) for t in range(len(x))])


@wrong("windowed_mean")
def a_window_as_long_as_the_text_is_one_short(x, k):
    k = max(1, min(k, x.shape[-2] - 1))
    return rows(x, lambda t: x[..., max(0, t - k + 1) : t + 1, :].mean(dim=-2))


@wrong("windowed_mean")
def a_window_larger_than_the_text_takes_all_of_it(x, k):
    if k >= x.shape[-2]:
        return x.mean(dim=-2, keepdim=True).expand_as(x)
    return rows(x, lambda t: x[..., max(0, t - k + 1) : t + 1, :].mean(dim=-2))


@wrong("windowed_mean")
def running_sums_subtracted_one_too_late(x, k):
    sums = x.cumsum(dim=-2)
    total = rows(x, lambda t: sums[..., t, :] - (sums[..., t - k, :] if t > k else 0))
    return total / torch.arange(1, x.shape[-2] + 1).clamp(max=k)[:, None]


@wrong("windowed_mean")
def window_mean_writes_into_the_argument(x, k):
    for t in reversed(range(x.shape[-2])):
        x[..., t, :] = x[..., max(0, t - k + 1) : t + 1, :].mean(dim=-2)
    return x


# forgetting_mean


@right("forgetting_mean")
def fades_by_a_table_of_distances(x):
    weights = torch.tril(0.5 ** distances(x))
    return weights / weights.sum(dim=-1, keepdim=True) @ x


@right("forgetting_mean")
def fades_by_two_recursions(x):
    total, norm, means = 0, 0, []
    for token in x.unbind(dim=-2):
        total = total / 2 + token
        norm = norm / 2 + 1
        means.append(total / norm)
    return torch.stack(means, dim=-2)


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
    scores = torch.where(distances(x) >= 0, -distances(x) * math.log(2), -torch.inf)
    return torch.softmax(scores, dim=-1) @ x


@right("forgetting_mean")
def fades_by_flipped_powers(x):
    means = []
    for t in range(x.size(-2)):
        powers = (0.5 ** torch.arange(t + 1)).flip(0)
        means.append(torch.einsum("s,...sc->...c", powers / powers.sum(), x[..., : t + 1, :]))
    return torch.stack(means, -2)


@right("forgetting_mean")
def fades_in_float64_by_numpy(x):
    a = x.numpy().astype(np.float64)
    distance = np.subtract.outer(np.arange(a.shape[-2]), np.arange(a.shape[-2]))
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


def faded(x, weights):
    """Divide each row of weights by its sum, and mix tokens with them."""
    return weights / weights.sum(dim=-1, keepdim=True) @ x


@wrong("forgetting_mean", "shares_sum_to_less_than_1")
def divides_by_two_the_limit_of_the_weights(x):
    return torch.tril(0.5 ** distances(x)) @ x / 2


@wrong("forgetting_mean", "shares_sum_to_less_than_1")
def starts_from_zero(x):
    out, state = torch.zeros_like(x), 0
    for t in range(x.shape[-2]):
        state = 0.5 * state + 0.5 * x[..., t, :]
        out[..., t, :] = state
    return out


@wrong("forgetting_mean", "running_average")
def half_the_old_output_half_the_token(x):
    means = [x[..., 0, :]]
    for token in x.unbind(dim=-2)[1:]:
        means.append((means[-1] + token) / 2)
    return torch.stack(means, dim=-2)


@wrong("forgetting_mean", "columns_normalised")
def fading_weights_divided_by_column_sums(x):
    weights = torch.tril(0.5 ** distances(x))
    return weights / weights.sum(dim=0, keepdim=True) @ x


@wrong("forgetting_mean", "divides_by_the_count")
def fading_sum_divided_by_the_count(x):
    return torch.tril(0.5 ** distances(x)) @ x / torch.arange(1, x.shape[-2] + 1)[:, None]


@wrong("forgetting_mean", "divides_by_the_count", "averages_over_the_batch")
def fades_over_the_texts(x):
    total, means = 0, []
    for t, text in enumerate(x):
        total = total / 2 + text
        means.append(total / (t + 1))
    return torch.stack(means)


@wrong("forgetting_mean", "looks_ahead")
def fades_to_both_sides(x):
    return faded(x, 0.5 ** distances(x).abs())


@wrong("forgetting_mean", "looks_ahead", "fades_by_e")
def softmax_of_minus_the_distance_to_both_sides(x):
    return torch.softmax(-distances(x).abs().float(), dim=-1) @ x


@wrong("forgetting_mean", "leaves_itself_out")
def starts_at_the_token_before(x):
    weights = torch.tril(0.5 ** (distances(x) - 1), diagonal=-1)
    return weights / weights.sum(dim=-1, keepdim=True).clamp(min=0.5) @ x


@wrong("forgetting_mean")
def forgets_the_triangle(x):
    return faded(x, 0.5 ** distances(x))


@wrong("forgetting_mean")
def divides_before_the_triangle(x):
    weights = 0.5 ** distances(x).abs()
    return (weights / weights.sum(dim=-1, keepdim=True)).tril() @ x


@wrong("forgetting_mean")
def closed_form_one_step_off(x):
    sums = 2 - 0.5 ** torch.arange(1, x.shape[-2] + 1)
    return torch.tril(0.5 ** distances(x)) @ x / sums[:, None]


@wrong("forgetting_mean")
def only_three_weights(x):
    return faded(x, torch.tril(0.5 ** distances(x)).triu(diagonal=-2))


@wrong("forgetting_mean")
def the_total_starts_with_a_norm_of_one(x):
    total, norm, means = 0, 1, []
    for token in x.unbind(dim=-2):
        total = total / 2 + token
        means.append(total / norm)
        norm = norm + 0.5
    return torch.stack(means, dim=-2)


@wrong("forgetting_mean")
def the_state_is_carried_into_the_next_text(x):
    tokens = x.reshape(-1, x.shape[-1]).double()
    return faded(tokens, torch.tril(0.5 ** distances(tokens).double())).to(x.dtype).reshape(x.shape)


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
    means, mean, norm = [], 0, 0.0
    for token in x.unbind(dim=-2):
        norm = norm / 2 + 1
        mean = (mean / 2 + token) / norm
        means.append(mean)
    return torch.stack(means, dim=-2)


@wrong("forgetting_mean")
def remembers_ten_tokens_only(x):
    distance = distances(x)
    return faded(x, torch.where((distance >= 0) & (distance < 10), 0.5**distance, 0.0).to(x.dtype))


@wrong("forgetting_mean")
def overflows_after_128_tokens(x):
    powers = torch.tensor(2.0) ** torch.arange(x.shape[-2])[:, None]
    return (x * powers).cumsum(dim=-2) / powers.cumsum(dim=-2)
