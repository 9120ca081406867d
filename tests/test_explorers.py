"""The explorers without a browser: what they compute, what they show, and what they do with an error."""

import gc
import math
from itertools import cycle, islice

import ipywidgets
import numpy as np
import psutil
import pytest
import torch

from attention_course.averaging import causal_mean_loop
from attention_course.explorers import (
    EXPLORERS,
    bag_of_words,
    explore,
    masked_softmax,
    tril_matmul,
)
from attention_course.explorers.engine import Explorer
from attention_course.plots import Bars

each_explorer = pytest.mark.parametrize("name", EXPLORERS)
pytestmark = pytest.mark.usefixtures("short_samples")


def ends(control):
    """Return the settings of a control at which things go wrong: its ends, or all its options."""
    if isinstance(control, ipywidgets.Checkbox):
        return [False, True]
    if isinstance(control, ipywidgets.Dropdown | ipywidgets.SelectionSlider | ipywidgets.ToggleButtons):
        return list(control.options)
    return [control.min, control.max]


@each_explorer
def test_each_control_changes_the_picture(name):
    for key in explore(name).controls:
        explorer = explore(name)
        if "masked" in explorer.controls:
            explorer.controls["masked"].value = False
        control = explorer.controls[key]
        start = _shown(explorer)
        assert any(_shown_after(control, value, explorer) != start for value in ends(control)), key


def _shown(explorer):
    return str([panel.state() for panel in explorer.figure.panels]) + explorer.figure.caption


def _shown_after(control, value, explorer):
    control.value = value
    return _shown(explorer)


@each_explorer
def test_one_figure_for_all_changes(name):
    explorer = explore(name)
    figure = explorer.figure
    for control in explorer.controls.values():
        for value in ends(control):
            control.value = value
    assert explorer.figure is figure
    assert explorer.children[1] is figure


@each_explorer
def test_a_thousand_moves_leave_the_memory_as_it_was(name):
    explorer = explore(name)
    ways = cycle([(control, value) for control in explorer.controls.values() for value in ends(control)])
    process = psutil.Process()

    def memory_after(moves):
        for control, value in islice(ways, moves):
            control.value = value
        gc.collect()
        return process.memory_info().rss

    before = memory_after(300)
    assert memory_after(1000) - before < 5 * 2**20


@each_explorer
def test_a_still_picture_stands_by_for_pages_without_a_kernel(name):
    explorer = explore(name)
    data, metadata = explorer._repr_mimebundle_()
    assert data["image/png"].startswith(b"\x89PNG")
    assert data["text/plain"] == metadata["image/png"]["alt"] == explorer.figure.caption
    assert "application/vnd.jupyter.widget-view+json" in data


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


def test_two_explorers_do_not_disturb_each_other():
    first, second = explore("bag_of_words"), explore("bag_of_words")
    caption = second.figure.caption
    first.controls["t"].value = 7
    assert second.figure.caption == caption


def test_unknown_name_lists_the_names():
    with pytest.raises(
        ValueError, match=r"no explorer called 'bag_of_word'. Did you mean 'bag_of_words'.*tril"
    ):
        explore("bag_of_word")


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


@pytest.mark.parametrize("order", bag_of_words.ORDERS)
def test_bag_of_words_computes_the_mean_of_what_is_seen(order):
    for t in range(8):
        out = bag_of_words.compute(t, order)
        assert out["seen"].sum() == t + 1
        torch.testing.assert_close(out["means"][-1], out["tokens"][out["seen"]].mean(dim=0))


def test_bag_of_words_ends_at_one_mean_in_every_order():
    last = [bag_of_words.compute(7, order)["means"][-1] for order in bag_of_words.ORDERS]
    for mean in last:
        torch.testing.assert_close(mean, last[0])


def test_tril_matmul_with_triangle_and_normalising_is_the_mean_of_the_past():
    out = tril_matmul.compute(T=6, decay=1.0, triangle=True, normalise=True)
    torch.testing.assert_close(out["output"], causal_mean_loop(out["tokens"]))


def test_tril_matmul_without_decay_left_keeps_the_token():
    out = tril_matmul.compute(T=6, decay=0.0, triangle=True, normalise=True)
    torch.testing.assert_close(out["output"], out["tokens"])


def test_tril_matmul_decay_falls_with_distance():
    weights = tril_matmul.compute(T=4, decay=0.5, triangle=False, normalise=False)["weights"]
    assert weights[1].tolist() == [0.5, 1.0, 0.5, 0.25]


def test_masked_softmax_hides_key_3_and_reads_the_entropy_out():
    out = masked_softmax.compute(0.0, 0.0, 0.0, 5.0, temperature=1.0, masked=True)
    torch.testing.assert_close(out["weights"], torch.tensor([1 / 3, 1 / 3, 1 / 3, 0]))
    explorer = explore("masked_softmax")
    for key in range(3):
        explorer.controls[f"score_{key}"].value = 0
    assert f"Entropy of its weights: {math.log(3):.2f} nats, of at most ln 3" in explorer.figure.caption


def test_masked_softmax_temperature_divides_the_scores():
    cold = masked_softmax.compute(0.0, 1.0, 2.0, 3.0, temperature=0.5, masked=False)
    torch.testing.assert_close(cold["weights"], torch.softmax(torch.tensor([0.0, 2.0, 4.0, 6.0]), 0))
    torch.testing.assert_close(cold["exp"] / cold["exp"].sum(), cold["weights"])
