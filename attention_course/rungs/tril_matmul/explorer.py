"""The output as weights @ tokens, with each step of the weights under control."""

import ipywidgets
import torch
from torch import Tensor

from attention_course.explorers.figure import LiveFigure
from attention_course.plots import Heatmap, format_number

TOKENS = torch.tensor([[2, 7], [6, 4], [6, 5], [1, 9], [8, 0], [3, 3], [0, 6], [5, 2]]).float()
SETTINGS = {"decay": 0.6}  # of its picture in README.md


def controls() -> dict[str, ipywidgets.ValueWidget]:
    """Return the number of tokens and the three steps that make weights out of ones."""
    return {
        "T": ipywidgets.IntSlider(5, 1, len(TOKENS), description="T"),
        "decay": ipywidgets.FloatSlider(1.0, min=0.0, max=1.0, step=0.05, description="decay per step"),
        "triangle": ipywidgets.Checkbox(True, description="lower triangle", indent=False),
        "normalize": ipywidgets.Checkbox(True, description="rows sum to 1", indent=False),
    }


def compute(T: int, decay: float, triangle: bool, normalize: bool) -> dict[str, Tensor]:
    """Return weights (T, T), tokens (T, 2) and output = weights @ tokens (T, 2)."""
    position = torch.arange(T)
    distance = (position[:, None] - position).abs()
    weights = torch.tensor(decay).pow(distance)
    if triangle:
        weights = weights.tril()
    if normalize:
        weights = weights / weights.sum(dim=-1, keepdim=True)
    tokens = TOKENS[:T]
    return {"weights": weights, "tokens": tokens, "output": weights @ tokens}


def draw(figure: LiveFigure, weights: Tensor, tokens: Tensor, output: Tensor) -> None:
    """Show the product as three matrices; the caption describes the last row."""
    T = len(tokens)
    total = weights[-1].sum().item()
    a, b = output[-1].tolist()
    most = len(TOKENS)
    figure.show(
        Heatmap(f"weights ({T}, {T})", weights, "output t", "token s", limit=1, room=(most, most)),
        Heatmap(f"@  tokens ({T}, 2)", tokens, "token s", "channel", limit=10, room=(most, 2)),
        Heatmap(f"=  output ({T}, 2)", output, "output t", "channel", limit=10, room=(most, 2)),
        caption=(
            f"The last row of weights sums to {format_number(total)}. "
            f"Its output is ({format_number(a)}, {format_number(b)})."
        ),
    )
