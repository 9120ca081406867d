"""What was missed comes back after 1, 7 and 30 days, in a file whose dates are moved, and then no more."""

import json
from datetime import date, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attention_course.exercises import EXERCISES, check
from attention_course.fills import fill, fills
from attention_course.ladder import RUNGS
from attention_course.progress import (
    DAYS,
    LONGEST,
    Due,
    Record,
    due,
    keep_answer,
    keep_review,
    keep_try,
    move,
    progress,
    read,
    that_come_back,
)
from attention_course.questions import QUESTIONS, ask, warm_up
from attention_course.review import TIME, minutes, portion, review

REFERENCE = EXERCISES["windowed_mean"].reference


def pass_days(file: Path, days: int) -> None:
    """Move all dates of the file back: so many days have passed."""
    content = json.loads(file.read_text())
    for entry in content["review"].values():
        entry["due"] = (date.fromisoformat(entry["due"]) - timedelta(days)).isoformat()
    file.write_text(json.dumps(content))


def answer(question, right: bool) -> None:
    texts = [choice.get("right", False) for choice in question._choices]
    question.buttons[texts.index(right)].click()


def question_again():
    (card,) = review().cards
    return card


def exercise_again(right: bool) -> None:
    assert "windowed_mean" in review().cards[0].value
    check("windowed_mean", REFERENCE if right else lambda x, k: x, 0)


def fill_again(right: bool) -> None:
    (card,) = review().cards
    assert card.done == []
    if right:
        card.done = ["gaps"]
    else:
        card.missed = True
        card.done = ["gaps"]


KINDS = {
    "question mean_at_one": (
        lambda: answer(ask("mean_at_one"), False),
        lambda right: answer(question_again(), right),
    ),
    "exercise windowed_mean": (lambda: check("windowed_mean", lambda x, k: x, 0), exercise_again),
    "fill windowed_mean": (lambda: setattr(fill("windowed_mean"), "missed", True), fill_again),
}


@pytest.mark.parametrize("item", KINDS)
def test_what_was_missed_comes_back_after_1_7_and_30_days(file, item):
    miss, again = KINDS[item]
    miss()
    for days in DAYS:
        assert review().items == []
        pass_days(file, days - 1)
        assert review().items == [], "a day too early"
        assert "To review" not in repr(progress())
        pass_days(file, 1)
        assert review().items == [item]
        assert f"To review: 1 {item.split()[0]}." in repr(progress())
        again(True)
    assert read(file).review == {}
    assert repr(review()).startswith("Nothing to review. ")


@pytest.mark.parametrize("item", KINDS)
def test_missed_again_it_comes_back_tomorrow(file, item):
    miss, again = KINDS[item]
    miss()
    for days, right in ((1, True), (7, False), (1, True), (7, True)):
        pass_days(file, days)
        assert review().items == [item]
        again(right)
        assert review().items == []
    assert read(file).review[item].days == DAYS[-1]


@pytest.mark.parametrize("item", KINDS)
def test_right_before_it_is_due_changes_nothing(file, item):
    miss, _ = KINDS[item]
    miss()
    before = read(file).review
    keep_review(item, right=True)
    assert read(file).review == before
    pass_days(file, 400)
    assert review().items == [item], "it waits"


def test_only_the_first_answer_counts(file):
    question = ask("mean_at_one")
    answer(question, True)
    answer(question, False)
    assert read(file).review == {}
    answer(ask("which_dim"), False)
    pass_days(file, 1)
    card = question_again()
    answer(card, True)
    answer(card, False)
    assert read(file).review["question which_dim"].days == 7
    pass_days(file, 7)
    question_again().corner.click()
    assert read(file).review["question which_dim"].days == 1, "skipped is missed"


def test_nothing_is_written_by_looking(file):
    review(), warm_up("bytes"), fill("windowed_mean")
    assert not file.exists()


@given(st.lists(st.booleans(), max_size=9))
def test_after_any_answers_on_the_due_days_the_step_is_the_number_of_the_last_right_ones(answers):
    record, item = Record(), "question mean_at_one"
    move(record, item, right=False)
    for right in answers:
        if item in record.review:
            record.review[item] = Due(date.today().isoformat(), record.review[item].days)
            move(record, item, right)
    streak, done = 0, False
    for right in answers:
        streak = streak + 1 if right else 0
        done |= streak == len(DAYS)
    assert (item not in record.review) == done
    assert done or record.review[item].days == DAYS[streak]


def test_old_files_load_and_others_lose_nothing(file):
    file.write_text('{"exercises": {}, "questions": {}, "notes": 1}')
    assert review().items == []
    keep_answer("mean_at_one", "nothing", right=False)
    content = json.loads(file.read_text())
    content["review"]["question of a newer edition"] = {"due": "2020-01-01", "days": 7}
    file.write_text(json.dumps(content))
    tomorrow = date.today() + timedelta(days=1)
    assert repr(review()).endswith(f"comes back on {tomorrow.day} {tomorrow:%B}.")
    keep_try("windowed_mean", False, ())
    content = json.loads(file.read_text())
    assert content["notes"] == 1
    assert content["review"].keys() == {
        "question mean_at_one",
        "question of a newer edition",
        "exercise windowed_mean",
    }


def test_a_damaged_file_is_told_of(file):
    file.write_text("{")
    assert "Move the file away" in repr(review())


def test_a_review_takes_about_five_minutes_and_what_is_left_comes_next(file):
    for name in list(QUESTIONS)[:15]:
        keep_review(f"question {name}", right=False)
    pass_days(file, 1)
    keep_review("exercise windowed_mean", right=False)
    pass_days(file, 1)
    first = review()
    assert sum(map(minutes, first.items)) <= TIME
    assert f"for {16 - len(first.items)} more." in repr(first)
    for card in first.cards:
        answer(card, True)
    assert {*review().items}.isdisjoint(first.items)


@given(st.lists(st.sampled_from(sorted(that_come_back())), unique=True, max_size=12))
def test_the_first_is_always_taken_and_others_as_far_as_they_fit(items):
    chosen = portion(items)
    assert chosen[:1] == items[:1]
    assert [item for item in items if item in chosen] == chosen
    assert len(chosen) < 2 or sum(map(minutes, chosen)) <= TIME
    for item in {*items} - {*chosen}:
        assert sum(map(minutes, chosen)) + minutes(item) > TIME


def test_all_that_can_be_missed_comes_back_but_exercises_that_take_very_long():
    items = {f"question {name}" for name in QUESTIONS} | {f"fill {name}" for name in fills()}
    short = {f"exercise {name}" for name, each in EXERCISES.items() if each.minutes <= LONGEST}
    assert that_come_back() == items | short
    assert due(Record(review={item: Due("2020-01-01", 1) for item in items})) != []


@pytest.mark.parametrize("rung", RUNGS[1:], ids=lambda rung: rung.stem)
def test_a_rung_begins_with_two_questions_from_below_drawn_anew(rung):
    below = [name for other in RUNGS[: rung.number - 1] for name in other.templates]
    lessons = {QUESTIONS[name]["question"] for name in below}
    drawn = {each for other in RUNGS[: rung.number - 1] for name in other.templates for each in [name]}
    texts = {
        entry["question"]
        for other in RUNGS[: rung.number - 1]
        for name in other.templates
        for entry in other.variants(name)
    }
    for _ in range(5):
        first, second = warm_up(rung.stem).children
        assert first.question != second.question
        assert {first.question, second.question} <= texts - lessons
    assert drawn == {*below}
    assert f'warm_up("{rung.stem}")' in rung.text("notebook.py")


def test_the_first_rung_has_none_below():
    with pytest.raises(ValueError, match=r"no rung above others called 'bag_of_words'.*tril_matmul"):
        warm_up("bag_of_words")
