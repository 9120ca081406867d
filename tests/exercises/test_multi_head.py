"""Rung 7's exercises: what their inputs hold, what their references equal, what their texts say."""

import pytest
import torch
from torch.nn import functional as F

from attention_course.attention import MultiHeadAttentionList, fuse
from attention_course.exercises import EXERCISES, check, judging

pytestmark = pytest.mark.slow

split, merge, forward, fused = (
    EXERCISES[name].reference for name in ("split_heads", "merge_heads", "multi_head_forward", "fuse_heads")
)


def inputs(name):
    return judging.trial(EXERCISES[name], 0).inputs


def test_the_mistakes_of_the_syllabus_are_named():
    names = ("split_heads", "merge_heads", "multi_head_forward", "fuse_heads")
    assert {name for each in names for m in EXERCISES[each].mistakes for name in m.names} >= {
        *("view_without_transpose", "no_output_projection", "concatenated_along_time"),
        *("scaled_by_n_embd", "softmax_over_heads"),
    }


def test_masks_are_causal_free_random_and_blind():
    masks = [mask for *_, mask in inputs("multi_head_forward")]
    assert sum(torch.equal(mask, torch.ones_like(mask).tril()) for mask in masks) > 5
    assert any(mask.all() and len(mask) > 1 for mask in masks)
    assert any(mask.triu(1).any() and not mask.all() and mask.any(dim=-1).all() for mask in masks)
    assert sum((~mask.any(dim=-1)).sum() for mask in masks) == 1


def test_sizes_differ_in_some_input():
    shapes = [(*x.shape[:2], n_head, x.shape[2] // n_head) for x, n_head in inputs("split_heads")]
    shapes += [tuple(h.permute(0, 2, 1, 3).shape) for (h,) in inputs("merge_heads")]
    assert sum(len(set(shape)) == 4 for shape in shapes) >= 2
    assert {n_head for _, _, n_head, _ in shapes} >= {1, 2, 3, 5}


def test_the_references_are_the_package():
    """The fused matrix of a list of heads, put through the forward, gives what the list gives."""
    heads, x, mask = MultiHeadAttentionList(6, 3), torch.randn(2, 4, 6), torch.ones(4, 4).tril() > 0
    parts = ("query", "key", "value")
    W_qkv = fused(*(torch.stack([getattr(h, part).weight for h in heads.heads]) for part in parts))
    assert torch.equal(W_qkv, fuse(heads).c_attn.weight)
    torch.testing.assert_close(forward(x, W_qkv, heads.c_proj.weight, 3, mask), heads(x, mask)[0])
    assert torch.equal(merge(split(x, 3)), x)


def test_a_view_after_the_transpose_is_told_what_pytorch_says():
    verdict = check("merge_heads", lambda h: h.transpose(1, 2).view(len(h), h.shape[2], -1), 0)
    assert "raised RuntimeError" in verdict.message
    assert "reshape" in verdict.message


def test_a_wrong_shape_is_told_by_its_dimensions():
    """There is no sum here, and none is spoken of."""
    squeezed = check("split_heads", lambda x, n_head: split(x, n_head).squeeze(), 0)
    assert "It has 1 dimensions instead of 4." in squeezed.message
    cut = check("merge_heads", lambda heads: merge(heads)[..., 1:], 0)
    assert "Dimension 2 is 3, expected 4." in cut.message
    assert not {"sum", "product"} & set(f"{squeezed} {cut}".split())


def test_what_the_insights_say_is_true():
    x = torch.randn(2, 3, 4)
    assert "shares its memory" in EXERCISES["split_heads"].insight
    assert split(x, 2).data_ptr() == x.data_ptr()
    with pytest.raises(RuntimeError, match="view"):
        split(x, 2).view(2, 3, 4)
    assert "`.contiguous().view(...)`" in EXERCISES["merge_heads"].insight
    heads = split(x, 2)
    assert torch.equal(merge(heads), heads.transpose(1, 2).contiguous().view(2, 3, 4))
    assert "`torch.cat(outputs, dim=-1)`" in EXERCISES["merge_heads"].insight
    assert torch.equal(merge(heads), torch.cat(list(heads.unbind(1)), dim=-1))
    assert "scaled_dot_product_attention(q, k, v, attn_mask=mask)" in EXERCISES["multi_head_forward"].insight
    x, W_qkv, W_proj, n_head, mask = inputs("multi_head_forward")[-2]
    assert not mask.any(dim=-1).all()
    q, k, v = (split(part, n_head) for part in (x @ W_qkv.T).chunk(3, -1))
    output = merge(F.scaled_dot_product_attention(q, k, v, attn_mask=mask)) @ W_proj.T
    torch.testing.assert_close(output, forward(x, W_qkv, W_proj, n_head, mask))
