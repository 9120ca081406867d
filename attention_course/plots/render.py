"""Panels drawn as SVG by panels.js, the script that draws them in the browser.

QuickJS runs it in Python, with svg_canvas.js in place of a canvas.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import quickjs

from attention_course.plots.style import bundle

HERE = Path(__file__).parent
PANELS = HERE / "panels.js"
SVG_CANVAS = HERE / "svg_canvas.js"


def script() -> "quickjs.Context":  # pyright: ignore[reportInvalidTypeForm]
    """Run both scripts and return where: a context, which only the thread that made it can use."""
    import quickjs

    context = quickjs.Context()
    context.eval(bundle(SVG_CANVAS, PANELS))
    return context


def written(states: Sequence[Mapping[str, object]]) -> str:
    """Write what `panel.state()` says of each panel in JavaScript: JSON, and NaN and Infinity."""
    return json.dumps(states, default=lambda data: np.frombuffer(data, dtype=np.float32).tolist())


def svg_of(states: Sequence[Mapping[str, object]]) -> str:
    """Return one SVG of panels, given what `panel.state()` says of each."""
    return script().eval(f"[svgOf({written(states)})].join('')")  # join: quickjs reads no string in parts
