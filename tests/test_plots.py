"""Every panel can be drawn; pictures carry their words."""

import math

import pytest
import torch
from matplotlib.figure import Figure

from attention_course.plots import (
    Arrows,
    Bars,
    Comparison,
    Heatmap,
    Histogram,
    Lines,
    Scatter,
    Text,
    picture,
)

PANELS = [
    Heatmap("a heatmap", torch.tensor([[1.0, -2.0], [math.nan, -math.inf]]), "row", "column"),
    Bars("some bars", torch.tensor([1.0, -math.inf, -0.5]), ["a", "b", "c"], "bar", (-1, 1)),
    Heatmap("a map", torch.eye(2), "row", "column", framed=(0, 1), crossed=[(1, 1), (0, 0)]),
    Comparison("a comparison", torch.tensor([[0.5, 0.1], [0.2, 0]]), ["a", "b"], ["before", "after"], 1),
    Comparison("one series", torch.tensor([[0.5], [0.2]]), ["a", "b"], ["before"], 1),
    Comparison("nothing to compare", torch.zeros(0, 2), [], ["before", "after"], 1),
    Arrows("arrows", torch.tensor([[[1.0, 0], [0, 1]], [[0, -1], [0, 0]]]), ["a", "b"], ["q", "k"]),
    Arrows("no arrows", torch.zeros(0, 2, 2), [], ["q", "k"]),
    Histogram("a histogram", torch.tensor([0.2, 0.3]), (-1, 1), "value", torch.tensor([0.1, 0.4, 0.1])),
    Histogram("another", torch.tensor([0.2, 0.3]), (-1, 1), "value"),
    Scatter("points", torch.zeros(2, 2), ["a", "b"], (-1, 1), torch.tensor([True, False]), torch.zeros(1, 2)),
    Scatter("more points", torch.zeros(2, 2), ["a", "b"], (-1, 1)),
    Lines("curves", torch.tensor([1.0, 2.0]), {"a": torch.tensor([1.0, 2.0])}, "x", "y"),
    Lines("no curves", torch.zeros(0), {"a": torch.zeros(0)}, "x", "y", log=False),
    Lines("a level", torch.zeros(0), {}, "x", "y", levels={"floor": 1.5}, x_limits=(1, 9)),
    Text("a text", "one\ntwo", torch.linspace(0, 1, 7), framed=3),
    Text("another text", ""),
]


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.title)
def test_every_panel_draws_with_title_and_labelled_axes(panel):
    axes = Figure().subplots()
    panel.plot(axes)
    assert axes.get_xlabel() or isinstance(panel, Arrows | Comparison | Text)
    assert axes.get_ylabel() or isinstance(panel, Arrows | Bars | Comparison | Text)
    assert picture(panel, alt="words").png.startswith(b"\x89PNG")


def test_picture_gives_its_words_to_those_who_cannot_see_it():
    data, metadata = picture(PANELS[0], alt="one, minus two")._repr_mimebundle_()
    assert data["text/plain"] == "one, minus two"
    assert metadata["image/png"]["alt"] == "one, minus two"
    assert repr(picture(PANELS[0], alt="one, minus two")) == "one, minus two"


@pytest.mark.slow
def test_the_same_picture_twice_is_the_same_file():
    assert picture(*PANELS, alt="").png == picture(*PANELS, alt="").png
