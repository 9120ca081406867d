"""64 channels of queries and keys, split into 1 to 64 heads."""

import math

import ipywidgets
import torch
import torch.nn.functional as F
from torch import Tensor

from attention_course.attention import attention_weights, causal_mask, head_size_of
from attention_course.explorers.figure import LiveFigure
from attention_course.plots import Heatmap, format_number

TEXT = "the cat sat"
N_EMBD = 64
JOB_SIZE = 4  # channels of one hand-written attention pattern; 16 of them fill the 64
STRENGTH = 12.0
LETTERS = list(TEXT.replace(" ", "␣"))
NAMES = [f"{letter}{position}" for position, letter in enumerate(LETTERS)]


def _place(steps_back: int) -> tuple[Tensor, Tensor]:
    """Attend `steps_back` positions back, with sinusoidal positions of two frequencies."""
    step = math.tau / torch.tensor([14.0, 5.0])
    angle = torch.arange(len(TEXT))[:, None] * step
    q, k = (torch.cat([a.cos(), a.sin()], dim=-1) for a in (angle - steps_back * step, angle))
    return q, k


def _codes(kinds: list[int]) -> Tensor:
    """Give each kind a unit vector of 4 channels: two vectors are equal, opposite, or orthogonal."""
    axes = torch.eye(JOB_SIZE)
    return torch.cat([axes, -axes])[kinds]


def _wanted(keys: Tensor) -> tuple[Tensor, Tensor]:
    """Let every query prefer the keys with large values in `keys` (T,)."""
    q, k = torch.zeros(2, len(TEXT), JOB_SIZE)
    q[:, 0], k[:, 0] = 1, keys
    return q, k


def _jobs() -> dict[str, tuple[Tensor, Tensor]]:
    """Return q and k, (T, 4) each, of 16 attention patterns that a head might have, by their names."""
    T = len(TEXT)
    age = torch.arange(T) / T
    vowel, space = (torch.tensor([float(letter in group) for letter in TEXT]) for group in ("aeiou", " "))
    letters = _codes([sorted(set(TEXT)).index(letter) for letter in TEXT])
    kinds = _codes((vowel + 2 * space).int().tolist())
    before = torch.cat([torch.zeros(1, JOB_SIZE), letters[:-1]])
    starts = torch.cat([torch.ones(1), space[:-1]])
    return {
        "the previous character": _place(1),
        "the same letter": (letters, letters),
        "the first character": _wanted(1.0 - age.sign()),
        "vowels": _wanted(vowel),
        "itself": _place(0),
        "what followed this letter earlier": (letters, before),
        "the start of the latest word": _wanted(starts + age / 2),
        "three characters back": _place(3),
        "all alike": _wanted(0 * age),
        "the same kind": (kinds, kinds),
        "the latest space": _wanted(space + age / 2),
        "two characters back": _place(2),
        "the later the better": _wanted(age),
        "another kind": (kinds, -kinds),
        "the latest vowel": _wanted(vowel + age / 2),
        "four characters back": _place(4),
    }


JOBS = _jobs()
QUERIES, KEYS = (torch.cat(parts, dim=-1) * STRENGTH**0.5 for parts in zip(*JOBS.values(), strict=True))


def controls() -> dict[str, ipywidgets.ValueWidget]:
    """Return the number of heads, the query whose weights are listed, and the mask."""
    return {
        "n_head": ipywidgets.SelectionSlider(
            options=[2**power for power in range(7)], value=16, description="n_head"
        ),
        "query": ipywidgets.IntSlider(len(TEXT) - 1, 0, len(TEXT) - 1, description="query t"),
        "masked": ipywidgets.Checkbox(True, description="causal mask", indent=False),
    }


def compute(n_head: int, query: int, masked: bool) -> dict[str, Tensor]:
    """Return the weights of every head, (n_head, T, T), and the query."""
    T = len(TEXT)
    head_size = head_size_of(N_EMBD, n_head)
    q, k = (each.view(T, -1, head_size).transpose(0, 1) for each in (QUERIES, KEYS))
    return {
        "weights": attention_weights(q, k, causal_mask(T) if masked else None),
        "query": torch.tensor(query),
    }


def sheet(weights: Tensor) -> Tensor:
    """Arrange the maps (n_head, T, T) in a grid, in reading order, one line apart."""
    n_head, T, _ = weights.shape
    rows = 2 ** ((n_head.bit_length() - 1) // 2)
    tiles = F.pad(weights, (0, 1, 0, 1)).view(rows, -1, T + 1, T + 1)
    return tiles.transpose(1, 2).reshape(rows * (T + 1), -1)[:-1, :-1]


def ticks(names: list[str]) -> list[str]:
    """Put each name in the middle of a map."""
    T = len(TEXT)
    return [
        names[place // (T + 1)] if place % (T + 1) == T // 2 else ""
        for place in range((T + 1) * len(names) - 1)
    ]


def draw(figure: LiveFigure, weights: Tensor, query: Tensor) -> None:
    """Show the grid of maps, and one row of each; the caption counts channels and parameters."""
    n_head, t = len(weights), int(query)
    percent = (100 * weights).round()
    maps = sheet(percent)
    title, rows, columns = "weights of head 0, in percent", NAMES, NAMES
    if n_head > 1:
        title = f"weights of heads 0 to {n_head - 1}"
        across = (maps.shape[1] + 1) // (len(TEXT) + 1)
        rows = ticks([str(head) for head in range(0, n_head, across)])
        columns = ticks([f"+{head}" for head in range(across)])
    jobs = list(JOBS) if n_head == len(JOBS) else []
    first = f"In head 0 (job: {jobs[0]})" if jobs else "In head 0"
    most = int(weights[0, t].argmax())
    look = {"limit": 100, "reserved": (len(TEXT), len(TEXT)), "unit": " %"}
    figure.show(
        Heatmap(
            title,
            maps,
            "query",
            "key",
            rows,
            columns,
            grid_labels=NAMES,
            map_label="head",
            map_names=jobs,
            **look,
        ),
        Heatmap(
            f"query {NAMES[t]} in each head, in percent", percent[:, t], "head", "key", columns=NAMES, **look
        ),
        caption=(
            f"n_head = {n_head}, head_size = {N_EMBD} / {n_head} = {N_EMBD // n_head}. Parameters: "
            f"4 · {N_EMBD}² = {4 * N_EMBD**2:,}, for any n_head. {first}, query {t} “{LETTERS[t]}” gives "
            f"{format_number(percent[0, t, most].item())} % of its weight to key {most} “{LETTERS[most]}”."
        ),
    )
