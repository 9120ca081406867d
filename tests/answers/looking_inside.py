"""Answers to the exercises of looking_inside."""

import torch
from torch.nn import functional as F

from answers import right, wrong
from attention_course.exercises import EXERCISES
from attention_course.llama import RMSNorm


@right("find_induction_head")
def find_by_searching_each_token(weights, ids):
    scores, tokens = torch.zeros(weights.shape[:2]), ids.tolist()
    for t in range(len(tokens) // 2, len(tokens)):
        scores += weights[..., t, tokens.index(tokens[t]) + 1]
    return (scores == scores.max()).nonzero()[0]


wrong(
    "find_induction_head",
    find_the_last_head_of_the_layer=lambda weights, ids: (
        find_by_searching_each_token(weights, ids) * torch.tensor([1, 0])
        + torch.tensor([0, weights.shape[1] - 1])
    ),
)


@right("logit_lens")
def lens_by_the_module_of_the_package(stream, scale, W_vocab):
    norm = RMSNorm(len(scale))
    norm.weight.data = scale
    with torch.no_grad():
        return torch.einsum("ltc,vc->ltv", norm(stream), W_vocab)


@right("logit_lens")
def lens_one_vector_after_another(stream, scale, W_vocab):
    return torch.stack(
        [
            torch.stack([W_vocab @ (x / (x @ x / len(x) + 1e-5) ** 0.5 * scale) for x in layer])
            for layer in stream
        ]
    )


wrong(
    "logit_lens",
    lens_with_the_norm_after_the_product=lambda stream, scale, W_vocab: F.rms_norm(
        stream * scale @ W_vocab.T, (len(W_vocab),), eps=1e-5
    ),
    lens_scaled_before_the_norm=lambda stream, scale, W_vocab: (
        F.rms_norm(stream * scale, scale.shape, eps=1e-5) @ W_vocab.T
    ),
    lens_of_what_each_layer_adds=lambda stream, scale, W_vocab: (
        F.rms_norm(torch.cat([stream[:1], stream.diff(dim=0)]), scale.shape, scale, 1e-5) @ W_vocab.T
    ),
)


@right("direct_logit_attribution")
def attribution_with_all_other_heads_silent(outputs, W_proj, x, scale, W_vocab, ids):
    rows = []
    for head in range(len(outputs)):
        alone = torch.zeros_like(outputs)
        alone[head] = outputs[head]
        written = F.linear(torch.cat([*alone], dim=-1), W_proj)
        logits = written * (x.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt() * scale @ W_vocab.T
        rows.append(logits.gather(1, ids[:, None])[:, 0] - logits.mean(dim=1))
    return torch.stack(rows)


@right("direct_logit_attribution")
def attribution_by_a_direction_for_each_token(outputs, W_proj, x, scale, W_vocab, ids):
    size = (x.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt()
    directions = (W_vocab[ids] - W_vocab.mean(dim=0)) * scale / size @ W_proj  # (T, C), of the heads
    return (outputs * directions.unflatten(-1, (len(outputs), -1)).transpose(0, 1)).sum(dim=-1)


@wrong("direct_logit_attribution")
def attribution_as_the_loss_without_each_head(outputs, W_proj, x, scale, W_vocab, ids):
    merged = torch.cat([*outputs], dim=-1)

    def logits_without(head):
        kept = merged.unflatten(-1, (len(outputs), -1)).clone()
        kept[:, head] = 0
        changed = x - (merged - kept.flatten(1)) @ W_proj.T
        logits = F.rms_norm(changed, scale.shape, scale, 1e-5) @ W_vocab.T
        return logits.gather(1, ids[:, None])[:, 0] - logits.mean(dim=1)

    whole = F.rms_norm(x, scale.shape, scale, 1e-5) @ W_vocab.T
    whole = whole.gather(1, ids[:, None])[:, 0] - whole.mean(dim=1)
    return torch.stack([whole - logits_without(head) for head in range(len(outputs))])


wrong(
    "direct_logit_attribution",
    attribution_of_positions_first=lambda *arguments: attribution_by_a_direction_for_each_token(*arguments).T,
    attribution_as_shares=lambda *arguments: attribution_by_a_direction_for_each_token(*arguments).softmax(
        dim=0
    ),
)


def attribution_by_size(size):
    """Divide by a size that is made of the mean square."""

    def attribute(outputs, W_proj, x, scale, W_vocab, ids):
        written = torch.einsum("htd,chd->htc", outputs, W_proj.unflatten(1, (len(outputs), -1)))
        logits = written / size(x.square().mean(dim=-1, keepdim=True)) * scale @ W_vocab.T
        return logits[:, torch.arange(len(ids)), ids] - logits.mean(dim=-1)

    return attribute


wrong(
    "direct_logit_attribution",
    "no_eps",
    attribution_by_a_bare_root=attribution_by_size(lambda square: square**0.5),
)
wrong(
    "direct_logit_attribution",
    "eps_outside_the_root",
    attribution_by_a_root_and_a_bit=attribution_by_size(lambda square: square.sqrt() + 1e-5),
)


def induction_head_by(score):
    """Find the head whose weights on what followed have the highest score."""

    def find(weights, ids):
        half = len(ids) // 2
        t = torch.arange(half, len(ids))
        scores = score(weights[..., t, t - half + 1])
        return torch.tensor(divmod(int(scores.argmax()), scores.shape[1]))

    return find


wrong(
    "find_induction_head",
    "smallest_weight",
    find_by_the_smallest_weight=induction_head_by(lambda weights: weights.amin(dim=-1)),
)
wrong(
    "find_induction_head",
    "mean_of_another_number",
    find_by_the_loss=induction_head_by(lambda weights: (weights + 1e-3).log().mean(dim=-1)),
    find_by_the_norm=induction_head_by(lambda weights: weights.norm(dim=-1)),
)


def counting_the_token_itself(share):
    """Count what a head gives to the earlier token itself, too, so many times."""

    def find(weights, ids):
        t = torch.arange(len(ids) // 2, len(ids))
        back = t - len(ids) // 2
        scores = (weights[..., t, back + 1] + share * weights[..., t, back]).mean(dim=-1)
        return torch.tensor(divmod(int(scores.argmax()), scores.shape[1]))

    return find


wrong(
    "find_induction_head",
    "counts_the_same_token",
    find_with_the_token_itself=counting_the_token_itself(1.0),
)
wrong("find_induction_head", find_without_the_token_itself=counting_the_token_itself(-1.0))


@wrong("direct_logit_attribution")
def attribution_of_a_token_where_it_first_occurs(outputs, W_proj, x, scale, W_vocab, ids):
    right = EXERCISES["direct_logit_attribution"].reference(outputs, W_proj, x, scale, W_vocab, ids)
    return right[:, (ids[:, None] == ids).int().argmax(dim=1)]
