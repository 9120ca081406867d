"""A model that only counts: the table of letter pairs of the first rung, and a mean of its rows."""

from collections.abc import Callable

import torch
from torch import Tensor

from attention_course.text import Corpus, load_text


def loss_of(mean: Callable[[Tensor], Tensor]) -> float:
    """Return its validation loss on pieces of 128 characters of the stories, for a mean of rows (B, T, V)."""
    data = Corpus.of(load_text("stories"))
    V = data.tokenizer.vocab_size
    counts = torch.bincount(data.train[:-1] * V + data.train[1:], minlength=V * V).view(V, V)
    pieces = data.val[: len(data.val) // 128 * 128].view(-1, 128)
    predictions = mean((counts / counts.sum(dim=-1, keepdim=True))[pieces])
    return -predictions[:, :-1].gather(-1, pieces[:, 1:, None]).log().mean().item()
