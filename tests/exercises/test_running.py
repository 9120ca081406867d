"""An answer is run where it can be stopped, and no error of it gets out."""

import functools
import re
import threading
import time

import pytest
import torch
from answers import bad, judged, mean_of_past

from attention_course.exercises import running


@pytest.fixture
def short_limit(monkeypatch):
    monkeypatch.setattr(running, "CALL_LIMIT", 0.2)


def test_an_answer_that_raises():
    def raises(x):
        if x.dim() == 3:
            return x @ torch.ones(77, 77)  # the line to find
        return mean_of_past(x)

    verdict = bad(raises)
    assert verdict.headline == "not yet: it raises an error"
    assert "RuntimeError" in verdict.message
    assert "`return x @ torch.ones(77, 77)  # the line to find`" in verdict.message
    assert "`x` of shape (1, 3, 2)" in verdict.message


@pytest.mark.parametrize(
    "error", [SystemExit, KeyboardInterrupt, RecursionError, GeneratorExit, StopIteration]
)
def test_no_error_of_an_answer_gets_out(error):
    def raises(x):
        raise error("oh")

    assert f"raised {error.__name__}: oh." in bad(raises).message


def test_endless_recursion():
    def again(x):
        return again(x)

    assert "RecursionError" in bad(again).message


def test_wrong_number_of_arguments():
    assert "TypeError" in bad(lambda: None).message


@pytest.mark.parametrize(
    "body",
    ["while True: pass", "while True:\n  try: y = x + 1\n  except Exception: pass"],
)
def test_an_answer_that_hangs_is_stopped(short_limit, body):
    code = "def hangs(x):\n  calls.append(x)\n" + "\n".join("  " + line for line in body.split("\n"))
    scope = {"calls": []}
    exec(code, scope)
    verdict = bad(scope["hangs"])
    assert len(scope["calls"]) == 1  # one wait, not one for each input
    assert verdict.headline == "not yet: it does not end"
    assert "still running after 0.2 seconds, for `x` of shape (1, 2)" in verdict.message
    assert "It was stopped" in verdict.message
    assert not [t for t in threading.enumerate() if t.name == "answer"]


def test_the_line_of_the_loop_is_shown(short_limit):
    def hangs(x):
        while x is not None:
            pass

    assert re.search(r"It happened in line \d+: `(while x is not None:|pass)`", bad(hangs).message)


def test_a_hang_on_later_inputs_only(short_limit):
    def hangs(x):
        while x.dim() == 3:
            pass
        return mean_of_past(x)

    assert "(1, 3, 2)" in bad(hangs).message


def test_each_call_in_a_property_has_a_limit_of_its_own(monkeypatch):
    limited, called = [], []
    usual = running.run
    monkeypatch.setattr(running, "run", lambda *given: (limited.append(1), usual(*given))[1])
    assert judged("causal_mean_loop", lambda x: (called.append(1), mean_of_past(x))[1]).passed
    assert len(limited) == len(called) > 20


def test_all_calls_of_a_check_have_a_limit_together(monkeypatch):
    monkeypatch.setattr(running, "CHECK_LIMIT", 0.1)
    called = []

    def slow(x):
        called.append(1)
        time.sleep(0.03)
        return mean_of_past(x)

    verdict = bad(slow)
    assert verdict.headline == "not yet: it takes too long"
    assert verdict.message.startswith(f"{len(called)} calls of your function took 0 seconds, with more ")
    assert 0 < len(called) <= 4


def test_a_hang_in_a_property_only(short_limit):
    calls = []

    def hangs(x):
        calls.append(1)
        while len(calls) > 9:
            pass
        return mean_of_past(x)

    assert "still running" in bad(hangs).message


def test_the_callers_grad_mode_and_random_state_do_not_matter():
    def uses_grad(x):
        assert torch.is_grad_enabled()
        return mean_of_past(x)

    before = torch.get_rng_state()
    with torch.no_grad():
        assert judged("causal_mean_loop", uses_grad).passed
    assert torch.equal(before, torch.get_rng_state())


def test_what_an_answer_calls_is_known_by_name():
    def softmax(x):
        return x.exp() / x.exp().sum()

    x = torch.ones(3)
    assert "softmax" not in running.Answer(softmax).called((x,))  # the answer itself may be called so
    for answer in (
        lambda x: softmax(x),
        lambda x: x.softmax(-1),
        lambda x: torch.special.softmax(x, -1),
        lambda x: torch._softmax(x, -1, False),
        functools.partial(torch.softmax, dim=-1),
        torch.nn.Softmax(-1),
    ):
        assert "softmax" in running.Answer(answer).called((x,))
