"""Answers to the exercises of rung 10."""

import math

import numpy as np
import torch

from answers import right, wrong

# online_softmax


@right("online_softmax")
def online_from_the_first_block(blocks):
    m = None
    for s, v in blocks:
        if m is None:
            m = s.max()
            num, den = (s - m).exp() @ v, (s - m).exp().sum()
            continue
        new = max(m, s.max())
        num = num * torch.exp(m - new) + torch.exp(s - new) @ v
        den = den * torch.exp(m - new) + torch.exp(s - new).sum()
        m = new
    return num / den


@right("online_softmax")
def online_by_logsumexp(blocks):
    """Keep a mean and the logarithm of the sum of exps."""
    out, lse = 0.0, torch.tensor(-torch.inf)
    for scores, values in blocks:
        block = torch.logsumexp(scores, dim=0)
        both = torch.logaddexp(lse, block)
        out = out * (lse - both).exp() + torch.softmax(scores, 0) @ values * (block - both).exp()
        lse = both
    return out


@right("online_softmax")
def online_kept_divided(blocks):
    """Keep a mean: multiply by the old total, and divide by the new one (FlashAttention, algorithm 1)."""
    m, total, out = torch.tensor(-1e30), torch.tensor(0.0), 0.0
    for s, v in blocks:
        new = torch.maximum(m, s.max())
        old = total * (m - new).exp()
        total = old + (s - new).exp().sum()
        out = (out * old + (s - new).exp() @ v) / total
        m = new
    return out


@wrong("online_softmax", "one_block_held")
def online_with_a_view_of_a_block(blocks):
    m, num, den = torch.tensor(-torch.inf), 0.0, 0.0
    for scores, values in blocks:
        new = max(m, max(scores))
        e = (scores - new).exp()
        num, den, m = num * (m - new).exp() + e @ values, den * (m - new).exp() + e.sum(), new
    return num / den


@wrong("online_softmax", "all_blocks_held")
def online_of_a_list(blocks):
    scores, values = (torch.cat(parts) for parts in zip(*list(blocks), strict=True))
    return scores.softmax(dim=0) @ values


@wrong("online_softmax", "maximum_not_applied_to_the_sum", "maximum_not_applied_to_the_output")
def online_without_a_correction(blocks):
    m, num, den = -torch.inf, 0, 0
    for scores, values in blocks:
        m = max(m, scores.max().item())
        num, den = num + (scores - m).exp() @ values, den + (scores - m).exp().sum()
    return num / den


wrong(
    "online_softmax",
    online_by_index=lambda blocks: blocks[0][0].softmax(0) @ blocks[0][1],
)


# newton_schulz_step

right(
    "newton_schulz_step",
    newton_from_the_right=lambda x, a, b, c: a * x + x @ (b * x.T @ x + c * (x.T @ x) @ (x.T @ x)),
    newton_by_einsum=lambda x, a, b, c: (
        a * x + b * (y := torch.einsum("ij,kj,kl->il", x, x, x)) + c * torch.einsum("ij,kj,kl->il", x, x, y)
    ),
)


@right("newton_schulz_step")
def newton_by_singular_values(x, a, b, c):
    U, S, Vh = torch.linalg.svd(x, full_matrices=False)
    return (U * (a * S + b * S.pow(3) + c * S.pow(5))) @ Vh


@wrong("newton_schulz_step", "detached")
def newton_in_numpy(x, a, b, c):
    y = x.detach().numpy()
    gram = y @ y.T
    return torch.from_numpy((a * y + (b * gram + c * gram @ gram) @ y).astype(np.float32))


@wrong("newton_schulz_step", "powers_of_each_entry")
def newton_of_the_entries(x, a, b, c):
    return a * x + b * x**3 + c * x**5


@wrong("newton_schulz_step", "squared_entry_by_entry")
def newton_with_a_star_too_many(x, a, b, c):
    A = x @ x.T
    return a * x + (b * A + c * A**2) @ x


wrong(
    "newton_schulz_step",
    "detached",
    newton_with_a_constant_gram=lambda x, a, b, c: (
        a * x + (b * (gram := (x @ x.T).detach()) + c * gram @ gram) @ x
    ),
)


# learning_rate_schedule


@right("learning_rate_schedule")
def schedule_by_cases(peak, steps, warmup, decay):
    rates = []
    for t in range(steps):
        if t < warmup:
            rates.append(peak * (t + 1) / warmup)
        elif t >= steps - decay:
            rates.append(peak * (steps - t) / decay)
        else:
            rates.append(peak)
    return torch.tensor(rates)


@right("learning_rate_schedule")
def schedule_by_linspace(peak, steps, warmup, decay):
    up = torch.linspace(0, peak, warmup + 1)[1:]
    down = torch.linspace(peak, 0, decay + 1)[:-1]
    return torch.cat([up, torch.full((steps - warmup - decay,), peak), down])


@right("learning_rate_schedule")
def schedule_in_place(peak, steps, warmup, decay):
    rates = torch.full((steps,), peak, dtype=torch.float64)
    rates[:warmup] *= torch.arange(1, warmup + 1) / max(warmup, 1)
    rates[steps - decay :] *= torch.arange(decay, 0, -1) / max(decay, 1)
    return rates


@wrong("learning_rate_schedule", "zero_at_the_last_step", "zero_at_step_0")
def schedule_off_at_both_ends(peak, steps, warmup, decay):
    def rate(t):
        if t < warmup:
            return peak * t / warmup
        if t >= steps - decay:
            return peak * (steps - 1 - t) / decay
        return peak

    return torch.tensor([rate(t) for t in range(steps)])


@wrong("learning_rate_schedule", "decay_from_the_wrong_start")
def schedule_triangle(peak, steps, warmup, decay):
    return torch.tensor(
        [peak * ((t + 1) / warmup if t < warmup else (steps - t) / (steps - warmup)) for t in range(steps)]
    )


@wrong("learning_rate_schedule")
def schedule_in_a_table_of_integers(peak, steps, warmup, decay):
    rates = torch.full((steps,), peak)
    for t in range(steps):
        rates[t] = schedule_by_cases(peak, steps, warmup, decay)[t]
    return rates


wrong(
    "learning_rate_schedule",
    schedule_of_one_rate=lambda peak, steps, warmup, decay: peak,
)


# speed_up


def _first(seconds, losses, mark):
    for i in range(1, len(losses)):
        if losses[i] <= mark:
            slope = (losses[i] - losses[i - 1]) / (seconds[i] - seconds[i - 1])
            return (seconds[i - 1] + (mark - losses[i - 1]) / slope).item()
    return math.nan


@right("speed_up")
def speed_up_by_a_loop(old, new, mark):
    a, b = _first(*old, mark), _first(*new, mark)
    return torch.tensor([a, b, a / b])


@right("speed_up")
def speed_up_by_numpy(old, new, mark):
    def first(seconds, losses):
        below = np.flatnonzero(losses <= mark)
        if not below.size:
            return np.nan
        i = below[0]
        return np.interp(mark, [losses[i], losses[i - 1]], [seconds[i], seconds[i - 1]])

    a, b = (first(*each.numpy()) for each in (old, new))
    return torch.tensor([a, b, a / b], dtype=torch.float32)


@right("speed_up")
def speed_up_by_the_lowest_so_far(old, new, mark):
    found = []
    for seconds, losses in (old, new):
        i = int((losses.cummin(dim=0).values > mark).sum())
        if i == len(losses):
            found.append(torch.nan)
            continue
        w = (mark - losses[i]) / (losses[i - 1] - losses[i])
        found.append(w * seconds[i - 1] + (1 - w) * seconds[i])
    return torch.tensor([*found, found[0] / found[1]])


@wrong("speed_up", "upside_down")
def speed_up_upside_down(old, new, mark):
    a, b = _first(*old, mark), _first(*new, mark)
    return torch.tensor([a, b, b / a])


@wrong("speed_up", "final_times_compared")
def speed_up_of_final_times(old, new, mark):
    a, b = old[0, -1], new[0, -1]
    return torch.stack([a, b, a / b])


@wrong("speed_up", "no_interpolation")
def speed_up_of_measurements(old, new, mark):
    found = [
        seconds[losses <= mark][0] if (losses <= mark).any() else torch.tensor(torch.nan)
        for seconds, losses in (old, new)
    ]
    return torch.stack([*found, found[0] / found[1]])


wrong(
    "speed_up",
    speed_up_whole_curve=lambda old, new, mark: torch.tensor(
        np.array([np.interp(-mark, -each[1].numpy(), each[0].numpy()) for each in (old, new, old)])
    ),
)
