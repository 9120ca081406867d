"""Rung 8: from a table of bigrams to a GPT, with nanoGPT's names, and one function that lets either write.

A model maps ids (B, T) to logits (B, T, V), what it expects next at every position, and has a `block_size`.
nanoGPT's state dict (github.com/karpathy/nanoGPT, model.py) fits `GPT` key by key; only its
buffers `attn.bias`, the mask that old versions of PyTorch need, have no place here.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Real

import torch
import torch.nn as nn
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attention_course.attention import MultiHeadAttention, head_size_of
from attention_course.checks import (
    check_batch_of_ids,
    check_channels,
    check_generator,
    check_sizes,
    check_type,
)
from attention_course.names import look_up


class BigramLanguageModel(nn.Module):
    """A table of logits: the row of a token says what follows it."""

    block_size = 128  # what it is shown at once; it looks at the last token only

    def __init__(self, vocab_size: int):
        check_sizes("BigramLanguageModel", 1, vocab_size=vocab_size)
        super().__init__()
        self.table = nn.Embedding(vocab_size, vocab_size)

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """Turn ids (B, T) into logits (B, T, vocab_size)."""
        check_batch_of_ids(ids, "BigramLanguageModel", self.table.num_embeddings)
        return self.table(ids)


@dataclass(frozen=True)
class GPTConfig:
    """The size of a GPT; dropout is the share of channels that are set to zero while it trains.

    Raises:
        ValueError: a number is out of range, or n_head does not divide n_embd.
    """

    vocab_size: int
    block_size: int = 128
    n_layer: int = 2
    n_head: int = 4
    n_embd: int = 64
    dropout: float = 0.0
    bias: bool = False

    def __post_init__(self):
        for name in ("vocab_size", "block_size", "n_layer", "n_head", "n_embd"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"GPTConfig: {name} = {value!r}, expected an integer of at least 1.")
        if not isinstance(self.dropout, Real) or not 0 <= self.dropout < 1:
            raise ValueError(f"GPTConfig: dropout = {self.dropout!r}, expected 0 <= dropout < 1.")
        head_size_of(self.n_embd, self.n_head)


class MLP(nn.Module):
    """The feed-forward part: each token by itself, through four times as many channels and back."""

    def __init__(self, n_embd: int, bias: bool = False):
        check_sizes("MLP", 1, n_embd=n_embd)
        super().__init__()
        self.c_fc = nn.Linear(n_embd, 4 * n_embd, bias=bias)
        self.c_proj = nn.Linear(4 * n_embd, n_embd, bias=bias)

    def forward(self, x: Float[Tensor, "*B T n_embd"]) -> Float[Tensor, "*B T n_embd"]:
        """Turn tokens (B, T, n_embd) into an output of that shape."""
        check_channels("MLP", (x, self.c_fc))
        return self.c_proj(F.gelu(self.c_fc(x)))


Part = Callable[..., nn.Module]  # a class, or what is called like one


class Block(nn.Module):
    """Tokens look at each other, then each thinks for itself; both results are added to the token.

    The norms stand before the two parts, as in GPT-2 (Radford et al. 2019, section 2.3), and not after the
    sums, as in Vaswani et al. 2017 (section 5.4): what is added up is never squeezed.

    Args:
        config: the sizes.
        attn: called with (n_embd, n_head, bias=bias), makes a module that is called as `MultiHeadAttention`.
        norm: called with (n_embd, bias=bias), twice.
        mlp: called with (n_embd, bias=bias).
    """

    def __init__(
        self,
        config: GPTConfig,
        attn: Part = MultiHeadAttention,
        norm: Part = nn.LayerNorm,
        mlp: Part = MLP,
    ):
        super().__init__()
        self.ln_1 = norm(config.n_embd, bias=config.bias)
        self.attn = attn(config.n_embd, config.n_head, bias=config.bias)
        self.ln_2 = norm(config.n_embd, bias=config.bias)
        self.mlp = mlp(config.n_embd, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, x: Float[Tensor, "B T C"], mask: Bool[Tensor, "..."] | None = None, is_causal: bool = False
    ) -> Float[Tensor, "B T C"]:
        """Turn tokens (B, T, n_embd) into such tokens."""
        x = x + self.dropout(self.attn(self.ln_1(x), mask, is_causal))
        return x + self.dropout(self.mlp(self.ln_2(x)))


def sinusoidal_positions(block_size: int, n_embd: int) -> Float[Tensor, "T C"]:
    """Give each position the sines and cosines of waves from 2π to block_size tokens long.

    A step back turns each pair by one angle, wherever it starts (Vaswani et al. 2017, section 3.5).
    """
    check_sizes("sinusoidal_positions", 0, block_size=block_size, n_embd=n_embd)
    longest = max(block_size / math.tau, 1.0)
    angles = torch.arange(block_size)[:, None] * longest ** -torch.linspace(0, 1, (n_embd + 1) // 2)
    return torch.cat([angles.sin(), angles.cos()], dim=-1)[:, :n_embd]


def initialize(model: nn.Module, std: float, n_layer: int) -> None:
    """Draw all matrices with this standard deviation, as nanoGPT does with 0.02; biases become 0.

    Those called `c_proj`, whose 2 n_layer outputs are added up, get one that is smaller by √(2 n_layer).
    """
    for name, parameter in model.named_parameters():
        if name.endswith("c_proj.weight"):
            nn.init.normal_(parameter, std=std * (2 * n_layer) ** -0.5)
        elif parameter.dim() == 2:
            nn.init.normal_(parameter, std=std)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)


class Transformer(nn.ModuleDict):
    """The modules of a GPT below its logits, under nanoGPT's names."""

    wte: nn.Embedding
    wpe: nn.Module | None
    drop: nn.Dropout
    h: nn.ModuleList
    ln_f: nn.Module


class GPT(nn.Module):
    """A decoder: tokens and positions, a stack of blocks, and logits for what comes next.

    Two things differ from nanoGPT. Matrices are initialised with standard deviation n_embd**-0.5, positions
    with `sinusoidal_positions`; nanoGPT's 0.02 is a slow start for a narrow model. Dropout leaves attention
    weights alone.

    Args:
        config: the sizes.
        attn: a part of each block; see `Block`. That of one block can be replaced later:
            `model.transformer.h[0].attn = ...`.
        norm: a part of each block, and the last part before the logits.
        mlp: a part of each block.
        wpe: called with (block_size, n_embd), makes a module that turns positions (T,) into vectors
            (T, n_embd). None: positions are left out.
    """

    def __init__(
        self,
        config: GPTConfig,
        attn: Part = MultiHeadAttention,
        norm: Part = nn.LayerNorm,
        mlp: Part = MLP,
        wpe: Part | None = nn.Embedding,
    ):
        check_type(config, GPTConfig, "GPT", "config")
        super().__init__()
        self.config = config
        self.block_size = config.block_size
        self.transformer = Transformer(
            {
                "wte": nn.Embedding(config.vocab_size, config.n_embd),
                "wpe": wpe and wpe(config.block_size, config.n_embd),  # pyright: ignore[reportArgumentType]
                "drop": nn.Dropout(config.dropout),
                "h": nn.ModuleList(Block(config, attn, norm, mlp) for _ in range(config.n_layer)),
                "ln_f": norm(config.n_embd, bias=config.bias),
            }
        )
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.lm_head.weight = self.transformer.wte.weight  # one table for reading and for writing
        std = config.n_embd**-0.5
        initialize(self, std, config.n_layer)
        if wpe is nn.Embedding and self.transformer.wpe is not None:
            table = sinusoidal_positions(config.block_size, config.n_embd)
            self.transformer.wpe.weight.data = std * table

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """Turn ids (B, T) into logits (B, T, vocab_size).

        Raises:
            TypeError: ids is no integer tensor of shape (B, T).
            ValueError: there are no ids, T is larger than block_size, or (on a CPU) an id is out of range.
        """
        check_batch_of_ids(ids, "GPT", self.config.vocab_size)
        T = ids.shape[1]
        if ids.numel() == 0:
            raise ValueError(f"GPT: ids has shape {tuple(ids.shape)}. Give at least one token.")
        if self.block_size < T:
            raise ValueError(
                f"GPT: {T} tokens, but block_size is {self.block_size}. Keep ids[:, -{self.block_size}:]."
            )
        x = self.transformer.wte(ids)
        if self.transformer.wpe is not None:
            x = x + self.transformer.wpe(torch.arange(T, device=ids.device))
        x = self.transformer.drop(x)
        for block in self.transformer.h:
            x = block(x, is_causal=True)
        return self.lm_head(self.transformer.ln_f(x))


def block_size_of(model: nn.Module) -> int:
    """Return the number of tokens that a model reads at most.

    Raises:
        TypeError: the model does not say so.
    """
    block_size = getattr(model, "block_size", None)
    if not isinstance(block_size, int) or block_size < 1:
        raise TypeError(
            f"{type(model).__name__} has block_size = {block_size!r}, expected an integer of at least 1: the "
            "number of tokens that it reads at most. Write into its class, for example, block_size = 128."
        )
    return block_size


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put the model into eval mode, without gradients; then leave it, and each part of it, as it was."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training


def autocast_dtype(device: torch.device) -> torch.dtype:
    """Return bfloat16 where there are circuits that multiply matrices of it, and float32 elsewhere.

    On processors with AMX a step of our models takes 0.6 to 0.7 of the time. With AVX512_BF16 alone it takes
    0.9 to 1.2, and up to 2.6 where bfloat16 is imitated.
    """
    if device.type == "cuda":
        able = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        able = device.type == "cpu" and torch.cpu.get_capabilities().get("amx_bf16", False)
    return torch.bfloat16 if able else torch.float32


def autocast(precision: str, device: torch.device) -> torch.autocast:
    """Return a context in which matrix products have this precision: "float32", "bfloat16" or "auto".

    Raises:
        TypeError: the precision is no str.
        ValueError: there is no such precision.
    """
    check_type(precision, str, "autocast", "precision")
    known = {"float32": torch.float32, "bfloat16": torch.bfloat16, "auto": None}
    dtype = look_up(precision, known, "precision") or autocast_dtype(device)
    return torch.autocast(device.type, torch.bfloat16, enabled=dtype == torch.bfloat16)


def generate(
    model: nn.Module,
    ids: Int[Tensor, "B T"],
    max_new_tokens: int,
    temperature: float | int = 1.0,
    top_k: int | None = None,
    generator: torch.Generator | None = None,
) -> Int[Tensor, "B T_new"]:
    """Sample autoregressively: predict, draw one token, append it, again (`GPT.generate` in nanoGPT).

    It sees the last block_size tokens. Logits are divided by the temperature: below 1 bolder, above 1 more
    varied, at 0 always the best token. top_k leaves only the k best. The result begins with ids.

    Raises:
        TypeError: ids is no integer tensor of shape (B, T), or another argument is of the wrong kind.
        ValueError: there is no token to start from, a number is out of range, or the model's best logit for
            some token is not finite.
    """
    check_batch_of_ids(ids, "generate")
    check_sizes("generate", 0, max_new_tokens=max_new_tokens)
    check_sizes("generate", 1, top_k=1 if top_k is None else top_k)
    check_generator(generator, "generate")
    if ids.numel() == 0:
        raise ValueError(
            f"generate: ids has shape {tuple(ids.shape)}. Give at least one token to start from."
        )
    if not isinstance(temperature, Real) or not 0 <= temperature < math.inf:
        raise ValueError(f"generate: temperature = {temperature!r}, expected a number of at least 0.")
    block_size = block_size_of(model)
    with evaluating(model):
        for _ in range(max_new_tokens):
            logits = model(ids[:, -block_size:])
            check_type(logits, Tensor, "generate", "what the model returns")
            logits = logits[:, -1]  # (B, V): what follows the last token
            if top_k is not None:
                worst = logits.topk(min(top_k, logits.shape[-1])).values[:, -1:]
                logits = logits.masked_fill(logits < worst, float("-inf"))
            if temperature > 0:
                logits = logits / temperature
            best = logits.amax(dim=-1)
            if not best.isfinite().all():
                raise ValueError(
                    f"generate: after {ids.shape[1]} tokens, at temperature {temperature}, the best logit of "
                    f"each text is {best.tolist()}, expected finite numbers. Did its training diverge?"
                )
            drawn = logits.argmax(dim=-1, keepdim=True)
            if temperature > 0:
                probabilities = torch.softmax(logits, dim=-1)
                drawn = torch.multinomial(probabilities, 1, generator=generator)
            ids = torch.cat([ids, drawn], dim=1)
    return ids
