"""Seconds to one loss, trick by trick, beside nanoGPT's recipe for a CPU: `make bench-speedrun`.

All train in one process and take turns, a hundredth of their steps at a time, so that other load affects all.
Time counts training steps only. Losses are measured in float32 on the whole validation text, the same way for
all. The mark is the loss with which nanoGPT's recipe ends in this run. That recipe is the one in its readme
for Tiny Shakespeare on a CPU (github.com/karpathy/nanoGPT, "I only have a macbook"): `train.py` with
block_size 64, batch_size 12, 4 layers, 4 heads, n_embd 128, 2000 steps, no dropout, in float32. Ours are in
bfloat16 where that is faster. On the stories nanoGPT has no recipe, the mark is an answer accuracy of 0.95.

Each row adds a trick to the one above; when it passed the mark is read off its curve. The recipe with all
tricks, and its steps, were chosen on the last tenth of the training text, after training on the rest, and on
stories of another seed: no validation text decided them. The steps of the rows between are not tuned.
"""

import argparse
import platform
from dataclasses import replace
from itertools import pairwise

import torch

from attention_course.gpt import GPT, GPTConfig, autocast_dtype, initialize
from attention_course.speedrun import TRICKS, speedrun
from attention_course.stories import answer_accuracy
from attention_course.text import Data, load_text
from attention_course.training import SIZES, Recipe, Trainer, evaluate, parameter_groups

TURNS, EVERY = 100, 10
STEPS = {  # of rung 8, and of each trick added to it
    "shakespeare": (700, 600, 450, 250, 150, 290),
    "stories": (900, 900, 900, 600, 600, 600),
}
ACCURACY = 0.95
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
    """Return a trainer with nanoGPT's initialization, and its AdamW, which is not fused on a CPU."""
    torch.manual_seed(1337 + seed)
    model = GPT(GPTConfig(data.tokenizer.vocab_size, **SIZES["shakespeare"]))
    initialize(model, 0.02, model.config.n_layer)
    groups = parameter_groups(model.to(device), NANO_GPT.weight_decay)
    optimizer = torch.optim.AdamW(groups, betas=(0.9, NANO_GPT.beta2), fused=device != "cpu")
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


def ladder(data, text, seed, device):
    """Return trainers by name: nanoGPT's recipe, rung 8's, and then one more trick in each."""
    rows = {"nanoGPT": nano_gpt(data, seed, device)} if text == "shakespeare" else {}
    for count, steps in enumerate(STEPS[text]):
        name = f"+ {list(TRICKS)[count - 1]}" if count else "rung 8"
        rows[name] = speedrun(data, list(TRICKS)[:count], text=text, steps=steps, seed=seed, device=device)
    return rows


def distance(trainer, text):
    """Return what has to fall: the loss, or the share of answers that are wrong."""
    if text == "shakespeare":
        return evaluate(trainer.model, trainer.data.val, "float32")
    tokenizer = trainer.data.tokenizer
    return 1 - answer_accuracy(trainer.model, tokenizer.decode(trainer.data.val), tokenizer, "float32")


def take_turns(rows, text):
    """Train all, and return the curve of each: steps, seconds and distance.

    On Shakespeare a measurement takes long and the mark is reached late: there it is the second half.
    """
    begin = TURNS // 2 if text == "shakespeare" else 0
    curves = {name: [] for name in rows}
    for trainer in rows.values():
        trainer.recipe = replace(trainer.recipe, evaluate_every=10**9)
    for turn in range(1, TURNS + 1):
        for name, trainer in rows.items():
            while trainer.steps_done < trainer.recipe.steps * turn // TURNS:
                trainer.step()
            if turn == TURNS or (name != "nanoGPT" and turn >= begin and turn % EVERY == 0):
                curves[name].append((trainer.steps_done, trainer.seconds, distance(trainer, text)))
    return curves


def seconds_until(mark, curve):
    """Return when a curve first fell to `mark`, by linear interpolation between measurements."""
    for (_, before, high), (_, after, low) in pairwise(curve):
        if low <= mark < high:
            return before + (after - before) * (high - mark) / (high - low)
    return None


def bench(data, text, seed, device, only_ends):
    """Print a row for each recipe; return the share of the first one's time that the last one takes."""
    rows = ladder(data, text, seed, device)
    if only_ends:
        rows = {name: rows[name] for name in (next(iter(rows)), [*rows][-1])}
    curves = take_turns(rows, text)
    first = next(iter(rows))
    mark = curves[first][-1][2] if text == "shakespeare" else 1 - ACCURACY
    print(f"\n{f'seed {seed}':14}{'steps':>7}{'ms a step':>11}{'end':>7}{'seconds to mark':>17}{'share':>7}")
    above, reached = None, {}
    for name, trainer in rows.items():
        end = curves[name][-1][2]
        reached[name] = trainer.seconds if name == "nanoGPT" else seconds_until(mark, curves[name])
        ms = 1000 * trainer.seconds / trainer.steps_done
        shown = end if text == "shakespeare" else 1 - end
        print(f"{name:14}{trainer.steps_done:7}{ms:11.1f}{shown:7.3f}", end="")
        print(f"{reached[name]:17.2f}" if reached[name] else f"{'never':>17}", end="")
        print(f"{reached[name] / above:7.2f}" if above and reached[name] else "", flush=True)
        above = reached[name] or above
    last = reached[[*rows][-1]]
    return last / reached[first] if last and reached[first] else None


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
    loss, steps = distance(trainer, "shakespeare"), trainer.steps_done
    print(f"seed {seed}: {loss:.3f} after {steps} steps and {trainer.seconds:.0f} seconds", flush=True)


def main():
    parser = argparse.ArgumentParser(description="Seconds to one loss, trick by trick.")
    parser.add_argument("--text", choices=STEPS, default="shakespeare")
    parser.add_argument("--seeds", type=int, default=1, help="repeat the first and the last row; five decide")
    parser.add_argument("--ends", action="store_true", help="the first and the last row only")
    parser.add_argument("--seconds", type=int, help="train for so long instead, and say how far it gets")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    torch.set_num_threads(min(torch.get_num_threads(), 8))
    data = Data.of(load_text({"shakespeare": "tiny-shakespeare"}.get(options.text, options.text)))
    data = replace(data, train=data.train.to(options.device), val=data.val.to(options.device))
    print(machine(options.device))
    if options.seconds:
        for seed in range(options.seeds):
            long_run(data, options.seconds, seed, options.device)
        return
    print(
        "to an answer accuracy of 0.95"
        if options.text == "stories"
        else "to the loss that nanoGPT's recipe ends with"
    )
    shares = [
        bench(data, options.text, seed, options.device, only_ends=options.ends or seed > 0)
        for seed in range(options.seeds)
    ]
    reached = [share for share in shares if share]
    if reached:
        print(
            f"\nthe last row takes 1/{1 / max(reached):.1f} to 1/{1 / min(reached):.1f} of the time "
            f"of the first, in {len(reached)} of {len(shares)} seeds"
        )


if __name__ == "__main__":
    main()
