"""What a model computes, and what looks at what.

A question is a function of a `Candidate`. Its texts stand in `questions.toml`, under the name above it.
"""

import itertools
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import torch
from torch import Tensor, nn

from attention_course.examine.beginning import FADES, recency
from attention_course.examine.question import LONG, RESIDUAL, SHORT, Candidate, asks, found, same
from attention_course.examine.report import Finding
from attention_course.examine.subject import TARGETS, CannotAskError, Subject, gap, parts_of, told
from attention_course.plots import Heatmap

ALIKE = 0.2  # right models have 0.4 and more, positions that are clamped in the middle of a block below 0.1
ALIKE_IDS = 1e-3  # of the spread of logits, in a dtype whose rounding is no measure
ALL_IDS = 512  # ids of which each is tried
ALL_PLACES = 128  # tokens of a block in which a leak is looked for before each token
APART = 0.75  # of order: a matrix for each place has 0.89 and more, attention without a residual 0.58 at most
BATCH = 2**20  # logits that are computed at once
TOLD = 0.4  # embeddings of positions have 0.5 and more early; the mask alone has 0.3 at most
FAINT = 30  # times what rounding explains: a memory that fades ends below, a cut far above

# What comes out


@asks("It answers ids with logits")
def answers(candidate: Candidate) -> Finding:
    """Ask for the shape of the logits, and find out how the model wants to be called."""
    subject = candidate.given
    ids = subject.draw(3, min(5, subject.block_size))
    B, T, V = *ids.shape, subject.vocab_size
    wanted = next((name for name in TARGETS if name in subject.arguments), "")
    if wanted and not answers_everywhere(subject, ids):
        subject.targets = wanted
    try:
        shape = tuple(subject(ids).shape)
    except Exception as error:
        takes, needed = subject.arguments.values(), ", ".join(subject.required[1:])
        if takes and all(each.kind in (each.KEYWORD_ONLY, each.VAR_KEYWORD) for each in takes):
            return found(False, told(error), cause="named")
        cause = f"Called with ids alone, it also needs {needed}. Make that in forward(), from ids."
        return found(False, told(error), cause=cause if needed else crash_cause(error))
    called = f"model(ids, {wanted}=...)" if subject.targets else "model(ids)"
    causes = {
        (B, V): "last",
        (B, 1, V): "last",
        (B * T, V): "merged",
        (B, V, T): "turned",
        (T, B, V): "exchanged",
        (): "loss",
        (B, T): "number",
    }
    return found(
        shape == (B, T, V),
        f"{called} returned shape {shape} for ids of shape {(B, T)}.",
        f"Shape {(B, T, V)}, with vocab_size = {V}.",
        causes.get(shape, "size"),
    )


def crash_cause(error: Exception) -> str:
    """Return the name of what makes a model raise this error."""
    if isinstance(error, NotImplementedError):
        return "empty"
    if isinstance(error, IndexError):
        return "ids"
    if "tuple" in str(error):
        return "tuple"
    return "sizes" if isinstance(error, RuntimeError) else "called"


def answers_everywhere(subject: Subject, ids: Tensor) -> bool:
    """Return whether ids alone get more than the last position's logits; nanoGPT's form needs targets."""
    try:
        return subject(ids).numel() > len(ids) * subject.vocab_size
    except Exception:
        return False


@asks("It reads a full block")
def reads_block(candidate: Candidate) -> Finding:
    """Pass block_size tokens."""
    subject = candidate.given
    ids = subject.draw(1, subject.block_size)
    expected = f"Logits for ids of shape {tuple(ids.shape)}."
    try:
        shape = tuple(subject.logits(ids).shape)
    except Exception as error:
        return found(False, told(error), expected)
    fits = shape == (*ids.shape, subject.vocab_size)
    return found(fits, f"It returned shape {shape} for {subject.block_size} tokens.", expected)


@asks("The logits are finite")
def finite(candidate: Candidate) -> Finding:
    """Look for NaN and inf."""
    candidate.given.leave_out_what_never_comes()
    new = candidate.new
    logits = new.logits(new.draw(4, candidate.short))
    if not logits.dtype.is_floating_point:
        return found(False, f"dtype {logits.dtype}.", "A float dtype.", "integers")
    bad, never = int((~logits.isfinite()).sum()), len(new.never)
    said = f" {never} tokens that can never come, as padding does, are left out." if never else ""
    return found(not bad, f"{bad} of {logits.numel()} are NaN or inf.{said}")


@asks("The logits are raw")
def raw(candidate: Candidate) -> Finding:
    """Look for a softmax or another limit behind the last layer."""
    given = candidate.given
    logits = candidate.stirred.logits(given.draw(4, candidate.short))[..., given.tokens]
    low, high, many = float(logits.min()), float(logits.max()), logits.numel() >= 100
    if low >= 0 and bool(((logits.sum(dim=-1) - 1).abs() < 1e-3).all()):
        return found(False, "Each row sums to 1, and none is negative.", cause="softmax")
    if many and 0 <= low < high:
        return found(False, f"None of {logits.numel()} is negative.", "Both signs.", "relu")
    if many and low >= -1 and 0.999 < high <= 1:
        return found(False, "All lie between -1 and 1.", "No limits.", "tanh")
    return found(True, f"From {low:.2g} to {high:.2g}.")


@asks("The ids stay as they were")
def input_unchanged(candidate: Candidate) -> Finding:
    """Compare the ids before and after a call."""
    given = candidate.given
    ids = given.draw(2, candidate.short)
    passed = ids.to(given.device, copy=True)
    with torch.no_grad():
        given(passed)
    if moved := int((passed.cpu() != ids).sum()):
        return found(False, f"{moved} of {ids.numel()} ids changed.")
    table = next((e for e in given.embeddings if e.num_embeddings == given.vocab_size), None)
    if table is None or "inputs_embeds" not in given.arguments:
        return found(True, f"0 of {ids.numel()} ids changed.")
    with torch.no_grad():
        vectors = table(ids.to(given.device))
        passed = vectors.clone()
        given.model(inputs_embeds=passed)
    if not torch.equal(passed, vectors):
        return found(False, "The inputs_embeds have changed.", "None.", "embeds")
    return found(True, f"0 of {ids.numel()} ids changed, nor did inputs_embeds.")


# The same again


@asks("In eval mode the same ids give the same logits")
def repeatable(candidate: Candidate) -> Finding:
    """Call twice, with other random numbers."""
    new = candidate.new
    ids = new.draw(2, candidate.short)
    once, again, third = (new.logits(ids, seed) for seed in (0, 1, 0))
    cause = "memory" if gap(once, third) > new.tolerance(once) else ""
    return same(new, once, again, "They differ by", cause)


@asks("No text leaves a trace in the model")
def stateless(candidate: Candidate) -> Finding:
    """Call a fresh copy with a short text, with longer ones, and with the short text; then train another."""
    fresh = candidate.fresh()
    ids = fresh.draw(2, min(candidate.short, max(1, fresh.block_size // 2)))
    once = fresh.logits(ids)
    drawn_next = torch.get_rng_state()
    fresh.logits(fresh.draw(2, fresh.block_size, seed=1), seed=1)
    if torch.equal(drawn_next, torch.get_rng_state()):
        said = "After a call torch draws the same random numbers, whatever its seed was before."
        return found(False, said, "It leaves torch's generator alone.", "seed")
    with suppress(Exception):  # it need not read more than its block
        fresh.logits(fresh.draw(1, 2 * fresh.block_size, seed=1))
    finding = same(fresh, once, fresh.logits(ids), "After a longer text they differ by")
    if finding.verdict != "right" or not candidate.is_copy:
        return finding
    trained = candidate.fresh().train()
    first, second = trained.logits(ids), trained.logits(ids)
    if gap(first, second) > trained.tolerance(first):
        return finding  # it counts its calls, or the like
    trained.eval().logits(ids)
    third = trained.train().logits(ids)
    return same(trained, first, third, "In train mode, after a call in eval mode, they differ by", "mode")


# What looks at what


@asks("The texts of a batch do not affect each other")
def batch_apart(candidate: Candidate) -> Finding:
    """Compare each text alone with the same text in a batch; in train mode, put other texts beside it."""
    stirred, said = candidate.steady, "With other texts beside it a text's logits move by"
    many, T = 2 if stirred.is_large else 8, stirred.block_size
    for ids in (stirred.draw(many, T), stirred.draw(8, candidate.short), stirred.draw(3, candidate.short)):
        alone = torch.cat([stirred.logits(text[None]) for text in ids])
        finding = same(stirred, stirred.logits(ids), alone, said)
        if finding.verdict != "right":
            return finding
    if candidate.is_copy:
        others = torch.cat([ids[:1], stirred.others(ids[1:])])
        once, again = (stirred.logits_in_training(texts)[0] for texts in (ids, others))
        finding = same(stirred, once, again, said, "training")
    return finding


@asks("No leak from the future")
def no_leak(candidate: Candidate) -> Finding:
    """Change later tokens, and look at earlier outputs; then in a full block, and in train mode."""
    stirred, T, table = candidate.stirred, candidate.short, candidate.table
    leaks = table.triu(1)
    said = f"{int(leaks.sum())} of {T * (T - 1) // 2} later tokens change an earlier output."
    if holds := not leaks.any():
        full = stirred.block_size
        many = full if full <= ALL_PLACES else max(SHORT, 96 * LONG // full)
        at_once = max(1, BATCH // (full * stirred.vocab_size))
        if stirred.is_large:
            many, at_once = SHORT // 2, 1
        if moved := moved_by_later(stirred, stirred.logits, full, spread_places(full, many), at_once):
            said = f"In a full block, later tokens change {moved} earlier outputs."
        elif candidate.is_copy and (
            moved := moved_by_later(stirred, stirred.logits_in_training, T, torch.tensor([T // 2]))
        ):
            said = f"In train mode, later tokens change {moved} outputs."
        holds = not moved
    if not holds:
        said += leaking_module(stirred)
    cells = [(t, s) for t, s in leaks.nonzero().tolist()]
    panel = Heatmap("outputs that a token changes", table.float(), "output", "token", crossed=cells)
    return replace(found(holds, said, cause=leak_cause(table)), panel=panel)


def leaking_module(subject: Subject) -> str:
    """Say in which module the leak arises: its inputs before a token stay when that changes, its output not.

    Modules end from the inside out, so the first one of this kind holds no other. "" if there is none.
    """
    if not isinstance(subject.model, nn.Module):
        return ""
    T = next(T for T in (13, 11, 7, 5, 3, 2) if subject.block_size >= T)  # no usual size of anything else
    ids = subject.draw(2, T, seed=2)
    changed = torch.cat([ids[:, :-1], subject.others(ids[:, -1:])], dim=1)
    runs: list[list[tuple[nn.Module, list[Tensor], list[Tensor]]]] = []

    def note(module: nn.Module, inputs: tuple, options: dict, output: object) -> None:
        tensors = ((*inputs, *options.values()), parts_of(output).values())
        given, made = ([each.clone() for each in held if isinstance(each, Tensor)] for held in tensors)
        runs[-1].append((module, given, made))  # copies, for a residual may be added in place

    def differs(one: Tensor, other: Tensor) -> bool:
        times = [place for place, size in enumerate(one.shape) if size == T]
        if not times or one.shape != other.shape or not one.is_floating_point():
            return False
        early = [each.narrow(times[0], 0, T - 1) for each in (one, other)]
        return gap(*early) > subject.tolerance(early[0].flatten(0, -2)[None])

    hooks = [m.register_forward_hook(note, with_kwargs=True) for m in subject.model.modules()]
    try:
        for texts in (ids, changed):
            runs.append([])
            subject.logits(texts)
    finally:
        for hook in hooks:
            hook.remove()
    names = {module: name for name, module in subject.model.named_modules()}
    for (module, *one), (_, *other) in zip(*runs, strict=False):
        pairs = (zip(a, b, strict=False) for a, b in zip(one, other, strict=True))
        leaks = [any(itertools.starmap(differs, pair)) for pair in pairs]  # of its inputs, of its output
        if leaks == [False, True] and names[module]:
            shape = tuple(one[1][0].shape)
            return f" It arises in {names[module]} ({type(module).__name__}), whose output has shape {shape}."
    return ""


def leak_cause(table: Tensor) -> str:
    """Return the name of what makes this pattern of leaks."""
    leaks, past = table.triu(1), table.tril(-1)
    future, ahead = torch.ones_like(leaks).triu(1), int(leaks[0].sum())
    if 0 < ahead < len(table) - 1 and torch.equal(leaks, future.tril(ahead)):  # a diagonal for each layer
        return "next"
    if len(table) > 2 and leaks.any() and not past.any():
        return "inverted"
    if leaks[0].any() and not leaks[1:].any():
        return "first"
    return "all" if leaks.sum() > 0.9 * future.sum() else ""


def spread_places(T: int, many: int) -> Tensor:
    """Return all places but the first, or this many: a random one in each of as many equal parts of a text.

    A leak from token j to output i < j is found by a place from i + 1 to j: for certain if it reaches back
    over two parts, and otherwise the more likely the further it reaches, and the more outputs have it.
    """
    if many >= T - 1:
        return torch.arange(1, T)
    parts = torch.arange(many) + torch.rand(many, generator=torch.Generator().manual_seed(15))
    return (1 + parts * (T - 1) / many).long()


def moved_by_later(
    subject: Subject, logits: Callable[[Tensor], Tensor], T: int, places: Tensor, at_once: int = 1
) -> int:
    """Return how many of T outputs change with the tokens from one of these places on, that come later.

    For dropout to draw the same numbers for all, a text has a call of its own.
    """
    ids = subject.draw(1, T, seed=3)
    once, moved = logits(ids), torch.zeros(T, dtype=torch.bool)
    limit = subject.tolerance(once)
    for group in places.split(at_once):
        later = torch.arange(T) >= group[:, None]
        moves = (once - logits(torch.where(later, subject.others(ids), ids))).abs().amax(dim=-1)
        moved |= ((moves > limit) & ~later).any(dim=0)
    return int(moved.sum())


@asks("Every token is read")
def own_token(candidate: Candidate) -> Finding:
    """Change a token, and look at the output there."""
    T, read = candidate.short, int(candidate.table.diagonal().sum())
    said = f"{read} of {T} outputs depend on their own token."
    if read < T or not (pair := read_as_one(candidate.stirred)):
        return found(read == T, said, f"All {T}.")
    one, other = pair
    tables = [e.weight for e in candidate.given.embeddings if len(e.weight) >= candidate.given.vocab_size]
    apart = tables and not any(torch.equal(table[one], table[other]) for table in tables)
    return found(
        False,
        f"{said} But ids {one} and {other} give the same logits.",
        "Other logits for another id.",
        "ids",
        otherwise="wrong" if apart and candidate.is_copy else "doubtful",
    )


def read_as_one(subject: Subject) -> list[int]:
    """Return two ids for which all logits at their place are the same; [] if there are none.

    Of a large vocabulary some ids are tried, half of them neighbours.
    """
    ids, many = subject.tokens, ALL_IDS
    if len(ids) > many:
        order = many // 2 + torch.randperm(len(ids) - many // 2, generator=torch.Generator().manual_seed(16))
        ids = torch.cat([ids[: many // 2], ids[order[: many // 2]]])
    texts = subject.draw(1, min(2, subject.block_size), seed=16).repeat(len(ids), 1)
    texts[:, -1] = ids
    some, logits, limit = subject.draw(1, 64, seed=17)[0], [], math.inf  # tokens whose logits are compared
    for part in texts.split(max(2, BATCH // subject.vocab_size)):
        whole = subject.logits(part)[:, -1]
        limit = min(limit, subject.tolerance(whole), ALIKE_IDS * float(whole[:, some].std()))
        logits.append(whole[:, some])
    told = torch.cat(logits)
    alike = (torch.cdist(told, told, p=math.inf) <= limit).triu(1).nonzero()
    return ids[alike[0]].tolist() if len(alike) else []


@asks("The past is used")
def past_used(candidate: Candidate) -> Finding:
    """Change a token, and look at the next output."""
    T, used = candidate.short, int(candidate.table.diagonal(-1).sum())
    said, half = f"{used} of {T - 1} outputs depend on the token before.", used >= T / 2
    return found(
        used > 0.75 * (T - 1), said, cause="some" if half else "", otherwise="doubtful" if half else "wrong"
    )


@asks("A prefix alone gives the same logits")
def prefix_alone(candidate: Candidate) -> Finding:
    """Compare a text with its beginnings."""
    stirred, T, short = candidate.steady, candidate.given.block_size, candidate.short
    ids = stirred.draw(2, T, seed=6)
    logits = stirred.logits(ids)
    lengths = {1, min(2, T), *(max(1, n) for n in (short // 2, short - 1, short, T // 2, T - 1))}
    alone = {n: stirred.logits(ids[:, :n]) for n in sorted(lengths)}
    for n in alone:
        if not bool(alone[n].isfinite().all()):
            return found(False, f"NaN or inf for a text of length {n}.", "Finite logits.", "nan")
    worst = max(alone, key=lambda n: gap(logits[:, :n], alone[n]))
    said = f"The first {worst} of {T} tokens, read alone: logits differ from those in the full text by"
    return same(stirred, logits[:, :worst], alone[worst], said)


@asks("The context is as long as it says")
def full_context(candidate: Candidate) -> Finding:
    """Change the first tokens of a full block, and look at its last output."""
    stirred, T = candidate.stirred, candidate.given.block_size
    reach, effect = reach_of(stirred, T)
    if reach == T - 1:
        return found(True, f"The first token reaches output {T - 1}.")
    cause = "fading" if effect < FAINT else "window" if 0 < reach == reach_of(stirred, T - 1)[0] else ""
    return found(
        False,
        f"The last of {T} outputs depends on {reach} tokens before it.",
        f"All {T - 1}.",
        cause,
        "doubtful" if cause else "wrong",
    )


def reach_of(subject: Subject, T: int) -> tuple[int, float]:
    """Return how far back the last output of T tokens sees, and how much it moves with what is there.

    That is by halving the distance. The effect is in units of what rounding explains.
    """
    ids = subject.draw(1, T, seed=4)
    whole = subject.logits(ids)
    limit = subject.tolerance(whole)

    def effect(distance: int) -> float:
        for by in (1, 2, 3):
            changed = ids.clone()
            changed[:, : T - distance] = subject.others(ids[:, : T - distance], by)
            if (moved := gap(whole[:, -1], subject.logits(changed)[:, -1])) > limit:
                return moved / limit
        return 0.0

    near, far, least = 0, T, math.inf  # it reaches `near` back, and not `far`
    middle = T - 1
    while far - near > 1:
        if moved := effect(middle):
            near, least = middle, moved
        else:
            far = middle
        middle = (near + far) // 2
    return near, least


@asks("The order of tokens matters")
def order_used(candidate: Candidate) -> Finding:
    """Exchange the first two tokens that an output sees, and look at it; then compare with two late ones."""
    stirred, T = candidate.stirred, min(8, candidate.given.block_size)
    ids = stirred.draw(4, T, seed=5)
    first = T - 1 - reach_of(stirred, T)[0]  # 0, unless it looks through a window
    if first > T - 3:
        raise CannotAskError("An output depends on no two tokens before its own.")
    ids[:, first + 1] = stirred.others(ids[:, first])
    exchanged = ids.clone()
    exchanged[:, [first, first + 1]] = ids[:, [first + 1, first]]
    logits = stirred.logits(ids)[:, -1]
    away = gap(logits, stirred.logits(exchanged)[:, -1])
    limit = stirred.tolerance(logits)
    said = f"Two early tokens change places: the last logits move by {away:.2g}."
    if away <= limit or (full := candidate.given.block_size) < SHORT:
        return found(away > limit, said, f"More than rounding, {limit:.1g}.")
    early = late = 0.0
    for texts in (1, 2) if stirred.is_large else (2, 16):  # more of them only if there is a suspicion
        early, late = (share_of_order(stirred, full, at, texts) for at in ((0, 1, 2), (-5, -4, -3)))
        if early < TOLD or not late < 2 * ALIKE * early:
            break
    if early < TOLD or not late < ALIKE * early:
        return found(True, said)
    said += f" Of what two other tokens would do there, that is {early:.0%} at the beginning of a "
    said += f"block, and {late:.0%} at its end."
    return found(False, said, "Late about as much as early.", "alike", otherwise="doubtful")


def share_of_order(subject: Subject, T: int, places: tuple[int, ...], texts: int) -> float:
    """Return how far neighbours that change places move the last logits, as a share of two other tokens.

    That is NaN if these do not reach the last output.
    """
    ids, exchanges, others = subject.draw(texts, T, seed=5), 0.0, 0.0
    logits = subject.logits(ids)[:, -1]
    for place in places:
        pair, exchanged, changed = [place, place + 1], ids.clone(), ids.clone()
        exchanged[:, pair] = ids[:, pair[::-1]]
        changed[:, pair] = subject.others(ids[:, pair])
        exchanges += float((subject.logits(exchanged)[:, -1] - logits).norm(dim=-1).sum())
        others += float((subject.logits(changed)[:, -1] - logits).norm(dim=-1).sum())
    return exchanges / others if others else math.nan


@asks("A token's own output depends most on itself")
def residual(candidate: Candidate) -> Finding:
    """Compare the effect of the last token with that of those before it."""
    loud = candidate.loud
    by_text = loud.effects_on_last(candidate.short)
    effects = by_text.mean(dim=0)
    if not effects[:-1].any():
        raise CannotAskError("With these parameters no earlier token changes the last logits.")
    ratio = float(effects[-1] / effects[:-1].mean())
    times = f"{ratio:.1f}" if ratio < 1000 else "more than 1000"
    holds = ratio > RESIDUAL
    cause = ""
    recurrent = any(isinstance(module, nn.RNNBase) for module in loud.modules())
    if not holds and (recurrent or recency(by_text[:, :-1]) > FADES):
        cause = "fading"
    elif not holds and share_of_order(loud, candidate.short, (0, 1, 2, 5, 8), 16) > APART:
        cause = "apart"
    return found(
        holds,
        f"The last token changes the last logits {times} times as much as one before it.",
        f"More than {RESIDUAL} times: it comes by the residual stream as well as by attention.",
        cause,
        otherwise="wrong" if candidate.is_copy and loud.embeddings and not cause else "doubtful",
    )
