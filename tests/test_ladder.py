"""The ladder is one list: files and README agree with it, and a new rung is its folder and one line."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import build
import draw_encoder_decoder
import draw_staircase
import draw_transformer
import numpy as np
import pytest

from attention_course.exercises import EXERCISES
from attention_course.explorers import EXPLORERS
from attention_course.heroes import HEROES, hero
from attention_course.ladder import FOLDER, ORDER, RUNGS, staircase
from attention_course.questions import QUESTIONS

ROOT = Path(__file__).resolve().parent.parent


def test_each_folder_is_a_rung_and_each_rung_a_notebook():
    assert {path.parent.name for path in FOLDER.glob("*/rung.toml")} == set(ORDER)
    assert {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")} == {rung.name for rung in RUNGS}
    assert [rung.number for rung in RUNGS] == list(range(1, len(RUNGS) + 1))


@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.stem)
def test_all_that_a_rung_holds_is_found(rung):
    assert rung.stem in HEROES
    assert rung.explorers
    assert rung.explorers.keys() <= EXPLORERS.keys()
    for table, found in (("exercises.toml", EXERCISES), ("questions.toml", QUESTIONS)):
        assert rung.table(table).keys() <= found.keys()


@pytest.mark.parametrize("minutes", [45, 90])
@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.stem)
def test_the_plan_of_a_lesson_names_what_the_rung_has_and_leaves_time_for_it(rung, minutes):
    """A vote with its discussion takes four minutes at least, an exercise as long as it says."""
    headings = {"", *re.findall(r"^# ##+ (.+)$", rung.text("notebook.py"), re.M)}
    exercises = rung.table("exercises.toml")
    there = {"vote": rung.table("questions.toml"), "fill": rung.steps, "exercise": exercises}
    assert sum(step["minutes"] for step in rung.teach[str(minutes)]) == minutes
    for step in rung.teach[str(minutes)]:
        assert step.keys() <= {"minutes", "at", "do", *there}
        assert step.get("at", "") in headings
        named = {kind: np.atleast_1d(step.get(kind, [])).tolist() for kind in there}
        for kind, names in named.items():
            assert there[kind].keys() >= set(names)
        needed = 4 * len(named["vote"]) + sum(exercises[name]["minutes"] for name in named["exercise"])
        assert step["minutes"] >= needed, step
    assert rung.teach["aim"]
    assert rung.teach["leave_out"]


def test_no_number_of_a_rung_is_typed_by_hand():
    """`{bag_of_words}` is written where a text names one."""
    texts = [path for path in FOLDER.rglob("*") if path.suffix in (".py", ".toml", ".js")]
    texts += [*FOLDER.glob("*/hero.json"), *FOLDER.parent.glob("*.py"), *FOLDER.parent.glob("[!rl]*/*.*")]
    for path in texts:
        if path.suffix in (".py", ".toml", ".js", ".json", ".md"):
            typed = re.findall(r"\brungs? \d+", path.read_text(encoding="utf-8"), re.I)
            assert not typed, f"{path}: {typed}"


def test_readme_lists_the_rungs_as_the_build_writes_them(tmp_path):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    copy = tmp_path / "README.md"
    copy.write_text(readme.replace(f"| {RUNGS[2].builds} |", "| something else |"), encoding="utf-8")
    build.list_rungs(copy)
    assert copy.read_text(encoding="utf-8") == readme
    assert f"| [{RUNGS[-1].title}](notebooks/{RUNGS[-1].name}.ipynb) |" in readme


def test_each_explorer_has_a_picture_for_slides():
    assert {path.stem for path in (ROOT / "notebooks/images").glob("*.png")} >= set(EXPLORERS)


def test_each_rung_has_its_drawings():
    climbed = {step["rung"] for step in staircase()["steps"]}
    for rung in RUNGS:
        tools = {"transformer": draw_transformer, "staircase": draw_staircase}
        for kind in ("transformer", "staircase") if rung.stem in climbed else ("transformer",):
            stored = ROOT / "notebooks" / "images" / f"{kind}_{rung.stem}.svg"
            drawn = tools[kind].drawing(rung) + "\n"
            assert stored.read_text(encoding="utf-8") == drawn, "make drawings"
            assert 'class="lit"' in drawn, "a rung builds a part, or is a step"
    stored = ROOT / "notebooks" / "images" / "encoder_decoder.svg"
    assert stored.read_text(encoding="utf-8") == draw_encoder_decoder.drawing() + "\n", "make drawings"


# Another ladder, in a copy of the project


@pytest.fixture
def course(tmp_path) -> Path:
    copy = tmp_path / "course"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "__pycache__"))
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
def test_a_new_rung_is_its_folder_and_one_line(course):
    """The tests that hold for every rung run on it."""
    last = RUNGS[-1]
    name = f"{last.number + 1:02}_tiny"
    run(course, "tools/new_rung.py", "tiny", "a tiny rung")
    run(course, "tools/draw_transformer.py")
    run(course, "tools/draw_staircase.py")
    run(course, "tools/make_fills.py", "tiny")
    run(course, "notebooks/build.py", name)
    assert f"· [{last.number} {last.title}]({last.name}.ipynb) · **▶ {last.number + 1} a tiny rung**" in (
        (course / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8").replace("\u00a0", " ")
    )
    tests = ("notebooks", "claims", "questions", "heroes", "explorers", "ladder")
    files = [f"tests/{each}.py" for each in ("exercises/test_answers", "exercises/test_exercise")]
    files += [f"tests/test_{test}.py" for test in tests]
    all_of = "tiny or all_that or each_folder or is_found or its_drawing or test_exercise"
    chosen = f"({all_of}) and not a_new_rung and not moves"
    options = ["-q", "-p", "no:cacheprovider", "--hypothesis-profile=quick"]
    told = run(course, "-m", "pytest", *options, "-k", chosen, *files)
    assert int(re.search(r"(\d+) passed", told)[1]) > 50 + 3 * len(EXERCISES)


@pytest.mark.slow
def test_a_rung_moves_by_one_line(course):
    """Every text that names it has its new number then; only the notebooks are built anew, and renamed."""
    ladder = course / "attention_course" / "ladder.py"
    moved, after = f'    "{ORDER[-1]}",\n', f'    "{ORDER[0]}",\n'
    ladder.write_text(ladder.read_text().replace(moved, "", 1).replace(after, after + moved, 1))
    for rung in RUNGS:
        (course / "notebooks" / f"{rung.name}.ipynb").unlink()
    texts = run(
        course,
        "-c",
        "import sys; sys.path.append('notebooks')\nimport build\nfrom attention_course.ladder import RUNGS\n"
        "for rung in RUNGS: print(build.read(rung))\nfrom attention_course.heroes import hero\n"
        "print(hero('ladder').data['rungs'])",
    )
    place = ORDER.index("bigram_to_gpt") + 2
    assert f"rung {place}]({place:02}_bigram_to_gpt.ipynb)" in texts
    assert "# # Rung 2: an empty page" in texts
    assert texts.index(RUNGS[-1].sentence) < texts.index(RUNGS[1].sentence)
    assert f"03_{ORDER[2]}" not in texts
    assert hero("ladder").data["rungs"][1]["title"] == RUNGS[1].title
