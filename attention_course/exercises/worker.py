"""Judging in a separate process, so that the learner's kernel survives whatever an answer does.

The process starts with the first answer and is reused. Answers are pickled by value, with everything they
use; one that cannot be pickled, such as a function that uses an open file, is judged in the kernel.
"""

import atexit
import builtins
import contextlib
import dis
import faulthandler
import io
import linecache
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

import cloudpickle
from IPython.core.autocall import IPyAutocall
from tqdm.auto import tqdm

from attention_course.exercises.exercise import Exercise
from attention_course.exercises.judging import Verdict, endless, judge
from attention_course.exercises.running import CALL_LIMIT, Answer, Hung

PRINTED = 10_000  # characters that one check shows of what an answer prints
PATIENCE = 2.0  # seconds after CALL_LIMIT until the process exits: a call into C cannot be stopped

Message = tuple[str, Any]


# In the kernel


def judge_apart(exercise: Exercise, function: object, seed: int | None = None) -> Verdict:
    """Judge as `judge` does, in the worker process.

    Raises:
        TypeError: `function` is not callable.
    """
    if not callable(function) or is_harmless(function):
        return judge(exercise, function, seed)
    request = packed(exercise, function, seed)
    if request is None:
        return judge(exercise, function, seed)
    calls, shown = 0, "{desc}: call {n_fmt} of your function, {elapsed}"
    with tqdm(desc="checking", bar_format=shown, delay=1, leave=False) as bar:
        for kind, value in worker.ask(request):
            if kind == "call":
                calls += 1
                bar.update()
            elif kind == "printed":
                print(value, end="")
            elif kind == "verdict":
                return value
            elif calls:
                return ended(exercise, Answer(function), value)
    return judge(exercise, function, seed)  # the process ended before the first call


def is_harmless(function: Callable) -> bool:
    """Return whether a function is not from the notebook, or has no calls and no loops, as a stub."""
    code = Answer(function).code
    if not code or getattr(function, "__module__", None) != "__main__":
        return True
    does = {instruction.opname for instruction in dis.get_instructions(code)}
    return not any("CALL" in name or "JUMP" in name for name in does)


class Packer(cloudpickle.Pickler):
    """Pickles `exit` and `quit` of IPython, which end the kernel, as those of Python."""

    def reducer_override(self, obj):
        """Return how to rebuild `obj`."""
        if isinstance(obj, IPyAutocall):
            return getattr, (builtins, "exit")
        return super().reducer_override(obj)


def packed(exercise: Exercise, function: Callable, seed: int | None) -> bytes | None:
    """Pickle a request; None if the answer cannot be pickled."""
    code, answer = Answer(function).code, io.BytesIO()
    source = (code.co_filename, linecache.getlines(code.co_filename)) if code else ("", [])
    try:
        Packer(answer).dump(function)
    except Exception:  # any object that the answer uses can raise its own error
        return None
    return pickle.dumps((exercise.name, answer.getvalue(), seed, source))


class Worker:
    """The worker process, seen from the kernel."""

    process: subprocess.Popen | None = None

    def ask(self, request: bytes) -> Iterator[Message]:
        """Send a request; yield the messages until the verdict or the end of the process.

        Closing the generator early, for example by an interrupt, ends the process.
        """
        done = False
        try:
            requests, messages = self.started()
            requests.write(request)
            requests.flush()
            while not done:
                message = pickle.load(messages)
                done = message[0] in ("verdict", "not loaded")
                yield message
        except (EOFError, OSError):
            yield "ended", self.end()
        finally:
            if not done:
                self.end()

    def started(self) -> tuple[IO[bytes], IO[bytes]]:
        """Return stdin and stdout of the process; start it if it is not running."""
        if self.process is not None and self.process.poll() is not None:
            self.end()
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, "-c", "from attention_course.exercises.worker import serve; serve()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                start_new_session=True,  # it must not get the kernel's interrupts
                creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
            )
        assert self.process.stdin
        assert self.process.stdout
        return self.process.stdin, self.process.stdout

    def end(self) -> str:
        """End the process, if there is one; return its stderr."""
        if self.process is None:
            return ""
        self.process.kill()
        _, said = self.process.communicate()
        self.process = None
        return said.decode(errors="replace")


worker = Worker()
atexit.register(worker.end)


def ended(exercise: Exercise, answer: Answer, said: str) -> Verdict:
    """Return the verdict for an answer that ended the process, from its stderr."""
    if "most recent call first" not in said:
        message = (
            "Your function ended the process that it ran in. Remove the call that does so: an answer returns "
            "its result, and its caller continues."
        )
        return Verdict(exercise.name, False, (), "not yet: it ends the process", message)
    file = answer.code.co_filename if answer.code else ""
    line = re.search(rf'File "{re.escape(file)}", line (\d+)', said)
    where = ""
    if line and (text := linecache.getline(file, int(line[1])).strip()):
        where = f" It happened in line {line[1]}: `{text}`."
    return endless(exercise, f", in a call that cannot be stopped.{where} Its process was ended.")


# In the process


def serve() -> None:
    """Judge the requests on stdin until it is closed; send messages to stdout."""
    from attention_course.exercises import EXERCISES

    requests, messages = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)

    def send(kind: str, value: object = None) -> None:
        messages.write(pickle.dumps((kind, value)))
        messages.flush()

    known = set(sys.modules)
    with contextlib.suppress(EOFError):
        while True:
            name, answer, seed, (file, lines) = pickle.load(requests)
            linecache.cache[file] = (0, None, lines, file)
            try:
                function = pickle.loads(answer)
            except Exception:  # for example, it imports a module that only the kernel has
                send("not loaded")
                continue
            shown = Relay(partial(send, "printed"))
            with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
                verdict = judge(EXERCISES[name], function, seed, partial(watched, send))
            send("verdict", verdict)
            forget_own_modules(known)


@contextlib.contextmanager
def watched(send: Callable[[str], None]) -> Iterator[None]:
    """Report a call, and exit if it cannot be stopped."""
    send("call")
    faulthandler.dump_traceback_later(CALL_LIMIT + PATIENCE, exit=True, file=2)
    try:
        yield
    except Hung as hung:
        if not hung.stopped:
            faulthandler.dump_traceback(file=2)
            os._exit(1)
        raise
    finally:
        faulthandler.cancel_dump_traceback_later()


class Relay(io.TextIOBase):
    """Sends the first PRINTED characters written to it, then a note that the rest is not shown."""

    def __init__(self, send: Callable[[str], None]):
        self.send, self.left = send, PRINTED

    def write(self, text: str) -> int:
        """Send the text up to the limit."""
        if self.left > 0:
            self.send(text[: self.left])
            self.left -= len(text)
            if self.left <= 0:
                self.send("\n... Your function prints more than this. The rest is not shown.\n")
        return len(text)


def forget_own_modules(known: set[str]) -> None:
    """Unload modules from the learner's folder: they may have changed before the next answer."""
    for name in sys.modules.keys() - known:
        file = Path(getattr(sys.modules[name], "__file__", None) or os.devnull)
        if file.is_relative_to(Path.cwd()) and "site-packages" not in file.parts:
            del sys.modules[name]
