"""The questions that take a training: one batch by heart, then the stories, whose entropy is known."""

import math
import time
from dataclasses import dataclass, replace
from functools import cache, cached_property

import torch
from torch import nn

from attention_course.examine.question import ModelVariants, asks, finding_if
from attention_course.examine.report import Finding
from attention_course.examine.wrapped_model import CannotAskError, WrappedModel
from attention_course.plots import Lines
from attention_course.stories import answer_accuracy, stories_entropy, write_stories
from attention_course.text import Corpus, conditional_entropy
from attention_course.training import Recipe, Trainer
from attention_course.training.loss import mean_loss

HEART_STEPS = 400
STORY_STEPS = 800
SECONDS = 100.0  # after which the training on stories ends
MAX_TRAINING_TOKENS = 128  # tokens of a text in training: a story and more


@dataclass(frozen=True)
class TrainingRun:
    """A training on the stories: the trainer, what it learned from, and why it ended early, if so."""

    trainer: Trainer
    data: Corpus
    ended: str = ""


class TrainedVariants(ModelVariants):
    """The model in its forms, one of them trained, once, on the stories."""

    @cached_property
    def training_run(self) -> TrainingRun:
        """Train a copy on the stories, for at most SECONDS.

        Raises:
            CannotAskError: the stories have more characters than V, or nothing can be trained.
        """
        data, wrapped = stories(), self.new.copied().train()
        letters = data.tokenizer.vocab_size
        if wrapped.vocab_size < letters:
            raise CannotAskError(
                f"vocab_size is {wrapped.vocab_size}; the stories have {letters} characters."
            )
        if not torch.equal(wrapped.tokens[:letters], torch.arange(letters)):
            raise CannotAskError(
                f"The stories need the ids 0 to {letters - 1}; some of these never come, or are padding."
            )
        wrapped.block_size = min(MAX_TRAINING_TOKENS, wrapped.block_size)
        trainable(wrapped)
        recipe = Recipe(
            steps=STORY_STEPS,
            batch_size=16,
            learning_rate=3e-3,
            evaluate_every=100,
            evaluate_blocks=64,
            precision="float32",
        )
        trainer, start, ended = Trainer(wrapped, data, recipe), time.monotonic(), ""
        try:
            while not trainer.done and not ended:
                trainer.step()
                wrapped.tick(f"step {trainer.steps_done} of {recipe.steps}")
                if time.monotonic() - start > SECONDS:
                    ended = f"Stopped after {trainer.steps_done} of {recipe.steps} steps: the time was up."
        except FloatingPointError as error:
            ended = str(error)
        return TrainingRun(trainer, data, ended)

    @cached_property
    def loss(self) -> float:
        """The loss on the whole validation text after the training, in nats per character."""
        run = self.training_run
        val_losses = run.trainer.history.val_losses
        return val_losses[-1] if val_losses and not run.ended else run.trainer.evaluate()


def trainable(wrapped: WrappedModel) -> list[nn.Parameter]:
    """Return the parameters of a copy that are trained; CannotAskError if there are none."""
    parameters = [p for p in wrapped.parameters() if p.requires_grad]
    if not parameters:
        raise CannotAskError("No parameter requires a gradient.")
    return parameters


@cache
def stories() -> Corpus:
    """Return the stories as ids: character number i, in code-point order, is id i; others do not occur."""
    return Corpus.of(write_stories())


@cache
def floors() -> dict[str, float]:
    """Return the lowest validation loss of tables of n-grams, and of any model."""
    data = stories()
    text = data.tokenizer.decode(data.val)
    tables = {f"{n}-grams": conditional_entropy(data.val, n) for n in (1, 2, 3)}
    return {**tables, "entropy": stories_entropy(text[text.index("\n") + 1 :])}


@asks("It memorizes one batch")
def by_heart(variants: ModelVariants) -> Finding:
    """Train on four short texts of few letters: only the whole past says which comes next."""
    wrapped = variants.new.copied().eval()  # without dropout
    parameters, T, letters = trainable(wrapped), min(32, wrapped.block_size), min(8, len(wrapped.tokens))
    ids = torch.randint(letters, (4, T + 1), generator=torch.Generator().manual_seed(20))
    ids[:, 0] = torch.arange(4) % letters  # the first token tells the texts apart
    ids = wrapped.tokens[ids]
    optimizer, value, step = torch.optim.AdamW(parameters, lr=3e-3, betas=(0.9, 0.95)), math.inf, 0
    while step < HEART_STEPS and value > 0.1:
        loss = mean_loss(wrapped(ids[:, :-1]), ids[:, 1:].to(wrapped.device))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        value, step = loss.item(), step + 1
        wrapped.tick(f"step {step} of {HEART_STEPS}")
    said = f"After {step} steps its loss on them is {value:.2f} nats; guessing costs {math.log(letters):.2f}."
    if int(variants.table[-1].sum()) == 2:
        return finding_if(value < 0.3, said, cause="two", otherwise="doubtful")
    return finding_if(value < 0.3, said)


@asks("It learns more of stories than tables do")
def beats_tables(variants: TrainedVariants) -> Finding:
    """Train on stories, and compare the loss with what tables can reach."""
    run, loss, levels = variants.training_run, variants.loss, floors()
    finding = finding_if(
        loss < levels["3-grams"],
        f"{run.ended} The validation loss is {loss:.3f} nats per character.".strip(),
        f"Less than {levels['3-grams']:.3f}, the floor of tables of 3-grams.",
        "" if loss < 2 * levels["3-grams"] else "far",
        otherwise="doubtful" if run.ended or loss < levels["2-grams"] else "wrong",
    )
    losses = torch.tensor(run.trainer.history.losses)
    steps, curves = torch.arange(1, len(losses) + 1), {"loss on stories": losses}
    panel = Lines("learning stories", steps, curves, "step", "nats per character", levels=levels)
    return replace(finding, panel=panel)


@asks("No loss is below the entropy")
def above_entropy(variants: TrainedVariants) -> Finding:
    """Compare the loss with the entropy: the alarm of the rung on GPT."""
    loss, entropy = variants.loss, floors()["entropy"]
    said, expected = f"{loss:.3f} nats per character.", f"At least {entropy:.3f}, within 1 %."
    return finding_if(loss > 0.99 * entropy, said, expected)


@asks("It answers from what it has read")
def answers_from_the_text(variants: TrainedVariants) -> Finding:
    """Count the answers in stories that it gives."""
    run = variants.training_run
    tokenizer = run.data.tokenizer
    share = answer_accuracy(run.trainer.model, tokenizer.decode(run.data.val), tokenizer, "float32")
    said = f"{run.ended} {share:.0%} of the answers are right.".strip()
    return finding_if(share > 0.9, said, otherwise="doubtful")
