"""The means are those of the package, wherever a token is dragged."""

import pytest
import torch

from attention_course.averaging import causal_mean_loop

pytestmark = pytest.mark.slow


def assert_means_are_right(values: dict, seen: int) -> None:
    tokens = torch.tensor(values["tokens"]).float()
    torch.testing.assert_close(torch.tensor(values["means"]).float(), causal_mean_loop(tokens)[:seen])


def test_each_step_shows_the_mean_of_the_past(show):
    hero = show("bag_of_words")
    for seen in range(1, 9):
        hero.press("Step")
        hero.settle()
        assert_means_are_right(hero.values, seen)


def test_a_dragged_token_changes_the_mean(show):
    hero = show("bag_of_words", reduced_motion="reduce")
    hero.press("Play")
    hero.wait_for_words("t = 7")
    before = hero.values
    box = hero.figure.get_by_role("slider", name="token 3").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    hero.page.mouse.move(x, y)
    hero.page.mouse.down()
    hero.page.mouse.move(x - 68, y + 34)  # two channels' units left, one down
    hero.page.mouse.up()
    assert hero.values["tokens"][3] == [0, 1]
    assert hero.values["means"][:3] == before["means"][:3]
    assert_means_are_right(hero.values, 8)


def test_another_order_ends_at_the_same_mean(show):
    hero = show("bag_of_words", reduced_motion="reduce")
    hero.press("Play")
    hero.wait_for_words("t = 7")
    end = hero.values["means"][-1]
    hero.press("Shuffle")
    hero.wait_for_words("Another order")
    assert hero.values["means"][-1] == pytest.approx(end)
    assert hero.values["means"][3] != pytest.approx(end)


FLIGHT = """(figure) => {
    const courier = figure.querySelector('circle[r="5"]');
    window.flown = [];
    const note = () => window.flown.push(Number(courier.getAttribute('cx')));
    new MutationObserver(note).observe(courier, { attributes: true });
}"""


def test_a_token_flies_from_its_place_to_the_mean(show):
    hero = show("bag_of_words")
    hero.press("Step")
    hero.settle()
    hero.figure.evaluate(FLIGHT)
    hero.press("Step")
    hero.settle()
    flown = hero.page.evaluate("window.flown")
    token, mean = (150 + 34 * (x + 5) for x in (-2, -3))  # of t = 1, in pixels
    assert max(flown) == pytest.approx(token, abs=12)
    assert flown[-1] == pytest.approx(mean)
