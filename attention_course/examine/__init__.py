"""An examination of any causal language model, from outside, with the questions of the ladder.

`examine` puts them to a model that maps ids (B, T) to logits (B, T, V). It reads no source, and no names
are required. Read `wrapped_model` (how a model is called), `sizes`, `question`, the questions (`findings`,
`beginning`, `gradients`, `using`, `writing`, `learning`, with their texts in findings.toml), and `report`;
then `planted`, bugs to find.
"""

import ctypes
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

import torch
from torch import nn
from tqdm.auto import tqdm

from attention_course.apart import EndedError, Message, Send
from attention_course.checks import check_flags, check_numbers, check_sizes
from attention_course.examine import beginning, findings, gradients, learning, using, writing
from attention_course.examine.learning import TrainedVariants
from attention_course.examine.question import Question, questions_of
from attention_course.examine.report import Finding, FindingVerdict, Report
from attention_course.examine.sizes import sizes_of
from attention_course.examine.wrapped_model import (
    GENERATORS,
    OWN,
    SHARED,
    StoppedError,
    WrappedModel,
    format_error,
    kept,
)
from attention_course.gpt import evaluating
from attention_course.names import look_up, shown

__all__ = ["QUESTIONS", "Finding", "FindingVerdict", "Question", "Report", "examine"]

MODULES = (findings, beginning, gradients, using, writing, learning)
QUESTIONS = [each for module in MODULES for each in questions_of(module)]
MAX_SIZE = 2**20  # tokens in a vocabulary, and in a block
PATIENCE = 60.0  # seconds that a model may take for one answer


def examine(
    model: nn.Module | Callable[..., Any],
    *,
    vocab_size: int | None = None,
    block_size: int | None = None,
    train: bool = True,
    reference: Callable[..., Any] | None = None,
    step: Callable[..., tuple[Any, Any]] | None = None,
    ignore: Sequence[str] = (),
    require: Sequence[str] = (),
) -> Report:
    """Examine a causal language model. The model itself is not changed: a copy is.

    The questions that need no training take seconds. Training takes up to two minutes on two cores. The stop
    button, or Ctrl-C, ends the examination and keeps what was found.

    The model runs in your process: a crash in C, or an endless call into it, is yours, too. The command,
    `python -m attention_course.examine`, runs it in a process apart.

    Args:
        model: maps ids (B, T) to logits (B, T, V), or to a tuple, a dict or an object that holds them. Of a
            callable that is not a module some questions cannot be asked: it has no parameters.
        vocab_size: V; ids go from 0 to V - 1. None: that of `model.config`, or of the model.
        block_size: the context length that the model claims. None: that of `model.config`, or of the model,
            but at most 128 tokens: all questions can be asked of these, but for what it does at the end of a
            longer block, of which the report tells.
        train: whether to train it, on one batch and on stories of 40 or so characters: character i is id i.
        reference: a second implementation with the same parameters: a module, or a function of ids. What is
            computed wrongly, but the same way for all tokens, such as a scale, nothing else can find. If its
            parameters have other numbers, that is what is found.
        step: how to read with a cache, if the model takes one that is not known: a function
            (model, ids, cache) that returns (logits, cache): logits of all these ids, (B, T, V). The first
            cache is None.
        ignore: names of questions that are not asked, such as "Every parameter gets a gradient".
        require: names of questions that are wrong if they cannot be asked.

    Raises:
        TypeError: the model, the reference or step cannot be called, or is a class; a size is not an integer,
            train is not a bool, or ignore or require no list.
        ValueError: vocab_size is below 2, block_size below 1, or one of them above MAX_SIZE; it is neither
            given nor told by the model; no question is named so; or one that is required will not be asked.
    """
    check_flags("examine", train=train)
    for name, given in {"reference": reference, "step": step}.items():
        if given is not None and (not callable(given) or isinstance(given, type)):
            raise TypeError(f"examine: {name} is {kind_of(given)}, expected a function.")
    wrapped = wrap(model, vocab_size, block_size)
    wrapped.beside, wrapped.step = (reference,), step
    return examine_here(wrapped, questions_to(train, ignore, require))


def examine_here(wrapped: WrappedModel, questions: list[Question]) -> Report:
    """Examine in this process."""
    return Examination(questions).follow(in_thread(wrapped, questions))


def wrap(model: object, vocab_size: int | None = None, block_size: int | None = None) -> WrappedModel:
    """Wrap the model to be examined; raise as `examine` does."""
    if not callable(model) or isinstance(model, type):
        raise TypeError(f"examine: model is {kind_of(model)}, expected an nn.Module or a function of ids.")
    check_claims(vocab_size, block_size)
    try:
        if isinstance(model, nn.Module):
            check_numbers_in(model)
        sizes = sizes_of(model, vocab_size, block_size)
    except (TypeError, ValueError):
        raise
    except Exception as error:
        said = f"examine: the model raised {format_error(error)}"
        raise ValueError(f"{said} Does its class leave out super().__init__()?") from error
    check_claims(sizes.vocab_size, sizes.block_size)
    wrapped = WrappedModel(model, int(sizes.vocab_size), int(sizes.block_size))
    wrapped.whole, wrapped.remarks = int(sizes.whole), sizes.remarks
    return wrapped


def check_numbers_in(model: nn.Module) -> None:
    """Raise unless the model has numbers, which gradients can move."""
    if any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers())):
        raise ValueError(
            "examine: the model is on the meta device, so its parameters have no values. Call "
            "model.to_empty(device='cpu') and load them, or make the model on the CPU."
        )
    if any(type(module).__module__.startswith("torch.ao.nn.quantized") for module in model.modules()):
        raise ValueError(
            "examine: the model has quantized layers, which get no gradients, and whose rounding may depend "
            "on other tokens. Examine the model before it is quantized."
        )


def kind_of(given: object) -> str:
    """Return the name of a class, or that of an object's class."""
    return f"the class {given.__name__}" if isinstance(given, type) else type(given).__name__


def check_claims(vocab_size: int | None = None, block_size: int | None = None) -> None:
    """Raise unless a model can have these sizes, those that are not None."""
    for name, least, size in (("vocab_size", 2, vocab_size), ("block_size", 1, block_size)):
        if size is None:
            continue
        for check in (check_sizes, check_numbers):
            check("examine", least, **{name: size})
        if size > MAX_SIZE:
            raise ValueError(
                f"examine: {name} = {size}, expected at most {MAX_SIZE}, because all ids and texts of a "
                "whole block are passed to the model. Make the model smaller, and examine that."
            )


def questions_to(train: bool, ignore: Sequence[str] = (), require: Sequence[str] = ()) -> list[Question]:
    """Return the questions to a model that is, or is not, to be trained; raise as `examine` does."""
    named = {question.name: question for question in QUESTIONS}
    for argument, given in {"ignore": ignore, "require": require}.items():
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise TypeError(f"examine: {argument} = {shown(given)}, expected a list of names of questions.")
        for name in given:
            look_up(name, named, "question")
    for name in require:
        if name in ignore or not (train or not named[name].train):
            said = "it is in ignore, too" if name in ignore else "it takes a training, and train is False"
            raise ValueError(f"examine: require has {name!r}, which is not asked: {said}. Leave out one.")
    return [
        replace(question, required=question.name in require)
        for question in QUESTIONS
        if (train or not question.train) and question.name not in ignore
    ]


HANGS = (
    f"No answer within {PATIENCE:.0f} seconds, so no further question was asked.",
    "A loop in forward() or generate() does not end, or the model is too large for this machine.",
)
DIES = (
    "Its process ended without an answer, so no further question was asked.",
    "It calls os._exit(), crashed in a call into C, was ended by a signal, or took too much memory.",
)
UNPREPARED = (
    "The model raised this when it was copied and put into eval mode. Does it override train(), eval() or "
    "__deepcopy__(), or leave out super().__init__()?"
)


LAZY = "A lazy layer does not know its sizes yet. Call it once first, model(ids), and then examine it."


class Examination:
    """What is found, question by question, from the messages of `put`.

    Silence for PATIENCE seconds is the finding that the model hangs.
    """

    def __init__(self, questions: list[Question]):
        self.questions = questions
        self.findings: dict[str, Finding] = {}
        self.remarks: list[str] = []

    def follow(self, messages: Iterable[Message], quiet: bool = False) -> Report:
        """Collect the messages, with a progress bar, to their end or the user's interrupt."""
        shown, many = "{desc} {bar} {n_fmt} of {total_fmt}", len(self.questions)
        bar = tqdm(total=many, desc="examining", bar_format=shown, leave=False, disable=quiet)
        with bar, suppress(KeyboardInterrupt):
            try:
                for kind, value in messages:
                    self.take(kind, value)
                    bar.set_postfix_str(value if kind == "note" else "", refresh=False)
                    bar.update(len(self.findings) - bar.n)
            except EndedError as error:
                self.end(*(HANGS if error.silent else DIES))
        stopped = len(self.findings) < len(self.questions)
        return Report(tuple(self.findings.values()), stopped, tuple(self.remarks))

    def take(self, kind: str, value: Any) -> None:
        """Take a message."""
        if kind == "finding":
            self.findings[value.name] = value
        elif kind == "remark":
            self.remarks.append(value)
        elif kind == "end":
            self.end(*value)

    def end(self, said: str, cause: str) -> None:
        """Find that the question now asked got no answer, and that no further one was asked."""
        waiting = [question for question in self.questions if question.name not in self.findings]
        for asked in waiting[:1]:
            self.findings[asked.name] = Finding(asked.name, "wrong", said, "An answer.", cause, asked.rung)
        for question in waiting[1:]:
            self.findings[question.name] = question.skipped(waiting[0].name)


def put(wrapped: WrappedModel, questions: list[Question], send: Send) -> None:
    """Put one question after the other to a model, until an answer makes the others pointless.

    Sends a "note" for every sign of life, each "remark" and "finding", and the "end" if nothing can be asked.
    """
    wrapped.tick = partial(send, "note")
    before: dict[str, Finding] = {}
    vital = ""
    try:
        variants = TrainedVariants(wrapped)
        for remark in variants.remarks:
            send("remark", remark)
        with nullcontext() if variants.is_copy else evaluating(wrapped):
            for question in questions:
                with kept(SHARED + OWN):
                    finding = question.skipped(vital) if vital else question.put_to(variants, before)
                before[question.name] = finding
                send("finding", finding)
                if question.vital and finding.verdict == "wrong":
                    vital = question.name
    except StoppedError:
        raise
    except BaseException as error:
        send("end", (format_error(error), LAZY if "uninitialized parameter" in str(error) else UNPREPARED))


def in_thread(wrapped: WrappedModel, questions: list[Question]) -> Iterator[Message]:
    """Put the questions in a thread of their own, so that a model that hangs can be left behind.

    Raises:
        EndedError: it was silent for PATIENCE seconds.
    """
    messages, over = SimpleQueue[Message | None](), threading.Event()

    def send(kind: str, value: object) -> None:
        if over.is_set():
            raise StoppedError
        messages.put((kind, value))

    def work() -> None:
        try:
            with suppress(StoppedError):
                put(wrapped, questions, send)
        finally:
            messages.put(None)

    thread = threading.Thread(target=work, name="examination", daemon=True)
    with torch.random.fork_rng(), kept(SHARED + GENERATORS):
        thread.start()
        try:
            while message := messages.get(timeout=PATIENCE):
                yield message
        except Empty:
            raise EndedError("", begun=True, silent=True) from None
        finally:
            over.set()
            thread.join(1)
            stop(thread)


def stop(thread: threading.Thread) -> None:
    """Raise StoppedError in a thread, for at most two seconds: it ends a loop, not a call into C."""
    for _ in range(20):
        if not thread.is_alive():
            return
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident or 0), ctypes.py_object(StoppedError)
        )
        thread.join(0.1)
