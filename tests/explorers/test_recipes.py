"""The explorer of the race: each recipe shows its own measured race, beside that of any other."""

import json
import math
import re
from itertools import pairwise
from statistics import median
from threading import Event

import pytest
import torch

from attention_course.explorers import explore
from attention_course.gpt import GPT, GPTConfig
from attention_course.rungs.speed_run import explorer_recipes as recipes
from attention_course.speedrun import TRICKS
from attention_course.text import Corpus
from attention_course.training import Recipe, Trainer

INF = math.inf
MADE_UP = {
    "machine": "an abacus, one thread",
    "every": 10,
    "recipes": {  # with three seeds
        "baseline": {
            "tricks": [],
            "learning_rate": 0.01,
            "steps": 30,
            "seconds": [[10.0, 20.0, 30.0], [10.0, 20.0, 30.0], [10.0]],
            "losses": [[2.0, 1.0, 0.2], [2.5, 1.5, 0.5], [1.0]],
            "accuracy": [[0.0, 0.5, 1.0], [0.0, 0.0, 0.5], [0.95]],
        },
        "+ shape": {
            "tricks": ["shape"],
            "learning_rate": 0.02,
            "steps": 20,
            "seconds": [[2.5, 5.0, 7.5], [2.5, 5.0], [2.5]],
            "losses": [[1.9, 0.6, 0.2], [1.5, 0.5], [1.0]],
            "accuracy": [[0.0, 0.0, 0.95], [0.5, 0.95], [0.95]],
        },
    },
}
MIDDLE = {"baseline": 0, "+ shape": 1}


@pytest.fixture
def made_up(monkeypatch):
    monkeypatch.setattr(recipes, "measured", lambda: MADE_UP)


def says(out, recipe, beside):
    for name, run in zip((recipe, beside), (out["chosen"], out["other"]), strict=True):
        middle = median(run["marks"].tolist())
        never = "half or more miss the mark"
        yield f"{name}: {never if middle == INF else f'the mark after {middle:.1f} s'}"
    if recipe != beside:
        yield "a difference" if out["p"] < 0.01 else "chance may have done it"
    yield f"Measured on {recipes.measured()['machine']}."


def test_what_is_stored_are_races_of_each_recipe_up_to_the_mark():
    stored = json.loads(recipes.FILE.read_text(encoding="utf-8"))
    adding = [f"+ {trick}" for trick in TRICKS]
    leaving = [f"without {trick}" for trick in list(TRICKS)[:-1]]
    assert list(stored["recipes"]) == ["baseline", *adding, *leaving]
    for recipe in stored["recipes"].values():
        assert len(recipe["seconds"]) >= 5
        for seconds, losses, accuracy in zip(
            *(recipe[of] for of in ("seconds", "losses", "accuracy")), strict=True
        ):
            assert len(seconds) == len(losses) == len(accuracy)
            assert all(before < after for before, after in pairwise([0, *seconds]))
            assert all(0 <= share <= 1 for share in accuracy)
            assert max([0, *accuracy[:-1]]) < recipes.TARGET_ACCURACY  # nobody goes on after the mark
            turns = math.ceil(recipe["steps"] / stored["every"])
            assert accuracy[-1] >= recipes.TARGET_ACCURACY or len(seconds) == turns


def test_what_the_rung_says_of_the_races():
    runs = {name: recipes.run_of(name) for name in recipes.measured()["recipes"]}
    marks = {name: run["marks"] for name, run in runs.items()}
    adding = ["baseline", *(f"+ {trick}" for trick in TRICKS)]
    differ = [recipes.p_value(marks[a], marks[b]) < recipes.LEVEL for a, b in pairwise(adding)]
    assert differ == [False] * 4 + [True], "only the last trick differs from the row above"
    for name in adding[1:-1]:
        assert recipes.p_value(marks[name], marks["baseline"]) >= recipes.LEVEL
    every, without = marks["+ shape"], {trick: marks[f"without {trick}"] for trick in list(TRICKS)[:-1]}
    assert every.max() < marks["+ schedule"].min()
    assert 0.4 < runs["+ shape"]["median"] / runs["baseline"]["median"] < 0.5
    assert runs["+ token_shift"]["median"] > runs["baseline"]["median"]
    medians = [runs[name]["median"] for name in adding[1:]]
    assert medians == sorted(medians, reverse=True)
    missed = {trick: recipes.p_value(times, every) < recipes.LEVEL for trick, times in without.items()}
    assert missed == {"token_shift": True, "rotary": True, "muon": True, "schedule": False}
    for trick, never in {"token_shift": 4, "rotary": 5}.items():
        assert without[trick].isinf().sum() == never
        assert recipes.measured()["recipes"][f"without {trick}"]["steps"] == 1200
    assert runs["without muon"]["median"] > 2 * runs["+ shape"]["median"]


@pytest.mark.parametrize(
    ("reached", "middle", "shown"),
    [([10.0, INF, 29.0], 29.0, 29.0), ([4.0, 1.0, 3.0, 9.0], 3.5, 4.0), ([4.0, 1.0, INF, INF], INF, INF)],
)
def test_a_recipe_shows_its_middle_race_or_the_one_above(reached, middle, shown, monkeypatch):
    recipe = {
        "seconds": [[10.0 if end == INF else end] for end in reached],
        "losses": [[float(seed)] for seed in range(len(reached))],
        "accuracy": [[0.5 if end == INF else 0.95] for end in reached],
    }
    monkeypatch.setattr(recipes, "measured", lambda: {"recipes": {"made up": recipe}})
    run = recipes.run_of("made up")
    assert (run["median"], run["mark"]) == pytest.approx((middle, shown))
    assert reached[run["seed"]] == shown
    assert run["marks"].tolist() == sorted(reached)
    for of, stored in {"seconds": "seconds", "loss": "losses", "accuracy": "accuracy"}.items():
        assert run[of].tolist() == pytest.approx(recipe[stored][run["seed"]])


def test_the_mark_is_reached_between_two_measurements():
    seconds, accuracy = [1.0, 2.0, 3.0], [0.1, 0.9, 1.0]
    assert recipes.seconds_to_mark(seconds, accuracy) == pytest.approx(2.5)
    assert recipes.seconds_to_mark(seconds[:2], accuracy[:2]) == INF
    assert recipes.seconds_to_mark(seconds, [1.0, 1.0, 1.0]) == pytest.approx(0.95)


@pytest.mark.parametrize(
    ("one", "other", "p"),
    [
        ([1, 2, 3, 4, 5], [6, 7, 8, 9, 10], 2 / 252),
        ([6, 7, 8, 9, 10], [1, 2, 3, 4, 5], 2 / 252),
        ([1, 2, 3, 4, 6], [5, 7, 8, 9, 10], 4 / 252),
        ([1, 2, INF], [INF, INF, INF], 8 / 20),  # their ranks are 1, 2 and four times 4.5
        ([1.0, 2.0], [1.0, 2.0], 1.0),
    ],
)
def test_p_is_that_of_the_exact_rank_sum_test(one, other, p):
    found = recipes.p_value(*(torch.tensor(times, dtype=torch.float64) for times in (one, other)))
    assert found == pytest.approx(p)


def test_both_races_are_drawn_over_their_own_seconds_and_put_into_words(made_up):
    explorer = explore("recipes")
    for panel, of in zip(explorer.figure.panels, ("losses", "accuracy"), strict=True):
        for curve, name in (("beside", "baseline"), ("recipe", "+ shape")):
            stored, seed = MADE_UP["recipes"][name], MIDDLE[name]
            x, y = panel.points(curve)
            assert x.tolist() == pytest.approx(stored["seconds"][seed])
            assert y.tolist() == pytest.approx(stored[of][seed])
    assert explorer.figure.panels[1].x_limits == (0, 30.0)
    baseline = "baseline: the mark after 29.0 s (10.0 s to never). "
    about = "Medians of 3 seeds, with the range in brackets. The curves show the run next to the median."
    shape = "+ shape: the mark after 5.0 s (2.5 s to 7.5 s). With p = 0.1000 chance may have done it. "
    assert explorer.figure.caption == f"{baseline}{shape}{about} Measured on an abacus, one thread."
    explorer.controls["recipe"].value = "baseline"
    assert explorer.figure.caption == f"{baseline}{about} Measured on an abacus, one thread."


@pytest.fixture
def trained(made_up, monkeypatch):
    """Let the button train two steps; the second time it fails. Return what it was asked for."""
    asked = []

    def speedrun(data, tricks, **settings):
        asked.append((tricks, settings))
        if len(asked) > 1:
            raise FloatingPointError("training has diverged")
        model = GPT(GPTConfig(data.tokenizer.vocab_size, block_size=16, n_layer=1, n_head=1, n_embd=8))
        return Trainer(model, data, Recipe(steps=2, batch_size=2, evaluate_every=2))

    small = Corpus.of(recipes.load_text("stories")[:4000])
    monkeypatch.setattr(recipes, "speedrun", speedrun)
    monkeypatch.setattr(recipes, "answer_accuracy", lambda *given: 0.125)
    monkeypatch.setattr(recipes.Corpus, "of", lambda text: small)
    return asked


def test_the_button_trains_the_chosen_recipe_as_it_was_tuned_and_says_what_fails(trained):
    below = explore("recipes").children[2]
    button, said = below.children[0].children

    def click():
        enabled = Event()
        button.observe(lambda change: change.new or enabled.set(), names="disabled")
        button.click()
        assert enabled.wait(60), "the training does not end"

    click()
    assert trained == [(["shape"], {"learning_rate": 0.02, "steps": 20})]
    assert below.children[1].bar.value == below.children[1].bar.max == 2
    assert re.fullmatch(r"answer accuracy 0\.12 after \d+\.\d s on this machine", said.value)
    click()
    assert said.value == "FloatingPointError: training has diverged"
