"""Numbers and characters are written so that they can be read; the browser has the same colours."""

import json
import math
from pathlib import Path

from attention_course.plots import format_number, format_tick, visible, visible_character
from attention_course.plots.render import script
from attention_course.plots.style import COLOURS, format_numbers

ROOT = Path(__file__).resolve().parents[2]


def test_numbers_and_ticks():
    values = [0.0, -0.0, 3.0, -2.0, 0.5, -1 / 3, math.inf, -math.inf, math.nan]
    assert " ".join(map(format_number, values)) == "0 0 3 −2 0.50 −0.33 ∞ −∞ nan"
    assert [format_number(value) for value in (9999, -10_000, 36238.786)] == ["9999", "−10,000", "36,238.79"]
    ticks = [0, -0.5, 20, 0.001, 20_000, 1e5, 2e-5, -5e8]
    assert " ".join(map(format_tick, ticks)) == "0 −0.5 20 0.001 20000 10⁵ 2·10⁻⁵ −5·10⁸"


def test_signs_for_what_cannot_be_seen():
    assert visible("a b\n\t") == "a b↵⇥"
    assert visible("\x00\x1fé\x7f\x9f\xa0\ud800\udfff\ue000") == "��é��\xa0��\ue000"
    assert [visible_character(character) for character in "a \n\t"] == ["a", "␣", "↵", "⇥"]


def test_the_browser_writes_the_same_numbers():
    """Ties among them: 1/8 is 0.12 in Python, and would be 0.13 with JavaScript's toFixed alone."""
    values = [numerator / 16 for numerator in range(-40, 41)]
    values += [0.005, -2 / 3, 0.995, 1234.5678, -36238.786, 1e6]
    written = json.loads(script().eval(f"[{values}, [1, -2], [1, 2.5], [5, 12345]].map(numbers)").json())
    assert written == [format_numbers(values), ["1", "−2"], ["1.00", "2.50"], ["5", "12,345"]]


def test_numbers_of_a_panel_are_written_alike():
    assert format_numbers([0, 1, -math.inf]) == ["0", "1", "−∞"]
    assert format_numbers([0, 0.5, 1, -math.inf]) == ["0.00", "0.50", "1.00", "−∞"]


def test_no_colour_of_the_course_is_written_twice():
    """Neither in a script nor in a style, a module or a tool: all have it from colours.json."""
    written = {theme[name] for theme in COLOURS.values() for name in theme if name != "black"}
    for folder in ("attention_course", "tools"):
        for path in (ROOT / folder).rglob("*.*"):
            if path.suffix in (".py", ".js", ".css", ".html"):
                text = path.read_text(encoding="utf-8").lower()
                assert not [colour for colour in written if colour in text], path
