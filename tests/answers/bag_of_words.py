"""Answers to the exercises of rung 1."""

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


def faded(x, weights):
    """Divide each row of weights by its sum, and mix tokens with them."""
    return weights / weights.sum(dim=-1, keepdim=True) @ x


# causal_mean_loop


@right("causal_mean_loop")
def a_result_that_asks_for_gradients(x):
    return list_comprehension_and_stack(x) * torch.ones((), requires_grad=True)


@right("causal_mean_matmul")
@right("causal_mean_softmax")
def list_comprehension_and_stack(x):
    return torch.stack([x[..., : t + 1, :].mean(dim=-2) for t in range(x.shape[-2])], dim=-2)


@right("causal_mean_loop")
def backwards_in_place_on_a_copy(x):
    out = x.clone()
    for t in reversed(range(x.shape[-2])):
        out[..., t, :] = out[..., : t + 1, :].mean(dim=-2)
    return out


@right("causal_mean_loop")
def vmap_over_the_batch(x):
    means = torch.vmap(lambda text: torch.stack([text[: t + 1].mean(dim=0) for t in range(len(text))]))
    return means(x.reshape(-1, *x.shape[-2:])).view(x.shape)


@wrong("causal_mean_loop", "future_in_place_of_past", "averages_over_the_batch")
def the_future_of_the_first_dimension(x):
    return torch.stack([x[t:].mean(dim=0) for t in range(len(x))])


@wrong("causal_mean_loop")
@wrong("causal_mean_matmul")
@wrong("causal_mean_softmax")
def writes_into_the_argument(x):
    return x.copy_(list_comprehension_and_stack(x))


@wrong("causal_mean_loop")
def the_running_sum_is_not_reset_between_texts(x):
    sums = x.reshape(-1, x.shape[-1]).cumsum(dim=0).view(x.shape)
    return sums / torch.arange(1, x.shape[-2] + 1)[:, None]


@wrong("causal_mean_loop")
@wrong("causal_mean_matmul")
@wrong("causal_mean_softmax")
def squeezes_the_result(x):
    return list_comprehension_and_stack(x).squeeze()


# windowed_mean


@right("windowed_mean")
def window_by_the_last_k_of_the_past(x, k):
    return torch.stack([x[..., : t + 1, :][..., -k:, :].mean(dim=-2) for t in range(x.shape[-2])], dim=-2)


@right("windowed_mean")
def window_by_padding_and_unfold(x, k):
    padded = F.pad(x, (0, 0, k - 1, 0))
    ones = F.pad(torch.ones(x.shape[-2], dtype=x.dtype), (k - 1, 0))
    return padded.unfold(-2, k, 1).sum(dim=-1) / ones.unfold(0, k, 1).sum(dim=-1, keepdim=True)


@right("windowed_mean")
def window_by_vmap_of_where(x, k):
    def row(behind):
        seen = (behind >= 0) & (behind < k)
        return torch.where(seen[:, None], x, 0.0).sum(dim=-2) / seen.sum()

    return torch.vmap(row, out_dims=-2)(distances(x))


@wrong("windowed_mean")
def a_window_larger_than_the_text_takes_all_of_it(x, k):
    whole = x.mean(dim=-2, keepdim=True).expand_as(x)
    return whole if k >= x.shape[-2] else window_by_the_last_k_of_the_past(x, k)


@wrong("windowed_mean")
def running_sums_subtracted_one_too_late(x, k):
    sums = x.cumsum(dim=-2)
    total = rows(x, lambda t: sums[..., t, :] - (sums[..., t - k, :] if t > k else 0))
    return total / torch.arange(1, x.shape[-2] + 1).clamp(max=k)[:, None]


wrong(
    "windowed_mean",
    a_window_as_long_as_the_text_is_one_short=lambda x, k: window_by_the_last_k_of_the_past(
        x, max(1, min(k, x.shape[-2] - 1))
    ),
    window_mean_writes_into_the_argument=lambda x, k: x.copy_(window_by_the_last_k_of_the_past(x, k)),
)


# forgetting_mean


@right("forgetting_mean")
def fades_by_a_table_of_distances(x):
    return faded(x, torch.tril(0.5 ** distances(x)))


@right("forgetting_mean")
def fades_in_float64_by_numpy(x):
    t = np.arange(x.shape[-2], dtype=np.float64)
    weights = np.tril(0.5 ** np.subtract.outer(t, t))
    return torch.from_numpy(weights / weights.sum(1, keepdims=True) @ x.numpy()).to(x.dtype)


@right("forgetting_mean")
def fades_by_cumsum_of_growing_powers_in_float64(x):
    powers = 2.0 ** torch.arange(x.shape[-2], dtype=torch.float64)[:, None]
    return ((x * powers).cumsum(dim=-2) / powers.cumsum(dim=-2)).to(x.dtype)


@wrong("forgetting_mean", "divides_by_the_count", "averages_over_the_batch")
def fades_over_the_texts(x):
    return torch.stack([sum(x[s] * 0.5 ** (t - s) for s in range(t + 1)) / (t + 1) for t in range(len(x))])


@wrong("forgetting_mean", "both_sides", "fades_by_e")
def softmax_of_minus_the_distance_to_both_sides(x):
    return torch.softmax(-distances(x).abs().float(), dim=-1) @ x


@wrong("forgetting_mean")
def fades_by_powers_that_overflow_in_a_long_text(x):
    powers = 2.0 ** torch.arange(x.shape[-2])[:, None]
    return (powers * x).cumsum(dim=-2) / powers.cumsum(dim=-2)


wrong(
    "forgetting_mean",
    forgets_the_triangle=lambda x: faded(x, 0.5 ** distances(x)),
)
