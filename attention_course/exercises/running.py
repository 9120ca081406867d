"""Running an answer: on copies of its arguments, each call with what the judge wants to know of it."""

import contextlib
import copy
import inspect
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor

from attention_course.apart import is_learners

CHECK_LIMIT = 20.0  # seconds for all calls of one check


@dataclass
class Outcome:
    """The outcome of one call: its arguments afterwards, and the value or the error."""

    arguments: tuple
    value: Any = None
    error: BaseException | None = None


class CheckTimeout(BaseException):
    """The calls of one check exceeded CHECK_LIMIT. Not an `Exception`, so that no property catches it."""


def call(function: Callable, arguments: tuple) -> Outcome:
    """Call `function` with copies of `arguments`; exceptions, even SystemExit, are stored in the outcome.

    The value is detached unless an argument requires grad. Of a subclass, the tensor is taken: two classes
    that are made in two calls cannot be compared.
    """
    outcome = Outcome(tuple(map(copied, arguments)))
    with_gradient = any(isinstance(a, Tensor) and a.requires_grad for a in arguments)
    try:
        value = function(*outcome.arguments)
        if isinstance(value, Tensor) and type(value) is not Tensor:
            with contextlib.suppress(Exception):  # some hold more than one tensor
                value = Tensor.as_subclass(value, Tensor)
        outcome.value = value.detach() if isinstance(value, Tensor) and not with_gradient else value
    except BaseException as error:
        outcome.error = error
    return outcome


def copied(argument: Any) -> Any:
    """Copy an argument, so that the next call gets what this one got; gradients flow through the copy."""
    if isinstance(argument, Tensor):
        return argument.clone()
    return argument if isinstance(argument, Iterator) else copy.deepcopy(argument)


class Submission:
    """A learner's function during one check.

    Args:
        function: what the learner wrote.
        guard: given the arguments, returns a context manager for a call: in it, a call can be ended.

    Attributes:
        calls: number of calls so far.
        seconds: their total time.
    """

    def __init__(self, function: Callable, guard: Callable[[tuple], AbstractContextManager] = nullcontext):
        self.function, self.guard = function, guard
        self.calls, self.seconds = 0, 0.0

    @property
    def code(self) -> CodeType | None:
        """The code object of the learner's function; None if there is none, as for an nn.Module."""
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        return code if isinstance(code, CodeType) else None

    def run(self, arguments: tuple, function: Callable | None = None) -> Outcome:
        """Call the function, or one that calls it, with copies of `arguments`, with gradients enabled.

        Raises:
            CheckTimeout: earlier calls exceeded CHECK_LIMIT; this one is not made.
        """
        if self.seconds > CHECK_LIMIT:
            raise CheckTimeout
        self.calls += 1
        start = time.perf_counter()
        with torch.enable_grad(), self.guard(arguments):
            outcome = call(function or self.function, arguments)
        self.seconds += time.perf_counter() - start
        return outcome

    def called(self, arguments: tuple) -> set[str]:
        """Call the function; return the names of all functions called, `softmax` for `torch._softmax`.

        Those that the learner wrote do not count, whatever their names are.

        Raises:
            CheckTimeout: see `run`.
        """
        names, written = set(), self.function
        while isinstance(written, partial):
            written = written.func
        own = Submission(written).code
        if written is not self.function and not (own and is_learners(own.co_filename)):
            names.add(getattr(written, "__name__", ""))

        def note(frame: FrameType, event: str, argument: Any) -> None:
            if event == "c_call":
                names.add(argument.__name__.removeprefix("special_").strip("_"))
            elif event == "call" and frame.f_code is not own and not is_learners(frame.f_code.co_filename):
                names.add(frame.f_code.co_name)

        def noted(*given):
            sys.setprofile(note)
            try:
                return self.function(*given)
            finally:
                sys.setprofile(None)

        self.run(arguments, noted)
        return names

    def line_of(self, error: BaseException | None) -> str:
        """Return a sentence with the line of the learner's code that raised `error`; empty if unknown."""
        frames = traceback.extract_tb(error.__traceback__) if error else []
        own = [f for f in frames if self.code and f.filename == self.code.co_filename and f.line]
        return f" It happened in line {own[-1].lineno}: `{own[-1].line}`." if own else ""
