"""What must hold for every notebook besides its outputs (nbval compares those), and for what builds them."""

import ast
import copy
import json
import re
import tomllib
from functools import cache
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import build
import nbformat
import pytest
import torch
from cells import calls_in, run, tagged
from IPython.core.inputtransformer2 import TransformerManager
from markdown_it import MarkdownIt
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode

from attention_course.examine.planted import BUGS, ONE_FILE, plant
from attention_course.gpt import GPT, GPTConfig
from attention_course.ladder import RUNGS, main_path
from attention_course.plots import Heatmap, picture

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
BY_NAME = {rung.name: rung for rung in RUNGS}
NAMES = list(BY_NAME)


@cache
def read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


@pytest.fixture(params=NAMES)
def path(request) -> Path:
    return NOTEBOOKS / f"{request.param}.ipynb"


def cells(path: Path, cell_type: str) -> list[NotebookNode]:
    return [cell for cell in read(path).cells if cell.cell_type == cell_type]


def has_tag(cell: NotebookNode, *tags: str) -> bool:
    return not {*tags}.isdisjoint(cell.metadata.get("tags", []))


def outputs(path: Path) -> list[NotebookNode]:
    return [output for cell in cells(path, "code") for output in cell.outputs]


def rendered(path: Path) -> list[str]:
    """All HTML that a reader gets to see: from the prose, and as output."""
    math = re.compile(r"\$\$.*?\$\$|\$[^$\n]+\$", re.S)  # its brackets are no links
    prose = [markdown().render(math.sub("math", cell.source)) for cell in cells(path, "markdown")]
    return prose + [
        output.data["text/html"] for output in outputs(path) if "text/html" in output.get("data", {})
    ]


def markdown() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": True}).enable("table")


# The file and its source


def test_source_and_notebook_agree(path, tmp_path):
    copy = tmp_path / path.name
    copy.write_bytes(path.read_bytes())
    build.reword(build.read(BY_NAME[path.stem]), copy)
    assert copy.read_text() == path.read_text(), "the notebook is older than its source: make notebooks"


def test_a_heading_that_folds_is_a_cell_of_its_own_and_comes_folded(path):
    for cell in cells(path, "markdown"):
        folds = [line for line in cell.source.splitlines() if build.MORE.match(line)]
        assert folds in ([], [cell.source])
        assert cell.metadata.get("jp-MarkdownHeadingCollapsed", False) == bool(folds)


def test_a_fold_ends_where_a_heading_of_its_level_or_higher_begins():
    source = "# %% [markdown]\n# ## A\n# ### More: b\n# c\n# #### d\n# ## E\n# f\n"
    made = [cell.source for cell in build.notebook_of(source).cells]
    assert made == ["## A", "### More: b", "c\n#### d", "## E\nf"]
    assert main_path(source) == "# %% [markdown]\n# ## A\n# ## E\n# f"


def test_each_rung_is_one_step_from_all_others(path):
    (line,) = [line for line in read(path).cells[0].source.splitlines() if "▶" in line]
    assert line == build.navigation(BY_NAME[path.stem])
    linked = set(re.findall(r"\]\((\w+)\.ipynb\)", line))
    assert linked == set(NAMES) - {path.stem}
    assert line.count("**") == 2


def test_each_rung_ends_with_the_way_on(path):
    *_, line = read(path).cells[-1].source.splitlines()
    assert line == build.neighbours(BY_NAME[path.stem])
    at = NAMES.index(path.stem)
    around = NAMES[max(0, at - 1) : at] + NAMES[at + 1 : at + 2]
    assert re.findall(r"\]\((\w+)\.ipynb\)", line) == around


def test_the_build_has_put_something_in_the_place_of_each_mark(path):
    assert not [mark for cell in cells(path, "markdown") for mark in build.MARKS if mark in cell.source]


def test_each_rung_opens_with_a_hero_and_its_drawing(path):
    first = next(cell for cell in read(path).cells if cell.cell_type == "code")
    assert {"hero", "folded"} <= set(first.metadata.tags)
    assert "attention-hero" in first.outputs[0].data["text/html"]
    drawing = f"(images/transformer_{BY_NAME[path.stem].stem}.svg)"
    assert any(drawing in cell.source for cell in cells(path, "markdown"))


def test_every_cell_has_a_purpose_and_every_code_cell_was_executed(path):
    assert all(cell.source.strip() for cell in read(path).cells), "an empty cell"
    counts = [cell.execution_count for cell in cells(path, "code")]
    assert counts == list(range(1, len(counts) + 1))


def test_no_error_and_no_warning_is_stored(path):
    assert not [output for output in outputs(path) if output.output_type == "error"]
    assert not [output.text for output in outputs(path) if output.get("name") == "stderr"]


def test_small_enough_to_show_on_the_web(path):
    assert path.stat().st_size < 2**20


# What is folded, and how wide the rest is


@cache
def source_of(path: Path) -> list[NotebookNode]:
    return build.cells_of(build.read(BY_NAME[path.stem]))


def tree_of(code: str) -> ast.Module:
    return ast.parse(TransformerManager().transform_cell(code))


PLUMBING = {"ask", "explore", "picture", "Picture", "torch.testing.assert_close"}


def is_plumbing(node: ast.stmt) -> bool:
    """Does a statement only assert, ask or draw?"""
    if isinstance(node, ast.For):
        return all(map(is_plumbing, node.body))
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return ast.unparse(node.value.func) in PLUMBING
    return isinstance(node, ast.Assert)


def is_folded_as_it_should_be(cell: NotebookNode) -> bool:
    """Is a cell of plumbing folded? Not where the assertion is the lesson, or the proof of the rung."""
    return has_tag(cell, "folded", "lesson", "proof") or not all(map(is_plumbing, tree_of(cell.source).body))


def test_plumbing_is_folded(path):
    for cell in source_of(path):
        assert cell.cell_type == "markdown" or is_folded_as_it_should_be(cell), cell.source


def test_what_is_plumbing():
    def cell(code: str, *tags: str) -> NotebookNode:
        return nbformat.v4.new_code_cell(code, metadata={"tags": tags})

    drawn = 'picture(Heatmap("weights", w), alt="A triangle.")'
    for plumbing in (
        drawn,
        'ask("crop")',
        "assert x > 0",
        f"for w in tables:\n    {drawn}\n    assert w.any()",
    ):
        assert not is_folded_as_it_should_be(cell(plumbing))
        assert is_folded_as_it_should_be(cell(plumbing, "folded"))
    assert is_folded_as_it_should_be(cell("torch.testing.assert_close(a, b)", "lesson"))
    for shown in ("x.shape", "x = 1\nassert x", f"w = x.mean()\n{drawn}", "def f(x):\n    return x"):
        assert is_folded_as_it_should_be(cell(shown))


def test_a_folded_cell_says_in_its_first_line_what_is_there(path):
    for cell in source_of(path):
        if has_tag(cell, "folded"):
            assert re.match(r"# [A-Z]\w+.*\n[^#\n]", cell.source), cell.source


def test_no_screen_is_all_folded(path):
    """Every third cell in a row has prose, or code to read, or something to do."""
    for three in zip(*(source_of(path)[start:] for start in range(3)), strict=False):
        folded = [cell for cell in three if has_tag(cell, "folded") and not calls_in(cell.source)]
        assert len(folded) < 3, [cell.source.partition("\n")[0] for cell in folded]


def test_code_fits_a_narrow_window(path):
    width = tomllib.loads((ROOT / "tools" / "notebook.toml").read_text())["line-length"]
    for cell in source_of(path):
        if cell.cell_type == "code":
            code = re.sub(r'""".*?"""', "", cell.source, flags=re.S)
            assert max(map(len, code.splitlines())) <= width, cell.source


# The code


def definitions(code: str) -> list[ast.FunctionDef | ast.ClassDef]:
    return [node for node in tree_of(code).body if isinstance(node, ast.FunctionDef | ast.ClassDef)]


class Plain(ast.NodeTransformer):
    """Drop what a notebook may leave out: docstrings, annotations, the checks of the input at the top.

    And the cache: rungs 7 and 8 have none, and rung 9 adds it.
    """

    def visit_ClassDef(self, node):
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:]
        while node.body and ast.unparse(node.body[0]).startswith("check_"):
            node.body = node.body[1:]
        node.body = node.body or [ast.Pass()]
        return self.generic_visit(node)

    def visit_FunctionDef(self, node):
        node.returns = None
        return self.visit_ClassDef(node)

    def visit_arg(self, node):
        node.annotation = None
        return node

    def visit_arguments(self, node):
        if node.defaults and node.args[-1].arg == "cache":
            node.args.pop()
            node.defaults.pop()
        return self.generic_visit(node)

    def visit_If(self, node):
        return None if ast.unparse(node.test) == "cache is not None" else self.generic_visit(node)

    def visit_AnnAssign(self, node):
        return node.value and ast.Assign(targets=[node.target], value=node.value, lineno=node.lineno)


def plain(node: ast.AST) -> str:
    return ast.unparse(Plain().visit(copy.deepcopy(node)))


@cache
def package() -> dict[str, str]:
    modules = sorted((ROOT / "attention_course").glob("*.py"))
    return {node.name: plain(node) for module in modules for node in definitions(module.read_text())}


def test_what_the_package_also_has_is_the_same_there(path):
    for cell in cells(path, "code"):
        for node in definitions(cell.source):
            if node.name in package():
                assert plain(node) == package()[node.name], f"{node.name} has drifted from the package"


def test_what_an_exercise_judges_with_is_the_same_in_its_notebook(path):
    module = BY_NAME[path.stem].folder / "exercises.py"
    functions = [node for node in definitions(module.read_text()) if isinstance(node, ast.FunctionDef)]
    ours = {node.name: plain(node) for node in functions}
    for cell in cells(path, "code"):
        for node in definitions(cell.source):
            assert plain(node) == ours.get(node.name, plain(node)), f"{node.name} has drifted"


def test_progress_bars_are_stored_without_times_and_without_a_dead_widget():
    code = [cell for name in NAMES for cell in cells(NOTEBOOKS / f"{name}.ipynb", "code")]
    bars = [output for cell in code if "tqdm(" in cell.source for output in cell.outputs]
    assert bars
    for bar in bars:
        assert set(bar["data"]) == {"text/plain"}
        assert not re.search(r"\d|it/s|not found", bar["data"]["text/plain"])


def test_only_docstrings_annotations_and_the_input_check_may_differ():
    (full,) = definitions(
        'def f(x: int) -> int:\n    "Doc."\n    check_tokens(x, "f")\n    y: int = x\n    return y'
    )
    (short,) = definitions("def f(x):\n    y = x\n    return y")
    (other,) = definitions("def f(x):\n    y = x + 1\n    return y")
    (later,) = definitions("def f(x):\n    y = x\n    check_tokens(y, 'f')\n    return y")
    assert plain(full) == plain(short) != plain(other)
    assert plain(later) != plain(short)
    assert "causal_mask" in package(), "the package's definitions are not found"


def test_no_run_opens_the_network(path):
    for cell in cells(path, "code"):
        assert not re.search(
            r"https?://|urlopen|urlretrieve|requests\.|from_pretrained|torch\.hub", cell.source
        )
        assert not re.search(r"^\s*(!|%%?(pip|conda|bash|sh|system)\b)", cell.source, re.M), cell.source
        assert not re.search(r"\b(pip|conda) install\b|\b(wget|curl) ", cell.source)
    for html in rendered(path):
        loads = r"""<[^>]+\bsrc\s*=\s*["']?(https?:)?//|<link\b|@import\b|url\(["']?(https?:)?//"""
        assert not re.search(loads, html), "the page itself would load something"


def test_no_absolute_path(path):
    shown = [cell.source for cell in read(path).cells]
    for output in outputs(path):
        texts = {mime: text for mime, text in output.get("data", {}).items() if not mime.startswith("image/")}
        shown.append(output.get("text", "") + json.dumps(texts))
    for text in shown:
        assert str(ROOT) not in text
        assert not re.findall(
            r"(?<![\w.:/~-])/(?:home|root|Users|tmp|usr|opt|var|mnt)/\w+|\b[A-Z]:\\\w+", text
        )


# Pictures and links


SHOWN = {"ask", "explore", "fill", "hero", "picture", "Picture", "warm_up"}


def test_what_is_to_be_seen_is_the_last_line_of_its_cell(path):
    """No other line of a cell shows itself: a picture with an assertion below it is never seen."""
    for cell in source_of(path):
        if cell.cell_type == "code":
            for node in tree_of(cell.source).body[:-1]:
                if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                    assert ast.unparse(node.value.func) not in SHOWN, cell.source


def test_every_picture_has_alt_text(path):
    for output in outputs(path):
        for mime in output.get("data", {}):
            if mime.startswith("image/"):
                assert output.metadata.get(mime, {}).get("alt", "").strip(), "a picture without metadata alt"
    for html in rendered(path):
        for image in re.findall(r"<img\b[^>]*>", html):
            assert re.search(r"""\balt\s*=\s*(["'])\s*[^"'\s]""", image), image[:200]


def anchors(path: Path) -> set[str]:
    """The ids that JupyterLab gives to headings: their text, with - for spaces."""
    found = set()
    for cell in cells(path, "markdown"):
        tokens = markdown().parse(cell.source)
        for opening, inline in pairwise(tokens):
            if opening.type == "heading_open":
                text = "".join(child.content for child in inline.children)
                found.add(text.replace(" ", "-"))
    return found


def test_every_internal_link_leads_somewhere(path):
    for html in rendered(path):
        for target in re.findall(r"""<(?:a|img)\b[^>]*?\b(?:href|src)\s*=\s*["']([^"']*)""", html):
            if re.match(r"(https?|mailto|data):", target):
                continue
            file, _, anchor = unquote(target.replace("&amp;", "&")).partition("#")
            goal = (path.parent / file).resolve() if file else path
            assert goal.exists(), f"{target}: no such file"
            assert goal.is_relative_to(ROOT), f"{target}: outside of the course"
            if anchor and goal.suffix == ".ipynb":
                assert anchor in anchors(goal), f"{target}: no such heading"


# What a learner does with them


@pytest.mark.parametrize("name", ["09_a_real_model", "10_looking_inside"])
def test_without_the_real_model_the_rest_runs(name, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    notebook = build.notebook_of(build.read(BY_NAME[name]))
    build.execute(notebook, NOTEBOOKS)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    (fetching,) = [cell for cell in code if tagged(cell, "name") == "fetch"]
    assert "SmolLM2 could not be fetched" in fetching.outputs[-1].text
    needing = [cell for cell in code if cell.source.startswith("# With SmolLM2: ")]
    assert len(needing) > 20
    for cell in needing:
        said = "".join(output.text for output in cell.outputs)
        assert said == f"Skipped. {cell.source.splitlines()[0][2:]}\n"


# The tool that builds them

TINY = """# %% [markdown]
# # Title

# %% tags=["keep"]
print(1)
print(2)

# %% tags=["folded"]
# A slider
import ipywidgets
ipywidgets.IntSlider()

# %%
print(1)
print(2)
"""


def ids(source: str) -> list[str]:
    return [cell.id for cell in build.cells_of(source)]


def test_a_cell_keeps_its_id_until_it_is_edited():
    assert ids(TINY) == ids(TINY)
    assert len(set(ids(TINY))) == 4
    edited = ids(TINY.replace("Title", "Another title"))
    assert edited[0] != ids(TINY)[0]
    assert edited[1:] == ids(TINY)[1:]
    assert ids("# %%\nnew = 1\n\n" + TINY)[1:] == ids(TINY)


def test_two_blank_lines_become_one():
    (cell,) = build.cells_of("# %%\ndef one():\n    return 1\n\n\none()\n")
    assert cell.source == "def one():\n    return 1\n\none()"


def test_building_twice_gives_the_same_clean_file(tmp_path):
    files = []
    for name in ("once.ipynb", "twice.ipynb"):
        build.build(TINY, tmp_path / name)
        files.append((tmp_path / name).read_text())
    assert files[0] == files[1]
    made = read(tmp_path / "once.ipynb")
    assert set(made.metadata) == {"kernelspec"}
    title, printed, slider, _ = made.cells
    assert title.cell_type == "markdown"
    assert printed.metadata == {"tags": ["keep"]}
    assert slider.metadata == {"tags": ["folded"], "jupyter": {"source_hidden": True}}
    assert [output.text for output in printed.outputs] == ["1\n2\n"]
    assert set(slider.outputs[0].data) == {"text/plain"}, "a widget without its kernel shows an error"


def test_what_differs_from_run_to_run_is_stripped():
    stream = {"output_type": "stream", "name": "stdout"}
    widget = {"output_type": "display_data", "metadata": {}, "data": {build.WIDGET: {}, "text/html": "x"}}
    made = nbformat.v4.new_notebook(
        metadata={"language_info": {"name": "python", "version": "3.11"}, "widgets": {}, "jupytext": {}}
    )
    made.cells = [nbformat.v4.new_code_cell("1", metadata={"execution": {"shell.execute_reply": "now"}})]
    made.cells[0].outputs = [
        nbformat.from_dict(each)
        for each in [stream | {"text": "a"}, stream | {"text": "b"}, widget, stream | {"text": "c"}]
    ]
    build.strip(made)
    assert made.metadata == {"kernelspec": build.KERNEL}
    assert made.cells[0].metadata == {}
    assert [output.get("text") for output in made.cells[0].outputs] == ["ab", None, "c"]
    assert set(made.cells[0].outputs[1].data) == {"text/html"}


def test_a_failing_cell_leaves_the_old_notebook_untouched(tmp_path):
    (tmp_path / "tiny.ipynb").write_text("old")
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        build.build("# %%\nprint(1)\n\n# %%\n1 / 0\n", tmp_path / "tiny.ipynb")
    assert (tmp_path / "tiny.ipynb").read_text() == "old"


def test_whichever_bugs_the_last_rung_draws_their_tables_can_be_shown():
    models = [plant(bug) for bug in BUGS.values() if bug.file == ONE_FILE and bug.finding]
    for start in range(0, len(models), 24):
        given = {"torch": torch, "GPT": GPT, "GPTConfig": GPTConfig, "Heatmap": Heatmap, "picture": picture}
        run("an_empty_page", "tables", broken=models[start : start + 24], **given)


def test_a_change_of_prose_keeps_outputs_and_numbers_and_one_of_code_has_to_run(tmp_path):
    notebook = tmp_path / "a.ipynb"
    source = "# %%\nx = 1\nx\n\n# %% [markdown]\n# Old: {{2 * x:.1f}}.\n\n# %%\nx = 3\n"
    build.build(source, notebook)
    before = read(notebook).cells
    assert before[1].source == "Old: 2.0."
    build.reword(source.replace("Old", "New"), notebook)
    code, prose, _ = nbformat.read(notebook, as_version=4).cells
    assert (prose.source, code) == ("New: 2.0.", before[0])
    for changed in (source.replace("x\n", "x + 1\n", 1), source.replace("2 *", "3 *")):
        with pytest.raises(SystemExit, match="has to run"):
            build.reword(changed, notebook)
    with pytest.raises(SystemExit, match=r"\{\{2 \* y:.1f\}\} has no value"):
        build.build(source.replace("2 * x", "2 * y"), notebook)
