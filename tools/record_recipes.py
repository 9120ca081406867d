"""Record the runs behind the explorer of rung 10: `python tools/record_recipes.py` rewrites recipes.json.

Every set of tricks trains on the stories, with one seed: 400 steps with Muon, as many as rung 8 without. Loss
and recall are those of the first BLOCKS blocks and as many characters of the validation text. A step is timed
apart from that: all sets take turns, so that other load affects all, and the median counts. OMP_NUM_THREADS
says on how many threads.
"""

import json
import statistics
import time
from dataclasses import replace
from itertools import product
from pathlib import Path

from bench_speedrun import machine
from tqdm import tqdm

from attention_course import explorers
from attention_course.speedrun import TRICKS, speedrun
from attention_course.stories import recall
from attention_course.text import Data, load_text
from attention_course.training import RECIPES, evaluate

FILE = Path(explorers.__file__).parent / "recipes.json"
EVERY, BLOCKS, TURNS = 25, 64, 7


def trainer_of(data, digits):
    tricks = [name for name, digit in zip(TRICKS, digits, strict=True) if digit == "1"]
    trainer = speedrun(data, tricks, steps=400 if "muon" in tricks else RECIPES["stories"].steps)
    trainer.recipe = replace(trainer.recipe, evaluate_every=10**9)
    return trainer


def train(data, digits):
    """Return steps, losses and recall of one run."""
    trainer, run = trainer_of(data, digits), {"steps": [], "losses": [], "recall": []}
    ids = data.val[: BLOCKS * trainer.block_size + 1]
    while not trainer.done:
        trainer.step()
        if trainer.steps_done % EVERY == 0:
            run["steps"].append(trainer.steps_done)
            run["losses"].append(round(evaluate(trainer.model, ids), 4))
            run["recall"].append(round(recall(trainer.model, data.tokenizer.decode(ids), data.tokenizer), 3))
    return run


def milliseconds(data, names):
    """Return the median milliseconds of a step for each set of tricks; all take turns."""
    trainers, taken = {name: trainer_of(data, name) for name in names}, {name: [] for name in names}
    for _ in range(TURNS + 1):
        for name, trainer in trainers.items():
            start = time.perf_counter()
            trainer.step()
            taken[name].append(1000 * (time.perf_counter() - start))
    return {name: round(statistics.median(times[1:]), 2) for name, times in taken.items()}


def main():
    data = Data.of(load_text("stories"))
    names = ["".join(digits) for digits in product("01", repeat=len(TRICKS))]
    ms = milliseconds(data, names)
    runs = {name: train(data, name) | {"ms_a_step": ms[name]} for name in tqdm(names)}
    content = {"machine": machine("cpu"), "text": "stories", "tricks": list(TRICKS), "runs": runs}
    FILE.write_text(json.dumps(content) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
