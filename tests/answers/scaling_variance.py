"""Answers to the exercises of notebook 05."""

import math

import numpy as np
import torch

from answers import right, wrong


def scores_of(x, w_query, w_key):
    return (x @ w_query) @ (x @ w_key).transpose(-2, -1)


@right("scaled_weights")
def scale_on_q(x, w_query, w_key):
    return (x @ w_query * w_query.shape[1] ** -0.5 @ (x @ w_key).mT).softmax(dim=-1)


@right("scaled_weights")
def scaled_by_vmap(x, *given):
    texts = torch.vmap(lambda text: scale_on_q(text, *given))(x.reshape(-1, *x.shape[-2:]))
    return texts.view(*x.shape[:-1], -1)


@wrong("scaled_weights")
def one_maximum_for_the_whole_table(x, w_query, w_key):
    scores = scores_of(x, w_query, w_key) * w_query.shape[-1] ** -0.5
    heights = (scores - scores.max()).exp()
    return heights / heights.sum(dim=-1, keepdim=True)


wrong(
    "scaled_weights",
    whole_root_of_head_size=lambda x, w_query, w_key: torch.softmax(
        scores_of(x, w_query, w_key) / int(w_query.shape[-1] ** 0.5), dim=-1
    ),
    floor_division_makes_the_scale_zero=lambda x, w_query, w_key: torch.softmax(
        scores_of(x, w_query, w_key) * (1 // w_query.shape[-1] ** 0.5), dim=-1
    ),
)


@wrong("scaled_weights", "detached")
def weights_whose_gradients_are_nan(x, w_query, w_key):
    scores = scores_of(x, w_query, w_key) / w_query.shape[-1] ** 0.5
    return torch.softmax(scores + (scores - scores).abs().sqrt(), dim=-1)


@right("predicted_variance")
def law_in_place_on_a_copy(var_q, var_k, head_size, scale):
    out = var_q.clone()
    out *= var_k * head_size * scale**2
    return out


@wrong("predicted_variance")
def measured_instead_of_predicted(var_q, var_k, head_size, scale):
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(len(var_q), 2000, head_size, generator=generator) * var_q.sqrt()[:, None, None]
    k = torch.randn(len(var_q), 2000, head_size, generator=generator) * var_k.sqrt()[:, None, None]
    return ((q * k).sum(dim=-1) * scale).var(dim=-1)


right(
    "predicted_variance", law_by_vmap=lambda q, k, d, s: torch.vmap(lambda a, b: (a * s) * (b * s) * d)(q, k)
)
wrong(
    "predicted_variance",
    head_size_times_the_number_of_heads=lambda q, k, d, s: d * len(q) * q * k * s**2,
    keys_of_the_next_head=lambda q, k, d, s: d * q * k.roll(-1) * s**2,
)


@right("scale_for_variance")
def scale_in_numpy(var_q, var_k, head_size, variance):
    product = np.prod([var_q.numpy(), var_k.numpy()], axis=0).astype(np.float64)
    return torch.tensor(np.sqrt(variance / product / head_size), dtype=var_q.dtype)


right(
    "scale_for_variance",
    scale_by_rsqrt_of_the_parts=lambda q, k, d, v: math.sqrt(v) * q.rsqrt() * k.rsqrt() / math.sqrt(d),
)
wrong(
    "scale_for_variance",
    never_above_one=lambda q, k, d, v: (v / (d * q * k)).sqrt().clamp(max=1),
    the_other_root=lambda q, k, d, v: -((v / (d * q * k)) ** 0.5),
    floor_division_of_variance_by_head_size=lambda q, k, d, v: (v // d / (q * k)).sqrt(),
    rounded_to_a_power_of_two=lambda q, k, d, v: 2 ** (v / (d * q * k)).sqrt().log2().round(),
)


wrong(
    "scale_for_variance",
    a_millionth_against_a_division_by_zero=lambda q, k, d, v: (v / (d * q * k + 1e-6)).sqrt(),
)
wrong(
    "scaled_weights",
    "no_max_subtraction",
    exp_of_hundreds_in_float64=lambda x, w_query, w_key: (
        (e := ((x @ w_query) @ (x @ w_key).mT / w_key.shape[-1] ** 0.5).double().exp())
        / e.sum(dim=-1, keepdim=True)
    ).float(),
)
