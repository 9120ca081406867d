"""Fills in a page: solved by touch and by keyboard, and nothing moves but what the reader moves."""

import random

import pytest
from playwright.sync_api import expect

from attention_course.fills import fills
from attention_course.ladder import RUNGS

PATHS = {rung.stem: f"{rung.name}/" for rung in RUNGS}


def opened(page, name):
    """Return a fill when it has been fetched."""
    shown = page.locator(f"[data-fill={name}]")
    shown.scroll_into_view_if_needed()
    shown.get_by_role("button", name="Gaps").wait_for()
    return shown


@pytest.mark.parametrize(
    ("stem", "name"),
    [
        ("bag_of_words", "mean_of_the_past"),
        ("query_key_value", "head_forward"),
        ("bigram_to_gpt", "cross_entropy_loss"),
    ],
)
@pytest.mark.parametrize("width", [360, 1280])
def test_a_choice_gets_the_stored_verdict_and_moves_nothing(visit, stem, name, width):
    shown = opened(visit(PATHS[stem], width), name)
    puzzle = fills()[name]["gaps"]
    verdict, height = shown.locator("[role=status]"), shown.bounding_box()["height"]
    draw = random.Random(name)
    chosen = [draw.randrange(len(texts)) for texts in puzzle["choices"]]
    for picks in (chosen, puzzle["right"]):
        index = 0
        for texts, pick in zip(puzzle["choices"], picks, strict=True):
            index = index * len(texts) + pick
        for i, pick in enumerate(picks):
            shown.locator(".attention-gap").nth(i).click()
            shown.locator("fieldset").nth(i).locator("label").nth(pick).click()
            assert shown.bounding_box()["height"] == pytest.approx(height, abs=1)
        mistakes, headline, _ = puzzle["verdicts"][puzzle["table"][index][0]]
        expect(verdict).to_contain_text("✓ Right. " if mistakes is None else f"✗ {headline}")


def test_a_fill_is_solved_with_the_keyboard_alone_and_stays_solved(visit):
    page = visit(PATHS["bag_of_words"])
    shown, made = opened(page, "causal_mean_loop"), fills()["causal_mean_loop"]
    for i, right in enumerate(made["gaps"]["right"]):
        gap = shown.locator(".attention-gap").nth(i)
        gap.press("Enter")
        first = shown.locator("fieldset").nth(i).locator("input[type=radio]").first
        first.press("Space")
        for _ in range(right):
            page.keyboard.press("ArrowDown")
    expect(shown.locator("[role=status]")).to_contain_text("✓ Right. ")

    shown.get_by_role("button", name="Blocks").press("Enter")
    blocks = made["blocks"]
    rights = [texts[right] for texts, right in zip(blocks["choices"], blocks["right"], strict=True)]
    for text, line in list(zip(rights, blocks["lines"], strict=True))[::-1]:
        heap = shown.locator(".attention-heap .attention-line button").all()
        next(each for each in heap if each.text_content() == " " * 4 * line["indent"] + text).press("Enter")
    expect(shown.locator("[role=status]")).to_contain_text("✗ not yet")
    for i, text in enumerate(rights):  # each to its place, from below
        for at in range(len(rights) - 1, i, -1):
            shown.get_by_role("button", name=f"Line {at + 1}: {text}").press("ArrowUp")
    expect(shown.locator("[role=status]")).to_contain_text("✓ Right. ")

    again = opened(visit(PATHS["bag_of_words"]), "causal_mean_loop")
    expect(again.locator(".attention-levels")).to_contain_text("✓ Blocks")
    expect(again.locator(".attention-levels")).to_contain_text("✓ Gaps")


def test_what_is_typed_counts_as_the_choice_that_it_is(visit):
    shown = opened(visit(PATHS["bag_of_words"]), "mean_of_the_past")
    puzzle = fills()["mean_of_the_past"]["gaps"]
    for i, (texts, right) in enumerate(zip(puzzle["choices"], puzzle["right"], strict=True)):
        shown.locator(".attention-gap").nth(i).click()
        typed = shown.locator("fieldset").nth(i).locator("input[type=text]")
        typed.fill("nothing like it")
        typed.press("Enter")
        expect(shown.locator("[role=status]")).to_contain_text("isn’t one of the choices")
        typed.fill(texts[right].replace(" ", ""))
        typed.press("Enter")
    expect(shown.locator("[role=status]")).to_contain_text("✓ Right. ")
