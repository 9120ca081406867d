"""Answers to the exercises of rung 8."""

import math
from functools import reduce

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from answers import right, wrong

# get_batch


@right("get_batch")
def batch_by_index(ids, block_size, starts):
    return ids[torch.arange(2)[:, None, None] + starts[:, None] + torch.arange(block_size)]


@right("get_batch")
def batch_by_chunks(ids, block_size, starts):
    chunks = torch.stack([ids[i : i + block_size + 1] for i in starts.tolist()])
    return torch.stack([chunks[:, :-1], chunks[:, 1:]])


@right("get_batch")
def batch_in_numpy(ids, block_size, starts):
    both = np.take(ids.numpy(), np.add.outer(starts.numpy(), np.arange(block_size + 1)))
    return torch.from_numpy(np.array([both[:, :-1], both[:, 1:]]))


@right("get_batch")
def batch_by_vmap(ids, block_size, starts):
    places = torch.arange(block_size)
    return torch.vmap(lambda i: torch.stack([ids[i + places], ids[i + places + 1]]), out_dims=1)(starts)


def _blocks(ids, block_size, starts):
    return torch.stack([ids[i : i + block_size] for i in starts.tolist()])


@wrong("get_batch", "targets_shifted_back")
def batch_targets_before_by_slices(ids, block_size, starts):
    return torch.stack([_blocks(ids, block_size, starts), _blocks(ids, block_size, starts - 1)])


@wrong("get_batch", "last_step_zero", "starts_one_late")
def batch_one_late_and_zero_at_the_end(ids, block_size, starts):
    x = _blocks(ids, block_size, starts + 1)
    return torch.stack([x, torch.cat([x[:, 1:], x.new_zeros(len(x), 1)], dim=1)])


@wrong("get_batch", "concatenated", "targets_unshifted")
def batch_of_rows_below_rows(ids, block_size, starts):
    return _blocks(ids, block_size, starts.repeat(2))


@wrong("get_batch", "view_without_transpose")
def batch_reshaped_from_the_wrong_order(ids, block_size, starts):
    batch = batch_by_chunks(ids, block_size, starts)
    return batch.transpose(0, 1).reshape(batch.shape)


@wrong("get_batch")
def batch_consecutive_from_the_first_start(ids, block_size, starts):
    places = starts[0] + torch.arange(len(starts))[:, None] + torch.arange(block_size)
    places = places.clamp(max=len(ids) - 2)
    return torch.stack([ids[places], ids[places + 1]])


@wrong("get_batch")
def batch_target_of_the_last_token_wraps_to_the_first(ids, block_size, starts):
    places = starts[:, None] + torch.arange(block_size)
    return torch.stack([ids[places], ids[(places + 1) % (len(ids) - 1)]])


wrong(
    "get_batch",
    batch_starts_sorted=lambda ids, block_size, starts: batch_by_chunks(
        ids, block_size, starts.sort().values
    ),
    batch_last_possible_start_is_never_used=lambda ids, block_size, starts: batch_by_chunks(
        ids, block_size, starts.clamp(max=max(len(ids) - block_size - 2, 0))
    ),
    batch_of_floats=lambda ids, block_size, starts: batch_by_chunks(ids, block_size, starts).float(),
    batch_ids_are_cut_to_bytes=lambda ids, block_size, starts: (
        batch_by_chunks(ids, block_size, starts).to(torch.uint8).long()
    ),
    batch_each_start_once=lambda ids, block_size, starts: batch_by_chunks(
        ids, block_size, torch.tensor(list(dict.fromkeys(starts.tolist())))
    ),
)


# cross_entropy_loss

right(
    "cross_entropy_loss",
    loss_by_cross_entropy=lambda logits, targets: F.cross_entropy(logits.flatten(0, 1), targets.flatten()),
)


@right("cross_entropy_loss")
def loss_by_log_softmax_and_gather(logits, targets):
    return -logits.log_softmax(dim=-1).gather(-1, targets[..., None]).mean()


@right("cross_entropy_loss")
def loss_by_one_hot_and_einsum(logits, targets):
    shifted = logits - logits.amax(dim=-1, keepdim=True)
    log_p = shifted - shifted.exp().sum(dim=-1, keepdim=True).log()
    return -torch.einsum("btv,btv->", F.one_hot(targets, logits.shape[-1]).to(log_p), log_p) / targets.numel()


@right("cross_entropy_loss")
def loss_row_by_row(logits, targets):
    total = 0
    for row, target in zip(logits.flatten(0, 1), targets.flatten(), strict=True):
        row = row - row.max()
        total = total + row.exp().sum().log() - row[target]
    return total / targets.numel()


@right("cross_entropy_loss")
def loss_by_vmap(logits, targets):
    of_a_text = torch.vmap(lambda row, true: torch.logsumexp(row - row.gather(0, true[None]), dim=0))
    return torch.vmap(of_a_text)(logits, targets).mean()


def _true(table, targets):
    return table.gather(-1, targets[..., None])[..., 0]


def _losses(logits, targets):
    return -_true(logits.log_softmax(dim=-1), targets)


def _probability(logits, targets):
    return _true(torch.softmax(logits, dim=-1), targets)


@wrong("cross_entropy_loss", "detached")
def loss_as_a_python_float(logits, targets):
    return torch.tensor(loss_row_by_row(logits, targets).item())


@wrong("cross_entropy_loss", "softmax_before_cross_entropy", "sum_over_time")
def loss_softmax_first_summed_over_time(logits, targets):
    return F.cross_entropy(logits.softmax(-1).mT, targets, reduction="none").sum(dim=1).mean()


@wrong("cross_entropy_loss", "no_minus", "log_of_zero")
def loss_by_probabilities_without_minus(logits, targets):
    return _probability(logits, targets).log().mean()


@wrong("cross_entropy_loss", "bits_in_place_of_nats", "one_loss_for_each_position")
def loss_of_each_position_in_bits(logits, targets):
    return _losses(logits, targets) / math.log(2)


@wrong("cross_entropy_loss", "no_minus", "epsilon_in_the_log")
def loss_without_minus_with_a_small_number_in_the_log(logits, targets):
    return torch.log(torch.softmax(logits, dim=-1) + 1e-8).gather(-1, targets[..., None]).mean()


@wrong("cross_entropy_loss")
def loss_targets_in_another_order(logits, targets):
    log_p = torch.log_softmax(logits, dim=-1).transpose(0, 1).flatten(0, 1)
    return -log_p[torch.arange(len(log_p)), targets.flatten()].mean()


@wrong("cross_entropy_loss")
def loss_infinite_ones_left_out(logits, targets):
    losses = -_probability(logits, targets).log()
    return losses[losses.isfinite()].mean()


@wrong("cross_entropy_loss")
def loss_not_a_number_taken_for_zero(logits, targets):
    heights = logits.exp()
    return -(_true(heights, targets) / heights.sum(dim=-1)).log().nan_to_num(0, 0, 0).mean()


wrong(
    "cross_entropy_loss",
    loss_with_clamped_logits=lambda logits, targets: _losses(logits.clamp(-80, 80), targets).mean(),
    loss_token_zero_taken_for_padding=lambda logits, targets: _losses(logits, targets)[targets != 0].mean(),
    loss_of_what_the_model_likes_best=lambda logits, targets: -logits.log_softmax(-1).amax(-1).mean(),
    loss_entropy_of_the_model=lambda logits, targets: torch.special.entr(logits.softmax(-1)).sum(-1).mean(),
    loss_of_the_first_text=lambda logits, targets: _losses(logits, targets)[0].mean(),
)


# embed

right(
    "embed",
    embed_by_functions=lambda ids, wte, wpe: F.embedding(ids, wte).add(
        F.embedding(torch.arange(ids.size(-1)), wpe)
    ),
    embed_by_one_hot=lambda ids, wte, wpe: (
        F.one_hot(ids, len(wte)).to(wte) @ wte + torch.eye(ids.shape[1], len(wpe)).to(wpe) @ wpe
    ),
    embed_by_vmap=lambda ids, wte, wpe: torch.vmap(
        lambda text: wte.index_select(0, text) + wpe.narrow(0, 0, len(text))
    )(ids),
)


@right("embed")
def embed_by_modules(ids, wte, wpe):
    tokens, positions = (
        torch.func.functional_call(nn.Embedding(*table.shape), {"weight": table}, which)
        for table, which in ((wte, ids), (wpe, torch.arange(ids.shape[-1])))
    )
    return tokens + positions


@wrong("embed", "detached")
def embed_in_numpy(ids, wte, wpe):
    token = wte.detach().numpy().take(ids.numpy(), axis=0)
    return torch.from_numpy(token + wpe.detach().numpy()[: ids.shape[1]])


@wrong("embed", "positions_from_1", "averaged")
def embed_mean_with_positions_from_one(ids, wte, wpe):
    return torch.stack([wte[ids], wpe[torch.arange(ids.shape[1]) + 1].expand(*ids.shape, -1)]).mean(dim=0)


@wrong("embed", "no_position")
def embed_position_only_for_the_first_text(ids, wte, wpe):
    first = torch.arange(len(ids))[:, None, None] == 0
    return wte[ids] + wpe[: ids.shape[1]] * first


@wrong("embed")
def embed_position_of_the_first_time_a_token_occurs(ids, wte, wpe):
    places = (ids[:, :, None] == ids[:, None, :]).long().argmax(dim=-1)
    return wte[ids] + wpe[places]


wrong(
    "embed",
    embed_positions_backwards=lambda ids, wte, wpe: wte[ids] + wpe[: ids.shape[1]].flip(0),
    embed_tables_swapped=lambda ids, wte, wpe: (
        wpe[ids % len(wpe)] + wte[torch.arange(ids.shape[1]) % len(wte)]
    ),
    embed_positions_added_up=lambda ids, wte, wpe: wte[ids] + wpe[: ids.shape[1]].cumsum(dim=0),
    embed_position_added_twice=lambda ids, wte, wpe: wte[ids] + 2 * wpe[: ids.shape[1]],
    embed_normed=lambda ids, wte, wpe: F.layer_norm(wte[ids] + wpe[: ids.shape[1]], wte.shape[1:]),
    embed_token_zero_taken_for_padding=lambda ids, wte, wpe: (
        torch.where((ids == 0)[..., None], 0.0, wte[ids]) + wpe[: ids.shape[1]]
    ),
    embed_needs_a_row_to_spare=lambda ids, wte, wpe: wte[ids] + wpe[:-1][: ids.shape[1]],
    embed_adds_to_a_view_of_the_table=lambda ids, wte, wpe: torch.stack(
        [wpe[: len(text)].add_(wte[text]) for text in ids]
    ),
)


# pre_norm_block

right(
    "pre_norm_block",
    block_by_reduce=lambda x, attn, mlp, ln_1, ln_2: reduce(
        lambda y, part: y + part(y), [lambda y: attn(ln_1(y)), lambda y: mlp(ln_2(y))], x
    ),
    block_by_vmap_over_texts=lambda x, *parts: torch.vmap(lambda text: block_by_a_loop(text, *parts))(x),
)


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


@wrong("pre_norm_block", "no_second_residual", "norms_swapped")
def block_that_returns_the_last_step_with_norms_swapped(x, attn, mlp, ln_1, ln_2):
    return mlp(ln_1(x + attn(ln_2(x))))


@wrong("pre_norm_block", "norm_on_the_residual_path", "attention_alone")
def block_of_attention_with_normed_residual(x, attn, mlp, ln_1, ln_2):
    return ln_1(x) + attn(ln_1(x))


@wrong("pre_norm_block", "no_first_norm", "attention_alone")
def block_of_attention_without_norm(x, attn, mlp, ln_1, ln_2):
    return x + attn(x)


wrong(
    "pre_norm_block",
    block_changes_the_tokens_of_the_caller=lambda x, *parts: x.copy_(block_by_a_loop(x, *parts)),
    block_attention_twice=lambda x, attn, mlp, ln_1, ln_2: block_by_a_loop(x, attn, attn, ln_1, ln_2),
    block_normed_at_the_end_too=lambda x, attn, mlp, ln_1, ln_2: ln_2(
        block_by_a_loop(x, attn, mlp, ln_1, ln_2)
    ),
)


# generate


@right("generate")
def write_as_told(model, ids, block_size, draws):
    for draw in draws:
        sums = torch.softmax(model(ids[-block_size:])[-1], dim=-1).cumsum(dim=-1)
        token = torch.searchsorted(sums, draw, right=True).clamp(max=len(sums) - 1)
        ids = torch.cat([ids, token.view(1)])
    return ids


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
    sums = model(ids[-block_size:])[-1].softmax(0).cumsum(0)
    ids = torch.cat([ids, torch.searchsorted(sums, draws[:1], right=True)])
    return write_recursively(model, ids, block_size, draws[1:])


@right("generate")
def write_by_numpy(model, ids, block_size, draws):
    text = list(ids.numpy())
    for draw in draws.numpy():
        logits = model(torch.from_numpy(np.array(text[-block_size:])))[-1].numpy()
        heights = np.exp(logits - logits.max())
        sums = np.cumsum(heights / heights.sum())
        text.append(min(np.searchsorted(sums, draw, side="right"), len(sums) - 1))
    return torch.from_numpy(np.array(text, dtype=np.int64))


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
        ids = torch.cat([ids[-block_size:], _pick(model(ids[-block_size:])[-1], draw)])
    return ids


@wrong("generate", "crops_the_text", "never_fed_back")
def write_all_at_once_after_a_crop(model, ids, block_size, draws):
    return _write(ids[-block_size:], draws, lambda _, draw: _pick(model(ids[-block_size:])[-1], draw))


@wrong("generate", "argmax_for_sampling", "returns_only_the_new_tokens")
def write_the_best_alone(model, ids, block_size, draws):
    return _write(ids, draws, lambda text, _: model(text[-block_size:])[-1].argmax(-1))[len(ids) :]


@wrong("generate")
def write_by_chances_of_its_own(model, ids, block_size, draws):
    own = torch.Generator().manual_seed(1)
    return _write(
        ids, draws, lambda t, _: model(t[-block_size:])[-1].softmax(-1).multinomial(1, generator=own)
    )


wrong(
    "generate",
    write_with_draws_in_reverse=lambda model, ids, size, draws: write_as_told(
        model, ids, size, draws.flip(0)
    ),
    write_counting_from_the_end=lambda model, ids, size, draws: write_as_told(model, ids, size, 1 - draws),
    write_cropped_by_the_prompt_length=lambda model, ids, size, draws: write_as_told(
        model, ids, min(len(ids), size), draws
    ),
    write_only_while_there_is_room=lambda model, ids, size, draws: write_as_told(
        model, ids, size, draws[: max(0, size - len(ids))]
    ),
    write_in_blocks_that_begin_anew=lambda model, ids, size, draws: _write(
        ids, draws, lambda t, d: _pick(model(t[(len(t) - 1) // size * size :])[-1], d)
    ),
    write_with_a_running_sum_over_the_whole_text=lambda model, ids, size, draws: _write(
        ids, draws, lambda t, draw: _pick(model(t[-size:]).softmax(-1).mean(0).log(), draw)
    ),
)
