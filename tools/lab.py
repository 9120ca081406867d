"""JupyterLab as `make lab` starts it, driven through Chromium; shared by the browser tests and the tools."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

from cells import shortened
from nbformat import read, writes
from nbformat import v4 as nbf
from playwright.sync_api import Locator, Page, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
LEFT_OUT = [".*", "tests", "tools", "__pycache__", "progress.json", "my_notebooks"]
OPTIONS = ["--no-browser", "--ServerApp.port=0"]
if hasattr(os, "geteuid") and os.geteuid() == 0:
    OPTIONS.append("--allow-root")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def find_chromium() -> str | None:
    """Return the browser to use: $CHROMIUM, or a Chromium or Chrome on the PATH."""
    names = [os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"]
    return next((path for path in map(shutil.which, filter(None, names)) if path), None)


@contextmanager
def jupyter_lab(extra: dict[str, str] | None = None, dark: bool = False, app: str = "lab"):
    """Run `make lab` on a copy of the notebooks, so that the originals are not modified; yield its URL.

    Args:
        extra: more notebooks to serve, as name and JSON text.
        dark: whether to use the dark theme.
        app: "notebook" runs Notebook 7 instead of JupyterLab.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "course"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*LEFT_OUT))
        (copy / ".venv").symlink_to(ROOT / ".venv")
        for name, text in (extra or {}).items():
            (copy / "notebooks" / name).write_text(text)
        choose = {"notebook-extension/tracker": {"windowingMode": "none"}}
        if dark:
            choose["apputils-extension/themes"] = {"theme": "JupyterLab Dark"}
        for plugin, settings in choose.items():
            chosen = Path(folder) / f"lab/user-settings/@jupyterlab/{plugin}.jupyterlab-settings"
            chosen.parent.mkdir(parents=True)
            chosen.write_text(json.dumps(settings))
        command = {
            "lab": ["make", "-s", "-o", ".venv/.ready", "lab", f"LAB_OPTIONS={' '.join(OPTIONS)}"],
            "notebook": [sys.executable, "-m", "notebook", "--ip=127.0.0.1", *OPTIONS],
        }
        with served(command[app], copy, Path(folder)) as address:
            yield address


@contextmanager
def served(command: list[str], where: Path, home: Path):
    """Run a command that starts JupyterLab in the folder `where`, with a home of its own; yield its URL."""
    environment = {"HOME": str(home), "JUPYTER_CONFIG_DIR": str(home), "OMP_NUM_THREADS": "1"}
    environment["XDG_CACHE_HOME"] = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    server = subprocess.Popen(
        command,
        cwd=where,
        env=os.environ | environment,  # the cache is the user's: the real model is in it
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield _address(server)
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.communicate(timeout=20)


def _address(server: subprocess.Popen) -> str:
    lines = []
    for line in server.stdout:
        lines.append(line)
        if found := re.search(r"http://127\.0\.0\.1:\d+/(doc|tree)\S*", line):
            return found.group()
    raise RuntimeError("JupyterLab ended before it gave an address:\n" + "".join(lines))


@contextmanager
def browser(chromium: str, environment: dict[str, str] | None = None):
    """Start the browser, with these environment variables beside those of this process."""
    with sync_playwright() as playwright:
        env = os.environ | (environment or {})
        started = playwright.chromium.launch(executable_path=chromium, args=FLAGS, env=env)
        yield started
        started.close()


@contextmanager
def browser_page(chromium: str, density: float = 1):
    """Open an empty page, 1280 x 800."""
    with browser(chromium) as started:
        yield started.new_page(viewport={"width": 1280, "height": 800}, device_scale_factor=density)


def open_notebook(page: Page, address: str, path: str) -> None:
    """Open a notebook in the running lab and wait until its kernel is idle."""
    base, app, token = re.match(r"(http://[^/]+)/(\w+).*token=(\w+)", address).groups()
    page.goto(f"{base}/{'doc/tree' if app == 'doc' else 'notebooks'}/{path}?token={token}&reset")
    wait_for_kernel(page, address, path)


def wait_for_kernel(page: Page, address: str, path: str) -> None:
    """Wait until the kernel of a notebook that was opened is idle."""
    base, token = re.match(r"(http://[^/]+)/.*token=(\w+)", address).groups()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with urllib.request.urlopen(f"{base}/api/sessions?token={token}") as answer:
            sessions = json.load(answer)
        if any(s["path"] == path and s["kernel"]["execution_state"] == "idle" for s in sessions):
            break
        page.wait_for_timeout(200)
    page.wait_for_selector(".jp-Notebook .jp-Cell")
    page.wait_for_selector('.jp-NotebookPanel-toolbar [data-status="idle"], [data-status="idle"]')


def start_all(page: Page) -> None:
    """Clear all outputs, and start running all cells."""
    for menu, item in (("Edit", "Clear Outputs of All Cells"), ("Run", "Run All Cells")):
        page.click(f".lm-MenuBar-item:has-text('{menu}')")
        page.click(f".lm-Menu-item:has-text('{item}') >> nth=0")


def notebook_of(cells: list[str]) -> str:
    """Return the JSON text of a notebook with these code cells."""
    notebook = nbf.new_notebook(cells=[nbf.new_code_cell(cell) for cell in cells])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
    return writes(notebook)


SHORT = """\
import sys

import pytest

sys.path.append({tools!r})
from cells import Unasked, run_twice, shorten

shorten(pytest.MonkeyPatch())
get_ipython().ast_transformers.append(Unasked())
run_twice(get_ipython(), {cells})"""


def short_notebook(name: str) -> str:
    """Return the JSON text of a notebook that trains hardly, asserts nothing, and runs each cell twice."""
    notebook = read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
    for cell in notebook.cells:
        cell.source = shortened(cell)
    cells = sum(cell.cell_type == "code" for cell in notebook.cells)
    notebook.cells.insert(0, nbf.new_code_cell(SHORT.format(tools=str(ROOT / "tools"), cells=cells)))
    return writes(notebook)


PIXELS = "(e) => [...e.querySelectorAll('canvas')].map((c) => c.toDataURL()).join()"


@contextmanager
def new_picture(explorer: Locator):
    """Expect that an explorer shows another picture than before, and wait for it."""
    before = explorer.evaluate(PIXELS)
    yield
    condition = f"([explorer, before]) => ({PIXELS})(explorer) !== before"
    explorer.page.wait_for_function(condition, arg=[explorer.element_handle(), before], timeout=30_000)


def run_all(page: Page, timeout: float = 60_000) -> None:
    """Clear all outputs, run all cells, and wait until each has its execution count."""
    start_all(page)
    page.wait_for_function(
        """() => {
            const prompts = [...document.querySelectorAll('.jp-CodeCell .jp-InputArea-prompt')];
            return prompts.length && prompts.every((prompt) => /\\[\\d+\\]/.test(prompt.textContent));
        }""",
        timeout=timeout,
    )
    page.wait_for_selector('[data-status="idle"]', timeout=timeout)  # the last cells may be folded
