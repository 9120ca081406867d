"""The training loop: steps, evaluation, and interrupts."""

import contextlib
import copy
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from types import FrameType, NoneType
from typing import Any

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from tqdm.auto import tqdm

from attention_course.checks import check_functions, check_path, check_type
from attention_course.gpt import autocast, block_size_of
from attention_course.text import Corpus, get_batch
from attention_course.training.checkpoint import (
    check_moments,
    check_settings,
    check_ties,
    read_checkpoint,
    reading,
    settings_of,
    write_checkpoint,
)
from attention_course.training.loss import AbandonedError, check_length, evaluate, mean_loss
from attention_course.training.recipe import History, Recipe, parameter_groups


class Trainer:
    """Trains a model, one step at a time.

    In a process group (`torchrun`) each batch is split between the processes and gradients are averaged:
    without dropout, the result is that of one process with the whole batch.

    Args:
        model: maps ids (B, T) to logits (B, T, V), and has a block_size. It is trained in place, on its
            device.
        data: training and validation ids.
        recipe: the hyperparameters of the training.
        optimizer: over the model's parameters; AdamW with the recipe's settings if left out. A parameter
            group's learning rate is the schedule's, times the group's `lr_scale` if it has one.
        schedule: maps a step, counted from 0, to its learning rate; `recipe.learning_rate_at` if left out. It
            is not in the checkpoint: pass the same one to the trainer that loads.

    Attributes:
        steps_done: optimizer steps so far.
        seconds: their duration.
        history: losses so far.
        interrupted: whether an interrupt is pending until the end of the step; it ends an evaluation at once.
    """

    def __init__(
        self,
        model: nn.Module,
        data: Corpus,
        recipe: Recipe,
        optimizer: Optimizer | None = None,
        schedule: Callable[[int], float] | None = None,
    ):
        check_type(model, nn.Module, "Trainer", "model")
        check_type(data, Corpus, "Trainer", "data")
        check_type(recipe, Recipe, "Trainer", "recipe")
        check_type(optimizer, (Optimizer, NoneType), "Trainer", "optimizer")
        if schedule is not None:
            check_functions("Trainer", schedule=schedule)
        self.model, self.data, self.recipe = model, data, recipe
        self.block_size = block_size_of(model)
        check_length("training", data.train, self.block_size)
        check_length("validation", data.val, self.block_size)
        if not any(parameter.requires_grad for parameter in model.parameters()):
            raise ValueError(
                "Trainer: no parameter of the model requires a gradient, so there is nothing to train."
            )
        self.device = next(model.parameters()).device
        self.steps_done, self.seconds, self.interrupted = 0, 0.0, False
        self.history = History()
        self.generator = torch.Generator().manual_seed(recipe.seed)
        self.rank, self.processes = 0, 1
        if dist.is_initialized():
            self.rank, self.processes = dist.get_rank(), dist.get_world_size()
        if recipe.batch_size % self.processes:
            raise ValueError(
                f"A batch of {recipe.batch_size} cannot be split between {self.processes} processes. "
                f"Choose a batch_size that {self.processes} divides."
            )
        self._forward = DistributedDataParallel(model) if self.processes > 1 else model
        groups = optimizer.param_groups if optimizer else []
        if not {p for group in groups for p in group["params"]} <= set(model.parameters()):
            raise ValueError(
                "Trainer: the optimizer holds parameters that are not the model's. Make it from "
                "model.parameters(), after the model has been moved to its device."
            )
        self.schedule = schedule or recipe.learning_rate_at
        self.optimizer = optimizer or torch.optim.AdamW(
            parameter_groups(model, recipe.weight_decay),
            lr=recipe.learning_rate,
            betas=(0.9, recipe.beta2),
            fused=self.device.type in ("cpu", "cuda") and not any(p.is_complex() for p in model.parameters()),
        )

    @property
    def done(self) -> bool:
        """Whether all steps have been taken."""
        return self.steps_done >= self.recipe.steps

    @property
    def evaluation_due(self) -> bool:
        """Whether an evaluation is due that has not been done yet."""
        measured = self.history.val_steps[-1:] == [self.steps_done]
        wanted = self.done or self.steps_done % self.recipe.evaluate_every == 0
        return self.steps_done > 0 and wanted and not measured

    def step(self) -> float:
        """Take one optimizer step, evaluate if it is due, and return the training loss.

        If an interrupt cut short the evaluation after the last step, only that evaluation is done.

        Raises:
            FloatingPointError: the loss or the gradient is not finite. The model was not updated.
        """
        if not self.evaluation_due:
            self._update()
        if self.evaluation_due:
            with contextlib.suppress(AbandonedError):
                val_loss = self.evaluate(None if self.done else self.recipe.evaluate_blocks)
                self.history.val_steps.append(self.steps_done)
                self.history.val_losses.append(val_loss)
                self.history.val_seconds.append(self.seconds)
        return self.history.losses[-1]

    def _update(self) -> None:
        recipe = self.recipe
        for group in self.optimizer.param_groups:
            group["lr"] = group.get("lr_scale", 1.0) * self.schedule(self.steps_done)
        start = time.perf_counter()
        x, y = get_batch(self.data.train, self.block_size, recipe.batch_size, self.generator)
        mine = slice(self.rank, None, self.processes)
        x, y = x[mine].to(self.device), y[mine].to(self.device)
        seed = int(torch.randint(2**31, (), generator=self.generator))
        with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(seed + self.rank)  # for dropout, which takes no generator
            with autocast(recipe.precision, self.device):
                loss = mean_loss(self._forward(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), recipe.clip)
        value = self.mean(loss.item())
        self._check_finite("loss", value)
        self._check_finite("norm of the gradient", norm.item())
        self.optimizer.step()
        self.seconds += time.perf_counter() - start
        self.steps_done += 1
        self.history.losses.append(value)

    def _check_finite(self, what: str, value: float) -> None:
        """Raise FloatingPointError unless `value`, which is the same in all processes, is finite."""
        rate = self.optimizer.param_groups[0]["lr"]
        if not math.isfinite(value):
            raise FloatingPointError(
                f"After step {self.steps_done} of {self.recipe.steps} the {what} is {value}: training has "
                f"diverged, at a learning rate of {rate:.2g}. The model and an earlier checkpoint stay as "
                "they are. Start over with a smaller learning_rate or a longer warmup."
            )

    def mean(self, value: float) -> float:
        """Average a number over all processes; a collective, which all of them must call."""
        if self.processes > 1:
            shared = torch.tensor(value, device=self.device)
            dist.all_reduce(shared)
            value = shared.item() / self.processes
        return value

    def evaluate(self, blocks: int | None = None) -> float:
        """Return the validation loss in nats per token, of the whole text or of that many blocks."""
        loss = evaluate(self.model, self.data.val, self.recipe.precision, blocks, lambda: self.interrupted)
        self._check_finite("validation loss", loss)
        return loss

    @cached_property
    def _settings(self) -> dict[str, Any]:
        return settings_of(self.model, self.data, self.recipe, self.optimizer)

    def _checkpoint(self) -> dict[str, Any]:
        return {
            "settings": self._settings,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict()["state"],
            "history": asdict(self.history),
            "steps_done": self.steps_done,
            "seconds": self.seconds,
            "generator": self.generator.get_state(),
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(self.optimizer.state_dict() | {"state": state["optimizer"]})
        self.generator.set_state(state["generator"])
        self.history = History(**state["history"])
        self.steps_done, self.seconds = state["steps_done"], state["seconds"]

    def save(self, path: str | Path) -> None:
        """Write a checkpoint. On failure an existing file is left as it was."""
        check_path(path, "save")
        write_checkpoint(path, self._checkpoint())

    def load(self, path: str | Path) -> None:
        """Resume from a checkpoint: later steps are those of an uninterrupted run.

        A checkpoint of another model, recipe or text raises ValueError, and nothing is changed.
        """
        check_path(path, "load")
        state = read_checkpoint(path)
        check_settings(path, state["settings"], self._settings)
        before = copy.deepcopy(self._checkpoint())
        try:
            with reading(path):
                check_ties(state["model"], self.model)
                check_moments(state["optimizer"], self.optimizer)
                self._restore(state)
        except BaseException:
            self._restore(before)
            raise


Callback = Callable[[Trainer], bool | None]


def train(
    model: nn.Module,
    data: Corpus,
    recipe: Recipe,
    *,
    callback: Callback | None = None,
    name: str = "training",
) -> History:
    """Train a model in place, with a progress bar, and return its losses.

    The kernel's stop button ends it and keeps the model.

    Args:
        model: see `Trainer`.
        data: see `Trainer`.
        recipe: see `Trainer`.
        callback: called with the Trainer after every step; returning True stops. It replaces the bar.
        name: label of the bar.

    Raises:
        FloatingPointError: a loss is not finite. The model is that of the last step with a finite loss.
        MemoryError: a batch does not fit in memory.
        KeyboardInterrupt: stop was pressed twice; the step was interrupted.
    """
    return run(Trainer(model, data, recipe), callback=callback, name=name)


def run(trainer: Trainer, *, callback: Callback | None = None, name: str = "training") -> History:
    """Take all remaining steps; see `train`."""
    check_type(trainer, Trainer, "run", "trainer")
    if callback is not None:
        check_functions("run", callback=callback)
    check_type(name, str, "run", "name")
    history, stop = trainer.history, False
    bar = tqdm(
        total=trainer.recipe.steps,
        initial=trainer.steps_done,
        desc=name,
        miniters=max(1, trainer.recipe.steps // 100),  # the same number of updates on any machine
        bar_format="{desc} {bar} {n_fmt} of {total_fmt}, {remaining} left",
        disable=callback is not None or trainer.rank > 0,
    )
    trainer.model.train()
    try:
        with bar, defer_interrupts(trainer):
            while not stop and (trainer.evaluation_due or not trainer.done):
                trainer.step()
                bar.update(trainer.steps_done - bar.n)
                stop = bool(callback and callback(trainer)) or history.stopped
                stop = trainer.mean(float(stop)) > 0  # if one process stops, all stop after this step
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "tried to allocate" not in str(error).lower():
            raise
        raise MemoryError(
            f"A batch of {trainer.recipe.batch_size} sequences of {trainer.block_size} tokens does not fit "
            "in memory. Choose a smaller batch_size, or a smaller model."
        ) from error
    finally:
        history.stopped = trainer.evaluation_due or not trainer.done
        trainer.model.eval()
    return history


@contextlib.contextmanager
def defer_interrupts(trainer: Trainer) -> Iterator[None]:
    """Defer SIGINT (Ctrl-C, the kernel's stop button) to the end of the step, by setting `history.stopped`.

    A second one raises KeyboardInterrupt at once.
    """
    previous, trainer.history.stopped = signal.getsignal(signal.SIGINT), False

    def handle(signum: int, frame: FrameType | None) -> None:
        trainer.history.stopped = trainer.interrupted = True
        signal.signal(signal.SIGINT, previous)

    if threading.current_thread() is not threading.main_thread() or not callable(previous):
        yield  # this thread gets no signals, or they are ignored
        return
    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
        trainer.interrupted = False
