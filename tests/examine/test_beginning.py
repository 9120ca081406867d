"""A bug in how a model begins and what it gives to training is found by a question of `beginning`."""

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from examine.right import Recurrent
from torch import nn

from attention_course.examine import beginning, findings
from attention_course.examine.one_file import Model
from attention_course.examine.planted import plant
from attention_course.examine.question import ModelVariants, questions_of
from attention_course.examine.wrapped_model import WrappedModel


def asked(question, model):
    return question.put_to(ModelVariants(WrappedModel(model, 29, 24)), {})


@pytest.mark.parametrize(("logit", "verdict"), [(2.0, "right"), (13.0, "doubtful"), (20.0, "wrong")])
def test_a_model_of_few_tokens_may_be_sure(logit, verdict):
    class Counts(nn.Module):
        def forward(self, ids):
            return logit * F.one_hot((ids + 1) % 12, 12).float()

    finding = beginning.first_loss.put_to(ModelVariants(WrappedModel(Counts(), 12, 16)), {})
    assert finding.verdict == verdict, finding


def test_a_memory_that_fades_is_told_from_attention_that_is_too_sure():
    faded = asked(beginning.even_attention, Recurrent())
    assert (faded.verdict, "fades" in faded.measured) == ("not asked", True)
    for seed in range(3):
        torch.manual_seed(seed)
        assert asked(beginning.even_attention, plant("no scale")).verdict == "doubtful"


def test_an_argument_y_that_is_no_targets_is_not_asked_for():
    class Labelled(Model):
        def forward(self, ids, y=None):
            assert y is None or y.shape == ids.shape[:1]
            return super().forward(ids)[0]

    class Ignoring(Model):
        def forward(self, ids, y=None):
            return super().forward(ids)[0]

    for model in (Labelled(), Ignoring()):
        assert asked(beginning.own_loss, model).verdict == "not asked"


def of_the_next(logits, targets):
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), targets[:, 1:].flatten())


def without_the_last(logits, targets):
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), targets[:, :-1].flatten())


def without_an_id(ignored):
    return lambda x, y: F.cross_entropy(x.flatten(0, 1), y.flatten(), ignore_index=ignored)


def a_little_larger(logits, targets):
    return 1.0001 * F.cross_entropy(logits.flatten(0, 1), targets.flatten())


@pytest.mark.parametrize(
    "loss", [of_the_next, without_the_last, *map(without_an_id, (0, 11, 28)), a_little_larger]
)
def test_a_wrong_loss_of_a_new_model_is_seen(loss):
    """All losses of a new model are near ln V: one whose parameters have moved is asked."""

    class AnotherLoss(Model):
        def forward(self, ids, targets=None):
            logits, _ = super().forward(ids)
            return logits, None if targets is None else loss(logits, targets)

    for seed in range(5):
        torch.manual_seed(seed)
        assert asked(beginning.own_loss, AnotherLoss()).verdict == "wrong"


def smoothed(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), label_smoothing=0.1)


class Smoothing(Model):
    """Its loss is of smoothed labels."""

    def forward(self, ids, targets=None):
        logits, _ = super().forward(ids)
        return logits, None if targets is None else smoothed(logits, targets)


class SmoothingShifted(Model):
    """It shifts the labels itself, too, as models of transformers do."""

    def forward(self, ids, labels=None):
        logits, _ = super().forward(ids)
        return logits, None if labels is None else smoothed(logits[:, :-1], labels[:, 1:])


@pytest.mark.parametrize("model", [Smoothing, SmoothingShifted])
def test_a_loss_of_smoothed_labels_is_right_and_is_named(model):
    finding = asked(beginning.own_loss, model())
    assert finding.verdict == "right", finding
    assert finding.measured.endswith("the cross-entropy with label_smoothing=0.1.")


def test_a_shifted_loss_that_is_rounded_is_not_said_not_to_shift():
    class Rounded(Model):
        def forward(self, ids, labels=None):
            logits, _ = super().forward(ids)
            loss = None if labels is None else smoothed(logits[:, :-1], labels[:, 1:]).bfloat16()
            return logits, loss

    for seed in range(4):  # in some the loss without the shift is as near
        torch.manual_seed(seed)
        finding = asked(beginning.own_loss, Rounded())
        assert finding.verdict == "right", finding


@pytest.mark.parametrize("draw", [random.random, np.random.rand])
def test_random_numbers_of_others_than_torch_are_no_leak(draw):
    class LayerDrop(Model):
        def forward(self, ids, targets=None):
            logits, loss = super().forward(ids, targets)
            return logits * (1 + (self.training and draw() < 0.5)), loss

    for question in questions_of(findings):
        assert asked(question, LayerDrop()).verdict != "wrong", question.name


@pytest.mark.parametrize("given", ["no_grad", "detach", "item"])
def test_a_loss_without_a_gradient_is_found(given):
    class Apart(Model):
        def forward(self, ids, targets=None):
            with torch.set_grad_enabled(given != "no_grad" or targets is None):
                logits, loss = super().forward(ids, targets)
            if loss is not None and given != "no_grad":
                loss = loss.detach() if given == "detach" else torch.tensor(loss.item())
            return logits, loss

    finding = asked(beginning.own_loss, Apart())
    assert finding.verdict == "wrong"
    assert finding.measured.endswith("It has no gradient.")


def test_a_loss_without_a_gradient_in_eval_mode_alone_is_right():
    class Evaluating(Model):
        def forward(self, ids, targets=None):
            logits, loss = super().forward(ids, targets)
            return logits, loss if self.training or loss is None else loss.detach()

    assert asked(beginning.own_loss, Evaluating()).verdict == "right"


@pytest.mark.parametrize("training", [True, False])
def test_a_gradient_that_is_cut_on_its_way_is_doubtful(training):
    class Cut(Model):
        def forward(self, ids, targets=None):
            logits, loss = super().forward(ids, targets)
            if loss is None or self.training < training:
                return logits, loss
            return logits, (loss + loss.detach()) / 2

    finding = asked(beginning.own_loss, Cut())
    assert finding.verdict == "doubtful", finding
    assert "its gradient is not that of the cross-entropy" in finding.measured


@pytest.mark.parametrize("weight", [1e-4, 0.1, -0.01])
def test_a_term_that_is_added_to_the_loss_is_doubtful(weight):
    class Added(Model):
        def forward(self, ids, targets=None):
            logits, loss = super().forward(ids, targets)
            return logits, None if loss is None else loss + weight * logits.logsumexp(dim=-1).square().mean()

    finding = asked(beginning.own_loss, Added())
    assert finding.verdict == "doubtful", finding
    assert "z-loss" in finding.cause
    assert f" {'more' if weight > 0 else 'less'} than the cross-entropy" in finding.measured


@pytest.mark.parametrize(
    ("reduced", "verdict", "says"),
    [
        (lambda loss: loss.mean().item(), "wrong", "no gradient"),
        (lambda loss: loss, "wrong", "loss of shape"),
        (lambda loss: loss.view(3, -1), "wrong", "loss of shape"),
        (lambda loss: None, "doubtful", "returns no loss"),
        (lambda loss: loss.mean().view(1), "right", "nats"),
    ],
)
def test_a_loss_that_cannot_be_trained_on_is_told(reduced, verdict, says):
    class Returns(Model):
        def forward(self, ids, targets=None):
            logits, _ = super().forward(ids)
            if targets is None:
                return logits, None
            return logits, reduced(F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none"))

    finding = asked(beginning.own_loss, Returns())
    assert (finding.verdict, says in finding.measured) == (verdict, True), finding


@pytest.mark.parametrize(("mean", "verdict"), [(None, "doubtful"), (-100, "right"), (-1, "right")])
def test_labels_that_do_not_count_have_no_part_in_the_mean(mean, verdict):
    class Labelled(Model):
        def forward(self, ids, labels=None):
            logits, _ = super().forward(ids)
            if labels is None:
                return logits, None
            logits, labels = logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
            if mean is None:
                return logits, F.cross_entropy(logits, labels, reduction="none").mean()
            return logits, F.cross_entropy(logits, labels, ignore_index=mean)  # -1: it refuses -100

    finding = asked(beginning.own_loss, Labelled())
    assert (finding.verdict, "-100" in finding.cause) == (verdict, mean is None), finding
