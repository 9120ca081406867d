"""Answers to the exercises of rung 7."""

import torch
from torch.nn import functional as F

from answers import right, wrong
from answers.query_key_value import weights_by_logsumexp
from attention_course import attention as package

right(
    "split_heads",
    split_by_unflatten_and_permute=lambda x, n_head: x.unflatten(-1, (n_head, -1)).permute(0, 2, 1, 3),
)
wrong(
    "split_heads",
    split_first_text_only=lambda x, n_head: (
        x[:1].unflatten(-1, (n_head, -1)).transpose(1, 2).expand(len(x), -1, -1, -1)
    ),
    split_stacked_behind_the_tokens_then_viewed=lambda x, n_head: torch.stack(
        x.chunk(n_head, dim=-1), dim=-1
    ).reshape(len(x), n_head, x.shape[1], -1),
    split_batch_and_tokens_swapped=lambda x, n_head: x.reshape(x.shape[1], len(x), n_head, -1).permute(
        1, 2, 0, 3
    ),
)


@wrong("merge_heads")
def merge_with_swapped_sizes(heads):
    B, n_head, T, size = heads.shape
    out = heads.new_zeros(B, T, n_head * size)
    for h in range(n_head):
        for d in range(size):
            out[:, :, (h * n_head + d) % (n_head * size)] = heads[:, h, :, d]
    return out


right("merge_heads", merge_by_vmap=lambda heads: torch.vmap(lambda text: torch.hstack(tuple(text)))(heads))
wrong(
    "merge_heads",
    merge_by_view_after_the_transpose=lambda heads: heads.transpose(1, 2).view(
        len(heads), heads.shape[2], -1
    ),
    merge_channels_not_turned_back=lambda heads: heads.reshape(len(heads), -1, heads.shape[2]).transpose(
        1, 2
    ),
)


@right("multi_head_forward")
def multi_by_the_module_called_with_the_weights(x, W_qkv, W_proj, n_head, mask):
    module = package.MultiHeadAttention(x.shape[-1], n_head)
    weights = {"c_attn.weight": W_qkv, "c_proj.weight": W_proj}
    return torch.func.functional_call(module, weights, (x, mask))


def _qkv(x, W_qkv, n_head):
    return [p.unflatten(-1, (n_head, -1)).transpose(1, 2) for p in F.linear(x, W_qkv).chunk(3, dim=-1)]


def _merged(heads):
    return torch.cat(heads.unbind(1), dim=-1)


@wrong("multi_head_forward")
def multi_that_refuses_a_query_that_sees_nothing(x, W_qkv, W_proj, n_head, mask):
    assert mask.any(dim=-1).all()
    return multi_by_the_module_called_with_the_weights(x, W_qkv, W_proj, n_head, mask)


@wrong("multi_head_forward")
def multi_exp_overflows(x, W_qkv, W_proj, n_head, mask):
    q, k, v = _qkv(x, W_qkv, n_head)
    heights = (q @ k.mT * q.shape[-1] ** -0.5).exp() * mask
    return _merged(heights / heights.sum(dim=-1, keepdim=True).clamp(min=1e-30) @ v) @ W_proj.T


@right("multi_head_forward")
def multi_by_logsumexp(x, W_qkv, W_proj, n_head, mask):
    q, k, v = _qkv(x, W_qkv, n_head)
    return _merged(weights_by_logsumexp(q, k, mask) @ v) @ W_proj.T


right(
    "fuse_heads", fuse_by_stack_and_flatten=lambda W_q, W_k, W_v: torch.stack((W_q, W_k, W_v)).flatten(0, 2)
)
wrong(
    "fuse_heads",
    fuse_with_the_scale_in_the_queries=lambda W_q, W_k, W_v: torch.cat(
        [W_q * W_q.shape[1] ** -0.5, W_k, W_v]
    ).flatten(0, 1),
    fuse_first_head_for_all=lambda *Ws: torch.cat([W[0].repeat(len(W), 1) for W in Ws]),
    fuse_stacked_behind_the_columns=lambda *Ws: torch.stack(Ws, dim=-1).reshape(-1, Ws[0].shape[-1]),
    fuse_in_half_precision=lambda *Ws: torch.cat(Ws).flatten(0, 1).half().float(),
)
