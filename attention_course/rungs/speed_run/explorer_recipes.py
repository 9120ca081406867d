"""The recipes of the speed run, each beside any other, and the races that were measured.

recipes.json is written by `tools/record_recipes.py`, which says how: for each recipe its settings, and for
each seed the seconds, losses and answer accuracies every few steps, up to the mark.
"""

import json
import math
from functools import cache
from itertools import combinations
from pathlib import Path
from statistics import median
from threading import Thread
from typing import Any

import ipywidgets
import torch
from torch import Tensor

from attention_course.explorers.engine import Explorer
from attention_course.explorers.figure import LiveFigure
from attention_course.explorers.live_training import LiveTraining
from attention_course.plots import Lines
from attention_course.speedrun import speedrun
from attention_course.stories import answer_accuracy
from attention_course.text import Corpus, load_text
from attention_course.training import run

TARGET_ACCURACY = 0.95  # the answer accuracy to be reached
LEVEL = 0.01  # below this p a difference is called one
FILE = Path(__file__).with_name("recipes.json")


@cache
def measured() -> dict[str, Any]:
    """Return what recipes.json holds: the machine, how it was measured, and the recipes by name."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def controls() -> dict[str, ipywidgets.ValueWidget]:
    """Return two menus of recipes: at first the one with all tricks, beside that of the rung on GPT."""
    names = list(measured()["recipes"])
    return {
        "recipe": ipywidgets.Dropdown(options=names, value="+ shape", description="recipe"),
        "beside": ipywidgets.Dropdown(options=names, value="baseline", description="beside"),
    }


def run_of(name: str) -> dict[str, Any]:
    """Return when the S runs of a recipe reached TARGET_ACCURACY, and the median run (of even S, just above).

    Returns:
        seconds, loss, accuracy: shape (N,), of that run.
        seed: which of the seeds it is.
        mark: its seconds to TARGET_ACCURACY.
        marks: shape (S,), the seconds to TARGET_ACCURACY with each seed, from the first to the last.
        median: that of `marks`.
    """
    recipe = measured()["recipes"][name]
    marks = [*map(seconds_to_mark, recipe["seconds"], recipe["accuracy"])]
    seed = sorted(range(len(marks)), key=marks.__getitem__)[len(marks) // 2]
    of = {"seconds": "seconds", "loss": "losses", "accuracy": "accuracy"}
    shown = {name: torch.tensor(recipe[stored][seed]) for name, stored in of.items()}
    times = {"mark": marks[seed], "marks": torch.tensor(sorted(marks)), "median": median(marks)}
    return {**shown, "seed": seed, **times}


def seconds_to_mark(seconds: list[float], accuracy: list[float]) -> float:
    """Return the seconds until an answer accuracy of TARGET_ACCURACY, infinity if it is never reached.

    It begins at 0, and between two measurements it moves along a straight line.
    """
    before = (0.0, 0.0)
    for now in zip(seconds, accuracy, strict=True):
        if now[1] >= TARGET_ACCURACY:
            return before[0] + (now[0] - before[0]) * (TARGET_ACCURACY - before[1]) / (now[1] - before[1])
        before = now
    return math.inf


def p_value(one: Tensor, other: Tensor) -> float:
    """Return how often chance alone makes two groups of times differ as much as these do.

    This is the two-sided exact rank-sum test (Wilcoxon 1945; `scipy.stats.mannwhitneyu` with
    method="exact" where no times are equal). All times are ranked, and equal ones share their ranks, so that
    "never" is one time among others. Of all ways to deal the ranks to two groups of these sizes, it is the
    share in which the sum of one group is as far from its mean as here, or farther.

    Args:
        one: times, shape (S,).
        other: times, shape (R,).
    """
    times = torch.cat([one, other])
    ranks = ((times[:, None] > times).sum(-1) + (times[:, None] >= times).sum(-1) + 1) / 2
    sums = torch.tensor([sum(dealt) for dealt in combinations(ranks.tolist(), len(one))])
    distance = (sums - ranks.mean() * len(one)).abs()
    here = (ranks[: len(one)].sum() - ranks.mean() * len(one)).abs()
    return (distance >= here - 1e-6).double().mean().item()


def compute(recipe: str, beside: str) -> dict[str, Any]:
    """Return the runs of both recipes, their names, and the p of the difference of all runs."""
    chosen, other = run_of(recipe), run_of(beside)
    p = p_value(chosen["marks"], other["marks"])
    return {"chosen": chosen, "other": other, "names": (recipe, beside), "p": p}


def draw(
    figure: LiveFigure, chosen: dict[str, Any], other: dict[str, Any], names: tuple[str, str], p: float
) -> None:
    """Show loss and answer accuracy of both runs over seconds, and say when all runs reached the mark."""
    runs = {"beside": other, "recipe": chosen}
    every = [run_of(name)["seconds"] for name in measured()["recipes"]]
    first, last = min(run[0].item() for run in every), max(run[-1].item() for run in every)
    seconds = torch.cat([run["seconds"] for run in runs.values()])

    def curves(of: str) -> dict[str, Tensor]:
        """Return one curve for each run, with gaps at the seconds of the other one."""
        gaps = {name: torch.nan * run[of] for name, run in runs.items()}
        return {name: torch.cat(list({**gaps, name: run[of]}.values())) for name, run in runs.items()}

    loss, accuracy, over = "Validation loss", "Answer accuracy", "seconds of training"
    figure.show(
        Lines(loss, seconds, curves("loss"), over, "nats per character", x_limits=(first, last)),
        Lines(
            accuracy,
            seconds,
            curves("accuracy"),
            over,
            "share of answers",
            log=False,
            levels={"mark": TARGET_ACCURACY},
            x_limits=(0, last),
        ),
        caption=words(chosen, other, names, p),
    )


def words(chosen: dict[str, Any], other: dict[str, Any], names: tuple[str, str], p: float) -> str:
    """Return the caption: when both reached the mark, whether that is a difference, and the machine."""
    said = f"{names[1]}: {reached_in_words(other)}. "
    if names[0] != names[1]:
        verdict = "that is a difference" if p < LEVEL else "chance may have done it"
        said += f"{names[0]}: {reached_in_words(chosen)}. With p = {p:.4f} {verdict}. "
    seeds = len(chosen["marks"])
    about = (
        f"Medians of {seeds} seeds, with the range in brackets. The curves show the run next to the median."
    )
    return f"{said}{about} Measured on {measured()['machine']}."


def reached_in_words(run: dict[str, Any]) -> str:
    """Return in words the median of the seconds to the mark, and their range."""
    first, last = (said(run["marks"][at].item()) for at in (0, -1))
    if run["median"] == math.inf:
        return f"half or more miss the mark ({first} to {last})"
    return f"the mark after {said(run['median'])} ({first} to {last})"


def said(seconds: float) -> str:
    """Return the seconds in words."""
    return "never" if seconds == math.inf else f"{seconds:.1f} s"


def below(explorer: Explorer) -> ipywidgets.VBox:
    """Return a button that trains the chosen recipe on this machine, and room for the training.

    It runs in a thread of its own, so that its stop button is heard, and other cells run beside it.
    """
    button = ipywidgets.Button(description="Train it here", icon="play")
    said = ipywidgets.Label()
    box = ipywidgets.VBox([ipywidgets.HBox([button, said])])

    def training(recipe: dict[str, Any]) -> None:
        try:
            data = Corpus.of(load_text("stories"))
            live = LiveTraining(data.tokenizer)
            box.children = [box.children[0], live]
            settings = {name: recipe[name] for name in ("learning_rate", "steps")}
            trainer = speedrun(data, recipe["tricks"], **settings)
            run(trainer, callback=live)
            share = answer_accuracy(trainer.model, data.tokenizer.decode(data.val), data.tokenizer)
            said.value = f"answer accuracy {share:.2f} after {trainer.seconds:.1f} s on this machine"
        except Exception as error:
            said.value = f"{type(error).__name__}: {error}"
        finally:
            button.disabled = False

    def start(_: ipywidgets.Button) -> None:
        name = explorer.controls["recipe"].value
        button.disabled, said.value = True, f"training: {name}"
        Thread(target=training, args=(measured()["recipes"][name],), daemon=True).start()

    button.on_click(start)
    return box
