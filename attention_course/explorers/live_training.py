"""A callback that shows a training run as it happens, and can stop it."""

import html
import math
from dataclasses import replace
from threading import Event, current_thread, main_thread
from time import perf_counter

import ipywidgets
import torch
from IPython.core.getipython import get_ipython
from IPython.core.interactiveshell import ExecutionResult

from attention_course.explorers.figure import LiveFigure
from attention_course.explorers.subject import check_tokenizer
from attention_course.gpt import generate
from attention_course.plots import Lines, Text, visible
from attention_course.plots.checks import check_levels
from attention_course.text import CharTokenizer
from attention_course.training import Trainer

REDRAW = 0.2  # minimum seconds between redraws
SAMPLE_STEPS = 100  # minimum steps between samples
SAMPLE_SHARE = 1 / 40  # maximum fraction of the time spent on samples
LENGTH = 100  # characters of a sample
FRAME = (  # of the film
    "margin: 0; padding-left: 12ch; text-indent: -12ch; white-space: pre-wrap; word-break: normal"
)
ABOUT = (
    "Live training: while this cell runs, a progress bar, a stop button, the losses and samples from the "
    "model are shown here."
)


class LiveTraining(ipywidgets.VBox):
    """A training callback: a progress bar, a stop button, the losses and a sample.

    Display it, then pass it to the training: `train(model, data, recipe, callback=live)`.

    With JupyterLab 4.4 and ipykernel 7 or newer, a click on the button is handled while the cell runs, in
    another thread. With older versions it waits until the cell has finished; use the kernel's interrupt
    button (■) instead, which also ends the training and keeps the model.

    Args:
        tokenizer: decodes the sample.
        floors: maps names to losses to compare with, in nats per token.
        prompt: the prompt of the samples.

    Attributes:
        bar: the progress bar.
        words: step, loss and seconds left.
        stop: the button; `live.stop.click()` clicks it.
        figure: losses and sample.
        film: the first line of each sample, without the prompt; that of the finished model is "your GPT".

    Raises:
        TypeError: the tokenizer is not a CharTokenizer.
        ValueError: the prompt is empty or has a character outside the vocabulary, or a floor is not positive.
    """

    def __init__(
        self, tokenizer: CharTokenizer, floors: dict[str, int | float] | None = None, prompt: str = "\n"
    ):
        check_tokenizer(tokenizer)
        floors = {} if floors is None else floors
        check_levels(floors, "LiveTraining: floors", above=0)  # the axes are logarithmic
        if not isinstance(prompt, str):
            raise TypeError(f"LiveTraining: the prompt is a {type(prompt).__name__}, expected a str.")
        if not prompt:
            raise ValueError("LiveTraining: the prompt is empty. Give at least one character to start from.")
        self.bar = ipywidgets.IntProgress(0, 0, 1, layout={"width": "300px"})
        self.words = ipywidgets.Label("not started yet", layout={"width": "330px"})
        self.stop = ipywidgets.Button(
            description="Stop", icon="stop", disabled=True, layout={"width": "90px"}
        )
        self.figure = LiveFigure()
        self.film = ipywidgets.HTML()
        self._tokenizer = tokenizer
        self._losses = Lines("Loss", torch.zeros(0), {}, "step", "nats per character", levels=floors)
        self._prompt = tokenizer.encode(prompt)[None]
        self._caption = (
            "The loss of each step on its batch, and now and then on the validation text, along axes that "
            "are both logarithmic. Dashed: the "
            f"floors. The model was given “{visible(prompt)}”, and wrote what follows."
        )
        self._stopped = Event()
        self._trainer: Trainer | None = None
        self.stop.on_click(lambda _: self._stopped.set())
        super().__init__([ipywidgets.HBox([self.bar, self.stop, self.words]), self.figure, self.film])
        self.add_class("attention-live-training")

    def __call__(self, trainer: Trainer) -> bool:
        """Show the progress; called after each step. Return whether to stop."""
        if trainer is not self._trainer or self.stop.disabled:
            self._begin(trainer)
        stopped = self._stopped.is_set() or trainer.history.stopped  # by the button, or by an interrupt
        over = stopped or trainer.done
        now = perf_counter()
        if over or self._sample_is_due(trainer.steps_done, now):
            self._take_sample(trainer)
        if over or now - self._drawn >= REDRAW:
            self._drawn = now
            self._show(trainer, stopped)
        if over:
            self.stop.disabled = True
        return stopped

    def _begin(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._started = perf_counter()
        self._first_step = trainer.steps_done - 1  # this call comes after a step
        self._drawn = self._sampled_at = -math.inf
        self._sampled_step = -SAMPLE_STEPS
        self._sample_seconds = 0.0
        self.film.value = ""
        self._stopped.clear()
        self.bar.max = trainer.recipe.steps
        self.stop.disabled = False
        _answer_in_any_thread(self.stop)
        if (shell := get_ipython()) and current_thread() is main_thread():  # elsewhere no cell ends it
            shell.events.register("post_run_cell", self._cell_ended)

    def _cell_ended(self, result: ExecutionResult) -> None:
        """Show why the training was aborted: after an exception the callback is not called again."""
        if self.stop.disabled or not self._trainer:
            return
        self.stop.disabled = True
        steps = f"step {self._trainer.steps_done} of {self._trainer.recipe.steps}"
        self.words.value = f"aborted after {steps}"
        error = result.error_in_exec
        reason = f" by {type(error).__name__}: {error}" if error else "."
        self.figure.caption = f"The training was aborted after {steps}{reason}"

    def _sample_is_due(self, step: int, now: float) -> bool:
        rested = now - self._sampled_at >= self._sample_seconds / SAMPLE_SHARE
        return rested and step - self._sampled_step >= SAMPLE_STEPS

    def _take_sample(self, trainer: Trainer) -> None:
        """Sample with a separate generator, so that the training is not affected."""
        start = perf_counter()
        device = next(trainer.model.parameters()).device
        generator = torch.Generator(device).manual_seed(trainer.steps_done)
        ids = generate(trainer.model, self._prompt.to(device), LENGTH, generator=generator)
        title = f"Written after step {trainer.steps_done}"
        self._sample = Text(title, self._tokenizer.decode(ids[0])[-Text.MOST :])
        name = "your GPT" if trainer.done else f"step {trainer.steps_done}"
        written = self._tokenizer.decode(ids[0, self._prompt.shape[1] :])
        line = html.escape(written.strip().partition("\n")[0])
        self.film.value += f'<pre style="{FRAME}">{name:>10}  {line}</pre>'
        self._sampled_at, self._sampled_step = perf_counter(), trainer.steps_done
        self._sample_seconds = self._sampled_at - start

    def _show(self, trainer: Trainer, stopped: bool) -> None:
        history, step, steps = trainer.history, trainer.steps_done, trainer.recipe.steps
        seconds = perf_counter() - self._started
        if stopped:
            state = f"stopped after step {step} of {steps}"
        elif trainer.done:
            state = f"{steps} steps in {seconds:.0f} s"
        else:
            state = f"step {step} of {steps}"
        left = seconds * (steps - step) / (step - self._first_step)
        rest = "" if stopped or trainer.done else f", {left:.0f} s left"
        self.words.value = f"{state}, loss {history.losses[-1]:.2f}{rest}"
        self.bar.value = step
        training = torch.tensor(history.losses)
        validation = torch.full_like(training, math.nan)
        validation[torch.tensor(history.val_steps, dtype=torch.long) - 1] = torch.tensor(history.val_losses)
        losses = replace(
            self._losses,
            x=torch.arange(1, len(training) + 1),
            curves={"training": training, "validation": validation},
            x_limits=(1, max(2, steps)),
        )
        self.figure.show(losses, self._sample, caption=self._caption)

    def __repr__(self) -> str:
        return ABOUT

    def _repr_mimebundle_(self, **kwargs):
        live = (super()._repr_mimebundle_(**kwargs) or {}) | {"text/plain": ABOUT}
        return self.figure.still()._repr_mimebundle_() | live if self.figure.panels else live


def _answer_in_any_thread(widget: ipywidgets.Widget) -> None:
    """Let messages from the browser to `widget` be handled while a cell runs.

    JupyterLab sends them to a subshell, a thread of its own; but ipykernel 7.4 forwards them to the thread
    that last sent a message to the widget, here the busy one, unless its id is forgotten.
    """
    vars(widget.comm).pop("_reply_subshell_id", None)
