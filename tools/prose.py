"""Count what can be counted of the prose of rungs: `make prose`, or NAMES="bag_of_words" for one.

What is folded under `More: ...` is left out, and so are exercises. A reader does something in a cell that
asks, or has the tag `do` because the text says what to change in it. The numbers are signs, not goals: a
sentence is written for its reader. A number out of its limit is marked.
"""

import re
import sys
from itertools import pairwise

import jupytext

from attention_course.ladder import ASKS, RUNGS, Rung, main_path, reading

REASONS = r"\b(because|so|since|which means|that is why|therefore)\b"
UNITS = r"(nat|bit|word|token|letter|character|step|number|addition|second|head|channel|row|layer)"
PER = rf"\b{UNITS}s? an? {UNITS}\b"
LIMITS = {  # the name of a count, its limit, and whether that is the most or the least
    "words": (2000, "<="),
    "bold terms": (10, "<="),
    "words before the first thing to do": (120, "<="),
    "cells between two things to do": (6, "<="),
    "% of sentences with a colon": (10, "<="),
    "% with you": (15, ">="),
    "% with a reason": (8, ">="),
    "“in place of”": (0, "<="),
    "“a” for “per”": (0, "<="),
    "short sentences in a row": (2, "<="),
}


def sentences(prose: str) -> list[str]:
    """Split prose into sentences; headings, tables, lists of links and formulas are none."""
    blocks = re.split(r"\n\s*\n", re.sub(r"<!--.*?-->|!\[.*?\]\(.*?\)|\$\$.*?\$\$", "", prose, flags=re.S))
    texts = [block for block in blocks if not re.match(r"\s*(#|\||>|```)", block)]
    parts = [part for text in texts for part in re.split(r"(?<=[.?!])[\"”*)]*\s+(?=[A-Z“\"*`(\d])", text)]
    return [part for part in parts if len(re.findall(r"[a-z]+", part)) > 2]


def counts(rung: Rung) -> dict[str, float]:
    """Return the counts of a rung, by name; see `LIMITS`."""
    source = main_path(rung.text("notebook.py"))
    cells = jupytext.reads(source, fmt="py:percent").cells
    cells = [cell for cell in cells if not cell.source.startswith("# Imports")]
    markdown = [cell.source for cell in cells if cell.cell_type == "markdown"]
    said = [sentence for cell in markdown for sentence in sentences(cell)]

    def share(pattern: str) -> float:
        return round(100 * sum(bool(re.search(pattern, each, re.I)) for each in said) / len(said))

    does = [
        at
        for at, cell in enumerate(cells)
        if ASKS.search(cell.source) or "do" in cell.metadata.get("tags", [])
    ]
    runs, run = [0], 0
    for sentence in said:
        run = run + 1 if len(sentence.split()) < 10 else 0
        runs.append(run)
    first = next(at for at in does if "ask(" in cells[at].source or "fill(" in cells[at].source)
    before = "\n".join(cell.source for cell in cells[:first] if cell.cell_type == "markdown")
    opening = re.sub(r"^.*?\*\*You will build\*\*", "", before, flags=re.S)
    return {
        "words": reading(source)[0],
        "bold terms": len({term for cell in markdown for term in re.findall(r"\*\*([a-z][^*]+)\*\*", cell)}),
        "words before the first thing to do": len(re.sub(r"<!--.*?-->|!\[.*?\]\(.*?\)", "", opening).split()),
        "cells between two things to do": max((b - a - 1 for a, b in pairwise(does)), default=0),
        "% of sentences with a colon": share(r":(?!\d)"),
        "% with you": share(r"\byou(r|rs|rself|’re|'re|’ll|'ll|’ve|'ve|’d|'d)?\b"),
        "% with a reason": share(REASONS),
        "“in place of”": sum("in place of" in each for each in said),
        "“a” for “per”": sum(bool(re.search(PER, each)) for each in said),
        "short sentences in a row": max(runs),
    }


def main(names: list[str]) -> None:
    """Print the counts of the named rungs, or of all."""
    for rung in RUNGS:
        if names and rung.stem not in names:
            continue
        print(f"\n{rung.number} {rung.title}: {rung.minutes} minutes")
        for name, count in counts(rung).items():
            limit, most = LIMITS[name]
            mark = " " if (count <= limit if most == "<=" else count >= limit) else "!"
            print(f"{mark} {count:5} {name} ({most} {limit})")


if __name__ == "__main__":
    main(sys.argv[1:])
