"""What the notebooks say and no cell of theirs can show."""

import math
from pathlib import Path

import nbformat
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"


def test_the_loss_of_random_logits_is_half_a_variance_above_uniform():
    torch.manual_seed(1)
    for variance in (0.0, 0.25, 1.0):
        logits = torch.randn(50_000, 87) * variance**0.5
        loss = F.cross_entropy(logits, torch.randint(87, (50_000,)))
        assert loss.item() == pytest.approx(math.log(87) + variance / 2, abs=0.03)


def test_the_translator_of_rung_6_is_short_enough_to_read():
    starts = ("class Encoder", "def feed_forward", "class Decoder")
    cells = nbformat.read(NOTEBOOKS / "06_cross_and_causal.ipynb", as_version=4).cells
    model = [cell.source for cell in cells if cell.source.startswith(starts)]
    assert len(model) == len(starts)
    assert sum(len(list(filter(str.strip, source.splitlines()))) for source in model) <= 40


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
