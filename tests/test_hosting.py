"""Binder, JupyterHub and CI: the files agree with the project, and their scripts do what they say.

The images are not built. What is tried is each command, with pip replaced by one that writes down what it was
asked.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from attention_course.ladder import RUNGS

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the scripts are for Linux")

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = SpecifierSet(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"])
SUDO = "--preserve-env --set-home --user learner attention-course ~/my_notebooks --no-lab"
FIRST = f"doc/tree/my_notebooks/{RUNGS[0].name}.ipynb"


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile and their arguments."""
    lines = (line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.startswith("#"))
    whole = "\n".join(lines).replace("\\\n", " ")
    return [tuple(line.split(maxsplit=1)) for line in whole.splitlines() if line]


def arguments(name: str) -> list[str]:
    return [argument for instruction, argument in instructions() if instruction == name]


@pytest.fixture
def shell(tmp_path):
    """Run a script of bash in a folder; return what pip was asked for, line by line.

    Its `command` adds one to those that the script finds.
    """
    bin, home = tmp_path / "bin", tmp_path / "a home"
    bin.mkdir()
    home.mkdir()
    asked = tmp_path / "asked"

    def command(name: str, script: str) -> None:
        (bin / name).write_text(f"#!/bin/sh -e\n{script}\n")
        (bin / name).chmod(0o755)

    command("pip", f'echo "$@" >> {asked}')
    command("attention-course", f'exec {sys.executable} -m attention_course "$@"')
    paths = {"PATH": f"{bin}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}

    def run(script: str, where: Path) -> list[str]:
        command = ["bash", "-e", "-c", script]
        done = subprocess.run(command, cwd=where, env=os.environ | paths | {"HOME": str(home)}, text=True)
        assert done.returncode == 0
        return asked.read_text().splitlines() if asked.exists() else []

    run.home, run.command = home, command
    return run


def is_pytorch_alone(asked: str) -> bool:
    """Whether pip was asked for the pinned PyTorch in its CPU build, and for nothing else from its index."""
    (pinned,) = re.findall(r"^torch==.*", (ROOT / "constraints.txt").read_text(), re.M)
    alone = f" --no-deps {pinned} --index-url https://download.pytorch.org/whl/cpu"
    return asked.startswith("install") and asked.endswith(alone)


def asks_for_the_course(lines: list[str]) -> bool:
    """Whether pip was asked for PyTorch, and then for the course."""
    torch, course = lines
    return is_pytorch_alone(torch) and course.endswith("--constraint constraints.txt .")


def test_binder_installs_the_course_and_makes_the_copies(shell, tmp_path):
    repository = tmp_path / "repository"
    repository.mkdir()
    shutil.copy(ROOT / "constraints.txt", repository)
    shutil.copytree(ROOT / ".binder", repository / ".binder")
    assert asks_for_the_course(shell(".binder/postBuild", repository))
    assert (repository / "my_notebooks" / f"{RUNGS[0].name}.ipynb").exists()


def test_binder_has_a_python_of_the_course():
    name, version = (ROOT / ".binder/runtime.txt").read_text().strip().split("-")
    assert name == "python"
    assert version in PYTHONS


def test_the_image_is_built_from_an_official_one_of_a_day_and_runs_as_its_user():
    (base,) = arguments("FROM")
    assert re.fullmatch(r"quay\.io/jupyter/minimal-notebook:\d{4}-\d\d-\d\d", base)
    assert arguments("USER")[-1] == "${NB_UID}"
    assert arguments("WORKDIR")[-1] == "${HOME}"


def test_the_image_installs_the_course_from_what_it_copies(shell, tmp_path):
    copied = tmp_path / "copied"
    copied.mkdir()
    for argument in arguments("COPY"):
        *sources, target = argument.split()
        for source in map(ROOT.joinpath, sources):
            folder = copied / Path(target).relative_to("/tmp/course")
            shutil.copytree(source, folder) if source.is_dir() else shutil.copy(source, folder)
    install, _ = arguments("RUN")
    assert asks_for_the_course(shell(install, copied))
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", tmp_path]
    subprocess.run(build, cwd=copied, check=True, capture_output=True)
    assert list(tmp_path.glob("attention_course-*.whl"))


@pytest.mark.parametrize("started_as", [0, 1000])
def test_a_server_of_the_image_starts_with_its_users_copies_at_the_first_rung(shell, tmp_path, started_as):
    """Root makes them as NB_USER: in that user's home, and not in its own."""
    learners = tmp_path / "another home"
    shell.command("id", f"echo {started_as}")
    shell.command("sudo", f'[ "$*" = "{SUDO}" ]; shift 4; HOME="{learners}" exec "$@"')
    _, write = arguments("RUN")
    text, hook = shlex.split(write)[1], Path(shlex.split(write)[-1])
    assert hook.parent == Path("/usr/local/bin/before-notebook.d")
    shell(f"NB_USER=learner; {text}", tmp_path)
    made = tmp_path.glob(f"*/my_notebooks/{RUNGS[0].name}.ipynb")
    assert [copy.parent.parent for copy in made] == [shell.home if started_as else learners]
    (command,) = arguments("CMD")
    assert json.loads(command) == ["start-notebook.py", f"--LabApp.default_url=/{FIRST}"]


@pytest.mark.parametrize("path", sorted(ROOT.glob(".github/workflows/*.yml")), ids=lambda path: path.stem)
def test_workflows_take_pytorch_alone_from_its_index(shell, path, tmp_path):
    """And make keeps it: it takes the environment that it finds."""
    (step,) = re.findall(r"run: \|\n((?: {10}.+\n)+)", path.read_text())
    shutil.copy(ROOT / "constraints.txt", tmp_path)
    shell.command("python", '[ "$1 $2" = "-m venv" ]; mkdir -p "$3/bin"; cp "$(command -v pip)" "$3/bin"')
    assert is_pytorch_alone(*shell(step, tmp_path))
    assert "INDEX" not in path.read_text()


def test_the_readme_starts_hosts_at_the_first_rung():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"?urlpath={FIRST}" in readme
    assert f'"/{FIRST}"' in readme
