"""Rung 11: an examination of any causal language model, from outside, with the questions of the ladder.

`examine` puts them to a model that maps ids (B, T) to logits (B, T, V). It reads no source, and no names
are required. Read `subject` (how a model is called), `question`, the questions (`findings`,
`beginning`, `learning`, with their texts in questions.toml), and `report`; then `planted`, bugs to find.
"""

import ctypes
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
import torch
from torch import nn
from tqdm.auto import tqdm

from attention_course.checks import check_sizes
from attention_course.examine import beginning, findings, learning
from attention_course.examine.learning import Learner
from attention_course.examine.question import Question, questions_of
from attention_course.examine.report import Finding, Report, Verdict
from attention_course.examine.subject import StoppedError, Subject, told
from attention_course.gpt import evaluating

__all__ = ["QUESTIONS", "Finding", "Question", "Report", "Verdict", "examine"]

QUESTIONS = [each for module in (findings, beginning, learning) for each in questions_of(module)]
PATIENCE = 60.0  # seconds that a model may take for one answer


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
    if not callable(model) or isinstance(model, type):
        given = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
        raise TypeError(f"examine: model is {given}, expected an nn.Module or a function of ids.")
    check_sizes("examine", 2, vocab_size=vocab_size)
    check_sizes("examine", 1, block_size=block_size)
    questions = [question for question in QUESTIONS if train or not question.train]
    return Examination(Subject(model, vocab_size, block_size), questions).run()


SHARED = [  # settings of all threads: a model that changes one must not spoil what runs after it
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (torch.get_num_threads, torch.set_num_threads),
    (sys.getrecursionlimit, sys.setrecursionlimit),
]
OWN = [  # settings of the thread of the questions, which begins without a default device
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (lambda: None, torch.set_default_device),
]
GENERATORS = [(random.getstate, random.setstate), (np.random.get_state, np.random.set_state)]
UNPREPARED = (
    "The model raised this when it was copied and put into eval mode. Does it override train(), eval() or "
    "__deepcopy__(), or leave out super().__init__()?"
)


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

    def run(self) -> Report:
        """Ask all questions, with a progress bar."""
        thread = threading.Thread(target=self.work, name="examination", daemon=True)
        shown = "{desc} {bar} {n_fmt} of {total_fmt}"
        bar = tqdm(total=len(self.questions), desc="examining", bar_format=shown, leave=False)
        with torch.random.fork_rng(), kept(SHARED + GENERATORS), bar:
            thread.start()
            try:
                while (note := self.notes.get(timeout=PATIENCE)) is not None:
                    bar.set_postfix_str(note, refresh=False)
                    bar.update(len(self.findings) - bar.n)
            except Empty:
                said = f"No answer within {PATIENCE:.0f} seconds, so no further question was asked."
                self.end(
                    said, "A loop in forward() does not end, or the model is too large for this machine."
                )
            except KeyboardInterrupt:  # the user's: one that a model raises, in its thread, is a finding
                pass
            self.over = True
            thread.join(1)
            stop(thread)
        stopped = len(self.findings) < len(self.questions)
        return Report(tuple(self.findings.values()), stopped, tuple(self.remarks))

    def work(self) -> None:
        """Put each question to the model."""
        try:
            with suppress(StoppedError):
                self.subject.tick = self.tick
                candidate = Learner(self.subject)
                self.remarks = candidate.remarks
                with nullcontext() if candidate.is_copy else evaluating(self.subject):
                    self.ask(candidate)
        except BaseException as error:
            self.end(told(error), UNPREPARED)
        finally:
            self.notes.put(None)

    def ask(self, candidate: Learner) -> None:
        """Ask one question after the other, until an answer makes the others pointless."""
        vital = ""
        for question in self.questions:
            with kept(SHARED + OWN):
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

    def end(self, said: str, cause: str) -> None:
        """Add that the question now asked got no answer, and that no further one was asked."""
        asked = self.questions[len(self.findings)]
        self.findings[asked.name] = Finding(asked.name, "wrong", said, "An answer.", cause, asked.rung)
        for question in self.questions[len(self.findings) :]:
            self.findings[question.name] = question.moot(asked.name)


@contextmanager
def kept(state: list[tuple[Callable[[], Any], Callable[[Any], Any]]]) -> Iterator[None]:
    """Leave what these functions get and set as it was."""
    before = [get() for get, _ in state]
    try:
        yield
    finally:
        for (_, put), value in zip(state, before, strict=True):
            put(value)


def stop(thread: threading.Thread) -> None:
    """Raise StoppedError in a thread, for at most two seconds: it ends a loop, not a call into C."""
    for _ in range(20):
        if not thread.is_alive():
            return
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident or 0), ctypes.py_object(StoppedError)
        )
        thread.join(0.1)
