"""Every question can be answered, and every choice is explained."""

import html
import re

import pytest

from attention_course.questions import QUESTIONS, Question, ask

each_question = pytest.mark.parametrize("name", QUESTIONS)


@each_question
def test_one_choice_is_right_and_each_has_its_own_explanation(name):
    choices = QUESTIONS[name]["choices"]
    assert len(choices) >= 3
    assert sum(choice.get("right", False) for choice in choices) == 1
    assert all(choice["explanation"].strip() for choice in choices)
    assert len({choice["explanation"] for choice in choices}) == len(choices)
    assert len({choice["text"] for choice in choices}) == len(choices)


@each_question
def test_nothing_is_explained_before_the_guess(name):
    question = ask(name)
    data = question._repr_mimebundle_()
    assert question.explanation == ""
    for choice in QUESTIONS[name]["choices"]:
        assert choice["text"] in data["text/plain"]
        assert choice["explanation"] not in data["text/plain"] + data["text/html"]


@each_question
def test_a_choice_is_explained_in_place_of_the_others_until_they_are_asked_for(name):
    question = ask(name)
    for index, choice in enumerate(QUESTIONS[name]["choices"]):
        question.buttons[index].click()
        right = choice.get("right", False)
        verdict, icon, kind = ("Right.", "check", "right") if right else ("Not this one.", "times", "wrong")
        assert f'role="status" class="attention-{kind}"' in question.explanation
        assert verdict in question.explanation
        assert choice["explanation"].split("`")[0] in html.unescape(question.explanation)
        assert question.buttons[index].icon == icon
        assert f"attention-{kind}" in question.buttons[index]._dom_classes
        shown = [button for button in question.buttons if "attention-shown" in button._dom_classes]
        assert shown == [question.buttons[index]]
        assert "attention-answered" in question._dom_classes
        question.corner.click()
        assert "attention-answered" not in question._dom_classes
    assert question.guesses == list(range(len(question.buttons))), "the way back is no guess"
    assert question.corner.layout.visibility == "hidden", "what is right is known"


@each_question
def test_skipping_is_one_click_and_says_what_is_right(name):
    question = ask(name)
    question.corner.click()
    right = next(index for index, choice in enumerate(QUESTIONS[name]["choices"]) if choice.get("right"))
    assert "This is the answer." in question.explanation
    coloured = [button for button in question.buttons if "attention-right" in button._dom_classes]
    assert coloured == [question.buttons[right]]
    assert question.guesses == []


@each_question
def test_a_choice_that_is_code_is_set_as_code_and_then_all_are(name):
    """Or one would stand out by its font."""
    question = ask(name)
    assert len({bool(re.fullmatch("`[^`]+`", choice["text"])) for choice in QUESTIONS[name]["choices"]}) == 1
    page = question._repr_mimebundle_()["text/html"]
    for choice, button in zip(QUESTIONS[name]["choices"], question.buttons, strict=True):
        code = re.fullmatch("`(.*)`", choice["text"])
        assert ("attention-code" in button._dom_classes) == bool(code)
        assert button.description == (code[1] if code else choice["text"])
        assert "`" not in button.description, "a button shows no code within a sentence"
        assert not code or f"<code>{html.escape(code[1])}</code>" in page


def test_after_a_restart_the_card_shows_what_was_answered(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_PROGRESS", str(tmp_path / "progress.json"))
    question, untouched = ask("loss_of_a_guess"), ask("loss_of_a_guess")._repr_mimebundle_()
    question.buttons[0].click()
    question.buttons[2].click()
    again = ask("loss_of_a_guess")
    assert again.guesses == [0, 2]
    assert again.explanation == question.explanation
    assert [button.icon for button in again.buttons] == ["times", "", "times", ""]
    question.corner.click()
    question.corner.click()
    again = ask("loss_of_a_guess")
    assert [button.icon for button in again.buttons] == ["times", "check", "times", ""]
    assert again.explanation == question.explanation
    assert "attention-answered" in again._dom_classes
    for kind in ("text/html", "text/plain"):
        assert again._repr_mimebundle_()[kind] == untouched[kind], "what is stored must not tell"
    assert ask("swap_two_tokens").explanation == ""


def test_text_is_escaped_and_code_is_set_as_code():
    choices = [{"text": "yes", "explanation": "<b>bold</b>"}]
    question = Question("Is `a < b` & c?", choices, lambda answer, right: "")
    assert "<code>a &lt; b</code> &amp; c" in question.children[0].value
    question.buttons[0].click()
    assert "&lt;b&gt;bold" in question.explanation


def test_unknown_name_lists_the_names():
    with pytest.raises(
        ValueError, match=r"no question called 'which'. Did you mean 'which_dim'.*mean_at_one"
    ):
        ask("which")
