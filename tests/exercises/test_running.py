"""An answer is run on copies, with gradients, within a time, and no error of it gets out."""

import functools
from types import SimpleNamespace

import pytest
import torch
from answers import bad, judged, mean_of_past
from torch.nn import functional as F

from attention_course.attention import leak_probe
from attention_course.exercises import running
from attention_course.heads import induction_targets


def raises_in_3d(x):
    if x.dim() == 3:
        return x @ torch.ones(77, 77)  # the line to find
    return mean_of_past(x)


def raising(error):
    def answer(x):
        raise error("oh")

    return answer


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (raises_in_3d, ["RuntimeError", "`return x @ torch.ones(77, 77)  # the line to find`", "(1, 3, 2)"]),
        (lambda: None, ["TypeError"]),
        *((raising(error), [f"raised {error.__name__}: oh."]) for error in (SystemExit, KeyboardInterrupt)),
    ],
)
def test_an_error_of_an_answer_is_told_with_its_line_and_does_not_get_out(answer, words):
    verdict = bad(answer)
    assert verdict.headline == "not yet: it raises an error"
    assert [word for word in words if word not in verdict.message] == []


@pytest.mark.parametrize("calls_before", [0, 9], ids=["of inputs", "of properties"])
def test_all_calls_of_a_check_have_a_limit_together(monkeypatch, calls_before):
    called = []

    def slow(x):
        called.append(1)
        return mean_of_past(x)

    clock = SimpleNamespace(perf_counter=lambda: 21.0 * (len(called) > calls_before))
    monkeypatch.setattr(running, "time", clock)

    verdict = bad(slow)
    assert verdict.headline == "not yet: it takes too long"
    assert f"{len(called)} calls of your function took 21 seconds" in verdict.message
    assert len(called) == calls_before + 1


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

    cell = {"torch": torch}  # no file: a cell of a notebook has a name of the kernel's
    source = "def softmax(x): return x.exp() / x.exp().sum()\ndef answer(x): return softmax(x)"
    exec(compile(source, "<ipython-input-1>", "exec"), cell)
    x = torch.ones(3)
    for answer in (softmax, lambda x: softmax(x), functools.partial(softmax), cell["answer"]):
        assert "softmax" not in running.Submission(answer).called((x,))  # what they wrote may be called so
    for answer in (
        lambda x: torch.special.softmax(x, -1),
        lambda x: torch._softmax(x, -1, False),
        lambda x: F.softmin(-x, dim=-1),
        functools.partial(torch.softmax, dim=-1),
        torch.nn.Softmax(dim=-1),
    ):
        assert "softmax" in running.Submission(answer).called((x,))
    for function, given in (
        (leak_probe, (torch.tanh, x[:, None])),
        (induction_targets, (torch.tensor([1, 1]),)),
    ):
        assert function.__name__ in running.Submission(lambda *a, f=function: f(*a)).called(given)
