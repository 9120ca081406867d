"""Rung 7: the explorer, the exercises and facts of the notebook."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from attention_course.attention import MultiHeadAttention, attention_weights, causal_mask
from attention_course.exercises import EXERCISES, check
from attention_course.explorers import explore, multi_head

# The explorer

N_HEADS = [2**power for power in range(7)]
T = len(multi_head.TEXT)
PAIRS = [(t, s) for t in range(T) for s in range(t + 1)]


def weights_of(n_head, masked=True):
    return multi_head.compute(n_head, T - 1, masked)["weights"]


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("n_head", N_HEADS)
def test_rows_sum_to_1_and_the_mask_hides_the_future(n_head, masked):
    weights = weights_of(n_head, masked)
    assert weights.shape == (n_head, T, T)
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(n_head, T))
    assert weights.triu(diagonal=1).any() != masked


def test_every_head_computes_with_its_own_part_of_the_same_channels():
    """The scores of a head are those of the sixteen jobs that it holds, added up."""
    scores = torch.stack(
        [q @ k.T for q, k in zip(multi_head.QUERIES.split(4, -1), multi_head.KEYS.split(4, -1), strict=True)]
    )
    for n_head in (1, 2, 4, 8, 16):
        jobs = scores.view(n_head, -1, T, T).sum(dim=1) * (multi_head.N_EMBD / n_head) ** -0.5
        expected = torch.softmax(jobs.masked_fill(~causal_mask(T), -math.inf), dim=-1)
        torch.testing.assert_close(weights_of(n_head), expected)


def test_with_sixteen_heads_each_job_has_a_map():
    """The jobs that the notebook names are done, and no two maps are alike."""
    weights, text = weights_of(16), multi_head.TEXT
    for head, back in ((0, 1), (4, 0), (7, 3), (11, 2), (15, 4)):
        for t in range(back, T):
            assert weights[head, t, t - back] > 0.9
    assert (weights[2, :, 0] > 0.95).all()
    torch.testing.assert_close(weights[8], torch.ones(T, T).tril() / torch.arange(1, T + 1)[:, None])
    for t, s in PAIRS:
        if weights[1, t, s] > 0.1:
            assert text[s] == text[t]
    last = weights[:, -1]
    assert {text[s] for s in last[3].topk(3).indices} == {"e", "a"}
    assert last[5].topk(2).indices.sort()[0].tolist() == [1, 7]  # what followed the two other t
    for one in range(16):
        for other in range(one):
            assert (weights[one] - weights[other]).abs().max() > 0.2


def test_neither_few_heads_nor_many_do_the_jobs():
    previous = torch.arange(T - 1)

    def best_at_previous(n_head):
        return weights_of(n_head)[:, previous + 1, previous].amin(dim=-1).max()

    assert best_at_previous(16) > 0.9
    assert best_at_previous(1) < 0.2
    assert best_at_previous(64) < 0.5


@pytest.mark.parametrize("n_head", N_HEADS)
def test_the_sheet_holds_every_map_in_reading_order(n_head):
    weights = torch.rand(n_head, T, T)
    maps = multi_head.sheet(weights)
    columns = (maps.shape[1] + 1) // (T + 1)
    assert maps.shape[0] <= maps.shape[1]
    for h in range(n_head):
        down, right = h // columns * (T + 1), h % columns * (T + 1)
        assert torch.equal(maps[down : down + T, right : right + T], weights[h])
    assert (maps < 0).sum() == maps.numel() - n_head * T * T


@pytest.mark.parametrize("n_head", N_HEADS)
def test_the_caption_counts_what_the_module_has(n_head):
    explorer = explore("multi_head")
    explorer.controls["n_head"].value = n_head
    module = MultiHeadAttention(64, n_head)
    caption = explorer.figure.caption
    assert f"n_head = {n_head}, head_size = 64 / {n_head} = {module.head_size}." in caption
    assert f"= {sum(p.numel() for p in module.parameters()):,}, for any n_head" in caption
    explorer.controls["query"].value = 0
    assert "query 0 “t” gives 100 % of its weight to key 0 “t”" in explorer.figure.caption


def test_the_caption_reads_the_largest_weight_out():
    weights = weights_of(16)
    assert weights[0, 10].argmax() == 9
    assert f"query 10 “t” gives {100 * weights[0, 10, 9]:.0f} % of its weight to key 9 “a”" in repr(
        explore("multi_head")
    )


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
    return torch.func.functional_call(module, weights, (x, mask))


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


@given(s=st.floats(0, 1), seed=st.integers(0, 2**32))
def test_no_share_gives_both_answers(s, seed):
    """For any linear layer: if both answers are right on equal cards, one on swapped cards is wrong."""
    generator = torch.Generator().manual_seed(seed)
    v = torch.randn(10, 8, generator=generator, dtype=torch.float64)
    read = torch.randn(8, 2, 10, generator=generator, dtype=torch.float64)

    def lead(first, second):
        scores = torch.einsum("c,cak->ak", s * v[first] + (1 - s) * v[second], read)
        return scores[:, 2] - scores[:, 6]  # of card 2 over card 6, for either answer

    torch.testing.assert_close(lead(2, 6) - lead(6, 2), (2 * s - 1) * (lead(2, 2) - lead(6, 6)))
    if (lead(2, 2) > lead(6, 6)).all():
        first, second = (lead(2, 6) - lead(6, 2)).tolist()
        assert not (first > 0 > second)
