"""What stands around the course: workflows, how to cite it, one version, and one list of quick tests."""

import ast
import json
import re
import shutil
import subprocess
import sysconfig
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted(ROOT.glob(".github/workflows/*.yml"))


def run(command: str, *arguments) -> None:
    """Run a command of this environment."""
    path = shutil.which(command, path=sysconfig.get_path("scripts"))
    done = subprocess.run([path, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_workflows_are_well_formed():
    run("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *WORKFLOWS)


def test_workflows_are_safe():
    """Actions pinned by commit, least permissions, no credentials left behind, nothing injected."""
    run("zizmor", "--offline", "--persona=pedantic", *WORKFLOWS)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_what_is_here(path):
    """A script by its path, or a target of make."""
    commands = re.findall(r"^\s+- run: (.+)$", path.read_text(encoding="utf-8"), re.M)
    assert commands
    for command in commands:
        program, *arguments = command.split()
        if program == "make":
            assert re.search(rf"^{arguments[0]}:", read("Makefile"), re.M), command
        else:
            assert (ROOT / (arguments or [program])[0]).is_file(), command


def test_the_citation_is_well_formed():
    run("check-jsonschema", "--builtin-schema", "vendor.citation-file-format", "CITATION.cff")


def test_there_is_one_version():
    version = tomllib.loads(read("pyproject.toml"))["project"]["version"]
    assert re.search(r"^version: (.+)$", read("CITATION.cff"), re.M)[1] == version
    assert json.loads(read("attention_course/labextension/package.json"))["version"] == version
    assert re.search(r"^## ([\d.]+)", read("CHANGELOG.md"), re.M)[1] == version


def test_the_smoke_test_runs_what_make_check_runs():
    (quick,) = re.findall(r"^QUICK = (.+)$", read(".ci/smoke.py"), re.M)
    words = " ".join(f'"{word}"' if " " in word else word for word in json.loads(quick))
    assert f"pytest {words}\n" in read("Makefile")


ONES = "one|two|three|four|five|six|seven|eight|nine"
TENS = "twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety"
TEENS = "ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|eighteen|nineteen"
SEVERAL = rf"(?:[7-9]|[1-9]\d\d?|seven|eight|nine|{TEENS}|(?:{TENS})(?:-(?:{ONES}))?|(?:a )?hundred|dozen)"
PARTS = "rungs|notebooks|questions|exercises|mistakes|explorers|heroes|bugs|tests"
COUNT = rf"(?<![\w.,-])(?<!rung )(?<!rungs ){SEVERAL}(?: (?!of |and |or )[a-z]+)? (?:{PARTS})\b"
COMPUTED = "attention_course/examine/bugs.md"  # written by tests/examine/bugs.py


def test_no_count_of_what_grows_is_typed_by_hand():
    """Fewer than seven may be some of them; CHANGELOG.md says what was true then."""
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    texts = r".*\.(md|py|toml|yml|html|js|cff)|\w+|.*/(hero|ladder)\.json"
    left_out = {"CHANGELOG.md", COMPUTED}
    names = [name for name in tracked if re.fullmatch(texts, name) and not name.startswith("tests/")]
    assert len(names) > 100
    counts = [(n, found) for n in {*names} - left_out for found in re.findall(COUNT, read(n), re.I)]
    assert counts == []


def test_nothing_that_windows_lacks_is_imported_at_the_top():
    """There a test would not even be collected; inside a function, or by importorskip, it may be."""
    lacks = {"curses", "fcntl", "grp", "posix", "pty", "pwd", "readline", "resource", "termios", "tty"}
    for path in [*ROOT.glob("attention_course/**/*.py"), *ROOT.glob("tests/**/*.py")]:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            assert lacks.isdisjoint(name.split(".")[0] for name in names), f"{path}:{node.lineno}"


def test_contributing_names_what_is_there():
    """Paths in code quotes, but for those of a rung to be made, and targets of make."""
    quoted = re.findall(r"`([^`]+)`", read("CONTRIBUTING.md"))
    paths = [text for text in quoted if "/" in text and not re.search(r"STEM|[ <]", text)]
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []
    targets = [text.split()[1] for text in quoted if text.startswith("make ")]
    assert [target for target in targets if not re.search(rf"^{target}:", read("Makefile"), re.M)] == []
