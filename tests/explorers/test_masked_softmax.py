"""The explorer of rung 3: scores, a mask, a temperature."""

import math

import torch
from explorers.words import entropy

from attention_course.explorers import explore
from attention_course.rungs.masked_softmax import explorer as masked_softmax


def says(out, temperature, masked, **scores):
    seen = 3 if masked else 4
    yield f"sees {seen} keys. Entropy of its weights: {entropy(out['weights']):.2f} nats, "
    yield f"out of at most ln {seen} = {math.log(seen):.2f}."


def test_hides_key_3_and_reads_the_entropy_out():
    out = masked_softmax.compute(0.0, 0.0, 0.0, 5.0, temperature=1.0, masked=True)
    torch.testing.assert_close(out["weights"], torch.tensor([1 / 3, 1 / 3, 1 / 3, 0]))
    explorer = explore("masked_softmax")
    for key in range(3):
        explorer.controls[f"score_{key}"].value = 0
    assert f"Entropy of its weights: {math.log(3):.2f} nats, out of at most ln 3" in explorer.figure.caption


def test_temperature_divides_the_scores():
    cold = masked_softmax.compute(0.0, 1.0, 2.0, 3.0, temperature=0.5, masked=False)
    torch.testing.assert_close(cold["weights"], torch.softmax(torch.tensor([0.0, 2.0, 4.0, 6.0]), 0))
    torch.testing.assert_close(cold["exp"] / cold["exp"].sum(), cold["weights"])


def test_scores_are_dragged_at_their_bars_and_have_no_sliders():
    explorer = explore("masked_softmax")
    bar, figure = explorer.children
    assert list(bar.children) == [explorer.controls["temperature"], explorer.controls["masked"]]
    assert [figure.controls[name] for name in figure.panels[0].controls] == [
        explorer.controls[f"score_{key}"].model_id for key in range(4)
    ]


def test_a_hidden_key_says_that_its_score_does_not_count():
    explorer = explore("masked_softmax")
    assert "The mask sets the score of key 3 to −∞, whatever it was." in explorer.figure.caption
    explorer.controls["masked"].value = False
    assert "mask" not in explorer.figure.caption
