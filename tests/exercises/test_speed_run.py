"""Rung 10's exercises: what their inputs hold, what their references equal, what their texts say."""

import pytest
import torch

from attention_course import flash
from attention_course.exercises import EXERCISES, check, judging
from attention_course.rungs.speed_run import exercises as rung

pytestmark = pytest.mark.slow
SEEDS = pytest.mark.parametrize("seed", range(5))


def inputs(name, seed=0):
    return judging.trial(EXERCISES[name], seed).inputs


def test_the_mistakes_of_the_syllabus_are_named():
    assert {name for each in rung.EXERCISES for m in each.mistakes for name in m.names} >= {
        *("maximum_not_applied_to_the_sum", "maximum_not_applied_to_the_output", "maximum_of_the_block"),
        *("divided_in_every_block", "no_max_subtraction"),
        *("powers_of_each_entry", "no_transpose", "transposed_on_the_wrong_side", "fifth_power_missing"),
        *("zero_at_step_0", "zero_at_the_last_step", "decay_from_the_wrong_start", "cosine"),
        *("final_times_compared", "ratio_of_losses", "upside_down", "last_crossing", "no_interpolation"),
        "end_in_place_of_never",
    }


# Inputs


@SEEDS
def test_the_maximum_rises_falls_and_overflows(seed):
    drawn = [[scores.max() for scores, _ in blocks] for (blocks,) in inputs("online_softmax", seed)]
    assert any(len(maxima) == 1 for maxima in drawn)
    assert any(maxima[-1] == max(maxima) != maxima[0] for maxima in drawn)
    assert any(maxima[0] == max(maxima) != maxima[-1] for maxima in drawn)
    assert any(maxima[0].exp().isinf() for maxima in drawn)
    assert any(max(maxima).exp() == 0 for maxima in drawn)
    assert any(len({len(scores) for scores, _ in blocks}) > 1 for (blocks,) in inputs("online_softmax", seed))


@SEEDS
def test_matrices_are_wide_tall_and_square(seed):
    drawn = inputs("newton_schulz_step", seed)
    assert {(rows > cols) - (rows < cols) for rows, cols in (x.shape for x, *_ in drawn)} == {-1, 0, 1}
    assert any(tuple(numbers) == rung.MUON for _, *numbers in drawn)
    assert any(tuple(numbers) != rung.MUON for _, *numbers in drawn)
    for x, *_ in drawn:
        torch.testing.assert_close(x.norm(), torch.tensor(2.0))


@SEEDS
def test_schedules_have_each_part_and_lack_each_part(seed):
    drawn = [
        (warmup, n - warmup - decay, decay) for _, n, warmup, decay in inputs("learning_rate_schedule", seed)
    ]
    for part in zip(*drawn, strict=True):
        assert min(part) == 0
        assert max(part) > 2
    assert any(min(parts) > 0 for parts in drawn)
    assert any(isinstance(peak, int) for peak, *_ in inputs("learning_rate_schedule", seed))


@SEEDS
def test_curves_begin_above_the_mark_and_cross_it_never_once_and_more_often(seed):
    crossings, touched = set(), []
    for old, new, mark in inputs("speed_up", seed):
        for seconds, losses in (old, new):
            assert losses[0] > mark
            assert (seconds.diff() > 0).all()
            crossings.add(int(((losses[:-1] > mark) & (losses[1:] <= mark)).sum()))
            touched.append(bool((losses == mark).any()))
    assert crossings >= {0, 1, 3}
    assert any(touched)
    ratios = torch.stack([rung.speed_up(*given)[2] for given in inputs("speed_up", seed)])
    assert (ratios > 1).any()
    assert (ratios < 1).any()
    assert ratios.isnan().any()


# References


@SEEDS
def test_online_softmax_is_that_of_all_scores_and_that_of_the_package(seed):
    for (blocks,) in inputs("online_softmax", seed):
        scores, values = (torch.cat(parts) for parts in zip(*blocks, strict=True))
        found = rung.online_softmax(blocks)
        torch.testing.assert_close(found, scores.softmax(dim=0) @ values)
        package, _ = flash.online_softmax((scores[None], values) for scores, values in blocks)
        torch.testing.assert_close(found, package[0])


def test_five_steps_of_muon_make_singular_values_equal():
    x = torch.randn(6, 9, generator=torch.Generator().manual_seed(0))
    after = x / x.norm()
    for _ in range(5):
        after = rung.newton_schulz_step(after, *rung.MUON)
    before, after = torch.linalg.svdvals(x), torch.linalg.svdvals(after)
    assert before[0] / before[-1] > 3
    assert 0.6 < after[-1] < after[0] < 1.3
    assert "bring nearly all of them to about 1" in EXERCISES["newton_schulz_step"].insight


def test_the_schedule_of_the_text():
    rates = rung.learning_rate_schedule(1.0, 8, 2, 4)
    assert "½, 1, 1, 1, 1, ¾, ½, ¼" in EXERCISES["learning_rate_schedule"].task
    assert rates.tolist() == [0.5, 1, 1, 1, 1, 0.75, 0.5, 0.25]
    assert inputs("learning_rate_schedule")[0] == (1.0, 8, 2, 4)


def test_seconds_to_a_mark_lie_on_the_line():
    old = torch.tensor([[1.0, 3.0, 5.0], [4.0, 2.0, 3.0]])
    new = torch.tensor([[1.0, 2.0], [4.0, 0.0]])
    torch.testing.assert_close(rung.speed_up(old, new, 2.5), torch.tensor([2.5, 1.375, 2.5 / 1.375]))
    assert rung.speed_up(old, new, 2.0).tolist() == [3.0, 1.5, 2.0]
    never = rung.speed_up(old, new, 1.0)
    assert never.isnan().tolist() == [True, False, True]


# Blocks


def test_blocks_are_copies_and_show_their_scores():
    blocks = rung.Blocks(((torch.zeros(2), torch.ones(2, 3)), (torch.zeros(1), torch.ones(1, 3))))
    assert repr(blocks) == "scores 0.0, 0.0 | 0.0"
    for scores, values in blocks:
        scores += 1
        values += 1
    assert all((scores == 0).all() and (values == 1).all() for scores, values in blocks)


@pytest.mark.parametrize(
    "keep", [list, lambda blocks: [*blocks][::-1], lambda blocks: (pair for pair in [*blocks])]
)
@pytest.mark.usefixtures("shapes_unchecked")
def test_an_answer_that_keeps_all_blocks_is_told_so(keep):
    verdict = check("online_softmax", lambda blocks: rung.online_softmax(keep(blocks)), seed=0)
    assert verdict.mistakes == ("all_blocks_held",)
    assert "carry three things" in verdict.message
    assert check("online_softmax", lambda blocks: rung.online_softmax(pair for pair in blocks), seed=0).passed
