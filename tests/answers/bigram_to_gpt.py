"""Answers to the exercises of rung 8."""

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


@wrong("get_batch")
def batch_consecutive_from_the_first_start(ids, block_size, starts):
    places = starts[0] + torch.arange(len(starts))[:, None] + torch.arange(block_size)
    places = places.clamp(max=len(ids) - 2)
    return torch.stack([ids[places], ids[places + 1]])


@wrong("get_batch")
def batch_target_of_the_last_token_wraps_to_the_first(ids, block_size, starts):
    places = starts[:, None] + torch.arange(block_size)
    return torch.stack([ids[places], ids[(places + 1) % (len(ids) - 1)]])


# cross_entropy_loss

right(
    "cross_entropy_loss",
    loss_by_cross_entropy=lambda logits, targets: F.cross_entropy(logits.flatten(0, 1), targets.flatten()),
)


@right("cross_entropy_loss")
def loss_by_one_hot_and_einsum(logits, targets):
    shifted = logits - logits.amax(dim=-1, keepdim=True)
    log_p = shifted - shifted.exp().sum(dim=-1, keepdim=True).log()
    return -torch.einsum("btv,btv->", F.one_hot(targets, logits.shape[-1]).to(log_p), log_p) / targets.numel()


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


def _probability(logits, targets):
    return _true(torch.softmax(logits, dim=-1), targets)


@wrong("cross_entropy_loss", "detached")
def loss_as_a_python_float(logits, targets):
    return torch.tensor(loss_row_by_row(logits, targets).item())


@wrong("cross_entropy_loss", "softmax_before_cross_entropy", "sum_over_time")
def loss_softmax_first_summed_over_time(logits, targets):
    return F.cross_entropy(logits.softmax(-1).mT, targets, reduction="none").sum(dim=1).mean()


@wrong("cross_entropy_loss")
def loss_targets_in_another_order(logits, targets):
    log_p = torch.log_softmax(logits, dim=-1).transpose(0, 1).flatten(0, 1)
    return -log_p[torch.arange(len(log_p)), targets.flatten()].mean()


@wrong("cross_entropy_loss")
def loss_infinite_ones_left_out(logits, targets):
    losses = -_probability(logits, targets).log()
    return losses[losses.isfinite()].mean()


# embed

right(
    "embed",
    embed_by_functions=lambda ids, wte, wpe: F.embedding(ids, wte).add(
        F.embedding(torch.arange(ids.size(-1)), wpe)
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


@wrong("embed")
def embed_position_of_the_first_time_a_token_occurs(ids, wte, wpe):
    places = (ids[:, :, None] == ids[:, None, :]).long().argmax(dim=-1)
    return wte[ids] + wpe[places]


wrong(
    "embed",
    embed_positions_backwards=lambda ids, wte, wpe: wte[ids] + wpe[: ids.shape[1]].flip(0),
)


# pre_norm_block

right(
    "pre_norm_block",
    block_by_reduce=lambda x, attn, mlp, ln_1, ln_2: reduce(
        lambda y, part: y + part(y), [lambda y: attn(ln_1(y)), lambda y: mlp(ln_2(y))], x
    ),
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


wrong(
    "pre_norm_block",
    block_changes_the_tokens_of_the_caller=lambda x, *parts: x.copy_(block_by_a_loop(x, *parts)),
    block_attention_twice=lambda x, attn, mlp, ln_1, ln_2: block_by_a_loop(x, attn, attn, ln_1, ln_2),
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
)
