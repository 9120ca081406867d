"""What is beside the code: how it is installed, hosted and checked, and in which order it can be read."""

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from importlib.metadata import distribution, packages_distributions
from itertools import pairwise
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

import attention_course
from attention_course.ladder import RUNGS

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "attention_course"
WORKFLOWS = sorted(ROOT.glob(".github/workflows/*.yml"))
on_unix = pytest.mark.skipif(os.name == "nt", reason="the scripts are for Linux")


def read(name: str | Path) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


PYPROJECT = tomllib.loads(read("pyproject.toml"))
PROJECT = PYPROJECT["project"]
EXTRAS = PROJECT["optional-dependencies"]
MAKEFILE, DOCKERFILE, INSTALL = read("Makefile"), read("Dockerfile"), read("INSTALL.md")


# Installation


def required(names: list[str]) -> set[str]:
    """The packages of these names, and all that they require in this environment."""
    found: set[str] = set()
    while names:
        name = canonicalize_name(names.pop())
        if name not in found:
            found.add(name)
            needs = map(Requirement, distribution(name).requires or ())
            names += [each.name for each in needs if not each.marker or each.marker.evaluate({"extra": ""})]
    return found


ALONE = """
import importlib, sys
blocked, modules = (argument.split() for argument in sys.argv[1:])
class Blocked:
    def find_spec(name, path, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Blocked)
for module in modules:
    importlib.import_module("attention_course." + module)
from attention_course.examine import examine
from attention_course.gpt import GPT, GPTConfig
report = examine(GPT(GPTConfig(vocab_size=29, block_size=24)), vocab_size=29, block_size=24, train=False)
print(bool(report), "pip install" in report._repr_mimebundle_()["text/html"])
"""


def test_without_the_extra_there_are_models_training_and_the_examiner():
    alone = required([Requirement(line).name for line in PROJECT["dependencies"]])
    owners = packages_distributions().items()
    others = [name for name, owned in owners if alone.isdisjoint(map(canonicalize_name, owned))]
    assert {"IPython", "jupyterlab", "ipywidgets", "matplotlib", "quickjs", "tokenizers"} <= set(others)
    interactive = named().index("heroes")
    modules = [*(name for name in named()[:interactive] if name != "smollm"), "training.__main__"]
    command = [sys.executable, "-c", ALONE, " ".join(others), " ".join(modules)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("True True\n", 0), done.stderr


def test_every_dependency_is_pinned_within_its_bounds():
    lines = [line for line in read("constraints.txt").splitlines() if not line.startswith("#")]
    pins = [line.partition("==") for line in lines]
    pinned = {canonicalize_name(name): version for name, _, version in pins}
    for line in [*PROJECT["dependencies"], *EXTRAS["course"], *EXTRAS["dev"]]:
        requirement = Requirement(line)
        if requirement.name != PROJECT["name"]:
            assert any(bound.operator == ">=" for bound in requirement.specifier), f"no lower bound: {line}"
            assert pinned[canonicalize_name(requirement.name)] in requirement.specifier
    assert not [line for line in lines if "+" in line], "a build that not everybody can get"


def test_all_files_admit_the_same_pythons():
    pythons = PROJECT["requires-python"]
    oldest, too_new = map(int, re.fullmatch(r">=3\.(\d+),<3\.(\d+)", pythons).groups())
    assert f"not (3, {oldest}) <= sys.version_info < (3, {too_new})" in MAKEFILE
    assert all(f"Python 3.{oldest} to 3.{too_new - 1}" in text for text in (MAKEFILE, INSTALL))
    assert f"- python{pythons}\n" in read("environment.yml")
    assert read(".binder/runtime.txt").strip().removeprefix("python-") in SpecifierSet(pythons)


def test_what_the_learner_installs_is_the_whole_course():
    course = f"{PROJECT['name']}[course]"
    assert course in EXTRAS["dev"]
    assert "install --disable-pip-version-check -c $(VENV)/constraints.txt -e '.[dev]'" in MAKEFILE
    assert "- -e .[course]\n" in read("environment.yml")
    for text in (DOCKERFILE, read(".binder/postBuild")):
        assert "--constraint constraints.txt '.[course]'\n" in text
    installs = re.findall(r"(?:pip install|uvx --from) ([^`\n]+)", INSTALL)
    assert [line for line in installs if "[course]" not in line] == ["torch --index-url " + PYTORCH]


PYTORCH = "https://download.pytorch.org/whl/cpu"
TORCH_ALONE = f"""install --no-deps "$(grep '^torch==' constraints.txt)" --index-url {PYTORCH}"""


@pytest.mark.parametrize("path", ["Dockerfile", ".binder/postBuild", *WORKFLOWS], ids=str)
def test_nothing_but_pytorch_comes_from_its_index(path):
    text = read(path).replace("--no-cache-dir ", "")
    assert TORCH_ALONE in text
    assert len(re.findall("index.url", text, re.I)) == text.count(TORCH_ALONE)


def test_make_explains_its_targets_and_serves_this_machine_only():
    phony = re.search(r"^\.PHONY: (.+)$", MAKEFILE, re.M)[1].split()
    assert sorted(re.findall(r"^([a-z-]+):.*## .+", MAKEFILE, re.M)) == sorted(phony)
    assert "-m attention_course --ip=127.0.0.1 $(LAB_OPTIONS)\n" in MAKEFILE
    assert "docker run --rm --publish 127.0.0.1:8888:8888 " in DOCKERFILE


def test_what_make_imports_is_there():
    imports = re.findall(r"from [\w.]+ import [\w, ]+", MAKEFILE)
    assert len(imports) > 2
    for line in imports:
        exec(line)


# Hosts

FIRST = f"doc/tree/my_notebooks/{RUNGS[0].name}.ipynb"


def test_hosts_start_at_the_first_rung_from_a_dated_image_that_has_what_the_wheel_needs():
    assert f"?urlpath={FIRST}" in INSTALL
    assert f'"/{FIRST}"' in INSTALL
    assert f'CMD ["start-notebook.py", "--LabApp.default_url=/{FIRST}"]' in DOCKERFILE
    assert read(".binder/postBuild").endswith("\nattention-course --no-lab\n")
    assert re.fullmatch(r"quay\.io/jupyter/minimal-notebook:\d{4}-\d\d-\d\d", argument("FROM"))
    assert argument("USER") == "${NB_UID}"
    copied = " ".join(re.findall(r"^COPY (.+) /", DOCKERFILE, re.M)).split()
    included = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["include"]
    wanted = {path.split("/")[1] for path in included} | {PROJECT["readme"], *PROJECT["license-files"]}
    assert wanted | {"pyproject.toml", "constraints.txt"} == set(copied)


def argument(instruction: str) -> str:
    """The last argument of an instruction of the Dockerfile."""
    return re.findall(rf"^{instruction} ((?:.*\\\n)*.*)$", DOCKERFILE, re.M)[-1].replace("\\\n", "")


@on_unix
@pytest.mark.parametrize(("started_as", "user"), [("0", "learner"), ("1000", "the one who started it")])
def test_a_server_of_the_image_makes_its_users_copies(tmp_path, started_as, user):
    """Root makes them as NB_USER, in that user's home."""
    _, text, _, hook = shlex.split(argument("RUN"))
    assert Path(hook).parent == Path("/usr/local/bin/before-notebook.d")
    sudo = 'shift; [ "$1 $2" = "--set-home --user" ] || exit 1; user=$3; shift 3; "$@"'
    fakes = f"""
        user="the one who started it" NB_USER=learner
        id() {{ echo {started_as}; }}
        sudo() {{ {sudo}; }}
        attention-course() {{ echo "$user: $*"; }}
    """
    done = subprocess.run(["bash", "-e", "-c", fakes + text], cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == (f"{user}: ~/my_notebooks --no-lab\n", 0), done.stderr


# Checks


@pytest.mark.parametrize(
    "command",
    [
        ["check-jsonschema", "--builtin-schema", "vendor.github-workflows", *WORKFLOWS],
        ["check-jsonschema", "--builtin-schema", "vendor.citation-file-format", "CITATION.cff"],
        ["zizmor", "--offline", "--persona=pedantic", *WORKFLOWS],
    ],
    ids=["workflows", "citation", "safe workflows"],
)
def test_workflows_are_safe_and_files_well_formed(command):
    """Actions pinned by commit, least permissions, no credentials left behind, nothing injected."""
    program = shutil.which(command[0], path=sysconfig.get_path("scripts"))
    done = subprocess.run([program, *command[1:]], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_what_is_here(path):
    """A script by its path, or a target of make."""
    commands = re.findall(r"^\s+- run: (.+)$", read(path), re.M)
    assert commands
    for command in commands:
        program, *arguments = command.split()
        if program == "make":
            assert re.search(rf"^{arguments[0]}:", MAKEFILE, re.M), command
        else:
            assert (ROOT / (arguments or [program])[0]).is_file(), command


def test_there_is_one_version():
    assert attention_course.__version__ == PROJECT["version"]
    assert re.search(r"^version: (.+)$", read("CITATION.cff"), re.M)[1] == PROJECT["version"]
    assert json.loads(read("attention_course/labextension/package.json"))["version"] == PROJECT["version"]
    assert re.search(r"^## ([\d.]+)", read("CHANGELOG.md"), re.M)[1] == PROJECT["version"]


def test_the_smoke_test_runs_what_make_check_runs():
    (quick,) = re.findall(r"^QUICK = (.+)$", read(".ci/smoke.py"), re.M)
    words = " ".join(f'"{word}"' if " " in word else word for word in json.loads(quick))
    assert f"pytest {words}\n" in MAKEFILE


TEENS = "ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|eighteen|nineteen"
TENS = "(?:twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety)(?:-[a-z]+)?"
SEVERAL = rf"(?:[7-9]|[1-9]\d\d?|seven|eight|nine|{TEENS}|{TENS}|(?:a )?hundred|dozen)"
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
    for path in [*PACKAGE.glob("**/*.py"), *ROOT.glob("tests/**/*.py")]:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            assert lacks.isdisjoint(name.split(".")[0] for name in names), f"{path}:{node.lineno}"


def test_the_links_of_readme_lead_to_files_and_headings():
    links = [
        link for link in re.findall(r"\]\(([^)\s]+)\)", read("README.md")) if not link.startswith("http")
    ]
    assert "INSTALL.md" in links
    for path, _, anchor in (link.partition("#") for link in links):
        assert (ROOT / path).exists(), path
        if anchor:
            headings = re.findall(r"^#+ (.+)$", read(path), re.M)
            assert anchor in [heading.lower().replace(" ", "-") for heading in headings]


def test_contributing_names_what_is_there():
    """Paths in code quotes, but for those of a rung to be made, and targets of make."""
    quoted = re.findall(r"`([^`]+)`", read("CONTRIBUTING.md"))
    paths = [text for text in quoted if "/" in text and not re.search(r"STEM|[ <]", text)]
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []
    targets = [text.split()[1] for text in quoted if text.startswith("make ")]
    assert [target for target in targets if not re.search(rf"^{target}:", MAKEFILE, re.M)] == []


# The order of reading


def layers() -> list[set[str]]:
    """The layers of the import contract, the lowest first."""
    (contract,) = PYPROJECT["tool"]["importlinter"]["contracts"]
    return [set(re.findall(r"attention_course\.(\w+)", layer)) for layer in reversed(contract["layers"])]


def named() -> list[str]:
    """The modules in the order of the package's docstring."""
    lines = re.findall(r"^- (.*?):", attention_course.__doc__, re.M)
    return [name for line in lines for name in re.findall(r"`(\w+)`", line)]


def test_every_module_is_named_once_in_the_order_of_the_imports():
    modules = [path.stem for path in PACKAGE.glob("*.py") if path.stem != "__init__"]
    modules += [path.parent.name for path in PACKAGE.glob("*/__init__.py")]
    assert sorted(named()) == sorted(modules)
    layer_of = {name: number for number, layer in enumerate(layers()) for name in layer}
    assert sorted(layer_of) == sorted(modules)
    assert all(layer_of[before] <= layer_of[after] for before, after in pairwise(named()))


def test_every_module_has_its_tests():
    for path in PACKAGE.rglob("*.py"):
        name = f"test_{path.stem.strip('_')}.py"  # __main__ is tested by test_main
        if path.stem != "__init__" and "rungs" not in path.parts:  # contracts test what is in those
            assert (ROOT / "tests" / path.relative_to(PACKAGE).with_name(name)).is_file(), path.stem
