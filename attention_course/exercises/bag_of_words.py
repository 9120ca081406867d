"""Rung 1: the mean of the past, the mean of a window, and a mean that forgets, with loops."""

import torch
from jaxtyping import Float
from torch import Tensor

from attention_course.averaging import causal_mean_loop
from attention_course.exercises.engine import Exercise, Mistake, Property, close


def windowed_mean(x: Float[Tensor, "*B T C"], k: int) -> Float[Tensor, "*B T C"]:
    """Average each token with the k - 1 tokens before it, or with as many as there are.

    Args:
        x: tokens, shape (T, C) or (B, T, C).
        k: how many tokens go into a mean, at least 1.

    Returns:
        The means, same shape.
    """
    out = torch.zeros_like(x)
    for t in range(x.shape[-2]):
        start = max(0, t - k + 1)
        out[..., t, :] = x[..., start : t + 1, :].mean(dim=-2)
    return out


def forgetting_mean(x: Float[Tensor, "*B T C"]) -> Float[Tensor, "*B T C"]:
    """Average each token with all tokens before it; one counts half as much with each step it lies back.

    Args:
        x: tokens, shape (T, C) or (B, T, C).

    Returns:
        The means, same shape. The shares of the tokens in each mean sum to 1.
    """
    out = torch.zeros_like(x)
    for t in range(x.shape[-2]):
        age = torch.arange(t, -1, -1, device=x.device)  # t, ..., 1, 0: the newest token has age 0
        share = 0.5**age
        share = share / share.sum()
        out[..., t, :] = (share[:, None] * x[..., : t + 1, :]).sum(dim=-2)
    return out


def draw_tokens(generator: torch.Generator) -> list[tuple]:
    """Draw tokens, small to large: T = 1, B = 1, C == T, B, T and C all different, large values."""
    B, T, C = (torch.randperm(4, generator=generator)[:3] + 3).tolist()
    small = [(1, 2), (3, 2), (1, 3, 2), (2, 1, 3), (4, 4)]
    large = [(T, C), (B, T, C), (B, T, T), (9, 5)]
    drawn = [torch.randint(-9, 10, shape, generator=generator).float() for shape in small]
    drawn += [torch.randn(shape, generator=generator) for shape in large]
    drawn[1][:2, 0] = torch.tensor([4.0, 0.0])  # a 0 is a number like any other
    drawn[-1] *= 1e4
    return [(x,) for x in drawn]


def draw_longer_tokens(generator: torch.Generator) -> list[tuple]:
    """Draw tokens, and a text of 24: there a weight that was left out is still large enough to be seen."""
    return [*draw_tokens(generator), (torch.randn(24, 2, generator=generator),)]


def draw_windows(generator: torch.Generator) -> list[tuple]:
    """Draw tokens, each with a k: of 1, of less than T, of T, and of more."""
    return [(x, k) for (x,), k in zip(draw_tokens(generator), (1, 2, 2, 4, 3, 2, 3, 9, 3), strict=True)]


def first_row_is_first_token(mean, x, *k):
    """Compare row 0 with token 0; `mean` is the answer, and `k` is there where it takes a window."""
    return close(x[..., 0, :], mean(x, *k)[..., 0, :])


def future_is_unseen(mean, x, *k):
    """Change the last token, and compare all rows but the last."""
    changed = torch.cat([x[..., :-1, :], -x[..., -1:, :] - 1], dim=-2)
    return close(mean(x, *k)[..., :-1, :], mean(changed, *k)[..., :-1, :])


def equal_tokens_stay(mean, x, *k):
    """Average tokens of ones."""
    return close(torch.ones_like(x), mean(torch.ones_like(x), *k))


def batch_rows_apart(mean, x, *k):
    """Compare the first text of a batch with itself alone."""
    return x.dim() == 2 or close(mean(x[0], *k), mean(x, *k)[0])


def long_text_is_finite(mean, x):
    """Repeat the text of 24 tokens until it has 140, and compare with the reference."""
    if x.shape[-2] < 24:
        return True
    x = x.repeat(6, 1)[:140]
    return close(forgetting_mean(x), mean(x))


MEAN_PROPERTIES = (
    Property("Row 0 is token 0: there is nothing else to average.", first_row_is_first_token),
    Property("A change of the last token moves no earlier row.", future_is_unseen),
    Property("Equal tokens give that token back, as in every mean.", equal_tokens_stay),
    Property("A text in a batch gives what it gives alone.", batch_rows_apart),
)


def rows(x, row):
    """Stack row(0), row(1), ... into the rows of a result."""
    return torch.stack([row(t) for t in range(x.shape[-2])], dim=-2)


def averages_averages(x):
    """Write each mean into the tensor that later rows read, as a published loop does."""
    x = x.clone()
    for t in range(x.shape[-2]):
        x[..., t, :] = x[..., : t + 1, :].mean(dim=-2)
    return x


def wrong_dim_in_the_loop(x):
    """Average along the channels; fits into a row for few shapes only."""
    out = torch.zeros_like(x)
    for t in range(x.shape[-2]):
        out[..., t, :] = x[..., : t + 1, :].mean(dim=-1)
    return out


def weighted(x, weights):
    """Sum tokens (..., T, C) with weights (T,)."""
    return (weights[:, None] * x).sum(dim=-2)


def halving(x, t):
    """Return the weights of tokens 0 to t, each half of the next, not yet normalised."""
    return 0.5 ** torch.arange(t, -1, -1)


def running_average(x):
    """Go half the way from the last result to each new token."""
    out = x.clone()
    for t in range(1, x.shape[-2]):
        out[..., t, :] = (out[..., t - 1, :] + x[..., t, :]) / 2
    return out


def first_row_and(x, others):
    """Put token 0 into row 0, and others(t) into the rows after it."""
    return rows(x, lambda t: others(t) if t else x[..., 0, :])


def starts_with_row_1(x):
    """Leave row 0 at zero."""
    out = causal_mean_loop(x)
    out[..., 0, :] = 0
    return out


def copies_until_k_tokens(x, k):
    """Keep the tokens that have fewer than k - 1 before them."""
    return torch.cat([x[..., : k - 1, :], windowed_mean(x, k)[..., k - 1 :, :]], dim=-2)


def weighted_by_age(x, weigh):
    """Average the past with weights that are `weigh(age)`."""
    ages = [torch.arange(t, -1, -1) for t in range(x.shape[-2])]
    return rows(x, lambda t: weighted(x[..., : t + 1, :], (w := weigh(ages[t])) / w.sum()))


def only_row_0(x, *k):
    """Fill row 0 and return."""
    return torch.cat([x[..., :1, :], torch.zeros_like(x[..., 1:, :])], dim=-2)


def starts_with_k_tokens(x, k):
    """Leave the rows at zero that have fewer than k tokens to average."""
    out = windowed_mean(x, k)
    out[..., : k - 1, :] = 0
    return out


WHOLE_SEQUENCE = Mistake(
    "whole_sequence",
    lambda x: x.mean(dim=-2, keepdim=True).expand_as(x),
    "Every row holds the mean of the whole text. Row t may use tokens 0 to t, and here it sees the "
    "future too. Change the last token and look at row 0: it moves.",
)

RETURNS_IN_THE_LOOP = Mistake(
    "returns_in_the_loop",
    only_row_0,
    "Row 0 is right, and all other rows are zeros: the loop ran once. A `return` inside the loop ends the "
    "function in the first turn. Indent it as far as the `for`.",
)

EXERCISES = (
    Exercise(
        name="causal_mean_loop",
        task="Take tokens `x` of shape (T, C) or (B, T, C) and return a tensor of the same shape whose row t "
        "is the mean of tokens 0 to t.",
        reference=causal_mean_loop,
        draw_inputs=draw_tokens,
        properties=MEAN_PROPERTIES,
        mistakes=(
            WHOLE_SEQUENCE,
            Mistake(
                "leaves_itself_out",
                lambda x: rows(x, lambda t: x[..., :t, :].mean(dim=-2)),
                "Row t leaves token t out. A slice ends before its stop, so `[:t]` holds tokens 0 to t - 1, "
                "and at t = 0 it is empty: the mean of nothing is NaN. Look at the stop of your slice.",
            ),
            Mistake(
                "averages_averages",
                averages_averages,
                "From the third row on you average averages. Each mean is written into the tensor that later "
                "rows read, so the tokens are gone when you need them. Write into a new tensor.",
            ),
            Mistake(
                "mean_over_channels",
                lambda x: x.mean(dim=-1, keepdim=True).expand_as(x),
                "Each token became the mean of its own channels. That mean runs along C, the last dimension. "
                "The mean that we want runs along T, which is dim=-2, and keeps the channels apart.",
            ),
            Mistake(
                "wrong_dim_in_the_loop",
                wrong_dim_in_the_loop,
                "The mean runs along the channels, which is dim=-1. For most shapes the result does not fit "
                "into a row, and PyTorch complains. Tokens lie along dim=-2: average over that one.",
            ),
            RETURNS_IN_THE_LOOP,
            Mistake(
                "leaves_itself_out_of_the_sum",
                lambda x: rows(x, lambda t: x[..., :t, :].sum(dim=-2) / (t + 1)),
                "Row t leaves token t out of the sum, but counts it. A slice ends before its stop: `[:t]` "
                "holds the t tokens 0 to t - 1, and you divide by t + 1. Look at the stop of your slice.",
            ),
            Mistake(
                "no_dim",
                lambda x: rows(x, lambda t: x[..., : t + 1, :].mean().expand_as(x[..., t, :])),
                "Each row holds one number, repeated. `mean()` without a dim averages everything it is "
                "given: tokens, channels and batch. Say along which dimension the tokens lie.",
            ),
            Mistake(
                "mean_of_the_future",
                lambda x: rows(x, lambda t: x[..., t:, :].mean(dim=-2)),
                "Row t holds the mean of token t and all later ones: the future. `[t:]` starts at t and goes "
                "to the end. The past of t starts at 0 and ends with t.",
            ),
            Mistake(
                "sum",
                lambda x: x.cumsum(dim=-2),
                "Each row holds the sum of the past, not yet its mean. Row t has t + 1 tokens in it. Divide "
                "by that count, or take the mean in place of the sum.",
            ),
            Mistake(
                "loop_starts_at_1",
                starts_with_row_1,
                "Row 0 is zeros, and the other rows are right: the loop begins with t = 1. Row 0 is a mean "
                "as well, of one token. Begin with t = 0.",
            ),
            Mistake(
                "leaves_itself_out_but_for_row_0",
                lambda x: first_row_and(x, lambda t: x[..., :t, :].mean(dim=-2)),
                "Row 0 is right, and every later row leaves its own token out. A slice ends before its stop: "
                "`[:t]` holds tokens 0 to t - 1. With the right stop, row 0 needs no line of its own.",
            ),
            Mistake(
                "running_average",
                running_average,
                "Each row goes half the way from the last row to the new token. So the new token weighs 1/2, "
                "however many came before it. In a mean of t + 1 tokens each weighs 1 / (t + 1).",
            ),
            Mistake(
                "averages_over_the_batch",
                lambda x: torch.stack([x[: t + 1].mean(dim=0) for t in range(len(x))]),
                "It is right for (T, C), and for (B, T, C) it averages over the batch. There dim 0 is B, and "
                "texts must not mix. Count from the end: time is dim=-2, and `x[..., t, :]` is token t.",
            ),
        ),
        hints=(
            "Write down by hand what row 0, row 1 and row 2 should be for three tokens. Which tokens go into "
            "row 2?",
            "Start with `out = torch.zeros_like(x)`, and fill one row for each t in `range(x.shape[-2])`. "
            "The three dots in `x[..., t, :]` stand for the batch, whether there is one or not.",
            "Tokens 0 to t are `x[..., : t + 1, :]`. Take their mean along dim=-2 and assign it to "
            "`out[..., t, :]`.",
        ),
        insight="`x.cumsum(dim=-2)`, divided by the counts 1 to T, gives the same numbers without a loop. "
        "The loop is easier to trust, and so it is what we compare with.",
        minutes=5,
        difficulty=1,
    ),
    Exercise(
        name="windowed_mean",
        task="Take tokens `x` of shape (T, C) or (B, T, C) and return the same shape: row t is the mean of "
        "the last `k` tokens up to and with t, or of all there are where t + 1 is less than k.",
        reference=windowed_mean,
        draw_inputs=draw_windows,
        properties=MEAN_PROPERTIES,
        mistakes=(
            Mistake(
                "window_one_too_long",
                lambda x, k: windowed_mean(x, k + 1),
                "Your slice holds k + 1 tokens. From t - k to t there are k + 1 positions, both ends "
                "counted. Test k = 1: each token should come back unchanged. Look where your slice starts.",
            ),
            Mistake(
                "always_divides_by_k",
                lambda x, k: rows(x, lambda t: x[..., max(0, t - k + 1) : t + 1, :].sum(dim=-2) / k),
                "The first rows are too close to 0. Near the start there are fewer than k tokens, and you "
                "divide by k all the same. Divide by the number of tokens that there are.",
            ),
            Mistake(
                "leaves_itself_out",
                lambda x, k: rows(x, lambda t: x[..., max(0, t - k) : t, :].mean(dim=-2)),
                "The slice ends before token t. It leaves its stop out, so at t = 0 it is empty, and "
                "the mean of nothing is NaN. Look at the stop of your slice.",
            ),
            Mistake(
                "negative_start",
                lambda x, k: rows(x, lambda t: x[..., t - k + 1 : t + 1, :].mean(dim=-2)),
                "The first rows are wrong because their slice starts below 0. Python counts a negative start "
                "from the end, so the slice comes out empty. Keep the start at 0 or above, with `max`.",
            ),
            Mistake(
                "ignores_k",
                lambda x, k: causal_mean_loop(x),
                "The rows use the whole past, whatever k is. That is the mean of the exercise before. Let "
                "the slice start k - 1 positions before t.",
            ),
            Mistake(
                "looks_ahead",
                lambda x, k: rows(x, lambda t: x[..., t : t + k, :].mean(dim=-2)),
                "The slice starts at t and looks ahead, into the future. Row t may use itself and earlier "
                "tokens. Let the slice end with t.",
            ),
            Mistake(
                "sum",
                lambda x, k: rows(x, lambda t: x[..., max(0, t - k + 1) : t + 1, :].sum(dim=-2)),
                "Each row holds the sum of its tokens, not yet the mean. Take `.mean(dim=-2)` of the slice, "
                "which divides by the right count at the start too.",
            ),
            RETURNS_IN_THE_LOOP,
            Mistake(
                "first_rows_left_at_zero",
                starts_with_k_tokens,
                "The first k - 1 rows are zeros, and the rest is right. Near the start there are fewer than "
                "k tokens: average those that there are. Begin with t = 0, and let the slice start at 0.",
            ),
            Mistake(
                "first_rows_copied",
                copies_until_k_tokens,
                "The first k - 1 rows hold their own token, unchanged, and the rest is right. Near the start "
                "there are fewer than k tokens: average those that there are.",
            ),
            Mistake(
                "wraps_around",
                lambda x, k: sum(x.roll(back, dims=-2) for back in range(k)) / k,
                "The first rows use tokens from the end of the text: the future. `roll` pushes what leaves "
                "at one end back in at the other. Near the start there are fewer than k tokens: average "
                "those that there are, and divide by their number.",
            ),
        ),
        hints=(
            "With k = 3, which tokens go into row 5? Which go into row 1?",
            "Begin with the loop of the causal mean. Only the start of the slice changes.",
            "The slice starts at t - k + 1, but never below 0: `start = max(0, t - k + 1)`.",
        ),
        insight="Two tests for your function: with k = 1 each token comes back unchanged, and from k = T on "
        "the result is the causal mean.",
        minutes=5,
        difficulty=2,
    ),
    Exercise(
        name="forgetting_mean",
        task="Take tokens `x` of shape (T, C) or (B, T, C) and return the same shape: row t is a "
        "mean of tokens 0 to t, in which a token counts half as much with each step it lies back from t.",
        reference=forgetting_mean,
        draw_inputs=draw_longer_tokens,
        properties=(
            *MEAN_PROPERTIES,
            Property(
                "A text of 140 tokens is no problem: no power of 2 overflows on the way.",
                long_text_is_finite,
            ),
        ),
        mistakes=(
            WHOLE_SEQUENCE,
            Mistake(
                "not_normalised",
                lambda x: rows(x, lambda t: weighted(x[..., : t + 1, :], halving(x, t))),
                "The shares do not sum to 1. 1 + 1/2 + 1/4 and so on comes close to 2, so your rows are up "
                "to twice as far from 0. Divide the shares of each row by their sum.",
            ),
            RETURNS_IN_THE_LOOP,
            Mistake(
                "average_starts_from_zero",
                lambda x: rows(x, lambda t: weighted(x[..., : t + 1, :], halving(x, t)) / 2),
                "Your average starts from 0, and that 0 keeps a share: 1/2 in row 0, 1/4 in row 1, and so "
                "on. The tokens' shares sum to less than 1. Divide by their sum, also in row 0.",
            ),
            Mistake(
                "wrong_direction",
                lambda x: (
                    rows(x, lambda t: weighted(x[..., : t + 1, :], halving(x, t).flip(0)))
                    / rows(x, lambda t: halving(x, t).sum()[None])
                ),
                "The oldest token counts most. Your shares halve from token 0 towards t, and they should "
                "halve from t back to 0. Print the shares of t = 2: they should rise.",
            ),
            Mistake(
                "divides_by_the_count",
                lambda x: rows(x, lambda t: weighted(x[..., : t + 1, :], halving(x, t)) / (t + 1)),
                "You divide by the number of tokens. That is right where each counts 1, and here they count "
                "1, 1/2, 1/4 and so on. Divide by the sum of these numbers.",
            ),
            Mistake(
                "divides_twice",
                lambda x: forgetting_mean(x) / torch.arange(1, x.shape[-2] + 1)[:, None],
                "Your shares sum to 1, and then you divide by the number of tokens as well. `mean` does "
                "that: it sums, and divides. With shares that sum to 1 the sum is the mean: use `sum`.",
            ),
            Mistake(
                "running_average",
                running_average,
                "Token 0 counts too much. Halving the way from the last result to the new token gives "
                "shares of 1/2, 1/4, ..., and token 0 keeps all that is left over: as much as token 1. Its "
                "share should be half of that.",
            ),
            Mistake(
                "does_not_forget",
                causal_mean_loop,
                "All tokens of the past count the same. This is the plain causal mean. Let token j count "
                "0.5 ** (t - j), and divide by the sum of these numbers.",
            ),
            Mistake(
                "sees_the_future",
                lambda x: rows(
                    x, lambda t: weighted(x, (w := 0.5 ** (torch.arange(x.shape[-2]) - t).abs()) / w.sum())
                ),
                "The shares fall off on both sides of t, so row t sees the future. Later tokens get no "
                "share at all. Use tokens 0 to t only.",
            ),
            Mistake(
                "one_over_the_age",
                lambda x: weighted_by_age(x, lambda age: 1 / (age + 1)),
                "The shares fall as 1, 1/2, 1/3, 1/4. Halving gives 1, 1/2, 1/4, 1/8: each is half of the "
                "one before. That is a power of 0.5, and not a fraction of the age.",
            ),
            Mistake(
                "fades_by_e",
                lambda x: weighted_by_age(x, lambda age: torch.exp(-age)),
                "Each step back divides a share by e = 2.7, and not by 2: that is what exp makes of minus "
                "the age. Take powers of 0.5, or multiply the age by the logarithm of 2 first.",
            ),
        ),
        hints=(
            "For t = 2 the three tokens count as 1 : 2 : 4. What must you divide these numbers by, so that "
            "they sum to 1?",
            "The age of token j, seen from t, is t - j. `torch.arange(t, -1, -1)` lists t, ..., 1, 0.",
            "With `share = 0.5 ** age`, divide by `share.sum()`. Then multiply: `share[:, None]` "
            "lies along the tokens of `x[..., : t + 1, :]`; sum the products along dim=-2.",
        ),
        insight="Each row can be made from the one before: `total = total / 2 + token`, "
        "`count = count / 2 + 1`, and the row is `total / count`. No older token has to be kept.",
        minutes=10,
        difficulty=3,
    ),
)
