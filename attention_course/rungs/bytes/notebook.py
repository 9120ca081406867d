# %% [markdown]
# # Rung {bytes}: bytes
#
# <!--ladder-->
#
# **You will build** attention that never makes its table of scores, and measure how fast your machine could be.
#
# Your GPT reads 128<!--given--> letters at a time. Give it a chapter of a book, 8,192<!--given--> tokens, and every head makes a table with a score for each pair of them. You'd soon run out of memory. And even with enough of it, the chip that multiplies is so fast that it would mostly wait for such tables to arrive. So in this rung we count bytes.

# %% tags=["hero", "folded"]
# The opening picture: guess first, then let the scores arrive
from attention_course.heroes import hero

hero("bytes")

# %% [markdown]
# **You need** [rung {masked_softmax}]({masked_softmax}.ipynb) for softmax, [rung {query_key_value}]({query_key_value}.ipynb) for attention, and [rung {a_real_model}]({a_real_model}.ipynb) for the cache and grouped keys.
#
# <!--time-->
#
# <!--test-out-->

# %% tags=["folded"]
# Two questions from the rungs below
from attention_course.questions import warm_up

warm_up("bytes")

# %% tags=["folded"]
# Imports
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from attention_course.attention import (
    Cache,
    attend,
    attention,
    causal_mask,
    record_weights,
)
from attention_course.exercises import check
from attention_course.explorers import explore
from attention_course.fills import fill
from attention_course.flash import MemoryMeter, flash_attention
from attention_course.gpt import autocast_dtype, evaluating
from attention_course.llama import Llama, LlamaConfig
from attention_course.plots import Lines, picture
from attention_course.progress import progress
from attention_course.questions import ask
from attention_course.smollm import SMOLLM
from attention_course.speedrun import in_turns, speedrun
from attention_course.text import Corpus, get_batch, load_text

torch.set_printoptions(precision=3, sci_mode=False)

progress("bytes")

# %% [markdown]
# ## How large is the table?

# %% tags=["folded"]
# Question
ask("size_of_the_table")

# %%
T, head_size = 8192, 64
table = 4 * T * T / 1e6  # MB, of the scores of one head in float32
inputs = 4 * 3 * T * head_size / 1e6  # of its queries, keys and values
f"{table:.0f} MB and {inputs:.0f} MB"

# %% [markdown]
# And this table travels between memory, where numbers are kept, and the processor, which multiplies them. It's written to memory, read back for the softmax, written again as weights, and read once more to be multiplied with the values. Take the H100, a GPU that many models were trained on. According to NVIDIA's data sheet (for the SXM version), its memory delivers 3.35<!--given--> TB per second. That sounds like a lot, but the chip also does 989<!--given--> trillion multiplications and additions of 16-bit numbers per second. So while one such number arrives, it could do {{989 / 3.35:.0f}} multiplications and as many additions. This means the arithmetic is cheap, and moving bytes is what costs.
#
# ## A softmax in two blocks
#
# Rung {multi_head} said that FlashAttention does without the table. How? Each output needs the softmax over a whole row, and the softmax needs the row's largest score and its sum. Can we compute them without ever holding the whole row?
#
# Here is a row of four scores, with a value for each. You may only look at two at a time.

# %%
scores = torch.tensor([1.0, 3.0, 2.0, 5.0])
values = torch.tensor([10.0, 20.0, 30.0, 40.0])
largest = scores[:2].max()
exp = (scores[:2] - largest).exp()
total, output = exp.sum(), exp @ values[:2]
print(f"largest {largest}, sum {total:.2f}, weighted sum {output:.2f}")

# %% [markdown]
# (As in rung {masked_softmax}, we subtract the largest score before exp, so that nothing overflows.) If the row ended here, the output would be the weighted sum divided by the sum. But two more scores come, and one of them is larger. Everything so far is relative to 3, and now it should be relative to 5.

# %% tags=["folded"]
# Fill in: correct what came before
fill("correct_what_came_before")

# %% tags=["folded", "name:correct_what_came_before"]
# The second block
larger = torch.maximum(largest, scores[2:].max())
correction = (largest - larger).exp()  # what was counted from 3, from 5
exp = (scores[2:] - larger).exp()
new_total = total * correction + exp.sum()
new_output = output * correction + exp @ values[2:]
result = new_output / new_total

# %% tags=["do"]
whole_row = torch.softmax(scores, dim=-1) @ values
torch.testing.assert_close(result, whole_row)
result, whole_row

# %% [markdown]
# The two agree, even though you never held the whole row. All the old terms shrink by the same factor, exp(3 − 5), so you can forget them and correct their sum. Put other scores and values into the row, with the largest first or last, and run the cells again.
#
# A running maximum, a running sum, and one factor that corrects what came before. That's the **online softmax** (Milakov & Gimelshein 2018). It takes any number of blocks, and the first needs no special case, because the maximum starts at −∞ and the factor exp(−∞) is 0.
#
# ## Build: attention in blocks
#
# Now let many queries do this at once, and cut them into blocks too, so that there's never more than one block of scores. This is the algorithm of FlashAttention (Dao et al. 2022), though only the forward pass, and without a mask. (It also returns a number per query, `log_sums`, which the backward pass will need.)


# %%
def in_blocks(q, k, v, size=128, correct=True):
    T, scale = len(k), q.shape[-1] ** -0.5
    output, log_sums = torch.empty_like(v), torch.empty(T, 1)
    for first in range(0, T, size):
        asking = slice(first, first + size)  # some of the queries
        largest = torch.full_like(log_sums[asking], float("-inf"))
        total, mix = torch.zeros_like(largest), 0.0
        for start in range(0, T, size):
            seen = slice(start, start + size)  # some of the keys
            scores = q[asking] @ k[seen].T * scale
            before, top = largest, scores.amax(dim=-1, keepdim=True)
            largest = torch.maximum(before, top)
            exp = (scores - largest).exp()
            correction = (before - largest).exp() if correct else 1.0
            total = total * correction + exp.sum(dim=-1, keepdim=True)
            mix = mix * correction + exp @ v[seen]
        output[asking] = mix / total
        log_sums[asking] = largest + total.log()
    return output, log_sums


torch.manual_seed(0)
q, k, v = torch.randn(3, 300, 16)
torch.testing.assert_close(in_blocks(q, k, v)[0], attention(q, k, v)[0])

# %% [markdown]
# `flash_attention` adds the mask, and skips the blocks that a causal mask hides. (You can read it in [flash.py](../attention_course/flash.py).)<!--notebook-->
#
# **Prove.** It gives the same output as the `attention` of rung {query_key_value}, whatever the mask.

# %% tags=["proof"]
q, k, v = torch.randn(3, 2, 300, 16)  # two heads, 300 tokens
visible = torch.rand(300, 300) > 0.3
visible[7] = False  # query 7 may not look anywhere
for mask in (None, causal_mask(300), visible):
    with_table = attention(q, k, v, mask)[0]
    torch.testing.assert_close(flash_attention(q, k, v, mask), with_table)
torch.testing.assert_close(
    flash_attention(q, k, v, is_causal=True),
    attention(q, k, v, causal_mask(300))[0],
)

# %% [markdown]
# ## Break it: leave the correction out
#
# Suppose you forget the correction, so that old sums stay as they are. You test your function on 64 tokens, then on 128, and its output is right both times.

# %% tags=["folded"]
# Question
ask("without_the_correction")

# %% [markdown]
# Try other numbers of tokens and other block sizes.

# %% tags=["do"]
torch.manual_seed(0)
for T in (64, 128, 129, 300):  # try 256, 257, 1000
    q, k, v = torch.randn(3, T, 16)
    broken = in_blocks(q, k, v, size=128, correct=False)[0]
    off = (broken - attention(q, k, v)[0]).abs().amax(dim=-1) > 1e-4
    print(f"{T:4} tokens: {off.sum():3} queries wrong")

# %% [markdown]
# With one more token than a block holds, only the queries whose largest score is in the last, tiny block go wrong. No error is raised, and every number looks reasonable. So a test needs several blocks, and rows whose largest score comes late.
#
# ## Backward: the weights, computed again
#
# Training needs gradients too, and backpropagation through softmax needs the weights (rung {scaling_variance}). We've just thrown them away. Do we have to keep the table after all?
#
# We don't, because a block of scores is quick to compute again, and with one more number per query you can turn scores into weights. Softmax divides exp(score − largest) by the total. Can you put both, the largest score and the total, into a single number that you subtract?

# %% tags=["folded"]
# Fill in: weights from one number
fill("weights_from_one_number")

# %% tags=["folded", "name:weights_from_one_number"]
# One number for the row, and its weights
log_sum = larger + new_total.log()
weights = (scores - log_sum).exp()

# %% [markdown]
# That number is the logarithm of the sum of all exp(score), and PyTorch's function for it is `torch.logsumexp`. The forward pass keeps it for each query, 8,192<!--given--> numbers instead of 67<!--given--> million, and the backward pass computes each block of weights again. So some products are done twice, but on a GPU that takes less time than fetching their results would.

# %% tags=["proof"]
torch.testing.assert_close(log_sum, torch.logsumexp(scores, dim=-1))
torch.testing.assert_close(weights, torch.softmax(scores, dim=-1))
torch.manual_seed(0)
q, k, v, towards = torch.randn(4, 2, 300, 16)
inputs = [part.requires_grad_() for part in (q, k, v)]
by_table = torch.autograd.grad(
    (attention(*inputs, causal_mask(300))[0] * towards).sum(), inputs
)
by_blocks = torch.autograd.grad(
    (flash_attention(*inputs, is_causal=True) * towards).sum(), inputs
)
torch.testing.assert_close(by_blocks, by_table)

# %% [markdown]
# ## What it saves
#
# `MemoryMeter` counts the bytes of every tensor that's made.

# %% tags=["folded"]
# Question
ask("largest_tensor")

# %%
T = 8192
q, k, v = torch.randn(3, T, 64)
with MemoryMeter() as meter:
    flash_attention(q, k, v, is_causal=True)
print(f"the largest tensor has {meter.largest / 4:,.0f} numbers")
assert meter.largest / 4 == T * 64

# %% [markdown]
# How does it compare with the table, and with SDPA? PyTorch's own attention uses the same idea in one compiled routine, while ours is a loop in Python. (The meter doesn't see what a compiled routine uses inside.)


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
seconds = {name: [] for name in ways}
peaks = {name: [] for name in ways}
for length in lengths.tolist():
    sides = {
        name: lambda way=way: attend_by(way, length)
        for name, way in ways.items()
    }
    for name, took in in_turns(sides, rounds=5).items():
        seconds[name].append(took[0])
        with MemoryMeter() as meter:
            sides[name]()
        peaks[name].append(meter.peak / 1e6)
for name in ways:
    took, peak = 1000 * seconds[name][-1], peaks[name][-1]
    print(f"{name:16}{took:6.0f} ms, {peak:5.0f} MB, T = {length}")

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
            ("Time", seconds, "seconds"),
            ("Memory", peaks, "MB"),
        )
    ),
    alt="Time and memory of three ways over T, all axes logarithmic. For "
    "memory, the line of the table climbs twice as steeply as the other "
    "two. For time, SDPA is the fastest.",
)

# %% [markdown]
# The table's memory grows with the square of T. As far as the meter sees, the others' grows with T. As for speed, ours does well against the table on long texts, partly because it skips the blocks that the mask hides, nearly half of all products. It can't keep up with SDPA, because here each step of each block is a separate call from Python. In FlashAttention's GPU code, a block never leaves a small fast memory right beside the arithmetic. That's the point of the paper, whose attention does a few more multiplications, not fewer, and is still faster, because it moves fewer bytes.
#
# ## Read at once, write token by token
#
# With a cache (rung {a_real_model}), a model never computes the keys and values of old tokens again. Answering a prompt then has two phases. In the **prefill** it reads the prompt, all tokens at once. After that it writes, one token at a time, which is called decoding.

# %% tags=["folded"]
# Question
ask("reading_and_writing")


# %% tags=["folded", "nbval-ignore-output"]
# Measure: ms to read T tokens at once, and ms to write one more
def one_more(model, T):
    ids = torch.randint(33, (1, T + 1))
    cache = Cache()
    model(ids[:, :T], cache)

    def step():
        cache._length = T  # the same token again
        return model(ids[:, T:], cache)

    return step, cache


lengths = torch.tensor([64, 128, 256, 512])
config = dict(block_size=1024, n_layer=2, n_head=8, n_embd=512)
torch.manual_seed(0)
every, grouped = (
    Llama(LlamaConfig(33, n_kv_head=heads, n_hidden=1360, **config))
    for heads in (8, 2)
)
ms = {"read T tokens": [], "write one, cache": [], "grouped keys": []}
with evaluating(every), evaluating(grouped):
    for length in lengths.tolist():
        ids = torch.randint(33, (1, length))
        (write, of_every), (with_groups, of_groups) = (
            one_more(model, length) for model in (every, grouped)
        )
        steps = [lambda ids=ids: every(ids), write, with_groups]
        for name, took in in_turns(
            dict(zip(ms, steps, strict=True)), 3
        ).items():
            ms[name].append(1000 * took[0])
assert of_every.numel() == 4 * of_groups.numel()
print(f"read {length} tokens at once: ", end="")
print(f"{ms['read T tokens'][-1] / length:.2f} ms per token")
print(f"write with a cache: {ms['write one, cache'][-1]:.2f} ms per token")

# %% tags=["folded"]
# Picture: milliseconds over T
picture(
    Lines(
        "Reading, and one more token",
        lengths,
        {name: torch.tensor(each) for name, each in ms.items()},
        "tokens so far",
        "ms",
    ),
    alt="Milliseconds over the tokens so far, both axes logarithmic. "
    "Reading all tokens takes longer the more there are. One more token "
    "with a cache takes far less, with grouped keys or without.",
)

# %% [markdown]
# Reading takes less time per token, because each matrix is fetched once for all of them. (In a model this small, the time it takes to start a call is also part of the gap, and reading pays it only once. Grouped keys hardly show at these lengths, because most of what's fetched is parameters.)
#
# The cache has a price in memory. For each token and each layer it holds a key and a value for every key head.

# %%
kv_head = SMOLLM.n_embd // SMOLLM.n_head  # channels of a key
per_token = 2 * SMOLLM.n_layer * SMOLLM.n_kv_head * kv_head
in_16_bits = 2 * per_token * SMOLLM.block_size
print(f"{per_token:,} numbers per token")
print(f"{in_16_bits / 1e6:.0f} MB for {SMOLLM.block_size} tokens")

# %% [markdown]
# That's SmolLM2 with its 3 key heads instead of 9. How many texts a computer can write at the same time depends on how many such caches fit into memory alongside the parameters. And because each new token reads its whole cache, fewer bytes also mean less waiting. Quantization (rung {a_real_model}) shrinks the parameters in the same way.
#
# ## Explore: where the memory goes
#
# These are SmolLM2's sizes. **At what T does one layer's table become larger than all the parameters? Then set T to 8192<!--given-->. How many texts can the model write at once before their caches outgrow its parameters, with 9 key heads, with 3, and with 1?** Does the type of the numbers change your answers?

# %% tags=["folded"]
# Explorer: bytes of the table, a block, the cache and the parameters
explore("bytes")

# %% [markdown]
# Of the lengths on the slider, 4,096<!--given--> is the first at which the table is larger than the parameters. With 9 key heads not even one text fits, with 3 there's room for one, and with a single key head, room for four. The type of the numbers changes all four bars alike, so it changes none of these answers, but it decides whether everything fits into your memory.

# %% [markdown]
# ## The roof of your machine
#
# How fast could a computation be at best? Two numbers tell you a lot about your machine. How many multiplications and additions does it do per second if everything is at hand, and how many bytes can it fetch from memory per second?
#
# A multiplication and an addition are two **FLOPs**, floating-point operations, so a product of matrices (n, k) @ (k, m) takes 2 · n · k · m. How many your processor does per second depends on the type of the numbers. A float32 has 32 bits. A bfloat16 has 16, half the bytes, with the range of a float32 and only two or three digits. Training uses it for products wherever the hardware is faster with it, and `autocast_dtype` knows whether yours is.

# %% tags=["do", "nbval-ignore-output"]
dtype = autocast_dtype(torch.device("cpu"))  # try torch.float32
n = 512
a, b, c = torch.randn(3, n, n).to(dtype)
long, row = torch.randn(2, 4096, 4096), torch.randn(4096)
sides = {
    "product": lambda: torch.mm(a, b, out=c),
    "copy": lambda: long[0].copy_(long[1]),
    "read": lambda: long @ row,
}
quickest = {name: took[0] for name, took in in_turns(sides, 40).items()}
most_flops = 2 * n**3 / quickest["product"]
most_bytes = long.nbytes / min(quickest["copy"], quickest["read"])
print(f"{most_flops / 1e9:.0f} billion FLOPs per second in {dtype}")
print(f"{most_bytes / 1e9:.1f} billion bytes per second")
print(f"{most_flops / most_bytes:.0f} FLOPs per byte")

# %% [markdown]
# If a computation does f FLOPs with each byte that it fetches, memory allows f times the bytes per second, and the processor allows its own maximum. The smaller of the two is the roof. Plot it against f and you get a slope that bends into a level line, the **roofline** (Williams et al. 2009). It bends at the number of FLOPs per byte that you've just printed. With fewer, the processor waits for memory, and a computation that reaches the slope is **memory-bound**. With more, the memory waits for the processor, and a computation that reaches the level part is **compute-bound**.
#
# Where on this line does writing a token fall, and where do the parts of a training step?

# %% tags=["folded", "nbval-ignore-output"]
# Measure: FLOPs, bytes and seconds of five computations
data = Corpus.of(load_text("stories"))
plain = speedrun(data, [])  # rung {bigram_to_gpt}'s model and recipe
for _ in range(3):
    plain.step()
n_embd, batch = plain.model.config.n_embd, plain.recipe.batch_size
rows, hidden = batch * 128, 4 * n_embd  # tokens of a batch
x = torch.randn(rows, n_embd)
into = torch.randn(hidden, n_embd).to(dtype)
heads = torch.randn(3, batch, 4, 128, n_embd // 4).to(dtype)
matrix, token = torch.randn(4096, 4096), torch.randn(1, 4096)
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
    "one token": (
        lambda: F.linear(token, matrix),
        2 * matrix.numel(),
        matrix.nbytes,
    ),
    "LayerNorm": (
        lambda: F.layer_norm(x, (n_embd,)),
        8 * x.numel(),
        4 * 2 * x.numel(),
    ),
    "AdamW": (plain.optimizer.step, 12 * numbers, 4 * 7 * numbers),
}
with torch.no_grad():
    took = in_turns({name: part[0] for name, part in parts.items()}, 30)
print(f"{'':16}per byte    roof reached  (billion FLOPs per second)")
for name, (_, flops, count) in parts.items():
    roof = min(flops / count * most_bytes, most_flops) / 1e9
    reached = flops / took[name][0] / 1e9
    print(f"{name:16}{flops / count:8.1f}{roof:8.1f}{reached:8.1f}")

# %% tags=["folded"]
# Picture: the roofline of your machine
per_byte = torch.tensor([f / b for _, f, b in parts.values()])
assert per_byte[2:].max() <= 1
assert per_byte[:2].min() > 15
speed = torch.tensor(
    [f / took[name][0] / 1e9 for name, (_, f, _) in parts.items()]
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
        "FLOPs per byte",
        "billion FLOPs per second",
    ),
    alt="The roofline, both axes logarithmic: a slope that bends into a "
    "level line. LayerNorm, AdamW and writing one token are far to the "
    "left, at most one FLOP per byte; attention and the matrix product "
    "are far to the right.",
)

# %% [markdown]
# Writing one token uses each number of a matrix once, LayerNorm and the optimizer do only a few FLOPs with each number, and all three do at most one FLOP per byte. So at best they run as fast as their bytes arrive. Attention and the matrix product of a whole batch do more than 15. For attention that's only because its table never travels.
#
# Which side a part falls on is only half the picture, though. A part far below the roof is bound by neither. In a model as small as ours a call is over so soon that starting it can take longer than the work, so a faster memory would do little for it. (We count the bytes of inputs and outputs once. A processor also has a small fast memory of its own, and what fits in it can get above the slope. So can other parts if your machine was busy while you measured its roof.)

# %% tags=["folded"]
# Question
ask("which_roof")

# %% [markdown]
# ### More: float16, bfloat16, and what a GradScaler is for
#
# There are two ways to spend 16 bits. float16 has more digits, and bfloat16 has more range. What becomes of a small gradient, and of a number just above 1?

# %%
small, near_one = 2e-8, 1.003
for kind in (torch.float16, torch.bfloat16):
    print(
        f"{kind!s:15}",
        f"{torch.tensor(small, dtype=kind).item():.1e}",
        f"{torch.tensor(near_one, dtype=kind).item():.4f}",
    )

# %% [markdown]
# float16 makes the small number 0, an underflow, while bfloat16 keeps it. On the other hand, bfloat16 can't tell 1.003 from 1. For training, range turned out to matter more, because gradients can be tiny and other numbers huge. If your hardware only has float16, use **loss scaling**. Multiply the loss by a large number before `backward()`, and by the chain rule every gradient grows by the same factor, so fewer of them are rounded to 0. Then divide the gradients by that number before the step.

# %%
slope = torch.tensor(small, dtype=torch.float16)
scaled = torch.tensor(small * 65536, dtype=torch.float16)
print(slope.item(), f"{scaled.float().item() / 65536:.1e}")

# %% [markdown]
# PyTorch's `torch.amp.GradScaler` does this, and also finds the number. If a gradient overflows, it skips the step and halves the number, and after a while without overflow it doubles it again. With bfloat16 you need none of this.
#
# ### More: why a model in 8 bits can be slower
#
# Quantized parameters take half or a quarter of the bytes, but often each of them has to be turned back into a 16-bit number before it's multiplied, and that takes work. It pays off where you wait for bytes, as when writing one text. For a long prompt or many texts at once, where a matrix is fetched once for all of them, the saved bytes save no time and the work remains.
#
# ### More: how many FLOPs a training step takes, and how many your machine could do
#
# There's a rule of thumb (Kaplan et al. 2020). For each parameter and each token, the forward pass takes 2 FLOPs, a multiplication and an addition, and the backward pass takes twice as many. That makes 6.

# %%
x, y = get_batch(data.train, 128, batch, torch.Generator().manual_seed(0))
with record_weights(), FlopCounterMode(display=False) as counter:
    F.cross_entropy(plain.model(x).flatten(0, 1), y.flatten()).backward()
plain.optimizer.zero_grad()
matrices = [p for p in plain.model.parameters() if p.dim() == 2]
positions = plain.model.transformer.wpe.weight.numel()  # looked up
in_products = sum(p.numel() for p in matrices) - positions
counted, rule = counter.get_total_flops(), 6 * in_products * x.numel()
print(f"counted {counted:,}, by the rule {rule:,}")
assert 1.1 < counted / rule < 1.5

# %% [markdown]
# The count is larger, because the rule leaves out attention's own products, scores and weighted sums, which have no parameters. (`record_weights` makes the model compute its table, where the counter can see it.) How large is that part in general? The matrices of a layer with C channels have 12 C² parameters, 4 C² in attention and 8 C² in the MLP. So they take 24 C² FLOPs per token, while a token's scores and weighted sums over T keys take 4 T C. The two are equal at T = 6 C. For short texts attention's table is a small part of the work, and for long ones it's nearly all.
#
# How close to the ceiling does a training step get?

# %% tags=["nbval-ignore-output"]
quickest_step = in_turns({"step": plain.step}, 10)["step"][0]
per_second = counted / quickest_step
print(f"{100 * per_second / most_flops:.0f} % of the ceiling")

# %% [markdown]
# We measured both with the same type of number, so dividing them is fair. This share is close to what papers report as **model FLOPs utilization** (MFU), which divides by the peak in the manufacturer's data sheet. Llama 3's largest model was trained at 38<!--given--> to 43 %<!--given--> (Grattafiori et al. 2024). We haven't measured where the rest of ours goes, but likely reasons are small products, calls that take longer to start than to run, and Python itself.

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
# ### 2. The bytes of a cache
#
# <!--task cache_bytes-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("cache_bytes")


# %%
def my_cache_bytes(T, n_layer, n_head, n_kv_head, n_embd, dtype):
    raise NotImplementedError


check("cache_bytes", my_cache_bytes)

# %% [markdown]
# ### 3. The roof
#
# <!--task roof-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("roof")


# %%
def my_roof(flops, moved, most_flops, most_bytes):
    raise NotImplementedError


check("roof", my_roof)

# %% [markdown]
# ## In the wild
#
# - `F.scaled_dot_product_attention` chooses between FlashAttention and other routines. On a GPU, a mask tensor rules out FlashAttention, but `is_causal=True` doesn't.
# - vLLM serves many people at once. It cuts the cache into pages, so that texts of any length share the memory (Kwon et al. 2023).
# - Several GPUs can share one long text, each with some of its queries. The blocks of keys and values travel around in a ring, and each GPU adds every passing block, with the correction you filled in (ring attention; Liu et al. 2023).
#
# ## Where we are
#
# ![The transformer as a drawing. Highlighted: what this rung computes in another way (the inside of attention, from the scores to the weighted values, without a table between them).](images/transformer_bytes.svg)
#
# Nothing was added to the model here. It computes the same numbers, with a fraction of the memory, and you know what it waits for. But all your models only continue a text. How does one come to answer you?
#
# ## Three sentences to remember
#
# 1. Softmax never needs the whole row, because a running maximum, a running sum and one correction are enough, so attention's memory grows with T, not with its square.
# 2. Reading uses each matrix for many tokens, while writing fetches all of it, and the cache, for a single one.
# 3. Count FLOPs and bytes before you optimize, because what waits for memory gets no faster with fewer FLOPs, only with fewer bytes.
#
# Next: [rung {after_pretraining}]({after_pretraining}.ipynb), where a model that only continues texts learns to answer.
#
# <!--neighbours-->
