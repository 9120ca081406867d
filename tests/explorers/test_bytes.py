"""The explorer of memory: its bars are the bytes of real tensors."""

import pytest
import torch
from explorers.words import written

from attention_course.attention import Cache
from attention_course.llama import Llama
from attention_course.rungs.bytes.explorer import PARAMETERS, SIZES, compute
from attention_course.smollm import SMOLLM


def says(out, T, texts, n_kv_head, dtype):
    """A table grows with the square of T, a cache with T and the key heads, and a block not at all."""
    table, block, caches, parameters = (1e6 * out["megabytes"] / SIZES[dtype]).tolist()
    assert table == pytest.approx(9 * T**2)
    assert block == pytest.approx(9 * min(T, 128) ** 2)
    assert caches == pytest.approx(texts * T * 30 * n_kv_head * 2 * 64)
    assert parameters == pytest.approx(134_515_008)
    yield f"With {T:,} tokens"
    yield from (sized(each) for each in out["megabytes"][[0, 2, 3]])
    yield "all of them in one block" if T == 128 else f"and a block of them {sized(out['megabytes'][1])}"
    yield f"{written(caches / parameters)} times as much as the parameters"
    yield "The cache of the text takes" if texts == 1 else f"The caches of the {texts} texts take"


def sized(megabytes):
    return f"{written(megabytes)} MB" if megabytes < 1000 else f"{written(megabytes / 1000)} GB"


def test_the_sizes_are_those_of_smollm2():
    with torch.device("meta"):
        model = Llama(SMOLLM)
        assert sum(parameter.numel() for parameter in model.parameters()) == PARAMETERS
    cache = Cache()
    for layer in range(SMOLLM.n_layer):
        head_size = SMOLLM.n_embd // SMOLLM.n_head
        cache.extend(model.transformer.h[layer], *torch.empty(2, 1, SMOLLM.n_kv_head, 256, head_size))
    cache.advance(256)
    assert compute(256, 1, SMOLLM.n_kv_head, "float32")["megabytes"][2] == 4 * cache.numel() / 1e6


def test_the_task_has_the_answers_that_the_page_gives():
    larger = [T for T in (512, 1024, 2048, 4096, 8192) if is_larger(compute(T, 1, 3, "bfloat16"), 0)]
    assert larger[0] == 4096
    fit = {
        heads: [
            texts for texts in (1, 2, 4, 8, 16) if not is_larger(compute(8192, texts, heads, "float32"), 2)
        ]
        for heads in (9, 3, 1)
    }
    assert fit == {9: [], 3: [1], 1: [1, 2, 4]}


def is_larger(out, bar):
    return out["megabytes"][bar] > out["megabytes"][3]
