"""The site as files: every cell of every notebook arrives in it, and every link in it leads somewhere."""

import gzip
import hashlib
import html
import re
import tarfile
from base64 import b64encode
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import pytest
from website import judge
from website.pages import render

from attention_course.exercises import EXERCISES
from attention_course.ladder import MORE, RUNGS
from attention_course.questions import QUESTIONS

pytestmark = pytest.mark.slow
NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
TEXT = (".html", ".css", ".js", ".json", ".svg")


class Reader(HTMLParser):
    """What stands in a page: its elements with their attributes, and the text of each cell."""

    def __init__(self, path: Path):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: dict[str, str] = {}
        self.inert = 0  # how many templates are open
        self.visible = ""
        self._cell = ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        given = {name: value or "" for name, value in attributes}
        self.elements.append((tag, given))
        self._cell = given.get("data-cell", self._cell)
        self.texts.setdefault(self._cell, "")
        self.inert += tag in ("template", "script", "style")

    def handle_endtag(self, tag):
        self.inert -= tag in ("template", "script", "style")

    def handle_data(self, data):
        self.texts[self._cell] = self.texts.get(self._cell, "") + data
        if not self.inert:
            self.visible += data

    def all(self, attribute: str) -> list[str]:
        return [given[attribute] for _, given in self.elements if attribute in given]


@cache
def read(path: Path) -> Reader:
    return Reader(path)


@pytest.fixture(params=RUNGS, ids=lambda rung: rung.name)
def rung(request):
    return request.param


@pytest.fixture
def page(site, rung) -> Reader:
    return read(site / rung.name / "index.html")


@pytest.fixture
def notebook(rung):
    return nbformat.read(NOTEBOOKS / f"{rung.name}.ipynb", as_version=4)


def squeezed(text: str) -> str:
    return "".join(text.split())


def test_every_cell_arrives_in_its_place(page, notebook):
    assert page.all("data-cell") == [cell.id for cell in notebook.cells]


def test_all_code_arrives_and_what_it_printed(page, notebook):
    for cell in notebook.cells:
        if cell.cell_type != "code" or re.search(r"^(ask|fill|hero|warm_up)\(", cell.source, re.M):
            continue
        printed = [
            output.data["text/plain"] if "data" in output else output.text
            for output in cell.outputs
            if "text/html" not in output.get("data", {}) and output.output_type != "display_data"
        ]
        for text in (cell.source, *printed):
            assert squeezed(text) in squeezed(page.texts[cell.id])


def test_what_a_reader_is_to_change_leads_to_the_notebook(page, notebook):
    """Unless the page itself has something to do there."""
    asked = [cell for cell in notebook.cells if "do" in cell.metadata.get("tags", [])]
    here = re.compile(r"^(ask|fill|check|explore)\(", re.M)
    assert asked
    for cell in asked:
        assert here.search(cell.source) or "in the notebook" in page.texts[cell.id], cell.source


def test_what_is_veiled_until_a_question_is_answered_is_a_result(site, rung):
    text = (site / rung.name / "index.html").read_text(encoding="utf-8")
    assert not re.search(r'<div class="output">\s*(</div>|<p class="elsewhere">)', text)


def test_all_prose_arrives(page, notebook):
    """Word by word, without formulas, marks of Markdown, and links between rungs."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            source = re.sub(r"^.*<!--notebook-->$", " ", cell.source, flags=re.M)
            source = re.sub(
                r"\$\$.*?\$\$|\$[^$\n]+\$|<!--.*?-->|!?\[[^]]*\]\([^)]*\)", " ", source, flags=re.S
            )
            words = set(re.findall(r"\w{3,}", source))
            assert words <= set(re.findall(r"\w{3,}", page.texts[cell.id])), cell.source


def test_every_picture_arrives_with_its_alt_text(page, notebook):
    """Explorers draw theirs anew."""
    stored = [
        html.unescape(alt)
        for cell in notebook.cells
        if "explore(" not in cell.source
        for output in cell.get("outputs", [])
        for alt in re.findall(r'<img alt="([^"]*)"', output.get("data", {}).get("text/html", ""))
    ]
    drawn = [alt for cell in notebook.cells for alt in re.findall(r"!\[([^]]*)\]", cell.source)]
    alts = [given["alt"] for tag, given in page.elements if tag == "img" and given["alt"]]
    assert sorted(alts) == sorted(stored + drawn)


def test_formulas_are_mathml(page, notebook):
    prose = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    formulas = re.findall(r"\$\$.*?\$\$|\$[^$\n]+\$", "\n\n".join(prose), re.S)
    wrapped = [given for _, given in page.elements if given.get("class", "").startswith("math ")]
    assert len(wrapped) == len(formulas) <= len([tag for tag, _ in page.elements if tag == "math"])
    assert "\\" not in "".join(page.texts[cell.id] for cell in notebook.cells if "$" in cell.source)


def test_questions_and_exercises_are_there_and_no_answer_shows(page, notebook):
    code = "\n".join(cell.source for cell in notebook.cells)
    assert page.all("data-question") == re.findall(r'^ask\("(\w+)"', code, re.M)
    assert page.all("data-exercise") == re.findall(r'^check\("(\w+)"', code, re.M)
    for name in page.all("data-question"):
        for choice in QUESTIONS[name]["choices"]:
            assert squeezed(choice["text"].replace("`", "")) in squeezed(page.visible)
            assert squeezed(choice["explanation"].replace("`", "")) not in squeezed(page.visible)
    judged = page.all("data-given")
    assert len(judged) in (0, len([n for n in page.all("data-exercise") if not EXERCISES[n].judge]))
    for name in page.all("data-exercise"):
        for hint in EXERCISES[name].hints:
            assert squeezed(hint.replace("`", "")) in squeezed(page.visible)  # in <details>


def test_what_more_folds_is_folded(page, notebook):
    """A page has a part that opens for each such heading, which says what is in it."""
    headings = [cell.id for cell in notebook.cells if MORE.match(cell.source)]
    summaries = [
        given["data-cell"] for tag, given in page.elements if tag == "summary" and "data-cell" in given
    ]
    assert summaries == headings
    assert len([given for _, given in page.elements if given.get("class") == "more"]) == len(headings)


def test_folded_cells_say_what_is_there(page, notebook):
    folded = [
        cell.source.partition("\n")[0].lstrip("# ")
        for cell in notebook.cells
        if cell.metadata.get("jupyter") and not re.search(r"^(ask|fill|hero|warm_up)\(", cell.source, re.M)
    ]
    assert len([given for _, given in page.elements if given.get("class") == "fold"]) == len(folded)
    for line in folded:
        assert line in page.visible


def test_every_link_leads_somewhere(site):
    pages = sorted(site.glob("**/*.html"))
    assert len(pages) == len(RUNGS) + 4  # the front page, Practice, Review, and For teachers
    for path in pages:
        anchors = read(path).all("id")
        assert len(anchors) == len(set(anchors)), path
        links = read(path).all("href") + read(path).all("src")
        notebooks = [link for link in links if link.endswith(".ipynb") and not link.startswith("https:")]
        name = path.parent.name
        own = [f"../{name}/{name}.ipynb"] if name in [rung.name for rung in RUNGS] else notebooks
        assert notebooks == own, "to download"
        for link in links:
            parts = urlsplit(link)
            if parts.scheme:
                assert (parts.scheme, "href") == ("https", "href") or parts.scheme == "data", link
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert target.is_relative_to(site), f"{link} in {path} leads out of the site"
            target = target / "index.html" if target.is_dir() else target
            assert target.is_file(), f"{link} in {path}"
            if parts.fragment and target.suffix == ".html":
                assert unquote(parts.fragment) in read(target).all("id"), f"{link} in {path}"


def test_what_has_the_address_of_the_repository_leads_to_binder_and_colab():
    places = {"name": "02_tril_matmul", "root": "../"}
    known, unknown = (render("start.html", repository=at, **places) for at in ("someone/ladder", ""))
    for place in (
        "mybinder.org/v2/gh/someone/ladder/HEAD?urlpath=doc/tree/my_notebooks/02_tril_matmul.ipynb",
        "colab.research.google.com/github/someone/ladder/blob/HEAD/notebooks/02_tril_matmul.ipynb",
    ):
        assert f"https://{place}" in known
    assert "https:" not in unknown
    assert all('pip install "attention_course-' in page for page in (known, unknown))


def packed(path: Path) -> int:
    return len(gzip.compress(path.read_bytes())) if path.suffix in TEXT else path.stat().st_size


def test_site__is_small(site):
    """The limits of what a phone has to load, in bytes as a server sends them."""
    first = site / "01_bag_of_words/index.html"
    elements = read(first).elements
    loaded = {given["src"] for _, given in elements if given.get("src", "").endswith(".js")}
    loaded |= {given["href"] for tag, given in elements if tag == "link" and given["rel"] == "stylesheet"}
    files = {(first.parent / link).resolve() for link in loaded}
    assert packed(first) + sum(map(packed, files)) < 300_000
    downloads = (".whl", ".ipynb")  # for those who want the course itself
    python = [path for path in site.glob("judge/*/*") if path.is_file()]  # loaded at the first check
    assert sum(path.stat().st_size for path in python) < 12_000_000, "also of a server that packs nothing"
    training = [path for path in site.glob("train/**/*") if path.is_file()]  # loaded when a visitor trains
    assert sum(map(packed, training)) < 600_000
    files = [path for path in site.glob("**/*") if path.is_file() and path not in [*python, *training]]
    assert sum(packed(path) for path in files if path.suffix not in downloads) < 230_000 * len(RUNGS)
    assert sum(map(packed, files)) < 550_000 * len(RUNGS)


def test_without_npm_it_is_built_without_a_judge_and_says_what_to_do(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(judge.pooch, "os_cache", lambda _: tmp_path)
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", tmp_path.as_uri())
    assert judge.files() == {}
    said = capsys.readouterr().out
    assert f"{tmp_path.as_uri()}/pyodide/-/pyodide-" in said
    assert "$NPM_CONFIG_REGISTRY" in said


def test_what_npm_sends_has_to_be_what_was_pinned(monkeypatch, tmp_path, capsys):
    file = tmp_path / f"pyodide/-/pyodide-{judge.VERSION}.tgz"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"something else")
    monkeypatch.setattr(judge.pooch, "os_cache", lambda _: tmp_path / "kept")
    monkeypatch.setenv("npm_config_registry", tmp_path.as_uri())
    assert judge.files() == {}
    assert "its checksum is" in capsys.readouterr().out


def test_a_kept_file_that_is_damaged_is_fetched_again(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(judge.pooch, "os_cache", lambda _: tmp_path / "kept")
    monkeypatch.setenv("npm_config_registry", tmp_path.as_uri())
    sent, kept = tmp_path / "@of/one/-/one-1.tgz", tmp_path / "kept/one-1.tgz"
    for path in (sent, kept):
        path.parent.mkdir(parents=True)
    (tmp_path / "a").write_text("whole")
    with tarfile.open(sent, "w:gz") as packed:
        packed.add(tmp_path / "a", "package/a")
    kept.write_bytes(sent.read_bytes()[:-9])
    integrity = b64encode(hashlib.sha512(sent.read_bytes()).digest()).decode()
    for _ in range(2):  # the second time nothing is sent
        assert judge.package("@of/one", "1", integrity, ["a"], "it") == {"a": b"whole"}
        sent.unlink(missing_ok=True)
    assert judge.package("@of/one", "1", integrity, ["missing"], "it") == {}
    assert "The site is built without it" in capsys.readouterr().out


@pytest.mark.parametrize(
    "registry", ["http://ada:secret@127.0.0.1:no", "ada:secret@registry", "ftp:", "http://["]
)
def test_what_is_no_registry_gets_a_sentence_without_its_password(monkeypatch, tmp_path, capsys, registry):
    monkeypatch.setattr(judge.pooch, "os_cache", lambda _: tmp_path)
    monkeypatch.setenv("npm_config_registry", registry)
    assert judge.files() == {}
    said = capsys.readouterr().out
    assert "The site is built without" in said
    assert "secret" not in said


@pytest.mark.parametrize("line", [b"registry=https://a.b/c/", b"# \xff\n  registry = 'https://a.b/c' # ours"])
def test_the_registry_is_the_one_of_npmrc(monkeypatch, tmp_path, line):
    monkeypatch.setattr(judge.os, "environ", {})
    monkeypatch.setattr(judge.Path, "home", lambda: tmp_path)
    (tmp_path / ".npmrc").write_bytes(line)
    assert judge.registry() == "https://a.b/c"
