"""Answers to the exercises of rung 6."""

import torch

from answers import right, wrong
from attention_course import attention as package

right(
    "causal_mask",
    mask_rows_of_the_square=lambda T_q, T_k: package.causal_mask(T_k)[T_k - T_q :],
    mask_by_vmap_over_places=lambda T_q, T_k: torch.vmap(lambda last: torch.arange(T_k) <= last)(
        torch.arange(T_k - T_q, T_k)
    ),
)
wrong(
    "causal_mask",
    the_past_and_oneself_but_not_the_other_queries=lambda T_q, T_k: torch.cat(
        [torch.ones(T_q, T_k - T_q), torch.eye(T_q)], dim=1
    ).bool(),
    a_triangle_stretched_to_the_keys=lambda T_q, T_k: (
        torch.arange(T_k) < (torch.arange(1, T_q + 1) * T_k / T_q)[:, None]
    ),
)
wrong(
    "causal_mask",
    "wrong_alignment",
    "inverted_mask",
    upper_triangle_of_the_first_keys=lambda T_q, T_k: torch.ones(T_q, T_k).triu(1).bool(),
)


@right("padding_mask")
def padding_by_comparing(lengths, T_k):
    return torch.arange(T_k)[None, None, :] < lengths[:, None, None]


wrong(
    "padding_mask",
    empty_text_sees_its_first_key=lambda lengths, T_k: padding_by_comparing(lengths.clamp(min=1), T_k),
    empty_text_sees_everything=lambda lengths, T_k: (
        padding_by_comparing(lengths, T_k) | (lengths == 0)[:, None, None]
    ),
)


@right("cross_attention_forward")
def cross_by_einsum(x, context, W_query, W_key, W_value, mask):
    q, k, v = x @ W_query, context @ W_key, context @ W_value
    scores = torch.einsum("...td,...sd->...ts", q, k) / q.shape[-1] ** 0.5
    if mask is not None:
        scores = torch.where(mask, scores, -torch.inf)
    return torch.einsum("...ts,...sv->...tv", scores.softmax(-1).nan_to_num(0.0), v)


def scaled_dot_product_attention(q, k, v, mask):
    return package.attention(q, k, v, mask)[0]


@right("cross_attention_forward")
def cross_by_a_function_of_that_name(x, context, W_query, W_key, W_value, mask):
    return scaled_dot_product_attention(x @ W_query, context @ W_key, context @ W_value, mask)


@right("cross_attention_forward")
def cross_by_rung_4(x, context, W_query, W_key, W_value, mask):
    return package.attention(x @ W_query, context @ W_key, context @ W_value, mask)[0]


@wrong("cross_attention_forward")
def cross_context_of_the_first_text(x, context, *given):
    first = context.reshape(-1, *context.shape[-2:])[0]
    return cross_by_rung_4(x, first, *given)


@wrong("cross_attention_forward")
def cross_mask_of_the_first_query(x, context, W_query, W_key, W_value, mask):
    first = None if mask is None else mask[..., :1, :]
    return cross_by_einsum(x, context, W_query, W_key, W_value, first)


@right("leaks")
def leaks_by_another_future(models, x):
    found = torch.zeros(3, dtype=torch.bool)
    for m, model in enumerate(models):
        for t in range(1, len(x)):
            other = torch.cat([x[:t], torch.randn_like(x[t:])])
            found[m] |= (model(other) != model(x))[:t].any()
    return found


@wrong("leaks")
def leaks_only_of_the_second_half(models, x):
    half = len(x) // 2
    other = torch.cat([x[:half], torch.randn_like(x[half:])])
    return torch.tensor([not torch.equal(m(other)[:half], m(x)[:half]) for m in models])


def _leaks_told_by(changed, differ):
    return lambda models, x: torch.tensor(
        [any(bool(differ(m(changed(x, j))[:j], m(x)[:j])) for j in range(1, len(x))) for m in models]
    )


def _set(x, j, number):
    y = x.clone()
    y[j] = number
    return y


def _nudge(x, j):
    return _set(x, j, x[j] + torch.arange(1.0, x.shape[1] + 1))


right("leaks", leaks_by_whole_numbers=_leaks_told_by(_nudge, lambda a, b: not a.equal(b)))
wrong(
    "leaks",
    "set_to_a_number",
    **{
        f"leaks_by_tokens_of_{n}": _leaks_told_by(
            lambda x, j, n=n: _set(x, j, n), lambda a, b: not a.equal(b)
        )
        for n in (0, 1)
    },
)
wrong(
    "leaks",
    "norms_compared",
    leaks_by_norms=_leaks_told_by(_nudge, lambda a, b: a.norm() != b.norm()),
    leaks_by_sizes=_leaks_told_by(_nudge, lambda a, b: (a.abs() != b.abs()).any()),
)


@wrong("cross_attention_forward")
def cross_with_a_mask_for_each_text_and_all_heads(x, context, W_query, W_key, W_value, mask):
    scores = x @ W_query @ (context @ W_key).mT / W_key.shape[1] ** 0.5
    if mask is not None:
        mask = mask[:, None] if (scores.dim(), mask.dim()) == (4, 3) else mask
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(dim=-1).nan_to_num(0.0) @ context @ W_value
