"""What an answer does to the process that judges it stays there, and a verdict comes all the same."""

import functools
import itertools
import linecache
import os
import signal
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from IPython.core.autocall import ZMQExitAutocall
from torch import nn

from attention_course.apart import Worker
from attention_course.averaging import causal_mean_matmul
from attention_course.exercises import EXERCISES, check, judging, worker
from attention_course.exercises.process import PRINTED
from attention_course.exercises.worker import judge_in_subprocess

pytestmark = pytest.mark.slow

WORK = ("attention_course.exercises.process:work", "attention_course.exercises.process:prepare")
MEAN = "x.cumsum(dim=-2) / torch.arange(1, x.shape[-2] + 1)[:, None]"


def written(source, **scope):
    """Return the function `answer` that a cell with this source defines in a kernel."""
    file, source = f"<cell {next(numbers)}>", textwrap.dedent(source)
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    scope |= {"__name__": "__main__", "torch": torch, "time": time, "os": os, "itertools": itertools}
    exec(compile(source, file, "exec"), scope)
    return scope["answer"]


numbers = itertools.count()


def wrapper_of_itself():
    def answer(x):
        return x @ x @ x

    answer.__wrapped__ = answer
    return answer


class NoAttributes:
    def __call__(self, x):
        raise ValueError

    def __getattr__(self, name):
        raise ValueError(name)


class NoClass:
    @property
    def __class__(self):
        raise BaseException

    def __call__(self, x):
        return x


class NotMadeAgain:
    def __init__(self):
        self.factor = 2

    def __setstate__(self, state):
        raise SystemExit

    def __call__(self, x):
        return self.factor * x


def process():
    return worker.worker.process and worker.worker.process.pid


@pytest.fixture(scope="module", autouse=True)
def one_process_for_all_that_keep_it():
    yield
    worker.worker.end()


def test_an_answer_runs_elsewhere_with_what_it_uses_and_its_process_is_kept():
    seen = []
    helper = f"def mean(x): return {MEAN}\nrows = [mean]\ndef answer(x): seen.append(1); return rows[0](x)"
    answer = written(helper, seen=seen)
    assert repr(check("causal_mean_loop", answer, 1)) == repr(check("causal_mean_loop", answer, 1))
    before = process()
    assert check("causal_mean_loop", answer).passed
    assert before == process() != os.getpid()
    assert not seen, "what it changes, it changes there"
    raises = written("def answer(x):\n    y = x\n    return y @ y @ nothing")
    assert "in line 3: `return y @ y @ nothing`." in check("causal_mean_loop", raises).message


@pytest.mark.parametrize("name", ["exit", "quit"])
def test_exit_ends_neither_kernel_nor_process(name):
    class Kernel(ZMQExitAutocall):
        def __call__(self, keep_kernel=False):
            raise AssertionError("the kernel would have ended")

    answer = written(f"def answer(x): {name}()", **{name: Kernel()})
    assert "raised SystemExit" in check("causal_mean_loop", answer).message
    assert process()


class MyGPT(nn.Module):
    def __init__(self, vocab_size, block_size):
        super().__init__()

    def forward(self, ids):
        os._exit(1)


def ends(x, status=1):
    os._exit(status)


HOSTILE = {  # what they are, what they do, and what is said of it
    "a class": (MyGPT, "it ends the process"),
    "a method": (MyGPT(1, 1).forward, "it ends the process"),
    "a partial": (functools.partial(ends, status=3), "it ends the process"),
    "killed with its parent": ("os.kill(os.getppid(), 9); os._exit(0)", "it ends the process"),
    "no call and no jump": ("n = 10; return n ** (n ** 9)", "it does not end"),
    "stopped with its parent": ("os.kill(os.getppid(), 19); os._exit(0)", "it does not end"),
    "without a guard": (
        "import faulthandler; faulthandler.cancel_dump_traceback_later(); -1 in itertools.count()",
        "it does not end",
    ),
    "much to stderr": ("os.write(2, bytes(10**6)); return x", "wrong values"),
    "no message": (
        "[os.write(fd, b'no') for fd in range(3, 9) if os.path.exists(f'/proc/self/fd/{fd}')]",
        "it ends the process",
    ),
    "no text": ("raise type('E', (Exception,), {'__str__': lambda self: 1 / 0})", "it raises an error"),
    "no repr": ("return type('R', (), {'__repr__': lambda self: exit()})()", "it cannot be judged"),
    "a wrapper of itself": (wrapper_of_itself(), "it cannot be judged"),
    "no attributes": (NoAttributes(), "it cannot be judged"),
    "recursion": ("return answer(x)", "it raises an error"),
    "a full disk": ("while True: os.write(2, bytes(2**20))", "it raises an error"),
    "a huge result": ("return torch.zeros(1).expand(10**12)", "wrong shape"),
    "not to be made again": (NotMadeAgain(), "it cannot be copied"),
}


def test_an_answer_is_not_asked_for_its_class_in_the_kernel():
    assert check("causal_mean_loop", NoClass()).headline == "not yet: it cannot be copied"


@pytest.mark.parametrize("name", HOSTILE)
def test_whatever_an_answer_does_there_is_a_verdict(monkeypatch, name):
    answer, said = HOSTILE[name]
    if said == "it does not end":
        monkeypatch.setattr(worker, "SILENCE", 10.0)
    if isinstance(answer, str):
        answer = written(f"def answer(x):\n    {answer}")
    verdict = check("gpt" if answer is MyGPT else "causal_mean_loop", answer)
    assert (verdict.passed, verdict.headline) == (False, f"not yet: {said}")
    assert check("causal_mean_loop", written(f"def answer(x): return {MEAN}")).passed


CHANGES = [
    "torch.set_default_dtype(torch.float64)",
    "torch.isclose = lambda x, y, **_: torch.ones(x.shape, dtype=torch.bool)",
    "__import__('sys').setrecursionlimit(60)",
    "__import__('threading').Thread(target=lambda: max(itertools.count())).start()",
    "__import__('attention_course.exercises').exercises.EXERCISES.clear()",
]


@pytest.mark.parametrize("forks", [True, False])
def test_what_an_answer_changes_does_not_reach_the_next(monkeypatch, forks):
    monkeypatch.setattr(worker, "worker", Worker(*WORK))
    monkeypatch.setattr(worker.worker, "forks", forks and Worker.forks)
    for change in CHANGES if forks else CHANGES[-1:]:
        check("causal_mean_loop", written(f"def answer(x):\n    {change}\n    return x"))
        verdict = check("causal_mean_loop", written(f"def answer(x): return {MEAN}"))
        assert verdict.passed, f"after {change}: {verdict}"
        assert not check("causal_mean_loop", written("def answer(x): return x * 0")).passed, change
    worker.worker.end()


FORGED = """
def answer(x):
    import pickle, signal, sys, threading
    frame = sys._current_frames()[threading.main_thread().ident]
    while frame.f_code.co_name != "serve":
        frame = frame.f_back
    message = pickle.dumps((frame.f_locals["key"], "printed", "forged"))
    if not os.path.exists(begun):
        open(begun, "w").close()
        read, write = os.pipe()
        if os.fork() == 0:
            signal.alarm(60)  # it ends, whatever happens
            os.setsid()
            while not os.path.exists(enough):
                os.write(frame.f_locals["messages"].fileno(), message)
                os.write(write, b".")
                time.sleep(0.01)
            os._exit(0)
        os.read(read, 1)
    return x
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="It leaves a process behind.")
def test_what_an_answer_leaves_behind_cannot_speak_for_a_later_one(tmp_path, capsys):
    check("causal_mean_loop", written(FORGED, begun=str(tmp_path / "begun"), enough=str(tmp_path / "enough")))
    assert "forged" in capsys.readouterr().out
    check("causal_mean_loop", written(f"def answer(x): return {MEAN}"))
    assert "forged" not in capsys.readouterr().out
    (tmp_path / "enough").touch()


@pytest.mark.parametrize("body", ["-1 in itertools.count()", "while True: print('all', 'of it')"])
def test_a_call_that_does_not_end_is_ended_and_what_it_prints_is_cut(capsys, body):
    """Also where nothing but its process can be ended, and where it catches all that is raised in it."""
    source = f"def answer(x):\n    if x.dim() == 3:\n        {body}\n    return {MEAN}"
    verdict = check("causal_mean_loop", written(source))
    assert verdict.headline == "not yet: it does not end"
    assert "after 5 seconds, for `x` of shape (1, 3, 2)." in verdict.message
    printed = capsys.readouterr().out
    if "print" not in body:  # frames that come and go are not always seen
        assert f"It happened in line 3: `{body}`." in verdict.message
    else:
        assert printed.startswith("all of it\nall of it\n")
        assert printed.endswith("prints more than this. The rest is not shown.\n")
    assert len(printed) < 1.1 * PRINTED
    assert process()


def test_the_learners_interrupt_ends_the_process(listening):
    answer = written("def answer(x):\n    while True: pass")
    threading.Timer(1, signal.raise_signal, [signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        check("causal_mean_loop", answer)
    assert not process()


@pytest.mark.parametrize("what", ["a lock", "a module that only the kernel has"])
def test_what_cannot_be_copied_is_told_so_and_not_called(monkeypatch, what):
    here = type(sys)("only_here")
    here.mean = lambda x: x
    here.mean.__module__, here.mean.__qualname__ = "only_here", "mean"
    monkeypatch.setitem(sys.modules, "only_here", here)
    used = threading.Lock() if what == "a lock" else here.mean
    verdict = check("causal_mean_loop", written("def answer(x): used; os._exit(1)", used=used))
    assert verdict.headline == "not yet: it cannot be copied"


@pytest.mark.parametrize(
    "compiled",
    [
        functools.partial(torch.compile, backend="eager"),
        functools.partial(torch.jit.trace, example_inputs=torch.ones(3, 2)),
    ],
)
@pytest.mark.parametrize("answer", [causal_mean_matmul, nn.Linear(2, 2)])
@pytest.mark.filterwarnings("ignore")
def test_a_compiled_answer_is_told_so(compiled, answer):
    verdict = check("causal_mean_loop", compiled(answer))
    assert verdict.headline == "not yet: it is compiled"


def test_where_no_process_can_start_no_answer_is_called(monkeypatch):
    monkeypatch.setattr(worker, "worker", Worker(*WORK))
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(OSError, match="nowhere"):
        check("causal_mean_loop", written("def answer(x): os._exit(1)"))


STUBS = ("raise NotImplementedError", "raise NotImplementedError('x')", "...", "pass", "'x'")
TRIED = ("return 5", "return 'x'", "return x", "raise ValueError", "exit()", "yield")


@pytest.mark.parametrize("body", [*STUBS, *TRIED])
def test_only_a_stub_is_judged_without_the_process(monkeypatch, body):
    asked, there = [], judging.not_tried(EXERCISES["causal_mean_loop"])
    monkeypatch.setattr(Worker, "ask", lambda *_: asked.append(1) or (each for each in [("verdict", there)]))
    verdict = judge_in_subprocess(EXERCISES["causal_mean_loop"], written(f"def answer(x): {body}"))
    assert (bool(asked), verdict) == (body in TRIED, there)


def test_a_learners_files_are_read_anew_and_not_taken_for_pythons(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(worker, "worker", Worker(*WORK))
    (tmp_path / "tokenize.py").write_text("def encode(text): ...")
    module = tmp_path / "my_means.py"
    for passed, body in ((True, MEAN), (False, "x + 1  # changed since")):
        module.write_text(f"import torch\ndef mean(x): return {body}\n")
        os.utime(module, (passed, passed))
        answer = written("def answer(x):\n    from my_means import mean\n    return mean(x)")
        assert check("causal_mean_loop", answer).passed == passed
    worker.worker.end()


def test_threads_are_judged_one_after_the_other():
    answers = {right: written(f"def answer(x): return {MEAN if right else 'x'}") for right in (True, False)}
    with ThreadPoolExecutor(4) as pool:
        verdicts = pool.map(lambda right: check("causal_mean_loop", answers[right]), [True, False] * 2)
    assert [verdict.passed for verdict in verdicts] == [True, False] * 2


@pytest.mark.parametrize("statement", ["print('\\ud800')", "raise ValueError('\\ud800')"])
def test_half_a_surrogate_pair_is_said_and_judged(statement, capsys):
    verdict = check("causal_mean_loop", written(f"def answer(x):\n    {statement}\n    return {MEAN}"))
    assert "\\ud800" in capsys.readouterr().out + verdict.message
