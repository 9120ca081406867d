"""One query, step by step, through a head small enough to follow by hand."""

import ipywidgets
import torch
from torch import Tensor

from attention_course.attention import attention, causal_mask
from attention_course.explorers.figure import LiveFigure
from attention_course.plots import Heatmap, format_number

TEXT = "potato"
LETTERS = "pota"
T = len(TEXT)
LARGEST_HEAD = T - 1  # no query looks back at the last position
NAMES = [f"{letter}{position}" for position, letter in enumerate(TEXT)]

LETTER = torch.tensor([[float(letter == other) for other in LETTERS] for letter in TEXT])
TOKENS = torch.cat([LETTER, torch.eye(T)], dim=-1)  # (T, 4 + T): one-hot letter, one-hot position


def last_vowel() -> tuple[Tensor, Tensor]:
    """Return W_query and W_key: channel 0 matches vowels, channel 1 late positions."""
    W_query, W_key = torch.zeros(2, TOKENS.shape[-1], LARGEST_HEAD)
    W_query[len(LETTERS) :, :2] = 1
    W_key[: len(LETTERS), 0] = torch.tensor([20.0 * (letter in "aeiou") for letter in LETTERS])
    W_key[len(LETTERS) :, 1] = 4.0 * torch.arange(T)
    return W_query, W_key


def previous_letter() -> tuple[Tensor, Tensor]:
    """Return W_query and W_key: in channel s the query of position s + 1 matches the key of position s."""
    W_query, W_key = torch.zeros(2, TOKENS.shape[-1], LARGEST_HEAD)
    W_query[len(LETTERS) + 1 :] = 20 * torch.eye(LARGEST_HEAD)
    W_key[len(LETTERS) : -1] = torch.eye(LARGEST_HEAD)
    return W_query, W_key


def untrained() -> tuple[Tensor, Tensor]:
    """Return random W_query and W_key."""
    generator = torch.Generator().manual_seed(4)
    W_query, W_key = 0.7 * torch.randn(2, TOKENS.shape[-1], LARGEST_HEAD, generator=generator)
    return W_query, W_key


HEADS = {"last vowel": last_vowel(), "previous letter": previous_letter(), "untrained": untrained()}


def controls() -> dict[str, ipywidgets.ValueWidget]:
    """Return the head, its head_size, the query, and the mask."""
    return {
        "head": ipywidgets.Dropdown(options=list(HEADS), description="head"),
        "head_size": ipywidgets.IntSlider(LARGEST_HEAD, 1, LARGEST_HEAD, description="head_size"),
        "t": ipywidgets.IntSlider(4, 0, T - 1, description="query t"),
        "masked": ipywidgets.Checkbox(True, description="mask: no looking ahead", indent=False),
    }


def compute(head: str, head_size: int, t: int, masked: bool) -> dict[str, Tensor]:
    """Return the steps for query t, one row per key.

    The rows of `products` (T, head_size) sum to the first column of `scores` (T, 2); the second column is
    scaled and masked. `weights` (T, 1); the columns of `mix` (T, 4) sum to `output` (4,). `limit` is the
    largest absolute score of any query of this head, `t` the query.
    """
    W_query, W_key = HEADS[head]
    q, k = TOKENS @ W_query[:, :head_size], TOKENS @ W_key[:, :head_size]
    mask = causal_mask(T) if masked else torch.ones(T, T, dtype=torch.bool)
    output, weights = attention(q, k, LETTER, mask)
    products = q[t] * k
    raw = products.sum(dim=-1)
    scaled = (raw * head_size**-0.5).masked_fill(~mask[t], float("-inf"))
    return {
        "products": products,
        "scores": torch.stack([raw, scaled], dim=-1),
        "weights": weights[t, :, None],
        "mix": weights[t, :, None] * LETTER,
        "output": output[t],
        "limit": (TOKENS @ W_query @ (TOKENS @ W_key).T).abs().max(),
        "t": torch.tensor(t),
    }


def draw(
    figure: LiveFigure,
    products: Tensor,
    scores: Tensor,
    weights: Tensor,
    mix: Tensor,
    output: Tensor,
    limit: Tensor,
    t: Tensor,
) -> None:
    """Show the four steps with one row per key; the caption names the largest weights and the output."""
    size, most = products.shape[-1], weights.max().item()
    shares = zip(NAMES, weights.flatten().tolist(), strict=True)
    found = [name for name, weight in shares if weight > most - 1e-4]
    keys = f"on key {found[0]}" if len(found) == 1 else f"on each of the keys {', '.join(found)}"
    letters = zip(LETTERS, output.tolist(), strict=True)
    letters = " + ".join(f"{format_number(share)} {letter}" for letter, share in letters if share >= 0.005)
    largest = limit.item()
    figure.show(
        Heatmap(
            "query × key", products, "key s", "channel", NAMES, limit=largest, reserved=(T, LARGEST_HEAD)
        ),
        Heatmap("scores", scores, "key s", "step", NAMES, ["sum", f"÷ √{size}"], limit=largest),
        Heatmap("weights", weights, "key s", "query", NAMES, [NAMES[t]], limit=1),
        Heatmap("weight × value", mix, "key s", "letter", NAMES, list(LETTERS), limit=1),
        caption=(
            f"Query {NAMES[t]} puts its largest weight, {format_number(most)}, {keys}. "
            f"Its output is {letters}."
        ),
    )
