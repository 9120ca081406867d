"""Curves: what is drawn of them, where their axes end, and where the labels of levels stand."""

import itertools
import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attention_course.plots import Lines, picture


def numbers(data):
    return np.frombuffer(data, dtype=np.float32).tolist()


def test_lines_skip_what_was_not_measured_or_has_no_logarithm():
    y = torch.tensor([4.0, math.nan, 0, -1, math.inf, 2])
    for log, shown in ((False, [0, 2, 3, 5]), (True, [5])):
        (curve,) = Lines("t", torch.arange(6), {"a": y}, "x", "y", log=log).state()["curves"]
        assert (numbers(curve["x"]), numbers(curve["y"])) == (shown, y[shown].tolist())


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
    svg = picture(Lines("many", x, {f"curve {i}": x + i for i in range(9)}, "x", "y"), alt="").svg
    drawn = re.findall(
        r'<path class="(c\d+)" d="M[^"]*L[^"]*L?[^"]*" stroke-width="2"( stroke-dasharray="[^"]+")?', svg
    )
    assert len(set(drawn)) == 9
    assert re.findall(r">(curve \d)<", svg) == [f"curve {i}" for i in range(9)]


@pytest.mark.parametrize("log", [False, True])
def test_levels_stand_at_their_heights_and_their_labels_apart(log):
    levels = {"top": 3.0, "bottom": 0.11, "second": 1.45, "third": 1.41}
    x = torch.tensor([1.0, 2.0])
    state = Lines("levels", x, {"a": x}, "x", "y", log=log, levels=levels).state()
    labels, places = zip(*((level["label"], level["at"]) for level in state["levels"]), strict=True)
    assert labels == ("top 3", "bottom 0.11", "second 1.45", "third 1.41")
    assert np.argsort(places).tolist() == [1, 3, 2, 0]
    low, high = state["y_limits"]
    scale = math.log if log else float
    assert places[1] == pytest.approx((scale(0.11) - scale(low)) / (scale(high) - scale(low)))


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
    assert panel.state()["x_limits"] == [0, 600]
    assert panel.state()["y_limits"][0] == 0
