"""Rung 10: the tricks of the speed run as switches, and the measured runs behind them.

recipes.json holds runs for each set of tricks, one a seed, `tools/record_recipes.py` writes it: validation
loss and answer accuracy every few steps, the milliseconds of a step, and the machine.
"""

import json
import math
from functools import cache
from pathlib import Path
from threading import Thread
from typing import Any

import ipywidgets
import torch
from torch import Tensor

from attention_course.explorers.engine import Explorer
from attention_course.explorers.figure import LiveFigure
from attention_course.explorers.live_training import LiveTraining
from attention_course.plots import Lines, format_number
from attention_course.speedrun import speedrun
from attention_course.stories import answer_accuracy
from attention_course.text import Data, load_text
from attention_course.training import run

MARK = 0.95  # the answer accuracy to be reached
FILE = Path(__file__).with_suffix(".json")


@cache
def measured() -> dict[str, Any]:
    """Return what recipes.json holds: machine, text, tricks, and a run for each set of them."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def controls() -> dict[str, ipywidgets.ValueWidget]:
    """Return a switch for each trick; all are on at first."""
    return {
        trick: ipywidgets.Checkbox(True, description=trick, indent=False, layout={"width": "auto"})
        for trick in measured()["tricks"]
    }


def run_of(tricks: set[str]) -> dict[str, Tensor]:
    """Return the run with these tricks whose seed is the middle one of S, by the seconds to MARK.

    Returns:
        seconds, loss, accuracy: shape (N,), of that run.
        seed: shape (), of that run.
        marks: shape (S,), the seconds to MARK of all seeds, from the first to the last.
    """
    name = "".join(str(int(trick in tricks)) for trick in measured()["tricks"])
    stored = measured()["runs"][name]
    losses, accuracies = torch.tensor(stored["losses"]), torch.tensor(stored["accuracy"])  # (S, N)
    steps = measured()["every"] * torch.arange(1, losses.shape[1] + 1)
    seconds = steps * stored["ms_a_step"] / 1000
    marks, order = torch.tensor([seconds_to_mark(seconds, each) for each in accuracies]).sort(stable=True)
    seed = order[len(order) // 2]
    return {
        "seconds": seconds,
        "loss": losses[seed],
        "accuracy": accuracies[seed],
        "seed": seed,
        "marks": marks,
    }


def seconds_to_mark(seconds: Tensor, accuracy: Tensor) -> float:
    """Return the seconds until an answer accuracy of MARK, infinity if it is never reached.

    It begins at 0, and between two measurements it moves along a straight line.
    """
    seconds, accuracy = (torch.cat([torch.zeros(1), each]) for each in (seconds, accuracy))
    reached = (accuracy >= MARK).nonzero().flatten().tolist()
    if not reached:
        return math.inf
    before, after = reached[0] - 1, reached[0]
    share = (MARK - accuracy[before]) / (accuracy[after] - accuracy[before])
    return (seconds[before] + share * (seconds[after] - seconds[before])).item()


def compute(**switches: bool) -> dict[str, object]:
    """Return the run of rung 8's recipe, that of the chosen one, and the tricks that are switched on."""
    tricks = [trick for trick in measured()["tricks"] if switches[trick]]
    return {"rung_8": run_of(set()), "chosen": run_of(set(tricks)), "tricks": tricks}


def draw(figure: LiveFigure, rung_8: dict[str, Tensor], chosen: dict[str, Tensor], tricks: list[str]) -> None:
    """Show loss and accuracy of both runs over seconds; the caption says when each reached the mark."""
    seconds = torch.cat([rung_8["seconds"], chosen["seconds"]])
    runs, every = measured()["runs"].values(), measured()["every"]
    first = min(every * run["ms_a_step"] / 1000 for run in runs)
    last = max(len(run["accuracy"][0]) * every * run["ms_a_step"] / 1000 for run in runs)

    def curves(of: str) -> dict[str, Tensor]:
        """Return one curve for each run, with gaps at the seconds of the other one."""
        theirs, ours = rung_8[of], chosen[of]
        gaps = torch.nan
        return {"rung 8": torch.cat([theirs, gaps * ours]), "this recipe": torch.cat([gaps * theirs, ours])}

    figure.show(
        Lines(
            "Validation loss",
            seconds,
            curves("loss"),
            "seconds of training",
            "nats per character",
            x_limits=(first, last),
        ),
        Lines(
            "Answer accuracy",
            seconds,
            curves("accuracy"),
            "seconds of training",
            "share of answers",
            log=False,
            levels={"mark": MARK},
            x_limits=(0, last),
        ),
        caption=words(rung_8, chosen, tricks),
    )


def words(rung_8: dict[str, Tensor], chosen: dict[str, Tensor], tricks: list[str]) -> str:
    """Return the caption: seconds to the mark, their share of rung 8's, and the machine."""
    before, after = (run["marks"].median().item() for run in (rung_8, chosen))
    seeds = len(chosen["marks"])
    said = f"Rung 8's recipe {reach(rung_8)}. "
    if tricks:
        share = f": {100 * after / before:.0f} % of the time" if max(before, after) < math.inf else ""
        said += f"With {', '.join(tricks)} it {reach(chosen)}{share}. "
    said += f"Shown is the middle one of {seeds} seeds, the range in brackets. "
    return f"{said}Measured on {measured()['machine']}."


def reach(run: dict[str, Tensor]) -> str:
    """Return in words when the middle seed reached the mark, and the range of all; or where it ended."""
    marks = run["marks"]
    if marks.median() == math.inf:
        last = format_number(run["accuracy"][-1].item())
        return f"ends at an answer accuracy of {last} after {run['seconds'][-1]:.1f} s, below {MARK}"
    return f"reaches an answer accuracy of {MARK} after {marks.median():.1f} s ({span(marks)})"


def span(marks: Tensor) -> str:
    """Return in words the range of the seconds of all seeds."""
    last = "never" if marks[-1] == math.inf else f"{marks[-1]:.1f}"
    return f"{marks[0]:.1f} to {last}"


def below(explorer: Explorer) -> ipywidgets.VBox:
    """Return a button that trains the chosen recipe on this machine, and room for the training.

    It runs in a thread of its own, so that its stop button is heard, and other cells run beside it.
    """
    button = ipywidgets.Button(description="Train it here", icon="play")
    said = ipywidgets.Label()
    box = ipywidgets.VBox([ipywidgets.HBox([button, said])])

    def training(tricks: list[str]) -> None:
        try:
            data = Data.of(load_text("stories"))
            live = LiveTraining(data.tokenizer)
            box.children = [box.children[0], live]
            trainer = speedrun(data, tricks)
            run(trainer, callback=live)
            share = answer_accuracy(trainer.model, data.tokenizer.decode(data.val), data.tokenizer)
            said.value = f"answer accuracy {share:.2f} after {trainer.seconds:.1f} s on this machine"
        except Exception as error:
            said.value = f"{type(error).__name__}: {error}"
        finally:
            button.disabled = False

    def start(_: ipywidgets.Button) -> None:
        tricks = [trick for trick, control in explorer.controls.items() if control.value]
        button.disabled, said.value = True, f"training with {', '.join(tricks) or 'no trick'}"
        Thread(target=training, args=(tricks,), daemon=True).start()

    button.on_click(start)
    return box
