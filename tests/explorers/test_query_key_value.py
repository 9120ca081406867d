"""The explorer of a head built by hand, stage by stage."""

import pytest
import torch
from explorers.words import written

from attention_course.explorers import explore
from attention_course.rungs.query_key_value.explorer import LETTERS, TEXT, compute

T = len(TEXT)
TOKENS = ["p0", "o1", "t2", "a3", "t4", "o5"]


def says(out, head, head_size, t, masked):
    """Each stage follows from the one before."""
    raw, scaled = out["scores"].unbind(-1)
    torch.testing.assert_close(out["products"].sum(dim=-1), raw)
    assert out["products"].shape == (T, head_size)
    hidden = torch.arange(T) > t if masked else torch.zeros(T, dtype=torch.bool)
    torch.testing.assert_close(scaled, (raw / head_size**0.5).masked_fill(hidden, -torch.inf))
    weights = torch.softmax(scaled, dim=-1)
    torch.testing.assert_close(out["weights"].flatten(), weights)
    torch.testing.assert_close(out["mix"].sum(dim=0), out["output"])
    found = [name for name, weight in zip(TOKENS, weights, strict=True) if weight > weights.max() - 1e-4]
    yield f"Query {TOKENS[t]} puts its largest weight, {written(weights.max())}, on "
    yield f" {', '.join(found)}. Its output is "
    shares = zip(out["output"], "pota", strict=True)
    yield from (f"{written(share)} {letter}" for share, letter in shares if share >= 0.005)


@pytest.mark.parametrize(
    ("head", "head_sizes", "masked", "found"),
    [
        ("last vowel", range(2, 6), True, "pooaao"),
        ("last vowel", range(2, 3), False, "oooooo"),
        ("previous letter", range(5, 6), True, "ppotat"),
    ],
)
def test_a_head_finds_what_it_is_named_after(head, head_sizes, masked, found):
    for head_size in head_sizes:
        outs = [compute(head, head_size, t, masked) for t in range(T)]
        assert "".join(LETTERS[int(out["output"].argmax())] for out in outs) == found
        assert not masked or all(out["weights"].max() > 0.9 for out in outs)


@pytest.mark.parametrize("head_size", range(1, 6))
def test_a_query_whose_channel_is_missing_shares_its_weight_evenly(head_size):
    for t in range(1, T):
        weights = compute("previous letter", head_size, t, True)["weights"].flatten()
        if t - 1 < head_size:
            assert weights[t - 1] > 0.99
        else:
            torch.testing.assert_close(weights[: t + 1], torch.full((t + 1,), 1 / (t + 1)))


def test_all_panels_have_a_row_for_each_key():
    panels = explore("query_key_value").figure.panels
    assert [panel.title for panel in panels] == ["query × key", "scores", "weights", "weight × value"]
    assert all(panel.state()["rows"] == TOKENS for panel in panels)
    assert panels[1].state()["texts"][-1] == "−∞"
