"""The explorer of rung 5: scores of random queries and keys, and what softmax makes of them."""

import math

import numpy as np
import pytest
import torch
from explorers.words import entropy, small
from hypothesis import given
from hypothesis import strategies as st

from attention_course.explorers import explore
from attention_course.rungs.scaling_variance import explorer as scaling_variance
from attention_course.rungs.scaling_variance.exercises import predicted_variance

head_sizes = st.integers(1, scaling_variance.LARGEST)
scales = st.sampled_from(list(scaling_variance.SCALES))
variances = st.sampled_from([0.25, 1.0, 4.0])
rows = st.integers(0, scaling_variance.ROWS - 1)


def compute(head_size=64, scale="none", var_q=1.0, var_k=1.0, row=0):
    return scaling_variance.compute(head_size, scale, var_q, var_k, row)


def says(out, head_size, scale, var_q, var_k, row):
    factor = {"none": 1, "1/√head_size": head_size**-0.5, "1/head_size": 1 / head_size}.get(scale)
    if factor:
        assert out["predicted"].item() == pytest.approx(head_size * var_q * var_k * factor**2)
    yield f"Variance of the scores: {small(out['measured'].item())}"
    yield f" measured, {small(out['predicted'].item())}"
    yield f"Entropy of the weights: {entropy(out['weights']):.2f} out of at most ln 6 = {math.log(6):.2f}."
    w = out["weights"].double().numpy()
    yield f"Norm of the Jacobian: {small(np.linalg.norm(np.diag(w) - np.outer(w, w)))}"


@given(head_sizes, scales, variances, variances, rows)
def test_measured_variance_is_the_predicted_one(head_size, scale, var_q, var_k, row):
    out = compute(head_size, scale, var_q, var_k, row)
    torch.testing.assert_close(out["measured"].double(), out["predicted"], rtol=0.08, atol=0)
    factor = scaling_variance.SCALES[scale](head_size)
    assert all(value.isfinite().all() for value in out.values())
    width = 2 * scaling_variance.FRAME / scaling_variance.BINS
    torch.testing.assert_close(out["density"].sum() * width + out["outside"], torch.tensor(1.0))
    law = predicted_variance(torch.tensor([var_q]), torch.tensor([var_k]), head_size, factor)
    torch.testing.assert_close(out["predicted"].float(), law[0])


def test_the_scores_are_those_of_q_and_k():
    generator = torch.Generator().manual_seed(0)
    size = (scaling_variance.LARGEST, scaling_variance.PAIRS)
    q, k = (torch.randn(size, generator=generator) for _ in range(2))
    one_query = torch.randn(scaling_variance.ROWS, size[0], 1, generator=generator)
    keys = torch.randn(scaling_variance.ROWS, size[0], scaling_variance.T, generator=generator)
    pairs, rows = scaling_variance.unit_scores()
    for head_size in (1, 7, 64):
        expected = (q[:head_size] * k[:head_size]).sum(dim=0)
        torch.testing.assert_close(pairs[head_size - 1], expected, rtol=1e-3, atol=1e-3)
        expected = (one_query * keys)[:, :head_size].sum(dim=1).double()
        torch.testing.assert_close(rows[:, head_size - 1], expected, rtol=1e-3, atol=1e-3)


def test_the_curve_is_a_density_that_fits_the_bars():
    for variance in (1e-4, 0.3, 1.0, 16.0, 64.0):
        curve = scaling_variance.normal_density(torch.tensor(variance), 4 * scaling_variance.BINS + 1)
        step = 2 * scaling_variance.FRAME / (len(curve) - 1)
        assert curve.sum().item() * step == pytest.approx(1, abs=1e-3)
    out = compute(64)
    centres = out["curve"][2::4]
    assert len(centres) == len(out["density"])
    assert (centres - out["density"]).abs().max() < 0.15 * centres.max()


def test_one_click_brings_the_row_back():
    before, after = compute(64, "none"), compute(64, "1/√head_size")
    assert before["weights"].max() > 0.999
    assert before["jacobian"] < 1e-4
    assert after["weights"].max() < 0.8
    assert after["jacobian"] > 0.3
    explorer = explore("scaling_variance")
    explorer.controls["head_size"].value = 64
    assert "0.00 out of at most ln 6" in explorer.figure.caption
    explorer.controls["scale"].value = "1/√head_size"
    assert "0.00" not in explorer.figure.caption


def test_rows_collapse_at_different_head_sizes():
    def collapsed(head_size, scale="none"):
        rows = range(scaling_variance.ROWS)
        return [compute(head_size, scale, row=row)["weights"].max() > 0.95 for row in rows]

    assert not any(collapsed(1))
    assert any(collapsed(64))
    assert not all(collapsed(64))
    assert not any(collapsed(64, "1/√head_size"))


def test_n_embd_is_right_at_one_head_size_only():
    assert compute(64, "1/√n_embd")["predicted"] == 1
    assert compute(16, "1/√n_embd")["predicted"] == 1 / 4


def test_head_sizes_are_integers_with_every_power_of_two():
    options = explore("scaling_variance").controls["head_size"].options
    assert list(options) == sorted(set(options))
    assert {2**power for power in range(7)} <= set(options)
    assert set(range(1, 9)) <= set(options)
    assert (options[0], options[-1]) == (1, 64)
    assert all(isinstance(option, int) for option in options)


def test_what_lies_outside_of_the_frame_is_said():
    explorer = explore("scaling_variance")
    explorer.controls["head_size"].value = 64
    explorer.controls["var_q"].value = 4
    assert explorer.figure.panels[0].x_label == "score (5 % lie outside this frame)"
    explorer.controls["scale"].value = "1/√head_size"
    assert explorer.figure.panels[0].x_label == "score"
