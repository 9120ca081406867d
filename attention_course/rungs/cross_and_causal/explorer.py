"""A mask, the weights under it, and which outputs change with a token of the context."""

import ipywidgets
import torch
from torch import Tensor

from attention_course.attention import attention, causal_mask, padding_mask, prefix_mask, window_mask
from attention_course.explorers.figure import LiveFigure
from attention_course.plots import Heatmap

LARGEST = 8
CHANNELS = 2  # of an output
QUERIES, KEYS, VALUES, CHANGE = 1.5 * torch.randn(
    4, LARGEST, 4, generator=torch.Generator().manual_seed(0)
)  # (8, 4) each; adding the same change to every key would not change the weights


def top_left(T_q: int, T_k: int) -> Tensor:
    """Align the first query with the first key, as `is_causal=True` does."""
    return torch.ones(T_q, T_k, dtype=torch.bool).tril()


def window_of_3(T_q: int, T_k: int) -> Tensor:
    """Show the last 3 keys; the last query is aligned with the last key."""
    return window_mask(T_q, 3, T_k)


def prefix_of_2(T_q: int, T_k: int) -> Tensor:
    """Show the past and the first 2 keys."""
    return prefix_mask(T_q, 2, T_k)


def two_of_padding(T_q: int, T_k: int) -> Tensor:
    """Hide the last 2 keys; with 2 keys or fewer all are padding."""
    return padding_mask(torch.tensor([max(0, T_k - 2)]), T_k)[0].expand(T_q, T_k)


MASKS = {
    "causal": causal_mask,
    "none": lambda T_q, T_k: torch.ones(T_q, T_k, dtype=torch.bool),
    "causal, top left": top_left,
    "window of 3": window_of_3,
    "prefix of 2": prefix_of_2,
    "padding of 2": two_of_padding,
}


def controls() -> dict[str, ipywidgets.ValueWidget]:
    """Return the mask, both lengths, and the position of the changed token in the context."""
    return {
        "kind": ipywidgets.Dropdown(options=list(MASKS), description="mask"),
        "T_q": ipywidgets.IntSlider(5, 1, LARGEST, description="T_q, queries"),
        "T_k": ipywidgets.IntSlider(7, 1, LARGEST, description="T_k, keys"),
        "position": ipywidgets.IntSlider(4, 0, LARGEST - 1, description="changed token"),
    }


def compute(kind: str, T_q: int, T_k: int, position: int) -> dict[str, Tensor]:
    """Return mask and weights (T_q, T_k), the change of each output (T_q, 2), and the changed token.

    A position beyond the last token is clamped to it.
    """
    s = min(position, T_k - 1)
    q, k, v = QUERIES[:T_q], KEYS[:T_k], VALUES[:T_k, :CHANNELS]
    changed = (torch.arange(T_k) == s)[:, None] * CHANGE[:T_k]
    mask = MASKS[kind](T_q, T_k)
    before, weights = attention(q, k, v, mask)
    after, _ = attention(q, k + changed, v - changed[:, :CHANNELS], mask)
    return {"mask": mask, "weights": weights, "moved": (after - before).abs(), "s": torch.tensor(s)}


def draw(figure: LiveFigure, mask: Tensor, weights: Tensor, moved: Tensor, s: Tensor) -> None:
    """Show three heatmaps with one row per query; the caption names the outputs that changed."""
    T_q, T_k = mask.shape
    keys = [f"▲{key}" if key == s else str(key) for key in range(T_k)]
    reached = moved.any(dim=-1).nonzero().flatten().tolist()
    blind = (~mask.any(dim=-1)).sum().item()
    if len(reached) == T_q:
        words = "moves every output" if T_q > 1 else "moves the only output"
    elif reached:
        words = (
            f"moves {'output' if len(reached) == 1 else 'outputs'} {', '.join(map(str, reached))} of {T_q}"
        )
    else:
        words = "moves no output"
    empty = f" {blind} of {T_q} queries may look at nothing and get zeros." if blind else ""
    reserved = (LARGEST, LARGEST)
    figure.show(
        Heatmap(
            "mask: 1 where it may look", mask, "query t", "key s", columns=keys, limit=1, reserved=reserved
        ),
        Heatmap("weights", weights, "query t", "key s", columns=keys, limit=1, reserved=reserved),
        Heatmap("output moved by", moved, "query t", "channel", limit=3, reserved=(LARGEST, CHANNELS)),
        caption=f"Changing token {s} of the context, marked ▲, {words}.{empty}",
    )
