"""Rung 3: the mean of the past as a softmax, a softmax that survives large scores, and a padding mask."""

from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attention_course.attention import causal_mask, softmax
from attention_course.averaging import causal_mean_softmax
from attention_course.exercises.bag_of_words import MEAN_PROPERTIES, WHOLE_SEQUENCE, draw_tokens
from attention_course.exercises.engine import Exercise, Mistake, Property, close
from attention_course.exercises.tril_matmul import ONE_STEP_AHEAD

INF = float("inf")


def padding_weights(
    scores: Float[Tensor, "B T_q T_k"], lengths: Int[Tensor, " B"]
) -> Float[Tensor, "B T_q T_k"]:
    """Turn scores into weights that leave out the padding of each text.

    Args:
        scores: shape (B, T_q, T_k).
        lengths: how many keys of each text are real, shape (B,), from 0 to T_k. The rest is padding.

    Returns:
        Weights, same shape: 0 for padding, and each row sums to 1. With no real key a row is zeros.
    """
    position = torch.arange(scores.shape[-1], device=scores.device)
    mask = position < lengths[:, None, None]  # (B, 1, T_k), True where a query may look
    weights = torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)
    return weights.masked_fill(~mask, 0.0)  # with no real key, softmax gave NaN


def draw_scores(generator: torch.Generator) -> list[tuple]:
    """Draw scores: one number, one row, C == T, batches, rows far apart, all near 1000 or -1000, and wide."""
    T, C = (torch.randperm(4, generator=generator)[:2] + 3).tolist()
    shapes = [(1,), (3,), (1, 2), (2, 3), (4, 4), (1, T, C), (2, T, C), (3, 4, 4)]
    drawn = [torch.randn(shape, generator=generator) for shape in shapes]
    one_high, one_low = torch.tensor([[[0.0], [1000.0]], [[-1000.0], [0.0]]])
    shifted = [drawn[3] + one_high, drawn[3] + one_low, drawn[1] + 1000, drawn[4] - 1000]
    wide = 1000 * drawn[6].round().clamp(-2, 2)
    wide[..., 0] = wide[..., 0].abs()  # rows that are negative throughout are among those above
    wide[0, 0] = -2000.0
    wide[0, 0, 0] = 1000.0
    return [(x,) for x in (*drawn, *shifted, wide)]


def draw_padded(generator: torch.Generator) -> list[tuple]:
    """Draw scores and lengths: T = 1, B = 1, B == T_q, T_q == T_k, lengths 0 and T_k, large values."""
    shapes = [(1, 1, 1), (1, 2, 3), (2, 3, 4), (2, 3, 3), (3, 3, 5), (4, 2, 5), (3, 5, 7)]
    drawn = []
    for B, T_q, T_k in shapes:
        lengths = torch.randint(1, T_k + 1, (B,), generator=generator)
        drawn.append((torch.randn(B, T_q, T_k, generator=generator), lengths))
    drawn[2][1][:] = torch.tensor([2, 4])
    drawn[3][1][:] = torch.tensor([2, 0])
    drawn[4][1][:] = torch.tensor([1, 3, 5])
    drawn[6][1][:] = torch.tensor([0, 3, 6])
    drawn[6][0][1, 0, 4] = 5.0  # padding, with a score far above those of all keys
    drawn[6][0][1, 1, :3] -= 9.0  # keys with scores so low that a finite fill may lie above them
    drawn[6][0].mul_(1e4)
    return drawn


def causal_scores(x):
    """Return scores of 0 with -inf in the future, shape (T, T)."""
    T = x.shape[-2]
    return torch.zeros(T, T).masked_fill(~causal_mask(T), -INF)


def padding_mask(scores, lengths):
    """Return a boolean mask, shape (B, 1, T_k), True where a query may look."""
    return torch.arange(scores.shape[-1]) < lengths[:, None, None]


def masked(scores, mask, fill=-INF, dim=-1):
    """Return the softmax of scores that are `fill` where the mask is False."""
    return torch.softmax(scores.masked_fill(~mask, fill), dim=dim)


def hides_itself(T):
    """Return weights without the diagonal, shape (T, T); row 0 is empty."""
    return masked(torch.zeros(T, T), causal_mask(T).tril(-1)).nan_to_num(0)


def one_key_more(scores, lengths):
    """See one key of the padding, and none where there is no real one."""
    weights = masked(scores, padding_mask(scores, lengths + 1))
    return weights * (lengths > 0)[:, None, None]


def exps_of_the_scores(scores, lengths):
    """Divide exponentials by their sum, without subtracting a maximum."""
    exps = scores.exp() * padding_mask(scores, lengths)
    return exps / exps.sum(dim=-1, keepdim=True).clamp(min=1e-9)


def padded_queries(scores, lengths):
    """Hide rows where columns should be hidden."""
    real = torch.arange(scores.shape[-2])[:, None] < lengths[:, None, None]  # (B, T_q, 1)
    return masked(scores, real).nan_to_num(0)


def renormalised(scores, lengths):
    """Take the softmax of all scores, and divide what the padding leaves of each row by its sum."""
    weights = torch.softmax(scores, dim=-1) * padding_mask(scores, lengths)
    return weights / weights.sum(dim=-1, keepdim=True)


def keys_and_queries(scores, lengths):
    """Hide the padding's columns, and its rows too."""
    real = torch.arange(scores.shape[-2])[:, None] < lengths[:, None, None]  # (B, T_q, 1)
    return masked(scores, padding_mask(scores, lengths) & real).nan_to_num(0)


EXERCISES = (
    Exercise(
        name="causal_mean_softmax",
        task="Take tokens `x` of shape (T, C) or (B, T, C) and return the mean of the past, same shape. Get "
        "the (T, T) weights as a softmax of scores that are 0 for the past and -inf for the future.",
        reference=causal_mean_softmax,
        draw_inputs=draw_tokens,
        properties=MEAN_PROPERTIES,
        mistakes=(
            Mistake(
                "wrong_dim",
                lambda x: torch.softmax(causal_scores(x), dim=0) @ x,
                "Softmax ran along the wrong dimension: each column of the weights sums to 1, and the rows "
                "do not. A row is one query, and its keys lie along the last dimension. Use dim=-1.",
            ),
            Mistake(
                "mask_after_softmax",
                lambda x: torch.softmax(torch.zeros(T := x.shape[-2], T), dim=-1).tril() @ x,
                "The mask comes after the softmax. By then the future has had its share of the total of 1, "
                "and what is left of a row sums to less. Set the scores to -inf before the softmax.",
            ),
            Mistake(
                "zero_in_place_of_inf",
                WHOLE_SEQUENCE.function,
                "All tokens weigh the same, the future too. A score of 0 is no mask: exp(0) is 1, the same "
                "share as the others get. Only exp(-inf) is 0 whatever the other scores are. Or "
                "`masked_fill` was called and its result not kept: it changes nothing in place.",
            ),
            Mistake(
                "inverted_mask",
                lambda x: masked(torch.zeros(T := x.shape[-2], T), ~causal_mask(T)) @ x,
                "The mask is inverted: the past is hidden, and the future is seen. The last row has nothing "
                "to look at and becomes NaN. `masked_fill` fills where its mask is True: hand it the future.",
            ),
            Mistake(
                "diagonal_hidden",
                lambda x: masked(torch.zeros(T := x.shape[-2], T), causal_mask(T).tril(-1)) @ x,
                "The diagonal is hidden too, so no token sees itself. All scores of row 0 are -inf, and "
                "their softmax is 0/0: NaN. A query may look at its own position.",
            ),
            Mistake(
                "finite_score",
                lambda x: masked(torch.zeros(T := x.shape[-2], T), causal_mask(T), fill=-1.0) @ x,
                "The future still gets some weight. Its score is 1 below that of the past, such as -1 beside "
                "0, or a 0 of `tril` beside 1, and so it weighs exp(-1) = 0.37 of it. Only exp(-inf) is 0 "
                "whatever the other scores are.",
            ),
            Mistake(
                "diagonal_hidden_without_nan",
                lambda x: hides_itself(x.shape[-2]) @ x,
                "The diagonal is hidden too, so no token sees itself. Row 0 was NaN for that reason, and "
                "zeros in its place hide the cause. A query may look at its own position.",
            ),
            Mistake(
                "zero_times_inf",
                lambda x: torch.softmax(-INF * (~causal_mask(x.shape[-2])).float(), dim=-1) @ x,
                "A product with -inf put NaN into the scores: 0 * -inf is no number, and softmax spreads it "
                "over the row. Multiplying cannot leave a score alone. Fill the future with `masked_fill`.",
            ),
            ONE_STEP_AHEAD,
            Mistake(
                "no_softmax",
                lambda x: causal_scores(x) @ x,
                "The scores went into the product without a softmax, and -inf in a sum gives inf or NaN. "
                "Scores say how much a query wants to look; softmax makes weights of them.",
            ),
            Mistake(
                "tokens_first",
                lambda x: x @ torch.softmax(causal_scores(x), dim=-1),
                "You multiply `x @ weights`. That mixes channels, not tokens, and runs only where C equals "
                "T. A row of the left matrix mixes the rows of the right one: weights stand left.",
            ),
        ),
        hints=(
            "Start with `scores = torch.zeros(T, T)`: every query finds every key equally interesting. What "
            "does softmax make of such a row?",
            "`torch.ones(T, T, dtype=torch.bool).tril()` is a mask, True where a query may look. "
            "`scores.masked_fill(...)` fills where its argument is True, so give it `~mask`.",
            "`weights = torch.softmax(scores.masked_fill(~mask, float('-inf')), dim=-1)`, and `weights @ x`.",
        ),
        insight="A fill of -1e9 passes here too. It fails where a row has no visible key, as in exercise 3.",
        minutes=7,
        difficulty=2,
    ),
    Exercise(
        name="stable_softmax",
        task="Write softmax over the last dimension of `x`, for any shape such as (C,), (T, C) or (B, T, C), "
        "without `torch.softmax`. It has to survive scores of 1000.",
        reference=partial(softmax, dim=-1),
        draw_inputs=draw_scores,
        properties=(
            Property(
                "The weights along the last dimension sum to 1.",
                lambda f, x: close(torch.ones(x.shape[:-1]), f(x).sum(dim=-1)),
            ),
            Property("No weight is negative.", lambda f, x: (f(x) >= 0).all()),
            Property(
                "The largest score gets the largest weight.",
                lambda f, x: (f(x).argmax(-1) == x.argmax(-1)).all(),
            ),
            Property(
                "Adding 1 to every score changes nothing.",
                lambda f, x: close(f(x), f(x + 1)) or x.abs().max() > 99,
            ),
            Property(
                "A score that lies 100 below the largest of its row gets as good as no weight.",
                lambda f, x: not (f(x) > 1e-9)[x < x.amax(dim=-1, keepdim=True) - 100].any(),
            ),
        ),
        mistakes=(
            Mistake(
                "no_max_subtraction",
                lambda x: x.exp() / x.exp().sum(dim=-1, keepdim=True),
                "It is right for small scores. For 1000, exp overflows to inf, and inf / inf is NaN. Softmax "
                "does not change if one number is subtracted from a whole row: subtract its maximum.",
            ),
            Mistake(
                "first_dim",
                partial(torch.softmax, dim=0),
                "Softmax ran along the first dimension, so columns share the total of 1, or entries of "
                "different texts do. Maximum and sum both belong along dim=-1.",
            ),
            Mistake(
                "second_dim",
                partial(torch.softmax, dim=1),
                "Softmax ran along dim=1. That is the last dimension of a (T, C) tensor, but not of a "
                "(B, T, C) one, and a vector has none. Count from the end: dim=-1.",
            ),
            Mistake(
                "whole_tensor",
                lambda x: (x - x.max()).exp() / (x - x.max()).exp().sum(),
                "The whole tensor shares one total of 1. `sum()` without a dim adds up all rows. Each row is "
                "a distribution of its own: give `sum` a dim=-1 and keepdim=True.",
            ),
            Mistake(
                "one_sum_for_all",
                lambda x: (e := (x - x.amax(dim=-1, keepdim=True)).exp()) / e.sum(),
                "Each row has its own maximum, and all rows share one total of 1. `sum()` without a dim adds "
                "up the whole tensor. Give `sum` a dim=-1 and keepdim=True, as the maximum has.",
            ),
            Mistake(
                "one_maximum_for_all",
                lambda x: (e := (x - x.max()).exp()) / e.sum(dim=-1, keepdim=True),
                "You subtract one maximum from all rows. A row that lies 1000 below it becomes exp(-1000) = "
                "0 throughout, and 0/0 is NaN. Each row needs its own maximum: `amax(dim=-1, keepdim=True)`.",
            ),
            Mistake(
                "subtracts_the_mean",
                lambda x: (e := (x - x.mean(-1, keepdim=True)).exp()) / e.sum(dim=-1, keepdim=True),
                "You subtract the mean. It changes no weight, but the largest score can still lie far above "
                "0, where exp overflows. After subtracting the maximum none is above 0.",
            ),
            Mistake(
                "subtracts_large_maxima_only",
                lambda x: (e := (x - x.amax(-1, keepdim=True).clamp(min=0)).exp()) / e.sum(-1, keepdim=True),
                "You subtract a maximum where it is large, and nothing from rows that lie near -1000. There "
                "every exp is 0, and 0/0 is NaN. Subtract each row's maximum, whatever it is: if that is "
                "negative, the row moves up to 0.",
            ),
            Mistake(
                "subtracts_the_largest_absolute_score",
                lambda x: (e := (x - x.abs().amax(-1, keepdim=True)).exp()) / e.sum(-1, keepdim=True),
                "You subtract the largest absolute score. Where that belongs to a negative score, such as "
                "-1000, the row moves down by 1000: every exp is 0, and 0/0 is NaN. Subtract the maximum "
                "with its sign.",
            ),
            Mistake(
                "not_normalised",
                lambda x: (x - x.amax(dim=-1, keepdim=True)).exp(),
                "The largest weight of each row is 1, and the rows do not sum to 1. The exponentials are "
                "there; the division by their sum is missing.",
            ),
            Mistake(
                "logarithm",
                partial(torch.log_softmax, dim=-1),
                "These are the logarithms of the weights. They are all 0 or less. Take exp, or leave the "
                "logarithm out.",
            ),
            Mistake(
                "no_keepdim",
                lambda x: (e := (x - x.amax(dim=-1, keepdim=True)).exp()) / e.sum(dim=-1),
                "The sums lost a dimension. Without `keepdim=True` they lie along the wrong axis, where the "
                "shapes allow it, and elsewhere PyTorch raises an error. Keep the dimension.",
            ),
            Mistake(
                "replaces_nan",
                lambda x: (x.exp() / x.exp().sum(dim=-1, keepdim=True)).nan_to_num(0.0),
                "It is right for small scores. For large ones exp overflows, inf / inf is NaN, and zeros in "
                "its place make rows that do not sum to 1. The scores have to be made smaller before exp.",
            ),
            Mistake(
                "subtracts_1000",
                lambda x: (x - 1000).exp() / (x - 1000).exp().sum(dim=-1, keepdim=True),
                "You subtract 1000, whatever the scores are. Small ones become exp(-1000) = 0 throughout, "
                "and 0/0 is NaN. What is subtracted has to come from the row itself.",
            ),
        ),
        hints=(
            "What is exp(1000) in float32? And what happens to the weights if you subtract 1000 from every "
            "score of a row?",
            "Subtract each row's maximum: then the largest number that exp sees is 0.",
            "`exp = (x - x.amax(dim=-1, keepdim=True)).exp()`, then divide by its sum along the same dim.",
        ),
        insight="If you used `torch.softmax` or `logsumexp`: they subtract the largest score inside. After "
        "that no exp is above 1, and one of them is 1, so the sum is never 0.",
        minutes=8,
        difficulty=3,
        tolerance=1e-4,  # of 2000, float32 keeps four digits behind the point: so does a logsumexp
    ),
    Exercise(
        name="padding_weights",
        task="Take `scores` of shape (B, T_q, T_k) and integers `lengths` of shape (B,) and return softmax "
        "weights, shape (B, T_q, T_k), where keys at positions >= length get none. A text of length 0 "
        "has rows of zeros.",
        reference=padding_weights,
        draw_inputs=draw_padded,
        properties=(
            Property(
                "Padding gets no weight.", lambda f, s, n: not f(s, n)[~padding_mask(s, n).expand_as(s)].any()
            ),
            Property(
                "Each row of a text with a key sums to 1.",
                lambda f, s, n: close(torch.ones_like(s[n > 0, :, 0]), f(s, n).sum(dim=-1)[n > 0]),
            ),
            Property("A text of length 0 has rows of zeros.", lambda f, s, n: not f(s, n)[n == 0].any()),
            Property(
                "Scores of padding change nothing.",
                lambda f, s, n: close(f(s, n), f(s.masked_fill(~padding_mask(s, n), 7.0), n)),
            ),
        ),
        mistakes=(
            Mistake(
                "no_keys_gives_nan",
                lambda s, n: masked(s, padding_mask(s, n)),
                "It is right but for texts of length 0: their scores are all -inf, and softmax makes 0/0 "
                "of them, NaN. Set the padding's weights to 0 after the softmax as well.",
            ),
            Mistake(
                "mask_after_softmax",
                lambda s, n: torch.softmax(s, dim=-1) * padding_mask(s, n),
                "The mask comes after the softmax. By then the padding has had its share of the total of 1, "
                "and what is left of a row sums to less. Set the scores to -inf before the softmax.",
            ),
            Mistake(
                "zero_in_place_of_inf",
                lambda s, n: masked(s, padding_mask(s, n), fill=0.0),
                "Padding still gets weight. A score of 0 is no mask: exp(0) is 1, and often more than real "
                "keys have. Only exp(-inf) is 0 whatever the other scores are: fill with -inf.",
            ),
            Mistake(
                "large_negative_number",
                lambda s, n: masked(s, padding_mask(s, n), fill=-1e9),
                "It is right but for texts of length 0. A large negative score such as -1e9 hides a key "
                "only beside a better one. Where all keys have it, all get the same weight: not zeros.",
            ),
            Mistake(
                "inverted_mask",
                lambda s, n: masked(s, ~padding_mask(s, n)).nan_to_num(0),
                "The mask is inverted: the padding gets the weight, and the real keys get none. "
                "`masked_fill` fills where its mask is True. Hand it the padding, not the keys to keep.",
            ),
            Mistake(
                "inverted_mask_with_nan",
                lambda s, n: masked(s, ~padding_mask(s, n)),
                "The mask is inverted: the padding gets the weight, and a text without padding is NaN. "
                "`masked_fill` fills where its mask is True. Hand it the padding, not the keys to keep.",
            ),
            Mistake(
                "wrong_dim",
                lambda s, n: masked(s, padding_mask(s, n), dim=-2).nan_to_num(0),
                "Softmax ran along the queries: each column sums to 1, and the rows do not. The keys of a "
                "query lie along the last dimension. Use dim=-1.",
            ),
            Mistake(
                "one_key_too_many",
                lambda s, n: masked(s, padding_mask(s, n + 1)),
                "One key of the padding is still seen. Positions start at 0, so a text of length 3 has "
                "positions 0, 1 and 2. Compare with `<`, not with `<=`.",
            ),
            Mistake(
                "one_key_too_many_where_there_is_one",
                one_key_more,
                "One key of the padding is still seen, except in texts of length 0. Positions start at "
                "0, so a text of length 3 has positions 0, 1 and 2. Compare with `<`, not with `<=`.",
            ),
            Mistake(
                "no_max_subtraction",
                exps_of_the_scores,
                "It is right for small scores. For large ones exp overflows to inf, for very low ones it is "
                "0 throughout, and no division repairs that. Softmax subtracts the maximum first: let it do "
                "so, on scores that hide the padding.",
            ),
            Mistake(
                "pads_the_queries",
                padded_queries,
                "The lengths hide rows, and they should hide columns. Rows are queries, columns are keys. "
                "Compare the lengths with positions along T_k, the last dimension.",
            ),
            Mistake(
                "lengths_along_the_queries",
                lambda s, n: masked(s, torch.arange(s.shape[-1]) < n[:, None]).nan_to_num(0),
                "A mask of shape (B, T_k) meets scores of shape (B, T_q, T_k), and broadcasting aligns B "
                "with T_q: queries get the lengths of other texts. Make the mask (B, 1, T_k).",
            ),
            Mistake(
                "ignores_the_lengths",
                lambda s, n: torch.softmax(s, dim=-1),
                "The padding gets weight as any other key. The lengths were not used: make a mask of them, "
                "and fill the padding's scores with -inf before the softmax. Or `masked_fill` was called and "
                "its result not kept: it changes nothing in place.",
            ),
            Mistake(
                "renormalised_by_hand",
                lambda s, n: renormalised(s, n).nan_to_num(0),
                "It is right but where a hidden score lies far above all visible ones. There softmax rounds "
                "the visible weights down to 0, and no division brings them back. Set the padding's scores "
                "to -inf before the softmax: then what is left sums to 1 by itself.",
            ),
            Mistake(
                "renormalised_by_hand_with_nan",
                renormalised,
                "Some rows are 0/0: those of texts of length 0, and those where a hidden score lies far "
                "above all visible ones, for then softmax rounds the visible weights down to 0. Set the "
                "padding's scores to -inf before the softmax: then what is left sums to 1 by itself.",
            ),
            Mistake(
                "hides_queries_too",
                keys_and_queries,
                "The lengths hide columns, which is right, and rows as well. Columns are keys, rows are "
                "queries, and every query of a text with a key gets weights. The mask is (B, 1, T_k).",
            ),
        ),
        hints=(
            "Which keys may a query see if lengths is [2, 0] and T_k is 3? Write the mask, True where it may "
            "look.",
            "Compare `torch.arange(T_k)` with `lengths[:, None, None]`. The mask is (B, 1, T_k).",
            "Fill the scores with -inf where the mask is False, take the softmax along dim=-1, and set the "
            "weights to 0 where the mask is False: that repairs the rows without keys.",
        ),
        insight="`F.scaled_dot_product_attention` gives zeros too where a boolean mask hides every key, "
        "and a plain softmax of -inf scores gives NaN.",
        minutes=12,
        difficulty=4,
    ),
)
