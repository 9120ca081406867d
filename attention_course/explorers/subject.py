"""What some explorers show: a model, its tokenizer and a text."""

from contextlib import nullcontext
from functools import lru_cache

import torch
import torch.nn as nn
from torch import Tensor

from attention_course.attention import record_weights
from attention_course.gpt import GPT, GPTConfig, block_size_of, evaluating
from attention_course.heads import ablate
from attention_course.llama import Llama, LlamaConfig
from attention_course.plots import visible_character
from attention_course.stories import write_stories
from attention_course.text import CharTokenizer, Tokenizer

STORY = write_stories(seed=2, characters=1)
TOKENIZER = CharTokenizer(write_stories(characters=50_000))  # enough for every character to occur
NOTHING_LEARNT = " This model is not trained: it has learnt nothing yet."
SAMPLED = 1024  # entries of a parameter
MAX_LABEL = 12  # characters of a token in a label


def _untrained(model_class: type[GPT], config: GPTConfig) -> GPT:
    """Make a small model from a fixed seed, without changing the global generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return model_class(config).eval()


UNTRAINED = _untrained(GPT, GPTConfig(TOKENIZER.vocab_size, block_size=256, n_layer=2, n_head=4, n_embd=64))
UNTRAINED_LLAMA = _untrained(
    Llama, LlamaConfig(TOKENIZER.vocab_size, block_size=256, n_layer=3, n_head=4, n_embd=64, n_kv_head=2)
)


def remark(model: nn.Module) -> str:
    """Return the caption's remark about an untrained model; empty for one that a learner passed."""
    return NOTHING_LEARNT if model is UNTRAINED or model is UNTRAINED_LLAMA else ""


def ids_of(text: str, tokenizer: Tokenizer, model: nn.Module) -> Tensor:
    """Return the last block_size tokens of a text as ids, shape (1, T).

    Raises:
        ValueError: the text is empty or has characters outside the vocabulary.
    """
    if not text:
        raise ValueError("The text, or prompt, is empty. Give at least one character to start from.")
    return tokenizer.encode(text)[None, -block_size_of(model) :]


def tokens_of(ids: Tensor, tokenizer: Tokenizer) -> str | list[str]:
    """Return what ids (T,) stand for: a str if these are characters, otherwise a list of tokens."""
    if isinstance(tokenizer, CharTokenizer):
        return tokenizer.decode(ids)
    return [tokenizer.decode(one) for one in ids.unsqueeze(-1)]


def name_of(token: str) -> str:
    """Return a token with visible spaces, short enough for a label."""
    return visible_character(token if len(token) <= MAX_LABEL else f"{token[: MAX_LABEL - 1]}…")


def state_of(model: nn.Module) -> int:
    """Return a hash of the parameters, which changes with training.

    PyTorch's own version counter, `_version`, misses the steps of a fused optimizer; a hash of all entries of
    a large model takes longer than its picture. So a large parameter gives SAMPLED entries: a step of
    training changes nearly all. They are an odd number of places apart, to lie in many columns.
    """
    sampled = ((p, p.detach().flatten()[:: p.numel() // SAMPLED | 1]) for p in model.parameters())
    return hash(tuple((p._version, entries.float().cpu().numpy().tobytes()) for p, entries in sampled))


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


@lru_cache(maxsize=8)
def read(
    model: nn.Module,
    state: int,
    ids: tuple[int, ...],
    off: frozenset[tuple[int, int]] = frozenset(),
) -> tuple[Tensor, Tensor]:
    """Return logits (T, V) and weights (n_layer, n_head, T, T) of a forward pass, cached.

    Args:
        model: a model whose attention is the course's.
        state: that of the model, see `state_of`.
        ids: the T ids.
        off: heads (layer, head) that are switched off, of a GPT.

    Raises:
        ValueError: no weights were recorded.
    """
    switched = ablate(model, off) if off else nullcontext()  # pyright: ignore[reportArgumentType]
    with switched, record_weights() as layers:
        logits = compute_logits(model, torch.tensor([ids]))
    if not layers:
        raise ValueError(
            f"{type(model).__name__} has no attention weights: it does not call the course's multi-head "
            "attention. Pass a GPT."
        )
    return logits[0].float(), torch.cat(layers).float().cpu()


def check_tokenizer(tokenizer: object) -> None:
    """Raise TypeError unless this has the methods of a `Tokenizer`."""
    if not isinstance(tokenizer, Tokenizer):
        raise TypeError(
            f"tokenizer is a {type(tokenizer).__name__}, expected a CharTokenizer, or another with "
            "encode, decode and vocab_size. Pass data.tokenizer, or what load_smollm() returned."
        )


def check_subject(model: nn.Module, tokenizer: Tokenizer, text: str) -> None:
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
            f"The model gives logits for {given} tokens, but the tokenizer knows {tokenizer.vocab_size}. "
            "Pass the tokenizer of the text that the model was trained on: tokenizer=data.tokenizer."
        )
