"""Exercises are data: their texts are there, and each mistake is a patch that fits its reference."""

import re
from collections import Counter

import pytest
import torch

from attention_course.exercises import EXERCISES, SHARED_MESSAGES
from attention_course.exercises.exercise import exercise as make_exercise
from attention_course.exercises.exercise import patched, source_of
from attention_course.ladder import ORDER, Rung

EVERY = pytest.mark.parametrize("exercise", EXERCISES.values(), ids=EXERCISES)


def double_of_mean(x, dim=-1):
    """Return twice the mean.

    Twice, that is.
    """
    mean = x.mean(dim=dim)  # one number for each row
    return mean + mean


def test_a_patch_replaces_words_of_the_body():
    x = torch.tensor([[1.0, 3.0]])
    assert patched(double_of_mean, (("+ mean", "+ 1"),))(x).tolist() == [3.0]
    assert patched(double_of_mean, (("x.mean", "x.sum"), ("mean + mean", "mean")))(x).tolist() == [4.0]
    head, body = source_of(double_of_mean)
    assert head == "def double_of_mean(x, dim=-1):\n"
    assert body.startswith("    mean = x.mean(dim=dim)  # one number")


def test_shared_messages_are_said_by_several_exercises():
    """A message of one exercise alone stands beside its patches."""
    said = Counter(
        message
        for exercise in EXERCISES.values()
        for message in {each.message for each in (*exercise.mistakes, *exercise.properties)}
    )
    assert not [name for name, message in SHARED_MESSAGES.items() if said[message] < 2]


@pytest.mark.parametrize(
    ("table", "functions", "says"),
    [
        ({"patches": [{"+ mean": ""}]}, (), "wrong has no message, neither here nor in shared_messages.toml"),
        ({"message": "No."}, (), "wrong has no patches in the TOML file, and no function has this name"),
        ({"message": "No.", "patches": [{"+ mean": ""}]}, (double_of_mean,), "no mistake .* double_of_mean"),
    ],
)
def test_a_mistake_that_lacks_something_is_refused(monkeypatch, table, functions, says):
    entry = {"hints": [], "mistakes": {"wrong": table}}
    monkeypatch.setattr(Rung, "table", lambda *_: {"double_of_mean": entry})
    with pytest.raises(ValueError, match=says):
        make_exercise(f"rungs.{ORDER[0]}.exercises", double_of_mean, lambda _: [], (), functions)


@EVERY
def test_it_is_shown_by_its_name(exercise):
    """A verbose traceback shows the values of variables, and all exercises are the value of one."""
    assert exercise.name in repr(exercise)
    for shown in (exercise, *exercise.mistakes):
        assert len(repr(shown)) < 100


@EVERY
def test_texts_are_there(exercise):
    assert len(exercise.hints) >= 3
    assert 1 <= exercise.difficulty <= 5
    assert exercise.minutes > 0
    assert len(re.findall(r"(?<!al)[.?](?: |$)", exercise.insight)) in (1, 2)
    messages = [each.message for each in (*exercise.mistakes, *exercise.properties)]
    for text in (exercise.task, exercise.insight, *exercise.hints, *messages):
        assert not re.search(r"!|\b(simply|obviously|just)\b", text.replace("!=", "")), text
        assert text.count("`") % 2 == 0, text


@EVERY
def test_inputs_are_drawn_anew(exercise):
    def draw(seed):
        return str(exercise.draw_inputs(torch.Generator().manual_seed(seed)))

    assert draw(1) == draw(1)
    assert len({draw(seed) for seed in range(12)}) > 1


@EVERY
def test_what_a_check_enforces_stands_in_the_task(exercise):
    detached = any(prop.mistake == "detached" for prop in exercise.properties)
    assert ("without `.detach()` or `torch.no_grad()`" in exercise.task) is detached
    for name in exercise.forbidden:
        assert name in exercise.task
