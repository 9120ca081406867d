"""Rung 8: from a table of bigrams to a GPT, with nanoGPT's names, and one function that lets either write.

A model maps ids (B, T) to logits (B, T, V), what it expects next at every position, and the weights of its
heads if asked. nanoGPT's state dict (github.com/karpathy/nanoGPT, model.py) fits `GPT` key by key; only its
buffers `attn.bias`, the mask that old versions of PyTorch need, have no place here.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from attention_course.attention import MultiHeadAttention, causal_mask, head_size_of


class BigramLanguageModel(nn.Module):
    """A table of logits: the row of a token says what follows it."""

    block_size = 128  # what it is shown at once; it looks at the last token only

    def __init__(self, vocab_size: int):
        super().__init__()
        self.table = nn.Embedding(vocab_size, vocab_size)

    def forward(self, ids: Int[Tensor, "B T"]) -> tuple[Float[Tensor, "B T V"], None]:
        """Turn ids (B, T) into logits (B, T, vocab_size). There are no weights to return."""
        return self.table(ids), None


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
        if not 0 <= self.dropout < 1:
            raise ValueError(f"GPTConfig: dropout = {self.dropout!r}, expected 0 <= dropout < 1.")
        head_size_of(self.n_embd, self.n_head)


class MLP(nn.Module):
    """The feed-forward part: each token by itself, through four times as many channels and back."""

    def __init__(self, n_embd: int, bias: bool = False):
        super().__init__()
        self.c_fc = nn.Linear(n_embd, 4 * n_embd, bias=bias)
        self.c_proj = nn.Linear(4 * n_embd, n_embd, bias=bias)

    def forward(self, x):
        """Turn tokens (B, T, n_embd) into an output of that shape."""
        return self.c_proj(F.gelu(self.c_fc(x)))


class Block(nn.Module):
    """Tokens look at each other, then each thinks for itself; both results are added to the token.

    The LayerNorms stand before the two parts, as in GPT-2 (Radford et al. 2019, section 2.3), and not after
    the sums, as in Vaswani et al. 2017 (section 5.4): what is added up is never squeezed.
    """

    def __init__(self, config: GPTConfig):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd, bias=config.bias)
        self.attn = MultiHeadAttention(config.n_embd, config.n_head, bias=config.bias)
        self.ln_2 = nn.LayerNorm(config.n_embd, bias=config.bias)
        self.mlp = MLP(config.n_embd, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x, mask=None, need_weights=False):
        """Turn tokens (B, T, n_embd) into such tokens and, if asked, weights (B, n_head, T, T)."""
        attended, weights = self.attn(self.ln_1(x), mask, need_weights)
        x = x + self.dropout(attended)
        x = x + self.dropout(self.mlp(self.ln_2(x)))
        return x, weights


def waves(block_size: int, n_embd: int) -> Float[Tensor, "T C"]:
    """Give each position the sines and cosines of waves from 2π to block_size tokens long.

    A step back turns each pair by one angle, wherever it starts (Vaswani et al. 2017, section 3.5).
    """
    longest = max(block_size / math.tau, 1.0)
    angles = torch.arange(block_size)[:, None] * longest ** -torch.linspace(0, 1, (n_embd + 1) // 2)
    return torch.cat([angles.sin(), angles.cos()], dim=-1)[:, :n_embd]


class GPT(nn.Module):
    """A decoder: tokens and positions, a stack of blocks, and logits for what comes next.

    Two things differ from nanoGPT. Weights begin with the standard deviation n_embd**-0.5, positions as
    `waves`; nanoGPT's 0.02 is a slow start for a narrow model. Dropout leaves attention weights alone.
    """

    def __init__(self, config: GPTConfig):
        super().__init__()
        self.config = config
        self.block_size = config.block_size
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(config.vocab_size, config.n_embd),
                "wpe": nn.Embedding(config.block_size, config.n_embd),
                "drop": nn.Dropout(config.dropout),
                "h": nn.ModuleList(Block(config) for _ in range(config.n_layer)),
                "ln_f": nn.LayerNorm(config.n_embd, bias=config.bias),
            }
        )
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.lm_head.weight = self.transformer.wte.weight  # one table for reading and for writing
        std = config.n_embd**-0.5
        for name, parameter in self.named_parameters():
            if name.endswith("c_proj.weight"):  # 2 n_layer of these outputs are added up
                nn.init.normal_(parameter, std=std * (2 * config.n_layer) ** -0.5)
            elif parameter.dim() == 2:
                nn.init.normal_(parameter, std=std)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        self.transformer.wpe.weight.data = std * waves(config.block_size, config.n_embd)

    def forward(
        self, ids: Int[Tensor, "B T"], need_weights: bool = False
    ) -> tuple[Float[Tensor, "B T V"], Float[Tensor, "L B H T T"] | None]:
        """Turn ids (B, T) into logits (B, T, vocab_size) and, if asked, weights (n_layer, B, n_head, T, T).

        Raises:
            ValueError: T is larger than block_size.
        """
        T = ids.shape[1]
        if self.block_size < T:
            raise ValueError(
                f"GPT: {T} tokens, but block_size is {self.block_size}. Keep ids[:, -{self.block_size}:]."
            )
        mask = causal_mask(T, device=ids.device)
        x = self.transformer.drop(self.transformer.wte(ids) + self.transformer.wpe.weight[:T])
        of_layers = []
        for block in self.transformer.h:
            x, weights = block(x, mask, need_weights)
            of_layers.append(weights)
        logits = self.lm_head(self.transformer.ln_f(x))
        return logits, torch.stack(of_layers) if need_weights else None


@torch.no_grad()
def generate(
    model: nn.Module,
    ids: Int[Tensor, "B T"],
    max_new_tokens: int,
    temperature: float | int = 1.0,
    top_k: int | None = None,
    generator: torch.Generator | None = None,
) -> Int[Tensor, "B T_new"]:
    """Let a model write on: predict, draw one token, append it, again (`GPT.generate` in nanoGPT).

    It sees the last block_size tokens. Logits are divided by the temperature: below 1 bolder, above 1 more
    varied, at 0 always the best token. top_k leaves only the k best. The result begins with ids.

    Raises:
        ValueError: there is no token to start from, or a number is out of range.
    """
    if ids.shape[1] == 0:
        raise ValueError("generate: ids has shape (B, 0). Give at least one token to start from.")
    if temperature < 0 or (top_k or 1) < 1:
        raise ValueError(
            f"generate: temperature = {temperature} must be at least 0, top_k = {top_k} at least 1."
        )
    training = model.training
    model.eval()
    for _ in range(max_new_tokens):
        logits, _ = model(ids[:, -model.block_size :])
        logits = logits[:, -1]  # (B, V): what follows the last token
        if top_k:
            worst = logits.topk(min(top_k, logits.shape[-1])).values[:, -1:]
            logits = logits.masked_fill(logits < worst, float("-inf"))
        drawn = logits.argmax(dim=-1, keepdim=True)
        if temperature > 0:
            probabilities = torch.softmax(logits / temperature, dim=-1)
            drawn = torch.multinomial(probabilities, 1, generator=generator)
        ids = torch.cat([ids, drawn], dim=1)
    model.train(training)
    return ids
