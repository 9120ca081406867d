"""Weights that depend on the distance: what they take from a text, and what a model with them writes."""

import json
from pathlib import Path

import ipywidgets
import torch
from torch import Tensor

from attention_course.explorers.figure import LiveFigure
from attention_course.ladder import staircase
from attention_course.plots import Comparison, Heatmap
from attention_course.plots.style import visible_character

TEXT = "it? Poor"
LETTERS = "".join(dict.fromkeys(TEXT))  # each is a channel
# A loss and a line for each window and each tenth of the decay: `python tools/record_weights.py`.
TRAINED_PATH = Path(__file__).with_name("weights.json")
TRAINED = json.loads(TRAINED_PATH.read_text(encoding="utf-8"))
FLOOR = staircase()["floor"]
SETTINGS = {"decay": 0.5}  # of its picture in README.md


def controls() -> dict[str, ipywidgets.ValueWidget]:
    """Return how much of a weight is left after a step back, and how many letters have one."""
    return {
        "decay": ipywidgets.FloatSlider(
            1.0, min=0.0, max=1.0, step=0.1, description="decay per step", readout_format=".1f"
        ),
        "window": ipywidgets.SelectionSlider(
            options=["2", "4", "all"], value="all", description="letters in the window"
        ),
    }


def compute(decay: float, window: str) -> dict[str, object]:
    """Return weights (T, T), output (T, C), and the loss and the line of the model with these weights."""
    T = len(TEXT)
    position = torch.arange(T)
    distance = position[:, None] - position  # (T, T)
    seen = (distance >= 0) & (distance < (T if window == "all" else int(window)))
    weights = seen * torch.tensor(decay).pow(distance.clamp(min=0))
    weights = weights / weights.sum(dim=-1, keepdim=True)
    tokens = torch.tensor([[float(c == own) for own in LETTERS] for c in TEXT])  # (T, C)
    return {"weights": weights, "output": weights @ tokens, **TRAINED[window][round(10 * decay)]}


def draw(figure: LiveFigure, weights: Tensor, output: Tensor, loss: float, line: str) -> None:
    """Show the weights, what they take of each letter, and the loss; say what the model writes."""
    text, letters = ([visible_character(c) for c in each] for each in (TEXT, LETTERS))
    figure.show(
        Heatmap("weights", weights, "output t", "token s", text, text, limit=1),
        Heatmap("@  tokens  =  output", output, "output t", "channel", text, letters, limit=1),
        Comparison(
            "loss of a model with these weights",
            torch.tensor([[TRAINED["all"][0]["loss"]], [loss], [FLOOR]]),
            ["letter pairs", "these weights", "only chance"],
            ["nats per character"],
            limit=2.5,
        ),
        caption=(
            f"Trained with these weights, the model has a loss of {loss:.2f} nats per character. "
            f"After “Who got it? Poor” it writes “{line}”."
        ),
    )
