"""Record the numbers that heroes draw: `python tools/record_heroes.py NAME` rewrites the data of a hero."""

import base64
import itertools
import json
import math
import re
import sys
from dataclasses import replace
from itertools import pairwise
from statistics import fmean
from typing import Any

import cells
import torch
from torch import Tensor, nn

from attention_course import heroes
from attention_course.answering import ask
from attention_course.attention import CrossAttentionHead, MultiHeadAttention, window_mask
from attention_course.examine import examine
from attention_course.examine.wrapped_model import WrappedModel
from attention_course.gpt import GPT, MLP, GPTConfig, generate, initialize
from attention_course.heads import HEAD_TARGETS, head_scores, read_weights
from attention_course.ladder import STAIRCASE
from attention_course.rungs.a_real_model import explorer_own_attention as own_attention
from attention_course.rungs.after_pretraining import explorer as rewarding
from attention_course.rungs.speed_run import explorer_recipes as recipes
from attention_course.smollm import load_smollm
from attention_course.speedrun import TRICKS, speedrun
from attention_course.stories import answer_accuracy, answers, read_story, stories_entropy
from attention_course.text import Corpus, conditional_entropy, load_text
from attention_course.training import RECIPES, Recipe, Trainer, evaluate, train

MOMENTS = (0, 2, 5, 10, 15, *range(20, 60, 10), 65, 80, *range(100, 220, 20), 225, 250, 275, 300, 350, 450)
SENTENCE = "The little dog ran home. Then the little dog"  # for the heads of the real model
WRITTEN = 6  # tokens that SmolLM2 writes with each attention
SWAPPED = [
    "right",
    "no mask",
    "no scale",
    "sees one token ahead",
    "mask after the softmax",
    "softmax over the queries",
    "heads merged without transpose",
]
HEAD_SIZES = [2**n for n in range(9)]
DATES = [
    "14 march 1879",
    "7 july 1066",
    "20 july 1969",
    "24 december 2024",
    "1 may 1000",
    "30 september 1998",
]
STEPS = {  # of the staircase that opens each rung: a model, its rung, and what it is called there
    "bigram": ("bag_of_words", "letter pairs"),
    "mean of the past": ("bag_of_words", "mean of the past"),
    "fading weights": ("tril_matmul", "fading weights"),
    "learned scores": ("masked_softmax", "learned scores"),
    "position": ("query_key_value", "one head"),
    "four heads": ("multi_head", "four heads"),
    "feed-forward": ("bigram_to_gpt", "feed-forward"),
    "residual": ("bigram_to_gpt", "residual"),
    "LayerNorm": ("bigram_to_gpt", "LayerNorm"),
    "second layer": ("bigram_to_gpt", "second layer"),
}
LINES = ("embedding", "logits", "attention", "mask", "position", "residual", "feed-forward", "norm")
FINDINGS = (
    "It answers ids with logits",
    "The past is used",
    "No leak from the future",
    "The order of tokens matters",
    "A token's own output depends most on itself",
)


def significant(value: float) -> float:
    return float(f"{value:.4g}")


def write(model: torch.nn.Module, data: Corpus, characters: int, after: str = "\n") -> str:
    """Let a model write after a line's end or another text, with the same random numbers each time."""
    prompt = data.tokenizer.encode(after)[None]
    ids = generate(model, prompt, characters, generator=torch.Generator().manual_seed(1))
    return data.tokenizer.decode(ids[0, len(after) :])


def is_story(line: str) -> bool:
    """Return whether a line is a story without a mistake, its answers included."""
    try:
        return bool(read_story(line))
    except ValueError:
        return False


def floors() -> dict[str, float]:
    """Return the loss without knowledge, of the best tables of 1 to 3 characters, and the entropy."""
    text = load_text("stories")
    data = Corpus.of(text)
    tables = {f"{n}-gram": conditional_entropy(data.val, n) for n in (1, 2, 3)}
    known = {"nothing": math.log(data.tokenizer.vocab_size), **tables, "grammar": stories_entropy(text)}
    return {name: significant(loss) for name, loss in known.items()}


def ladder() -> dict[str, object]:
    """Train the GPT as its rung does; keep its loss, and what it writes, at some moments."""
    data = Corpus.of(load_text("stories"))
    torch.manual_seed(0)
    gpt = GPT(GPTConfig(data.tokenizer.vocab_size, block_size=128, n_layer=2, n_head=4, n_embd=64))
    recipe = Recipe(steps=MOMENTS[-1], batch_size=24, learning_rate=1e-2, evaluate_every=100)
    moments = []

    def keep(trainer: Trainer) -> None:
        if trainer.steps_done in MOMENTS:
            text = write(gpt, data, 240)
            loss = significant(evaluate(gpt, data.val))
            told = sum(map(is_story, text.split("\n")))
            moments.append({"step": trainer.steps_done, "loss": loss, "text": text, "told": told})

    keep(Trainer(gpt, data, recipe))
    train(gpt, data, recipe, callback=keep)
    return {
        "rungs": [],  # `hero` puts them in
        "floors": floors(),
        "words": sorted(set(re.findall("[A-Za-z]+", load_text("stories")))),
        "moments": moments,
    }


def measured(name: str, model: nn.Module, rung: dict[str, Any], prompt: str) -> dict[str, object]:
    """Measure a model of the stories, and let it go on after the prompt."""
    return {
        "name": name,
        "loss": significant(evaluate(model, rung["val_ids"])),
        "accuracy": significant(answer_accuracy(model, rung["val_text"], rung["tokenizer"])),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "line": write(model, rung["data"], 80, after=prompt).partition("\n")[0],
    }


def bigram_to_gpt() -> dict[str, object]:
    """Build the models of the rung and train them as it does; ask them the first new question."""
    rung, recipe = cells.run("bigram_to_gpt", "parts"), RECIPES["stories"]  # longer than the rung's own
    for name in rung["ladder"]:
        rung["climb"](name, replace(recipe, learning_rate=0.1) if name == "bigram" else recipe)
    prompt = rung["val_text"][: answers(rung["val_text"])[0][0]]
    parts = [measured(name, model, rung, prompt) for name, model in rung["models"].items()]
    return {"floors": floors(), "prompt": prompt, "parts": parts}


class Weights(nn.Module):
    """Mix the values of the past by weights that depend on the distance only: softmax of their scores."""

    def __init__(self, scores: Tensor, n_embd: int):
        super().__init__()
        self.scores = scores
        self.value = nn.Linear(n_embd, n_embd, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        T = x.shape[-2]
        distance = torch.arange(T)[:, None] - torch.arange(T)
        scores = self.scores[distance.clamp(min=0)].masked_fill(distance < 0, -math.inf)
        return scores.softmax(dim=-1) @ self.value(x)


def staircase() -> dict[str, object]:
    """Take models of the rung of the GPT, and train the two that it does not have; see `STEPS`."""
    rung = cells.run("bigram_to_gpt", "parts")
    block_size, n_embd = rung["block_size"], rung["n_embd"]
    halving = -math.log(2) * torch.arange(block_size)  # softmax of it halves the weight with each step back
    new = {"fading weights": halving, "learned scores": nn.Parameter(torch.zeros(block_size))}
    hero = json.loads(heroes.HEROES["bigram_to_gpt"].read_text(encoding="utf-8"))["data"]
    steps = {part["name"]: part for part in hero["parts"]}
    for name, scores in new.items():
        model = rung["fresh"](lambda scores=scores: rung["Model"](Weights(scores, n_embd)))
        train(model, rung["data"], RECIPES["stories"])
        steps[name] = measured(name, model, rung, hero["prompt"])
    kept = ("loss", "accuracy", "line")
    return {
        "prompt": hero["prompt"],
        "floor": hero["floors"]["grammar"],
        "steps": [
            {"rung": stem, "name": words} | {key: steps[name][key] for key in kept}
            for name, (stem, words) in STEPS.items()
        ],
    }


def scaling_variance() -> dict:
    """Scores of 20,000 random q and k, and of one query with 8 keys, for head sizes from 1 to 256.

    The query is the most typical of 1,000: the largest weight of its row strays least from the median of all
    rows, over all head sizes.
    """
    torch.manual_seed(0)
    q, k = torch.randn(2, 20_000, HEAD_SIZES[-1])
    queries, keys = torch.randn(1000, 1, HEAD_SIZES[-1]), torch.randn(1000, 8, HEAD_SIZES[-1])
    counts, rows = [], []
    for d in HEAD_SIZES:
        in_deviations = (q[:, :d] * k[:, :d]).sum(dim=-1) / d**0.5
        counts.append(torch.histc(in_deviations, 33, -4.125, 4.125).int().tolist())
        rows.append((queries[..., :d] * keys[..., :d]).sum(dim=-1))
    rows = torch.stack(rows, dim=1)  # (1000, 9, 8)
    largest = torch.softmax(rows, dim=-1).amax(dim=-1)
    typical = (largest - largest.median(dim=0).values).abs().amax(dim=1).argmin()
    scores = [[round(score, 3) for score in row] for row in rows[typical].tolist()]
    return {"head_sizes": HEAD_SIZES, "pairs": len(q), "bin": 0.25, "counts": counts, "scores": scores}


def encoder_decoder(short: bool = False) -> dict[str, Any]:
    """Train the encoder-decoder of the rung, or only begin; return all that its cells define."""
    below = {"CrossAttentionHead": CrossAttentionHead, "window_mask": window_mask}
    parts = "imports", "dates", "model", "shift_by_one", "training"
    return cells.run("cross_and_causal", *parts, short=short, **below)


def in_bytes(parameter: Tensor) -> dict[str, object]:
    """Round a parameter to integers from -127 to 127, times a scale."""
    scale = float(f"{parameter.abs().max().item() / 127:.4g}")
    integers = (parameter / scale).round().clamp(-127, 127).char()
    text = base64.b64encode(integers.numpy().tobytes()).decode()
    return {"rows": len(parameter), "scale": scale, "integers": text}


def cross_and_causal() -> dict[str, object]:
    """Train the encoder-decoder as its rung does, and keep its parameters."""
    rung = encoder_decoder()
    return {
        "characters": "".join(rung["characters"]),
        "months": rung["MONTHS"],
        "dates": DATES,
        "parameters": {
            f"{part}.{name}": in_bytes(parameter)
            for part in ("encoder", "decoder")
            for name, parameter in rung[part].state_dict().items()
        },
    }


def in_percent(shares: torch.Tensor) -> str:
    """Numbers from 0 to 1, a byte each."""
    return base64.b64encode(bytes((100 * shares).round().int().flatten().tolist())).decode()


def a_real_model() -> dict[str, object]:
    """Take what was recorded of attentions in SmolLM2, for one prompt and one head; the right one first."""
    prompt, head = "the capital", "16.0, the token before"
    stored, chosen = own_attention.measured(), list(own_attention.HEADS).index(head)
    at = list(own_attention.PROMPTS).index(prompt)
    return {
        "tokens": stored["tokens"][at],
        "head": head.partition(",")[0],
        "guess": stored["guess"],
        "attentions": [
            {
                "name": name,
                "says": own_attention.SAYS[name],
                "code": own_attention.changes(name),
                "loss": stored["own"][name]["loss"],
                "written": stored["own"][name]["written"][at][:WRITTEN],
                "weights": in_percent(own_attention.maps_of(name, prompt)[chosen]),
            }
            for name in SWAPPED
        ],
    }


def looking_inside() -> dict:
    """What each head of SmolLM2 reads in a sentence, and its scores there; keys up to the query."""
    model, tokenizer = load_smollm()
    ids = tokenizer.encode(SENTENCE)
    weights = read_weights(model, ids)  # (30, 9, T, T)
    query, key = torch.tril_indices(len(ids), len(ids))
    jobs = {}
    for name in ("previous token", "first token", "induction"):
        targets = HEAD_TARGETS[name](ids)
        jobs[name] = {
            "targets": [row.nonzero().flatten().tolist() for row in targets],
            "scores": in_percent(head_scores(weights, targets)),
        }
    return {
        "tokens": [tokenizer.decode(token[None]) for token in ids],
        "shape": list(weights.shape[:2]),
        "jobs": jobs,
        "weights": in_percent(weights[:, :, query, key]),
    }


class Page(nn.Module):
    """A GPT of one block, of those of LINES that stand on the page."""

    def __init__(self, lines: set[str], vocab_size: int = 29, block_size: int = 16, n_embd: int = 64):
        super().__init__()
        self.lines = lines
        self.wte = nn.Embedding(vocab_size, n_embd)
        self.wpe = nn.Embedding(block_size, n_embd)
        self.attn, self.mlp = MultiHeadAttention(n_embd, 4), MLP(n_embd)
        norm = nn.LayerNorm if "norm" in lines else nn.Identity
        self.ln_1, self.ln_2, self.ln_f = norm(n_embd), norm(n_embd), norm(n_embd)
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
        initialize(self, std=0.02, n_layer=1)

    def forward(self, ids: Tensor) -> Tensor:
        """Map ids (B, T) to logits (B, T, V) if all lines are there."""
        x = self.wte(ids) if "embedding" in self.lines else ids
        if "position" in self.lines:
            x = x + self.wpe(torch.arange(ids.shape[1]))
        kept = x if "residual" in self.lines else 0
        if "attention" in self.lines:
            x = kept + self.attn(self.ln_1(x), is_causal="mask" in self.lines)
        kept = x if "residual" in self.lines else 0
        if "feed-forward" in self.lines:
            x = kept + self.mlp(self.ln_2(x))
        return self.lm_head(self.ln_f(x)) if "logits" in self.lines else x


def strengths(model: nn.Module, T: int = 8) -> str:
    """How much outputs (rows) change with tokens (columns), a digit each: 9 is most, 0 not at all."""
    wrapped = WrappedModel(model, 29, 16)
    moves = (wrapped.effects(wrapped.draw(1, T, seed), by=seed + 1)[0] for seed in range(16))
    changes = sum(moves, torch.zeros(T, T))
    digits = (9 * changes / changes.max()).ceil().clamp(max=9) * wrapped.influence(T)
    return "".join(str(int(digit)) for digit in digits.flatten())


def page(lines: set[str]) -> str:
    """Return the verdict of each of FINDINGS, a letter each, and `strengths` if there are vectors."""
    torch.manual_seed(0)
    model = Page(lines)
    report = {each.name: each for each in examine(model, vocab_size=29, block_size=16, train=False).findings}
    verdicts = ("follows" if report[name].follows_from else report[name].verdict for name in FINDINGS)
    return "".join(verdict[0] for verdict in verdicts) + (strengths(model) if "embedding" in lines else "")


def an_empty_page() -> dict[str, object]:
    """Examine a GPT of each set of lines; a page is named by a 1 for each line on it, and a 0."""
    choices = itertools.product("01", repeat=len(LINES))
    pages = {
        "".join(there): {line for line, on in zip(LINES, there, strict=True) if on == "1"}
        for there in choices
    }
    return {
        "lines": LINES,
        "findings": FINDINGS,
        "pages": {there: page(lines) for there, lines in pages.items()},
    }


def first_words(name: str, run: dict[str, Any], data: Corpus) -> list[dict[str, object]]:
    """Train as in a race of recipes.json, up to the mark; return what the model writes every few steps."""
    recipe, every = recipes.measured()["recipes"][name], recipes.measured()["every"]
    settings = {key: recipe[key] for key in ("learning_rate", "steps")}
    trainer, texts = speedrun(data, recipe["tricks"], **settings, seed=run["seed"]), []
    turns = [0.0, *run["seconds"].tolist()]
    for turn, (before, after) in enumerate(pairwise(turns)):
        for share in (0.0, 0.4, 0.8):
            while trainer.steps_done < every * (turn + share):
                trainer.step()
            seconds = before + share * (after - before)
            text = write(trainer.model, data, 70).replace("\n", "↵")
            texts.append({"seconds": significant(seconds), "text": text})
    return [each for each in texts if each["seconds"] <= run["mark"]]


def speed_run() -> dict[str, object]:
    """Take the races that have one trick more each, up to the mark; let the first and the last one write."""
    data = Corpus.of(load_text("stories"))
    runners, above = [], None
    names = ["baseline", *[f"+ {trick}" for trick in TRICKS]]
    for name, trick in zip(names, [None, *TRICKS], strict=True):
        run = recipes.run_of(name)
        seconds, accuracies = [0.0, *run["seconds"].tolist()], [0.0, *run["accuracy"].tolist()]
        if run["mark"] < math.inf:
            seconds[-1], accuracies[-1] = run["mark"], recipes.TARGET_ACCURACY
        runners.append(
            {
                "trick": trick.replace("_", " ") if trick else "",
                "why": TRICKS.get(trick, "Two layers, AdamW, and the package's full recipe of 1,200 steps."),
                "seconds": list(map(significant, seconds)),
                "accuracies": list(map(significant, accuracies)),
                "differs": bool(above is not None and recipes.p_value(run["marks"], above) < recipes.LEVEL),
            }
        )
        above = run["marks"]
    return {
        "machine": recipes.measured()["machine"],
        "seeds": len(above),
        "mark": recipes.TARGET_ACCURACY,
        "runners": runners,
        "texts": [first_words(name, recipes.run_of(name), data) for name in (names[0], names[-1])],
    }


def after_pretraining() -> dict[str, object]:
    """Take what was recorded of the first base model: before and after fine-tuning, and rewarded for names.

    How many answers are right was counted on held-out questions. The reward is that of the answers sampled in
    training, in the first step, where the model is still as it was, and in the last five.
    """
    seeds = rewarding.measured()["seeds"]
    base, run = (seeds[0]["rewarded"][name] for name in ("base, right", "names_somebody, 0.0"))
    every = len(rewarding.HELD_OUT)

    def moment(steps: int, answers: list[str], scores: dict[str, float], rewards: list[float]):
        counted = {"steps": steps, "answers": answers, "right": round(every * scores["greedy"])}
        return {**counted, "reward": significant(fmean(rewards)) if rewards else None}

    return {
        "asked": [
            {"fact": each.story.fact, "question": ask(each.key), "answer": each.answer}
            for each in rewarding.SHOWN
        ],
        "models": len(seeds),
        "questions": every,
        "moments": [
            moment(0, base["answers"][0], base["before"], []),
            moment(rewarding.TUNED, run["answers"][0], run["before"], run["reward"][:1]),
            moment(rewarding.STEPS, run["answers"][-1], run["after"], run["reward"][-rewarding.EVERY :]),
        ],
    }


RECORDED = {
    record.__name__: record
    for record in (
        ladder,
        scaling_variance,
        cross_and_causal,
        bigram_to_gpt,
        staircase,
        a_real_model,
        looking_inside,
        an_empty_page,
        speed_run,
        after_pretraining,
    )
}

if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = STAIRCASE if name == "staircase" else heroes.HEROES[name]
        entry = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        entry["data"] = RECORDED[name]()
        path.write_text(json.dumps(entry, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
