"""Panels of one tensor: what panels.js gets of them, and where it draws it."""

import itertools
import json
import math
import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from attention_course.plots import BLUE, Arrows, Bars, Comparison, Heatmap, Text, picture, visible
from attention_course.plots.render import script, written
from attention_course.plots.style import GREEN, ORANGE

BOX = re.compile(r"M(\S+) (\S+?)h(\S+?)v(\S+?)h\S+?z")


def numbers(data):
    return np.frombuffer(data, dtype=np.float32).tolist()


class Drawn:
    """What a picture of one panel shows in the light scheme.

    Attributes:
        texts: what is written, without the title.
        filled, colours, strengths: boxes as x, y, width and height, their colours and opacities.
        outlines: boxes that are not filled.
        paths: all numbers of each other shape.
    """

    def __init__(self, panel):
        style, group = ElementTree.fromstring(picture(panel, alt="").svg)
        light, _ = style.text.split("@media")
        rules = {name: rule for name, *rule in re.findall(r"\.(c\d+){(fill|stroke):(.*?)}", light)}
        self.texts, self.filled, self.colours, self.strengths, self.outlines, self.paths = (
            [] for _ in "123456"
        )
        for shape in group:
            kind, ink = rules[shape.get("class")]
            box = BOX.fullmatch(shape.get("d", ""))
            if shape.get("d") is None:
                self.texts += [] if shape.get("font-weight") else [shape.text]
            elif not box:
                self.paths.append([float(number) for number in re.findall(r"-?[\d.]+", shape.get("d"))])
            elif kind == "stroke":
                self.outlines.append(tuple(map(float, box.groups())))
            else:
                self.filled.append(tuple(map(float, box.groups())))
                self.colours.append(ink)
                self.strengths.append(float(shape.get("opacity", 1)))


def css(colour):
    return f"rgb({','.join(str(int(colour[at : at + 2], 16)) for at in (1, 3, 5))})"


def evaluated(panels, expression):
    """Return the value of an expression in panels.js, where `all` are the cells of each panel."""
    context = script()
    context.eval(f"const panels = {written([panel.state() for panel in panels])}")
    context.eval("const theme = themeIn(false, (_, otherwise) => otherwise)")
    context.eval("const all = panels.map((panel) => KINDS[panel.kind].cells(panel, theme))")
    return json.loads(context.eval(expression).json())


def cells_of(panel):
    """Return what the browser says of each cell of a panel, and the cell's box."""
    return evaluated(
        [panel], "Array.from({ length: all[0].count }, (_, index) => [all[0].tell(index), all[0].box(index)])"
    )


def links_of(panels, panel, cell):
    """Return the places of a cell, how many boxes they mark in each panel, and what is said of them."""
    return evaluated(
        panels,
        f"""((places) => [
            places,
            all.map((cells) => cells.marks(places).length),
            product(panels, panels[{panel}], places),
            all.map((cells) => cells.says(places)),
        ])(all[{panel}].axes({cell}))""",
    )


def test_the_axes_of_a_product_link_its_three_matrices():
    weights, values = torch.tensor([[1.0, 0], [0.5, 0.5]]), torch.tensor([[2.0, 4, 6], [0, 1, 2]])
    panels = [
        Heatmap("weights", weights, "t", "s"),
        Heatmap("values", values, "s", "c"),
        Heatmap("output", weights @ values, "t", "c"),
    ]
    axes, marks, words, said = links_of(panels, 0, 3)
    assert (axes, marks) == ({"t": 1, "s": 1}, [2, 1, 1])
    assert words == "0.50 × (0  1  2) is its part of t = 1: (1.00  2.50  4.00)."
    assert said == ["weights: 0.50", "values: 0  1  2", "output: 1.00  2.50  4.00"]
    axes, marks, words, _ = links_of(panels, 2, 4)
    assert (axes, marks) == ({"t": 1, "c": 1}, [1, 1, 2])
    assert words == "0.50 × 4 + 0.50 × 1 = 2.50."
    assert links_of(panels, 1, 0)[:3] == [{"s": 0, "c": 0}, [1, 2, 1], ""]


def test_a_head_on_a_sheet_is_linked_to_its_row():
    sheet = torch.zeros(5, 5)
    panels = [
        Heatmap("maps", sheet, "query", "key", grid_labels=["a", "b"], map_label="head"),
        Heatmap("rows", torch.zeros(4, 2), "head", "key"),
        Bars("keys", torch.tensor([0.5, 1]), ["a", "b"], "key", (0, 1)),
    ]
    told, _ = cells_of(replace(panels[0], map_names=["a", "b", "c", "d"]))[4 * 5 + 1]
    assert told == "head 2 (c), query = 1 “b”, key = 1 “b”: 0. Its row: 0  0."
    axes, marks, _, said = links_of(panels, 0, 3 * 5 + 4)
    assert (axes, marks) == ({"query": 0, "key": 1, "head": 3}, [2, 2, 1])
    assert said == ["", "rows: 0", "keys: 1.00"]
    assert links_of(panels, 2, 0)[:2] == [{"key": 0}, [4, 1, 1]]


def test_bars_stand_at_their_heights():
    bars = Drawn(Bars("t", torch.tensor([1.0, -math.inf, -0.5]), ["a", "b", "c"], "bar", (-1, 1)))
    one, nothing, minus_half = bars.filled
    ground = minus_half[1]
    assert one[1] + one[3] == ground == pytest.approx(bars.outlines[0][1], abs=1)
    assert (ground - one[3], ground) == (20, 69.5), "the top of the plot, and its middle"
    assert (one[3], nothing[3]) == (2 * minus_half[3], 0)
    assert bars.texts == ["1.00", "a", "−∞", "b", "−0.50", "c", "bar"]


def test_heatmap_draws_its_values_in_place():
    heatmap = Drawn(Heatmap("t", torch.tensor([[1.0, -2.0], [math.nan, 0]]), "row", "column"))
    paper, one, minus_two, nan = heatmap.filled
    assert (one[0], one[1]) == (paper[0], paper[1])
    assert (minus_two[0], minus_two[1]) == (paper[0] + paper[2] / 2, paper[1])
    assert (nan[0], nan[1]) == (paper[0], paper[1] + paper[3] / 2)
    assert heatmap.colours == ["rgb(255,255,255)", "rgb(128,185,217)", css(ORANGE), "rgb(255,255,255)"]
    assert heatmap.texts[:4] == ["1", "−2", "nan", "0"]
    assert (
        "0" not in Drawn(Heatmap("t", torch.zeros(64, 64), "r", "c", rows=64 * "r", columns=64 * "c")).texts
    )
    nothing = Drawn(Heatmap("t", torch.full((2, 2), -math.inf), "row", "column"))
    assert set(nothing.colours) == {"rgb(255,255,255)"}, "there is no number to scale by"


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
    text = Drawn(Text("t", "ab\ncd", torch.tensor([0, 0.25, 0.5, 0.75, 0]), framed=3, limit=0.5))
    assert [(x, y) for x, y, _, _ in text.filled] == [(11, 3), (20, 3), (2, 23)]
    assert text.colours == 3 * [BLUE.lower()]
    assert text.strengths == [0.5, 1, 1]
    assert text.outlines == [(2, 23, 9, 18)]
    assert text.texts == list("ab↵cd")


def test_text_of_tokens_shades_and_frames_whole_tokens():
    panel = Text("t", ["ab", "\n", " cde", ""], torch.tensor([0.5, 0, 1, 0]), framed=2, limit=1)
    text = Drawn(panel)
    assert text.filled == [(2, 3, 18, 18), (2, 23, 36, 18)]
    assert text.strengths == [0.5, 1]
    assert text.outlines == [(2, 23, 36, 18)]
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


def test_the_browser_tells_the_weight_of_a_token_or_of_a_character():
    tokens = Text("t", ["ab", "\n", " cd"], torch.tensor([0.5, 0, 1]), label="weight")
    assert cells_of(tokens) == [
        ["token = 0 “ab”: weight 0.50", [2, 3, 18, 18]],
        ["token = 1 “↵”: weight 0.00", [20, 3, 9, 18]],
        ["token = 2 “ cd”: weight 1.00", [2, 23, 27, 18]],
    ]
    characters = Text("t", "ab", torch.tensor([0.5, 0]), label="weight")
    assert cells_of(characters)[1] == ["character = 1 “b”: weight 0.00", [11, 3, 9, 18]]


def test_heatmap_marks_its_cells():
    heatmap = Heatmap("t", torch.eye(3), "row", "column", framed=(0, 2), crossed_out=[(1, 0), (2, 1)])
    marked, plain = Drawn(heatmap), Drawn(Heatmap("t", torch.eye(3), "row", "column"))
    left, top, width, height = marked.filled[0]
    assert set(marked.outlines) - set(plain.outlines) == {
        (left + 2 * width / 3 - 0.5, top - 0.5, width / 3 + 1, height / 3 + 1)
    }
    assert len(marked.paths) == len(plain.paths) + 4, "two strokes a cross"


def test_comparison_draws_a_bar_of_each_series_for_each_label():
    panel = Comparison("t", torch.tensor([[0.5, 0.25], [0.2, 0]]), ["a", "b"], ["before", "after"], 1)
    *legend, half, quarter, fifth, nothing = Drawn(panel).filled
    assert [bar[2] for bar in (half, quarter, fifth, nothing)] == [60, 30, 24, 0]
    assert half[1] < quarter[1] < fifth[1] < nothing[1]
    assert Drawn(panel).colours == [BLUE.lower(), GREEN.lower()] * 3
    assert len(legend) == 2
    assert [told for told, _ in cells_of(panel)] == [
        "“a”: before 0.50, after 0.25",
        "“b”: before 0.20, after 0.00",
    ]


@pytest.mark.parametrize(
    ("second", "between"), [((0, 1), (0, 90)), ((0, -1), (-90, 0)), ((-1, -0.1), (-174, 0))]
)
def test_arrows_shade_the_smaller_angle_and_the_longest_reaches_the_circle(second, between):
    arrows = torch.tensor([[(2.0, 0.0), second], [(0.0, 0.0), (0.0, 1.0)]])
    panel = Arrows("t", arrows, ["a", "b"], ["q", "k"], reserved=4)
    paths = Drawn(panel).paths
    (x, y, *_, sweep, end_x, end_y) = next(path for path in paths if 17.5 in path)  # the radius of a wedge
    assert round(math.degrees(math.atan2(y - end_y, end_x - x))) == (between[1] or between[0])
    assert sweep == (second[1] < 0), "clockwise on a page is downwards"
    assert [x + 50, y] in [path[:2] for path in paths], "the head of the longest arrow"
    assert (panel.state()["limit"], panel.state()["reserved"]) == (2, 4)
    assert cells_of(panel)[1][0] == "b: q (0, 0), k (0, 1)"
