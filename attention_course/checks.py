"""Input validation for the functions of the package.

A check is the first line of a function and returns nothing: without it, the function does the same on valid
input. So the notebooks show their functions without checks. An argument of the wrong type raises TypeError,
one of the wrong shape or size ValueError; docstrings name only what one might not expect.
"""

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from numbers import Real
from os import PathLike
from types import NoneType
from typing import SupportsIndex, TypeGuard

import torch
from torch import Tensor, nn

from attention_course.names import shown

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
LAZY = (nn.UninitializedParameter, nn.UninitializedBuffer)  # of a LazyLinear that has seen no input


def is_tensor(x: object) -> TypeGuard[Tensor]:
    """Return whether `x` is a tensor that has a shape."""
    return isinstance(x, Tensor) and not isinstance(x, LAZY)


def describe(x: object) -> str:
    """Describe an argument for a message: dtype and shape of a tensor, the type of anything else."""
    if not is_tensor(x):
        return type(x).__name__
    if x.is_nested:
        return f"{x.dtype}, nested"
    sparse = "" if x.layout == torch.strided else f", {x.layout}"
    return f"{x.dtype}, {tuple(x.shape)}{sparse}"


def is_computable(dtype: torch.dtype) -> bool:
    """Return whether it is a dtype of floats that PyTorch adds and multiplies: those of 8 bits only store."""
    return dtype.is_floating_point and dtype.itemsize > 1


def is_float_tensor(x: object) -> TypeGuard[Tensor]:
    """Return whether `x` is a dense tensor of floats."""
    return is_tensor(x) and is_computable(x.dtype) and x.layout == torch.strided and not x.is_nested


def check_type(x: object, expected: type | tuple[type, ...], name: str, argument: str) -> None:
    """Raise TypeError unless `x`, passed to the function `name` as `argument`, has an expected type."""
    if not isinstance(x, expected) or isinstance(x, LAZY):
        types = expected if isinstance(expected, tuple) else (expected,)
        names = " or ".join("None" if each is NoneType else each.__name__ for each in types)
        raise TypeError(f"{name}: {argument} is {describe(x)}, expected {names}.")


def check_flags(name: str, **flags: object) -> None:
    """Raise TypeError unless each argument of the function `name` is True or False."""
    for argument, flag in flags.items():
        if not isinstance(flag, bool):
            raise TypeError(f"{name}: {argument} is {describe(flag)}, expected True or False.")


def check_functions(name: str, **functions: object) -> None:
    """Raise TypeError unless each argument of the function `name` can be called."""
    for argument, function in functions.items():
        if not callable(function):
            raise TypeError(f"{name}: {argument} is {describe(function)}, expected a function.")


def check_path(path: object, name: str) -> None:
    """Raise TypeError unless `path`, passed to the function `name`, names a file."""
    if not isinstance(path, str | PathLike):
        raise TypeError(f"{name}: path is {describe(path)}, expected the path of a file, a str or a Path.")


def check_device(device: object, name: str) -> None:
    """Raise unless `device`, passed to the function `name`, is None or a device that PyTorch can use here."""
    check_type(device, (torch.device, str, NoneType), name, "device")
    try:
        torch.empty(0, device=device)  # pyright: ignore[reportCallIssue, reportArgumentType]
    except (RuntimeError, AssertionError, ImportError) as error:
        raise ValueError(
            f"{name}: device = {shown(device)}, expected one that PyTorch can use here, such as 'cpu', or "
            "'cuda' with a GPU."
        ) from error


def check_sizes(name: str, least: int, **sizes: object) -> None:
    """Raise unless each size, passed to the function `name`, is an integer of at least `least`.

    One of 8 or 16 bits is none: what a function adds to it or multiplies it with overflows in them.
    """
    for argument, size in sizes.items():
        expected = f"{name}: {argument} = {shown(size)}, expected an integer of at least {least}."
        try:
            other = size.dtype not in INTEGERS if isinstance(size, Tensor) else isinstance(size, bool)
            if other or getattr(size, "ndim", 0) > 0 or not isinstance(size, SupportsIndex):
                raise TypeError
            too_small, too_large = size < least, not isinstance(size, Tensor) and size >= 2**63  # pyright: ignore[reportOperatorIssue]
            narrow = getattr(getattr(size, "dtype", None), "itemsize", 8) < 4
        except Exception:  # its own methods may raise anything, and an __index__ is no order
            raise TypeError(expected) from None
        if too_small or too_large:
            raise ValueError(f"{expected[:-1]}, below 2**63." if too_large else expected)
        if narrow:
            raise TypeError(
                f"{name}: {argument} = {shown(size)}, expected an int: in so few bits sums of sizes "
                f"overflow. Convert it: int({argument})."
            )


def real(value: object) -> float:
    """Convert a number to float, and anything else, or what is too large for a float, to NaN."""
    try:
        return math.nan if isinstance(value, str | bool) else float(value)  # pyright: ignore[reportArgumentType]
    except Exception:  # its __float__ may raise anything
        return math.nan


def is_real(x: object) -> TypeGuard[Real]:
    """Return whether `x` is a real number that PyTorch multiplies with: it takes no fraction."""
    return isinstance(x, Real) and not isinstance(x, Fraction)


def is_number(x: object, least: int) -> bool:
    """Return whether `x` is a number from `least` to below 2**63: a larger integer fits into no tensor."""
    return is_real(x) and least <= (x if isinstance(x, int) else float(x)) < 2**63


def check_numbers(name: str, least: int, **numbers: object) -> None:
    """Raise ValueError unless each argument of the function `name` is a number of at least `least`."""
    for argument, number in numbers.items():
        if not is_number(number, least):
            raise ValueError(
                f"{name}: {argument} = {shown(number)}, expected an int or a float of at least {least}, "
                "below 2**63."
            )


def check_generator(generator: object, name: str) -> None:
    """Raise TypeError unless `generator` is None or a torch.Generator."""
    if not isinstance(generator, torch.Generator | None):
        raise TypeError(
            f"{name}: generator is {describe(generator)}, expected a torch.Generator. "
            "From a seed, make one with torch.Generator().manual_seed(seed)."
        )


def check_range(x: Tensor, stop: int, name: str, argument: str) -> None:
    """Raise ValueError unless all entries of `x` lie between 0 and stop - 1.

    Only on a CPU: on a GPU it would synchronize. Under torch.compile and vmap there are no values to check.
    """
    if x.device.type != "cpu" or x.numel() == 0 or torch.compiler.is_compiling():
        return
    try:
        least, most = int(x.min()), int(x.max())
    except RuntimeError:  # in vmap
        return
    if least < 0 or most >= stop:
        wrong = least if least < 0 else most
        raise ValueError(f"{name}: {argument} holds {wrong}, expected integers from 0 to {stop - 1}.")


def check_lengths(name: str, lengths: Tensor, T_k: int) -> None:
    """Raise unless `lengths` is an integer tensor of shape (B,), each from 0 to T_k."""
    check_sizes(name, 0, T_k=T_k)
    if not isinstance(lengths, Tensor) or lengths.dtype not in INTEGERS or lengths.dim() != 1:
        raise TypeError(
            f"{name}: lengths is {describe(lengths)}, expected an integer tensor of shape (B,). "
            "From a mask that is True for real tokens, count them: real.sum(dim=-1)."
        )
    check_range(lengths, T_k + 1, name, "lengths")


def check_unicode(text: str, name: str) -> None:
    """Raise ValueError if a text, passed to the function `name`, holds a lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{name}: {text[error.start]!r} at position {error.start} of the text is half of a surrogate "
            "pair, not a character. Read the text again without errors='surrogateescape' or 'surrogatepass'."
        ) from None


# Tokens


def check_tokens(x: object, name: str) -> None:
    """Raise unless `x` is a float tensor of shape (T, C) or (B, T, C) with at least one token.

    Args:
        x: the argument.
        name: the function that it was passed to, for the message.
    """
    expected = f"{name} expects a float tensor of shape (T, C) or (B, T, C)"
    if not is_tensor(x):
        raise TypeError(f"{expected}, but got a {describe(x)}. Make one with torch.tensor(...).")
    if not is_computable(x.dtype):
        raise TypeError(f"{expected}, but its dtype is {x.dtype}. Convert it first: x.float().")
    if x.layout != torch.strided:
        raise TypeError(f"{expected}, but its layout is {x.layout}. Convert it first: x.to_dense().")
    if x.is_nested:
        raise TypeError(f"{expected}, but it is nested. Pad it first: x.to_padded_tensor(0.0).")
    shape = tuple(x.shape)
    if x.dim() < 2:
        raise ValueError(f"{expected}, but its shape is {shape}. Add the missing dimension: x[:, None].")
    if x.dim() > 3:
        raise ValueError(f"{expected}, but its shape is {shape}. Merge the leading ones: x.flatten(0, -3).")
    if x.shape[-2] == 0:
        raise ValueError(f"{expected}, but its shape is {shape}: T = 0. Pass at least one token.")


def check_scores(x: object, dim: int, name: str) -> None:
    """Raise unless `x` is a float tensor with a dimension `dim` along which a sum does not overflow."""
    if not is_float_tensor(x):
        raise TypeError(
            f"{name}: x is {describe(x)}, expected a float tensor. Convert it: torch.as_tensor(x).float()."
        )
    shape = tuple(x.shape)
    try:
        entries = 0 if isinstance(dim, bool | slice) else (shape or (1,))[dim]
    except Exception:  # its __index__ may raise anything
        entries = 0
    if entries == 0:
        raise ValueError(
            f"{name}: dim = {shown(dim)} of the shape {shape}, expected a dimension that has entries."
        )
    if entries > torch.finfo(x.dtype).max:
        raise ValueError(
            f"{name}: {entries} entries share a total of 1, and the sum of as many in {x.dtype} overflows. "
            "Convert them: x.float()."
        )


def check_width(name: str, x: object, n_embd: int, argument: str = "x") -> None:
    """Raise unless `x`, passed as `argument`, has shape (..., T, n_embd)."""
    expected = f"{name}: {argument} is {describe(x)}, expected a float tensor of shape (..., T, {n_embd})"
    if not is_float_tensor(x):
        raise TypeError(f"{expected}. Convert it: torch.as_tensor(x).float().")
    if x.dim() < 2 or x.shape[-1] != n_embd:
        raise ValueError(f"{expected}: the module was built for tokens of {n_embd} channels.")


def needs_a_copy(x: object, layer: nn.Linear) -> bool:
    """Return whether `x` was made in torch.inference_mode, and autograd would keep it for a gradient."""
    if torch.compiler.is_compiling() or not is_tensor(x) or not x.is_inference():
        return False
    return torch.is_grad_enabled() and getattr(layer.weight, "requires_grad", False)


def check_channels(name: str, **inputs: tuple[object, nn.Linear]) -> None:
    """Raise unless each input has shape (..., T, n_embd), where n_embd is what its linear layer takes."""
    for argument, (x, layer) in inputs.items():
        n_embd, dtype = layer.in_features, getattr(layer.weight, "dtype", None)
        if needs_a_copy(x, layer):
            raise ValueError(
                f"{name}: {argument} was made in torch.inference_mode, and autograd cannot keep it, expected "
                f"a tensor that it can. Pass {argument}.clone(), or call {name} in that mode, too."
            )
        if is_float_tensor(x) and x.dim() > 1 and (x.shape[-1], x.dtype) == (n_embd, dtype):
            continue  # without a message written: a token of a large model passes a hundred layers
        check_width(name, x, n_embd, argument)
        if not isinstance(x, Tensor) or dtype in (x.dtype, None):
            continue
        if not torch.is_autocast_enabled(x.device.type):
            raise TypeError(
                f"{name}: {argument} is {x.dtype}, expected it in the dtype of the module: x.to({dtype})."
            )


def check_targets(weights: Tensor, targets: Tensor, name: str) -> None:
    """Raise unless weights (..., T, T) come with boolean targets (T, T)."""
    check_type(weights, Tensor, name, "weights")
    check_type(targets, Tensor, name, "targets")
    nested = weights.is_nested or targets.is_nested
    if nested or targets.dtype != torch.bool or targets.dim() != 2 or targets.shape != weights.shape[-2:]:
        raise ValueError(
            f"{name}: weights of {describe(weights)} and targets of {describe(targets)}, expected "
            "(..., T, T) and a boolean (T, T). Make targets from the same ids: previous_token(ids)."
        )


def check_rotation(x: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Raise unless x has shape (..., T, head_size), and cos and sin (T, head_size / 2)."""
    for part, given in (("x", x), ("cos", cos), ("sin", sin)):
        if not is_float_tensor(given) or given.device != x.device:
            raise TypeError(
                f"rotate_pairs: {part} is {describe(given)}, expected a float tensor on the device of x."
            )
    for part, table in (("cos", cos), ("sin", sin)):
        if table.dim() != 2 or x.shape[-2:] != (len(table), 2 * table.shape[1]):
            raise ValueError(
                f"rotate_pairs: for x of shape {tuple(x.shape)}, {part} has shape {tuple(table.shape)}, "
                "expected (T, head_size / 2): a row for each position, an angle for each pair of channels."
            )


def check_batch(name: str, x: object, layer: nn.Linear, mask: object) -> None:
    """Raise unless `x` is a batch (B, T, n_embd) that the layer takes, and the mask is boolean."""
    check_channels(name, x=(x, layer))
    if isinstance(x, Tensor) and (x.dim() != 3 or x.numel() == 0):
        raise ValueError(
            f"{name}: x has shape {tuple(x.shape)}, expected (B, T, {layer.in_features}) with at least one "
            "token. Make a batch of one sequence with x[None]."
        )
    check_mask(mask, name)


# Attention


def check_mask(mask: object, name: str) -> None:
    """Raise TypeError unless the mask is None or a boolean tensor."""
    if mask is not None and (not isinstance(mask, Tensor) or mask.dtype != torch.bool):
        raise TypeError(
            f"{name}: the mask has dtype {mask.dtype}, expected torch.bool, True where a query may look. "
            "Convert a mask of ones and zeros with mask.bool(), one of 0 and -inf with mask == 0."
            if isinstance(mask, Tensor)
            else f"{name}: the mask is {describe(mask)}, expected a tensor of torch.bool, True where a query "
            "may look. Make one with torch.tensor(mask, dtype=torch.bool)."
        )


def expands(shape: torch.Size, to: tuple[int, ...]) -> bool:
    """Return whether a tensor of this shape broadcasts to another shape."""
    try:
        return shape == to or torch.broadcast_shapes(shape, to) == to
    except RuntimeError:
        return False


def check_rows(part: str, x: object, name: str) -> None:
    """Raise unless `x`, passed to the function `name` as `part`, is a float tensor (..., T, channels)."""
    if not is_float_tensor(x):
        raise TypeError(
            f"{name}: {part} is {describe(x)}, expected a float tensor. "
            f"Convert it: torch.as_tensor({part}).float()."
        )
    if x.dim() < 2:
        raise ValueError(
            f"{name}: {part} has shape {tuple(x.shape)}, expected (..., T, channels): {part}[None]."
        )


def check_beside_queries(part: str, x: Tensor, q: Tensor, name: str, grouped: bool) -> None:
    """Raise unless keys or values have the dtype and the device of the queries, and dimensions that fit."""
    if grouped:
        heads = x.shape[-3] if x.dim() == q.dim() > 2 else 0
        if heads == 0 or q.shape[-3] % heads:
            raise ValueError(
                f"{name}: q has shape {tuple(q.shape)} and {part} has shape {tuple(x.shape)}, expected "
                "(..., n_head, T, channels), the heads of q a multiple of those of k and v."
            )
    batch = -3 if grouped else -2  # where the leading dimensions end
    if not expands(x.shape[:batch], to=q.shape[:batch]):
        raise ValueError(
            f"{name}: q has shape {tuple(q.shape)} and {part} has shape {tuple(x.shape)}. The leading "
            f"dimensions of {part} must broadcast to those of q: make them equal, or use q.expand(...)."
        )
    if x.dtype != q.dtype and not torch.is_autocast_enabled(q.device.type):
        raise TypeError(f"{name}: q is {q.dtype} and {part} is {x.dtype}. Convert one: {part}.to(q).")
    check_same_device(part, x, q, name)


def check_same_device(part: str, x: Tensor, q: Tensor, name: str) -> None:
    """Raise ValueError unless `x`, passed as `part`, is on the device of q."""
    if x.device != q.device:  # a mask on the device meta would hide memory at random
        raise ValueError(
            f"{name}: expected q and {part} on one device, but they are on {q.device} and {x.device}."
        )


def check_queries_and_keys(
    q: Tensor, k: Tensor, mask: Tensor | None, name: str, grouped: bool = False
) -> None:
    """Raise unless queries, keys and mask fit together.

    If they are `grouped`, k has fewer heads than q, a number that divides that of q.
    """
    check_rows("q", q, name)
    check_rows("k", k, name)
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(
            f"{name}: q has head_size {q.shape[-1]} and k has head_size {k.shape[-1]}. "
            "A dot product needs the same on both sides; only v may differ."
        )
    if q.shape[-1] == 0:
        raise ValueError(f"{name}: q and k have head_size 0, expected at least one channel.")
    check_beside_queries("k", k, q, name, grouped)
    check_mask(mask, name)
    if mask is None:
        return
    check_same_device("mask", mask, q, name)
    scores = (*q.shape[:-1], k.shape[-2])
    if mask.shape != scores[-2:] and not expands(mask.shape, to=scores):
        raise ValueError(
            f"{name}: the mask has shape {tuple(mask.shape)} and the scores have shape {scores}. "
            f"Each query needs one entry for each key: make it ({q.shape[-2]}, {k.shape[-2]})."
        )


def check_values(q: Tensor, k: Tensor, v: Tensor, name: str, grouped: bool = False) -> None:
    """Raise unless there is a value for each key. What q and k have to be, `check_queries_and_keys` says."""
    check_rows("v", v, name)
    if not all(is_float_tensor(x) and x.dim() > 1 for x in (q, k)):
        return
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(
            f"{name}: k holds {k.shape[-2]} tokens and v holds {v.shape[-2]}. Each key needs its value."
        )
    check_beside_queries("v", v, q, name, grouped)


def check_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, name: str, grouped: bool = False
) -> None:
    """Raise unless queries, keys, values and mask fit together."""
    check_queries_and_keys(q, k, mask, name, grouped)
    check_values(q, k, v, name, grouped)


def check_scale(scale: object, name: str) -> None:
    """Raise unless `scale` is None, a finite number, or a float tensor of one."""
    if scale is None or (is_float_tensor(scale) and scale.dim() == 0):
        return
    if isinstance(scale, bool) or not is_real(scale):
        raise TypeError(f"{name}: scale is {describe(scale)}, expected an int, a float, or None.")
    if not is_number(scale, -(2**63)):
        raise ValueError(f"{name}: scale = {shown(scale)}, expected a finite number below 2**63, or None.")


def check_blocks(blocks: object, name: str) -> None:
    """Raise TypeError unless the argument `blocks` can be gone through, which is no tensor."""
    if not isinstance(blocks, Iterable) or isinstance(blocks, Tensor) or getattr(blocks, "ndim", 1) == 0:
        raise TypeError(
            f"{name}: blocks is {describe(blocks)}, expected pairs (scores, values), for example in a list."
        )


def check_block(block: object, name: str) -> None:
    """Raise unless a block has scores (..., T_q, T_block) and values (..., T_block, d_v), T_block > 0."""
    if not isinstance(block, tuple | list) or len(block) != 2:
        raise TypeError(f"{name}: a block is {describe(block)}, expected a pair (scores, values).")
    scores, values = block
    for part, x in {"scores": scores, "values": values}.items():
        if not is_float_tensor(x):
            raise TypeError(f"{name}: a block has {part} of {describe(x)}, expected a float tensor.")
    shapes = [tuple(x.shape) for x in (scores, values) if isinstance(x, Tensor)]
    if min(map(len, shapes)) < 2 or shapes[0][-1] != shapes[1][-2] or shapes[0][-1] == 0:
        raise ValueError(
            f"{name}: a block has scores of shape {shapes[0]} and values of shape {shapes[1]}, expected "
            "(..., T_q, T_block) and (..., T_block, d_v): a value for each key, and at least one key."
        )
    first, second = (x.dtype for x in (scores, values) if isinstance(x, Tensor))
    if first != second:
        raise TypeError(f"{name}: a block has scores of {first} and values of {second}, expected one dtype.")


def check_new_keys(k: object, v: object, name: str) -> None:
    """Raise unless k and v are float tensors (B, n_head, T, ...) of the same tokens."""
    shapes = []
    for part, x in {"k": k, "v": v}.items():
        if not is_float_tensor(x):
            raise TypeError(f"{name}: {part} is {describe(x)}, expected a float tensor.")
        shapes.append(tuple(x.shape))
    if len(shapes[0]) != 4 or len(shapes[1]) != 4 or shapes[0][:3] != shapes[1][:3]:
        raise ValueError(
            f"{name}: k has shape {shapes[0]} and v has shape {shapes[1]}, expected (B, n_head, T, channels) "
            "for both: each key needs its value."
        )


def check_probe(function: Callable[[Tensor], Tensor], x: Tensor, name: str) -> None:
    """Raise unless the function can be probed: call it twice on the same tokens and compare."""
    check_tokens(x, name)
    if x.numel() == 0 or x.is_meta or not x.abs().amax() < torch.finfo(x.dtype).max / 16:
        raise ValueError(
            f"{name}: x has shape {tuple(x.shape)} and holds inf, NaN, numbers that are too large for "
            f"{x.dtype} once noise is added, or no numbers at all. Pass tokens such as torch.randn(5, 3)."
        )
    if not callable(function) or isinstance(function, type):
        raise TypeError(f"{name}: function is {describe(function)}, expected a function of tokens.")
    first = function(x.clone())
    check_type(first, Tensor, name, "what the function returns")
    first = first.clone()
    again = function(x.clone())
    if first.dim() < 2 or first.numel() == 0:
        raise ValueError(
            f"{name}: the function returns the shape {tuple(first.shape)}, expected (T, D) or (B, T, D)."
        )
    if not (first.isfinite() | (first == -math.inf)).all():  # masked scores may be -inf
        raise ValueError(
            f"{name}: the function returns NaN or inf, which would hide what moves it, expected finite "
            "outputs. Look for a division by 0, such as a softmax of a query without keys."
        )
    if not torch.equal(first, again):
        raise ValueError(
            f"{name}: the function returned two different outputs for the same tokens, so every token would "
            "seem to see all others. Remove the randomness: model.eval() switches dropout off."
        )


# Ids


def check_ids(ids: object, name: str) -> None:
    """Raise TypeError unless `ids`, passed to the function `name`, is an integer tensor of shape (T,)."""
    if not isinstance(ids, Tensor) or ids.dtype not in INTEGERS or ids.dim() != 1:
        raise TypeError(
            f"{name}: ids is {describe(ids)}, expected an integer tensor of shape (T,). "
            "Encode a text with tokenizer.encode(text); from a batch, pass one row: ids[0]."
        )


def check_batch_of_ids(ids: object, name: str, vocab_size: int | None = None) -> None:
    """Raise unless `ids` is an integer tensor of shape (B, T), below `vocab_size` if that is given."""
    if not isinstance(ids, Tensor) or ids.dtype not in INTEGERS[-2:] or ids.dim() != 2:
        raise TypeError(
            f"{name}: ids is {describe(ids)}, expected an integer tensor of shape (B, T), int64. "
            "Encode a text with tokenizer.encode(text)[None]; make a batch of one sequence with ids[None]."
        )
    if vocab_size is not None:
        check_range(ids, vocab_size, name, "ids")
