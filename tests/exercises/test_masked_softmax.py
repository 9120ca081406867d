"""Rung 3's exercises: what their inputs hold, what their references equal, what their texts say."""

import pytest
import torch
from answers import bad
from torch.nn import functional as F

from attention_course.attention import attention_weights, softmax
from attention_course.averaging import causal_mean_softmax
from attention_course.exercises import EXERCISES, check, judging
from attention_course.rungs.bag_of_words.exercises import draw_tokens

pytestmark = pytest.mark.slow

stable, padded = (EXERCISES[name].reference for name in ("stable_softmax", "padding_weights"))


def inputs(name):
    return judging.trial(EXERCISES[name], 0).inputs


def test_the_mistakes_of_the_syllabus_are_named():
    exercises = ("causal_mean_softmax", "stable_softmax", "padding_weights")
    assert {name for each in exercises for m in EXERCISES[each].mistakes for name in m.names} >= {
        *("wrong_softmax_dim", "mask_after_softmax", "zero_in_place_of_inf", "inverted_mask"),
        *("no_max_subtraction", "fully_masked_row_is_nan"),
    }


def test_scores_are_near_zero_high_low_and_far_apart():
    drawn = [x for (x,) in inputs("stable_softmax")]
    assert {x.dim() for x in drawn} == {1, 2, 3}
    assert any(x.shape == (4, 4) for x in drawn)
    assert any((x > 900).all() for x in drawn)
    assert any((x < -900).all() for x in drawn)
    rows = [x.amax(dim=-1) for x in drawn if x.dim() == 2]
    assert any(row.max() - row.min() > 900 for row in rows)
    assert any(x.max() > 900 and x.min() < -900 for x in drawn)


def test_lengths_go_from_none_to_all_and_padding_may_score_highest():
    drawn = inputs("padding_weights")
    assert any(0 in n for _, n in drawn)
    assert any(scores.shape[-1] in n for scores, n in drawn)
    assert any(scores.shape[0] == scores.shape[1] for scores, _ in drawn)
    assert any(scores.shape[1] == scores.shape[2] > 1 for scores, _ in drawn)
    scores, lengths = drawn[-1]
    assert scores[1, 0, lengths[1] :].max() > scores[1, 0, : lengths[1]].max() + 1000
    assert scores[1, 1, : lengths[1]].max() < -1e4


def test_the_references_are_those_of_pytorch_and_the_package():
    assert EXERCISES["causal_mean_softmax"].reference is causal_mean_softmax
    assert EXERCISES["causal_mean_softmax"].draw_inputs is draw_tokens
    for (x,) in inputs("stable_softmax"):
        assert torch.equal(stable(x), softmax(x, dim=-1))
        torch.testing.assert_close(stable(x), torch.softmax(x, dim=-1))
    for scores, lengths in inputs("padding_weights"):
        for weights, row, n in zip(padded(scores, lengths), scores, lengths.tolist(), strict=True):
            torch.testing.assert_close(weights[:, :n], row[:, :n].softmax(dim=-1))
            assert not weights[:, n:].any()


@pytest.mark.parametrize(
    "answer",
    [
        lambda x: x.softmax(dim=-1),
        lambda x: F.softmin(-x, dim=-1),
        lambda x: softmax(x, dim=-1),
        lambda x: torch.log_softmax(x, dim=-1).exp(),
        torch.nn.Softmax(dim=-1),
    ],
)
def test_a_softmax_that_was_not_written_is_rejected(answer):
    assert "The task is to do without it" in bad(answer, "stable_softmax").message


def test_a_wrong_dimension_is_named_beside_the_nan():
    verdict = check("stable_softmax", lambda x: x.exp() / x.exp().sum(dim=0, keepdim=True), 0)
    assert verdict.mistakes == ("no_max_subtraction", "wrong_softmax_dim")


def test_what_the_insights_say_is_true():
    def large_negative(x):
        T = x.shape[-2]
        return torch.zeros(T, T).masked_fill(torch.ones(T, T).triu(1) == 1, -1e9).softmax(-1) @ x

    assert "A fill of -1e9 passes" in EXERCISES["causal_mean_softmax"].insight
    assert check("causal_mean_softmax", large_negative).passed
    assert torch.full((1, 3), -1e9).softmax(dim=-1).all()
    assert "`logsumexp` subtract the largest" in EXERCISES["stable_softmax"].insight
    assert torch.tensor([1000.0, 1000.0]).logsumexp(dim=-1).isfinite()
    assert "gives zeros too" in EXERCISES["padding_weights"].insight
    q, hidden = torch.ones(1, 2, 3), torch.zeros(1, 2, 2, dtype=torch.bool)
    assert not F.scaled_dot_product_attention(q, q, q, attn_mask=hidden).any()
    assert not attention_weights(q, q, hidden).any()
    assert torch.full((2,), float("-inf")).softmax(dim=-1).isnan().all()
