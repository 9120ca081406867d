"""The explorer of rung 11: each bug leaves its own footprint, and the finding that names it."""

import itertools
import math

import pytest
import torch
from explorers.words import written

from attention_course.examine.planted import BUGS, ONE_FILE
from attention_course.explorers import explore
from attention_course.rungs.an_empty_page import explorer_planted_bugs as planted_bugs

HERE = torch.eye(16, dtype=torch.bool)
PAST, FUTURE = HERE.new_ones(16, 16).tril(-1), HERE.new_ones(16, 16).triu(1)
BUGGY = planted_bugs.SHOWN[1:]
AGAIN, OTHERS, CUT, SWAPPED = range(4)


def says(out, bug):
    if bug == planted_bugs.NONE:
        yield "Nothing is wrong. Each output moves with its own token, on average less with those before it"
        yield f"The first loss is {written(out['losses'][1])} nats, and ln V = {math.log(29):.2f}."
    else:
        yield f"“{BUGS[bug].finding}” names it. {out['finding'].measured} "
        yield out["finding"].cause


def leaks(bug):
    table = torch.zeros(16, 16, dtype=torch.bool)
    for cell in planted_bugs.compute(bug)["leaks"]:
        table[cell] = True
    return table


def moved(bug):
    return planted_bugs.compute(bug)["table"] > 1e-3


def test_a_right_model_looks_right():
    out = planted_bugs.compute(planted_bugs.NONE)
    assert torch.equal(moved(planted_bugs.NONE), HERE | PAST)
    assert out["leaks"] == []
    assert out["changed"].tolist() == [[0, 0], [0, 0], [0, 0], [16, 16]]
    assert out["table"].diagonal().mean() > 1.5 * out["table"][PAST].mean()


@pytest.mark.parametrize("bug", BUGGY)
def test_each_bug_is_found_by_the_finding_that_is_meant_for_it(bug):
    assert BUGS[bug].file == ONE_FILE
    finding = planted_bugs.compute(bug)["finding"]
    assert finding.name == BUGS[bug].finding
    assert finding.verdict in ("wrong", "doubtful")


def test_no_two_bugs_leave_the_same_footprint():
    def footprint(bug):
        out = planted_bugs.compute(bug)
        return out["table"], out["changed"], out["losses"]

    for one, other in itertools.combinations(planted_bugs.SHOWN, 2):
        pairs = zip(footprint(one), footprint(other), strict=True)
        assert any((a - b).abs().max() > 0.1 for a, b in pairs), (one, other)


@pytest.mark.parametrize(
    ("bug", "expected"),
    [
        ("no mask", FUTURE),
        ("mask inverted", FUTURE),
        ("mask off by one", FUTURE & ~HERE.new_ones(16, 16).triu(2)),
        ("each token hidden from itself", FUTURE & (torch.arange(16) == 0)[:, None]),
        ("no scale", FUTURE & False),
        ("positions of the batch", FUTURE & False),
    ],
)
def test_leaks_are_crossed_where_a_bug_makes_them(bug, expected):
    assert torch.equal(leaks(bug), expected)
    explorer = explore("planted_bugs")
    explorer.controls["bug"].value = bug
    assert set(explorer.figure.panels[0].crossed) == set(map(tuple, expected.nonzero().tolist()))


def test_what_else_the_table_tells():
    assert not moved("mask inverted")[PAST].any()
    assert torch.equal(moved("attention not added"), HERE)
    assert not moved("no token sees more than 4 back")[HERE.new_ones(16, 16).tril(-5)].any()
    table = planted_bugs.compute("no residual around attention")["table"]
    assert table.diagonal()[1:].mean() < table[PAST].mean()


@pytest.mark.parametrize(
    ("bug", "probe", "number"),
    [
        ("dropout in eval mode", AGAIN, 16),
        ("weights over the batch", OTHERS, 16),
        ("positions of the batch", OTHERS, 16),
        ("positions counted from the end", CUT, 15),
        ("mask off by one", CUT, 15),
        ("no positions, one layer", SWAPPED, 2),
        ("attention not added", SWAPPED, 2),
    ],
)
def test_each_probe_tells_its_bug(bug, probe, number):
    assert planted_bugs.compute(bug)["changed"][probe].tolist() == [16 * (probe == SWAPPED), number]


def test_the_first_loss_tells_what_the_table_does_not():
    losses = {bug: planted_bugs.compute(bug)["losses"][1].item() for bug in planted_bugs.SHOWN}
    assert losses["embeddings too large"] == max(losses.values()) > math.log(29) + 3
    assert losses["logits already softmaxed"] == pytest.approx(math.log(29), abs=0.02)


def test_the_global_generator_stays_as_it_was():
    state = torch.get_rng_state()
    planted_bugs.compute.cache_clear()
    planted_bugs.compute("no mask")
    assert torch.equal(state, torch.get_rng_state())
