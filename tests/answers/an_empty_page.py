"""Answers to the exercises of an_empty_page."""

import math
from functools import partial

import torch
import torch.nn as nn

from answers import right, wrong
from attention_course.gpt import GPT, GPTConfig
from attention_course.llama import Llama, LlamaConfig


class Page(nn.Module):
    """One layer of heads in a list, written with a table of ages in place of positions."""

    hides = 1  # the first diagonal that is hidden

    def __init__(self, vocab_size, block_size, n_embd=32, heads=2):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, n_embd)
        self.ages = nn.Parameter(torch.zeros(heads, block_size))
        self.qkv = nn.ModuleList(nn.Linear(n_embd, 3 * n_embd // heads) for _ in range(heads))
        self.join = nn.Linear(n_embd, n_embd)
        self.norms = nn.ModuleList(nn.LayerNorm(n_embd) for _ in range(3))
        self.mlp = nn.Sequential(nn.Linear(n_embd, 64), nn.ReLU(), nn.Linear(64, n_embd))
        self.head = nn.Linear(n_embd, vocab_size)
        nn.init.normal_(self.ages)
        nn.init.normal_(self.tokens.weight, std=0.2)

    def attend(self, x):
        T, outputs = x.shape[1], []
        age = torch.arange(T)[:, None] - torch.arange(T)
        for each, bias in zip(self.qkv, self.ages, strict=True):
            q, k, v = each(x).chunk(3, dim=-1)
            scores = q @ k.mT / math.sqrt(q.shape[-1]) + bias[age.clamp(min=0)]
            future = torch.ones(T, T, dtype=torch.bool).triu(self.hides)
            outputs.append(scores.masked_fill(future, -torch.inf).softmax(dim=-1) @ v)
        return self.join(torch.cat(outputs, dim=-1))

    def forward(self, ids):
        x = self.tokens(ids)
        x = x + self.attend(self.norms[0](x))
        x = x + self.mlp(self.norms[1](x))
        return self.head(self.norms[2](x))


@wrong("gpt", "No leak from the future")
class PageOffByOne(Page):
    hides = 2


@wrong("gpt", "Every parameter gets a gradient")
def all_frozen(vocab_size, block_size):
    return Page(vocab_size, block_size).requires_grad_(False)


@wrong("gpt", "The past is used")
class PageOfABigram(Page):
    def attend(self, x):
        return torch.zeros_like(x)


right(
    "gpt",
    gpt_of_rung_8=lambda vocab_size, block_size: GPT(GPTConfig(vocab_size, block_size)),
    gpt_of_rung_9=lambda V, T: Llama(LlamaConfig(V, T, n_layer=2, n_head=4, n_embd=32, n_kv_head=2)),
    page_with_ages=Page,
)
wrong(
    "gpt",
    page_without_sizes=lambda: nn.Linear(1, 1),
    page_of_logits=lambda vocab_size, block_size: torch.zeros(1, block_size, vocab_size),
)


def _last(model, texts):
    return model(texts)[:, -1]


def _differ(model, ids, others, factor=1e-5):
    last = _last(model, ids[None])
    return (_last(model, others) - last).abs().amax(dim=-1) > factor * last.abs().max()


def _differ_in_the_mean(model, ids, others):
    last = _last(model, ids[None])
    return (_last(model, others) - last).abs().mean(dim=-1) > 1e-5 * last.abs().max()


def _differ_by_the_range(model, ids, others):
    last = _last(model, ids[None])
    return (_last(model, others) - last).abs().amax(dim=-1) > 1e-5 * (last.max() - last.min())


FACTORS = (1e-3, 1e-4, 5e-6, 1e-6, 10 * torch.finfo().eps)
ELSEWHERE = {
    "mean": _differ_in_the_mean,
    "range": _differ_by_the_range,
    **{f"factor_{factor:.1e}": partial(_differ, factor=factor) for factor in FACTORS},
}


def _swapped(ids):
    places = torch.arange(len(ids)).repeat(len(ids) - 1, 1)
    i = torch.arange(len(ids) - 1)
    places[i, i], places[i, i + 1] = i + 1, i
    return ids[places]


@wrong("swaps_noticed")
def swaps_of_all_that_follow(model, ids):
    rows = [torch.cat([ids[:i], ids[i:].roll(1)]) for i in range(len(ids) - 1)]
    return _differ(model, ids, torch.stack(rows))


def _swaps_by(differ):
    return lambda model, ids: differ(model, ids, _swapped(ids))


wrong(
    "swaps_noticed", "another_threshold", **{f"swaps_{name}": _swaps_by(d) for name, d in ELSEWHERE.items()}
)
right("swaps_noticed", swaps_in_one_batch=lambda model, ids: _differ(model, ids, _swapped(ids)))
wrong(
    "swaps_noticed",
    swaps_one_text_without_a_batch=lambda model, ids: torch.stack(
        [(model(row)[-1] - model(ids)[-1]).abs().max() > 1e-5 for row in _swapped(ids)]
    ),
)


def _changed(ids, V):
    rows = ids.repeat(len(ids), 1)
    return torch.where(torch.eye(len(ids), dtype=torch.bool), (rows + 1) % V, rows)


def _matters(model, ids, differ=_differ):
    V = model(ids[None]).shape[-1]
    return differ(model, ids, _changed(ids, V))


@right("context_length")
def context_in_one_batch(model, ids, differ=_differ):
    matters = _matters(model, ids, differ)
    return torch.tensor(len(ids) - int(matters.int().argmax()) if matters.any() else 0)


right(
    "context_length", context_by_cumulative_sum=lambda model, ids: (_matters(model, ids).cumsum(0) > 0).sum()
)
wrong(
    "context_length",
    "another_threshold",
    **{
        f"context_{name}": lambda model, ids, d=d: context_in_one_batch(model, ids, d)
        for name, d in ELSEWHERE.items()
    },
)
wrong("context_length", context_as_an_int=lambda model, ids: int(context_in_one_batch(model, ids)))


@wrong("swaps_noticed")
def swaps_at_least_as_large_as_nothing(model, ids):
    last = model(ids[None])[0, -1]
    noticed = []
    for i in range(len(ids) - 1):
        swapped = torch.cat([ids[:i], ids[[i + 1, i]], ids[i + 2 :]])
        noticed.append((model(swapped[None])[0, -1] - last).abs().max() >= 1e-5 * last.abs().max())
    return torch.stack(noticed)
