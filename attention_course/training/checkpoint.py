"""Checkpoints: written atomically, read without executing any code in the file.

A file is the line FORMAT, the SHA-256 of the rest, and a `Checkpoint` serialized by `torch.save`.
"""

import contextlib
import errno
import glob
import hashlib
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypedDict

import torch
from filelock import FileLock, Timeout
from torch import Tensor

from attention_course.checks import check_path
from attention_course.files import empty_file, write_at_once
from attention_course.gpt import GPT, GPTConfig
from attention_course.text import CharTokenizer
from attention_course.training.recipe import History
from attention_course.training.task import Task, check_part, check_progress, classes, structure

FORMAT = b"attention_course checkpoint 3\n"


class Checkpoint(TypedDict):
    """The content of a file: the task, to detect a mismatch, and the state of the training."""

    task: Task
    model: dict[str, Tensor]
    optimizer: dict[str, Any]
    history: dict[str, Any]
    steps_done: int
    seconds: float
    generator: Tensor


def packed(checkpoint: Checkpoint) -> bytes:
    """Serialize a checkpoint, with header and checksum."""
    content = io.BytesIO()
    torch.save(checkpoint, content)
    return FORMAT + hashlib.sha256(content.getbuffer()).digest() + content.getbuffer()


@contextlib.contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Raise any OSError with the path of the checkpoint and what to do."""
    try:
        yield
    except Timeout:
        raise OSError(f"Another run is saving to {path}. Wait until it ends, or name another file.") from None
    except OSError as error:
        raise OSError(
            f"The checkpoint {path} could not be written: {error.strerror}. "
            "Name a file in a folder that exists and is writable, on a disk with free space."
        ) from error


def write_checkpoint(path: str | Path, checkpoint: Checkpoint, partial_file: Path | None = None) -> None:
    """Write a file for `read_checkpoint`. On failure an existing file is left as it was.

    Symbolic links are followed, and an existing file keeps its permissions.

    Args:
        path: the file.
        checkpoint: its content.
        partial_file: an `empty_file` to write to and rename; a new one if left out.

    Raises:
        OSError: the file could not be written.
    """
    broken = [name for name, tensor in checkpoint["model"].items() if not tensor.isfinite().all()]
    if broken:
        raise FloatingPointError(
            f"The checkpoint {path} was not written: {broken[0]} holds NaN or inf, since the training has "
            "diverged. Start over with a lower learning rate, or from an earlier checkpoint."
        )
    with writing(path):
        write_at_once(path, packed(checkpoint), partial_file)


@contextlib.contextmanager
def reserved(path: str | Path, largest: Checkpoint, growth: int) -> Iterator[Callable[[Checkpoint], None]]:
    """Lock a file for the checkpoints of one run; yield a function that writes them.

    A second run that wants the same file is refused. Disk space for `largest` and `growth` more bytes is
    reserved now, and after each checkpoint for the next one, so a full disk is detected before anything is
    lost.

    Raises:
        OSError: the file cannot be written, or another run writes it.
    """
    target, room = Path(os.path.realpath(path)), len(packed(largest)) + growth
    with contextlib.ExitStack() as stack:
        with writing(path):
            if target.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            empty_file(target).unlink()  # FileLock would create a missing folder, and say nothing of others
            stack.enter_context(FileLock(target.with_name(f".{target.name}.lock"), blocking=False))
            for left in target.parent.glob(f".{glob.escape(target.name)}.*.partial"):
                left.unlink()  # left behind by a run that was killed
            partial_file = empty_file(target, room)
        stack.callback(lambda: partial_file.unlink(missing_ok=True))

        def write(checkpoint: Checkpoint) -> None:
            nonlocal partial_file
            write_checkpoint(path, checkpoint, partial_file)
            with writing(path):
                partial_file = empty_file(target, room)

        yield write


@contextlib.contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Turn any exception, since a foreign file may raise anything, into a ValueError."""
    try:
        yield
    except Exception as error:
        reason = error if isinstance(error, ValueError) else type(error).__name__
        raise ValueError(
            f"{path} is not a checkpoint of this course, or it is damaged. Name another file; if this was a "
            f"checkpoint, delete it and start over. (Reading it failed: {reason}.)"
        ) from error


def read_checkpoint(path: str | Path) -> Checkpoint:
    """Read a file from `write_checkpoint`, without executing any code in it.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not a checkpoint of this course, or it is damaged.
    """
    check_path(path, "read_checkpoint")
    if not Path(path).is_file():
        raise FileNotFoundError(f"There is no checkpoint file {path}. Trainer.save writes one.")
    whole = memoryview(Path(path).read_bytes())
    found, digest, content = whole[: len(FORMAT)], whole[len(FORMAT) :][:32], whole[len(FORMAT) + 32 :]
    with reading(path):
        if found != FORMAT:
            raise ValueError(f"it does not begin with {FORMAT!r}")
        if hashlib.sha256(content).digest() != digest:  # torch.load compares no checksums
            raise ValueError("its checksum is wrong")
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        if missing := Checkpoint.__annotations__.keys() - state.keys():
            raise ValueError(f"it has no {', '.join(sorted(missing))}")
        if structure(state["model"]) != state["task"]["model"]:
            raise ValueError("its parameters are not those of its model")
        structure(state["optimizer"])  # a RecursionError if it contains itself
        steps, history = state["task"]["recipe"]["steps"], History(**state["history"])
        check_progress(state["steps_done"], steps, state["seconds"], history)
        torch.Generator().set_state(state["generator"])
    return state


def load_model(path: str | Path) -> tuple[GPT, CharTokenizer]:
    """Load the GPT of a checkpoint, in eval mode, and its tokenizer.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not a checkpoint, or not of a GPT.
    """
    state = read_checkpoint(path)
    task = state["task"]
    with reading(path):
        config = None if task["config"] is None else GPTConfig(**task["config"])
        tokenizer = CharTokenizer(task["characters"])
        blocks = {name.split(".")[2] for name in state["model"] if name.startswith("transformer.h.")}
        if config is not None and (config.n_layer, config.vocab_size) != (len(blocks), tokenizer.vocab_size):
            raise ValueError("its config is not that of its parameters and characters")
    if config is None:
        raise ValueError(f"{path} holds a model that is not a GPT. Build that model, and use Trainer.load.")
    with torch.device("meta"):  # what a file claims may not fit into memory: compare it first
        shapes = GPT(config)
    if classes(shapes) != task["modules"]:
        raise ValueError(f"{path} holds a GPT with custom parts. Build that model, and use Trainer.load.")
    claimed = {name: tuple(tensor.shape) for name, tensor in shapes.state_dict().items()}
    check_part(path, "model", {name: tuple(x.shape) for name, x in state["model"].items()}, claimed)
    model = GPT(config)
    check_part(path, "model", task["model"], structure(model.state_dict()))
    model.load_state_dict(state["model"])
    return model.eval(), tokenizer
