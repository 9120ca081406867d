"""A recipe: the learning rate at each step, and the least numbers that it takes."""

import math

import numpy as np
import pytest
from training.small import DATA, tiny

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


@pytest.mark.parametrize("rate", [1, np.float32(0.5), np.float64(0.5)])
def test_the_least_numbers_will_do_and_a_rate_of_any_kind(shapes_unchecked, tmp_path, rate):
    counts = dict.fromkeys(("steps", "batch_size", "evaluate_every", "evaluate_blocks"), 1)
    others = dict.fromkeys(("warmup", "beta2", "weight_decay", "final_learning_rate"), 0)
    trainer = Trainer(tiny(), DATA, Recipe(learning_rate=rate, **counts, **others))
    assert math.isfinite(trainer.step())
    trainer.save(tmp_path / "run.pt")
    trainer.load(tmp_path / "run.pt")
