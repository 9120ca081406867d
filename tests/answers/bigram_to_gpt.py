"""Answers to the exercises of rung 8."""

import math
from functools import reduce

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from answers import right, wrong

# ----------------------------------------------------------------------- get_batch


@right("get_batch")
def batch_by_list_and_stack(ids, block_size, starts):
    x = torch.stack([ids[i : i + block_size] for i in starts])
    y = torch.stack([ids[i + 1 : i + 1 + block_size] for i in starts])
    return torch.stack([x, y])


@right("get_batch")
def batch_by_chunks(ids, block_size, starts):
    chunks = torch.stack([ids[i : i + block_size + 1] for i in starts.tolist()])
    return torch.stack([chunks[:, :-1], chunks[:, 1:]])


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
    both = np.take(ids.numpy(), np.add.outer(starts.numpy(), np.arange(block_size + 1)))
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


@wrong("get_batch", "targets_shifted_back")
def batch_targets_before_by_slices(ids, block_size, starts):
    return torch.stack([_blocks(ids, block_size, starts), _blocks(ids, block_size, starts - 1)])


@wrong("get_batch", "targets_two_steps_later")
def batch_targets_two_steps_later_by_slices(ids, block_size, starts):
    return torch.stack([_blocks(ids, block_size, starts), _blocks(ids[1:], block_size, starts + 1)])


@wrong("get_batch", "last_step_not_taken")
def batch_chunk_of_block_size(ids, block_size, starts):
    chunk = _blocks(ids, block_size, starts)
    return torch.stack([chunk[:, :-1], chunk[:, 1:]])


@wrong("get_batch", "last_step_zero", "starts_one_late")
def batch_one_late_and_zero_at_the_end(ids, block_size, starts):
    x = _blocks(ids, block_size, starts + 1)
    return torch.stack([x, torch.cat([x[:, 1:], x.new_zeros(len(x), 1)], dim=1)])


@wrong("get_batch", "starts_one_late")
def batch_starts_one_late(ids, block_size, starts):
    ids = ids.roll(-1)
    return torch.stack([_blocks(ids, block_size, starts), _blocks(ids.roll(-1), block_size, starts)])


@wrong("get_batch", "one_tensor_for_both")
def batch_written_over(ids, block_size, starts):
    x = y = torch.zeros(len(starts), block_size, dtype=ids.dtype)
    for b, start in enumerate(starts.tolist()):
        x[b] = ids[start : start + block_size]
        y[b] = ids[start + 1 : start + 1 + block_size]
    return torch.stack([x, y])


@wrong("get_batch", "starts_times_block_size")
def batch_starts_count_blocks_by_slices(ids, block_size, starts):
    starts = starts * block_size
    return torch.stack([_blocks(ids, block_size, starts), _blocks(ids, block_size, starts + 1)])


@wrong("get_batch", "stacked_in_each_text")
def batch_by_rows(ids, block_size, starts):
    return torch.stack(
        [torch.stack([ids[i : i + block_size], ids[i + 1 : i + 1 + block_size]]) for i in starts]
    )


@wrong("get_batch", "concatenated", "targets_unshifted")
def batch_of_rows_below_rows(ids, block_size, starts):
    rows = [ids[i : i + block_size] for i in starts.tolist() * 2]
    return torch.stack(rows)


@wrong("get_batch", "view_without_transpose")
def batch_reshaped_from_the_wrong_order(ids, block_size, starts):
    parts = [_blocks(ids, block_size, starts), _blocks(ids, block_size, starts + 1)]
    return torch.stack(parts, dim=1).reshape(2, len(starts), block_size)


@wrong("get_batch")
def batch_consecutive_from_the_first_start(ids, block_size, starts):
    places = starts[0] + torch.arange(len(starts))[:, None] + torch.arange(block_size)
    places = places.clamp(max=len(ids) - 2)
    return torch.stack([ids[places], ids[places + 1]])


@wrong("get_batch")
def batch_starts_sorted(ids, block_size, starts):
    return batch_by_chunks(ids, block_size, starts.sort().values)


@wrong("get_batch")
def batch_last_possible_start_is_never_used(ids, block_size, starts):
    return batch_by_chunks(ids, block_size, starts.clamp(max=max(len(ids) - block_size - 2, 0)))


@wrong("get_batch")
def batch_of_floats(ids, block_size, starts):
    out = torch.zeros(2, len(starts), block_size)
    out[0], out[1] = _blocks(ids, block_size, starts), _blocks(ids, block_size, starts + 1)
    return out


@wrong("get_batch")
def batch_ids_are_cut_to_bytes(ids, block_size, starts):
    return batch_by_chunks(ids, block_size, starts).to(torch.uint8).long()


@wrong("get_batch")
def batch_target_of_the_last_token_wraps_to_the_first(ids, block_size, starts):
    places = starts[:, None] + torch.arange(block_size)
    return torch.stack([ids[places], ids[(places + 1) % (len(ids) - 1)]])


@wrong("get_batch")
def batch_each_start_once(ids, block_size, starts):
    return batch_by_chunks(ids, block_size, torch.tensor(list(dict.fromkeys(starts.tolist()))))


# -------------------------------------------------------------- cross_entropy_loss


@right("cross_entropy_loss")
def loss_by_cross_entropy(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


@right("cross_entropy_loss")
def loss_by_cross_entropy_transposed(logits, targets):
    return F.cross_entropy(logits.transpose(1, 2), targets)


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


@right("cross_entropy_loss")
def loss_by_a_boolean_index(logits, targets):
    return -logits.log_softmax(-1)[F.one_hot(targets, logits.shape[-1]) == 1].mean()


@right("cross_entropy_loss")
def loss_row_by_row(logits, targets):
    total = 0
    for row, target in zip(logits.flatten(0, 1), targets.flatten(), strict=True):
        row = row - row.max()
        total = total + row.exp().sum().log() - row[target]
    return total / targets.numel()


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


def _probability(logits, targets):
    return _true(torch.softmax(logits, dim=-1), targets)


@wrong("cross_entropy_loss", "detached")
def loss_by_loops_in_python(logits, targets):
    losses = []
    for rows, trues in zip(logits.tolist(), targets.tolist(), strict=True):
        for row, true in zip(rows, trues, strict=True):
            top = max(row)
            losses.append(top + math.log(sum(math.exp(s - top) for s in row)) - row[true])
    return torch.tensor(sum(losses) / len(losses))


@wrong("cross_entropy_loss", "softmax_before_cross_entropy", "sum_over_time")
def loss_softmax_first_summed_over_time(logits, targets):
    losses = F.cross_entropy(logits.softmax(-1).transpose(1, 2), targets, reduction="none")
    return losses.sum(dim=1).mean()


@wrong("cross_entropy_loss", "view_without_transpose")
def loss_viewed(logits, targets):
    B, T, V = logits.shape
    return F.cross_entropy(logits.view(B, V, T), targets)


@wrong("cross_entropy_loss", "log_of_zero")
def loss_by_probabilities(logits, targets):
    return -_probability(logits, targets).log().mean()


@wrong("cross_entropy_loss", "no_minus", "log_of_zero")
def loss_by_probabilities_without_minus(logits, targets):
    return _probability(logits, targets).log().mean()


@wrong("cross_entropy_loss", "sum_in_place_of_mean", "log_of_zero")
def loss_by_probabilities_summed(logits, targets):
    return -_probability(logits, targets).log().sum()


@wrong("cross_entropy_loss", "bits_in_place_of_nats", "log_of_zero")
def loss_by_probabilities_in_bits(logits, targets):
    return -_probability(logits, targets).log2().mean()


@wrong("cross_entropy_loss", "bits_in_place_of_nats", "one_loss_for_each_position")
def loss_of_each_position_in_bits(logits, targets):
    return -_true(F.log_softmax(logits, dim=-1), targets) / math.log(2)


@wrong("cross_entropy_loss", "one_minus_the_probability")
def loss_of_a_share(logits, targets):
    return (1 - _probability(logits, targets)).mean()


@wrong("cross_entropy_loss", "mean_before_the_log")
def loss_of_the_mean_probability(logits, targets):
    return -_probability(logits, targets).mean().log()


@wrong("cross_entropy_loss", "no_max_subtraction")
def loss_by_exp(logits, targets):
    exp = torch.exp(logits)
    p = exp / exp.sum(dim=-1, keepdim=True)
    return -p.gather(-1, targets[..., None]).log().mean()


@wrong("cross_entropy_loss", "softmax_over_time", "no_max_subtraction")
def loss_by_exp_over_time(logits, targets):
    exp = torch.exp(logits)
    return -_true(exp / exp.sum(dim=1, keepdim=True), targets).log().mean()


@wrong("cross_entropy_loss", "mean_over_the_vocabulary")
def loss_of_one_hot_rows(logits, targets):
    return -(logits.log_softmax(-1) * F.one_hot(targets, logits.shape[-1])).mean()


@wrong("cross_entropy_loss", "one_maximum_for_all")
def loss_one_maximum_for_the_whole_batch(logits, targets):
    heights = (logits - logits.max()).exp()
    return -(_true(heights, targets) / heights.sum(dim=-1)).log().mean()


@wrong("cross_entropy_loss", "epsilon_in_the_log")
def loss_with_a_small_number_in_the_log(logits, targets):
    return -(_probability(logits, targets) + 1e-9).log().mean()


@wrong("cross_entropy_loss", "epsilon_in_the_log")
def loss_with_clamped_probabilities(logits, targets):
    return -_probability(logits, targets).clamp(min=1e-12).log().mean()


@wrong("cross_entropy_loss", "no_minus", "epsilon_in_the_log")
def loss_without_minus_with_a_small_number_in_the_log(logits, targets):
    return torch.log(torch.softmax(logits, dim=-1) + 1e-8).gather(-1, targets[..., None]).mean()


@wrong("cross_entropy_loss")
def loss_with_clamped_logits(logits, targets):
    return -_true(torch.log_softmax(logits.clamp(-80, 80), dim=-1), targets).mean()


@wrong("cross_entropy_loss")
def loss_token_zero_taken_for_padding(logits, targets):
    return -_true(torch.log_softmax(logits, dim=-1), targets)[targets != 0].mean()


@wrong("cross_entropy_loss")
def loss_of_what_the_model_likes_best(logits, targets):
    return -torch.log_softmax(logits, dim=-1).amax(dim=-1).mean()


@wrong("cross_entropy_loss")
def loss_entropy_of_the_model(logits, targets):
    return torch.special.entr(torch.softmax(logits, dim=-1)).sum(dim=-1).mean()


@wrong("cross_entropy_loss")
def loss_targets_in_another_order(logits, targets):
    log_p = torch.log_softmax(logits, dim=-1).transpose(0, 1).flatten(0, 1)
    return -log_p[torch.arange(len(log_p)), targets.flatten()].mean()


@wrong("cross_entropy_loss")
def loss_of_the_first_text(logits, targets):
    return -_true(torch.log_softmax(logits, dim=-1), targets)[0].mean()


@wrong("cross_entropy_loss")
def loss_infinite_ones_left_out(logits, targets):
    losses = -_probability(logits, targets).log()
    return losses[losses.isfinite()].mean()


@wrong("cross_entropy_loss")
def loss_not_a_number_taken_for_zero(logits, targets):
    heights = logits.exp()
    return -(_true(heights, targets) / heights.sum(dim=-1)).log().nan_to_num(0, 0, 0).mean()


# --------------------------------------------------------------------------- embed


@right("embed")
def embed_by_functions(ids, wte, wpe):
    return F.embedding(ids, wte).add(F.embedding(torch.arange(ids.size(-1)), wpe))


@right("embed")
def embed_by_modules(ids, wte, wpe):
    tokens, positions = (
        torch.func.functional_call(nn.Embedding(*table.shape), {"weight": table}, which)
        for table, which in ((wte, ids), (wpe, torch.arange(ids.shape[-1])))
    )
    return tokens + positions


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


@right("embed")
def embed_in_one_table(ids, wte, wpe):
    places = (len(wte) + torch.arange(ids.shape[1])).expand_as(ids)
    pairs = torch.stack([ids, places], -1).flatten(0, 1)
    return F.embedding_bag(pairs, torch.cat([wte, wpe]), mode="sum").view(*ids.shape, -1)


@wrong("embed", "detached")
def embed_in_numpy(ids, wte, wpe):
    table, places = wte.detach().numpy(), wpe.detach().numpy()
    return torch.from_numpy(table.take(ids.numpy(), axis=0) + places[np.newaxis, : ids.shape[1]])


@wrong("embed", "position_of_the_token")
def embed_position_of_the_id(ids, wte, wpe):
    return wte[ids] + wpe[ids % len(wpe)]


@wrong("embed", "position_of_the_token", "multiplied")
def embed_product_of_two_rows_of_the_id(ids, wte, wpe):
    return F.embedding(ids, wte) * F.embedding(ids, wpe)


@wrong("embed", "positions_from_1")
def embed_positions_from_one(ids, wte, wpe):
    return wte[ids] + wpe.roll(-1, dims=0)[: ids.shape[1]]


@wrong("embed", "positions_from_1", "averaged")
def embed_mean_with_positions_from_one(ids, wte, wpe):
    return torch.stack([wte[ids], wpe[torch.arange(ids.shape[1]) + 1].expand(*ids.shape, -1)]).mean(dim=0)


@wrong("embed")
def embed_positions_backwards(ids, wte, wpe):
    return wte[ids] + wpe[: ids.shape[1]].flip(0)


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
def embed_needs_a_row_to_spare(ids, wte, wpe):
    return wte[ids] + wpe[:-1][: ids.shape[1]]


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
def block_by_a_loop(x, attn, mlp, ln_1, ln_2):
    for norm, part in ((ln_1, attn), (ln_2, mlp)):
        x = torch.add(x, part(norm(x)))
    return x


@right("pre_norm_block")
def block_in_place_on_a_copy(x, attn, mlp, ln_1, ln_2):
    x = x.clone()
    x += attn(ln_1(x))
    x += mlp(ln_2(x))
    return x


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
            return x + reduce(lambda y, function: function(y), self.functions, x)

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


@wrong("pre_norm_block", "no_second_residual", "norms_swapped")
def block_that_returns_the_last_step_with_norms_swapped(x, attn, mlp, ln_1, ln_2):
    return mlp(ln_1(x + attn(ln_2(x))))


@wrong("pre_norm_block", "post_norm", "mlp_first")
def block_of_2017_mlp_first(x, attn, mlp, ln_1, ln_2):
    x = ln_2(x + mlp(x))
    return ln_1(x + attn(x))


@wrong("pre_norm_block", "norm_on_the_residual_path")
def block_normed_residual_of_attention_only(x, attn, mlp, ln_1, ln_2):
    x = ln_1(x)
    x = x + attn(x)
    return x + mlp(ln_2(x))


@wrong("pre_norm_block", "norm_on_the_residual_path", "attention_alone")
def block_of_attention_with_normed_residual(x, attn, mlp, ln_1, ln_2):
    x = ln_1(x)
    return x + attn(x)


@wrong("pre_norm_block", "no_first_norm", "attention_alone")
def block_of_attention_without_norm(x, attn, mlp, ln_1, ln_2):
    return x + attn(x)


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
def block_normed_at_the_end_too(x, attn, mlp, ln_1, ln_2):
    return ln_2(block_by_a_loop(x, attn, mlp, ln_1, ln_2))


@wrong("pre_norm_block")
def block_attention_among_texts(x, attn, mlp, ln_1, ln_2):
    x = x + attn(ln_1(x).transpose(0, 1)).transpose(0, 1)
    return x + mlp(ln_2(x))


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
        logits = model(torch.tensor(text[max(0, len(text) - block_size) :]))[-1]
        sums = torch.cumsum(F.softmax(logits.double(), dim=0), dim=0)
        text.append(int((sums <= draw).sum()))
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
    sums = model(ids[-block_size:])[-1].double().softmax(0).cumsum(0).to(draws.dtype)
    token = torch.searchsorted(sums, draws[:1], right=True)
    return write_recursively(model, torch.cat([ids, token]), block_size, draws[1:])


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


def _pick(logits, draw):
    return torch.searchsorted(logits.softmax(-1).cumsum(-1), draw, right=True).view(1)


def _write(ids, draws, next_token):
    for draw in draws:
        ids = torch.cat([ids, next_token(ids, draw).view(1)])
    return ids


@wrong("generate", "no_crop", "logits_of_the_first_position")
def write_what_follows_the_beginning(model, ids, block_size, draws):
    return _write(ids, draws, lambda text, draw: _pick(model(text)[0], draw))


@wrong("generate", "crops_the_text")
def write_over_the_text(model, ids, block_size, draws):
    for draw in draws:
        ids = ids[-block_size:]
        ids = torch.cat([ids, _pick(model(ids)[-1], draw)])
    return ids


@wrong("generate", "crops_the_text", "never_fed_back")
def write_all_at_once_after_a_crop(model, ids, block_size, draws):
    ids = ids[-block_size:]
    logits = model(ids)[-1]
    return _write(ids, draws, lambda _, draw: _pick(logits, draw))


@wrong("generate", "argmax_for_sampling", "returns_only_the_new_tokens")
def write_the_best_alone(model, ids, block_size, draws):
    return _write(ids, draws, lambda text, _: model(text[-block_size:])[-1].argmax(-1))[len(ids) :]


@wrong("generate", "one_token_too_early")
def write_what_has_just_been_written(model, ids, block_size, draws):
    return _write(ids, draws, lambda text, draw: _pick(model(text[:-1][-block_size:])[-1], draw))


@wrong("generate", "no_softmax")
def write_with_sums_of_logits(model, ids, block_size, draws):
    def next_token(text, draw):
        return (model(text[-block_size:])[-1].cumsum(-1) <= draw).sum()

    return _write(ids, draws, next_token)


@wrong("generate", "not_normalised")
def write_with_sums_of_exps(model, ids, block_size, draws):
    def next_token(text, draw):
        return torch.searchsorted(model(text[-block_size:])[-1].exp().cumsum(-1), draw)

    return _write(ids, draws, next_token)


@wrong("generate", "first_sum_that_reaches_the_draw")
def write_into_a_buffer_by_left_search(model, ids, block_size, draws):
    out = torch.zeros(len(ids) + len(draws), dtype=ids.dtype)
    out[: len(ids)] = ids
    for t in range(len(ids), len(out)):
        logits = model(out[max(0, t - block_size) : t])
        out[t] = torch.searchsorted(logits.softmax(1).cumsum(1)[-1], draws[t - len(ids)])
    return out


@wrong("generate")
def write_with_draws_in_reverse(model, ids, block_size, draws):
    return write_as_told(model, ids, block_size, draws.flip(0))


@wrong("generate")
def write_counting_from_the_end(model, ids, block_size, draws):
    return write_as_told(model, ids, block_size, 1 - draws)


@wrong("generate")
def write_by_chances_of_its_own(model, ids, block_size, draws):
    own = torch.Generator().manual_seed(1)
    return _write(
        ids,
        draws,
        lambda text, _: torch.multinomial(model(text[-block_size:])[-1].softmax(-1), 1, generator=own),
    )


@wrong("generate")
def write_the_token_nearest_to_the_draw(model, ids, block_size, draws):
    def next_token(text, draw):
        return (model(text[-block_size:])[-1].softmax(-1).cumsum(-1) - draw).abs().argmin()

    return _write(ids, draws, next_token)


@wrong("generate")
def write_in_front(model, ids, block_size, draws):
    for draw in draws:
        ids = torch.cat([_pick(model(ids[-block_size:])[-1], draw), ids])
    return ids


@wrong("generate")
def write_cropped_by_the_prompt_length(model, ids, block_size, draws):
    return write_as_told(model, ids, min(len(ids), block_size), draws)


@wrong("generate")
def write_only_while_there_is_room(model, ids, block_size, draws):
    return write_as_told(model, ids, block_size, draws[: max(0, block_size - len(ids))])


@wrong("generate")
def write_in_blocks_that_begin_anew(model, ids, block_size, draws):
    def next_token(text, draw):
        begin = (len(text) - 1) // block_size * block_size
        return _pick(model(text[begin:])[-1], draw)

    return _write(ids, draws, next_token)


@wrong("generate")
def write_with_a_running_sum_over_the_whole_text(model, ids, block_size, draws):
    def next_token(text, draw):
        p = torch.softmax(model(text[-block_size:]), dim=-1).mean(dim=0)
        return torch.searchsorted(p.cumsum(dim=-1), draw, right=True).clamp(max=len(p) - 1)

    return _write(ids, draws, next_token)
