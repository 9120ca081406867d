"""Rung 4: attention weights from queries and keys, one head, and a head written by hand."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attention_course.attention import attention, attention_weights, causal_mask
from attention_course.exercises.engine import Exercise, Mistake, Property, close, trained_through

INF = float("inf")


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
        W_query: makes queries, shape (C, head_size).
        W_key: makes keys, shape (C, head_size).
        W_value: makes values, shape (C, d_v).
        mask: boolean, shape (T, T), True where a query may look.

    Returns:
        The output, shape (T, d_v) or (B, T, d_v).
    """
    q, k, v = x @ W_query, x @ W_key, x @ W_value
    output, _ = attention(q, k, v, mask)
    return output


def position_weights(
    W_query: Float[Tensor, "T head_size"], W_key: Float[Tensor, "T head_size"]
) -> Float[Tensor, "T T"]:
    """Return the causal weights of T tokens that are their one-hot positions.

    Args:
        W_query: makes queries; row t is the query of position t.
        W_key: makes keys; row s is the key of position s.
    """
    positions = torch.eye(len(W_query))
    return attention_weights(positions @ W_query, positions @ W_key, causal_mask(len(W_query)))


def previous_token(T: int) -> Float[Tensor, "T T"]:
    """Write weights for queries and keys so that each position finds the one before it.

    Args:
        T: number of positions.

    Returns:
        The causal weights that W_query and W_key give, shape (T, T). Row 0 can see itself only.
    """
    W_key = torch.eye(T)  # key s is the one-hot position s
    W_query = 1000 * torch.eye(T).roll(1, dims=0)  # query t is the one-hot position t - 1
    return position_weights(W_query, W_key)


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
    drawn[4][2][:] = torch.tensor([[1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 0, 1], [0, 1, 1, 1]]).bool()
    lengths = torch.tensor([3, 0])  # the second text is empty
    drawn[7] = (*drawn[7][:2], (torch.arange(5) < lengths[:, None])[:, None])
    drawn[10] = (*drawn[10][:2], causal_mask(4).repeat(2, 1, 1))
    drawn[10][2][1, 2] = False  # one query of the second text
    for q, _, _ in drawn[5:]:
        q.mul_(3)
    low = -torch.randint(10, 14, (2, 4, 1), generator=generator).float()  # whole numbers: no rounding
    low[:, -1] = torch.tensor([[20.0], [-20.0]])  # only the last query may look at this key
    for (q, k, _), keys, strength in zip(drawn[11:], low, (4.0, 20.0), strict=True):
        q.fill_(strength)  # scores of -40 to -52 and one of 80; then of -200 to -260 and one of -400
        k.copy_(keys)
    return drawn


def draw_heads(generator: torch.Generator) -> list[tuple]:
    """Draw tokens, matrices, a mask: T = 1, equal sizes, a query that sees nothing, scores far apart."""
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
    ]
    drawn = []
    for batch, T, C, head_size, d_v in sizes:
        x = torch.randn(*batch, T, C, generator=generator)
        matrices = [torch.randn(C, width, generator=generator) for width in (head_size, head_size, d_v)]
        drawn.append((x, *matrices, causal_mask(T)))
    drawn[3][4][2] = False
    drawn[6][4][0] = False
    x, W_query, W_key, _, _ = drawn[8]  # scores of -200 to -260, and one of 200 that most queries do not see
    x[:, 0] = 1.0
    x[:, 1] = torch.cat([-torch.randint(10, 14, (3,), generator=generator), torch.tensor([10])])
    W_query[:, 0], W_key[:, 0] = torch.tensor([20.0, 0.0]), torch.tensor([0.0, 1.0])
    return drawn


def draw_lengths(generator: torch.Generator) -> list[tuple]:
    """Draw T: 2, 3, 4, one up to 10, and one so large that a strength which suits a word is too soft."""
    return [(2,), (3,), (4,), (int(torch.randint(5, 11, (), generator=generator)),), (32,)]


def share_out(scores, mask, dim=-1):
    """Return the softmax of masked scores, with zeros where the mask is False."""
    return torch.softmax(scores.masked_fill(~mask, -INF), dim=dim).masked_fill(~mask, 0.0)


def scores_of(q, k):
    """Return the scores, scaled."""
    return q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5


def renormalised(scores, mask):
    """Take the softmax of all scores, and divide what the mask leaves of each row by its sum."""
    weights = torch.softmax(scores, dim=-1) * mask
    return weights / weights.sum(dim=-1, keepdim=True).clamp(min=1e-9)


def head(x, W_query, W_key, W_value, mask, weigh=share_out):
    """Return the output of a head whose weights are `weigh(scores, mask)`."""
    return weigh(scores_of(x @ W_query, x @ W_key), mask) @ (x @ W_value)


def rescaled(factor):
    """Return a head whose scores are multiplied by `factor(head_size, C)`, and not by 1 / sqrt(head_size)."""

    def wrong(x, W_query, W_key, W_value, mask):
        C, head_size = W_query.shape
        scores = (x @ W_query) @ (x @ W_key).transpose(-2, -1) * factor(head_size, C)
        return share_out(scores, mask) @ (x @ W_value)

    return wrong


def strengths(T, strength, shift, last=None):
    """Return the causal weights of queries that ask for position t - shift, up to the `last` one."""
    wanted = torch.zeros(T, T)
    for t in range(shift, T if last is None else last + 1):
        wanted[t, t - shift] = strength
    return position_weights(wanted, torch.eye(T))


NO_SCALE = (
    "The scores are not scaled. A dot product over many channels is larger than one over few, and softmax "
    "then gives nearly everything to one key. Multiply the scores by head_size ** -0.5 before the softmax."
)
BY_HEAD_SIZE = (
    "The scores are divided by head_size, and that makes them too small. Divide by its square root: multiply "
    "by head_size ** -0.5."
)
NO_MASK = (
    "The mask is not used: each query looks everywhere. Fill the scores with -inf where the mask is False, "
    "before the softmax. If you did call `masked_fill`, keep its result: it changes nothing in place."
)
MASK_AFTER = (
    "The mask comes after the softmax. By then the hidden keys have had their share of the total of 1, and "
    "what is left of a row sums to less. Set the scores to -inf before the softmax."
)
WRONG_DIM = (
    "Softmax ran along the queries: each column sums to 1, and the rows do not. A row is one query, and its "
    "keys lie along the last dimension. Use dim=-1."
)
SEES_NOTHING = (
    "It is right but for queries that may look at nothing: their scores are all -inf, and softmax makes 0/0 "
    "of them, NaN. Set the weights to 0 where the mask is False, after the softmax as well."
)


def sees_nothing(no_nan: Callable[..., bool], zeros: Callable[..., bool]) -> tuple[Property, Property]:
    """Make two claims about a query that may look at nothing; only the first says what went wrong."""
    return (
        Property(
            "A query that may look at nothing gets no NaN.", no_nan, "nothing_to_see_gives_nan", SEES_NOTHING
        ),
        Property("A query that may look at nothing gets zeros, and no mean of all values.", zeros),
    )


EXERCISES = (
    Exercise(
        name="attention_weights",
        task="Take `q` of shape (..., T_q, head_size), `k` of shape (..., T_k, head_size) and a boolean "
        "`mask`, True where a query may look. Return the weights, shape (..., T_q, T_k), with scores "
        "scaled by 1 / sqrt(head_size). A query that may look at nothing has a row of zeros.",
        reference=attention_weights,
        draw_inputs=draw_queries,
        properties=(
            Property(
                "A row sums to 1 where its query may look at something.",
                lambda f, q, k, m: close(m.any(-1).float().expand(q.shape[:-1]), f(q, k, m).sum(dim=-1)),
            ),
            Property(
                "Hidden keys get no weight.",
                lambda f, q, k, m: not f(q, k, m)[~m.expand(*q.shape[:-1], k.shape[-2])].any(),
            ),
            Property(
                "A query of zeros looks evenly at all it may see.",
                lambda f, q, k, m: close(
                    (m / m.sum(-1, keepdim=True).clamp(min=1)).expand(*q.shape[:-1], k.shape[-2]),
                    f(0 * q, k, m),
                ),
            ),
            Property(
                "Keys in another order get the same weights, in that order.",
                lambda f, q, k, m: close(f(q, k, m).flip(-1), f(q, k.flip(-2), m.flip(-1))),
            ),
            trained_through(attention_weights),
        ),
        mistakes=(
            Mistake(
                "no_transpose",
                lambda q, k, m: share_out(q @ k * q.shape[-1] ** -0.5, m),
                "You multiply `q @ k`. It runs only where T_k equals head_size, and adds up different "
                "channels of different keys. A score is the dot product of two rows, so swap the last two "
                "dimensions of k.",
            ),
            Mistake(
                "wrong_transpose",
                lambda q, k, m: share_out(q.transpose(-2, -1) @ k * q.shape[-1] ** -0.5, m),
                "You transposed q in place of k. That product compares channels with channels, of shape "
                "(head_size, head_size). A row for each query and a column for each key: transpose k.",
            ),
            Mistake(
                "transposes_the_batch",
                lambda q, k, m: share_out(q @ k.transpose(0, 1) * q.shape[-1] ** -0.5, m),
                "It is right for (T_k, head_size) only. With a batch, `transpose(0, 1)` swaps the texts "
                "with their tokens. Count from the end: `transpose(-2, -1)` swaps the last two, whatever "
                "comes before.",
            ),
            Mistake(
                "counts_dims_from_the_front",
                lambda q, k, m: share_out(q @ k.transpose(1, 2) * q.shape[-1] ** -0.5, m),
                "It is right for (B, T_k, head_size) only. `transpose(1, 2)` raises an error without a "
                "batch, and with two leading dimensions it swaps the wrong pair. Count from the end: "
                "`transpose(-2, -1)`.",
            ),
            Mistake(
                "q_and_k_swapped",
                lambda q, k, m: share_out(scores_of(k, q), m),
                "The scores are transposed: row t holds what every query thinks of key t. `k @ q^T` has keys "
                "as rows. It runs only where there are as many keys as queries. Let q stand on the left.",
            ),
            Mistake("softmax_over_the_queries", lambda q, k, m: share_out(scores_of(q, k), m, -2), WRONG_DIM),
            Mistake(
                "softmax_over_the_queries_with_nan",
                lambda q, k, m: torch.softmax(scores_of(q, k).masked_fill(~m, -INF), dim=-2),
                f"{WRONG_DIM} (The NaN comes from columns, or later rows, in which everything is hidden.)",
            ),
            Mistake("no_mask", lambda q, k, m: torch.softmax(scores_of(q, k), dim=-1), NO_MASK),
            Mistake(
                "mask_after_softmax", lambda q, k, m: torch.softmax(scores_of(q, k), dim=-1) * m, MASK_AFTER
            ),
            Mistake(
                "inverted_mask",
                lambda q, k, m: share_out(scores_of(q, k), ~m),
                "The mask is inverted: hidden keys get the weight, and visible ones none. `masked_fill` "
                "fills where its mask is True. Hand it `~mask`.",
            ),
            Mistake(
                "inverted_mask_with_nan",
                lambda q, k, m: torch.softmax(scores_of(q, k).masked_fill(m, -INF), dim=-1),
                "The mask is inverted: hidden keys get the weight, and a query that may look everywhere is "
                "NaN. `masked_fill` fills where its mask is True. Hand it `~mask`.",
            ),
            Mistake(
                "zero_in_place_of_inf",
                lambda q, k, m: torch.softmax(scores_of(q, k) * m, dim=-1),
                "Hidden keys still get weight. A score of 0 is no mask: exp(0) is 1, and often more than "
                "visible keys have. Only exp(-inf) is 0 whatever the other scores are: fill with -inf.",
            ),
            Mistake(
                "nothing_to_see_gives_nan",
                lambda q, k, m: torch.softmax(scores_of(q, k).masked_fill(~m, -INF), dim=-1),
                SEES_NOTHING,
            ),
            Mistake(
                "large_negative_number",
                lambda q, k, m: torch.softmax(scores_of(q, k).masked_fill(~m, -1e9), dim=-1),
                "It is right but for queries that may look at nothing. A score such as -1e9 hides a key only "
                "beside a better one; where all keys have it, all get the same weight, and zeros are wanted.",
            ),
            Mistake("no_scale", lambda q, k, m: share_out(q @ k.transpose(-2, -1), m), NO_SCALE),
            Mistake(
                "no_scale_with_nan",
                lambda q, k, m: torch.softmax((q @ k.transpose(-2, -1)).masked_fill(~m, -INF), dim=-1),
                f"{NO_SCALE} And a query that may look at nothing gets NaN: set hidden weights to 0 at the "
                "end.",
            ),
            Mistake(
                "divides_by_head_size",
                lambda q, k, m: share_out(q @ k.transpose(-2, -1) / q.shape[-1], m),
                BY_HEAD_SIZE,
            ),
            Mistake(
                "multiplies_by_the_root",
                lambda q, k, m: share_out(q @ k.transpose(-2, -1) * q.shape[-1] ** 0.5, m),
                "The scores are multiplied by sqrt(head_size), and they should be divided by it. The "
                "exponent is -0.5, with a minus.",
            ),
            Mistake(
                "scaled_after_softmax",
                lambda q, k, m: share_out(q @ k.transpose(-2, -1), m) * q.shape[-1] ** -0.5,
                "The scale comes after the softmax, so rows sum to less than 1. It belongs on the scores: "
                "there it changes how the weight is shared out, and not how much of it there is.",
            ),
            Mistake(
                "returns_the_scores",
                lambda q, k, m: scores_of(q, k).masked_fill(~m, -INF),
                "These are the masked scores. A softmax along the keys is still to come: weights are "
                "between 0 and 1, and each row sums to 1.",
            ),
            Mistake(
                "renormalised_by_hand",
                lambda q, k, m: renormalised(scores_of(q, k), m),
                "It is right but where a hidden score lies far above all visible ones. There softmax rounds "
                "the visible weights down to 0, and no division brings them back. Set hidden scores to -inf "
                "before the softmax: then what is left sums to 1 by itself.",
            ),
            Mistake(
                "scaled_by_the_number_of_keys",
                lambda q, k, m: share_out(q @ k.transpose(-2, -1) * k.shape[-2] ** -0.5, m),
                "The scores are divided by sqrt(T_k), the number of keys. The dot product runs over the "
                "channels of a query and a key: it is their number, head_size, that makes it large.",
            ),
        ),
        hints=(
            "One score for each pair: row t of q with row s of k. Which of the two has to be transposed, so "
            "that the inner dimensions of the product are both head_size?",
            "Scores: `q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5`. Then -inf with `masked_fill` where the "
            "mask is False, then softmax along dim=-1.",
            "A row that is all -inf comes out of the softmax as NaN. `weights.masked_fill(~mask, 0.0)` "
            "repairs it, and changes no other row: their hidden weights are 0 already.",
        ),
        insight="This one function takes (T, head_size), a batch, and a batch of several heads, because it "
        "counts dimensions from the end. Rung 7 hands it all heads at once.",
        minutes=10,
        difficulty=3,
    ),
    Exercise(
        name="head_forward",
        task="Take tokens `x` of shape (T, C) or (B, T, C), `W_query` and `W_key` of shape (C, head_size), "
        "`W_value` of shape (C, d_v) and a boolean `mask` of shape (T, T). Return the output of the "
        "head, shape (T, d_v) or (B, T, d_v). You may call `attention_weights`.",
        reference=head_forward,
        draw_inputs=draw_heads,
        properties=(
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
            Property(
                "A change of the last token moves no earlier row.",
                lambda f, x, q, k, v, m: close(
                    f(x, q, k, v, m)[..., :-1, :],
                    f(torch.cat([x[..., :-1, :], 1 - x[..., -1:, :]], dim=-2), q, k, v, m)[..., :-1, :],
                ),
            ),
            Property(
                "A text in a batch gives what it gives alone.",
                lambda f, x, q, k, v, m: x.dim() == 2 or close(f(x[0], q, k, v, m), f(x, q, k, v, m)[0]),
            ),
            trained_through(head_forward),
        ),
        mistakes=(
            Mistake(
                "averages_x",
                lambda x, q, k, v, m: share_out(scores_of(x @ q, x @ k), m) @ x,
                "The weights are right, and they average the tokens x. A token hands over its value, "
                "`x @ W_value`. Where d_v is not C, the shape shows it; where it is, only the numbers do.",
            ),
            Mistake(
                "averages_the_keys",
                lambda x, q, k, v, m: share_out(scores_of(x @ q, x @ k), m) @ (x @ k),
                "The weights are right, and they average the keys. Keys are there to be found by; what is "
                "handed over is the value, `x @ W_value`.",
            ),
            Mistake(
                "keys_from_W_query",
                lambda x, q, k, v, m: head(x, q, q, v, m),
                "Queries and keys are the same: both come from W_query. Then the scores are symmetric, and "
                "each token mostly finds itself. Keys are `x @ W_key`.",
            ),
            Mistake(
                "queries_from_W_key",
                lambda x, q, k, v, m: head(x, k, k, v, m),
                "Queries and keys are the same: both come from W_key. Then the scores are symmetric, and "
                "each token mostly finds itself. Queries are `x @ W_query`.",
            ),
            Mistake(
                "inverted_mask",
                lambda x, q, k, v, m: head(x, q, k, v, ~m),
                "The mask is inverted: a query sees what it should not, and nothing else. `masked_fill` "
                "fills where its mask is True, and `attention_weights` looks where its mask is True.",
            ),
            Mistake(
                "always_causal",
                lambda x, q, k, v, m: head(x, q, k, v, causal_mask(x.shape[-2])),
                "The mask that was handed in is not used. Yours is the causal one, and that is right as long "
                "as no other is asked for. Here some queries may look at nothing. Use the argument `mask`.",
            ),
            Mistake(
                "q_and_k_swapped",
                lambda x, q, k, v, m: head(x, k, q, v, m),
                "Queries and keys have changed places: row t holds the scores that others give to token t. "
                "The one that asks stands on the left: `q @ k.transpose(-2, -1)`, with q from W_query.",
            ),
            Mistake(
                "no_transpose",
                lambda x, q, k, v, m: share_out((x @ q) @ (x @ k) * q.shape[-1] ** -0.5, m) @ (x @ v),
                "You multiply `q @ k`. It runs only where T equals head_size, and adds up different "
                "channels of different keys. A score is the dot product of two rows: transpose the last two"
                " dimensions of k.",
            ),
            Mistake(
                "wrong_transpose",
                lambda x, q, k, v, m: (
                    share_out((x @ q).transpose(-2, -1) @ (x @ k) * q.shape[-1] ** -0.5, m) @ (x @ v)
                ),
                "You transposed q in place of k. That compares channels with channels, and runs only where "
                "head_size equals T. A row for each query and a column for each key: transpose k.",
            ),
            Mistake(
                "softmax_over_the_queries",
                lambda x, q, k, v, m: head(x, q, k, v, m, lambda s, m: share_out(s, m, -2)),
                WRONG_DIM,
            ),
            Mistake(
                "no_mask",
                lambda x, q, k, v, m: head(x, q, k, v, m, lambda s, m: torch.softmax(s, dim=-1)),
                NO_MASK,
            ),
            Mistake(
                "mask_after_softmax",
                lambda x, q, k, v, m: head(x, q, k, v, m, lambda s, m: torch.softmax(s, dim=-1) * m),
                MASK_AFTER,
            ),
            Mistake(
                "nothing_to_see_gives_nan",
                lambda x, q, k, v, m: head(
                    x, q, k, v, m, lambda s, m: torch.softmax(s.masked_fill(~m, -INF), dim=-1)
                ),
                SEES_NOTHING,
            ),
            Mistake("no_scale", rescaled(lambda head_size, C: 1.0), NO_SCALE),
            Mistake("divides_by_head_size", rescaled(lambda head_size, C: 1 / head_size), BY_HEAD_SIZE),
            Mistake(
                "scaled_by_C",
                rescaled(lambda head_size, C: C**-0.5),
                "The scores are divided by sqrt(C). The dot product runs over the head_size channels of q "
                "and k, not over the C channels of a token: divide by sqrt(head_size).",
            ),
            Mistake(
                "matrices_transposed",
                lambda x, q, k, v, m: head(x, q.T, k.T, v.T, m),
                "You multiply `x @ W.T`, which runs only where the matrices are square. `nn.Linear` keeps "
                "its weight as (out, in) and does that; here the matrices are (in, out): `x @ W_query`.",
            ),
            Mistake(
                "returns_the_weights",
                lambda x, q, k, v, m: share_out(scores_of(x @ q, x @ k), m),
                "These are the weights, shape (..., T, T). The head's output is what they make of the "
                "values: `weights @ v`.",
            ),
            Mistake(
                "weights_transposed",
                lambda x, q, k, v, m: head(x, q, k, v, m, lambda s, m: share_out(s, m).transpose(-2, -1)),
                "The weights are right and then transposed: output t gathers what others take of token t, "
                "the later ones too. A row of weights makes one output: `weights @ v`.",
            ),
        ),
        hints=(
            "Three products first, one for each matrix. Which of the three results takes no part in the "
            "scores?",
            "`q = x @ W_query`, `k = x @ W_key`, `v = x @ W_value`. The weights come from q, k and the mask.",
            "`attention_weights(q, k, mask) @ v`.",
        ),
        insight="W_query and W_key meet only in the product `W_query @ W_key.T`: scale one up and the other"
        " down by the same factor, and no output changes. W_value never touches the weights.",
        minutes=6,
        difficulty=2,
    ),
    Exercise(
        name="previous_token",
        task="The tokens are one-hot positions, 0 to T - 1. Write `W_query` and `W_key`, each with T rows "
        "and as many columns as you like, so that every position but the first puts a weight of at "
        "least 0.99 on the one before it. End with `return position_weights(W_query, W_key)`: only the"
        " weights are judged.",
        reference=previous_token,
        draw_inputs=draw_lengths,
        properties=(
            Property("Each row sums to 1.", lambda f, T: close(torch.ones(T), f(T).sum(dim=-1))),
            Property("No position looks at a later one.", lambda f, T: not f(T).triu(1).any()),
            Property(
                "Every position but the first likes the one before it best.",
                lambda f, T: torch.equal(f(T)[1:].argmax(dim=-1), torch.arange(T - 1)),
            ),
            Property("It puts 0.99 of its weight there.", lambda f, T: (f(T).diagonal(-1) >= 0.99).all()),
        ),
        mistakes=(
            Mistake(
                "too_soft",
                lambda T: strengths(T, 1.0, 1),
                "The right position has the largest weight in each row, and not nearly all of it: its score"
                " is only 1 above the others, before the scale. Multiply W_query by something large, such "
                "as 100.",
            ),
            Mistake(
                "too_soft_for_32_positions",
                lambda T: strengths(T, 20.0, 1),
                "20 is enough for a word. With T = 32 it is divided by the square root of 32, and up to 31 "
                "other keys share the weight: not even 0.6 of the weight is left for the right one. "
                "Multiply W_query by something larger, such as 100.",
            ),
            Mistake(
                "equal_weights",
                lambda T: strengths(T, 0.0, 1),
                "Each row shares its weight evenly over all it may see: their scores are equal. If your "
                "matrices are not zeros, they may be swapped: then each query asks for the next position, "
                "which the mask hides. In row t of W_query stands what position t asks for: t - 1.",
            ),
            Mistake(
                "finds_itself",
                lambda T: strengths(T, 1000.0, 0),
                "Each position finds itself: query t fits key t best. One of the two matrices has to be "
                "moved by one row, so that query t is what key t - 1 offers.",
            ),
            Mistake(
                "two_back",
                lambda T: strengths(T, 1000.0, 2),
                "Position t finds t - 2. The shift is one row too many; or both matrices were shifted, in "
                "opposite directions. Shift one of them, by one.",
            ),
            Mistake(
                "every_earlier_token",
                lambda T: position_weights(1000 * torch.ones(T, T).tril(-1), torch.eye(T)),
                "Each position shares its weight over all earlier ones: `tril(-1)` asks for every one of "
                "them. A query should fit a single key: keep only the first diagonal below the main one.",
            ),
            Mistake(
                "all_but_the_previous",
                lambda T: strengths(T, -1000.0, 1),
                "Each position looks everywhere but at the one before it. The sign is wrong: a higher score"
                " asks for more weight, so the wanted key needs a large positive one.",
            ),
            Mistake(
                "finds_the_first",
                lambda T: position_weights(torch.ones(T, 1), -1000.0 * torch.arange(T)[:, None]),
                "Every position finds position 0. All queries are alike, so they all like the same key best. "
                "What a query asks for has to depend on its position t.",
            ),
            Mistake(
                "position_times_position",
                lambda T: position_weights(
                    100 * (torch.arange(T)[:, None] - 1.0), torch.arange(T)[:, None].float()
                ),
                "Most positions find themselves. A product of two positions grows with that of the key, so "
                "the last key that is visible wins. One column gives a straight line, which has no peak in "
                "between: it takes a second one.",
            ),
            Mistake(
                "last_position_asks_for_nothing",
                lambda T: strengths(T, 1000.0, 1, last=T - 2),
                "The last position looks evenly at all, and the others are right. Its query is zeros: the "
                "loop ends one row early. `range(1, T)` leaves T out already.",
            ),
        ),
        hints=(
            "If W_key is the identity, key s is a vector with a 1 in channel s. Which query has a large dot "
            "product with key t - 1, and with no other key?",
            "Row t of W_query wants a large number in column t - 1. You wrote a matrix with ones there in "
            "rung 2, the shift.",
            "`W_key = torch.eye(T)` and `W_query = 1000 * torch.eye(T).roll(1, dims=0)`. Row 0 asks for the"
            " last position, which the mask hides; it sees only itself.",
        ),
        insight="Any pair passes whose scores have a clear winner at t - 1; two columns are enough for "
        "every T. Trained language models have heads that do this.",
        minutes=10,
        difficulty=4,
        tolerance=1e-2,  # the last property asks for the rest
    ),
)
