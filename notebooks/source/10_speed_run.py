# %% [markdown]
# # Rung 10: the speed run
#
# <!--ladder-->
#
# **You will build** a faster way to train the GPT of rung 8, one trick at a time, and attention that never makes its table of scores. You will also build the clock for it: a measurement that one can believe.

# %% tags=["hero", "folded"]
# The opening picture: the race of the recipes
from attention_course.heroes import hero

hero("speed_run")

# %% [markdown]
# **You need** [rung 4](04_query_key_value.ipynb) for attention, [rung 8](08_bigram_to_gpt.ipynb) for the GPT and its recipe, [rung 9](09_a_real_model.ipynb) for rotary positions and the cache.
#
# **Time** about 40 minutes to read, and 38 for the exercises.
#
# ![The transformer as a drawing. Lit is what this rung builds anew: the inside of attention, from the scores to the weighted values, without a table between them.](images/transformer_10.svg)

# %% [markdown]
# ## The question
#
# The GPT of rung 8 trains in less than a minute. Large models train for months, and each hour costs money. How much of that computing is needed? And if somebody says “twice as fast”, how would you know?

# %% tags=["folded"]
# Imports
import itertools
import math
import platform
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from attention_course.attention import (
    Cache,
    attention,
    causal_mask,
    leak_probe,
    record_weights,
)
from attention_course.exercises import check
from attention_course.explorers import explore
from attention_course.explorers.recipes import (
    MARK,
    measured,
    run_of,
)
from attention_course.flash import (
    MemoryMeter,
    flash_attention,
)
from attention_course.gpt import evaluating
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
from attention_course.training import evaluate, run

torch.set_printoptions(precision=3, sci_mode=False)

progress("speed_run")

# %% [markdown]
# ## A fair clock
#
# A comparison of two ways to compute something is a **benchmark**. It is easy to get wrong, and nothing fails if you do. These are the rules of this rung.
#
# 1. Same text, same mark. Both sides train until the same number is reached, measured in the same way. Here that is an answer accuracy of 0.95<!--given--> on the validation text of the stories.
# 2. Seconds, not steps. A step may become slower.
# 3. Both sides in one run, taking turns. What else the machine does then slows both.
# 4. A range, not one number: several rounds, and several seeds where a model is trained.
# 5. Nothing is chosen on the text that decides. Learning rates and sizes are tuned on a held-out part of the *training* text.
# 6. Each figure has its machine beside it.

# %% tags=["folded"]
# Question
ask("fewer_steps")

# %% tags=["nbval-ignore-output"]
chip = torch.cpu.get_capabilities().get("cpu_name", platform.machine())
instructions = torch.backends.cpu.get_cpu_capability()
print(f"{chip}, {instructions}, {torch.get_num_threads()} threads")
print("PyTorch", torch.__version__)

# %% [markdown]
# That is your machine. This clock lets several sides take turns. Each side runs once before it counts, because a first call often does more: it takes memory, or fills a table.


# %%
def in_turns(sides, rounds=5):
    seconds = {name: [] for name in sides}
    for side in sides.values():
        side()
    for _ in range(rounds):
        for name, side in sides.items():
            start = time.perf_counter()
            side()
            seconds[name].append(time.perf_counter() - start)
    return {name: sorted(each) for name, each in seconds.items()}


# %% [markdown]
# Before you compare two things, compare one thing with itself.

# %% tags=["nbval-ignore-output"]
x = torch.randn(512, 512)
same = {"one side": lambda: x @ x, "the same again": lambda: x @ x}
for name, each in in_turns(same).items():
    least, median, most = (1000 * each[i] for i in (0, 2, -1))
    print(f"{name:14} {median:.2f} ms, from {least:.2f} to {most:.2f}")

# %% [markdown]
# The two differ, and there is nothing to find. A difference counts if the ranges do not overlap.
#
# ## Rung 8's recipe
#
# `speedrun(data, tricks)` makes the trainer of rung 8, with the tricks that you name. Without any, it is rung 8's recipe.

# %%
data = Data.of(load_text("stories"))
V = data.tokenizer.vocab_size
plain = speedrun(data, [])
sizes = plain.model.config
print(sizes)
for trick, reason in TRICKS.items():
    print(f"{trick}: {reason}")

# %% [markdown]
# Each trick has a reason, and each reason can be looked at. We take them one by one, and measure at the end.
#
# ## Token shift
#
# In rung 8 one layer could not find the answers: a letter has to note what comes before it, and only then can a head look for the note. That took two layers.
#
# The note can be had for less. Ahead of attention, and again ahead of the MLP, **token shift** mixes each token with the one before it (Peng et al. 2023), each channel by a share of its own:
#
# `x + mix * (before - x)`
#
# A shift and a product, and no attention; `mix` is learned, and before token 0 stand zeros. So a key can say which letter comes before its own.

# %%
shift = TokenShift(4)
tokens = torch.arange(1.0, 6.0)[:, None].expand(1, 5, 4)
print(shift.mix.detach())
print(shift(tokens)[0].detach())

# %% [markdown]
# Token t is the number t + 1 in every channel. Channel 0 still has the token, channel 3 the one before it, those between them a bit of both. Only tokens t and t − 1 are in row t.

# %% tags=["folded"]
# Check: nothing from the future, and no more than one token back
probe = leak_probe(shift, torch.randn(1, 6, 4))
assert torch.equal(probe, causal_mask(6) & causal_mask(6).triu(-1))

# %% tags=["folded"]
# Question
ask("one_layer_is_enough")

# %% [markdown]
# ## Rotary positions
#
# You know them from rung 9. What could they save? A head that looks a few tokens back has to find “a few back”. With a table of positions it learns that for each of the 128 rows, and a row learns only from what stands there. With rotary positions the score depends on the distance alone: what is learned at one place holds at all places.

# %% tags=["folded"]
# Check: with rotary positions a score is the same along each diagonal
torch.manual_seed(0)
q, k = torch.randn(2, 1, 16)
rotary = Rotary(16, block_size=128)
scores = rotary(q.expand(128, -1)) @ rotary(k.expand(128, -1)).T
assert sizes.block_size == 128
for back in (1, 5):
    diagonal = scores.diagonal(-back)
    torch.testing.assert_close(
        diagonal, diagonal[:1].expand(128 - back), atol=1e-3, rtol=0
    )

# %% [markdown]
# ## Muon
#
# AdamW looks at each entry of a matrix by itself. But a matrix is used as a whole. Every matrix turns its input, stretches it along some directions, and turns it again. How much it stretches along each of them are its **singular values**; `torch.linalg.svd` computes turn, stretch and turn.
#
# Here is the gradient of a matrix of the untrained GPT, for one batch: how strongly does it want to move in each direction?

# %%
x, y = get_batch(data.train, 128, 24, torch.Generator().manual_seed(0))
loss = F.cross_entropy(plain.model(x).flatten(0, 1), y.flatten())
loss.backward()
gradient = plain.model.transformer.h[0].mlp.c_fc.weight.grad  # (256, 64)
turn, stretch, turn_back = torch.linalg.svd(gradient, full_matrices=False)
share = stretch[:4].square().sum() / stretch.square().sum()
print(f"4 of {len(stretch)} directions: {100 * share:.0f} % of all squares")
assert share > 0.5

# %% [markdown]
# A few directions are nearly all of it. In plain gradient descent the others would hardly move. (AdamW scales each entry by itself, and does not know of directions.) **Muon** (Jordan et al. 2024) keeps the directions and changes the stretches: the matrix is divided by its norm, and then goes through five steps of the **Newton–Schulz** iteration.

# %% tags=["folded"]
# Question
ask("after_newton_schulz")

# %% [markdown]
# All of them become about 1, and then every direction moves about as far as any other. What does that is a polynomial, which Muon applies to the singular values. It lifts small values and keeps large ones near 1:


# %%
def lift(s):
    return 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5


s = torch.tensor([1.0, 0.1, 0.01])
for step in range(1, 6):
    s = lift(s)
    print(step, s)

# %% [markdown]
# It does not settle at 1: values go on jumping around it. That is near enough, and even 0.01 gets there in four steps.
#
# No SVD is needed for it, only products. X is turn · stretch · turn back. In X Xᵀ X the inner turns cancel, and three stretches remain, s · s · s: that is the cube. The fifth power has two more factors. The norm of the division at the start is the root of the sum of all squared singular values, so afterwards none is above 1. The turns stay as they are:

# %% tags=["lesson"]
lifted = stretch / gradient.norm()
for _ in range(5):
    lifted = lift(lifted)
torch.testing.assert_close(
    newton_schulz(gradient),
    turn @ lifted.diag() @ turn_back,
    atol=1e-3,
    rtol=0,
)

# %% tags=["folded"]
# Picture: singular values of the gradient, before and after
after = torch.linalg.svdvals(newton_schulz(gradient))
assert (after[:32] > 0.6).all()
assert after.max() < 1.3
picture(
    Lines(
        "Singular values of a gradient",
        torch.arange(1, len(stretch) + 1),
        {
            "as it is, the largest set to 1": stretch / stretch.max(),
            "after five steps of Newton–Schulz": after,
        },
        "direction",
        "stretch",
        log=False,
    ),
    alt="Two curves over the directions of a gradient. As it is, the "
    "stretch falls steeply from 1 to nearly 0 after a few directions. "
    "After Newton–Schulz it stays near 1 for most of them.",
)

# %% [markdown]
# (The last direction stays at 0. LayerNorm takes the mean of the channels away, so nothing ever comes along it.)
#
# Muon does this to the **momentum**, a running mean of the gradients, which is less noisy than one gradient. It is for matrices in the blocks; embeddings and norms stay with AdamW.
#
# ## A schedule
#
# Small steps at the end let a model settle. Rung 8's learning rate falls along a cosine, which is almost 0 for many steps. A straight line to 0, after a short warm-up, spends fewer steps there. In a short run that may count.

# %% tags=["folded"]
# Picture: the learning rates of both recipes
straight = speedrun(data, ["schedule"])
steps = torch.arange(plain.recipe.steps)
rates = {
    name: torch.tensor([each.schedule(step) for step in steps.tolist()])
    for name, each in {"rung 8": plain, "a straight line": straight}.items()
}
picture(
    Lines(
        "Learning rate, as a share of the largest",
        steps,
        {name: rate / rate.max() for name, rate in rates.items()},
        "step",
        "share",
        log=False,
    ),
    alt="Two curves over the steps. Both rise quickly to 1. Rung 8's then "
    "falls to 0 along a cosine, the other one along a straight line.",
)

# %% [markdown]
# ## A smaller shape
#
# With a note of one letter for free, one layer may do what took two. A step then costs less than half. And small batches take more steps in the same time; each is noisier, and while the model knows little, a rough direction is good enough.
#
# ## The run
#
# All tricks at once, on your machine. Does it reach the mark?

# %% tags=["table"]
fast = speedrun(data, TRICKS, steps=600)
run(fast, name="all tricks")
val_text = data.tokenizer.decode(data.val)
reached = answer_accuracy(fast.model, val_text, data.tokenizer)
assert reached > MARK

# %% tags=["nbval-ignore-output"]
print(
    f"answer accuracy {reached:.2f} after {fast.seconds:.1f} s on this machine"
)

# %% [markdown]
# And what was each trick worth? Each row below is the row above with one more trick. These runs were measured beforehand, on the machine that the cell names, with answer accuracy measured every 25<!--given--> steps. The seconds are those until it first reached the mark; the run above went on to the end. With each seed, parameters and batches are others. A trick counts if its range lies below that of the row above.

# %% tags=["folded"]
# Table: seconds to the mark, one more trick in each row
names = list(TRICKS)
rows = {
    f"+ {names[count - 1]}" if count else "rung 8": run_of(
        set(names[:count])
    )
    for count in range(len(names) + 1)
}
print(measured()["machine"])
print(f"{'':14} middle, first and last of three seeds")
for name, row in rows.items():
    first, middle, last = row["marks"].tolist()
    print(f"{name:14} {middle:4.1f} s, {first:4.1f} to {last:4.1f}")
ranges = [row["marks"] for row in rows.values()]
below = [b.max() < a.min() for a, b in itertools.pairwise(ranges)]
assert below == [False, True, False, False, True]

# %% tags=["folded"]
# Picture: answer accuracy over seconds, one more trick in each curve
gaps = {name: torch.nan * row["accuracy"] for name, row in rows.items()}
picture(
    Lines(
        "Answer accuracy, one more trick in each curve",
        torch.cat([row["seconds"] for row in rows.values()]),
        {
            name: torch.cat(list({**gaps, name: row["accuracy"]}.values()))
            for name, row in rows.items()
        },
        "seconds of training",
        "share of answers",
        log=False,
        levels={"mark": MARK},
    ),
    alt="Answer accuracy over seconds of training for six recipes. Each has one "
    "more trick than the one before. The one with all tricks reaches the "
    "mark long before rung 8's.",
)

# %% [markdown]
# All five together need less than half the time of rung 8, whatever the seed. Two rows lie below the row above with every seed: rotary and the smaller shape. The ranges of the other three overlap with those above. With three seeds one cannot say whether they help there.
#
# ## Explore: recipes
#
# **Which trick is missed most?** Switch one off at a time. Then try each one alone: which of them makes it slower, and which never arrives? The button trains your choice on your machine.

# %% tags=["folded"]
# Explorer: the tricks as switches, and the measured runs
explore("recipes")

# %% [markdown]
# Alone, no trick is worth much. Rotary positions alone are slower than rung 8, and one layer alone never arrives: it finds few answers, with token shift seven in ten, and with all five all of them. But take one of the five away, and the rest gets slower; without token shift, or without rotary positions, it never arrives. So the worth of a trick is not a number: it depends on what is already there, and on the text. That is why each row is measured on top of the row above, and why nobody should sell a trick by its best case.

# %% tags=["folded"]
# Check: seconds to the mark of each trick alone, and of all
alone = {}
for tricks in ([], *([name] for name in TRICKS), list(TRICKS)):
    marks = run_of(set(tricks))["marks"]
    middle = alone[" ".join(tricks)] = marks.median().item()
    said = f"{middle:.1f} s" if middle < math.inf else "never"
    print(f"{' '.join(tricks) or 'rung 8':46}{said}")
for tricks in ({"shape"}, {"shape", "token_shift"}, set(TRICKS)):
    last = run_of(tricks)["accuracy"][-1]
    print(
        f"one layer, {len(tricks) - 1} other tricks: answer accuracy {last:.2f}"
    )
assert alone["shape"] == math.inf
assert alone["rotary"] > alone[""]
every = alone.pop(" ".join(TRICKS))
assert every < 0.5 * alone[""]
assert min(alone.values()) > 0.75 * alone[""]
for trick in TRICKS:
    rest = run_of({*TRICKS} - {trick})["marks"].median().item()
    said = f"{rest:.1f} s" if rest < math.inf else "never"
    print(f"without {trick:38}{said}")
    assert rest > every
    assert (rest == math.inf) == (trick in ("token_shift", "rotary"))

# %% [markdown]
# ## Beside nanoGPT
#
# Rung 8's recipe is ours. Many know the one that nanoGPT's readme names for a laptop: four layers, 2000<!--given--> steps on Tiny Shakespeare, without a GPU. How long does it take, and how long do all five tricks take, with sizes of their own, until they have the loss with which it ends?
#
# | precision of ours | nanoGPT's recipe | all five tricks | times as fast |
# |---|---|---|---|
# | float32 | 70<!--given--> to 80<!--given--> s | 3.0<!--given--> to 4.1<!--given--> s | 19<!--given--> to 24<!--given--> |
# | bfloat16 | 70<!--given--> to 88<!--given--> s | 2.2<!--given--> to 2.9<!--given--> s | 28<!--given--> to 33<!--given--> |
#
# Five seeds each, both sides in one run, taking turns, on two threads of an AMD EPYC; PyTorch 2.13<!--given-->, in the first row with AVX2 alone. nanoGPT's recipe ends at a loss of 1.90<!--given--> to 1.92<!--given--> on the whole validation text. Sizes and steps of ours were chosen on the last tenth of the training text, by rule 5.
#
# A number in bfloat16 takes 16 bits in place of 32: its exponent is as long as that of float32, its fraction has 7 bits in place of 23. This processor multiplies matrices of such numbers faster. On one without instructions for it they are slower. nanoGPT's script uses them on a GPU only.
#
# And with three minutes? `speedrun(data, text="shakespeare-long")` has three layers. It ends at 1.51<!--given--> in bfloat16, at 1.55<!--given--> in float32 with AVX2. nanoGPT's readme has 1.47<!--given-->, for a larger model after three minutes on a GPU.
#
# All of this can be repeated: `make bench-speedrun OPTIONS="--ends --seeds 5"`, and `OPTIONS="--seconds 175"`.
#
# ## Attention without its table
#
# Now a single call. The attention of rung 4 makes a table of T × T scores. With T = 8192 that is 67,108,864<!--shown--> numbers for each head: 268<!--shown--> MB in float32.

# %%
T = 8192
table = T * T, round(4 * T * T / 1e6)  # numbers, and MB
assert table == (67_108_864, 268)
table

# %% [markdown]
# Rung 7 said that FlashAttention does without it. How? Each output needs softmax over a whole row, and the softmax needs the largest score and the sum of the row. Can one have these without ever having the row?
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
# (As in rung 3, the largest score is subtracted before exp, so that nothing overflows.) If the row ended here, the output would be the weighted sum divided by the sum. But two more scores come, and one of them is larger.

# %% tags=["folded"]
# Question
ask("a_larger_maximum")

# %%
before, largest = largest, torch.maximum(largest, scores[2:].max())
correction = (before - largest).exp()  # what was counted from 3, from 5
exp = (scores[2:] - largest).exp()
total = total * correction + exp.sum()
output = output * correction + exp @ values[2:]
print(f"output {output / total:.2f}")

# %% tags=["lesson"]
weights = torch.softmax(scores, dim=-1)
torch.testing.assert_close(output / total, weights @ values)

# %% [markdown]
# A running maximum, a running sum, and one factor that corrects what came before. That is the **online softmax** (Milakov & Gimelshein 2018). It takes any number of blocks: before the first one the maximum is −∞, and its factor exp(−∞) is 0.
#
# `flash_attention` cuts queries and keys into blocks of 128<!--given-->, and makes one block of scores at a time. Blocks that the causal mask hides are skipped.
#
# **Prove.** It equals the `attention` of rung 4, with any mask.

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
#
# ## Writing
#
# Training reads a whole text at once. Writing makes one token at a time, and the cache of rung 9 saves most of the work. With the cache, what is left? All parameters are read for each token, and so are all keys and values of each text. Grouped queries have fewer keys to read.


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
#
# ## Under the roof
#
# How fast could it be? Two numbers of a machine say a lot. How many products can it do in a second, if all it needs is at hand? And how many bytes can it fetch from memory in a second?
#
# A product and a sum are two **FLOPs**, floating-point operations. A matrix product (n, k) @ (k, m) takes 2 · n · k · m of them. `FlopCounterMode` counts those of all matrix products.

# %% tags=["nbval-ignore-output"]
n = 1024
a, b, c = torch.randn(3, n, n)
long = torch.randn(2, 2**24)
sides = {
    "product": lambda: torch.mm(a, b, out=c),
    "copy": lambda: long[0].copy_(long[1]),
}
quickest = {name: each[0] for name, each in in_turns(sides).items()}
most_flops = 2 * n**3 / quickest["product"]
most_bytes = long.nbytes / quickest["copy"]  # half read, half written
print(f"{most_flops / 1e9:.0f} billion FLOPs a second")
print(f"{most_bytes / 1e9:.1f} billion bytes a second")

# %% tags=["folded"]
# Check: what FlopCounterMode counts
with FlopCounterMode(display=False) as counter:
    a @ b
    F.layer_norm(a, (n,))
assert counter.get_total_flops() == 2 * n**3  # nothing for LayerNorm

# %% [markdown]
# A step that does many FLOPs with each byte that it fetches is limited by the first number: it is **compute-bound**. A step that does few waits for its bytes: it is **memory-bound**. Draw what is possible over the FLOPs for each byte, and you get a slope and a ceiling: the **roofline** (Williams et al. 2009). At f FLOPs for each byte, memory allows f times its bytes a second, and the processor its most; the smaller of the two is the roof.
#
# Where do the parts of our recipe stand?


# %% tags=["folded", "nbval-ignore-output"]
# Measure: FLOPs, bytes and seconds of four parts of a training step
n_embd = sizes.n_embd
rows = 16 * 128  # tokens of a batch
x = torch.randn(rows, n_embd)
block = plain.model.transformer.h[0]
heads = torch.randn(3, 16 * 4, 128, n_embd // 4)
matrices = torch.randn(4, 50_000)  # parameter, gradient, mean, square
causal = causal_mask(128)


def adam():
    p, g, mean, square = matrices
    mean.lerp_(g, 0.1)
    square.lerp_(g * g, 0.05)
    p.sub_(1e-3 * mean / (square.sqrt() + 1e-8))


hidden = 4 * n_embd
parts = {  # what is run, its FLOPs, its bytes
    "MLP": (
        lambda: block.mlp(x),
        4 * rows * n_embd * hidden,
        4 * (2 * rows * n_embd + 2 * rows * hidden + 2 * n_embd * hidden),
    ),
    "attention": (
        lambda: attention(*heads, causal),
        4 * heads[0].numel() * 128,
        4 * (4 * heads[0].numel() + 4 * 64 * 128 * 128),
    ),
    "LayerNorm": (
        lambda: F.layer_norm(x, (n_embd,)),
        8 * x.numel(),
        4 * 2 * x.numel(),
    ),
    "AdamW": (adam, 12 * 50_000, 4 * 7 * 50_000),
}
with torch.no_grad():
    with FlopCounterMode(display=False) as counter:
        parts["MLP"][0]()
    assert counter.get_total_flops() == parts["MLP"][1]
    took = in_turns({name: part[0] for name, part in parts.items()}, 20)
print("FLOPs for each byte, billion FLOPs a second: the roof, and reached")
for name, (_, flops, count) in parts.items():
    roof = min(flops / count * most_bytes, most_flops) / 1e9
    reached = flops / took[name][10] / 1e9
    print(f"{name:10}{flops / count:6.1f}{roof:8.1f}{reached:8.1f}")

# %% tags=["folded"]
# Picture: the roofline of your machine
per_byte = torch.tensor([f / b for _, f, b in parts.values()])
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
    "ceiling. LayerNorm and AdamW are far to the left, under the slope, "
    "attention is right of them, and the MLP farthest to the right.",
)

# %% [markdown]
# (FLOPs and bytes of LayerNorm and AdamW are counted by hand, of the others by their shapes: a part reads its inputs and writes its output once. A processor also has a small fast memory, its cache. What fits in there can stand above the slope.)
#
# LayerNorm and the optimizer do next to nothing with each number that they fetch. A faster processor would not help them; fewer bytes would. That is what fused kernels, 16-bit numbers and FlashAttention are for.

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
flops_a_second = counted / (fast.seconds / fast.steps_done)
print(f"{100 * flops_a_second / most_flops:.0f} % of the ceiling")

# %% [markdown]
# Where the rest goes we have not measured. Small steps that wait for memory, the optimizer and Python are likely. Larger models come closer to the ceiling, because their products are larger.
#
# ## Break it
#
# Three benchmarks. Each prints a speed-up, and each is unfair in one way. Say which, before you read on.
#
# The first. Two recipes trained for the same seconds. Which has the lower loss?

# %% tags=["folded"]
# Models: two recipes, trained, and whole stories of the validation text
recipe_a, recipe_b = fast.model, fast.model
stories = val_text[val_text.index("\n") : val_text.rindex("\n") + 1]
story_ids = [
    data.tokenizer.encode(f"\n{story}\n")
    for story in stories.strip().splitlines()[:200]
]


# %%
def loss_of_stories(model):
    with evaluating(model):
        losses = [
            F.cross_entropy(model(ids[None, :-1])[0], ids[1:])
            for ids in story_ids
        ]
    return torch.stack(losses).mean().item()


loss_a = evaluate(recipe_a, data.val)
loss_b = loss_of_stories(recipe_b)
print(f"A {loss_a:.2f}, B {loss_b:.2f}: B is better?")

# %% tags=["folded"]
# Question
ask("unfair_loss")

# %% [markdown]
# A and B are the same model. A block of the validation text may begin in the middle of a story, and then nobody knows who gave what to whom. A whole story has no such letters. Both losses are right, and they are losses of different tasks.

# %% tags=["folded"]
# Check: measured in the same way, the same loss
assert loss_b < loss_a
assert evaluate(recipe_a, data.val) == evaluate(recipe_b, data.val)
assert loss_of_stories(recipe_a) == loss_b

# %% [markdown]
# The second. Two ways to turn queries by their positions.


# %%
@cache
def angles():
    return Rotary(64, block_size=2**15)


def old_way():
    return angles()(torch.zeros(512, 64))


def new_way():
    return angles()(torch.zeros(512, 64))


# %% tags=["nbval-ignore-output"]
angles.cache_clear()  # as in a new process
seconds = {}
for name, way in {"old": old_way, "new": new_way}.items():
    start = time.perf_counter()
    way()
    seconds[name] = time.perf_counter() - start
print(f"new is {seconds['old'] / seconds['new']:.0f} times as fast")

# %% tags=["folded"]
# Question
ask("unfair_start")

# %% [markdown]
# They are the same code. The first call of all makes the table of angles, and the old way came first. The same happens with memory, with caches, and with anything that is compiled when it is first used. With the clock from above, both warm up:

# %% tags=["nbval-ignore-output"]
took = in_turns({"old": old_way, "new": new_way}, rounds=21)
print(f"new is {took['old'][10] / took['new'][10]:.1f} times as fast")

# %% [markdown]
# The third. A device works beside the processor, as a GPU does. Here a thread stands for it.

# %% tags=["nbval-ignore-output"]
device = ThreadPoolExecutor(max_workers=1)
q, k, v = torch.randn(3, 1024, 64)
device.submit(attention, q, k, v).result()  # warmed up
attention(q, k, v)  # warmed up, too
start = time.perf_counter()
attention(q, k, v)
here = time.perf_counter() - start
start = time.perf_counter()
answer = device.submit(attention, q, k, v)
there = time.perf_counter() - start
print(f"the device is {here / there:.0f} times as fast")

# %% tags=["folded"]
# Question
ask("unfair_end")

# %% [markdown]
# `submit` hands the work over and returns. What was measured is how long it takes to ask. PyTorch does the same on a GPU: a call returns before the GPU is done. Wait for the answer before you stop the clock. On a GPU that is `torch.cuda.synchronize()`.

# %% tags=["nbval-ignore-output"]
sides = {
    "here": lambda: attention(q, k, v),
    "there": lambda: device.submit(attention, q, k, v).result(),
}
for name, each in in_turns(sides).items():
    least, median, most = (1000 * each[i] for i in (0, 2, -1))
    print(f"{name:6}{median:.1f} ms, from {least:.1f} to {most:.1f}")

# %% [markdown]
# Who waits finds no difference: it is the same processor.
#
# ## Exercises
#
# ### 1. An online softmax
#
# <!--task online_softmax-->


# %%
def my_online_softmax(blocks):
    raise NotImplementedError


check("online_softmax", my_online_softmax)

# %% [markdown]
# ### 2. A step of Newton–Schulz
#
# <!--task newton_schulz_step-->


# %%
def my_newton_schulz_step(x, a, b, c):
    raise NotImplementedError


check("newton_schulz_step", my_newton_schulz_step)

# %% [markdown]
# ### 3. A schedule
#
# <!--task learning_rate_schedule-->


# %%
def my_schedule(peak, steps, warmup, decay):
    raise NotImplementedError


check("learning_rate_schedule", my_schedule)

# %% [markdown]
# ### 4. A fair comparison
#
# <!--task speed_up-->


# %%
def my_speed_up(old, new, mark):
    raise NotImplementedError


check("speed_up", my_speed_up)

# %% [markdown]
# ## In the wild
#
# - modded-nanogpt is a race to train a model as good as GPT-2 on eight H100 GPUs: from 45<!--given--> minutes in 2024 to less than two in 2026, with one rule: the same loss on the same text. Muon comes from there, and a kind of token shift is in it, called smear.
# - `torch.optim.Muon` is in PyTorch. Large models have been trained with variants of it: Kimi K2 has a trillion parameters.
# - `F.scaled_dot_product_attention` chooses between FlashAttention and other kernels. On a GPU, a mask tensor keeps it from the fastest; `is_causal=True` does not.
# - vLLM serves many people at once. It cuts the cache into pages, so that texts of any length share the memory (Kwon et al. 2023). How many texts fit beside the parameters is a matter of their keys and values.
# - The share of the ceiling, by the rule of 6, is what papers report for a training run: model FLOPs utilization (MFU). Large runs reach about 40 %.
#
# ## Three sentences to remember
#
# 1. Five tricks with good reasons take less than half the time together; what one is worth depends on the others, so measure.
# 2. Softmax needs no whole row: a running maximum, a running sum and one correction are enough, and memory grows like T.
# 3. A speed-up counts if both sides did the same work, to the same mark, in turns, and the clock waited for both.
#
# Next: [rung 11](11_an_empty_page.ipynb), where you write the GPT yourself.
#
# <!--neighbours-->
