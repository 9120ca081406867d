"""Every question can be answered, and every choice is explained."""

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
def test_each_choice_shows_its_own_explanation(name):
    question = ask(name)
    for index, choice in enumerate(QUESTIONS[name]["choices"]):
        question.buttons[index].click()
        assert ("Right." if choice.get("right") else "Not this one.") in question.explanation
        assert question.buttons[index].icon == ("check" if choice.get("right") else "times")
    assert question.guesses == list(range(len(question.buttons)))


def test_text_is_escaped_and_code_is_set_as_code():
    question = Question("name", "Is `a < b` & c?", [{"text": "yes", "explanation": "<b>bold</b>"}])
    assert "<code>a &lt; b</code> &amp; c" in question.children[0].value
    question.buttons[0].click()
    assert "&lt;b&gt;bold" in question.explanation


def test_unknown_name_lists_the_names():
    with pytest.raises(
        ValueError, match=r"no question called 'which'. Did you mean 'which_dim'.*mean_at_one"
    ):
        ask("which")


def test_three_questions_a_rung():
    assert len(QUESTIONS) >= 9
