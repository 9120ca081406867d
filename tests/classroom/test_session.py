"""The votes of a class: each is in the file before it counts, and once per phone and round."""

import json
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from classes import QUESTION, QUESTIONS
from hypothesis import given
from hypothesis import strategies as st

from attention_course.classroom import session as module
from attention_course.classroom.session import STAGES, RefusedError, Session

EVENTS = st.one_of(
    st.tuples(st.integers(0, 3), st.integers(-1, 3)),  # a phone, and its choice
    st.sampled_from(sorted({action for actions in STAGES.values() for action in actions})),
)


@given(st.lists(EVENTS, max_size=60))
def test_the_file_has_all_that_counts_whatever_happens(events):
    with TemporaryDirectory() as folder:
        file = Path(folder, "votes.jsonl")
        session = Session(QUESTIONS, file)
        for event in events:
            try:
                if isinstance(event, str):
                    session.act(event, session.name, session.stage)
                else:
                    session.vote(f"phone {event[0]}", session.name, str(session.round), str(event[1]))
            except RefusedError:
                pass
        last = {}
        for line in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
            last[line["question"], line["round"], line["phone"]] = line
    counted = Counter((question, round, line["choice"]) for (question, round, _), line in last.items())
    for (name, entry), votes in zip(session.questions, session.votes, strict=True):
        for round, chosen in votes.items():
            for index, choice in enumerate(entry["choices"]):
                assert counted.pop((name, round, choice["text"]), 0) == [*chosen.values()].count(index)
    assert not counted
    assert all(line["right"] is (line["choice"] == "`1 / 2`") for line in last.values())


@pytest.fixture
def session(tmp_path):
    return Session(QUESTIONS, tmp_path / "votes.jsonl")


def test_a_class_votes_talks_and_votes_again(session):
    ann, bob = "ann", "bob"
    session.act("begin", "half", "join")
    for phone in (ann, bob):
        session.hear(phone)
    session.vote(ann, "half", "1", "0")
    assert session.turnout() == (1, 2)
    session.vote(ann, "half", "1", "1")  # changed
    session.vote(bob, "half", "1", "0")
    assert session.shown() == []
    session.act("show", "half", "first")
    assert (session.shown(), session.counts(1)) == ([1], [1, 1, 0])
    session.act("again", "half", "shown")
    session.vote(bob, "half", "2", "1")
    assert (session.chosen(ann), session.chosen(bob)) == (None, 1)
    session.act("show", "half", "second")
    assert (session.shown(), session.counts(2)) == ([1, 2], [0, 1, 0])
    session.act("explain", "half", "both")
    session.act("next", "half", "explained")
    assert (session.name, session.stage, session.chosen(bob)) == ("again", "first", None)
    assert "next" not in session.actions  # it is the last
    assert session.summary() == ["half: 1 of 2, then 1 of 1 right"]


def test_what_cannot_be_meant_is_refused_and_changes_nothing(session):
    phone = "ann"
    session.act("begin", "half", "join")
    for wrong in (
        (phone, "again", "1", "0"),
        (phone, "half", "2", "0"),
        (phone, "half", "1", "3"),
        (phone, "half", "1", "-1"),
        (phone, "half", "1", "٠"),
    ):
        with pytest.raises(RefusedError, match=r"\.$"):
            session.vote(*wrong)
    for wrong in (("explain", "half", "first"), ("begin", "half", "join"), ("show", "again", "first")):
        with pytest.raises(RefusedError, match="further already"):
            session.act(*wrong)
    assert (session.stage, session.votes) == ("first", [{}, {}])


def test_a_class_has_room_for_so_many_phones_that_are_there_and_for_all_that_have_voted(session, monkeypatch):
    monkeypatch.setattr(module, "MOST", 2)
    session.act("begin", "half", "join")
    session.vote("ann", "half", "1", "0")
    session.hear("bob")
    with pytest.raises(RefusedError, match="full"):
        session.hear("cleo")
    later = module.time.monotonic() + module.AWAY
    monkeypatch.setattr(module.time, "monotonic", lambda: later)
    for phone in ("cleo", "dan"):  # in the places of Ann and Bob
        session.vote(phone, "half", "1", "1")
    with pytest.raises(RefusedError, match="full"):
        session.vote("bob", "half", "1", "1")
    session.vote("ann", "half", "1", "1")
    assert session.counts(1) == [0, 3, 0]


def test_a_phone_that_went_away_is_not_waited_for(session, monkeypatch):
    here, away = "ann", "bob"
    monkeypatch.setattr(module.time, "monotonic", lambda: 100.0)
    session.hear(away)
    monkeypatch.setattr(module.time, "monotonic", lambda: 100.0 + module.AWAY)
    session.hear(here)
    assert session.turnout() == (0, 1)


def test_a_question_without_a_right_answer_is_counted_too(tmp_path):
    choices = [{"text": choice["text"]} for choice in QUESTION["choices"]]
    session = Session([("poll", {"question": "?", "choices": choices})], tmp_path / "votes.jsonl")
    session.act("begin", "poll", "join")
    session.vote("ann", "poll", "1", "0")
    assert session.summary() == ["poll: 0 of 1 votes"]
