"""The explorer that turns a query and a key: their score knows their distance alone."""

import pytest
import torch
from explorers.words import written

from attention_course.explorers import explore
from attention_course.llama import Rotary
from attention_course.rungs.a_real_model import explorer_rotary as rotary


def says(out, position, distance, head_size, base):
    """Scores are those of a row of turned tokens."""
    turn = Rotary(head_size, 1065, float(base))
    q, k = (each[:head_size].expand(1065, -1) for each in (rotary.QUERY, rotary.KEY))
    scores = turn(q)[position : position + 65] @ turn(k)[position] / head_size**0.5
    torch.testing.assert_close(out["scores"], scores, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(out["first"], out["scores"][distance], atol=1e-3, rtol=1e-3)
    yield f"Query at position {position + distance}, key at position {position}: score "
    yield f"score {written(out['scores'][distance])}. "
    if position:
        yield f"same query and key at positions {distance} and 0 have the score {written(out['first'])}. "
    yield "From one position to the next, pair 0 turns by 57°"


@pytest.mark.parametrize(
    ("head_size", "pairs"), [(2, [0]), (4, [0, 1]), (8, [0, 1, 2, 3]), (64, [0, 10, 21, 31])]
)
def test_arrows_are_pairs_of_channels_with_their_lengths_and_speeds(head_size, pairs):
    out = rotary.compute(100, 8, head_size, 10_000)
    assert out["pairs"].tolist() == pairs
    degrees = torch.tensor([10_000.0 ** (-2 * pair / head_size) for pair in pairs]).rad2deg()
    torch.testing.assert_close(out["degrees"], degrees, atol=0, rtol=1e-3)
    still = torch.stack([each.view(32, 2) for each in (rotary.QUERY, rotary.KEY)], dim=1)[pairs]
    angles = torch.stack([108 * degrees, 100 * degrees], dim=-1).deg2rad()
    turned = torch.view_as_complex(still) * torch.polar(torch.ones(len(pairs), 2), angles)
    torch.testing.assert_close(out["arrows"], torch.view_as_real(turned), atol=1e-2, rtol=0)


def test_the_present_distance_is_marked_on_the_curve():
    explorer = explore("rotary")
    explorer.controls["distance"].value = 12
    arrows, lines = explorer.figure.panels
    marked = lines.curves["at distance 12"]
    assert marked.isfinite().nonzero().tolist() == [[12]]
    assert marked[12] == lines.curves["score"][12]
    assert arrows.labels[:2] == ["pair 0: 57°/step", "pair 10: 3.2°/step"]
