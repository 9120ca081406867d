"""Answers to the exercises of notebooks 05 to 08."""

import math
from functools import reduce

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from answers import right, wrong
from attention_course import attention as package

# ------------------------------------------------------------------ scaled_weights


@right("scaled_weights")
def scaled_by_einsum(x, w_query, w_key):
    scores = torch.einsum("...tc,cd,ed,...se->...ts", x, w_query, w_key, x)
    return torch.softmax(scores / math.sqrt(w_key.shape[1]), dim=-1)


@right("scaled_weights")
def scale_on_both_sides(x, w_query, w_key):
    root = w_query.shape[-1] ** -0.25
    return F.softmax((x @ w_query * root) @ (x @ w_key * root).mT, dim=-1)


@right("scaled_weights")
def scaled_in_float64(x, w_query, w_key):
    q, k = x.double() @ w_query.double(), x.double() @ w_key.double()
    return torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, dim=-1).to(x.dtype)


@right("scaled_weights")
def scaled_by_vmap(x, w_query, w_key):
    def of_one_text(x):
        scores = (x @ w_query) @ (x @ w_key).T
        return (scores / w_key.size(1) ** 0.5).softmax(-1)

    return torch.vmap(of_one_text)(x) if x.dim() == 3 else of_one_text(x)


@right("scaled_weights")
def scaled_by_loops_over_queries_and_keys(x, w_query, w_key):
    texts = x[None] if x.dim() == 2 else x
    B, T, _ = texts.shape
    weights = torch.zeros(B, T, T)
    for b in range(B):
        q, k = texts[b] @ w_query, texts[b] @ w_key
        for t in range(T):
            for s in range(T):
                weights[b, t, s] = q[t].dot(k[s]) / q.shape[1] ** 0.5
            weights[b, t] = weights[b, t].sub(weights[b, t].max()).exp()
            weights[b, t] /= weights[b, t].sum()
    return weights[0] if x.dim() == 2 else weights


@right("scaled_weights")
def softmax_of_differences(x, w_query, w_key):
    scores = (x @ w_query / w_query.shape[1] ** 0.5) @ (x @ w_key).transpose(-1, -2)
    return 1 / (scores.unsqueeze(-2) - scores.unsqueeze(-1)).exp().sum(-1)


@right("scaled_weights")
def one_matrix_for_query_and_key(x, w_query, w_key):
    bilinear = w_query @ w_key.T / math.sqrt(w_query.shape[1])
    return torch.log_softmax(x @ bilinear @ x.transpose(-2, -1), dim=-1).exp()


@right("scaled_weights")
def call_what_rung_4_built(x, w_query, w_key):
    return package.attention_weights(x @ w_query, x @ w_key)


def _scores(x, w_query, w_key):
    return (x @ w_query) @ (x @ w_key).transpose(-2, -1)


@wrong("scaled_weights")
def minus_one_half_without_brackets(x, w_query, w_key):
    return torch.softmax(_scores(x, w_query, w_key) * w_query.shape[-1] ** -1 / 2, dim=-1)


@wrong("scaled_weights")
def softmax_over_dim_0(x, w_query, w_key):
    return torch.softmax(_scores(x, w_query, w_key) * w_query.shape[-1] ** -0.5, dim=0)


@wrong("scaled_weights")
def scale_of_len_q(x, w_query, w_key):
    q, k = x @ w_query, x @ w_key
    return torch.softmax(q @ k.transpose(-2, -1) / len(q) ** 0.5, dim=-1)


@wrong("scaled_weights")
def keys_made_with_w_query(x, w_query, w_key):
    q = x @ w_query
    return torch.softmax(q @ q.transpose(-2, -1) * q.shape[-1] ** -0.5, dim=-1)


@wrong("scaled_weights")
def whole_root_of_head_size(x, w_query, w_key):
    return torch.softmax(_scores(x, w_query, w_key) / int(w_query.shape[-1] ** 0.5), dim=-1)


@wrong("scaled_weights")
def floor_division_makes_the_scale_zero(x, w_query, w_key):
    return torch.softmax(_scores(x, w_query, w_key) * (1 // w_query.shape[-1] ** 0.5), dim=-1)


@wrong("scaled_weights")
def cosine_in_place_of_the_scale(x, w_query, w_key):
    q, k = F.normalize(x @ w_query, dim=-1), F.normalize(x @ w_key, dim=-1)
    return torch.softmax(q @ k.transpose(-2, -1), dim=-1)


@wrong("scaled_weights")
def divide_by_the_measured_deviation(x, w_query, w_key):
    scores = _scores(x, w_query, w_key)
    return torch.softmax(scores / scores.std(), dim=-1)


@wrong("scaled_weights")
def keys_reshaped_in_place_of_transposed(x, w_query, w_key):
    q, k = x @ w_query, x @ w_key
    turned = k.reshape(*k.shape[:-2], k.shape[-1], k.shape[-2])
    return torch.softmax(q @ turned * q.shape[-1] ** -0.5, dim=-1)


@wrong("scaled_weights")
def one_softmax_for_the_whole_table(x, w_query, w_key):
    scores = _scores(x, w_query, w_key) * w_query.shape[-1] ** -0.5
    return torch.softmax(scores.flatten(-2), dim=-1).view_as(scores)


@wrong("scaled_weights")
def squeezed_on_the_way_out(x, w_query, w_key):
    return torch.softmax(_scores(x, w_query, w_key) * w_query.shape[-1] ** -0.5, dim=-1).squeeze()


@wrong("scaled_weights")
def one_maximum_for_the_whole_table(x, w_query, w_key):
    scores = _scores(x, w_query, w_key) * w_query.shape[-1] ** -0.5
    heights = (scores - scores.max()).exp()
    return heights / heights.sum(dim=-1, keepdim=True)


# -------------------------------------------------------------- predicted_variance


@right("predicted_variance")
def law_in_one_line(var_q, var_k, head_size, scale):
    return scale**2 * head_size * var_q * var_k


@right("predicted_variance")
def law_by_einsum(var_q, var_k, head_size, scale):
    return torch.einsum("h,h->h", var_q, var_k) * (head_size * scale * scale)


@right("predicted_variance")
def law_by_adding_a_term_for_each_channel(var_q, var_k, head_size, scale):
    total = torch.zeros_like(var_q)
    for _ in range(head_size):
        total = total + (scale * var_q.sqrt() * var_k.sqrt()) ** 2
    return total


@right("predicted_variance")
def law_by_list_comprehension(var_q, var_k, head_size, scale):
    pairs = zip(var_q.tolist(), var_k.tolist(), strict=True)
    return torch.tensor([a * b * head_size * float(scale) ** 2 for a, b in pairs])


@right("predicted_variance")
def law_in_logarithms(var_q, var_k, head_size, scale):
    size = math.log(head_size) + 2 * math.log(abs(scale))
    return (var_q.log() + var_k.log() + size).exp()


@right("predicted_variance")
def law_in_float64_by_numpy(var_q, var_k, head_size, scale):
    a, b = np.float64(var_q.numpy()), np.float64(var_k.numpy())
    return torch.as_tensor(np.square(np.sqrt(a * b * head_size) * scale)).to(var_q.dtype)


@right("predicted_variance")
def law_by_vmap(var_q, var_k, head_size, scale):
    return torch.vmap(lambda a, b: (a * scale) * (b * scale) * head_size)(var_q, var_k)


@right("predicted_variance")
def law_in_place_on_a_copy(var_q, var_k, head_size, scale):
    out = var_q.clone()
    out *= var_k
    out *= head_size
    out *= scale**2
    return out


@wrong("predicted_variance")
def deviations_multiplied(var_q, var_k, head_size, scale):
    return head_size * (var_q * var_k).sqrt() * scale**2


@wrong("predicted_variance")
def the_usual_scale_whatever_scale_is(var_q, var_k, head_size, scale):
    return var_q * var_k


@wrong("predicted_variance")
def all_heads_share_the_first_variances(var_q, var_k, head_size, scale):
    return (head_size * var_q[0] * var_k[0] * scale**2).expand(len(var_q))


@wrong("predicted_variance")
def one_channel_less_as_in_a_sample(var_q, var_k, head_size, scale):
    return (head_size - 1) * var_q * var_k * scale**2


@wrong("predicted_variance")
def head_size_times_the_number_of_heads(var_q, var_k, head_size, scale):
    return head_size * len(var_q) * var_q * var_k * scale**2


@wrong("predicted_variance")
def query_variance_twice(var_q, var_k, head_size, scale):
    return head_size * var_q * var_q * scale**2


@wrong("predicted_variance")
def measured_in_place_of_predicted(var_q, var_k, head_size, scale):
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(len(var_q), 2000, head_size, generator=generator) * var_q.sqrt()[:, None, None]
    k = torch.randn(len(var_q), 2000, head_size, generator=generator) * var_k.sqrt()[:, None, None]
    return ((q * k).sum(dim=-1) * scale).var(dim=-1)


@wrong("predicted_variance")
def keys_of_the_next_head(var_q, var_k, head_size, scale):
    return head_size * var_q * var_k.roll(-1) * scale**2


@wrong("predicted_variance")
def scale_cut_to_an_integer(var_q, var_k, head_size, scale):
    return head_size * var_q * var_k * (scale**2 // 1)


@wrong("predicted_variance")
def squeezed_to_one_number(var_q, var_k, head_size, scale):
    return (head_size * var_q * var_k * scale**2).squeeze()


@wrong("predicted_variance")
def factor_rounded_to_an_integer(var_q, var_k, head_size, scale):
    return round(head_size * scale**2) * var_q * var_k


@wrong("predicted_variance")
def queries_changed_on_the_way(var_q, var_k, head_size, scale):
    var_q *= var_k
    return head_size * var_q * scale**2


# -------------------------------------------------------------- scale_for_variance


@right("scale_for_variance")
def scale_in_one_line(var_q, var_k, head_size, variance):
    return (variance / (head_size * var_q * var_k)) ** 0.5


@right("scale_for_variance")
def scale_by_rsqrt_of_the_parts(var_q, var_k, head_size, variance):
    return math.sqrt(variance) * var_q.rsqrt() * var_k.rsqrt() / math.sqrt(head_size)


@right("scale_for_variance")
def scale_by_a_loop(var_q, var_k, head_size, variance):
    out = torch.empty_like(var_q)
    for h in range(len(var_q)):
        out[h] = math.sqrt(variance) / math.sqrt(head_size * var_q[h].item() * var_k[h].item())
    return out


@right("scale_for_variance")
def scale_in_logarithms(var_q, var_k, head_size, variance):
    return torch.exp((math.log(variance / head_size) - var_q.log() - var_k.log()) / 2)


@right("scale_for_variance")
def scale_in_numpy(var_q, var_k, head_size, variance):
    product = np.prod([var_q.numpy(), var_k.numpy()], axis=0).astype(np.float64)
    return torch.tensor(np.sqrt(variance / product / head_size), dtype=var_q.dtype)


@right("scale_for_variance")
def scale_by_newton_steps(var_q, var_k, head_size, variance):
    wanted = (variance / head_size / var_q / var_k).double()
    root = wanted.clamp(min=1.0)
    for _ in range(60):
        root = (root + wanted / root) / 2
    return root.to(var_q.dtype)


@right("scale_for_variance")
def scale_by_vmap_and_law(var_q, var_k, head_size, variance):
    def of_one_head(a, b):
        at_scale_1 = a * b * head_size
        return torch.sqrt(variance / at_scale_1)

    return torch.vmap(of_one_head)(var_q, var_k)


@wrong("scale_for_variance")
def one_scale_for_all_heads(var_q, var_k, head_size, variance):
    return (variance / (head_size * (var_q * var_k).mean())).sqrt().expand(len(var_q))


@wrong("scale_for_variance")
def never_above_one(var_q, var_k, head_size, variance):
    return (variance / (head_size * var_q * var_k)).sqrt().clamp(max=1)


@wrong("scale_for_variance")
def the_other_root(var_q, var_k, head_size, variance):
    return -((variance / (head_size * var_q * var_k)) ** 0.5)


@wrong("scale_for_variance")
def root_twice(var_q, var_k, head_size, variance):
    return (variance / (head_size * var_q.sqrt() * var_k.sqrt())).sqrt()


@wrong("scale_for_variance")
def floor_division_of_variance_by_head_size(var_q, var_k, head_size, variance):
    return (variance // head_size / (var_q * var_k)).sqrt()


@wrong("scale_for_variance")
def variance_of_the_queries_alone_squared(var_q, var_k, head_size, variance):
    return (variance / head_size) ** 0.5 / var_q


@wrong("scale_for_variance")
def rounded_to_a_power_of_two(var_q, var_k, head_size, variance):
    return 2 ** (variance / (head_size * var_q * var_k)).sqrt().log2().round()


@wrong("scale_for_variance")
def never_below_the_usual_scale(var_q, var_k, head_size, variance):
    return (variance / (head_size * var_q * var_k)).sqrt().clamp(min=head_size**-0.5)


@wrong("scale_for_variance")
def rounded_to_three_digits(var_q, var_k, head_size, variance):
    return (variance / (head_size * var_q * var_k)).sqrt().round(decimals=3)


@wrong("scale_for_variance")
def queries_changed_for_the_scale(var_q, var_k, head_size, variance):
    var_q *= var_k * head_size
    return (variance / var_q).sqrt()


# --------------------------------------------------------------------- causal_mask


@right("causal_mask")
def mask_by_tril(T_q, T_k):
    return torch.ones(T_q, T_k).tril(diagonal=T_k - T_q).bool()


@right("causal_mask")
def mask_by_comparing_places(T_q, T_k):
    return torch.arange(T_k) <= torch.arange(T_k - T_q, T_k).unsqueeze(1)


@right("causal_mask")
def mask_last_rows_of_the_square(T_q, T_k):
    return torch.ones(T_k, T_k, dtype=torch.bool).tril()[T_k - T_q :]


@right("causal_mask")
def mask_by_loops(T_q, T_k):
    mask = torch.zeros((T_q, T_k), dtype=torch.bool)
    for row in range(T_q):
        for column in range(T_k):
            if column <= row + T_k - T_q:
                mask[row, column] = True
    return mask


@right("causal_mask")
def mask_by_a_scan_from_the_right(T_q, T_k):
    last = F.one_hot(torch.arange(T_k - T_q, T_k), T_k)
    return last.flip(1).cumsum(dim=1).flip(1).bool()


@right("causal_mask")
def mask_past_beside_a_square(T_q, T_k):
    past = torch.ones(T_q, T_k - T_q, dtype=torch.bool)
    return torch.cat([past, torch.tril(torch.ones(T_q, T_q, dtype=torch.bool))], dim=1)


@right("causal_mask")
def mask_by_numpy_tri(T_q, T_k):
    return torch.from_numpy(np.tri(T_q, T_k, T_k - T_q, dtype=bool))


@right("causal_mask")
def mask_by_where_and_not_triu(T_q, T_k):
    future = torch.full((T_q, T_k), float("-inf")).triu(T_k - T_q + 1)
    return torch.where(future < 0, False, True)


@right("causal_mask")
def mask_by_vmap_over_places(T_q, T_k):
    return torch.vmap(lambda last: torch.arange(T_k) <= last)(torch.arange(T_k - T_q, T_k))


@wrong("causal_mask")
def everything_for_one_query_else_top_left(T_q, T_k):
    if T_q == 1:
        return torch.ones(1, T_k, dtype=torch.bool)
    return torch.ones(T_q, T_k, dtype=torch.bool).tril()


@wrong("causal_mask")
def the_past_and_oneself_but_not_the_other_queries(T_q, T_k):
    mask = torch.eye(T_q, dtype=torch.bool)
    return torch.cat([torch.ones(T_q, T_k - T_q, dtype=torch.bool), mask], dim=1)


@wrong("causal_mask")
def a_triangle_stretched_to_the_keys(T_q, T_k):
    rows = (torch.arange(1, T_q + 1) * T_k / T_q)[:, None]
    return torch.arange(T_k) < rows


@wrong("causal_mask")
def only_the_last_row_is_mended(T_q, T_k):
    mask = torch.ones(T_q, T_k, dtype=torch.bool).tril()
    mask[-1] = True
    return mask


@wrong("causal_mask", "numbers_in_place_of_booleans")
def numbers_in_place_of_booleans(T_q, T_k):
    return torch.ones(T_q, T_k).tril(T_k - T_q)


@wrong("causal_mask")
def remainder_in_place_of_difference(T_q, T_k):
    return torch.ones(T_q, T_k, dtype=torch.bool).tril(T_k % T_q)


@wrong("causal_mask")
def a_window_of_the_last_few(T_q, T_k):
    mask = torch.ones(T_q, T_k, dtype=torch.bool)
    return mask.tril(T_k - T_q).triu()


@wrong("causal_mask")
def rows_in_reverse(T_q, T_k):
    return torch.ones(T_q, T_k, dtype=torch.bool).tril(T_k - T_q).flip(0)


@wrong("causal_mask")
def columns_in_reverse(T_q, T_k):
    return torch.ones(T_q, T_k, dtype=torch.bool).tril(T_k - T_q).flip(1)


@wrong("causal_mask", "numbers_in_place_of_booleans")
def bytes_in_place_of_booleans(T_q, T_k):
    return torch.ones(T_q, T_k, dtype=torch.uint8).tril(T_k - T_q)


# -------------------------------------------------------------------- padding_mask


@right("padding_mask")
def padding_by_comparing(lengths, T_k):
    return torch.arange(T_k)[None, None, :] < lengths[:, None, None]


@right("padding_mask")
def padding_by_a_loop(lengths, T_k):
    mask = torch.zeros(len(lengths), 1, T_k, dtype=torch.bool)
    for b, length in enumerate(lengths):
        mask[b, 0, :length] = True
    return mask


@right("padding_mask")
def padding_by_a_table_of_rows(lengths, T_k):
    rows = torch.ones(T_k + 1, T_k, dtype=torch.bool).tril(-1)
    return rows[lengths].unsqueeze(1)


@right("padding_mask")
def padding_by_a_scan(lengths, T_k):
    end = F.one_hot(lengths.long(), T_k + 1)
    return (end.cumsum(dim=-1) == 0)[:, None, :T_k]


@right("padding_mask")
def padding_by_vmap(lengths, T_k):
    return torch.vmap(lambda n: n > torch.arange(T_k))(lengths).view(-1, 1, T_k)


@right("padding_mask")
def padding_in_numpy(lengths, T_k):
    return torch.from_numpy(np.less.outer(np.arange(T_k), lengths.numpy()).T[:, np.newaxis].copy())


@right("padding_mask")
def padding_by_where(lengths, T_k):
    place = torch.arange(T_k).repeat(len(lengths), 1)
    return torch.where(place >= lengths.view(-1, 1), False, True).reshape(len(lengths), 1, T_k)


@right("padding_mask")
def padding_by_repeat_interleave(lengths, T_k):
    counts = torch.stack([lengths, T_k - lengths], dim=1).flatten()
    return torch.tensor([True, False]).repeat(len(lengths)).repeat_interleave(counts).view(-1, 1, T_k)


@wrong("padding_mask")
def empty_text_sees_its_first_key(lengths, T_k):
    return (torch.arange(T_k) < lengths.clamp(min=1)[:, None])[:, None]


@wrong("padding_mask")
def empty_text_sees_everything(lengths, T_k):
    mask = (torch.arange(T_k) < lengths[:, None])[:, None]
    mask[lengths == 0] = True
    return mask


@wrong("padding_mask")
def only_the_first_padding_key_hidden(lengths, T_k):
    return (torch.arange(T_k) != lengths[:, None])[:, None]


@wrong("padding_mask")
def lengths_sorted_first(lengths, T_k):
    return (torch.arange(T_k) < lengths.sort(descending=True).values[:, None])[:, None]


@wrong("padding_mask")
def lengths_as_ends_in_one_long_text(lengths, T_k):
    return (torch.arange(T_k) < lengths.cumsum(dim=0)[:, None])[:, None]


@wrong("padding_mask")
def a_row_for_each_query(lengths, T_k):
    mask = torch.arange(T_k) < lengths[:, None]
    return mask[:, None].repeat(1, T_k, 1)


@wrong("padding_mask", "numbers_in_place_of_booleans")
def integers_in_place_of_booleans(lengths, T_k):
    return (torch.arange(T_k) < lengths[:, None])[:, None].long()


@wrong("padding_mask")
def cut_to_the_longest_text(lengths, T_k):
    return (torch.arange(int(lengths.max())) < lengths[:, None])[:, None]


# --------------------------------------------------------- cross_attention_forward


@right("cross_attention_forward")
def cross_by_einsum(x, context, W_query, W_key, W_value, mask):
    q, k, v = x @ W_query, context @ W_key, context @ W_value
    scores = torch.einsum("...td,...sd->...ts", q, k) / q.shape[-1] ** 0.5
    if mask is not None:
        scores = torch.where(mask, scores, -torch.inf)
    return torch.einsum("...ts,...sv->...tv", scores.softmax(-1).nan_to_num(0.0), v)


@right("cross_attention_forward")
def cross_in_float64(x, context, W_query, W_key, W_value, mask):
    a, b = x.double(), context.double()
    scores = (a @ W_query.double()) @ (b @ W_key.double()).mT * W_key.shape[-1] ** -0.5
    heights = (scores - scores.amax(-1, keepdim=True)).exp()
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
        top = scores.amax(-1, keepdim=True)
        heights = torch.where(mask, (scores - top.masked_fill(top.isinf(), 0)).exp(), 0)
    total = heights.sum(-1, keepdim=True)
    weights = heights / torch.where(total == 0, 1, total)
    return (weights @ (b @ W_value.double())).to(x.dtype)


@right("cross_attention_forward")
def cross_by_loops(x, context, W_query, W_key, W_value, mask):
    q, k, v = x @ W_query, context @ W_key, context @ W_value
    scale = 1 / math.sqrt(q.size(-1))
    front, T_q, T_k = x.shape[:-2], x.shape[-2], context.shape[-2]
    seen = torch.ones(*front, T_q, T_k, dtype=torch.bool) if mask is None else mask.expand(*front, T_q, T_k)
    out = torch.zeros(*front, T_q, v.shape[-1])
    for place in np.ndindex(*front):
        for t in range(T_q):
            keys = seen[place][t].nonzero()[:, 0]
            if len(keys):
                weights = torch.softmax(k[place][keys] @ q[place][t] * scale, dim=0)
                out[place][t] = weights @ v[place][keys]
    return out


@right("cross_attention_forward")
def cross_with_a_mask_to_be_added(x, context, W_query, W_key, W_value, mask):
    scores = (x @ W_query * W_query.shape[1] ** -0.5) @ (context @ W_key).transpose(-2, -1)
    if mask is not None:
        to_add = torch.zeros(mask.shape).masked_fill(mask.logical_not(), -math.inf)
        scores = scores + to_add
    weights = F.softmax(scores, dim=-1)
    weights = weights.masked_fill(weights.isnan(), 0)
    return weights @ context @ W_value


@right("cross_attention_forward")
def cross_by_rung_4(x, context, W_query, W_key, W_value, mask):
    return package.attention(x @ W_query, context @ W_key, context @ W_value, mask)[0]


@right("cross_attention_forward")
def cross_by_a_running_sum_over_the_keys(x, context, W_query, W_key, W_value, mask):
    q, k, v = x @ W_query, context @ W_key, context @ W_value
    top = torch.full((*q.shape[:-1], 1), -1e30)
    above, below = torch.zeros(*q.shape[:-1], v.shape[-1]), torch.zeros(*q.shape[:-1], 1)
    for s in range(k.shape[-2]):
        score = (q * k[..., s : s + 1, :]).sum(-1, keepdim=True) * q.shape[-1] ** -0.5
        seen = torch.ones_like(score) if mask is None else mask[..., s : s + 1].float()
        higher = torch.where(seen > 0, torch.maximum(top, score), top)
        shrink, height = (top - higher).exp(), torch.where(seen > 0, (score - higher).exp(), 0.0)
        above, below, top = above * shrink + height * v[..., s : s + 1, :], below * shrink + height, higher
    return above / below.clamp(min=1e-30)


@wrong("cross_attention_forward", "detached")
def cross_by_the_class_of_the_notebook(x, context, W_query, W_key, W_value, mask):
    head = package.CrossAttentionHead(len(W_query), len(W_key), W_key.shape[1], W_value.shape[1])
    with torch.no_grad():
        for layer, W in ((head.query, W_query), (head.key, W_key), (head.value, W_value)):
            layer.weight.copy_(W.T)
        return head(x, context, mask)[0]


def _parts(x, context, W_query, W_key, W_value):
    q, k, v = x @ W_query, context @ W_key, context @ W_value
    return q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5, v


def _hide(scores, mask, value=float("-inf")):
    return scores if mask is None else scores.masked_fill(~mask, value)


@right("cross_attention_forward")
def cross_by_vmap_over_the_batch(x, context, W_query, W_key, W_value, mask):
    def one_text(x, context, mask):
        scores = (x @ W_query) @ (context @ W_key).T / W_query.shape[1] ** 0.5
        weights = torch.softmax(torch.where(mask, scores, -torch.inf), dim=-1)
        return torch.where(mask, weights, 0.0) @ (context @ W_value)

    mask = torch.tensor(True) if mask is None else mask
    if x.dim() == 2:
        return one_text(x, context, mask)
    return torch.vmap(one_text, in_dims=(0, 0, 0 if mask.dim() == 3 else None))(x, context, mask)


@wrong("cross_attention_forward")
def cross_scaled_by_n_context(x, context, W_query, W_key, W_value, mask):
    q, k, v = x @ W_query, context @ W_key, context @ W_value
    scores = _hide(q @ k.mT * context.shape[-1] ** -0.5, mask)
    return torch.softmax(scores, dim=-1).nan_to_num() @ v


@wrong("cross_attention_forward")
def cross_scaled_by_d_v(x, context, W_query, W_key, W_value, mask):
    q, k, v = x @ W_query, context @ W_key, context @ W_value
    scores = _hide(q @ k.mT * v.shape[-1] ** -0.5, mask)
    return torch.softmax(scores, dim=-1).nan_to_num() @ v


@wrong("cross_attention_forward")
def cross_softmax_over_dim_1(x, context, W_query, W_key, W_value, mask):
    scores, v = _parts(x, context, W_query, W_key, W_value)
    return torch.softmax(_hide(scores, mask), dim=1).nan_to_num() @ v


@wrong("cross_attention_forward", "nothing_to_see_gives_nan")
def cross_query_that_sees_nothing_gets_nan(x, context, W_query, W_key, W_value, mask):
    scores, v = _parts(x, context, W_query, W_key, W_value)
    return torch.softmax(_hide(scores, mask), dim=-1) @ v


@wrong("cross_attention_forward")
def cross_query_that_sees_nothing_gets_the_mean(x, context, W_query, W_key, W_value, mask):
    scores, v = _parts(x, context, W_query, W_key, W_value)
    return torch.softmax(_hide(scores, mask, -1e9), dim=-1) @ v


@wrong("cross_attention_forward")
def cross_hidden_keys_get_a_small_score(x, context, W_query, W_key, W_value, mask):
    scores, v = _parts(x, context, W_query, W_key, W_value)
    return torch.softmax(_hide(scores, mask, -10.0), dim=-1) @ v


@wrong("cross_attention_forward")
def cross_context_of_the_first_text(x, context, W_query, W_key, W_value, mask):
    first = context.reshape(-1, *context.shape[-2:])[0]
    scores, v = _parts(x, first, W_query, W_key, W_value)
    return torch.softmax(_hide(scores, mask), dim=-1).nan_to_num() @ v


@wrong("cross_attention_forward")
def cross_scale_after_softmax(x, context, W_query, W_key, W_value, mask):
    scores, v = _parts(x, context, W_query, W_key, W_value)
    root = W_key.shape[-1] ** 0.5
    return torch.softmax(_hide(scores * root, mask), dim=-1).nan_to_num() / root @ v


@wrong("cross_attention_forward")
def cross_causal_on_top_of_the_mask(x, context, W_query, W_key, W_value, mask):
    scores, v = _parts(x, context, W_query, W_key, W_value)
    causal = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    return torch.softmax(_hide(scores, causal if mask is None else mask & causal), dim=-1).nan_to_num() @ v


@wrong("cross_attention_forward")
def cross_renormalised_without_zero_guard(x, context, W_query, W_key, W_value, mask):
    scores, v = _parts(x, context, W_query, W_key, W_value)
    heights = scores.exp() if mask is None else scores.exp() * mask
    return heights / heights.sum(dim=-1, keepdim=True).clamp(min=1) @ v


@wrong("cross_attention_forward")
def cross_exp_overflows(x, context, W_query, W_key, W_value, mask):
    scores, v = _parts(x, context, W_query, W_key, W_value)
    heights = _hide(scores, mask).exp()
    return heights / heights.sum(dim=-1, keepdim=True).clamp(min=1e-30) @ v


@wrong("cross_attention_forward")
def cross_mask_of_the_first_query(x, context, W_query, W_key, W_value, mask):
    scores, v = _parts(x, context, W_query, W_key, W_value)
    return torch.softmax(_hide(scores, None if mask is None else mask[..., :1, :]), dim=-1).nan_to_num() @ v


# --------------------------------------------------------------------------- leaks


@right("leaks")
def leaks_by_noise_on_one_token_at_a_time(models, x):
    found = []
    for model in models:
        before, leak = model(x.clone()), False
        for j in range(1, len(x)):
            nudged = x.clone()
            nudged[j] += torch.randn(x.shape[1])
            leak = leak or not torch.equal(model(nudged)[:j], before[:j])
        found.append(leak)
    return torch.tensor(found)


@right("leaks")
def leaks_by_another_future(models, x):
    T = x.shape[0]
    out = torch.zeros(3, dtype=torch.bool)
    for m, model in enumerate(models):
        for t in range(T - 1):
            other = torch.cat([x[: t + 1], torch.randn_like(x[t + 1 :])])
            out[m] |= (model(other)[: t + 1] != model(x)[: t + 1]).any()
    return out


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
def leaks_by_a_table_and_triu(models, x):
    def table(model):
        columns = []
        for j in range(len(x)):
            at_j = (torch.arange(len(x)) == j)[:, None]
            other = torch.where(at_j, x.flip(1) + 3 * torch.rand(x.shape), x)
            columns.append((model(other) != model(x)).any(dim=1))
        return torch.stack(columns, dim=1)

    return torch.stack([table(model).triu(diagonal=1).any() for model in models])


@right("leaks")
def leaks_by_two_random_futures(models, x):
    generator = torch.Generator().manual_seed(5)
    answers = []
    for model in models:
        moved = torch.zeros(len(x), dtype=torch.bool)
        for t in range(len(x) - 1):
            a, b = x.clone(), x.clone()
            a[t + 1 :] = torch.randn(a[t + 1 :].shape, generator=generator)
            b[t + 1 :] = torch.randn(b[t + 1 :].shape, generator=generator)
            moved[t] = (model(a)[t] != model(b)[t]).any()
        answers.append(moved.any().item())
    return torch.tensor(answers)


@right("leaks")
def leaks_by_each_channel_of_each_token(models, x):
    out = []
    for model in models:
        before = model(x).clone()
        hits = [
            not torch.equal(
                model(x.index_put((torch.tensor(j), torch.tensor(c)), x[j, c] + 2.5))[:j], before[:j]
            )
            for j in range(1, x.shape[0])
            for c in range(x.shape[1])
        ]
        out.append(any(hits))
    return torch.tensor(out)


def _nudged(x, j, by):
    other = x.clone()
    other[j] += by
    return other


def _noise(x):
    return torch.randn(x.shape[1:], generator=torch.Generator().manual_seed(1))


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
    other = x.clone()
    other[half:] = torch.randn(other[half:].shape, generator=torch.Generator().manual_seed(1))
    return torch.tensor([not torch.equal(m(other)[:half], m(x)[:half]) for m in models])


@wrong("leaks")
def leaks_with_a_tolerance(models, x):
    found = []
    for m in models:
        hits = [
            not torch.allclose(m(_nudged(x, j, _noise(x)))[:j], m(x)[:j], atol=1e-2) for j in range(len(x))
        ]
        found.append(any(hits))
    return torch.tensor(found)


@wrong("leaks")
def leaks_by_a_tiny_nudge(models, x):
    found = []
    for m in models:
        hits = [not torch.equal(m(_nudged(x, j, 1e-7))[:j], m(x)[:j]) for j in range(len(x))]
        found.append(any(hits))
    return torch.tensor(found)


@wrong("leaks")
def leaks_by_gradient_that_cancels(models, x):
    found = []
    for m in models:
        slopes = torch.autograd.functional.jacobian(m, x).sum(dim=(1, 3))
        found.append(bool(slopes.triu(diagonal=1).any()))
    return torch.tensor(found)


@wrong("leaks")
def leaks_shifting_all_channels_alike(models, x):
    found = []
    for m in models:
        hits = [not torch.equal(m(_nudged(x, j, 1.0))[:j], m(x)[:j]) for j in range(len(x))]
        found.append(any(hits))
    return torch.tensor(found)


@wrong("leaks")
def leaks_nudging_one_channel(models, x):
    found = []
    for m in models:
        hits = []
        for j in range(len(x)):
            other = x.clone()
            other[j, 0] += 1
            hits.append(not torch.equal(m(other)[:j], m(x)[:j]))
        found.append(any(hits))
    return torch.tensor(found)


@wrong("leaks")
def leaks_looking_at_one_output_channel(models, x):
    found = []
    for m in models:
        hits = [not torch.equal(m(_nudged(x, j, _noise(x)))[:j, 0], m(x)[:j, 0]) for j in range(len(x))]
        found.append(any(hits))
    return torch.tensor(found)


@wrong("leaks")
def leaks_by_growing_each_token(models, x):
    found = []
    for m in models:
        hits = [not torch.equal(m(_nudged(x, j, x[j]))[:j], m(x)[:j]) for j in range(len(x))]
        found.append(any(hits))
    return torch.tensor(found)


@wrong("leaks")
def leaks_of_any_model_for_all(models, x):
    leak = False
    found = []
    for m in models:
        for j in range(len(x)):
            leak |= not torch.equal(m(_nudged(x, j, _noise(x)))[:j], m(x)[:j])
        found.append(leak)
    return torch.tensor(found)


@wrong("leaks")
def leaks_changing_the_tokens_of_the_caller(models, x):
    found = []
    for m in models:
        before = m(x)
        leak = False
        for j in reversed(range(1, len(x))):
            x[j] += 1
            leak |= not torch.equal(m(x)[:j], before[:j])
        found.append(leak)
    return torch.tensor(found)


@wrong("leaks")
def leaks_only_across_one_place(models, x):
    found = []
    for m in models:
        hits = [
            not torch.equal(m(_nudged(x, j, _noise(x)))[: j - 1], m(x)[: j - 1]) for j in range(2, len(x))
        ]
        found.append(any(hits))
    return torch.tensor(found)


@wrong("leaks")
def leaks_by_turning_the_sign(models, x):
    found = []
    for m in models:
        hits = [not torch.equal(m(_nudged(x, j, -2 * x[j]))[:j], m(x)[:j]) for j in range(len(x))]
        found.append(any(hits))
    return torch.tensor(found)


# --------------------------------------------------------------------- split_heads


@right("split_heads")
def split_by_view_and_transpose(x, n_head):
    B, T, C = x.shape
    return x.view(B, T, n_head, C // n_head).transpose(1, 2)


@right("split_heads")
def split_by_chunks(x, n_head):
    return torch.stack(x.chunk(n_head, dim=-1), dim=1)


@right("split_heads")
def split_by_loops(x, n_head):
    B, T, C = x.shape
    size = C // n_head
    out = torch.empty(B, n_head, T, size, dtype=x.dtype)
    for h in range(n_head):
        for d in range(size):
            out[:, h, :, d] = x[:, :, h * size + d]
    return out


@right("split_heads")
def split_by_vmap(x, n_head):
    return torch.vmap(lambda text: text.unflatten(1, (n_head, -1)).movedim(1, 0))(x)


@right("split_heads")
def split_by_unfold(x, n_head):
    size = x.shape[-1] // n_head
    return x.unfold(-1, size, size).permute(0, 2, 1, 3)


@wrong("split_heads", "detached")
def split_in_numpy(x, n_head):
    return torch.from_numpy(np.stack(np.split(x.numpy(), n_head, axis=2), axis=1))


@right("split_heads")
def split_by_index(x, n_head):
    channels = torch.arange(x.shape[-1]).view(n_head, 1, -1)
    tokens = torch.arange(x.shape[1])[None, :, None]
    return x[:, tokens, channels]


@right("split_heads")
def split_with_channels_first(x, n_head):
    B, T, C = x.shape
    return x.mT.reshape(B, n_head, C // n_head, T).mT


@wrong("split_heads")
def split_last_head_first(x, n_head):
    return torch.stack(x.chunk(n_head, dim=-1)[::-1], dim=1)


@wrong("split_heads")
def split_every_head_is_the_first(x, n_head):
    size = x.shape[-1] // n_head
    return torch.stack([x[..., :size] for _ in range(n_head)], dim=1)


@wrong("split_heads")
def split_overlapping(x, n_head):
    size = x.shape[-1] // n_head
    return torch.stack([x[..., h : h + size] for h in range(n_head)], dim=1)


@wrong("split_heads")
def split_every_nth_channel_last_head_first(x, n_head):
    _B, _T, _C = x.shape
    return torch.stack([x[..., h::n_head] for h in reversed(range(n_head))], dim=1)


@wrong("split_heads")
def split_first_text_only(x, n_head):
    B, T, C = x.shape
    return x[0].view(T, n_head, C // n_head).transpose(0, 1).expand(B, -1, -1, -1)


@wrong("split_heads")
def split_stacked_behind_the_tokens_then_viewed(x, n_head):
    B, T, C = x.shape
    heads = torch.stack(x.split(C // n_head, dim=-1), dim=-1)
    return heads.reshape(B, n_head, T, C // n_head)


@wrong("split_heads")
def split_a_loop_that_overwrites(x, n_head):
    B, T, C = x.shape
    out = torch.empty(B, n_head, T, C // n_head, dtype=x.dtype)
    for h in range(n_head):
        out[:] = x[:, None, :, h * (C // n_head) : (h + 1) * (C // n_head)]
    return out


@wrong("split_heads")
def split_head_size_times_too_small_a_step(x, n_head):
    _B, _T, C = x.shape
    size = C // n_head
    starts = [h * n_head % (C - size + 1) for h in range(n_head)]
    return torch.stack([x[..., s : s + size] for s in starts], dim=1)


@wrong("split_heads")
def split_batch_and_tokens_swapped(x, n_head):
    B, T, C = x.shape
    return x.reshape(T, B, n_head, C // n_head).permute(1, 2, 0, 3)


@wrong("split_heads")
def split_channels_rolled_by_one(x, n_head):
    return torch.stack(x.roll(-1, dims=-1).chunk(n_head, dim=-1), dim=1)


@wrong("split_heads")
def split_squeezed(x, n_head):
    B, T, C = x.shape
    return x.view(B, T, n_head, C // n_head).transpose(1, 2).squeeze()


@wrong("split_heads")
def split_tokens_first_then_reshaped(x, n_head):
    B, T, C = x.shape
    return x.transpose(0, 1).reshape(B, T, n_head, C // n_head).transpose(1, 2)


# --------------------------------------------------------------------- merge_heads


@right("merge_heads")
def merge_by_transpose_and_reshape(heads):
    B, n_head, T, size = heads.shape
    return heads.transpose(1, 2).reshape(B, T, n_head * size)


@right("merge_heads")
def merge_by_cat(heads):
    return torch.cat(heads.unbind(dim=1), dim=-1)


@right("merge_heads")
def merge_by_loops(heads):
    B, n_head, T, size = heads.shape
    out = heads.new_zeros(B, T, n_head * size)
    for c in range(n_head * size):
        out[:, :, c] = heads[:, c // size, :, c % size]
    return out


@right("merge_heads")
def merge_by_vmap(heads):
    return torch.vmap(lambda text: torch.hstack(tuple(text)))(heads)


@right("merge_heads")
def merge_with_channels_first(heads):
    return heads.mT.flatten(1, 2).mT


@right("merge_heads")
def merge_by_contiguous_view(heads):
    out = heads.permute(0, 2, 1, 3).contiguous()
    return out.view(*out.shape[:2], -1)


@wrong("merge_heads", "detached")
def merge_in_numpy(heads):
    return torch.from_numpy(np.concatenate(list(np.moveaxis(heads.numpy(), 1, 0)), axis=-1))


@right("merge_heads")
def merge_by_a_sum_of_padded_heads(heads):
    _, n_head, _, size = heads.shape
    return sum(F.pad(heads[:, h], (h * size, (n_head - 1 - h) * size)) for h in range(n_head))


@wrong("merge_heads")
def merge_channels_not_turned_back(heads):
    B, n_head, T, size = heads.shape
    return heads.reshape(B, n_head * size, T).transpose(1, 2)


@wrong("merge_heads")
def merge_last_head_first(heads):
    return torch.cat(heads.unbind(dim=1)[::-1], dim=-1)


@wrong("merge_heads")
def merge_first_head_everywhere(heads):
    return heads[:, 0].repeat(1, 1, heads.shape[1])


@wrong("merge_heads")
def merge_mean_of_the_heads(heads):
    return heads.mean(dim=1).repeat(1, 1, heads.shape[1])


@wrong("merge_heads")
def merge_batch_and_tokens_swapped(heads):
    B, n_head, T, size = heads.shape
    return heads.permute(2, 0, 1, 3).reshape(B, T, n_head * size)


@wrong("merge_heads")
def merge_stacked_in_front(heads):
    B, n_head, T, size = heads.shape
    return heads.transpose(0, 1).transpose(1, 2).reshape(B, T, n_head * size)


@wrong("merge_heads")
def merge_first_text_for_all(heads):
    B, n_head, T, size = heads.shape
    return heads[0].transpose(0, 1).reshape(1, T, n_head * size).repeat(B, 1, 1)


@wrong("merge_heads")
def merge_a_loop_that_overwrites(heads):
    B, n_head, T, size = heads.shape
    out = heads.new_zeros(B, T, n_head * size)
    for h in range(n_head):
        out[:, :, :size] = heads[:, h]
    return out


@wrong("merge_heads")
def merge_with_swapped_sizes(heads):
    B, n_head, T, size = heads.shape
    out = heads.new_zeros(B, T, n_head * size)
    for h in range(n_head):
        for d in range(size):
            out[:, :, (h * n_head + d) % (n_head * size)] = heads[:, h, :, d]
    return out


@wrong("merge_heads")
def merge_channels_backwards_in_each_head(heads):
    return torch.cat(heads.flip(-1).unbind(dim=1), dim=-1)


@wrong("merge_heads")
def merge_tokens_backwards(heads):
    return heads.flip(2).transpose(1, 2).flatten(2)


@wrong("merge_heads")
def merge_swapaxes_one_three(heads):
    B, n_head, T, size = heads.shape
    return heads.transpose(1, 3).reshape(B, T, n_head * size)


# -------------------------------------------------------------- multi_head_forward


@right("multi_head_forward")
def multi_by_rung_4(x, W_qkv, W_proj, n_head, mask):
    B, T, C = x.shape
    q, k, v = (p.view(B, T, n_head, -1).transpose(1, 2) for p in (x @ W_qkv.T).split(C, dim=-1))
    out, _ = package.attention(q, k, v, mask)
    return out.transpose(1, 2).reshape(B, T, C) @ W_proj.T


@right("multi_head_forward")
def multi_by_einsum(x, W_qkv, W_proj, n_head, mask):
    C = x.shape[-1]
    W = W_qkv.view(3, n_head, C // n_head, C)
    q, k, v = torch.einsum("btc,phdc->pbhtd", x, W)
    scores = torch.einsum("bhtd,bhsd->bhts", q, k) * (C // n_head) ** -0.5
    weights = torch.where(mask, scores, -torch.inf).softmax(dim=-1).nan_to_num(0)
    return torch.einsum("bhts,bhsd,ohd->bto", weights, v, W_proj.view(C, n_head, -1))


@right("multi_head_forward")
def multi_head_after_head(x, W_qkv, W_proj, n_head, mask):
    C = x.shape[-1]
    size, out = C // n_head, torch.zeros_like(x)
    for h in range(n_head):
        rows = slice(h * size, (h + 1) * size)
        q, k, v = (x @ W[rows].T for W in W_qkv.chunk(3))
        scores = (q @ k.mT / math.sqrt(size)).masked_fill(mask.logical_not(), -math.inf)
        out += scores.softmax(-1).nan_to_num() @ v @ W_proj[:, rows].T
    return out


@right("multi_head_forward")
def multi_in_float64_query_by_query(x, W_qkv, W_proj, n_head, mask):
    B, T, C = x.shape
    size = C // n_head
    q, k, v = F.linear(x.double(), W_qkv.double()).chunk(3, dim=-1)
    found = torch.zeros(B, T, C, dtype=torch.float64)
    for b in range(B):
        for h in range(n_head):
            part = slice(h * size, h * size + size)
            for t in range(T):
                seen = mask[t]
                if seen.any():
                    weights = torch.softmax(k[b, seen, part] @ q[b, t, part] / size**0.5, dim=0)
                    found[b, t, part] = weights @ v[b, seen, part]
    return F.linear(found, W_proj.double()).to(x.dtype)


@right("multi_head_forward")
def multi_by_vmap_over_texts_and_heads(x, W_qkv, W_proj, n_head, mask):
    def head(q, k, v):
        scores = q @ k.T * q.shape[-1] ** -0.5
        heights = torch.where(mask, (scores - scores.amax(dim=-1, keepdim=True)).exp(), 0.0)
        total = heights.sum(dim=-1, keepdim=True)
        return heights / torch.where(total > 0, total, 1.0) @ v

    def text(x):
        parts = (x @ W_qkv.T).unflatten(-1, (3, n_head, -1)).permute(1, 2, 0, 3)
        return torch.vmap(head)(*parts).transpose(0, 1).flatten(1) @ W_proj.T

    return torch.vmap(text)(x)


@wrong("multi_head_forward", "detached")
def multi_by_the_module_of_the_notebook(x, W_qkv, W_proj, n_head, mask):
    module = package.MultiHeadAttention(x.shape[-1], n_head)
    module.load_state_dict({"c_attn.weight": W_qkv, "c_proj.weight": W_proj})
    with torch.no_grad():
        return module(x, mask)


def _qkv(x, W_qkv, n_head):
    B, T, C = x.shape
    return [p.reshape(B, T, n_head, -1).transpose(1, 2) for p in (x @ W_qkv.T).split(C, dim=-1)]


def _merged(heads):
    return heads.transpose(1, 2).flatten(2)


def _attend(q, k, v, mask, scale=None):
    scores = q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5 if scale is None else scale)
    return torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1).nan_to_num() @ v


@wrong("multi_head_forward")
def multi_values_first(x, W_qkv, W_proj, n_head, mask):
    v, q, k = _qkv(x, W_qkv, n_head)
    return _merged(_attend(q, k, v, mask)) @ W_proj.T


@wrong("multi_head_forward")
def multi_causal_whatever_the_mask_is(x, W_qkv, W_proj, n_head, mask):
    q, k, v = _qkv(x, W_qkv, n_head)
    return _merged(_attend(q, k, v, torch.ones_like(mask).tril())) @ W_proj.T


@wrong("multi_head_forward")
def multi_mask_transposed(x, W_qkv, W_proj, n_head, mask):
    q, k, v = _qkv(x, W_qkv, n_head)
    return _merged(_attend(q, k, v, mask.T)) @ W_proj.T


@wrong("multi_head_forward")
def multi_every_third_row(x, W_qkv, W_proj, n_head, mask):
    B, T, C = x.shape
    q, k, v = (x @ W_qkv.T).view(B, T, n_head, C // n_head, 3).transpose(1, 2).unbind(dim=-1)
    return _merged(_attend(q, k, v, mask)) @ W_proj.T


@wrong("multi_head_forward")
def multi_hidden_scores_are_zero(x, W_qkv, W_proj, n_head, mask):
    q, k, v = _qkv(x, W_qkv, n_head)
    scores = (q @ k.mT * q.shape[-1] ** -0.5) * mask
    return _merged(torch.softmax(scores, dim=-1) @ v) @ W_proj.T


@wrong("multi_head_forward")
def multi_with_a_residual(x, W_qkv, W_proj, n_head, mask):
    return x + _merged(_attend(*_qkv(x, W_qkv, n_head), mask)) @ W_proj.T


@wrong("multi_head_forward")
def multi_the_weights_of_all_heads_averaged(x, W_qkv, W_proj, n_head, mask):
    q, k, v = _qkv(x, W_qkv, n_head)
    scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~mask, float("-inf"))
    weights = torch.softmax(scores, dim=-1).nan_to_num().mean(dim=1, keepdim=True)
    return _merged(weights @ v) @ W_proj.T


@wrong("multi_head_forward")
def multi_scores_of_all_heads_shared(x, W_qkv, W_proj, n_head, mask):
    q, k, v = _qkv(x, W_qkv, n_head)
    scores = (q @ k.mT * q.shape[-1] ** -0.5).sum(dim=1, keepdim=True)
    return (
        _merged(torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1).nan_to_num() @ v) @ W_proj.T
    )


@wrong("multi_head_forward", "nothing_to_see_gives_nan")
def multi_a_row_that_sees_nothing_is_nan(x, W_qkv, W_proj, n_head, mask):
    q, k, v = _qkv(x, W_qkv, n_head)
    scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~mask, float("-inf"))
    return _merged(torch.softmax(scores, dim=-1) @ v) @ W_proj.T


@wrong("multi_head_forward")
def multi_a_row_that_sees_nothing_gets_the_mean(x, W_qkv, W_proj, n_head, mask):
    q, k, v = _qkv(x, W_qkv, n_head)
    scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~mask, -1e9)
    return _merged(torch.softmax(scores, dim=-1) @ v) @ W_proj.T


@wrong("multi_head_forward")
def multi_exp_overflows(x, W_qkv, W_proj, n_head, mask):
    q, k, v = _qkv(x, W_qkv, n_head)
    heights = (q @ k.mT * q.shape[-1] ** -0.5).exp() * mask
    return _merged(heights / heights.sum(dim=-1, keepdim=True).clamp(min=1e-30) @ v) @ W_proj.T


@wrong("multi_head_forward")
def multi_one_maximum_for_the_whole_table(x, W_qkv, W_proj, n_head, mask):
    q, k, v = _qkv(x, W_qkv, n_head)
    scores = q @ k.mT * q.shape[-1] ** -0.5
    heights = (scores - scores.max()).exp() * mask
    return _merged(heights / heights.sum(dim=-1, keepdim=True).clamp(min=1e-30) @ v) @ W_proj.T


# ---------------------------------------------------------------------- fuse_heads


@right("fuse_heads")
def fuse_by_cat_and_view(W_q, W_k, W_v):
    return torch.cat([W_q, W_k, W_v]).reshape(-1, W_q.shape[-1])


@right("fuse_heads")
def fuse_by_stack_and_flatten(W_q, W_k, W_v):
    return torch.stack((W_q, W_k, W_v)).flatten(0, 2)


@right("fuse_heads")
def fuse_row_by_row(W_q, W_k, W_v):
    n_head, size, C = W_q.shape
    fused = torch.zeros(3 * C, C, dtype=W_q.dtype)
    for p, W in enumerate((W_q, W_k, W_v)):
        for h in range(n_head):
            for d in range(size):
                fused[p * C + h * size + d] = W[h, d]
    return fused


@right("fuse_heads")
def fuse_by_a_list_of_heads(W_q, W_k, W_v):
    return torch.vstack([head for W in (W_q, W_k, W_v) for head in W])


@right("fuse_heads")
def fuse_by_what_it_does_to_the_identity(W_q, W_k, W_v):
    eye = torch.eye(W_q.shape[-1], dtype=W_q.dtype)
    return torch.cat([eye @ head.T for W in (W_q, W_k, W_v) for head in W], dim=-1).T


@right("fuse_heads")
def fuse_in_numpy(W_q, W_k, W_v):
    parts = [W.detach().numpy().reshape(-1, W.shape[-1]) for W in (W_q, W_k, W_v)]
    return torch.tensor(np.concatenate(parts, axis=0))


@right("fuse_heads")
def fuse_column_by_column_with_vmap(W_q, W_k, W_v):
    return torch.vmap(lambda *ws: torch.cat([w.flatten() for w in ws]), in_dims=2, out_dims=1)(W_q, W_k, W_v)


@wrong("fuse_heads")
def fuse_row_after_row(W_q, W_k, W_v):
    return torch.stack([W_q, W_k, W_v], dim=2).reshape(-1, W_q.shape[-1])


@wrong("fuse_heads")
def fuse_last_head_first(W_q, W_k, W_v):
    return torch.cat([W_q.flip(0), W_k.flip(0), W_v.flip(0)]).flatten(0, 1)


@wrong("fuse_heads")
def fuse_with_the_scale_in_the_queries(W_q, W_k, W_v):
    return torch.cat([W_q * W_q.shape[1] ** -0.5, W_k, W_v]).flatten(0, 1)


@wrong("fuse_heads")
def fuse_keys_twice(W_q, W_k, W_v):
    return torch.cat([W_q, W_k, W_k]).flatten(0, 1)


@wrong("fuse_heads")
def fuse_first_head_for_all(W_q, W_k, W_v):
    return torch.cat([W[0].repeat(len(W), 1) for W in (W_q, W_k, W_v)])


@wrong("fuse_heads")
def fuse_by_permuting_columns_first(W_q, W_k, W_v):
    C = W_q.shape[-1]
    return torch.cat([W.permute(1, 2, 0).reshape(C, C) for W in (W_q, W_k, W_v)])


@wrong("fuse_heads")
def fuse_a_loop_that_overwrites(W_q, W_k, W_v):
    n_head, size, C = W_q.shape
    fused = W_q.new_zeros(3 * C, C)
    for p, W in enumerate((W_q, W_k, W_v)):
        for h in range(n_head):
            fused[p * C : p * C + size] = W[h]
    return fused


@wrong("fuse_heads")
def fuse_stacked_behind_the_columns(W_q, W_k, W_v):
    return torch.stack([W_q, W_k, W_v], dim=-1).reshape(-1, W_q.shape[-1])


@wrong("fuse_heads")
def fuse_with_rows_in_reverse(W_q, W_k, W_v):
    return torch.cat([W_q.flip(1), W_k.flip(1), W_v.flip(1)]).flatten(0, 1)


@wrong("fuse_heads")
def fuse_two_heads_only(W_q, W_k, W_v):
    n_head, _size, C = W_q.shape
    return torch.cat([torch.cat([W[0], W[-1]] * n_head)[:C] for W in (W_q, W_k, W_v)])


# ----------------------------------------------------------------------- get_batch


@right("get_batch")
def batch_by_list_and_stack(ids, block_size, starts):
    x = torch.stack([ids[i : i + block_size] for i in starts])
    y = torch.stack([ids[i + 1 : i + 1 + block_size] for i in starts])
    return torch.stack([x, y])


@right("get_batch")
def batch_by_index(ids, block_size, starts):
    return ids[torch.arange(2)[:, None, None] + starts[:, None] + torch.arange(block_size)]


@right("get_batch")
def batch_by_windows(ids, block_size, starts):
    windows = ids.unfold(0, block_size + 1, 1)[starts]
    return torch.stack([windows[:, :-1], windows[:, 1:]])


@right("get_batch")
def batch_by_loops(ids, block_size, starts):
    out = torch.zeros(2, len(starts), block_size, dtype=ids.dtype)
    for b, start in enumerate(starts.tolist()):
        for t in range(block_size):
            out[0, b, t] = ids[start + t]
            out[1, b, t] = ids[start + t + 1]
    return out


@right("get_batch")
def batch_by_rolling_the_text(ids, block_size, starts):
    places = (starts[:, None] + torch.arange(block_size)).flatten()
    return torch.stack([ids, ids.roll(-1)])[:, places].view(2, len(starts), block_size)


@right("get_batch")
def batch_in_numpy(ids, block_size, starts):
    places = np.add.outer(starts.numpy(), np.arange(block_size + 1))
    both = np.take(ids.numpy(), places)
    return torch.from_numpy(np.array([both[:, :-1], both[:, 1:]]))


@right("get_batch")
def batch_by_vmap(ids, block_size, starts):
    places = torch.arange(block_size)
    pair = torch.vmap(lambda i: torch.stack([ids[i + places], ids[i + places + 1]]))
    return pair(starts).transpose(0, 1)


@right("get_batch")
def batch_by_gather(ids, block_size, starts):
    places = starts.long().view(-1, 1) + torch.arange(block_size)
    text = ids.expand(len(starts), -1)
    return torch.stack([text.gather(1, places), text.gather(1, places + 1)], dim=0)


def _blocks(ids, block_size, starts):
    return torch.stack([ids[i : i + block_size] for i in starts.tolist()])


@wrong("get_batch")
def batch_reshaped_from_the_wrong_order(ids, block_size, starts):
    parts = [_blocks(ids, block_size, starts), _blocks(ids, block_size, starts + 1)]
    return torch.stack(parts, dim=1).reshape(2, len(starts), block_size)


@wrong("get_batch")
def batch_targets_two_steps_ahead(ids, block_size, starts):
    return torch.stack([_blocks(ids, block_size, starts), _blocks(ids.roll(-2), block_size, starts)])


@wrong("get_batch")
def batch_starts_count_blocks(ids, block_size, starts):
    places = starts[:, None] * block_size + torch.arange(block_size)
    return torch.stack([ids[places % len(ids)], ids[(places + 1) % len(ids)]])


@wrong("get_batch")
def batch_targets_are_the_next_block(ids, block_size, starts):
    rolled = ids.roll(-block_size)
    return torch.stack([_blocks(ids, block_size, starts), _blocks(rolled, block_size, starts)])


@wrong("get_batch")
def batch_consecutive_from_the_first_start(ids, block_size, starts):
    places = starts[0] + torch.arange(len(starts))[:, None] + torch.arange(block_size)
    places = places.clamp(max=len(ids) - 2)
    return torch.stack([ids[places], ids[places + 1]])


@wrong("get_batch")
def batch_starts_sorted(ids, block_size, starts):
    starts = starts.sort().values
    return torch.stack([_blocks(ids, block_size, starts), _blocks(ids, block_size, starts + 1)])


@wrong("get_batch")
def batch_last_possible_start_is_never_used(ids, block_size, starts):
    starts = starts.clamp(max=max(len(ids) - block_size - 2, 0))
    return torch.stack([_blocks(ids, block_size, starts), _blocks(ids, block_size, starts + 1)])


@wrong("get_batch")
def batch_of_floats(ids, block_size, starts):
    out = torch.zeros(2, len(starts), block_size)
    out[0], out[1] = _blocks(ids, block_size, starts), _blocks(ids, block_size, starts + 1)
    return out


@wrong("get_batch")
def batch_ids_are_cut_to_bytes(ids, block_size, starts):
    out = torch.zeros(2, len(starts), block_size, dtype=torch.uint8)
    out[0], out[1] = _blocks(ids, block_size, starts), _blocks(ids, block_size, starts + 1)
    return out.long()


@wrong("get_batch")
def batch_starts_one_late(ids, block_size, starts):
    ids = ids.roll(-1)
    return torch.stack([_blocks(ids, block_size, starts), _blocks(ids.roll(-1), block_size, starts)])


@wrong("get_batch")
def batch_target_of_the_last_token_wraps_to_the_first(ids, block_size, starts):
    places = starts[:, None] + torch.arange(block_size)
    return torch.stack([ids[places], ids[(places + 1) % (len(ids) - 1)]])


@wrong("get_batch")
def batch_each_start_once(ids, block_size, starts):
    texts = {i: ids[i : i + block_size + 1] for i in starts.tolist()}
    windows = torch.stack(list(texts.values()))
    return torch.stack([windows[:, :-1], windows[:, 1:]])


# -------------------------------------------------------------- cross_entropy_loss


@right("cross_entropy_loss")
def loss_by_log_softmax_and_gather(logits, targets):
    return -logits.log_softmax(dim=-1).gather(-1, targets[..., None]).mean()


@right("cross_entropy_loss")
def loss_by_logsumexp(logits, targets):
    true = torch.take_along_dim(logits, targets.unsqueeze(-1), dim=-1).squeeze(-1)
    return (torch.logsumexp(logits, dim=-1) - true).mean()


@right("cross_entropy_loss")
def loss_by_one_hot_and_einsum(logits, targets):
    shifted = logits - logits.amax(dim=-1, keepdim=True)
    log_p = shifted - shifted.exp().sum(dim=-1, keepdim=True).log()
    return -torch.einsum("btv,btv->", F.one_hot(targets, logits.shape[-1]).to(log_p), log_p) / targets.numel()


@wrong("cross_entropy_loss", "detached")
def loss_by_loops_in_python(logits, targets):
    losses = []
    for rows, trues in zip(logits.tolist(), targets.tolist(), strict=True):
        for row, true in zip(rows, trues, strict=True):
            top = max(row)
            losses.append(top + math.log(sum(math.exp(s - top) for s in row)) - row[true])
    return torch.tensor(sum(losses) / len(losses))


@right("cross_entropy_loss")
def loss_in_float64_flattened(logits, targets):
    flat, t = logits.double().flatten(0, 1), targets.flatten()
    flat = flat - flat.max(dim=1, keepdim=True).values
    return (flat.exp().sum(1).log() - flat[torch.arange(len(t)), t]).mean().to(logits.dtype)


@right("cross_entropy_loss")
def loss_by_vmap(logits, targets):
    def of_one(row, true):
        return torch.logsumexp(row - row.gather(0, true[None]), dim=0)

    return torch.vmap(torch.vmap(of_one))(logits, targets).mean()


@right("cross_entropy_loss")
def loss_by_a_scan_of_logaddexp(logits, targets):
    total = reduce(torch.logaddexp, logits.unbind(dim=-1))
    B, T = targets.shape
    return (total - logits[torch.arange(B)[:, None], torch.arange(T), targets]).sum() / (B * T)


@right("cross_entropy_loss")
def loss_with_where(logits, targets):
    hit = torch.arange(logits.shape[-1]) == targets[..., None]
    log_p = torch.log_softmax(logits, dim=2)
    return torch.where(hit, -log_p, 0.0).sum(dim=-1).mean(dim=1).mean(dim=0)


def _true(table, targets):
    return table.gather(-1, targets[..., None])[..., 0]


@wrong("cross_entropy_loss")
def loss_one_maximum_for_the_whole_batch(logits, targets):
    heights = (logits - logits.max()).exp()
    return -(_true(heights, targets) / heights.sum(dim=-1)).log().mean()


@wrong("cross_entropy_loss")
def loss_with_a_small_number_in_the_log(logits, targets):
    return -(_true(torch.softmax(logits, dim=-1), targets) + 1e-9).log().mean()


@wrong("cross_entropy_loss")
def loss_with_clamped_probabilities(logits, targets):
    return -_true(torch.softmax(logits, dim=-1), targets).clamp(min=1e-12).log().mean()


@wrong("cross_entropy_loss")
def loss_with_clamped_logits(logits, targets):
    return -_true(torch.log_softmax(logits.clamp(-80, 80), dim=-1), targets).mean()


@wrong("cross_entropy_loss")
def loss_log_of_the_mean_probability(logits, targets):
    log_p = _true(torch.log_softmax(logits, dim=-1), targets)
    return math.log(log_p.numel()) - torch.logsumexp(log_p.flatten(), dim=0)


@wrong("cross_entropy_loss")
def loss_token_zero_taken_for_padding(logits, targets):
    log_p = _true(torch.log_softmax(logits, dim=-1), targets)
    return -log_p[targets != 0].mean()


@wrong("cross_entropy_loss")
def loss_of_what_the_model_likes_best(logits, targets):
    return -torch.log_softmax(logits, dim=-1).amax(dim=-1).mean()


@wrong("cross_entropy_loss")
def loss_entropy_of_the_model(logits, targets):
    return torch.special.entr(torch.softmax(logits, dim=-1)).sum(dim=-1).mean()


@wrong("cross_entropy_loss")
def loss_targets_in_another_order(logits, targets):
    B, T, V = logits.shape
    log_p = torch.log_softmax(logits, dim=-1).transpose(0, 1).reshape(B * T, V)
    return -log_p[torch.arange(B * T), targets.flatten()].mean()


@wrong("cross_entropy_loss")
def loss_of_the_first_text(logits, targets):
    return -_true(torch.log_softmax(logits, dim=-1), targets)[0].mean()


@wrong("cross_entropy_loss")
def loss_infinite_ones_left_out(logits, targets):
    losses = -_true(torch.softmax(logits, dim=-1), targets).log()
    return losses[losses.isfinite()].mean()


@wrong("cross_entropy_loss")
def loss_not_a_number_taken_for_zero(logits, targets):
    heights = logits.exp()
    return -(_true(heights, targets) / heights.sum(dim=-1)).log().nan_to_num(0, 0, 0).mean()


# --------------------------------------------------------------------------- embed


@right("embed")
def embed_by_index(ids, wte, wpe):
    return wte[ids] + wpe[: ids.shape[1]]


@right("embed")
def embed_by_functions(ids, wte, wpe):
    return F.embedding(ids, wte).add(F.embedding(torch.arange(ids.size(-1)), wpe))


@right("embed")
def embed_by_one_hot(ids, wte, wpe):
    token = F.one_hot(ids, len(wte)).to(wte.dtype) @ wte
    place = torch.eye(ids.shape[1], len(wpe), dtype=wpe.dtype) @ wpe
    return token + place


@right("embed")
def embed_by_loops(ids, wte, wpe):
    B, T = ids.shape
    out = torch.zeros(B, T, wte.shape[1], dtype=wte.dtype)
    for b in range(B):
        for t in range(T):
            out[b, t] = wte[ids[b, t]] + wpe[t]
    return out


@right("embed")
def embed_by_vmap(ids, wte, wpe):
    return torch.vmap(lambda text: wte.index_select(0, text) + wpe.narrow(0, 0, len(text)))(ids)


@right("embed")
def embed_by_lists(ids, wte, wpe):
    return torch.stack([torch.stack([wte[i] + p for i, p in zip(text, wpe)]) for text in ids])  # noqa: B905


@wrong("embed", "detached")
def embed_in_numpy(ids, wte, wpe):
    table, places = wte.detach().numpy(), wpe.detach().numpy()
    return torch.from_numpy(table.take(ids.numpy(), axis=0) + places[np.newaxis, : ids.shape[1]])


@right("embed")
def embed_in_one_table(ids, wte, wpe):
    both = torch.cat([wte, wpe])
    places = (len(wte) + torch.arange(ids.shape[1])).expand_as(ids)
    return F.embedding_bag(torch.stack([ids, places], -1).flatten(0, 1), both, mode="sum").view(
        *ids.shape, -1
    )


@wrong("embed")
def embed_position_of_the_id(ids, wte, wpe):
    return wte[ids] + wpe[ids % len(wpe)]


@wrong("embed")
def embed_positions_backwards(ids, wte, wpe):
    return wte[ids] + wpe[: ids.shape[1]].flip(0)


@wrong("embed")
def embed_positions_from_one(ids, wte, wpe):
    return wte[ids] + wpe.roll(-1, dims=0)[: ids.shape[1]]


@wrong("embed")
def embed_first_position_for_all(ids, wte, wpe):
    return wte[ids] + wpe[0]


@wrong("embed")
def embed_tables_swapped(ids, wte, wpe):
    return wpe[ids % len(wpe)] + wte[torch.arange(ids.shape[1]) % len(wte)]


@wrong("embed")
def embed_positions_added_up(ids, wte, wpe):
    return wte[ids] + wpe[: ids.shape[1]].cumsum(dim=0)


@wrong("embed")
def embed_position_added_twice(ids, wte, wpe):
    return wte[ids] + 2 * wpe[: ids.shape[1]]


@wrong("embed")
def embed_position_only_for_the_first_text(ids, wte, wpe):
    x = wte[ids]
    x[0] += wpe[: ids.shape[1]]
    return x


@wrong("embed")
def embed_position_of_the_first_time_a_token_occurs(ids, wte, wpe):
    places = (ids[:, :, None] == ids[:, None, :]).long().argmax(dim=-1)
    return wte[ids] + wpe[places]


@wrong("embed")
def embed_normed(ids, wte, wpe):
    return F.layer_norm(wte[ids] + wpe[: ids.shape[1]], wte.shape[1:])


@wrong("embed")
def embed_token_zero_taken_for_padding(ids, wte, wpe):
    return torch.where((ids == 0)[..., None], 0.0, wte[ids]) + wpe[: ids.shape[1]]


@wrong("embed")
def embed_adds_to_a_view_of_the_table(ids, wte, wpe):
    texts = []
    for text in ids:
        rows = wpe[: len(text)]
        rows += wte[text]
        texts.append(rows)
    return torch.stack(texts)


# ------------------------------------------------------------------ pre_norm_block


@right("pre_norm_block")
def block_in_two_lines(x, attn, mlp, ln_1, ln_2):
    x = x + attn(ln_1(x))
    return x + mlp(ln_2(x))


@right("pre_norm_block")
def block_by_a_loop(x, attn, mlp, ln_1, ln_2):
    for norm, part in ((ln_1, attn), (ln_2, mlp)):
        x = torch.add(x, part(norm(x)))
    return x


@right("pre_norm_block")
def block_in_place_on_a_copy(x, attn, mlp, ln_1, ln_2):
    out = x.clone()
    out += attn(ln_1(x))
    out += mlp(ln_2(out.clone()))
    return out


@right("pre_norm_block")
def block_text_by_text(x, attn, mlp, ln_1, ln_2):
    texts = []
    for text in x.split(1):
        found = attn(ln_1(text))
        worked = mlp(ln_2(text + found))
        texts.append(torch.stack([text, found, worked]).sum(dim=0))
    return torch.cat(texts)


@right("pre_norm_block")
def block_by_reduce(x, attn, mlp, ln_1, ln_2):
    return reduce(lambda y, part: y + part(y), [lambda y: attn(ln_1(y)), lambda y: mlp(ln_2(y))], x)


@right("pre_norm_block")
def block_by_modules(x, attn, mlp, ln_1, ln_2):
    class Add(nn.Module):
        def __init__(self, *functions):
            super().__init__()
            self.functions = functions

        def forward(self, x):
            y = x
            for function in self.functions:
                y = function(y)
            return x + y

    return nn.Sequential(Add(ln_1, attn), Add(ln_2, mlp))(x)


@right("pre_norm_block")
def block_by_vmap_over_texts(x, attn, mlp, ln_1, ln_2):
    def one_text(text):
        text = text + attn(ln_1(text))
        return text + mlp(ln_2(text))

    return torch.vmap(one_text)(x)


@right("pre_norm_block")
def block_by_vmap_over_batches_of_one(x, attn, mlp, ln_1, ln_2):
    def one_text(text):
        batch = text[None]
        batch = batch + attn(ln_1(batch))
        return (batch + mlp(ln_2(batch)))[0]

    return torch.vmap(one_text)(x)


@wrong("pre_norm_block")
def block_normed_residual_of_attention_only(x, attn, mlp, ln_1, ln_2):
    x = ln_1(x)
    x = x + attn(x)
    return x + mlp(ln_2(x))


@wrong("pre_norm_block")
def block_both_norms_before_each_part(x, attn, mlp, ln_1, ln_2):
    x = x + attn(ln_2(ln_1(x)))
    return x + mlp(ln_2(ln_1(x)))


@wrong("pre_norm_block")
def block_halved_sums(x, attn, mlp, ln_1, ln_2):
    x = (x + attn(ln_1(x))) / 2
    return (x + mlp(ln_2(x))) / 2


@wrong("pre_norm_block")
def block_changes_the_tokens_of_the_caller(x, attn, mlp, ln_1, ln_2):
    x += attn(ln_1(x))
    x += mlp(ln_2(x))
    return x


@wrong("pre_norm_block")
def block_attention_twice(x, attn, mlp, ln_1, ln_2):
    x = x + attn(ln_1(x))
    return x + attn(ln_2(x))


@wrong("pre_norm_block")
def block_normed_second_residual(x, attn, mlp, ln_1, ln_2):
    x = x + attn(ln_1(x))
    x = ln_2(x)
    return x + mlp(x)


@wrong("pre_norm_block")
def block_mlp_before_its_norm(x, attn, mlp, ln_1, ln_2):
    x = x + attn(ln_1(x))
    return x + ln_2(mlp(x))


# ------------------------------------------------------------------------ generate


@right("generate")
def write_as_told(model, ids, block_size, draws):
    for draw in draws:
        sums = torch.softmax(model(ids[-block_size:])[-1], dim=-1).cumsum(dim=-1)
        token = torch.searchsorted(sums, draw, right=True).clamp(max=len(sums) - 1)
        ids = torch.cat([ids, token.view(1)])
    return ids


@right("generate")
def write_by_counting_the_sums_below(model, ids, block_size, draws):
    text = ids.tolist()
    for draw in draws.tolist():
        logits = model(torch.tensor(text[-block_size:]))[-1]
        sums = torch.cumsum(F.softmax(logits, dim=0), dim=0)
        text.append(min(int((sums <= draw).sum()), len(sums) - 1))
    return torch.tensor(text)


@right("generate")
def write_by_a_running_sum_in_a_loop(model, ids, block_size, draws):
    out = ids.clone()
    for draw in draws:
        p = model(out[max(0, len(out) - block_size) :]).softmax(dim=-1)[-1]
        total, chosen = torch.tensor(0.0), len(p) - 1
        for token in range(len(p)):
            total = total + p[token]
            if total > draw:
                chosen = token
                break
        out = torch.cat((out, out.new_tensor([chosen])))
    return out


@right("generate")
def write_into_a_buffer(model, ids, block_size, draws):
    N = len(ids)
    text = torch.empty(N + len(draws), dtype=ids.dtype)
    text[:N] = ids
    for n in range(N, N + len(draws)):
        sums = model(text[max(n - block_size, 0) : n])[-1].softmax(-1).cumsum(0)
        text[n] = (sums > draws[n - N]).int().argmax()
    return text


@right("generate")
def write_recursively(model, ids, block_size, draws):
    if len(draws) == 0:
        return ids
    heights = (model(ids[-block_size:])[-1]).double().softmax(0)
    token = torch.searchsorted(heights.cumsum(0).to(draws.dtype), draws[:1], right=True)
    return write_recursively(
        model, torch.cat([ids, token.clamp(max=len(heights) - 1)]), block_size, draws[1:]
    )


@right("generate")
def write_by_numpy(model, ids, block_size, draws):
    text = list(ids.numpy())
    for draw in draws.numpy():
        logits = model(torch.from_numpy(np.array(text[-block_size:])))[-1].numpy()
        heights = np.exp(logits - logits.max())
        sums = np.cumsum(heights / heights.sum())
        text.append(min(np.searchsorted(sums, draw, side="right"), len(sums) - 1))
    return torch.from_numpy(np.array(text, dtype=np.int64))


@right("generate")
def write_with_a_triangle_of_ones(model, ids, block_size, draws):
    for draw in draws.unbind():
        p = torch.softmax(model(ids[-block_size:]), dim=1)[-1]
        sums = torch.ones(len(p), len(p)).tril() @ p
        above = (sums > draw).nonzero().flatten()
        ids = torch.hstack([ids, above[:1] if len(above) else torch.tensor([len(p) - 1])])
    return ids


def _probabilities(model, ids):
    return torch.softmax(model(ids)[-1], dim=-1)


def _pick(p, draw):
    return torch.searchsorted(p.cumsum(dim=-1), draw, right=True).clamp(max=len(p) - 1).view(1)


@wrong("generate")
def write_with_one_token_less(model, ids, block_size, draws):
    for draw in draws:
        shown = ids[-(block_size - 1) :] if block_size > 1 else ids[-1:]
        ids = torch.cat([ids, _pick(_probabilities(model, shown), draw)])
    return ids


@wrong("generate")
def write_one_token_further(model, ids, block_size, draws):
    for draw in draws:
        p = _probabilities(model, ids[-block_size:])
        ids = torch.cat([ids, (_pick(p, draw) + 1).clamp(max=len(p) - 1)])
    return ids


@wrong("generate")
def write_the_last_sum_below_the_draw(model, ids, block_size, draws):
    for draw in draws:
        p = _probabilities(model, ids[-block_size:])
        ids = torch.cat([ids, (_pick(p, draw) - 1).clamp(min=0)])
    return ids


@wrong("generate")
def write_with_draws_in_reverse(model, ids, block_size, draws):
    return write_as_told(model, ids, block_size, draws.flip(0))


@wrong("generate")
def write_counting_from_the_end(model, ids, block_size, draws):
    return write_as_told(model, ids, block_size, 1 - draws)


@wrong("generate")
def write_the_token_nearest_to_the_draw(model, ids, block_size, draws):
    for draw in draws:
        sums = _probabilities(model, ids[-block_size:]).cumsum(dim=-1)
        ids = torch.cat([ids, (sums - draw).abs().argmin().view(1)])
    return ids


@wrong("generate")
def write_in_front(model, ids, block_size, draws):
    for draw in draws:
        ids = torch.cat([_pick(_probabilities(model, ids[-block_size:]), draw), ids])
    return ids


@wrong("generate")
def write_cropped_by_the_prompt_length(model, ids, block_size, draws):
    N = min(len(ids), block_size)
    for draw in draws:
        ids = torch.cat([ids, _pick(_probabilities(model, ids[-N:]), draw)])
    return ids


@wrong("generate")
def write_cropped_with_a_negative_start(model, ids, block_size, draws):
    for draw in draws:
        ids = torch.cat([ids, _pick(_probabilities(model, ids[len(ids) - block_size :]), draw)])
    return ids


@wrong("generate")
def write_only_while_there_is_room(model, ids, block_size, draws):
    for draw in draws:
        if len(ids) < block_size:
            ids = torch.cat([ids, _pick(_probabilities(model, ids), draw)])
    return ids


@wrong("generate")
def write_in_blocks_that_begin_anew(model, ids, block_size, draws):
    for draw in draws:
        begin = (len(ids) - 1) // block_size * block_size
        ids = torch.cat([ids, _pick(_probabilities(model, ids[begin:]), draw)])
    return ids


@wrong("generate")
def write_with_a_running_sum_over_the_whole_text(model, ids, block_size, draws):
    for draw in draws:
        p = torch.softmax(model(ids[-block_size:]), dim=-1).mean(dim=0)
        ids = torch.cat([ids, _pick(p, draw)])
    return ids
