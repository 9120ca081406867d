"""The explorer of rung 3: scores, a mask, a temperature."""

import math

import pytest
import torch
from explorers.words import entropy

from attention_course.explorers import explore
from attention_course.rungs.masked_softmax import explorer as masked_softmax


def says(out, temperature, masked, **scores):
    seen = 3 if masked else 4
    yield f"sees {seen} keys. Entropy of its weights: {entropy(out['weights']):.2f} nats, "
    hidden = " The mask sets the score of key 3 to −∞, whatever it was." if masked else ""
    yield f"out of at most ln {seen} = {math.log(seen):.2f}.{hidden}"


@pytest.mark.parametrize("masked", [False, True])
def test_weights_are_the_softmax_of_scores_divided_by_the_temperature(masked):
    cold = masked_softmax.compute(0.0, 1.0, 2.0, 3.0, temperature=0.5, masked=masked)
    scores = torch.tensor([0.0, 2.0, 4.0, -torch.inf if masked else 6.0])
    torch.testing.assert_close(cold["weights"], scores.softmax(0))
    torch.testing.assert_close(cold["exp"] / cold["exp"].sum(), cold["weights"])


def test_scores_are_dragged_at_their_bars_and_have_no_sliders():
    explorer = explore("masked_softmax")
    bar, figure = explorer.children
    assert list(bar.children) == [explorer.controls["temperature"], explorer.controls["masked"]]
    assert [figure.controls[name] for name in figure.panels[0].controls] == [
        explorer.controls[f"score_{key}"].model_id for key in range(4)
    ]
