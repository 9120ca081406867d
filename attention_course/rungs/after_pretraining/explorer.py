"""Half of a number."""

from typing import Any

import ipywidgets
import torch
from torch import Tensor

from attention_course.explorers.figure import LiveFigure
from attention_course.plots import Bars


def controls() -> dict[str, ipywidgets.ValueWidget]:
    """Return the number."""
    return {"n": ipywidgets.IntSlider(1, 0, 3, description="n")}


def compute(n: int) -> dict[str, Any]:
    """Halve it."""
    return {"half": torch.tensor([n / 2])}


def draw(figure: LiveFigure, half: Tensor) -> None:
    """Show the half."""
    figure.show(Bars("Half of n", half, ["n"], "n", (0, 2)), caption=f"Half is {half.item()}.")
from pathlib import Path
FILE = Path(__file__).with_name("measured.json")
