"""Answers to the exercises of rung 3."""

import math

import torch
import torch.nn.functional as F

from answers import right, wrong

INF = float("inf")


def zeros(x):
    """Return a (T, T) matrix of zeros."""
    return torch.zeros(x.shape[-2], x.shape[-2], dtype=x.dtype)


def past(x):
    """Return a (T, T) mask, True where a query may look."""
    return torch.ones_like(zeros(x), dtype=torch.bool).tril()


def divided(exp, dim=-1):
    """Divide exponentials by their sum."""
    return exp / exp.sum(dim=dim, keepdim=True)


def real(scores, lengths):
    """Return a mask of the keys, shape (B, 1, T_k), True where there is no padding."""
    return torch.arange(scores.shape[-1]) < lengths[:, None, None]


def seen(scores, mask):
    """Return the softmax of what a mask leaves, and zeros where it leaves nothing."""
    return torch.softmax(scores.masked_fill(~mask, -INF), dim=-1).nan_to_num()


@right("causal_mean_softmax")
def softmax_by_hand_in_float64(x):
    exp = torch.full_like(zeros(x), -math.inf, dtype=torch.float64).triu(1).exp()
    return (divided(exp) @ x.double()).to(x.dtype)


@wrong("causal_mean_softmax")
def softmax_dim_1_of_a_batch_of_scores(x):
    scores = torch.zeros(*x.shape[:-1], x.shape[-2]).masked_fill(~past(x), -INF)
    return torch.softmax(scores, dim=1) @ x


right(
    "causal_mean_softmax",
    softmax_with_minus_a_billion=lambda x: F.softmax(zeros(x).masked_fill(~past(x), -1e9), dim=-1).matmul(x),
)


def softmax(row):
    exp = torch.exp(row - row.max(dim=-1, keepdim=True).values)
    return exp / exp.sum(dim=-1, keepdim=True)


@right("stable_softmax")
def stable_by_a_function_of_that_name(x):
    return softmax(x)


@right("stable_softmax")
def stable_in_place_on_a_copy(x):
    out = x.clone()
    out -= out.amax(-1, keepdim=True)
    out.exp_()
    return out.div_(out.sum(-1, keepdim=True))


@wrong("stable_softmax")
def subtracts_where_any_score_is_above_0(x):
    exp = (x - x.amax(dim=-1, keepdim=True) if x.max() > 0 else x).exp()
    return exp / exp.sum(dim=-1, keepdim=True)


right("stable_softmax", stable_by_logsumexp=lambda x: torch.exp(x - torch.logsumexp(x, dim=-1, keepdim=True)))
wrong(
    "stable_softmax",
    clamps_the_differences=lambda x: divided((x - x.amax(dim=-1, keepdim=True)).clamp(min=-10).exp()),
    subtracts_from_the_argument_in_place=lambda x: divided(x.sub_(x.amax(dim=-1, keepdim=True)).exp()),
)
wrong(
    "stable_softmax",
    "no_max_subtraction",
    softmax_in_float64_without_the_subtraction=lambda x: divided(x.double().exp()).to(x.dtype),
)


@right("padding_weights")
def padding_text_by_text_with_vmap(scores, lengths):
    keys = torch.arange(scores.shape[-1])
    return torch.vmap(lambda s, n: s.masked_fill(keys >= n, -1e30).softmax(-1) * (keys < n))(scores, lengths)


@wrong("padding_weights")
def the_last_key_is_never_hidden(scores, lengths):
    mask = real(scores, lengths) | (torch.arange(scores.shape[-1]) == scores.shape[-1] - 1)
    return seen(scores, mask) * (lengths > 0)[:, None, None]


@wrong("padding_weights")
def padding_scores_just_below_the_smallest(scores, lengths):
    mask = real(scores, lengths)
    return torch.softmax(torch.where(mask, scores, scores.amin(dim=-1, keepdim=True) - 10), dim=-1) * mask


wrong(
    "padding_weights",
    padding_with_a_billion_subtracted=lambda scores, lengths: (
        torch.softmax(scores - 1e9 * ~real(scores, lengths), dim=-1) * real(scores, lengths)
    ),
)
