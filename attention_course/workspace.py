"""The learner's own copy of the notebooks, which the command `attention-course` makes.

What is committed has its outputs, so that it can be read anywhere; they would answer a question before it
is asked. The copy has none but the heroes. A new edition of the course replaces it, but never a notebook that
the learner has changed.
"""

import hashlib
import json
import platform
import shutil
import sys
from itertools import chain, count
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.sign import NotebookNotary

from attention_course.progress import write_at_once

LEDGER = ".attention_course.json"  # in the folder: the edition given of each notebook, what was written
PAGE = "my_gpt.txt"  # the empty page of rung 11, for those who prefer an editor: my_gpt.py in the folder


def published() -> Path:
    """Return the folder of the published notebooks: in a wheel in the package, in a checkout beside it."""
    package = Path(__file__).resolve().parent
    inside = package / "notebooks"
    return inside if inside.is_dir() else package.parent / "notebooks"


def clean(notebook: NotebookNode) -> NotebookNode:
    """Take out all outputs but the heroes', and say what JupyterLab would add on opening it."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.execution_count = None
            if "hero" not in cell.metadata.get("tags", []):
                cell.outputs = []
            for output in cell.outputs:
                output.execution_count = None  # it was not run here
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


def read_ledger(path: Path) -> dict[str, dict[str, str]]:
    """Read which edition of each notebook was given, and the digest of each file that was written.

    Raises:
        ValueError: the file is damaged.
    """
    if not path.exists():
        return {"editions": {}, "written": {}}
    try:
        ledger = json.loads(path.read_text(encoding="utf-8"))
        return {"editions": dict(ledger["editions"]), "written": dict(ledger["written"])}
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f"{path} is damaged ({error}). Delete it: your notebooks stay, and new ones come beside them."
        ) from error


def prepare(source: Path, folder: Path) -> list[str]:
    """Bring the notebooks of `source`, images and the empty page into `folder`; the learner's changes stay.

    The copies are signed as trusted, so that the heroes move before a cell has run.

    Args:
        source: the folder of the committed notebooks.
        folder: the learner's; created if missing.

    Returns:
        A sentence for each notebook that was kept because the learner has changed it.

    Raises:
        ValueError: there are no notebooks in `source`, or the ledger in `folder` is damaged.
        OSError: `folder` cannot be written.
    """
    sources = sorted(source.glob("*.ipynb"))
    if not sources:
        raise ValueError(f"There are no notebooks in {source}. Install the course again.")
    folder.mkdir(parents=True, exist_ok=True)
    ledger = read_ledger(folder / LEDGER)
    kept = []

    def untouched(path: Path) -> bool:
        written = ledger["written"].get(path.name)
        return not path.exists() or digest(path.read_text(encoding="utf-8")) == written

    for path in sources:
        edition = digest(path.read_text(encoding="utf-8"))
        if (folder / path.name).exists() and ledger["editions"].get(path.name) == edition:
            continue  # given before; what the learner made of it stays
        suffixes = chain(["", ".new"], (f".new{n}" for n in count(2)))
        names = (f"{path.stem}{suffix}.ipynb" for suffix in suffixes)
        target = next(folder / name for name in names if untouched(folder / name))
        text = nbformat.writes(clean(nbformat.read(path, as_version=4))) + "\n"
        write_at_once(target, text)
        NotebookNotary().sign(nbformat.reads(text, as_version=4))
        if target.name != path.name:
            kept.append(
                f"{path.name} has your changes and stays. The new edition is beside it: {target.name}"
            )
        ledger["editions"][path.name] = edition
        ledger["written"][target.name] = digest(text)
        write_at_once(folder / LEDGER, json.dumps(ledger, indent=2) + "\n")
    page = (folder / PAGE).with_suffix(".py")
    if (source / PAGE).is_file() and not page.exists():
        shutil.copyfile(source / PAGE, page)
    if (source / "images").is_dir():
        shutil.copytree(source / "images", folder / "images", dirs_exist_ok=True)
    return kept
