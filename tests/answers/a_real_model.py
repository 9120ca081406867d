"""Answers to the exercises of rung 9."""

import math
from collections import Counter
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
    rms_by_the_norm=lambda x, weight, eps: (
        x / torch.sqrt(torch.linalg.vector_norm(x, dim=-1, keepdim=True) ** 2 / x.shape[-1] + eps) * weight
    ),
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


@wrong("rms_norm", "detached")
def rms_with_a_constant_root(x, weight, eps):
    with torch.no_grad():
        factor = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    return x * factor * weight


@wrong("rms_norm", "mean_subtracted")
def rms_by_layer_norm(x, weight, eps):
    return F.layer_norm(x, (x.shape[-1],), weight, None, eps)


@wrong("rms_norm", "mean_subtracted", "epsilon_outside_the_root")
def rms_as_a_standard_score(x, weight, eps):
    return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + eps) * weight


@wrong("rms_norm", "sum_in_place_of_mean", "epsilon_outside_the_root")
def rms_by_the_length_of_the_token(x, weight, eps):
    return weight * x / (x.norm(dim=-1, keepdim=True) + eps)


@wrong("rms_norm", "weight_forgotten", "epsilon_ignored")
def rms_without_parameters(x, weight, eps):
    return x * x.pow(2).mean(-1, True).rsqrt()


@wrong("rms_norm", "weight_below_the_line")
def rms_with_parentheses_around_too_much(x, weight, eps):
    return x / (torch.sqrt(eps + (x * x).mean(-1, keepdim=True)) * weight)


@wrong("rms_norm", "no_dim", "weight_forgotten")
def rms_of_the_whole_tensor(x, weight, eps):
    return x / torch.sqrt(x.pow(2).mean() + eps)


@wrong("rms_norm", "epsilon_as_a_minimum", "sum_in_place_of_mean")
def rms_by_normalize(x, weight, eps):
    return F.normalize(x, dim=-1, eps=eps) * weight


@wrong("rms_norm", "upside_down")
def rms_divided_by_rsqrt(x, weight, eps):
    return x / torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


wrong(
    "rms_norm",
    rms_by_pytorch=lambda x, weight, eps: F.rms_norm(x, weight.shape, weight, eps),
    rms_for_batches_only=lambda x, weight, eps: x / (x**2).mean(2, keepdim=True).add(eps).sqrt() * weight,
)
wrong(
    "rms_norm",
    "root_before_the_mean",
    rms_of_the_length=lambda x, weight, eps: x / (x.norm(dim=-1, keepdim=True) / x.shape[-1] + eps) * weight,
)
wrong(
    "rms_norm",
    "epsilon_in_another_place",
    rms_epsilon_on_each_side=lambda x, weight, eps: (
        x / ((x * x).mean(-1, keepdim=True) + eps).sqrt().add(eps) * weight
    ),
    rms_epsilon_after_the_division=lambda x, weight, eps: (
        x / ((x * x).mean(-1, keepdim=True)).sqrt().clamp(1e-9) * weight + eps
    ),
)


# rotate


@right("rotate")
def rotate_by_complex_numbers(x, positions, base):
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    i = torch.arange(pairs.shape[-1])
    angles = torch.outer(positions, base ** (-i / len(i)))
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


@right("rotate")
def rotate_by_two_by_two_matrices(x, positions, base):
    size = x.shape[-1]
    angles = torch.tensor(
        [[p / base ** (2 * i / size) for i in range(size // 2)] for p in positions.tolist()]
    )
    cos, sin = angles.cos(), angles.sin()
    turn = torch.stack([cos, -sin, sin, cos], dim=-1).unflatten(-1, (2, 2))  # (T, pairs, 2, 2)
    return torch.einsum("tprc,...tpc->...tpr", turn, x.unflatten(-1, (-1, 2))).flatten(-2)


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


@wrong("rotate", "pairs_of_halves")
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


@wrong("rotate", "layouts_mixed")
def rotate_neighbours_with_angles_of_halves(x, positions, base):
    angles = torch.cat([_angles(x, positions, base)] * 2, dim=-1)
    partner = torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)
    return x * angles.cos() + partner * angles.sin()


@wrong("rotate", "not_interleaved")
def rotate_and_cat(x, positions, base):
    angles = _angles(x, positions, base)
    a, b = x[..., ::2], x[..., 1::2]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], dim=-1)


@wrong("rotate", "overwritten_too_early")
def rotate_in_a_clone(x, positions, base):
    out, angles = x.clone(), _angles(x, positions, base)
    a, b = out[..., 0::2], out[..., 1::2]
    out[..., 0::2] = a * angles.cos() - b * angles.sin()
    out[..., 1::2] = a * angles.sin() + b * angles.cos()
    return out


@wrong("rotate", "turned_the_other_way")
def rotate_by_the_conjugate(x, positions, base):
    return rotate_by_complex_numbers(x, -positions, base)


@wrong("rotate", "exponent_not_doubled")
def rotate_with_i_over_head_size(x, positions, base):
    return rotate_by_complex_numbers(x, positions, base**0.5)


@wrong("rotate", "mirrored")
def rotate_without_a_minus(x, positions, base):
    angles = _angles(x, positions, base).repeat_interleave(2, -1)
    return x * angles.cos() + x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2) * angles.sin()


wrong(
    "rotate",
    "sinusoids_added",
    rotate_by_adding_sinusoids=lambda x, positions, base: (
        x + torch.stack(((a := _angles(x, positions, base)).sin(), a.cos()), dim=-1).flatten(-2)
    ),
)
wrong(
    "rotate",
    "integer_division",
    rotate_with_whole_exponents=lambda x, positions, base: (
        x
        * (
            angles := (
                positions[:, None] * base ** (-torch.arange(0, x.shape[-1], 2) // x.shape[-1])
            ).repeat_interleave(2, -1)
        ).cos()
        + torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2) * angles.sin()
    ),
)
wrong(
    "rotate",
    "angle_for_each_channel",
    rotate_with_an_angle_for_each_channel=lambda x, positions, base: (
        x * (angles := positions[:, None] * base ** (-torch.arange(x.shape[-1]) / x.shape[-1])).cos()
        + torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2) * angles.sin()
    ),
)

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
    grouped_by_the_package=lambda q, k, v: package.attend(q, k, v, is_causal=True, enable_gqa=True),
    grouped_by_copies=lambda q, k, v: _causal(q, *_copies(q, k, v)),
)


@right("grouped_attention")
def grouped_by_a_dimension_of_groups(q, k, v):
    q = q.unflatten(1, (k.shape[1], -1))
    return _causal(q, k[:, :, None], v[:, :, None]).flatten(1, 2)


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


@wrong("grouped_attention", "wrong_alignment")
def grouped_by_is_causal(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


@wrong("grouped_attention", "heads_shared_in_turns")
def grouped_by_the_remainder(q, k, v):
    heads = torch.arange(q.shape[1]) % k.shape[1]
    return _causal(q, k[:, heads], v[:, heads])


@wrong("grouped_attention", "heads_shared_in_turns", "wrong_alignment")
def grouped_by_cat_and_is_causal(q, k, v):
    copies = (torch.cat([each] * (q.shape[1] // each.shape[1]), dim=1) for each in (k, v))
    return F.scaled_dot_product_attention(q, *copies, is_causal=True)


@wrong("grouped_attention", "heads_shared_in_turns")
def grouped_by_groups_last(q, k, v):
    q = q.unflatten(1, (-1, k.shape[1]))
    return _causal(q, k[:, None], v[:, None]).flatten(1, 2)


@wrong("grouped_attention", "heads_divided_by_n_kv_head")
def grouped_by_the_wrong_divisor(q, k, v):
    return torch.stack(
        [_causal(q[:, h], k[:, h // k.shape[1]], v[:, h // k.shape[1]]) for h in range(q.shape[1])],
        dim=1,
    )


@wrong("grouped_attention", "queries_of_a_group_averaged")
def grouped_into_fewer_heads(q, k, v):
    return _causal(q.unflatten(1, (k.shape[1], -1)).mean(2), k, v)


@wrong("grouped_attention", "no_mask", "scaled_by_n_embd")
def grouped_without_a_mask_scaled_by_the_width(q, k, v):
    k, v = _copies(q, k, v)
    return torch.softmax(q @ k.mT / math.sqrt(q.shape[1] * q.shape[3]), -1) @ v


@wrong("grouped_attention", "values_shared_in_turns")
def grouped_with_two_kinds_of_copies(q, k, v):
    return _causal(q, *_copies(q, k), v.tile(1, q.shape[1] // v.shape[1], 1, 1))


@wrong("grouped_attention", "no_scale", "wrong_alignment")
def grouped_with_the_triangle_of_a_square(q, k, v):
    k, v = _copies(q, k, v)
    scores = q @ k.mT
    hidden = torch.ones(scores.shape[-2:]).triu(1).bool()
    return scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v


wrong(
    "grouped_attention",
    "key_heads_reversed",
    grouped_key_heads_in_reverse=lambda q, k, v: _causal(q, *_copies(q, k.flip(1), v.flip(1))),
)
wrong(
    "grouped_attention",
    "heads_merged",
    grouped_merged_to_tokens=lambda q, k, v: _causal(q, *_copies(q, k, v)).transpose(1, 2).flatten(2),
)
wrong(
    "grouped_attention",
    "heads_not_copied",
    grouped_without_copies=lambda q, k, v: (
        torch.softmax(
            (q @ k.mT / math.sqrt(q.shape[3])).masked_fill(
                ~package.causal_mask(q.shape[2], k.shape[2]), -torch.inf
            ),
            dim=-1,
        )
        @ v
    ),
)
wrong(
    "grouped_attention",
    "no_mask",
    grouped_causal_where_square=lambda q, k, v: F.scaled_dot_product_attention(
        q, *_copies(q, k, v), is_causal=q.shape[2] == k.shape[2]
    ),
)
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
def cached_token_by_token(q, k, v, past_k, past_v, rotate):
    outputs = []
    for t in range(q.shape[2]):
        here = torch.tensor([past_k.shape[2]])
        past_k = _joined(past_k, rotate(k[:, :, [t]], here))
        past_v = _joined(past_v, v[:, :, [t]])
        outputs.append(F.scaled_dot_product_attention(rotate(q[:, :, [t]], here), past_k, past_v))
    return torch.cat(outputs, dim=2)


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


@wrong("attend_with_cache", "keys_not_rotated", "queries_not_rotated")
def cached_without_positions(q, k, v, past_k, past_v, rotate):
    return package.attend(q, _joined(past_k, k), _joined(past_v, v), is_causal=True)


@wrong("attend_with_cache", "past_rotated_again")
def cached_with_all_keys_rotated(q, k, v, past_k, past_v, rotate):
    k, v = _joined(past_k, k), _joined(past_v, v)
    q, k = rotate(q, _positions(q, past_k)), rotate(k, torch.arange(k.shape[2]))
    return package.attend(q, k, v, is_causal=True)


@wrong("attend_with_cache", "past_ignored")
def cached_and_forgotten(q, k, v, past_k, past_v, rotate):
    here = _positions(q, past_k)
    return package.attend(rotate(q, here), rotate(k, here), v, is_causal=True)


@wrong("attend_with_cache", "new_tokens_in_front")
def cached_with_the_new_ones_first(q, k, v, past_k, past_v, rotate):
    here = _positions(q, past_k)
    k, v = _joined(rotate(k, here), past_k), _joined(v, past_v)
    return package.attend(rotate(q, here), k, v, is_causal=True)


@wrong("attend_with_cache", "new_tokens_left_out")
def cached_but_not_extended(q, k, v, past_k, past_v, rotate):
    q = rotate(q, _positions(q, past_k))
    return torch.softmax(q @ past_k.mT / math.sqrt(q.shape[-1]), dim=-1) @ past_v


wrong(
    "attend_with_cache",
    "wrong_alignment",
    cached_by_is_causal=lambda *given: F.scaled_dot_product_attention(*_rotated(*given), is_causal=True),
)
wrong(
    "attend_with_cache",
    "no_mask",
    cached_as_if_for_one_token=lambda *given: F.scaled_dot_product_attention(*_rotated(*given)),
)
wrong(
    "attend_with_cache",
    "positions_without_offset",
    cached_with_positions_from_0=lambda q, *given: package.attend(
        *_rotated(q, *given, positions=torch.arange(q.shape[2])), is_causal=True
    ),
)
wrong(
    "attend_with_cache",
    "one_position_for_all",
    cached_at_one_position=lambda q, k, v, past_k, *given: package.attend(
        *_rotated(q, k, v, past_k, *given, positions=torch.ones(q.shape[2]) * past_k.shape[2]), is_causal=True
    ),
)
wrong(
    "attend_with_cache",
    "position_off_by_one",
    "no_mask",
    cached_one_late_without_a_mask=lambda q, k, v, past_k, *given: F.scaled_dot_product_attention(
        *_rotated(q, k, v, past_k, *given, positions=_positions(q, past_k) + 1)
    ),
)
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
    cached_that_empties_the_cache=lambda q, k, v, past_k, past_v, rotate: (
        package.attend(*_rotated(q, k, v, past_k, past_v, rotate), is_causal=True) + 0 * past_k.zero_().sum()
    ),
)
wrong(
    "attend_with_cache",
    "joined_along_another_dimension",
    cached_side_by_side=lambda q, k, v, past_k, past_v, rotate: (
        torch.softmax(
            rotate(q, _positions(q, past_k))
            @ torch.cat((past_k, rotate(k, _positions(q, past_k))), dim=1).mT
            / q.shape[-1] ** 0.5,
            dim=-1,
        )
        @ torch.cat((past_v, v), dim=1)
    ),
)
wrong(
    "attend_with_cache",
    "wrong_alignment",
    cached_causal_for_several=lambda q, *given: F.scaled_dot_product_attention(
        *_rotated(q, *given), is_causal=q.shape[2] > 1
    ),
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
def encode_once_through_the_table(ids, merges):
    tokens = ids.tolist()
    for pair, new_id in sorted(merges.items(), key=lambda item: item[1]):
        tokens = _merge(tokens, pair, new_id)
    return torch.tensor(tokens)


@right("encode_word")
def encode_one_place_at_a_time(ids, merges):
    tokens = ids.tolist()
    while found := [(merges[pair], i) for i, pair in enumerate(_pairs(tokens)) if pair in merges]:
        new_id, i = min(found)
        tokens[i : i + 2] = [new_id]
    return torch.tensor(tokens)


@right("encode_word")
def encode_in_tensors(ids, merges):
    tokens = ids.clone()
    for (left, right_), new_id in sorted(merges.items(), key=lambda item: item[1]):
        places = ((tokens[:-1] == left) & (tokens[1:] == right_)).nonzero().flatten().tolist()
        keep, end = torch.ones(len(tokens), dtype=torch.bool), -1
        for i in places:
            if i > end:
                tokens[i], keep[i + 1], end = new_id, False, i + 1
        tokens = tokens[keep]
    return tokens


@right("encode_word")
def encode_to_int32(ids, merges):
    return encode_as_minbpe(ids, merges).int()


@wrong("encode_word", "order_of_the_dict")
def encode_once_through_the_dict(ids, merges):
    tokens = ids.tolist()
    for pair, new_id in merges.items():
        tokens = _merge(tokens, pair, new_id)
    return torch.tensor(tokens)


@wrong("encode_word", "order_of_the_dict")
def encode_by_ranks_of_the_dict(ids, merges):
    ranks, tokens = {pair: rank for rank, pair in enumerate(merges)}, ids.tolist()
    while pairs := [pair for pair in _pairs(tokens) if pair in ranks]:
        best = min(pairs, key=ranks.get)
        tokens = _merge(tokens, best, merges[best])
    return torch.tensor(tokens)


@wrong("encode_word", "nothing_merged")
def encode_with_tensors_as_keys(ids, merges):
    tokens = list(ids)
    while pairs := [pair for pair in _pairs(tokens) if pair in merges]:
        best = min(pairs, key=lambda pair: merges[pair])
        tokens = _merge(tokens, best, merges[best])
    return torch.tensor(tokens)


@wrong("encode_word", "no_pair_left")
def encode_until_min_fails(ids, merges):
    tokens = ids.tolist()
    while len(tokens) > 0:
        best = min([pair for pair in _pairs(tokens) if pair in merges], key=merges.get)
        tokens = _merge(tokens, best, merges[best])
    return torch.tensor(tokens)


@wrong("encode_word", "merged_by_frequency")
def encode_by_counting(ids, merges):
    tokens = ids.tolist()
    while counts := Counter(pair for pair in _pairs(tokens) if pair in merges):
        pair, _ = counts.most_common(1)[0]
        tokens = _merge(tokens, pair, merges[pair])
    return torch.tensor(tokens)


@wrong("encode_word", "leftmost_pair_first")
def encode_the_first_pair_found(ids, merges):
    tokens, i = ids.tolist(), 0
    while i < len(tokens) - 1:
        pair = (tokens[i], tokens[i + 1])
        if pair in merges:
            tokens[i : i + 2] = [merges[pair]]
            i = 0
        else:
            i += 1
    return torch.tensor(tokens)


@wrong("encode_word", "leftmost_pair_first")
def encode_in_sweeps(ids, merges):
    tokens, changed = ids.tolist(), True
    while changed:
        changed, out, i = False, [], 0
        while i < len(tokens):
            pair = tuple(tokens[i : i + 2])
            if pair in merges:
                out.append(merges[pair])
                changed, i = True, i + 2
            else:
                out.append(tokens[i])
                i += 1
        tokens = out
    return torch.tensor(tokens)


@wrong("encode_word", "stops_after_one_merge")
def encode_without_a_loop(ids, merges):
    tokens = ids.tolist()
    pairs = [pair for pair in _pairs(tokens) if pair in merges]
    if pairs:
        pair = min(pairs, key=lambda pair: merges[pair])
        tokens = _merge(tokens, pair, merges[pair])
    return torch.tensor(tokens)


@wrong("encode_word", "order_of_the_dict")
def encode_from_the_end_of_the_table(ids, merges):
    tokens = ids.tolist()
    while pairs := [pair for pair in reversed(merges) if pair in _pairs(tokens)]:
        tokens = _merge(tokens, pairs[0], merges[pairs[0]])
    return torch.tensor(tokens)


@wrong("encode_word", "new_pairs_never_merged")
def encode_the_pairs_of_the_start(ids, merges):
    tokens = ids.tolist()
    for pair in sorted(filter(merges.__contains__, set(_pairs(tokens))), key=merges.get):
        tokens = _merge(tokens, pair, merges[pair])
    return torch.tensor(tokens)


@wrong("encode_word", "loop_ends_too_early")
def encode_with_a_range_over_pairs(ids, merges):
    tokens = ids.tolist()
    while pairs := [pair for pair in _pairs(tokens) if pair in merges]:
        best, out, i = min(pairs, key=lambda pair: merges[pair]), [], 0
        while i < len(tokens) - 1:
            found = (tokens[i], tokens[i + 1]) == best
            out.append(merges[best] if found else tokens[i])
            i += 2 if found else 1
        tokens = out
    return torch.tensor(tokens)


@wrong("encode_word", "right_half_kept")
def encode_by_a_for_loop(ids, merges):
    tokens = ids.tolist()
    while pairs := [pair for pair in _pairs(tokens) if pair in merges]:
        best = min(pairs, key=lambda pair: merges[pair])
        tokens = [merges[best] if tuple(tokens[i : i + 2]) == best else t for i, t in enumerate(tokens)]
    return torch.tensor(tokens)


@wrong("encode_word", "merged_by_frequency")
def encode_by_counting_all_pairs(ids, merges):
    tokens = ids.tolist()
    while len(tokens) > 1 and (pair := Counter(_pairs(tokens)).most_common(1)[0][0]) in merges:
        tokens = _merge(tokens, pair, merges[pair])
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
def find_by_the_diagonal(weights, ids):
    scores = weights.diagonal(1 - len(ids) // 2, dim1=-2, dim2=-1)[..., 1:].mean(-1)
    layer, head = divmod(scores.argmax().item(), weights.shape[1])
    return torch.tensor([layer, head])


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


@wrong("find_induction_head", "layer_and_head_swapped")
def find_head_and_layer(weights, ids):
    return find_by_loops(weights, ids).flip(0)


@wrong("find_induction_head", "divided_by_n_layer")
def find_with_the_wrong_divisor(weights, ids):
    scores = weights.diagonal(1 - len(ids) // 2, dim1=-2, dim2=-1)[..., 1:].mean(-1)
    return torch.tensor(divmod(int(scores.argmax()), len(weights)))


@wrong("find_induction_head", "max_in_place_of_mean")
def find_the_largest_weight_there(weights, ids):
    return _place(weights.diagonal(1 - len(ids) // 2, dim1=-2, dim2=-1)[..., 1:].amax(-1))


@wrong("find_induction_head", "scores_all_equal")
def find_in_the_future(weights, ids):
    t = torch.arange(len(ids) // 2, len(ids))
    return _place(weights[..., t - len(ids) // 2 + 1, t].mean(-1))


@wrong("find_induction_head", "first_token_head")
def find_where_most_weight_lies(weights, ids):
    return _place(weights.sum(-2).amax(-1))


def _score(weights, queries, half):
    return weights[:, :, queries, queries - half + 1].mean(-1)


@wrong("find_induction_head", "last_query_left_out")
def find_without_the_last_query(weights, ids):
    half = len(ids) // 2
    return _place(_score(weights, torch.arange(half, 2 * half - 1), half))


@wrong("find_induction_head", "best_layer_first")
def find_the_layer_first(weights, ids):
    half = len(ids) // 2
    scores = _score(weights, torch.arange(half, 2 * half), half)
    layer = scores.sum(1).argmax()
    return torch.stack([layer, scores[layer].argmax()])


wrong(
    "find_induction_head",
    "counted_from_1",
    find_counted_from_1=lambda weights, ids: find_by_loops(weights, ids) + 1,
)

wrong(
    "find_induction_head",
    "scores_all_equal",
    find_the_largest_weight_of_all=lambda weights, ids: _place(weights.amax((-2, -1))),
)

wrong(
    "find_induction_head",
    "counted_in_a_row",
    find_one_number=lambda weights, ids: (
        weights.diagonal(1 - len(ids) // 2, dim1=2, dim2=3)[..., 1:].mean(-1).argmax()
    ),
)
wrong(
    "find_induction_head",
    find_a_tuple=lambda weights, ids: tuple(find_by_loops(weights, ids).tolist()),
    find_the_last_head_of_the_layer=lambda weights, ids: torch.tensor([find_by_loops(weights, ids)[0], -1]),
)

wrong(
    "find_induction_head",
    "returns_the_scores",
    find_the_scores=lambda weights, ids: _score(
        weights, torch.arange(len(ids) // 2, len(ids)), len(ids) // 2
    ),
)
