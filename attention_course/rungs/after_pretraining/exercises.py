"""Halve a tensor."""

import torch
from torch import Tensor

from attention_course.exercises.exercise import exercise


def after_pretraining_halve(x: Tensor) -> Tensor:
    """Return half of x."""
    return x / 2


def draw(generator: torch.Generator) -> list[tuple]:
    """Draw a tensor of two dimensions."""
    return [(torch.randn(3, 2, generator=generator),)]


EXERCISES = (exercise(__name__, after_pretraining_halve, draw, ()),)
