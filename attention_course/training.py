"""Rung 8: training, in a notebook, from the command line, or by several processes that share the work.

    python -m attention_course.training --text stories
    python -m attention_course.training --text tiny-shakespeare --config shakespeare --checkpoint run.pt
    torchrun --nproc-per-node=2 -m attention_course.training --text stories

A run that was stopped goes on from its checkpoint when the same command is given again.
"""

import argparse
import contextlib
import hashlib
import io
import math
import os
import signal
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from tqdm.auto import tqdm

from attention_course.gpt import GPT, GPTConfig, generate
from attention_course.names import look_up
from attention_course.text import CharTokenizer, Data, answers, get_batch, load_text, ngram_floor


@dataclass(frozen=True)
class Recipe:
    """How to train.

    Attributes:
        steps: number of updates.
        batch_size: texts of block_size tokens that one update looks at, over all processes.
        learning_rate: the highest one; it rises for `warmup` steps and then falls like a cosine.
        final_learning_rate: where the cosine ends.
        warmup: steps until the learning rate is reached.
        weight_decay: of matrices; biases and LayerNorms have none.
        beta2: how slowly AdamW forgets squared gradients.
        clip: the largest norm that the gradient of one step may have.
        evaluate_every: steps between two validation losses.
        precision: "float32", "bfloat16", or "auto", which is the faster one on this machine.
        seed: of the batches, and of what dropout sets to zero.

    Raises:
        ValueError: a number is out of range.
    """

    steps: int = 600
    batch_size: int = 24
    learning_rate: float = 8e-3
    final_learning_rate: float = 0.0
    warmup: int = 50
    weight_decay: float = 0.1
    beta2: float = 0.95
    clip: float = 1.0
    evaluate_every: int = 100
    precision: str = "auto"
    seed: int = 0

    def __post_init__(self):
        for name, least in (("steps", 1), ("batch_size", 1), ("evaluate_every", 1), ("warmup", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise ValueError(f"Recipe: {name} = {value!r}, expected an integer of at least {least}.")
        if not isinstance(self.seed, int) or not 0 <= self.seed < 2**63:
            raise ValueError(f"Recipe: seed = {self.seed!r}, expected an integer, 0 <= seed < 2**63.")
        for name in ("learning_rate", "clip"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"Recipe: {name} = {getattr(self, name)!r}, expected a number above 0.")
        for name, below in (("beta2", 1), ("weight_decay", math.inf), ("final_learning_rate", math.inf)):
            if not 0 <= getattr(self, name) < below:
                raise ValueError(f"Recipe: {name} = {getattr(self, name)!r}, expected 0 <= {name} < {below}.")
        look_up(self.precision, dict.fromkeys(("auto", "float32", "bfloat16")), "precision")

    def learning_rate_at(self, step: int) -> float:
        """Return the learning rate of update number `step`, counted from 0."""
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        done = min(1.0, (step - self.warmup) / max(1, self.steps - self.warmup))
        falling = 0.5 * (1 + math.cos(math.pi * done))
        return self.final_learning_rate + falling * (self.learning_rate - self.final_learning_rate)


@dataclass
class History:
    """What a run measured.

    Attributes:
        losses: training loss of every step, in nats per token.
        val_steps: the steps after which the validation loss was measured.
        val_losses: what it was.
        val_seconds: seconds of training until then, without the measuring.
        stopped: whether somebody stopped the run before its end.
    """

    losses: list[float] = field(default_factory=list)
    val_steps: list[int] = field(default_factory=list)
    val_losses: list[float] = field(default_factory=list)
    val_seconds: list[float] = field(default_factory=list)
    stopped: bool = False


def fast_precision(device: torch.device) -> torch.dtype:
    """Return bfloat16 where there are circuits that multiply matrices of it, and float32 elsewhere.

    On processors with AMX a step of our models takes 0.6 to 0.7 of the time. With AVX512_BF16 alone it takes
    0.9 to 1.2, and up to 2.6 where bfloat16 is imitated.
    """
    if device.type == "cuda":
        able = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        able = device.type == "cpu" and torch.cpu.get_capabilities().get("amx_bf16", False)
    return torch.bfloat16 if able else torch.float32


def precision_of(name: str, device: torch.device) -> torch.autocast:
    """Return a context in which matrix products have this precision: "float32", "bfloat16" or "auto"."""
    dtype = fast_precision(device) if name == "auto" else getattr(torch, name)
    return torch.autocast(device.type, torch.bfloat16, enabled=dtype == torch.bfloat16)


def mean_loss(logits: Float[Tensor, "B T V"], targets: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
    """Return the mean cross-entropy in nats per token."""
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


@contextlib.contextmanager
def evaluating(model: nn.Module, precision: str) -> Iterator[torch.device]:
    """Put the model into eval mode, without gradients, and give its device; then leave it as it was."""
    training, device = model.training, next(model.parameters()).device
    model.eval()
    try:
        with torch.no_grad(), precision_of(precision, device):
            yield device
    finally:
        model.train(training)


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
    block_size = model.block_size
    check_length("validation", ids, block_size)
    with evaluating(model, precision) as device:
        starts = torch.arange(0, len(ids) - block_size, block_size)
        total = 0.0
        for some in starts.split(64):
            pieces = ids[some[:, None] + torch.arange(block_size + 1)].to(device)
            logits, _ = model(pieces[:, :-1])
            total += mean_loss(logits, pieces[:, 1:]).item() * len(some)
    return total / len(starts)


def recall(model: nn.Module, text: str, tokenizer: CharTokenizer, precision: str = "auto") -> float:
    """Return the share of answers in a text of stories that the model completes right.

    A model completes an answer right if, at each of its characters, what it finds most probable is what
    stands there; it sees the block_size characters before. Answers with less text before them do not count,
    nor do those after the first thousand.

    Raises:
        ValueError: the text has no answer that counts.
    """
    ids, block_size = tokenizer.encode(text), model.block_size
    spans = [(start, end) for start, end in answers(text) if end > block_size][:1000]
    if not spans:
        raise ValueError(
            f"recall: no answer in this text of {len(text)} characters has block_size = {block_size} before "
            "it. Pass a longer stretch of stories, as write_stories() makes them."
        )
    right = 0
    with evaluating(model, precision) as device:
        for i in range(0, len(spans), 64):
            some = spans[i : i + 64]
            pieces = torch.stack([ids[end - block_size - 1 : end] for _, end in some]).to(device)
            hits = model(pieces[:, :-1])[0].argmax(dim=-1) == pieces[:, 1:]
            right += sum(bool(row[start - end :].all()) for row, (start, end) in zip(hits, some, strict=True))
    return right / len(spans)


class Trainer:
    """A model, its optimizer and its batches, one step at a time.

    If a process group is there (`torchrun`), each process takes its share of every batch, and the gradients
    are averaged: without dropout, the result is that of one process with the whole batch.

    Args:
        model: maps ids (B, T) to logits (B, T, V) and something else, and has a block_size. It is trained in
            place, on the device where it is.
        data: what it learns from.
        recipe: how.

    Attributes:
        steps_done: updates so far.
        seconds: what they took.
        history: what was measured.

    Raises:
        ValueError: a text is shorter than block_size, or the processes cannot share a batch.
    """

    def __init__(self, model: nn.Module, data: Data, recipe: Recipe):
        check_length("training", data.train, model.block_size)
        check_length("validation", data.val, model.block_size)
        self.model, self.data, self.recipe = model, data, recipe
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
        parameters = list(model.parameters())
        groups = [
            {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": recipe.weight_decay},
            {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(
            [group for group in groups if group["params"]],
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
            group["lr"] = recipe.learning_rate_at(self.steps_done)
        start = time.perf_counter()
        x, y = get_batch(self.data.train, self.model.block_size, recipe.batch_size, self.generator)
        mine = slice(self.rank, None, self.processes)
        x, y = x[mine].to(self.device), y[mine].to(self.device)
        seed = int(torch.randint(2**31, (), generator=self.generator))
        with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(seed + self.rank)  # of dropout, which has no generator of its own
            with precision_of(recipe.precision, self.device):
                loss = mean_loss(self._forward(x)[0], y)
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
    def _task(self) -> dict:
        """Say what is trained, on what and how: a checkpoint of another task does not fit."""
        return {
            "config": asdict(self.model.config) if isinstance(self.model, GPT) else None,
            "model": sizes(self.model.state_dict()),
            "recipe": asdict(self.recipe),
            "training text": fingerprint(self.data.train),
            "validation text": fingerprint(self.data.val),
            "characters": self.data.tokenizer.characters,
        }

    def save(self, path: str | Path) -> None:
        """Write everything that `load` needs to go on. If that fails, an older file of this name stays.

        Raises:
            OSError: the file could not be written.
        """
        path, whole = Path(path), io.BytesIO()
        state = {
            "format": FORMAT,
            "task": self._task,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "history": asdict(self.history),
            "steps_done": self.steps_done,
            "seconds": self.seconds,
            "generator": self.generator.get_state(),
        }
        torch.save(state, whole)
        half = path.with_name(f"{path.name}.half")  # one name: what a killed run left is written over
        try:
            with open(half, "wb") as file:
                file.write(whole.getbuffer())
                file.flush()
                os.fsync(file.fileno())
            os.replace(half, path)
        except OSError as error:
            raise OSError(
                f"The checkpoint {path} could not be written: {error.strerror}. "
                "Name a file in a folder that exists, that you may write to, and that has room."
            ) from error
        finally:
            with contextlib.suppress(OSError):
                half.unlink()

    def load(self, path: str | Path) -> None:
        """Go on from a checkpoint: every later step is the one that an uninterrupted run would take.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file is no checkpoint, or one of another model, recipe or text.
        """
        state = read_checkpoint(path)
        for part, ours in self._task.items():
            theirs = state["task"].get(part)
            if ours != theirs:
                raise ValueError(
                    f"{path} does not fit: its {part} is another one{difference(theirs, ours)}. "
                    "Train with what it was made with, or save to another file."
                )
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.history = History(**state["history"])
        self.steps_done, self.seconds = state["steps_done"], state["seconds"]
        self.generator.set_state(state["generator"])


FORMAT = "attention_course checkpoint 1"
PARTS = {"task", "model", "optimizer", "history", "steps_done", "seconds", "generator"}


def fingerprint(ids: Int[Tensor, " N"]) -> str:
    """Return a checksum of a text."""
    return hashlib.sha256(ids.cpu().contiguous().numpy()).hexdigest()


def sizes(parameters: dict[str, Tensor]) -> dict[str, list[int]]:
    """Return the shape of each entry of a state_dict."""
    return {name: list(value.shape) for name, value in parameters.items()}


def difference(theirs: object, ours: object) -> str:
    """Name the entries in which two dictionaries differ; other values are too long to be shown."""
    if not (isinstance(theirs, dict) and isinstance(ours, dict)):
        return ""
    names = [name for name in {**theirs, **ours} if theirs.get(name) != ours.get(name)]
    listed = ", ".join(f"{name} = {theirs.get(name)} there and {ours.get(name)} here" for name in names[:3])
    return f": {listed}{', ...' if len(names) > 3 else ''}"


def read_checkpoint(path: str | Path) -> dict:
    """Return what `Trainer.save` wrote. No code in the file is run.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is no checkpoint of this course, or it is damaged.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"There is no checkpoint file {path}. Trainer.save writes one.")
    content = io.BytesIO(Path(path).read_bytes())
    try:
        with zipfile.ZipFile(content) as archive:  # torch.load does not compare checksums
            if damaged := archive.testzip():
                raise ValueError(f"the checksum of {damaged} is wrong")
        content.seek(0)
        state = torch.load(content, map_location="cpu", weights_only=True)
        if state["format"] != FORMAT:
            raise ValueError(f"its format is {state['format']!r}, expected {FORMAT!r}")
        if missing := PARTS - state.keys():
            raise ValueError(f"it has no {', '.join(sorted(missing))}")
        if sizes(state["model"]) != state["task"]["model"]:
            raise ValueError("its parameters are not those of its model")
    except Exception as error:  # a foreign file makes torch.load raise many kinds
        reason = error if isinstance(error, ValueError) else type(error).__name__
        raise ValueError(
            f"{path} is not a checkpoint of this course, or it is damaged. Name another file; if this was a "
            f"checkpoint, delete it and begin anew. (Reading it failed: {reason}.)"
        ) from error
    return state


def load_model(path: str | Path) -> tuple[GPT, CharTokenizer]:
    """Return the GPT of a checkpoint, in eval mode, and the tokenizer that goes with it.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is no checkpoint, or not one of a GPT.
    """
    state = read_checkpoint(path)
    task = state["task"]
    if task["config"] is None:
        raise ValueError(f"{path} holds a model that is no GPT. Build that model, and use Trainer.load.")
    model = GPT(GPTConfig(**task["config"]))
    model.load_state_dict(state["model"])
    return model.eval(), CharTokenizer(task["characters"])


Watch = Callable[[Trainer], bool | None]


def train(
    model: nn.Module, data: Data, recipe: Recipe, *, watch: Watch | None = None, name: str = "training"
) -> History:
    """Train a model in place, behind a progress bar. The kernel's stop button ends it and keeps the model.

    Args:
        model: see `Trainer`.
        data: what it learns from.
        recipe: how.
        watch: called after every step with the Trainer; True ends the training. It replaces the bar.
        name: stands before the bar.

    Returns:
        What was measured.

    Raises:
        ValueError: see `Trainer`.
        KeyboardInterrupt: stop was pressed twice, and a step was left half done.
    """
    return run(Trainer(model, data, recipe), watch=watch, name=name)


def run(trainer: Trainer, *, watch: Watch | None = None, name: str = "training") -> History:
    """Take all steps that are left, as `train` does."""
    history, stop = trainer.history, False
    bar = tqdm(
        total=trainer.recipe.steps,
        initial=trainer.steps_done,
        desc=name,
        miniters=max(1, trainer.recipe.steps // 100),  # a slow machine sends no more messages than a fast one
        bar_format="{desc} {bar} {n_fmt} of {total_fmt}, {remaining} left",
        disable=watch is not None or trainer.rank > 0,
    )
    trainer.model.train()
    try:
        with bar, interrupts_wait(history), few_threads():
            while not (trainer.done or stop):
                trainer.step()
                bar.update()
                asked = bool(watch and watch(trainer)) or history.stopped
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

    def note(number, frame):
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


# The command line

SIZES = {
    "stories": dict(block_size=128, n_layer=2, n_head=4, n_embd=64),
    "shakespeare": dict(block_size=64, n_layer=4, n_head=4, n_embd=128),
    "shakespeare-gpu": dict(block_size=256, n_layer=6, n_head=6, n_embd=384, dropout=0.2),
}
RECIPES = {
    "stories": Recipe(steps=900),
    "shakespeare": Recipe(steps=1100, batch_size=20, learning_rate=2.5e-3, evaluate_every=100),
    "shakespeare-gpu": Recipe(steps=5000, batch_size=64, learning_rate=2e-3, warmup=200, evaluate_every=250),
}
INTEGERS = ("steps", "batch_size", "evaluate_every", "seed")
CHANGES = {**dict.fromkeys(INTEGERS, int), "learning_rate": float, "precision": str}  # of the recipe


def arguments() -> argparse.ArgumentParser:
    """Return what the command line takes."""
    parser = argparse.ArgumentParser(
        prog="python -m attention_course.training",
        usage="%(prog)s [options]",
        description="Train a GPT on a text. Print its loss beside that of tables that count what follows.",
        epilog="torchrun --nproc-per-node=2 -m attention_course.training [options] lets two processes share "
        "each batch. Ctrl-C ends the training; with --checkpoint, the same command goes on later.",
    )
    parser.add_argument("--text", default="stories", help="stories, tiny-shakespeare, or a UTF-8 file")
    parser.add_argument("--config", default="stories", choices=SIZES, help="size of the model, and recipe")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", default=device, help="cpu, cuda or cuda:1")
    parser.add_argument("--checkpoint", type=Path, help="go on from this file if it is there; save to it")
    parser.add_argument("--sample", type=int, default=200, help="characters to write at the end")
    for name, kind in CHANGES.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, help="in place of the recipe's")
    return parser


def train_as_told(options: argparse.Namespace) -> bool:
    """Train on `options.text` and print a table. Return whether the training came to its end."""
    given = {name: getattr(options, name) for name in CHANGES if getattr(options, name) is not None}
    recipe = replace(RECIPES[options.config], **given)
    data = Data.of(shared_text(options.text))
    torch.manual_seed(recipe.seed)
    model = GPT(GPTConfig(vocab_size=data.tokenizer.vocab_size, **SIZES[options.config]))
    trainer = Trainer(on_device(model, options.device), data, recipe)
    first, checkpoint = trainer.rank == 0, options.checkpoint
    if checkpoint and trainer.mean(float(checkpoint.exists())) > 0:  # on any machine; then each needs it
        trainer.load(checkpoint)
    if checkpoint and first:
        trainer.save(checkpoint)  # now already: a bad path must not cost a whole training

    def report(trainer: Trainer) -> None:
        if first and trainer.history.val_steps[-1:] == [trainer.steps_done]:
            print_progress(trainer)
            if checkpoint:
                trainer.save(checkpoint)

    stopped = run(trainer, watch=report).stopped
    if first and stopped:
        print(f"Stopped after step {trainer.steps_done} of {recipe.steps}.")
        if checkpoint:
            trainer.save(checkpoint)
            print(f"The same command goes on from there, with {checkpoint}.")
    elif first:
        print_table(trainer)
        prompt = data.val[None, :1].to(trainer.device)
        print(data.tokenizer.decode(generate(model, prompt, options.sample)[0]))
    return not stopped


def shared_text(name_or_path: str) -> str:
    """Load a text. Of the processes on one machine one comes first, and downloads it if need be."""
    if not dist.is_initialized():
        return load_text(name_or_path)
    try:
        if os.environ["LOCAL_RANK"] == "0":
            return load_text(name_or_path)
    finally:
        dist.barrier()
    return load_text(name_or_path)


def on_device(model: GPT, name: str) -> GPT:
    """Move the model; ValueError if this machine has no such device."""
    try:
        return model.to(name)
    except (RuntimeError, AssertionError) as error:
        found = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
        raise ValueError(f"--device {name} cannot be used. This machine has: {', '.join(found)}.") from error


def print_progress(trainer: Trainer) -> None:
    """Print one line about the training so far."""
    steps, seconds = trainer.steps_done, trainer.seconds
    tokens = steps * trainer.recipe.batch_size * trainer.model.block_size
    print(
        f"step {steps:5} of {trainer.recipe.steps}   validation loss {trainer.history.val_losses[-1]:.3f}"
        f"   {seconds:6.1f} s   {steps / seconds:6.1f} steps/s   {tokens / seconds:9.0f} tokens/s",
        flush=True,
    )


def print_table(trainer: Trainer) -> None:
    """Print what tables of n-grams, counted in the validation text, and the trained model reach on it."""
    model, data, precision = trainer.model, trainer.data, trainer.recipe.precision
    rows = [(f"best {n}-gram table, counted", "", ngram_floor(data.val, n), "") for n in (1, 2, 3)]
    text = data.tokenizer.decode(data.val)
    asked = any(end > model.block_size for _, end in answers(text))
    right = f"{recall(model, text, data.tokenizer, precision):.2f}" if asked else ""
    size = f"{sum(p.numel() for p in model.parameters()):,}"
    rows.append((f"GPT, {model.config.n_layer} layers", size, trainer.evaluate(), right))
    print(f"\n{'model':28}{'parameters':>12}{'validation loss':>17}{'recall':>8}")
    for name, parameters, loss, right in rows:
        print(f"{name:28}{parameters:>12}{loss:17.3f}{right:>8}")
    print()


@contextlib.contextmanager
def process_group(options: argparse.Namespace) -> Iterator[None]:
    """Join the other processes that torchrun started, if it did; each gets a GPU of its own.

    Raises:
        ValueError: there are fewer GPUs than processes.
    """
    if "RANK" not in os.environ:
        yield
        return
    if options.device == "cuda":
        local, found = os.environ["LOCAL_RANK"], torch.cuda.device_count()
        if int(local) >= found:
            raise ValueError(
                f"Process {local}, counted from 0, has no GPU of its own: this machine has {found}. "
                "Start no more processes than that (--nproc-per-node), or choose --device cpu."
            )
        options.device = f"cuda:{local}"
        torch.cuda.set_device(options.device)
    dist.init_process_group("nccl" if options.device.startswith("cuda") else "gloo")
    try:
        yield
        dist.barrier()  # a process that leaves while another still sends would tear its threads down
    finally:
        dist.destroy_process_group()


def main(argv: list[str] | None = None) -> None:
    """Run the command line.

    Exits with 2 if it was given options that do not exist, with 1 if they do not work, and with 130, which is
    128 + SIGINT, after Ctrl-C.
    """
    options = arguments().parse_args(argv)
    try:
        with process_group(options):
            finished = train_as_told(options)
    except (ValueError, OSError) as error:
        sys.exit(f"training: {error}")
    except KeyboardInterrupt:
        finished = False
    if not finished:
        sys.exit(130)


if __name__ == "__main__":
    main()
