"""HTML of verdicts, hints and solutions. Output of a learner's code is escaped."""

import html
import reprlib
from collections import Counter

import ipywidgets
from torch import Tensor

from attention_course.exercises.exercise import Exercise, undocumented, unwrapped
from attention_course.plots.card import CODE, MUTED, TEXT, frame, points, prose
from attention_course.plots.style import RED

CELL = "padding:2px 8px;text-align:right;border:none;font-variant-numeric:tabular-nums;background:none"
MARKED = f"{CELL};outline:2px solid {RED};font-weight:700"
MAX_SHOWN = 9  # rows and columns that a table shows

hints_given: Counter[str] = Counter()  # by the names of exercises


def checklist(marks: list[tuple[str, bool]]) -> str:
    """Return a list of claims, each marked as holding or failing."""
    said = {True: ("✓", "holds"), False: ("✗", "fails")}
    return points((*said[holds], html.escape(claim)) for claim, holds in marks)


def example(
    arguments: list[tuple[str, object]], target: Tensor, yours: object, marked: Tensor | None = None
) -> str:
    """Show one input, the target, and yours beside it, in which `marked` cells differ (None: no comparison).

    For more than two dimensions, the first slice with a difference is shown.
    """
    differing = [] if marked is None else marked.nonzero().tolist()
    first = tuple(differing[0][:-2]) if differing else (0,) * max(0, target.dim() - 2)
    drawn = "".join(table(name, value, first) for name, value in arguments)
    if isinstance(yours, BaseException):
        answer = caption("yours", f"raised {type(yours).__name__}")
    else:
        answer = table("yours", yours, first, marked)
    note = "In <em>yours</em>, the framed cells differ from the target." if differing else ""
    row = "display:flex;flex-wrap:wrap;gap:6px 28px;align-items:flex-start"
    pair = f'<div style="{row};flex-wrap:nowrap">{table("target", target, first)}{answer}</div>'
    return (
        f'<div style="margin:12px 0 2px;{MUTED}">The smallest input where this shows. {note}</div>'
        f'<div style="{row}">{drawn}{pair}</div>'
    )


def caption(name: str, remark: str, content: str = "") -> str:
    """Return `content`, which is HTML, under a name and a remark."""
    title = f"<strong>{html.escape(name)}</strong> <span style='{MUTED}'>{html.escape(remark)}</span>"
    return f'<div style="margin-top:4px">{title}{content}</div>'


def table(name: str, value: object, first: tuple[int, ...] = (), marked: Tensor | None = None) -> str:
    """Show a tensor as a table, with `marked` cells framed, and anything else by its repr.

    Args:
        name: the heading.
        value: a tensor or any other object.
        first: index into the dimensions before the last two, if it is valid for the tensor.
        marked: boolean, in the shape of the tensor.
    """
    if not isinstance(value, Tensor) or not value.numel():
        return caption(name, "= " + reprlib.repr(value) if not isinstance(value, Tensor) else "is empty")
    remark = f"of shape {tuple(value.shape)}"
    if value.dim() > 2:
        fits = len(first) == value.dim() - 2 and all(i < n for i, n in zip(first, value.shape, strict=False))
        first = first if fits else (0,) * (value.dim() - 2)
        value, marked = value[first], marked if marked is None else marked[first]
        remark += f", here {name}[{', '.join(map(str, first))}]"
    if max(value.shape, default=1) > MAX_SHOWN:
        remark += f", the first {MAX_SHOWN} rows and columns"
    numbered = value.dim() == 2
    rows = value.reshape(-1, value.shape[-1] if value.dim() else 1)
    framed = None if marked is None else marked.reshape(rows.shape)[:MAX_SHOWN, :MAX_SHOWN]
    rows = rows[:MAX_SHOWN, :MAX_SHOWN]  # first: an expanded one has more than the memory
    framed = rows.isnan() & False if framed is None else framed
    lines = []
    for t, (row, marks) in enumerate(zip(rows, framed, strict=True)):
        pairs = zip(row.tolist(), marks.tolist(), strict=True)
        cells = [f'<td style="{MARKED if mark else CELL}">{number + 0:.4g}</td>' for number, mark in pairs]
        number = f'<th scope="row" style="{CELL};{MUTED};font-weight:400">{t}</th>' if numbered else ""
        lines.append(f'<tr style="background:none">{number}{"".join(cells)}</tr>')
    style = f"border-collapse:separate;border-spacing:2px;margin:2px 0;font-size:.92em;{TEXT}"
    return caption(name, remark, f'<table style="{style}"><tbody>{"".join(lines)}</tbody></table>')


class Hint:
    """One hint, displayed as a panel."""

    def __init__(self, exercise: str, headline: str, text: str):
        self.exercise, self.headline, self.text = exercise, headline, text

    def __repr__(self) -> str:
        return f"{self.headline}: {self.text}"

    def _repr_html_(self) -> str:
        return frame(self.exercise, "→", self.headline, prose(self.text))


def hints_of(exercise: Exercise) -> list[Hint]:
    """Return all hints for an exercise, in order."""
    total = len(exercise.hints)
    return [
        Hint(exercise.name, f"Hint {number} of {total}", text)
        for number, text in enumerate(exercise.hints, start=1)
    ]


class Solution(ipywidgets.VBox):
    """A question, a button, and the solution that the button reveals. `button.click()` clicks it."""

    def __init__(self, exercise: Exercise):
        self.exercise = exercise
        question = prose("Do you want to see the solution? One more try teaches more than reading it.")
        self.question = ipywidgets.HTML(frame(exercise.name, "→", "Solution", question))
        self.button = ipywidgets.Button(description="Show the solution")
        self.source = ipywidgets.HTML()
        self.button.on_click(lambda _: self.reveal())
        super().__init__([self.question, self.button, self.source])

    def reveal(self) -> None:
        """Replace the button with the source of the reference, without its docstring."""
        source = html.escape(undocumented(unwrapped(self.exercise.reference)))
        code = f'<pre style="{CODE};margin:8px 0 0;overflow-x:auto;line-height:1.4">{source}</pre>'
        self.source.value = frame(self.exercise.name, "→", "One way to write it", code)
        self.button.layout.display = self.question.layout.display = "none"

    def __repr__(self) -> str:
        return f"Solution of {self.exercise.name}: hidden until you press the button."


class Card(ipywidgets.VBox):
    """The panel of a verdict above two buttons. Hints that were given before are shown.

    Attributes:
        hint: the button for the next hint; `card.hint.click()` clicks it.
        solution: the button for the solution, which asks first, unless the answer has passed.
        hints: the hints so far, as HTML.
    """

    def __init__(self, page: str, exercise: Exercise, passed: bool):
        self.exercise, self.passed = exercise, passed
        self.hint = ipywidgets.Button(layout={"width": "auto"})
        self.hint.on_click(lambda _: self._take_hint())
        self.solution = ipywidgets.Button(description="Solution", layout={"width": "auto"})
        self.solution.on_click(lambda _: self._solve())
        self.hints = ipywidgets.HTML()
        buttons = [self.solution] if passed else [self.hint, self.solution]
        row = ipywidgets.HBox(buttons, layout={"margin": "0 0 0 18px"})
        super().__init__([ipywidgets.HTML(page), row, self.hints])
        self.add_class("attention-exercise")
        if not passed:
            self._show_hints()

    def _take_hint(self) -> None:
        hints_given[self.exercise.name] += 1
        self._show_hints()

    def _show_hints(self) -> None:
        hints, given = hints_of(self.exercise), hints_given[self.exercise.name]
        self.hints.value = "".join(hint._repr_html_() for hint in hints[:given])
        self.hint.disabled = given >= len(hints)
        self.hint.description = "No more hints" if self.hint.disabled else f"Hint {given + 1} of {len(hints)}"

    def _solve(self) -> None:
        solution = Solution(self.exercise)
        if self.passed:
            solution.reveal()
        self.solution.layout.display = "none"
        self.children = (*self.children, solution)
