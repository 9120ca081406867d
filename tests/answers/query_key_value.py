"""Answers to the exercises of notebook 04."""

import math

import torch
import torch.nn.functional as F

from answers import right, wrong
from attention_course.attention import attention_weights
from attention_course.rungs.query_key_value.exercises import position_weights

INF = float("inf")


def scores_of(q, k):
    return q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5


def parabola(T, top, strength):
    """Let the scores of query t fall off on both sides of position t - top."""
    t = torch.arange(T, dtype=torch.float32)
    W_query = strength * torch.stack([2 * (t - top), -torch.ones(T)], dim=1)
    return position_weights(W_query, torch.stack([t, t**2], dim=1))


@right("attention_weights")
def scales_q_and_adds_a_mask(q, k, mask):
    scores = (q / q.shape[-1] ** 0.5) @ k.mT + torch.where(mask, 0.0, -INF)
    return torch.softmax(scores, dim=-1).where(mask, torch.zeros(()))


@right("attention_weights")
def in_place_on_the_scores(q, k, mask):
    weights = scores_of(q, k)
    weights[~mask.expand_as(weights)] = -torch.inf
    weights -= weights.amax(dim=-1, keepdim=True).clamp(min=-1e30)
    weights.exp_()
    return weights.div_(weights.sum(dim=-1, keepdim=True).clamp(min=1e-30))


@right("attention_weights")
def weights_by_logsumexp(q, k, mask):
    scores = scores_of(q, k).masked_fill(~mask, -1e30)
    return (scores - scores.logsumexp(dim=-1, keepdim=True)).exp() * mask


@wrong("attention_weights")
def blind_queries_found_along_dim_1(q, k, mask):
    weights = torch.softmax(scores_of(q, k).masked_fill(~mask, -1e9), dim=-1)
    return weights.masked_fill(~mask.any(dim=1, keepdim=True), 0.0)


wrong(
    "attention_weights",
    scaled_by_a_whole_root=lambda q, k, mask: attention_weights(
        q, k, mask, scale=1 / math.isqrt(q.shape[-1])
    ),
)


def head_by_einsum(x, W_query, W_key, W_value, mask):
    bilinear = W_query @ W_key.T / W_query.shape[1] ** 0.5
    scores = torch.einsum("...tc,cd,...sd->...ts", x, bilinear, x)
    weights = torch.where(mask, scores, -torch.inf).softmax(-1).nan_to_num()
    return torch.einsum("...ts,...sc,cv->...tv", weights, x, W_value)


@right("head_forward")
def head_by_vmap_over_the_batch(x, *given):
    texts = torch.vmap(lambda text: head_by_einsum(text, *given))(x.reshape(-1, *x.shape[-2:]))
    return texts.view(*x.shape[:-1], -1)


@right("head_forward")
def head_by_logsumexp(x, W_query, W_key, W_value, mask):
    return weights_by_logsumexp(x @ W_query, x @ W_key, mask) @ (x @ W_value)


@wrong("head_forward")
def scales_its_parameter_in_place(x, W_query, W_key, W_value, mask):
    W_query *= W_query.shape[1] ** -0.5
    return attention_weights(x @ W_query, x @ W_key, mask, scale=1.0) @ (x @ W_value)


@wrong("head_forward")
def the_weights_of_the_first_text_for_all(x, W_query, W_key, W_value, mask):
    weights = attention_weights(x @ W_query, x @ W_key, mask)
    return (weights[0] if x.dim() == 3 else weights) @ (x @ W_value)


wrong(
    "head_forward",
    "detached",
    head_with_detached_weights=lambda x, W_query, W_key, W_value, mask: (
        attention_weights(x @ W_query, x @ W_key, mask).detach() @ (x @ W_value)
    ),
)


def head_with(mask, x, W_query, W_key, W_value):
    return attention_weights(x @ W_query, x @ W_key, mask) @ (x @ W_value)


wrong(
    "head_forward",
    "always_causal",
    head_that_hides_the_future_beside_the_mask=lambda *given: head_with(given[-1].tril(), *given[:-1]),
    head_that_asks_the_mask_for_blind_queries_only=lambda *given: head_with(
        (given[-1] | True).tril() & given[-1].any(dim=-1, keepdim=True), *given[:-1]
    ),
)


@right("previous_token")
def previous_by_random_keys(T):
    W_key = torch.randn(T, 2000, generator=torch.Generator().manual_seed(0))
    return position_weights(W_key.roll(1, dims=0), W_key)


@wrong("previous_token")
def even_and_odd_positions(T):
    parity = torch.arange(T) % 2
    return position_weights(1000 * F.one_hot(1 - parity, 2).float(), F.one_hot(parity, 2).float())


@wrong("previous_token")
def eight_columns_for_any_number_of_positions(T):
    t = torch.arange(T)
    return position_weights(1000 * F.one_hot((t - 1) % 8, 8).float(), F.one_hot(t % 8, 8).float())


right("previous_token", previous_by_a_parabola_of_two_columns=lambda T: parabola(T, 1, 10))
wrong("previous_token", parabola_with_its_top_between_two_tokens=lambda T: parabola(T, 0.5, 10))


def hidden_by(fill):
    """Hide keys by this score, and give zeros to queries that see nothing."""

    def answer(q, k, mask):
        scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~mask, fill)
        return scores.softmax(dim=-1) * mask

    return answer


wrong("attention_weights", "finite_fill", weights_hidden_by_ten_thousand=hidden_by(-1e4))
wrong(
    "attention_weights",
    weights_of_a_mask_of_two_dimensions=lambda q, k, mask: hidden_by(-torch.inf)(
        q, k, mask[..., : q.shape[-2], :]
    ).nan_to_num(0.0),
)


@wrong("previous_token")
def previous_by_too_few_bits(T):
    bits = max(1, round(math.log2(T)))
    codes = 2.0 * (torch.arange(-1, T)[:, None] >> torch.arange(bits) & 1) - 1
    return position_weights(100 * codes[:-1], codes[1:])
