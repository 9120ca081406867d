"""A bug in how a model begins and what it gives to training is found by a question of `beginning`."""

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from examine.bugs import named
from examine.right import Changed, Experts, Recurrent, theirs
from torch.utils.checkpoint import checkpoint

from attention_course.examine import beginning, findings, using, writing
from attention_course.examine.one_file import Layer, Model
from attention_course.examine.planted import BUGS, plant
from attention_course.examine.question import Candidate, questions_of
from attention_course.examine.subject import Subject
from attention_course.gpt import GPT, GPTConfig


@pytest.mark.parametrize("name", ["a head thrown away", "loss summed", "embeddings too large"])
def test_a_bug_is_found_first_by_its_finding(name):
    finding = BUGS[name].finding
    assert finding in {question.name for question in questions_of(beginning)}
    assert named(name)[:1] == [finding]


def test_generate_is_called_by_position():
    class Named(Model):
        def generate(self, prompt, n):
            return super().generate(prompt, n)

    for question in (writing.generates, writing.writes_predictions):
        finding = question.put_to(Candidate(Subject(Named(), 29, 24)), {})
        assert finding.verdict == "right", finding


def asked(question, model):
    return question.put_to(Candidate(Subject(model, 29, 24)), {})


def test_a_memory_that_fades_is_told_from_attention_that_is_too_sure():
    faded = asked(beginning.even_attention, Recurrent())
    assert (faded.verdict, "fades" in faded.measured) == ("not asked", True)
    for seed in range(3):
        torch.manual_seed(seed)
        assert asked(beginning.even_attention, plant("no scale")).verdict == "doubtful"


class OtherCache(Model):
    """Right models with a cache of their own, or with another meaning of the word."""

    def __init__(self, use):
        super().__init__()
        self.use = use

    def forward(self, ids, cache=None):
        self.use(cache)
        return super().forward(ids)[0]


def flag(cache):
    return "kept" if cache else "not kept"


def keep_in(cache):
    cache.seen = 1


@pytest.mark.parametrize("use", [lambda cache: cache[0], lambda cache: cache.append(0), flag, keep_in])
def test_a_cache_of_another_kind_is_not_asked_for(use):
    def unless_none(cache):
        return None if cache is None else use(cache)

    finding = asked(using.cached, OtherCache(unless_none))
    assert finding.verdict == "not asked", finding
    assert "another kind" in finding.measured


def test_an_argument_y_that_is_no_targets_is_not_asked_for():
    class Labelled(Model):
        def forward(self, ids, y=None):
            assert y is None or y.shape == ids.shape[:1]
            return super().forward(ids)[0]

    assert asked(beginning.own_loss, Labelled()).verdict == "not asked"


def test_an_error_of_generate_is_doubtful():
    class Shouting(Model):
        def generate(self, text, max_new_tokens):
            return text.upper()

    for question in (writing.generates, writing.writes_predictions):
        finding = asked(question, Shouting())
        assert finding.verdict == "doubtful"
        assert "AttributeError: 'Tensor' object has no attribute 'upper'" in finding.measured
        assert finding.expected


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


@pytest.mark.parametrize("draw", [random.random, np.random.rand])
def test_random_numbers_of_others_than_torch_are_no_leak(draw):
    class LayerDrop(Model):
        def forward(self, ids, targets=None):
            logits, loss = super().forward(ids, targets)
            return logits * (1 + (self.training and draw() < 0.5)), loss

    for question in questions_of(findings):
        assert asked(question, LayerDrop()).verdict != "wrong", question.name


class Writer(Model):
    def write(self, ids, many):
        return super().generate(ids, many)


class TotalLength(Writer):
    def generate(self, ids, max_length):
        assert max_length > ids.shape[1]
        return self.write(ids, max_length - ids.shape[1])


class CalledLength(Writer):
    def generate(self, ids, length):
        return self.write(ids, length)


class FirstForever(Writer):
    def generate(self, ids, max_length):
        return torch.cat([ids, ids[:, :1].repeat(1, max_length - ids.shape[1])], dim=1)


@pytest.mark.parametrize("kind", [TotalLength, CalledLength])
def test_a_length_may_count_the_ids_that_are_given(kind):
    for question in (writing.generates, writing.writes_predictions):
        assert asked(question, kind()).verdict == "right"
    assert asked(writing.writes_predictions, FirstForever()).verdict == "wrong"


def test_a_generate_may_return_the_new_ids_alone():
    class NewAlone(Model):
        def generate(self, ids, max_new_tokens):
            return super().generate(ids, max_new_tokens)[:, ids.shape[1] :]

    assert asked(writing.generates, NewAlone()).verdict == "right"


@pytest.mark.parametrize("name", ["GPT2", "OPT"])
def test_that_transformers_reads_all_ids_to_write_more_is_no_doubt(name):
    finding = asked(writing.generates, theirs(name))
    assert (finding.verdict, finding.measured[:32]) == ("not asked", "The generate of transformers rea")


def test_a_generate_that_reads_more_than_its_block_is_doubted():
    class Uncropped(Model):
        def generate(self, ids, max_new_tokens):
            for _ in range(max_new_tokens):
                ids = torch.cat([ids, self(ids)[0][:, -1:].argmax(dim=-1)], dim=1)
            return ids

    assert asked(writing.generates, Uncropped()).verdict in ("doubtful", "wrong")


@pytest.mark.parametrize(("V", "T", "width"), [(29, 24, 32), (200, 64, 64)])
def test_a_generate_that_reads_the_first_tokens_of_a_long_text_is_found(V, T, width):
    class First(Model):
        def generate(self, ids, max_new_tokens):
            for _ in range(max_new_tokens):
                logits, _ = self(ids[:, : self.block_size])
                ids = torch.cat([ids, logits[:, -1].softmax(dim=-1).multinomial(1)], dim=1)
            return ids

    torch.manual_seed(0)
    candidate = Candidate(Subject(First(V, T, width), V, T))
    finding = writing.generates.put_to(candidate, {})
    assert finding.verdict == "wrong"
    assert "ids[:, :block_size]" in finding.cause


def test_a_generate_that_writes_into_its_prompt_is_found():
    class Overwriting(Model):
        def generate(self, ids, max_new_tokens):
            written = super().generate(ids, max_new_tokens)
            ids[:, 0] = 0
            return written

    finding = asked(writing.generates, Overwriting())
    assert finding.verdict == "wrong"
    assert "writes into the ids" in finding.cause


def test_a_generate_that_draws_once_and_repeats_it_is_found():
    class Once(Model):
        def generate(self, ids, max_new_tokens):
            drawn = super().generate(ids, 1)[:, -1:]
            return torch.cat([ids, drawn.expand(-1, max_new_tokens)], dim=1)

    finding = asked(writing.writes_predictions, Once())
    assert finding.verdict == "wrong"
    assert "repeats the token" in finding.cause


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


def test_a_term_that_is_added_to_the_loss_is_doubtful():
    class Added(Model):
        def forward(self, ids, targets=None):
            logits, loss = super().forward(ids, targets)
            return logits, None if loss is None else loss + 1e-4 * logits.logsumexp(dim=-1).square().mean()

    finding = asked(beginning.own_loss, Added())
    assert finding.verdict == "doubtful", finding
    assert "z-loss" in finding.cause


def test_a_cache_that_is_wrong_in_a_long_text_is_found():
    class Late(GPT):
        def forward(self, ids, cache=None):
            late = cache is not None and len(cache) > 16
            return super().forward(ids, cache) * (2 if late else 1)

    finding = asked(using.cached, Late(GPTConfig(29, 24, n_embd=32)))
    assert finding.verdict == "wrong"
    assert "right in a short text" in finding.cause


def test_gradients_pass_reentrant_checkpoints():
    class Checkpointed(Model):
        def forward(self, ids, targets=None):
            x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
            for layer in self.layers:
                x = checkpoint(layer, x, use_reentrant=True)
            return self.head(self.norm(x)), None

    candidate = Candidate(Subject(Checkpointed(), 29, 24))
    assert candidate.is_copy
    for question in (beginning.gradients, beginning.gradient_sizes):
        finding = question.put_to(candidate, {})
        assert finding.verdict == "right", finding


@pytest.mark.parametrize(("detached", "verdict"), [(False, "right"), (True, "doubtful")])
def test_a_tied_head_that_is_detached_is_doubtful(detached, verdict):
    class Tied(Model):
        def forward(self, ids, targets=None):
            x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
            for layer in self.layers:
                x = layer(x)
            table = self.tokens.weight.detach() if detached else self.tokens.weight
            return self.norm(x) @ table.T, None

    model = Tied()
    del model.head
    assert asked(beginning.gradients, model).verdict == verdict


def test_embeddings_that_are_not_trained_are_doubtful():
    model = Model()
    model.tokens.requires_grad_(False)
    finding = asked(beginning.gradients, model)
    assert finding.verdict == "doubtful", finding
    assert "not trained: tokens.weight." in finding.measured


def test_an_expert_that_was_not_chosen_is_told_from_a_layer_that_is_left_out():
    class NeverTheFirst(Experts):
        def __init__(self, like):
            super().__init__(like, many=64)
            self.router.register_forward_hook(lambda *given: given[-1].index_fill(-1, torch.tensor(0), -1e9))

    class LeftOut(Layer):
        def forward(self, x):
            return x

    torch.manual_seed(0)
    model = Changed(NeverTheFirst)
    assert asked(beginning.gradients, model).verdict == "doubtful"
    model.layers.append(LeftOut(32, 4, 24, 0.0, "learned", True))
    model.layers[-1].up = NeverTheFirst(model.layers[-1].up)
    assert asked(beginning.gradients, model).verdict == "wrong"
