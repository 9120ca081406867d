"""How an answer is run: on clones of its arguments, in a thread of its own, and not for ever."""

import ctypes
import inspect
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from types import CodeType, FrameType
from typing import Any

from torch import Tensor

CALL_LIMIT = 5.0  # seconds that one call of an answer may take
CHECK_LIMIT = 20.0  # seconds that all calls of one check may take together


@dataclass
class Outcome:
    """What one call did: the arguments as they are afterwards, and the value or the error."""

    arguments: tuple
    value: Any = None
    error: BaseException | None = None


class Hung(BaseException):
    """A call took longer than CALL_LIMIT. Not an `Exception`, so that an answer does not catch it."""

    def __init__(self, arguments: tuple = (), cause: BaseException | None = None, stopped: bool = True):
        self.arguments, self.cause, self.stopped = arguments, cause, stopped


class Slow(BaseException):
    """The calls of one check took longer than CHECK_LIMIT together. Not an `Exception` either."""


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
        Hung: the call took longer than CALL_LIMIT. It has been stopped.
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
        thread.join(CALL_LIMIT)
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


class Answer:
    """A learner's function during one check.

    Args:
        function: what the learner wrote.
        guard: called before each call, returns a context that the call is made in.

    Attributes:
        calls: so far.
        seconds: that they took together.
    """

    def __init__(self, function: Callable, guard: Callable[[], AbstractContextManager] = nullcontext):
        self.function, self.guard = function, guard
        self.calls, self.seconds = 0, 0.0

    @property
    def code(self) -> CodeType | None:
        """The compiled body of the learner's own function; None for what has none, such as a module."""
        return getattr(inspect.unwrap(self.function), "__code__", None)

    def run(self, arguments: tuple) -> Outcome:
        """Call the function with clones of `arguments` in a thread of its own.

        Raises:
            Hung: the call took longer than CALL_LIMIT. It has been stopped.
            Slow: the calls before took longer than CHECK_LIMIT together. This one is not made.
        """
        return self._run(self.function, arguments)

    def called(self, arguments: tuple) -> set[str]:
        """Call the function; return the names of all functions that it calls, `softmax` for `torch._softmax`.

        Raises:
            Hung, Slow: see `run`.
        """
        names, written = set(), self.function
        while isinstance(written, partial):
            written = written.func
            names.add(written.__name__)
        own = Answer(written).code

        def note(frame: FrameType, event: str, argument: Any) -> None:
            if event == "c_call":
                names.add(argument.__name__.removeprefix("special_").strip("_"))
            elif event == "call" and frame.f_code is not own:
                names.add(frame.f_code.co_name)

        def noted(*given):
            sys.setprofile(note)
            try:
                return self.function(*given)
            finally:
                sys.setprofile(None)

        self._run(noted, arguments)
        return names

    def _run(self, function: Callable, arguments: tuple) -> Outcome:
        if self.seconds > CHECK_LIMIT:
            raise Slow
        self.calls += 1
        start = time.perf_counter()
        with self.guard():
            outcome = run(function, arguments)
        self.seconds += time.perf_counter() - start
        return outcome

    def line_of(self, error: BaseException | None) -> str:
        """Say in which line of the learner's own code `error` was raised; empty if that is not known."""
        frames = traceback.extract_tb(error.__traceback__) if error else []
        own = [f for f in frames if self.code and f.filename == self.code.co_filename and f.line]
        return f" It happened in line {own[-1].lineno}: `{own[-1].line}`." if own else ""
