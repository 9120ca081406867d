"""The explorer of rung 6: masks between two texts, and where a change arrives."""

import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from attention_course.attention import causal_mask, prefix_mask, window_mask
from attention_course.plots.drawing import script
from attention_course.rungs.cross_and_causal import explorer

lengths = st.integers(1, explorer.LARGEST)


def says(out, kind, T_q, T_k, position):
    yield f"Changing token {min(position, T_k - 1)} of the context"
    moved = [row for row in range(T_q) if out["moved"][row].any()]
    if not moved:
        yield "moves no output"
    elif len(moved) < T_q:
        yield f" {', '.join(map(str, moved))} of {T_q}"
    else:
        yield "moves every output" if T_q > 1 else "moves the only output"
    blind = T_q - int(out["mask"].any(dim=1).sum())
    if blind:
        yield f"{blind} of {T_q} queries may look at nothing"


@given(kind=st.sampled_from(list(explorer.MASKS)), T_q=lengths, T_k=lengths, position=st.integers(0, 7))
def test_a_change_reaches_the_queries_whose_mask_shows_it_and_no_others(kind, T_q, T_k, position):
    out = explorer.compute(kind, T_q, T_k, position)
    s = min(position, T_k - 1)
    assert out["s"] == s
    assert out["mask"].shape == out["weights"].shape == (T_q, T_k)
    assert torch.equal(out["moved"].any(dim=-1), out["mask"][:, s])
    sees = out["mask"].any(dim=-1)
    torch.testing.assert_close(out["weights"].sum(dim=-1), sees.float())


@given(T=lengths)
def test_square_masks_are_those_of_the_package(T):
    assert torch.equal(explorer.MASKS["causal"](T, T), causal_mask(T))
    assert torch.equal(explorer.MASKS["causal, top left"](T, T), causal_mask(T))
    assert torch.equal(explorer.MASKS["window of 3"](T, T), window_mask(T, 3))
    assert torch.equal(explorer.MASKS["prefix of 2"](T, T), prefix_mask(T, 2))
    assert torch.equal(explorer.MASKS["padding of 2"](T, T)[0], torch.arange(T) < T - 2)


@given(T_q=lengths, T_k=lengths)
def test_the_last_query_is_aligned_with_the_last_key_but_for_one_kind(T_q, T_k):
    T = max(T_q, T_k)
    assert torch.equal(explorer.MASKS["causal"](T_q, T_k), causal_mask(T)[-T_q:, -T_k:])
    assert torch.equal(explorer.MASKS["window of 3"](T_q, T_k), window_mask(T, 3)[-T_q:, -T_k:])
    weights = F.scaled_dot_product_attention(
        torch.ones(T_q, 2), torch.ones(T_k, 2), torch.eye(T_k), is_causal=True
    )
    assert torch.equal(explorer.MASKS["causal, top left"](T_q, T_k), weights > 0)


def test_three_panels_fit_beside_each_other():
    heatmap = script()
    width = "KINDS.Heatmap.size({ rows: [], room: [%d, %d] }, themeIn(false, (_, otherwise) => otherwise))[0]"
    for T_q in range(1, explorer.LARGEST + 1):
        for T_k in range(1, explorer.LARGEST + 1):
            shapes = [(T_q, T_k), (T_q, T_k), (T_q, explorer.CHANNELS)]
            assert sum(heatmap.eval(width % shape) for shape in shapes) < 810
