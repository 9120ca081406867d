# %% [markdown]
# # Rung 1: bag of words
#
# <!--ladder-->
#
# **You will build** the mean of the past, with loops. It is the simplest way for a token to use what came before it, and the reference that the next rungs have to reproduce.

# %% tags=["hero", "folded"]
# The way up. Press Play, or drag the ring
from attention_course.heroes import hero

hero("ladder")

# %% [markdown]
# **You need** Python, and tensors: indexing, slices, shapes.
#
# **Time** about 20 minutes to read, and 20 for the exercises.
#
# ![The transformer as a drawing. Lit is what this rung builds: the tokens and the mean.](images/transformer_1.svg)

# %% [markdown]
# ## The question
#
# A model reads a text from left to right. At each position it may use what it has read so far, and nothing that is still to come. What is the simplest thing it could do with all that past?
#
# The grey lines below are folded cells. They run like any other cell, and their code is not what this rung teaches. A click on one shows it.

# %% tags=["hero", "folded"]
# The picture of this rung. Press Play, drag a token, shuffle
hero("bag_of_words")

# %% tags=["folded"]
# Imports
import torch

from attention_course.exercises import check
from attention_course.explorers import explore
from attention_course.plots import Lines, Scatter, picture
from attention_course.progress import progress
from attention_course.questions import ask

progress("bag_of_words")

# %% [markdown]
# ## Tokens are rows
#
# A **token** is a piece of text: a word, a part of a word, or one character. The model represents each token by a vector. The entries of the vector are its **channels**. A text is a **sequence** of tokens: their order matters. A sequence of T tokens with C channels is a tensor of shape (T, C), with one row for each token, in reading order. We call such a row a token, too.
#
# Here are T = 4 tokens with C = 2 channels. The numbers are small, so that you can follow every step in your head.

# %%
x = torch.tensor([[2.0, 8.0], [4.0, 4.0], [6.0, 0.0], [0.0, 4.0]])
x.shape

# %% [markdown]
# With two channels a token is a point in the plane.

# %% tags=["folded"]
# Picture: the four tokens
picture(
    Scatter(
        "Four tokens as points",
        x,
        ["t=0", "t=1", "t=2", "t=3"],
        limits=(-1, 9),
    ),
    alt="Four points: t=0 at (2, 8), t=1 at (4, 4), t=2 at (6, 0), t=3 at "
    "(0, 4).",
)

# %% [markdown]
# ## Predict
#
# The simplest way to use the past is to take its **mean**, channel by channel: the token at position t and all tokens before it, added up and divided by their number. The future stays out.
#
# Commit to a guess before you go on.

# %% tags=["folded"]
# Question
ask("mean_at_one")

# %% [markdown]
# ## Build: one position
#
# The past of position `t`, including the token itself, is a slice of `x`.

# %% tags=["folded"]
# Question
ask("slice_of_the_past")

# %%
t = 1
past = x[: t + 1]  # (t + 1, C)
past

# %% [markdown]
# The mean is taken over time, dimension 0 of `past`. Dimension 1 holds the channels, which stay separate.

# %%
past.mean(dim=0)

# %% [markdown]
# ## Build: every position
#
# A loop over time does this for each position. The results go into a new tensor.

# %%
T, C = x.shape
means = torch.zeros(T, C)
for t in range(T):
    means[t] = x[: t + 1].mean(dim=0)
means

# %% [markdown]
# Check the last row in your head: (2 + 4 + 6 + 0) / 4 = 3<!--shown-->, and (8 + 4 + 0 + 4) / 4 = 4<!--shown-->.

# %% tags=["folded"]
# Check: the last row
assert means[-1].tolist() == [3, 4]

# %% [markdown]
# ## Build: a batch
#
# Models process several sequences at once. A **batch** of B sequences has shape (B, T, C). Each sequence is averaged on its own, so there is one more loop.

# %%
torch.manual_seed(1)
B, T, C = 4, 8, 2
batch = torch.randn(B, T, C)
batch_means = torch.zeros(B, T, C)
for b in range(B):
    for t in range(T):
        batch_means[b, t] = batch[b, : t + 1].mean(dim=0)
batch_means[0]

# %% [markdown]
# ## Build: one function for both
#
# The loop over the batch does the same thing B times. An index of `...` stands for all dimensions that are not named, however many there are. Counted from the end, time is dimension -2 and the channels are dimension -1, so one function serves (T, C) and (B, T, C).


# %%
def causal_mean_loop(x):
    out = torch.zeros_like(x)
    for t in range(x.shape[-2]):
        out[..., t, :] = x[..., : t + 1, :].mean(dim=-2)
    return out


causal_mean_loop(x)

# %% [markdown]
# This function is **causal**: no output depends on a later input. A **language model** like GPT predicts each token from those before it, so it has to be causal. (**Attention** will turn out to be a mean, too: a weighted one, in which the tokens determine how much each of them counts. A model whose tokens exchange information only through attention is called a **transformer**; the T of GPT stands for it.)
#
# `torch.testing.assert_close` compares two tensors. It is silent when they agree, and raises an error that shows the largest difference when they do not.

# %% tags=["lesson"]
torch.testing.assert_close(causal_mean_loop(x), means)
torch.testing.assert_close(causal_mean_loop(batch), batch_means)

# %% [markdown]
# The package has the same function, with a check of its input. From here on we import it. This is the error for a tensor of integers.

# %%
from attention_course.averaging import causal_mean_loop

try:
    causal_mean_loop(torch.tensor([[2, 8], [4, 4]]))
except TypeError as error:
    print(error)

# %% [markdown]
# ## What is lost
#
# A mean does not depend on the order of its terms. Guess first.

# %% tags=["folded"]
# Question
ask("swap_two_tokens")

# %%
swapped = x[[1, 0, 2, 3]]
changed = (causal_mean_loop(swapped) != causal_mean_loop(x)).any(dim=-1)
changed

# %% [markdown]
# Tokens go into the mean like words into a bag, and come out in no order: "dog bites man" and "man bites dog" end in the same mean. That is why this is called a **bag of words**. The individual tokens are lost as well: a mean of (3, 6) can come from many different pairs.
#
# The last entry is False: the last output did not move. The next cell asserts it.

# %% tags=["folded"]
# Check: the last output did not move
torch.testing.assert_close(
    causal_mean_loop(swapped)[-1], causal_mean_loop(x)[-1]
)

# %% [markdown]
# ## No looking ahead
#
# An output never depends on a later input. To show it, change token 2 and look at which outputs move.

# %%
nudged = x.clone()
nudged[2] += 1
(causal_mean_loop(nudged) != causal_mean_loop(x)).any(dim=-1)

# %% [markdown]
# Outputs 0 and 1 did not move. Doing this for every input gives a matrix: one row for each output, one column for each input that was changed.

# %%
columns = []
for s in range(len(x)):
    nudged = x.clone()
    nudged[s] += 1
    moved = causal_mean_loop(nudged) != causal_mean_loop(x)
    columns.append(moved.any(dim=-1))
torch.stack(columns, dim=-1).int()

# %% [markdown]
# The package calls this the **leak probe**, because it shows a leak from the future. Its version adds random noise instead of 1, because noise is unlikely to cancel out. The probe tests one sequence, so it can find a leak but not prove that there is none.

# %%
from attention_course.attention import leak_probe

torch.equal(leak_probe(causal_mean_loop, x), torch.stack(columns, dim=-1))

# %% [markdown]
# Read column 2: outputs 2 and 3 moved when input 2 did. All ones lie on the diagonal or below it. A one above the diagonal would be an output that moved with a *later* input. You will use the leak probe again and again.

# %% tags=["folded"]
# Check: column 2, and nothing strictly above the diagonal
assert columns[2].tolist() == [False, False, True, True]
assert not leak_probe(causal_mean_loop, x).triu(diagonal=1).any()

# %% [markdown]
# ## Fewer additions
#
# Position t adds up t + 1 tokens, which takes t additions. Over all positions that is 0 + 1 + ... + (T − 1) = T(T − 1)/2 additions for each channel: about T²/2, quadratic in T.
#
# Most of that work is repeated, because the sum at t is the sum at t − 1 plus one more token. `cumsum` computes this running sum in T − 1 additions: linear in T. Dividing each row by its count gives the means. `counts[:, None]` has shape (T, 1): one count for each row.

# %%
counts = torch.arange(1, len(x) + 1)  # 1, 2, 3, 4
x.cumsum(dim=0) / counts[:, None]

# %% tags=["folded"]
# Check: the running sum gives the same means
torch.testing.assert_close(
    x.cumsum(dim=0) / counts[:, None], causal_mean_loop(x)
)

# %% tags=["folded", "given"]
# Picture: the additions of both, over T
length = 2 ** torch.arange(2, 11)
picture(
    Lines(
        "Additions for the mean of the past",
        length,
        {
            "loop: T(T − 1)/2": length * (length - 1) / 2,
            "running sum: T − 1": length - 1,
        },
        x_label="tokens T",
        y_label="additions for each channel",
    ),
    alt="Two lines over T from 4 to 1024, both axes logarithmic. The loop "
    "climbs twice as steeply as the running sum.",
)

# %% [markdown]
# So why not stay with the running sum? It works because each position only adds to the sum of the one before. In attention, each position determines for itself how much each earlier token counts. That takes one number for each pair of positions: a T × T matrix. [Rung 2](02_tril_matmul.ipynb) builds it.
#
# ## Prove
#
# There is no rung below this one, so the loop is compared with its definition: for several lengths, each output is the sum of the tokens it may see, divided by their number.

# %% tags=["proof"]
for T in (1, 2, 7, 32):
    x_random = torch.randn(3, T, 5)
    means = causal_mean_loop(x_random)
    for t in range(T):
        torch.testing.assert_close(
            means[:, t] * (t + 1), x_random[:, : t + 1].sum(dim=1)
        )

# %% [markdown]
# `assert_close` allows a small difference: for float32, 1.3e-6<!--given--> of the value plus 1e-5<!--given-->. Both sides round, at different steps. Rung 2 looks at this closely.
#
# ## Explore
#
# **How much does one new token move the mean, early and late? And where does its path end when the order changes?**
#
# Drag `t` to the right: the blue tokens have been seen, the pale ones are still to come, and the ring is the mean. Then leave `t` at 7 and change the order. (The picture is static until you run the cell.)

# %% tags=["folded"]
# Explorer: a bag of tokens, and the mean of what is in it
explore("bag_of_words")

# %% [markdown]
# When token t arrives, the mean goes 1/(t + 1) of the way towards it: halfway at t = 1, an eighth of the way at t = 7. The path depends on the order. Its end does not.
#
# ## Break it
#
# This loop comes from published notes on attention. It uses one tensor for both input and output. The shapes are right, and the notes print that it agrees with the correct version.


# %%
def published_loop(x):
    xbow = x.clone()
    for t in range(len(xbow)):
        past = xbow[: t + 1]
        mean = past.mean(dim=0)
        xbow[t] = mean
    return xbow


published_loop(x)

# %% [markdown]
# Compare it with the right means, (2, 8), (3, 6), (4, 4), (3, 4), and find the line.

# %% tags=["folded"]
# Question
ask("find_the_loop_bug")

# %% [markdown]
# Row 2 reads row 1, and row 1 no longer holds a token: it already holds a mean. Looking at the first two rows would not have caught it. Comparing all rows does. (`==` is safe here, because the right means of these integers have no rounding error.)

# %%
(published_loop(x) == causal_mean_loop(x)).all(dim=-1)

# %% [markdown]
# On the notes' own input, eight random tokens from seed 1, the largest difference is far too large to be rounding error. The notes print True for the comparison that gives False here.

# %%
torch.manual_seed(1)
notes_x = torch.randn(8, 2)
broken, right = published_loop(notes_x), causal_mean_loop(notes_x)
assert not torch.allclose(broken, right)
print(f"largest difference: {(broken - right).abs().max():.1f}")

# %% [markdown]
# ## Exercises
#
# Write your answer where the stub raises `NotImplementedError`, and run the cell. `check` draws new inputs each time; if your function makes a known mistake, it says which. Its buttons give a hint, one at a time, and the solution when you want to compare.
#
# ### 1. The loop, from memory
#
# <!--task causal_mean_loop-->


# %%
def my_causal_mean(x):
    raise NotImplementedError


check("causal_mean_loop", my_causal_mean)

# %% [markdown]
# ### 2. A mean of the last k
#
# <!--task windowed_mean-->


# %%
def my_windowed_mean(x, k):
    raise NotImplementedError


check("windowed_mean", my_windowed_mean)

# %% [markdown]
# ### 3. A mean that forgets
#
# <!--task forgetting_mean-->


# %%
def my_forgetting_mean(x):
    raise NotImplementedError


check("forgetting_mean", my_forgetting_mean)

# %% [markdown]
# ## In the wild
#
# - Andrej Karpathy's lecture "Let's build GPT" builds the same mean first and calls the result `xbow`, for "bag of words". The cell under "Build: a batch" is its first version.
# - The sizes B, T and C have the names that nanoGPT gives them. Papers write d_model or d for the channels, and n or L for T, the sequence length.
# - PyTorch has no function for the causal mean; `torch.cumsum` divided by the counts is the usual way to write it.
# - The phrase is older than neural networks for text: in 1954, Zellig Harris wrote that language is "not merely a bag of words" ("Distributional Structure").
#
# ## Three sentences to remember
#
# 1. In a causal model a token may use itself and its past, never its future.
# 2. A mean does not know the order of its tokens.
# 3. The leak probe changes one input and watches which outputs move: in a causal function only the output at that position and later ones do.
#
# Next: [rung 2, one matrix product](02_tril_matmul.ipynb), where the two loops become a single `@`.
#
# <!--neighbours-->
