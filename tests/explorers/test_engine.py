"""The engine of the explorers: an error is shown and forgotten, a change is one message."""

import ipywidgets
import numpy as np
import pytest
import torch

from attention_course.explorers import explore
from attention_course.explorers.engine import Explorer
from attention_course.plots import Bars


def test_an_error_is_shown_and_the_next_change_recovers():
    def compute(t):
        if t == 2:
            raise ValueError("two is too many")
        return {"heights": torch.tensor([float(t)])}

    def draw(figure, heights):
        figure.show(Bars("t", heights, ["t"], "t", (0, 3)), caption=f"t is {heights.item()}")

    explorer = Explorer({"t": ipywidgets.IntSlider(1, 0, 3)}, compute, draw)
    explorer.controls["t"].value = 2
    assert explorer.figure.error == "ValueError: two is too many"
    assert repr(explorer) == "ValueError: two is too many"
    explorer.controls["t"].value = 3
    assert explorer.figure.error == ""
    assert explorer.figure.caption == "t is 3.0"


def test_one_message_a_change():
    """Panels and caption reach the browser together, with the numbers as bytes."""
    explorer = explore("tril_matmul")
    messages = []
    explorer.figure.send_state = lambda names: messages.append(set(names))
    explorer.controls["T"].value = 3
    assert len(messages) == 1
    assert {"panels", "caption"} <= set(messages[0])
    state = explorer.figure.get_state()["panels"][0]
    weights = np.frombuffer(state["values"], dtype=np.float32).reshape(3, 3)
    assert weights.sum(axis=1) == pytest.approx([1, 1, 1])
