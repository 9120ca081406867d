"""Draw the staircase of models once for each rung that has a step of it, with that step lit: `make drawings`.

The files are notebooks/images/staircase_<stem>.svg, the losses those of `rungs/staircase.json`, on a
logarithmic axis. Steps of later rungs are dashed, and their numbers not told.
"""

import math
from html import escape
from textwrap import wrap

from draw_transformer import IMAGES

from attention_course.ladder import ORDER, RUNGS, Rung, staircase
from attention_course.plots.style import coloured

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 350, 246, 4, 46, 160  # as wide as a phone
STYLE = coloured("""
text { font: 13px system-ui, sans-serif; text-anchor: middle; fill: #222; }
.small { font-size: 12px; fill: #555; } .start { text-anchor: start; }
rect { fill: #e3ecf2; stroke: #8fa9b8; stroke-width: 1.5px; }
rect.later { fill: none; stroke: #aaa; stroke-dasharray: 4 4; }
rect.lit { fill: $light-blue; stroke: $light-blue; } text.lit { font-weight: 600; fill: #222; }
path { stroke: #777; stroke-dasharray: 2 4; }
@media (prefers-color-scheme: dark) {
  text, text.lit { fill: #e4e4e4; } .small { fill: #b0b0b0; } path { stroke: #999; }
  rect { fill: #2b3d49; stroke: #5b7789; } rect.later { stroke: #777; }
  rect.lit { fill: $dark-blue; stroke: $dark-blue; }
}
""")


def words(x: float, y: float, text: str, kind: str = "") -> str:
    """Draw a text."""
    return f'<text class="{kind}" x="{x:.0f}" y="{y:.0f}">{escape(text)}</text>'


def drawing(rung: Rung) -> str:
    """Return the SVG of the staircase as a rung finds it."""
    told = staircase()
    steps, floor = told["steps"], told["floor"]
    width = (WIDTH - 2 * LEFT) / len(steps)
    scale = (BOTTOM - TOP) / math.log(max(step["loss"] for step in steps) / floor)
    parts = [words(LEFT, 14, "loss, in nats per character (logarithmic)", "small start")]
    for at, step in enumerate(steps):
        number = ORDER.index(step["rung"]) + 1
        state = "lit" if number == rung.number else "later" if number > rung.number else "built"
        left, height = LEFT + at * width, scale * math.log(step["loss"] / floor)
        parts.append(
            f'<rect class="{state}" x="{left + 1:.1f}" y="{BOTTOM - height:.1f}" '
            f'width="{width - 2:.1f}" height="{height:.1f}"/>'
        )
        label = f"{step['loss']:.2f}" if state != "later" else "?"
        parts.append(words(left + width / 2, BOTTOM - height - 6, label, state))
        if at == 0 or steps[at - 1]["rung"] != step["rung"]:
            own = sum(each["rung"] == step["rung"] for each in steps)
            place = f"rung {number}" if own > 1 else str(number)
            parts.append(words(left + own * width / 2, BOTTOM + 17, place, "small"))
    lit = ", ".join(step["name"] for step in steps if step["rung"] == rung.stem)
    said = [f"Ground: {floor:.2f}, where only chance is left", *wrap(f"Lit: {lit}", 44)]
    for row, line in enumerate(said):
        parts.append(words(LEFT, BOTTOM + 39 + 18 * row, line, "start lit" if row else "small start"))
    parts.append(f'<path d="M{LEFT} {BOTTOM} H{WIDTH - LEFT}"/>')
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
            f'viewBox="0 0 {WIDTH} {HEIGHT}">',
            f"<style>{STYLE}</style>",
            *parts,
            "</svg>",
        ]
    )


def main() -> None:
    """Write the drawing of each rung that has a step."""
    climbed = {step["rung"] for step in staircase()["steps"]}
    for rung in RUNGS:
        if rung.stem in climbed:
            (IMAGES / f"staircase_{rung.stem}.svg").write_text(drawing(rung) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
