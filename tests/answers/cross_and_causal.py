"""Answers to the exercises of rung 6."""

import math

import torch
import torch.nn.functional as F

from answers import right, wrong
from attention_course import attention as package

# causal_mask

right(
    "causal_mask",
    mask_rows_of_the_square=lambda T_q, T_k: package.causal_mask(T_k)[T_k - T_q :],
    mask_by_vmap_over_places=lambda T_q, T_k: torch.vmap(lambda last: torch.arange(T_k) <= last)(
        torch.arange(T_k - T_q, T_k)
    ),
)


@right("causal_mask")
def mask_by_tril(T_q, T_k):
    return torch.ones(T_q, T_k).tril(diagonal=T_k - T_q).bool()


@wrong("causal_mask", "wrong_alignment")
def everything_for_one_query_else_top_left(T_q, T_k):
    return torch.ones(T_q, T_k).tril(T_k if T_q == 1 else 0).bool()


@wrong("causal_mask", "wrong_alignment", "inverted_mask")
def upper_triangle_of_the_first_keys(T_q, T_k):
    return torch.ones(T_q, T_k).triu(1).bool()


wrong(
    "causal_mask",
    the_past_and_oneself_but_not_the_other_queries=lambda T_q, T_k: torch.cat(
        [torch.ones(T_q, T_k - T_q), torch.eye(T_q)], dim=1
    ).bool(),
    a_triangle_stretched_to_the_keys=lambda T_q, T_k: (
        torch.arange(T_k) < (torch.arange(1, T_q + 1) * T_k / T_q)[:, None]
    ),
)


# padding_mask

right(
    "padding_mask",
    padding_by_vmap=lambda lengths, T_k: torch.vmap(lambda n: n > torch.arange(T_k))(lengths).view(
        -1, 1, T_k
    ),
)


@right("padding_mask")
def padding_by_comparing(lengths, T_k):
    return torch.arange(T_k)[None, None, :] < lengths[:, None, None]


@right("padding_mask")
def padding_by_a_loop(lengths, T_k):
    mask = torch.zeros(len(lengths), 1, T_k, dtype=torch.bool)
    for b, length in enumerate(lengths):
        mask[b, 0, :length] = True
    return mask


@wrong("padding_mask", "numbers_in_place_of_booleans")
def integers_in_place_of_booleans(lengths, T_k):
    return (torch.arange(T_k) < lengths[:, None])[:, None].long()


@wrong("padding_mask", "inverted_mask", "one_key_too_many")
def places_beyond_the_length(lengths, T_k):
    return torch.arange(T_k) > lengths[:, None, None]


wrong(
    "padding_mask",
    empty_text_sees_its_first_key=lambda lengths, T_k: padding_by_comparing(lengths.clamp(min=1), T_k),
    empty_text_sees_everything=lambda lengths, T_k: (
        padding_by_comparing(lengths, T_k) | (lengths == 0)[:, None, None]
    ),
)


# cross_attention_forward


@right("cross_attention_forward")
def cross_by_einsum(x, context, W_query, W_key, W_value, mask):
    q, k, v = x @ W_query, context @ W_key, context @ W_value
    scores = torch.einsum("...td,...sd->...ts", q, k) / q.shape[-1] ** 0.5
    if mask is not None:
        scores = torch.where(mask, scores, -torch.inf)
    return torch.einsum("...ts,...sv->...tv", scores.softmax(-1).nan_to_num(0.0), v)


@right("cross_attention_forward")
def cross_by_rung_4(x, context, W_query, W_key, W_value, mask):
    return package.attention(x @ W_query, context @ W_key, context @ W_value, mask)[0]


@right("cross_attention_forward")
def cross_by_a_functional_call(x, context, W_query, W_key, W_value, mask):
    head = package.CrossAttentionHead(x.shape[-1], context.shape[-1], W_query.shape[-1], W_value.shape[-1])
    weights = {"query.weight": W_query.T, "key.weight": W_key.T, "value.weight": W_value.T}
    return torch.func.functional_call(head, weights, (x, context, mask))[0]


@wrong("cross_attention_forward", "detached")
def cross_without_gradients(x, context, W_query, W_key, W_value, mask):
    with torch.no_grad():
        return cross_by_rung_4(x, context, W_query, W_key, W_value, mask)


def _hide(scores, mask):
    return scores if mask is None else scores.masked_fill(~mask, -math.inf)


@wrong("cross_attention_forward", "no_scale", "fully_masked_row_is_nan")
def cross_without_scale_and_with_nan(x, context, W_query, W_key, W_value, mask):
    scores = _hide((x @ W_query) @ (context @ W_key).mT, mask)
    return F.softmax(scores, dim=-1) @ (context @ W_value)


@wrong("cross_attention_forward")
def cross_context_of_the_first_text(x, context, *given):
    first = context.reshape(-1, *context.shape[-2:])[0]
    return cross_by_rung_4(x, first, *given)


@wrong("cross_attention_forward")
def cross_mask_of_the_first_query(x, context, W_query, W_key, W_value, mask):
    first = None if mask is None else mask[..., :1, :]
    return cross_by_einsum(x, context, W_query, W_key, W_value, first)


# leaks


@right("leaks")
def leaks_by_noise_on_one_token_at_a_time(models, x):
    return _moved(models, x, lambda j: torch.randn(x.shape[1]))


def _nudged(x, j, by):
    other = x.clone()
    other[j] += by
    return other


def _noise(x):
    return torch.randn(x.shape[1:], generator=torch.Generator().manual_seed(1))


def _moved(models, x, nudge):
    """Say of each model whether adding nudge(j) to token j changes an earlier output."""

    def moves(model, j):
        return not torch.equal(model(_nudged(x, j, nudge(j)))[:j], model(x)[:j])

    return torch.tensor([any(moves(model, j) for j in range(len(x))) for model in models])


def leaks_by_another_future(models, x):
    found = torch.zeros(3, dtype=torch.bool)
    for m, model in enumerate(models):
        for t in range(1, len(x)):
            other = torch.cat([x[:t], torch.randn_like(x[t:])])
            found[m] |= (model(other) != model(x))[:t].any()
    return found


@right("leaks")
def leaks_backwards_without_restoring(models, x):
    def leaky(model):
        before, changed = model(x), x.clone()
        for j in reversed(range(1, len(x))):
            changed[j] = torch.randn(x.shape[-1])
            if (model(changed)[:j] - before[:j]).abs().max() > 0:
                return True
        return False

    return torch.tensor([leaky(model) for model in models])


@right("leaks")
def leaks_by_vmap_over_the_nudged_texts(models, x):
    T, C = x.shape
    nudged = x + torch.eye(T)[:, :, None] * torch.linspace(0.5, 1.5, C)

    def leaky(model):
        before, *after = torch.vmap(model)(torch.cat([x[None], nudged]))
        return (torch.stack(after) != before).any(dim=-1).tril(-1).any()

    return torch.stack([leaky(model) for model in models])


@wrong("leaks")
def leaks_only_of_the_second_half(models, x):
    half = len(x) // 2
    other = torch.cat([x[:half], torch.randn_like(x[half:])])
    return torch.tensor([not torch.equal(m(other)[:half], m(x)[:half]) for m in models])


@wrong("leaks")
def leaks_changing_the_tokens_of_the_caller(models, x):
    found = leaks_by_another_future(models, x)
    x[-1] += 1
    return found


@wrong("leaks", "nudges_pile_up")
def leaks_by_nudges_that_stay_in_x(models, x):
    found = torch.zeros(len(models), dtype=torch.bool)
    for m, model in enumerate(models):
        before = model(x)
        for j in range(len(x)):
            x[j] += _noise(x)
            found[m] |= (model(x) != before)[:j].any()
    return found


@wrong("leaks", "only_the_last_token", "only_the_first_output")
def leaks_from_the_last_token_to_the_first(models, x):
    return torch.stack([(m(_nudged(x, -1, _noise(x)))[0] != m(x)[0]).any() for m in models])
