"""Answers that nobody planned for: all wrong ones are rejected, all right ones pass."""

from collections.abc import Callable
from functools import cache
from itertools import combinations

import pytest
import torch
from answers import NAMED, RIGHT, WRONG, rungs_1_to_4, rungs_5_to_8  # noqa: F401

from attention_course.exercises import EXERCISES, Verdict, check, engine

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


@pytest.mark.parametrize(
    ("name", "answer", "mistake"), [pytest.param(*each, id=each[1].__name__) for each in NAMED]
)
def test_a_mistake_that_came_up_again_has_a_name(name, answer, mistake):
    for seed in range(8):
        assert verdict(name, answer, seed).mistake == mistake


@pytest.mark.parametrize("name", EXERCISES)
def test_no_two_answers_without_a_name_are_alike(name):
    """Alike: the same results, and the same words. What comes up twice needs a name."""
    exercise = EXERCISES[name]
    inputs = [
        arguments for seed in SEEDS for arguments in exercise.draw_inputs(torch.Generator().manual_seed(seed))
    ]
    unnamed = [a for each, a in WRONG if each == name and verdict(name, a, 0).mistake is None]
    did = {answer: [engine.run(answer, arguments) for arguments in inputs] for answer in unnamed}
    for one, other in combinations(unnamed, 2):
        if repr(verdict(name, one, 0)) == repr(verdict(name, other, 0)):
            same = [engine.same(a, b, exercise.tolerance) for a, b in zip(did[one], did[other], strict=True)]
            assert not all(same), f"{one.__name__} and {other.__name__}"


@pytest.mark.parametrize("name", EXERCISES)
def test_there_are_enough_answers(name):
    wrong = [answer for exercise, answer in WRONG if exercise == name]
    assert sum(verdict(name, answer, 0).mistake is None for answer in wrong) >= 6
    assert sum(exercise == name for exercise, _ in RIGHT) >= 3


def test_every_answer_is_there_once():
    for given in (RIGHT, WRONG):
        ids = [f"{name}-{answer.__name__}" for name, answer in given]
        assert len(set(ids)) == len(ids)
        assert {name for name, _ in given} <= set(EXERCISES)
