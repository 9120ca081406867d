"""Answers to the exercises of a_real_model."""

from itertools import pairwise

import torch
import torch.nn.functional as F

from answers import right, wrong
from answers.query_key_value import weights_by_logsumexp
from attention_course import attention as package


def rms_norm(x):
    return x.square().mean(-1, keepdim=True)


@right("rms_norm")
def rms_by_a_function_of_that_name(x, weight, eps):
    return x * (rms_norm(x) + eps) ** -0.5 * weight


right(
    "rms_norm",
    rms_by_rsqrt=lambda x, weight, eps: weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps),
    rms_by_einsum=lambda x, weight, eps: torch.einsum(
        "...c,...,c->...c", x, (torch.einsum("...c,...c->...", x, x) / x.shape[-1] + eps) ** -0.5, weight
    ),
)
wrong(
    "rms_norm",
    rms_for_batches_only=lambda x, weight, eps: x / (x**2).mean(2, keepdim=True).add(eps).sqrt() * weight,
)
wrong(
    "rms_norm",
    "detached",
    rms_from_the_square_of_a_root=lambda x, weight, eps: (
        x * ((rms_norm(x).sqrt() ** 2) + eps) ** -0.5 * weight
    ),
)


@right("rotate")
def rotate_by_complex_numbers(x, positions, base):
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    i = torch.arange(pairs.shape[-1])
    angles = torch.outer(positions, base ** (-i / len(i)))
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


wrong(
    "rotate",
    rotate_along_dimension_1=lambda x, positions, base: rotate_by_complex_numbers(
        x.transpose(0, 1), positions, base
    ).transpose(0, 1),
)


def rotate_by_real_numbers(x, positions, base):
    angles = torch.outer(positions.float(), base ** (-torch.arange(0, x.shape[-1], 2) / x.shape[-1]))
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack(
        [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1
    ).flatten(-2)


right("rotate", rotate_by_cos_and_sin=rotate_by_real_numbers)
wrong(
    "rotate",
    rotate_at_positions_in_bfloat16=lambda x, positions, base: rotate_by_real_numbers(
        x, positions.bfloat16(), base
    ),
    rotate_by_a_table_of_24_positions=lambda x, positions, base: rotate_by_real_numbers(
        x, torch.arange(24)[positions], base
    ),
)


def _causal(q, k, v):
    return package.attention(q, k, v, package.causal_mask(q.shape[-2], k.shape[-2]))[0]


def _copies(q, *shared):
    return [each.repeat_interleave(q.shape[1] // each.shape[1], dim=1) for each in shared]


@wrong("grouped_attention", "heads_shared_in_turns", "wrong_alignment")
def grouped_by_cat_and_is_causal(q, k, v):
    copies = (torch.cat([each] * (q.shape[1] // each.shape[1]), dim=1) for each in (k, v))
    return F.scaled_dot_product_attention(q, *copies, is_causal=True)


@right("grouped_attention")
def grouped_by_logsumexp(q, k, v):
    k, v = _copies(q, k, v)
    return weights_by_logsumexp(q, k, package.causal_mask(q.shape[2], k.shape[2])) @ v


right("grouped_attention", grouped_by_copies=lambda q, k, v: _causal(q, *_copies(q, k, v)))
wrong(
    "grouped_attention",
    grouped_tokens_first=lambda q, k, v: _causal(q, *_copies(q, k, v)).transpose(1, 2),
    grouped_for_queries_and_keys_as_many=lambda q, k, v: package.attention(
        q, *_copies(q, k, v), package.causal_mask(k.shape[2])
    )[0],
)


def _joined(past, new):
    return torch.cat((past, new), dim=2)


def _rotated(q, k, v, past_k, past_v, rotate):
    here = torch.arange(past_k.shape[2], past_k.shape[2] + q.shape[2])
    return rotate(q, here), _joined(past_k, rotate(k, here)), _joined(past_v, v)


@right("attend_with_cache")
def cached_by_comparing_positions(q, k, v, past_k, past_v, rotate):
    everywhere = torch.arange(past_k.size(-2) + q.size(-2))
    here = everywhere[past_k.size(-2) :]
    scores = torch.einsum("bhtd,bhsd->bhts", rotate(q, here), _joined(past_k, rotate(k, here)))
    scores = torch.where(everywhere <= here[:, None], scores / q.size(-1) ** 0.5, -torch.inf)
    return torch.einsum("bhts,bhsd->bhtd", scores.softmax(-1), _joined(past_v, v))


wrong(
    "attend_with_cache",
    cached_with_a_number_for_a_position=lambda q, k, v, past_k, past_v, rotate: package.attend(
        rotate(q, past_k.shape[2]), _joined(past_k, rotate(k, past_k.shape[2])), _joined(past_v, v)
    ),
    cached_with_everything_returned=lambda *given: (package.attend(*_rotated(*given)), *given[3:5]),
)
wrong(
    "attend_with_cache",
    "detached",
    cached_with_a_past_without_gradients=lambda q, k, v, past_k, past_v, rotate: package.attend(
        *_rotated(q, k, v, past_k.detach(), past_v.detach(), rotate), is_causal=True
    ),
)


@right("encode_word")
def encode_one_place_at_a_time(ids, merges):
    tokens = ids.tolist()
    while found := [(merges[pair], i) for i, pair in enumerate(pairwise(tokens)) if pair in merges]:
        new_id, i = min(found)
        tokens[i : i + 2] = [new_id]
    return torch.tensor(tokens)


right("encode_word", encode_to_int32=lambda ids, merges: encode_one_place_at_a_time(ids, merges).int())
wrong(
    "encode_word",
    encode_to_floats=lambda ids, merges: torch.Tensor(encode_one_place_at_a_time(ids, merges).tolist()),
)


@wrong("encode_word")
def encode_with_zero_for_a_hole(ids, merges):
    tokens = ids.tolist()
    while known := [pair for pair in pairwise(tokens) if pair in merges]:
        first = min(known, key=merges.get)
        for i in range(len(tokens) - 1):
            if tuple(tokens[i : i + 2]) == first:
                tokens[i : i + 2] = merges[first], 0
        tokens = [token for token in tokens if token]
    return torch.tensor(tokens)


@wrong("rotate")
def rotate_by_a_table_of_512_positions(x, positions, base):
    angles = torch.arange(512)[:, None] * base ** (-torch.arange(0, x.shape[-1], 2) / x.shape[-1])
    turns = torch.polar(torch.ones_like(angles), angles)[positions % 512]
    return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * turns).flatten(-2)
