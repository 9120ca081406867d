"""How captions write numbers and characters."""

import math

import numpy as np


def written(value):
    """Write a number as captions do: whole ones bare, others with two decimals; from 10,000 on commas."""
    value = float(value)
    comma = "," if abs(value) >= 10_000 else ""
    return format(value, f"{comma}.{0 if value == round(value) else 2}f").replace("-", "−")


def small(value):
    """Write a number as captions do that would be 0.00 with two decimals."""
    if value >= 0.01:
        return written(value)
    return "less than 10⁻³⁰" if value < 1e-30 else f"{value:.1e}".split("e")[0] + " · 10"


def seen(character):
    """Write a character so that it can be seen."""
    return character.replace(" ", "␣").replace("\n", "↵")


def entropy(weights):
    weights = np.asarray(weights, dtype=float).ravel()
    return sum(-weight * math.log(weight) for weight in weights if weight > 0)
