"""What the notebooks claim: proofs assert, numbers in prose are computed, terms are introduced before use.

All of it is read from the built notebooks and their stored outputs, and from the package what `ask`, `check`
and `explore` show there. That a run still gives these outputs is nbval's part.

A number in prose is put there by the build, `{{loss:.2f}}`, or is written in the code beside it, or has the
mark `0.02<!--given-->`, which no page shows: no cell computes it; others say so, or an exercise wants it.
Cells have tags. "proof": it proves the rung against the one below. "given": in words its picture has numbers
that are not in the code.

The `rung.toml` of a rung has the words that it introduces, `words.toml` those that would blur them.
"""

import ast
import inspect
import re
import tomllib
from dataclasses import dataclass, field
from functools import cache
from html import unescape
from itertools import chain
from pathlib import Path

import jupytext
import nbformat
import pytest
import torch
import torch.nn as nn
from build import FIELD
from cells import calls_in, run
from IPython.core.inputtransformer2 import TransformerManager

from attention_course.attention import CrossAttentionHead, attention
from attention_course.exercises import EXERCISES, check
from attention_course.explorers import EXPLORERS, explore
from attention_course.ladder import ORDER, RUNGS
from attention_course.questions import QUESTIONS

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent
PATHS = [ROOT / "notebooks" / f"{rung.name}.ipynb" for rung in RUNGS]
WORDING = tomllib.loads((ROOT / "tests" / "words.toml").read_text(encoding="utf-8"))
ALLOWED = WORDING["allowed"] | {rung.stem: rung.allowed for rung in RUNGS}
GIVEN = "<!--given-->"


@dataclass
class Section:
    """A heading, and everything up to the next one."""

    heading: str
    prose: str = ""
    code: list = field(default_factory=list)
    parts: list = field(default_factory=list)  # the same in reading order: texts, and cells with code


def sections_of(cells) -> list[Section]:
    sections = []
    for cell in cells:
        if cell.cell_type == "code":
            sections[-1].code.append(cell)
            sections[-1].parts.append(cell)
            continue
        for part in re.split(r"^(?=#)", cell.source, flags=re.M):
            if part.startswith("#"):
                heading, _, part = part.partition("\n")
                sections.append(Section(heading.strip("# ")))
            if part.strip():
                sections[-1].prose += part.strip() + "\n\n"
                sections[-1].parts.append(part.strip())
    return sections


@cache
def cells_of(path: Path) -> list:
    return nbformat.read(path, as_version=4).cells


@cache
def read(path: Path) -> list[Section]:
    return sections_of(cells_of(path))


@pytest.fixture(params=PATHS, ids=[path.stem for path in PATHS])
def path(request) -> Path:
    return request.param


# Proofs


def tree_of(code: str) -> ast.Module:
    return ast.parse(TransformerManager().transform_cell(code))


def names_in(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def claims_of(code: str) -> list[ast.AST]:
    """All that a cell asserts, and what it binds the names in it to."""
    nodes = list(ast.walk(tree_of(code)))
    asserts = [node for node in nodes if isinstance(node, ast.Assert)]
    asserts += [
        node
        for node in nodes
        if isinstance(node, ast.Call) and ast.unparse(node.func)[-12:] == "assert_close"
    ]
    used = set().union(*map(names_in, asserts))
    bound = []
    for node in nodes:
        targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
        source = getattr(node, "value", None) or getattr(node, "iter", None)
        if source and any(target and used & names_in(target) for target in targets):
            bound.append(source)
    return asserts + bound


CLAIM = r"\b(prov(e|es|ed|ing)|proof|equals|agrees?|asserts?|exact(ly)?|(is|are) the same)\b"
BUILDS_NOTHING = r"Rung \d|The question|Predict|Explore|\d\. .*|Exercises|In the wild|Three sentences .*"


def has_tag(cell, tag: str) -> bool:
    return tag in cell.metadata.get("tags", [])


def test_each_rung_is_proved_against_the_one_below(path):
    proofs = [cell for cell in cells_of(path) if has_tag(cell, "proof")]
    assert proofs, "no cell has the tag proof"
    assert all(cell.execution_count and claims_of(cell.source) for cell in proofs)


def test_a_section_that_claims_to_be_exact_asserts(path):
    for section in read(path):
        if re.fullmatch(BUILDS_NOTHING, section.heading.split(":")[0]):
            continue
        claim = re.search(CLAIM, section.heading + "\n" + without_code(section.prose), re.I)
        if claim or section.heading in ("Prove", "Break it"):
            asserted = any(claims_of(cell.source) for cell in section.code)
            assert asserted, f"{section.heading!r} says {claim and claim[0]!r} and asserts nothing"


# Numbers

NUMBER = r"(?<![\w.,/])[−-]?\d+(?:,\d{3})*(?:\.\d+)?(?:e-?\d+)?(?:/[1-9]\d*)?(?![\w/]|\.\d)(?: %)?"
CITED = r"(?:[A-Z]\w+|al\.|in) \(?(?:19|20)\d\d\b|(?:section|table|issue) \d[\d.]*\d"  # papers


def without_code(prose: str) -> str:
    """Leave out what is not said in words: code, formulas, addresses, papers."""
    code = r"```.*?```|`[^`]*`|\$\$.*?\$\$|\$[^$\n]+\$|\]\([^)]*\)"
    return re.sub(f"{code}|{CITED}", "…", prose, flags=re.S)


def value_of(number: str) -> float:
    over, _, under = number.strip("% ").replace(",", "").replace("−", "-").partition("/")
    return float(over) / float(under or 1) / (100 if number.endswith("%") else 1)


def is_shown(number: str, computed: set[float]) -> bool:
    """Does `number` say one of the computed ones, rounded to as many digits as it has?"""
    said = value_of(number)
    if re.fullmatch(r"[−-]?[\d,]+(\.\d+)?", number):
        error = 0.5 * 10 ** -len(number.partition(".")[2]) if "." in number else 0
    else:
        error = abs(said) / 1000  # 1/3, 1e-5, 95 %
    return any(abs(each - said) <= error + 1e-12 for each in computed)


def literals(nodes) -> set[float]:
    """All numbers that are written in the code, -2 and 1 / 3 and 2**-0.5 among them."""
    plain = (ast.Constant, ast.UnaryOp, ast.BinOp, ast.operator, ast.unaryop)
    found = set()
    for node in chain.from_iterable(map(ast.walk, nodes)):
        if isinstance(node, ast.expr) and all(isinstance(each, plain) for each in ast.walk(node)):
            value = eval(ast.unparse(node))
            found |= {float(value)} if isinstance(value, int | float) else set()
    return found


def printed_by(cell) -> set[float]:
    """The numbers that a cell prints."""
    texts = (output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.outputs)
    return {value_of(each) for text in texts for each in re.findall(NUMBER, text)}


def unmarked_in(prose: str) -> list[str]:
    """The numbers to account for: with a decimal point, a fraction, a % sign, or three digits or more."""
    unmarked = re.sub(f"{NUMBER}{GIVEN}|{FIELD.pattern}", "…", without_code(prose))
    found = re.findall(NUMBER, unmarked)
    return [each for each in found if re.search(r"\d[.e/-]+\d|\d{3}|%", each.replace(",", ""))]


@pytest.mark.parametrize("rung", RUNGS, ids=ORDER)
def test_each_number_is_computed_an_input_or_given(rung):
    for section in sections_of(jupytext.reads(rung.text("notebook.py"), fmt="py:percent").cells):
        written = literals(tree_of(cell.source) for cell in section.code)
        for number in unmarked_in(section.prose):
            assert is_shown(number, written), f"{number} in {section.heading!r}: {{{{...}}}} or {GIVEN}"
        given = re.findall(f"({NUMBER}){GIVEN}", without_code(section.prose))
        assert len(given) == section.prose.count(GIVEN), f"a mark without its number in {section.heading!r}"
        for number in given:
            assert not is_shown(number, written), f"{number} in {section.heading!r} is an input: no {GIVEN}"


def alts_of(section: Section) -> str:
    """What stands for the pictures. An explorer's is made as it computes; a hero's has tests."""
    cells = [cell for cell in section.code if "explore(" not in cell.source]
    cells = [cell for cell in cells if not has_tag(cell, "given") and not has_tag(cell, "hero")]
    shown = [output.get("data", {}).get("text/html", "") for cell in cells for output in cell.outputs]
    return unescape("\n".join(alt for html in shown for alt in re.findall(r'<img alt="([^"]*)"', html)))


def test_each_number_that_describes_a_picture_is_in_the_code(path):
    for section in read(path):
        known = literals(tree_of(cell.source) for cell in section.code).union(*map(printed_by, section.code))
        for number in unmarked_in(alts_of(section)):
            assert is_shown(number, known), f"{number} describes a picture of {section.heading!r}"


def test_the_worked_example_has_the_numbers_that_raschka_prints():
    made = run("query_key_value", "raschka", torch=torch, nn=nn, attention=attention)
    printed = [
        [-0.1564, 0.1028, -0.0763, -0.0764],
        [0.5313, 1.3607, 0.7891, 1.3110],
        [-0.3542, -0.1234, -0.2627, -0.3706],
        [0.0071, 0.3345, 0.0969, 0.1998],
        [0.1008, 0.4780, 0.2021, 0.3674],
        [-0.5296, -0.2799, -0.4107, -0.6006],
    ]
    torch.testing.assert_close(made["output"], torch.tensor(printed), atol=1e-4, rtol=0)
    of_short = made["weights"][2]
    assert [made["words"][at] for at in (of_short.argmax(), of_short.argmin())] == ["short", "is"]


def test_the_worked_example_of_cross_attention_has_the_numbers_that_raschka_prints():
    below = {"CrossAttentionHead": CrossAttentionHead, "torch": torch, "nn": nn}
    made = run("cross_and_causal", "raschka", **below)
    printed = [
        [0.4231, 0.8665, 0.6503, 1.0042],
        [0.4874, 0.9718, 0.7359, 1.1353],
        [0.4054, 0.8359, 0.6258, 0.9667],
        [0.4357, 0.8886, 0.6678, 1.0311],
        [0.4429, 0.9006, 0.6775, 1.0460],
        [0.3860, 0.8021, 0.5985, 0.9250],
    ]
    torch.testing.assert_close(made["output"], torch.tensor(printed), atol=1e-4, rtol=0)


# Words


def strings(value) -> list[str]:
    """All strings in a question, a panel, the options of a slider."""
    if isinstance(value, dict | list | tuple):
        return list(chain.from_iterable(map(strings, value.values() if isinstance(value, dict) else value)))
    return [value] if isinstance(value, str) else []


def words_of_exercise(name: str) -> list[str]:
    """All that `check` can say, and its hint and solution, about one exercise."""
    exercise = EXERCISES[name]
    solution = getattr(exercise.reference, "func", exercise.reference)
    judged = [prop.claim for prop in exercise.properties]
    judged += [each.message for each in (*exercise.properties, *exercise.mistakes)]
    texts = [check(name, None).message, *exercise.hints, *judged, exercise.insight]
    return texts + re.findall(r'""".*?"""|# .*', inspect.getsource(solution), flags=re.S)


def words_of_explorer(name: str) -> list[str]:
    """All that an explorer shows at first, and with each of its controls at its other ends."""
    explorer = explore(name)
    found = {}
    for control in explorer.controls.values():
        first, options = control.value, getattr(control, "options", ())
        if isinstance(first, bool):
            ends = (False, True)
        else:  # what is typed has no ends
            ends = options or (getattr(control, "min", first), getattr(control, "max", first))
        for value in (first, *ends, first):
            control.value = value[1] if isinstance(value, tuple) else value
            panels = strings([panel.state() for panel in explorer.figure.panels])
            found |= dict.fromkeys([explorer.figure.caption, *panels])
            assert not explorer.figure.error
        found |= dict.fromkeys([control.description, *strings(options)])
    return list(found)


SHOWS = {
    "ask": lambda name: strings(QUESTIONS[name]),
    "check": words_of_exercise,
    "explore": words_of_explorer,
}


@cache
def shown_by(code: str) -> list[str]:
    """What a cell shows in words: a question, an exercise, an explorer. Nothing is bold in it."""
    texts = chain.from_iterable(SHOWS[kind](name) for kind, name in calls_in(code) if kind in SHOWS)
    return [text.replace("**", "^") for text in texts]


@cache
def sentences() -> list[tuple[int, str]]:
    """All prose in the order of reading, with its rung, and all that the cells between show in words.

    The cell with the title is left out: it says what is to come. A heading comes after its section, which may
    introduce what the heading names.
    """
    found = []
    for rung, path in enumerate(PATHS, start=1):
        for section in read(path)[1:]:
            for part in section.parts:
                texts = [part] if isinstance(part, str) else shown_by(part.source)
                for text in texts:
                    text = re.sub(r"^.*<!--notebook-->$", "", text, flags=re.M)  # the way to other rungs
                    text = re.sub(r"```.*?```|\]\([^)]*\)", "", text, flags=re.S)
                    found += [(rung, each) for each in re.split(r"(?<=[.?!])\s+|\n\n", text) if each.strip()]
            found.append((rung, section.heading))
    return found


def test_all_that_the_package_asks_checks_and_explores_is_read():
    cells = [cell for path in PATHS for section in read(path) for cell in section.code]
    found = {call for cell in cells for call in calls_in(cell.source) if call[0] in SHOWS}
    kept = {"ask": QUESTIONS, "check": EXERCISES, "explore": EXPLORERS}
    assert found == {(kind, name) for kind, names in kept.items() for name in names}
    assert all(SHOWS[kind](name) for kind, name in found)


def uses(term: str, sentence: str) -> bool:
    for phrase in WORDING["ordinary"].get(term, []):
        sentence = sentence.replace(phrase, "")
    if len(term) < 3:
        return bool(re.search(rf"(?<![\w-]){term}(?![\w-])", sentence))
    forms = term[:-1] + "(ys?|ies)" if term.endswith("y") else term + "s?"
    return bool(re.search(rf"(?<![\w-]){forms}(?![\w-])", sentence, re.I))


TERMS = [(rung.number, *each) for rung in RUNGS for each in rung.terms.items()]


@pytest.mark.parametrize(("rung", "term", "how"), TERMS, ids=[term for _, term, _ in TERMS])
def test_a_term_is_introduced_before_it_is_used(rung, term, how):
    for at, sentence in sentences():
        points_ahead = at < rung and re.search(rf"\(rung {rung}\)|^Next: \[rung {rung}\b", sentence)
        if uses(term, sentence) and not points_ahead:
            bold = any(uses(term, each) for each in re.findall(r"\*\*(.+?)\*\*", sentence))
            assert bold if how == "bold" else how in sentence, f"rung {at} uses it first: {sentence}"
            assert at == rung
            return
    pytest.fail("no notebook uses it")


def test_each_word_in_bold_is_a_term_of_a_rung_or_none():
    terms = [term for _, term, _ in TERMS]
    for rung, sentence in sentences():
        for bold in re.findall(r"\*\*(.+?)\*\*", sentence):
            if not re.search(r"[?.]$|\?", bold) and bold.lower() not in WORDING["emphasis"]["words"]:
                assert any(uses(term, bold) for term in terms), f"rung {rung}: {bold}"


def place_of(file: Path) -> str:
    return file.parent.name if file.parent.name in ORDER else file.stem


def lines_of_the_course() -> list[tuple[str, str]]:
    files = sorted((ROOT / "attention_course").rglob("*.*"))
    files = [file for file in files if file.suffix in (".py", ".toml", ".js") and file.name != "rung.toml"]
    lines = [(place_of(file), line) for file in files for line in file.read_text("utf-8").splitlines()]
    lines = [each for each in lines if not re.match(r"\w+\.patches = |    \{ ", each[1])]  # wrong code
    for rung, path in zip(RUNGS, PATHS, strict=True):
        lines += [(rung.stem, line) for cell in cells_of(path) for line in cell.source.splitlines()]
    # What the notebooks show stands in the files above, too, but there a line may end within a phrase.
    return lines + [(RUNGS[rung - 1].stem, re.sub(r"\s+", " ", each)) for rung, each in sentences()]


def test_no_other_word_stands_for_a_term():
    needed = set()
    for place, line in lines_of_the_course():
        for word, instead in WORDING["never"].items():
            if re.search(rf"(?<!\w)(?:{word})(?!\w)", line, re.I):
                allowed = [each for each in ALLOWED.get(place, []) if each in line]
                assert allowed, f"{place}: {instead}, not {word}: {line.strip()}"
                needed |= {(place, each) for each in allowed}
    assert needed == {(place, each) for place, some in ALLOWED.items() for each in some}
