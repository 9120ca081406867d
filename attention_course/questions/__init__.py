"""Guess first, then see: `ask("bag_of_words_slice")` in a notebook cell.

One TOML file a rung holds the questions; every choice, right or wrong, has its own explanation.
"""

import html
import re
import tomllib
from importlib.resources import files
from typing import NotRequired, TypedDict

import ipywidgets

from attention_course.ladder import STEMS
from attention_course.names import look_up


class Choice(TypedDict):
    """One way to answer a question."""

    text: str
    explanation: str
    right: NotRequired[bool]


class Entry(TypedDict):
    """A question and its choices, as the TOML file has them."""

    question: str
    choices: list[Choice]


_FILES = [files(__name__) / f"{stem}.toml" for stem in STEMS]
QUESTIONS: dict[str, Entry] = {
    name: question
    for file in _FILES
    if file.is_file()
    for name, question in tomllib.loads(file.read_text(encoding="utf-8")).items()
}

STYLE = """<style>
.attention-question { max-width: 46em; }
.attention-question .widget-html-content { line-height: 1.5; }
.attention-question .jupyter-button {
    height: auto; padding: 4px 12px; line-height: 1.5;
    text-align: left; white-space: normal; overflow: visible;
}
.attention-question .jupyter-button:focus-visible { outline: 2px solid #0072b2; outline-offset: 1px; }
</style>"""


class Question(ipywidgets.VBox):
    """A question with one button a choice; pressing one commits to it and shows its explanation.

    Attributes:
        buttons: the choices, in order; `buttons[1].click()` answers without a browser.
        guesses: the choices made so far, as indices.
    """

    def __init__(self, name: str, question: str, choices: list[Choice]):
        self.name = name
        self.question = question
        self.guesses: list[int] = []
        self.buttons = [
            ipywidgets.Button(
                description=choice["text"],
                layout={"width": "auto", "height": "auto"},
                style={"text_color": "var(--jp-ui-font-color1)"},
            )
            for choice in choices
        ]
        self._choices = choices
        self._explanation = ipywidgets.HTML()
        self._explanation.add_class("attention-explanation")
        for index, button in enumerate(self.buttons):
            button.on_click(lambda _, index=index: self._guess(index))
        super().__init__([ipywidgets.HTML(STYLE + _paragraph(question)), *self.buttons, self._explanation])
        self.add_class("attention-question")

    @property
    def explanation(self) -> str:
        """What is said about the last guess, as HTML; empty before the first."""
        return self._explanation.value

    def _guess(self, index: int) -> None:
        self.guesses.append(index)
        choice = self._choices[index]
        right = choice.get("right", False)
        self.buttons[index].icon = "check" if right else "times"
        colour = "#0072B2" if right else "#D55E00"
        text = f"{'Right.' if right else 'Not this one.'} {choice['explanation']}"
        self._explanation.value = (
            f'<div role="status" style="border-left: 4px solid {colour}; '
            f'padding-left: 10px; line-height: 1.5">{_paragraph(text)}</div>'
        )

    def __repr__(self) -> str:
        choices = "".join(f"\n  - {choice['text']}" for choice in self._choices)
        return f"{self.question}{choices}"

    def _repr_mimebundle_(self, **kwargs):
        choices = "".join(f"<li>{html.escape(choice['text'])}</li>" for choice in self._choices)
        page = f"{_paragraph(self.question)}<ul>{choices}</ul>"
        live = super()._repr_mimebundle_(**kwargs) or {}
        return live | {"text/html": page, "text/plain": repr(self)}


def _paragraph(text: str) -> str:
    """Escape `text` for HTML and set what stands between backticks as code."""
    code = re.sub("`([^`]+)`", r"<code>\1</code>", html.escape(text))
    return f"<p>{code}</p>"


def ask(name: str) -> Question:
    """Ask the question called `name`; as the last line of a notebook cell it shows itself.

    Raises:
        ValueError: there is no question of that name; the message lists them.
    """
    entry = look_up(name, QUESTIONS, "question")
    return Question(name, entry["question"], entry["choices"])
