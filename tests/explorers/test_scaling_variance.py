"""The explorer of the scores of random queries and keys, and what softmax makes of them."""

import math

import pytest
import torch
from explorers.words import entropy, small

from attention_course.rungs.scaling_variance import explorer as scaling_variance
from attention_course.rungs.scaling_variance.exercises import predicted_variance


def compute(head_size=64, scale="none", row=0):
    return scaling_variance.compute(head_size, scale, 1.0, 1.0, row)


def says(out, head_size, scale, var_q, var_k, row):
    """The measured variance is the predicted one, and the bars hold what is not outside."""
    factor = {"none": 1.0, "1/√head_size": head_size**-0.5, "1/head_size": 1 / head_size, "1/√n_embd": 1 / 8}
    law = predicted_variance(torch.tensor([var_q]), torch.tensor([var_k]), head_size, factor[scale])[0]
    torch.testing.assert_close(out["predicted"].float(), law)
    torch.testing.assert_close(out["measured"].double(), out["predicted"], rtol=0.08, atol=0)
    width = 2 * scaling_variance.FRAME / scaling_variance.BINS
    torch.testing.assert_close(out["density"].sum() * width + out["outside"], torch.tensor(1.0))
    yield f"Variance of the scores: {small(out['measured'].item())}"
    yield f" measured, {small(out['predicted'].item())}"
    yield f"Entropy of the weights: {entropy(out['weights']):.2f} out of at most ln 6 = {math.log(6):.2f}."
    w = out["weights"].double()
    yield f"Norm of the Jacobian: {small((w.diag() - w.outer(w)).norm().item())}"


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
    for out in (compute(64), compute(64, "1/√head_size")):
        centres = out["curve"][2::4]
        assert (centres - out["density"]).abs().max() < 0.15 * centres.max()


def test_rows_collapse_at_different_head_sizes_and_the_scale_brings_them_back():
    def collapsed(head_size, scale="none"):
        outs = [compute(head_size, scale, row) for row in range(scaling_variance.ROWS)]
        return {bool(out["weights"].max() > 0.95) for out in outs}

    assert collapsed(1) == collapsed(64, "1/√head_size") == {False}
    assert collapsed(64) == {True, False}
    before, after = compute(64), compute(64, "1/√head_size")
    assert before["jacobian"] < 1e-4
    assert after["jacobian"] > 0.3
