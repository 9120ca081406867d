"""The loss of a batch, and of a whole text."""

from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from tqdm.auto import tqdm

from attention_course.checks import check_sizes
from attention_course.gpt import autocast, block_size_of, evaluating
from attention_course.text import check_ids


def mean_loss(logits: Float[Tensor, "B T V"], targets: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
    """Return the mean cross-entropy in nats per token."""
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def check_length(kind: str, ids: Int[Tensor, " N"], block_size: int) -> None:
    """Raise ValueError unless `ids` holds a block of block_size tokens and its targets."""
    check_ids(ids, f"The {kind} text")
    if len(ids) <= block_size:
        raise ValueError(
            f"The {kind} text has {len(ids)} tokens, too few for block_size = {block_size}: at least "
            f"{block_size + 1} are needed. Use a longer text or a model with a smaller block_size."
        )


class AbandonedError(Exception):
    """An evaluation was stopped before its end."""


def evaluate(
    model: nn.Module,
    ids: Int[Tensor, " N"],
    precision: str = "auto",
    blocks: int | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> float:
    """Return the mean loss on `ids`, cut into blocks of block_size tokens, in nats per token.

    An incomplete last block is left out.

    Args:
        model: see `Trainer`.
        ids: shape (N,).
        precision: see `Recipe`.
        blocks: maximum number of blocks, spread evenly over the text; all if left out.
        stop: called between batches of blocks; returning True abandons the evaluation.

    Raises:
        ValueError: `ids` is shorter than one block, `blocks` is below 1, or the precision is unknown.
        AbandonedError: `stop` returned True.
    """
    block_size, device = block_size_of(model), next(model.parameters()).device
    check_length("validation", ids, block_size)
    starts = torch.arange(0, len(ids) - block_size, block_size)
    if blocks is not None:
        check_sizes("evaluate", 1, blocks=blocks)
    if blocks is not None and blocks < len(starts):
        starts = starts[torch.arange(blocks) * len(starts) // blocks]
    total, batches = 0.0, starts.split(64)
    quiet = len(batches) < 10 or (dist.is_initialized() and dist.get_rank() > 0)
    with evaluating(model), autocast(precision, device):
        for batch in tqdm(batches, "evaluating", leave=False, delay=5, disable=quiet):
            if total and stop():
                raise AbandonedError
            x = ids[batch[:, None] + torch.arange(block_size + 1)].to(device)
            total += mean_loss(model(x[:, :-1]), x[:, 1:]).item() * len(batch)
    return total / len(starts)
