"""Panels drawn as SVG by panels.js, the script that draws them in the browser.

QuickJS runs it in Python, with pen.js in place of a canvas.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import matplotlib
import numpy as np
import quickjs
from matplotlib.ft2font import FT2Font

HERE = Path(__file__).parent
PANELS = (HERE / "panels.js").read_text(encoding="utf-8")
PEN = (HERE / "pen.js").read_text(encoding="utf-8")
FONT = FT2Font(Path(matplotlib.get_data_path(), "fonts/ttf/DejaVuSans.ttf"))  # few fonts of a page are wider
FONT.set_size(1, 72)


@cache
def advance(character: str) -> float:
    """Return how far a character moves the pen, in font sizes."""
    return FONT.load_glyph(FONT.get_char_index(ord(character))).linearHoriAdvance / 2**16


def width_of(text: str) -> float:
    """Return how wide a text is, in font sizes."""
    return sum(map(advance, text), start=0.0)


def script() -> quickjs.Context:  # pyright: ignore[reportInvalidTypeForm]
    """Run both scripts and return where: a context, which only the thread that made it can use."""
    context = quickjs.Context()
    context.add_callable("widthOf", width_of)
    context.eval(PEN + PANELS)
    return context


def written(states: Sequence[Mapping[str, object]]) -> str:
    """Write what `panel.state()` says of each panel in JavaScript: JSON, and NaN and Infinity."""
    return json.dumps(states, default=lambda data: np.frombuffer(data, dtype=np.float32).tolist())


def svg_of(states: Sequence[Mapping[str, object]]) -> str:
    """Return one SVG of panels, given what `panel.state()` says of each."""
    return script().eval(f"[svgOf({written(states)})].join('')")  # join: quickjs reads no string in parts
