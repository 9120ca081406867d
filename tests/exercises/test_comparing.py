"""Two outcomes are the same up to rounding; what differs is found, and whether gradients get through."""

import pytest
import torch

from attention_course.exercises.comparing import (
    close,
    different,
    differentiable,
    same,
    where_all_lie,
)
from attention_course.exercises.running import Outcome

NAN = float("nan")


def outcome(value):
    return Outcome((), error=value) if isinstance(value, Exception) else Outcome((), value)


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (torch.tensor([1.0, NAN]), torch.tensor([1.0, NAN]), True),
        (torch.tensor([1.0, 1e5]), torch.tensor([1.5, 1e5]), True),  # relative to the largest
        (torch.tensor([1.0, 2.0]), torch.tensor([1.001, 2.0]), False),
        (torch.tensor([1.0, 0.0]), torch.tensor([1, 0]), True),
        (torch.tensor([1.0, 0.0]), torch.tensor([True, False]), False),
        (torch.tensor([1.0]), torch.tensor([[1.0]]), False),
        (torch.zeros(0), torch.zeros(0), True),
        (torch.tensor([1.0]), None, False),
        (ValueError("one"), ValueError("other"), True),
        (ValueError("one"), TypeError("one"), False),
        (ValueError("one"), torch.tensor([1.0]), False),
    ],
)
def test_what_is_the_same(one, other, alike):
    assert same(outcome(one), outcome(other), tolerance=1e-5) is alike
    assert same(outcome(other), outcome(one), tolerance=1e-5) is alike


def test_entries_that_differ_are_marked():
    target, yours = torch.tensor([[1.0, 2.0], [3.0, NAN]]), torch.tensor([[1.0, 2.1], [3.0, NAN]])
    assert different(target, yours, 1e-5).tolist() == [[False, True], [False, False]]
    assert close(target, target + 1e-4)
    assert not close(target, yours)
    assert not close(target, target[None])


def test_a_place_that_holds_all_that_is_marked():
    marked = torch.zeros(2, 3, 4, dtype=torch.bool)
    assert where_all_lie(marked) == set()
    marked[:, 2, 1:] = True
    assert where_all_lie(marked) == {(-2, 2), (-2, -1)}
    marked[:, :, 0] = True
    assert where_all_lie(marked) == set()


def test_gradients_are_those_of_the_reference_on_every_path():
    def spread(x, unused):
        return x * x.square().mean() + 0 * unused

    x = torch.tensor([1.0, 2.0]), torch.ones(2)
    holds = differentiable(spread).holds
    assert holds(lambda x, unused: x * (x @ x) / 2, *x)
    assert not holds(lambda x, unused: x * x.detach().square().mean(), *x)
    assert not holds(lambda x, unused: x.detach() * x.square().mean(), *x)
    assert not holds(lambda x, unused: spread(x, unused).detach(), *x)


def test_a_write_in_place_and_the_nan_of_a_masked_row_are_no_detachment():
    def with_nan(x, *mask):
        return x.exp() + 0 * x.sub(1).sqrt()

    x, mask = torch.ones(2), torch.tensor([[False, False], [True, False]])
    holds = differentiable(lambda x, *mask: x.exp()).holds
    assert holds(lambda x: x.exp().add_(0), x)
    assert holds(with_nan, x, mask)
    assert not holds(with_nan, x, mask[1:])
    assert not holds(with_nan, x)
