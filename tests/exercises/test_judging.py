"""What went wrong is called by its name; what is right but forbidden or cut off from gradients is told so."""

import pytest
import torch
from answers import bad, judged, mean_of_past
from torch.nn import functional as F

from attention_course.exercises import EXERCISES, judging
from attention_course.exercises.exercise import Mistake
from attention_course.exercises.running import Answer

pytestmark = pytest.mark.slow

NAMES = list(EXERCISES)


def test_two_mistakes_are_both_told():
    def sum_from_the_second_row(x):
        out = torch.zeros_like(x)
        for t in range(1, x.shape[-2]):
            out[..., t, :] = x[..., : t + 1, :].sum(dim=-2)
        return out

    verdict = judged("causal_mean_loop", sum_from_the_second_row, 0)
    assert verdict.mistakes == ("sum_in_place_of_mean", "loop_starts_too_late")
    assert verdict.mistake == "sum_in_place_of_mean"
    assert verdict.headline == "not yet: sum in place of mean, and loop starts too late"
    for mistake in EXERCISES["causal_mean_loop"].mistakes:
        assert (mistake.message in verdict.message) == (mistake.names[0] in verdict.mistakes)


@pytest.mark.parametrize(("row", "name"), [(0, "row 0"), (-1, "the last row")])
def test_a_mistake_is_recognized_but_for_a_row(row, name):
    def sum_but_for_one_row(x):
        out = x.cumsum(dim=-2)
        out[..., row, :] = 7
        return out

    verdict = judged("causal_mean_loop", sum_but_for_one_row, 0)
    assert verdict.mistakes == ("sum_in_place_of_mean",)
    assert verdict.message.startswith(f"Except for {name}, your result is that of a known mistake. ")


@pytest.mark.parametrize(("row", "name"), [(0, "row 0"), (-1, "the last row")])
def test_an_answer_that_is_right_but_for_a_row_is_told_so(row, name):
    def one_row_is_wrong(x):
        out = mean_of_past(x)
        out[..., row, :] += 1
        return out

    assert f"Everything is right except {name}." in bad(one_row_is_wrong).message
    assert "All is right" not in bad(lambda x: mean_of_past(x) + 1).message


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_that_is_zero_everywhere_is_told_of_one_mistake_at_most(name):
    """Zeros fit many pairs of mistakes, and tell of none."""
    verdict = judged(name, lambda *given: torch.zeros_like(EXERCISES[name].reference(*given)), 0)
    assert not verdict.passed
    assert len(verdict.mistakes) < 2
    assert not verdict.message.startswith("But for")


@pytest.mark.parametrize("number", [float("nan"), 2j])
def test_any_one_number_everywhere_is_told_of_one_mistake_at_most(number):
    verdict = judged("causal_mean_loop", lambda x: torch.full_like(x, number, dtype=type(number)), 0)
    assert not verdict.passed
    assert len(verdict.mistakes) < 2


def test_an_answer_that_knows_the_inputs_is_caught_by_a_property():
    inputs = judging.trial(EXERCISES["causal_mean_loop"], 3).inputs
    known = {str(x): mean_of_past(x) for (x,) in inputs}
    verdict = bad(lambda x: known.get(str(x), torch.zeros_like(x)), seed=3)
    assert verdict.headline == "not yet: a property fails"


@pytest.mark.parametrize(
    ("answer", "called"),
    [
        (lambda x: torch.softmax(x, dim=-1), "softmax"),
        (lambda x: F.softmin(-x, dim=-1), "softmax"),
        (lambda x: torch.log_softmax(x, dim=-1).exp(), "log_softmax"),
        (torch.nn.Softmax(dim=-1), "softmax"),
    ],
)
def test_what_a_task_does_without_is_rejected(answer, called):
    verdict = bad(answer, "stable_softmax")
    assert verdict.headline == f"not yet: it calls {called}"
    assert f"calls `{called}`. The task is to do without it" in verdict.message


def test_the_trial_of_a_seed_is_drawn_once_and_each_mistake_called_once(monkeypatch):
    exercise, calls = EXERCISES["causal_mean_loop"], []
    assert judging.trial(exercise, 5) is judging.trial(exercise, 5)
    counting = Mistake(("sum_in_place_of_mean",), "", lambda x: calls.append(x) or x)
    for _ in range(2):
        judging.trial(exercise, 5).outcome(counting, 0)
    assert len(calls) == 1


# Gradients


TRAINED = [name for name, e in EXERCISES.items() if any(prop.mistake == "detached" for prop in e.properties)]


def without_gradients(answer):
    def cut(*arguments):
        with torch.no_grad():
            return answer(*arguments)

    return cut


def without_the_gradient_of(number, answer):
    def cut(*arguments):
        return answer(*(a.data if i == number else a for i, a in enumerate(arguments)))

    return cut


@pytest.mark.parametrize("name", TRAINED)
def test_an_answer_that_cuts_off_gradients_is_told_so(name):
    reference = EXERCISES[name].reference
    floats = [
        i
        for i, a in enumerate(judging.trial(EXERCISES[name], 0).inputs[0])
        if torch.is_tensor(a) and a.is_floating_point()
    ]
    for answer in (
        lambda *arguments: reference(*arguments).detach(),
        without_gradients(reference),
        *(without_the_gradient_of(number, reference) for number in floats),
    ):
        verdict = judged(name, answer, 0)
        assert (verdict.passed, verdict.mistake, verdict.headline) == (False, "detached", "not yet: detached")
        assert "training changes parameters by" in verdict.message
        assert verdict._repr_html_().count("✗ fails") == 1


@pytest.mark.parametrize("part", range(1, 5))
def test_a_block_that_detaches_a_part_is_told_so(part):
    def block(*arguments):
        x, *parts = arguments
        parts[part - 1] = without_gradients(parts[part - 1])
        return EXERCISES["pre_norm_block"].reference(x, *parts)

    assert judged("pre_norm_block", block, 0).mistake == "detached"


def test_where_nothing_is_trained_through_an_answer_may_detach():
    for name in set(NAMES) - set(TRAINED):
        assert judged(name, without_gradients(EXERCISES[name].reference), 0).passed


# Not tried yet


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_stub_is_not_tried_yet(name):
    def raises(*arguments):
        raise NotImplementedError("your turn")

    def returns_none(*arguments):
        pass

    verdicts = [judged(name, stub) for stub in (raises, returns_none, lambda *_: ..., None, ...)]
    for verdict in verdicts:
        assert not verdict.passed
        assert not verdict.mistakes
        assert repr(verdict).startswith(f"{name}: not tried yet\n")
    assert len({verdict._repr_html_() for verdict in verdicts}) == 1


def test_stubs_of_every_form_are_not_tried_yet():
    def documented(x):
        """Average the past."""

    def documented_and_passed(x):
        """Average the past."""
        pass
        ...

    def returned(x):
        return None  # your turn

    text = repr(judged("causal_mean_loop", None))
    assert "None. Is" not in text
    assert {repr(judged("causal_mean_loop", f)) for f in (documented, documented_and_passed, returned)} == {
        text
    }


def test_a_body_without_return_is_told_so():
    def assigns(x):
        out = mean_of_past(x)  # noqa: F841

    def loops(x):
        out = torch.zeros_like(x)
        for t in range(x.shape[-2]):
            out[..., t, :] = x[..., : t + 1, :].mean(dim=-2)

    def names_nothing(x):
        _ = x @ x

    for answer in (assigns, loops, lambda x: print(end="")):
        verdict = bad(answer)
        assert verdict.headline == "not tried yet"
        assert verdict.message == "Your function returned None. Is the `return` missing?"
    assert judging.has_body(Answer(names_nothing))


def test_what_pytorch_has_not_implemented_is_an_error_like_others():
    def softmax_of_booleans(x):
        mask = torch.ones(x.shape[-2], x.shape[-2]).tril().bool()
        return torch.softmax(mask, dim=-1) @ x

    verdict = bad(softmax_of_booleans)
    assert verdict.headline == "not yet: it raises an error"
    assert "not implemented for 'Bool'" in verdict.message


@pytest.mark.usefixtures("shapes_unchecked")  # a wrapper is a call of another function of that name
def test_where_gradients_are_off_a_right_answer_still_passes():
    with torch.no_grad():
        for name in TRAINED:
            assert judged(name, EXERCISES[name].reference, 0).passed


def test_a_body_that_still_raises_not_implemented_is_not_tried_yet():
    def unfinished(x):
        mean_of_past(x)
        raise NotImplementedError

    assert repr(judged("causal_mean_loop", unfinished)) == repr(judged("causal_mean_loop", None))
