"""Sliders that show what the numbers do: `explore("bag_of_words")` in a notebook cell.

One module an explorer, each with three parts: `controls()` makes the sliders, `compute(...)` turns their
values into tensors, `draw(figure, ...)` shows the tensors. What an explorer of rung 8 looks at, a model for
example, is its subject: keywords of both `controls` and `compute`, each with a default.
"""

from functools import partial
from inspect import getdoc, signature

from attention_course.explorers.engine import Explorer
from attention_course.explorers.live_training import LiveTraining
from attention_course.ladder import RUNGS, modules
from attention_course.names import look_up

EXPLORERS = modules("explorers", [name for rung in RUNGS for name in rung.explorers or (rung.stem,)])

__all__ = ["EXPLORERS", "LiveTraining", "explore"]


def explore(name: str, **subject: object) -> Explorer:
    """Make the explorer called `name`; as the last line of a notebook cell it shows itself.

    Args:
        name: one of EXPLORERS.
        **subject: what it looks at. "sampling" takes model, tokenizer and prompt, "attention_over_text" takes
            model, tokenizer and text; what is left out is a GPT that has learnt nothing yet, or a story.

    Raises:
        ValueError: there is no explorer of that name; the message lists them. Or the parts of the subject do
            not go together.
        TypeError: this explorer does not look at such a thing.
    """
    module = look_up(name, EXPLORERS, "explorer")
    takes = signature(module.controls).parameters
    for given in subject:
        if given not in takes:
            looks_at = f"It looks at: {', '.join(takes)}." if takes else "It brings all that it shows."
            raise TypeError(f"The explorer {name!r} takes no {given!r}. {looks_at}")
    about = (getdoc(module) or "") if subject else ""
    return Explorer(module.controls(**subject), partial(module.compute, **subject), module.draw, about)
