"""Rung 2: weights as a matrix: the mean of the past, a band, and a shift."""

import torch
from jaxtyping import Float
from torch import Tensor

from attention_course.averaging import causal_mean_matmul
from attention_course.exercises.bag_of_words import MEAN_PROPERTIES, WHOLE_SEQUENCE, draw_tokens
from attention_course.exercises.engine import Exercise, Mistake, Property, close


def band_matrix(T: int, k: int) -> Float[Tensor, "T T"]:
    """Make the weights of the mean of the last k tokens.

    Args:
        T: number of tokens.
        k: how many tokens go into a mean, at least 1.

    Returns:
        A matrix, shape (T, T), whose rows sum to 1: `band_matrix(T, k) @ x` is the windowed mean of x.
    """
    ones = torch.ones(T, T)
    band = ones.tril() - ones.tril(-k)  # 1 where the token lies 0 to k - 1 steps back
    return band / band.sum(dim=-1, keepdim=True)


def shift_matrix(T: int) -> Float[Tensor, "T T"]:
    """Make the matrix that copies the previous token.

    Args:
        T: number of tokens.

    Returns:
        A matrix, shape (T, T), with ones right below the diagonal: row t of `shift_matrix(T) @ x` is token
        t - 1 of x, and row 0 is zeros.
    """
    ones = torch.ones(T, T)
    return ones.tril(-1) - ones.tril(-2)


def draw_sizes(generator: torch.Generator) -> list[tuple]:
    """Draw T and k, small to large: T = 1, k = 1, k in between, k = T, k > T."""
    T = int(torch.randint(6, 10, (), generator=generator))
    k = int(torch.randint(2, 4, (), generator=generator))
    return [(1, 1), (1, 4), (3, 1), (3, 2), (4, 4), (5, 8), (T, k), (T, T - 1)]


def draw_token_counts(generator: torch.Generator) -> list[tuple]:
    """Draw T: 1, 2, 3, one up to 9, and one that is longer than the words of the notebook."""
    return [(1,), (2,), (3,), (int(torch.randint(4, 10, (), generator=generator)),), (12,)]


def lower(T, diagonal=0):
    """Return a (T, T) matrix of ones on and below a diagonal, zeros above."""
    return torch.ones(T, T).tril(diagonal)


def normalise(weights):
    """Divide each row by its sum."""
    return weights / weights.sum(dim=-1, keepdim=True)


def without_row_0(T):
    """Return the identity with an empty first row."""
    matrix = torch.eye(T)
    matrix[0] = 0
    return matrix


def only_full_rows(T, k):
    """Leave the rows at zero that have fewer than k weights."""
    weights = band_matrix(T, k)
    weights[: k - 1] = 0
    return weights


def band(T, k):
    """Return the band before it is normalised."""
    return lower(T) - lower(T, -k)


ONE_STEP_AHEAD = Mistake(
    "one_step_ahead",
    lambda x: normalise(lower(x.shape[-2], 1)) @ x,
    "Each row sees the next token too, one step into the future. You keep one diagonal above the main "
    "one, as `tril(1)` does. `tril()` keeps the main diagonal and what lies below; the rest is `triu(1)`.",
)

EXERCISES = (
    Exercise(
        name="causal_mean_matmul",
        task="Take tokens `x` of shape (T, C) or (B, T, C) and return the mean of the past, same shape, as "
        "one product of a (T, T) matrix of weights with `x`.",
        reference=causal_mean_matmul,
        draw_inputs=draw_tokens,
        properties=MEAN_PROPERTIES,
        mistakes=(
            WHOLE_SEQUENCE,
            Mistake(
                "no_keepdim",
                lambda x: (lower(T := x.shape[-2]) / lower(T).sum(1)) @ x,
                "The rows of your weights do not sum to 1. Without `keepdim=True` the row sums have shape "
                "(T,), and broadcasting lays them along the columns: entry [i, j] is divided by the sum of "
                "row j. Print the row sums before you multiply.",
            ),
            Mistake(
                "triu",
                lambda x: normalise(torch.ones(T := x.shape[-2], T).triu()) @ x,
                "Each row averages itself and the future. `triu` keeps what lies above the diagonal, where "
                "token s comes after output t. The past lies below: that is `tril`.",
            ),
            Mistake(
                "not_normalised",
                lambda x: lower(x.shape[-2]) @ x,
                "Each row holds the sum of the past. The weights are ones, so row t has a total weight of "
                "t + 1. Divide each row of the weights by its sum.",
            ),
            Mistake(
                "diagonal_excluded",
                lambda x: normalise(lower(x.shape[-2], -1)) @ x,
                "The diagonal is missing, so no token sees itself. Row 0 has no weights left: 0/0 is NaN. "
                "`tril()` keeps the diagonal, `tril(-1)` drops it.",
            ),
            Mistake(
                "tokens_first",
                lambda x: x @ normalise(lower(x.shape[-2])),
                "You multiply `x @ weights`. That mixes channels, not tokens, and runs only where C equals "
                "T. A row of the left matrix mixes the rows of the right one: weights stand left.",
            ),
            Mistake(
                "columns_normalised",
                lambda x: (lower(T := x.shape[-2]) / lower(T).sum(0, keepdim=True)) @ x,
                "Your columns sum to 1, and the rows do not. `sum(dim=0)` adds up a column. A row "
                "makes one output, so sum along the last dimension, with `keepdim=True`.",
            ),
            Mistake(
                "divides_by_T",
                lambda x: lower(T := x.shape[-2]) / T @ x,
                "Every row is divided by T. That is right for the last row only: row t averages t + 1 "
                "tokens. Divide each row by its own sum.",
            ),
            Mistake(
                "weights_transposed",
                lambda x: normalise(lower(x.shape[-2])).T @ x,
                "The weights are right, and transposed. Row t now holds what used to be column t: weights on "
                "the future. Print the weights: the zeros belong above the diagonal.",
            ),
            Mistake(
                "one_sum_for_all",
                lambda x: (w := lower(x.shape[-2])) / w.sum() @ x,
                "The whole matrix shares one total of 1. `sum()` without a dim adds up all rows. Each row "
                "has a sum of its own: give `sum` a dim=-1 and keepdim=True.",
            ),
            Mistake(
                "softmax_of_the_triangle",
                lambda x: torch.softmax(lower(x.shape[-2]), dim=-1) @ x,
                "The future still gets some weight. What rung 3 calls softmax takes exp of every entry, and "
                "exp(0) is 1: a 0 above the diagonal becomes 1. Divide each row by its sum, without exp.",
            ),
            Mistake(
                "diagonal_excluded_and_row_0_empty",
                lambda x: lower(T := x.shape[-2], -1) / torch.arange(T).clamp(min=1)[:, None] @ x,
                "The diagonal is missing, so no token sees itself, and row 0 is zeros. Row t averages tokens "
                "0 to t, its own among them. `tril()` keeps the diagonal, `tril(-1)` drops it.",
            ),
            ONE_STEP_AHEAD,
        ),
        hints=(
            "What are the three rows of weights for T = 3? Write them down: each makes one output.",
            "`torch.ones(T, T).tril()` has a 1 where a token may look. Its product with `x` is a sum. What "
            "makes a mean of it?",
            "Divide by `weights.sum(dim=-1, keepdim=True)`, then return `weights @ x`.",
        ),
        insight="If yours has a loop, try it with one `@`: the numbers are the same. The weights depend on T "
        "alone, so one matrix serves every text of a batch.",
        minutes=5,
        difficulty=2,
    ),
    Exercise(
        name="band_matrix",
        task="Return the (T, T) matrix of weights such that `band_matrix(T, k) @ x` is the mean of the last "
        "`k` tokens, fewer at the start. Each row sums to 1.",
        reference=band_matrix,
        draw_inputs=draw_sizes,
        properties=(
            Property("Each row sums to 1.", lambda f, T, k: close(torch.ones(T), f(T, k).sum(dim=1))),
            Property("Nothing stands above the diagonal.", lambda f, T, k: not f(T, k).triu(1).any()),
            Property("Every token sees itself.", lambda f, T, k: (f(T, k).diagonal() > 0).all()),
            Property(
                "No row has more than k weights.", lambda f, T, k: ((f(T, k) != 0).sum(dim=1) <= k).all()
            ),
        ),
        mistakes=(
            Mistake(
                "no_keepdim",
                lambda T, k: band(T, k) / band(T, k).sum(1),
                "The first rows do not sum to 1. Without `keepdim=True` the row sums are laid along the "
                "columns, so each entry is divided by the sum of another row. Print the row sums.",
            ),
            Mistake(
                "band_one_too_wide",
                lambda T, k: normalise(band(T, k + 1)),
                "The band is one diagonal too wide. You keep diagonals 0 to -k: that is k + 1 of them. The "
                "last one to keep is -(k - 1). Test k = 1: the band should be the identity.",
            ),
            Mistake(
                "always_divides_by_k",
                lambda T, k: band(T, k) / k,
                "The first rows sum to less than 1. They hold fewer than k tokens, and you divide by k all "
                "the same. Divide each row by its own sum.",
            ),
            Mistake(
                "not_normalised",
                band,
                "The band has the right shape, and its weights are all 1, so a row sums to up to k. A mean "
                "needs rows that sum to 1. Divide each row by its sum.",
            ),
            Mistake(
                "looks_ahead",
                lambda T, k: normalise(band(T, k).T),
                "The band lies above the diagonal, so each row averages itself with the next tokens: the "
                "future. Entry [t, j] is how much row t takes of token j. Where is j before t?",
            ),
            Mistake(
                "both_sides",
                lambda T, k: normalise(((band(T, k) + band(T, k).T) > 0).float()),
                "The band lies on both sides of the diagonal, so each row sees the future too. The distance "
                "t - j has to be 0 to k - 1; without its sign, later tokens come in as well.",
            ),
            Mistake(
                "all_later_tokens",
                lambda T, k: normalise(torch.ones(T, T).triu(1 - k)),
                "The band has no end on the right, so each row sees all later tokens. Their distance t - j "
                "is below 0, and so it is less than k as well. Two things have to hold: 0 <= t - j < k.",
            ),
            Mistake(
                "diagonal_excluded",
                lambda T, k: normalise(lower(T, -1) - lower(T, -k - 1)),
                "The diagonal is missing, so no token sees itself. Row 0 has no weights left: 0/0 is NaN. "
                "The last k tokens include the one at t: distances 0 to k - 1.",
            ),
            Mistake(
                "ignores_k",
                lambda T, k: normalise(lower(T)),
                "The rows reach back to the start, whatever k is. That is the mean of the whole past. What "
                "lies k or more steps back has to go: `tril(-k)` is that part.",
            ),
            Mistake(
                "columns_normalised",
                lambda T, k: band(T, k) / band(T, k).sum(0, keepdim=True),
                "Your columns sum to 1, and the rows do not. A row makes one output. Sum along "
                "the last dimension, with `keepdim=True`.",
            ),
            Mistake(
                "one_sum_for_all",
                lambda T, k: band(T, k) / band(T, k).sum(),
                "The whole matrix shares one total of 1. `sum()` without a dim adds up all rows. Each row "
                "has a sum of its own: give `sum` a dim=-1 and keepdim=True.",
            ),
            Mistake(
                "first_rows_left_at_zero",
                only_full_rows,
                "The first k - 1 rows are zeros, and the rest is right. Near the start there are fewer than "
                "k tokens, and those that there are share the total of 1. Begin with row 0.",
            ),
            Mistake(
                "cut_after_the_division",
                lambda T, k: normalise(lower(T)).triu(1 - k),
                "The band has the right shape, and its later rows sum to less than 1. Each row was divided "
                "while it still held the whole past, and then cut. Cut first, divide after.",
            ),
        ),
        hints=(
            "Draw the matrix for T = 4 and k = 2. How many diagonals are not zero?",
            "`ones.tril()` keeps what lies at or below the diagonal. Which part of it lies k steps "
            "back, or more?",
            "`ones.tril() - ones.tril(-k)` is the band. Divide it by `band.sum(dim=-1, keepdim=True)`.",
        ),
        insight="With k = 1 the band is the identity, and from k = T on it is the whole triangle. Rung 6 "
        "comes back to it: there attention looks at the last k tokens only.",
        minutes=7,
        difficulty=2,
    ),
    Exercise(
        name="shift_matrix",
        task="Return the (T, T) matrix of floats for which row t of `shift_matrix(T) @ x` is token t - 1. "
        "Row 0 has no token before it: it is zeros.",
        reference=shift_matrix,
        draw_inputs=draw_token_counts,
        properties=(
            Property("Row 0 is zeros.", lambda f, T: not f(T)[0].any()),
            Property(
                "Every other row sums to 1.", lambda f, T: close(torch.ones(T - 1), f(T)[1:].sum(dim=1))
            ),
            Property("Nothing stands on or above the diagonal.", lambda f, T: not f(T).triu().any()),
        ),
        mistakes=(
            Mistake(
                "copies_the_next",
                lambda T: shift_matrix(T).T,
                "The ones stand above the diagonal, so each row copies the next token. Row t makes "
                "output t: its 1 belongs into column t - 1, which is below the diagonal.",
            ),
            Mistake(
                "wraps_around",
                lambda T: torch.eye(T).roll(1, dims=0),
                "Row 0 copies the last token, which is the future. `roll` pushes the last row back in at the "
                "top; and in a loop, at t = 0 the index t - 1 is -1: the last column. Row 0 has to be zeros.",
            ),
            Mistake(
                "identity",
                torch.eye,
                "Each row copies its own token: this is the identity. The ones have to move one step down, "
                "to the diagonal below the main one.",
            ),
            Mistake(
                "every_earlier_token",
                lambda T: lower(T, -1),
                "Row t sums all tokens before t. `tril(-1)` keeps everything below the diagonal, and we want "
                "only the first diagonal below it. Take away what lies two or more steps back.",
            ),
            Mistake(
                "mean_of_earlier_tokens",
                lambda T: normalise(lower(T, -1)).nan_to_num(0),
                "Row t is the mean of all tokens before t. From row 2 on it holds several weights, and a "
                "copy needs a single 1, in column t - 1.",
            ),
            Mistake(
                "row_0_copies_itself",
                lambda T: torch.cat([torch.eye(T)[:1], torch.eye(T)[:-1]]),
                "Row 0 copies token 0. There is no token before it, so its row of weights is empty. The "
                "other rows are right.",
            ),
            Mistake(
                "normalised",
                lambda T: normalise(shift_matrix(T)),
                "Row 0 is NaN. It has no weights, and dividing by their sum is 0/0. The other rows sum to 1 "
                "already, so there is nothing to normalise.",
            ),
            Mistake(
                "shifts_by_two",
                lambda T: lower(T, -2) - lower(T, -3),
                "Row t copies token t - 2. The ones stand one diagonal too low. The first diagonal below the "
                "main one has the number -1.",
            ),
            Mistake(
                "identity_without_row_0",
                without_row_0,
                "Row 0 is empty, as it should be, and every other row copies its own token. Emptying row 0 "
                "moves nothing: the ones have to go one step to the left, into column t - 1.",
            ),
            Mistake(
                "itself_as_well",
                lambda T: lower(T) - lower(T, -2),
                "Row t holds two ones: it adds its own token to the one before. A copy needs a single 1, in "
                "column t - 1. The main diagonal has to go.",
            ),
        ),
        hints=(
            "Write the matrix for T = 3 by hand. Row 1 should copy token 0: in which column is its 1?",
            "The ones lie on the diagonal below the main one. `tril(-1)` keeps that diagonal and all below.",
            "Take `torch.ones(T, T).tril(-1)` and subtract its `tril(-2)`: one diagonal is left.",
        ),
        insight="What rung 3 calls softmax never gives exactly this matrix: its rows sum to 1, and row 0 "
        "here sums to 0. Trained models have what rung 4 calls heads, and some come close to it in the other "
        "rows: previous-token heads.",
        minutes=5,
        difficulty=2,
    ),
)
