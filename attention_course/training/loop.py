"""The training loop: one step at a time, what is measured meanwhile, and how it is stopped."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from types import FrameType

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from tqdm.auto import tqdm

from attention_course.gpt import autocast, block_size_of, evaluating
from attention_course.text import Data, get_batch
from attention_course.training.checkpoint import Task, check_task, read_checkpoint, task_of, write_checkpoint
from attention_course.training.recipe import History, Recipe


def mean_loss(logits: Float[Tensor, "B T V"], targets: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
    """Return the mean cross-entropy in nats per token."""
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def check_length(kind: str, ids: Int[Tensor, " N"], block_size: int) -> None:
    """Raise ValueError unless a piece of block_size tokens, and one that follows, can be cut from `ids`."""
    if len(ids) <= block_size:
        raise ValueError(
            f"The {kind} text has {len(ids)} tokens, too few for block_size = {block_size}: at least "
            f"{block_size + 1} are needed. Take a longer text or a model with a smaller block_size."
        )


def evaluate(model: nn.Module, ids: Int[Tensor, " N"], precision: str = "auto") -> float:
    """Return the mean loss on `ids`, cut into pieces of block_size tokens, in nats per token.

    The last tokens, too few for a piece, are left out.

    Raises:
        ValueError: there are not even tokens for one piece.
    """
    block_size, device = block_size_of(model), next(model.parameters()).device
    check_length("validation", ids, block_size)
    starts = torch.arange(0, len(ids) - block_size, block_size)
    total = 0.0
    with evaluating(model), autocast(precision, device):
        for some in starts.split(64):
            pieces = ids[some[:, None] + torch.arange(block_size + 1)].to(device)
            total += mean_loss(model(pieces[:, :-1]), pieces[:, 1:]).item() * len(some)
    return total / len(starts)


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict]:
    """Return what an optimizer takes: matrices decay, biases and norms do not (as in nanoGPT's model.py)."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


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

    Raises:
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
        self.model, self.data, self.recipe = model, data, recipe
        self.block_size = block_size_of(model)
        check_length("training", data.train, self.block_size)
        check_length("validation", data.val, self.block_size)
        self.device = next(model.parameters()).device
        self.steps_done, self.seconds = 0, 0.0
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

    def step(self) -> float:
        """Take one step: draw a batch, compute the loss and its gradients, update. Return the loss."""
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
        nn.utils.clip_grad_norm_(self.model.parameters(), recipe.clip)
        self.optimizer.step()
        value = self.mean(loss.item())
        self.seconds += time.perf_counter() - start
        self.steps_done += 1
        self.history.losses.append(value)
        if self.steps_done % recipe.evaluate_every == 0 or self.done:
            val_loss = self.evaluate()
            self.history.val_steps.append(self.steps_done)
            self.history.val_losses.append(val_loss)
            self.history.val_seconds.append(self.seconds)
        return value

    def mean(self, value: float) -> float:
        """Average a number over all processes; each must call this."""
        if self.processes > 1:
            shared = torch.tensor(value, device=self.device)
            dist.all_reduce(shared)
            value = shared.item() / self.processes
        return value

    def evaluate(self) -> float:
        """Return the loss on the validation text, in nats per token."""
        return evaluate(self.model, self.data.val, self.recipe.precision)

    @cached_property
    def _task(self) -> Task:
        return task_of(self.model, self.data, self.recipe, self.optimizer)

    def save(self, path: str | Path) -> None:
        """Write everything that `load` needs to go on. If that fails, an older file of this name stays.

        Raises:
            OSError: the file could not be written.
        """
        write_checkpoint(
            path,
            {
                "task": self._task,
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "history": asdict(self.history),
                "steps_done": self.steps_done,
                "seconds": self.seconds,
                "generator": self.generator.get_state(),
            },
        )

    def load(self, path: str | Path) -> None:
        """Go on from a checkpoint: every later step is the one that an uninterrupted run would take.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file is no checkpoint, or one of another model, recipe or text.
        """
        state = read_checkpoint(path)
        check_task(path, state["task"], self._task)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.history = History(**state["history"])
        self.steps_done, self.seconds = state["steps_done"], state["seconds"]
        self.generator.set_state(state["generator"])


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
        ValueError: see `Trainer`.
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
        with bar, interrupts_wait(history), few_threads():
            while not (trainer.done or stop):
                trainer.step()
                bar.update()
                asked = bool(callback and callback(trainer)) or history.stopped
                stop = trainer.mean(float(asked)) > 0  # by one process: all leave after the same step
    finally:
        history.stopped = not trainer.done
        trainer.model.eval()
    return history


@contextlib.contextmanager
def interrupts_wait(history: History) -> Iterator[None]:
    """Let Ctrl-C, and the kernel's stop button, set `history.stopped`, and leave no step half done.

    A second one does not wait: it raises KeyboardInterrupt there and then.
    """
    usual, history.stopped = signal.getsignal(signal.SIGINT), False

    def note(number: int, frame: FrameType | None) -> None:
        history.stopped = True
        signal.signal(signal.SIGINT, usual)

    if threading.current_thread() is not threading.main_thread() or not callable(usual):
        yield  # interrupts arrive elsewhere, or are ignored
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)


@contextlib.contextmanager
def few_threads() -> Iterator[None]:
    """Let at most 8 threads work: in a model of this size more would wait. OMP_NUM_THREADS overrides it."""
    usual = torch.get_num_threads()
    torch.set_num_threads(usual if "OMP_NUM_THREADS" in os.environ else min(usual, 8))
    try:
        yield
    finally:
        torch.set_num_threads(usual)
