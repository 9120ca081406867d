"""Rung 5: the scale in its place, the variance that it leads to, and the scale for a wanted variance."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from attention_course.exercises.engine import Exercise, Mistake, Property, close, trained_through


def scaled_weights(
    x: Float[Tensor, "*B T C"],
    w_query: Float[Tensor, "C head_size"],
    w_key: Float[Tensor, "C head_size"],
) -> Float[Tensor, "*B T T"]:
    """Let each token look at every token of its text, with scores scaled by 1 / sqrt(head_size).

    Args:
        x: tokens, shape (T, C) or (B, T, C).
        w_query: turns a token into a query, shape (C, head_size).
        w_key: turns a token into a key, shape (C, head_size).

    Returns:
        Weights, shape (T, T) or (B, T, T); each row sums to 1.
    """
    q, k = x @ w_query, x @ w_key
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    return torch.softmax(scores, dim=-1)


def predicted_variance(
    var_q: Float[Tensor, " heads"], var_k: Float[Tensor, " heads"], head_size: int, scale: float
) -> Float[Tensor, " heads"]:
    """Predict the variance of the scores q · k * scale, of entries that are independent with mean 0.

    Args:
        var_q: variance of the entries of the queries, one number a head.
        var_k: variance of the entries of the keys, one number a head.
        head_size: channels of a query and of a key.
        scale: what the dot products are multiplied by.

    Returns:
        The variance of the scores of each head, same shape.
    """
    return head_size * var_q * var_k * scale**2


def scale_for_variance(
    var_q: Float[Tensor, " heads"], var_k: Float[Tensor, " heads"], head_size: int, variance: float
) -> Float[Tensor, " heads"]:
    """Choose the positive scale with which the scores have the wanted variance.

    Args:
        var_q: variance of the entries of the queries, one number a head.
        var_k: variance of the entries of the keys, one number a head.
        head_size: channels of a query and of a key.
        variance: what the variance of the scores should be.

    Returns:
        What to multiply the dot products by in each head, same shape.
    """
    return (variance / (head_size * var_q * var_k)) ** 0.5


def draw_heads(generator: torch.Generator) -> list[tuple]:
    """Draw tokens and the weights of q and k: T = 1, whole numbers, all sizes different, scores far apart."""
    T, C, head_size = (torch.randperm(4, generator=generator)[:3] + 3).tolist()
    sizes = [((1,), 2, 3), ((2,), 3, 4), ((T,), C, head_size), ((2, T), C, head_size), ((3, 4), 6, 2)]
    drawn = []
    for tokens, channels, size in sizes:
        x = torch.randint(-2, 3, (*tokens, channels), generator=generator).float()
        w_query, w_key = 0.3 * torch.randn(2, channels, size, generator=generator)
        drawn.append((x, w_query, w_key))
    drawn[1][0][:] = torch.tensor([[1.0, 0.0, 2.0], [0.0, 1.0, -1.0]])  # never two equal tokens
    drawn.append((torch.randn(7, 8, generator=generator), *torch.randn(2, 8, 16, generator=generator)))
    keys = torch.randint(10, 14, (4,), generator=generator).float()
    x = torch.stack([torch.tensor([1.0, -1.0, 0.0, 1.0]), keys], dim=1)
    w_query, w_key = torch.eye(2)[:, :, None]
    drawn.append((x, 20 * w_query, w_key))  # rows of 200 to 260, of -200 to -260, and of zeros
    return drawn


def draw_variances(generator: torch.Generator) -> list[tuple]:
    """Draw variances of one head and of several, a head_size, and a scale or a wanted variance.

    The second one, as a wanted variance, needs a scale above 1.
    """
    drawn = [
        (torch.tensor([4.0]), torch.tensor([1.0]), 16, 0.5),
        (torch.tensor([4.0]), torch.ones(1), 1, 9.0),
    ]
    for heads, head_size in ((1, 9), (2, 64), (3, 5)):
        var_q, var_k = 0.25 + 4 * torch.rand(2, heads, generator=generator)
        number = 0.1 + torch.rand((), generator=generator).item()
        drawn.append((var_q, var_k, head_size, number))
    return drawn


def measured_variance(
    var_q: Tensor, var_k: Tensor, head_size: int, scale: Tensor | float
) -> Float[Tensor, " heads"]:
    """Measure the variance of the scores of 4000 random pairs a head."""
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 4000, len(var_q), head_size, generator=generator)
    return ((q * k).sum(dim=-1) * (var_q * var_k).sqrt() * scale).var(dim=0)


def near(measured: Tensor, predicted: Tensor) -> bool:
    """Say whether they agree within a quarter: the variance of 4000 draws is known no better than that."""
    return measured.shape == predicted.shape and bool((measured / predicted - 1).abs().max() < 0.25)


def weights_with(
    scale: Callable[[Tensor, Tensor], float], dim: int = -1
) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Make an answer that multiplies the scores by scale(x, q)."""

    def answer(x, w_query, w_key):
        q, k = x @ w_query, x @ w_key
        return torch.softmax(q @ k.transpose(-2, -1) * scale(x, q), dim=dim)

    return answer


def scores_of(x, w_query, w_key):
    """Return scores that are scaled as they should be."""
    return x @ w_query @ (x @ w_key).transpose(-2, -1) / w_query.shape[1] ** 0.5


def by_hand(x, w_query, w_key):
    """Write softmax without subtracting the largest score."""
    heights = scores_of(x, w_query, w_key).exp()
    return heights / heights.sum(dim=-1, keepdim=True)


def causal(x, w_query, w_key):
    """Hide the later tokens."""
    scores = scores_of(x, w_query, w_key)
    future = torch.ones_like(scores).triu(1) == 1
    return torch.softmax(scores.masked_fill(future, -torch.inf), dim=-1)


EXERCISES = (
    Exercise(
        name="scaled_weights",
        task="Take tokens `x` of shape (T, C) or (B, T, C) and `w_query`, `w_key` of shape (C, head_size). "
        "Make q and k, and return the weights, shape (T, T) or (B, T, T): the softmax of the scaled scores, "
        "without a mask.",
        reference=scaled_weights,
        draw_inputs=draw_heads,
        properties=(
            Property(
                "Each row sums to 1.",
                lambda f, x, a, b: close(torch.ones(x.shape[:-1]), f(x, a, b).sum(dim=-1)),
            ),
            Property(
                "A query matrix of zeros gives every token the same weight.",
                lambda f, x, a, b: close(
                    torch.full((*x.shape[:-1], x.shape[-2]), 1 / x.shape[-2]), f(x, 0 * a, b)
                ),
            ),
            Property(
                "Each channel of q and k four times over: the same as scores times 2.",
                lambda f, x, a, b: close(f(x, 2 * a, b), f(x, a.repeat(1, 4), b.repeat(1, 4))),
            ),
            trained_through(scaled_weights),
        ),
        mistakes=(
            Mistake(
                "scaled_by_n_embd",
                weights_with(lambda x, q: x.shape[-1] ** -0.5),
                "The scale is 1/√C, of the size of a token. A score is a sum over the channels of q and k, "
                "and these are head_size many: take `q.shape[-1]`, not `x.shape[-1]`.",
            ),
            Mistake(
                "divided_by_head_size",
                weights_with(lambda x, q: 1 / q.shape[-1]),
                "You divide by head_size itself. The variance of the scores is then 1/head_size: the weights "
                "become nearly equal. Variance falls with the square of a factor, so the square root "
                "is enough.",
            ),
            Mistake(
                "scaled_by_sqrt_T",
                weights_with(lambda x, q: x.shape[-2] ** -0.5),
                "The scale is 1/√T, of the number of tokens. T is how many scores there are in a row; "
                "how many terms each of them adds up is head_size, `q.shape[-1]`.",
            ),
            Mistake(
                "multiplied",
                weights_with(lambda x, q: q.shape[-1] ** 0.5),
                "You multiply by √head_size, or divide by 1/√head_size, which is the same. The variance "
                "grows to head_size². Divide by √head_size, or multiply by `head_size**-0.5`.",
            ),
            Mistake(
                "scaled_after_softmax",
                lambda x, a, b: weights_with(lambda *_: 1.0)(x, a, b) / a.shape[1] ** 0.5,
                "You scale the weights, after the softmax. Rows no longer sum to 1, and the softmax has "
                "already seen the large scores. Scale the scores, before it.",
            ),
            Mistake(
                "not_scaled",
                weights_with(lambda x, q: 1.0),
                "The scores go into the softmax as they are. Their variance is head_size times that of q "
                "and of k. Divide them by √head_size.",
            ),
            Mistake(
                "scaled_twice",
                weights_with(lambda x, q: q.shape[-1] ** -1.5),
                "The scale comes in more than once, for example in q, in k and in the scores. Scaling q by "
                "1/√head_size scales the scores by as much: once is enough, wherever it stands.",
            ),
            Mistake(
                "half_of_the_scale",
                weights_with(lambda x, q: q.shape[-1] ** -0.25),
                "The scale is the fourth root of 1/head_size. It can be split, one fourth root for q and one "
                "for k, but then both have to get theirs.",
            ),
            Mistake(
                "shape_1",
                lambda x, a, b: torch.softmax(x @ a @ (x @ b).mT / (x @ a).shape[1] ** 0.5, dim=-1),
                "It is right for (T, C). For (B, T, C), `q.shape[1]` is T and not head_size. Count from the "
                "end: `q.shape[-1]`.",
            ),
            Mistake(
                "wrong_dim",
                weights_with(lambda x, q: q.shape[-1] ** -0.5, dim=-2),
                "The scale is right, and softmax runs along the queries: columns sum to 1. Each query shares "
                "out its weight over the keys, which lie along dim=-1.",
            ),
            Mistake(
                "q_and_k_swapped",
                lambda x, a, b: scaled_weights(x, b, a),
                "The scale is right, and q and k have changed places: a row belongs to a query, so q stands "
                "on the left of `@` and the transposed k on the right.",
            ),
            Mistake(
                "no_softmax",
                scores_of,
                "These are the scaled scores. The weights are their softmax, along the last dimension.",
            ),
            Mistake(
                "softmax_along_dim_1",
                weights_with(lambda x, q: q.shape[-1] ** -0.5, dim=1),
                "It is right for (T, C). For (B, T, C), dim=1 runs along the queries. The keys lie along the "
                "last dimension in both: dim=-1.",
            ),
            Mistake(
                "future_hidden",
                causal,
                "Later tokens are hidden. No mask is asked for here: each token looks at all tokens of its "
                "text.",
            ),
            Mistake(
                "no_max_subtraction",
                by_hand,
                "It is right for small scores. exp of a score above 88 is inf, and inf / inf is NaN. "
                "`torch.softmax` subtracts the largest score of each row first.",
            ),
        ),
        hints=(
            "How many products does one score add up? Neither T nor C has that number.",
            "`q = x @ w_query` has shape (..., T, head_size). Its last dimension is the number to take the "
            "square root of.",
            "`scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5`, and then softmax along dim=-1.",
        ),
        insight="Dividing q alone by √head_size gives the same scores, with T · head_size divisions where "
        "the scores have T · T. Either way the scale stands before the softmax.",
        minutes=6,
        difficulty=2,
    ),
    Exercise(
        name="predicted_variance",
        task="Queries and keys have independent entries with mean 0; `var_q` and `var_k`, shape (heads,), "
        "are their variances in each head. Return the variance of the scores that have been multiplied by "
        "`scale`, shape (heads,).",
        reference=predicted_variance,
        draw_inputs=draw_variances,
        properties=(
            Property(
                "Twice the head_size, twice the variance.",
                lambda f, a, b, n, s: close(2 * f(a, b, n, s), f(a, b, 2 * n, s)),
            ),
            Property(
                "Twice the scale, four times the variance.",
                lambda f, a, b, n, s: close(4 * f(a, b, n, s), f(a, b, n, 2 * s)),
            ),
            Property(
                "It is what 4000 random pairs show, within a quarter.",
                lambda f, a, b, n, s: near(measured_variance(a, b, n, s), f(a, b, n, s)),
            ),
        ),
        mistakes=(
            Mistake(
                "scale_not_squared",
                lambda a, b, n, s: n * a * b * s,
                "The scale has to be squared. Variance is a mean of squares, so scores that are half as "
                "large have a quarter of the variance.",
            ),
            Mistake(
                "scale_ignored",
                lambda a, b, n, s: n * a * b,
                "This is the variance before the scale. Multiplying scores by a number multiplies their "
                "variance by its square.",
            ),
            Mistake(
                "divided_by_the_scale",
                lambda a, b, n, s: n * a * b / s**2,
                "You divide by the square of the scale. The scores are multiplied by it: a scale below 1 "
                "makes the variance smaller.",
            ),
            Mistake(
                "head_size_missing",
                lambda a, b, n, s: a * b * s**2,
                "This is the variance of one product of a q and a k. A score adds up head_size of them, and "
                "the variances of independent terms add up.",
            ),
            Mistake(
                "root_of_head_size",
                lambda a, b, n, s: n**0.5 * a * b * s**2,
                "The standard deviation of a sum grows with √head_size. The variance is its square, and "
                "grows with head_size.",
            ),
            Mistake(
                "head_size_squared",
                lambda a, b, n, s: n**2 * a * b * s**2,
                "The variance grows with head_size, not with its square. It would grow with the square if "
                "all terms were equal; here they are independent, and partly cancel.",
            ),
            Mistake(
                "variances_added",
                lambda a, b, n, s: n * (a + b) * s**2,
                "You add the two variances. That is right for q + k. For the product of independent "
                "numbers with mean 0, the variances multiply.",
            ),
            Mistake(
                "standard_deviation",
                lambda a, b, n, s: (n * a * b).sqrt() * s,
                "This is the standard deviation, the square root of the variance. Leave the root out, and "
                "square the scale.",
            ),
            Mistake(
                "variances_squared",
                lambda a, b, n, s: n * (a * b * s) ** 2,
                "The variances are squared. They are squares already: the variance of q * k is var(q) times "
                "var(k). Only the scale has to be squared.",
            ),
            Mistake(
                "heads_added_up",
                lambda a, b, n, s: (n * (a * b).sum() * s**2).expand(len(a)),
                "All heads got one number: `@`, or a sum, added them up. Each head has queries and keys of "
                "its own, and so a variance of its own. Multiply entry by entry, with `*`.",
            ),
            Mistake(
                "head_size_shared_by_the_heads",
                lambda a, b, n, s: n / len(a) * a * b * s**2,
                "You divide head_size by the number of heads. It counts the channels of one head already; "
                "n_embd is what heads share.",
            ),
        ),
        hints=(
            "Begin with one term: what is the variance of q_i · k_i if both are independent with mean 0?",
            "A score adds up head_size such terms, and their variances add. What does a factor in front of "
            "the sum do to its variance?",
            "`head_size * var_q * var_k * scale**2`.",
        ),
        insight="With a scale of 1/√head_size the head_size cancels: what is left is var(q) · var(k). That "
        "is 1 only if both are 1, or if one makes up for the other.",
        minutes=5,
        difficulty=2,
    ),
    Exercise(
        name="scale_for_variance",
        task="As before, `var_q` and `var_k` have shape (heads,). Return the positive scale, shape (heads,), "
        "with which the scores of each head have the wanted `variance`. For example, var_q = 4, var_k = 1, "
        "head_size = 16 and variance = 1 need a scale of 1/8.",
        reference=scale_for_variance,
        draw_inputs=draw_variances,
        properties=(
            Property(
                "The variance that it leads to is the wanted one.",
                lambda f, a, b, n, v: close(torch.full_like(a, v), n * a * b * f(a, b, n, v) ** 2),
            ),
            Property("It is positive.", lambda f, a, b, n, v: (f(a, b, n, v) > 0).all()),
            Property(
                "With variances of 1, and 1 wanted, it is 1/√head_size.",
                lambda f, a, b, n, v: close(
                    torch.full_like(a, n**-0.5), f(torch.ones_like(a), torch.ones_like(b), n, 1.0)
                ),
            ),
            Property(
                "4000 random pairs have that variance, within a quarter.",
                lambda f, a, b, n, v: near(measured_variance(a, b, n, f(a, b, n, v)), torch.full_like(a, v)),
            ),
        ),
        mistakes=(
            Mistake(
                "only_head_size",
                lambda a, b, n, v: torch.full_like(a, n**-0.5),
                "1/√head_size gives the scores the variance var(q) · var(k). That is 1 if both are 1. Here "
                "they are not, and another variance may be wanted.",
            ),
            Mistake(
                "wanted_variance_ignored",
                lambda a, b, n, v: (n * a * b) ** -0.5,
                "With this scale the variance is 1, whatever was wanted. Solve "
                "`variance = head_size * var_q * var_k * scale**2` for the scale.",
            ),
            Mistake(
                "no_root",
                lambda a, b, n, v: v / (n * a * b),
                "This is the square of the scale. The formula has `scale**2` in it: take the square root at "
                "the end.",
            ),
            Mistake(
                "upside_down",
                lambda a, b, n, v: (n * a * b / v) ** 0.5,
                "This is the number to divide by. The scale is what scores are multiplied by: "
                "its reciprocal.",
            ),
            Mistake(
                "root_below_only",
                lambda a, b, n, v: v / (n * a * b) ** 0.5,
                "The wanted variance stands outside of the root. Scores of variance 1, times `variance`, "
                "have variance `variance**2`. Its square root has to be taken too.",
            ),
            Mistake(
                "root_of_head_size_only",
                lambda a, b, n, v: v**0.5 / (n**0.5 * a * b),
                "The root is missing over var_q and var_k. They are variances, and a scale compares with "
                "standard deviations, their square roots.",
            ),
            Mistake(
                "ignores_var_k",
                lambda a, b, n, v: (v / (n * a)) ** 0.5,
                "var_k is missing. Both variances multiply into the variance of the scores.",
            ),
            Mistake(
                "ignores_var_q",
                lambda a, b, n, v: (v / (n * b)) ** 0.5,
                "var_q is missing. Both variances multiply into the variance of the scores.",
            ),
            Mistake(
                "ignores_head_size",
                lambda a, b, n, v: (v / (a * b)) ** 0.5,
                "head_size is missing. A score adds up head_size products, and so has head_size times the "
                "variance of one.",
            ),
            Mistake(
                "divided_by_head_size",
                lambda a, b, n, v: (v / (a * b)) ** 0.5 / n,
                "You divide by head_size, and its square root is what is needed: the scale is squared in the "
                "variance, where head_size stands once.",
            ),
            Mistake(
                "variances_added",
                lambda a, b, n, v: (v / (n * (a + b))) ** 0.5,
                "You add the two variances. For a product of independent numbers with mean 0 they multiply.",
            ),
            Mistake(
                "division_before_multiplication",
                lambda a, b, n, v: (v / n * a * b) ** 0.5,
                "`variance / head_size * var_q * var_k` divides by head_size alone, and multiplies by the "
                "rest. All three belong below the line: put brackets around them.",
            ),
            Mistake(
                "wanted_variance_below_the_line",
                lambda a, b, n, v: (v * n * a * b) ** -0.5,
                "The wanted variance stands below the line, with the others. A larger one needs a larger "
                "scale: it belongs above.",
            ),
        ),
        hints=(
            "Which equation did the exercise before give you? Here the variance is known, and the scale is "
            "not.",
            "Divide both sides by `head_size * var_q * var_k`. What is left is `scale**2`.",
            "`(variance / (head_size * var_q * var_k)) ** 0.5`.",
        ),
        insight="When var(q) = 4, the scale is half of 1/√head_size: the same as dividing q by its standard "
        "deviation, 2, first. QK-norm divides q and k by their own length, in training too.",
        minutes=6,
        difficulty=3,
    ),
)
