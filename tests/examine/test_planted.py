"""Planted bugs can be planted, and are found, each by the finding that is meant for it."""

import ast
import re

import pytest
import torch
from examine.bugs import PAIRS, TABLE, hits, named, page, row
from sampling import sampled

from attention_course.examine import QUESTIONS
from attention_course.examine.planted import BUGS, ONE_FILE, Bug, draw_bugs, plant, source_of

NAMES = {question.name for question in QUESTIONS}
SEEN = [bug for bug in BUGS.values() if bug.finding]
WRITTEN = TABLE.read_text(encoding="utf-8")
QUICK = [
    *("a head thrown away", "loss summed", "embeddings too large", "mask off by one"),
    *("weights over the batch", "dropout in eval mode"),
    *("no residual around attention", "no residual around attention, gpt.py"),
]
ROWS = [line for line in WRITTEN.splitlines() if line.startswith("| ")][2:]


def test_there_are_forty_and_each_is_meant_for_a_question_or_has_a_reason():
    assert len(BUGS) >= 40
    assert all(bug.finding in NAMES or (not bug.finding and bug.why) for bug in BUGS.values())


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_changes_the_source_and_makes_a_model(name):
    bug = BUGS[name]
    assert ast.dump(ast.parse(source_of(bug))) != ast.dump(ast.parse(source_of(Bug("none", [], bug.file))))
    model = plant(name)
    assert (model.vocab_size, model.block_size) == (29, 24)


def test_parameters_come_from_the_global_seed_and_sizes_can_be_given():
    models = []
    for _ in range(2):
        torch.manual_seed(3)
        models.append(plant("no scale", vocab_size=7, block_size=5, heads=2))
    one, other = models
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert (one.vocab_size, one.block_size, one.layers[0].heads) == (7, 5, 2)


@pytest.mark.parametrize(
    ("bugs", "words"),
    [
        (["no masks"], "no bug called 'no masks'. Did you mean 'no mask'? There are: no mask, mask off by"),
        (["no mask", "no mask, attention.py"], "of attention.py and one_file.py"),
        (["no mask", "mask added as 1 instead of -inf"], "change the same words. Take one of them."),
        (["no scale", "no positions, two layers, no table", "rotary over the heads, one layer"], "positions"),
    ],
)
def test_bugs_that_cannot_be_planted(bugs, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        plant(*bugs)


def test_words_to_replace_must_occur_once():
    with pytest.raises(ValueError, match=r"occurs \d\d times"):
        plant(Bug("many", [["self", ""]]))


def test_bugs_are_drawn_that_are_seen_each_by_another_finding():
    drawn = [draw_bugs(3, torch.Generator().manual_seed(seed)) for seed in range(20)]
    assert drawn[0] == draw_bugs(3, torch.Generator().manual_seed(0))
    for bugs in drawn:
        assert len({bug.finding for bug in bugs} - {""}) == 3
        assert all(bug.file == ONE_FILE for bug in bugs)
    assert len({bug.name for bugs in drawn for bug in bugs}) > 20


def test_the_table_has_a_row_for_each_bug_and_nine_in_ten_are_found():
    assert page(ROWS) == WRITTEN, "Renew it: python tests/examine/bugs.py"
    assert hits(ROWS) > 0.9 * len(SEEN)


@pytest.mark.parametrize("name", QUICK)
def test_a_bug_is_found_first_by_its_finding(name):
    assert named(name)[:1] == [BUGS[name].finding]


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(BUGS, every=4))
def test_a_row_of_the_table_is_what_an_examination_says(name):
    assert row(BUGS[name]) == ROWS[[*BUGS].index(name)], "Renew it: python tests/examine/bugs.py"


@pytest.mark.slow
@pytest.mark.thorough
def test_of_two_bugs_most_are_both_named():
    both = [{BUGS[name].finding for name in pair} <= set(named(*pair)) for pair in PAIRS]
    assert sum(both) >= 0.7 * len(PAIRS), list(zip(PAIRS, both, strict=True))
