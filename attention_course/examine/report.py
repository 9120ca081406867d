"""What an examination found: as text for a terminal, and as a panel for a notebook."""

import html
import json
import textwrap
from collections import Counter
from dataclasses import dataclass, fields
from typing import Any, Literal
from xml.etree.ElementTree import Element, SubElement, tostring

from attention_course.plots import Panel, picture
from attention_course.plots.card import MUTED, frame, points, prose

FindingVerdict = Literal["wrong", "doubtful", "right", "not asked"]
SIGNS: dict[FindingVerdict, str] = {"wrong": "✗", "doubtful": "?", "right": "✓", "not asked": "–"}
WIDTH = 100  # characters of a line in a terminal
FOLD = '<details style="margin:10px 0 0"><summary>{}</summary>{}</details>'
SUITE = "attention_course.examine"  # the name in the XML


@dataclass(frozen=True)
class Finding:
    """One question that was put to a model, and its answer.

    Attributes:
        name: what a right model does.
        verdict: "right", "doubtful", "wrong", or "not asked": the question could not be asked.
        measured: what was measured; why not, if the question could not be asked.
        expected: what it should be.
        cause: the usual cause, and its cure.
        rung: the number of the rung that explains it.
        follows_from: the name of a finding that explains this one, and is to be fixed first.
        panel: a picture of the measurement.
    """

    name: str
    verdict: FindingVerdict
    measured: str
    expected: str = ""
    cause: str = ""
    rung: int = 8
    follows_from: str | None = None
    panel: Panel | None = None

    @property
    def advice(self) -> str:
        """What is expected, why it is missed, and where to read about it; empty unless wrong or doubtful."""
        if self.verdict in ("right", "not asked"):
            return ""
        first = f"This follows from “{self.follows_from}”: fix that first."
        expected = f"(Expected: {self.expected}) " if self.expected else ""
        return f"{expected}{first if self.follows_from else self.cause} (Rung {self.rung})"

    def __str__(self) -> str:
        lines = [f"{SIGNS[self.verdict]} {self.name}: {self.verdict}", self.measured, self.advice]
        return "\n".join(folded(line, "    " * bool(at)) for at, line in enumerate(lines) if line)


def folded(line: str, indent: str = "") -> str:
    """Return a line for a terminal, folded."""
    return textwrap.fill(line, WIDTH, initial_indent=indent, subsequent_indent="    ")


@dataclass(frozen=True)
class Report:
    """The findings of an examination. It is true if all questions were put, most could be asked, and nothing
    is wrong.

    Attributes:
        findings: what is to be fixed first comes first, then what follows from it, what is doubtful, what is
            right, and what could not be asked; each in the order of the questions.
        stopped: whether the examination was stopped before its end.
        remarks: sentences on the examination itself.
    """

    findings: tuple[Finding, ...]
    stopped: bool = False
    remarks: tuple[str, ...] = ()

    def __post_init__(self):
        verdicts = list(SIGNS)
        order = sorted(self.findings, key=lambda f: (verdicts.index(f.verdict), f.follows_from is not None))
        object.__setattr__(self, "findings", tuple(order))

    def __bool__(self) -> bool:
        return not self.stopped and not self.wrong and self.enough

    @property
    def enough(self) -> bool:
        """Whether any questions could be asked, and at least as many as could not."""
        asked = sum(finding.verdict != "not asked" for finding in self.findings)
        return 2 * asked >= max(1, len(self.findings))

    @property
    def wrong(self) -> bool:
        """Whether something is wrong."""
        return any(finding.verdict == "wrong" for finding in self.findings)

    @property
    def headline(self) -> str:
        """How many findings there are of each verdict, and which to fix, or to look at, first."""
        counts = Counter(finding.verdict for finding in self.findings)
        listed = [f"{counts[verdict]} {verdict}" for verdict in SIGNS if counts[verdict]]
        said = ", ".join(listed) or "nothing found"
        if self.stopped:
            said = f"{said}; stopped before the end"
        if self.wrong:
            return f"{said}. Fix this first: {self.findings[0].name}."
        if not self.enough:
            return f"{said}. That is too little to judge it by."
        return f"{said}. Look at this: {self.findings[0].name}." if counts["doubtful"] else f"{said}."

    def __repr__(self) -> str:
        counts = Counter(finding.verdict for finding in self.findings)
        told = [str(f) for f in self.findings if f.advice and not f.follows_from]
        follow = (f for f in self.findings if f.advice and f.follows_from)
        told += [f"{SIGNS[f.verdict]} {f.name}: {f.verdict}, from “{f.follows_from}”" for f in follow]
        if counts["right"]:
            told.append(f"✓ {counts['right']} right; print(report.everything) lists them")
        reasons = Counter(f.measured for f in self.findings if f.verdict == "not asked")
        told += [folded(f"– {reason} ({many} not asked)") for reason, many in reasons.items()]
        return "\n".join([self.headline, *map(folded, self.remarks), "", *told])

    @property
    def everything(self) -> str:
        """All findings in full, as text."""
        return "\n".join([self.headline, *map(folded, self.remarks), "", *map(str, self.findings)])

    def as_json(self) -> str:
        """The report as JSON: the headline, whether it is true, the remarks, and each finding's fields."""
        findings = [
            {each.name: getattr(finding, each.name) for each in fields(Finding) if each.name != "panel"}
            for finding in self.findings
        ]
        return json.dumps(
            {
                "headline": self.headline,
                "passed": bool(self),
                "stopped": self.stopped,
                "remarks": self.remarks,
                "findings": findings,
            },
            indent=2,
        )

    def as_junit(self) -> str:
        """The report as JUnit's XML, one test case per question, as CI servers read it."""
        suite = Element("testsuite", name=SUITE, tests=str(len(self.findings) + self.stopped))
        for finding in self.findings:
            case = SubElement(suite, "testcase", classname="examine", name=finding.name)
            if finding.verdict == "wrong":
                SubElement(case, "failure", message=finding.measured).text = finding.advice
            elif finding.verdict == "not asked":
                SubElement(case, "skipped", message=finding.measured)
            elif finding.verdict == "doubtful":
                SubElement(case, "system-out").text = str(finding)
        if self.stopped:
            case = SubElement(suite, "testcase", classname="examine", name="The examination ends")
            SubElement(case, "error", message="It was stopped before its end.")
        return tostring(suite, encoding="unicode", xml_declaration=True)

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        return {"text/plain": repr(self), "text/html": self._html()}

    def _html(self) -> str:
        loud, quiet = ([f for f in self.findings if bool(f.advice) is told] for told in (True, False))
        counts = Counter(finding.verdict for finding in quiet)
        said = ", ".join(f"{many} {verdict}" for verdict, many in counts.items())
        rest = FOLD.format(said, points(map(row, quiet))) if quiet else ""
        panels = [finding.panel for finding in self.findings if finding.panel is not None]
        drawn = pictures(panels, self.headline) if panels else ""
        sign = SIGNS["wrong" if self.wrong else "right" if self else "not asked"]
        notes = "".join(map(prose, self.remarks))
        return frame("examine", sign, self.headline, notes + points(map(row, loud)) + rest) + drawn


def pictures(panels: list[Panel], alt: str) -> str:
    """Return panels as HTML: a picture, or where the package was installed alone, how to see it."""
    try:
        return picture(*panels, alt=alt)._repr_mimebundle_()["text/html"]
    except ModuleNotFoundError:
        return '<div>Pictures need more packages: pip install "attention-course[course]"</div>'


def row(finding: Finding) -> tuple[str, str, str]:
    """Return a finding for `points`: its name and what was measured, and below them what to do."""
    measured = f'<span style="{MUTED}">{html.escape(finding.measured)}</span>'
    advice = f'<div style="margin-left:1.6em">{html.escape(finding.advice)}</div>' if finding.advice else ""
    named = f"<strong>{html.escape(finding.name)}</strong> &nbsp;{measured}{advice}"
    return SIGNS[finding.verdict], finding.verdict, named
