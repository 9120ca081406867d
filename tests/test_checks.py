"""The checks let pass what is right and say what is wrong; their words are tested where they are used."""

import numpy as np
import pytest
import torch
from torch import nn

from attention_course.checks import check_channels, check_probe, check_range, check_sizes


@pytest.mark.parametrize("size", [2, np.int64(2), torch.tensor(2), np.array(2), torch.tensor(2).int()])
def test_sizes_are_integers_of_any_kind(size):
    check_sizes("f", 2, T=size, B=3)
    with pytest.raises(ValueError, match=r"^f: B = .*, expected an integer of at least 3\.$"):
        check_sizes("f", 3, T=3, B=size)


@pytest.mark.parametrize("size", [np.uint8(200), np.int16(200), torch.tensor(200).byte()])
def test_sizes_in_which_sums_overflow_are_none(size):
    """4 times 200 would be 32 in a byte."""
    with pytest.raises(TypeError, match=r"^f: T = .*200.*, expected an int: .* Convert it: int\(T\)\.$"):
        check_sizes("f", 1, T=size)


def test_the_ends_of_a_range():
    check_range(torch.tensor([0, 4]), 5, "f", "x")
    check_range(torch.tensor([]), 5, "f", "x")
    for wrong in (-1, 5):
        with pytest.raises(ValueError, match=f"^f: x holds {wrong}, expected integers from 0 to 4"):
            check_range(torch.tensor([0, wrong, 4]), 5, "f", "x")
    check_range(torch.tensor([7], device="meta"), 5, "f", "x")
    torch.func.vmap(lambda x: check_range(x, 5, "f", "x") or x)(torch.tensor([7]))


def test_layers_without_a_dtype_take_any():
    """A quantized layer has a method in place of a weight."""
    layer = nn.Linear(3, 2)
    del layer.weight
    layer.weight = lambda: None
    check_channels("f", x=(torch.zeros(2, 3).double(), layer))


def test_what_inference_mode_made_has_no_gradient():
    layer = nn.Linear(3, 2)
    with torch.inference_mode():
        x = torch.zeros(2, 3)
        check_channels("f", x=(x, layer))
    with pytest.raises(ValueError, match=r"f: x was made in torch.inference_mode.*x\.clone\(\)"):
        check_channels("f", x=(x, layer))
    with torch.no_grad():
        check_channels("f", x=(x, layer))
    check_channels("f", x=(x, layer.requires_grad_(False)))
    layer(x)


def test_a_probe_may_hold_masked_scores():
    check_probe(lambda x: torch.tensor([[0.0, float("-inf")]]), torch.ones(1, 2), "f")
