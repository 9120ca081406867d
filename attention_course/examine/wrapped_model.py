"""The model under examination, seen from outside: ids (B, T) go in, logits (B, T, V) come out."""

import copy
import inspect
import math
import os
import random
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attention_course.apart import words
from attention_course.examine.report import FindingVerdict
from attention_course.files import printable

TARGET_ARGUMENTS = (
    "targets",
    "target",
    "labels",
    "y",
)  # what models call the tokens that they compare logits with
Beside = tuple[Callable[..., Any] | None]
LARGE = 10_000_000  # parameters
LITTLE = 0.01  # times its matrices a layer adds nearly nothing
MUCH = 8.0  # times their matrices queries and keys have scores of a hundred
SURE = 64.0  # times its logits a model nearly always draws the likeliest token
NEVER = -1e4  # a logit at which a token never comes
BORROWS = (
    "forward() of a copy computes with the parameters of another object: of the model that was copied. Does "
    "it call a lambda that holds self? Write a method. Is it a TorchScript module? Pass what it was made of."
)
ROUNDING = 100  # times the rounding error of one operation: a deep model in float32 stays below a tenth of it

NOT_THEIRS = (  # how the files of PyTorch, this package and Python begin
    *(f"{Path(file).parents[1]}{os.sep}" for file in (torch.__file__, __file__)),
    sysconfig.get_path("stdlib"),
    "<frozen",
)

SHARED = [  # settings of all threads: a model that changes one must not spoil what runs after it
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (torch.get_num_threads, torch.set_num_threads),
    (sys.getrecursionlimit, sys.setrecursionlimit),
    (os.getcwd, os.chdir),
]
OWN = [  # settings of the thread of the questions, which begins without a default device
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (lambda: None, torch.set_default_device),
]
GENERATORS = [(random.getstate, random.setstate), (np.random.get_state, np.random.set_state)]


class CannotAskError(Exception):
    """A question does not apply to this model; the message says why."""

    verdict: FindingVerdict = "not asked"


class DoubtError(CannotAskError):
    """The model raised an error, as a right one may, too; the message tells it."""

    verdict = "doubtful"


class StoppedError(BaseException):
    """The examination was stopped. Not an `Exception`, so that a model does not catch it."""


class WrappedModel(nn.Module):
    """A model with one way to call it, whatever it takes and returns.

    Args:
        model: the model, or any callable.
        vocab_size: V.
        block_size: the context length.
        tick: called with a note after each answer of the model, and each step of a training.
        targets: the name of an argument that the model wants to be given besides ids; "" for none.

    Attributes:
        tokens: the ids that texts are drawn from.
        never: the ids that the model never predicts.
        whole: the block that the model claims, of which block_size tokens are read.
        remarks: what a reader has to know about these sizes.
        beside: the reference, a second implementation with the same parameters, if there is one.
        step: reads tokens with a cache: (model, ids, cache) to (logits, cache); the first cache is None.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        vocab_size: int,
        block_size: int,
        tick: Callable[[str], None] = lambda note: None,
        targets: str = "",
    ):
        super().__init__()
        self.model, self.vocab_size, self.block_size = model, vocab_size, block_size
        self.tick, self.targets = tick, targets
        self.tokens, self.never = (torch.arange(n, device="cpu") for n in (vocab_size, 0))
        self.whole, self.remarks = block_size, list[str]()
        self.beside: Beside = (None,)  # in a tuple, for its parameters are not those of the model
        self.step: Callable[..., tuple[Any, Any]] | None = None

    def forward(self, ids: Int[Tensor, "B T"]) -> Tensor:
        """Map ids (B, T) to what the model returns for logits, in whatever shape and dtype that is."""
        try:
            return self.logits_in(self.answer(ids))
        finally:
            self.tick("")

    def logits_in(self, output: Any) -> Tensor:
        """Find the logits in what the model returned, with NEVER for -inf of tokens that are left out."""
        logits = logits_of(output, self.vocab_size)
        return logits.index_fill(-1, self.never.to(logits.device), NEVER) if len(self.never) else logits

    def answer(self, ids: Int[Tensor, "B T"], **options: object) -> Any:
        """Return all that the model returns."""
        ids = ids.to(self.device).contiguous()  # nanoGPT calls targets.view
        if self.targets:
            options.setdefault(self.targets, ids)
        if "start_pos" in self.required:
            options.setdefault("start_pos", 0)
        try:
            return self.model(ids, **options)
        except BaseException as error:
            B, T = ids.shape
            error.add_note(
                f"Asked with ids of shape {B, T}: B = {B}, T = {T}; the block is {self.block_size}."
            )
            raise

    @property
    def device(self) -> torch.device:
        """The device of the parameters; the CPU if there are none."""
        return next((parameter.device for parameter in self.parameters()), torch.device("cpu"))

    @property
    def arguments(self) -> Mapping[str, inspect.Parameter]:
        """The arguments that the model takes; none are known of some callables written in C."""
        return arguments_of(self.model)

    @property
    def required(self) -> list[str]:
        """The names of the arguments that have no default."""
        several = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
        known = self.arguments.items()
        return [name for name, each in known if each.default is each.empty and each.kind not in several]

    @property
    def target_argument(self) -> str:
        """What it calls the tokens that it compares its logits with; "" if it takes none."""
        return next((name for name in TARGET_ARGUMENTS if name in [*self.arguments][1:]), "")

    @property
    def is_large(self) -> bool:
        """Whether each answer takes so long that fewer texts have to do."""
        return sum(parameter.numel() for parameter in self.parameters()) > LARGE

    def of(self, model: Callable[..., Any]) -> "WrappedModel":
        """Wrap another model, which is called in the same way."""
        made = WrappedModel(model, self.vocab_size, self.block_size, self.tick, self.targets)
        made.tokens, made.never, made.whole = self.tokens, self.never, self.whole
        made.beside, made.step = self.beside, self.step
        return made

    def leave_out_padding(self) -> list[int]:
        """Draw no more ids that the model or its config names as padding; return these."""
        named = set[object]()
        for module in self.modules():
            named.add(getattr(getattr(module, "config", None), "pad_token_id", None))
            if isinstance(module, nn.Embedding) and module.num_embeddings == self.vocab_size:
                named.add(module.padding_idx)
        padding = torch.isin(self.tokens, torch.tensor([pad for pad in named if isinstance(pad, int)]))
        if (~padding).sum() < 2:
            return []
        left_out, self.tokens = self.tokens[padding].tolist(), self.tokens[~padding]
        return left_out

    def leave_out_what_never_comes(self) -> None:
        """Draw no more tokens whose logit is the same low number, or -inf, everywhere."""
        rows = self.logits(self.draw(4, min(16, self.block_size))).flatten(0, -2)
        never = ((rows == rows[0]) & (rows <= NEVER)).all(dim=0)
        if not never.all():
            self.never = never.nonzero()[:, 0]
            self.tokens = self.tokens[~never[self.tokens]]

    def copied(self) -> "WrappedModel":
        """Wrap a copy of the model, whose embeddings have gradients in full.

        Raises:
            CannotAskError: there is no module, or it cannot be copied.
        """
        if not isinstance(self.model, nn.Module):
            raise CannotAskError(
                "What was given is a callable without parameters. Pass the nn.Module itself."
            )
        said = "The model cannot be copied, and must not be changed:"
        try:
            held = [each for module in self.model.modules() for _, each in held_by(module)]
            computed = [each for each in held if isinstance(each, Tensor) and not each.is_leaf]
            made = copy.deepcopy(self.model, {id(each): each.detach().clone() for each in computed})
        except Exception as error:
            raise CannotAskError(f"{said} {format_error(error)}") from error
        if parts_in_memory(made) & parts_in_memory(self.model):
            raise CannotAskError(f"{said} its __deepcopy__() returns something of the original.")
        if self.of(copy.deepcopy(made)).borrows(self):  # another copy, for this one is to have read nothing
            raise CannotAskError(BORROWS)
        wrapped = self.of(made)
        for embedding in wrapped.embeddings:
            embedding.sparse = False  # AdamW takes no sparse gradients
        return wrapped

    def borrows(self, other: "WrappedModel") -> bool:
        """Return whether it computes with parameters of another model, as a copied lambda that holds self."""
        theirs = [p for p in other.parameters() if p.requires_grad]
        with torch.enable_grad():
            try:
                total = self(self.draw(1, 1)).sum()
            except StoppedError:
                raise
            except BaseException:  # the questions will tell it
                return False
            if not theirs or not total.requires_grad:
                return False
            grads = gradients_by(total, theirs)
        return any(grad is not None for grad in grads)

    def with_noise(self, seed: int = 0) -> "WrappedModel":
        """Return a copy in float32 with noise of unit gain added to every parameter.

        What looks at what does not depend on the parameters, but in a new model much of it is too faint to
        measure, or multiplied by a matrix of zeros.
        """
        wrapped, generator = self.in_float32(), torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in wrapped.parameters():
                if parameter.is_floating_point():
                    size = parameter.numel() ** -0.25 if parameter.dim() > 1 else 0.1
                    parameter += size * torch.randn(parameter.shape, generator=generator).to(parameter)
        return wrapped

    def with_unit_embeddings(self) -> "WrappedModel":
        """Return a copy in float32 whose embeddings have a standard deviation of 1.

        What goes around attention then outweighs what it adds, at whatever size the model begins.
        """
        wrapped = self.in_float32()
        with torch.no_grad():
            for embedding in wrapped.embeddings:
                embedding.weight /= embedding.weight.std(correction=0).clamp(min=1e-9)
        return wrapped

    def with_faint_layers(self) -> "WrappedModel":
        """Return a copy in float32 with large embeddings, whose other matrices are LITTLE times themselves.

        Of a sum of the two only the embeddings are left; where there is no sum, a norm makes up for it.
        """
        wrapped = self.with_unit_embeddings()
        with torch.no_grad():
            for embedding in wrapped.embeddings:
                embedding.weight /= LITTLE
        return wrapped.multiply_matrices(LITTLE)

    def with_large_scores(self) -> "WrappedModel":
        """Return a copy in float32, with noise, whose matrices are large: queries times keys, too."""
        return self.with_noise().multiply_matrices(MUCH)

    def multiply_matrices(self, factor: float) -> "WrappedModel":
        """Multiply its matrices, but for embeddings; return it."""
        tables = {id(embedding.weight) for embedding in self.embeddings}
        with torch.no_grad():
            for parameter in self.parameters():
                if parameter.dim() > 1 and parameter.is_floating_point() and id(parameter) not in tables:
                    parameter *= factor
        return self

    def surer(self) -> "WrappedModel":
        """Return a copy whose last layer, if it is an nn.Linear, answers with SURE times as much.

        Its matrix stays as it is, for it may be that of the embeddings, too.
        """

        def scale(layer: nn.Module, inputs: Any, output: Tensor) -> Tensor:
            return SURE * output

        made = self.copied()
        for module in made.modules():
            if isinstance(module, nn.Linear) and module.out_features == made.vocab_size:
                module.register_forward_hook(scale)
        return made

    @property
    def embeddings(self) -> list[nn.Embedding]:
        """The embeddings."""
        return [module for module in self.modules() if isinstance(module, nn.Embedding)]

    def in_float32(self) -> "WrappedModel":
        """Return a copy in eval mode, converted to float32 if its parameters are in a shorter dtype."""
        wrapped = self.copied()
        if any(p.is_floating_point() and p.element_size() < 4 for p in wrapped.parameters()):
            wrapped.float()
        return wrapped.eval()

    def logits(self, ids: Int[Tensor, "B T"], seed: int = 0) -> Tensor:
        """Return logits as `collected`; dropout, and whatever else draws, draws from `seed`."""
        for seeded in (torch.manual_seed, random.seed, np.random.seed):
            seeded(seed)
        with torch.no_grad():
            return collected(self(ids.clone()))

    def logits_in_training(self, ids: Int[Tensor, "B T"], dropout: bool = False, seed: int = 0) -> Tensor:
        """Return logits in train mode, of a copy: a call may change buffers, as those of spectral_norm.

        Without dropout what experts draw doesn't depend on how many tokens they are given.
        """
        made = self.copied()
        return (made.train() if dropout else made.without_dropout()).logits(ids, seed)

    def without_dropout(self) -> "WrappedModel":
        """Put it into train mode, and set every nn.Dropout to 0."""
        for module in self.train().modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        return self

    def draws_in_training(self, ids: Int[Tensor, "B T"]) -> bool:
        """Return whether it draws in train mode without nn.Dropout, as F.dropout does.

        Then experts that are given other tokens draw other numbers for the rest, too.
        """
        one, other = (self.logits_in_training(ids, seed=seed) for seed in (0, 1))
        return max_abs_diff(one, other) > self.tolerance(one)

    def tolerance(self, logits: Tensor) -> float:
        """Return how far logits (..., V) may differ by rounding: see `rounding`."""
        return self.rounding(logits[..., self.tokens])

    def rounding(self, numbers: Tensor) -> float:
        """Return how far numbers (..., C) may differ by rounding: in proportion to the largest.

        A channel that is the same everywhere, as a logit of -1e9 that only pads the vocabulary, is left out.
        All operations round by `eps`; the last one may round to a shorter dtype, as autocast does, and matrix
        products if the precision for them is not the highest.
        """
        rows = numbers.flatten(0, -2)
        moving = rows[:, (rows != rows[0]).any(dim=0)]
        numbers = moving if moving.numel() else rows  # of one text nothing is known
        eps, fast = ROUNDING * self.eps, torch.get_float32_matmul_precision() != "highest"
        for dtype in (torch.float16, torch.bfloat16):
            if fast or torch.equal(numbers.to(dtype).to(numbers), numbers):
                eps = max(eps, torch.finfo(dtype).eps)
        return eps * max(float(numbers.abs().max()), 1e-30)

    @property
    def eps(self) -> float:
        """The rounding error of one operation, in the shortest dtype that takes part.

        A model in float64 may round to float32 in between, as the norms of Llama do.
        """
        dtypes = {torch.float32, *(p.dtype for p in self.parameters() if p.is_floating_point())}
        return max(torch.finfo(dtype).eps for dtype in dtypes)

    def draw(self, B: int, T: int, seed: int = 0) -> Int[Tensor, "B T"]:
        """Draw random ids."""
        generator = torch.Generator().manual_seed(seed)
        return self.tokens[torch.randint(len(self.tokens), (B, T), generator=generator)]

    def others(self, ids: Int[Tensor, "..."], by: int = 1) -> Int[Tensor, "..."]:
        """Return ids that differ from `ids` everywhere."""
        many, places = len(self.tokens), torch.searchsorted(self.tokens, ids.contiguous())
        return self.tokens[(places + 1 + (by - 1) % max(1, many - 1)) % many]

    def influence(self, T: int) -> Tensor:
        """Return which outputs (rows) change with which tokens (columns): the leak probe, for three texts."""
        places, moved = torch.arange(T), torch.zeros(T, T, dtype=torch.bool)
        for seed in (1, 2, 3):
            ids = self.draw(1, T, seed)
            texts = ids.repeat(T + 1, 1)
            texts[places + 1, places] = self.others(ids[0], seed)
            logits = self.logits(texts)
            moved |= self.tolerance(logits) < (logits[1:] - logits[0]).abs().amax(dim=-1).T
        return moved

    def effects(self, ids: Int[Tensor, "B T"], by: int = 1) -> Float[Tensor, "B T T"]:
        """Return how far each output (rows) moves when each token (columns) is another; see `others`."""
        logits, moves = self.logits(ids), []
        for place in range(ids.shape[1]):
            changed = ids.clone()
            changed[:, place] = self.others(ids[:, place], by)
            moves.append((self.logits(changed) - logits).norm(dim=-1))
        return torch.stack(moves, dim=-1)

    def effects_on_last(self, T: int) -> Tensor:
        """Return how much each of T tokens changes the last logits of a few texts, shape (texts, T)."""
        ids = self.draw(2 if self.is_large else 12, T, seed=7)
        return (self.effects(ids, by=1) + self.effects(ids, by=2))[:, -1]


def parts_in_memory(model: nn.Module) -> set[object]:
    """Return the modules of a model, and the addresses of its parameters and buffers."""
    tensors = (*model.parameters(), *model.buffers())
    return {*model.modules(), *(x.untyped_storage().data_ptr() for x in tensors)} - {0}


def gradients_by(total: Tensor, parameters: Sequence[Tensor]) -> list[Tensor | None]:
    """Return the gradients, in full where an embedding is sparse, and leave the grad of the parameters."""
    before = [parameter.grad for parameter in parameters]
    try:
        grads = torch.autograd.grad(total, parameters, allow_unused=True, retain_graph=True)
    except RuntimeError:  # a checkpoint with use_reentrant=True takes backward() alone
        for parameter in parameters:
            parameter.grad = None
        total.backward()
        grads = [parameter.grad for parameter in parameters]
    finally:
        for parameter, grad in zip(parameters, before, strict=True):
            parameter.grad = grad
    return [None if grad is None else grad.to_dense() for grad in grads]


def collected(logits: Tensor) -> Tensor:
    """Return logits on the CPU, at least in float32, without gradients."""
    return logits.detach().cpu().to(torch.promote_types(logits.dtype, torch.float32))


def max_abs_diff(one: Tensor, other: Tensor) -> float:
    """Return the largest difference; infinite if shapes differ."""
    return float((one - other).abs().max()) if one.shape == other.shape else math.inf


def arguments_of(model: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return the arguments of a model; of what passes all on to the one module in it, its arguments."""
    called = model.forward if isinstance(model, nn.Module) else model
    try:
        found = inspect.signature(called).parameters
    except (TypeError, ValueError):
        return {}
    inner = list(model.children()) if isinstance(model, nn.Module) else []
    passes_on = all(each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in found.values())
    return arguments_of(inner[0]) if passes_on and len(inner) == 1 else found


def parts_of(output: Any) -> dict[Any, Any]:
    """Return what a model returned, part by part: of a tensor, a tuple, a dict, or an object."""
    if isinstance(output, Mapping):
        return dict(output)
    if isinstance(output, Tensor | tuple | list):
        return dict(enumerate([output] if isinstance(output, Tensor) else output))
    slots = [field.name for field in fields(output)] if is_dataclass(output) else []
    names = [*getattr(output, "__dict__", {}), *slots, "logits"]
    return {name: getattr(output, name, None) for name in names}


def logits_of(output: Any, vocab_size: int) -> Tensor:
    """Find the logits in what a model returned.

    Raises:
        TypeError: there is no tensor in it.
    """
    parts = parts_of(output)
    if isinstance(output, Tensor) or isinstance(parts.get("logits"), Tensor):
        return output if isinstance(output, Tensor) else parts["logits"]
    tensors = [each for each in parts.values() if isinstance(each, Tensor) and each.dim() > 1]
    fitting = [each for each in tensors if each.shape[-1] == vocab_size]
    for found in sorted(fitting or tensors, key=lambda each: each.dim() != 3):  # attention's weights have 4
        return found
    raise TypeError(f"{type(output).__name__} without logits in it was returned")


def held_by(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield what a module holds, itself or in a list, a tuple or a dict, but for what PyTorch keeps."""
    for name, value in vars(module).items():
        if not name.startswith("_"):
            held = value.values() if isinstance(value, dict) else value
            yield from (
                (name, each) for each in (held if isinstance(value, dict | list | tuple) else [value])
            )


def their_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the calls that led to an error, those in the model's own code."""
    frames = traceback.extract_tb(error.__traceback__)
    return [each for each in frames if not each.filename.startswith(NOT_THEIRS)]


def format_error(error: BaseException) -> str:
    """Tell an error in one line: its words, its notes, and the last line of the model's own code."""
    text = " ".join(words(error).split())
    said = [f"{type(error).__name__}: {text[:300]}".rstrip(": .") + "."]
    for frame in their_frames(error)[-1:]:
        file = "the cell" if "ipykernel" in frame.filename else Path(frame.filename).name
        said.append(f"At {file}, line {frame.lineno}, in {frame.name}: {frame.line}".rstrip(": ") + ".")
    return printable(" ".join([*said, *getattr(error, "__notes__", [])]))


@contextmanager
def kept(state: list[tuple[Callable[[], Any], Callable[[Any], Any]]]) -> Iterator[None]:
    """Leave what these functions get and set as it was."""
    before = [get() for get, _ in state]
    try:
        yield
    finally:
        for (_, put), value in zip(state, before, strict=True):
            put(value)
