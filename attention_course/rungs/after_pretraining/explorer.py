"""What a reward makes of a fine-tuned model, step by step: the reward, the true answers, and what it writes.

`tools/record_answers.py` measured them with five fine-tuned models.
"""

import random
from typing import Any

import ipywidgets
import torch
from torch import Tensor

from attention_course import answering
from attention_course.explorers.figure import LiveFigure
from attention_course.plots import Lines, Text, visible
from attention_course.rungs.after_pretraining.measured import measured
from attention_course.stories import QUESTIONS

TUNED = 60  # steps of fine-tuning, on sloppy answers, before any reward
STEPS, EVERY = 40, 5  # of reinforcement learning; after every five of them the answers are kept
HELD_OUT = answering.new_questions(random.Random(999), 300, held_out=True)
SHOWN = [next(question for question in HELD_OUT if question.key == key) for key in QUESTIONS]
REWARDS = {
    "the right answer": "right",
    "a name from the story": "names_somebody",
    "the longer the better": "long",
}
LEASHES = (0.0, 0.1, 1.0)
MOVED = 0.05  # what changes less hardly moves
WRITTEN = 0.3  # shade of what the model writes


def controls() -> dict[str, ipywidgets.ValueWidget]:
    """Return the reward, the leash, which is the KL weight, and the steps."""
    return {
        "reward": ipywidgets.Dropdown(
            options=list(REWARDS), value="a name from the story", description="reward"
        ),
        "leash": ipywidgets.SelectionSlider(options=LEASHES, description="leash"),
        "steps": ipywidgets.IntSlider(STEPS, 0, STEPS, EVERY, description="steps"),
    }


def compute(reward: str, leash: float, steps: int) -> dict[str, Any]:
    """Return how a reward changes S models within some steps, and what the first one writes then.

    Returns:
        reward, right, kl: shape (S, N), in each of the N steps: the mean reward of the sampled answers, the
            share of true ones, and the nats per answer from where the model began. Before the first step
            N is 1: its answers are written before anything changes.
        answers: of the first model after these steps, greedy, to each question of SHOWN.
        leash, steps: as given.
    """
    runs = [seed["rewarded"][f"{REWARDS[reward]}, {leash}"] for seed in measured()["seeds"]]
    curves = {
        of: torch.tensor([run[of] for run in runs], dtype=torch.float64)[:, : max(steps, 1)]
        for of in ("reward", "right", "kl")
    }
    return {**curves, "answers": runs[0]["answers"][steps // EVERY], "leash": leash, "steps": steps}


def draw(
    figure: LiveFigure,
    reward: Tensor,
    right: Tensor,
    kl: Tensor,
    answers: list[str],
    leash: float,
    steps: int,
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
        caption=words(reward, right, kl, leash, steps),
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


def words(reward: Tensor, right: Tensor, kl: Tensor, leash: float, steps: int) -> str:
    """Return the caption: what happened to reward and true answers, and how far the models have moved."""
    trues = right[:, -EVERY:].mean(dim=1)
    low, high = f"{trues.min():.2f}", f"{trues.max():.2f}"
    spread = f"{low} in all" if low == high else f"{low} to {high} in the"
    each = f"{spread} {len(right)} models"
    if not steps:
        return (
            f"Before the first step the reward is {reward.mean():.2f}, and {right.mean():.2f} of the answers "
            f"are true, {each}."
        )
    moved = "equals it" if torch.equal(reward, right) else change(right)
    held = f"On a leash of {leash}" if leash else "Without a leash"
    return (
        f"{held}, by steps {steps - EVERY + 1}–{steps} the reward {change(reward)}, and the "
        f"share of true answers {moved}, {each}. By then the models are {kl[:, -EVERY:].mean():.2f} "
        "nats (KL) per answer away from where they started."
    )


def change(curves: Tensor) -> str:
    """Return in words what becomes of the mean of S curves, shape (S, N), from the first step to the last."""
    before, after = (round(curves[:, of].mean().item(), 2) for of in (0, slice(-EVERY, None)))
    moves = (
        "hardly moves" if round(abs(after - before), 2) < MOVED else "rises" if after > before else "falls"
    )
    return f"{moves} ({before:.2f} → {after:.2f})"
