"""Answers to the exercises of rung 6."""

import math

import numpy as np
import torch
import torch.nn.functional as F

from answers import right, wrong
from attention_course import attention as package

# ------------------------------------------------------------------ causal_mask


@right("causal_mask")
def mask_by_tril(T_q, T_k):
    return torch.ones(T_q, T_k).tril(diagonal=T_k - T_q).bool()


@right("causal_mask")
def mask_by_comparing_places(T_q, T_k):
    return torch.arange(T_k) <= torch.arange(T_k - T_q, T_k).unsqueeze(1)


@right("causal_mask")
def mask_rows_of_the_square(T_q, T_k):
    return torch.ones(T_k, T_k, dtype=torch.bool).tril()[T_k - T_q :]


@right("causal_mask")
def mask_last_rows_of_the_square(T_q, T_k):
    return package.causal_mask(T_k)[-T_q:]


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
def mask_by_not_triu(T_q, T_k):
    return ~torch.ones(T_q, T_k).triu(T_k - T_q + 1).bool()


@right("causal_mask")
def mask_by_where(T_q, T_k):
    future = torch.full((T_q, T_k), float("-inf")).triu(T_k - T_q + 1)
    return torch.where(future < 0, False, True)


@right("causal_mask")
def mask_by_vmap_over_places(T_q, T_k):
    return torch.vmap(lambda last: torch.arange(T_k) <= last)(torch.arange(T_k - T_q, T_k))


@wrong("causal_mask", "wrong_alignment")
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


@wrong("causal_mask", "wrong_alignment")
def only_the_last_row_is_mended(T_q, T_k):
    mask = torch.ones(T_q, T_k, dtype=torch.bool).tril()
    mask[-1] = True
    return mask


@wrong("causal_mask")
def remainder_in_place_of_difference(T_q, T_k):
    return torch.ones(T_q, T_k, dtype=torch.bool).tril(T_k % T_q)


@wrong("causal_mask")
def a_window_of_the_last_few(T_q, T_k):
    mask = torch.ones(T_q, T_k, dtype=torch.bool)
    return mask.tril(T_k - T_q).triu()


@wrong("causal_mask", "rows_in_reverse")
def rows_from_the_last_query_on(T_q, T_k):
    return torch.stack([torch.arange(T_k) < T_k - row for row in range(T_q)])


@wrong("causal_mask")
def columns_in_reverse(T_q, T_k):
    return torch.ones(T_q, T_k, dtype=torch.bool).tril(T_k - T_q).flip(1)


@wrong("causal_mask", "numbers_in_place_of_booleans")
def numbers_in_place_of_booleans(T_q, T_k):
    return torch.ones(T_q, T_k).tril(T_k - T_q)


@wrong("causal_mask", "numbers_in_place_of_booleans")
def bytes_in_place_of_booleans(T_q, T_k):
    return torch.ones(T_q, T_k, dtype=torch.uint8).tril(T_k - T_q)


@wrong("causal_mask", "wrong_alignment")
def first_rows_of_the_square(T_q, T_k):
    return torch.ones(T_k, T_k).tril()[:T_q].bool()


@wrong("causal_mask", "wrong_alignment", "inverted_mask")
def upper_triangle_of_the_first_keys(T_q, T_k):
    return torch.ones(T_q, T_k).triu(1).bool()


@wrong("causal_mask", "wrong_alignment", "diagonal_excluded")
def below_the_diagonal_of_the_first_keys(T_q, T_k):
    return torch.arange(T_k) < torch.arange(T_q)[:, None]


@wrong("causal_mask", "one_step_ahead")
def one_place_too_many(T_q, T_k):
    return torch.arange(T_k) <= torch.arange(T_k - T_q, T_k)[:, None] + 1


@wrong("causal_mask", "scores_in_place_of_a_mask")
def mask_to_be_added(T_q, T_k):
    return torch.full((T_q, T_k), -math.inf).triu(T_k - T_q + 1)


# ------------------------------------------------------------------ padding_mask


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
def padding_by_a_stack_of_rows(lengths, T_k):
    return torch.stack([torch.arange(T_k) < length for length in lengths])[:, None]


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
def a_column_for_each_text(lengths, T_k):
    return (torch.arange(T_k)[:, None] < lengths)[:, None]


@wrong("padding_mask", "a_row_for_each_query")
def a_square_for_each_text(lengths, T_k):
    mask = torch.zeros(len(lengths), T_k, T_k, dtype=torch.bool)
    for b in range(len(lengths)):
        mask[b, :, : lengths[b]] = True
    return mask


@wrong("padding_mask", "numbers_in_place_of_booleans")
def integers_in_place_of_booleans(lengths, T_k):
    return (torch.arange(T_k) < lengths[:, None])[:, None].long()


@wrong("padding_mask", "cut_to_the_longest")
def stacked_up_to_the_longest_text(lengths, T_k):
    return torch.stack([torch.arange(int(max(lengths))) < length for length in lengths]).unsqueeze(1)


@wrong("padding_mask", "inverted_mask")
def padding_marked(lengths, T_k):
    return torch.arange(T_k) >= lengths[:, None, None]


@wrong("padding_mask", "one_key_too_many")
def last_place_is_the_length(lengths, T_k):
    return torch.arange(T_k) <= lengths[:, None, None]


@wrong("padding_mask", "no_dimension_for_the_queries")
def a_table_of_texts_and_keys(lengths, T_k):
    return torch.arange(T_k).expand(len(lengths), T_k) < lengths.unsqueeze(1)


@wrong("padding_mask", "inverted_mask", "no_dimension_for_the_queries")
def a_table_of_the_padding(lengths, T_k):
    return torch.stack([torch.arange(T_k) >= length for length in lengths])


@wrong("padding_mask", "inverted_mask", "one_key_too_many")
def places_beyond_the_length(lengths, T_k):
    return torch.arange(T_k) > lengths[:, None, None]


@wrong("padding_mask", "hides_a_text_without_padding")
def padding_cut_off_from_the_end(lengths, T_k):
    mask = torch.ones(len(lengths), 1, T_k, dtype=torch.bool)
    for b, length in enumerate(lengths.tolist()):
        mask[b, 0, -(T_k - length) :] = False
    return mask


# ------------------------------------------------------------------ cross_attention_forward


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


@right("cross_attention_forward")
def cross_by_a_functional_call(x, context, W_query, W_key, W_value, mask):
    head = package.CrossAttentionHead(x.shape[-1], context.shape[-1], W_query.shape[-1], W_value.shape[-1])
    weights = {"query.weight": W_query.T, "key.weight": W_key.T, "value.weight": W_value.T}
    return torch.func.functional_call(head, weights, (x, context, mask))[0]


@wrong("cross_attention_forward", "detached")
def cross_by_the_class_of_the_notebook(x, context, W_query, W_key, W_value, mask):
    head = package.CrossAttentionHead(len(W_query), len(W_key), W_key.shape[1], W_value.shape[1])
    with torch.no_grad():
        for layer, W in ((head.query, W_query), (head.key, W_key), (head.value, W_value)):
            layer.weight.copy_(W.T)
        return head(x, context, mask)[0]


@wrong("cross_attention_forward")
def cross_by_pytorchs_own(x, context, W_query, W_key, W_value, mask):
    return F.scaled_dot_product_attention(x @ W_query, context @ W_key, context @ W_value, attn_mask=mask)


def _parts(x, context, W_query, W_key, W_value):
    q, k, v = x @ W_query, context @ W_key, context @ W_value
    return q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5, v


def _hide(scores, mask, value=float("-inf")):
    return scores if mask is None else scores.masked_fill(~mask, value)


@wrong("cross_attention_forward", "keys_from_w_query")
def cross_with_one_matrix_for_queries_and_keys(x, context, W_query, W_key, W_value, mask):
    q, k = (tokens @ W_query for tokens in (x, context))
    scores = _hide(q @ k.mT * q.shape[-1] ** -0.5, mask)
    return scores.softmax(-1).nan_to_num() @ context @ W_value


@wrong("cross_attention_forward", "scaled_by_n_embd")
def cross_scaled_by_n_context(x, context, W_query, W_key, W_value, mask):
    scores = _hide(x @ W_query @ (context @ W_key).mT / math.sqrt(len(W_key)), mask)
    return torch.softmax(scores, dim=-1).nan_to_num() @ context @ W_value


@wrong("cross_attention_forward", "scaled_by_d_v")
def cross_scaled_by_d_v(x, context, W_query, W_key, W_value, mask):
    scores = _hide(x @ W_query @ (context @ W_key).mT * W_value.shape[1] ** -0.5, mask)
    return torch.softmax(scores, dim=-1).nan_to_num() @ context @ W_value


@wrong("cross_attention_forward", "wrong_softmax_dim")
def cross_softmax_over_dim_1(x, context, W_query, W_key, W_value, mask):
    scores, v = _parts(x, context, W_query, W_key, W_value)
    return torch.softmax(_hide(scores, mask), dim=1).nan_to_num() @ v


@wrong("cross_attention_forward", "fully_masked_row_is_nan")
def cross_query_that_sees_nothing_gets_nan(x, context, W_query, W_key, W_value, mask):
    scores, v = _parts(x, context, W_query, W_key, W_value)
    return torch.softmax(_hide(scores, mask), dim=-1) @ v


@wrong("cross_attention_forward", "no_scale", "fully_masked_row_is_nan")
def cross_without_scale_and_with_nan(x, context, W_query, W_key, W_value, mask):
    scores = _hide((x @ W_query) @ (context @ W_key).mT, mask)
    return F.softmax(scores, dim=-1) @ (context @ W_value)


@wrong("cross_attention_forward", "inverted_mask", "fully_masked_row_is_nan")
def cross_fills_where_the_mask_is_true(x, context, W_query, W_key, W_value, mask):
    scores, v = _parts(x, context, W_query, W_key, W_value)
    if mask is not None:
        scores = scores.masked_fill(mask, -torch.inf)
    return scores.softmax(-1) @ v


@wrong("cross_attention_forward", "finite_fill")
def cross_query_that_sees_nothing_gets_the_mean(x, context, W_query, W_key, W_value, mask):
    scores, v = _parts(x, context, W_query, W_key, W_value)
    return torch.softmax(_hide(scores, mask, torch.finfo(scores.dtype).min), dim=-1) @ v


@wrong("cross_attention_forward", "finite_fill")
def cross_hidden_keys_get_a_small_score(x, context, W_query, W_key, W_value, mask):
    scores, v = _parts(x, context, W_query, W_key, W_value)
    return F.softmax(scores if mask is None else torch.where(mask, scores, -10.0), dim=-1) @ v


@wrong("cross_attention_forward")
def cross_context_of_the_first_text(x, context, W_query, W_key, W_value, mask):
    first = context.reshape(-1, *context.shape[-2:])[0]
    scores, v = _parts(x, first, W_query, W_key, W_value)
    return torch.softmax(_hide(scores, mask), dim=-1).nan_to_num() @ v


@wrong("cross_attention_forward", "scaled_after_softmax")
def cross_scale_undone_and_done_after_softmax(x, context, W_query, W_key, W_value, mask):
    scores, v = _parts(x, context, W_query, W_key, W_value)
    root = W_key.shape[-1] ** 0.5
    return torch.softmax(_hide(scores * root, mask), dim=-1).nan_to_num() / root @ v


@wrong("cross_attention_forward")
def cross_causal_on_top_of_the_mask(x, context, W_query, W_key, W_value, mask):
    scores, v = _parts(x, context, W_query, W_key, W_value)
    causal = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    return torch.softmax(_hide(scores, causal if mask is None else mask & causal), dim=-1).nan_to_num() @ v


@wrong("cross_attention_forward")
def cross_with_1_added_to_the_sum(x, context, W_query, W_key, W_value, mask):
    scores, v = _parts(x, context, W_query, W_key, W_value)
    heights = scores.exp() if mask is None else scores.exp() * mask
    return heights / (heights.sum(dim=-1, keepdim=True) + 1) @ v


@wrong("cross_attention_forward", "renormalised_by_hand")
def cross_renormalised_by_hand(x, context, W_query, W_key, W_value, mask):
    scores, v = _parts(x, context, W_query, W_key, W_value)
    weights = scores.softmax(-1)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0)
        weights = weights / weights.sum(-1, keepdim=True).clamp_min(1e-12)
    return weights @ v


@wrong("cross_attention_forward", "no_max_subtraction")
def cross_exp_overflows(x, context, W_query, W_key, W_value, mask):
    scores, v = _parts(x, context, W_query, W_key, W_value)
    heights = _hide(scores, mask).exp()
    return heights / heights.sum(dim=-1, keepdim=True).clamp(min=1e-30) @ v


@wrong("cross_attention_forward")
def cross_mask_of_the_first_query(x, context, W_query, W_key, W_value, mask):
    scores, v = _parts(x, context, W_query, W_key, W_value)
    return torch.softmax(_hide(scores, None if mask is None else mask[..., :1, :]), dim=-1).nan_to_num() @ v


@wrong("cross_attention_forward", "no_mask")
def cross_fill_not_kept(x, context, W_query, W_key, W_value, mask):
    scores = x @ W_query @ (context @ W_key).transpose(-2, -1) / W_query.shape[1] ** 0.5
    if mask is not None:
        scores.masked_fill(mask == 0, float("-inf"))
    return scores.softmax(dim=-1) @ (context @ W_value)


@wrong("cross_attention_forward")
def cross_only_where_every_query_sees_something(x, context, W_query, W_key, W_value, mask):
    assert mask is None or mask.any(-1).all()
    return package.attention(x @ W_query, context @ W_key, context @ W_value, mask)[0]


# ------------------------------------------------------------------ leaks


def _nudged(x, j, by):
    other = x.clone()
    other[j] += by
    return other


def _noise(x):
    return torch.randn(x.shape[1:], generator=torch.Generator().manual_seed(1))


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


@right("leaks")
def leaks_by_vmap_over_the_nudged_texts(models, x):
    T, C = x.shape
    nudged = x + torch.eye(T)[:, :, None] * torch.linspace(0.5, 1.5, C)

    def leaky(model):
        before, *after = torch.vmap(model)(torch.cat([x[None], nudged]))
        return (torch.stack(after) != before).any(dim=-1).tril(-1).any()

    return torch.stack([leaky(model) for model in models])


@wrong("leaks")
def leaks_by_the_probe(models, x):
    return torch.stack([package.leak_probe(model, x).triu(1).any() for model in models])


@wrong("leaks")
def leaks_only_of_the_second_half(models, x):
    half = len(x) // 2
    other = x.clone()
    other[half:] = torch.randn(other[half:].shape, generator=torch.Generator().manual_seed(1))
    return torch.tensor([not torch.equal(m(other)[:half], m(x)[:half]) for m in models])


@wrong("leaks", "small_moves_ignored")
def leaks_with_a_tolerance(models, x):
    found = []
    for m in models:
        hits = [
            not torch.allclose(m(_nudged(x, j, _noise(x)))[:j], m(x)[:j], atol=1e-2) for j in range(len(x))
        ]
        found.append(any(hits))
    return torch.tensor(found)


@wrong("leaks", "small_moves_ignored")
def leaks_by_allclose_as_it_comes(models, x):
    found = torch.zeros(len(models), dtype=torch.bool)
    for i, model in enumerate(models):
        for j in range(1, len(x)):
            found[i] |= not torch.allclose(model(_nudged(x, j, _noise(x)))[:j], model(x)[:j])
    return found


@wrong("leaks", "small_moves_ignored")
def leaks_of_more_than_a_thousandth(models, x):
    found = []
    for model in models:
        moves = [(model(_nudged(x, j, _noise(x))) - model(x))[:j].abs().max() for j in range(1, len(x))]
        found.append(max(moves) > 1e-3)
    return torch.stack(found)


@wrong("leaks")
def leaks_by_a_tiny_nudge(models, x):
    found = []
    for m in models:
        hits = [not torch.equal(m(_nudged(x, j, 1e-7))[:j], m(x)[:j]) for j in range(len(x))]
        found.append(any(hits))
    return torch.tensor(found)


@wrong("leaks", "by_gradient")
def leaks_by_the_jacobian(models, x):
    slopes = [torch.autograd.functional.jacobian(model, x).abs().sum(dim=(1, 3)) for model in models]
    return torch.stack([slope.triu(1).any() for slope in slopes])


@wrong("leaks", "channels_nudged_alike")
def leaks_shifting_all_channels_alike(models, x):
    found = []
    for m in models:
        hits = [not torch.equal(m(_nudged(x, j, 1.0))[:j], m(x)[:j]) for j in range(len(x))]
        found.append(any(hits))
    return torch.tensor(found)


@wrong("leaks", "one_channel_nudged")
def leaks_nudging_one_channel(models, x):
    found = []
    for m in models:
        hits = []
        for j in range(len(x)):
            other = x.clone()
            other[j, 0] += 2.5
            hits.append(not torch.equal(m(other)[:j], m(x)[:j]))
        found.append(any(hits))
    return torch.tensor(found)


@wrong("leaks", "one_channel_watched")
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


@wrong("leaks", "leak_carried_over")
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
            x[j] += torch.linspace(1, 2, x.shape[1])
            leak |= not torch.equal(m(x)[:j], before[:j])
        found.append(leak)
    return torch.tensor(found)


@wrong("leaks", "nudges_pile_up")
def leaks_by_nudges_that_stay_in_x(models, x):
    found = []
    for m in models:
        before, leak = m(x), False
        for j in range(len(x)):
            x[j] += _noise(x)
            leak |= not torch.equal(m(x)[:j], before[:j])
        found.append(leak)
    return torch.tensor(found)


@wrong("leaks", "nudges_pile_up")
def leaks_by_nudges_that_stay_in_one_copy(models, x):
    def leaky(model):
        other, moved = x.clone(), []
        for j in range(1, len(x)):
            other[j] = torch.randn(x.shape[1])
            moved.append((model(other)[:j] != model(x)[:j]).any())
        return torch.stack(moved).any()

    return torch.stack([leaky(model) for model in models])


@wrong("leaks", "nudges_pile_up")
def leaks_by_one_other_text(models, x):
    other = torch.cat([x[:1], torch.randn_like(x[1:])])
    return torch.stack([(model(other) != model(x))[:-1].any() for model in models])


@wrong("leaks", "neighbour_left_out")
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


@wrong("leaks", "cuts_the_text")
def leaks_by_cutting_the_text(models, x):
    found = []
    for model in models:
        outputs = [model(x[:t]) for t in range(1, len(x))]
        found.append(any(not torch.allclose(out, model(x)[: len(out)], atol=1e-6) for out in outputs))
    return torch.tensor(found)


@wrong("leaks", "counts_the_past")
def leaks_watching_the_past(models, x):
    found = []
    for model in models:
        moved = False
        for j in range(len(x)):
            nudged = x.clone()
            nudged[j] = 0
            moved |= bool((model(nudged)[j + 1 :] != model(x)[j + 1 :]).any())
        found.append(moved)
    return torch.tensor(found)


@wrong("leaks", "only_the_last_token")
def leaks_where_the_last_position_decides(models, x):
    found = torch.zeros(3, dtype=torch.bool)
    for m, model in enumerate(models):
        for j in range(1, len(x)):
            found[m] = (model(_nudged(x, j, _noise(x)))[:j] != model(x)[:j]).any()
    return found


@wrong("leaks", "only_the_last_token", "only_the_first_output")
def leaks_from_the_last_token_to_the_first(models, x):
    return torch.stack([(m(_nudged(x, -1, _noise(x)))[0] != m(x)[0]).any() for m in models])
