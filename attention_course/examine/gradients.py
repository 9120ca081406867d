"""What training gets of a model: a gradient for every parameter, and the right one."""

import math
from collections.abc import Collection
from contextlib import suppress

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attention_course.examine.question import (
    MAX_BACKWARD_TOKENS,
    SMALL_VOCAB,
    ModelVariants,
    asks,
    finding_if,
)
from attention_course.examine.report import Finding, FindingVerdict
from attention_course.examine.wrapped_model import (
    CannotAskError,
    WrappedModel,
    gradients_by,
    held_by,
    max_abs_diff,
    parts_of,
)
from attention_course.training.loss import mean_loss

DRAWS = 8  # of parameters and texts, after which what got no gradient is said to get none
STEPS = [10.0**-power for power in range(2, 7)]  # too long ones bend, too short ones drown in rounding
FEW = 8  # of so many rows of a table a right model reads more than one
LEAST_GRADIENT = 1e-5  # of the largest gradient: with noise, right models have 0.004 and more in each matrix
SLACK = 0.02  # of a slope: right models in float32 stay below 0.001, ReLUs switch
Gradient = tuple[str, nn.Parameter, Tensor | None]


class NoGradientError(CannotAskError):
    """The logits do not depend on the parameters, as backward() sees it."""


@asks("Every parameter gets a gradient")
def gradients(variants: ModelVariants) -> Finding:
    """Compute the gradient of a loss, and look for parameters without one."""
    noisy = variants.with_noise
    if shared := repeated(noisy):
        said = f"{shared} holds one layer several times: these have the same parameters."
        return finding_if(False, said, "A layer for each place.", "shared", otherwise="doubtful")
    if hidden := unregistered(noisy):
        return finding_if(False, f"What is in {hidden} is not in model.parameters().", cause="list")
    try:
        grads = gradients_of(noisy)
    except NoGradientError as error:
        with torch.enable_grad():
            if variants.is_copy and loss_of(noisy.copied().train()).requires_grad:
                raise CannotAskError("Its logits have a gradient in train mode alone.") from None
        return finding_if(False, str(error), cause="cut")
    odd = [name for name, _, grad in grads if grad is not None and not bool(grad.isfinite().all())]
    if odd:
        return finding_if(False, f"NaN or inf in {', '.join(odd[:3])}.", "Finite gradients.", "nan")
    first = silent = missing_gradients(noisy, grads)
    tables = tables_of_places(noisy, grads, silent) if silent else dict[str, FindingVerdict]()
    for seed in range(1, DRAWS + 1):  # of experts each draw chooses others
        if not silent.keys() - tables.keys():
            break
        more = gradients_of(variants.with_new_noise(seed), seed)
        pairs = zip(grads, more, strict=True)
        grads = [(name, p, either(one, other)) for (name, p, one), (_, _, other) in pairs]
        silent = missing_gradients(noisy, grads)
    doubted = [silent[name] for name in silent if tables.get(name) == "doubtful"]
    silent = {name: words for name, words in silent.items() if name not in tables}
    beside = set[str]()
    if silent and variants.is_copy:
        with suppress(Exception):  # in train mode it may refuse
            training = noisy.copied().train()
            if not silent.keys() & missing_gradients(training, gradients_of(training)).keys():
                said = (
                    f"{len(silent)} of {len(grads)} get one in train mode only: {', '.join([*silent][:3])}."
                )
                return finding_if(False, said, cause="training", otherwise="doubtful")
    if silent:
        ids = noisy.draw(2, variants.short)
        targets = {name: ids for name in [noisy.target_argument] if name}
        with suppress(Exception):  # of what takes something else by these names, nothing is known
            beside = silent.keys() & beside_the_logits(noisy, ids, **targets)
    silent = {name: words for name, words in silent.items() if name not in beside}
    if beside and not silent:
        said = f"{len(beside)} of {len(grads)} get none from the logits, but from what else is returned: "
        return finding_if(
            False, f"{said}{', '.join(sorted(beside)[:3])}.", cause="heads", otherwise="doubtful"
        )
    chosen = [lists_of(name) for name in first.keys() - silent.keys() - tables.keys()]
    waiting = all(any(lists_of(name) & lists for lists in chosen) for name in silent)
    parts = {n for n, p, g in grads if p.dim() == 3 and 1 not in p.shape[:2] and g is not None and g.any()}
    stacked = bool(silent) and not waiting and silent.keys() <= parts
    if doubted and not silent:
        said = f"{len(doubted)} of {len(grads)} get none: {'; '.join(doubted[:3])}."
        return finding_if(False, said, cause="places", otherwise="doubtful")
    frozen = [n for n, p in noisy.named_parameters() if p.dim() > 1 and not p.requires_grad]
    if frozen and not silent:
        names = ", ".join(name.removeprefix("model.") for name in frozen[:3])
        said = f"All {len(grads)} that are trained do, but these are not trained: {names}."
        return finding_if(False, said, cause="frozen", otherwise="doubtful")
    if not silent and (faint := fainter_than_rounding(grads)):
        said = f"Of {', '.join(faint[:3])} it is less than {LEAST_GRADIENT:g} times the largest."
        return finding_if(False, said, cause="faint", otherwise="doubtful")
    if not silent and (alike := in_one_place(variants.wrapped)):
        said = f"All {len(grads)} do, but {alike} are two parameters in the same memory."
        return finding_if(False, said, "One parameter.", "memory", otherwise="doubtful")
    if not silent and not head_is_trained(noisy):
        said = f"All {len(grads)} do, but no matrix gets one for the logits of tokens that are not read."
        return finding_if(False, said, "One for each token in the last layer.", "head", otherwise="doubtful")
    return finding_if(
        not silent,
        f"{len(silent)} of {len(grads)} get none: {'; '.join(list(silent.values())[:3])}."
        if silent
        else f"All {len(grads)} do.",
        cause="expert" if waiting else "stack" if stacked else "",
        otherwise="doubtful" if waiting or stacked else "wrong",
    )


def beside_the_logits(wrapped: WrappedModel, ids: Tensor, **targets: Tensor) -> set[str]:
    """Return the parameters that get no gradient from the logits, but from what else is returned.

    What has four dimensions does not count, such as keys and values for a cache: these serve logits.
    """
    named = {n.removeprefix("model."): p for n, p in wrapped.named_parameters() if p.requires_grad}
    reached = []
    with torch.enable_grad():
        for parts in ([wrapped(ids)], parts_of(wrapped.answer(ids, **targets)).values()):
            used = [p for p in parts if isinstance(p, Tensor) and p.requires_grad and p.dim() < 4]
            total = torch.stack([each.float().square().sum() for each in used]).sum()
            grads = gradients_by(total, list(named.values()))
            reached.append(
                {n for n, grad in zip(named, grads, strict=True) if grad is not None and grad.any()}
            )
    return reached[1] - reached[0]


def head_is_trained(wrapped: WrappedModel) -> bool:
    """Return whether what is as long as the vocabulary gets a gradient for tokens that are not read.

    If it gets none, it is asked whether its numbers for these tokens have a part in the logits at all: with
    AdaptiveLogSoftmaxWithLoss they have none.
    """
    ids, V = wrapped.tokens[:1].repeat(1, min(2, wrapped.block_size)), wrapped.vocab_size
    trained = [p for p in wrapped.parameters() if p.requires_grad]
    with torch.enable_grad():
        grads = gradients_by(mean_loss(wrapped(ids), ids.to(wrapped.device)), trained)
    unread = wrapped.tokens[1:].to(wrapped.device)
    long = [grad for grad in grads if grad is not None and V in grad.shape]
    rows = [grad.index_select(list(grad.shape).index(V), unread) for grad in long]
    if not rows or any(bool(each.any()) for each in rows):
        return True
    with suppress(CannotAskError, RuntimeError), torch.no_grad():
        moved = wrapped.copied()
        for each in (*moved.parameters(), *moved.buffers()):
            if V in each.shape and each.is_floating_point():
                dim = list(each.shape).index(V)
                each.index_copy_(dim, unread, -each.index_select(dim, unread))
        logits = wrapped.logits(ids)
        return max_abs_diff(moved.logits(ids), logits) <= wrapped.tolerance(logits)
    return False


def missing_gradients(wrapped: WrappedModel, grads: list[Gradient]) -> dict[str, str]:
    """Return the parameters, by name, of which a part gets no gradient, and what that is."""
    said = {name: missing_gradient(wrapped, name, p, grad) for name, p, grad in grads}
    return {name: words for name, words in said.items() if words}


def either(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    """Return what is zero, or None, where both gradients are."""
    return other if one is None else one if other is None else one.abs() + other.abs()


def fainter_than_rounding(grads: list[Gradient]) -> list[str]:
    """Return the matrices of which the gradient is so small that it may be the rounding of zero."""
    sizes = {n: float(g.abs().max()) for n, p, g in grads if g is not None and p.dim() > 1 and not is_bias(n)}
    return [name for name, size in sizes.items() if size < LEAST_GRADIENT * max(sizes.values())]


def lists_of(name: str) -> set[str]:
    """Return the places of a parameter in lists of modules: of "h.2.mlp.1.bias", "h.?.mlp.1.bias", ..."""
    parts = name.split(".")
    places = [place for place, part in enumerate(parts) if part.isdigit()]
    return {".".join([*parts[:place], "?", *parts[place + 1 :]]) for place in places}


def repeated(model: nn.Module) -> str:
    """Return the name of a list of modules in which one stands twice; or ""."""
    lists = (
        (name, [each for each in module if any(True for _ in each.parameters())])
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList | nn.Sequential)
    )
    return next((name.removeprefix("model.") for name, held in lists if len(set(held)) < len(held)), "")


def unregistered(wrapped: WrappedModel, trained: bool = True) -> str:
    """Return the name of a tensor, or a list or dict of modules, that parameters() does not find; or "".

    If it is about what is `trained`, modules without a parameter to train do not count.
    """
    modules = set(wrapped.modules())
    known = {*map(id, modules), *map(id, wrapped.parameters())}
    for module in modules - {wrapped}:
        for name, held in held_by(module):
            leaf = isinstance(held, Tensor) and held.is_leaf and held.requires_grad
            listed = (
                isinstance(held, nn.Module)
                and held is not vars(module)[name]
                and (not trained or any(p.requires_grad for p in held.parameters()))
            )
            if (leaf or listed) and id(held) not in known:
                return f"{type(module).__name__}.{name}"
    return ""


def in_one_place(model: nn.Module) -> str:
    """Return the names of two parameters whose numbers begin at one address; or ""."""
    names = dict[int, str]()
    for name, parameter in model.named_parameters():
        at, name = parameter.data_ptr(), name.removeprefix("model.")
        if parameter.numel() and names.setdefault(at, name) != name:
            return f"{names[at]} and {name}"
    return ""


def missing_gradient(wrapped: WrappedModel, name: str, parameter: Tensor, grad: Tensor | None) -> str:
    """Say what of a parameter gets no gradient: all of it, or rows or columns side by side; "" if all does.

    The bias of keys gets none in theory, and rows of tokens that do not occur get none.
    """
    shape, used = tuple(parameter.shape), min(wrapped.block_size, MAX_BACKWARD_TOKENS)
    table = any(m.weight is parameter for m in wrapped.modules() if isinstance(m, nn.Embedding))
    if grad is not None and len(shape) == 3 and len(grad) == 1 and bool(grad.any()):  # as of positions
        grad, shape, table = grad[0], shape[1:], True
    if grad is None or (len(shape) > 1 and not bool(grad.any())):
        return f"{name} {shape}"
    if len(shape) == 3 and not is_bias(name):  # heads, or experts
        live = int(grad.flatten(1).any(dim=1).sum())
        if live in (len(grad), used - 1, used):  # the latter of a table of places, for longer texts
            return ""
        return f"{len(grad) - live} of {len(grad)} matrices in {name} {shape}"
    if len(shape) != 2 or wrapped.vocab_size in shape or wrapped.vocab_size < SMALL_VOCAB:
        return ""
    runs = [longest_run((grad == 0).all(dim=1)), longest_run((grad == 0).all(dim=0))]
    if table:
        live = int(grad.any(dim=1).sum())
        few = FEW * live <= min(shape[0], used)  # a table may have rows for longer texts
        return f"{runs[0]} rows of {name} {shape}" if runs[0] and (few or shape[0] == used) else ""
    for past in (wrapped.block_size - 1, wrapped.whole - 1):  # in a table of distances, those to later tokens
        if any(run >= past and size == 2 * past + 1 for run, size in zip(runs, shape, strict=True)):
            return ""
    padding = shape[0] - wrapped.vocab_size  # rows that round the vocabulary up, and whose logits are cut off
    if padding > 0 and runs[0] == padding and not bool(grad[-padding:].any()):
        return ""
    dead = [run for run, size in zip(runs, shape, strict=True) if run > max(5, 0.03 * size)]
    return f"{max(dead)} rows of {name} {shape}" if dead else ""


def tables_of_places(
    wrapped: WrappedModel, grads: list[Gradient], names: Collection[str]
) -> dict[str, FindingVerdict]:
    """Return which of these parameters are tables of positions or distances, "right" or "doubtful"."""
    found, tables = dict[str, FindingVerdict](), {id(each.weight) for each in wrapped.embeddings}
    with suppress(Exception):  # of what does not read one or two tokens, nothing is known
        one, two = gradients_of(wrapped, T=1), gradients_of(wrapped, T=2)
        for (name, p, grad), (*_, of_one), (*_, of_two) in zip(grads, one, two, strict=True):
            if name in names and grad is not None and of_two is not None:
                part = id(p) in tables and len(p) != wrapped.block_size and bool(grad.any())
                found[name] = "doubtful" if part else verdict_of_table(wrapped, grad, of_one, of_two)
    return {name: verdict for name, verdict in found.items() if verdict != "wrong"}


def verdict_of_table(wrapped: WrappedModel, grad: Tensor, one: Tensor | None, two: Tensor) -> FindingVerdict:
    """Return the verdict on a matrix of which parts get no gradient, given those of one and two tokens.

    Two tokens reach three rows of a table of positions or distances at most, and nearly all of any other
    matrix. "right": all that is read has its row, in a table for the block that the model claims.
    "doubtful": a table may be longer, and distances may share rows. Positions may not: one token alone
    reaches their table, which is as wide as that of tokens.
    """
    used, verdict = min(wrapped.block_size, MAX_BACKWARD_TOKENS), "right"
    widths = {size for p in wrapped.parameters() if wrapped.vocab_size in p.shape for size in p.shape}
    shape = grad.flatten(0, -2).shape
    for dim, size in enumerate(shape):
        rows, of_two = (each.flatten(0, -2).any(dim=1 - dim) for each in (grad, two))
        live, few = int(rows.sum()), int(of_two.sum())
        if live == size:
            continue
        if not 0 < few < min(4, live):
            return "wrong"
        all_read = size > used and live + 5 >= used
        if not all_read and one is not None and bool(one.any()) and shape[1 - dim] in widths:
            return "wrong"
        if not all_read or not (rows[:used].all() or size in (wrapped.whole, wrapped.block_size)):
            verdict = "doubtful"
    return verdict


def is_bias(name: str) -> bool:
    """Return whether a parameter is called a bias: that of keys gets no gradient in theory."""
    last = name.rpartition(".")[2]
    return "bias" in last or last.startswith("b_")


def longest_run(zero: Tensor) -> int:
    """Return how many zeros stand side by side: a head that is lost, not a ReLU that is off by chance."""
    return max((len(run) for run in "".join("01"[bool(z)] for z in zero).split("0")), default=0)


def gradients_of(wrapped: WrappedModel, seed: int = 0, T: int = MAX_BACKWARD_TOKENS) -> list[Gradient]:
    """Return the parameters that are trained, with their names, and their gradients on random ids."""
    trained = [(n.removeprefix("model."), p) for n, p in wrapped.named_parameters() if p.requires_grad]
    if not trained:
        raise CannotAskError("No parameter requires a gradient.")
    with torch.enable_grad():
        loss = loss_of(wrapped, seed, T)
        if not loss.requires_grad:
            raise NoGradientError("The logits have no gradient, so no parameter gets one.")
        grads = gradients_by(loss, [p for _, p in trained])
    return [(name, p, grad) for (name, p), grad in zip(trained, grads, strict=True)]


def loss_of(wrapped: WrappedModel, seed: int = 0, T: int = MAX_BACKWARD_TOKENS) -> Tensor:
    """Return the loss on random ids, T at most in a text, computed from the logits in float64."""
    T = min(wrapped.block_size, T)
    ids = wrapped.draw(max(2, 128 // T), T + 1, seed=11 + seed)
    return F.cross_entropy(wrapped(ids[:, :-1]).flatten(0, 1).cpu().double(), ids[:, 1:].flatten())


@asks("The gradient is the slope of the loss")
def slope(variants: ModelVariants) -> Finding:
    """Move the parameters in random directions, and compare the change of the loss with the gradient.

    As `torch.autograd.gradcheck` does, but in three directions and not along each number.
    """
    if variants.given.is_large or not variants.is_copy:
        raise CannotAskError("It takes a copy to move, and at most 10 million parameters.")
    noisy = variants.with_noise_in_float64
    grads = [each for each in gradients_of(noisy) if each[1].is_floating_point()]
    scale = math.hypot(*(grad.norm() * size_of(p) for _, p, grad in grads if grad is not None))
    off = [slope_is_off(noisy, grads, scale, seed) for seed in range(3)]
    if any(off):
        alone = (each[0] for each in reversed(grads) if slope_is_off(noisy, [each], scale / len(grads)))
        said = f"The two differ. Of all parameters for which they do, the last is {next(alone, 'unknown')}."
        return finding_if(False, said, otherwise="doubtful")
    if None in off:
        raise CannotAskError("Its logits are too rough to measure a slope.")
    return finding_if(True, "It is, in three random directions.")


def slope_is_off(wrapped: WrappedModel, moved: list[Gradient], scale: float, seed: int = 0) -> bool | None:
    """Return whether a slope, measured where these parameters move, differs from that of their gradients.

    None: the steps of all lengths differ from it, and from each other.
    """
    generator = torch.Generator().manual_seed(seed)
    moves = [size_of(p) * torch.randn(p.shape, generator=generator).to(p) for _, p, _ in moved]
    pairs = [(grad, move) for (*_, grad), move in zip(moved, moves, strict=True) if grad is not None]
    said = sum(float((grad * move).sum()) for grad, move in pairs)

    def loss_at(step: float) -> Tensor:
        before = [p.clone() for _, p, _ in moved]
        with torch.no_grad():
            for (_, parameter, _), move in zip(moved, moves, strict=True):
                parameter += step * move
            try:
                return loss_of(wrapped)
            finally:
                for (_, parameter, _), kept in zip(moved, before, strict=True):
                    parameter.copy_(kept)

    measured = torch.stack([(loss_at(step) - loss_at(-step)) / (2 * step) for step in STEPS])
    if bool(((measured - said).abs() < SLACK * scale).any()):
        return False
    return True if bool((measured.diff().abs() < SLACK * scale).any()) else None


def size_of(parameter: Tensor) -> float:
    """Return the root mean square of its numbers."""
    return float(parameter.detach().square().mean().sqrt())


@asks("Gradients are of similar size")
def gradient_sizes(variants: ModelVariants) -> Finding:
    """Compare the gradients of matrices of one shape."""
    grads, by_shape = gradients_of(variants.new), dict[tuple, list[float]]()
    if not any(bool(grad.any()) for *_, grad in grads if grad is not None):
        return finding_if(False, "All are zero.", "A gradient to begin with.", "zero")
    for name, parameter, grad in grads:
        if grad is not None and parameter.dim() > 1 and not is_bias(name) and bool(grad.any()):
            size = float(grad.abs().double().square().mean().sqrt())
            by_shape.setdefault(tuple(parameter.shape), []).append(size)
    ratio = max((max(sizes) / min(sizes) for sizes in by_shape.values()), default=1.0)
    said = f"The largest gradient is {ratio:.2g} times the smallest, of matrices of one shape."
    return finding_if(ratio < 1e4, said, otherwise="doubtful")
