"""The explorer of rung 4: a head built by hand, stage by stage."""

import pytest
import torch
from explorers.words import written
from hypothesis import given
from hypothesis import strategies as st

from attention_course.explorers import explore
from attention_course.plots import Heatmap
from attention_course.rungs.query_key_value.explorer import HEADS, LETTERS, TEXT, compute

T = len(TEXT)
TOKENS = ["p0", "o1", "t2", "a3", "t4", "o5"]


def says(out, head, head_size, t, masked):
    weights = out["weights"].flatten()
    found = [name for name, weight in zip(TOKENS, weights, strict=True) if weight > weights.max() - 1e-4]
    yield f"Query {TOKENS[t]} puts its largest weight, {written(weights.max())}, on "
    yield f" {', '.join(found)}. Its output is "
    yield from (
        f"{written(share)} {letter}"
        for share, letter in zip(out["output"], "pota", strict=True)
        if share >= 0.005
    )


def letters_found(head, head_size, masked=True):
    outputs = [compute(head, head_size, t, masked)["output"] for t in range(T)]
    return "".join(LETTERS[int(output.argmax())] for output in outputs)


@pytest.mark.parametrize("head_size", range(2, 6))
def test_two_channels_find_the_last_vowel(head_size):
    assert letters_found("last vowel", head_size) == "pooaao"
    assert all(compute("last vowel", head_size, t, True)["weights"].max() > 0.9 for t in range(T))


def test_without_the_mask_the_last_vowel_lies_in_the_future():
    assert letters_found("last vowel", 2, masked=False) == "oooooo"


def test_five_channels_find_the_previous_letter():
    assert letters_found("previous letter", 5) == "ppotat"


@pytest.mark.parametrize("head_size", range(1, 6))
def test_a_query_whose_channel_is_missing_shares_its_weight_evenly(head_size):
    for t in range(1, T):
        weights = compute("previous letter", head_size, t, True)["weights"].flatten()
        if t - 1 < head_size:
            assert weights[t - 1] > 0.99
        else:
            torch.testing.assert_close(weights[: t + 1], torch.full((t + 1,), 1 / (t + 1)))


@given(
    head=st.sampled_from(list(HEADS)),
    head_size=st.integers(1, T - 1),
    t=st.integers(0, T - 1),
    masked=st.booleans(),
)
def test_each_stage_follows_from_the_one_before(head, head_size, t, masked):
    out = compute(head, head_size, t, masked)
    raw, scaled = out["scores"].unbind(-1)
    torch.testing.assert_close(out["products"].sum(dim=-1), raw)
    assert out["products"].shape == (T, head_size)
    visible = torch.arange(T) <= t if masked else torch.ones(T, dtype=torch.bool)
    torch.testing.assert_close(scaled[visible], raw[visible] / head_size**0.5)
    assert (scaled[~visible] == -torch.inf).all()
    torch.testing.assert_close(out["weights"].flatten(), torch.softmax(scaled, dim=-1))
    torch.testing.assert_close(out["mix"].sum(dim=0), out["output"])


def test_all_panels_have_a_row_for_each_key():
    explorer = explore("query_key_value")
    panels = explorer.figure.panels
    assert [type(panel) for panel in panels] == [Heatmap] * 4
    assert [panel.title for panel in panels] == ["query × key", "scores", "weights", "weight × value"]
    for panel in panels:
        assert panel.state()["rows"] == TOKENS
    assert panels[1].state()["texts"][-1] == "−∞"
    assert panels[2].state()["columns"] == ["t4"]
