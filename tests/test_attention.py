"""Attention is what the rungs below say it is, and what PyTorch computes; many heads agree in all ways."""

import contextlib
import math
import threading

import pytest
import torch
from hypothesis import given, settings
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
    softmax,
    to_torch,
    window_mask,
)
from attention_course.averaging import causal_mean_loop, causal_mean_matmul, causal_mean_softmax

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}

sizes = st.integers(1, 7)
seeds = st.integers(0, 2**32)
dtypes = st.sampled_from(list(TOLERANCE))


def close(dtype):
    return {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype]}


def randn(seed, *shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def random_mask(seed, *shape):
    """Draw a mask in which some queries may look at nothing."""
    generator = torch.Generator().manual_seed(seed)
    seen = torch.rand(shape, generator=generator) < 0.6
    return seen & (torch.rand((*shape[:-1], 1), generator=generator) < 0.8)


# Masks and softmax


@given(T_q=sizes, T_k=sizes, n=st.integers(1, 9))
def test_masks_say_who_may_look(T_q, T_k, n):
    """The last query is aligned with the last key; one that stands before the first key sees no past."""
    places = [(t, s) for t in range(T_k - T_q, T_k) for s in range(T_k)]  # of each query and key
    for mask, may_look in (
        (causal_mask(T_q, T_k), lambda t, s: s <= t),
        (window_mask(T_q, n, T_k), lambda t, s: t - n < s <= t),
        (prefix_mask(T_q, n - 1, T_k), lambda t, s: s <= t or s < n - 1),
    ):
        assert mask.dtype == torch.bool
        assert mask.tolist() == torch.tensor([may_look(*at) for at in places]).view(T_q, T_k).tolist()
    assert torch.equal(causal_mask(T_q), causal_mask(T_q, T_q))


@given(lengths=st.lists(st.integers(0, 5), max_size=4), T_k=st.integers(5, 7))
def test_a_padding_mask_shows_as_many_keys_as_the_text_has(lengths, T_k):
    mask = padding_mask(torch.tensor(lengths, dtype=torch.long), T_k)
    assert mask.shape == (len(lengths), 1, T_k)
    assert mask[:, 0].tolist() == [[s < length for s in range(T_k)] for length in lengths]


def test_masks_are_made_where_they_are_wanted():
    lengths = torch.tensor([1, 2], device="meta")
    wanted = {"device": "meta"}
    masks = (causal_mask(2, **wanted), window_mask(3, 2, **wanted), prefix_mask(3, 2, **wanted))
    assert all(mask.device.type == "meta" for mask in (*masks, padding_mask(lengths, 3)))


@given(seed=seeds, dim=st.integers(-3, 2), scale=st.sampled_from([1, 100, 1e4]), masked=st.booleans())
def test_softmax_is_torch_softmax_forward_and_backward(seed, dim, scale, masked):
    x = (randn(seed, 2, 3, 5, dtype=torch.float64) * scale).requires_grad_()
    scores = x.masked_fill(~random_mask(seed, 2, 3, 5), float("-inf")) if masked else x
    outputs = softmax(scores, dim), torch.softmax(scores, dim)
    torch.testing.assert_close(*outputs, equal_nan=True)
    gradients = (
        torch.autograd.grad(each.nan_to_num().square().sum(), x, retain_graph=True) for each in outputs
    )
    torch.testing.assert_close(*gradients, equal_nan=True)


def test_softmax_of_one_score_and_of_as_many_as_float16_can_sum():
    assert softmax(torch.tensor(3.0), 0) == 1
    x = torch.zeros(65504, dtype=torch.float16)
    torch.testing.assert_close(softmax(x, 0), torch.softmax(x, 0))


# One head


@given(
    dtype=dtypes,
    B=sizes,
    T=st.tuples(sizes, sizes),
    channels=st.tuples(sizes, sizes),
    masked=st.booleans(),
    scale=st.sampled_from([None, 0.3, 2.0]),
    shared=st.booleans(),
    seed=seeds,
)
def test_attention_is_pytorchs_forward_and_backward(dtype, B, T, channels, masked, scale, shared, seed):
    (T_q, T_k), (head_size, d_v) = T, channels
    q = randn(seed, B, 3, T_q, head_size, dtype=dtype).requires_grad_()
    k = randn(seed + 1, 1 if shared else B, 3, T_k, head_size, dtype=dtype).requires_grad_()
    v = randn(seed + 2, 1 if shared else B, 3, T_k, d_v, dtype=dtype).requires_grad_()
    direction = randn(seed + 3, B, 3, T_q, d_v, dtype=dtype)
    mask = random_mask(seed, B, 1, T_q, T_k) if masked else None
    ours, weights = attention(q, k, v, mask, scale)
    assert torch.equal(weights, attention_weights(q, k, mask, scale))
    theirs = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    torch.testing.assert_close(ours, theirs, **close(dtype))
    gradients = (torch.autograd.grad(each, (q, k, v), direction) for each in (ours, theirs))
    torch.testing.assert_close(*gradients, **close(dtype))


@given(T=st.integers(1, 20), C=sizes, seed=seeds)
def test_zero_queries_give_back_the_rungs_below(T, C, seed):
    x = randn(seed, 2, T, C)
    head = Head(C, C)
    nn.init.zeros_(head.query.weight)
    nn.init.eye_(head.value.weight)
    output, _ = head(x, causal_mask(T))
    for mean in (causal_mean_loop, causal_mean_matmul, causal_mean_softmax):
        torch.testing.assert_close(output, mean(x))


def test_cross_attention_takes_queries_from_one_text_and_the_rest_from_another():
    head, cross = Head(5, 3, d_v=4), CrossAttentionHead(5, 5, 3, d_v=4)
    cross.load_state_dict(head.state_dict())
    x = torch.randn(2, 6, 5)
    torch.testing.assert_close(cross(x, x, causal_mask(6)), head(x, causal_mask(6)))
    cross, context = CrossAttentionHead(5, 7, 3, d_v=4), torch.randn(2, 8, 7)
    expected = attention(cross.query(x), cross.key(context), cross.value(context))
    torch.testing.assert_close(cross(x, context), expected)


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


# The proof: a list of heads, the fused module, recorded and not, nn.MultiheadAttention, SDPA


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


def by_list(heads, x, mask):
    parts = [getattr(head, part).weight for part in ("query", "key", "value") for head in heads.heads]
    return heads(x, mask)[0], parts, heads.c_proj.weight


def by_fused(heads, x, mask):
    fused = fuse(heads)
    return fused(x, mask), [fused.c_attn.weight], fused.c_proj.weight


def by_recorded(heads, x, mask):
    with record_weights() as layers:
        found = by_fused(heads, x, mask)
    (weights,) = layers
    torch.testing.assert_close(weights, heads(x, mask)[1], **close(x.dtype))
    return found


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


many_sizes = st.tuples(st.integers(1, 3), st.integers(1, 7), st.integers(1, 5), st.integers(1, 5))


@given(
    dtype=dtypes,
    kind=st.sampled_from(["none", "causal", "padding", "random", "nothing"]),
    size=many_sizes,
    seed=seeds,
)
@settings(max_examples=200)
def test_all_ways_agree_forward_and_backward(dtype, kind, size, seed):
    B, T, n_head, head_size = size
    torch.manual_seed(seed)
    heads = MultiHeadAttentionList(n_head * head_size, n_head).to(dtype)
    x, direction = torch.randn(2, B, T, n_head * head_size, dtype=dtype)
    mask = mask_of(kind, B, T)
    expected = output_and_gradients(WAYS[0], heads, x, mask, direction)
    assert all(value.isfinite().all() for value in expected)
    for way in (*WAYS[1:], *[by_is_causal] * (kind == "causal")):
        found = output_and_gradients(way, heads, x, mask, direction)
        torch.testing.assert_close(found, expected, **close(dtype))


@given(size=many_sizes, seed=seeds)
def test_torch_agrees_with_bias_too(size, seed):
    B, T, n_head, head_size = size
    torch.manual_seed(seed)
    module = MultiHeadAttention(n_head * head_size, n_head, bias=True)
    theirs, x = to_torch(module), torch.randn(B, T, n_head * head_size)
    for bias in (theirs.in_proj_bias, theirs.out_proj.bias):
        assert bias.any() or not bias.numel()  # PyTorch's own begin at 0
    output, weights = theirs(x, x, x, attn_mask=~causal_mask(T))
    with record_weights() as layers:
        torch.testing.assert_close(output, module(x, causal_mask(T)))
    torch.testing.assert_close(weights, layers[0].mean(dim=1))  # averaged, as the notebook says


# However it is computed


@given(
    is_causal=st.booleans(),
    dtype=dtypes,
    T=st.tuples(sizes, sizes),
    heads=st.sampled_from([(3, 1), (3, 2), (1, 5), (2, 1)]),
    d_v=sizes,
    masked=st.booleans(),
    shared=st.booleans(),
    seed=seeds,
)
def test_attend_is_attention_of_repeated_heads_however_it_is_computed(
    is_causal, dtype, T, heads, d_v, masked, shared, seed
):
    """A group of neighbouring query heads shares keys and values; a group of one needs no `enable_gqa`."""
    (T_q, T_k), (n_kv_head, group) = T, heads
    B = 1 if shared else 2  # of the keys and values
    q = randn(seed, 2, n_kv_head * group, T_q, 5, dtype=dtype)
    k = randn(seed + 1, B, n_kv_head, T_k, 5, dtype=dtype)
    v = randn(seed + 2, B, n_kv_head, T_k, d_v, dtype=dtype)
    mask = random_mask(seed, 2, 1, T_q, T_k) if masked else None
    both = torch.ones(T_q, T_k, dtype=torch.bool) if mask is None else mask
    both = both & causal_mask(T_q, T_k) if is_causal else both
    repeated = [x[:, [head // group for head in range(n_kv_head * group)]] for x in (k, v)]
    expected, weights = attention(q, *repeated, both)
    for enable_gqa in (True,) if group > 1 else (True, False):
        arguments = (q, k, v, mask, is_causal, enable_gqa)
        torch.testing.assert_close(attend(*arguments), expected, **close(dtype))
        with record_weights() as layers:
            torch.testing.assert_close(attend(*arguments), expected, **close(dtype))
        torch.testing.assert_close(layers[0], weights, **close(dtype))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(attention_module, "sdpa_is_slow", lambda q: True)
            torch.testing.assert_close(attend(*arguments), expected, **close(dtype))


def test_neither_weights_nor_a_mask_are_kept_for_the_way_back_unless_they_are_recorded():
    """The flash kernels of a GPU take `is_causal`, and no table."""
    module, x = MultiHeadAttention(8, 2), torch.randn(1, 64, 8)
    largest = {}
    for recording in (record_weights, contextlib.nullcontext):
        sizes = []
        hooks = torch.autograd.graph.saved_tensors_hooks(
            lambda tensor, sizes=sizes: sizes.append(tensor.numel()) or tensor, lambda tensor: tensor
        )
        with hooks, recording():
            module(x, is_causal=True)
        largest[recording] = max(sizes)
    assert largest == {record_weights: 2 * 64 * 64, contextlib.nullcontext: 64 * 8}


def test_every_recording_that_is_open_in_this_thread_gets_the_weights():
    module, x = MultiHeadAttention(6, 3), torch.randn(2, 4, 6)

    def interrupted():
        module(x, is_causal=True)
        raise KeyboardInterrupt

    with record_weights() as outer:
        module(x)
        with pytest.raises(KeyboardInterrupt), record_weights() as inner:
            interrupted()
        thread = threading.Thread(target=module, args=(x,))
        thread.start()
        thread.join()
        module(x)
    module(x)
    assert [len(outer), len(inner)] == [3, 1]
    assert outer[1] is inner[0]
    assert not inner[0].triu(diagonal=1).any()
    (gradient,) = torch.autograd.grad(outer[0].square().sum(), module.c_attn.weight)
    assert gradient.any()


# The cache


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


def test_a_cache_that_grows_by_tokens_is_rarely_copied():
    cache, layer, token = Cache(), nn.Identity(), randn(0, 1, 2, 1, 5)
    places = set()
    for _ in range(300):
        places.add(cache.extend(layer, token, token)[0].data_ptr())
        cache.advance(1)
    assert len(places) <= 9


@pytest.mark.parametrize("shape", [(1, 1, 1, 5), (1, 2, 1, 1)])
def test_a_cache_spreads_no_heads_or_channels(shape):
    cache, layer, token = Cache(), nn.Identity(), randn(0, 1, 2, 1, 5)
    cache.extend(layer, token, token)
    cache.advance(1)
    other = randn(0, *shape)
    with pytest.raises(ValueError, match="holds 2 heads of 5 channels"):
        cache.extend(layer, other, other)


# The leak probe


@pytest.mark.parametrize("size", [1.0, 1e7, 0.0])
@given(T=st.tuples(sizes, sizes), batch=st.booleans(), half=st.booleans(), seed=seeds)
def test_the_leak_probe_finds_who_depends_on_whom(size, T, batch, half, seed):
    """A leak may be in one channel, and must be found however small the noise is beside the tokens."""
    depends = random_mask(seed, *T)
    x = (size * torch.ones(*[2] * batch, T[1], 3)).to(torch.bfloat16 if half else torch.float32)

    def function(x):
        seen = x[..., None, :, :].where(depends[..., None], 0)  # (..., T_out, T, 3): no rounding of a sum
        return seen.flatten(-2) * torch.tensor([1, 0, 0]).repeat(T[1])

    assert torch.equal(leak_probe(function, x), depends)


buffer, x34 = torch.empty(3, 4), torch.arange(12.0).reshape(3, 4)
nan = float("nan")


@pytest.mark.parametrize(
    ("function", "moved"),
    [
        (lambda x: x.diff(dim=-1).flip(-2), torch.eye(3).flip(0)),  # adding a constant would not show it
        (lambda x: torch.full_like(x, -math.inf), torch.zeros(3, 3)),
        (lambda x: x.where(x == x34, nan), torch.eye(3)),
        (lambda x: x.mul_(2), torch.eye(3)),
        (lambda x: buffer.copy_(causal_mean_loop(x)), torch.ones(3, 3).tril()),
        (lambda x: x > x34, torch.eye(3)),
    ],
    ids=["differences", "masked", "NaN comes", "in place", "one buffer", "booleans"],
)
def test_the_leak_probe_of_odd_functions(function, moved):
    before, state = x34.clone(), torch.get_rng_state()
    assert torch.equal(leak_probe(function, x34), moved > 0)
    assert torch.equal(x34, before)
    assert torch.equal(torch.get_rng_state(), state)
