"""The learner's copy: no answers in it, nothing of theirs lost."""

import subprocess
from pathlib import Path

import nbformat
import pytest
from nbformat import v4
from nbformat.sign import NotebookNotary

from attention_course.workspace import prepare

ROOT = Path(__file__).resolve().parent.parent


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


def test_only_heroes_keep_their_outputs(source, tmp_path):
    assert prepare(source, tmp_path / "mine") == []
    hero, other = read(tmp_path / "mine" / "01_a.ipynb").cells
    assert hero.outputs[0].execution_count is None, "it was not run here"
    assert other.outputs == []
    assert other.execution_count is None
    assert (tmp_path / "mine" / "images" / "ladder.svg").exists()
    assert read(source / "01_a.ipynb").cells[1].outputs, "the committed notebook is left alone"


def test_the_empty_page_comes_once_and_is_never_overwritten(source, tmp_path):
    (source / "my_gpt.txt").write_text("empty")
    (source / "build.py").write_text("for maintainers")
    prepare(source, tmp_path / "mine")
    page = tmp_path / "mine" / "my_gpt.py"
    assert page.read_text() == "empty"
    assert not (tmp_path / "mine" / "build.py").exists()
    page.write_text("a GPT")
    (source / "my_gpt.txt").write_text("a new edition")
    prepare(source, tmp_path / "mine")
    assert page.read_text() == "a GPT"


def test_the_copy_is_trusted_and_the_original_is_not(source, tmp_path):
    prepare(source, tmp_path / "mine")
    notary = NotebookNotary()
    assert notary.check_signature(read(tmp_path / "mine" / "01_a.ipynb"))
    assert not notary.check_signature(read(source / "01_a.ipynb"))


def test_a_changed_notebook_stays_and_the_new_edition_comes_beside_it(source, tmp_path):
    mine = tmp_path / "mine"
    prepare(source, mine)
    notebook = read(mine / "01_a.ipynb")
    notebook.cells[1].source = "my answer"
    nbformat.write(notebook, mine / "01_a.ipynb")
    assert prepare(source, mine) == [], "the same edition again"
    write(source, "1 + 2")
    (sentence,) = prepare(source, mine)
    assert sentence == "01_a.ipynb has your changes and stays. The new edition is beside it: 01_a.new.ipynb"
    assert read(mine / "01_a.ipynb").cells[1].source == "my answer"
    assert read(mine / "01_a.new.ipynb").cells[1].source == "1 + 2"
    assert prepare(source, mine) == [], "it is said once"


def test_no_edition_overwrites_what_the_learner_made_of_the_one_before(source, tmp_path):
    mine = tmp_path / "mine"
    prepare(source, mine)
    for edition, name in ((2, "01_a.new.ipynb"), (3, "01_a.new2.ipynb"), (4, "01_a.new3.ipynb")):
        for path in mine.glob("*.ipynb"):
            notebook = read(path)
            notebook.cells[1].source = f"my answer in {path.name}"
            nbformat.write(notebook, path)
        write(source, f"1 + {edition}")
        (sentence,) = prepare(source, mine)
        assert name in sentence
        assert read(mine / name).cells[1].source == f"1 + {edition}"
    assert read(mine / "01_a.ipynb").cells[1].source == "my answer in 01_a.ipynb"
    assert read(mine / "01_a.new.ipynb").cells[1].source == "my answer in 01_a.new.ipynb"


def test_another_python_is_no_other_edition(source, tmp_path, monkeypatch):
    mine = tmp_path / "mine"
    prepare(source, mine)
    (mine / "01_a.ipynb").write_text("what I made of it")
    monkeypatch.setattr("platform.python_version", lambda: "3.99.0")
    assert prepare(source, mine) == []
    assert (mine / "01_a.ipynb").read_text() == "what I made of it"


def test_a_full_disk_leaves_the_old_notebook(source, tmp_path, monkeypatch):
    mine = tmp_path / "mine"
    prepare(source, mine)
    before = {path: path.read_bytes() for path in mine.iterdir() if path.is_file()}
    write(source, "1 + 2")

    def full(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="No space"):
        prepare(source, mine)
    assert {path: path.read_bytes() for path in mine.iterdir() if path.is_file()} == before


def test_a_deleted_notebook_comes_back(source, tmp_path):
    prepare(source, tmp_path / "mine")
    (tmp_path / "mine" / "01_a.ipynb").unlink()
    assert prepare(source, tmp_path / "mine") == []
    assert (tmp_path / "mine" / "01_a.ipynb").exists()


@pytest.mark.parametrize("text", ["{", "[]", '{"editions": 1}'])
def test_a_damaged_ledger_is_named(source, tmp_path, text):
    prepare(source, tmp_path / "mine")
    (tmp_path / "mine" / ".attention_course.json").write_text(text)
    with pytest.raises(ValueError, match=r"\.attention_course\.json is damaged .* Delete it"):
        prepare(source, tmp_path / "mine")


def test_an_untouched_notebook_becomes_the_new_edition(source, tmp_path):
    mine = tmp_path / "mine"
    prepare(source, mine)
    write(source, "1 + 2")
    assert prepare(source, mine) == []
    assert read(mine / "01_a.ipynb").cells[1].source == "1 + 2"
    assert not (mine / "01_a.new.ipynb").exists()


def test_a_file_that_was_there_before_stays(source, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "01_a.ipynb").write_text("a file of mine")
    assert len(prepare(source, mine)) == 1
    assert (mine / "01_a.ipynb").read_text() == "a file of mine"


def test_a_course_without_notebooks_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"There are no notebooks in .*\. Install the course again"):
        prepare(tmp_path, tmp_path / "mine")


def test_git_does_not_see_the_copy():
    ignored = subprocess.run(["git", "check-ignore", "-q", "my_notebooks/01_bag_of_words.ipynb"], cwd=ROOT)
    assert ignored.returncode == 0
