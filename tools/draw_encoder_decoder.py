"""Draw the transformer of 2017, an encoder beside a decoder, for rung `cross_and_causal`: `make drawings`.

The file is notebooks/images/encoder_decoder.svg, read from bottom to top as in figure 1 of the paper
(Vaswani et al. 2017). Beside the name of each attention is its mask, in small: blue where a query may look.
"""

from html import escape

from draw_transformer import IMAGES

from attention_course.plots.style import coloured

WIDTH, HEIGHT = 350, 526  # as wide as a phone
STYLE = coloured("""
text { font: 13px system-ui, sans-serif; text-anchor: middle; dominant-baseline: central; fill: #222; }
.small { font-size: 12px; fill: #555; } .start { text-anchor: start; } .strong { font-weight: 600; }
.said { font: 13px ui-monospace, monospace; }
rect { rx: 5px; stroke-width: 1.5px; fill: #e3ecf2; stroke: #8fa9b8; }
.frame { fill: none; stroke: #aaa; rx: 9px; }
.norm { fill: none; }
.attention { fill: #fff; stroke: $light-blue; }
.may, .not { rx: 0.6px; stroke: none; fill: $light-blue; } .not { fill: #d4dde2; }
path { fill: none; stroke: #777; stroke-width: 1.5px; }
.tip { fill: #777; stroke: none; } .skip { stroke-dasharray: 2 4; }
.read { stroke: $text-amber; stroke-width: 2px; } .read.tip { fill: $text-amber; stroke: none; }
text.read { fill: $text-amber; stroke: none; }
@media (prefers-color-scheme: dark) {
  text { fill: #e4e4e4; } .small { fill: #b0b0b0; } path { stroke: #999; } .tip { fill: #999; }
  rect { fill: #2b3d49; stroke: #5b7789; } .frame { fill: none; stroke: #777; } .norm { fill: none; }
  .attention { fill: #17212a; stroke: $dark-blue; }
  .may { fill: $dark-blue; } .not { fill: #3a4650; }
  .read { stroke: $dark-amber; } .read.tip, text.read { fill: $dark-amber; }
}
""")
WIDE, LOW, TALL = 138, 26, 44  # a box, and the height of an ordinary one and of attention
LEFT, RIGHT = 91, 259  # the middles of the two columns
BETWEEN = 175  # where keys and values come down
KEYS, STEP = 5, 5  # of a mask in small

ALL = [[True] * KEYS] * KEYS
PAST = [[key <= query for key in range(KEYS)] for query in range(KEYS)]


def words(x: float, y: float, text: str, kind: str = "") -> str:
    """Draw a text."""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(text)}</text>'


def arrow(path: str, x: float, y: float, turn: int = 0, kind: str = "") -> str:
    """Draw a line with its tip at (x, y), which points up, or is turned by so many degrees."""
    tip = f'<path class="{kind} tip" transform="translate({x:g} {y:g}) rotate({turn})" d="M0 0L-4 7H4Z"/>'
    return f'<path class="{kind}" d="{path}"/>{tip}'


def box(middle: float, y: float, text: str, kind: str = "") -> str:
    """Draw a box of one line."""
    left, top = middle - WIDE / 2, y - LOW / 2
    rect = f'<rect class="{kind}" x="{left:g}" y="{top:g}" width="{WIDE}" height="{LOW}"/>'
    return rect + words(middle, y, text)


def looking(middle: float, y: float, name: str, sees: str, mask: list[list[bool]]) -> str:
    """Draw an attention: its name, what it sees, and its mask in small."""
    left, top = middle - WIDE / 2, y - TALL / 2
    corner = left + 8, y - KEYS * STEP / 2
    cells = "".join(
        f'<rect class="{"may" if may else "not"}" x="{corner[0] + STEP * key:g}" '
        f'y="{corner[1] + STEP * query:g}" width="{STEP - 1}" height="{STEP - 1}"/>'
        for query, row in enumerate(mask)
        for key, may in enumerate(row)
    )
    rect = f'<rect class="attention" x="{left:g}" y="{top:g}" width="{WIDE}" height="{TALL}"/>'
    at = middle + 16
    return rect + cells + words(at, y - 8, name) + words(at, y + 9, sees, "small")


def added(middle: float, y: float, below: float, side: int) -> str:
    """Draw the box that adds, at y, with the line around what is below it, which leaves at `below`."""
    lane, edge = middle + side * 78, middle + side * WIDE / 2
    line = arrow(f"M{middle} {below} H{lane:g} V{y} H{edge + side * 6:g}", edge, y, side * -90, "skip")
    return line + box(middle, y, "add, then norm", "norm")


def up(middle: float, low: float, high: float) -> str:
    """Draw an arrow that goes up."""
    return arrow(f"M{middle} {low} V{high + 6}", middle, high)


def encoder() -> list[str]:
    """Draw the column that reads."""
    return [
        '<rect class="frame" x="2" y="209" width="166" height="201"/>',
        words(13, 198, "× 6", "small"),
        words(LEFT, 472, "14 march 1879", "said"),
        words(LEFT, 490, "what it reads", "small"),
        up(LEFT, 462, 450),
        box(LEFT, 436, "token + position"),
        up(LEFT, 423, 389),
        looking(LEFT, 366, "self-attention", "no causal mask", ALL),
        up(LEFT, 344, 332),
        added(LEFT, 318, 400, -1),
        up(LEFT, 305, 284),
        box(LEFT, 270, "feed-forward"),
        up(LEFT, 257, 246),
        added(LEFT, 232, 296, -1),
        words(LEFT, 514, "encoder", "strong"),
    ]


def decoder() -> list[str]:
    """Draw the column that writes."""
    return [
        '<rect class="frame" x="182" y="105" width="166" height="305"/>',
        words(337, 94, "× 6", "small"),
        words(RIGHT, 472, ">1879-0", "said"),
        words(RIGHT, 490, "what it has written", "small"),
        up(RIGHT, 462, 450),
        box(RIGHT, 436, "token + position"),
        up(RIGHT, 423, 389),
        looking(RIGHT, 366, "self-attention", "causal mask", PAST),
        up(RIGHT, 344, 332),
        added(RIGHT, 318, 400, 1),
        up(RIGHT, 305, 285),
        looking(RIGHT, 262, "cross-attention", "no causal mask", ALL),
        up(RIGHT, 240, 228),
        added(RIGHT, 214, 296, 1),
        up(RIGHT, 201, 180),
        box(RIGHT, 166, "feed-forward"),
        up(RIGHT, 153, 142),
        added(RIGHT, 128, 192, 1),
        up(RIGHT, 115, 86),
        box(RIGHT, 72, "linear, softmax"),
        up(RIGHT, 59, 47),
        words(RIGHT, 35, "3", "said"),
        words(RIGHT, 14, "what it writes next", "small"),
        words(RIGHT, 514, "decoder", "strong"),
    ]


def drawing() -> str:
    """Return the SVG."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
            f'viewBox="0 0 {WIDTH} {HEIGHT}">',
            f"<style>{STYLE}</style>",
            *encoder(),
            *decoder(),
            arrow(f"M{LEFT} 219 V190 H{BETWEEN} V262 H184", 190, 262, 90, "read"),
            words(109, 179, "keys and values", "read"),
            '<rect class="may" x="4" y="8" width="12" height="12"/>',
            words(24, 14, "a query may look here", "small start"),
            '<rect class="not" x="4" y="28" width="12" height="12"/>',
            words(24, 34, "it may not look here", "small start"),
            "</svg>",
        ]
    )


def main() -> None:
    """Write the drawing."""
    (IMAGES / "encoder_decoder.svg").write_text(drawing() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
