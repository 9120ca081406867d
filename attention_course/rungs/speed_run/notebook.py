# %% [markdown]
# # Rung {speed_run}: the race
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


# %% [markdown]
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


# %% [markdown]
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


# %% [markdown]
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


# %% [markdown]
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


# %% [markdown]
# ## Beside nanoGPT
#
# The stories are an easy text. What about a real one, and settings that somebody else chose? nanoGPT's readme has some for a computer without a GPU: 4 layers, 128<!--given--> channels, and 2,000<!--given--> steps on Tiny Shakespeare. `make bench-speedrun` trains with them, then a model of the same size without any trick, then one with all tricks, which has a single layer, 96<!--given--> channels and half the context. The first two use PyTorch's fused AdamW. The clock of the other two stops at the loss with which nanoGPT's settings end, 1.90<!--given-->.
#
# On an AMD EPYC with one thread and one seed, the recipe without tricks was 4.4<!--given--> times as fast, and the one with all tricks 30<!--given--> times. Be careful with the 30. A good part of it was there before the first trick: a larger learning rate and larger batches, for fewer steps, tuned on held-out text, in a shorter number format. And nanoGPT's settings are made for comfort, not for speed. They have to work for everybody at the first try.


# %% [markdown]
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


# %% [markdown]
# ## Exercises
#
# ### 1. A step of Newton–Schulz
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
# ### 2. A schedule
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
# ### 3. A fair comparison
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


