"""Rung 11: an examination of any causal language model, from outside, with the questions of the ladder.

`examine` puts them to a model that maps ids (B, T) to logits (B, T, V). It reads no source, and no names
are required. Read `subject` (how a model is called), `question`, the questions (`findings`,
`beginning`, `learning`, with their texts in questions.toml), and `report`; then `planted`, bugs to find.
"""

import ctypes
import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from queue import Empty, SimpleQueue
from typing import Any

import torch
from torch import nn
from tqdm.auto import tqdm

from attention_course.checks import check_sizes
from attention_course.examine import beginning, findings, learning
from attention_course.examine.learning import Learner
from attention_course.examine.question import Question, questions_of
from attention_course.examine.report import Finding, Report, Verdict
from attention_course.examine.subject import Subject
from attention_course.gpt import evaluating

__all__ = ["QUESTIONS", "Finding", "Question", "Report", "Verdict", "examine"]

QUESTIONS = [each for module in (findings, beginning, learning) for each in questions_of(module)]
PATIENCE = 60.0  # seconds that a model may take for one answer


class StoppedError(BaseException):
    """The examination was stopped. Not an `Exception`, so that a model does not catch it."""


def examine(
    model: nn.Module | Callable[..., Any], *, vocab_size: int, block_size: int, train: bool = True
) -> Report:
    """Examine a causal language model. The model itself is not changed: a copy is.

    The questions that need no training take seconds. Training takes up to two minutes on two cores. The stop
    button, or Ctrl-C, ends the examination and keeps what was found.

    Args:
        model: maps ids (B, T) to logits (B, T, V), or to a tuple, a dict or an object that holds them. Of a
            callable that is not a module some questions cannot be asked: it has no parameters.
        vocab_size: V; ids go from 0 to V - 1.
        block_size: the context length that the model claims.
        train: whether to train it, on one batch and on stories of 40 or so characters: character i is id i.

    Raises:
        TypeError: the model cannot be called, or a size is not an integer.
        ValueError: vocab_size is below 2, or block_size below 1.
    """
    if not callable(model):
        raise TypeError(
            f"examine: model is {type(model).__name__}, expected an nn.Module or a function of ids."
        )
    check_sizes("examine", 2, vocab_size=vocab_size)
    check_sizes("examine", 1, block_size=block_size)
    questions = [question for question in QUESTIONS if train or not question.train]
    return Examination(Subject(model, vocab_size, block_size), questions).run()


class Examination:
    """The questions are asked in a thread of their own, so that a model that hangs can be left behind.

    It sends a note for every sign of life; silence for PATIENCE seconds is the finding that the model hangs.
    """

    def __init__(self, subject: Subject, questions: list[Question]):
        self.subject, self.questions = subject, questions
        self.findings: dict[str, Finding] = {}
        self.remarks: list[str] = []
        self.notes: SimpleQueue[str | None] = SimpleQueue()
        self.over = False
        self.error: Exception | None = None

    def run(self) -> Report:
        """Ask all questions, with a progress bar."""
        thread = threading.Thread(target=self.work, name="examination", daemon=True)
        stopped, shown = False, "{desc} {bar} {n_fmt} of {total_fmt}"
        with tqdm(total=len(self.questions), desc="examining", bar_format=shown, leave=False) as bar:
            thread.start()
            try:
                while (note := self.notes.get(timeout=PATIENCE)) is not None:
                    bar.set_postfix_str(note, refresh=False)
                    bar.update(len(self.findings) - bar.n)
            except Empty:
                self.hung()
            except KeyboardInterrupt:
                stopped = True
        self.over = True
        thread.join(1)
        stop(thread)
        if self.error is not None:
            raise self.error
        return Report(tuple(self.findings.values()), stopped, tuple(self.remarks))

    def work(self) -> None:
        """Put each question to the model."""
        try:
            with suppress(StoppedError), torch.random.fork_rng():
                self.subject.tick = self.tick
                candidate = Learner(self.subject)
                self.remarks = candidate.remarks
                with nullcontext() if candidate.is_copy else evaluating(self.subject):
                    self.ask(candidate)
        except Exception as error:  # ours: those of the model are findings
            self.error = error
        finally:
            self.notes.put(None)

    def ask(self, candidate: Learner) -> None:
        """Ask one question after the other, until an answer makes the others pointless."""
        vital = ""
        for question in self.questions:
            finding = question.moot(vital) if vital else question.put_to(candidate, self.findings)
            self.findings[question.name] = finding
            self.tick("")
            if question.vital and finding.verdict == "wrong":
                vital = question.name

    def tick(self, note: str) -> None:
        """Send a sign of life; the end of the examination is heard of here."""
        if self.over:
            raise StoppedError
        self.notes.put(note)

    def hung(self) -> None:
        """Add what is known of a model that does not answer."""
        asked = self.questions[len(self.findings)]
        said = f"No answer within {PATIENCE:.0f} seconds, so no further question was asked."
        cause = "A loop in forward() does not end, or the model is too large for this machine."
        self.findings[asked.name] = Finding(asked.name, "wrong", said, "An answer.", cause, asked.rung)
        for question in self.questions[len(self.findings) :]:
            self.findings[question.name] = question.moot(asked.name)


def stop(thread: threading.Thread) -> None:
    """Raise StoppedError in a thread, for at most two seconds: it ends a loop, not a call into C."""
    for _ in range(20):
        if not thread.is_alive():
            return
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident or 0), ctypes.py_object(StoppedError)
        )
        thread.join(0.1)
