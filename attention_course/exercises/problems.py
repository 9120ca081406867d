"""The problems that an answer can have on one input, from an error to wrong values."""

import inspect
from dataclasses import dataclass
from itertools import permutations

import torch
from torch import Tensor

from attention_course.apart import words
from attention_course.checks import is_computable
from attention_course.exercises.comparing import different, is_plain, same, unchanged
from attention_course.exercises.exercise import Exercise
from attention_course.exercises.running import Outcome, Submission


@dataclass(frozen=True)
class Case:
    """One input: the exercise, the answer, its arguments, the target, and the outcome."""

    exercise: Exercise
    answer: Submission
    arguments: tuple
    target: Outcome
    outcome: Outcome

    def __str__(self) -> str:
        return described(self.named_arguments())

    def named_arguments(self) -> list[tuple[str, object]]:
        """Return the names of the parameters with their original arguments."""
        return named(self.exercise, self.arguments)

    def is_right(self) -> bool:
        """Return whether the outcome equals the target."""
        return same(self.target, self.outcome, self.exercise.tolerance)


def named(exercise: Exercise, arguments: tuple) -> list[tuple[str, object]]:
    """Return the names of the parameters with their arguments."""
    return list(zip(inspect.signature(exercise.reference).parameters, arguments, strict=False))


def described(named_arguments: list[tuple[str, object]]) -> str:
    """Describe arguments: `x` of shape (2, 3), `k` = 4."""
    return ", ".join(
        f"`{name}` of shape {tuple(a.shape)}" if isinstance(a, Tensor) else f"`{name}` = {a}"
        for name, a in named_arguments
    )


def beginning(text: str) -> str:
    """Return a text on one line, cut off where it gets long."""
    line = " ".join(text.split())
    return line if len(line) <= 300 else f"{line[:300]} [...]"


# Each of these returns a message, or None


def raised(case: Case) -> str | None:
    """It raised an error."""
    error = case.outcome.error
    if error is None:
        return None
    text = beginning(words(error))
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
        shapes = [part.shape if isinstance(part, Tensor) else () for part in value]
        target = case.target.value.shape
        advice = "`torch.stack` joins tensors, and `torch.tensor` makes one of numbers."
        if target in shapes:
            advice = f"Return `[{shapes.index(target)}]` of it alone, as `attention(...)[0]` is the output."
        return f"Your function returned a tuple of {len(value)}, and one tensor is expected. {advice}"
    advice = "Make one with `torch.stack` or `torch.tensor`, or begin with `torch.zeros` and fill its rows."
    if any(prop.mistake == "detached" for prop in case.exercise.properties):
        advice = (
            "Compute with tensors from start to end, and join them with `torch.stack` or `torch.cat`: "
            "gradients do not get through a list of numbers, NumPy, or `torch.tensor`."
        )
    name = type(value).__name__
    kind = f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
    if isinstance(value, Tensor):
        form = "nested" if value.is_nested else "quantized" if value.is_quantized else value.layout
        kind = f"a {form} tensor on {value.device}"
    return f"Your function returned {kind}, where a plain tensor is expected. {advice}"


def wrong_shape(case: Case) -> str | None:
    """The tensor has another shape."""
    yours, target = tuple(case.outcome.value.shape), tuple(case.target.value.shape)
    if yours == target:
        return None
    advice = f"It has {len(yours)} dimensions instead of {len(target)}."
    orders = [
        order
        for order in permutations(range(len(target)))
        if len(yours) == len(target)
        and same(case.target, permuted(case.outcome, order), case.exercise.tolerance)
    ]
    if orders:
        advice = (
            f"The values are right, in another order of dimensions: return it with `.permute{orders[0]}`."
        )
    elif len(yours) == len(target):
        wrong = [dim for dim in range(len(target)) if yours[dim] != target[dim]]
        advice = " ".join(f"Dimension {dim} is {yours[dim]}, expected {target[dim]}." for dim in wrong)
    return f"For {case} your result has shape {yours}, and the target has shape {target}. {advice}"


def permuted(outcome: Outcome, order: tuple[int, ...]) -> Outcome:
    """Return the outcome with the dimensions of its value in another order."""
    return Outcome(outcome.arguments, outcome.value.permute(order))


def wrong_dtype(case: Case) -> str | None:
    """The tensor has another dtype. Any integer one will do; without a float argument any float one, too."""
    yours, target = case.outcome.value.dtype, case.target.value.dtype
    given = any(isinstance(a, Tensor) and a.is_floating_point() for a in case.arguments)
    exact = yours.is_floating_point and (given or not is_computable(yours))
    if yours == target or (kind(yours) == kind(target) and not exact):
        return None
    advice = "PyTorch rarely mixes the two in one product."
    if kind(yours) != kind(target):
        advice = f"These are {kind(yours)}, where {kind(target)} are expected."
    if (kind(yours), kind(target)) == ("integers", "floats"):
        advice += " A tensor made of integers alone, as by `torch.full(size, 1)`, cuts off all fractions."
    seen = f"Your result has dtype {yours}, and the target has dtype {target}."
    return f"{seen} {advice} Make the result with dtype {target}."


def kind(dtype: torch.dtype) -> str:
    """Return "booleans", "integers", "floats" or "complex numbers"."""
    if dtype.is_floating_point or dtype.is_complex:
        return "floats" if dtype.is_floating_point else "complex numbers"
    return "booleans" if dtype == torch.bool else "integers"


def changed_input(case: Case) -> str | None:
    """It modified an argument in place."""
    for (name, before), after in zip(case.named_arguments(), case.outcome.arguments, strict=True):
        if not unchanged(before, after):
            why = f"The caller still uses `{name}`, and now finds other things in it."
            where = f"Look for an assignment to `{name}[...]` or a method such as `pop`. Change a copy of it."
            if isinstance(before, Tensor):
                why = f"The caller still uses `{name}`, and now finds other numbers in it."
                where = f"Look for an assignment to `{name}[...]` or a method that ends in `_`."
                where += " Write into a new tensor."
            return f"Your function changes its argument `{name}`. {why} {where}"
    return None


def not_finite(case: Case) -> str | None:
    """There is NaN or inf where the target is finite."""
    bad = ~case.outcome.value.isfinite() & case.target.value.isfinite()
    if not bad.any():
        return None
    why = (
        "NaN comes from 0/0, from the mean of nothing, from inf - inf, or from 0 * inf; inf from a division "
        "by 0, from exp of a large number, or from numbers that grow in a loop. Print what you compute, step "
        "by step, and find the first of them."
    )
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
SELF_EXPLAINING = (wrong_type, wrong_dtype, changed_input)  # their message says what the mistake is


def one_rank_only(cases: list[Case], case: Case) -> str:
    """Return advice if the answer fails only for tokens (T, C), or only for tokens (B, T, C)."""
    ranks = [c.arguments[0].dim() if isinstance(c.arguments[0], Tensor) else 0 for c in cases]
    few, *more = sorted(set(ranks))
    if few < 2 or len(more) != 1:
        return ""
    rank = case.arguments[0].dim()
    for c, its in zip(cases, ranks, strict=True):
        lucky = its == rank and c.arguments[0].shape[-2] == 1  # T = 1 can come out right by accident
        if not lucky and c.is_right() == (its == rank):
            return ""
    short, long = "(T, C)", "(B, T, C)" if more[0] == 3 else "(B, n_head, T, C)"
    if rank == 2:
        return (
            f" It works for {long} and not for {short}, and `x` may be either. Count from the end: "
            "`x.shape[-2]`, `x[..., t, :]`, dim=-2 in place of dim=1, and dim=-1 in place of dim=2."
        )
    return (
        f" It works for {short} and not for {long}: there, `len(x)` and `x.shape[0]` are B. Count from the "
        "end: `x.shape[-2]`, `x[..., t, :]`, dim=-2 in place of dim=0, and dim=-1 in place of dim=1."
    )
