"""Colours, and formatting of numbers and characters in a picture."""

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from torch import Tensor

# Okabe & Ito (2008), "Color Universal Design": distinguishable with all common colour blindness. Each has one
# meaning in the course, in Python, JavaScript and CSS. "text" has darker ones, for letters on white.
COLOURS: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("colours.json").read_text("utf-8"))
BLUE = COLOURS["light"]["blue"]  # a weight, a positive value, what is lit
ORANGE = COLOURS["light"]["orange"]  # a negative value, and nothing else
GREEN = COLOURS["light"]["green"]  # a result of mixing: a mean, an output
PURPLE = COLOURS["light"]["purple"]  # the query, what is chosen
AMBER = COLOURS["light"]["amber"]  # a key
SKY = COLOURS["light"]["sky"]  # one more series
BLACK = COLOURS["light"]["black"]  # text; dashed: a prediction, a floor
RED = COLOURS["light"]["red"]  # wrong

NO_GLYPH = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")  # what XML forbids

COLOUR = re.compile(r"\$(light|dark|text)-(\w+)")

Number = int | float  # the runtime type checker does not accept an int as a float


def coloured(style: str) -> str:
    """Put the colours of the course into CSS: `$light-blue`, `$dark-blue`, `$text-purple`."""
    return COLOUR.sub(lambda found: COLOURS[found[1]][found[2]], style)


def bundle(*scripts: Path) -> str:
    """Return scripts that a page runs together, in this order, behind the colours."""
    texts = [script.read_text(encoding="utf-8") for script in scripts]
    return "\n".join([f"const COLOURS = {json.dumps(COLOURS)};", *texts])


def format_number(value: Number) -> str:
    """Format a value: integers as they are, others with two decimals; from 10,000 on with commas."""
    return format_numbers([value])[0]


def format_numbers(values: Sequence[Number]) -> list[str]:
    """Format the values of a panel alike: all as integers if they are, otherwise all with two decimals."""
    finite = [value for value in values if math.isfinite(value)]
    decimals = 0 if all(value == round(value) and abs(value) < 1e6 for value in finite) else 2
    special = {"inf": "∞", "-inf": "−∞"}
    commas = ["," if abs(value) >= 1e4 else "" for value in values]
    texts = [f"{value + 0.0:{comma}.{decimals}f}" for value, comma in zip(values, commas, strict=True)]
    return [special.get(text, text.replace("-", "−")) for text in texts]


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
