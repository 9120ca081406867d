"""One list of dependencies, pins that agree with it, and a set-up that repairs what was interrupted.

The set-up is tried on a project of a few lines with packages made here, so that it needs no network.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import mutants
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_environment_yml_adds_nothing_of_its_own():
    assert (ROOT / "environment.yml").read_text().splitlines() == [
        f"name: {PROJECT['name']}",
        "channels:",
        "  - conda-forge",
        "dependencies:",
        f"  - python{PROJECT['requires-python']}",
        "  - pip",
        "  - pip:",
        "      - -e .",
    ]


def test_all_files_admit_the_same_pythons():
    oldest, too_new = map(int, re.fullmatch(r">=3\.(\d+),<3\.(\d+)", PROJECT["requires-python"]).groups())
    makefile = (ROOT / "Makefile").read_text()
    assert f"not (3, {oldest}) <= sys.version_info < (3, {too_new})" in makefile
    for text in (makefile, (ROOT / "README.md").read_text()):
        assert f"Python 3.{oldest} to 3.{too_new - 1}" in text


def pins() -> dict[str, str]:
    found = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if not line.startswith("#"):
            match = re.fullmatch(r"([\w.-]+)==([\w.]+)", line)
            assert match, f"constraints.txt: {line!r} pins no version that everybody can get"
            found[canonicalize_name(match[1])] = match[2]
    return found


def test_every_dependency_is_pinned_within_its_bounds():
    pinned = pins()
    for line in [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]]:
        requirement = Requirement(line)
        assert any(bound.operator == ">=" for bound in requirement.specifier), f"{line} has no lower bound"
        assert pinned[canonicalize_name(requirement.name)] in requirement.specifier


needs_make = pytest.mark.skipif(
    os.name == "nt" or not shutil.which("make"), reason="make is not installed, or this is Windows"
)
needs_venv = pytest.mark.skipif(
    not importlib.util.find_spec("ensurepip"), reason="this Python cannot make environments (no ensurepip)"
)

PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""

METADATA = """Metadata-Version: 2.1
Name: course
Version: 1.0
Requires-Dist: torch>=2.4
Provides-Extra: dev
Requires-Dist: tool; extra == 'dev'
"""

BACKEND = f"""
import zipfile

def build_editable(folder, config_settings=None, metadata_directory=None):
    name = "course-1.0-py3-none-any.whl"
    with zipfile.ZipFile(folder + "/" + name, "w") as wheel:
        wheel.writestr("course-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nTag: py3-none-any\\n")
        wheel.writestr("course-1.0.dist-info/METADATA", {METADATA!r})
        wheel.writestr("course-1.0.dist-info/RECORD", "")
    return name
"""


def make_wheel(folder: Path, name: str, version: str) -> None:
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", "")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/RECORD", "")


class Course:
    """A project as small as can be, with this project's Makefile."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.venv = folder / ".venv"
        shutil.copy(ROOT / "Makefile", folder)
        (folder / "pyproject.toml").write_text(PYPROJECT)
        (folder / "backend.py").write_text(BACKEND)
        (folder / "constraints.txt").write_text("torch==2.13.0\ntool==1.0\n")
        wheels = folder / "wheels"
        wheels.mkdir()
        for name, version in [("torch", "2.13.0"), ("torch", "2.14.0"), ("tool", "1.0"), ("tool", "2.0")]:
            make_wheel(wheels, name, version)
        outside = {
            key: value for key, value in os.environ.items() if not key.startswith(("PIP_", "MAKE", "MFLAGS"))
        }
        pip = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": wheels.as_uri()}
        self.environment = {**outside, **pip}

    def make(self, *arguments: str, python: str = sys.executable) -> subprocess.CompletedProcess:
        command = ["make", f"PYTHON={python}", *arguments]
        return subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True)

    def set_up(self) -> None:
        (self.venv / ".ready").unlink(missing_ok=True)
        done = self.make(".venv/.ready")
        assert done.returncode == 0, done.stdout + done.stderr

    @property
    def packages(self) -> Path:
        (folder,) = self.venv.glob("lib/python*/site-packages")
        return folder

    def installed(self) -> set[str]:
        command = [self.venv / "bin/python", "-m", "pip", "freeze", "--exclude-editable"]
        frozen = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=True)
        return set(frozen.stdout.split("\n")) - {""}


@pytest.fixture(scope="module")
def course(tmp_path_factory) -> Course:
    made = Course(tmp_path_factory.mktemp("course with a space"))
    made.venv.mkdir()  # as an interrupted `python -m venv` leaves it
    made.set_up()
    return made


@needs_make
def test_make_alone_lists_all_targets(tmp_path):
    shutil.copy(ROOT / "Makefile", tmp_path)
    targets = re.findall(r"^([a-z-]+):", (tmp_path / "Makefile").read_text(), re.M)
    lines = Course(tmp_path).make().stdout.splitlines()
    assert {"lab", "test", "notebooks", "bench-explorers", "gallery"} <= set(targets)
    assert [line.split()[1] for line in lines] == targets
    assert all(len(line.split()) > 3 for line in lines), "a target is not explained"


@pytest.mark.slow
@needs_make
@needs_venv
class TestSetUp:
    def test_an_empty_environment_is_filled_with_what_is_pinned(self, course):
        assert course.installed() == {"torch==2.13.0", "tool==1.0"}

    def test_a_second_call_does_nothing(self, course):
        assert "up to date" in course.make(".venv/.ready").stdout

    def test_a_changed_list_of_dependencies_is_installed(self, course):
        os.utime(course.folder / "pyproject.toml")
        assert "pip install" in course.make(".venv/.ready").stdout

    def test_a_failed_set_up_is_not_trusted(self, course):
        constraints = course.folder / "constraints.txt"
        before = constraints.read_text()
        constraints.write_text("tool==3.0\n")
        assert course.make(".venv/.ready").returncode != 0
        assert course.make(".venv/.ready").returncode != 0
        constraints.write_text(before)
        course.set_up()

    def test_a_missing_pip_comes_back_and_the_rest_stays(self, course):
        for folder in course.packages.glob("pip*"):
            shutil.rmtree(folder)
        (course.packages / "torch.py").write_text("mine = True")
        course.set_up()
        assert course.installed() == {"torch==2.13.0", "tool==1.0"}
        assert (course.packages / "torch.py").read_text() == "mine = True"

    def test_a_half_installed_pip_is_completed(self, course):
        next(course.packages.glob("pip-*.dist-info/INSTALLER")).unlink()
        shutil.rmtree(course.packages / "pip" / "_internal" / "resolution")
        course.set_up()
        assert course.installed() == {"torch==2.13.0", "tool==1.0"}

    def test_a_package_that_was_interrupted_is_installed_again(self, course):
        (course.packages / "tool-1.0.dist-info" / "INSTALLER").unlink()
        (course.packages / "tool.py").unlink()
        course.set_up()
        assert (course.packages / "tool.py").exists()

    def test_a_torch_that_is_there_is_kept(self, course, tmp_path):
        make_wheel(tmp_path, "torch", "2.9.0+cpu")
        pip = [
            course.venv / "bin/python",
            "-m",
            "pip",
            "install",
            "--find-links",
            tmp_path,
            "torch==2.9.0+cpu",
        ]
        subprocess.run(pip, env=course.environment, capture_output=True, check=True)
        course.set_up()
        assert course.installed() == {"torch==2.9.0+cpu", "tool==1.0"}

    def test_an_environment_whose_python_is_gone_is_made_anew(self, course):
        for python in course.venv.glob("bin/python*"):
            python.unlink()
        course.set_up()
        assert course.installed() == {"torch==2.13.0", "tool==1.0"}

    @pytest.mark.parametrize(
        ("answers", "message"),
        [
            ("*version_info*", "Python 3.11 to 3.14"),
            ("*ensurepip*", "has no venv"),
            ("*", "Python 3.11 to 3.14"),
        ],
        ids=["too old", "without venv", "no Python"],
    )
    def test_an_unfit_python_is_refused_in_words(self, tmp_path, answers, message):
        python = tmp_path / "python"
        python.write_text(f'#!/bin/sh\ncase "$*" in {answers}) exit 1;; esac\n')
        python.chmod(0o755)
        done = Course(tmp_path).make(".venv/.ready", python=str(python))
        assert done.returncode != 0
        assert message in done.stdout + done.stderr
        assert not (tmp_path / ".venv/.ready").exists()


def test_a_decorator_called_below_its_function_is_the_same():
    source = """
def add(number):
    return lambda function: lambda: function() + number

def double(function):
    return lambda: 2 * function()

@add(1)
@double
def seven():
    return 3

class Number:
    @property
    def seven(self):
        return 7
"""
    rewritten = mutants.lower_decorators(source)
    assert "@add" not in rewritten
    for text in (source, rewritten):
        names = {}
        exec(text, names)
        assert names["seven"]() == names["Number"]().seven == 7
