# %% [markdown]
# # Rung {speed_run}: the race
#
# <!--ladder-->
#
# **You will build** a clock that you can trust, and with it a smaller GPT that answers nearly all questions after about half the training time.
#
# Training takes too long. With the package's full recipe of 1,200<!--given--> steps, rung {bigram_to_gpt}'s GPT needs about a minute, and large models train for months. Many tricks promise to help. Which of them do?

# %% tags=["hero", "folded"]
# The opening picture: guess first, then watch the race
from attention_course.heroes import hero

hero("speed_run")

# %% [markdown]
# **You need** [rung {bigram_to_gpt}]({bigram_to_gpt}.ipynb), and [rung {a_real_model}]({a_real_model}.ipynb) for rotary positions.
#
# <!--time-->
#
# ![The transformer as a drawing. Highlighted is what this rung makes faster: position, attention, feed-forward, norm.](images/transformer_speed_run.svg)
#
# ## Twice as fast?
#
# A **benchmark** compares two ways to compute something. The next three print real measurements, and each fools you in its own way.
#
# ### Who runs first
#
# Look for a difference between `old` and `new`. (`@cache` stores what a function returns, so later calls get it at once.)

# %% tags=["folded"]
# Imports
import platform
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure

from attention_course.attention import attention, causal_mask, leak_probe
from attention_course.exercises import check
from attention_course.explorers import explore
from attention_course.fills import fill
from attention_course.gpt import evaluating
from attention_course.llama import Rotary
from attention_course.plots import BLUE, ORANGE, Lines, Picture, picture
from attention_course.progress import progress
from attention_course.questions import ask
from attention_course.rungs.speed_run.explorer_recipes import (
    LEVEL,
    TARGET_ACCURACY,
    measured,
    p_value,
    run_of,
    said,
)
from attention_course.speedrun import (
    TRICKS,
    TokenShift,
    newton_schulz,
    speedrun,
)
from attention_course.stories import answer_accuracy
from attention_course.text import Corpus, get_batch, load_text
from attention_course.training import RECIPES, evaluate, run

torch.set_printoptions(precision=3, sci_mode=False)

progress("speed_run")


# %%
@cache
def table():
    return torch.arange(2_000_000.0).sin()


def old():
    return table()[:1000].sum()


def new():
    return table()[:1000].sum()


# %% tags=["nbval-ignore-output", "do"]
table.cache_clear()  # as if Python had just started
seconds = {}
for name, side in {"old": old, "new": new}.items():
    start = time.perf_counter()
    side()
    seconds[name] = time.perf_counter() - start
print(f"new is {seconds['old'] / seconds['new']:.4g} times as fast")

# %% tags=["folded"]
# Question
ask("unfair_start")

# %% [markdown]
# Try it, and swap them back. Then add one line right above the loop that makes the benchmark fair.
#
# One call to either function is enough, because then both find the table ready. Memory, too, is often set up only when it's first needed, and some code is compiled on the spot. So every candidate should run once before the clock starts.
#
# ### When the clock stops
#
# A GPU works alongside the processor, so Python hands it some work and goes on. Here a second thread on the same processor plays the part of the GPU, and `submit` hands it the work.

# %% tags=["nbval-ignore-output", "do"]
device = ThreadPoolExecutor(max_workers=1)
q, k, v = torch.randn(3, 4096, 64)
device.submit(attention, q, k, v).result()  # both have run once
attention(q, k, v)

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
# Now make it fair. `submit(...)` returns at once, and `submit(...).result()` waits until the answer is there. Put `.result()` into the line with `answer`, run the cell again, and the speed-up is gone. (On a GPU, `torch.cuda.synchronize()` does the waiting.)
#
# ### What is measured
#
# The third benchmark needs a trained model, so train one, with all the tricks of this rung.

# %% tags=["long"]
data = Corpus.of(load_text("stories"))
V = data.tokenizer.vocab_size
fast = speedrun(data, TRICKS)
history = run(fast, name="all tricks")

# %% tags=["folded"]
# Models: two recipes, and the stories of the validation text
recipe_a = recipe_b = fast.model
val_text = data.tokenizer.decode(data.val)
stories = val_text.splitlines()[1:201]  # the first one may be cut


# %%
def loss_of_stories(model):
    losses = []
    with evaluating(model):
        for story in stories:
            ids = data.tokenizer.encode(f"\n{story}\n")
            logits = model(ids[None, :-1])[0]
            losses.append(F.cross_entropy(logits, ids[1:]))
    return torch.stack(losses).mean().item()


# %% tags=["nbval-ignore-output", "do"]
loss_a = evaluate(recipe_a, data.val)  # on blocks of the validation text
loss_b = loss_of_stories(recipe_b)
print(f"A {loss_a:.3f}, B {loss_b:.3f}, so B is better")

# %% tags=["folded"]
# Question
ask("unfair_loss")

# %% tags=["folded", "long"]
# Check: the loss on blocks is higher, and the same for A and B
assert loss_of_stories(recipe_b) < evaluate(recipe_a, data.val)
assert evaluate(recipe_a, data.val) == evaluate(recipe_b, data.val)

# %% [markdown]
# Change one of the two lines so that A and B are measured in the same way. They turn out to be the same model. (A block may begin in the middle of a story, where nobody can know who gave what to whom, so its loss is higher.)
#
# ## The rules
#
# All three look convincing, since nothing crashes and every number is real. So set the rules before you race.

# %% tags=["folded"]
# Question
ask("fewer_steps")

# %% [markdown]
# 1. **The same task.** All recipes learn from the same text and are measured in the same way. Ours have to reach an answer accuracy of 0.95<!--given--> on the first 8,192<!--given--> characters of the validation text. That is the mark.
# 2. **Seconds until the mark, not steps.** The clock stops when the work is done, not when it has been handed over.
# 3. **In turns.** Each runs once before the clock starts, and then they take turns, so that other work on your machine slows them all down alike.
# 4. **Several rounds and several seeds.** A single number can't tell you how far off the next one would be.
# 5. **Each at its best.** Every recipe gets its own learning rate and number of steps, tuned on a held-out part of the *training* text, because tuning on the text that decides the race is like seeing the exam beforehand.
# 6. **The machine next to the number.** On another machine another recipe may win.
#
# Rule 3 and the rounds of rule 4 fit into one function, which is also in the package.

# %% tags=["folded"]
# Fill in: a clock for several candidates
fill("in_turns")


# %% tags=["name:in_turns"]
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
took = in_turns({"one": lambda: x @ x, "the same": lambda: x @ x})
for name, each in took.items():
    print(f"{name:10}", *(f"{1000 * second:6.2f}" for second in each), "ms")
chip = torch.cpu.get_capabilities().get("cpu_name", platform.machine())
print(f"{chip}, threads: {torch.get_num_threads()}, {torch.__version__}")

# %% [markdown]
# ## A difference, or chance?
#
# The two rows differ, although both sides do the same thing. So how often would chance alone make two rows differ at least as much?
#
# Write the ten times on ten cards, and lay them in a row, the shortest first. If both sides are equally fast, then any five cards could just as well have been the first side's, and there are 252<!--given--> ways to choose five. Add up each side's places in the row, and count the ways that put the two sums at least as far apart as yours. The share of such ways is the **p-value**, and this count is the **rank-sum test** (Wilcoxon 1945). In the next cell the two sides don't overlap at all, so only 2 ways count, with all the short times on one side or on the other.

# %% tags=["do"]
one = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
other = torch.tensor([6.0, 7.0, 8.0, 9.0, 10.0])
p = p_value(one, other)
print(f"p = {p:.4f}, so a difference? {p < LEVEL}")

# %% [markdown]
# We'll call something a difference if p is below {{LEVEL}}, so two equal sides fool us less than once in a hundred times. Change the 5.0 to 6.5<!--given-->, so that one time overlaps. Is it still a difference?
#
# No, p is 0.016<!--given--> now. With only five rounds on each side, a single overlap is too much.
#
# Now put your own two rows in, with `p_value(*map(torch.tensor, took.values()))`. What do you expect?
#
# (Usually p is far above {{LEVEL}}. We ran that race 600<!--given--> times, and chance alone brought p below {{LEVEL}} in 2 of them.)
#
# ## The recipe to beat
#
# `speedrun(data, tricks)` makes a trainer with the tricks that you name. Without any you get rung {bigram_to_gpt}'s GPT with the package's full recipe, `RECIPES["stories"]`. That's AdamW with the learning rate of your own loop. (Your loop reached the mark with 400<!--given--> steps. Rule 5's tuning chose three times as many, so that other seeds reach it.)

# %%
plain = speedrun(data, [])
assert plain.recipe == RECIPES["stories"]
print(plain.recipe.steps, "steps", plain.model.config)
for trick, reason in TRICKS.items():
    print(f"{trick:12} {reason}")

# %% [markdown]
# ## Token shift
#
# To answer a question, rung {bigram_to_gpt}'s model spent its first layer on notes. A letter noted what came before it, and only then could the second layer look for that note.
#
# There is a cheaper way to get such a note. **Token shift** (Peng et al. 2023) mixes each token with the one before it, ahead of attention and again ahead of the feed-forward part.
#
# `x + mix * (before - x)`
#
# Each channel has its own learned share, `mix`. Where it is 0 you keep the token, and where it is 1 you get the one before. In the next cell, five tokens hold 1 to 5 in every channel. (Before the first one there are zeros.)

# %%
shift = TokenShift(4)
tokens = torch.arange(1.0, 6.0)[:, None].expand(1, 5, 4)
print(shift.mix.detach())
print(shift(tokens)[0].detach())

# %% tags=["folded"]
# Question
ask("one_layer_is_enough")

# %% [markdown]
# ### More: nothing from the future, and one token back
#
# The leak probe shows that row t depends on tokens t and t − 1, and on nothing else.

# %% tags=["lesson"]
probe = leak_probe(shift, torch.randn(1, 6, 4))
assert torch.equal(probe, causal_mask(6) & causal_mask(6).triu(-1))

# %% [markdown]
# ## Rotary positions
#
# With a table of positions, a head that wants to look a few letters back has to learn that again for each of the 128 positions. With rotary positions, which you know from rung {a_real_model}, the same query and key get a score that depends only on their distance, so what is learned at one place holds everywhere.

# %% tags=["folded"]
# Check: with rotary positions a score is the same along each diagonal
torch.manual_seed(0)
q, k = torch.randn(2, 1, 16)
rotary = Rotary(16, block_size=128)
scores = rotary(q.expand(128, -1)) @ rotary(k.expand(128, -1)).T
for back in (1, 5):
    diagonal = scores.diagonal(-back)
    torch.testing.assert_close(
        diagonal, diagonal[:1].expand(128 - back), atol=1e-3, rtol=0
    )

# %% [markdown]
# ## The directions of a matrix
#
# The third trick is another optimizer. To see what it does, first look at what a matrix does by multiplying every point of a circle by this one.

# %% tags=["do"]
M = torch.tensor([[1.5, 0.8], [0.2, 0.9]])
U, S, Vh = torch.linalg.svd(M)
S

# %% tags=["folded"]
# Picture: a circle, and what two matrices make of it
angle = torch.linspace(0, 2 * torch.pi, 101)
circle = torch.stack([angle.cos(), angle.sin()])  # (2, 101)
even = U @ Vh  # both stretches are 1
figure = Figure(figsize=(7.2, 2.6), layout="constrained")
for axes, (title, matrix) in zip(
    figure.subplots(1, 3, sharey=True),
    {
        "a circle": torch.eye(2),
        "M times the circle": M,
        "both set to 1": even,
    }.items(),
):
    axes.plot(*(matrix @ circle), color="grey")
    for number, colour, arrow in zip("12", (BLUE, ORANGE), Vh):
        to = (matrix @ arrow).tolist()
        axes.annotate(
            "", to, (0, 0), arrowprops={"arrowstyle": "->", "color": colour}
        )
        x, y = (matrix @ (1.2 * arrow)).tolist()
        axes.text(x, y, number, color=colour, ha="center", va="center")
    axes.set(
        title=title, aspect="equal", xlim=(-2.2, 2.2), ylim=(-1.6, 1.6)
    )
Picture.of(
    figure,
    alt="Left, a circle with two arrows at right angles, 1 and 2. In the "
    "middle M has made an ellipse of it. Arrow 1 has become its long half, "
    "and arrow 2 its short half. Right, it is a circle again, and both "
    "arrows point where they point in the middle.",
)

# %% [markdown]
# The circle becomes an ellipse. An arrow of length 1 is a direction, and two directions, at right angles, become the long and the short half-axis of the ellipse. The factors by which M stretches them are its **singular values**, here {{S[0]:.2f}} and {{S[1]:.2f}}. Now change M so that the ellipse collapses into a line.
#
# (If one row is a multiple of the other, the second singular value is 0.)
#
# `torch.linalg.svd` takes any matrix apart into a turn (it may be mirrored), a stretch along the axes, and another turn, `U @ S.diag() @ Vh`. A turn keeps lengths and right angles, so `U.T @ U`, the dot products of U's columns with each other, has 1 on the diagonal and 0 elsewhere. Multiplying by that product changes nothing, so a turn can be undone.
#
# ### What the gradient wants
#
# A gradient is a matrix too, so take one from the untrained GPT. How far does it want to go in each of its 64 directions?

# %%
x, y = get_batch(data.train, 128, 24, torch.Generator().manual_seed(0))
loss = F.cross_entropy(plain.model(x).flatten(0, 1), y.flatten())
loss.backward()
gradient = plain.model.transformer.h[0].mlp.c_fc.weight.grad  # (256, 64)
turn, stretch, turn_back = torch.linalg.svd(gradient, full_matrices=False)
share = 100 * stretch[:4].square().sum() / stretch.square().sum()
print(f"4 of {len(stretch)} directions: {share:.1f} % of squared length")
assert share > 50

# %% [markdown]
# The squares of the 64 stretches add up to the gradient's squared length, and a few directions hold most of it. If you step along the gradient, everything else hardly moves. (AdamW doesn't help with that. It lets all *entries* of a matrix move about equally far, but a direction is spread over many entries.)
#
# One batch holds only a few stories, so its gradient is noisy. **Momentum** is a running mean of the gradients, in which much of the noise cancels.
#
# **Muon** (Jordan et al. 2024) takes the momentum, keeps its directions, and sets all singular values to about 1, much as on the right of the picture above. Then a step goes about equally far along every direction. It does that for the matrices inside the layers, and leaves embeddings and norms to AdamW.
#
# ### Without an SVD
#
# An SVD at every step is slow on a GPU. Muon gets by with five steps of **Newton–Schulz**, which needs only products of matrices. Write X for U · S · Vh. In X Xᵀ X the inner turns drop out, and U · S³ · Vh remains. So a polynomial of such products changes only the singular values, and the directions stay. This is Muon's.


# %%
def lift(s):
    return 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5


# %% tags=["folded"]
# Question
ask("after_newton_schulz")

# %% tags=["do"]
s = torch.tensor([1.0, 0.1, 0.01])
for step in range(1, 6):
    s = lift(s)
    print(step, s)

# %% [markdown]
# Small values grow with each step, and large ones jump around near 1 without settling, which is good enough. Try 0.001 instead of 0.01.
#
# (It only gets to 0.47<!--given-->.) Now divide the gradient by its norm, which is its length, so that no singular value is above 1.

# %% tags=["folded", "lesson", "proof"]
# Check: newton_schulz does the same to the gradient
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
# ### More: why the last direction stays at 0
#
# LayerNorm subtracts the mean of the channels, so while its weights are all still 1, the input of this matrix has nothing along the direction in which all channels are equal. There the gradient is 0, and a polynomial without a constant keeps 0 at 0.
#
# ## The schedule and the shape
#
# `schedule` lets the learning rate fall along a straight line instead of a cosine. And if token shift makes notes almost for free, one layer may be enough. So `shape` uses one layer, which roughly halves the cost of a step, and batches of 16<!--given--> blocks instead of 24<!--given-->.

# %% tags=["folded"]
# Question
ask("smaller_batches")

# %% [markdown]
# ### More: a straight line instead of a cosine
#
# Small steps at the end let a model settle. A cosine is almost 0 for many steps, while a straight line to 0, after a short warm-up, spends fewer steps there. In a short run that may count.

# %% tags=["folded"]
# Picture: the learning rates of both recipes
straight = speedrun(data, ["schedule"])
steps = torch.arange(plain.recipe.steps)
rates = {
    name: torch.tensor([each.schedule(step) for step in steps.tolist()])
    for name, each in {
        "a cosine": plain,
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
    alt="Two curves over the steps. Both rise quickly to 1. Then one of "
    "them falls to 0 along a cosine, and the other along a straight line.",
)

# %% [markdown]
# ## The race
#
# You've already trained a model with all five tricks, so first see whether it was past the mark after its last step.

# %% tags=["long", "nbval-ignore-output"]
reached = answer_accuracy(fast.model, val_text, data.tokenizer)
assert reached > TARGET_ACCURACY
print(f"answer accuracy {reached:.2f} after {fast.seconds:.1f} s")

# %% [markdown]
# What was each trick worth? We raced all the recipes beforehand, by the rules above, with six seeds each. (Only rule 3's first call was skipped, about 0.03<!--given--> seconds.) In the table each row has one more trick than the row above, along with what that trick calls for (another learning rate, a shorter warm-up, a smaller batch). All rows were tuned separately, took turns of 25<!--given--> steps, and left the race at the mark. “Never” is a run that hadn't reached it after its last step. The p-value compares a row with the one above.

# %% tags=["folded"]
# Table: settings, and seconds to the mark, one more trick in each row
recipes = measured()["recipes"]
runs = {name: run_of(name) for name in recipes}
marks = {name: each["marks"] for name, each in runs.items()}
medians = {name: each["median"] for name, each in runs.items()}


def p_of(one, other):
    return p_value(marks[one], marks[other])


def row(name, other):
    settings = recipes[name]
    span = " to ".join(said(marks[name][at].item()) for at in (0, -1))
    p = "" if name == other else f"{p_of(name, other):8.4f}"
    numbers = (settings[of] for of in ("n_layer", "batch_size", "steps"))
    print(
        f"{name:20}{settings['learning_rate']:8.4f}",
        *(f"{number:6}" for number in numbers),
        f"{said(medians[name]):>8}  {span:16}{p}",
    )


print(f"{measured()['machine']}; {len(marks['baseline'])} seeds")
print(f"{'lr':>28} layers  batch  steps  median  range                   p")
adding = ["baseline", *(f"+ {trick}" for trick in TRICKS)]
for above, name in zip([adding[0], *adding], adding):
    row(name, above)

# %% tags=["folded"]
# Question
ask("which_tricks_count")

# %% [markdown]
# Only the last row has a p below 0.01<!--given-->. Against the baseline, the four rows before it don't get that low either (the menus below compare any two), and token shift alone even looks slower. With all five, the median is {{medians["+ shape"]:.1f}} seconds instead of {{medians["baseline"]:.1f}}, about half.
#
# Six seeds can only show large differences, though, because p gets below 0.01<!--given--> only if the two sides hardly overlap. So a trick that saves a tenth of the time could well be among the four.
#
# ## What if you leave one out?
#
# So is the small shape all that counts, and are the others useless? The table can't tell you, because it adds every trick to a model with two layers. Take all five, and leave one out.
#
# **Which trick is missed most?** Choose a recipe “without” one trick, and compare it with “+ shape”, which has all of them.

# %% tags=["folded"]
# Explorer: any recipe beside any other, as they were measured
explore("recipes")

# %% [markdown]
# That changes the picture. Without token shift, four of the six seeds don't reach the mark within 1,200<!--given--> steps, our limit, and without rotary positions five don't. Without Muon it takes more than twice as long. Only for the straight line does p stay above 0.01<!--given-->.
#
# With two layers you couldn't see what any of the first four tricks does, and with one layer three of them carry the model. Token shift gives that one layer the note that used to need a layer of its own. **What a trick is worth depends on what else is there.** So be wary of lists that give each trick a percentage.
#
# ### More: the same as a table
#
# The p-value compares each row with the one that has all tricks. (AVX512 with bfloat16 means that this server processor multiplies many 16-bit numbers at once. We counted its seconds on one thread.)

# %%
every = adding[-1]
for name in (every, *(name for name in recipes if name not in adding)):
    row(name, every)

# %% [markdown]
# ## More: torch.compile, and why the first step is slow
#
# `torch.compile(model)` is one line, and it promises speed. At the first step it records which operations your model runs, merges them into a few larger functions, writes these in C++ (for a GPU, in another language), and has them compiled. From the second step on, Python has less to do, and numbers that the next operation needs don't have to travel to memory and back.
#
# Does it pay off here? On the machine of the table, a step of the recipe to beat took 42<!--given--> ms of processor time without it and 36<!--given--> ms with it. But the first step took 30<!--given--> seconds, nearly all of them spent on recording, merging and the C++ compiler. At 6<!--given--> ms per step you need about 5,000<!--given--> steps to get that back, and the training has 1,200<!--given-->. (One run each, taking turns after the first step.) In a training run of several hours the first step hardly counts, and on a GPU the gain is usually larger. So leave the first call out if you ask how fast a step is, and count it if you ask when your model is ready.
#
# ## More: in the wild
#
# - modded-nanogpt is a race to train a model to the loss of GPT-2 small on eight large GPUs. The record fell from 45<!--given--> minutes in 2024 to less than two in 2026. Its rules are much like yours. Everybody trains on the same text, and a new record needs enough runs to show, at p < 0.01<!--given-->, that its mean loss reaches the mark. Muon was introduced there (the idea of its iteration is in Bernstein & Newhouse 2024), and it uses a kind of token shift, called smear.
# - nanoGPT's readme has settings for a computer without a GPU, and with one seed on the machine of our table, our recipe without tricks reached their final loss on Tiny Shakespeare 4.4<!--given--> times as fast, and the one with all tricks 30<!--given--> times as fast. Those settings are meant to work for everybody on the first try, and our learning rate and batches are larger and were tuned, so part of the gain came before the first trick.
# - GPT-2 has 50,257<!--given--> tokens, but nanoGPT gives its tables 50,304<!--given--> rows. The extra rows are never used, but they make the number a multiple of 64. GPUs multiply matrices in blocks of such sizes, so the larger table is faster.
# - `torch.optim.Muon` is in PyTorch. Large models, such as Kimi K2 with its trillion parameters, have been trained with variants of it.
#
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
# ## Three sentences to remember
#
# 1. A speed-up counts if both sides did the same work to the same mark, in turns, and the clock waited for both.
# 2. Ask how often chance alone would do as much, because even two measurements of the same thing differ.
# 3. With all five tricks, our model needed about half the time, but what a trick is worth depends on the others, so measure it where you use it.
#
# Next: [rung {bytes}]({bytes}.ipynb), where memory runs out before time does.
#
# <!--neighbours-->
