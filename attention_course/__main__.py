"""Bring the notebooks of the course into a folder of yours, and open JupyterLab at the first.

A file that you changed stays; if there is a new edition of it, that comes beside it.
"""

import argparse
import os
import sys
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote

from attention_course import __version__
from attention_course.files import printable
from attention_course.ladder import RUNGS

COMMANDS = {"class": "classroom.__main__", "certificate": "certificate"}  # a FOLDER of the name is ./class
NEEDS_MORE = 'The notebooks need more packages: pip install "attention-course[course]". ({})'


def main() -> None:
    """Run the command `attention-course`, which is `python -m attention_course`, too."""
    if module := COMMANDS.get("".join(sys.argv[1:2])):
        try:
            command = import_module(f"attention_course.{module}")
        except ModuleNotFoundError as error:
            sys.exit(NEEDS_MORE.format(error))
        return command.main(sys.argv[2:])
    parser = argparse.ArgumentParser(
        prog="attention-course",
        usage="%(prog)s [FOLDER] [--no-lab] [options of JupyterLab]",
        description=__doc__,
        epilog="All other options go to JupyterLab, for example --no-browser or --port=8889. "
        "Other commands: attention-course class --help, for votes in a classroom, and "
        "attention-course certificate --help.",
        allow_abbrev=False,
    )
    parser.add_argument("folder", nargs="?", default="my_notebooks", help="by default my_notebooks")
    parser.add_argument("--no-lab", action="store_true", help="do not start JupyterLab")
    parser.add_argument("--version", action="version", version=__version__)
    given, options = parser.parse_known_args()
    if any(left in options and right == given.folder for left, right in pairwise(sys.argv)):
        parser.error("FOLDER comes before JupyterLab's options; their values come after =, as in --port=8889")
    for left, right in pairwise(sys.argv):
        if right in options and (given.no_lab or not (left.startswith("-") or right.startswith("-"))):
            parser.error(printable(f"{right}: no such argument. A folder's name with spaces needs quotes."))

    try:
        from filelock import Timeout
        from jupyterlab.labapp import LabApp

        from attention_course.workspace import prepare, published
    except ModuleNotFoundError as error:
        sys.exit(NEEDS_MORE.format(error))
    try:
        if not given.folder:
            parser.error("FOLDER cannot be empty.")
        folder = Path(given.folder).expanduser().resolve()
    except (RuntimeError, OSError) as error:
        parser.error(printable(f"FOLDER cannot be {given.folder}: {error}"))
    try:
        remarks = prepare(published(), folder)
    except Timeout as error:
        sys.exit(
            printable(
                f"Another start of the course is writing in {folder}, or has left {error.lock_file} behind. "
                "Wait until it ends; if there is none, delete that file."
            )
        )
    except OSError as error:
        why = f"{error.strerror}: {error.filename}"
        sys.exit(printable(f"The notebooks cannot be brought into {folder}: {why}. Name another folder."))
    except ValueError as error:
        sys.exit(printable(str(error)))
    except KeyboardInterrupt:
        sys.exit(130)
    print(*map(printable, [f"Your notebooks are in {folder}", *remarks]), sep="\n", flush=True)
    if not given.no_lab:
        os.chdir(folder.parent)
        first = quote(os.fsencode(f"/doc/tree/{folder.name}/{RUNGS[0].name}.ipynb"))
        LabApp.launch_instance([f"--LabApp.default_url={first}", *options])


if __name__ == "__main__":
    main()
