"""Stand-ins for what the package imports and no verdict needs: progress bars, widgets, the examiner."""

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from torch.names import lacking

NAMES = ("cloudpickle", "filelock", "ipywidgets", "jaxtyping", "numpy", "tqdm")
NAMES += ("attention_course.examine", "attention_course.gpt", "attention_course.llama")


class Anything(type):
    """A class that can be subclassed, subscripted and looked into, and not called by an answer."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(name, (), {"__module__": f"{cls.__module__}.{cls.__name__}"})

    def __getitem__(cls, key):
        return cls

    def __call__(cls, *given, **named):
        lacking(f"{cls.__module__}.{cls.__name__}")


class Absent(ModuleType):
    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(name, (), {"__module__": self.__name__})


class Finder(MetaPathFinder, Loader):
    def find_spec(self, name, path=None, target=None):
        if any(name == each or name.startswith(f"{each}.") for each in NAMES):
            return ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return Absent(spec.name)

    def exec_module(self, module):
        if module.__name__ == "attention_course.examine":
            module.PATIENCE = 0


def install():
    sys.meta_path.insert(0, Finder())
