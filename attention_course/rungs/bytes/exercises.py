"""A softmax over blocks, the bytes of a cache, and the roof of a machine."""

import gc
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attention_course.exercises.comparing import close, unchanged
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
        C, pairs = len(sizes) + 1, []
        for size, level in zip(sizes, levels, strict=True):
            scores = level + spread * torch.randn(size, generator=generator)
            pairs.append((scores, torch.randn(size, C, generator=generator)))
        return (Blocks(tuple(pairs)),)

    return [
        draw([3], [0]),
        draw([2, 2], [0, 2]),
        draw([2, 3], [2, 0]),
        draw([3, 1, 4], [0, 1, 2]),
        draw([2, 5, 2], [1, 3, 0]),
        draw([4, 4, 4, 4], [2, 0, -1, 1], 2.0),
        draw([3, 2, 3], [1000, 1001, 0]),
        draw([2, 2, 2], [-1101, -1100, -1100]),
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


def kept_of_each(average):
    """Give ten blocks of 32 keys; return how many more numbers exist for each, in tensors and in lists."""
    found = []

    def counted():
        for _ in range(10):
            new = filter(lambda each: isinstance(each, Tensor | list), gc.get_objects())
            found.append(sum(each.numel() if isinstance(each, Tensor) else len(each) for each in new))
            yield torch.zeros(32), torch.zeros(32, 3)

    gc.freeze()  # what exists before is not counted
    try:
        average(counted())
    finally:
        gc.unfreeze()
    return (found[-1] - found[2]) / 7  # from the third on, what a loop leaves behind is there, too


def left_as_they_are(average, blocks):
    """Give blocks that are no copies."""
    given = list(blocks)
    average(iter(given))
    return unchanged(list(blocks.pairs), given)


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
        "Each block is read once, and not all are kept, or copied into tensors or lists.",
        lambda f, blocks: most_held(f, blocks) < 2 and kept_of_each(f) < 32,
        "all_blocks_held",
    ),
    Property(
        "No block is kept, and no view of one.",
        lambda f, blocks: most_held(f, blocks) == 0,
        "one_block_held",
    ),
    Property("The blocks stay as they are.", left_as_they_are),
)


def cache_bytes(
    T: Int[Tensor, " texts"], n_layer: int, n_head: int, n_kv_head: int, n_embd: int, dtype: torch.dtype
) -> Int[Tensor, " texts"]:
    """Return how many bytes the KV cache of each text takes.

    Args:
        T: tokens of each text, shape (texts,).
        n_layer: layers of the model.
        n_head: query heads of a layer.
        n_kv_head: heads that have keys and values of their own.
        n_embd: channels of a token.
        dtype: of the numbers in the cache.

    Returns:
        The bytes of each text, shape (texts,).
    """
    head_size = n_embd // n_head
    numbers = 2 * T * n_layer * n_kv_head * head_size  # keys and values
    return numbers * dtype.itemsize


def roof(
    flops: Float[Tensor, " parts"], moved: Float[Tensor, " parts"], most_flops: float, most_bytes: float
) -> Float[Tensor, " parts"]:
    """Return how many FLOPs per second each part of a computation can reach at most.

    Args:
        flops: the FLOPs of each part, shape (parts,).
        moved: the bytes that it fetches and stores, shape (parts,).
        most_flops: FLOPs per second of the processor.
        most_bytes: bytes per second of the memory.

    Returns:
        FLOPs per second, shape (parts,).
    """
    per_byte = flops / moved
    slope = per_byte * most_bytes
    return slope.clamp(max=most_flops)


def draw_sizes(generator: torch.Generator) -> list[tuple]:
    """Draw sizes of models: all heads alone, one for all, and groups; 8 to 64 bits; more than 2 GiB."""

    def draw(low, high):
        return int(torch.randint(low, high, (), generator=generator))

    given = [
        (torch.tensor([5]), 2, 3, 1, 12, torch.float32),
        (torch.tensor([4, 9, 2]), 2, 4, 2, 8, torch.float64),
        (torch.tensor([2, 3]), 3, 4, 2, 12, torch.bfloat16),
        (torch.tensor([7, 1, 9]), 2, 4, 4, 8, torch.float16),
        (torch.tensor([100, 2000]), 30, 9, 3, 576, torch.bfloat16),
        (torch.tensor([6, 2, 12]), 3, 10, 5, 70, torch.int8),
    ]
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        n_kv_head, group, head_size = draw(2, 5), draw(2, 5), draw(3, 9)
        n_head = n_kv_head * group
        T = torch.randint(11, 40, (3,), generator=generator)
        given.append((T, draw(3, 8), n_head, n_kv_head, n_head * head_size, dtype))
    long = torch.randint(20_000, 30_000, (2,), generator=generator)
    return [*given, (long, 80, 64, 8, 8192, torch.bfloat16)]  # as in Llama 2 70B


def draw_parts(generator: torch.Generator) -> list[tuple]:
    """Draw parts on both sides of the edge of a roof, all on one side, and one at the edge itself."""

    def draw(low, high):
        """Draw FLOPs and bytes of five parts, with powers of 2 from low to high of the one over the other."""
        moved = torch.randint(2, 50, (5,), generator=generator).float()
        powers = torch.linspace(low, high, 5)[torch.randperm(5, generator=generator)]
        return moved * 2**powers, moved

    return [
        (torch.tensor([2.0, 80.0]), torch.tensor([4.0, 10.0]), 12.0, 3.0),
        (torch.tensor([10.0]), torch.tensor([5.0]), 8.0, 4.0),
        (*draw(-3, 5), 20.0, 5.0),
        (*draw(-2, 1), 60.0, 6.0),
        (*draw(4, 7), 50.0, 25.0),
        (*draw(-3, 8), 90.0, 7.0),
    ]


OF_A_CACHE = (
    Property(
        "Twice the tokens take twice the bytes.",
        lambda f, T, *sizes: close(2 * f(T, *sizes), f(2 * T, *sizes)),
    ),
    Property(
        "bfloat16 takes half of float32.",
        lambda f, *sizes: close(f(*sizes[:-1], torch.float32), 2 * f(*sizes[:-1], torch.bfloat16)),
    ),
)
OF_A_ROOF = (
    Property(
        "No part is faster than the processor.",
        lambda f, flops, moved, most_flops, most_bytes: (
            f(flops, moved, most_flops, most_bytes) <= 1.001 * most_flops
        ).all(),
    ),
    Property(
        "Twice the FLOPs for twice the bytes changes nothing.",
        lambda f, flops, moved, *most: close(f(flops, moved, *most), f(2 * flops, 2 * moved, *most)),
    ),
)

EXERCISES = (
    exercise(__name__, online_softmax, draw_blocks, OF_AN_AVERAGE),
    exercise(__name__, cache_bytes, draw_sizes, OF_A_CACHE),
    exercise(__name__, roof, draw_parts, OF_A_ROOF),
)
