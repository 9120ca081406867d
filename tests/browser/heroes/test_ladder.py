"""The destination: a training's losses, floors and texts, and the picture that shows them as one drags."""

import re

import pytest
import record_heroes
from record_heroes import is_story

from attention_course.heroes import hero
from attention_course.ladder import RUNGS
from attention_course.text import Data, load_text

DATA = hero("ladder").data
MOMENTS = DATA["moments"]


def passed(loss: float) -> list[str]:
    return [name for name, floor in DATA["floors"].items() if loss < floor]


def test_the_floors_are_those_that_the_package_computes():
    assert DATA["floors"] == record_heroes.floors()


def test_the_rungs_are_those_of_the_course():
    assert [each["title"] for each in DATA["rungs"]] == [rung.title for rung in RUNGS]


def test_the_loss_falls_through_the_floors_of_the_tables_and_not_below_the_entropy():
    assert [moment["step"] for moment in MOMENTS] == list(record_heroes.MOMENTS)
    losses = [moment["loss"] for moment in MOMENTS]
    assert losses == sorted(losses, reverse=True)
    assert passed(losses[0]) == []
    assert passed(losses[-1]) == ["nothing", "1-gram", "2-gram", "3-gram"]


def test_it_writes_gibberish_at_first_and_stories_at_the_end():
    text = load_text("stories")
    characters, words = set(Data.of(text).tokenizer.characters), set(DATA["words"])
    assert words == set(re.findall("[A-Za-z]+", text))
    shares = []
    for moment in MOMENTS:
        assert set(moment["text"]) <= characters
        assert moment["told"] == sum(map(is_story, moment["text"].split("\n")))
        written = re.findall("[A-Za-z]+", moment["text"])[:-1]  # the last one is cut
        shares.append(sum(word in words for word in written) / len(written))
    assert shares[0] < 0.1
    assert shares[-1] == 1
    assert MOMENTS[0]["told"] == 0
    assert MOMENTS[-1]["told"] == 2


def assert_shows(values: dict, moment: dict) -> None:
    assert {name: values[name] for name in ("step", "loss", "told")} | {"text": moment["text"]} == moment
    assert values["passed"] == passed(moment["loss"])
    shown = " ".join(line for line in values["text"] if line)
    assert (
        shown.replace(" ", "")
        == moment["text"].replace(" ", "").replace("\n", "")[: len(shown.replace(" ", ""))]
    )
    known = [word in DATA["words"] for word in re.findall("[A-Za-z]+", shown)]
    assert (values["real"], values["all"]) == (sum(known), len(known))


@pytest.mark.slow
def test_keys_walk_along_the_curve(show):
    ladder = show("ladder", reduced_motion="reduce")
    assert_shows(ladder.values, MOMENTS[0])
    ladder.figure.get_by_role("slider").focus()
    for moment in MOMENTS[1:]:
        ladder.page.keyboard.press("ArrowRight")
        assert_shows(ladder.values, moment)
    assert "2 stories are without a mistake" in ladder.figure.locator(".words").text_content()
    assert ladder.figure.get_by_role("button", name="Step").is_disabled()


@pytest.mark.slow
def test_the_ring_is_dragged_along_the_curve_by_the_mouse(show):
    ladder = show("ladder", reduced_motion="reduce")
    ring = ladder.figure.get_by_role("slider")
    path = ladder.figure.locator("svg polyline").first.bounding_box()
    box = ring.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    ladder.page.mouse.move(x, y)
    ladder.page.mouse.down()
    for share in (0.5, 1, 0.5):
        ladder.page.mouse.move(x + share * path["width"], y)
        assert_shows(ladder.values, MOMENTS[round(share * (len(MOMENTS) - 1))])
    ladder.page.mouse.up()


@pytest.mark.slow
def test_a_rung_that_is_pointed_at_says_what_is_built_there(show):
    ladder = show("ladder")
    ladder.figure.get_by_role("button", name="rung 4, query, key, value").hover()
    assert "asks a question" in ladder.figure.locator(".words").text_content()
    ladder.figure.get_by_role("button", name="rung 11").hover()
    assert "by heart" in ladder.figure.locator(".words").text_content()


@pytest.mark.slow
def test_it_says_where_one_stands_and_why_the_curve_starts_so_high(show):
    ladder = show("ladder", reduced_motion="reduce")
    assert MOMENTS[0]["loss"] > DATA["floors"]["nothing"]
    assert "worse than guessing" in ladder.figure.locator(".words").text_content()
    marked = ladder.figure.locator('svg line[stroke="var(--query)"]').bounding_box()
    below = ladder.figure.get_by_text("you stand here").bounding_box()
    first = ladder.figure.get_by_text("bag of words").bounding_box()
    assert first["y"] < marked["y"] < below["y"]
