"""Judging: compare an answer with the reference, and where it is wrong, with the known mistakes.

If an answer matches a mistake on every input, or a pair of mistakes, the feedback explains that mistake.
"""

import inspect
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from attention_course.apart import words
from attention_course.exercises import panel
from attention_course.exercises.comparing import comparable, different, is_plain, same, where_all_lie
from attention_course.exercises.exercise import Exercise, Mistake, Property
from attention_course.exercises.problems import (
    PROBLEMS,
    SELF_EXPLAINING,
    Case,
    not_finite,
    one_rank_only,
    raised,
    wrong_shape,
    wrong_type,
    wrong_values,
)
from attention_course.exercises.running import CheckTimeout, Outcome, Submission, call
from attention_course.files import printable
from attention_course.plots.card import frame

NOT_TRIED = "not tried yet"


@dataclass(frozen=True)
class Verdict:
    """What `check` found. A notebook shows it as a panel.

    Attributes:
        exercise: its name.
        passed: whether the answer is right.
        mistakes: names of the recognized mistakes, or of one of `SELF_EXPLAINING`; usually one or none.
        headline: the verdict in a few words.
        message: what was found, and what to do.
        details: HTML, shown below the message.
        remark: what comes next, and what was kept before.
        problem: why it is not kept; "" if it is.
        card: makes a widget of the panel's HTML.
    """

    exercise: str
    passed: bool
    mistakes: tuple[str, ...]
    headline: str
    message: str
    details: str = ""
    remark: str = ""
    problem: str = ""
    card: Callable[[str], panel.Card] | None = None

    @property
    def tried(self) -> bool:
        """Whether there was an answer, and not a stub."""
        return self.headline != NOT_TRIED

    @property
    def mistake(self) -> str | None:
        """The first of the mistakes, if there is one."""
        return self.mistakes[0] if self.mistakes else None

    def __repr__(self) -> str:
        lines = [f"{self.exercise}: {self.headline}", "" if self.passed else self.message, self.problem]
        return printable("\n".join(filter(None, lines)), keep="\n")

    def _repr_html_(self) -> str:
        sign = "✓" if self.passed else "✗" if self.tried else "○"
        remark = f"{self.remark} {self.problem}".strip()
        body = panel.prose(self.message) + self.details + (panel.prose(remark) if remark else "")
        return frame(self.exercise, sign, self.headline, body)

    def _repr_mimebundle_(self, **kwargs):
        page = self._repr_html_()
        live = self.card(page)._repr_mimebundle_(**kwargs) if self.card else None
        return (live or {}) | {"text/html": page, "text/plain": repr(self)}


class Trial:
    """The inputs of one check, the targets, and the outcomes of mistakes, computed lazily and cached."""

    def __init__(self, exercise: Exercise, seed: int):
        self.exercise, self._generator = exercise, torch.Generator().manual_seed(seed)
        self.inputs = exercise.draw_inputs(self._generator)
        self.targets = [call(exercise.reference, arguments) for arguments in self.inputs]
        self._done: dict[tuple[Callable, int], Outcome] = {}

    @cached_property
    def pairs(self) -> list[tuple[tuple, Outcome]]:
        """Each input, then one like it, with targets: tensors of the same shapes, and the same numbers."""
        drawn = zip(self.inputs, self.exercise.draw_inputs(self._generator), strict=True)
        alike = [
            (first, with_numbers_of(first, other)) for first, other in drawn if same_shapes(first, other)
        ]
        return [(each, call(self.exercise.reference, each)) for pair in alike for each in pair]

    def outcome(self, mistake: Mistake, i: int) -> Outcome:
        """Return the outcome of `mistake` on input i."""
        if (mistake.function, i) not in self._done:
            self._done[mistake.function, i] = call(mistake.function, self.inputs[i])
        return self._done[mistake.function, i]


def same_shapes(first: tuple, second: tuple) -> bool:
    """Return whether tensors at the same places have the same shapes."""
    pairs = zip(first, second, strict=True)
    return all(a.shape == b.shape for a, b in pairs if isinstance(a, Tensor) and isinstance(b, Tensor))


def with_numbers_of(first: tuple, second: tuple) -> tuple:
    """Return the second arguments, but for numbers, which are those of the first."""
    return tuple(a if isinstance(a, int | float) else b for a, b in zip(first, second, strict=True))


trial = lru_cache(maxsize=512)(Trial)


def judge(
    exercise: Exercise,
    function: object,
    seed: int | None = None,
    guard: Callable[[tuple], AbstractContextManager] = nullcontext,
) -> Verdict:
    """Run `function` on random inputs and return the verdict.

    Args:
        exercise: the exercise.
        function: the learner's answer.
        seed: of the inputs; a random one if left out.
        guard: see `Submission`.

    Raises:
        TypeError: `function` is not callable.
    """
    if function is None or function is ...:
        return not_tried(exercise)
    if not callable(function):
        raise TypeError(
            f"check expects your function itself, but got a {type(function).__name__}. "
            f'Pass the function without calling it: check("{exercise.name}", my_function).'
        )
    drawn = trial(exercise, torch.Generator().seed() if seed is None else seed)
    if exercise.judge:
        return exercise.judge(exercise, function, *drawn.inputs[0], guard)
    answer = Submission(function, guard)
    try:
        return compare(drawn, answer)
    except CheckTimeout:
        message = (
            f"{answer.calls} calls of your function took {answer.seconds:.0f} seconds, with more to come: "
            "the check gave up. On inputs this small, a call takes a few milliseconds. "
            "What does yours compute more often than it needs to?"
        )
        return Verdict(exercise.name, False, (), "not yet: it takes too long", message)


def compare(drawn: Trial, answer: Submission) -> Verdict:
    """Judge an answer on the inputs of a trial, the most serious problem first.

    Raises:
        CheckTimeout: see `Submission.run`.
    """
    exercise = drawn.exercise
    outcomes = [answer.run(arguments) for arguments in drawn.inputs]
    if all(is_stub(answer, outcome) for outcome in outcomes):
        if outcomes[0].value is None and not outcomes[0].error and has_body(answer):
            message = "Your function returned None. Is the `return` missing?"
            return Verdict(exercise.name, False, (), NOT_TRIED, message)
        return not_tried(exercise)
    cases = [
        Case(exercise, answer, arguments, target, outcome)
        for arguments, target, outcome in zip(drawn.inputs, drawn.targets, outcomes, strict=True)
    ]
    return (
        named(drawn, cases)
        or unnamed(cases)
        or broken_property(cases)
        or kept_between_calls(drawn, cases)
        or forbidden_call(cases)
        or passed(cases)
    )


def named(drawn: Trial, cases: list[Case]) -> Verdict | None:
    """Return the verdict for a known mistake, if there is one."""
    found = recognize(drawn, cases)
    if found is None:
        return None
    names, message = found
    wrong = [case for case in cases if not case.is_right()]
    case = next((case for case in wrong if not case.outcome.error), wrong[0])
    if error := raised(case):
        message = f"{error} {message}"
    return mistaken(drawn.exercise, names, message, details(cases, case))


def recognize(drawn: Trial, cases: list[Case]) -> tuple[tuple[str, ...], str] | None:
    """Find the mistake that matches the answer: one, a pair, or one with a different first or last row.

    Where all that is wrong is an error, its words have to be those of the mistake's.

    Returns:
        The names of the mistakes, and the feedback.
    """
    exercise = drawn.exercise
    if all(case.is_right() for case in cases):
        return None
    wrong_first = sorted(range(len(cases)), key=lambda i: cases[i].is_right())
    errors_alone = all(case.is_right() or case.outcome.error for case in cases)
    alone = errors_alone or all_one_number(cases)  # matches many pairs, and is evidence for none
    for mistake in exercise.mistakes if alone else (*exercise.mistakes, *exercise.pairs):
        outcomes = ((drawn.outcome(mistake, i), cases[i].outcome) for i in wrong_first)
        if all(
            same(theirs, yours, exercise.tolerance)
            and not (errors_alone and words(theirs.error) != words(yours.error))
            for theirs, yours in outcomes
        ):
            return mistake.names, mistake.message
    if alone or min(case.target.value.dim() for case in cases) < 2:
        return None
    for mistake in exercise.mistakes:
        place = differing_place((drawn.outcome(mistake, i) for i in range(len(cases))), cases)
        if place and sum(is_wrong_elsewhere(case, place) for case in cases) > 1:
            name = place_name(place, cases[0].target.value.dim())
            seen = f"Except for {name}, your result is that of a known mistake."
            return mistake.names, f"{seen} {mistake.message}"
    return None


def differing_place(theirs: Iterable[Outcome], cases: list[Case]) -> tuple[int, int] | None:
    """Find a first or last row (column, ...), the same in all inputs, that contains every difference.

    Returns:
        The negative dimension, and 0 or -1; None if there is no such place.
    """
    rank = min(case.target.value.dim() for case in cases)
    places = {(dim, index) for dim in range(-rank, 0) for index in (0, -1)}
    for other, case in zip(theirs, cases, strict=False):
        if not same(other, case.outcome, case.exercise.tolerance):
            if not comparable(other, case.outcome):
                return None
            places &= where_all_lie(different(other.value, case.outcome.value, case.exercise.tolerance))
            if not places:
                return None
    return min(places, key=lambda place: (place[0] != -2, -place[1]), default=None)  # prefer the first row


def all_one_number(cases: list[Case]) -> bool:
    """Return whether the answer returned the same number, or NaN, everywhere."""
    values = [case.outcome.value for case in cases]
    if not all(is_plain(value) and value.numel() < 10**6 for value in values):
        return False
    return len({str(number + 0) for value in values for number in value.flatten().tolist()}) < 2


def is_wrong_elsewhere(case: Case, place: tuple[int, int]) -> bool:
    """Return whether the answer differs from the target outside of a place."""
    if case.outcome.error or not comparable(case.target, case.outcome):
        return False
    wrong = different(case.target.value, case.outcome.value, case.exercise.tolerance)
    wrong.select(*place).fill_(False)
    return bool(wrong.any())


def place_name(place: tuple[int, int], dims: int) -> str:
    """Name a place in a result with `dims` dimensions: row 0, or the last column."""
    dim, index = place
    kind = {-1: "column" if dims > 1 else "entry", -2: "row"}.get(dim, f"slice of dim {dim}")
    return f"the last {kind}" if index == -1 else f"the first {kind}" if dim < -2 else f"{kind} 0"


def unnamed(cases: list[Case]) -> Verdict | None:
    """Return the verdict for a problem that is not a known mistake, if there is one."""
    exercise = cases[0].exercise
    for problem, headline in PROBLEMS.items():
        for case in cases:
            message = problem(case)
            if not message:
                continue
            if problem in (raised, wrong_shape, not_finite, wrong_values):
                message += one_rank_only(cases, case)
            if problem in (not_finite, wrong_values):
                message += right_but_for(cases)
            names = (problem.__name__,) if problem in SELF_EXPLAINING else ()
            return Verdict(exercise.name, False, names, f"not yet: {headline}", message, details(cases, case))
    return None


def right_but_for(cases: list[Case]) -> str:
    """Return a sentence if only the first or the last row (column, ...) is wrong, in every input."""
    place = differing_place([case.target for case in cases], cases)
    sizes = [case.target.value.shape[place[0]] for case in cases] if place else []
    if place is None or sum(size > 1 for size in sizes) < 2:
        return ""
    return f" Everything is right except {place_name(place, cases[0].target.value.dim())}."


def broken_property(cases: list[Case]) -> Verdict | None:
    """Return the verdict for right values that violate a property, if there is one."""
    exercise, claims = cases[0].exercise, marks(cases)
    checklist = panel.checklist(claims)
    for prop, (claim, holds) in zip(exercise.properties, claims, strict=True):
        if not holds and prop.mistake:
            return mistaken(exercise, (prop.mistake,), prop.message, checklist)
        if not holds:
            seen = "On the inputs that were drawn, your values are right. On others this fails:"
            message = f"{seen} {claim}"
            return Verdict(exercise.name, False, (), "not yet: a property fails", message, checklist)
    return None


def kept_between_calls(drawn: Trial, cases: list[Case]) -> Verdict | None:
    """Return the verdict if values of the same shapes as before give something wrong, or change a result.

    Raises:
        CheckTimeout: see `Submission.run`.
    """
    answer, again = cases[0].answer, []
    for arguments, target in drawn.pairs:
        again.append(case := Case(drawn.exercise, answer, arguments, target, answer.run(arguments)))
        if not case.is_right():
            seen = raised(case) or f"For {case} your result is wrong."
            message = (
                "On the first inputs your values are right. Called again with other values of the same "
                f"shapes, they are not. {seen} Is your function wrong for only some values? Or does it keep "
                "something between calls, such as a mask or a result? Compute everything from the arguments, "
                "in each call."
            )
            headline = "not yet: wrong when called again"
            return Verdict(drawn.exercise.name, False, (), headline, message, details([case], case))
    if not all(case.is_right() for case in [*cases, *again]):
        message = (
            "Your values are right, but a later call writes over the tensor that an earlier one returned. "
            "Make a new tensor in each call."
        )
        headline = "not yet: it writes over an earlier result"
        return Verdict(drawn.exercise.name, False, (), headline, message)
    return None


def forbidden_call(cases: list[Case]) -> Verdict | None:
    """Return the verdict for a call of a forbidden function, if there is one."""
    exercise = cases[0].exercise
    if not exercise.forbidden:
        return None
    called = set().union(*(case.answer.called(case.arguments) for case in cases))
    found = called & set(exercise.forbidden)
    if not found:
        return None
    message = f"Your values are right, and your function calls `{min(found)}`. The task is to do without it."
    return Verdict(exercise.name, False, (), f"not yet: it calls {min(found)}", message)


def passed(cases: list[Case]) -> Verdict:
    """Return the verdict for a correct answer."""
    exercise = cases[0].exercise
    message = f"Your values equal the target on all {len(cases)} inputs, new random ones for this check. "
    checklist = panel.checklist([(prop.claim, True) for prop in exercise.properties])
    return Verdict(
        exercise.name, True, (), f"passed on {len(cases)} inputs", message + exercise.insight, checklist
    )


def mistaken(exercise: Exercise, names: tuple[str, ...], message: str, details: str) -> Verdict:
    """Return the verdict for one or two known mistakes."""
    headline = ", and ".join(name.replace("_", " ") for name in names)
    return Verdict(exercise.name, False, names, f"not yet: {headline}", message, details)


def is_stub(answer: Submission, outcome: Outcome) -> bool:
    """Return whether the answer is still a stub: NotImplementedError, None or `...`.

    PyTorch raises that error too; the function's own is one that its code names.
    """
    if outcome.error:
        code = answer.code
        own = code is None or "NotImplementedError" in code.co_names
        return own and isinstance(outcome.error, NotImplementedError)
    return outcome.value is None or outcome.value is ...


def has_body(answer: Submission) -> bool:
    """Return whether the function names anything but its parameters: `pass`, `...` and a docstring do not."""
    code = answer.code
    if code is None:
        return False
    return bool(code.co_names) or code.co_nlocals > len(inspect.signature(answer.function).parameters)


def not_tried(exercise: Exercise) -> Verdict:
    """Return the verdict for a stub, always the same text: it is stored in the notebook."""
    return Verdict(exercise.name, False, (), NOT_TRIED, exercise.begin)


def is_compiled(function: object) -> bool:
    """Return whether torch.compile, or a function of torch.jit, made it."""
    made = torch.jit.ScriptFunction | torch.jit.ScriptModule
    compiled = inspect.getattr_static(function, "_torchdynamo_orig_callable", None)  # runs no __getattr__
    return issubclass(type(function), made) or compiled is not None  # asks for no __class__


def not_compiled(exercise: Exercise) -> Verdict:
    """Return the verdict for an answer that torch has compiled."""
    message = "Your function is a compiled one. Pass the function without torch.compile or torch.jit."
    return Verdict(exercise.name, False, (), "not yet: it is compiled", message)


def not_copied(exercise: Exercise, error: BaseException) -> Verdict:
    """Return the verdict for an answer that cannot be pickled or unpickled."""
    reason = words(error) or type(error).__name__
    message = (
        f"Your answer runs in a process of its own, and cannot be copied to it: {reason}. Does it use "
        "an open file, a lock, or a generator from outside of it? Make that inside of your function."
    )
    return Verdict(exercise.name, False, (), "not yet: it cannot be copied", message)


def marks(cases: list[Case]) -> list[tuple[str, bool]]:
    """Return each property's claim, and whether it holds on every input.

    Raises:
        CheckTimeout: see `Submission.run`.
    """

    def answer(*arguments):
        return cases[0].answer.run(arguments).value  # None after an error, so that no claim holds

    def holds(prop: Property, case: Case) -> bool:
        try:
            return bool(prop.holds(answer, *case.arguments))
        except Exception:  # the answer has another type or shape here
            return False

    with torch.enable_grad():
        return [(p.claim, all(holds(p, case) for case in cases)) for p in cases[0].exercise.properties]


def details(cases: list[Case], case: Case) -> str:
    """Render the properties, and `case` with its target beside yours, for below the message."""
    runs = not any(raised(c) or wrong_type(c) or wrong_shape(c) for c in cases)
    checklist = panel.checklist(marks(cases)) if runs else ""
    target, yours = case.target.value, case.outcome.error or case.outcome.value
    if isinstance(yours, Tensor) and not is_plain(yours):
        yours = yours.layout
    marked = None
    if is_plain(yours) and yours.shape == target.shape:
        marked = different(target, yours, case.exercise.tolerance)
    return checklist + panel.example(case.named_arguments(), target, yours, marked)
