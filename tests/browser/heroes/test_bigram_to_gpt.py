"""The tower and the staircase: each part is there twice, and both are one."""

import pytest

from attention_course.heroes import hero

pytestmark = pytest.mark.slow

PARTS = hero("bigram_to_gpt").data["parts"]


def test_a_block_and_its_stair_are_linked(show):
    rung = show("bigram_to_gpt", reduced_motion="reduce")
    for _ in PARTS[1:]:
        rung.press("Step")
    words = rung.figure.locator(".words")
    rung.figure.get_by_role("button", name="feed-forward").hover()
    by_stair = words.text_content()
    assert rung.values["chosen"] == 5
    assert rung.figure.locator("g.chosen text").all_text_contents() == ["feed-forward"]
    rung.page.mouse.move(0, 0)
    assert rung.values["chosen"] is None
    rung.figure.locator("svg text", has_text="feed-forward").first.hover()
    assert words.text_content() == by_stair
    rung.page.mouse.down()
    rung.page.mouse.up()
    rung.page.mouse.move(0, 0)
    assert rung.values["chosen"] == 5, "a click pins it"
    rung.page.keyboard.press("Escape")


def test_the_tower_stands_from_the_start_and_gets_solid_part_by_part(show):
    rung = show("bigram_to_gpt", reduced_motion="reduce")
    blocks = rung.figure.locator("svg g[style] > .block + text")

    def solid() -> list[str]:
        return [
            block.text_content()
            for block in blocks.all()
            if block.evaluate("(node) => getComputedStyle(node).opacity") == "1" and block.is_visible()
        ]

    assert solid() == ["table of pairs"]
    assert all(block.is_visible() for block in blocks.filter(has_text="feed-forward").all())
    for _ in PARTS[1:]:
        rung.press("Step")
    assert solid().count("attention") == solid().count("feed-forward") == 2
