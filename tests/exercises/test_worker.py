"""What an answer does to the process that judges it stays there, and a verdict comes all the same."""

import itertools
import linecache
import os
import signal
import sys
import textwrap
import threading
import time

import pytest
import torch
from IPython.core.autocall import ZMQExitAutocall

from attention_course.exercises import check, worker
from attention_course.exercises.worker import Relay, Worker

pytestmark = pytest.mark.slow

MEAN = "x.cumsum(dim=-2) / torch.arange(1, x.shape[-2] + 1)[:, None]"


def written(source, **scope):
    """Return the function `answer` that a cell with this source defines in a kernel."""
    file, source = f"<cell {next(numbers)}>", textwrap.dedent(source)
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    scope |= {"__name__": "__main__", "torch": torch, "time": time, "os": os, "itertools": itertools}
    exec(compile(source, file, "exec"), scope)
    return scope["answer"]


numbers = itertools.count()


def process():
    return worker.worker.process and worker.worker.process.pid


@pytest.fixture(scope="module", autouse=True)
def one_process_for_all_that_keep_it():
    yield
    worker.worker.end()


def test_a_right_answer_passes_and_its_process_is_kept():
    answer = written(f"def answer(x): return {MEAN}")
    assert repr(check("causal_mean_loop", answer, 1)) == repr(check("causal_mean_loop", answer, 1))
    assert check("causal_mean_loop", answer).passed
    before = process()
    assert check("causal_mean_loop", answer).passed
    assert before == process() != os.getpid()


def test_an_answer_takes_along_what_it_uses():
    helper = f"def mean(x): return {MEAN}\nrows = [mean]\ndef answer(x): return rows[0](x)"
    assert check("causal_mean_loop", written(helper)).passed


def test_what_an_answer_changes_is_not_changed_here():
    seen = []
    assert check(
        "causal_mean_loop", written(f"def answer(x): seen.append(1); return {MEAN}", seen=seen)
    ).passed
    assert not seen


def test_a_verdict_names_the_mistake_and_the_line():
    assert check("causal_mean_loop", written("def answer(x): return x.cumsum(dim=-2)"), 0).mistakes == (
        "sum_in_place_of_mean",
    )
    message = check(
        "causal_mean_loop", written("def answer(x):\n    y = x\n    return y @ y @ nothing")
    ).message
    assert "It happened in line 3: `return y @ y @ nothing`." in message


@pytest.mark.parametrize("name", ["exit", "quit"])
def test_exit_ends_neither_kernel_nor_process(name):
    class Kernel(ZMQExitAutocall):
        def __call__(self, keep_kernel=False):
            raise AssertionError("the kernel would have ended")

    answer = written(f"def answer(x): {name}()", **{name: Kernel()})
    assert "raised SystemExit" in check("causal_mean_loop", answer).message
    assert process()


@pytest.mark.parametrize(
    "body", ["os._exit(3)", "os.kill(os.getpid(), 9)", "__import__('ctypes').string_at(0)"]
)
def test_an_answer_that_ends_its_process_is_told_so(body):
    verdict = check("causal_mean_loop", written(f"def answer(x): {body}"))
    assert verdict.headline in ("not yet: it ends the process", "not yet: it does not end")
    assert not process()
    assert check("causal_mean_loop", written(f"def answer(x): return {MEAN}")).passed


@pytest.mark.parametrize("body", ["-1 in itertools.count()", "time.sleep(1000)"])
def test_a_call_that_nothing_can_stop_is_ended_with_its_process(body):
    source = f"def answer(x):\n    if x.dim() == 3:\n        {body}\n    return {MEAN}"
    verdict = check("causal_mean_loop", written(source))
    assert verdict.headline == "not yet: it does not end"
    assert f"It happened in line 3: `{body}`. Its process was ended." in verdict.message
    assert not process()


def test_an_endless_loop_is_stopped_and_what_it_prints_is_cut(capsys):
    verdict = check("causal_mean_loop", written("def answer(x):\n    while True: print('all', 'of it')"))
    assert "It happened in line 2: `while True: print('all', 'of it')`. It was stopped." in verdict.message
    printed = capsys.readouterr().out
    assert printed.startswith("all of it\nall of it\n")
    assert printed.endswith("prints more than this. The rest is not shown.\n")
    assert len(printed) < 1.1 * worker.PRINTED
    assert process()


def test_little_is_shown_whole():
    sent = []
    relay = Relay(sent.append)
    for text in ("a" * worker.PRINTED, "b", "c"):
        assert relay.write(text) == len(text)
    assert sent == [
        "a" * worker.PRINTED,
        "\n... Your function prints more than this. The rest is not shown.\n",
    ]


def test_the_learners_interrupt_ends_the_process(listening):
    answer = written("def answer(x):\n    while True: pass")
    threading.Timer(1, signal.raise_signal, [signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        check("causal_mean_loop", answer)
    assert not process()


def test_a_process_that_was_ended_meanwhile_is_replaced():
    answer = written(f"def answer(x): return {MEAN}")
    assert check("causal_mean_loop", answer).passed
    worker.worker.process.kill()
    worker.worker.process.wait()
    assert check("causal_mean_loop", answer).passed


def judged_here(monkeypatch):
    """Return a list that grows by each exercise that is judged in this process."""
    judged, usual = [], worker.judge
    monkeypatch.setattr(worker, "judge", lambda *given: (judged.append(given), usual(*given))[1])
    return judged


def test_what_cannot_be_sent_is_judged_here(monkeypatch):
    judged = judged_here(monkeypatch)
    answer = written(f"def answer(x):\n    with lock: return {MEAN}", lock=threading.Lock())
    assert check("causal_mean_loop", answer).passed
    assert len(judged) == 1


def test_what_cannot_be_loaded_there_is_judged_here(monkeypatch):
    judged = judged_here(monkeypatch)
    here = type(sys)("only_here")
    here.mean = lambda x: x.cumsum(dim=-2) / torch.arange(1, x.shape[-2] + 1)[:, None]
    here.mean.__module__, here.mean.__qualname__ = "only_here", "mean"
    monkeypatch.setitem(sys.modules, "only_here", here)
    assert check("causal_mean_loop", written("def answer(x): return mean(x)", mean=here.mean)).passed
    assert len(judged) == 1


def test_where_no_process_can_start_answers_are_judged_here(monkeypatch):
    judged = judged_here(monkeypatch)
    monkeypatch.setattr(worker, "worker", Worker())
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert check("causal_mean_loop", written(f"def answer(x): return {MEAN}")).passed
    assert len(judged) == 1


@pytest.mark.parametrize("body", ["raise NotImplementedError", "...", "pass", "return x @ x"])
def test_a_stub_starts_no_process(monkeypatch, body):
    monkeypatch.setattr(Worker, "ask", lambda *given: pytest.fail("asked"))
    assert not check("causal_mean_loop", written(f"def answer(x): {body}")).passed


@pytest.mark.parametrize(
    "body", ["return exit()", "return [0 for _ in x]", "(lambda: exit())()", "[0 for _ in x]"]
)
def test_all_else_goes_there(body):
    assert not worker.is_harmless(written(f"def answer(x): {body}"))


def test_own_modules_are_read_anew(monkeypatch, tmp_path):
    module = tmp_path / "my_means.py"
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(worker, "worker", Worker())
    for passed, body in (
        (True, MEAN),
        (False, "x + 1  # changed since"),
    ):
        module.write_text(f"import torch\ndef mean(x): return {body}\n")
        os.utime(module, (passed, passed))
        answer = written("def answer(x):\n    from my_means import mean\n    return mean(x)")
        assert check("causal_mean_loop", answer).passed == passed
    worker.worker.end()


def test_the_process_ends_with_its_parent():
    assert check("causal_mean_loop", written(f"def answer(x): return {MEAN}")).passed
    alive = worker.worker.process
    alive.stdin.close()
    assert alive.wait(10) == 0
    alive.stdout.close()
    alive.stderr.close()
    worker.worker.process = None
