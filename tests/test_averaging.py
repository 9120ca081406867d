"""The three means agree, keep what they were given, and refuse bad input in words."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attention_course.attention import leak_probe
from attention_course.averaging import causal_mean_loop, causal_mean_matmul, causal_mean_softmax
from attention_course.stories import write_stories

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
@given(shape=st.tuples(st.integers(1, 4), st.integers(1, 33), st.integers(1, 6)), seed=st.integers(0, 2**32))
def test_equals_its_definition(mean, shape, seed):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    torch.testing.assert_close(mean(x), definition(x), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(mean(x[0]), definition(x[0]), rtol=1e-12, atol=1e-12)


@each_mean
def test_a_small_table_by_hand(mean):
    x = torch.tensor([[2.0, 8.0], [4.0, 4.0], [6.0, 0.0], [0.0, 4.0]])
    expected = torch.tensor([[2.0, 8.0], [3.0, 6.0], [4.0, 4.0], [3.0, 4.0]])
    torch.testing.assert_close(mean(x), expected)


@each_mean
def test_sources_printed_means(mean):
    # Source notes, seed 1, T = 8, C = 2: first, third and last printed row of weights @ x.
    torch.manual_seed(1)
    out = mean(torch.randn(8, 2))[[0, 2, 7]]
    expected = torch.tensor([[-1.5256, -0.7502], [-0.7599, -0.9896], [-0.5929, -0.2964]])
    torch.testing.assert_close(out, expected, atol=6e-5, rtol=0)


@each_mean
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float16, 1e-2), (torch.bfloat16, 5e-2), (torch.float32, 1e-6), (torch.float64, 1e-14)],
)
def test_keeps_dtype_and_device(mean, dtype, tolerance):
    x = torch.randn(3, 17, 5).to(dtype)
    out = mean(x)
    assert out.dtype == dtype
    assert out.device == x.device
    torch.testing.assert_close(out.double(), definition(x), rtol=tolerance, atol=tolerance)


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
def test_other_device(mean):
    assert mean(torch.zeros(2, 3, 4, device="meta")).device.type == "meta"


@each_mean
def test_strided_input(mean):
    x = torch.randn(5, 7, 3).transpose(0, 2)
    assert not x.is_contiguous()
    torch.testing.assert_close(mean(x), mean(x.contiguous()))


@each_mean
def test_input_is_not_changed(mean):
    x = torch.randn(2, 5, 3)
    before = x.clone()
    mean(x)
    assert torch.equal(x, before)


@each_mean
def test_gradients(mean):
    x = torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(mean, x)


@each_mean
def test_is_causal_and_uses_all_the_past(mean):
    past = torch.ones(6, 6, dtype=torch.bool).tril()
    assert torch.equal(leak_probe(mean, torch.randn(3, 6, 2)), past)


@each_mean
def test_empty_batch(mean):
    assert mean(torch.zeros(0, 3, 2)).shape == (0, 3, 2)


@each_mean
@pytest.mark.parametrize(
    ("x", "error", "words"),
    [
        ([[1.0, 2.0]], TypeError, "got a list.*torch.tensor"),
        (torch.ones(3, 2, dtype=torch.int64), TypeError, r"dtype is torch.int64.*x.float\(\)"),
        (torch.ones(3, 2, dtype=torch.bool), TypeError, "dtype is torch.bool"),
        (torch.ones(3, 2, dtype=torch.complex64), TypeError, "dtype is torch.complex64"),
        (torch.ones(3), ValueError, r"shape is \(3,\).*x\[:, None\]"),
        (torch.ones(2, 2, 2, 2), ValueError, r"shape is \(2, 2, 2, 2\).*flatten"),
        (torch.ones(2, 0, 3), ValueError, r"T = 0.*at least one token"),
    ],
)
@pytest.mark.usefixtures("shapes_unchecked")
def test_bad_input_is_refused_in_words(mean, x, error, words):
    with pytest.raises(error, match=rf"{mean.__name__} expects a float tensor of shape .*{words}"):
        mean(x)


def test_agree_on_embeddings_of_a_text():
    text = write_stories(seed=5, characters=60_000)
    alphabet = {character: i for i, character in enumerate(sorted(set(text)))}
    torch.manual_seed(0)
    embedding = torch.nn.Embedding(len(alphabet), 32)
    for start in range(0, len(text) - 8 * 256, len(text) // 20):
        ids = torch.tensor([alphabet[c] for c in text[start : start + 8 * 256]]).view(8, 256)
        x = embedding(ids).detach()
        expected = definition(x).float()
        for mean in MEANS:
            torch.testing.assert_close(mean(x), expected)
