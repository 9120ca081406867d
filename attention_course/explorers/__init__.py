"""Interactive figures with sliders: `explore("bag_of_words")` in a notebook cell.

One module per explorer, `explorer.py` in the folder of its rung, with three functions: `controls()` makes
the sliders, `compute(...)` maps their values to tensors, `draw(figure, ...)` shows the tensors. What
`below(explorer)` returns, if there is such a function, stands below the figure where there is a kernel. The
subject of some
explorers, for example a model, is passed as keyword arguments to both
`controls` and `compute`, each with a default.
"""

from functools import partial
from inspect import getdoc, signature

from attention_course.explorers.engine import Explorer
from attention_course.explorers.live_training import LiveTraining
from attention_course.ladder import RUNGS
from attention_course.names import look_up

EXPLORERS = {name: rung.module(module) for rung in RUNGS for name, module in rung.explorers.items()}

__all__ = ["EXPLORERS", "LiveTraining", "explore"]


def explore(name: str, **subject: object) -> Explorer:
    """Make the explorer called `name`; as the last line of a notebook cell it displays itself.

    Args:
        name: one of EXPLORERS.
        **subject: what it shows. "sampling" takes model, tokenizer and prompt, "attention_over_text" and
            "heads" take model, tokenizer and text; the defaults are an untrained model and a story.

    Raises:
        ValueError: unknown name; the message lists all. Or the parts of the subject do not match.
        TypeError: this explorer takes no such argument.
    """
    module = look_up(name, EXPLORERS, "explorer")
    takes = signature(module.controls).parameters
    for given in subject:
        if given not in takes:
            expected = f"It takes: {', '.join(takes)}." if takes else "It takes no arguments."
            raise TypeError(f"The explorer {name!r} takes no {given!r}. {expected}")
    about = (getdoc(module) or "") if subject else ""
    explorer = Explorer(module.controls(**subject), partial(module.compute, **subject), module.draw, about)
    if hasattr(module, "below"):
        explorer.children = (*explorer.children, module.below(explorer))
    return explorer
