"""Every reference passes, every named mistake and every answer of the store gets the verdict it deserves."""

from importlib import import_module
from itertools import combinations
from pathlib import Path

import answers
import pytest
from answers import RIGHT, WRONG, judged

from attention_course.exercises import EXERCISES, check, judging
from attention_course.exercises.comparing import same
from attention_course.exercises.problems import SELF_EXPLAINING, Case
from attention_course.exercises.running import Answer

for file in Path(answers.__file__).parent.glob("[a-z]*.py"):
    import_module(f"answers.{file.stem}")

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("shapes_unchecked")]
NAMES = list(EXERCISES)
SEEDS = range(2)


def recognized(exercise, function, seed):
    """Name the mistakes of a function as `check` does, without drawing a panel."""
    if exercise.judge:
        return judged(exercise.name, function, seed).mistakes
    drawn, answer = judging.trial(exercise, seed), Answer(function)
    cases = [
        Case(exercise, answer, arguments, target, answer.run(arguments))
        for arguments, target in zip(drawn.inputs, drawn.targets, strict=True)
    ]
    found = judging.recognize(drawn, cases)
    return found and found[0]


# Named mistakes


@pytest.mark.parametrize("name", NAMES)
def test_the_reference_passes_20_draws(name):
    for seed in range(2 if EXERCISES[name].judge else 20):  # an examination is slow
        verdict = judged(name, EXERCISES[name].reference, seed)
        assert verdict.passed, f"seed {seed}: {verdict}"
        assert (verdict.mistake, verdict.mistakes) == (None, ())
        assert "✗" not in verdict._repr_html_()
        insight = EXERCISES[name].insight
        assert verdict.message.endswith(f" inputs, new random ones for this check. {insight}")


@pytest.mark.parametrize("name", NAMES)
def test_a_mistake_is_rejected_under_its_own_name(name):
    exercise = EXERCISES[name]
    for mistake in exercise.mistakes:
        verdict = judged(name, mistake.function, 0)
        assert (verdict.passed, verdict.mistakes) == (False, mistake.names), mistake
        assert verdict.mistake == mistake.names[0]
        assert verdict.message.endswith(mistake.message)
        assert "yours" in verdict._repr_html_()
        assert exercise.insight not in repr(verdict)
        assert recognized(exercise, mistake.function, seed=1) == mistake.names, mistake


@pytest.mark.parametrize("name", NAMES)
def test_two_mistakes_at_once_get_both_names(name):
    """Not all: one can hide the other, and two can look like a third."""
    exercise = EXERCISES[name]
    pairs = exercise.pairs[:: 1 + len(exercise.pairs) // 24]
    named = [set(recognized(exercise, pair.function, seed=0) or ()) for pair in pairs]
    both = sum(names == set(pair.names) for names, pair in zip(named, pairs, strict=True))
    assert both >= 0.4 * len(pairs), f"{both} of {len(pairs)}"


@pytest.mark.parametrize("name", NAMES)
def test_no_two_mistakes_are_the_same_function(name):
    exercise = EXERCISES[name]
    drawn = judging.trial(exercise, 0)
    did = [[drawn.outcome(m, i) for i in range(len(drawn.inputs))] for m in exercise.mistakes]
    for one, other in combinations(did, 2):
        assert not all(
            same(a, b, exercise.tolerance) and str(a.error) == str(b.error)
            for a, b in zip(one, other, strict=True)
        )


# Answers that nobody planned for


def ids(given):
    named = [f"{name}-{answer.__name__}" for name, answer, *_ in given]
    assert len(set(named)) == len(named)
    return named


@pytest.mark.parametrize(("name", "answer"), RIGHT, ids=ids(RIGHT))
def test_a_right_answer_passes(name, answer):
    for seed in SEEDS:
        verdict = check(name, answer, seed)
        assert verdict.passed, f"seed {seed}: {verdict}"


@pytest.mark.parametrize(("name", "answer", "mistakes"), WRONG, ids=ids(WRONG))
def test_a_wrong_answer_is_rejected(name, answer, mistakes):
    verdict = judged(name, answer, seed=0)
    assert not verdict.passed
    assert set(verdict.mistakes) - {problem.__name__ for problem in SELF_EXPLAINING} == set(mistakes), verdict
    by_property = {prop.mistake for prop in EXERCISES[name].properties}
    assert set(recognized(EXERCISES[name], answer, seed=1) or ()) >= set(mistakes) - by_property


@pytest.mark.parametrize("name", {name: None for name, *_ in (*RIGHT, *WRONG)})
def test_there_are_answers_of_both_kinds(name):
    """An exercise may be new and have none."""
    assert sum(exercise == name for exercise, _ in RIGHT) >= 3
    assert sum(exercise == name for exercise, *_ in WRONG) >= 3
