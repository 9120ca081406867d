"""Answers to the exercises that nobody planned for: wrong ones to be rejected, right ones to be accepted.

Each was written from the text of its exercise alone, without a look at the mistakes that have a name.
"""

from collections.abc import Callable

import torch

from attention_course.exercises import EXERCISES, Verdict
from attention_course.exercises.judging import judge
from attention_course.exercises.problems import SELF_EXPLAINING

RIGHT: list[tuple[str, Callable]] = []
WRONG: list[tuple[str, Callable, tuple[str, ...]]] = []


def right(exercise: str, **answers: Callable) -> Callable:
    """Register right answers: what is one expression by its name, the others as a decorator."""

    def decorate(function: Callable) -> Callable:
        RIGHT.append((exercise, function))
        return function

    for name, answer in answers.items():
        decorate(answer).__name__ = name
    return decorate


def wrong(exercise: str, *mistakes: str, **answers: Callable) -> Callable:
    """Register plausible wrong answers, as `right` does, and the names of their mistakes, if any."""

    def decorate(function: Callable) -> Callable:
        WRONG.append((exercise, function, mistakes))
        return function

    for name, answer in answers.items():
        decorate(answer).__name__ = name
    return decorate


def mean_of_past(x):
    """Solve the first exercise, so that one thing at a time can be made wrong."""
    out = torch.zeros_like(x)
    for t in range(x.shape[-2]):
        out[..., t, :] = x[..., : t + 1, :].mean(dim=-2)
    return out


def judged(name: str, answer: object, seed: int | None = None) -> Verdict:
    """Return the verdict that `check` gives, but judge here: the answer may use what only this test has."""
    return judge(EXERCISES[name], answer, seed)


def bad(answer: Callable, name: str = "causal_mean_loop", seed: int | None = None) -> Verdict:
    """Return the verdict on an answer that is wrong in a way that has no name."""
    verdict = judged(name, answer, seed)
    assert not verdict.passed
    assert set(verdict.mistakes) <= {problem.__name__ for problem in SELF_EXPLAINING}
    assert isinstance(verdict._repr_html_(), str)
    return verdict
