# %% [markdown]
# # Rung {speed_run}: the speed run
#
# <!--ladder-->
#
# **You will build** a smaller GPT that learns to answer nearly all questions in about half of the time that rung {bigram_to_gpt}'s takes, one trick at a time, and attention that never makes its table of scores. You will also build the clock for it: a measurement that one can believe.

# %% tags=["hero", "folded"]
# The opening picture: the race of the recipes
from attention_course.heroes import hero

hero("speed_run")

# %% [markdown]
# **You need** [rung {query_key_value}]({query_key_value}.ipynb) for attention, [rung {bigram_to_gpt}]({bigram_to_gpt}.ipynb) for the GPT and its recipe, [rung {a_real_model}]({a_real_model}.ipynb) for rotary positions and the cache.
#
# <!--time-->
#
# ![The transformer as a drawing. Lit is what this rung builds anew: the inside of attention, from the scores to the weighted values, without a table between them.](images/transformer_speed_run.svg)

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

progress("speed_run")

# %% [markdown]
# ## A fair clock
#
# A comparison of two ways to compute something is a **benchmark**. It is easy to get wrong, and nothing fails if you do. These are the rules of this rung.
#
# 1. Same text, same mark. Both sides train until the same number is reached, measured in the same way. Here it is an answer accuracy of 0.95<!--given--> on the first 8,192<!--given--> characters of the validation text.
# 2. Seconds, not steps. A step may become slower. (The recorded races count seconds of processor time.)
# 3. Both sides in one run, taking turns. What else the machine does then slows both.
# 4. Several rounds, and several seeds where a model is trained, because one number says nothing about chance.
# 5. Each side at its best, and nothing chosen on the text that decides. Every recipe gets a learning rate and a number of steps of its own, tuned on a held-out part of the *training* text.
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
took = in_turns(same)
for name, each in took.items():
    least, median, most = (1000 * each[i] for i in (0, 2, -1))
    print(f"{name:14} {median:.2f} ms, from {least:.2f} to {most:.2f}")

# %% [markdown]
# The two differ, although there is nothing to find. So before you call a difference one, ask how often chance alone would make one as large. The **rank-sum test** (Wilcoxon 1945) answers that. Put the times of both sides in one row, from the shortest to the longest. If both sides are equally fast, every way to deal the places to them is equally likely. The share of ways that set the two as far apart as you see them, or farther, is the **p-value**.

# %% tags=["nbval-ignore-output"]
p = p_value(*map(torch.tensor, took.values()))
print(f"p = {p:.2f}")

# %% [markdown]
# On this page we call a difference one if p is below 0.01. (The speed runs of modded-nanogpt ask for the same p, in another test: is the mean loss below a fixed one?) With five times on each side, that takes two groups that do not overlap anywhere. Now compare two that do differ.

# %%
assert LEVEL == 0.01
apart = torch.arange(10.0)
p = p_value(apart[:5], apart[5:])
print(f"p = {p:.3f}")  # 2 of 252 ways: all five first, or all five last
assert p < LEVEL

# %% [markdown]
# ## Rung {bigram_to_gpt}'s recipe
#
# `speedrun(data, tricks)` makes the trainer of rung {bigram_to_gpt}, with the tricks that you name. Without any, it is rung {bigram_to_gpt}'s recipe: the baseline here.

# %%
data = Data.of(load_text("stories"))
V = data.tokenizer.vocab_size
plain = speedrun(data, [])
assert plain.recipe == RECIPES["stories"]
sizes = plain.model.config
print(sizes)
for trick, reason in TRICKS.items():
    print(f"{trick}: {reason}")

# %% [markdown]
# Each trick has a reason, and each reason can be looked at. We take them one by one, and measure at the end.
#
# ## Token shift
#
# In rung {bigram_to_gpt} one layer got only some of the answers. Two layers can work in two steps: a letter notes what comes before it, and then a head looks for the note.
#
# There is a cheaper way to note the letter before. Ahead of attention, and again ahead of the MLP, **token shift** mixes each token with the one before it (Peng et al. 2023), each channel by a share of its own:
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
# You know them from rung {a_real_model}. What could they save? A head that looks a few tokens back has to find “a few back”. In a table of positions each of the 128 rows is trained by itself, and position and token share their channels. With rotary positions the score depends on the distance alone: what is learned at one place holds at all places.

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
# (The last direction stays at 0. LayerNorm takes the mean of the channels away, so nothing comes along it.)
#
# Muon does this to the **momentum**, a running mean of the gradients, which is less noisy than one gradient. It is for matrices in the blocks; embeddings and norms stay with AdamW.
#
# ## A schedule
#
# Small steps at the end let a model settle. Rung {bigram_to_gpt}'s learning rate falls along a cosine, which is almost 0 for many steps. A straight line to 0, after a short warm-up, spends fewer steps there. In a short run that may count.

# %% tags=["folded"]
# Picture: the learning rates of both recipes
straight = speedrun(data, ["schedule"])
steps = torch.arange(plain.recipe.steps)
rates = {
    name: torch.tensor([each.schedule(step) for step in steps.tolist()])
    for name, each in {
        "rung {bigram_to_gpt}": plain,
        "a straight line": straight,
    }.items()
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
    alt="Two curves over the steps. Both rise quickly to 1. Rung {bigram_to_gpt}'s then "
    "falls to 0 along a cosine, the other one along a straight line.",
)

# %% [markdown]
# ## A smaller shape
#
# With a note of one letter for free, one layer may be enough. A step then costs about half. And small batches take more steps in the same time; each is noisier, and while the model knows little, a rough direction is good enough.
#
# ## The run
#
# All tricks at once, on your machine. Does it reach the mark?

# %% tags=["long"]
fast = speedrun(data, TRICKS)
run(fast, name="all tricks")
val_text = data.tokenizer.decode(data.val)
reached = answer_accuracy(fast.model, val_text, data.tokenizer)
assert reached > MARK

# %% tags=["nbval-ignore-output"]
print(
    f"answer accuracy {reached:.2f} "
    f"after {fast.seconds:.1f} s on this machine"
)

# %% [markdown]
# And what was each trick worth? The baseline is rung {bigram_to_gpt}'s recipe. Each row below it is the row above with one more trick, and with what that trick brings along. Muon has a learning rate of its own for the matrices, the straight line a shorter warm-up, and the smaller shape a smaller batch. Learning rate and steps were then tuned again for every row. These races were measured beforehand, on the machine that the cell names, with six seeds each. All recipes took turns, 25<!--given--> steps at a time, and a recipe left the race when it reached the mark. The seconds are those of processor time, on one thread. “Never” means a run that had not reached it after its last step. The p-value in each row compares it with the row above.

# %% tags=["folded"]
# Table: settings, and seconds to the mark, one more trick in each row
recipes = measured()["recipes"]
runs = {name: run_of(name) for name in recipes}
marks = {name: each["marks"] for name, each in runs.items()}
print(f"{measured()['machine']}; {len(marks['baseline'])} seeds")


def row(name, other):
    settings = recipes[name]
    each = marks[name]
    median = said(runs[name]["median"])
    span = f"{said(each[0].item())} to {said(each[-1].item())}"
    p = "" if name == other else f"{p_value(each, marks[other]):8.4f}"
    numbers = (settings[of] for of in ("n_layer", "batch_size", "steps"))
    print(
        f"{name:20}{settings['learning_rate']:8.4f}",
        *(f"{number:6}" for number in numbers),
        f"{median:>8}  {span:16}{p}",
    )


print(f"{'':20}lr      layers batch steps  median  range           p")
adding = ["baseline", *(f"+ {trick}" for trick in TRICKS)]
for above, name in zip([adding[0], *adding], adding):
    row(name, above)


# %% [markdown]
# Look at the p-values before you read on. Which of these tricks makes a difference?
# %% tags=["folded"]
# Check: what the table shows
def p_of(one, other):
    return p_value(marks[one], marks[other])


names = ("+ token_shift", "+ rotary", "+ muon", "+ schedule")
assert all(p_of(name, "baseline") >= LEVEL for name in names)
assert all(p_of(*pair) >= LEVEL for pair in pairwise(names))
for slow in ("baseline", "+ schedule"):
    assert p_of("+ shape", slow) < LEVEL
medians = {name: each["median"] for name, each in runs.items()}
assert medians["+ shape"] < medians["baseline"] / 2
assert medians["+ token_shift"] > medians["baseline"]

# %% [markdown]
# Only the last one. The first four rows below the baseline do not differ from the row above by more than chance may have done, and none of them differs from the baseline either. Token shift alone looks even slower. Then comes the smaller shape, and with it all five tricks together take about half of the time of rung {bigram_to_gpt}'s recipe. (Six seeds find large differences only. A trick that saves a tenth of the time may be among the four, and this table could not show it.)
#
# So is the small shape all that counts, and the rest for nothing? A table that adds tricks one by one cannot say. It shows what each is worth to the recipe above it, and the recipes above had two layers.
#
# ## Explore: recipes
#
# **Which trick is missed most?** Choose a recipe “without” one trick, and compare it with “+ shape”, which has all of them. Their learning rates and steps were tuned in the same way. The button trains the recipe on your machine.

# %% tags=["folded"]
# Explorer: any recipe beside any other, as they were measured
explore("recipes")

# %% [markdown]
# Here are the same numbers as a table. The p-value now compares each row with the one that has all tricks.

# %% tags=["folded"]
# Table: all tricks without one, beside all of them
every = adding[-1]
for name in (every, *(name for name in recipes if name not in adding)):
    row(name, every)

# %% tags=["folded"]
# Check: what the table shows
for trick, missed in (("token_shift", 4), ("rotary", 5), ("muon", 1)):
    name = f"without {trick}"
    assert recipes[name]["steps"] == 1200
    assert marks[name].isinf().sum() == missed
    assert p_of(name, every) < LEVEL
assert medians["without muon"] > 2 * medians[every]
assert p_of("without schedule", every) >= LEVEL

# %% [markdown]
# Now token shift and rotary positions are what the recipe cannot do without. With either of them missing, most seeds do not reach the mark within 1,200 steps, the most that we allowed. Without Muon it takes more than twice as long. For the straight line, chance may have done it.
#
# On two layers, six seeds could not show what any of these tricks adds to the row above; on one layer, they carry the recipe. Without token shift only two of six single layers got there; with it, all six did. What a trick is worth depends on what else is there.
#
# ## Beside nanoGPT
#
# The stories are an easy text. What about a real one, and settings that somebody else chose? nanoGPT's readme has some for a computer without a GPU: 4 layers, 128<!--given--> channels, and 2,000<!--given--> steps on Tiny Shakespeare. `make bench-speedrun` trains with them, then a model of the same size without any trick, then one with all tricks, which has a single layer, 96<!--given--> channels and half the context. The first two use PyTorch's fused AdamW. The clock of the other two stops at the loss with which nanoGPT's settings end, 1.90<!--given-->.
#
# On an AMD EPYC with one thread and one seed, the recipe without tricks was 4.4<!--given--> times as fast, and the one with all tricks 30<!--given--> times. Be careful with the 30. A good part of it was there before the first trick: a larger learning rate and larger batches, for fewer steps, tuned on held-out text, in a shorter number format. And nanoGPT's settings are made for comfort, not for speed. They have to work for everybody at the first try.
#
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
#
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
#
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
# Now the clock waits for both, and it is the same processor. A difference that is left comes from handing the work over, from other load, or from chance.
#
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
# ### 2. A step of Newton–Schulz
#
# <!--task newton_schulz_step-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("newton_schulz_step")


# %%
def my_newton_schulz_step(x, a, b, c):
    raise NotImplementedError


check("newton_schulz_step", my_newton_schulz_step)

# %% [markdown]
# ### 3. A schedule
#
# <!--task learning_rate_schedule-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("learning_rate_schedule")


# %%
def my_schedule(peak, steps, warmup, decay):
    raise NotImplementedError


check("learning_rate_schedule", my_schedule)

# %% [markdown]
# ### 4. A fair comparison
#
# <!--task speed_up-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("speed_up")


# %%
def my_speed_up(old, new, mark):
    raise NotImplementedError


check("speed_up", my_speed_up)

# %% [markdown]
# ## In the wild
#
# - modded-nanogpt is a race to train, on eight H100 GPUs, a model as good as a replication of GPT-2 small: from 45<!--given--> minutes in 2024 to less than two in 2026. Its rules include the ones that you used here: everybody reads the same text, and a new record needs enough runs to show, at p < 0.01<!--given-->, that the mean loss is reached. Muon was introduced there (the idea of its iteration is in Bernstein & Newhouse 2024), and a kind of token shift is in it, called smear.
# - `torch.optim.Muon` is in PyTorch. Large models have been trained with variants of it: Kimi K2 has a trillion parameters.
# - `F.scaled_dot_product_attention` chooses between FlashAttention and other kernels. On a GPU, a mask tensor rules out FlashAttention; `is_causal=True` does not.
# - vLLM serves many people at once. It cuts the cache into pages, so that texts of any length share the memory (Kwon et al. 2023). How many texts fit beside the parameters is a matter of their keys and values.
# - What papers report for a training run is close to this share of the ceiling: model FLOPs utilization (MFU) adds attention's products to the rule of 6, and divides by the peak that the maker promises. Large runs reach about 40 %<!--given-->.
#
# ## Three sentences to remember
#
# 1. Five tricks together take about half of the time. Added one after the other, only the last makes a clear difference; taken out one at a time, all but the schedule are missed. What a trick is worth depends on the others, so measure.
# 2. Softmax needs no whole row: a running maximum, a running sum and one correction are enough, and memory grows like T.
# 3. A speed-up counts if both sides did the same work, to the same mark, in turns, and the clock waited for both.
#
# Next: [rung {an_empty_page}]({an_empty_page}.ipynb), where you write the GPT yourself.
#
# <!--neighbours-->
