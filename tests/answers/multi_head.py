"""Answers to the exercises of rung 7."""

import math

import numpy as np
import torch
from torch.nn import functional as F

from answers import right, wrong
from attention_course import attention as package

# split_heads

right(
    "split_heads",
    split_by_unflatten_and_permute=lambda x, n_head: x.unflatten(-1, (n_head, -1)).permute(0, 2, 1, 3),
)


@right("split_heads")
def split_by_chunks(x, n_head):
    return torch.stack(x.chunk(n_head, dim=-1), dim=1)


@right("split_heads")
def split_by_loops(x, n_head):
    out = x.new_empty(len(x), n_head, x.shape[1], x.shape[2] // n_head)
    for h, part in enumerate(x.split(x.shape[2] // n_head, dim=2)):
        out[:, h] = part
    return out


@wrong("split_heads", "detached")
def split_in_numpy(x, n_head):
    return torch.from_numpy(np.stack(np.split(x.numpy(), n_head, axis=2), axis=1))


wrong(
    "split_heads",
    split_first_text_only=lambda x, n_head: split_by_chunks(x[:1], n_head).expand(len(x), -1, -1, -1),
    split_stacked_behind_the_tokens_then_viewed=lambda x, n_head: torch.stack(
        x.chunk(n_head, dim=-1), dim=-1
    ).reshape(len(x), n_head, x.shape[1], -1),
    split_batch_and_tokens_swapped=lambda x, n_head: x.reshape(x.shape[1], len(x), n_head, -1).permute(
        1, 2, 0, 3
    ),
)


# merge_heads

right(
    "merge_heads",
    merge_by_vmap=lambda heads: torch.vmap(lambda text: torch.hstack(tuple(text)))(heads),
)


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


@wrong("merge_heads", "detached")
def merge_in_numpy(heads):
    return torch.from_numpy(np.concatenate(list(np.moveaxis(heads.numpy(), 1, 0)), axis=-1))


@wrong("merge_heads")
def merge_with_swapped_sizes(heads):
    B, n_head, T, size = heads.shape
    out = heads.new_zeros(B, T, n_head * size)
    for h in range(n_head):
        for d in range(size):
            out[:, :, (h * n_head + d) % (n_head * size)] = heads[:, h, :, d]
    return out


wrong(
    "merge_heads",
    merge_by_view_after_the_transpose=lambda heads: heads.transpose(1, 2).view(
        len(heads), heads.shape[2], -1
    ),
    merge_channels_not_turned_back=lambda heads: heads.reshape(len(heads), -1, heads.shape[2]).transpose(
        1, 2
    ),
)


# multi_head_forward


@right("multi_head_forward")
def multi_by_pytorch(x, W_qkv, W_proj, n_head, mask):
    return _merged(F.scaled_dot_product_attention(*_qkv(x, W_qkv, n_head), attn_mask=mask)) @ W_proj.T


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
def multi_by_the_module_called_with_the_weights(x, W_qkv, W_proj, n_head, mask):
    module = package.MultiHeadAttention(x.shape[-1], n_head)
    weights = {"c_attn.weight": W_qkv, "c_proj.weight": W_proj}
    return torch.func.functional_call(module, weights, (x, mask))


@wrong("multi_head_forward", "detached")
def multi_by_the_module_of_the_notebook(x, W_qkv, W_proj, n_head, mask):
    module = package.MultiHeadAttention(x.shape[-1], n_head)
    module.load_state_dict({"c_attn.weight": W_qkv, "c_proj.weight": W_proj})
    return module(x, mask).detach()


def _qkv(x, W_qkv, n_head):
    return [p.unflatten(-1, (n_head, -1)).transpose(1, 2) for p in F.linear(x, W_qkv).chunk(3, dim=-1)]


def _merged(heads):
    return torch.cat(heads.unbind(1), dim=-1)


def _weights(q, k, mask, scale=None, dim=-1):
    scores = q @ k.mT / (q.shape[-1] ** 0.5 if scale is None else scale)
    return F.softmax(scores.masked_fill(mask.logical_not(), -math.inf), dim=dim)


@wrong("multi_head_forward", "softmax_over_heads", "fully_masked_row_is_nan")
def multi_softmax_over_heads_with_nan(x, W_qkv, W_proj, n_head, mask):
    q, k, v = _qkv(x, W_qkv, n_head)
    return _merged(_weights(q, k, mask, dim=1) @ v) @ W_proj.T


@wrong("multi_head_forward")
def multi_that_refuses_a_query_that_sees_nothing(x, W_qkv, W_proj, n_head, mask):
    assert mask.any(dim=-1).all()
    return multi_by_rung_4(x, W_qkv, W_proj, n_head, mask)


@wrong("multi_head_forward")
def multi_exp_overflows(x, W_qkv, W_proj, n_head, mask):
    q, k, v = _qkv(x, W_qkv, n_head)
    heights = (q @ k.mT * q.shape[-1] ** -0.5).exp() * mask
    return _merged(heights / heights.sum(dim=-1, keepdim=True).clamp(min=1e-30) @ v) @ W_proj.T


# fuse_heads

right(
    "fuse_heads",
    fuse_by_stack_and_flatten=lambda W_q, W_k, W_v: torch.stack((W_q, W_k, W_v)).flatten(0, 2),
    fuse_column_by_column_with_vmap=lambda W_q, W_k, W_v: torch.vmap(
        lambda *ws: torch.cat([w.flatten() for w in ws]), in_dims=2, out_dims=1
    )(W_q, W_k, W_v),
)


@right("fuse_heads")
def fuse_in_numpy(W_q, W_k, W_v):
    parts = [W.detach().numpy().reshape(-1, W.shape[-1]) for W in (W_q, W_k, W_v)]
    return torch.tensor(np.concatenate(parts, axis=0))


wrong(
    "fuse_heads",
    fuse_with_the_scale_in_the_queries=lambda W_q, W_k, W_v: torch.cat(
        [W_q * W_q.shape[1] ** -0.5, W_k, W_v]
    ).flatten(0, 1),
    fuse_first_head_for_all=lambda *Ws: torch.cat([W[0].repeat(len(W), 1) for W in Ws]),
    fuse_by_permuting_columns_first=lambda *Ws: torch.cat(
        [W.permute(1, 2, 0).reshape(-1, W.shape[-1]) for W in Ws]
    ),
    fuse_stacked_behind_the_columns=lambda *Ws: torch.stack(Ws, dim=-1).reshape(-1, Ws[0].shape[-1]),
)
