"""Figures of tensors: a panel says what is shown, matplotlib or the browser draws it.

A panel is data: tensors, a title, labels. `picture` draws panels with matplotlib for the page; the explorers
send the same panels to the browser, which redraws them while a slider moves. Nothing here knows about models.
"""

from io import BytesIO

from matplotlib.figure import Figure
from PIL import Image

from attention_course.plots.ink import BLUE, ORANGE, format_number, format_tick, visible, visible_character
from attention_course.plots.lines import Lines
from attention_course.plots.panels import Arrows, Bars, Comparison, Heatmap, Histogram, Scatter, Text

__all__ = [
    "BLUE",
    "ORANGE",
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
MOST_INCHES = 300  # matplotlib's limit of 2¹⁶ pixels is 341 inches


class Picture:
    """A rendered figure with alt text, which a notebook displays.

    Attributes:
        alt: the alt text.
        png: the image at double resolution, for dense screens, reduced to 256 colours: a third of the size
            in the committed notebooks.
    """

    DPI = 192

    def __init__(self, figure: Figure, alt: str):
        drawn, reduced = BytesIO(), BytesIO()
        figure.savefig(drawn, format="png", dpi=self.DPI)
        Image.open(drawn).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(reduced, "png")
        self.alt = alt
        self.png = reduced.getvalue()
        self._width = int(figure.get_figwidth() * self.DPI / 2)

    def __repr__(self) -> str:
        return self.alt

    def _repr_mimebundle_(self, **_):
        metadata = {"image/png": {"alt": self.alt, "width": self._width}}
        return {"image/png": self.png, "text/plain": self.alt}, metadata


def picture(*panels: Panel, alt: str) -> Picture:
    """Draw panels side by side with matplotlib.

    Args:
        *panels: what to show, from left to right.
        alt: alt text for readers who cannot see the picture.

    Returns:
        A picture that displays itself as the last line of a notebook cell.

    Raises:
        TypeError: an argument is not a panel.
        ValueError: there is no panel, or together they are too wide.
    """
    for panel in panels:
        if not isinstance(panel, Panel):
            raise TypeError(
                f"picture: got a {type(panel).__name__}, expected panels. Wrap a tensor in one, for example "
                'Heatmap("weights", weights, "query t", "key s").'
            )
    widths = [panel.width for panel in panels]
    if not 0 < sum(widths) < MOST_INCHES:
        raise ValueError(
            f"picture: {len(panels)} panels, {sum(widths):.0f} inches wide together, expected at least one "
            f"and less than {MOST_INCHES} inches. Draw fewer panels, or shorten their labels."
        )
    figure = Figure(figsize=(sum(widths), 3.4), layout="constrained")
    grid = figure.subplots(1, len(panels), squeeze=False, width_ratios=widths)
    for panel, axes in zip(panels, grid[0], strict=True):
        panel.plot(axes)
        axes.set_title(panel.title, fontsize=11, parse_math=False)  # a learner's text may contain a $
    return Picture(figure, alt)
