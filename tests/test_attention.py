"""Attention is what the rungs below say it is, and what PyTorch computes; many heads agree in all ways."""

import contextlib
import math
import threading

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from attention_course import attention as attention_module
from attention_course.attention import (
    Cache,
    CrossAttentionHead,
    Head,
    MultiHeadAttention,
    MultiHeadAttentionList,
    attend,
    attention,
    attention_weights,
    causal_mask,
    fuse,
    leak_probe,
    padding_mask,
    prefix_mask,
    record_weights,
    sdpa_is_slow,
    softmax,
    to_torch,
    window_mask,
)
from attention_course.averaging import causal_mean_loop, causal_mean_matmul, causal_mean_softmax

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}

sizes = st.integers(1, 7)
seeds = st.integers(0, 2**32)
each_dtype = pytest.mark.parametrize("dtype", TOLERANCE)
each_tolerance = pytest.mark.parametrize(("dtype", "tolerance"), TOLERANCE.items())


# Masks and softmax


def test_causal_mask_lets_a_query_see_itself_and_the_past():
    mask = causal_mask(5)
    assert mask.dtype == torch.bool
    assert all(mask[t, s] == (s <= t) for t in range(5) for s in range(5))


@given(T_q=st.integers(1, 9), T_k=st.integers(1, 9))
def test_causal_mask_aligns_the_last_query_with_the_last_key(T_q, T_k):
    mask = causal_mask(T_q, T_k)
    assert mask.shape == (T_q, T_k)
    assert all(mask[t, s] == (s - (T_k - 1) <= t - (T_q - 1)) for t in range(T_q) for s in range(T_k))


@given(T_q=st.integers(1, 9), T_k=st.integers(1, 9), n=st.integers(1, 9))
def test_masks_of_a_window_and_a_prefix_align_them_alike(T_q, T_k, n):
    """The last query is aligned with the last key; one that stands before the first key sees no past."""
    T = max(T_q, T_k)
    assert torch.equal(window_mask(T_q, n, T_k), window_mask(T, n)[-T_q:, -T_k:])
    past = causal_mask(T_q, T_k)
    assert torch.equal(prefix_mask(T_q, n - 1, T_k), past | (torch.arange(T_k) < n - 1))


@pytest.mark.parametrize(
    "make",
    [
        lambda: causal_mask(2, device="meta"),
        lambda: window_mask(3, 2, device="meta"),
        lambda: prefix_mask(3, 2, device="meta"),
        lambda: padding_mask(torch.tensor([1, 2], device="meta"), 3),
    ],
)
def test_masks_are_made_where_they_are_wanted(make):
    assert make().device.type == "meta"


@given(seed=st.integers(0, 2**32), dim=st.integers(-3, 2), scale=st.sampled_from([1, 100, 1e4]))
def test_softmax_is_torch_softmax(seed, dim, scale):
    x = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(seed)) * scale
    torch.testing.assert_close(softmax(x, dim), torch.softmax(x, dim))


def test_softmax_of_masked_scores():
    inf = float("inf")
    x = torch.tensor([[0.0, -inf, 0.0], [-inf, -inf, -inf]])
    torch.testing.assert_close(softmax(x, -1), torch.softmax(x, -1), equal_nan=True)
    assert softmax(x, -1)[0, 1] == 0


def test_softmax_gradient():
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: softmax(x, -1), x)


# One head


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
        (
            {"mask": [[True] * 4] * 2},
            TypeError,
            "the mask is list, expected a tensor of torch.bool.*dtype=torch.bool",
        ),
        (
            {"q": torch.zeros(2, 3)},
            ValueError,
            r"q has shape \(2, 3\) and k has shape \(2, 4, 3\). The leading",
        ),
        ({"q": torch.zeros(1, 2, 3)}, ValueError, r"q has shape \(1, 2, 3\) and k has shape \(2, 4, 3\)"),
        ({"k": torch.zeros(3, 4, 3)}, ValueError, r"q has shape \(2, 2, 3\) and k has shape \(3, 4, 3\)"),
        ({"v": torch.zeros(3, 4, 3)}, ValueError, r"q has shape \(2, 2, 3\) and v has shape \(3, 4, 3\)"),
        (
            {"q": torch.zeros(2, 2, 0), "k": torch.zeros(2, 4, 0)},
            ValueError,
            "q and k have head_size 0, expected",
        ),
        ({"q": torch.zeros(3)}, ValueError, r"q has shape \(3,\), expected \(..., T, channels\): q\[None\]"),
        ({"k": torch.zeros(3)}, ValueError, r"k has shape \(3,\)"),
        ({"v": torch.zeros(4)}, ValueError, r"v has shape \(4,\)"),
        ({"q": [[1.0]]}, TypeError, "q is list, expected a float tensor"),
        (
            {"k": torch.zeros(2, 4, 3).long()},
            TypeError,
            r"k is torch.int64, \(2, 4, 3\), expected .* torch.as_tensor\(k\).float",
        ),
        ({"k": torch.zeros(2, 4, 3).double()}, TypeError, "q is torch.float32 and k is torch.float64.*k.to"),
        ({"v": torch.zeros(2, 4, 3).half()}, TypeError, "q is torch.float32 and v is torch.float16"),
    ],
)
@pytest.mark.usefixtures("shapes_unchecked")
def test_bad_input_names_both_sides(change, error, words):
    given = {"q": torch.zeros(2, 2, 3), "k": torch.zeros(2, 4, 3), "v": torch.zeros(2, 4, 3)} | change
    for function in (attention, attend):
        with pytest.raises(error, match=f"{function.__name__}: .*{words}"):
            function(**given)
    if "v" not in change:
        with pytest.raises(error, match=f"attention_weights: .*{words}"):
            attention_weights(given["q"], given["k"], given.get("mask"))


@pytest.mark.usefixtures("shapes_unchecked")
def test_keys_and_values_of_one_text_serve_a_batch_of_queries():
    q, k, v = randn(0, 2, 3, 4), randn(1, 1, 5, 4), randn(2, 5, 6)
    mask = random_mask(3, 2, 3, 5)
    for one in (k, k[0]):
        expected = attention(q, k.expand(2, 5, 4), v.expand(2, 5, 6), mask)
        torch.testing.assert_close(attention(q, one, v, mask), expected)
        torch.testing.assert_close(attend(q, one, v, mask), expected[0])


def test_autocast_makes_two_dtypes_one():
    q, k, v = randn(0, 3, 4), randn(1, 5, 4, dtype=torch.bfloat16), randn(2, 5, 6)
    expected, _ = attention(q, k.float(), v)
    with torch.autocast("cpu", torch.bfloat16):
        output, _ = attention(q, k, v)
        assert Head(4, 2)(q.bfloat16())[0].dtype == torch.bfloat16
    torch.testing.assert_close(output.float(), expected, atol=5e-2, rtol=5e-2)


def test_no_keys_at_all_give_zeros():
    output, weights = attention(randn(0, 3, 4), torch.zeros(0, 4), torch.zeros(0, 5))
    assert weights.shape == (3, 0)
    assert torch.equal(output, torch.zeros(3, 5))


def test_in_float16_large_scores_overflow_as_the_docstring_says():
    q = torch.full((2, 64), 60.0, dtype=torch.float16)
    assert F.scaled_dot_product_attention(q, q, q).isfinite().all()
    assert attention_weights(q, q).isnan().all()
    torch.testing.assert_close(attention_weights(q.float(), q.float()), torch.full((2, 2), 0.5))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: causal_mask(-1), ValueError, "causal_mask: T_q = -1, expected an integer of at least 0"),
        (lambda: causal_mask(3, -1), ValueError, "causal_mask: T_k = -1"),
        (lambda: causal_mask(3.0), TypeError, "causal_mask: T_q = 3.0, expected an integer"),
        (lambda: causal_mask(None), TypeError, "causal_mask: T_q = None"),
        (lambda: causal_mask(torch.tensor(3.0)), TypeError, r"T_q = tensor\(3.\), expected an integer"),
        (
            lambda: window_mask(3, -1),
            ValueError,
            "window_mask: window = -1, expected an integer of at least 1",
        ),
        (lambda: window_mask(3, 0), ValueError, "window = 0"),
        (lambda: window_mask(3, 1.5), TypeError, "window = 1.5"),
        (
            lambda: prefix_mask(3, -1),
            ValueError,
            "prefix_mask: prefix = -1, expected an integer of at least 0",
        ),
        (lambda: prefix_mask(3, "2"), TypeError, "prefix = '2'"),
        (
            lambda: padding_mask(torch.tensor([1, 4]), 3),
            ValueError,
            "lengths holds 4, expected .* from 0 to 3",
        ),
        (lambda: padding_mask(torch.tensor([-1, 4]), 3), ValueError, "padding_mask: lengths holds -1"),
        (lambda: padding_mask(torch.tensor([1]), -1), ValueError, "padding_mask: T_k = -1"),
        (lambda: padding_mask([1, 2], 3), TypeError, r"lengths is list, expected .* \(B,\).*real.sum"),
        (lambda: padding_mask(torch.ones(2, 3) > 0, 3), TypeError, r"lengths is torch.bool, \(2, 3\)"),
        (lambda: padding_mask(torch.tensor([1.0]), 3), TypeError, r"lengths is torch.float32, \(1,\)"),
        (lambda: padding_mask(torch.tensor([[1]]), 3), TypeError, r"lengths is torch.int64, \(1, 1\)"),
        (lambda: softmax(torch.tensor([1, 2]), -1), TypeError, r"softmax: x is torch.int64, \(2,\).*float"),
        (lambda: softmax([1.0], -1), TypeError, "softmax: x is list, expected a float tensor"),
        (lambda: softmax(torch.zeros(2, 3), 2), ValueError, r"softmax: dim = 2 of the shape \(2, 3\)"),
        (lambda: softmax(torch.zeros(2, 3), -3), ValueError, "dim = -3"),
        (
            lambda: softmax(torch.zeros(2, 0), 1),
            ValueError,
            "dim = 1 .* expected a dimension that has entries",
        ),
        (lambda: softmax(torch.zeros(2), None), ValueError, "dim = None"),
        (
            lambda: softmax(torch.zeros(65505).half(), 0),
            ValueError,
            "65505 entries .*torch.float16 overflows.*x.float",
        ),
        (lambda: Head(4, 0), ValueError, "Head: head_size = 0, expected an integer of at least 1"),
        (lambda: Head(0, 4), ValueError, "Head: n_embd = 0"),
        (lambda: Head(4, 4, 0), ValueError, "Head: d_v = 0"),
        (lambda: CrossAttentionHead(4, -1, 4), ValueError, "CrossAttentionHead: n_context = -1"),
        (lambda: CrossAttentionHead(0, 4, 4), ValueError, "CrossAttentionHead: n_embd = 0"),
        (lambda: CrossAttentionHead(4, 4, 2.0), TypeError, "CrossAttentionHead: head_size = 2.0"),
        (lambda: CrossAttentionHead(4, 4, 2, 0), ValueError, "CrossAttentionHead: d_v = 0"),
        (lambda: MultiHeadAttention(6, 0), ValueError, "n_head = 0, expected an integer of at least 1"),
        (lambda: MultiHeadAttentionList(6.0, 2), TypeError, "n_embd = 6.0"),
        (
            lambda: fuse(MultiHeadAttention(4, 2)),
            TypeError,
            "heads is MultiHeadAttention, expected MultiHeadAttentionList",
        ),
        (
            lambda: to_torch(MultiHeadAttentionList(4, 2)),
            TypeError,
            "to_torch: fused is MultiHeadAttentionList",
        ),
    ],
)
@pytest.mark.usefixtures("shapes_unchecked")
def test_what_cannot_be_is_refused_in_words(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.usefixtures("shapes_unchecked")
def test_sizes_may_be_of_numpy_or_tensors_or_zero():
    lengths = torch.tensor([1, 3])
    assert torch.equal(causal_mask(np.int64(3)), causal_mask(torch.tensor(3)))
    assert padding_mask(lengths, lengths.max()).shape == (2, 1, 3)
    assert causal_mask(0).shape == (0, 0)
    assert padding_mask(torch.zeros(0, dtype=torch.uint8), 3).shape == (0, 1, 3)
    x = torch.zeros(65504, dtype=torch.float16)
    torch.testing.assert_close(softmax(x, 0), torch.softmax(x, 0))
    assert softmax(torch.tensor(3.0), 0) == 1


def test_vmap_shows_no_lengths_to_look_at():
    lengths = torch.tensor([[1, 2], [3, 0]])
    rows = [padding_mask(row, 3) for row in lengths]
    assert torch.equal(torch.func.vmap(lambda row: padding_mask(row, 3))(lengths), torch.stack(rows))


EACH_HEAD = {
    "Head": lambda x, mask=None: Head(4, 2)(x, mask),
    "CrossAttentionHead": lambda x, mask=None: CrossAttentionHead(4, 4, 2)(torch.zeros(2, 3, 4), x, mask),
    "MultiHeadAttention": lambda x, mask=None: MultiHeadAttention(4, 2)(x, mask),
    "MultiHeadAttentionList": lambda x, mask=None: MultiHeadAttentionList(4, 2)(x, mask),
}


@pytest.mark.parametrize("name", EACH_HEAD)
@pytest.mark.parametrize(
    ("x", "error", "words"),
    [
        (
            torch.zeros(2, 3, 5),
            ValueError,
            r"(x|context) is torch.float32, \(2, 3, 5\), .*the module was built for tokens of 4 channels",
        ),
        (torch.zeros(4), ValueError, r"(x|context) is torch.float32, \(4,\), expected"),
        (torch.zeros(2, 3, 4).long(), TypeError, "(x|context) is torch.int64.*float"),
        (
            torch.zeros(2, 3, 4).double(),
            TypeError,
            r"(x|context) is torch.float64.* in the dtype of the module: x.to\(torch.float32",
        ),
        ([[0.0] * 4], TypeError, "(x|context) is list"),
    ],
)
@pytest.mark.usefixtures("shapes_unchecked")
def test_a_head_says_which_tokens_it_takes(name, x, error, words):
    with pytest.raises(error, match=f"^{name}: {words}"):
        EACH_HEAD[name](x)


def test_a_cross_attention_head_checks_both_texts():
    with pytest.raises(ValueError, match=r"CrossAttentionHead: x is .* expected .* \(..., T, 5\)"):
        CrossAttentionHead(5, 4, 2)(torch.zeros(2, 3, 4), torch.zeros(2, 3, 4))


@pytest.mark.parametrize("name", ["MultiHeadAttention", "MultiHeadAttentionList"])
@pytest.mark.parametrize("shape", [(3, 4), (1, 2, 3, 4), (0, 3, 4), (2, 0, 4)])
@pytest.mark.usefixtures("shapes_unchecked")
def test_many_heads_take_a_batch(name, shape):
    with pytest.raises(ValueError, match=rf"^{name}: x has shape .* expected \(B, T, 4\) .*x\[None\]"):
        EACH_HEAD[name](torch.zeros(shape))


@pytest.mark.parametrize("recording", [record_weights, contextlib.nullcontext])
@pytest.mark.parametrize("name", EACH_HEAD)
@pytest.mark.parametrize("mask", [torch.ones(3, 3).tril(), torch.ones(3, 3).tril().long(), [[True] * 3] * 3])
@pytest.mark.usefixtures("shapes_unchecked")
def test_no_head_adds_a_mask_of_ones_and_zeros_to_the_scores(recording, name, mask):
    with pytest.raises(TypeError, match=r"the mask .* expected .*torch.bool"), recording():
        EACH_HEAD[name](torch.zeros(2, 3, 4), mask)


# Many heads

each_mask = pytest.mark.parametrize("kind", ["none", "causal", "padding", "random", "nothing"])

many_sizes = st.tuples(st.integers(1, 3), st.integers(1, 7), st.integers(1, 5), st.integers(1, 5))


def mask_of(kind, B, T):
    """Return a mask; "padding" has an empty text, "random" and "nothing" have queries that see nothing."""
    if kind == "padding":
        return padding_mask(torch.randint(0, T + 1, (B,)), T)
    return {
        "none": None,
        "causal": causal_mask(T),
        "random": torch.rand(T, T) < 0.4,
        "nothing": torch.zeros(T, T, dtype=torch.bool),
    }[kind]


# The proof: a list of heads, the fused module, recorded and not, nn.MultiheadAttention, SDPA


def by_list(heads, x, mask):
    parts = [getattr(head, part).weight for part in ("query", "key", "value") for head in heads.heads]
    return heads(x, mask)[0], parts, heads.c_proj.weight


def by_fused(heads, x, mask):
    fused = fuse(heads)
    return fused(x, mask), [fused.c_attn.weight], fused.c_proj.weight


def by_recorded(heads, x, mask):
    with record_weights():
        return by_fused(heads, x, mask)


def by_is_causal(heads, x, mask):
    fused = fuse(heads)
    return fused(x, is_causal=True), [fused.c_attn.weight], fused.c_proj.weight


def by_torch(heads, x, mask):
    theirs = to_torch(fuse(heads))
    if mask is not None and mask.dim() == 3:
        hidden = {"key_padding_mask": ~mask[:, 0]}
    else:
        hidden = {"attn_mask": None if mask is None else ~mask}
    output = theirs(x, x, x, need_weights=False, **hidden)[0]
    return output, [theirs.in_proj_weight], theirs.out_proj.weight


def by_sdpa(heads, x, mask):
    """Call PyTorch's function on queries, keys and values that are stacked head by head."""
    _, parts, project = by_list(heads, x, mask)
    parts = [part.detach().clone().requires_grad_() for part in parts]
    project = project.detach().clone().requires_grad_()
    n = len(heads.heads)
    q, k, v = (torch.stack([x @ W.T for W in parts[i : i + n]], dim=1) for i in (0, n, 2 * n))
    if mask is not None and mask.dim() == 3:
        mask = mask[:, None]
    output = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return torch.cat(output.unbind(1), dim=-1) @ project.T, parts, project


WAYS = (by_list, by_fused, by_recorded, by_torch, by_sdpa)


def output_and_gradients(way, heads, x, mask, direction):
    x = x.clone().requires_grad_()
    output, parts, project = way(heads, x, mask)
    of_x, of_project, *of_parts = torch.autograd.grad((output * direction).sum(), [x, project, *parts])
    return output, of_x, of_project, torch.cat(of_parts)


@each_tolerance
@each_mask
@given(size=many_sizes, seed=seeds)
def test_all_ways_agree_forward_and_backward(dtype, tolerance, kind, size, seed):
    B, T, n_head, head_size = size
    torch.manual_seed(seed)
    heads = MultiHeadAttentionList(n_head * head_size, n_head).to(dtype)
    x, direction = torch.randn(2, B, T, n_head * head_size, dtype=dtype)
    mask = mask_of(kind, B, T)
    expected = output_and_gradients(WAYS[0], heads, x, mask, direction)
    assert all(value.isfinite().all() for value in expected)
    for way in (*WAYS[1:], *[by_is_causal] * (kind == "causal")):
        found = output_and_gradients(way, heads, x, mask, direction)
        torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)


@each_mask
@given(size=many_sizes, seed=seeds)
def test_the_weights_of_list_and_fused_agree(kind, size, seed):
    B, T, n_head, head_size = size
    torch.manual_seed(seed)
    heads = MultiHeadAttentionList(n_head * head_size, n_head)
    x, mask = torch.randn(B, T, n_head * head_size), mask_of(kind, B, T)
    with record_weights() as layers:
        fuse(heads)(x, mask)
    (weights,) = layers
    assert weights.shape == (B, n_head, T, T)
    torch.testing.assert_close(weights, heads(x, mask)[1])


@each_tolerance
@each_mask
@given(size=many_sizes, seed=seeds, bias=st.booleans())
def test_recording_changes_nothing(dtype, tolerance, kind, size, seed, bias):
    B, T, n_head, head_size = size
    torch.manual_seed(seed)
    module = MultiHeadAttention(n_head * head_size, n_head, bias).to(dtype)
    x = torch.randn(B, T, n_head * head_size, dtype=dtype, requires_grad=True)
    direction, mask = torch.randn_like(x), mask_of(kind, B, T)
    plain = module(x, mask)
    with record_weights():
        recorded = module(x, mask)
    found = [
        (output, *torch.autograd.grad((output * direction).sum(), [x, *module.parameters()]))
        for output in (plain, recorded)
    ]
    torch.testing.assert_close(found[0], found[1], atol=tolerance, rtol=tolerance)


@given(size=many_sizes, seed=seeds)
def test_torch_agrees_with_bias_too(size, seed):
    B, T, n_head, head_size = size
    torch.manual_seed(seed)
    module = MultiHeadAttention(n_head * head_size, n_head, bias=True)
    theirs, x = to_torch(module), torch.randn(B, T, n_head * head_size)
    output, weights = theirs(x, x, x, attn_mask=~causal_mask(T))
    with record_weights() as layers:
        torch.testing.assert_close(output, module(x, causal_mask(T)))
    torch.testing.assert_close(
        weights, layers[0].mean(dim=1)
    )  # averaged over the heads, as the notebook says


# How it is computed


@pytest.fixture
def sdpa_calls(monkeypatch):
    """Note the options of each call of PyTorch's function."""
    calls, usual = [], F.scaled_dot_product_attention

    def spy(q, k, v, **options):
        calls.append(options)
        return usual(q, k, v, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    return calls


def test_the_plain_causal_mask_is_no_table(sdpa_calls):
    """The flash kernels of a GPU refuse an attn_mask, and take is_causal."""
    MultiHeadAttention(6, 3)(torch.randn(2, 4, 6), is_causal=True)
    assert sdpa_calls == [{"is_causal": True, "enable_gqa": False}]


def test_other_masks_are_tables_that_hold_the_causal_one_too(sdpa_calls):
    x, seen = torch.randn(2, 4, 6), padding_mask(torch.tensor([3, 4]), 4)
    module = MultiHeadAttention(6, 3)
    module(x)
    module(x, seen)
    module(x, seen, is_causal=True)
    attend(x[:, :2], x, x, is_causal=True)  # two queries at the end of four keys
    tables = [call.pop("attn_mask") for call in sdpa_calls]
    assert sdpa_calls == [{"enable_gqa": False}] * 4
    assert tables[0] is None
    assert torch.equal(tables[1], seen[:, None])
    assert torch.equal(tables[2], seen[:, None] & causal_mask(4))
    assert torch.equal(tables[3], causal_mask(2, 4))


def test_weights_are_computed_once_and_only_when_they_are_recorded(sdpa_calls, monkeypatch):
    computed, usual = [], attention_module.attention

    def spy(*given):
        computed.append(usual(*given))
        return computed[-1]

    monkeypatch.setattr(attention_module, "attention", spy)
    module, x = MultiHeadAttention(6, 3), torch.randn(2, 4, 6)
    module(x, is_causal=True)
    assert computed == []
    with record_weights() as layers:
        module(x, is_causal=True)
    assert len(sdpa_calls) == len(computed) == 1
    assert layers[0] is computed[0][1]


@pytest.mark.parametrize(
    ("dtype", "T", "device", "slow"),
    [
        (torch.bfloat16, 128, "cpu", True),
        (torch.bfloat16, 129, "cpu", False),
        (torch.bfloat16, 128, "meta", False),
        (torch.float32, 128, "cpu", False),
    ],
)
def test_short_texts_in_bfloat16_on_a_cpu_are_written_out(sdpa_calls, dtype, T, device, slow):
    q = torch.zeros(1, 2, T, 4, dtype=dtype, device=device)
    assert sdpa_is_slow(q) == slow
    attend(q, q, q, is_causal=True)
    assert sdpa_calls == [{"is_causal": True, "enable_gqa": False}] * (not slow)


@pytest.mark.parametrize("is_causal", [True, False])
@each_tolerance
@given(T_q=sizes, T_k=sizes, masked=st.booleans(), seed=seeds)
def test_attend_is_attention_however_it_is_computed(is_causal, dtype, tolerance, T_q, T_k, masked, seed):
    q, k, v = (randn(seed + i, 2, 3, T, 5, dtype=dtype) for i, T in enumerate((T_q, T_k, T_k)))
    mask = random_mask(seed, 2, 1, T_q, T_k) if masked else None
    both = torch.ones(T_q, T_k, dtype=torch.bool) if mask is None else mask
    both = both & causal_mask(T_q, T_k) if is_causal else both
    expected, weights = attention(q, k, v, both)
    torch.testing.assert_close(attend(q, k, v, mask, is_causal), expected, atol=tolerance, rtol=tolerance)
    with record_weights() as layers:
        assert torch.equal(attend(q, k, v, mask, is_causal), expected)
    assert torch.equal(layers[0], weights)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention_module, "sdpa_is_slow", lambda q: True)
        assert torch.equal(attend(q, k, v, mask, is_causal), expected)


def test_every_recording_that_is_open_gets_the_weights():
    module, x = MultiHeadAttention(6, 3), torch.randn(2, 4, 6)
    with record_weights() as outer:
        module(x)
        with record_weights() as inner:
            module(x, is_causal=True)
        module(x)
    assert [len(outer), len(inner)] == [3, 1]
    assert outer[1] is inner[0]
    assert not inner[0].triu(diagonal=1).any()
    module(x)
    assert len(outer) == 3


def test_an_error_ends_the_recording(sdpa_calls):
    x = torch.randn(2, 4, 6)
    with pytest.raises(ZeroDivisionError), record_weights() as layers:
        1 / 0  # noqa: B018
    MultiHeadAttention(6, 3)(x)
    assert layers == []
    assert len(sdpa_calls) == 1


def test_a_recording_is_of_one_thread():
    """A training in another thread goes on as it was, and does not fill the list."""
    module, x = MultiHeadAttention(6, 3), torch.randn(2, 4, 6)
    with record_weights() as layers:
        thread = threading.Thread(target=module, args=(x,))
        thread.start()
        thread.join()
    assert layers == []


def test_weights_keep_their_gradient():
    module, x = MultiHeadAttention(6, 3), torch.randn(2, 4, 6)
    with record_weights() as layers:
        module(x)
    (gradient,) = torch.autograd.grad(layers[0].square().sum(), module.c_attn.weight)
    assert gradient.any()


@pytest.mark.parametrize("way", ["sdpa", "slow", "recorded"])
def test_a_query_that_sees_nothing_gets_zeros(monkeypatch, way):
    monkeypatch.setattr(attention_module, "sdpa_is_slow", lambda q: way == "slow")
    x, mask = torch.randn(2, 4, 6), causal_mask(4)
    mask[1] = False
    with record_weights() if way == "recorded" else contextlib.nullcontext([]) as layers:
        output = MultiHeadAttention(6, 3)(x, mask)
    assert not output[:, 1].any()
    assert output[:, [0, 2, 3]].all()
    assert len(layers) == (way == "recorded")
    assert not any(weights[:, :, 1].any() for weights in layers)


@pytest.mark.parametrize("make", [MultiHeadAttentionList, MultiHeadAttention])
@pytest.mark.parametrize(("n_embd", "n_head"), [(64, 5), (4, 8)])
def test_a_width_that_cannot_be_split_names_both_numbers(make, n_embd, n_head):
    with pytest.raises(ValueError, match=f"n_embd = {n_embd} .* n_head = {n_head} "):
        make(n_embd, n_head)


@pytest.mark.parametrize("n_head", [1, 2, 4, 8, 16])
def test_the_number_of_parameters_does_not_depend_on_n_head(n_head):
    for make in (MultiHeadAttentionList, MultiHeadAttention):
        assert sum(p.numel() for p in make(16, n_head).parameters()) == 4 * 16**2


@given(size=many_sizes, seed=seeds)
def test_no_leak(size, seed):
    B, T, n_head, head_size = size
    torch.manual_seed(seed)
    module = MultiHeadAttention(n_head * head_size, n_head).double()
    x = torch.randn(B, T, n_head * head_size, dtype=torch.float64)
    moved = leak_probe(lambda x: module(x, is_causal=True), x)
    assert not moved.triu(diagonal=1).any()
    with record_weights():
        assert torch.equal(leak_probe(lambda x: module(x, causal_mask(T)), x), moved)


def test_the_four_heads_of_source_001():
    torch.manual_seed(123)
    x = nn.Embedding(50_000, 3)(torch.tensor([0, 4, 5, 2, 1, 3])).detach()
    heads = [Head(3, 2, d_v=1) for _ in range(4)]
    torch.manual_seed(123)
    for head in heads:
        for layer in (head.query, head.key, head.value):
            layer.weight.data = torch.rand(3, layer.out_features).T
    printed = [
        [-0.0185, 0.0170, 0.1999, -0.0860],
        [0.4003, 1.7137, 1.3981, 1.0497],
        [-0.1103, -0.1609, 0.0079, -0.2416],
        [0.0668, 0.3534, 0.2322, 0.1008],
        [0.1180, 0.6949, 0.3157, 0.2807],
        [-0.1827, -0.2060, -0.2393, -0.3167],
    ]
    wrapped = torch.cat([head(x)[0] for head in heads], dim=-1)
    torch.testing.assert_close(wrapped, torch.tensor(printed), atol=6e-5, rtol=0)


def test_sdpa_keeps_no_weights_for_the_way_back():
    module, x = MultiHeadAttention(8, 2), torch.randn(1, 64, 8)
    largest = {}
    for recording in (record_weights, contextlib.nullcontext):
        sizes = []
        hooks = torch.autograd.graph.saved_tensors_hooks(
            lambda tensor, sizes=sizes: sizes.append(tensor.numel()) or tensor, lambda tensor: tensor
        )
        with hooks, recording():
            module(x)
        largest[recording] = max(sizes)
    assert largest == {record_weights: 2 * 64 * 64, contextlib.nullcontext: 64 * 8}


# Groups of heads, and the cache


@pytest.mark.parametrize("is_causal", [True, False])
@each_tolerance
@given(
    T_q=sizes,
    T_k=sizes,
    heads=st.sampled_from([(3, 2), (1, 5), (2, 1)]),
    d_v=sizes,
    masked=st.booleans(),
    shared=st.booleans(),
    seed=seeds,
)
def test_a_group_of_neighbouring_heads_shares_keys_and_values(
    is_causal, dtype, tolerance, T_q, T_k, heads, d_v, masked, shared, seed
):
    n_kv_head, group = heads
    B = 1 if shared else 2  # of the keys and values
    q = randn(seed, 2, n_kv_head * group, T_q, 5, dtype=dtype)
    k = randn(seed + 1, B, n_kv_head, T_k, 5, dtype=dtype)
    v = randn(seed + 2, B, n_kv_head, T_k, d_v, dtype=dtype)
    options = {"mask": random_mask(seed, 2, 1, T_q, T_k) if masked else None, "is_causal": is_causal}
    alone = [attend(q[:, [h]], k[:, [h // group]], v[:, [h // group]], **options) for h in range(q.shape[1])]
    expected = torch.cat(alone, dim=1)
    close = {"atol": tolerance, "rtol": tolerance}
    torch.testing.assert_close(attend(q, k, v, **options, enable_gqa=True), expected, **close)
    with record_weights() as layers:
        torch.testing.assert_close(attend(q, k, v, **options, enable_gqa=True), expected, **close)
    assert layers[0].shape == (2, n_kv_head * group, T_q, T_k)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention_module, "sdpa_is_slow", lambda q: True)
        torch.testing.assert_close(attend(q, k, v, **options, enable_gqa=True), expected, **close)


@pytest.mark.usefixtures("shapes_unchecked")
@pytest.mark.parametrize(
    ("part", "shape"), [("k", (2, 4, 5, 3)), ("k", (2, 12, 5, 3)), ("v", (2, 0, 5, 3)), ("k", (3, 5, 3))]
)
def test_groups_are_of_equal_size(part, shape):
    given = {"q": torch.zeros(2, 6, 5, 3), "k": torch.zeros(2, 3, 5, 3), "v": torch.zeros(2, 3, 5, 3)}
    words = rf"q has shape \(2, 6, 5, 3\) and {part} has shape \({', '.join(map(str, shape))}\), expected"
    with pytest.raises(ValueError, match=f"attend: {words} .*the heads of q a multiple of those of k and v"):
        attend(**given | {part: torch.zeros(shape)}, enable_gqa=True)
    with pytest.raises(ValueError, match=r"The leading dimensions of k must broadcast to those of q"):
        attend(**given)
    with pytest.raises(ValueError, match=r"The leading dimensions of v must broadcast to those of q"):
        attend(**given | {"v": torch.zeros(5, 3, 5, 3)}, enable_gqa=True)


@given(chunks=st.lists(st.integers(1, 9), min_size=1, max_size=7), B=sizes, H=sizes, D=sizes, seed=seeds)
def test_a_cache_returns_all_that_a_layer_put_in(chunks, B, H, D, seed):
    cache, layers = Cache(), [nn.Identity(), nn.Identity()]
    k, v = randn(seed, 2, 2, B, H, sum(chunks), D)  # of two layers each
    for T in chunks:
        start, stop = len(cache), len(cache) + T
        for i, layer in enumerate(layers):
            found = cache.extend(layer, k[i, :, :, start:stop], v[i, :, :, start:stop])
            assert torch.equal(found[0], k[i, :, :, :stop])
            assert torch.equal(found[1], v[i, :, :, :stop])
            assert len(cache) == start
        cache.advance(T)
        assert len(cache) == stop
        assert cache.numel() == 2 * 2 * B * H * stop * D


def test_what_was_not_counted_is_written_over():
    cache, layers, x = Cache(), [nn.Identity(), nn.Identity()], randn(0, 3, 1, 2, 7, 5)
    for layer in layers:
        cache.extend(layer, x[0], x[0])
    cache.advance(7)
    cache.extend(layers[0], x[1], x[1])  # the other layer is not reached
    assert (len(cache), cache.numel()) == (7, 2 * 2 * 2 * 7 * 5)
    for layer in layers:
        for kept in cache.extend(layer, x[2], x[2]):
            assert torch.equal(kept, torch.cat([x[0], x[2]], dim=2))


def test_after_a_first_call_that_failed_a_cache_takes_any_batch():
    cache, layer, x = Cache(), nn.Identity(), randn(0, 3, 2, 7, 5)
    cache.extend(layer, x[:2], x[:2])
    k, v = cache.extend(layer, x, x)
    assert torch.equal(k, x)
    assert torch.equal(v, x)


def test_a_cache_that_grows_by_tokens_is_rarely_copied():
    cache, layer, token = Cache(), nn.Identity(), randn(0, 1, 2, 1, 5)
    places = set()
    for _ in range(300):
        places.add(cache.extend(layer, token, token)[0].data_ptr())
        cache.advance(1)
    assert len(places) <= 9


def test_a_cache_is_of_one_model_and_one_batch():
    cache, layer, x = Cache(), nn.Identity(), randn(0, 3, 2, 7, 5)
    cache.extend(layer, x, x)
    cache.advance(7)
    for other, batch, words in (
        (layer, x[:2], "it holds 3 sequences, expected 2 sequences"),
        (nn.Identity(), x, "it holds nothing of this model, expected 3 sequences"),
    ):
        with pytest.raises(ValueError, match=rf"^Cache: {words}. Start with a new Cache\(\)\.$"):
            cache.extend(other, batch, batch)
    assert (len(cache), cache.numel()) == (7, 2 * 3 * 2 * 7 * 5)


@each_tolerance
@given(size=many_sizes, cut=st.integers(0, 9), bias=st.booleans(), seed=seeds)
def test_the_later_tokens_look_at_those_in_the_cache(dtype, tolerance, size, cut, bias, seed):
    B, T, n_head, head_size = size
    torch.manual_seed(seed)
    module = MultiHeadAttention(n_head * head_size, n_head, bias).to(dtype)
    x, cache = torch.randn(B, T + cut, n_head * head_size, dtype=dtype), Cache()
    with record_weights() as whole:
        expected = module(x, is_causal=True)
    for part in filter(lambda part: part.shape[1], x.split([cut, T], dim=1)):
        with record_weights() as later:
            output = module(part, is_causal=True, cache=cache)
        cache.advance(part.shape[1])
    torch.testing.assert_close(output, expected[:, cut:], atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(later[0], whole[0][:, :, cut:], atol=tolerance, rtol=tolerance)


# The leak probe


def test_leak_probe_names_row_and_column():
    """Output i of this function uses input i + 1 only; the last output uses none."""

    def next_token(x):
        return torch.cat([x[..., 1:, :], torch.zeros_like(x[..., :1, :])], dim=-2)

    moved = leak_probe(next_token, torch.randn(2, 4, 3))
    assert moved.nonzero().tolist() == [[0, 1], [1, 2], [2, 3]]


def test_leak_probe_outputs_of_another_length():
    moved = leak_probe(lambda x: x[..., :2, :].sum(dim=-1, keepdim=True), torch.randn(5, 3))
    assert moved.shape == (2, 5)
    assert moved.nonzero().tolist() == [[0, 0], [1, 1]]


def test_leak_probe_sees_a_leak_that_adding_a_constant_would_miss():
    """A function of the differences between channels, as LayerNorm is, still shows its leak."""
    moved = leak_probe(lambda x: x.diff(dim=-1).flip(-2), torch.arange(12.0).reshape(3, 4))
    assert torch.equal(moved, torch.eye(3, dtype=torch.bool).flip(0))


def test_leak_probe_one_moving_channel_is_enough():
    moved = leak_probe(
        lambda x: torch.stack([x[..., 0], torch.ones_like(x[..., 0])], dim=-1), torch.randn(3, 4)
    )
    assert torch.equal(moved, torch.eye(3, dtype=torch.bool))


def test_leak_probe_a_nan_that_stays_has_not_moved():
    moved = leak_probe(lambda x: torch.full_like(x, float("nan")), torch.randn(3, 2))
    assert not moved.any()


def test_leak_probe_a_nan_that_comes_or_goes_has_moved():
    x = torch.randn(3, 2)
    for otherwise in (
        lambda new: x.where(new == x, float("nan")),
        lambda new: new.where(new != x, float("nan")),
    ):
        assert torch.equal(leak_probe(otherwise, x), torch.eye(3, dtype=torch.bool))


def test_leak_probe_leaves_x_alone():
    x = torch.randn(3, 2)
    before = x.clone()
    leak_probe(lambda x: x.mul_(2), x)
    assert torch.equal(x, before)


def test_leak_probe_leaves_the_random_numbers_of_others_alone():
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    leak_probe(lambda x: x, torch.zeros(2, 2))
    assert torch.rand(1) == expected


@pytest.mark.parametrize("mean", [causal_mean_loop, causal_mean_matmul])
def test_leak_probe_of_a_function_that_writes_to_one_buffer(mean):
    x, buffer = torch.randn(4, 3), torch.empty(4, 3)
    assert torch.equal(leak_probe(lambda x: buffer.copy_(mean(x)), x), causal_mask(4))


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        (torch.float32, 1e7),
        (torch.float32, 1e30),
        (torch.bfloat16, 100.0),
        (torch.float16, 4000.0),
        (torch.float32, 0),
    ],
)
def test_leak_probe_of_large_tokens(dtype, size):
    x = torch.full((2, 9, 3), size, dtype=dtype)
    for function, moved in (
        (lambda x: x, torch.eye(9) > 0),
        (lambda x: x.flip(-2), torch.eye(9).flip(0) > 0),
    ):
        assert torch.equal(leak_probe(function, x), moved)


@pytest.mark.parametrize(
    ("function", "x", "error", "words"),
    [
        (lambda x: x, torch.ones(3), ValueError, "leak_probe expects"),
        (lambda x: x, torch.ones(3, 2).long(), TypeError, "leak_probe expects"),
        (lambda x: x, torch.tensor([[1.0], [math.inf]]), ValueError, r"x has shape \(2, 1\) and holds inf"),
        (lambda x: x, torch.tensor([[1.0], [math.nan]]), ValueError, "holds inf, NaN"),
        (lambda x: x, torch.full((2, 2), 4095.0).half(), ValueError, "too large for torch.float16"),
        (lambda x: x, torch.ones(0, 3, 2), ValueError, r"x has shape \(0, 3, 2\).* torch.randn"),
        (None, torch.ones(3, 2), TypeError, "leak_probe: function is NoneType"),
        (lambda x: [x], torch.ones(3, 2), TypeError, "what the function returns is list, expected Tensor"),
        (
            lambda x: x.sum(-1),
            torch.ones(3, 2),
            ValueError,
            r"the function returns the shape \(3,\), expected \(T, D",
        ),
        (lambda x: x[:0], torch.ones(3, 2), ValueError, r"the function returns the shape \(0, 2\)"),
        (nn.Dropout(0.5), torch.ones(9, 9), ValueError, "two different outputs for the same tokens.*eval"),
    ],
)
@pytest.mark.usefixtures("shapes_unchecked")
def test_leak_probe_refuses_what_it_cannot_probe(function, x, error, words):
    with pytest.raises(error, match=words):
        leak_probe(function, x)


@pytest.mark.parametrize(
    "output", [lambda x: x.argmax(-1, keepdim=True), lambda x: x.argmax(-1, keepdim=True) > 0]
)
def test_leak_probe_of_outputs_that_are_no_floats(output):
    x = torch.randn(5, 9, generator=torch.Generator().manual_seed(3))
    assert not (leak_probe(output, x) & ~torch.eye(5).bool()).any()
