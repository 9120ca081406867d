"""The contract of explorers, without a browser: controls move the picture, words say what was computed."""

import gc
import re
import warnings
from html import escape
from importlib import import_module
from importlib.util import find_spec

import ipywidgets
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from attention_course.explorers import EXPLORERS, explore
from attention_course.plots import Panel

SETTINGS = 300
TYPED = {
    "text": ["A", "Ann and Ann and Ann", 9 * "Tom and Sam. "],
    "heads switched off": ["", "0.0", "2.3, 0.1"],
}

each_explorer = pytest.mark.parametrize("name", EXPLORERS)
pytestmark = pytest.mark.usefixtures("short_samples")


def ends(control):
    """Return the settings of a control at which things go wrong: its ends, all its options, or texts."""
    if isinstance(control, ipywidgets.Checkbox):
        return [False, True]
    if isinstance(control, ipywidgets.Text):
        return TYPED[control.description]
    return list(control.options) if hasattr(control, "options") else [control.min, control.max]


def setting(control):
    """Draw any value that a control can have, its ends more often than the others."""
    often = st.sampled_from(ends(control))
    if not hasattr(control, "step"):
        return often
    steps = st.integers(0, round((control.max - control.min) / control.step))
    return often | steps.map(lambda step: type(control.value)(control.min + step * control.step))


def shown(explorer):
    return str([panel.state() for panel in explorer.figure.panels]) + explorer.figure.caption


@each_explorer
def test_each_control_changes_the_picture_in_the_one_figure(name):
    for key in explore(name).controls:
        explorer = explore(name)
        figure = explorer.figure
        if "masked" in explorer.controls:
            explorer.controls["masked"].value = False
        pictures = {shown(explorer)}
        for value in ends(explorer.controls[key]):
            explorer.controls[key].value = value
            pictures.add(shown(explorer))
        assert len(pictures) > 1, key
        assert explorer.figure is figure is explorer.children[1]


@pytest.mark.slow
@each_explorer
def test_moves_leave_nothing_behind(name):
    explorer = explore(name)
    ways = [(control, value) for control in explorer.controls.values() for value in ends(control)]

    def alive():
        for control, value in ways:
            control.value = value
        gc.collect()
        return sum(issubclass(type(each), Tensor | ipywidgets.Widget | Panel) for each in gc.get_objects())

    alive()
    assert alive() == alive()


@each_explorer
def test_a_still_picture_stands_by_for_pages_without_a_kernel(name):
    explorer = explore(name)
    data = explorer._repr_mimebundle_()
    assert data["text/html"].startswith(
        f'<img alt="{escape(explorer.figure.caption)}" src="data:image/svg+xml'
    )
    assert data["text/plain"] == explorer.figure.caption
    assert "application/vnd.jupyter.widget-view+json" in data


def numbers_of(panel):
    """Return all numbers that a panel shows, as one array."""
    parts = [value for value in panel.state().values() if isinstance(value, bytes)]
    parts += [curve[axis] for curve in panel.state().get("curves", []) for axis in "xy"]
    return np.concatenate([np.frombuffer(part, dtype=np.float32) for part in parts] or [np.zeros(0)])


@pytest.mark.slow
@each_explorer
def test_any_setting_is_drawn_and_put_into_true_words(name):
    """What the words have to say, the `says` of an explorer's test knows; a new rung may have none."""
    explorer = explore(name)
    own = f"explorers.test_{name}"
    says = import_module(own).says if find_spec(own) else lambda *_, **__: ()
    ways = {key: setting(control) for key, control in explorer.controls.items()}  # a text may shorten a range

    @settings(max_examples=SETTINGS)
    @given(st.fixed_dictionaries(ways))
    def at_random(values):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for key, value in values.items():
                explorer.controls[key].value = value
        values = {key: control.value for key, control in explorer.controls.items()}
        assert explorer.figure.error == ""
        for panel in explorer.figure.panels:
            assert not np.isnan(numbers_of(panel)).any()
        caption = explorer.figure.caption
        assert not re.search(r"\bnan\b|\binf\b", caption)
        for words in says(EXPLORERS[name].compute(**values), **values):
            assert words in caption

    at_random()


def test_two_explorers_do_not_disturb_each_other():
    first, second = explore("bag_of_words"), explore("bag_of_words")
    caption = second.figure.caption
    first.controls["t"].value = 7
    assert second.figure.caption == caption


def test_a_name_or_a_subject_that_is_not_known_is_refused_with_those_that_are():
    with pytest.raises(ValueError, match=r"no explorer called 'bag_of_word'. Did you mean 'bag_of_words'"):
        explore("bag_of_word")
    with pytest.raises(TypeError, match=r"'sampling' takes no 'text'. It takes: model, tokenizer, prompt\."):
        explore("sampling", text="red")
    with pytest.raises(TypeError, match=r"'rotary' takes no 'text'. It takes no arguments"):
        explore("rotary", text="red")
