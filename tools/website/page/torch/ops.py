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
    INF,
    NAN,
    Tensor,
    bool_,
    broadcast,
    contiguous,
    converted,
    dim_of,
    dims_of,
    dtype,
    float32,
    float64,
    from_data,
    gathered,
    grads_of,
    int64,
    made,
    places_of,
    promote_types,
    stored,
    sumprod,
    view,
    write,
)
from .names import lacking

FUNCTIONS = {}  # of torch, by name


def function(made, name=None):
    made.__name__ = name or made.__name__
    FUNCTIONS[made.__name__] = made
    return made


def both(made, name=None):
    """Make a function of torch that is a method of a tensor too."""
    function(made, name)
    setattr(Tensor, made.__name__, made)
    return made


def method(made):
    setattr(Tensor, made.__name__, made)
    return made


def alias(**names):
    for name, old in names.items():
        if old in FUNCTIONS:
            FUNCTIONS[name] = FUNCTIONS[old]
        if hasattr(Tensor, old):
            setattr(Tensor, name, getattr(Tensor, old))


def sizes(given):
    given = given[0] if len(given) == 1 and isinstance(given[0], tuple | list) else given
    return tuple(map(operator.index, given))


# Views


@method
def expand(x, *shape):
    shape = sizes(shape)
    return x if shape == x.shape else view(x, *core.stretched(x.shape, x._strides, shape), x._offset)


@both
def permute(x, *dims):
    order = [dim_of(d, x.dim()) for d in sizes(dims)]
    if sorted(order) != list(range(x.dim())):
        raise RuntimeError(
            f"permute: the tensor has {x.dim()} dimensions, and the order that is asked for is {order}"
        )
    return view(x, [x.shape[d] for d in order], [x._strides[d] for d in order], x._offset)


@both
def transpose(x, dim0, dim1):
    shape, strides, dims = list(x.shape), list(x._strides), len(x.shape)
    if dims:
        i, j = dim_of(dim0, dims), dim_of(dim1, dims)
        shape[i], shape[j], strides[i], strides[j] = shape[j], shape[i], strides[j], strides[i]
    return view(x, shape, strides, x._offset)


@both
def t(x):
    return x if x.dim() < 2 else transpose(x, 0, 1)


Tensor.T = property(lambda x: permute(x, list(range(x.dim()))[::-1]))
Tensor.mT = property(lambda x: transpose(x, -2, -1))


@both
def movedim(x, source, destination):
    order = list(range(x.dim()))
    order.remove(d := dim_of(source, x.dim()))
    order.insert(dim_of(destination, x.dim()), d)
    return permute(x, order)


@both
def select(x, dim, index):
    return x[(slice(None),) * dim_of(dim, x.dim()) + (index,)]


@both
def unsqueeze(x, dim):
    return x[(slice(None),) * dim_of(dim, x.dim() + 1) + (None,)]


@both
def squeeze(x, dim=None):
    gone = [d for d in dims_of(dim, x.dim()) if x.shape[d] == 1]
    kept = [d for d in range(x.dim()) if d not in gone]
    return view(x, [x.shape[d] for d in kept], [x._strides[d] for d in kept], x._offset)


@both
def narrow(x, dim, start, length):
    return select(x, dim, slice(int(start), int(start) + int(length)))


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
    n = (x.shape[d] - size) // step + 1
    if n < 1:
        raise RuntimeError(f"maximum size for tensor at dimension {d} is {x.shape[d]} but size is {size}")
    shape, strides = list(x.shape), list(x._strides)
    shape[d], strides[d] = n, x._strides[d] * step
    return view(x, [*shape, size], [*strides, x._strides[d]], x._offset)


def filled_in(shape, numel):
    shape = list(shape)
    if shape.count(-1) > 1:
        raise RuntimeError("only one dimension can be inferred")
    known = math.prod(n for n in shape if n != -1)
    if -1 in shape and known and numel % known == 0:
        shape[shape.index(-1)] = numel // known
    if math.prod(shape) != numel or -1 in shape:
        raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {numel}")
    return tuple(shape)


def viewed(x, shape):
    """Return a view of another shape, or None if no strides lead to the same places."""
    if x.is_contiguous():
        return view(x, shape, contiguous(shape), x._offset)
    places = x.places()
    strides = [
        places[step] - places[0] if n > 1 else 1 for n, step in zip(shape, contiguous(shape), strict=True)
    ]
    found = view(x, shape, strides, x._offset)
    return found if found.places() == places else None


def viewing(x, *shape):
    if len(shape) == 1 and isinstance(shape[0], dtype):
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


Tensor.view_as = lambda x, other: x.view(other.shape)
Tensor.reshape_as = lambda x, other: x.reshape(other.shape)
Tensor.expand_as = lambda x, other: x.expand(other.shape)


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
def unbind(x, dim=0):
    return tuple(select(x, dim, i) for i in range(x.shape[dim_of(dim, x.dim())]))


@both
def split(x, split_size, dim=0):
    n = x.shape[dim_of(dim, x.dim())]
    if isinstance(split_size, int):
        split_size = [min(split_size, n - i) for i in range(0, n, split_size)]
    if sum(split_size) != n:
        raise RuntimeError(
            f"split_with_sizes expects split_sizes to sum exactly to {n}, but got {list(split_size)}"
        )
    starts = accumulate(split_size, initial=0)
    return tuple(narrow(x, dim, start, size) for start, size in zip(starts, split_size, strict=False))


@both
def chunk(x, chunks, dim=0):
    return split(x, max(1, -(-x.shape[dim_of(dim, x.dim())] // chunks)), dim)


@both
def broadcast_to(x, size):
    return x.expand(size)


# Copies


@both
def clone(x, memory_format=None):
    return made(x.read(), x.shape, x.dtype, [x], lambda grad: [grad])


Tensor.contiguous = lambda x, memory_format=None: x if x.is_contiguous() else x.clone()


@method
def to(x, *given, dtype=None, device=None, copy=False, non_blocking=False):
    for each in given:
        if isinstance(each, Tensor):
            dtype = each.dtype
        elif isinstance(each, core.dtype):
            dtype = each
        elif isinstance(each, str):
            core.device(each)
    if dtype is None or dtype is x.dtype:
        return x.clone() if copy else x
    return made(converted(x.read(), x.dtype, dtype), x.shape, dtype, [x], lambda grad: [grad])


Tensor.type_as = lambda x, other: x.to(other.dtype)
Tensor.cpu = lambda x: x
for _name, _kind in {
    "bool": "bool",
    "int": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "bfloat16": "bfloat16",
}.items():
    setattr(Tensor, _name, lambda x, kind=core.DTYPES[_kind]: x.to(kind))


@method
def copy_(x, other, non_blocking=False):
    write(x, x.places(), (other if isinstance(other, Tensor) else from_data(other, x.dtype)).expand(x.shape))
    return x


Tensor.fill_ = copy_
Tensor.zero_ = lambda x: x.copy_(0)


def in_place(name):
    def changed(x, *given, **named):
        found = getattr(x, name)(*given, **named)
        if found.shape != x.shape:
            raise RuntimeError(
                f"output with shape {list(x.shape)} doesn't match the broadcast shape {list(found.shape)}"
            )
        if found.dtype.kind > x.dtype.kind:
            raise RuntimeError(
                f"result type {TITLES[found.dtype.kind]} can't be cast to {TITLES[x.dtype.kind]}"
            )
        return x.copy_(found)

    setattr(Tensor, f"{name}_", changed)


TITLES = ("Bool", "Long", "Float")


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


zeros, ones, _ = (
    shaped(name, lambda _, n, v=v: [v] * n) for name, v in (("zeros", 0), ("ones", 1), ("empty", 0))
)


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
    whole = all(isinstance(each, int) for each in (start, end, step))
    if step == 0 or (end - start) * step < 0:
        raise RuntimeError(
            "step must be nonzero" if step == 0 else "upper bound and lower bound inconsistent with step sign"
        )
    values = [start + i * step for i in range(math.ceil((end - start) / step))]
    kind = dtype or (int64 if whole else float32)
    return made(converted(values, int64 if whole else float64, kind), (len(values),), kind)


@function
def linspace(start, end, steps, *, dtype=None, device=None, requires_grad=False):
    start, end, steps = float(start), float(end), int(steps)
    values = [start + (end - start) * i / max(1, steps - 1) for i in range(steps)]
    kind = dtype or float32
    return made(converted(values, float64, kind), (steps,), kind)


@function
def eye(n, m=None, *, dtype=None, device=None, requires_grad=False):
    m = n if m is None else m
    return made([int(i == j) for i in range(n) for j in range(m)], (n, m), dtype or float32)


@function
def cat(tensors, dim=0):
    tensors = list(tensors)
    if not tensors:
        raise RuntimeError("torch.cat(): expected a non-empty list of Tensors")
    for i, each in enumerate(tensors):
        if not isinstance(each, Tensor):
            raise TypeError(f"expected Tensor as element {i} in argument 0, but got {type(each).__name__}")
        if not each.shape:
            raise RuntimeError(f"zero-dimensional tensor (at position {i}) cannot be concatenated")
    tensors = [each for each in tensors if each.shape != (0,)] or tensors[:1]
    d, first, kind = dim_of(dim, tensors[0].dim()), tensors[0].shape, tensors[0].dtype
    for i, each in enumerate(tensors):
        kind = promote_types(kind, each.dtype)
        if each.dim() != len(first) or each.shape[:d] + each.shape[d + 1 :] != first[:d] + first[d + 1 :]:
            raise RuntimeError(
                f"Sizes of tensors must match except in dimension {d}. Expected shape {list(first)} "
                f"but got {list(each.shape)} for tensor number {i} in the list."
            )
    rows, runs = math.prod(first[:d]), [math.prod(each.shape[d:]) for each in tensors]
    lists = [each.read() for each in tensors]
    values = [
        v for r in range(rows) for part, n in zip(lists, runs, strict=True) for v in part[r * n : r * n + n]
    ]

    def vjp(grad):
        lines, ends = cut_into(grad, sum(runs)), list(accumulate(runs))
        return [[v for line in lines for v in line[end - n : end]] for n, end in zip(runs, ends, strict=True)]

    shape = [*first[:d], sum(each.shape[d] for each in tensors), *first[d + 1 :]]
    return made(values, shape, kind, tensors, vjp)


@function
def stack(tensors, dim=0):
    tensors = list(tensors)
    if not tensors:
        raise RuntimeError("stack expects a non-empty TensorList")
    for i, each in enumerate(tensors):
        if not isinstance(each, Tensor):
            raise TypeError(f"expected Tensor as element {i} in argument 0, but got {type(each).__name__}")
        if each.shape != tensors[0].shape:
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(tensors[0].shape)} at entry 0 "
                f"and {list(each.shape)} at entry {i}"
            )
    return cat([unsqueeze(each, dim) for each in tensors], dim)


@function
def hstack(tensors):
    tensors = [each.reshape(1) if not each.shape else each for each in tensors]
    return cat(tensors, 0 if tensors[0].dim() == 1 else 1)


@function
def vstack(tensors):
    return cat([each.reshape(1, -1) if each.dim() < 2 else each for each in tensors], 0)


@method
def repeat(x, *times):
    times = sizes(times)
    if len(times) < x.dim():
        raise RuntimeError(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor"
        )
    x = x.reshape((1,) * (len(times) - x.dim()) + tuple(x.shape))
    wide = x[tuple(each for _ in times for each in (None, slice(None)))]
    wide = wide.expand([n for k, size in zip(times, x.shape, strict=True) for n in (k, size)])
    return wide.clone().reshape([k * size for k, size in zip(times, x.shape, strict=True)])


@both
def tile(x, *times):
    times = sizes(times)
    return x.repeat((1,) * (x.dim() - len(times)) + times)


@both
def repeat_interleave(x, repeats, dim=None, output_size=None):
    if dim is None:
        x, dim = x.flatten(), 0
    n = x.shape[dim_of(dim, x.dim())]
    times = repeats.expand(n).tolist() if isinstance(repeats, Tensor) else [repeats] * n
    return select(x, dim, tensor([i for i, k in enumerate(times) for _ in range(k)], dtype=int64))


alias(index_select="select")


@both
def flip(x, *dims):
    for d in dims_of(sizes(dims), x.dim()):
        x = select(x, d, arange(x.shape[d] - 1, -1, -1))
    return x.clone() if not dims else x


@both
def roll(x, shifts, dims=None):
    if dims is None:
        return roll(x.flatten(), shifts, 0).reshape(x.shape)
    pairs = zip(shifts, dims, strict=True) if isinstance(shifts, tuple | list) else [(shifts, dims)]
    for shift, d in pairs:
        n = x.shape[dim_of(d, x.dim())]
        x = select(x, d, tensor([(i - int(shift)) % n for i in range(n)], dtype=int64))
    return x


# One number at a time


def constant(value):
    return lambda *given: value


def each(name, plain, careful=None, slope=None, floats=True):
    """Make a function of each number: `careful` where `plain` raises, `slope(x, y)` its derivative."""

    slope = slope or constant(0.0)

    def mapped(x, *, out=None):
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(x).__name__}")
        values, kind = x.read(), float32 if floats and x.dtype.kind != 2 else x.dtype
        found = carefully(plain, careful, values)

        def vjp(grad):
            return [[g * slope(a, b) if g else 0.0 for g, a, b in zip(grad, values, found, strict=True)]]

        return made(found, x.shape, kind, [x], vjp)

    both(mapped, name)
    in_place(name)


def carefully(plain, careful, *values):
    try:
        return list(map(plain, *values))
    except (ArithmeticError, ValueError):
        return list(map(careful or plain, *values))


def safe_exp(v):
    return math.exp(v) if v < 709 else v if v != v else INF


def safe_log(log):
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


each("exp", math.exp, safe_exp, lambda x, y: y)
each("exp2", lambda v: 2.0**v, lambda v: 2.0**v if v < 1024 else INF, lambda x, y: y * math.log(2))
each("log", math.log, safe_log(math.log), lambda x, y: over(1, x))
each("log2", math.log2, safe_log(math.log2), lambda x, y: over(1 / math.log(2), x))
each("log1p", math.log1p, lambda v: safe_log(math.log)(1 + v), lambda x, y: over(1, 1 + x))
each("sqrt", math.sqrt, lambda v: math.sqrt(v) if v >= 0 else NAN, lambda x, y: over(0.5, y))
each(
    "rsqrt",
    lambda v: 1 / math.sqrt(v),
    lambda v: over(1, math.sqrt(v)) if v >= 0 else NAN,
    lambda x, y: over(-0.5 * y, x),
)
each("sin", math.sin, bounded(math.sin), lambda x, y: math.cos(x))
each("cos", math.cos, bounded(math.cos), lambda x, y: -math.sin(x))
each("tanh", math.tanh, None, lambda x, y: 1 - y * y)
each("erf", math.erf, None, lambda x, y: 2 / math.sqrt(math.pi) * safe_exp(-x * x))
each("sigmoid", lambda v: 1 / (1 + safe_exp(-v)), None, lambda x, y: y * (1 - y))
each("deg2rad", math.radians, None, constant(math.pi / 180))
each("reciprocal", lambda v: 1 / v, lambda v: over(1, v), lambda x, y: -y * y)
each("abs", abs, None, lambda x, y: (x > 0) - (x < 0), floats=False)
each("neg", operator.neg, None, constant(-1.0), floats=False)
each("relu", lambda v: v if v > 0 or v != v else 0, None, lambda x, y: float(x > 0), floats=False)
each("sign", lambda v: (v > 0) - (v < 0), floats=False)
for _name, _f in {"floor": math.floor, "ceil": math.ceil, "trunc": math.trunc, "round": round}.items():
    each(_name, whole(_f), floats=False)
to_whole = FUNCTIONS["round"]


def round_(x, *, decimals=0):
    return to_whole(x * 10.0**decimals) / 10.0**decimals if decimals else to_whole(x)


both(round_, "round")


@both
def square(x):
    return x * x


def test(name, f):
    def tested(x):
        return made(list(map(f, x.read())), x.shape, bool_)

    both(tested, name)


test("isnan", lambda v: v != v)
test("isinf", lambda v: abs(v) == INF)
test("isfinite", lambda v: v - v == 0)
test("isneginf", lambda v: v == -INF)
test("isposinf", lambda v: v == INF)
test("logical_not", operator.not_)


@both
def nan_to_num(x, nan=0.0, posinf=None, neginf=None):
    if x.dtype.kind != 2:
        return x.clone()
    most = finfo(x.dtype).max
    put = {INF: most if posinf is None else posinf, -INF: -most if neginf is None else neginf}
    values = x.read()
    found = [v if v - v == 0 else put.get(v, nan) for v in values]

    def vjp(grad):
        return [[g if v - v == 0 else 0.0 for g, v in zip(grad, values, strict=True)]]

    return made(found, x.shape, x.dtype, (x,), vjp)


class finfo:  # noqa: N801
    def __init__(self, kind=float32):
        bits, low = {"float64": (52, 1022), "float32": (23, 126), "float16": (10, 14), "bfloat16": (7, 126)}[
            kind.name
        ]
        self.eps, self.tiny, self.max = 2.0**-bits, 2.0**-low, (2 - 2.0**-bits) * 2.0 ** (low + 1)
        self.min, self.smallest_normal, self.bits = -self.max, self.tiny, 8 * kind.itemsize


class iinfo:  # noqa: N801
    def __init__(self, kind=int64):
        self.bits = 8 * kind.itemsize
        self.max = 2 ** (self.bits - kind.is_signed) - 1
        self.min = -self.max - 1 if kind.is_signed else 0


# Two at a time


def pair(a, b):
    """Return two operands of one shape, None for a number; their shape and dtype, and their values."""
    kind, shape = core.result_type(a, b), broadcast(*(each.shape if isinstance(each, Tensor) else () for each in (a, b)))
    operands = []
    for each in (a, b):
        if isinstance(each, Tensor):
            each = each if each.shape == shape else each.expand(shape)
            operands.append((each, each.read()))
        else:
            operands.append((None, [float(each) if kind.kind == 2 else int(each)] * math.prod(shape)))
    (a, p), (b, q) = operands
    return a, b, shape, kind, p, q


def floats(kind):
    return kind if kind.kind == 2 else float32


def comparison(kind):
    return bool_


def two(name, plain, careful=None, slopes=None, kind_of=None, symbol=None):
    """Make a function of two numbers; `slopes` has a derivative for each, of (a, b, y)."""

    def mapped(a, b, *, alpha=1, out=None):
        rounds = kind_of is comparison and isinstance(b, float)
        a, b, shape, kind, p, q = pair(a, b if alpha == 1 else b * alpha)
        q = stored(q, kind) if rounds else q
        kind = kind_of(kind) if kind_of else kind
        found = carefully(plain, careful, p, q)

        def vjp(grad):
            every = list(zip(grad, p, q, found, strict=True))
            return [
                [g * slope(x, y, z) if g else 0.0 for g, x, y, z in every] if wanted is not None else None
                for wanted, slope in zip((a, b), slopes, strict=True)
            ]

        return made(found, shape, kind, (a, b) if slopes else (), vjp)

    both(mapped, name)
    in_place(name)
    if symbol:
        operators(symbol, mapped)


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


def floor_of(a, b):
    if b == 0 and isinstance(a, int) and isinstance(b, int):
        raise RuntimeError("ZeroDivisionError")
    return a // b if b and math.isfinite(a) else over(a, b)


def remainder_of(a, b):
    if b == 0 and isinstance(a, int) and isinstance(b, int):
        raise RuntimeError("ZeroDivisionError")
    return a % b if b and math.isfinite(a) else NAN


def power_of(a, b):
    if isinstance(a, int) and isinstance(b, int):
        if b < 0:
            raise RuntimeError("Integers to negative integer powers are not allowed.")
        return a**b
    try:
        return math.pow(a, b)
    except OverflowError:
        return -INF if a < 0 and b % 2 == 1 else INF
    except ValueError:
        return math.copysign(INF, a) if a == 0 and b % 2 == 1 else INF if a == 0 else NAN


def power_slope(a, b, y):
    return b * power_of(float(a), b - 1) if b else 0.0


def larger(a, b):
    return a if a > b or a != a else b


def smaller(a, b):
    return a if a < b or a != a else b


def share(a, b, y):
    return 0.5 if a == b else float(a == y)


two("add", operator.add, None, (constant(1.0), constant(1.0)), symbol="add")
two("sub", operator.sub, None, (constant(1.0), constant(-1.0)))
two("mul", operator.mul, None, (lambda a, b, y: b, lambda a, b, y: a), symbol="mul")
two(
    "div",
    operator.truediv,
    over,
    (lambda a, b, y: over(1, b), lambda a, b, y: over(-y, b)),
    floats,
    "truediv",
)
two("remainder", remainder_of, None, (constant(1.0), lambda a, b, y: -(a // b)), symbol="mod")
two("floor_divide", floor_of, None, (constant(0.0), constant(0.0)), symbol="floordiv")
two(
    "pow",
    power_of,
    None,
    (power_slope, lambda a, b, y: y * safe_log(math.log)(a) if y else 0.0),
    symbol="pow",
)
two("maximum", larger, None, (share, lambda a, b, y: share(b, a, y)))
two("minimum", smaller, None, (share, lambda a, b, y: share(b, a, y)))
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
Tensor.__neg__, Tensor.__pos__, Tensor.__abs__ = Tensor.neg, lambda x: x, Tensor.abs


def no_floats(kind):
    if kind.kind == 2:
        raise RuntimeError("\"bitwise_cpu\" not implemented for 'Float'")
    return kind


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    two(_name, getattr(operator, _name), kind_of=comparison)
    setattr(Tensor, f"__{_name}__", guarded(FUNCTIONS[_name]))
for _name in ("and", "or", "xor"):
    two(f"bitwise_{_name}", getattr(operator, f"__{_name}__"), kind_of=no_floats, symbol=_name)
two("logical_and", lambda a, b: bool(a and b), kind_of=comparison)
two("logical_or", lambda a, b: bool(a or b), kind_of=comparison)
two("logical_xor", lambda a, b: bool(a) != bool(b), kind_of=comparison)
Tensor.__hash__ = lambda x: id(x)
alias(greater="gt", greater_equal="ge", less="lt", less_equal="le", not_equal="ne")


@both
def bitwise_not(x):
    return x.logical_not() if x.dtype is bool_ else made([~v for v in x.read()], x.shape, no_floats(x.dtype))


Tensor.__invert__ = bitwise_not


@both
def clamp(x, min=None, max=None):
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    x = x if min is None else where(x < min, min, x)
    return x if max is None else where(x > max, max, x)


in_place("clamp")
alias(clip="clamp", clip_="clamp_")


@function
def where(condition, a=None, b=None):
    if a is None:
        return tuple(condition.nonzero().unbind(1))
    if condition.dtype is not bool_:
        raise RuntimeError(
            f"where expected condition to be a boolean tensor, but got dtype {TITLES[condition.dtype.kind]}"
        )
    a, b, shape, kind, p, q = pair(a, b)
    if condition.shape != shape:
        shape = broadcast(condition.shape, shape)
        a, p = (None, p[:1] * math.prod(shape)) if a is None else (a := a.expand(shape), a.read())
        b, q = (None, q[:1] * math.prod(shape)) if b is None else (b := b.expand(shape), b.read())
    chosen = condition.expand(shape).read()
    found = [x if c else y for c, x, y in zip(chosen, p, q, strict=True)]

    def vjp(grad):
        yes = [g if c else 0.0 for c, g in zip(chosen, grad, strict=True)]
        return [yes, [0.0 if c else g for c, g in zip(chosen, grad, strict=True)]]

    return made(found, shape, kind, [a, b], vjp)


Tensor.where = lambda x, condition, other: where(condition, x, other)


@both
def masked_fill(x, mask, value):
    if mask.dtype is not bool_:
        raise RuntimeError(
            "masked_fill_ only supports boolean masks, but got mask with dtype " + mask.dtype.name
        )
    value = value if isinstance(value, Tensor) else from_data(value)
    return where(mask, value.to(x.dtype), x)


@method
def masked_fill_(x, mask, value):
    return x.copy_(masked_fill(x, mask, value))


@both
def masked_select(x, mask):
    return x[mask.expand(x.shape)]


# Along a dimension


def reduce(x, dim, keepdim, f, slope=None, kind=None):
    """Replace each lane along some dimensions by f(lane), whose gradient is slope(lane, y)."""
    dims = dims_of(dim, x.dim())
    kept = [d for d in range(len(x.shape)) if d not in dims]
    turned = x if (*kept, *dims) == tuple(range(len(x.shape))) else permute(x, [*kept, *dims])
    n = math.prod([x.shape[d] for d in dims])
    values, left = turned.read(), turned.shape[: len(kept)]
    cut = [values[i * n : i * n + n] for i in range(math.prod(left))]
    found = [f(lane) for lane in cut]
    shape = [1 if d in dims else n for d, n in enumerate(x.shape)] if keepdim else left

    def vjp(grad):
        return [[g * s for g, lane, y in zip(grad, cut, found, strict=True) for s in slope(lane, y)]]

    return made(found, shape, kind or x.dtype, [turned] if slope else [], vjp)


def reduction(name, f, slope=None, kind=None, check=None):
    def reduced(x, dim=None, keepdim=False, *, axis=None, keepdims=False, dtype=None, out=None):
        dim, keepdim = axis if dim is None else dim, keepdim or keepdims  # NumPy's names are PyTorch's too
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(x).__name__}")
        x = x if dtype is None else x.to(dtype)
        if check:
            check(x)
        return reduce(x, dim, keepdim, f, slope, kind and kind(x.dtype))

    both(reduced, name)


def floats_only(name):
    def check(x):
        if x.dtype.kind != 2:
            raise RuntimeError(
                f"{name}(): could not infer output dtype. Input dtype must be either a floating point "
                f"or complex dtype. Got: {TITLES[x.dtype.kind]}"
            )

    return check


def sum_of(lane):
    return sumprod(lane, [1] * len(lane))


def middle(lane):
    return over(sum_of(lane), len(lane))


def most(lane):
    return NAN if any(v != v for v in lane) else biggest(lane)


def least(lane):
    return NAN if any(v != v for v in lane) else smallest(lane)


biggest, smallest, summed = max, min, sum


def evenly(lane, y):
    n = summed(v == y for v in lane) or 1
    return [(v == y) / n for v in lane]


def without_each(lane, y):
    return [math.prod(lane[:i] + lane[i + 1 :]) for i in range(len(lane))]


def wide(kind):
    return kind if kind.kind == 2 else int64


reduction("sum", sum_of, lambda lane, y: [1.0] * len(lane), wide)
reduction("mean", middle, lambda lane, y: [1 / len(lane)] * len(lane), None, floats_only("mean"))
reduction("prod", math.prod, without_each, wide)
reduction("amax", most, evenly)
reduction("amin", least, evenly)
reduction("any", any, None, lambda kind: bool_)
reduction("all", all, None, lambda kind: bool_)
reduction("count_nonzero", lambda lane: summed(v != 0 for v in lane), None, lambda kind: int64)


def exp_sum(lane):
    top = most(lane)
    return top if not math.isfinite(top) else top + math.log(summed(math.exp(v - top) for v in lane))


reduction("logsumexp", exp_sum, lambda lane, y: [safe_exp(v - y) for v in lane])


@both
def var(x, dim=None, unbiased=None, keepdim=False, *, correction=1):
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    correction = correction if unbiased is None else int(unbiased)

    def spread(lane):
        center = middle(lane)
        return over(sum_of([(v - center) ** 2 for v in lane]), max(0, len(lane) - correction))

    def slope(lane, y):
        center = middle(lane)
        return [over(2 * (v - center), len(lane) - correction) for v in lane]

    return reduce(x, dim, keepdim, spread, slope)


@both
def std(x, dim=None, unbiased=None, keepdim=False, *, correction=1):
    return var(x, dim, unbiased, keepdim, correction=correction).sqrt()


Pair = namedtuple("Pair", "values indices")


def first_at(lane, top):
    nan = next((i for i, v in enumerate(lane) if v != v), None)
    return lane.index(top(lane)) if nan is None else nan


def extreme(name, top, pairwise):
    def at(x, dim=None, keepdim=False):
        if dim is None:
            return tensor(first_at(x.read(), top), dtype=int64)
        return reduce(x, dim, keepdim, lambda lane: first_at(lane, top), kind=int64)

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


extreme("max", biggest, FUNCTIONS["maximum"])
extreme("min", smallest, FUNCTIONS["minimum"])


def along(x, dim, f, vjp_of=None, kind=None):
    """Replace each lane along a dimension by f(lane); `vjp_of(lane, new, grads)` gives gradients."""
    d, dims = dim_of(dim, len(x.shape)), len(x.shape)
    last = x if d == dims - 1 else movedim(x, d, -1) if dims else x[None]
    cut = cut_into(last.read(), last.shape[-1])
    found = [f(lane) for lane in cut]

    def vjp(grad):
        parts = zip(cut, found, cut_into(grad, last.shape[-1]), strict=True)
        return [[v for lane, y, given in parts for v in vjp_of(lane, y, given)]]

    values = [v for lane in found for v in lane]
    result = made(values, last.shape, kind or x.dtype, [last] if vjp_of else [], vjp)
    return result if d == dims - 1 else movedim(result, -1, d).contiguous() if dims else result[0]


def weights_of(lane):
    if not lane:
        return []
    top = most(lane)
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
    if kind is None and x.dtype.kind != 2:
        raise RuntimeError("\"softmax_lastdim_kernel_impl\" not implemented for 'Long'")
    return x if kind is None else x.to(kind)


@both
def softmax(x, dim, dtype=None):
    return along(floated(x, dtype), dim, weights_of, weights_vjp)


@both
def log_softmax(x, dim, dtype=None):
    return along(floated(x, dtype), dim, logs_of, logs_vjp)


def back_sums(lane, y, grad):
    return list(accumulate(grad[::-1]))[::-1]


@both
def cumsum(x, dim, *, dtype=None):
    x = x if dtype is None else x.to(dtype)
    return along(x, dim, lambda lane: list(accumulate(lane)), back_sums, wide(x.dtype))


@both
def cumprod(x, dim, *, dtype=None):
    x = x if dtype is None else x.to(dtype)

    def vjp(lane, y, grad):
        return [
            summed(grad[j] * math.prod(lane[:i] + lane[i + 1 : j + 1]) for j in range(i, len(lane)))
            for i in range(len(lane))
        ]

    return along(x, dim, lambda lane: list(accumulate(lane, operator.mul)), vjp, wide(x.dtype))


def order_of(lane, descending):
    return sorted(range(len(lane)), key=lambda i: (lane[i] != lane[i], lane[i]), reverse=descending)


@both
def argsort(x, dim=-1, descending=False, stable=False):
    return along(x, dim, lambda lane: order_of(lane, descending), kind=int64)


@both
def sort(x, dim=-1, descending=False, stable=False):
    indices = argsort(x, dim, descending)
    return Pair(gather(x, dim, indices) if x.dim() else x, indices)


@both
def topk(x, k, dim=-1, largest=True, sorted=True):
    if k > x.shape[dim]:
        raise RuntimeError("selected index k out of range")
    indices = narrow(argsort(x, dim, largest), dim, 0, k)
    return Pair(gather(x, dim, indices), indices.contiguous())


@both
def diff(x, n=1, dim=-1, prepend=None, append=None):
    parts = [each for each in (prepend, x, append) if each is not None]
    x = cat(parts, dim) if len(parts) > 1 else x
    for _ in range(n):
        size = x.shape[dim_of(dim, x.dim())]
        x = narrow(x, dim, 1, size - 1) - narrow(x, dim, 0, size - 1)
    return x


def unit(lane, y):
    return [v / y if y else 0.0 for v in lane]


@both
def norm(x, p=2, dim=None, keepdim=False, dtype=None):
    x = x if dtype is None else x.to(dtype)
    floats_only("linalg.vector_norm")(x)
    if p in (INF, -INF):
        return (FUNCTIONS["amax"] if p > 0 else FUNCTIONS["amin"])(x.abs(), dim, keepdim)
    if p not in (2, "fro", None):
        return (x.abs() ** p).sum(dim, keepdim) ** (1 / p)
    return reduce(x, dim, keepdim, lambda lane: math.sqrt(dot_of(lane, lane)), unit)


# Places


@both
def nonzero(x, as_tuple=False):
    found = [list(place) for place, v in zip(product(*map(range, x.shape)), x.read(), strict=True) if v]
    result = made([i for place in found for i in place], (len(found), x.dim()), int64)
    return result.unbind(1) if as_tuple else result


def places_along(x, dim, index):
    """Return the place in x's array of each entry of an index, which counts along a dimension."""
    if index.dtype is not int64:
        raise RuntimeError("gather(): Expected dtype int64 for index")
    if index.dim() != x.dim():
        raise RuntimeError("Index tensor must have the same number of dimensions as input tensor")
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


@method
def scatter_(x, dim, index, src):
    source = src if isinstance(src, Tensor) else from_data(src, x.dtype).expand(index.shape)
    write(x, places_along(x, dim, index), source[tuple(map(slice, index.shape))])
    return x


@method
def index_put_(x, indices, values, accumulate=False):
    if accumulate:
        lacking("Tensor.index_put_(accumulate=True)")
    x[tuple(indices)] = values
    return x


@method
def index_fill_(x, dim, index, value):
    x[(slice(None),) * dim_of(dim, x.dim()) + (index,)] = value
    return x


for _name in ("scatter", "index_put", "index_fill"):

    def _copy(x, *given, name=f"{_name}_", **named):
        return getattr(x.clone(), name)(*given, **named)

    both(_copy, _name)


def triangle(name, keeps):
    def kept(x, diagonal=0):
        if x.dim() < 2:
            raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions")
        rows, columns = x.shape[-2:]
        chosen = [keeps(j - i, diagonal) for i in range(rows) for j in range(columns)]
        chosen *= x.numel() // len(chosen) if chosen else 0
        found = [v if c else 0 for v, c in zip(x.read(), chosen, strict=True)]

        def vjp(grad):
            return [[g if c else 0.0 for g, c in zip(grad, chosen, strict=True)]]

        return made(found, x.shape, x.dtype, [x], vjp)

    both(kept, name)
    in_place(name)
    FUNCTIONS[f"{name}_indices"] = lambda row, col, offset=0: stack(
        FUNCTIONS[name](ones(row, col), offset).nonzero(as_tuple=True)
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
    return made(found, values.shape, core.DTYPES["int32"] if out_int32 else int64)


@both
def unique(x, return_counts=False):
    if return_counts:
        lacking("torch.unique(return_counts=True)")
    return from_data(sorted(set(x.read())), x.dtype)


@both
def bincount(x, weights=None, minlength=0):
    values = x.read()
    counts = [values.count(i) for i in range(max(minlength, biggest(values, default=-1) + 1))]
    return from_data(counts, int64) if weights is None else lacking("torch.bincount(weights)")


# Products


def dot_of(row, column):
    try:
        return sumprod(row, column)
    except (OverflowError, ValueError):
        return summed(map(operator.mul, row, column))


def cut_into(values, n):
    return [values[i : i + n] for i in range(0, len(values), n)] if n else []


@both
def matmul(a, b):
    if a.dtype is not b.dtype:
        names = {"float32": "float", "float64": "double", "int64": "long int", "bool": "bool", "int32": "int"}
        raise RuntimeError(
            "expected m1 and m2 to have the same dtype, but got: "
            f"{names.get(a.dtype.name, a.dtype.name)} != {names.get(b.dtype.name, b.dtype.name)}"
        )
    if not a.dim() or not b.dim():
        raise RuntimeError(
            f"both arguments to matmul need to be at least 1D, but they are {a.dim()}D and {b.dim()}D"
        )
    if a.dtype is bool_:
        raise RuntimeError("\"addmm_impl_cpu_\" not implemented for 'Bool'")
    left, right = a if a.dim() > 1 else a[None], b if b.dim() > 1 else b[:, None]
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
    columns = cut_into(right.mT.read(), k) if k else [[]] * (count * m)
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

    shape = [*batch, *([n] if a.dim() > 1 else []), *([m] if b.dim() > 1 else [])]
    return made(found, shape, a.dtype, [left, right], vjp)


Tensor.__matmul__ = lambda a, b: matmul(a, b) if isinstance(b, Tensor) else NotImplemented


def checked_product(name, dims, wrong):
    def product_(a, b):
        if (a.dim(), b.dim()) != (dims, dims):
            raise RuntimeError(wrong.format(a.dim(), b.dim()))
        return matmul(a, b)

    both(product_, name)


checked_product("mm", 2, "self must be a matrix")
checked_product("bmm", 3, "batch1 must be a 3D tensor")
checked_product("dot", 1, "1D tensors expected, but got {}D and {}D tensors")


@both
def outer(a, b):
    return a[:, None] * b


@function
def einsum(equation, *tensors):
    tensors = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], tuple | list) else tensors
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    parts = inputs.split(",")
    if len(parts) != len(tensors):
        raise ValueError(
            "einsum(): more operands were provided than specified in the equation"
            if len(parts) < len(tensors)
            else "einsum(): fewer operands were provided than specified in the equation"
        )
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


@both
def equal(a, b):
    return a.shape == b.shape and a.read() == b.read()


@both
def isclose(a, b, rtol=1e-5, atol=1e-8, equal_nan=False):
    _, _, shape, _, p, q = pair(a, b)
    found = [
        x == y or abs(x - y) <= atol + rtol * abs(y) < INF or (equal_nan and x != x and y != y)
        for x, y in zip(p, q, strict=True)
    ]
    return made(found, shape, bool_)


@both
def allclose(a, b, rtol=1e-5, atol=1e-8, equal_nan=False):
    if a.dtype is not b.dtype:
        raise RuntimeError(f"{TITLES[a.dtype.kind]} did not match {TITLES[b.dtype.kind]}")
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


@function
def manual_seed(seed):
    return default_generator.manual_seed(seed)


def normal(source, n):
    """Draw from the normal distribution, many at a time from 4096 of its quantiles."""
    if n < 1000:
        return [source.gauss(0, 1) for _ in range(n)]
    if not QUANTILES:
        QUANTILES.extend(NormalDist().inv_cdf((i + 0.5) / 4096) for i in range(4096))
    return source.choices(QUANTILES, k=n)


QUANTILES = []
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
            p, q, r = (summed(map(operator.mul, *each)) for each in ((a, a), (b, b), (a, b)))
            if r * r > 1e-30 * p * q:
                angle = math.atan2(2 * r, p - q) / 2
                c, s = math.cos(angle), math.sin(angle)
                for each in (columns, turns):
                    a, b = each[i], each[j]
                    each[i] = [c * v + s * w for v, w in zip(a, b, strict=True)]
                    each[j] = [c * w - s * v for v, w in zip(a, b, strict=True)]
    sizes_ = [math.sqrt(summed(v * v for v in column)) for column in columns]
    order = sorted(range(len(columns)), key=lambda i: -sizes_[i])
    u = [[v / sizes_[i] if sizes_[i] else 0.0 for v in columns[i]] for i in order]
    u, s, vh = (
        from_data(each, x.dtype) for each in (u, [sizes_[i] for i in order], [turns[i] for i in order])
    )
    return Factors(u.T, s, vh)


def matrix_norm(x, ord="fro", dim=(-2, -1), keepdim=False):
    return (
        norm(x, 2, dim, keepdim)
        if ord == "fro"
        else svd(x, False)[1].amax()
        if ord == 2
        else lacking(f"torch.linalg.matrix_norm(ord={ord!r})")
    )
