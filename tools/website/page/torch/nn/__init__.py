"""Modules, as far as an answer to an exercise may want them."""

import torch
from torch.core import Tensor
from torch.names import lacking

from . import functional


class Parameter(Tensor):
    def __new__(cls, data, requires_grad=True):
        found = object.__new__(cls)
        found.__dict__.update(data.detach().__dict__)
        return found.requires_grad_(requires_grad)


class Module:
    training = True

    def __call__(self, *given, **named):
        return self.forward(*given, **named)

    def named_parameters(self):
        for name, each in vars(self).items():
            if isinstance(each, Parameter):
                yield name, each
            elif isinstance(each, Module):
                yield from ((f"{name}.{inner}", found) for inner, found in each.named_parameters())

    def parameters(self):
        return (each for _, each in self.named_parameters())

    def children(self):
        return (each for each in vars(self).values() if isinstance(each, Module))

    def modules(self):
        yield self
        for each in self.children():
            yield from each.modules()

    def state_dict(self):
        return {name: each.detach() for name, each in self.named_parameters()}

    def register_buffer(self, name, value, persistent=True):
        setattr(self, name, value)

    def train(self, mode=True):
        for each in self.modules():
            each.training = mode
        return self

    def eval(self):
        return self.train(False)

    def to(self, *given):
        return self


class Linear(Module):
    def __init__(self, in_features, out_features, bias=True):
        self.in_features, self.out_features = in_features, out_features
        most = in_features**-0.5
        self.weight = Parameter(torch.empty(out_features, in_features).uniform_(-most, most))
        self.bias = Parameter(torch.empty(out_features).uniform_(-most, most)) if bias else None

    def forward(self, x):
        return functional.linear(x, self.weight, self.bias)


class Embedding(Module):
    def __init__(self, num_embeddings, embedding_dim):
        self.weight = Parameter(torch.randn(num_embeddings, embedding_dim))

    def forward(self, ids):
        return self.weight[ids]


class LayerNorm(Module):
    def __init__(self, shape, eps=1e-5, bias=True):
        self.shape, self.eps = (shape,) if isinstance(shape, int) else tuple(shape), eps
        self.weight = Parameter(torch.ones(self.shape))
        self.bias = Parameter(torch.zeros(self.shape)) if bias else None

    def forward(self, x):
        return functional.layer_norm(x, self.shape, self.weight, self.bias, self.eps)


class ModuleList(Module):
    def __init__(self, modules=()):
        for i, each in enumerate(modules):
            setattr(self, str(i), each)

    def __iter__(self):
        return self.children()

    def __len__(self):
        return len(list(self))

    def __getitem__(self, at):
        return list(self)[at]


class Sequential(ModuleList):
    def __init__(self, *modules):
        super().__init__(modules)

    def forward(self, x):
        for each in self:
            x = each(x)
        return x


def of_function(name, *parameters):
    """Make the module of a function, with its arguments given beforehand."""

    class Made(Module):
        def __init__(self, *given, **named):
            self.named = dict(zip(parameters, given, strict=False)) | named

        def forward(self, *given):
            return getattr(functional, name)(*given, **self.named)

    return Made


Softmax = of_function("softmax", "dim")
ReLU, GELU, SiLU = of_function("relu"), of_function("gelu"), of_function("silu")
Identity = type("Identity", (Module,), {"forward": lambda self, x: x})


def functional_call(module, parameters, given):
    """Call a module with other parameters."""
    kept = []
    try:
        for path, value in parameters.items():
            *outer, name = path.split(".")
            owner = module
            for each in outer:
                owner = getattr(owner, each)
            kept.append((owner, name, getattr(owner, name)))
            setattr(owner, name, value)
        return module(*given) if isinstance(given, tuple) else module(given)
    finally:
        for owner, name, value in kept:
            setattr(owner, name, value)


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    if name[0].isupper():  # the package names it in annotations
        return type(
            name, (Module,), {"__init__": lambda self, *given, **named: lacking(f"nn.{name}", "nn", name)}
        )
    lacking(f"torch.nn.{name}", "nn", name)
