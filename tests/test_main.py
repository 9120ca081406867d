"""The command `attention-course`: what it copies, what it says, and what it hands to JupyterLab."""

import os
import sys
from pathlib import Path

import pytest
from filelock import FileLock
from jupyterlab.labapp import LabApp

import attention_course
from attention_course import workspace
from attention_course.__main__ import main
from attention_course.ladder import RUNGS


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


@pytest.mark.parametrize(
    ("given", "folder", "url"),
    [
        ([], "my courses/my_notebooks", "my_notebooks"),
        (
            ["../else where/the course", "--no-browser", "--port", "8889"],
            "else where/the course",
            "the%20course",
        ),
        (["--no-lab", "../mine"], "mine", None),
    ],
)
def test_it_copies_the_course_and_opens_the_first_rung(command, tmp_path, capsys, given, folder, url):
    folder, first = tmp_path / folder, f"--LabApp.default_url=/doc/tree/{url}/01_bag_of_words.ipynb"
    assert command(*given) == ([(folder.parent, [first, *given[1:]])] if url else [])
    assert capsys.readouterr().out == f"Your notebooks are in {folder}\n"
    assert [path.stem for path in sorted(folder.glob("*.ipynb"))] == [rung.name for rung in RUNGS]
    assert (folder / "images/transformer_bag_of_words.svg").exists()


@pytest.mark.parametrize("arguments", [("--port", "8889"), ("--no-browser", "mine")])
def test_the_value_of_an_option_is_not_taken_for_a_folder(command, capsys, arguments):
    with pytest.raises(SystemExit):
        command(*arguments)
    assert "FOLDER comes before JupyterLab's options" in capsys.readouterr().err
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize("arguments", [("my", "course"), ("mine", "--no-lab", "--no-browser")])
def test_what_is_neither_folder_nor_option_is_refused(command, capsys, arguments):
    with pytest.raises(SystemExit):
        command(*arguments)
    assert f"{arguments[-1]}: no such argument." in capsys.readouterr().err
    assert list(Path.cwd().iterdir()) == []


def test_a_file_in_the_way_another_start_and_a_damaged_ledger_get_a_sentence(command, capsys, monkeypatch):
    monkeypatch.setattr(workspace, "PATIENCE", 0)
    Path("file").write_text("a file of mine")
    Path("busy").mkdir()
    with pytest.raises(SystemExit, match=r"cannot be brought into .*file: .+\. Name another folder"):
        command("file")
    with (
        FileLock(f"busy/{workspace.LEDGER}.lock"),
        pytest.raises(SystemExit, match=f"{workspace.LEDGER}.lock behind"),
    ):
        command("busy")
    (Path("busy") / workspace.LEDGER).write_text("{")
    command("busy", "--no-lab")
    assert ".attention_course.json was damaged" in capsys.readouterr().out


def test_an_interrupted_start_ends_without_a_traceback(command, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(workspace, "prepare", interrupted)
    with pytest.raises(SystemExit, match="130"):
        command("mine")


@pytest.mark.skipif(os.name == "nt", reason="Windows has other links, and guesses the folders of users")
def test_a_folder_that_cannot_be_found_gets_a_sentence(command, capsys):
    Path("loop").symlink_to("loop")
    for folder in ("loop", "~nobody of this name/mine"):
        with pytest.raises(SystemExit) as ended:
            command(folder)
        assert folder in f"{ended.value.code}{capsys.readouterr().err}"
    assert [path.name for path in Path.cwd().iterdir()] == ["loop"]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems allow no such names")
def test_a_folder_of_any_name_is_told_in_what_can_be_printed(command, capsys):
    odd = "a\x1b[2J\udcff"
    [(_, [url])] = command(odd)
    assert url.endswith("/doc/tree/a%1B%5B2J%FF/01_bag_of_words.ipynb")
    told = [capsys.readouterr().out]
    Path(f"file{odd}").write_text("a file of mine")
    for refused in (f"file{odd}", f"~nobody{odd}/mine"):
        with pytest.raises(SystemExit) as ended:
            command(refused)
        told.append(f"{ended.value.code}{capsys.readouterr().err}")
    for each in told:
        assert r"a\x1b[2J\udcff" in each
        assert each.replace("\n", "").isprintable()


def test_without_the_extra_it_says_what_to_install(command, monkeypatch):
    monkeypatch.setitem(sys.modules, "jupyterlab.labapp", None)
    with pytest.raises(SystemExit, match=r'pip install "attention-course\[course\]"'):
        command()
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize("name", ["class", "certificate"])
def test_other_commands_are_run_instead_and_say_what_they_take(command, capsys, name):
    with pytest.raises(SystemExit) as ended:
        command(name, "--help")
    assert ended.value.code == 0
    assert f"usage: attention-course {name} [" in capsys.readouterr().out
    assert list(Path.cwd().iterdir()) == []


def test_a_class_without_the_extra_says_what_to_install(command, monkeypatch):
    monkeypatch.setitem(sys.modules, "segno", None)
    for module in ("server", "__main__"):
        monkeypatch.delitem(sys.modules, f"attention_course.classroom.{module}", raising=False)
    with pytest.raises(SystemExit, match=r'pip install "attention-course\[course\]"'):
        command("class", "after_a_space")


def test_it_tells_its_version(command, capsys):
    with pytest.raises(SystemExit):
        command("--version")
    assert capsys.readouterr().out == f"{attention_course.__version__}\n"
