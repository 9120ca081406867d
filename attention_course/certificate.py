"""What the examiner says of a learner's own GPT, as a file that anybody can verify by running it again.

    attention-course certificate my_gpt.py --name "Ada"
    attention-course certificate --verify certificate.json

The file holds the source of the model, what was asked of it, the report, the progress, and the versions.
Nothing in it is signed: the report is worth something because it can be had again, from the source beside it.
"""

import argparse
import json
import math
import os
import platform
import random
import sys
import tempfile
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from attention_course import __version__, progress
from attention_course.apart import Send, Worker
from attention_course.examine import __main__ as command
from attention_course.examine import check_claims, learning
from attention_course.examine.report import Report
from attention_course.files import printable, read_text, told, write_at_once
from attention_course.ladder import RUNGS

FORM = "attention-course certificate 1"
SIZES = {"vocab_size": 33, "block_size": 128}
FIELDS = {
    "form": str,
    "name": str,
    "date": str,
    "model": str,
    "vocab_size": int,
    "block_size": int,
    "train": bool,
    "report": dict,
    "progress": list,
    "versions": dict,
    "source": str,
}
WARNING = (
    "Verifying executes this code. It runs in a process apart, but that is no sandbox: it can do all "
    "that you can, such as read and delete your files. Read it first, with --show."
)
NOBODY = "somebody without a name"
KEPT = "so it is not written over. Name another file: --out FILE"
OTHERWISE = (
    "But this is not what the course asks for: "
    f"{' and '.join(f'{size}={value}' for size, value in SIZES.items())}, with training."
)
NOT_VERIFIED = "The name, the date and the progress are as the file has them: they cannot be verified."


def arguments() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="attention-course certificate",
        usage="%(prog)s [options] MODEL.py\n       %(prog)s --verify FILE | --show FILE",
        description="Examine the model of one file, the page of the last rung, and write a certificate: the "
        "source, what the examiner says of it, your progress, and the versions. With --verify, examine the "
        "source in a certificate again, and say whether the report is the same.",
        epilog="MODEL.py is executed, alone in a folder of its own. Exit status: 0 if the certificate is "
        "written, or verified; 1 if something is wrong with the model, or the report is another one; 2 if "
        "there is no such model or certificate; 3 if it is verified, but with other sizes than the course's, "
        "or without training; 130 if it was stopped, by Ctrl-C.",
    )
    parser.add_argument(
        "file", type=Path, metavar="MODEL.py", help="the model, in one file; or a certificate"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--verify", action="store_true", help="examine the source in a certificate again")
    what.add_argument(
        "--show", action="store_true", help="print what was asked, and the source, and execute nothing"
    )
    parser.add_argument("--yes", action="store_true", help="with --verify: execute the code without asking")
    parser.add_argument("--name", default="", help="your name, as it shall stand in the certificate")
    parser.add_argument("--model", default="MyGPT", help="the class in the file, by default MyGPT")
    for size, value in SIZES.items():
        option = f"--{size.replace('_', '-')}"
        parser.add_argument(
            option, type=int, default=value, help=f"with which it is made, by default {value}"
        )
    parser.add_argument("--no-train", action="store_true", help="ask only what takes seconds")
    parser.add_argument(
        "--out", type=Path, default=Path("certificate.json"), help="by default certificate.json"
    )
    return parser


worker = Worker("attention_course.certificate:work")


def work(request: tuple[str, dict[str, int], tuple], send: Send) -> None:
    """Examine in the process apart, the same way each time: from one seed, with all steps of the training.

    A page that needs other files of the folder in which the command was started is refused: elsewhere it
    could not be examined again.
    """
    here = os.path.realpath(".")
    sys.path = [path for path in sys.path if path and os.path.realpath(path) != here]
    os.chdir(Path(request[0].rpartition(":")[0]).parent)
    torch.manual_seed(0)
    random.seed(0)
    learning.SECONDS = math.inf  # a slow machine takes longer, and comes to the same verdict
    command.work(request, send)


def report_on(source: str, model: str, sizes: dict[str, int], train: bool) -> Report:
    """Examine a source, alone in a folder of its own.

    Raises:
        ValueError: there is no such model in it; the message says what to do.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        file = Path(folder, "page.py")
        # After a byte order mark Python reads UTF-8, as --show does, or refuses the encoding declared.
        file.write_text(source, encoding="utf-8-sig")
        try:
            return command.examined(f"{file}:{model}", sizes, (train, [], []), worker)
        except ValueError as error:
            said = str(error).replace(str(file), "The page")
            form = "(It has to be one file, which declares no encoding and needs no other of yours.)"
            raise ValueError(f"{said} {form}") from error


def standing() -> list[str]:
    """Return a line for each rung that was begun.

    Raises:
        ValueError: the progress cannot be read.
    """
    record, problem = progress.kept()
    if problem:
        raise ValueError(problem)
    begun = [progress.Standing(rung, record) for rung in RUNGS]
    return [repr(each) for each in begun if each.answered or each.tried or any(each.filled.values())]


def write(options: argparse.Namespace) -> int:
    """Examine a model, and write its certificate."""
    sizes = {size: getattr(options, size) for size in SIZES}
    check_claims(**sizes)
    check_name(options.model)
    try:
        source = read_text(options.file)
    except ValueError as error:
        raise ValueError(f"{options.file} is no page of Python: {error}.") from error
    check_out(options.out, options.name)
    done, train = standing(), not options.no_train
    report = report_on(source, options.model, sizes, train)
    if not report:
        print(printable(f"No certificate: {report}", keep="\n\t"))
        return 130 if report.stopped else 1
    content = {
        "form": FORM,
        "name": options.name,
        "date": date.today().isoformat(),
        "model": options.model,
        **sizes,
        "train": train,
        "report": json.loads(report.as_json()),
        "progress": done,
        "versions": versions(),
        "source": source,
    }
    write_at_once(options.out, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())
    print(printable(f"{asked(content)}: {report.headline}\nThe certificate is {options.out}", keep="\n"))
    if not as_the_course_asks(content):
        print(OTHERWISE)
    print(f"Verify it: attention-course certificate --verify {printable(str(options.out))}")
    return 0


def check_out(file: Path, name: str) -> None:
    """Raise ValueError if no folder is there, or a file that is no certificate, or somebody else's."""
    try:
        before = read(file)["name"] if file.exists() and file.stat().st_size else name
    except ValueError as error:
        raise ValueError(f"{file} exists, and is no certificate, {KEPT}") from error
    if before != name:
        raise ValueError(f"{file} is the certificate of {before or NOBODY}, {KEPT}")
    if not file.parent.is_dir():
        raise ValueError(f"There is no folder {file.parent}. Make it, or name another file: --out FILE")


def check_name(model: str) -> None:
    """Raise ValueError if a model has no name that a page of Python can give it."""
    if not model.isidentifier():
        raise ValueError(f"{model!a} is no name of a class or a function, such as MyGPT")


def asked(content: dict[str, Any]) -> str:
    """Say what a certificate examines."""
    sizes = ", ".join(f"{size}={content[size]}" for size in SIZES)
    return f"{content['model']}({sizes}), {'with' if content['train'] else 'without'} training"


def as_the_course_asks(content: dict[str, Any]) -> bool:
    """Return whether a certificate examines what the last rung does."""
    return content["train"] and all(content[size] == value for size, value in SIZES.items())


def versions() -> dict[str, str]:
    """Return what a report may depend on."""
    return {"attention-course": __version__, "torch": version("torch"), "python": platform.python_version()}


def read(file: Path) -> dict[str, Any]:
    """Read a certificate.

    Raises:
        OSError: it cannot be read.
        ValueError: it is none.
    """
    try:
        content = json.loads(read_text(file))
        wrong = [name for name, kind in FIELDS.items() if type(content[name]) is not kind]
        if wrong or content["form"] != FORM:
            raise ValueError(f"look at {wrong[0] if wrong else 'form'}")
        check_name(content["model"])
        verdicts(content["report"])
        content["source"].encode()
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        is_field = isinstance(error, ValueError | KeyError) and not isinstance(error, json.JSONDecodeError)
        reason = f" ({told(error)})" if is_field else ""
        raise ValueError(f"{file} is no certificate of this course, or damaged{reason}.") from error
    return content


def verdicts(report: dict[str, Any]) -> dict[str, str]:
    """Return the verdict on each question; a forged report may have several."""
    found: dict[str, list[str]] = {}
    for finding in report["findings"]:
        found.setdefault(str(finding["name"]), []).append(str(finding["verdict"]))
    return {name: ", ".join(each) for name, each in found.items()}


def verify(file: Path, asks: bool) -> int:
    """Examine the source in a certificate again, and compare."""
    content = read(file)
    sizes = {size: content[size] for size in SIZES}
    check_claims(**sizes)
    who = content["name"] or NOBODY
    lines = content["source"].count("\n") + 1
    print(printable(f"The certificate of {who}, {content['date']}: a model in {lines} lines of Python."))
    print(printable(f"It examines {asked(content)}."))
    print(WARNING)
    if asks and not agreed():
        print("Nothing was executed.")
        return 2
    report = json.loads(report_on(content["source"], content["model"], sizes, content["train"]).as_json())
    then, now = verdicts(content["report"]), verdicts(report)
    changed = [name for name in {**then, **now} if then.get(name) != now.get(name)]
    for name in changed:
        print(
            printable(
                f"  {name}: {then.get(name, 'not there')} in the file, {now.get(name, 'not there')} here"
            )
        )
    same = not changed and content["report"].get("passed") is report["passed"] is True
    print(printable(f"Here the examiner says: {report['headline']}"))
    if same:
        print(
            "Verified: it is the same report, number for number."
            if content["report"] == report
            else "Verified: the same verdicts. Other words or numbers of the report differ from the file's."
        )
        if not as_the_course_asks(content):
            print(OTHERWISE)
    else:
        print("Not verified: the file has another report than its source gets here.")
        if content["versions"] != versions():
            print(printable(f"Written with {listed(content['versions'])}; here is {listed(versions())}."))
    print(NOT_VERIFIED)
    return (0 if as_the_course_asks(content) else 3) if same else 1


def listed(names: dict[str, Any]) -> str:
    """Return versions as words."""
    return ", ".join(f"{name} {number}" for name, number in names.items())


def agreed() -> bool:
    """Ask whether to execute; without a terminal the answer is no."""
    try:
        return input("Execute it? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        print()
        return False


def main(argv: list[str] | None = None) -> None:
    """Run the command line."""
    options = arguments().parse_args(argv)
    try:
        if options.show:
            content = read(options.file)
            print(f"# {printable(asked(content))}", printable(content["source"], keep="\n\t"), sep="\n")
            sys.exit(0)
        sys.exit(verify(options.file, not options.yes) if options.verify else write(options))
    except (OSError, ValueError) as error:
        print(f"certificate: {told(error).removeprefix('examine: ')}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
