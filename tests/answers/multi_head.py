"""Answers to the exercises of rung 7."""

import math

import numpy as np
import torch
from torch.nn import functional as F

from answers import right, wrong
from attention_course import attention as package

# split_heads


@right("split_heads")
def split_by_unflatten_and_permute(x, n_head):
    return x.unflatten(-1, (n_head, -1)).permute(0, 2, 1, 3)


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


@right("split_heads")
def split_by_index(x, n_head):
    channels = torch.arange(x.shape[-1]).view(n_head, 1, -1)
    tokens = torch.arange(x.shape[1])[None, :, None]
    return x[:, tokens, channels]


@right("split_heads")
def split_with_channels_first(x, n_head):
    B, T, C = x.shape
    return x.mT.reshape(B, n_head, C // n_head, T).mT


@wrong("split_heads", "detached")
def split_in_numpy(x, n_head):
    return torch.from_numpy(np.stack(np.split(x.numpy(), n_head, axis=2), axis=1))


@wrong("split_heads", "heads_interleaved")
def split_every_nth_channel(x, n_head):
    return torch.stack([x[..., h::n_head] for h in range(n_head)], dim=1)


@wrong("split_heads", "heads_first")
def split_stacked_without_dim(x, n_head):
    return torch.stack(x.chunk(n_head, dim=-1))


@wrong("split_heads", "heads_reversed")
def split_last_head_first(x, n_head):
    return torch.stack(x.chunk(n_head, dim=-1)[::-1], dim=1)


@wrong("split_heads", "heads_interleaved", "heads_reversed")
def split_every_nth_channel_last_head_first(x, n_head):
    return torch.stack([x[..., h::n_head] for h in reversed(range(n_head))], dim=1)


@wrong("split_heads", "one_head_for_all")
def split_every_head_is_the_first(x, n_head):
    size = x.shape[-1] // n_head
    return torch.stack([x[..., :size] for _ in range(n_head)], dim=1)


@wrong("split_heads", "one_head_for_all")
def split_a_loop_that_overwrites(x, n_head):
    B, T, C = x.shape
    out = torch.empty(B, n_head, T, C // n_head, dtype=x.dtype)
    for h in range(n_head):
        out[:] = x[:, None, :, h * (C // n_head) : (h + 1) * (C // n_head)]
    return out


@wrong("split_heads", "heads_overlap")
def split_overlapping(x, n_head):
    size = x.shape[-1] // n_head
    return torch.stack([x[..., h : h + size] for h in range(n_head)], dim=1)


@wrong("split_heads")
def split_head_size_times_too_small_a_step(x, n_head):
    size = x.shape[-1] // n_head
    starts = [h * n_head % (x.shape[-1] - size + 1) for h in range(n_head)]
    return torch.stack([x[..., s : s + size] for s in starts], dim=1)


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
def split_batch_and_tokens_swapped(x, n_head):
    B, T, C = x.shape
    return x.reshape(T, B, n_head, C // n_head).permute(1, 2, 0, 3)


@wrong("split_heads")
def split_tokens_first_then_reshaped(x, n_head):
    B, T, C = x.shape
    return x.transpose(0, 1).reshape(B, T, n_head, C // n_head).transpose(1, 2)


@wrong("split_heads")
def split_channels_rolled_by_one(x, n_head):
    return torch.stack(x.roll(-1, dims=-1).chunk(n_head, dim=-1), dim=1)


@wrong("split_heads")
def split_squeezed(x, n_head):
    return torch.stack(x.chunk(n_head, dim=-1), dim=1).squeeze()


# merge_heads


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


@right("merge_heads")
def merge_by_a_sum_of_padded_heads(heads):
    _, n_head, _, size = heads.shape
    return sum(F.pad(heads[:, h], (h * size, (n_head - 1 - h) * size)) for h in range(n_head))


@wrong("merge_heads", "detached")
def merge_in_numpy(heads):
    return torch.from_numpy(np.concatenate(list(np.moveaxis(heads.numpy(), 1, 0)), axis=-1))


@wrong("merge_heads")
def merge_by_view_after_the_transpose(heads):
    return heads.transpose(1, 2).view(len(heads), heads.shape[2], -1)


@wrong("merge_heads", "concatenated_along_time")
def merge_by_cat_along_time(heads):
    return torch.cat(heads.unbind(1), dim=1)


@wrong("merge_heads", "heads_interleaved")
def merge_stacked_last(heads):
    return torch.stack(heads.unbind(1), dim=-1).flatten(2)


@wrong("merge_heads", "heads_reversed")
def merge_last_head_first(heads):
    return torch.cat(heads.unbind(dim=1)[::-1], dim=-1)


@wrong("merge_heads", "loops_over_the_batch")
def merge_stacked_in_front(heads):
    B, n_head, T, size = heads.shape
    return heads.transpose(0, 1).transpose(1, 2).reshape(B, T, n_head * size)


@wrong("merge_heads", "heads_overlap")
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
def merge_channels_not_turned_back(heads):
    B, n_head, T, size = heads.shape
    return heads.reshape(B, n_head * size, T).transpose(1, 2)


@wrong("merge_heads")
def merge_first_head_everywhere(heads):
    return heads[:, 0].repeat(1, 1, heads.shape[1])


@wrong("merge_heads")
def merge_batch_and_tokens_swapped(heads):
    B, n_head, T, size = heads.shape
    return heads.permute(2, 0, 1, 3).reshape(B, T, n_head * size)


@wrong("merge_heads")
def merge_first_text_for_all(heads):
    B, n_head, T, size = heads.shape
    return heads[0].transpose(0, 1).reshape(1, T, n_head * size).repeat(B, 1, 1)


@wrong("merge_heads")
def merge_channels_backwards_in_each_head(heads):
    return torch.cat(heads.flip(-1).unbind(dim=1), dim=-1)


@wrong("merge_heads")
def merge_tokens_backwards(heads):
    return heads.flip(2).transpose(1, 2).flatten(2)


# multi_head_forward


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


@right("multi_head_forward")
def multi_by_the_module_called_with_the_weights(x, W_qkv, W_proj, n_head, mask):
    module = package.MultiHeadAttention(x.shape[-1], n_head)
    weights = {"c_attn.weight": W_qkv, "c_proj.weight": W_proj}
    return torch.func.functional_call(module, weights, (x, mask))[0]


@wrong("multi_head_forward", "detached")
def multi_by_the_module_of_the_notebook(x, W_qkv, W_proj, n_head, mask):
    module = package.MultiHeadAttention(x.shape[-1], n_head)
    module.load_state_dict({"c_attn.weight": W_qkv, "c_proj.weight": W_proj})
    return module(x, mask)[0].detach()


def _qkv(x, W_qkv, n_head):
    return [p.unflatten(-1, (n_head, -1)).transpose(1, 2) for p in F.linear(x, W_qkv).chunk(3, dim=-1)]


def _merged(heads):
    return torch.cat(heads.unbind(1), dim=-1)


def _weights(q, k, mask, scale=None, dim=-1):
    scores = q @ k.mT / (q.shape[-1] ** 0.5 if scale is None else scale)
    return F.softmax(scores.masked_fill(mask.logical_not(), -math.inf), dim=dim)


def _attend(q, k, v, mask, scale=None):
    return _weights(q, k, mask, scale).nan_to_num() @ v


@right("multi_head_forward")
def multi_by_unflatten_and_cat(x, W_qkv, W_proj, n_head, mask):
    return F.linear(_merged(_attend(*_qkv(x, W_qkv, n_head), mask)), W_proj)


@right("multi_head_forward")
def multi_by_pytorch(x, W_qkv, W_proj, n_head, mask):
    out = F.scaled_dot_product_attention(*_qkv(x, W_qkv, n_head), attn_mask=mask)
    return _merged(out) @ W_proj.T


@wrong("multi_head_forward", "view_without_transpose")
def multi_split_by_reshape(x, W_qkv, W_proj, n_head, mask):
    q, k, v = (p.reshape(len(x), n_head, x.shape[1], -1) for p in F.linear(x, W_qkv).chunk(3, dim=-1))
    return _merged(_attend(q, k, v, mask)) @ W_proj.T


@wrong("multi_head_forward", "view_without_transpose")
def multi_split_by_a_view_that_pytorch_refuses(x, W_qkv, W_proj, n_head, mask):
    B, T, C = x.shape
    q, k, v = (p.view(B, n_head, T, C // n_head) for p in F.linear(x, W_qkv).chunk(3, dim=-1))
    return _merged(_attend(q, k, v, mask)) @ W_proj.T


@wrong("multi_head_forward", "merged_without_transpose")
def multi_merged_by_cat_along_time(x, W_qkv, W_proj, n_head, mask):
    out = _attend(*_qkv(x, W_qkv, n_head), mask)
    return torch.cat(out.unbind(1), dim=1).view(x.shape) @ W_proj.T


@wrong("multi_head_forward", "heads_interleaved")
def multi_every_nth_channel(x, W_qkv, W_proj, n_head, mask):
    q, k, v = (
        torch.stack([p[..., h::n_head] for h in range(n_head)], dim=1)
        for p in F.linear(x, W_qkv).chunk(3, dim=-1)
    )
    return _merged(_attend(q, k, v, mask)) @ W_proj.T


@wrong("multi_head_forward", "softmax_over_heads", "fully_masked_row_is_nan")
def multi_softmax_over_heads_with_nan(x, W_qkv, W_proj, n_head, mask):
    q, k, v = _qkv(x, W_qkv, n_head)
    return _merged(_weights(q, k, mask, dim=1) @ v) @ W_proj.T


@wrong("multi_head_forward", "no_output_projection", "scaled_by_n_embd")
def multi_without_projection_scaled_by_the_width_of_x(x, W_qkv, W_proj, n_head, mask):
    return _merged(_attend(*_qkv(x, W_qkv, n_head), mask, scale=x.shape[-1] ** 0.5))


@wrong("multi_head_forward", "part_used_twice")
def multi_queries_used_as_keys(x, W_qkv, W_proj, n_head, mask):
    q, _, v = _qkv(x, W_qkv, n_head)
    return _merged(_attend(q, q, v, mask)) @ W_proj.T


@wrong("multi_head_forward", "always_causal")
def multi_causal_whatever_the_mask_is(x, W_qkv, W_proj, n_head, mask):
    out = F.scaled_dot_product_attention(*_qkv(x, W_qkv, n_head), is_causal=True)
    return _merged(out) @ W_proj.T


@wrong("multi_head_forward", "zero_in_place_of_inf")
def multi_hidden_scores_are_zero(x, W_qkv, W_proj, n_head, mask):
    q, k, v = _qkv(x, W_qkv, n_head)
    scores = (q @ k.mT * q.shape[-1] ** -0.5) * mask
    return _merged(torch.softmax(scores, dim=-1) @ v) @ W_proj.T


@wrong("multi_head_forward", "one_head")
def multi_scores_of_all_heads_shared(x, W_qkv, W_proj, n_head, mask):
    q, k, v = _qkv(x, W_qkv, n_head)
    scores = torch.einsum("bhtd,bhsd->bts", q, k) * q.shape[-1] ** -0.5
    weights = scores.masked_fill(~mask, -math.inf).softmax(dim=-1).nan_to_num()
    return _merged(weights[:, None] @ v) @ W_proj.T


@wrong("multi_head_forward")
def multi_that_refuses_a_query_that_sees_nothing(x, W_qkv, W_proj, n_head, mask):
    assert mask.any(dim=-1).all()
    return multi_by_rung_4(x, W_qkv, W_proj, n_head, mask)


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


# fuse_heads


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
def fuse_by_unpacking(W_q, W_k, W_v):
    return torch.cat([*W_q, *W_k, *W_v])


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


@wrong("fuse_heads", "head_after_head")
def fuse_stacked_behind_the_heads(W_q, W_k, W_v):
    return torch.stack([W_q, W_k, W_v], dim=1).flatten(0, 2)


@wrong("fuse_heads", "heads_overlap")
def fuse_a_loop_that_overwrites(W_q, W_k, W_v):
    n_head, size, C = W_q.shape
    fused = W_q.new_zeros(3 * C, C)
    for p, W in enumerate((W_q, W_k, W_v)):
        for h in range(n_head):
            fused[p * C : p * C + size] = W[h]
    return fused


@wrong("fuse_heads")
def fuse_with_the_scale_in_the_queries(W_q, W_k, W_v):
    return torch.cat([W_q * W_q.shape[1] ** -0.5, W_k, W_v]).flatten(0, 1)


@wrong("fuse_heads")
def fuse_first_head_for_all(W_q, W_k, W_v):
    return torch.cat([W[0].repeat(len(W), 1) for W in (W_q, W_k, W_v)])


@wrong("fuse_heads")
def fuse_by_permuting_columns_first(W_q, W_k, W_v):
    C = W_q.shape[-1]
    return torch.cat([W.permute(1, 2, 0).reshape(C, C) for W in (W_q, W_k, W_v)])


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
