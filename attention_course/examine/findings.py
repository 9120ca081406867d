"""What a model computes, and what looks at what.

A question is a function of a `Candidate`. Above it stand its name, its rung, and what may explain it.
"""

from dataclasses import replace

import torch
from torch import Tensor

from attention_course.examine.question import (
    RESIDUAL,
    Candidate,
    asks,
    found,
)
from attention_course.examine.report import Finding
from attention_course.examine.subject import TARGETS, CannotAskError, Subject, gap, rounding, told
from attention_course.plots import Heatmap

# What comes out


@asks("It answers ids with logits", 8, vital=True)
def answers(candidate: Candidate) -> Finding:
    """Ask for the shape of the logits, and find out how the model wants to be called."""
    subject, expected = (
        candidate.given,
        "model(ids) returns logits (B, T, V) for ids (B, T), an int64 tensor.",
    )
    ids = subject.draw(3, min(5, subject.block_size))
    wanted = next((name for name in TARGETS if name in subject.arguments), "")
    last = [(len(ids), subject.vocab_size), (len(ids), 1, subject.vocab_size)]
    try:
        last_only = tuple(subject(ids).shape) in last
    except Exception as error:
        if not wanted:
            return Finding("", "wrong", told(error), expected, missing(subject))
        last_only = True
    if last_only and wanted:  # nanoGPT's form: without targets the last position only
        for each in {candidate.given, candidate.new, candidate.stirred} if candidate.is_copy else [subject]:
            each.targets = wanted
    try:
        shape = tuple(subject(ids).shape)
    except Exception as error:
        return Finding("", "wrong", told(error), expected, missing(subject))
    called = f"model(ids, {wanted}=...)" if subject.targets else "model(ids)"
    said = f"{called} returned shape {shape} for ids of shape {tuple(ids.shape)}."
    B, T, V = (*ids.shape, subject.vocab_size)
    if shape == (B, T, V):
        return found(True, said, expected, "")
    reasons = {
        (B, V): "Logits of the last position only. Training needs them at every position: leave out [:, -1].",
        (
            B,
            1,
            V,
        ): "Logits of the last position only. Training needs them at every position: leave out [:, [-1]].",
        (B * T, V): "B and T are merged. Do that for the loss only: logits.view(B, T, V) is to be returned.",
        (B, V, T): "V stands before T, as F.cross_entropy wants it. Return (B, T, V).",
        (T, B, V): "T stands before B. The first dimension of ids is the batch.",
        (B, T): "One number a token. A last linear layer has to map n_embd to vocab_size numbers.",
    }
    other = f"The last layer has to map n_embd to vocab_size = {V} numbers at each of the T positions."
    return found(False, said, f"Shape {(B, T, V)}.", reasons.get(shape, other))


def missing(subject: Subject) -> str:
    """Say what to do about a model that cannot be called with ids alone."""
    if needed := ", ".join(subject.required[1:]):
        return (
            f"It cannot be called with ids alone: it also needs {needed}. Make that in forward(), from ids."
        )
    return "Ids go from 0 to vocab_size - 1, and T from 1 to block_size: are these the sizes of the model?"


@asks("It reads a full block", 8, vital=True)
def reads_block(candidate: Candidate) -> Finding:
    """Pass block_size tokens."""
    subject = candidate.given
    ids = subject.draw(1, subject.block_size)
    expected = f"Logits for ids of shape {tuple(ids.shape)}."
    cause = (
        "Positions go from 0 to T - 1. A table of positions, or a mask, has block_size rows: "
        "is this the block_size of the model?"
    )
    try:
        shape = tuple(subject.logits(ids).shape)
    except Exception as error:
        return Finding("", "wrong", told(error), expected, cause)
    fits = shape == (*ids.shape, subject.vocab_size)
    return found(fits, f"It returned shape {shape} for {subject.block_size} tokens.", expected, cause)


@asks("The logits are finite", 3, vital=True)
def finite(candidate: Candidate) -> Finding:
    """Look for NaN and inf."""
    new = candidate.new
    logits = new.logits(new.draw(4, candidate.short))
    if not logits.dtype.is_floating_point:
        return found(False, f"dtype {logits.dtype}.", "A float dtype.", "Return logits, not argmax.")
    bad = int((~logits.isfinite()).sum())
    cause = (
        "NaN comes from softmax over a row that is masked entirely: let each query look at itself, and hide "
        "what comes later, not what came before. "
        "Or from -inf times 0: mask scores before softmax, with masked_fill."
    )
    return found(not bad, f"{bad} of {logits.numel()} are NaN or inf.", "None.", cause)


@asks("The logits are raw", 8)
def raw(candidate: Candidate) -> Finding:
    """Look for a softmax or another limit behind the last layer."""
    new = candidate.new
    logits = candidate.stirred.logits(new.draw(4, candidate.short))
    sums = logits.sum(dim=-1)
    if bool(((sums - 1).abs() < 1e-3).all() and (logits >= 0).all()):
        cause = (
            "Softmax is applied already. F.cross_entropy does it again: return the output of the last layer."
        )
        return found(False, "Each row sums to 1, and none is negative.", "Any real numbers.", cause)
    if logits.numel() >= 100 and bool((logits >= 0).all() and logits.any()):
        cause = "A ReLU, a sigmoid or the like stands behind the last layer. Remove it."
        return found(False, f"None of {logits.numel()} is negative.", "Both signs.", cause)
    if logits.numel() >= 100 and bool((logits.abs() <= 1).all()) and float(logits.abs().max()) > 0.999:
        cause = "A tanh stands behind the last layer, and no token can get a probability near 1. Remove it."
        return found(False, "All lie between -1 and 1.", "No limits.", cause)
    low, high = float(logits.min()), float(logits.max())
    return found(True, f"From {low:.2g} to {high:.2g}.", "Any real numbers.", "")


@asks("The ids stay as they were", 1)
def input_unchanged(candidate: Candidate) -> Finding:
    """Compare the ids before and after a call."""
    given = candidate.given
    ids = given.draw(2, candidate.short)
    passed = ids.to(given.device, copy=True)
    with torch.no_grad():
        given(passed)
    moved = int((passed.cpu() != ids).sum())
    cause = "It writes into its input. Look for a method that ends in _, or for ids[...] = ...: clone first."
    return found(not moved, f"{moved} of {ids.numel()} ids changed.", "None.", cause)


# The same again


@asks("In eval mode the same ids give the same logits", 8)
def repeatable(candidate: Candidate) -> Finding:
    """Call twice, with other random numbers."""
    new = candidate.new
    ids = new.draw(2, candidate.short)
    once, again = new.logits(ids, seed=0), new.logits(ids, seed=1)
    away = gap(once, again)
    cause = (
        "Random numbers are drawn in eval mode. Pass training=self.training to F.dropout, or use nn.Dropout; "
        "F.scaled_dot_product_attention needs dropout_p=0.0 then."
    )
    if away > new.tolerance(once) and gap(once, new.logits(ids, seed=0)) > new.tolerance(once):
        cause = "It remembers the call before. Keep nothing in self between calls: a cache is passed in."
    return found(away <= new.tolerance(once), f"They differ by {away:.2g}.", rounding(new, once), cause)


@asks("No text leaves a trace in the model", 9, "In eval mode the same ids give the same logits")
def stateless(candidate: Candidate) -> Finding:
    """Call with another text in between."""
    new = candidate.new
    ids = new.draw(2, candidate.short)
    first = new.logits(ids)
    new.logits(new.draw(2, max(1, candidate.short - 1), seed=1))
    away = gap(first, new.logits(ids))
    cause = "Something of an earlier text is kept in self: a cache, a mask of its length, a mean. Pass it in."
    return found(
        away <= new.tolerance(first),
        f"After another text they differ by {away:.2g}.",
        rounding(new, first),
        cause,
    )


# What looks at what


@asks("The texts of a batch do not meet", 4, "In eval mode the same ids give the same logits")
def batch_apart(candidate: Candidate) -> Finding:
    """Compare each text alone with the same text in a batch."""
    stirred = candidate.steady
    ids = stirred.draw(3, candidate.short)
    logits = stirred.logits(ids)
    alone = torch.cat([stirred.logits(text[None]) for text in ids])
    away = gap(logits, alone)
    cause = (
        "A dimension is mixed up: softmax, a norm or a position counts over the batch (dim=0), or view() has "
        "merged B and T. Attention works on the last two dimensions, positions on arange(T)."
    )
    if away <= stirred.tolerance(logits) and candidate.is_copy:
        away = others_in_training(stirred, ids)
        cause = "In train mode a norm averages over the batch (BatchNorm). Use nn.LayerNorm(n_embd)."
    return found(
        away <= stirred.tolerance(logits),
        f"With other texts beside it a text's logits move by {away:.2g}.",
        rounding(stirred, logits),
        cause,
    )


def others_in_training(subject: Subject, ids: Tensor) -> float:
    """Return how far, in train mode, the logits of the first text move with the other texts."""
    apart = subject.copied().train()
    changed = torch.cat([ids[:1], subject.others(ids[1:])])
    return gap(apart.logits(ids)[:1], subject.copied().train().logits(changed)[:1])


@asks(
    "No leak from the future",
    6,
    "In eval mode the same ids give the same logits",
    "The texts of a batch do not meet",
)
def no_leak(candidate: Candidate) -> Finding:
    """Change later tokens, and look for changes in earlier outputs."""
    stirred, T = candidate.stirred, candidate.short
    if T < 2:
        raise CannotAskError("block_size is 1: there is no future.")
    table = candidate.table
    leaks = table.triu(1)
    pairs, measured = (
        int(leaks.sum()),
        f"{int(leaks.sum())} of {T * (T - 1) // 2} later tokens change an earlier output.",
    )
    if not pairs and stirred.block_size > T:
        pairs = halves_apart(stirred, stirred.block_size)
        measured = (
            f"In a full block, the second half changes {pairs} outputs of the first." if pairs else measured
        )
    if not pairs and candidate.is_copy:
        pairs = halves_apart(stirred.copied().train(), T)
        measured = f"In train mode, later tokens change {pairs} outputs." if pairs else measured
    cells = [(int(i), int(j)) for i, j in leaks.nonzero()]
    panel = Heatmap("outputs that a token changes", table.float(), "output", "token", crossed=cells)
    finding = found(not pairs, measured, "None: the triangle above the diagonal is empty.", leak_cause(table))
    return replace(finding, panel=panel)


def leak_cause(table: Tensor) -> str:
    """Say what mask gives such a leak."""
    T, leaks = len(table), table.triu(1)
    nexts = torch.ones_like(leaks).triu(1) & ~torch.ones_like(leaks).triu(2)
    if torch.equal(leaks, nexts):
        return "The mask is off by one: each token sees the next. Use tril() without diagonal=1."
    if T > 2 and leaks.any() and not table.tril(-1).any():
        return "The mask is inverted: it hides the past and shows the future. Hide where tril is 0."
    if leaks[0].any() and not leaks[1:].any():
        return "The first query sees no token, so the mean of all. Let each see itself: tril(), not tril(-1)."
    if leaks.sum() == T * (T - 1) // 2:
        return (
            "Every token sees every other. Mask the scores with tril before softmax, over the last two "
            "dimensions; softmax goes along the keys (dim=-1); a norm goes along the channels."
        )
    return (
        "Positions are mixed where they should not be: view without transpose, a mask over the wrong "
        "dimensions, a mask of another length, or softmax along the queries."
    )


def halves_apart(subject: Subject, T: int) -> int:
    """Return how many outputs of the first half of T tokens change with the second half.

    Dropout draws the same numbers for both: a text has a call of its own.
    """
    ids = subject.draw(1, T, seed=3)
    changed = torch.cat([ids[:, : T // 2], subject.others(ids[:, T // 2 :])], dim=-1)
    once, again = subject.logits(ids)[0, : T // 2], subject.logits(changed)[0, : T // 2]
    return int(((once - again).abs().amax(dim=-1) > subject.tolerance(once)).sum())


@asks("Every token is read", 1, "No leak from the future")
def own_token(candidate: Candidate) -> Finding:
    """Change a token, and look at the output there."""
    T = candidate.short
    read = int(candidate.table.diagonal().sum())
    cause = "An output does not depend on the token there: is the residual stream cut, or an id lost?"
    return found(read == T, f"{read} of {T} outputs depend on their own token.", f"All {T}.", cause)


@asks("The past is used", 1, "No leak from the future", "Every token is read")
def past_used(candidate: Candidate) -> Finding:
    """Change a token, and look at the next output."""
    T = candidate.short
    if T < 2:
        raise CannotAskError("block_size is 1: there is no past.")
    used = int(candidate.table.diagonal(-1).sum())
    cause = (
        "Outputs do not depend on the tokens before: it is a bigram model. The mask hides too much, softmax "
        "goes along the wrong dimension, or the output of attention is never added."
    )
    return found(
        used >= T / 2, f"{used} of {T - 1} outputs depend on the token before.", "Nearly all.", cause
    )


@asks("The context is as long as it says", 8, "The past is used", "No leak from the future")
def full_context(candidate: Candidate) -> Finding:
    """Change the first tokens of a full block, and look at its last output."""
    stirred, T = candidate.stirred, candidate.given.block_size
    if T < 2:
        raise CannotAskError("block_size is 1: there is no past.")
    reach = reach_of(stirred, T)
    if reach >= T - 1:
        return found(True, f"The first token reaches output {T - 1}.", "The last output.", "")
    same = reach_of(stirred, T - 1) == reach
    cause = (
        f"Each output sees {reach} tokens back. That is right for a window of attention. "
        if same
        else "Early tokens are cut off. "
    ) + "If the whole block is meant to be seen: no crop, and a mask of block_size."
    said = f"The last of {T} outputs depends on {reach} tokens before it."
    return found(False, said, f"All {T - 1}.", cause, "doubtful" if same and reach else "wrong")


def reach_of(subject: Subject, T: int) -> int:
    """Return how far back the last output of T tokens sees, by halving the distance."""
    ids = subject.draw(1, T, seed=4)
    whole = subject.logits(ids)[:, -1]

    def reaches(distance: int) -> bool:
        for by in (1, 2, 3):
            changed = ids.clone()
            start = T - 1 - distance
            changed[:, : start + 1] = subject.others(ids[:, : start + 1], by)
            if gap(whole, subject.logits(changed)[:, -1]) > subject.tolerance(whole):
                return True
        return False

    if reaches(T - 1):
        return T - 1
    near, far = 0, T - 1  # it reaches `near` back, and not `far`
    while far - near > 1:
        middle = (near + far) // 2
        near, far = (middle, far) if reaches(middle) else (near, middle)
    return near


@asks("The order of tokens matters", 8, "The past is used")
def order_used(candidate: Candidate) -> Finding:
    """Exchange the first two tokens, and look at a later output."""
    stirred, T = candidate.stirred, min(8, candidate.given.block_size)
    if T < 3:
        raise CannotAskError(f"block_size is {T}: there is no past to reorder.")
    ids = stirred.draw(4, T, seed=5)
    ids[:, 1] = stirred.others(ids[:, 0])
    swapped = ids[:, [1, 0, *range(2, T)]]
    logits = stirred.logits(ids)[:, -1]
    away = gap(logits, stirred.logits(swapped)[:, -1])
    cause = "Attention knows no positions. Add an embedding of arange(T) to the tokens, or rotate q and k."
    return found(
        away > stirred.tolerance(logits),
        f"Two early tokens change places: the last logits move by {away:.2g}.",
        f"More than rounding, {stirred.tolerance(logits):.1g}.",
        cause,
    )


@asks(
    "A prefix alone gives the same logits", 6, "No leak from the future", "The texts of a batch do not meet"
)
def prefix_alone(candidate: Candidate) -> Finding:
    """Compare a text with its beginnings."""
    stirred, T = candidate.steady, candidate.short
    ids = stirred.draw(2, T, seed=6)
    logits = stirred.logits(ids)
    lengths = sorted({1, min(2, T), T // 2 or 1, max(1, T - 1)})
    aways = {length: gap(logits[:, :length], stirred.logits(ids[:, :length])) for length in lengths}
    worst = max(aways, key=lambda length: aways[length])
    cause = (
        "Something depends on the length of the text: positions counted from its end, a scale by √T, a norm "
        "or a mean over time, a mask cut from the wrong corner."
    )
    return found(
        aways[worst] <= stirred.tolerance(logits),
        f"{worst} of {T} tokens alone: their logits differ by {aways[worst]:.2g}.",
        rounding(stirred, logits),
        cause,
    )


@asks(
    "A token's own output depends most on itself",
    8,
    "No leak from the future",
    "Every token is read",
    "The past is used",
)
def residual(candidate: Candidate) -> Finding:
    """Compare the effect of the last token with that of those before it."""
    candidate.check_size()
    new, T = candidate.new, candidate.short
    effects = new.effects_on_last(T).mean(dim=0)
    ratio = float(effects[-1] / effects[:-1].mean().clamp(min=1e-30))
    cause = "The residual connection around attention is missing: x = x + attention(norm(x))."
    return found(
        ratio > RESIDUAL,
        f"The last token changes the last logits {ratio:.1f} times as much as one before it.",
        f"More than {RESIDUAL} times: it comes by the residual stream as well as by attention.",
        cause,
    )
