"""Code that may crash or hang, such as a learner's, runs in a process apart, and the kernel goes on.

The process is started once, because its imports take seconds. Where it can, it forks for each request, so
that nothing that one request changes reaches the next.
"""

import atexit
import builtins
import contextlib
import gc
import io
import os
import pickle
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Generator
from functools import _lru_cache_wrapper, lru_cache, partial
from importlib import import_module
from pkgutil import resolve_name
from queue import Empty, SimpleQueue
from types import ModuleType
from typing import IO, Any, NoReturn

import cloudpickle
import torch

START = 300.0  # seconds until the process has begun: from a cold disk, torch takes a minute
MAX_FILE_BYTES = 2**28  # bytes of a file that a fork can write, its stderr among them
MAX_CPU_SECONDS = 3600  # of a fork: if its kernel was killed, nobody else ends a loop in it
SAID = 100_000  # bytes of stderr that are read, the last ones

Message = tuple[str, Any]
Send = Callable[[str, object], None]


class EndedError(Exception):
    """The process ended before its work was done.

    Attributes:
        said: its stderr.
        begun: whether it had begun to work on the request.
        silent: whether it was ended because it sent no message for too long.
    """

    def __init__(self, said: str, *, begun: bool, silent: bool):
        super().__init__(
            f"The process {'was silent and was ended' if silent else 'ended'}: {said or 'no output'}"
        )
        self.said, self.begun, self.silent = said, begun, silent


# In the kernel


class Worker:
    """A process apart, seen from the kernel.

    Args:
        work: what it does, as "module:function". `function(request, send)` is called in the process for each
            request; `send(kind, value)` sends a message to the kernel.
        prepare: what saves time for later requests like this one, likewise; `function(request)` is called
            where the process forks, beside the fork at work.

    Attributes:
        forks: whether each request gets a fork of the process. Elsewhere than on Linux, libraries do not
            survive a fork; there the process ends after each request, and the next one is started at once.
    """

    forks = sys.platform == "linux"

    def __init__(self, work: str, prepare: str = ""):
        self.work, self.prepare = work, prepare
        self.process: subprocess.Popen | None = None
        self.group: int | None = None  # of the fork at work
        self.stderr: IO[bytes] = io.BytesIO()
        self.messages: SimpleQueue[tuple[bytes, str, Any] | None] = SimpleQueue()
        self.lock = threading.Lock()  # of the request at work; whoever closes its generator lets go of it
        atexit.register(self.end)

    def ask(self, request: object, silence: float) -> Generator[Message, None, None]:
        """Send a request; yield the messages of the work until it is done. Other threads wait until then.

        Closing the generator early ends the process. Close it, as `contextlib.closing` does: until then all
        others wait.

        Args:
            request: anything that can be pickled; for what the learner made see `pickle_by_value`.
            silence: seconds without a message after which the process is ended.

        Raises:
            EndedError: the process did not finish the work.
            OSError: it cannot be started.
        """
        with self.lock:
            yield from self._ask(request, silence)

    def _ask(self, request: object, silence: float) -> Generator[Message, None, None]:
        key, stdin = secrets.token_bytes(16), self.start()
        begun = done = kept = silent = False
        try:
            self.stderr.seek(0)
            self.stderr.truncate()
            pickle.dump((key, request), stdin)
            stdin.flush()
            while message := self.messages.get(timeout=silence if begun else START):
                sent, kind, value = message
                if sent != key:  # what an earlier request left behind
                    continue
                if kind == "begun":
                    begun, self.group = True, value
                elif kind == "done":
                    done = True
                elif kind == "gone":
                    kept, self.group = True, None
                    break
                else:
                    yield kind, value
        except Empty:
            silent = True
        except OSError:  # it ended while it was written to
            pass
        finally:
            said = self.said() if kept else self.end()
        if not done:
            raise EndedError(said, begun=begun, silent=silent)
        self.start()  # where it does not fork, the next one, ahead of its request

    def start(self) -> IO[bytes]:
        """Start the process, if it is not running; return its stdin."""
        if self.process is not None and self.process.poll() is not None:
            self.end()
        if self.process is None:
            # What lies in the learner's folder comes last: a tokenize.py is not to be taken for Python's.
            try:
                last = {os.path.realpath(".")} - {os.path.realpath(COURSE)}
            except FileNotFoundError as error:
                raise FileNotFoundError(
                    "The folder that this Python works in was removed, so no process can be started in it. "
                    "Call os.chdir(...) with a folder that exists, or start the notebook again."
                ) from error
            paths = [path for path in sys.path if path and os.path.realpath(path) not in last]
            given = f"{self.work!r}, {self.prepare!r}, forks={self.forks}"
            self.stderr = tempfile.TemporaryFile()  # noqa: SIM115 - a pipe that nobody reads would get full
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", f"from attention_course.apart import serve; serve({given})"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.stderr,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                start_new_session=True,  # it must not get the kernel's interrupts
                creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
            )
            self.messages = SimpleQueue()
            threading.Thread(target=read, args=(self.process.stdout, self.messages), daemon=True).start()
        assert self.process.stdin
        return self.process.stdin

    def said(self) -> str:
        """Return what the process wrote to stderr since the last request."""
        end = self.stderr.seek(0, os.SEEK_END)
        self.stderr.seek(max(0, end - SAID))
        return self.stderr.read().decode(errors="replace")

    def end(self) -> str:
        """End the process with its fork and all that they have started; return its stderr."""
        if self.process is None:
            return ""
        if self.group is not None:
            kill_group(self.group)
        if self.process.returncode is None:
            kill_group(self.process.pid)
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(OSError):  # what was not sent cannot be sent any more
            stdin = self.process.stdin
            assert stdin
            stdin.close()
        said = self.said()
        self.stderr.close()
        self.process = self.group = None
        return said


def read(stream: IO[bytes], messages: SimpleQueue) -> None:
    """Put the messages of a process into a queue, and None at its end, or at bytes that are no message."""
    try:
        with stream, contextlib.suppress(Exception):
            while True:
                key, kind, value = pickle.load(stream)
                messages.put((key, kind, value))
    finally:
        messages.put(None)


def kill_group(group: int) -> None:
    """Kill a process that leads a group, and the processes that it has started."""
    if sys.platform != "win32":
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


class Packer(cloudpickle.Pickler):
    """Pickles three things that cloudpickle cannot, or must not.

    `exit` and `quit` of IPython end the kernel: those of Python are sent. Of a learner's function with a
    cache, the function is sent. A module of a class of its own, such as torch.ops, is sent by its name.
    """

    def reducer_override(self, obj):
        """Return how to rebuild `obj`."""
        autocall = sys.modules.get("IPython.core.autocall")  # outside of a notebook there may be none
        if autocall and isinstance(obj, autocall.IPyAutocall):
            return getattr, (builtins, "exit")
        if isinstance(obj, ModuleType) and type(obj) is not ModuleType:  # as torch.ops
            with contextlib.suppress(ImportError, AttributeError, ValueError):
                if resolve_name(obj.__name__) is obj:
                    return resolve_name, (obj.__name__,)
        if isinstance(obj, _lru_cache_wrapper):
            code = getattr(obj.__wrapped__, "__code__", None)
            if code is None or is_learners(code.co_filename):
                return cached, (obj.__wrapped__, *obj.cache_parameters().values())
        return super().reducer_override(obj)


def cached(function: Callable, maxsize: int | None, typed: bool) -> Callable:
    """Return a function with an empty cache."""
    return lru_cache(maxsize, typed)(function)


def pickle_by_value(obj: object) -> bytes:
    """Pickle an object with everything of the learner's that it uses, from the notebook or from files.

    `pickle.loads` in the process makes it again.

    Raises:
        TypeError: it cannot be pickled.
    """
    pickled = io.BytesIO()
    with registering:
        own = [module for module in list(sys.modules.values()) if is_own(module)]
        for module in own:
            cloudpickle.register_pickle_by_value(module)
        try:
            Packer(pickled).dump(obj)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # any object that it uses can raise its own error, or exit
            raise TypeError(f"{type(error).__name__}: {words(error)}") from None
        finally:
            for module in own:
                cloudpickle.unregister_pickle_by_value(module)
    return pickled.getvalue()


registering = threading.RLock()  # cloudpickle keeps one list for all threads


def is_own(module: object) -> bool:
    """Return whether a module is a file of the learner's."""
    if not isinstance(module, ModuleType) or module.__name__ == "__main__":  # that one is pickled by value
        return False
    file = vars(module).get("__file__")  # getattr would make lazy modules load
    return bool(file) and is_learners(file) and sys.modules.get(module.__name__) is module


def is_learners(file: str) -> bool:
    """Return whether a file belongs neither to Python, nor to a package such as torch, nor to the course."""
    return not file.startswith(OURS) and "site-packages" not in file and "dist-packages" not in file


OURS = tuple(os.path.dirname(file) + os.sep for file in (os.__file__, torch.__file__, __file__))
COURSE = os.path.dirname(os.path.dirname(__file__))


def words(error: BaseException | None) -> str:
    """Return the text of an error; "" if there is none, or the learner's own class fails to tell it."""
    try:
        return "" if error is None else str(error).encode("utf-8", "backslashreplace").decode()
    except BaseException:
        return ""


# In the process


def serve(work: str, prepare: str, forks: bool) -> None:
    """Do the work for each request on stdin until it is closed; send messages to stdout."""
    sys.path.append(os.getcwd())
    function, ahead = resolve_name(work), resolve_name(prepare) if prepare else None
    requests, messages = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a pool of threads does not survive a fork
    with contextlib.suppress(EOFError):
        while True:
            key, request = pickle.load(requests)
            send = partial(write, messages, key)
            gc.freeze()  # a collection in the fork would copy all memory
            fork = os.fork() if forks else 0
            if fork == 0:
                requests.close()
                torch.set_num_threads(threads)
                carry_out(partial(function, request, send), send, forks)
            if ahead:
                ahead(request)
            while os.waitpid(fork, os.WNOHANG) == (0, 0):
                if select.select([requests], [], [], 0.02)[0]:  # at its end: the kernel is gone
                    kill_group(fork)
            kill_group(fork)
            send("gone")


def write(messages: IO[bytes], key: bytes, kind: str, value: object = None) -> None:
    """Send a message. Only with the key of its request is it heard: a later request has another one."""
    messages.write(pickle.dumps((key, kind, value)))
    messages.flush()


def carry_out(work: Callable[[], None], send: Send, forked: bool) -> NoReturn:
    """Do the work for one request, and end the process."""
    status = 1
    try:
        if forked:
            os.setpgid(0, 0)
            resource = import_module("resource")  # Windows, which does not fork, has none
            resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE_BYTES, MAX_FILE_BYTES))
            resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_SECONDS, MAX_CPU_SECONDS))
        send("begun", os.getpid() if forked else None)
        work()
        send("done", None)
        status = 0
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(status)
