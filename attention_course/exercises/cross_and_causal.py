"""Rung 6: two masks, attention to another text, and a test that finds the model that sees the future."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from unittest.mock import patch

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from attention_course.attention import attention, causal_mask, padding_mask, prefix_mask, window_mask
from attention_course.exercises.engine import Exercise, Mistake, Property, close, trained_through
from attention_course.exercises.query_key_value import sees_nothing

INF = float("inf")


def cross_attention_forward(
    x: Float[Tensor, "*B T_q n_embd"],
    context: Float[Tensor, "*B T_k n_context"],
    W_query: Float[Tensor, "n_embd head_size"],
    W_key: Float[Tensor, "n_context head_size"],
    W_value: Float[Tensor, "n_context d_v"],
    mask: Bool[Tensor, "..."] | None,
) -> Float[Tensor, "*B T_q d_v"]:
    """Let each token of one text look at the tokens of another.

    Args:
        x: the tokens that ask, shape (..., T_q, n_embd).
        context: the tokens that are looked at, shape (..., T_k, n_context).
        W_query: makes queries of tokens, shape (n_embd, head_size).
        W_key: makes keys of tokens, shape (n_context, head_size).
        W_value: makes values of tokens, shape (n_context, d_v).
        mask: boolean, broadcasts to (..., T_q, T_k), True where a query may look; or None.

    Returns:
        The output, shape (..., T_q, d_v). A query that may look at nothing gets zeros.
    """
    q, k, v = x @ W_query, context @ W_key, context @ W_value
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5  # (..., T_q, T_k)
    if mask is None:
        return torch.softmax(scores, dim=-1) @ v
    weights = torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)
    return weights.masked_fill(~mask, 0.0) @ v


def leaks(models: Sequence[Callable[[Tensor], Tensor]], x: Float[Tensor, "T C"]) -> Bool[Tensor, " models"]:
    """Find the models in which an output moves when a later input does.

    Args:
        models: functions that turn tokens (T, C) into outputs (T, D).
        x: tokens to try them with, shape (T, C).

    Returns:
        Boolean, one entry a model: True if it leaks.
    """
    step = torch.linspace(0.5, 1.5, x.shape[1])  # another one for each channel
    found = []
    for model in models:
        before = model(x)
        leak = False
        for j in range(1, len(x)):
            nudged = x.clone()
            nudged[j] += step
            leak = leak or bool((model(nudged)[:j] != before[:j]).any())
        found.append(leak)
    return torch.tensor(found)


# Inputs


def draw_mask_sizes(generator: torch.Generator) -> list[tuple]:
    """Draw T_q <= T_k: 1 and 1, equal, one query, one key fewer, far apart."""
    T_q, more = (int(torch.randint(2, 5, (), generator=generator)) for _ in range(2))
    return [(1, 1), (3, 3), (1, 4), (2, 3), (2, 5), (4, 6), (T_q, T_q + more), (T_q + more, T_q + more)]


def draw_lengths(generator: torch.Generator) -> list[tuple]:
    """Draw lengths and T_k: B = 1, B == T_k, B = 2, a text of length 0, a full one."""
    a, b, c = torch.randint(1, 5, (3,), generator=generator).tolist()
    drawn = [
        ([1], 1),
        ([2], 3),
        ([2, 4], 5),
        ([0, 3], 4),
        ([1, 3, 2], 3),
        ([a, b, c, 0, 5], 5),
        ([c, b, a], 7),
    ]
    return [(torch.tensor(lengths), T_k) for lengths, T_k in drawn]


def draw_cross(generator: torch.Generator) -> list[tuple]:
    """Draw two texts, three matrices and a mask.

    First the two texts have one shape, then other lengths, then other channels; with and without a batch;
    the mask is missing, hides padding, or a few keys of each query. In the last, scores lie far apart.
    """
    sizes = [  # B, T_q, T_k, n_embd, n_context, head_size, d_v
        (0, 2, 2, 2, 2, 2, 2),
        (0, 3, 3, 2, 2, 3, 2),
        (0, 3, 3, 3, 3, 2, 4),
        (2, 3, 3, 4, 4, 2, 5),
        (0, 4, 6, 3, 3, 2, 5),
        (3, 2, 5, 4, 4, 3, 2),
        (0, 3, 5, 2, 4, 3, 4),
        (2, 5, 4, 3, 6, 5, 2),
    ]
    drawn = []
    for number, (B, T_q, T_k, n_embd, n_context, head_size, d_v) in enumerate(sizes):
        shapes = ((T_q, n_embd), (T_k, n_context))
        x, context = (torch.randn((B, *s) if B else s, generator=generator) for s in shapes)
        matrices = [
            torch.randn(shape, generator=generator)
            for shape in ((n_embd, head_size), (n_context, head_size), (n_context, d_v))
        ]
        mask = None
        if number in (1, 3, 4, 7):
            mask = torch.rand(T_q, T_k, generator=generator) < 0.5
            mask[:, 0] = True
            mask[0, 1:] = False  # a mask that hides something, and rows that differ
            mask[-1, 1] = True
        if number == 5:
            mask = padding_mask(torch.tensor([T_k - 1, 1, T_k]), T_k)
        drawn.append((x, context, *matrices, mask))
    x, context = torch.tensor([[1.0], [-1.0], [0.0]]), torch.randint(10, 14, (4, 1), generator=generator)
    W_query, W_key = torch.tensor([[20.0]]), torch.ones(1, 1)  # rows of 200 to 260, and of -200 to -260
    return [*drawn, (x, context.float(), W_query, W_key, torch.randn(1, 2, generator=generator), None)]


@dataclass(frozen=True)
class Model:
    """A head of self-attention, or something like it, whose `kind` and `numbers` say how it was made.

    The parameters are drawn when it is made: `torch.vmap` forbids to draw in a call.
    """

    kind: str
    numbers: tuple[int, ...]
    parameters: Tensor = field(init=False, repr=False, compare=False)

    def __post_init__(self):
        """Draw three matrices, for tokens of up to 4 channels."""
        generator = torch.Generator().manual_seed(self.numbers[0])
        object.__setattr__(self, "parameters", torch.randn(3, 4, 4, generator=generator))

    def __call__(self, x: Tensor) -> Tensor:
        """Turn tokens (T, C) into outputs (T, 4)."""
        W_query, W_key, W_value = self.parameters[:, : x.shape[-1]].to(x.dtype)
        q, k = 0.3 * x @ W_query, 0.3 * x @ W_key  # no weight is so small that a leak gets lost in rounding
        return KINDS[self.kind](x, q, k, x @ W_value, *self.numbers[1:])


def with_mask(make: Callable[..., Tensor]) -> Callable:
    """Make a head of a function that turns T, and perhaps more numbers, into a mask."""
    return lambda x, q, k, v, *numbers: attention(q, k, v, make(len(x), *numbers))[0]


def one_hole(T: int, i: int, j: int) -> Tensor:
    """Return a causal mask through which query i sees one key of the future, j."""
    mask = causal_mask(T)
    mask[i % T, j % T] = True
    return mask


def divided_by_all(x, q, k, v):
    """Mask after the softmax: the future is in no sum but that of the denominator."""
    return torch.softmax(q @ k.transpose(-2, -1) / 2, dim=-1).tril() @ v


def later(z: Tensor) -> Tensor:
    """Add up, for each row of z, all rows after it."""
    return torch.ones(len(z), len(z), dtype=z.dtype).triu(1) @ z


def leaking(leak: Callable[[Tensor], Tensor], *into: int) -> Callable:
    """Make a model that adds to each output what `leak(x)` (T, 1) holds of later tokens, -1 to 1.

    `into` says how much of it goes into each output channel. Each token hands on its value otherwise.
    """
    return lambda x, q, k, v: v + later(leak(x)).sin() * torch.tensor(into)


def steps(z: Tensor) -> Tensor:
    """Round to multiples of 1/64, times 64: a derivative, or a tiny nudge, sees nothing of z."""
    return (64 * z).round()


def distances(x, q, k, v):
    """Subtract how far away the later tokens are: where all tokens are equal, outputs can only fall."""
    return v - (x[:, None] - x).square().sum(dim=-1).triu(1).sum(dim=-1, keepdim=True)


KINDS = {
    "head": with_mask(causal_mask),
    "window": with_mask(window_mask),
    "no mask": with_mask(lambda T: torch.ones(T, T, dtype=torch.bool)),
    "one step ahead": with_mask(lambda T: torch.ones(T, T, dtype=torch.bool).tril(1)),
    "hole": with_mask(one_hole),
    "prefix": with_mask(prefix_mask),
    "divided": divided_by_all,
    "each alone": lambda x, q, k, v: v,
    "previous": lambda x, q, k, v: torch.cat([torch.zeros_like(v[:1]), v[:-1]]),
    "share of the length": lambda x, q, k, v: v.cumsum(dim=0) / len(v),  # causal
    "rounded": leaking(lambda x: steps(x[:, :1]), 0, 0, 0, 1),  # the first channel into the last one
    "one channel": leaking(lambda x: x[:, -1:], 1, 0, 0, 0),
    "squares": leaking(lambda x: x.square().sum(dim=-1, keepdim=True), 0, 1, -1, 0),  # the sum stays
    "directions": leaking(lambda x: steps(F.normalize(x, dim=-1)).cumsum(dim=-1).sum(-1, True), 0, 0, 1, 0),
    "differences": leaking(lambda x: steps(x[:, -1:] - x[:, :1]), 1, 1, 1, 1),
    "weak": lambda x, q, k, v: v + 1e-3 * later(v).sin(),
    "distances": distances,
}


def draw_models(generator: torch.Generator) -> list[tuple]:
    """Draw three models and tokens: a plain leak, leaks at one place, none at all, and all at once.

    Then leaks that only some changes show, or that show in one channel only, or weakly.
    """

    def model(kind: str, *numbers: int) -> Model:
        seed = int(torch.randint(1000, (), generator=generator))
        return Model(kind, (seed, *numbers))

    def tokens(T: int, C: int) -> Tensor:
        return torch.randn(T, C, generator=generator)

    def eighths(T: int, C: int) -> Tensor:
        return (8 * tokens(T, C)).round() / 8  # so that no rounding hides, or shows, a change

    rounds = [
        ([model("head"), model("no mask"), model("each alone")], tokens(2, 2)),
        ([model("one step ahead"), model("previous"), model("head")], tokens(4, 3)),
        ([model("window", 2), model("hole", 1, 4), model("prefix", 3)], tokens(6, 2)),
        ([model("divided"), model("hole", 2, 3), model("hole", 3, 5)], tokens(7, 3)),
        ([model("previous"), model("head"), model("window", 3)], tokens(5, 4)),
        ([model("hole", 2, 4), model("prefix", 2), model("divided")], tokens(6, 4)),
        ([model("share of the length"), model("rounded"), model("weak")], eighths(5, 3)),
        ([model("squares"), model("directions"), model("one channel")], eighths(6, 4)),
        ([model("distances"), model("head"), model("share of the length")], eighths(1, 3).repeat(5, 1)),
    ]
    drawn = []
    for models, x in rounds:
        order = torch.randperm(3, generator=generator).tolist()
        drawn.append((tuple(models[i] for i in order), x))
    return drawn


# Mistakes of the masks


def ones(T_q, T_k):
    """Return a boolean table, True everywhere."""
    return torch.ones(T_q, T_k, dtype=torch.bool)


def real(lengths, T_k):
    """Return a boolean table (B, T_k), True where a token is no padding."""
    return torch.arange(T_k) < lengths[:, None]


# Mistakes of cross-attention


def mixed(q, k, v, mask=None, dim=-1, scale=None):
    """Attend without any check of the input, so that wrong shapes fail where a learner's would.

    Where softmax has nothing to share out, NaN comes out.
    """
    scores = q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        scores = scores.masked_fill(~mask, -INF)
    return torch.softmax(scores, dim=dim) @ v


def mixed_with_zeros(q, k, v, mask=None, dim=-1):
    """Attend like that, and put zeros in place of NaN."""
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -INF)
    return torch.softmax(scores, dim=dim).nan_to_num(0) @ v


def mask_after(x, c, W_q, W_k, W_v, mask):
    """Multiply the weights with the mask."""
    weights = torch.softmax((q := x @ W_q) @ (c @ W_k).transpose(-2, -1) * q.shape[-1] ** -0.5, dim=-1)
    return (weights if mask is None else weights * mask) @ (c @ W_v)


def polarity(x, c, W_q, W_k, W_v, mask):
    """Fill the scores where the mask is True."""
    return mixed(x @ W_q, c @ W_k, c @ W_v, None if mask is None else ~mask)


def zero_scores(x, c, W_q, W_k, W_v, mask):
    """Set the hidden scores to 0."""
    scores = (q := x @ W_q) @ (c @ W_k).transpose(-2, -1) * q.shape[-1] ** -0.5
    return torch.softmax(scores if mask is None else scores * mask, dim=-1) @ (c @ W_v)


def additive(x, c, W_q, W_k, W_v, mask):
    """Add the mask to the scores, as ones and zeros."""
    scores = (q := x @ W_q) @ (c @ W_k).transpose(-2, -1) * q.shape[-1] ** -0.5
    return torch.softmax(scores if mask is None else scores + mask, dim=-1) @ (c @ W_v)


# Mistakes of the leak test


def probe_by(
    moves: Callable[[Tensor, int], bool], rows: Callable[[int], range] = lambda T: range(T)
) -> Callable:
    """Make a leak test that nudges the inputs `rows(T)` and asks `moves(moved, j)` of the outputs."""

    def probe(models, x):
        return torch.tensor(
            [any(moves(_moved(model, x, [j]), j) for j in rows(len(x))) for model in models], dtype=torch.bool
        )

    return probe


def _moved(model: Callable, x: Tensor, positions: list[int]) -> Tensor:
    """Nudge x at some positions; return which outputs move, shape (T,)."""
    nudged = x.clone()
    nudged[positions] += torch.linspace(0.5, 1.5, x.shape[1])
    return (model(nudged) != model(x)).any(dim=-1)


def lets_all_move(models, x):
    """Nudge all tokens but the first one, and look at all rows but the last one."""
    return torch.stack([_moved(model, x, list(range(1, len(x))))[:-1].any() for model in models])


def by_gradient(models, x):
    """Ask the derivatives which outputs move."""
    slopes = [torch.autograd.functional.jacobian(model, x).abs().sum(dim=(1, 3)) for model in models]
    return torch.stack([slope.triu(1).any() for slope in slopes])


def by_cutting(models, x):
    """Compare what the first t tokens get with and without the rest."""
    return torch.tensor(
        [
            any(not torch.allclose(model(x[:t]), model(x)[:t], atol=1e-5) for t in range(1, len(x)))
            for model in models
        ]
    )


past = probe_by(lambda moved, j: moved[j + 1 :].any())
right = probe_by(lambda moved, j: moved[:j].any())

# Properties


def without_pytorchs_own(f, *arguments):
    """Call the answer while `F.scaled_dot_product_attention` cannot be called."""
    with patch.object(F, "scaled_dot_product_attention", None):
        return f(*arguments) is not None


def blind_first(f, x, c, W_q, W_k, W_v):
    """Hide all keys from the first query, and none from the others."""
    mask = torch.ones(x.shape[-2], c.shape[-2], dtype=torch.bool)
    mask[0] = False
    return f(x, c, W_q, W_k, W_v, mask)


def no_nan_for_the_blind(f, x, c, W_q, W_k, W_v, mask):
    """Say whether a query that may look at nothing gets anything but NaN, even an error."""
    out = blind_first(f, x, c, W_q, W_k, W_v)
    return out is None or not out[..., 0, :].isnan().any()


def zeros_for_the_blind(f, x, c, W_q, W_k, W_v, mask):
    """Say whether it gets zeros, and the other queries what they get without a mask."""
    free, out = f(x, c, W_q, W_k, W_v, None), blind_first(f, x, c, W_q, W_k, W_v)
    return not out[..., 0, :].any() and close(free[..., 1:, :], out[..., 1:, :])


def differences_of_channels(f, models, x):
    """Try a model that a nudge of all channels alike does not move."""
    x = torch.randint(-16, 17, (6, 4), generator=torch.Generator().manual_seed(len(x))) / 8
    return f((Model("differences", (1,)),) * 3, x).all()


NUMBERS = (
    "The mask is right, and it is made of numbers, 1 and 0. Booleans are asked for: `masked_fill` refuses "
    "numbers, and `~` turns a 1 into -2. Make it with dtype=torch.bool, or end with `.bool()`."
)

EXERCISES = (
    Exercise(
        name="causal_mask",
        task="Take two sizes `T_q` <= `T_k` and return a boolean mask of shape (T_q, T_k), True where a "
        "query may look. The queries are the last T_q of T_k tokens, so the last query sees every key.",
        reference=causal_mask,
        draw_inputs=draw_mask_sizes,
        properties=(
            Property("The last query sees every key.", lambda f, T_q, T_k: f(T_q, T_k)[-1].all()),
            Property(
                "Each query sees one key more than the query before it.",
                lambda f, T_q, T_k: close(torch.arange(T_k - T_q + 1, T_k + 1), f(T_q, T_k).sum(dim=-1)),
            ),
            Property(
                "No query sees a key that comes after one it does not see.",
                lambda f, T_q, T_k: not (f(T_q, T_k)[:, 1:] & ~f(T_q, T_k)[:, :-1]).any(),
            ),
            Property(
                "The last row alone is the mask of one query.",
                lambda f, T_q, T_k: close(f(1, T_k)[0], f(T_q, T_k)[-1]),
            ),
        ),
        mistakes=(
            Mistake(
                "wrong_alignment",
                lambda T_q, T_k: ones(T_q, T_k).tril(),
                "The first query is aligned with the first key, as `is_causal=True` does it. The last query "
                "then misses the last T_k - T_q keys. Move the diagonal: `tril` takes its number.",
            ),
            Mistake(
                "numbers_in_place_of_booleans",
                lambda T_q, T_k: causal_mask(T_q, T_k).float(),
                NUMBERS,
            ),
            Mistake(
                "inverted",
                lambda T_q, T_k: ones(T_q, T_k).triu(T_k - T_q + 1),
                "The mask is inverted: True where a query may *not* look. `nn.MultiheadAttention` reads "
                "masks like that. Ours is True where a query may look.",
            ),
            Mistake(
                "inverted_and_misaligned",
                lambda T_q, T_k: ones(T_q, T_k).triu(1),
                "Two things. The mask is inverted: it is True where a query may *not* look. And the first "
                "query is aligned with the first key. Start from `tril`, and then move its diagonal.",
            ),
            Mistake(
                "diagonal_hidden",
                lambda T_q, T_k: ones(T_q, T_k).tril(T_k - T_q - 1),
                "Off by one: no query sees its own token, and with T_q = T_k the first query sees nothing at "
                "all. A query may look at itself. Move the diagonal up by one.",
            ),
            Mistake(
                "one_step_ahead",
                lambda T_q, T_k: ones(T_q, T_k).tril(T_k - T_q + 1),
                "Off by one: each query but the last sees the token after its own. That is the one that a "
                "decoder has to predict. Move the diagonal down by one.",
            ),
            Mistake(
                "moved_the_wrong_way",
                lambda T_q, T_k: ones(T_q, T_k).tril(T_q - T_k),
                "The diagonal moved down, and it has to move up. A positive number in `tril(number)` keeps "
                "more. How many keys more than itself does the first query see?",
            ),
            Mistake(
                "sees_the_future",
                lambda T_q, T_k: ones(T_q, T_k).triu(T_k - T_q),
                "Each query sees itself and what comes after it. `triu` keeps what lies above the diagonal. "
                "The past lies below it: that is `tril`.",
            ),
            Mistake(
                "square",
                lambda T_q, T_k: ones(T_k, T_k).tril(),
                "The mask has a row for each key. A row is a query, and there are T_q of them. Of the square "
                "mask, which rows belong to the last T_q tokens?",
            ),
            Mistake(
                "transposed",
                lambda T_q, T_k: ones(T_q, T_k).tril(T_k - T_q).T,
                "The mask has shape (T_k, T_q): it is transposed. A row is a query, a column is a key.",
            ),
            Mistake(
                "scores_in_place_of_a_mask",
                lambda T_q, T_k: torch.zeros(T_q, T_k).masked_fill(~causal_mask(T_q, T_k), -INF),
                "These are numbers to add to the scores: 0 and -inf. PyTorch takes such a mask too. Ours is "
                "boolean: `== 0` makes one of yours.",
            ),
            Mistake(
                "everything_visible",
                ones,
                "Everything is visible. The last query may see every key; each query before it sees one key "
                "less. Where does the False begin in a row?",
            ),
            Mistake(
                "past_hidden",
                lambda T_q, T_k: causal_mask(T_q, T_k) & (torch.arange(T_k) >= T_k - T_q),
                "The first T_k - T_q keys are hidden. They are the tokens before the first query, and every "
                "query may look at them.",
            ),
            Mistake(
                "triangle_at_the_first_keys",
                lambda T_q, T_k: ones(T_q, T_k).tril() | (torch.arange(T_k) >= T_q),
                "The triangle stands at the first keys, and all later ones are visible. The queries are the "
                "last tokens: the keys before them come first, all True, and the triangle stands at the end.",
            ),
        ),
        hints=(
            "Write down the mask for T_q = 2 and T_k = 5. How many keys does the first of the two queries "
            "see?",
            "`torch.ones(T_q, T_k, dtype=torch.bool).tril(d)` keeps what lies on the diagonal d and below "
            "it. With d = 0 the first query sees one key. It should see T_k - T_q + 1.",
            "Each step of d shows one key more to every query. So d is T_k - T_q.",
        ),
        insight="With T_q = 1 the mask is all True: a decoder that writes one token at a time, and keeps the "
        "keys of the past, needs no mask.",
        minutes=6,
        difficulty=2,
    ),
    Exercise(
        name="padding_mask",
        task="Take integers `lengths` of shape (B,) and a size `T_k`. Return a boolean mask of shape "
        "(B, 1, T_k), True where a key is real: the first `lengths[b]` keys of text b. The 1 stands for the "
        "queries: all of a text may look at the same keys.",
        reference=padding_mask,
        draw_inputs=draw_lengths,
        properties=(
            Property(
                "Text b shows lengths[b] keys.", lambda f, n, T_k: close(n[:, None], f(n, T_k).sum(dim=-1))
            ),
            Property(
                "The padding is at the end.",
                lambda f, n, T_k: not (f(n, T_k)[..., 1:] & ~f(n, T_k)[..., :-1]).any(),
            ),
            Property(
                "A text has the mask that it has alone.",
                lambda f, n, T_k: close(f(n[:1], T_k)[0], f(n, T_k)[0]),
            ),
            Property(
                "It broadcasts to scores (B, T_q, T_k).",
                lambda f, n, T_k: (torch.zeros(len(n), 2, T_k) + f(n, T_k)).shape == (len(n), 2, T_k),
            ),
        ),
        mistakes=(
            Mistake(
                "numbers_in_place_of_booleans",
                lambda n, T_k: padding_mask(n, T_k).float(),
                NUMBERS,
            ),
            Mistake(
                "polarity",
                lambda n, T_k: ~real(n, T_k)[:, None],
                "The mask is True at the padding, as `key_padding_mask` of `nn.MultiheadAttention` wants it. "
                "Ours is True where a query may look. Turn it around.",
            ),
            Mistake(
                "one_key_too_many",
                lambda n, T_k: real(n + 1, T_k)[:, None],
                "One key of the padding is still seen. Positions start at 0, so a text of length 3 has "
                "positions 0, 1 and 2. Compare with `<`, not with `<=`.",
            ),
            Mistake(
                "one_key_too_few",
                lambda n, T_k: real(n - 1, T_k)[:, None],
                "The last token of each text is hidden. Positions start at 0, so a text of length 3 has "
                "positions 0, 1 and 2, and 2 < 3. Compare with the length itself.",
            ),
            Mistake(
                "no_dimension_for_the_queries",
                real,
                "The entries are right, and the shape is (B, T_k). Against scores of (B, T_q, T_k), "
                "broadcasting would take B for T_q: texts would get each other's lengths. Put a dimension "
                "of 1 in between: `[:, None]`.",
            ),
            Mistake(
                "no_dimension_for_the_queries_and_polarity",
                lambda n, T_k: ~real(n, T_k),
                "Two things. The mask is True at the padding, and it should be True where a query may look. "
                "And a dimension of 1 for the queries is missing, between B and T_k: `[:, None]`.",
            ),
            Mistake(
                "hides_the_queries",
                lambda n, T_k: real(n, T_k)[:, :, None],
                "The shape is (B, T_k, 1): that hides rows, and rows are queries. The lengths say which "
                "*keys* are real. They lie along the last dimension.",
            ),
            Mistake(
                "a_dimension_in_front",
                lambda n, T_k: real(n, T_k)[None],
                "The shape is (1, B, T_k). There the texts lie along the dimension of the queries. The 1 "
                "belongs between B and T_k: `[:, None]`.",
            ),
            Mistake(
                "padding_in_front",
                lambda n, T_k: (torch.arange(T_k) >= T_k - n[:, None])[:, None],
                "You hide the beginning of each text, and the padding stands at its end. (Some programs do "
                "pad in front when they write text.) Which positions are smaller than the length?",
            ),
            Mistake(
                "only_the_last_token",
                lambda n, T_k: (torch.arange(T_k) == n[:, None] - 1)[:, None],
                "Only the last token of each text is seen. `==` finds one position; all positions before "
                "it are real too. Compare with `<`.",
            ),
            Mistake(
                "longest_for_all",
                lambda n, T_k: (torch.arange(T_k) < n.max()).expand(len(n), 1, T_k),
                "Every text gets the length of the longest one. Each row of the batch has its own: compare "
                "the positions with `lengths[:, None]`, and broadcasting makes a row for each text.",
            ),
            Mistake(
                "first_length_for_all",
                lambda n, T_k: real(n[:1], T_k).expand(len(n), T_k)[:, None],
                "Every text gets the length of the first one. Each row of the batch has its own: compare "
                "the positions with `lengths[:, None]`.",
            ),
            Mistake(
                "hides_a_text_without_padding",
                lambda n, T_k: (real(n, T_k) & (n < T_k)[:, None])[:, None],
                "It is right but for a text without padding. There T_k - length is 0, and `[-0:]` is the "
                "whole row, not an empty end. Count from the front: `[length:]`.",
            ),
        ),
        hints=(
            "What should the mask of lengths [2, 4] and T_k = 5 look like? Write down its two rows.",
            "`torch.arange(T_k)` holds the positions. Compare them with `lengths[:, None]`, which has shape "
            "(B, 1): broadcasting makes it (B, T_k).",
            "`torch.arange(T_k) < lengths[:, None]` is (B, T_k). `[:, None]` puts the 1 in between.",
        ),
        insight="`causal_mask(T) & padding_mask(lengths, T)` has shape (B, T, T): `&` keeps what both rules "
        "allow, and broadcasts.",
        minutes=6,
        difficulty=2,
    ),
    Exercise(
        name="cross_attention_forward",
        task="Take tokens `x` (..., T_q, n_embd) that ask and tokens `context` (..., T_k, n_context) that "
        "are looked at, `W_query` (n_embd, head_size), `W_key` (n_context, head_size), `W_value` (n_context, "
        "d_v), and a boolean `mask`, True where a query may look, or None. Return the output "
        "(..., T_q, d_v) of scaled attention, without `F.scaled_dot_product_attention`. A query that may "
        "look at nothing gets zeros.",
        reference=cross_attention_forward,
        draw_inputs=draw_cross,
        properties=(
            Property(
                "Each output lies among the values: it is a mean of them.",
                lambda f, x, c, W_q, W_k, W_v, mask: (
                    (
                        (o := f(x, c, W_q, W_k, W_v, mask)) <= (v := c @ W_v).amax(-2, keepdim=True) + 1e-4
                    ).all()
                    and (o >= v.amin(-2, keepdim=True) - 1e-4).all()
                ),
            ),
            Property(
                "Without queries, zeros in W_query, and without a mask it is the mean of the values.",
                lambda f, x, c, W_q, W_k, W_v, mask: close(
                    (c @ W_v).mean(-2, keepdim=True).expand(*x.shape[:-1], -1),
                    f(x, c, 0 * W_q, W_k, W_v, None),
                ),
            ),
            Property(
                "The order of the context's tokens does not matter, without a mask.",
                lambda f, x, c, W_q, W_k, W_v, mask: close(
                    f(x, c, W_q, W_k, W_v, None), f(x, c.flip(-2), W_q, W_k, W_v, None)
                ),
            ),
            Property(
                "A query alone gets what it gets among others.",
                lambda f, x, c, W_q, W_k, W_v, mask: close(
                    f(x, c, W_q, W_k, W_v, None)[..., :1, :], f(x[..., :1, :], c, W_q, W_k, W_v, None)
                ),
            ),
            *sees_nothing(no_nan_for_the_blind, zeros_for_the_blind),
            trained_through(cross_attention_forward),
            Property("It is your own: F.scaled_dot_product_attention is not called.", without_pytorchs_own),
        ),
        mistakes=(
            Mistake(
                "keys_from_x",
                lambda x, c, W_q, W_k, W_v, m: mixed(x @ W_q, x @ W_k, c @ W_v, m),
                "The keys are made from `x`. It runs where the two texts have one shape, and each token then "
                "looks for its match among its own kind. What is looked at is `context`: its tokens offer "
                "the keys.",
            ),
            Mistake(
                "values_from_x",
                lambda x, c, W_q, W_k, W_v, m: mixed(x @ W_q, c @ W_k, x @ W_v, m),
                "The values are made from `x`. The queries find the right tokens of `context`, and get what "
                "tokens of `x` hand over. A key and its value belong to one token, of `context`.",
            ),
            Mistake(
                "self_attention",
                lambda x, c, W_q, W_k, W_v, m: mixed(x @ W_q, x @ W_k, x @ W_v, m),
                "This is self-attention: `x` asks, and `x` answers. `context` is not used. Keys and values "
                "come from `context`.",
            ),
            Mistake(
                "texts_swapped",
                lambda x, c, W_q, W_k, W_v, m: mixed(c @ W_q, x @ W_k, x @ W_v, m),
                "The two texts changed places: `context` asks and `x` answers. There must be one output for "
                "each token of `x`, so `x` makes the queries.",
            ),
            Mistake(
                "queries_from_context",
                lambda x, c, W_q, W_k, W_v, m: mixed(c @ W_q, c @ W_k, c @ W_v, m),
                "The queries are made from `context`, so it looks at itself. `x` is not used. There must be "
                "one output for each token of `x`: it makes the queries.",
            ),
            Mistake(
                "no_scale",
                lambda x, c, W_q, W_k, W_v, m: mixed(x @ W_q, c @ W_k, c @ W_v, m, scale=1),
                "The scores are not scaled. Divide them by the square root of head_size, the number of "
                "channels of a query (rung 5).",
            ),
            Mistake(
                "divided_by_head_size",
                lambda x, c, W_q, W_k, W_v, m: mixed(x @ W_q, c @ W_k, c @ W_v, m, scale=1 / W_q.shape[1]),
                "The scores are divided by head_size. It should be its square root: that is what brings "
                "their variance back to 1 (rung 5).",
            ),
            Mistake(
                "scaled_by_n_embd",
                lambda x, c, W_q, W_k, W_v, m: mixed(
                    x @ W_q, c @ W_k, c @ W_v, m, scale=W_q.shape[0] ** -0.5
                ),
                "The scores are divided by the square root of n_embd, the channels of `x`. A dot product of "
                "a query and a key adds up head_size products: divide by the square root of that.",
            ),
            Mistake(
                "polarity",
                polarity,
                "The mask is read the wrong way round: the keys that a query may look at are hidden. "
                "`masked_fill` fills where its mask is True, and yours is True where it may look: hand it "
                "`~mask`.",
            ),
            Mistake(
                "ignores_the_mask",
                lambda x, c, W_q, W_k, W_v, m: mixed(x @ W_q, c @ W_k, c @ W_v),
                "It is right without a mask, and the mask changes nothing. Where it is False, the score must "
                "become -inf. `masked_fill` returns a new tensor: was its result kept?",
            ),
            Mistake(
                "mask_after_softmax",
                mask_after,
                "The mask comes after the softmax. By then the hidden keys have had their share of the total "
                "of 1. Set their scores to -inf before the softmax.",
            ),
            Mistake(
                "mask_added",
                additive,
                "The mask was added to the scores as ones and zeros. A visible key gains 1, and no key is "
                "hidden. A mask to add holds 0 and -inf; a boolean one goes into `masked_fill`.",
            ),
            Mistake(
                "wrong_dim",
                lambda x, c, W_q, W_k, W_v, m: mixed(x @ W_q, c @ W_k, c @ W_v, m, dim=-2),
                "Softmax ran along the queries: each key shares itself out. Each query shares out a weight "
                "of 1 over the keys, which lie along the last dimension: dim=-1.",
            ),
            Mistake(
                "polarity_with_zeros",
                lambda x, c, W_q, W_k, W_v, m: mixed_with_zeros(
                    x @ W_q, c @ W_k, c @ W_v, None if m is None else ~m
                ),
                "The mask is read the wrong way round: the keys that a query may look at are hidden, and a "
                "query that may look everywhere gets zeros. `masked_fill` fills where its mask is True: hand "
                "it `~mask`.",
            ),
            Mistake(
                "wrong_dim_with_zeros",
                lambda x, c, W_q, W_k, W_v, m: mixed_with_zeros(x @ W_q, c @ W_k, c @ W_v, m, dim=-2),
                "Softmax ran along the queries: each key shares itself out. Each query shares out a weight "
                "of 1 over the keys, which lie along the last dimension: dim=-1.",
            ),
            Mistake(
                "zero_in_place_of_inf",
                zero_scores,
                "Hidden scores are 0. That is no mask: exp(0) is 1, often more than visible keys have. Only "
                "exp(-inf) is 0 whatever the other scores are: fill with -inf.",
            ),
        ),
        hints=(
            "Which of the three, queries, keys and values, belong to the tokens that ask, and which to the "
            "tokens that are looked at?",
            "`q = x @ W_query`, `k = context @ W_key`, `v = context @ W_value`. The scores have shape "
            "(..., T_q, T_k), and head_size is `q.shape[-1]`.",
            "With a mask: `scores.masked_fill(~mask, float('-inf'))`, then softmax along dim=-1, then "
            "`.masked_fill(~mask, 0.0)` for a query that may look at nothing, then `@ v`.",
        ),
        insight="Called with `x` as its own `context`, this is the head of rung 4. Nothing in it needs the "
        "two texts to have one length, or one number of channels.",
        minutes=10,
        difficulty=3,
    ),
    Exercise(
        name="leaks",
        task="Take `models`, three functions that turn tokens (T, C) into outputs (T, D), and tokens `x`. "
        "Return a boolean tensor of shape (3,): True for each model in which some output moves when a later "
        "input does. Any change of an input counts, and any move, however small. Build the test yourself, "
        "without `leak_probe`.",
        reference=leaks,
        draw_inputs=draw_models,
        properties=(
            Property(
                "A causal head does not leak.",
                lambda f, models, x: not f((Model("head", (1,)),) * 3, x).any(),
            ),
            Property(
                "A head without a mask does.",
                lambda f, models, x: f((Model("no mask", (1,)),) * 3, x).all(),
            ),
            Property(
                "The order of the models is the order of the answers.",
                lambda f, models, x: close(f(models, x).flip(0), f(models[::-1], x)),
            ),
            Property(
                "A model that sees only the differences of channels can leak too: nudge each channel by an "
                "amount of its own.",
                differences_of_channels,
            ),
        ),
        mistakes=(
            Mistake(
                "only_the_last_token",
                probe_by(lambda moved, j: moved[:j].any(), lambda T: range(T - 1, T)),
                "You nudge the last token only. A leak can be anywhere: a model that shows everyone its "
                "first three tokens never shows the last one too early. Nudge each position in turn.",
            ),
            Mistake(
                "only_the_first_output",
                probe_by(lambda moved, j: moved[0], lambda T: range(1, T)),
                "You watch the first output only. A later one can see too far as well. For an input j, look "
                "at all outputs before j: `[:j]`.",
            ),
            Mistake(
                "only_the_neighbour",
                probe_by(lambda moved, j: moved[j - 1], lambda T: range(1, T)),
                "You watch one output, the one right before the nudged input. A leak can reach further back. "
                "Look at all outputs before j: `[:j]`.",
            ),
            Mistake(
                "counts_the_diagonal",
                probe_by(lambda moved, j: moved[: j + 1].any()),
                "An output moves when its own input does, and you count that as a leak. It is allowed. The "
                "outputs before j are `[:j]`, without j itself.",
            ),
            Mistake(
                "counts_the_past",
                past,
                "You look at the outputs *after* the nudged input. They may move: that is the past at work. "
                "A leak shows in the outputs before it, `[:j]`.",
            ),
            Mistake(
                "counts_every_move",
                probe_by(lambda moved, j: moved.any()),
                "Any output that moves counts, so almost every model leaks. Outputs at the nudged position "
                "and after it may move. Look at those before it, `[:j]`.",
            ),
            Mistake(
                "nudges_all_at_once",
                lets_all_move,
                "All tokens are nudged at once. Then an output moves because of its own token, or of one of "
                "its past, and you cannot tell. Nudge one position at a time, starting from fresh tokens.",
            ),
            Mistake(
                "inverted",
                lambda models, x: ~right(models, x),
                "True and False have changed places: you say True where nothing leaks. The question is "
                "whether an earlier output moved.",
            ),
            Mistake(
                "by_gradient",
                by_gradient,
                "You ask the derivatives. They see tiny changes only: in a model that rounds they are 0 "
                "everywhere, and a larger change gets through. Change a token, and compare the outputs.",
            ),
            Mistake(
                "cuts_the_text",
                by_cutting,
                "You compare a text with a shorter one. A model may divide by the length of the text, which "
                "tells no token of the future, and you call it a leak. Keep the length, and change a token.",
            ),
            Mistake(
                "never_the_last_token",
                probe_by(lambda moved, j: moved[:j].any(), lambda T: range(1, T - 1)),
                "The last token is never nudged. `range(1, T - 1)` ends at T - 2. A leak from the last "
                "token is one too.",
            ),
        ),
        hints=(
            "Take one model. Change the token at position 4. Which outputs may move, and which may not?",
            "For each j: `nudged = x.clone()`, `nudged[j] += torch.randn(x.shape[1])`, and compare "
            "`model(nudged)` with `model(x)`. Only outputs 0 to j - 1 matter.",
            "`(model(nudged)[:j] != model(x)[:j]).any()` is True for a leak from j. A model leaks if that is "
            "True for any j from 1 to T - 1.",
        ),
        insight="This test needs no look inside, so it works for a whole GPT. One answer of False is no "
        "proof, though: a leak that opens at one position or one value shows there only.",
        minutes=12,
        difficulty=3,
    ),
)
