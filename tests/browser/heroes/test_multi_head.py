"""The rings are at the outputs of the package's attention; one head never answers both, two do."""

import pytest
import torch

from attention_course import heroes
from attention_course.attention import attention

pytestmark = pytest.mark.slow

DATA = heroes.hero("multi_head").data
CARDS = torch.tensor(DATA["cards"], dtype=torch.float64)[None, :, None]  # (1, 4, 1)
LEFT, UNIT = 60, 58  # CSS pixels: where card 0 lies on the line, and how far it is to card 1


def assert_outputs_follow_the_package(values: dict) -> None:
    """Heads whose scores are ln w have the weights w: run them over the cards, and join what they find."""
    wanted = torch.tensor(values["weights"], dtype=torch.float64)  # (n_head, 4)
    outputs = []
    for shares in wanted:
        query = 2 * shares.clamp_min(1e-300).log()[None, None]  # the scale divides by √4
        output, weights = attention(query, torch.eye(4, dtype=torch.float64)[None], CARDS)
        torch.testing.assert_close(weights[0, 0], shares)
        outputs.append(output)
    joined = torch.cat(outputs, dim=-1).flatten()
    torch.testing.assert_close(torch.tensor(values["outputs"], dtype=torch.float64), joined)
    answers = joined if len(joined) == 2 else joined.expand(2)
    cards = CARDS[0, values["question"], 0]
    assert values["right"] == (answers - cards).abs().lt(1e-9).tolist()


def ask(hero, question: int) -> None:
    hero.figure.locator("[role=radio][tabindex]").nth(question).click()


def test_no_share_of_one_head_answers_both(show):
    hero = show("multi_head", reduced_motion="reduce")
    ring = hero.figure.get_by_role("slider", name="output of head 0")
    for question in (0, 3):
        ask(hero, question)
        ring.focus()
        seen = set()
        for key in ["ArrowLeft"] * 20 + ["ArrowRight"] * 21:
            hero.page.keyboard.press(key)
            assert_outputs_follow_the_package(hero.values)
            assert not all(hero.values["right"])
            seen.add(tuple(hero.values["right"]))
        assert seen == {(False, False), (True, False), (False, True)}


def test_two_heads_answer_every_question(show):
    hero = show("multi_head", reduced_motion="reduce")
    hero.press("Split into two heads")
    for question, pair in enumerate(DATA["questions"]):
        ask(hero, question)
        assert hero.values["question"] == pair
        assert_outputs_follow_the_package(hero.values)
        assert hero.values["right"] == [True, True]
    hero.wait_for_words("both cards are found")
    hero.press("Split into two heads")
    assert len(hero.values["outputs"]) == 1
    assert hero.values["weights"][0][3] == hero.values["weights"][0][0] == 0.5


def test_mouse_and_keys_drag_one_ring_of_two(show):
    hero = show("multi_head", reduced_motion="reduce")
    hero.press("Split into two heads")
    ring = hero.figure.get_by_role("slider", name="output of head 1")
    box, left = ring.bounding_box(), hero.figure.locator("svg").bounding_box()["x"]
    hero.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    hero.page.mouse.down()
    hero.page.mouse.move(left + LEFT + UNIT * 3, box["y"], steps=5)  # a quarter of the way from 2 to 6
    hero.page.mouse.up()
    assert hero.values["outputs"] == pytest.approx([2, 3])
    assert hero.values["weights"][1] == pytest.approx([0.75, 0.25, 0, 0])
    assert hero.values["right"] == [True, False]
    ring.focus()
    for _ in range(5):
        hero.page.keyboard.press("ArrowRight")
    assert hero.values["outputs"] == pytest.approx([2, 4])
    assert_outputs_follow_the_package(hero.values)


def test_enter_asks_the_question_that_has_the_focus(show):
    hero = show("multi_head", reduced_motion="reduce")
    hero.figure.locator("[role=radio][tabindex]").nth(3).focus()
    hero.page.keyboard.press("Enter")
    assert hero.values["question"] == DATA["questions"][3]
    assert (
        hero.figure.locator("[role=radio][aria-checked=true]").first.get_attribute("aria-label") == "Dia, Cem"
    )


def test_a_friend_that_is_pointed_at_says_the_products(show):
    hero = show("multi_head", reduced_motion="reduce")
    hero.figure.get_by_role("button", name="Bob holds 6").hover()
    hero.wait_for_words("Bob, the head: weight 0.50 · card 6 = 3.00.")
    hero.press("Split into two heads")
    hero.figure.get_by_role("button", name="Bob holds 6").hover()
    hero.wait_for_words("Bob, head 0: weight 0.00 · card 6 = 0.00; head 1: weight 1.00 · card 6 = 6.00.")
