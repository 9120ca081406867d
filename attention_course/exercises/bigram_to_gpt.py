"""Rung 8: a batch with its targets, the loss, tokens with positions, a block, and the loop that writes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from attention_course.attention import attention, causal_mask
from attention_course.exercises.engine import (
    Exercise,
    Mistake,
    Property,
    close,
    not_detached,
    reached,
    trained_through,
)


def get_batch(ids: Int[Tensor, " N"], block_size: int, starts: Int[Tensor, " B"]) -> Int[Tensor, "2 B T"]:
    """Cut blocks out of a text, and for each token the one that comes next.

    Args:
        ids: the text, shape (N,).
        block_size: T, the tokens of a block.
        starts: where each block begins, shape (B,), from 0 to N - T - 1.

    Returns:
        Inputs and targets, shape (2, B, T).
    """
    positions = starts[:, None] + torch.arange(block_size)  # (B, T)
    return torch.stack([ids[positions], ids[positions + 1]])


def cross_entropy_loss(logits: Float[Tensor, "B T V"], targets: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
    """Average minus the log of the probability that each target is given.

    Args:
        logits: shape (B, T, V).
        targets: the true tokens, shape (B, T), from 0 to V - 1.

    Returns:
        One number, in nats.
    """
    logits = logits - logits.amax(dim=-1, keepdim=True)  # the largest is 0: exp cannot overflow
    log_sum = logits.exp().sum(dim=-1).log()  # (B, T)
    of_target = logits.gather(-1, targets[..., None])[..., 0]
    return (log_sum - of_target).mean()


def embed(
    ids: Int[Tensor, "B T"], wte: Float[Tensor, "V C"], wpe: Float[Tensor, "block_size C"]
) -> Float[Tensor, "B T C"]:
    """Turn tokens into rows of numbers that say what stands there, and where.

    Args:
        ids: shape (B, T), T at most block_size.
        wte: a row for each token, shape (V, C).
        wpe: a row for each position, shape (block_size, C).

    Returns:
        Shape (B, T, C).
    """
    T = ids.shape[1]
    return wte[ids] + wpe[:T]


def pre_norm_block(
    x: Float[Tensor, "B T C"], attn: Callable, mlp: Callable, ln_1: Callable, ln_2: Callable
) -> Float[Tensor, "B T C"]:
    """Add to each token what attention finds, then what the MLP makes of it; both see normalised tokens.

    Args:
        x: tokens, shape (B, T, C).
        attn: causal attention. This and the following turn (B, T, C) into (B, T, C).
        mlp: the feed-forward part.
        ln_1: the LayerNorm before attention.
        ln_2: the LayerNorm before the MLP.

    Returns:
        Shape (B, T, C).
    """
    x = x + attn(ln_1(x))
    return x + mlp(ln_2(x))


def generate(
    model: Callable, ids: Int[Tensor, " T"], block_size: int, draws: Float[Tensor, " n"]
) -> Int[Tensor, " T_new"]:
    """Write on: one token for each number in `draws`.

    Args:
        model: turns ids (T,) into logits (T, V).
        ids: the text so far, shape (T,), at least one token.
        block_size: how many tokens the model may be shown.
        draws: numbers from 0 to 1, without 1, shape (n,).

    Returns:
        The text and what follows it, shape (T + n,).
    """
    for draw in draws:
        logits = model(ids[-block_size:])[-1]  # (V,): what follows the last token
        sums = torch.softmax(logits, dim=-1).cumsum(dim=-1)
        token = torch.searchsorted(sums, draw, right=True)  # the first sum above the draw
        ids = torch.cat([ids, token[None]])
    return ids


# Inputs


def randint(generator, *shape):
    """Draw small integers, as floats."""
    return torch.randint(-9, 10, shape, generator=generator).float()


def draw_texts(generator: torch.Generator) -> list[tuple]:
    """Draw texts and starts: B = 1, T = 1, one block that fills its text, first and last start, B == T.

    One start comes twice. The ids of the last are above 255.
    """

    def starts(low, high, B):
        return torch.randint(low, high + 1, (B,), generator=generator)

    drawn = [
        (6, 3, torch.tensor([1])),
        (5, 1, starts(0, 3, 2)),
        (4, 3, torch.tensor([0])),
        (9, 4, torch.tensor([4, 0, 4])),
        (12, 3, starts(0, 8, 3)),
        (40, 5, starts(1, 6, 4)),
        (60, 7, starts(0, 52, 3)),
    ]
    texts = [(torch.randperm(90, generator=generator)[:N], T, starts) for N, T, starts in drawn]
    ids, T, last = texts[-1]
    return [*texts[:-1], (ids + 300, T, last)]


def draw_logits(generator: torch.Generator) -> list[tuple]:
    """Draw logits and targets: T = 1, T == V, all sizes different, equal logits, logits near 1000.

    In the last but one, the targets' logits lie 1000 below. In the last, the first position of each text has
    logits near 1000, and the others near 0.
    """

    def draw(B, T, V):
        logits = torch.randn(B, T, V, generator=generator)
        return logits, torch.randint(V, (B, T), generator=generator)

    drawn = [draw(*sizes) for sizes in ((1, 1, 2), (1, 2, 3), (1, 3, 3), (2, 3, 3), (2, 3, 5), (3, 4, 7))]
    logits, targets = draw(2, 3, 5)
    drawn += [(0 * logits, targets), (logits + 1000, targets)]
    drawn.append((logits.scatter(-1, targets[..., None], -1000.0), targets))
    return [*drawn, (logits + torch.tensor([1000.0, 0, 0])[:, None], targets)]


def draw_tables(generator: torch.Generator) -> list[tuple]:
    """Draw ids and two tables: T = 1, T == block_size, B == T, all sizes different."""
    sizes = [
        (3, 3, 1, 2, 2),
        (3, 4, 1, 1, 2),
        (4, 3, 2, 3, 2),
        (5, 5, 2, 2, 3),
        (6, 7, 3, 4, 2),
        (7, 8, 2, 5, 4),
    ]
    return [
        (
            torch.randint(V, (B, T), generator=generator),
            randint(generator, V, C),
            randint(generator, block_size, C),
        )
        for V, block_size, B, T, C in sizes
    ]


@dataclass(frozen=True, eq=False)
class Part:
    """A part of a block with its parameters: a function of tokens (B, T, C), or (T, C) under `torch.vmap`."""

    kind: str
    parameters: list[Tensor] = field(repr=False)

    def __call__(self, x: Tensor) -> Tensor:
        """Turn tokens into an output of their shape."""
        function, _ = KINDS[self.kind]
        return function(x, *self.parameters)

    def __repr__(self) -> str:
        return self.kind


def one_head(x, W_query, W_key, W_value):
    """Let each token look at itself and at the past."""
    return attention(x @ W_query, x @ W_key, x @ W_value, causal_mask(x.shape[-2]))[0]


def feed_forward(x, W_in, W_out):
    """Send each token through four times as many channels."""
    return torch.relu(x @ W_in) @ W_out


def layer_norm(x, stretch, shift):
    """Normalise each token, then stretch and shift its channels."""
    return F.layer_norm(x, stretch.shape) * stretch + shift


KINDS = {  # what each does, and the shapes of its parameters for C channels
    "causal attention": (one_head, lambda C: [(C, C)] * 3),
    "an MLP": (feed_forward, lambda C: [(C, 4 * C), (4 * C, C)]),
    "a LayerNorm": (layer_norm, lambda C: [(C,)] * 2),
}


def draw_parts(generator: torch.Generator) -> list[tuple]:
    """Draw tokens and the four parts of a block: one token, T == C, all sizes different, longer tokens."""

    def part(kind, C):
        _, shapes = KINDS[kind]
        return Part(kind, [torch.randn(shape, generator=generator) for shape in shapes(C)])

    sizes = [
        (1, 1, 2, 1),
        (1, 2, 2, 1),
        (1, 3, 2, 1),
        (2, 3, 3, 1),
        (2, 4, 3, 5),
        (3, 2, 5, 1),
        (2, 5, 4, 10),
    ]
    return [
        (
            scale * torch.randn(B, T, C, generator=generator),
            *(part(kind, C) for kind in ("causal attention", "an MLP", "a LayerNorm", "a LayerNorm")),
        )
        for B, T, C, scale in sizes
    ]


SIXTEENTHS = 16  # probabilities are multiples of 1/16 and draws lie halfway between: no rounding decides


@lru_cache
def rows_of_logits(vocab_size: int, seed: int) -> Tensor:
    """Draw 97 rows of logits, all above 0, whose probabilities are multiples of 1/16: shape (97, V).

    Of two tokens, each has 1/2: that comes out exactly, whatever is rounded on the way.
    """
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for _ in range(97):
        cuts = torch.randperm(SIXTEENTHS - 1, generator=generator)[: vocab_size - 1].sort().values + 1
        if vocab_size == 2:
            cuts = torch.tensor([SIXTEENTHS // 2])
        ends = torch.tensor([0, *cuts.tolist(), SIXTEENTHS])
        rows.append(ends.diff().log() + 1)
    return torch.stack(rows)


@dataclass(frozen=True)
class Model:
    """A language model whose logits depend on every token that it is shown, and on their order.

    Attributes:
        vocab_size: number of different tokens.
        positions: how many it has learned; None: it takes a text of any length.
        seed: of its logits.
    """

    vocab_size: int
    positions: int | None
    seed: int

    def __call__(self, ids: Tensor) -> Tensor:
        """Turn ids (T,) into logits (T, vocab_size).

        Raises:
            IndexError: there is no such token.
            ValueError: `ids` has another shape, or there are more tokens than positions.
        """
        if ids.dim() != 1 or not len(ids):
            raise ValueError(
                f"model: ids has shape {tuple(ids.shape)}, expected (T,) with at least one token."
            )
        if self.positions is not None and len(ids) > self.positions:
            raise ValueError(
                f"model: {len(ids)} tokens, but there is no position {self.positions}. It may be shown "
                f"block_size = {self.positions} tokens, the last ones."
            )
        states, state = [], self.seed
        for token in ids.tolist():
            if token not in range(self.vocab_size):
                raise IndexError(f"model: there is no token {token}, only 0 to {self.vocab_size - 1}.")
            state = (31 * state + token + 1) % 97
            states.append(state)
        return rows_of_logits(self.vocab_size, self.seed)[states]

    def __repr__(self) -> str:
        return f"a model of {self.vocab_size} tokens"


def draw_models(generator: torch.Generator) -> list[tuple]:
    """Draw a model, ids, block_size and draws: a text within its block, a longer one, one that outgrows it.

    Some models raise an error beyond block_size, as a GPT does; others give other logits. In one, the draw
    equals a running sum; in one, three tokens grow in a block of five.
    """
    drawn = []
    sizes = [  # V, block_size, T, n, and whether the model raises
        (3, 2, 3, 2, False),
        (3, 4, 1, 1, True),
        (4, 3, 2, 4, False),
        (4, 3, 3, 5, True),
        (5, 1, 2, 4, False),
        (6, 4, 7, 6, True),
        (7, 5, 8, 9, False),
    ]
    for V, block_size, T, n, strict in sizes:
        model = Model(V, block_size if strict else None, int(torch.randint(97, (), generator=generator)))
        ids = torch.randint(V, (T,), generator=generator)
        draws = (torch.randint(SIXTEENTHS, (n,), generator=generator) + 0.5) / SIXTEENTHS
        drawn.append((model, ids, block_size, draws))
    ids = torch.randint(2, (2,), generator=generator)
    drawn.insert(2, (Model(2, 3, 0), ids, 3, torch.tensor([0.5, 0.25, 0.5])))
    drawn.insert(5, draw_a_short_text(generator))
    return drawn


def draw_a_short_text(generator: torch.Generator) -> tuple:
    """Draw three tokens for a block of five, which go on in another way if some are left out or added."""
    while True:
        model = Model(8, 5, int(torch.randint(97, (), generator=generator)))
        ids = torch.randint(8, (3,), generator=generator)
        draws = (torch.randint(SIXTEENTHS, (4,), generator=generator) + 0.5) / SIXTEENTHS
        windows = (ids, ids[-2:], ids[-1:], F.pad(ids, (2, 0)), F.pad(ids, (0, 2)))
        first, *others = (int(first_sum_above(model(window)[-1], draws[0])) for window in windows)
        if first not in others:
            return model, ids, 5, draws


# Properties


def counting_text(get_batch, ids, block_size, starts):
    """Cut a text in which token i is i: inputs count on from their start, and targets are one higher."""
    inputs, targets = get_batch(torch.arange(len(ids)), block_size, starts)
    return torch.equal(inputs[:, 0], starts) and torch.equal(inputs + 1, targets)


def equal_logits_cost_ln_v(loss, logits, targets):
    """Judge a model that gives all tokens the same logit."""
    return close(torch.tensor(logits.shape[-1]).log(), loss(torch.full_like(logits, 3.0), targets))


def far_below_costs_its_distance(loss, logits, targets):
    """Put the target's logit 1000 below all others, which are equal."""
    V = logits.shape[-1]
    far = torch.zeros_like(logits).scatter(-1, targets[..., None], -1000.0)
    return close(1000 + torch.tensor(V - 1).log(), loss(far, targets))


def a_token_repeated(embed, ids, wte, wpe):
    """Put one token everywhere: what differs are the rows of wpe."""
    out = embed(torch.zeros_like(ids), wte, wpe)
    return close((wpe[: ids.shape[1]] - wpe[0]).expand_as(out), out - out[:, :1])


def silent(x):
    """Find nothing."""
    return torch.zeros_like(x)


def hand_back(x):
    """Return what was given."""
    return x


def parts_that_hand_back(block, x, attn, mlp, ln_1, ln_2):
    """Compare with what the norms alone make of x."""
    y = x + ln_1(x)
    return close(y + ln_2(y), block(x, hand_back, hand_back, ln_1, ln_2))


def gradients_reach_all_parts(block, x, *parts):
    """Stretch what each part gives by a number of its own, and ask which of these get gradients."""
    x = x.clone().requires_grad_()
    numbers = [torch.ones((), requires_grad=True) for _ in parts]
    stretched = [
        lambda tokens, part=part, number=number: number * part(tokens)
        for part, number in zip(parts, numbers, strict=True)
    ]
    return reached(block(x, *stretched), [x, *numbers])


def in_two_parts(generate, model, ids, block_size, draws):
    """Write one token, then the others."""
    whole = generate(model, ids, block_size, draws)
    begun = generate(model, ids, block_size, draws[:1])
    return len(whole) == len(ids) + len(draws) and torch.equal(
        whole, generate(model, begun, block_size, draws[1:])
    )


def the_far_past_does_not_matter(generate, model, ids, block_size, draws):
    """Put other tokens before the last block_size ones."""
    past, block = ids[:-block_size], ids[-block_size:]
    other = torch.cat([(past + 1) % model.vocab_size, block])
    one, two = (generate(model, each, block_size, draws) for each in (ids, other))
    return torch.equal(one[len(ids) :], two[len(ids) :])


# Mistakes


def batch_by_index(x=lambda starts, T: starts, y=lambda starts, T: starts + 1, join=torch.stack):
    """Make a get_batch in which inputs or targets begin elsewhere, or are joined in another way."""

    def cut(ids, block_size, starts):
        steps = torch.arange(block_size)
        return join([ids[first(starts, block_size)[:, None] + steps] for first in (x, y)])

    return cut


def batch_by_slices(x=lambda starts, T: starts, y=lambda starts, T: starts + 1):
    """Make the same with a slice for each block: where it passes an end, the block is shorter."""

    def cut(ids, block_size, starts):
        firsts = [first(starts, block_size).tolist() for first in (x, y)]
        return torch.stack([torch.stack([ids[i : i + block_size] for i in each]) for each in firsts])

    return cut


def batch_within_the_block(last):
    """Make a get_batch that takes targets from the inputs, and `last` where they end."""

    def cut(ids, block_size, starts):
        x = get_batch(ids, block_size, starts)[0]
        return torch.stack([x, torch.cat([x[:, 1:], last(x)], dim=1)])

    return cut


def starts_in_a_row(ids, block_size, starts):
    """Add starts (B,) and steps (T,) without a new dimension."""
    positions = starts + torch.arange(block_size)
    return torch.stack([ids[positions], ids[positions + 1]])


def log_softmax_of_targets(logits, targets, dim=-1):
    """Return the log-probability of each target, shape (B, T)."""
    return torch.log_softmax(logits, dim=dim).gather(-1, targets[..., None])[..., 0]


def loss_of_probability(of_probability, softmax=lambda logits: torch.softmax(logits, dim=-1)):
    """Make a loss of the probabilities of the targets."""

    def loss(logits, targets):
        return of_probability(softmax(logits).gather(-1, targets[..., None])).mean()

    return loss


def log_sum_without_maximum(logits, targets):
    """Take the log of the sum of exps as they are."""
    return (logits.exp().sum(-1).log() - logits.gather(-1, targets[..., None])[..., 0]).mean()


def exp_by_sum(logits):
    """Write softmax without subtracting the largest logit."""
    return logits.exp() / logits.exp().sum(-1, keepdim=True)


def share_of_right_guesses(logits, targets):
    """Count how often the largest logit is the target's."""
    return (logits.argmax(-1) == targets).float().mean()


def embed_with(add=torch.add, rows=lambda wpe, ids: wpe[: ids.shape[1]]):
    """Make an embedding with other rows of wpe, or another way to join them."""
    return lambda ids, wte, wpe: add(wte[ids], rows(wpe, ids))


def beside(tokens, positions):
    """Put tokens and positions side by side."""
    return torch.cat([tokens, positions.expand_as(tokens)], dim=-1)


def second_step(second, first=lambda x, attn, mlp, ln_1, ln_2: x + attn(ln_1(x))):
    """Make a block whose second step, or whose first, is another."""
    return lambda x, *parts: second(first(x, *parts), *parts)


def right_second(y, attn, mlp, ln_1, ln_2):
    """Add what the MLP makes of the normalised token."""
    return y + mlp(ln_2(y))


def norms_on_the_path(x, attn, mlp, ln_1, ln_2):
    """Overwrite x with its norm before each sum."""
    x = ln_1(x)
    x = x + attn(x)
    x = ln_2(x)
    return x + mlp(x)


def post_norm(x, attn, mlp, ln_1, ln_2):
    """Normalise the sums, as Vaswani et al. 2017."""
    x = ln_1(x + attn(x))
    return ln_2(x + mlp(x))


def first_sum_above(logits, draw):
    """Draw a token as the reference does."""
    return torch.searchsorted(torch.softmax(logits, dim=-1).cumsum(dim=-1), draw, right=True)


def write_with(
    crop=lambda ids, block_size: ids[-block_size:],
    last=lambda logits: logits[-1],
    pick=first_sum_above,
    numbers=lambda draws: draws,
    keep=lambda ids, block_size: ids,
    result=lambda ids, T: ids,
):
    """Make a generate in which one step is another."""

    def write(model, ids, block_size, draws):
        T = len(ids)
        for draw in numbers(draws):
            ids = keep(ids, block_size)
            token = pick(last(model(crop(ids, block_size))), draw)
            ids = torch.cat([ids, token.reshape(1)])
        return result(ids, T)

    return write


def cropped_once(model, ids, block_size, draws):
    """Crop before the loop, and let the window grow in it."""
    window, T = ids[-block_size:], min(len(ids), block_size)
    for draw in draws:
        window = torch.cat([window, first_sum_above(model(window)[-1], draw)[None]])
    return torch.cat([ids, window[T:]])


def never_fed_back(model, ids, block_size, draws):
    """Predict once, and draw all tokens from that."""
    logits = model(ids[-block_size:])[-1]
    return torch.cat([ids, torch.stack([first_sum_above(logits, draw) for draw in draws])])


NEXT = "The target of position t is the token at position t + 1 of the text."
TWO_LATER = (
    "The targets lie two steps after their inputs, and one step is asked for. Is a 1 added twice, perhaps in "
    "the start and in the slice?"
)
SHIFTED_BACK = (
    "The targets lie one step before their inputs: the model would learn to say what it has read already. "
    "The one that comes next stands at start + 1."
)
TIMES_BLOCK_SIZE = (
    "You multiplied the starts by block_size. They count tokens, not blocks: a block may begin at any "
    "token, and two blocks may overlap."
)
WITH_INF = (
    "where a probability is too small for a float, it is 0, and its logarithm -inf. The logarithm undoes the "
    "exp: ln p = logit - ln(sum of exps). Compute that, or use `log_softmax`."
)
FROM_ONE = (
    "The positions are counted from 1, so row 0 of `wpe` is never used, and a text of block_size tokens runs "
    "out of rows. The first token stands at position 0."
)


EXERCISES = (
    Exercise(
        name="get_batch",
        task="Take a text `ids` of shape (N,), `block_size` = T and `starts` of shape (B,). Cut a block of T "
        "tokens at each start: the inputs (B, T). The targets (B, T) are, for each of these tokens, the one "
        "that follows it in the text. Return both in one tensor, `torch.stack([inputs, targets])`.",
        reference=get_batch,
        draw_inputs=draw_texts,
        properties=(
            Property(
                "The text 0, 1, 2, ... gives inputs that begin at their start, and targets one higher.",
                counting_text,
            ),
            Property(
                "Each target but the last is the next input.",
                lambda f, ids, T, starts: torch.equal(
                    (batch := f(ids, T, starts))[0, :, 1:], batch[1, :, :-1]
                ),
            ),
            Property(
                "A block alone is what it is among others.",
                lambda f, ids, T, starts: torch.equal(f(ids, T, starts)[:, :1], f(ids, T, starts[:1])),
            ),
        ),
        mistakes=(
            Mistake(
                "targets_unshifted",
                batch_by_index(y=lambda starts, T: starts),
                "The targets are the inputs: not shifted. A model can copy what it sees, so its loss falls "
                f"to 0, and it has learned nothing. {NEXT}",
            ),
            Mistake("targets_shifted_back", batch_by_index(y=lambda starts, T: starts - 1), SHIFTED_BACK),
            Mistake(
                "targets_shifted_back_with_slices",
                batch_by_slices(y=lambda starts, T: starts - 1),
                SHIFTED_BACK,
            ),
            Mistake("targets_two_steps_later", batch_by_index(y=lambda starts, T: starts + 2), TWO_LATER),
            Mistake(
                "targets_two_steps_later_with_slices",
                batch_by_slices(y=lambda starts, T: starts + 2),
                TWO_LATER,
            ),
            Mistake(
                "last_step_wraps_around",
                batch_within_the_block(lambda x: x[:, :1]),
                "The last target is the first token of the block: `roll` turns it in a circle. What follows "
                "the block stands in the text: cut the targets from `ids`, one step later.",
            ),
            Mistake(
                "last_step_repeats",
                batch_within_the_block(lambda x: x[:, -1:]),
                "The last target repeats the last input. The token after the block is still in the text: cut "
                "the targets from `ids`, one step later.",
            ),
            Mistake(
                "last_step_zero",
                batch_within_the_block(lambda x: torch.zeros_like(x[:, :1])),
                "The last target is 0. That is a token too, and seldom the one that follows. The token after "
                "the block is still in the text: cut the targets from `ids`, one step later.",
            ),
            Mistake(
                "last_step_not_taken",
                lambda ids, T, starts: get_batch(ids, T, starts)[:, :, :-1],
                "Each row has T - 1 pairs, and T are wanted. A stretch of T tokens holds T - 1 steps; take "
                "T + 1 tokens, and leave out the last one for the inputs, the first one for the targets.",
            ),
            Mistake(
                "targets_first",
                lambda ids, T, starts: get_batch(ids, T, starts).flip(0),
                "Inputs and targets have changed places. The inputs come first.",
            ),
            Mistake(
                "starts_times_block_size",
                batch_by_index(*(lambda s, T, k=k: s * T + k for k in (0, 1))),
                TIMES_BLOCK_SIZE,
            ),
            Mistake(
                "starts_times_block_size_with_slices",
                batch_by_slices(*(lambda s, T, k=k: s * T + k for k in (0, 1))),
                TIMES_BLOCK_SIZE,
            ),
            Mistake(
                "starts_in_a_row",
                starts_in_a_row,
                "`starts` (B,) and `torch.arange(block_size)` (T,) were added number by number. Every start "
                "needs all T steps: with `starts[:, None]`, shape (B, 1), the sum is (B, T).",
            ),
            Mistake(
                "positions_in_place_of_tokens",
                lambda ids, T, starts: get_batch(torch.arange(len(ids)), T, starts),
                "These are the positions in the text. The tokens that stand there are `ids[positions]`.",
            ),
            Mistake(
                "one_block_after_the_other",
                lambda ids, T, starts: get_batch(ids, T, T * torch.arange(len(starts))),
                "The blocks follow one another from the beginning of the text. Each has a start of its own, "
                "in `starts`.",
            ),
            Mistake(
                "time_before_batch",
                lambda ids, T, starts: get_batch(ids, T, starts).transpose(1, 2),
                "Inputs and targets have shape (T, B): a column for each block. A block is a row: (B, T).",
            ),
            Mistake(
                "inputs_and_targets_side_by_side",
                batch_by_index(join=lambda both: torch.stack(both, dim=-1)),
                "Inputs and targets are stacked along the last dimension, shape (B, T, 2). They are to be "
                "two tensors (B, T), one after the other: `torch.stack` without `dim`.",
            ),
            Mistake(
                "stacked_in_each_text",
                batch_by_index(join=lambda both: torch.stack(both, dim=1)),
                "Inputs and targets are stacked along dim=1, shape (B, 2, T). All inputs come first, then "
                "all targets: `torch.stack` without `dim`.",
            ),
            Mistake(
                "concatenated",
                batch_by_index(join=torch.cat),
                "`torch.cat` puts the targets below the inputs: 2B rows of one table. `torch.stack` makes a "
                "new dimension, so that index 0 finds the inputs and index 1 the targets.",
            ),
            Mistake(
                "next_id",
                lambda ids, T, starts: torch.stack([x := get_batch(ids, T, starts)[0], x + 1]),
                "You added 1 to the ids, and that names the next token of the vocabulary. What comes next in "
                "the text stands one position later: add 1 to the position, and then look it up in `ids`.",
            ),
            Mistake(
                "one_target_for_a_block",
                lambda ids, T, starts: torch.stack(
                    [x := get_batch(ids, T, starts)[0], ids[starts + T][:, None].expand_as(x)]
                ),
                "All targets of a block are the token after the block. Each position predicts: the target of "
                "position t is the token at position t + 1, so a block holds T pairs.",
            ),
        ),
        hints=(
            "Take the text 5, 6, 7, 8, 9, block_size 3 and start 1. Write down the three inputs, and below "
            "each the token that follows it. Where does the row below begin?",
            "One block: `ids[i : i + block_size]`. Its targets: `ids[i + 1 : i + 1 + block_size]`. "
            "`torch.stack` makes a table of a list of rows.",
            "Or without a loop: `positions = starts[:, None] + torch.arange(block_size)` has shape (B, T). "
            "The inputs are `ids[positions]`, the targets `ids[positions + 1]`.",
        ),
        insight="`ids.unfold(0, block_size + 1, 1)` shows every block of the text, with its last target, and "
        "copies no number. `[starts]` then takes yours out of it.",
        minutes=7,
        difficulty=2,
    ),
    Exercise(
        name="cross_entropy_loss",
        task="Take `logits` of shape (B, T, V) and `targets` of shape (B, T). Softmax along V turns logits "
        "into probabilities. Return the mean, over all positions, of minus the natural logarithm of the "
        "target's probability: one number, a tensor of shape (). Logits of 1000 must do no harm.",
        reference=cross_entropy_loss,
        draw_inputs=draw_logits,
        properties=(
            Property("If all logits are equal, the loss is ln V.", equal_logits_cost_ln_v),
            Property(
                "Adding 5 to all logits changes nothing.",
                lambda f, logits, targets: close(f(logits, targets), f(logits + 5, targets)),
            ),
            Property(
                "A target whose logit lies 1000 below the others costs 1000, and ln(V - 1) more.",
                far_below_costs_its_distance,
            ),
            trained_through(cross_entropy_loss),
        ),
        mistakes=(
            Mistake(
                "softmax_before_cross_entropy",
                lambda logits, targets: F.cross_entropy(
                    torch.softmax(logits, dim=-1).flatten(0, 1), targets.flatten()
                ),
                "Softmax was applied twice: `F.cross_entropy` wants logits and does it itself. Numbers "
                "between 0 and 1 make weak logits. So even a model that is sure and right keeps a loss far "
                "above 0.",
            ),
            Mistake(
                "softmax_over_time",
                lambda logits, targets: -log_softmax_of_targets(logits, targets, dim=1).mean(),
                "Softmax ran along the time: for each token, its positions share out a total of 1. At each "
                "position the V tokens share it out: dim=-1.",
            ),
            Mistake(
                "softmax_over_the_batch",
                lambda logits, targets: -log_softmax_of_targets(logits, targets, dim=0).mean(),
                "Softmax ran along the batch, as `F.softmax` does for three dimensions if `dim` is left out. "
                "At each position the V tokens share out a total of 1: dim=-1.",
            ),
            Mistake(
                "bits_in_place_of_nats",
                lambda logits, targets: cross_entropy_loss(logits, targets) / torch.tensor(2.0).log(),
                "The loss is in bits: the logarithm has base 2. The natural one, `log`, gives nats.",
            ),
            Mistake(
                "bits_in_place_of_nats_with_inf",
                loss_of_probability(lambda p: -p.log2()),
                "The loss is in bits: the logarithm has base 2. The natural one, `log`, gives nats. And "
                f"{WITH_INF}",
            ),
            Mistake(
                "sum_in_place_of_mean",
                lambda logits, targets: cross_entropy_loss(logits, targets) * targets.numel(),
                "This is the sum over all positions. It grows with the batch, and could not be compared with "
                "ln V. Take the mean.",
            ),
            Mistake(
                "sum_in_place_of_mean_with_inf",
                lambda logits, targets: (
                    loss_of_probability(lambda p: -p.log())(logits, targets) * targets.numel()
                ),
                f"This is the sum over all positions. Take the mean. And {WITH_INF}",
            ),
            Mistake(
                "sum_over_time",
                lambda logits, targets: cross_entropy_loss(logits, targets) * targets.shape[1],
                "The losses of one text were added up, and the mean was taken over the texts only. Take it "
                "over all B * T positions.",
            ),
            Mistake(
                "mean_over_the_vocabulary",
                lambda logits, targets: cross_entropy_loss(logits, targets) / logits.shape[-1],
                "Your mean divides by B * T * V. Of the V log-probabilities of a position only the target's "
                "counts; the zeros beside it are not part of the mean. Divide by B * T.",
            ),
            Mistake(
                "no_minus",
                lambda logits, targets: -cross_entropy_loss(logits, targets),
                "The sign is missing. The logarithm of a probability is below 0; a loss is minus that.",
            ),
            Mistake(
                "no_minus_with_inf",
                loss_of_probability(torch.log),
                f"The sign is missing: a loss is minus the logarithm of a probability. And {WITH_INF}",
            ),
            Mistake(
                "one_minus_the_probability",
                loss_of_probability(lambda p: 1 - p),
                "This is 1 minus the probability, at most 1. Minus its logarithm is wanted: a target that "
                "was thought impossible should cost more than one that was thought unlikely.",
            ),
            Mistake(
                "minus_the_probability",
                loss_of_probability(lambda p: -p),
                "This is minus the probability. Its logarithm is missing.",
            ),
            Mistake(
                "mean_before_the_log",
                lambda logits, targets: -log_softmax_of_targets(logits, targets).exp().mean().log(),
                "The mean of the probabilities was taken first, and then its logarithm. Each position has a "
                "loss of its own: first minus the log, then the mean.",
            ),
            Mistake(
                "perplexity",
                lambda logits, targets: cross_entropy_loss(logits, targets).exp(),
                "This is exp of the loss, the perplexity: among so many tokens the model seems to waver. The "
                "loss itself is wanted.",
            ),
            Mistake(
                "share_of_right_guesses",
                share_of_right_guesses,
                "This counts how often the largest logit is the target's. It moves in jumps, and has no "
                "slope that training could follow. Take minus the log of the target's probability.",
            ),
            Mistake(
                "every_target_at_every_position",
                lambda logits, targets: -torch.log_softmax(logits, dim=-1)[..., targets].mean(),
                "`[..., targets]` looks up all B * T targets at each of the B * T positions. Each position "
                "has one target: `gather(-1, targets[..., None])` takes one number of each row.",
            ),
            Mistake(
                "targets_ignored",
                lambda logits, targets: -torch.log_softmax(logits, dim=-1).mean(),
                "This is the mean over all V tokens, and the targets are not used. Of each row take the "
                "target's log-probability: `gather(-1, targets[..., None])`.",
            ),
            Mistake(
                "shifted_once_more",
                lambda logits, targets: -log_softmax_of_targets(logits[:, :-1], targets[:, 1:]).mean(),
                "You moved the targets by one step. They are shifted already: logits[b, t] belongs to "
                "targets[b, t].",
            ),
            Mistake(
                "view_in_place_of_transpose",
                lambda logits, targets: F.cross_entropy(
                    logits.reshape(len(logits), logits.shape[-1], -1), targets
                ),
                "`F.cross_entropy` wants the classes in dimension 1, and your `view` to (B, V, T) gives that "
                "shape by cutting the numbers anew: positions and tokens are mixed. Use "
                "`logits.transpose(1, 2)`, or flatten to (B * T, V).",
            ),
            Mistake(
                "classes_along_time",
                lambda logits, targets: F.cross_entropy(logits, targets),
                "`F.cross_entropy` takes dimension 1 for the classes. Here that is time, and it runs only "
                "where T equals V. Flatten both: logits to (B * T, V), targets to (B * T,).",
            ),
            Mistake(
                "no_max_subtraction",
                loss_of_probability(lambda p: -p.log(), exp_by_sum),
                "It is right for small logits. exp(1000) is inf, and inf / inf is NaN; exp(-1000) is 0, and "
                "its log is -inf. Subtract the largest logit of each row first, and take the log of the sum, "
                "not of a probability: ln p = logit - ln(sum of exps).",
            ),
            Mistake(
                "log_sum_without_maximum",
                log_sum_without_maximum,
                "It is right for small logits, but exp(1000) is inf. Subtract the largest logit of each row "
                "first. That changes no probability, and exp never sees a number above 0.",
            ),
            Mistake(
                "log_of_zero",
                loss_of_probability(lambda p: -p.log()),
                f"It is right for small logits. But {WITH_INF}",
            ),
            Mistake(
                "one_loss_for_each_position",
                lambda logits, targets: -log_softmax_of_targets(logits, targets),
                "There is a loss for each position, shape (B, T). Take the mean of them all: training needs "
                "one number.",
            ),
            Mistake(
                "only_the_last_position",
                lambda logits, targets: -log_softmax_of_targets(logits, targets)[:, -1].mean(),
                "Only the last position of each text counts. A text gives T predictions, and each has a "
                "target: take the mean over all B * T positions.",
            ),
            Mistake(
                "one_maximum_for_each_text",
                lambda logits, targets: log_sum_without_maximum(
                    logits - logits.amax(dim=(1, 2), keepdim=True), targets
                ),
                "You subtract one maximum for a whole text. Where one position has logits near 1000, those "
                "of the others become -1000: all their exps are 0, and the log of the sum is -inf. Each "
                "position needs its own maximum: dim=-1.",
            ),
        ),
        hints=(
            "For one position: the probability of token v is exp(logits[v]) / sum of all exps. What is "
            "its logarithm, without a fraction?",
            "ln p = logit - ln(sum of exps). Subtract the largest logit of each row before anything else: "
            "`logits - logits.amax(dim=-1, keepdim=True)`.",
            "`logits.gather(-1, targets[..., None])[..., 0]` takes the target's logit at each position, "
            "shape (B, T). Subtract it from the log of the sum, also (B, T), and take the mean.",
        ),
        insight="`F.cross_entropy(logits.flatten(0, 1), targets.flatten())` gives the same. It too works "
        "with logits and never with probabilities.",
        minutes=10,
        difficulty=3,
        tolerance=1e-3,
    ),
    Exercise(
        name="embed",
        task="Take `ids` of shape (B, T), a table `wte` of shape (V, C) with a row for each token, and a "
        "table `wpe` of shape (block_size, C) with a row for each position. T is at most block_size. "
        "Return for each token the sum of its own row and the row of its position: shape (B, T, C).",
        reference=embed,
        draw_inputs=draw_tables,
        properties=(
            Property(
                "With zeros in wpe, the rows of the tokens come out.",
                lambda f, ids, wte, wpe: close(wte[ids], f(ids, wte, 0 * wpe)),
            ),
            Property("One token at all positions differs as the positions do.", a_token_repeated),
            Property(
                "A text alone gives what it gives in a batch.",
                lambda f, ids, wte, wpe: close(f(ids[:1], wte, wpe), f(ids, wte, wpe)[:1]),
            ),
            Property(
                "Rows of wpe beyond T do not matter.",
                lambda f, ids, wte, wpe: close(f(ids, wte, wpe), f(ids, wte, wpe[: ids.shape[1]])),
            ),
            trained_through(embed),
        ),
        mistakes=(
            Mistake(
                "no_position",
                lambda ids, wte, wpe: wte[ids],
                "The position is missing: a token has the same row wherever it stands. To a head, the past "
                "would be a bag without an order. Add the first T rows of `wpe`.",
            ),
            Mistake(
                "no_token",
                lambda ids, wte, wpe: wpe[: ids.shape[1]].expand(*ids.shape, -1),
                "Only the positions are there, and all texts look alike. Add the rows of the tokens, "
                "`wte[ids]`.",
            ),
            Mistake(
                "position_of_the_token",
                embed_with(rows=lambda wpe, ids: wpe[ids]),
                "`wpe` was asked with the tokens, so a token again has the same row wherever it stands. It "
                "wants positions: 0, 1, 2, ... up to T - 1.",
            ),
            Mistake(
                "positions_from_1", embed_with(rows=lambda wpe, ids: wpe[1 : ids.shape[1] + 1]), FROM_ONE
            ),
            Mistake(
                "positions_from_1_by_index",
                embed_with(rows=lambda wpe, ids: wpe[torch.arange(1, ids.shape[1] + 1)]),
                FROM_ONE,
            ),
            Mistake(
                "positions_from_the_end",
                embed_with(rows=lambda wpe, ids: wpe[-ids.shape[1] :]),
                "You took the last T rows of `wpe`, so a short text begins somewhere in the middle. The "
                "first token stands at position 0.",
            ),
            Mistake(
                "position_of_the_text",
                embed_with(rows=lambda wpe, ids: wpe[: len(ids), None]),
                "The position counts the texts of the batch. All tokens of a text got one row. Count along "
                "time, dimension 1 of `ids`.",
            ),
            Mistake(
                "counts_the_texts",
                embed_with(rows=lambda wpe, ids: wpe[: len(ids)]),
                "`len(ids)` and `ids.shape[0]` are B, the number of texts. There is a position for each "
                "token: T is `ids.shape[1]`.",
            ),
            Mistake(
                "one_position_for_all",
                embed_with(rows=lambda wpe, ids: wpe[ids.shape[1] - 1]),
                "All tokens got the row of the last position. `wpe[T - 1]` is one row; the rows of all "
                "positions are `wpe[:T]`.",
            ),
            Mistake(
                "whole_table",
                embed_with(rows=lambda wpe, ids: wpe),
                "All block_size rows of `wpe` were added. That runs only for texts of that length, or of one "
                "token. A text of T tokens needs the first T rows.",
            ),
            Mistake(
                "concatenated",
                embed_with(add=beside),
                "Token and position stand side by side, in 2C channels. They are added: C channels.",
            ),
            Mistake(
                "multiplied",
                embed_with(add=torch.mul),
                "Token and position are multiplied. They are added.",
            ),
            Mistake(
                "averaged",
                embed_with(add=lambda tokens, positions: (tokens + positions) / 2),
                "This is the mean of token and position. Their sum is asked for.",
            ),
            Mistake(
                "number_of_the_position",
                embed_with(rows=lambda wpe, ids: torch.arange(ids.shape[1])[:, None]),
                "The number of the position was added to every channel. `wpe` holds a row for it, with C "
                "numbers that training can choose.",
            ),
            Mistake(
                "tokens_scaled",
                lambda ids, wte, wpe: wte[ids] * wte.shape[1] ** 0.5 + wpe[: ids.shape[1]],
                "The rows of the tokens are multiplied by sqrt(C). The paper of 2017 does that, and a GPT "
                "does not: the sum of the two rows is asked for, as they are.",
            ),
            Mistake(
                "positions_run_on",
                embed_with(rows=lambda wpe, ids: wpe[torch.arange(ids.numel()).view_as(ids) % len(wpe)]),
                "The positions run on from one text to the next. Each text of the batch begins anew, at "
                "position 0.",
            ),
        ),
        hints=(
            "What shape has `wte[ids]`? And which rows of `wpe` does a text of T tokens need?",
            "`wte[ids]` has shape (B, T, C): indexing a table with ids gives a row for each of them. The "
            "positions 0 to T - 1 need the rows `wpe[:T]`, shape (T, C).",
            "`wte[ids] + wpe[:T]`: broadcasting adds the same positions to every text.",
        ),
        insight="`wpe` has block_size rows, and that is why a GPT of this kind cannot read a longer text.",
        minutes=4,
        difficulty=1,
    ),
    Exercise(
        name="pre_norm_block",
        task="`attn` (causal attention), `mlp`, `ln_1` and `ln_2` are functions that turn (B, T, C) into "
        "(B, T, C). Take tokens `x` and return what a block makes of them: add what attention finds, then "
        "add what the MLP finds. Before attention stands `ln_1`, before the MLP `ln_2`, and on the way "
        "that leads past them nothing.",
        reference=pre_norm_block,
        draw_inputs=draw_parts,
        properties=(
            Property(
                "If attention and MLP find nothing, x comes out as it was.",
                lambda f, x, attn, mlp, ln_1, ln_2: close(x, f(x, silent, silent, ln_1, ln_2)),
            ),
            Property(
                "Parts that hand back what they get make y + ln_2(y) of y = x + ln_1(x).",
                parts_that_hand_back,
            ),
            Property(
                "If attention finds nothing, an MLP that hands back what it gets makes x + ln_2(x).",
                lambda f, x, attn, mlp, ln_1, ln_2: close(x + ln_2(x), f(x, silent, hand_back, ln_1, ln_2)),
            ),
            not_detached(gradients_reach_all_parts),
        ),
        mistakes=(
            Mistake(
                "no_residual",
                lambda x, attn, mlp, ln_1, ln_2: mlp(ln_2(attn(ln_1(x)))),
                "Nothing is added: each result takes the place of what went in, and the token itself is "
                "lost. Each step is a sum, `x + ...`.",
            ),
            Mistake(
                "no_first_residual",
                second_step(right_second, lambda x, attn, mlp, ln_1, ln_2: attn(ln_1(x))),
                "After attention the token itself is gone. That step too is a sum: `x + attn(ln_1(x))`.",
            ),
            Mistake(
                "no_second_residual",
                second_step(lambda y, attn, mlp, ln_1, ln_2: mlp(ln_2(y))),
                "The MLP's result takes the place of what went in. That step too is a sum: "
                "`x + mlp(ln_2(x))`.",
            ),
            Mistake(
                "post_norm",
                post_norm,
                "The norms stand after the sums. That is the block of 2017: what is handed on is squeezed "
                "twice a block. Here a norm stands before its part: `x + attn(ln_1(x))`.",
            ),
            Mistake(
                "norm_of_the_result",
                lambda x, attn, mlp, ln_1, ln_2: (y := x + ln_1(attn(x))) + ln_2(mlp(y)),
                "The norms stand after attention and after the MLP. They belong before: "
                "`attn(ln_1(x))`, not `ln_1(attn(x))`.",
            ),
            Mistake(
                "norm_on_the_residual_path",
                norms_on_the_path,
                "`x = ln_1(x)` also changes the x that is added. The norm is for the part alone: what goes "
                "past it stays as it is. Write `x + attn(ln_1(x))`.",
            ),
            Mistake(
                "parallel",
                lambda x, attn, mlp, ln_1, ln_2: x + attn(ln_1(x)) + mlp(ln_2(x)),
                "Attention and MLP both start from the same x. The MLP should see what attention found: add "
                "that first, and give the sum to `ln_2`. (Some large models do it your way, to save time.)",
            ),
            Mistake(
                "second_sum_starts_from_x",
                lambda x, attn, mlp, ln_1, ln_2: x + mlp(ln_2(x + attn(ln_1(x)))),
                "What attention found reaches the MLP, but is missing in the second sum. Both sums are on "
                "one path: add to the result of the first.",
            ),
            Mistake(
                "x_added_twice",
                lambda x, attn, mlp, ln_1, ln_2: x + right_second(x + attn(ln_1(x)), attn, mlp, ln_1, ln_2),
                "x is added twice. It is already in the first sum, and the second adds the MLP's result to "
                "that.",
            ),
            Mistake(
                "norms_swapped",
                lambda x, attn, mlp, ln_1, ln_2: pre_norm_block(x, attn, mlp, ln_2, ln_1),
                "The two norms have changed places. Each has parameters of its own: `ln_1` stands before "
                "attention, `ln_2` before the MLP.",
            ),
            Mistake(
                "one_norm_for_both",
                lambda x, attn, mlp, ln_1, ln_2: pre_norm_block(x, attn, mlp, ln_1, ln_1),
                "`ln_1` is used twice. Each norm has parameters of its own: `ln_2` stands before the MLP.",
            ),
            Mistake(
                "mlp_first",
                lambda x, attn, mlp, ln_1, ln_2: pre_norm_block(x, mlp, attn, ln_1, ln_2),
                "The MLP comes first, and `ln_1` before it. Tokens look at each other first, and then each "
                "thinks about what it found.",
            ),
            Mistake(
                "mlp_first_with_its_norm",
                lambda x, attn, mlp, ln_1, ln_2: pre_norm_block(x, mlp, attn, ln_2, ln_1),
                "The MLP comes first. Tokens look at each other first, and then each thinks about what it "
                "found.",
            ),
            Mistake(
                "no_norm",
                lambda x, attn, mlp, ln_1, ln_2: pre_norm_block(x, attn, mlp, hand_back, hand_back),
                "There is no norm. Sums grow from block to block, and scores with them; attention and MLP "
                "should see tokens of one size: `ln_1(x)` and `ln_2(x)`.",
            ),
            Mistake(
                "no_first_norm",
                lambda x, attn, mlp, ln_1, ln_2: pre_norm_block(x, attn, mlp, hand_back, ln_2),
                "Attention sees x as it is. Before it stands `ln_1`.",
            ),
            Mistake(
                "no_second_norm",
                lambda x, attn, mlp, ln_1, ln_2: pre_norm_block(x, attn, mlp, ln_1, hand_back),
                "The MLP sees the sum as it is. Before it stands `ln_2`.",
            ),
            Mistake(
                "attention_alone",
                lambda x, attn, mlp, ln_1, ln_2: x + attn(ln_1(x)),
                "The second step is missing: `x + mlp(ln_2(x))`, with the result of the first as its x.",
            ),
            Mistake(
                "one_residual_around_both",
                lambda x, attn, mlp, ln_1, ln_2: x + mlp(ln_2(attn(ln_1(x)))),
                "There is one sum, around both parts. Each part has its own: add what attention finds before "
                "the MLP gets to see it, and then add what the MLP makes of that.",
            ),
            Mistake(
                "mlp_sees_what_was_found_alone",
                lambda x, attn, mlp, ln_1, ln_2: x + (found := attn(ln_1(x))) + mlp(ln_2(found)),
                "The MLP sees what attention found, without the token itself. It works on the sum of both: "
                "`ln_2` gets what came out of the first step.",
            ),
        ),
        hints=(
            "Draw a straight line from x to the output, and the two parts beside it. Where does each branch "
            "off, and where does its result come back?",
            "Both steps have one form: `x = x + part(norm(x))`.",
            "`x = x + attn(ln_1(x))`, then the same with `mlp` and `ln_2`.",
        ),
        insight="On the straight line from x to the output there is nothing but sums, so a gradient comes "
        "back along it unchanged, through any number of blocks. The sum at the end was never normalised, "
        "and a GPT does that last: `ln_f`.",
        minutes=6,
        difficulty=2,
        tolerance=1e-4,
    ),
    Exercise(
        name="generate",
        task="`model(ids)` turns ids (T,) into logits (T, V), and may be shown the last block_size tokens. "
        "Append one token for each number in `draws`, and return the whole text. So that answers can be "
        "compared, chance is given: each draw lies between 0 and 1, and the token drawn is the first at "
        "which the running sum of the probabilities is above the draw. `torch.searchsorted(sums, draw, "
        "right=True)` finds it.",
        reference=generate,
        draw_inputs=draw_models,
        properties=(
            Property(
                "The text begins with the ids that were given.",
                lambda f, model, ids, block_size, draws: torch.equal(
                    ids, f(model, ids, block_size, draws)[: len(ids)]
                ),
            ),
            Property("Each draw adds a token, and writing in two parts gives the same.", in_two_parts),
            Property(
                "A draw of 0 takes token 0.",
                lambda f, model, ids, block_size, draws: (
                    not f(model, ids, block_size, 0 * draws)[len(ids) :].any()
                ),
            ),
            Property(
                "What stands before the last block_size tokens has no say.", the_far_past_does_not_matter
            ),
        ),
        mistakes=(
            Mistake(
                "no_crop",
                write_with(crop=lambda ids, block_size: ids),
                "The model is shown the whole text. It has learned with block_size tokens and has no "
                "position beyond them: some models raise an error there, others write nonsense. Show it "
                "`ids[-block_size:]`.",
            ),
            Mistake(
                "crops_to_the_first_tokens",
                write_with(crop=lambda ids, block_size: ids[:block_size]),
                "The model is shown the first block_size tokens. As soon as the text is longer, it no longer "
                "sees what it wrote. The last ones are `ids[-block_size:]`.",
            ),
            Mistake(
                "crops_one_short",
                write_with(crop=lambda ids, block_size: ids[-block_size + 1 :]),
                "The model is shown one token less than it could see. The last block_size tokens are "
                "`ids[-block_size:]`.",
            ),
            Mistake(
                "crops_one_too_long",
                write_with(crop=lambda ids, block_size: ids[-block_size - 1 :]),
                "The model is shown one token more than it may see. The last block_size tokens are "
                "`ids[-block_size:]`.",
            ),
            Mistake(
                "crops_once",
                cropped_once,
                "The text is cropped before the loop only, and grows in it. Crop each time: block_size "
                "tokens and a new one are one too many.",
            ),
            Mistake(
                "shows_the_last_token_only",
                write_with(crop=lambda ids, block_size: ids[-1:]),
                "The model is shown the last token alone. That is all that a bigram table needs; a GPT "
                "reads up to block_size tokens: `ids[-block_size:]`.",
            ),
            Mistake(
                "crops_the_text",
                write_with(keep=lambda ids, block_size: ids[-block_size:]),
                "The text that you return has lost its beginning. Crop what the model is shown, under "
                "another name, and append to the whole text.",
            ),
            Mistake(
                "argmax_for_sampling",
                write_with(pick=lambda logits, draw: logits.argmax()),
                "You take the best token each time, and the draws are not used. Such a text soon goes round "
                "in circles. Draw: the first token whose running sum of probabilities is above the draw.",
            ),
            Mistake(
                "logits_of_the_first_position",
                write_with(last=lambda logits: logits[0]),
                "You draw from the logits of position 0. They say what follows the first token. What follows "
                "the last one stands in the last row, `[-1]`.",
            ),
            Mistake(
                "no_softmax",
                write_with(pick=lambda logits, draw: (logits.cumsum(-1) <= draw).sum()),
                "What you add up are no probabilities: their sum does not end at 1. Softmax comes first, "
                "then `cumsum`.",
            ),
            Mistake(
                "softmax_over_time",
                lambda model, ids, block_size, draws: write_with(
                    pick=lambda p, draw: (p.cumsum(-1) <= draw).sum()
                )(lambda window: torch.softmax(model(window), dim=0), ids, block_size, draws),
                "Softmax ran along dim=0, which is time in (T, V). The V tokens of one position share out a "
                "total of 1: dim=-1.",
            ),
            Mistake(
                "sum_from_the_other_end",
                write_with(pick=lambda logits, draw: (torch.softmax(logits, -1).cumsum(-1) > draw).sum()),
                "You count the running sums that are above the draw. The token is the first of these, so its "
                "number is the count of those that are not above: `<=`.",
            ),
            Mistake(
                "one_draw_for_all",
                write_with(numbers=lambda draws: [draws[0]] * len(draws)),
                "Every token is drawn with the first number in `draws`. Each has a number of its own.",
            ),
            Mistake(
                "never_fed_back",
                never_fed_back,
                "All tokens are drawn from one prediction. What was drawn has to be read before the next "
                "token is predicted: call the model in the loop, with the text as it is by then.",
            ),
            Mistake(
                "last_step_not_taken",
                write_with(numbers=lambda draws: draws[:-1]),
                "The last token is missing: there is one for each number in `draws`. Does the loop end one "
                "step early, or does it return before it appends?",
            ),
            Mistake(
                "returns_only_the_new_tokens",
                write_with(result=lambda ids, T: ids[T:]),
                "These are the new tokens alone. Return the text with them at its end.",
            ),
            Mistake(
                "first_sum_that_reaches_the_draw",
                write_with(
                    pick=lambda logits, draw: torch.searchsorted(torch.softmax(logits, -1).cumsum(-1), draw)
                ),
                "Where the draw equals a running sum, you take the token at which it is reached. The token "
                "wanted is the first whose sum is above the draw: `searchsorted` needs right=True.",
            ),
            Mistake(
                "first_probability_above_the_draw",
                write_with(pick=lambda logits, draw: (torch.softmax(logits, -1) > draw).int().argmax()),
                "You compare the draw with each probability alone. Compare it with their running sum, "
                "`cumsum`: then each token gets a part of the way from 0 to 1 as wide as its probability.",
            ),
            Mistake(
                "sorted_probabilities",
                write_with(
                    pick=lambda logits, draw: logits.argsort(descending=True)[
                        first_sum_above(logits.sort(descending=True).values, draw)
                    ]
                ),
                "The probabilities were sorted before they were added up. Every token keeps its chance in "
                "that way, but other draws lead to it. The order wanted is that of the vocabulary.",
            ),
        ),
        hints=(
            "One round of the loop has four steps: show the model the end of the text, take the logits of "
            "the last position, draw a token, append it.",
            "`model(ids[-block_size:])[-1]` has shape (V,). Softmax makes probabilities of it, and "
            "`.cumsum(dim=-1)` their running sums: with probabilities ½, ¼, ¼ they are ½, ¾, 1, and a draw "
            "of 0.6 takes token 1.",
            "`token = torch.searchsorted(sums, draw, right=True)` has no dimension. `token[None]` has shape "
            "(1,), and `ids = torch.cat([ids, token[None]])` appends it.",
        ),
        insight="With `draws = torch.rand(n)` each token comes as often as its probability says, as with "
        "`torch.multinomial`. The course's `generate` draws with that.",
        minutes=12,
        difficulty=3,
    ),
)
