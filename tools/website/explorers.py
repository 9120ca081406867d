"""The explorers of the site: their controls in HTML, and the pictures of all settings, worked out beforehand.

A page has no kernel: NAME.json holds what `draw` of an explorer shows for each setting of its controls, and
static/explorer.js looks it up. Pictures share most of what they show. So the JSON has the structure of one
picture, and each of its leaves holds different values, and which of them belongs to which setting of those
controls that it depends on. Which controls these are is found by comparing the pictures.

A script beside `explorer.py` computes the pictures in the page instead, all but the first. Where it needs a
model, gpt.js runs that, with the parameters of MODEL, on any text that a visitor types.
"""

import base64
import hashlib
import html
import json
import math
import operator
import os
import re
from collections.abc import Iterable, Sequence
from functools import cache
from inspect import signature
from itertools import product
from pathlib import Path
from typing import Any

import ipywidgets
import numpy as np
from safetensors.torch import save_file

from attention_course.explorers import EXPLORERS, explore
from attention_course.explorers.engine import Explorer
from attention_course.explorers.figure import LiveFigure
from attention_course.gpt import GPT
from attention_course.plots import Panel
from attention_course.plots.render import PANELS, script, written
from attention_course.plots.style import bundle, format_numbers
from attention_course.text import CharTokenizer

ROOT = Path(__file__).resolve().parent.parent.parent
COURSE = ROOT / "attention_course"
FIGURE = COURSE / "explorers" / "figure.js"
GPT_SCRIPT = COURSE / "gpt.js"
DUMPED = ROOT / "notebooks" / "pictures"  # of a model: the build of its notebook writes them
MODEL = "gpt.safetensors"  # among them: the model that runs in a page
KEPT = Path(__file__).parent / ".pictures"  # from one build of the site to the next
SHADES = 3  # decimals of a shade: the eye sees fewer


def all_values(control: Any) -> list:
    """Return all values of a control."""
    if isinstance(control, ipywidgets.Checkbox):
        return [False, True]
    if hasattr(control, "options"):
        return list(control.options)
    steps = round((control.max - control.min) / control.step)
    return [round(control.min + control.step * step, 9) for step in range(steps + 1)]


def script_of(name: str) -> Path:
    """Return the path of the script that computes an explorer's pictures in the page, if there is one."""
    return Path(EXPLORERS[name].__file__).with_suffix(".js")


def site_values(name: str, explorer: Explorer) -> dict[str, list]:
    """Return the values of each control that a page offers; a slider's start is always among them."""
    chosen = {}
    for key, control in explorer.controls.items():
        values = getattr(EXPLORERS[name], "SITE_VALUES", {}).get(key) or all_values(control)
        chosen[key] = sorted({*values, control.value}) if hasattr(control, "min") else list(values)
    return chosen


def described(name: str, control: Any, values: list) -> dict:
    """Return what a page has to know of a control; its values are counted from 0."""
    slides = hasattr(control, "min") or isinstance(control, ipywidgets.SelectionSlider)
    ticks = isinstance(control, ipywidgets.Checkbox)
    template = "d" if ticks else getattr(control, "readout_format", "")
    return {
        "name": name,
        "description": control.description,
        "kind": "checkbox" if ticks else "range" if slides else "select",
        "labels": [format(value, template) or "none" for value in values],
        "start": values.index(control.value),
    }


@cache
def shortest(data: bytes, decimals: int | None) -> list[float | str]:
    """Return float32 numbers in as few digits as tell them apart.

    With `decimals`, they are rounded where the words for a number stay the same. JSON has no infinity:
    JavaScript makes a number of its name.
    """
    exact = [float(str(value)) for value in np.frombuffer(data, dtype=np.float32)]
    few = exact if decimals is None else [round(value, decimals) for value in exact]
    alike = map(operator.eq, format_numbers(few), format_numbers(exact))
    values = [short if same else full for short, full, same in zip(few, exact, alike, strict=True)]
    return [value if math.isfinite(value) else str(value).replace("inf", "Infinity") for value in values]


def plain(state: Any, decimals: int | None = None) -> Any:
    """Return the state of a panel, or a part of it, as JSON has it."""
    if isinstance(state, bytes):
        return shortest(state, decimals)
    if isinstance(state, dict):
        decimals = SHADES if state.get("kind") == "Text" else None
        return {key: plain(value, decimals) for key, value in state.items()}
    return [plain(part) for part in state] if isinstance(state, list | tuple) else state


class RecordingFigure(LiveFigure):
    """A figure that keeps what it is given to show, for no browser."""

    def show(self, *panels: Panel, caption: str) -> None:
        """Keep the states of the panels, and the caption in parts."""
        parts = dict(enumerate(re.split(r"(?<=[.,;:] )", caption)))
        self.kept = {"panels": [plain(panel.state()) for panel in panels], "caption": parts}


def factorize(pictures: Sequence, shape: tuple[int, ...]) -> Any:
    """Merge the pictures of all settings, or parts of them, into the structure of one.

    Args:
        pictures: one for each setting, the last control moving fastest.
        shape: how many values each control has.

    Returns:
        The structure. A leaf is {"of": its values, "on": the numbers of the controls that choose one of them,
        "at": which one it is, for each setting of these controls}.
    """
    if isinstance(pictures[0], dict):
        keys = dict.fromkeys(key for picture in pictures for key in picture)  # some captions have more parts
        return {key: factorize([picture.get(key, "") for picture in pictures], shape) for key in keys}
    if isinstance(pictures[0], list) and pictures[0] and isinstance(pictures[0][0], dict):
        return [factorize(parts, shape) for parts in zip(*pictures, strict=True)]
    found: dict[str, int] = {}
    at = np.array([found.setdefault(json.dumps(value), len(found)) for value in pictures]).reshape(shape)
    on = [axis for axis in range(at.ndim) if (at != at.take([0], axis)).any()]
    at = at[tuple(slice(None) if axis in on else 0 for axis in range(at.ndim))]
    return {"of": [json.loads(value) for value in found], "on": on, "at": at.flatten().tolist()}


def runs_a_model(name: str) -> bool:
    """Return whether the page runs the model that an explorer shows."""
    return script_of(name).exists() and of_a_model(name)


def subject_of(explorer: Explorer) -> dict[str, Any]:
    """Return what an explorer shows: a model, a tokenizer, a text."""
    return {key: parameter.default for key, parameter in signature(explorer.compute).parameters.items()}


def save_model(model: GPT, tokenizer: CharTokenizer, path: Path) -> None:
    """Write a GPT without biases as gpt.js reads it: parameters in half precision, sizes, and characters."""
    if type(model) is not GPT or model.config.bias:
        raise TypeError(
            f"save_model: {type(model).__name__}, expected a GPT with bias=False: gpt.js has no other."
        )
    tensors = {key: value.half() for key, value in model.state_dict().items() if key != "lm_head.weight"}
    about = {"config": vars(model.config), "characters": tokenizer.characters}
    save_file(tensors, path, metadata={"gpt": json.dumps(about)})  # one entry: of several the order changes


def pictures(name: str, explorer: Explorer) -> dict:
    """Return the controls of an explorer, and its pictures for all settings that a page offers.

    Of one that is computed in the page, there is only the picture that it starts with.
    """
    dragged = {key for panel in explorer.figure.panels for key in getattr(panel, "controls", ())}
    values = site_values(name, explorer)
    if script_of(name).exists():
        settings, shape = [{key: control.value for key, control in explorer.controls.items()}], ()
    else:
        settings = [dict(zip(values, setting, strict=True)) for setting in product(*values.values())]
        shape = tuple(map(len, values.values()))
    running = {}
    if runs_a_model(name):
        subject = subject_of(explorer)
        text = subject[EXPLORERS[name].TYPED].removeprefix("\n")  # the page puts one before any text
        running = {"model": MODEL, "text": {"start": text, "most": subject["model"].block_size - 1}}
    sheet, shown = RecordingFigure(), []
    for setting in settings:
        explorer.draw(sheet, **explorer.compute(**setting))
        shown.append(sheet.kept)
    return {
        "controls": [
            described(key, control, values[key])
            for key, control in explorer.controls.items()
            if key not in dragged
        ],
        "dragged": {
            key: {limit: getattr(control, limit) for limit in ("value", "min", "max", "step")}
            for key, control in explorer.controls.items()
            if key in dragged
        },
        **factorize(shown, shape),
        **({"computed": True} if script_of(name).exists() else {}),
        **running,
    }


def text_of(data: dict) -> str:
    """Write data as JSON, always in the same way."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False) + "\n"


def dump(outputs: Iterable, folder: Path = DUMPED) -> None:
    """Write the pictures of the explorers of a model among the outputs of a notebook."""
    folder.mkdir(exist_ok=True)
    for explorer in outputs:
        if isinstance(explorer, Explorer) and explorer.compute.keywords:
            name = next(name for name, module in EXPLORERS.items() if module.draw is explorer.draw)
            (folder / f"{name}.json").write_text(text_of(pictures(name, explorer)), encoding="utf-8")
            if runs_a_model(name):
                subject = subject_of(explorer)
                save_model(subject["model"], subject["tokenizer"], folder / MODEL)


def of_a_model(name: str) -> bool:
    """Return whether an explorer shows a model, which only its notebook has."""
    return "model" in signature(EXPLORERS[name].controls).parameters


@cache
def digest() -> str:
    """Return what changes with the code of the explorers, and with what was measured for them."""
    globs = ("*.py", "examine/*.*", "explorers/*.*", "plots/*.py", "rungs/*/explorer*", "rungs/*/*.json")
    files = [Path(__file__), *(file for glob in globs for file in COURSE.glob(glob))]
    return hashlib.sha256(b"".join(file.read_bytes() for file in sorted(files))).hexdigest()


@cache
def load(name: str) -> str:
    """Return the JSON text of an explorer, worked out anew if the code has changed.

    Raises:
        FileNotFoundError: the notebook that shows the explorer's model has not been built.
    """
    if of_a_model(name):
        return (DUMPED / f"{name}.json").read_text(encoding="utf-8")
    kept = KEPT / f"{name}.{digest()[:16]}.json"
    if kept.exists():
        return kept.read_text(encoding="utf-8")
    text = text_of(pictures(name, explore(name)))
    KEPT.mkdir(exist_ok=True)
    new = KEPT / f"{name}.{os.getpid()}.new"
    new.write_text(text, encoding="utf-8")
    new.replace(kept)  # at once: another process may look for it
    for old in set(KEPT.glob(f"{name}.*.json")) - {kept}:
        old.unlink(missing_ok=True)
    return text


def write(folder: Path) -> None:
    """Write what explorers need in a page: data, a model, and scripts, of which one draws in notebooks."""
    folder.mkdir(parents=True, exist_ok=True)
    drawing = bundle(PANELS, FIGURE) + "export { numbers };\n"
    (folder / "figure.js").write_text(drawing, encoding="utf-8")
    (folder / "figure.css").write_text(LiveFigure._css, encoding="utf-8")
    for path in (DUMPED / MODEL, GPT_SCRIPT):
        (folder / path.name).write_bytes(path.read_bytes())
    for name in EXPLORERS:
        (folder / f"{name}.json").write_text(load(name), encoding="utf-8")
        if script_of(name).exists():
            (folder / f"{name}.js").write_bytes(script_of(name).read_bytes())


def lookup(tree: Any, setting: Sequence[int], sizes: Sequence[int]) -> Any:
    """Take the picture of a setting out of the factored ones, as explorer.js does."""
    if isinstance(tree, list):
        return [lookup(part, setting, sizes) for part in tree]
    if "of" not in tree:
        return {key: lookup(part, setting, sizes) for key, part in tree.items()}
    place = 0
    for control in tree["on"]:
        place = place * sizes[control] + setting[control]
    return tree["of"][tree["at"][place]]


def control_html(control: dict, explorer: str) -> str:
    """Return the HTML of a control: its label, a native input, and the value of a slider."""
    key, labels, start = f"{explorer}-{control['name']}", control["labels"], control["start"]
    given = f'id="{key}" name="{control["name"]}" autocomplete="off"'
    label = f'<label for="{key}">{html.escape(control["description"])}</label>'
    if control["kind"] == "checkbox":
        return f'<div class="control"><input type="checkbox" {given}{" checked" * start}>{label}</div>'
    if control["kind"] == "select":
        options = [
            f"<option{' selected' * (at == start)}>{html.escape(text)}</option>"
            for at, text in enumerate(labels)
        ]
        return f'<div class="control">{label}<select {given}>{"".join(options)}</select></div>'
    value = html.escape(labels[start])
    return (
        f'<div class="control">{label}<input type="range" {given} max="{len(labels) - 1}" value="{start}" '
        f'aria-valuetext="{value}"><output for="{key}" aria-live="off">{value}</output></div>'
    )


def typed_html(text: dict, explorer: str) -> str:
    """Return the HTML of the text that a visitor changes, and of the place for what is said about it."""
    key = f"{explorer}-text"
    return (
        f'<div class="control typed"><label for="{key}">your text</label>'
        f'<textarea id="{key}" name="text" rows="3" maxlength="{text["most"]}" autocomplete="off" '
        f'autocapitalize="off" spellcheck="false" aria-describedby="{key}-said">'
        f"{html.escape(text['start'])}</textarea>"
        f'<p class="said" id="{key}-said" role="status"></p></div>'
    )


STILL = """(panels) => JSON.stringify({
  drawn: panels.map((panel) => [KINDS, FLAT].map((kinds) => [
    svgOf([{ ...panel, title: "" }], kinds), ...around(panel, kinds),
  ])),
  invitation: invitation(panels),
})"""


def inlined(svg: str) -> str:
    """Return a picture as an address that holds all of it."""
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


def still(states: list[dict], caption: str) -> str:
    """Return a figure as figure.js makes it, of images: nothing moves when the live one takes its place."""
    figure = json.loads(script().eval(f"({STILL})({written(states)})"))
    panels = []
    for state, both in zip(states, figure["drawn"], strict=True):
        (wide, flat), (width, narrow), (padding, short) = zip(*both, strict=True)
        sizes = f"--width:{width};--narrow:{narrow};--padding:{padding};--short:{short}"
        panels.append(
            f'<div style="{sizes}"><div class="attention-title">{html.escape(state["title"])}</div>'
            f'<picture><source media="(max-width: 500px)" srcset="{inlined(flat)}">'
            f'<img alt="" src="{inlined(wide)}"></picture></div>'
        )
    return (
        f'<div class="attention-figure"><div class="attention-panels">{"".join(panels)}</div>'
        f'<p class="attention-readout" style="visibility:hidden">{figure["invitation"]}</p>'
        f'<p class="attention-caption">{html.escape(caption)}</p></div>'
    )


def markup(name: str) -> str:
    """Return the HTML of an explorer: its controls, disabled at first, and its first picture."""
    data = json.loads(load(name))
    sizes = [len(control["labels"]) for control in data["controls"]]
    start = [control["start"] for control in data["controls"]]
    shown = {key: lookup(data[key], start, sizes) for key in ("panels", "caption")}
    controls = typed_html(data["text"], name) if "text" in data else ""
    controls += "".join(control_html(control, name) for control in data["controls"])
    note = getattr(EXPLORERS[name], "NOTE", "")
    note = f'<p class="note">{html.escape(note)}</p>' if note else ""
    figure = still(shown["panels"], "".join(shown["caption"].values()))
    return (
        f'<div class="explorer" data-explorer="{name}">'
        f'<fieldset class="controls" aria-label="Controls" disabled>{controls}</fieldset>{note}'
        f'<div class="figure">{figure}</div></div>'
    )
