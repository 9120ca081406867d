"""Answers that nobody planned for: all wrong ones are rejected, all right ones pass."""

import importlib.util
from collections.abc import Callable
from functools import cache

import answers.rungs_1_to_4
import pytest
from answers import RIGHT, WRONG

from attention_course.exercises import EXERCISES, Verdict, check

NAMES = list(EXERCISES)
if importlib.util.find_spec("answers.rungs_5_to_8"):
    import answers.rungs_5_to_8  # noqa: F401
else:
    NAMES = NAMES[:12]

SEEDS = range(2)


def params(given: list[tuple[str, Callable]]) -> list:
    return [pytest.param(name, answer, id=f"{name}-{answer.__name__}") for name, answer in given]


@cache
def verdict(name: str, answer: Callable, seed: int) -> Verdict:
    return check(name, answer, seed)


@pytest.mark.parametrize(("name", "answer"), params(WRONG))
def test_a_wrong_answer_is_rejected(name, answer):
    for seed in SEEDS:
        assert not verdict(name, answer, seed).passed, f"it passes for seed {seed}"


@pytest.mark.parametrize(("name", "answer"), params(RIGHT))
def test_a_right_answer_passes(name, answer):
    for seed in SEEDS:
        assert verdict(name, answer, seed).passed, f"seed {seed}: {verdict(name, answer, seed)}"


@pytest.mark.parametrize("name", NAMES)
def test_there_are_enough_answers(name):
    wrong = [answer for exercise, answer in WRONG if exercise == name]
    assert sum(verdict(name, answer, 0).mistake is None for answer in wrong) >= 6
    assert sum(exercise == name for exercise, _ in RIGHT) >= 3


def test_every_answer_is_there_once():
    for given in (RIGHT, WRONG):
        ids = [f"{name}-{answer.__name__}" for name, answer in given]
        assert len(set(ids)) == len(ids)
        assert {name for name, _ in given} <= set(EXERCISES)
