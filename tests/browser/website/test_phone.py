"""Opening pictures and explorers on a phone: all that changes is seen together with what a finger changes it by.

Nobody wants motion here, so that a picture that plays is at its end as soon as it has been pressed.
"""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from attention_course.ladder import RUNGS

PAGES = ["", *(f"{rung.name}/" for rung in RUNGS)]
WIDTH, HEIGHT = 390, 844  # CSS pixels
ROOM = HEIGHT - 56  # below the line on top

# Parts that scroll inside themselves.
SCROLLING = """(part) => [part, ...part.querySelectorAll("*")].filter((node) =>
    !node.ownerSVGElement && node.clientWidth && getComputedStyle(node).display !== "inline"
    && (node.scrollWidth > node.clientWidth + 1 || (node.scrollHeight > node.clientHeight + 1
        && /auto|scroll/.test(getComputedStyle(node).overflowY)))
).map((node) => node.className || node.tagName)"""

# What is too small for a finger. A label belongs to its box to tick. What one points at may be smaller, but not than 24
# pixels, if a finger that misses it can glide there over others, and all of them together are large enough.
SMALL = """(part) => {
    const roles = ["slider", "button", "switch", "radio"].map((role) => `svg [role=${role}]`);
    const nodes = [...part.querySelectorAll(["button", "select", "input", ...roles].join())];
    const boxOf = (node) => {
        const parts = node.type === "checkbox" ? [node, node.labels[0]] : [node];
        const boxes = parts.map((each) => each.getBoundingClientRect());
        return {
            node, left: Math.min(...boxes.map((box) => box.left)), top: Math.min(...boxes.map((box) => box.top)),
            right: Math.max(...boxes.map((box) => box.right)), bottom: Math.max(...boxes.map((box) => box.bottom)),
        };
    };
    const targets = nodes.filter((node) => node.checkVisibility()).map(boxOf).filter((box) => box.right > box.left);
    const side = (box) => Math.min(box.right - box.left, box.bottom - box.top);
    const glides = ({ node }) => node.matches(".pointable");
    const touch = (a, b) => a.left < b.right + 8 && b.left < a.right + 8 && a.top < b.bottom + 8 && b.top < a.bottom + 8;
    const around = (box) => {
        const found = [box];
        for (const each of found) found.push(...targets.filter((other) => glides(other) && !found.includes(other) && touch(each, other)));
        return {
            left: Math.min(...found.map((box) => box.left)), top: Math.min(...found.map((box) => box.top)),
            right: Math.max(...found.map((box) => box.right)), bottom: Math.max(...found.map((box) => box.bottom)),
        };
    };
    return targets
        .filter((box) => side(box) < 43.5 && !(glides(box) && side(box) >= 24 && side(around(box)) >= 43.5))
        .map((box) => `${box.node.ariaLabel || box.node.textContent || box.node.name}: ${side(box)}`);
}"""

# Pixels from the first of some parts to the end of the last.
SPAN = """(whole, parts) => {
    const boxes = [...whole.querySelectorAll(parts)].map((node) => node.getBoundingClientRect()).filter((box) => box.height);
    return Math.max(...boxes.map((box) => box.bottom)) - Math.min(...boxes.map((box) => box.top));
}"""

SHIFTS = """
    window.shifts = [];
    new PerformanceObserver((list) => {
        for (const entry of list.getEntries()) {
            const moved = entry.sources.map(({ node }) => node?.className || node?.nodeName);
            if (!entry.hadRecentInput) window.shifts.push([entry.value, ...moved]);
        }
    }).observe({ type: "layout-shift", buffered: true });
"""


@pytest.fixture
def phone(visit):
    """Open a page on a phone, with what it folds unfolded and its explorers alive."""

    def opened(path: str, dark: bool = False):
        page = visit(path, width=WIDTH, dark=dark)
        page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
        for title in page.locator("details.more > summary").all():
            title.click()
        for explorer in page.locator(".explorer").all():
            explorer.scroll_into_view_if_needed()
            explorer.locator("[data-painted]").wait_for()
        return page

    return opened


def play(hero) -> None:
    """Play a picture to its end, after a guess if it asks for one."""
    guesses, button = hero.locator(".guess button"), hero.get_by_role("button", name="Play")
    if guesses.count():
        guesses.first.click()
        expect(hero.locator(".guess [role=status]")).to_have_text(re.compile(r"\w"), timeout=60_000)
    elif button.count():
        button.click()
        expect(hero.get_by_role("button", name="Pause")).to_have_count(0, timeout=60_000)


@pytest.mark.parametrize("path", PAGES)
def test_pictures_and_explorers_fit_a_phone_and_a_finger(phone, path):
    page = phone(path)
    for hero in page.locator(".attention-hero").all():
        assert hero.evaluate(SMALL) == []
        play(hero)
        assert hero.evaluate(SCROLLING) == []
        assert hero.evaluate(SMALL) == []
        assert hero.evaluate(SPAN, ".words, .controls, svg") <= ROOM
    for explorer in page.locator(".explorer").all():
        assert explorer.evaluate(SCROLLING) == []
        assert explorer.evaluate(SMALL) == []
        if explorer.evaluate(SPAN, ".controls, .attention-panels") <= ROOM:
            continue
        # There is more of it than fits: its controls stay in sight with each of its panels.
        controls = explorer.locator(".controls")
        for panel in explorer.locator(".attention-panels > div").all():
            panel.evaluate("(panel) => panel.scrollIntoView({ block: 'end' })")
            boxes = [part.bounding_box() for part in (controls, panel)]
            assert 0 <= boxes[0]["y"]
            assert boxes[0]["y"] + boxes[0]["height"] <= boxes[1]["y"] + 1
            assert boxes[1]["y"] + boxes[1]["height"] <= HEIGHT + 1
    assert page.evaluate("document.documentElement.scrollWidth") == WIDTH
    for dark in (False, True):
        page.emulate_media(color_scheme="dark" if dark else "light")
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()


@pytest.mark.parametrize("path", PAGES)
def test_nothing_moves_on_a_phone_while_a_page_loads_and_a_picture_plays(visit, path):
    visit("practice/", width=WIDTH).context.add_init_script(SHIFTS)
    page = visit(path, width=WIDTH)
    for hero in page.locator(".attention-hero").all():
        hero.scroll_into_view_if_needed()
        play(hero)
    for explorer in page.locator(".explorer").all():
        explorer.scroll_into_view_if_needed()
        if explorer.is_visible():
            explorer.locator("[data-painted]").wait_for()
    page.wait_for_timeout(600)
    assert page.evaluate("window.shifts") == []
