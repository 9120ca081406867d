"""What holds for every hero in a browser: it can be read, and moves by every way that it offers.

Nobody wants motion here, so that a state is there as soon as something is pressed: how a hero gets there, and
what it computes, is tested in `tests/scripts`.
"""

import re
from contextlib import contextmanager
from itertools import product

import lab
import pytest
from playwright.sync_api import expect

from attention_course.heroes import HEROES, hero

pytestmark = pytest.mark.slow

SMALLEST = 11  # CSS pixels of a letter

LETTERS = """(figure) => [...figure.querySelectorAll('text, p, button, label, figcaption, select, input')]
    .filter((node) => node.textContent.trim())
    .map((node) => [parseFloat(getComputedStyle(node).fontSize), node.textContent])"""

OUTSIDE = """(figure) => {
    const edge = figure.querySelector('svg').getBoundingClientRect();
    return [...figure.querySelectorAll('svg text')].filter((text) => {
        const style = getComputedStyle(text);
        if (!text.textContent.trim() || style.visibility === 'hidden' || style.opacity === '0') return false;
        const box = text.getBoundingClientRect();
        return box.width && (box.left < edge.left - 1 || box.right > edge.right + 1
            || box.top < edge.top - 1 || box.bottom > edge.bottom + 1);
    }).map((text) => text.textContent);
}"""

# A point at which a finger takes hold of a handle, the nearest to its middle.
HOLD = """(handle) => {
    const box = handle.getBoundingClientRect();
    const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
    const points = [];
    for (let i = 0.5; i < 10; i++) for (let j = 0.5; j < 10; j++) {
        points.push([box.x + (box.width * i) / 10, box.y + (box.height * j) / 10]);
    }
    points.sort((a, b) => Math.hypot(a[0] - x, a[1] - y) - Math.hypot(b[0] - x, b[1] - y));
    return points.find(([left, top]) => handle.contains(document.elementFromPoint(left, top)));
}"""


@contextmanager
def changed(figure):
    """Expect that a figure is drawn anew, and wait for it."""
    before = figure.evaluate("(figure) => figure.innerHTML")
    yield
    condition = "([figure, before]) => figure.innerHTML !== before"
    figure.page.wait_for_function(condition, arg=[figure.element_handle(), before], timeout=30_000)


@pytest.fixture(scope="module")
def browser(chromium_path, letters):
    """Start a browser whose letters are wider than most: with all others the texts have room, too."""
    with lab.browser(chromium_path, letters(1.1)) as started:
        yield started


@pytest.fixture(params=product(HEROES, (800, 376)), ids=lambda param: f"{param[0]}, {param[1]} px")
def figure(request, browser):
    """Open a page that holds one hero and nothing else; no error may be left in its console."""
    errors = []
    name, width = request.param
    page = browser.new_page(viewport={"width": width, "height": 800}, has_touch=True, reduced_motion="reduce")
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
    page.set_content(f"<!doctype html><meta charset=utf-8><body>{hero(name).page()}")
    yield page.locator(".attention-hero")
    page.close()
    assert not errors


def wait_for_the_end(figure) -> None:
    """Wait until nothing plays."""
    expect(figure.get_by_role("button", name="Pause")).to_have_count(0, timeout=60_000)


def test_it_can_be_read_and_every_way_to_move_it_does(figure):
    keyboard, devtools = figure.page.keyboard, figure.page.context.new_cdp_session(figure.page)
    expect(figure).to_have_attribute("data-values", re.compile("{"))
    expect(figure.locator("svg")).to_have_count(1)
    expect(figure.locator("img")).to_have_count(0)  # the still gives way to the picture that moves
    assert_legible(figure)
    guesses, play = figure.locator(".guess button"), figure.get_by_role("button", name="Play")
    if guesses.count():
        expect(play).to_be_hidden()
        guesses.first.click()
        expect(figure.locator(".guess [role=status]")).to_have_text(re.compile(r"\w"), timeout=60_000)
    if play.count():
        play.click()
        wait_for_the_end(figure)
    assert_legible(figure)

    def finger(kind: str, *points: dict[str, float]) -> None:
        devtools.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": list(points)})

    for handle in figure.locator("svg [role=slider]").all():
        with changed(figure):
            handle.focus()
            keyboard.press("ArrowLeft")
            keyboard.press("ArrowUp")
    for handle in figure.locator("svg [role=slider]").all()[:4]:
        x, y = handle.evaluate(HOLD)
        with changed(figure):
            finger("touchStart", {"x": x, "y": y})
            for share in (0.5, 1):
                finger("touchMove", {"x": x - 100 * share, "y": y + 25 * share})
            finger("touchEnd")
    for target in figure.locator("svg [role=button]").all()[:12]:
        target.focus()
        for key, pressed in (("Enter", "true"), ("Escape", "false")):
            keyboard.press(key)
            expect(target).to_have_attribute("aria-pressed", pressed)
    for button in figure.locator(".controls button").all():
        if button.is_enabled():  # one is not before another has led to an end
            with changed(figure):
                button.tap()
            wait_for_the_end(figure)


def assert_legible(figure) -> None:
    assert [text for size, text in figure.evaluate(LETTERS) if size < SMALLEST] == []
    assert figure.evaluate(OUTSIDE) == []


def test_what_a_finger_or_the_mouse_covers_is_covered(browser):
    """It captures the pointer, and a drawing of moved groups says which part is under it."""
    page = browser.new_page(has_touch=True, reduced_motion="reduce")
    page.set_content(f"<!doctype html><meta charset=utf-8><body>{hero('cross_and_causal').page()}")
    page.locator(".guess button").first.click()
    expect(page.locator(".guess [role=status]")).to_have_text(re.compile(r"\w"), timeout=60_000)
    switch = page.get_by_role("switch")
    switch.nth(5).tap()
    assert_covered(page, {5})
    page.get_by_role("button", name="Uncover").click()
    boxes = [switch.nth(at).bounding_box() for at in (12, 9)]
    (start, y), (end, _) = [(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2) for box in boxes]
    page.mouse.move(start, y)
    page.mouse.down()
    page.mouse.move(end, y, steps=3)
    page.mouse.up()
    assert_covered(page, {9, 10, 11, 12})
    page.get_by_label("Your date").fill("1 may 1000")
    page.locator(".words", has_text="It writes 1000-05-01").wait_for()
    page.close()


def assert_covered(page, places: set[int]) -> None:
    for at in range(13):
        expect(page.get_by_role("switch").nth(at)).to_have_attribute(
            "aria-checked", str(at in places).lower()
        )
