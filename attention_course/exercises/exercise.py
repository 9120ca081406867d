"""An exercise: a reference, inputs, properties, and mistakes that are patches of the reference.

The code of a rung's exercises is in its module, their texts in the TOML file beside it. A mistake is the
reference with a few strings replaced, so two mistakes in different places can be combined.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import combinations
from pathlib import Path
from types import FunctionType

import torch

from attention_course.ladder import RUNGS, read_table
from attention_course.patching import Edit, replaced, touching

SHARED_MESSAGES: dict[str, str] = read_table(Path(__file__).parent / "shared_messages.toml")


@dataclass(frozen=True, eq=False, repr=False)
class Mistake:
    """A common wrong answer.

    Attributes:
        names: the same wherever the mistake comes up; two for a pair of mistakes.
        message: the feedback.
        function: the wrong answer.
        edits: the patch of the reference; empty if the mistake is a separate function.
    """

    names: tuple[str, ...]
    message: str
    function: Callable
    edits: tuple[Edit, ...] = ()

    def __repr__(self) -> str:
        return f"<Mistake {' and '.join(self.names)}>"


@dataclass(frozen=True, eq=False)
class Property:
    """A claim about every correct answer. `holds(answer, *arguments)` tests it on one input.

    If only one mistake violates it, `mistake` is its name, and `message` the feedback, from the TOML file.
    """

    claim: str
    holds: Callable[..., bool]
    mistake: str | None = None
    message: str = ""


@dataclass(frozen=True, eq=False, repr=False)
class Exercise:
    """An exercise, made by `exercise`.

    Attributes:
        name: of the exercise, and of its table in the TOML file.
        task: what to write.
        reference: the correct answer that others are compared with.
        draw_inputs: returns a list of argument tuples, small to large.
        properties: claims that hold for every correct answer.
        mistakes: common wrong answers; the first match is reported.
        hints: each more explicit than the one before.
        insight: shown after passing: something worth knowing.
        minutes: estimated time.
        difficulty: from 1 to 5.
        tolerance: relative to the largest value of the target.
        forbidden: names of functions that an answer may not call.
        gaps: the pieces of the reference that its fill leaves out; chosen by a program if there are none.
        begin: what to do first, said of a stub.
        judge: returns the verdict on an answer that no comparison with the reference can give; called with
            the exercise, the answer, the inputs, and the guard of `judging.judge`.
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
    forbidden: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    begin: str = "Write the body, end it with a `return`, and run the cell again."
    judge: Callable | None = None

    def __repr__(self) -> str:  # a verbose traceback shows a table of all exercises
        return f"<Exercise {self.name}>"

    @cached_property
    def pairs(self) -> tuple[Mistake, ...]:
        """All pairs of mistakes whose patches do not overlap."""
        found = []
        _, body = source_of(unwrapped(self.reference))
        for one, other in combinations([m for m in self.mistakes if m.edits], 2):
            edits = one.edits + other.edits
            if one.names != other.names and not touching(body, edits):
                names = one.names + other.names
                message = f"Two things went wrong. First: {one.message} Second: {other.message}"
                found.append(Mistake(names, message, patched(self.reference, edits), edits))
        return tuple(found)

    def compile(self) -> None:
        """Compile all mistakes and pairs, ahead of their first call."""
        for mistake in (*self.mistakes, *self.pairs):
            if isinstance(mistake.function, Patched):
                _ = mistake.function.compiled


def exercise(
    module: str,
    reference: Callable,
    draw_inputs: Callable[[torch.Generator], list[tuple]],
    properties: tuple[Property, ...],
    functions: tuple[Callable, ...] = (),
    judge: Callable | None = None,
) -> Exercise:
    """Read the exercise named after its reference from the TOML file beside `module`.

    Args:
        module: `__name__` of the rung's module.
        reference: see `Exercise`, as the next two.
        draw_inputs: see there.
        properties: see there.
        functions: mistakes that are not patches, each named after its mistake.
        judge: see `Exercise`.
    """
    name = reference.__name__
    (rung,) = [rung for rung in RUNGS if rung.stem == module.split(".")[-2]]
    entry = rung.table("exercises.toml")[name]
    by_name = {function.__name__: function for function in functions}
    tables = entry.pop("mistakes", {})
    messages = SHARED_MESSAGES | {
        mistake: table["message"] for mistake, table in tables.items() if "message" in table
    }
    of_properties = {prop.mistake for prop in properties if prop.mistake}
    if silent := (tables.keys() | of_properties) - messages.keys():
        raise ValueError(
            f"{name}: {', '.join(silent)} has no message, neither here nor in shared_messages.toml."
        )

    mistakes = []
    for mistake, table in tables.items():
        message, patches = messages[mistake], table.get("patches", [])
        if mistake in of_properties:
            continue
        if mistake in by_name:
            mistakes.append(Mistake((mistake,), message, by_name.pop(mistake)))
        elif not patches:
            raise ValueError(
                f"{name}: {mistake} has no patches in the TOML file, and no function has this name."
            )
        for patch in patches:
            edits = tuple(patch.items())
            mistakes.append(Mistake((mistake,), message, patched(reference, edits), edits))
    if by_name:
        raise ValueError(f"{name}: no mistake in the TOML file is called {', '.join(by_name)}.")
    hints, forbidden, gaps = (tuple(entry.pop(key, ())) for key in ("hints", "forbidden", "gaps"))
    return Exercise(
        name=name,
        reference=reference,
        draw_inputs=draw_inputs,
        properties=tuple(replace(p, message=messages[p.mistake]) if p.mistake else p for p in properties),
        mistakes=tuple(mistakes),
        hints=hints,
        forbidden=forbidden,
        gaps=gaps,
        judge=judge,
        **entry,
    )


def undocumented(function: FunctionType) -> str:
    """Return the source of a function without its docstring."""
    source = textwrap.dedent(inspect.getsource(function))
    tree = ast.parse(source).body[0]
    assert isinstance(tree, ast.FunctionDef)
    if ast.get_docstring(tree) is None:
        return source
    lines = source.splitlines(keepends=True)
    above, below = lines[: tree.body[0].lineno - 1], lines[tree.body[0].end_lineno :]
    return "".join(above) + "".join(below).lstrip("\n")


# Patches


@cache
def source_of(function: FunctionType) -> tuple[str, str]:
    """Return the signature of a function, without annotations, and its body, without the docstring."""
    source = undocumented(function)
    tree = ast.parse(source).body[0]
    assert isinstance(tree, ast.FunctionDef)
    for argument in ast.walk(tree.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    body = source.splitlines(keepends=True)[tree.body[0].lineno - 1 :]
    return f"def {tree.name}({ast.unparse(tree.args)}):\n", "".join(body)


def patched(reference: Callable, edits: tuple[Edit, ...]) -> "Patched":
    """Return the reference with strings of its body replaced.

    The replacement may use the globals of the reference's module.

    Raises:
        ValueError: a string to replace does not occur exactly once in the body.
    """
    function = unwrapped(reference)
    head, body = source_of(function)
    body = replaced(body, edits, function.__name__)
    keywords = reference.keywords if isinstance(reference, partial) else {}
    return Patched(function.__name__, head + body, function.__globals__, keywords)


@dataclass(frozen=True, eq=False)
class Patched:
    """A function that is written anew, and compiled when it is first called."""

    name: str
    source: str
    scope: dict[str, object]
    keywords: dict[str, object]

    def __call__(self, *arguments):
        """Call the function."""
        return self.compiled(*arguments, **self.keywords)

    @cached_property
    def compiled(self) -> Callable:
        """The function itself."""
        made: dict[str, Callable] = {}
        exec(compile(self.source, f"<{self.name}, patched>", "exec"), self.scope, made)
        return made[self.name]


def unwrapped(reference: Callable) -> FunctionType:
    """Return the underlying function, without `functools.partial` and decorators."""
    return inspect.unwrap(reference.func if isinstance(reference, partial) else reference)
