"""Panels escape what came from a learner, and need nothing from outside."""

import ast
import html
import inspect
import re
import textwrap
from dataclasses import replace

import pytest
import torch
from answers import bad, mean_of_past

from attention_course.exercises import EXERCISES, check, hint, hints_given, panel, what_follows
from attention_course.exercises.exercise import unwrapped
from attention_course.ladder import RUNGS


class Nasty:
    def __repr__(self):
        return "<script>alert(1)</script>"


def test_html_is_escaped():
    def raises(x):
        raise ValueError("<img src=x onerror=alert(1)>")

    page = bad(raises)._repr_html_()
    assert "<img" not in page
    assert html.escape("<img src=x onerror=alert(1)>") in page
    page = bad(lambda x: Nasty())._repr_html_()
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
    verdicts = [check(n, m.function)._repr_html_() for n in EXERCISES for m in EXERCISES[n].mistakes[:1]]
    for page in (*verdicts, hint("shift_matrix")._repr_html_()):
        assert not re.search(r"<script|https?:|url\(|<link|<img", page)
        assert page.count("<div") == page.count("</div")


# The buttons


def card_of(verdict):
    return verdict.card(verdict._repr_html_())


def stub(x, k):
    raise NotImplementedError


def test_hints_come_one_at_a_time_and_stay():
    hints_given.clear()
    hints = EXERCISES["windowed_mean"].hints
    card = card_of(check("windowed_mean", stub))
    assert card.hints.value == ""
    for number in range(1, len(hints) + 1):
        assert card.hint.description == f"Hint {number} of {len(hints)}"
        card.hint.click()
        places = [card.hints.value.find(panel.prose(text)) for text in hints]
        assert places[:number] == sorted(places[:number])
        assert (-1 not in places[:number], set(places[number:]) <= {-1}) == (True, True)
    assert card.hint.disabled
    assert "No more hints" in repr(hint("windowed_mean"))
    assert card_of(check("windowed_mean", stub)).hints.value == card.hints.value, "of the next try"
    hints_given.clear()


def test_a_solution_is_asked_for_once_and_then_shown():
    card = card_of(check("windowed_mean", stub))
    assert len(card.children) == 3
    card.solution.click()
    shown = card.children[3]
    assert "Do you want to see the solution?" in shown.question.value
    assert shown.source.value == ""
    assert card.solution.layout.display == "none"
    shown.button.click()
    assert "def windowed_mean(" in shown.source.value


def test_after_passing_the_solution_is_shown_at_once_and_no_hint_is_offered():
    card = card_of(check("windowed_mean", EXERCISES["windowed_mean"].reference))
    assert card.children[1].children == (card.solution,)
    card.solution.click()
    assert "def windowed_mean(" in card.children[3].source.value
    assert card.children[3].question.layout.display == "none"


@pytest.mark.parametrize("name", EXERCISES)
def test_a_solution_has_no_docstring(name):
    shown = panel.Solution(EXERCISES[name])
    shown.reveal()
    code = html.unescape(re.search("<pre[^>]*>(.*)</pre>", shown.source.value, re.S)[1])
    (function,) = ast.parse(code).body
    assert ast.get_docstring(function) is None
    assert ast.unparse(function.body) == ast.unparse(without_docstring(EXERCISES[name].reference))
    assert ":\n\n" not in code


def without_docstring(reference):
    source = textwrap.dedent(inspect.getsource(unwrapped(reference)))
    (function,) = ast.parse(source).body
    return function.body[ast.get_docstring(function) is not None :]


def test_a_verdict_shows_itself_as_a_card_and_without_one_as_before():
    verdict = check("windowed_mean", stub)
    data = verdict._repr_mimebundle_()
    assert data["text/html"] == verdict._repr_html_()
    assert data["text/plain"] == repr(verdict)
    assert verdict._repr_html_() == replace(verdict, card=None)._repr_mimebundle_()["text/html"]
    assert card_of(verdict).children[0].value == data["text/html"]


# What comes next


def test_a_passed_exercise_leads_to_the_next():
    followed = {name: what_follows(name) for name in EXERCISES}
    first, *_, last = [list(rung.table("exercises.toml")) for rung in RUNGS]
    assert followed[first[0]] == f"Next: exercise 2, `{first[1]}`."
    assert followed[first[-1]] == f"Next: rung 2, {RUNGS[1].title}."
    assert followed[last[-1]] == "This was the last exercise."
    assert len(set(followed.values())) == len(EXERCISES)
    verdict = check(first[0], EXERCISES[first[0]].reference)
    assert f'Next: exercise 2, <code style="{panel.CODE}">{first[1]}</code>.' in verdict._repr_html_()
    assert "Next" not in repr(verdict)
    assert "Next" not in check(first[0], None)._repr_html_()


def test_what_has_passed_before_is_remembered(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_PROGRESS", str(tmp_path / "progress.json"))
    before = check("windowed_mean", stub)
    check("windowed_mean", lambda x, k: x)
    assert check("windowed_mean", stub)._repr_html_() == before._repr_html_()
    check("windowed_mean", EXERCISES["windowed_mean"].reference)
    for answer in (stub, lambda x, k: x):
        verdict = check("windowed_mean", answer)
        assert "✓ You have passed this exercise before." in verdict._repr_html_()
        assert "before" not in repr(verdict)
