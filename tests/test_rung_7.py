"""Rung 7: four ways to compute many heads agree; the exercises and facts of the notebook."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from attention_course.attention import (
    Head,
    MultiHeadAttention,
    MultiHeadAttentionList,
    attention_weights,
    causal_mask,
    fuse,
    leak_probe,
    padding_mask,
    to_torch,
)
from attention_course.exercises import EXERCISES, check

DTYPES = pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
MASKS = ("none", "causal", "padding", "random", "nothing")

sizes = st.tuples(st.integers(1, 3), st.integers(1, 7), st.integers(1, 5), st.integers(1, 5))
seeds = st.integers(0, 2**32)


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


# The proof: a list of heads, the fused module with and without weights, nn.MultiheadAttention, SDPA


def by_list(heads, x, mask):
    parts = [getattr(head, part).weight for part in ("query", "key", "value") for head in heads.heads]
    return heads(x, mask)[0], parts, heads.c_proj.weight


def by_fused(heads, x, mask, need_weights=False):
    fused = fuse(heads)
    return fused(x, mask, need_weights)[0], [fused.c_attn.weight], fused.c_proj.weight


def by_fused_with_weights(heads, x, mask):
    return by_fused(heads, x, mask, need_weights=True)


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


WAYS = (by_list, by_fused, by_fused_with_weights, by_torch, by_sdpa)


def output_and_gradients(way, heads, x, mask, direction):
    x = x.clone().requires_grad_()
    output, parts, project = way(heads, x, mask)
    of_x, of_project, *of_parts = torch.autograd.grad((output * direction).sum(), [x, project, *parts])
    return output, of_x, of_project, torch.cat(of_parts)


@DTYPES
@pytest.mark.parametrize("kind", MASKS)
@given(size=sizes, seed=seeds)
def test_all_ways_agree_forward_and_backward(dtype, tolerance, kind, size, seed):
    B, T, n_head, head_size = size
    torch.manual_seed(seed)
    heads = MultiHeadAttentionList(n_head * head_size, n_head).to(dtype)
    x, direction = torch.randn(2, B, T, n_head * head_size, dtype=dtype)
    mask = mask_of(kind, B, T)
    expected = output_and_gradients(WAYS[0], heads, x, mask, direction)
    assert all(value.isfinite().all() for value in expected)
    for way in WAYS[1:]:
        found = output_and_gradients(way, heads, x, mask, direction)
        torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("kind", MASKS)
@given(size=sizes, seed=seeds)
def test_the_weights_of_list_and_fused_agree(kind, size, seed):
    B, T, n_head, head_size = size
    torch.manual_seed(seed)
    heads = MultiHeadAttentionList(n_head * head_size, n_head)
    x, mask = torch.randn(B, T, n_head * head_size), mask_of(kind, B, T)
    weights = fuse(heads)(x, mask, need_weights=True)[1]
    assert weights.shape == (B, n_head, T, T)
    torch.testing.assert_close(weights, heads(x, mask)[1])


@DTYPES
@pytest.mark.parametrize("kind", MASKS)
@given(size=sizes, seed=seeds, bias=st.booleans())
def test_asking_for_the_weights_changes_nothing(dtype, tolerance, kind, size, seed, bias):
    B, T, n_head, head_size = size
    torch.manual_seed(seed)
    module = MultiHeadAttention(n_head * head_size, n_head, bias).to(dtype)
    x = torch.randn(B, T, n_head * head_size, dtype=dtype, requires_grad=True)
    direction, mask = torch.randn_like(x), mask_of(kind, B, T)
    found = []
    for need_weights in (True, False):
        output, weights = module(x, mask, need_weights)
        assert (weights is not None) == need_weights
        found.append((output, *torch.autograd.grad((output * direction).sum(), [x, *module.parameters()])))
    torch.testing.assert_close(found[0], found[1], atol=tolerance, rtol=tolerance)


@given(size=sizes, seed=seeds)
def test_torch_agrees_with_bias_too(size, seed):
    B, T, n_head, head_size = size
    torch.manual_seed(seed)
    module = MultiHeadAttention(n_head * head_size, n_head, bias=True)
    theirs, x = to_torch(module), torch.randn(B, T, n_head * head_size)
    output, weights = theirs(x, x, x, attn_mask=~causal_mask(T))
    torch.testing.assert_close(output, module(x, causal_mask(T))[0])
    ours = module(x, causal_mask(T), need_weights=True)[1]
    torch.testing.assert_close(weights, ours.mean(dim=1))  # averaged over the heads, as the notebook says


@pytest.mark.parametrize("need_weights", [True, False])
def test_a_query_that_sees_nothing_gets_zeros(need_weights):
    x = torch.randn(2, 4, 6)
    mask = causal_mask(4)
    mask[1] = False
    output, weights = MultiHeadAttention(6, 3)(x, mask, need_weights)
    assert not output[:, 1].any()
    assert output[:, [0, 2, 3]].all()
    assert weights is None or not weights[:, :, 1].any()


@pytest.mark.parametrize("make", [MultiHeadAttentionList, MultiHeadAttention])
@pytest.mark.parametrize(("n_embd", "n_head"), [(64, 5), (4, 8), (6, 0)])
def test_a_width_that_cannot_be_split_names_both_numbers(make, n_embd, n_head):
    with pytest.raises(ValueError, match=f"n_embd = {n_embd} .* n_head = {n_head} "):
        make(n_embd, n_head)


@pytest.mark.parametrize("n_head", [1, 2, 4, 8, 16])
def test_the_number_of_parameters_does_not_depend_on_n_head(n_head):
    for make in (MultiHeadAttentionList, MultiHeadAttention):
        assert sum(p.numel() for p in make(16, n_head).parameters()) == 4 * 16**2


@given(size=sizes, seed=seeds)
def test_no_leak(size, seed):
    B, T, n_head, head_size = size
    torch.manual_seed(seed)
    module = MultiHeadAttention(n_head * head_size, n_head).double()
    x = torch.randn(B, T, n_head * head_size, dtype=torch.float64)
    for need_weights in (True, False):
        moved = leak_probe(lambda x, n=need_weights: module(x, causal_mask(T), n)[0], x)
        assert not moved.triu(diagonal=1).any()


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


# The exercises


def by_loop(x, W_qkv, W_proj, n_head, mask):
    q, k, v = (x @ W_qkv.T).chunk(3, dim=-1)
    heads = []
    for one in zip(*(part.chunk(n_head, dim=-1) for part in (q, k, v)), strict=True):
        heads.append(attention_weights(one[0], one[1], mask) @ one[2])
    return torch.cat(heads, dim=-1) @ W_proj.T


def by_module(x, W_qkv, W_proj, n_head, mask):
    module = MultiHeadAttention(x.shape[-1], n_head)
    weights = {"c_attn.weight": W_qkv, "c_proj.weight": W_proj}
    return torch.func.functional_call(module, weights, (x, mask))[0]


def forward(x, W_qkv, W_proj, n_head, mask, split, merge, scale):
    q, k, v = (split(part, n_head) for part in F.linear(x, W_qkv).chunk(3, dim=-1))
    weights = (q @ k.mT / scale(x, n_head)).masked_fill(mask.logical_not(), -math.inf).softmax(-1)
    weights = weights.nan_to_num()
    return F.linear(merge(weights @ v), W_proj)


def forward_with(
    split=lambda x, n: x.unflatten(-1, (n, -1)).transpose(1, 2),
    merge=lambda heads: heads.transpose(1, 2).flatten(2),
    scale=lambda x, n: (x.shape[-1] / n) ** 0.5,
):
    return lambda *arguments: forward(*arguments, split, merge, scale)


def without_projection(x, W_qkv, W_proj, n_head, mask):
    return by_loop(x, W_qkv, torch.eye(x.shape[-1]), n_head, mask)


def softmax_dim_1(x, W_qkv, W_proj, n_head, mask):
    q, k, v = (p.unflatten(-1, (n_head, -1)).transpose(1, 2) for p in (x @ W_qkv.T).chunk(3, -1))
    weights = F.softmax((q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~mask, -math.inf), dim=1)
    return (weights @ v).transpose(1, 2).flatten(2) @ W_proj.T


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("split_heads", lambda x, n: torch.stack(x.chunk(n, dim=-1), dim=1)),
        ("split_heads", lambda x, n: x.unflatten(-1, (n, -1)).permute(0, 2, 1, 3)),
        ("merge_heads", lambda heads: torch.cat(heads.unbind(1), dim=-1)),
        (
            "merge_heads",
            lambda heads: heads.transpose(1, 2).contiguous().view(len(heads), heads.shape[2], -1),
        ),
        ("multi_head_forward", by_loop),
        ("multi_head_forward", by_module),
        ("multi_head_forward", forward_with()),
        ("fuse_heads", lambda q, k, v: torch.stack([q, k, v]).flatten(0, 2)),
        ("fuse_heads", lambda q, k, v: torch.cat([*q, *k, *v])),
    ],
)
def test_right_answers_in_other_styles_pass(name, answer):
    for seed in range(5):
        verdict = check(name, answer, seed)
        assert verdict.passed, verdict


@pytest.mark.parametrize(
    ("name", "answer", "mistake"),
    [
        ("split_heads", lambda x, n: x.reshape(len(x), n, x.shape[1], -1), "view_without_transpose"),
        ("split_heads", lambda x, n: x.unflatten(-1, (n, -1)), "no_transpose"),
        ("split_heads", lambda x, n: x.unflatten(-1, (-1, n)).permute(0, 3, 1, 2), "every_n_head_th_channel"),
        ("split_heads", lambda x, n: torch.stack(x.chunk(n, dim=-1)), "heads_first"),
        ("merge_heads", lambda h: h.view(len(h), h.shape[2], -1), "reshape_without_transpose"),
        ("merge_heads", lambda h: torch.cat(h.unbind(1), dim=1), "concatenated_along_time"),
        ("merge_heads", lambda h: torch.stack([*h.unbind(1)], dim=-1).flatten(2), "heads_interleaved"),
        (
            "multi_head_forward",
            forward_with(split=lambda x, n: x.reshape(len(x), n, x.shape[1], -1)),
            "view_without_transpose",
        ),
        (
            "multi_head_forward",
            forward_with(split=lambda x, n: x.view(len(x), n, x.shape[1], x.shape[2] // n)),
            "view_that_pytorch_refuses",
        ),
        (
            "multi_head_forward",
            forward_with(merge=lambda h: torch.cat(h.unbind(1), dim=1).view(len(h), h.shape[2], -1)),
            "merged_without_transpose",
        ),
        ("multi_head_forward", forward_with(scale=lambda x, n: x.shape[-1] ** 0.5), "scaled_by_n_embd"),
        ("multi_head_forward", forward_with(scale=lambda x, n: 1), "no_scale"),
        ("multi_head_forward", softmax_dim_1, "softmax_over_heads_with_nan"),
        ("multi_head_forward", without_projection, "no_output_projection"),
        ("fuse_heads", lambda q, k, v: torch.stack([q, k, v], dim=1).flatten(0, 2), "head_after_head"),
        ("fuse_heads", lambda q, k, v: torch.cat([q, k, v]), "not_flattened"),
    ],
)
def test_a_slip_gets_its_name(name, answer, mistake):
    for seed in range(5):
        assert check(name, answer, seed).mistake == mistake


def test_the_mistakes_of_the_syllabus_are_named():
    names = ("split_heads", "merge_heads", "multi_head_forward", "fuse_heads")
    assert {m.name for name in names for m in EXERCISES[name].mistakes} >= {
        *("view_without_transpose", "no_output_projection", "concatenated_along_time"),
        *("scaled_by_n_embd", "softmax_over_heads"),
    }


def test_a_view_after_the_transpose_is_told_what_pytorch_says():
    verdict = check("merge_heads", lambda h: h.transpose(1, 2).view(len(h), h.shape[2], -1), 0)
    assert "raised RuntimeError" in verdict.message
    assert "reshape" in verdict.message


def test_what_the_insights_say_is_true():
    x = torch.randn(2, 3, 4)
    split = EXERCISES["split_heads"].reference(x, 2)
    assert "shares its memory" in EXERCISES["split_heads"].insight
    assert split.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    with pytest.raises(RuntimeError, match="view"):
        split.view(2, 3, 4)
    assert "scaled_dot_product_attention(q, k, v, attn_mask=mask)" in EXERCISES["multi_head_forward"].insight
    assert check("multi_head_forward", by_sdpa_alone).passed


def by_sdpa_alone(x, W_qkv, W_proj, n_head, mask):
    q, k, v = (EXERCISES["split_heads"].reference(part, n_head) for part in (x @ W_qkv.T).chunk(3, -1))
    output = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return EXERCISES["merge_heads"].reference(output) @ W_proj.T


# Facts of the notebook


def test_sdpa_keeps_no_weights_for_the_way_back():
    module, x = MultiHeadAttention(8, 2), torch.randn(1, 64, 8)
    largest = {}
    for need_weights in (True, False):
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda tensor, sizes=sizes: sizes.append(tensor.numel()) or tensor, lambda tensor: tensor
        ):
            module(x, need_weights=need_weights)
        largest[need_weights] = max(sizes)
    assert largest == {True: 2 * 64 * 64, False: 64 * 8}
