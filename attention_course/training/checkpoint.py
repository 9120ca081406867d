"""A training on disk: written whole or not at all, read without running any code that it holds.

A file is the line FORMAT, the SHA-256 of what follows, and what `torch.save` makes of a `Checkpoint`.
"""

import contextlib
import errno
import glob
import hashlib
import io
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypedDict

import torch
from filelock import FileLock, Timeout
from torch import Tensor

from attention_course.gpt import GPT, GPTConfig
from attention_course.text import CharTokenizer
from attention_course.training.recipe import History
from attention_course.training.task import Task, check_part, check_progress, classes, structure

FORMAT = b"attention_course checkpoint 3\n"


class Checkpoint(TypedDict):
    """What a file holds: the task, to tell another one, and all that goes on."""

    task: Task
    model: dict[str, Tensor]
    optimizer: dict[str, Any]
    history: dict[str, Any]
    steps_done: int
    seconds: float
    generator: Tensor


def packed(checkpoint: Checkpoint) -> bytes:
    """Return the content of a file."""
    content = io.BytesIO()
    torch.save(checkpoint, content)
    return FORMAT + hashlib.sha256(content.getbuffer()).digest() + content.getbuffer()


@contextlib.contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Say which checkpoint an OSError is about, and what to do."""
    try:
        yield
    except Timeout:
        raise OSError(f"Another run saves to {path}. Wait for its end, or name another file.") from None
    except OSError as error:
        raise OSError(
            f"The checkpoint {path} could not be written: {error.strerror}. "
            "Name a file in a folder that exists, that you may write to, and that has room."
        ) from error


def empty_file(path: Path, room: int = 0) -> Path:
    """Create a file beside `path` under a name that no other has, and take `room` bytes of the disk."""
    partial_file = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
    with open(partial_file, "xb") as file:
        try:
            if hasattr(os, "posix_fallocate") and room:
                os.posix_fallocate(file.fileno(), 0, room)
            else:
                file.write(bytes(room))
        except OSError:
            partial_file.unlink()
            raise
    return partial_file


def write_checkpoint(path: str | Path, checkpoint: Checkpoint, partial_file: Path | None = None) -> None:
    """Write a file for `read_checkpoint`. If that fails, an older file of this name stays.

    A symbolic link stays one, and a file that was there keeps its permissions.

    Args:
        path: the file.
        checkpoint: what it is to hold.
        partial_file: an `empty_file`, which becomes the checkpoint; a new one if left out.

    Raises:
        OSError: the file could not be written.
    """
    whole, target = packed(checkpoint), Path(os.path.realpath(path))
    with writing(path), contextlib.ExitStack() as stack:
        partial_file = partial_file or empty_file(target)
        stack.callback(partial_file.unlink, missing_ok=True)
        with open(partial_file, "r+b") as file:
            file.write(whole)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            partial_file.chmod(target.stat().st_mode)
        os.replace(partial_file, target)


@contextlib.contextmanager
def reserved(path: str | Path, largest: Checkpoint, growth: int) -> Iterator[Callable[[Checkpoint], None]]:
    """Keep a file for the checkpoints of one run; yield a function that writes them.

    A second run that wants the same file is refused. Room for `largest` and `growth` bytes more is taken at
    once beside the file, and again after each checkpoint for the next one: where the disk is full, that is
    said when nothing is lost.

    Raises:
        OSError: the file cannot be written, or another run writes it.
    """
    target, room = Path(os.path.realpath(path)), len(packed(largest)) + growth
    with contextlib.ExitStack() as stack:
        with writing(path):
            if target.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            os.stat(f"{target.parent}/.")  # FileLock would make this folder
            stack.enter_context(FileLock(target.with_name(f".{target.name}.lock"), blocking=False))
            for left in target.parent.glob(f".{glob.escape(target.name)}.*.partial"):
                left.unlink()  # by a run that was killed
            partial_files = [empty_file(target, room)]
        stack.callback(lambda: partial_files[-1].unlink(missing_ok=True))

        def write(checkpoint: Checkpoint) -> None:
            write_checkpoint(path, checkpoint, partial_files[-1])
            with writing(path):
                partial_files.append(empty_file(target, room))

        yield write


@contextlib.contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Turn what a foreign file raises, which may be anything, into a ValueError."""
    try:
        yield
    except Exception as error:
        reason = error if isinstance(error, ValueError) else type(error).__name__
        raise ValueError(
            f"{path} is not a checkpoint of this course, or it is damaged. Name another file; if this was a "
            f"checkpoint, delete it and begin anew. (Reading it failed: {reason}.)"
        ) from error


def read_checkpoint(path: str | Path) -> Checkpoint:
    """Return what `write_checkpoint` wrote. No code in the file is run.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is no checkpoint of this course, or it is damaged.
    """
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
        steps, history = state["task"]["recipe"]["steps"], History(**state["history"])
        check_progress(state["steps_done"], steps, state["seconds"], history)
        torch.Generator().set_state(state["generator"])
    return state


def load_model(path: str | Path) -> tuple[GPT, CharTokenizer]:
    """Return the GPT of a checkpoint, in eval mode, and the tokenizer that goes with it.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is no checkpoint, or not one of a GPT.
    """
    state = read_checkpoint(path)
    task = state["task"]
    with reading(path):
        model = GPT(GPTConfig(**task["config"])) if task["config"] is not None else None
        tokenizer = CharTokenizer(task["characters"])
    if model is None:
        raise ValueError(f"{path} holds a model that is no GPT. Build that model, and use Trainer.load.")
    if classes(model) != task["modules"]:
        raise ValueError(f"{path} holds a GPT with parts of its own. Build that model, and use Trainer.load.")
    check_part(path, "model", task["model"], structure(model.state_dict()))
    model.load_state_dict(state["model"])
    return model.eval(), tokenizer
