"""A softmax over blocks."""

import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from attention_course.exercises.comparing import close
from attention_course.exercises.exercise import Property, exercise


@dataclass(frozen=True)
class Blocks:
    """Scores and values of one query, in blocks: `for scores, values in blocks`."""

    pairs: tuple[tuple[Tensor, Tensor], ...]

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the scores (T_block,) and the values (T_block, C) of each block."""
        return ((scores.clone(), values.clone()) for scores, values in self.pairs)

    def __repr__(self) -> str:
        return "scores " + " | ".join(", ".join(f"{s:.1f}" for s in scores) for scores, _ in self.pairs)


def online_softmax(blocks: Iterable[tuple[Tensor, Tensor]]) -> Float[Tensor, " C"]:
    """Average values, weighted by the softmax of all scores, with one block of them at a time.

    Args:
        blocks: yields scores, shape (T_block,), with their values, shape (T_block, C).

    Returns:
        The weighted mean of all values, shape (C,).
    """
    largest = torch.tensor(float("-inf"))
    total = output = torch.tensor(0.0)
    for scores, values in blocks:
        before, largest = largest, torch.maximum(largest, scores.max())
        correction = (before - largest).exp()  # 0 for the first block
        exp = (scores - largest).exp()  # (T_block,)
        total = total * correction + exp.sum()
        output = output * correction + exp @ values  # (C,)
    return output / total


def draw_blocks(generator: torch.Generator) -> list[tuple]:
    """Draw blocks whose maximum rises, falls, and does both; some hold scores near 1000 and -1000."""

    def draw(sizes, levels, spread=1.0):
        pairs = []
        for size, level in zip(sizes, levels, strict=True):
            scores = level + spread * torch.randn(size, generator=generator)
            pairs.append((scores, torch.randn(size, 3, generator=generator)))
        return (Blocks(tuple(pairs)),)

    return [
        draw([3], [0]),
        draw([2, 2], [0, 2]),
        draw([2, 3], [2, 0]),
        draw([3, 1, 4], [0, 1, 2]),
        draw([2, 5, 2], [1, 3, 0]),
        draw([4, 4, 4, 4], [2, 0, -1, 1], 2.0),
        draw([3, 2, 3], [1000, 1001, 0]),
        draw([2, 2, 2], [-1001, -1000, -1000]),
        draw([2, 1, 3], [-500, 500, 498]),
        draw([4, 3, 4], [0, 100, 0], 300.0),
    ]


def most_held(average, blocks):
    """Give each block once; return how many earlier ones exist at most when the next is asked for.

    It is more than all of them if the result is another one.
    """
    given: list[list[weakref.ref]] = []
    held = 0

    def once():
        nonlocal held
        for pair in blocks:
            held = max(held, sum(any(each() is not None for each in old) for old in given[:-1]))
            given.append([weakref.ref(each) for each in pair])
            yield pair

    return held if close(average(blocks), average(once())) else len(blocks.pairs)


def in_reverse(average, blocks):
    """Give the last block first."""
    return close(average(blocks), average(Blocks(blocks.pairs[::-1])))


def higher_by_three(average, blocks):
    """Add 3 to all scores."""
    return close(average(blocks), average(Blocks(tuple((s + 3, v) for s, v in blocks.pairs))))


OF_AN_AVERAGE = (
    Property("The order of the blocks does not matter.", in_reverse),
    Property("A number added to all scores changes nothing.", higher_by_three),
    Property(
        "Each block is read once, and not all are kept.",
        lambda f, blocks: most_held(f, blocks) < 2,
        "all_blocks_held",
    ),
    Property(
        "No block is kept.",
        lambda f, blocks: most_held(f, blocks) == 0,
        "one_block_held",
    ),
)

EXERCISES = (exercise(__name__, online_softmax, draw_blocks, OF_AN_AVERAGE),)
