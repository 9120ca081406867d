"""Draw the transformer once for each rung, with the part lit that the rung builds: `make drawings`.

The files are notebooks/images/transformer_<stem>.svg. What is lit stands in `rung.toml`. Parts of earlier
rungs are filled, later ones dashed. A page in a dark theme shows the same file in lighter colours: an SVG
knows the scheme of the page around it.
"""

from html import escape
from pathlib import Path

from attention_course.ladder import RUNGS, Rung
from attention_course.plots.style import coloured

IMAGES = Path(__file__).resolve().parent.parent / "notebooks" / "images"
WIDTH, HEIGHT = 640, 262

STYLE = coloured("""
text { font: 13px system-ui, sans-serif; text-anchor: middle; dominant-baseline: central; fill: #222; }
.title { text-anchor: start; font-size: 12px; fill: #555; }
rect { rx: 5px; stroke-width: 1.5px; }
path { fill: none; stroke: #777; stroke-width: 1.5px; }
.built { fill: #e3ecf2; stroke: #8fa9b8; }
.later { fill: none; stroke: #aaa; stroke-dasharray: 4 4; }
.later + text { fill: #767676; }
.lit { fill: $light-blue; stroke: $light-blue; }
.lit + text { fill: white; }
.frame { fill: none; stroke: #aaa; }
@media (prefers-color-scheme: dark) {
  text { fill: #e4e4e4; } .title { fill: #b0b0b0; } path { stroke: #999; }
  .built { fill: #2b3d49; stroke: #5b7789; } .later + text { fill: #9a9a9a; }
  .lit { fill: $dark-blue; stroke: $dark-blue; } .lit + text { fill: #111; } .frame, .later { stroke: #777; }
}
""")

# Each part: its words, its left edge, middle and width.
WEIGHTED = "weights × values"  # on the first rung all weights are alike: a mean
PARTS = [
    ("tokens", 4, 56, 62),
    ("embedding", 84, 40, 92),
    ("position", 84, 72, 92),
    ("norm", 200, 56, 52),
    ("attention", 262, 56, 84),
    ("+", 356, 56, 26),
    ("norm", 392, 56, 52),
    ("feed-forward", 454, 56, 92),
    ("+", 556, 56, 26),
    ("logits", 592, 56, 46),
    ("context", 4, 207, 62),
    ("query", 78, 150, 62),
    ("key", 78, 188, 62),
    ("value", 78, 226, 62),
    ("query · key", 156, 169, 88),
    ("÷ √head_size", 256, 169, 98),
    ("mask", 366, 169, 50),
    ("softmax", 428, 169, 68),
    (WEIGHTED, 386, 226, 120),
    ("all heads", 552, 226, 80),
]
ARROWS = [
    "M66 56 H84", "M176 56 H200", "M252 56 H262", "M346 56 H356", "M382 56 H392", "M444 56 H454",
    "M546 56 H556", "M582 56 H592", "M188 56 V24 H369 V43", "M387 56 V24 H569 V43",
    "M140 150 H200 V156", "M140 188 H200 V182", "M244 169 H256", "M354 169 H366", "M416 169 H428",
    "M462 182 V213", "M140 226 H386", "M506 226 H552",
    "M66 207 H72 V188 H78", "M72 207 V226 H78",
]  # fmt: skip
HEIGHT_OF_A_PART = 26


def box(words: str, left: float, middle: float, width: float, rung: Rung) -> str:
    """Draw one part as it stands on a rung."""
    built = next(each.number for each in RUNGS if words in each.lit)
    state = "lit" if words in rung.lit else "built" if built < rung.number else "later"
    words = "mean" if words == WEIGHTED and rung.number == built else words
    top = middle - HEIGHT_OF_A_PART / 2
    return (
        f'<rect class="{state}" x="{left}" y="{top}" width="{width}" height="{HEIGHT_OF_A_PART}"/>'
        f'<text x="{left + width / 2}" y="{middle}">{escape(words)}</text>'
    )


def drawing(rung: Rung) -> str:
    """Return the SVG of the transformer as a rung finds it."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
            f'viewBox="0 0 {WIDTH} {HEIGHT}">',
            f"<style>{STYLE}</style>",
            '<text class="title" x="480" y="101">a block, repeated</text>',
            '<rect class="frame" x="192" y="14" width="394" height="76"/>',
            '<text class="title" x="206" y="121">inside one head of attention</text>',
            '<path d="M262 90 L72 130 M346 90 L636 130" stroke-dasharray="2 4"/>',
            '<rect class="frame" x="70" y="130" width="568" height="118"/>',
            *(f'<path d="{arrow}"/>' for arrow in ARROWS),
            *(box(*part, rung) for part in PARTS),
            "</svg>",
        ]
    )


def main() -> None:
    """Write the drawing of each rung."""
    for rung in RUNGS:
        (IMAGES / f"transformer_{rung.stem}.svg").write_text(drawing(rung) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
