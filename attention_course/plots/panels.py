"""Panels of one tensor each: a heatmap, bar charts, a histogram, a scatter plot, arrows, a text.

`state` returns the data that the browser draws; `plot` draws the same with matplotlib.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, product
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Circle, Rectangle, Wedge
from torch import Tensor

from attention_course.plots.checks import check_count, check_limits, check_names, check_values, real
from attention_course.plots.ink import (
    AMBER,
    BLACK,
    BLUE,
    DIVERGING,
    GREEN,
    GREY,
    LOOKS,
    PURPLE,
    Number,
    format_number,
    format_numbers,
    ink_on,
    to_numpy,
    visible,
)

SMALL = 8.5  # points of the smallest letter: 11 CSS pixels are 8.25
CHARACTER = 0.075  # inches of a digit of that size


@dataclass(frozen=True, eq=False)
class Heatmap:
    """A heatmap: white is 0, blue positive, orange negative; values are written into the cells if they fit.

    Attributes:
        title: the title.
        values: shape (rows, columns).
        row_label, column_label: axis labels.
        rows, columns: tick labels; 0, 1, 2, ... if left out.
        limit: the absolute value with full colour; the largest finite one if left out.
        tile: for a grid of square maps in reading order, separated by one row or column: the labels of the
            rows of a map, which are also those of its columns.
        tile_label: what a map stands for.
        room: rows and columns that the browser reserves space for, so that the layout stays fixed while the
            shape changes; those of the matrix if left out. Cells of a larger matrix are smaller.
        framed: row and column of the cell with a frame.
        crossed: rows and columns of the cells that are crossed out.
        unit: the unit of the values, which follows each that is told in words.

    Raises:
        TypeError: values is not a tensor of real numbers, or names are not strings.
        ValueError: sizes do not match, the limit is negative, or there is no such cell to mark.
    """

    title: str
    values: Tensor
    row_label: str
    column_label: str
    rows: Sequence[str] | None = None
    columns: Sequence[str] | None = None
    limit: Number | None = None
    tile: Sequence[str] = ()
    tile_label: str = ""
    room: tuple[int, int] | None = None
    framed: tuple[int, int] | None = None
    crossed: Sequence[tuple[int, int]] = ()
    unit: str = ""

    MOST_NUMBERS = 160
    CELL, CELLS = 0.3, 4.6  # inches in matplotlib: a cell, at least, and all together, at most

    def __post_init__(self):
        check_values(self.values, "Heatmap: values", "rows", "columns")
        rows, columns = self.values.shape
        if not rows * columns:
            raise ValueError(f"Heatmap: values has shape ({rows}, {columns}), expected at least one entry.")
        if self.rows is not None:
            check_names(self.rows, "Heatmap: rows", rows, "rows")
        if self.columns is not None:
            check_names(self.columns, "Heatmap: columns", columns, "columns")
        if self.limit is not None and not real(self.limit) >= 0:
            raise ValueError(f"Heatmap: limit = {self.limit!r}, expected an absolute value, at least 0.")
        side = len(self.tile) + 1
        if (rows + 1) % side or (columns + 1) % side:
            raise ValueError(
                f"Heatmap: shape ({rows}, {columns}) is not a grid of maps of {side - 1} by {side - 1}, one"
                " line apart. Leave tile out, or give a name for each row of a map."
            )
        cells = set(product(range(rows), range(columns)))
        for cell in [*self.crossed, *([] if self.framed is None else [self.framed])]:
            if cell not in cells:
                raise ValueError(
                    f"Heatmap: cell {cell!r} cannot be marked, expected (row, column), below {rows, columns}."
                )

    @property
    def cell(self) -> float:
        """Side of a cell in inches: as wide as the longest number, unless there are too many cells."""
        longest = max(map(len, self.state()["texts"]), default=0)
        most = self.CELLS if longest else 0.6 * self.CELLS
        return min(max(self.CELL, CHARACTER * longest), most / max(self.values.shape))

    @property
    def width(self) -> float:
        """Width in inches."""
        names = max(map(len, self.state()["rows"]))
        return max(self.cell * self.values.shape[1] + CHARACTER * names + 0.45, 1.3)

    @property
    def height(self) -> float:
        """Height in inches."""
        return self.cell * len(self.values) + 1.0

    def state(self) -> dict[str, Any]:
        """Return the data that both backends draw, with defaults filled in."""
        values = to_numpy(self.values)
        rows, columns = values.shape
        numbered = values.size <= self.MOST_NUMBERS
        limit = self.limit or np.abs(values[np.isfinite(values)]).max(initial=0) or 1.0
        return {
            "kind": "Heatmap",
            "title": self.title,
            "values": values.tobytes(),
            "rows": list(self.rows or map(str, range(rows))),
            "columns": list(self.columns or map(str, range(columns))),
            "texts": format_numbers(values.flatten().tolist()) if numbered else [],
            "row_label": self.row_label,
            "column_label": self.column_label,
            "limit": float(limit),
            "tile": list(self.tile),
            "tile_label": self.tile_label,
            "room": list(self.room or (rows, columns)),
            "framed": None if self.framed is None else self.framed[0] * columns + self.framed[1],
            "crossed": [row * columns + column for row, column in self.crossed],
            "unit": self.unit,
        }

    def plot(self, axes: Axes) -> None:
        """Draw onto `axes`."""
        state = self.state()
        values = to_numpy(self.values)
        finite = np.where(np.isfinite(values), values, 0)  # NaN and inf get their text, but no colour
        image = axes.imshow(finite, cmap=DIVERGING, vmin=-state["limit"], vmax=state["limit"])
        axes.set(xlabel=self.column_label, ylabel=self.row_label)
        rows, columns = state["rows"], state["columns"]
        step = 1 if self.tile else max(1, math.ceil(0.19 / self.cell))
        axes.set_yticks(range(0, len(rows), step), rows[::step])
        upright = {"rotation": 90} if CHARACTER * max(map(len, columns)) > step * self.cell else {}
        axes.set_xticks(range(0, len(columns), step), columns[::step], **upright)
        axes.tick_params(length=0, labelsize=SMALL)
        for cell, text in enumerate(state["texts"]):
            row, column = divmod(cell, len(columns))
            colour = ink_on(image.to_rgba(finite[row, column]))
            axes.text(column, row, text, ha="center", va="center", fontsize=SMALL, color=colour)
        for between, count in ((axes.axhspan, len(rows)), (axes.axvspan, len(columns))):
            for line in range(len(self.tile), count, len(self.tile) + 1) if self.tile else ():
                between(line - 0.5, line + 0.5, color="#e0e0e0", linewidth=0)
        for row, column in self.crossed:
            axes.plot(column, row, "x", color=BLACK, markersize=6)
        if self.framed is not None:
            corner = (self.framed[1] - 0.5, self.framed[0] - 0.5)
            axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=PURPLE, linewidth=2.5, zorder=3))
        axes.spines[:].set_color("#cccccc")


@dataclass(frozen=True, eq=False)
class Bars:
    """A bar chart with the value written at each bar.

    Attributes:
        title: the title.
        heights: shape (bars,); an infinite value is written, but no bar is drawn.
        labels: tick labels.
        label: the label of the x axis.
        limits: limits of the y axis; a bar that is higher is cut off there.
        room: the number of bars that the browser reserves space for; that of the heights if left out.
        controls: for each bar the name of the explorer's control that is set by dragging it; or none at all.

    Raises:
        TypeError: heights is not a tensor of real numbers, or labels or controls are not strings.
        ValueError: there is not one label, or control, per bar, there are too many bars, or limits are not
            ascending.
    """

    title: str
    heights: Tensor
    labels: Sequence[str]
    label: str
    limits: tuple[Number, Number]
    room: int | None = None
    controls: Sequence[str] = ()

    MOST = 400  # which take seconds to draw
    height = 2.6  # inches

    def __post_init__(self):
        check_values(self.heights, "Bars: heights", "bars")
        check_count(len(self.heights), "Bars: number of bars", self.MOST, "heights")
        check_names(self.labels, "Bars: labels", len(self.heights), "bars")
        check_limits(self.limits, "Bars: limits")
        if self.controls:
            check_names(self.controls, "Bars: controls", len(self.heights), "bars")

    @property
    def width(self) -> float:
        """Width in inches, larger for many bars and for long labels."""
        slot = CHARACTER * max(map(len, [*self.labels, *self.state()["texts"]]), default=0) + 0.12
        return max(slot * len(self.labels) + 0.7, 2.1)

    def state(self) -> dict[str, Any]:
        """Return the data that both backends draw."""
        heights = to_numpy(self.heights)
        return {
            "kind": "Bars",
            "title": self.title,
            "heights": heights.tobytes(),
            "texts": format_numbers(heights.tolist()),
            "labels": list(self.labels),
            "label": self.label,
            "limits": list(self.limits),
            "room": max(self.room or 0, len(heights)),
            "controls": list(self.controls),
        }

    def plot(self, axes: Axes) -> None:
        """Draw onto `axes`."""
        heights = np.nan_to_num(to_numpy(self.heights), posinf=0, neginf=0).clip(*self.limits)
        low, high = self.limits
        axes.bar(range(len(heights)), heights, tick_label=list(self.labels), color=BLUE, width=0.7)
        axes.axhline(0, color=GREY, linewidth=1)
        for bar, (height, text) in enumerate(zip(heights.tolist(), self.state()["texts"], strict=True)):
            axes.annotate(
                text,
                (bar, height),
                (0, 3 if height >= 0 else -3),
                textcoords="offset points",
                ha="center",
                va="bottom" if height >= 0 else "top",
                fontsize=SMALL,
            )
        for bar in np.flatnonzero(to_numpy(self.heights) > high):
            axes.plot([bar - 0.4, bar + 0.4], [0.9 * high, 0.94 * high], color="white", linewidth=3)
        room = 0.12 * (high - low)
        axes.set(xlabel=self.label, ylim=(low - room if low < 0 else low, high + room))
        axes.spines[["top", "right"]].set_visible(False)


@dataclass(frozen=True, eq=False)
class Comparison:
    """A bar chart that lies on its side: for each label one bar of each series.

    Attributes:
        title: the title.
        values: shape (labels, series), at least 0.
        labels: what is compared; there is room for some 12 characters each.
        names: the names of the series.
        limit: the value of the longest bar.

    Raises:
        TypeError: values is not a tensor of real numbers, or labels or names are not strings.
        ValueError: sizes do not match, there are too many labels, or the limit is not positive.
    """

    title: str
    values: Tensor
    labels: Sequence[str]
    names: Sequence[str]
    limit: Number

    width = 3.6  # inches
    MOST = 40  # labels

    @property
    def height(self) -> float:
        """Height in inches."""
        return 0.3 * len(self.labels) + 1.0

    def __post_init__(self):
        check_values(self.values, "Comparison: values", "labels", "series")
        check_count(len(self.values), "Comparison: number of labels", self.MOST, "values")
        check_names(self.labels, "Comparison: labels", self.values.shape[0], "rows")
        check_names(self.names, "Comparison: names", self.values.shape[1], "series")
        if not real(self.limit) > 0:
            raise ValueError(f"Comparison: limit = {self.limit!r}, expected the value of the longest bar.")

    def state(self) -> dict[str, Any]:
        """Return the data that both backends draw."""
        values = to_numpy(self.values)
        return {
            "kind": "Comparison",
            "title": self.title,
            "values": values.tobytes(),
            "texts": format_numbers(values.flatten().tolist()),
            "labels": list(self.labels),
            "names": list(self.names),
            "limit": float(self.limit),
        }

    def plot(self, axes: Axes) -> None:
        """Draw onto `axes`."""
        values = to_numpy(self.values)
        rows, series = values.shape
        thickness = 0.8 / max(series, 1)
        texts = self.state()["texts"]
        for index, (name, (colour, _)) in enumerate(zip(self.names, LOOKS, strict=False)):
            places = np.arange(rows) - 0.4 + thickness * (index + 0.5)
            bars = axes.barh(places, values[:, index], thickness, color=colour, label=name)
            axes.bar_label(bars, texts[index::series], padding=3, fontsize=SMALL)
        axes.set_yticks(range(rows), list(self.labels))
        axes.set(xlim=(0, 1.15 * self.limit), ylim=(max(rows, 1) - 0.5, -0.5))
        axes.tick_params(axis="y", length=0)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=SMALL, loc="lower right")


@dataclass(frozen=True, eq=False)
class Histogram:
    """A histogram as a density, with an optional curve of the predicted density.

    Attributes:
        title: the title.
        density: shape (bins,): fraction of the values in each bin, divided by the bin width.
        limits: limits of the x axis, from the first bin to the last.
        x_label: the label of the x axis, with its unit.
        curve: shape (N,): the predicted density at N evenly spaced points between the limits.

    Raises:
        TypeError: density or curve is not a tensor of real numbers.
        ValueError: a shape does not match, or limits are not ascending.
    """

    title: str
    density: Tensor
    limits: tuple[Number, Number]
    x_label: str
    curve: Tensor | None = None

    width, height = 3.3, 2.9  # inches

    def __post_init__(self):
        check_values(self.density, "Histogram: density", "bins")
        check_limits(self.limits, "Histogram: limits")
        if self.curve is not None:
            check_values(self.curve, "Histogram: curve", "N")

    def state(self) -> dict[str, Any]:
        """Return the data that both backends draw."""
        low, high = self.limits
        return {
            "kind": "Histogram",
            "title": self.title,
            "density": to_numpy(self.density).tobytes(),
            "curve": b"" if self.curve is None else to_numpy(self.curve).tobytes(),
            "limits": [float(low), float(high)],
            "ticks": [format_number(low), format_number((low + high) / 2), format_number(high)],
            "x_label": self.x_label,
        }

    def plot(self, axes: Axes) -> None:
        """Draw onto `axes`."""
        density = to_numpy(self.density)
        low, high = self.limits
        edges = np.linspace(low, high, len(density) + 1)
        axes.stairs(density, edges, fill=True, color=BLUE, alpha=0.75, label="measured")
        if self.curve is not None:
            curve = to_numpy(self.curve)
            x = np.linspace(low, high, len(curve))
            axes.plot(x, curve, "--", color=BLACK, linewidth=2, label="predicted")
            axes.legend(frameon=False)
        axes.set(xlabel=self.x_label, ylabel="density", xlim=self.limits)
        axes.spines[["top", "right"]].set_visible(False)


@dataclass(frozen=True, eq=False)
class Scatter:
    """A scatter plot of labelled points, with an optional path that ends in a ring.

    Attributes:
        title: the title.
        points: shape (N, 2).
        labels: a label for each point.
        limits: limits of both axes.
        lit: shape (N,), boolean: points in full colour; the others are pale. All, if left out.
        path: shape (M, 2), M >= 1: joined by a line.
        x_label, y_label: axis labels.

    Raises:
        TypeError: points, lit or path is not a tensor of real numbers, or labels are not strings.
        ValueError: sizes do not match, there are too many points, or limits are not ascending.
    """

    title: str
    points: Tensor
    labels: Sequence[str]
    limits: tuple[Number, Number]
    lit: Tensor | None = None
    path: Tensor | None = None
    x_label: str = "channel 0"
    y_label: str = "channel 1"

    width, height = 3.6, 3.6  # inches
    MOST = 1000  # which take seconds to draw

    def __post_init__(self):
        check_values(self.points, "Scatter: points", "N", 2)
        check_count(len(self.points), "Scatter: number of points", self.MOST, "points")
        check_names(self.labels, "Scatter: labels", len(self.points), "points")
        check_limits(self.limits, "Scatter: limits")
        if self.lit is not None:
            check_values(self.lit, "Scatter: lit", len(self.points))
        if self.path is not None:
            check_values(self.path, "Scatter: path", "M", 2)
            if not len(self.path):
                raise ValueError(
                    "Scatter: path has no point, expected at least one. Leave it out: path=None."
                )

    def state(self) -> dict[str, Any]:
        """Return the data that both backends draw."""
        return {
            "kind": "Scatter",
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
            axes.plot(*to_numpy(self.path).T, "-o", color=GREEN, markersize=4, linewidth=2)
            end = to_numpy(self.path)[-1]
            axes.plot(*end, "o", color=GREEN, markersize=15, fillstyle="none", markeredgewidth=2.5)
        for point, label, lit in zip(state["points"], self.labels, state["lit"], strict=True):
            axes.plot(*point, "o", color=BLUE if lit else "#bfd4e0", markersize=9)
            ink = BLACK if lit else GREY
            axes.annotate(label, point, (8, 6), textcoords="offset points", color=ink, fontsize=SMALL)
        axes.set(xlabel=self.x_label, ylabel=self.y_label, aspect="equal", xlim=self.limits, ylim=self.limits)
        axes.spines[["top", "right"]].set_visible(False)


@dataclass(frozen=True, eq=False)
class Arrows:
    """Circles in rows of two, with two arrows each from the centre, and the angle between them shaded.

    Attributes:
        title: the title.
        arrows: shape (circles, 2, 2): x and y of the first arrow of each circle, in the colour of a query,
            and of the second, in that of a key.
        labels: what stands below each circle.
        names: what the first and the second arrows are.
        room: the number of circles that the browser reserves space for; that of the arrows if left out.

    Raises:
        TypeError: arrows is not a tensor of real numbers, or labels or names are not strings.
        ValueError: sizes do not match, or there are too many circles.
    """

    title: str
    arrows: Tensor
    labels: Sequence[str]
    names: Sequence[str]
    room: int | None = None

    width = 3.6  # inches
    COLUMNS = 2
    COLOURS = (PURPLE, AMBER)
    MOST = 40  # circles

    def __post_init__(self):
        check_values(self.arrows, "Arrows: arrows", "circles", 2, 2)
        check_count(len(self.arrows), "Arrows: number of circles", self.MOST, "arrows")
        check_names(self.labels, "Arrows: labels", len(self.arrows), "circles")
        check_names(self.names, "Arrows: names", 2, "arrows")

    @property
    def height(self) -> float:
        """Height in inches."""
        return 1.6 * -(-len(self.labels) // self.COLUMNS) + 0.8

    def state(self) -> dict[str, Any]:
        """Return the data that both backends draw; `limit` is the length of the longest arrow."""
        arrows = to_numpy(self.arrows)
        return {
            "kind": "Arrows",
            "title": self.title,
            "arrows": arrows.tobytes(),
            "labels": list(self.labels),
            "names": list(self.names),
            "limit": float(np.hypot(*np.moveaxis(arrows, -1, 0)).max(initial=0)) or 1.0,
            "room": max(self.room or 0, len(self.labels)),
            "columns": self.COLUMNS,
        }

    def plot(self, axes: Axes) -> None:
        """Draw onto `axes`."""
        arrows = to_numpy(self.arrows) / self.state()["limit"]
        for index, (pair, label) in enumerate(zip(arrows, self.labels, strict=True)):
            row, column = divmod(index, self.COLUMNS)
            x, y = centre = (3.0 * column, -2.7 * row)
            axes.add_patch(Circle(centre, 1, fill=False, edgecolor=GREY))
            first, second = np.degrees(np.arctan2(pair[:, 1], pair[:, 0])).tolist()
            between = (first, second) if (second - first) % 360 <= 180 else (second, first)
            axes.add_patch(Wedge(centre, 0.35, *between, color=GREY, alpha=0.3, linewidth=0))
            for (dx, dy), colour, name in zip(pair, self.COLOURS, self.names, strict=True):
                shape = {"width": 0.012, "color": colour, "label": "" if index else name}
                axes.quiver(x, y, dx, dy, angles="xy", scale_units="xy", scale=1, **shape)
            axes.text(x, y - 1.25, label, ha="center", va="center", fontsize=SMALL)
        rows = -(-len(self.labels) // self.COLUMNS)
        axes.set(xlim=(-1.5, 4.5), ylim=(-2.7 * max(rows - 1, 0) - 1.5, 1.7), aspect="equal", anchor="N")
        axes.set_axis_off()
        if self.labels:
            axes.legend(frameon=False, ncols=2, loc="upper center")


@dataclass(frozen=True, eq=False)
class Text:
    """A text, one cell per character, with optional shading; a newline has a visible symbol.

    Lines break after a newline, or between the last two words that fit.

    Attributes:
        title: the title.
        text: the text; or its tokens, of any number of characters.
        values: shape (tokens,), a token being a character of a str: its cells are white at 0 and full blue at
            `limit`. No shading, if left out.
        framed: position of the token with a frame.
        limit: see `values`.
        label: what a value is.

    Raises:
        TypeError: text is neither a str nor a list of str, or values is not a tensor of real numbers.
        ValueError: the text is longer than MOST, there is not one value per token, the frame is out of range,
            or the limit is not positive.
    """

    title: str
    text: str | Sequence[str]
    values: Tensor | None = None
    framed: int | None = None
    limit: Number = 1
    label: str = ""

    MOST = 4000  # characters, which take seconds to draw
    COLUMNS = 44
    # A row of characters that are marked: the last one of a line "n", of a word "w", of another token "t".
    ROW = re.compile(rf"[^n]{{0,{COLUMNS - 1}}}(?:[nw]|\Z)|[^n]{{0,{COLUMNS - 1}}}t")
    CELL = (0.105, 0.2)  # inches, in matplotlib
    width = CELL[0] * COLUMNS + 0.2

    def __post_init__(self):
        if not isinstance(self.text, Sequence):
            raise TypeError(
                f"Text: text is a {type(self.text).__name__}, expected a str, or a list of str. Decode ids."
            )
        check_names(self.text, "Text: text", len(self.text), "tokens")
        check_count(sum(map(len, self.text)), "Text: number of characters", self.MOST, "text")
        if self.values is not None:
            check_values(self.values, "Text: values", len(self.text))
        if self.framed is not None and self.framed not in range(len(self.text)):
            raise ValueError(
                f"Text: framed = {self.framed!r}, expected the position of one of {len(self.text)} "
                f"{self.unit}s, counted from 0. Leave it out for no frame."
            )
        if not real(self.limit) > 0:
            raise ValueError(f"Text: limit = {self.limit!r}, expected the value with full colour, above 0.")

    @property
    def height(self) -> float:
        """Height in inches."""
        return self.CELL[1] * len(self.rows()) + 0.4

    @property
    def unit(self) -> str:
        """What has a value: a "character", or a "token"."""
        return "character" if isinstance(self.text, str) else "token"

    def tokens(self) -> list[str]:
        """Return the tokens with visible newlines; one longer than a row is cut, an empty one gets a cell."""
        most = self.COLUMNS
        return [visible(t if len(t) <= most else f"{t[: most - 1]}…") or " " for t in self.text]

    def rows(self) -> list[str]:
        """Return the rows; one empty row for an empty text."""
        marks = ""
        shown = self.tokens()
        for token, cells, after in zip(self.text, shown, [*self.text, ""][1:], strict=True):
            ends_word = token.endswith(" ") or (after.startswith(" ") and after.strip(" "))
            marks += "." * (len(cells) - 1) + ("n" if "\n" in token else "w" if ends_word else "t")
        return ["".join(shown)[slice(*row.span())] for row in self.ROW.finditer(marks) if row[0]] or [""]

    def state(self) -> dict[str, Any]:
        """Return the data that both backends draw."""
        return {
            "kind": "Text",
            "title": self.title,
            "rows": self.rows(),
            "lengths": [] if self.unit == "character" else list(map(len, self.tokens())),
            "columns": self.COLUMNS,
            "values": b"" if self.values is None else to_numpy(self.values).tobytes(),
            "framed": self.framed,
            "limit": float(self.limit),
            "label": self.label,
        }

    def plot(self, axes: Axes) -> None:
        """Draw onto `axes`."""
        rows = self.rows()
        values = np.zeros(len(self.text)) if self.values is None else to_numpy(self.values)
        cells = [(row, column) for row, line in enumerate(rows) for column in range(len(line))]
        tokens = self.tokens()
        places = [cells[first] for first in [0, *accumulate(map(len, tokens))][:-1]]
        for (row, column), token, value in zip(places, tokens, values, strict=True):
            colour = DIVERGING(0.5 + 0.5 * min(1.0, value / self.limit))
            axes.add_patch(Rectangle((column, row), len(token), 1, color=colour, linewidth=0))
            for x, character in enumerate(token, start=column):
                axes.text(
                    x + 0.5,
                    row + 0.5,
                    character,
                    ha="center",
                    va="center_baseline",
                    family="monospace",
                    fontsize=10,
                    color=ink_on(colour),
                )
        if self.framed is not None:
            row, column = places[self.framed]
            length = len(tokens[self.framed])
            axes.add_patch(
                Rectangle((column, row), length, 1, fill=False, edgecolor=PURPLE, linewidth=2.5, zorder=3)
            )
        width, height = self.CELL
        axes.set(xlim=(0, self.COLUMNS), ylim=(len(rows), 0), aspect=height / width, anchor="N")
        axes.set_axis_off()
