"""The command line: `python -m attention_course.examine my_gpt.py:GPT --vocab-size 65 --block-size 64`."""

import argparse
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree.ElementTree import ParseError, fromstring

from torch import nn

from attention_course.apart import EndedError, Message, Send, Worker
from attention_course.examine import PATIENCE, Examination, check_claims, put, questions_to, wrap
from attention_course.examine.report import SUITE, Report
from attention_course.examine.wrapped_model import format_error
from attention_course.files import printable, read_text, told, write_at_once
from attention_course.names import shown

UNGUARDED = 'If it trains, or waits for something, put that under: if __name__ == "__main__":'

worker = Worker("attention_course.examine.__main__:work")


def arguments() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m attention_course.examine",
        description="Examine a causal language model: ids (B, T) to logits (B, T, V).",
        epilog="FILE is executed, as by python FILE: name only files that you trust. NAME is a model, or a "
        "class or a function that makes one: without arguments, with vocab_size and block_size, or with a "
        "config, if NAMEConfig is in the file. All of it runs in a process apart, and what it prints is not "
        "shown. Exit status: 0 if nothing is wrong, 1 if something is, or too little could be asked, 2 if "
        "there is no such model or --junit cannot be written, 130 if the examination was stopped, by Ctrl-C.",
    )
    parser.add_argument(
        "model",
        metavar="FILE:NAME",
        help="a Python file, which is executed, or a module, package.module, and a name in it",
    )
    its = "by default that of its config, or its own"
    parser.add_argument("--vocab-size", type=int, help=f"V: ids go from 0 to V - 1; {its}")
    parser.add_argument("--block-size", type=int, help=f"the context length in tokens; {its}")
    parser.add_argument("--no-train", action="store_true", help="ask only what takes seconds")
    several = {"action": "append", "default": [], "metavar": "NAME"}
    parser.add_argument("--ignore", **several, help="a question that is not asked")
    parser.add_argument("--require", **several, help="a question that is wrong if it cannot be asked")
    parser.add_argument("--all", action="store_true", help="print what is right in full, too")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write the report as JUnit's XML, too")
    return parser


def load(name: str, sizes: dict[str, int]) -> Callable[..., Any]:
    """Execute a file, or import a module, and return the model that is named in it.

    Raises:
        ValueError: there is no such file, name or model; the message says what to do.
    """
    file, _, attribute = name.rpartition(":")
    path = Path(file)
    is_file = path.is_file() and path.suffix == ".py"
    if path.suffix == ".py" and not is_file:
        raise ValueError(f"There is no file {file}.")
    if not attribute or not (is_file or all(part.isidentifier() for part in file.split("."))):
        raise ValueError(
            f"{name!r} names no Python file, or module, and what is in it. "
            "Write my_gpt.py:GPT, or package.module:GPT."
        )
    try:
        module = executed(path) if is_file else importlib.import_module(file)
    except BaseException as error:  # a call of exit(), too
        missing = isinstance(error, ModuleNotFoundError) and not is_file
        said = "imported, in this folder or as installed" if missing else "executed"
        raise ValueError(f"{file} cannot be {said}. {format_error(error)}") from error
    if not callable(made := getattr(module, attribute, None)):
        raise ValueError(f"{file} has no model, class or function called {attribute!r}.")
    if isinstance(made, nn.Module) or not makes_models(made):
        return made
    model = build(made, attribute, sizes, getattr(module, f"{attribute}Config", None))
    if not callable(model):
        raise ValueError(f"{attribute}() returned {shown(model)}. Let it return the model, an nn.Module.")
    return model


def executed(path: Path) -> ModuleType:
    """Execute a file as a module, which finds those beside it."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent.resolve()))
    spec.loader.exec_module(module)
    return module


def makes_models(made: Callable[..., Any]) -> bool:
    """Return whether this is a class, or a function that can be called without ids."""
    arguments = inspect.signature(made).parameters.values()
    wanted = [p for p in arguments if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    return inspect.isclass(made) or not wanted or {p.name for p in wanted} <= {"vocab_size", "block_size"}


def build(
    make: Callable[..., Any], name: str, sizes: dict[str, int], config: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """Call a class or a function, with the sizes that it asks for, or, as nanoGPT's, with a config of them.

    Raises:
        ValueError: it cannot be called with these, or raises an error.
    """
    accepts = inspect.signature(make)
    takes_all = any(p.kind is p.VAR_KEYWORD for p in accepts.parameters.values())
    takes_all &= getattr(make, "__init__", None) is not nn.Module.__init__  # its **kwargs are always refused
    options = {size: value for size, value in sizes.items() if takes_all or size in accepts.parameters}
    if "config" in accepts.parameters and config is not None:
        options = {"config": build(config, f"{name}Config", sizes)}
    try:
        accepts.bind(**options)
    except TypeError as error:
        raise ValueError(
            f"{name} cannot be called with {' and '.join(sizes) or 'no sizes'} alone: {error}. "
            f"Name a function that makes the model: def make(): return {name}(...)."
        ) from error
    try:
        return make(**options)
    except NotImplementedError as error:
        raise ValueError(f"{name} is not written yet.") from error
    except BaseException as error:
        called = ", ".join(f"{option}={value!r}" for option, value in options.items())
        raise ValueError(f"{name}({called}) raised {format_error(error)}") from error


def work(request: tuple[str, dict[str, int], tuple], send: Send) -> None:
    """Load a model and put the questions to it, in the process apart."""
    name, sizes, choice = request
    if sys.platform != "win32":
        os.register_at_fork(after_in_child=partial(os._exit, 1))  # it must not go on, too
    try:
        wrapped = wrap(load(name, sizes), **sizes)
    except (TypeError, ValueError) as error:
        return send("error", str(error))
    except BaseException as error:  # what its attributes raise when they are looked at
        return send("error", f"{name} cannot be looked at. {format_error(error)}")
    send("loaded", None)
    put(wrapped, questions_to(*choice), send)


def loaded(messages: Iterator[Message], file: str) -> None:
    """Wait until the model is loaded.

    Raises:
        ValueError: it cannot be; the message says what to do.
    """
    try:
        kind, value = next(messages)
    except EndedError as error:
        said = f"{file} ended its process before there was a model. Remove what ends it."
        if error.silent:
            said = f"{file} made no model within {PATIENCE:.0f} seconds. " + UNGUARDED
        raise ValueError(said if error.begun else str(error)) from error
    if kind == "error":
        raise ValueError(value)


def examined(
    model: str, sizes: dict[str, int], choice: tuple[bool, list[str], list[str]], worker: Worker = worker
) -> Report:
    """Examine FILE:NAME in a process apart; `choice` is what `questions_to` takes.

    Raises:
        OSError: the process cannot be started.
        ValueError: there is no such model, or no such question.
    """
    questions = questions_to(*choice)
    with closing(worker.ask((model, sizes, choice), silence=PATIENCE)) as messages:
        loaded(messages, model.rpartition(":")[0])
        return Examination(questions).follow(messages, quiet=not sys.stderr.isatty())


def check_junit(file: Path) -> None:
    """Raise ValueError if a file is there that is no report of the examiner, or there is no folder for it."""
    try:
        ours = (
            not file.exists() or not file.stat().st_size or fromstring(read_text(file)).get("name") == SUITE
        )
    except (ValueError, ParseError):
        ours = False
    if not ours:
        raise ValueError(
            f"--junit {file} exists, and is no report of the examiner, so it is not written over. "
            "Name another file, such as report.xml."
        )
    if not file.parent.is_dir() or (file.exists() and not file.is_file()):
        raise ValueError(f"--junit {file} is no file in a folder. Name report.xml.")


def main(argv: list[str] | None = None) -> None:
    """Run the command line."""
    options = arguments().parse_args(argv)
    given = {"vocab_size": options.vocab_size, "block_size": options.block_size}
    sizes = {name: size for name, size in given.items() if size is not None}
    try:
        check_claims(**sizes)
        if options.junit:
            check_junit(options.junit)
        report = examined(options.model, sizes, (not options.no_train, options.ignore, options.require))
    except (OSError, ValueError) as error:
        print(f"examine: {printable(str(error).removeprefix('examine: '))}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("examine: stopped before there was a model.", file=sys.stderr)
        sys.exit(130)
    status = 130 if report.stopped else int(not report)
    if options.junit:
        try:
            write_at_once(options.junit, printable(report.as_junit(), keep="\n\t").encode())
        except OSError as error:
            print(f"examine: --junit cannot be written. {told(error)}", file=sys.stderr)
            status = 2
    shown = report.as_json() if options.json else report.everything if options.all else str(report)
    try:
        print(printable(shown, keep="\n\t"), flush=True)
    except OSError as error:  # a pipe that is closed, or a full disk
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python flushes once more at the end
        print(f"examine: the report cannot be printed. {told(error)}", file=sys.stderr)
    sys.exit(status)


if __name__ == "__main__":
    main()
