"""The command `attention-course`: what it copies, what it says, and what it hands to JupyterLab."""

import json
import os
import shutil
import sys
import tempfile
import tomllib
from pathlib import Path

import nbformat
import pytest
from filelock import FileLock
from jupyterlab.labapp import LabApp

import attention_course
from attention_course import workspace
from attention_course.__main__ import main
from attention_course.ladder import RUNGS

ROOT = Path(__file__).resolve().parent.parent
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Run the command in a folder with a space in its name; return what JupyterLab was given, and where."""
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    (tmp_path / "my courses").mkdir()
    monkeypatch.chdir(tmp_path / "my courses")
    started = []
    monkeypatch.setattr(LabApp, "launch_instance", lambda options: started.append((Path.cwd(), options)))

    def run(*arguments: str) -> list[tuple[Path, list[str]]]:
        monkeypatch.setattr(sys, "argv", ["attention-course", *arguments])
        main()
        return started

    return run


def test_it_copies_the_course_and_opens_the_first_rung(command, tmp_path, capsys):
    folder = tmp_path / "my courses"
    url = "--LabApp.default_url=/doc/tree/my_notebooks/01_bag_of_words.ipynb"
    assert command() == [(folder, [url])]
    assert capsys.readouterr().out == f"Your notebooks are in {folder / 'my_notebooks'}\n"
    assert [path.stem for path in sorted((folder / "my_notebooks").glob("*.ipynb"))] == [
        r.name for r in RUNGS
    ]
    assert (folder / "my_notebooks/images/transformer_bag_of_words.svg").exists()


def test_a_folder_anywhere_and_options_for_jupyterlab(command, tmp_path):
    url = "--LabApp.default_url=/doc/tree/the%20course/01_bag_of_words.ipynb"
    started = command(str(tmp_path / "else where/the course"), "--no-browser", "--port", "8889")
    assert started == [(tmp_path / "else where", [url, "--no-browser", "--port", "8889"])]


def test_without_jupyterlab(command, tmp_path):
    assert command("--no-lab", "../mine") == []
    assert (tmp_path / "mine/01_bag_of_words.ipynb").exists()


@pytest.mark.parametrize("arguments", [("--port", "8889"), ("--no-browser", "mine"), ("--port", "8889", "a")])
def test_the_value_of_an_option_is_not_taken_for_a_folder(command, capsys, arguments):
    with pytest.raises(SystemExit):
        command(*arguments)
    assert "FOLDER comes before JupyterLab's options" in capsys.readouterr().err
    assert list(Path.cwd().iterdir()) == []


def test_what_the_learner_changed_stays_and_is_named(command, capsys, monkeypatch):
    command("mine", "--no-lab")
    mine = Path("mine/02_tril_matmul.ipynb")
    mine.write_text("my answer")
    assert "stays" not in capsys.readouterr().out
    command("mine", "--no-lab")
    assert "stays" not in capsys.readouterr().out, "the same edition is not given again"
    ledger = Path("mine") / workspace.LEDGER
    ledger.write_text(json.dumps(json.loads(ledger.read_text()) | {"editions": {}}))  # an older one was given
    command("mine", "--no-lab")
    assert "02_tril_matmul.ipynb has your changes and stays" in capsys.readouterr().out
    assert mine.read_text() == "my answer"
    assert nbformat.read(mine.with_name("02_tril_matmul.new.ipynb"), as_version=4).cells


@pytest.mark.skipif(os.name == "nt", reason="Windows closes folders in another way")
def test_a_folder_that_cannot_be_written_gets_a_sentence(command, monkeypatch):
    with tempfile.TemporaryDirectory() as home:  # pytest's own folders are closed to other users
        shutil.copy(ROOT / "notebooks/01_bag_of_words.ipynb", home)
        monkeypatch.setattr("attention_course.__main__.published", lambda: Path(home))
        os.chmod(home, 0o555)
        administrator = os.geteuid() == 0
        if administrator:
            os.seteuid(65534)  # the administrator may write anywhere: be nobody
        try:
            with pytest.raises(SystemExit) as ended:
                command(f"{home}/mine")
        finally:
            if administrator:
                os.seteuid(0)
    folder = Path(home).resolve() / "mine"
    assert ended.value.code == (
        f"The notebooks cannot be brought into {folder}: Permission denied. Name another folder."
    )


def test_a_file_in_the_way_and_a_damaged_ledger_get_a_sentence(command, capsys):
    Path("mine").write_text("a file of mine")
    with pytest.raises(SystemExit, match=r"cannot be brought into .*mine: .+\. Name another folder"):
        command("mine")
    command("other", "--no-lab")
    (Path("other") / workspace.LEDGER).write_text("{")
    capsys.readouterr()
    command("other", "--no-lab")
    assert ".attention_course.json was damaged" in capsys.readouterr().out


@pytest.mark.skipif(os.name == "nt", reason="Windows has other links, and guesses the folders of users")
def test_a_folder_that_cannot_be_found_gets_a_sentence(command, capsys):
    Path("loop").symlink_to("loop")
    for folder in ("loop", "~nobody of this name/mine"):
        with pytest.raises(SystemExit) as ended:
            command(folder)
        assert folder in f"{ended.value.code}{capsys.readouterr().err}"
    assert [path.name for path in Path.cwd().iterdir()] == ["loop"]


def test_another_start_gets_a_sentence(command, monkeypatch):
    monkeypatch.setattr(workspace, "PATIENCE", 0)
    Path("mine").mkdir()
    with FileLock(f"mine/{workspace.LEDGER}.lock"), pytest.raises(SystemExit, match="Wait until it ends"):
        command("mine")


def test_there_is_one_version(command, capsys):
    with pytest.raises(SystemExit):
        command("--version")
    assert capsys.readouterr().out == f"{VERSION}\n"
    assert attention_course.__version__ == VERSION
    frame = ROOT / "attention_course/labextension/package.json"
    assert json.loads(frame.read_text())["version"] == VERSION
