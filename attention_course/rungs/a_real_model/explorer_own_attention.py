"""Your own attention in SmolLM2: what it writes, its loss and its maps, with one line right or wrong.

`right`, and BUGS as patches of it, are functions `own(q, k, v, mask)` for
`attention_course.heads.attention_by`: run them without a cache. What SmolLM2 does with them is stored in
own_attention.json, which `tools/record_own_attention.py` writes, so that it can be shown without the model.
"""

import base64
import json
import math
from collections.abc import Callable
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import Any

import ipywidgets
import torch
from torch import Tensor

from attention_course.exercises.exercise import Patched, patched, source_of
from attention_course.explorers.figure import LiveFigure
from attention_course.patching import Edit
from attention_course.plots import Comparison, Heatmap, Text, visible

FILE = Path(__file__).with_name("own_attention.json")
PROMPTS = {
    "the capital": "The capital of France is",
    "the owl": "Once upon a time there was a little owl who lived in a tree. Every night",
    "the drum": "Kind Ben gave poor Sam a drum at the farm. Who got it? Poor",
}
TOKENS = 14  # that are written after a prompt
HEADS = {  # what they are known for, and (layer, head)
    "0.2, in the first layer": (0, 2),
    "16.0, the token before": (16, 0),
    "17.4, induction": (17, 4),
    "18.8, the first token": (18, 8),
}


def right(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return output and weights, as a layer of SmolLM2 computes them."""
    scores = q @ k.transpose(-2, -1)
    scores = scores * q.shape[-1] ** -0.5
    scores[..., ~mask] = -math.inf
    weights = torch.softmax(scores, dim=-1)
    output = weights @ v
    return output, weights


SCALE = "    scores = scores * q.shape[-1] ** -0.5\n"
MASK = "    scores[..., ~mask] = -math.inf\n"
SOFTMAX = "    weights = torch.softmax(scores, dim=-1)\n"
OUTPUT = "    output = weights @ v\n"
EDITS: dict[str, tuple[Edit, ...]] = {
    "no scale": ((SCALE, ""),),
    "scale 1/√n_embd": (
        (SCALE, "    n_embd = q.shape[1] * q.shape[-1]\n    scores = scores * n_embd**-0.5\n"),
    ),
    "no mask": ((MASK, ""),),
    "sees one token ahead": ((MASK, "    mask = torch.ones_like(mask).tril(1)\n" + MASK),),
    "does not see itself": (
        (MASK, "    mask = mask.tril(-1)\n    mask[0, 0] = True  # it has no other\n" + MASK),
    ),
    "mask after the softmax": ((MASK, ""), (OUTPUT, "    weights[..., ~mask] = 0\n" + OUTPUT)),
    "softmax over the queries": ((SOFTMAX, SOFTMAX.replace("dim=-1", "dim=-2")),),
    "heads merged without transpose": (
        (
            OUTPUT,
            OUTPUT + "    B, H, T, d = output.shape\n"
            "    output = output.view(B, T, H, d)\n    output = output.transpose(1, 2)\n",
        ),
    ),
}
BUGS: dict[str, Patched] = {name: patched(right, edits) for name, edits in EDITS.items()}
OWN: dict[str, Callable] = {"right": right} | BUGS
SAYS = {  # what an attention does, in a sentence
    "right": "Nothing is wrong here, and SmolLM2 runs as it was trained.",
    "no scale": (
        "The scores are 8 times as large as in training, so softmax gives nearly all of the weight to one "
        "token."
    ),
    "scale 1/√n_embd": (
        "The scores are a third of those in training, so softmax spreads the weight too evenly, and the text "
        "repeats itself."
    ),
    "no mask": (
        "Each token also sees the ones after it, so it sees the very token that it has to predict, and the "
        "loss falls. At the end of a prompt there is nothing to copy, and the text goes wrong."
    ),
    "sees one token ahead": (
        "Each token sees the one that it has to predict, so the loss falls. At the end of a prompt there is "
        "nothing ahead, and the text may still look right."
    ),
    "does not see itself": (
        "Each token sees only those before it. The loss rises only a little and the text stays fluent, but "
        "it may be wrong or repeat itself."
    ),
    "mask after the softmax": (
        "The later tokens get the weight 0, but only after softmax gave them a share, so every row but the "
        "last sums to less than 1."
    ),
    "softmax over the queries": (
        "The columns of the map sum to 1 instead of its rows, so one query may get far too much and another "
        "hardly anything."
    ),
    "heads merged without transpose": (
        "Each head computes what it should, but its output lands in the rows of other tokens, so from the "
        "second layer on all maps are wrong."
    ),
}
COLUMNS = Text.COLUMNS


@cache
def measured() -> dict[str, Any]:
    """Return what own_attention.json holds: loss of a guess, tokens of prompts, and results by name."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def code_of(name: str) -> list[str]:
    """Return the lines of one of OWN, without its head."""
    return dedent(
        source_of(right)[1] if name == "right" else BUGS[name].source.partition("\n")[2]
    ).splitlines()


def changes(name: str) -> list[tuple[str, str]]:
    """Return the lines of one of OWN, with "−" before one of `right` that it lacks, "+" before its own."""
    lines, own, rows = code_of("right"), code_of(name), []
    matcher = SequenceMatcher(None, lines, own, autojunk=False)
    for kind, from_right, to_right, start, end in matcher.get_opcodes():
        if kind == "equal":
            rows += [(" ", line) for line in own[start:end]]
        else:
            rows += [("−", line) for line in lines[from_right:to_right]]
            rows += [("+", line) for line in own[start:end]]
    return rows


def maps_of(name: str, prompt: str) -> Tensor:
    """Return the stored weights (heads, T, T) of a prompt."""
    at = list(PROMPTS).index(prompt)
    T = len(measured()["tokens"][at])
    stored = base64.b64decode(measured()["own"][name]["maps"][at])
    return torch.tensor(list(stored)).view(len(HEADS), T, T) / 100


def controls() -> dict[str, ipywidgets.ValueWidget]:
    """Return the menus of attentions, prompts and heads."""
    wide = {"width": "330px"}
    return {
        "attention": ipywidgets.Dropdown(
            options=list(OWN), value="no scale", description="attention", layout=wide
        ),
        "prompt": ipywidgets.Dropdown(options=list(PROMPTS), description="prompt"),
        "head": ipywidgets.Dropdown(options=list(HEADS), value="16.0, the token before", description="head"),
    }


def compute(attention: str, prompt: str, head: str) -> dict[str, Any]:
    """Return the stored results of an attention and of the right one.

    `maps` (2, T, T) are the weights of the head, the right ones first; `written` the tokens that follow the
    prompt, and `losses` those on the tale, in the same order.
    """
    at, both = list(PROMPTS).index(prompt), [measured()["own"][name] for name in ("right", attention)]
    chosen = list(HEADS).index(head)
    return {
        "names": ("right", attention),
        "head": head.partition(",")[0],
        "tokens": measured()["tokens"][at],
        "written": [each["written"][at] for each in both],
        "losses": torch.tensor([each["loss"] for each in both]),
        "guess": measured()["guess"],
        "maps": torch.stack([maps_of(name, prompt)[chosen] for name in ("right", attention)]),
        "code": changes(attention),
    }


def draw(
    figure: LiveFigure,
    names: tuple[str, str],
    head: str,
    tokens: list[str],
    written: list[list[str]],
    losses: Tensor,
    guess: float,
    maps: Tensor,
    code: list[tuple[str, str]],
) -> None:
    """Show the code, both texts, both maps and both losses."""
    _, name = names
    places = [str(place) for place in range(len(tokens))]
    labels = [f"{place} {visible(token).strip()}" for place, token in zip(places, tokens, strict=True)]
    T = len(tokens)
    rows = [f"{sign} {line}".ljust(COLUMNS) for sign, line in code]
    shares = torch.tensor([float(sign != " ") for sign, _ in code])
    signs = {sign for sign, _ in code}
    marks = {"−": "− the line that is missing", "+": "+ what shouldn't be there", " ": "The right code"}
    title = "− the right line, + yours" if signs >= {"−", "+"} else marks[max(signs - {" "}, default=" ")]
    whose = ("The right attention", "Yours")
    figure.show(
        Text(title, rows, shares, limit=3),
        Comparison(
            "Loss on our page, nats per token",
            torch.tensor([[losses[0]], [losses[1]], [guess]]),
            ["right", "yours", "blind guess"],
            ["loss"],
            12,
        ),
        *(
            Text(
                f"{title} writes",
                [*tokens, *after],
                torch.tensor([0.0] * T + [1.0] * len(after)),
                limit=3,
                label="written",
            )
            for title, after in zip(whose, written, strict=True)
        ),
        *(
            Heatmap(f"{title}, head {head}", weights, "query", "key", labels, places, limit=1)
            for title, weights in zip(whose, maps, strict=True)
        ),
        caption=words(name, written, losses, guess),
    )


def words(name: str, written: list[list[str]], losses: Tensor, guess: float) -> str:
    """Return the caption: what is wrong, the losses, and both texts."""
    right, own = (f"{loss:.2f}" for loss in losses.tolist())
    first, other = (visible("".join(each)).strip() for each in written)
    if name == "right":
        return (
            f"{SAYS[name]} The loss on our page is {right} nats per token, and a blind guess costs "
            f"{guess:.2f}. It writes “{first}”."
        )
    return (
        f"{SAYS[name]} The loss on our page is {own} nats per token. With the right attention it is {right}, "
        f"and a blind guess costs {guess:.2f}. It writes “{other}”, and with the right attention “{first}”."
    )
