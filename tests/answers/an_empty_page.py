"""Answers to the exercises of rung 11."""

import math

import torch
import torch.nn as nn

from answers import right, wrong
from attention_course.gpt import GPT, GPTConfig
from attention_course.llama import Llama, LlamaConfig

# gpt

right(
    "gpt",
    gpt_of_rung_8=lambda vocab_size, block_size: GPT(GPTConfig(vocab_size, block_size)),
    gpt_of_rung_9=lambda V, T: Llama(LlamaConfig(V, T, n_layer=2, n_head=4, n_embd=32, n_kv_head=2)),
)


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


right("gpt", page_with_ages=Page)


@wrong("gpt", "No leak from the future")
class PageOffByOne(Page):
    hides = 2


@wrong("gpt", "The past is used")
class PageOfABigram(Page):
    def attend(self, x):
        return torch.zeros_like(x)


@wrong("gpt")
def page_without_sizes():
    return nn.Linear(1, 1)


@wrong("gpt")
def page_of_logits(vocab_size, block_size):
    return torch.zeros(1, block_size, vocab_size)


# swaps_noticed


def _last(model, texts):
    return model(texts)[:, -1]


def _differ(model, ids, others):
    last = _last(model, ids[None])
    return (_last(model, others) - last).abs().amax(dim=-1) > 1e-5 * last.abs().max()


def _swapped(ids):
    places = torch.arange(len(ids)).repeat(len(ids) - 1, 1)
    i = torch.arange(len(ids) - 1)
    places[i, i], places[i, i + 1] = i + 1, i
    return ids[places]


@right("swaps_noticed")
def swaps_in_one_batch(model, ids):
    return _differ(model, ids, _swapped(ids))


@right("swaps_noticed")
def swaps_of_slices(model, ids):
    rows = [torch.cat([ids[:i], ids[i : i + 2].flip(0), ids[i + 2 :]]) for i in range(len(ids) - 1)]
    return torch.cat([_differ(model, ids, row[None]) for row in rows])


@right("swaps_noticed")
def swaps_through_lists(model, ids):
    found = []
    for i in range(len(ids) - 1):
        row = ids.tolist()
        row[i], row[i + 1] = row[i + 1], row[i]
        found.append(bool(_differ(model, ids, torch.tensor([row]))))
    return torch.tensor(found)


@wrong("swaps_noticed", "overwritten_too_early")
def swaps_that_lose_a_token(model, ids):
    found = []
    for i in range(len(ids) - 1):
        row = ids.clone()
        row[i] = row[i + 1]
        row[i + 1] = row[i]
        found.append(_differ(model, ids, row[None]))
    return torch.cat(found)


@wrong("swaps_noticed", "exact_comparison")
def swaps_compared_by_equal(model, ids):
    last = _last(model, ids[None])[0]
    return torch.tensor([not torch.equal(_last(model, row[None])[0], last) for row in _swapped(ids)])


def _moved(model, ids, others):
    last = _last(model, ids[None])
    return last, _last(model, others) - last


@wrong("swaps_noticed")
def swaps_of_all_that_follow(model, ids):
    rows = [torch.cat([ids[:i], ids[i:].roll(1)]) for i in range(len(ids) - 1)]
    return _differ(model, ids, torch.stack(rows))


@wrong("swaps_noticed")
def swaps_one_text_without_a_batch(model, ids):
    return torch.stack([(model(row)[-1] - model(ids)[-1]).abs().max() > 1e-5 for row in _swapped(ids)])


# context_length


def _changed(ids, V):
    rows = ids.repeat(len(ids), 1)
    return torch.where(torch.eye(len(ids), dtype=torch.bool), (rows + 1) % V, rows)


def _matters(model, ids):
    V = model(ids[None]).shape[-1]
    return _differ(model, ids, _changed(ids, V))


@right("context_length")
def context_in_one_batch(model, ids):
    matters = _matters(model, ids)
    return torch.tensor(len(ids) - int(matters.int().argmax()) if matters.any() else 0)


@right("context_length")
def context_from_the_end_through_all(model, ids):
    longest = torch.tensor(0)
    for length, matters in enumerate(_matters(model, ids).flip(0), start=1):
        if matters:
            longest = torch.tensor(length)
    return longest


@right("context_length")
def context_by_cumulative_sum(model, ids):
    return (_matters(model, ids).cumsum(0) > 0).sum()


@wrong("context_length", "absolute_tolerance")
def context_by_a_fixed_number(model, ids):
    moved = _moved(model, ids, _changed(ids, model(ids[None]).shape[-1]))[1]
    return ((moved.abs().amax(dim=-1) > 1e-5).cumsum(0) > 0).sum()


@wrong("context_length", "largest_without_abs")
def context_by_the_largest_with_its_sign(model, ids):
    last, moved = _moved(model, ids, _changed(ids, model(ids[None]).shape[-1]))
    return ((moved.abs().amax(dim=-1) > 1e-5 * last.max()).cumsum(0) > 0).sum()


@wrong("context_length", "leaves_the_vocabulary")
def context_with_the_next_token(model, ids):
    last = _last(model, ids[None])
    for s in range(len(ids)):
        row = ids.clone()
        row[s] += 1
        if (_last(model, row[None]) - last).abs().max() > 1e-5 * last.abs().max():
            return torch.tensor(len(ids) - s)
    return torch.tensor(0)


@wrong("context_length")
def context_as_an_int(model, ids):
    return int(context_in_one_batch(model, ids))
