"""The figure of an explorer: created once, redrawn by the browser while a slider moves."""

from pathlib import Path

import anywidget
import traitlets

from attention_course.plots import Panel, Picture, picture
from attention_course.plots.render import PANELS
from attention_course.plots.style import bundle, coloured

HERE = Path(__file__).parent


class LiveFigure(anywidget.AnyWidget):
    """Panels from `attention_course.plots`, drawn by the browser, with a caption in words.

    Attributes:
        panels: what is shown, from left to right.
        caption: one or two sentences with the numbers that matter; also the alt text.
        error: an error message; empty if there is none.
        controls: maps the names of the widgets that redraw the figure to their model ids; empty if there are
            none.
        settings: the values of these controls for the current panels. The browser draws panels from its cache
            at once, and still asks the kernel.
    """

    _esm = bundle(PANELS, HERE / "figure.js")
    _css = coloured((HERE / "figure.css").read_text(encoding="utf-8"))

    panels = traitlets.Tuple().tag(sync=True, to_json=lambda panels, _: [panel.state() for panel in panels])
    caption = traitlets.Unicode().tag(sync=True)
    error = traitlets.Unicode().tag(sync=True)
    controls = traitlets.Dict(traitlets.Unicode()).tag(sync=True)
    settings = traitlets.List().tag(sync=True)

    def show(self, *panels: Panel, caption: str) -> None:
        """Replace panels and caption, in one message to the browser."""
        with self.hold_sync():
            self.panels = panels
            self.caption = caption
            self.error = ""

    def still(self) -> Picture:
        """Draw the current panels for a page without a kernel."""
        return picture(*self.panels, alt=self.caption)
