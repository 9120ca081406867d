"""The learner's own copy of the notebooks, which the command `attention-course` makes.

What is committed has its outputs, so that it can be read anywhere; they would answer a question before it
is asked. The copy has none but the heroes. A new edition of the course replaces it, but never a file that the
learner has changed.
"""

import hashlib
import json
import os
import platform
import sqlite3
import sys
from itertools import chain, count
from pathlib import Path

import nbformat
from filelock import FileLock
from jupyter_core.paths import jupyter_data_dir
from nbformat import NotebookNode
from nbformat.sign import NotebookNotary

from attention_course.files import WRITABLE, read_text, write_at_once

LEDGER = ".attention_course.json"  # in the folder: the edition given of each file, and what was written
PATIENCE = 60.0  # seconds to wait for another start of the course


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


def digest(content: bytes) -> str:
    """Return the SHA-256 of the content of a file."""
    return hashlib.sha256(content).hexdigest()


def files_of(source: Path) -> dict[str, Path]:
    """Return the files that a learner gets, by their names in the learner's folder.

    Raises:
        ValueError: there are no notebooks in `source`.
    """
    notebooks, images = sorted(source.glob("*.ipynb")), sorted(source.glob("images/*"))
    if not notebooks:
        raise ValueError(f"There are no notebooks in {source}. Install the course again.")
    page = source / "my_gpt.txt"  # the empty page of the last rung, for those who prefer an editor
    files = {path.relative_to(source).as_posix(): path for path in [*notebooks, *images]}
    return files | ({"my_gpt.py": page} if page.is_file() else {})


def copy_of(path: Path) -> bytes:
    """Return what a learner gets of a file: of a notebook the clean one."""
    if path.suffix != ".ipynb":
        return path.read_bytes()
    return (nbformat.writes(clean(nbformat.read(path, as_version=4))) + "\n").encode()


def read_ledger(path: Path) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Read, for each file, the digests of the edition given and of what was written.

    The third is empty, unless the ledger is damaged; then it is a sentence, and nothing is known.
    """
    try:
        ledger = json.loads(read_text(path))
        return dict(ledger["editions"]), dict(ledger["written"]), []
    except FileNotFoundError:
        return {}, {}, []
    except (ValueError, TypeError, KeyError, RecursionError):
        return {}, {}, [f"{path} was damaged: what differs from this edition is taken for your changes."]


def place_for(content: bytes, name: str, folder: Path, written: dict[str, str]) -> str:
    """Return the first of name, name.new, name.new2 ... that is free, or as the course wrote it."""

    def is_ours(place: str) -> bool:
        path = folder / place
        if not path.is_file():
            return not os.path.lexists(path)
        writable = path.stat().st_mode & WRITABLE
        return bool(writable) and digest(path.read_bytes()) in (written.get(place), digest(content))

    stem, kind = os.path.splitext(name)
    suffixes = chain(["", ".new"], (f".new{n}" for n in count(2)))
    return next(filter(is_ours, (f"{stem}{suffix}{kind}" for suffix in suffixes)))


def sign(notebooks: list[Path]) -> list[str]:
    """Sign notebooks as trusted, so that the heroes move before a cell has run; if it fails, say so."""
    try:
        notary = NotebookNotary()
        for path in notebooks:
            notary.sign(nbformat.read(path, as_version=4))
    except (OSError, sqlite3.Error) as error:
        reason = getattr(error, "strerror", None) or error
        return [
            f"Jupyter will not trust the new notebooks, because it cannot write in {jupyter_data_dir()}: "
            f"{reason}. To make the pictures move, run the cells above them."
        ]
    return []


def prepare(source: Path, folder: Path) -> list[str]:
    """Bring the notebooks of `source`, images and the empty page into `folder`; the learner's changes stay.

    The ledger is written last. If that does not happen, what was written is known the next time: it is what
    would be written again.

    Args:
        source: the folder of the committed notebooks.
        folder: the learner's; created if missing.

    Returns:
        A sentence for each file that was kept because the learner has changed it, and for each problem.

    Raises:
        ValueError: there are no notebooks in `source`.
        filelock.Timeout: another process is at it.
        OSError: `folder` cannot be written.
    """
    files = files_of(source)
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f"{LEDGER}.lock", timeout=PATIENCE):
        editions, written, remarks = read_ledger(folder / LEDGER)
        images = folder / "images"
        if images.is_symlink() or images.is_file():
            remarks.append(f"{images} is yours and stays. Rename it, and the course brings its pictures.")
            files = {name: path for name, path in files.items() if path.parent == source}
        new = []
        for name, path in files.items():
            edition = digest(path.read_bytes())
            if os.path.lexists(folder / name) and editions.get(name) == edition:
                continue  # given before; what the learner made of it stays
            content = copy_of(path)
            place = place_for(content, name, folder, written)
            (folder / place).parent.mkdir(exist_ok=True)
            write_at_once(folder / place, content)
            editions[name], written[place] = edition, digest(content)
            if path.suffix == ".ipynb":
                new.append(folder / place)
            if place != name:
                remarks.append(f"{name} has your changes and stays. The new edition is beside it: {place}")
        if new:
            remarks += sign(new)
        ledger = {"editions": editions, "written": written}
        write_at_once(folder / LEDGER, (json.dumps(ledger, indent=2) + "\n").encode())
    return remarks
