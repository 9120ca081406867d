"""The identity of a training run, and the checks that a checkpoint belongs to it and is safe to load."""

import copy
import hashlib
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypedDict

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.optim import Optimizer

from attention_course.gpt import GPT
from attention_course.text import Data
from attention_course.training.recipe import History, Recipe

Task = TypedDict(
    "Task",
    {
        "config": dict[str, Any] | None,
        "model": dict[str, Any],
        "modules": dict[str, str],
        "recipe": dict[str, Any],
        "optimizer": dict[str, str | list[int]],
        "training text": str,
        "validation text": str,
        "characters": str,
    },
)


def task_of(model: nn.Module, data: Data, recipe: Recipe, optimizer: Optimizer) -> Task:
    """Describe what is trained, on which text, and how; a checkpoint of another task is refused."""
    return {
        "config": asdict(model.config) if isinstance(model, GPT) else None,
        "model": structure(model.state_dict()),
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


def structure(state: object, name: str = "") -> dict[str, Any]:
    """Return types, shapes, dtypes and strides of a state dict, everything but its numbers.

    A state is only loaded into one of the same structure: compiled optimizers write to memory without checks.
    """
    if isinstance(state, dict | list | tuple):
        entries = state.items() if isinstance(state, dict) else enumerate(state)
        found = {name: "dict" if isinstance(state, dict) else "list"}
        for key, value in entries:
            found |= structure(value, f"{name}.{key}".removeprefix("."))
        return found
    if isinstance(state, Tensor):
        if state.is_meta or state.is_nested or state.layout != torch.strided:
            return {name: "not a plain dense tensor"}
        strides = "" if state.is_contiguous() else f", strides {list(state.stride())}"
        return {name: f"{state.dtype} {list(state.shape)}{strides}".removeprefix("torch.")}
    if state is None or isinstance(state, bool | str):
        return {name: state}
    return {name: "number" if isinstance(state, int | float) else type(state).__name__}


def classes(model: nn.Module) -> dict[str, str]:
    """Return the class of each module: models with parameters of equal shapes may still differ in these."""
    modules = {name: type(module) for name, module in model.named_modules()}
    return {name: f"{kind.__module__}.{kind.__qualname__}" for name, kind in modules.items()}


def fingerprint(ids: Int[Tensor, " N"]) -> str:
    """Return a checksum of a text."""
    return hashlib.sha256(ids.cpu().numpy().tobytes()).hexdigest()


def after_one_step(optimizer: Optimizer) -> Optimizer:
    """Return a copy that has taken a step, so that its state is complete."""
    stepped = object.__new__(type(optimizer))
    vars(stepped).update(copy.deepcopy(vars(optimizer)))
    for group in stepped.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
    type(stepped).step(stepped)
    return stepped


def check_task(path: str | Path, theirs: Task, ours: Task) -> None:
    """Raise ValueError unless a checkpoint is of our task; name the first part that differs."""
    for part, value in ours.items():
        check_part(path, part, theirs.get(part), value)


def check_part(path: str | Path, part: str, theirs: object, ours: object) -> None:
    """Raise ValueError unless one part of a checkpoint equals ours."""
    if theirs != ours:
        raise ValueError(
            f"{path} does not match: its {part} is different{difference(theirs, ours)}. "
            "Train with the settings it was made with, or save to another file."
        )


def difference(theirs: object, ours: object) -> str:
    """List the entries in which two dictionaries differ; empty for other values, which are long."""
    if not (isinstance(theirs, dict) and isinstance(ours, dict)):
        return ""
    names = [name for name in {**theirs, **ours} if theirs.get(name) != ours.get(name)]
    listed = ", ".join(f"{name} = {theirs.get(name)} there and {ours.get(name)} here" for name in names[:3])
    return f": {listed}{', ...' if len(names) > 3 else ''}"


def check_optimizer(path: str | Path, theirs: dict[str, Any], optimizer: Optimizer) -> None:
    """Raise ValueError unless `optimizer` can load this state dict."""
    ours = after_one_step(optimizer).state_dict()
    check_part(path, "optimizer", structure(theirs).get("state"), "dict")
    first = {key: value for key, value in ours["state"].items() if key in theirs["state"]}  # empty at step 0
    check_part(path, "optimizer", structure(theirs), structure(ours | {"state": first}))
    order = [[group["params"] for group in state["param_groups"]] for state in (theirs, ours)]
    check_part(path, "order of parameters", *order)


def check_progress(steps_done: object, steps: int, seconds: object, history: History) -> None:
    """Raise ValueError unless a history is consistent with `steps_done` of `steps` steps."""
    if type(steps_done) is not int or not 0 <= steps_done <= steps:
        raise ValueError(f"its steps_done is {steps_done!r}, of {steps}")
    if type(seconds) is not float or not 0 <= seconds < math.inf or type(history.stopped) is not bool:
        raise ValueError(f"its seconds are {seconds!r} and its stopped is {history.stopped!r}")
    count, val_steps = len(history.val_losses), history.val_steps
    for name, kind, length in (
        ("losses", float, steps_done),
        ("val_steps", int, count),
        ("val_losses", float, count),
        ("val_seconds", float, count),
    ):
        values = getattr(history, name)
        right = type(values) is list and all(type(value) is kind and math.isfinite(value) for value in values)
        if not right or len(values) != length:
            raise ValueError(f"its {name} is not a list of {length} finite numbers, {kind.__name__}")
    if val_steps != sorted({*val_steps} & {*range(1, steps_done + 1)}):
        raise ValueError("its val_steps do not increase within 1 to steps_done")
