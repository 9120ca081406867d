"""Seconds to nanoGPT's loss, without tricks and with all: `make bench-speedrun`.

All train on Tiny Shakespeare, in one process, and take turns, a hundredth of their steps at a time, so that
other load affects all. Time counts training steps only. Losses are measured in float32 on the whole
validation text, the same way for all. The mark is the loss with which nanoGPT's settings end in this run.

Those are the ones in its readme for a CPU (github.com/karpathy/nanoGPT, "I only have a macbook"): `train.py`
with block_size 64, batch_size 12, 4 layers, 4 heads, n_embd 128, 2000 steps, no dropout, in float32. They are
meant for comfort, not for speed. Here they run in our trainer, with PyTorch's fused AdamW. The model without
tricks has the same sizes and the same optimizer. Ours are in bfloat16 where that is faster. Learning rate and
steps of both, and the sizes of the one with all tricks, were chosen on the last tenth of the training text,
after training on the rest: `--held-out` trains and measures so.
"""

import argparse
import platform
from dataclasses import replace
from itertools import pairwise

import torch

from attention_course.gpt import GPT, GPTConfig, autocast_dtype, initialize
from attention_course.speedrun import TRICKS, speedrun
from attention_course.text import Corpus, load_text
from attention_course.training import MODEL_CONFIGS, Recipe, Trainer, evaluate, parameter_groups

TURNS, EVERY = 100, 5
PLAIN = dict(steps=600, learning_rate=2.5e-3)  # without tricks
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
)


def nano_gpt(data, seed, device):
    """Return a trainer with nanoGPT's settings and initialization."""
    torch.manual_seed(1337 + seed)
    model = GPT(GPTConfig(data.tokenizer.vocab_size, **MODEL_CONFIGS["shakespeare"]))
    initialize(model, 0.02, model.config.n_layer)
    groups = parameter_groups(model.to(device), NANO_GPT.weight_decay)
    optimizer = torch.optim.AdamW(groups, betas=(0.9, NANO_GPT.beta2), fused=True)
    return Trainer(model, data, replace(NANO_GPT, seed=seed), optimizer)


def machine(device):
    """Say what measured: processor, instructions, threads and version; or the GPU."""
    if device != "cpu":
        return f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}"
    able, instructions = torch.cpu.get_capabilities(), torch.backends.cpu.get_cpu_capability()
    if autocast_dtype(torch.device(device)) == torch.bfloat16:
        instructions += " with AMX" if able.get("amx_bf16") else " with bfloat16"
    name, threads = able.get("cpu_name") or platform.machine(), torch.get_num_threads()
    return f"{name}, {instructions}, {threads} thread{'s'[: threads > 1]}, PyTorch {torch.__version__}"


def loss_of(trainer):
    """Return the loss on the whole validation text, in float32."""
    return evaluate(trainer.model, trainer.data.val, "float32")


def take_turns(rows):
    """Train all, and return the curve of each in its second half: seconds and loss."""
    curves = {name: [] for name in rows}
    for trainer in rows.values():
        trainer.recipe = replace(trainer.recipe, evaluate_every=10**9)
    for turn in range(1, TURNS + 1):
        for name, trainer in rows.items():
            while trainer.steps_done < trainer.recipe.steps * turn // TURNS:
                trainer.step()
            if turn == TURNS or (name != "nanoGPT" and turn >= TURNS // 2 and turn % EVERY == 0):
                curves[name].append((trainer.seconds, loss_of(trainer)))
    return curves


def seconds_until(mark, curve):
    """Return when a curve first fell to `mark`, by linear interpolation between measurements."""
    for (before, high), (after, low) in pairwise(curve):
        if low <= mark < high:
            return before + (after - before) * (high - mark) / (high - low)
    return None


def bench(data, seed, device):
    """Print a row for each recipe; return how many times as fast as nanoGPT's settings each was."""
    common = dict(text="shakespeare", seed=seed, device=device)
    rows = {
        "nanoGPT": nano_gpt(data, seed, device),
        "no tricks": speedrun(data, [], **PLAIN, **common),
        "all tricks": speedrun(data, TRICKS, **common),
    }
    curves = take_turns(rows)
    whole, mark = curves["nanoGPT"][-1]
    print(f"\n{f'seed {seed}':14}{'steps':>7}{'ms a step':>11}{'end':>7}{'seconds to mark':>17}{'times':>7}")
    times = {}
    for name, trainer in rows.items():
        reached = whole if name == "nanoGPT" else seconds_until(mark, curves[name])
        ms = 1000 * trainer.seconds / trainer.steps_done
        print(f"{name:14}{trainer.steps_done:7}{ms:11.1f}{curves[name][-1][1]:7.3f}", end="")
        print(f"{reached:17.2f}{whole / reached:7.1f}" if reached else f"{'never':>17}", flush=True)
        times[name] = whole / reached if reached else 0.0
    return times


def long_run(data, seconds, seed, device):
    """Train by the recipe for minutes, with as many steps as fit into `seconds`; print the loss."""
    recipe = dict(text="shakespeare-long", seed=seed, device=device)
    trial = speedrun(data, **recipe)
    while trial.steps_done < TURNS:
        trial.step()
    trainer = speedrun(data, **recipe, steps=int(seconds * TURNS / trial.seconds))
    trainer.recipe = replace(trainer.recipe, evaluate_every=10**9)
    while not trainer.done:
        trainer.step()
    loss, steps = loss_of(trainer), trainer.steps_done
    print(f"seed {seed}: {loss:.3f} after {steps} steps and {trainer.seconds:.0f} seconds", flush=True)


def main():
    parser = argparse.ArgumentParser(description="Seconds to nanoGPT's loss, without tricks and with all.")
    parser.add_argument("--seeds", type=int, default=1, help="how many; five decide")
    parser.add_argument("--seconds", type=int, help="train for so long instead, and say how far it gets")
    parser.add_argument("--held-out", action="store_true", help="leave the validation text alone")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    torch.set_num_threads(min(torch.get_num_threads(), 8))
    data = Corpus.of(load_text("tiny-shakespeare"))
    if options.held_out:
        last = len(data.train) // 10
        data = replace(data, train=data.train[:-last], val=data.train[-last:])
    data = replace(data, train=data.train.to(options.device), val=data.val.to(options.device))
    print(machine(options.device))
    if options.seconds:
        for seed in range(options.seeds):
            long_run(data, options.seconds, seed, options.device)
        return
    print("to the loss that nanoGPT's settings end with")
    times = [bench(data, seed, options.device) for seed in range(options.seeds)]
    for name in ("no tricks", "all tricks"):
        each = [run[name] for run in times]
        print(f"{name}: {min(each):.1f} to {max(each):.1f} times as fast, {len(each)} seeds")


if __name__ == "__main__":
    main()
