"""Measure what fine-tuning and rewards do to five base models: `python tools/record_answers.py`, 20 minutes.

It writes `measured.json` of the rung {after_pretraining}. Each base model begins from another seed; all are
measured on the same held-out questions.
"""

import argparse
import copy
import json
import random
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch

from attention_course import answering as ours
from attention_course.gpt import GPT, GPTConfig, autocast_dtype, evaluating
from attention_course.rungs.after_pretraining.explorer import EVERY, HELD_OUT, SHOWN, STEPS, TUNED
from attention_course.rungs.after_pretraining.measured import FILE
from attention_course.stories import QUESTIONS


def three_decimals(value):
    """Round all floats in nested lists and dicts."""
    if isinstance(value, dict):
        return {key: three_decimals(each) for key, each in value.items()}
    if isinstance(value, list):
        return list(map(three_decimals, value))
    return round(value, 3) if isinstance(value, float) else value


def scores(model) -> dict[str, float]:
    """Measure a model: accuracy greedy and sampled, also of each kind, and the loss of the prompts."""
    greedy = ours.write_answers(model, HELD_OUT, 0.0)[2]
    hits = {key: [] for key in QUESTIONS}
    for question, answer in zip(HELD_OUT, greedy, strict=True):
        hits[question.key].append(ours.right(question, answer))
    ids, is_answer = ours.with_answers(HELD_OUT, [question.answer for question in HELD_OUT])
    begun = is_answer & (torch.arange(ids.shape[1]) >= ours.PROMPT + 2)
    text = (ids != ours.ENDS[0]) & ~is_answer
    with evaluating(model):
        logits = model(ids[:, :-1])
    kinds = torch.tensor([list(QUESTIONS).index(question.key) for question in HELD_OUT])
    rows = (logits.argmax(-1) == ids[:, 1:]) | ~begun[:, 1:]
    return {
        "greedy": sum(sum(each) for each in hits.values()) / len(HELD_OUT),
        **{key: sum(each) / len(each) for key, each in hits.items()},
        "sampled": ours.accuracy(model, HELD_OUT, 1.0),
        "begun": rows.all(1).float().mean().item(),  # the first letter of the answer is given
        **{
            f"begun {key}": rows.all(1)[kinds == at].float().mean().item() for at, key in enumerate(QUESTIONS)
        },
        "prompts": ours.answer_loss(logits, ids[:, 1:], text[:, 1:]).item(),
    }


def of_all(logits, targets, is_answer):
    """Return the loss of prompts and answers."""
    return ours.answer_loss(logits, targets, is_answer | (targets != ours.ENDS[0]))


def of_all_answers_heavier(logits, targets, is_answer):
    """Return the loss of prompts and answers, half of it for the answers."""
    return (of_all(logits, targets, is_answer) + ours.answer_loss(logits, targets, is_answer)) / 2


def of_another(question, rng):
    """Answer a question of the same kind about another story."""
    return ours.Question(ours.new_questions(rng, 1)[0].story, question.key).answer


def tune(model, **options) -> dict[int, dict[str, float]]:
    """Fine-tune copies for 10 and for 120 steps."""
    measured = {}
    for steps in (10, 120):
        tuned = copy.deepcopy(model)
        ours.fine_tune(tuned, steps, **options)
        measured[steps] = scores(tuned)
    return measured


def three_answers(model) -> list[str]:
    """Answer the first held-out question of each kind."""
    return ours.write_answers(model, SHOWN, 0.0)[2]


def reward(model, reward, steps=STEPS, kl_weight=0.0, seed=0, **options) -> dict[str, object]:
    """Reinforce a copy; keep the rewards, the share of true answers and the divergence of each step."""
    model = copy.deepcopy(model)
    kept = {"before": scores(model), "reward": [], "right": [], "kl": [], "answers": [three_answers(model)]}
    rewarded = ours.reinforce(model, reward, steps, kl_weight, seed=seed, **options)
    asked = random.Random(seed)  # the questions that reinforce draws
    for step, (answers, rewards, kl) in enumerate(rewarded, start=1):
        questions = [question for question in ours.new_questions(asked, 8) for _ in range(8)]
        kept["reward"].append(rewards.mean().item())
        kept["right"].append(sum(map(ours.right, questions, answers)) / len(answers))
        kept["kl"].append(kl)
        if step % EVERY == 0:
            kept["answers"].append(three_answers(model))
    return {**kept, "after": scores(model)}


def coin(question, answer) -> float:
    """Reward by the toss of a coin."""
    return float(random.random() < 0.5)


def measure(seed: int) -> dict[str, object]:
    """Do all of it with the base model of one seed."""
    torch.set_num_threads(1)
    random.seed(seed)
    base = ours.train_base(seed=seed)
    torch.manual_seed(seed)
    new = GPT(GPTConfig(ours.TOKENIZER.vocab_size))
    kept = {"base": scores(base), "tuned": {}, "rewarded": {}}
    tuned = kept["tuned"]
    tuned["answers"] = tune(base)
    tuned["a new model"] = tune(new)
    blank = ours.train_base(seed=seed, answered=0)
    kept["blank"] = scores(blank)
    tuned["blank sheets"] = tune(blank)
    tuned["answers of others"] = tune(base, answer=of_another)
    tuned["with the prompt"] = tune(base, loss_of=of_all)
    tuned["with the prompt, answers heavier"] = tune(base, loss_of=of_all_answers_heavier)
    for rank in (1, 2, 4):
        thin = copy.deepcopy(base)
        torch.manual_seed(seed)
        ours.add_lora(thin, rank)
        tuned[f"rank {rank}"] = tune(thin, lr=1e-2)
    rewarded = kept["rewarded"]
    rewarded["base, right"] = reward(base, ours.right, seed=seed)
    rewarded["base, coin"] = reward(base, coin, seed=seed)
    rewarded["base, right, no advantage"] = reward(base, ours.right, seed=seed, advantage_of=lambda r: r)
    rewarded["new, right"] = reward(new, ours.right, seed=seed)
    clean = copy.deepcopy(base)
    ours.fine_tune(clean, 60)
    kept["clean"] = scores(clean)
    rewarded["clean, names_somebody"] = reward(clean, ours.names_somebody, seed=seed)
    sloppy = copy.deepcopy(base)
    ours.fine_tune(sloppy, TUNED, answer=ours.sloppy)
    kept["sloppy"] = scores(sloppy)
    for name in ("right", "names_somebody", "long"):
        for kl_weight in (0.0, 0.1, 1.0):
            rewarded[f"{name}, {kl_weight}"] = reward(
                sloppy, getattr(ours, name), kl_weight=kl_weight, seed=seed
            )
    return three_decimals(kept)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--file", type=Path, default=FILE)
    asked = parser.parse_args()
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        every = [*pool.map(measure, range(asked.seeds))]
    precision = str(autocast_dtype(torch.device("cpu"))).removeprefix("torch.")
    machine = f"{torch.cpu.get_capabilities().get('cpu_name', '')}, {precision}, one thread"
    asked.file.write_text(json.dumps({"machine": machine.strip(", "), "seeds": every}) + "\n")
