"""The mask, the softmax and the leak probe of rung 3."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attention_course.attention import (
    causal_mask,
    leak_probe,
    padding_mask,
    prefix_mask,
    softmax,
    window_mask,
)


def test_causal_mask_lets_a_query_see_itself_and_the_past():
    mask = causal_mask(5)
    assert mask.dtype == torch.bool
    assert all(mask[t, s] == (s <= t) for t in range(5) for s in range(5))


@given(T_q=st.integers(1, 9), T_k=st.integers(1, 9))
def test_causal_mask_aligns_the_last_query_with_the_last_key(T_q, T_k):
    mask = causal_mask(T_q, T_k)
    assert mask.shape == (T_q, T_k)
    assert all(mask[t, s] == (s - (T_k - 1) <= t - (T_q - 1)) for t in range(T_q) for s in range(T_k))


@pytest.mark.parametrize(
    "make",
    [
        lambda: causal_mask(2, device="meta"),
        lambda: window_mask(3, 2, device="meta"),
        lambda: prefix_mask(3, 2, device="meta"),
        lambda: padding_mask(torch.tensor([1, 2], device="meta"), 3),
    ],
)
def test_masks_are_made_where_they_are_wanted(make):
    assert make().device.type == "meta"


@given(seed=st.integers(0, 2**32), dim=st.integers(-3, 2), scale=st.sampled_from([1, 100, 1e4]))
def test_softmax_is_torch_softmax(seed, dim, scale):
    x = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(seed)) * scale
    torch.testing.assert_close(softmax(x, dim), torch.softmax(x, dim))


def test_softmax_of_masked_scores():
    inf = float("inf")
    x = torch.tensor([[0.0, -inf, 0.0], [-inf, -inf, -inf]])
    torch.testing.assert_close(softmax(x, -1), torch.softmax(x, -1), equal_nan=True)
    assert softmax(x, -1)[0, 1] == 0


def test_softmax_gradient():
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: softmax(x, -1), x)


def test_leak_probe_names_row_and_column():
    """Output i of this function uses input i + 1 only; the last output uses none."""

    def next_token(x):
        return torch.cat([x[..., 1:, :], torch.zeros_like(x[..., :1, :])], dim=-2)

    moved = leak_probe(next_token, torch.randn(2, 4, 3))
    assert moved.nonzero().tolist() == [[0, 1], [1, 2], [2, 3]]


def test_leak_probe_outputs_of_another_length():
    moved = leak_probe(lambda x: x[..., :2, :].sum(dim=-1, keepdim=True), torch.randn(5, 3))
    assert moved.shape == (2, 5)
    assert moved.nonzero().tolist() == [[0, 0], [1, 1]]


def test_leak_probe_sees_a_leak_that_adding_a_constant_would_miss():
    """A function of the differences between channels, as LayerNorm is, still shows its leak."""
    moved = leak_probe(lambda x: x.diff(dim=-1).flip(-2), torch.arange(12.0).reshape(3, 4))
    assert torch.equal(moved, torch.eye(3, dtype=torch.bool).flip(0))


def test_leak_probe_one_moving_channel_is_enough():
    moved = leak_probe(
        lambda x: torch.stack([x[..., 0], torch.ones_like(x[..., 0])], dim=-1), torch.randn(3, 4)
    )
    assert torch.equal(moved, torch.eye(3, dtype=torch.bool))


def test_leak_probe_a_nan_that_stays_has_not_moved():
    moved = leak_probe(lambda x: torch.full_like(x, float("nan")), torch.randn(3, 2))
    assert not moved.any()


def test_leak_probe_a_nan_that_comes_or_goes_has_moved():
    x = torch.randn(3, 2)
    for otherwise in (
        lambda new: x.where(new == x, float("nan")),
        lambda new: new.where(new != x, float("nan")),
    ):
        assert torch.equal(leak_probe(otherwise, x), torch.eye(3, dtype=torch.bool))


def test_leak_probe_leaves_x_alone():
    x = torch.randn(3, 2)
    before = x.clone()
    leak_probe(lambda x: x.mul_(2), x)
    assert torch.equal(x, before)


def test_leak_probe_leaves_the_random_numbers_of_others_alone():
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    leak_probe(lambda x: x, torch.zeros(2, 2))
    assert torch.rand(1) == expected


def test_leak_probe_refuses_what_are_no_tokens():
    with pytest.raises(ValueError, match="leak_probe expects"):
        leak_probe(lambda x: x, torch.ones(3))
