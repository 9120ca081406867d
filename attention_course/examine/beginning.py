"""How a model begins: its first loss, its first gradients; and how it writes."""

import inspect
import math
from dataclasses import replace
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attention_course.attention import Cache
from attention_course.examine.question import EVEN, FEW, LONG, LONGEST, SHORT, Candidate, asks, found, same
from attention_course.examine.report import Finding
from attention_course.examine.subject import (
    OWN,
    SHARED,
    TARGETS,
    CannotAskError,
    DoubtError,
    Subject,
    collected,
    gradients_by,
    kept,
    parts_of,
    told,
)
from attention_course.training.loss import mean_loss

FADES = 0.8  # correlation of ranks: memories that fade have 0.9 and more, scores without a scale below 0.2
DRAWS = 8  # of parameters and texts, after which what got no gradient is said to get none
TOTALS = ("max_length", "max_len", "length", "total")  # of ids, mostly with those that are given
TEXTS = 256  # in which generate is asked whether it reads an id
UNLIKELY = 1e-6  # what a right model does by luck
Gradient = tuple[str, nn.Parameter, Tensor | None]

# How it begins


@asks("The first loss is near ln V")
def first_loss(candidate: Candidate) -> Finding:
    """Measure the loss on random ids."""
    new = candidate.new
    ids = new.draw(8, min(33, new.block_size + 1), seed=8)
    loss, expected = float(mean_loss(new.logits(ids[:, :-1]), ids[:, 1:])), math.log(new.vocab_size)
    said = f"{loss:.2f} nats on random ids; ln V is {expected:.2f}."
    return found(loss < expected + 1, said, otherwise="doubtful")


@asks("Attention begins even")
def even_attention(candidate: Candidate) -> Finding:
    """Compare the effects of earlier tokens with each other."""
    new = candidate.new
    T = SHORT if new.is_large else min(LONG, new.block_size)
    effects = new.effects_on_last(T)[:, :-1]
    reached = int((effects.amax(dim=0) > new.tolerance(new.logits(new.draw(1, T)))).sum())
    if not reached:
        raise CannotAskError("With its first parameters the model adds nothing of the past yet.")
    seen = float(counted_alike(effects).mean())
    if seen <= EVEN * reached and fades(effects, EVEN * reached):
        raise CannotAskError("The effect of a token fades with its distance, in all texts alike.")
    return found(
        seen > EVEN * reached,
        f"The last logits depend on {reached} earlier tokens, as on {seen:.1f} that count alike.",
        f"More than {EVEN * reached:.1f}: a new model has no reason yet to prefer one.",
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
    ranks = torch.stack([torch.arange(len(mean)), mean.argsort().argsort()]).double()
    return bool(counted_alike(mean) <= few and torch.corrcoef(ranks)[0, 1] > FADES)


@asks("Its own loss is the cross-entropy")
def own_loss(candidate: Candidate) -> Finding:
    """Compare the loss that the model returns with the cross-entropy of its logits."""
    new, T = candidate.stirred, candidate.short  # of new models all losses are near ln V
    name = next((name for name in TARGETS if name in new.arguments), "")
    if not name:
        raise CannotAskError(f"It takes no {' or '.join(TARGETS[:3:2])}.")
    x, spread = new.draw(3, T, seed=9), torch.linspace(0, len(new.tokens) - 1, 3 * T).round().long()
    order = torch.randperm(3 * T, generator=torch.Generator().manual_seed(10))
    y = new.tokens[spread[order]].view(3, T)  # the first and the last id, too, which a loss may ignore
    with torch.no_grad():
        returned = loss_returned(new, x, name, y)
    own, logits = returned.item(), new.logits(x)
    right = float(mean_loss(logits, y))
    others = {
        "shifted": float(mean_loss(logits[:, :-1], y[:, 1:])),
        "softmax": float(mean_loss(logits.softmax(dim=-1), y)),
        "sum": right * y.numel(),
        "ids": float(mean_loss(logits, x)),
    }
    wanted = [right, others["shifted"]] if name == "labels" else [right]
    rounding = torch.finfo(returned.dtype).eps if returned.is_floating_point() else 0.0

    def fits(loss: float) -> bool:
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
        elif 0 < more < 0.1 * wanted[shift] and fits(wanted[shift] + more):
            added = more
    if holds and candidate.is_copy and not has_gradient(new, x, name, y):
        return found(False, f"{said} It has no gradient.", "One that backward() can follow.", "gradient")
    if added and not holds:
        said = f"{said} Whatever the targets are, it is {added:.2g} more than the cross-entropy."
        return found(False, said, f"{right:.5f} nats.", "added", otherwise="doubtful")
    near = 1e-3 * max(right, 1)
    cause = next((cause for cause, loss in others.items() if abs(own - loss) < near), "")
    return found(holds, said, f"{right:.5f} nats, but for rounding.", cause)


def loss_returned(subject: Subject, x: Tensor, name: str, y: Tensor) -> Tensor:
    """Return the loss that a model returns for ids x and targets y, which it takes by this name."""
    try:
        parts = parts_of(subject.answer(x, **{name: y.to(subject.device)})).values()
    except Exception as error:
        if name != "y":
            raise
        raise CannotAskError(f"Its y is something else than the tokens that follow: {told(error)}") from error
    losses = [each for each in parts if isinstance(each, Tensor) and each.numel() == 1]
    if not losses:
        raise CannotAskError(f"With {name} it returns no loss.")
    return losses[0]


def has_gradient(subject: Subject, x: Tensor, name: str, y: Tensor) -> bool:
    """Return whether the loss in train mode has a gradient, if anything in the model is trained."""
    trained = any(parameter.requires_grad for parameter in subject.parameters())
    with torch.enable_grad():
        return not trained or loss_returned(subject.copied().train(), x, name, y).requires_grad


def smoothed_loss(logits: Tensor, targets: Tensor, share: float) -> Tensor:
    """Return the cross-entropy in which each target shares this much of its probability with all tokens."""
    return F.cross_entropy(logits, targets.flatten(), label_smoothing=share)


@asks("Every parameter gets a gradient")
def gradients(candidate: Candidate) -> Finding:
    """Compute the gradient of a loss, and look for parameters without one."""
    stirred = candidate.stirred
    if shared := repeated(stirred):
        said = f"{shared} holds one layer several times: these have the same parameters."
        return found(False, said, "A layer for each place.", "shared", otherwise="doubtful")
    if hidden := unregistered(stirred):
        return found(False, f"The layers in {hidden} are not in model.parameters().", cause="list")
    grads = gradients_of(stirred)
    odd = [name for name, _, grad in grads if grad is not None and not bool(grad.isfinite().all())]
    if odd:
        return found(False, f"NaN or inf in {', '.join(odd[:3])}.", "Finite gradients.", "nan")
    first = silent = silences(stirred, grads)
    for seed in range(1, DRAWS + 1):  # of experts each draw chooses others
        if not silent:
            break
        more = gradients_of(candidate.stirred_anew(seed), seed)
        pairs = zip(grads, more, strict=True)
        grads = [(name, p, either(one, other)) for (name, p, one), (_, _, other) in pairs]
        silent = silences(stirred, grads)
    chosen = [lists_of(name) for name in first.keys() - silent]
    waiting = all(any(lists_of(name) & lists for lists in chosen) for name in silent)
    frozen = [n for n, p in stirred.named_parameters() if p.dim() > 1 and not p.requires_grad]
    if frozen and not silent:
        names = ", ".join(name.removeprefix("model.") for name in frozen[:3])
        said = f"All {len(grads)} that are trained do, but these are not trained: {names}."
        return found(False, said, cause="frozen", otherwise="doubtful")
    if not silent and not head_is_trained(stirred):
        said = f"All {len(grads)} do, but no matrix gets one for the logits of tokens that are not read."
        return found(False, said, "One for each token in the last layer.", "head", otherwise="doubtful")
    return found(
        not silent,
        f"{len(silent)} of {len(grads)} get none: {'; '.join(list(silent.values())[:3])}."
        if silent
        else f"All {len(grads)} do.",
        cause="expert" if waiting else "",
        otherwise="doubtful" if waiting else "wrong",
    )


def head_is_trained(subject: Subject) -> bool:
    """Return whether what is as long as the vocabulary gets a gradient for tokens that are not read."""
    ids, V = subject.tokens[:1].repeat(1, min(2, subject.block_size)), subject.vocab_size
    trained = [p for p in subject.parameters() if p.requires_grad]
    with torch.enable_grad():
        grads = gradients_by(mean_loss(subject(ids), ids.to(subject.device)), trained)
    unread = subject.tokens[1:].to(subject.device)
    long = [grad for grad in grads if grad is not None and V in grad.shape]
    rows = [grad.index_select(list(grad.shape).index(V), unread) for grad in long]
    return not rows or any(bool(each.any()) for each in rows)


def silences(subject: Subject, grads: list[Gradient]) -> dict[str, str]:
    """Return the parameters, by name, of which a part gets no gradient, and what that is."""
    said = {name: silence(subject, name, p, grad) for name, p, grad in grads}
    return {name: words for name, words in said.items() if words}


def either(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    """Return what is zero, or None, where both gradients are."""
    return other if one is None else one if other is None else one.abs() + other.abs()


def lists_of(name: str) -> set[str]:
    """Return the places of a parameter in lists of modules: of "h.2.mlp.1.bias", "h.?.mlp.1.bias", ..."""
    parts = name.split(".")
    places = [place for place, part in enumerate(parts) if part.isdigit()]
    return {".".join([*parts[:place], "?", *parts[place + 1 :]]) for place in places}


def repeated(model: nn.Module) -> str:
    """Return the name of a list of modules in which one stands twice; or ""."""
    lists = ((n, list(m)) for n, m in model.named_modules() if isinstance(m, nn.ModuleList | nn.Sequential))
    return next((name.removeprefix("model.") for name, held in lists if len(set(held)) < len(held)), "")


def unregistered(model: nn.Module) -> str:
    """Return the name of a list or a dict that holds modules which parameters() does not find; or ""."""
    known = set(model.modules())
    for module in known:
        for name, value in vars(module).items():
            held = value.values() if isinstance(value, dict) else value
            if name.startswith("_") or not isinstance(value, dict | list | tuple):
                continue
            if any(isinstance(each, nn.Module) and each not in known for each in held):
                return f"{type(module).__name__}.{name}"
    return ""


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


def gradients_of(subject: Subject, seed: int = 0) -> list[Gradient]:
    """Return the parameters that are trained, with their names, and their gradients on random ids."""
    trained = [(n.removeprefix("model."), p) for n, p in subject.named_parameters() if p.requires_grad]
    T = min(subject.block_size, LONGEST)
    if not trained:
        raise CannotAskError("No parameter requires a gradient.")
    ids = subject.draw(max(2, 128 // T), T + 1, seed=11 + seed)
    with torch.enable_grad():
        loss = mean_loss(subject(ids[:, :-1]), ids[:, 1:].to(subject.device))
        if not loss.requires_grad:
            said = "the loss depends on no parameter: is there a no_grad() or a detach() in forward()?"
            raise ValueError(said)
        grads = gradients_by(loss, [p for _, p in trained])
    return [(name, p, grad) for (name, p), grad in zip(trained, grads, strict=True)]


@asks("Gradients are of one size")
def gradient_sizes(candidate: Candidate) -> Finding:
    """Compare the gradients of matrices of one shape."""
    grads, by_shape = gradients_of(candidate.new), dict[tuple, list[float]]()
    if not any(bool(grad.any()) for *_, grad in grads if grad is not None):
        return found(False, "All are zero.", "A gradient to begin with.", "zero")
    for _, parameter, grad in grads:
        if grad is not None and parameter.dim() > 1 and bool(grad.any()):
            by_shape.setdefault(tuple(parameter.shape), []).append(float(grad.abs().square().mean().sqrt()))
    ratio = max((max(sizes) / min(sizes) for sizes in by_shape.values()), default=1.0)
    said = f"The largest gradient is {ratio:.2g} times the smallest, of matrices of one shape."
    return found(ratio < 1e4, said, otherwise="doubtful")


# How it writes


@asks("With a cache the logits are the same")
def cached(candidate: Candidate) -> Finding:
    """Read a text in parts, with a cache."""
    stirred, T = candidate.steady, candidate.short
    keyword = next((name for name in ("past_key_values", "cache") if name in stirred.arguments), "")
    if not keyword:
        raise CannotAskError("It takes no argument cache or past_key_values.")

    def compared(stops: list[int], said: str, cause: str = "") -> Finding:
        ids = stirred.draw(4, stops[-1], seed=12)  # of two texts a norm over the batch is all but 0 in places
        logits, parts = stirred.logits(ids), read_in_parts(stirred, keyword, ids, stops)
        return same(stirred, logits, parts, said, cause, slack=10.0)  # one token alone is rounded otherwise

    finding = compared(
        [0, *range(T // 2 or 1, T + 1)], "Read to its middle, then token by token, they differ by"
    )
    if finding.verdict == "right" and (full := stirred.block_size) > T:
        said = "In a full block, of which the last three are read one by one, they differ by"
        long = compared([0, *range(full - 3, full + 1)], said, "long")
        if long.verdict == "wrong":
            return long
    if finding.verdict == "right":
        try:
            parts = compared(
                sorted({0, T // 2, max(1, T - 1), T}), "Of several tokens at once they differ by", "chunk"
            )
        except Exception as error:
            parts = found(False, told(error), "Logits for several tokens after a prefix.", "chunk")
        if parts.verdict == "wrong":
            return replace(parts, verdict="doubtful")
    return finding


def read_in_parts(subject: Subject, keyword: str, ids: Tensor, stops: list[int]) -> Tensor:
    """Return the logits of texts that are read from each stop to the next, with a cache."""
    cache, parts = Cache(), []
    options: dict[str, object] = {keyword: cache if keyword == "cache" else None}
    if "use_cache" in subject.arguments:
        options["use_cache"] = True
    for start, stop in pairwise(stops):
        try:
            with torch.no_grad():
                output = subject.answer(ids[:, start:stop], **options)
        except Exception as error:
            if keyword != "cache" or start:
                raise
            raise CannotAskError(f"It takes a cache of another kind: {told(error)}") from error
        if keyword == "cache" and all(vars(cache)[name] == value for name, value in vars(Cache()).items()):
            raise CannotAskError("It takes a cache of another kind: it leaves attention.Cache() empty.")
        parts.append(collected(subject.logits_in(output)))
        options[keyword] = getattr(output, "past_key_values", options[keyword])
        if options[keyword] is None:
            raise CannotAskError("It returns no past_key_values.")
    return torch.cat(parts, dim=1)


def written_by(subject: Subject, ids: Tensor, max_new_tokens: int, seed: int = 0) -> Tensor:
    """Return ids (B, T) with what the model's own method generate appends to them."""
    write = getattr(subject.model, "generate", None)
    if not callable(write):
        raise CannotAskError("It has no method generate.")
    torch.manual_seed(seed)
    takes, T = inspect.signature(write).parameters.keys(), ids.shape[1]
    total = next((name for name in TOTALS if name in takes and "max_new_tokens" not in takes), "")
    name = total or ("max_new_tokens" if {"max_new_tokens", "kwargs"} & takes else "")
    try:
        for amount in (T + max_new_tokens, max_new_tokens) if total else (max_new_tokens,):
            options = {name: amount} if name else {}
            with kept(SHARED + OWN), torch.no_grad():
                written = write(ids.to(subject.device), *([] if name else [amount]), **options)
            if isinstance(written, Tensor) and T < written.shape[-1] <= T + max_new_tokens:
                break
    except TypeError as error:
        raise CannotAskError(f"generate(ids, {max_new_tokens}): {told(error)}") from error
    except Exception as error:
        raise DoubtError(told(error)) from error
    if not isinstance(written, Tensor) or written.dim() != 2:
        raise CannotAskError(f"generate returns {type(written).__name__}, not ids (B, T).")
    if written.shape[1] == max_new_tokens < ids.shape[1]:
        raise CannotAskError("generate returns the new ids alone.")
    return written.cpu()


@asks("It keeps writing past its block")
def generates(candidate: Candidate) -> Finding:
    """Let it write on after a full block."""
    given, T = candidate.given, candidate.given.block_size
    if given.whole > T:
        raise CannotAskError(f"Only {T} tokens of its block are read. Pass block_size={given.whole}.")
    ids = given.draw(1, T, seed=13).to(given.device)
    prompt = ids.clone()
    try:
        written, ids = written_by(given, prompt, 3), ids.cpu()
    except DoubtError as error:
        if getattr(given.model.generate, "__module__", "").startswith("transformers."):
            raise CannotAskError(f"The generate of transformers reads all ids. {error}") from error
        raise
    if not torch.equal(prompt.cpu(), ids):
        return found(False, "The ids that it was given have changed.", "They stay as they were.", "prompt")
    begins = torch.equal(written[:, :T], ids)
    known = bool(((written >= 0) & (written < given.vocab_size)).all())
    said = f"It returned {written.shape[1]} ids, {'' if begins else 'not '}beginning with the given."
    if not (begins and known and T < written.shape[1] <= T + 3):
        return found(False, said)
    stirred = candidate.stirred
    if ignored(stirred, T) < UNLIKELY and ignored(stirred, T - 1) == math.inf:
        said = f"After {T + 1} ids it draws the same whatever the last is, but not whatever that before is."
        return found(False, said, "What it draws depends on the last id.", "first")
    return found(True, said)


def ignored(subject: Subject, place: int) -> float:
    """Return how likely a generate that reads an id draws as if it did not; infinity if it shows it.

    Texts are longer than the block by one id. With the same random numbers two predictions draw one token
    with a probability of at most 1 - their total variation.
    """
    luck = 1.0
    for seed in range(TEXTS):
        texts = subject.draw(1, subject.block_size + 1, seed).repeat(2, 1)
        texts[1, place] = subject.others(texts[0, place])
        one, other = (written_by(subject, text[None], 1, seed)[:, len(text) :] for text in texts)
        if not torch.equal(one, other):
            return math.inf
        one, other = subject.logits(texts[:, 1:])[:, -1].softmax(dim=-1)
        luck *= 1 - float((one - other).abs().sum()) / 2
        if luck < UNLIKELY or (seed >= 8 and luck ** (TEXTS / seed) > UNLIKELY):  # it would take too many
            break
    return luck


@asks("It writes what it predicts")
def writes_predictions(candidate: Candidate) -> Finding:
    """Let it write one token after each of many texts, and ask how much it expected these."""
    stirred, T = candidate.stirred, min(8, candidate.given.block_size)
    ids = stirred.draw(64 if stirred.is_large else 1024, T, seed=14)
    surprises = -stirred.logits(ids)[:, -1].log_softmax(dim=-1)
    drawn = written_by(stirred, ids, 1)[:, T:]
    if drawn.shape[1] != 1:
        raise CannotAskError(f"generate(ids, 1) appends {drawn.shape[1]} tokens.")
    expects = (-surprises).exp()
    entropy = (expects * surprises).sum(dim=-1)
    spread = (expects * surprises**2).sum(dim=-1) - entropy**2
    limit = float(entropy.mean() + 5 * (spread.mean() / len(ids)).sqrt())
    surprise = float(surprises.gather(1, drawn).mean())
    if surprise <= limit and stirred.block_size > T:
        ids = ids[:64]
        drawn = written_by(stirred, ids, 2)[:, T:]
        again = stirred.logits(torch.cat([ids, drawn[:, :1]], dim=1))[:, -1].log_softmax(dim=-1)
        expected = torch.equal(drawn[:, 1:], again.argmax(dim=-1, keepdim=True))  # it takes the likeliest
        likely = expected or again.gather(1, drawn[:, :1]).sum() > math.log(UNLIKELY)
        if torch.equal(drawn[:, :1], drawn[:, 1:]) and not likely:
            said = "Of two tokens that it writes the second is the first again, after each of 64 texts."
            return found(False, said, "Another draw for each.", "again")
    return found(
        surprise <= limit,
        f"What it draws surprises it by {surprise:.2f} nats a token.",
        f"At most {limit:.2f}: the entropy of its predictions, and five standard errors.",
    )
