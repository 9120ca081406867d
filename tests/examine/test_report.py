"""What a report says first, and how it shows itself."""

import pytest
from examine.one_file import Model
from examine.right import BLOCK, V

from attention_course.examine import Finding, Report, examine
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
    assert report.headline == "2 wrong, 1 doubtful, 1 right, 1 not asked. Mend this first: e."
    assert "This follows from “e”: mend that first." in report.findings[1].advice
    assert all(sign in repr(report) for sign in SIGNS.values())


def test_doubts_are_not_faults():
    assert Report((finding("a", "doubtful"), finding("b", "not asked")))


def test_a_report_shows_the_leak_probe_in_a_notebook():
    report = examine(Model(V, BLOCK), vocab_size=V, block_size=BLOCK, train=False)
    bundle = report._repr_mimebundle_()
    assert bundle["text/plain"] == repr(report)
    assert "<img" in bundle["text/html"]
    assert "<b>" not in Report((finding("a", "wrong"),))._repr_mimebundle_()["text/html"]
