"""Attention by blocks is attention, forward and backward, and makes no table."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from attention_course.attention import attend, attention, causal_mask
from attention_course.flash import MemoryMeter, flash_attention, online_softmax

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


@pytest.mark.parametrize("dtype", TOLERANCE)
@given(T_q=sizes, cuts=st.lists(sizes, min_size=1, max_size=5), seed=seeds, scale=st.sampled_from([1, 1e4]))
def test_online_softmax_is_the_softmax_of_all_blocks(dtype, T_q, cuts, seed, scale):
    """Of blocks and rows without a score, too; and so is its gradient."""
    hidden = ~random_mask(seed, 2, T_q, sum(cuts))
    scores = (scale * randn(seed, 2, T_q, sum(cuts))).to(dtype).masked_fill(hidden, -torch.inf)
    scores, values = scores.requires_grad_(), randn(seed + 1, 2, sum(cuts), 3).to(dtype).requires_grad_()
    mean, log_sum = online_softmax(zip(scores.split(cuts, dim=-1), values.split(cuts, dim=-2), strict=True))
    nothing = hidden.all(dim=-1, keepdim=True)
    theirs = scores.softmax(dim=-1).masked_fill(nothing, 0.0) @ values
    close = {"rtol": TOLERANCE[dtype], "atol": 4 * TOLERANCE[dtype]}
    torch.testing.assert_close(mean, theirs, **close)
    torch.testing.assert_close(log_sum, scores.logsumexp(dim=-1), **close)
    if dtype == torch.float64 and not nothing.any():
        gradients = (torch.autograd.grad(each.sin().sum(), (scores, values)) for each in (mean, theirs))
        torch.testing.assert_close(*gradients)


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
    of_texts = [1 if shared else size for size in batch]  # one text may serve a batch of queries
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
    with torch.autocast("cpu", torch.bfloat16):  # changes nothing inside
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


def test_blocks_that_are_hidden_are_skipped():
    """Of 8 times 8 blocks, 8 + 7 + ... + 1."""
    q, k, v = (randn(i, 64, 16) for i in range(3))
    products = []
    for is_causal in (False, True):
        with FlopCounterMode(display=False) as counter:
            flash_attention(q, k, v, is_causal=is_causal, block_size=8)
        products.append(counter.get_total_flops())
    assert products[1] / products[0] == 36 / 64


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
