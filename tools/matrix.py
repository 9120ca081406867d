"""Test matrix: `make test-matrix` runs notebooks and unit tests once per cell.

A cell is a CPU type (PyTorch is limited to fewer instruction sets) with one thread or two; or the lowest
versions of the packages in VARIED that pyproject.toml allows, or the newest of all packages; or another
Python on the PATH. Their environments are created in .matrix. CELLS="avx2-1 lowest" selects cells, TIMES=10
repeats them.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VARIED = ("torch", "numpy", "matplotlib", "ipywidgets")
CPUS = ("default", "avx2", "avx512")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
TESTS = ("--dist", "loadfile", "--no-loadscope-reorder", "--nbval", "-q", "--ignore=tests/browser")
CORES = 2  # workers times threads: more would compete for cores


def cells() -> list[str]:
    """Return the names of the cells that this machine can run."""
    best = torch.backends.cpu.get_cpu_capability().lower()
    cpus = CPUS[: CPUS.index(best) + 1] if best in CPUS else CPUS[:1]
    pythons = [f"python{version}" for version in PYTHONS if shutil.which(f"python{version}")]
    return [*(f"{cpu}-{threads}" for cpu in cpus for threads in (1, 2)), "lowest", "newest", *pythons]


def versions(cell: str) -> list[str]:
    """Return pip's arguments besides the project itself."""
    everything = PROJECT["dependencies"] + PROJECT["optional-dependencies"]["course"]
    wanted = {re.match(r"[\w-]+", entry)[0]: entry for entry in everything}
    pinned = dict(re.findall(r"^([\w-]+)==(\S+)", (ROOT / "constraints.txt").read_text(), re.M))
    if cell == "lowest":
        return [wanted[name].replace(">=", "==") for name in VARIED]
    if cell == "newest":  # on Linux torch brings gigabytes of CUDA
        return ["--upgrade", "--upgrade-strategy=eager"]
    return [f"torch=={pinned['torch']}"]


def python_of(cell: str) -> str:
    """Return the Python of a cell, creating its environment if necessary."""
    if re.fullmatch(r"\w+-[12]", cell):
        return sys.executable
    python = ROOT / ".matrix" / cell / "bin" / "python"
    base = cell if cell.startswith("python") else sys.executable
    subprocess.run([base, "-m", "venv", python.parent.parent], check=True)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *versions(cell), "-e", f"{ROOT}[dev]"], check=True)
    return str(python)


def run(cell: str) -> bool:
    """Run all tests in a cell; return whether they passed."""
    cpu, _, threads = cell.partition("-") if re.fullmatch(r"\w+-[12]", cell) else ("", "", "1")
    setting = {"OMP_NUM_THREADS": threads} | ({"ATEN_CPU_CAPABILITY": cpu} if cpu else {})
    start = time.monotonic()
    workers = str(CORES // int(threads))
    try:
        command = [python_of(cell), "-m", "pytest", "-n", workers, *TESTS]
        subprocess.run(command, cwd=ROOT, env=os.environ | setting, check=True)
        passed = True
    except subprocess.CalledProcessError:  # go on with the other cells
        passed = False
    print(f"{cell}: {'passed' if passed else 'FAILED'}, {time.monotonic() - start:.0f} s", flush=True)
    return passed


def main() -> None:
    """Run the cells, and exit with an error if one of them failed."""
    possible = cells()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cells", nargs="*", help=f"of {', '.join(possible)}; all if left out")
    parser.add_argument("--times", type=int, default=1)
    given = parser.parse_args()
    if unknown := set(given.cells) - set(possible):
        parser.error(f"no cell called {', '.join(sorted(unknown))} here. There are: {', '.join(possible)}.")
    failed = [cell for cell in given.cells or possible for _ in range(given.times) if not run(cell)]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
