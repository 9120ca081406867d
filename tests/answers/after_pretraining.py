"""Answers to the exercises of after_pretraining."""

import torch
import torch.nn.functional as F

from answers import right, wrong

right(
    "masked_loss",
    loss_with_ignored_targets=lambda logits, targets, is_answer: F.cross_entropy(
        logits.flatten(0, 1), targets.masked_fill(~is_answer, -100).flatten()
    ),
    loss_of_selected_rows=lambda logits, targets, is_answer: F.cross_entropy(
        logits[is_answer], targets[is_answer]
    ),
)


@right("masked_loss")
def loss_by_a_loop_over_tokens(logits, targets, is_answer):
    losses = [
        logits[b, t].logsumexp(dim=0) - logits[b, t, targets[b, t]] for b, t in is_answer.nonzero().tolist()
    ]
    return torch.stack(losses).mean()


wrong(
    "masked_loss",
    loss_of_the_first_token=lambda logits, targets, is_answer: loss_by_a_loop_over_tokens(
        logits, targets, is_answer & (is_answer.cumsum(dim=1) == 1)
    ),
    loss_of_the_longest_answer=lambda logits, targets, is_answer: loss_by_a_loop_over_tokens(
        *(each[is_answer.sum(dim=1).argmax()][None] for each in (logits, targets, is_answer))
    ),
)
wrong(
    "masked_loss",
    "detached",
    loss_in_a_number=lambda *arguments: torch.tensor(loss_by_a_loop_over_tokens(*arguments).item()),
    loss_of_detached_logits=lambda logits, targets, is_answer: F.cross_entropy(
        logits.detach()[is_answer], targets[is_answer]
    ),
)


@wrong("masked_loss")
def loss_that_changes_its_targets(logits, targets, is_answer):
    targets[~is_answer] = -100
    return F.cross_entropy(logits.transpose(1, 2), targets)


right(
    "lora",
    lora_merged=lambda x, W, A, B, alpha: F.linear(x, W.detach() + alpha / A.shape[0] * (B @ A)),
    lora_by_einsum=lambda x, W, A, B, alpha: (
        torch.einsum("...i,oi->...o", x, W.data)
        + torch.einsum("...i,ri,or->...o", x, A, B) * (alpha / B.shape[1])
    ),
)


@right("lora")
def lora_one_rank_after_another(x, W, A, B, alpha):
    with torch.no_grad():
        frozen = W.clone()
    update = sum((x @ a)[..., None] * b for a, b in zip(A, B.T, strict=True))
    return x @ frozen.T + update * (alpha / len(A))


@wrong("lora", "W_frozen_in_place")
def lora_that_freezes_in_place(x, W, A, B, alpha):
    W.requires_grad_(False)
    return F.linear(x, W) + F.linear(F.linear(x, A), B) * alpha / len(A)


wrong(
    "lora",
    "W_trained",
    lora_with_all_free=lambda x, W, A, B, alpha: F.linear(x, W) + alpha / len(A) * (x @ A.T @ B.T),
    lora_merged_with_all_free=lambda x, W, A, B, alpha: x @ (W + alpha / len(A) * (B @ A)).T,
)


@wrong("lora", "x_cut_off")
def lora_without_gradients_in_the_layer(x, W, A, B, alpha):
    with torch.no_grad():
        y = x @ W.T
    return y + alpha / len(A) * (x @ A.T @ B.T)


@wrong("lora", "detached")
@torch.no_grad()
def lora_without_gradients(x, W, A, B, alpha):
    return x @ W.T + alpha / len(A) * (x @ A.T @ B.T)


wrong(
    "lora",
    "detached",
    lora_of_half_of_which_learns=lambda x, W, A, B, alpha: (
        x @ W.detach().T + alpha / len(A) * (x @ A.detach().T @ B.T)
    ),
    lora_whose_product_is_detached=lambda x, W, A, B, alpha: x @ (W + alpha / len(A) * (B @ A)).detach().T,
)
wrong(
    "lora",
    lora_of_its_output=lambda x, W, A, B, alpha: (
        (x @ W.detach().T) + alpha / len(A) * (x @ W.detach().T @ W.detach() @ A.T @ B.T)
    ),
    lora_with_a_mean_over_the_rank=lambda x, W, A, B, alpha: (
        x @ W.detach().T + alpha / len(A) ** 2 * (x @ A.T @ B.T)
    ),
)


@right("group_advantage")
def advantage_row_by_row(rewards):
    rows = []
    for row in rewards:
        centred = row - row.mean()
        rows.append(centred / ((centred @ centred / (len(row) - 1)).sqrt() + 1e-4))
    return torch.stack(rows)


@wrong("group_advantage", "other_small_number")
def advantage_where_rewards_differ(rewards):
    deviation = rewards.std(-1)[:, None]
    centred = rewards - rewards.mean(-1)[:, None]
    return torch.where(deviation > 0, centred / deviation, 0.0)


wrong(
    "group_advantage",
    **{
        f"advantage_cut_off_at_{limit}": lambda rewards, limit=limit: advantage_row_by_row(rewards).clamp(
            -limit, limit
        )
        for limit in (1.8, 2, 5)
    },
)


@right("group_advantage")
def advantage_from_sums(rewards):
    G = rewards.shape[1]
    mean = rewards.sum(dim=1, keepdim=True) / G
    variance = ((rewards - mean) ** 2).sum(dim=1, keepdim=True) / (G - 1)
    return (rewards - mean) / (variance**0.5 + 1e-4)


@wrong("group_advantage")
def advantage_by_rank(rewards):
    ranks = rewards.argsort(dim=1).argsort(dim=1).float()
    return advantage_row_by_row(ranks)


wrong(
    "group_advantage",
    advantage_as_softmax=lambda rewards: rewards.softmax(dim=1) - 1 / rewards.shape[1],
    advantage_of_length_1=lambda rewards: F.normalize(rewards - rewards.mean(dim=1, keepdim=True), dim=1),
    advantage_with_half_the_addend=lambda rewards: (
        (rewards - rewards.mean(dim=1, keepdim=True)) / (rewards.std(dim=1, keepdim=True) + 5e-5)
    ),
    advantage_with_a_large_addend=lambda rewards: (
        (rewards - rewards.mean(dim=1, keepdim=True)) / (rewards.std(dim=1, keepdim=True) + 0.1)
    ),
)


wrong(
    "group_advantage",
    "other_small_number",
    advantage_with_the_addend_of_adam=lambda rewards: (
        (rewards - rewards.mean(dim=1, keepdim=True)) / (rewards.std(dim=1, keepdim=True) + 1e-8)
    ),
    advantage_without_nan=lambda rewards: (
        (rewards - rewards.mean(dim=1, keepdim=True)) / rewards.std(dim=1, keepdim=True)
    ).nan_to_num(0.0),
    advantage_with_a_least_deviation=lambda rewards: (
        (rewards - rewards.mean(dim=1, keepdim=True)) / rewards.std(dim=1, keepdim=True).clamp(min=1e-4)
    ),
)


wrong(
    "group_advantage",
    "worst_subtracted",
    "range_instead_of_deviation",
    advantage_from_0_to_1=lambda rewards: (
        (rewards - rewards.amin(dim=1, keepdim=True))
        / (rewards.amax(dim=1, keepdim=True) - rewards.amin(dim=1, keepdim=True) + 1e-4)
    ),
)


@right("kl_per_token")
def divergence_by_kl_div(logits, reference):
    log_p, log_q = F.log_softmax(logits, dim=-1), F.log_softmax(reference, dim=-1)
    return F.kl_div(log_q, log_p, reduction="none", log_target=True).sum(-1)


@wrong("kl_per_token", "detached")
def divergence_by_kl_div_of_probabilities(logits, reference):
    """Let the gradient be NaN where a probability rounds to 0."""
    log_q = reference.detach().log_softmax(-1)
    return F.kl_div(log_q, logits.softmax(-1), reduction="none").sum(dim=2)


@right("kl_per_token")
def divergence_as_cross_entropy_minus_entropy(logits, reference):
    p = logits.softmax(-1)
    mean_of = lambda x: torch.einsum("btv,btv->bt", p, x)  # noqa: E731
    return mean_of(logits - reference) - logits.logsumexp(-1) + reference.logsumexp(-1)


@wrong("kl_per_token", "wrong_direction")
def divergence_by_kl_div_swapped(logits, reference):
    log_p, log_q = logits.log_softmax(dim=-1), reference.log_softmax(dim=-1)
    return F.kl_div(log_p, log_q, reduction="none", log_target=True).sum(dim=-1)


@wrong("kl_per_token", "not_per_position")
def divergence_by_kl_div_batchmean(logits, reference):
    log_p, log_q = logits.log_softmax(dim=-1), reference.log_softmax(dim=-1)
    return F.kl_div(log_q, log_p, reduction="batchmean", log_target=True)


@wrong("kl_per_token")
def divergence_from_the_mean_of_both(logits, reference):
    p, q = logits.softmax(-1), reference.softmax(-1)
    middle = ((p + q) / 2).log()
    return (p.xlogy(p) - p * middle).sum(-1) / 2 + (q.xlogy(q) - q * middle).sum(-1) / 2


@wrong("kl_per_token", "detached")
def divergence_with_weights_detached(logits, reference):
    log_p, log_q = logits.log_softmax(dim=-1), reference.log_softmax(dim=-1)
    return (log_p.detach().exp() * (log_p - log_q)).sum(dim=-1)


@wrong("kl_per_token", "detached")
def divergence_that_trains_the_reference(logits, reference):
    return divergence_by_kl_div(logits.detach(), reference)


@wrong("kl_per_token", "log_of_zero")
def divergence_as_k3(logits, reference):
    log_p, log_q = logits.log_softmax(dim=-1), reference.log_softmax(dim=-1)
    return (log_p.exp() * ((log_q - log_p).exp() - 1 - (log_q - log_p))).sum(dim=-1)


wrong(
    "kl_per_token",
    divergence_squared=lambda logits, reference: (
        logits.softmax(-1) * (logits.log_softmax(-1) - reference.log_softmax(-1)) ** 2 / 2
    ).sum(-1),
)


def costs(logits, targets, is_answer):
    return logits.softmax(-1).gather(-1, targets[..., None])[..., 0][is_answer]


wrong(
    "masked_loss",
    loss_with_a_billionth_in_the_log=lambda *given: -(costs(*given) + 1e-9).log().mean(),
    loss_by_the_log_of_softmax=lambda *given: -costs(*given).log().mean(),
    loss_from_the_first_to_the_last_token_of_answers=lambda logits, targets, is_answer: F.cross_entropy(
        logits[span := (is_answer.cumsum(1) > 0) & (is_answer.flip(1).cumsum(1).flip(1) > 0)], targets[span]
    ),
)
wrong(
    "lora",
    lora_with_a_whole_alpha=lambda x, W, A, B, alpha: (
        x @ W.detach().T + int(alpha) / len(A) * (x @ A.T @ B.T)
    ),
    lora_with_the_rank_of_a_squeezed_matrix=lambda x, W, A, B, alpha: (
        x @ W.detach().T + alpha / A.squeeze().shape[0] * (x @ A.T @ B.T)
    ),
)
