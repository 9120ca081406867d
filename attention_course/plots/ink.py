"""Colours, and formatting of numbers and characters in a picture."""

import math
import re
from collections.abc import Sequence

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from torch import Tensor

# Okabe & Ito (2008), "Color Universal Design": distinguishable with all common colour blindness.
BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#999999"
SKY, AMBER, BLACK = "#56B4E9", "#E69F00", "#222222"
LOOKS = tuple(zip((BLUE, ORANGE, GREEN, PURPLE, SKY, AMBER, BLACK), "os^DvPX", strict=True))  # of curves
DIVERGING = LinearSegmentedColormap.from_list("orange_white_blue", [ORANGE, "white", BLUE])

NO_GLYPH = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")  # control characters and lone surrogates

Number = int | float  # the runtime type checker does not accept an int as a float


def format_number(value: Number) -> str:
    """Format the value of a cell: integers as they are, others with two decimals."""
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{value:.0f}" if value == round(value) and abs(value) < 1e6 else f"{value:.2f}"
    return text.replace("-", "−")


def format_tick(value: Number) -> str:
    """Format a tick label: 0.05, 200, and 2·10⁻⁵ for very small or large values."""
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:g}".replace("-", "−")
    digits, power = f"{value:e}".split("e")
    raised = str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{float(digits):g}·10{raised}".removeprefix("1·").replace("-", "−")


def visible(text: str) -> str:
    """Replace newlines and tabs with visible symbols, and characters without a glyph with �."""
    return NO_GLYPH.sub("�", text.replace("\n", "↵").replace("\t", "⇥"))


def visible_character(character: str) -> str:
    """Return visible symbols for a character, or for those of a token, spaces included."""
    return visible(character).replace(" ", "␣")


def to_numpy(tensor: Tensor) -> np.ndarray:
    """Convert a tensor of any dtype, on any device, to a float32 array."""
    return tensor.detach().float().cpu().numpy()


def ink_on(rgba: Sequence[float] | np.ndarray) -> str:
    """Choose the text colour with enough contrast, by the relative luminance of WCAG 2."""
    red, green, blue, _ = (channel**2.2 for channel in rgba)
    return "#111111" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 else "white"
