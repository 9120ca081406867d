"""The subject of the explorers of rung 8: a model, its tokenizer, a text; by default an untrained GPT."""

from zlib import crc32

import torch
import torch.nn as nn
from torch import Tensor

from attention_course.gpt import GPT, GPTConfig, block_size_of, evaluating
from attention_course.stories import write_stories
from attention_course.text import CharTokenizer

STORY = write_stories(seed=2, characters=1)
TOKENIZER = CharTokenizer(write_stories(characters=50_000))  # enough for every character to occur
NOTHING_LEARNT = " This model is not trained: it has learnt nothing yet."


def _untrained() -> GPT:
    """Make a small GPT from a fixed seed, without changing the global generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return GPT(GPTConfig(TOKENIZER.vocab_size, block_size=256, n_layer=2, n_head=4, n_embd=64)).eval()


UNTRAINED = _untrained()


def remark(model: nn.Module) -> str:
    """Return the caption's remark about an untrained model; empty for one that a learner passed."""
    return NOTHING_LEARNT if model is UNTRAINED else ""


def ids_of(text: str, tokenizer: CharTokenizer, model: nn.Module) -> Tensor:
    """Return the last block_size characters of a text as ids, shape (1, T).

    Raises:
        ValueError: the text is empty or has characters outside the vocabulary.
    """
    if not text:
        raise ValueError("The text, or prompt, is empty. Give at least one character to start from.")
    return tokenizer.encode(text)[None, -block_size_of(model) :]


def state_of(model: nn.Module) -> tuple[int, ...]:
    """Return a checksum of each parameter, which changes with training.

    PyTorch's own version counter, `_version`, misses the steps of a fused optimizer.
    """
    return tuple(
        crc32(parameter.detach().cpu().flatten().view(torch.uint8).numpy().tobytes())
        for parameter in model.parameters()
    )


def compute_logits(model: nn.Module, ids: Tensor) -> Tensor:
    """Return logits (B, T, V) for ids (B, T), on the CPU, computed in eval mode.

    Raises:
        TypeError: the model does not return a tensor.
        ValueError: the logits have another shape, or are not finite.
    """
    with evaluating(model):
        logits = model(ids.to(next(model.parameters(), ids).device))
    name, wanted = type(model).__name__, f"expected logits of shape {(*ids.shape, 'V')}"
    if not isinstance(logits, Tensor):
        raise TypeError(f"{name} returns a {type(logits).__name__}, {wanted}. Return the logits alone.")
    if logits.is_meta or logits.shape[:-1] != ids.shape:
        shape = "without numbers, on the device meta" if logits.is_meta else f"of shape {tuple(logits.shape)}"
        raise ValueError(f"{name} returns a tensor {shape}, {wanted}, one row for each of the ids.")
    if not logits.amax(dim=-1).isfinite().all():
        raise ValueError(
            f"{name} gives logits that are NaN or infinite, expected finite ones. Perhaps its training "
            "diverged: train a new one with a smaller learning rate."
        )
    return logits.cpu()


def check_tokenizer(tokenizer: object) -> None:
    """Raise TypeError unless this is a `CharTokenizer`, or has its interface."""
    if not all(hasattr(tokenizer, part) for part in ("encode", "decode", "characters", "vocab_size")):
        raise TypeError(
            f"tokenizer is a {type(tokenizer).__name__}, expected a CharTokenizer. Pass data.tokenizer."
        )


def check_subject(model: nn.Module, tokenizer: CharTokenizer, text: str) -> None:
    """Check that model, tokenizer and text match.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: the model's vocabulary is not the tokenizer's; or see `ids_of` and `compute_logits`.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is a {type(model).__name__}, expected a module, for example a GPT.")
    check_tokenizer(tokenizer)
    if not isinstance(text, str):
        raise TypeError(
            f"The text is a {type(text).__name__}, expected a str. Decode ids: tokenizer.decode(ids)."
        )
    ids = ids_of(text, tokenizer, model)
    given = compute_logits(model, torch.zeros_like(ids[:, :1])).shape[-1]
    if given != tokenizer.vocab_size:
        raise ValueError(
            f"The model gives logits for {given} characters, but the tokenizer knows {tokenizer.vocab_size}. "
            "Pass the tokenizer of the text that the model was trained on: tokenizer=data.tokenizer."
        )
