"""Self-checking exercises: `check`, `hint` and `solution`, each called with the name of an exercise.

For each rung a module holds references, inputs and properties; the TOML file beside it holds the texts, and
the mistakes as patches of the references. `running` runs an answer, `judging` judges it, `panel` displays the
result, and `worker` does all of it in a separate process.
"""

import inspect
import textwrap
from collections import Counter

from attention_course.exercises.exercise import CATALOGUE, Exercise, Mistake, Property, unwrapped
from attention_course.exercises.judging import Verdict
from attention_course.exercises.panel import Hint, Solution
from attention_course.exercises.worker import judge_apart
from attention_course.ladder import modules
from attention_course.names import look_up

__all__ = [
    "CATALOGUE",
    "EXERCISES",
    "Exercise",
    "Mistake",
    "Property",
    "Verdict",
    "check",
    "hint",
    "solution",
]

EXERCISES = {each.name: each for rung in modules("exercises").values() for each in rung.EXERCISES}

hints_given: Counter[str] = Counter()


def check(name: str, function: object, seed: int | None = None) -> Verdict:
    """Check your answer to an exercise on random inputs, new ones each time.

    Args:
        name: the exercise.
        function: your answer: the function itself, not its result.
        seed: fixes the inputs, to see the same verdict twice.

    Returns:
        The verdict; as the last line of a cell it displays itself.

    Raises:
        ValueError: unknown name; the message lists all.
        TypeError: `function` is not callable.
    """
    return judge_apart(look_up(name, EXERCISES, "exercise"), function, seed)


def hint(name: str) -> Hint:
    """Give the next hint for an exercise; the last one is nearly the solution.

    Raises:
        ValueError: unknown name; the message lists all.
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
    """Ask whether to show the solution of an exercise: the source of the reference.

    Raises:
        ValueError: unknown name; the message lists all.
    """
    reference = look_up(name, EXERCISES, "exercise").reference
    return Solution(name, textwrap.dedent(inspect.getsource(unwrapped(reference))))
