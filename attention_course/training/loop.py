"""The training loop: one step at a time, what is measured meanwhile, and how it is stopped."""

import contextlib
import copy
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from types import FrameType, NoneType

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from tqdm.auto import tqdm

from attention_course.checks import check_type
from attention_course.gpt import autocast, block_size_of
from attention_course.text import Data, get_batch
from attention_course.training.checkpoint import Checkpoint, read_checkpoint, reserved, write_checkpoint
from attention_course.training.loss import AbandonedError, check_length, evaluate, mean_loss
from attention_course.training.recipe import History, Recipe, parameter_groups
from attention_course.training.task import (
    Task,
    after_one_step,
    check_optimizer,
    check_task,
    task_of,
)


class Trainer:
    """A model, its optimizer and its batches, one step at a time.

    If a process group is there (`torchrun`), each process takes its share of every batch, and the gradients
    are averaged: without dropout, the result is that of one process with the whole batch.

    Args:
        model: maps ids (B, T) to logits (B, T, V), and has a block_size. It is trained in place, on the
            device where it is.
        data: what it learns from.
        recipe: how.
        optimizer: of the model's parameters; AdamW as the recipe says if left out.
        schedule: the learning rate of update number `step`, counted from 0; `recipe.learning_rate_at` if left
            out. A checkpoint does not hold it: give the same one to the trainer that loads.

    Attributes:
        steps_done: updates so far.
        seconds: what they took.
        history: what was measured.
        interrupted: whether an interrupt waits for the end of the step; it ends an evaluation at once.

    Raises:
        TypeError: something is of another kind.
        ValueError: a text is shorter than block_size, or the processes cannot share a batch.
    """

    def __init__(
        self,
        model: nn.Module,
        data: Data,
        recipe: Recipe,
        optimizer: Optimizer | None = None,
        schedule: Callable[[int], float] | None = None,
    ):
        check_type(model, nn.Module, "Trainer", "model")
        check_type(data, Data, "Trainer", "data")
        check_type(recipe, Recipe, "Trainer", "recipe")
        check_type(optimizer, (Optimizer, NoneType), "Trainer", "optimizer")
        self.model, self.data, self.recipe = model, data, recipe
        self.block_size = block_size_of(model)
        check_length("training", data.train, self.block_size)
        check_length("validation", data.val, self.block_size)
        self.device = next(model.parameters()).device
        self.steps_done, self.seconds, self.interrupted = 0, 0.0, False
        self.history = History()
        self.generator = torch.Generator().manual_seed(recipe.seed)
        self.rank, self.processes = 0, 1
        if dist.is_initialized():
            self.rank, self.processes = dist.get_rank(), dist.get_world_size()
        if recipe.batch_size % self.processes:
            raise ValueError(
                f"A batch of {recipe.batch_size} cannot be shared by {self.processes} processes. "
                f"Choose a batch_size that {self.processes} divides."
            )
        self._forward = DistributedDataParallel(model) if self.processes > 1 else model
        groups = optimizer.param_groups if optimizer else []
        if not {p for group in groups for p in group["params"]} <= set(model.parameters()):
            raise ValueError(
                "Trainer: the optimizer holds parameters that are not the model's, and would train nothing. "
                "Make it from model.parameters(), after the model has been moved to its device."
            )
        self.schedule = schedule or recipe.learning_rate_at
        self.optimizer = optimizer or torch.optim.AdamW(
            parameter_groups(model, recipe.weight_decay),
            lr=recipe.learning_rate,
            betas=(0.9, recipe.beta2),
            fused=self.device.type in ("cpu", "cuda"),
        )

    @property
    def done(self) -> bool:
        """Whether all steps have been taken."""
        return self.steps_done >= self.recipe.steps

    @property
    def due(self) -> bool:
        """Whether the validation loss after the last step has yet to be measured."""
        measured = self.history.val_steps[-1:] == [self.steps_done]
        wanted = self.done or self.steps_done % self.recipe.evaluate_every == 0
        return self.steps_done > 0 and wanted and not measured

    def check_memory(self) -> None:
        """Ask for the memory that the logits of a batch and their gradients take, and fill nothing."""
        tokens = self.recipe.batch_size // self.processes * self.block_size
        torch.empty(2, tokens, self.data.tokenizer.vocab_size, device=self.device)

    def step(self) -> float:
        """Take one step: draw a batch, compute the loss and its gradients, update. Return the loss.

        Where an interrupt has cut the evaluation after the last step short, that is made up for instead.

        Raises:
            FloatingPointError: the loss or the gradient is not finite. No update was made.
        """
        if not self.due:
            self._update()
        if self.due:
            with contextlib.suppress(AbandonedError):
                val_loss = self.evaluate(None if self.done else self.recipe.evaluate_blocks)
                self.history.val_steps.append(self.steps_done)
                self.history.val_losses.append(val_loss)
                self.history.val_seconds.append(self.seconds)
        return self.history.losses[-1]

    def _update(self) -> None:
        recipe = self.recipe
        for group in self.optimizer.param_groups:
            group["lr"] = self.schedule(self.steps_done)
        start = time.perf_counter()
        x, y = get_batch(self.data.train, self.block_size, recipe.batch_size, self.generator)
        mine = slice(self.rank, None, self.processes)
        x, y = x[mine].to(self.device), y[mine].to(self.device)
        seed = int(torch.randint(2**31, (), generator=self.generator))
        with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(seed + self.rank)  # of dropout, which has no generator of its own
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
        """Raise FloatingPointError unless a number is finite; it is the same in all processes."""
        rate = self.optimizer.param_groups[0]["lr"]
        if not math.isfinite(value):
            raise FloatingPointError(
                f"After step {self.steps_done} of {self.recipe.steps} the {what} is {value}: the training "
                f"diverges, with a learning rate of {rate:.2g}. The model and an earlier checkpoint stay as "
                "they are. Begin anew with a smaller learning_rate or a longer warmup."
            )

    def mean(self, value: float) -> float:
        """Average a number over all processes; each must call this."""
        if self.processes > 1:
            shared = torch.tensor(value, device=self.device)
            dist.all_reduce(shared)
            value = shared.item() / self.processes
        return value

    def evaluate(self, blocks: int | None = None) -> float:
        """Return the loss on the validation text, or on so many blocks of it, in nats per token.

        Raises:
            FloatingPointError: it is not finite.
        """
        loss = evaluate(self.model, self.data.val, self.recipe.precision, blocks, lambda: self.interrupted)
        self._check_finite("validation loss", loss)
        return loss

    @cached_property
    def _task(self) -> Task:
        return task_of(self.model, self.data, self.recipe, self.optimizer)

    def _checkpoint(self) -> Checkpoint:
        return {
            "task": self._task,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "history": asdict(self.history),
            "steps_done": self.steps_done,
            "seconds": self.seconds,
            "generator": self.generator.get_state(),
        }

    def _restore(self, state: Checkpoint) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.history = History(**state["history"])
        self.steps_done, self.seconds = state["steps_done"], state["seconds"]
        self.generator.set_state(state["generator"])

    def save(self, path: str | Path) -> None:
        """Write everything that `load` needs to go on. If that fails, an older file of this name stays.

        Raises:
            OSError: the file could not be written.
        """
        write_checkpoint(path, self._checkpoint())

    @contextlib.contextmanager
    def saving(self, path: str | Path) -> Iterator[Callable[[], None]]:
        """Yield a function that saves to this file, as `save` does. No other run may do so meanwhile.

        The room that the last checkpoint will take is taken now, and again after each one for the next: if
        the disk is full by then, that is said when a step has been saved, and none is lost.

        Raises:
            OSError: the file cannot be written, or another run saves to it.
        """
        optimizer = after_one_step(self.optimizer).state_dict()
        growth = 32 * self.recipe.steps + 4096  # bytes of history that a step adds, and a page
        with reserved(path, {**self._checkpoint(), "optimizer": optimizer}, growth) as write:
            yield lambda: write(self._checkpoint())

    def load(self, path: str | Path) -> None:
        """Go on from a checkpoint: every later step is the one that an uninterrupted run would take.

        All of it is checked before anything is changed.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file is no checkpoint, or one of another model, recipe or text.
        """
        state = read_checkpoint(path)
        check_task(path, state["task"], self._task)
        check_optimizer(path, state["optimizer"], self.optimizer)
        before = copy.deepcopy(self._checkpoint())
        try:
            self._restore(state)
        except BaseException:
            self._restore(before)
            raise


Callback = Callable[[Trainer], bool | None]


def train(
    model: nn.Module, data: Data, recipe: Recipe, *, callback: Callback | None = None, name: str = "training"
) -> History:
    """Train a model in place, behind a progress bar. The kernel's stop button ends it and keeps the model.

    Args:
        model: see `Trainer`.
        data: what it learns from.
        recipe: how.
        callback: called after every step with the Trainer; True ends the training. It replaces the bar.
        name: stands before the bar.

    Returns:
        What was measured.

    Raises:
        TypeError, ValueError: see `Trainer`.
        FloatingPointError: a loss is not finite. The model is that of the last step with a finite one.
        MemoryError: there is too little memory for a batch.
        KeyboardInterrupt: stop was pressed twice, and a step was left half done.
    """
    return run(Trainer(model, data, recipe), callback=callback, name=name)


def run(trainer: Trainer, *, callback: Callback | None = None, name: str = "training") -> History:
    """Take all steps that are left, as `train` does."""
    history, stop = trainer.history, False
    bar = tqdm(
        total=trainer.recipe.steps,
        initial=trainer.steps_done,
        desc=name,
        miniters=max(1, trainer.recipe.steps // 100),  # a slow machine sends no more messages than a fast one
        bar_format="{desc} {bar} {n_fmt} of {total_fmt}, {remaining} left",
        disable=callback is not None or trainer.rank > 0,
    )
    trainer.model.train()
    try:
        with bar, defer_interrupts(trainer), limit_threads():
            trainer.check_memory()
            while not stop and (trainer.due or not trainer.done):
                trainer.step()
                bar.update(trainer.steps_done - bar.n)
                asked = bool(callback and callback(trainer)) or history.stopped
                stop = trainer.mean(float(asked)) > 0  # by one process: all leave after the same step
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "tried to allocate" not in str(error).lower():
            raise
        raise MemoryError(
            f"There is too little memory for a batch of {trainer.recipe.batch_size} texts of "
            f"{trainer.block_size} tokens. Choose a smaller batch_size, or a smaller model."
        ) from error
    finally:
        history.stopped = trainer.due or not trainer.done
        trainer.model.eval()
    return history


@contextlib.contextmanager
def defer_interrupts(trainer: Trainer) -> Iterator[None]:
    """Let Ctrl-C, and the kernel's stop button, set `history.stopped`, and leave no step half done.

    A second one does not wait: it raises KeyboardInterrupt there and then.
    """
    usual, trainer.history.stopped = signal.getsignal(signal.SIGINT), False

    def note(number: int, frame: FrameType | None) -> None:
        trainer.history.stopped = trainer.interrupted = True
        signal.signal(signal.SIGINT, usual)

    if threading.current_thread() is not threading.main_thread() or not callable(usual):
        yield  # interrupts arrive elsewhere, or are ignored
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
        trainer.interrupted = False


@contextlib.contextmanager
def limit_threads() -> Iterator[None]:
    """Let at most 8 threads work: in a model of this size more would wait. OMP_NUM_THREADS overrides it."""
    usual = torch.get_num_threads()
    torch.set_num_threads(usual if "OMP_NUM_THREADS" in os.environ else min(usual, 8))
    try:
        yield
    finally:
        torch.set_num_threads(usual)
