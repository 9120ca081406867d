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

TRAINING = """\
from IPython.display import display

from attention_course.explorers import LiveTraining
from attention_course.gpt import GPT, GPTConfig
from attention_course.stories import write_stories
from attention_course.text import Corpus
from attention_course.training import Recipe, train

data = Corpus.of(write_stories(characters=20_000))
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


# As it opens: one document in a quiet frame, and the hero at work before a cell has run


@pytest.fixture(scope="module")
def opened(page):
    page.goto(page.address)
    page.locator(".attention-course .attention-hero svg").first.wait_for(timeout=60_000)
    expect(page.locator("#table-of-contents")).to_contain_text("How wrong is it?")  # what the frame does last
    return page


def test_it_opens_the_learners_copy_of_the_first_rung_alone_with_no_answer_in_it(opened):
    assert "/doc/tree/my_notebooks/01_bag_of_words.ipynb" in opened.url
    for other in ("#jp-title-panel-title", ".jp-SideBar.jp-mod-right", ".jp-DirListing"):
        expect(opened.locator(other).filter(visible=True)).to_have_count(0)
    expect(opened.locator("#jp-menu-panel")).to_be_visible()
    height = opened.locator(".jp-WindowedPanel-outer").bounding_box()["height"]
    assert height >= opened.viewport_size["height"] - 60, "a status bar has 24 pixels, the title 28"
    assert opened.locator(".jp-OutputArea-output").count() == opened.locator(".attention-hero").count()
    expect(opened.locator(".jp-mod-dirty, .jp-toast-message, .Toastify__toast")).to_have_count(0)


@pytest.mark.parametrize("width", [1024, 1280, 1920])
def test_a_line_has_about_75_characters(opened, width):
    opened.set_viewport_size({"width": width, "height": 800})
    opened.wait_for_function(
        """() => {
        const paragraph = document.querySelector('.jp-MarkdownOutput p');
        const pen = document.createElement('canvas').getContext('2d');
        const style = getComputedStyle(paragraph);
        pen.font = `${style.fontSize} ${style.fontFamily}`;
        const letters = 'the quick brown fox jumps over the lazy dog and reads on ';
        const characters = paragraph.clientWidth / (pen.measureText(letters).width / letters.length);
        return characters >= 60 && characters <= 100;
    }""",
        timeout=30_000,
    )
    opened.set_viewport_size({"width": 1280, "height": 800})


def test_the_hero_moves_and_shift_enter_goes_on_from_it(opened):
    hero = opened.locator(".attention-hero").last
    hero.locator(".guess button").first.click()
    expect(hero.locator(".guess [role=status]")).to_have_text(re.compile(r"\w"), timeout=60_000)
    hero.get_by_role("button", name="Start over").click()
    before = hero.get_attribute("data-values")
    hero.get_by_role("button", name="Step").click()
    expect(hero).not_to_have_attribute("data-values", before)
    prompts = opened.locator(".jp-Cell :is(.jp-InputPrompt, .jp-OutputPrompt)")
    expect(prompts.filter(has_text="[1]:")).to_have_count(0)
    active = "[...document.querySelectorAll('.jp-Cell')].findIndex((cell) => cell.matches('.jp-mod-active'))"
    hero.locator("svg [role=slider]").first.focus()
    opened.wait_for_function(
        f"document.activeElement.closest('.jp-Cell') === document.querySelectorAll('.jp-Cell')[{active}]"
    )
    place = opened.evaluate(active)
    opened.keyboard.press("Shift+Enter")
    opened.wait_for_function(f"{active} === {place + 1}")


# Run


@pytest.fixture(scope="module", params=RUNG_OF)
def notebook(request, page):
    """Open a notebook and run all its cells, each twice."""
    lab.open_notebook(page, page.address, f"my_notebooks/{request.param}.ipynb")
    lab.run_all(page, timeout=400_000)
    expect(page.locator(".attention-figure canvas").last).to_be_visible()
    return request.param


def test_all_cells_run_and_pictures_have_the_density_of_the_screen(notebook, page):
    assert page.locator(".jp-CodeCell").count() > 20
    for trouble in ("error", "stderr"):
        shown = page.locator(f'[data-mime-type="application/vnd.jupyter.{trouble}"]')
        assert shown.all_inner_texts() == []
    for canvas in page.locator(".attention-figure canvas").filter(visible=True).all():
        ratio = canvas.evaluate("(c) => c.width / c.getBoundingClientRect().width")
        assert ratio == pytest.approx(DENSITY, rel=0.02)


def press(page, handle, key: str) -> None:
    handle.focus()
    page.keyboard.press(key)


def test_every_control_changes_the_picture(notebook, page):
    for explorer in page.locator(".attention-explorer").all():
        explorer.scroll_into_view_if_needed()
        for box in explorer.locator("input[type=checkbox]").all():
            with lab.new_picture(explorer):
                box.click()
        for select in explorer.locator("select").all():
            with lab.new_picture(explorer):
                select.select_option(index=int(select.evaluate("it => it.selectedIndex") == 0))
        for button in explorer.locator(".widget-toggle-buttons button:not(.mod-active)").all():
            with lab.new_picture(explorer):
                button.click()
        for handle in explorer.locator(".noUi-handle").all():
            at_the_start = handle.get_attribute("aria-valuenow") == handle.get_attribute("aria-valuemin")
            with lab.new_picture(explorer):
                press(page, handle, "ArrowRight" if at_the_start else "ArrowLeft")
        expect(explorer.locator("[role=alert]")).to_have_text("")


def test_questions_are_answered_by_keyboard(notebook, page):
    source = RUNG_OF[notebook].text("notebook.py")
    from_below = 2 * source.count("\nwarm_up(")  # with other numbers each time
    questions = page.locator(".attention-question").all()[from_below:]
    names = [name for kind, name in calls_in(source) if kind == "ask"]
    assert len(questions) == len(names) >= 3
    for question, name in zip(questions, names, strict=True):
        if not question.is_visible():
            continue  # it is in a fold
        choices = QUESTIONS[name]["choices"]
        right = next(index for index, choice in enumerate(choices) if choice.get("right"))
        wrong = (right + 1) % len(choices)
        height = question.bounding_box()["height"]
        for index, verdict in ((wrong, "Not this one."), (right, "Right.")):
            assert choices[index]["explanation"][:20] not in question.inner_text()
            question.locator("button").nth(index).press("Enter")
            question.locator("[role=status]").filter(has_text=verdict).wait_for()
            assert question.bounding_box()["height"] == pytest.approx(height, abs=1), (
                "the text below has moved"
            )
            question.get_by_role("button", name=BACK).press("Enter")
            question.locator("[role=status]").wait_for(state="hidden")


WRONG = "def answer(first, *others):\n    return first"
RIGHT = "from attention_course.exercises import EXERCISES\n\nanswer = EXERCISES[{!r}].reference"


def test_an_exercise_is_answered_wrong_and_then_right(notebook, page):
    cell = page.locator(".jp-CodeCell").filter(has_text="check(").first
    call, name = re.search(r'(check\("(\w+)", )', cell.locator(".jp-InputArea-editor").inner_text()).groups()
    panel = cell.locator(".jp-OutputArea")
    expect(panel).to_contain_text("not tried yet")
    cell.locator("button", has_text="Hint 1 of").click()
    cell.locator("[role=status]", has_text="Hint 1 of").wait_for()
    for answer, words in ((WRONG, "not yet"), (RIGHT.format(name), "passed")):
        cell.locator(".cm-content").click()
        page.keyboard.press("Control+A")
        page.keyboard.insert_text(f"{answer}\n\n\n{call}answer)")
        page.keyboard.press("Control+Enter")
        panel.filter(has_text=words).wait_for(timeout=60_000)


@pytest.mark.parametrize("notebook", ["08_bigram_to_gpt"], indirect=True)
def test_the_gpt_has_trained_and_can_be_looked_into(notebook, page):
    """The bar is full, the button rests, the model has written; the head that was found can be chosen."""
    live = page.locator(".attention-live-training")
    expect(live).to_contain_text(f"{STEPS} steps in")
    expect(live.locator("button")).to_be_disabled()
    expect(live.locator(".attention-panels")).to_have_attribute(
        "aria-label", re.compile(f"Written after step {STEPS}")
    )
    looked = page.locator(".attention-explorer").first
    found = page.locator(".jp-OutputArea", has_text="= layers, texts, heads, queries, keys").inner_text()
    head = int(re.search(r"head (\d): \d+ %", found)[1])
    handles = looked.locator(".noUi-handle")
    for handle, value in ((handles.nth(0), 1), (handles.nth(1), head)):
        press(page, handle, "Home")
        for _ in range(value):
            page.keyboard.press("ArrowRight")
    looked.locator("[aria-live]").filter(has_text=f"head {head}").wait_for(timeout=30_000)


def test_a_training_is_watched_and_stopped(page):
    """The button is pressed while the cell runs; until then the loss moves, and then the next cell runs."""
    lab.open_notebook(page, page.address, "notebooks/training.ipynb")
    lab.start_all(page)
    live = page.locator(".attention-live-training")
    live.locator("button:not([disabled])").wait_for(timeout=30_000)
    for _ in range(2):
        with lab.new_picture(live):
            pass
    live.get_by_text(re.compile(r"^step \d{3,} of")).wait_for()
    after = page.locator(".jp-CodeCell").nth(1).locator(".jp-OutputArea-output")
    assert after.count() == 0
    live.locator("button").click()
    after.filter(has_text="stopped: True after as many losses as steps: True").wait_for(timeout=30_000)
    expect(live.locator("button")).to_be_disabled()
