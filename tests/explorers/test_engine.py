"""The engine of the explorers: an error is shown, and forgotten with the next change."""

import ipywidgets
import pytest
import torch

from attention_course.explorers.engine import Explorer
from attention_course.plots import Bars


def compute(t):
    if t == 2:
        raise ValueError("two is too many")
    return {"heights": torch.tensor([float(t)])}


def draw(figure, heights):
    figure.show(Bars("t", heights, ["t"], "t", (0, 3)), caption=f"t is {heights.item()}")


def test_what_cannot_be_drawn_at_first_is_refused_at_once():
    with pytest.raises(ValueError, match="two is too many"):
        Explorer({"t": ipywidgets.IntSlider(2, 0, 3)}, compute, draw)


def test_an_error_is_shown_and_the_next_change_recovers():
    explorer = Explorer({"t": ipywidgets.IntSlider(1, 0, 3)}, compute, draw)
    explorer.controls["t"].value = 2
    assert explorer.figure.error == "ValueError: two is too many"
    assert repr(explorer) == "ValueError: two is too many"
    explorer.controls["t"].value = 3
    assert explorer.figure.error == ""
    assert explorer.figure.caption == "t is 3.0"
