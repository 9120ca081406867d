"""The pages of a class, asked without a browser: thirty phones at once, and whoever means no good."""

import json
import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from classes import QUESTION, Client, opened

from attention_course.classroom.server import in_browsers


@pytest.fixture
def a_class(tmp_path):
    with opened(tmp_path) as made:
        yield made


@pytest.mark.parametrize(
    ("typed", "asked"),
    [
        ("192.168.1.7", "192.168.1.7"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("FE80::00aB", "fe80::ab"),
        ("MacBook-Pro.local", "macbook-pro.local"),
        ("Büro.local", "xn--bro-hoa.local"),
        ("3f4e2c1b5d6e", "3f4e2c1b5d6e"),
    ],
)
def test_an_address_is_written_as_browsers_do(typed, asked):
    assert in_browsers(typed) == in_browsers(asked) == asked


@pytest.mark.parametrize(
    "typed",
    [
        *("0.0.0.0", "::", "127.1", "127.0.0.01", "a.0x7f", "fe80::1%eth0", "a:80", "a/b", "a b", "", "."),
        *("255.255.255.255", "224.0.0.251", "ff02::1"),
    ],
)
def test_what_no_browser_opens_is_no_address(typed):
    with pytest.raises(ValueError, match="no address that a phone can open"):
        in_browsers(typed)


def test_thirty_phones_vote_at_once(a_class):
    teacher = Client(a_class.teacher)
    teacher.act("begin", "join")

    def take_part(seed: int) -> int:
        phone, draw = Client(a_class.phones), random.Random(seed)
        for choice in (draw.randrange(3), draw.randrange(3)):
            assert phone.vote(choice).status == 303
            assert phone.get("/now").status == 200
        assert f'id="choice-{choice}" name="choice" value="{choice}" aria-pressed="true"' in phone.text
        return choice

    with ThreadPoolExecutor(30) as pool:
        chosen = list(pool.map(take_part, range(30)))
    assert "everybody has voted (30)" in teacher.get("/screen/now").text
    assert "<svg" not in teacher.text  # no votes are shown yet
    teacher.act("show", "first")
    for count in map(chosen.count, range(3)):
        assert f"<span>{count} <small>" in teacher.get("/screen/now").text
    lines = [json.loads(line) for line in a_class.file.read_text(encoding="utf-8").splitlines()]
    assert (len(lines), {line["phone"] for line in lines}) == (60, set(range(1, 31)))


REFUSED = {
    "a choice that is not there": (409, lambda phone: phone.vote(7)),
    "no number": (409, lambda phone: phone.vote("../../etc/passwd")),
    "a vote of another round": (409, lambda phone: phone.vote(0, round=2)),
    "a vote on another question": (409, lambda phone: phone.vote(0, question="again")),
    "nothing": (409, lambda phone: phone.post("/")),
    "bytes": (409, lambda phone: phone.ask("POST", "/", b"choice=%ff&round=%00")),
    "a long body": (413, lambda phone: phone.vote("0" * 2000)),
    "a phone that was not let in": (409, lambda phone: leave(phone).vote(0)),
    "another host": (421, lambda phone: phone.get("/", Host="evil.example")),
    "another page": (403, lambda phone: phone.ask("POST", "/", b"choice=0", Origin="http://evil.example")),
    "the teacher's page": (403, lambda phone: phone.get("/screen/")),
    "the teacher's votes": (403, lambda phone: phone.get("/screen/now")),
    "what the teacher does": (403, lambda phone: phone.act("show", "first")),
    "a guessed secret": (403, lambda phone: phone.get("/teacher/abc")),
    "another page of the server": (404, lambda phone: phone.get("/../session.py")),
    "another method": (405, lambda phone: phone.ask("DELETE", "/")),
}


def leave(phone: Client) -> Client:
    phone.cookie = "attention_phone=forged"
    return phone


@pytest.mark.parametrize(("status", "ask"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_wrong_is_refused_in_a_sentence(a_class, status, ask):
    teacher, phone = Client(a_class.teacher), Client(a_class.phones)
    teacher.act("begin", "join")
    assert ask(phone).status == status
    assert phone.headers["Content-Type"].startswith("text/plain")
    assert phone.text.endswith((".", ")"))
    assert "evil" not in phone.text
    assert (a_class.session.stage, a_class.session.votes) == ("first", [{}, {}])
    assert Client(a_class.phones).vote(0).status == 303  # the others go on


def test_what_is_much_too_long_is_cut_off(a_class):
    phone = Client(a_class.phones)
    with pytest.raises((ConnectionError, AssertionError)):
        assert phone.vote("0" * 10**6).status == 303
    assert Client(a_class.phones).status == 200


def test_a_full_disk_makes_a_vote_not_count_now_or_later(a_class, monkeypatch, caplog):
    teacher, phone = Client(a_class.teacher), Client(a_class.phones)
    teacher.act("begin", "join")
    phone.vote(1)
    before = a_class.file.read_text(encoding="utf-8")

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr("attention_course.classroom.session.os.fsync", full)
        assert "No space left on device" in phone.vote(0).text
        assert (phone.status, a_class.session.counts(1)) == (500, [0, 1, 0])
        assert a_class.file.read_text(encoding="utf-8") == before
    assert Client(a_class.phones).vote(2).status == 303
    assert [record.getMessage() for record in caplog.records] == [
        f"The vote could not be kept, so it does not count: {a_class.file}: No space left on device."
    ]
    assert not caplog.records[0].exc_info, "a traceback"
    assert len(a_class.file.read_text(encoding="utf-8").splitlines()) == 2


def test_a_phone_that_keeps_no_cookie_takes_no_place(a_class, monkeypatch):
    monkeypatch.setattr("attention_course.classroom.session.MOST", 2)
    teacher, phone, forgets = Client(a_class.teacher), Client(a_class.phones), Client(a_class.phones)
    teacher.act("begin", "join")
    for _ in range(5):
        forgets.cookie = ""
        assert forgets.get("/now").status == 200
    forgets.cookie = ""
    assert forgets.vote(0).status == 409
    assert "cookie" in forgets.text
    for _ in range(5):
        assert phone.get("/now").status == 200
    assert "0 of 1 have voted" in teacher.get("/screen/now").text
    assert Client(a_class.phones).vote(0).status == 303


def test_what_a_teacher_wrote_is_text_and_no_page_runs_a_script_in_it(a_class):
    teacher, phone = Client(a_class.teacher), Client(a_class.phones)
    teacher.act("begin", "join")
    phone.vote(2)
    teacher.act("show", "first")
    teacher.act("explain", "shown")
    for page in (teacher.get("/screen/"), phone.get("/")):
        assert "How much is &lt;b&gt;half&lt;/b&gt; of <code>one</code>?" in page.text
        assert QUESTION["choices"][2]["text"] not in page.text
        assert "That is &lt;i&gt;code&lt;/i&gt;." in page.text
        assert page.text.count("<script") == 1
        assert "script-src 'self'" in page.headers["Content-Security-Policy"]
    assert teacher.get("/code.svg").headers["Content-Type"] == "image/svg+xml"


def test_the_teachers_secret_is_in_no_page(a_class):
    teacher, phone = Client(a_class.teacher), Client(a_class.phones)
    secret = a_class.teacher.rpartition("/")[2]
    for page in (teacher.get("/screen/"), teacher.get("/screen/now"), phone.get("/"), phone.get("/class.js")):
        assert page.status == 200
        assert secret not in page.text
