"""Look up a name that a learner typed, with a suggestion where it is misspelled."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import TypeVar

SHOWN = 60  # characters of what was passed

Thing = TypeVar("Thing")


def look_up(name: str, things: Mapping[str, Thing], kind: str) -> Thing:
    """Return `things[name]`.

    Raises:
        ValueError: unknown name; the message lists the names and suggests the closest.
    """
    if not isinstance(name, str) or name not in things:
        close = get_close_matches(name, things, n=1) if isinstance(name, str) else []
        guess = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"There is no {kind} called {shown(name)}.{guess} There are: {', '.join(things)}.")
    return things[name]


def shown(x: object) -> str:
    """Return the beginning of the repr of what was passed, for a message.

    It is the type, if its own class fails to tell it.
    """
    try:
        text = repr(x)
    except Exception:
        return f"<{type(x).__name__}>"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]} [...]"
