"""Rung 6: what its exercises judge, and what its notebook leaves in the file."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from attention_course.attention import (
    CrossAttentionHead,
    causal_mask,
    leak_probe,
    padding_mask,
)
from attention_course.exercises import EXERCISES, check
from attention_course.exercises import cross_and_causal as exercises

NOTEBOOK = Path(__file__).resolve().parent.parent / "notebooks" / "06_cross_and_causal.ipynb"


# The exercises


def drawn(name, seed=0):
    return EXERCISES[name].draw_inputs(torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("seed", range(5))
def test_our_leak_test_agrees_with_the_probe(seed):
    for models, x in drawn("leaks", seed):
        expected = [bool(leak_probe(model, x).triu(1).any()) for model in models]
        assert exercises.leaks(models, x).tolist() == expected


def test_each_kind_of_model_is_tried_and_some_rounds_have_no_leak():
    rounds = drawn("leaks")
    kinds = {model.kind for models, _ in rounds for model in models}
    assert kinds == set(exercises.KINDS) - {"differences"}  # that one is in a property
    leaking = [int(exercises.leaks(models, x).sum()) for models, x in rounds]
    assert {0, 1, 3} <= set(leaking)


def test_models_come_in_any_order_and_are_named_without_an_address():
    orders = {tuple(model.kind for model in drawn("leaks", seed)[0][0]) for seed in range(20)}
    assert len(orders) > 1
    assert " at 0x" not in str(drawn("leaks"))


def by_gradient(models, x):
    found = []
    for model in models:
        slopes = torch.autograd.functional.jacobian(model, x).abs().sum(dim=(1, 3))
        found.append(bool(slopes.triu(1).any()))
    return torch.tensor(found)


def cuts_the_text(models, x):
    return torch.tensor(
        [
            any(not torch.allclose(model(x[:t]), model(x)[:t], atol=1e-6) for t in range(1, len(x)))
            for model in models
        ]
    )


def with_sdpa(x, context, W_query, W_key, W_value, mask):
    if mask is not None and x.dim() == 2:
        mask = mask.expand(len(x), len(context))
    return F.scaled_dot_product_attention(x @ W_query, context @ W_key, context @ W_value, attn_mask=mask)


def with_the_class(x, context, W_query, W_key, W_value, mask):
    head = CrossAttentionHead(x.shape[-1], context.shape[-1], W_query.shape[-1], W_value.shape[-1])
    weights = {"query.weight": W_query.T, "key.weight": W_key.T, "value.weight": W_value.T}
    return torch.func.functional_call(head, weights, (x, context, mask))[0]


def by_comparison(T_q, T_k):
    return torch.arange(T_k) <= torch.arange(T_k - T_q, T_k)[:, None]


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("leaks", lambda models, x: torch.stack([leak_probe(m, x).triu(1).any() for m in models])),
        ("cross_attention_forward", with_the_class),
        ("causal_mask", by_comparison),
        ("causal_mask", lambda T_q, T_k: causal_mask(T_k)[-T_q:]),
        ("causal_mask", lambda T_q, T_k: ~torch.ones(T_q, T_k).triu(T_k - T_q + 1).bool()),
        ("padding_mask", lambda n, T_k: torch.arange(T_k)[None, None] < n[:, None, None]),
        ("padding_mask", lambda n, T_k: torch.stack([torch.arange(T_k) < k for k in n])[:, None]),
    ],
)
def test_other_right_answers_pass(name, answer):
    for seed in range(5):
        assert check(name, answer, seed).passed


def no_mask_in_the_batch(x, context, W_query, W_key, W_value, mask):
    scores = x @ W_query @ (context @ W_key).transpose(-2, -1) / W_query.shape[1] ** 0.5
    if mask is not None:
        scores.masked_fill(mask == 0, float("-inf"))
    return scores.softmax(dim=-1) @ (context @ W_value)


def first_rows_of_the_square(T_q, T_k):
    return torch.ones(T_k, T_k).tril()[:T_q].bool()


def one_too_many(T_q, T_k):
    return torch.arange(T_k) <= torch.arange(T_k - T_q, T_k)[:, None] + 1


def watches_the_past(models, x):
    found = []
    for model in models:
        moved = False
        for j in range(len(x)):
            nudged = x.clone()
            nudged[j] = 0
            moved |= bool((model(nudged)[j + 1 :] != model(x)[j + 1 :]).any())
        found.append(moved)
    return torch.tensor(found)


@pytest.mark.parametrize(
    ("name", "answer", "mistake"),
    [
        ("causal_mask", first_rows_of_the_square, "wrong_alignment"),
        ("causal_mask", lambda T_q, T_k: torch.ones(T_q, T_k).triu(1).bool(), "inverted_and_misaligned"),
        ("causal_mask", one_too_many, "one_step_ahead"),
        ("padding_mask", lambda n, T_k: torch.arange(T_k) >= n[:, None, None], "polarity"),
        ("padding_mask", lambda n, T_k: torch.arange(T_k) <= n[:, None, None], "one_key_too_many"),
        ("padding_mask", lambda n, T_k: torch.arange(T_k) < n[:, None], "no_dimension_for_the_queries"),
        ("cross_attention_forward", no_mask_in_the_batch, "ignores_the_mask"),
        ("leaks", watches_the_past, "counts_the_past"),
        ("leaks", by_gradient, "by_gradient"),
        ("leaks", cuts_the_text, "cuts_the_text"),
    ],
)
def test_a_slip_gets_its_name(name, answer, mistake):
    for seed in range(5):
        assert check(name, answer, seed).mistake == mistake


def test_a_mask_of_floats_is_told_so():
    verdict = check("causal_mask", lambda T_q, T_k: torch.ones(T_q, T_k).tril(T_k - T_q), seed=0)
    assert verdict.mistake == "numbers_in_place_of_booleans"
    verdict = check("padding_mask", lambda n, T_k: padding_mask(n, T_k).float(), seed=0)
    assert verdict.mistake == "numbers_in_place_of_booleans"


def adds_one(models, x):
    """Nudge all channels alike, as leaks by the differences of channels do not show."""
    found = []
    for model in models:
        moved = [
            (model(x + (torch.arange(len(x)) == j)[:, None])[:j] != model(x)[:j]).any()
            for j in range(1, len(x))
        ]
        found.append(any(moved))
    return torch.tensor(found)


@pytest.mark.parametrize(
    ("name", "answer", "claim"),
    [
        ("leaks", adds_one, "nudge each channel by an amount of its own"),
        ("cross_attention_forward", with_sdpa, "F.scaled_dot_product_attention is not called"),
    ],
)
def test_what_a_property_says(name, answer, claim):
    for seed in range(5):
        verdict = check(name, answer, seed)
        assert verdict.headline == "not yet: a property fails"
        assert claim in verdict.message


# The notebook


def test_an_inverted_mask_leaves_the_last_query_with_zeros():
    x = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))
    out = F.scaled_dot_product_attention(x, x, x, attn_mask=torch.ones(5, 5).triu(1).bool())
    assert not out[:, -1].any()
    assert out[:, :-1].any(dim=-1).all()
