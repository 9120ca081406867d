"""Rung 8: the attention weights of each head over a text, and the most probable next character."""

from functools import lru_cache

import ipywidgets
import torch
import torch.nn as nn
from torch import Tensor

from attention_course.attention import record_weights
from attention_course.explorers.figure import LiveFigure
from attention_course.explorers.subject import (
    STORY,
    TOKENIZER,
    UNTRAINED,
    check_subject,
    compute_logits,
    ids_of,
    remark,
    state_of,
)
from attention_course.plots import Bars, Text, visible_character
from attention_course.stories import answers
from attention_course.text import CharTokenizer

BARS = 8  # characters with the largest weights
FULL = 0.5  # the weight with full colour


@lru_cache(maxsize=4)
def read(
    model: nn.Module, state: tuple[int, ...], tokenizer: CharTokenizer, text: str
) -> tuple[Tensor, Tensor]:
    """Return logits (T, V) and weights (n_layer, n_head, T, T) of a forward pass over a text.

    Raises:
        ValueError: no weights were recorded.
    """
    with record_weights() as layers:
        logits = compute_logits(model, ids_of(text, tokenizer, model))
    if not layers:
        raise ValueError(
            f"{type(model).__name__} has no attention weights: it does not call the course's multi-head "
            "attention. Pass a GPT."
        )
    return logits[0], torch.cat(layers).cpu()


def controls(
    model: nn.Module = UNTRAINED, tokenizer: CharTokenizer = TOKENIZER, text: str = STORY
) -> dict[str, ipywidgets.ValueWidget]:
    """Return layer, head and query; the query starts where the first answer of a story is predicted.

    Raises:
        ValueError: model, tokenizer and text do not match, or the model has no attention weights.
    """
    check_subject(model, tokenizer, text)
    n_layer, n_head, T, _ = read(model, state_of(model), tokenizer, text)[1].shape
    places = [start - 1 for start, _ in answers(text[-T:]) if start > 0]
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
    tokenizer: CharTokenizer = TOKENIZER,
    text: str = STORY,
) -> dict[str, object]:
    """Return the text, the weights (T,) of one query in one head, and its most probable next character."""
    logits, weights = read(model, state_of(model), tokenizer, text)
    probabilities = torch.softmax(logits[position], dim=-1)
    return {
        "text": text[-len(logits) :],
        "weights": weights[layer, head, position],
        "place": (layer, head, position),
        "expected": tokenizer.characters[int(probabilities.argmax())],
        "probability": probabilities.max(),
        "remark": remark(model),
    }


def draw(
    figure: LiveFigure,
    text: str,
    weights: Tensor,
    place: tuple[int, int, int],
    expected: str,
    probability: Tensor,
    remark: str,
) -> None:
    """Shade the text by the weights, and name the characters with the largest ones."""
    layer, head, position = place
    most = weights[: position + 1].topk(min(BARS, position + 1))
    looked_at = [(key, visible_character(text[key])) for key in most.indices.tolist()]
    named = [
        f"{100 * weight:.0f} % on character {key} “{character}”"
        for weight, (key, character) in zip(most.values.tolist(), looked_at, strict=True)
    ]
    follows = "the text ends"
    if position + 1 < len(text):
        follows = f"the text goes on with “{visible_character(text[position + 1])}”"
    figure.show(
        Text(
            f"Weights of the framed query, full blue at {100 * FULL:.0f} % and above",
            text,
            weights,
            framed=position,
            limit=FULL,
            label="weight",
        ),
        Bars(
            "The largest weights" if len(named) > 1 else "The only weight",
            most.values,
            [f"{key} {character}" for key, character in looked_at],
            "position and character",
            (0, 1),
        ),
        caption=(
            f"Layer {layer}, head {head}, query {position} “{visible_character(text[position])}”: "
            f"{', '.join(named[:3])}. "
            f"The model's prediction for the next character is “{visible_character(expected)}”, with "
            f"probability {100 * probability.item():.0f} %; {follows}.{remark}"
        ),
    )
