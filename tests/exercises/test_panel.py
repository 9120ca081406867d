"""Panels escape what came from a learner, need nothing from outside, and give hints and solutions."""

import ast
import html
import inspect
import re
import textwrap

import pytest
import torch
from answers import bad, judged, mean_of_past

from attention_course.exercises import EXERCISES, check, hint, hints_given, panel, solution
from attention_course.exercises.exercise import unwrapped


class Nasty:
    def __repr__(self):
        return "<script>alert(1)</script>"


def test_html_is_escaped():
    def raises(x):
        raise ValueError(repr(Nasty()))

    for answer in (raises, lambda x: Nasty()):
        page = bad(answer)._repr_html_()
        assert "<script" not in page
        assert "&lt;script&gt;" in page


def test_differing_cells_are_framed_and_the_slice_is_named():
    def wrong_in_the_second_sequence(x):
        out = mean_of_past(x)
        if x.dim() == 3 and x.shape[0] > 1:
            out[1, -1, -1] += 1
        return out

    page = bad(wrong_in_the_second_sequence)._repr_html_()
    assert page.count("outline:2px") == 1
    assert "here yours[1]" in page
    assert "here target[1]" in page


def test_large_tensors_are_cut():
    page = panel.table("x", torch.arange(4000.0).reshape(2, 20, 100), (1,))
    assert "here x[1], the first 9 rows and columns" in page
    assert page.count("<td") == 81


def test_panels_need_nothing_from_outside():
    wrong = [judged(name, each.mistakes[0].function) for name, each in EXERCISES.items() if each.mistakes]
    for shown in (*wrong, hint("shift_matrix")):
        page = shown._repr_html_()
        assert not re.search(r"<script|https?:|url\(|<link|<img", page)
        assert page.count("<div") == page.count("</div")


# The buttons


def card_of(answer):
    """Return the card of a verdict, which shows what a page without widgets shows."""
    verdict = check("windowed_mean", answer)
    page = verdict._repr_html_()
    assert verdict._repr_mimebundle_().items() >= {"text/html": page, "text/plain": repr(verdict)}.items()
    card = verdict.card(page)
    assert card.children[0].value == page
    return card


def stub(x, k):
    raise NotImplementedError


def test_hints_come_one_at_a_time_and_stay():
    hints_given.clear()
    hints = EXERCISES["windowed_mean"].hints
    card = card_of(stub)
    for number in range(len(hints)):
        assert [panel.prose(text) in card.hints.value for text in hints] == [
            i < number for i in range(len(hints))
        ]
        assert card.hint.description == f"Hint {number + 1} of {len(hints)}"
        card.hint.click()
    assert card.hint.disabled
    assert "No more hints" in repr(hint("windowed_mean"))
    assert card_of(stub).hints.value == card.hints.value, "of the next try"
    hints_given.clear()


def test_a_solution_is_asked_for_until_the_exercise_is_passed():
    for answer, asks in ((stub, True), (EXERCISES["windowed_mean"].reference, False)):
        card = card_of(answer)
        assert (card.hint in card.children[1].children) is asks
        card.solution.click()
        assert card.solution.layout.display == "none"
        shown = card.children[3]
        assert (shown.source.value == "", shown.question.layout.display != "none") == (asks, asks)
        shown.button.click()
        assert "def windowed_mean(" in shown.source.value


@pytest.mark.parametrize("name", EXERCISES)
def test_a_solution_is_the_source_without_its_docstring_behind_a_button(name):
    shown = solution(name)
    assert "def " not in "".join(str(child.get_state().values()) for child in shown.children)
    text = shown._repr_mimebundle_()["text/plain"]
    shown.button.click()
    assert (
        shown._repr_mimebundle_()["text/plain"]
        == text
        == f"Solution of {name}: hidden until you press the button."
    )
    code = html.unescape(re.search("<pre[^>]*>(.*)</pre>", shown.source.value, re.S)[1])
    ours, theirs = (
        ast.parse(source).body[0]
        for source in (textwrap.dedent(inspect.getsource(unwrapped(EXERCISES[name].reference))), code)
    )
    assert ast.get_docstring(theirs) is None
    assert ast.unparse(theirs.body) == ast.unparse(ours.body[ast.get_docstring(ours) is not None :])
