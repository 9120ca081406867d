"""Comparison of values, and a check that gradients flow: for the judge and for properties."""

from collections.abc import Callable
from typing import TypeGuard

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from attention_course.exercises.exercise import Property
from attention_course.exercises.running import Outcome


def is_plain(value: object) -> TypeGuard[Tensor]:
    """Return whether `value` is a dense tensor on the CPU."""
    return isinstance(value, Tensor) and value.layout == torch.strided and value.device.type == "cpu"


def different(target: Tensor, yours: Tensor, tolerance: float) -> Tensor:
    """Mark the entries of `yours` that differ from `target`: boolean, same shape; NaN equals NaN."""
    wide = torch.promote_types(yours.dtype, torch.float64)
    target, yours = target.to(wide), yours.to(wide)
    scale = target.nan_to_num(0, 0, 0).abs().max().clamp(min=1.0).item() if target.numel() else 1.0
    return ~torch.isclose(yours, target, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


def close(target: Tensor, yours: Tensor) -> bool:
    """Return whether two tensors have equal shapes, and equal values up to rounding: for properties."""
    return target.shape == yours.shape and not different(target, yours, tolerance=1e-3).any()


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


def reached(output: Tensor, tensors: list[Tensor]) -> bool:
    """Return whether the autograd graph of `output` reaches each of `tensors`.

    No gradient is computed: backward could fail for an answer that writes in place into a copy.
    """
    nodes, stack = set(), [output.grad_fn]
    while stack:
        node = stack.pop()
        if node is not None and node not in nodes:
            nodes.add(node)
            stack += [parent for parent, _ in node.next_functions]
    return all(get_gradient_edge(tensor).node in nodes for tensor in tensors)


def not_detached(holds: Callable[..., bool]) -> Property:
    """Claim that gradients flow. `holds(answer, *arguments)` returns whether they do for one input."""
    return Property(
        "Gradients reach every input: nothing was detached on the way.",
        holds,
        "detached",
        "The values are right, but gradients do not get back from them to every input. A gradient says how "
        "much one number changes with each entry, and training changes parameters by their gradients. "
        "Without one they never change. Compute with the tensors as they are: `.detach()`, `.data`, "
        "`.item()`, `torch.no_grad()`, NumPy, and a copy in an `nn.Module` all cut the path.",
    )


def differentiable(reference: Callable) -> Property:
    """Claim that gradients reach each float tensor for which the reference's gradient is not zero."""

    def holds(answer, *arguments):
        given = [
            a.clone().requires_grad_() if isinstance(a, Tensor) and a.is_floating_point() else a
            for a in arguments
        ]
        floats = [a for a in given if isinstance(a, Tensor) and a.requires_grad]
        gradients = torch.autograd.grad(reference(*given).square().sum(), floats)
        needed = [tensor for tensor, gradient in zip(floats, gradients, strict=True) if gradient.any()]
        return reached(answer(*given), needed)

    return not_detached(holds)
