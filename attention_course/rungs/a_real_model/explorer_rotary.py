"""A query and a key, turned by their positions; their score depends on the distance only."""

import math

import ipywidgets
import torch
from torch import Tensor

from attention_course.explorers.figure import LiveFigure
from attention_course.llama import Rotary
from attention_course.plots import Arrows, Lines, format_number

LAST, FARTHEST = 1000, 64  # the last position of the key, and the largest distance
LARGEST_HEAD = 64
CIRCLES = 4  # pairs of channels that are shown


def _query_and_key() -> tuple[Tensor, Tensor]:
    """Return a random query and a key that resembles it, (64,) each: in each pair less than 60° apart."""
    generator = torch.Generator().manual_seed(9)
    lengths, (turn, apart) = torch.rand(2, 2, LARGEST_HEAD // 2, generator=generator)
    angles = math.tau * turn + torch.stack([torch.zeros_like(apart), math.tau / 3 * (apart - 0.5)])
    q, k = torch.view_as_real(torch.polar(0.6 + 0.4 * lengths, angles)).flatten(1)
    return q, k


QUERY, KEY = _query_and_key()
SITE_VALUES = {  # of the controls, on the site, which has no kernel
    "position": [0, 10, 100, 1000],
    "distance": [*range(16), *range(16, 65, 4)],
}


def controls() -> dict[str, ipywidgets.ValueWidget]:
    """Return the position of the key, the distance to the query, head_size, and the base of the speeds."""
    return {
        "position": ipywidgets.IntSlider(
            100, 0, LAST, step=10, description="position of the key", layout={"width": "440px"}
        ),
        "distance": ipywidgets.IntSlider(8, 0, FARTHEST, description="distance", layout={"width": "340px"}),
        "head_size": ipywidgets.SelectionSlider(
            options=[2**power for power in range(1, 7)], value=LARGEST_HEAD, description="head_size"
        ),
        "base": ipywidgets.SelectionSlider(
            options=[10**power for power in range(1, 6)], value=10_000, description="base"
        ),
    }


def compute(position: int, distance: int, head_size: int, base: int) -> dict[str, object]:
    """Return the scores (65,) of queries at distances 0 to 64 from the key, and some pairs of channels.

    `arrows` (pairs, 2, 2) holds the query's and the key's x and y in each of `pairs`, `degrees` how far such
    a pair turns from one position to the next. `first` is the score with the key at position 0.
    """
    rotary = Rotary(head_size, LAST + FARTHEST + 1, float(base))
    q, k = QUERY[:head_size].expand(FARTHEST + 1, -1), KEY[None, :head_size]  # one query for each distance
    queries, key = rotary(q, position), rotary(k, position)
    pairs = torch.linspace(0, head_size // 2 - 1, min(CIRCLES, head_size // 2)).round().long()
    turned = torch.stack([queries[distance], key[0]])  # (2, head_size)
    return {
        "place": (position, distance),
        "scores": (queries @ key[0]) * head_size**-0.5,
        "first": (rotary(q)[distance] @ k[0]) * head_size**-0.5,
        "arrows": turned.unflatten(-1, (-1, 2)).transpose(0, 1)[pairs],
        "pairs": pairs,
        "degrees": torch.atan2(rotary.sin[1], rotary.cos[1]).rad2deg()[pairs],
    }


def draw(
    figure: LiveFigure,
    place: tuple[int, int],
    scores: Tensor,
    first: Tensor,
    arrows: Tensor,
    pairs: Tensor,
    degrees: Tensor,
) -> None:
    """Show pairs of channels as arrows, and the score along the distance with a mark at the present one."""
    position, distance = place
    here = torch.where(torch.arange(len(scores)) == distance, scores, torch.nan)
    speeds = [(f"pair {i}", f"{d:.2g}°") for i, d in zip(pairs.tolist(), degrees.tolist(), strict=True)]
    turns = [f"{pair} turns by {angle}" for pair, angle in (speeds[0], speeds[-1])][: len(speeds)]
    labels = [f"{pair}: {angle}/step" for pair, angle in speeds]
    there = (
        f"The same query and key at positions {distance} and 0 have the score {format_number(first.item())}. "
        if position
        else ""
    )
    figure.show(
        Arrows("Pairs of channels, turned by the position", arrows, labels, ["query", "key"], CIRCLES),
        Lines(
            f"Scores with the key at position {position}",
            torch.arange(len(scores)),
            {"score": scores, f"at distance {distance}": here},
            "distance of the query from the key",
            "score q · k / √head_size",
            log=False,
            x_limits=(0, FARTHEST),
        ),
        caption=(
            f"Query at position {position + distance}, key at position {position}: score "
            f"{format_number(scores[distance].item())}. {there}From one position to the next, "
            f"{', and '.join(turns)}."
        ),
    )
