"""The engine: what an exercise is, how an answer is run, and how it is judged.

A wrong answer is compared with the exercise's named mistakes. If it did the same as one of them on every
input, the verdict can say what went wrong and why, and not only where.
"""

import ctypes
import inspect
import textwrap
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from attention_course.exercises import panel

TIME_LIMIT = 5.0  # seconds that one call of an answer may take


@dataclass(frozen=True)
class Mistake:
    """A wrong answer that people really give: its name, the function, and what to tell them."""

    name: str
    function: Callable
    message: str


@dataclass(frozen=True)
class Property:
    """A claim about every right answer. `holds(answer, *arguments)` says whether it is true for one.

    If only one mistake breaks it, `mistake` is its name and `message` what to tell people.
    """

    claim: str
    holds: Callable[..., bool]
    mistake: str | None = None
    message: str = ""


@dataclass(frozen=True)
class Exercise:
    """Everything that there is to know about one exercise.

    `draw_inputs(generator)` returns a list of argument tuples, small to large. `tolerance` is relative to
    the largest value of the target. `insight` is shown to who has passed: something worth knowing.
    """

    name: str
    task: str
    reference: Callable
    draw_inputs: Callable[[torch.Generator], list[tuple]]
    properties: tuple[Property, ...]
    mistakes: tuple[Mistake, ...]
    hints: tuple[str, ...]
    insight: str
    minutes: int
    difficulty: int
    tolerance: float = 1e-5


@dataclass(frozen=True)
class Verdict:
    """What `check` found. A notebook shows it as a panel; `details` is the HTML below its message."""

    exercise: str
    passed: bool
    mistake: str | None
    headline: str
    message: str
    details: str = ""

    def __repr__(self) -> str:
        return f"{self.exercise}: {self.headline}" + ("" if self.passed else f"\n{self.message}")

    def _repr_html_(self) -> str:
        sign = "✓" if self.passed else "○" if self.headline == NOT_TRIED else "✗"
        return panel.frame(self.exercise, sign, self.headline, panel.prose(self.message) + self.details)


NOT_TRIED = "not tried yet"
TRAINED_THROUGH = (
    "Training will go through this function: compute in torch from end to end, without `.detach()` or "
    "`torch.no_grad()`."
)


# Running an answer


@dataclass
class Outcome:
    """What one call did: the arguments as they are afterwards, and the value or the error."""

    arguments: tuple
    value: Any = None
    error: BaseException | None = None


class Hung(BaseException):
    """An answer took longer than TIME_LIMIT. Not an `Exception`, so that an answer does not catch it."""

    def __init__(self, arguments: tuple = (), cause: BaseException | None = None, stopped: bool = True):
        self.arguments, self.cause, self.stopped = arguments, cause, stopped


def call(function: Callable, arguments: tuple) -> Outcome:
    """Call `function` with clones of `arguments`. What it raises, even SystemExit, stays in the outcome.

    The value is detached, unless one of the arguments asks for its gradient.
    """
    outcome = Outcome(tuple(a.clone() if isinstance(a, Tensor) else a for a in arguments))
    with_gradient = any(isinstance(a, Tensor) and a.requires_grad for a in arguments)
    try:
        value = function(*outcome.arguments)
        outcome.value = value.detach() if isinstance(value, Tensor) and not with_gradient else value
    except Hung:
        raise
    except BaseException as error:
        outcome.error = error
    return outcome


def run(function: Callable, arguments: tuple) -> Outcome:
    """Call `function` with clones of `arguments` in a thread of its own, with gradients on.

    Raises:
        Hung: the call took longer than TIME_LIMIT. It has been stopped.
    """
    ended: list[Outcome | Hung] = []

    def work() -> None:
        try:
            ended.append(call(function, arguments))
        except Hung as hung:
            ended.append(hung)

    thread = threading.Thread(target=work, name="answer", daemon=True)
    thread.start()
    try:
        thread.join(TIME_LIMIT)
    finally:  # also when the learner interrupts the kernel
        stopped = stop(thread)
    if ended and isinstance(ended[0], Outcome):
        return ended[0]
    raise Hung(arguments, ended[0] if ended else None, stopped)


def stop(thread: threading.Thread) -> bool:
    """Raise Hung inside `thread` until it ends, for a second at most; return whether it ended.

    Python delivers it between two bytecodes: a loop ends, one long call into C does not.
    """
    for _ in range(20):
        if not thread.is_alive():
            break
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Hung))
        thread.join(0.05)
    return not thread.is_alive()


def code_of(function: Callable) -> CodeType | None:
    """Return the compiled body of the learner's own function; None for what has none, such as a module."""
    return getattr(inspect.unwrap(function), "__code__", None)


def line_of(error: BaseException | None, function: Callable) -> str:
    """Say in which line of the learner's own code `error` was raised; empty if that is not known."""
    code = code_of(function)
    frames = traceback.extract_tb(error.__traceback__) if error else []
    own = [frame for frame in frames if code and frame.filename == code.co_filename and frame.line]
    return f" It happened in line {own[-1].lineno}: `{own[-1].line}`." if own else ""


# Comparing values


def is_plain(value: Any) -> bool:
    """Say whether `value` is a tensor whose values can be read here: dense, and in main memory."""
    return isinstance(value, Tensor) and value.layout == torch.strided and value.device.type == "cpu"


def different(target: Tensor, yours: Tensor, tolerance: float) -> Tensor:
    """Mark the entries of `yours` that are not those of `target`: boolean, same shape; NaN equals NaN."""
    wide = torch.promote_types(yours.dtype, torch.float64)
    target, yours = target.to(wide), yours.to(wide)
    scale = max([1.0, *target.nan_to_num(0, 0, 0).abs().flatten().tolist()])
    return ~torch.isclose(yours, target, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


def close(target: Tensor, yours: Tensor) -> bool:
    """Say whether two tensors have one shape and the same values, up to rounding: for properties."""
    return target.shape == yours.shape and not different(target, yours, tolerance=1e-3).any()


def same(one: Outcome, other: Outcome, tolerance: float) -> bool:
    """Say whether two calls did the same: raised the same type of error, or returned equal tensors."""
    if one.error or other.error:
        return type(one.error) is type(other.error)
    if not (is_plain(one.value) and is_plain(other.value)) or one.value.shape != other.value.shape:
        return False
    return not different(one.value, other.value, tolerance).any()


# Gradients


def reached(output: Tensor, tensors: list[Tensor]) -> bool:
    """Say whether gradients of `output` would get to each of `tensors`.

    None is computed: that could fail for an answer that writes into a copy, and rightly so.
    """
    nodes, waiting = set(), [output.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in nodes:
            nodes.add(node)
            waiting += [before for before, _ in node.next_functions]
    return all(get_gradient_edge(tensor).node in nodes for tensor in tensors)


def not_detached(holds: Callable[..., bool]) -> Property:
    """Claim that gradients get through. `holds(answer, *arguments)` says whether they do for one input."""
    return Property(
        "Gradients reach all that was given: nothing was detached on the way.",
        holds,
        "detached",
        "The values are right, but gradients do not get back from them to all that was given. A gradient "
        "says how much one number moves with each entry, and training changes parameters by theirs. Cut off "
        "from it, they never change. Compute with the tensors as they are: `.detach()`, `.data`, `.item()`, "
        "`torch.no_grad()`, NumPy, and a copy in an `nn.Module` all cut.",
    )


def trained_through(reference: Callable) -> Property:
    """Claim that gradients get to each tensor of floats to which the reference sends one that is not 0."""

    def holds(answer, *arguments):
        given = [
            a.clone().requires_grad_() if isinstance(a, Tensor) and a.is_floating_point() else a
            for a in arguments
        ]
        floats = [a for a in given if isinstance(a, Tensor) and a.requires_grad]
        slopes = torch.autograd.grad(reference(*given).square().sum(), floats)
        needed = [tensor for tensor, slope in zip(floats, slopes, strict=True) if slope.any()]
        return reached(answer(*given), needed)

    return not_detached(holds)


# What can be wrong with one outcome. Each returns a message, or None.


@dataclass(frozen=True)
class Case:
    """One input: the exercise, the answer, its arguments, the target, and what the answer did."""

    exercise: Exercise
    function: Callable
    arguments: tuple
    target: Outcome
    outcome: Outcome

    def __str__(self) -> str:
        """Name the arguments: `x` of shape (2, 3), `k` = 4."""
        return ", ".join(
            f"`{name}` of shape {tuple(a.shape)}" if isinstance(a, Tensor) else f"`{name}` = {a}"
            for name, a in self.named_arguments()
        )

    def named_arguments(self) -> list[tuple[str, Any]]:
        """Pair the names of the parameters with the arguments, as drawn."""
        names = inspect.signature(self.exercise.reference).parameters
        return list(zip(names, self.arguments, strict=False))

    def is_right(self) -> bool:
        """Say whether the answer did what the reference did. Numbers are no booleans."""
        booleans = {getattr(o.value, "dtype", None) == torch.bool for o in (self.target, self.outcome)}
        return len(booleans) == 1 and same(self.target, self.outcome, self.exercise.tolerance)


def raised(case: Case) -> str | None:
    """It raised an error."""
    error = case.outcome.error
    if error is None:
        return None
    text = textwrap.shorten(str(error), 300)
    seen = f"Your function raised {type(error).__name__}" + (f": {text.rstrip('.')}." if text else ".")
    return f"{seen}{line_of(error, case.function)} The arguments: {case}."


def wrong_type(case: Case) -> str | None:
    """It returned no tensor."""
    value = case.outcome.value
    if is_plain(value):
        return None
    if value is None:
        return f"Your function returned None for {case}. Does every way through it end in a `return`?"
    if isinstance(value, tuple):
        return (
            f"Your function returned {len(value)} things, and one tensor is expected: the one that the task "
            "asks for. (Of what `attention` returns, `[0]` is the output; `torch.stack` joins tensors.)"
        )
    advice = "Make one with `torch.stack` or `torch.tensor`, or begin with `torch.zeros` and fill its rows."
    kind = f"{value.layout} tensor on {value.device}" if isinstance(value, Tensor) else type(value).__name__
    return f"Your function returned a {kind}, where a plain tensor is expected. {advice}"


def wrong_shape(case: Case) -> str | None:
    """The tensor has another shape."""
    yours, target = tuple(case.outcome.value.shape), tuple(case.target.value.shape)
    if yours == target:
        return None
    advice = "Which dimension does your sum or product run over, and which ones should stay?"
    return f"For {case} your result has shape {yours}, and the target has shape {target}. {advice}"


def wrong_dtype(case: Case) -> str | None:
    """The tensor has another dtype. Any floating one will do where no argument has one to follow."""
    yours, target = case.outcome.value.dtype, case.target.value.dtype
    given = any(isinstance(a, Tensor) and a.is_floating_point() for a in case.arguments)
    if yours == target or (not given and yours.is_floating_point and target.is_floating_point):
        return None
    advice = f"PyTorch rarely mixes the two in one product. Make the result with dtype {target}."
    return f"Your result has dtype {yours}, and the target has dtype {target}. {advice}"


def changed_input(case: Case) -> str | None:
    """It wrote into its argument."""
    for (name, before), after in zip(case.named_arguments(), case.outcome.arguments, strict=True):
        if isinstance(before, Tensor) and not torch.equal(before, after):
            why = f"The caller still holds `{name}`, and finds other numbers in it now."
            where = f"Look for an assignment to `{name}[...]` or a method that ends in `_`."
            return f"Your function changes its argument `{name}`. {why} {where} Write into a new tensor."
    return None


def not_finite(case: Case) -> str | None:
    """There is NaN or inf where the target has numbers."""
    bad = ~case.outcome.value.isfinite() & case.target.value.isfinite()
    if not bad.any():
        return None
    why = "NaN comes from 0/0, from the mean of nothing, or from inf - inf; inf from exp of a large number."
    return f"For {case}, {bad.sum()} of {bad.numel()} values are NaN or inf, and the target has none. {why}"


def wrong_values(case: Case) -> str | None:
    """The numbers differ."""
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
    """Say so if `case` is of the one kind of tokens, (T, C) or (B, T, C), for which nothing works."""
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


# Judging


def judge(exercise: Exercise, function: Any, seed: int | None = None) -> Verdict:
    """Run `function` on inputs drawn anew and say what came of it.

    Args:
        exercise: what it should do.
        function: the learner's answer.
        seed: of the inputs; a fresh one if left out.

    Raises:
        TypeError: `function` cannot be called.
    """
    if function is None or function is ...:
        return not_tried(exercise)
    if not callable(function):
        raise TypeError(
            f"check expects your function itself, but got a {type(function).__name__}. "
            f'Pass the function without calling it: check("{exercise.name}", my_function).'
        )
    generator = torch.Generator()
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed)
    inputs = exercise.draw_inputs(generator)
    try:
        return compare(exercise, function, inputs)
    except Hung as hung:
        case = Case(exercise, function, hung.arguments, Outcome(()), Outcome(()))
        seen = f"Your function was still running after {TIME_LIMIT:g} seconds"
        seen += f", for {case}." if hung.arguments else "."
        advice = "It was stopped. Which loop does not come to an end, and what should end it?"
        if not hung.stopped:
            advice = "It could not be stopped. Restart the kernel before you go on."
        message = f"{seen}{line_of(hung.cause, function)} {advice}"
        return Verdict(exercise.name, False, None, "not yet: it does not end", message)


def compare(exercise: Exercise, function: Callable, inputs: list[tuple]) -> Verdict:
    """Judge `function` on these inputs, the gravest problem first.

    Raises:
        Hung: a call took longer than TIME_LIMIT.
    """
    outcomes = [run(function, arguments) for arguments in inputs]
    if all(is_stub(function, outcome) for outcome in outcomes):
        if outcomes[0].value is None and not outcomes[0].error and has_body(function):
            message = "Your function returned None. Is the `return` missing?"
            return Verdict(exercise.name, False, None, NOT_TRIED, message)
        return not_tried(exercise)
    cases = [
        Case(exercise, function, arguments, call(exercise.reference, arguments), outcome)
        for arguments, outcome in zip(inputs, outcomes, strict=True)
    ]
    mistake = find_mistake(exercise, cases)
    if mistake:
        case = next(case for case in cases if not case.is_right() and not case.outcome.error)
        return mistaken(exercise, mistake.name, mistake.message, details(cases, case))
    for problem, headline in PROBLEMS.items():
        for case in cases:
            message = problem(case)
            if message:
                if problem in (raised, wrong_shape, not_finite, wrong_values):
                    message += one_rank_only(cases, case)
                return Verdict(
                    exercise.name, False, None, f"not yet: {headline}", message, details(cases, case)
                )
    claims = marks(cases)
    checklist = panel.checklist(claims)
    broken = [prop for prop, (_, holds) in zip(exercise.properties, claims, strict=True) if not holds]
    if broken and broken[0].mistake:
        return mistaken(exercise, broken[0].mistake, broken[0].message, checklist)
    if broken:
        seen = "On the inputs that were drawn, your values are right. On others this fails:"
        message = f"{seen} {broken[0].claim}"
        return Verdict(exercise.name, False, None, "not yet: a property fails", message, checklist)
    message = f"Your values equal the target on all {len(cases)} inputs, drawn anew for this check. "
    message += exercise.insight
    return Verdict(exercise.name, True, None, f"passed on {len(cases)} inputs", message, checklist)


def mistaken(exercise: Exercise, name: str, message: str, details: str) -> Verdict:
    """Tell people which mistake it is."""
    return Verdict(exercise.name, False, name, f"not yet: {name.replace('_', ' ')}", message, details)


def is_stub(function: Callable, outcome: Outcome) -> bool:
    """Say whether nothing has been written yet: NotImplementedError, None or `...`.

    PyTorch, too, raises that error. The function's own is one whose name stands in it.
    """
    if outcome.error:
        code = code_of(function)
        own = code is None or "NotImplementedError" in code.co_names
        return own and isinstance(outcome.error, NotImplementedError)
    return outcome.value is None or outcome.value is ...


def has_body(function: Callable) -> bool:
    """Say whether `function` names anything but its parameters: `pass`, `...` and a docstring do not."""
    code = code_of(function)
    if code is None:
        return False
    return bool(code.co_names) or code.co_nlocals > len(inspect.signature(function).parameters)


def not_tried(exercise: Exercise) -> Verdict:
    """Say what there is to do. The same text each time: it is stored in the notebook."""
    trained = " " + TRAINED_THROUGH if any(p.mistake == "detached" for p in exercise.properties) else ""
    message = (
        f"{exercise.task}{trained} About {exercise.minutes} minutes, difficulty {exercise.difficulty} of 5. "
        "Write the body, end it with a `return`, and run the cell again. "
        f"For a first step: `hint({exercise.name!r})`."
    )
    return Verdict(exercise.name, False, None, NOT_TRIED, message)


def find_mistake(exercise: Exercise, cases: list[Case]) -> Mistake | None:
    """Find the named mistake that did on every input what the answer did."""
    if all(case.is_right() or case.outcome.error for case in cases):
        return None
    for mistake in exercise.mistakes:
        if all(
            same(call(mistake.function, case.arguments), case.outcome, exercise.tolerance) for case in cases
        ):
            return mistake
    return None


def marks(cases: list[Case]) -> list[tuple[str, bool]]:
    """Pair each property's claim with whether it holds on every input.

    Raises:
        Hung: a call took longer than TIME_LIMIT.
    """

    def answer(*arguments):
        return run(cases[0].function, arguments).value  # None after an error, and so no claim holds

    def holds(prop: Property, case: Case) -> bool:
        try:
            return bool(prop.holds(answer, *case.arguments))
        except Exception:  # the answer has another type or shape here
            return False

    with torch.enable_grad():
        return [(p.claim, all(holds(p, case) for case in cases)) for p in cases[0].exercise.properties]


def details(cases: list[Case], case: Case) -> str:
    """Draw what lies below the message: the properties, and `case` with its target beside yours."""
    runs = not any(raised(c) or wrong_type(c) or wrong_shape(c) for c in cases)
    checklist = panel.checklist(marks(cases)) if runs else ""
    target, yours = case.target.value, case.outcome.error or case.outcome.value
    if isinstance(yours, Tensor) and not is_plain(yours):
        yours = yours.layout
    comparable = is_plain(yours) and yours.shape == target.shape
    marked = different(target, yours, case.exercise.tolerance) if comparable else None
    return checklist + panel.example(case.named_arguments(), target, yours, marked)
