"""What `tools/record_answers.py` measured with five base models, each from another seed."""

import json
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("measured.json")


@cache
def measured() -> dict[str, Any]:
    """Return what measured.json holds: the machine, and for each seed the scores of all models."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def scores(run: str, what: str, steps: int | None = None) -> list[float]:
    """Return one score of all seeds.

    Args:
        run: "base", "sloppy", one of the fine-tuned models, or one of the rewarded ones.
        what: "greedy", "sampled", "begun", "prompts" or a kind of question; see `scores` in the tool.
        steps: of fine-tuning, 10 or 120.
    """
    every = measured()["seeds"]
    if steps is not None:
        return [seed["tuned"][run][str(steps)][what] for seed in every]
    if run in every[0]["rewarded"]:
        return [seed["rewarded"][run]["after"][what] for seed in every]
    return [seed[run][what] for seed in every]


def spread(run: str, what: str, steps: int | None = None) -> str:
    """Return the lowest and the highest of `scores`, as words."""
    low, high = (f"{of(scores(run, what, steps)):.2f}" for of in (min, max))
    return low if low == high else f"{low} to {high}"


def by_kind(run: str, steps: int | None = None, of: str = "{}") -> str:
    """Return `spread` for each kind of question, as one line."""
    names = {"receiver": "Who got it?", "thing": "What?", "place": "Where?"}
    return "   ".join(f"{name} {spread(run, of.format(kind), steps):12}" for kind, name in names.items())
