"""What the page has in place of PyTorch: what exercises use, in pure Python. It is not a second PyTorch."""

import math
from types import SimpleNamespace

from . import core, ops
from .core import DTYPES, Tensor
from .names import lacking
from .ops import FUNCTIONS, set_grad

globals().update(FUNCTIONS)
for _name in ("Size", "device", "dtype", "promote_types", "result_type"):
    globals()[_name] = getattr(core, _name)
for _name in ("Generator", "default_generator", "finfo", "iinfo"):
    globals()[_name] = getattr(ops, _name)
globals().update(DTYPES)
float, double, half, int, long, short = (
    DTYPES[n] for n in ("float32", "float64", "float16", "int32", "int64", "int16")
)
broadcast_shapes = lambda *shapes: core.broadcast(*map(tuple, shapes))  # noqa: E731
inf, nan, pi, e, newaxis = math.inf, math.nan, math.pi, math.e, None
concat = concatenate = FUNCTIONS["cat"]
no_grad, enable_grad, inference_mode = set_grad(False), set_grad(True), set_grad(False)
autograd = SimpleNamespace(grad=ops.grad, functional=SimpleNamespace(jacobian=ops.jacobian))
linalg = SimpleNamespace(
    svd=ops.svd, norm=ops.norm, vector_norm=ops.norm, matrix_norm=ops.matrix_norm, diagonal=ops.diagonal
)
compiler = SimpleNamespace(is_compiling=lambda: False)
jit = SimpleNamespace(
    ScriptFunction=type("ScriptFunction", (), {}), ScriptModule=type("ScriptModule", (), {})
)
strided = Tensor.layout = type("layout", (), {"__repr__": lambda self: "torch.strided"})()
__version__ = "0 (in the page)"


def is_grad_enabled():
    return core.ENABLED[0]


def is_autocast_enabled(device="cpu"):
    return False


def is_floating_point(x):
    return x.dtype.is_floating_point


from . import nn  # noqa: E402  # before the next function, which an import would ask

func = SimpleNamespace(vmap=FUNCTIONS["vmap"], functional_call=nn.functional_call)


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    lacking(f"torch.{name}", "torch", name)
