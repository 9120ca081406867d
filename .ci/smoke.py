"""What CI does on macOS and Windows, with any Python and without make: install, quick tests, two notebooks.

It installs into the environment of the Python that runs it.
"""

import os
import subprocess
import sys
from pathlib import Path

QUICK = ["-n", "2", "-m", "not slow", "--hypothesis-profile=quick", "--ignore=tests/browser", "tests"]
NOTEBOOKS = ["notebooks/01_bag_of_words.ipynb", "notebooks/04_query_key_value.ipynb"]


def run(*command: str) -> None:
    """Run a module of this Python's; end with its exit code if it fails."""
    print("$ python -m", *command, flush=True)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUTF8": "1"}
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run([sys.executable, "-m", *command], cwd=root, env=environment)
    if done.returncode:
        sys.exit(done.returncode)


run("pip", "install", "-e", ".[dev]", "-c", "constraints.txt")
run("pytest", *QUICK)
run("pytest", "--nbval", *NOTEBOOKS)
