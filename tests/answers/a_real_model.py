"""Answers to the exercises of rung 9."""

import math
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F

from answers import right, wrong
from attention_course import attention as package

# rms_norm

right(
    "rms_norm",
    rms_by_rsqrt=lambda x, weight, eps: weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps),
    rms_by_einsum=lambda x, weight, eps: torch.einsum(
        "...c,...,c->...c", x, (torch.einsum("...c,...c->...", x, x) / x.shape[-1] + eps) ** -0.5, weight
    ),
)


@right("rms_norm")
def rms_token_by_token(x, weight, eps):
    rows = [row / ((row * row).sum() / len(row) + eps) ** 0.5 for row in x.flatten(0, -2)]
    return torch.stack(rows).view(x.shape) * weight


@wrong("rms_norm", "detached")
def rms_in_numpy(x, weight, eps):
    a = x.numpy()
    return torch.from_numpy(a / np.sqrt((a**2).mean(-1, keepdims=True) + np.float32(eps))) * weight


@wrong("rms_norm", "mean_subtracted", "epsilon_outside_the_root")
def rms_as_a_standard_score(x, weight, eps):
    return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + eps) * weight


wrong(
    "rms_norm",
    rms_by_pytorch=lambda x, weight, eps: F.rms_norm(x, weight.shape, weight, eps),
    rms_for_batches_only=lambda x, weight, eps: x / (x**2).mean(2, keepdim=True).add(eps).sqrt() * weight,
)


# rotate


@right("rotate")
def rotate_by_complex_numbers(x, positions, base):
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    i = torch.arange(pairs.shape[-1])
    angles = torch.outer(positions, base ** (-i / len(i)))
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


@right("rotate")
def rotate_with_the_partner_of_each_channel(x, positions, base):
    size = x.shape[-1]
    speeds = torch.exp(-math.log(base) * torch.arange(0, size, 2) / size).repeat_interleave(2)
    angles = positions.unsqueeze(-1) * speeds
    partner = torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).view(x.shape)
    return x * torch.cos(angles) + partner * torch.sin(angles)


@right("rotate")
def rotate_into_an_empty_tensor(x, positions, base):
    out = torch.empty_like(x)
    for i in range(0, x.shape[-1], 2):
        angle = positions.double() * base ** (-i / x.shape[-1])
        out[..., i] = x[..., i] * angle.cos() - x[..., i + 1] * angle.sin()
        out[..., i + 1] = x[..., i] * angle.sin() + x[..., i + 1] * angle.cos()
    return out


def _angles(x, positions, base):
    return positions[:, None] / base ** (torch.arange(0, x.shape[-1], 2) / x.shape[-1])


@wrong("rotate", "detached")
def rotate_a_detached_copy(x, positions, base):
    return rotate_by_complex_numbers(x.detach(), positions, base)


def rotate_half_as_hugging_face(x, positions, base):
    angles = torch.cat([_angles(x, positions, base)] * 2, dim=-1)
    a, b = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return x * angles.cos() + torch.cat((-b, a), dim=-1) * angles.sin()


@wrong("rotate", "pairs_of_halves", "positions_ignored")
def rotate_half_from_0_on(x, positions, base):
    return rotate_half_as_hugging_face(x, torch.arange(x.shape[-2]), base)


@wrong("rotate", "layouts_mixed")
def rotate_half_with_interleaved_angles(x, positions, base):
    angles = _angles(x, positions, base).repeat_interleave(2, dim=-1)
    a, b = x.chunk(2, dim=-1)
    return x * angles.cos() + torch.cat((-b, a), dim=-1) * angles.sin()


wrong(
    "rotate",
    rotate_along_dimension_1=lambda x, positions, base: rotate_by_complex_numbers(
        x.transpose(0, 1), positions, base
    ).transpose(0, 1),
)


# grouped_attention


def _causal(q, k, v):
    return package.attention(q, k, v, package.causal_mask(q.shape[-2], k.shape[-2]))[0]


def _copies(q, *shared):
    return [each.repeat_interleave(q.shape[1] // each.shape[1], dim=1) for each in shared]


right(
    "grouped_attention",
    grouped_by_pytorch=lambda q, k, v: F.scaled_dot_product_attention(
        q, k, v, attn_mask=package.causal_mask(q.shape[2], k.shape[2]), enable_gqa=True
    ),
    grouped_by_copies=lambda q, k, v: _causal(q, *_copies(q, k, v)),
)


@right("grouped_attention")
def grouped_head_by_head(q, k, v):
    group, T_q, T_k = q.shape[1] // k.shape[1], q.shape[2], k.shape[2]
    out = torch.empty_like(q)
    for h in range(q.shape[1]):
        scores = q[:, h] @ k[:, h // group].mT / math.sqrt(q.shape[3])
        scores = scores + torch.full((T_q, T_k), -torch.inf).triu(T_k - T_q + 1)
        out[:, h] = scores.softmax(-1) @ v[:, h // group]
    return out


@wrong("grouped_attention", "detached")
def grouped_without_gradients(q, k, v):
    with torch.no_grad():
        return grouped_head_by_head(q, k, v)


@wrong("grouped_attention", "heads_shared_in_turns", "wrong_alignment")
def grouped_by_cat_and_is_causal(q, k, v):
    copies = (torch.cat([each] * (q.shape[1] // each.shape[1]), dim=1) for each in (k, v))
    return F.scaled_dot_product_attention(q, *copies, is_causal=True)


wrong(
    "grouped_attention",
    grouped_tokens_first=lambda q, k, v: _causal(q, *_copies(q, k, v)).transpose(1, 2),
    grouped_for_queries_and_keys_as_many=lambda q, k, v: package.attention(
        q, *_copies(q, k, v), package.causal_mask(k.shape[2])
    )[0],
)


# attend_with_cache


def _positions(q, past):
    return torch.arange(past.shape[2], past.shape[2] + q.shape[2])


def _joined(past, new):
    return torch.cat((past, new), dim=2)


def _rotated(q, k, v, past_k, past_v, rotate, positions=None):
    here = _positions(q, past_k) if positions is None else positions
    return rotate(q, here), _joined(past_k, rotate(k, here)), _joined(past_v, v)


right(
    "attend_with_cache",
    cached_by_the_package=lambda *given: package.attend(*_rotated(*given), is_causal=True),
)


@right("attend_with_cache")
def cached_by_rows_of_the_whole(q, k, v, past_k, past_v, rotate):
    here = _positions(q, past_k)
    every_q = _joined(torch.zeros_like(past_k), rotate(q, here))
    k, v = _joined(past_k, rotate(k, here)), _joined(past_v, v)
    return F.scaled_dot_product_attention(every_q, k, v, is_causal=True)[:, :, past_k.shape[2] :]


@right("attend_with_cache")
def cached_by_comparing_positions(q, k, v, past_k, past_v, rotate):
    everywhere = torch.arange(past_k.size(-2) + q.size(-2))
    here = everywhere[past_k.size(-2) :]
    scores = torch.einsum("bhtd,bhsd->bhts", rotate(q, here), _joined(past_k, rotate(k, here)))
    scores = torch.where(everywhere <= here[:, None], scores / q.size(-1) ** 0.5, -torch.inf)
    return torch.einsum("bhts,bhsd->bhtd", scores.softmax(-1), _joined(past_v, v))


@wrong("attend_with_cache", "values_rotated", "positions_without_offset")
def cached_with_all_three_rotated_from_0(q, k, v, past_k, past_v, rotate):
    q, k, v = (rotate(each, torch.arange(q.shape[2])) for each in (q, k, v))
    return package.attend(q, _joined(past_k, k), _joined(past_v, v), is_causal=True)


wrong(
    "attend_with_cache",
    "detached",
    cached_with_a_past_without_gradients=lambda q, k, v, past_k, past_v, rotate: package.attend(
        *_rotated(q, k, v, past_k.detach(), past_v.detach(), rotate), is_causal=True
    ),
)
wrong(
    "attend_with_cache",
    cached_with_a_number_for_a_position=lambda q, k, v, past_k, past_v, rotate: package.attend(
        rotate(q, past_k.shape[2]), _joined(past_k, rotate(k, past_k.shape[2])), _joined(past_v, v)
    ),
    cached_with_everything_returned=lambda *given: (package.attend(*_rotated(*given)), *given[3:5]),
)


# encode_word


def _merge(tokens, pair, new_id):
    out, i = [], 0
    while i < len(tokens):
        if i + 1 < len(tokens) and (tokens[i], tokens[i + 1]) == pair:
            out.append(new_id)
            i += 2
        else:
            out.append(tokens[i])
            i += 1
    return out


def _pairs(tokens):
    return list(pairwise(tokens))


@right("encode_word")
def encode_as_minbpe(ids, merges):
    tokens = list(map(int, ids))
    while len(tokens) >= 2:
        pair = min(set(_pairs(tokens)), key=lambda p: merges.get(p, math.inf))
        if pair not in merges:
            break
        tokens = _merge(tokens, pair, merges[pair])
    return torch.tensor(tokens)


@right("encode_word")
def encode_one_place_at_a_time(ids, merges):
    tokens = ids.tolist()
    while found := [(merges[pair], i) for i, pair in enumerate(_pairs(tokens)) if pair in merges]:
        new_id, i = min(found)
        tokens[i : i + 2] = [new_id]
    return torch.tensor(tokens)


@right("encode_word")
def encode_to_int32(ids, merges):
    return encode_as_minbpe(ids, merges).int()


@wrong("encode_word", "order_of_the_dict")
def encode_once_through_the_dict(ids, merges):
    tokens = ids.tolist()
    for pair, new_id in merges.items():
        tokens = _merge(tokens, pair, new_id)
    return torch.tensor(tokens)


@wrong("encode_word", "leftmost_pair_first", "stops_after_one_merge")
def encode_one_pass_from_left_to_right(ids, merges):
    tokens, i = ids.tolist(), 0
    while i < len(tokens) - 1:
        if (pair := (tokens[i], tokens[i + 1])) in merges:
            tokens[i : i + 2] = [merges[pair]]
        i += 1
    return torch.tensor(tokens)


wrong(
    "encode_word",
    encode_to_a_list=lambda ids, merges: encode_as_minbpe(ids, merges).tolist(),
    encode_to_floats=lambda ids, merges: torch.Tensor(encode_as_minbpe(ids, merges).tolist()),
)


# find_induction_head


def _place(scores):
    return torch.tensor(np.unravel_index(int(scores.argmax()), tuple(scores.shape)))


@right("find_induction_head")
def find_by_loops(weights, ids):
    best = (-1.0, 0, 0)
    half = len(ids) // 2
    for layer, heads in enumerate(weights.tolist()):
        for head, rows in enumerate(heads):
            score = sum(rows[t][t - half + 1] for t in range(half, 2 * half)) / half
            best = max(best, (score, layer, head))
    return torch.tensor(best[1:])


@right("find_induction_head")
def find_by_a_table_of_targets(weights, ids):
    same = (ids[:, None] == ids).float().tril(-1)
    return _place((weights * same.roll(1, dims=1)).sum((-2, -1)))


@right("find_induction_head")
def find_by_searching_each_token(weights, ids):
    scores, tokens = torch.zeros(weights.shape[:2]), ids.tolist()
    for t in range(len(tokens) // 2, len(tokens)):
        scores += weights[..., t, tokens.index(tokens[t]) + 1]
    return (scores == scores.max()).nonzero()[0]


@wrong("find_induction_head", "looks_at_the_same_token")
def find_the_same_token(weights, ids):
    same = (ids[:, None] == ids).tril(-1)
    return _place((weights * same).sum((-2, -1)))


@wrong("find_induction_head", "first_token_head")
def find_the_sink(weights, ids):
    return _place(weights[..., 0].mean(-1))


wrong(
    "find_induction_head",
    find_a_tuple=lambda weights, ids: tuple(find_by_loops(weights, ids).tolist()),
    find_the_last_head_of_the_layer=lambda weights, ids: torch.tensor([find_by_loops(weights, ids)[0], -1]),
)
