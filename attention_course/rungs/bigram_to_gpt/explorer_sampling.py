"""The probabilities of the next token, and a text sampled from them."""

import math
from functools import lru_cache, partial

import ipywidgets
import torch
import torch.nn as nn
from jaxtyping import Float, Int
from torch import Tensor

from attention_course.explorers.figure import LiveFigure
from attention_course.explorers.subject import (
    TOKENIZER,
    UNTRAINED,
    check_subject,
    compute_logits,
    ids_of,
    name_of,
    remark,
    state_of,
    tokens_of,
)
from attention_course.gpt import block_size_of, generate
from attention_course.plots import Bars, Text, visible
from attention_course.text import Tokenizer

PROMPT = "Ann "
BEST = 12  # tokens that get a bar
HIGHEST = 0.5  # probability of a bar that is not cut off
LENGTH = Text.COLUMNS  # of a sample: one forward pass per token, and dragging a slider must stay quick
CACHE_SIZE = 2000  # logits of one position each, about 1 KiB
PALE = 0.3  # shade of the prompt
PROMPT_ROWS = 4  # of a long prompt, the end is shown
TYPED = "prompt"  # the site runs the model in the page: explorer_sampling.js
NOTE = (
    "Type the beginning of a story, and the model goes on from there. It runs in this page: its 109 thousand "
    "parameters (0.2 MB) are loaded as soon as you change something."
)
SETTINGS = {"temperature": 1.3}  # of its picture in README.md


def controls(
    model: nn.Module = UNTRAINED, tokenizer: Tokenizer = TOKENIZER, prompt: str = PROMPT
) -> dict[str, ipywidgets.ValueWidget]:
    """Return temperature, top_k and the seed of the sample.

    Raises:
        ValueError: model, tokenizer and prompt do not match.
    """
    check_subject(model, tokenizer, prompt)
    most = tokenizer.vocab_size
    return {
        "temperature": ipywidgets.FloatSlider(
            1.0, min=0, max=2, step=0.1, description="temperature", readout_format=".1f"
        ),
        "top_k": ipywidgets.IntSlider(most, 1, most, description="top_k"),
        "seed": ipywidgets.IntSlider(1, 0, 9, description="seed", layout={"width": "220px"}),
    }


def probabilities_of(logits: Tensor, temperature: float, top_k: int) -> Tensor:
    """Turn logits (V,) into the probabilities (V,) from which `generate` samples."""
    logits = logits.masked_fill(logits < logits.topk(top_k).values[-1], float("-inf"))
    if temperature == 0:
        return (torch.arange(len(logits)) == logits.argmax()).float()
    return torch.softmax(logits / temperature, dim=-1)


@lru_cache(maxsize=CACHE_SIZE)
def next_logits(model: nn.Module, state: int, ids: tuple[int, ...]) -> Tensor:
    """Return the logits (1, 1, V) of the next token, cached."""
    return compute_logits(model, torch.tensor([ids]))[:, -1:]


class CachedModel(nn.Module):
    """A model with cached logits: from one setting to the next, much of a sample stays the same.

    A KV cache would not do: a token that was read before would still cost a pass through the model.
    """

    def __init__(self, model: nn.Module):
        super().__init__()
        self.block_size = block_size_of(model)
        self.next_logits = partial(next_logits, model, state_of(model))

    def forward(self, ids: Int[Tensor, "1 T"]) -> Float[Tensor, "1 1 V"]:
        """Return logits (1, 1, V) for ids (1, T)."""
        return self.next_logits(tuple(ids[0].tolist()))


def compute(
    temperature: float,
    top_k: int,
    seed: int,
    model: nn.Module = UNTRAINED,
    tokenizer: Tokenizer = TOKENIZER,
    prompt: str = PROMPT,
) -> dict[str, object]:
    """Return probabilities (V,), ids and names of the best tokens, and a sample of LENGTH tokens."""
    ids, cached = ids_of(prompt, tokenizer, model), CachedModel(model)
    logits = cached(ids)[0, 0]
    generator = torch.Generator().manual_seed(seed)
    sample = generate(cached, ids, LENGTH, temperature, top_k, generator)[0, -LENGTH:]
    best = logits.topk(min(BEST, len(logits))).indices
    return {
        "probabilities": probabilities_of(logits, temperature, top_k),
        "top_k": top_k,
        "best": best,
        "labels": [name_of(token) for token in tokens_of(best, tokenizer)],
        "prompt": tokens_of(tokenizer.encode(prompt), tokenizer),
        "sample": tokens_of(sample, tokenizer),
        "remark": remark(model),
    }


def draw(
    figure: LiveFigure,
    probabilities: Tensor,
    top_k: int,
    best: Tensor,
    labels: list[str],
    prompt: str | list[str],
    sample: str | list[str],
    remark: str,
) -> None:
    """Show the best tokens as bars, and the sample; the caption gives the best one and the entropy."""
    text = [*prompt[-PROMPT_ROWS * Text.COLUMNS :], *sample]
    shade = PALE * (torch.arange(len(text)) < len(text) - len(sample))
    written = Text(
        "A sample; the prompt is shaded", "".join(text) if isinstance(sample, str) else text, shade
    )
    drawn = (
        f"{written.unit}; drawn among the best {top_k}" if top_k > 1 else f"{written.unit}; the best is taken"
    )
    entropy = torch.special.entr(probabilities).sum().item()
    shown = visible("".join(prompt)[-20:])
    V = len(probabilities)
    figure.show(
        Bars(f"Probability of what follows “{shown}”", probabilities[best], labels, drawn, (0, HIGHEST)),
        written,
        caption=(
            f"After “{shown}” the most probable {written.unit} is “{labels[0]}”, with probability "
            f"{100 * probabilities.max().item():.0f} %. Entropy of these probabilities: {entropy:.2f} nats, "
            f"out of at most ln {V} = {math.log(V):.2f}.{remark}"
        ),
    )
