"""Fill in the code of an exercise, with a verdict at each choice: `fill("head_forward")` in a notebook cell.

A fill shows the reference with gaps, or as lines in disorder. The choices are the mistakes that the exercise
knows, and every combination of them was judged beforehand, by the judge of `check` (tools/make_fills.py). So
the same fill works on a page without a kernel.
"""

import html
import json
from functools import cache
from importlib.resources import files
from typing import Any

import anywidget
import traitlets

from attention_course.checks import check_flags
from attention_course.exercises import EXERCISES
from attention_course.ladder import RUNGS
from attention_course.names import look_up
from attention_course.plots.style import coloured
from attention_course.progress import keep_fill, keep_review, kept

SCRIPT = files(__name__).joinpath("fill.js").read_text(encoding="utf-8")
CSS = coloured(files(__name__).joinpath("fill.css").read_text(encoding="utf-8"))
EMPTY = "Write the whole function in the cell below. `check` judges it."


@cache
def fills() -> dict[str, dict[str, Any]]:
    """Return all fills, of exercises and of steps of a lesson, by name, as `fill.js` shows them."""
    found = {}
    for rung in RUNGS:
        steps = rung.steps
        for name, made in json.loads(rung.text("fills.json")).items():
            step = steps.get(name)
            said = (
                {"insight": step["insight"]} if step else {"insight": EXERCISES[name].insight, "empty": EMPTY}
            )
            found[name] = made | {"name": name} | said
    return found


class Fill(anywidget.AnyWidget):
    """A fill in a notebook.

    Attributes:
        fill: what `fills` says of it.
        done: the levels that are solved, which the learner's progress keeps.
        missed: whether a choice was wrong before the level was solved; then the fill comes back in a review.
    """

    _esm = SCRIPT
    _css = CSS

    fill = traitlets.Dict().tag(sync=True)
    done = traitlets.List(traitlets.Unicode()).tag(sync=True)
    missed = traitlets.Bool().tag(sync=True)

    def __init__(self, made: dict[str, Any], done: list[str]):
        super().__init__(fill=made, done=done)
        name = made["name"]
        self.observe(lambda _: keep_fill(name, self.done), "done")  # from now on: what it starts with is kept
        self.observe(lambda _: keep_review(f"fill {name}", right=False), "missed")

    def __repr__(self) -> str:
        gaps = self.fill["gaps"]
        code = "".join(
            f"{part}____{number}____" if number <= len(gaps["choices"]) else part
            for number, part in enumerate(gaps["parts"], 1)
        )
        lines = [f"  {number}: {' | '.join(texts)}" for number, texts in enumerate(gaps["choices"], 1)]
        return "\n".join([code, "What goes into each gap?", *lines])

    def _repr_mimebundle_(self, **kwargs):
        live = super()._repr_mimebundle_(**kwargs)
        data = live[0] if isinstance(live, tuple) else live or {}
        return data | {"text/html": f"<pre>{html.escape(repr(self))}</pre>", "text/plain": repr(self)}


def fill(name: str, again: bool = False) -> Fill:
    """Show the fill of an exercise; as the last line of a notebook cell it displays itself.

    Args:
        name: the exercise, or the step of a lesson.
        again: show it as if it had never been solved.

    Raises:
        TypeError: again is neither True nor False.
        ValueError: there is no fill of that name; the message lists them.
    """
    check_flags("fill", again=again)
    made = look_up(name, fills(), "fill")
    record, _ = kept()
    return Fill(made, [] if again else record.fills.get(name, []))
