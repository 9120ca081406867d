"""From scores that can be dragged to the weights of one query."""

import math

import ipywidgets
import torch
from torch import Tensor

from attention_course.attention import causal_mask, softmax
from attention_course.explorers.figure import LiveFigure
from attention_course.plots import Bars

KEYS = ["Ben", "gave", "poor", "Sam"]
QUERY = 2  # poor
SETTINGS = {"temperature": 0.7}  # of its picture in README.md


def controls() -> dict[str, ipywidgets.ValueWidget]:
    """Return a score for each of four keys, dragged by its bar, the temperature, and the mask."""
    start = (0.0, 1.0, 2.0, 3.0)
    scores: dict[str, ipywidgets.ValueWidget] = {
        f"score_{s}": ipywidgets.FloatSlider(
            value, min=-5, max=5, step=0.1, description=f"score of “{KEYS[s]}”", readout_format=".1f"
        )
        for s, value in enumerate(start)
    }
    return scores | {
        "temperature": ipywidgets.FloatSlider(1.0, min=0.1, max=5, step=0.1, description="temperature"),
        "masked": ipywidgets.Checkbox(True, description="mask: “poor” may not see “Sam”", indent=False),
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
    """Show the three stages as bar charts; the caption gives entropy and perplexity."""
    visible = int(scores.isfinite().sum())
    hidden = "" if visible == len(KEYS) else " The mask sets the score of “Sam” to −∞, whatever it was."
    entropy = torch.special.entr(weights).sum().item()
    figure.show(
        Bars("scores", scores, KEYS, "key", (-5, 5), controls=[f"score_{s}" for s in range(len(KEYS))]),
        Bars("exp((score − max) / temperature)", exp, KEYS, "key", limits=(0, 1)),
        Bars("weights: exp / its sum", weights, KEYS, "key", limits=(0, 1)),
        caption=(
            f"“{KEYS[QUERY]}” sees {visible} keys. The entropy of its weights is {entropy:.2f} nats, "
            f"of at most ln {visible} = {math.log(visible):.2f}, "
            f"and the perplexity is {math.exp(entropy):.1f}.{hidden}"
        ),
    )
