"""The ladder is one list: files and README agree with it, and a new rung is one line and its own files."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import draw_transformer
import nbformat
import pytest

from attention_course import explorers
from attention_course.exercises import EXERCISES
from attention_course.explorers import EXPLORERS
from attention_course.ladder import RUNGS, STEMS, modules
from attention_course.questions import QUESTIONS

ROOT = Path(__file__).resolve().parent.parent


def stems(folder: str, suffix: str) -> set[str]:
    return {path.stem for path in (ROOT / folder).glob(f"*{suffix}")}


def test_rungs_are_counted_from_1():
    assert [rung.number for rung in RUNGS] == list(range(1, len(RUNGS) + 1))


@pytest.mark.parametrize(("folder", "suffix"), [("notebooks", ".ipynb"), ("notebooks/source", ".py")])
def test_each_notebook_is_a_rung_and_each_rung_a_notebook(folder, suffix):
    assert stems(folder, suffix) == {rung.name for rung in RUNGS}


def test_each_rung_has_questions_exercises_and_explorers():
    assert stems("attention_course/questions", ".toml") == set(STEMS)
    assert list(modules("exercises")) == list(STEMS)
    assert list(EXPLORERS) == [name for rung in RUNGS for name in rung.explorers or [rung.stem]]


def test_a_module_that_is_absent_is_left_out_and_a_broken_one_raises(tmp_path, monkeypatch):
    (tmp_path / "broken.py").write_text("import no_such_module")
    monkeypatch.setattr(explorers, "__path__", [*explorers.__path__, str(tmp_path)])
    assert list(modules("explorers", ["tril_matmul", "absent", "bag_of_words"])) == [
        "tril_matmul",
        "bag_of_words",
    ]
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        modules("explorers", ["broken"])


def test_readme_lists_the_rungs_and_a_picture_of_each_explorer():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| \[(.+?)\]\(notebooks/(\w+)\.ipynb\) \| .{20,} \|$", readme, re.M)
    assert rows == [(str(rung.number), rung.title, rung.name) for rung in RUNGS]
    slides = re.search(r"^For slides, .*", readme, re.M)[0]
    assert set(re.findall(r"\(notebooks/images/(\w+)\.png\)", slides)) == set(EXPLORERS)


# A new rung

LAST, N = RUNGS[-1], len(RUNGS) + 1
NAME = f"{N:02}_tiny"
LINE = f'    Rung({N}, "tiny", "a tiny rung"),\n'
SOURCE = f"""# %% [markdown]
# # Rung {N}: a tiny rung
#
# <!--ladder-->

# %% [markdown]
# ## The question
#
# How much is half<!--shown--> of one?

# %%
from attention_course.exercises import check
from attention_course.explorers import explore
from attention_course.questions import ask

print(1 / 2)

# %%
ask("tiny_half")

# %%
explore("tiny")

# %% [markdown]
# ## Prove

# %% tags=["proof"]
assert 1 / 2 + 1 / 2 == 1

# %%
check("tiny_halve", None)

# %%
check("tiny_halve", lambda x: x * 2).mistake
"""
QUESTION = """[tiny_half]
question = "What is half of one?"
choices = [
    { text = "1", explanation = "That is all of it." },
    { text = "2", explanation = "That is twice as much." },
    { text = "1/2", explanation = "It takes two of them to make one.", right = true },
]
"""
EXPLORER = '''"""Half of a number."""

import ipywidgets
import torch

from attention_course.plots import Bars


def controls():
    return {"n": ipywidgets.IntSlider(1, 0, 3, description="n")}


def compute(n):
    return {"half": torch.tensor([n / 2])}


def draw(figure, half):
    figure.show(Bars("Half of n", half, ["n"], "n", (0, 2)), caption=f"Half is {half.item()}.")
'''
EXERCISE = '''"""Halve a tensor."""

import torch

from attention_course.exercises.exercise import exercise


def tiny_halve(x):
    return x / 2


def draw(generator):
    return [(torch.randn(3, 2, generator=generator),)]


EXERCISES = (exercise(__name__, tiny_halve, draw, ()),)
'''
TEXTS = """[tiny_halve]
task = "Take a tensor `x` and return its half."
minutes = 1
difficulty = 1
hints = ["Half of 4 is 2."]
insight = "Half of half is a quarter."

[tiny_halve.mistakes.doubled]
patches = [{ "x / 2" = "x * 2" }]
message = "That is twice as much."
"""
FILES = {
    f"notebooks/source/{NAME}.py": SOURCE,
    "attention_course/questions/tiny.toml": QUESTION,
    "attention_course/explorers/tiny.py": EXPLORER,
    "attention_course/exercises/tiny.py": EXERCISE,
    "attention_course/exercises/tiny.toml": TEXTS,
}


@pytest.fixture(scope="module")
def course(tmp_path_factory) -> Path:
    """Return a copy of the project with one more rung, built."""
    copy = tmp_path_factory.mktemp("ladder") / "course"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    ladder = copy / "attention_course" / "ladder.py"
    before = ladder.read_text()
    ladder.write_text(before.replace(")\nSTEMS", f"{LINE})\nSTEMS"))
    assert ladder.read_text().splitlines(keepends=True).count(LINE) == 1
    for name, text in FILES.items():
        (copy / name).write_text(text)
    run(copy, "notebooks/build.py", NAME)
    return copy


def run(copy: Path, *command: str) -> str:
    """Run a Python command in the copy, with its package; return what it printed."""
    environment = os.environ | {"PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *command], cwd=copy, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_new_rung_is_one_line_and_its_own_files(course):
    title, *cells = nbformat.read(course / "notebooks" / f"{NAME}.ipynb", as_version=4).cells
    line = title.source.replace("\u00a0", " ")
    assert f"· [{LAST.number} {LAST.title}]({LAST.name}.ipynb) · **▶ {N} a tiny rung**" in line
    shown = "".join(str(cell.get("outputs")) for cell in cells)
    assert "What is half of one?" in shown
    assert "Half is 0.5." in shown
    assert "tiny_halve: not tried yet" in shown
    assert "'doubled'" in shown
    of_rung_1 = "from notebooks.build import navigation; print(navigation('01_bag_of_words'))"
    line = run(course, "-c", of_rung_1).replace("\u00a0", " ")
    assert line.endswith(f"· [{N} a tiny rung]({NAME}.ipynb)\n")


@pytest.mark.slow
def test_the_claims_of_a_new_rung_are_read(course):
    tests = f"{NAME} or all_that_the_package"
    printed = run(course, "-m", "pytest", "-v", "-p", "no:cacheprovider", "tests/test_claims.py", "-k", tests)
    for test in ("is_proved_against_the_one_below", "each_marked_number_is_computed_beside_it"):
        assert re.search(rf"{test}\[{NAME}\] PASSED", printed)
    assert re.search(r"all_that_the_package_asks_checks_and_explores_is_read PASSED", printed)
    assert "tiny_half" not in QUESTIONS
    assert "tiny_halve" not in EXERCISES


def test_each_rung_has_its_drawing_of_the_transformer():
    for rung in RUNGS:
        stored = ROOT / "notebooks" / "images" / f"transformer_{rung.number}.svg"
        drawn = draw_transformer.drawing(rung.number) + "\n"
        assert stored.read_text(encoding="utf-8") == drawn, "make drawings"
        assert 'class="lit"' in drawn, "a rung builds a part"
