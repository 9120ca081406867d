"""HTML with JupyterLab's theme colours and no external resources: a panel with a sign and a headline.

Verdicts on answers and reports of examinations are made of it. Colour is never the only cue: a symbol and a
word accompany it.
"""

import html
import re
from collections.abc import Iterable

from attention_course.plots.style import BLUE, RED

ACCENTS = {"✓": BLUE, "✗": RED}  # colour-blind safe; other signs are grey
TEXT = "color:var(--jp-ui-font-color1,#222)"
MUTED = "color:var(--jp-ui-font-color2,#555)"
BORDER = "var(--jp-border-color2,#ccc)"
CODE = (
    "font-family:var(--jp-code-font-family,monospace);font-size:.95em;background:none;color:inherit;padding:0"
)


def accent(sign: str) -> str:
    """Return the colour of a sign, which is never the only cue."""
    return ACCENTS.get(sign, "#767676")


def frame(name: str, sign: str, headline: str, body: str) -> str:
    """Return a panel: a bar in the colour of the sign, a title, and `body`, which is HTML."""
    return (
        f'<div role="status" style="{TEXT};background:var(--jp-layout-color1,white);max-width:60em;'
        f"border:1px solid {BORDER};border-left:5px solid {accent(sign)};padding:6px 16px 8px;"
        f'line-height:1.5;font-family:var(--jp-ui-font-family,sans-serif);font-size:var(--jp-content-font-size1,14px)">'
        f'<div><span style="{CODE};{MUTED}">{html.escape(name)}</span> &nbsp;'
        f"<strong>{sign} {html.escape(headline)}</strong></div>{body}</div>"
    )


def prose(text: str) -> str:
    """Return a paragraph; text between backticks becomes code."""
    marked = re.sub(r"`([^`]*)`", rf'<code style="{CODE}">\1</code>', html.escape(text))
    return f'<p style="margin:6px 0 0">{marked}</p>'


def points(rows: Iterable[tuple[str, str, str]]) -> str:
    """Return a list: each row a bar in the colour of a sign, the sign, a word, and HTML."""
    items = (
        f'<li style="margin:6px 0 0;border-left:3px solid {accent(sign)};padding-left:8px">'
        f"{sign} {word} &nbsp;{content}</li>"
        for sign, word, content in rows
    )
    return f'<ul style="list-style:none;padding:0;margin:10px 0 0">{"".join(items)}</ul>'
