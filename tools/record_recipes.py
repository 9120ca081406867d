"""Record the runs behind the explorer of rung 10: `python tools/record_recipes.py` rewrites recipes.json.

Every set of tricks trains on the stories, with SEEDS seeds: with Muon as many steps as the fast recipe,
without it as many as rung 8. Loss and accuracy are those of the first BLOCKS blocks and as many characters of
the validation text. A step is timed before, with nothing beside it: all sets take turns, so that other load
affects all, and the median counts. OMP_NUM_THREADS says on how many threads. The runs that follow share the
processors: half an hour.
"""

import json
import os
import statistics
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

from bench_speedrun import machine
from tqdm import tqdm

from attention_course import explorers
from attention_course.speedrun import FAST, TRICKS, speedrun
from attention_course.stories import answer_accuracy
from attention_course.text import Data, load_text
from attention_course.training import RECIPES, evaluate

FILE = Path(explorers.__file__).parent / "recipes.json"
EVERY, BLOCKS, TURNS, SEEDS = 25, 64, 7, 3


@cache
def stories():
    return Data.of(load_text("stories"))


def trainer_of(digits, seed=0):
    tricks = [name for name, digit in zip(TRICKS, digits, strict=True) if digit == "1"]
    steps = FAST["stories"][1]["steps"] if "muon" in tricks else RECIPES["stories"].steps
    trainer = speedrun(stories(), tricks, steps=steps, seed=seed)
    trainer.recipe = replace(trainer.recipe, evaluate_every=10**9)
    return trainer


def train(digits, seed):
    """Return losses and accuracies of one run, every EVERY steps."""
    trainer, losses, accuracies, tokenizer = trainer_of(digits, seed), [], [], stories().tokenizer
    ids = stories().val[: BLOCKS * trainer.block_size + 1]
    while not trainer.done:
        trainer.step()
        if trainer.steps_done % EVERY == 0:
            losses.append(round(evaluate(trainer.model, ids), 4))
            accuracies.append(round(answer_accuracy(trainer.model, tokenizer.decode(ids), tokenizer), 3))
    return losses, accuracies


def milliseconds(names):
    """Return the median milliseconds of a step for each set of tricks; all take turns."""
    trainers, taken = {name: trainer_of(name) for name in names}, {name: [] for name in names}
    for _ in range(TURNS + 1):
        for name, trainer in trainers.items():
            before = trainer.seconds
            trainer.step()
            taken[name].append(1000 * (trainer.seconds - before))
    return {name: round(statistics.median(times[1:]), 2) for name, times in taken.items()}


def main():
    names = ["".join(digits) for digits in product("01", repeat=len(TRICKS))]
    ms = milliseconds(names)
    pairs = list(product(names, range(SEEDS)))
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        results = tqdm(pool.map(train, *zip(*pairs, strict=True)), total=len(pairs))
        trained = dict(zip(pairs, results, strict=True))
    runs = {}
    for name in names:
        losses, accuracies = zip(*(trained[name, seed] for seed in range(SEEDS)), strict=True)
        runs[name] = {"ms_a_step": ms[name], "losses": losses, "accuracy": accuracies}
    about = {"machine": machine("cpu"), "text": "stories", "tricks": list(TRICKS), "every": EVERY}
    FILE.write_text(json.dumps(about | {"runs": runs}) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
