"""Tune the recipes of the speed run, and record their races: `python tools/record_recipes.py`.

There are ten recipes: that of the rung on GPT, one more trick in each of the next five, and all without one
of the others.

Tuning gives each recipe a learning rate and a number of steps of its own. It trains on nine tenths of the
training text and asks the first questions of the last tenth, with seeds that no race uses. From a start it
goes to the best neighbour on a grid until none is better; best is the fewest steps to the mark, the mean of
three seeds, and settings with which a seed misses it are worse than all others. The five best are tried again
with eight other seeds, and if even the best of them misses the mark with one, so are more steps.

In a race all recipes train on the training text and take turns, EVERY steps each, so that other load affects
all of them. Seconds are those that the steps took, of processor time on one thread. After each turn the
model is asked the first questions of the validation text, and leaves the race once it has reached the mark.
Two seeds race at a time. All together takes about an hour. With `--races` the recipes are not tuned again.
"""

import argparse
import json
import math
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache

import torch
from bench_speedrun import machine
from tqdm import tqdm

from attention_course.rungs.speed_run.explorer_recipes import FILE, TARGET_ACCURACY
from attention_course.speedrun import TRICKS, speedrun
from attention_course.stories import answer_accuracy
from attention_course.text import Corpus, load_text
from attention_course.training import evaluate

EVERY, CHARACTERS, FINALISTS = 25, 8193, 5
SEEDS, TUNING_SEEDS, FINAL_SEEDS = range(6), range(100, 103), range(103, 111)
LEARNING_RATES = [round(0.0025 * 1.5**i, 4) for i in range(9)]
STEPS = [200, 270, 360, 490, 660, 900, 1200]


def recipes():
    """Return the tricks of each recipe, by its name."""
    names = list(TRICKS)
    adding = {f"+ {name}": names[: count + 1] for count, name in enumerate(names)}
    leaving = {f"without {name}": [each for each in names if each != name] for name in names[:-1]}
    return {"baseline": []} | adding | leaving


@cache
def stories(held_out):
    """Return the stories; held out are the last tenth of the training text, or the validation text."""
    data = Corpus.of(load_text("stories"))
    last = len(data.train) // 10
    return replace(data, train=data.train[:-last], val=data.train[-last:]) if held_out else data


def runner(tricks, learning_rate, steps, seed, held_out):
    """Train, and yield the processor seconds, loss and answer accuracy every EVERY steps."""
    data = stories(held_out)
    trainer = speedrun(data, tricks, learning_rate=learning_rate, steps=steps, seed=seed)
    trainer.recipe = replace(trainer.recipe, evaluate_every=10**9)
    asked, seconds = data.val[:CHARACTERS], 0.0
    text = data.tokenizer.decode(asked)
    while not trainer.done:
        start = time.process_time()
        trainer.step()
        seconds += time.process_time() - start
        if trainer.steps_done % EVERY == 0 or trainer.done:
            accuracy = answer_accuracy(trainer.model, text, data.tokenizer)
            yield trainer.steps_done, seconds, 0.0 if held_out else evaluate(trainer.model, asked), accuracy


def steps_to_mark(tricks, learning_rate, steps, seed):
    """Return the steps until the mark; if it is missed, as many more than all as answers are missing."""
    before = (0, 0.0)
    for done, _, _, accuracy in runner(tricks, learning_rate, steps, seed, held_out=True):
        if accuracy >= TARGET_ACCURACY:
            share = (TARGET_ACCURACY - before[1]) / (accuracy - before[1])
            return before[0] + share * (done - before[0])
        before = (done, accuracy)
    return 10_000 * (2 - before[1])


def tune(tricks):
    """Return the learning rate and the number of steps of a recipe, and the means of all that were tried."""
    torch.set_num_threads(1)
    tried = {}

    def mean(at, seeds=TUNING_SEEDS):
        if (at, seeds) not in tried:
            rate, steps = LEARNING_RATES[at[0]], STEPS[at[1]]
            taken = 0
            for seed in seeds:
                taken += steps_to_mark(tricks, rate, steps, seed) / len(seeds)
                if taken > min(tried.values(), default=math.inf):
                    break  # it is not the best, whatever follows
            tried[at, seeds] = taken
            print(f"{'+'.join(tricks) or 'baseline':45} {rate:.4f} {steps:5} {taken:8.0f}", flush=True)
        return tried[at, seeds]

    here, best = None, ((5, 3) if "muon" in tricks else (3, 4))
    while here != best:
        here = best
        around = [(here[0] + i, here[1] + j) for i, j in ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1))]
        best = min((at for at in around if at[0] in range(9) and at[1] in range(7)), key=mean)
    finalists = [at for at, _ in sorted(tried, key=lambda key: tried[key])[:FINALISTS]]
    tried.clear()
    best = min(finalists, key=lambda at: mean(at, FINAL_SEEDS))
    if mean(best, FINAL_SEEDS) > STEPS[best[1]] < STEPS[-1]:
        more = [(best[0] + i, best[1] + 1) for i in (0, 1, -1)]
        best = min([best, *more], key=lambda at: mean(at, FINAL_SEEDS))
    return {"learning_rate": LEARNING_RATES[best[0]], "steps": STEPS[best[1]]}


def race(settings, seed):
    """Return the seconds, losses and accuracies of each recipe; all take turns."""
    torch.set_num_threads(1)
    runners = {
        name: runner(tricks, **settings[name], seed=seed, held_out=False)
        for name, tricks in recipes().items()
    }
    curves = {name: [] for name in runners}
    while runners:
        for name, each in list(runners.items()):
            turn = next(each, None)
            if turn is not None:
                curves[name].append([round(number, 4) for number in turn[1:]])
            if turn is None or turn[3] >= TARGET_ACCURACY:
                del runners[name]
    return curves


def main():
    parser = argparse.ArgumentParser(description="Tune the recipes of the speed run and record their races.")
    parser.add_argument("--races", action="store_true", help="do not tune again")
    torch.set_num_threads(1)
    if parser.parse_args().races:
        known = json.loads(FILE.read_text(encoding="utf-8"))["recipes"]
        settings = {name: {key: known[name][key] for key in ("learning_rate", "steps")} for name in recipes()}
    else:
        with ProcessPoolExecutor(2) as pool:
            tuned = pool.map(tune, recipes().values())
            settings = dict(zip(recipes(), tuned, strict=True))
    with ProcessPoolExecutor(2) as pool:
        races = list(tqdm(pool.map(race, [settings] * len(SEEDS), SEEDS), total=len(SEEDS)))
    stored = {}
    for name, tricks in recipes().items():
        trainer = speedrun(stories(False), tricks, **settings[name])
        seconds, losses, accuracy = (
            [[turn[at] for turn in curves[name]] for curves in races] for at in range(3)
        )
        stored[name] = {
            "tricks": tricks,
            **settings[name],
            "warmup": trainer.recipe.warmup,
            "batch_size": trainer.recipe.batch_size,
            "n_layer": trainer.model.config.n_layer,
            "seconds": seconds,
            "losses": losses,
            "accuracy": accuracy,
        }
    about = {"machine": machine("cpu"), "text": "stories", "every": EVERY, "characters": CHARACTERS}
    FILE.write_text(json.dumps(about | {"recipes": stored}) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
