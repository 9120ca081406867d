"""A question takes any answer, also an error, and knows what explains a wrong one."""

from dataclasses import replace

import pytest
import torch
from examine.right import BLOCK, V

from attention_course.examine import QUESTIONS
from attention_course.examine.one_file import Model
from attention_course.examine.planted import plant
from attention_course.examine.question import TEXTS, ModelVariants, Question, finding_if
from attention_course.examine.report import Finding
from attention_course.examine.wrapped_model import CannotAskError, WrappedModel

pytestmark = pytest.mark.usefixtures("shapes_unchecked")


@pytest.fixture
def variants():
    return ModelVariants(WrappedModel(Model(V, BLOCK), V, BLOCK))


def test_noise_that_lets_long_texts_overflow_is_left_out():
    class Decaying(Model):
        def __init__(self):
            super().__init__(V, 64)
            self.decay = torch.nn.Parameter(torch.tensor(0.95))

        def forward(self, ids, targets=None):
            logits, _ = super().forward(ids)
            ages = torch.arange(ids.shape[1]).float()
            return logits * (1e6 * (self.decay - 0.95)) ** (9 * ages[:, None]) + logits, None

    variants = ModelVariants(WrappedModel(Decaying(), V, 64))
    assert variants.with_noise.logits(variants.given.draw(1, 64)).isfinite().all()


def wrong(_):
    return finding_if(False, "measured", "expected", "cause")


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (CannotAskError("too small"), "not asked"),
        (RuntimeError("no"), "wrong"),
        (MemoryError("Unable to allocate 9 TiB"), "doubtful"),
        (torch.OutOfMemoryError("CUDA out of memory."), "doubtful"),
    ],
)
def test_an_error_is_an_answer(variants, error, verdict):
    def fails(_):
        raise error

    finding = Question("It answers", fails, 8).put_to(variants, {})
    assert (finding.name, finding.rung, finding.verdict) == ("It answers", 8, verdict)
    assert str(error) in finding.measured


def test_too_little_memory_is_no_fault_of_the_model(variants):
    finding = Question("It answers", lambda _: torch.empty(2**50), 8).put_to(variants, {})
    assert (finding.verdict, "smaller block_size" in finding.cause) == ("doubtful", True), finding


def test_the_model_is_not_accused_of_what_the_examiner_raises(variants):
    class Raises(Model):
        def forward(self, ids, targets=None):
            raise RuntimeError("no")

    ours = Question("It answers", len, 8).put_to(variants, {})  # a TypeError
    answers = Question("It answers", lambda variants: variants.given(variants.given.draw(1, 2)), 8)
    theirs = answers.put_to(ModelVariants(WrappedModel(Raises(V, BLOCK), V, BLOCK)), {})
    assert "the examiner itself" in ours.cause
    assert "The model raised" in theirs.cause


@pytest.mark.parametrize(("verdict", "follows"), [("wrong", "before"), ("right", None)])
def test_only_a_wrong_finding_explains_another(variants, verdict, follows):
    before = {"before": Finding("before", verdict, "", "", "", 1)}
    assert (
        Question("after", wrong, 2, explained_by=["before"]).put_to(variants, before).follows_from == follows
    )
    assert Question("after", wrong, 2, explained_by=["other"]).put_to(variants, before).follows_from is None


@pytest.mark.parametrize(
    ("name", "bug", "before", "follows"),
    [
        ("Every parameter gets a gradient", "layers in a plain list", "No leak from the future", False),
        ("Every parameter gets a gradient", "one layer, several times", "No leak from the future", False),
        ("Every parameter gets a gradient", "a head thrown away", "No leak from the future", True),
        (
            "The order of tokens matters",
            "no positions, one layer",
            "The texts of a batch do not affect each other",
            True,
        ),
    ],
)
def test_what_explains_a_bug_and_what_does_not(name, bug, before, follows):
    question = next(each for each in QUESTIONS if each.name == name)
    finding = question.put_to(
        ModelVariants(WrappedModel(plant(bug), V, BLOCK)), {before: Finding(before, "wrong", "")}
    )
    assert finding.verdict in ("wrong", "doubtful")
    assert finding.follows_from == (before if follows else None)


def test_a_question_that_makes_no_sense_any_more_says_what_to_mend_first():
    finding = Question("after", wrong, 2).skipped("before")
    assert (finding.verdict, finding.rung) == ("not asked", 2)
    assert "before" in finding.measured


def test_small_models_are_not_judged_by_means_of_random_texts():
    small = ModelVariants(WrappedModel(Model(V, 4), V, 4))
    finding = Question("even", wrong, least={"vocab_size": 8, "block_size": 16}).put_to(small, {})
    assert finding.verdict == "not asked"
    assert finding.measured == "block_size is 4, and it takes at least 16 to ask this."


def test_what_a_finding_does_not_say_its_question_says(variants):
    question = Question("name", wrong, 2, "usual", "usual", {"cause": "of several"})
    finding = question.put_to(variants, {})
    assert (finding.expected, finding.cause) == ("expected", "of several")
    finding = replace(question, ask=lambda _: finding_if(False, "measured")).put_to(variants, {})
    assert (finding.expected, finding.cause) == ("usual", "usual")


def test_the_texts_are_those_of_the_questions_in_their_order():
    assert [question.name for question in QUESTIONS] == list(TEXTS)
    assert {name for question in QUESTIONS for name in question.explained_by} <= set(TEXTS)
