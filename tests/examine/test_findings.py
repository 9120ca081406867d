"""A bug in what a model computes is found by a question of `findings`; see also test_bugs."""

import pytest
from examine.bugs import ONE_FILE, named

from attention_course.examine import findings
from attention_course.examine.question import questions_of


@pytest.mark.parametrize("name", ["mask off by one", "dropout in eval mode", "weights over the batch"])
def test_a_bug_is_found_first_by_its_finding(name):
    bug = ONE_FILE[name]
    assert bug.finding in {question.name for question in questions_of(findings)}
    assert named(bug)[:1] == [bug.finding]
