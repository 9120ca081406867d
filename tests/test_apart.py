"""A process apart does its work, or is ended; what one request changes does not reach the next."""

import contextlib
import pickle
import subprocess
import sys
import threading

import psutil
import pytest
import torch

from attention_course.apart import EndedError, Worker, pickle_by_value
from attention_course.examine.learning import stories as is_course_cached

pytestmark = pytest.mark.slow

WORK = """
import os
changed = []
def prepare(request):
    changed.append("prepared")
def work(request, send):
    send("found", list(changed))
    changed.append(request)
    exec(request)
    send("left", None)
"""


@pytest.fixture(params=[True, False] if Worker.forks else [False])
def ask(request, monkeypatch, tmp_path):
    """Ask a process that executes what it is given; return the messages."""
    (tmp_path / "at_work.py").write_text(WORK)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(Worker, "forks", request.param)
    worker = Worker("at_work:work", "at_work:prepare")

    def ask(code, silence=60.0):
        return list(worker.ask(code, silence))

    ask.worker = worker
    yield ask
    worker.end()


def test_each_request_finds_the_process_as_it_was_started_or_prepared(ask):
    assert ask("x = 1") == [("found", []), ("left", None)]
    assert ask("y = 2") == [("found", ["prepared"] if Worker.forks else []), ("left", None)]


@pytest.mark.parametrize(
    ("code", "silent", "said"),
    [
        ("os._exit(0)", False, ""),
        ("raise SystemExit", False, "SystemExit"),
        ("os.write(2, bytes(10**6) + b'the end'); os._exit(1)", False, "the end"),
        ("import time; time.sleep(60)", True, ""),
    ],
)
def test_work_that_is_not_done_is_an_error(ask, code, silent, said):
    with pytest.raises(EndedError) as error:
        ask(code, silence=3.0 if silent else 60.0)
    assert (error.value.begun, error.value.silent) == (True, silent)
    assert error.value.said.strip().endswith(said)
    assert ask("x = 1")[-1] == ("left", None)


def test_a_request_that_is_given_up_may_be_closed_by_any_thread(ask):
    """As the garbage collector does, wherever it runs; the next request is answered."""
    given_up, raised = ask.worker.ask("x = 1", 60.0), []

    def close():
        try:
            given_up.close()
        except BaseException as error:
            raised.append(error)

    next(given_up)
    thread = threading.Thread(target=close)
    thread.start()
    thread.join()
    assert raised == []
    assert ask("x = 2")[-1] == ("left", None)


def test_worker__is_replaced_if_it_was_killed_and_ends_with_its_parent(monkeypatch):
    worker = Worker("builtins:print")
    monkeypatch.setattr(Worker, "forks", False)
    worker.start()
    first = worker.process
    first.kill()
    first.wait()
    worker.start().close()
    assert worker.process is not first
    assert worker.process.wait(60) == 0
    worker.end()


@pytest.mark.skipif(sys.platform == "win32", reason="There it cannot be removed.")
def test_a_working_folder_that_was_removed_is_said(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    with pytest.raises(FileNotFoundError, match="was removed"):
        Worker("builtins:print").start()


@pytest.mark.skipif(sys.platform == "win32", reason="There a process has no group.")
def test_what_it_starts_ends_with_it(ask):
    _, (_, pid), _ = ask("import subprocess; send('started', subprocess.Popen(['sleep', '99']).pid)")
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait(10)


@pytest.mark.skipif(
    not Worker.forks, reason="Elsewhere the process at work is the one that would have to look."
)
def test_what_does_not_end_ends_with_a_kernel_that_was_killed(tmp_path):
    (tmp_path / "at_work.py").write_text(WORK)
    asks = """
from attention_course.apart import Worker
for message in Worker("at_work:work").ask("while True: pass", 60.0):
    print(message, flush=True)
"""
    kernel = subprocess.Popen([sys.executable, "-c", asks], cwd=tmp_path, stdout=subprocess.PIPE)
    kernel.stdout.readline()
    started = psutil.Process(kernel.pid).children(recursive=True)
    kernel.kill()
    kernel.communicate()
    assert len(started) == 2
    assert psutil.wait_procs(started, timeout=10)[1] == []


def test_a_function_with_a_cache_is_pickled_with_its_settings(monkeypatch, tmp_path):
    (tmp_path / "my_cache.py").write_text(
        "import functools\n"
        "@functools.lru_cache(maxsize=7, typed=True)\n"
        "def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)\n"
        "class Mine:\n"
        "    @functools.cache\n"
        "    def twice(self, n): return 2 * n\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import my_cache  # pyright: ignore

    mine = pickle_by_value([my_cache.fib, my_cache.Mine, is_course_cached])
    monkeypatch.delitem(sys.modules, "my_cache")
    sys.path.remove(str(tmp_path))
    fib, kind, ours = pickle.loads(mine)
    assert (fib(50), kind().twice(3)) == (12586269025, 6)
    assert fib.cache_parameters() == {"maxsize": 7, "typed": True}
    assert ours is is_course_cached


def test_a_module_of_a_class_of_its_own_is_pickled_by_its_name():
    add_up = pickle.loads(pickle_by_value(lambda x: torch.ops.aten.cumsum(x, 0)))
    assert add_up(torch.ones(2)).tolist() == [1, 2]


def test_an_object_that_exits_while_it_is_pickled_is_refused_with_what_it_raised():
    class Exits:
        def __reduce__(self):
            raise SystemExit("bye")

    with pytest.raises(TypeError, match="SystemExit: bye"):
        pickle_by_value(Exits())


def test_what_is_of_no_package_is_pickled_by_value(monkeypatch, tmp_path):
    (tmp_path / "my_file.py").write_text(
        "from torch import softmax\nclass Mine: pass\ndef mine(): return Mine()"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import my_file  # pyright: ignore

    own, others = pickle_by_value(my_file.mine), pickle_by_value([my_file.softmax, Worker])
    monkeypatch.delitem(sys.modules, "my_file")
    monkeypatch.syspath_prepend("/")
    sys.path.remove(str(tmp_path))
    assert type(pickle.loads(own)()).__name__ == "Mine"
    assert pickle.loads(others)[1] is Worker
