"""Colours, and how numbers and characters are written in a picture."""

import math
import re
from collections.abc import Sequence

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from torch import Tensor

# Okabe & Ito (2008), "Color Universal Design": told apart with every common colour blindness.
BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#999999"
SKY, AMBER, BLACK = "#56B4E9", "#E69F00", "#222222"
DIVERGING = LinearSegmentedColormap.from_list("orange_white_blue", [ORANGE, "white", BLUE])

NO_GLYPH = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")  # controls, and halves of surrogate pairs

Number = int | float  # where types are checked at run time, an int is no float


def format_number(value: Number) -> str:
    """Write a value as a cell of a picture shows it: integers bare, others with two decimals."""
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{value:.0f}" if value == round(value) and abs(value) < 1e6 else f"{value:.2f}"
    return text.replace("-", "−")


def format_tick(value: Number) -> str:
    """Write a round value as an axis shows it: 0.05, 200, or 2·10⁻⁵ where zeros would have to be counted."""
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:g}".replace("-", "−")
    digits, power = f"{value:e}".split("e")
    raised = str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{float(digits):g}·10{raised}".removeprefix("1·").replace("-", "−")


def visible(text: str) -> str:
    """Write each newline and tab as a sign that can be seen, and what no font can show as �."""
    return NO_GLYPH.sub("�", text.replace("\n", "↵").replace("\t", "⇥"))


def visible_character(character: str) -> str:
    """Write a single character so that it can be seen, even a space."""
    return visible(character).replace(" ", "␣")


def to_numpy(tensor: Tensor) -> np.ndarray:
    """Copy a tensor of any dtype, on any device, to float32 numbers that matplotlib can draw."""
    return tensor.detach().float().cpu().numpy()


def ink_on(rgba: Sequence[float] | np.ndarray) -> str:
    """Choose the text colour that stands out, by the relative luminance of WCAG 2."""
    red, green, blue, _ = (channel**2.2 for channel in rgba)
    return "#111111" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 else "white"
