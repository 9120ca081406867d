"""Loss against training time, compared with nanoGPT's recipe for a CPU: `make bench-training`.

Both train a model of the same size on the same text, on the CPU, in one process. They alternate, half a
percent of their steps at a time, so that other load affects both. nanoGPT's recipe is the one in its readme
for Tiny Shakespeare on a CPU (github.com/karpathy/nanoGPT, "I only have a macbook"): `train.py` with
block_size 64, batch_size 12, 4 layers, 4 heads, n_embd 128, 2000 steps, no dropout, in float32. Time counts
training steps only; losses are measured in float32, on the whole validation text.
"""

import argparse
from dataclasses import replace
from itertools import pairwise

import torch

from attention_course.gpt import GPT, GPTConfig, initialize
from attention_course.text import Data, load_text
from attention_course.training import RECIPES, SIZES, Recipe, Trainer, evaluate, parameter_groups

ROUNDS = 20  # number of evaluations
TURNS = 10  # per round
MARK = 1.886  # the final loss of nanoGPT's recipe on Tiny Shakespeare when we measured it
NANO_GPT = Recipe(
    steps=2000,
    batch_size=12,
    learning_rate=1e-3,
    final_learning_rate=1e-4,
    warmup=100,
    weight_decay=0.1,
    beta2=0.99,
    clip=1.0,
    precision="float32",
    evaluate_every=10**9,
)


def nano_gpt(data, recipe):
    """Return a trainer with nanoGPT's initialization, and its AdamW, which is not fused on a CPU."""
    model = ours(data)
    initialize(model, 0.02, model.config.n_layer)
    groups = parameter_groups(model, recipe.weight_decay)
    optimizer = torch.optim.AdamW(groups, betas=(0.9, recipe.beta2), fused=False)
    return Trainer(model, data, recipe, optimizer)


def ours(data):
    torch.manual_seed(1337)
    return GPT(GPTConfig(vocab_size=data.tokenizer.vocab_size, **SIZES["shakespeare"]))


def trainers(data, steps):
    """Return both trainers by name, with the same seed."""
    quick = replace(RECIPES["shakespeare"], evaluate_every=10**9)
    return {
        "nanoGPT": nano_gpt(data, replace(NANO_GPT, steps=steps or NANO_GPT.steps)),
        "ours": Trainer(ours(data), data, replace(quick, steps=steps or quick.steps)),
    }


def seconds_until(mark, curve):
    """Return when the loss first reached `mark`, by linear interpolation between measurements."""
    for (_, before, high), (_, after, low) in pairwise(curve):
        if low <= mark < high:
            return before + (after - before) * (high - mark) / (high - low)
    return None


def main():
    parser = argparse.ArgumentParser(description="Train beside nanoGPT's recipe; print loss against seconds.")
    parser.add_argument(
        "--text", default="tiny-shakespeare", help="stories, tiny-shakespeare, or a UTF-8 file"
    )
    parser.add_argument("--steps", type=int, help="for both; the recipes' own if left out")
    options = parser.parse_args()
    torch.set_num_threads(min(torch.get_num_threads(), 8))
    data = Data.of(load_text(options.text))
    both = trainers(data, options.steps)
    curves = {name: [] for name in both}  # of steps, seconds and loss
    print("validation loss after steps and seconds of training\n")
    print("".join(f"{name:>8}{'steps':>7}{'seconds':>9}{'loss':>8}" for name in both))
    for turn in range(1, ROUNDS * TURNS + 1):
        for trainer in both.values():
            while trainer.steps_done < trainer.recipe.steps * turn // (ROUNDS * TURNS):
                trainer.step()
        if turn % TURNS == 0:
            for name, trainer in both.items():
                loss = evaluate(trainer.model, data.val, "float32")
                curves[name].append((trainer.steps_done, trainer.seconds, loss))
                print(f"{trainer.steps_done:15}{trainer.seconds:9.1f}{loss:8.3f}", end="", flush=True)
            print()
    print(
        f"\n{'':8}{'steps/s':>9}{'tokens/s':>10}{'seconds':>9}{'loss':>8}   {torch.get_num_threads()} threads"
    )
    for name, trainer in both.items():
        rate = trainer.steps_done / trainer.seconds
        tokens = rate * trainer.recipe.batch_size * trainer.model.block_size
        print(f"{name:8}{rate:9.1f}{tokens:10.0f}{trainer.seconds:9.1f}{curves[name][-1][2]:8.3f}")
    theirs, ours = both["nanoGPT"].seconds, curves["ours"]
    reached = seconds_until(MARK, ours)
    share = f"after {reached / theirs:.2f} of its time" if reached else "never"
    print(f"\nours reaches {MARK} {share} (goal: 0.33)")
    in_time = min((loss for _, seconds, loss in ours if seconds <= theirs), default=float("nan"))
    print(f"ours reaches {in_time:.3f} within its time (goal: below 1.78), and ends at {ours[-1][2]:.3f}")


if __name__ == "__main__":
    main()
