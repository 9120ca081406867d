"""Gaps in the code of an exercise: where its mistakes differ from its reference, by expressions.

A mistake that is one patch of the reference changes one place of it. The place is widened to the smallest
expression, or statement, around it; what stands there in the reference and in its mistakes are the choices.
"""

import ast
import contextlib
import io
import itertools
import re
import tokenize
from dataclasses import dataclass
from math import prod

from attention_course.exercises.exercise import Exercise, source_of, unwrapped
from attention_course.patching import replaced

GAPS = 5  # of one fill at most
WRONG = 3  # choices of one gap at most
COMBINATIONS = 256  # of one fill at most: each of them is judged beforehand
MAX_CHOICE = 64  # characters of a choice
GRADIENTS = {"zero_grad", "backward", "step"}  # methods that work on the gradients, and so have an order
CHECK = re.compile(r"^ *check_\w+\(.*\)\n+", re.M)

Span = tuple[int, int]


@dataclass(frozen=True)
class Gap:
    """A place in the code, and what may be put there.

    Attributes:
        span: its start and end in the code.
        wrong: the wrong choices, by the names of their mistakes.
    """

    span: Span
    wrong: dict[str, str]


def code_of(exercise: Exercise) -> str:
    """Return the code of a reference, without its docstring, annotations and checks."""
    head, body = source_of(unwrapped(exercise.reference))
    code = head + " " * 4 + CHECK.sub("", body.rstrip() + "\n").lstrip(" ")
    lines = code.splitlines(keepends=True)
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT:  # it would tell what is right, or be false beside what is wrong
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip() + "\n"
    return "".join(lines)


def places(code: str) -> list[Span]:
    """Return the spans of expressions and statements, each within a line, the smallest first."""
    starts = list(itertools.accumulate(map(len, code.splitlines(keepends=True)), initial=0))
    spans, parts = set(), set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.expr | ast.stmt) and 1 < node.lineno == node.end_lineno:
            start = starts[node.lineno - 1]
            spans.add((start + node.col_offset, start + node.end_col_offset))
            if isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant):  # -1 is one piece
                parts.add((start + node.operand.col_offset, start + node.end_col_offset))
            if isinstance(node, ast.Call):  # and so is a call
                parts.add((start + node.func.col_offset, start + node.func.end_col_offset))
    return sorted(spans - parts, key=lambda span: span[1] - span[0])


def form_of(text: str) -> str:
    """Return what a text is: "one" expression, "several", an "index", a "statement", or "" for no whole."""
    with contextlib.suppress(SyntaxError):
        several = isinstance(ast.parse(text, mode="eval").body, ast.Tuple) and not text.startswith("(")
        return "several" if several else "one"
    with contextlib.suppress(SyntaxError):
        made = ast.parse(f"x[{text}]", mode="eval").body
        return "index" if isinstance(made, ast.Subscript) and isinstance(made.value, ast.Name) else ""
    with contextlib.suppress(SyntaxError):
        return "statement" if len(ast.parse(text).body) == 1 else ""
    return ""


def equal_at_the_start(one: str, other: str) -> int:
    """Return how many characters two texts share at their start."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def alternatives(exercise: Exercise) -> dict[Span, dict[str, str]]:
    """Return what each mistake that is one edit puts into each place that is large enough for it."""
    code = code_of(exercise)
    found: dict[Span, dict[str, str]] = {span: {} for span in places(code) if span[1] - span[0] <= MAX_CHOICE}
    for mistake in exercise.mistakes:
        if len(mistake.edits) != 1 or code.count(mistake.edits[0][0]) != 1:
            continue
        wrong = replaced(code, mistake.edits, exercise.name)
        start = equal_at_the_start(code, wrong)
        end = len(code) - equal_at_the_start(code[start:][::-1], wrong[start:][::-1])
        for (first, last), choices in found.items():
            if start < first or last < end:
                continue
            right, text = code[first:last], wrong[first : last + len(wrong) - len(code)].strip()
            form, within = form_of(text), code[first - 1] in "([" and code[last] in ")]"
            alike = form == form_of(right) or (within and form != "statement")
            if form and alike and text != right and len(text) <= MAX_CHOICE:
                choices.setdefault(mistake.names[0], text)
    return {span: choices for span, choices in found.items() if choices}


def gaps_of(exercise: Exercise) -> list[Gap]:
    """Choose the gaps: places apart, with as many of the usual mistakes as there is room for."""
    best: list[list[Gap]] = [[]] * (GAPS + 1)  # of the code so far, with at most so many gaps
    ends: list[tuple[int, list[list[Gap]]]] = [(0, best)]
    code = code_of(exercise)
    for span, choices in sorted(alternatives(exercise).items(), key=lambda item: item[0][1]):
        if exercise.gaps and code[slice(*span)] not in exercise.gaps:
            continue
        gap = Gap(span, dict(itertools.islice(choices.items(), WRONG)))
        before = [chosen for end, chosen in ends if end <= span[0]][-1]
        with_it = [[]] + [[*chosen, gap] for chosen in before[:-1]]
        best = [max(pair, key=worth) for pair in zip(best, with_it, strict=True)]
        ends.append((span[1], best))
    gaps = best[-1]
    while prod(len(gap.wrong) + 1 for gap in gaps) > COMBINATIONS:
        most = max(gaps, key=lambda gap: len(gap.wrong))
        most.wrong.popitem()
    return gaps


def worth(gaps: list[Gap]) -> float:
    """Many gaps, with many mistakes, and not much text in them."""
    return sum(1 + len(gap.wrong) / 2 - (gap.span[1] - gap.span[0]) / 80 for gap in gaps)


@dataclass(frozen=True)
class Line:
    """A line of the code, as a block to be moved.

    Attributes:
        span: its start, without the indentation, and its end in the code.
        indent: in levels.
        parent: the line that opens the block around it; -1 if none does.
        after: the lines that have to come before it.
        wrong: the wrong lines that are offered beside it, by the names of their mistakes.
    """

    span: Span
    indent: int
    parent: int
    after: list[int]
    wrong: dict[str, str]


@dataclass(frozen=True)
class Effects:
    """The names that a line reads and writes, and whether it may leave the function or the loop."""

    reads: set[str]
    writes: set[str]
    leaves: bool

    def bind(self, later: "Effects") -> bool:
        """Return whether a later line has to stay behind this one."""
        touched = later.writes & (self.reads | self.writes)
        return bool(self.leaves or later.leaves or self.writes & later.reads or touched)


def lines_of(exercise: Exercise) -> list[Line]:
    """Cut the code below the signature into lines; say which of them have to stay behind which.

    Returns:
        The lines; none where the code cannot be cut, for one of its blocks has an `else`.
    """
    code = code_of(exercise)
    starts = list(itertools.accumulate(map(len, code.splitlines(keepends=True)), initial=0))
    lines: list[Line] = []
    effects: list[Effects] = []

    def add(statements: list[ast.stmt], indent: int, parent: int) -> None:
        for statement in statements:
            inner = getattr(statement, "body", [])
            last = inner[0].lineno - 1 if inner else statement.end_lineno
            span = (starts[statement.lineno - 1] + statement.col_offset, starts[last] - 1)
            does, here = effects_of(statement), len(lines)
            after = [i for i, other in enumerate(effects) if i == parent or other.bind(does)]
            lines.append(Line(span, indent, parent, after, {}))
            effects.append(does)
            add(inner, indent + 1, here)

    function = ast.parse(code).body[0]
    assert isinstance(function, ast.FunctionDef)
    if any(getattr(node, "orelse", None) for node in ast.walk(function) if isinstance(node, ast.stmt)):
        return []
    add(function.body, 0, -1)
    for mistake in exercise.mistakes:
        if len(mistake.edits) == 1 and code.count(mistake.edits[0][0]) == 1:
            put_beside(lines, code, replaced(code, mistake.edits, exercise.name), mistake.names[0])
    return lines


def put_beside(lines: list[Line], code: str, wrong: str, mistake: str) -> None:
    """Offer the line with a mistake, if it is in one line that has no wrong one beside it yet."""
    if sum(len(line.wrong) for line in lines) == WRONG:
        return
    for line in lines:
        first, last = line.span
        text = wrong[first : last + len(wrong) - len(code)]
        if (
            wrong[:first] == code[:first]
            and wrong.endswith(code[last:])
            and not line.wrong
            and "\n" not in text
        ):
            line.wrong[mistake] = text


def effects_of(statement: ast.stmt) -> Effects:
    """Return the effects of a line; of one that opens a block, only whether the block leaves."""
    inside = {id(node) for each in getattr(statement, "body", []) for node in ast.walk(each)}
    reads, writes = set(), set()
    for node in ast.walk(statement):
        if id(node) in inside:
            continue
        if isinstance(node, ast.Name):
            (writes if isinstance(node.ctx, ast.Store) else reads).add(node.id)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            writes |= {name.id for name in ast.walk(node.value) if isinstance(name, ast.Name)}
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            reads.add(node.target.id)
        elif isinstance(node, ast.Expr):  # a call for its effect, such as found.append(1)
            writes |= {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
        elif isinstance(node, ast.Attribute) and node.attr in GRADIENTS:
            writes.add(".grad")
    leaves = any(
        isinstance(node, ast.Return | ast.Continue | ast.Break | ast.Raise) for node in ast.walk(statement)
    )
    return Effects(reads, writes, leaves)
