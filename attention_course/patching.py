"""Patches of source code: strings that occur in it once, and what replaces them.

Mistakes of exercises and planted bugs are such patches: a mistake then is what a learner would change.
"""

from collections.abc import Iterable
from itertools import pairwise

Edit = tuple[str, str]  # a string that occurs once in the source, and its replacement


def touching(source: str, edits: Iterable[Edit]) -> bool:
    """Return whether two of the edits overlap or are adjacent."""
    spans = sorted((source.index(old), source.index(old) + len(old)) for old, _ in edits)
    return any(end >= start for (_, end), (start, _) in pairwise(spans))


def replaced(source: str, edits: Iterable[Edit], name: str) -> str:
    """Return the source with strings replaced.

    Raises:
        ValueError: a string does not occur exactly once, or two edits change the same words; `name` is in the
            message.
    """
    edits = list(edits)
    for old, _ in edits:
        if source.count(old) != 1:
            raise ValueError(f"{name}: {old!r} occurs {source.count(old)} times, expected once.")
    parts, end = [], len(source)
    for start, old, new in sorted(((source.index(old), old, new) for old, new in edits), reverse=True):
        if start + len(old) > end:
            raise ValueError(f"{name}: two of these patches change the same words. Take one of them.")
        parts += [source[start + len(old) : end], new]
        end = start
    return "".join(reversed([*parts, source[:end]]))
