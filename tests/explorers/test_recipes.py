"""The explorer of rung 10: each set of tricks shows its own measured run, beside rung 8's."""

import json
import re
from itertools import product
from threading import Event

import numpy as np
import pytest
import torch
from explorers.words import written

from attention_course.explorers import explore, recipes
from attention_course.gpt import GPT, GPTConfig
from attention_course.speedrun import TRICKS
from attention_course.text import Data
from attention_course.training import Recipe, Trainer

MADE_UP = {
    "machine": "an abacus, one thread",
    "text": "stories",
    "tricks": ["warp", "drift"],
    "every": 10,
    "runs": {  # of three seeds
        "00": {
            "ms_a_step": 1000.0,
            "losses": [[2.0, 1.0, 0.2], [2.5, 1.5, 0.5], [1.0, 0.5, 0.1]],
            "accuracy": [[0.0, 0.5, 1.0], [0.0, 0.0, 0.5], [0.95, 1.0, 1.0]],
        },
        "10": {
            "ms_a_step": 250.0,
            "losses": [[1.9, 0.6, 0.2], [1.5, 0.5, 0.1], [1.0, 0.3, 0.1]],
            "accuracy": [[0.0, 0.0, 0.95], [0.5, 0.95, 1.0], [0.95, 1.0, 1.0]],
        },
        "01": {
            "ms_a_step": 500.0,
            "losses": [[2.5, 2.0, 1.5], [2.6, 2.1, 1.6], [2.0, 1.0, 0.9]],
            "accuracy": [[0.0, 0.1, 0.25], [0.0, 0.0, 0.0], [0.0, 0.0, 1.0]],
        },
        "11": {"ms_a_step": 100.0, "losses": [[0.3], [0.4], [0.2]], "accuracy": [[0.951], [0.95], [0.952]]},
    },
}
MIDDLE = {"00": 0, "10": 1, "01": 0, "11": 0}  # seeds


@pytest.fixture
def made_up(monkeypatch):
    monkeypatch.setattr(recipes, "measured", lambda: MADE_UP)


def said_of(run):
    seconds, accuracy = ([0.0, *run[of].tolist()] for of in ("seconds", "accuracy"))
    if max(accuracy) < 0.95 - 1e-6:
        return f"ends at an answer accuracy of {written(accuracy[-1])} after {seconds[-1]:.1f} s"
    first = next(i for i, share in enumerate(accuracy) if share >= 0.95 - 1e-6)
    here = np.interp(0.95, accuracy[first - 1 : first + 1], seconds[first - 1 : first + 1])
    marks = sorted(run["marks"].tolist())
    last = f"{marks[-1]:.1f}" if marks[-1] < np.inf else "never"
    return f"reaches an answer accuracy of 0.95 after {here:.1f} s ({marks[0]:.1f} to {last})"


def says(out, **switches):
    yield from (said_of(run) for run in (out["rung_8"], out["chosen"]))
    on = [trick for trick, chosen in switches.items() if chosen]
    yield f"With {', '.join(on)} it " if on else "Rung 8's recipe "
    yield "Shown is the middle one of 3 seeds, the range in brackets. "
    yield f"Measured on {recipes.measured()['machine']}."


def test_what_is_stored_is_a_run_for_each_set_of_tricks():
    stored = json.loads(recipes.FILE.read_text(encoding="utf-8"))
    assert stored["tricks"] == list(TRICKS)
    assert set(stored["runs"]) == {"".join(digits) for digits in product("01", repeat=len(TRICKS))}
    assert stored["every"] > 0
    for run in stored["runs"].values():
        losses, accuracy = np.array(run["losses"]), np.array(run["accuracy"])
        assert losses.shape == accuracy.shape
        assert len(losses) == 3
        assert run["ms_a_step"] > 0
        assert ((accuracy >= 0) & (accuracy <= 1)).all()


def test_each_set_of_tricks_shows_its_middle_run(made_up):
    for digits, run in MADE_UP["runs"].items():
        switches = {trick: digit == "1" for trick, digit in zip(("warp", "drift"), digits, strict=True)}
        out, seed = recipes.compute(**switches), MIDDLE[digits]
        seconds = [run["ms_a_step"] * 10 * (i + 1) / 1000 for i in range(len(run["losses"][0]))]
        torch.testing.assert_close(out["chosen"]["seconds"], torch.tensor(seconds))
        torch.testing.assert_close(out["chosen"]["loss"], torch.tensor(run["losses"][seed]))
        torch.testing.assert_close(out["chosen"]["accuracy"], torch.tensor(run["accuracy"][seed]))
        torch.testing.assert_close(out["rung_8"]["seconds"], torch.tensor([10.0, 20.0, 30.0]))
        assert out["chosen"]["seed"] == seed


def test_the_marks_are_those_of_all_seeds_from_the_first_to_the_last(made_up):
    assert recipes.run_of(set())["marks"].tolist() == pytest.approx([10, 29, float("inf")])
    assert recipes.run_of({"warp"})["marks"].tolist() == pytest.approx([2.5, 5, 7.5])


def test_the_mark_is_reached_between_two_measurements(made_up):
    seconds, accuracy = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([0.1, 0.9, 1.0, 0.5])
    assert recipes.seconds_to_mark(seconds, accuracy) == pytest.approx(2.5)
    assert recipes.seconds_to_mark(seconds, accuracy - 0.1) == float("inf")
    assert recipes.seconds_to_mark(seconds, accuracy + 0.95) == pytest.approx(0.95 / 1.05)


@pytest.mark.parametrize(
    ("warp", "drift", "said"),
    [
        (False, False, ""),
        (
            True,
            False,
            " With warp it reaches an answer accuracy of 0.95 after 5.0 s (2.5 to 7.5): 17 % of the time.",
        ),
        (False, True, " With drift it ends at an answer accuracy of 0.25 after 15.0 s, below 0.95."),
        (
            True,
            True,
            " With warp, drift it reaches an answer accuracy of 0.95 after 1.0 s (1.0 to 1.0): "
            "3 % of the time.",
        ),
    ],
)
def test_the_caption_compares_seconds_with_those_of_rung_8(made_up, warp, drift, said):
    explorer = explore("recipes")
    explorer.controls["warp"].value, explorer.controls["drift"].value = warp, drift
    assert explorer.figure.caption == (
        f"Rung 8's recipe reaches an answer accuracy of 0.95 after 29.0 s (10.0 to never).{said} "
        "Shown is the middle one of 3 seeds, the range in brackets. Measured on an abacus, one thread."
    )


def test_both_runs_are_drawn_over_their_own_seconds(made_up):
    explorer = explore("recipes")
    explorer.controls["drift"].value = False
    losses, accuracies = explorer.figure.panels
    for panel, of in ((losses, "losses"), (accuracies, "accuracy")):
        assert list(panel.curves) == ["rung 8", "this recipe"]
        for name, digits in (("rung 8", "00"), ("this recipe", "10")):
            x, y = panel.points(name)
            run = MADE_UP["runs"][digits]
            values = run[of][MIDDLE[digits]]
            kept = [(run["ms_a_step"] * (i + 1) / 100, value) for i, value in enumerate(values)]
            assert list(zip(x.tolist(), y.tolist(), strict=True)) == [
                (pytest.approx(s), pytest.approx(v)) for s, v in kept
            ]
    assert accuracies.x_limits == (0, 30.0)
    explorer.controls["warp"].value = False
    for panel in explorer.figure.panels:
        assert panel.points("this recipe")[1].tolist() == panel.points("rung 8")[1].tolist()


@pytest.fixture
def trained(made_up, monkeypatch):
    """Let the button train two steps; return what it was asked for, and an event at the end."""
    asked, done = [], Event()

    def speedrun(data, tricks):
        asked.append(tricks)
        model = GPT(GPTConfig(data.tokenizer.vocab_size, block_size=16, n_layer=1, n_head=1, n_embd=8))
        return Trainer(model, data, Recipe(steps=2, batch_size=2, evaluate_every=2))

    def answer_accuracy(*given):
        done.set()
        return 0.125

    small = Data.of(recipes.load_text("stories")[:4000])
    monkeypatch.setattr(recipes, "speedrun", speedrun)
    monkeypatch.setattr(recipes, "answer_accuracy", answer_accuracy)
    monkeypatch.setattr(recipes.Data, "of", lambda text: small)
    return asked, done


def wait_until_enabled(button):
    for _ in range(1000):
        if not button.disabled:
            return
        Event().wait(0.01)
    pytest.fail("the training does not end")


def test_the_button_trains_the_chosen_recipe(trained):
    asked, done = trained
    explorer = explore("recipes")
    explorer.controls["warp"].value = False
    below = explorer.children[2]
    button, said = below.children[0].children
    button.click()
    assert done.wait(60)
    wait_until_enabled(button)
    assert asked == [["drift"]]
    live = below.children[1]
    assert live.bar.value == live.bar.max == 2
    assert re.fullmatch(r"answer accuracy 0\.12 after \d+\.\d s on this machine", said.value)


def test_what_fails_is_said_beside_the_button(trained, monkeypatch):
    def broken(data, tricks):
        raise FloatingPointError("training has diverged")

    monkeypatch.setattr(recipes, "speedrun", broken)
    button, said = explore("recipes").children[2].children[0].children
    button.click()
    wait_until_enabled(button)
    assert said.value == "FloatingPointError: training has diverged"
