"""A recipe: the learning rate at each step, and numbers that are out of range."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from training.small import DATA, RECIPE, tiny

from attention_course.training import Recipe, Trainer


def test_the_learning_rate_at_each_corner():
    recipe = Recipe(steps=10, warmup=4, learning_rate=1.0, final_learning_rate=0.1)
    expected = {0: 0.25, 1: 0.5, 3: 1.0, 4: 1.0, 7: 0.55, 10: 0.1, 15: 0.1}
    assert {step: recipe.learning_rate_at(step) for step in expected} == pytest.approx(expected)


@pytest.mark.parametrize(("steps", "warmup"), [(10, 0), (1, 0), (1, 1), (3, 10)])
def test_the_learning_rate_of_short_runs(steps, warmup):
    recipe = Recipe(steps=steps, warmup=warmup, learning_rate=1.0)
    rates = [recipe.learning_rate_at(step) for step in range(steps)]
    assert all(0 < rate <= 1 for rate in rates)
    assert rates[0] == (1.0 if warmup == 0 else 1 / warmup)
    assert 0 <= recipe.learning_rate_at(steps) <= 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"steps": 2**31},
        {"evaluate_blocks": 0},
        {"batch_size": 0},
        {"evaluate_every": 0},
        {"warmup": -1},
        {"learning_rate": 0.0},
        {"learning_rate": -1.0},
        {"learning_rate": math.nan},
        {"learning_rate": math.inf},
        {"clip": 0.0},
        {"clip": math.inf},
        {"beta2": 1.0},
        {"weight_decay": -0.1},
        {"weight_decay": math.inf},
        {"final_learning_rate": -1e-9},
        {"final_learning_rate": math.inf},
    ],
)
def test_numbers_out_of_range_are_refused_by_name(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=rf"{name} = {wrong[name]}, expected"):
        Recipe(**wrong)


@pytest.mark.parametrize(
    "least",
    [
        {"steps": 1},
        {"batch_size": 1},
        {"evaluate_every": 1},
        {"warmup": 0},
        {"beta2": 0.0},
        {"weight_decay": 0.0},
        {"final_learning_rate": 0.0},
    ],
)
def test_the_least_number_is_in_range(least):
    (name,) = least
    trainer = Trainer(tiny(), DATA, replace(RECIPE, **least))
    assert getattr(trainer.recipe, name) == least[name]
    assert math.isfinite(trainer.step())


def with_wrong(name, value):
    """Make a recipe as it is made outside of the tests, where nothing checks types."""
    recipe = Recipe()
    object.__setattr__(recipe, name, value)
    recipe.__post_init__()


@pytest.mark.parametrize(
    "name", ["steps", "batch_size", "evaluate_every", "evaluate_blocks", "warmup", "seed"]
)
@pytest.mark.parametrize("value", [1e3, None, "3", [3], math.nan])
def test_a_number_that_counts_must_be_whole(name, value):
    with pytest.raises(ValueError, match=rf"Recipe: {name} = {re.escape(repr(value))}, expected an integer"):
        with_wrong(name, value)


@pytest.mark.parametrize("name", ["learning_rate", "clip", "beta2", "weight_decay", "final_learning_rate"])
@pytest.mark.parametrize("value", [None, "0.1", [0.1], 0.1j])
def test_a_number_must_be_one(name, value):
    with pytest.raises(ValueError, match=rf"Recipe: {name} = {re.escape(repr(value))}, expected a number"):
        with_wrong(name, value)


@pytest.mark.parametrize("value", [1, np.float32(0.5), np.float64(0.5)])
def test_a_learning_rate_may_be_any_number(value):
    with_wrong("learning_rate", value)


@pytest.mark.parametrize("value", [None, 32, ["float32"]])
def test_a_precision_must_be_a_name(value):
    with pytest.raises(ValueError, match="There is no precision called"):
        with_wrong("precision", value)


def test_an_unknown_precision_is_refused():
    with pytest.raises(ValueError, match="Did you mean 'float32'"):
        Recipe(precision="float23")
