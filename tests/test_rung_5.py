"""Rung 5: what its exercises judge, and the facts of the notebook."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from attention_course.exercises import EXERCISES, check
from attention_course.exercises.scaling_variance import predicted_variance, scale_for_variance, scaled_weights

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
