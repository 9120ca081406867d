"""Every reference passes, every named mistake and every answer of the store gets the verdict it deserves."""

from importlib import import_module
from pathlib import Path

import answers
import pytest
from answers import RIGHT, WRONG, judged

from attention_course.exercises import EXERCISES, check, judging
from attention_course.exercises.comparing import same
from attention_course.exercises.problems import SELF_EXPLAINING, Case
from attention_course.exercises.running import Submission

for file in Path(answers.__file__).parent.glob("[a-z]*.py"):
    import_module(f"answers.{file.stem}")

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("shapes_unchecked")]
EVERY = pytest.mark.parametrize("exercise", EXERCISES.values(), ids=EXERCISES)


def recognized(exercise, function, seed):
    """Name the mistakes of a function as `check` does, without drawing a panel."""
    if exercise.judge:
        return judged(exercise.name, function, seed).mistakes
    drawn, answer = judging.trial(exercise, seed), Submission(function)
    cases = [
        Case(exercise, answer, arguments, target, answer.run(arguments))
        for arguments, target in zip(drawn.inputs, drawn.targets, strict=True)
    ]
    found = judging.recognize(drawn, cases)
    return found and found[0]


@EVERY
def test_the_reference_passes_8_draws(exercise):
    for seed in range(2 if exercise.judge else 8):  # an examination is slow
        verdict = judged(exercise.name, exercise.reference, seed)
        assert (verdict.passed, verdict.mistakes) == (True, ()), f"seed {seed}: {verdict}"
        assert "✗" not in verdict._repr_html_()
        assert verdict.message.endswith(f" inputs, new random ones for this check. {exercise.insight}")


@EVERY
def test_a_mistake_is_rejected_under_its_own_name_on_any_inputs(exercise):
    for mistake in exercise.mistakes:
        verdict = judged(exercise.name, mistake.function, 0)
        assert (verdict.passed, verdict.mistakes) == (False, mistake.names), mistake
        assert verdict.message.endswith(mistake.message)
        assert "yours" in verdict._repr_html_()
        assert exercise.insight not in repr(verdict)
        assert recognized(exercise, mistake.function, seed=1) == mistake.names, mistake
        for drawn in (judging.trial(exercise, 2), judging.trial(exercise, 3)):
            outcomes = (drawn.outcome(mistake, i) for i in range(len(drawn.inputs)))
            pairs = zip(drawn.targets, outcomes, strict=True)
            assert not all(same(target, found, exercise.tolerance) for target, found in pairs), mistake


@EVERY
def test_two_mistakes_at_once_get_both_names(exercise):
    """Not all: one can hide the other, and two can look like a third."""
    pairs = exercise.pairs[:: 1 + len(exercise.pairs) // 12]
    named = [set(recognized(exercise, pair.function, seed=0) or ()) for pair in pairs]
    both = sum(names == set(pair.names) for names, pair in zip(named, pairs, strict=True))
    assert both >= 0.4 * len(pairs), f"{both} of {len(pairs)}"


# Answers that nobody planned for


def ids(given):
    named = [f"{name}-{answer.__name__}" for name, answer, *_ in given]
    assert len(set(named)) == len(named)
    return named


@pytest.mark.parametrize(("name", "answer"), RIGHT, ids=ids(RIGHT))
def test_a_right_answer_passes(name, answer):
    for seed in range(5):
        verdict = (judged if seed else check)(name, answer, seed)  # in this process, and in the other one
        assert verdict.passed, f"seed {seed}: {verdict}"


@pytest.mark.parametrize(("name", "answer", "mistakes"), WRONG, ids=ids(WRONG))
def test_a_wrong_answer_is_rejected(name, answer, mistakes):
    verdict = judged(name, answer, seed=0)
    assert not verdict.passed
    assert set(verdict.mistakes) - {problem.__name__ for problem in SELF_EXPLAINING} == set(mistakes), verdict
    by_property = {prop.mistake for prop in EXERCISES[name].properties}
    assert set(recognized(EXERCISES[name], answer, seed=1) or ()) >= set(mistakes) - by_property
