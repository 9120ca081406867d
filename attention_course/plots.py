"""Pictures of tensors: a panel says what is shown, matplotlib or the browser draws it.

A panel is data: tensors, a title, labels. `picture` draws panels with matplotlib for the page; the explorers
hand the same panels to the browser, which redraws them while a slider moves. Nothing here sees a model.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from io import BytesIO
from numbers import Real
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import LogLocator, MaxNLocator
from PIL import Image
from torch import Tensor

# Okabe & Ito (2008), "Color Universal Design": told apart with every common colour blindness.
BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#999999"
SKY, AMBER, BLACK = "#56B4E9", "#E69F00", "#222222"
_DIVERGING = LinearSegmentedColormap.from_list("orange_white_blue", [ORANGE, "white", BLUE])


def number(value: Real) -> str:
    """Write a value as a cell of a picture shows it: integers bare, others with two decimals."""
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{value:.0f}" if value == round(value) and abs(value) < 1e6 else f"{value:.2f}"
    return text.replace("-", "−")


def tick(value: Real) -> str:
    """Write a round value as an axis shows it: 0.05, 200, or 2·10⁻⁵ where zeros would have to be counted."""
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:g}".replace("-", "−")
    digits, power = f"{value:e}".split("e")
    raised = str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{float(digits):g}·10{raised}".removeprefix("1·").replace("-", "−")


def visible(text: str) -> str:
    """Write each newline and tab as a sign that can be seen."""
    return text.replace("\n", "↵").replace("\t", "⇥")


def sign(character: str) -> str:
    """Write a single character so that it can be seen, even a space."""
    return visible(character).replace(" ", "␣")


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
        tile: where the matrix is a sheet of square maps in reading order, one line between two of them, the
            names of the rows of a map, which are those of its columns.
        tile_label: what a map stands for.
        room: rows and columns that the browser keeps room for, so that nothing moves while the shape changes;
            those of the matrix, if left out. Cells of a larger matrix are smaller.
    """

    title: str
    values: Tensor
    row_label: str
    column_label: str
    rows: Sequence[str] | None = None
    columns: Sequence[str] | None = None
    limit: Real | None = None
    tile: Sequence[str] = ()
    tile_label: str = ""
    room: tuple[int, int] | None = None

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
            "tile": list(self.tile),
            "tile_label": self.tile_label,
            "room": list(self.room or (rows, columns)),
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
    """Curves over one common axis, and perhaps horizontal levels to compare them with.

    Both axes are logarithmic, or both linear; the heights of linear axes begin at 0.

    Attributes:
        title: what is compared.
        x: shape (N,).
        curves: a name for each curve and its heights, shape (N,). NaN and infinities are left out, and
            what is not positive where axes are logarithmic.
        x_label, y_label: the quantities on the axes, with their unit if they have one.
        log: whether the axes are logarithmic.
        levels: a name for each level and its height.
        x_limits: where the common axis begins and ends; with the curves, if left out.
    """

    title: str
    x: Tensor
    curves: dict[str, Tensor]
    x_label: str
    y_label: str
    log: bool = True
    levels: dict[str, Real] = field(default_factory=dict)
    x_limits: tuple[Real, Real] | None = None

    MOST_POINTS = 300
    MOST_MARKERS = 30  # a curve of more points gets FEW_MARKERS along its way
    FEW_MARKERS = 8
    LOOKS = tuple(zip((BLUE, ORANGE, GREEN, PURPLE, SKY, AMBER, BLACK), "os^DvPX", strict=True))
    GAP = 0.065  # between the labels of two levels, as a share of the height

    def points(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return x and y of what is drawn of a curve: some points of a long one, and always its last."""
        x, y = array(self.x), array(self.curves[name])
        shown = np.flatnonzero(np.isfinite(x) & np.isfinite(y) & (not self.log or (x > 0) & (y > 0)))
        if len(shown) > self.MOST_POINTS and self.log:
            shown = shown[np.unique(np.geomspace(1, len(shown), self.MOST_POINTS).round().astype(int)) - 1]
        elif len(shown) > self.MOST_POINTS:
            shown = np.append(shown[:: math.ceil(len(shown) / self.MOST_POINTS)], shown[-1])
        return x[shown], y[shown]

    def state(self) -> dict[str, Any]:
        """Return what the browser needs, with limits and ticks of both axes."""
        curves = {name: self.points(name) for name in self.curves}
        levels = [float(level) for level in self.levels.values()]
        x_limits = self.x_limits or self._limits([x for x, _ in curves.values()], from_zero=False)
        y_limits = self._limits([*(y for _, y in curves.values()), levels], from_zero=True)
        return {
            "kind": "Lines",
            "title": self.title,
            "curves": [{"name": name, "x": x.tobytes(), "y": y.tobytes()} for name, (x, y) in curves.items()],
            "levels": [
                {"label": label, "y": level, "at": at}
                for label, level, at in zip(self._level_labels(), levels, self._places(y_limits), strict=True)
            ],
            "log": self.log,
            "x_limits": [float(limit) for limit in x_limits],
            "y_limits": [float(limit) for limit in y_limits],
            "x_ticks": self._ticks(x_limits),
            "y_ticks": self._ticks(y_limits),
            "x_label": self.x_label,
            "y_label": self.y_label,
        }

    def _limits(self, values: list, from_zero: bool) -> tuple[Real, Real]:
        """Return limits with all the values between them, and a little room around those."""
        every = np.concatenate([np.asarray(part, dtype=float) for part in values] or [np.zeros(0)])
        if not every.size:
            return (1, 10) if self.log else (0, 1)
        low, high = every.min(), every.max()
        if self.log:
            return low / 1.15, high * 1.15
        if from_zero:
            low, high = min(low, 0), max(high, 0)
            return 1.05 * low, 1.05 * high or 1
        return (low, high) if low < high else (low - 0.5, high + 0.5)

    def _ticks(self, limits: tuple[Real, Real]) -> list[tuple[float, str]]:
        """Return where an axis has ticks, and what is written there."""
        low, high = limits
        if self.log:
            locator = LogLocator(subs=(1, 2, 5) if high / low < 200 else (1,), numticks=8)
        else:
            locator = MaxNLocator(6, steps=(1, 2, 5, 10))
        values = locator.tick_values(low, high).tolist()
        return [(value, tick(value)) for value in values if low <= value <= high]

    def _level_labels(self) -> list[str]:
        return [f"{name} {number(level)}" for name, level in self.levels.items()]

    def _places(self, limits: tuple[Real, Real]) -> list[float]:
        """Return where the labels of the levels stand, as shares of the height, none on top of another."""
        scale = np.log if self.log else np.asarray
        low, high = scale(limits)
        wanted = (scale([float(level) for level in self.levels.values()]) - low) / (high - low)
        order = np.argsort(wanted, kind="stable")
        places = np.zeros(len(order))
        below = -math.inf
        for index in order:
            places[index] = below = max(wanted[index], below + self.GAP)
        above = 1 + self.GAP
        for index in order[::-1]:
            places[index] = above = min(places[index], above - self.GAP)
        return places.tolist()

    def plot(self, axes: Axes) -> None:
        """Draw onto `axes`."""
        if self.log:
            axes.set(xscale="log", yscale="log")
        for index, name in enumerate(self.curves):
            x, y = self.points(name)
            colour, marker = self.LOOKS[index % len(self.LOOKS)]
            axes.plot(
                x,
                y,
                marker=marker,
                color=colour,
                markersize=5,
                markevery=1 if len(x) <= self.MOST_MARKERS else len(x) // self.FEW_MARKERS,
                linestyle="-" if index < len(self.LOOKS) else "--",
                label=name,
            )
        axes.set(xlabel=self.x_label, ylabel=self.y_label)
        if self.x_limits:
            axes.set_xlim(self.x_limits)
        if not self.log:
            axes.set_ylim(self.state()["y_limits"])
        for level in self.levels.values():
            axes.axhline(level, color=GREY, linestyle="--", linewidth=1.2)
        for text, place in zip(self._level_labels(), self._places(axes.get_ylim()), strict=True):
            axes.annotate(
                text,
                (1, place),
                (5, 0),
                xycoords="axes fraction",
                textcoords="offset points",
                va="center",
                fontsize=9,
                annotation_clip=False,
            )
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        if self.curves:
            axes.legend(frameon=False)


@dataclass(frozen=True, eq=False)
class Text:
    """A text in rows of characters, each in its cell, perhaps shaded; a newline is a sign of its own.

    Rows end after a newline, or after the last space that fits.

    Attributes:
        title: what the text is.
        text: what is written.
        values: shape (characters,): a cell is white at 0 and full blue at `limit`. No shading, if left out.
        framed: position of the character with a frame.
        limit: see `values`.
        label: what a value is.
    """

    title: str
    text: str
    values: Tensor | None = None
    framed: int | None = None
    limit: Real = 1
    label: str = ""

    COLUMNS = 44
    ROWS = re.compile(rf"[^\n]{{0,{COLUMNS - 1}}}(?:[ \n]|\Z)|[^\n]{{{COLUMNS}}}")
    CELL = (0.105, 0.2)  # inches, in matplotlib

    def rows(self) -> list[str]:
        """Return the rows, in which a newline is written as a sign; one empty row for an empty text."""
        return [visible(row) for row in self.ROWS.findall(self.text) if row] or [""]

    def state(self) -> dict[str, Any]:
        """Return what both ways of drawing need."""
        return {
            "kind": "Text",
            "title": self.title,
            "rows": self.rows(),
            "columns": self.COLUMNS,
            "values": b"" if self.values is None else array(self.values).tobytes(),
            "framed": self.framed,
            "limit": float(self.limit),
            "label": self.label,
        }

    def plot(self, axes: Axes) -> None:
        """Draw onto `axes`."""
        rows = self.rows()
        values = np.zeros(len(self.text)) if self.values is None else array(self.values)
        cells = [(row, column) for row, line in enumerate(rows) for column in range(len(line))]
        for index, (row, column) in enumerate(cells):
            colour = _DIVERGING(0.5 + 0.5 * min(1.0, values[index] / self.limit))
            axes.add_patch(Rectangle((column, row), 1, 1, color=colour, linewidth=0))
            axes.text(
                column + 0.5,
                row + 0.5,
                rows[row][column],
                ha="center",
                va="center_baseline",
                family="monospace",
                fontsize=10,
                color=ink_on(colour),
            )
        if self.framed is not None:
            row, column = cells[self.framed]
            axes.add_patch(
                Rectangle((column, row), 1, 1, fill=False, edgecolor=ORANGE, linewidth=2, zorder=3)
            )
        width, height = self.CELL
        axes.set(xlim=(0, self.COLUMNS), ylim=(len(rows), 0), aspect=height / width, anchor="N")
        axes.set_axis_off()


Panel = Heatmap | Bars | Histogram | Plane | Lines | Text


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
    if isinstance(panel, Text):
        return panel.CELL[0] * panel.COLUMNS + 0.2
    if isinstance(panel, Bars):
        longest = max(map(len, panel.labels), default=0)
        return max(3.0, (0.25 + 0.07 * longest) * len(panel.labels))
    return {Histogram: 4.2, Plane: 4.2, Lines: 5.4}[type(panel)]
