"""Answers to the exercises of notebook 04."""

import math

import numpy as np
import torch
import torch.nn.functional as F

from answers import right, wrong
from attention_course.attention import attention, attention_weights
from attention_course.exercises.query_key_value import position_weights

INF = float("inf")


def scores_of(q, k):
    return q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5


# attention_weights


@right("attention_weights")
def einsum_and_nan_to_num(q, k, mask):
    scores = torch.einsum("...qd,...kd->...qk", q, k) * k.size(-1) ** -0.5
    return torch.where(mask, scores, -torch.inf).softmax(dim=-1).nan_to_num(0.0)


@right("attention_weights")
def scales_q_and_adds_a_mask(q, k, mask):
    scores = (q / q.shape[-1] ** 0.5) @ k.mT + torch.where(mask, 0.0, -INF)
    return torch.softmax(scores, dim=-1).where(mask, torch.zeros(()))


@right("attention_weights")
def scales_each_side_by_the_fourth_root(q, k, mask):
    root = q.shape[-1] ** 0.25
    scores = (q / root) @ (k / root).mT
    weights = (scores + torch.zeros(mask.shape).masked_fill(~mask, -INF)).softmax(-1)
    return torch.where(mask.any(-1, keepdim=True), weights, 0.0)


@right("attention_weights")
def by_hand_in_float64(q, k, mask):
    scores = q.double() @ k.double().transpose(-1, -2) / q.shape[-1] ** 0.5
    scores = scores.masked_fill(~mask, -INF)
    exp = (scores - scores.amax(-1, keepdim=True).clamp(min=-1e300)).exp()
    total = exp.sum(-1, keepdim=True)
    return (exp / torch.where(total == 0, 1.0, total)).to(q.dtype)


@right("attention_weights")
def elementwise_products_and_a_log_of_the_mask(q, k, mask):
    scores = (q.unsqueeze(-2) * k.unsqueeze(-3)).sum(dim=-1) / float(np.sqrt(q.shape[-1]))
    weights = F.softmax(scores + mask.to(q.dtype).log(), dim=-1)
    return torch.where(weights.isnan(), 0.0, weights)


@right("attention_weights")
def query_by_query(q, k, mask):
    mask = mask.expand(*q.shape[:-1], k.shape[-2])
    out = q.new_zeros(mask.shape)
    for index in np.ndindex(*q.shape[:-1]):
        seen = mask[index].nonzero().flatten()
        if len(seen):
            keys = k[index[:-1]][seen]
            out[(*index, seen)] = torch.softmax(keys @ q[index] / q.shape[-1] ** 0.5, dim=0)
    return out


@right("attention_weights")
def a_large_negative_number_and_a_mask(q, k, mask):
    scores = torch.matmul(q, k.transpose(-2, -1)) / (q.shape[-1] ** 0.5)
    return torch.softmax(scores.masked_fill(~mask, torch.finfo(scores.dtype).min), dim=-1) * mask


@right("attention_weights")
def pytorch_attention_of_the_unit_vectors(q, k, mask):
    T_k = k.shape[-2]
    eye = torch.eye(T_k, dtype=q.dtype).expand(*k.shape[:-2], T_k, T_k)
    return F.scaled_dot_product_attention(q, k, eye, attn_mask=mask)


@right("attention_weights")
def vmap_over_texts_and_heads(q, k, mask):
    def function(q, k, mask):
        scores = torch.where(mask, q @ k.T / q.shape[-1] ** 0.5, -torch.inf)
        return torch.where(mask, scores.softmax(dim=-1), 0.0)

    for _ in q.shape[:-2]:
        function = torch.vmap(function)
    return function(q, k, mask.expand(*q.shape[:-1], k.shape[-2]))


@right("attention_weights")
def in_place_on_the_scores(q, k, mask):
    weights = q @ k.mT
    weights /= q.shape[-1] ** 0.5
    weights[~mask.expand_as(weights)] = -torch.inf
    weights -= weights.amax(dim=-1, keepdim=True).clamp(min=-1e30)
    weights.exp_()
    weights /= weights.sum(dim=-1, keepdim=True).clamp(min=1e-30)
    return weights


@wrong("attention_weights", "scaled_twice")
def scaled_on_both_sides_and_once_more(q, k, mask):
    return attention_weights(q / q.shape[-1] ** 0.5, k / q.shape[-1] ** 0.5, mask)


@wrong("attention_weights")
def scaled_by_a_whole_root(q, k, mask):
    return attention_weights(q, k, mask, scale=1 / math.isqrt(q.shape[-1]))


@wrong("attention_weights", "no_mask")
def fill_not_kept(q, k, mask):
    scores = scores_of(q, k)
    scores.masked_fill(~mask, -INF)
    return scores.softmax(dim=-1)


@wrong("attention_weights", "zero_in_place_of_inf")
def hidden_keys_score_zero(q, k, mask):
    return torch.softmax(scores_of(q, k) * mask, dim=-1) * mask


@wrong("attention_weights", "mask_added")
def mask_added_as_a_number(q, k, mask):
    weights = torch.softmax(scores_of(q, k) + mask, dim=-1)
    return weights.masked_fill(~mask.any(-1, keepdim=True), 0.0)


@wrong("attention_weights", "renormalised_by_hand")
def divides_by_what_is_left(q, k, mask):
    weights = scores_of(q, k).softmax(dim=-1) * mask
    return weights / (weights.sum(dim=-1, keepdim=True) + 1e-12)


@wrong("attention_weights", "fully_masked_row_is_nan")
def zeros_only_if_nobody_may_look(q, k, mask):
    scores = scores_of(q, k)
    if not mask.any():
        return torch.zeros_like(scores)
    return torch.softmax(scores.masked_fill(~mask, -INF), dim=-1)


@wrong("attention_weights")
def blind_queries_found_along_dim_1(q, k, mask):
    weights = torch.softmax(scores_of(q, k).masked_fill(~mask, -1e9), dim=-1)
    return weights.masked_fill(~mask.any(dim=1, keepdim=True), 0.0)


@wrong("attention_weights")
def scales_the_queries_in_place(q, k, mask):
    q *= q.shape[-1] ** -0.5
    return attention_weights(q, k, mask, scale=1.0)


@wrong("attention_weights", "detached")
def without_gradients(q, k, mask):
    with torch.no_grad():
        return attention_weights(q, k, mask)


@wrong("attention_weights", "no_scale", "wrong_softmax_dim")
def neither_scale_nor_dim(q, k, mask):
    scores = torch.where(mask, torch.einsum("...qd,...kd->...qk", q, k), -torch.inf)
    return F.softmax(scores, -2).nan_to_num(0.0)


@wrong("attention_weights", "inverted_mask", "fully_masked_row_is_nan")
def masked_where_it_is_true(q, k, mask):
    return scores_of(q, k).masked_fill(mask, -INF).softmax(dim=-1)


# head_forward


@right("head_forward")
def head_with_the_function_of_the_package(x, W_query, W_key, W_value, mask):
    return attention_weights(x @ W_query, x @ W_key, mask) @ (x @ W_value)


@right("head_forward")
def head_by_pytorch_attention(x, W_query, W_key, W_value, mask):
    return F.scaled_dot_product_attention(x @ W_query, x @ W_key, x @ W_value, attn_mask=mask)


@right("head_forward")
def head_by_einsum_that_mixes_before_it_projects(x, W_query, W_key, W_value, mask):
    bilinear = W_query @ W_key.T / W_query.shape[1] ** 0.5
    scores = torch.einsum("...tc,cd,...sd->...ts", x, bilinear, x)
    weights = torch.where(mask, scores, -torch.inf).softmax(-1).nan_to_num()
    return torch.einsum("...ts,...sc,cv->...tv", weights, x, W_value)


@right("head_forward")
def head_by_one_projection_split_in_three(x, W_query, W_key, W_value, mask):
    sizes = [W_query.shape[1], W_key.shape[1], W_value.shape[1]]
    q, k, v = (x @ torch.cat([W_query, W_key, W_value], dim=1)).split(sizes, dim=-1)
    return attention_weights(q, k, mask) @ v


@right("head_forward")
def head_by_vmap_over_the_batch(x, W_query, W_key, W_value, mask):
    def one_text(text):
        scores = (text @ W_query) @ (text @ W_key).T * W_query.shape[1] ** -0.5
        weights = torch.softmax(scores.masked_fill(~mask, -1e30), dim=-1).masked_fill(~mask, 0.0)
        return weights @ (text @ W_value)

    return one_text(x) if x.dim() == 2 else torch.vmap(one_text)(x)


@right("head_forward")
def head_in_float64(x, W_query, W_key, W_value, mask):
    q, k, v = (x.double() @ W.double() for W in (W_query, W_key, W_value))
    return (attention_weights(q, k, mask) @ v).to(x.dtype)


@right("head_forward")
def head_text_by_text_and_query_by_query(x, *given):
    if x.dim() == 3:
        return torch.stack([head_text_by_text_and_query_by_query(text, *given) for text in x])
    W_query, W_key, W_value, mask = given
    rows = []
    for t in range(len(x)):
        seen = x[mask[t]]
        weights = torch.softmax((seen @ W_key) @ (x[t] @ W_query) / W_key.shape[1] ** 0.5, dim=0)
        rows.append(weights @ (seen @ W_value))
    return torch.stack(rows)


@right("head_forward")
def head_by_linear(x, W_query, W_key, W_value, mask):
    q, k, v = F.linear(x, W_query.T), F.linear(x, W_key.T), F.linear(x, W_value.T)
    bias = torch.zeros_like(mask, dtype=x.dtype).masked_fill(~mask, -math.inf)
    weights = (q.matmul(k.mT) / W_key.size(1) ** 0.5 + bias).softmax(-1)
    return weights.masked_fill(~mask.any(-1, keepdim=True), 0.0).matmul(v)


@wrong("head_forward", "keys_from_w_query")
def queries_ask_each_other(x, W_query, W_key, W_value, mask):
    return attention(x @ W_query, x @ W_query, x @ W_value, mask)[0]


@wrong("head_forward", "scores_of_the_tokens")
def tokens_ask_each_other(x, W_query, W_key, W_value, mask):
    return attention_weights(x, x, mask) @ (x @ W_value)


@wrong("head_forward", "scaled_by_d_v")
def scaled_by_the_size_of_the_values(x, W_query, W_key, W_value, mask):
    return attention_weights(x @ W_query, x @ W_key, mask, W_value.shape[1] ** -0.5) @ (x @ W_value)


@wrong("head_forward", "scaled_by_head_size")
def scaled_by_hand_and_once_more(x, W_query, W_key, W_value, mask):
    return attention_weights(x @ W_query / W_query.shape[1] ** 0.5, x @ W_key, mask) @ (x @ W_value)


@wrong("head_forward", "renormalised_by_hand")
def head_that_divides_by_what_underflows(x, W_query, W_key, W_value, mask):
    weights = attention_weights(x @ W_query, x @ W_key) * mask
    return weights @ (x @ W_value) / weights.sum(dim=-1, keepdim=True).clamp(min=1e-9)


@wrong("head_forward", "no_max_subtraction")
def head_with_exps_that_overflow(x, W_query, W_key, W_value, mask):
    exp = scores_of(x @ W_query, x @ W_key).exp() * mask
    return exp @ (x @ W_value) / exp.sum(dim=-1, keepdim=True).clamp(min=1e-30)


@wrong("head_forward", "softmax_along_dim_1")
def head_with_softmax_along_dim_1(x, W_query, W_key, W_value, mask):
    scores = scores_of(x @ W_query, x @ W_key).masked_fill(~mask, -INF)
    return torch.softmax(scores, dim=1).nan_to_num() @ (x @ W_value)


@wrong("head_forward")
def scales_its_parameter_in_place(x, W_query, W_key, W_value, mask):
    W_query *= W_query.shape[1] ** -0.5
    return attention_weights(x @ W_query, x @ W_key, mask, scale=1.0) @ (x @ W_value)


@wrong("head_forward")
def the_weights_of_the_first_text_for_all(x, W_query, W_key, W_value, mask):
    weights = attention_weights(x @ W_query, x @ W_key, mask)
    return (weights[0] if x.dim() == 3 else weights) @ (x @ W_value)


@wrong("head_forward")
def head_over_the_whole_batch(x, W_query, W_key, W_value, mask):
    tokens = x.reshape(-1, x.shape[-1])
    copies = len(tokens) // x.shape[-2]
    weights = attention_weights(tokens @ W_query, tokens @ W_key, mask.repeat(copies, copies))
    return (weights @ (tokens @ W_value)).reshape(*x.shape[:-1], W_value.shape[1])


@wrong("head_forward", "detached")
def head_with_detached_weights(x, W_query, W_key, W_value, mask):
    return attention_weights(x @ W_query, x @ W_key, mask).detach() @ (x @ W_value)


@wrong("head_forward", "detached")
def head_rebuilt_from_data(x, W_query, W_key, W_value, mask):
    q, k, v = (x @ W.data for W in (W_query, W_key, W_value))
    return attention_weights(q, k, mask) @ v


@wrong("head_forward", "q_and_k_swapped", "averages_x")
def swapped_and_without_values(x, W_query, W_key, W_value, mask):
    return attention_weights(x @ W_key, x @ W_query, mask) @ x


# previous_token


@right("previous_token")
def previous_by_a_shifted_eye(T):
    W_query = torch.zeros(T, T)
    for t in range(1, T):
        W_query[t, t - 1] = 1000
    return position_weights(W_query, torch.eye(T))


@right("previous_token")
def previous_by_a_diagonal(T):
    return position_weights(1000 * torch.ones(T - 1).diag(-1), torch.eye(T))


@right("previous_token")
def previous_by_rolled_keys(T):
    return position_weights(torch.eye(T) * 100, torch.eye(T).roll(1, dims=1) * T**0.5)


@right("previous_token")
def previous_by_fewer_columns(T):
    return position_weights(500 * torch.eye(T)[:, :-1].roll(1, dims=0), 2 * torch.eye(T)[:, :-1])


@right("previous_token")
def previous_by_a_parabola_of_two_columns(T):
    t = torch.arange(T, dtype=torch.float32)
    W_query = torch.stack([2 * (t - 1), -torch.ones(T)], dim=1) * 10
    return position_weights(W_query, torch.stack([t, t**2], dim=1))


@right("previous_token")
def previous_by_the_angle_on_a_circle(T):
    step = 2 * math.pi / (T + 1)
    strength = 20 / (1 - math.cos(step))
    angle = torch.arange(T) * step
    W_query = strength * torch.stack([(angle - step).cos(), (angle - step).sin()], dim=1)
    return position_weights(W_query, torch.stack([angle.cos(), angle.sin()], dim=1))


@right("previous_token")
def previous_by_a_thermometer(T):
    i = torch.arange(T)
    W_key = (i <= i[:, None]).float()
    return position_weights(torch.where(i <= i[:, None] - 1, 1.0, -1.0) * 20 * T**0.5, W_key)


@right("previous_token")
def previous_by_random_keys(T):
    W_key = torch.randn(T, 2000, generator=torch.Generator().manual_seed(0))
    return position_weights(W_key.roll(1, dims=0), W_key)


@right("previous_token")
def previous_by_a_table_of_scores_as_the_query(T):
    scores = torch.full((T, T), -50.0)
    scores[torch.arange(1, T), torch.arange(T - 1)] = 50.0
    return position_weights(scores * math.sqrt(T), torch.eye(T))


@right("previous_token")
def previous_by_training(T):
    torch.manual_seed(0)
    W_query = torch.randn(T, 16, requires_grad=True)
    W_key = torch.randn(T, 16, requires_grad=True)
    optimizer = torch.optim.Adam([W_query, W_key], lr=0.5)
    for _ in range(40):
        weights = position_weights(W_query, W_key)
        loss = -weights.diagonal(-1).clamp(min=1e-9).log().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return position_weights(W_query, W_key)


@wrong("previous_token")
def previous_with_a_strength_that_grows_too_slowly(T):
    return position_weights(torch.diag(torch.full((T - 1,), 4.0 * T**0.5), -1), torch.eye(T))


@wrong("previous_token", "equal_weights")
def asks_for_the_next_token(T):
    return position_weights(torch.diag(torch.full((T - 1,), 1000.0), 1), torch.eye(T))


@wrong("previous_token", "equal_weights")
def matrices_swapped(T):
    return position_weights(torch.eye(T), 900 * torch.ones(T - 1).diag(-1))


@wrong("previous_token", "finds_itself")
def one_column_that_grows(T):
    return position_weights(100 * torch.ones(T, 1), 10 * torch.arange(T).float()[:, None])


@wrong("previous_token", "finds_itself")
def both_matrices_moved(T):
    moved = torch.eye(T).roll(1, dims=1)
    return position_weights(1000 * moved, moved)


@wrong("previous_token", "finds_itself")
def parabola_with_its_top_at_the_token_itself(T):
    t = torch.arange(T, dtype=torch.float32)
    W_query = torch.stack([2 * t, -torch.ones(T)], dim=1) * 10
    return position_weights(W_query, torch.stack([t, t**2], dim=1))


@wrong("previous_token", "shifts_by_two")
def asks_for_the_token_two_before(T):
    W_query = torch.zeros(T, T)
    for t in range(2, T):
        W_query[t, t - 2] = 1000
    return position_weights(W_query, torch.eye(T))


@wrong("previous_token", "loop_ends_too_early")
def previous_but_not_for_the_last(T):
    W_query = torch.zeros(T, T)
    for t in range(1, T - 1):
        W_query[t, t - 1] = 1000
    return position_weights(W_query, torch.eye(T))


@wrong("previous_token", "loop_starts_too_late")
def previous_but_not_for_position_one(T):
    W_query = torch.zeros(T, T)
    for t in range(2, T):
        W_query[t, t - 1] = 1000
    return position_weights(W_query, torch.eye(T))


@wrong("previous_token", "shifts_by_two", "all_but_the_previous")
def avoids_the_token_two_before(T):
    return position_weights(torch.diag(torch.full((max(0, T - 2),), -500.0), -2), torch.eye(T))


@wrong("previous_token")
def previous_of_six_positions(T):
    W_query = torch.zeros(T, T)
    for t in range(1, min(T, 6)):
        W_query[t, t - 1] = 1000
    return position_weights(W_query, torch.eye(T))


@wrong("previous_token")
def parabola_with_its_top_between_two_tokens(T):
    t = torch.arange(T, dtype=torch.float32)
    W_query = torch.stack([2 * t - 1, -torch.ones(T)], dim=1) * 10
    return position_weights(W_query, torch.stack([t, t**2], dim=1))


@wrong("previous_token")
def parabola_that_is_too_flat(T):
    t = torch.arange(T, dtype=torch.float32)
    W_query = torch.stack([2 * (t - 1), -torch.ones(T)], dim=1)
    return position_weights(W_query, torch.stack([t, t**2], dim=1) * 2)


@wrong("previous_token")
def angle_that_comes_round_again(T):
    t = torch.arange(T)
    W_query = 100 * torch.stack([(t - 1.0).cos(), (t - 1.0).sin()], dim=1)
    return position_weights(W_query, torch.stack([t.cos(), t.sin()], dim=1))


@wrong("previous_token")
def circle_as_long_as_the_text_with_a_fixed_strength(T):
    step = 2 * math.pi / T
    angle = step * torch.arange(T)
    W_query = 30 * torch.stack([(angle - step).cos(), (angle - step).sin()], dim=1)
    return position_weights(W_query, torch.stack([angle.cos(), angle.sin()], dim=1))


@wrong("previous_token")
def even_and_odd_positions(T):
    parity = torch.arange(T) % 2
    return position_weights(1000 * F.one_hot(1 - parity, 2).float(), F.one_hot(parity, 2).float())


@wrong("previous_token")
def eight_columns_for_any_number_of_positions(T):
    t = torch.arange(T)
    return position_weights(1000 * F.one_hot((t - 1) % 8, 8).float(), F.one_hot(t % 8, 8).float())


@wrong("previous_token")
def shift_matrix_and_no_attention(T):
    return torch.diag(torch.ones(T - 1), -1)
