"""What a reward makes of a fine-tuned model, step by step: the reward, the true answers, and what it writes.

measured.json is written by `tools/record_answers.py`, which says how: for each base model its scores, and for
each reward and KL weight the rewards, the true answers and the divergence of each step, and every few steps
what it answers to the questions of SHOWN.
"""

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import ipywidgets
import torch
from torch import Tensor

from attention_course import answering
from attention_course.explorers.figure import LiveFigure
from attention_course.plots import Lines, Text, visible
from attention_course.stories import QUESTIONS

FILE = Path(__file__).with_name("measured.json")
STEPS, EVERY = 40, 5  # of reinforcement learning; after every five of them the answers are kept
HELD_OUT = answering.draw_questions(random.Random(999), 300, held_out=True)
SHOWN = [next(question for question in HELD_OUT if question.key == key) for key in QUESTIONS]
REWARDS = {
    "the right answer": "right",
    "a name of the story": "names_somebody",
    "the longer the better": "long",
}
LEASHES = (0.0, 0.1, 1.0)
MOVED = 0.05  # what changes less hardly moves
WRITTEN = 0.3  # shade of what the model writes


@cache
def measured() -> dict[str, Any]:
    """Return what measured.json holds: the machine, and for each seed all that was measured."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def controls() -> dict[str, ipywidgets.ValueWidget]:
    """Return the reward, the KL weight and the steps."""
    return {
        "reward": ipywidgets.Dropdown(
            options=list(REWARDS), value="a name of the story", description="reward"
        ),
        "leash": ipywidgets.SelectionSlider(options=LEASHES, description="leash (KL weight)"),
        "steps": ipywidgets.IntSlider(STEPS, 0, STEPS, EVERY, description="steps"),
    }


def compute(reward: str, leash: float, steps: int) -> dict[str, Any]:
    """Return how a reward changes S models within some steps, and what the first one writes then.

    Returns:
        reward, right, kl: shape (S, N), in each of the N steps: the mean reward of the sampled answers, the
            share of true ones, and the nats per answer from where the model began. Before the first step
            N is 1: its answers are written before anything changes.
        answers: of the first model after these steps, greedy, to each question of SHOWN.
        steps: as given.
    """
    runs = [seed["rewarded"][f"{REWARDS[reward]}, {leash}"] for seed in measured()["seeds"]]
    curves = {
        of: torch.tensor([run[of] for run in runs])[:, : max(steps, 1)] for of in ("reward", "right", "kl")
    }
    return {**curves, "answers": runs[0]["answers"][steps // EVERY], "steps": steps}


def draw(
    figure: LiveFigure, reward: Tensor, right: Tensor, kl: Tensor, answers: list[str], steps: int
) -> None:
    """Show reward and true answers over the steps, and the answers; the caption says what happened."""
    figure.show(
        Lines(
            f"Means of {len(reward)} models",
            torch.arange(1, reward.shape[1] + 1),
            {"true answers": right.mean(dim=0), "reward": reward.mean(dim=0)},
            "step",
            "reward, and share of answers",
            log=False,
            levels={"at most": 1},
            x_limits=(1, STEPS),
        ),
        sheet(answers, f"What one of them writes after {steps} steps"),
        caption=words(reward, right, kl, steps),
    )


def sheet(answers: list[str], title: str) -> Text:
    """Return the questions of SHOWN with these answers, which are shaded, and whether each is right."""
    text, shades = "", []
    for question, answer in zip(SHOWN, answers, strict=True):
        asked, sign = answering.ask(question.key), "✓" if answering.right(question, answer) else "✗"
        lines = [question.story.fact, f"{asked}{visible(answer)} {sign}"]
        text += "".join(line.ljust(Text.COLUMNS) for line in lines)
        shaded = range(Text.COLUMNS + len(asked) + 1, Text.COLUMNS + len(asked) + len(answer))
        shades += [WRITTEN * (at in shaded) for at in range(2 * Text.COLUMNS)]
    return Text(title, text, torch.tensor(shades))


def words(reward: Tensor, right: Tensor, kl: Tensor, steps: int) -> str:
    """Return the caption: what happened to reward and true answers, and how far the models have moved."""
    first, last = right[:, -1].min(), right[:, -1].max()
    each = f"{first:.2f} to {last:.2f} in the {len(right)} models"
    ends = [(curve[:, 0].mean().item(), curve[:, -1].mean().item()) for curve in (reward, right)]
    if not steps:
        return (
            f"Before any step the reward is {ends[0][0]:.2f}, and {ends[1][0]:.2f} of the answers are true "
            f"({each}). They are sampled at temperature 1."
        )
    (paid, now_paid), (true, now_true) = ends
    return (
        f"From step 1 to step {steps} the reward {change(*ends[0])} ({paid:.2f} → {now_paid:.2f}), and the "
        f"share of true answers {change(*ends[1])} ({true:.2f} → {now_true:.2f}; {each}). By then an answer "
        f"is {kl[:, -1].mean():.2f} nats (KL) away from what the model wrote before the first step."
    )


def change(before: float, after: float) -> str:
    """Return in a word what becomes of a number."""
    return "hardly moves" if abs(after - before) < MOVED else "rises" if after > before else "falls"
