"""Answers to the exercises of speed_run."""

from itertools import accumulate

import numpy as np
import torch

from answers import right, wrong

right(
    "newton_schulz_step",
    newton_from_the_right=lambda x, a, b, c: a * x + x @ (b * x.T @ x + c * (x.T @ x) @ (x.T @ x)),
    newton_by_einsum=lambda x, a, b, c: (
        a * x + b * (y := torch.einsum("ij,kj,kl->il", x, x, x)) + c * torch.einsum("ij,kj,kl->il", x, x, y)
    ),
)
wrong(
    "newton_schulz_step",
    "detached",
    newton_with_a_constant_gram=lambda x, a, b, c: (
        a * x + (b * (gram := (x @ x.T).detach()) + c * gram @ gram) @ x
    ),
)


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


wrong(
    "learning_rate_schedule",
    "zero_at_the_last_step",
    schedule_that_ends_in_zero=lambda peak, steps, warmup, decay: (
        peak
        * torch.minimum((torch.arange(steps) + 1) / warmup, (steps - 1 - torch.arange(steps)) / decay).clamp(
            max=1
        )
    ),
)
wrong(
    "learning_rate_schedule",
    schedule_in_a_table_of_integers=lambda peak, steps, warmup, decay: torch.full((steps,), peak).copy_(
        schedule_by_linspace(peak, steps, warmup, decay)
    ),
    schedule_in_integers_without_a_ramp=lambda peak, steps, warmup, decay: (
        schedule_by_linspace(peak, steps, warmup, decay) if warmup + decay else torch.tensor([peak] * steps)
    ),
    schedule_of_one_rate=lambda peak, steps, warmup, decay: peak,
)


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


wrong(
    "speed_up",
    speed_up_whole_curve=lambda old, new, mark: torch.tensor(
        np.array([np.interp(-mark, -each[1].numpy(), each[0].numpy()) for each in (old, new, old)])
    ),
)


@wrong("speed_up", "running_minimum")
def speed_up_of_the_lowest_loss_so_far(old, new, mark):
    def first(seconds, losses):
        lowest = list(accumulate(losses.tolist(), min))
        for i, loss in enumerate(lowest):
            if loss <= mark:
                share = (lowest[i - 1] - mark) / (lowest[i - 1] - loss)
                return seconds[i - 1] + share * (seconds[i] - seconds[i - 1])
        return torch.tensor(torch.nan)

    a, b = first(*old), first(*new)
    return torch.stack([a, b, a / b])


@wrong("learning_rate_schedule")
def schedule_that_divides_by_one_step_less(peak, steps, warmup, decay):
    rates = torch.full((steps,), float(peak))
    if warmup:
        first = peak / warmup
        rates[:warmup] = first + (peak - first) * torch.arange(warmup) / (warmup - 1)
    if decay:
        rates[steps - decay :] = peak * torch.arange(decay, 0, -1) / decay
    return rates
