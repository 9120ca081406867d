"""Exercises in a page: its verdicts are those of notebooks, whatever an answer does, also while offline."""

import gzip
import http.server
import io
import json
import os
import re
import shutil
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


MANY_LINES = of("for _ in range(10**5): print(end='')", "for i in range(10**6): print(i)", "return x")
BAD = {
    "os._exit": (of("import os", "os._exit(0)"), "ended the Python that it ran in"),
    "an endless loop": (of("while True: pass"), "still running after 10 seconds"),
    "a gigabyte": (of("y = [0] * 2**28", "return x"), "not yet"),
    "a recursion": (of("return mine(x)"), "not yet"),
    "a stub": (of("..."), "press Check again"),
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
    "modules that import such": (
        f"import asyncio, gc, timeit\n{answer('causal_mean_loop', 'mine')}",
        "✓ passed",
    ),
    "all objects": (of("import gc", "return gc.get_objects()"), "not gc.get_objects"),
    "JavaScript": (of("import js", "return js.fetch()"), "not js.fetch"),
    "a loop of events": (
        of("import asyncio", "asyncio.run(asyncio.sleep(0))", "return x"),
        "not asyncio.run",
    ),
    "what the page lacks": (of("return torch.fft.fft(x)"), "not torch.fft"),
    "what nobody has": (of("return torch.maen(x)"), "has no attribute 'maen'"),
    "a closed file": (of("import os", "os.close(1)", "return x"), "cannot be judged"),
    "lines as the judge tells them": (
        of("import os", """while True: os.write(1, b'["call", ""]\\n["printed", "x"]\\n')"""),
        "still running after 10 seconds",
    ),
    "no Python": ("def mine(x)\n", "Line 1"),
    "no check": ("mine = 5\n", 'check("causal_mean_loop", my_causal_mean)'),
}
BREAKS = {  # the Python that it runs in
    *("os._exit", "an endless loop", "a gigabyte", "a recursion", "a closed file"),
    "lines as the judge tells them",
}


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
    assert printed.evaluate("(shown) => shown.childNodes.length") < 11_000


PAINTS = """
import sys
judge = sys._getframe(1).f_globals
judge["known"].clear()
judge["functions"].clear()
judge["Verdict"]._repr_html_ = lambda verdict: (
    '<p id="forget">✓ passed</p><label for="forget">here</label><a href="//other">there</a>'
    '<iframe srcdoc="<script src=../static/theme.js></script>"></iframe><svg><a href="//other">x</a></svg>'
)
"""


def test_what_an_answer_paints_can_be_read_and_does_nothing(judge, visit):
    page = visit("01_bag_of_words/")
    assert "✓ passed" in check(page, "causal_mean_loop", PAINTS + of("return x"))
    shown = cell_of(page, "causal_mean_loop").locator(".verdict")
    expect(shown).to_contain_text("here")
    assert shown.locator("label, iframe, a, svg, [id]").count() == 0


REACHES = """
import sys
frame, places = sys._getframe(), [vars(sys.stdout), *(vars(each) for each in sys.modules.values())]
while frame:
    places += [frame.f_locals, frame.f_globals]
    frame = frame.f_back
found = {id(each): each for place in places for each in list(place.values())}
for each in found.values():
    if type(each).__name__ == "JsProxy":
        for script in SCRIPTS:
            try:
                each.constructor(script)()
            except Exception:
                pass
raise ValueError("tried")
"""
WAYS_OUT = {
    "fetch": "fetch(OTHER + 'fetch', { mode: 'no-cors' })",
    "import": "import(OTHER + 'import')",
    "a text as code": "setTimeout(`fetch(OTHER + 'text')`)",
    "a request": "((to) => { to.open('GET', OTHER + 'request'); to.send(); })(new XMLHttpRequest())",
    "a socket": "new WebSocket(OTHER.replace('http', 'ws') + 'socket')",
    "what is kept": "caches.open('attention').then((kept) => kept.put(WORKER, new Response('worse')))",
}


def test_no_answer_reaches_another_host_or_what_the_browser_keeps(judge, chromium, address, serve, tmp_path):
    """By what Python holds of JavaScript; and by JavaScript in the worker, if it were to get that far."""
    asked = []

    class Ear(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            asked.append(self.path)

    other, good = f"{serve(tmp_path, Ear)}/", answer("causal_mean_loop", "mine")
    worker = f"{address}judge/{judge.name}/worker.js"
    with chromium.new_context() as context:
        page = context.new_page()
        page.goto(f"{address}01_bag_of_words/")
        assert "✓ passed" in check(page, "causal_mean_loop", good)
        page.evaluate(KEPT, worker)
        names = f"[self.OTHER, self.WORKER] = {json.dumps([other, worker])};"
        scripts = [f"{names} {way};" for way in WAYS_OUT.values()]
        said = check(page, "causal_mean_loop", f"SCRIPTS = {scripts!r}\n{REACHES}")
        assert "ValueError: tried" in said
        for script in scripts:
            page.workers[0].evaluate(f"() => {{ try {{ {script} }} catch {{}} }}")
        page.wait_for_timeout(500)  # for what was asked to arrive
        assert asked == []
        kept = page.evaluate("async (name) => (await caches.match(name)).text()", worker)
        assert kept == (judge / "worker.js").read_text(encoding="utf-8")
        assert "✓ passed" in check(page, "causal_mean_loop", good)


CHANGES = {  # what an answer changes in the Python that judges it
    "torch.isclose": "torch.isclose = lambda *a, **k: torch.ones(2, 2, dtype=torch.bool)",
    "torch.Tensor.mean": "torch.Tensor.mean = lambda self, *a, **k: torch.zeros(2, 3)",
    "attention_course.averaging.causal_mean_loop": (
        "import attention_course.averaging as a\na.causal_mean_loop = None"
    ),
    "len": "import builtins\nbuiltins.len = lambda of: 2",
    "torch.ops.isclose.__code__": "torch.isclose.__code__ = (lambda a, b, c, d, e: a == a).__code__",
    "torch.ops.isclose.__defaults__": "torch.isclose.__defaults__ = (1e9, 1e9, True)",
    "sys.modules.math": "import sys\nsys.modules['math'] = sys",
}


def test_what_an_answer_changes_neither_passes_nor_stays(judge, visit):
    page, wrong, good = visit("01_bag_of_words/"), of("return x * 0"), answer("causal_mean_loop", "mine")
    for place, change in CHANGES.items():
        found = check(page, "causal_mean_loop", f"{good}\n{change}\n" + 'check("causal_mean_loop", mine)')
        assert f"Your code changes {place}" in found
        assert "not yet: wrong values" in check(page, "causal_mean_loop", wrong), place
        assert "✓ passed" in check(page, "causal_mean_loop", good), place


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


def test_what_was_written_is_reset_only_when_the_reader_agrees_and_undo_brings_it_back(judge, visit):
    page, said = visit("01_bag_of_words/"), []
    cell, key = cell_of(page, "causal_mean_loop"), "attention-answer causal_mean_loop"
    editor, reset = cell.get_by_role("textbox"), cell.get_by_role("button", name="Reset")
    stub = editor.input_value()
    answer_with = ["dismiss"]

    def answered(asked):
        said.append(asked.message)
        getattr(asked, answer_with[-1])()

    page.on("dialog", answered)
    reset.click()
    assert said == [], "there is nothing to lose"
    editor.press("Control+a")
    editor.press_sequentially("def mine(x):\nreturn x")
    written = editor.input_value()
    reset.click()
    assert "What you wrote" in said[0]
    expect(editor).to_have_value(written)
    answer_with.append("accept")
    reset.click()
    expect(editor).to_have_value(stub)
    assert page.evaluate("(key) => localStorage.getItem(key)", key) in (None, "[]")
    editor.press("Control+z")
    expect(editor).to_have_value(written)
    page.reload()
    expect(editor).to_have_value(written)


def test_two_tabs_show_what_was_written_last_in_either(judge, visit):
    rung, practice = visit("01_bag_of_words/"), visit("practice/")
    task = practice.locator("[data-task=causal_mean_loop]")
    task.locator("summary").first.click()
    one, other = cell_of(rung, "causal_mean_loop").get_by_role("textbox"), task.get_by_role("textbox")
    stub = one.input_value()
    other.fill("# solved in the other tab")
    expect(one).to_have_value("# solved in the other tab")
    one.press("End")
    one.press_sequentially("!")
    for editor in (one, other):
        expect(editor).to_have_value("# solved in the other tab!")
    rung.once("dialog", lambda asked: asked.accept())
    cell_of(rung, "causal_mean_loop").get_by_role("button", name="Reset").click()
    expect(other).to_have_value(stub)
    solved = "localStorage.setItem('attention-try causal_mean_loop', '[\"1\", \"passed\"]')"
    rung.evaluate(solved)
    expect(practice.locator("#solved")).to_have_text(re.compile("^1 of"))
    practice.evaluate(f"localStorage.removeItem('attention-try causal_mean_loop'); {solved}")
    expect(cell_of(rung, "causal_mean_loop").locator(".mark")).to_have_text("✓ solved")


def test_a_page_that_comes_back_shows_what_was_written_since(judge, visit):
    """Left by a link and come back to: a browser may have kept it as it was, and tells it by `pageshow`."""
    page = visit("01_bag_of_words/")
    page.evaluate("""() => {
        localStorage.setItem("attention-answer causal_mean_loop", '["# written since"]');
        dispatchEvent(new PageTransitionEvent("pageshow", { persisted: true }));
    }""")
    expect(cell_of(page, "causal_mean_loop").get_by_role("textbox")).to_have_value("# written since")


def test_nothing_is_forgotten_before_the_reader_agrees(judge, visit):
    page, said = visit("01_bag_of_words/"), []
    editor = cell_of(page, "causal_mean_loop").get_by_role("textbox")
    stub, question = editor.input_value(), page.locator("[data-question=mean_at_one]")
    editor.fill("# an hour of work")
    question.get_by_role("button", name="Skip").click()
    page.once("dialog", lambda asked: (said.append(asked.message), asked.dismiss()))
    page.get_by_role("button", name="Forget my answers").press("Enter")
    assert "answers" in said[0]
    assert "code" in said[0]
    page.reload()
    expect(editor).to_have_value("# an hour of work")
    expect(question.get_by_role("status")).to_be_visible()
    page.once("dialog", lambda asked: asked.accept())
    page.get_by_role("button", name="Forget my answers").press("Enter")
    expect(editor).to_have_value(stub)
    expect(question.get_by_role("status")).not_to_be_visible()


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
    page.once("dialog", lambda asked: asked.accept())
    page.get_by_role("button", name="Forget my answers").click()
    expect(page.locator("#solved")).to_have_text(re.compile(r"^0 of"))
    page.locator("#import").set_input_files(tmp_path / "progress.json")
    expect(page.locator("#solved")).to_have_text(re.compile(r"^1 of"))


def of_exercise(**entry) -> str:
    return json.dumps({"questions": {}, "exercises": {"windowed_mean": entry}})


def of_part(**parts) -> str:
    return json.dumps({"questions": {"mean_at_one": {"answers": ["(3, 6)"]}}, "exercises": {}} | parts)


DAMAGED = {
    "": "not JSON",
    "5": "expected an object",
    "[]": "expected an object",
    "null": "expected an object",
    '{"questions": 5, "exercises": {}}': "questions: expected",
    '{"questions": {}}': "exercises: expected",
    of_part(exercises=None): "exercises: expected",
    of_part(exercises={"windowed_mean": 5}): "windowed_mean: expected",
    of_part(questions={"mean_at_one": {"answers": "All"}}): "answers of mean_at_one",
    of_part(fills={"windowed_mean": "gaps"}): "list of texts",
    of_part(fills=None): "fills: expected",
    of_part(review={"question mean_at_one": {"due": "2026-02-30", "days": 1}}): "2026-02-30",
    of_part(review={"question mean_at_one": {"due": "0000-01-01", "days": 1}}): "0000-01-01",
    of_part(review={"question mean_at_one": {"due": "2026-11-27", "days": 2}}): "1 or 7 or 30",
    of_part(review={"question mean_at_one": {"due": "2026-11-27"}}): "nothing",
    of_exercise(tries=-5): "-5",
    of_exercise(tries=2.5): "2.5",
    of_exercise(tries="3"): '"3"',
    of_exercise(tries=True): "true",
    of_exercise(passed=True): "tries of at least 1",
    of_exercise(tries=1, passed="false"): '"false"',
    of_exercise(tries=1, mistakes="abc"): '"abc"',
}
TOO_LARGE = of_part(
    questions={"mean_at_one": {"answers": ["(3, 6)"]}, "large": {"answers": ["y" * 6_000_000]}}
)
STATE = {
    "attention-question mean_at_one": ["(2, 8)"],
    "attention-try windowed_mean": ["7", "", "no_scale", "future_leaks"],
    "attention-fill windowed_mean": ["gaps"],
    "attention-review fill windowed_mean": ["2026-11-27", "1"],
    "attention-others": ['{"notes": 1}'],
}


def imported(visit, file: Path, text: str) -> tuple:
    """Read a file into a page that keeps STATE; return the page, its sentence and what it keeps."""
    page = visit("practice/")
    page.evaluate(
        """(state) => {
            localStorage.clear();
            for (const key in state) localStorage.setItem(key, JSON.stringify(state[key]));
        }""",
        STATE,
    )
    file.write_text(text)
    page.locator("#import").set_input_files(file)
    expect(page.locator("#taken")).not_to_be_empty()
    kept = page.evaluate("Object.entries(localStorage).map(([key, text]) => [key, JSON.parse(text)])")
    return page, page.locator("#taken").inner_text(), dict(kept)


@pytest.mark.parametrize("text", [*DAMAGED, TOO_LARGE], ids=lambda text: text[:70])
def test_a_file_that_cannot_be_taken_changes_nothing_and_is_told_of(judge, visit, tmp_path, text):
    file = tmp_path / "mine.json"
    _, said, kept = imported(visit, file, text)
    assert kept == STATE
    assert "mine.json" in said
    assert "nothing was changed" in said
    assert DAMAGED.get(text, "6.0 MB") in said
    if text in DAMAGED:
        with pytest.raises(ValueError, match="damaged"):  # by notebooks as well
            read(file)


def test_a_file_adds_to_what_is_kept_and_takes_nothing_away(judge, visit, tmp_path):
    older = {
        "questions": {"mean_at_one": {"answers": ["(2, 8)", "(3, 6)"]}, "which_dim": {"answers": ["0"]}},
        "exercises": {"windowed_mean": {"tries": 1, "mistakes": ["no_scale", "off_by_one"]}, "untouched": {}},
        "fills": {"windowed_mean": ["blocks"]},
        "review": {
            "fill windowed_mean": {"due": "2026-11-20", "days": 7},
            "question which_dim": {"due": "2026-11-30", "days": 7},
        },
        "new": [1],
    }
    file = tmp_path / "progress.json"
    page, said, _ = imported(visit, file, json.dumps(older))
    assert "2 questions, 2 exercises, 1 fill, 1 review date" in said
    with page.expect_download() as waiting:
        page.locator("#export").click()
    waiting.value.save_as(file)
    record = read(file)
    assert record.questions["mean_at_one"].answers == ["(2, 8)", "(3, 6)"]
    tried = record.exercises["windowed_mean"]
    assert (tried.tries, tried.passed) == (7, False)
    assert set(tried.mistakes) == {"no_scale", "future_leaks", "off_by_one"}
    assert set(record.fills["windowed_mean"]) == {"gaps", "blocks"}
    assert {item: due.due for item, due in record.review.items()} == {
        "fill windowed_mean": "2026-11-27",
        "question which_dim": "2026-11-30",
    }
    assert record.others == {"notes": 1, "new": [1]}
    _, said, _ = imported(visit, file, json.dumps({"questions": {}, "exercises": {}}))
    assert "here already" in said
    done = of_exercise(tries=2, passed=True)
    page, said, kept = imported(visit, file, done)
    assert "1 exercise." in said
    assert kept["attention-try windowed_mean"] == ["7", "passed", "no_scale", "future_leaks"]
    expect(page.locator("#solved")).to_have_text(re.compile("^1 of"))


KEPT = """async (name) => {
    while (!(await caches.match(name))) await new Promise((ends) => setTimeout(ends, 100));
}"""


MERGED = [  # own answers, the file's, and all
    (["A"], ["B"], ["A", "B"]),
    (["A"], ["B", "C"], ["A", "B", "C"]),
    (["A", "B"], ["B"], ["A", "B"]),
    ([], ["B", "A"], ["B", "A"]),
]


@pytest.mark.parametrize(("own", "others", "merged"), MERGED)
def test_answers_of_a_file_come_after_one_s_own_and_the_first_stays(visit, tmp_path, own, others, merged):
    page = visit("practice/")
    page.evaluate(
        "(own) => { for (const key in own) localStorage.setItem(key, JSON.stringify(own[key])); }",
        {"attention-question mean_at_one": own, "attention-first mean_at_one": ["right"]} if own else {},
    )
    file = tmp_path / "progress.json"
    file.write_text(of_part(questions={"mean_at_one": {"answers": others, "right_at_first_try": False}}))
    page.locator("#import").set_input_files(file)
    said = "here already" if merged == own else "1 question."
    expect(page.locator("#taken")).to_contain_text(said)
    with page.expect_download() as waiting:
        page.locator("#export").click()
    waiting.value.save_as(file)
    found = read(file).questions["mean_at_one"]
    assert (found.answers, found.right_at_first_try) == (merged, bool(own))


FILL = """() => {
    let text = "x".repeat(2 ** 20);
    for (let at = 0; text; at += 1)
        try { localStorage.setItem(`other${at}`, text); } catch { text = text.slice(text.length / 2 + 1); }
}"""


def test_where_the_browser_has_no_room_this_is_said_once_and_the_file_has_all(judge, visit, tmp_path):
    page = visit("01_bag_of_words/")
    note = page.locator("#refused")
    expect(note).not_to_be_visible()
    page.evaluate(FILL)
    editor = cell_of(page, "causal_mean_loop").get_by_role("textbox")
    editor.fill("# an hour of work\n" * 9)
    expect(note).to_be_in_viewport()
    page.locator("[data-question=mean_at_one]").get_by_role("button", name="Skip").click()
    with page.expect_download() as waiting:
        note.get_by_role("button", name="Save progress.json").click()
    waiting.value.save_as(tmp_path / "progress.json")
    assert read(tmp_path / "progress.json").questions["mean_at_one"].answers == ["Skip"]
    note.get_by_role("button", name="Close").click()
    editor.fill("# and another\n" * 9)
    expect(note).not_to_be_visible()


def test_a_new_edition_comes_as_a_whole(judge, site, chromium, serve, tmp_path):
    """A browser keeps a file that has long been the same without asking for it again."""
    shutil.copytree(site, tmp_path / "attention")
    script = tmp_path / "attention/static/page.js"
    old = script.stat().st_mtime - 10**8
    os.utime(script, (old, old))
    register = """async () => {
        await navigator.serviceWorker.register("../sw.js");
        const { active } = await navigator.serviceWorker.ready;
        if (!navigator.serviceWorker.controller)
            await new Promise((ends) => navigator.serviceWorker.addEventListener("controllerchange", ends));
    }"""
    context = chromium.new_context()
    page = context.new_page()
    page.goto(f"{serve(tmp_path)}/attention/practice/")
    page.evaluate(register)
    script.write_text(script.read_text() + "\ndocument.body.dataset.edition = 'new';\n")
    page.goto(page.url)
    expect(page.locator("body")).to_have_attribute("data-edition", "new")
    context.close()


DAMAGE = """async (name) => {
    const [cache] = (await caches.keys()).filter((each) => each.startsWith("attention "));
    const address = new URL(name, location);
    const kept = await (await (await caches.open(cache)).match(address)).arrayBuffer();
    await (await caches.open(cache)).put(address, new Response(kept.slice(0, kept.byteLength / 2)));
}"""


SLOW_DISK = """const remove = Cache.prototype.delete;
Cache.prototype.delete = async function (...given) {
    await new Promise((ends) => setTimeout(ends, 50));
    return remove.apply(this, given);
};"""


def test_a_kept_judge_that_is_damaged_comes_anew(judge, chromium, address):
    context = chromium.new_context()
    context.add_init_script(SLOW_DISK)
    page, good = context.new_page(), answer("shift_matrix", "mine")
    page.goto(f"{address}02_tril_matmul/")
    check(page, "shift_matrix", good)
    for name in [path.name for path in judge.iterdir()]:
        page.evaluate(KEPT, f"../judge/{judge.name}/{name}")
    for name in ("pyodide.asm.wasm.packed", "python_stdlib.zip", "course.zip", "worker.js"):
        page.evaluate(DAMAGE, f"../judge/{judge.name}/{name}")
        page.reload()
        if "✓ passed" not in (said := check(page, "shift_matrix", good)):  # it may have come anew already
            assert "The judge could not be loaded: " in said
            assert "[object" not in said
            assert "✓ passed" in check(page, "shift_matrix", good)
        page.evaluate(KEPT, f"../judge/{judge.name}/{name}")
    context.close()


def test_after_one_check_it_works_without_a_network(judge, visit):
    page, good = visit("02_tril_matmul/"), answer("shift_matrix", "mine")
    page.evaluate(  # what another copy of the site keeps, on the same host
        "caches.open('attention').then((other) => other.put('/fork/judge/old', new Response('')))"
    )
    check(page, "shift_matrix", good)
    for name in [path.name for path in judge.iterdir()]:
        page.evaluate(KEPT, f"../judge/{judge.name}/{name}")
    page.evaluate(KEPT, "./")
    assert page.evaluate("async () => !!(await caches.match('/fork/judge/old'))")
    page.context.set_offline(True)
    page.reload()
    with page.expect_worker():  # Python starts when a reader begins to write, once the browser has it
        cell_of(page, "shift_matrix").get_by_role("textbox").focus()
    assert "✓ passed" in check(page, "shift_matrix", good)
