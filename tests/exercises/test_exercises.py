"""`check`, `hint` and `solution`: names, order, what comes next, and what was before."""

import pytest
import torch
from answers import mean_of_past

from attention_course.exercises import EXERCISES, check, hint, hints_given, solution, what_follows
from attention_course.ladder import RUNGS


def test_what_is_no_answer_or_no_seed_is_refused():
    with pytest.raises(TypeError, match="function itself, but got a list"):
        check("causal_mean_loop", [1.0])
    for seed in (-1, True):  # other types: beartype is first, in tests
        with pytest.raises((TypeError, ValueError), match=r"seed = .*, expected an integer of at least 0"):
            check("causal_mean_loop", mean_of_past, seed=seed)
    with pytest.raises(ValueError, match=r"seed = 9223372036854775808, expected .* below 2\*\*63"):
        check("causal_mean_loop", mean_of_past, seed=2**63)


@pytest.mark.usefixtures("shapes_unchecked")
def test_a_tensor_of_one_integer_is_a_seed():
    one, other = (check("causal_mean_loop", lambda x: x, seed) for seed in (3, torch.tensor(3)))
    assert repr(one) == repr(other)


@pytest.mark.parametrize("ask", [lambda name: check(name, None), hint, solution])
def test_an_unknown_name_lists_the_names(ask):
    with pytest.raises(ValueError, match="Did you mean 'causal_mean_loop'") as error:
        ask("causal_mean_lop")
    assert all(name in str(error.value) for name in EXERCISES)


@pytest.mark.parametrize("name", EXERCISES)
def test_hints_come_in_order_and_end_with_the_solution(name):
    hints_given.clear()
    hints = EXERCISES[name].hints
    for number, text in enumerate(hints, 1):
        assert repr(hint(name)) == f"Hint {number} of {len(hints)}: {text}"
    for _ in range(2):
        assert f"solution('{name}')" in repr(hint(name))
    hints_given.clear()


def test_a_passed_exercise_leads_to_the_next():
    followed = {name: what_follows(name) for name in EXERCISES}
    first, *_, last = [list(rung.table("exercises.toml")) for rung in RUNGS]
    assert followed[first[0]] == f"Next: exercise 2, `{first[1]}`."
    assert followed[first[-1]] == f"Next: rung 2, {RUNGS[1].title}."
    assert followed[last[-1]] == "This was the last exercise."
    assert len(set(followed.values())) == len(EXERCISES)
    assert check(first[0], EXERCISES[first[0]].reference).remark == followed[first[0]]
    assert not check(first[0], None).remark


def test_what_has_passed_before_is_remembered(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_PROGRESS", str(tmp_path / "progress.json"))
    for _ in range(2):
        assert not check("causal_mean_loop", lambda x: x).remark
    check("causal_mean_loop", mean_of_past)
    for answer in (lambda x: x, lambda x: ...):
        assert check("causal_mean_loop", answer).remark == "✓ You have passed this exercise before."
