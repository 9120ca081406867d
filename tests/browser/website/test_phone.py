"""Opening pictures and explorers on a phone: all that changes is seen together with what changes it.

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
SCROLLING = """(part) => [part, ...part.querySelectorAll("*")].filter((node) => {
    const { display, overflowY } = getComputedStyle(node);
    if (node.ownerSVGElement || !node.clientWidth || display === "inline") return false;
    const down = ["auto", "scroll"].includes(overflowY) && node.scrollHeight > node.clientHeight + 1;
    return down || node.scrollWidth > node.clientWidth + 1;
}).map((node) => node.className || node.tagName)"""

# What is too small for a finger. A label belongs to its box to tick. What one points at may be smaller, down
# to 24 pixels, if a finger that misses it can glide there over others, and together they are large enough.
SMALL = """(part) => {
    const roles = ["slider", "button", "switch", "radio"].map((role) => `svg [role=${role}]`);
    const around = (boxes) => ({
        left: Math.min(...boxes.map(({ left }) => left)), top: Math.min(...boxes.map(({ top }) => top)),
        right: Math.max(...boxes.map(({ right }) => right)),
        bottom: Math.max(...boxes.map(({ bottom }) => bottom)),
    });
    const targets = [...part.querySelectorAll(["button", "select", "input", ...roles].join())]
        .filter((node) => node.checkVisibility() && node.getBoundingClientRect().width)
        .map((node) => {
            const parts = node.type === "checkbox" ? [node, node.labels[0]] : [node];
            return { node, ...around(parts.map((each) => each.getBoundingClientRect())) };
        });
    const side = ({ left, right, top, bottom }) => Math.min(right - left, bottom - top);
    const gliding = targets.filter(({ node }) => node.matches(".pointable"));
    const beside = (a, b) =>
        a.left < b.right + 8 && b.left < a.right + 8 && a.top < b.bottom + 8 && b.top < a.bottom + 8;
    const row = (target) => {
        const found = [target];
        for (const each of found) {
            found.push(...gliding.filter((other) => !found.includes(other) && beside(each, other)));
        }
        return around(found);
    };
    const glides = (target) => gliding.includes(target) && side(target) >= 24 && side(row(target)) >= 43.5;
    return targets
        .filter((target) => side(target) < 43.5 && !glides(target))
        .map((target) => `${target.node.ariaLabel || target.node.textContent}: ${side(target)}`);
}"""

# Pixels from the first of some parts to the end of the last.
SPAN = """(whole, parts) => {
    const all = [...whole.querySelectorAll(parts)].map((node) => node.getBoundingClientRect());
    const boxes = all.filter(({ height }) => height);
    return Math.max(...boxes.map(({ bottom }) => bottom)) - Math.min(...boxes.map(({ top }) => top));
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
            assert boxes[0]["y"] >= 0
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
