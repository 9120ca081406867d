"""Rung 4's exercises: what their inputs hold, what they tell apart, and that their insights are true."""

import ast
import inspect
import textwrap
from pathlib import Path

import pytest
import torch

from attention_course.attention import Head, causal_mask
from attention_course.exercises import EXERCISES, check, judging
from attention_course.rungs.query_key_value.exercises import head_forward, position_weights

pytestmark = pytest.mark.slow

SOURCE = Path(__file__).parents[2] / "notebooks" / "source" / "04_query_key_value.py"


def inputs(name):
    return judging.trial(EXERCISES[name], 0).inputs


@pytest.mark.parametrize("name", ["attention_weights", "head_forward"])
def test_the_mistakes_of_the_syllabus_are_named(name):
    named = {each for mistake in EXERCISES[name].mistakes for each in mistake.names}
    wanted = {"keys_not_transposed", "queries_transposed", "wrong_softmax_dim", "q_and_k_swapped", "no_mask"}
    assert named >= wanted | {"mask_after_softmax"} | ({"averages_x"} if name == "head_forward" else set())


@pytest.mark.parametrize("name", ["attention_weights", "head_forward"])
def test_drawn_masks_hide_whole_rows_in_some_inputs_and_none_in_most(name):
    empty = [not arguments[-1].any(dim=-1).all() for arguments in inputs(name)]
    assert 2 <= sum(empty) < len(empty) / 2


def test_queries_come_with_no_batch_one_and_several_and_masks_broadcast():
    shapes = [(q.shape, k.shape, mask.shape) for q, k, mask in inputs("attention_weights")]
    assert {len(q) for q, _, _ in shapes} == {2, 3, 4}
    assert {len(mask) for _, _, mask in shapes} == {2, 3}
    assert any(mask[-2] == 1 < q[-2] for q, _, mask in shapes)
    assert any(k[-2] == k[-1] > 1 for _, k, _ in shapes), "`q @ k` never runs"
    assert any(len({q[-2], k[-2], k[-1]}) == 3 for q, k, _ in shapes)


def test_scores_of_a_head_lie_hundreds_apart():
    spans = []
    for x, W_query, W_key, _, _ in inputs("head_forward"):
        scores = (x @ W_query) @ (x @ W_key).mT * W_query.shape[1] ** -0.5
        spans.append((scores.max() - scores.min()).item())
    assert max(spans) > 400


@pytest.mark.parametrize("others", [lambda t: [t], lambda t: [*range(t - 1), t] if t > 1 else []])
def test_the_weight_has_to_be_099(others):
    def previous_but(share):
        """Put all but `share` of each row on the previous token, and the rest evenly on `others(t)`."""

        def answer(size):
            weights = torch.eye(size)
            for t in range(1, size):
                rest = others(t)
                weights[t] = 0
                weights[t, t - 1] = 1 - share if rest else 1
                weights[t, rest] = share / max(1, len(rest))
            return weights

        return answer

    for seed in range(5):
        assert check("previous_token", previous_but(0.009), seed).passed
        assert not check("previous_token", previous_but(0.012), seed).passed


def test_a_single_column_is_told_of_a_second_one():
    """Its weights are those of two equal identities, which are told to move one by a row."""

    def single_column(T):
        return position_weights(100 * torch.ones(T, 1), 10 * torch.arange(T).float()[:, None])

    def equal_identities(T):
        return position_weights(1000 * torch.eye(T), torch.eye(T))

    for answer in (single_column, equal_identities):
        verdict = check("previous_token", answer, 0)
        assert verdict.mistakes == ("finds_itself",)
        assert "If they have a single column" in verdict.message
        assert "If both matrices have a row of ones and zeros for each position" in verdict.message


def test_the_head_is_that_of_the_package():
    x, head, mask = torch.randn(2, 5, 4), Head(4, 3, 6), causal_mask(5)
    mask[2] = False
    matrices = [getattr(head, part).weight.T for part in ("query", "key", "value")]
    torch.testing.assert_close(head_forward(x, *matrices, mask), head(x, mask)[0])


def test_what_the_insights_say_is_true():
    assert "a batch of several heads" in EXERCISES["attention_weights"].insight
    q, k, mask = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 4, 5), causal_mask(4)
    weights = EXERCISES["attention_weights"].reference
    torch.testing.assert_close(weights(q, k, mask)[1, 2], weights(q[1, 2], k[1, 2], mask))
    assert "scale one up and the other down" in EXERCISES["head_forward"].insight
    x, W_query, W_key, W_value = torch.randn(4, 5), *torch.randn(3, 5, 5)
    output = head_forward(x, W_query, W_key, W_value, mask)
    torch.testing.assert_close(head_forward(x, 8 * W_query, W_key / 8, W_value, mask), output)


def test_the_function_beside_the_package_is_the_same_in_the_notebook():
    (shown,) = [
        node
        for node in ast.walk(ast.parse(SOURCE.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name == "position_weights"
    ]
    (ours,) = ast.parse(textwrap.dedent(inspect.getsource(position_weights))).body
    ours.body = ours.body[1:]  # without its docstring
    assert [ast.unparse(line) for line in shown.body] == [ast.unparse(line) for line in ours.body]
