"""Judging in a process apart (see `process`), so that the learner's kernel survives whatever an answer does.

Answers are pickled by value, with everything of the learner's that they use. Only what has nothing to run,
such as a stub, gets its verdict in the kernel.
"""

import dis
import linecache
import re
from contextlib import closing
from types import CodeType, FunctionType

from tqdm.auto import tqdm

from attention_course import examine
from attention_course.apart import EndedError, Worker, is_learners, pickle_by_value
from attention_course.exercises.exercise import Exercise
from attention_course.exercises.judging import (
    Verdict,
    is_compiled,
    judge,
    not_compiled,
    not_copied,
    not_tried,
)

CALL_LIMIT = 5.0  # seconds for one call of an answer
SILENCE = 30.0  # seconds without a message until the process is ended, whatever it does

Request = tuple[str, bytes, int | None, dict[str, list[str]]]


def judge_in_subprocess(exercise: Exercise, function: object, seed: int | None = None) -> Verdict:
    """Judge as `judge` does, in the worker process.

    Raises:
        TypeError: `function` is not callable.
        RuntimeError, OSError: the process does not start.
    """
    if not callable(function):
        return judge(exercise, function, seed)
    if is_untouched(function):
        return not_tried(exercise)
    if is_compiled(function):
        return not_compiled(exercise)
    try:
        request: Request = (exercise.name, pickle_by_value(function), seed, cells())
    except TypeError as error:
        return not_copied(exercise, error)
    silence = examine.PATIENCE + SILENCE if exercise.judge else SILENCE
    shown = "{desc}: call {n_fmt} of your function, {elapsed}"
    verdict, called_with = None, ""
    try:
        asked = closing(worker.ask(request, silence))
        with asked as messages, tqdm(desc="checking", bar_format=shown, delay=1, leave=False) as bar:
            for kind, value in messages:
                if kind == "call":
                    bar.update()
                    called_with = value
                elif kind == "printed":
                    print(value, end="")
                elif kind == "verdict":
                    verdict = value
    except EndedError as error:
        return ended(exercise, error, silence, called_with)
    assert verdict
    return verdict


def is_untouched(function: object) -> bool:
    """Return whether the body of a function is `pass`, `...`, a docstring, or raises NotImplementedError."""
    return type(function) is FunctionType and steps(function.__code__) in STUBS


def steps(code: CodeType) -> list[tuple[str, object]]:
    """Return what code does; of a text, only that it is one."""
    does = [(each.opname, each.argval) for each in dis.get_instructions(code) if each.opname != "NOP"]
    return [(name, str if name == "LOAD_CONST" and isinstance(value, str) else value) for name, value in does]


STUBS = [
    steps(compile(f"def stub(): {body}", "", "exec").co_consts[0])
    for body in ("pass", "return ...", "raise NotImplementedError", "raise NotImplementedError('your turn')")
]


def cells() -> dict[str, list[str]]:
    """Return the source of each cell of the notebook, by the file name that it has in a traceback."""
    entries = [(file, entry) for file, entry in linecache.cache.items() if len(entry) == 4]
    return {file: entry[2] for file, entry in entries if entry[1] is None}  # that is: no file, so no time


worker = Worker("attention_course.exercises.process:work", "attention_course.exercises.process:prepare")


def ended(exercise: Exercise, error: EndedError, silence: float, called_with: str) -> Verdict:
    """Return the verdict for an answer that ended its process, or had it ended.

    Raises:
        RuntimeError: the process did not begin to judge.
    """
    if not error.begun:
        raise RuntimeError(f"check: the process that judges answers does not start. It says: {error.said}")
    if error.silent:
        message = (
            f"For {silence:g} seconds your function gave no sign of life, so its process was ended. Which "
            "loop does not end, or which call waits for something that does not come?"
        )
        return Verdict(exercise.name, False, (), "not yet: it does not end", message)
    if "most recent call first" not in error.said:
        message = (
            "Your function ended the process that it ran in. Remove the call that does so: an answer returns "
            "its result, and its caller continues."
        )
        return Verdict(exercise.name, False, (), "not yet: it ends the process", message)
    frames = re.findall(r'File "(.+)", line (\d+)', error.said)
    lines = [(n, linecache.getline(file, int(n)).strip()) for file, n in frames if is_learners(file)]
    where = next((f" It happened in line {n}: `{line}`." for n, line in lines if line), "")
    message = (
        f"Your function was still running after {CALL_LIMIT:g} seconds, for {called_with}.{where} Its "
        "process was ended. Which loop does not end, and what should end it?"
    )
    return Verdict(exercise.name, False, (), "not yet: it does not end", message)
