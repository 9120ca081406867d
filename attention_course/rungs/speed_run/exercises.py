"""A step of Newton-Schulz, a schedule, a fair comparison of two curves; a clock for a step of the lesson."""

from collections.abc import Callable
from functools import partial
from types import MappingProxyType

import torch
from jaxtyping import Float
from torch import Tensor

from attention_course.exercises.comparing import close, differentiable
from attention_course.exercises.exercise import Property, exercise


def newton_schulz_step(
    x: Float[Tensor, "rows cols"], a: float, b: float, c: float
) -> Float[Tensor, "rows cols"]:
    """Map each singular value s of a matrix to a s + b s³ + c s⁵, and leave its singular vectors.

    Args:
        x: shape (rows, cols).
        a: the factor of x.
        b: the factor of x xᵀ x.
        c: the factor of x xᵀ x xᵀ x.

    Returns:
        The same shape as `x`.
    """
    gram = x @ x.T  # (rows, rows)
    return a * x + (b * gram + c * gram @ gram) @ x


def learning_rate_schedule(peak: int | float, steps: int, warmup: int, decay: int) -> Float[Tensor, " steps"]:
    """Return the learning rate of each step: linear warmup, the peak, then linear decay.

    Args:
        peak: the largest rate.
        steps: number of steps.
        warmup: the number of first steps, in which the rate rises.
        decay: the number of last steps, in which it falls.

    Returns:
        The rates, shape (steps,).
    """
    t = torch.arange(steps)
    rising = (t + 1) / warmup  # inf without a warmup
    falling = (steps - t) / decay
    return peak * torch.minimum(rising, falling).clamp(max=1)


def speed_up(old: Float[Tensor, "2 n_old"], new: Float[Tensor, "2 n_new"], mark: float) -> Float[Tensor, "3"]:
    """Compare the seconds that two trainings take to one loss.

    Args:
        old: seconds since the start, and the loss measured then, shape (2, n_old).
        new: the same of the other training, shape (2, n_new).
        mark: the loss to reach; NaN is the time to a mark that is never reached.

    Returns:
        The seconds of `old`, those of `new`, and how many times as fast `new` is: shape (3,).
    """
    found = []
    for seconds, losses in (old, new):
        reached = (losses <= mark).nonzero().flatten()
        if len(reached) == 0:
            found.append(torch.tensor(float("nan")))
            continue
        i = reached[0]
        share = (losses[i - 1] - mark) / (losses[i - 1] - losses[i])  # of the way from i - 1 to i
        found.append(seconds[i - 1] + share * (seconds[i] - seconds[i - 1]))
    return torch.stack([*found, found[0] / found[1]])


# Inputs


class MadeUpClock:
    """A clock, and a race by it that comes out the same each time, to try a way of timing two sides.

    The first call of each side takes longer, and the machine gets busy after a while. Where the race stands
    is kept in the class, since the judge copies and compares what it hands over.
    """

    COSTS = MappingProxyType({"old": 3.0, "new": 2.0})  # seconds of a call
    FIRST = 7.0  # more, for the first call of a side
    QUIET = 6  # calls before the machine gets busy, and each takes twice as long
    now: float = 0.0  # the seconds
    called: tuple[str, ...] = ()  # which side ran in each call

    def __repr__(self) -> str:
        return "a made-up clock"

    def perf_counter(self) -> float:
        """Return the seconds, as `time.perf_counter` does."""
        return MadeUpClock.now

    def call(self, side: str) -> None:
        """Let a side run once."""
        busy, called = len(MadeUpClock.called) >= self.QUIET, MadeUpClock.called
        MadeUpClock.now += self.COSTS[side] * (2 if busy else 1) + (0 if side in called else self.FIRST)
        MadeUpClock.called = (*called, side)

    def race(self, clock: Callable) -> Tensor:
        """Return the seconds of both sides in four rounds, shape (2, 4), as `clock` finds them."""
        MadeUpClock.now, MadeUpClock.called = 0.0, ()
        took = clock({side: partial(self.call, side) for side in self.COSTS}, 4)
        return torch.tensor([took[side] for side in self.COSTS])


MUON = (3.4445, -4.7750, 2.0315)


def draw_matrices(generator: torch.Generator) -> list[tuple]:
    """Draw matrices with a norm of 2 and coefficients: wide, tall and square ones, some with Muon's."""

    def draw(rows, cols, coefficients=None):
        x = torch.randn(rows, cols, generator=generator)
        drawn = torch.tensor([1.0, -0.8, 0.1]) + 0.2 * torch.rand(3, generator=generator)
        return 2 * x / x.norm(), *(coefficients or (round(each, 2) for each in drawn.tolist()))

    return [draw(2, 2), draw(2, 3), draw(3, 2), draw(3, 3, MUON), draw(4, 4), draw(5, 3, MUON), draw(3, 6)]


def draw_plans(generator: torch.Generator) -> list[tuple]:
    """Draw peaks, some of them integers, and schedules: with each part, without each, and one alone."""

    def size(least, most):
        return int(torch.randint(least, most + 1, (), generator=generator))

    plans = []
    for warmup, plateau, decay in (
        (2, 2, 4),
        (size(3, 5), size(1, 3), size(6, 8)),
        (0, size(2, 4), size(3, 5)),
        (size(3, 5), size(2, 4), 0),
        (size(2, 4), 0, size(5, 7)),
        (0, size(2, 4), 0),
        (size(5, 9), size(55, 65), size(10, 14)),
        (1, 2, 3),
        (3, 0, 0),
        (0, 0, 4),
    ):
        peak = 1 if not plans or warmup == decay else size(2, 9) / 10
        plans.append((peak, warmup + plateau + decay, warmup, decay))
    return plans


def draw_curves(generator: torch.Generator) -> list[tuple]:
    """Draw two curves and a mark: falling, noisy with several crossings, and with a mark too low for one.

    One curve touches the mark, and rises again. One rises right before it first crosses the mark.

    The new one takes less time for a step in most, and both are measured at times of their own.
    """

    def curve(losses, step, noise=0.02):
        losses = torch.tensor(losses) + noise * torch.rand(len(losses), generator=generator)
        seconds = (step * (0.5 + torch.rand(len(losses), generator=generator))).cumsum(dim=0)
        return torch.stack([seconds, losses])

    falling, quick = [4.0, 3.0, 2.5, 2.2, 1.9, 2.0], [4.0, 2.7, 2.1, 1.8, 1.9]
    noisy = [4.0, 2.9, 2.3, 2.6, 2.4, 2.7, 2.2, 2.0]
    marks = (2.25 + 0.2 * torch.rand(3, generator=generator)).tolist()
    return [
        (curve([4.0, 2.0], 10.0), curve([4.0, 2.0], 4.0), 3.0),
        (curve(falling, 10.0), curve(quick, 6.0), marks[0]),
        (curve(falling, 10.0), curve(falling, 2.0), marks[1]),
        (curve(noisy, 8.0), curve(quick, 6.0), 2.5),
        (curve(falling, 5.0), curve(noisy, 3.0), 2.5),
        (curve(falling, 3.0), curve(quick, 20.0), marks[2]),
        (curve(falling[:3], 4.0), curve(quick, 3.0), 2.3),
        (curve(noisy, 4.0), curve(falling[:4], 1.0), 2.1),
        (curve([4.0, 2.5, 3.0, 2.0], 4.0, noise=0), curve(falling, 2.0), 2.5),
        (curve([4.0, 2.6, 2.8, 2.4], 5.0), curve(quick, 6.0), 2.5),
    ]


# Properties


def singular_values_move(step, x, a, b, c):
    """Compute the step from the singular values."""
    U, S, V = torch.linalg.svd(x, full_matrices=False)
    return close(U * (a * S + b * S**3 + c * S**5) @ V, step(x, a, b, c))


def equal_differences(schedule, peak, steps, warmup, decay):
    """Compare all differences between rates of the decay."""
    differences = schedule(peak, steps, warmup, decay)[steps - decay :].diff()
    return close(differences[:1].expand_as(differences), differences)


def twice_as_fast(compare, old, new, mark):
    """Compare each curve with itself in half of the time."""
    ratios = [compare(each, each * torch.tensor([[0.5], [1.0]]), mark)[2] for each in (old, new)]
    return all(ratio.isnan() or close(torch.tensor(2.0), ratio) for ratio in ratios)


def no_matter_how_it_ends(compare, old, new, mark):
    """Add a measurement to each curve, later and higher."""
    longer = [torch.cat([each, each[:, -1:] + torch.tensor([[9.0], [0.3]])], dim=1) for each in (old, new)]
    return close(compare(old, new, mark), compare(*longer, mark))


OF_A_STEP = (
    Property("Each singular value s becomes a s + b s³ + c s⁵.", singular_values_move),
    Property(
        "The step of the transpose is the transpose of the step.",
        lambda f, x, a, b, c: close(f(x, a, b, c).T, f(x.T, a, b, c)),
    ),
    differentiable(newton_schulz_step),
)
OF_A_SCHEDULE = (
    Property("Twice the peak gives twice the rates.", lambda f, p, *n: close(2 * f(p, *n), f(2 * p, *n))),
    Property(
        "Without warmup and decay every rate is the peak.",
        lambda f, p, n, *_: close(torch.full((n,), p), f(p, n, 0, 0)),
    ),
    Property("In the decay, each rate is lower than the one before by the same amount.", equal_differences),
)
OF_A_COMPARISON = (
    Property("A training that takes half of the time for everything is twice as fast.", twice_as_fast),
    Property("What is measured after the mark does not matter.", no_matter_how_it_ends),
)

EXERCISES = (
    exercise(__name__, newton_schulz_step, draw_matrices, OF_A_STEP),
    exercise(__name__, learning_rate_schedule, draw_plans, OF_A_SCHEDULE),
    exercise(__name__, speed_up, draw_curves, OF_A_COMPARISON),
)
