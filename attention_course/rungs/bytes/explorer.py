"""Where the memory goes: the table of scores, a block of it, caches, parameters; at SmolLM2's sizes."""

import ipywidgets
import torch
from torch import Tensor

from attention_course.explorers.figure import LiveFigure
from attention_course.plots import Bars, format_number
from attention_course.smollm import SMOLLM

PARAMETERS = 134_515_008
BLOCK = 128  # queries and keys of a block
N_HEAD = SMOLLM.n_head
HEAD_SIZE = SMOLLM.n_embd // N_HEAD
SIZES = {"float32": 4, "bfloat16": 2, "8 bits": 1}  # bytes of a number
LABELS = ["table", "block", "caches", "parameters"]
SETTINGS = {"T": 4096, "texts": 2}  # of its picture in README.md


def controls() -> dict[str, ipywidgets.ValueWidget]:
    """Return the tokens of a text, the number of texts, the key heads, and the type of all numbers."""
    return {
        "T": ipywidgets.SelectionSlider(
            options=[2**power for power in range(7, 14)], value=512, description="T"
        ),
        "texts": ipywidgets.SelectionSlider(options=[2**power for power in range(7)], description="texts"),
        "n_kv_head": ipywidgets.SelectionSlider(options=[1, 3, 9], value=3, description="n_kv_head"),
        "dtype": ipywidgets.ToggleButtons(
            options=list(SIZES), value="bfloat16", description="numbers", style={"button_width": "auto"}
        ),
    }


def compute(T: int, texts: int, n_kv_head: int, dtype: str) -> dict[str, Tensor]:
    """Return the MB of the scores of one layer for one text, of a block, of all caches, and of the model."""
    block = min(T, BLOCK)
    cache = 2 * SMOLLM.n_layer * n_kv_head * HEAD_SIZE * T
    numbers = [N_HEAD * T * T, N_HEAD * block * block, texts * cache, PARAMETERS]
    return {
        "megabytes": torch.tensor(numbers, dtype=torch.float64) * SIZES[dtype] / 1e6,
        "T": torch.tensor(T),
        "texts": torch.tensor(texts),
    }


def size(megabytes: float) -> str:
    """Write a size in MB, or in GB from 1,000 MB on."""
    return f"{format_number(megabytes)} MB" if megabytes < 1000 else f"{format_number(megabytes / 1000)} GB"


def draw(figure: LiveFigure, megabytes: Tensor, T: Tensor, texts: Tensor) -> None:
    """Show four bars; the caption compares the table with its blocks, and the caches with the parameters."""
    table, block, caches, parameters = megabytes.tolist()
    whose = "The cache of the text takes" if texts == 1 else f"The caches of the {int(texts)} texts take"
    saved = "all of them in one block" if T <= BLOCK else f"and a block of them {size(block)}"
    figure.show(
        Bars("MB", megabytes, LABELS, "what is kept", (0, 1.1 * max(megabytes.tolist()))),
        caption=(
            f"With {int(T):,} tokens, the scores of one layer and one text take {size(table)}, "
            f"{saved}. {whose} {size(caches)}, {format_number(caches / parameters)} times as "
            f"much as the parameters with their {size(parameters)}."
        ),
    )
