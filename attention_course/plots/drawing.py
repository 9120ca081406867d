"""Panels as SVG: panels.js, which draws them in the browser, run by QuickJS with a pen that writes SVG."""

import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import quickjs
from matplotlib.font_manager import findfont
from matplotlib.ft2font import FT2Font

HERE = Path(__file__).parent
PANELS = (HERE / "panels.js").read_text(encoding="utf-8")
SCRIPT = (HERE / "pen.js").read_text(encoding="utf-8") + PANELS
SIZE = 100  # points, in which texts are measured


@cache
def width_of(text: str) -> float:
    """Return how wide a text is, in font sizes. DejaVu Sans is as wide as any font that a page may use."""
    font = FT2Font(findfont("DejaVu Sans"))
    font.set_size(SIZE, 72)
    font.set_text(text)
    return font.get_width_height()[0] / 64 / SIZE


def svg_of(states: Sequence[Mapping[str, object]]) -> str:
    """Return the SVG of panels, given what `panel.state()` says of each."""
    context = quickjs.Context()  # one for each picture: a context belongs to a thread
    context.add_callable("widthOf", width_of)
    context.eval(SCRIPT)
    return context.eval(f"still({literal(states)})")


def literal(value: object) -> str:
    """Write a state in JavaScript: as JSON, but for bytes, which hold float32 numbers, and for infinities."""
    if isinstance(value, bytes):
        return f"new Float32Array({literal(np.frombuffer(value, dtype=np.float32).tolist())})"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{json.dumps(key)}:{literal(part)}" for key, part in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ",".join(map(literal, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    return json.dumps(value)
