"""Fine-tuning on answers, LoRA, and learning from a reward."""

import copy
import random

import pytest
import torch
import torch.nn.functional as F
from torch.nn.utils.parametrize import remove_parametrizations

from attention_course import answering as ours
from attention_course.gpt import GPT, GPTConfig, evaluating
from attention_course.stories import QUESTIONS, read_story

EXAM = ours.new_questions(random.Random(0), 40, held_out=True)


def small() -> GPT:
    torch.manual_seed(0)
    return GPT(GPTConfig(ours.TOKENIZER.vocab_size, block_size=128, n_layer=1, n_head=2, n_embd=16))


def logits_of(model: GPT, ids: torch.Tensor) -> torch.Tensor:
    with evaluating(model):
        return model(ids)


def test_a_question_asks_for_what_its_story_says():
    for question in EXAM:
        line = question.story.text
        assert read_story(line) == question.story
        assert line.startswith(question.story.fact)
        assert ours.ask(question.key) + question.answer in line
        assert len(question.prompt) <= ours.PROMPT
        assert len(question.answer) < ours.ANSWER
        assert ours.right(question, question.answer) == 1 > ours.right(question, question.answer[:-1])
        assert ours.names_somebody(question, question.answer) == (question.key == "receiver")
    assert {question.key for question in EXAM} == set(QUESTIONS)


def test_what_is_held_out_is_in_no_sheet():
    rng = random.Random(1)
    facts = {ours.draw_sheet(rng).partition(".")[0] + "." for _ in range(5000)}
    held_out = {question.story.fact for question in ours.new_questions(rng, 500, held_out=True)}
    assert len(facts) > 1500
    assert len(held_out) > 300
    assert not facts & held_out


def test_four_sheets_of_ten_are_answered():
    rng = random.Random(0)
    sheets = [ours.draw_sheet(rng) for _ in range(1000)]
    answered = [sheet for sheet in sheets if "? A " in sheet]
    assert 350 < len(answered) < 450
    assert all(sheet.count("?") == 3 for sheet in sheets)
    assert ours.TOKENIZER.decode(ours.draw_block(rng)).startswith("\n")


def test_the_marked_letters_are_the_answers():
    ids, is_answer = ours.with_answers(EXAM, [question.answer for question in EXAM])
    for question, row, mask in zip(EXAM, ids, is_answer, strict=True):
        assert ours.TOKENIZER.decode(row[mask]) == question.answer
        assert ours.TOKENIZER.decode(row).strip("\n") == question.prompt + question.answer


def test_an_answer_ends_with_its_first_stop():
    ids, is_answer, answers = ours.write_answers(small(), EXAM, 1.0, torch.Generator().manual_seed(0))
    ends = ".?\n"
    assert any(len(answer) < ours.ANSWER for answer in answers)
    for row, mask, answer in zip(ids, is_answer, answers, strict=True):
        assert ours.TOKENIZER.decode(row[mask]) == answer
        assert not set(answer[:-1]) & set(ends)
        assert answer[-1] in ends or len(answer) == ours.ANSWER


def test_the_loss_is_that_of_the_answers_alone():
    ids, is_answer = ours.with_answers(EXAM, [question.answer for question in EXAM])
    logits = torch.randn(*ids.shape, ours.TOKENIZER.vocab_size)
    loss = ours.answer_loss(logits, ids, is_answer)
    torch.testing.assert_close(loss, F.cross_entropy(logits[is_answer], ids[is_answer]))
    logits[~is_answer] += torch.randn(ours.TOKENIZER.vocab_size)
    torch.testing.assert_close(loss, ours.answer_loss(logits, ids, is_answer), rtol=0, atol=0)


def test_lora_begins_as_the_model_and_trains_nothing_else():
    model = small()
    ids, _ = ours.with_answers(EXAM, [question.answer for question in EXAM])
    before, old = logits_of(model, ids), copy.deepcopy(model.state_dict())
    ours.add_lora(model, rank=2)
    torch.testing.assert_close(logits_of(model, ids), before)
    learns = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert len(learns) == 8
    assert all(name.endswith((".A", ".B")) for name in learns)
    ours.fine_tune(model, steps=2, lr=1e-2)
    after = logits_of(model, ids)
    assert not torch.allclose(after, before, atol=1e-3)
    for name, layer in model.named_modules():
        if isinstance(layer, torch.nn.Linear) and hasattr(layer, "parametrizations"):
            assert torch.equal(layer.parametrizations.weight.original, old[f"{name}.weight"])
            remove_parametrizations(layer, "weight")
    torch.testing.assert_close(logits_of(model, ids), after)  # merged


def test_advantages_compare_within_a_group():
    rewards = torch.tensor([[1.0, 0, 0, 0], [1, 1, 1, 1], [5, 6, 7, 8]])
    advantage = ours.group_advantage(rewards)
    torch.testing.assert_close(advantage.sum(dim=1), torch.zeros(3), atol=1e-6, rtol=0)
    assert torch.equal(advantage[1], torch.zeros(4))
    torch.testing.assert_close(advantage[[0, 2]].std(dim=1), torch.ones(2), atol=1e-3, rtol=0)
    torch.testing.assert_close(ours.group_advantage(10 * rewards + 3), advantage, atol=1e-3, rtol=0)


def test_a_step_makes_what_did_better_likelier():
    log_p = torch.full((2, 3), -1.0, requires_grad=True)
    written = torch.tensor([[True, True, False], [True, True, True]])
    ours.policy_loss(log_p, torch.tensor([[1.0], [-2.0]]), written).backward()
    assert torch.equal(log_p.grad.sign(), torch.tensor([[-1.0, -1, 0], [1, 1, 1]]))


def test_the_divergence_is_that_of_pytorch():
    logits, reference = torch.randn(2, 3, 4, 5)
    kl = ours.kl_per_token(logits, reference)
    ours_of = (
        torch.distributions.Categorical(logits=logits),
        torch.distributions.Categorical(logits=reference),
    )
    torch.testing.assert_close(kl, torch.distributions.kl_divergence(*ours_of))
    assert (ours.kl_per_token(logits, logits) == 0).all()


def letter_a(question, answer):
    return float("a" in answer)


def test_a_reward_for_one_letter_makes_that_letter_likelier_unless_a_leash_holds_it():
    free = [(rewards.mean(), kl) for _, rewards, kl in ours.reinforce(small(), letter_a, 15, lr=1e-2)]
    held = [kl for *_, kl in ours.reinforce(small(), letter_a, 15, kl_weight=3.0, lr=1e-2)]
    assert free[0][1] == pytest.approx(0, abs=1e-5)  # the model and its reference begin as one
    assert sum(mean for mean, _ in free[-5:]) > sum(mean for mean, _ in free[:5]) + 0.5
    assert sum(held[-5:]) < sum(kl for _, kl in free[-5:]) / 2


def test_equal_rewards_change_nothing():
    model = small()
    for _, rewards, _ in ours.reinforce(model, lambda question, answer: 1.0, 2):
        assert rewards.std() == 0
    assert all(torch.equal(*pair) for pair in zip(model.parameters(), small().parameters(), strict=True))
