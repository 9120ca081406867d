"""The explorer of weights that depend on the distance."""

import re

import pytest
import torch
from counted import loss_of

from attention_course.rungs.bag_of_words.exercises import forgetting_mean
from attention_course.rungs.tril_matmul.exercises import band_matrix
from attention_course.rungs.tril_matmul.explorer import TEXT, TRAINED_PATH, compute


def says(out, decay, window):
    first = out["weights"][-1, -1]
    many = len(TEXT) if window == "all" else int(window)
    expected = torch.tensor([decay**back * (back < many) for back in reversed(range(len(TEXT)))])
    torch.testing.assert_close(out["weights"][-1] / first, expected)
    yield f"has a loss of {out['loss']:.2f} nats per character"
    yield f"it writes “{out['line']}”"


def test_without_decay_it_is_the_mean_of_the_past_or_of_the_last_ones():
    for window, k in {"all": len(TEXT), "4": 4}.items():
        weights = compute(decay=1.0, window=window)["weights"]
        torch.testing.assert_close(weights, band_matrix(len(TEXT), k))


def test_an_output_holds_how_much_of_each_letter_was_taken():
    output = compute(decay=0.5, window="all")["output"][-1]
    share = 0.5 ** torch.arange(len(TEXT))
    expected = {"r": share[0], "o": share[1] + share[2], "i": share[-1]}
    for letter, amount in expected.items():
        assert output["it? Por".index(letter)] == pytest.approx((amount / share.sum()).item())


def test_the_rung_tells_the_losses_that_were_recorded():
    text = TRAINED_PATH.with_name("notebook.py").read_text(encoding="utf-8")
    section = text.partition("## Choose, and let it write")[2].partition("\n# ## ")[0]
    told = [(1.0, "all"), (0.0, "all"), (0.5, "all"), (1.0, "4")]
    losses = [f"{compute(decay, window)['loss']:.2f}" for decay, window in told]
    losses.insert(0, f"{loss_of(forgetting_mean):.2f}")
    assert re.findall(r"([\d.]+)<!--given-->", section) == losses
