"""A training on disk: written whole or not at all, read without running any code that it holds."""

import contextlib
import hashlib
import io
import os
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypedDict

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.optim import Optimizer

from attention_course.gpt import GPT, GPTConfig
from attention_course.text import CharTokenizer, Data
from attention_course.training.recipe import Recipe

FORMAT = "attention_course checkpoint 2"
Task = TypedDict(
    "Task",
    {
        "config": dict[str, Any] | None,
        "model": dict[str, list[int]],
        "modules": dict[str, str],
        "recipe": dict[str, Any],
        "optimizer": dict[str, str | list[int]],
        "training text": str,
        "validation text": str,
        "characters": str,
    },
)


class Checkpoint(TypedDict):
    """What a file holds besides its FORMAT: the task, to tell another one, and all that goes on."""

    task: Task
    model: dict[str, Tensor]
    optimizer: dict[str, Any]
    history: dict[str, Any]
    steps_done: int
    seconds: float
    generator: Tensor


def task_of(model: nn.Module, data: Data, recipe: Recipe, optimizer: Optimizer) -> Task:
    """Say what is trained, on what and how: a checkpoint of another task does not fit."""
    return {
        "config": asdict(model.config) if isinstance(model, GPT) else None,
        "model": shapes(model.state_dict()),
        "modules": classes(model),
        "recipe": asdict(recipe),
        "optimizer": {
            "class": type(optimizer).__name__,
            "parameters": [len(group["params"]) for group in optimizer.param_groups],
        },
        "training text": fingerprint(data.train),
        "validation text": fingerprint(data.val),
        "characters": data.tokenizer.characters,
    }


def shapes(parameters: dict[str, Tensor]) -> dict[str, list[int]]:
    """Return the shape of each entry of a state_dict."""
    return {name: list(value.shape) for name, value in parameters.items()}


def classes(model: nn.Module) -> dict[str, str]:
    """Return the class of each module: two models with parameters of one shape may still differ in these."""
    return {name: type(module).__name__ for name, module in model.named_modules()}


def fingerprint(ids: Int[Tensor, " N"]) -> str:
    """Return a checksum of a text."""
    return hashlib.sha256(ids.cpu().numpy().tobytes()).hexdigest()


def check_task(path: str | Path, theirs: Task, ours: Task) -> None:
    """Raise ValueError unless a checkpoint is one of our task; name the first part that differs."""
    for part, value in ours.items():
        found = theirs.get(part)
        if value != found:
            raise ValueError(
                f"{path} does not fit: its {part} is another one{difference(found, value)}. "
                "Train with what it was made with, or save to another file."
            )


def difference(theirs: object, ours: object) -> str:
    """Name the entries in which two dictionaries differ; other values are too long to be shown."""
    if not (isinstance(theirs, dict) and isinstance(ours, dict)):
        return ""
    names = [name for name in {**theirs, **ours} if theirs.get(name) != ours.get(name)]
    listed = ", ".join(f"{name} = {theirs.get(name)} there and {ours.get(name)} here" for name in names[:3])
    return f": {listed}{', ...' if len(names) > 3 else ''}"


def write_checkpoint(path: str | Path, checkpoint: Checkpoint) -> None:
    """Write a file for `read_checkpoint`. If that fails, an older file of this name stays.

    Raises:
        OSError: the file could not be written.
    """
    path, whole = Path(path), io.BytesIO()
    torch.save({"format": FORMAT, **checkpoint}, whole)
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


def read_checkpoint(path: str | Path) -> Checkpoint:
    """Return what `write_checkpoint` wrote. No code in the file is run.

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
        if missing := Checkpoint.__annotations__.keys() - state.keys():
            raise ValueError(f"it has no {', '.join(sorted(missing))}")
        if shapes(state["model"]) != state["task"]["model"]:
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
    if classes(model) != task["modules"]:
        raise ValueError(f"{path} holds a GPT with parts of its own. Build that model, and use Trainer.load.")
    model.load_state_dict(state["model"])
    return model.eval(), CharTokenizer(task["characters"])
