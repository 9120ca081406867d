"""How a model writes: its own method generate, beside its own logits."""

import inspect
import math
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import Tensor

from attention_course.examine.question import ModelVariants, asks, finding_if
from attention_course.examine.report import Finding, FindingVerdict
from attention_course.examine.wrapped_model import (
    OWN,
    SHARED,
    CannotAskError,
    DoubtError,
    WrappedModel,
    format_error,
    kept,
)
from attention_course.gpt import evaluating

TEXTS = 256  # in which generate is asked whether it reads an id
UNLIKELY = 1e-6  # what a right model does by luck
DRAWN = 1024  # tokens that are drawn, to compare their mean surprise with the entropy
ROUNDS = 8  # in which an id that has not been drawn may come
RARE = 0.001  # a probability
WRITTEN = 20  # tokens that it writes after each text
READ = 4096  # tokens of the texts about as long as the block, after each of which it writes one
LOGITS = 2**26  # that are computed at once
PAST = 5  # tokens by which a text is longer than the block
OTHERS = 0.05  # the share of texts that are taken to be read in another way
GREEDY = {"do_sample": False, "top_k": 1, "temperature": 1e-4}  # options that take the likeliest token
NEUTRAL = {  # of the options that change what it draws
    **{"temperature": 1.0, "top_k": math.inf, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0},
    **{"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0},
    **{"filter_thres": 0.0, "num_beams": 1, "no_repeat_ngram_size": 0},  # the first, a share that is left out
}
TOTALS = ("max_length", "max_len", "length", "total")  # of ids, mostly with those that are given


def options_of(wrapped: WrappedModel) -> Mapping[str, inspect.Parameter]:
    """Return the arguments that the model's own method generate takes, by name."""
    write = getattr(wrapped.model, "generate", None)
    if not callable(write):
        raise CannotAskError("It has no method generate.")
    return inspect.signature(write).parameters


def neutral(wrapped: WrappedModel) -> dict[str, Any]:
    """Return the options, where its defaults are others, with which generate draws from what it predicts."""
    defaults = {name: options_of(wrapped)[name].default for name in NEUTRAL if name in options_of(wrapped)}
    off = (None, 1, inspect.Parameter.empty)
    return {
        name: min(NEUTRAL[name], wrapped.vocab_size)
        for name, default in defaults.items()
        if default not in off and (default != 0 or name == "temperature")  # 0 takes the likeliest token
    }


def likeliest(wrapped: WrappedModel) -> dict[str, Any]:
    """Return an option with which generate takes the likeliest token, if there is one."""
    takes = options_of(wrapped)
    if "temperature" in takes and takes["temperature"].default == 0:
        return {"temperature": 0.0}
    return next(({name: value} for name, value in GREEDY.items() if name in takes), {})


def doubted(wrapped: WrappedModel, finding: Finding) -> Finding:
    """Return a finding on what generate draws, doubtful if it is wrong and may be so by an unknown option."""
    known = {*NEUTRAL, *TOTALS, "max_new_tokens"}
    others = {name: each.default for name, each in [*options_of(wrapped).items()][2:] if name not in known}
    named = [
        f"{name}={value}"
        for name, value in others.items()
        if type(value) in (int, float) or (value and type(value) in (bool, str) and "sampl" not in name)
    ]
    if finding.verdict != "wrong" or not named:
        return finding
    said = f"{finding.measured} Its {' and '.join(named)} may have a part in that."
    return replace(finding, verdict="doubtful", measured=said)


def raised_in(error: BaseException) -> CodeType:
    """Return the code that raised an error."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return frame.f_code


def written_by(
    wrapped: WrappedModel, ids: Tensor, max_new_tokens: int, seed: int = 0, **options: Any
) -> Tensor:
    """Return ids (B, T) with what the model's own method generate appends; leave the mode as it was."""
    with evaluating(wrapped):
        return generated(wrapped, ids, max_new_tokens, seed, **options)


def generated(
    wrapped: WrappedModel, ids: Tensor, max_new_tokens: int, seed: int = 0, **options: Any
) -> Tensor:
    """Return what `written_by` does, and leave the model in the mode in which generate leaves it."""
    takes, (B, T) = options_of(wrapped), ids.shape
    total = next((name for name in TOTALS if name in takes and "max_new_tokens" not in takes), "")
    name = total or ("max_new_tokens" if {"max_new_tokens", "kwargs"} & set(takes) else "")
    write = wrapped.model.generate
    if "generate" in getattr(wrapped.model, "__dict__", {}) and isinstance(write, FunctionType):
        raise CannotAskError(
            "generate is a function that was put into this model, so it writes with this one, and not with "
            "the copies that are examined. Write a method."
        )
    theirs = (getattr(write, "__module__", "") or "").startswith("transformers.")
    if theirs and "kwargs" in takes:
        # an id that ends a text would be followed by padding, and one that is padding would not be read
        options = {"eos_token_id": None, "pad_token_id": None, **options}

    def asked(amount: int) -> Tensor:
        given, named = ([], {name: amount, **options}) if name else ([amount], options)
        called = f"generate(ids, {amount}{''.join(f', {name}={value}' for name, value in options.items())}): "
        try:
            inspect.signature(write).bind(ids, *given, **named)
        except TypeError as error:
            raise CannotAskError(called + format_error(error)) from error
        torch.manual_seed(seed)
        try:
            with kept(SHARED + OWN), torch.no_grad():
                written = write(ids.to(wrapped.device), *given, **named)
        except Exception as error:
            own = getattr(inspect.unwrap(write), "__code__", None)
            if isinstance(error, AssertionError) and raised_in(error) is not own:
                raise  # forward() refuses what generate passes to it
            if theirs:
                raise CannotAskError(
                    f"The generate of transformers reads all ids. {format_error(error)}"
                ) from error
            raise DoubtError(called + format_error(error)) from error
        if written is None:
            raise DoubtError("generate returns None. Does it end in a return?")
        if not isinstance(written, Tensor) or written.dim() != 2:
            raise CannotAskError(f"generate returns {type(written).__name__}, not ids (B, T).")
        alone = written.shape == (B, amount) and not torch.equal(written[:, :T].cpu(), ids.cpu())
        return torch.cat([ids.cpu(), written.cpu()], dim=1) if alone else written.cpu()

    new, whole = max_new_tokens, T + max_new_tokens  # a length may count the ids that are given: ask for both
    answers, errors = list[Tensor](), list[Exception]()
    for amount in (whole, new) if total else (new, whole) if T > 1 and not name else (new,):
        try:
            answers.append(asked(amount))
        except Exception as error:
            errors.append(error)
        if answers and answers[-1].shape[1] == whole:
            break
    if not answers:
        raise errors[0]
    return min(answers, key=lambda written: abs(written.shape[1] - whole))


@asks("It keeps writing past its block")
def generates(variants: ModelVariants) -> Finding:
    """Let it write on after a full block."""
    given, T = variants.given, variants.given.block_size
    if given.whole > T:
        raise CannotAskError(f"Only {T} tokens of its block are read. Pass block_size={given.whole}.")
    ids = given.draw(1, T, seed=13).to(given.device)
    prompt = ids.clone()
    goes_on = "It goes on, or says that it cannot."
    try:
        written, ids = written_by(given, prompt, 3), ids.cpu()
    except DoubtError as error:
        written_by(given, given.draw(1, max(1, T // 3)), 1)  # if this works, the block is the reason
        return finding_if(False, str(error), goes_on, "stops", otherwise="doubtful")
    if not torch.equal(prompt.cpu(), ids):
        return finding_if(
            False, "The ids that it was given have changed.", "They stay as they were.", "prompt"
        )
    if torch.equal(written, ids):
        said = f"Given a full block of {T} ids, it writes none."
        return finding_if(False, said, goes_on, "stops", otherwise="doubtful")
    begins = torch.equal(written[:, :T], ids)
    known = bool(((written >= 0) & (written < given.vocab_size)).all())
    said = f"It returned {written.shape[1]} ids, {'' if begins else 'not '}beginning with the given."
    if not (begins and known and T < written.shape[1] <= T + 3):
        return finding_if(False, said)
    if T + 3 > written.shape[1] == written_by(given, prompt, 8).shape[1]:  # however many it is asked for
        return finding_if(False, f"{said} Asked for 8 more, too.", goes_on, "stops", otherwise="doubtful")
    noisy = variants.with_noise
    if ignored(noisy, T) < UNLIKELY and ignored(noisy, T - 1) == math.inf:
        said = f"After {T + 1} ids it draws the same whatever the last is, but not whatever that before is."
        return finding_if(False, said, "What it draws depends on the last id.", "first")
    return finding_if(True, said)


def ignored(wrapped: WrappedModel, place: int) -> float:
    """Return how likely a generate that reads an id draws as if it did not; infinity if it shows it.

    Texts are longer than the block by one id. With the same random numbers two predictions draw one token
    with a probability of at most 1 - their total variation.
    """
    luck = 1.0
    for seed in range(TEXTS):
        texts = wrapped.draw(1, wrapped.block_size + 1, seed).repeat(2, 1)
        texts[1, place] = wrapped.others(texts[0, place])
        one, other = (written_by(wrapped, text[None], 1, seed)[:, len(text) :] for text in texts)
        if not torch.equal(one, other):
            return math.inf
        one, other = wrapped.logits(texts[:, 1:])[:, -1].softmax(dim=-1)
        luck *= 1 - float((one - other).abs().sum()) / 2
        if luck < UNLIKELY or (seed >= 8 and luck ** (TEXTS / seed) > UNLIKELY):  # it would take too many
            break
    return luck


@asks("It writes what it predicts")
def writes_predictions(variants: ModelVariants) -> Finding:
    """Let it write on after many texts, and ask how much it expected what it wrote."""
    noisy, block = variants.with_noise, variants.given.block_size
    T = min(8, max(1, block // 3))
    new = max(1, min(WRITTEN, block - T))
    ids = noisy.draw(DRAWN // (16 if noisy.is_large else 1) // new, T, seed=14)
    greedy, off = likeliest(noisy), neutral(noisy)
    for options in (greedy, {}) if greedy else ({},):
        written_by(noisy, noisy.draw(*ids.shape, seed=16), 1)  # a cache that is not emptied begins with these
        written = written_by(noisy, ids, new, **{**off, **options})
        if len(written) != len(ids):
            return finding_if(False, f"Of {len(ids)} texts it returns {len(written)}.", "All.", "texts")
        if written.shape[1] != T + new:
            said = f"Given {T} ids and asked for {new} more, generate returns {written.shape[1]} in all."
            if 1 < T < new == written.shape[1]:  # is it a total, or as many whatever it is asked for?
                fewer = written_by(noisy, ids, new - 1, **{**off, **options})
                if fewer.shape[1] == new - 1:
                    return finding_if(False, said, f"It returns {T + new}.", "total")
            two = noisy.draw(1, 2)  # after one id a total is the same as one too few
            if block > 1 and torch.equal(written_by(noisy, two, 1, **{**off, **options}), two):
                return finding_if(False, f"{said} Asked for one, it writes none.", "All.", "none")
            return finding_if(False, said, f"It returns {T + new}.", "short", otherwise="doubtful")
        logits, drawn = noisy.logits(written[:, :-1])[:, T - 1 :], written[:, T:]
        slack = slack_of(noisy, logits, options)
        missed = behind(logits, drawn) > slack
        repeats = new > 1 and bool((drawn == drawn[:, :1]).all())
        cause = ("again" if drawn.any() else "places") if repeats else ""
        goes_on = ~after_an_end(drawn, noisy.vocab_size)
        if missed.any() and (options or (len(ids) > 1 and not missed[:, 0].any())):
            asked = "".join(f"With {name}={value} " for name, value in options.items())
            said = f"{asked}{int(missed.sum())} of {missed.numel()} tokens are not the likeliest."
            if not missed[goes_on].any():
                return finding_if(False, said, "The likeliest.", "ends", otherwise="doubtful")
            if len(not_written(logits, drawn, slack)):
                return finding_if(False, said, "The likeliest each time.", "absent", otherwise="doubtful")
            begins = "greedy" if missed[:, 0].any() else "later"
            return finding_if(False, said, "The likeliest each time.", cause or begins)
    later = drawn_from(logits[:, :1], drawn[:, :1]).verdict == "right"
    finding = replace(drawn_from(logits, drawn), cause=cause or ("later" if later else ""))
    finding = doubted(noisy, finding)
    if finding.verdict != "right":
        ends = drawn_from(logits[goes_on][None], drawn[goes_on][None]).verdict == "right"
        return replace(finding, verdict="doubtful", cause="ends") if ends else finding
    samples = drawn_from(logits, drawn, "By itself: ", exactly=True).verdict == "right"
    some = min(4, new)
    if samples and torch.equal(written[:, : T + some], written_by(noisy, ids, some, seed=1, **off)):
        said = "It draws the same whatever torch's seed is."
        return finding_if(False, said, "With another seed, others.", "seeded", otherwise="doubtful")
    if samples and (absent := never_drawn(noisy, written, T)):
        said = f"It never draws id {absent[0]}, of which it predicts that it comes."
        return finding_if(False, said, "Any id that can come.", "absent", otherwise="doubtful")
    many = min(len(ids), READ // block, max(2, LOGITS // (block * noisy.vocab_size)))
    texts = 1 if noisy.is_large else max(1, many)
    sure = noisy if greedy or noisy.is_large or not variants.is_copy else noisy.surer()
    return reads_another_context(sure, texts, greedy, drawn) or leaves_mode(variants, ids[:1]) or finding


def leaves_mode(variants: ModelVariants, ids: Tensor) -> Finding | None:
    """Return that generate leaves modules in another mode than it was called in, if it does."""
    noisy = variants.with_noise
    for mode, other in (("eval", "train"), ("train", "eval"))[: 1 + variants.is_copy]:
        with evaluating(noisy):
            modes = [(module, module.training) for module in noisy.train(mode == "train").modules()]
            with suppress(Exception):  # in train mode it may refuse
                generated(noisy, ids, 1)
            turned = sum(module.training != was for module, was in modes)
        if turned:
            said = f"Called in {mode} mode, generate leaves {turned} modules in {other} mode."
            verdict: FindingVerdict = "wrong" if mode == "eval" else "doubtful"
            return finding_if(False, said, "The mode stays as it was.", "mode", verdict)
    return None


def reads_another_context(
    wrapped: WrappedModel, B: int, greedy: dict[str, Any], known: Tensor
) -> Finding | None:
    """Return what is not right with a token after each of B texts, short and about a block long, if any.

    Last it writes across the end of the block, where a cache is full.
    Past the block a generate may read the last block_size ids, or all. One that raises there, or writes
    nothing, is not judged: "It keeps writing past its block" does that. An id that is not among those that it
    is `known` to write may be one that it never writes.
    """
    block, doubt = wrapped.block_size, None
    few = min(8, block // 3)
    for T, new in ((few, 1), (block, 1), (block + PAST, 1), (block - 1, 3)):
        if T < 1 or block < min(T, wrapped.whole):
            continue
        ids = wrapped.draw(B, T, seed=17)
        try:
            written = written_by(wrapped, ids.clone(), new, **{**neutral(wrapped), **greedy})
        except Exception:
            return doubt
        if written.shape != (B, T + new):
            return doubt
        asked = "".join(f", with {name}={value}," for name, value in greedy.items())
        sure = greedy or {"temperature": 1.0}
        for length in range(T, T + new):
            text, drawn = written[:, :length], written[:, length : length + 1]
            predicted = [wrapped.logits(text[:, -block:])]
            with suppress(Exception):
                predicted += [wrapped.logits(text)] if block < length else []
            if any(fits(wrapped, logits, drawn, greedy) for logits in predicted):
                continue
            said = f"After {length} ids{asked} it does not write what it predicts from the last "
            cause = "cached" if length > T else "past" if block < T else "crop" if few < T else "greedy"
            verdict: FindingVerdict = "wrong" if length == T <= block else "doubtful"
            said = f"{said}{min(length, block)}."
            finding = doubted(
                wrapped, finding_if(False, said, "What it predicts from these.", cause, verdict)
            )
            absent = torch.cat([not_written(x[:, -1:], drawn, slack_of(wrapped, x, sure)) for x in predicted])
            if not len(absent) or torch.isin(absent, known).any():
                return finding
            doubt = doubt or replace(finding, verdict="doubtful", cause="absent")
    return doubt


def slack_of(wrapped: WrappedModel, logits: Tensor, options: dict[str, Any]) -> float:
    """Return by how much the likeliest logit may be missed: by rounding, and by a low temperature."""
    return 10 * wrapped.tolerance(logits) - options.get("temperature", 0.0) * math.log(UNLIKELY)


def fits(wrapped: WrappedModel, logits: Tensor, drawn: Tensor, greedy: dict[str, Any]) -> bool:
    """Return whether tokens (B, 1) can be what comes after the last of logits (B, T, V).

    Those of a greedy generate are the likeliest, but for rounding. Others may be draws. Another guess is that
    a few texts are read in another way, and followed by what comes on the average. It makes right draws
    likelier by a factor of 1 / UNLIKELY with a probability of at most UNLIKELY (Markov's inequality).
    """
    last, slack = logits[:, -1], slack_of(wrapped, logits, greedy)
    if greedy:
        return bool((behind(logits[:, -1:], drawn) <= slack).all())
    chances = last.double().softmax(dim=-1).clamp(min=1e-30)
    ratios = chances.mean(dim=0)[drawn] / chances.gather(-1, drawn) * math.exp(-slack)
    return float((1 - OTHERS + OTHERS * ratios).log().sum()) < -math.log(UNLIKELY)


def after_an_end(drawn: Tensor, vocab_size: int) -> Tensor:
    """Return which of the tokens (B, T) may only fill up texts that have ended, as booleans (B, T).

    After an id that ends a text there is padding, one id alone. A broken generate may repeat an id, too, but
    then it does so after many others.
    """
    padding: dict[int, list[Tensor]] = {}
    for end in drawn.unique():
        after = (drawn == end).cumsum(dim=1) > (drawn == end)
        if len(fill := drawn[after].unique()) == 1:
            padding.setdefault(int(fill), []).append(after)
    afters = [
        torch.stack(each).any(dim=0)
        for each in padding.values()
        if len(each) <= min(len(drawn), vocab_size) // 4
    ]
    return max(afters, key=Tensor.sum, default=drawn != drawn)


def behind(logits: Tensor, drawn: Tensor) -> Tensor:
    """Return how far tokens (B, T) lie behind the likeliest of logits (B, T, V)."""
    return logits.amax(dim=-1) - logits.gather(-1, drawn[..., None])[..., 0]


def not_written(logits: Tensor, drawn: Tensor, slack: float) -> Tensor:
    """Return the few ids but for which all tokens (B, T) are the likeliest, and which are none of them.

    Tokens that lie behind the likeliest by less than the slack may be.
    """
    absent = logits.argmax(dim=-1)[behind(logits, drawn) > slack].unique()
    few = len(absent) <= logits.shape[-1] // 8 and not torch.isin(drawn, absent).any()
    others = logits.index_fill(-1, absent, -math.inf)
    return absent if few and bool((behind(others, drawn) <= slack).all()) else absent[:0]


def never_drawn(wrapped: WrappedModel, written: Tensor, T: int) -> list[int]:
    """Return the ids that generate never appends to the first T of what it has written, which is no luck.

    Where it may be luck it writes again.
    """
    never, luck = torch.isin(torch.arange(wrapped.vocab_size), wrapped.tokens), 1.0
    for seed in range(1, ROUNDS + 1):
        drawn, logits = written[:, T:], wrapped.logits(written[:, :-1])[:, T - 1 :]
        never &= drawn.flatten().bincount(minlength=len(never)) == 0
        luck = luck * (-logits.double().softmax(dim=-1)).log1p().sum(dim=(0, 1)).exp()
        if found := (never & (luck * len(never) < UNLIKELY)).nonzero()[:, 0].tolist():
            return found
        if not (never & (luck < 0.1)).any():
            break
        written = written_by(wrapped, written[:, :T], drawn.shape[1], seed, **neutral(wrapped))
    return []


def drawn_from(
    logits: Tensor, drawn: Tensor, with_: str = "", exact: Tensor | None = None, exactly: bool = False
) -> Finding:
    """Return whether tokens (B, T) can be draws from logits (B, T, V).

    Their mean surprise is the entropy, and few of them are of those that nearly never come, both but for
    five standard errors. If not `exactly`, the surprise may be smaller: what generate does by itself may be
    to take the likeliest token. If the logits keep more tokens than the
    `exact` ones, for rounding, draws from these are right, too.
    """
    surprises = -logits.log_softmax(dim=-1)
    expects = (-surprises).exp()
    each, chance = (x.gather(-1, drawn[..., None])[..., 0] for x in (surprises, expects))
    entropy = (expects * surprises).nan_to_num(0.0).sum(dim=-1)
    spread = (expects * surprises**2).nan_to_num(0.0).sum(dim=-1) - entropy**2
    errors = 5 * float((spread.mean() / drawn.numel()).sqrt()) + 1e-6
    means = [entropy] if exact is None else [entropy, (exact.softmax(-1) * surprises).nan_to_num(0.0).sum(-1)]
    least = min(float(mean.mean()) for mean in means) - errors if exactly else 0.0
    most = float(entropy.mean()) + errors
    rare, came = float(expects[expects < RARE].sum()), int((chance < RARE).sum())
    said = f"{with_}What it draws surprises it by {float(each.mean()):.2f} nats per token."
    fits = least <= float(each.mean()) <= most
    between = f"Between {least:.2f} and {most:.2f}" if exactly else f"At most {most:.2f}"
    expected = f"{between}: the entropy of its predictions, and five standard errors."
    if fits:
        said += f" {came} of {drawn.numel()} draws had a probability below {RARE}."
        expected = f"At most {rare + 5 * (rare + 1) ** 0.5:.0f} such draws."
    return finding_if(fits and came <= rare + 5 * (rare + 1) ** 0.5, said, expected)


def cooler(logits: Tensor, ids: Tensor, temperature: float, slack: float) -> Tensor:
    """Divide by a temperature."""
    return logits / temperature


def k_best(logits: Tensor, ids: Tensor, k: int, slack: float) -> Tensor:
    """Keep the k likeliest tokens."""
    last = logits.topk(min(k, logits.shape[-1]), dim=-1).values[..., -1:]
    return logits.masked_fill(logits < last - slack, -math.inf)


def nucleus(logits: Tensor, ids: Tensor, p: float, slack: float) -> Tensor:
    """Keep the likeliest tokens whose probabilities add up to p, with the one that reaches it.

    Holtzman et al. 2020, The curious case of neural text degeneration, section 3.1.
    """
    ordered, places = logits.softmax(dim=-1).sort(dim=-1, descending=True)
    beyond = (ordered.cumsum(dim=-1) - ordered >= p + slack).gather(-1, places.argsort(dim=-1))
    return logits.masked_fill(beyond, -math.inf)


def penalized(logits: Tensor, ids: Tensor, penalty: float, slack: float) -> Tensor:
    """Make the tokens of the text less likely: Keskar et al. 2019, CTRL, section 4.1, for both signs."""
    seen = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, ids[:, None, :], True)
    return torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


def two_tokens(logits: Tensor) -> float:
    """Return a top_p that mostly keeps two tokens, and one if the token that reaches it is left out."""
    first, second = logits.softmax(dim=-1).topk(2, dim=-1).values.unbind(dim=-1)
    return float(f"{float((first + second / 2).median()):.2g}")


OPTIONS: dict[str, Callable[[Tensor, Tensor, Any, float], Tensor]] = {
    "temperature": cooler,
    "top_k": k_best,
    "top_p": nucleus,
    "repetition_penalty": penalized,
}


@asks("Its sampling options do what they say")
def options_hold(variants: ModelVariants) -> Finding:
    """Draw one token after each of many texts, with one option at a time."""
    noisy, T = variants.with_noise, min(8, variants.given.block_size)
    takes = options_of(noisy)
    asked = [name for name in OPTIONS if name in takes]
    if not asked:
        raise CannotAskError(f"Its generate names no {', '.join(OPTIONS)}.")
    ids = noisy.draw(DRAWN // (16 if noisy.is_large else 1), T, seed=15)
    parts = ids.split(max(2, LOGITS // (T * noisy.vocab_size)))
    logits = torch.cat([noisy.logits(part)[:, -1:] for part in parts])
    with suppress(DoubtError):  # ids that are never to be written, such as padding, are not asked here
        drawn = written_by(noisy, ids, 1, **{**neutral(noisy), **likeliest(noisy)})[:, T:]
        if drawn.shape == (len(ids), 1):
            absent = not_written(logits, drawn, slack_of(noisy, logits, likeliest(noisy)))
            logits = logits.index_fill(-1, absent, -math.inf)
    sampled = {name: True for name in takes if "sampl" in name and takes[name].default is False}
    off = neutral(noisy)
    values = {"temperature": 0.5, "top_k": 3, "top_p": two_tokens(logits), "repetition_penalty": 5.0}
    tried = [{name: values[name]} for name in asked]
    if {"temperature", "top_k"} <= set(asked):
        tried.append({name: values[name] for name in ("top_k", "temperature")})
    if {"top_p", "top_k"} <= set(asked):  # in this order what is left is what both keep
        tried.append({"top_p": values["top_p"], "top_k": 2})
    for options in tried:
        drawn = written_by(noisy, ids, 1, **{**sampled, **off, **options})[:, T:]
        if drawn.shape != (len(ids), 1):
            shape, expected = (len(drawn), T + drawn.shape[1]), f"Shape {(len(ids), T + 1)}."
            said = f"Given ids of shape {tuple(ids.shape)} and asked for one more, generate returns {shape}."
            return finding_if(False, said, expected, otherwise="doubtful")
        rounded = exact = logits
        for name, value in options.items():
            rounded = OPTIONS[name](rounded, ids, value, 10 * noisy.tolerance(logits))
            exact = OPTIONS[name](exact, ids, value, 0.0)
        said = " and ".join(f"{name}={value}" for name, value in options.items())
        exactly = "top_p" not in options or len(options) == 1  # after top_k there is less to add up
        finding = drawn_from(rounded, drawn, f"With {said}: ", exact, exactly)
        if finding.verdict == "wrong":
            cause = "both" if len(options) > 1 else said.partition("=")[0]
            return doubted(noisy, replace(finding, cause=cause))
    return finding_if(True, f"{', '.join(asked)} do.")
