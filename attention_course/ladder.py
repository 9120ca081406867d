"""The ladder: its rungs, in order, one line each. Every list of rungs is read from here."""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class Rung:
    """One notebook, and the modules and files named after its stem.

    Attributes:
        number: its place on the ladder.
        stem: the name of its notebook without the number, and of its exercises, questions and explorer.
        title: its title in the navigation.
        explorers: the names of its explorers, if not the stem.
    """

    number: int
    stem: str
    title: str
    explorers: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the notebook and of its source, without the suffix."""
        return f"{self.number:02}_{self.stem}"


RUNGS = (
    Rung(1, "bag_of_words", "bag of words"),
    Rung(2, "tril_matmul", "one matrix product"),
    Rung(3, "masked_softmax", "masked softmax"),
    Rung(4, "query_key_value", "query, key, value"),
    Rung(5, "scaling_variance", "scaling"),
    Rung(6, "cross_and_causal", "cross and causal"),
    Rung(7, "multi_head", "multi-head"),
    Rung(8, "bigram_to_gpt", "GPT", explorers=("sampling", "attention_over_text")),
    Rung(9, "a_real_model", "a real model", explorers=("rotary", "heads")),
    Rung(10, "speed_run", "the speed run", explorers=("recipes",)),
    Rung(11, "an_empty_page", "an empty page", explorers=("planted_bugs",)),
)
STEMS = tuple(rung.stem for rung in RUNGS)


def modules(package: str, names: Iterable[str] = STEMS) -> dict[str, ModuleType]:
    """Import the modules of a subpackage that belong to rungs, in the order of the ladder.

    Args:
        package: the subpackage, for example "exercises".
        names: names of modules; a name without a module is skipped.

    Returns:
        The modules by name. A module that exists but fails to import raises its own error.
    """
    paths = {name: f"{__package__}.{package}.{name}" for name in names}
    return {name: import_module(path) for name, path in paths.items() if find_spec(path)}


def tables(package: str, name: str) -> dict[str, Any]:
    """Return the content of a TOML file of a subpackage, for example of a rung; {} if there is none."""
    file = Path(__file__).parent / package / f"{name}.toml"
    return tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
