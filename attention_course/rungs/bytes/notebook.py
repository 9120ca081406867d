# %% [markdown]
# # Rung {bytes}: bytes
#
# <!--ladder-->
#
# **You will build** a smaller GPT that learns to answer nearly all questions in about half of the time that rung {bigram_to_gpt}'s takes, one trick at a time, and attention that never makes its table of scores. You will also build the clock for it: a measurement that one can believe.

# %% tags=["hero", "folded"]
# The opening picture: the race of the recipes
from attention_course.heroes import hero

hero("bytes")

# %% [markdown]
# **You need** [rung {query_key_value}]({query_key_value}.ipynb) for attention, [rung {bigram_to_gpt}]({bigram_to_gpt}.ipynb) for the GPT and its recipe, [rung {a_real_model}]({a_real_model}.ipynb) for rotary positions and the cache.
#
# <!--time-->
#
# ![The transformer as a drawing. Lit is what this rung builds anew: the inside of attention, from the scores to the weighted values, without a table between them.](images/transformer_bytes.svg)

# %% [markdown]
# ## The question
#
# The GPT of rung {bigram_to_gpt} trains in about a minute. Large models train for months, and each hour costs money. How much of that computing is needed? And if somebody says “twice as fast”, how would you know?

# %% tags=["folded"]
# Imports
import platform
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from attention_course.attention import (
    Cache,
    attend,
    attention,
    causal_mask,
    leak_probe,
    record_weights,
)
from attention_course.exercises import check
from attention_course.explorers import explore
from attention_course.fills import fill
from attention_course.rungs.speed_run.explorer_recipes import (
    LEVEL,
    MARK,
    measured,
    p_value,
    run_of,
    said,
)
from attention_course.flash import (
    MemoryMeter,
    flash_attention,
)
from attention_course.gpt import autocast_dtype, evaluating
from attention_course.llama import Llama, LlamaConfig, Rotary
from attention_course.plots import Lines, picture
from attention_course.progress import progress
from attention_course.questions import ask
from attention_course.speedrun import (
    TRICKS,
    TokenShift,
    newton_schulz,
    speedrun,
)
from attention_course.stories import answer_accuracy
from attention_course.text import Data, get_batch, load_text
from attention_course.training import RECIPES, evaluate, run

torch.set_printoptions(precision=3, sci_mode=False)

progress("bytes")

# %% [markdown]
# ## Attention without its table
#
# Now a single call. The attention of rung {query_key_value} makes a table of T × T scores. With T = 8192 that is 67,108,864 numbers for each head: 268 MB in float32.

# %%
T = 8192
table = T * T, round(4 * T * T / 1e6)  # numbers, and MB
assert table == (67_108_864, 268)
table

# %% [markdown]
# Rung {multi_head} said that FlashAttention does without it. How? Each output needs softmax over a whole row, and the softmax needs the largest score and the sum of the row. Can one have these without ever having the row?
#
# Here is a row of four scores, with a value for each. Only two at a time may be looked at.

# %%
scores = torch.tensor([1.0, 3.0, 2.0, 5.0])
values = torch.tensor([10.0, 20.0, 30.0, 40.0])
largest = scores[:2].max()
exp = (scores[:2] - largest).exp()
total, output = exp.sum(), exp @ values[:2]
print(f"largest {largest}, sum {total:.2f}, weighted sum {output:.2f}")

# %% [markdown]
# (As in rung {masked_softmax}, the largest score is subtracted before exp, so that nothing overflows.) If the row ended here, the output would be the weighted sum divided by the sum. But two more scores come, and one of them is larger.

# %% tags=["folded"]
# Question
ask("a_larger_maximum")

# %%
larger = torch.maximum(largest, scores[2:].max())
correction = (largest - larger).exp()  # what was counted from 3, from 5
exp = (scores[2:] - larger).exp()
new_total = total * correction + exp.sum()
new_output = output * correction + exp @ values[2:]
print(f"output {new_output / new_total:.2f}")

# %% tags=["lesson"]
weights = torch.softmax(scores, dim=-1)
torch.testing.assert_close(new_output / new_total, weights @ values)

# %% [markdown]
# A running maximum, a running sum, and one factor that corrects what came before. That is the **online softmax** (Milakov & Gimelshein 2018). It takes any number of blocks: before the first one the maximum is −∞, and its factor exp(−∞) is 0.
#
# `flash_attention` cuts queries and keys into blocks of 128<!--given-->, and makes one block of scores at a time. Blocks that the causal mask hides are skipped.
#
# **Prove.** It equals the `attention` of rung {query_key_value}, with any mask.

# %% tags=["proof"]
torch.manual_seed(0)
q, k, v = torch.randn(3, 2, 300, 16)  # two heads, 300 tokens
visible = torch.rand(300, 300) > 0.3
visible[7] = False  # query 7 may look nowhere
for mask in (None, causal_mask(300), visible):
    with_table = attention(q, k, v, mask)[0]
    torch.testing.assert_close(flash_attention(q, k, v, mask), with_table)
torch.testing.assert_close(
    flash_attention(q, k, v, is_causal=True),
    attention(q, k, v, causal_mask(300))[0],
)

# %% [markdown]
# Training needs the gradient, too, and backpropagation needs the weights. Are they to be kept after all? No: they are made anew, block by block. For that, the forward pass keeps one number for each query: the logarithm of its sum of exps. A weight is exp(score − that number). So some products are done twice, to save memory.

# %% tags=["proof"]
inputs = [part.requires_grad_() for part in (q, k, v)]
towards = torch.randn(2, 300, 16)
by_table = torch.autograd.grad(
    (attention(*inputs, causal_mask(300))[0] * towards).sum(), inputs
)
by_blocks = torch.autograd.grad(
    (flash_attention(*inputs, is_causal=True) * towards).sum(), inputs
)
torch.testing.assert_close(by_blocks, by_table)

# %% [markdown]
# And the memory? `MemoryMeter` watches all tensors that are made.

# %%
q, k, v = torch.randn(3, T, 64)
with MemoryMeter() as meter:
    flash_attention(q, k, v, is_causal=True)
print(f"the largest tensor has {meter.largest / 4:,.0f} numbers")
assert meter.largest / 4 < T * T / 100

# %% [markdown]
# That is T × 64, the output. No block of scores is larger.
#
# How does it do beside the others? SDPA has the same idea, in one compiled routine. Ours is a loop in Python. (The meter does not see what a compiled routine uses inside.)


# %% tags=["folded", "nbval-ignore-output"]
# Measure: seconds and memory, forward and backward, over T
def attend_by(way, T):
    q, k, v = torch.randn(3, 1, 1, T, 64, requires_grad=True).unbind()
    way(q, k, v).sum().backward()


ways = {
    "table": lambda q, k, v: attention(q, k, v, causal_mask(q.shape[2]))[0],
    "flash_attention": lambda q, k, v: flash_attention(
        q, k, v, is_causal=True
    ),
    "SDPA": lambda q, k, v: F.scaled_dot_product_attention(
        q, k, v, is_causal=True
    ),
}
lengths = torch.tensor([256, 512, 1024, 2048])
medians = {name: [] for name in ways}
peaks = {name: [] for name in ways}
for length in lengths.tolist():
    sides = {
        name: lambda way=way: attend_by(way, length)
        for name, way in ways.items()
    }
    for name, seconds in in_turns(sides, rounds=3).items():
        medians[name].append(seconds[1])
        with MemoryMeter() as meter:
            sides[name]()
        peaks[name].append(meter.peak / 1e6)
for name in ways:
    print(f"{name:16}{1000 * medians[name][-1]:6.0f} ms, T = {length}")

# %% tags=["folded"]
# Picture: seconds and memory of three ways, on your machine
assert peaks["table"][-1] > 12 * peaks["table"][-3]
assert peaks["flash_attention"][-1] < 5 * peaks["flash_attention"][-3]
assert peaks["flash_attention"][-1] < peaks["table"][-1] / 8
picture(
    *(
        Lines(
            title,
            lengths,
            {name: torch.tensor(each) for name, each in of.items()},
            "T",
            label,
        )
        for title, of, label in (
            ("Time", medians, "seconds"),
            ("Memory", peaks, "MB"),
        )
    ),
    alt="Time and memory of three ways over T, all axes logarithmic. In "
    "memory the line of the table climbs twice as steeply as the other "
    "two. In time SDPA is the fastest.",
)

# %% [markdown]
# The memory of the table grows with the square of T, that of the others with T. In time ours beats the table on long texts: it skips the blocks that the mask hides, nearly half of the products. And it is slower than SDPA: the same products, but each block goes through Python, and through memory. On a GPU the block stays in a small fast memory beside the processor, and that is the point of the paper (Dao et al. 2022): not fewer products, but fewer bytes moved.


# %% [markdown]
# ## Writing
#
# Training reads a whole text at once. Writing makes one token at a time, and the cache of rung {a_real_model} saves most of the work. With the cache, what is left? All parameters are read for each token, and so are all keys and values of each text. Grouped queries have fewer keys to read.


# %% tags=["folded", "nbval-ignore-output"]
# Measure: ms for one more token of 8 texts that have T tokens
def writer(model, T, with_cache):
    ids = torch.randint(33, (8, T + 1))
    cache = Cache()
    if with_cache:
        model(ids[:, :T], cache)

    def step():
        if with_cache:
            cache._length = T  # the same token again
            return model(ids[:, T:], cache)
        return model(ids)[:, -1:]

    return step, cache


lengths = torch.tensor([64, 128, 256, 512])
config = dict(block_size=1024, n_layer=2, n_head=8, n_embd=256)
every, grouped = (
    Llama(LlamaConfig(V, n_kv_head=heads, n_hidden=680, **config))
    for heads in (8, 2)
)
ways = {
    "no cache": (every, False),
    "cache": (every, True),
    "cache, grouped keys": (grouped, True),
}
ms = {name: [] for name in ways}
with evaluating(every), evaluating(grouped):
    for length in lengths.tolist():
        steps = {
            name: writer(model, length, with_cache)[0]
            for name, (model, with_cache) in ways.items()
        }
        for name, seconds in in_turns(steps, rounds=3).items():
            ms[name].append(1000 * seconds[1])
    kept = [
        writer(model, length, True)[1].numel() for model in (every, grouped)
    ]
for name, each in ms.items():
    print(f"{name:20}{each[-1]:7.1f} ms, T = {length}")

# %% tags=["folded"]
# Picture: ms a token over T; with grouped keys the cache is a fourth
assert kept[0] == 4 * kept[1]
picture(
    Lines(
        "One more token of 8 texts",
        lengths,
        {name: torch.tensor(each) for name, each in ms.items()},
        "tokens so far",
        "ms",
    ),
    alt="Milliseconds for one more token over the tokens so far, both axes "
    "logarithmic. Without a cache the line climbs, far above the two "
    "with a cache.",
)

# %% [markdown]
# With two heads of keys in place of eight, the cache is a fourth as large, and there is less to read. It matters most where many long texts are written at once: then the keys are most of what has to be read, and most of the memory.


# %% [markdown]
# ## Under the roof
#
# How fast could it be? Two numbers of a machine say a lot. How many products can it do per second, if everything it needs is at hand? And how many bytes can it fetch from memory per second?
#
# A product and a sum are two **FLOPs**, floating-point operations. A matrix product (n, k) @ (k, m) takes 2 · n · k · m of them. `FlopCounterMode` counts those of all matrix products. The ceiling depends on the type of the numbers, so we measure it with the one in which our training multiplies on your machine.

# %% tags=["nbval-ignore-output"]
cpu = torch.device("cpu")
dtype = autocast_dtype(cpu)  # in which the run multiplies on this machine
n = 1024
a, b, c = torch.randn(3, n, n).to(dtype)
long = torch.randn(2, 2**24)
sides = {
    "product": lambda: torch.mm(a, b, out=c),
    "copy": lambda: long[0].copy_(long[1]),
}
quickest = {name: each[0] for name, each in in_turns(sides).items()}
most_flops = 2 * n**3 / quickest["product"]
most_bytes = long.nbytes / quickest["copy"]  # half read, half written
print(f"{most_flops / 1e9:.0f} billion FLOPs per second in {dtype}")
print(f"{most_bytes / 1e9:.1f} billion bytes per second")

# %% tags=["folded"]
# Check: what FlopCounterMode counts
with FlopCounterMode(display=False) as counter:
    a @ b
    F.layer_norm(a, (n,))
assert counter.get_total_flops() == 2 * n**3  # nothing for LayerNorm

# %% [markdown]
# A step that does many FLOPs with each byte that it fetches can be limited by the first number, and is then **compute-bound**. A step that does few can be waiting for its bytes, and is then **memory-bound**. Draw what is possible over the FLOPs for each byte, and you get a slope and a ceiling: the **roofline** (Williams et al. 2009). At f FLOPs for each byte, memory allows f times its bytes a second, and the processor its most; the smaller of the two is the roof.
#
# Where do the parts of our recipe stand?


# %% tags=["folded", "nbval-ignore-output"]
# Measure: FLOPs, bytes and seconds of four parts of a training step
n_embd, batch = sizes.n_embd, plain.recipe.batch_size
rows, hidden = batch * 128, 4 * n_embd  # tokens of a batch
x = torch.randn(rows, n_embd)
into = torch.randn(hidden, n_embd).to(dtype)
heads = torch.randn(3, batch, 4, 128, n_embd // 4).to(dtype)
numbers = sum(p.numel() for p in plain.model.parameters())
size = into.element_size()
parts = {  # what is run, its FLOPs, its bytes
    "matrix product": (
        lambda x=x.to(dtype): F.linear(x, into),
        2 * rows * n_embd * hidden,
        size * (rows * n_embd + rows * hidden + n_embd * hidden),
    ),
    "attention": (
        lambda: attend(*heads, is_causal=True),
        2 * heads[0].numel() * (128 + 1),  # query t has t + 1 keys
        size * 4 * heads[0].numel(),
    ),
    "LayerNorm": (
        lambda: F.layer_norm(x, (n_embd,)),
        8 * x.numel(),
        4 * 2 * x.numel(),
    ),
    "AdamW": (plain.optimizer.step, 12 * numbers, 4 * 7 * numbers),
}
with torch.no_grad():
    with FlopCounterMode(display=False) as counter:
        parts["matrix product"][0]()
    assert counter.get_total_flops() == parts["matrix product"][1]
    took = in_turns({name: part[0] for name, part in parts.items()}, 20)
print(f"{'':16}per byte    roof reached  (billion FLOPs per second)")
for name, (_, flops, count) in parts.items():
    roof = min(flops / count * most_bytes, most_flops) / 1e9
    reached = flops / took[name][10] / 1e9
    print(f"{name:16}{flops / count:8.1f}{roof:8.1f}{reached:8.1f}")

# %% tags=["folded"]
# Picture: the roofline of your machine
per_byte = torch.tensor([f / b for _, f, b in parts.values()])
assert per_byte[2:].max() <= 1
assert per_byte[:2].min() > 15
speed = torch.tensor(
    [f / took[name][10] / 1e9 for name, (_, f, _) in parts.items()]
)
edge = most_flops / most_bytes
x_axis = torch.cat([torch.tensor([0.1, edge, 1000.0]), per_byte])
roof = torch.minimum(
    x_axis[:3] * most_bytes / 1e9, torch.tensor(most_flops / 1e9)
)
empty = torch.full((len(parts),), torch.nan)
points = {
    name: torch.where(torch.arange(len(parts)) == i, speed, torch.nan)
    for i, name in enumerate(parts)
}
picture(
    Lines(
        "What is possible, and what is reached",
        x_axis,
        {
            "the roof": torch.cat([roof, empty]),
            **{
                name: torch.cat([torch.full((3,), torch.nan), point])
                for name, point in points.items()
            },
        },
        "FLOPs for each byte",
        "billion FLOPs a second",
    ),
    alt="The roofline, both axes logarithmic: a slope that bends into a "
    "ceiling. LayerNorm and AdamW are far to the left, under the slope; "
    "attention and the matrix product are far to the right, under the "
    "ceiling.",
)

# %% [markdown]
# (FLOPs and bytes of LayerNorm and AdamW are counted by hand, of the others by their shapes: a part reads its inputs and writes its output once. Attention needs only the products that the causal mask leaves, about half. A processor also has a small fast memory, its cache. What fits in there can stand above the slope.)
#
# LayerNorm and AdamW do at most one FLOP for each byte. They stand under the slope, so at best they are as fast as their bytes arrive. The matrix product and attention do more than 15, and stand under the ceiling.
#
# Which side a part is on is only half of what the picture says. A part is memory-bound if it *reaches* the slope, and compute-bound if it reaches the ceiling. One that stays far below both is bound by neither, and a faster memory would do little for it. In a model as small as ours a call is over so soon that starting it can take longer than the work.

# %% tags=["folded"]
# Question
ask("which_roof")

# %% [markdown]
# How many FLOPs is a whole training step? There is a rule of thumb (Kaplan et al. 2020): for each parameter and each token, a forward pass takes 2 FLOPs, one product and one sum, and the backward pass twice as many. That makes 6.

# %%
x, y = get_batch(data.train, 128, 16, torch.Generator().manual_seed(0))
with record_weights(), FlopCounterMode(display=False) as counter:
    F.cross_entropy(fast.model(x).flatten(0, 1), y.flatten()).backward()
matrices = [p for p in fast.model.parameters() if p.dim() == 2]
in_products = sum(p.numel() for p in matrices)
counted, rule = counter.get_total_flops(), 6 * in_products * x.numel()
print(f"counted {counted:,}, by the rule {rule:,}")
assert 1.1 < counted / rule < 1.5

# %% [markdown]
# The count is larger, because the rule leaves out attention's own products, scores and weighted sums, which have no parameters. (`record_weights` makes the model compute its table, where the counter can see it. Inside a fused kernel on a CPU it counts nothing.)
#
# How much of what is possible did the run reach?

# %% tags=["nbval-ignore-output"]
flops_per_second = counted / (fast.seconds / fast.steps_done)
print(f"{100 * flops_per_second / most_flops:.0f} % of the ceiling")

# %% [markdown]
# Both numbers are for the same type of number, which is the only fair way to divide them. We have not measured where the rest goes; small products, calls that take longer than what they compute, and Python are likely. Larger models come closer to the ceiling, because their products are larger.


# %% [markdown]
# ## Exercises
#
# ### 1. An online softmax
#
# <!--task online_softmax-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("online_softmax")


# %%
def my_online_softmax(blocks):
    raise NotImplementedError


check("online_softmax", my_online_softmax)

# %% [markdown]
# ## In the wild
#
# - modded-nanogpt is a race to train, on eight H100 GPUs, a model as good as a replication of GPT-2 small: from 45<!--given--> minutes in 2024 to less than two in 2026. Its rules include the ones that you used here: everybody reads the same text, and a new record needs enough runs to show, at p < 0.01<!--given-->, that the mean loss is reached. Muon was introduced there (the idea of its iteration is in Bernstein & Newhouse 2024), and a kind of token shift is in it, called smear.
# - `torch.optim.Muon` is in PyTorch. Large models have been trained with variants of it: Kimi K2 has a trillion parameters.
# - `F.scaled_dot_product_attention` chooses between FlashAttention and other kernels. On a GPU, a mask tensor rules out FlashAttention; `is_causal=True` does not.
# - vLLM serves many people at once. It cuts the cache into pages, so that texts of any length share the memory (Kwon et al. 2023). How many texts fit beside the parameters is a matter of their keys and values.
# - What papers report for a training run is close to this share of the ceiling: model FLOPs utilization (MFU) adds attention's products to the rule of 6, and divides by the peak that the maker promises. Large runs reach about 40 %<!--given-->.


# %% [markdown]
# ## Three sentences to remember
#
# 1. Five tricks together take about half of the time. Added one after the other, only the last makes a clear difference; taken out one at a time, all but the schedule are missed. What a trick is worth depends on the others, so measure.
# 2. Softmax needs no whole row: a running maximum, a running sum and one correction are enough, and memory grows like T.
# 3. A speed-up counts if both sides did the same work, to the same mark, in turns, and the clock waited for both.
#
# Next: [rung {an_empty_page}]({an_empty_page}.ipynb), where you write the GPT yourself.
#
# <!--neighbours-->


