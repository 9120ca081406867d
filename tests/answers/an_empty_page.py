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


@wrong("gpt", "It answers ids with logits")
class PageForTheLastToken(Page):
    def forward(self, ids):
        return super().forward(ids)[:, -1]


@wrong("gpt", "The order of tokens matters")
class PageWithoutAges(Page):
    def __init__(self, vocab_size, block_size):
        super().__init__(vocab_size, block_size)
        del self.ages
        self.ages = torch.zeros(2, block_size)


@wrong("gpt", "It answers ids with logits")
class PageWithoutForward(nn.Module):
    def __init__(self, vocab_size, block_size):
        super().__init__()
        self.table = nn.Embedding(vocab_size, vocab_size)


@wrong("gpt", "The texts of a batch do not meet")
class PageLessItsBatchMean(Page):
    def forward(self, ids):
        logits = super().forward(ids)
        return logits - logits.mean(dim=0) / 2


@wrong("gpt")
def page_without_sizes():
    return nn.Linear(1, 1)


@wrong("gpt")
def page_of_logits(vocab_size, block_size):
    return torch.zeros(1, block_size, vocab_size)


@wrong("gpt", "The first loss is near ln V")
class PageOfLargeTables(Page):
    def __init__(self, vocab_size, block_size):
        super().__init__(vocab_size, block_size)
        nn.init.normal_(self.tokens.weight)
        self.head.weight = nn.Parameter(8 * self.tokens.weight.detach())


@wrong("gpt", "A prefix alone gives the same logits")
class PageOfViews(Page):
    def attend(self, x):
        B, T, C = x.shape
        parts = torch.cat([each(x) for each in self.qkv], dim=-1).chunk(3, dim=-1)
        q, k, v = (part.reshape(B, 2, T, C // 2) for part in parts)
        age = (torch.arange(T)[:, None] - torch.arange(T)).clamp(min=0)
        scores = q @ k.mT / math.sqrt(C // 2) + self.ages[:, age]
        weights = scores.masked_fill(torch.ones(T, T).triu(1).bool(), -torch.inf).softmax(dim=-1)
        return self.join((weights @ v).reshape(B, T, C))


@wrong("gpt", "It answers ids with logits")
class PageOfALoss(Page):
    def forward(self, ids):
        return nn.functional.cross_entropy(super().forward(ids).flatten(0, 1), ids.flatten())


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


@wrong("swaps_noticed", "every_output")
def swaps_any_logit(model, ids):
    before = model(ids[None])
    moved = (model(_swapped(ids)) - before).abs().amax(dim=(1, 2))
    return moved > 1e-5 * before.abs().max()


def _moved(model, ids, others):
    last = _last(model, ids[None])
    return last, _last(model, others) - last


@wrong("swaps_noticed", "absolute_tolerance")
def swaps_by_a_fixed_number(model, ids):
    return _moved(model, ids, _swapped(ids))[1].abs().amax(dim=-1) > 1e-5


@wrong("swaps_noticed", "largest_without_abs")
def swaps_by_the_largest_with_its_sign(model, ids):
    last, moved = _moved(model, ids, _swapped(ids))
    return moved.abs().amax(dim=-1) > 1e-5 * last.max()


@wrong("swaps_noticed", "each_logit_alone")
def swaps_by_allclose(model, ids):
    last = _last(model, ids[None])[0]
    return torch.tensor([not torch.allclose(new, last) for new in _last(model, _swapped(ids))])


@wrong("swaps_noticed", "nudges_pile_up")
def swaps_in_one_copy(model, ids):
    row, last, found = ids.clone(), _last(model, ids[None]), []
    for i in range(len(ids) - 1):
        row[[i, i + 1]] = row[[i + 1, i]]
        found.append((_last(model, row[None]) - last).abs().max() > 1e-5 * last.abs().max())
    return torch.stack(found)


@wrong("swaps_noticed", "inverted_answer")
def swaps_not_noticed(model, ids):
    return ~swaps_in_one_batch(model, ids)


@wrong("swaps_noticed")
def swaps_of_all_that_follow(model, ids):
    rows = [torch.cat([ids[:i], ids[i:].roll(1)]) for i in range(len(ids) - 1)]
    return _differ(model, ids, torch.stack(rows))


@wrong("swaps_noticed")
def swaps_one_text_without_a_batch(model, ids):
    return torch.stack([(model(row)[-1] - model(ids)[-1]).abs().max() > 1e-5 for row in _swapped(ids)])


@wrong("swaps_noticed")
def swaps_that_must_move_much(model, ids):
    last = _last(model, ids[None])
    return (_last(model, _swapped(ids)) - last).abs().amax(dim=-1) > 0.1 * last.abs().max()


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


@wrong("context_length", "no_token_taken_for_one")
def context_by_argmax_of_nothing(model, ids):
    return torch.tensor(len(ids) - int(_matters(model, ids).int().argmax()))


@wrong("context_length", "cuts_the_text")
def context_by_cutting(model, ids):
    last = _last(model, ids[None])
    for length in range(1, len(ids) + 1):
        if (_last(model, ids[None, -length:]) - last).abs().max() < 1e-5 * last.abs().max():
            return torch.tensor(length)
    return torch.tensor(len(ids))


@wrong("context_length", "counts_those_that_matter")
def context_as_a_number_of_tokens(model, ids):
    return torch.tensor(sum(bool(each) for each in _matters(model, ids)))


@wrong("context_length", "stops_at_the_first_gap")
def context_until_nothing_moves(model, ids):
    length = 0
    for matters in _matters(model, ids).flip(0):
        if not matters:
            break
        length += 1
    return torch.tensor(length)


@wrong("context_length", "change_that_changes_nothing")
def context_with_token_0_in_each_place(model, ids):
    rows = torch.where(torch.eye(len(ids), dtype=torch.bool), 0, ids.repeat(len(ids), 1))
    moved = _differ(model, ids, rows)
    return (moved.cumsum(0) > 0).sum()


@wrong("context_length", "always_the_whole_text")
def context_of_the_text(model, ids):
    return torch.tensor(len(ids))


@wrong("context_length")
def context_as_an_int(model, ids):
    return int(context_in_one_batch(model, ids))


@wrong("context_length", "cuts_the_text")
def context_by_cutting_the_text(model, ids):
    last = _last(model, ids[None])
    for length in range(1, len(ids) + 1):
        if (_last(model, ids[None, -length:]) - last).abs().max() < 1e-5:
            return torch.tensor(length)
    return torch.tensor(0)
