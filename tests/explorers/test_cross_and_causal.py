"""The explorer of masks between two texts, and where a change arrives."""

import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from attention_course.attention import causal_mask, prefix_mask, window_mask
from attention_course.rungs.cross_and_causal import explorer

lengths = st.integers(1, explorer.LARGEST)


def says(out, kind, T_q, T_k, position):
    """A change reaches the queries whose mask shows it, and no others."""
    s = min(position, T_k - 1)
    assert out["mask"].shape == out["weights"].shape == (T_q, T_k)
    assert torch.equal(out["moved"].any(dim=-1), out["mask"][:, s])
    sees = out["mask"].any(dim=-1)
    torch.testing.assert_close(out["weights"].sum(dim=-1), sees.float())
    yield f"Changing token {s} of the context"
    moved = out["mask"][:, s].nonzero().flatten().tolist()
    if not moved:
        yield "moves no output"
    elif len(moved) < T_q:
        yield f" {', '.join(map(str, moved))} of {T_q}"
    else:
        yield "moves every output" if T_q > 1 else "moves the only output"
    if blind := T_q - int(sees.sum()):
        yield f"{blind} of {T_q} queries may look at nothing"


@given(T_q=lengths, T_k=lengths)
def test_masks_are_those_of_the_package_and_the_last_query_sees_the_last_key_but_for_one(T_q, T_k):
    T = max(T_q, T_k)
    ones = torch.ones(T_q, 2), torch.ones(T_k, 2), torch.eye(T_k)
    expected = {
        "causal": causal_mask(T)[-T_q:, -T_k:],
        "causal, top left": F.scaled_dot_product_attention(*ones, is_causal=True) > 0,
        "window of 3": window_mask(T, 3)[-T_q:, -T_k:],
        "padding of 2": (torch.arange(T_k) < T_k - 2).expand(T_q, T_k),
        "none": torch.ones(T_q, T_k, dtype=torch.bool),
    }
    for kind, mask in expected.items():
        assert torch.equal(explorer.MASKS[kind](T_q, T_k), mask), kind
    assert torch.equal(explorer.MASKS["prefix of 2"](T, T), prefix_mask(T, 2))
