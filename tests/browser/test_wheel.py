"""The course as `pip install` brings it: a wheel, a new environment, one command, the first rung.

Only the course comes into the new environment by pip. What it depends on is lent from this one (packages by a
.pth file, JupyterLab's pages by links), so that the test needs no network and no minutes.
"""

import json
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import lab
import pytest

from attention_course.ladder import RUNGS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob("attention_course-*.whl")
    return path


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory) -> Path:
    """Return a new virtual environment with the wheel in it."""
    here = tmp_path_factory.mktemp("an environment")
    venv.create(here, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", here / "bin/python", "install", "--no-index", "--no-deps"]
    subprocess.run([*pip, wheel], check=True, capture_output=True)
    (packages,) = here.glob("lib/python*/site-packages")
    (packages / "lent.pth").write_text(sysconfig.get_path("purelib"))
    lend(Path(sys.prefix) / "share/jupyter", here / "share/jupyter")
    return here


def lend(source: Path, target: Path) -> None:
    """Link JupyterLab and its extensions into `target`, but for the frame of the course and all settings."""
    for path in [*source.glob("lab/*"), *source.glob("labextensions/*")]:
        link = target / path.relative_to(source)
        if link.name not in ("attention-course", "settings"):
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path)


def test_the_wheel_has_what_git_has(wheel):
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    package = {name for name in listed.stdout.split() if name.startswith("attention_course/")}
    course = {f"attention_course/notebooks/{rung.name}.ipynb" for rung in RUNGS}
    course.add("attention_course/notebooks/my_gpt.txt")
    pictures = {
        f"attention_course/notebooks/images/{path.name}" for path in ROOT.glob("notebooks/images/*.svg")
    }
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name for name in names if name.startswith("attention_course/")} == package | course | pictures


@pytest.fixture(scope="module")
def page(environment, chromium_path, tmp_path_factory):
    """Open what the command opens, in a folder with spaces in its name."""
    home = tmp_path_factory.mktemp("home")
    command = [str(environment / "bin/attention-course"), "my course", "--ip=127.0.0.1", *lab.OPTIONS]
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONPATH", raising=False)
        server = lab.served(command, home, home)
        with server as address, lab.browser_page(chromium_path) as page:
            page.goto(address)
            lab.wait_for_kernel(page, address, f"my course/{RUNGS[0].name}.ipynb")
            page.home = home
            yield page


def test_the_command_opens_the_first_rung_of_the_wheel_in_its_frame(page, environment):
    assert "/doc/tree/my%20course/01_bag_of_words.ipynb" in page.url
    ask = "import attention_course, torch; print(attention_course.__file__)"
    where = subprocess.check_output([environment / "bin/python", "-I", "-c", ask], text=True, cwd=page.home)
    assert Path(where).is_relative_to(environment)
    page.locator(".attention-course .attention-hero svg").first.wait_for(timeout=30_000)
    height = page.locator(".jp-WindowedPanel-outer").bounding_box()["height"]
    assert height >= page.viewport_size["height"] - 60, "the wheel brings its settings: no status bar"
    assert page.locator("img[alt]").first.evaluate("(picture) => picture.naturalWidth") > 0


def test_the_first_cells_run_and_a_second_start_keeps_what_the_learner_changed(page, environment):
    page.locator(".jp-MarkdownOutput h1").first.click()
    for _ in range(10):
        page.keyboard.press("Shift+Enter")
    outputs = page.locator(".jp-OutputArea-output")
    outputs.get_by_text("33 different ones").wait_for(timeout=60_000)
    outputs.get_by_text("6 questions and 3 exercises").wait_for()
    notebook = page.home / "my course" / f"{RUNGS[1].name}.ipynb"
    changed = json.loads(notebook.read_text())
    changed["cells"][0]["source"] = "my own words"
    notebook.write_text(json.dumps(changed))
    command = [environment / "bin/attention-course", "my course", "--no-lab"]
    done = subprocess.run(command, cwd=page.home, capture_output=True, text=True, check=True)
    assert done.stdout == f"Your notebooks are in {page.home / 'my course'}\n"
    assert json.loads(notebook.read_text()) == changed
