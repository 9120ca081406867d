"""Panels of one tensor each: a heatmap, bar charts, a histogram, a scatter plot, arrows, a text.

`state` returns the data that panels.js draws.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from attention_course.checks import real
from attention_course.names import shown
from attention_course.plots.checks import (
    check_count,
    check_finite,
    check_limits,
    check_names,
    check_texts,
    check_values,
)
from attention_course.plots.style import (
    Number,
    format_number,
    format_numbers,
    to_numpy,
    visible,
)


@dataclass(frozen=True, eq=False)
class Heatmap:
    """A heatmap: white is 0, blue positive, orange negative; values are written into the cells if they fit.

    Attributes:
        title: the title.
        values: shape (rows, columns).
        row_label, column_label: axis labels.
        rows, columns: tick labels; 0, 1, 2, ... if left out.
        limit: the absolute value with full colour; the largest finite one if left out.
        grid_labels: for a grid of square maps in reading order, separated by one row or column: the labels of
            the rows of a map, which are also those of its columns.
        map_label: what a map stands for.
        map_names: a name for each map, which is told with its number; or none at all.
        reserved: rows and columns that the browser reserves space for, so that the layout stays fixed while
            the shape changes; those of the matrix if left out. Cells of a larger matrix are smaller.
        framed: row and column of the cell with a frame.
        crossed_out: rows and columns of the cells that are crossed out.
        unit: the unit of the values, which follows each that is told in words.
    """

    title: str
    values: Tensor
    row_label: str
    column_label: str
    rows: Sequence[str] | None = None
    columns: Sequence[str] | None = None
    limit: Number | None = None
    grid_labels: Sequence[str] = ()
    map_label: str = ""
    map_names: Sequence[str] = ()
    reserved: tuple[int, int] | None = None
    framed: tuple[int, int] | None = None
    crossed_out: Sequence[tuple[int, int]] = ()
    unit: str = ""

    MOST_NUMBERS = 160
    MOST = 256  # rows, and columns, which take seconds to draw

    def __post_init__(self):
        check_texts(self)
        check_values(self.values, "Heatmap: values", "rows", "columns")
        rows, columns = self.values.shape
        if not rows * columns:
            raise ValueError(f"Heatmap: values has shape ({rows}, {columns}), expected at least one entry.")
        check_count(rows, "Heatmap: number of rows", self.MOST, "values")
        check_count(columns, "Heatmap: number of columns", self.MOST, "values.T")
        if self.rows is not None:
            check_names(self.rows, "Heatmap: rows", rows, "rows")
        if self.columns is not None:
            check_names(self.columns, "Heatmap: columns", columns, "columns")
        if self.limit is not None and not real(self.limit) >= 0:
            raise ValueError(f"Heatmap: limit = {shown(self.limit)}, expected an absolute value, at least 0.")
        check_names(self.grid_labels, "Heatmap: grid_labels")
        side = len(self.grid_labels) + 1
        if (rows + 1) % side or (columns + 1) % side:
            raise ValueError(
                f"Heatmap: shape ({rows}, {columns}) is not a grid of maps of {side - 1} by {side - 1}, one"
                " line apart. Leave grid_labels out, or give a name for each row of a map."
            )
        check_names(self.map_names, "Heatmap: map_names")
        if self.map_names:
            maps = (rows + 1) // side * ((columns + 1) // side)
            check_names(self.map_names, "Heatmap: map_names", maps, "maps")
        if not isinstance(self.crossed_out, Sequence):
            raise TypeError(
                f"Heatmap: crossed_out = {shown(self.crossed_out)}, expected a list of cells, (row, column)."
            )
        for cell in [*self.crossed_out, *([] if self.framed is None else [self.framed])]:
            pair = isinstance(cell, tuple) and len(cell) == 2
            if not pair or cell[0] not in range(rows) or cell[1] not in range(columns):
                raise ValueError(
                    f"Heatmap: cell {shown(cell)} cannot be marked, expected (row, column), "
                    f"below {rows, columns}."
                )

    def state(self) -> dict[str, Any]:
        """Return the data that panels.js draws, with defaults filled in."""
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
            "grid_labels": list(self.grid_labels),
            "map_label": self.map_label,
            "map_names": list(self.map_names),
            "reserved": list(self.reserved or (rows, columns)),
            "framed": None if self.framed is None else self.framed[0] * columns + self.framed[1],
            "crossed_out": [row * columns + column for row, column in self.crossed_out],
            "unit": self.unit,
        }


@dataclass(frozen=True, eq=False)
class Bars:
    """A bar chart with the value written at each bar.

    Attributes:
        title: the title.
        heights: shape (bars,); an infinite value is written, but no bar is drawn.
        labels: tick labels.
        label: the label of the x axis.
        limits: limits of the y axis; a bar that is higher is cut off there.
        reserved: the number of bars that the browser reserves space for; that of the heights if left out.
        controls: for each bar the name of the explorer's control that is set by dragging it; or none at all.
    """

    title: str
    heights: Tensor
    labels: Sequence[str]
    label: str
    limits: tuple[Number, Number]
    reserved: int | None = None
    controls: Sequence[str] = ()

    MOST = 400  # which take seconds to draw

    def __post_init__(self):
        check_texts(self)
        check_values(self.heights, "Bars: heights", "bars")
        check_count(len(self.heights), "Bars: number of bars", self.MOST, "heights")
        check_names(self.labels, "Bars: labels", len(self.heights), "bars")
        check_limits(self.limits, "Bars: limits")
        check_names(self.controls, "Bars: controls")
        if self.controls:
            check_names(self.controls, "Bars: controls", len(self.heights), "bars")

    def state(self) -> dict[str, Any]:
        """Return the data that panels.js draws."""
        heights = to_numpy(self.heights)
        return {
            "kind": "Bars",
            "title": self.title,
            "heights": heights.tobytes(),
            "texts": format_numbers(heights.tolist()),
            "labels": list(self.labels),
            "label": self.label,
            "limits": list(self.limits),
            "reserved": max(self.reserved or 0, len(heights)),
            "controls": list(self.controls),
        }


@dataclass(frozen=True, eq=False)
class Comparison:
    """A bar chart that lies on its side: for each label one bar of each series.

    Attributes:
        title: the title.
        values: shape (labels, series), at least 0.
        labels: what is compared; there is room for some 12 characters each.
        names: the names of the series.
        limit: the value of the longest bar.
    """

    title: str
    values: Tensor
    labels: Sequence[str]
    names: Sequence[str]
    limit: Number

    MOST = 40  # labels

    def __post_init__(self):
        check_texts(self)
        check_values(self.values, "Comparison: values", "labels", "series")
        check_count(len(self.values), "Comparison: number of labels", self.MOST, "values")
        check_names(self.labels, "Comparison: labels", self.values.shape[0], "rows")
        check_names(self.names, "Comparison: names", self.values.shape[1], "series")
        if not real(self.limit) > 0:
            raise ValueError(
                f"Comparison: limit = {shown(self.limit)}, expected the value of the longest bar."
            )

    def state(self) -> dict[str, Any]:
        """Return the data that panels.js draws."""
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


@dataclass(frozen=True, eq=False)
class Histogram:
    """A histogram as a density, with an optional normal density to compare it with.

    Attributes:
        title: the title.
        density: shape (bins,): fraction of the values in each bin, divided by the bin width.
        limits: limits of the x axis, from the first bin to the last.
        x_label: the label of the x axis, with its unit.
        curve: shape (N,): the normal density at N evenly spaced points between the limits.
    """

    title: str
    density: Tensor
    limits: tuple[Number, Number]
    x_label: str
    curve: Tensor | None = None

    MOST = 1000  # bins, and points of the curve: more than pixels

    def __post_init__(self):
        check_texts(self)
        check_values(self.density, "Histogram: density", "bins")
        check_finite(self.density, "Histogram: density")
        check_count(len(self.density), "Histogram: number of bins", self.MOST)
        check_limits(self.limits, "Histogram: limits")
        if self.curve is not None:
            check_values(self.curve, "Histogram: curve", "N")
            check_finite(self.curve, "Histogram: curve")
            check_count(len(self.curve), "Histogram: number of points of the curve", self.MOST)

    def state(self) -> dict[str, Any]:
        """Return the data that panels.js draws."""
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
    """

    title: str
    points: Tensor
    labels: Sequence[str]
    limits: tuple[Number, Number]
    lit: Tensor | None = None
    path: Tensor | None = None
    x_label: str = "channel 0"
    y_label: str = "channel 1"

    MOST = 1000  # which take seconds to draw

    def __post_init__(self):
        check_texts(self)
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
        """Return the data that panels.js draws."""
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


@dataclass(frozen=True, eq=False)
class Arrows:
    """Circles in rows of two, with two arrows each from the centre, and the angle between them shaded.

    Attributes:
        title: the title.
        arrows: shape (circles, 2, 2): x and y of the first arrow of each circle, in the colour of a query,
            and of the second, in that of a key.
        labels: what stands below each circle.
        names: what the first and the second arrows are.
        reserved: the number of circles that the browser reserves space for; that of the arrows if left out.
    """

    title: str
    arrows: Tensor
    labels: Sequence[str]
    names: Sequence[str]
    reserved: int | None = None

    COLUMNS = 2
    MOST = 40  # circles

    def __post_init__(self):
        check_texts(self)
        check_values(self.arrows, "Arrows: arrows", "circles", 2, 2)
        check_count(len(self.arrows), "Arrows: number of circles", self.MOST, "arrows")
        check_names(self.labels, "Arrows: labels", len(self.arrows), "circles")
        check_names(self.names, "Arrows: names", 2, "arrows")

    def state(self) -> dict[str, Any]:
        """Return the data that panels.js draws; `limit` is the length of the longest arrow."""
        arrows = to_numpy(self.arrows)
        return {
            "kind": "Arrows",
            "title": self.title,
            "arrows": arrows.tobytes(),
            "labels": list(self.labels),
            "names": list(self.names),
            "limit": float(np.hypot(*np.moveaxis(arrows, -1, 0)).max(initial=0)) or 1.0,
            "reserved": max(self.reserved or 0, len(self.labels)),
            "columns": self.COLUMNS,
        }


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

    def __post_init__(self):
        check_texts(self)
        if not isinstance(self.text, Sequence):
            raise TypeError(
                f"Text: text is a {type(self.text).__name__}, expected a str, or a list of str. Decode ids."
            )
        check_names(self.text, "Text: text", len(self.text), "tokens")
        check_count(sum(map(len, self.text)), "Text: number of characters", self.MOST, "text")
        if self.values is not None:
            check_values(self.values, "Text: values", len(self.text))
        framed = self.framed
        if framed is not None and not (isinstance(framed, int) and framed in range(len(self.text))):
            raise ValueError(
                f"Text: framed = {shown(self.framed)}, expected the position of one of {len(self.text)} "
                f"{self.unit}s, counted from 0. Leave it out for no frame."
            )
        if not real(self.limit) > 0:
            raise ValueError(
                f"Text: limit = {shown(self.limit)}, expected the value with full colour, above 0."
            )

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
        """Return the data that panels.js draws."""
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
