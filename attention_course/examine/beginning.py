"""How a model begins: its first loss, its first gradients; and how it writes."""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn

from attention_course.attention import Cache
from attention_course.examine.question import (
    EVEN,
    FEW,
    LONG,
    LONGEST,
    SHORT,
    Candidate,
    asks,
    found,
)
from attention_course.examine.report import Finding
from attention_course.examine.subject import TARGETS, CannotAskError, Subject, gap, logits_of, rounding, told
from attention_course.training.loss import mean_loss

# How it begins


@asks("The first loss is near ln V", 5, "The logits are raw")
def first_loss(candidate: Candidate) -> Finding:
    """Measure the loss on random ids."""
    candidate.check_size()
    new = candidate.new
    ids = new.draw(8, min(33, new.block_size + 1), seed=8)
    loss, expected = float(mean_loss(new.logits(ids[:, :-1]), ids[:, 1:])), math.log(new.vocab_size)
    cause = (
        "A new model cannot know the next token, and this one is sure of it. Embeddings or the last layer "
        "start too large: use a standard deviation of 0.02, or n_embd**-0.5. (A trained model may be sure.)"
    )
    return found(
        loss < expected + 1,
        f"{loss:.2f} nats on random ids; ln V is {expected:.2f}.",
        "At most 1 more than ln V: logits with a standard deviation of 1 cost 0.5.",
        cause,
        "doubtful",
    )


@asks("Attention begins even", 5, "The past is used", "No leak from the future")
def even_attention(candidate: Candidate) -> Finding:
    """Compare the effects of earlier tokens with each other."""
    candidate.check_size()
    new = candidate.new
    T = SHORT if new.is_large else min(LONG, new.block_size)
    effects = new.effects_on_last(T)[:, :-1]
    reached = int((effects.amax(dim=0) > new.tolerance(new.logits(new.draw(1, T)))).sum())
    if not reached:
        raise CannotAskError("With its first parameters the model adds nothing of the past yet.")
    seen = float((effects.sum(dim=-1) ** 2 / effects.square().sum(dim=-1)).mean())
    cause = (
        "Few tokens get nearly all the weight, so most scores get no gradient. Divide them by √head_size, or "
        "start with smaller matrices. (A trained model may do so.)"
    )
    return found(
        seen > EVEN * reached,
        f"The last logits depend on {reached} earlier tokens, as unevenly as on {seen:.1f} alike.",
        f"More than {EVEN * reached:.1f}: a new model has no reason yet to prefer one.",
        cause,
        "doubtful",
    )


@asks("Its own loss is the cross-entropy", 8)
def own_loss(candidate: Candidate) -> Finding:
    """Compare the loss that the model returns with the cross-entropy of its logits."""
    given = candidate.new
    name = next((name for name in TARGETS if name in given.arguments), "")
    if not name:
        raise CannotAskError(f"It takes no {' or '.join(TARGETS[:3:2])}.")
    x = given.draw(3, candidate.short, seed=9)
    y = given.draw(3, candidate.short, seed=10)
    with torch.no_grad():
        output = given.answer(x, **{name: y.to(given.device)})
    if isinstance(output, Tensor):
        held: list = [output]
    else:
        held = list(
            output.values()
            if isinstance(output, dict)
            else output
            if isinstance(output, tuple | list)
            else vars(output).values()
        )
    losses = [float(each) for each in held if isinstance(each, Tensor) and each.numel() == 1]
    if not losses:
        raise CannotAskError(f"With {name} it returns no loss.")
    logits = given.logits(x)
    plain, shifted = float(mean_loss(logits, y)), float(mean_loss(logits[:, :-1], y[:, 1:]))
    near = 1e-3 * max(plain, 1)
    own = losses[0]
    is_right = abs(own - plain) < near or (name == "labels" and abs(own - shifted) < near)
    cause = (
        "Take F.cross_entropy(logits.view(B * T, V), targets.view(B * T)): V last, both in the same order."
    )
    if abs(own - shifted) < near:
        cause = (
            "It shifts the targets itself. Those of a batch are shifted already: it learns to skip a token."
        )
    return found(is_right, f"{own:.4f} nats.", f"{plain:.4f} nats, to 3 digits.", cause)


@asks(
    "Every parameter gets a gradient", 8, "No leak from the future", "The past is used", "Every token is read"
)
def gradients(candidate: Candidate) -> Finding:
    """Compute the gradient of a loss, and look for parameters without one."""
    stirred, expected = candidate.stirred, "A gradient that is not zero, in every matrix."
    if hidden := unregistered(stirred):
        cause = "Optimizers, .to() and state_dict() do not find modules in a plain list: use nn.ModuleList."
        return found(False, f"The layers in {hidden} are not in model.parameters().", expected, cause)
    names, grads = gradients_of(stirred)
    if odd := [name for (name, _), grad in zip(names, grads, strict=True) if not sound(grad)]:
        cause = "Somewhere 0 is divided by 0, or -inf multiplied by 0."
        return found(False, f"NaN or inf in {', '.join(odd[:3])}.", "Finite gradients.", cause)
    pairs = zip(names, grads, strict=True)
    silent = [said for (name, p), grad in pairs if (said := silence(stirred, name, p, grad))]
    cause = (
        "These change nothing in the loss: a part is made and not used, its output is replaced or detached, "
        "or all positions have the same index. Follow them through forward()."
    )
    said = (
        f"{len(silent)} of {len(names)} get none: {'; '.join(silent[:3])}."
        if silent
        else f"All {len(names)} do."
    )
    return found(not silent, said, expected, cause)


def unregistered(model: nn.Module) -> str:
    """Return the name of a list or a dict that holds modules which parameters() does not find; or ""."""
    known = set(model.modules())
    for module in known:
        for name, value in vars(module).items():
            held = (
                value.values()
                if isinstance(value, dict)
                else value
                if isinstance(value, list | tuple)
                else ()
            )
            if not name.startswith("_") and any(isinstance(v, nn.Module) and v not in known for v in held):
                return f"{type(module).__name__}.{name}"
    return ""


def sound(grad: Tensor | None) -> bool:
    """Return whether a gradient, if there is one, is finite."""
    return grad is None or bool(grad.isfinite().all())


def silence(subject: Subject, name: str, parameter: Tensor, grad: Tensor | None) -> str:
    """Say what of a parameter gets no gradient: all of it, or rows or columns side by side; "" if all does.

    The bias of keys gets none in theory, and rows of tokens that do not occur get none.
    """
    shape = tuple(parameter.shape)
    if grad is None or (len(shape) > 1 and not bool(grad.any())):
        return f"{name} {shape}"
    if len(shape) != 2 or subject.vocab_size in shape or subject.vocab_size < FEW:
        return ""
    runs = [longest_run((grad == 0).all(dim=1)), longest_run((grad == 0).all(dim=0))]
    if any(m.weight is parameter for m in subject.modules() if isinstance(m, nn.Embedding)):
        used = min(subject.block_size, LONGEST)
        return f"{runs[0]} rows of {name} {shape}" if len(parameter) == used and runs[0] else ""
    dead = [run for run, size in zip(runs, shape, strict=True) if run > max(5, 0.03 * size)]
    return f"{max(dead)} rows of {name} {shape}" if dead else ""


def longest_run(zero: Tensor) -> int:
    """Return how many zeros stand side by side: a head that is lost, not a ReLU that is off by chance."""
    return max((len(run) for run in "".join("01"[bool(z)] for z in zero).split("0")), default=0)


def gradients_of(subject: Subject) -> tuple[list[tuple[str, nn.Parameter]], tuple]:
    """Return the parameters that are trained, with names, and their gradients on random ids."""
    names = [(n.removeprefix("model."), p) for n, p in subject.named_parameters() if p.requires_grad]
    if not names:
        raise CannotAskError("No parameter requires a gradient.")
    T = min(subject.block_size, LONGEST)
    if T < 2:
        raise CannotAskError("block_size is 1: scores change nothing.")
    ids = subject.draw(max(2, 128 // T), T + 1, seed=11)
    with torch.enable_grad():
        loss = mean_loss(subject(ids[:, :-1]), ids[:, 1:].to(subject.device))
        if not loss.requires_grad:
            raise ValueError(
                "the loss depends on no parameter: is there a no_grad() or a detach() in forward()?"
            )
        return names, torch.autograd.grad(loss, [p for _, p in names], allow_unused=True)


@asks("Gradients are of one size", 8, "Every parameter gets a gradient")
def gradient_sizes(candidate: Candidate) -> Finding:
    """Compare the gradients of matrices of one shape."""
    names, grads = gradients_of(candidate.new)
    by_shape: dict[tuple, list[float]] = {}
    for (_, parameter), grad in zip(names, grads, strict=True):
        if grad is not None and parameter.dim() > 1 and bool(grad.any()):
            by_shape.setdefault(tuple(parameter.shape), []).append(float(grad.square().mean().sqrt()))
    ratio = max((max(sizes) / min(sizes) for sizes in by_shape.values()), default=1.0)
    cause = (
        "Some layers get almost nothing: a residual connection or a norm is missing, or they start too small."
    )
    return found(
        ratio < 1e4,
        f"Among matrices of one shape they differ by a factor of {ratio:.2g}.",
        "At most 10,000.",
        cause,
        "doubtful",
    )


# How it writes


@asks(
    "With a cache the logits are the same",
    9,
    "In eval mode the same ids give the same logits",
    "No leak from the future",
    "A prefix alone gives the same logits",
)
def cached(candidate: Candidate) -> Finding:
    """Read a text in parts, with a cache."""
    stirred, T = candidate.steady, candidate.short
    if "past_key_values" in stirred.arguments:
        keyword, cache = "past_key_values", None
    elif "cache" in stirred.arguments:
        keyword, cache = "cache", Cache()
    else:
        raise CannotAskError("It takes no argument cache or past_key_values.")
    ids, parts = stirred.draw(2, T, seed=12), []
    bounds = sorted({0, T // 2, max(1, T - 1), T})
    for start, stop in pairwise(bounds):
        options = {keyword: cache} | ({"use_cache": True} if "use_cache" in stirred.arguments else {})
        with torch.no_grad():
            output = stirred.answer(ids[:, start:stop], **options)
        parts.append(logits_of(output, stirred.vocab_size).cpu().float())
        if keyword == "past_key_values":
            cache = getattr(output, keyword, None)
            if cache is None:
                raise CannotAskError("It returns no past_key_values.")
    whole = stirred.logits(ids)
    away = gap(torch.cat(parts, dim=1), whole)
    cause = (
        "New tokens stand behind those in the cache: positions and the mask begin at len(cache), not at 0."
    )
    return found(
        away <= stirred.tolerance(whole),
        f"Read in {len(parts)} parts, they differ by {away:.2g}.",
        rounding(stirred, whole),
        cause,
    )


@asks("It writes on beyond its block", 8)
def generates(candidate: Candidate) -> Finding:
    """Let it write on after a full block."""
    given = candidate.given
    write = getattr(given.model, "generate", None)
    if not callable(write):
        raise CannotAskError("It has no method generate.")
    ids = given.draw(1, given.block_size, seed=13).to(given.device)
    expected = f"generate(ids, max_new_tokens=3) returns the {given.block_size} ids and 3 more."
    crop = "Crop the context in generate: ids[:, -block_size:]."
    try:
        with torch.no_grad():
            written = write(ids, max_new_tokens=3)
    except TypeError as error:
        raise CannotAskError(f"generate(ids, max_new_tokens=3): {told(error)}") from error
    except Exception as error:
        return Finding("", "doubtful", told(error), expected, crop)
    if not isinstance(written, Tensor) or written.dim() != 2:
        raise CannotAskError(f"generate returns {type(written).__name__}, not ids (B, T).")
    begins = bool(torch.equal(written[:, : given.block_size].cpu(), ids.cpu()))
    known = bool(((written >= 0) & (written < given.vocab_size)).all())
    fits = begins and known and given.block_size < written.shape[1] <= given.block_size + 3
    return found(
        fits,
        f"It returned {written.shape[1]} ids, {'beginning' if begins else 'not beginning'} with the given.",
        expected,
        crop,
    )
