"""Bugs as they look from outside, where no source is read: what changes with what, and how far."""

import math
from functools import cache
from typing import Any

import ipywidgets
import torch
from torch import Tensor

from attention_course.examine import QUESTIONS, Finding
from attention_course.examine.beginning import loss_of_random_ids
from attention_course.examine.planted import BUGS, PLANTED_DEFAULTS, Bug, plant
from attention_course.examine.question import PAIRWISE_TOKENS, ModelVariants
from attention_course.examine.wrapped_model import WrappedModel
from attention_course.explorers.figure import LiveFigure
from attention_course.plots import Bars, Comparison, Heatmap, format_number

NONE = "no bug"
RIGHT = Bug(NONE, [])
SHOWN = (
    NONE,
    "no mask",
    "mask off by one",
    "mask inverted",
    "each token hidden from itself",
    "weights over queries",
    "weights over the batch",
    "weights transposed",
    "no scale",
    "scale by √T",
    "heads of the value by view without transpose",
    "heads joined without transpose",
    "no positions, one layer",
    "positions of the batch",
    "positions counted from the end",
    "no residual around attention",
    "attention not added",
    "LayerNorm over time",
    "dropout in eval mode",
    "no token sees more than 4 back",
    "embeddings too large",
    "logits already softmaxed",
)
PROBES = ("asked again", "other texts", "cut after it", "two swapped")
FULL = 5.0  # the change of an output with full colour
LARGEST = 6.0  # loss
SETTINGS = {"bug": "heads of the value by view without transpose"}  # of its picture in README.md


def controls() -> dict[str, ipywidgets.ValueWidget]:
    """Return the bug."""
    return {"bug": ipywidgets.Dropdown(options=SHOWN, description="bug", layout={"width": "400px"})}


@cache
def compute(bug: str) -> dict[str, Any]:
    """Plant a bug in a model of one layer, always with the same parameters, and look at it from outside.

    `table` (16, 16) says how far each output (row) moves when each token (column) is another, `leaks` which
    of these cells lie in the future. `changed` (4, 2): how many of the 16 outputs change in each of PROBES,
    in the right model and in this one. `losses` (2,): ln V and the first loss. `finding`: the one of an
    examination that is meant for the bug.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        planted = RIGHT if bug == NONE else BUGS[bug]
        model = plant(planted, **{"layers": 1, **planted.sizes})
        wrapped = WrappedModel(model, PLANTED_DEFAULTS["vocab_size"], PLANTED_DEFAULTS["block_size"])
        variants = ModelVariants(wrapped)
        new = variants.new
        table, rounding = table_of(new)
        changed = outputs_changed(new)
        asked = (each.put_to(variants, {}) for each in QUESTIONS if each.name == planted.finding)
        finding = next(asked, None)
    right = changed if bug == NONE else compute(NONE)["changed"][:, 0]
    return {
        "table": table,
        "leaks": [(t, s) for t, s in (table > rounding).triu(1).nonzero().tolist()],
        "changed": torch.stack([right, changed], dim=-1),
        "losses": torch.tensor([math.log(new.vocab_size), loss_of_random_ids(new)]),
        "finding": finding,
    }


def table_of(wrapped: WrappedModel) -> tuple[Tensor, float]:
    """Return how far each output moves when each token is another, (16, 16), and what may be rounding.

    Each text is read alone: what others in a batch do is a question of its own.
    """
    ids = wrapped.draw(1, PAIRWISE_TOKENS, seed=1)
    moves = torch.cat([wrapped.effects(ids, by) for by in (1, 2, 3)]).mean(dim=0)
    return moves, wrapped.tolerance(wrapped.logits(ids))


def outputs_changed(wrapped: WrappedModel) -> Tensor:
    """Return how many of the outputs of a text change in each of PROBES, (4,)."""
    ids = wrapped.draw(3, PAIRWISE_TOKENS, seed=3)
    logits = wrapped.logits(ids)
    cut = torch.cat(
        [wrapped.logits(ids[:, :length])[:, -1:] for length in range(1, PAIRWISE_TOKENS + 1)], dim=1
    )
    swapped = wrapped.logits(ids[:, [1, 0, *range(2, PAIRWISE_TOKENS)]])
    others = [wrapped.logits(ids, seed=1), wrapped.logits(ids[-1:]), cut, swapped]
    away = torch.stack([(other[-1] - logits[-1]).abs().amax(dim=-1) for other in others])
    return (away > wrapped.tolerance(logits)).sum(dim=-1).float()


def draw(
    figure: LiveFigure,
    table: Tensor,
    leaks: list[tuple[int, int]],
    changed: Tensor,
    losses: Tensor,
    finding: Finding | None,
) -> None:
    """Show what moves what, what should change no output and what should, and the loss at first."""
    expected, loss = losses.tolist()
    right = (
        "Nothing is wrong. Each output moves with its own token, on average less with those before it, and "
        f"with nothing else. The first loss is {format_number(loss)} nats, and "
        f"ln V = {format_number(expected)}."
    )
    most = float(table.max())
    pale = f" No token moves an output by more than {format_number(most)}." if most < FULL / 10 else ""
    figure.show(
        Heatmap("how far a token moves an output", table, "output", "token", limit=FULL, crossed_out=leaks),
        Comparison(
            f"outputs that change, of {PAIRWISE_TOKENS}",
            changed,
            PROBES,
            ["a right model", "this one"],
            limit=PAIRWISE_TOKENS,
        ),
        Bars("loss before training", losses, ["ln V", "this one"], "nats", (0, LARGEST)),
        caption=right
        if finding is None
        else f"“{finding.name}” catches it. {finding.measured} {finding.cause}{pale}",
    )
