"""Attention by blocks is attention, forward and backward, and makes no table."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attention_course.attention import attend, attention, causal_mask
from attention_course.flash import MemoryMeter, cut_table, flash_attention, online_softmax

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}

sizes = st.integers(1, 9)
seeds = st.integers(0, 2**32)


def randn(seed, *shape, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def random_mask(seed, *shape):
    """Draw a mask in which some queries may look at nothing."""
    generator = torch.Generator().manual_seed(seed)
    seen = torch.rand(shape, generator=generator) < 0.6
    return seen & (torch.rand((*shape[:-1], 1), generator=generator) < 0.8)


# Online softmax


@given(T_q=sizes, cuts=st.lists(sizes, min_size=1, max_size=5), seed=seeds, scale=st.sampled_from([1, 1e4]))
def test_online_softmax_is_the_softmax_of_all_blocks(T_q, cuts, seed, scale):
    scores, values = scale * randn(seed, 2, T_q, sum(cuts)), randn(seed + 1, 2, sum(cuts), 3)
    blocks = zip(scores.split(cuts, dim=-1), values.split(cuts, dim=-2), strict=True)
    mean, log_sum = online_softmax(blocks)
    torch.testing.assert_close(mean, scores.softmax(dim=-1) @ values)
    torch.testing.assert_close(log_sum, scores.logsumexp(dim=-1))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 0, 2]])
def test_blocks_without_a_score_count_nothing(dtype, order):
    inf = float("inf")
    rows = [[[-inf, -inf], [1.0, 2.0], [-inf, 3.0]], [[-inf, -inf], [-inf, -inf], [-inf, -inf]]]
    scores = torch.tensor(rows, dtype=dtype)[:, order].transpose(0, 1)
    values = torch.ones(3, 2, 1, dtype=dtype)
    mean, log_sum = online_softmax(zip(scores, values, strict=True))
    assert mean.flatten().tolist() == [1.0, 0.0]
    close = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype]}
    torch.testing.assert_close(log_sum, scores.transpose(0, 1).flatten(1).logsumexp(dim=1), **close)


def test_online_softmax_has_the_gradient_of_softmax():
    scores, values = randn(0, 3, 5).requires_grad_(), randn(1, 5, 2).requires_grad_()
    ours, _ = online_softmax(zip(scores.split(2, dim=-1), values.split(2), strict=True))
    theirs = scores.softmax(dim=-1) @ values
    gradients = (torch.autograd.grad(x.sin().sum(), (scores, values)) for x in (ours, theirs))
    torch.testing.assert_close(*gradients)


# The table in blocks


@given(T_q=st.integers(0, 9), T_k=st.integers(0, 9), block_size=sizes, is_causal=st.booleans())
def test_blocks_cover_what_may_be_seen_once_and_skip_what_is_hidden(T_q, T_k, block_size, is_causal):
    seen = causal_mask(T_q, T_k) if is_causal else torch.ones(T_q, T_k, dtype=torch.bool)
    covered = torch.zeros(T_q, T_k, dtype=torch.int64)
    for rows, slices in cut_table(T_q, T_k, block_size, is_causal):
        for columns in slices:
            block = covered[rows, columns]
            assert 0 < block.shape[0] <= block_size
            assert 0 < block.shape[1] <= block_size
            assert block.shape == (rows.stop - rows.start, columns.stop - columns.start)
            assert seen[rows, columns].any()
            block += 1
    assert not (covered > 1).any()
    assert covered[seen].all()


# Attention


@given(
    batch=st.sampled_from([(), (2,), (3, 2)]),
    T_q=sizes,
    T_k=sizes,
    head_size=sizes,
    d_v=sizes,
    block_size=sizes,
    is_causal=st.booleans(),
    masked=st.sampled_from(["", "T_q T_k", "T_k", "batch", "1 T_k"]),
    shared=st.booleans(),
    dtype=st.sampled_from([torch.float64, torch.float32]),
    seed=seeds,
)
def test_it_is_attention_forward_and_backward(
    batch, T_q, T_k, head_size, d_v, block_size, is_causal, masked, shared, dtype, seed
):
    q = randn(seed, *batch, T_q, head_size, dtype=dtype).requires_grad_()
    of_texts = [
        1 if shared else size for size in batch
    ]  # keys and values of one text serve a batch of queries
    k = randn(seed + 1, *of_texts, T_k, head_size, dtype=dtype).requires_grad_()
    v = randn(seed + 2, *of_texts, T_k, d_v, dtype=dtype).requires_grad_()
    shapes = {"T_q T_k": (T_q, T_k), "T_k": (T_k,), "batch": (*batch, T_q, T_k), "1 T_k": (1, T_k)}
    mask = random_mask(seed, *shapes[masked]) if masked else None
    ours = flash_attention(q, k, v, mask, is_causal, block_size)
    assert ours.dtype == dtype
    whole = causal_mask(T_q, T_k) if is_causal else None
    whole = whole if mask is None else mask if whole is None else mask & whole
    theirs, _ = attention(q, k, v, whole)
    close = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype]}
    torch.testing.assert_close(ours, theirs, **close)
    if masked != "T_k":  # PyTorch wants two dimensions
        torch.testing.assert_close(ours, attend(q, k, v, mask, is_causal), **close)
    direction = randn(seed + 3, *batch, T_q, d_v, dtype=dtype)
    gradients = (torch.autograd.grad(each, (q, k, v), direction) for each in (ours, theirs))
    torch.testing.assert_close(*gradients, **close)


def test_there_is_no_second_derivative_and_it_says_so():
    q, k, v = randn(0, 3, 4, 2).requires_grad_()
    (gradient,) = torch.autograd.grad(flash_attention(q, k, v).square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_summed_in_float32(dtype):
    q, k, v = (randn(i, 2, 300, 16, dtype=dtype).requires_grad_() for i in range(3))
    exact, _ = attention(q.double(), k.double(), v.double(), causal_mask(300))
    ours = flash_attention(q, k, v, is_causal=True, block_size=64)
    assert ours.dtype == dtype
    close = {"rtol": torch.finfo(dtype).eps, "atol": 1e-5}  # nothing but the last rounding
    torch.testing.assert_close(ours.double(), exact, **close)
    direction = randn(3, 2, 300, 16, dtype=dtype)
    for one, other in zip(
        torch.autograd.grad(ours, (q, k, v), direction),
        torch.autograd.grad(exact, (q, k, v), direction.double()),
        strict=True,
    ):
        assert one.dtype == dtype
        torch.testing.assert_close(one, other, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def test_autocast_changes_nothing_inside():
    q, k, v = (randn(i, 2, 9, 8, dtype=torch.float32) for i in range(3))
    with torch.autocast("cpu", torch.bfloat16):
        ours = flash_attention(q, k, v, block_size=4)
    torch.testing.assert_close(ours, attention(q, k, v)[0])


@pytest.mark.parametrize("factor", [1e3, 1e15])
def test_large_scores_do_not_overflow(factor):
    """Scores of 1e15 leave exp nothing to work with but the one maximum of a row."""
    q, k, v = (randn(i, 7, 5, dtype=torch.float32) for i in range(3))
    q = (q * factor).requires_grad_()
    ours = flash_attention(q, k, v, block_size=3)
    torch.testing.assert_close(ours, attention(q, k, v)[0])
    (gradient,) = torch.autograd.grad(ours.sum(), q)
    assert gradient.isfinite().all()


def test_nobody_to_look_at_gives_zeros_and_finite_gradients():
    q, k, v = (randn(i, 4, 3).requires_grad_() for i in range(3))
    mask = torch.tensor([[False], [True], [False], [True]]).expand(4, 4)
    for output, empty in (
        (flash_attention(q, k, v, mask, block_size=2), [0, 2]),
        (flash_attention(q, k[:2], v[:2], is_causal=True, block_size=2), [0, 1]),
        (flash_attention(q, k[:0], v[:0]), [0, 1, 2, 3]),
    ):
        assert (output[empty] == 0).all()
        gradients = torch.autograd.grad(output.sum(), (q, k, v))
        assert all(each.isfinite().all() for each in gradients)
        assert (gradients[0][empty] == 0).all()
    assert flash_attention(q[:0], k, v).shape == (0, 3)


# Memory


def measured(function):
    """Run a function and the backward pass of its result, and return the meter."""
    with MemoryMeter() as meter:
        function().sum().backward()
    return meter


def test_no_tensor_is_as_large_as_the_table():
    q, k, v = (randn(i, 1, 256, 16, dtype=torch.float32).requires_grad_() for i in range(3))
    table = 256 * 256 * 4
    masks = (None, random_mask(0, 1, 256))
    for mask in masks:
        meter = measured(lambda mask=mask: flash_attention(q, k, v, mask, is_causal=True, block_size=32))
        assert meter.largest == 256 * 16 * 4
        assert meter.peak < table / 2
    assert measured(lambda: attention(q, k, v)[0]).largest == table


def test_the_meter_counts_what_is_made_once_and_what_is_freed():
    given = torch.zeros(1000)
    with MemoryMeter() as meter:
        given[10:20].view(2, 5).add_(1)  # views and results in place are not new
        assert (meter.live, meter.peak, meter.largest) == (0, 0, 0)
        kept = given + 1
        assert (meter.live, meter.peak, meter.largest) == (4000, 4000, 4000)
        two = torch.cat([kept, kept]).split(1000)
        assert meter.live == 12_000
        del two
        assert meter.live == 4000
        given[:5].double()
    del kept
    assert (meter.live, meter.peak, meter.largest) == (0, 12_000, 8000)
