"""The weights are those of the package, and the strip is as long as they say."""

import pytest
import torch

from attention_course.attention import causal_mask

pytestmark = pytest.mark.slow

LENGTH = 504  # pixels of the strip, in masked_softmax.js

PARTS = (
    """(figure) => [...figure.querySelectorAll('.part')].map((part) => Number(part.getAttribute('width')))"""
)


def words(hero) -> str:
    return hero.figure.locator(".words").text_content()


def score(hero, token: str):
    return hero.figure.get_by_role("slider", name=f"score of {token}", exact=True)


def drag(hero, handle, dx: float, dy: float) -> None:
    box = handle.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    hero.page.mouse.move(x, y)
    hero.page.mouse.down()
    hero.page.mouse.move(x + dx, y + dy)
    hero.page.mouse.up()


def assert_weights_are_right(hero, place: int) -> None:
    """Compare what is shown with row `place` of softmax under the causal mask, or without one at place 5."""
    values = hero.values
    scores = torch.tensor(values["scores"], dtype=torch.float)
    visible = causal_mask(6)[place]
    assert values["hidden"] == (~visible).tolist()
    weights = torch.softmax(scores.masked_fill(~visible, float("-inf")), dim=-1)
    torch.testing.assert_close(torch.tensor(values["weights"], dtype=torch.float), weights)
    drawn = torch.tensor(hero.figure.evaluate(PARTS), dtype=torch.float)
    torch.testing.assert_close(drawn / LENGTH, weights)
    assert drawn.sum().item() == pytest.approx(LENGTH)


def test_the_mask_drops_and_the_others_swell(show):
    hero = show("masked_softmax", reduced_motion="reduce")
    assert_weights_are_right(hero, 5)
    before = torch.tensor(hero.values["weights"], dtype=torch.double)
    hero.press("Drop the mask")
    assert_weights_are_right(hero, 2)
    after = torch.tensor(hero.values["weights"], dtype=torch.double)
    assert hero.values["ghost"] == before.tolist()
    factor = 1 / (1 - before[3:].sum())
    torch.testing.assert_close(after[:3], before[:3] * factor)
    assert f"frees {before[3:].sum():.2f} of the total" in words(hero)
    assert f"{factor:.2f} times" in words(hero)
    hero.press("Raise the mask")
    assert hero.values["weights"] == before.tolist()


def test_a_score_dragged_by_mouse_and_by_keys(show):
    hero = show("masked_softmax", reduced_motion="reduce")
    before = hero.values["weights"]
    drag(hero, score(hero, "the").locator("rect").last, 0, -26)
    assert hero.values["scores"] == [1.5, 2, 1, -0.6, -1.5, 2.4]
    assert_weights_are_right(hero, 5)
    gain = hero.values["weights"][0] - before[0]
    assert f"It gained {gain:.2f}; the others together lost as much." in words(hero)
    before = hero.values["weights"]
    drag(hero, score(hero, "the").locator("rect").last, 0, 52)
    loss = before[0] - hero.values["weights"][0]
    assert f"It lost {loss:.2f}; the others together gained as much." in words(hero)
    score(hero, "a").press("ArrowUp")
    assert hero.values["scores"][4] == -1
    assert_weights_are_right(hero, 5)
    for _ in range(20):
        score(hero, "the").press("ArrowDown")
    assert hero.values["scores"][0] == -3, "the end of the scale"
    assert_weights_are_right(hero, 5)


def test_a_hidden_score_changes_nothing_and_the_words_say_so(show):
    hero = show("masked_softmax", reduced_motion="reduce")
    hero.press("Drop the mask")
    before = hero.values["weights"]
    drag(hero, score(hero, "mat").locator("rect").last, 0, 52)
    assert hero.values["scores"][5] == 0.4
    assert hero.values["weights"] == before
    assert "its score is now 0.4, its weight stays 0, and no other weight moves" in words(hero)
    drag(hero, score(hero, "cat").locator("rect").last, 0, 26)
    assert hero.values["weights"] != before
    assert_weights_are_right(hero, 2)


def test_the_place_that_looks_back_takes_the_mask_along(show):
    hero = show("masked_softmax", reduced_motion="reduce")
    hero.press("Drop the mask")
    marker = hero.figure.get_by_role("slider", name="the token that looks back")
    for place in (1, 0):
        marker.press("ArrowLeft")
        assert_weights_are_right(hero, place)
    score(hero, "the").press("ArrowUp")
    assert hero.values["weights"] == [1, 0, 0, 0, 0, 0]
    assert "the only one left" in words(hero)
    drag(hero, marker, 4 * 84, 0)
    assert_weights_are_right(hero, 4)
    marker.press("ArrowRight")
    assert_weights_are_right(hero, 5)
    assert "nothing to hide" in words(hero)


def test_equal_scores_give_the_mean_of_the_past(show):
    hero = show("masked_softmax", reduced_motion="reduce")
    hero.press("All scores 0")
    assert hero.values["weights"] == pytest.approx([1 / 6] * 6)
    hero.press("Drop the mask")
    assert hero.values["weights"] == pytest.approx([1 / 3] * 3 + [0] * 3)
    assert_weights_are_right(hero, 2)


def test_a_weight_pointed_at_says_its_share(show):
    hero = show("masked_softmax", reduced_motion="reduce")
    hero.figure.get_by_role("button", name="weight of cat").locator(".part").hover()
    assert f"“cat” has the score 2 and gets {hero.values['weights'][1]:.2f} of the total of 1." in words(hero)
    hero.press("Drop the mask")
    hero.figure.get_by_role("button", name="weight of mat").focus()
    assert "“mat” is behind the mask: its weight is 0." in words(hero)
