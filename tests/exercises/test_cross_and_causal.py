"""The exercises of rung 6: what is drawn for them, and what their checks say."""

import pytest
import torch
import torch.nn.functional as F

from attention_course.attention import Head, causal_mask, leak_probe, padding_mask
from attention_course.exercises import EXERCISES, check
from attention_course.rungs.cross_and_causal import exercises as rung

pytestmark = pytest.mark.slow


def drawn(name, seed=0):
    return EXERCISES[name].draw_inputs(torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("seed", range(5))
def test_the_masks_that_are_drawn_hide_a_key_a_query_and_a_text(seed):
    sizes = drawn("causal_mask", seed)
    assert {(1, 1), (3, 3), (1, 4)} <= set(sizes)
    assert all(1 <= T_q <= T_k for T_q, T_k in sizes)
    assert any(0 in lengths and T_k in lengths for lengths, T_k in drawn("padding_mask", seed))
    masks = [mask for *_, mask in drawn("cross_attention_forward", seed)]
    assert any(mask is None for mask in masks)
    masks = [mask for mask in masks if mask is not None]
    assert any(mask.any(dim=-1).all() and not mask.all() for mask in masks)
    of_tables = [mask for mask in masks if mask.dim() == 2]
    assert any(not mask.any(dim=-1).all() and mask.all(dim=-1).any() for mask in of_tables)
    assert any(mask.dim() == 3 and not mask[1].any() for mask in masks)


def test_cross_attention_is_that_of_pytorch_and_of_the_head():
    for x, context, W_query, W_key, W_value, mask in drawn("cross_attention_forward"):
        given = F.scaled_dot_product_attention(x @ W_query, context @ W_key, context @ W_value, mask)
        torch.testing.assert_close(
            rung.cross_attention_forward(x, context, W_query, W_key, W_value, mask), given
        )
    head, x = Head(4, 3), torch.randn(5, 4)
    matrices = [layer.weight.T for layer in (head.query, head.key, head.value)]
    own = rung.cross_attention_forward(x, x, *matrices, causal_mask(5))
    torch.testing.assert_close(own, head(x, causal_mask(5))[0])


def test_what_the_insights_say_of_masks():
    assert causal_mask(1, 7).all()
    both = causal_mask(4) & padding_mask(torch.tensor([2, 4, 0]), 4)
    assert both.shape == (3, 4, 4)


# The models of the leak test


@pytest.mark.parametrize("seed", range(5))
def test_our_leak_test_agrees_with_the_probe(seed):
    for models, x in drawn("leaks", seed):
        expected = [bool(leak_probe(model, x).triu(1).any()) for model in models]
        assert rung.leaks(models, x).tolist() == expected


def test_each_kind_of_model_is_tried_and_some_rounds_have_no_leak():
    rounds = drawn("leaks")
    assert {model.kind for models, _ in rounds for model in models} == set(rung.KINDS)
    leaking = [int(rung.leaks(models, x).sum()) for models, x in rounds]
    assert {0, 1, 3} <= set(leaking)


def test_models_come_in_any_order_and_are_named_without_an_address():
    orders = {tuple(model.kind for model in drawn("leaks", seed)[0][0]) for seed in range(20)}
    assert len(orders) > 1
    assert " at 0x" not in str(drawn("leaks"))


@pytest.mark.parametrize("seed", range(5))
def test_the_weakest_leak_is_below_a_millionth_and_no_rounding(seed):
    ((weak, x),) = [
        (model, x) for models, x in drawn("leaks", seed) for model in models if model.kind == "weak"
    ]
    nudged = torch.cat([x[:-1], -x[-1:] - 1])
    moves = (weak(nudged) - weak(x))[:-1].abs()
    assert 1e-7 < moves.max() < 1e-6
    assert torch.equal(weak(x.clone()), weak(x))


# What a verdict says


def by_the_probe(models, x):
    return torch.stack([leak_probe(model, x).triu(1).any() for model in models])


def by_pytorchs_own(x, context, W_query, W_key, W_value, mask):
    return F.scaled_dot_product_attention(x @ W_query, context @ W_key, context @ W_value, mask)


@pytest.mark.parametrize(
    ("name", "answer", "function"),
    [
        ("leaks", by_the_probe, "leak_probe"),
        ("cross_attention_forward", by_pytorchs_own, "scaled_dot_product_attention"),
    ],
)
def test_what_the_task_does_without_is_told_by_its_name(name, answer, function):
    assert f"{function}`" in EXERCISES[name].task
    verdict = check(name, answer, seed=0)
    assert (verdict.passed, verdict.headline) == (False, f"not yet: it calls {function}")


def test_nudges_that_pile_up_are_not_told_to_look_elsewhere():
    def piles_up(models, x):
        found = []
        for model in models:
            before, leak = model(x), False
            for j in range(len(x)):
                x[j] += torch.linspace(1, 2, x.shape[1])
                leak |= bool((model(x)[:j] != before[:j]).any())
            found.append(leak)
        return torch.tensor(found)

    verdict = check("leaks", piles_up, seed=0)
    assert "`x.clone()`" in verdict.message
    assert "[:j]" not in verdict.message
