"""Answers to the exercises of rung 1."""

import numpy as np
import torch

from answers import right, wrong


def distances(x):
    """Return t - j in row t and column j, shape (T, T)."""
    t = torch.arange(x.shape[-2])
    return t[:, None] - t


def faded(x, weights):
    """Divide each row of weights by its sum, and mix tokens with them."""
    return weights / weights.sum(dim=-1, keepdim=True) @ x


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


@wrong("causal_mean_loop")
@wrong("causal_mean_matmul")
@wrong("causal_mean_softmax")
def writes_into_the_argument(x):
    return x.copy_(list_comprehension_and_stack(x))


@wrong("causal_mean_loop")
@wrong("causal_mean_matmul")
def averages_the_last_20_tokens_at_most(x):
    return window_by_the_last_k_of_the_past(x, 20)


@wrong("causal_mean_loop")
def the_running_sum_is_not_reset_between_texts(x):
    sums = x.reshape(-1, x.shape[-1]).cumsum(dim=0).view(x.shape)
    return sums / torch.arange(1, x.shape[-2] + 1)[:, None]


right(
    "causal_mean_loop",
    a_result_that_asks_for_gradients=lambda x: (
        list_comprehension_and_stack(x) * torch.ones((), requires_grad=True)
    ),
)
wrong(
    "causal_mean_loop",
    "future_instead_of_past",
    "averages_over_the_batch",
    the_future_of_the_first_dimension=lambda x: torch.stack([x[t:].mean(dim=0) for t in range(len(x))]),
)


@wrong("causal_mean_loop")
@wrong("causal_mean_matmul")
@wrong("causal_mean_softmax")
def squeezes_the_result(x):
    return list_comprehension_and_stack(x).squeeze()


@right("windowed_mean")
def window_by_the_last_k_of_the_past(x, k):
    return torch.stack([x[..., : t + 1, :][..., -k:, :].mean(dim=-2) for t in range(x.shape[-2])], dim=-2)


@wrong("windowed_mean")
def a_window_larger_than_the_text_takes_all_of_it(x, k):
    whole = x.mean(dim=-2, keepdim=True).expand_as(x)
    return whole if k >= x.shape[-2] else window_by_the_last_k_of_the_past(x, k)


@wrong("windowed_mean")
def running_sums_subtracted_one_too_late(x, k):
    sums = x.cumsum(dim=-2)
    total = [sums[..., t, :] - (sums[..., t - k, :] if t > k else 0) for t in range(x.shape[-2])]
    return torch.stack(total, dim=-2) / torch.arange(1, x.shape[-2] + 1).clamp(max=k)[:, None]


wrong(
    "windowed_mean",
    a_window_as_long_as_the_text_is_one_short=lambda x, k: window_by_the_last_k_of_the_past(
        x, max(1, min(k, x.shape[-2] - 1))
    ),
)


@wrong("windowed_mean")
def tokens_of_zeros_do_not_count(x, k):
    rows = []
    for t in range(x.shape[-2]):
        window = x[..., max(0, t - k + 1) : t + 1, :]
        rows.append(window.sum(dim=-2) / window.any(dim=-1).sum(dim=-1, keepdim=True).clamp(min=1))
    return torch.stack(rows, dim=-2)


@right("forgetting_mean")
def fades_in_float64_by_numpy(x):
    t = np.arange(x.shape[-2], dtype=np.float64)
    weights = np.tril(0.5 ** np.subtract.outer(t, t))
    return torch.from_numpy(weights / weights.sum(1, keepdims=True) @ x.numpy()).to(x.dtype)


@wrong("forgetting_mean")
def fades_by_powers_that_overflow_in_a_long_text(x):
    powers = 2.0 ** torch.arange(x.shape[-2])[:, None]
    return (powers * x).cumsum(dim=-2) / powers.cumsum(dim=-2)


right("forgetting_mean", fades_by_a_table_of_distances=lambda x: faded(x, torch.tril(0.5 ** distances(x))))
wrong("forgetting_mean", forgets_the_triangle=lambda x: faded(x, 0.5 ** distances(x)))


@wrong("windowed_mean")
def window_of_rows_that_keeps_all_of_them_for_one(x, k):
    rows, out = [], []
    for row in x.unbind(dim=-2):
        rows = [*rows[-(k - 1) :], row]
        out.append(sum(rows) / len(rows))
    return torch.stack(out, dim=-2)


wrong(
    "causal_mean_loop",
    mean_that_squeezes_a_single_channel=lambda x: torch.stack(
        [x[..., : t + 1, :].mean(dim=-2) for t in range(x.shape[-2])], dim=-2
    ).squeeze(-1),
)
