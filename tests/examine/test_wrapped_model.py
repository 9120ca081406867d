"""What models can do to an examination."""

import copy
import os
import random
import signal
import sys
import threading
import time
from dataclasses import make_dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from examine.right import BLOCK, V
from torch import nn

from attention_course import examine as package
from attention_course.examine import QUESTIONS, examine, examine_here, findings
from attention_course.examine.learning import by_heart
from attention_course.examine.one_file import Model
from attention_course.examine.planted import plant
from attention_course.examine.question import ModelVariants, questions_of
from attention_course.examine.wrapped_model import StoppedError, WrappedModel

pytestmark = pytest.mark.usefixtures("shapes_unchecked")


def quickly(model, questions=6, **sizes):
    """Ask the first questions only."""
    sizes = {"vocab_size": V, "block_size": BLOCK} | sizes
    return examine_here(WrappedModel(model, **sizes), list(QUESTIONS[:questions]))


def first(report):
    return report.findings[0]


class Around(nn.Module):
    """A right model inside, and something done around it."""

    def __init__(self, before=lambda ids: ids, after=lambda logits: logits):
        super().__init__()
        self.inside, self.before, self.after = Model(V, BLOCK), before, after

    def forward(self, ids):
        return self.after(self.inside(self.before(ids))[0])


QUICK = [question for question in QUESTIONS if not question.train]


def fails(ids):
    raise RuntimeError("the tensors do not match\x1b[2J")


def test_no_text_contains_what_the_model_names_as_padding():
    read = set()
    model = Around(before=lambda ids: read.update(ids.flatten().tolist()) or ids)
    model.inside.tokens.padding_idx, model.config = 0, SimpleNamespace(pad_token_id=7)
    report = examine_here(WrappedModel(model, V, BLOCK), QUICK)
    assert report, report
    assert read == {*range(V)} - {0, 7}
    assert "id 0, 7 as padding" in report.remarks[0]


# Whatever a model returns


@pytest.mark.parametrize(
    "after",
    [
        lambda logits: (logits,),
        lambda logits: [None, logits],
        lambda logits: {"logits": logits, "loss": None},
        lambda logits: {"output": logits},
        lambda logits: {"attentions": torch.zeros(1, 4, *logits.shape[1:]), "output": logits},
        lambda logits: SimpleNamespace(logits=logits),
        lambda logits: SimpleNamespace(hidden=torch.zeros(2, 2, 3), scores=logits),
        make_dataclass("WithSlots", ["scores"], slots=True),
        lambda logits: logits.log_softmax(dim=-1),
        lambda logits: logits.half(),
    ],
)
def test_logits_are_found_in_what_a_model_returns(after):
    assert quickly(Around(after=after))


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (lambda logits: None, "NoneType without logits"),
        (lambda logits: "text", "str without logits"),
        (lambda logits: logits[:, -1], "the last position"),
        (lambda logits: logits[:, [-1]], "the last position"),
        (lambda logits: logits.flatten(0, 1), "B and T are merged"),
        (lambda logits: logits.mT, "V comes before T"),
        (lambda logits: logits.transpose(0, 1), "T comes before B"),
        (lambda logits: logits[..., :-1], "vocab_size = 29"),
        (lambda logits: logits.argmax(-1), "one number per token"),
    ],
)
def test_a_wrong_shape_is_explained(after, words):
    report = quickly(Around(after=after))
    assert not report
    assert words in str(first(report))
    assert all(finding.verdict == "not asked" for finding in report.findings[1:])


def test_nan_is_found_and_nothing_else_is_asked():
    report = quickly(Around(after=lambda logits: logits * torch.nan))
    assert [f.name for f in report.findings if f.verdict == "wrong"] == ["The logits are finite"]


def test_a_logit_that_is_always_the_same_hides_no_other():
    padded = torch.tensor([V - 1])

    def examined(inside):
        around = Around(after=lambda logits: logits.index_fill(-1, padded, -1e9))
        around.inside = inside
        return {f.name: f.verdict for f in quickly(around, questions=len(QUICK)).findings}

    assert "wrong" not in examined(Model(V, BLOCK)).values()
    assert examined(plant("mask off by one"))["No leak from the future"] == "wrong"


# Whatever it does


def test_an_error_is_a_finding():
    report = quickly(Around(before=fails))
    assert r"RuntimeError: the tensors do not match\x1b[2J." in first(report).measured


def test_an_error_names_its_line_and_the_sizes_that_were_asked():
    said = first(quickly(Around(before=fails))).measured
    assert (
        f"At test_wrapped_model.py, line {fails.__code__.co_firstlineno + 1}, in fails: raise RuntimeError"
        in said
    )
    assert said.endswith("Asked with ids of shape (3, 5): B = 3, T = 5; the block is 24.")


@pytest.mark.parametrize(
    ("before", "words"),
    [
        (lambda ids: (ids, ids), "take [0]"),
        (lambda ids: ids + V, "Are these the model's sizes"),
        (lambda ids: ids + torch.arange(BLOCK), "not cut to mask[:T, :T]"),
        (lambda ids: unknown, "The error comes from forward()"),
    ],
)
def test_the_cause_of_an_error_is_named(before, words):
    assert words in first(quickly(Around(before=before))).cause


def test_a_model_without_forward_is_not_written_yet():
    assert "not written yet" in first(quickly(nn.Module())).cause


def test_an_error_for_some_texts_is_a_finding():
    def only_short(ids):
        return ids if ids.shape[1] < BLOCK else fails(ids)

    report = quickly(Around(before=only_short), questions=12)
    assert first(report).name == "It reads a full block"
    assert "the tensors do not match" in first(report).measured


class Ended(BaseException):
    """As libraries raise it that are not to be stopped from leaving."""


@pytest.mark.parametrize(
    ("at", "error"),
    [
        *((at, SystemExit(0)) for at in ("__call__", "generate", "train", "state_dict", "__deepcopy__")),
        *(("generate", error) for error in (KeyboardInterrupt(), GeneratorExit(), Ended())),
    ],
)
def test_nothing_that_a_model_raises_ends_the_examination(at, error):
    class Raising(Model):
        pass

    def raises(*given, **named):
        raise error

    setattr(Raising, at, raises)
    report = quickly(Raising(V, BLOCK), questions=len(QUICK))
    assert len(report.findings) == len(QUICK)
    assert not report.stopped
    assert not report
    assert type(error).__name__ in first(report).measured
    assert ("ends Python" in first(report).cause) == (at in ("__call__", "generate", "state_dict"))


def test_a_model_that_stops_the_examination_passes_nothing():
    def stops(ids):
        raise StoppedError

    report = quickly(Around(before=stops))
    assert report.stopped
    assert not report
    assert report.headline.startswith("nothing found; stopped before the end.")


@pytest.mark.parametrize("wait", [lambda: time.sleep(0.01), lambda: None], ids=["sleeping", "busy"])
def test_a_model_that_hangs_is_left_behind(monkeypatch, wait):
    monkeypatch.setattr(package, "PATIENCE", 0.5)

    def endless(ids):
        while True:
            wait()

    report = quickly(Around(before=endless))
    assert "No answer within" in first(report).measured
    assert "examination" not in [thread.name for thread in threading.enumerate()]


def test_a_model_that_needs_a_mask_is_told():
    class Masked(Around):
        def forward(self, ids, mask):
            return self.inside(ids)[0]

    said = first(quickly(Masked()))
    assert "missing 1 required positional argument: 'mask'" in said.measured
    assert "it also needs mask" in said.cause


def test_a_model_that_takes_ids_by_name_only_is_told():
    class Named(Around):
        def forward(self, *, input_ids):
            return self.inside(input_ids)[0]

    assert "by position" in first(quickly(Named())).cause


@pytest.mark.parametrize("called", [False, True])
def test_a_lazy_layer_has_to_be_called_once(called):
    model = nn.Sequential(nn.Embedding(V, 8), nn.LazyLinear(V))
    if called:
        model(torch.zeros(1, 1, dtype=torch.long))
    report = quickly(model)
    assert bool(report) == called
    assert ("Call it once first" in first(report).cause) == (not called)


def test_a_model_that_needs_targets_gets_them():
    class Needy(Around):
        def forward(self, ids, targets):
            return self.inside(ids, targets)

    report = quickly(Needy(), questions=len(QUICK))
    assert report, report


def test_what_is_kept_between_calls_is_found():
    class Counting(Around):
        calls = 0

        def forward(self, ids):
            self.calls += 1
            return self.inside(ids)[0] * self.calls

    finding = first(quickly(Counting()))
    assert finding.name == "In eval mode the same ids give the same logits"
    assert "remembers" in finding.cause


def test_what_the_first_text_decides_is_doubtful():
    class First(Around):
        first = None

        def forward(self, ids):
            logits = self.inside(ids)[0]
            self.first = logits.mean(dim=(0, 1)) if self.first is None else self.first
            return logits - self.first

    finding = findings.stateless.put_to(ModelVariants(WrappedModel(First(), V, BLOCK)), {})
    assert (finding.verdict, "first text" in finding.cause) == ("doubtful", True), finding


def test_a_model_that_seeds_the_generator_of_all_is_found():
    finding = first(quickly(Around(before=lambda ids: torch.manual_seed(0) and ids), questions=7))
    assert finding.name == "No text leaves a trace in the model"
    assert "manual_seed" in finding.cause


def test_a_function_is_examined_as_far_as_it_goes():
    model = Model(V, BLOCK)
    report = examine(lambda ids: model(ids)[0], vocab_size=V, block_size=BLOCK, train=False)
    assert report
    assert "callable without parameters" in report.remarks[0]


def copied_by(how):
    """Return a function that gives a module another way to be copied."""

    def give(module):
        module.__class__ = type("Given", (type(module),), {"__deepcopy__": lambda self, memo: how(self)})

    return give


@pytest.mark.parametrize(
    "give",
    [
        lambda model: setattr(model, "lock", threading.Lock()),
        lambda model: copied_by(lambda part: part)(model.layers[0]),
        copied_by(lambda model: model),
        copied_by(copy.copy),
    ],
    ids=["lock", "one part", "itself", "its parameters"],
)
def test_a_model_that_cannot_be_copied_is_not_trained(give):
    model = Model(V, BLOCK, dropout=0.2)
    give(model)
    model.train()
    before = copy.deepcopy(model.state_dict())
    report = examine(model, vocab_size=V, block_size=BLOCK)
    assert report, report
    assert "cannot be copied" in report.remarks[0]
    assert {f.name: f for f in report.findings}["It memorizes one batch"].verdict == "not asked"
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(module.training for module in model.modules())
    assert all(p.grad is None for p in model.parameters())


def test_a_hook_of_a_parameter_is_told():
    model = Model(V, BLOCK)
    list(model.parameters())[-1].register_hook(lambda grad: -grad)
    assert "hooks of parameters" in quickly(model).remarks[0]


def test_a_model_that_calls_another_object_is_not_called_wrong():
    class Bound(Model):
        def __init__(self):
            super().__init__(V, BLOCK)
            self.run = lambda ids: Model.forward(self, ids)[0]  # of a copy, this is still the original

        def forward(self, ids):
            return self.run(ids)

    report = examine(Bound(), vocab_size=V, block_size=BLOCK)
    assert report, report
    assert "another object" in report.remarks[0]
    core = {f.name: f.verdict for f in report.findings if f.name in [q.name for q in questions_of(findings)]}
    assert set(core.values()) == {"right"}, report


def test_the_model_and_the_random_numbers_stay_as_they_were():
    model = Model(V, BLOCK, dropout=0.2).train()
    before, torch_state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    examine(model, vocab_size=V, block_size=BLOCK, train=False)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert model.training
    assert torch.equal(torch_state, torch.get_rng_state())


CHANGES = [
    lambda: torch.set_default_dtype(torch.float64),
    lambda: torch.set_default_device("meta"),
    lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    lambda: torch.autograd.set_detect_anomaly(True),
    lambda: torch.use_deterministic_algorithms(True, warn_only=True),
    lambda: torch.set_float32_matmul_precision("medium"),
    lambda: sys.setrecursionlimit(300),
    lambda: os.chdir(os.sep),
    lambda: torch.set_grad_enabled(False),
    lambda: random.seed(5),
    lambda: np.random.seed(5),
]


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_model_changes_for_all_is_as_before_at_the_next_question(change):
    class Changing(Model):
        def generate(self, ids, max_new_tokens):
            written = super().generate(ids, max_new_tokens)
            change()
            return written

    def asked(kind):
        torch.manual_seed(0)
        wrapped, writes = WrappedModel(kind(V, BLOCK), V, BLOCK), QUICK[-2]
        return examine_here(wrapped, [writes, *QUICK[:8], by_heart]).findings

    before = state()
    assert repr(asked(Changing)) == repr(asked(Model))
    assert state() == before


def state():
    return [
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.get_num_threads(),
        torch.is_grad_enabled(),
        torch.is_anomaly_enabled(),
        torch.get_deterministic_debug_mode(),
        torch.get_float32_matmul_precision(),
        sys.getrecursionlimit(),
        os.getcwd(),
        random.getstate(),
        np.random.get_state()[1].tolist(),
    ]


@pytest.mark.parametrize(("V", "block_size"), [(2, 1), (2, 2), (5, 3), (3, 9)])
def test_the_smallest_models_are_examined(V, block_size):
    torch.manual_seed(0)
    report = examine(Model(V, block_size), vocab_size=V, block_size=block_size, train=False)
    assert report, report


def test_stopping_keeps_what_was_found(listening):
    def stops(ids):
        if threading.active_count() and next(calls) == 4:
            signal.raise_signal(signal.SIGINT)
        return ids

    calls = iter(range(10**6))
    report = quickly(Around(before=stops), questions=12)
    assert report.stopped
    assert 0 < len(report.findings) < 12
    assert "stopped" in report.headline
