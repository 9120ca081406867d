"""Weights and scores are those of SmolLM2, and the picture shows those of what is chosen."""

from base64 import b64decode

import pytest
import torch

from attention_course.heads import TARGETS, head_scores, read_weights
from attention_course.heroes import hero

pytestmark = pytest.mark.slow

DATA = hero("a_real_model").data
LEFT, TOP, CELL, PITCH, ASKS = 48, 24, 19.5, 58.5, 262  # as in a_real_model.js
WORDS = [token.strip() for token in DATA["tokens"]]
T = len(WORDS)
IDS = torch.tensor([DATA["tokens"].index(token) for token in DATA["tokens"]])
BUTTONS = {
    "previous token": "the token before",
    "first token": "the first token",
    "induction": "what followed",
}
ROUNDED = 0.005 + 1e-6


def decode(text: str) -> torch.Tensor:
    return torch.tensor(list(b64decode(text))) / 100


def recorded_weights() -> torch.Tensor:
    weights = torch.zeros(*DATA["shape"], T, T)
    weights[:, :, *torch.tril_indices(T, T)] = decode(DATA["weights"]).view(*DATA["shape"], -1)
    return weights


def recorded_scores(job: str) -> torch.Tensor:
    return decode(DATA["jobs"][job]["scores"]).view(*DATA["shape"])


WEIGHTS = recorded_weights()


def targets_of(job: str) -> list[list[int]]:
    return [row.nonzero().flatten().tolist() for row in TARGETS[job](IDS)]


def assert_shows(hero, job: str, head: tuple[int, int], query: int) -> None:
    values = hero.values
    assert (values["job"], values["head"], values["query"]) == (job, list(head), query)
    assert values["weights"] == pytest.approx(WEIGHTS[*head, query, : query + 1].tolist())
    assert values["targets"] == targets_of(job)[query]
    torch.testing.assert_close(torch.tensor(values["scores"]).view(*DATA["shape"]), recorded_scores(job))
    read = WEIGHTS[*head, query].argmax().item()
    name = "itself most" if read == query else f"“{WORDS[read]}” most"
    hero.wait_for_words(
        f"Layer {head[0]}, head {head[1]}, on average, has {100 * recorded_scores(job)[head]:.0f} %"
    )
    hero.wait_for_words(f"From “{WORDS[query]}” it reads {name}, {100 * WEIGHTS[*head, query, read]:.0f} %.")


def point_at(hero, x: float, y: float) -> tuple[float, float]:
    box = hero.figure.locator("svg").bounding_box()
    hero.page.mouse.move(box["x"] + x, box["y"] + y)
    return box["x"] + x, box["y"] + y


def cell(layer: int, head: int) -> tuple[float, float]:
    return LEFT + CELL * (layer + 0.5), TOP + CELL * (head + 0.5)


def token(query: int) -> tuple[float, float]:
    return LEFT + PITCH * (query + 0.5), ASKS


def test_the_numbers_are_those_of_the_model(smollm):
    model, tokenizer = smollm
    ids = tokenizer.encode("".join(DATA["tokens"]))
    assert [tokenizer.decode(token[None]) for token in ids] == DATA["tokens"]
    weights = read_weights(model, ids)
    torch.testing.assert_close(WEIGHTS, weights, atol=ROUNDED, rtol=0)
    for job, targets in TARGETS.items():
        scores = head_scores(weights, targets(ids))
        torch.testing.assert_close(recorded_scores(job), scores, atol=ROUNDED, rtol=0)


def test_the_scores_are_those_of_the_weights():
    assert set(DATA["jobs"]) == set(TARGETS)
    for job, targets in TARGETS.items():
        assert DATA["jobs"][job]["targets"] == targets_of(job)
        scores = head_scores(WEIGHTS, targets(IDS))
        torch.testing.assert_close(recorded_scores(job), scores, atol=2 * ROUNDED, rtol=0)


def test_a_button_finds_the_best_heads_of_its_job(show):
    hero = show("a_real_model", reduced_motion="reduce")
    assert_shows(hero, "previous token", (16, 0), T - 1)
    for job, label in reversed(BUTTONS.items()):
        ranking = recorded_scores(job).flatten().argsort(descending=True, stable=True).tolist()
        for best in ranking[:3]:
            hero.press(label)
            assert_shows(hero, job, divmod(best, DATA["shape"][1]), T - 1)
        many = (recorded_scores(job) >= 0.5).sum()
        assert hero.figure.locator("svg", has_text=f"{many} of 270 heads put 50 % or more").count()
        assert hero.figure.locator("[aria-pressed=true]").inner_text().startswith(label)


def test_the_mouse_points_at_heads_and_presses_them(show):
    hero = show("a_real_model", reduced_motion="reduce")
    point_at(hero, *cell(5, 7))
    assert_shows(hero, "previous token", (5, 7), T - 1)
    point_at(hero, 320, 450)
    assert_shows(hero, "previous token", (16, 0), T - 1)
    hero.page.mouse.click(*point_at(hero, *cell(29, 8)))
    point_at(hero, *cell(0, 0))
    assert_shows(hero, "previous token", (0, 0), T - 1)
    point_at(hero, 320, 450)
    assert_shows(hero, "previous token", (29, 8), T - 1)
    point_at(hero, *cell(3, 3))
    hero.page.mouse.down()
    point_at(hero, *cell(20, 6))
    hero.page.mouse.up()
    point_at(hero, 320, 450)
    assert_shows(hero, "previous token", (20, 6), T - 1)


def test_the_mouse_chooses_the_token_that_asks(show):
    hero = show("a_real_model", reduced_motion="reduce")
    hero.press(BUTTONS["induction"])
    head = tuple(hero.values["head"])
    for query in range(T):
        point_at(hero, *token(query))
        assert_shows(hero, "induction", head, query)
    assert hero.figure.locator("svg", has_text="stands here for the first time").count() == 0
    point_at(hero, LEFT + 5 * PITCH + 1, ASKS)  # between two tokens
    assert_shows(hero, "induction", head, 5)
    hero.page.mouse.click(*point_at(hero, *token(4)))
    point_at(hero, 320, 450)
    assert_shows(hero, "induction", head, 4)
    assert hero.figure.locator("svg", has_text="“home” stands here for the first time").count()


def test_arrow_keys_walk_through_heads_and_tokens(show):
    hero = show("a_real_model", reduced_motion="reduce")
    heads = hero.figure.get_by_role("slider", name="head", exact=True)
    point_at(hero, *cell(9, 8))  # the mouse rests where it is
    heads.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowUp", "ArrowLeft", "ArrowLeft"):
        hero.page.keyboard.press(key)
    assert_shows(hero, "previous token", (15, 1), T - 1)
    assert heads.get_attribute("aria-valuetext").startswith("Layer 15, head 1: ")
    for _ in range(31):
        hero.page.keyboard.press("ArrowRight")
    assert_shows(hero, "previous token", (29, 1), T - 1)
    asking = hero.figure.get_by_role("slider", name="the token that asks")
    asking.focus()
    for query in reversed(range(T - 1)):
        hero.page.keyboard.press("ArrowLeft")
        assert_shows(hero, "previous token", (29, 1), query)
    assert asking.get_attribute("aria-valuetext") == "The"


def test_a_finger_chooses_a_head_and_a_token(show):
    hero = show("a_real_model", reduced_motion="reduce", has_touch=True)
    box = hero.figure.locator("svg").bounding_box()
    for x, y in (cell(17, 5), token(8)):
        hero.page.touchscreen.tap(box["x"] + x, box["y"] + y)
    assert_shows(hero, "previous token", (17, 5), 8)
