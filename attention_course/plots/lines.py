"""The line plot: limits, ticks and labels are computed here, by matplotlib's locators."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from attention_course.checks import check_flags
from attention_course.names import shown
from attention_course.plots.checks import check_levels, check_limits, check_names, check_texts, check_values
from attention_course.plots.style import (
    Number,
    format_number,
    format_tick,
    to_numpy,
)


@dataclass(frozen=True, eq=False)
class Lines:
    """A line plot of curves over a common x axis, with optional horizontal levels.

    Both axes are logarithmic, or both linear; a linear y axis includes 0.

    Attributes:
        title: the title.
        x: shape (N,).
        curves: maps the name of each curve to its y values, shape (N,). Values that are not finite, or not
            positive on logarithmic axes, are skipped.
        x_label, y_label: the quantities on the axes, with their units.
        log: whether the axes are logarithmic.
        levels: maps the name of each level to its y value.
        x_limits: limits of the x axis; those of the curves if left out.
    """

    title: str
    x: Tensor
    curves: dict[str, Tensor]
    x_label: str
    y_label: str
    log: bool = True
    levels: dict[str, Number] = field(default_factory=dict)
    x_limits: tuple[Number, Number] | None = None

    MOST_POINTS = 300
    GAP = 0.065  # between the labels of two levels, as a share of the height

    def __post_init__(self):
        check_texts(self)
        check_values(self.x, "Lines: x", "N")
        if not isinstance(self.curves, Mapping):
            raise TypeError(
                f"Lines: curves = {shown(self.curves)}, expected a dict that gives each curve a name."
            )
        check_names(list(self.curves), "Lines: names of curves")
        for name, heights in self.curves.items():
            check_values(heights, f"Lines: curves[{shown(name)}]", len(self.x))
        check_flags("Lines", log=self.log)
        above = 0 if self.log else -math.inf
        check_levels(self.levels, "Lines: levels", above)
        if self.x_limits is not None:
            check_limits(self.x_limits, "Lines: x_limits", above)

    def points(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return x and y of the drawn points: a long curve is subsampled, and keeps its last point."""
        x, y = to_numpy(self.x), to_numpy(self.curves[name])
        shown = np.flatnonzero(np.isfinite(x) & np.isfinite(y) & (not self.log or (x > 0) & (y > 0)))
        if len(shown) > self.MOST_POINTS and self.log:
            shown = shown[np.unique(np.geomspace(1, len(shown), self.MOST_POINTS).round().astype(int)) - 1]
        elif len(shown) > self.MOST_POINTS:
            shown = np.append(shown[:: math.ceil(len(shown) / self.MOST_POINTS)], shown[-1])
        return x[shown], y[shown]

    def state(self) -> dict[str, Any]:
        """Return the state for the browser, with limits and ticks of both axes."""
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

    def _limits(self, values: list, from_zero: bool) -> tuple[Number, Number]:
        """Return limits that contain all values, with a small margin."""
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

    def _ticks(self, limits: tuple[Number, Number]) -> list[tuple[float, str]]:
        """Return positions and labels of the ticks of an axis."""
        from matplotlib.ticker import LogLocator, MaxNLocator

        low, high = limits
        if self.log:
            locator = LogLocator(subs=(1, 2, 5) if high / low < 200 else (1,), numticks=8)
        else:
            locator = MaxNLocator(6, steps=(1, 2, 5, 10))
        values = map(float, locator.tick_values(low, high))
        return [(value, format_tick(value)) for value in values if low <= value <= high]

    def _level_labels(self) -> list[str]:
        return [f"{name} {format_number(level)}" for name, level in self.levels.items()]

    def _places(self, limits: tuple[Number, Number]) -> list[float]:
        """Return the heights of the level labels, as fractions of the axis, without overlaps."""
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
