"""What was missed comes back: `review()` in a notebook cell asks again what is due, five minutes at a time.

When something is due is kept by `progress`: after 1, 7 and 30 days, as long as it goes right. Questions come
with other numbers, fills and exercises empty.
"""

import html
from datetime import date

import ipywidgets

from attention_course.exercises import EXERCISES
from attention_course.exercises.exercise import source_of, unwrapped
from attention_course.fills import fill
from attention_course.names import look_up
from attention_course.plots.card import CODE, frame, prose
from attention_course.progress import counted, due, kept, that_come_back
from attention_course.questions import ask_again

TIME = 5.0  # minutes of a review
MINUTES = {"question": 0.5, "fill": 1.5}  # of an exercise it says itself how many


def minutes(item: str) -> float:
    """Return about how long it takes to do "question mean_at_one", or whatever comes back, once more."""
    kind, name = item.split()
    return MINUTES.get(kind) or float(EXERCISES[name].minutes)


def portion(items: list[str]) -> list[str]:
    """Return what one review takes of the items that are due: the first, and all that still fit."""
    chosen, taken = [], 0.0
    for item in items:
        if not chosen or taken + minutes(item) <= TIME:
            chosen.append(item)
            taken += minutes(item)
    return chosen


def exercise_again(name: str) -> ipywidgets.HTML:
    """Show an exercise to do again, with what to write in a cell of one's own."""
    exercise, mine = look_up(name, EXERCISES, "exercise"), f"my_{name}"
    head = source_of(unwrapped(exercise.reference))[0].replace(f"def {name}", f"def {mine}", 1)
    imports = "from attention_course.exercises import check"
    stub = f'{imports}\n\n{head}    ...\n\ncheck("{name}", {mine})'
    code = f'<pre style="{CODE};margin:8px 0 0;overflow-x:auto;line-height:1.4">{html.escape(stub)}</pre>'
    task = f"{exercise.task} Write it in a new cell, without a look at your first answer. It begins so:"
    return ipywidgets.HTML(frame(name, "→", "Write it again", prose(task) + code))


SHOWS = {"question": ask_again, "fill": lambda name: fill(name, again=True), "exercise": exercise_again}


class Review(ipywidgets.VBox):
    """What is due, as much of it as five minutes hold.

    Attributes:
        items: what each is, in order: "question mean_at_one".
        cards: the questions, fills and exercises.
    """

    def __init__(self, items: list[str], remark: str):
        self.items, self.remark = items, remark
        self.cards = [SHOWS[kind](name) for kind, name in map(str.split, items)]
        super().__init__([ipywidgets.HTML(prose(remark)), *self.cards])

    def __repr__(self) -> str:
        return "\n".join([self.remark, *(f"- {item}" for item in self.items)])


def review() -> Review:
    """Bring back what is due, five minutes of it; as the last line of a cell it shows itself."""
    record, problem = kept()
    items = due(record)
    chosen = portion(items)
    if problem:
        remark = problem
    elif chosen:
        time = max(1, round(sum(map(minutes, chosen))))
        remark = f"{counted(chosen, 'thing')} to review, about {counted(range(time), 'minute')}."
        if more := len(items) - len(chosen):
            remark += f" Then run this cell again for {more} more."
    elif coming := [each.due for item, each in record.review.items() if item in that_come_back()]:
        day = date.fromisoformat(min(coming))
        remark = f"Nothing to review today. The next thing comes back on {day.day} {day:%B}."
    else:
        remark = "Nothing to review. What you miss in a rung comes back here after 1, 7 and 30 days."
    return Review(chosen, remark)
