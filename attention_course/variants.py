"""Questions that are drawn anew: the same question with other numbers, so that no answer can be remembered.

An entry of `questions.toml` is a template if it has a table `draw`, which gives each name the values that it
may take: `draw = { a = [2, 5], V = [33, 65] }`. A variant takes one value for each name. Its texts hold
fields of f-strings, `{{log(V):.2f}}`, as the prose of notebooks does, made of these names and of
FUNCTIONS. The first values of all are those of the lesson. A variant in which two choices read alike is none.
"""

import math
import random
import re
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any, NotRequired, TypedDict

FIELD = re.compile(r"\{\{(.+?)\}\}")
MOST = 8  # variants of a question


class Choice(TypedDict):
    """One way to answer a question. A text that is code as a whole stands between backticks."""

    text: str
    explanation: str
    right: NotRequired[bool]


class Entry(TypedDict):
    """A question and its choices."""

    question: str
    choices: list[Choice]


def listed(values: Iterable[Any], between: str = ", ", form: str = "") -> str:
    """Write values one after the other, numbers as short as they are or in the format `form`."""
    return between.join(value if isinstance(value, str) else format(value, form or "g") for value in values)


def mean(*tokens: list[int]) -> list[float]:
    """Return the mean of tokens, channel by channel."""
    return [sum(channel) / len(tokens) for channel in zip(*tokens, strict=True)]


FUNCTIONS = {each.__name__: each for each in (listed, mean, len, max, range, round, sorted, sum)}
FUNCTIONS |= {each.__name__: each for each in (math.exp, math.log, math.sqrt)}


def filled(text: str, values: dict[str, Any]) -> str:
    """Put the values of fields in their places; a value may hold fields itself. A minus is a −."""

    def said(field: re.Match) -> str:
        made = eval(f'f"""{{{field[1]}}}"""', {"__builtins__": {}} | FUNCTIONS | values)
        return made if FIELD.search(made) else re.sub(r"-(?=\d)", "−", made)

    while FIELD.search(text):
        text = FIELD.sub(said, text)
    return text


def variants(template: dict[str, Any]) -> Iterator[Entry]:
    """Make the variants of a question, at most MOST, always the same: first the lesson's, then drawn ones.

    The drawn ones have their choices in another order. A question without `draw` has one variant.
    """
    drawn, rng = template.get("draw", {}), random.Random(0)
    first, *others = product(*drawn.values())
    rng.shuffle(others)
    made = 0
    for combination in [first, *others]:
        values = dict(zip(drawn, combination, strict=True))
        choices: list[Any] = [
            {key: filled(said, values) if isinstance(said, str) else said for key, said in choice.items()}
            for choice in template["choices"]
        ]
        if len({choice["text"] for choice in choices}) < len(choices):
            continue
        if made:
            rng.shuffle(choices)
        yield {"question": filled(template["question"], values), "choices": choices}
        made += 1
        if made == MOST:
            return
