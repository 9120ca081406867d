"""Figures of tensors: a panel says what is shown, matplotlib or the browser draws it.

A panel is data: tensors, a title, labels. `picture` draws panels with matplotlib for the page; the explorers
send the same panels to the browser, which redraws them while a slider moves. Nothing here knows about models.
"""

from collections.abc import Sequence
from io import BytesIO
from textwrap import wrap

from matplotlib.figure import Figure
from PIL import Image

from attention_course.plots.ink import (
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
from attention_course.plots.lines import Lines
from attention_course.plots.panels import Arrows, Bars, Comparison, Heatmap, Histogram, Scatter, Text

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
LETTER = 0.078  # inches of a title
PAGE = 6.6  # inches: 640 CSS pixels, which the page need not shrink
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
        figure.savefig(drawn, format="png", dpi=self.DPI, bbox_inches="tight")
        image = Image.open(drawn).convert("RGB")
        image.quantize(256, dither=Image.Dither.NONE).save(reduced, "png")
        self.alt = alt
        self.png = reduced.getvalue()
        self._width = image.width // 2

    def __repr__(self) -> str:
        return self.alt

    def _repr_mimebundle_(self, **_):
        metadata = {"image/png": {"alt": self.alt, "width": self._width}}
        return {"image/png": self.png, "text/plain": self.alt}, metadata


def picture(*panels: Panel, alt: str) -> Picture:
    """Draw panels with matplotlib, side by side as far as the page is wide.

    Args:
        *panels: what to show, in reading order.
        alt: alt text for readers who cannot see the picture.

    Returns:
        A picture that displays itself as the last line of a notebook cell.

    Raises:
        TypeError: an argument is not a panel.
        ValueError: there is no panel, or together they are too large.
    """
    for panel in panels:
        if not isinstance(panel, Panel):
            raise TypeError(
                f"picture: got a {type(panel).__name__}, expected panels. Wrap a tensor in one, for example "
                'Heatmap("weights", weights, "query t", "key s").'
            )
    rows = rows_of(panels)
    width = max((sum(panel.width for panel in row) for row in rows), default=0)
    heights = [max(panel.height for panel in row) for row in rows]
    if not 0 < max(width, sum(heights)) < MOST_INCHES:
        raise ValueError(
            f"picture: {len(panels)} panels, {width:.0f} by {sum(heights):.0f} inches together, expected at "
            f"least one and less than {MOST_INCHES} inches. Draw fewer panels, or shorten their labels."
        )
    figure = Figure(figsize=(width, sum(heights)), layout="constrained")
    parts = figure.subfigures(len(rows), 1, squeeze=False, height_ratios=heights)
    for part, row in zip(parts[:, 0], rows, strict=True):
        widths = [panel.width for panel in row]
        blank = [width - sum(widths)] if width - sum(widths) > 0.5 else []
        grid = part.add_gridspec(1, len(row) + len(blank), width_ratios=widths + blank)
        for cell, panel in zip(grid, row, strict=False):
            axes = part.add_subplot(cell)
            panel.plot(axes)
            title = "\n".join(wrap(panel.title, int(panel.width / LETTER)))
            axes.set_title(title, fontsize=10, parse_math=False)  # a learner's text may contain a $
    return Picture(figure, alt)


def rows_of(panels: Sequence[Panel]) -> list[list[Panel]]:
    """Break panels into rows that are no wider than the page."""
    rows: list[list[Panel]] = []
    for panel in panels:
        if rows and sum(each.width for each in rows[-1]) + panel.width <= PAGE:
            rows[-1].append(panel)
        else:
            rows.append([panel])
    return rows
