"""The sizes that a model tells of itself: its vocabulary, and the longest text that it reads."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

READ = 128  # tokens of a block that nobody asked for: as many as a text in training, and all questions, need
VOCABULARY = ("padded_vocab_size", "vocab_size")  # that of LitGPT, and of nearly all others
BLOCK = (
    *("max_position_embeddings", "n_positions", "n_ctx", "seq_length", "max_seq_len", "max_seq_length"),
    *("context_length", "max_target_positions", "block_size"),
)


@dataclass(frozen=True)
class Sizes:
    """The sizes of an examination.

    Attributes:
        vocab_size: ids go from 0 to vocab_size - 1.
        block_size: tokens of the longest text that is read.
        whole: tokens of the longest text that the model can read, by what it tells.
        name: what it calls that; "" if block_size was given.
    """

    vocab_size: int
    block_size: int
    whole: int
    name: str = ""

    @property
    def remarks(self) -> list[str]:
        """What a reader has to know about them."""
        if self.whole == self.block_size:
            return []
        return [f"By its {self.name} it reads {self.whole} tokens; here, {self.block_size}. Pass block_size."]


def sizes_of(model: object, vocab_size: int | None, block_size: int | None) -> Sizes:
    """Return the sizes that are given, and those that are None from the model.

    They are looked for in `model.config`, in its `text_config`, and in the model itself.

    Raises:
        ValueError: one of them is neither given nor found.
    """
    if vocab_size is None:
        _, vocab_size = claimed(model, "vocab_size", VOCABULARY)
    if block_size is not None:
        return Sizes(vocab_size, block_size, block_size)
    name, claim = claimed(model, "block_size", BLOCK)
    whole = max(1, claim - reserved(model, claim))
    return Sizes(vocab_size, min(READ, whole), whole, name)


def claimed(model: object, size: str, names: tuple[str, ...]) -> tuple[str, int]:
    """Return the first of these sizes that a model claims, after its name."""
    config = getattr(model, "config", None)
    for place in (config, getattr(config, "text_config", None), model):
        for name in names:
            value = place.get(name) if isinstance(place, Mapping) else getattr(place, name, None)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return name, value
    raise ValueError(
        f"examine: no {size} is given, and {type(model).__name__} tells none, expected model.config.{size}, "
        f"model.{size}, or another of {', '.join(names)} there. Pass {size}=..., an integer."
    )


def reserved(model: object, rows: int) -> int:
    """Return how many rows of a table of positions no token gets: RoBERTa's begin behind its padding."""
    modules = model.modules() if isinstance(model, nn.Module) else ()
    tables = (m for m in modules if isinstance(m, nn.Embedding) and m.num_embeddings == rows)
    return max((m.padding_idx + 1 for m in tables if m.padding_idx is not None), default=0)
