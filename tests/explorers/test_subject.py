"""What explorers look at: a learner's model, tokenizer and text, or a GPT that has learnt nothing."""

import re
from html import escape
from inspect import signature

import pytest
import torch

from attention_course.explorers import EXPLORERS, explore, subject
from attention_course.stories import write_stories
from attention_course.text import CharTokenizer, Corpus
from attention_course.training import Recipe, train

TAKES = {name: list(signature(module.controls).parameters) for name, module in EXPLORERS.items()}
looking = pytest.mark.parametrize("name", [name for name, takes in TAKES.items() if takes])


def explorer_of(name, model, tokenizer, text="the cat"):
    return explore(name, model=model, tokenizer=tokenizer, **{TAKES[name][-1]: text})


def move(explorer):
    """Move each slider to an end where it is not, and back."""
    for slider in explorer.controls.values():
        if hasattr(slider, "min"):
            before = slider.value
            slider.value = slider.max if before == slider.min else slider.min
            slider.value = before


@looking
def test_without_a_subject_the_caption_says_that_nothing_was_learnt(name, model, tokenizer):
    assert "learnt nothing yet" in explore(name).figure.caption
    assert "learnt nothing yet" not in explorer_of(name, model, tokenizer).figure.caption


@pytest.mark.slow
def test_the_untrained_model_is_the_same_everywhere_and_disturbs_no_generator():
    before = torch.get_rng_state()
    for model in (subject.UNTRAINED, subject.UNTRAINED_LLAMA):
        again = subject._untrained(type(model), model.config)
        assert torch.equal(torch.get_rng_state(), before)
        for one, other in zip(again.parameters(), model.parameters(), strict=True):
            assert torch.equal(one, other)
    assert CharTokenizer(write_stories()) == subject.TOKENIZER


@looking
def test_the_static_page_of_a_learners_model_holds_no_measured_number(name, model, tokenizer):
    explorer = explorer_of(name, model, tokenizer)
    data = explorer._repr_mimebundle_()
    assert not re.search(r"\d", data["text/plain"])
    assert data["text/plain"] == repr(explorer)
    assert f'alt="{escape(explorer.figure.caption)}"' in data["text/html"]
    assert re.search(r"\d", explorer.figure.caption)


REFUSED = {
    r"logits for 12 tokens, but the tokenizer knows.*tokenizer=": {"tokenizer": subject.TOKENIZER},
    "The text, or prompt, is empty": {"text": ""},
    r"'z'.*is not one of the 12 characters": {"text": "zoo"},
    "model is a str, expected a module": {"model": "gpt"},
    "tokenizer is a str, expected a CharTokenizer": {"tokenizer": "the cat"},
    "The text is a Tensor, expected a str": {"text": torch.arange(3)},
}


@looking
@pytest.mark.parametrize("message", REFUSED)
def test_model_tokenizer_and_text_must_go_together(name, message, model, tokenizer, shapes_unchecked):
    with pytest.raises((TypeError, ValueError), match=message):
        explorer_of(name, **({"model": model, "tokenizer": tokenizer} | REFUSED[message]))


def logits(of):
    """Make a model of the logits that `of` makes from the tokenizer's number of characters and the ids."""

    class Model(torch.nn.Module):
        block_size = 16

        def forward(self, ids):
            return of(ids)

    return Model()


WRONG_LOGITS = {
    "are NaN or infinite, expected finite ones.*smaller learning rate": (
        lambda ids: torch.full((*ids.shape, 12), torch.nan),
        lambda ids: torch.full((*ids.shape, 12), -torch.inf),
        lambda ids: torch.ones(*ids.shape, 12).index_fill(2, torch.tensor(3), torch.inf),
        lambda ids: torch.ones(*ids.shape, 12).index_fill(1, torch.tensor(ids.shape[1] - 1), torch.nan),
    ),
    r"returns a tuple, expected logits of shape \(1, \d+, 'V'\)": (
        lambda ids: (torch.ones(*ids.shape, 12), 0.0),
    ),
    r"returns a tensor of shape \(1, 12\), expected": (lambda ids: torch.ones(len(ids), 12),),
    "without numbers, on the device meta": (lambda ids: torch.ones(*ids.shape, 12, device="meta"),),
}


@looking
@pytest.mark.parametrize("message", WRONG_LOGITS)
def test_logits_from_which_no_probabilities_follow_are_refused(name, message, tokenizer, shapes_unchecked):
    for of in WRONG_LOGITS[message]:
        with pytest.raises((TypeError, ValueError), match=message):
            explorer_of(name, logits(of), tokenizer)


def test_a_model_without_parameters_that_rules_a_character_out_may_be_looked_at(tokenizer):
    model = logits(lambda ids: torch.ones(*ids.shape, 12).index_fill(2, torch.tensor(3), -torch.inf))
    assert explorer_of("sampling", model, tokenizer).figure.panels[0].heights.max() == pytest.approx(1 / 11)


@looking
def test_a_model_that_diverges_later_is_refused_where_the_picture_was(name, model, tokenizer):
    explorer = explorer_of(name, model, tokenizer)
    with torch.no_grad():
        next(model.parameters()).fill_(torch.nan)
    move(explorer)
    assert "ValueError: GPT gives logits that are NaN or infinite" in explorer.figure.error


@looking
def test_looking_leaves_the_model_and_the_global_generator_as_they_were(name, model, tokenizer):
    before = torch.get_rng_state()
    explorer = explorer_of(name, model, tokenizer)
    move(explorer)
    assert explorer.figure.error == ""
    assert model.training
    assert torch.equal(torch.get_rng_state(), before)


@looking
def test_a_model_that_goes_on_learning_is_seen_as_it_is_now(name, model, tokenizer):
    """The step of a fused optimizer does not count the versions of parameters."""
    explorer = explorer_of(name, model, tokenizer)
    caption = explorer.figure.caption
    train(
        model, Corpus.of(20 * "the cat sat on the mat.\n"), Recipe(steps=3, batch_size=2, learning_rate=0.3)
    )
    move(explorer)
    assert explorer.figure.caption != caption


def test_a_change_of_one_head_of_a_large_model_makes_another_state():
    layer = torch.nn.Linear(576, 576)
    states = {subject.state_of(layer), subject.state_of(layer)}
    for head in range(9):
        layer.weight.data[:, 64 * head : 64 * (head + 1)] = 0  # which changes no version
        states.add(subject.state_of(layer))
    assert len(states) == 10
