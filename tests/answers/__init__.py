"""Answers to the exercises that nobody planned for: wrong ones to be rejected, right ones to be accepted.

Each was written from the text of its exercise alone, without a look at the mistakes that have a name.
"""

from collections.abc import Callable

RIGHT: list[tuple[str, Callable]] = []
WRONG: list[tuple[str, Callable]] = []


def right(exercise: str) -> Callable:
    """Register a right answer in a style of its own."""
    return _register(RIGHT, exercise)


def wrong(exercise: str) -> Callable:
    """Register a plausible wrong answer."""
    return _register(WRONG, exercise)


def _register(answers: list, exercise: str) -> Callable:
    def decorate(function: Callable) -> Callable:
        answers.append((exercise, function))
        return function

    return decorate
