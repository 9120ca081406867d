"""The hero of a rung: the picture it opens with, which one can drag, step through and play.

`hero("bag_of_words")` shows one. In the folder of its rung a hero is a script, `hero.js`, on the stage of
`stage.js`; its texts and its numbers, `hero.json`; and its still, `hero.svg`, for pages that run no scripts.
It needs no kernel: the output holds all of it, so a page that shows the stored output shows it moving.
"""

import base64
import html
import json
from pathlib import Path

from attention_course.ladder import RUNGS, numbered_text
from attention_course.names import look_up
from attention_course.plots.style import coloured

HERE = Path(__file__).parent
STAGE = HERE / "stage.js"
STYLE = coloured((HERE / "stage.css").read_text(encoding="utf-8"))
HEROES = {rung.stem: rung.folder / "hero.json" for rung in RUNGS} | {"ladder": HERE / "ladder.json"}


class Hero:
    """A picture that moves in the page; made by `hero`.

    Attributes:
        name: the stem of its files.
        title: what it shows.
        alt: the same in words, for those who cannot see it.
        heights: of the drawing, in CSS pixels: 640 wide, and 328 wide for a phone.
        still: the button to press before its still is taken; "" for none.
        ask: what it asks before it plays: question, choices, the number of the right one, what to say `then`.
        data: the numbers that its script draws.
    """

    def __init__(self, name: str):
        self.name = name
        entry = json.loads(self.read(".json"))
        self.title: str = entry["title"]
        self.alt: str = entry["alt"]
        self.heights: list[int] = entry["heights"]
        self.still: str = entry.get("still", "")
        self.ask: dict[str, object] | None = entry.get("ask")
        self.data: dict[str, object] = entry["data"]
        if "rungs" in self.data:  # of the whole ladder
            self.data["rungs"] = [{"title": rung.title, "sentence": rung.sentence} for rung in RUNGS]

    def read(self, suffix: str) -> str:
        """Return one of its files as text."""
        return numbered_text(HEROES[self.name].with_suffix(suffix))

    def page(self) -> str:
        """Return the hero as HTML that stands by itself: style, still and script."""
        script = STAGE.read_text(encoding="utf-8") + "\n" + self.read(".js")
        heights, alt, data, ask = (
            json.dumps(value, ensure_ascii=False).replace("</", "<\\/")
            for value in (self.heights, self.alt, self.data, self.ask)
        )
        still = HEROES[self.name].with_suffix(".svg")
        image = base64.b64encode(still.read_bytes()).decode() if still.exists() else ""
        return (
            f'<figure class="attention-hero" data-hero="{self.name}">\n<style>\n{STYLE}</style>\n'
            f"<figcaption>{html.escape(self.title)}</figcaption>\n"
            f'<img alt="{html.escape(self.alt)}" src="data:image/svg+xml;base64,{image}">\n'
            f'<script>\n(() => {{\nconst figure = document.currentScript.closest("figure");\n{script}\n'
            f"open(figure, {heights}, {alt}, (stage) => {{\nplay(stage, {data});\n"
            f"{f'stage.ask({ask});' if self.ask else ''}\n}});\n}})();\n</script>\n</figure>"
        )

    def __repr__(self) -> str:
        return f"{self.title}. {self.alt}"

    def _repr_mimebundle_(self, **_):
        return {"text/html": self.page(), "text/plain": repr(self)}


def hero(name: str) -> Hero:
    """Show the hero called `name`; as the last line of a notebook cell it displays itself.

    Raises:
        ValueError: there is no hero of that name; the message lists them.
    """
    look_up(name, HEROES, "hero")
    return Hero(name)
