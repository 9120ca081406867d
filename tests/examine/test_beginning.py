"""A bug in how a model begins and what it gives to training is found by a question of `beginning`."""

import pytest
from examine.bugs import named

from attention_course.examine import beginning
from attention_course.examine.one_file import Model
from attention_course.examine.planted import BUGS
from attention_course.examine.question import Candidate, questions_of
from attention_course.examine.subject import Subject


@pytest.mark.parametrize("name", ["a head thrown away", "loss summed", "embeddings too large"])
def test_a_bug_is_found_first_by_its_finding(name):
    finding = BUGS[name].finding
    assert finding in {question.name for question in questions_of(beginning)}
    assert named(name)[:1] == [finding]


def test_generate_is_called_by_position():
    class Named(Model):
        def generate(self, prompt, n):
            return super().generate(prompt, n)

    for question in (beginning.generates, beginning.writes_predictions):
        finding = question.put_to(Candidate(Subject(Named(), 29, 24)), {})
        assert finding.verdict == "right", finding
