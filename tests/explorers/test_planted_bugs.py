"""The explorer of planted bugs: each leaves its own footprint, and the finding that names it."""

import itertools
import math

import pytest
import torch
from explorers.words import written

from attention_course.examine.planted import BUGS, ONE_FILE
from attention_course.explorers import explore
from attention_course.rungs.an_empty_page.explorer_planted_bugs import NONE, SHOWN, compute

ALL = torch.ones(16, 16, dtype=torch.bool)
HERE, PAST, FUTURE = ALL.tril().triu(), ALL.tril(-1), ALL.triu(1)
AGAIN, OTHERS, CUT, SWAPPED = range(4)


def says(out, bug):
    if bug == NONE:
        yield "Nothing is wrong. Each output moves with its own token, on average less with those before it"
        yield f"The first loss is {written(out['losses'][1])} nats, and ln V = {math.log(29):.2f}."
    else:
        assert BUGS[bug].file == ONE_FILE
        assert out["finding"].verdict in ("wrong", "doubtful")
        yield f"“{BUGS[bug].finding}” catches it. {out['finding'].measured} {out['finding'].cause}"


def moved(bug):
    return compute(bug)["table"] > 1e-3


def test_a_right_model_looks_right():
    out = compute(NONE)
    assert torch.equal(moved(NONE), HERE | PAST)
    assert out["leaks"] == []
    assert out["changed"].tolist() == [[0, 0], [0, 0], [0, 0], [16, 16]]
    assert out["table"].diagonal().mean() > 1.5 * out["table"][PAST].mean()


def test_no_two_bugs_leave_the_same_footprint():
    parts = "table", "changed", "losses"
    prints = [torch.cat([compute(bug)[part].flatten() for part in parts]) for bug in SHOWN]
    for one, other in itertools.combinations(range(len(SHOWN)), 2):
        assert (prints[one] - prints[other]).abs().max() > 0.1, (SHOWN[one], SHOWN[other])


@pytest.mark.parametrize(
    ("bug", "expected"),
    [
        ("no mask", FUTURE),
        ("mask inverted", FUTURE),
        ("mask off by one", FUTURE & ~ALL.triu(2)),
        ("each token hidden from itself", FUTURE & (torch.arange(16) == 0)[:, None]),
        ("no scale", FUTURE & False),
        ("positions of the batch", FUTURE & False),
    ],
)
def test_leaks_are_crossed_where_a_bug_makes_them(bug, expected):
    explorer = explore("planted_bugs")
    explorer.controls["bug"].value = bug
    assert set(explorer.figure.panels[0].crossed_out) == set(map(tuple, expected.nonzero().tolist()))


def test_what_else_table_and_first_loss_tell():
    assert not moved("mask inverted")[PAST].any()
    assert torch.equal(moved("attention not added"), HERE)
    assert not moved("no token sees more than 4 back")[ALL.tril(-5)].any()
    table = compute("no residual around attention")["table"]
    assert table.diagonal()[1:].mean() < table[PAST].mean()
    losses = {bug: compute(bug)["losses"][1].item() for bug in SHOWN}
    assert losses["embeddings too large"] == max(losses.values()) > math.log(29) + 3
    assert losses["logits already softmaxed"] == pytest.approx(math.log(29), abs=0.02)


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
    assert compute(bug)["changed"][probe].tolist() == [16 * (probe == SWAPPED), number]


def test_the_global_generator_stays_as_it_was():
    state = torch.get_rng_state()
    compute.cache_clear()
    compute("no mask")
    assert torch.equal(state, torch.get_rng_state())
