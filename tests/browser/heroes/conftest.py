"""A page that holds one hero and nothing else."""

import json

import lab
import pytest
from playwright.sync_api import Page

from attention_course.heroes import hero


class Show:
    """A hero in a page, with what a test needs to move it and to read it."""

    def __init__(self, page: Page, name: str):
        self.page = page
        self.errors: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)
        page.set_content(f"<!doctype html><meta charset=utf-8><body>{hero(name).page()}")
        self.figure = page.locator(".attention-hero")

    @property
    def values(self) -> dict:
        """The numbers that the picture shows."""
        return json.loads(self.figure.get_attribute("data-values"))

    def drawing(self) -> str:
        """The whole drawing, to see whether something moved."""
        return self.figure.evaluate("(figure) => figure.innerHTML")

    def press(self, label: str) -> None:
        """Press a button."""
        self.figure.get_by_role("button", name=label).click()

    def settle(self) -> None:
        """Wait for the way from one state to the next."""
        self.page.wait_for_timeout(400)

    def wait_for_words(self, text: str, timeout: float = 15_000) -> None:
        """Wait until the line of words holds this."""
        self.figure.locator(".words", has_text=text).wait_for(timeout=timeout)


@pytest.fixture(scope="module")
def show(chromium_path, letters, request):
    """Open a hero: `show("bag_of_words")`; `show(name, reduced_motion="reduce")` for who wants none.

    A test can have the letters of its browser wider.
    """
    with lab.browser(chromium_path, letters(request.param) if hasattr(request, "param") else None) as browser:
        contexts = []

        def opened(name: str, **options) -> Show:
            contexts.append(browser.new_context(viewport={"width": 800, "height": 800}, **options))
            return Show(contexts[-1].new_page(), name)

        yield opened
        for context in contexts:
            context.close()
