"""What a report says first, and how it shows itself."""

import json
from xml.etree.ElementTree import fromstring

import pytest
from examine.right import BLOCK, V

from attention_course.examine import QUESTIONS, Finding, Report, examine
from attention_course.examine.one_file import Model
from attention_course.examine.report import SIGNS

pytestmark = pytest.mark.usefixtures("shapes_unchecked")


def finding(name, verdict, follows_from=None):
    return Finding(name, verdict, "measured <b>", "expected.", "cause.", 6, follows_from)


def test_what_is_to_be_mended_first_comes_first():
    report = Report(
        (
            finding("a", "right"),
            finding("b", "not asked"),
            finding("c", "wrong", follows_from="e"),
            finding("d", "doubtful"),
            finding("e", "wrong"),
        )
    )
    assert not report
    assert "".join(f.name for f in report.findings) == "ecdab"
    assert report.headline == "2 wrong, 1 doubtful, 1 right, 1 not asked. Fix this first: e."
    assert "This follows from “e”: fix that first." in report.findings[1].advice
    assert all(sign in repr(report) for sign in SIGNS.values())


def test_what_cannot_be_asked_for_one_reason_takes_one_line():
    waiting = (question.skipped("a") for question in QUESTIONS[:5])
    report = Report((finding("a", "wrong"), finding("b", "not asked"), *waiting))
    assert repr(report).endswith("– measured <b> (1 not asked)\n– First fix “a”. (5 not asked)")


def test_the_report_of_a_right_model_fits_into_twelve_lines():
    report = examine(Model(V, BLOCK), vocab_size=V, block_size=BLOCK, train=False)
    assert report
    assert repr(report).count("\n") < 12
    assert all(each.measured in report.everything.replace("\n    ", " ") for each in report.findings)


def test_a_report_can_be_read_by_machines():
    report = Report((finding("a", "right"), finding("b", "wrong"), finding("c", "not asked")))
    told = json.loads(report.as_json())
    assert not told["passed"]
    assert [each["name"] + ": " + each["verdict"] for each in told["findings"]] == [
        *("b: wrong", "a: right", "c: not asked")
    ]
    suite = fromstring(report.as_junit())
    assert [[part.tag for part in case] for case in suite] == [["failure"], [], ["skipped"]]
    assert suite[0].find("failure").get("message") == "measured <b>"


def test_doubts_are_not_faults():
    report = Report((finding("b", "right"), finding("a", "doubtful")))
    assert report
    assert report.headline == "1 doubtful, 1 right. Look at this: a."
    assert Report((finding("b", "right"),)).headline == "1 right."
    assert str(Finding("a", "doubtful", "m.", cause="c.")).split("\n")[1:] == ["    m.", "    c. (Rung 8)"]


def test_a_report_of_hardly_anything_passes_nothing():
    asked = [finding("a", "right"), finding("b", "doubtful")]
    assert Report((*asked, finding("c", "not asked"), finding("d", "not asked")))
    report = Report((*asked, *(finding(name, "not asked") for name in "cde")))
    assert not report
    assert report.headline == "1 doubtful, 1 right, 3 not asked. That is too little to judge it by."
    assert not Report(())
    stopped = fromstring(Report((finding("a", "right"),), stopped=True).as_junit())
    assert stopped.get("tests") == str(len(stopped)) == "2"
    assert stopped.find(".//error") is not None
    assert Report(()).headline == "nothing found. That is too little to judge it by."


def test_a_report_shows_the_leak_probe_in_a_notebook():
    report = examine(Model(V, BLOCK), vocab_size=V, block_size=BLOCK, train=False)
    bundle = report._repr_mimebundle_()
    assert bundle["text/plain"] == repr(report)
    assert "<img" in bundle["text/html"]
    assert "<b>" not in Report((finding("a", "wrong"),))._repr_mimebundle_()["text/html"]
