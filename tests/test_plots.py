"""Panels say the same to both ways of drawing; pictures carry their words."""

import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from attention_course import explorers
from attention_course.plots import (
    BLUE,
    Bars,
    Heatmap,
    Histogram,
    Lines,
    Plane,
    Text,
    number,
    picture,
    sign,
    tick,
    visible,
)


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


def test_heatmap_keeps_room_for_its_own_shape_or_for_a_given_one():
    assert Heatmap("title", torch.zeros(2, 3), "row", "column").state()["room"] == [2, 3]
    assert Heatmap("title", torch.zeros(2, 3), "row", "column", room=(8, 8)).state()["room"] == [8, 8]


PANELS = [
    Heatmap("a heatmap", torch.tensor([[1.0, -2.0], [math.nan, -math.inf]]), "row", "column"),
    Bars("some bars", torch.tensor([1.0, -math.inf, -0.5]), ["a", "b", "c"], "bar", (-1, 1)),
    Histogram("a histogram", torch.tensor([0.2, 0.3]), (-1, 1), "value", torch.tensor([0.1, 0.4, 0.1])),
    Histogram("another", torch.tensor([0.2, 0.3]), (-1, 1), "value"),
    Plane("points", torch.zeros(2, 2), ["a", "b"], (-1, 1), torch.tensor([True, False]), torch.zeros(1, 2)),
    Plane("more points", torch.zeros(2, 2), ["a", "b"], (-1, 1)),
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
    assert axes.get_xlabel() or isinstance(panel, Text)
    assert axes.get_ylabel() or isinstance(panel, Bars | Text)
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


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (-0.5, "−0.5"),
        (20, "20"),
        (0.001, "0.001"),
        (20_000, "20000"),
        (1e5, "10⁵"),
        (2e-5, "2·10⁻⁵"),
        (-5e8, "−5·10⁸"),
    ],
)
def test_tick(value, text):
    assert tick(value) == text


def numbers(data):
    return np.frombuffer(data, dtype=np.float32).tolist()


def test_lines_skip_what_was_not_measured():
    losses = {"all": torch.tensor([4.0, 3, 2, 1]), "some": torch.tensor([math.nan, 3.5, math.inf, 1.5])}
    panel = Lines("losses", torch.arange(1, 5), losses, "step", "loss", log=False)
    _, some = panel.state()["curves"]
    assert (numbers(some["x"]), numbers(some["y"])) == ([2, 4], [3.5, 1.5])
    axes = Figure().subplots()
    panel.plot(axes)
    assert axes.lines[1].get_xydata().tolist() == [[2, 3.5], [4, 1.5]]


def test_logarithmic_lines_skip_what_has_no_logarithm():
    panel = Lines("log", torch.arange(4), {"a": torch.tensor([1.0, 0, -1, 2])}, "x", "y")
    assert numbers(panel.state()["curves"][0]["x"]) == [3]


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("length", [300, 301, 10_000])
def test_long_curves_are_thinned_and_keep_their_ends(log, length):
    x = torch.arange(1, length + 1)
    curve = Lines("long", x, {"a": 1 / x}, "x", "y", log=log).state()["curves"][0]
    shown = numbers(curve["x"])
    assert shown[0] == 1
    assert shown[-1] == length
    assert len(shown) <= Lines.MOST_POINTS + 1
    assert numbers(curve["y"]) == (1 / torch.tensor(shown)).tolist()
    if log:
        assert shown[:5] == [1, 2, 3, 4, 5]


def test_nine_curves_look_different_and_are_all_drawn():
    x = torch.tensor([1.0, 2.0])
    axes = Figure().subplots()
    Lines("many", x, {f"curve {i}": x + i for i in range(9)}, "x", "y").plot(axes)
    assert len({(line.get_color(), line.get_marker(), line.get_linestyle()) for line in axes.lines}) == 9
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [f"curve {i}" for i in range(9)]


def test_the_browser_has_the_same_colours():
    script = (Path(explorers.__file__).parent / "panels.js").read_text()
    light = re.search(r"light: \[(.*?)\]", script)[1]
    assert re.findall(r"#\w{6}", light) == [colour.lower() for colour, _ in Lines.LOOKS]


@pytest.mark.parametrize("log", [False, True])
def test_levels_stand_at_their_heights_and_their_labels_apart(log):
    levels = {"top": 3.0, "bottom": 0.11, "second": 1.45, "third": 1.41}
    x = torch.tensor([1.0, 2.0])
    panel = Lines("levels", x, {"a": x}, "x", "y", log=log, levels=levels)
    state = panel.state()
    assert [level["label"] for level in state["levels"]] == [
        "top 3",
        "bottom 0.11",
        "second 1.45",
        "third 1.41",
    ]
    places = [level["at"] for level in state["levels"]]
    assert all(0 <= place <= 1 for place in places)
    gaps = [high - low for low, high in itertools.pairwise(sorted(places))]
    assert min(gaps) >= Lines.GAP - 1e-9
    assert np.argsort(places).tolist() == [1, 3, 2, 0]
    low, high = state["y_limits"]
    scale = math.log if log else float
    assert places[1] == pytest.approx((scale(0.11) - scale(low)) / (scale(high) - scale(low)))
    axes = Figure().subplots()
    panel.plot(axes)
    assert [line.get_ydata()[0] for line in axes.lines[1:]] == list(levels.values())


@pytest.mark.parametrize("crowd", [(0, 0.01, 0.02), (3, 2.99, 2.98)])
def test_crowded_labels_stay_beside_the_plot(crowd):
    levels = {str(index): level for index, level in enumerate((*crowd, 1.5))}
    state = Lines("levels", torch.zeros(0), {}, "x", "y", log=False, levels=levels).state()
    places = [level["at"] for level in state["levels"]]
    assert 0 <= min(places) < max(places) <= 1
    assert min(high - low for low, high in itertools.pairwise(sorted(places))) >= Lines.GAP - 1e-9


@given(
    low=st.floats(1e-4, 10), factor=st.floats(1, 1e4), log=st.booleans(), levels=st.lists(st.floats(0.01, 9))
)
def test_ticks_and_levels_lie_within_the_limits(low, factor, log, levels):
    y = torch.tensor([low, low * factor])
    named = {str(index): level for index, level in enumerate(levels[:6])}
    state = Lines("t", torch.tensor([1.0, 5.0]), {"a": y}, "x", "y", log=log, levels=named).state()
    for axis in ("x", "y"):
        ticks = [value for value, _ in state[f"{axis}_ticks"]]
        assert 1 <= len(ticks) <= 9
        assert all(state[f"{axis}_limits"][0] <= value <= state[f"{axis}_limits"][1] for value in ticks)
    bottom, top = state["y_limits"]
    assert all(bottom <= height <= top for height in [*numbers(y.numpy().tobytes()), *named.values()])
    assert log or bottom == 0


def test_linear_heights_begin_at_zero_and_the_axis_is_as_long_as_asked():
    x = torch.tensor([1.0, 2.0])
    panel = Lines("short", x, {"a": x + 5}, "step", "loss", log=False, x_limits=(0, 600))
    axes = Figure().subplots()
    panel.plot(axes)
    assert axes.get_xlim() == (0, 600)
    assert axes.get_ylim()[0] == 0
    assert panel.state()["x_limits"] == [0, 600]


@given(st.text(st.sampled_from("abcdefgh \n\t"), max_size=200))
@example(" " + 100 * "x" + " y")
def test_a_text_is_cut_into_rows_and_nothing_is_lost(text):
    rows = Text("t", text).rows()
    assert "".join(rows) == visible(text)
    assert max(map(len, rows)) <= Text.COLUMNS
    for row, below in itertools.pairwise(rows):
        assert "↵" not in row[:-1]
        if not row.endswith("↵"):
            assert row.endswith(" ") or " " not in row
            word = re.split(r"(?<= )", below)[0]
            assert len(row) + len(word) > Text.COLUMNS


def test_signs_for_what_cannot_be_seen():
    assert visible("a b\n\t") == "a b↵⇥"
    assert [sign(character) for character in "a \n\t"] == ["a", "␣", "↵", "⇥"]


def test_text_shades_and_frames_its_cells():
    axes = Figure().subplots()
    Text("t", "ab\ncd", torch.tensor([0, 0.25, 0.5, 0.75, 0]), framed=3, limit=0.5).plot(axes)
    *cells, frame = axes.patches
    assert [cell.get_xy() for cell in cells] == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1)]
    colours = [cell.get_facecolor() for cell in cells]
    assert colours[0] == colours[4] == pytest.approx((1, 1, 1, 1), abs=0.01)
    assert colours[2] == colours[3] == to_rgba(BLUE)
    assert colours[1] == pytest.approx([(1 + channel) / 2 for channel in to_rgba(BLUE)], abs=0.01)
    assert frame.get_xy() == (0, 1)
    assert not frame.get_fill()
    assert [text.get_text() for text in axes.texts] == list("ab↵cd")
