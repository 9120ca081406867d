"""The files of the heroes, the HTML that holds one, and the numbers that were recorded for some.

What scripts make of the numbers is tested in `tests/scripts`, how it looks in `tests/browser`.
"""

import base64
import html
import json
import math
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
import record_heroes
import torch
from IPython.core.formatters import DisplayFormatter
from record_heroes import FINDINGS, LINES

from attention_course.examine import QUESTIONS
from attention_course.heads import HEAD_TARGETS, head_scores, read_weights
from attention_course.heroes import HEROES, hero
from attention_course.ladder import RUNGS
from attention_course.rungs.speed_run import explorer_recipes as recipes
from attention_course.speedrun import TRICKS
from attention_course.training import RECIPES


@pytest.mark.parametrize("name", HEROES)
def test_a_hero_is_a_page_with_a_still_of_the_same_size_and_its_words(name):
    shown, still = hero(name), HEROES[name].with_suffix(".svg").read_text(encoding="utf-8")
    assert shown.title
    assert not shown.title.endswith(".")
    assert shown.alt.endswith(".")
    assert len(shown.alt) > 60
    wide, narrow = shown.heights
    assert 200 <= wide <= 460
    assert 200 <= narrow <= 650, "on a phone it has to be seen with its words and buttons"
    root = ElementTree.fromstring(still)
    assert (root.get("width"), root.get("height")) == ("640", str(wide))
    assert len(list(root.iter())) > 2, "nothing is drawn"
    assert "prefers-color-scheme: dark" in still
    shown.data["told"] = "</script>"
    page = shown.page()
    alt, image = re.search(r'<img alt="([^"]+)" src="data:image/svg\+xml;base64,([^"]+)">', page).groups()
    assert (html.unescape(alt), base64.b64decode(image).decode()) == (shown.alt, still)
    assert page.count("<script>") == page.count("</script>") == 1
    assert "play(stage, " in page
    if shown.ask:
        assert shown.ask["question"].endswith("?")
        assert shown.ask["choices"][shown.ask["right"]]
        assert shown.ask["then"]
    assert not re.findall(r'(?:src|href|url\()\s*=?"?https?:', still + page), "it asks for nothing"
    data, _ = DisplayFormatter().format(shown)
    assert data["text/html"] == page
    assert data["text/plain"] == f"{shown.title}. {shown.alt}"


def test_an_unknown_name_is_answered_with_those_that_there_are():
    with pytest.raises(ValueError, match="bag_of_words"):
        hero("bag_of_wrods")


# Recorded numbers


@pytest.mark.parametrize("name", ["ladder", "bigram_to_gpt"])
def test_the_floors_are_those_that_the_package_computes(name):
    assert hero(name).data["floors"] == record_heroes.floors()


def test_the_ladder_is_that_of_the_course_and_its_loss_falls_through_the_floors_of_the_tables():
    data = hero("ladder").data
    moments, floors = data["moments"], data["floors"]
    assert [each["title"] for each in data["rungs"]] == [rung.title for rung in RUNGS]
    assert [moment["step"] for moment in moments] == list(record_heroes.MOMENTS)
    losses = [moment["loss"] for moment in moments]
    assert losses == sorted(losses, reverse=True)
    assert losses[0] > max(floors.values())
    assert [name for name, floor in floors.items() if losses[-1] < floor] == [
        *("nothing", "1-gram", "2-gram", "3-gram")
    ]


def test_the_attentions_are_those_that_were_recorded_and_the_answer_has_their_numbers():
    shown = hero("a_real_model")
    right, *bugs = shown.data["attentions"]
    assert json.loads(json.dumps(record_heroes.a_real_model())) == shown.data
    assert right["written"][:2] == [" Paris", "."]
    no_mask = bugs[0]
    assert (right["name"], no_mask["name"]) == ("right", "no mask")
    assert f"falls from {right['loss']:.2f} to {no_mask['loss']:.2f}" in shown.ask["then"]
    assert shown.ask["choices"][shown.ask["right"]] == "it falls"
    assert set(no_mask["written"]) == {"_"}


@pytest.mark.slow
def test_heads_are_those_of_the_real_model(smollm):
    model, tokenizer = smollm
    data = hero("looking_inside").data
    ids, T = tokenizer.encode("".join(data["tokens"])), len(data["tokens"])
    assert [tokenizer.decode(token[None]) for token in ids] == data["tokens"]
    weights = torch.zeros(*data["shape"], T, T)
    recorded = torch.tensor(list(base64.b64decode(data["weights"]))) / 100
    weights[:, :, *torch.tril_indices(T, T)] = recorded.view(*data["shape"], -1)
    real, rounding = read_weights(model, ids), 0.005 + 1e-6
    torch.testing.assert_close(weights, real, atol=rounding, rtol=0)
    assert set(data["jobs"]) == set(HEAD_TARGETS)
    for job, targets in HEAD_TARGETS.items():
        scores = torch.tensor(list(base64.b64decode(data["jobs"][job]["scores"]))) / 100
        torch.testing.assert_close(
            scores.view(*data["shape"]), head_scores(real, targets(ids)), atol=rounding, rtol=0
        )
        assert data["jobs"][job]["targets"] == [row.nonzero().flatten().tolist() for row in targets(ids)]


@pytest.mark.slow
def test_scores_are_those_that_torch_draws_and_the_bell_is_as_wide_as_the_dashed_curve():
    data, drawn = hero("scaling_variance").data, record_heroes.scaling_variance()
    for name, rounding in (("scores", 2e-3), ("counts", 3)):  # sums in another order may end in another bin
        found, recorded = torch.tensor(drawn.pop(name)), torch.tensor(data[name])
        torch.testing.assert_close(found, recorded, atol=rounding, rtol=0)
    assert drawn == {name: data[name] for name in drawn}
    centers = torch.linspace(-4, 4, 33, dtype=torch.float64)
    for counts in torch.tensor(data["counts"], dtype=torch.float64):
        deviation = ((counts * centers**2).sum() / counts.sum()).sqrt()
        assert deviation == pytest.approx(1, abs=0.08)  # the frame ends at 4 deviations


@pytest.mark.slow
def test_the_parts_of_a_gpt_are_those_of_the_rung(monkeypatch):
    """Recorded anew, after three steps of training, all is the same but what is learnt later."""
    monkeypatch.setitem(RECIPES, "stories", replace(RECIPES["stories"], steps=3))
    data, recorded = hero("bigram_to_gpt").data, record_heroes.bigram_to_gpt()
    assert recorded | {"parts": data["parts"]} == data
    for part, now in zip(data["parts"], recorded["parts"], strict=True):
        learnt = {key: now[key] for key in ("loss", "accuracy", "line")}
        assert now == part | learnt
        assert now["loss"] > part["loss"]


def test_the_race_is_that_of_the_recipes_up_to_the_mark():
    data, above = hero("speed_run").data, None
    runners = data["runners"]
    assert (data["machine"], data["mark"]) == (recipes.measured()["machine"], recipes.TARGET_ACCURACY)
    assert [runner["trick"] for runner in runners] == ["", *[trick.replace("_", " ") for trick in TRICKS]]
    assert [runner["why"] for runner in runners[1:]] == list(TRICKS.values())
    for name, runner in zip(["baseline", *[f"+ {trick}" for trick in TRICKS]], runners, strict=True):
        run = recipes.run_of(name)
        done = runner["seconds"][-1] if runner["accuracies"][-1] == data["mark"] else math.inf
        assert done == pytest.approx(run["mark"], rel=1e-3)
        assert len(run["marks"]) == data["seeds"]
        assert runner["seconds"][0] == runner["accuracies"][0] == 0
        assert runner["seconds"][1:-1] == pytest.approx(run["seconds"][:-1].tolist(), rel=1e-3)
        assert runner["accuracies"][1:-1] == pytest.approx(run["accuracy"][:-1].tolist(), rel=1e-3)
        differs = above is not None and recipes.p_value(run["marks"], above) < recipes.LEVEL
        assert runner["differs"] == differs
        above = run["marks"]
    assert runners[-1]["seconds"][-1] < runners[0]["seconds"][-1]


def test_the_rewarded_models_are_those_that_were_measured_and_the_answer_is_true_of_them():
    shown = hero("after_pretraining")
    assert json.loads(json.dumps(record_heroes.after_pretraining())) == shown.data
    base, tuned, rewarded = shown.data["moments"]
    who, right, choices = shown.data["asked"][0], shown.ask["right"], shown.ask["choices"]
    assert f"“{base['answers'][0].strip()}”" in choices[right]
    assert f"“{who['answer'].strip()}”" in choices[0]
    assert {answer.endswith("?") for answer in base["answers"]} == {True}
    assert base["right"] < rewarded["right"] < shown.data["questions"] / 2 < tuned["right"]
    assert rewarded["reward"] > tuned["reward"] + 0.2
    for asked, answer in zip(shown.data["asked"], rewarded["answers"], strict=True):
        assert any(name in answer for name in re.findall("[A-Z][a-z]+", asked["fact"])[1:])


# The empty page

T = 8
BUILT = [LINES[:count] for count in range(len(LINES) + 1)]
LEFT_OUT = [[each for each in LINES if each != line] for line in LINES]
FIRST_WRONG = {  # what finds that a line is missing; nothing does of feed-forward and norm
    "embedding": "It answers ids with logits",
    "logits": "It answers ids with logits",
    "attention": "The past is used",
    "mask": "No leak from the future",
    "position": "The order of tokens matters",
    "residual": "A token's own output depends most on itself",
}


def recorded(lines) -> tuple[str, list[list[int]]]:
    """Return the verdicts, and the table with a row for each output; no rows if there is none."""
    page = hero("an_empty_page").data["pages"]["".join(str(int(line in lines)) for line in LINES)]
    levels = [int(digit) for digit in page[len(FINDINGS) :]]
    return page[: len(FINDINGS)], [levels[row * T : (row + 1) * T] for row in range(len(levels) // T)]


def wrong(lines) -> list[str]:
    return [name for name, verdict in zip(FINDINGS, recorded(lines)[0], strict=True) if verdict == "w"]


def test_lines_and_findings_are_those_that_were_recorded():
    data = hero("an_empty_page").data
    assert (data["lines"], data["findings"]) == (list(LINES), list(FINDINGS))
    assert set(FINDINGS) <= {question.name for question in QUESTIONS if not question.train}
    assert len(data["pages"]) == 2 ** len(LINES)
    table = {"0": 0, "1": T * T}  # without vectors for tokens there is none
    assert all(len(page) == len(FINDINGS) + table[there[0]] for there, page in data["pages"].items())


@pytest.mark.parametrize("lines", [*BUILT, *LEFT_OUT], ids="+".join)
def test_the_examiner_finds_it_again(lines):
    page = record_heroes.page(set(lines))
    verdicts, table = recorded(lines)
    assert page[: len(FINDINGS)] == verdicts
    levels = [level for row in table for level in row]
    assert [int(digit) for digit in page[len(FINDINGS) :]] == pytest.approx(levels, abs=1)
    assert [digit == "0" for digit in page[len(FINDINGS) :]] == [level == 0 for level in levels]


def test_each_line_mends_what_was_wrong_first():
    assert wrong(LINES) == []
    for line, missing in zip(LINES, LEFT_OUT, strict=True):
        assert wrong(missing)[:1] == ([FIRST_WRONG[line]] if line in FIRST_WRONG else []), line
    assert [wrong(lines)[0] for lines in BUILT[:-3]] == list(FIRST_WRONG.values())


def test_the_table_is_a_diagonal_a_square_a_triangle():
    def itself(output, token):
        return output == token

    def all_of_them(output, token):
        return True

    def the_past(output, token):
        return token <= output

    without = dict(zip(LINES, LEFT_OUT, strict=True))
    tables = [(BUILT[2], itself), (BUILT[3], all_of_them), (BUILT[4], the_past), (LINES, the_past)]
    for lines, reads in [*tables, (without["mask"], all_of_them), (without["attention"], itself)]:
        read = [[level > 0 for level in row] for row in recorded(lines)[1]]
        assert read == [[reads(output, token) for token in range(T)] for output in range(T)]
