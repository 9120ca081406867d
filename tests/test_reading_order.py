"""The package can be read in the order that it names; its tests stand where its modules do."""

import re
import tomllib
from itertools import pairwise
from pathlib import Path

import attention_course

ROOT = Path(__file__).resolve().parent.parent


def layers() -> list[set[str]]:
    """The layers of the import contract, the lowest first."""
    (contract,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return [set(re.findall(r"attention_course\.(\w+)", layer)) for layer in reversed(contract["layers"])]


def named() -> list[str]:
    """The modules in the order of the package's docstring."""
    lines = re.findall(r"^- (.*?):", attention_course.__doc__, re.M)
    return [name for line in lines for name in re.findall(r"`(\w+)`", line)]


def test_every_module_is_named_once_and_has_a_layer():
    folder = ROOT / "attention_course"
    modules = [path.stem for path in folder.glob("*.py") if path.stem != "__init__"]
    modules += [path.parent.name for path in folder.glob("*/__init__.py")]
    assert sorted(named()) == sorted(modules)
    assert sorted(name for layer in layers() for name in layer) == sorted(modules)


def test_the_reading_order_is_that_of_the_imports():
    layer_of = {name: number for number, layer in enumerate(layers()) for name in layer}
    order = [layer_of[name] for name in named()]
    assert all(before <= after for before, after in pairwise(order)), named()


def test_every_module_has_its_tests():
    folder = ROOT / "attention_course"
    for path in folder.rglob("*.py"):
        name = f"test_{path.stem.strip('_')}.py"  # __main__ is tested by test_main
        if path.stem != "__init__" and "rungs" not in path.parts:  # contracts test what is in those
            assert (ROOT / "tests" / path.relative_to(folder).with_name(name)).is_file(), path.stem
