"""Judging in a process apart: what is done there.

The kernel does not import this module.
"""

import contextlib
import faulthandler
import io
import linecache
import pickle
from collections.abc import Callable, Iterator
from functools import partial

import torch.fx.experimental.symbolic_shapes  # or torch does it, for a second, when it first broadcasts

from attention_course.apart import Send, words
from attention_course.exercises import EXERCISES
from attention_course.exercises.exercise import Exercise
from attention_course.exercises.judging import Verdict, judge, not_copied
from attention_course.exercises.problems import described, named
from attention_course.exercises.worker import CALL_LIMIT, Request

PRINTED = 10_000  # characters that one check shows of what an answer prints


def prepare(request: Request) -> None:
    """Compile the known mistakes of an exercise, once for all later answers to it."""
    EXERCISES[request[0]].compile()


def work(request: Request, send: Send) -> None:
    """Judge an answer, and send the verdict."""
    name, answer, seed, sources = request
    for file, lines in sources.items():
        linecache.cache[file] = (0, None, lines, file)
    shown = Relay(partial(send, "printed"))
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
        exercise = EXERCISES[name]
        if not exercise.judge:
            torch.set_num_threads(1)  # inputs are small: threads would wait for each other
        send("verdict", verdict_on(exercise, answer, seed, partial(watched, send, exercise)))


def verdict_on(exercise: Exercise, answer: bytes, seed: int | None, guard: Callable) -> Verdict:
    """Unpickle an answer and judge it, whatever comes of that."""
    try:
        function = pickle.loads(answer)
    except BaseException as error:  # for example, it imports a module that only the kernel has
        return not_copied(exercise, error)
    try:
        return judge(exercise, function, seed, guard)
    except BaseException as error:  # an object of the learner's can raise it wherever it is looked at
        message = (
            "What your function returned or raised cannot be judged: the check itself raised "
            f"{type(error).__name__}: {words(error)}. Return a plain tensor, made with functions of torch."
        )
        return Verdict(exercise.name, False, (), "not yet: it cannot be judged", message)


@contextlib.contextmanager
def watched(send: Send, exercise: Exercise, arguments: tuple) -> Iterator[None]:
    """Report a call; if it does not end, exit with a traceback. Nothing else can stop a call into C.

    An exercise that judges for itself sets its own limit.
    """
    send("call", described(named(exercise, arguments)))
    if not exercise.judge:
        faulthandler.dump_traceback_later(CALL_LIMIT, exit=True, file=2)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


class Relay(io.TextIOBase):
    """Sends the first PRINTED characters written to it, then a note that the rest is not shown."""

    def __init__(self, send: Callable[[str], None]):
        self.send, self.left = send, PRINTED

    def write(self, text: str) -> int:
        """Send the text up to the limit."""
        if text and self.left > 0:  # an empty one would never come to an end
            self.send(text[: self.left].encode("utf-8", "backslashreplace").decode())
            self.left -= len(text)
            if self.left <= 0:
                self.send("\n... Your function prints more than this. The rest is not shown.\n")
        return len(text)
