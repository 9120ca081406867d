"""What a training tells: the floors of tables, and the entropy."""

import pytest
import torch
from examine.right import BLOCK, V, ours
from torch import nn

from attention_course.examine import QUESTIONS, examine_here, learning
from attention_course.examine.learning import TrainedVariants, floors
from attention_course.examine.one_file import Model
from attention_course.examine.planted import plant
from attention_course.examine.question import TEXTS, ModelVariants
from attention_course.examine.wrapped_model import WrappedModel
from attention_course.gpt import GPT, BigramLanguageModel, GPTConfig

pytestmark = pytest.mark.usefixtures("shapes_unchecked")


ANSWERS = QUESTIONS[0].name
LEARNED = "It learns more of stories than tables do"
ENTROPY = "No loss is below the entropy"


def trained(model, monkeypatch, steps=300, seconds=60.0):
    """Ask what takes a training on stories, a short one."""
    monkeypatch.setattr(learning, "STORY_STEPS", steps)
    monkeypatch.setattr(learning, "SECONDS", seconds)
    wanted = [ANSWERS, *TEXTS[LEARNED]["explained_by"], LEARNED, ENTROPY]
    questions = [question for question in QUESTIONS if question.name in wanted]
    report = examine_here(WrappedModel(model, 65, 32), questions)
    return {finding.name: finding for finding in report.findings}


def turned(model):
    """Return the model with a complex factor on each logit: training has to take complex parameters."""
    model.turn = nn.Parameter(torch.ones(65, dtype=torch.cfloat))
    model.register_forward_hook(lambda module, ids, output: (output[0] * module.turn).real)
    return model


@pytest.mark.slow
def test_a_gpt_beats_tables_and_not_the_entropy(monkeypatch):
    torch.manual_seed(0)
    found = trained(GPT(GPTConfig(vocab_size=65, block_size=32, n_embd=64)), monkeypatch)
    assert found[LEARNED].verdict == found[ENTROPY].verdict == "right", found
    assert len(found[LEARNED].panel.levels) == 4


@pytest.mark.slow
def test_a_bigram_model_does_not_beat_tables(monkeypatch):
    found = trained(BigramLanguageModel(65), monkeypatch)
    assert found[LEARNED].verdict == "wrong"
    assert found[LEARNED].follows_from == "The past is used"


@pytest.mark.slow
def test_a_leak_goes_below_the_entropy(monkeypatch):
    torch.manual_seed(0)
    leaky = plant("mask off by one", vocab_size=65, block_size=32, width=64)
    found = trained(leaky, monkeypatch)
    assert found[ENTROPY].verdict == "wrong"
    assert found[ENTROPY].follows_from == "No leak from the future"


@pytest.mark.parametrize("made", [lambda: ours(vocab_size=65, block_size=32), lambda: turned(Model(65, 32))])
def test_a_training_ends_when_its_time_is_up(monkeypatch, made):
    found = trained(made(), monkeypatch, seconds=0.0)
    assert found[LEARNED].verdict == "doubtful"
    assert "Stopped after 1 of 300 steps" in found[LEARNED].measured


@pytest.mark.parametrize(
    ("factor", "words"), [(1.5, "last few characters say and nothing more"), (2.5, "not even what the last")]
)
def test_a_loss_far_above_that_of_tables_is_told_from_one_near_it(monkeypatch, factor, words):
    variants = TrainedVariants(WrappedModel(ours(vocab_size=65, block_size=32), 65, 32))
    monkeypatch.setattr(learning, "SECONDS", 0.0)
    variants.loss = factor * floors()["3-grams"]
    assert words in learning.beats_tables.put_to(variants, {}).cause


def test_a_training_that_diverges_is_a_finding(monkeypatch):
    class Diverging(nn.Module):
        def __init__(self):
            super().__init__()
            self.inside = Model(65, 32)

        def forward(self, ids):
            logits, _ = self.inside(ids)
            return logits * (torch.nan if self.training else 1)

    found = trained(Diverging(), monkeypatch)
    assert "training has diverged" in found[LEARNED].measured


def test_a_vocabulary_too_small_for_stories_is_not_asked(monkeypatch):
    report = examine_here(WrappedModel(ours(), V, BLOCK), list(QUESTIONS))
    assert report
    assert {f.name: f for f in report.findings}[
        LEARNED
    ].measured == "vocab_size is 29; the stories have 33 characters."


def test_the_floors_fall():
    assert list(floors().values()) == sorted(floors().values(), reverse=True)


def test_a_model_with_sparse_gradients_is_trained():
    model = Model()
    model.tokens = nn.Embedding(29, 32, sparse=True)
    finding = learning.by_heart.put_to(ModelVariants(WrappedModel(model, 29, 24)), {})
    assert finding.verdict == "right", finding
    assert model.tokens.sparse


def test_two_tokens_of_context_need_not_memorize_a_batch():
    class Trigram(nn.Module):
        def __init__(self):
            super().__init__()
            self.before, self.last = nn.Embedding(V, V), nn.Embedding(V, V)

        def forward(self, ids):
            return self.last(ids) + self.before(ids).roll(1, dims=1).index_fill(1, torch.tensor([0]), 0.0)

    finding = learning.by_heart.put_to(ModelVariants(WrappedModel(Trigram(), V, BLOCK)), {})
    assert finding.verdict == "doubtful", finding
    assert "two tokens" in finding.cause
