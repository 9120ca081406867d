"""What the notebooks claim: proofs assert, numbers in prose are computed, terms are introduced before use.

All of it is read from the built notebooks and their stored outputs. That a run still gives these outputs is
nbval's part. A number that a cell computes is marked in the prose, `0.33<!--shown-->`, which no page shows.
The terms, and the words that must not stand for them, are in `glossary.toml`.
"""

import ast
import re
import tomllib
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from pathlib import Path

import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager

ROOT = Path(__file__).resolve().parent.parent
PATHS = sorted((ROOT / "notebooks").glob("*.ipynb"))
GLOSSARY = tomllib.loads((ROOT / "tests" / "glossary.toml").read_text(encoding="utf-8"))
MARK = "<!--shown-->"


@dataclass
class Section:
    """A heading, and everything up to the next one."""

    heading: str
    prose: str = ""
    code: list = field(default_factory=list)


def sections_of(notebook) -> list[Section]:
    sections = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            sections[-1].code.append(cell)
            continue
        for part in re.split(r"^(?=#)", cell.source, flags=re.M):
            if part.startswith("#"):
                heading, _, part = part.partition("\n")
                sections.append(Section(heading.strip("# ")))
            if part.strip():
                sections[-1].prose += part.strip() + "\n\n"
    return sections


@cache
def read(path: Path) -> list[Section]:
    return sections_of(nbformat.read(path, as_version=4))


@pytest.fixture(params=PATHS, ids=[path.stem for path in PATHS])
def path(request) -> Path:
    return request.param


def test_eight_notebooks_are_read():
    assert [path.name[:2] for path in PATHS] == [f"0{rung}" for rung in range(1, 9)]


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


# The section that proves a rung, and what one of its cells asserts. Rung 8 has a table in place of a proof.
PROVED = {
    "01_bag_of_words": ("Prove", "assert_close(means[:, t] * (t + 1), x_random[:, :t + 1].sum(dim=1))"),
    "02_tril_matmul": ("Prove", "assert_close(causal_mean_matmul(x_random), causal_mean_loop(x_random))"),
    "03_masked_softmax": (
        "Prove",
        "assert_close(causal_mean_softmax(x), causal_mean_matmul(x))",
        "assert_close(causal_mean_softmax(x), causal_mean_loop(x))",
    ),
    "04_query_key_value": (
        "Prove",
        "assert_close(out, mean(v))",
        "(causal_mean_softmax, causal_mean_matmul, causal_mean_loop)",
    ),
    "05_scaling_variance": ("Prove", "assert_close(found, predicted, ", "head_size * var_q * 3 * scale ** 2"),
    "06_cross_and_causal": ("Prove", "assert_close(cross(six, six), same(six))"),
    "07_multi_head": ("Prove", "assert_close(output, first)", "four_ways(heads, x, mask)"),
    "08_bigram_to_gpt": ("The table", "losses['four heads'] < 0.55", "recalls['second layer'] > 0.9"),
}
CLAIM = r"\b(prov(e|es|ed|ing)|proof|equals|agrees?|asserts?|exact(ly)?|(is|are) the same)\b"
BUILDS_NOTHING = r"Rung \d|The question|Predict|Explore|\d\. .*|Exercises|In the wild|Three sentences .*"


def test_each_rung_is_proved_against_the_one_below(path):
    heading, *wanted = PROVED[path.stem]
    (section,) = [section for section in read(path) if section.heading == heading]
    asserted = ["\n".join(map(ast.unparse, claims_of(cell.source))) for cell in section.code]
    assert any(all(each in text for each in wanted) for text in asserted), f"no cell asserts {wanted}"


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


def without_code(prose: str) -> str:
    """Leave out what is not said in words: code, formulas, addresses."""
    return re.sub(r"```.*?```|`[^`]*`|\$\$.*?\$\$|\$[^$\n]+\$|\]\([^)]*\)", "…", prose, flags=re.S)


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


def computed_in(section: Section) -> set[float]:
    """All numbers that the section's cells print, or assert."""
    found = set()
    for cell in section.code:
        found |= literals(claims_of(cell.source))
        if re.search(r"\bask\(", cell.source) or "nbval-ignore-output" in cell.metadata.get("tags", []):
            continue  # the choices of a question; what may differ from run to run
        for output in cell.outputs:
            if output.get("name") == "stdout" or set(output.get("data", {})) == {"text/plain"}:
                text = output.get("text") or output.data["text/plain"]
                found |= {
                    value_of(number)
                    for number in re.findall(r"(?<![\w.])-?\d[\d,]*(?:\.\d*)?(?:e[+-]?\d+)?", text)
                }
    return found


def kinds_of_numbers(prose: str) -> tuple[list[str], list[str]]:
    """The marked numbers; and those that need a mark: a decimal point, a fraction, three digits or more."""
    prose = without_code(prose)
    marked = re.findall(rf"({NUMBER}){MARK}", prose)
    unmarked = re.findall(NUMBER, re.sub(rf"{NUMBER}{MARK}", "", prose))
    return marked, [each for each in unmarked if re.search(r"\d[.e/-]+\d|\d{3}", each.replace(",", ""))]


# What no cell of the section computes, and why.
EXEMPT = {
    r"(?:[A-Z]\w+|al\.|in) \(?(?:19|20)\d\d\b": "the year of a paper",
    r"(?:section|table|issue) \d[\d.]*\d": "a place in a paper, or a thread",
    r"1\.3e-6 of the value plus 1e-5": "documented: assert_close on float32",
    r"1e-5 times the expected value, plus 1e-8": "documented: allclose",
    r"0\.8721, −0\.5302, 2\.1436": "an article prints them, and its code gives others",
    r"0\.6237, 0\.9845, 1\.0523, 1\.2654": "an article prints them, and its code gives others",
    r"before it 1/2, the one before that 1/4": "says what an exercise wants",
    r"at least 0\.99 of its weight": "says what an exercise wants",
    r"Logits of 1000 must do no harm": "says what an exercise wants",
    r"From head_size 1 to head_size 100": "says which two are compared",
    r"n_embd is 1024 here|one head_size only, 1024": "set in the explorer",
    r"year from 1000 to 9999": "set under the heading before",
    r"deviation of 0\.02, of their parameters": "nanoGPT's",
    r"n_embd 768": "GPT-2's",
    r"√768 · 0\.02 = 0\.55": "worked out in the sentence: 27.7 times 0.02",
    r"d_model = 512": "the paper's",
    r"deviation of 0\.02; ours": "nanoGPT's",
    r"1\.1 million characters": "of Tiny Shakespeare",
    r"The table says 117 million": "the paper's",
    r"over T from 4 to 1024": "2**2 to 2**10",
    r"ends at 0\.2 nats|at about 0\.2,|at about 0\.15": "after a training; the asserts leave room",
}


def test_each_marked_number_is_computed(path):
    count = 0
    for section in read(path):
        computed = computed_in(section)
        for number in kinds_of_numbers(section.prose)[0]:
            assert is_shown(number, computed), (
                f"{number} in {section.heading!r} is neither printed nor asserted"
            )
            count += 1
    assert count == sum(section.prose.count(MARK) for section in read(path)) > 0, "a mark without its number"


def test_each_other_number_is_an_input_or_exempt(path):
    for section in read(path):
        written = literals(tree_of(cell.source) for cell in section.code)
        for number in kinds_of_numbers(re.sub("|".join(EXEMPT), "", section.prose))[1]:
            assert is_shown(number, written), f"mark {number} in {section.heading!r}: {MARK}"


def alts_of(section: Section) -> str:
    """What stands for the pictures. An explorer's is not written, but made from what it computed."""
    cells = [cell for cell in section.code if "explore(" not in cell.source]
    shown = [output.get("metadata", {}).get("image/png", {}) for cell in cells for output in cell.outputs]
    return "\n".join(each.get("alt", "") for each in shown)


def test_each_number_that_describes_a_picture_is_in_the_code(path):
    for section in read(path):
        known = computed_in(section) | literals(tree_of(cell.source) for cell in section.code)
        for number in kinds_of_numbers(re.sub("|".join(EXEMPT), "", alts_of(section)))[1]:
            assert is_shown(number, known), f"{number} describes a picture of {section.heading!r}"


def test_each_exemption_is_needed():
    prose = "\n".join(section.prose + alts_of(section) for path in PATHS for section in read(path))
    assert [kind for kind in EXEMPT if not re.search(kind, prose)] == []


# Words


@cache
def sentences() -> list[tuple[int, str]]:
    """All prose in the order of reading, with its rung.

    The cell with the title is left out: it says what is to come. A heading comes after its section, which may
    introduce what the heading names.
    """
    found = []
    for rung, path in enumerate(PATHS, start=1):
        for section in read(path)[1:]:
            prose = re.sub(r"```.*?```|\]\([^)]*\)", "", section.prose, flags=re.S)
            found += [(rung, each) for each in re.split(r"(?<=[.?!])\s+|\n\n", prose) if each.strip()]
            found.append((rung, section.heading))
    return found


def uses(term: str, sentence: str) -> bool:
    for phrase in GLOSSARY["ordinary"].get(term, []):
        sentence = sentence.replace(phrase, "")
    if len(term) < 3:
        return bool(re.search(rf"(?<![\w-]){term}(?![\w-])", sentence))
    forms = term[:-1] + "(ys?|ies)" if term.endswith("y") else term + "s?"
    return bool(re.search(rf"(?<![\w-]){forms}(?![\w-])", sentence, re.I))


TERMS = [(int(rung), *each) for rung, terms in GLOSSARY["introduced"].items() for each in terms.items()]


@pytest.mark.parametrize(("rung", "term", "how"), TERMS, ids=[term for _, term, _ in TERMS])
def test_a_term_is_introduced_before_it_is_used(rung, term, how):
    for at, sentence in sentences():
        points_ahead = at < rung and re.search(rf"\brung {rung}\b", sentence)
        if uses(term, sentence) and not points_ahead:
            bold = any(uses(term, each) for each in re.findall(r"\*\*(.+?)\*\*", sentence))
            assert bold if how == "bold" else how in sentence, f"rung {at} uses it first: {sentence}"
            assert at == rung
            return
    pytest.fail("no notebook uses it")


def test_each_word_in_bold_is_in_the_glossary_or_no_term():
    terms = [term for _, term, _ in TERMS]
    for rung, sentence in sentences():
        for bold in re.findall(r"\*\*(.+?)\*\*", sentence):
            if not re.search(r"[?.]$|\?", bold) and bold.lower() not in GLOSSARY["emphasis"]["words"]:
                assert any(uses(term, bold) for term in terms), f"rung {rung}: {bold}"


def lines_of_the_course() -> list[tuple[str, str]]:
    files = sorted((ROOT / "attention_course").rglob("*.*"))
    files = [file for file in files if file.suffix in (".py", ".toml", ".js")]
    lines = [(file.stem, line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    for path in PATHS:
        for cell in nbformat.read(path, as_version=4).cells:
            lines += [(path.stem, line) for line in cell.source.splitlines()]
    return lines


def test_no_other_word_stands_for_a_term():
    needed = set()
    for place, line in lines_of_the_course():
        for word, instead in GLOSSARY["never"].items():
            if re.search(rf"(?<!\w)(?:{word})(?!\w)", line, re.I):
                allowed = [each for each in GLOSSARY["allowed"].get(place, []) if each in line]
                assert allowed, f"{place}: {instead}, not {word}: {line.strip()}"
                needed |= {(place, each) for each in allowed}
    assert needed == {(place, each) for place, some in GLOSSARY["allowed"].items() for each in some}
