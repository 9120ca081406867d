"""How a model is used: with a cache, beside a reference, in its own dtype, on padded texts, and loaded."""

import typing
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from attention_course.examine.question import (
    MAX_BACKWARD_TOKENS,
    PAIRWISE_TOKENS,
    ModelVariants,
    asks,
    equal_logits,
    finding_if,
)
from attention_course.examine.report import Finding
from attention_course.examine.wrapped_model import (
    CannotAskError,
    DoubtError,
    WrappedModel,
    collected,
    format_error,
    max_abs_diff,
    parts_of,
)
from attention_course.examine.writing import options_of, written_by

CACHES = ("past_key_values", "layer_past", "past", "kv_cache", "kv_caches", "caches", "cache")
PASS_STEP = "Pass step=, a function (model, ids, cache) that returns (logits, cache); cache is None at first."
ONE_BY_ONE = 10.0  # a token that is read alone is rounded otherwise: times the tolerance
REBUILT = ("from_pretrained", "_init_weights", "init_weights")  # of models that are built without memory
PARAMETERS = 1e-5  # of the largest number of a parameter, by which another that is the same may differ
MANY = 32  # buffers, each of which is changed
GROWS = 3.0  # times the error of early tokens: right models have 1.2 at most; ALiBi, of Bloom, in bfloat16 6
FAR = 10.0  # times it; rotary positions that are counted in bfloat16 have 20


class Reading:
    """A text that is read in parts, each with the cache that the parts before it filled.

    Raises:
        CannotAskError: the model takes no cache that is known.
    """

    def __init__(self, wrapped: WrappedModel):
        names = wrapped.arguments
        self.wrapped, self.cache, self.read = wrapped, None, 0
        self.keyword = next((name for name in CACHES if name in names), "")
        if not (wrapped.step or self.keyword or "start_pos" in names):
            raise CannotAskError(f"It takes no cache that is known. {PASS_STEP}")
        if self.keyword and not wrapped.step:
            self.cache = empty_cache(wrapped.model, self.keyword)
        elif not wrapped.step:
            self.wrapped = wrapped.copied().eval()  # a cache that begins at start_pos lies in the model

    def next(self, ids: Tensor) -> Tensor:
        """Return the logits of the tokens that follow."""
        wrapped, begun = self.wrapped, self.read > 0
        before = "" if begun else repr(vars_of(self.cache))
        uses = {"use_cache": True} if "use_cache" in wrapped.arguments else {}
        try:
            with torch.no_grad():
                if wrapped.step:
                    output, self.cache = wrapped.step(wrapped.model, ids.to(wrapped.device), self.cache)
                elif self.keyword:
                    output = wrapped.answer(ids, **{self.keyword: self.cache}, **uses)
                else:
                    output = wrapped.answer(ids, start_pos=self.read)
        except Exception as error:
            if wrapped.step or begun or not self.keyword:
                raise
            raise CannotAskError(
                f"It takes a cache of another kind. {PASS_STEP} {format_error(error)}"
            ) from error
        if self.keyword and not wrapped.step:
            self.cache = cache_in(output, self.keyword, self.cache)
            if self.cache is None or (not begun and repr(vars_of(self.cache)) == before):
                kind = DoubtError if self.cache is None and uses else CannotAskError
                raise kind(f"It returns no cache, or takes one of another kind. {PASS_STEP}")
        self.read += ids.shape[1]
        logits = collected(wrapped.logits_in(output))
        if logits.shape[:2] != ids.shape:
            said = f"Read with a cache, ids of shape {tuple(ids.shape)} get logits of {tuple(logits.shape)}."
            raise DoubtError(f"{said} Return those of all its tokens.")
        return logits


def vars_of(cache: object) -> object:
    """Return what a cache holds."""
    return getattr(cache, "__dict__", cache)


def empty_cache(model: Any, keyword: str) -> Any:
    """Return a new object of the class that annotates this argument; None if there is none, as is usual."""
    for called in [each.__dict__.get("forward") for each in type(model).__mro__] + [model]:
        with suppress(Exception):  # no annotation that can be read, or a class that wants arguments
            kind = typing.get_type_hints(called)[keyword]
            for made in typing.get_args(kind) or [kind]:
                if made is not type(None):
                    return made()
    return None


def cache_in(output: Any, keyword: str, before: Any) -> Any:
    """Return the cache in what a model returned; `before` if it is changed in place."""
    parts = parts_of(output)
    named = [parts[name] for name in (keyword, *CACHES, "presents") if parts.get(name) is not None]
    if named or isinstance(output, Mapping) or not isinstance(output, tuple | list):
        return named[0] if named else before
    small = (each for each in output[1:] if isinstance(each, Tensor) and each.dim() < 4)  # a loss, or states
    left_out = [None, *map(id, small)]
    return next((each for each in output[1:] if each is not None and id(each) not in left_out), before)


def read_in_parts(wrapped: WrappedModel, ids: Tensor, stops: list[int]) -> Tensor:
    """Return the logits of texts that are read from each stop to the next, with a cache."""
    reading = Reading(wrapped)
    return torch.cat([reading.next(ids[:, start:stop]) for start, stop in pairwise(stops)], dim=1)


@asks("With a cache the logits are the same")
def cached(variants: ModelVariants) -> Finding:
    """Read a text in parts, with a cache."""
    noisy, T, full = variants.for_equality, variants.short, variants.given.block_size

    def compared(stops: list[int], said: str, cause: str = "") -> Finding:
        ids = noisy.draw(4, stops[-1], seed=12)  # of two texts a norm over the batch is all but 0 in places
        logits, parts = noisy.logits(ids), read_in_parts(noisy, ids, stops)
        return equal_logits(noisy, logits, parts, said, cause, slack=ONE_BY_ONE)

    one_by_one = [0, *range(T // 2 or 1, T + 1)]
    finding = compared(one_by_one, "Read to its middle, then token by token, they differ by")
    if finding.verdict == "right" and full > T:
        said = "In a full block, of which the last three are read one by one, they differ by"
        long = compared([0, *range(full - 3, full + 1)], said, "long")
        finding = finding if long.verdict == "right" else long
    if finding.verdict == "right":
        try:
            parts = compared(
                sorted({0, T // 2, max(1, T - 1), T}), "Of several tokens at once they differ by", "chunk"
            )
        except Exception as error:
            parts = finding_if(
                False, format_error(error), "Logits for several tokens after a prefix.", "chunk"
            )
        if parts.verdict == "wrong":
            return replace(parts, verdict="doubtful")
    return finding


@asks("It computes what its reference does")
def follows_reference(variants: ModelVariants) -> Finding:
    """Compare the logits with those of a second implementation, and find the first token that differs."""
    (beside,) = variants.given.beside
    if beside is None:
        raise CannotAskError("Pass reference=, a second implementation with the same parameters.")
    given, reference = variants.given, variants.given.of(beside)
    theirs = dict(reference.named_parameters())
    shapes = [{n: p.shape for n, p in named} for named in (given.named_parameters(), theirs.items())]
    if not variants.is_copy or not theirs or shapes[0] != shapes[1]:
        return compared_with(reference, given)
    reference, away = reference.in_float32(), {n: apart(p, theirs[n]) for n, p in given.named_parameters()}
    name = max(away, key=lambda name: away[name])
    if away[name]:
        finding = compared_with(reference, variants.new)
        if finding.cause in ("first", "attention", "later"):  # the logits differ
            said = f"Of the parameters {name.removeprefix('model.')} differs most, by up to {away[name]:.2g}."
            return replace(finding, measured=f"{finding.measured} {said}", cause="parameters")
    with torch.no_grad():
        theirs = dict(reference.named_parameters())
        for name, parameter in variants.with_noise.named_parameters():
            theirs[name].copy_(parameter)
    said = "With the parameters of the model, and noise, in both: "
    return compared_with(reference, variants.with_noise, said)


def compared_with(reference: WrappedModel, given: WrappedModel, said: str = "") -> Finding:
    """Compare the logits of a model with those of its reference; `said` stands before what is measured."""
    ids = given.draw(4, min(given.block_size, MAX_BACKWARD_TOKENS), seed=21)
    one = given.logits(ids)
    try:
        other = reference.logits(ids)
    except Exception as error:
        measured = f"The reference gives no logits. {format_error(error)}"
        return finding_if(False, measured, "reference(ids) returns logits (B, T, V).", "unread")
    if one.shape != other.shape:
        return finding_if(False, f"Shape {tuple(one.shape)}; the reference's is {tuple(other.shape)}.")
    limit = ONE_BY_ONE * given.tolerance(other)
    moved = ((one - other).abs().amax(dim=(0, 2)) > limit).nonzero()[:, 0].tolist()
    most = f"{float((one - other).abs().max()):.2g}"
    if not moved:
        return finding_if(True, f"{said}The logits differ by at most {most}.")
    said += f"{len(moved)} of {ids.shape[1]} outputs differ, by up to {most}; "
    cause = "first" if moved[0] == 0 else "attention" if moved[0] == 1 else "later"
    return finding_if(
        False, f"{said}the first is output {moved[0]}.", f"At most {limit:.1g}, by rounding.", cause
    )


def apart(one: Tensor, other: Tensor) -> float:
    """Return how far two parameters of one shape differ, in the shorter of their dtypes; 0 if by rounding."""
    dtype = min(one.dtype, other.dtype, key=lambda dtype: dtype.itemsize)
    one, other = (x.detach().cpu().to(dtype).double() for x in (one, other))
    away, largest = (float(x.abs().max()) if x.numel() else 0.0 for x in (one - other, other))
    return away if away > PARAMETERS * largest else 0.0


@asks("Its own dtype is precise enough")
def own_dtype(variants: ModelVariants) -> Finding:
    """Compare the errors of a short dtype late in a text with those early in it."""
    given = variants.given
    dtypes = {p.dtype for p in given.parameters()} & {torch.float16, torch.bfloat16}
    if not dtypes or not variants.is_copy:
        said = "Its parameters are in float32 or longer."
        if variants.is_copy and (dtype := rounded_last(variants.with_noise)):
            said = f"{said} Its layers compute in that, but each of its logits is a number of {dtype}."
            return finding_if(False, said, "Logits in float32.", "rounded", otherwise="doubtful")
        return finding_if(True, said)
    own, T, dtype = given.copied(), min(MAX_BACKWARD_TOKENS, given.block_size), dtypes.pop()
    with torch.no_grad():
        for parameter, moved in zip(own.parameters(), variants.with_noise.parameters(), strict=True):
            parameter.copy_(moved)
    ids, exact = own.draw(4, T, seed=22), own.in_float32()
    errors = (own.logits(ids) - exact.logits(ids)).abs().mean(dim=(0, 2))
    if T < 64 or not bool(errors.isfinite().all()):
        raise CannotAskError("It takes 64 tokens, and finite logits, to compare late tokens with early ones.")
    early, late = float(errors[: T // 8].mean()), float(errors[-T // 4 :].mean())
    said = f"In {dtype} logits are off by {early:.2g} early in {T} tokens, and by {late:.2g} late."
    return finding_if(late < GROWS * early, said, otherwise="wrong" if late > FAR * early else "doubtful")


def rounded_last(wrapped: WrappedModel) -> torch.dtype | None:
    """Return the shorter dtype to which logits in float32 are rounded, if none of the modules computes in it.

    Under autocast their modules do; and whoever gets logits in a shorter dtype sees it.
    """
    if not any(parameter.is_floating_point() for parameter in wrapped.parameters()):
        return None
    outputs, ids = list[Tensor](), wrapped.draw(2, min(PAIRWISE_TOKENS, wrapped.block_size), seed=27)

    def note(module: nn.Module, inputs: object, output: object) -> None:
        outputs.extend(each for each in parts_of(output).values() if isinstance(each, Tensor))

    hooks = [module.register_forward_hook(note) for module in wrapped.model.modules()]
    try:
        with torch.no_grad():
            logits = wrapped(ids)[..., wrapped.tokens.to(wrapped.device)]
    finally:
        for hook in hooks:
            hook.remove()
    dtypes = torch.bfloat16, torch.float16  # what is rounded to the first is a number of the second, too
    if any(each.dtype in dtypes for each in (*outputs, logits)):
        return None
    return next((dtype for dtype in dtypes if torch.equal(logits.to(dtype).to(logits), logits)), None)


@asks("Padding on the left changes nothing")
def left_padding(variants: ModelVariants) -> Finding:
    """Put tokens before a text that its attention_mask hides; then let it write after that."""
    noisy, given = variants.for_equality, variants.given
    if "attention_mask" not in noisy.arguments:
        raise CannotAskError("It takes no attention_mask.")
    T, pad = max(1, variants.short // 2), max(1, variants.short // 4)
    padded, hidden = noisy.draw(2, pad + T, seed=23), torch.tensor([pad, pad // 2])  # for each text another
    mask = (torch.arange(pad + T) >= hidden[:, None]).long()
    if variants.padding:
        padded[mask == 0] = variants.padding[0]
    texts = [text[shown == 1][None] for text, shown in zip(padded, mask, strict=True)]
    places = (mask.cumsum(dim=1) - 1).clamp(min=0)
    ways: list[dict[str, Tensor]] = [{"attention_mask": mask}]
    if counts := "position_ids" in noisy.arguments:
        ways.append({"attention_mask": mask, "position_ids": places})

    def read(wrapped: WrappedModel, options: dict[str, Tensor]) -> Tensor:
        placed = {name: value.to(wrapped.device) for name, value in options.items()}
        with torch.no_grad():
            return collected(wrapped.logits_in(wrapped.answer(padded, **placed)))[:, pad:]

    try:
        own, whole = read(given, ways[-1]), torch.cat([noisy.logits(text)[:, -T:] for text in texts])
        logits = min((read(noisy, options) for options in ways), key=lambda made: max_abs_diff(made, whole))
    except Exception as error:
        raise CannotAskError(f"It takes an attention_mask of another kind. {format_error(error)}") from error
    said = f"With {pad} hidden tokens before one text and {pad // 2} before another, logits"
    if not own.isfinite().all():
        return finding_if(False, f"{said} are NaN or inf.", cause="nan")
    finding = equal_logits(noisy, whole, logits, f"{said} differ by", slack=ONE_BY_ONE)
    if finding.verdict == "wrong" and not counts:
        return replace(finding, verdict="doubtful")
    if finding.verdict == "right":
        with suppress(CannotAskError):
            greedy = {"do_sample": False} if "do_sample" in options_of(noisy) else {}

            def written(ids: Tensor, mask: Tensor) -> list[list[int]]:
                made = written_by(noisy, ids, 4, attention_mask=mask.to(noisy.device), **greedy)
                return made[:, ids.shape[1] :].tolist()

            beside = written(padded, mask)
            for row, text in enumerate(texts):
                twice = text.repeat(2, 1)  # in a batch as large the same random numbers are drawn
                pairs = zip(written(twice, torch.ones_like(twice))[row], beside[row], strict=False)
                if any(one != other for one, other in pairs):  # a text that ends may end later beside another
                    said = "generate(ids, attention_mask=...) writes other tokens after a padded text."
                    return finding_if(False, said, "The same tokens.", "generate")
    return finding


@asks("A loaded copy gives the same logits")
def loaded(variants: ModelVariants) -> Finding:
    """Spoil the buffers that state_dict() leaves out, as to_empty() does, and load the rest."""
    noisy, made = variants.with_noise, variants.with_noise.copied().eval()
    if not any(hasattr(made.model, name) for name in REBUILT):
        raise CannotAskError(
            f"It has none of {', '.join(REBUILT)}, so nothing suggests that its buffers are ever left empty."
        )
    state, ids = noisy.state_dict(), noisy.draw(2, variants.short, seed=25)
    lost = {name: buffer for name, buffer in made.named_buffers() if name not in state}
    if not lost:
        return finding_if(True, "state_dict() has all parameters and buffers.")
    for buffer in lost.values():
        buffer.zero_()
    with suppress(Exception):  # models of transformers make them anew here
        for module in made.model.modules():
            made.model._init_weights(module)
    made.load_state_dict(state)
    said = f"With garbage in {listed(lost)}, which state_dict() leaves out, logits differ by"
    finding = equal_logits(noisy, noisy.logits(ids), made.logits(ids), said)
    return finding if finding.verdict == "right" else replace(finding, verdict="doubtful")


@asks("Every buffer has an effect")
def buffers(variants: ModelVariants) -> Finding:
    """Change each buffer that state_dict() has, and look at the logits."""
    noisy = variants.with_noise
    ids = noisy.draw(2, variants.short if noisy.is_large else noisy.block_size, seed=26)
    whole, state, silent = noisy.logits(ids), noisy.state_dict(), []
    named = [name for name, buffer in noisy.named_buffers() if name in state and buffer.dim()]
    if not named:
        return finding_if(True, "It has none in state_dict().")
    for name in named[:MANY]:
        changed = noisy.copied().eval()
        buffer = changed.get_buffer(name)
        buffer.copy_(~buffer if buffer.dtype == torch.bool else buffer.flip(0) + 1)
        if buffer.dtype != torch.bool:
            buffer[:1] += 1  # to a softmax, or to top-k, the same for all is nothing
        with suppress(Exception):  # then it has one
            if max_abs_diff(changed.logits(ids), whole) <= noisy.tolerance(whole):
                silent.append(name)
    said = (
        f"{len(silent)} of {len(named)} have none: {listed(silent)}." if silent else f"All {len(named)} do."
    )
    return finding_if(not silent, said, otherwise="doubtful")


def listed(names: Iterable[str]) -> str:
    """Return the first names of many."""
    first, *others = [name.removeprefix("model.") for name in names]
    return first if not others else f"{first} and {len(others)} more"
