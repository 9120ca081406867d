"""A class in Chromium: two phones vote against the teacher's screen, on light and on dark pages."""

import lab
import pytest
from axe_playwright_python.sync_playwright import Axe
from classes import opened
from playwright.sync_api import expect

PHONE, LAPTOP = {"width": 390, "height": 844}, {"width": 1280, "height": 800}


@pytest.fixture
def a_class(tmp_path):
    with opened(tmp_path) as made:
        yield made


@pytest.fixture
def visit(chromium_path):
    """Open a page with cookies of its own; at the end none has raised an error or met its policy."""
    wrong = []
    with lab.browser(chromium_path) as browser:

        def opened_page(address, viewport, dark=False, script=True):
            context = browser.new_context(
                viewport=viewport, color_scheme="dark" if dark else "light", java_script_enabled=script
            )
            page = context.new_page()
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
            page.goto(address)
            return page

        yield opened_page
    assert [said for said in wrong if "409 (Conflict)" not in said] == []  # a vote that came too late


def look(page):
    """It fits, can be touched, and violates nothing of WCAG."""
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for button in page.locator("button").all():
        assert button.bounding_box()["height"] >= 44
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


def test_two_phones_vote_talk_and_vote_again(a_class, visit):
    teacher = visit(a_class.teacher, LAPTOP)
    ann, bob = visit(a_class.phones, PHONE), visit(a_class.phones, PHONE, dark=True)
    pages, counted = (teacher, ann, bob), teacher.locator(".bar")
    assert teacher.url.endswith("/screen/")  # without the secret
    expect(teacher.get_by_role("status")).to_have_text("2 phones")
    assert teacher.get_by_role("img").evaluate("image => image.naturalWidth > 0")
    teacher.get_by_role("button", name="Begin").click()

    ann.get_by_role("button", name="A None").click()
    expect(ann.get_by_role("status")).to_contain_text("You chose A")
    expect(teacher.get_by_role("status")).to_have_text("1 of 2 have voted")
    bob.get_by_role("button", name="A None").focus()
    bob.keyboard.press("Enter")
    expect(teacher.get_by_role("status")).to_have_text("everybody has voted (2)")
    expect(bob.get_by_role("button", name="A None")).to_be_focused()  # what is new does not take it away
    bob.get_by_role("button", name="B 1 / 2").click()
    expect(bob.get_by_role("button", name="B 1 / 2")).to_have_attribute("aria-pressed", "true")
    for page in pages:
        look(page)
    expect(counted).to_have_count(0)
    teacher.get_by_role("button", name="Show the votes").click()
    expect(counted).to_have_text(["first 1 (50 %)", "first 1 (50 %)", "first 0 (0 %)"])
    expect(ann.get_by_role("button", name="A None")).to_be_disabled()

    teacher.get_by_role("button", name="Vote again").click()
    expect(ann.get_by_role("status")).to_contain_text("Vote again")
    for page in (ann, bob):
        page.get_by_role("button", name="B 1 / 2").click()
    expect(teacher.get_by_role("status")).to_have_text("everybody has voted (2)")
    teacher.get_by_role("button", name="Show the votes").click()
    expect(counted.nth(2)).to_have_text("first 1 (50 %)")
    expect(counted.nth(3)).to_have_text("second 2 (100 %)")
    teacher.get_by_role("button", name="Explain").click()
    for page in pages:
        expect(page.get_by_text("One of two equal parts.")).to_be_visible()
        look(page)
    teacher.get_by_role("button", name="Next question").click()
    for page in (ann, bob):
        expect(page.locator("[aria-pressed=true]")).to_have_count(0)
    assert sorted(a_class.session.votes[0][2].values()) == [1, 1]


def test_a_vote_that_comes_too_late_is_told_so(a_class, visit):
    teacher, phone = visit(a_class.teacher, LAPTOP), visit(a_class.phones, PHONE)
    teacher.get_by_role("button", name="Begin").click()
    button = phone.get_by_role("button", name="A None")
    expect(button).to_be_visible()
    a_class.session.act("show", "half", "first")
    button.evaluate("button => { button.disabled = false; button.click(); }")
    expect(phone.get_by_role("alert")).to_contain_text("This vote is closed")
    assert a_class.session.votes == [{}, {}]


def test_it_works_without_scripts(a_class, visit):
    phone = visit(a_class.phones, PHONE, script=False)
    a_class.session.act("begin", "half", "join")
    phone.reload()
    phone.get_by_role("button", name="B 1 / 2").click()
    expect(phone.get_by_role("status")).to_contain_text("You chose B")
    assert a_class.session.counts(1) == [0, 1, 0]
