"""Build the notebooks: `make notebooks`, or `python notebooks/build.py bag_of_words` for one of them.

What is edited is `notebook.py` in the folder of a rung (jupytext's py:percent); what a learner opens is
made from it here, with its outputs. `<!--ladder-->` in a source becomes a line that leads to all rungs, `<!
--neighbours-->` one to the rungs below and above, `<!--time-->` how long the rung takes, `<!--test-out-->`
the way to its hardest exercise, `<!--task NAME-->` the task of an exercise, `<!--staircase-->` the staircase
of models with the step of the rung lit and what the model below it writes, `<!--step-->` what its own writes,
and the stem of a rung in braces its number.
`{{loss:.2f}}` in prose becomes what
Python puts there in an f-string, once the code above it has run. A line that ends with `<!--notebook-->`
is for notebooks only, as those with links are; the site leaves it out. What stands below a heading
`More: ...`, up to the next one of its level or higher, is folded. A cell with the tag `folded` shows one
line until it is opened, the comment that says what is there. The same source always gives the same file, so
that a diff shows what a change really moved: ids of cells come from the cells themselves, and everything
that differs from run to run is left out, except in the last rung, which draws other bugs each time. A
notebook is written when all its cells have run; one that fails leaves the old file as it was. `pictures/`
gets what its explorers show of the models that it trained or loaded. README.md gets its table of the rungs.
"""

import ast
import hashlib
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jupytext
import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

from attention_course.exercises import EXERCISES
from attention_course.files import write_at_once
from attention_course.ladder import MORE, RUNGS, Rung, staircase
from attention_course.names import look_up

HERE = Path(__file__).resolve().parent
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
NAVIGATION = "<!--ladder-->"
NEIGHBOURS = "<!--neighbours-->"
TIME = "<!--time-->"
TEST_OUT = "<!--test-out-->"
STAIRS = "<!--staircase-->"
STEP = "<!--step-->"
NOT_ON_THE_SITE = "<!--notebook-->"
KEPT = ("numbers", "tags")  # of the metadata of a cell
TASK = re.compile(r"<!--task (.+?)-->")
FIELD = re.compile(r"\{\{(.+?)\}\}")  # {{loss:.2f}}
WIDGET = "application/vnd.jupyter.widget-view+json"
PICTURES = f"""\
import sys
sys.path.append({str(HERE.parent / "tools")!r})
from website.explorers import dump
dump(Out.values())"""  # for the site, of the models that the notebook trained or loaded


def navigation(here: Rung) -> str:
    """Return the line with all rungs, in which `here` is lit and the others are links."""
    steps = [(rung, f"{rung.number} {rung.title}".replace(" ", "\u00a0")) for rung in RUNGS]
    links = (f"**▶\u00a0{step}**" if rung is here else f"[{step}]({rung.name}.ipynb)" for rung, step in steps)
    return " · ".join(links) + NOT_ON_THE_SITE


def neighbours(here: Rung) -> str:
    """Return the line with the rung below and the rung above."""
    below = [f"[← {rung.number} {rung.title}]({rung.name}.ipynb)" for rung in RUNGS[: here.number - 1][-1:]]
    above = [f"[{rung.number} {rung.title} →]({rung.name}.ipynb)" for rung in RUNGS[here.number :][:1]]
    return " · ".join(below + above) + NOT_ON_THE_SITE


def time(rung: Rung) -> str:
    """Return how long a rung takes."""
    return (
        f"**Time** about {rung.minutes} minutes to read slowly and do what the page asks, plus "
        f"{rung.exercise_minutes} for the exercises."
    )


def test_out(rung: Rung) -> str:
    """Return the way to the hardest exercise of a rung."""
    above = rung.text("notebook.py").partition(f"<!--task {rung.hardest}-->")[0]
    *_, heading = re.findall(r"^# #+ (.+)", above, re.M)
    link = f"[{heading.partition('. ')[2] or heading}](#{quote(heading.replace(' ', '-'))})"
    return (
        f"**Test out** If you know all this already, go straight to the hardest exercise, {link}. "
        "Once you pass it, the rung counts as done."
    )


def written(step: dict[str, Any], prompt: str) -> str:
    """Return what the model of a step writes after the story of the course."""
    line = escape(step["line"].strip())
    return f"> {prompt.strip()} **{line}**\n>\n> *{step['name']}, loss {step['loss']:.2f}*"


def stairs(rung: Rung) -> str:
    """Return the picture of the staircase, and what the model writes that the rung starts from."""
    told = staircase()
    steps = told["steps"]
    own = [at for at, step in enumerate(steps) if step["rung"] == rung.stem]
    if not own:
        return ""
    falls = ", ".join(f"{step['name']} {step['loss']:.2f}" for step in steps[: own[-1] + 1])
    alt = f"A staircase of models and their losses, down to a floor of {told['floor']:.2f}: {falls}."
    picture = f"![{alt}](images/staircase_{rung.stem}.svg)"
    return f"{picture}\n\n{written(steps[max(0, own[0] - 1)], told['prompt'])}"


def step(rung: Rung) -> str:
    """Return what the model of the rung's last step writes."""
    told = staircase()
    own = [step for step in told["steps"] if step["rung"] == rung.stem]
    return written(own[-1], told["prompt"]) if own else ""


def task(name: str) -> str:
    """Return what an exercise asks for, and how long it takes."""
    exercise = look_up(name, EXERCISES, "exercise")
    return f"{exercise.task} About {exercise.minutes} minutes, difficulty {exercise.difficulty} of 5."


MARKS = {
    NAVIGATION: navigation,
    NEIGHBOURS: neighbours,
    TIME: time,
    TEST_OUT: test_out,
    STAIRS: stairs,
    STEP: step,
}


def read(rung: Rung) -> str:
    """Read the source of a rung, with what the build knows in its places."""
    text = rung.text("notebook.py")
    for mark, made in MARKS.items():
        text = text.replace(mark, made(rung).replace("\n", "\n# "))
    return TASK.sub(lambda found: task(found[1]), text)


def with_folds(cells: Iterable[NotebookNode]) -> Iterator[NotebookNode]:
    """Give a heading that folds its own cell, and begin a cell where its fold ends: Jupyter folds cells."""
    folded = 0
    for cell in cells:
        parts = [""]
        for line in cell.source.splitlines(keepends=True) if cell.cell_type == "markdown" else ():
            level = len(line) - len(line.lstrip("#"))
            if MORE.match(line):
                parts += [line, ""]
                folded = level
            elif 0 < level <= folded:
                parts.append(line)
                folded = 0
            else:
                parts[-1] += line
        made = [nbformat.v4.new_markdown_cell(part.strip("\n")) for part in parts if part.strip()]
        yield from made if len(made) > 1 else [cell]


def cells_of(source: str) -> list[NotebookNode]:
    """Read the cells of a source, not yet executed.

    An id is a hash of the cell, so a cell keeps its id for as long as nobody edits it, wherever it moves.
    Two blank lines, which formatters leave around a function, become one. The code above a field gets it
    among the numbers of its metadata, as yet without a value.
    """
    cells = [*with_folds(jupytext.reads(source, fmt="py:percent").cells)]
    seen = Counter()
    for cell in cells:
        if cell.cell_type == "code":
            above = cell
        elif fields := FIELD.findall(cell.source):
            above.metadata["numbers"] = above.metadata.get("numbers", {}) | dict.fromkeys(fields)
        cell.source = re.sub(r"\n{3,}", "\n\n", cell.source)
        content = f"{cell.cell_type}\n{cell.source}"
        cell.id = hashlib.sha256(f"{content}\n{seen[content]}".encode()).hexdigest()[:8]
        seen[content] += 1
    return cells


def notebook_of(source: str) -> NotebookNode:
    """Make the notebook of a source, not yet executed."""
    return nbformat.v4.new_notebook(cells=cells_of(source), metadata={"kernelspec": KERNEL})


def asked(fields: Iterable[str]) -> dict[str, Any]:
    """Return what a kernel is asked to work out fields, as arguments of a client's `execute`."""
    values = {field: f'f"""{{{field}}}"""' for field in fields}
    return {"code": "", "silent": True, "user_expressions": values, "reply": True}


def answered(reply: dict[str, Any]) -> dict[str, str]:
    """Return what a kernel replied: the words for each field, but for those that it could not work out."""
    said = reply["content"]["user_expressions"].items()
    return {name: ast.literal_eval(x["data"]["text/plain"]) for name, x in said if x["status"] == "ok"}


def execute(notebook: NotebookNode, folder: Path) -> None:
    """Run all cells in `folder` and keep their outputs and numbers; raises at the first error.

    One more cell, which is not kept, writes the pictures of the explorers that show a model.
    """
    os.environ["OMP_NUM_THREADS"] = "1"  # as the tests run them: other threads can add in another order
    os.environ["ATTENTION_PROGRESS"] = ""  # what a maintainer has answered is not stored
    notebook.cells.append(nbformat.v4.new_code_cell(PICTURES))
    client = NotebookClient(
        notebook,
        timeout=600,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
        store_widget_state=False,
    )

    async def keep_numbers(cell: NotebookNode, **_: object) -> None:
        if fields := cell.metadata.get("numbers"):
            fields |= answered(await client.kc.execute(**asked(fields)))

    client.on_cell_executed = keep_numbers
    client.execute()
    notebook.cells.pop()


def put_numbers(notebook: NotebookNode) -> None:
    """Put the numbers of each cell into the prose below it."""
    numbers = {}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            numbers = cell.metadata.get("numbers", {})
        for field, said in numbers.items() if cell.cell_type == "markdown" else ():
            if said is None:
                sys.exit(f"{{{{{field}}}}} has no value: the code above it must compute it, and has to run.")
            cell.source = cell.source.replace(f"{{{{{field}}}}}", said)


def strip(notebook: NotebookNode) -> None:
    """Take out what changes from run to run, and widgets that no kernel stands behind any more.

    Without its kernel a widget is only an error message in JupyterLab. What the same output holds besides,
    a picture or a text, is what shows then. Printed lines arrive in pieces of any size: they are joined.
    """
    notebook.metadata = NotebookNode(kernelspec=NotebookNode(KERNEL))
    for cell in notebook.cells:
        cell.metadata = NotebookNode({key: cell.metadata[key] for key in cell.metadata if key in KEPT})
        if MORE.match(cell.source):
            cell.metadata["jp-MarkdownHeadingCollapsed"] = True
        if "folded" in cell.metadata.get("tags", []):
            cell.metadata["jupyter"] = {"source_hidden": True}
        outputs = []
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if len(data) > 1:
                data.pop(WIDGET, None)
            last = outputs[-1] if outputs else {}
            if "text" in output and last.get("name") == output.get("name"):
                last.text += output.text
            else:
                outputs.append(output)
        if cell.cell_type == "code":
            cell.outputs = outputs


def build(source: str, notebook: Path) -> None:
    """Build the file `notebook` from a source."""
    made = notebook_of(source)
    execute(made, notebook.parent)
    put_numbers(made)
    strip(made)
    nbformat.validate(made)
    nbformat.write(made, notebook)


def reword(source: str, notebook: Path) -> None:
    """Build the file `notebook` with the outputs that it has: prose has changed, and no code."""
    made, stored = notebook_of(source), nbformat.read(notebook, as_version=4)
    code, before = ([cell for cell in each.cells if cell.cell_type == "code"] for each in (made, stored))
    if [cell.source for cell in code] != [cell.source for cell in before]:
        sys.exit(f"{notebook.name}: code has changed, so it has to run: leave out --words.")
    for cell, old in zip(code, before, strict=True):
        cell.outputs, cell.execution_count = old.outputs, old.execution_count
        for field in (numbers := cell.metadata.get("numbers", {})):
            numbers[field] = old.metadata.get("numbers", {}).get(field)
    put_numbers(made)
    strip(made)
    nbformat.write(made, notebook)


def main(names: list[str]) -> None:
    """Build the named notebooks, or all; with --words among the names, without running them."""
    way = reword if "--words" in names else build
    names = [name for name in names if name != "--words"]
    rungs = {key: rung for rung in RUNGS for key in (rung.name, rung.stem)}
    unknown = [name for name in names if name not in rungs]
    if unknown:
        sys.exit(f"No source for {', '.join(unknown)}. There are: {', '.join(rung.stem for rung in RUNGS)}.")
    for rung in [rungs[name] for name in names] or RUNGS:
        print(f"notebooks/{rung.name}.ipynb", flush=True)
        way(read(rung), HERE / f"{rung.name}.ipynb")
    list_rungs(HERE.parent / "README.md")


def list_rungs(readme: Path) -> None:
    """Renew the table of the rungs in README.md."""
    head, begin, rest = readme.read_text(encoding="utf-8").partition("| rung | notebook | you build |\n")
    rows = (f"| {r.number} | [{r.title}](notebooks/{r.name}.ipynb) | {r.builds} |\n" for r in RUNGS)
    end = rest.partition("\n\n")[2]
    write_at_once(readme, "".join((head, begin, "| --- | --- | --- |\n", *rows, "\n", end)).encode())


if __name__ == "__main__":
    main(sys.argv[1:])
