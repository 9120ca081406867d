# %% [markdown]
# # Rung {tril_matmul}: one matrix product
#
# <!--ladder-->
#
# **You will build** the mean of the past again, without a loop: a matrix of weights times the tokens. Attention has the same matrix in the same place, but computes its entries from the tokens.

# %% tags=["hero", "folded"]
# The opening picture: play a row of weights, drag a token
from attention_course.heroes import hero

hero("tril_matmul")

# %% [markdown]
# **You need** [rung {bag_of_words}]({bag_of_words}.ipynb), and the rule for a matrix product: row times column.
#
# <!--time-->
#
# ![The transformer as a drawing. Lit is what this rung builds: weights × values.](images/transformer_tril_matmul.svg)

# %% [markdown]
# ## The question
#
# The loop of rung {bag_of_words} asks the same thing at every position: how much of each token do I use? What if we write all the answers into one matrix?
#
# Try it. Here are three tokens with two channels. Row t of `triangle` has a 1 for each token up to token t. Which product adds up the past of every token at once?

# %% tags=["folded"]
# Fill in: the running sum
from attention_course.fills import fill

fill("running_sum")

# %% tags=["folded"]
# Imports
import time

import torch

from attention_course.averaging import causal_mean_loop
from attention_course.exercises import check
from attention_course.explorers import explore
from attention_course.plots import Heatmap, Lines, picture
from attention_course.progress import progress
from attention_course.questions import ask

progress("tril_matmul")

# %% [markdown]
# ## A row of numbers combines tokens
#
# A row of three numbers can say how much of each of three tokens to take. `1 1 1` adds them up. A matrix is several such rows, and `@` applies them all.

# %%
tokens = torch.tensor([[2.0, 7.0], [6.0, 4.0], [6.0, 5.0]])  # T = 3, C = 2
torch.ones(3, 3) @ tokens

# %% [markdown]
# Each row of ones gives 2 + 6 + 6 = {{tokens[:, 0].sum():.0f}} and 7 + 4 + 5 = {{tokens[:, 1].sum():.0f}}.
#
# ## Predict
#
# `torch.tril` keeps the lower triangle of a matrix and puts zeros above the diagonal. A zero in a row leaves that token out.

# %%
triangle = torch.tril(torch.ones(3, 3))
triangle

# %% tags=["folded"]
# Question
ask("row_of_tril")

# %% tags=["name:running_sum"]
triangle @ tokens

# %% [markdown]
# That is a running sum: row t adds up tokens 0 to t.
#
# ## Build: from sums to means
#
# If the numbers in a row are not negative and sum to 1, the row computes a **weighted mean**: each token counts as much as its number says. If they are also equal, it is the plain mean. So divide each row by its own sum. `keepdim=True` keeps the sums as a column, one for each row.

# %% tags=["folded"]
# Fill in: rows that sum to 1
fill("sums_to_means")

# %% tags=["folded", "name:sums_to_means"]
# The weights, and the means
weights = triangle / triangle.sum(dim=-1, keepdim=True)  # (3, 3) / (3, 1)
output = weights @ tokens
output

# %% tags=["folded"]
# Picture: weights times tokens gives the output
picture(
    Heatmap("weights (3, 3)", weights, "output t", "token s", limit=1),
    Heatmap("@  tokens (3, 2)", tokens, "token s", "channel", limit=10),
    Heatmap("=  output (3, 2)", output, "output t", "channel", limit=10),
    alt="The weights, a lower triangle whose rows sum to 1, times the "
    "tokens, give the means of the past.",
)

# %% [markdown]
# The numbers in this matrix are called **weights**. Each row divides a total of 1 among the tokens. Row t computes output t, and its entry in column s is the weight of token s. In the last row, a third of each token gives ({{3 * output[-1, 0]:.0f}}/3, {{3 * output[-1, 1]:.0f}}/3).
#
# ## Build: a batch
#
# Now `x` has shape (B, T, C), and the weights still have shape (T, T).

# %% tags=["folded"]
# Question
ask("what_broadcasting_does")

# %%
torch.manual_seed(1)
B, T, C = 4, 8, 2
x = torch.randn(B, T, C)

# %% tags=["folded"]
# Fill in: the weights of a batch
fill("weights_for_a_batch")

# %% tags=["folded", "name:weights_for_a_batch"]
# The same weights for every sequence
weights = torch.tril(torch.ones(T, T))
weights = weights / weights.sum(dim=-1, keepdim=True)
(weights @ x).shape

# %% [markdown]
# Every sequence got the same weights. Treating a tensor as if it were repeated, along a dimension of size 1 or one that it lacks, is called **broadcasting**. A missing dimension is added on the left. `torch.bmm`, the batch matrix product, does not broadcast: both arguments need the batch dimension.
#
# The weights are on the left, because each output is a weighted mean of *rows* of `x`. A matrix on the right combines channels, and this one would not fit there.
#
# `transpose(-2, -1)` swaps the last two dimensions and leaves the batch alone; most rungs from here on need it. The transpose of a product is the product of the transposes in reverse order. So with both factors transposed, the weights are on the right.

# %%
repeated = weights.expand(B, T, T)  # (B, T, T), without a copy
torch.testing.assert_close(torch.bmm(repeated, x), weights @ x)

mirrored = x.transpose(-2, -1) @ weights.transpose(-2, -1)  # (B, C, T)
torch.testing.assert_close(mirrored.transpose(-2, -1), weights @ x)

# %% [markdown]
# ## Build: the function
#
# `dtype` and `device` come from `x`, so the function also works in half precision and on a GPU.


# %%
def causal_mean_matmul(x):
    T = x.shape[-2]
    weights = torch.tril(torch.ones(T, T, dtype=x.dtype, device=x.device))
    weights = weights / weights.sum(dim=-1, keepdim=True)
    return weights @ x


causal_mean_matmul(tokens.half())

# %% [markdown]
# ## Prove
#
# It equals rung {bag_of_words}.

# %% tags=["proof"]
for T in (1, 2, 7, 32):
    x_random = torch.randn(3, T, 5)
    torch.testing.assert_close(
        causal_mean_matmul(x_random), causal_mean_loop(x_random)
    )

# %% [markdown]
# `torch.allclose` compares, too. Does it return True for all of 100 seeds?

# %%
agreed, largest = [], 0.0
for seed in range(100):
    torch.manual_seed(seed)
    x_random = torch.randn(4, 64, 8)
    loop, matmul = causal_mean_loop(x_random), causal_mean_matmul(x_random)
    agreed.append(torch.allclose(loop, matmul))
    largest = max(largest, (loop - matmul).abs().max().item())
all(agreed)

# %% tags=["folded"]
# Question
ask("why_not_equal")

# %% [markdown]
# The largest difference over all seeds is below one millionth. The order of the steps matters, because floating-point addition is not associative: in float32, with about 7 digits, a small number can vanish beside a large one.

# %%
big, small = torch.tensor(1e8), torch.tensor(1.0)
(big + small) - big, (big - big) + small

# %% [markdown]
# `allclose` allows a difference of 1e-5<!--given--> times the expected value, plus 1e-8<!--given-->. Where a mean lies near 0, that is almost nothing. `assert_close` chooses its tolerance by dtype, for float32 1.3e-6<!--given--> of the value plus 1e-5<!--given-->. Most checks in this course use it.

# %% tags=["folded"]
# Check: the largest difference; allclose failed, assert_close passes
assert largest < 1e-6
assert not all(agreed)
torch.testing.assert_close(matmul, loop)

# %% [markdown]
# ## How much faster?
#
# The loop takes T steps, and Python starts each of them. The product is one call, and many of its sums are computed in parallel. The picture shows the ratio of their times, measured on the machine that ran this cell.


# %% tags=["folded"]
# Picture: the time of both, measured here
def fastest(function, x, repeats=5):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function(x)
        times.append(time.perf_counter() - start)
    return min(times)


lengths = torch.tensor([8, 16, 32, 64, 128, 256, 512])
ratio = torch.ones(len(lengths))
for i, T in enumerate(lengths.tolist()):
    x_random = torch.randn(8, T, 32)
    ratio[i] = fastest(causal_mean_loop, x_random) / fastest(
        causal_mean_matmul, x_random
    )

picture(
    Lines(
        "How many times as long the loop takes",
        lengths,
        {
            "loop / matrix product": ratio,
            "equally fast": torch.ones(len(lengths)),
        },
        x_label="tokens T",
        y_label="time ratio",
    ),
    alt="The time of the loop divided by the time of the matrix product, "
    "over T from 8 to 512, both axes logarithmic, with a line at 1 "
    "where both are equally fast.",
)

# %% [markdown]
# Most of the loop's time is the overhead of starting T steps, and grows like T; the matrix has T² entries. At small T there is little overhead to save, at large T the product takes time, too. So on most machines the speed-up is largest at medium lengths.
#
# ## Other weights
#
# The triangle of equal weights is one choice. Here are three more. The second is the mean of the last three tokens.

# %%
T = 6
position = torch.arange(T)
distance = position[:, None] - position  # (T, T): how far s lies before t
shift = (distance == 1).float()
window = ((distance >= 0) & (distance < 3)).float()
decay = torch.tril(0.5**distance)
window, decay = (w / w.sum(dim=-1, keepdim=True) for w in (window, decay))

# %% tags=["folded"]
# Picture: the three matrices of weights
picture(
    Heatmap(
        "shift: copy the previous", shift, "output t", "token s", limit=1
    ),
    Heatmap(
        "window: mean of the last 3", window, "output t", "token s", limit=1
    ),
    Heatmap(
        "decay: half as much each step",
        decay,
        "output t",
        "token s",
        limit=1,
    ),
    alt="Three weight matrices. Shift has ones right below the diagonal. "
    "Window has a band of width 3. Decay falls by half with each step "
    "away from the diagonal.",
)

# %% [markdown]
# Shift copies the previous token; the first output has none, and its row is all zeros. Decay does something that the mean could not: when two past tokens are swapped, the last output changes.

# %%
counting = torch.arange(1.0, 7.0)[:, None]  # (T, 1)
swapped = counting[[1, 0, 2, 3, 4, 5]]
moved = (decay @ swapped - decay @ counting)[-1]
assert moved.abs() > 0.01
(shift @ counting).flatten(), moved

# %% [markdown]
# With unequal weights the output can depend on the order. But so far we choose the weights, and they are the same for every sequence. In rung {query_key_value} they are computed from the tokens.
#
# ## Explore
#
# **Which of the three steps turns a sum into a mean of the past, and what does each one do alone?**
#
# Switch the triangle off, then the normalization, the division of each row by its sum. Lower the decay to 0: what is left of the past?

# %% tags=["folded"]
# Explorer: triangle, normalization, decay
explore("tril_matmul")

# %% [markdown]
# Dividing by the row sum turns sums into means. The triangle restricts the mean to the past. The decay favours nearby tokens: at 1 all count the same, at 0 each output is its own token.
#
# ## Break it
#
# One argument is missing here. The shapes are right.

# %%
a = torch.tril(torch.ones(4, 4))
broken = a / a.sum(1)
broken

# %% tags=["folded"]
# Question
ask("which_way_it_broadcasts")

# %% [markdown]
# One check catches this wherever the weights of a mean are computed: does every row sum to 1?

# %%
broken.sum(dim=-1)

# %% [markdown]
# Only row 0 does, and the last one sums to more than 2. With `keepdim=True`, all of them do.

# %% tags=["folded"]
# Check: the sums of the rows, here and with keepdim=True
assert (broken.sum(dim=-1) == 1).tolist() == [True, False, False, False]
assert broken.sum(dim=-1)[-1] > 2

repaired = a / a.sum(1, keepdim=True)
torch.testing.assert_close(repaired.sum(dim=-1), torch.ones(4))

# %% [markdown]
# ## Exercises
#
# ### 1. The mean of the past as a product
#
# <!--task causal_mean_matmul-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("causal_mean_matmul")


# %%
def my_causal_mean(x):
    raise NotImplementedError


check("causal_mean_matmul", my_causal_mean)

# %% [markdown]
# ### 2. The band
#
# <!--task band_matrix-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("band_matrix")


# %%
def my_band(T, k):
    raise NotImplementedError


check("band_matrix", my_band)

# %% [markdown]
# ### 3. The shift
#
# <!--task shift_matrix-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("shift_matrix")


# %%
def my_shift(T):
    raise NotImplementedError


check("shift_matrix", my_shift)

# %% [markdown]
# ## In the wild
#
# - In "Let's build GPT" this is version 2, `wei = torch.tril(torch.ones(T, T)); wei = wei / wei.sum(1, keepdim=True)`. What we call weights, others also call `wei`.
# - For one channel, a convolution is a band matrix: each row holds the same numbers, shifted by one.
# - Some variants of attention use such a decay: ALiBi (Press et al. 2022), RetNet (Sun et al. 2023).
#
# ## Three sentences to remember
#
# 1. A row of weights says how much of each token goes into one output.
# 2. A lower-triangular matrix with equal weights in each row, summing to 1, computes the mean of the past.
# 3. Two ways to compute the same number round differently, so compare with a tolerance.
#
# Next: [rung {masked_softmax}, masked softmax]({masked_softmax}.ipynb), where the weights are computed from scores.
#
# <!--neighbours-->
