"""A small GPT in which real bugs are rebuilt: a bug overrides one method. And the forms of its interface."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import nn

SIZES = dict(
    vocab_size=29, block_size=24, n_embd=32, n_head=4, n_layer=2, dropout=0.0, positions="learned", windows=()
)


@dataclass(frozen=True)
class Real:
    """A bug that people had: where they tell of it, what it is, and the models, broken and mended."""

    address: str
    what: str
    make: Callable[[bool], nn.Module]
    given: Callable[[nn.Module], dict[str, object]]


def collect(bugs: dict[str, Real]):
    """Return a decorator that adds a factory, of a model that is broken or not, to these bugs."""

    def real(address, what, given=lambda model: {}):
        def add(make):
            bugs[make.__name__] = Real(address, what, make, given)
            return make

        return add

    return real


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config, C = config, config.n_embd
        self.q_proj, self.k_proj, self.v_proj, self.c_proj = (nn.Linear(C, C) for _ in range(4))

    def forward(self, x, positions, mask, past=None):
        q, k, v = (self.split(proj(x)) for proj in (self.q_proj, self.k_proj, self.v_proj))
        if self.config.positions == "rotary":
            cos, sin = (each.to(x.dtype)[..., None, :, :] for each in self.cos_sin(positions))
            q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
        if past is not None:
            k, v = (torch.cat(pair, dim=2) for pair in zip(past, (k, v), strict=True))
        return self.c_proj(self.merge(self.attend(q, k, v, mask))), (k, v)

    def split(self, x):
        return x.unflatten(-1, (self.config.n_head, -1)).transpose(1, 2)

    def cos_sin(self, positions):
        angles = positions[..., None] * frequencies(self.config)
        return angles.cos(), angles.sin()

    def rotate(self, x, cos, sin):
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)

    def attend(self, q, k, v, mask):
        dropout = self.config.dropout if self.training else 0.0
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)

    def merge(self, y):
        return y.transpose(1, 2).flatten(2)


class Eager(Attention):
    """Attention written out: the second implementation, for a reference."""

    def attend(self, q, k, v, mask):
        scores = torch.einsum("bhid,bhjd->bhij", q, k) / q.shape[-1] ** 0.5
        return torch.einsum("bhij,bhjd->bhid", scores.masked_fill(~mask, -torch.inf).softmax(dim=-1), v)


def frequencies(config, base=10000.0):
    D = config.n_embd // config.n_head
    return base ** (-torch.arange(0, D, 2).float() / D)


class Block(nn.Module):
    def __init__(self, config, attention, norm):
        super().__init__()
        C = config.n_embd
        self.ln_1, self.attn, self.ln_2 = norm(C), attention(config), norm(C)
        layers = dict(c_fc=nn.Linear(C, 4 * C), gelu=nn.GELU(), c_proj=nn.Linear(4 * C, C))
        self.mlp = nn.Sequential(OrderedDict(layers))

    def forward(self, x, *around):
        y, present = self.attn(self.ln_1(x), *around)
        x = x + y
        return x + self.mlp(self.ln_2(x)), present


class GPT(nn.Module):
    """Ids to logits; `run` has all that other forms need. `windows` has for each layer how much it sees."""

    def __init__(self, attention=Attention, block=Block, norm=nn.LayerNorm, std=0.1, **sizes):
        super().__init__()
        self.config = config = SimpleNamespace(**SIZES | sizes)
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        if config.positions == "learned":
            self.wpe = nn.Embedding(config.block_size, config.n_embd)
        self.h = nn.ModuleList(block(config, attention, norm) for _ in range(config.n_layer))
        self.ln_f, self.lm_head = norm(config.n_embd), nn.Linear(config.n_embd, config.vocab_size, bias=False)
        for module in self.modules():
            if std and isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=std)

    def forward(self, x):
        return self.run(self.wte(x))[0]

    def run(self, x, positions=None, past=None, attention_mask=None):
        """Map embeddings (B, T, C), after `past`, to logits (B, T, V) and the keys and values of all."""
        T, before, presents = x.shape[1], past[0][0].shape[2] if past else 0, []
        if positions is None:
            positions = torch.arange(before, before + T)
        if self.config.positions == "learned":
            x = x + self.wpe(positions)
        for layer, block in enumerate(self.h):
            mask = self.mask(layer, T, before + T, attention_mask)
            x, present = block(x, positions, mask, past[layer] if past else None)
            presents.append(present)
        return self.lm_head(self.ln_f(x)), presents

    def mask(self, layer, T, S, attention_mask):
        """Return which of S tokens each of the last T sees, (1 or B, 1, T, S)."""
        own = torch.ones(T, S, dtype=torch.bool).tril(S - T)
        if self.config.windows and (window := self.config.windows[layer]):
            own = own.triu(S - T - window + 1)
        if attention_mask is None:
            return own[None, None]
        itself = torch.eye(S, dtype=torch.bool)[-T:]
        return own & (attention_mask[:, None, None].bool() | itself)


def next_of(logits, sample, temperature=1.0, top_k=None):
    """Choose the token after each of some texts, (B, 1), from logits (B, V)."""
    if not sample:
        return logits.argmax(dim=-1, keepdim=True)
    logits = logits / temperature
    if top_k:
        least = logits.topk(min(top_k, logits.shape[-1])).values[:, [-1]]
        logits = logits.masked_fill(logits < least, -torch.inf)
    return logits.softmax(dim=-1).multinomial(1)


class Nano(GPT):
    """As in nanoGPT."""

    def forward(self, idx, targets=None):
        logits, _ = self.run(self.wte(idx))
        if targets is None:
            return logits[:, [-1]], None
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)

    @torch.no_grad()
    def generate(self, idx, max_new_tokens, temperature=1.0, top_k=None):
        for _ in range(max_new_tokens):
            logits = self(idx[:, -self.config.block_size :])[0][:, -1]
            idx = torch.cat([idx, next_of(logits, True, temperature, top_k)], dim=1)
        return idx


class HF(GPT):
    """As in transformers."""

    def __init__(self, *parts, **sizes):
        super().__init__(*parts, **sizes)
        self.config.max_position_embeddings = self.config.block_size

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        past_key_values=None,
        inputs_embeds=None,
        labels=None,
        use_cache=True,
    ):
        x = self.wte(input_ids) if inputs_embeds is None else inputs_embeds
        logits, presents = self.run(x, position_ids, past_key_values, attention_mask)
        loss = None if labels is None else self.loss(logits, labels)
        return SimpleNamespace(
            loss=loss, logits=logits, past_key_values=tuple(presents) if use_cache else None
        )

    def loss(self, logits, labels):
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())

    def _init_weights(self, module):
        """Fill a part that a checkpoint lacks: from_pretrained builds on the meta device."""

    def prepare_position_ids(self, input_ids, attention_mask):
        if attention_mask is None:
            return None
        return (attention_mask.cumsum(-1) - 1).clamp(min=0)[:, -input_ids.shape[1] :]

    @torch.no_grad()
    def generate(
        self, input_ids, attention_mask=None, max_new_tokens=20, do_sample=False, temperature=1.0, top_k=50
    ):
        past, new = None, input_ids
        for _ in range(max_new_tokens):
            positions = self.prepare_position_ids(new, attention_mask)
            output = self(new, attention_mask, positions, past)
            past, new = output.past_key_values, next_of(output.logits[:, -1], do_sample, temperature, top_k)
            input_ids = torch.cat([input_ids, new], dim=1)
            if attention_mask is not None:
                attention_mask = torch.cat([attention_mask, torch.ones_like(new)], dim=1)
        return input_ids


def same_weights(other, model):
    """Return another model with the weights of this one."""
    other.load_state_dict(model.state_dict())
    return other.eval()
