"""The bell is that of random scores, weights and derivatives are torch's, at every head_size."""

import pytest
import record_heroes
import torch

from attention_course.heroes import hero

pytestmark = pytest.mark.slow

DATA = hero("scaling_variance").data
HANDLE = {"role": "slider", "name": "head_size"}


def norm_of_jacobian(scores: torch.Tensor) -> float:
    return torch.autograd.functional.jacobian(lambda s: torch.softmax(s, dim=-1), scores).norm().item()


def assert_follows_torch(values: dict, head_size: int, divided: bool) -> None:
    assert (values["head_size"], values["divided"]) == (head_size, divided)
    row = torch.tensor(DATA["scores"][DATA["head_sizes"].index(head_size)], dtype=torch.float64)
    scores = row * (head_size**-0.5 if divided else 1)
    torch.testing.assert_close(torch.tensor(values["scores"], dtype=torch.float64), scores)
    torch.testing.assert_close(
        torch.tensor(values["weights"], dtype=torch.float64), torch.softmax(scores, dim=-1)
    )
    assert values["norm"] == pytest.approx(norm_of_jacobian(scores), abs=1e-12)


def test_the_numbers_are_those_that_torch_draws():
    drawn = record_heroes.scaling_variance()
    for name, rounding in (("scores", 2e-3), ("counts", 3)):  # sums in another order may end in another bin
        torch.testing.assert_close(
            torch.tensor(drawn.pop(name)), torch.tensor(DATA[name]), atol=rounding, rtol=0
        )
    assert drawn == {name: DATA[name] for name in drawn}


def test_the_bell_has_the_width_of_the_dashed_curve():
    centers = torch.linspace(-4, 4, 33, dtype=torch.float64)
    for counts in torch.tensor(DATA["counts"], dtype=torch.float64):
        deviation = ((counts * centers**2).sum() / counts.sum()).sqrt()
        assert deviation == pytest.approx(1, abs=0.08)  # the frame ends at 4 deviations


def test_the_row_is_like_most():
    torch.manual_seed(1)
    q, k = torch.randn(500, 1, 256), torch.randn(500, 8, 256)
    for head_size, row in zip(DATA["head_sizes"], torch.tensor(DATA["scores"]), strict=True):
        scores = (q[..., :head_size] * k[..., :head_size]).sum(dim=-1)
        usual = torch.softmax(scores, dim=-1).amax(dim=-1).median()
        torch.testing.assert_close(torch.softmax(row, dim=-1).max(), usual, atol=0.2, rtol=0)


def test_every_head_size_with_and_without_the_scale(show):
    hero = show("scaling_variance", reduced_motion="reduce")
    hero.press("Start over")
    norms = {}
    for divided in (False, True):
        for head_size in DATA["head_sizes"]:
            assert_follows_torch(hero.values, head_size, divided)
            norms[head_size, divided] = hero.values["norm"]
            if head_size < 256:
                hero.press("Step")
        hero.press("÷ √head_size")
        hero.press("Start over")
    assert norms[256, False] < 0.05 * norms[1, False]
    assert norms[256, True] > 0.8 * norms[1, True]


def test_mouse_and_keys_drag_the_edge(show):
    hero = show("scaling_variance", reduced_motion="reduce")
    handle = hero.figure.get_by_role(**HANDLE)
    left = hero.figure.locator("svg").bounding_box()["x"]
    box = handle.bounding_box()
    hero.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 14)
    hero.page.mouse.down()
    hero.page.mouse.move(left + 320 + 7.75 * 2 * 8, box["y"])  # the edge of the bell for 64 is at 2 √64
    hero.page.mouse.up()
    assert_follows_torch(hero.values, 64, divided=False)
    assert handle.get_attribute("aria-valuetext") == "64"
    handle.focus()
    hero.page.keyboard.press("ArrowLeft")
    assert_follows_torch(hero.values, 32, divided=False)
    hero.press("÷ √head_size")
    handle.focus()
    hero.page.keyboard.press("ArrowRight")
    assert_follows_torch(hero.values, 64, divided=True)


def test_a_key_that_is_pointed_at_says_its_numbers(show):
    hero = show("scaling_variance", reduced_motion="reduce")
    weight = hero.values["weights"][5]
    hero.figure.get_by_role("button", name="key 5").hover()
    hero.wait_for_words(f"Key 5: score {DATA['scores'][4][5]:.1f}, weight {weight:.2f}")
    hero.press("÷ √head_size")
    hero.figure.get_by_role("button", name="key 5").hover()
    divided, weight = hero.values["scores"][5], hero.values["weights"][5]
    hero.wait_for_words(f"Key 5: score {DATA['scores'][4][5]:.1f} ÷ 4 = {divided:.1f}, weight {weight:.2f}")
