"""The questions that take a training: one batch by heart, then the stories, whose entropy is known."""

import math
import time
from dataclasses import dataclass, replace
from functools import cache, cached_property

import torch
from torch import nn

from attention_course.examine.question import Candidate, asks, found
from attention_course.examine.report import Finding
from attention_course.examine.subject import CannotAskError, Subject
from attention_course.plots import Lines
from attention_course.stories import recall, stories_entropy, write_stories
from attention_course.text import Data, conditional_entropy
from attention_course.training import Recipe, Trainer
from attention_course.training.loss import mean_loss

HEART_STEPS = 400
STORY_STEPS = 800
SECONDS = 100.0  # after which the training on stories ends
STORY = 100  # characters of the longest story
LONGEST = 128  # tokens of a text in training: a story and more


@dataclass(frozen=True)
class Lesson:
    """A training on the stories: the trainer, what it learned from, and why it ended early, if so."""

    trainer: Trainer
    data: Data
    ended: str = ""


class Learner(Candidate):
    """A candidate that is trained, once, on the stories."""

    @cached_property
    def lesson(self) -> Lesson:
        """Train a copy on the stories, for at most SECONDS.

        Raises:
            CannotAskError: the stories have more characters than V, or nothing can be trained.
        """
        data, subject = stories(), self.given.copied().train()
        letters = data.tokenizer.vocab_size
        if subject.vocab_size < letters:
            raise CannotAskError(
                f"vocab_size is {subject.vocab_size}; the stories have {letters} characters."
            )
        subject.block_size = min(LONGEST, subject.block_size)
        trainable(subject)
        recipe = Recipe(
            steps=STORY_STEPS,
            batch_size=16,
            learning_rate=3e-3,
            evaluate_every=100,
            evaluate_blocks=64,
            precision="float32",
        )
        trainer, start, ended = Trainer(subject, data, recipe), time.monotonic(), ""
        try:
            while not trainer.done and not ended:
                trainer.step()
                subject.tick(f"step {trainer.steps_done} of {recipe.steps}")
                if time.monotonic() - start > SECONDS:
                    ended = f"Stopped after {trainer.steps_done} of {recipe.steps} steps: the time was up."
        except FloatingPointError as error:
            ended = str(error)
        return Lesson(trainer, data, ended)

    @cached_property
    def loss(self) -> float:
        """The loss on the whole validation text after the training, in nats per character."""
        val_losses = self.lesson.trainer.history.val_losses
        return val_losses[-1] if val_losses and not self.lesson.ended else self.lesson.trainer.evaluate()


def trainable(subject: Subject) -> list[nn.Parameter]:
    """Return the parameters that are trained; CannotAskError if there are none."""
    parameters = [p for p in subject.parameters() if p.requires_grad]
    if not parameters:
        raise CannotAskError("No parameter requires a gradient.")
    return parameters


@cache
def stories() -> Data:
    """Return the stories as ids: character number i, in code-point order, is id i; others do not occur."""
    return Data.of(write_stories())


@cache
def floors() -> dict[str, float]:
    """Return the lowest validation loss of tables of n-grams, and of any model."""
    data = stories()
    text = data.tokenizer.decode(data.val)
    tables = {f"{n}-grams": conditional_entropy(data.val, n) for n in (1, 2, 3)}
    return {**tables, "entropy": stories_entropy(text[text.index("\n") + 1 :])}


@asks(
    "One batch is learned by heart",
    8,
    "No leak from the future",
    "The past is used",
    "The order of tokens matters",
    "Every parameter gets a gradient",
    "The logits are raw",
    train=True,
)
def by_heart(candidate: Candidate) -> Finding:
    """Train on four short texts of few letters: only the whole past says which comes next."""
    subject = candidate.given.copied().eval()  # without dropout
    parameters, T, letters = trainable(subject), min(32, subject.block_size), min(8, subject.vocab_size)
    ids = torch.randint(letters, (4, T + 1), generator=torch.Generator().manual_seed(20))
    ids[:, 0] = torch.arange(4) % letters  # the first token tells the texts apart
    optimizer, value, step = torch.optim.AdamW(parameters, lr=3e-3, betas=(0.9, 0.95)), math.inf, 0
    while step < HEART_STEPS and value > 0.1:
        loss = mean_loss(subject(ids[:, :-1]), ids[:, 1:].to(subject.device))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        value, step = loss.item(), step + 1
        subject.tick(f"step {step} of {HEART_STEPS}")
    cause = (
        "A right model learns four short texts by heart. One that does not cannot tell texts or positions "
        "apart, has parts that learn nothing, or lacks a residual connection or a norm."
    )
    said = f"After {step} steps its loss on them is {value:.2f} nats; guessing costs {math.log(letters):.2f}."
    return found(value < 0.3, said, "Less than 0.3 nats.", cause)


BEFORE = (
    "No leak from the future",
    "The past is used",
    "The order of tokens matters",
    "One batch is learned by heart",
)


@asks("It learns more of stories than tables do", 8, *BEFORE, train=True)
def beats_tables(candidate: Learner) -> Finding:
    """Train on stories, and compare the loss with what tables can reach."""
    lesson, loss, levels = candidate.lesson, candidate.loss, floors()
    cause = (
        "It learns what the last characters say, and no more: does attention reach back, and get gradients?"
    )
    finding = found(
        loss < levels["3-grams"],
        f"{lesson.ended} The validation loss is {loss:.3f} nats per character.".strip(),
        f"Less than {levels['3-grams']:.3f}, the floor of tables of 3-grams.",
        cause,
        "doubtful" if lesson.ended or loss < levels["2-grams"] else "wrong",
    )
    history = lesson.trainer.history
    steps = torch.arange(1, len(history.losses) + 1)
    curves = {"loss on stories": torch.tensor(history.losses)}
    return replace(
        finding, panel=Lines("learning stories", steps, curves, "step", "nats per character", levels=levels)
    )


@asks("No loss is below the entropy", 8, *BEFORE, train=True)
def above_entropy(candidate: Learner) -> Finding:
    """Compare the loss with the entropy: the alarm of rung 8."""
    loss, entropy = candidate.loss, floors()["entropy"]
    cause = "No model can do this without seeing what it predicts: a leak from the future."
    return found(
        loss > 0.99 * entropy,
        f"{loss:.3f} nats per character.",
        f"At least {entropy:.3f}, within 1 %.",
        cause,
    )


@asks("It recalls what it has read", 8, *BEFORE, "It learns more of stories than tables do", train=True)
def recalls(candidate: Learner) -> Finding:
    """Count the answers in stories that it gives."""
    lesson = candidate.lesson
    if lesson.trainer.block_size < STORY:
        raise CannotAskError(f"block_size is below {STORY} characters: a fact and its questions do not fit.")
    share = recall(
        lesson.trainer.model, lesson.data.tokenizer.decode(lesson.data.val), lesson.data.tokenizer, "float32"
    )
    cause = "To find an answer in the text takes two layers that work together, positions, and some training."
    return found(
        share > 0.9,
        f"{lesson.ended} {share:.0%} of the answers are right.".strip(),
        "More than 90 %.",
        cause,
        "doubtful",
    )
