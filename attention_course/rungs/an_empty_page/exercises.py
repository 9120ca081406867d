"""A GPT on an empty page, judged by an examination, and two of its questions, to be written anew."""

import contextlib
import io
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import torch
import torch.nn as nn
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attention_course.apart import Message
from attention_course.examine import Examination, in_thread, questions_to, wrap
from attention_course.examine.beginning import first_loss
from attention_course.examine.gradients import gradients
from attention_course.examine.wrapped_model import format_error
from attention_course.exercises.comparing import close
from attention_course.exercises.exercise import Exercise, Property, exercise
from attention_course.exercises.judging import Verdict, not_tried


def gpt(vocab_size: int, block_size: int, n_layer: int = 2, n_head: int = 4, n_embd: int = 64) -> nn.Module:
    """Return a GPT, written from top to bottom, whose parameters have nanoGPT's names.

    Args:
        vocab_size: V.
        block_size: the most tokens that it reads.
        n_layer: the number of blocks.
        n_head: the number of heads; it divides n_embd.
        n_embd: the number of channels.

    Returns:
        A module that maps ids (B, T) to logits (B, T, V).
    """

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.c_attn = nn.Linear(n_embd, 3 * n_embd, bias=False)
            self.c_proj = nn.Linear(n_embd, n_embd, bias=False)

        def forward(self, x):
            B, T, C = x.shape
            q, k, v = (
                each.view(B, T, n_head, C // n_head).transpose(1, 2)
                for each in self.c_attn(x).chunk(3, dim=-1)
            )  # (B, n_head, T, head_size)
            scores = q @ k.transpose(-2, -1) / math.sqrt(C // n_head)
            mask = torch.ones(T, T, dtype=torch.bool, device=x.device).tril()
            weights = torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)
            return self.c_proj((weights @ v).transpose(1, 2).reshape(B, T, C))

    class MLP(nn.Module):
        def __init__(self):
            super().__init__()
            self.c_fc = nn.Linear(n_embd, 4 * n_embd, bias=False)
            self.c_proj = nn.Linear(4 * n_embd, n_embd, bias=False)

        def forward(self, x):
            return self.c_proj(F.gelu(self.c_fc(x)))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.attn = nn.LayerNorm(n_embd, bias=False), Attention()
            self.ln_2, self.mlp = nn.LayerNorm(n_embd, bias=False), MLP()

        def forward(self, x):
            x = x + self.attn(self.ln_1(x))
            return x + self.mlp(self.ln_2(x))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            wte = nn.Embedding(vocab_size, n_embd)
            self.transformer = nn.ModuleDict(
                {
                    "wte": wte,
                    "wpe": nn.Embedding(block_size, n_embd),
                    "h": nn.ModuleList(Block() for _ in range(n_layer)),
                    "ln_f": nn.LayerNorm(n_embd, bias=False),
                }
            )
            self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
            self.lm_head.weight = wte.weight
            for parameter in self.parameters():
                if parameter.dim() == 2:
                    nn.init.normal_(parameter, std=n_embd**-0.5)

        def forward(self, ids):
            positions = torch.arange(ids.shape[1], device=ids.device)
            x = self.transformer["wte"](ids) + self.transformer["wpe"](positions)
            for block in self.transformer["h"].children():
                x = block(x)
            return self.lm_head(self.transformer["ln_f"](x))

    return GPT()


def swaps_noticed(model: Callable[[Tensor], Tensor], ids: Int[Tensor, " T"]) -> Bool[Tensor, " T-1"]:
    """Find which swaps of neighbouring tokens the last output notices.

    Args:
        model: maps ids (B, T) to logits (B, T, V).
        ids: a text, shape (T,), T at least 2.

    Returns:
        Boolean: entry i says whether the last logits change when tokens i and i + 1 are swapped.
    """
    last = model(ids[None])[0, -1]  # (V,)
    noticed = []
    for i in range(len(ids) - 1):
        swapped = ids.clone()
        swapped[i], swapped[i + 1] = ids[i + 1], ids[i]
        moved = (model(swapped[None])[0, -1] - last).abs().max()
        noticed.append(moved > 1e-5 * last.abs().max())
    return torch.stack(noticed)


def context_length(model: Callable[[Tensor], Tensor], ids: Int[Tensor, " T"]) -> Int[Tensor, ""]:
    """Measure how many tokens, the last ones of a text, hold all that the last output depends on.

    Args:
        model: maps ids (B, T) to logits (B, T, V).
        ids: a text, shape (T,).

    Returns:
        A scalar, from 0 to T.
    """
    last = model(ids[None])[0, -1]  # (V,)
    for s in range(len(ids)):
        changed = ids.clone()
        changed[s] = (ids[s] + 1) % len(last)
        moved = (model(changed[None])[0, -1] - last).abs().max()
        if moved > 1e-5 * last.abs().max():
            return torch.tensor(len(ids) - s)
    return torch.tensor(0)


# The page


def draw_sizes(generator: torch.Generator) -> list[tuple]:
    """Draw vocab_size and block_size, which differ."""
    V, T = (int(torch.randint(low, low + 20, (), generator=generator)) for low in (60, 36))
    return [(V, T)]


PATIENCE = 600.0  # seconds for all questions


def in_time(messages: Iterable[Message], guard: Callable, sizes: tuple[int, int]) -> Iterator[Message]:
    """Yield the messages of an examination, at most for PATIENCE seconds, and report each as a call."""
    end = time.monotonic() + PATIENCE
    for message in messages:
        with guard(sizes):
            pass
        yield message
        if time.monotonic() > end:
            return


def examined(page: Exercise, make: Callable, vocab_size: int, block_size: int, guard: Callable) -> Verdict:
    """Judge the model that `make(vocab_size, block_size)` returns by an examination without training."""
    if isinstance(make, nn.Module):
        message = 'The class itself is expected, but this is a model. Write `check("gpt", MyGPT)`.'
        return Verdict(page.name, False, (), "not yet: wrong type", message)
    call = f"`{getattr(make, '__name__', 'MyGPT')}({vocab_size}, {block_size})`"
    try:
        model = make(vocab_size, block_size)
    except NotImplementedError:
        return not_tried(page)
    except BaseException as error:  # also exit()
        message = f"{call} raised {format_error(error)} Call it in a cell of its own to see the line."
        return Verdict(page.name, False, (), "not yet: it raises an error", message)
    if model is None or model is ...:
        return not_tried(page)
    if not isinstance(model, nn.Module):
        message = f"{call} returned {type(model).__name__}, where an `nn.Module` is expected."
        return Verdict(page.name, False, (), "not yet: wrong type", message)
    with contextlib.redirect_stderr(io.StringIO()):  # its progress bar
        wrapped = wrap(model, vocab_size, block_size)
        questions = questions_to(train=False, require=[gradients.name])
        messages = in_time(in_thread(wrapped, questions), guard, (vocab_size, block_size))
        begun = time.monotonic()
        report = Examination(questions).follow(messages)
    details = f"<details><summary>The report</summary>{report._repr_mimebundle_()['text/html']}</details>"
    doubts = [finding for finding in report.findings if finding.verdict == "doubtful"]
    far = [  # the model is new, so nothing was learned that it could be this sure of
        doubt
        for doubt in doubts
        if doubt.name == first_loss.name and float(doubt.measured.split()[0]) > math.log(vocab_size) + 10
    ]
    if report.stopped:
        message = f"The examination of {call} was stopped before its end, so it says nothing."
        if time.monotonic() - begun > PATIENCE:
            message += (
                f" {PATIENCE / 60:.0f} minutes were too few: the model is too large to be examined here. "
                "Take a smaller `n_layer` or `n_embd` for it."
            )
        else:
            message += " Run the cell again."
        return Verdict(page.name, False, (), "stopped", message, details)
    if report and not far:
        message = f"Nothing is wrong with {call}: two inputs, new random ones for this check. {page.insight}"
        if doubts:
            seen = " ".join(f"“{doubt.name}”: {doubt.measured} {doubt.advice}" for doubt in doubts)
            message = f"{call} passes, but look at this. {seen}"
        return Verdict(page.name, True, (), f"passed: {report.headline}", message, details)
    first = (far or report.findings)[0]
    message = f"{first.measured} {first.advice}"
    return Verdict(page.name, False, (first.name,), f"not yet: fix “{first.name}”", message, details)


# Models of which the last output is to be asked


@dataclass(frozen=True, eq=False)
class Model:
    """A language model of which the kind says what it looks at; logits are sums of rows of its table."""

    kind: str
    table: Float[Tensor, "V V"] = field(repr=False)

    def __call__(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """Map ids (B, T) to logits (B, T, V).

        Raises:
            ValueError: ids is not of shape (B, T).
            IndexError: an id is not in the vocabulary.
        """
        if ids.dim() != 2:
            raise ValueError(f"model: ids has shape {tuple(ids.shape)}, expected (B, T).")
        if ids.min() < 0 or ids.max() >= len(self.table):
            raise IndexError(f"model: an id is not in the vocabulary, which ends with {len(self.table) - 1}.")
        return KINDS[self.kind](self.table[ids])


def running_sum(x: Tensor) -> Tensor:
    """Add up rows one after the other: the order shows in the last digits."""
    sums = [x[:, 0]]
    for row in x.unbind(dim=1)[1:]:
        sums.append(sums[-1] + row)
    return torch.stack(sums, dim=1)


def window(k: int) -> Callable[[Tensor], Tensor]:
    """Make a model that sums the last k tokens: a difference of running sums, in which earlier ones round."""
    return lambda x: (sums := 0.3 * running_sum(x)) - F.pad(sums, (0, 0, k, 0))[:, : x.shape[1]]


def weighted(*weights: float) -> Callable[[Tensor], Tensor]:
    """Make a model that sums the last tokens: its own times weights[0], the one before times weights[1]..."""

    def forward(x):
        shifted = [F.pad(x, (0, 0, age, 0))[:, : x.shape[1]] for age in range(len(weights))]
        return sum((w * each for w, each in zip(weights, shifted, strict=True)), start=torch.zeros(()))

    return forward


def faint_past(x: Tensor) -> Tensor:
    """Move all logits but one, which is 1000, by the sign of the token before: too little to count."""
    x = x[..., 1:]
    before = F.pad(x, (0, 0, 1, 0))[:, :-1]
    return F.pad(x + 4.5e-3 * before.sign(), (1, 0), value=1e3)


def slight_past(x: Tensor) -> Tensor:
    """Move the logits by the sign of those of the token before: a little, and enough to count."""
    return x + 1.1e-2 * F.pad(x, (0, 0, 1, 0))[:, :-1].sign()


KINDS = {
    "bag of words": running_sum,
    "bigram": lambda x: x,
    "bigram that grows": lambda x: x * torch.arange(1, x.shape[1] + 1)[:, None],
    "trigram": weighted(1.0, -0.5),
    "window of 3": window(3),
    "window of 4": window(4),
    "every other token": weighted(1.0, 0.0, 1.0, 0.0, 1.0),
    "the third last": weighted(0.0, 0.0, 1.0),
    "positions": lambda x: running_sum(x * torch.linspace(1, 2, x.shape[1])[:, None]),
    "early positions": lambda x: running_sum(x * torch.arange(1, x.shape[1] + 1).clamp(max=3)[:, None]),
    "recency": lambda x: running_sum(x * (2.0 ** (t := torch.arange(x.shape[1])[:, None]))) * 100.0**-t,
    "first and last": lambda x: x + 0.01 * x[:, :1],
    "no token": lambda x: torch.ones_like(x),
    "faint past": faint_past,
    "slight past": slight_past,
    "zeros": torch.zeros_like,
}


def draw_models(generator: torch.Generator) -> list[tuple]:
    """Draw a model of each kind and a text of 2 to 8 tokens: one has equal neighbours, one is all zeros.

    Logits are large, tiny, all negative, or every other one is 0 but for rounding; or they rise together.
    Of "recency", earlier outputs are much larger than the last one. Of "faint past", one logit is much larger
    than the others, all of which move a little, by 0.9e-5 of it. Of "slight past", three logits are as large,
    and of the others one or two move, by 1.1e-5 of it.
    The token that a text begins with is the first of the vocabulary in one, and the last one in another.
    """
    lengths = (7, 2, 5, 4, 6, 8, 7, 5, 6, 7, 5, 8, 3, 7, 5, 4)
    drawn = []
    for kind, T in zip(KINDS, lengths, strict=True):
        V = T + 3
        table = torch.rand(V, V, generator=generator) + torch.eye(V)
        ids = torch.randperm(V, generator=generator)[:T]
        if kind == "bag of words":
            ids[ids == 0], ids[0] = ids[0].clone(), 0
            table = 1e3 * (table - table[ids].mean(dim=0) * (torch.arange(V) % 2))
        elif kind == "bigram that grows":
            ids *= 0
        elif kind == "trigram":  # its moves add up to 0
            table -= table.mean(dim=1, keepdim=True)
        elif kind == "window of 3":
            table *= -1e3
        elif kind == "window of 4":
            table -= table[ids[-4:]].mean(dim=0) * (torch.arange(V) % 2)
        elif kind == "positions":
            ids[1] = ids[2]
            table *= 1e-9
        elif kind == "early positions":
            ids[ids == V - 1], ids[0] = ids[0].clone(), V - 1
            table[:, 0] = 1
        elif kind == "every other token":
            table[:, 1] = 1  # one logit never moves
        elif kind == "first and last":
            table[:, [0, -1]] = 1
        elif kind == "faint past":  # neighbours have all signs changed
            ids = torch.randperm(V // 2, generator=generator).repeat_interleave(2)[:T] * 2
            ids[1::2] += 1
            table[1::2, ::2] *= -1
            table[::2, 1::2] *= -1
        elif kind == "slight past":  # tokens before the large logits, each of which moves its own
            ids, table = torch.randperm(T, generator=generator), torch.eye(V)
            table[:, T:] = torch.tensor([1e3, 1e3, -1e3])
        elif kind == "recency":  # later tokens of the vocabulary have larger logits
            ids = torch.cat([torch.tensor([V - 1]), ids[ids < V - 1].sort().values])[:T]
            table += 3 * torch.arange(V)[:, None]
        drawn.append((Model(kind, table), ids))
    return sorted(drawn, key=lambda arguments: len(arguments[1]))


def reach(model: Callable[[Tensor], Tensor], ids: Tensor) -> Bool[Tensor, " T"]:
    """Return which tokens the last output depends on."""
    last, changed = model(ids[None])[0, -1], ids.repeat(len(ids), 1)
    changed.diagonal().copy_((ids + 1) % len(last))
    return (model(changed)[:, -1] - last).abs().amax(dim=-1) > 1e-5 * last.abs().max()


def counts_those_that_matter(model, ids):
    """Count the tokens that the last output depends on."""
    return reach(model, ids).sum()


def stops_at_the_first_gap(model, ids):
    """Go back from the end, as far as each token matters."""
    return reach(model, ids).flip(0).int().cumprod(0).sum()


def nearest_instead_of_furthest(model, ids):
    """Go back from the end, to the first token that matters."""
    matters = reach(model, ids).flip(0).int()
    return matters.any() * (matters.argmax() + 1)


def binary_search(model, ids):
    """Take it for granted that all tokens behind the earliest matter."""
    matters = reach(model, ids).tolist()
    low, high = 0, len(ids)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if matters[middle] else (middle + 1, high)
    return torch.tensor(len(ids) - low)


def says_of(kind: str, expected: Callable[[int], list | int]) -> Callable[..., bool]:
    """Make a property: of a model of this kind, and T different tokens, the answer is `expected(T)`."""

    def holds(f, model, ids):
        ids = torch.arange(len(ids))
        return close(torch.tensor(expected(len(ids))), f(Model(kind, model.table), ids))

    return holds


OF_SWAPS = (
    Property("A bag of words notices none.", says_of("bag of words", lambda T: [False] * (T - 1))),
    Property(
        "With weights for positions, each is noticed.", says_of("positions", lambda T: [True] * (T - 1))
    ),
    Property("A bigram notices the last.", says_of("bigram", lambda T: [False] * (T - 2) + [True])),
)
OF_A_CONTEXT = (
    Property("It is 1 for a bigram.", says_of("bigram", lambda T: 1)),
    Property("It is 3, or T, for a model with a window of 3.", says_of("window of 3", lambda T: min(3, T))),
    Property("It is T for a bag of words.", says_of("bag of words", lambda T: T)),
)

EXERCISES = (
    exercise(__name__, gpt, draw_sizes, (), judge=examined),
    exercise(__name__, swaps_noticed, draw_models, OF_SWAPS),
    exercise(
        __name__,
        context_length,
        draw_models,
        OF_A_CONTEXT,
        (counts_those_that_matter, stops_at_the_first_gap, nearest_instead_of_furthest, binary_search),
    ),
)
