"""A bug in how a model begins and what it gives to training is found by a question of `beginning`."""

import pytest
from examine.bugs import ONE_FILE, named

from attention_course.examine import beginning
from attention_course.examine.question import questions_of


@pytest.mark.parametrize("name", ["a head thrown away", "loss summed", "embeddings too large"])
def test_a_bug_is_found_first_by_its_finding(name):
    bug = ONE_FILE[name]
    assert bug.finding in {question.name for question in questions_of(beginning)}
    assert named(bug)[:1] == [bug.finding]
