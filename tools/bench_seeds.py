"""How many answers the GPT of rung 8 finds, from eight beginnings: `make bench-seeds`."""

from dataclasses import replace

import torch

from attention_course.gpt import GPT, GPTConfig
from attention_course.stories import answer_accuracy, write_stories
from attention_course.text import Corpus
from attention_course.training import MODEL_CONFIGS, RECIPES, train

SEEDS = range(8)
STEPS = 400


def main() -> None:
    """Print the share of right answers on text that it has not seen."""
    data = Corpus.of(write_stories())
    text = data.tokenizer.decode(data.val)[:9000]
    for seed in SEEDS:
        torch.manual_seed(seed)
        model = GPT(GPTConfig(data.tokenizer.vocab_size, **MODEL_CONFIGS["stories"]))
        train(model, data, replace(RECIPES["stories"], steps=STEPS, precision="float32", seed=seed))
        share = answer_accuracy(model, text, data.tokenizer)
        print(f"seed {seed}, {STEPS} steps: {share:.0%} of the answers are right", flush=True)


if __name__ == "__main__":
    main()
