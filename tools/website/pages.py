"""Notebooks as HTML: every cell of a committed notebook with its stored outputs, for pages without a kernel.

Prose is Markdown, code is highlighted, formulas become MathML. A folded cell opens with a click. What needs a
kernel in the notebook gets the nearest thing that a page can do: questions and hints are native controls,
explorers are drawn by the page (explorers.py), and training and checks lead into the notebook.
"""

import base64
import hashlib
import html
import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import nbformat
from cells import calls_in, tagged
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from latex2mathml.converter import convert
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup
from mdit_py_plugins.dollarmath import dollarmath_plugin
from nbformat import NotebookNode
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from attention_course import __version__
from attention_course.exercises import EXERCISES
from attention_course.exercises.exercise import SHARED_MESSAGES, undocumented, unwrapped
from attention_course.fills import fill, fills
from attention_course.ladder import MORE, RUNGS, Rung
from attention_course.progress import SKIP
from attention_course.questions import BACK, QUESTIONS, RIGHT, SHOWN, WRONG, below, columns, lines, marked
from attention_course.variants import Entry
from website import explorers, training
from website.judge import tasks

HERE = Path(__file__).parent
WHEEL = f"attention_course-{__version__}-py3-none-any.whl"
NOTEBOOKS = HERE.parent.parent / "notebooks"

NOT_HERE = re.compile(r"^.*<!--notebook-->$|<!--.*?-->", re.M)  # lines for notebooks only, and other marks
PICTURE = re.compile(r'<img alt="([^"]*)" src="data:image/svg\+xml;base64,([^"]+)"[^>]*>')
SIZE = re.compile(r'<svg [^>]*?width="([\d.]+)(pt)?" height="([\d.]+)')
EMPTY = "Write the whole function in the notebook, where `check` judges whatever you write."
TRAINED = '<p class="elsewhere">Here a model trains: <a href="#notebook">watch it in the notebook</a>.</p>'
CHANGED = '<p class="elsewhere">Change and run this cell <a href="#notebook">in the notebook</a>.</p>'


def python(code: str) -> Markup:
    """Return Python code, highlighted."""
    return Markup(highlight(code, PythonLexer(), HtmlFormatter(nowrap=True)).rstrip("\n"))


def mathml(formula: str, options: dict) -> str:
    """Return a formula as MathML. No browser breaks one: within a line, each equals sign begins another."""
    if options["display_mode"]:
        made = convert(formula, display="block")
    else:
        made = "<wbr>".join(map(convert, re.split(r" (?==)(?![^{]*\})", formula)))
    return re.sub(r"<mo>([a-z]+)</mo>", r"<mi>\1</mi>", made).replace(r"\_", "_")


def size(picture: str) -> tuple[int, int]:
    """Return width and height of an SVG in CSS pixels."""
    width, points, height = SIZE.search(picture).groups()
    scale = 4 / 3 if points else 1
    return round(float(width) * scale), round(float(height) * scale)


@cache
def templates() -> Environment:
    """Return the templates; each value that one names has to be given."""
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined
    )
    made.trim_blocks = made.lstrip_blocks = True
    made.filters |= {"marked": lambda text: Markup(marked(text)), "python": python}
    made.globals |= {"rungs": RUNGS, "repository": os.environ.get("GITHUB_REPOSITORY", ""), "wheel": WHEEL}
    made.globals |= {"judge": "", "judge_size": 0}  # its folder, where there is one, and its bytes
    made.globals |= {"training_size": 0}  # in bytes, where a page can train
    return made


def render(template: str, **values: object) -> str:
    """Return what a template makes of the values."""
    return templates().get_template(template).render(values)


def anchor(heading: str) -> str:
    """Return the anchor of a heading, or of a link that JupyterLab leads to it."""
    return re.sub(r"\W+", "-", heading.lower()).strip("-")


def is_progress_bar(output: NotebookNode) -> bool:
    """Is an output a progress bar? Without its widget it is a text, and stands still."""
    return output.output_type == "display_data" and "text/html" not in output.data


def question(name: str, entry: Entry, rung: Rung | None = None) -> str:
    """Return a question, with its explanations inert until one of its buttons is pressed.

    `rung` is where it comes from, if it is asked again.
    """
    words = {"BACK": BACK, "RIGHT": RIGHT, "SHOWN": SHOWN, "SKIP": SKIP, "WRONG": WRONG}
    layout = {"grid": columns(entry["choices"]), "height": f"{lines(entry['choices']) * 1.5 + 4}em"}
    return render("question.html", name=name, rung=rung, **entry, **layout, **words)


def exercise(rung: Rung, name: str, notebook: str = "") -> str:
    """Return the hints of an exercise, each behind the one before, and its solution.

    With a judge, its script puts an editor in place of the code, and a button in place of the way into the
    notebook. `notebook` is the page that leads there, if it is another one.
    """
    solution = undocumented(unwrapped(EXERCISES[name].reference))
    task = tasks(rung)[name]
    return render("exercise.html", exercise=EXERCISES[name], solution=solution, task=task, notebook=notebook)


def practice(rungs: tuple[Rung, ...]) -> str:
    """Return the page of all exercises, without the prose around them."""
    right = {name: right_choice(entry) for name, entry in QUESTIONS.items()}
    parts = [
        (
            rung,
            [
                (task, EXERCISES[task.name], exercise(rung, task.name, f"../{rung.name}/"))
                for task in tasks(rung).values()
            ],
        )
        for rung in rungs
    ]
    return render("practice.html", parts=parts, root="../", right=json.dumps(right))


def named(step: dict, kind: str) -> list[str]:
    """Return the names of a kind in a step of a lesson, which has none, one or a list."""
    names = step.get(kind, [])
    return [names] if isinstance(names, str) else names


def lesson(rung: Rung, minutes: str) -> dict:
    """Return the plan of a lesson, for its template: each step with the minute of its begin and its end."""
    steps, clock = [], 0
    for step in rung.teach[minutes]:
        begins, clock = clock, clock + step["minutes"]
        shown = {
            "votes": [(name, QUESTIONS[name]["question"]) for name in named(step, "vote")],
            "fills": named(step, "fill"),
            "exercises": named(step, "exercise"),
            "anchor": anchor(step.get("at", "")),
        }
        steps.append(step | shown | {"begins": begins, "ends": clock})
    return {
        "minutes": minutes,
        "steps": steps,
        "votes": [name for step in steps for name, _ in step["votes"]],
    }


def teach(rungs: tuple[Rung, ...]) -> str:
    """Return the page for teachers: two plans of each rung."""
    plans = [(rung, [lesson(rung, minutes) for minutes in ("45", "90")]) for rung in rungs]
    titles = {name: task.title for rung in rungs for name, task in tasks(rung).items()}
    said = {"mistake": SHARED_MESSAGES["mask_after_softmax"], "titles": titles, "root": "../"}
    return render("teach.html", plans=plans, questions=len(QUESTIONS), exercises=len(EXERCISES), **said)


def again(rung: Rung) -> Iterator[tuple[str, str, list[str]]]:
    """Return the kind and the name of each thing of a rung that can be done again, and its variants."""

    def task(kind: str, name: str, **shown: object) -> tuple[str, str, list[str]]:
        return kind, name, [render("again.html", kind=kind, name=name, rung=rung, **shown)]

    for name in rung.questions:
        lesson, *others = rung.variants(name)
        yield "question", name, [question(name, each, rung) for each in others or [lesson]]
    for name, each in tasks(rung).items():
        shown = exercise(rung, name, f"../{rung.name}/")
        yield task("exercise", name, shown=shown, exercise=EXERCISES[name], task=each)
    for name in json.loads(rung.text("fills.json")):
        yield task("fill", name, shown=fill_place(name))


def fill_place(name: str) -> str:
    """Return the place of a fill, which its script fetches: about as high as it will be."""
    gaps = fills()[name]["gaps"]
    rows = sum(part.count("\n") for part in gaps["parts"])
    height = 16 + 1.6 * rows + 2.8 * max(map(len, gaps["choices"]))
    return render("fill.html", name=name, height=height, text=repr(fill(name)))


def right_choice(entry: Entry) -> str:
    """Return the text of the right choice of a question."""
    return next(choice["text"] for choice in entry["choices"] if choice.get("right"))


@dataclass
class Page:
    """The page of a rung.

    Attributes:
        rung: which.
        cells: the HTML of each cell, in order.
        sections: the anchor and the HTML of each heading of the second level.
        title: the title of the notebook.
        files: what the page shows or links to besides pages, by path in the site.
    """

    rung: Rung
    cells: list[Markup] = field(default_factory=list)
    sections: list[tuple[str, Markup]] = field(default_factory=list)
    title: str = ""
    files: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self):
        self._anchors: Counter[str] = Counter()
        self._markdown = MarkdownIt("commonmark", {"html": True}).enable("table")
        self._markdown.use(dollarmath_plugin, renderer=mathml, double_inline=True)
        self._markdown.add_render_rule("table_open", lambda *_: '<div class="wide"><table>')
        self._markdown.add_render_rule("table_close", lambda *_: "</table></div>")
        self._markdown.options["highlight"] = lambda code, language, _: (
            python(code) if language == "python" else html.escape(code)
        )
        notebook = nbformat.read(NOTEBOOKS / f"{self.rung.name}.ipynb", as_version=4)
        folded = ""  # the #s of a heading that folds the cells below it
        for cell in notebook.cells:
            heading = cell.source.partition(" ")[0] if cell.cell_type == "markdown" else ""
            if folded and 0 < len(heading) <= len(folded) and set(heading) == {"#"}:
                self.cells[-1] += Markup("\n</details>")
                folded = ""
            folds = not folded and bool(heading and MORE.match(cell.source))
            if folds:
                folded = heading
            made = self._cell(cell, "summary" if folds else "div")
            self.cells.append(Markup(f'<details class="more">{made}' if folds else made))

    def _cell(self, cell: NotebookNode, tag: str) -> str:
        content = self._prose(cell.source) if cell.cell_type == "markdown" else self._code(cell)
        return f'<{tag} class="cell {cell.cell_type}" data-cell="{cell.id}">\n{content}\n</{tag}>'

    # Prose

    def _prose(self, source: str) -> str:
        """Return a cell of Markdown, and keep its headings."""
        tokens = self._markdown.parse(NOT_HERE.sub("", source))
        for token, inside in pairwise(tokens):
            if token.type == "heading_open":
                self._anchor(token, inside)
            for part in token.children or []:
                self._localize(part)
        return self._markdown.renderer.render(tokens, self._markdown.options, {})

    def _anchor(self, token: Token, inside: Token) -> None:
        """Give a heading an anchor, and a link to it."""
        text = "".join(part.content for part in inside.children)
        if token.tag == "h1":
            self.title = text.partition(": ")[2] or text
            return
        name = anchor(text)
        self._anchors[name] += 1
        if self._anchors[name] > 1:
            name += f"-{self._anchors[name]}"
        if token.tag == "h2":
            title = self._markdown.renderer.renderInline(inside.children, self._markdown.options, {})
            self.sections.append((name, Markup(title)))
        token.attrSet("id", name)
        if MORE.match(f"## {text}"):
            return  # it is a button that folds, and a button holds no link
        link = f'<a class="anchor" href="#{name}" aria-label="Link to “{html.escape(text)}”"></a>'
        inside.children.append(Token("html_inline", "", 0, content=link))

    def _localize(self, part: Token) -> None:
        """Lead links between notebooks to pages, take along other files, and give a picture its size."""
        if part.type == "link_open" and not (link := part.attrGet("href")).startswith("http"):
            part.attrSet("href", re.sub(r"^(\w+)\.ipynb", r"../\1/", link))
            if link.startswith("#"):
                part.attrSet("href", f"#{anchor(unquote(link))}")
            if link.startswith("../"):
                self.files[link.removeprefix("../")] = (NOTEBOOKS / link).read_bytes()
        if part.type == "image":
            source = part.attrGet("src")
            self.files[source] = (NOTEBOOKS / source).read_bytes()
            width, height = size(self.files[source].decode())
            part.attrs |= {"src": f"../{source}", "width": width, "height": height, "loading": "lazy"}

    # Code

    def _code(self, cell: NotebookNode) -> str:
        """Return a cell of code, and what stands below it."""
        kind, name = next(iter(calls_in(cell.source)), ("", ""))
        shown = "\n".join(map(self._output, cell.outputs))
        if kind == "ask":
            return question(name, QUESTIONS[name])
        if kind == "warm_up":
            return f'<div class="warm-up" data-warm-up="{" ".join(below(self.rung))}"></div>'
        if kind == "fill":
            return self._fill(name)
        if kind == "hero":
            return shown
        if kind == "explore":
            printed = [output for output in cell.outputs if "text/html" not in output.get("data", {})]
            shown = "\n".join([*map(self._output, printed), explorers.markup(name)])
        if kind == "check":
            shown = exercise(self.rung, name)
        bars = [output.data["text/plain"] for output in cell.outputs if is_progress_bar(output)]
        trained = kind == "LiveTraining" or any(not bar.startswith("examining") for bar in bars)
        changed = tagged(cell, "do") is not None and not kind
        note = TRAINED if trained else CHANGED if changed else ""  # not in the output, which may be veiled
        if tagged(cell, "name") == training.CELL and (size := templates().globals["training_size"]):
            shown += f"\n{training.markup(size)}"
        results = f'\n<div class="output">{shown}</div>' if shown.strip() else ""
        return f"{self._source(cell)}{results}\n{note}"

    def _fill(self, name: str) -> str:
        """Return the place of a fill, and keep what its script fetches."""
        shown = fills()[name]
        if "empty" in shown:
            shown = shown | {"empty": EMPTY}
        self.files[f"fills/{name}.json"] = json.dumps(shown, ensure_ascii=False).encode()
        return fill_place(name)

    def _source(self, cell: NotebookNode) -> str:
        code = f'<pre class="code"><code>{python(cell.source)}</code></pre>'
        if not cell.metadata.get("jupyter", {}).get("source_hidden"):
            return code
        says = html.escape(cell.source.partition("\n")[0].lstrip("# "))
        return f'<details class="fold" data-pagefind-ignore><summary>{says}</summary>{code}</details>'

    def _output(self, output: NotebookNode) -> str:
        """Return a stored output, the richest form of it; a picture goes into a file, to load when needed."""
        data = output.get("data", {})
        if is_progress_bar(output):
            return ""
        if "text/html" not in data:
            return f'<pre class="text">{html.escape((data.get("text/plain") or output.text).rstrip())}</pre>'
        found = PICTURE.fullmatch(data["text/html"])
        return self._picture(*found.groups()) if found else data["text/html"]

    def _picture(self, alt: str, content: str) -> str:
        picture = base64.b64decode(content)
        name = f"pictures/{hashlib.sha256(picture).hexdigest()[:12]}.svg"
        self.files[name] = picture
        width, height = size(picture.decode())
        return f'<img alt="{alt}" src="../{name}" width="{width}" height="{height}" loading="lazy">'

    def html(self) -> str:
        """Return the page."""
        at = RUNGS.index(self.rung)
        around = {"below": RUNGS[max(0, at - 1) : at], "above": RUNGS[at + 1 : at + 2]}
        return render("rung.html", page=self, name=self.rung.name, root="../", **around)
