"""The ladder: the rungs in their order. All that belongs to a rung lies in its folder, `rungs/STEM`."""

import re
import tomllib
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = Path(__file__).parent / "rungs"
ORDER = (
    "bag_of_words",
    "tril_matmul",
    "masked_softmax",
    "query_key_value",
    "scaling_variance",
    "cross_and_causal",
    "multi_head",
    "bigram_to_gpt",
    "a_real_model",
    "speed_run",
    "an_empty_page",
)
NUMBER = re.compile(r"\{(" + "|".join(ORDER) + r")\}(\.ipynb)?")


@dataclass(frozen=True, eq=False)
class Rung:
    """One notebook, and what its `rung.toml` says of it.

    Attributes:
        number: its place on the ladder.
        stem: the name of its folder, and of its notebook without the number.
        title: its title in the navigation.
        builds: what the reader builds, for tables of rungs.
        sentence: the same for someone who knows no word of the field yet, for the picture of the ladder.
        minutes: to read it, without its exercises.
        lit: the parts of the transformer, as drawn, that it builds.
        terms: the terms that it introduces, each with "bold" or the words around it.
        allowed: words of others that it shows, although the course says them otherwise.
    """

    number: int
    stem: str
    title: str
    builds: str
    sentence: str
    minutes: int
    lit: list[str]
    terms: dict[str, str]
    allowed: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name of the notebook, without the suffix."""
        return f"{self.number:02}_{self.stem}"

    @property
    def folder(self) -> Path:
        """The folder with all its files."""
        return FOLDER / self.stem

    def text(self, file: str) -> str:
        """Read a file of the rung; see `numbered_text`."""
        return numbered_text(self.folder / file)

    def table(self, file: str) -> dict[str, Any]:
        """Read a TOML file of the rung."""
        return read_table(self.folder / file)

    def module(self, name: str) -> ModuleType:
        """Import a module of the rung."""
        return import_module(f"{__package__}.rungs.{self.stem}.{name}")

    @property
    def exercise_minutes(self) -> int:
        """The minutes of its exercises."""
        return sum(exercise["minutes"] for exercise in self.table("exercises.toml").values())

    @property
    def steps(self) -> dict[str, Any]:
        """The steps of its lesson that the reader fills in, as `fills.toml` has them."""
        return self.table("fills.toml") if (self.folder / "fills.toml").exists() else {}

    @cached_property
    def explorers(self) -> dict[str, str]:
        """The modules of its explorers, by name. `explorer_heads.py` is "heads"; `explorer.py`, the stem."""
        modules = [path.stem for path in sorted(self.folder.glob("explorer*.py"))]
        return {module.partition("_")[2] or self.stem: module for module in modules}


def numbered_text(path: Path) -> str:
    """Read a file that names rungs by their stems: `rung {bag_of_words}`, `({bag_of_words}.ipynb)`.

    Returns:
        Its text, with the number of the rung or the name of its notebook in each of these places.
    """
    places = {stem: number for number, stem in enumerate(ORDER, 1)}
    return NUMBER.sub(
        lambda mark: f"{places[mark[1]]:02}_{mark[1]}.ipynb" if mark[2] else str(places[mark[1]]),
        path.read_text(encoding="utf-8"),
    )


def read_table(path: Path) -> dict[str, Any]:
    """Read a TOML file; see `numbered_text`."""
    return tomllib.loads(numbered_text(path))


RUNGS = tuple(
    Rung(number, stem, **read_table(FOLDER / stem / "rung.toml")) for number, stem in enumerate(ORDER, 1)
)
