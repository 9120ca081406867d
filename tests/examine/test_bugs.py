"""Planted bugs are found, each by the finding that is meant for it."""

import pytest
from examine.bugs import BUGS, ONE_FILE, PAIRS, TABLE, named, patched, table

from attention_course.examine import QUESTIONS

NAMES = {question.name for question in QUESTIONS}


def test_there_are_forty_and_each_is_meant_for_a_question_or_has_a_reason():
    assert len(BUGS) >= 40
    assert all(bug.finding in NAMES or (not bug.finding and bug.why) for bug in BUGS)


def test_words_to_replace_must_occur_once():
    with pytest.raises(ValueError, match="occurs 0 times"):
        patched("one_file.py", [("no such words", "")])


@pytest.mark.slow
def test_nine_in_ten_are_found_and_the_table_says_so():
    written = TABLE.read_text(encoding="utf-8")
    assert written == table(), "Renew it: python tests/examine/bugs.py"
    rows = [line.split(" | ") for line in written.splitlines() if line.startswith("| ")][2:]
    wanted = [bug for bug in BUGS if bug.finding]
    hits = sum(bug.finding == row[2] for bug, row in zip(BUGS, rows, strict=True) if bug.finding)
    assert hits > 0.9 * len(wanted)


@pytest.mark.slow
def test_of_two_bugs_most_are_both_named():
    both = []
    for pair in PAIRS:
        bugs = [ONE_FILE[name] for name in pair]
        both.append({bug.finding for bug in bugs} <= set(named(*bugs)))
    assert sum(both) >= 0.7 * len(PAIRS), list(zip(PAIRS, both, strict=True))
