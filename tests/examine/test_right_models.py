"""No false alarm: nothing is wrong with right models, ours and others'."""

import pytest
import torch
from examine.right import BLOCK, MODELS, V

from attention_course.examine import QUESTIONS, examine_here
from attention_course.examine.learning import by_heart
from attention_course.examine.wrapped_model import WrappedModel

DOUBTS = {
    "Mistral": {"The context is as long as it says"},  # a window: it cannot be told from a bug
    "Roberta": {"Gradients are of similar size"},
    "LSTM, four layers": {"A token's own output depends most on itself"},
    "convolution": {"The context is as long as it says"},
    "cache, token by token": {"With a cache the logits are the same"},
}


WRONG = {  # bugs of transformers 5.23
    # in float64, logits behind a padded text are NaN; in float32 they are right
    "Bloom in float64": {"Padding on the left changes nothing"},
    # generate counts positions from 0, forward() from padding_idx + 1
    "Roberta": {"It writes what it predicts"},
}


def examined(name):
    torch.manual_seed(0)
    questions = [question for question in QUESTIONS if not question.train or question is by_heart]
    return examine_here(WrappedModel(MODELS[name](), V, BLOCK), questions)


QUICK = {
    *("learned", "GPT", "nanoGPT's form", "small embeddings", "GPT in float64", "fast products", "LSTM"),
    *("complex parameters", "mixture of experts", "spectral norm", "counting in training"),
    *("padded with -inf", "cache, token by token"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in MODELS]
)
def test_nothing_is_wrong_with_a_right_model(name):
    report = examined(name)
    assert report.enough, report
    assert {f.name for f in report.findings if f.verdict == "wrong"} == WRONG.get(name, set()), report
    assert {f.name for f in report.findings if f.verdict == "doubtful"} == DOUBTS.get(name, set()), report
