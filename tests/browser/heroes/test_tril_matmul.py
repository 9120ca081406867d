"""The outputs are weights @ tokens, and the bars are as long as the numbers."""

import pytest
import torch

from attention_course.averaging import causal_mean_matmul

pytestmark = pytest.mark.slow

UNIT = 14  # pixels for a value of 1, in tril_matmul.js

SHARES = """(figure) => [...figure.querySelectorAll('.piece')]
    .map((piece) => Number(piece.getAttribute('width')) * (piece.getAttribute('opacity') !== '0'))"""

LISTEN = """(words) => {
    window.said = [];
    const look = () => {
        if (window.said.at(-1) !== words.textContent) window.said.push(words.textContent);
        requestAnimationFrame(look);
    };
    look();
}"""  # what stays for a frame or longer


def poured(hero) -> torch.Tensor:
    """Return the shares that lie in the outputs, (T, T), read from the lengths of their bars."""
    return torch.tensor(hero.figure.evaluate(SHARES)).unflatten(0, (5, 5)) / UNIT


def tokens(hero) -> torch.Tensor:
    return torch.tensor(hero.values["tokens"]).float()


def play(show):
    hero = show("tril_matmul", reduced_motion="reduce")
    hero.press("Play")
    hero.wait_for_words("Output 4 = 1/5")
    return hero


def words(hero) -> str:
    return hero.figure.locator(".words").text_content()


def weight(hero, s: int, t: int):
    return hero.figure.get_by_label(f"weight of token {s} in row {t}")


def test_each_step_pours_one_row(show):
    hero = show("tril_matmul", reduced_motion="reduce")
    assert not poured(hero).any()
    means = causal_mean_matmul(tokens(hero)[:, None])[:, 0]
    for t in range(5):
        hero.press("Step")
        assert hero.values["complete"] == list(range(t + 1))
        torch.testing.assert_close(poured(hero)[: t + 1].sum(dim=-1), means[: t + 1])
        assert not poured(hero)[t + 1 :].any()
    torch.testing.assert_close(torch.tensor(hero.values["outputs"]).float(), means)


def test_a_row_pours_one_token_after_the_other(show):
    hero = show("tril_matmul")
    hero.figure.locator(".words").evaluate(LISTEN)
    for _ in range(3):
        hero.press("Step")
    hero.wait_for_words("= 3.")
    hero.settle()
    said = hero.page.evaluate("window.said")
    assert [line for line in said if line.startswith("Output 2")] == [
        "Output 2 = …",
        "Output 2 = 1/3 × 6",
        "Output 2 = 1/3 × 6 + 1/3 × 2",
        "Output 2 = 1/3 × 6 + 1/3 × 2 + 1/3 × 1",
        "Output 2 = 1/3 × 6 + 1/3 × 2 + 1/3 × 1 = 3.",
    ]


def test_a_step_taken_early_leaves_no_row_half_full(show):
    hero = show("tril_matmul")
    for _ in range(5):
        hero.press("Step")
    hero.wait_for_words("= 4. Each output")
    hero.settle()
    torch.testing.assert_close(poured(hero).sum(dim=-1), causal_mean_matmul(tokens(hero)[:, None])[:, 0])


def test_a_dragged_token_while_it_plays_does_not_stop_it(show):
    hero = show("tril_matmul")
    hero.press("Play")
    hero.wait_for_words("Output 1 =")
    hero.figure.get_by_role("slider", name="token 0").press("ArrowLeft")
    hero.wait_for_words("Output 4 = 1/5 × 5")
    hero.wait_for_words("Each output")


@pytest.mark.parametrize(
    ("recipe", "band"), [("Mean of the past", (0, 5)), ("Last two", (0, 2)), ("Previous", (1, 2))]
)
def test_each_choice_of_weights(show, recipe, band):
    hero = play(show)
    hero.press(recipe)
    distance = torch.arange(5)[:, None] - torch.arange(5)
    weights = ((distance >= band[0]) & (distance < band[1])).float()
    weights = weights / weights.sum(dim=-1, keepdim=True).clamp(min=1)
    torch.testing.assert_close(torch.tensor(hero.values["weights"]).float(), weights)
    torch.testing.assert_close(poured(hero), weights * tokens(hero))
    torch.testing.assert_close(torch.tensor(hero.values["outputs"]).float(), weights @ tokens(hero))


def test_a_token_dragged_by_mouse_and_by_keys_changes_the_outputs_that_use_it(show):
    hero = play(show)
    before = hero.values["outputs"]
    token = hero.figure.get_by_role("slider", name="token 2")
    edge = token.locator("rect").last.bounding_box()
    x, y = edge["x"] + edge["width"] / 2, edge["y"] + edge["height"] / 2
    hero.page.mouse.move(x, y)
    hero.page.mouse.down()
    hero.page.mouse.move(x + 4 * UNIT, y)
    hero.page.mouse.up()
    token.press("ArrowRight")
    assert hero.values["tokens"] == [6, 2, 6, 7, 4]
    assert hero.values["outputs"][:2] == before[:2]
    means = causal_mean_matmul(tokens(hero)[:, None])[:, 0]
    torch.testing.assert_close(torch.tensor(hero.values["outputs"]).float(), means)
    torch.testing.assert_close(poured(hero).sum(dim=-1), means)


def test_a_weight_pointed_at_says_its_share(show):
    hero = show("tril_matmul", reduced_motion="reduce")
    weight(hero, 1, 2).hover()
    assert "Output 2 = 1/3 × 6 + 1/3 × 2 + 1/3 × 1 = 3. Token 1 pours 1/3 × 2 = 0.67" in words(hero)
    torch.testing.assert_close(poured(hero)[2], torch.tensor([6.0, 2, 1, 0, 0]) / 3)
    weight(hero, 3, 2).hover()
    assert "The weight of token 3 is 0" in words(hero)
    hero.page.mouse.move(0, 0)
    assert not poured(hero).any()


def test_a_pinned_weight_is_let_go_by_step(show):
    hero = show("tril_matmul", reduced_motion="reduce")
    weight(hero, 1, 2).click()
    hero.page.mouse.move(0, 0)
    assert hero.values["looked"] == {"t": 2, "s": 1}
    hero.press("Step")
    assert hero.values["looked"] is None
    assert weight(hero, 1, 2).get_attribute("aria-pressed") == "false"
    assert hero.values["complete"] == [0]
