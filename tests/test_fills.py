"""Fills: what they offer, and that their stored verdicts are the judge's."""

import gzip
import itertools
import random
import re
from collections import Counter

import jupytext
import make_fills
import pytest
from cells import calls_in, tagged

from attention_course.exercises import EXERCISES
from attention_course.fills import fill, fills
from attention_course.ladder import RUNGS
from attention_course.progress import kept, progress

FIRST_RUNGS = RUNGS[:4]
BY_NAME = {each.name: each for rung in RUNGS for each in make_fills.sources(rung)}
PUZZLES = [(name, kind) for name, made in fills().items() for kind in ("gaps", "blocks") if kind in made]
every_puzzle = pytest.mark.parametrize(("name", "kind"), PUZZLES)


def verdict(puzzle, chosen):
    """Return the names of the mistakes in a stored combination: None if it is right."""
    index = 0
    for choices, choice in zip(puzzle["choices"], chosen, strict=True):
        index = index * len(choices) + choice
    return puzzle["verdicts"][puzzle["table"][index][0]][0]


def test_every_exercise_has_a_fill_but_the_one_on_an_empty_page():
    assert EXERCISES.keys() - fills().keys() == {"gpt"}  # its reference is a page, and the examiner judges it


@every_puzzle
def test_every_wrong_choice_is_rejected_by_its_name_and_the_right_ones_pass(name, kind):
    puzzle = fills()[name][kind]
    assert verdict(puzzle, puzzle["right"]) is None
    for i, choices in enumerate(puzzle["choices"]):
        for wrong in set(range(len(choices))) - {puzzle["right"][i]}:
            assert verdict(puzzle, [*puzzle["right"][:i], wrong, *puzzle["right"][i + 1 :]]), choices[wrong]
    for mistakes, headline, message in puzzle["verdicts"]:
        assert mistakes is None or (mistakes and message and headline.startswith("not yet: "))


@every_puzzle
def test_a_mistake_is_told_in_the_words_that_check_has_for_it(name, kind):
    words = {mistake.names: mistake.message for mistake in BY_NAME[name].mistakes}
    for mistakes, _, message in fills()[name][kind]["verdicts"]:
        assert words.get(tuple(mistakes or ()), "") in message, "make fills"


@pytest.mark.slow
@every_puzzle
def test_stored_verdicts_are_those_of_the_judge(name, kind):
    stored, exercise = fills()[name][kind], BY_NAME[name]
    made = make_fills.Puzzle(exercise, kind)
    *before, last = made.choices
    shown = [*before, [text.removeprefix("return ") for text in last]]  # of a step, the cell's last line
    assert stored["choices"] in (made.choices, shown)
    everything = list(itertools.product(*map(range, map(len, made.choices))))
    for chosen in random.Random(name).sample(everything, min(3, len(everything))):
        texts = tuple(choices[i] for choices, i in zip(made.choices, chosen, strict=True))
        found = make_fills.verdict_of(made, texts)[0]
        alone = [verdict(stored, only) for only in each_wrong_alone(stored, chosen)]
        told = found is None or (found and {*found} <= {name for names in alone for name in names})
        assert verdict(stored, chosen) == (found if told else alone[0])


def each_wrong_alone(puzzle, chosen):
    """Return, for each wrong choice, the right choices with only this one wrong."""
    right = puzzle["right"]
    return [[*right[:i], one, *right[i + 1 :]] for i, one in enumerate(chosen) if one != right[i]]


def test_right_choices_are_not_told_by_their_place_or_their_length():
    signs = Counter()
    for made in fills().values():
        for texts, right in zip(made["gaps"]["choices"], made["gaps"]["right"], strict=True):
            lengths = sorted(map(len, texts))
            signs["gaps"] += 1
            signs["longest"] += len(texts[right]) == lengths[-1] > lengths[-2]
            signs["shortest"] += len(texts[right]) == lengths[0] < lengths[1]
            signs["first"] += right == 0
            signs["last"] += right == len(texts) - 1
    assert all(signs[sign] < 0.5 * signs["gaps"] for sign in ("longest", "shortest", "first", "last")), signs


def test_no_value_shows_where_it_lies_or_hides_a_year_in_a_power_of_ten():
    for name, made in fills().items():
        assert not re.search(r" at 0x|\de\+0\d", repr(made)), name


def test_no_stored_text_has_the_number_of_a_rung():
    """A rung that moves would leave it wrong."""
    for rung in RUNGS:
        assert not re.search(r"\brungs? \d", (rung.folder / "fills.json").read_text(encoding="utf-8"))


def test_all_fills_together_are_small():
    assert sum(len(gzip.compress((rung.folder / "fills.json").read_bytes())) for rung in RUNGS) < 300_000


@pytest.mark.parametrize("rung", FIRST_RUNGS, ids=lambda rung: rung.stem)
def test_a_beginner_fills_in_early_and_often(rung):
    cells = jupytext.reads(rung.text("notebook.py"), fmt="py:percent").cells
    named = [name for cell in cells for kind, name in calls_in(cell.source) if kind == "fill"]
    assert len([name for name in named if name not in EXERCISES]) >= 3
    first = next(i for i, cell in enumerate(cells) if ("fill", named[0]) in calls_in(cell.source))
    prose = " ".join(cell.source for cell in cells[:first] if cell.cell_type == "markdown")
    assert len(re.findall(r"\w+", re.sub(r"<!--.*?-->|!\[.*?\]|\]?\(.*?\)", "", prose))) <= 120
    steps = {tagged(cell, "name") for cell in cells}
    assert {name for name in named if name not in EXERCISES} <= steps


def test_levels_that_are_solved_are_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_PROGRESS", str(tmp_path / "progress.json"))
    shown = fill("head_forward")
    assert shown.done == []
    shown.done = ["gaps"]
    shown.done = ["gaps", "blocks"]
    assert kept()[0].fills == {"head_forward": ["blocks", "gaps"]}
    assert fill("head_forward").done == ["blocks", "gaps"]
    fill("scores_of_all_pairs").done = ["gaps"]
    assert "Filled in: 2 with gaps, 1 from lines in disorder." in repr(progress("query_key_value"))


def test_a_page_without_scripts_shows_the_gaps():
    text = fill("causal_mean_loop")._repr_mimebundle_()["text/plain"]
    assert "____1____" in text
    assert "1, x.shape[-2]" in text


def test_an_unknown_fill_lists_those_there_are():
    with pytest.raises(ValueError, match="head_forward"):
        fill("no_such_fill")
