"""Functions of tensors: each is a function of torch, and most are methods of a tensor too."""

import math
import operator
import random
import string
from bisect import bisect_left, bisect_right
from collections import namedtuple
from contextlib import contextmanager
from itertools import accumulate, combinations, product
from statistics import NormalDist

from . import core
from .core import (
    CPU,
    DTYPES,
    INF,
    NAN,
    Tensor,
    bool_,
    broadcast,
    contiguous,
    converted,
    dim_of,
    dims_of,
    float32,
    float64,
    from_data,
    gathered,
    grads_of,
    int64,
    made,
    places_of,
    promote_types,
    result_type,
    stored,
    sumprod,
    view,
    write,
)
from .names import lacking

FUNCTIONS = {}  # of torch, by name
TITLES = ("Bool", "Long", "Float")


def function(made, name=None):
    made.__name__ = name or made.__name__
    FUNCTIONS[made.__name__] = made
    return made


def method(made, name=None):
    made.__name__ = name or made.__name__
    setattr(Tensor, made.__name__, made)
    return made


def both(made, name=None):
    """Make a function of torch that is a method of a tensor too."""
    return method(function(made, name))


def table(add, **functions):
    for name, f in functions.items():
        add(f, name)


def alias(**names):
    for name, old in names.items():
        if old in FUNCTIONS:
            FUNCTIONS[name] = FUNCTIONS[old]
        if hasattr(Tensor, old):
            setattr(Tensor, name, getattr(Tensor, old))


def need(condition, message, kind=RuntimeError):
    if not condition:
        raise kind(message)


def sizes(given):
    given = given[0] if len(given) == 1 and isinstance(given[0], tuple | list) else given
    return tuple(map(operator.index, given))


def cut_into(values, n):
    return [values[i : i + n] for i in range(0, len(values), n)] if n else []


# Views


@method
def expand(x, *shape):
    shape = sizes(shape)
    return x if shape == x.shape else view(x, *core.stretched(x.shape, x._strides, shape), x._offset)


@both
def permute(x, *dims):
    order = [dim_of(d, x.dim()) for d in sizes(dims)]
    if sorted(order) != list(range(x.dim())):
        raise RuntimeError(f"permute: the tensor has {x.dim()} dimensions, and the order is {order}")
    return view(x, [x.shape[d] for d in order], [x._strides[d] for d in order], x._offset)


@both
def transpose(x, dim0, dim1):
    shape, strides, dims = list(x.shape), list(x._strides), len(x.shape)
    if dims:
        i, j = dim_of(dim0, dims), dim_of(dim1, dims)
        shape[i], shape[j], strides[i], strides[j] = shape[j], shape[i], strides[j], strides[i]
    return view(x, shape, strides, x._offset)


@both
def movedim(x, source, destination):
    order = list(range(x.dim()))
    order.remove(d := dim_of(source, x.dim()))
    order.insert(dim_of(destination, x.dim()), d)
    return permute(x, order)


@both
def squeeze(x, dim=None):
    gone = [d for d in dims_of(dim, x.dim()) if x.shape[d] == 1]
    kept = [d for d in range(x.dim()) if d not in gone]
    return view(x, [x.shape[d] for d in kept], [x._strides[d] for d in kept], x._offset)


@both
def diagonal(x, offset=0, dim1=0, dim2=1):
    i, j = dim_of(dim1, x.dim()), dim_of(dim2, x.dim())
    n = max(0, min(x.shape[i] - max(-offset, 0), x.shape[j] - max(offset, 0)))
    kept = [d for d in range(x.dim()) if d not in (i, j)]
    start = x._offset + (max(-offset, 0) * x._strides[i] + max(offset, 0) * x._strides[j] if n else 0)
    strides = [x._strides[d] for d in kept] + [x._strides[i] + x._strides[j]]
    return view(x, [x.shape[d] for d in kept] + [n], strides, start)


@method
def unfold(x, dim, size, step):
    d = dim_of(dim, x.dim())
    need(x.shape[d] >= size, f"maximum size for tensor at dimension {d} is {x.shape[d]} but size is {size}")
    shape, strides = list(x.shape), list(x._strides)
    shape[d], strides[d] = (x.shape[d] - size) // step + 1, x._strides[d] * step
    return view(x, [*shape, size], [*strides, x._strides[d]], x._offset)


def filled_in(shape, numel):
    shape = list(shape)
    need(shape.count(-1) < 2, "only one dimension can be inferred")
    known = math.prod(n for n in shape if n != -1)
    if -1 in shape and known and numel % known == 0:
        shape[shape.index(-1)] = numel // known
    if math.prod(shape) != numel or -1 in shape:
        raise RuntimeError(f"shape '{shape}' is invalid for input of size {numel}")
    return tuple(shape)


def viewed(x, shape):
    """Return a view of another shape, or None if no strides lead to the same places."""
    if x.is_contiguous():
        return view(x, shape, contiguous(shape), x._offset)
    places = x.places()
    steps = zip(shape, contiguous(shape), strict=True)
    strides = [places[step] - places[0] if n > 1 else 1 for n, step in steps]
    found = view(x, shape, strides, x._offset)
    return found if found.places() == places else None


def viewing(x, *shape):
    if len(shape) == 1 and isinstance(shape[0], core.dtype):
        lacking("Tensor.view(dtype)")
    found = viewed(x, filled_in(sizes(shape), x.numel()))
    if found is None:
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one dimension "
            "spans across two contiguous subspaces). Use .reshape(...) instead."
        )
    return found


Tensor.view = viewing


@both
def reshape(x, *shape):
    shape = filled_in(sizes(shape), x.numel())
    found = viewed(x, shape)
    return viewed(x.clone(), shape) if found is None else found


@both
def flatten(x, start_dim=0, end_dim=-1):
    if not x.shape:
        return x.reshape(1)
    i, j = dim_of(start_dim, x.dim()), dim_of(end_dim, x.dim())
    return x.reshape(*x.shape[:i], math.prod(x.shape[i : j + 1]), *x.shape[j + 1 :])


@both
def unflatten(x, dim, sizes):
    d = dim_of(dim, x.dim())
    try:
        inner = filled_in(sizes, x.shape[d])
    except RuntimeError:
        raise RuntimeError(
            f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of dim {d} ({x.shape[d]})"
        ) from None
    return x.view(*x.shape[:d], *inner, *x.shape[d + 1 :])


@both
def split(x, split_size, dim=0):
    n = x.shape[dim_of(dim, x.dim())]
    if isinstance(split_size, int):
        split_size = [min(split_size, n - i) for i in range(0, n, split_size)]
    wrong = f"split_with_sizes expects split_sizes to sum exactly to {n}, but got {list(split_size)}"
    need(sum(split_size) == n, wrong)
    starts = accumulate(split_size, initial=0)
    return tuple(x.narrow(dim, start, size) for start, size in zip(starts, split_size, strict=False))


table(
    both,
    t=lambda x: x if x.dim() < 2 else transpose(x, 0, 1),
    select=lambda x, dim, index: x[(slice(None),) * dim_of(dim, x.dim()) + (index,)],
    unsqueeze=lambda x, dim: x[(slice(None),) * dim_of(dim, x.dim() + 1) + (None,)],
    narrow=lambda x, dim, start, length: x.select(dim, slice(int(start), int(start) + int(length))),
    unbind=lambda x, dim=0: tuple(x.select(dim, i) for i in range(x.shape[dim_of(dim, x.dim())])),
    chunk=lambda x, chunks, dim=0: split(x, max(1, -(-x.shape[dim_of(dim, x.dim())] // chunks)), dim),
    broadcast_to=lambda x, size: x.expand(size),
)
Tensor.T = property(lambda x: permute(x, list(range(x.dim()))[::-1]))
Tensor.mT = property(lambda x: transpose(x, -2, -1))
table(
    method,
    view_as=lambda x, other: x.view(other.shape),
    reshape_as=lambda x, other: x.reshape(other.shape),
    expand_as=lambda x, other: x.expand(other.shape),
)


# Copies


@method
def to(x, *given, dtype=None, device=None, copy=False, non_blocking=False):
    for each in given:
        if isinstance(each, Tensor | core.dtype):
            dtype = each.dtype if isinstance(each, Tensor) else each
        elif isinstance(each, str):
            core.device(each)
    if dtype is None or dtype is x.dtype:
        return x.clone() if copy else x
    return made(converted(x.read(), x.dtype, dtype), x.shape, dtype, (x,), lambda grad: [grad])


@method
def copy_(x, other, non_blocking=False):
    write(x, x.places(), (other if isinstance(other, Tensor) else from_data(other, x.dtype)).expand(x.shape))
    return x


both(lambda x, memory_format=None: made(x.read(), x.shape, x.dtype, (x,), lambda grad: [grad]), "clone")
table(
    method,
    contiguous=lambda x, memory_format=None: x if x.is_contiguous() else x.clone(),
    type_as=lambda x, other: x.to(other.dtype),
    cpu=lambda x: x,
    fill_=copy_,
    zero_=lambda x: x.copy_(0),
)
Tensor.copy_ = copy_
_KINDS = {"bool": "bool", "int": "int32", "long": "int64", "float": "float32", "double": "float64"}
for _name, _kind in (_KINDS | {"half": "float16", "bfloat16": "bfloat16"}).items():
    setattr(Tensor, _name, lambda x, kind=DTYPES[_kind]: x.to(kind))


def in_place(name):
    def changed(x, *given, **named):
        found = getattr(x, name)(*given, **named)
        if found.shape != x.shape:
            shapes = f"{list(x.shape)} doesn't match the broadcast shape {list(found.shape)}"
            raise RuntimeError(f"output with shape {shapes}")
        old, new = TITLES[x.dtype.kind], TITLES[found.dtype.kind]
        need(found.dtype.kind <= x.dtype.kind, f"result type {new} can't be cast to {old}")
        return x.copy_(found)

    setattr(Tensor, f"{name}_", changed)


# New tensors


@function
def tensor(data, *, dtype=None, device=None, requires_grad=False):
    found = from_data(data.detach() if isinstance(data, Tensor) else data, dtype)
    return found.requires_grad_() if requires_grad else found


@function
def as_tensor(data, dtype=None, device=None):
    return data.to(dtype or data.dtype) if isinstance(data, Tensor) else from_data(data, dtype)


def shaped(name, values):
    """Make a function of a shape, and those that take the dtype of a tensor, or its shape too."""

    def fresh(
        *size, generator=None, dtype=None, device=None, requires_grad=False, layout=None, pin_memory=False
    ):
        shape, source = sizes(size), (generator or default_generator)._random
        if any(n < 0 for n in shape):
            raise RuntimeError(f"Trying to create tensor with negative dimension {min(shape)}: {list(shape)}")
        if math.prod(shape) > 10**7:
            raise MemoryError(f"A tensor of shape {list(shape)} is too large for this page.")
        return made(values(source, math.prod(shape)), shape, dtype or float32).requires_grad_(requires_grad)

    typed(function(fresh, name))
    return fresh


def typed(make):
    def new(x, *given, dtype=None, **named):
        return make(*given, dtype=dtype or x.dtype, **named)

    setattr(Tensor, f"new_{make.__name__}", new)
    FUNCTIONS[f"{make.__name__}_like"] = lambda x, *given, **named: new(x, x.shape, *given, **named)


zeros, ones = (shaped(name, lambda _, n, v=v: [v] * n) for v, name in enumerate(("zeros", "ones")))
shaped("empty", lambda _, n: [0] * n)


@function
def full(size, fill_value, *, dtype=None, **named):
    fill = fill_value.item() if isinstance(fill_value, Tensor) else fill_value
    dtype = dtype or (bool_ if isinstance(fill, bool) else int64 if isinstance(fill, int) else float32)
    found = zeros(size, dtype=dtype, **named)
    found._storage.data[:] = stored([fill] * found.numel(), dtype)
    return found


typed(full)
Tensor.new_tensor = lambda x, data, dtype=None: from_data(data, dtype or x.dtype)


@function
def arange(start, end=None, step=1, *, dtype=None, device=None, requires_grad=False):
    start, end = (0, start) if end is None else (start, end)
    start, end, step = (each.item() if isinstance(each, Tensor) else each for each in (start, end, step))
    need(step, "step must be nonzero")
    need((end - start) * step >= 0, "upper bound and lower bound inconsistent with step sign")
    values = [start + i * step for i in range(math.ceil((end - start) / step))]
    kind = int64 if all(isinstance(each, int) for each in (start, end, step)) else float32
    return made(converted(values, kind, dtype or kind), (len(values),), dtype or kind)


@function
def linspace(start, end, steps, *, dtype=None, device=None, requires_grad=False):
    start, end, steps = float(start), float(end), int(steps)
    values = [start + (end - start) * i / max(1, steps - 1) for i in range(steps)]
    return made(converted(values, float64, dtype or float32), (steps,), dtype or float32)


@function
def eye(n, m=None, *, dtype=None, device=None, requires_grad=False):
    m = n if m is None else m
    return made([int(i == j) for i in range(n) for j in range(m)], (n, m), dtype or float32)


def all_tensors(tensors, wrong):
    tensors = list(tensors)
    need(tensors, wrong)
    for i, each in enumerate(tensors):
        if not isinstance(each, Tensor):
            raise TypeError(f"expected Tensor as element {i} in argument 0, but got {type(each).__name__}")
    return tensors


@function
def cat(tensors, dim=0):
    tensors = all_tensors(tensors, "torch.cat(): expected a non-empty list of Tensors")
    for i, each in enumerate(tensors):
        if not each.shape:
            raise RuntimeError(f"zero-dimensional tensor (at position {i}) cannot be concatenated")
    kind = tensors[0].dtype
    for each in tensors:
        kind = promote_types(kind, each.dtype)
    tensors = [each for each in tensors if each.shape != (0,)] or tensors[:1]
    d, first = dim_of(dim, tensors[0].dim()), tuple(tensors[0].shape)
    for i, each in enumerate(tensors):
        shape = tuple(each.shape)
        if len(shape) != len(first) or shape[:d] + shape[d + 1 :] != first[:d] + first[d + 1 :]:
            raise RuntimeError(
                f"Sizes of tensors must match except in dimension {d}. Expected shape {list(first)} "
                f"but got {list(shape)} for tensor number {i} in the list."
            )
    runs, lists = [math.prod(each.shape[d:]) for each in tensors], [each.read() for each in tensors]
    parts = [(lists[k], r * n, r * n + n) for r in range(math.prod(first[:d])) for k, n in enumerate(runs)]
    values = [v for part, start, end in parts for v in part[start:end]]

    def vjp(grad):
        lines, ends = cut_into(grad, sum(runs)), list(accumulate(runs))
        return [[v for line in lines for v in line[end - n : end]] for n, end in zip(runs, ends, strict=True)]

    shape = [*first[:d], sum(each.shape[d] for each in tensors), *first[d + 1 :]]
    return made(values, shape, kind, tensors, vjp)


@function
def stack(tensors, dim=0):
    tensors = all_tensors(tensors, "stack expects a non-empty TensorList")
    first = tensors[0].shape
    for i, each in enumerate(tensors):
        if each.shape != first:
            shapes = f"got {list(first)} at entry 0 and {list(each.shape)} at entry {i}"
            raise RuntimeError(f"stack expects each tensor to be equal size, but {shapes}")
    return cat([each.unsqueeze(dim) for each in tensors], dim)


def joined(tensors, dims, dim):
    tensors = [each if each.dim() >= dims else each.reshape((1,) * (dims - 1) + (-1,)) for each in tensors]
    return cat(tensors, min(dim, tensors[0].dim() - 1))


function(lambda tensors: joined(tensors, 1, 1), "hstack")
function(lambda tensors: joined(tensors, 2, 0), "vstack")


@method
def repeat(x, *times):
    times = sizes(times)
    few = "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor"
    need(len(times) >= x.dim(), few)
    x = x.reshape((1,) * (len(times) - x.dim()) + tuple(x.shape))
    wide = x[tuple(each for _ in times for each in (None, slice(None)))]
    wide = wide.expand([n for k, size in zip(times, x.shape, strict=True) for n in (k, size)])
    return wide.clone().reshape([k * size for k, size in zip(times, x.shape, strict=True)])


both(lambda x, *times: x.repeat((1,) * (x.dim() - len(sizes(times))) + sizes(times)), "tile")


@both
def repeat_interleave(x, repeats, dim=None, output_size=None):
    if dim is None:
        x, dim = x.flatten(), 0
    n = x.shape[dim_of(dim, x.dim())]
    times = repeats.expand(n).tolist() if isinstance(repeats, Tensor) else [repeats] * n
    return x.select(dim, tensor([i for i, k in enumerate(times) for _ in range(k)], dtype=int64))


alias(index_select="select")


@both
def flip(x, *dims):
    for d in dims_of(sizes(dims), x.dim()):
        x = x.select(d, arange(x.shape[d] - 1, -1, -1))
    return x.clone() if not dims else x


@both
def roll(x, shifts, dims=None):
    if dims is None:
        return roll(x.flatten(), shifts, 0).reshape(x.shape)
    pairs = zip(shifts, dims, strict=True) if isinstance(shifts, tuple | list) else [(shifts, dims)]
    for shift, d in pairs:
        n = x.shape[dim_of(d, x.dim())]
        x = x.select(d, tensor([(i - int(shift)) % n for i in range(n)], dtype=int64))
    return x


# Number by number


def operands(*given):
    """Return tensors of one shape, None for a number; that shape, their dtype, and the values of each."""
    kind = result_type(*given)
    shape = broadcast(*(each.shape if isinstance(each, Tensor) else () for each in given))
    tensors, values = [], []
    for each in given:
        if isinstance(each, Tensor):
            each = each if each.shape == shape else each.expand(shape)
            tensors.append(each), values.append(each.read())
        else:
            number = float(each) if kind.kind == 2 else int(each)
            tensors.append(None), values.append([number] * math.prod(shape))
    return tensors, shape, kind, values


def pointwise(name, plain, careful=None, slopes=(), kind_of=None, symbol=None):
    """Make a function of one or two numbers: `careful` where `plain` raises, a slope by each, given all."""

    def mapped(*given, alpha=1, out=None):
        given = given if alpha == 1 else (given[0], given[1] * alpha)
        if not any(isinstance(each, Tensor) for each in given):
            kind = type(given[0]).__name__ if given else "nothing"
            raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {kind}")
        tensors, shape, kind, values = operands(*given)
        if kind_of is comparison and isinstance(given[-1], float):
            values[-1] = stored(values[-1], kind)
        kind = kind_of(kind) if kind_of else kind
        try:
            found = list(map(plain, *values))
        except (ArithmeticError, ValueError):
            found = list(map(careful or plain, *values))

        def vjp(grad):
            rows = list(zip(grad, *values, found, strict=True))
            return [
                each and [row[0] and row[0] * slope(*row[1:]) for row in rows]
                for each, slope in zip(map(tracked, tensors), slopes, strict=True)
            ]

        return made(found, shape, kind, tensors if slopes else (), vjp)

    both(mapped, name)
    in_place(name)
    if symbol:
        operators(symbol, mapped)


def tracked(x):
    return x is not None and x.is_tracked()


def operators(symbol, f):
    setattr(Tensor, f"__{symbol}__", guarded(f))
    setattr(Tensor, f"__r{symbol}__", guarded(lambda b, a: f(a, b)))
    setattr(Tensor, f"__i{symbol}__", getattr(Tensor, f"{f.__name__}_"))


def guarded(f):
    """Let Python try the other operand where one is no number."""

    def operator_(a, b):
        if isinstance(b, Tensor | int | float) or hasattr(b, "__float__"):
            return f(a, b)
        return NotImplemented

    return operator_


def floats(kind):
    return kind if kind.kind == 2 else float32


def comparison(kind):
    return bool_


def no_floats(kind):
    need(kind.kind < 2, "\"bitwise_cpu\" not implemented for 'Float'")
    return kind


def safe_exp(v):
    return math.exp(v) if v < 709 else v if v != v else INF


def safe(log):
    return lambda v: log(v) if v > 0 else NAN if v != 0 else -INF


def over(a, b):
    try:
        return a / b
    except ZeroDivisionError:
        return NAN if a == 0 or a != a else math.copysign(INF, a) * math.copysign(1, b)
    except OverflowError:
        return INF


def whole(f):
    return lambda v: v if isinstance(v, int) or not math.isfinite(v) else float(f(v))


def bounded(f):
    return lambda v: f(v) if math.isfinite(v) else NAN


ONE = {  # what it is, what it is where that raises an error, and the slope at x, where it is y
    "exp": (math.exp, safe_exp, lambda x, y: y),
    "exp2": (lambda v: 2.0**v, lambda v: 2.0**v if v < 1024 else INF, lambda x, y: y * math.log(2)),
    "log": (math.log, safe(math.log), lambda x, y: over(1, x)),
    "log2": (math.log2, safe(math.log2), lambda x, y: over(1 / math.log(2), x)),
    "log1p": (math.log1p, lambda v: safe(math.log)(1 + v), lambda x, y: over(1, 1 + x)),
    "sqrt": (math.sqrt, lambda v: math.sqrt(v) if v >= 0 else NAN, lambda x, y: over(0.5, y)),
    "rsqrt": (
        lambda v: 1 / math.sqrt(v),
        lambda v: over(1, math.sqrt(v)) if v >= 0 else NAN,
        lambda x, y: over(-0.5 * y, x),
    ),
    "sin": (math.sin, bounded(math.sin), lambda x, y: math.cos(x)),
    "cos": (math.cos, bounded(math.cos), lambda x, y: -math.sin(x)),
    "tanh": (math.tanh, None, lambda x, y: 1 - y * y),
    "erf": (math.erf, None, lambda x, y: 2 / math.sqrt(math.pi) * safe_exp(-x * x)),
    "sigmoid": (lambda v: 1 / (1 + safe_exp(-v)), None, lambda x, y: y * (1 - y)),
    "deg2rad": (math.radians, None, lambda x, y: math.pi / 180),
    "reciprocal": (lambda v: 1 / v, lambda v: over(1, v), lambda x, y: -y * y),
}
SAME = {  # these keep the dtype
    "abs": (abs, lambda x, y: (x > 0) - (x < 0)),
    "neg": (operator.neg, lambda x, y: -1.0),
    "relu": (lambda v: v if v > 0 or v != v else 0, lambda x, y: float(x > 0)),
    "sign": (lambda v: (v > 0) - (v < 0), lambda x, y: 0.0),
}
_ROUND = {"floor": math.floor, "ceil": math.ceil, "trunc": math.trunc, "round": round}
SAME |= {name: (whole(f), lambda x, y: 0.0) for name, f in _ROUND.items()}
TEST = {
    "isnan": lambda v: v != v,
    "isinf": lambda v: abs(v) == INF,
    "isfinite": lambda v: v - v == 0,
    "isneginf": lambda v: v == -INF,
    "isposinf": lambda v: v == INF,
    "logical_not": operator.not_,
    "logical_and": lambda a, b: bool(a and b),
    "logical_or": lambda a, b: bool(a or b),
    "logical_xor": lambda a, b: bool(a) != bool(b),
}
for _name, (_f, _careful, _slope) in ONE.items():
    pointwise(_name, _f, _careful, (_slope,), floats)
for _name, (_f, _slope) in SAME.items():
    pointwise(_name, _f, None, (_slope,))
for _name, _f in TEST.items():
    pointwise(_name, _f, kind_of=comparison)
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    pointwise(_name, getattr(operator, _name), kind_of=comparison)
    setattr(Tensor, f"__{_name}__", guarded(FUNCTIONS[_name]))
for _name in ("and", "or", "xor"):
    pointwise(f"bitwise_{_name}", getattr(operator, f"__{_name}__"), kind_of=no_floats, symbol=_name)
Tensor.__hash__ = lambda x: id(x)
to_whole = FUNCTIONS["round"]


def rounded(x, *, decimals=0):
    return to_whole(x * 10.0**decimals) / 10.0**decimals if decimals else to_whole(x)


both(rounded, "round")


def integers_over_zero(a, b):
    need(b or not (isinstance(a, int) and isinstance(b, int)), "ZeroDivisionError")


def floor_of(a, b):
    integers_over_zero(a, b)
    return a // b if b and math.isfinite(a) else over(a, b)


def remainder_of(a, b):
    integers_over_zero(a, b)
    return a % b if b and math.isfinite(a) else NAN


def power_of(a, b):
    if isinstance(a, int) and isinstance(b, int):
        need(b >= 0, "Integers to negative integer powers are not allowed.")
        return a**b
    try:
        return math.pow(a, b)
    except OverflowError:
        return -INF if a < 0 and b % 2 == 1 else INF
    except ValueError:
        return math.copysign(INF, a) if a == 0 and b % 2 == 1 else INF if a == 0 else NAN


def share(a, b, y):
    return 0.5 if a == b else float(a == y)


one, none = (lambda *_: 1.0), (lambda *_: 0.0)
power_slopes = (
    lambda a, b, y: b * power_of(float(a), b - 1) if b else 0.0,
    lambda a, b, y: y * safe(math.log)(a) if y else 0.0,
)
log_slopes = (
    lambda a, b, y: 0.0 if a == 0 and b <= 0 else safe(math.log)(b),
    lambda a, b, y: over(a, b),
)
shares = (share, lambda a, b, y: share(b, a, y))
pointwise("add", operator.add, None, (one, one), symbol="add")
pointwise("sub", operator.sub, None, (one, lambda *_: -1.0))
pointwise("mul", operator.mul, None, (lambda a, b, y: b, lambda a, b, y: a), symbol="mul")
quotients = (lambda a, b, y: over(1, b), lambda a, b, y: over(-y, b))
pointwise("div", operator.truediv, over, quotients, floats, "truediv")
pointwise("remainder", remainder_of, None, (one, lambda a, b, y: -(a // b)), symbol="mod")
pointwise("floor_divide", floor_of, None, (none, none), symbol="floordiv")
pointwise("pow", power_of, None, power_slopes, symbol="pow")
pointwise("xlogy", lambda a, b: 0.0 if a == 0 and b == b else a * safe(math.log)(b), None, log_slopes, floats)
pointwise("maximum", lambda a, b: a if a > b or a != a else b, None, shares)
pointwise("minimum", lambda a, b: a if a < b or a != a else b, None, shares)
minus, divided = FUNCTIONS["sub"], FUNCTIONS["div"]


@both
def sub(a, b, *, alpha=1, out=None):
    if any(isinstance(each, Tensor) and each.dtype is bool_ for each in (a, b)):
        raise RuntimeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported. "
            "If you are trying to invert a mask, use the `~` or `logical_not()` operator instead."
        )
    return minus(a, b, alpha=alpha)


@both
def div(a, b, *, rounding_mode=None, out=None):
    if rounding_mode == "floor":
        return a // b
    return divided(a, b) if rounding_mode is None else divided(a, b).trunc()


operators("sub", sub)
alias(multiply="mul", divide="div", true_divide="div", subtract="sub")
alias(greater="gt", greater_equal="ge", less="lt", less_equal="le", not_equal="ne")
Tensor.__neg__, Tensor.__pos__, Tensor.__abs__ = Tensor.neg, lambda x: x, Tensor.abs


@both
def bitwise_not(x):
    return x.logical_not() if x.dtype is bool_ else made([~v for v in x.read()], x.shape, no_floats(x.dtype))


Tensor.__invert__ = bitwise_not


@function
def where(condition, a=None, b=None):
    if a is None:
        return tuple(condition.nonzero().unbind(1))
    if condition.dtype is not bool_:
        found = TITLES[condition.dtype.kind]
        raise RuntimeError(f"where expected condition to be a boolean tensor, but got dtype {found}")
    (_, *tensors), shape, kind, (yes, p, q) = operands(condition, a, b)

    def vjp(grad):
        pairs = list(zip(yes, grad, strict=True))
        return [[g if c else 0.0 for c, g in pairs], [0.0 if c else g for c, g in pairs]]

    return made([x if c else y for c, x, y in zip(yes, p, q, strict=True)], shape, kind, tensors, vjp)


@both
def masked_fill(x, mask, value):
    need(
        mask.dtype is bool_,
        f"masked_fill_ only supports boolean masks, but got mask with dtype {mask.dtype.name}",
    )
    return where(mask, (value if isinstance(value, Tensor) else from_data(value)).to(x.dtype), x)


@both
def clamp(x, min=None, max=None):
    need(min is not None or max is not None, "torch.clamp: At least one of 'min' or 'max' must not be None")
    x = x if min is None else where(x < min, min, x)
    return x if max is None else where(x > max, max, x)


@both
def nan_to_num(x, nan=0.0, posinf=None, neginf=None):
    if x.dtype.kind != 2:
        return x.clone()
    most = finfo(x.dtype).max
    put = {INF: most if posinf is None else posinf, -INF: -most if neginf is None else neginf}
    return where(x.isfinite(), x, made([put.get(v, nan) for v in x.read()], x.shape, x.dtype))


table(
    both,
    square=lambda x: x * x,
    masked_select=lambda x, mask: x[mask.expand(x.shape)],
)
Tensor.where = lambda x, condition, other: where(condition, x, other)
in_place("clamp")
in_place("masked_fill")
alias(clip="clamp", clip_="clamp_")


class finfo:  # noqa: N801
    def __init__(self, kind=float32):
        sizes = {"float64": (52, 1022), "float32": (23, 126), "float16": (10, 14), "bfloat16": (7, 126)}
        bits, low = sizes[kind.name]
        self.eps, self.tiny, self.max = 2.0**-bits, 2.0**-low, (2 - 2.0**-bits) * 2.0 ** (low + 1)
        self.min, self.smallest_normal, self.bits = -self.max, self.tiny, 8 * kind.itemsize


class iinfo:  # noqa: N801
    def __init__(self, kind=int64):
        self.bits = 8 * kind.itemsize
        self.max = 2 ** (self.bits - kind.is_signed) - 1
        self.min = -self.max - 1 if kind.is_signed else 0


# Along a dimension


def reduce(x, dim, keepdim, f, slope=None, kind=None):
    """Replace each lane along some dimensions by f(lane), whose gradient is slope(lane, y)."""
    dims, every = dims_of(dim, len(x.shape)), tuple(range(len(x.shape)))
    kept = tuple(d for d in every if d not in dims)
    turned, n = x if kept + dims == every else permute(x, kept + dims), math.prod([x.shape[d] for d in dims])
    values, left = turned.read(), [x.shape[d] for d in kept]
    cut = [values[i * n : i * n + n] for i in range(math.prod(left))]
    found = list(map(f, cut))
    shape = [1 if d in dims else n for d, n in enumerate(x.shape)] if keepdim else left

    def vjp(grad):
        return [[g * s for g, lane, y in zip(grad, cut, found, strict=True) for s in slope(lane, y)]]

    return made(found, shape, kind or x.dtype, (turned,) if slope else (), vjp)


def reduction(name, f, slope=None, kind=None):
    def reduced(x, dim=None, keepdim=False, *, axis=None, keepdims=False, dtype=None, out=None):
        dim, keepdim = axis if dim is None else dim, keepdim or keepdims  # NumPy's names are PyTorch's too
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(x).__name__}")
        x = x if dtype is None else x.to(dtype)
        return reduce(x, dim, keepdim, f, slope, kind and kind(x.dtype))

    both(reduced, name)


def only_floats(kind):
    if kind.kind != 2:
        raise RuntimeError(
            "could not infer output dtype. Input dtype must be either a floating point or complex dtype. "
            f"Got: {TITLES[kind.kind]}"
        )
    return kind


def sum_of(lane):
    return sumprod(lane, [1] * len(lane))


def middle(lane):
    return over(sum_of(lane), len(lane))


def most(lane):
    return NAN if any(v != v for v in lane) else max(lane)


def least(lane):
    return NAN if any(v != v for v in lane) else min(lane)


def evenly(lane, y):
    n = sum(v == y for v in lane) or 1
    return [(v == y) / n for v in lane]


def without_each(lane, y):
    return [math.prod(lane[:i] + lane[i + 1 :]) for i in range(len(lane))]


def wide(kind):
    return kind if kind.kind == 2 else int64


def exp_sum(lane):
    top = most(lane)
    return top if not math.isfinite(top) else top + math.log(sum(math.exp(v - top) for v in lane))


reduction("sum", sum_of, lambda lane, y: [1.0] * len(lane), wide)
reduction("mean", middle, lambda lane, y: [1 / len(lane)] * len(lane), only_floats)
reduction("prod", math.prod, without_each, wide)
reduction("amax", most, evenly)
reduction("amin", least, evenly)
reduction("any", any, None, comparison)
reduction("all", all, None, comparison)
reduction("count_nonzero", lambda lane: sum(v != 0 for v in lane), None, lambda kind: int64)
reduction("logsumexp", exp_sum, lambda lane, y: [safe_exp(v - y) for v in lane])


@both
def var(x, dim=None, unbiased=None, keepdim=False, *, correction=1):
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    less = correction if unbiased is None else int(unbiased)

    def spread(lane):
        center = middle(lane)
        return over(sum_of([(v - center) ** 2 for v in lane]), max(0, len(lane) - less))

    def slope(lane, y):
        center = middle(lane)
        return [over(2 * (v - center), len(lane) - less) for v in lane]

    return reduce(x, dim, keepdim, spread, slope)


both(lambda x, *given, **named: var(x, *given, **named).sqrt(), "std")
Pair = namedtuple("Pair", "values indices")


def extreme(name, top, pairwise):
    def first(lane):
        nan = next((i for i, v in enumerate(lane) if v != v), None)
        return lane.index(top(lane)) if nan is None else nan

    def at(x, dim=None, keepdim=False):
        if dim is None:
            return tensor(first(x.read()), dtype=int64)
        return reduce(x, dim, keepdim, first, kind=int64)

    def best(x, dim=None, keepdim=False):
        if dim is None:
            return getattr(x, f"a{name}")()
        if isinstance(dim, Tensor):
            return pairwise(x, dim)
        indices = at(x, dim, True)
        values = gather(x, dim, indices) if x.dim() else x.clone()
        return Pair(*(each if keepdim else each.squeeze(dim) for each in (values, indices)))

    both(at, f"arg{name}")
    both(best, name)


extreme("max", max, FUNCTIONS["maximum"])
extreme("min", min, FUNCTIONS["minimum"])


def along(x, dim, f, vjp_of=None, kind=None):
    """Replace each lane along a dimension by f(lane); `vjp_of(lane, new, grads)` gives gradients."""
    d, dims = dim_of(dim, len(x.shape)), len(x.shape)
    last = x if d == dims - 1 else movedim(x, d, -1) if dims else x[None]
    cut = cut_into(last.read(), last.shape[-1])
    found = list(map(f, cut))

    def vjp(grad):
        parts = zip(cut, found, cut_into(grad, last.shape[-1]), strict=True)
        return [[v for lane, y, given in parts for v in vjp_of(lane, y, given)]]

    values = [v for lane in found for v in lane]
    result = made(values, last.shape, kind or x.dtype, (last,) if vjp_of else (), vjp)
    return result if d == dims - 1 else movedim(result, -1, d).contiguous() if dims else result[0]


def weights_of(lane):
    top = most(lane) if lane else NAN
    heights = [math.exp(v - top) for v in lane] if math.isfinite(top) else [NAN] * len(lane)
    total = sum_of(heights)
    return [h / total for h in heights]


def weights_vjp(lane, y, grad):
    inner = sumprod(grad, y)
    return [w * (g - inner) for w, g in zip(y, grad, strict=True)]


def logs_of(lane):
    top = exp_sum(lane)
    return [v - top for v in lane] if top != -INF else [NAN] * len(lane)


def logs_vjp(lane, y, grad):
    total = sum_of(grad)
    return [g - safe_exp(v) * total for v, g in zip(y, grad, strict=True)]


def floated(x, kind):
    need(kind or x.dtype.kind == 2, "\"softmax_lastdim_kernel_impl\" not implemented for 'Long'")
    return x if kind is None else x.to(kind)


@both
def softmax(x, dim, dtype=None):
    return along(floated(x, dtype), dim, weights_of, weights_vjp)


@both
def log_softmax(x, dim, dtype=None):
    return along(floated(x, dtype), dim, logs_of, logs_vjp)


def running(name, f, vjp):
    def along_it(x, dim, *, dtype=None):
        x = x if dtype is None else x.to(dtype)
        return along(x, dim, lambda lane: list(accumulate(lane, f)), vjp, wide(x.dtype))

    both(along_it, name)


def products_vjp(lane, y, grad):
    n = len(lane)
    return [sum(grad[j] * math.prod(lane[:i] + lane[i + 1 : j + 1]) for j in range(i, n)) for i in range(n)]


running("cumsum", operator.add, lambda lane, y, grad: list(accumulate(grad[::-1]))[::-1])
running("cumprod", operator.mul, products_vjp)


@both
def argsort(x, dim=-1, descending=False, stable=False):
    def order(lane):
        return sorted(range(len(lane)), key=lambda i: (lane[i] != lane[i], lane[i]), reverse=descending)

    return along(x, dim, order, kind=int64)


@both
def sort(x, dim=-1, descending=False, stable=False):
    indices = argsort(x, dim, descending)
    return Pair(gather(x, dim, indices) if x.dim() else x, indices)


@both
def topk(x, k, dim=-1, largest=True, sorted=True):
    need(k <= x.shape[dim], "selected index k out of range")
    indices = argsort(x, dim, largest).narrow(dim, 0, k)
    return Pair(gather(x, dim, indices), indices.contiguous())


@both
def diff(x, n=1, dim=-1, prepend=None, append=None):
    x = cat([each for each in (prepend, x, append) if each is not None], dim)
    for _ in range(n):
        size = x.shape[dim_of(dim, x.dim())]
        x = x.narrow(dim, 1, size - 1) - x.narrow(dim, 0, size - 1)
    return x


@both
def norm(x, p=2, dim=None, keepdim=False, dtype=None):
    x = x if dtype is None else x.to(dtype)
    only_floats(x.dtype)
    if p in (INF, -INF):
        return (x.abs().amax if p > 0 else x.abs().amin)(dim, keepdim)
    if p not in (2, "fro", None):
        return (x.abs() ** p).sum(dim, keepdim) ** (1 / p)
    unit = lambda lane, y: [v / y if y else 0.0 for v in lane]  # noqa: E731
    return reduce(x, dim, keepdim, lambda lane: math.sqrt(dot_of(lane, lane)), unit)


# Places


@both
def nonzero(x, as_tuple=False):
    found = [list(place) for place, v in zip(product(*map(range, x.shape)), x.read(), strict=True) if v]
    result = made([i for place in found for i in place], (len(found), x.dim()), int64)
    return result.unbind(1) if as_tuple else result


def places_along(x, dim, index):
    """Return the place in x's array of each entry of an index, which counts along a dimension."""
    need(index.dtype is int64, "gather(): Expected dtype int64 for index")
    need(index.dim() == x.dim(), "Index tensor must have the same number of dimensions as input tensor")
    d, size = dim_of(dim, x.dim()), x.shape[dim]
    strides = [s if i != d else 0 for i, s in enumerate(x._strides)]
    found = []
    for place, at in zip(places_of(index.shape, tuple(strides), x._offset), index.read(), strict=True):
        if not 0 <= at < size:
            raise RuntimeError(f"index {at} is out of bounds for dimension {d} with size {size}")
        found.append(place + at * x._strides[d])
    return found


@both
def gather(x, dim, index):
    for d, (n, size) in enumerate(zip(index.shape, x.shape, strict=False)):
        if n > size and d != dim_of(dim, x.dim()):
            raise RuntimeError(
                f"Size does not match at dimension {d} expected index {list(index.shape)} to be no larger "
                f"than self {list(x.shape)} apart from dimension {dim_of(dim, x.dim())}"
            )
    return gathered(x, places_along(x, dim, index), index.shape)


def scatter(x, dim, index, src):
    source = src if isinstance(src, Tensor) else from_data(src, x.dtype).expand(index.shape)
    write(x, places_along(x, dim, index), source[tuple(map(slice, index.shape))])
    return x


def index_put(x, indices, values, accumulate=False):
    if accumulate:
        lacking("Tensor.index_put_(accumulate=True)")
    x[tuple(indices)] = values
    return x


def index_fill(x, dim, index, value):
    x[(slice(None),) * dim_of(dim, x.dim()) + (index,)] = value
    return x


def on_a_copy(f):
    return lambda x, *given, **named: f(x.clone(), *given, **named)


for _f in (scatter, index_put, index_fill):
    setattr(Tensor, f"{_f.__name__}_", _f)
    both(on_a_copy(_f), _f.__name__)


def triangle(name, keeps):
    def kept(x, diagonal=0):
        need(x.dim() > 1, f"{name}: input tensor must have at least 2 dimensions")
        rows, columns = x.shape[-2:]
        chosen = [keeps(j - i, diagonal) for i in range(rows) for j in range(columns)]
        return where(made(chosen, (rows, columns), bool_), x, False)

    both(kept, name)
    in_place(name)
    FUNCTIONS[f"{name}_indices"] = lambda row, col, offset=0: stack(
        kept(ones(row, col), offset).nonzero(as_tuple=True)
    )


triangle("tril", operator.le)
triangle("triu", operator.ge)


@both
def diag(x, diagonal=0):
    if x.dim() == 2:
        return x.diagonal(diagonal).clone()
    n = x.shape[0] + abs(diagonal)
    found = zeros(n, n, dtype=x.dtype)
    found.diagonal(diagonal).copy_(x)
    return found


@function
def searchsorted(edges, values, *, right=False, side=None, out_int32=False):
    find = bisect_right if right or side == "right" else bisect_left
    values = values if isinstance(values, Tensor) else from_data(values)
    rows = cut_into(edges.expand(*values.shape[:-1], edges.shape[-1]).read(), edges.shape[-1])
    each = values.shape[-1] if values.dim() else 1
    found = [find(rows[i // each], v) for i, v in enumerate(values.read())]
    return made(found, values.shape, DTYPES["int32"] if out_int32 else int64)


@both
def bincount(x, weights=None, minlength=0):
    values = x.read()
    counts = [values.count(i) for i in range(max(minlength, max(values, default=-1) + 1))]
    return from_data(counts, int64) if weights is None else lacking("torch.bincount(weights)")


@both
def unique(x, **named):
    return lacking(f"torch.unique({min(named)})") if named else from_data(sorted(set(x.read())), x.dtype)


# Products


def dot_of(row, column):
    try:
        return sumprod(row, column)
    except (OverflowError, ValueError):
        return sum(map(operator.mul, row, column))


@both
def matmul(a, b):
    if a.dtype is not b.dtype:
        names = {"float32": "float", "float64": "double", "int64": "long int", "bool": "bool", "int32": "int"}
        found = " != ".join(names.get(each.dtype.name, each.dtype.name) for each in (a, b))
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {found}")
    if not a.shape or not b.shape:
        found = f"{a.dim()}D and {b.dim()}D"
        raise RuntimeError(f"both arguments to matmul need to be at least 1D, but they are {found}")
    need(a.dtype is not bool_, "\"addmm_impl_cpu_\" not implemented for 'Bool'")
    left, right = a if len(a.shape) > 1 else a[None], b if len(b.shape) > 1 else b[:, None]
    (n, k), (k2, m) = left.shape[-2:], right.shape[-2:]
    if k != k2:
        if a.dim() == b.dim() == 1:
            raise RuntimeError(
                f"inconsistent tensor size, expected tensor [{k}] and src [{k2}] to have the same number of "
                f"elements, but got {k} and {k2} elements respectively"
            )
        flat = math.prod(left.shape[:-1]) if b.dim() == 2 else n
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({flat}x{k} and {k2}x{m})")
    batch = broadcast(left.shape[:-2], right.shape[:-2])
    left, right = left.expand(*batch, n, k), right.expand(*batch, k, m)
    count = math.prod(batch)
    rows = cut_into(left.read(), k) if k else [[]] * (count * n)
    columns = cut_into(transpose(right, -2, -1).read(), k) if k else [[]] * (count * m)
    found = [
        dot_of(row, column)
        for i in range(count)
        for row in rows[i * n : i * n + n]
        for column in columns[i * m : i * m + m]
    ]

    def vjp(grad):
        given = made(grad, (*batch, n, m), a.dtype)
        return [
            matmul(given, right.detach().mT).read() if left.is_tracked() else None,
            matmul(left.detach().mT, given).read() if right.is_tracked() else None,
        ]

    shape = [*batch, *([n] if len(a.shape) > 1 else []), *([m] if len(b.shape) > 1 else [])]
    return made(found, shape, a.dtype, (left, right), vjp)


Tensor.__matmul__ = lambda a, b: matmul(a, b) if isinstance(b, Tensor) else NotImplemented


def checked_product(name, dims, wrong):
    def product_(a, b):
        need((a.dim(), b.dim()) == (dims, dims), wrong.format(a.dim(), b.dim()))
        return matmul(a, b)

    both(product_, name)


checked_product("mm", 2, "self must be a matrix")
checked_product("bmm", 3, "batch1 must be a 3D tensor")
checked_product("dot", 1, "1D tensors expected, but got {}D and {}D tensors")
both(lambda a, b: a[:, None] * b, "outer")


@function
def einsum(equation, *tensors):
    tensors = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], tuple | list) else tensors
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    parts = inputs.split(",")
    if len(parts) != len(tensors):
        found = "more" if len(parts) < len(tensors) else "fewer"
        raise ValueError(f"einsum(): {found} operands were provided than specified in the equation")
    pairs = list(zip(parts, tensors, strict=True))
    n = max((each.dim() - len(part) + 3 for part, each in pairs if "..." in part), default=0)
    dots = "".join([c for c in string.ascii_letters if c not in equation][:n])
    parts = [part.replace("...", dots[n - each.dim() + len(part) - 3 :]) for part, each in pairs]
    joined = "".join(parts)
    if not arrow:
        output = dots + "".join(sorted(c for c in set(joined) if joined.count(c) == 1 and c not in dots))
    output = output.replace("...", dots)
    letters = output + "".join(dict.fromkeys(c for c in joined if c not in output))
    result = None
    for part, each in zip(parts, tensors, strict=True):
        if len(part) != each.dim():
            raise RuntimeError(
                f"einsum(): the number of subscripts in the equation ({len(part)}) does not match the number "
                f"of dimensions ({each.dim()}) for operand 0 and no ellipsis was given"
            )
        for c in [c for c in dict.fromkeys(part) if part.count(c) > 1]:
            i, j = part.index(c), part.rindex(c)
            each, part = each.diagonal(0, i, j), "".join(p for k, p in enumerate(part) if k not in (i, j)) + c
        order = [part.index(c) for c in letters if c in part]
        each = each.permute(order)[tuple(slice(None) if c in part else None for c in letters)]
        result = each if result is None else result * each
    dims = tuple(range(len(output), len(letters)))
    return result.sum(dims) if dims else result


# Comparing


both(lambda a, b: a.shape == b.shape and a.read() == b.read(), "equal")


@both
def isclose(a, b, rtol=1e-5, atol=1e-8, equal_nan=False):
    _, shape, _, (p, q) = operands(a, b)
    found = [
        x == y or abs(x - y) <= atol + rtol * abs(y) < INF or (equal_nan and x != x and y != y)
        for x, y in zip(p, q, strict=True)
    ]
    return made(found, shape, bool_)


@both
def allclose(a, b, rtol=1e-5, atol=1e-8, equal_nan=False):
    need(a.dtype is b.dtype, f"{TITLES[a.dtype.kind]} did not match {TITLES[b.dtype.kind]}")
    return bool(isclose(a, b, rtol, atol, equal_nan).all())


# Chance


class Generator:
    def __init__(self, device="cpu"):
        self._random = random.Random()
        self.device = CPU

    def manual_seed(self, seed):
        self._random.seed(int(seed))
        return self

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        lacking(f"torch.Generator.{name}")


default_generator = Generator()
function(lambda seed: default_generator.manual_seed(seed), "manual_seed")
QUANTILES = []


def normal(source, n):
    """Draw from the normal distribution, many at a time from 4096 of its quantiles."""
    if n < 1000:
        return [source.gauss(0, 1) for _ in range(n)]
    if not QUANTILES:
        QUANTILES.extend(NormalDist().inv_cdf((i + 0.5) / 4096) for i in range(4096))
    return source.choices(QUANTILES, k=n)


shaped("rand", lambda source, n: [source.getrandbits(24) / 2**24 for _ in range(n)])
shaped("randn", normal)


@function
def randint(low, high, size=None, *, generator=None, dtype=None, device=None):
    if size is None:
        low, high, size = 0, low, high
    source = (generator or default_generator)._random
    return made([source.randrange(int(low), int(high)) for _ in range(math.prod(size))], size, dtype or int64)


@function
def randperm(n, *, generator=None, dtype=None, device=None):
    order = list(range(n))
    (generator or default_generator)._random.shuffle(order)
    return made(order, (n,), dtype or int64)


@both
def multinomial(x, num_samples, replacement=False, *, generator=None):
    source, found = (generator or default_generator)._random, []
    for row in cut_into(x.read(), x.shape[-1]):
        row = list(row)
        for _ in range(num_samples):
            (i,) = source.choices(range(len(row)), row)
            found.append(i)
            row[i] = row[i] if replacement else 0.0
    return made(found, [*x.shape[:-1], num_samples], int64)


@method
def normal_(x, mean=0.0, std=1.0, *, generator=None):
    source = (generator or default_generator)._random
    return x.copy_(made([source.gauss(mean, std) for _ in range(x.numel())], x.shape, x.dtype))


@method
def uniform_(x, a=0.0, b=1.0, *, generator=None):
    source = (generator or default_generator)._random
    return x.copy_(made([source.uniform(a, b) for _ in range(x.numel())], x.shape, x.dtype))


# Gradients, and functions of functions


def set_grad(enabled):
    """Make a context, and a decorator, in which gradients are recorded or not."""

    @contextmanager
    def context():
        before, core.ENABLED[0] = core.ENABLED[0], enabled
        try:
            yield
        finally:
            core.ENABLED[0] = before

    return lambda function=None: context()(function) if callable(function) else context()


@function
def vmap(func, in_dims=0, out_dims=0):
    def mapped(*given):
        dims = in_dims if isinstance(in_dims, tuple) else (in_dims,) * len(given)
        slices = [each.unbind(d) if d is not None else None for each, d in zip(given, dims, strict=True)]
        n = len(next(each for each in slices if each is not None))
        found = [
            func(*(one if part is None else part[i] for one, part in zip(given, slices, strict=True)))
            for i in range(n)
        ]
        if isinstance(found[0], tuple):
            return tuple(stack(list(each), out_dims) for each in zip(*found, strict=True))
        return stack(found, out_dims)

    return mapped


def grad(
    outputs, inputs, weights=None, retain_graph=None, *, allow_unused=None, materialize_grads=False, **named
):
    if named.pop("create_graph", False):
        lacking("torch.autograd.grad(create_graph=True)")
    outputs, inputs, weights = (
        [each] if isinstance(each, Tensor) or each is None else list(each)
        for each in (outputs, inputs, named.get("grad_outputs", weights))
    )
    if not all(each.is_tracked() for each in inputs):
        raise RuntimeError("One of the differentiated Tensors does not require grad")
    found, results = grads_of(outputs, weights), []
    for each in inputs:
        values = found.get(each._storage)
        if values is None and not (allow_unused or materialize_grads):
            raise RuntimeError(
                "One of the differentiated Tensors appears to not have been used in the graph. "
                "Set allow_unused=True if this is the desired behavior."
            )
        if values is not None:
            results.append(made([values[place] for place in each.places()], each.shape, each.dtype))
        else:
            results.append(zeros(each.shape, dtype=each.dtype) if materialize_grads else None)
    return tuple(results)


def jacobian(func, inputs):
    given = inputs.detach().clone().requires_grad_()
    output, rows = func(given), []
    for weight in eye(output.numel(), dtype=output.dtype):
        weights = weight.reshape(output.shape)
        found = output.is_tracked() and grad(output, given, weights, materialize_grads=True)
        rows.append(found[0] if found else zeros(given.shape))
    return stack(rows).reshape(*output.shape, *given.shape)


Factors = namedtuple("Factors", "U S Vh")


def svd(x, full_matrices=True):
    """Return U, S and V transposed, by rotations of pairs of columns (one-sided Jacobi)."""
    if x.dim() != 2 or (full_matrices and x.shape[0] != x.shape[1]):
        lacking("torch.linalg.svd of a batch, or with full_matrices")
    if x.shape[0] < x.shape[1]:
        u, s, vh = svd(x.T, False)
        return Factors(vh.T, s, u.T)
    columns = [list(column) for column in zip(*x.detach().double().tolist(), strict=True)]
    turns = [[float(i == j) for j in range(len(columns))] for i in range(len(columns))]
    for _ in range(40):
        for i, j in combinations(range(len(columns)), 2):
            a, b = columns[i], columns[j]
            p, q, r = dot_of(a, a), dot_of(b, b), dot_of(a, b)
            if r * r > 1e-30 * p * q:
                angle = math.atan2(2 * r, p - q) / 2
                c, s = math.cos(angle), math.sin(angle)
                for each in (columns, turns):
                    a, b = each[i], each[j]
                    each[i] = [c * v + s * w for v, w in zip(a, b, strict=True)]
                    each[j] = [c * w - s * v for v, w in zip(a, b, strict=True)]
    lengths = [math.sqrt(dot_of(column, column)) for column in columns]
    order = sorted(range(len(columns)), key=lambda i: -lengths[i])
    u = [[v / lengths[i] if lengths[i] else 0.0 for v in columns[i]] for i in order]
    factors = (u, [lengths[i] for i in order], [turns[i] for i in order])
    u, s, vh = (from_data(each, x.dtype) for each in factors)
    return Factors(u.T, s, vh)


def matrix_norm(x, ord="fro", dim=(-2, -1), keepdim=False):
    if ord not in ("fro", 2):
        lacking(f"torch.linalg.matrix_norm(ord={ord!r})")
    return norm(x, 2, dim, keepdim) if ord == "fro" else svd(x, False)[1].amax()
