"""Make the fills of the exercises, with a verdict for all that a reader can choose: `make fills`.

A fill is the code of an exercise with gaps, or as lines in disorder. Gaps and wrong choices come from the
mistakes in the exercise's TOML file (gaps.py). Every combination of choices is judged here, by the judge of
`check`, so that a page tells the verdict at once and without Python.
"""

import ast
import hashlib
import itertools
import json
import linecache
import re
import signal
import sys
import textwrap
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import cells
import torch
from gaps import code_of, gaps_of, lines_of
from torch import Tensor

from attention_course.exercises.comparing import is_plain, same
from attention_course.exercises.exercise import (
    SHARED_MESSAGES,
    Exercise,
    Mistake,
    Patched,
    patched,
    unwrapped,
)
from attention_course.exercises.judging import Trial, judge, trial
from attention_course.exercises.problems import named
from attention_course.exercises.running import Outcome, call
from attention_course.ladder import ORDER, RUNGS, Rung

SEED = 0
SECONDS = 10  # for the verdict on one combination
SHOWN = 24  # numbers of the result that a reader sees


class Puzzle:
    """Places in a code with choices, and what the judge says of each combination of them.

    Args:
        exercise: whose code it is.
        kind: "gaps" or "blocks".
    """

    def __init__(self, exercise: Exercise, kind: str):
        self.exercise, self.code = exercise, code_of(exercise)
        places = gaps_of(exercise) if kind == "gaps" else lines_of(exercise)
        self._put([place.span for place in places], [place.wrong for place in places])
        for i, text, chosen in list(self.singles()):
            if not verdict_of(self, chosen)[0]:  # right, or without a name: it teaches nothing
                self.wrong[i] = {name: each for name, each in self.wrong[i].items() if each != text}
        if kind == "gaps":
            left = [pair for pair in zip(self.spans, self.wrong, strict=True) if pair[1]]
            self._put([span for span, _ in left], [wrong for _, wrong in left])
        self.choices = [
            in_disorder([right, *wrong.values()], exercise.name)
            for right, wrong in zip(self.rights, self.wrong, strict=True)
        ]

    def _put(self, spans: list[tuple[int, int]], wrong: list[dict[str, str]]) -> None:
        self.spans, self.wrong = spans, wrong
        self.rights = [self.code[slice(*span)] for span in spans]

    def singles(self) -> Iterator[tuple[int, str, tuple[str, ...]]]:
        """Yield the place of each wrong choice, its text, and all choices if no other is wrong."""
        for i, wrong in enumerate(self.wrong):
            for text in wrong.values():
                yield i, text, (*self.rights[:i], text, *self.rights[i + 1 :])

    def function(self, chosen: tuple[str, ...]) -> Callable:
        """Return the code with these choices in it, as a function."""
        pieces = itertools.chain(*zip(parts_of(self), (*chosen, ""), strict=True))
        return compiled(self.exercise, "".join(pieces))


def compiled(exercise: Exercise, source: str) -> Callable:
    """Return code that is like the reference of an exercise as a function."""
    reference = unwrapped(exercise.reference)
    keywords = getattr(exercise.reference, "keywords", {})
    made = Patched(reference.__name__, source, reference.__globals__, keywords).compiled
    return partial(made, **keywords) if keywords else made


def in_disorder(texts: list[str], name: str) -> list[str]:
    """Put choices into an order that tells nothing of which is right, the same each time."""
    return sorted(texts, key=lambda text: hashlib.sha256(f"{name} {text}".encode()).digest())


class TooLongError(Exception):
    """A combination of choices does not end."""


def verdict_of(puzzle: Puzzle, chosen: tuple[str, ...]) -> list[Any]:
    """Return the mistakes, the headline and the message of the judge for a combination."""
    return judgement(puzzle.exercise, puzzle.function(chosen))


def judgement(exercise: Exercise, function: Callable) -> list[Any]:
    """Return the mistakes, the headline and the message of the judge; a wrong function may run for ever."""

    def stop(*_: object) -> None:
        raise TooLongError

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        verdict = judge(exercise, function, SEED)
    except TooLongError:
        return [[], "not yet: it does not end", "Your function does not end."]
    finally:
        signal.alarm(0)
    return [None, "", ""] if verdict.passed else [list(verdict.mistakes), verdict.headline, verdict.message]


def judged(puzzle: Puzzle, trial: Trial, shown: int) -> dict[str, Any]:
    """Return the choices of a puzzle, and for each combination its verdict and its result, by their numbers.

    The judge names two mistakes at most, and can take two for two others with the same result. Where it does
    not name what was chosen, the first wrong choice gets the word.
    """
    singles = {(i, text): verdict_of(puzzle, chosen) for i, text, chosen in puzzle.singles()}
    verdicts, results = Numbered(), Numbered()
    table = []
    for chosen in itertools.product(*puzzle.choices):
        mistakes, headline, message = verdict_of(puzzle, chosen)
        wrong = [singles[pair] for pair in enumerate(chosen) if pair in singles]
        if mistakes is not None and not (
            mistakes and {*mistakes} <= {name for names, _, _ in wrong for name in names}
        ):
            mistakes, headline, message = wrong[0]
            message = f"More than one of your choices is wrong. The first: {message}"
        torch.manual_seed(0)  # a wrong choice may make a layer, whose matrix is drawn
        outcome = call(puzzle.function(chosen), trial.inputs[shown])
        verdict = verdicts.number([mistakes, headline, message])
        table.append([verdict, results.number(shown_outcome(outcome))])
    return {
        "choices": puzzle.choices,
        "right": [choices.index(right) for choices, right in zip(puzzle.choices, puzzle.rights, strict=True)],
        "table": table,
        "verdicts": verdicts.values,
        "results": results.values,
    }


class Numbered:
    """Different values, each with its number."""

    def __init__(self):
        self.values: list[Any] = []

    def number(self, value: Any) -> int:
        """Return the number of a value, a new one for a new value."""
        if value not in self.values:
            self.values.append(value)
        return self.values.index(value)


def shown_outcome(outcome: Outcome) -> dict[str, Any]:
    """Return a result as a page shows it."""
    if outcome.error:
        return {"error": type(outcome.error).__name__}
    return shown_value(outcome.value)


def shown_value(value: object) -> dict[str, Any]:
    """Return a tensor as rows of texts, at most two dimensions of it; anything else by its repr."""
    if not is_plain(value) or value.numel() == 0 or value.numel() > 4 * SHOWN:
        shape = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
        if " at 0x" in shape:  # where it lies in memory, which says nothing
            shape = f"a {type(value).__name__}"
        return {"text": shape if len(shape) < 40 else type(value).__name__}
    rows = value if value.numel() <= SHOWN else value[(0,) * max(0, value.dim() - 2)]
    rows = rows.reshape(-1, rows.shape[-1] if rows.dim() else 1)
    return {
        "shape": list(value.shape),
        "rows": [[shown_number(number) for number in row] for row in rows.tolist()],
    }


def shown_number(number: float) -> str:
    """Return three digits of a number, and of a year all four."""
    return f"{number + 0:{'.0f' if 999.5 <= abs(number) < 100_000 else '.3g'}}"


def best_input(trial: Trial, puzzle: Puzzle) -> int:
    """Return the place of the smallest input on which the most of the single wrong choices show."""
    functions = [puzzle.function(chosen) for _, _, chosen in puzzle.singles()]

    def differing(i: int) -> tuple[bool, int, int]:
        target = trial.targets[i]
        size = target.value.numel() if isinstance(target.value, Tensor) else 1
        outcomes = [call(function, trial.inputs[i]) for function in functions]
        seen = sum(not same(target, outcome, trial.exercise.tolerance) for outcome in outcomes)
        return (
            size <= SHOWN and (not isinstance(target.value, Tensor) or target.value.dim() <= 2),
            seen,
            -size,
        )

    return max(range(len(trial.inputs)), key=differing)


def parts_of(puzzle: Puzzle) -> list[str]:
    """Return the code around the gaps."""
    ends = [0, *(end for _, end in puzzle.spans)]
    starts = [*(start for start, _ in puzzle.spans), len(puzzle.code)]
    return [puzzle.code[end:start] for end, start in zip(ends, starts, strict=True)]


def make(exercise: Exercise) -> dict[str, Any]:
    """Make the fill of an exercise."""
    gaps = Puzzle(exercise, "gaps")
    drawn = trial(exercise, SEED)
    shown = best_input(drawn, gaps)
    made: dict[str, Any] = {
        "given": {name: shown_value(value) for name, value in named(exercise, drawn.inputs[shown])},
        "target": shown_outcome(drawn.targets[shown]),
        "gaps": {"parts": parts_of(gaps)} | judged(gaps, drawn, shown),
    }
    lines = lines_of(exercise)
    if len(lines) > 2:
        made["blocks"] = judged(Puzzle(exercise, "blocks"), drawn, shown) | {
            "head": code_of(exercise).partition("\n")[0],
            "lines": [{"indent": line.indent, "parent": line.parent, "after": line.after} for line in lines],
        }
    return made


def step(rung: Rung, name: str, entry: dict[str, Any]) -> Exercise:
    """Return a step of a lesson as an exercise: a cell of the notebook, as the body of a function.

    Args:
        rung: whose notebook it is.
        name: of the cell.
        entry: of the rung's `fills.toml`: `given`, the names that the cell uses, with code for their values;
            `result`, if that is not what the cell shows; `mistakes`, as in `exercises.toml`.
    """
    lines = [line for line in cells.code_of(rung.stem, name).splitlines() if not line.startswith("#")]
    last = lines.pop() if isinstance(ast.parse("\n".join(lines)).body[-1], ast.Expr) else ""
    lines.append(f"return {entry.get('result', last)}")
    source = f"def {name}({', '.join(entry['given'])}):\n" + textwrap.indent("\n".join(lines), " " * 4) + "\n"
    file = f"<{name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    scope: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
    exec(compile(source, file, "exec"), scope)
    given = dict(scope)
    for key, code in entry["given"].items():
        given[key] = eval(code, given)
    mistakes = [
        Mistake(
            (mistake,), table.get("message") or SHARED_MESSAGES[mistake], patched(scope[name], edits), edits
        )
        for mistake, table in entry["mistakes"].items()
        for edits in (tuple(patch.items()) for patch in table["patches"])
    ]
    arguments = tuple(given[key] for key in entry["given"])
    gaps = tuple(entry.get("gaps", ()))
    texts: dict[str, Any] = {"hints": (), "insight": entry["insight"], "minutes": 1, "difficulty": 1}
    return Exercise(name, "", scope[name], lambda _: [arguments], (), tuple(mistakes), gaps=gaps, **texts)


def sources(rung: Rung) -> list[Exercise]:
    """Return what the fills of a rung are made from: steps, and exercises that the usual judge judges."""
    exercises = [each for each in rung.module("exercises").EXERCISES if not each.judge]
    return [*(step(rung, name, entry) for name, entry in rung.steps.items()), *exercises]


def as_cell(made: dict[str, Any]) -> None:
    """Show the fill of a step as a cell, without the function around it."""
    parts = made["gaps"]["parts"]
    parts[0] = parts[0].partition("\n")[2].removeprefix(" " * 4)
    made["gaps"]["parts"] = [
        re.sub(r"^return ", "", part.replace("\n    ", "\n"), flags=re.M) for part in parts
    ]
    if "blocks" in made:
        made["blocks"]["head"] = ""
        made["blocks"]["choices"][-1] = [
            text.removeprefix("return ") for text in made["blocks"]["choices"][-1]
        ]


def main(names: list[str]) -> None:
    """Make the fills of the named rungs, or of all."""
    for rung in RUNGS:
        if names and rung.stem not in names:
            continue
        made = {each.name: make(each) for each in sources(rung)}
        for name in rung.steps:
            as_cell(made[name])
        text = json.dumps(made, ensure_ascii=False, separators=(",", ":"))
        text = re.sub(
            r"\brung (\d+)", lambda found: f"rung {{{ORDER[int(found[1]) - 1]}}}", text
        )  # it may move
        (rung.folder / "fills.json").write_text(text + "\n", encoding="utf-8")
        print(f"{rung.stem}: {len(made)} fills", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1:])
