"""What the page's torch lacks: an error that names it, which no answer can be blamed for."""

import json
from pathlib import Path

NAMES = Path(__file__).with_name("names.json")  # what PyTorch has, by "torch", "Tensor", "nn", "functional"
KNOWN = json.loads(NAMES.read_text(encoding="utf-8")) if NAMES.exists() else None
asked: list[str] = []  # since the last check


class LackingError(BaseException):
    """Not an `Exception`: an answer that catches errors gets no verdict either."""


def lacking(what, owner=None, name=None):
    """Raise: AttributeError if PyTorch has no such name either."""
    if owner and KNOWN is not None and name not in KNOWN[owner]:
        kind = "'Tensor' object" if owner == "Tensor" else f"module '{what.rpartition('.')[0]}'"
        raise AttributeError(f"{kind} has no attribute '{name}'")
    asked.append(what)
    raise LackingError(f"{what} works in the notebook, and not in this page.")
