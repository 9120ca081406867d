"""The race shows the runs of recipes.json, each at its time, up to the mark."""

import math
import re
from itertools import pairwise

import pytest

from attention_course.heroes import hero
from attention_course.rungs.speed_run import explorer_recipes as recipes
from attention_course.speedrun import TRICKS
from attention_course.text import Data, load_text

DATA = hero("speed_run").data
RUNNERS, TEXTS, MARK = DATA["runners"], DATA["texts"], DATA["mark"]
DONE = [runner["seconds"][-1] if runner["accuracies"][-1] == MARK else None for runner in RUNNERS]
END = max(runner["seconds"][-1] for runner in RUNNERS)


def accuracy_at(runner: dict, now: float) -> float:
    """Return the accuracy, between two measurements as if it rose evenly, after them the last one."""
    measured = list(zip(runner["seconds"], runner["accuracies"], strict=True))
    for (start, low), (stop, high) in pairwise(measured):
        if start <= now < stop:
            return low + (high - low) * (now - start) / (stop - start)
    return measured[-1][1]


def test_each_runner_has_one_trick_more_than_the_one_before():
    assert [runner["trick"] for runner in RUNNERS] == ["", *[trick.replace("_", " ") for trick in TRICKS]]
    assert [runner["why"] for runner in RUNNERS[1:]] == list(TRICKS.values())


def test_the_runs_are_those_of_recipes_up_to_the_mark():
    assert (DATA["machine"], MARK) == (recipes.measured()["machine"], recipes.MARK)
    above = None
    names = ["rung 8", *[f"+ {trick}" for trick in TRICKS]]
    for name, runner, done in zip(names, RUNNERS, DONE, strict=True):
        run = recipes.run_of(name)
        assert (done or math.inf) == pytest.approx(run["mark"], rel=1e-3)
        assert len(run["marks"]) == DATA["seeds"]
        assert runner["seconds"][0] == runner["accuracies"][0] == 0
        assert runner["seconds"][1:-1] == pytest.approx(run["seconds"][:-1].tolist(), rel=1e-3)
        assert runner["accuracies"][1:-1] == pytest.approx(run["accuracy"][:-1].tolist(), rel=1e-3)
        differs = above is not None and recipes.p_value(run["marks"], above) < recipes.LEVEL
        assert runner["differs"] == differs
        above = run["marks"]


def test_all_tricks_together_are_faster_than_none():
    assert DONE[-1] < DONE[0]


def test_they_write_gibberish_at_first_and_words_at_the_mark():
    text = load_text("stories")
    known = set(re.findall("[A-Za-z]+", text))
    for texts, runner in zip(TEXTS, (RUNNERS[0], RUNNERS[-1]), strict=True):
        assert set("".join(each["text"] for each in texts)) <= {*Data.of(text).tokenizer.characters, "↵"}
        first, last = (re.findall("[A-Za-z]+", texts[at]["text"])[:-1] for at in (0, -1))
        assert sum(word in known for word in first) <= len(first) / 4
        assert sum(word in known for word in last) >= len(last) * 3 / 4
        seconds = [each["seconds"] for each in texts]
        assert seconds == sorted(seconds)
        assert seconds[0] == 0
        assert seconds[-1] == pytest.approx(runner["seconds"][-1], rel=0.05)


def assert_shows(race, now: float) -> None:
    values = race.values
    assert values["now"] == pytest.approx(now)
    assert values["accuracies"] == pytest.approx([accuracy_at(runner, now) for runner in RUNNERS])
    done = [seconds is not None and seconds <= now for seconds in DONE]
    assert values["done"] == done
    assert values["texts"] == [
        [each["text"] for each in texts if each["seconds"] <= now][-1] for texts in TEXTS
    ]
    lanes = race.figure.locator("svg [role=button]").all()
    results = [lane.locator("text").last.text_content() for lane in lanes]
    assert results == [
        f"✓ {seconds:.1f} s" if there else "" for seconds, there in zip(DONE, done, strict=True)
    ]
    reached = sum(done)
    said = re.match(r"After (\S+) s, (\w+) of 6 ha", race.figure.locator(".words").text_content())
    assert float(said[1]) == pytest.approx(now, abs=0.051)
    assert said[2] == str(reached or "none")


@pytest.mark.slow
def test_keys_and_steps_move_the_clock(show):
    race = show("speed_run", reduced_motion="reduce")
    race.wait_for_words("which helps most?")
    total = math.ceil(END)
    race.figure.get_by_role("slider").focus()
    for at in range(1, 121):
        race.page.keyboard.press("ArrowRight")
        if at % 6 == 0:
            assert_shows(race, total * at / 120)
    assert race.figure.get_by_role("button", name="Step").is_disabled()
    race.press("Start over")
    race.press("Step")
    assert_shows(race, total / 120)


@pytest.mark.slow
def test_the_ring_is_dragged_along_the_clock(show):
    race = show("speed_run", reduced_motion="reduce")
    box = race.figure.get_by_role("slider").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    race.page.mouse.move(x, y)
    race.page.mouse.down()
    for share in (0.25, 1, 0.5):
        race.page.mouse.move(x + share * 544, y)
        assert_shows(race, share * math.ceil(END))
    race.page.mouse.up()


@pytest.mark.slow
def test_a_lane_says_why_its_trick_helps_and_what_it_costs(show):
    race = show("speed_run", reduced_motion="reduce")
    lanes = race.figure.locator("svg [role=button]")
    for at, runner in enumerate(RUNNERS):
        lanes.nth(at).focus()
        race.wait_for_words(runner["why"])
        race.wait_for_words(f"{DONE[at]:.1f} s" if DONE[at] else "does not reach the mark")
        if at and DONE[at] and DONE[at - 1]:
            race.wait_for_words("of the time of the lane above")
            assert ("chance" in race.figure.locator(".words").text_content()) != runner["differs"]


@pytest.mark.slow
def test_an_answer_is_judged_by_its_story(show):
    race = show("speed_run", reduced_motion="reduce")
    judged = race.figure.locator("tspan[font-weight='600']")
    race.figure.get_by_role("slider").focus()
    seen = set()
    for _ in range(120):
        race.page.keyboard.press("ArrowRight")
        for answer in judged.all_text_contents():
            line = judged.filter(has_text=answer).first.locator("..").text_content()
            who, got = re.search(r"gave poor (\w+) .*Who got it\? Poor (\w+)\.", line).groups()
            assert answer.endswith("✓" if who == got else "✗")
            seen.add(answer[-1])
    assert "✗" in seen
