"""RMSNorm, rotary positions, grouped queries, a step with a cache, byte pairs, an induction head."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attention_course.exercises.comparing import close, differentiable
from attention_course.exercises.exercise import Property, exercise


def rms_norm(x: Float[Tensor, "*B T C"], weight: Float[Tensor, " C"], eps: float) -> Float[Tensor, "*B T C"]:
    """Divide each token by its root mean square, and scale each channel.

    Args:
        x: tokens, shape (T, C) or (B, T, C).
        weight: a factor for each channel, shape (C,).
        eps: added to the mean square.

    Returns:
        The same shape as `x`.
    """
    mean_square = x.square().mean(dim=-1, keepdim=True)
    return x / (mean_square + eps).sqrt() * weight


def rotate(
    x: Float[Tensor, "... T head_size"], positions: Int[Tensor, " T"], base: float
) -> Float[Tensor, "... T head_size"]:
    """Turn each pair of neighbouring channels by an angle that grows with the position.

    Args:
        x: queries or keys, shape (..., T, head_size), head_size even.
        positions: the position of each token, shape (T,).
        base: pair i turns by base ** (-2i / head_size) radians from one position to the next.

    Returns:
        The same shape as `x`.
    """
    head_size = x.shape[-1]
    speeds = base ** (-torch.arange(0, head_size, 2) / head_size)  # one for each pair
    angles = positions[:, None] * speeds  # (T, head_size / 2)
    cos, sin = angles.cos(), angles.sin()
    a, b = x[..., 0::2], x[..., 1::2]
    turned = torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1)
    return turned.flatten(-2)


def grouped_attention(
    q: Float[Tensor, "B n_head T_q head_size"],
    k: Float[Tensor, "B n_kv_head T_k head_size"],
    v: Float[Tensor, "B n_kv_head T_k head_size"],
) -> Float[Tensor, "B n_head T_q head_size"]:
    """Compute causal attention in which neighbouring heads share keys and values.

    Args:
        q: queries of the last T_q of T_k tokens, shape (B, n_head, T_q, head_size).
        k: keys, shape (B, n_kv_head, T_k, head_size); n_kv_head divides n_head.
        v: values, same shape as `k`.

    Returns:
        The output of each head, shape (B, n_head, T_q, head_size).
    """
    _, n_head, T_q, head_size = q.shape
    _, n_kv_head, T_k, _ = k.shape
    group = n_head // n_kv_head  # so many heads share keys and values
    k = k.repeat_interleave(group, dim=1)  # (B, n_head, T_k, head_size)
    v = v.repeat_interleave(group, dim=1)
    mask = torch.ones(T_q, T_k, dtype=torch.bool).tril(T_k - T_q)
    scores = q @ k.transpose(-2, -1) * head_size**-0.5
    scores = scores.masked_fill(~mask, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


def attend_with_cache(
    q: Float[Tensor, "B n_head T_new head_size"],
    k: Float[Tensor, "B n_head T_new head_size"],
    v: Float[Tensor, "B n_head T_new head_size"],
    past_k: Float[Tensor, "B n_head T_past head_size"],
    past_v: Float[Tensor, "B n_head T_past head_size"],
    rotate: Callable,
) -> Float[Tensor, "B n_head T_new head_size"]:
    """Compute causal attention of new tokens, given the keys and values of the past.

    Args:
        q: queries of the new tokens, not yet rotated, shape (B, n_head, T_new, head_size).
        k: their keys, not yet rotated, same shape.
        v: their values, same shape.
        past_k: keys in the cache, rotated already, shape (B, n_head, T_past, head_size).
        past_v: values in the cache, same shape.
        rotate: rotary positions: maps queries or keys, and positions (T,), to rotated ones.

    Returns:
        The output for the new tokens, shape (B, n_head, T_new, head_size).
    """
    T_new, T_past = q.shape[-2], past_k.shape[-2]
    positions = torch.arange(T_past, T_past + T_new)
    q, k = rotate(q, positions), rotate(k, positions)
    k = torch.cat([past_k, k], dim=-2)  # (B, n_head, T_past + T_new, head_size)
    v = torch.cat([past_v, v], dim=-2)
    mask = torch.ones(T_new, T_past + T_new, dtype=torch.bool).tril(T_past)
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    scores = scores.masked_fill(~mask, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


def encode_word(ids: Int[Tensor, " T"], merges: dict[tuple[int, int], int]) -> Int[Tensor, " T_out"]:
    """Encode a word by byte pairs: merge again and again the pair that was learned first.

    Args:
        ids: the bytes of the word, shape (T,), at least one.
        merges: the id of each pair that was learned; the earlier, the lower.

    Returns:
        The ids of its tokens, shape (T_out,).
    """
    tokens = ids.tolist()
    while pairs := [pair for pair in pairwise(tokens) if pair in merges]:
        best = min(pairs, key=lambda pair: merges[pair])
        merged = []
        while tokens:
            found = tuple(tokens[:2]) == best
            merged.append(merges[best] if found else tokens[0])
            tokens = tokens[2:] if found else tokens[1:]
        tokens = merged
    return torch.tensor(tokens)


def leftmost_pair_first(ids, merges):
    """Merge pairs as they are read."""
    tokens = []
    for token in ids.tolist():
        tokens.append(token)
        while tuple(tokens[-2:]) in merges:
            tokens[-2:] = [merges[tuple(tokens[-2:])]]
    return torch.tensor(tokens)


def longest_token_first(ids, merges):
    """Take the longest token that the rest of the word begins with."""
    spelled = {}
    for (left, right), token in sorted(merges.items(), key=lambda item: item[1]):
        spelled[token] = spelled.get(left, [left]) + spelled.get(right, [right])
    rest, tokens = ids.tolist(), []
    while rest:
        fitting = [token for token, letters in spelled.items() if rest[: len(letters)] == letters]
        best = max(fitting, key=lambda token: len(spelled[token]), default=rest[0])
        tokens.append(best)
        rest = rest[len(spelled.get(best, [best])) :]
    return torch.tensor(tokens)


def digits_replaced(ids, merges):
    """Replace in a text of numbers."""
    text = " ".join(map(str, ids.tolist()))
    while pairs := [pair for pair in pairwise(map(int, text.split())) if pair in merges]:
        left, right = best = min(pairs, key=lambda pair: merges[pair])
        text = text.replace(f"{left} {right}", str(merges[best]))
    return torch.tensor([int(token) for token in text.split()])


# Inputs


def draw_tokens(generator: torch.Generator) -> list[tuple]:
    """Draw tokens, weights and epsilons: both ranks, B == T == C, tiny and large tokens, and one of zeros.

    Each epsilon is large enough beside the squares of some token to show in the result.
    """

    def draw(shape, eps, scale=1.0):
        x = scale * (torch.randn(shape, generator=generator) + torch.randn((), generator=generator))
        return x, torch.randn(shape[-1], generator=generator), eps

    drawn = [draw((1, 2), 0.5), draw((3, 3), 0.25), draw((2, 2, 2), 0.5), draw((4, 3), 0.1)]
    drawn += [draw((2, 3, 4), 1.0), draw((3, 5, 2), 1e-5, 1e-3), draw((2, 4, 7), 100.0, 30.0)]
    x, weight, eps = drawn[-3]
    drawn[-3] = x.index_fill(1, torch.tensor([1]), 0.0), weight, eps
    return drawn


def draw_heads(generator: torch.Generator) -> list[tuple]:
    """Draw queries or keys, positions and bases: from 0 on, from elsewhere, far away, and in any order.

    One input has T == n_head, one T == head_size / 2, and one a single pair of channels.
    """

    def draw(shape, positions, base):
        return torch.randn(shape, generator=generator), torch.tensor(positions), base

    start = int(torch.randint(3, 9, (), generator=generator))
    anywhere = torch.randperm(12, generator=generator)[:5].tolist()
    return [
        draw((1, 2), [start], 100.0),
        draw((2, 4), [0, 1], 100.0),
        draw((3, 4), [start, start + 1, start + 2], 10.0),
        draw((2, 3, 3, 4), [0, 1, 2], 100.0),
        draw((2, 2, 5, 6), anywhere, 50.0),
        draw((3, 4, 8), [start, 0, 2, 2], 10_000.0),
        draw((4, 6), [300 + start, 301 + start, 0, 511], 10_000.0),  # bfloat16 has no odd number above 256
        draw((2, 2), [5000, 2049], 100.0),  # and float16 none above 2048
    ]


def draw_groups(generator: torch.Generator) -> list[tuple]:
    """Draw queries, keys and values: one head, as many key heads as heads, one key head, groups, 70 keys.

    Some have more keys than queries. In the last, scores of whole numbers, which nothing rounds, lie below
    -1000 or above 1000, and no two of a row are equal.
    """

    def draw(B, n_head, n_kv_head, T_q, T_k, head_size):
        shapes = (B, n_head, T_q, head_size), *[(B, n_kv_head, T_k, head_size)] * 2
        return tuple(torch.randn(shape, generator=generator) for shape in shapes)

    sizes = [(1, 1, 1, 2, 2, 2), (1, 2, 2, 2, 3, 2), (1, 2, 1, 3, 3, 2), (1, 4, 2, 2, 3, 4)]
    sizes += [(2, 6, 3, 3, 5, 2), (2, 6, 2, 4, 4, 3), (3, 4, 2, 1, 6, 5), (1, 2, 1, 2, 70, 2)]
    q, k, v = draw(2, 9, 3, 7, 7, 4)
    q, keys = 55.0 * q[..., :1].sign(), 10.0 + k[..., :1].argsort(dim=2)
    return [*(draw(*each) for each in sizes), (q.repeat(1, 1, 1, 4), keys.repeat(1, 1, 1, 4), v)]


@dataclass(frozen=True)
class Rotation:
    """Rotary positions with a base."""

    base: float

    def __call__(self, x: Tensor, positions: Tensor) -> Tensor:
        """Map x (..., T, head_size), at positions (T,), to an output of the same shape.

        Raises:
            TypeError: `positions` is not a tensor.
            ValueError: it has another shape.
        """
        if not isinstance(positions, Tensor):
            raise TypeError(f"rotate: positions is {positions!r}, expected a tensor of shape (T,).")
        if positions.shape != x.shape[-2:-1]:
            raise ValueError(
                f"rotate: positions has shape {tuple(positions.shape)}, and `x` has T = {x.shape[-2]} "
                "tokens. Pass a position for each of them, shape (T,)."
            )
        return rotate(x, positions, self.base)

    def __repr__(self) -> str:
        return f"rotary positions with base {self.base:g}"


def draw_steps(generator: torch.Generator) -> list[tuple]:
    """Draw new tokens and a cache: one new token, several, an empty cache, all sizes equal, 70 keys.

    In the last, all scores lie below -5,000.
    """

    def draw(B, n_head, T_new, T_past, head_size, base):
        shape = B, n_head, 3 * T_new + 2 * T_past, head_size
        parts = torch.randn(shape, generator=generator).split([T_new] * 3 + [T_past] * 2, dim=2)
        return *(part.clone() for part in parts), Rotation(base)

    sizes = [(1, 1, 1, 2, 2), (1, 2, 2, 2, 2), (1, 2, 3, 0, 4), (2, 3, 1, 4, 4), (2, 3, 3, 3, 2)]
    sizes += [(1, 1, 2, 68, 2)]
    drawn = [draw(*each, 10.0) for each in sizes]
    drawn += [draw(2, 2, 2, 5, 4, 100.0), draw(3, 2, 4, 3, 6, 50.0), draw(1, 1, 2, 0, 2, 10.0)]
    q, k, *_ = drawn[-1]
    q.fill_(100.0)
    k.copy_(torch.tensor([[-100.0], [-200.0]]))
    return drawn


def draw_words(generator: torch.Generator) -> list[tuple]:
    """Draw words and tables of merges: nothing to merge, equal letters in a row, pairs that compete.

    The pairs of a table are in any order, and in one not in that of learning.
    The last tables are learned from random words, merging a random pair at each step.
    """

    def letters(n):
        return sorted((97 + torch.randperm(26, generator=generator)[:n]).tolist())

    def draw(word, *merges):
        known, table = dict(zip("abcd", letters(4), strict=True)), {}
        for new_id, (left, right) in enumerate(map(str.split, merges), start=256):
            known[left + right] = table[known[left], known[right]] = new_id
        return torch.tensor([known[letter] for letter in word]), shuffled(table)

    def shuffled(table):
        pairs = list(table.items())
        return dict(pairs[i] for i in torch.randperm(len(pairs), generator=generator).tolist())

    def learn(n_letters, T, n):
        alphabet = torch.tensor(letters(n_letters))
        word, other = alphabet[torch.randint(n_letters, (2, T), generator=generator)]
        table: dict[tuple[int, int], int] = {}
        spelled: dict[int, tuple[int, ...]] = {letter: (letter,) for letter in alphabet.tolist()}
        for new_id in range(256, 256 + n):
            tokens = encode_word(word, table).tolist()
            pairs = {pair: spelled[pair[0]] + spelled[pair[1]] for pair in pairwise(tokens)}
            pairs = sorted(pair for pair, text in pairs.items() if text not in spelled.values())
            if pairs:
                pair = pairs[int(torch.randint(len(pairs), (), generator=generator))]
                table[pair], spelled[new_id] = new_id, spelled[pair[0]] + spelled[pair[1]]
        return other, shuffled(table)

    return [
        draw("a", "a b"),
        draw("ba", "a b"),
        draw("cab", "a b"),
        draw("aaa", "a a"),
        draw("abcab", "b c", "a b"),
        (torch.tensor([97, 98, 99]), {(98, 99): 257, (97, 98): 256}),
        (torch.tensor([97, 98, 99]), {(98, 99): 256, (97, 98): 257}),
        (torch.tensor([97, 98, 99]), {(97, 98): 256, (98, 99): 257}),
        (torch.tensor([97, 98, 7, 98]), {(7, 98): 256}),
        draw("abcd", "b c", "a b", "c d", "a bc"),
        draw("abcd", "a b", "c d", "ab c"),
        draw("abc", "a b", "ab c"),
        draw("cadbac", "b a", "c a", "a d", "a c", "d b"),
        draw("aaaaa", "a a", "aa a"),
        draw("dabcabcbc", "a b", "b c", "ab c", "abc abc"),
        learn(2, 10, 4),
        learn(3, 14, 6),
        learn(4, 30, 12),
        (torch.tensor([0, 97, 0, 98, 99, 97]), {(99, 97): 50_000, (98, 99): 45_000, (97, 0): 40_000}),
    ]


# Properties


def unit_length_without_epsilon(norm, x, weight, eps):
    """Set epsilon to 0 and the weight to 1, and compute the mean square of each token."""
    mean_square = norm(x + 200, torch.ones_like(weight), 0.0).square().mean(dim=-1)  # no token is zero
    return close(torch.ones_like(mean_square), mean_square)


def token_alone(norm, x, weight, eps):
    """Compare the first token with the same token alone."""
    return close(norm(x, weight, eps)[..., :1, :], norm(x[..., :1, :], weight, eps))


def lengths_stay(rotate, x, positions, base):
    """Compare the length of each pair of channels before and after."""
    before, after = (each.unflatten(-1, (-1, 2)).norm(dim=-1) for each in (x, rotate(x, positions, base)))
    return close(before, after)


def distance_alone(rotate, x, positions, base):
    """Compare all scores of x with x before and after all positions move by 5."""
    here, there = rotate(x, positions, base), rotate(x, positions + 5, base)
    return close(here @ here.mT, there @ there.mT)


def copies_of_shared_keys(attend, q, k, v):
    """Give each head a copy of the keys and values that it shares."""
    group = q.shape[1] // k.shape[1]
    copies = (each.repeat_interleave(group, dim=1) for each in (k, v))
    return close(attend(q, k, v), attend(q, *copies))


def last_key_hidden(attend, q, k, v):
    """Change the last key and value: only the last output may move."""
    k_2, v_2 = (torch.cat([each[:, :, :-1], -each[:, :, -1:] - 1], dim=2) for each in (k, v))
    return close(attend(q, k, v)[:, :, :-1], attend(q, k_2, v_2)[:, :, :-1])


def one_after_the_other(attend, q, k, v, past_k, past_v, rotate):
    """Attend with the new tokens one by one, keeping their keys and values."""
    outputs = []
    for t in range(q.shape[2]):
        new_q, new_k, new_v = (each[:, :, t : t + 1] for each in (q, k, v))
        outputs.append(attend(new_q, new_k, new_v, past_k, past_v, rotate))
        new_k = rotate(new_k, torch.tensor([past_k.shape[2]]))
        past_k, past_v = torch.cat([past_k, new_k], dim=2), torch.cat([past_v, new_v], dim=2)
    whole = attend(q, k, v, *(each[:, :, : -q.shape[2]] for each in (past_k, past_v)), rotate)
    return close(whole, torch.cat(outputs, dim=2))


def spells_the_word(encode, ids, merges):
    """Take all tokens apart again."""
    parts = {new_id: pair for pair, new_id in merges.items()}
    tokens, found = encode(ids, merges).tolist()[::-1], []
    while tokens:
        token = tokens.pop()
        if token in parts:
            tokens += parts[token][::-1]
        else:
            found.append(token)
    return found == ids.tolist()


OF_RMS_NORM = (
    Property("Without epsilon and weight, the mean square of each token is 1.", unit_length_without_epsilon),
    Property(
        "Twice the weight gives twice the output.",
        lambda f, x, weight, eps: close(2 * f(x, weight, eps), f(x, 2 * weight, eps)),
    ),
    Property("A token gives the same result alone as among others.", token_alone),
    differentiable(rms_norm),
)
OF_A_ROTATION = (
    Property(
        "At position 0 nothing turns.",
        lambda f, x, positions, base: close(x, f(x, 0 * positions, base)),
    ),
    Property("Each pair keeps its length.", lengths_stay),
    Property("The score of two tokens stays when both positions move by as much.", distance_alone),
    differentiable(rotate),
)
OF_GROUPS = (
    Property("Copies of shared keys and values, one for each head, give the same.", copies_of_shared_keys),
    Property("A change of the last key and value moves no earlier output.", last_key_hidden),
    Property(
        "A text gives the same result alone as in a batch.",
        lambda f, q, k, v: close(f(q, k, v)[:1], f(q[:1], k[:1], v[:1])),
    ),
    differentiable(grouped_attention),
)
OF_A_STEP = (
    Property("New tokens give the same together as one after the other.", one_after_the_other),
    differentiable(attend_with_cache),
)
OF_AN_ENCODING = (
    Property("Without merges, a word stays as it is.", lambda f, ids, merges: torch.equal(ids, f(ids, {}))),
    Property("Taken apart, the tokens spell the word.", spells_the_word),
    Property(
        "In the result there is nothing left to merge.",
        lambda f, ids, merges: not set(pairwise(f(ids, merges).tolist())) & set(merges),
    ),
)

EXERCISES = (
    exercise(__name__, rms_norm, draw_tokens, OF_RMS_NORM),
    exercise(__name__, rotate, draw_heads, OF_A_ROTATION),
    exercise(__name__, grouped_attention, draw_groups, OF_GROUPS),
    exercise(__name__, attend_with_cache, draw_steps, OF_A_STEP),
    exercise(
        __name__,
        encode_word,
        draw_words,
        OF_AN_ENCODING,
        functions=(leftmost_pair_first, longest_token_first, digits_replaced),
    ),
)
