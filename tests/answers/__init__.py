"""Answers to the exercises that nobody planned for: wrong ones to be rejected, right ones to be accepted.

Each was written from the text of its exercise alone, without a look at the mistakes that have a name.
"""

from collections.abc import Callable

RIGHT: list[tuple[str, Callable]] = []
WRONG: list[tuple[str, Callable]] = []
NAMED: list[tuple[str, Callable, str]] = []  # wrong ones that came up again and again, and their mistake


def right(exercise: str) -> Callable:
    """Register a right answer in a style of its own."""
    return _register(RIGHT, exercise)


def wrong(exercise: str, mistake: str | None = None) -> Callable:
    """Register a plausible wrong answer; with the name of its mistake if such answers gave it the name."""
    return _register(WRONG, exercise, mistake)


def _register(answers: list, exercise: str, mistake: str | None = None) -> Callable:
    def decorate(function: Callable) -> Callable:
        answers.append((exercise, function))
        if mistake:
            NAMED.append((exercise, function, mistake))
        return function

    return decorate
