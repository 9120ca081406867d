"""Numbers and characters are written so that they can be read; the browser has the same colours."""

import math
import re
from pathlib import Path

import pytest

from attention_course import explorers
from attention_course.plots import Lines, format_number, format_tick, visible, visible_character


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
    assert format_number(value) == text
    assert format_number(math.nan) == "nan"


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
    assert format_tick(value) == text


def test_signs_for_what_cannot_be_seen():
    assert visible("a b\n\t") == "a b↵⇥"
    assert visible("\x00\x1fé\x7f\x9f\xa0\ud800\udfff\ue000") == "��é��\xa0��\ue000"
    assert [visible_character(character) for character in "a \n\t"] == ["a", "␣", "↵", "⇥"]


def test_the_browser_has_the_same_colours():
    script = (Path(explorers.__file__).parent / "panels.js").read_text()
    light = re.search(r"light: \[(.*?)\]", script)[1]
    assert re.findall(r"#\w{6}", light) == [colour.lower() for colour, _ in Lines.LOOKS]
