"""The learner's own copy of the notebooks: `python -m attention_course.workspace notebooks my_notebooks`.

What is committed has its outputs, so that it can be read anywhere; they would answer a question before it
is asked. The copy has none but the heroes. A new edition of the course replaces it, but never a notebook that
the learner has changed.
"""

import argparse
import hashlib
import json
import platform
import shutil
import sys
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.sign import NotebookNotary

GIVEN = ".attention_course.json"  # what was put into the folder: the name of each notebook, and its SHA-256


def clean(notebook: NotebookNode) -> NotebookNode:
    """Take out all outputs but the heroes', and say what JupyterLab would add on opening it."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.execution_count = None
            if "hero" not in cell.metadata.get("tags", []):
                cell.outputs = []
    notebook.metadata.attention_course = {}  # the frame in JupyterLab asks for it
    notebook.metadata.language_info = {
        "codemirror_mode": {"name": "ipython", "version": sys.version_info.major},
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "name": "python",
        "nbconvert_exporter": "python",
        "pygments_lexer": "ipython3",
        "version": platform.python_version(),
    }
    return notebook


def digest(text: str) -> str:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def prepare(source: Path, folder: Path) -> list[str]:
    """Bring the notebooks and images of `source` into `folder`; whatever the learner changed there stays.

    The copies are signed as trusted, so that the heroes move before a cell has run.

    Args:
        source: the folder of the committed notebooks.
        folder: the learner's; created if missing.

    Returns:
        A sentence for each notebook that was kept because the learner has changed it.

    Raises:
        FileNotFoundError: there are no notebooks in `source`.
    """
    sources = sorted(source.glob("*.ipynb"))
    if not sources:
        raise FileNotFoundError(
            f"There are no notebooks in {source}. Name the folder of the course that has them."
        )
    folder.mkdir(parents=True, exist_ok=True)
    ledger = folder / GIVEN
    given = json.loads(ledger.read_text(encoding="utf-8")) if ledger.exists() else {}
    kept = []
    for path in sources:
        notebook = clean(nbformat.read(path, as_version=4))
        new = nbformat.writes(notebook) + "\n"
        target = folder / path.name
        if target.exists() and given.get(path.name) == digest(new):
            continue  # this edition was given before; what the learner made of it stays
        if target.exists() and digest(target.read_text(encoding="utf-8")) != given.get(path.name):
            target = folder / f"{path.stem}.new.ipynb"
            kept.append(
                f"{path.name} has your changes and stays. The new edition is beside it: {target.name}"
            )
        target.write_text(new, encoding="utf-8")
        NotebookNotary().sign(nbformat.reads(new, as_version=4))
        given[path.name] = digest(new)
    if (source / "images").is_dir():
        shutil.copytree(source / "images", folder / "images", dirs_exist_ok=True)
    ledger.write_text(json.dumps(given, indent=2) + "\n", encoding="utf-8")
    return kept


def main() -> None:
    """Prepare a folder, and print which notebooks were kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path, help="the folder of the notebooks as they are committed")
    parser.add_argument("folder", type=Path, help="the learner's folder")
    given = parser.parse_args()
    try:
        for sentence in prepare(given.source, given.folder):
            print(sentence)
    except (OSError, ValueError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
