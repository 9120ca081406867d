"""Answers to the exercises of rung 10."""

import math

import numpy as np
import torch

from answers import right, wrong
from attention_course import flash

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
def online_key_by_key(blocks):
    m, den, num = -math.inf, 0.0, 0.0
    for scores, values in blocks:
        for score, value in zip(scores.tolist(), values, strict=True):
            if score > m:
                num, den, m = num * math.exp(m - score), den * math.exp(m - score), score
            num, den = num + math.exp(score - m) * value, den + math.exp(score - m)
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
def online_by_the_package(blocks):
    return flash.online_softmax((scores[None], values) for scores, values in blocks)[0][0]


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


@wrong("online_softmax", "one_block_held")
def online_with_names_of_the_first_block(blocks):
    rest = iter(blocks)
    scores_0, values_0 = next(rest)
    m = scores_0.max()
    num, den = (scores_0 - m).exp() @ values_0, (scores_0 - m).exp().sum()
    for scores, values in rest:
        new = torch.maximum(m, scores.max())
        e = (scores - new).exp()
        num, den, m = num * (m - new).exp() + e @ values, den * (m - new).exp() + e.sum(), new
    return num / den


@wrong("online_softmax", "first_maximum_for_all")
def online_with_the_first_maximum(blocks):
    m, num, den = None, 0.0, 0.0
    for scores, values in blocks:
        m = scores.max() if m is None else m
        num, den = num + (scores - m).exp() @ values, den + (scores - m).exp().sum()
    return num / den


@wrong("online_softmax", "all_blocks_held")
def online_with_everything_joined(blocks):
    scores, values = zip(*blocks, strict=True)
    return torch.cat(scores).softmax(0) @ torch.cat(values)


@wrong("online_softmax", "all_blocks_held")
def online_in_two_passes(blocks):
    largest = max(scores.max() for scores, _ in blocks)
    num = den = 0
    for scores, values in blocks:
        exp = (scores - largest).exp()
        num, den = num + exp @ values, den + exp.sum()
    return num / den


@wrong("online_softmax", "no_max_subtraction")
def online_without_a_maximum(blocks):
    num, den = 0, 0
    for scores, values in blocks:
        num, den = num + scores.exp() @ values, den + scores.exp().sum()
    return num / den


@wrong("online_softmax", "maximum_not_applied_to_the_sum", "maximum_not_applied_to_the_output")
def online_without_a_correction(blocks):
    m, num, den = -torch.inf, 0, 0
    for scores, values in blocks:
        m = max(m, scores.max().item())
        num, den = num + (scores - m).exp() @ values, den + (scores - m).exp().sum()
    return num / den


@wrong("online_softmax", "maximum_not_applied_to_the_sum")
def online_corrects_the_output_alone(blocks):
    m, num, den = torch.tensor(-torch.inf), torch.zeros(3), torch.zeros(())
    for scores, values in blocks:
        new = torch.maximum(m, scores.amax())
        e = torch.exp(scores - new)
        den += e.sum()
        num = num * torch.exp(m - new) + (e[:, None] * values).sum(0)
        m = new
    return num / den


@wrong("online_softmax", "maximum_of_the_block")
def online_maximum_of_each_block(blocks):
    num = den = 0
    for scores, values in blocks:
        e = (scores - scores.max()).exp()
        num, den = num + e @ values, den + e.sum()
    return num / den


@wrong("online_softmax", "mean_of_the_blocks")
def online_mean_of_softmaxes(blocks):
    return torch.stack([scores.softmax(0) @ values for scores, values in blocks]).mean(0)


@wrong("online_softmax", "divided_in_every_block")
def online_sum_of_softmaxes(blocks):
    return sum(scores.softmax(0) @ values for scores, values in blocks)


@wrong("online_softmax", "maximum_starts_at_0")
def online_from_a_maximum_of_0(blocks):
    m = num = den = torch.tensor(0.0)
    for scores, values in blocks:
        new = torch.maximum(m, scores.max())
        num = num * (m - new).exp() + (scores - new).exp() @ values
        den = den * (m - new).exp() + (scores - new).exp().sum()
        m = new
    return num / den


@wrong("online_softmax", "returns_in_the_loop")
def online_first_block(blocks):
    for scores, values in blocks:
        return scores.softmax(0) @ values


@wrong("online_softmax", "only_the_last_block")
def online_last_block(blocks):
    for scores, values in blocks:
        out = scores.softmax(0) @ values
    return out


wrong(
    "online_softmax",
    "scores_ignored",
    online_plain_mean=lambda blocks: torch.cat([values for _, values in blocks]).mean(0),
)
wrong(
    "online_softmax",
    online_by_index=lambda blocks: blocks[0][0].softmax(0) @ blocks[0][1],
)


# newton_schulz_step

right(
    "newton_schulz_step",
    newton_from_the_right=lambda x, a, b, c: a * x + x @ (b * x.T @ x + c * (x.T @ x) @ (x.T @ x)),
    newton_power_by_power=lambda x, a, b, c: a * x + b * x @ x.T @ x + c * x @ x.T @ x @ x.T @ x,
    newton_by_einsum=lambda x, a, b, c: (
        a * x + b * (y := torch.einsum("ij,kj,kl->il", x, x, x)) + c * torch.einsum("ij,kj,kl->il", x, x, y)
    ),
    newton_by_matrix_power=lambda x, a, b, c: (
        (a * torch.eye(len(x)) + b * x @ x.mT + c * torch.matrix_power(x @ x.mT, 2)) @ x
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


@wrong("newton_schulz_step", "transposed_on_the_wrong_side")
def newton_of_the_other_gram(x, a, b, c):
    A = x.T @ x
    return a * x + b * A @ x + c * A @ A @ x


@wrong("newton_schulz_step", "no_transpose")
def newton_of_powers(x, a, b, c):
    return a * x + b * x @ x @ x + c * x @ x @ x @ x @ x


@wrong("newton_schulz_step", "fifth_power_missing")
def newton_of_third_degree(x, a, b, c):
    return a * x + b * (x @ x.T) @ x


@wrong("newton_schulz_step", "scaled_once_more")
def newton_as_in_muon(x, a, b, c):
    x = x / (x.norm() + 1e-7)
    A = x @ x.T
    B = b * A + c * A @ A
    return a * x + B @ x


@wrong("newton_schulz_step", "parentheses_missing")
def newton_of_a_sum(x, a, b, c):
    A = x @ x.T
    return a * x + b * A + c * A @ A @ x


@wrong("newton_schulz_step", "five_steps")
def newton_five_times(x, a, b, c):
    for _ in range(5):
        A = x @ x.T
        x = a * x + (b * A + c * A @ A) @ x
    return x


@wrong("newton_schulz_step", "not_transposed_back")
def newton_of_a_wide_matrix(x, a, b, c):
    x = x.T if x.shape[0] > x.shape[1] else x
    A = x @ x.T
    return a * x + (b * A + c * A @ A) @ x


@wrong("newton_schulz_step", "five_steps")
def newton_whole(x, a, b, c):
    x = x / x.norm()
    for _ in range(5):
        A = x @ x.T
        x = a * x + (b * A + c * A @ A) @ x
    return x


wrong(
    "newton_schulz_step",
    "detached",
    newton_with_a_constant_gram=lambda x, a, b, c: (
        a * x + (b * (gram := (x @ x.T).detach()) + c * gram @ gram) @ x
    ),
)
wrong(
    "newton_schulz_step",
    "coefficients_ignored",
    newton_classical=lambda x, a, b, c: 1.5 * x - 0.5 * x @ x.T @ x,
)
wrong(
    "newton_schulz_step",
    "one_power_too_many",
    newton_of_seventh_degree=lambda x, a, b, c: (
        a * x + b * x @ x.T @ x + c * (x @ x.T) @ (x @ x.T) @ (x @ x.T) @ x
    ),
)
wrong(
    "newton_schulz_step",
    "singular_values_of_1",
    newton_polar=lambda x, a, b, c: (usv := torch.linalg.svd(x, full_matrices=False))[0] @ usv[2],
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


def _by_linspace(up, down, plateau, peak):
    return torch.cat([up, torch.full((plateau,), peak), down])


@wrong("learning_rate_schedule", "zero_at_step_0")
def schedule_up_from_0(peak, steps, warmup, decay):
    up, down = torch.linspace(0, peak, warmup + 1)[:-1], torch.linspace(peak, 0, decay + 1)[:-1]
    return _by_linspace(up, down, steps - warmup - decay, peak)


@wrong("learning_rate_schedule", "zero_at_the_last_step")
def schedule_down_to_0(peak, steps, warmup, decay):
    up, down = torch.linspace(0, peak, warmup + 1)[1:], torch.linspace(peak, 0, decay)
    return _by_linspace(up, down, steps - warmup - decay, peak)


@wrong("learning_rate_schedule", "zero_at_the_last_step")
def schedule_down_one_step_early(peak, steps, warmup, decay):
    up, down = torch.linspace(0, peak, warmup + 1)[1:], torch.linspace(peak, 0, decay + 1)[1:]
    return _by_linspace(up, down, steps - warmup - decay, peak)


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


@wrong("learning_rate_schedule", "cosine")
def schedule_cosine(peak, steps, warmup, decay):
    rates = schedule_by_cases(peak, steps, warmup, decay)
    for i in range(decay):
        rates[steps - decay + i] = peak * 0.5 * (1 + math.cos(math.pi * i / decay))
    return rates


@wrong("learning_rate_schedule", "peak_ignored")
def schedule_of_shares(peak, steps, warmup, decay):
    return schedule_by_cases(1.0, steps, warmup, decay)


@wrong("learning_rate_schedule", "no_decay")
def schedule_without_decay(peak, steps, warmup, decay):
    return schedule_by_cases(peak, steps, warmup, 0)


@wrong("learning_rate_schedule", "integer_division")
def schedule_in_whole_numbers(peak, steps, warmup, decay):
    def rate(t):
        if t < warmup:
            return peak * (t + 1) // warmup
        return peak * (steps - t) // decay if t >= steps - decay else peak

    return torch.tensor([float(rate(t)) for t in range(steps)])


@wrong("learning_rate_schedule", "slice_of_minus_zero")
def schedule_from_the_end(peak, steps, warmup, decay):
    rates = torch.full((steps,), float(peak))
    rates[:warmup] = peak * torch.arange(1, warmup + 1) / warmup
    rates[-decay:] = peak * torch.arange(decay, 0, -1) / decay
    return rates


@wrong("learning_rate_schedule")
def schedule_in_a_table_of_integers(peak, steps, warmup, decay):
    rates = torch.full((steps,), peak)
    for t in range(steps):
        rates[t] = schedule_by_cases(peak, steps, warmup, decay)[t]
    return rates


wrong(
    "learning_rate_schedule",
    "divided_by_zero",
    schedule_divides_by_0=lambda peak, steps, warmup, decay: torch.tensor(
        [peak * min(1, (t + 1) / warmup, (steps - t) / decay) for t in range(steps)]
    ),
)
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


@wrong("speed_up", "last_crossing")
def speed_up_of_the_last_crossing(old, new, mark):
    found = []
    for seconds, losses in (old, new):
        at = torch.tensor(torch.nan)
        for i in range(1, len(losses)):
            if losses[i - 1] > mark >= losses[i]:
                share = (losses[i - 1] - mark) / (losses[i - 1] - losses[i])
                at = torch.lerp(seconds[i - 1], seconds[i], share)
        found.append(at)
    return torch.stack([*found, found[0] / found[1]])


@wrong("speed_up", "ratio_of_losses")
def speed_up_of_final_losses(old, new, mark):
    return torch.tensor([_first(*old, mark), _first(*new, mark), old[1, -1] / new[1, -1]])


@wrong("speed_up", "infinite_in_place_of_never")
def speed_up_with_infinity(old, new, mark):
    a, b = speed_up_by_a_loop(old, new, mark)[:2].nan_to_num(torch.inf)
    return torch.stack([a, b, a / b])


@wrong("speed_up", "end_in_place_of_never")
def speed_up_that_ends(old, new, mark):
    a, b = speed_up_by_a_loop(old, new, mark)[:2]
    a, b = (last if each.isnan() else each for each, last in ((a, old[0, -1]), (b, new[0, -1])))
    return torch.stack([a, b, a / b])


@wrong("speed_up", "share_of_the_time_saved")
def speed_up_in_percent(old, new, mark):
    a, b, ratio = speed_up_by_a_loop(old, new, mark)
    return torch.stack([a, b, 100 * ratio])


@wrong("speed_up", "steps_in_place_of_seconds")
def speed_up_in_steps(old, new, mark):
    a, b = (_first(torch.arange(each.shape[1]), each[1], mark) for each in (old, new))
    return torch.tensor([a, b, a / b])


@wrong("speed_up", "strictly_below")
def speed_up_below_the_mark(old, new, mark):
    marks = (torch.nextafter(torch.tensor(mark), torch.tensor(-1.0)).item() for _ in range(2))
    a, b = (_first(*each, below) for each, below in zip((old, new), marks, strict=True))
    return torch.tensor([a, b, a / b])


@wrong("speed_up", "clock_of_old")
def speed_up_by_one_clock(old, new, mark):
    a, b = (_first(old[0], each[1], mark) for each in (old, new))
    return torch.tensor([a, b, a / b])


wrong(
    "speed_up",
    "ratio_alone",
    speed_up_ratio_alone=lambda old, new, mark: torch.tensor(_first(*old, mark) / _first(*new, mark)),
)
wrong(
    "speed_up",
    speed_up_whole_curve=lambda old, new, mark: torch.tensor(
        np.array([np.interp(-mark, -each[1].numpy(), each[0].numpy()) for each in (old, new, old)])
    ),
)


@wrong("speed_up", "never_not_noticed")
def speed_up_without_never(old, new, mark):
    found = []
    for seconds, losses in (old, new):
        i = int((losses <= mark).int().argmax())
        share = (losses[i - 1] - mark) / (losses[i - 1] - losses[i])
        found.append(seconds[i - 1] + share * (seconds[i] - seconds[i - 1]))
    return torch.stack([*found, found[0] / found[1]])
