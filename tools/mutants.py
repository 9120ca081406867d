"""Mutation testing: `make mutants` makes thousands of small changes, one by one; do the tests fail?

It is a report, to read: many survivors change nothing that anybody would notice, and need no test.

mutmut runs on a copy, and skips decorated functions, so in the copy decorators such as `contextmanager` are
applied below the function. Workers that take too long are killed; tqdm's bars share a lock between processes,
which would then stay locked, so in the copy each process has its own. The copy stays in .mutants; show a
mutant with `cd .mutants && mutmut show NAME`.
"""

import ast
import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COPY = ROOT / ".mutants"
MODULES = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mutmut"]["only_mutate"]
OWN_LOCK = "\nimport threading\n\nimport tqdm\n\ntqdm.tqdm.set_lock(threading.RLock())\n"
SURVIVED = (0, 5, 33, None)  # exit codes of mutmut: tests passed, or none ran; others mean failed or hung


def lower_decorators(source: str) -> str:
    """Replace `@decorate` above each function of a module by `function = decorate(function)` below it."""
    lines = source.splitlines()
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    for function in sorted(functions, key=lambda node: node.lineno, reverse=True):
        decorators = [ast.unparse(decorator) for decorator in function.decorator_list]
        if not decorators or {"property", "cached_property", "staticmethod", "classmethod"} & set(decorators):
            continue
        decorated = function.name
        for decorator in reversed(decorators):
            decorated = f"{decorator}({decorated})"
        lines.insert(function.end_lineno, f"{' ' * function.col_offset}{function.name} = {decorated}")
        del lines[function.decorator_list[0].lineno - 1 : function.lineno - 1]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run mutmut; print each module's fraction of killed mutants, and the survivors."""
    shutil.rmtree(COPY, ignore_errors=True)
    shutil.copytree(ROOT, COPY, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    for module in MODULES:
        path = COPY / module
        path.write_text(lower_decorators(path.read_text()))
    with (COPY / "tests" / "conftest.py").open("a") as conftest:
        conftest.write(OWN_LOCK)
    mutmut = [sys.executable, "-m", "mutmut", "run", "--max-children", "2"]
    subprocess.run(mutmut, cwd=COPY, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True)
    for module in MODULES:
        codes = json.loads((COPY / "mutants" / f"{module}.meta").read_text())["exit_code_by_key"]
        survivors = [name for name, code in codes.items() if code in SURVIVED]
        killed = 1 - len(survivors) / len(codes)
        print(f"{module}: {killed:.1%} of {len(codes)} mutants were killed; not", *survivors, sep="\n    ")


if __name__ == "__main__":
    main()
