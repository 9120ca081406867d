"""Answers to the exercises of rung 8."""

import numpy as np
import torch
import torch.nn.functional as F

from answers import right, wrong


@right("get_batch")
def batch_in_numpy(ids, block_size, starts):
    both = np.take(ids.numpy(), np.add.outer(starts.numpy(), np.arange(block_size + 1)))
    return torch.from_numpy(np.array([both[:, :-1], both[:, 1:]]))


@wrong("get_batch")
def batch_consecutive_from_the_first_start(ids, block_size, starts):
    places = starts[0] + torch.arange(len(starts))[:, None] + torch.arange(block_size)
    places = places.clamp(max=len(ids) - 2)
    return torch.stack([ids[places], ids[places + 1]])


@wrong("get_batch")
def batch_target_of_the_last_token_wraps_to_the_first(ids, block_size, starts):
    places = starts[:, None] + torch.arange(block_size)
    return torch.stack([ids[places], ids[(places + 1) % (len(ids) - 1)]])


@wrong("get_batch", "another_dtype")
def batch_in_int32(ids, block_size, starts):
    return torch.stack(
        [torch.stack([ids[i + j : i + j + block_size] for i in starts]) for j in range(2)]
    ).int()


@wrong("get_batch", "another_dtype")
def batch_in_int64(ids, block_size, starts):
    places = starts[:, None] + torch.arange(block_size)
    return torch.stack([ids[places], ids[places + 1]]).long()


@right("cross_entropy_loss")
def loss_by_one_hot_and_einsum(logits, targets):
    shifted = logits - logits.amax(dim=-1, keepdim=True)
    log_p = shifted - shifted.exp().sum(dim=-1, keepdim=True).log()
    return -torch.einsum("btv,btv->", F.one_hot(targets, logits.shape[-1]).to(log_p), log_p) / targets.numel()


@wrong("cross_entropy_loss")
def loss_targets_in_another_order(logits, targets):
    log_p = torch.log_softmax(logits, dim=-1).transpose(0, 1).flatten(0, 1)
    return -log_p[torch.arange(len(log_p)), targets.flatten()].mean()


@wrong("cross_entropy_loss")
def loss_infinite_ones_left_out(logits, targets):
    losses = -logits.softmax(-1).gather(-1, targets[..., None]).log()
    return losses[losses.isfinite()].mean()


wrong(
    "cross_entropy_loss",
    loss_of_smoothed_labels=lambda logits, targets: F.cross_entropy(logits.mT, targets, label_smoothing=1e-3),
)


@wrong("embed")
def embed_position_of_the_first_time_a_token_occurs(ids, wte, wpe):
    places = (ids[:, :, None] == ids[:, None, :]).long().argmax(dim=-1)
    return wte[ids] + wpe[places]


right(
    "embed",
    embed_by_vmap=lambda ids, wte, wpe: torch.vmap(
        lambda text: wte.index_select(0, text) + wpe.narrow(0, 0, len(text))
    )(ids),
)
wrong(
    "embed",
    embed_positions_backwards=lambda ids, wte, wpe: wte[ids] + wpe[: ids.shape[1]].flip(0),
    embed_in_half_precision=lambda ids, wte, wpe: (wte[ids] + wpe[: ids.shape[1]]).half().float(),
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


wrong(
    "pre_norm_block",
    block_attention_twice=lambda x, attn, mlp, ln_1, ln_2: block_by_a_loop(x, attn, attn, ln_1, ln_2),
)


@right("generate")
def write_as_told(model, ids, block_size, draws):
    for draw in draws:
        sums = torch.softmax(model(ids[-block_size:])[-1], dim=-1).cumsum(dim=-1)
        token = torch.searchsorted(sums, draw, right=True).clamp(max=len(sums) - 1)
        ids = torch.cat([ids, token.view(1)])
    return ids


@right("generate")
def write_by_numpy(model, ids, block_size, draws):
    text = list(ids.numpy())
    for draw in draws.numpy():
        logits = model(torch.from_numpy(np.array(text[-block_size:])))[-1].numpy()
        heights = np.exp(logits - logits.max())
        sums = np.cumsum(heights / heights.sum())
        text.append(min(np.searchsorted(sums, draw, side="right"), len(sums) - 1))
    return torch.from_numpy(np.array(text, dtype=np.int64))


@wrong("generate")
def write_by_chances_of_its_own(model, ids, block_size, draws):
    own = torch.Generator().manual_seed(1)
    for _ in draws:
        ids = torch.cat([ids, model(ids[-block_size:])[-1].softmax(-1).multinomial(1, generator=own)])
    return ids


wrong(
    "generate",
    write_with_draws_in_reverse=lambda model, ids, size, draws: write_as_told(
        model, ids, size, draws.flip(0)
    ),
)
wrong(
    "generate",
    write_a_little_warmer=lambda model, *given: write_as_told(lambda ids: model(ids) / 1.05, *given),
    write_a_little_colder=lambda model, *given: write_as_told(lambda ids: model(ids) / 0.95, *given),
)


@wrong("generate")
def write_by_an_exp_that_overflows(model, ids, block_size, draws):
    for draw in draws:
        e = model(ids[-block_size:])[-1].exp()
        token = ((e / e.sum()).cumsum(dim=0) <= draw).sum()
        ids = torch.cat([ids, token[None]])
    return ids
