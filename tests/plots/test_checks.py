"""A panel that cannot be drawn right is refused where it is made, in a sentence."""

import re

import pytest
import torch

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

pytestmark = pytest.mark.usefixtures("shapes_unchecked")


def heatmap(values=torch.zeros(2, 3), **others):  # noqa: B008
    return Heatmap("t", values, "row", "column", **others)


def bars(heights=torch.zeros(3), labels="abc", limits=(0, 1), **others):  # noqa: B008
    return Bars("t", heights, labels, "bar", limits, **others)


def comparison(values=torch.zeros(3, 2), labels="abc", names="qk", limit=1):  # noqa: B008
    return Comparison("t", values, labels, names, limit)


def arrows(values=torch.zeros(3, 2, 2), labels="abc", names="qk"):  # noqa: B008
    return Arrows("t", values, labels, names)


def histogram(density=torch.ones(2), limits=(0, 1), curve=None):  # noqa: B008
    return Histogram("t", density, limits, "x", curve)


def scatter(points=torch.zeros(3, 2), labels="abc", limits=(0, 1), **others):  # noqa: B008
    return Scatter("t", points, labels, limits, **others)


def lines(x=torch.ones(3), curve=torch.ones(3), **others):  # noqa: B008
    return Lines("t", x, {"a": curve}, "x", "y", **others)


WRONG = """
heatmap([[1.0]]) | Heatmap: values is a list, expected a tensor of shape (rows, columns)
heatmap(torch.zeros(3)) | Heatmap: values has shape (3,), expected
heatmap(torch.zeros(1, 0)) | Heatmap: values has shape (1, 0), expected at least one
heatmap(torch.zeros(2, 3) * 1j) | Heatmap: values holds torch.complex64
heatmap(torch.zeros(2, 3, device='meta')) | Heatmap: values holds torch.float32 on meta
heatmap(torch.zeros(257, 1)) | Heatmap: number of rows: 257, expected at most 256
heatmap(torch.zeros(1, 257)) | Heatmap: number of columns: 257, expected at most 256
heatmap(rows=['a', 'b', 'c']) | Heatmap: rows holds 3 names for 2 rows
heatmap(rows=[]) | Heatmap: rows holds 0 names for 2 rows
heatmap(columns=['a', 'b']) | Heatmap: columns holds 2 names for 3 columns
heatmap(limit=-1) | Heatmap: limit = -1, expected
heatmap(grid_labels=['a', 'b']) | Heatmap: shape (2, 3) is not a grid of maps of 2 by 2
heatmap(torch.zeros(5, 3), grid_labels=['a', 'b', 'c']) | Heatmap: shape (5, 3) is no
heatmap(torch.zeros(3, 5), grid_labels=['a', 'b', 'c']) | Heatmap: shape (3, 5) is no
heatmap(torch.zeros(5, 5), grid_labels=['a', 'b'], map_names=['one']) | Heatmap: map_names holds 1 names for 4
heatmap(framed=(2, 0)) | Heatmap: cell (2, 0) cannot be marked, expected (row, column), below (2, 3)
heatmap(crossed_out=[(0, 0), (0, 3)]) | Heatmap: cell (0, 3) cannot be marked
heatmap(framed=3) | Heatmap: cell 3 cannot be marked
comparison(torch.zeros(3)) | Comparison: values has shape (3,), expected
comparison(labels='ab') | Comparison: labels holds 2 names for 3 rows
comparison(names='q') | Comparison: names holds 1 names for 2 series
comparison(limit=0) | Comparison: limit = 0, expected
comparison(torch.zeros(41, 2), 41 * 'a') | Comparison: number of labels: 41, expected at most 40
arrows(torch.zeros(3, 2)) | Arrows: arrows has shape (3, 2), expected a tensor of shape (circles, 2, 2)
arrows(labels='ab') | Arrows: labels holds 2 names for 3 circles
arrows(names='qkv') | Arrows: names holds 3 names for 2 arrows
arrows(torch.zeros(41, 2, 2), 41 * 'a') | Arrows: number of circles: 41, expected at most 40
Text('t', [3]) | Text: text = [3], expected a list of str
bars(torch.zeros(3, 1)) | Bars: heights has shape (3, 1), expected a tensor of shape (bars,)
bars(labels=['a', 'b']) | Bars: labels holds 2 names for 3 bars
bars(controls=['a', 'b']) | Bars: controls holds 2 names for 3 bars
bars(limits=(0, 0)) | Bars: limits = (0, 0), expected two numbers
bars(limits=1) | Bars: limits = 1, expected two numbers
bars(torch.zeros(401), ['a'] * 401) | Bars: number of bars: 401, expected at most 400
bars(limits=(True, 2)) | Bars: limits = (True, 2), expected two numbers
bars(limits=(0, 5e-324)) | Bars: limits = (0, 5e-324), expected two numbers
Bars(3, torch.zeros(1), 'a', 'l', (0, 1)) | Bars: title = 3, expected a str
Bars('t', torch.zeros(1), 'a', 3, (0, 1)) | Bars: label = 3, expected a str
histogram(torch.tensor([1, float('inf')])) | Histogram: density holds inf
histogram(torch.tensor([1, float('nan')])) | Histogram: density holds inf, NaN
histogram(torch.tensor([1e39], dtype=torch.float64)) | Histogram: density holds inf, NaN or what is too large
histogram(curve=torch.tensor([-float('inf')])) | Histogram: curve holds inf
histogram(torch.ones(1001)) | Histogram: number of bins: 1001, expected at most 1000
histogram(curve=torch.ones(1001)) | Histogram: number of points of the curve: 1001, expected at most 1000
histogram(torch.ones(1, 2)) | Histogram: density has shape (1, 2)
histogram(limits=(0, float('inf'))) | Histogram: limits = (0, inf)
histogram(curve=torch.ones(1, 2)) | Histogram: curve has shape (1, 2)
scatter(torch.zeros(3, 3)) | Scatter: points has shape (3, 3), expected a tensor of shape (N, 2)
scatter(labels='ab') | Scatter: labels holds 2 names for 3 points
scatter(limits=(-1e308, 1e308)) | Scatter: limits = (-1e+308, 1e+308)
scatter(limits=(0, 1e39)) | Scatter: limits = (0, 1e+39)
scatter(limits=(-1e39, 0)) | Scatter: limits = (-1e+39, 0)
scatter(x_label=3) | Scatter: x_label = 3, expected a str
scatter(limits=(3, 3)) | Scatter: limits = (3, 3)
scatter(lit=torch.ones(2)) | Scatter: lit has shape (2,), expected a tensor of shape (3,)
scatter(path=torch.ones(2)) | Scatter: path has shape (2,)
scatter(path=torch.ones(0, 2)) | Scatter: path has no point
scatter(torch.zeros(1001, 2), 'a' * 1001) | Scatter: number of points: 1001
lines(torch.ones(1, 3)) | Lines: x has shape (1, 3)
lines(curve=torch.ones(2)) | Lines: curves['a'] has shape (2,), expected a tensor of shape (3,)
lines(levels={'floor': True}) | Lines: levels['floor'] = True, expected a number
Lines(3, torch.ones(3), {}, 'x', 'y') | Lines: title = 3, expected a str
Lines('t', torch.ones(3), {3: torch.ones(3)}, 'x', 'y') | Lines: names of curves = [3], expected a list of str
lines(levels={'floor': 0}) | Lines: levels['floor'] = 0, expected a number above 0
lines(x_limits=(0, 1)) | Lines: x_limits = (0, 1), expected two numbers above 0
Lines('t', torch.ones(3), None, 'x', 'y') | Lines: curves = None, expected a dict
lines(levels=[1.0]) | Lines: levels = [1.0], expected a dict
lines(levels={'floor': '1'}) | Lines: levels['floor'] = '1', expected
Text('t', torch.arange(3)) | Text: text is a Tensor, expected a str
Text('t', 'abc', torch.ones(2)) | Text: values has shape (2,), expected a tensor of shape (3,)
Text('t', 'abc', framed=3) | Text: framed = 3, expected the position of one of 3
Text('t', 'abc', limit=0) | Text: limit = 0, expected
Text('t', 4001 * 'a') | Text: number of characters: 4001, expected at most 4000. Draw a part of them: text[:
picture(torch.ones(3), alt='') | picture: got a Tensor, expected panels
picture(alt='') | picture: 0 panels
picture(*41 * [bars()], alt='') | picture: 41 panels, expected at least one and at most 40
"""


@pytest.mark.parametrize(("call", "message"), [line.split(" | ") for line in WRONG.strip().splitlines()])
def test_what_cannot_be_drawn_is_refused(call, message):
    with pytest.raises((TypeError, ValueError), match=f"^{re.escape(message)}"):
        eval(call)


def test_what_lies_just_inside_the_limits_is_drawn():
    """One step further, each of these is refused above."""
    for panel in (
        heatmap(rows=["a", "b"], columns="abc", limit=0),
        heatmap(torch.zeros(5, 3), grid_labels=["a"]),
        heatmap(framed=(1, 2), crossed_out=[(0, 0)]),
        comparison(torch.zeros(40, 2), 40 * "a", limit=1e-9),
        arrows(torch.zeros(40, 2, 2), 40 * "a"),
        lines(x_limits=(2, 3), levels={"floor": 1e-9}),
        lines(log=False, x_limits=(-1, 0), levels={"floor": -1}),
        scatter(lit=torch.ones(3), path=torch.zeros(1, 2)),
        Text("t", "abc", torch.zeros(3), framed=2, limit=1e-9),
    ):
        panel.state()
    assert len(heatmap(torch.zeros(256, 256)).state()["rows"]) == 256
    assert len(bars(torch.zeros(400), ["a"] * 400).state()["texts"]) == 400
    assert len(scatter(torch.zeros(1000, 2), "a" * 1000).state()["points"]) == 1000
    assert sum(map(len, Text("t", 4000 * "a").state()["rows"])) == 4000


@pytest.mark.parametrize(
    "panel",
    [
        bars(torch.zeros(400), ["a"] * 400),
        bars(torch.zeros(30), 30 * [26 * "a"]),
        scatter(limits=(-1e6, 1e6)),
        scatter(torch.full((3, 2), 3e38), limits=(0, 1e-37)),
        bars(3e38 * torch.ones(3), limits=(-3e38, 3e38)),
        histogram(3e38 * torch.ones(1000), (0, 1), 3e38 * torch.ones(1000)),
        Text(2000 * "t ", "\ud800"),
    ],
    ids=[
        *("many bars", "long labels", "wide limits", "narrow limits", "the widest", "a full histogram"),
        "long title, lone surrogate",
    ],
)
def test_extremes_are_drawn_in_a_small_picture(panel):
    svg = picture(panel, alt="").svg
    assert len(svg) < 200_000
    assert "NaN" not in svg
    assert "Infinity" not in svg
