"""The learner's copy: no answers in it, nothing of theirs lost."""

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from itertools import count
from pathlib import Path

import nbformat
import pytest
from nbformat import v4
from nbformat.sign import NotebookNotary

from attention_course.workspace import LEDGER, prepare

on_unix = pytest.mark.skipif(os.name == "nt", reason="Windows has other links and permissions")


@pytest.fixture(autouse=True)
def own_signatures(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))


@pytest.fixture
def source(tmp_path) -> Path:
    """A course of one notebook: a hero, and a cell whose output would give an answer away."""
    folder = tmp_path / "notebooks"
    (folder / "images").mkdir(parents=True)
    (folder / "images" / "ladder.svg").write_text("<svg/>")
    write(folder, "1 + 1")
    return folder


def write(folder: Path, code: str) -> None:
    output = v4.new_output("execute_result", data={"text/plain": "2"}, execution_count=1)
    hero = v4.new_code_cell(
        'hero("x")', metadata={"tags": ["hero"]}, outputs=[output], execution_count=1, id="a"
    )
    other = v4.new_code_cell(code, outputs=[output], execution_count=2, id="b")
    nbformat.write(v4.new_notebook(cells=[hero, other]), folder / "01_a.ipynb")


def read(path: Path):
    return nbformat.read(path, as_version=4)


def revise(source: Path, edition: int) -> None:
    """Make a new edition of all that there is."""
    write(source, f"1 + {edition}")
    (source / "images" / "ladder.svg").write_text(f"<svg>{edition}</svg>")
    (source / "my_gpt.txt").write_text(f"empty {edition}")


def test_the_copy_has_the_heroes_outputs_alone_and_is_trusted(source, tmp_path):
    mine, notary = tmp_path / "mine", NotebookNotary()
    (source / "build.py").write_text("for maintainers")
    assert prepare(source, mine) == []
    notebook = read(mine / "01_a.ipynb")
    hero, other = notebook.cells
    assert (hero.outputs[0].execution_count, other.execution_count) == (None, None), "they were not run here"
    assert other.outputs == []
    assert notary.check_signature(notebook)
    original = read(source / "01_a.ipynb")
    assert original.cells[1].outputs, "the committed notebook is left alone"
    assert not notary.check_signature(original)
    assert not (mine / "build.py").exists()


@pytest.mark.parametrize(
    ("name", "made"),
    [("images/ladder.svg", b"my picture"), ("my_gpt.py", b"a GPT"), ("01_a.ipynb", b"caf\xe9")],
)
def test_no_edition_overwrites_what_the_learner_changed(source, tmp_path, name, made):
    """Not even in the new edition that came beside a changed file; what was not changed is replaced."""
    revise(source, 1)
    mine, changed = tmp_path / "mine", {}
    prepare(source, mine)
    for edition, suffix in ((2, ""), (3, ".new"), (4, ".new2")):
        path = (mine / name).with_stem(Path(name).stem + suffix)
        path.write_bytes(made + suffix.encode())
        changed[path] = path.read_bytes()
        assert prepare(source, mine) == [], "the same edition again"
        revise(source, edition)
        (sentence,) = prepare(source, mine)
        assert sentence.startswith(f"{name} has your changes and stays.")
        assert (mine / sentence.rpartition(" ")[2]).is_file()
        assert {path: path.read_bytes() for path in changed} == changed
        others = {"images/ladder.svg": f"<svg>{edition}</svg>", "my_gpt.py": f"empty {edition}"}
        others.pop(name, None)
        assert {other: (mine / other).read_text() for other in others} == others
        assert name == "01_a.ipynb" or read(mine / "01_a.ipynb").cells[1].source == f"1 + {edition}"


def test_another_python_is_no_other_edition(source, tmp_path, monkeypatch):
    mine = tmp_path / "mine"
    prepare(source, mine)
    (mine / "01_a.ipynb").write_text("what I made of it")
    monkeypatch.setattr("platform.python_version", lambda: "3.99.0")
    assert prepare(source, mine) == []
    assert (mine / "01_a.ipynb").read_text() == "what I made of it"


def test_a_deleted_notebook_comes_back(source, tmp_path):
    for _ in range(2):
        assert prepare(source, tmp_path / "mine") == []
        (tmp_path / "mine" / "01_a.ipynb").unlink()


@pytest.mark.parametrize("text", ["{", '{"editions": 1}', "[" * 100_000, "\xff"])
def test_a_damaged_ledger_is_as_good_as_none(source, tmp_path, text):
    mine = tmp_path / "mine"
    prepare(source, mine)
    (mine / "images" / "ladder.svg").write_text("my picture")
    (mine / LEDGER).write_text(text, encoding="latin-1")
    damaged, changed = prepare(source, mine)
    assert re.search(r"\.attention_course\.json was damaged", damaged)
    assert changed.startswith("images/ladder.svg has your changes and stays."), "the notebook has none"
    assert prepare(source, mine) == []
    assert {path.name for path in mine.glob("*.ipynb")} == {"01_a.ipynb"}


@on_unix
def test_a_protected_notebook_and_a_link_that_leads_nowhere_stay(source, tmp_path):
    mine = tmp_path / "mine"
    prepare(source, mine)
    (mine / "01_a.ipynb").chmod(0o444)
    (mine / "images" / "ladder.svg").unlink()
    (mine / "images" / "ladder.svg").symlink_to(tmp_path / "nowhere.svg")
    before = (mine / "01_a.ipynb").read_bytes()
    write(source, "1 + 2")
    (source / "images" / "ladder.svg").write_text("<svg></svg>")
    assert len(prepare(source, mine)) == 2
    assert (mine / "01_a.ipynb").read_bytes() == before
    assert not (tmp_path / "nowhere.svg").exists()


@on_unix
@pytest.mark.parametrize("is_folder", [True, False])
def test_nothing_is_written_where_a_link_of_the_learner_leads(source, tmp_path, is_folder):
    mine, pictures = tmp_path / "mine", tmp_path / "Pictures"
    mine.mkdir()
    if is_folder:
        pictures.mkdir()
    (mine / "images").symlink_to(pictures)
    for _ in range(2):
        (sentence,) = prepare(source, mine)
        assert sentence.startswith(f"{mine / 'images'} is yours and stays.")
    assert (mine / "01_a.ipynb").exists()
    assert (list(pictures.iterdir()) if is_folder else pictures.exists()) in ([], False)


class Killed(BaseException):
    """Nothing catches it."""


@pytest.mark.parametrize("edition", [1, 2])
@pytest.mark.parametrize("named", [False, True])
def test_a_start_that_was_killed_is_completed_by_the_next(source, tmp_path, monkeypatch, edition, named):
    """Whichever file was being written: just before it had its name, and just after."""
    revise(source, 1)
    shutil.copy(source / "01_a.ipynb", source / "02_b.ipynb")
    if edition == 2:
        prepare(source, tmp_path / "before")
        revise(source, 2)
        shutil.copy(source / "01_a.ipynb", source / "02_b.ipynb")
    prepare(source, tmp_path / "undisturbed")
    made = {path.relative_to(tmp_path / "undisturbed") for path in (tmp_path / "undisturbed").rglob("*")}
    replace = os.replace
    for last in range(1, 6):  # two notebooks, a picture, the empty page, the ledger
        mine, steps = tmp_path / f"killed at {last}", count(1)
        if edition == 2:
            shutil.copytree(tmp_path / "before", mine)

        def killed(*paths, last=last, steps=steps):
            step = next(steps)
            if named or step < last:
                replace(*paths)
            if step == last:
                raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", killed)
            with pytest.raises(Killed):
                prepare(source, mine)
        assert prepare(source, mine) == []
        assert {path.relative_to(mine) for path in mine.rglob("*")} == made
        for path in made - {Path("images"), Path(LEDGER)}:
            assert (mine / path).read_bytes() == (tmp_path / "undisturbed" / path).read_bytes()
        assert all(map(NotebookNotary().check_signature, map(read, mine.glob("*.ipynb"))))


def test_starts_at_once_make_what_one_would(source, tmp_path):
    for name in "bcdef":
        shutil.copy(source / "01_a.ipynb", source / f"01_{name}.ipynb")
    mine = tmp_path / "mine"
    prepare(source, mine)
    for path in mine.glob("*.ipynb"):
        path.write_text("my answer")
    for path in source.glob("*.ipynb"):
        path.write_text(path.read_text().replace("1 + 1", "1 + 2"))
    call = f"prepare(Path({str(source)!r}), Path({str(mine)!r}))"
    command = [sys.executable, "-c", f"from attention_course.workspace import *; print(*{call})"]
    starts = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    told = [start.communicate()[0].count("has your changes and stays") for start in starts]
    assert [start.returncode for start in starts] == [0, 0, 0]
    assert sorted(told) == [0, 0, 6], "one of them has done it all"
    assert len(list(mine.glob("*.ipynb"))) == 12


@on_unix
@pytest.mark.parametrize("fault", ["folder", "database"])
def test_what_cannot_be_signed_is_brought_all_the_same(source, tmp_path, monkeypatch, fault):
    """A file where Jupyter's folder should be; a database that takes no new rows."""
    prepare(source, tmp_path / "before")
    jupyter = tmp_path / "jupyter"
    if fault == "folder":
        jupyter = jupyter / "notebook_secret" / "jupyter"
        monkeypatch.setenv("JUPYTER_DATA_DIR", str(jupyter))
    else:
        with closing(sqlite3.connect(jupyter / "nbsignatures.db")) as database:
            refuse = "BEGIN SELECT RAISE(FAIL, 'attempt to write a readonly database'); END"
            database.execute(f"CREATE TRIGGER refuse BEFORE INSERT ON nbsignatures {refuse}")
    write(source, "1 + 2")
    (sentence,) = prepare(source, tmp_path / "mine")
    reason = "attempt to write a readonly database" if fault == "database" else "Not a directory"
    assert f"it cannot write in {jupyter}: {reason}. To make" in sentence
    assert (tmp_path / "mine" / "01_a.ipynb").exists()
    assert prepare(source, tmp_path / "mine") == [], "it is said once"


def test_a_course_without_notebooks_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"There are no notebooks in .*\. Install the course again"):
        prepare(tmp_path, tmp_path / "mine")
