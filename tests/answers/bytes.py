"""Answers to the exercises of bytes."""

import torch

from answers import right, wrong


@right("online_softmax")
def online_kept_divided(blocks):
    """Keep a mean: multiply by the old total, and divide by the new one (FlashAttention, algorithm 1)."""
    m, total, out = torch.tensor(-1e30), torch.tensor(0.0), 0.0
    for s, v in blocks:
        new = torch.maximum(m, s.max())
        old = total * (m - new).exp()
        total = old + (s - new).exp().sum()
        out = (out * old + (s - new).exp() @ v) / total
        m = new
    return out


@wrong("online_softmax", "one_block_held")
def online_with_a_view_of_a_block(blocks):
    m, num, den = torch.tensor(-torch.inf), 0.0, 0.0
    for scores, values in blocks:
        new = max(m, max(scores))
        e = (scores - new).exp()
        num, den, m = num * (m - new).exp() + e @ values, den * (m - new).exp() + e.sum(), new
    return num / den


@wrong("online_softmax", "all_blocks_held")
def online_of_a_list(blocks):
    scores, values = (torch.cat(parts) for parts in zip(*list(blocks), strict=True))
    return scores.softmax(dim=0) @ values


wrong("online_softmax", online_by_index=lambda blocks: blocks[0][0].softmax(0) @ blocks[0][1])
