"""The pages in a browser: what they load, how they look at each width and in each theme, and what they do.

No test here uses `wait_for_function`: it calls `eval`, which the policy of the pages forbids.
"""

import re
from functools import partial

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Route, expect

from attention_course.ladder import RUNGS
from attention_course.questions import BACK, QUESTIONS

PAGES = ["", *(f"{rung.name}/" for rung in RUNGS)]


@pytest.mark.parametrize("chromium", [1.15], ids="letters x {}".format, indirect=True)
@pytest.mark.parametrize("path", [*PAGES, "practice/", "teach/"])
def test_a_page_fits_any_screen_draws_all_and_violates_nothing_of_wcag(visit, path):
    """And asks nobody else, which `visit` checks."""
    page = visit(path, width=360)
    page.evaluate("for (const image of document.images) image.loading = 'eager'")
    page.evaluate("Promise.all([...document.images].map((image) => image.decode()))")
    heroes = page.locator(".attention-hero")
    assert heroes.count() == page.locator(".attention-hero svg[role=group]").count()
    assert heroes.count() or path in ("practice/", "teach/")
    for task in page.locator("details:is(.task, .lesson) > summary").all():
        task.click()
    for explorer in page.locator(".explorer").all():
        explorer.scroll_into_view_if_needed()
        explorer.locator("[data-painted]").first.wait_for()
    for width in (2560, 1280, 768, 360):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") == width
        if width in (360, 1280):  # each with the colours of one theme, which do not depend on the width
            dark = width == 360
            page.emulate_media(color_scheme="dark" if dark else "light")
            expect(page.locator("body")).to_have_attribute("data-jp-theme-light", str(not dark).lower())
            found = Axe().run(page)
            assert found.violations_count == 0, found.generate_report()


def test_a_picture_moves_after_a_guess(visit):
    page = visit("01_bag_of_words/")
    hero = page.locator("[data-hero=bag_of_words]")
    before = hero.get_attribute("data-values")
    hero.get_by_role("button", name="The last").click()
    expect(hero).not_to_have_attribute("data-values", before)


def unfold(page):
    for title in page.locator("details.more > summary").all():
        title.click()


# Questions


@pytest.fixture
def question(visit):
    """The first question of rung 1, and a way to come back to it."""

    def opened():
        return visit("01_bag_of_words/").locator("[data-question=mean_at_one]")

    return opened


WRONG, RIGHT = (
    next(choice for choice in QUESTIONS["mean_at_one"]["choices"] if choice.get("right", False) is right)
    for right in (False, True)
)


def forget(page) -> None:
    page.once("dialog", lambda asked: asked.accept())
    page.get_by_role("button", name="Forget my answers").click()


def test_a_choice_explains_itself_in_place_of_the_others_until_it_is_forgotten(question):
    asked = question()
    others, status = asked.locator(".attention-choices button"), asked.get_by_role("status")
    assert others.count() == 4
    expect(status).not_to_be_visible()
    for chosen, verdict in ((WRONG, "Not this one."), (RIGHT, "Right.")):
        asked.get_by_role("button", name=chosen["text"]).click()
        expect(status).to_have_text(f"{verdict} {chosen['explanation']}")
        expect(others.filter(visible=True)).to_have_text([re.compile(re.escape(chosen["text"]) + "$")])
        expect(question().get_by_role("status")).to_have_text(f"{verdict} {chosen['explanation']}")
        asked.get_by_role("button", name=BACK).click()
        expect(others.filter(visible=True)).to_have_count(4)
    forget(asked.page)
    expect(asked.page.locator(".attention-answered, .attention-right")).to_have_count(0)
    asked.get_by_role("button", name="Skip").click()
    for shown in (asked, question()):
        expect(shown.get_by_role("status")).to_have_text(f"This is the answer. {RIGHT['explanation']}")


def test_a_question_can_be_answered_by_keyboard(question):
    asked = question()
    asked.locator(".attention-choices button").first.focus()
    press, status = asked.page.keyboard.press, asked.get_by_role("status")
    press("Tab")
    press("Enter")
    expect(status).to_contain_text("Not this one. ")
    press("Enter")  # the focus is on the way back
    expect(status).not_to_be_visible()
    press("Space")
    expect(status).to_be_visible()


def test_a_browser_that_keeps_nothing_asks_all_the_same(visit):
    page = visit("")
    page.context.add_init_script(
        "Object.defineProperty(window, 'localStorage', { get() { throw new Error('refused'); } })"
    )
    asked = visit("01_bag_of_words/").locator("[data-question=mean_at_one]")
    asked.get_by_role("button", name="Skip").click()
    expect(asked.get_by_role("status")).to_be_visible()
    asked.page.get_by_role("button", name="Dark").click()
    expect_dark(asked.page)
    forget(asked.page)
    asked.get_by_role("status").wait_for(state="hidden")


OF_OTHERS = ["", "{}", '[{"toString": 5}]', '["javascript:alert(1)//", "//evil.example", "../elsewhere"]']


@pytest.mark.parametrize("kept", OF_OTHERS)
def test_what_another_page_of_the_server_has_kept_is_not_trusted(visit, kept):
    keys = ["attention-rung", "attention-theme", *(f"attention-question {name}" for name in QUESTIONS)]
    page = visit("", dark=True)
    page.evaluate("([keys, kept]) => keys.forEach((key) => localStorage.setItem(key, kept))", [keys, kept])
    door = visit("", dark=True).locator(".door")
    assert (door.inner_text(), door.get_attribute("href")) == ("Start with rung 1", "01_bag_of_words/")
    page = visit("01_bag_of_words/", dark=True)
    expect_dark(page)  # as the system says
    for question in page.locator(".attention-question").all():
        question.get_by_role("button", name="Skip").click()
        expect(question.get_by_role("status")).to_be_visible()
    search(page, "rotary").first.wait_for()
    page.get_by_role("button", name="Close").click()
    forget(page)
    assert not visit("01_bag_of_words/", dark=True).locator(".attention-answered").count()


def test_hints_come_one_by_one(visit):
    exercise = visit("01_bag_of_words/").locator("[data-exercise=causal_mean_loop]")
    hints, solution = exercise.locator(".hint").filter(visible=True), exercise.locator(".solution pre")
    expect(hints).to_have_count(1)
    hints.first.locator("summary").press("Enter")  # a click may miss while the page above still grows
    expect(hints).to_have_count(2)
    expect(solution).not_to_be_visible()
    exercise.locator(".solution summary").press("Enter")
    expect(solution).to_contain_text("def causal_mean_loop")


# Around the text


def expect_dark(page, dark: bool = True) -> None:
    expect(page.locator("body")).to_have_attribute("data-jp-theme-light", str(not dark).lower())


def test_the_theme_is_the_system_s_until_the_switch_says_otherwise(visit):
    page = visit("04_query_key_value/")
    picture = page.locator(".output > img").first
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        expect_dark(page, scheme == "dark")
    expect(page.locator("body")).to_have_css("background-color", "rgb(255, 255, 255)")
    picture.scroll_into_view_if_needed()
    light = picture.screenshot(animations="disabled")
    page.get_by_role("button", name="Dark").click()
    expect_dark(page)
    expect(page.locator("body")).not_to_have_css("background-color", "rgb(255, 255, 255)")
    assert picture.screenshot(animations="disabled") != light, "a file of its own, which follows the page"
    later = visit("02_tril_matmul/")
    expect_dark(later)
    later.get_by_role("button", name="Dark").click()
    expect_dark(visit(""), dark=False)


def test_the_front_page_leads_back_to_the_last_rung(visit):
    assert visit("").locator(".door").inner_text() == "Start with rung 1"
    visit("03_masked_softmax/")
    page = visit("")
    page.get_by_role("link", name="Go on with rung 3 masked softmax").click()
    assert "/03_masked_softmax/" in page.url
    front = visit("")
    forget(front)
    front.get_by_role("link", name="Start with rung 1").wait_for()


def test_a_result_stays_veiled_until_its_question_is_answered(visit):
    page = visit("02_tril_matmul/")
    veiled = page.locator(".veiled")
    before = veiled.count()
    assert before >= 3
    unfold(page)
    for question in page.locator(".attention-question").all():
        question.get_by_role("button", name="Skip").click()
    expect(veiled).to_have_count(0)
    again = visit("03_masked_softmax/")
    unfold(again)
    first = again.locator(".veiled").first
    assert first.locator(":scope > *").first.evaluate("(part) => part.inert")
    others = again.locator(".veiled").count()
    first.click()
    expect(again.locator(".veiled")).to_have_count(others - 1)


def search(page, words):
    """Search, and return the links that are found, when they come."""
    page.keyboard.press("/")
    page.get_by_role("searchbox").fill(words)
    return page.locator("#search-results a")


@pytest.mark.parametrize("worker", ["", "delete window.Worker"], ids=["in a worker", "in the page"])
def test_search_finds_a_rung_and_its_heading(visit, worker):
    visit("").context.add_init_script(worker)
    page = visit("01_bag_of_words/")
    results = search(page, "rotary")
    results.first.wait_for()
    link = next(link for link in results.all() if "09_a_real_model/" in link.get_attribute("href"))
    link.click()
    page.wait_for_url("**/attention/09_a_real_model/**")


MISSED = "localStorage.setItem('attention-review question mean_at_one', '[\"2020-01-01\", \"1\"]')"
PLACES = {  # the page, the files that do not come, and where it says so
    "This fill": ("01_bag_of_words/", "fills/*", "[data-fill=mean_of_the_past]"),
    "These questions": ("02_tril_matmul/", "again/questions/*", "[data-warm-up]"),
    "Your review": ("review/", "again/minutes.json", "#things"),
    "This question": ("review/", "again/questions/*", "#things"),
}


@pytest.fixture
def without(chromium, address):
    """A page to which some files do not come; at the end, it has raised no error, but for Pagefind's own."""
    page, wrong = chromium.new_page(), []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.add_init_script(MISSED)

    def opened(path, files, status=None):
        refuse = partial(Route.fulfill, status=status) if status else Route.abort
        page.route(address + files, lambda route: refuse(route))
        page.goto(address + path)
        return page

    yield opened
    page.close()
    assert [error for error in wrong if "Pagefind" not in error] == []


@pytest.mark.parametrize("status", [None, 503], ids=["without a network", "refused"])
@pytest.mark.parametrize("what", PLACES)
def test_what_does_not_come_is_told_and_asked_for_again(without, what, status):
    path, files, selector = PLACES[what]
    page = without(path, files, status)
    place = page.locator(selector)
    place.evaluate("(place) => place.scrollIntoView()")
    alert = place.get_by_role("alert")
    for _ in range(2):
        expect(alert).to_contain_text(f"{what} could not be loaded: {status or ''}")
        alert.get_by_role("button").press("Enter")
    expect(alert.get_by_role("button")).to_be_focused()
    page.unroute_all()
    alert.get_by_role("button").press("Enter")
    expect(alert).to_have_count(0)
    expect(place.get_by_role("button")).not_to_have_count(0)


@pytest.mark.parametrize("file", ["pagefind.js*", "pagefind-entry.json*"])
def test_a_search_without_its_files_says_so_and_tries_again(without, file):
    page = without("01_bag_of_words/", f"pagefind/{file}")
    results, alert = search(page, "rotary"), page.locator("#search").get_by_role("alert")
    expect(alert).to_contain_text("The search could not be loaded: ")
    assert results.count() == 0
    page.unroute_all()
    alert.get_by_role("button").press("Enter")
    results.first.wait_for()
    expect(alert).to_have_count(0)


def test_the_front_page_needs_no_review(without):
    page = without("", "again/minutes.json")
    page.wait_for_load_state("networkidle")
    expect(page.locator(".doors")).to_contain_text("Review")


def test_on_a_phone_the_ladder_is_behind_a_button(visit):
    page = visit("02_tril_matmul/", width=360)
    ladder = page.get_by_role("navigation", name="Rungs", exact=True)
    assert not ladder.is_visible()
    page.get_by_role("button", name="Menu").click()
    ladder.get_by_role("link", name="masked softmax").click()
    page.wait_for_url("**/03_masked_softmax/")


def test_what_is_read_is_marked(visit):
    page = visit("01_bag_of_words/")
    page.evaluate("document.querySelector('#break-it').scrollIntoView()")
    page.locator("#ladder [data-read]", has_text="Break it").wait_for()


def test_in_print_there_is_the_text_and_nothing_around_it(visit):
    page = visit("01_bag_of_words/", dark=True)
    page.emulate_media(media="print")
    for around in ("header", "#ladder", ".neighbours", "footer button"):
        expect(page.locator(around).first).not_to_be_visible()
    for event, dark in (("beforeprint", False), ("afterprint", True)):
        page.evaluate(f"dispatchEvent(new Event('{event}'))")
        expect_dark(page, dark)


# Scripts


@pytest.mark.parametrize(
    "attack",
    [
        "<script>ran()</script>",
        "<img src='' onerror='ran()'>",
        "<a href='javascript:ran()'>Go on</a>",
        "<script src='data:text/javascript,ran()'></script>",
        "<script src='{elsewhere}/script.js'></script>",
    ],
)
def test_what_is_smuggled_into_a_page_does_not_run(chromium, address, serve, tmp_path, attack):
    (tmp_path / "script.js").write_text("ran()")
    page = chromium.new_page()
    page.goto(address)
    attempt = """(html) => new Promise((ends) => {
        window.ran = () => ends("ran");
        addEventListener("securitypolicyviolation", (event) => ends(event.effectiveDirective));
        document.body.append(document.createRange().createContextualFragment(html));
        document.body.lastChild.click();
    })"""
    assert page.evaluate(attempt, attack.format(elsewhere=serve(tmp_path))).startswith("script-src")
    page.close()


@pytest.mark.parametrize("path", PAGES)
def test_without_javascript_all_can_be_read_and_no_control_is_dead(chromium, address, path):
    page = chromium.new_page(java_script_enabled=False, viewport={"width": 360, "height": 800})
    page.goto(address + path)
    controls = [each for each in page.locator("button, input, select").all() if each.is_visible()]
    assert [each.get_attribute("popovertarget") for each in controls] == ["ladder"] * bool(path)
    assert page.locator(".unscripted").is_visible()
    unfold(page)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    for question in page.locator(".attention-question").all():
        choices = QUESTIONS[question.get_attribute("data-question")]["choices"]
        texts = [choice["text"].replace("`", "") for choice in choices]
        assert question.locator("li:visible").all_inner_texts() == texts
    page.close()
