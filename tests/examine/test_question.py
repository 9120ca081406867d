"""A question takes any answer, also an error, and knows what explains a wrong one."""

import pytest
from examine.one_file import Model
from examine.right import BLOCK, V

from attention_course.examine.question import Candidate, asks, found
from attention_course.examine.report import Finding
from attention_course.examine.subject import CannotAskError, Subject

pytestmark = pytest.mark.usefixtures("shapes_unchecked")


@pytest.fixture
def candidate():
    return Candidate(Subject(Model(V, BLOCK), V, BLOCK))


def wrong(_):
    return found(False, "measured", "expected", "cause")


@pytest.mark.parametrize(
    ("error", "verdict"), [(CannotAskError("too small"), "not asked"), (RuntimeError("no"), "wrong")]
)
def test_an_error_is_an_answer(candidate, error, verdict):
    def fails(_):
        raise error

    finding = asks("It answers", 8)(fails).put_to(candidate, {})
    assert (finding.name, finding.rung, finding.verdict) == ("It answers", 8, verdict)
    assert str(error) in finding.measured


@pytest.mark.parametrize(("verdict", "follows"), [("wrong", "before"), ("right", None)])
def test_only_a_wrong_finding_explains_another(candidate, verdict, follows):
    before = {"before": Finding("before", verdict, "", "", "", 1)}
    assert asks("after", 2, "before")(wrong).put_to(candidate, before).follows_from == follows
    assert asks("after", 2, "other")(wrong).put_to(candidate, before).follows_from is None


def test_a_question_that_makes_no_sense_any_more_says_what_to_mend_first():
    finding = asks("after", 2)(wrong).moot("before")
    assert (finding.verdict, finding.rung) == ("not asked", 2)
    assert "before" in finding.measured


def test_small_models_are_not_judged_by_means_of_random_texts():
    with pytest.raises(CannotAskError, match="at least"):
        Candidate(Subject(Model(V, 4), V, 4)).check_size()
