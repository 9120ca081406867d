"""Head scores, head ablation, and models whose attention is computed by a function of yours.

A head is named by its layer and its place in that layer, (layer, head), both counted from 0.
"""

from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from itertools import product
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attention_course.attention import causal_mask, record, record_weights
from attention_course.checks import (
    check_functions,
    check_ids,
    check_targets,
    check_type,
    describe,
    is_float_tensor,
)
from attention_course.gpt import GPT, evaluating
from attention_course.llama import Llama
from attention_course.names import shown


def read_weights(model: GPT, ids: Int[Tensor, " T"]) -> Float[Tensor, "L H T T"]:
    """Return the attention weights (n_layer, n_head, T, T) of a forward pass over ids (T,)."""
    check_type(model, GPT, "read_weights", "model")
    check_ids(ids, "read_weights")
    with evaluating(model), record_weights() as layers:
        model(ids[None])
    return torch.cat(layers)


def previous_token(ids: Int[Tensor, " T"]) -> Bool[Tensor, "T T"]:
    """Return a table that is True, in each row, for the token before the query."""
    check_ids(ids, "previous_token")
    t = torch.arange(len(ids))
    return t[:, None] == t + 1


def first_token(ids: Int[Tensor, " T"]) -> Bool[Tensor, "T T"]:
    """Return a table that is True, in each row but the first, for the first token of the text."""
    check_ids(ids, "first_token")
    t = torch.arange(len(ids))
    return (t == 0) & (t[:, None] > 0)


def induction_targets(ids: Int[Tensor, " T"]) -> Bool[Tensor, "T T"]:
    """Return a table that is True for each token that followed an earlier occurrence of the query's token."""
    check_ids(ids, "induction_targets")
    same = ids[:, None] == ids
    return torch.cat([torch.zeros_like(same[:, :1]), same[:, :-1]], dim=1).tril()


HEAD_TARGETS = {"previous token": previous_token, "induction": induction_targets, "first token": first_token}


def head_scores(weights: Float[Tensor, "*L_H T T"], targets: Bool[Tensor, "T T"]) -> Float[Tensor, "*L_H"]:
    """Return the mean weight on the targets, over the queries that have any; NaN if none has.

    On random tokens that are written twice, the score of `induction_targets` is the prefix-matching score of
    Olsson et al. (2022, section "Definition of induction heads").
    """
    check_targets(weights, targets, "head_scores")
    on_targets = (weights * targets).sum(dim=-1)  # (..., T)
    return on_targets[..., targets.any(dim=-1)].mean(dim=-1)


@contextmanager
def ablate(model: GPT, heads: Sequence[tuple[int, int]] | Set[tuple[int, int]]) -> Iterator[None]:
    """Replace the output of heads by zeros, before the output projection.

    Args:
        model: a GPT or a Llama.
        heads: pairs (layer, head).
    """
    check_type(model, GPT, "ablate", "model")
    check_type(heads, (Sequence, Set), "ablate", "heads")
    n_layer, n_head = model.config.n_layer, model.config.n_head
    known = list(product(range(n_layer), range(n_head)))
    for pair in heads:
        if not isinstance(pair, tuple) or pair not in known or any(isinstance(at, float) for at in pair):
            raise ValueError(
                f"ablate: there is no head {shown(pair)}, expected pairs (layer, head), with a layer from 0 "
                f"to {n_layer - 1} and a head from 0 to {n_head - 1}."
            )

    def without(dead):
        def hook(module, inputs):
            outputs = inputs[0].unflatten(-1, (n_head, -1)).clone()  # (B, T, n_head, head_size)
            outputs[:, :, dead] = 0
            return outputs.flatten(-2)

        return hook

    dead = {layer: [head for at, head in heads if at == layer] for layer, _ in heads}
    projections = [block.get_submodule("attn.c_proj") for block in model.transformer.h]
    hooks = [projections[layer].register_forward_pre_hook(without(some)) for layer, some in dead.items()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def attention_by(model: Llama, own: Callable) -> Iterator[None]:
    """Let a function of your own compute attention, in every layer of a model.

    Args:
        model: a Llama.
        own: called as own(q, k, v, mask). q, k and v have the shape (B, n_head, T, head_size): heads that
            share keys and values each get a copy. The mask, (T_q, T_k), is True where a query may look. It
            returns the output, in the shape of q, or a tuple of output and weights as `attention`
            does; `record_weights` then records these weights.

    Raises:
        ValueError: the output of `own` is no tensor of floats in the shape of q.
    """
    check_type(model, Llama, "attention_by", "model")
    check_functions("attention_by", own=own)

    def attend(q, k, v, mask=None, is_causal=False, enable_gqa=False):
        k, v = (shared.repeat_interleave(q.shape[1] // shared.shape[1], dim=1) for shared in (k, v))
        visible = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device)
        if is_causal:
            visible = causal_mask(q.shape[-2], k.shape[-2], device=q.device)
        output = own(q, k, v, visible if mask is None else visible & mask)
        if isinstance(output, tuple):
            output, weights = output
            record(weights)
        if not is_float_tensor(output) or output.shape != q.shape:
            raise ValueError(
                f"attention_by: your function returned {describe(output)}, expected floats of the shape "
                f"of q, {tuple(q.shape)}: (B, n_head, T, head_size)."
            )
        return output

    layers: list[Any] = [block.get_submodule("attn") for block in model.transformer.h]
    before = [layer.attend for layer in layers]
    try:
        for layer in layers:
            layer.attend = attend
        yield
    finally:
        for layer, kept in zip(layers, before, strict=True):
            layer.attend = kept
