"""How a model begins: its first loss, how even its attention is, and the loss that it returns."""

import math
from contextlib import suppress

import torch
import torch.nn.functional as F
from torch import Tensor

from attention_course.examine.gradients import beside_the_logits
from attention_course.examine.question import (
    ATTENTION_TOKENS,
    MIN_EFFECTIVE_SHARE,
    PAIRWISE_TOKENS,
    ModelVariants,
    asks,
    finding_if,
)
from attention_course.examine.report import Finding
from attention_course.examine.wrapped_model import (
    TARGET_ARGUMENTS,
    CannotAskError,
    DoubtError,
    WrappedModel,
    format_error,
    gradients_by,
    parts_of,
)
from attention_course.training.loss import mean_loss

FADES = 0.8  # correlation of ranks: memories that fade have 0.9 and more, scores without a scale below 0.2
SURE = 4  # times ln V: trained models have 3 at most, embeddings from N(0, 1) as the last layer 4.4 and more
SURE_NATS = 15.0  # of 12 tokens and a rule without chance, trained models have 10


@asks("The first loss is near ln V")
def first_loss(variants: ModelVariants) -> Finding:
    """Measure the loss on random ids."""
    loss, expected = loss_of_random_ids(variants.new), math.log(variants.new.vocab_size)
    said = f"{loss:.2f} nats on random ids; ln V is {expected:.2f}."
    sure = loss > max(SURE * expected, SURE_NATS)
    return finding_if(loss < expected + 1, said, otherwise="wrong" if sure else "doubtful")


def loss_of_random_ids(wrapped: WrappedModel) -> float:
    """Return the loss on random ids, in nats."""
    ids = wrapped.draw(8, min(33, wrapped.block_size + 1), seed=8)
    return float(mean_loss(wrapped.logits(ids[:, :-1]), ids[:, 1:]))


@asks("Attention begins even")
def even_attention(variants: ModelVariants) -> Finding:
    """Compare the effects of earlier tokens with each other."""
    new = variants.new
    T = PAIRWISE_TOKENS if new.is_large else min(ATTENTION_TOKENS, new.block_size)
    effects = new.effects_on_last(T)[:, :-1]
    reached = int((effects.amax(dim=0) > new.tolerance(new.logits(new.draw(1, T)))).sum())
    if not reached:
        raise CannotAskError("With its first parameters the model adds nothing of the past yet.")
    seen = float(counted_alike(effects).nanmean())  # of a text that is cut short, nothing counts
    if seen <= MIN_EFFECTIVE_SHARE * reached and fades(effects, MIN_EFFECTIVE_SHARE * reached):
        raise CannotAskError("The effect of a token fades with its distance, in all texts alike.")
    return finding_if(
        seen > MIN_EFFECTIVE_SHARE * reached,
        f"The last logits depend on {reached} earlier tokens, in effect on {seen:.1f} of them.",
        f"More than {MIN_EFFECTIVE_SHARE * reached:.1f}: a new model has no reason yet to prefer one.",
        otherwise="doubtful",
    )


def counted_alike(effects: Tensor) -> Tensor:
    """Return how many tokens that count alike would be as uneven as these effects (..., T)."""
    return effects.sum(dim=-1) ** 2 / effects.square().sum(dim=-1)


def fades(effects: Tensor, few: float) -> bool:
    """Return whether effects (texts, T) are uneven by the distance alone: a memory that fades, no choice.

    Attention that is too sure chooses other tokens in each text, so their mean over texts is more even.
    """
    mean = (effects / effects.sum(dim=-1, keepdim=True)).mean(dim=0)
    return bool(counted_alike(mean) <= few) and recency(effects) > FADES


def recency(effects: Tensor) -> float:
    """Return the correlation of ranks of effects (texts, T), their mean over texts, with the position."""
    mean = (effects / effects.sum(dim=-1, keepdim=True)).mean(dim=0)
    ranks = torch.stack([torch.arange(len(mean)), mean.argsort().argsort()]).double()
    return float(torch.corrcoef(ranks)[0, 1])


@asks("Its own loss is the cross-entropy")
def own_loss(variants: ModelVariants) -> Finding:
    """Compare the loss that the model returns with the cross-entropy of its logits."""
    new, T = variants.with_noise, variants.short  # of new models all losses are near ln V
    name = new.target_argument
    if not name:
        raise CannotAskError(f"It takes no {' or '.join(TARGET_ARGUMENTS[:3:2])}.")
    x, spread = new.draw(3, T, seed=9), torch.linspace(0, len(new.tokens) - 1, 3 * T).round().long()
    order = torch.randperm(3 * T, generator=torch.Generator().manual_seed(10))
    y = new.tokens[spread[order]].view(3, T)  # the first and the last id, too, which a loss may ignore
    with torch.no_grad():
        returned = loss_returned(new, x, name, y)
    own, logits = float(returned.mean()), new.logits(x)
    right = float(mean_loss(logits, y))
    if returned.numel() > 1:
        said = f"With {name} it returns a loss of shape {tuple(returned.shape)}."
        return finding_if(False, said, "One number, the mean.", "unreduced")
    others = {
        "shifted": float(mean_loss(logits[:, :-1], y[:, 1:])),
        "twice": float(mean_loss(logits[:, :-2], y[:, 2:])) if T > 2 else math.nan,
        "softmax": float(mean_loss(logits.softmax(dim=-1), y)),
        "sum": right * y.numel(),
        "ids": float(mean_loss(logits, x)),
    }
    wanted = [right, others["shifted"]] if name == "labels" else [right]
    rounding = torch.finfo(returned.dtype).eps if returned.is_floating_point() else 0.0

    def fits(loss: float, own: float = own) -> bool:
        return abs(own - loss) <= new.tolerance(logits) + 4 * rounding * loss

    holds, said, added = any(map(fits, wanted)), f"{own:.5f} nats.", 0.0
    for shift in range(0 if holds else len(wanted)):
        predicted, likeliest = logits[:, : T - shift].flatten(0, 1), logits.argmax(dim=-1).roll(shift, 1)
        sharp, flat = (smoothed_loss(predicted, likeliest[:, shift:], share) for share in (0.0, 1.0))
        with torch.no_grad():
            more = loss_returned(new, x, name, likeliest).item() - float(sharp)
        share = more / float(flat - sharp)
        if 0 < share < 1 and fits(float(smoothed_loss(predicted, y[:, shift:], share))):
            holds, said = True, f"{own:.5f} nats, the cross-entropy with label_smoothing={share:.2g}."
        elif abs(more) < wanted[shift] and fits(wanted[shift] + more):
            added = more
    if holds and variants.is_copy and not has_gradient(new, x, name, y):
        return finding_if(False, f"{said} It has no gradient.", "One that backward() can follow.", "gradient")
    shift = next((shift for shift, loss in enumerate(wanted) if fits(loss)), None)
    if shift is not None and variants.is_copy and leads_elsewhere(new, x, name, y, shift):
        said = f"{said} In train mode its gradient is not that of the cross-entropy of the logits."
        return finding_if(False, said, "The same gradient.", "elsewhere", otherwise="doubtful")
    if added and not holds:
        way = "more" if added > 0 else "less"
        said = f"{said} Whatever the targets are, it is {abs(added):.2g} {way} than the cross-entropy."
        return finding_if(False, said, f"{right:.5f} nats.", "added", otherwise="doubtful")
    if holds and name == "labels" and T > 1 and fits(right) and not fits(others["shifted"]):
        said = f"{said} It compares output t with label t, and does not shift."
        return finding_if(False, said, "Labels are the ids; the model shifts them.", "unshifted", "doubtful")
    if name == "labels" and T > 2 and any(map(fits, wanted)):
        hidden = y.masked_fill(torch.arange(T) % 3 == 1, -100)
        kept = [float(smoothed_loss(logits[:, : T - n].flatten(0, 1), hidden[:, n:], 0.0)) for n in (0, 1)]
        with suppress(Exception), torch.no_grad():  # it may raise
            own = float(loss_returned(new, x, name, hidden))
            if not any(fits(loss, own) for loss in kept):
                said = f"{said} With a label of -100 at every third token it is {own:.5f}."
                return finding_if(False, said, f"{kept[-1]:.5f} nats.", "ignored", "doubtful")
    near = 1e-3 * max(right, 1)
    merged = F.cross_entropy(logits[:, :-1].flatten(0, 1)[:-1], y[:, 1:].flatten()[1:])  # as one long text
    named = (*others.items(), ("twice", float(merged)))
    cause = next((cause for cause, loss in named if abs(own - loss) < near), "")
    if not (holds or cause) and own > right and beside_the_logits(new, x, **{name: y}):
        said = f"{said} Parameters that serve no logits may have a part in it."
        return finding_if(False, said, f"{right:.5f} nats.", "heads", "doubtful")
    return finding_if(holds, said, f"{right:.5f} nats, but for rounding.", cause)


def loss_returned(wrapped: WrappedModel, x: Tensor, name: str, y: Tensor) -> Tensor:
    """Return the loss that a model returns for ids x and targets y, which it takes by this name."""
    try:
        parts = parts_of(wrapped.answer(x, **{name: y.to(wrapped.device)})).values()
    except Exception as error:
        if name != "y":
            raise
        raise CannotAskError(
            f"Its y is something else than the tokens that follow: {format_error(error)}"
        ) from error
    tensors = [torch.tensor(each) if type(each) is float else each for each in parts]
    losses = [each for each in tensors if isinstance(each, Tensor) and each.is_floating_point()]
    for shape in ((), (1,), (1, 1), (y.numel(),), tuple(y.shape)):
        for each in losses:
            if each.shape == shape:
                return each
    kind = CannotAskError if name == "y" else DoubtError  # y may be something else
    raise kind(f"With {name} it returns no loss.")


def has_gradient(wrapped: WrappedModel, x: Tensor, name: str, y: Tensor) -> bool:
    """Return whether the loss in train mode has a gradient, if anything in the model is trained."""
    trained = any(parameter.requires_grad for parameter in wrapped.parameters())
    with torch.enable_grad():
        return not trained or loss_returned(wrapped.copied().train(), x, name, y).requires_grad


def leads_elsewhere(wrapped: WrappedModel, x: Tensor, name: str, y: Tensor, shift: int) -> bool:
    """Return whether the loss in train mode, without dropout, has the value and not the gradient that the
    cross-entropy of the logits in eval mode has.
    """
    if wrapped.is_large:
        return False
    one, other = wrapped.copied().without_dropout(), wrapped.copied()
    with torch.enable_grad():
        logits = other(x.clone())
        losses = (
            loss_returned(one, x.clone(), name, y).mean(),
            mean_loss(logits[:, : logits.shape[1] - shift], y[:, shift:].to(logits.device)),
        )
    if abs(losses[0].item() - losses[1].item()) > wrapped.tolerance(logits.detach().float().cpu()):
        return False
    try:
        theirs, right = (
            gradients_by(loss, [p for p in each.parameters() if p.requires_grad])
            for loss, each in zip(losses, (one, other), strict=True)
        )
    except RuntimeError:  # of backward(), as the questions about gradients say
        return False
    size = sum(float(grad.norm()) for grad in right if grad is not None)
    pairs = [
        [torch.zeros(()) if grad is None else grad.float() for grad in pair]
        for pair in zip(theirs, right, strict=True)
    ]
    return any(float((a - b).norm()) > 0.05 * float(b.norm()) + 1e-3 * size for a, b in pairs)


def smoothed_loss(logits: Tensor, targets: Tensor, share: float) -> Tensor:
    """Return the cross-entropy in which each target shares this much of its probability with all tokens."""
    return F.cross_entropy(logits, targets.flatten(), label_smoothing=share)
