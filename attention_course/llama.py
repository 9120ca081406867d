"""The parts of a model of today, those of Llama (Touvron et al. 2023), for the GPT of `gpt`.

`Llama` is a `GPT` with four other parts: RMSNorm for LayerNorm, rotary positions for position embeddings,
grouped-query attention for multi-head attention, and SwiGLU for the MLP.
"""

from dataclasses import dataclass
from functools import partial
from types import NoneType

import torch
import torch.nn as nn
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from attention_course.attention import Cache, attend, head_size_of
from attention_course.checks import (
    check_batch,
    check_channels,
    check_flags,
    check_numbers,
    check_rotation,
    check_sizes,
    check_type,
    check_width,
)
from attention_course.gpt import GPT, GPTConfig


class RMSNorm(nn.Module):
    """Divide each token by its root mean square, and scale each channel (Zhang and Sennrich 2019, section 4).

    It is LayerNorm without the subtracted mean and without a bias; `torch.nn.RMSNorm` computes the same.
    """

    def __init__(self, n_embd: int, eps: float = 1e-5):
        check_sizes("RMSNorm", 1, n_embd=n_embd)
        check_numbers("RMSNorm", 0, eps=eps)
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n_embd))
        self.eps = eps

    def forward(self, x: Float[Tensor, "*B T n_embd"]) -> Float[Tensor, "*B T n_embd"]:
        """Map x (B, T, n_embd) to an output of the same shape."""
        check_width("RMSNorm", x, len(self.weight))
        # in float32: 8 bits of bfloat16 would round a square too much
        mean_square = x.float().square().mean(dim=-1, keepdim=True)
        return (x * (mean_square + self.eps).rsqrt()).to(x.dtype) * self.weight


def rotate_pairs(
    x: Float[Tensor, "*B T head_size"], cos: Float[Tensor, "T pairs"], sin: Float[Tensor, "T pairs"]
) -> Float[Tensor, "*B T head_size"]:
    """Rotate each pair of neighbouring channels of x (..., T, head_size), given cos and sin of its angle."""
    check_rotation(x, cos, sin)
    a, b = x.unflatten(-1, (-1, 2)).unbind(dim=-1)  # (..., T, pairs) each: real and imaginary part
    return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)


class Rotary(nn.Module):
    """Rotary positions: turn queries and keys by their positions (RoPE; Su et al. 2021, section 3.2.2).

    The dot product of a query and a key then depends on the distance of their positions only. From one
    position to the next, pair i turns by base ** (-2i / head_size) radians.

    Args:
        head_size: channels of a query and of a key, an even number.
        block_size: number of positions.
        base: at least 1; larger values give the last pairs lower frequencies.
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, head_size: int, block_size: int, base: float = 10_000.0):
        check_sizes("Rotary", 1, head_size=head_size, block_size=block_size)
        if head_size % 2:
            raise ValueError(f"Rotary: head_size = {head_size}, expected an even number: each pair turns.")
        check_numbers("Rotary", 1, base=base)
        super().__init__()
        # on the CPU even if the parameters are on the device meta, since no checkpoint holds them
        positions = torch.arange(block_size, device="cpu")
        inv_freq = base ** -(torch.arange(0, head_size, 2, device="cpu") / head_size)
        angles = positions[:, None] * inv_freq  # (block_size, head_size / 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, x: Float[Tensor, "*B T head_size"], start: int = 0) -> Float[Tensor, "*B T head_size"]:
        """Map x (..., T, head_size), at positions start, start + 1, ..., to an output of the same shape.

        Raises:
            ValueError: x has another head_size, or a position is not below block_size.
        """
        check_width("Rotary", x, 2 * self.cos.shape[1])
        check_sizes("Rotary", 0, start=start)
        here, block = slice(start, start + x.shape[-2]), len(self.cos)
        if here.stop > block:
            raise ValueError(
                f"Rotary: start = {start} and {x.shape[-2]} tokens end at position {here.stop - 1}, "
                f"expected at most {block - 1}, for block_size = {block}."
            )
        return rotate_pairs(x, self.cos[here], self.sin[here]).type_as(x)  # the angles are in float32


def group_size_of(n_head: int, n_kv_head: int) -> int:
    """Return n_head / n_kv_head, the number of heads that share keys and values; if not whole, ValueError."""
    check_sizes("group_size_of", 1, n_head=n_head, n_kv_head=n_kv_head)
    if n_head % n_kv_head:
        raise ValueError(
            f"n_head = {n_head} heads cannot share n_kv_head = {n_kv_head} heads of keys and values equally. "
            f"Choose an n_kv_head that divides {n_head}."
        )
    return n_head // n_kv_head


class GroupedQueryAttention(nn.Module):
    """Causal attention in which groups of heads share keys and values (Ainslie et al. 2023, section 2.2).

    With as many key heads as heads, and no rotary positions, it is `MultiHeadAttention`.

    Args:
        n_embd: channels of a token, in and out.
        n_head: number of heads, a divisor of n_embd; each has head_size = n_embd / n_head.
        n_kv_head: number of heads of the keys and values, a divisor of n_head.
        rotary: maps queries and keys, and the first of their positions, to rotated ones. None: no positions.
        bias: whether the two linear layers have a bias.
    """

    attend = staticmethod(attend)  # `heads.attention_by` puts another in its place

    def __init__(
        self,
        n_embd: int,
        n_head: int,
        n_kv_head: int,
        rotary: nn.Module | None = None,
        bias: bool = False,
    ):
        check_type(rotary, (nn.Module, NoneType), "GroupedQueryAttention", "rotary")
        check_flags("GroupedQueryAttention", bias=bias)
        super().__init__()
        self.head_size = head_size_of(n_embd, n_head)
        group_size_of(n_head, n_kv_head)
        self.n_head, self.n_kv_head = n_head, n_kv_head
        self.rotary = rotary
        self.c_attn = nn.Linear(n_embd, (n_head + 2 * n_kv_head) * self.head_size, bias=bias)
        self.c_proj = nn.Linear(n_embd, n_embd, bias=bias)

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        mask: Bool[Tensor, "..."] | None = None,
        is_causal: bool = False,
        cache: Cache | None = None,
    ) -> Float[Tensor, "B T C"]:
        """Map x (B, T, n_embd) to an output of the same shape; see `MultiHeadAttention`."""
        check_batch("GroupedQueryAttention", x, self.c_attn, mask)
        check_type(cache, (Cache, NoneType), "GroupedQueryAttention", "cache")
        B, T, _ = x.shape
        heads = self.c_attn(x).view(B, T, -1, self.head_size).transpose(1, 2)  # (B, all heads, T, head_size)
        qk, v = heads.split([self.n_head + self.n_kv_head, self.n_kv_head], dim=1)
        if self.rotary is not None:
            qk = self.rotary(qk, 0 if cache is None else len(cache))  # values are not turned
        q, k = qk.split([self.n_head, self.n_kv_head], dim=1)  # (B, n_head or n_kv_head, T, head_size)
        if cache is not None:
            k, v = cache.extend(self, k, v)
        if mask is not None and mask.dim() == 3:
            mask = mask[:, None]
        output = self.attend(q, k, v, mask, is_causal, enable_gqa=True)
        return self.c_proj(output.transpose(1, 2).reshape(B, T, -1))


class SwiGLU(nn.Module):
    """The feed-forward network of Llama: a hidden layer, multiplied by a gate (Shazeer 2020, section 2).

    Args:
        n_embd: channels of a token, in and out.
        n_hidden: channels of the hidden layer, and of its gate.
        bias: whether the two linear layers have a bias.
    """

    def __init__(self, n_embd: int, n_hidden: int, bias: bool = False):
        check_sizes("SwiGLU", 1, n_embd=n_embd, n_hidden=n_hidden)
        check_flags("SwiGLU", bias=bias)
        super().__init__()
        self.c_fc = nn.Linear(n_embd, 2 * n_hidden, bias=bias)
        self.c_proj = nn.Linear(n_hidden, n_embd, bias=bias)

    def forward(self, x: Float[Tensor, "*B T n_embd"]) -> Float[Tensor, "*B T n_embd"]:
        """Map x (B, T, n_embd) to an output of the same shape."""
        check_channels("SwiGLU", x=(x, self.c_fc))
        gate, hidden = self.c_fc(x).chunk(2, dim=-1)  # (..., n_hidden) each
        return self.c_proj(F.silu(gate) * hidden)


@dataclass(frozen=True)
class LlamaConfig(GPTConfig):
    """The hyperparameters of a Llama: those of a GPT, and four more.

    Attributes:
        n_kv_head: see `GroupedQueryAttention`.
        n_hidden: see `SwiGLU`.
        base: see `Rotary`.
        eps: see `RMSNorm`.
    """

    n_kv_head: int = 2
    n_hidden: int = 172
    base: float = 10_000.0
    eps: float = 1e-5

    def __post_init__(self):
        super().__post_init__()
        check_sizes("LlamaConfig", 1, n_hidden=self.n_hidden)
        group_size_of(self.n_head, self.n_kv_head)


class Llama(GPT):
    """A GPT with RMSNorm, rotary positions, grouped-query attention and SwiGLU.

    With the same parameters its logits equal those of `transformers.LlamaForCausalLM`, whose layout of q and
    k differs: it pairs channel i with channel i + head_size / 2.
    """

    def __init__(self, config: LlamaConfig):
        check_type(config, LlamaConfig, "Llama", "config")
        rotary = Rotary(head_size_of(config.n_embd, config.n_head), config.block_size, config.base)
        super().__init__(
            config,
            attn=partial(GroupedQueryAttention, n_kv_head=config.n_kv_head, rotary=rotary),
            norm=lambda n_embd, bias: RMSNorm(n_embd, config.eps),
            mlp=partial(SwiGLU, n_hidden=config.n_hidden),
            wpe=None,
        )
