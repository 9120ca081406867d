"""Rung 1's exercises: what their inputs hold, what their references equal, what their texts say."""

import pytest
import torch
from answers import bad, judged, mean_of_past

from attention_course.averaging import causal_mean_loop
from attention_course.exercises import EXERCISES, check, judging
from attention_course.rungs.bag_of_words.exercises import draw_tokens

pytestmark = pytest.mark.slow

windowed, forgetting = (EXERCISES[name].reference for name in ("windowed_mean", "forgetting_mean"))


def inputs(name):
    return judging.trial(EXERCISES[name], 0).inputs


def test_the_mistakes_of_the_syllabus_are_named():
    named = {name for m in EXERCISES["causal_mean_loop"].mistakes for name in m.names}
    assert named >= {
        *("leaves_itself_out", "whole_sequence", "averages_averages", "mean_over_channels"),
        *("future_in_place_of_past", "sum_in_place_of_mean"),
    }


def test_tokens_come_in_every_shape():
    drawn = [x for (x,) in draw_tokens(torch.Generator().manual_seed(0))]
    assert drawn[0].shape[-2] == 1
    assert {x.dim() for x in drawn} == {2, 3}
    assert any(x.dim() == 3 and x.shape[0] == 1 for x in drawn)
    assert any(x.dim() == 3 and x.shape[0] > 1 and len(set(x.shape)) == 3 for x in drawn)
    assert any(x.shape[-1] == x.shape[-2] > 1 for x in drawn)
    assert max(float(x.abs().max()) for x in drawn) > 5e3


def test_windows_are_of_one_token_of_some_of_all_and_of_more():
    lengths = [(k, x.shape[-2]) for x, k in inputs("windowed_mean")]
    assert any(k == 1 for k, _ in lengths)
    assert any(1 < k < T for k, T in lengths)
    assert any(k == T > 1 for k, T in lengths)
    assert any(k > T > 1 for k, T in lengths)


def test_a_long_text_is_tried_once():
    def powers_that_overflow(x):
        powers = 2.0 ** torch.arange(x.shape[-2])[:, None]
        return (powers * x).cumsum(dim=-2) / powers.cumsum(dim=-2)

    for seed in range(3):
        verdict = bad(powers_that_overflow, "forgetting_mean", seed)
        assert "A text of 140 tokens" in verdict.message
    lengths = []
    assert judged("forgetting_mean", lambda x: lengths.append(x.shape[-2]) or forgetting(x)).passed
    assert sorted(set(lengths))[-2:] == [24, 140]
    assert lengths.count(140) == 1


def test_the_references_by_hand():
    assert EXERCISES["causal_mean_loop"].reference is causal_mean_loop
    x = torch.tensor([[4.0], [2.0], [6.0]])
    assert windowed(x, 2).tolist() == [[4.0], [3.0], [4.0]]
    torch.testing.assert_close(forgetting(x), torch.tensor([[4.0], [8 / 3], [32 / 7]]))


def test_what_the_insights_say_is_true():
    x = torch.randn(2, 4, 3)
    assert "`x.cumsum(dim=-2)`, divided by the counts 1 to T" in EXERCISES["causal_mean_loop"].insight
    torch.testing.assert_close(x.cumsum(dim=-2) / torch.arange(1, 5)[:, None], mean_of_past(x))
    assert "with k = 1 each token comes back" in EXERCISES["windowed_mean"].insight
    torch.testing.assert_close(windowed(x, 1), x)
    assert "from k = T on the result is the causal mean" in EXERCISES["windowed_mean"].insight
    for k in (4, 9):
        torch.testing.assert_close(windowed(x, k), mean_of_past(x))
    assert "`total = total / 2 + token`, `count = count / 2 + 1`" in EXERCISES["forgetting_mean"].insight
    total = count = 0
    for t, token in enumerate(x.unbind(dim=-2)):
        total, count = total / 2 + token, count / 2 + 1
        torch.testing.assert_close(forgetting(x)[:, t], total / count)


def test_an_average_divided_by_two_is_told_so():
    verdict = check("forgetting_mean", lambda x: forgetting_sum(x) / 2, 0)
    assert verdict.headline == "not yet: shares sum to less than 1"
    assert "You divide by 2" in verdict.message


def forgetting_sum(x):
    total, rows = 0, []
    for token in x.unbind(dim=-2):
        total = total / 2 + token
        rows.append(total)
    return torch.stack(rows, dim=-2)
