"""Rung 5: the law of the variance, what the explorer computes from it, and the facts of the notebook."""

import math
import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from attention_course.exercises import EXERCISES, check
from attention_course.exercises.scaling_variance import predicted_variance, scale_for_variance, scaled_weights
from attention_course.explorers import explore, scaling_variance

head_sizes = st.integers(1, scaling_variance.LARGEST)
scales = st.sampled_from(list(scaling_variance.SCALES))
variances = st.sampled_from([0.25, 1.0, 4.0])
numbers_of_keys = st.integers(2, scaling_variance.MOST_KEYS)


def compute(head_size=64, scale="none", var_q=1.0, var_k=1.0, T=6):
    return scaling_variance.compute(head_size, scale, var_q, var_k, T)


# The explorer


@given(head_sizes, scales, variances, variances, numbers_of_keys)
def test_measured_variance_is_the_predicted_one(head_size, scale, var_q, var_k, T):
    out = compute(head_size, scale, var_q, var_k, T)
    torch.testing.assert_close(out["measured"].double(), out["predicted"], rtol=0.08, atol=0)
    factor = scaling_variance.SCALES[scale](head_size)
    law = predicted_variance(torch.tensor([var_q]), torch.tensor([var_k]), head_size, factor)
    torch.testing.assert_close(out["predicted"].float(), law[0])


@given(head_sizes, scales, variances, variances, numbers_of_keys)
def test_nothing_is_lost_and_nothing_is_nan(head_size, scale, var_q, var_k, T):
    out = compute(head_size, scale, var_q, var_k, T)
    width = 2 * scaling_variance.FRAME / scaling_variance.BINS
    torch.testing.assert_close(out["density"].sum() * width + out["outside"], torch.tensor(1.0))
    assert out["weights"].sum().item() == pytest.approx(1)
    assert all(value.isfinite().all() for value in out.values())


def test_the_scores_are_those_of_q_and_k():
    generator = torch.Generator().manual_seed(0)
    size = (scaling_variance.LARGEST, scaling_variance.PAIRS)
    q, k = (torch.randn(size, generator=generator) for _ in range(2))
    pairs, _ = scaling_variance.unit_scores()
    for head_size in (1, 7, 64, 1024):
        expected = (q[:head_size] * k[:head_size]).sum(dim=0)
        torch.testing.assert_close(pairs[head_size - 1], expected, rtol=1e-3, atol=1e-3)


def test_the_predicted_curve_is_a_density_that_fits_the_bars():
    for variance in (1e-4, 0.3, 1.0, 16.0, 64.0):
        curve = scaling_variance.predicted_density(torch.tensor(variance), 4 * scaling_variance.BINS + 1)
        step = 2 * scaling_variance.FRAME / (len(curve) - 1)
        assert curve.sum().item() * step == pytest.approx(1, abs=1e-3)
    out = compute(64)
    centres = out["curve"][2::4]
    assert len(centres) == len(out["density"])
    assert (centres - out["density"]).abs().max() < 0.15 * centres.max()


def test_a_peak_narrower_than_a_bin_is_no_higher_than_its_bar():
    out = compute(1024, "1/head_size")
    torch.testing.assert_close(out["density"].max().double(), out["curve"].max(), rtol=1e-3, atol=0)


def test_one_click_brings_the_row_back():
    before, after = compute(1024, "none"), compute(1024, "1/√head_size")
    assert before["weights"].max() > 0.999
    assert before["jacobian"] < 1e-6
    assert after["weights"].max() < 0.8
    assert after["jacobian"] > 0.3
    explorer = explore("scaling_variance")
    explorer.controls["head_size"].value = 1024
    assert "0.00 of at most ln 6" in explorer.figure.caption
    explorer.controls["scale"].value = "1/√head_size"
    assert "0.00" not in explorer.figure.caption


def test_the_row_loses_its_entropy_steadily():
    rows = [compute(head_size)["weights"] for head_size in scaling_variance.HEAD_SIZES]
    entropy = torch.stack([torch.special.entr(row).sum() for row in rows])
    assert entropy[0] > 1.5
    assert entropy[-1] < 0.01
    assert entropy.diff().clamp(min=0).sum() < 1


def test_without_a_scale_one_key_has_nearly_everything_from_head_size_16_on():
    for head_size in scaling_variance.HEAD_SIZES:
        assert (compute(head_size)["weights"].max() > 0.95) == (head_size >= 16)
        assert compute(head_size, "1/√head_size")["weights"].max() < 0.8


def test_n_embd_is_right_at_one_head_size_only():
    assert compute(1024, "1/√n_embd")["predicted"] == 1
    assert compute(64, "1/√n_embd")["predicted"] == 1 / 16


def test_the_jacobian_is_that_of_softmax():
    out = compute(8)
    by_torch = torch.autograd.functional.jacobian(
        lambda scores: torch.softmax(scores, dim=-1), out["weights"].log()
    )
    torch.testing.assert_close(out["jacobian"], by_torch.norm())


def test_head_sizes_are_integers_with_every_power_of_two():
    options = explore("scaling_variance").controls["head_size"].options
    assert list(options) == sorted(set(options))
    assert {2**power for power in range(11)} <= set(options)
    assert set(range(1, 9)) <= set(options)
    assert (options[0], options[-1]) == (1, 1024)
    assert all(isinstance(option, int) for option in options)


@pytest.mark.parametrize(
    ("value", "text"),
    [(1024.0, "1024"), (0.987, "0.99"), (2.0, "2"), (0.0009765, "9.8 · 10⁻⁴"), (0.0, "less than 10⁻³⁰")],
)
def test_a_readout_is_never_a_row_of_zeros(value, text):
    assert scaling_variance.readout(value) == text


def test_a_move_of_a_slider_is_instant():
    explorer = explore("scaling_variance")
    times = []
    for head_size in scaling_variance.HEAD_SIZES:
        start = time.perf_counter()
        explorer.controls["head_size"].value = head_size
        explorer.figure.get_state()
        times.append(time.perf_counter() - start)
    assert sorted(times)[len(times) // 2] < 0.02  # 2 ms here; a busy machine takes longer


def test_what_lies_outside_of_the_frame_is_said():
    explorer = explore("scaling_variance")
    explorer.controls["head_size"].value = 1024
    assert explorer.figure.panels[0].x_label == "score (32 % lie outside this frame)"
    explorer.controls["scale"].value = "1/√head_size"
    assert explorer.figure.panels[0].x_label == "score"


# The exercises


def test_the_mistakes_of_the_syllabus_are_named():
    named = {mistake.name for mistake in EXERCISES["scaled_weights"].mistakes}
    assert named >= {
        *("scaled_by_n_embd", "divided_by_head_size", "scaled_by_sqrt_T", "multiplied"),
        "scaled_after_softmax",
    }


def test_weights_are_those_of_pytorch():
    x, w_query, w_key = torch.randn(2, 5, 8), torch.randn(8, 3), torch.randn(8, 3)
    identity = torch.eye(5).expand(2, 5, 5)
    expected = F.scaled_dot_product_attention(x @ w_query, x @ w_key, identity)
    torch.testing.assert_close(scaled_weights(x, w_query, w_key), expected)


@given(st.floats(0.1, 9), st.floats(0.1, 9), st.integers(1, 512), st.floats(0.1, 9))
def test_scale_and_variance_are_inverse(var_q, var_k, head_size, variance):
    var_q, var_k = torch.tensor([var_q]), torch.tensor([var_k])
    scale = scale_for_variance(var_q, var_k, head_size, variance)
    found = predicted_variance(var_q, var_k, head_size, scale.item())
    torch.testing.assert_close(found, torch.tensor([variance]))


def test_the_example_in_the_task_is_right():
    assert scale_for_variance(torch.tensor([4.0]), torch.tensor([1.0]), 16, 1.0) == 1 / 8


def sums(x, w_query, w_key):
    q, k = x @ w_query, x @ w_key
    return torch.einsum("...td,...sd->...ts", q, k)


@pytest.mark.parametrize(
    ("name", "answer", "mistake"),
    [
        (
            "scaled_weights",
            lambda x, a, b: (sums(x, a, b) / x.size(-1) ** 0.5).softmax(-1),
            "scaled_by_n_embd",
        ),
        (
            "scaled_weights",
            lambda x, a, b: (sums(x, a, b) / a.shape[0] ** 0.5).softmax(-1),
            "scaled_by_n_embd",
        ),
        ("scaled_weights", lambda x, a, b: (sums(x, a, b) / a.shape[1]).softmax(-1), "divided_by_head_size"),
        ("scaled_weights", lambda x, a, b: (sums(x, a, b) * a.shape[1] ** 0.5).softmax(-1), "multiplied"),
        (
            "scaled_weights",
            lambda x, a, b: sums(x, a, b).softmax(-1) * a.shape[1] ** -0.5,
            "scaled_after_softmax",
        ),
        (
            "scaled_weights",
            lambda x, a, b: (sums(x, a, b) * x.shape[-2] ** -0.5).softmax(-1),
            "scaled_by_sqrt_T",
        ),
        ("predicted_variance", lambda a, b, n, s: math.sqrt(n) * a * b * s * s, "root_of_head_size"),
        ("predicted_variance", lambda a, b, n, s: n * a * b, "scale_ignored"),
        ("scale_for_variance", lambda a, b, n, v: 1 / (n * a * b).sqrt(), "wanted_variance_ignored"),
        ("scale_for_variance", lambda a, b, n, v: (n * a * b / v).sqrt(), "upside_down"),
    ],
)
def test_a_slip_gets_its_name(name, answer, mistake):
    for seed in range(3):
        assert check(name, answer, seed).mistake == mistake


def test_other_ways_to_the_right_answer_pass():
    def scales_q(x, a, b):
        return (x @ a * a.shape[1] ** -0.5 @ (x @ b).mT).softmax(dim=-1)

    def splits_the_scale(x, a, b):
        fourth_root = a.shape[-1] ** 0.25
        return ((x @ a / fourth_root) @ (x @ b / fourth_root).mT).softmax(dim=-1)

    for seed in range(5):
        assert check("scaled_weights", scales_q, seed).passed
        assert check("scaled_weights", splits_the_scale, seed).passed


# Facts of the notebook


def test_the_variances_of_source_002():
    torch.manual_seed(3)
    torch.randn(4, 8, 32)
    for _ in range(3):
        nn.Linear(32, 16, bias=False)
    k, q = torch.randn(4, 8, 16), torch.randn(4, 8, 16)
    scores = q @ k.transpose(-2, -1)
    found = torch.stack([k.var(), q.var(), scores.var(), (scores * 16**-0.5).var()])
    printed = torch.tensor([0.9535, 1.0524, 15.1501, 0.9469])
    torch.testing.assert_close(found, printed, atol=1e-4, rtol=0)


def test_the_loss_of_random_logits_is_half_a_variance_above_uniform():
    torch.manual_seed(1)
    for variance in (0.0, 0.25, 1.0):
        logits = torch.randn(50_000, 87) * variance**0.5
        loss = F.cross_entropy(logits, torch.randint(87, (50_000,)))
        assert loss.item() == pytest.approx(math.log(87) + variance / 2, abs=0.03)
