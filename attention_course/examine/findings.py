"""What a model computes, and what looks at what.

A question is a function of a `ModelVariants`. Its texts stand in `findings.toml`, under the name above it.
"""

import itertools
import math
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import torch
from torch import Tensor, nn

from attention_course.examine.beginning import FADES, recency
from attention_course.examine.gradients import unregistered
from attention_course.examine.question import (
    ATTENTION_TOKENS,
    MIN_OWN_EFFECT,
    OUTWEIGHS,
    PAIRWISE_TOKENS,
    ModelVariants,
    asks,
    equal_logits,
    finding_if,
)
from attention_course.examine.report import Finding
from attention_course.examine.wrapped_model import (
    MUCH,
    NEVER,
    CannotAskError,
    WrappedModel,
    format_error,
    gradients_by,
    max_abs_diff,
    parts_of,
)
from attention_course.plots import Heatmap

ALIKE = 0.2  # right models have 0.4 and more, positions that are clamped in the middle of a block below 0.1
ALIKE_IDS = 1e-3  # of the spread of logits, in a dtype whose rounding is no measure
ALL_IDS = 512  # ids of which each is tried
ALL_PLACES = 128  # tokens of a block in which a leak is looked for before each token
APART = 0.75  # of order: a matrix for each place has 0.89 and more, attention without a residual 0.58 at most
CLAMPED = 8  # logits at least are exactly at a limit, and 4 times as many as nearly there
END_IDS = 32  # ids at either end of the vocabulary, where special tokens are
LAST_IDS = 8  # ids before which each of them is read
BATCH = 2**20  # logits that are computed at once
TOLD = 0.4  # embeddings of positions have 0.5 and more early; the mask alone has 0.3 at most
SMOOTH = 0.15  # of the largest logit: behind a SiLU or a GELU it is below 0.07, of right models above 0.6
FAINT = 30  # times what rounding explains: a memory that fades ends below, a cut far above

# What comes out


@asks("It answers ids with logits")
def answers(variants: ModelVariants) -> Finding:
    """Ask for the shape of the logits, and find out how the model wants to be called."""
    wrapped = variants.given
    ids = wrapped.draw(3, min(5, wrapped.block_size))
    B, T, V = *ids.shape, wrapped.vocab_size
    wanted = wrapped.target_argument
    if wanted and not answers_everywhere(wrapped, ids):
        wrapped.targets = wanted
    try:
        shape = tuple(wrapped(ids).shape)
    except Exception as error:
        takes, needed = wrapped.arguments.values(), ", ".join(wrapped.required[1:])
        if takes and all(each.kind in (each.KEYWORD_ONLY, each.VAR_KEYWORD) for each in takes):
            return finding_if(False, format_error(error), cause="named")
        cause = f"Called with ids alone, it also needs {needed}. Make that in forward(), from ids."
        return finding_if(False, format_error(error), cause=cause if needed else crash_cause(error))
    called = f"model(ids, {wanted}=...)" if wrapped.targets else "model(ids)"
    causes = {
        (B, V): "last",
        (B, 1, V): "last",
        (B * T, V): "merged",
        (B, V, T): "turned",
        (T, B, V): "exchanged",
        (): "loss",
        (B, T): "number",
    }
    return finding_if(
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
    if "without overflow" in str(error):
        return "overflow"
    sizes = isinstance(error, RuntimeError) and re.search("size|shape|dimension", str(error), re.IGNORECASE)
    return "sizes" if sizes else "called"


def answers_everywhere(wrapped: WrappedModel, ids: Tensor) -> bool:
    """Return whether ids alone get more than the last position's logits; nanoGPT's form needs targets."""
    try:
        return wrapped(ids).numel() > len(ids) * wrapped.vocab_size
    except Exception:
        return False


@asks("It reads a full block")
def reads_block(variants: ModelVariants) -> Finding:
    """Pass block_size tokens."""
    wrapped = variants.given
    ids = wrapped.draw(1, wrapped.block_size)
    expected = f"Logits for ids of shape {tuple(ids.shape)}."
    try:
        shape = tuple(wrapped.logits(ids).shape)
    except Exception as error:
        return finding_if(False, format_error(error), expected)
    fits = shape == (*ids.shape, wrapped.vocab_size)
    return finding_if(fits, f"It returned shape {shape} for {wrapped.block_size} tokens.", expected)


@asks("The logits are finite")
def finite(variants: ModelVariants) -> Finding:
    """Look for NaN and inf."""
    variants.given.leave_out_what_never_comes()
    new = variants.new
    texts = new.draw(4, variants.short), new.draw(1, new.block_size)
    logits = torch.cat([new.logits(ids).flatten(0, 1) for ids in texts])
    if not logits.dtype.is_floating_point:
        return finding_if(False, f"dtype {logits.dtype}.", "A float dtype.", "integers")
    if (
        variants.is_copy
        and logits.isfinite().all()
        and not new.logits_in_training(texts[0], dropout=True).isfinite().all()
    ):
        return finding_if(False, "In train mode some are NaN or inf.", cause="train")
    bad, never = int((~logits.isfinite()).sum()), len(new.never)
    said = f" {never} tokens that can never come, as padding does, are left out." if never else ""
    return finding_if(not bad, f"{bad} of {logits.numel()} are NaN or inf.{said}")


@asks("The logits are raw")
def raw(variants: ModelVariants) -> Finding:
    """Look for a softmax or another limit behind the last layer."""
    given = variants.given
    logits = variants.with_noise.logits(given.draw(4, variants.short))[..., given.tokens]
    low, high, many = float(logits.min()), float(logits.max()), logits.numel() >= 100
    if low >= 0 and bool(((logits.sum(dim=-1) - 1).abs() < 1e-3).all()):
        return finding_if(False, "Each row sums to 1, and none is negative.", cause="softmax")
    if many and 0 <= low < high:
        said, shifted = f"None of {logits.numel()} is negative.", low > max(SMOOTH * high, 1)
        trained = any(True for _ in given.parameters())  # and no table of counts
        told = ("shifted", "doubtful") if shifted else ("relu", "wrong" if trained else "doubtful")
        return finding_if(False, said, "Both signs.", *told)
    if many and -low < SMOOTH * high:
        said = f"They reach from {low:.2g} to {high:.2g}."
        return finding_if(False, said, "Both signs alike.", "smooth", otherwise="doubtful")
    if many and -1 <= low < high <= 1:
        surer = (
            variants.with_noise.surer().logits(given.draw(4, variants.short)) if variants.is_copy else logits
        )
        if high > 0.999 or high < float(surer.max()) <= 1:
            return finding_if(False, "All lie between -1 and 1.", "No limits.", "tanh")
    rows = logits.flatten(0, -2)
    moves = (rows != rows[0]).any(dim=0)
    for limit in clamped_at(rows[:, moves]) if many else []:
        said = f"None goes beyond {limit:.3g}, and many are exactly that."
        return finding_if(False, said, "No limits.", "clamp", otherwise="doubtful")
    if moves.any() and not moves.all():
        still = int((~moves).nonzero()[0])
        said = f"The logit of id {int(given.tokens[still])} is {float(rows[0, still]):.3g} everywhere."
        expected = "One that depends on the text, for each id."
        return finding_if(False, said, expected, "constant", otherwise="doubtful")
    if pair := equal_columns(rows, moves):
        one, other = given.tokens[pair].tolist()
        said = f"Ids {one} and {other} get the same logit everywhere."
        told = "wrong" if told_apart(variants, one, other) else "doubtful"
        return finding_if(False, said, "A logit for each id.", "copied", otherwise=told)
    if variants.is_copy and (dropped := dropped_in_training(variants.with_noise, variants.short)):
        said = f"In train mode {dropped} of {logits.numel()} are exactly 0, each time others."
        return finding_if(False, said, "None.", "dropout")
    return finding_if(True, f"From {low:.2g} to {high:.2g}.")


def dropped_in_training(wrapped: WrappedModel, T: int) -> int:
    """Return how many logits are 0 in train mode, if many are with each seed, and not always the same."""
    trained, ids = wrapped.copied().train(), wrapped.draw(4, T)
    zero, other = (trained.logits(ids, seed)[..., wrapped.tokens] == 0 for seed in (0, 1))
    return int(zero.sum()) if min(zero.sum(), (zero & ~other).sum()) >= CLAMPED else 0


def clamped_at(logits: Tensor) -> list[float]:
    """Return the limits, of these logits, at which many stop and near which few others are, as of clamp().

    The tanh of a soft cap has many on the way to its limit. A limit of 0 is that of a log-softmax.
    """
    found = []
    for limit in (logits.max(), logits.min()) if logits.numel() else ():
        at = int((logits == limit).sum())
        near = int(((logits - limit).abs() < 0.01 * limit.abs()).sum()) - at
        if NEVER < limit != 0 and at >= max(CLAMPED, 4 * near):
            found.append(float(limit))
    return found


def equal_columns(rows: Tensor, moves: Tensor) -> list[int]:
    """Return two columns of logits (texts, V) that move, and are the same in all rows; [] if none are."""
    if not moves.any():
        return []
    _, kinds, counts = rows[:, moves].unique(dim=1, return_inverse=True, return_counts=True)
    places = moves.nonzero()[:, 0]
    return places[kinds == counts.argmax()][:2].tolist() if len(counts) < len(places) else []


def told_apart(variants: ModelVariants, one: int, other: int) -> bool:
    """Return whether tables of the model have a row for each id, and these two rows differ in all of them."""
    V = variants.given.vocab_size
    tables = [e.weight for e in variants.given.embeddings if len(e.weight) >= V]
    return variants.is_copy and bool(tables) and not any(torch.equal(t[one], t[other]) for t in tables)


@asks("The ids stay as they were")
def input_unchanged(variants: ModelVariants) -> Finding:
    """Compare the ids before and after a call."""
    given = variants.given
    ids = given.draw(2, variants.short)
    passed = ids.to(given.device, copy=True)
    with torch.no_grad():
        given(passed)
    if moved := int((passed.cpu() != ids).sum()):
        return finding_if(False, f"{moved} of {ids.numel()} ids changed.")
    table = next((e for e in given.embeddings if e.num_embeddings == given.vocab_size), None)
    if table is None or "inputs_embeds" not in given.arguments:
        return finding_if(True, f"0 of {ids.numel()} ids changed.")
    with torch.no_grad():
        vectors = table(ids.to(given.device))
        passed = vectors.clone()
        given.model(inputs_embeds=passed)
    if not torch.equal(passed, vectors):
        return finding_if(False, "The inputs_embeds have changed.", "None.", "embeds")
    return finding_if(True, f"0 of {ids.numel()} ids changed, nor did inputs_embeds.")


# The same again


@asks("In eval mode the same ids give the same logits")
def repeatable(variants: ModelVariants) -> Finding:
    """Call twice, with other random numbers."""
    new = variants.new
    ids = new.draw(2, variants.short)
    once, again, third = (new.logits(ids, seed) for seed in (0, 1, 0))
    cause = (
        "memory"
        if max_abs_diff(once, third) > new.tolerance(once)
        else "list"
        if unregistered(new, trained=False)
        else ""
    )
    return equal_logits(new, once, again, "They differ by", cause)


@asks("No text leaves a trace in the model")
def stateless(variants: ModelVariants) -> Finding:
    """Call a fresh copy with a short text, with longer ones, and with the short text again.

    A second copy reads a longer one first, and a third is called in train mode.
    """
    fresh = variants.fresh()
    ids = fresh.draw(2, min(variants.short, max(1, fresh.block_size // 2)))
    once = fresh.logits(ids)
    drawn_next = torch.get_rng_state()
    fresh.logits(fresh.draw(2, fresh.block_size, seed=1), seed=1)
    if torch.equal(drawn_next, torch.get_rng_state()):
        said = "After a call torch draws the same random numbers, whatever its seed was before."
        return finding_if(False, said, "It leaves torch's generator alone.", "seed")
    with suppress(Exception):  # it need not read more than its block
        fresh.logits(fresh.draw(1, 2 * fresh.block_size, seed=1))
    finding = equal_logits(fresh, once, fresh.logits(ids), "After a longer text they differ by")
    if finding.verdict != "right" or not variants.is_copy:
        return finding
    other = variants.fresh()
    other.logits(other.draw(2, other.block_size, seed=1), seed=1)
    first = equal_logits(
        fresh, once, other.logits(ids), "Where a longer text came first they differ by", "first"
    )
    if first.verdict != "right":
        return replace(first, verdict="doubtful")
    trained = variants.fresh().train()
    modes = [(module, module.training) for module in trained.modules()]  # a call may put in other modules
    first, second = trained.logits(ids), trained.logits(ids)
    if any(module.training != was for module, was in modes):
        return finding_if(False, "A call in train mode puts modules into eval mode.", "None.", "eval")
    if max_abs_diff(first, second) > trained.tolerance(first):
        return finding  # it counts its calls, or the like
    finding = equal_logits(trained, once, first, "In train mode they differ by", "train")
    drawn_after = torch.get_rng_state()  # what is seldom dropped may be dropped by neither seed
    torch.manual_seed(0)
    random = not torch.equal(torch.get_rng_state(), drawn_after) or (
        max_abs_diff(first, trained.logits(ids, seed=1)) > trained.tolerance(first)
    )
    if finding.verdict != "right" and not random:
        return replace(finding, verdict="doubtful")
    trained = variants.fresh().train()
    trained.logits(ids)  # as before the second, for a router may count its tokens
    trained.eval().logits(ids)
    third = trained.train().logits(ids)
    return equal_logits(
        trained, second, third, "In train mode, after a call in eval mode, they differ by", "mode"
    )


# What looks at what


@asks("The texts of a batch do not affect each other")
def batch_apart(variants: ModelVariants) -> Finding:
    """Compare each text alone with the same text in a batch; in train mode, put other texts beside it."""
    noisy, said = variants.for_equality, "With other texts beside it a text's logits move by"
    T, many = noisy.block_size, 2 if noisy.is_large else 8
    many = max(2, min(many, BATCH // (T * noisy.vocab_size)))
    for ids in (noisy.draw(many, T), noisy.draw(8, variants.short), noisy.draw(3, variants.short)):
        alone = torch.cat([noisy.logits(text[None]) for text in ids])
        finding = equal_logits(noisy, noisy.logits(ids), alone, said)
        if finding.verdict != "right":
            return finding
    if variants.is_copy:
        others = torch.cat([ids[:1], noisy.others(ids[1:])])
        once, again = (noisy.logits_in_training(texts)[0] for texts in (ids, others))
        finding = equal_logits(noisy, once, again, said, "training")
        if finding.verdict != "right" and noisy.draws_in_training(ids):
            finding = replace(finding, verdict="doubtful", cause="drawn")
    return finding


@asks("No leak from the future")
def no_leak(variants: ModelVariants) -> Finding:
    """Change later tokens, and look at earlier outputs; then in a full block, and in train mode."""
    noisy, T, table = variants.with_noise, variants.short, variants.table
    leaks = table.triu(1)
    said = f"{int(leaks.sum())} of {T * (T - 1) // 2} later tokens change an earlier output."
    if holds := not leaks.any():
        full = noisy.block_size
        many = full if full <= ALL_PLACES else max(PAIRWISE_TOKENS, 96 * ATTENTION_TOKENS // full)
        at_once = max(1, BATCH // (full * noisy.vocab_size))
        if noisy.is_large:
            many, at_once = PAIRWISE_TOKENS // 2, 1
        if moved := moved_by_later(noisy, noisy.logits, full, spread_places(full, many), at_once):
            said = f"In a full block, later tokens change {moved} earlier outputs."
        elif variants.is_copy and (
            moved := moved_by_later(noisy, noisy.logits_in_training, T, torch.arange(T // 2, T)[:2])
        ):
            said = f"In train mode, later tokens change {moved} outputs."
            if noisy.draws_in_training(noisy.draw(1, T)):
                return finding_if(False, said, cause="drawn", otherwise="doubtful")
        holds = not moved
    if holds and variants.with_large_scores.influence(T).triu(1).any():
        said = f"With matrices {MUCH:.0f} times as large, later tokens change earlier outputs."
        return finding_if(False, said, cause="finite", otherwise="doubtful")
    if not holds:
        said += leaking_module(noisy)
    cells = [(t, s) for t, s in leaks.nonzero().tolist()]
    panel = Heatmap("outputs that a token changes", table.float(), "output", "token", crossed_out=cells)
    return replace(finding_if(holds, said, cause=leak_cause(table)), panel=panel)


def leaking_module(wrapped: WrappedModel) -> str:
    """Say in which module the leak arises: its inputs before a token stay when that changes, its output not.

    Modules end from the inside out, so the first one of this kind holds no other. "" if there is none.
    """
    if not isinstance(wrapped.model, nn.Module):
        return ""
    T = next(T for T in (13, 11, 7, 5, 3, 2) if wrapped.block_size >= T)  # no usual size of anything else
    ids = wrapped.draw(2, T, seed=2)
    changed = torch.cat([ids[:, :-1], wrapped.others(ids[:, -1:])], dim=1)
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
        return max_abs_diff(*early) > wrapped.rounding(early[0][None])

    hooks = [m.register_forward_hook(note, with_kwargs=True) for m in wrapped.model.modules()]
    try:
        for texts in (ids, changed):
            runs.append([])
            wrapped.logits(texts)
    finally:
        for hook in hooks:
            hook.remove()
    names = {module: name for name, module in wrapped.model.named_modules()}
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
    wrapped: WrappedModel, logits: Callable[[Tensor], Tensor], T: int, places: Tensor, at_once: int = 1
) -> int:
    """Return how many of T outputs change with the tokens from one of these places on, that come later.

    For dropout to draw the same numbers for all, a text has a call of its own.
    """
    ids = wrapped.draw(1, T, seed=3)
    once, moved = logits(ids), torch.zeros(T, dtype=torch.bool)
    limit = wrapped.tolerance(once)
    for group in places.split(at_once):
        later = torch.arange(T) >= group[:, None]
        moves = (once - logits(torch.where(later, wrapped.others(ids), ids))).abs().amax(dim=-1)
        moved |= ((moves > limit) & ~later).any(dim=0)
    return int(moved.sum())


@asks("Every token is read")
def own_token(variants: ModelVariants) -> Finding:
    """Change a token, and look at the output there."""
    T, read = variants.short, int(variants.table.diagonal().sum())
    said = f"{read} of {T} outputs depend on their own token."
    if read < T or not (pair := read_as_one(variants.with_noise)):
        return finding_if(read == T, said, f"All {T}.")
    one, other = pair
    return finding_if(
        False,
        f"{said} But ids {one} and {other} give the same logits.",
        "Other logits for another id.",
        "ids",
        otherwise="wrong" if told_apart(variants, one, other) else "doubtful",
    )


def read_as_one(wrapped: WrappedModel) -> list[int]:
    """Return two ids for which all logits at their place are the same; [] if there are none.

    Of a large vocabulary some ids are tried, half of them neighbours at its ends.
    """
    ids, many = wrapped.tokens, ALL_IDS
    if len(ids) > many:
        end, middle = many // 4, ids[many // 4 : -(many // 4)]
        order = torch.randperm(len(middle), generator=torch.Generator().manual_seed(16))
        ids = torch.cat([ids[:end], middle[order[: many // 2]], ids[-end:]])
    texts = wrapped.draw(1, min(2, wrapped.block_size), seed=16).repeat(len(ids), 1)
    texts[:, -1] = ids
    some, logits, limit = wrapped.draw(1, 64, seed=17)[0], [], math.inf  # tokens whose logits are compared
    for part in texts.split(max(2, BATCH // wrapped.vocab_size)):
        whole = wrapped.logits(part)[:, -1]
        limit = min(limit, wrapped.tolerance(whole), ALIKE_IDS * float(whole[:, some].std()))
        logits.append(whole[:, some])
    told = torch.cat(logits)
    alike = (torch.cdist(told, told, p=math.inf) <= limit).triu(1).nonzero()
    return ids[alike[0]].tolist() if len(alike) else []


@asks("The past is used")
def past_used(variants: ModelVariants) -> Finding:
    """Change a token, and look at the next output."""
    T, used = variants.short, int(variants.table.diagonal(-1).sum())
    said, half = f"{used} of {T - 1} outputs depend on the token before.", used >= T / 2
    hidden = list[int]()
    if used > 0.75 * (T - 1) and variants.is_copy and (hidden := hidden_ids(variants.with_noise)):
        hidden = sorted({*hidden} & {*hidden_ids(variants.with_new_noise(1))})
    if hidden:
        named = " or ".join(map(str, hidden[:3]))
        said += f" But after id {named} the next output does not depend on it, as it does on other ids."
        return finding_if(False, said, "All ids.", "padding", otherwise="doubtful")
    return finding_if(
        used > 0.75 * (T - 1), said, cause="some" if half else "", otherwise="doubtful" if half else "wrong"
    )


def hidden_ids(wrapped: WrappedModel) -> list[int]:
    """Return the ids, of the first and the last, that change no next output, as most of the others do.

    Their rows in the table of tokens get no gradient from it. That table may be the last layer, too, so one
    half of these ids is read, and the logits of the other half count.
    """
    ids, V = wrapped.tokens, wrapped.vocab_size
    ids = torch.cat([ids[:END_IDS], ids[-END_IDS:]]).unique()
    tables = [e.weight for e in wrapped.embeddings if len(e.weight) >= V]
    tables = tables or [p for p in wrapped.parameters() if p.dim() == 2 and len(p) == V]
    tables, hidden = [table for table in tables if table.requires_grad], list[int]()
    for read, last in (ids[::2], ids[1::2]), (ids[1::2], ids[::2]):
        seconds = (last[(torch.arange(len(read)) + by) % len(last)] for by in range(LAST_IDS))
        grads = []
        with suppress(Exception), torch.enable_grad():  # that it has none is for the question of gradients
            logits = torch.stack([wrapped(torch.stack([read, each], dim=1))[:, -1] for each in seconds])
            total = (logits[..., last.to(logits.device)] * torch.linspace(1, 2, len(last)).to(logits)).sum()
            grads = gradients_by(total, tables) if tables and total.requires_grad else []
        rows = [grad.cpu()[read] for grad in grads if grad is not None]
        silent = [(each == 0).all(dim=1) for each in rows]
        counted = [each for each in silent if 2 * int(each.sum()) < len(read)]  # a table of positions is not
        hidden += read[torch.stack(counted).all(dim=0)].tolist() if counted else []
    return hidden


@asks("A prefix alone gives the same logits")
def prefix_alone(variants: ModelVariants) -> Finding:
    """Compare a text with its beginnings."""
    noisy, T, short = variants.for_equality, variants.given.block_size, variants.short
    ids = noisy.draw(2, T, seed=6)
    logits = noisy.logits(ids)
    lengths = {1, min(2, T), *(max(1, n) for n in (short // 2, short - 1, short, T // 2, T - 1))}
    alone = {n: noisy.logits(ids[:, :n]) for n in sorted(lengths)}
    for n in alone:
        if not bool(alone[n].isfinite().all()):
            return finding_if(False, f"NaN or inf for a text of length {n}.", "Finite logits.", "nan")
    worst = max(alone, key=lambda n: max_abs_diff(logits[:, :n], alone[n]))
    said = f"The first {worst} of {T} tokens, read alone: logits differ from those in the full text by"
    return equal_logits(noisy, logits[:, :worst], alone[worst], said)


@asks("The context is as long as it says")
def full_context(variants: ModelVariants) -> Finding:
    """Change the first tokens of a full block, and look at its last output."""
    noisy, T = variants.with_noise, variants.given.block_size
    reach, effect = reach_of(noisy, noisy.draw(1, T, seed=4))
    if reach == T - 1:
        return finding_if(True, f"The first token reaches output {T - 1}.")
    shorter, _ = reach_of(noisy, noisy.draw(1, T - 1, seed=4))
    cause = "fading" if effect < FAINT else "window" if 0 < reach == shorter else ""
    for ids in noisy.tokens.chunk(2):
        text = ids[torch.randint(len(ids), (1, T), generator=torch.Generator().manual_seed(4))]
        if not cause and reach_of(noisy, text)[0] == T - 1:
            cause = "ids"
    first = T - 1 - reach
    if not cause and shorter == reach - 1 and first > 1 and reach_of(noisy, noisy.draw(1, first, seed=4))[0]:
        cause = "window"  # in chunks: those before this one see each other
    return finding_if(
        False,
        f"The last of {T} outputs depends on {reach} tokens before it.",
        f"All {T - 1}.",
        cause,
        "doubtful" if cause else "wrong",
    )


def reach_of(wrapped: WrappedModel, ids: Tensor) -> tuple[int, float]:
    """Return how far back the last output of a text (1, T) sees, and how much it moves with what is there.

    That is by halving the distance. The effect is in units of what rounding explains.
    """
    T, whole = ids.shape[1], wrapped.logits(ids)
    limit = wrapped.tolerance(whole)

    def effect(distance: int) -> float:
        for by in (1, 2, 3):
            changed = ids.clone()
            changed[:, : T - distance] = wrapped.others(ids[:, : T - distance], by)
            if (moved := max_abs_diff(whole[:, -1], wrapped.logits(changed)[:, -1])) > limit:
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
def order_used(variants: ModelVariants) -> Finding:
    """Exchange the first two tokens that an output sees, and look at it; then compare with two late ones."""
    noisy, T = variants.with_noise, min(8, variants.given.block_size)
    ids = noisy.draw(4, T, seed=5)
    reach, _ = reach_of(noisy, noisy.draw(1, T, seed=4))
    if reach == 1:
        raise CannotAskError("An output depends on one token before its own, and two have an order.")
    first = T - 1 - (reach or T - 1)  # 0, unless it looks through a window
    ids[:, first + 1] = noisy.others(ids[:, first])
    exchanged = ids.clone()
    exchanged[:, [first, first + 1]] = ids[:, [first + 1, first]]
    logits = noisy.logits(ids)[:, -1]
    away = max_abs_diff(logits, noisy.logits(exchanged)[:, -1])
    limit = noisy.tolerance(logits)
    said = f"Two early tokens change places: the last logits move by {away:.2g}."
    if away <= limit or (full := variants.given.block_size) < PAIRWISE_TOKENS:
        return finding_if(away > limit, said, f"More than rounding, {limit:.1g}.")
    early = late = 0.0
    for texts in (1, 2) if noisy.is_large else (2, 16):  # more of them only if there is a suspicion
        early, late = (share_of_order(noisy, full, at, texts) for at in ((0, 1, 2), (-5, -4, -3)))
        if early < TOLD or not late < 2 * ALIKE * early:
            break
    if early < TOLD or not late < ALIKE * early:
        return finding_if(True, said)
    said += f" Of what two other tokens would do there, that is {early:.0%} at the beginning of a "
    said += f"block, and {late:.0%} at its end."
    return finding_if(False, said, "Late about as much as early.", "alike", otherwise="doubtful")


def share_of_order(wrapped: WrappedModel, T: int, places: tuple[int, ...], texts: int) -> float:
    """Return how far neighbours that change places move the last logits, as a share of two other tokens.

    That is NaN if these do not reach the last output.
    """
    ids, exchanges, others = wrapped.draw(texts, T, seed=5), 0.0, 0.0
    logits = wrapped.logits(ids)[:, -1]
    for place in places:
        pair, exchanged, changed = [place, place + 1], ids.clone(), ids.clone()
        exchanged[:, pair] = ids[:, pair[::-1]]
        changed[:, pair] = wrapped.others(ids[:, pair])
        exchanges += float((wrapped.logits(exchanged)[:, -1] - logits).norm(dim=-1).sum())
        others += float((wrapped.logits(changed)[:, -1] - logits).norm(dim=-1).sum())
    return exchanges / others if others else math.nan


@asks("A token's own output depends most on itself")
def residual(variants: ModelVariants) -> Finding:
    """Compare the effect of the last token with that of those before it."""
    unit = variants.with_unit_embeddings
    by_text = unit.effects_on_last(variants.short)
    effects = by_text.mean(dim=0)
    if not effects[:-1].any():
        raise CannotAskError("With these parameters no earlier token changes the last logits.")
    ratio = own_effect(effects)
    said, holds = f"The last token changes the last logits {in_times(ratio)} as much as one before it", True
    if ratio <= MIN_OWN_EFFECT:  # layers that sum over time may outweigh what goes around them
        faint = own_effect(variants.with_faint_layers.effects_on_last(variants.short).mean(dim=0))
        if holds := faint > OUTWEIGHS:
            said += f", and {in_times(faint)} when its layers are made faint"
    cause = ""
    recurrent = any(isinstance(module, nn.RNNBase) for module in unit.modules())
    if not holds and (recurrent or recency(by_text[:, :-1]) > FADES):
        cause = "fading"
    elif not holds and share_of_order(unit, variants.short, (0, 1, 2, 5, 8), 16) > APART:
        cause = "apart"
    elif not (variants.is_copy and unit.embeddings):
        cause = "given"
    return finding_if(
        holds,
        f"{said}.",
        f"More than {MIN_OWN_EFFECT} times: it comes by the residual stream as well as by attention.",
        cause,
        otherwise="doubtful" if cause else "wrong",
    )


def own_effect(effects: Tensor) -> float:
    """Return how many times as much as the mean of the others the last of these effects is."""
    return float(effects[-1] / effects[:-1].mean())


def in_times(ratio: float) -> str:
    """Tell a ratio."""
    return f"{ratio:.1f} times" if ratio < 1000 else "more than 1000 times"
