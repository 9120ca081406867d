"""The explorers as instruments: legible in any window, read by pointer and keys, unharmed by a restart."""

import re

import lab
import pytest
from playwright.sync_api import expect

from attention_course.explorers import EXPLORERS, explore

SMALLEST = 11  # pixels of a letter
FONTS = """
window.fonts = new Set();
const fillText = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (...given) {
    window.fonts.add(parseFloat(this.font));
    fillText.apply(this, given);
};
"""


@pytest.fixture(scope="module")
def page(chromium_path):
    """Give a page of a running lab, on which each explorer stands once."""
    cells = ["from attention_course.explorers import explore", *(f"explore({name!r})" for name in EXPLORERS)]
    extra = {"explorers.ipynb": lab.notebook_of(cells)}
    with lab.jupyter_lab(extra) as address, lab.browser_page(chromium_path) as page:
        page.add_init_script(FONTS)
        lab.open_notebook(page, address, "notebooks/explorers.ipynb")
        lab.run_all(page)
        expect(page.locator(".attention-explorer")).to_have_count(len(EXPLORERS))
        yield page


def explorer_of(page, name):
    explorer = page.locator(".attention-explorer").nth(list(EXPLORERS).index(name))
    explorer.scroll_into_view_if_needed()
    return explorer


def press(page, target, *keys):
    target.focus()
    for key in keys:
        page.keyboard.press(key)


def slider_of(explorer):
    """Return the name of the first control with a handle, and its last value."""
    dragged = {key for panel in explorer.figure.panels for key in getattr(panel, "controls", ())}
    for key, control in explorer.controls.items():
        if key not in dragged and (hasattr(control, "max") or "Slider" in type(control).__name__):
            return key, control.max if hasattr(control, "max") else control.options[-1]


def test_a_burst_of_keys_ends_on_the_picture_of_the_last_value_and_its_words(page):
    for name in EXPLORERS:
        python = explore(name)
        if slider := slider_of(python):
            key, last = slider
            python.controls[key].value = last
            explorer = explorer_of(page, name)
            steps = len(getattr(python.controls[key], "options", range(100)))
            press(page, explorer.locator(".noUi-handle").first, "Home", *steps * ["ArrowRight"])
            words = python.figure.caption
            expect(explorer.locator("[aria-live]"), name).to_have_text(words)
            expect(explorer.locator(".attention-panels")).to_have_attribute(
                "aria-label", re.compile(re.escape(words) + "$")
            )


def places_of(explorer):
    return explorer.evaluate(
        "(e) => [...e.querySelectorAll('canvas')].map((c) => [c.offsetLeft, c.width, c.height])"
    )


@pytest.mark.parametrize(
    "name", ["tril_matmul", "query_key_value", "cross_and_causal", "multi_head", "rotary", "heads"]
)
def test_panels_stay_where_they_are_while_a_slider_moves(name, page):
    explorer = explorer_of(page, name)
    places = places_of(explorer)
    with lab.new_picture(explorer):  # a slider that another test has moved is at its end
        for handle in explorer.locator(".noUi-handle").all():
            for key, end in (("End", "aria-valuemax"), ("Home", "aria-valuemin")):
                press(page, handle, key)
                expect(handle).to_have_attribute("aria-valuenow", handle.get_attribute(end))
                assert places_of(explorer) == places
    assert places_of(explorer) == places


# The parts of an explorer that stick out of it; what stands in a box that scrolls does not.
CLIPPED = """(explorer) => {
    const right = explorer.getBoundingClientRect().right + 1;
    const parts = "canvas, p, .attention-title, .widget-label, .widget-readout, .noUi-target";
    return [...explorer.querySelectorAll(parts)]
        .map((part) => part.closest(".attention-panels > div") ?? part)
        .filter((part) => part.getBoundingClientRect().right > right)
        .map((part) => `${part.tagName} ${part.className} ${part.innerText}`);
}"""


def test_each_fits_into_a_small_window_at_its_largest_and_can_be_read(page):
    panel = page.locator(".jp-WindowedPanel-outer").first
    window = panel.evaluate("(panel) => [panel.clientWidth, panel.clientHeight]")
    for name in EXPLORERS:
        explorer = explorer_of(page, name)
        for handle in explorer.locator(".noUi-handle").all():
            press(page, handle, "End")
            expect(handle).to_have_attribute("aria-valuenow", handle.get_attribute("aria-valuemax"))
        width, height = (explorer.bounding_box()[side] for side in ("width", "height"))
        assert width <= window[0], name
        assert height <= window[1], name
        assert explorer.evaluate(CLIPPED) == [], name
        sizes = explorer.evaluate(
            "(e) => [...e.querySelectorAll('*')].filter((p) => p.innerText?.trim())"
            ".map((p) => parseFloat(getComputedStyle(p).fontSize))"
        )
        assert min(sizes) >= SMALLEST
    assert min(page.evaluate("[...window.fonts]")) >= SMALLEST
    page.set_viewport_size({"width": 640, "height": 400})  # as many CSS pixels as 1280 x 800 has at 200 %
    expect(page.locator(".attention-explorer").first).not_to_have_css("width", f"{width}px")
    for name in EXPLORERS:
        assert explorer_of(page, name).evaluate(CLIPPED) == [], name
    page.set_viewport_size({"width": 1280, "height": 800})


def test_a_text_is_typed_and_the_query_follows_it(page):
    explorer = explorer_of(page, "heads")
    text, off = explorer.locator("input[type=text]").all()
    caption, alert = explorer.locator(".attention-caption"), explorer.locator("[role=alert]")
    text.fill("Ann and Ann")
    text.press("Enter")
    expect(caption).to_contain_text("Query 10 “n” looks at character")
    expect(explorer.locator(".noUi-handle").last).to_have_attribute("aria-valuemax", "10.0")
    off.fill("7")
    off.press("Enter")
    expect(alert).to_contain_text("“7” is not a head")
    off.fill("0.1, 2.3")
    off.press("Enter")
    expect(caption).to_contain_text("without 0.1, 2.3, “")
    expect(alert).to_have_text("")


def test_cells_are_read_by_pointer_and_keys_which_leave_the_notebook_alone(page):
    explorer = explorer_of(page, "tril_matmul")
    for handle in explorer.locator(".noUi-handle").all():
        press(page, handle, "End")
    readout, canvas = explorer.locator(".attention-readout"), explorer.locator("canvas").first
    area = canvas.bounding_box()
    page.mouse.click(area["x"] + 46 + 2.5 * 31, area["y"] + 4 + 3.5 * 31)
    page.mouse.move(5, 5)
    expect(readout).to_contain_text(
        "Pinned: output t = 3 “␣”, token s = 2 “?”: 0.25. Its row: 0.25 0.25 0.25 0.25 0.00"
    )
    active = page.locator(".jp-Notebook .jp-Cell.jp-mod-active")
    expect(active.locator(".attention-explorer")).to_have_count(1)  # the click made the cell the active one
    press(page, canvas, "Escape")
    page.mouse.move(5, 5)
    for key, at in (
        ("ArrowUp", "t = 2 “?”, token s = 2 “?”: 0.33"),
        ("ArrowLeft", "t = 2 “?”, token s = 1 “t”: 0.33"),
        ("ArrowDown", "t = 3 “␣”, token s = 1 “t”: 0.25"),
    ):
        press(page, canvas, key)
        expect(readout).to_contain_text(at)
    expect(canvas).to_have_css("outline-style", "solid")
    expect(active.locator(".attention-title").first).to_contain_text("weights")


def test_every_control_shows_where_the_focus_is(page):
    looks = (
        "(c) => JSON.stringify(['outlineStyle', 'outlineWidth', 'boxShadow', 'borderColor']"
        ".map((key) => getComputedStyle(c)[key]))"
    )
    for control in page.locator(".attention-explorer :is(.noUi-handle, input, select, button)").all():
        page.evaluate("document.activeElement.blur()")
        before = control.evaluate(looks)
        press(page, control, "Shift")
        assert control.evaluate(looks) != before, control.evaluate("(c) => c.outerHTML")


def test_a_recipe_is_trained_by_its_button_until_it_is_stopped(page):
    explorer = explorer_of(page, "recipes")
    train = explorer.get_by_role("button", name="Train it here")
    train.click()
    explorer.get_by_text(re.compile(r"^step \d+ of")).wait_for()
    expect(train).to_be_disabled()
    explorer.get_by_role("button", name="Stop").click()
    explorer.get_by_text(re.compile(r"^stopped after step \d+ of")).wait_for()
    explorer.get_by_text(re.compile(r"^answer accuracy \d\.\d\d after .* on this machine$")).wait_for()
    expect(train).to_be_enabled()


def test_a_restarted_kernel_leaves_the_last_picture_standing(page):
    before = page.evaluate(lab.PIXELS, page.locator(".jp-Notebook").element_handle())
    page.click(".lm-MenuBar-item:has-text('Kernel')")
    page.click(".lm-Menu-item:has-text('Restart Kernel…') >> nth=0")
    page.click(".jp-Dialog button:has-text('Restart')")
    page.locator('[data-status="restarting"], [data-status="starting"]').first.wait_for(state="attached")
    page.locator('[data-status="idle"]').first.wait_for(state="attached")
    assert page.evaluate(lab.PIXELS, page.locator(".jp-Notebook").element_handle()) == before
