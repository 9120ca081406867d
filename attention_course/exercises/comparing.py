"""Comparison of values, and a check that gradients flow: for the judge and for properties."""

from collections.abc import Callable
from typing import Any, TypeGuard

import torch
from torch import Tensor

from attention_course.exercises.exercise import Property
from attention_course.exercises.running import Outcome


def is_plain(value: object) -> TypeGuard[Tensor]:
    """Return whether `value` is a dense tensor on the CPU, neither nested nor quantized."""
    if not isinstance(value, Tensor) or value.is_nested or value.is_quantized:
        return False
    return value.layout == torch.strided and value.device.type == "cpu"


def unchanged(before: Any, after: Any) -> bool:
    """Return whether a copy of a tensor, of a container or of an object with attributes is as it was made."""
    if before is after or type(before) is not type(after):
        return before is after
    if isinstance(before, Tensor):
        return torch.equal(before, after)
    if isinstance(before, dict):
        return before.keys() == after.keys() and all(unchanged(before[key], after[key]) for key in before)
    if isinstance(before, list | tuple):
        return len(before) == len(after) and all(map(unchanged, before, after))
    return unchanged(vars(before), vars(after)) if hasattr(before, "__dict__") else before == after


def different(target: Tensor, yours: Tensor, tolerance: float) -> Tensor:
    """Mark the entries of `yours` that differ from `target`: boolean, same shape; NaN equals NaN."""
    wide = torch.complex128 if yours.dtype.is_complex else torch.float64
    target, yours = target.to(wide), yours.to(wide)
    scale = target.nan_to_num(0, 0, 0).abs().max().clamp(min=1.0).item() if target.numel() else 1.0
    return ~torch.isclose(yours, target, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


def close(target: Tensor, yours: Tensor, tolerance: float = 1e-3) -> bool:
    """Return whether two tensors have equal shapes, and equal values up to rounding: for properties."""
    return target.shape == yours.shape and not different(target, yours, tolerance).any()


def same(one: Outcome, other: Outcome, tolerance: float) -> bool:
    """Return whether two calls raised the same type of error, or returned equal tensors.

    A boolean tensor equals only a boolean one; other dtypes are not compared.
    """
    if one.error or other.error:
        return type(one.error) is type(other.error)
    if not comparable(one, other) or len({o.value.dtype == torch.bool for o in (one, other)}) > 1:
        return False
    return not different(one.value, other.value, tolerance).any()


def comparable(one: Outcome, other: Outcome) -> bool:
    """Return whether two calls returned tensors of the same shape."""
    return is_plain(one.value) and is_plain(other.value) and one.value.shape == other.value.shape


def where_all_lie(marked: Tensor) -> set[tuple[int, int]]:
    """Return the slices that contain all marked entries: (dimension, index).

    Dimensions are negative; each index is given both from the front and from the end.
    """
    found = set()
    for dim, size in enumerate(marked.shape):
        indices = marked.movedim(dim, 0).reshape(size, -1).any(dim=1).nonzero().flatten().tolist()
        if len(indices) == 1:
            found |= {(dim - marked.dim(), indices[0]), (dim - marked.dim(), indices[0] - size)}
    return found


def gradients(function: Callable, arguments: tuple) -> list[Tensor]:
    """Return the gradient of one number made of the output, for each float tensor among the arguments.

    The number is the sum of the output, with random factors that are the same each time.
    """
    given = tuple(
        a.clone().requires_grad_() if isinstance(a, Tensor) and a.is_floating_point() else a
        for a in arguments
    )
    floats = [a for a in given if isinstance(a, Tensor) and a.requires_grad]
    output = function(*given)
    weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(0)).to(output)
    return list(torch.autograd.grad(output, floats, weights, materialize_grads=True, allow_unused=True))


def differentiable(reference: Callable) -> Property:
    """Claim that an answer's gradients are those of the reference.

    Two things are no fault: NaN where a mask hides a whole row, and the error after a write in place into
    what the backward pass needs.
    """

    def masks_a_row(argument):
        return isinstance(argument, Tensor) and argument.dtype == torch.bool and not argument.any(-1).all()

    def holds(answer, *arguments):
        hidden = any(map(masks_a_row, arguments))
        targets = gradients(reference, arguments)
        try:
            found = gradients(answer, arguments)
        except RuntimeError as error:
            return "modified by an inplace operation" in str(error)
        rounding = 1e-5 + 1e-4 * max(target.norm() for target in targets)
        return all(
            (hidden and yours.isnan().any()) or (target - yours).norm() <= rounding + 1e-2 * target.norm()
            for target, yours in zip(targets, found, strict=True)
        )

    return Property(
        "Gradients reach every input on every path: nothing was detached or became NaN on the way.",
        holds,
        "detached",
    )
