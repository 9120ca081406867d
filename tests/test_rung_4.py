"""Rung 4: what its exercises accept, and what its notebook says."""

from pathlib import Path

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from attention_course.attention import Head, attention, attention_weights, causal_mask, leak_probe
from attention_course.averaging import causal_mean_loop, causal_mean_matmul, causal_mean_softmax
from attention_course.exercises import EXERCISES, check
from attention_course.exercises.query_key_value import position_weights

SOURCE = Path(__file__).parent.parent / "notebooks" / "source" / "04_query_key_value.py"


# The exercises


def positions(size):
    return torch.arange(size).float()[:, None]


def by_circle(size):
    """Two columns: angles that are equal for query t and key t - 1."""
    key = positions(size) / size * 3
    query = (positions(size) - 1) / size * 3
    return position_weights(
        1e4 * torch.cat([query.cos(), query.sin()], dim=1), torch.cat([key.cos(), key.sin()], dim=1)
    )


def by_parabola(size):
    """Two columns: 2(t - 1)s - s² is largest at s = t - 1."""
    return position_weights(
        100 * torch.cat([2 * positions(size) - 2, -torch.ones(size, 1)], dim=1),
        torch.cat([positions(size), positions(size) ** 2], dim=1),
    )


@pytest.mark.parametrize(
    "answer",
    [
        lambda n: position_weights(1000 * torch.ones(n - 1).diag(-1), torch.eye(n)),
        lambda n: position_weights(100 * torch.eye(n), torch.eye(n).roll(-1, dims=0)),
        lambda n: position_weights(500 * torch.eye(n)[:, :-1].roll(1, dims=0), 2 * torch.eye(n)[:, :-1]),
        by_circle,
        by_parabola,
    ],
)
def test_any_matrices_that_find_the_previous_token_pass(answer):
    for seed in range(10):
        verdict = check("previous_token", answer, seed)
        assert verdict.passed, verdict


def previous_but(share, others):
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


@pytest.mark.parametrize("others", [lambda t: [t], lambda t: [*range(t - 1), t] if t > 1 else []])
def test_the_weight_has_to_be_099(others):
    for seed in range(5):
        assert check("previous_token", previous_but(0.009, others), seed).passed
        assert not check("previous_token", previous_but(0.012, others), seed).passed


def test_a_strength_between_too_soft_and_enough_has_no_name():
    weak = check("previous_token", lambda n: position_weights(8 * torch.eye(n).roll(1, 0), torch.eye(n)), 0)
    assert (weak.passed, weak.mistake) == (False, None)


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (lambda n: position_weights(torch.eye(n).roll(1, dims=0), torch.eye(n)), "too_soft"),
        (lambda n: position_weights(torch.eye(n), 900 * torch.ones(n - 1).diag(-1)), "equal_weights"),
        (lambda n: position_weights(torch.zeros(n, 3), torch.eye(n)[:, :1].expand(n, 3)), "equal_weights"),
        (lambda n: position_weights(100 * torch.ones(n, 1), 10 * positions(n)), "finds_itself"),
        (
            lambda n: position_weights(-(10.0**4) * torch.eye(n).roll(1, 0), torch.eye(n)),
            "all_but_the_previous",
        ),
    ],
)
def test_slips_of_previous_token(answer, mistake):
    for seed in range(5):
        verdict = check("previous_token", answer, seed)
        assert not verdict.passed
        assert verdict.mistake == mistake


def by_loop(q, k, mask):
    """Weights as the definition says, one query at a time."""
    batch = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2])
    mask = mask.expand(*batch, q.shape[-2], k.shape[-2])
    weights = torch.zeros(mask.shape)
    for *where, t in torch.cartesian_prod(*(torch.arange(n) for n in weights.shape[:-1])).reshape(
        -1, weights.dim() - 1
    ):
        row = (*where, t)
        seen = mask[row].nonzero().flatten()
        scores = [(q[row] * k[(*where, s)]).sum() / q.shape[-1] ** 0.5 for s in seen]
        if scores:
            weights[row][seen] = torch.stack(scores).softmax(dim=0)
    return weights


def by_einsum(q, k, mask):
    scores = torch.einsum("...th,...sh->...ts", q, k) / q.shape[-1] ** 0.5
    return torch.where(mask, scores, float("-inf")).softmax(dim=-1).nan_to_num(0)


def by_scaling_q(q, k, mask):
    scores = (q / q.shape[-1] ** 0.5) @ k.mT + torch.where(mask, 0.0, float("-inf"))
    return torch.softmax(scores, dim=-1).where(mask, torch.zeros(()))


@pytest.mark.parametrize("answer", [by_loop, by_einsum, by_scaling_q])
def test_attention_weights_in_other_styles_pass(answer):
    for seed in range(5):
        verdict = check("attention_weights", answer, seed)
        assert verdict.passed, verdict


def by_sdpa(x, W_query, W_key, W_value, mask):
    return F.scaled_dot_product_attention(x @ W_query, x @ W_key, x @ W_value, attn_mask=mask)


def test_head_forward_with_pytorchs_function_passes():
    for seed in range(5):
        verdict = check("head_forward", by_sdpa, seed)
        assert verdict.passed, verdict


@pytest.mark.parametrize("cut", range(3))
def test_a_head_that_cuts_a_gradient_is_told_so(cut):
    def head(x, W_query, W_key, W_value, mask):
        W = [W_query, W_key, W_value]
        W[cut] = W[cut].detach()
        return by_sdpa(x, *W, mask)

    verdict = check("head_forward", head, 0)
    assert verdict.mistake == "detached"


def test_a_finite_fill_and_a_division_by_what_is_left_are_told_apart():
    def finite_fill(q, k, mask):
        scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~mask, -100.0)
        return scores.softmax(dim=-1) * mask

    def division(q, k, mask):
        weights = (q @ k.mT * q.shape[-1] ** -0.5).softmax(dim=-1) * mask
        return weights / (weights.sum(dim=-1, keepdim=True) + 1e-12)

    for seed in range(5):
        for answer, mistake in ((finite_fill, None), (division, "renormalised_by_hand")):
            verdict = check("attention_weights", answer, seed)
            assert (verdict.passed, verdict.mistake) == (False, mistake)


def no_nan_fix(q, k, mask):
    return (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).masked_fill(~mask, float("-inf")).softmax(-1)


def fill_not_kept(q, k, mask):
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(dim=-1)


def values_of_the_wrong_matrix(x, W_query, W_key, W_value, mask):
    return attention_weights(x @ W_query, x @ W_key, mask) @ (x @ W_key)


def copy_and_paste(x, W_query, W_key, W_value, mask):
    return attention(x @ W_query, x @ W_query, x @ W_value, mask)[0]


def published(x, W_query, W_key, W_value, mask):
    return attention_weights(x @ W_query, x @ W_key, mask) @ x


@pytest.mark.parametrize(
    ("name", "answer", "mistake"),
    [
        ("attention_weights", no_nan_fix, "nothing_to_see_gives_nan"),
        ("attention_weights", fill_not_kept, "no_mask"),
        ("attention_weights", lambda q, k, m: attention_weights(q, k, m, scale=1.0), "no_scale"),
        ("head_forward", published, "averages_x"),
        ("head_forward", copy_and_paste, "keys_from_W_query"),
        ("head_forward", values_of_the_wrong_matrix, "averages_the_keys"),
    ],
)
def test_slips_get_their_names(name, answer, mistake):
    for seed in range(5):
        assert check(name, answer, seed).mistake == mistake


def test_the_mistakes_of_the_syllabus_are_named():
    wanted = {"no_transpose", "wrong_transpose", "softmax_over_the_queries", "q_and_k_swapped", "no_mask"}
    for name, more in (
        ("attention_weights", {"mask_after_softmax"}),
        ("head_forward", {"mask_after_softmax", "averages_x"}),
    ):
        assert {mistake.name for mistake in EXERCISES[name].mistakes} >= wanted | more


def test_drawn_masks_hide_whole_rows_in_some_inputs_and_none_in_most():
    for name in ("attention_weights", "head_forward"):
        inputs = EXERCISES[name].draw_inputs(torch.Generator().manual_seed(0))
        empty = [not arguments[-1].any(dim=-1).all() for arguments in inputs]
        assert 2 <= sum(empty) < len(empty) / 2


# The notebook


@given(
    B=st.integers(1, 3),
    T=st.integers(1, 9),
    n_embd=st.integers(1, 7),
    head_size=st.integers(1, 7),
    d_v=st.integers(1, 7),
    seed=st.integers(0, 2**32),
)
def test_zero_queries_are_rung_3_and_so_rungs_2_and_1(B, T, n_embd, head_size, d_v, seed):
    x = torch.randn(B, T, n_embd, generator=torch.Generator().manual_seed(seed))
    head = Head(n_embd, head_size, d_v)
    nn.init.zeros_(head.query.weight)
    output, _ = head(x, causal_mask(T))
    values = head.value(x)
    for mean in (causal_mean_softmax, causal_mean_matmul, causal_mean_loop):
        torch.testing.assert_close(output, mean(values))


@given(seed=st.integers(0, 2**32), T=st.integers(1, 8), head_size=st.integers(1, 6), d_v=st.integers(1, 6))
def test_tokens_in_another_order_take_their_outputs_along(seed, T, head_size, d_v):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(2, T, 5, generator=generator)
    order = torch.randperm(T, generator=generator)
    head = Head(5, head_size, d_v)
    torch.testing.assert_close(head(x[:, order])[0], head(x)[0][:, order])


@given(seed=st.integers(0, 2**32), masked=st.booleans(), changed=st.integers(0, 2))
def test_texts_of_a_batch_never_talk(seed, masked, changed):
    x = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(seed))
    head, mask = Head(4, 3), causal_mask(5) if masked else None
    other = x.clone()
    other[changed] += 1
    rest = [b for b in range(3) if b != changed]
    torch.testing.assert_close(head(other, mask)[0][rest], head(x, mask)[0][rest], atol=0, rtol=0)
    torch.testing.assert_close(head(x[changed], mask)[0], head(x, mask)[0][changed])


def test_one_head_has_no_leak_and_is_pytorchs():
    x = torch.randn(2, 7, 5)
    head, mask = Head(5, 3, 4), causal_mask(7)
    assert torch.equal(leak_probe(lambda x: head(x, mask)[0], x), mask)
    theirs = F.scaled_dot_product_attention(head.query(x), head.key(x), head.value(x), attn_mask=mask)
    torch.testing.assert_close(head(x, mask)[0], theirs)


def test_the_article():
    """Source 001 with the rows that it printed; what it prints for one query was made up."""
    torch.manual_seed(123)
    x = nn.Embedding(50_000, 3)(torch.tensor([0, 4, 5, 2, 1, 3])).detach()
    torch.manual_seed(123)
    W_query, W_key, W_value = torch.rand(3, 2), torch.rand(3, 2), torch.rand(3, 4)
    q, k, v = x @ W_query, x @ W_key, x @ W_value
    output, weights = attention(q, k, v)
    for ours, wanted in (
        (q[2] @ k.T, [0.2432, -1.3934, 0.5869, -0.1851, -0.5191, 0.4730]),
        (weights[2], [0.1965, 0.0618, 0.2506, 0.1452, 0.1146, 0.2312]),
        (output[2], [-0.3542, -0.1234, -0.2626, -0.3706]),
    ):
        torch.testing.assert_close(ours, torch.tensor(wanted), atol=6e-5, rtol=0)
    printed = torch.tensor([0.1834, 0.0452, 0.6561, 0.0133, 0.1906, 0.2885])
    assert round(printed.sum().item(), 4) == 1.3771


def test_one_query_that_may_look_at_nothing_does_no_harm():
    x = torch.randn(4, 3, requires_grad=True)
    head, mask = Head(3, 2), causal_mask(4)
    mask[1] = False
    output, weights = head(x, mask)
    assert not weights[1].any()
    assert not output[1].any()
    output.sum().backward()
    assert x.grad.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in head.parameters())
