"""Tensors in pure Python, as far as the exercises need them: views of arrays, float32 that rounds, gradients.

A gradient belongs to the array, not to a tensor: a node says which places of which arrays a result came from,
and a write in place is one more node. So views need no node at all.
"""

import math
import operator
import struct
from array import array
from functools import lru_cache
from itertools import accumulate, count

from .names import lacking

try:
    from math import sumprod
except ImportError:  # before Python 3.12

    def sumprod(p, q):
        return sum(map(operator.mul, p, q))


INF, NAN = math.inf, math.nan
STEP = count()
ENABLED = [True]  # whether gradients are recorded


class dtype:  # noqa: N801
    is_complex = False

    def __init__(self, name, code, itemsize, rank):
        self.name, self.code, self.itemsize, self.rank = name, code, itemsize, rank
        self.kind = 2 if "float" in name else int(name != "bool")  # bool, integer, float
        self.is_floating_point, self.is_signed = self.kind == 2, self.kind == 2 or name.startswith("int")

    def __repr__(self):
        return f"torch.{self.name}"

    def __reduce__(self):
        return DTYPES.__getitem__, (self.name,)


_SIZES = {"bool": "B1", "uint8": "B1", "int8": "b1", "int16": "h2", "int32": "i4", "int64": "q8"}
_SIZES |= {"bfloat16": "f2", "float16": "f2", "float32": "f4", "float64": "d8"}
DTYPES = {
    name: dtype(name, code, int(size), rank) for rank, (name, (code, size)) in enumerate(_SIZES.items())
}
bool_, int64, float32, float64 = (DTYPES[name] for name in ("bool", "int64", "float32", "float64"))


def promote_types(one, other):
    if one is other:
        return one
    low, high = sorted((one, other), key=lambda each: each.rank)
    names = {low.name, high.name}
    if names == {"uint8", "int8"}:
        return DTYPES["int16"]
    return float32 if names == {"bfloat16", "float16"} else high


class Size(tuple):
    __slots__ = ()

    def numel(self):
        return math.prod(self)

    def __getitem__(self, at):
        found = super().__getitem__(at)
        return Size(found) if isinstance(at, slice) else found

    def __add__(self, other):
        return Size(tuple(self) + tuple(other))

    def __repr__(self):
        return f"torch.Size({list(self)})"


class device(str):  # noqa: N801
    index, type = None, "cpu"

    def __new__(cls, name="cpu"):
        return super().__new__(cls, name) if name == "cpu" else lacking(f"the device {name}")

    def __repr__(self):
        return "device(type='cpu')"


CPU = device()


# Arrays


def half(value):
    try:
        return struct.unpack("e", struct.pack("e", value))[0]
    except OverflowError:
        return math.copysign(INF, value)


def brain(value):
    (bits,) = struct.unpack("I", array("f", [value]).tobytes())
    rounded = bits if value != value else (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return struct.unpack("f", struct.pack("I", rounded))[0]


def wrapped(value, kind):
    bits = 8 * kind.itemsize
    value &= (1 << bits) - 1
    return value - (1 << bits) if kind.is_signed and value >> (bits - 1) else value


def stored(values, kind):
    """Return an array of numbers, rounded as the dtype rounds; floats have to be whole for an integer one."""
    if kind.kind == 2:
        if kind.name == "float16":
            values = map(half, values)
        elif kind.name == "bfloat16":
            values = map(brain, values)
        return array(kind.code, values)
    values = list(values)
    try:
        return array(kind.code, values)
    except OverflowError:
        return array(kind.code, [wrapped(value, kind) for value in values])


class Storage:
    __slots__ = ("__weakref__", "data", "dtype", "grad", "leaf", "node")

    def __init__(self, data, dtype):
        self.data, self.dtype, self.node, self.grad = data, dtype, None, None
        self.leaf = None  # the shape of a tensor that was asked to require gradients


class Node:
    """One step: `vjp` maps the gradient of what it wrote at `places` to that of each input's places."""

    __slots__ = ("before", "inputs", "places", "step", "storage", "vjp")

    def __init__(self, storage, places, inputs, vjp):
        self.storage, self.places, self.inputs, self.vjp = storage, places, inputs, vjp
        self.step, self.before, storage.node = next(STEP), storage.node, self


@lru_cache(8192)
def contiguous(shape):
    return (
        tuple(accumulate(reversed(shape[1:]), lambda a, b: a * max(b, 1), initial=1))[::-1] if shape else ()
    )


@lru_cache(8192)
def places_of(shape, strides, offset):
    found = [offset]
    for n, stride in zip(shape, strides, strict=True):
        steps = [i * stride for i in range(n)]
        found = [place + step for place in found for step in steps]
    return found


@lru_cache(8192)
def broadcast(*shapes):
    most = max(map(len, shapes))
    out = []
    for sizes in zip(*((1,) * (most - len(shape)) + tuple(shape) for shape in shapes), strict=True):
        size = {n for n in sizes if n != 1}
        if len(size) > 1:
            shown = [n for n in sizes if n != 1][:2]
            raise RuntimeError(
                f"The size of tensor a ({shown[0]}) must match the size of tensor b ({shown[1]}) "
                f"at non-singleton dimension {len(out)}"
            )
        out.append(size.pop() if size else 1)
    return Size(out)


@lru_cache(8192)
def stretched(shape, strides, new):
    """Return the shape and the strides of a tensor that is expanded to a new shape."""
    extra = len(new) - len(shape)
    if extra < 0:
        raise RuntimeError(f"expand: the number of sizes provided ({len(new)}) must be at least {len(shape)}")
    full, found = list(new), [0] * extra
    for i, (had, stride) in enumerate(zip(shape, strides, strict=True), extra):
        full[i] = had if new[i] == -1 else new[i]
        if had not in (1, full[i]):
            raise RuntimeError(
                f"The expanded size of the tensor ({new[i]}) must match the existing size ({had}) at "
                f"non-singleton dimension {i}.  Target sizes: {list(new)}.  Tensor sizes: {list(shape)}"
            )
        found.append(stride if had == full[i] else 0)
    if min(full, default=0) < 0:
        raise RuntimeError(f"expand: a new dimension cannot have the size {min(full)}")
    return Size(full), tuple(found)


def dim_of(dim, dims):
    if not isinstance(dim, int) and not hasattr(dim, "__index__"):
        raise TypeError(f"argument 'dim' must be int, not {type(dim).__name__}")
    dim, least = operator.index(dim), max(dims, 1)
    if not -least <= dim < least:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-least}, {least - 1}], but got {dim})"
        )
    return dim % least


def dims_of(dim, dims):
    if dim is None or dim == ():
        return tuple(range(dims))
    found = tuple(dim_of(d, dims) for d in (dim if isinstance(dim, tuple | list) else (dim,)))
    return found if dims else ()


class Tensor:
    is_meta = is_cuda = is_nested = is_sparse = is_quantized = False
    layout, device = None, CPU  # the layout is put in below

    def __new__(cls, data=(), *sizes):
        if isinstance(data, int) and not isinstance(data, bool):
            return made([0.0] * math.prod((data, *sizes)), (data, *sizes), float32)
        return from_data(data, float32)

    @property
    def dtype(self):
        return self._storage.dtype

    # Values

    def places(self):
        return places_of(self.shape, self._strides, self._offset)

    def read(self):
        """Return all values, row by row."""
        data, shape, offset = self._storage.data, self.shape, self._offset
        if self._strides == contiguous(shape):
            n = math.prod(shape)
            return (data if n == len(data) else data[offset : offset + n]).tolist()
        return [data[place] for place in places_of(shape, self._strides, offset)]

    def tolist(self):
        values = self.read()
        if self.dtype is bool_:
            values = list(map(bool, values))
        for n in reversed(self.shape[1:]):
            values = (
                [values[i : i + n] for i in range(0, len(values), n)]
                if n
                else [[] for _ in range(math.prod(self.shape[:-1]))]
            )
        return values if self.shape else values[0]

    def item(self):
        if self.numel() != 1:
            raise RuntimeError(f"a Tensor with {self.numel()} elements cannot be converted to Scalar")
        value = self._storage.data[self._offset]
        return bool(value) if self.dtype is bool_ else value

    def numel(self):
        return math.prod(self.shape)

    def dim(self):
        return len(self.shape)

    ndim = property(dim)

    def size(self, dim=None):
        return self.shape if dim is None else self.shape[dim_of(dim, self.dim())]

    def stride(self, dim=None):
        return self._strides if dim is None else self._strides[dim]

    def element_size(self):
        return self.dtype.itemsize

    itemsize = property(element_size)
    nbytes = property(lambda self: self.numel() * self.itemsize)

    def is_contiguous(self):
        if self._strides == contiguous(self.shape):
            return True
        parts = zip(self.shape, self._strides, contiguous(self.shape), strict=True)
        return not self.numel() or all(n == 1 or stride == wanted for n, stride, wanted in parts)

    def is_inference(self):
        return False

    def is_floating_point(self):
        return self.dtype.kind == 2

    def __bool__(self):
        if self.numel() != 1:
            many = "more than one value" if self.numel() else "no values"
            raise RuntimeError(f"Boolean value of Tensor with {many} is ambiguous")
        return bool(self.item())

    def __float__(self):
        return float(self.item())

    def __int__(self):
        return int(self.item())

    def __index__(self):
        if self.numel() != 1 or self.dtype.kind == 2:
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(self.item())

    def __len__(self):
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def __iter__(self):
        if not self.shape:
            raise TypeError("iteration over a 0-d tensor")
        return iter([self[i] for i in range(self.shape[0])])

    def __contains__(self, value):
        return bool((self == value).any())

    def __hash__(self):
        return id(self)

    def __deepcopy__(self, memo):
        return made(self.read(), self.shape, self.dtype)

    def __format__(self, how):
        return format(self.item(), how) if not self.shape else repr(self) if not how else format(self, how)

    def __repr__(self):
        values = self.read()
        if self.dtype.kind != 2:
            texts = [str(bool(value) if self.dtype is bool_ else value) for value in values]
        elif all(value != value or abs(value) == INF or value == int(value) for value in values):
            texts = [f"{value:.0f}." if math.isfinite(value) else str(value) for value in values]
        else:
            finite = [abs(value) for value in values if value and math.isfinite(value)]
            wide = max(finite) > 1e8 or max(finite) / min(finite) > 1000 or max(finite) < 1e-4
            texts = [f"{value:.4e}" if wide else f"{value:.4f}" for value in values]
        width = max(map(len, texts), default=0) if self.shape else 0
        lines = [text.rjust(width) for text in texts]
        for level, n in enumerate(reversed(self.shape)):
            if not n:
                lines = ["[]"]
                break
            between = ", " if not level else "," + "\n" * level + " " * (7 + self.dim() - level)
            lines = [f"[{between.join(lines[i : i + n])}]" for i in range(0, len(lines), n)]
        named = "" if self.dtype in (float32, int64, bool_) else f", dtype={self.dtype}"
        graph = ", requires_grad=True" if self.requires_grad else ""
        return f"tensor({lines[0] if lines else '[]'}{named}{graph})"

    # Gradients

    def is_tracked(self):
        return not self._free and (self._storage.leaf is not None or self._storage.node is not None)

    @property
    def requires_grad(self):
        return self.is_tracked()

    @requires_grad.setter
    def requires_grad(self, value):
        self.requires_grad_(value)

    def requires_grad_(self, value=True):
        if value and self.dtype.kind != 2:
            raise RuntimeError("only Tensors of floating point dtype can require gradients")
        if not value and self.is_tracked() and self._storage.leaf is None:
            raise RuntimeError(
                "you can only change requires_grad flags of leaf variables. If you want to use a computed "
                "variable in a subgraph that doesn't require differentiation use var_no_grad = var.detach()."
            )
        self._storage.leaf, self._free = self.shape if value else None, False
        return self

    @property
    def grad(self):
        return self._storage.grad

    @grad.setter
    def grad(self, value):
        self._storage.grad = value

    def detach(self):
        return view(self, self.shape, self._strides, self._offset, free=True)

    @property
    def data(self):
        return self.detach()

    @data.setter
    def data(self, value):
        self._storage, self.shape = Storage(stored(value.read(), value.dtype), value.dtype), value.shape
        self._strides, self._offset = contiguous(self.shape), 0

    def backward(self, gradient=None):
        for storage, values in grads_of([self], [gradient]).items():
            if storage.leaf is not None:
                found = made(values, storage.leaf, storage.dtype)
                storage.grad = found if storage.grad is None else storage.grad + found

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        lacking(f"Tensor.{name}", "Tensor", name)

    def __getitem__(self, key):
        return taken(self, key)

    def __setitem__(self, key, value):
        found, places = located(self, key)
        shape = found if places is not None else found.shape
        value = value if isinstance(value, Tensor) else from_data(value, self.dtype)
        while value.dim() > len(shape) and value.shape[0] == 1:
            value = value[0]
        if broadcast(value.shape, shape) != shape:
            raise RuntimeError(
                f"shape mismatch: value tensor of shape {list(value.shape)} cannot be broadcast "
                f"to indexing result of shape {list(shape)}"
            )
        write(self, found.places() if places is None else places, value.expand(shape))


def view(tensor, shape, strides, offset, free=None):
    found = object.__new__(Tensor)
    found._storage, found._offset = tensor._storage, offset
    found.shape = shape if type(shape) is Size else Size(shape)
    found._strides = tuple(strides)
    found._free = free or tensor._free or not ENABLED[0]
    kept = tensor if tensor._base is None else tensor._base  # alive, as in PyTorch
    found._base = None if free else kept
    return found


def made(values, shape, kind, inputs=(), vjp=None):
    """Make a tensor of values; where inputs want gradients, keep how to find them."""
    found = object.__new__(Tensor)
    storage = found._storage = Storage(stored(values, kind), kind)
    found.shape = shape if type(shape) is Size else Size(shape)
    found._offset, found._free, found._base = 0, False, None
    found._strides = contiguous(found.shape)
    if inputs and ENABLED[0] and kind.kind == 2:
        wanted = [
            (each._storage, each.places()) if each is not None and each.is_tracked() else None
            for each in inputs
        ]
        if any(wanted):
            Node(storage, range(len(storage.data)), wanted, vjp)
    return found


def write(target, places, source):
    """Write the values of a tensor into the places of another."""
    storage = target._storage
    if storage.leaf is not None and ENABLED[0] and not target._free:
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
    values = converted(source.read(), source.dtype, target.dtype)
    data = storage.data
    for place, value in zip(places, stored(values, target.dtype), strict=True):
        data[place] = value
    if ENABLED[0] and not target._free and target.dtype.kind == 2 and (source.is_tracked() or storage.node):
        wanted = [(source._storage, source.places())] if source.is_tracked() else [None]
        Node(storage, list(places), wanted, lambda grad: [grad])


def converted(values, old, new):
    """Return values of a dtype as those of another, not yet rounded."""
    if new.kind == 2 or old is new:
        return values
    if new.kind == 0:
        return [value != 0 for value in values]
    return [int(value) if math.isfinite(value) else -(2**63) for value in values] if old.kind == 2 else values


def grads_of(outputs, weights):
    """Return the gradient of each array that the outputs came from, by array."""
    found, seen, todo = {}, set(), []
    for output, weight in zip(outputs, weights, strict=True):
        if not output.is_tracked():
            raise RuntimeError("element 0 of tensors does not require grad and does not have a grad_fn")
        if weight is None and output.numel() != 1:
            raise RuntimeError("grad can be implicitly created only for scalar outputs")
        storage = output._storage
        grads = found.setdefault(storage, [0.0] * len(storage.data))
        values = [1.0] if weight is None else weight.expand(output.shape).read()
        for place, value in zip(output.places(), values, strict=True):
            grads[place] += value
        todo.append(storage.node)
    nodes = []
    while todo:
        node = todo.pop()
        if node is not None and id(node) not in seen:
            seen.add(id(node))
            nodes.append(node)
            todo += [node.before, *(each[0].node for each in node.inputs if each)]
    for node in sorted(nodes, key=lambda node: -node.step):
        grads = found.get(node.storage)
        if grads is None:
            continue
        given = [grads[place] for place in node.places]
        for place in node.places:
            grads[place] = 0.0
        if not any(given):
            given = [0.0] * len(given)
        for wanted, values in zip(node.inputs, node.vjp(given), strict=True):
            if wanted is not None and values is not None:
                storage, places = wanted
                into = found.setdefault(storage, [0.0] * len(storage.data))
                for place, value in zip(places, values, strict=True):
                    into[place] += value
    return found


# Data


def shape_of(data):
    if isinstance(data, Tensor):
        return data.shape
    if not isinstance(data, list | tuple | range):
        return ()
    return (len(data), *(shape_of(data[0]) if len(data) else ()))


def flat(data, shape):
    if not shape:
        if isinstance(data, Tensor):
            data = data.item()
        if not isinstance(data, bool | int | float):
            if hasattr(data, "__float__"):
                return [float(data)]
            raise TypeError(
                f"new(): invalid data type '{type(data).__name__}'"
                if isinstance(data, str)
                else f"must be real number, not {type(data).__name__}"
            )
        return [data]
    if isinstance(data, Tensor) and data.shape == shape:
        return [bool(v) for v in data.read()] if data.dtype is bool_ else data.read()
    if not isinstance(data, list | tuple | range | Tensor) or len(data) != shape[0]:
        length = len(data) if hasattr(data, "__len__") else 0
        raise ValueError(f"expected sequence of length {shape[0]} at dim 0 (got {length})")
    return [value for part in data for value in flat(part, shape[1:])]


def from_data(data, kind=None):
    """Make a tensor of numbers in lists, as torch.tensor does."""
    if isinstance(data, Tensor):
        values, old = data.read(), data.dtype
        return made(converted(values, old, kind or old), data.shape, kind or old)
    shape = shape_of(data)
    values = flat(data, shape)
    if any(isinstance(value, float) for value in values) or not values:
        old = float32
    else:
        old = bool_ if all(isinstance(value, bool) for value in values) else int64
    if isinstance(data, list | tuple) and values and old is float32:  # a tensor of float64 inside keeps it so
        kinds = {each.dtype for each in data if isinstance(each, Tensor)}
        old = float64 if kinds == {float64} else old
    return made(converted(values, old, kind or old), shape, kind or old)


def result_type(*values):
    """Return the dtype of tensors with dimensions, unless one without, or a number, is of a higher kind."""
    best = {}
    for value in values:
        if isinstance(value, Tensor):
            level, kind = 2 if value.shape else 1, value._storage.dtype
        else:
            level, kind = (
                0,
                bool_ if isinstance(value, bool) else int64 if isinstance(value, int) else float32,
            )
        best[level] = promote_types(best.get(level, kind), kind)
    return max((best[level] for level in sorted(best, reverse=True)), key=lambda kind: kind.kind)


# Indexing


def located(tensor, key):
    """Return the view that a key names, and None; where a tensor or list indexes, a shape and the places."""
    keys, used, sizes = list(key) if isinstance(key, tuple) else [key], 0, tuple(tensor.shape)
    for i, k in enumerate(keys):
        if isinstance(k, list | range):
            k = keys[i] = from_data(list(k))
        if isinstance(k, Tensor):
            if k.dtype.kind == 1:
                keys[i] = k.to(int64) if k.shape else k.item()
            used += k.dim() if k.dtype is bool_ else 1
        else:
            used += k is not None and k is not ...
    if used > tensor.dim():
        raise IndexError(f"too many indices for tensor of dimension {tensor.dim()}")
    rest = [slice(None)] * (len(sizes) - used)
    dots = next((i for i, k in enumerate(keys) if k is ...), None)
    keys = keys + rest if dots is None else keys[:dots] + rest + keys[dots + 1 :]
    shape, strides, offset, dim, picks = [], [], tensor._offset, 0, {}
    for k in keys:
        if k is None or k is True:
            shape.append(1), strides.append(0)
            continue
        if isinstance(k, Tensor):
            if k.dtype.kind == 2:
                raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
            parts = [k]
            if k.dtype is bool_:
                if k.shape != tensor.shape[dim : dim + k.dim()]:
                    raise IndexError(
                        f"The shape of the mask {list(k.shape)} at index 0 does not match "
                        f"the shape of the indexed tensor {list(tensor.shape)} at index {dim}"
                    )
                parts = k.nonzero().unbind(1)
            for part in parts:
                picks[len(shape)] = part
                shape.append(sizes[dim]), strides.append(tensor._strides[dim])
                dim += 1
            continue
        size, stride = sizes[dim], tensor._strides[dim]
        if isinstance(k, slice):
            if k.start is k.stop is k.step is None:
                shape.append(size), strides.append(stride)
                dim += 1
                continue
            start, stop, step = (None if x is None else operator.index(x) for x in (k.start, k.stop, k.step))
            if step is not None and step <= 0:
                raise ValueError("step must be greater than zero")
            chosen = range(size)[slice(start, stop, step)]
            offset += (chosen.start if len(chosen) else 0) * stride
            shape.append(len(chosen)), strides.append(stride * chosen.step)
        else:
            try:
                k = operator.index(k)
            except TypeError:
                raise IndexError(
                    "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables "
                    f"are valid indices (got {type(k).__name__})"
                ) from None
            if not -size <= k < size:
                raise IndexError(f"index {k} is out of bounds for dimension {dim} with size {size}")
            offset += k % size * stride
        dim += 1
    if not picks:
        return view(tensor, shape, strides, offset), None
    try:
        wide = broadcast(*(each.shape for each in picks.values()))
    except RuntimeError:
        shapes = ", ".join(str(list(each.shape)) for each in picks.values())
        raise IndexError(
            f"shape mismatch: indexing tensors could not be broadcast together with shapes {shapes}"
        ) from None
    steps = [0] * math.prod(wide)
    for at, each in picks.items():
        size, stride = shape[at], strides[at]
        values = each.expand(wide).read()
        for value in values:
            if not -size <= value < size:
                raise IndexError(f"index {value} is out of bounds for dimension {at} with size {size}")
        steps = [step + value % size * stride for step, value in zip(steps, values, strict=True)]
    first = min(picks) if max(picks) - min(picks) + 1 == len(picks) else 0
    front = [i for i in range(len(shape)) if i not in picks and i < first]
    back = [i for i in range(len(shape)) if i not in picks and i >= first]
    heads = places_of(tuple(shape[i] for i in front), tuple(strides[i] for i in front), offset)
    tails = places_of(tuple(shape[i] for i in back), tuple(strides[i] for i in back), 0)
    found = [head + step + tail for head in heads for step in steps for tail in tails]
    return Size([*(shape[i] for i in front), *wide, *(shape[i] for i in back)]), found


def taken(tensor, key):
    found, places = located(tensor, key)
    return found if places is None else gathered(tensor, places, found)


def gathered(tensor, places, shape):
    """Make a tensor of the values at some places of another's array."""
    data = tensor._storage.data
    found = made([data[place] for place in places], shape, tensor.dtype)
    if ENABLED[0] and tensor.is_tracked() and tensor.dtype.kind == 2:
        Node(found._storage, range(len(places)), [(tensor._storage, places)], lambda grad: [grad])
    return found
