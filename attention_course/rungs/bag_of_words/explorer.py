"""Tokens as points in the plane, and the path of their running mean."""

import ipywidgets
import torch
from torch import Tensor

from attention_course.averaging import causal_mean_loop
from attention_course.explorers.figure import LiveFigure
from attention_course.plots import Scatter, format_number

TOKENS = torch.tensor(
    [[-4.0, 0.0], [-2.0, 4.0], [0.0, -2.0], [2.0, 2.0], [4.0, 4.0], [3.0, -3.0], [1.0, -4.0], [-4.0, -3.0]]
)
ORDERS = {
    "as written": list(range(8)),
    "first three reversed": [2, 1, 0, 3, 4, 5, 6, 7],
    "reversed": list(range(8))[::-1],
}
SETTINGS = {"t": 5}  # of its picture in README.md


def controls() -> dict[str, ipywidgets.ValueWidget]:
    """Return the position t, and the order of the tokens."""
    return {
        "t": ipywidgets.IntSlider(3, 0, len(TOKENS) - 1, description="position t"),
        "order": ipywidgets.Dropdown(options=list(ORDERS), description="order of the tokens"),
    }


def compute(t: int, order: str) -> dict[str, Tensor]:
    """Return tokens (8, 2), their order (8,), which of them t sees (8,), and means (t + 1, 2)."""
    arrival = torch.tensor(ORDERS[order])
    means = causal_mean_loop(TOKENS[arrival])
    seen = torch.zeros(len(TOKENS), dtype=torch.bool)
    seen[arrival[: t + 1]] = True
    return {"tokens": TOKENS, "arrival": arrival, "seen": seen, "means": means[: t + 1]}


def draw(figure: LiveFigure, tokens: Tensor, arrival: Tensor, seen: Tensor, means: Tensor) -> None:
    """Highlight the tokens that t sees, and trace the mean."""
    t = len(means) - 1
    x, y = means[-1].tolist()
    labels = [f"t={position}" for position in arrival.argsort().tolist()]
    figure.show(
        Scatter("Tokens seen so far, and the path of their mean", tokens, labels, (-5, 5), seen, means),
        caption=(
            f"At t = {t} the mean of {t + 1} token{'s' * (t > 0)} is "
            f"({format_number(x)}, {format_number(y)})."
        ),
    )
