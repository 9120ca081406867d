"""The cells of a rung's notebook by their tags, for all that needs one of them; and notebooks made short.

`name:dates` is a name, the same for cells that are wanted together. `long:800` says that a cell takes long,
and is short with a smaller number for its 800; `long`, that it is short once `shorten` was called.
"""

import ast
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jupytext
import pytest
from IPython.core.interactiveshell import ExecutionInfo, InteractiveShell
from IPython.utils.capture import capture_output
from nbformat import NotebookNode

from attention_course import smollm
from attention_course.ladder import RUNGS
from attention_course.llama import Llama
from attention_course.speedrun import FAST_CONFIGS
from attention_course.training import RECIPES

CALL = re.compile(r'^(?:\w+ = )?(ask|check|explore|fill|hero|warm_up|LiveTraining)\((?:"(\w+)")?', re.M)
STEPS = 3  # of a training that only has to run


def code_of(stem: str, *names: str, short: bool = False) -> str:
    """Return the code of the cells of a rung that have one of these names, in the order of the notebook."""
    source = next(rung.text("notebook.py") for rung in RUNGS if rung.stem == stem)
    cells = [(cell, tagged(cell, "name")) for cell in jupytext.reads(source, fmt="py:percent").cells]
    if missing := {*names} - {name for _, name in cells}:
        raise ValueError(f"No cell of {stem} has the tag name:{', name:'.join(missing)}. Give it to one.")
    return "\n\n".join(shortened(cell) if short else cell.source for cell, name in cells if name in names)


def run(stem: str, *names: str, short: bool = False, **given: object) -> dict[str, Any]:
    """Run these cells, with the names that are given to them; return all that they define."""
    defined = {"__name__": stem} | given
    exec(code_of(stem, *names, short=short), defined)
    return defined


def calls_in(code: str) -> list[tuple[str, str]]:
    """Return which of the course's widgets a cell shows, and the names that it gives them."""
    return CALL.findall(code)


def tagged(cell: NotebookNode, kind: str) -> str | None:
    """Return what follows `kind:` in the tags of a cell; "" if nothing does, None if it has no such tag."""
    tags = (tag.partition(":") for tag in cell.metadata.get("tags", []))
    return next((value for key, _, value in tags if key == kind), None)


def shortened(cell: NotebookNode) -> str:
    """Return the code of a cell, with STEPS in place of the number that makes it long."""
    if not (number := tagged(cell, "long")):
        return cell.source
    short, found = re.subn(rf"\b{number}\b", str(STEPS), cell.source)
    if not found:
        raise ValueError(f"A cell has the tag long:{number}, and no {number} in it:\n{cell.source}")
    return short


def shorten(patch: pytest.MonkeyPatch) -> None:
    """Let the recipes of the stories take STEPS steps, and let SmolLM2 be small and untrained."""
    patch.setitem(RECIPES, "stories", replace(RECIPES["stories"], steps=STEPS))
    patch.setitem(FAST_CONFIGS["stories"][1], "steps", STEPS)
    patch.setattr(smollm, "load_smollm", partial(load_small, smollm.load_smollm))


def load_small(load: Callable) -> tuple[Llama, smollm.BytePairTokenizer]:
    """Return a model with SmolLM2's layers, heads and tokenizer, but few channels."""
    _, tokenizer = load()
    return Llama(replace(smollm.SMOLLM, n_embd=36, n_hidden=36)).eval(), tokenizer


def run_twice(shell: InteractiveShell, cells: int) -> None:
    """Let a kernel run each of so many cells twice, as readers do; of the first time only errors are seen."""
    left = iter(range(cells))

    def before(info: ExecutionInfo) -> None:
        if next(left, None) is not None:
            with capture_output():
                shell.run_cell(info.raw_cell, silent=True)

    shell.events.register("pre_run_cell", before)


class Unasked(ast.NodeTransformer):
    """Take out what a cell asserts: after a short training it is not true."""

    def visit_Assert(self, node: ast.Assert) -> ast.Pass:
        return ast.copy_location(ast.Pass(), node)
