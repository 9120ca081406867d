"""Progress is kept in a file that people may read, edit, damage and delete; a lesson goes on all the same."""

import errno
import json
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from attention_course import progress as module
from attention_course.examine import QUESTIONS as EXAMINED
from attention_course.exercises import EXERCISES, SHARED_MESSAGES, check
from attention_course.exercises.problems import SELF_EXPLAINING
from attention_course.files import MAX_BYTES, printable
from attention_course.ladder import RUNGS, WAYS
from attention_course.progress import (
    HARDEST,
    SKIP,
    Answered,
    Record,
    Tried,
    keep,
    keep_answer,
    keep_fill,
    keep_review,
    keep_try,
    kept,
    main,
    progress,
    read,
    report,
)
from attention_course.questions import QUESTIONS, ask

RUNG = RUNGS[0]
REFERENCE = EXERCISES["windowed_mean"].reference


def choose(name: str, right: bool = False, other: int = 0) -> None:
    """Press the button of the right choice, or of a wrong one."""
    question = ask(name)
    choices = QUESTIONS[name]["choices"]
    fitting = [index for index, choice in enumerate(choices) if choice.get("right", False) is right]
    question.buttons[fitting[other]].click()


# What is kept


def test_nothing_is_written_before_an_answer_nor_in_tests(file, monkeypatch):
    def stub(x, k):
        raise NotImplementedError

    ask("mean_at_one")._repr_mimebundle_()
    check("windowed_mean", stub)
    check("windowed_mean", None)
    assert repr(progress(RUNG.stem)) == "Rung 1: 6 questions and 3 exercises."
    monkeypatch.setenv("ATTENTION_PROGRESS", "")
    choose("mean_at_one")
    assert kept() == (Record(), "")
    assert not list(file.parent.iterdir())


def test_a_person_can_read_what_was_done(file):
    question = ask("mean_at_one")
    for index in (1, 0, 1):
        question.buttons[index].click()
    check("windowed_mean", lambda x, k: x, 0)
    wrong = check("windowed_mean", EXERCISES["windowed_mean"].mistakes[0].function, 0)
    for answer in (REFERENCE, lambda x, k: x):
        check("windowed_mean", answer, 0)
    keep_answer("score_of_the_future", "−∞", right=True)
    text, before = file.read_text(encoding="utf-8"), file.stat()
    keep_try("windowed_mean", False, ("no_scale",))
    assert file.stat().st_mtime_ns == before.st_mtime_ns, "what changes nothing is not written"
    entry = json.loads(text)
    assert entry["questions"]["mean_at_one"] == {"answers": ["(2, 8)", "(3, 6)"], "right_at_first_try": False}
    tried = entry["exercises"]["windowed_mean"]
    assert (tried["tries"], tried["passed"]) == (3, True)
    assert wrong.mistake in tried["mistakes"]
    assert "−∞" in text
    assert len(text.splitlines()) > 10
    assert kept()[0].questions["score_of_the_future"] == Answered(["−∞"], True)


def test_answers_from_two_notebooks_at_once_are_all_kept(file):
    with ThreadPoolExecutor(8) as pool:
        problems = list(pool.map(lambda i: keep_answer(f"question {i}", "yes", right=True), range(40)))
    assert set(problems) == {""}
    assert len(read(file).questions) == 40


def test_what_a_newer_edition_has_put_into_the_file_stays(file):
    """Links and permissions: tests/test_files.py."""
    newer = {"seen": [1], "wrong": "later"}
    content = {
        "questions": {"which_dim": {"answers": ["0"], "right_at_first_try": True, **newer}},
        "exercises": {"windowed_mean": {"tries": 1, "passed": False, "mistakes": [], **newer}},
        "fills": {},
        "review": {"question which_dim": {"due": "2026-11-27", "days": 1, **newer}},
        "notes": ["mine"],
    }
    file.write_text(json.dumps(content))
    assert keep_answer("mean_at_one", "(3, 6)", right=True) == ""
    content["questions"]["mean_at_one"] = {"answers": ["(3, 6)"], "right_at_first_try": True}
    assert json.loads(file.read_text()) == content
    assert report({"ann": read(file)}).count("which_dim") == 0
    assert keep_review("question which_dim", right=False) == ""
    assert json.loads(file.read_text())["review"]["question which_dim"].items() >= newer.items()


# What cannot be read or written

ENTRIES = [  # of a question, of an exercise
    ('{"mean_at_one": 3}', "{}"),
    ('{"mean_at_one": {"answers": "All"}}', "{}"),
    ('{"mean_at_one": {"answers": [3]}}', "{}"),
    ("{}", '{"windowed_mean": {"tries": "3"}}'),
    ("{}", '{"windowed_mean": {"tries": -3}}'),
    ("{}", '{"windowed_mean": {"tries": 0, "passed": true}}'),
    ("{}", '{}, "review": [1]'),
    ("{}", '{}, "review": {"question mean_at_one": "2026-11-27"}'),
    ("{}", '{}, "review": {"question mean_at_one": {"due": "27.11.", "days": 1}}'),
    ("{}", '{}, "review": {"question mean_at_one": {"due": "2026-02-30", "days": 1}}'),
    ("{}", '{}, "review": {"question mean_at_one": {"due": "20261127", "days": 1}}'),
    ("{}", '{}, "review": {"question mean_at_one": {"due": "2026-11-27", "days": 9999999999}}'),
    ("{}", '{}, "review": {"question mean_at_one": {"due": "2026-11-27", "days": true}}'),
    ("[]", "{}"),
]
TWICE = '{"questions": {}, "exercises": {"rotate": {"tries": 1}}, "exercises": {}}'  # as after a merge
DAMAGED = ["", TWICE, "null", "[]", '{"questions": {}}', "[" * 100_000]
DAMAGED += [f'{{"questions": {asked}, "exercises": {tried}}}' for asked, tried in ENTRIES]


@pytest.mark.usefixtures("shapes_unchecked")
@pytest.mark.parametrize("text", DAMAGED, ids=lambda text: text[:70])
def test_a_damaged_file_is_told_of_and_left_alone(file, text):
    file.write_text(text)
    question = ask("mean_at_one")
    question.buttons[0].click()
    assert "Right." in question.explanation
    assert re.search(r"is not kept: progress.json is damaged.*Move the file away", question.explanation)
    verdict = check("windowed_mean", REFERENCE, 0)
    assert verdict.passed
    assert "Your progress is not kept" in verdict._repr_html_()
    assert "Your progress is not kept" in repr(verdict)
    assert not re.search(r"object|argument|not subscriptable|recursion", repr(verdict)), "Python's own words"
    assert "Move the file away" in repr(progress())
    assert "Move the file away" in progress(RUNG.stem)._repr_html_()
    assert file.read_text() == text


def test_what_cannot_be_written_or_read_is_told_of(file):
    file.mkdir()
    assert "not kept" in keep_answer("mean_at_one", "(3, 6)", right=True)
    assert "cannot be read" in repr(progress(RUNG.stem))


def test_only_damage_is_a_reason_to_delete_the_file(file, monkeypatch):
    def broken(_):
        raise OSError(5, "Input/output error", str(file))

    file.write_text("{")
    assert "Move the file away" in kept()[1]
    monkeypatch.setattr("attention_course.progress.read_text", broken)
    assert "Input/output error" in kept()[1]
    assert "Delete" not in kept()[1]


def test_what_could_not_be_read_again_is_not_written(file):
    content = {"questions": {}, "exercises": {}, "notes": ""}
    content["notes"] = "x" * (MAX_BYTES - len(json.dumps(content)))
    file.write_text(text := json.dumps(content))
    assert "would be larger than 16 MB" in keep_answer("mean_at_one", "(3, 6)", right=True)
    assert file.read_text() == text
    assert kept()[1] == ""


def test_what_is_too_deep_to_be_written_ends_no_lesson(file):
    """From Python 3.12 on a file may hold what can be read, and not be written again."""
    deep = []
    for _ in range(sys.getrecursionlimit()):
        deep = [deep]
    choose("mean_at_one", right=True)
    text = file.read_text()
    told = keep(lambda record: record.others.update(notes=deep))
    assert told.startswith("Your progress is not kept: The file holds lists in lists, too deep to be written")
    assert file.read_text() == text


@pytest.mark.skipif(os.name == "nt", reason="Windows has other words, and links only for some")
def test_what_the_system_says_is_told_in_words(file):
    file.symlink_to("progress.json")
    assert "progress.json: Too many levels of symbolic links." in keep_answer("which_dim", "0", right=True)
    file.unlink()
    (file.parent / ".progress.json.lock").unlink(missing_ok=True)
    (file.parent / ".progress.json.lock").mkdir()
    assert ".progress.json.lock: Is a directory." in (told := keep_answer("which_dim", "0", right=True))
    assert "Errno" not in told


def test_a_home_is_found_without_a_shell(file, monkeypatch):
    monkeypatch.setenv("HOME", str(file.parent))
    monkeypatch.setenv("USERPROFILE", str(file.parent))  # on Windows
    monkeypatch.setenv("ATTENTION_PROGRESS", "~/x.json")
    assert keep_answer("mean_at_one", "(3, 6)", right=True) == ""
    assert (file.parent / "x.json").exists()


@pytest.mark.filterwarnings("ignore:flock not supported")
def test_a_lock_left_behind_is_named_where_the_system_has_no_locks(file, monkeypatch):
    fcntl = pytest.importorskip("fcntl")
    assert keep_answer("mean_at_one", "(3, 6)", right=True) == ""
    lock = file.parent / ".progress.json.lock"
    assert lock.exists()

    def missing(*_):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", missing)
    told = keep_answer("which_dim", "0", right=True)
    assert f"has left {lock} behind" in told
    assert "you may delete that file" in told
    lock.unlink()
    assert keep_answer("which_dim", "0", right=True) == ""
    assert list(read(file).questions) == ["mean_at_one", "which_dim"]


# What is shown


def test_the_line_of_a_rung(file):
    choose("mean_at_one", right=True)
    choose("after_a_space", right=True)
    choose("swap_two_tokens")
    choose("swap_two_tokens", right=True)
    check("causal_mean_loop", EXERCISES["causal_mean_loop"].reference, 0)
    check("windowed_mean", lambda x, k: x, 0)
    line = (
        "Rung 1: 2 of 6 questions right at the first try, 1 of 3 exercises passed. "
        "Look again: swap_two_tokens, windowed_mean."
    )
    assert repr(progress(RUNG.stem)) == line
    assert line in progress(RUNG.stem)._repr_html_()
    check("windowed_mean", REFERENCE, 0)
    assert repr(progress(RUNG.stem)).endswith("2 of 3 exercises passed. Look again: swap_two_tokens.")


def test_all_rungs_are_a_table(file):
    for name in RUNG.table("questions.toml"):
        choose(name, right=True)
    keep_try("windowed_mean", False, ())
    page = progress()._repr_html_()
    rows = re.findall(r"<tr><th.*?</tr>", page.partition("<tbody>")[2])
    lines = repr(progress()).splitlines()
    assert [line.partition(":")[0] for line in lines[: len(RUNGS)]] == [f"Rung {r.number}" for r in RUNGS]
    assert len(rows) == len(RUNGS) == len(lines) - len(WAYS)
    assert re.findall(r">([^<>]+)<", rows[0]) == ["1 bag of words", "6 of 6 ✓", "0 of 3", "windowed_mean"]
    assert "✓" not in "".join(rows[1:])


def test_a_rung_is_done_by_its_hardest_exercise_and_each_way_counts_what_is_done_on_it(file):
    build, all_of_them = (
        [line for line in repr(progress()).splitlines() if line.startswith(name)] for name in ("Build", "All")
    )
    assert "0 of 8 done" in build[0]
    assert f"0 of {len(RUNGS)} done" in all_of_them[0]
    for rung in RUNGS:
        exercises = rung.module("exercises").EXERCISES
        hardest = max(exercise.difficulty for exercise in exercises)
        assert next(each for each in exercises if each.name == rung.hardest).difficulty == hardest
        keep_try(rung.hardest, True, ())
        assert "Done" in repr(progress(rung.stem))
    taste, build, all_of_them = repr(progress()).splitlines()[len(RUNGS) :]
    assert f"0 of {len(RUNGS)} done" in taste
    assert "8 of 8 done" in build
    assert f"{len(RUNGS)} of {len(RUNGS)} done" in all_of_them
    keep_fill("mean_of_the_past", ["gaps"])
    assert f"1 of {len(RUNGS)} done" in repr(progress()).splitlines()[len(RUNGS)]
    assert "1 bag of words ✓" in progress()._repr_html_()


def test_an_unknown_rung_lists_the_rungs():
    with pytest.raises(ValueError, match=r"'bag_of_word'. Did you mean 'bag_of_words'.*multi_head"):
        progress("bag_of_word")


# A class


CLASS = {
    "ann": Record(
        {"mean_at_one": Answered(["(3, 6)"], True), "swap_two_tokens": Answered([SKIP])},
        {"windowed_mean": Tried(2, True, ["window_one_too_long"]), "band_matrix": Tried(1, True)},
    ),
    "bob": Record(
        {"mean_at_one": Answered(["(2, 8)"]), "swap_two_tokens": Answered(["All four", "Output 0 only"])},
        {"windowed_mean": Tried(1, False, ["window_one_too_long"])},
    ),
    "cleo": Record(
        {"swap_two_tokens": Answered(["All four"])},
        {"windowed_mean": Tried(1, True), "forgetting_mean": Tried(1, False)},
    ),
    "dan": Record(),
}
REPORT = """\
who   is at rung            right at the first try  exercises passed
ann   2 one matrix product  1 of 2                  2 of 2
bob   1 bag of words        0 of 2                  0 of 1
cleo  1 bag of words        0 of 1                  1 of 2
dan   not begun             0 of 0                  0 of 0

Exercises not passed at the first try:
  windowed_mean: 2 of 3, 1 not yet; most often: window_one_too_long (2)
  forgetting_mean: 1 of 1, 1 not yet

Questions not right at the first try:
  swap_two_tokens: 3 of 3; most often: All four (2)
  mean_at_one: 1 of 2; most often: (2, 8) (1)
"""


def test_the_report_of_a_class(tmp_path, capsys):
    """Learners are named by their folders, and two of one name by their whole paths; each counts once."""
    files = [tmp_path / who / "notebooks" / "progress.json" for who in CLASS]
    for file, record in zip(files, CLASS.values(), strict=True):
        file.parent.mkdir(parents=True)
        file.write_text(record.to_json())
    again = files[0].parent / ".." / "notebooks" / "progress.json"
    assert main([str(file) for file in (*files, files[0], again)]) == 0
    assert capsys.readouterr() == (REPORT, "")
    alike = tmp_path / "tuesday" / "ann.json"
    alike.parent.mkdir()
    alike.write_text(CLASS["bob"].to_json())
    assert main([str(file) for file in (files[0], alike, files[1])]) == 0
    who = [line.split("  ")[0].strip() for line in capsys.readouterr().out.splitlines()[1:4]]
    assert who == [str(files[0]), str(alike), "bob"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has links only for some")
@pytest.mark.parametrize(
    "others", [["bob", "ada", "3/bob.json"], ["x.json", "2/x.json", "e/x.json/progress.json"]]
)
def test_no_learner_hides_another_in_the_report(tmp_path, monkeypatch, capsys, others):
    """Also where links, or folders called like files, make the path of one the name of another."""
    monkeypatch.chdir(tmp_path)
    files = ["1/x.json", "2/x.json", "3/bob.json", "x.json", "e/x.json/progress.json"]
    for file in map(Path, files):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(CLASS["bob"].to_json())
    for link, file in zip(("bob", "ada"), files, strict=False):
        Path(link).symlink_to(file)
    assert main(others) == 0
    rows = capsys.readouterr().out.splitlines()[1 : 1 + len(others)]
    assert [row.split("  ")[0].strip() for row in rows] == others


def test_no_more_than_the_hardest_are_named():
    many = Record(exercises={name: Tried(2, False) for name in EXERCISES})
    assert report({"ann": many}).count("1 not yet") == HARDEST
    assert report({"dan": Record()}).endswith(
        "Exercises not passed at the first try: none\n\nQuestions not right at the first try: none"
    )


def test_what_cannot_be_read_is_named_and_the_rest_reported(tmp_path, capsys):
    good, bad, missing = (tmp_path / name for name in ("bob.json", "eve.json", "none.json"))
    good.write_text(CLASS["bob"].to_json())
    bad.write_text("{")
    assert main([str(path) for path in (bad, good, missing)]) == 1
    told = capsys.readouterr()
    assert told.out.splitlines()[1].split("  ")[:2] == ["bob", "1 bag of words"]
    damaged, absent = told.err.splitlines()
    assert damaged.startswith(f"{bad} is damaged, or isn't a progress file (")
    assert absent == f"{missing} cannot be read: No such file or directory. Name a learner's progress.json."
    assert main([str(bad)]) == 1
    assert capsys.readouterr().out == ""


EVIL = "\x1b]52;c;ZXZpbA==\x07\nann  11 an empty page\x9b2J\u202e"


@pytest.mark.skipif(os.name == "nt", reason="Windows allows no such names")
def test_nothing_of_a_file_reaches_the_terminal_but_names_of_the_course(tmp_path, capsys, monkeypatch):
    forged = Record(
        {EVIL: Answered([EVIL]), "mean_at_one": Answered([EVIL, "(2, 8)"]), "band_matrix": Answered()},
        {EVIL: Tried(9), "windowed_mean": Tried(9, False, [EVIL, "wrong_dtype"])},
    )
    files = [tmp_path / f"{EVIL}.json", tmp_path / f"damaged{EVIL}.json", tmp_path / f"missing{EVIL}.json"]
    files[0].write_text(forged.to_json(), encoding="utf-8")
    files[1].write_text(json.dumps({"questions": {"mean_at_one": {"answers": EVIL}}, "exercises": {}}))
    assert main([str(file) for file in files]) == 1
    told = capsys.readouterr()
    table, *rest = told.out.split("\n\n")
    assert table.splitlines()[1:] == [f"{printable(EVIL)}  1 bag of words  0 of 1                  0 of 1"]
    assert rest == [
        "Exercises not passed at the first try:\n"
        "  windowed_mean: 1 of 1, 1 not yet; most often: wrong_dtype (1)",
        "Questions not right at the first try:\n  mean_at_one: 1 of 1",
        "Left out, as this edition does not have them: 2 names.\n",
    ]
    assert len(told.err.splitlines()) == 2
    monkeypatch.setenv("ATTENTION_PROGRESS", str(files[1]))
    for text in (told.err, repr(progress()), keep_answer("mean_at_one", "(3, 6)", right=True)):
        assert text == printable(text, keep="\n")


def test_every_mistake_that_can_be_kept_is_one_that_the_report_names():
    explained = {problem.__name__ for problem in SELF_EXPLAINING}
    known = module.mistakes()
    assert known.keys() == EXERCISES.keys()
    for name, exercise in EXERCISES.items():
        named = {*SHARED_MESSAGES, *(prop.mistake for prop in exercise.properties if prop.mistake)}
        named |= {mistake.names[0] for mistake in exercise.mistakes}
        assert known[name] == named | explained | {question.name for question in EXAMINED}
