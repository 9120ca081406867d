"""The course in JupyterLab, in Chromium, started as `make lab` starts it."""

import re

import lab
import pytest
from cells import STEPS, calls_in
from playwright.sync_api import expect

from attention_course.ladder import RUNGS
from attention_course.questions import BACK, QUESTIONS

RUNG_OF = {rung.name: rung for rung in RUNGS}
DENSITY = 2

FAILING = """\
import ipywidgets
import torch
from attention_course.explorers.engine import Explorer
from attention_course.plots import Bars

def compute(t):
    if t == 2:
        raise ValueError("two is too many")
    return {"heights": torch.tensor([float(t)])}

def draw(figure, heights):
    figure.show(Bars("t", heights, ["t"], "t", (0, 3)), caption=f"t is {heights.item():.0f}")

Explorer({"t": ipywidgets.IntSlider(1, 0, 3)}, compute, draw)"""

TRAINING = """\
from IPython.display import display

from attention_course.explorers import LiveTraining
from attention_course.gpt import GPT, GPTConfig
from attention_course.stories import write_stories
from attention_course.text import Data
from attention_course.training import Recipe, train

data = Data.of(write_stories(characters=20_000))
model = GPT(GPTConfig(data.tokenizer.vocab_size, block_size=32, n_layer=1, n_head=1, n_embd=16))
live = LiveTraining(data.tokenizer, floors={"a floor": 1.5})
display(live)
history = train(model, data, Recipe(steps=1_000_000), callback=live)"""

AFTER = "print('stopped:', history.stopped, 'after as many losses as steps:', len(history.losses) > 10)"


@pytest.fixture(scope="module")
def page(chromium_path):
    """Give one page of a running lab; fail at the end if anything left the machine or reached the console."""
    extra = {
        # Here widgets are tried; nbval trains all models, and compares what comes out.
        **{f"{name}.ipynb": lab.short_notebook(name) for name in RUNG_OF},
        "failing.ipynb": lab.notebook_of([FAILING]),
        "training.ipynb": lab.notebook_of([TRAINING, AFTER]),
    }
    asked, complaints = [], []
    with (
        lab.jupyter_lab(extra) as address,
        lab.browser_page(chromium_path, density=DENSITY) as page,
    ):
        page.on("request", lambda request: asked.append(request.url))
        page.on("websocket", lambda socket: asked.append(socket.url))
        page.on("console", lambda line: complaints.append(line.text) if line.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.address = address
        yield page
    assert asked
    assert [url for url in asked if not re.match(r"(https?|wss?)://127\.0\.0\.1[:/]|data:|blob:", url)] == []
    assert complaints == []


@pytest.fixture(scope="module", params=RUNG_OF)
def notebook(request, page):
    """Open a notebook and run all its cells."""
    lab.open_notebook(page, page.address, f"my_notebooks/{request.param}.ipynb")
    lab.run_all(page, timeout=400_000)
    page.wait_for_timeout(500)
    return request.param


def cell_with(page, text):
    """Return the code cell that contains `text`."""
    return page.locator(".jp-CodeCell").filter(has_text=text).first


def wait_for_change(page, explorer, before):
    """Wait until the explorer shows another picture than `before`; return it."""
    for _ in range(100):
        if (now := lab.picture_of(explorer)) != before:
            return now
        page.wait_for_timeout(20)
    raise AssertionError("the picture did not change within 2 s")


def test_lab_opens_without_asking_for_news(page):
    page.goto(page.address)
    page.wait_for_selector(".jp-Notebook .jp-Cell")
    page.wait_for_timeout(2000)
    assert "01_bag_of_words" in page.title() + page.url
    assert page.locator(".jp-toast-message, .Toastify__toast").count() == 0


def test_all_cells_run(notebook, page):
    assert page.locator(".jp-CodeCell").count() > 20
    for trouble in ("error", "stderr"):
        shown = page.locator(f'[data-mime-type="application/vnd.jupyter.{trouble}"]')
        assert shown.all_inner_texts() == []
    assert page.locator(".attention-figure").count() >= 1


def test_every_control_changes_the_picture(notebook, page):
    for explorer in page.locator(".attention-explorer").all():
        explorer.scroll_into_view_if_needed()
        shown = lab.picture_of(explorer)
        for box in explorer.locator("input[type=checkbox]").all():
            box.click()
            shown = wait_for_change(page, explorer, shown)
        for select in explorer.locator("select").all():
            select.select_option(index=1)
            shown = wait_for_change(page, explorer, shown)
        for button in explorer.locator(".widget-toggle-buttons button:not(.mod-active)").all():
            button.click()
            shown = wait_for_change(page, explorer, shown)
        for handle in explorer.locator(".noUi-handle").all():
            handle.focus()
            at_the_start = handle.get_attribute("aria-valuenow") == handle.get_attribute("aria-valuemin")
            page.keyboard.press("ArrowRight" if at_the_start else "ArrowLeft")
            shown = wait_for_change(page, explorer, shown)
        assert explorer.locator("[role=alert]").inner_text() == ""


def test_words_for_the_picture_change_with_it(notebook, page):
    explorer = page.locator(".attention-explorer").first
    picture = explorer.locator(".attention-panels")
    before = picture.get_attribute("aria-label")
    sliders = explorer.locator(".noUi-handle")
    control = (sliders if sliders.count() else explorer.locator("select, input[type=checkbox]")).first
    at_the_start = control.get_attribute("aria-valuenow") == control.get_attribute("aria-valuemin")
    control.focus()
    if control.get_attribute("type") == "checkbox":
        page.keyboard.press("Space")
    else:
        page.keyboard.press("End" if at_the_start else "Home")
    expect(picture).not_to_have_attribute("aria-label", before, timeout=20_000)
    after = picture.get_attribute("aria-label")
    assert explorer.locator("[aria-live]").inner_text() in after


def test_a_burst_of_keys_ends_on_the_last_value(notebook, page):
    explorer = page.locator(".attention-explorer").first
    handle = explorer.locator(".noUi-handle").first
    if not handle.count():
        pytest.skip("it has no slider")
    handle.focus()
    page.keyboard.press("End")
    page.wait_for_timeout(500)
    at_the_end = lab.picture_of(explorer)
    page.keyboard.press("Home")
    for _ in range(100):
        page.keyboard.press("ArrowRight")
    page.wait_for_timeout(500)
    assert handle.get_attribute("aria-valuenow") == handle.get_attribute("aria-valuemax")
    assert lab.picture_of(explorer) == at_the_end


def test_canvases_have_the_density_of_the_screen(notebook, page):
    canvases = page.locator(".attention-figure canvas")
    assert canvases.count()
    for canvas in canvases.all():
        ratio = canvas.evaluate("(c) => c.width / c.getBoundingClientRect().width")
        assert ratio == pytest.approx(DENSITY, rel=0.02)


def test_questions_are_answered_by_keyboard(notebook, page):
    questions = page.locator(".attention-question").all()
    names = [name for kind, name in calls_in(RUNG_OF[notebook].text("notebook.py")) if kind == "ask"]
    assert len(questions) == len(names) >= 3
    for question, name in zip(questions, names, strict=True):
        choices = QUESTIONS[name]["choices"]
        right = next(index for index, choice in enumerate(choices) if choice.get("right"))
        wrong = (right + 1) % len(choices)
        height = question.bounding_box()["height"]
        for index, verdict in ((wrong, "Not this one."), (right, "Right.")):
            assert choices[index]["explanation"][:20] not in question.inner_text()
            question.locator("button").nth(index).focus()
            page.keyboard.press("Enter")
            question.locator("[role=status]").filter(has_text=verdict).wait_for()
            assert question.bounding_box()["height"] == pytest.approx(height, abs=1), (
                "the text below has moved"
            )
            question.get_by_role("button", name=BACK).press("Enter")
            question.locator("[role=status]").wait_for(state="hidden")


WRONG = "def answer(first, *others):\n    return first"
RIGHT = "from attention_course.exercises import EXERCISES\n\nanswer = EXERCISES[{!r}].reference"


def test_an_exercise_is_answered_wrong_and_then_right(notebook, page):
    cell = cell_with(page, "check(")
    call, name = re.search(r'(check\("(\w+)", )', cell.locator(".jp-InputArea-editor").inner_text()).groups()
    panel = cell.locator(".jp-OutputArea")
    assert "not tried yet" in panel.inner_text()
    cell.locator("button", has_text="Hint 1 of").click()
    cell.locator("[role=status]", has_text="Hint 1 of").wait_for()
    for answer, words in ((WRONG, "not yet"), (RIGHT.format(name), "passed")):
        cell.locator(".cm-content").click()
        page.keyboard.press("Control+A")
        page.keyboard.insert_text(f"{answer}\n\n\n{call}answer)")
        page.keyboard.press("Control+Enter")
        panel.filter(has_text=words).wait_for(timeout=10_000)


def test_an_error_is_shown_in_words_and_the_next_change_recovers(page):
    lab.open_notebook(page, page.address, "notebooks/failing.ipynb")
    lab.run_all(page)
    explorer = page.locator(".attention-explorer")
    alert = explorer.locator("[role=alert]")
    explorer.locator(".noUi-handle").focus()
    page.keyboard.press("ArrowRight")
    alert.filter(has_text="ValueError: two is too many").wait_for()
    page.keyboard.press("ArrowRight")
    explorer.locator("[aria-live]").filter(has_text="t is 3").wait_for()
    assert alert.inner_text() == ""


@pytest.mark.parametrize("notebook", ["08_bigram_to_gpt"], indirect=True)
def test_the_gpt_has_trained_and_can_be_looked_into(notebook, page):
    """The bar is full, the button rests, the model has written; the head that was found can be chosen."""
    live = page.locator(".attention-live-training")
    assert f"{STEPS} steps in" in live.inner_text()
    assert live.locator("button").is_disabled()
    assert f"Written after step {STEPS}" in live.locator(".attention-panels").get_attribute("aria-label")
    looked, drawn = page.locator(".attention-explorer").all()
    found = page.locator(".jp-OutputArea", has_text="= layers, texts, heads, queries, keys").inner_text()
    head = int(re.search(r"head (\d): \d+ %", found)[1])
    handles = looked.locator(".noUi-handle")
    for handle, value in ((handles.nth(0), 1), (handles.nth(1), head)):
        handle.focus()
        page.keyboard.press("Home")
        for _ in range(value):
            page.keyboard.press("ArrowRight")
    looked.locator("[aria-live]").filter(has_text=f"head {head}").wait_for(timeout=5_000)
    shown = lab.picture_of(drawn)
    drawn.locator(".noUi-handle").first.focus()
    page.keyboard.press("End")
    wait_for_change(page, drawn, shown)


def test_a_training_is_watched_and_stopped(page):
    """The button is pressed while the cell runs; until then the loss moves, and then the next cell runs."""
    lab.open_notebook(page, page.address, "notebooks/training.ipynb")
    lab.start_all(page)
    live = page.locator(".attention-live-training")
    live.locator("button:not([disabled])").wait_for(timeout=30_000)
    shown = lab.picture_of(live)
    for _ in range(2):
        shown = wait_for_change(page, live, shown)
    assert page.locator(".jp-CodeCell").nth(1).locator(".jp-OutputArea-output").count() == 0
    live.locator("button").click()
    after = page.locator(".jp-CodeCell").nth(1).locator(".jp-OutputArea-output")
    after.filter(has_text="stopped: True after as many losses as steps: True").wait_for(timeout=5_000)
    assert live.locator("button").is_disabled()
