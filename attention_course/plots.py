"""Pictures of tensors: a panel says what is shown, matplotlib or the browser draws it.

A panel is data: tensors, a title, labels. `picture` draws panels with matplotlib for the page; the explorers
hand the same panels to the browser, which redraws them while a slider moves. Nothing here sees a model.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from numbers import Real
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

# Okabe & Ito (2008), "Color Universal Design": told apart with every common colour blindness.
BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#999999"
_DIVERGING = LinearSegmentedColormap.from_list("orange_white_blue", [ORANGE, "white", BLUE])


def number(value: Real) -> str:
    """Write a value as a cell of a picture shows it: integers bare, others with two decimals."""
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{value:.0f}" if value == round(value) and abs(value) < 1e6 else f"{value:.2f}"
    return text.replace("-", "−")


def array(tensor: Tensor) -> np.ndarray:
    """Copy a tensor of any dtype, on any device, to float32 numbers that matplotlib can draw."""
    return tensor.detach().float().cpu().numpy()


def ink_on(rgba: Sequence[float]) -> str:
    """Choose the text colour that stands out, by the relative luminance of WCAG 2."""
    red, green, blue, _ = (channel**2.2 for channel in rgba)
    return "#111111" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 else "white"


@dataclass(frozen=True, eq=False)
class Heatmap:
    """A matrix as coloured cells: white is 0, blue above, orange below; numbers where they fit.

    Attributes:
        title: what the matrix is.
        values: shape (rows, columns).
        row_label, column_label: what a row and a column stand for.
        rows, columns: a name for each; 0, 1, 2, ... if left out.
        limit: the absolute value with the full colour; the largest finite one if left out.
    """

    title: str
    values: Tensor
    row_label: str
    column_label: str
    rows: Sequence[str] | None = None
    columns: Sequence[str] | None = None
    limit: Real | None = None

    MOST_NUMBERS = 160

    def state(self) -> dict[str, Any]:
        """Return what both ways of drawing need, with the defaults filled in."""
        values = array(self.values)
        rows, columns = values.shape
        numbered = values.size <= self.MOST_NUMBERS
        limit = self.limit or np.abs(values[np.isfinite(values)]).max(initial=0) or 1.0
        return {
            "kind": "Heatmap",
            "title": self.title,
            "values": values.tobytes(),
            "rows": list(self.rows or map(str, range(rows))),
            "columns": list(self.columns or map(str, range(columns))),
            "texts": [number(value) for value in values.flatten().tolist()] if numbered else [],
            "row_label": self.row_label,
            "column_label": self.column_label,
            "limit": float(limit),
        }

    def plot(self, axes: Axes) -> None:
        """Draw onto `axes`."""
        state = self.state()
        values = array(self.values)
        finite = np.where(np.isfinite(values), values, 0)  # NaN and infinities are written, not coloured
        image = axes.imshow(finite, cmap=_DIVERGING, vmin=-state["limit"], vmax=state["limit"])
        axes.set(xlabel=self.column_label, ylabel=self.row_label)
        for axis, names in ((axes.xaxis, state["columns"]), (axes.yaxis, state["rows"])):
            step = max(1, round(len(names) / 18))
            axis.set_ticks(range(0, len(names), step), names[::step])
            axis.set_tick_params(labelsize=8 if len(names) > 10 else 10)
        for cell, text in enumerate(state["texts"]):
            row, column = divmod(cell, values.shape[1])
            colour = ink_on(image.to_rgba(finite[row, column]))
            axes.text(column, row, text, ha="center", va="center", fontsize=8, color=colour)
        axes.tick_params(length=0)
        axes.spines[:].set_color("#cccccc")


@dataclass(frozen=True, eq=False)
class Bars:
    """A row of numbers as bars, with the number written at each.

    Attributes:
        title: what the numbers are.
        heights: shape (bars,); -inf is written, not drawn.
        labels: a name for each bar.
        label: what a bar stands for.
        limits: lowest and highest height that is shown.
    """

    title: str
    heights: Tensor
    labels: Sequence[str]
    label: str
    limits: tuple[Real, Real]

    def state(self) -> dict[str, Any]:
        """Return what both ways of drawing need."""
        heights = array(self.heights)
        return {
            "kind": "Bars",
            "title": self.title,
            "heights": heights.tobytes(),
            "texts": [number(height) for height in heights.tolist()],
            "labels": list(self.labels),
            "label": self.label,
            "limits": list(self.limits),
        }

    def plot(self, axes: Axes) -> None:
        """Draw onto `axes`."""
        heights = np.nan_to_num(array(self.heights), posinf=0, neginf=0).clip(*self.limits)
        low, high = self.limits
        axes.bar(list(self.labels), heights, color=BLUE, width=0.7)
        axes.axhline(0, color=GREY, linewidth=1)
        for bar, (height, text) in enumerate(zip(heights.tolist(), self.state()["texts"], strict=True)):
            axes.annotate(
                text,
                (bar, height),
                (0, 3 if height >= 0 else -3),
                textcoords="offset points",
                ha="center",
                va="bottom" if height >= 0 else "top",
                fontsize=9,
            )
        room = 0.12 * (high - low)
        axes.set(xlabel=self.label, ylim=(low - room if low < 0 else low, high + room))
        axes.spines[["top", "right"]].set_visible(False)


@dataclass(frozen=True, eq=False)
class Histogram:
    """How often values fall into each of many bins, as a density, and perhaps a curve that predicts it.

    Attributes:
        title: what the values are.
        density: shape (bins,): share of the values in each bin, divided by the width of a bin.
        limits: where the first bin begins and the last one ends.
        x_label: what the values are, with their unit if they have one.
        curve: shape (N,): the predicted density at N points, evenly from limit to limit.
    """

    title: str
    density: Tensor
    limits: tuple[Real, Real]
    x_label: str
    curve: Tensor | None = None

    def state(self) -> dict[str, Any]:
        """Return what both ways of drawing need."""
        low, high = self.limits
        return {
            "kind": "Histogram",
            "title": self.title,
            "density": array(self.density).tobytes(),
            "curve": b"" if self.curve is None else array(self.curve).tobytes(),
            "limits": [float(low), float(high)],
            "ticks": [number(low), number((low + high) / 2), number(high)],
            "x_label": self.x_label,
        }

    def plot(self, axes: Axes) -> None:
        """Draw onto `axes`."""
        density = array(self.density)
        low, high = self.limits
        edges = np.linspace(low, high, len(density) + 1)
        axes.stairs(density, edges, fill=True, color=BLUE, alpha=0.75, label="measured")
        if self.curve is not None:
            curve = array(self.curve)
            axes.plot(np.linspace(low, high, len(curve)), curve, color=ORANGE, linewidth=2, label="predicted")
            axes.legend(frameon=False)
        axes.set(xlabel=self.x_label, ylabel="density", xlim=self.limits)
        axes.spines[["top", "right"]].set_visible(False)


@dataclass(frozen=True, eq=False)
class Plane:
    """Points in the plane, some of them lit, and perhaps a path that ends in a ring.

    Attributes:
        title: what is shown.
        points: shape (N, 2).
        labels: a name for each point.
        limits: where both axes begin and end.
        lit: shape (N,), boolean: points drawn in full colour; the others are pale. All, if left out.
        path: shape (M, 2), M >= 1: joined by a line.
        x_label, y_label: what the two coordinates are.
    """

    title: str
    points: Tensor
    labels: Sequence[str]
    limits: tuple[Real, Real]
    lit: Tensor | None = None
    path: Tensor | None = None
    x_label: str = "channel 0"
    y_label: str = "channel 1"

    def state(self) -> dict[str, Any]:
        """Return what both ways of drawing need."""
        return {
            "kind": "Plane",
            "title": self.title,
            "points": self.points.tolist(),
            "labels": list(self.labels),
            "limits": list(self.limits),
            "lit": [True] * len(self.points) if self.lit is None else self.lit.tolist(),
            "path": [] if self.path is None else self.path.tolist(),
            "x_label": self.x_label,
            "y_label": self.y_label,
        }

    def plot(self, axes: Axes) -> None:
        """Draw onto `axes`."""
        state = self.state()
        if self.path is not None:
            axes.plot(*array(self.path).T, "-o", color=ORANGE, markersize=4, linewidth=2)
            axes.plot(
                *array(self.path)[-1], "o", color=ORANGE, markersize=15, fillstyle="none", markeredgewidth=2.5
            )
        for point, label, lit in zip(state["points"], self.labels, state["lit"], strict=True):
            axes.plot(*point, "o", color=BLUE if lit else "#bfd4e0", markersize=9)
            ink = "#222222" if lit else GREY
            axes.annotate(label, point, (8, 6), textcoords="offset points", color=ink, fontsize=9)
        axes.set(xlabel=self.x_label, ylabel=self.y_label, aspect="equal", xlim=self.limits, ylim=self.limits)
        axes.spines[["top", "right"]].set_visible(False)


@dataclass(frozen=True, eq=False)
class Lines:
    """Curves over one common axis, both axes logarithmic.

    Attributes:
        title: what is compared.
        x: shape (N,), positive.
        curves: a name for each curve and its heights, shape (N,), positive.
        x_label, y_label: the quantities on the axes, with their unit if they have one.
    """

    title: str
    x: Tensor
    curves: dict[str, Tensor]
    x_label: str
    y_label: str

    def plot(self, axes: Axes) -> None:
        """Draw onto `axes`."""
        looks = zip((BLUE, ORANGE, GREEN, PURPLE), "os^D", strict=True)
        for (name, y), (colour, marker) in zip(self.curves.items(), looks, strict=False):
            axes.loglog(array(self.x), array(y), marker=marker, color=colour, markersize=5, label=name)
        axes.set(xlabel=self.x_label, ylabel=self.y_label)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)


Panel = Heatmap | Bars | Histogram | Plane | Lines


class Picture:
    """A drawn figure that a notebook shows, with words for those who cannot see it.

    Attributes:
        alt: what the picture shows, in words.
        png: the picture, two pixels to a point on the page so that it is sharp on dense screens, and in 256
            colours, which is a third of the size in every notebook that is committed.
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
        alt: what the picture shows, in words; a reader who cannot see it gets this.

    Returns:
        A picture that displays itself as the last line of a notebook cell.
    """
    widths = [_width(panel) for panel in panels]
    figure = Figure(figsize=(sum(widths), 3.4), layout="constrained")
    grid = figure.subplots(1, len(panels), squeeze=False, width_ratios=widths)
    for panel, axes in zip(panels, grid[0], strict=True):
        panel.plot(axes)
        axes.set_title(panel.title, fontsize=11)
    return Picture(figure, alt)


def _width(panel: Panel) -> float:
    """Inches: a heatmap of few columns is narrow, so that cells have one size along a row of panels."""
    if isinstance(panel, Heatmap):
        rows, columns = panel.values.shape
        return 1.0 + min(2.6 * columns / max(rows, columns), 2.6) + 0.2
    return {Bars: 3.0, Histogram: 4.2, Plane: 4.2, Lines: 5.4}[type(panel)]
