"""Shared by the tests of training."""

import pytest
from training.small import DATA, RECIPE, tiny

from attention_course.training import Trainer, run


@pytest.fixture
def saved(tmp_path):
    """A checkpoint after 5 of 10 steps."""
    trainer, path = Trainer(tiny(dropout=0.3), DATA, RECIPE), tmp_path / "run.pt"
    run(trainer, callback=lambda t: t.steps_done == 5)
    trainer.save(path)
    return path
