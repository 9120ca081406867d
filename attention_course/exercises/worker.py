"""Where an answer is judged: in a process of its own, so that the learner's kernel survives whatever it does.

The process starts with the first answer, and is kept. An answer gets there by value, with all that it uses.
What cannot be sent, such as a function that uses an open file, is judged in the kernel.
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
PATIENCE = 2.0  # seconds after CALL_LIMIT until the process ends itself: a call into C cannot be stopped

Message = tuple[str, Any]


# In the kernel


def judge_apart(exercise: Exercise, function: object, seed: int | None = None) -> Verdict:
    """Judge as `judge` does, with its arguments, in the process that is kept for it.

    Raises:
        TypeError: `function` cannot be called.
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
    return judge(exercise, function, seed)  # the process did not come as far as a call


def is_harmless(function: Callable) -> bool:
    """Say whether a function was not written in the notebook, or calls nothing and has no loop, as a stub."""
    code = Answer(function).code
    if not code or getattr(function, "__module__", None) != "__main__":
        return True
    does = {instruction.opname for instruction in dis.get_instructions(code)}
    return not any("CALL" in name or "JUMP" in name for name in does)


class Packer(cloudpickle.Pickler):
    """Sends `exit` and `quit` as Python's own, in place of those that end an IPython kernel."""

    def reducer_override(self, obj):
        """Say how to make `obj` again."""
        if isinstance(obj, IPyAutocall):
            return getattr, (builtins, "exit")
        return super().reducer_override(obj)


def packed(exercise: Exercise, function: Callable, seed: int | None) -> bytes | None:
    """Write down a request; None if there is something in the answer that cannot be sent."""
    code, answer = Answer(function).code, io.BytesIO()
    source = (code.co_filename, linecache.getlines(code.co_filename)) if code else ("", [])
    try:
        Packer(answer).dump(function)
    except Exception:  # anything that the answer uses can refuse, in its own way
        return None
    return pickle.dumps((exercise.name, answer.getvalue(), seed, source))


class Worker:
    """The process, as the kernel sees it."""

    process: subprocess.Popen | None = None

    def ask(self, request: bytes) -> Iterator[Message]:
        """Send a request; yield what comes back, until the verdict or the end of the process.

        Whoever stops listening before, by an interrupt for example, ends the process.
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
        """Return what the process reads and what it writes; start it if there is none, or if it has ended."""
        if self.process is not None and self.process.poll() is not None:
            self.end()
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, "-c", "from attention_course.exercises.worker import serve; serve()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                start_new_session=True,  # the kernel's interrupts are not for it
                creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
            )
        assert self.process.stdin
        assert self.process.stdout
        return self.process.stdin, self.process.stdout

    def end(self) -> str:
        """End the process, if there is one; return what it wrote about its end."""
        if self.process is None:
            return ""
        self.process.kill()
        _, said = self.process.communicate()
        self.process = None
        return said.decode(errors="replace")


worker = Worker()
atexit.register(worker.end)


def ended(exercise: Exercise, answer: Answer, said: str) -> Verdict:
    """Judge an answer that ended the process, from what that wrote at the end."""
    if "most recent call first" not in said:
        message = (
            "Your function ended the process that it ran in. Take out what does so: an answer returns its "
            "result, and whoever called it goes on."
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
    """Judge what is asked for on standard input, until that is closed. Messages go to standard output."""
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
            except Exception:  # what imports a module that only the kernel has, for example
                send("not loaded")
                continue
            shown = Relay(partial(send, "printed"))
            with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
                verdict = judge(EXERCISES[name], function, seed, partial(watched, send))
            send("verdict", verdict)
            forget_own_modules(known)


@contextlib.contextmanager
def watched(send: Callable[[str], None]) -> Iterator[None]:
    """Announce a call, and end the process where it cannot be stopped."""
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
    """Sends the first PRINTED characters that are written to it, and a word about the rest."""

    def __init__(self, send: Callable[[str], None]):
        self.send, self.left = send, PRINTED

    def write(self, text: str) -> int:
        """Send what there is room for."""
        if self.left > 0:
            self.send(text[: self.left])
            self.left -= len(text)
            if self.left <= 0:
                self.send("\n... Your function prints more than this. The rest is not shown.\n")
        return len(text)


def forget_own_modules(known: set[str]) -> None:
    """Forget the modules of the learner's own folder: they may have changed when the next answer comes."""
    for name in sys.modules.keys() - known:
        file = Path(getattr(sys.modules[name], "__file__", None) or os.devnull)
        if file.is_relative_to(Path.cwd()) and "site-packages" not in file.parts:
            del sys.modules[name]
