"""Figures of tensors: a panel says what is shown, panels.js draws it.

A panel is data: tensors, a title, labels. The explorers send panels to the browser, which redraws them while
a slider moves; `picture` has the same script draw them for the page. Nothing here knows about models.
"""

import base64
import html
from dataclasses import replace
from io import StringIO
from typing import TYPE_CHECKING

from attention_course.plots.lines import Lines
from attention_course.plots.panels import Arrows, Bars, Comparison, Heatmap, Histogram, Scatter, Text
from attention_course.plots.render import svg_of
from attention_course.plots.style import (
    AMBER,
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    SKY,
    format_number,
    format_tick,
    visible,
    visible_character,
)

if TYPE_CHECKING:  # the examiner describes its findings as panels, and needs no matplotlib for that
    import matplotlib.figure

__all__ = [
    "AMBER",
    "BLACK",
    "BLUE",
    "GREEN",
    "ORANGE",
    "PURPLE",
    "SKY",
    "Arrows",
    "Bars",
    "Comparison",
    "Heatmap",
    "Histogram",
    "Lines",
    "Panel",
    "Picture",
    "Scatter",
    "Text",
    "format_number",
    "format_tick",
    "picture",
    "visible",
    "visible_character",
]

Panel = Heatmap | Bars | Comparison | Histogram | Scatter | Arrows | Lines | Text
MOST_PANELS = 40
ALIVE = {"reserved": None, "controls": ()}  # browser-only fields

# For a drawing of matplotlib's, which knows one scheme: lightness turned round, hues as they were.
DARK = "<style>@media (prefers-color-scheme:dark){svg{filter:invert(.93) hue-rotate(180deg)}}</style></svg>"


class Picture:
    """A drawing with alt text, which a notebook displays.

    Attributes:
        svg: the drawing, in the scheme, light or dark, of the page that shows it.
        alt: the alt text.
    """

    def __init__(self, svg: str, alt: str):
        self.svg = svg
        self.alt = alt

    @classmethod
    def of(cls, figure: "matplotlib.figure.Figure", alt: str) -> "Picture":
        """Make a picture of a figure that was drawn with matplotlib."""
        from matplotlib import rc_context

        written = StringIO()
        with rc_context({"svg.hashsalt": "picture"}):  # the same figure gives the same file
            figure.savefig(written, format="svg", transparent=True, metadata={"Date": None})
        svg = written.getvalue()
        return cls(svg[svg.index("<svg") :].replace("</svg>", DARK), alt)

    def __repr__(self) -> str:
        return self.alt

    def _repr_mimebundle_(self, **_):
        source = base64.b64encode(self.svg.encode()).decode()
        image = f'<img alt="{html.escape(self.alt)}" src="data:image/svg+xml;base64,{source}">'
        return {"text/html": image, "text/plain": self.alt}


def picture(*panels: Panel, alt: str) -> Picture:
    """Draw panels side by side, as far as the page is wide.

    Args:
        *panels: what to show, in reading order.
        alt: alt text for readers who cannot see the picture.

    Returns:
        A picture that displays itself as the last line of a notebook cell.
    """
    for panel in panels:
        if not isinstance(panel, Panel):
            raise TypeError(
                f"picture: got a {type(panel).__name__}, expected panels. Wrap a tensor in one, for example "
                'Heatmap("weights", weights, "query t", "key s").'
            )
    if not 0 < len(panels) <= MOST_PANELS:
        raise ValueError(f"picture: {len(panels)} panels, expected at least one and at most {MOST_PANELS}.")
    still = [replace(panel, **{key: ALIVE[key] for key in ALIVE if hasattr(panel, key)}) for panel in panels]
    return Picture(svg_of([panel.state() for panel in still]), alt)
