"""What `make lab` opens: one document in a quiet frame, and the hero at work before a cell has run."""

import lab
import pytest


@pytest.fixture(scope="module")
def page(chromium_path):
    with lab.jupyter_lab() as address, lab.browser_page(chromium_path) as page:
        page.goto(address)
        page.locator(".attention-course .attention-hero svg").first.wait_for(timeout=60_000)
        page.wait_for_timeout(3000)
        yield page


def test_it_opens_the_learners_copy_of_the_first_rung_alone(page):
    assert "/doc/tree/my_notebooks/01_bag_of_words.ipynb" in page.url
    assert page.locator(".jp-DirListing").count() == 0 or not page.locator(".jp-DirListing").is_visible()


def test_the_page_has_the_window_but_for_the_menu_and_the_contents(page):
    assert not page.locator("#jp-title-panel-title").is_visible()
    assert not page.locator(".jp-SideBar.jp-mod-right").is_visible()
    assert page.locator("#jp-menu-panel").is_visible()
    height = page.locator(".jp-WindowedPanel-outer").bounding_box()["height"]
    assert height >= page.viewport_size["height"] - 60, "a status bar has 24 pixels, the title 28"


def test_nothing_is_unsaved(page):
    assert page.locator(".jp-mod-dirty").count() == 0


def test_the_table_of_contents_stands_beside_the_page(page):
    contents = page.locator("#table-of-contents")
    assert contents.is_visible()
    assert "Predict" in contents.inner_text()


@pytest.mark.parametrize("width", [1024, 1280, 1920])
def test_a_line_has_about_75_characters(page, width):
    page.set_viewport_size({"width": width, "height": 800})
    page.wait_for_timeout(500)
    characters = page.locator(".jp-MarkdownOutput p").first.evaluate("""(paragraph) => {
        const pen = document.createElement('canvas').getContext('2d');
        const style = getComputedStyle(paragraph);
        pen.font = `${style.fontSize} ${style.fontFamily}`;
        const letters = 'the quick brown fox jumps over the lazy dog and reads on ';
        return paragraph.clientWidth / (pen.measureText(letters).width / letters.length);
    }""")
    assert 60 <= characters <= 100
    page.set_viewport_size({"width": 1280, "height": 800})


def test_no_answer_stands_below_a_question(page):
    assert page.locator(".jp-OutputArea-output").count() == page.locator(".attention-hero").count()


def test_the_hero_moves_before_a_cell_has_run(page):
    hero = page.locator(".attention-hero").last
    before = hero.inner_html()
    hero.get_by_role("button", name="Step").click()
    page.wait_for_timeout(600)
    assert hero.inner_html() != before
    assert page.locator(".jp-Cell :is(.jp-InputPrompt, .jp-OutputPrompt)", has_text="[1]:").count() == 0


def test_shift_enter_goes_on_from_a_hero_that_has_the_focus(page):
    active = (
        "() => [...document.querySelectorAll('.jp-Cell')].findIndex((cell) => cell.matches('.jp-mod-active'))"
    )
    page.locator(".attention-hero").last.locator("svg [role=slider]").first.focus()
    before = page.evaluate(active)
    page.keyboard.press("Shift+Enter")
    page.wait_for_function(f"({active})() === {before + 1}")
