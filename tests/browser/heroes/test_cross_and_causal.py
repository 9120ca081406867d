"""The model in the page is the one of the notebook, whatever is typed and whatever is covered."""

import base64
import re

import numpy as np
import pytest
import torch
from record_heroes import DATES, encoder_decoder

from attention_course.attention import padding_mask
from attention_course.heroes import hero

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def rung() -> dict:
    """Return what the notebook defines, its model with the parameters that the hero carries."""
    rung = encoder_decoder(short=True)
    stored = hero("cross_and_causal").data["parameters"]
    for part in ("encoder", "decoder"):
        parameters = rung[part].state_dict()
        for name, parameter in parameters.items():
            entry = stored[f"{part}.{name}"]
            integers = np.frombuffer(base64.b64decode(entry["integers"]), dtype=np.int8)
            parameter.copy_(torch.tensor(integers * entry["scale"]).view_as(parameter))
        assert len(parameters) == sum(name.startswith(part) for name in stored)
    return rung


@torch.no_grad()
def rewrite(rung: dict, text: str, covered: list[bool]) -> tuple[str, torch.Tensor]:
    """Write a date as the notebook does, and hide what is covered as the padding is hidden."""
    seen = padding_mask(torch.tensor([len(text)]), 17)
    seen[..., : len(text)] &= ~torch.tensor(covered)
    context = rung["encoder"](rung["to_ids"]([text], 17), seen)
    ids = rung["to_ids"]([">"], 1)
    for _ in range(10):
        logits, weights = rung["decoder"](ids, context, seen)
        ids = torch.cat([ids, logits[:, -1:].argmax(dim=-1)], dim=-1)
    return "".join(rung["characters"][i] for i in ids[0, 1:]), weights[0, :, : len(text)]


def assert_same_model(values: dict, rung: dict) -> None:
    written, weights = rewrite(rung, values["text"], values["covered"])
    assert values["written"] == written
    torch.testing.assert_close(torch.tensor(values["weights"]).float(), weights, atol=1e-3, rtol=0)


def type_date(hero, text: str) -> None:
    hero.figure.get_by_label("Your date").fill(text)


def place(hero, role: str, name: str) -> tuple[float, float]:
    """Return the middle of a character."""
    box = hero.figure.get_by_role(role, name=name).bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_the_stored_model_is_good(rung):
    written, _ = zip(
        *(rewrite(rung, text, [False] * len(text)) for text in rung["sources"][:200]), strict=True
    )
    assert sum(a == b for a, b in zip(written, rung["targets"][:200], strict=True)) > 190


def test_the_page_computes_what_torch_computes(show, rung):
    hero = show("cross_and_causal", reduced_motion="reduce")
    assert hero.values["text"] == DATES[0] == "14 march 1879"
    for date in (*DATES[1:], "31 December  9999", "3 june 2000"):
        type_date(hero, date)
        assert hero.values["text"] == re.sub(" +", " ", date.lower())
        hero.wait_for_words("It writes")
        assert_same_model(hero.values, rung)
        hero.press("Cover the month")
        month = date.lower().split()[1]
        hero.wait_for_words(f"Covered: “{month}”")
        assert sum(hero.values["covered"]) == len(month)
        assert_same_model(hero.values, rung)
        for row in hero.values["weights"]:
            assert not any(weight for weight, lid in zip(row, hero.values["covered"], strict=True) if lid)
    assert not hero.errors


def test_what_the_mouse_covers_cannot_be_read(show, rung):
    hero = show("cross_and_causal", reduced_motion="reduce")
    x, y = place(hero, "switch", "cover character 13")
    to, _ = place(hero, "switch", "cover character 10")
    hero.page.mouse.move(x, y)
    hero.page.mouse.down()
    hero.page.mouse.move(to, y, steps=3)
    hero.page.mouse.up()
    values = hero.values
    assert values["covered"] == [False] * 9 + [True] * 4
    assert_same_model(values, rung)
    assert values["written"][:4] != "1879"
    assert values["written"][4:] == "-03-14"
    hero.wait_for_words(
        f"Covered: “1879”. ✗ It writes {values['written']}: year {values['written'][:4]}, not 1879."
    )
    hero.press("Uncover")
    assert not any(hero.values["covered"])
    hero.wait_for_words("✓ It writes 1879-03-14")


def test_keys_cover_and_uncover(show, rung):
    hero = show("cross_and_causal")
    for s in range(1, 14):
        switch = hero.figure.get_by_role("switch", name=f"cover character {s}:")
        switch.focus()
        hero.page.keyboard.press("Enter" if s % 2 else "Space")
        assert switch.get_attribute("aria-checked") == "true"
    assert all(hero.values["covered"])
    assert_same_model(hero.values, rung)
    assert not any(sum(row) for row in hero.values["weights"])
    hero.wait_for_words("All is covered")
    hero.page.keyboard.press("Enter")
    assert hero.values["covered"] == [True] * 12 + [False]
    assert_same_model(hero.values, rung)


def test_a_finger_covers(show, rung):
    hero = show("cross_and_causal", has_touch=True)
    hero.figure.get_by_role("switch", name="cover character 6").tap()
    assert hero.values["covered"] == [s == 5 for s in range(13)]
    assert_same_model(hero.values, rung)


def test_a_character_says_what_it_looks_at(show):
    hero = show("cross_and_causal", reduced_motion="reduce")
    hero.press("Play")
    hero.wait_for_words("It writes 1879-03-14")
    row = hero.values["weights"][5]
    most = max(range(13), key=row.__getitem__)
    character = hero.figure.get_by_role("button", name="written character 6")
    character.hover()
    hero.wait_for_words(f"“0” (the month) looks at “{'14 march 1879'[most]}” {row[most]:.2f}")
    hero.figure.get_by_role("switch", name=f"cover character {most + 1}:").hover()
    hero.wait_for_words(f"“0” (month) {row[most]:.2f}")
    character.focus()
    hero.page.keyboard.press("Enter")
    hero.page.mouse.move(1, 1)
    hero.wait_for_words("“0” (the month) looks at")


def test_it_writes_one_character_at_a_time(show):
    hero = show("cross_and_causal")
    assert hero.values["seen"] == 4
    hero.wait_for_words("has read 14 march 1879, and has written its year")
    hero.press("Start over")
    hero.settle()
    for seen in range(1, 11):
        hero.press("Step")
        hero.settle()
        assert hero.values["seen"] == seen
        hero.wait_for_words(f"“{'1879-03-14'[seen - 1]}” (")
    hero.press("Another date")
    hero.wait_for_words("It writes 1066-07-07")
    assert hero.values["seen"] == 11


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("3/3/1998", "does not know “/”"),
        ("3 märz 1998", "does not know “ä”"),
        ("march 3 1998", "For example: 3 march 1998"),
        ("32 march 1998", "For example: 3 march 1998"),
        ("3 march 998", "For example: 3 march 1998"),
        ("", "For example: 3 march 1998"),
    ],
)
def test_a_text_that_it_cannot_read_leaves_the_last_date(show, text, words):
    hero = show("cross_and_causal", reduced_motion="reduce")
    before = hero.values
    type_date(hero, text)
    hero.wait_for_words(words)
    assert hero.values == before
    type_date(hero, before["text"])
    hero.figure.locator(".words", has_text=words).wait_for(state="detached")
    assert hero.values == before
    type_date(hero, "1 may 1000")
    hero.wait_for_words("1000-05-01")
    assert not hero.errors
