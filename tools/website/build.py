"""Build the site, a folder of static files: `make site`.

It is made from the committed notebooks (pages.py) and from the explorers (explorers.py). Any server can
serve it, from below any path, and it asks no other host for anything. GITHUB_REPOSITORY, which GitHub sets,
adds the links that lead into Binder and Colab.
"""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat

from attention_course import fills, questions
from attention_course.heroes import hero
from attention_course.ladder import RUNGS, WAYS
from attention_course.plots.style import coloured
from attention_course.progress import that_come_back
from attention_course.review import minutes
from attention_course.workspace import clean
from website import explorers, judge, training
from website.pages import HERE, NOTEBOOKS, Page, again, practice, render, teach, templates

ROOT = HERE.parent.parent
PACKAGE = ROOT / "attention_course"
SHEETS = (
    "static/question.css",
    "static/fill.css",
    "explorers/figure.css",
    "static/explorer.css",
    "static/site.css",
)
SCRIPT = re.compile(r"<script>\n(.*?)</script>", re.S)


def front(pages: list[Page]) -> str:
    """Return the front page."""
    moving = {"ladder": hero("ladder").page(), "explorer": explorers.markup("query_key_value")}
    return render("front.html", pages=pages, ways=WAYS, root="./", **moving)


def write(path: Path, content: str | bytes) -> None:
    """Write a file, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def write_page(folder: Path, name: str, page: str) -> None:
    """Write a page. Its policy forbids inline scripts: each of them, as heroes have, becomes a file."""

    def moved(found: re.Match) -> str:
        path = f"scripts/{hashlib.sha256(found[1].encode()).hexdigest()[:12]}.js"
        write(folder / path, found[1])
        return f'<script src="{"../" if name else "./"}{path}"></script>'

    write(folder / name / "index.html", SCRIPT.sub(moved, page))


def write_judge(folder: Path) -> None:
    """Write the judge, if it can be had, and tell the pages where it is."""
    files = judge.files()
    for path, content in files.items():
        write(folder / path, content)
    at = next(iter(files), "").rpartition("/")[0]
    size = sum(len(content) for path, content in files.items() if not path.endswith("js"))
    templates().globals |= {"judge": f"{at}/" if at else "", "judge_size": size}
    if files:
        write(folder / "sw.js", judge.service(files))


def write_training(folder: Path) -> None:
    """Write what trains in a page, if it can be had, and tell the pages how much that is."""
    files = training.files()
    for path, content in files.items():
        write(folder / path, content)
    templates().globals |= {"training_size": sum(map(len, files.values()))}


def write_again(folder: Path) -> None:
    """Write what can be done again, and how many minutes each takes, of those that come back."""
    found = [each for rung in RUNGS for each in again(rung)]
    for kind, name, made in found:
        write(folder / f"{kind}s" / f"{name}.json", json.dumps(made, ensure_ascii=False))
    takes = {item: minutes(item) for kind, name, _ in found if (item := f"{kind} {name}") in that_come_back()}
    write(folder / "minutes.json", json.dumps(takes))


def build(folder: Path) -> None:
    """Build the site into `folder`, in place of what is there."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(HERE / "static", folder / "static")
    for css in (folder / "static").glob("*.css"):
        css.write_text(coloured(css.read_text(encoding="utf-8")), encoding="utf-8")
    write(folder / "static" / "question.css", questions.CSS)
    write(folder / "static" / "fill.css", fills.CSS)
    write(folder / "static" / "fill.js", fills.SCRIPT)
    explorers.write(folder / "explorers")
    (folder / "static" / "all.css").write_text(
        "\n".join((folder / path).read_text(encoding="utf-8") for path in SHEETS), encoding="utf-8"
    )
    write_judge(folder)
    write_training(folder)
    pages = [Page(rung) for rung in RUNGS]
    for page in pages:
        name = page.rung.name
        write_page(folder, name, page.html())
        for path, content in page.files.items():
            write(folder / path, content)
        notebook = clean(nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4))
        write(folder / name / f"{name}.ipynb", nbformat.writes(notebook))
    write_page(folder, "practice", practice(RUNGS))
    write_page(folder, "teach", teach(RUNGS))
    write_page(folder, "review", render("review.html", root="../"))
    write_again(folder / "again")
    write_page(folder, "", front(pages))
    wheel = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder]
    subprocess.run(wheel, cwd=ROOT, check=True, capture_output=True)
    subprocess.run([sys.executable, "-m", "pagefind", "--site", folder, "--silent"], check=True)


if __name__ == "__main__":
    build(ROOT / "site")
