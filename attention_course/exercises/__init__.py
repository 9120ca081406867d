"""Self-checking exercises: `check`, `hint` and `solution`, each called with the name of an exercise.

In the folder of a rung, `exercises.py` holds references, inputs and properties, and `exercises.toml` the
texts, and the mistakes as patches of the references. `running` runs an answer, `judging` judges it, `panel`
displays the result, and `worker` has all of it done in a separate process, in `process`.
"""

from dataclasses import replace
from functools import partial
from operator import index

from attention_course.checks import check_sizes
from attention_course.exercises.exercise import SHARED_MESSAGES, Exercise, Mistake, Property
from attention_course.exercises.judging import Verdict
from attention_course.exercises.panel import Card, Hint, Solution, hints_given, hints_of
from attention_course.exercises.worker import judge_in_subprocess
from attention_course.ladder import RUNGS
from attention_course.names import look_up
from attention_course.progress import keep_try, kept

__all__ = [
    "EXERCISES",
    "SHARED_MESSAGES",
    "Exercise",
    "Mistake",
    "Property",
    "Verdict",
    "check",
    "hint",
    "hints_given",
    "solution",
]

EXERCISES = {each.name: each for rung in RUNGS for each in rung.module("exercises").EXERCISES}


def check(name: str, function: object, seed: int | None = None) -> Verdict:
    """Check your answer to an exercise on random inputs, new ones each time.

    Args:
        name: the exercise.
        function: your answer: the function itself, not its result.
        seed: fixes the inputs, to see the same verdict twice.

    Returns:
        The verdict; as the last line of a cell it displays itself, with buttons for hints and the solution.

    Raises:
        ValueError: unknown name; the message lists all.
        TypeError: `function` is not callable, or `seed` no integer.
    """
    exercise = look_up(name, EXERCISES, "exercise")
    if seed is not None:
        check_sizes("check", 0, seed=seed)
        seed = index(seed)
    before = kept()[0].exercises.get(name)
    verdict = judge_in_subprocess(exercise, function, seed)
    problem = keep_try(name, verdict.passed, verdict.mistakes) if verdict.tried else ""
    if verdict.passed:
        remark = what_follows(name)
    else:
        remark = "✓ You have passed this exercise before." if before and before.passed else ""
    card = partial(Card, exercise=exercise, passed=verdict.passed)
    return replace(verdict, remark=remark, problem=problem, card=card)


def what_follows(name: str) -> str:
    """Say what comes after an exercise: the next one of its rung, or the next rung."""
    rung = next(rung for rung in RUNGS if name in rung.table("exercises.toml"))
    names = list(rung.table("exercises.toml"))
    number = names.index(name) + 1
    if number < len(names):
        return f"Next: exercise {number + 1}, `{names[number]}`."
    above = RUNGS[rung.number :]
    return f"Next: rung {above[0].number}, {above[0].title}." if above else "This was the last exercise."


def hint(name: str) -> Hint:
    """Give the next hint for an exercise; the last one is nearly the solution.

    Raises:
        ValueError: unknown name; the message lists all.
    """
    hints, given = hints_of(look_up(name, EXERCISES, "exercise")), hints_given[name]
    if given >= len(hints):
        return Hint(
            name, "No more hints", f"There were {given}. To see how we wrote it: `solution({name!r})`."
        )
    hints_given[name] += 1
    return hints[given]


def solution(name: str) -> Solution:
    """Ask whether to show the solution of an exercise: the source of the reference, without its docstring.

    Raises:
        ValueError: unknown name; the message lists all.
    """
    return Solution(look_up(name, EXERCISES, "exercise"))
