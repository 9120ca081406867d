"""Attention is what the rungs below say it is, and what PyTorch's own function computes."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from attention_course.attention import (
    CrossAttentionHead,
    Head,
    attention,
    attention_weights,
    causal_mask,
    leak_probe,
    padding_mask,
    prefix_mask,
    window_mask,
)
from attention_course.averaging import causal_mean_loop, causal_mean_matmul, causal_mean_softmax

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}

sizes = st.integers(1, 7)
seeds = st.integers(0, 2**32)
each_dtype = pytest.mark.parametrize("dtype", TOLERANCE)


def randn(seed, *shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def random_mask(seed, *shape):
    """Draw a mask in which some queries may look at nothing."""
    generator = torch.Generator().manual_seed(seed)
    seen = torch.rand(shape, generator=generator) < 0.6
    return seen & (torch.rand((*shape[:-1], 1), generator=generator) < 0.8)


@each_dtype
@given(
    B=sizes,
    H=sizes,
    T_q=sizes,
    T_k=sizes,
    head_size=sizes,
    d_v=sizes,
    masked=st.booleans(),
    scale=st.sampled_from([None, 0.3, 2.0]),
    seed=seeds,
)
def test_attention_is_pytorchs_forward_and_backward(
    dtype, B, H, T_q, T_k, head_size, d_v, masked, scale, seed
):
    q = randn(seed, B, H, T_q, head_size, dtype=dtype).requires_grad_()
    k = randn(seed + 1, B, H, T_k, head_size, dtype=dtype).requires_grad_()
    v = randn(seed + 2, B, H, T_k, d_v, dtype=dtype).requires_grad_()
    direction = randn(seed + 3, B, H, T_q, d_v, dtype=dtype)
    mask = random_mask(seed, B, 1, T_q, T_k) if masked else None
    ours, weights = attention(q, k, v, mask, scale)
    assert torch.equal(weights, attention_weights(q, k, mask, scale))
    theirs = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    close = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype]}
    torch.testing.assert_close(ours, theirs, **close)
    our_gradients = torch.autograd.grad(ours, (q, k, v), direction)
    their_gradients = torch.autograd.grad(theirs, (q, k, v), direction)
    for mine, reference in zip(our_gradients, their_gradients, strict=True):
        torch.testing.assert_close(mine, reference, **close)


@given(T=st.integers(1, 20), C=sizes, seed=seeds)
def test_zero_queries_give_back_the_rungs_below(T, C, seed):
    x = randn(seed, 2, T, C)
    head = Head(C, C)
    torch.nn.init.zeros_(head.query.weight)
    torch.nn.init.eye_(head.value.weight)
    output, _ = head(x, causal_mask(T))
    for mean in (causal_mean_loop, causal_mean_matmul, causal_mean_softmax):
        torch.testing.assert_close(output, mean(x))


@given(T_q=sizes, T_k=sizes, masked=st.booleans(), seed=seeds, scale=st.sampled_from([None, 0.1, 1.0, 30.0]))
def test_rows_sum_to_1_or_are_all_zero(T_q, T_k, masked, seed, scale):
    mask = random_mask(seed, T_q, T_k) if masked else torch.ones(T_q, T_k, dtype=torch.bool)
    weights = attention_weights(randn(seed, T_q, 5), randn(seed + 1, T_k, 5), mask, scale)
    torch.testing.assert_close(weights.sum(dim=-1), mask.any(dim=-1).float())
    assert (weights[~mask] == 0).all()
    assert (weights >= 0).all()


@pytest.mark.parametrize(
    ("make", "may_look"),
    [
        (lambda: causal_mask(7), lambda t, s: s <= t),
        (lambda: window_mask(7, 3), lambda t, s: t - 3 < s <= t),
        (lambda: window_mask(7, 1), lambda t, s: s == t),
        (lambda: window_mask(7, 9), lambda t, s: s <= t),
        (lambda: prefix_mask(7, 3), lambda t, s: s <= t or s < 3),
        (lambda: prefix_mask(7, 0), lambda t, s: s <= t),
        (lambda: padding_mask(torch.tensor([4]), 7)[0].expand(7, 7), lambda t, s: s < 4),
    ],
)
def test_masks_say_who_may_look_and_the_leak_probe_agrees(make, may_look):
    mask = make()
    expected = torch.tensor([[may_look(t, s) for s in range(7)] for t in range(7)])
    assert torch.equal(mask, expected)
    torch.manual_seed(0)
    head = Head(4, 4)
    # A query also moves with its own token, from which it is made.
    moved = leak_probe(lambda x: head(x, mask)[0], torch.randn(2, 7, 4))
    assert torch.equal(moved | torch.eye(7, dtype=torch.bool), expected | torch.eye(7, dtype=torch.bool))


def test_padding_mask_of_a_batch():
    mask = padding_mask(torch.tensor([0, 2, 3]), 3)
    assert mask.shape == (3, 1, 3)
    assert mask[:, 0].tolist() == [[False] * 3, [True, True, False], [True] * 3]


def test_causal_by_gradient():
    x = torch.randn(6, 4, requires_grad=True)
    output, _ = Head(4, 4)(x, causal_mask(6))
    for t in range(6):
        (gradient,) = torch.autograd.grad(output[t].sum(), x, retain_graph=True)
        assert (gradient[t + 1 :] == 0).all()


def test_rows_of_a_batch_never_talk():
    head = Head(4, 3)
    x = torch.randn(3, 5, 4)
    before = head(x)[0]
    x[1] += 1
    after = head(x)[0]
    assert torch.equal(before[[0, 2]], after[[0, 2]])
    assert not torch.allclose(before[1], after[1])


def test_without_a_mask_permuting_tokens_permutes_outputs():
    head = Head(4, 3).double()
    x = torch.randn(2, 6, 4, dtype=torch.float64)
    order = torch.randperm(6)
    torch.testing.assert_close(head(x[:, order])[0], head(x)[0][:, order])


def test_a_constant_added_to_a_row_of_scores_changes_nothing():
    """A key component that all keys share adds the same number to all scores of a query."""
    q, k = torch.randn(5, 3, dtype=torch.float64), torch.randn(6, 3, dtype=torch.float64)
    torch.testing.assert_close(attention_weights(q, k + 7.0), attention_weights(q, k))


def test_cross_attention_on_itself_is_self_attention():
    head, cross = Head(5, 3, d_v=4), CrossAttentionHead(5, 5, 3, d_v=4)
    cross.load_state_dict(head.state_dict())
    x = torch.randn(2, 6, 5)
    for ours, reference in zip(cross(x, x, causal_mask(6)), head(x, causal_mask(6)), strict=True):
        assert torch.equal(ours, reference)


def test_cross_attention_shapes_may_differ_everywhere():
    output, weights = CrossAttentionHead(5, 7, 3, d_v=4)(torch.randn(2, 6, 5), torch.randn(2, 8, 7))
    assert output.shape == (2, 6, 4)
    assert weights.shape == (2, 6, 8)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    q, k, v = torch.randn(3, 2, 6, 4, dtype=dtype)
    output, weights = attention(q, k, v, causal_mask(6))
    assert output.dtype == weights.dtype == dtype
    expected, _ = attention(q.double(), k.double(), v.double(), causal_mask(6))
    torch.testing.assert_close(output.double(), expected, atol=5e-2, rtol=5e-2)


def test_nobody_to_look_at_gives_zeros_and_finite_gradients():
    q, k, v = (torch.randn(2, 3, requires_grad=True) for _ in range(3))
    output, weights = attention(q, k, v, torch.tensor([[False, False], [True, True]]))
    assert (output[0] == 0).all()
    assert (weights[0] == 0).all()
    output.sum().backward()
    assert all(each.grad.isfinite().all() for each in (q, k, v))


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"k": torch.zeros(2, 4, 5)}, ValueError, "q has head_size 3 and k has head_size 5"),
        ({"v": torch.zeros(2, 6, 3)}, ValueError, "k holds 4 tokens and v holds 6"),
        (
            {"mask": torch.ones(4, 2, dtype=torch.bool)},
            ValueError,
            r"shape \(4, 2\).*scores have shape \(2, 2, 4\)",
        ),
        ({"mask": torch.ones(3, 2, 4, dtype=torch.bool)}, ValueError, r"shape \(3, 2, 4\)"),
        ({"mask": torch.ones(1, 2, 2, 4, dtype=torch.bool)}, ValueError, r"shape \(1, 2, 2, 4\)"),
        ({"mask": torch.zeros(2, 4)}, TypeError, "dtype torch.float32, expected torch.bool"),
        ({"mask": torch.ones(2, 4, dtype=torch.int64)}, TypeError, "dtype torch.int64.*mask.bool()"),
    ],
)
def test_bad_input_names_both_sides(change, error, words):
    given = {"q": torch.zeros(2, 2, 3), "k": torch.zeros(2, 4, 3), "v": torch.zeros(2, 4, 3)} | change
    with pytest.raises(error, match=f"attention: .*{words}"):
        attention(**given)
    if "v" not in change:
        with pytest.raises(error, match=f"attention_weights: .*{words}"):
            attention_weights(given["q"], given["k"], given.get("mask"))
