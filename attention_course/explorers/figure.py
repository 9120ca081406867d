"""The picture of an explorer: made once, redrawn by the browser while a slider moves."""

from pathlib import Path

import anywidget
import traitlets

from attention_course.plots import Panel, Picture, picture

HERE = Path(__file__).parent


class LiveFigure(anywidget.AnyWidget):
    """Panels from `attention_course.plots`, drawn by the browser, with a caption in words.

    Attributes:
        panels: what is shown, from left to right.
        caption: one or two sentences with the numbers that matter; also the picture's alt text.
        error: what went wrong, in words; empty while all is well.
        controls: the model ids of the widgets that the picture follows; none for one that runs by itself.
        settings: of the controls, in their order, when this picture was made. The browser draws a picture
            that it knows at once, and asks the kernel all the same.
    """

    _esm = "\n".join((HERE / name).read_text(encoding="utf-8") for name in ("panels.js", "figure.js"))
    _css = HERE / "figure.css"

    panels = traitlets.Tuple().tag(sync=True, to_json=lambda panels, _: [panel.state() for panel in panels])
    caption = traitlets.Unicode().tag(sync=True)
    error = traitlets.Unicode().tag(sync=True)
    controls = traitlets.List(traitlets.Unicode()).tag(sync=True)
    settings = traitlets.List().tag(sync=True)

    def show(self, *panels: Panel, caption: str) -> None:
        """Replace what is shown, in one message to the browser."""
        with self.hold_sync():
            self.panels = panels
            self.caption = caption
            self.error = ""

    def still(self) -> Picture:
        """Return what is shown now as a matplotlib picture, for a page without a kernel."""
        return picture(*self.panels, alt=self.caption)
