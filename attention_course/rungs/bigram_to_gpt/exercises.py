"""A batch with its targets, the loss, embeddings, a block, and the sampling loop."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from attention_course.attention import attention, causal_mask
from attention_course.exercises.comparing import close, differentiable
from attention_course.exercises.exercise import Property, exercise


def get_batch(ids: Int[Tensor, " N"], block_size: int, starts: Int[Tensor, " B"]) -> Int[Tensor, "2 B T"]:
    """Cut blocks out of a text, with the next token as the target at each position.

    Args:
        ids: the text, shape (N,).
        block_size: T, the length of a block.
        starts: the start of each block, shape (B,), from 0 to N - T - 1.

    Returns:
        Inputs and targets, shape (2, B, T).
    """
    positions = starts[:, None] + torch.arange(block_size)  # (B, T)
    inputs, targets = ids[positions], ids[positions + 1]
    return torch.stack([inputs, targets])


def cross_entropy_loss(logits: Float[Tensor, "B T V"], targets: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
    """Return the mean cross-entropy: minus the log of the probability of the target, averaged.

    Args:
        logits: shape (B, T, V).
        targets: the true tokens, shape (B, T), from 0 to V - 1.

    Returns:
        A scalar, in nats.
    """
    logits = logits - logits.amax(dim=-1, keepdim=True)  # the largest is 0: exp cannot overflow
    log_probs = logits - logits.exp().sum(dim=-1, keepdim=True).log()  # (B, T, V)
    of_targets = log_probs.gather(-1, targets[..., None])
    return -of_targets.mean()


def embed(
    ids: Int[Tensor, "B T"], wte: Float[Tensor, "V C"], wpe: Float[Tensor, "block_size C"]
) -> Float[Tensor, "B T C"]:
    """Add the embedding of each token and the embedding of its position.

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
    """Apply a pre-norm block: attention, then the MLP, each with a residual connection.

    Args:
        x: tokens, shape (B, T, C).
        attn: causal attention. This and the following map (B, T, C) to (B, T, C).
        mlp: the feed-forward network.
        ln_1: the LayerNorm before attention.
        ln_2: the LayerNorm before the MLP.

    Returns:
        Shape (B, T, C).
    """
    y = x + attn(ln_1(x))
    return y + mlp(ln_2(y))


def generate(
    model: Callable, ids: Int[Tensor, " T"], block_size: int, draws: Float[Tensor, " n"]
) -> Int[Tensor, " T_new"]:
    """Sample autoregressively: one token for each number in `draws`.

    Args:
        model: maps ids (T,) to logits (T, V).
        ids: the prompt, shape (T,), at least one token.
        block_size: the most tokens that the model takes.
        draws: uniform numbers in [0, 1), shape (n,).

    Returns:
        The prompt and the sampled tokens, shape (T + n,).
    """
    for draw in draws:
        logits = model(ids[-block_size:])[-1]  # (V,): what follows the last token
        sums = torch.softmax(logits, dim=-1).cumsum(dim=-1)
        token = torch.searchsorted(sums, draw, right=True)  # the first sum above the draw
        ids = torch.cat([ids, token[None]])
    return ids


# Inputs


def draw_texts(generator: torch.Generator) -> list[tuple]:
    """Draw texts and starts: B = 1, T = 1, a block that fills its text, first and last start, B == T, T = 70.

    One start occurs twice. The ids of the last text are above 255.
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
        (90, 70, starts(0, 19, 2)),
        (60, 7, starts(0, 52, 3)),
    ]
    texts = [(torch.randperm(90, generator=generator)[:N], T, starts) for N, T, starts in drawn]
    ids, T, last = texts[-1]
    return [*texts[:-1], (ids + 300, T, last)]


def draw_logits(generator: torch.Generator) -> list[tuple]:
    """Draw logits and targets: T = 1, T == V, all sizes different, equal logits, logits near 1000.

    In the last but one, the targets' logits are 1000 below the others. In the last, the first position of
    each sequence has logits near 1000, and the others near 0.
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
    """Draw ids and two tables: T = 1, B == T, all sizes different, T = 70.

    `wpe` has enough rows to be indexed by tokens, sequences or ids: a mix-up gives wrong numbers, not an
    error. It has more than T rows; exactly T rows are tested by a property.
    """

    def draw(V, block_size, B, T, C):
        tables = [torch.randint(-9, 10, (rows, C), generator=generator).float() for rows in (V, block_size)]
        return torch.randint(V, (B, T), generator=generator), *tables

    sizes = [
        (3, 4, 1, 2, 2),
        (3, 4, 1, 1, 2),
        (3, 7, 2, 3, 2),
        (5, 6, 2, 2, 3),
        (6, 13, 3, 4, 2),
        (3, 80, 1, 70, 2),
    ]
    return [draw(*each) for each in (*sizes, (7, 11, 2, 5, 4))]


@dataclass(frozen=True, eq=False)
class Part:
    """A part of a block: a function of tokens (B, T, C), or (T, C) under `torch.vmap`, with a name."""

    name: str
    function: Callable[[Tensor], Tensor]

    def __call__(self, x: Tensor) -> Tensor:
        """Map tokens to an output of the same shape."""
        return self.function(x)

    def __repr__(self) -> str:
        return self.name


def draw_parts(generator: torch.Generator) -> list[tuple]:
    """Draw tokens and the four parts of a block: one token, T == C, all sizes different, larger values."""

    def randn(*shape):
        return torch.randn(shape, generator=generator)

    def draw(B, T, C, scale):
        W_query, W_key, W_value, W_in, W_out = (randn(C, width) for width in (C, C, C, 4 * C, 4 * C))

        def attn(x):
            return attention(x @ W_query, x @ W_key, x @ W_value, causal_mask(x.shape[-2]))[0]

        def layer_norm(weight, bias):
            return Part("a LayerNorm", lambda x: F.layer_norm(x, (C,), weight, bias))

        return (
            scale * randn(B, T, C),
            Part("causal attention", attn),
            Part("an MLP", lambda x: torch.relu(x @ W_in) @ W_out.T),
            *(layer_norm(randn(C), randn(C)) for _ in range(2)),
        )

    sizes = [(1, 1, 2, 1), (1, 2, 2, 1), (1, 3, 2, 1), (2, 3, 3, 1), (2, 4, 3, 5), (3, 2, 5, 1)]
    return [draw(*each) for each in (*sizes, (2, 5, 4, 10))]


SIXTEENTHS = 16  # probabilities are multiples of 1/16 and no draw lies near one: rounding cannot matter


@lru_cache
def rows_of_logits(vocab_size: int, seed: int) -> Tensor:
    """Draw 97 rows of positive logits whose probabilities are multiples of 1/16: shape (97, V).

    For V = 2 both probabilities are 1/2, exact under any rounding.
    """
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for _ in range(97):
        cuts = torch.randperm(SIXTEENTHS - 1, generator=generator)[: vocab_size - 1].sort().values + 1
        ends = [0, *(cuts.tolist() if vocab_size > 2 else [SIXTEENTHS // 2]), SIXTEENTHS]
        rows.append(torch.tensor(ends).diff().log() + 0.05)
    return torch.stack(rows)


@dataclass(frozen=True)
class HashModel:
    """A language model whose logits depend on all tokens of the input, and on their order.

    Attributes:
        vocab_size: number of different tokens.
        positions: the longest input it takes; None: any length.
        seed: of its logits, a third of which are so large that exp overflows.
    """

    vocab_size: int
    positions: int | None
    seed: int

    def __call__(self, ids: Tensor) -> Tensor:
        """Map ids (T,) to logits (T, vocab_size).

        Raises:
            IndexError: an id is not in the vocabulary.
            ValueError: `ids` has another shape, or more tokens than positions.
        """
        if ids.dim() != 1 or not len(ids):
            raise ValueError(
                f"model: ids has shape {tuple(ids.shape)}, expected (T,) with at least one token."
            )
        if self.positions is not None and len(ids) > self.positions:
            raise ValueError(
                f"model: {len(ids)} tokens, but there is no position {self.positions}. It takes at most "
                f"block_size = {self.positions} tokens. Pass the last ones."
            )
        states, state = [], self.seed
        for token in ids.tolist():
            if token not in range(self.vocab_size):
                raise IndexError(f"model: there is no token {token}, only 0 to {self.vocab_size - 1}.")
            state = (31 * state + token + 1) % 97
            states.append(state)
        return rows_of_logits(self.vocab_size, self.seed)[states] + (0, 100, -2)[self.seed % 3]

    def __repr__(self) -> str:
        return f"a model of {self.vocab_size} tokens"


def draw_models(generator: torch.Generator) -> list[tuple]:
    """Draw a model, ids, block_size and draws: prompts that fit a block, exceed it, or outgrow it.

    Some models raise an error beyond block_size, as a GPT does; others give other logits. In one, the draw
    equals a cumulative sum. In the last but one, three tokens for a block of five continue differently if
    tokens are left out or added. In the last, draws lie 1/500 beside a sum: other probabilities show.
    """

    def draw(V, block_size, T, n, strict):
        model = HashModel(V, block_size if strict else None, int(torch.randint(97, (), generator=generator)))
        ids = torch.randint(V, (T,), generator=generator)
        return model, ids, block_size, (torch.randint(16, (n,), generator=generator) + 0.5) / SIXTEENTHS

    def is_told_apart(model, ids, block_size, draws):
        shown = (ids, ids[-2:], ids[-1:], F.pad(ids, (2, 0)), F.pad(ids, (0, 2)))
        first, *others = (int(generate(model, each, block_size, draws[:1])[-1]) for each in shown)
        return first not in others

    tied = HashModel(2, 3, 0), torch.randint(2, (2,), generator=generator), 3, torch.tensor([0.5, 0.25, 0.5])
    sizes = [(4, 3, 2, 4, False), (4, 3, 3, 5, True), (5, 1, 2, 4, False), (6, 4, 7, 6, True)]
    drawn = [draw(3, 2, 3, 2, False), draw(3, 4, 1, 1, True), tied, *(draw(*each) for each in sizes)]
    short = next(one for _ in count() if is_told_apart(*(one := draw(8, 5, 3, 4, True))))
    model, ids, block_size, _ = draw(12, 4, 3, 1, False)
    beside = torch.randint(1, 16, (24,), generator=generator) / SIXTEENTHS + torch.tensor([-1, 1] * 12) / 500
    return [*drawn, draw(7, 5, 8, 9, False), short, (model, ids, block_size, beside)]


# Properties


def counting_text(get_batch, ids, block_size, starts):
    """Cut the text 0, 1, 2, ...: inputs begin at their start, and targets are one higher."""
    inputs, targets = get_batch(torch.arange(len(ids)), block_size, starts)
    return torch.equal(inputs[:, 0], starts) and torch.equal(inputs + 1, targets)


def targets_are_inputs(get_batch, ids, block_size, starts):
    """Compare the targets with the inputs shifted by one position."""
    inputs, targets = get_batch(ids, block_size, starts)
    return torch.equal(inputs[:, 1:], targets[:, :-1])


def block_alone(get_batch, ids, block_size, starts):
    """Compare the first block of a batch with the same block alone."""
    alone = get_batch(ids, block_size, starts[:1])
    return torch.equal(get_batch(ids, block_size, starts)[:, :1], alone)


def equal_logits_cost_ln_v(loss, logits, targets):
    """Compute the loss of equal logits."""
    return close(torch.tensor(logits.shape[-1]).log(), loss(torch.full_like(logits, 3.0), targets))


def far_below_costs_its_distance(loss, logits, targets):
    """Set the target's logit 1000 below all others, which are equal."""
    V = logits.shape[-1]
    far = torch.zeros_like(logits).scatter(-1, targets[..., None], -1000.0)
    return close(1000 + torch.tensor(V - 1).log(), loss(far, targets))


def a_token_repeated(embed, ids, wte, wpe):
    """Repeat one token: outputs differ only by the rows of wpe."""
    out = embed(torch.zeros_like(ids), wte, wpe)
    return close((wpe[: ids.shape[1]] - wpe[0]).expand_as(out), out - out[:, :1])


def identity_parts(block, x, attn, mlp, ln_1, ln_2):
    """Replace attention and MLP by the identity."""
    y = x + ln_1(x)
    return close(y + ln_2(y), block(x, torch.clone, torch.clone, ln_1, ln_2))


def with_scales(block):
    """Return the block as a function of x and a factor for the output of each part."""

    def scaled(x, *given):
        parts, scales = given[:4], given[4:]
        return block(x, *[lambda t, p=p, s=s: s * p(t) for p, s in zip(parts, scales, strict=True)])

    return scaled


def gradients_are_those_of_the_reference(block, *arguments):
    """Compare gradients of x, and of factors for the outputs of all parts."""
    holds = differentiable(with_scales(pre_norm_block)).holds
    return holds(with_scales(block), *arguments, *torch.ones(4))


def in_two_parts(generate, model, ids, block_size, draws):
    """Sample one token, then the others."""
    whole = generate(model, ids, block_size, draws)
    begun = generate(model, ids, block_size, draws[:1])
    resumed = generate(model, begun, block_size, draws[1:])
    return len(whole) == len(ids) + len(draws) and torch.equal(whole, resumed)


def the_far_past_does_not_matter(generate, model, ids, block_size, draws):
    """Change the tokens before the last block_size ones."""
    past, block = ids[:-block_size], ids[-block_size:]
    other = torch.cat([(past + 1) % model.vocab_size, block])
    one, two = (generate(model, each, block_size, draws) for each in (ids, other))
    return torch.equal(one[len(ids) :], two[len(ids) :])


OF_A_BATCH = (
    Property(
        "The text 0, 1, 2, ... gives inputs that begin at their start, and targets one higher.", counting_text
    ),
    Property("Each target but the last is the next input.", targets_are_inputs),
    Property("A block gives the same result alone as in a batch.", block_alone),
    Property(
        "The result has the dtype of the text.",
        lambda f, ids, *given: all(f(ids.to(t), *given).dtype == t for t in (torch.int32, torch.int64)),
        "another_dtype",
    ),
)
OF_A_LOSS = (
    Property("If all logits are equal, the loss is ln V.", equal_logits_cost_ln_v),
    Property(
        "Adding 5 to all logits changes nothing.",
        lambda f, logits, targets: close(f(logits, targets), f(logits + 5, targets)),
    ),
    Property(
        "A target whose logit lies 1000 below the others costs 1000 + ln(V - 1).",
        far_below_costs_its_distance,
    ),
    differentiable(cross_entropy_loss),
)
OF_EMBEDDINGS = (
    Property(
        "With zeros in wpe, the output is the rows of the tokens.",
        lambda f, ids, wte, wpe: torch.equal(wte[ids] / 3, f(ids, wte / 3, 0 * wpe)),
    ),
    Property("If one token is repeated, the outputs differ only by the positions.", a_token_repeated),
    Property(
        "A text gives the same result alone as in a batch.",
        lambda f, ids, wte, wpe: close(f(ids[:1], wte, wpe), f(ids, wte, wpe)[:1]),
    ),
    Property(
        "Rows of wpe beyond T do not matter, and need not be there.",
        lambda f, ids, wte, wpe: close(f(ids, wte, wpe), f(ids, wte, wpe[: ids.shape[1]])),
    ),
    differentiable(embed),
)
OF_A_BLOCK = (
    Property(
        "If attention and MLP return zeros, the output is x.",
        lambda f, x, attn, mlp, *norms: close(x, f(x, torch.zeros_like, torch.zeros_like, *norms)),
    ),
    Property(
        "If both parts return their input, the output is y + ln_2(y) of y = x + ln_1(x).", identity_parts
    ),
    Property(
        "If attention returns zeros and the MLP its input, the output is x + ln_2(x).",
        lambda f, x, a, m, ln_1, ln_2: close(x + ln_2(x), f(x, torch.zeros_like, torch.clone, ln_1, ln_2)),
    ),
    replace(differentiable(pre_norm_block), holds=gradients_are_those_of_the_reference),
)
OF_A_TEXT = (
    Property(
        "The text begins with the ids that were given.",
        lambda f, model, ids, *rest: torch.equal(ids, f(model, ids, *rest)[: len(ids)]),
    ),
    Property("Each draw adds a token, and sampling in two parts gives the same.", in_two_parts),
    Property(
        "A draw of 0 takes token 0.",
        lambda f, model, ids, block_size, draws: not f(model, ids, block_size, 0 * draws)[len(ids) :].any(),
    ),
    Property("Tokens before the last block_size ones do not matter.", the_far_past_does_not_matter),
)

EXERCISES = (
    exercise(__name__, get_batch, draw_texts, OF_A_BATCH),
    exercise(__name__, cross_entropy_loss, draw_logits, OF_A_LOSS),
    exercise(__name__, embed, draw_tables, OF_EMBEDDINGS),
    exercise(__name__, pre_norm_block, draw_parts, OF_A_BLOCK),
    exercise(__name__, generate, draw_models, OF_A_TEXT),
)
