"""A GPT in one file, written otherwise than the package's: the model in which bugs are planted.

Its choices: separate q, k and v with einsum, a buffer for the mask, post-norm or pre-norm, untied or tied,
and positions learned, sinusoidal, rotary or by ALiBi. It returns (logits, loss), and has its own generate.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor


class Layer(nn.Module):
    """Attention and a feed-forward network."""

    future: Tensor
    slopes: Tensor

    def __init__(self, width, heads, block_size, dropout, positions, pre_norm):
        super().__init__()
        self.heads, self.positions, self.pre_norm, self.dropout = heads, positions, pre_norm, dropout
        self.to_q = nn.Linear(width, width)
        self.to_k = nn.Linear(width, width)
        self.to_v = nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.norm_a = nn.LayerNorm(width)
        self.norm_b = nn.LayerNorm(width)
        self.register_buffer("future", torch.ones(block_size, block_size, dtype=torch.bool).triu(1))
        if positions == "alibi":
            self.register_buffer("slopes", 2.0 ** (-8 * torch.arange(1, heads + 1) / heads))

    def rotate(self, x):
        """Rotate x (B, T, H, head_size) by positions; see `llama.Rotary`."""
        T, half = x.shape[1], x.shape[-1] // 2
        speeds = 10000.0 ** (-torch.arange(half) / half)
        angles = (torch.arange(T)[:, None] * speeds)[None, :, None]
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], dim=-1)

    def attend(self, x):
        """Map x (B, T, C) to the output of attention, (B, T, C)."""
        B, T, C = x.shape
        q = self.to_q(x).view(B, T, self.heads, C // self.heads)
        k = self.to_k(x).view(B, T, self.heads, C // self.heads)
        v = self.to_v(x).view(B, T, self.heads, C // self.heads)
        if self.positions == "rotary":
            q, k = self.rotate(q), self.rotate(k)
        scores = torch.einsum("bihd,bjhd->bhij", q, k) / math.sqrt(C // self.heads)
        if self.positions == "alibi":
            distance = torch.arange(T)[:, None] - torch.arange(T)
            scores = scores - self.slopes[:, None, None] * distance
        scores = scores.masked_fill(self.future[:T, :T], -1e9)
        weights = F.dropout(scores.softmax(dim=-1), self.dropout, self.training)
        mixed = torch.einsum("bhij,bjhd->bihd", weights, v)
        return self.out(mixed.reshape(B, T, C))

    def feed(self, x):
        """Map x (B, T, C) to the output of the feed-forward network, (B, T, C)."""
        return F.dropout(self.down(F.relu(self.up(x))), self.dropout, self.training)

    def forward(self, x):
        """Map x (B, T, C) to an output of the same shape."""
        if self.pre_norm:
            x = x + self.attend(self.norm_a(x))
            return x + self.feed(self.norm_b(x))
        x = self.norm_a(x + self.attend(x))
        return self.norm_b(x + self.feed(x))


class Model(nn.Module):
    """The model.

    Args:
        vocab_size: V.
        block_size: the context length.
        width: channels of a token.
        heads: heads of a layer.
        layers: number of layers.
        dropout: the probability of zeroing a weight of attention, or what the feed-forward network adds.
        positions: "learned", "sinusoidal", "rotary" or "alibi".
        pre_norm: whether a norm stands before each part, or behind each sum.
        tied: whether the last layer shares the token embeddings.
    """

    waves: Tensor

    def __init__(
        self,
        vocab_size=29,
        block_size=24,
        width=32,
        heads=4,
        layers=2,
        dropout=0.0,
        positions="learned",
        pre_norm=True,
        tied=False,
    ):
        super().__init__()
        self.vocab_size, self.block_size, self.positions = vocab_size, block_size, positions
        self.tokens = nn.Embedding(vocab_size, width)
        if positions == "learned":
            self.places = nn.Embedding(block_size, width)
        self.layers = nn.ModuleList(
            [Layer(width, heads, block_size, dropout, positions, pre_norm) for _ in range(layers)]
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab_size, bias=False)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=width**-0.5)
        if tied:
            self.head.weight = self.tokens.weight
        if positions == "sinusoidal":
            waves = torch.arange(block_size)[:, None] / 100.0 ** (torch.arange(width // 2) * 2 / width)
            self.register_buffer("waves", torch.cat([waves.sin(), waves.cos()], dim=-1))

    def forward(self, ids, targets=None):
        """Map ids (B, T) to logits (B, T, V), and the loss if there are targets (B, T)."""
        T = ids.shape[1]
        x = self.tokens(ids)
        if self.positions == "learned":
            x = x + self.places(torch.arange(T))
        if self.positions == "sinusoidal":
            x = x + self.waves[:T]
        for layer in self.layers:
            x = layer(x)
        logits = self.head(self.norm(x))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    @torch.no_grad()
    def generate(self, ids, max_new_tokens):
        """Sample autoregressively, from the last block_size tokens each time."""
        for _ in range(max_new_tokens):
            logits, _ = self(ids[:, -self.block_size :])
            ids = torch.cat([ids, logits[:, -1].softmax(dim=-1).multinomial(1)], dim=1)
        return ids
