"""Guess first, then see: `ask("mean_at_one")` in a notebook cell.

The `questions.toml` of a rung holds them; every choice, right or wrong, has its own explanation.
"""

import html
import re
from importlib.resources import files
from typing import Any, NotRequired, TypedDict

import ipywidgets

from attention_course.ladder import RUNGS
from attention_course.names import look_up
from attention_course.plots.style import coloured
from attention_course.progress import SKIP, keep_answer, kept


class Choice(TypedDict):
    """One way to answer a question. A text that is code as a whole stands between backticks."""

    text: str
    explanation: str
    right: NotRequired[bool]


class Entry(TypedDict):
    """A question and its choices, as the TOML file has them."""

    question: str
    choices: list[Choice]


QUESTIONS: dict[str, Any] = {
    name: question for rung in RUNGS for name, question in rung.table("questions.toml").items()
}

BACK = "Back to the choices"
RIGHT, WRONG, SHOWN = "Right.", "Not this one.", "This is the answer."
CSS = coloured(files(__name__).joinpath("question.css").read_text(encoding="utf-8"))


class Question(ipywidgets.VBox):
    """A question with one button a choice; pressing one commits to it.

    An explanation takes the place of the other choices, so that the card keeps its size.

    Attributes:
        buttons: the choices, in order; `buttons[1].click()` answers without a browser.
        corner: the button that says what is right; after an answer, the way back to the choices.
        guesses: the choices made so far, as indices.
    """

    def __init__(self, name: str, question: str, choices: list[Choice]):
        self.name = name
        self.question = question
        self.guesses: list[int] = []
        self._choices = choices
        self.buttons = [_button(choice["text"]) for choice in choices]
        for index, button in enumerate(self.buttons):
            button.on_click(lambda _, index=index: self._guess(index))
        self.corner = ipywidgets.Button(description=SKIP)
        self.corner.add_class("attention-corner")
        self.corner.on_click(lambda _: self._reopen() if self.corner.description == BACK else self._skip())
        self._explanation = ipywidgets.HTML()
        self._explanation.add_class("attention-explanation")
        head = ipywidgets.HTML(
            f'<style>{CSS}</style><div class="attention-head">Predict</div>{_paragraph(question)}'
        )
        grid = ipywidgets.Box(self.buttons, layout={"grid_template_columns": columns(choices)})
        grid.add_class("attention-choices")
        body = ipywidgets.VBox(
            [grid, self._explanation], layout={"min_height": f"{lines(choices) * 1.5 + 4.2}em"}
        )
        body.add_class("attention-body")
        super().__init__([head, body, self.corner])
        self.add_class("attention-question")

    @property
    def explanation(self) -> str:
        """What is said about the last guess, as HTML; empty before the first."""
        return self._explanation.value

    def restore(self, answers: list[str]) -> None:
        """Show answers that were given before."""
        texts = [choice["text"] for choice in self._choices]
        for answer in answers:
            if answer in texts:
                self.guesses.append(texts.index(answer))
                self._show(texts.index(answer))
            elif answer == SKIP:
                self._show_right()

    def _guess(self, index: int) -> None:
        self.guesses.append(index)
        choice = self._choices[index]
        self._show(index, keep_answer(self.name, choice["text"], choice.get("right", False)))

    def _reopen(self) -> None:
        """Show all choices again. `guesses` and colours stay."""
        self.remove_class("attention-answered")
        known = any("attention-right" in button._dom_classes for button in self.buttons)
        self.corner.description = SKIP
        self.corner.layout.visibility = "hidden" if known else "visible"

    def _skip(self) -> None:
        self._show_right(keep_answer(self.name, SKIP, right=False))

    def _show(self, index: int, problem: str = "") -> None:
        right = self._choices[index].get("right", False)
        self._explain(index, RIGHT if right else WRONG, problem)

    def _show_right(self, problem: str = "") -> None:
        right = next(index for index, choice in enumerate(self._choices) if choice.get("right"))
        self._explain(right, SHOWN, problem)

    def _explain(self, index: int, verdict: str, problem: str) -> None:
        """Colour a choice, and show what there is to say about it in place of the others."""
        right = self._choices[index].get("right", False)
        self.buttons[index].icon = "check" if right else "times"
        kind = "attention-right" if right else "attention-wrong"
        self.buttons[index].add_class(kind)
        for place, button in enumerate(self.buttons):
            (button.add_class if place == index else button.remove_class)("attention-shown")
        self.add_class("attention-answered")
        self.corner.description, self.corner.layout.visibility = BACK, "visible"
        text = " ".join(filter(None, [verdict, self._choices[index]["explanation"], problem]))
        room = f'<div class="attention-room" aria-hidden="true">{marked(self._choices[index]["text"])}</div>'
        self._explanation.value = f'{room}<div role="status" class="{kind}">{_paragraph(text)}</div>'

    def __repr__(self) -> str:
        choices = "".join(f"\n  - {choice['text']}" for choice in self._choices)
        return f"{self.question}{choices}"

    def _repr_mimebundle_(self, **kwargs):
        choices = "".join(f"<li>{marked(choice['text'])}</li>" for choice in self._choices)
        page = f"<p><strong>Predict</strong></p>{_paragraph(self.question)}<ul>{choices}</ul>"
        live = super()._repr_mimebundle_(**kwargs) or {}
        return live | {"text/html": page, "text/plain": repr(self)}


def _button(text: str) -> ipywidgets.Button:
    """Return the button of a choice; one that is code as a whole is set as code."""
    code = re.fullmatch("`([^`]+)`", text)
    button = ipywidgets.Button(description=code[1] if code else text)
    if code:
        button.add_class("attention-code")
    return button


def columns(choices: list[Choice]) -> str:
    """Return CSS for four, two or one columns of choices, fewer where the page is narrow."""
    longest = max(len(choice["text"]) for choice in choices)
    narrow, wide = (
        ("10em", "22%") if longest <= 12 else ("20em", "45%") if longest <= 36 else ("100%", "100%")
    )
    return f"repeat(auto-fit, minmax(min(100%, max({narrow}, {wide})), 1fr))"


def lines(choices: list[Choice]) -> int:
    """Estimate the lines of the longest explanation, so that showing it moves nothing below."""
    return 1 + max(len(f"{SHOWN} {choice['explanation']}") for choice in choices) // 72


def marked(text: str) -> str:
    """Escape `text` for HTML and set what stands between backticks as code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", html.escape(text))


def _paragraph(text: str) -> str:
    """Return a paragraph."""
    return f"<p>{marked(text)}</p>"


def ask(name: str) -> Question:
    """Ask the question called `name`; as the last line of a notebook cell it shows itself.

    What was answered before, and is kept in the learner's progress, is shown again.

    Raises:
        ValueError: there is no question of that name; the message lists them.
    """
    entry = look_up(name, QUESTIONS, "question")
    question = Question(name, entry["question"], entry["choices"])
    record, _ = kept()
    if name in record.questions:
        question.restore(record.questions[name].answers)
    return question
