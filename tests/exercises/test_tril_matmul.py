"""Rung 2's exercises: what their inputs hold, what their references equal, what their texts say."""

import pytest
import torch
from answers import mean_of_past

from attention_course.averaging import causal_mean_matmul
from attention_course.exercises import EXERCISES, judging
from attention_course.rungs.bag_of_words.exercises import draw_tokens, windowed_mean

pytestmark = pytest.mark.slow

band, shift = (EXERCISES[name].reference for name in ("band_matrix", "shift_matrix"))


def inputs(name):
    return judging.trial(EXERCISES[name], 0).inputs


def test_the_mistakes_of_the_syllabus_are_named():
    named = {name for m in EXERCISES["causal_mean_matmul"].mistakes for name in m.names}
    assert named >= {
        *("no_keepdim", "future_in_place_of_past", "not_normalized", "leaves_itself_out", "tokens_first"),
        "columns_normalized",
    }


def test_sizes_are_of_one_token_of_some_of_all_and_of_more():
    assert EXERCISES["causal_mean_matmul"].draw_inputs is draw_tokens
    sizes = inputs("band_matrix")
    assert {(1, 1), (1, 4)} <= set(sizes)
    assert any(k == 1 < T for T, k in sizes)
    assert any(1 < k < T - 1 for T, k in sizes)
    assert any(k == T > 1 for T, k in sizes)
    assert any(k > T > 1 for T, k in sizes)
    counts = [T for (T,) in inputs("shift_matrix")]
    assert counts[:3] == [1, 2, 3]
    assert max(counts) > 9


def test_the_references_mix_tokens_as_they_should():
    assert EXERCISES["causal_mean_matmul"].reference is causal_mean_matmul
    x = torch.randn(6, 3)
    for k in range(1, 9):
        torch.testing.assert_close(band(6, k) @ x, windowed_mean(x, k))
    assert torch.equal(shift(6) @ x, torch.cat([torch.zeros(1, 3), x[:-1]]))
    assert shift(1).tolist() == [[0.0]]


def test_what_the_insights_say_is_true():
    x = torch.randn(2, 4, 3)
    assert "one matrix serves every text of a batch" in EXERCISES["causal_mean_matmul"].insight
    torch.testing.assert_close(band(4, 4) @ x, mean_of_past(x))
    assert "With k = 1 the band is the identity" in EXERCISES["band_matrix"].insight
    assert torch.equal(band(4, 1), torch.eye(4))
    assert "from k = T on it is the whole triangle" in EXERCISES["band_matrix"].insight
    for k in (4, 9):
        assert torch.equal(band(4, k) > 0, torch.ones(4, 4).tril() > 0)
    assert "row 0 here sums to 0" in EXERCISES["shift_matrix"].insight
    assert shift(4).sum(dim=-1).tolist() == [0.0, 1.0, 1.0, 1.0]
