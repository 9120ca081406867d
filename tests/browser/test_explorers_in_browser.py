"""The explorers as instruments: legible in any window, read by pointer and keys, unharmed by a restart."""

import re

import lab
import pytest
from playwright.sync_api import expect

from attention_course.explorers import EXPLORERS

SMALLEST = 11  # pixels of a letter
STILL = ["tril_matmul", "query_key_value", "cross_and_causal", "multi_head"]
FONTS = """
window.fonts = new Set();
const fillText = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (...given) {
    window.fonts.add(parseFloat(this.font));
    fillText.apply(this, given);
};
"""
COUNTING = """\
import ipywidgets
import torch
from attention_course.explorers.engine import Explorer
from attention_course.plots import Bars

calls = 0

def compute(t):
    global calls
    calls += 1
    return {"heights": torch.tensor([float(t)])}

def draw(figure, heights):
    figure.show(Bars("t", heights, ["t"], "t", (0, 9)), caption=f"calls: {calls}")

Explorer({"t": ipywidgets.IntSlider(1, 0, 9)}, compute, draw)"""


@pytest.fixture(scope="module")
def lab_page(chromium_path):
    """Give a page of a running lab, on which each explorer stands once, and the one of rung 2 twice."""
    cells = ["from attention_course.explorers import explore", *(f"explore({name!r})" for name in EXPLORERS)]
    extra = {
        "explorers.ipynb": lab.notebook_of([*cells, 'explore("tril_matmul")']),
        "counting.ipynb": lab.notebook_of([COUNTING]),
    }
    with lab.jupyter_lab(extra) as address, lab.browser_page(chromium_path) as page:
        page.add_init_script(FONTS)
        page.address = address
        yield page


@pytest.fixture(scope="module")
def page(lab_page):
    lab.open_notebook(lab_page, lab_page.address, "notebooks/explorers.ipynb")
    lab.run_all(lab_page)
    lab_page.wait_for_timeout(1000)
    return lab_page


def explorers(page):
    return page.locator(".attention-explorer").all()


def clipped(explorer):
    """Return the parts of an explorer that stick out of it; what stands in a box that scrolls does not."""
    return explorer.evaluate(
        """(explorer) => {
            const right = explorer.getBoundingClientRect().right + 1;
            const parts = "canvas, p, .attention-title, .widget-label, .widget-readout, .noUi-target";
            return [...explorer.querySelectorAll(parts)]
                .map((part) => part.closest(".attention-panels > div") ?? part)
                .filter((part) => part.getBoundingClientRect().right > right)
                .map((part) => `${part.tagName} ${part.className} ${part.innerText}`);
        }"""
    )


def test_each_fits_into_a_small_window_at_its_largest(page):
    panel = page.locator(".jp-WindowedPanel-outer").first
    window = panel.evaluate("(panel) => [panel.clientWidth, panel.clientHeight]")
    for name, explorer in zip(EXPLORERS, explorers(page), strict=False):
        for handle in explorer.locator(".noUi-handle").all():
            handle.focus()
            page.keyboard.press("End")
            page.wait_for_timeout(100)
        width, height = (explorer.bounding_box()[side] for side in ("width", "height"))
        assert width <= window[0], name
        assert height <= window[1], name
        assert clipped(explorer) == [], name


def test_no_letter_is_too_small(page):
    assert min(page.evaluate("[...window.fonts]")) >= SMALLEST
    for explorer in explorers(page):
        sizes = explorer.evaluate(
            "(e) => [...e.querySelectorAll('*')].filter((p) => p.innerText?.trim())"
            ".map((p) => parseFloat(getComputedStyle(p).fontSize))"
        )
        assert min(sizes) >= SMALLEST


def test_nothing_is_clipped_at_200_percent(page):
    """At 200 % a window of 1280 x 800 has room for half as many CSS pixels."""
    page.set_viewport_size({"width": 640, "height": 400})
    page.wait_for_timeout(500)
    try:
        for name, explorer in zip(EXPLORERS, explorers(page), strict=False):
            assert clipped(explorer) == [], name
    finally:
        page.set_viewport_size({"width": 1280, "height": 800})
        page.wait_for_timeout(500)


@pytest.mark.parametrize("name", [*STILL, "rotary", "heads"])
def test_panels_stay_where_they_are_while_a_slider_moves(name, page):
    explorer = explorers(page)[list(EXPLORERS).index(name)]
    places = "(e) => [...e.querySelectorAll('canvas')].map((c) => [c.offsetLeft, c.width, c.height]).join()"
    seen = []
    for key in ("Home", "End"):
        for handle in explorer.locator(".noUi-handle").all():
            handle.focus()
            page.keyboard.press(key)
            page.wait_for_timeout(100)
            seen.append((explorer.evaluate(places), lab.picture_of(explorer)))
    places, pictures = map(set, zip(*seen, strict=True))
    assert len(pictures) > 1
    assert len(places) == 1


def rung_2(page):
    """Return the explorer of rung 2 at T = 5, with the weights of the mean of the past."""
    explorer = explorers(page)[list(EXPLORERS).index("tril_matmul")]
    explorer.scroll_into_view_if_needed()
    handle = explorer.locator(".noUi-handle").first
    handle.focus()
    page.keyboard.press("Home")
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    explorer.locator(".attention-title").filter(has_text="weights (5, 5)").wait_for()
    return explorer


def test_a_text_is_typed_and_the_query_follows_it(page):
    explorer = explorers(page)[list(EXPLORERS).index("heads")]
    text, off = explorer.locator("input[type=text]").all()
    caption = explorer.locator(".attention-caption")
    text.fill("Ann and Ann")
    text.press("Enter")
    caption.filter(has_text="Query 10 “n” looks at character").wait_for()
    expect(explorer.locator(".noUi-handle").last).to_have_attribute("aria-valuemax", "10.0")
    off.fill("0.1, 2.3")
    off.press("Enter")
    caption.filter(has_text="without 0.1, 2.3, “").wait_for()
    off.fill("7")
    off.press("Enter")
    explorer.locator("[role=alert]").filter(has_text="“7” is not a head").wait_for()
    off.fill("")
    off.press("Enter")
    explorer.locator("[role=alert]").wait_for(state="hidden")


def test_the_pointer_reads_a_cell(page):
    explorer = rung_2(page)
    weights = explorer.locator("canvas").first
    area = weights.bounding_box()
    page.mouse.move(area["x"] + 46 + 2.5 * 50, area["y"] + 4 + 3.5 * 50)
    readout = explorer.locator(".attention-readout")
    readout.filter(has_text="output t = 3, token s = 2: 0.25. Its row: 0.25 0.25 0.25 0.25 0.00.").wait_for()
    readout.filter(has_text="0.25 × (6 5) is its part of output t = 3: (3.75 6.25).").wait_for()
    page.mouse.move(5, 5)
    readout.filter(has_text="Point at a cell").wait_for()


def test_a_click_pins_what_is_marked_in_all_panels_and_escape_lets_it_go(page):
    explorer = rung_2(page)
    readout = explorer.locator(".attention-readout")
    page.mouse.move(5, 5)
    readout.filter(has_text="Point at a cell").wait_for()
    other = "(e) => e.querySelectorAll('canvas')[1].toDataURL()"
    unmarked = explorer.evaluate(other)
    area = explorer.locator("canvas").first.bounding_box()
    page.mouse.click(area["x"] + 46 + 2.5 * 50, area["y"] + 4 + 3.5 * 50)
    page.mouse.move(5, 5)
    readout.filter(has_text="Pinned: output t = 3, token s = 2: 0.25").wait_for()
    assert explorer.evaluate(other) != unmarked
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    readout.filter(has_text="Pinned: token s = 0, channel = 0: 2.").wait_for()
    page.keyboard.press("Enter")
    page.evaluate("document.activeElement.blur()")
    readout.filter(has_text="Point at a cell").wait_for()
    assert explorer.evaluate(other) == unmarked


def test_a_bar_is_dragged_by_pointer_and_keys_but_not_when_it_is_hidden(page):
    explorer = explorers(page)[list(EXPLORERS).index("masked_softmax")]
    explorer.scroll_into_view_if_needed()
    readout = explorer.locator(".attention-readout")
    canvas = explorer.locator("canvas").first
    area = canvas.bounding_box()
    x, slot = area["x"] + 8, (area["width"] - 16) / 4
    for bar, said in ((0, "“0”: 5"), (3, "“3”: −∞")):
        page.mouse.move(x + (bar + 0.5) * slot, area["y"] + 60)
        page.mouse.down()
        page.mouse.move(x + (bar + 0.5) * slot, area["y"] + 3)
        page.mouse.up()
        readout.filter(has_text=f"scores, {said}").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    readout.filter(has_text="scores, “0”: 4.90.").wait_for()


def test_arrow_keys_read_cells_and_leave_the_notebook_alone(page):
    explorer = rung_2(page)
    active = "[...document.querySelectorAll('.jp-Cell')].findIndex((c) => c.matches('.jp-mod-active'))"
    explorer.locator(".attention-title").first.click()
    explorer.locator("input[type=checkbox]").last.focus()
    page.wait_for_timeout(500)  # JupyterLab makes the cell the active one, and moves the focus while it does
    before = page.evaluate(active)
    page.keyboard.press("Tab")
    readout = explorer.locator(".attention-readout")
    readout.filter(has_text="output t = 0, token s = 0: 1.00. Its").wait_for()
    for key, at in (
        ("ArrowDown", "t = 1, token s = 0"),
        ("ArrowRight", "t = 1, token s = 1: 0.50"),
        ("ArrowUp", "t = 0"),
    ):
        page.keyboard.press(key)
        readout.filter(has_text=at).wait_for()
    assert explorer.locator("canvas").first.evaluate("(c) => getComputedStyle(c).outlineStyle") == "solid"
    assert page.evaluate(active) == before
    page.keyboard.press("Tab")
    readout.filter(has_text="token s = 0, channel = 0: 2. Its row: 2 7").wait_for()


def test_a_head_of_many_is_named(page):
    explorer = explorers(page)[list(EXPLORERS).index("multi_head")]
    explorer.scroll_into_view_if_needed()
    explorer.locator(".noUi-handle").first.focus()
    for key in ("Home", *4 * ["ArrowRight"]):
        page.keyboard.press(key)
    explorer.locator(".attention-caption").filter(has_text="n_head = 16,").wait_for()
    explorer.locator("canvas").first.focus()
    explorer.locator(".attention-readout").filter(
        has_text="head 0 (the previous character), query = 0 “t0”, key = 0 “t0”"
    ).wait_for()


def test_a_text_is_read_out_to_those_who_cannot_see_it(page):
    explorer = explorers(page)[list(EXPLORERS).index("attention_over_text")]
    assert "Kind Tom gave poor Sam a bell at the barn." in explorer.locator("canvas").first.get_attribute(
        "aria-label"
    ).replace("\n", "")


def test_every_control_shows_where_the_focus_is(page):
    for explorer in explorers(page):
        for control in explorer.locator(".noUi-handle, input[type=checkbox], select, button").all():
            looks = (
                "(c) => JSON.stringify(['outlineStyle', 'outlineWidth', 'boxShadow', 'borderColor']"
                ".map((key) => getComputedStyle(c)[key]))"
            )
            page.evaluate("document.activeElement.blur()")
            before = control.evaluate(looks)
            control.focus()
            page.keyboard.press("Shift")
            assert control.evaluate(looks) != before, control.evaluate("(c) => c.outerHTML")


def test_two_of_a_kind_do_not_disturb_each_other(page):
    other = explorers(page)[-1]
    before = lab.picture_of(other)
    explorer = rung_2(page)
    moved = lab.picture_of(explorer)
    explorer.locator(".noUi-handle").first.focus()
    page.keyboard.press("ArrowRight")
    explorer.locator(".attention-title").filter(has_text="weights (6, 6)").wait_for()
    assert lab.picture_of(explorer) != moved
    assert lab.picture_of(other) == before


def test_a_recipe_is_trained_by_its_button_until_it_is_stopped(page):
    explorer = explorers(page)[list(EXPLORERS).index("recipes")]
    train = explorer.get_by_role("button", name="Train it here")
    train.click()
    explorer.get_by_text(re.compile(r"^step \d+ of")).wait_for()
    assert train.is_disabled()
    explorer.get_by_role("button", name="Stop").click()
    explorer.get_by_text(re.compile(r"^stopped after step \d+ of")).wait_for()
    explorer.get_by_text(re.compile(r"^answer accuracy \d\.\d\d after .* on this machine$")).wait_for()
    assert train.is_enabled()


def test_a_restarted_kernel_leaves_the_last_picture_standing(page):
    before = [lab.picture_of(explorer) for explorer in explorers(page)]
    page.click(".lm-MenuBar-item:has-text('Kernel')")
    page.click(".lm-Menu-item:has-text('Restart Kernel…') >> nth=0")
    page.click(".jp-Dialog button:has-text('Restart')")
    page.wait_for_timeout(3000)
    assert [lab.picture_of(explorer) for explorer in explorers(page)] == before


def test_a_cell_that_runs_again_leaves_no_second_callback(lab_page):
    lab.open_notebook(lab_page, lab_page.address, "notebooks/counting.ipynb")
    lab.run_all(lab_page)
    lab.run_all(lab_page)
    lab_page.locator(".noUi-handle").focus()
    lab_page.keyboard.press("ArrowRight")
    lab_page.wait_for_timeout(500)
    assert lab_page.locator(".attention-caption").inner_text() == "calls: 2"


def test_a_picture_that_was_there_is_drawn_at_once_and_the_kernel_has_the_last_word(lab_page):
    lab.open_notebook(lab_page, lab_page.address, "notebooks/counting.ipynb")
    lab.run_all(lab_page)
    handle = lab_page.locator(".noUi-handle")
    handle.focus()
    lab_page.keyboard.press("ArrowRight")
    lab_page.locator(".attention-caption", has_text="calls: 2").wait_for()
    captions = handle.evaluate(
        """(handle) => {
            const caption = document.querySelector(".attention-caption");
            window.said = [];
            const note = () => window.said.push(caption.textContent);
            new MutationObserver(note).observe(caption, { childList: true });
            return ["ArrowLeft", "ArrowRight"].map((key) => {
                handle.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
                return caption.textContent;
            });
        }"""
    )
    assert captions == ["calls: 1", "calls: 2"]
    lab_page.locator(".attention-caption", has_text="calls: 4").wait_for()
    assert "calls: 3" not in lab_page.evaluate("window.said"), "a late answer was shown"
