"""Exercises that mark themselves: `check`, `hint` and `solution`, each with the name of an exercise.

An exercise is data: a reference, a way to draw inputs, properties, named mistakes and hints. One module
a rung holds them; `engine` runs and judges an answer, `panel` draws the verdict.
"""

import inspect
import textwrap
from collections import Counter
from functools import partial
from typing import Any

from attention_course.exercises import (
    bag_of_words,
    bigram_to_gpt,
    cross_and_causal,
    masked_softmax,
    multi_head,
    query_key_value,
    scaling_variance,
    tril_matmul,
)
from attention_course.exercises.engine import Exercise, Mistake, Property, Verdict, judge
from attention_course.exercises.panel import Hint, Solution
from attention_course.names import look_up

__all__ = ["EXERCISES", "Exercise", "Mistake", "Property", "Verdict", "check", "hint", "solution"]

RUNGS = (
    bag_of_words,
    tril_matmul,
    masked_softmax,
    query_key_value,
    scaling_variance,
    cross_and_causal,
    multi_head,
    bigram_to_gpt,
)
EXERCISES = {exercise.name: exercise for rung in RUNGS for exercise in rung.EXERCISES}

hints_given: Counter[str] = Counter()


def check(name: str, function: Any, seed: int | None = None) -> Verdict:
    """Judge your answer to an exercise on inputs that are drawn anew each time.

    Args:
        name: the exercise.
        function: your answer: the function itself, not a result of it.
        seed: fixes the inputs, to see the same verdict twice.

    Returns:
        The verdict; as the last line of a cell it shows itself.

    Raises:
        ValueError: there is no exercise of that name; the message lists them.
        TypeError: `function` cannot be called.
    """
    return judge(look_up(name, EXERCISES, "exercise"), function, seed)


def hint(name: str) -> Hint:
    """Give the next hint for an exercise, from gentle to nearly the line.

    Raises:
        ValueError: there is no exercise of that name; the message lists them.
    """
    hints = look_up(name, EXERCISES, "exercise").hints
    given = hints_given[name]
    if given == len(hints):
        return Hint(
            name, "No more hints", f"There were {given}. To see how we wrote it: `solution({name!r})`."
        )
    hints_given[name] += 1
    return Hint(name, f"Hint {given + 1} of {len(hints)}", hints[given])


def solution(name: str) -> Solution:
    """Ask whether to show the solution of an exercise: the source of the function we compare with.

    Raises:
        ValueError: there is no exercise of that name; the message lists them.
    """
    reference = look_up(name, EXERCISES, "exercise").reference
    function = reference.func if isinstance(reference, partial) else reference
    return Solution(name, textwrap.dedent(inspect.getsource(function)))
