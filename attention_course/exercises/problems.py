"""The problems that an answer can have on one input, from an error to wrong values."""

import inspect
import textwrap
from dataclasses import dataclass

import torch
from torch import Tensor

from attention_course.exercises.comparing import different, is_plain, same
from attention_course.exercises.exercise import Exercise
from attention_course.exercises.running import Answer, Outcome


@dataclass(frozen=True)
class Case:
    """One input: the exercise, the answer, its arguments, the target, and the outcome."""

    exercise: Exercise
    answer: Answer
    arguments: tuple
    target: Outcome
    outcome: Outcome

    def __str__(self) -> str:
        """Name the arguments: `x` of shape (2, 3), `k` = 4."""
        return ", ".join(
            f"`{name}` of shape {tuple(a.shape)}" if isinstance(a, Tensor) else f"`{name}` = {a}"
            for name, a in self.named_arguments()
        )

    def named_arguments(self) -> list[tuple[str, object]]:
        """Return the names of the parameters with their original arguments."""
        names = inspect.signature(self.exercise.reference).parameters
        return list(zip(names, self.arguments, strict=False))

    def is_right(self) -> bool:
        """Return whether the outcome equals the target."""
        return same(self.target, self.outcome, self.exercise.tolerance)


# Each of these returns a message, or None


def raised(case: Case) -> str | None:
    """It raised an error."""
    error = case.outcome.error
    if error is None:
        return None
    text = textwrap.shorten(str(error), 300)
    seen = f"Your function raised {type(error).__name__}" + (f": {text.rstrip('.')}." if text else ".")
    return f"{seen}{case.answer.line_of(error)} The arguments: {case}."


def wrong_type(case: Case) -> str | None:
    """It did not return a plain tensor."""
    value = case.outcome.value
    if is_plain(value):
        return None
    if value is None:
        return f"Your function returned None for {case}. Does every path through it end in a `return`?"
    if isinstance(value, tuple):
        return (
            f"Your function returned {len(value)} things, and one tensor is expected: the one that the task "
            "asks for. (`attention(...)[0]` is the output of attention; `torch.stack` joins tensors.)"
        )
    advice = "Make one with `torch.stack` or `torch.tensor`, or begin with `torch.zeros` and fill its rows."
    kind = f"{value.layout} tensor on {value.device}" if isinstance(value, Tensor) else type(value).__name__
    return f"Your function returned a {kind}, where a plain tensor is expected. {advice}"


def wrong_shape(case: Case) -> str | None:
    """The tensor has another shape."""
    yours, target = tuple(case.outcome.value.shape), tuple(case.target.value.shape)
    if yours == target:
        return None
    advice = f"It has {len(yours)} dimensions instead of {len(target)}."
    if len(yours) == len(target):
        wrong = [dim for dim in range(len(target)) if yours[dim] != target[dim]]
        advice = " ".join(f"Dimension {dim} is {yours[dim]}, expected {target[dim]}." for dim in wrong)
    return f"For {case} your result has shape {yours}, and the target has shape {target}. {advice}"


def wrong_dtype(case: Case) -> str | None:
    """The tensor has another dtype. Without a float argument, any floating dtype is accepted."""
    yours, target = case.outcome.value.dtype, case.target.value.dtype
    given = any(isinstance(a, Tensor) and a.is_floating_point() for a in case.arguments)
    if yours == target or (not given and yours.is_floating_point and target.is_floating_point):
        return None
    advice = f"PyTorch rarely mixes the two in one product. Make the result with dtype {target}."
    return f"Your result has dtype {yours}, and the target has dtype {target}. {advice}"


def changed_input(case: Case) -> str | None:
    """It modified an argument in place."""
    for (name, before), after in zip(case.named_arguments(), case.outcome.arguments, strict=True):
        if isinstance(before, Tensor) and not torch.equal(before, after):
            why = f"The caller still uses `{name}`, and now finds other numbers in it."
            where = f"Look for an assignment to `{name}[...]` or a method that ends in `_`."
            return f"Your function changes its argument `{name}`. {why} {where} Write into a new tensor."
    return None


def not_finite(case: Case) -> str | None:
    """There is NaN or inf where the target is finite."""
    bad = ~case.outcome.value.isfinite() & case.target.value.isfinite()
    if not bad.any():
        return None
    why = "NaN comes from 0/0, from the mean of nothing, or from inf - inf; inf from exp of a large number."
    return f"For {case}, {bad.sum()} of {bad.numel()} values are NaN or inf, and the target has none. {why}"


def wrong_values(case: Case) -> str | None:
    """The values differ."""
    if case.is_right():
        return None
    bad = different(case.target.value, case.outcome.value, case.exercise.tolerance)
    advice = "Compute the first value that differs by hand: which numbers went into yours, and which should?"
    return f"For {case}, {bad.sum()} of {bad.numel()} values differ from the target. {advice}"


PROBLEMS = {
    raised: "it raises an error",
    wrong_type: "wrong type",
    wrong_shape: "wrong shape",
    wrong_dtype: "wrong dtype",
    changed_input: "it changes its input",
    not_finite: "NaN or inf",
    wrong_values: "wrong values",
}


def one_rank_only(cases: list[Case], case: Case) -> str:
    """Return advice if the answer fails only for tokens (T, C), or only for tokens (B, T, C)."""
    ranks = [c.arguments[0].dim() if isinstance(c.arguments[0], Tensor) else 0 for c in cases]
    if set(ranks) != {2, 3}:
        return ""
    rank = case.arguments[0].dim()
    for c, its in zip(cases, ranks, strict=True):
        lucky = its == rank and c.arguments[0].shape[-2] == 1  # T = 1 can come out right by accident
        if not lucky and c.is_right() == (its == rank):
            return ""
    if rank == 2:
        return (
            " It works for (B, T, C) and not for (T, C), and `x` may be either. Count from the end: "
            "`x.shape[-2]`, `x[..., t, :]`, dim=-2 in place of dim=1, and dim=-1 in place of dim=2."
        )
    return (
        " It works for (T, C) and not for (B, T, C): there, `len(x)` and `x.shape[0]` are B. Count from the "
        "end: `x.shape[-2]`, `x[..., t, :]`, dim=-2 in place of dim=0, and dim=-1 in place of dim=1."
    )
