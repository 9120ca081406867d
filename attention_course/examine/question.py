"""A question, and the forms of the model that it is put to."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from attention_course.examine.report import Finding, FindingVerdict
from attention_course.examine.wrapped_model import (
    CannotAskError,
    StoppedError,
    WrappedModel,
    collected,
    format_error,
    max_abs_diff,
    their_frames,
)
from attention_course.ladder import read_table

TEXTS = read_table(Path(__file__).parent / "findings.toml")
MAX_BACKWARD_TOKENS = 512  # tokens of a text in a backward pass
ATTENTION_TOKENS = 64  # tokens of a text in which attention is measured
MIN_EFFECTIVE_SHARE = 0.41  # right models have 0.44 and more, unscaled scores of one head below 0.4
MIN_OWN_EFFECT = 1.5  # right models have 2.0 and more; without a residual stream 1.4 at most
OUTWEIGHS = 10.0  # with faint layers a residual stream gives 60 and more, and none 1.5 at most
RAISED = "The model raised this error on a text that it has to be able to read."
OURS = (
    "No line of the model raised this. Either it returned what the examiner itself does not expect, or the "
    "examiner is wrong. Please report it."
)
DOUBT = "Look at the line that raised this. It may be right if it asks for what the examiner doesn't know."
ENDED = "This ends Python. Remove it, an exit() or the like: a model returns logits, and its caller goes on."
MEMORY = "This machine has less memory than the model takes for this question. Pass a smaller block_size."
INPLACE = "backward() needs a tensor as it was. Look for x += ... or x[...] = ..., and write x = x + ..."
REQUIRED = "Give the model what it is asked for, or leave the question out of `require`."
SMALL_VOCAB = 8  # tokens in a vocabulary
PAIRWISE_TOKENS = 16  # tokens of a text in which every pair of positions is tried


class ModelVariants:
    """The model in the forms in which it is examined: all of them copies, in eval mode.

    Attributes:
        given: with its own parameters and dtype.
        padding: the ids that the model names as padding.
        remarks: what a reader has to know about how it was examined.
    """

    def __init__(self, wrapped: WrappedModel):
        self.wrapped = wrapped
        self.remarks = list(wrapped.remarks)
        self.is_copy = True
        self.padding = wrapped.leave_out_padding()
        if self.padding:
            ids = ", ".join(map(str, self.padding))
            self.remarks.append(f"The model names id {ids} as padding, so no text here contains it.")
        try:
            self.given = wrapped.copied().eval()
            hooked = [n for n, p in wrapped.named_parameters() if getattr(p, "_backward_hooks", None)]
            if hooked:
                name = hooked[0].removeprefix("model.")
                self.remarks.append(f"A copy has no hooks of parameters, so that of {name} was not examined.")
        except CannotAskError as error:
            self.given, self.is_copy = wrapped, False
            self.remarks.append(f"{error} So it is examined as it is, without training.")

    def fresh(self) -> WrappedModel:
        """Return a copy that has read no text yet; the model itself if it cannot be copied."""
        if not self.is_copy:
            return self.given
        made = self.wrapped.copied().eval()
        made.tokens, made.never, made.targets = self.given.tokens, self.given.never, self.given.targets
        return made

    @cached_property
    def new(self) -> WrappedModel:
        """The model with its own parameters, in float32 if its dtype is shorter."""
        return self._fitting(WrappedModel.in_float32)

    @cached_property
    def with_noise(self) -> WrappedModel:
        """The model with noise added to all parameters; see `WrappedModel.with_noise`."""
        return self.with_new_noise(0)

    @cached_property
    def with_noise_in_float64(self) -> WrappedModel:
        """The model with noise, in float64 if it computes the same in that.

        F.scaled_dot_product_attention with a mask in float32 does not (PyTorch 2.13, CPU), nor do layers of
        torch.nn without gradients.
        """
        made, ids = self._fitting(lambda given: given.with_noise().double()), self.given.draw(2, self.short)
        shorter = self.with_noise.logits(ids)
        with torch.enable_grad():
            traced = collected(made(ids))
        away = max(max_abs_diff(each, shorter) for each in (traced, made.logits(ids)))
        return made if away <= self.with_noise.tolerance(shorter) else self.with_noise

    def with_new_noise(self, seed: int) -> WrappedModel:
        """Return the model with noise from another seed."""
        return self._fitting(partial(WrappedModel.with_noise, seed=seed))

    @cached_property
    def with_unit_embeddings(self) -> WrappedModel:
        """The model with large embeddings; see `WrappedModel.with_unit_embeddings`."""
        return self._fitting(WrappedModel.with_unit_embeddings)

    @cached_property
    def with_faint_layers(self) -> WrappedModel:
        """The model with layers that add little; see `WrappedModel.with_faint_layers`."""
        return self._fitting(WrappedModel.with_faint_layers)

    @cached_property
    def with_large_scores(self) -> WrappedModel:
        """The model with larger matrices; see `WrappedModel.with_large_scores`."""
        return self._fitting(WrappedModel.with_large_scores)

    def _fitting(self, make: Callable[[WrappedModel], WrappedModel]) -> WrappedModel:
        if not self.is_copy:
            return self.given
        made = make(self.given)
        try:
            fits = bool(made.logits(made.draw(1, 1)).isfinite().all())
        except Exception:  # of a model that is written for one dtype
            fits = False
        with suppress(Exception):  # what a longer text meets, the questions will tell
            ids = made.draw(1, made.block_size)
            fits &= bool(made.logits(ids).isfinite().all() or not self.given.logits(ids).isfinite().all())
        return made if fits else self.given

    @property
    def for_equality(self) -> WrappedModel:
        """`with_noise`, to compare calls of different shapes; in a large model noise multiplies rounding."""
        return self.new if self.with_noise.is_large else self.with_noise

    @property
    def short(self) -> int:
        """The length of texts in which every pair of positions is tried."""
        return min(PAIRWISE_TOKENS, self.given.block_size)

    @cached_property
    def table(self) -> Tensor:
        """Which outputs change with which tokens; see `WrappedModel.influence`."""
        return self.with_noise.influence(self.short)


@dataclass(frozen=True)
class Question:
    """A question, and what to know about it before the answer; `findings.toml` has that of each.

    Attributes:
        name: what a right model does.
        ask: returns the finding, without name and rung.
        rung: the number of the rung that explains it.
        expected: default for `Finding.expected`.
        cause: default for `Finding.cause`: the usual one.
        causes: others, by name; the finding names one.
        explained_by: names of findings that, if wrong, explain that this one is.
        apart: names of causes that no other finding explains.
        least: sizes of a model below which it cannot be asked.
        vital: whether all later questions make no sense if this is wrong.
        train: whether it takes a training.
        required: whether it is wrong that it cannot be asked.
    """

    name: str
    ask: Callable[[Any], Finding]
    rung: int = 8
    expected: str = ""
    cause: str = ""
    causes: Mapping[str, str] = field(default_factory=dict)
    explained_by: Sequence[str] = ()
    apart: Sequence[str] = ()
    least: Mapping[str, int] = field(default_factory=dict)
    vital: bool = False
    train: bool = False
    required: bool = False

    def put_to(self, variants: ModelVariants, before: Mapping[str, Finding]) -> Finding:
        """Ask, given the findings before. Whatever the model raises is a finding, too: exit() is no end."""
        try:
            for size, least in self.least.items():
                if (given := getattr(variants.given, size)) < least:
                    raise CannotAskError(f"{size} is {given}, and it takes at least {least} to ask this.")
            answer = self.ask(variants)
        except CannotAskError as error:
            answer = Finding("", error.verdict, str(error), cause=DOUBT if error.__cause__ else "")
            if self.required and answer.verdict == "not asked":
                answer = finding_if(False, str(error), "An answer: this question is required.", REQUIRED)
        except StoppedError:
            raise
        except BaseException as error:
            cause = RAISED if isinstance(error, Exception) else ENDED
            ours = not their_frames(error) and not hasattr(error, "__notes__")  # answer() adds a note
            if "modified by an inplace operation" in str(error):
                cause, ours = INPLACE, False
            answer = finding_if(False, format_error(error), "An answer.", OURS if ours else cause)
            lacking = isinstance(error, MemoryError | torch.OutOfMemoryError)
            if lacking or "t allocate memory" in answer.measured:
                answer = replace(answer, verdict="doubtful", cause=MEMORY)
        wrong = [each.name for each in before.values() if each.verdict == "wrong"]
        reasons = [name for name in wrong if name in self.explained_by and answer.cause not in self.apart]
        return replace(
            answer,
            name=self.name,
            rung=self.rung,
            expected=answer.expected or self.expected,
            cause=self.causes.get(answer.cause, answer.cause or self.cause),
            follows_from=reasons[0] if reasons and answer.verdict in ("wrong", "doubtful") else None,
        )

    def skipped(self, name: str) -> Finding:
        """Return that the question was not asked because of another finding."""
        return Finding(self.name, "not asked", f"First fix “{name}”.", rung=self.rung, follows_from=name)


def asks(name: str) -> Callable[[Callable[[Any], Finding]], Question]:
    """Make a question of a function, the one with this name in `findings.toml`."""
    texts = TEXTS[name]
    return lambda ask: Question(name, ask, **{**texts, "rung": int(texts["rung"])})


def questions_of(module: ModuleType) -> list[Question]:
    """Return the questions of a module, in its order."""
    return [each for each in vars(module).values() if isinstance(each, Question)]


def finding_if(
    holds: bool, measured: str, expected: str = "", cause: str = "", otherwise: FindingVerdict = "wrong"
) -> Finding:
    """Return the finding "right" if it holds.

    `expected` and `cause` are those of the question if they are left out; `cause` may name one of its causes.
    """
    return Finding("", "right" if holds else otherwise, measured, expected, cause)


def equal_logits(
    wrapped: WrappedModel, one: Tensor, other: Tensor, said: str, cause: str = "", slack: float = 1.0
) -> Finding:
    """Return "right" if logits are the same but for rounding; `said` stands before the difference."""
    away, limit = max_abs_diff(one, other), slack * wrapped.tolerance(one)
    return finding_if(away <= limit, f"{said} {away:.2g}.", f"At most {limit:.1g}, by rounding.", cause)
