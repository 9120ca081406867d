"""The scores of random queries and keys, and their softmax, as head_size grows."""

import math
from functools import cache

import ipywidgets
import torch
from torch import Tensor

from attention_course.explorers.figure import LiveFigure
from attention_course.plots import Bars, Histogram, format_number

LARGEST = 64  # head_size
N_EMBD = 64
PAIRS = 8192
ROWS, T = 8, 6  # queries to choose from, keys of each
FRAME = 32.0  # scores from -FRAME to FRAME are shown
BINS = 97  # odd, so that one bin is centred at 0
HEAD_SIZES = sorted({round(2 ** (step / 4)) for step in range(4 * LARGEST.bit_length() - 3)})
SCALES = {
    "none": lambda head_size: 1.0,
    "1/√head_size": lambda head_size: head_size**-0.5,
    "1/head_size": lambda head_size: 1 / head_size,
    "1/√n_embd": lambda head_size: N_EMBD**-0.5,
}
SITE_VALUES = {  # of the controls, on the site, which has no kernel
    "head_size": [2**power for power in range(7)],
    "var_q": [0.25, 0.5, 1.0, 2.0, 4.0],
    "var_k": [0.25, 0.5, 1.0, 2.0, 4.0],
}


def controls() -> dict[str, ipywidgets.ValueWidget]:
    """Return head_size on a logarithmic slider, the scale, both variances, and the row."""
    variance = {"min": 0.25, "max": 4, "step": 0.25, "layout": {"width": "250px"}}
    return {
        "head_size": ipywidgets.SelectionSlider(
            options=HEAD_SIZES, value=4, description="head_size", layout={"width": "300px"}
        ),
        "scale": ipywidgets.ToggleButtons(
            options=list(SCALES),
            description="scale",
            style={"button_width": "auto"},
            layout={"width": "auto", "display": "flex", "align_items": "center", "grid_gap": "8px"},
        ),
        "var_q": ipywidgets.FloatSlider(1.0, description="variance of q", **variance),
        "var_k": ipywidgets.FloatSlider(1.0, description="variance of k", **variance),
        "row": ipywidgets.IntSlider(0, 0, ROWS - 1, description="row", layout={"width": "230px"}),
    }


@cache
def unit_scores() -> tuple[Tensor, Tensor]:
    """Draw q and k of variance 1 once; return their scores for every head_size.

    The cumulative sum of the products over channels holds the scores of every head_size, so a slider only
    picks a row, and a step of head_size changes each score a little.

    Returns:
        Scores of pairs, shape (LARGEST, PAIRS), and of rows of scores, (ROWS, LARGEST, T).
    """
    generator = torch.Generator().manual_seed(0)
    pairs = torch.randn(LARGEST, PAIRS, generator=generator)
    pairs *= torch.randn(LARGEST, PAIRS, generator=generator)
    queries = torch.randn(ROWS, LARGEST, 1, generator=generator)
    keys = torch.randn(ROWS, LARGEST, T, generator=generator)
    return pairs.cumsum_(dim=0), (queries * keys).double().cumsum(dim=1)


def normal_density(variance: Tensor, points: int) -> Tensor:
    """Return the normal density, averaged over a bin width, at points from -FRAME to FRAME.

    Without the average, a peak narrower than a bin would be far above any bar.
    """
    x = torch.linspace(-FRAME, FRAME, points, dtype=torch.float64)
    half = FRAME / BINS
    deviation = (2 * variance).sqrt()
    inside = torch.erf((x + half) / deviation) - torch.erf((x - half) / deviation)
    return inside / 2 / (2 * half)


def compute(head_size: int, scale: str, var_q: float, var_k: float, row: int) -> dict[str, Tensor]:
    """Return measured and predicted statistics of the scores, and one row of weights with its Jacobian."""
    pairs, rows = unit_scores()
    factor = SCALES[scale](head_size)
    spread = math.sqrt(var_q * var_k) * factor
    scores = pairs[head_size - 1] * spread
    weights = torch.softmax(rows[row, head_size - 1] * spread, dim=-1)
    predicted = torch.tensor(head_size * var_q * var_k * factor**2, dtype=torch.float64)
    counts = torch.histc(scores, BINS, -FRAME, FRAME)
    return {
        "density": counts / PAIRS / (2 * FRAME / BINS),
        "curve": normal_density(predicted, 4 * BINS + 1),
        "measured": scores.var(),
        "predicted": predicted,
        "outside": 1 - counts.sum() / PAIRS,
        "weights": weights,
        "jacobian": (weights.diag() - weights.outer(weights)).norm(),
    }


def readout(value: float) -> str:
    """Format a positive value with two decimals, or in scientific notation where these would be zeros."""
    if value >= 0.01:
        return format_number(value)
    if value < 1e-30:
        return "less than 10⁻³⁰"
    digits, power = f"{value:.1e}".split("e")
    return f"{digits} · 10{str(int(power)).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def draw(
    figure: LiveFigure,
    density: Tensor,
    curve: Tensor,
    measured: Tensor,
    predicted: Tensor,
    outside: Tensor,
    weights: Tensor,
    jacobian: Tensor,
) -> None:
    """Show the scores and the weights; the caption compares measured and predicted values."""
    keys = [str(key) for key in range(T)]
    entropy = torch.special.entr(weights).sum().item()
    alive = torch.stack([torch.tensor(entropy / math.log(T)), jacobian.float()])
    lost = f"score ({100 * outside.item():.0f} % lie outside this frame)" if outside > 0.005 else "score"
    figure.show(
        Histogram("Scores of random q and k", density, (-FRAME, FRAME), lost, curve),
        Bars(f"Weights of one query on {T} keys", weights, keys, "key", (0, 1)),
        Bars("Entropy, Jacobian", alive, ["entropy / ln T", "Jacobian"], "of these weights", (0, 1)),
        caption=(
            f"Variance of the scores: {readout(measured.item())} measured, {readout(predicted.item())} "
            f"predicted. Entropy of the weights: {entropy:.2f} out of at most ln {T} = {math.log(T):.2f}. "
            f"Norm of the Jacobian: {readout(jacobian.item())}."
        ),
    )
