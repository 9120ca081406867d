"""For every letter that asks, all stages are those of the package's head."""

import re

import pytest
import torch

from attention_course.attention import attention, causal_mask

pytestmark = pytest.mark.slow

TEXT, LETTERS, T = "potato", "pota", 6
ANSWERS = "ppotat"  # of the last vowel, or for a vowel the last consonant; the first finds itself


def head() -> dict[str, torch.Tensor]:
    """Return all stages, for tokens that are one-hot letters beside one-hot positions, as in the rung."""
    letter = torch.tensor([[float(a == b) for b in LETTERS] for a in TEXT])
    x = torch.cat([letter, torch.eye(T)], dim=-1)  # (6, 10)
    W_query, W_key = torch.zeros(2, 10, 2)
    W_query[:4, 0] = torch.tensor([4.0, -4, 4, -4])  # p and t want a vowel, o and a want none
    W_query[4:, 1] = 2  # and late
    W_key[:4, 0] = torch.tensor([-1.0, 1, -1, 1])
    W_key[4:, 1] = torch.arange(6)
    q, k, v = x @ W_query, x @ W_key, x @ torch.eye(10)[:, :4]
    scores = q @ k.T
    output, weights = attention(q, k, v, causal_mask(T))
    stages = {"scores": scores, "scaled": scores / 2**0.5, "weights": weights, "output": output}
    return {"q": q, "k": k, "v": v} | stages


def assert_stages_are_right(values: dict) -> None:
    expected, t = head(), values["t"]
    for name in ("q", "k", "v"):
        torch.testing.assert_close(torch.tensor(values[name]).float(), expected[name])
    for name in ("scores", "scaled", "weights", "output"):
        torch.testing.assert_close(torch.tensor(values[name]).float(), expected[name][t])
    assert values["answer"] == ANSWERS[t]


def drawing(hero) -> str:
    """Return what is drawn, apart from the step that is marked."""
    return re.sub(' style="[^"]*"', "", hero.figure.locator("svg").inner_html())


def pale(hero) -> int:
    """Return how many things are still to come."""
    return hero.figure.locator('svg [opacity="0.08"]').count()


def test_at_first_a_letter_has_asked_and_all_stages_are_pale(show):
    hero = show("query_key_value")
    hero.settle()
    assert hero.values["t"] == 3
    assert_stages_are_right(hero.values)
    drawn = hero.figure.locator("svg text").all_text_contents()
    expected = head()
    for s in range(T):
        weight = expected["weights"][3, s].item()
        assert (f"{weight:.2f} × {TEXT[s]}" if weight else f"0 × {TEXT[s]}") in drawn
    for letter, share in zip(LETTERS, expected["output"][3].tolist(), strict=True):
        assert f"{letter} {share:.2f}" in drawn
    assert pale(hero) >= T * 7 + len(LETTERS), "seven things for each key, and the output"
    assert hero.figure.get_by_text("the last consonant?").get_attribute("opacity") == "1"


def test_a_click_lets_any_letter_ask(show):
    hero = show("query_key_value")
    tiles = hero.figure.locator("svg g.pointable:not([role])")
    for t in (0, 5, 1, 4, 2, 3):
        tiles.nth(t).click()
        assert hero.values["t"] == t
        found = f"finds “{ANSWERS[t]}”" if t else "finds only itself"
        hero.wait_for_words(
            f"the last {'consonant' if TEXT[t] in 'ao' else 'vowel'} up to its own place, and {found}"
        )
        assert_stages_are_right(hero.values)


def test_arrow_keys_and_dragging_let_another_letter_ask(show):
    hero = show("query_key_value")
    asker = hero.figure.get_by_role("slider")
    asker.focus()
    for key, t in (("ArrowRight", 4), ("ArrowRight", 5), ("ArrowRight", 5), ("ArrowLeft", 4)):
        hero.page.keyboard.press(key)
        assert hero.values["t"] == t
        assert_stages_are_right(hero.values)
    hero.settle()
    box = asker.locator("rect").first.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    hero.page.mouse.move(x, y)
    hero.page.mouse.down()
    hero.page.mouse.move(x - 2 * 78, y)
    hero.page.mouse.up()
    assert hero.values["t"] == 2
    assert_stages_are_right(hero.values)


def test_each_step_says_what_it_computes_and_the_last_shows_all(show):
    hero = show("query_key_value", reduced_motion="reduce")
    drawn, to_come = [], []
    said = ("query", "has a key", "score", "√2", "−∞", "Softmax", "value", "output")
    for step, words in enumerate(said, start=1):
        hero.press("Step")
        hero.wait_for_words(words)
        assert hero.values["step"] == step
        assert_stages_are_right(hero.values)
        drawn.append(drawing(hero))
        to_come.append(pale(hero))
    assert len(set(drawn)) == 8
    assert to_come == sorted(set(to_come), reverse=True), "each step shows more"
    assert to_come[-1] == 0


def test_before_the_first_step_pointing_shows_one_column_whole(show):
    hero = show("query_key_value", reduced_motion="reduce")
    before = pale(hero)
    column = hero.figure.get_by_role("button", name="key 2")
    column.hover()
    assert not column.locator('[opacity="0.08"]').count()
    assert pale(hero) < before
    hero.page.mouse.move(0, 0)
    assert pale(hero) == before


def test_pointing_at_an_output_lights_what_flows_into_it(show):
    hero = show("query_key_value", reduced_motion="reduce")
    hero.figure.locator("svg g.pointable:not([role])").nth(5).click()
    for _ in range(8):
        hero.press("Step")
    hero.figure.get_by_role("button", name="output, letter t").hover()
    weights = head()["weights"][5]
    assert f"{weights[2]:.2f} + {weights[4]:.2f}" in hero.figure.locator(".words").text_content()
    columns = hero.figure.locator("svg [role=button][aria-label^=key]").all()
    assert [column.get_attribute("opacity") for column in columns] == [
        "0.25",
        "0.25",
        "1",
        "0.25",
        "1",
        "0.25",
    ]


def test_pointing_at_a_key_says_its_product(show):
    hero = show("query_key_value", reduced_motion="reduce")
    expected = head()
    for s in range(T):
        column = hero.figure.get_by_role("button", name=f"key {s}")
        column.hover()
        words = hero.figure.locator(".words").text_content().replace("−", "-").replace("\u2009", " ")
        (terms, score) = re.search(r"\): (.*?) = (-?\d+)\.", words).groups()
        assert sum(int(a) * int(b) for a, b in re.findall(r"(-?\d+)·(-?\d+)", terms)) == int(score)
        assert int(score) == expected["scores"][3, s]
        weight = expected["weights"][3, s].item()
        assert (f"Weight {weight:.2f}." if weight else "Weight 0.") in words
        assert ("the mask hides it" in words) == (s > 3)
