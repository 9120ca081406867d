"""A question, and the candidate that it is put to."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from types import ModuleType
from typing import Any

from torch import Tensor

from attention_course.examine.report import Finding, Verdict
from attention_course.examine.subject import CannotAskError, Subject, told

LONGEST = 512  # tokens of a text in a backward pass
LONG = 64  # tokens of a text in which attention is measured
EVEN = 0.41  # share of the tokens: right models have 0.44 and more, unscaled scores of one head below 0.4
RESIDUAL = 1.5  # without a residual stream about 1; right models have 2.0 and more
FEW = 8  # tokens in a vocabulary
SHORT = 16  # tokens of a text in which every pair of positions is tried


class Candidate:
    """The model in the forms in which it is examined: all of them copies, in eval mode.

    Attributes:
        given: with its own parameters and dtype.
        remarks: what a reader has to know about how it was examined.
    """

    def __init__(self, subject: Subject):
        self.remarks: list[str] = []
        self.is_copy = True
        try:
            self.given = subject.copied().eval()
        except CannotAskError as error:
            self.given, self.is_copy = subject, False
            self.remarks.append(f"{error} So it is examined as it is, without training.")

    @cached_property
    def new(self) -> Subject:
        """The model with its own parameters, in float32 if its dtype is shorter."""
        return self._fitting(Subject.in_float32)

    @cached_property
    def stirred(self) -> Subject:
        """The model with noise added to all parameters; see `Subject.stirred`."""
        return self._fitting(Subject.stirred)

    def _fitting(self, make: Callable[[Subject], Subject]) -> Subject:
        if not self.is_copy:
            return self.given
        made = make(self.given)
        try:
            fits = bool(made.logits(made.draw(1, 1)).isfinite().all())
        except Exception:  # of a model that is written for one dtype
            fits = False
        return made if fits else self.given

    @property
    def steady(self) -> Subject:
        """`stirred`, to compare calls of different shapes; in a large model noise multiplies rounding."""
        return self.new if self.stirred.is_large else self.stirred

    @property
    def short(self) -> int:
        """The length of texts in which every pair of positions is tried."""
        return min(SHORT, self.given.block_size)

    @cached_property
    def table(self) -> Tensor:
        """Which outputs change with which tokens; see `Subject.influence`."""
        return self.stirred.influence(self.short)

    def check_size(self) -> None:
        """Raise CannotAskError if random texts are too much alike for a mean over them to say something."""
        if self.given.block_size < SHORT or self.given.vocab_size < FEW:
            raise CannotAskError(
                f"It takes vocab_size of at least {FEW}, and block_size of {SHORT}, to measure this."
            )


@dataclass(frozen=True)
class Question:
    """A question, and what to know about it before the answer.

    Attributes:
        name: what a right model does.
        rung: the number of the rung that explains it.
        ask: returns the finding, without name and rung.
        explained_by: names of findings that, if wrong, explain that this one is.
        vital: whether all later questions make no sense if this is wrong.
        train: whether it takes a training.
    """

    name: str
    rung: int
    ask: Callable[[Any], Finding]
    explained_by: tuple[str, ...] = ()
    vital: bool = False
    train: bool = False

    def put_to(self, candidate: Candidate, before: dict[str, Finding]) -> Finding:
        """Ask, given the findings before. An error that the model raises is a finding, too."""
        try:
            found = self.ask(candidate)
        except CannotAskError as error:
            found = Finding("", "not asked", str(error))
        except Exception as error:
            cause = "The model raised this error on a text that it has to be able to read."
            found = Finding("", "wrong", told(error), "An answer.", cause)
        reasons = (
            name for name, each in before.items() if name in self.explained_by and each.verdict == "wrong"
        )
        follows = next(reasons, None) if found.verdict in ("wrong", "doubtful") else None
        return replace(found, name=self.name, rung=self.rung, follows_from=follows)

    def moot(self, name: str) -> Finding:
        """Return that the question was not asked because of another finding."""
        return Finding(self.name, "not asked", f"First mend “{name}”.", rung=self.rung)


def asks(
    name: str, rung: int, *explained_by: str, vital: bool = False, train: bool = False
) -> Callable[[Callable[[Any], Finding]], Question]:
    """Make a question of a function."""
    return lambda ask: Question(name, rung, ask, explained_by, vital, train)


def questions_of(module: ModuleType) -> list[Question]:
    """Return the questions of a module, in its order."""
    return [each for each in vars(module).values() if isinstance(each, Question)]


def found(holds: bool, measured: str, expected: str, cause: str, otherwise: Verdict = "wrong") -> Finding:
    """Return the finding "right" if it holds."""
    return Finding("", "right" if holds else otherwise, measured, expected, cause)
