"""What holds for every hero: it runs, it moves by every way that it offers, and all of it can be read."""

import pytest

from attention_course.heroes import HEROES

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


@pytest.fixture(params=HEROES)
def name(request) -> str:
    return request.param


def play_to_the_end(hero) -> None:
    """Press Play where there is an order in time, and wait until it stops."""
    play = hero.figure.get_by_role("button", name="Play")
    if play.count():
        play.first.click()
        play.first.wait_for(timeout=60_000)


@pytest.mark.parametrize("show", [1.1], ids="letters x {}".format, indirect=True)
def test_it_runs_and_can_be_read(show, name):
    hero = show(name, reduced_motion="reduce")
    assert hero.figure.locator("svg").count() == 1
    assert not hero.figure.locator("img").count(), "the still gives way to the picture that moves"
    hero.settle()
    for state in ("at first", "at the end"):
        too_small = [text for size, text in hero.figure.evaluate(LETTERS) if size < SMALLEST]
        assert not too_small, state
        assert not hero.figure.evaluate(OUTSIDE), state
        play_to_the_end(hero)
    assert hero.values
    assert not hero.errors


def test_keys_move_whatever_can_be_dragged(show, name):
    hero = show(name)
    hero.settle()
    for handle in hero.figure.locator("svg [role=slider]").all():
        before = hero.drawing()
        handle.focus()
        hero.page.keyboard.press("ArrowLeft")
        hero.page.keyboard.press("ArrowUp")
        hero.settle()
        assert hero.drawing() != before, handle.get_attribute("aria-label")
    assert not hero.errors


def test_a_finger_drags_whatever_can_be_dragged(show, name):
    hero = show(name, has_touch=True)
    hero.settle()
    devtools = hero.page.context.new_cdp_session(hero.page)

    def finger(kind: str, *points: dict[str, float]) -> None:
        devtools.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": list(points)})

    for handle in hero.figure.locator("svg [role=slider]").all()[:4]:
        before = hero.drawing()
        x, y = handle.evaluate(HOLD)
        finger("touchStart", {"x": x, "y": y})
        for share in (0.5, 1):
            finger("touchMove", {"x": x - 100 * share, "y": y + 25 * share})
        finger("touchEnd")
        hero.settle()
        assert hero.drawing() != before, handle.get_attribute("aria-label")
    assert not hero.errors


def test_keys_reach_whatever_can_be_pointed_at(show, name):
    hero = show(name)
    hero.settle()
    for target in hero.figure.locator("svg [role=button]").all()[:12]:
        target.focus()
        hero.page.keyboard.press("Enter")
        assert target.get_attribute("aria-pressed") == "true"
        hero.page.keyboard.press("Escape")
        assert target.get_attribute("aria-pressed") == "false"
    assert not hero.errors


def test_touch_and_mouse_press_its_buttons(show, name):
    for touch in (False, True):
        hero = show(name, has_touch=touch)
        hero.settle()
        for button in hero.figure.locator(".controls button").all():
            if button.is_disabled():  # as one before it has led to an end
                continue
            before = hero.drawing()
            button.tap() if touch else button.click()
            hero.settle()
            assert hero.drawing() != before, button.text_content()
        assert not hero.errors


def test_who_wants_no_motion_gets_the_end_state(show, name):
    hero = show(name, reduced_motion="reduce")
    hero.page.wait_for_timeout(50)
    play_to_the_end(hero)
    still = hero.drawing()
    hero.settle()
    assert hero.drawing() == still
    assert not hero.errors
