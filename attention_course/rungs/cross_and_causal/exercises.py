"""Two masks, cross-attention, and a test that finds models with leaks from the future."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from attention_course.attention import attention, causal_mask, padding_mask, prefix_mask, window_mask
from attention_course.exercises.comparing import close, differentiable
from attention_course.exercises.exercise import Property, exercise


def cross_attention_forward(
    x: Float[Tensor, "*B T_q n_embd"],
    context: Float[Tensor, "*B T_k n_context"],
    W_query: Float[Tensor, "n_embd head_size"],
    W_key: Float[Tensor, "n_context head_size"],
    W_value: Float[Tensor, "n_context d_v"],
    mask: Bool[Tensor, "..."] | None,
) -> Float[Tensor, "*B T_q d_v"]:
    """Compute cross-attention: queries from one text, keys and values from another.

    Args:
        x: tokens that make the queries, shape (..., T_q, n_embd).
        context: tokens that make the keys and values, shape (..., T_k, n_context).
        W_query: query matrix, shape (n_embd, head_size).
        W_key: key matrix, shape (n_context, head_size).
        W_value: value matrix, shape (n_context, d_v).
        mask: boolean, broadcasts to (..., T_q, T_k), True where a query may look; or None.

    Returns:
        The output, shape (..., T_q, d_v). A query that may look at nothing gets zeros.
    """
    q, k, v = x @ W_query, context @ W_key, context @ W_value
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5  # (..., T_q, T_k)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = torch.softmax(scores, dim=-1)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)  # where all scores are -inf, softmax gives NaN
    return weights @ v


def leaks(models: Sequence[Callable[[Tensor], Tensor]], x: Float[Tensor, "T C"]) -> Bool[Tensor, " models"]:
    """Find the models in which an output changes when a later input does.

    Args:
        models: functions that map tokens (T, C) to outputs (T, D).
        x: tokens to test them with, shape (T, C).

    Returns:
        Boolean, one entry per model: True if it leaks.
    """
    step = torch.linspace(0.5, 1.5, x.shape[1])  # a different one for each channel
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


# The masks


def draw_mask_sizes(generator: torch.Generator) -> list[tuple]:
    """Draw T_q <= T_k: 1 and 1, equal, one query, differences of one and more, and longer ones."""
    T_q, more = (int(torch.randint(2, 5, (), generator=generator)) for _ in range(2))
    drawn = [(1, 1), (3, 3), (1, 4), (2, 3), (2, 5), (4, 6), (T_q, T_q + more), (T_q + more, T_q + more)]
    return [*drawn, (5, 70)]


def draw_lengths(generator: torch.Generator) -> list[tuple]:
    """Draw lengths and T_k: B = 1, B == T_k, B = 2, a sequence of length 0, a full one, T_k = 70."""
    a, b, c = torch.randint(1, 5, (3,), generator=generator).tolist()
    drawn = [
        ([1], 1),
        ([2], 3),
        ([2, 4], 5),
        ([0, 3], 4),
        ([1, 3, 2], 3),
        ([a, b, c, 0, 5], 5),
        ([c, b, a], 7),
        ([b, 60 + a], 70),
    ]
    return [(torch.tensor(lengths), T_k) for lengths, T_k in drawn]


def no_gaps(mask, *sizes):
    """Return whether in each row of a mask no True follows a False."""
    out = mask(*sizes)
    return not (out[..., 1:] & ~out[..., :-1]).any()


# Cross-attention


def draw_cross(generator: torch.Generator) -> list[tuple]:
    """Draw two sequences, three matrices and a mask.

    The two have equal shapes at first, then different lengths, then different channels; without a batch, with
    one, and with one of two dimensions. The mask is None, hides a few keys of each query, or all keys of one
    query or of one sequence. In two inputs scores lie far apart, and in one of them the highest are hidden.
    In the last two there is a mask of each text, in which two queries see nothing, and one of keys alone.
    """
    sizes = [  # batch, T_q, T_k, n_embd, n_context, head_size, d_v
        ((), 2, 2, 2, 2, 2, 2),
        ((), 3, 3, 2, 2, 3, 2),
        ((), 3, 3, 3, 3, 2, 4),
        ((2,), 3, 3, 4, 4, 2, 5),
        ((), 4, 6, 3, 3, 2, 5),
        ((3,), 2, 5, 4, 4, 3, 2),
        ((), 3, 5, 2, 4, 3, 4),
        ((2,), 5, 4, 3, 6, 5, 2),
        ((2, 3), 2, 4, 3, 2, 3, 2),
    ]
    drawn = []
    for number, (batch, T_q, T_k, n_embd, n_context, head_size, d_v) in enumerate(sizes):
        shapes = ((*batch, T_q, n_embd), (*batch, T_k, n_context))
        x, context = (torch.randn(shape, generator=generator) for shape in shapes)
        matrices = [
            torch.randn(shape, generator=generator)
            for shape in ((n_embd, head_size), (n_context, head_size), (n_context, d_v))
        ]
        mask = None
        if number in (1, 3, 4, 7):
            mask = torch.rand(T_q, T_k, generator=generator) < 0.5
            mask[:, 0] = True
            mask[0, 1:] = False  # at least one key is hidden, and rows differ
            mask[-1, 1] = True
            if number in (4, 7):
                mask[1], mask[2] = False, True
        if number == 5:
            mask = padding_mask(torch.tensor([T_k - 1, 0, T_k]), T_k)
        drawn.append((x, context, *matrices, mask))

    x, context = torch.tensor([[1.0], [-1.0], [0.0]]), torch.tensor([[10.0], [13.0], [11.0], [20.0]])
    W_query, W_key = (
        torch.tensor([[2000.0]]),
        torch.ones(1, 1),
    )  # rows of 20,000 to 40,000, and of the opposite
    far_apart = (x, context, W_query, W_key, torch.randn(1, 2, generator=generator))
    drawn += [(*far_apart, None), (*far_apart, torch.tensor([True, True, True, False]).expand(3, 4))]
    texts = torch.tensor([[[1, 0, 1], [0, 0, 0], [0, 0, 0]], [[0, 1, 0], [1, 1, 0], [0, 1, 1]]]).bool()
    for batch, mask in (((2, 2), texts), ((), texts[0, 0])):
        shapes = (*batch, 3, 2), (*batch, 3, 4), (2, 3), (4, 3), (4, 2)
        drawn.append((*(torch.randn(shape, generator=generator) for shape in shapes), mask))
    return drawn


def among_the_values(f, x, context, W_query, W_key, W_value, mask):
    """Check that each output lies between the smallest and the largest value, or zero."""
    v, out = context @ W_value, f(x, context, W_query, W_key, W_value, mask)
    low, high = v.amin(-2, keepdim=True).clamp(max=0), v.amax(-2, keepdim=True).clamp(min=0)
    return (low - 1e-4 <= out).all() and (out <= high + 1e-4).all()


def mean_without_queries(f, x, context, W_query, W_key, W_value, mask):
    """Set all queries to zero."""
    mean = (context @ W_value).mean(-2, keepdim=True).expand(*x.shape[:-1], -1)
    return close(mean, f(x, context, 0 * W_query, W_key, W_value, None))


def order_does_not_matter(f, x, context, *matrices_and_mask):
    """Reverse the context."""
    *matrices, _ = matrices_and_mask
    return close(f(x, context, *matrices, None), f(x, context.flip(-2), *matrices, None))


def queries_apart(f, x, context, *matrices_and_mask):
    """Compare the first query with the same query alone."""
    *matrices, _ = matrices_and_mask
    return close(f(x, context, *matrices, None)[..., :1, :], f(x[..., :1, :], context, *matrices, None))


# Models that leak, and models that do not


@dataclass(frozen=True, eq=False)
class Model:
    """A head of self-attention or a variant of one, selected by `kind`, with its matrices."""

    kind: str
    matrices: Float[Tensor, "3 4 4"] = field(repr=False)

    def __call__(self, x: Float[Tensor, "T C"]) -> Float[Tensor, "T 4"]:
        """Map tokens of up to 4 channels to outputs."""
        W_query, W_key, W_value = self.matrices[:, : x.shape[-1]].to(x.dtype)
        q, k = 0.3 * x @ W_query, 0.3 * x @ W_key  # no weight so small that a leak is lost to rounding
        return KINDS[self.kind](x, q, k, x @ W_value)


def head(mask: Callable[[int], Tensor]) -> Callable:
    """Make a head whose mask is a function of T."""
    return lambda x, q, k, v: attention(q, k, v, mask(len(x)))[0]


def hole(i: int, j: int) -> Callable:
    """Make a causal head whose query i sees one key of the future, j."""
    return head(lambda T: causal_mask(T).index_put((torch.tensor(i), torch.tensor(j)), torch.tensor(True)))


def later(z: Tensor) -> Tensor:
    """Sum, for each row of z, all rows after it."""
    return torch.ones(len(z), len(z), dtype=z.dtype).triu(1) @ z


def leaking(leak: Callable[[Tensor], Tensor], *into: int) -> Callable:
    """Make a model that adds a leak to the values: the sine of the sum of `leak(x)` (T, 1) over later tokens.

    `into` holds its factor for each output channel.
    """
    return lambda x, q, k, v: on_a_grid(v) + on_a_grid(later(leak(x)).sin()) * torch.tensor(into)


def on_a_grid(z: Tensor) -> Tensor:
    """Round to multiples of 1/4096, whose sums are exact, so that terms cancel exactly."""
    return (4096 * z).round() / 4096


def in_64ths(z: Tensor) -> Tensor:
    """Round to multiples of 1/64, times 64: the derivative is zero, and tiny changes have no effect."""
    return (64 * z).round()


def distances(x, q, k, v):
    """Subtract the squared distances to later tokens: from equal tokens, outputs can only decrease."""
    return v - (x[:, None] - x).square().sum(dim=-1).triu(1).sum(dim=-1, keepdim=True)


def signs(x, q, k, v):
    """Flip the signs of channels, by sums over later tokens: every number keeps its size."""
    return torch.where((20 * later(x)).sin() < 0, -v, v)


KINDS = {
    "head": head(causal_mask),
    "window": head(lambda T: window_mask(T, 2)),
    "each alone": lambda x, q, k, v: v,
    "previous": lambda x, q, k, v: torch.cat([torch.zeros_like(v[:1]), v[:-1]]),
    "change": lambda x, q, k, v: v.diff(dim=0, prepend=v[:1]),  # its first output is always 0
    "every other": lambda x, q, k, v: v.cumsum(dim=0) * (torch.arange(len(v)) % 2 == 0)[:, None],
    "share of the length": lambda x, q, k, v: v.cumsum(dim=0) / len(v),
    "one channel so far": lambda x, q, k, v: x[:, -1:].cumsum(dim=0) * torch.tensor([0, 1, 1, 1]),
    "differences so far": lambda x, q, k, v: in_64ths(x[:, -1:] - x[:, :1]).cumsum(dim=0).expand(-1, 4),
    # The rest leaks.
    "no mask": head(lambda T: torch.ones(T, T, dtype=torch.bool)),
    "one step ahead": head(lambda T: torch.ones(T, T, dtype=torch.bool).tril(1)),
    "prefix": head(lambda T: prefix_mask(T, 3)),
    "hole 0 4": hole(0, 4),
    "hole 2 3": hole(2, 3),
    "hole 3 5": hole(3, 5),
    "mask after softmax": lambda x, q, k, v: torch.softmax(q @ k.transpose(-2, -1) / 2, dim=-1).tril() @ v,
    "next": lambda x, q, k, v: torch.cat([v[1:], torch.zeros_like(v[:1])]),
    "first channel": leaking(lambda x: in_64ths(x[:, :1]), 0, 0, 0, 1),
    "last channel": leaking(lambda x: x[:, -1:], 1, 0, 0, 0),
    "squares": leaking(lambda x: x.square().sum(dim=-1, keepdim=True), 0, 1, -1, 0),  # the sum stays
    "directions": leaking(lambda x: in_64ths(F.normalize(x, dim=-1)).cumsum(-1).sum(-1, True), 0, 0, 1, 0),
    "differences": leaking(lambda x: in_64ths(x[:, -1:] - x[:, :1]), 1, 1, 1, 1),
    "weak": lambda x, q, k, v: 1 + v.sigmoid() + 4e-7 * later(v).sin(),  # float32 has steps of 1e-7 there
    "distances": distances,
    "signs": signs,
}


def draw_models(generator: torch.Generator) -> list[tuple]:
    """Draw three models and tokens: obvious leaks, leaks at one position, and none.

    Then leaks that only some changes reveal, or that are in one channel only, or weak. What "hole 0 4" leaks
    is a token of ones, which stays the same if it is set to 1.
    """

    def tokens(T: int, C: int) -> Tensor:
        return torch.randn(T, C, generator=generator)

    def eighths(T: int, C: int) -> Tensor:
        return (8 * tokens(T, C)).round() / 8  # so that rounding neither hides nor causes a change

    rounds = [
        (("head", "no mask", "change"), tokens(2, 2)),
        (("one step ahead", "previous", "next"), tokens(4, 3)),
        (("window", "hole 0 4", "prefix"), tokens(6, 2).index_fill(0, torch.tensor(4), 1.0)),
        (("mask after softmax", "hole 2 3", "hole 3 5"), tokens(6, 3)),
        (("one channel so far", "head", "window"), tokens(5, 4)),
        (("share of the length", "first channel", "weak"), eighths(5, 3)),
        (("squares", "directions", "last channel"), eighths(6, 4)),
        (("distances", "differences so far", "share of the length"), eighths(1, 3).repeat(5, 1)),
        (("differences", "each alone", "every other"), eighths(6, 4)),
        (("head", "signs", "change"), eighths(6, 4)),
        (("window", "no mask", "next"), torch.zeros(4, 3)),  # a token that is zero stays the same if zeroed
    ]
    drawn = []
    for kinds, x in rounds:
        order = torch.randperm(3, generator=generator).tolist()
        models = tuple(Model(kinds[i], torch.randn(3, 4, 4, generator=generator)) for i in order)
        drawn.append((models, x))
    return drawn


def says_of_all(leaky: bool, kind: str) -> Callable[..., bool]:
    """Make a property: for three models of this kind the answer is `leaky`."""

    def holds(f, models, x):
        return (f(tuple(Model(kind, model.matrices) for model in models), x) == leaky).all()

    return holds


OF_A_CAUSAL_MASK = (
    Property("The last query sees every key.", lambda f, T_q, T_k: f(T_q, T_k)[-1].all()),
    Property(
        "Each query sees one more key than the query before it.",
        lambda f, T_q, T_k: close(torch.arange(T_k - T_q + 1, T_k + 1), f(T_q, T_k).sum(dim=-1)),
    ),
    Property("No query sees a key that comes after one it does not see.", no_gaps),
    Property(
        "The last row alone is the mask of one query.",
        lambda f, T_q, T_k: close(f(1, T_k)[0], f(T_q, T_k)[-1]),
    ),
)
OF_A_PADDING_MASK = (
    Property(
        "Row b has lengths[b] visible keys.",
        lambda f, lengths, T_k: close(lengths[:, None], f(lengths, T_k).sum(dim=-1)),
    ),
    Property("The padding is at the end.", no_gaps),
    Property(
        "A text has the same mask alone as in a batch.",
        lambda f, lengths, T_k: close(f(lengths[:1], T_k)[0], f(lengths, T_k)[0]),
    ),
)
OF_CROSS_ATTENTION = (
    Property(
        "Each output lies between the smallest and the largest value, or is zero: it is a mean of them.",
        among_the_values,
    ),
    Property(
        "With zeros in W_query, and without a mask, it is the mean of the values.", mean_without_queries
    ),
    Property("The order of the context's tokens does not matter, without a mask.", order_does_not_matter),
    Property("A query gets the same output alone as among others.", queries_apart),
    differentiable(cross_attention_forward),
)
OF_A_LEAK_TEST = (
    Property("A causal head does not leak.", says_of_all(False, "head")),
    Property("A head without a mask does.", says_of_all(True, "no mask")),
    Property(
        "The order of the models is the order of the answers.",
        lambda f, models, x: close(f(models, x).flip(0), f(models[::-1], x)),
    ),
)

EXERCISES = (
    exercise(__name__, causal_mask, draw_mask_sizes, OF_A_CAUSAL_MASK),
    exercise(__name__, padding_mask, draw_lengths, OF_A_PADDING_MASK),
    exercise(__name__, cross_attention_forward, draw_cross, OF_CROSS_ATTENTION),
    exercise(__name__, leaks, draw_models, OF_A_LEAK_TEST),
)
