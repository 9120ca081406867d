"""Sliders that show what the numbers do: `explore("bag_of_words")` in a notebook cell.

One module a rung, each with three parts: `controls()` makes the sliders, `compute(...)` turns their values
into tensors, `draw(figure, ...)` shows the tensors.
"""

from attention_course.explorers import (
    bag_of_words,
    cross_and_causal,
    masked_softmax,
    multi_head,
    query_key_value,
    scaling_variance,
    tril_matmul,
)
from attention_course.explorers.engine import Explorer
from attention_course.names import look_up

EXPLORERS = {
    "bag_of_words": bag_of_words,
    "tril_matmul": tril_matmul,
    "masked_softmax": masked_softmax,
    "query_key_value": query_key_value,
    "scaling_variance": scaling_variance,
    "cross_and_causal": cross_and_causal,
    "multi_head": multi_head,
}


def explore(name: str) -> Explorer:
    """Make the explorer called `name`; as the last line of a notebook cell it shows itself.

    Raises:
        ValueError: there is no explorer of that name; the message lists them.
    """
    module = look_up(name, EXPLORERS, "explorer")
    return Explorer(module.controls(), module.compute, module.draw)
