"""Checkpoints: written atomically, read without executing any code in the file."""

import contextlib
import copy
import hashlib
import io
import itertools
import math
import os
import re
import zipfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.optim import Optimizer

from attention_course.checks import check_path
from attention_course.files import printable, write_at_once
from attention_course.gpt import GPT, GPTConfig
from attention_course.text import CharTokenizer, Corpus
from attention_course.training.recipe import History, Recipe

PARTS: dict[str, type] = {
    "settings": dict,  # see `settings_of`
    "model": dict,
    "optimizer": dict,
    "history": dict,
    "steps_done": int,
    "seconds": float,
    "generator": Tensor,
}
PAIRS = [("exp_avg", "exp_avg_sq"), ("mean", "square")]  # means of gradients, and of their squares
UNDERFLOWS = 1e-15  # a gradient whose square float32 may round to zero
NEVER_NEGATIVE = re.compile("sq|var|sum|step")  # in names of PyTorch's optimizers: means of squares, counts


def settings_of(model: nn.Module, data: Corpus, recipe: Recipe, optimizer: Optimizer) -> dict[str, Any]:
    """Describe what is trained, on which text, and how: a checkpoint with other settings is refused."""
    groups = [{**group, "params": len(group["params"])} for group in optimizer.param_groups]
    names = dict.fromkeys(name for group in groups for name in group if name != "lr")  # lr is the schedule's
    return {
        "config": asdict(model.config) if isinstance(model, GPT) else None,
        "modules": class_names(model),
        "parameters": shapes(model.state_dict()),
        "recipe": asdict(recipe),
        "optimizer": {"class": type(optimizer).__name__} | {n: [g.get(n) for g in groups] for n in names},
        "training text": fingerprint(data.train),
        "validation text": fingerprint(data.val),
        "characters": data.tokenizer.characters,
    }


def fingerprint(ids: Int[Tensor, " N"]) -> str:
    """Return a checksum of a text."""
    return hashlib.sha256(ids.cpu().numpy().tobytes()).hexdigest()


def class_names(model: nn.Module) -> dict[str, str]:
    """Return the class of each module: modules whose parameters have equal shapes may differ in it."""
    modules = {name: type(module) for name, module in model.named_modules()}
    return {name: f"{kind.__module__}.{kind.__qualname__}" for name, kind in modules.items()}


def shapes(tensors: dict[str, Tensor]) -> dict[str, str]:
    """Return the dtype and shape of each tensor."""
    return {name: f"{x.dtype} {list(x.shape)}".removeprefix("torch.") for name, x in tensors.items()}


def check_settings(path: str | Path, theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    """Raise ValueError unless a checkpoint has our settings; name what differs in the first other part."""
    for part, here in ours.items():
        difference = None
        with reading(path):  # a file may hold what does not compare, such as a tensor
            there = theirs.get(part)
            if there != here:
                difference = ""
                if isinstance(there, dict) and isinstance(here, dict):
                    names = [name for name in {**there, **here} if there.get(name) != here.get(name)]
                    listed = [f"{name} = {there.get(name)} there and {here.get(name)} here" for name in names]
                    difference = f": {printable(', '.join(listed[:3]))}{', ...' * (len(names) > 3)}"
        if difference is not None:
            raise ValueError(
                f"{path} does not match in its {part}{difference}. Train with the settings it was made with, "
                "or save to another file."
            )


def check_moments(moments: dict[int, dict[str, Any]], optimizer: Optimizer) -> None:
    """Raise ValueError unless they are of the kinds that this optimizer keeps.

    Fused optimizers write to them without comparing sizes, and others fail at the next step.
    """
    kept = kept_after_a_step(optimizer)
    like = [(p, bool(group.get("fused"))) for group in optimizer.param_groups for p in group["params"]]
    for index, entries in moments.items():
        fused = like[index][1]
        for name in {**entries, **kept.get(index, {})} if kept else []:
            if kind_of(entries.get(name), fused) != kind_of(kept[index].get(name), fused):
                raise ValueError(f"{name} of parameter {index} is missing, or of another shape or dtype")


def kept_after_a_step(optimizer: Optimizer) -> dict[int, dict[str, Any]]:
    """Return what a copy of it keeps of each parameter after a step, or nothing, if it is not known."""
    if type(optimizer).__module__.split(".")[0] not in ("torch", "attention_course"):
        return {}
    made = copy.deepcopy(optimizer)
    for parameter in itertools.chain(*(group["params"] for group in made.param_groups)):
        parameter.grad = torch.zeros_like(parameter)
    try:
        made.step()
    except Exception:  # it wants a closure, or sparse gradients
        return {}
    return made.state_dict()["state"]


def kind_of(entry: object, strictly: bool) -> object:
    """Return the dtype and shape of a tensor, strictly also where its numbers lie; else the type."""
    if not isinstance(entry, Tensor):
        return type(entry)
    return entry.dtype, entry.shape, entry.stride() if strictly else ()


def check_ties(tensors: dict[str, Tensor], model: nn.Module) -> None:
    """Raise ValueError if names of one parameter, which the model ties, come with different numbers."""
    first: dict[int, str] = {}
    for name, parameter in model.state_dict(keep_vars=True).items():
        other = first.setdefault(id(parameter), name)
        if other != name and not torch.equal(tensors[name], tensors[other]):
            raise ValueError(f"{other} and {name} differ, and are one parameter of the model")


def check_history(state: dict[str, Any]) -> None:
    """Raise ValueError unless a history is one of the steps that a checkpoint claims."""
    steps, history = state["steps_done"], History(**state["history"])
    measured, values = history.val_steps, (history.val_losses, history.val_seconds)
    if not (
        len(history.losses) == steps <= state["settings"]["recipe"]["steps"]
        and all(len(each) == len(measured) for each in values)
        and all(type(x) is float and math.isfinite(x) for x in sum(values, history.losses))
        and all(type(x) is int for x in (steps, *measured))
        and all(a < b for a, b in itertools.pairwise((0, *measured, steps + 1)))
        and type(history.stopped) is bool
    ):
        raise ValueError(f"its history is not one of {steps} steps")


def not_finite(tensors: dict[str, Tensor]) -> str:
    """Return the name of a tensor that holds NaN or inf; "" if none does."""
    return next((name for name, tensor in tensors.items() if not tensor.isfinite().all()), "")


def without_squares(moments: dict[int, dict[str, Any]]) -> str:
    """Return the name of a mean of squares that is all zero, of gradients that are not; "" if none is."""
    for index, entries in moments.items():
        for name, square in PAIRS:
            mean, squares = entries.get(name), entries.get(square)
            if not isinstance(mean, Tensor) or not isinstance(squares, Tensor):
                continue
            if (mean.abs() > UNDERFLOWS).any() and not squares.any():
                return f"{square} of parameter {index}"
    return ""


def write_checkpoint(path: str | Path, checkpoint: dict[str, Any]) -> None:
    """Write a file for `read_checkpoint`. On failure an existing file is left as it was."""
    if broken := not_finite(checkpoint["model"]):
        raise FloatingPointError(
            f"The checkpoint {path} was not written: {broken} holds NaN or inf, since the training has "
            "diverged. Start over with a lower learning rate, or from an earlier checkpoint."
        )
    content = io.BytesIO()
    torch.save(checkpoint, content)
    try:
        write_at_once(path, content.getvalue())
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "No file can have this name"
        raise OSError(
            f"The checkpoint {printable(str(path))} could not be written: {reason}. "
            "Name a file in a folder that exists and is writable, on a disk with free space."
        ) from error


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


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """Read a checkpoint, without executing any code in it; see `PARTS`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not a checkpoint of this course, or it is damaged.
    """
    check_path(path, "read_checkpoint")
    if not os.path.isfile(path):
        raise FileNotFoundError(f"There is no checkpoint file {path}. Trainer.save writes one.")
    content = io.BytesIO(Path(path).read_bytes())
    with reading(path):
        archive = zipfile.ZipFile(content)
        if any(entry.compress_type for entry in archive.infolist()):  # it may be larger than memory
            raise ValueError("its entries are compressed")
        if damaged := archive.testzip():  # torch.load compares no checksums
            raise ValueError(f"the checksum of {damaged} is wrong")
        content.seek(0)
        state = torch.load(content, map_location="cpu", weights_only=True)
        if wrong := [name for name, kind in PARTS.items() if not isinstance(state.get(name), kind)]:
            raise ValueError(f"it has no {', '.join(wrong)}")
        if len(state) > len(PARTS):
            raise ValueError("it has more parts than a checkpoint")
        if shapes(state["model"]) != state["settings"]["parameters"]:
            raise ValueError("its parameters are not those of its model")
        moments = {
            f"{name} of parameter {index}": torch.as_tensor(x)
            for index, entries in state["optimizer"].items()
            for name, x in entries.items()
            if isinstance(x, Tensor | float | int)
        }
        if broken := not_finite(state["model"] | moments):
            raise ValueError(f"{broken} holds NaN or inf")
        if negative := [name for name, x in moments.items() if NEVER_NEGATIVE.search(name) and (x < 0).any()]:
            raise ValueError(f"{negative[0]} is negative")
        if forgotten := without_squares(state["optimizer"]):
            raise ValueError(f"{forgotten} is zero everywhere, and the mean of the gradients is not")
        if state["steps_done"] and not moments and "betas" in state["settings"]["optimizer"]:
            raise ValueError("it has no moments of its optimizer")
        if not 0 <= state["seconds"] < math.inf:
            raise ValueError(f"its seconds are {state['seconds']}")
        check_history(state)
    return state


def load_model(path: str | Path) -> tuple[GPT, CharTokenizer]:
    """Load the GPT of a checkpoint, in eval mode, and its tokenizer.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not a checkpoint, or not of a GPT.
    """
    state = read_checkpoint(path)
    settings = state["settings"]
    if settings.get("config") is None:
        raise ValueError(f"{path} holds a model that is not a GPT. Build that model, and use Trainer.load.")
    with reading(path):
        config, tokenizer = GPTConfig(**settings["config"]), CharTokenizer(settings["characters"])
        blocks = {name.split(".")[2] for name in state["model"] if name.startswith("transformer.h.")}
        if (config.n_layer, config.vocab_size) != (len(blocks), tokenizer.vocab_size):
            raise ValueError("its config is not that of its parameters and characters")
        with torch.device("meta"):  # what a file claims may not fit into memory: compare it first
            claimed = GPT(config)
    if class_names(claimed) != settings.get("modules"):
        raise ValueError(f"{path} holds a GPT with custom parts. Build that model, and use Trainer.load.")
    with reading(path):
        if shapes(claimed.state_dict()) != settings["parameters"]:
            raise ValueError("its config is not that of its parameters")
        check_ties(state["model"], claimed)
        model = GPT(config)
        model.load_state_dict(state["model"])
    return model.eval(), tokenizer
