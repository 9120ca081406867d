# %% [markdown]
# # Rung {bag_of_words}: bag of words
#
# <!--ladder-->
#
# **You will build** the mean of the past, with loops: the simplest way for a token to use what came before it, and the reference for the next rungs.

# %% tags=["hero", "folded"]
# The way up. Press Play, or drag the ring
from attention_course.heroes import hero

hero("ladder")

# %% [markdown]
# **You need** Python, and tensors: indexing, slices, shapes.
#
# <!--time-->
#
# ![The transformer as a drawing. Lit is what this rung builds: the tokens and the mean.](images/transformer_bag_of_words.svg)
#
# Click a grey line to see its code.

# %% [markdown]
# ## The question
#
# A model reads a text from left to right. At each position it may use only what it has read so far. What is the simplest thing to do with all that past?
#
# Below, each row of `x` is a piece of a text. The past of row 1 is row 0 and row 1 itself. Fill in what averages these two rows, column by column.

# %% tags=["folded"]
# Fill in: the mean of the past at position 1
from attention_course.fills import fill

fill("mean_of_the_past")

# %% tags=["hero", "folded"]
# The picture of this rung. Press Play, drag a token, shuffle
hero("bag_of_words")

# %% tags=["folded"]
# Imports
import torch

from attention_course.exercises import check
from attention_course.explorers import explore
from attention_course.progress import progress
from attention_course.questions import ask

progress("bag_of_words")

# %% [markdown]
# ## Tokens are rows
#
# A **token** is a piece of text, such as a word or a character. The model represents it by a vector, whose entries are its **channels**. A text is a **sequence** of tokens: their order matters. A sequence of T tokens with C channels is a tensor of shape (T, C), one row for each token, in reading order. We call such a row a token, too.
#
# Here T = 4 and C = 2, so each token is a point in the plane. The numbers are small: you can follow every step in your head.

# %%
x = torch.tensor([[2.0, 8.0], [4.0, 4.0], [6.0, 0.0], [0.0, 4.0]])
x.shape

# %% [markdown]
# ## Predict
#
# The simplest way to use the past is to take its **mean**, channel by channel: add up the token at position t and all tokens before it, and divide by their number. Commit to a guess before you go on.

# %% tags=["folded"]
# Question
ask("mean_at_one")

# %% [markdown]
# ## Build: one position
#
# The past of position `t`, including the token itself, is a slice of `x`. Positions are also called time, hence T. The mean is taken over time, dimension 0. The channels, dimension 1, stay separate.

# %% tags=["folded"]
# Question
ask("slice_of_the_past")

# %% tags=["name:mean_of_the_past"]
t = 1
past = x[: t + 1]  # (t + 1, C)
past.mean(dim=0)

# %% [markdown]
# ## Build: every position
#
# A loop over time does this for each position.

# %% tags=["folded"]
# Fill in: the loop
fill("every_position")

# %% tags=["folded", "name:every_position"]
# The loop
T, C = x.shape
means = torch.zeros(T, C)
for t in range(T):
    means[t] = x[: t + 1].mean(dim=0)
means

# %% [markdown]
# Check the last row in your head: (2 + 4 + 6 + 0) / 4 = {{means[-1, 0]:.0f}}, and (8 + 4 + 0 + 4) / 4 = {{means[-1, 1]:.0f}}.
#
# ## Build: a batch
#
# Models process several sequences at once. A **batch** of B sequences has shape (B, T, C). Each sequence is averaged on its own, so there is one more loop.

# %%
torch.manual_seed(1)
B, T, C = 4, 8, 2
batch = torch.randn(B, T, C)

# %% tags=["folded"]
# Fill in: a loop over the batch around it
fill("mean_of_each_text")

# %% tags=["folded", "name:mean_of_each_text"]
# Both loops
batch_means = torch.zeros(B, T, C)
for b in range(B):
    for t in range(T):
        batch_means[b, t] = batch[b, : t + 1].mean(dim=0)
batch_means.shape

# %% [markdown]
# ## Build: one function for both
#
# An index of `...` stands for all dimensions that are not named. Counted from the end, time is dimension -2 and the channels are dimension -1, so one function serves both shapes.
#
# `torch.testing.assert_close` compares two tensors. It is silent when they agree, and raises an error when they do not.


# %%
def causal_mean_loop(x):
    out = torch.zeros_like(x)
    for t in range(x.shape[-2]):
        out[..., t, :] = x[..., : t + 1, :].mean(dim=-2)
    return out


torch.testing.assert_close(causal_mean_loop(x), means)
torch.testing.assert_close(causal_mean_loop(batch), batch_means)

# %% [markdown]
# This function is **causal**: no output depends on a later input. A **language model** like GPT uses output t to predict token t + 1, so it has to be causal. **Attention** will turn out to be a mean, too, in which the tokens determine how much each of them counts. A model whose tokens exchange information only through attention is called a **transformer**; the T of GPT stands for it.
#
# The package has the same function. The next rungs import it.
#
# ## What is lost
#
# A mean does not depend on the order of its terms.

# %% tags=["folded"]
# Question
ask("swap_two_tokens")

# %%
swapped = x[[1, 0, 2, 3]]
changed = (causal_mean_loop(swapped) != causal_mean_loop(x)).any(dim=-1)
assert not changed[-1]
changed

# %% [markdown]
# Tokens go into the mean like words into a bag, and come out in no order: "dog bites man" and "man bites dog" end in the same mean. Hence the name **bag of words**.
#
# From one mean you cannot recover the tokens, because many pairs have the mean (3, 6). From all of them you can. Multiply a mean by its number of tokens, and you have their sum; take away the sum before it, and one token is left.

# %%
for t in range(1, len(x)):
    token = (t + 1) * means[t] - t * means[t - 1]
    torch.testing.assert_close(token, x[t])
token, x[t]

# %% [markdown]
# ## No looking ahead
#
# Change one input at a time, and see which outputs move. That gives a matrix: one row for each output, one column for each changed input.

# %%
columns = []
for s in range(len(x)):
    nudged = x.clone()
    nudged[s] += 1
    moved = causal_mean_loop(nudged) != causal_mean_loop(x)
    columns.append(moved.any(dim=-1))
torch.stack(columns, dim=-1).int()

# %% [markdown]
# Read column 2: outputs 2 and 3 moved when input 2 did. All ones lie on the diagonal or below it. A one above it would be an output that moved with a *later* input.
#
# The package calls this the **leak probe**, because it shows a leak from the future. Its version adds random noise instead of 1. It tests one sequence, so it can find a leak but not prove that there is none.

# %%
from attention_course.attention import leak_probe

moves = leak_probe(causal_mean_loop, x)
assert not moves.triu(diagonal=1).any()
torch.equal(moves, torch.stack(columns, dim=-1))

# %% [markdown]
# ## Fewer additions
#
# Adding up t + 1 tokens takes t additions. Over all positions that is 0 + 1 + ... + (T − 1) = T(T − 1)/2 additions for each channel: about T²/2, quadratic in T.
#
# But the sum at t is the sum at t − 1 plus one more token. `cumsum` computes this running sum in T − 1 additions: linear in T. Dividing each row by its count gives the means.

# %%
counts = torch.arange(1, len(x) + 1)  # 1, 2, 3, 4
running_means = x.cumsum(dim=0) / counts[:, None]  # (T, C) / (T, 1)
torch.testing.assert_close(running_means, causal_mean_loop(x))

# %% [markdown]
# Why not stay with the running sum? In softmax attention (rung {masked_softmax}), each position determines for itself how much each earlier token counts. That takes one number for each pair of positions: a T × T matrix. (Linear attention, by Katharopoulos et al. 2020, gives up some of that freedom and stays with running sums.) [Rung {tril_matmul}]({tril_matmul}.ipynb) builds it.
#
# ## Prove
#
# Later rungs are compared with the rung below. Here there is none, so the loop is compared with its definition, for several lengths: each output is the sum of the tokens it may see, divided by their number.

# %% tags=["proof"]
for T in (1, 2, 7, 32):
    x_random = torch.randn(3, T, 5)
    means = causal_mean_loop(x_random)
    for t in range(T):
        torch.testing.assert_close(
            means[:, t] * (t + 1), x_random[:, : t + 1].sum(dim=1)
        )

# %% [markdown]
# `assert_close` allows a small difference, because both sides round, at different steps. Rung {tril_matmul} looks at this closely.
#
# ## Explore
#
# **How much does one new token move the mean, early and late? And where does its path end when the order changes?**
#
# Drag `t` to the right: the blue tokens have been seen, and the ring is the mean. Then leave `t` at 7 and change the order.
# (The picture is static until you run the cell.)<!--notebook-->

# %% tags=["folded"]
# Explorer: a bag of tokens, and the mean of what is in it
explore("bag_of_words")

# %% [markdown]
# When token t arrives, the mean goes 1/(t + 1) of the way towards it: halfway at t = 1, an eighth at t = 7, because it is one of t + 1 tokens. The path depends on the order, its end does not.
#
# ## Break it
#
# Here is a bug that is easy to write. It runs, and the shapes are right.


# %%
def broken_loop(x):
    out = x.clone()
    for t in range(len(out)):
        past = out[: t + 1]
        mean = past.mean(dim=0)
        out[t] = mean
    return out


broken_loop(x)

# %% [markdown]
# Compare it with the right means, (2, 8), (3, 6), (4, 4), (3, 4), and find the line.

# %% tags=["folded"]
# Question
ask("find_the_loop_bug")

# %% [markdown]
# Row 2 reads row 1, which no longer holds a token, but a mean. Rows 0 and 1 are still right, so a check of the first two rows would miss it. Compare all rows.

# %% tags=["folded"]
# Check: from row 2 on the loop is wrong, by more than rounding
torch.manual_seed(1)
x_random = torch.randn(8, 2)
error = (broken_loop(x_random) - causal_mean_loop(x_random)).abs()
assert (error[:2] < 1e-6).all()
assert error[2:].max() > 0.1

# %% [markdown]
# ## Exercises
#
# Write your answer where the stub raises `NotImplementedError`, and run the cell. `check` draws new inputs each time, and names a known mistake. Its buttons give hints and the solution.
#
# ### 1. The loop, from memory
#
# <!--task causal_mean_loop-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("causal_mean_loop")


# %%
def my_causal_mean(x):
    raise NotImplementedError


check("causal_mean_loop", my_causal_mean)

# %% [markdown]
# ### 2. A mean of the last k
#
# <!--task windowed_mean-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("windowed_mean")


# %%
def my_windowed_mean(x, k):
    raise NotImplementedError


check("windowed_mean", my_windowed_mean)

# %% [markdown]
# ### 3. A mean that forgets
#
# <!--task forgetting_mean-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("forgetting_mean")


# %%
def my_forgetting_mean(x):
    raise NotImplementedError


check("forgetting_mean", my_forgetting_mean)

# %% [markdown]
# ## In the wild
#
# - Andrej Karpathy's lecture "Let's build GPT" builds the same mean first and calls it `xbow`, for "bag of words". The cell under "Build: a batch" is its first version.
# - B, T and C are nanoGPT's names. Papers write d_model or d for the channels, and n or L for T.
#
# ## Three sentences to remember
#
# 1. In a causal model a token may use itself and its past, never its future.
# 2. A mean does not know the order of its tokens.
# 3. The leak probe changes one input and watches which outputs move: in a causal function, none before that position.
#
# Next: [rung {tril_matmul}, one matrix product]({tril_matmul}.ipynb), where the two loops become a single `@`.
#
# <!--neighbours-->
