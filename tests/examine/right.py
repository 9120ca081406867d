"""Right models, ours and others': random parameters, small sizes."""

import functools

import torch
from torch import nn
from torch.nn import functional as F

from attention_course.examine.one_file import Model
from attention_course.gpt import GPT, GPTConfig
from attention_course.llama import Llama, LlamaConfig

V, BLOCK = 29, 24
SHAPE = dict(
    vocab_size=V, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=BLOCK
)
WIDE = SHAPE | dict(intermediate_size=64)
GROUPED = WIDE | dict(num_key_value_heads=2)
IDS = dict(bos_token_id=0, eos_token_id=None, pad_token_id=None)
THEIRS = {
    "GPT2": ("GPT2LMHeadModel", dict(vocab_size=V, n_positions=BLOCK, n_embd=32, n_layer=2, n_head=4)),
    "GPTNeo": (
        "GPTNeoForCausalLM",
        dict(vocab_size=V, max_position_embeddings=BLOCK, hidden_size=32, num_layers=2, num_heads=4,
             window_size=8, attention_types=[[["global", "local"], 1]]),
    ),
    "Llama": ("LlamaForCausalLM", GROUPED),
    "Mistral": ("MistralForCausalLM", GROUPED | dict(sliding_window=6)),
    "Qwen2": ("Qwen2ForCausalLM", GROUPED),
    "Gemma": ("GemmaForCausalLM", WIDE | dict(num_key_value_heads=1, head_dim=8)),
    "Phi": ("PhiForCausalLM", WIDE),
    "GPTNeoX": ("GPTNeoXForCausalLM", WIDE),
    "OPT": ("OPTForCausalLM", SHAPE | dict(ffn_dim=64, word_embed_proj_dim=32)),
    "Bloom": ("BloomForCausalLM", dict(vocab_size=V, hidden_size=32, n_layer=2, n_head=4)),
    "Roberta": (
        "RobertaForCausalLM",
        WIDE | dict(is_decoder=True, pad_token_id=0, max_position_embeddings=BLOCK + 1),
    ),
}  # fmt: skip


def theirs(name: str) -> nn.Module:
    """Make a model of transformers."""
    import transformers  # takes seconds

    kind, sizes = THEIRS[name]
    config = getattr(transformers, f"{name}Config")(**IDS | sizes)
    return getattr(transformers, kind)(config)


class Wrapped(nn.Module):
    """A model with PyTorch's own encoder, which a causal mask makes a decoder; logits in a dict."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(V, 32), nn.Embedding(BLOCK, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, V)

    def forward(self, ids):
        T = ids.shape[1]
        hidden = nn.Transformer.generate_square_subsequent_mask(T)
        x = self.tokens(ids) + self.places(torch.arange(T))
        return {"hidden": x, "logits": self.head(self.layers(x, mask=hidden))}


class NanoForm(Model):
    """nanoGPT's form: without targets it answers for the last position only."""

    def forward(self, ids, targets=None):
        logits, _ = super().forward(ids)
        if targets is None:
            return logits[:, [-1]], None
        return logits, F.cross_entropy(logits.view(-1, V), targets.view(-1), ignore_index=-1)


class Returned(nn.Module):
    """A model inside, and what is done to what it returns; under autocast if a dtype is given."""

    def __init__(self, inside, dtype=None, after=lambda logits: logits):
        super().__init__()
        self.inside, self.dtype, self.after = inside, dtype, after

    def forward(self, ids):
        with torch.autocast("cpu", self.dtype, enabled=self.dtype is not None):
            output = self.inside(ids)
        return self.after(getattr(output, "logits", output))


class Quiet(Model):
    """Its embeddings begin at 0.02, as the first loss asks for; its other layers as PyTorch's."""

    def __init__(self):
        super().__init__(V, BLOCK, width=64, layers=3)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                module.reset_parameters()
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)


class ZeroHead(Model):
    """Its last layer starts at zero, as in modded-nanogpt: nothing depends on anything yet."""

    def __init__(self):
        super().__init__(V, BLOCK)
        nn.init.zeros_(self.head.weight)


class Recurrent(nn.Module):
    """Its memory fades, smoothly."""

    def __init__(self, kind=nn.LSTM, layers=1, width=32):
        super().__init__()
        self.tokens, self.head = nn.Embedding(V, width), nn.Linear(width, V)
        self.layer = kind(width, width, layers, batch_first=True)

    def forward(self, ids):
        return self.head(self.layer(self.tokens(ids))[0])


class Convolution(nn.Module):
    """It sees two tokens before its own, and no attention."""

    def __init__(self):
        super().__init__()
        self.tokens, self.layer, self.head = nn.Embedding(V, 32), nn.Conv1d(32, 32, 3), nn.Linear(32, V)

    def forward(self, ids):
        x = F.pad(self.tokens(ids).mT, (2, 0))
        return self.head(self.layer(x).relu().mT)


class Complex(nn.Module):
    """A linear recurrent unit: a state of complex numbers, which turns and fades."""

    def __init__(self):
        super().__init__()
        self.tokens, self.norm, self.head = nn.Embedding(V, 32), nn.LayerNorm(32), nn.Linear(32, V)
        self.turn = nn.Parameter(torch.polar(torch.full((32,), 0.9), 3 * torch.rand(32)))
        self.read = nn.ParameterList(torch.randn(32, 32, dtype=torch.cfloat) / 6 for _ in range(2))

    def forward(self, ids):
        x = self.tokens(ids)
        distance = torch.arange(ids.shape[1])[:, None] - torch.arange(ids.shape[1])
        decay = (self.turn ** distance.clamp(min=0)[..., None]) * (distance >= 0)[..., None]
        state = torch.einsum("tsc,bsc->btc", decay, x.to(torch.cfloat) @ self.read[0])
        return self.head(self.norm(x + (state @ self.read[1]).real))


class Experts(nn.Module):
    """For each token the one of many linear layers that a router chooses."""

    def __init__(self, like, many=16):
        super().__init__()
        sizes = like.in_features, like.out_features
        self.router = nn.Linear(sizes[0], many)
        self.each = nn.ModuleList(nn.Linear(*sizes) for _ in range(many))

    def forward(self, x):
        share, chosen = self.router(x).softmax(dim=-1).max(dim=-1, keepdim=True)
        return sum(share * (chosen == number) * expert(x) for number, expert in enumerate(self.each))


class Changed(Model):
    """Another first matrix of the feed-forward network."""

    def __init__(self, change):
        super().__init__(V, BLOCK)
        for layer in self.layers:
            layer.up = change(layer.up)


class Counting(Model):
    """In train mode it counts its calls, and computes with the count."""

    calls = 0

    def forward(self, ids, targets=None):
        self.calls += self.training
        logits, _ = super().forward(ids)
        logits = logits * (1 + self.training / self.calls if self.training else 1)
        return logits, None if targets is None else F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Padded(Model):
    """Some ids, the first and the last, are never predicted."""

    def __init__(self, low):
        super().__init__(V, BLOCK)
        self.low = low

    def forward(self, ids, targets=None):
        logits = super().forward(ids)[0].index_fill(-1, torch.tensor([0, V - 1]), self.low)
        return logits, None if targets is None else F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class TokenByToken(GPT):
    """Its cache takes one token after a prefix."""

    def forward(self, ids, cache=None):
        if cache is not None and len(cache) and ids.shape[1] > 1:
            raise ValueError("one token at a time")
        return super().forward(ids, cache)


def ours(**options) -> nn.Module:
    return GPT(GPTConfig(**dict(vocab_size=V, block_size=BLOCK, n_embd=32) | options))


MODELS = {
    **{name: functools.partial(theirs, name) for name in THEIRS},
    "learned": lambda: Model(V, BLOCK),
    "sinusoidal, tied": lambda: Model(V, BLOCK, positions="sinusoidal", tied=True),
    "rotary, six layers": lambda: Model(V, BLOCK, positions="rotary", layers=6),
    "rotary, one layer": lambda: Model(V, BLOCK, positions="rotary", layers=1),
    "ALiBi": lambda: Model(V, BLOCK, positions="alibi"),
    "post-norm": lambda: Model(V, BLOCK, pre_norm=False),
    "post-norm, rotary, tied, six layers": lambda: Model(
        V, BLOCK, pre_norm=False, positions="rotary", tied=True, layers=6
    ),
    "one layer, one head": lambda: Model(V, BLOCK, layers=1, heads=1),
    "dropout, in train mode": lambda: Model(V, BLOCK, dropout=0.2).train(),
    "dropout, in eval mode": lambda: Model(V, BLOCK, dropout=0.2).eval(),
    "nanoGPT's form": lambda: NanoForm(V, BLOCK),
    "nanoGPT's form, averaged": lambda: torch.optim.swa_utils.AveragedModel(NanoForm(V, BLOCK)),
    "nanoGPT's form, compiled": lambda: torch.compile(NanoForm(V, BLOCK), backend="eager"),
    "PyTorch's encoder": Wrapped,
    "last layer starts at zero": ZeroHead,
    "LSTM": Recurrent,
    "GRU": lambda: Recurrent(nn.GRU),
    "LSTM, four layers": lambda: Recurrent(layers=4, width=64),
    "convolution": Convolution,
    "complex parameters": Complex,
    "mixture of experts": lambda: Changed(Experts),
    "spectral norm": lambda: Changed(nn.utils.parametrizations.spectral_norm),
    "counting in training": lambda: Counting(V, BLOCK),
    "padded with -inf": lambda: Padded(-torch.inf),
    "padded with the lowest number": lambda: Padded(torch.finfo().min),
    "cache, token by token": lambda: TokenByToken(GPTConfig(V, BLOCK, n_embd=32)),
    "small embeddings": Quiet,
    "bfloat16": lambda: Model(V, BLOCK).bfloat16(),
    "fast products": lambda: Returned(
        ours(), after=lambda logits: torch.set_float32_matmul_precision("high") or logits
    ),
    "GPT in float16": lambda: ours().half(),
    "GPT in float64": lambda: ours().double(),
    "Bloom in float64": lambda: theirs("Bloom").double(),
    "GPT2 with logits in float16": lambda: Returned(theirs("GPT2"), after=torch.Tensor.half),
    "Gemma under autocast": lambda: Returned(theirs("Gemma"), torch.bfloat16),
    "Llama under autocast, logits in float32": lambda: Returned(
        theirs("Llama"), torch.bfloat16, torch.Tensor.float
    ),
    "GPT": ours,
    "GPT, six layers, dropout, bias": lambda: ours(n_layer=6, dropout=0.1, bias=True),
    "Llama of rung 9": lambda: Llama(LlamaConfig(vocab_size=V, block_size=BLOCK, n_embd=32)),
}  # fmt: skip
