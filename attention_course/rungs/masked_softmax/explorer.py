"""From scores that can be dragged to weights, one query at a time."""

import math

import ipywidgets
import torch
from torch import Tensor

from attention_course.attention import causal_mask, softmax
from attention_course.explorers.figure import LiveFigure
from attention_course.plots import Bars

KEYS = ["0", "1", "2", "3"]
QUERY = 2
SETTINGS = {"temperature": 0.7}  # of its picture in README.md


def controls() -> dict[str, ipywidgets.ValueWidget]:
    """Return a score for each of four keys, dragged by its bar, the temperature, and the mask."""
    start = (0.0, 1.0, 2.0, 3.0)
    scores: dict[str, ipywidgets.ValueWidget] = {
        f"score_{key}": ipywidgets.FloatSlider(
            value, min=-5, max=5, step=0.1, description=f"score of key {key}", readout_format=".1f"
        )
        for key, value in zip(KEYS, start, strict=True)
    }
    return scores | {
        "temperature": ipywidgets.FloatSlider(1.0, min=0.1, max=5, step=0.1, description="temperature"),
        "masked": ipywidgets.Checkbox(
            True, description=f"mask: query {QUERY} may not see key 3", indent=False
        ),
    }


def compute(
    score_0: float, score_1: float, score_2: float, score_3: float, temperature: float, masked: bool
) -> dict[str, Tensor]:
    """Return masked scores, exp((score - largest) / temperature), and weights, (4,) each."""
    scores = torch.tensor([score_0, score_1, score_2, score_3])
    if masked:
        scores = scores.masked_fill(~causal_mask(len(KEYS))[QUERY], float("-inf"))
    exp = ((scores - scores.max()) / temperature).exp()
    return {"scores": scores, "exp": exp, "weights": softmax(scores / temperature, dim=-1)}


def draw(figure: LiveFigure, scores: Tensor, exp: Tensor, weights: Tensor) -> None:
    """Show the three stages as bar charts; the caption gives the entropy and its maximum."""
    visible = int(scores.isfinite().sum())
    hidden = "" if visible == len(KEYS) else " The mask sets the score of key 3 to −∞, whatever it was."
    entropy = torch.special.entr(weights).sum().item()
    figure.show(
        Bars("scores", scores, KEYS, "key", (-5, 5), controls=[f"score_{key}" for key in KEYS]),
        Bars("exp((score − max) / temperature)", exp, KEYS, "key", limits=(0, 1)),
        Bars("weights: exp / its sum", weights, KEYS, "key", limits=(0, 1)),
        caption=(
            f"Query {QUERY} sees {visible} keys. Entropy of its weights: {entropy:.2f} nats, "
            f"out of at most ln {visible} = {math.log(visible):.2f}.{hidden}"
        ),
    )
