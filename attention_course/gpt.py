"""A bigram model, a GPT with nanoGPT's names, and sampling from either.

A model maps ids (B, T) to logits (B, T, V) of the next token at each position, and has a `block_size`.
`GPT` loads nanoGPT's state dict (github.com/karpathy/nanoGPT, model.py) key by key, except for the buffers
`attn.bias`, the causal mask that older versions of PyTorch need.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from numbers import Real

import torch
import torch.nn as nn
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from attention_course.attention import Cache, MultiHeadAttention, head_size_of
from attention_course.checks import (
    check_batch_of_ids,
    check_channels,
    check_flags,
    check_generator,
    check_numbers,
    check_sizes,
    check_type,
    describe,
)
from attention_course.names import look_up, shown


class BigramLanguageModel(nn.Module):
    """A bigram model: a table whose row for a token holds the logits of the next one."""

    block_size = 128  # the context length; only the last token of it is used

    def __init__(self, vocab_size: int):
        check_sizes("BigramLanguageModel", 1, vocab_size=vocab_size)
        super().__init__()
        self.table = nn.Embedding(vocab_size, vocab_size)

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """Map ids (B, T) to logits (B, T, vocab_size)."""
        check_batch_of_ids(ids, "BigramLanguageModel", self.table.num_embeddings)
        return self.table(ids)


@dataclass(frozen=True)
class GPTConfig:
    """The hyperparameters of a GPT; `dropout` is the probability of zeroing each entry during training."""

    vocab_size: int
    block_size: int = 128
    n_layer: int = 2
    n_head: int = 4
    n_embd: int = 64
    dropout: float = 0.0
    bias: bool = False

    def __post_init__(self):
        config = type(self).__name__
        for name in ("vocab_size", "block_size", "n_layer", "n_head", "n_embd"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{config}: {name} = {shown(value)}, expected an integer of at least 1.")
        if not isinstance(self.dropout, Real) or not 0 <= self.dropout < 1:
            raise ValueError(f"{config}: dropout = {shown(self.dropout)}, expected 0 <= dropout < 1.")
        head_size_of(self.n_embd, self.n_head)


class MLP(nn.Module):
    """The feed-forward network: applied at each position, with a hidden layer four times as wide."""

    def __init__(self, n_embd: int, bias: bool = False):
        check_sizes("MLP", 1, n_embd=n_embd)
        check_flags("MLP", bias=bias)
        super().__init__()
        self.c_fc = nn.Linear(n_embd, 4 * n_embd, bias=bias)
        self.c_proj = nn.Linear(4 * n_embd, n_embd, bias=bias)

    def forward(self, x: Float[Tensor, "*B T n_embd"]) -> Float[Tensor, "*B T n_embd"]:
        """Map x (B, T, n_embd) to an output of the same shape."""
        check_channels("MLP", x=(x, self.c_fc))
        return self.c_proj(F.gelu(self.c_fc(x)))  # (..., n_embd) -> (..., 4 n_embd) -> (..., n_embd)


Part = Callable[..., nn.Module]  # a module class or a factory


class Block(nn.Module):
    """A transformer block: attention, then an MLP, each with a residual connection.

    It is pre-norm: no block normalizes the residual stream itself. GPT-2 (Radford et al. 2019, section 2.3)
    is pre-norm too; Vaswani et al. 2017 (section 3.1) is post-norm.

    Args:
        config: the hyperparameters.
        attn: called with (n_embd, n_head, bias=bias); its module takes the arguments of `MultiHeadAttention`.
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
        check_type(config, GPTConfig, "Block", "config")
        super().__init__()
        self.ln_1 = norm(config.n_embd, bias=config.bias)
        self.attn = attn(config.n_embd, config.n_head, bias=config.bias)
        self.ln_2 = norm(config.n_embd, bias=config.bias)
        self.mlp = mlp(config.n_embd, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Float[Tensor, "B T C"], *args: object, **kwargs: object) -> Float[Tensor, "B T C"]:
        """Map x (B, T, n_embd) to an output of the same shape; what follows x goes to the attention."""
        # the residual stream x passes unchanged: each part reads a normalized copy and adds to it
        x = x + self.dropout(self.attn(self.ln_1(x), *args, **kwargs))
        return x + self.dropout(self.mlp(self.ln_2(x)))


def sinusoidal_positions(block_size: int, n_embd: int) -> Float[Tensor, "T C"]:
    """Return sinusoidal position embeddings, with wavelengths from 2π to block_size.

    A fixed offset rotates each sine-cosine pair by a fixed angle (Vaswani et al. 2017, section 3.5).
    """
    check_sizes("sinusoidal_positions", 0, block_size=block_size, n_embd=n_embd)
    longest = max(block_size / math.tau, 1.0)
    angles = torch.arange(block_size)[:, None] * longest ** -torch.linspace(0, 1, (n_embd + 1) // 2)
    return torch.cat([angles.sin(), angles.cos()], dim=-1)[:, :n_embd]


def initialize(model: nn.Module, std: float, n_layer: int) -> None:
    """Initialize matrices from a normal distribution with standard deviation `std`, and biases to 0.

    nanoGPT's std is 0.02. For the `c_proj` matrices, whose 2 n_layer outputs are summed in the residual
    stream, it is divided by √(2 n_layer) (Radford et al. 2019, section 2.3).
    """
    for name, parameter in model.named_parameters():
        if name.endswith("c_proj.weight"):  # a sum of 2 n_layer outputs varies as one
            nn.init.normal_(parameter, std=std * (2 * n_layer) ** -0.5)
        elif parameter.dim() == 2:
            nn.init.normal_(parameter, std=std)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)


class Transformer(nn.ModuleDict):
    """The modules of a GPT up to its final LayerNorm, under nanoGPT's names."""

    wte: nn.Embedding
    wpe: nn.Module | None
    drop: nn.Dropout
    h: nn.ModuleList
    ln_f: nn.Module


class GPT(nn.Module):
    """A decoder-only transformer: token and position embeddings, a stack of blocks, and logits.

    Two things differ from nanoGPT. Matrices are initialized with standard deviation n_embd**-0.5 and position
    embeddings with `sinusoidal_positions`; nanoGPT's 0.02 trains a narrow model slowly at first. There is no
    dropout on attention weights.

    Args:
        config: the hyperparameters.
        attn: see `Block`. To replace it in one block later: `model.transformer.h[0].attn = ...`.
        norm: see `Block`; also the final norm before the logits.
        mlp: see `Block`.
        wpe: called with (block_size, n_embd); its module maps positions (T,) to embeddings (T, n_embd). None:
            no position embeddings.
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
        # weight tying: the row that a token reads is also what its logit compares with
        self.lm_head.weight = self.transformer.wte.weight
        std = config.n_embd**-0.5
        initialize(self, std, config.n_layer)
        if wpe is nn.Embedding and self.transformer.wpe is not None:
            table = sinusoidal_positions(config.block_size, config.n_embd)
            self.transformer.wpe.weight.data = std * table

    def forward(self, ids: Int[Tensor, "B T"], cache: Cache | None = None) -> Float[Tensor, "B T V"]:
        """Map ids (B, T) to logits (B, T, vocab_size).

        With a cache, ids are the tokens that follow those that it holds, and it is extended by them.

        Raises:
            ValueError: more tokens than block_size, with those in the cache, or a cache of another model or
                batch. On a GPU, ids out of range are not noticed here.
        """
        check_batch_of_ids(ids, "GPT", self.config.vocab_size)
        check_type(cache, (Cache, type(None)), "GPT", "cache")
        if ids.numel() == 0:
            raise ValueError(f"GPT: ids has shape {tuple(ids.shape)}. Give at least one token.")
        start = 0 if cache is None else len(cache)
        stop = start + ids.shape[1]
        if self.block_size < stop:
            raise ValueError(
                f"GPT: {stop} tokens, but block_size is {self.block_size}. Keep ids[:, -{self.block_size}:]"
                f"{' and start with a new Cache()' if start else ''}."
            )
        x = self.transformer.wte(ids)  # (B, T, n_embd)
        if self.transformer.wpe is not None:
            # (T, n_embd), the same for each sequence; after a cache, positions go on where it ends
            x = x + self.transformer.wpe(torch.arange(start, stop, device=ids.device))
        x = self.transformer.drop(x)
        options = {} if cache is None else {"cache": cache}  # an attention of one's own may know none
        for block in self.transformer.h:
            x = block(x, is_causal=True, **options)
        if cache is not None:
            cache.advance(ids.shape[1])  # not before all layers have their keys: a call may be interrupted
        return self.lm_head(self.transformer.ln_f(x))  # (B, T, V): at each position, of the next token


def block_size_of(model: nn.Module) -> int:
    """Return the context length of a model. Where it has none, raise TypeError."""
    block_size = getattr(model, "block_size", None)
    if not isinstance(block_size, int) or block_size < 1:
        raise TypeError(
            f"{type(model).__name__} has block_size = {shown(block_size)}, expected an integer of at least "
            "1: its context length in tokens. Set it as an attribute of the class, for example "
            "block_size = 128."
        )
    return block_size


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put the model into eval mode, without gradients; restore the mode of each submodule afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training


def autocast_dtype(device: torch.device) -> torch.dtype:
    """Return bfloat16 where the hardware supports bfloat16 matrix products, float32 elsewhere.

    ATEN_CPU_CAPABILITY=avx2 in the environment disables the instructions that a CPU has for it.

    On CPUs with AMX a training step of our models takes 0.6 to 0.7 of the time in float32; with AVX512_BF16
    alone 0.4 to 0.85 (AMD EPYC), and up to 2.6 where bfloat16 is emulated.
    """
    if device.type == "cuda":
        able = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        in_use = device.type == "cpu" and torch.backends.cpu.get_cpu_capability() == "AVX512"
        found = torch.cpu.get_capabilities() if in_use else {}
        able = found.get("amx_bf16") or found.get("avx512_bf16")
    return torch.bfloat16 if able else torch.float32


def dtype_of(precision: str, device: torch.device) -> torch.dtype:
    """Return the dtype of a precision: "float32", "bfloat16" or "auto", which is `autocast_dtype(device)`."""
    check_type(precision, str, "dtype_of", "precision")
    check_type(device, torch.device, "dtype_of", "device")
    known = {"float32": torch.float32, "bfloat16": torch.bfloat16, "auto": None}
    return look_up(precision, known, "precision") or autocast_dtype(device)


def autocast(precision: str, device: torch.device) -> torch.autocast:
    """Return the autocast context for a precision; see `dtype_of`."""
    lower = dtype_of(precision, device) == torch.bfloat16
    return torch.autocast(device.type, torch.bfloat16, enabled=lower)


def check_generate(
    model: nn.Module,
    ids: Int[Tensor, "B T"],
    max_new_tokens: int,
    temperature: float | int,
    top_k: int | None,
    generator: torch.Generator | None,
    cache: Cache | None,
) -> None:
    """Raise unless these are arguments of `generate`."""
    check_batch_of_ids(ids, "generate")
    check_sizes("generate", 0, max_new_tokens=max_new_tokens)
    check_sizes("generate", 1, top_k=1 if top_k is None else top_k)
    check_generator(generator, "generate")
    if ids.numel() == 0:
        raise ValueError(
            f"generate: ids has shape {tuple(ids.shape)}. Give at least one token to start from."
        )
    check_numbers("generate", 0, temperature=temperature)
    if cache is not None:
        check_type(cache, Cache, "generate", "cache")
        if "cache" not in signature(model.forward).parameters:
            raise TypeError(f"generate: {type(model).__name__} takes no cache. Leave it out.")
        if len(cache) >= ids.shape[1]:
            raise ValueError(
                f"generate: the cache holds {len(cache)} tokens, and ids has {ids.shape[1]}, expected more. "
                "Pass the text from its beginning, or start with a new Cache()."
            )
    block_size_of(model)
    device = next(model.parameters(), ids).device
    if ids.device != device:
        raise ValueError(f"generate: ids is on {ids.device} and the model on {device}. Move it: ids.to(...).")


def check_output(output: object) -> None:
    """Raise TypeError unless a model has returned a tensor of three dimensions to `generate`."""
    if not isinstance(output, Tensor) or output.dim() != 3:
        raise TypeError(f"generate: the model returns {describe(output)}, expected logits (B, T, V).")


def check_logits(logits: Float[Tensor, "B V"], T: int, temperature: float | int) -> None:
    """Raise ValueError unless the largest logit of each sequence of T tokens is finite: softmax needs one.

    It also is once divided by the temperature, unless that is 0.
    """
    best = logits.amax(dim=-1)
    if not best.isfinite().all():
        raise ValueError(
            f"generate: after {T} tokens, the largest logit of each sequence is {best.tolist()}, expected "
            "finite numbers. Did the training diverge?"
        )
    if temperature > 0 and not (best / temperature).isfinite().all():
        raise ValueError(
            f"generate: temperature = {shown(temperature)} is so small that logits divided by it overflow. "
            "For greedy decoding, pass 0."
        )


def generate(
    model: nn.Module,
    ids: Int[Tensor, "B T"],
    max_new_tokens: int,
    temperature: float | int = 1.0,
    top_k: int | None = None,
    generator: torch.Generator | None = None,
    cache: Cache | None = None,
) -> Int[Tensor, "B T_new"]:
    """Sample autoregressively: predict, sample a token, append it, repeat (`GPT.generate` in nanoGPT).

    The context is cropped to the last block_size tokens. Logits are divided by the temperature: below 1 the
    distribution is sharper, above 1 flatter, and 0 is greedy decoding. `top_k` keeps the k best tokens. The
    result begins with `ids`.

    With a cache, the model reads each token once; what the cache already holds is taken for the first of
    `ids`. Cropping moves every token to another position, so from then on the context is read anew.

    Raises:
        ValueError: also where the largest logit of a sequence is not finite.
    """
    check_generate(model, ids, max_new_tokens, temperature, top_k, generator, cache)
    block_size = block_size_of(model)
    with evaluating(model):
        for _ in range(max_new_tokens):
            if cache is None or ids.shape[1] > block_size:
                logits = model(ids[:, -block_size:])  # positions end at block_size: crop
            else:
                logits = model(ids[:, len(cache) :], cache)  # only what it has not read
            check_output(logits)
            logits = logits[:, -1]  # (B, V), of the token after the last
            if top_k is not None:
                worst = logits.topk(min(top_k, logits.shape[-1])).values[:, -1:]
                logits = logits.masked_fill(logits < worst, float("-inf"))  # probability 0
            check_logits(logits, ids.shape[1], temperature)
            if temperature > 0:
                probabilities = torch.softmax(logits / temperature, dim=-1)
                drawn = torch.multinomial(probabilities, 1, generator=generator)  # (B, 1)
            else:
                drawn = logits.argmax(dim=-1, keepdim=True)
            ids = torch.cat([ids, drawn], dim=1)  # (B, T + 1)
    return ids
