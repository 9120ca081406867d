"""Attention weights from queries and keys, one head, and a head with hand-written matrices."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attention_course.attention import attention_weights, causal_mask
from attention_course.exercises.comparing import close, differentiable
from attention_course.exercises.exercise import Property, exercise


def head_forward(
    x: Float[Tensor, "*B T C"],
    W_query: Float[Tensor, "C head_size"],
    W_key: Float[Tensor, "C head_size"],
    W_value: Float[Tensor, "C d_v"],
    mask: Bool[Tensor, "T T"],
) -> Float[Tensor, "*B T d_v"]:
    """Run one head of attention.

    Args:
        x: tokens, shape (T, C) or (B, T, C).
        W_query: query matrix, shape (C, head_size).
        W_key: key matrix, shape (C, head_size).
        W_value: value matrix, shape (C, d_v).
        mask: boolean, shape (T, T), True where a query may look.

    Returns:
        The output, shape (T, d_v) or (B, T, d_v).
    """
    q, k, v = x @ W_query, x @ W_key, x @ W_value
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    scores = scores.masked_fill(~mask, float("-inf"))
    weights = torch.softmax(scores, dim=-1).masked_fill(~mask, 0.0)
    return weights @ v


def position_weights(
    W_query: Float[Tensor, "T head_size"], W_key: Float[Tensor, "T head_size"]
) -> Float[Tensor, "T T"]:
    """Return the causal weights of T tokens that are one-hot positions.

    Args:
        W_query: query matrix; row t is the query of position t.
        W_key: key matrix; row s is the key of position s.
    """
    positions = torch.eye(len(W_query))
    return attention_weights(positions @ W_query, positions @ W_key, causal_mask(len(W_query)))


def previous_token(T: int) -> Float[Tensor, "T T"]:
    """Write a query matrix and a key matrix with which each position finds the one before it.

    Args:
        T: number of positions.

    Returns:
        The causal weights that W_query and W_key give, shape (T, T). Row 0 can see only itself.
    """
    W_key = torch.eye(T)  # key s is the one-hot position s
    W_query = 1000 * torch.eye(T).roll(1, dims=0)  # query t is the one-hot position t - 1
    return position_weights(W_query, W_key)


def low_keys(generator: torch.Generator) -> Tensor:
    """Draw -10, -15, -20 and -25 in any order: whole numbers so far apart that nothing has to be rounded."""
    return -10.0 - 5 * torch.randperm(4, generator=generator)


def draw_queries(generator: torch.Generator) -> list[tuple]:
    """Draw q, k and mask: one key, T_k == head_size, batches, heads, rows all False, scores far apart."""
    shapes = [  # batch, T_q, T_k, head_size
        ((), 1, 1, 1),
        ((), 2, 3, 2),
        ((), 3, 3, 3),
        ((), 3, 2, 2),
        ((), 4, 4, 2),
        ((1,), 2, 4, 3),
        ((3,), 3, 3, 3),
        ((2,), 3, 5, 4),
        ((2, 3), 3, 3, 3),
        ((2, 3), 2, 5, 4),
        ((2,), 4, 4, 3),
        ((), 4, 4, 1),
        ((), 4, 4, 1),
    ]
    drawn = []
    for batch, T_q, T_k, head_size in shapes:
        q = torch.randn(*batch, T_q, head_size, generator=generator)
        k = torch.randn(*batch, T_k, head_size, generator=generator)
        drawn.append((q, k, causal_mask(T_q, T_k)))
    drawn[3][2][0] = False  # fewer keys than queries: the first one sees nothing
    drawn[4][2][:] = torch.tensor([[1, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 1, 1, 1]]).bool()
    lengths = torch.tensor([3, 0])  # the second sequence is empty
    drawn[7] = (*drawn[7][:2], (torch.arange(5) < lengths[:, None])[:, None])
    drawn[10] = (*drawn[10][:2], causal_mask(4).repeat(2, 1, 1))
    drawn[10][2][1, 2] = False  # one query of the second sequence
    drawn[9] = (*drawn[9][:2], causal_mask(2, 5).repeat(3, 1, 1))
    drawn[9][2][1, 1, 2:] = False  # a mask of each head
    for q, _, _ in drawn[5:]:
        q.mul_(3)
    for (q, k, _), strength, last in zip(drawn[11:], (4.0, 1100.0), (20.0, -20.0), strict=True):
        # scores of -40 to -100 and one of 80; then of -11,000 to -27,500 and one of -22,000
        q.fill_(strength)
        k[:, 0] = low_keys(generator)
        k[-1] = last  # only the last query may look at this key
    texts = torch.tensor([[[1, 0, 1], [0, 0, 0], [0, 1, 1], [0, 0, 0]], [[1, 1, 0], [0, 1, 0]] * 2]).bool()
    for batch, T_q, mask in (((2, 3), 4, texts[:, None]), ((2, 1, 2), 2, texts[0, 2])):
        q, k = (torch.randn(*batch, T, 2, generator=generator) for T in (T_q, 3))
        drawn.append((q, k, mask))  # a mask of each text, in which two queries see nothing; one of keys alone
    return drawn


def draw_heads(generator: torch.Generator) -> list[tuple]:
    """Draw tokens, matrices, a mask: T = 1, equal sizes, a query that sees nothing, scores far apart.

    The last mask is random: queries see some of the future, and not all of the past.
    """
    sizes = [  # batch, T, C, head_size, d_v
        ((), 1, 2, 1, 2),
        ((), 2, 2, 2, 2),
        ((), 3, 3, 3, 3),
        ((), 4, 3, 2, 3),
        ((1,), 3, 3, 3, 3),
        ((2,), 3, 4, 3, 5),
        ((3,), 5, 4, 2, 3),
        ((3,), 3, 3, 3, 3),
        ((), 4, 2, 1, 3),
        ((), 4, 2, 1, 3),
    ]
    drawn = []
    for batch, T, C, head_size, d_v in sizes:
        x = torch.randn(*batch, T, C, generator=generator)
        matrices = [torch.randn(C, width, generator=generator) for width in (head_size, head_size, d_v)]
        drawn.append((x, *matrices, causal_mask(T)))
    drawn[3][4][2] = False
    drawn[6][4][0] = False
    for (x, W_query, W_key, _, _), strength in zip(drawn[8:], (4.0, 1100.0), strict=True):
        x[:, 0] = 1.0  # scores of -40 to -100 and one of 40; then of -11,000 to -27,500 and one of 11,000
        x[:, 1] = low_keys(generator)
        x[-1, 1] = 10.0
        W_query[:, 0], W_key[:, 0] = torch.tensor([strength, 0.0]), torch.tensor([0.0, 1.0])
    anywhere = (torch.rand(6, 6, generator=generator) < 0.5) | torch.eye(6, dtype=torch.bool)
    anywhere[1] = torch.tensor([1, 0, 0, 1, 0, 0]).bool()  # not itself, but a later one
    anywhere[[2, 4]] = False
    x, *matrices = (torch.randn(shape, generator=generator) for shape in ((2, 6, 4), (4, 3), (4, 3), (4, 2)))
    return [*drawn, (x, *matrices, anywhere)]


def draw_lengths(generator: torch.Generator) -> list[tuple]:
    """Draw T: 2, 3, 4, one up to 10, 20, and 32, for which a factor for short words is too small."""
    return [(2,), (3,), (4,), (int(torch.randint(5, 11, (), generator=generator)),), (32,), (20,)]


def nothing_moves_up(head, x, W_query, W_key, W_value, mask):
    """Change the last token under a causal mask, and compare all earlier rows."""
    changed = torch.cat([x[..., :-1, :], 1 - x[..., -1:, :]], dim=-2)
    causal = causal_mask(x.shape[-2])
    before, after = (head(each, W_query, W_key, W_value, causal)[..., :-1, :] for each in (x, changed))
    return close(before, after)


OF_WEIGHTS = (
    Property(
        "A row sums to 1 where its query may look at something.",
        lambda f, q, k, m: close(m.any(-1).float().expand(q.shape[:-1]), f(q, k, m).sum(dim=-1)),
    ),
    Property(
        "Hidden keys get no weight.",
        lambda f, q, k, m: not f(q, k, m)[~m.expand(*q.shape[:-1], k.shape[-2])].any(),
    ),
    Property(
        "A query of zeros looks evenly at all that it may see.",
        lambda f, q, k, m: close(
            (m / m.sum(-1, keepdim=True).clamp(min=1)).expand(*q.shape[:-1], k.shape[-2]),
            f(0 * q, k, m),
        ),
    ),
    Property(
        "Keys in another order get the same weights, in that order.",
        lambda f, q, k, m: close(f(q, k, m).flip(-1), f(q, k.flip(-2), m.flip(-1))),
    ),
    differentiable(attention_weights),
)
OF_A_HEAD = (
    Property(
        "Twice the W_value gives twice the output.",
        lambda f, x, q, k, v, m: close(2 * f(x, q, k, v, m), f(x, q, k, 2 * v, m)),
    ),
    Property(
        "With a W_query of zeros the output is the mean of the values that a query may see.",
        lambda f, x, q, k, v, m: close(
            m / m.sum(-1, keepdim=True).clamp(min=1) @ (x @ v), f(x, 0 * q, k, v, m)
        ),
    ),
    Property("Under a causal mask, a change of the last token moves no earlier row.", nothing_moves_up),
    Property(
        "A text in a batch gives what it gives alone.",
        lambda f, x, q, k, v, m: x.dim() == 2 or close(f(x[0], q, k, v, m), f(x, q, k, v, m)[0]),
    ),
    differentiable(head_forward),
)
OF_A_LOOK_BACK = (
    Property("Each row sums to 1.", lambda f, T: close(torch.ones(T), f(T).sum(dim=-1))),
    Property("No position looks at a later one.", lambda f, T: not f(T).triu(1).any()),
    Property(
        "Every position but the first prefers the one before it.",
        lambda f, T: torch.equal(f(T)[1:].argmax(dim=-1), torch.arange(T - 1)),
    ),
    Property("It puts at least 0.99 of its weight there.", lambda f, T: (f(T).diagonal(-1) >= 0.99).all()),
)

EXERCISES = (
    exercise(__name__, attention_weights, draw_queries, OF_WEIGHTS),
    exercise(__name__, head_forward, draw_heads, OF_A_HEAD),
    exercise(__name__, previous_token, draw_lengths, OF_A_LOOK_BACK),
)
