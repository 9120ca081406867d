"""The functions of torch.nn.functional that an answer may call."""

import math

import torch
from torch.names import lacking
from torch.ops import FUNCTIONS, along, logs_of, logs_vjp, weights_of, weights_vjp

softmax, log_softmax, relu, sigmoid, tanh, xlogy = (
    FUNCTIONS[name] for name in ("softmax", "log_softmax", "relu", "sigmoid", "tanh", "xlogy")
)


def linear(x, weight, bias=None):
    found = x @ (weight.T if weight.dim() > 1 else weight)
    return found if bias is None else found + bias


def embedding(ids, weight):
    return weight[ids]


def one_hot(x, num_classes=-1):
    num_classes = int(x.max()) + 1 if num_classes == -1 else num_classes
    if x.numel() and int(x.max()) >= num_classes:
        raise RuntimeError("Class values must be smaller than num_classes.")
    return (x[..., None] == torch.arange(num_classes)).long()


def pad(x, pad, mode="constant", value=None):
    if mode != "constant":
        lacking(f"F.pad(mode={mode!r})")
    for at in range(len(pad) // 2):
        d, (before, after) = x.dim() - 1 - at, pad[2 * at : 2 * at + 2]
        x = x.narrow(d, max(0, -before), x.shape[d] - max(0, -before) - max(0, -after))
        shape = list(x.shape)
        parts = [
            torch.full([*shape[:d], n, *shape[d + 1 :]], value or 0, dtype=x.dtype)
            for n in (before, after)
            if n > 0
        ]
        if parts:
            x = torch.cat([*parts[: before > 0], x, *parts[before > 0 :]], d)
    return x


def gelu(x, approximate="none"):
    if approximate == "tanh":
        return 0.5 * x * (1 + (math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)).tanh())
    return 0.5 * x * (1 + (x / math.sqrt(2)).erf())


def silu(x):
    return x * x.sigmoid()


def dropout(x, p=0.5, training=True, inplace=False):
    return x if not training or p == 0 else x * (torch.rand_like(x) >= p) / (1 - p)


def layer_norm(x, normalized_shape, weight=None, bias=None, eps=1e-5):
    dims = tuple(range(-len(normalized_shape), 0))
    x = x - x.mean(dims, keepdim=True)
    x = x * ((x * x).mean(dims, keepdim=True) + eps).rsqrt()
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def rms_norm(x, normalized_shape, weight=None, eps=None):
    dims = tuple(range(-len(normalized_shape), 0))
    if tuple(x.shape[-len(normalized_shape) :]) != tuple(normalized_shape):
        raise RuntimeError(
            f"Given normalized_shape={list(normalized_shape)}, expected input with shape "
            f"[*, {', '.join(map(str, normalized_shape))}], but got input of size{list(x.shape)}"
        )
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    x = x * ((x * x).mean(dims, keepdim=True) + eps).rsqrt()
    return x if weight is None else x * weight


def normalize(x, p=2.0, dim=1, eps=1e-12):
    return x / x.norm(p, dim, keepdim=True).clamp(min=eps)


def reduced(x, how):
    return x.mean() if how == "mean" else x.sum() if how == "sum" else x


def nll_loss(logs, targets, reduction="mean", ignore_index=-100):
    logs = logs.movedim(1, -1) if logs.dim() > 1 else logs
    if logs.shape[:-1] != targets.shape:
        raise ValueError(
            f"Expected input of shape {list(logs.shape[:-1])} to match target of shape {list(targets.shape)}."
        )
    ignored = targets == ignore_index
    losses = -logs.gather(-1, targets.masked_fill(ignored, 0)[..., None])[..., 0].masked_fill(ignored, 0)
    return losses.sum() / (~ignored).sum() if reduction == "mean" else reduced(losses, reduction)


def cross_entropy(x, targets, reduction="mean", ignore_index=-100, **named):
    if named or targets.is_floating_point():
        lacking("F.cross_entropy with these arguments")
    logs = along(x, 1 if x.dim() > 1 else 0, logs_of, logs_vjp)
    return nll_loss(logs, targets, reduction, ignore_index)


def kl_div(x, target, reduction="mean", log_target=False):
    terms = target.exp() * (target - x) if log_target else xlogy(target, target) - target * x
    return terms.sum() / len(x) if reduction == "batchmean" else reduced(terms, reduction)


def scaled_dot_product_attention(
    q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
):
    if enable_gqa:
        k, v = (each.repeat_interleave(q.shape[-3] // each.shape[-3], dim=-3) for each in (k, v))
    scores = q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        if attn_mask is not None:
            raise RuntimeError(
                "_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True"
            )
        attn_mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        scores = scores.masked_fill(~attn_mask, -math.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    weights = along(scores, -1, weights_of, weights_vjp)
    return (weights if attn_mask is None else weights.masked_fill(scores == -math.inf, 0.0)) @ v


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    lacking(f"torch.nn.functional.{name}", "functional", name)
