"""`check`, `hint` and `solution`: names, order, and what they show."""

import html
import re

import pytest

from attention_course.exercises import EXERCISES, check, hint, hints_given, solution

NAMES = list(EXERCISES)


@pytest.fixture(autouse=True)
def fresh_hints():
    hints_given.clear()


def test_not_callable():
    with pytest.raises(TypeError, match="function itself, but got a list"):
        check("causal_mean_loop", [1.0])


@pytest.mark.parametrize("ask", [lambda n: check(n, None), hint, solution])
def test_an_unknown_name_lists_the_names(ask):
    with pytest.raises(ValueError, match="Did you mean 'causal_mean_loop'") as error:
        ask("causal_mean_lop")
    assert all(name in str(error.value) for name in NAMES)
    with pytest.raises(ValueError, match="There are: ") as error:
        ask("zzz")
    assert "Did you mean" not in str(error.value)


@pytest.mark.parametrize("name", NAMES)
def test_hints_come_in_order(name):
    hints = EXERCISES[name].hints
    for number, text in enumerate(hints, 1):
        given = hint(name)
        assert repr(given) == f"Hint {number} of {len(hints)}: {text}"
        assert f"Hint {number} of {len(hints)}" in given._repr_html_()
    for _ in range(2):
        assert repr(hint(name)).startswith("No more hints")
        assert f"solution('{name}')" in repr(hint(name))


@pytest.mark.parametrize("name", NAMES)
def test_a_solution_asks_before_it_shows(name):
    shown = solution(name)
    text = shown._repr_mimebundle_()["text/plain"]
    assert text == f"Solution of {name}: hidden until you press the button."
    assert "def " not in "".join(str(child.get_state().values()) for child in shown.children)
    shown.button.click()
    assert "<pre" in shown.source.value
    assert re.search(r"def \w+\(", shown.source.value)
    assert "return" in shown.source.value
    assert shown.button.layout.display == "none"
    assert shown._repr_mimebundle_()["text/plain"] == text


def test_the_solution_is_the_source_of_the_reference():
    shown = solution("stable_softmax")
    shown.button.click()
    assert html.escape("exp / exp.sum(dim=-1, keepdim=True)") in shown.source.value
