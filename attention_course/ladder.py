"""The ladder: the rungs in their order. All that belongs to a rung lies in its folder, `rungs/STEM`."""

import json
import math
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from attention_course.variants import Entry, variants

FOLDER = Path(__file__).parent / "rungs"
STAIRCASE = FOLDER / "staircase.json"  # the models of the climb, what each writes, and its loss
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
    "looking_inside",
    "speed_run",
    "bytes",
    "after_pretraining",
    "an_empty_page",
)
NUMBER = re.compile(r"\{(" + "|".join(ORDER) + r")\}(\.ipynb)?")
MORE = re.compile(r"#{2,} More: ")  # a heading that folds what is below it
ASKS = re.compile(
    r"^(?:ask|explore|fill|hero|warm_up)\(|tags=.*\"do\"", re.M
)  # what has the reader do something


@dataclass(frozen=True, eq=False)
class Rung:
    """One notebook, and what its `rung.toml` says of it.

    Attributes:
        number: its place on the ladder.
        stem: the name of its folder, and of its notebook without the number.
        title: its title in the navigation.
        builds: what the reader builds, for tables of rungs.
        sentence: the same for someone who knows no word of the field yet, for the picture of the ladder.
        lit: the parts of the transformer, as drawn, that it builds.
        terms: the terms that it introduces, each with "bold" or the words around it.
        allowed: words of others that it shows, although the course says them otherwise.
        teach: for the page for teachers: `aim`, `leave_out`, and by their minutes the plans "45" and "90",
            each a list of steps. A step has `minutes`, what to `do`, and may have the heading that it is `at`
            and names to `vote` on, to `fill` in, and an `exercise`.
    """

    number: int
    stem: str
    title: str
    builds: str
    sentence: str
    lit: list[str]
    terms: dict[str, str]
    allowed: list[str] = field(default_factory=list)
    teach: dict[str, Any] = field(default_factory=dict)

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

    @cached_property
    def questions(self) -> dict[str, Entry]:
        """Its questions, by name, with the numbers of the lesson."""
        return {name: next(variants(each)) for name, each in self.table("questions.toml").items()}

    def variants(self, question: str) -> Iterator[Entry]:
        """Make the variants of one of its questions, the lesson's first."""
        return variants(self.table("questions.toml")[question])

    @cached_property
    def templates(self) -> list[str]:
        """The names of its questions that are drawn anew."""
        return [name for name, each in self.table("questions.toml").items() if "draw" in each]

    @cached_property
    def hardest(self) -> str:
        """Its hardest exercise, of several the longest: for whoever passes it, the rung is done."""
        exercises = self.table("exercises.toml")
        return max(exercises, key=lambda name: (exercises[name]["difficulty"], exercises[name]["minutes"]))

    @property
    def minutes(self) -> int:
        """The minutes to read it slowly and do what it asks, without folds and exercises.

        150 words of prose per minute, a minute for each thing to do, half of one for each other cell of code.
        """
        words, asks, cells = reading(main_path(self.text("notebook.py")))
        return 5 * math.ceil((words / 150 + asks + (cells - asks) / 2) / 5)

    @property
    def taste_minutes(self) -> float:
        """The minutes to see the opening picture, and to read and do all as far as the first fill."""
        source, *_ = re.split(r"^fill\(", self.text("notebook.py"), maxsplit=1, flags=re.M)
        words, asks, cells = reading(source)
        return words / 150 + asks + 1 + (cells - asks - 1) / 2

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


def main_path(source: str) -> str:
    """Return the source of a notebook without its exercises and what its headings `More: ...` fold."""
    kept, folded = [], 0
    for line in source.splitlines():
        if (heading := re.match(r"# (#+) ", line)) and not 0 < folded < len(heading[1]):
            folded = len(heading[1]) if MORE.match(line[2:]) else 0
        if not folded:
            kept.append(line)
    return re.sub(r"\n# ## Exercises\n.*?(?=\n# ## |\Z)", "", "\n".join(kept), flags=re.S)


def reading(source: str) -> tuple[int, int, int]:
    """Count the words of prose in a source, the things that it has the reader do, and its cells of code."""
    prose = re.findall(r"^# %% \[markdown\]\n((?:#.*\n?)*)", source, re.M)
    words = re.sub(r"<!--.*?-->|!\[.*?\]\(.*?\)|(?<=\])\(.*?\)|^#", " ", "\n".join(prose), flags=re.M)
    cells = re.findall(r"^# %%(?! \[markdown\])", source, re.M)
    return len(re.findall(r"\w[\w'’.]*", words)), len(ASKS.findall(source)), len(cells)


def staircase() -> dict[str, Any]:
    """Return the staircase of models: its `steps`, each with rung, loss and line; `floor` and `prompt`."""
    return json.loads(STAIRCASE.read_text(encoding="utf-8"))["data"]


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


@dataclass(frozen=True)
class Way:
    """A way up the ladder: which rungs, and what it takes of each."""

    name: str
    takes: str
    rungs: tuple[Rung, ...]

    @property
    def hours(self) -> int:
        """About how long it takes."""
        minutes = [
            rung.taste_minutes if self.name == "taste" else rung.minutes + rung.exercise_minutes
            for rung in self.rungs
        ]
        return round(sum(minutes) / 60)


ASIDE = [
    each
    for each in RUNGS
    if each.stem
    in ("cross_and_causal", "a_real_model", "looking_inside", "speed_run", "bytes", "after_pretraining")
]
*SOME, LAST = [str(each.number) for each in ASIDE]
WAYS = (
    Way("taste", "the opening picture and the first fill of each rung", RUNGS),
    Way("build", f"all rungs but {', '.join(SOME)} and {LAST}", tuple(r for r in RUNGS if r not in ASIDE)),
    Way("all", "every rung with its exercises", RUNGS),
)
