"""The attention weights of each head over a text, and the most probable next token."""

import ipywidgets
import torch
import torch.nn as nn
from torch import Tensor

from attention_course.explorers.figure import LiveFigure
from attention_course.explorers.subject import (
    STORY,
    TOKENIZER,
    UNTRAINED,
    check_subject,
    ids_of,
    name_of,
    read,
    remark,
    state_of,
    tokens_of,
)
from attention_course.plots import Bars, Text
from attention_course.stories import answers
from attention_course.text import CharTokenizer, Tokenizer

BARS = 8  # tokens with the largest weights
FULL = 0.5  # the weight with full colour
TYPED = "text"  # the site runs the model in the page: explorer_attention_over_text.js
NOTE = (
    "Type a text of your own, and see where each head looks. The model runs in this page: its 109 thousand "
    "parameters (0.2 MB) are loaded as soon as you change something."
)


def controls(
    model: nn.Module = UNTRAINED, tokenizer: Tokenizer = TOKENIZER, text: str = STORY
) -> dict[str, ipywidgets.ValueWidget]:
    """Return layer, head and query; the query starts where the first answer of a story is predicted.

    Raises:
        ValueError: model, tokenizer and text do not match, or the model has no attention weights.
    """
    check_subject(model, tokenizer, text)
    ids = ids_of(text, tokenizer, model)[0]
    n_layer, n_head, T, _ = read(model, state_of(model), tuple(ids.tolist()))[1].shape
    characters = text[-T:] if isinstance(tokenizer, CharTokenizer) else ""
    places = [start - 1 for start, _ in answers(characters) if start > 0]
    short = {"width": "200px"}
    return {
        "layer": ipywidgets.IntSlider(n_layer - 1, 0, n_layer - 1, description="layer", layout=short),
        "head": ipywidgets.IntSlider(n_head - 1, 0, n_head - 1, description="head", layout=short),
        "position": ipywidgets.IntSlider(
            places[0] if places else T - 1, 0, T - 1, description="query", layout={"width": "400px"}
        ),
    }


def compute(
    layer: int,
    head: int,
    position: int,
    model: nn.Module = UNTRAINED,
    tokenizer: Tokenizer = TOKENIZER,
    text: str = STORY,
) -> dict[str, object]:
    """Return the text, the weights (T,) of one query in one head, and its most probable next token."""
    ids = ids_of(text, tokenizer, model)[0]
    logits, weights = read(model, state_of(model), tuple(ids.tolist()))
    probabilities = torch.softmax(logits[position], dim=-1)
    return {
        "text": tokens_of(ids, tokenizer),
        "weights": weights[layer, head, position],
        "place": (layer, head, position),
        "expected": tokenizer.decode(probabilities.argmax()[None]),
        "probability": probabilities.max(),
        "remark": remark(model),
    }


def draw(
    figure: LiveFigure,
    text: str | list[str],
    weights: Tensor,
    place: tuple[int, int, int],
    expected: str,
    probability: Tensor,
    remark: str,
) -> None:
    """Shade the text by the weights, and name the tokens with the largest ones."""
    layer, head, position = place
    most = weights[: position + 1].topk(min(BARS, position + 1))
    looked_at = [(key, name_of(text[key])) for key in most.indices.tolist()]
    shaded = Text(
        f"Weights of the framed query, full blue at {100 * FULL:.0f} % and above",
        text,
        weights,
        framed=position,
        limit=FULL,
        label="weight",
    )
    named = [
        f"{100 * weight:.0f} % on {shaded.unit} {key} “{token}”"
        for weight, (key, token) in zip(most.values.tolist(), looked_at, strict=True)
    ]
    follows = "the text ends"
    if position + 1 < len(text):
        follows = f"the text goes on with “{name_of(text[position + 1])}”"
    figure.show(
        shaded,
        Bars(
            "The largest weights" if len(named) > 1 else "The only weight",
            most.values,
            [f"{key} {token}" for key, token in looked_at],
            f"position and {shaded.unit}",
            (0, 1),
        ),
        caption=(
            f"Layer {layer}, head {head}, query {position} “{name_of(text[position])}”: "
            f"{', '.join(named[:3])}. "
            f"The model's prediction for the next {shaded.unit} is “{name_of(expected)}”, with "
            f"probability {100 * probability.item():.0f} %; {follows}.{remark}"
        ),
    )
