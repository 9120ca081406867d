"""Rung 5's exercises: what their inputs hold, what their references equal, and what their texts say."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from attention_course.exercises import EXERCISES, judging
from attention_course.rungs.scaling_variance.exercises import (
    measured_variance,
    predicted_variance,
    scale_for_variance,
    scaled_weights,
)

pytestmark = pytest.mark.slow

sizes = st.floats(0.1, 9)


def inputs(name):
    return judging.trial(EXERCISES[name], 0).inputs


def test_the_mistakes_of_the_syllabus_are_named():
    assert {name for mistake in EXERCISES["scaled_weights"].mistakes for name in mistake.names} >= {
        *("scaled_by_n_embd", "scaled_by_head_size", "scaled_by_T", "scale_multiplied"),
        "scaled_after_softmax",
    }


def test_tokens_come_with_and_without_a_batch_in_sizes_that_differ():
    shapes = [(*x.shape, w_query.shape[1]) for x, w_query, _ in inputs("scaled_weights")]
    assert {len(shape) for shape in shapes} == {3, 4}
    assert any(len(set(shape)) == len(shape) for shape in shapes)
    assert shapes[0][0] == 1


def test_a_wanted_variance_may_need_a_scale_above_1():
    scales = [scale_for_variance(*arguments) for arguments in inputs("scale_for_variance")]
    assert any((scale > 1).all() for scale in scales)
    assert {len(scale) for scale in scales} == {1, 2, 3}


def test_weights_are_those_of_pytorch():
    x, w_query, w_key = torch.randn(2, 5, 8), torch.randn(8, 3), torch.randn(8, 3)
    identity = torch.eye(5).expand(2, 5, 5)
    expected = F.scaled_dot_product_attention(x @ w_query, x @ w_key, identity)
    torch.testing.assert_close(scaled_weights(x, w_query, w_key), expected)


@given(sizes, sizes, st.integers(1, 512), sizes)
def test_scale_and_variance_are_inverse(var_q, var_k, head_size, variance):
    var_q, var_k = torch.tensor([var_q]), torch.tensor([var_k])
    scale = scale_for_variance(var_q, var_k, head_size, variance)
    found = predicted_variance(var_q, var_k, head_size, scale.item())
    torch.testing.assert_close(found, torch.tensor([variance]))


@pytest.mark.parametrize("head_size", [1, 16, 100])
def test_what_is_measured_is_what_is_predicted(head_size):
    var_q, var_k = torch.tensor([1.0, 4.0]), torch.tensor([0.5, 2.0])
    predicted = predicted_variance(var_q, var_k, head_size, 0.3)
    measured = measured_variance(var_q, var_k, head_size, 0.3)
    torch.testing.assert_close(measured, predicted, rtol=0.15, atol=0)


def test_the_example_in_the_task_is_right():
    assert "need a scale of 1/8" in EXERCISES["scale_for_variance"].task
    assert scale_for_variance(torch.tensor([4.0]), torch.tensor([1.0]), 16, 1.0) == 1 / 8


def test_what_the_insights_say_is_true():
    var_q, var_k = torch.tensor([0.5, 4.0]), torch.tensor([2.0, 3.0])
    assert "what is left is var(q) · var(k)" in EXERCISES["predicted_variance"].insight
    torch.testing.assert_close(predicted_variance(var_q, var_k, 64, 64**-0.5), var_q * var_k)
    assert "the scale is half of 1/√head_size" in EXERCISES["scale_for_variance"].insight
    four, one = torch.tensor([4.0]), torch.ones(1)
    assert scale_for_variance(four, one, 64, 1.0) == 64**-0.5 / 2
    assert "Dividing q alone by √head_size gives the same scores" in EXERCISES["scaled_weights"].insight
    x, w_query, w_key = torch.randn(5, 8), torch.randn(8, 4), torch.randn(8, 4)
    scores = (x @ w_query / 4**0.5) @ (x @ w_key).T
    torch.testing.assert_close(scaled_weights(x, w_query, w_key), scores.softmax(dim=-1))
