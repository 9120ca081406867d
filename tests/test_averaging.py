"""The three means agree with their definition, and keep what they were given."""

import pytest
import torch
from counted import loss_of
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_course.attention import leak_probe
from attention_course.averaging import causal_mean_loop, causal_mean_matmul, causal_mean_softmax
from attention_course.rungs.bag_of_words.exercises import windowed_mean

MEANS = [causal_mean_loop, causal_mean_matmul, causal_mean_softmax]

each_mean = pytest.mark.parametrize("mean", MEANS)


def definition(x):
    """Write the mean of the past as its definition, in float64, without slices or matrices."""
    total, rows = torch.zeros_like(x[..., 0, :], dtype=torch.float64), []
    for t in range(x.shape[-2]):
        total = total + x[..., t, :].double()
        rows.append(total / (t + 1))
    return torch.stack(rows, dim=-2)


@each_mean
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float16, 1e-2), (torch.bfloat16, 5e-2), (torch.float32, 1e-5), (torch.float64, 1e-12)],
)
@given(shape=st.tuples(st.integers(0, 4), st.integers(1, 33), st.integers(1, 6)), seed=st.integers(0, 2**32))
@settings(max_examples=25)
def test_equals_its_definition(mean, dtype, tolerance, shape, seed):
    x = torch.randn(shape[::-1], generator=torch.Generator().manual_seed(seed)).to(dtype)
    x, before = x.transpose(0, 2), x.transpose(0, 2).clone()  # not contiguous
    for tokens, found in ((x, mean(x)), *((each, mean(each)) for each in x[:1])):
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), definition(tokens), rtol=tolerance, atol=tolerance)
    assert torch.equal(x, before)


@each_mean
@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_inf_and_nan_spoil_the_means_before_them_unless_it_is_the_loop(mean, bad):
    """As the docstrings say: 0 · inf is NaN."""
    x = torch.ones(4, 2)
    x[2, 0] = bad
    spoilt = ~mean(x).isfinite()
    assert spoilt[:, 0].tolist() == ([False, False, True, True] if mean is causal_mean_loop else [True] * 4)
    assert not spoilt[:, 1].any()


@each_mean
def test_is_causal_differentiable_and_computed_where_the_tokens_are(mean):
    past = torch.ones(6, 6, dtype=torch.bool).tril()
    assert torch.equal(leak_probe(mean, torch.randn(3, 6, 2)), past)
    assert torch.autograd.gradcheck(mean, torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True))
    assert mean(torch.zeros(2, 3, 4, device="meta")).device.type == "meta"


def test_on_the_stories_two_letters_are_worse_than_one_and_the_whole_past_is_worst():
    losses = [loss_of(lambda rows, k=k: windowed_mean(rows, k)) for k in (1, 2, 3, 128)]
    assert losses[0] == pytest.approx(1.46, abs=0.01)
    assert losses == sorted(losses)
