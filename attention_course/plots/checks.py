"""Validation of panels, done once, at construction."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields

import torch
from torch import Tensor

from attention_course.checks import is_tensor, real
from attention_course.names import shown
from attention_course.plots.style import Number

FLOAT32 = torch.finfo(torch.float32)


def check_texts(panel: object) -> None:
    """Raise TypeError unless a text is one: each field of a panel that is annotated as str."""
    for each in fields(panel):  # pyright: ignore[reportArgumentType]
        text = getattr(panel, each.name)
        if each.type is str and not isinstance(text, str):
            name = f"{type(panel).__name__}: {each.name}"
            raise TypeError(f"{name} = {shown(text)}, expected a str. Convert it: str({each.name}).")


def check_values(values: object, name: str, *shape: int | str) -> None:
    """Raise unless `values` is a tensor of real numbers in this shape.

    Args:
        values: the argument.
        name: the panel and its argument, for the message.
        *shape: the size of each dimension, or a name where any size is valid.
    """
    expected = f"expected a tensor of shape ({', '.join(map(str, shape))}{',' * (len(shape) == 1)})"
    if not is_tensor(values):
        raise TypeError(f"{name} is a {type(values).__name__}, {expected}. Make one with torch.tensor(...).")
    if values.is_complex() or values.is_meta or values.is_nested:
        kind = f"{values.dtype}{', nested,' * values.is_nested} on {values.device}"
        raise TypeError(f"{name} holds {kind}, {expected} with real numbers.")
    wrong = (
        isinstance(wanted, int) and size != wanted for size, wanted in zip(values.shape, shape, strict=True)
    )
    if values.dim() != len(shape) or any(wrong):
        raise ValueError(f"{name} has shape {tuple(values.shape)}, {expected}.")


def check_finite(values: Tensor, name: str) -> None:
    """Raise ValueError if float32 has an infinite value, or NaN, for one of them."""
    if not values.float().isfinite().all():
        raise ValueError(f"{name} holds inf, NaN or what is too large for float32, expected finite numbers.")


def check_names(names: object, name: str, count: int | None = None, things: str = "") -> None:
    """Raise unless `names` are strings, one for each of `count` things if that is given."""
    if not isinstance(names, Sequence) or not all(isinstance(each, str) for each in names):
        raise TypeError(
            f"{name} = {shown(names)}, expected a list of str. Convert numbers: [str(n) for n in numbers]."
        )
    if count is not None and len(names) != count:
        raise ValueError(f"{name} holds {len(names)} names for {count} {things}, expected one for each.")


def check_limits(limits: object, name: str, above: Number = -math.inf) -> None:
    """Raise ValueError unless `limits` are two numbers greater than `above`, in ascending order.

    Their sizes and their distance have to be those of normal numbers in float32, or a place between them
    would be none.
    """
    low, high = map(real, limits) if isinstance(limits, Sequence) and len(limits) == 2 else (math.nan,) * 2
    if not (max(above, FLOAT32.min) < low <= high - FLOAT32.tiny and low < high < FLOAT32.max):
        raise ValueError(
            f"{name} = {shown(limits)}, expected two numbers{least(above)}, the lower one first, of the size "
            "of numbers in float32."
        )


def check_levels(levels: object, name: str, above: Number) -> None:
    """Raise unless `levels` maps names to finite numbers greater than `above`."""
    if not isinstance(levels, Mapping):
        raise TypeError(f"{name} = {shown(levels)}, expected a dict that gives each level a name.")
    for key, level in levels.items():
        if not above < real(level) < math.inf:
            raise ValueError(f"{name}[{shown(key)}] = {shown(level)}, expected a number{least(above)}.")


def least(above: Number) -> str:
    """Return the lower bound in words; empty if there is none."""
    return "" if above == -math.inf else f" above {above}"


def check_count(count: int, name: str, most: int, part: str = "") -> None:
    """Raise ValueError if there is more than a reader can see, which could take minutes to draw."""
    if count > most:
        instead = f"Draw a part of them: {part}[:{most}]" if part else "Make fewer over the same range"
        raise ValueError(f"{name}: {count}, expected at most {most}. {instead}.")
