"""What each part is worth, as it was measured, and the picture that shows it part by part."""

import re
from itertools import pairwise

import pytest
import record_heroes
from cells import shorten

from attention_course.heroes import hero
from attention_course.stories import FACT, QUESTIONS, read_story

DATA = hero("bigram_to_gpt").data
PARTS = DATA["parts"]
FLOORS = DATA["floors"]


def test_the_floors_are_those_that_the_package_computes():
    assert record_heroes.floors() == FLOORS


@pytest.mark.slow
def test_the_parts_are_those_of_the_rung(monkeypatch):
    """Recorded anew, after few steps of training, all is the same but what is learnt later."""
    shorten(monkeypatch)
    recorded = record_heroes.bigram_to_gpt()
    assert recorded | {"parts": PARTS} == DATA
    for part, now in zip(PARTS, recorded["parts"], strict=True):
        learnt = {key: now[key] for key in ("loss", "accuracy", "line")}
        assert now == part | learnt
        assert now["loss"] > part["loss"]


def test_the_mean_is_a_step_back_and_every_later_part_a_step_down():
    losses = [part["loss"] for part in PARTS]
    assert losses[1] > losses[0] > losses[2]
    assert all(before > after for before, after in pairwise(losses[2:]))
    assert losses[0] == pytest.approx(FLOORS["2-gram"], abs=0.02)
    assert losses[1] == pytest.approx(FLOORS["1-gram"], abs=0.05)
    assert losses[2] < FLOORS["2-gram"]
    assert losses[3] < FLOORS["3-gram"]
    assert FLOORS["grammar"] < losses[-1]


def test_only_the_second_layer_finds_nearly_all_answers():
    accuracies = [part["accuracy"] for part in PARTS]
    assert max(accuracies[:-1]) < 0.8
    assert accuracies[-1] > 0.95
    assert read_story(DATA["prompt"] + PARTS[-1]["line"])


def test_only_the_whole_gpt_answers_right():
    assert [judged(part["line"])[0]["right"] for part in PARTS] == [False] * (len(PARTS) - 1) + [True]


def judged(line: str) -> list[dict]:
    """Return each answer, and whether it is that of the fact in the prompt."""
    fact = FACT.match(DATA["prompt"])
    return [
        {"text": found[2], "right": found[2] == f"{fact[key]}."}
        for found in re.finditer(
            rf"({'|'.join(map(re.escape, QUESTIONS.values()))})(\w*\W?)", DATA["prompt"] + line
        )
        for key in QUESTIONS
        if QUESTIONS[key] == found[1]
    ]


def assert_shows(values: dict, built: int) -> None:
    assert values["shown"] == [[part["loss"], part["accuracy"]] for part in PARTS[: built + 1]]
    assert values["answers"] == judged(PARTS[built]["line"])


@pytest.mark.slow
def test_each_step_adds_a_part_its_stair_and_what_it_writes(show):
    rung = show("bigram_to_gpt", reduced_motion="reduce")
    stairs = rung.figure.locator("svg [role=button]")
    written = rung.figure.locator("svg text.start.code")
    heights = []
    for built, part in enumerate(PARTS):
        if built:
            rung.press("Step")
        assert_shows(rung.values, built)
        texts = stairs.nth(built).locator("text").all_text_contents()
        assert texts[-2:] == [f"{part['loss']:.3f}", f"{100 * part['accuracy']:.0f} %"]
        guesses = stairs.locator("text", has_text="?")
        assert sum(guess.is_visible() for guess in guesses.all()) == 2 * (len(PARTS) - 1 - built)
        heights.append(float(stairs.nth(built).locator(".tread").get_attribute("y1")))
        words = "".join("".join(written.all_text_contents()).replace("✓", "").replace("✗", "").split())
        text = "".join((DATA["prompt"] + part["line"]).split())
        assert words == text[: len(words)]
        assert len(words) > 0.9 * len(text)
    losses = [part["loss"] for part in PARTS]
    assert sorted(range(len(PARTS)), key=lambda at: heights[at]) == sorted(
        range(len(PARTS)), key=lambda at: -losses[at]
    )
    assert "100 % of the answers right" in rung.figure.locator(".words").text_content()


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_part_that_is_not_there_yet_keeps_its_worth_to_itself(show):
    rung = show("bigram_to_gpt", reduced_motion="reduce")
    rung.figure.get_by_role("button", name="second layer").focus()
    words = rung.figure.locator(".words").text_content()
    assert "Guess" in words
    assert "Loss" not in words
    assert not rung.figure.locator("svg text", has_text="100 %").is_visible()


@pytest.mark.slow
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
