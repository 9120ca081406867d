"""Exercises in a page: its verdicts are those of notebooks, whatever an answer does, also while offline."""

import gzip
import io
import json
import os
import re
import subprocess
import sys
import zipfile
from base64 import b64encode
from pathlib import Path

import answers
import pytest
import verdicts
from playwright.sync_api import expect
from website.judge import NPM, registry

from attention_course.exercises import EXERCISES
from attention_course.exercises.exercise import source_of, unwrapped
from attention_course.progress import read

ROOT = Path(__file__).resolve().parents[3]
LONG = 180_000  # milliseconds until Python has come and started, on a machine that does much else


@pytest.fixture(scope="module")
def judge(site) -> Path:
    """Return the folder of the judge."""
    if found := [path.parent for path in site.glob("judge/*/worker.js")]:
        return found[0]
    reason = "The site has no judge: Pyodide could not be fetched."
    if os.environ.get("CI") and registry() != NPM:
        pytest.fail(f"{reason} In CI no test of it may be skipped.")
    pytest.skip(reason)


# Parity

LOAD = """async ([base, answers]) => {
    const { loadPyodide } = await import(base + "pyodide.mjs");
    const lock = await (await fetch(base + "pyodide-lock.json")).text();
    window.python = await loadPyodide({ indexURL: base, lockFileContents: lock });
    const course = await (await fetch(base + "course.zip")).arrayBuffer();
    python.unpackArchive(course, "zip", { extractDir: "/course" });
    const bytes = Uint8Array.from(atob(answers), (letter) => letter.charCodeAt(0));
    python.unpackArchive(bytes, "zip", { extractDir: "/course" });
    python.runPython(`
import json, sys
sys.path.insert(0, "/course")
import absent
absent.install()
import verdicts
exercises = verdicts.judged_exercises()
`);
    return python.globals.get("exercises").toJs();
}"""

JUDGE = "([name, every]) => python.runPython(`json.dumps(verdicts.verdicts('${name}', ${every}))`)"


def known_answers() -> str:
    """Return tests/answers and the code that tries them, as a zip file in letters."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as into:
        for path in (ROOT / "tests/verdicts.py", *Path(answers.__file__).parent.glob("*.py")):
            into.write(path, path.relative_to(ROOT / "tests"))
    return b64encode(packed.getvalue()).decode()


@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.thorough)])
def test_verdicts_are_those_under_pytorch(judge, chromium, address, every):
    """On each reference, each right answer and a sample of the mistakes; or on all that is known."""
    script = "import runpy, sys; runpy.run_path(sys.argv[2], run_name='__main__')"
    command = [sys.executable, "-W", "ignore", "-c", script, str(every), ROOT / "tests/verdicts.py"]
    path = {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "tests"))), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=os.environ | path, stdout=subprocess.PIPE) as other:
        context = chromium.new_context(bypass_csp=True)
        context.route(
            "**/pyodide.asm.wasm",
            lambda route: route.fulfill(
                body=gzip.decompress((judge / "pyodide.asm.wasm.packed").read_bytes()),
                content_type="application/wasm",
            ),
        )
        page = context.new_page()
        page.goto(address)
        base, page_says = f"{address}judge/{judge.name}/", {}
        for name in page.evaluate(LOAD, [base, known_answers()]):
            page_says |= json.loads(page.evaluate(JUDGE, [name, every]))
        context.close()
        native = json.loads(other.communicate()[0])
    assert len(native) > (1400 if every == 1 else 250)
    assert verdicts.differing(native, page_says) == {}


# As a reader


def cell_of(page, name):
    return page.locator(f".cell:has(> .output > [data-exercise={name}])")


def answer(name: str, function: str) -> str:
    """Return the reference of an exercise as a reader might write it."""
    head, body = source_of(unwrapped(EXERCISES[name].reference))
    body = re.sub(r"^    check_.*\n", "", body, flags=re.M)  # the package's own check of its input
    return f'{head.replace(name, function, 1)}{body}\ncheck("{name}", {function})\n'


def check(page, name, code) -> str:
    """Write code, press Check, and return what is said when all is done."""
    cell = cell_of(page, name)
    cell.get_by_role("textbox").fill(code)
    cell.get_by_role("button", name="Check").click()
    expect(cell.get_by_role("button", name="Check")).to_be_enabled(timeout=LONG)
    return cell.locator(".verdict").inner_text()


FIRST = {
    "01_bag_of_words/": "causal_mean_loop",
    "04_query_key_value/": "attention_weights",
    "07_multi_head/": "split_heads",
    "08_bigram_to_gpt/": "get_batch",
}


@pytest.mark.parametrize("path", FIRST)
def test_an_exercise_is_solved_on_a_phone(judge, visit, path):
    page, name = visit(path, width=360), FIRST[path]
    cell_of(page, name).get_by_role("textbox").focus()
    page.wait_for_load_state("networkidle")
    loaded = page.evaluate("performance.getEntriesByType('resource').map(({ name }) => name)")
    assert not [file for file in loaded if "/judge/" in file]
    assert "✓ passed on" in check(page, name, answer(name, "mine"))
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    cell = cell_of(page, name)
    expect(cell.locator(".mark")).to_have_text("✓ solved")
    cell.get_by_text("Your answer (−) and ours (+)").click()
    expect(cell.locator(".difference .ours").first).to_be_visible()


def of(*lines: str) -> str:
    body = "".join(f"    {line}\n" for line in lines)
    return f'def mine(x):\n{body}check("causal_mean_loop", mine)\n'


MANY_LINES = of("for i in range(10**6): print(i)", "return x")
BAD = {
    "os._exit": (of("import os", "os._exit(0)"), "ended the Python that it ran in"),
    "an endless loop": (of("while True: pass"), "still running after 10 seconds"),
    "a gigabyte": (of("y = [0] * 2**28", "return x"), "not yet"),
    "a recursion": (of("return mine(x)"), "not yet"),
    "the module of the reference": (
        of("from attention_course.rungs.bag_of_words import exercises"),
        "asks for the course's own solution",
    ),
    "the reference itself": (
        of("from attention_course.averaging import causal_mean_loop as f", "return f(x)"),
        "asks for the course's own solution",
    ),
    "its text": (
        of("import inspect, attention_course.averaging as a", "raise ValueError(inspect.getsource(a))"),
        "not yet",
    ),
    "what check knows": (
        of('f = check.__globals__["EXERCISES"]', 'raise ValueError(check.__globals__["source_of"](f))'),
        "not yet",
    ),
    "all objects": (of("import gc", "return gc.get_objects()"), "asks for the course's own solution"),
    "what the page lacks": (of("return torch.fft.fft(x)"), "torch.fft works in the notebook"),
    "what nobody has": (of("return torch.maen(x)"), "has no attribute 'maen'"),
    "no Python": ("def mine(x)\n", "Line 1"),
    "no check": ("mine = 5\n", 'check("causal_mean_loop", my_causal_mean)'),
}
BREAKS = {"os._exit", "an endless loop", "a gigabyte", "a recursion"}  # the Python that it runs in


def test_whatever_an_answer_does_ends_in_a_sentence(judge, visit):
    page, good = visit("01_bag_of_words/"), answer("causal_mean_loop", "mine")
    for what, (code, said) in BAD.items():
        found = check(page, "causal_mean_loop", code)
        assert said in found, what
        assert "torch.zeros_like(x)" not in found, what
        if what in BREAKS:
            assert "✓ passed" in check(page, "causal_mean_loop", good), what
    assert "✓ passed" in check(page, "causal_mean_loop", good)
    printed = cell_of(page, "causal_mean_loop").locator("pre.text")
    assert "not yet" in check(page, "causal_mean_loop", MANY_LINES)
    expect(printed).to_contain_text("The rest is not shown.")
    assert len(printed.inner_text()) < 11_000


def test_the_editor_indents_and_lets_the_keyboard_leave(judge, visit):
    page = visit("01_bag_of_words/")
    editor, press = cell_of(page, "causal_mean_loop").get_by_role("textbox"), page.keyboard.press
    editor.fill("")
    editor.press_sequentially("def f(x):\nfor t in x:\na\nb")
    press("Backspace")
    press("Backspace")
    editor.press_sequentially("c")
    press("Shift+Tab")
    press("Home")
    press("Tab")
    assert editor.input_value() == "def f(x):\n    for t in x:\n        a\n    c"
    press("Escape")
    press("Tab")
    expect(page.get_by_role("button", name="Check").first).to_be_focused()
    later = visit("01_bag_of_words/")
    kept = cell_of(later, "causal_mean_loop").get_by_role("textbox")
    assert kept.input_value() == editor.input_value()
    cell_of(later, "causal_mean_loop").get_by_role("button", name="Reset").click()
    assert "NotImplementedError" in kept.input_value()


def test_practice_counts_and_writes_and_reads_the_file_of_the_notebooks(judge, visit, tmp_path):
    page = visit("practice/")
    expect(page.locator("#solved")).to_have_text(re.compile(r"^0 of \d+ solved"))
    page.locator("[data-task=shift_matrix] > summary").click()
    check(page, "shift_matrix", 'def mine(T):\n    return torch.eye(T)\ncheck("shift_matrix", mine)\n')
    check(page, "shift_matrix", answer("shift_matrix", "mine"))
    expect(page.locator("#solved")).to_have_text(re.compile(r"^1 of"))
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Save progress.json").click()
    waiting.value.save_as(tmp_path / "progress.json")
    record = read(tmp_path / "progress.json")
    tried = record.exercises["shift_matrix"]
    assert (tried.tries, tried.passed, len(tried.mistakes)) == (2, True, 1)
    page.get_by_role("button", name="Forget my answers").click()
    expect(page.locator("#solved")).to_have_text(re.compile(r"^0 of"))
    page.locator("#import").set_input_files(tmp_path / "progress.json")
    expect(page.locator("#solved")).to_have_text(re.compile(r"^1 of"))


def test_after_one_check_it_works_without_a_network(judge, visit):
    page, good = visit("02_tril_matmul/"), answer("shift_matrix", "mine")
    check(page, "shift_matrix", good)
    ready = """async (name) => {
        const kept = await caches.open("attention");
        while (!(await kept.match(name))) await new Promise((ends) => setTimeout(ends, 100));
    }"""
    for name in [path.name for path in judge.iterdir()]:
        page.evaluate(ready, f"../judge/{judge.name}/{name}")
    page.evaluate(ready, "./")
    page.context.set_offline(True)
    page.reload()
    with page.expect_worker():  # Python starts when a reader begins to write, once the browser has it
        cell_of(page, "shift_matrix").get_by_role("textbox").focus()
    assert "✓ passed" in check(page, "shift_matrix", good)
