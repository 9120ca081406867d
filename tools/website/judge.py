"""The judge of the pages: Python for browsers, from npm, the torch of the page, and the package's exercises.

Python comes as the file that npm publishes, from the registry that npm is configured to use. Where it cannot
be fetched the site is built without a judge, and its exercises lead into the notebook as before.
"""

import ast
import gzip
import hashlib
import http.client
import io
import json
import os
import re
import tarfile
import urllib.request
import zipfile
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import nbformat
import pooch
import torch
from nbformat import NotebookNode

from attention_course import __version__
from attention_course.exercises import EXERCISES
from attention_course.ladder import FOLDER, Rung

HERE = Path(__file__).parent / "page"
PACKAGE = FOLDER.parent
NOTEBOOKS = PACKAGE.parent / "notebooks"
NPM = "https://registry.npmjs.org"
VERSION = "314.0.7"  # of Pyodide
INTEGRITY = (
    "0YvXxEhfEdpLfb/XkM2BFAeMROq0iMUX2bzzH9pOttyMcWkwq+HbE5uyuGD82LN7y2q+SNvi/6V5JEsOlD2R1A=="  # sha512
)
TAKEN = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")
MODULES = ("__init__", "apart", "attention", "averaging", "checks", "files", "ladder", "names", "patching")
MODULES += ("progress", "rungs/__init__", "variants")
FILES = ("exercises/*", "plots/*", "rungs/*/__init__.py", "rungs/*/exercises.*", "rungs/*/rung.toml")
IMPORTS = re.compile(
    r"torch(\.nn(\.functional)?)?|math|itertools|functools|collections"
    r"|attention_course\.(attention|averaging)"
)


def registry() -> str:
    """Return the npm registry, as the environment, the reader's .npmrc or the machine's names it."""
    for name, value in os.environ.items():
        if name.lower() == "npm_config_registry" and value:
            return value.rstrip("/")
    line = re.compile(r"""^\s*registry\s*=\s*["']?([^\s"']+)""", re.M)
    for folder in (Path.home(), *map(Path, ("/usr/local/etc", "/usr/etc", "/etc"))):
        for file in (folder / ".npmrc", folder / "npmrc"):
            if file.is_file() and (found := line.search(file.read_text(encoding="utf-8", errors="replace"))):
                return found[1].rstrip("/")
    return NPM


def checksum(content: bytes) -> str:
    """Return the sha512 of a file in base64, as npm lists it."""
    return b64encode(hashlib.sha512(content).digest()).decode()


def package(name: str, version: str, integrity: str, taken: Sequence[str], lacks: str) -> dict[str, bytes]:
    """Return files of a package of npm, fetched once; none if that fails, after saying what to do.

    A file that is kept but has another checksum is fetched again.

    Args:
        name: of the package, with its scope.
        version: the one to fetch.
        integrity: its sha512, in base64.
        taken: the paths of its files.
        lacks: what the site is built without, if it cannot be fetched.
    """
    file = f"{name.rpartition('/')[2]}-{version}.tgz"
    path = Path(pooch.os_cache("attention_course")) / file
    address = f"{registry()}/{name}/-/{file}"
    try:
        content = path.read_bytes() if path.exists() else b""
        if checksum(content) != integrity:
            with urllib.request.urlopen(address, timeout=60) as answer:
                content = answer.read()
            if (found := checksum(content)) != integrity:
                raise OSError(f"its checksum is {found}")
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(f".{os.getpid()}")
            part.write_bytes(content)
            part.replace(path)
        with tarfile.open(fileobj=io.BytesIO(content)) as packed:
            return {each: packed.extractfile(f"package/{each}").read() for each in taken}
    except (OSError, EOFError, ValueError, KeyError, tarfile.TarError, http.client.HTTPException) as error:
        shown, why = (re.sub(r"[^/\s]+@", "", str(each)) for each in (address, error))  # without a password
        print(
            f"The site is built without {lacks}: {shown} could not be fetched ({why}). Name a registry "
            f"that can be reached in $NPM_CONFIG_REGISTRY, or put that file at {path}."
        )
        return {}


def names() -> str:
    """Return the public names of PyTorch as JSON: the page tells what it lacks from a misspelling."""
    owners = {"torch": torch, "Tensor": torch.Tensor, "nn": torch.nn, "functional": torch.nn.functional}
    return json.dumps({key: [n for n in dir(of) if n[0] != "_"] for key, of in owners.items()})


def course() -> bytes:
    """Return what Python loads in the page, as a zip file that is the same each time."""
    paths = {path.relative_to(HERE).as_posix(): path for path in HERE.rglob("*.py")}
    found = [PACKAGE / f"{name}.py" for name in MODULES]
    found += [path for each in FILES for path in PACKAGE.glob(each)]
    paths |= {path.relative_to(PACKAGE.parent).as_posix(): path for path in found if path.is_file()}
    contents = {name: path.read_bytes() for name, path in paths.items()}
    contents["torch/names.json"] = names().encode()
    info = f"attention_course-{__version__}.dist-info/METADATA"
    contents[info] = f"Metadata-Version: 2.1\nName: attention-course\nVersion: {__version__}\n".encode()
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as into:
        for name in sorted(contents):
            into.writestr(zipfile.ZipInfo(name), contents[name], zipfile.ZIP_DEFLATED)
    return made.getvalue()


def files() -> dict[str, bytes]:
    """Return the files of the judge, by their paths in the site; none if Pyodide cannot be had."""
    if not (found := package("pyodide", VERSION, INTEGRITY, TAKEN, "its judge")):
        return {}
    found["pyodide.asm.wasm.packed"] = gzip.compress(found.pop("pyodide.asm.wasm"), mtime=0)
    lock = json.loads(found["pyodide-lock.json"]) | {"packages": {}}
    found |= {"pyodide-lock.json": json.dumps(lock).encode(), "course.zip": course()}
    found["worker.js"] = (HERE / "worker.js").read_bytes()
    digest = hashlib.sha256(b"".join(found[name] for name in sorted(found))).hexdigest()[:12]
    return {f"judge/{digest}/{name}": content for name, content in found.items()}


def service(judge: dict[str, bytes]) -> str:
    """Return the service worker, which keeps these files."""
    folder = next(iter(judge)).rpartition("/")[0] + "/"
    names = json.dumps([path.removeprefix(folder) for path in judge])
    given = f'self.JUDGE = "{folder}";\nself.FILES = {names};\n'
    return given + (HERE / "sw.js").read_text(encoding="utf-8")


# What the pages ask


@dataclass(frozen=True)
class Task:
    """An exercise in a notebook: its heading, its cell, the function that it checks, and what it may use."""

    name: str
    title: str
    stub: str
    function: str
    given: str


@cache
def tasks(rung: Rung) -> dict[str, Task]:
    """Return the exercises of a notebook, by name."""
    notebook, found, title = nbformat.read(NOTEBOOKS / f"{rung.name}.ipynb", as_version=4), {}, ""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            title = ([title, *re.findall(r"^##+ (?:\d+\. )?(.*)", cell.source, re.M)])[-1]
        elif checked := re.search(r'^check\("(\w+)", (\w+)\)', cell.source, re.M):
            name, function = checked.groups()
            given = "" if EXERCISES[name].judge else given_for(notebook, cell)  # the examiner is not there
            found[name] = Task(name, title, cell.source, function, given)
    return found


def given_for(notebook: NotebookNode, cell: NotebookNode) -> str:
    """Return what a cell may use in the page: imports of its notebook, and the functions that it names."""
    lines = {"import torch": None, "import torch.nn as nn": None, "import torch.nn.functional as F": None}
    used = {node.id for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.Name)}
    for other in notebook.cells[: notebook.cells.index(cell)]:
        for line in ast.parse(other.source).body if other.cell_type == "code" else ():
            modules = [line.module] if isinstance(line, ast.ImportFrom) else []
            modules = [each.name for each in line.names] if isinstance(line, ast.Import) else modules
            is_used = isinstance(line, ast.FunctionDef) and line.name in used
            if is_used or (modules and all(IMPORTS.fullmatch(module or "") for module in modules)):
                lines[ast.unparse(line)] = None
    return "\n".join(lines)
