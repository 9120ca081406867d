"""What the notebooks claim: proofs assert, numbers in prose are computed, terms are introduced before use.

All of it is read from the built notebooks and their stored outputs, and from the package what `ask`, `check`
and `explore` show there. That a run still gives these outputs is nbval's part.

Numbers in prose have marks, which no page shows. `0.33<!--shown-->`: a cell next to it prints or asserts that
number, and all those of one sentence one after the other; `half<!--shown 1/2-->` is one in words.
`0.02<!--given-->`: no cell computes it; others say so, or an exercise wants it. Cells have tags. "proof": it
proves the rung against the one below. "given": in words its picture has numbers that are not in the code.

The `rung.toml` of a rung has the words that it introduces, `words.toml` those that would blur them.
"""

import ast
import inspect
import re
import tomllib
from dataclasses import dataclass, field
from functools import cache
from html import unescape
from itertools import chain, islice
from pathlib import Path

import nbformat
import pytest
from cells import calls_in
from IPython.core.inputtransformer2 import TransformerManager

from attention_course.exercises import EXERCISES, check
from attention_course.explorers import EXPLORERS, explore
from attention_course.ladder import ORDER, RUNGS
from attention_course.questions import QUESTIONS

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent
PATHS = [ROOT / "notebooks" / f"{rung.name}.ipynb" for rung in RUNGS]
WORDING = tomllib.loads((ROOT / "tests" / "words.toml").read_text(encoding="utf-8"))
ALLOWED = WORDING["allowed"] | {rung.stem: rung.allowed for rung in RUNGS}
SHOWN, GIVEN = "<!--shown-->", "<!--given-->"


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
    cells = nbformat.read(path, as_version=4).cells
    for cell in cells:
        cell.source = re.sub(r"<!--(\w+) ([^>]+)-->", r" \2<!--\1-->", cell.source)  # half<!--shown 1/2-->
    return cells


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


def is_number(node: ast.AST) -> bool:
    """2, -2, 1 / 3 and 2**-0.5 are numbers; 4 * 64 is two of them."""
    match node:
        case ast.Constant(value=value):
            return isinstance(value, int | float) and not isinstance(value, bool)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return is_number(inner)
        case ast.BinOp(left=left, op=ast.Div() | ast.Pow(), right=right):
            return is_number(left) and is_number(right)
    return False


def numbers_in(node: ast.AST) -> list[ast.AST]:
    """The numbers in an expression; no index, and no argument with a name, such as a tolerance."""
    if is_number(node):
        return [node]
    children = [node.value] if isinstance(node, ast.Subscript) else ast.iter_child_nodes(node)
    return [found for each in children if not isinstance(each, ast.keyword) for found in numbers_in(each)]


def claimed_by(cell) -> list[float]:
    """The numbers that a cell asserts, as they come, those in a table written down for that among them."""
    found = {}
    for claim in claims_of(cell.source):
        written = re.fullmatch(r"(torch\.tensor\()?[-+*/\d.e, ()\[\]\n]+", ast.unparse(claim))
        if written or isinstance(claim, ast.Assert) or "assert_close(" in ast.unparse(claim):
            found |= {(each.lineno, each.col_offset): each for each in numbers_in(claim)}
    return [float(eval(ast.unparse(found[place]))) for place in sorted(found)]


def printed_by(cell) -> list[float]:
    """The numbers that a cell prints, as they come; but not the choices of a question, or what may differ."""
    found = []
    if re.search(r"\bask\(", cell.source) or has_tag(cell, "nbval-ignore-output"):
        return found
    for output in cell.outputs:
        if output.get("name") == "stdout" or set(output.get("data", {})) == {"text/plain"}:
            text = output.get("text") or output.data["text/plain"]
            found += re.findall(r"(?<![\w.])-?\d[\d,]*(?:\.\d*)?(?:e[+-]?\d+)?", text)
    return [value_of(number) for number in found]


def computed_beside(cells: list, at: int) -> list[list[float]]:
    """What the nearest cells before and after the one at `at` compute that print or assert something.

    These are the numbers that they assert. Where neither asserts one, they are those that they print.
    """
    near = []
    for way in (reversed(cells[:at]), cells[at + 1 :]):
        code = (cell for cell in way if cell.cell_type == "code")
        near += islice((cell for cell in code if printed_by(cell) or claims_of(cell.source)), 1)
    return list(filter(None, map(claimed_by, near))) or list(map(printed_by, near))


def is_computed(numbers: list[str], computed: list[float]) -> bool:
    """Do these numbers stand among the computed ones, one after the other?"""
    pieces = (computed[i : i + len(numbers)] for i in range(len(computed) - len(numbers) + 1))
    return any(
        all(is_shown(said, {each}) for said, each in zip(numbers, piece, strict=True)) for piece in pieces
    )


def marked_in(prose: str) -> list[list[str]]:
    """The marked numbers of each sentence that has some."""
    sentences = re.split(r"(?<=[.?!])\s+|\n\n", without_code(prose))
    return [marked for each in sentences if (marked := re.findall(f"({NUMBER}){SHOWN}", each))]


def computed_in(section: Section) -> set[float]:
    """All numbers that the section's cells print, or assert."""
    return {number for cell in section.code for number in claimed_by(cell) + printed_by(cell)}


def unmarked_in(prose: str) -> list[str]:
    """The numbers that need a mark and have none: a decimal point, a fraction, three digits or more.

    Those of a task are given by it.
    """
    for exercise in EXERCISES.values():
        prose = prose.replace(exercise.task, "")
    unmarked = re.sub(f"{NUMBER}({SHOWN}|{GIVEN})", "", without_code(prose))
    found = re.findall(NUMBER, unmarked)
    return [each for each in found if re.search(r"\d[.e/-]+\d|\d{3}", each.replace(",", ""))]


def test_each_marked_number_is_computed_beside_it(path):
    cells, count = cells_of(path), 0
    for at, cell in enumerate(cells):
        if cell.cell_type == "markdown":
            near = computed_beside(cells, at)
            for numbers in marked_in(cell.source):
                assert any(is_computed(numbers, each) for each in near), f"{numbers}: not in {near}"
                count += len(numbers)
    assert count == sum(section.prose.count(SHOWN) for section in read(path)) > 0, "a mark without its number"


def test_each_other_number_is_an_input_or_given(path):
    for section in read(path):
        written = literals(tree_of(cell.source) for cell in section.code)
        for number in unmarked_in(section.prose):
            assert is_shown(number, written), f"mark {number} in {section.heading!r}: {SHOWN} or {GIVEN}"
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
        known = computed_in(section) | literals(tree_of(cell.source) for cell in section.code)
        for number in unmarked_in(alts_of(section)):
            assert is_shown(number, known), f"{number} describes a picture of {section.heading!r}"


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
    cells = [cell for path in PATHS for section in read(path)[1:] for cell in section.code]
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
