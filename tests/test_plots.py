"""Panels say the same to both ways of drawing; pictures carry their words."""

import math

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from attention_course.plots import Bars, Heatmap, Histogram, Lines, Plane, number, picture


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (3.0, "3"),
        (-2.0, "−2"),
        (0.5, "0.50"),
        (-1 / 3, "−0.33"),
        (math.inf, "∞"),
        (-math.inf, "−∞"),
    ],
)
def test_number(value, text):
    assert number(value) == text
    assert number(math.nan) == "nan"


def test_heatmap_state_holds_the_values():
    values = torch.arange(6.0).reshape(2, 3)
    state = Heatmap("title", values, "row", "column").state()
    assert np.frombuffer(state["values"], dtype=np.float32).tolist() == values.flatten().tolist()
    assert state["limit"] == 5
    assert state["texts"] == ["0", "1", "2", "3", "4", "5"]
    assert state["rows"] == ["0", "1"]
    assert state["columns"] == ["0", "1", "2"]


@pytest.mark.parametrize("values", [torch.zeros(2, 2), torch.full((2, 2), -math.inf), torch.zeros(1, 0)])
def test_heatmap_without_a_largest_value(values):
    assert Heatmap("title", values, "row", "column").state()["limit"] == 1


def test_heatmap_writes_no_numbers_where_they_do_not_fit():
    assert Heatmap("title", torch.zeros(64, 64), "row", "column").state()["texts"] == []


PANELS = [
    Heatmap("a heatmap", torch.tensor([[1.0, -2.0], [math.nan, -math.inf]]), "row", "column"),
    Bars("some bars", torch.tensor([1.0, -math.inf, -0.5]), ["a", "b", "c"], "bar", (-1, 1)),
    Histogram("a histogram", torch.tensor([0.2, 0.3]), (-1, 1), "value", torch.tensor([0.1, 0.4, 0.1])),
    Histogram("another", torch.tensor([0.2, 0.3]), (-1, 1), "value"),
    Plane("points", torch.zeros(2, 2), ["a", "b"], (-1, 1), torch.tensor([True, False]), torch.zeros(1, 2)),
    Plane("more points", torch.zeros(2, 2), ["a", "b"], (-1, 1)),
    Lines("curves", torch.tensor([1.0, 2.0]), {"a": torch.tensor([1.0, 2.0])}, "x", "y"),
]


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.title)
def test_every_panel_draws_with_title_and_labelled_axes(panel):
    axes = Figure().subplots()
    panel.plot(axes)
    assert axes.get_xlabel()
    assert axes.get_ylabel() or isinstance(panel, Bars)
    assert picture(panel, alt="words").png.startswith(b"\x89PNG")


def test_bars_stand_at_their_heights():
    axes = Figure().subplots()
    PANELS[1].plot(axes)
    assert [round(bar.get_height(), 6) for bar in axes.patches] == [1, 0, -0.5]
    assert [text.get_text() for text in axes.texts] == ["1", "−∞", "−0.50"]


def test_heatmap_draws_its_values_in_place():
    axes = Figure().subplots()
    PANELS[0].plot(axes)
    assert axes.images[0].get_array().tolist() == [[1, -2], [0, 0]]
    assert axes.texts[1].get_text() == "−2"
    assert axes.texts[1].get_position() == (1, 0)


def test_picture_gives_its_words_to_those_who_cannot_see_it():
    data, metadata = picture(PANELS[0], alt="one, minus two")._repr_mimebundle_()
    assert data["text/plain"] == "one, minus two"
    assert metadata["image/png"]["alt"] == "one, minus two"
    assert repr(picture(PANELS[0], alt="one, minus two")) == "one, minus two"


def test_the_same_picture_twice_is_the_same_file():
    assert picture(*PANELS, alt="").png == picture(*PANELS, alt="").png
