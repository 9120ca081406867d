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


@right("online_softmax")
def online_softmax_of_summaries(blocks):
    """Keep three results of each block, and no block (split-K, as in Flash-Decoding)."""
    tops, totals, sums = [], [], []
    for scores, values in blocks:
        exp = (scores - scores.max()).exp()
        tops.append(scores.max())
        totals.append(exp.sum())
        sums.append(exp @ values)
    factors = (torch.stack(tops) - max(tops)).exp()
    return factors @ torch.stack(sums) / (factors @ torch.stack(totals))


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


@wrong("online_softmax", "all_blocks_held")
def online_by_growing_tensors(blocks):
    all_scores, all_values = torch.zeros(0), None
    for scores, values in blocks:
        all_scores = torch.cat([all_scores, scores])
        all_values = values if all_values is None else torch.cat([all_values, values])
    return all_scores.softmax(dim=0) @ all_values


@wrong("online_softmax", "all_blocks_held")
def online_of_copies(blocks):
    copies = [(scores.clone(), values * 1.0) for scores, values in blocks]
    return torch.cat([s for s, _ in copies]).softmax(dim=0) @ torch.cat([v for _, v in copies])


@wrong("online_softmax", "all_blocks_held")
def online_of_numbers(blocks):
    numbers = [(score, value) for s, v in blocks for score, value in zip(s.tolist(), v.tolist(), strict=True)]
    return torch.tensor([s for s, _ in numbers]).softmax(0) @ torch.tensor([v for _, v in numbers])


@wrong("online_softmax", "all_blocks_held")
def online_with_all_scores_kept(blocks):
    """Keep the scores, which may be large, and only a sum of the values."""
    seen, out = [], 0.0
    for scores, values in blocks:
        before = torch.cat(seen).logsumexp(0) if seen else torch.tensor(-torch.inf)
        seen.append(scores + 0)
        now = torch.cat(seen).logsumexp(0)
        out = out * (before - now).exp() + (scores - now).exp() @ values
    return out


@wrong("online_softmax")
def online_in_the_blocks_themselves(blocks):
    m, total, out = torch.tensor(-torch.inf), 0.0, 0.0
    for scores, values in blocks:
        new = torch.maximum(m, scores.max())
        scores -= new
        values *= scores.exp_()[:, None]
        total = total * (m - new).exp() + scores.sum()
        out, m = out * (m - new).exp() + values.sum(dim=0), new
    return out / total


wrong("online_softmax", online_by_index=lambda blocks: blocks[0][0].softmax(0) @ blocks[0][1])


@right("cache_bytes")
def bytes_of_keys_and_of_values(T, n_layer, n_head, n_kv_head, n_embd, dtype):
    of_a_head = T * (n_embd // n_head) * torch.empty(0, dtype=dtype).element_size()
    keys = values = n_layer * n_kv_head * of_a_head
    return keys + values


@right("cache_bytes")
def bytes_of_real_tensors(T, n_layer, n_head, n_kv_head, n_embd, dtype):
    with torch.device("meta"):
        caches = [torch.empty(2, n_layer, n_kv_head, t, n_embd // n_head, dtype=dtype) for t in T.tolist()]
    return torch.tensor([cache.nbytes for cache in caches])


@wrong("cache_bytes", "every_head_has_keys")
def bytes_of_all_channels(T, n_layer, n_head, n_kv_head, n_embd, dtype):
    return 2 * T * n_layer * n_embd * dtype.itemsize


@wrong("cache_bytes", "always_two_bytes")
def bytes_of_16_bits(T, n_layer, n_head, n_kv_head, n_embd, dtype):
    return 2 * T * n_layer * n_kv_head * (n_embd // n_head) * 2


@wrong("cache_bytes", "keys_alone")
def bytes_of_keys(T, n_layer, n_head, n_kv_head, n_embd, dtype):
    return sum(T * n_kv_head * n_embd // n_head * dtype.itemsize for _ in range(n_layer))


@wrong("cache_bytes")
def bytes_of_all_texts_together(T, n_layer, n_head, n_kv_head, n_embd, dtype):
    return 2 * T.sum() * n_layer * n_kv_head * (n_embd // n_head) * dtype.itemsize


@wrong("cache_bytes")
def head_size_rounded_after(T, n_layer, n_head, n_kv_head, n_embd, dtype):
    return 2 * T * n_layer * (n_kv_head // n_head) * n_embd * dtype.itemsize


@wrong("cache_bytes", "too_large_for_int32")
def bytes_divided_and_made_whole(T, n_layer, n_head, n_kv_head, n_embd, dtype):
    return (2 * T * n_layer * n_kv_head * n_embd / n_head * dtype.itemsize).long().int()


@right("roof")
def roof_by_the_longer_time(flops, moved, most_flops, most_bytes):
    return flops / torch.maximum(flops / most_flops, moved / most_bytes)


@right("roof")
def roof_part_by_part(flops, moved, most_flops, most_bytes):
    return torch.tensor(
        [min(most_flops, f / b * most_bytes) for f, b in zip(flops.tolist(), moved.tolist(), strict=True)]
    )


@wrong("roof", "times_added")
def roof_one_after_the_other(flops, moved, most_flops, most_bytes):
    seconds = flops / most_flops + moved / most_bytes
    return flops / seconds


@wrong("roof", "seconds")
def roof_in_seconds(flops, moved, most_flops, most_bytes):
    return torch.maximum(flops / most_flops, moved / most_bytes)


@wrong("roof", "larger_of_the_two")
def roof_by_the_shorter_time(flops, moved, most_flops, most_bytes):
    return flops / torch.minimum(flops / most_flops, moved / most_bytes)


wrong(
    "cache_bytes",
    bytes_by_a_table_without_float64=lambda T, n_layer, n_head, n_kv_head, n_embd, dtype: (
        2 * T * n_layer * n_kv_head * (n_embd // n_head) * {torch.int8: 1, torch.float32: 4}.get(dtype, 2)
    ),
)
