"""How an answer is run: on clones of its arguments, in a thread of its own, and not for ever."""

import ctypes
import inspect
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import CodeType, FrameType
from typing import Any

from torch import Tensor

TIME_LIMIT = 5.0  # seconds that one call of an answer may take


@dataclass
class Outcome:
    """What one call did: the arguments as they are afterwards, and the value or the error."""

    arguments: tuple
    value: Any = None
    error: BaseException | None = None


class Hung(BaseException):
    """An answer took longer than TIME_LIMIT. Not an `Exception`, so that an answer does not catch it."""

    def __init__(self, arguments: tuple = (), cause: BaseException | None = None, stopped: bool = True):
        self.arguments, self.cause, self.stopped = arguments, cause, stopped


def call(function: Callable, arguments: tuple) -> Outcome:
    """Call `function` with clones of `arguments`. What it raises, even SystemExit, stays in the outcome.

    The value is detached, unless one of the arguments asks for its gradient. Only an interrupt of the main
    thread, where the learner's own arrives, gets out.
    """
    outcome = Outcome(tuple(a.clone() if isinstance(a, Tensor) else a for a in arguments))
    with_gradient = any(isinstance(a, Tensor) and a.requires_grad for a in arguments)
    try:
        value = function(*outcome.arguments)
        outcome.value = value.detach() if isinstance(value, Tensor) and not with_gradient else value
    except Hung:
        raise
    except BaseException as error:
        in_main = threading.current_thread() is threading.main_thread()
        if isinstance(error, KeyboardInterrupt) and in_main:
            raise
        outcome.error = error
    return outcome


def run(function: Callable, arguments: tuple) -> Outcome:
    """Call `function` with clones of `arguments` in a thread of its own, with gradients on.

    Raises:
        Hung: the call took longer than TIME_LIMIT. It has been stopped.
    """
    ended: list[Outcome | Hung] = []

    def work() -> None:
        try:
            ended.append(call(function, arguments))
        except Hung as hung:
            ended.append(hung)

    thread = threading.Thread(target=work, name="answer", daemon=True)
    thread.start()
    try:
        thread.join(TIME_LIMIT)
    finally:  # also when the learner interrupts the kernel
        stopped = stop(thread)
    end = ended[0] if ended else None
    if isinstance(end, Outcome):
        return end
    raise Hung(arguments, end, stopped)


def stop(thread: threading.Thread) -> bool:
    """Raise Hung inside `thread` until it ends, for a second at most; return whether it ended.

    Python delivers it between two bytecodes: a loop ends, one long call into C does not.
    """
    for _ in range(20):
        if not thread.is_alive():
            break
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(Hung))
        thread.join(0.05)
    return not thread.is_alive()


def called_by(function: Callable, arguments: tuple) -> set[str]:
    """Return the names of all functions that a call of `function` calls, as `softmax` for `torch._softmax`.

    Raises:
        Hung: see `run`.
    """
    names = set()
    while isinstance(function, partial):
        function = function.func
        names.add(function.__name__)

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call":
            names.add(argument.__name__.removeprefix("special_").strip("_"))
        elif event == "call" and frame.f_code is not code_of(function):
            names.add(frame.f_code.co_name)

    def noted(*given):
        sys.setprofile(note)
        try:
            return function(*given)
        finally:
            sys.setprofile(None)

    run(noted, arguments)
    return names


def code_of(function: Callable) -> CodeType | None:
    """Return the compiled body of the learner's own function; None for what has none, such as a module."""
    return getattr(inspect.unwrap(function), "__code__", None)


def line_of(error: BaseException | None, function: Callable) -> str:
    """Say in which line of the learner's own code `error` was raised; empty if that is not known."""
    code = code_of(function)
    frames = traceback.extract_tb(error.__traceback__) if error else []
    own = [frame for frame in frames if code and frame.filename == code.co_filename and frame.line]
    return f" It happened in line {own[-1].lineno}: `{own[-1].line}`." if own else ""
