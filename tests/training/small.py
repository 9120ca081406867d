"""A small model, a short text and a quick recipe for the tests of training."""

import io
import random
import signal
from dataclasses import replace

import torch

from attention_course.attention import MultiHeadAttention
from attention_course.gpt import GPT, GPTConfig
from attention_course.stories import write_stories
from attention_course.text import Corpus
from attention_course.training import Recipe, run

TEXT = write_stories(seed=3, characters=4000)
DATA = Corpus.of(TEXT)
RECIPE = Recipe(steps=10, batch_size=4, learning_rate=1e-2, warmup=3, evaluate_every=4, precision="float32")


def tiny(seed=0, **changes):
    torch.manual_seed(seed)
    sizes = {"vocab_size": DATA.tokenizer.vocab_size, "block_size": 7, "n_layer": 1, "n_head": 2, "n_embd": 6}
    return GPT(GPTConfig(**sizes | changes))


def equal(model, other):
    ours, theirs = model.state_dict(), other.state_dict()
    return all(torch.equal(ours[name], theirs[name]) for name in ours)


def without_clock(history):
    return replace(history, val_seconds=[0.0 for _ in history.val_seconds])


def markov_text(length):
    """A text in which each character depends on the one before it, and on nothing else."""
    rng = random.Random(0)
    follow = {"a": "aaab", "b": "ccca", "c": "abcd", "d": "dddb"}
    characters = ["a"]
    while len(characters) < length:
        characters.append(rng.choice(follow[characters[-1]]))
    return "".join(characters)


def finish(trainer):
    """Take all steps that are left; return the history."""
    return run(trainer, callback=lambda t: None)


def press(*given):
    signal.raise_signal(signal.SIGINT)


def packed(state):
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


class Unmasked(MultiHeadAttention):
    """Has the parameters of the default part, and computes something else."""

    def forward(self, x, mask=None, is_causal=False):
        return super().forward(x)
