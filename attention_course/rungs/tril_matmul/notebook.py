# %% [markdown]
# # Rung {tril_matmul}: one matrix product
#
# <!--ladder-->
#
# **You will build** the mean of the past without a loop, as one matrix of weights times the tokens. Then you'll choose other weights.
#
# <!--staircase-->
#
# In the mean, every letter of the past counts the same. The K that opens the story has as much say as the letter that the model has just read. Who says that it should?
#
# Answer the question, and the picture plays.

# %% tags=["hero", "folded"]
# The opening picture: play a row of weights, choose others, drag a token
from attention_course.heroes import hero

hero("tril_matmul")

# %% [markdown]
# **You need** [rung {bag_of_words}]({bag_of_words}.ipynb), and the rule for a matrix product, row times column.
#
# <!--time-->
#
# <!--test-out-->

# %% tags=["folded"]
# Two questions from the rungs below
from attention_course.questions import warm_up

warm_up("tril_matmul")

# %% tags=["folded"]
# Imports
import time

import torch

from attention_course.averaging import causal_mean_loop
from attention_course.exercises import check
from attention_course.explorers import explore
from attention_course.fills import fill
from attention_course.plots import Heatmap, Lines, picture
from attention_course.progress import progress
from attention_course.questions import ask

progress("tril_matmul")

# %% [markdown]
# ## A row of weights
#
# Here are three tokens with two channels each. Write a row that takes half of the first, half of the second, and none of the third. `@` is the matrix product.

# %%
tokens = torch.tensor([[2.0, 7.0], [6.0, 4.0], [6.0, 5.0]])  # T = 3, C = 2

# %% tags=["folded"]
# Fill in: a row of weights
fill("a_row")

# %% tags=["name:a_row", "do"]
row = torch.tensor([0.5, 0.5, 0.0])  # how much of each token
row @ tokens

# %% [markdown]
# Each channel of the result is half of the first token's channel, plus half of the second's, plus nothing of the third's. So think of the row as a recipe that says how much of each token to take. Its numbers are called **weights**. When no weight is negative and together they sum to 1, what comes out is a **weighted mean**, in which each token counts as much as its weight says.
#
# Now write a recipe of your own, one that gives you a copy of token 1. Change the row above and run the cell again.
#
# ## One row for every position
#
# Each position needs a recipe of its own, because each has a different past. So we stack the rows into a matrix of shape (T, T), and `@` applies them all at once. Row t makes output t.
#
# For a start, let every row take all of its past. `torch.tril` keeps the lower triangle of a matrix and puts zeros above the diagonal, and that's what we want, since above the diagonal lies the future. A second number moves the edge, so `tril(-1)` drops the diagonal as well, and `tril(1)` keeps one more line above it. (`.T` swaps rows and columns.)

# %%
triangle = torch.tril(torch.ones(3, 3))
triangle

# %% tags=["folded"]
# Question
ask("row_of_tril")

# %% tags=["folded"]
# Fill in: the running sum
fill("running_sum")

# %% tags=["folded", "name:running_sum"]
# The running sum
triangle @ tokens

# %% [markdown]
# No loop, and yet every position has added up its own past. All that the mean still needs is a division, because row t should sum to 1 and so far it sums to t + 1. So we want to divide each row by its own sum. PyTorch will do that if the sums stand in a column, one beside each row. How do you make a column, and how does PyTorch know what to do with it?
#
# ## When the shapes differ
#
# `[:, None]` inserts a dimension of size 1, which turns a row of numbers, of shape (3,), into a column, of shape (3, 1). Here is a row, and beside it the column made from it. What happens when you subtract one from the other?

# %%
position = torch.arange(3)  # (3,)
column = position[:, None]  # (3, 1)

# %% tags=["folded"]
# Question
ask("column_minus_row")

# %%
column - position  # (3, 1) - (3,) gives (3, 3)

# %% [markdown]
# **Broadcasting** means that PyTorch acts as if a tensor were repeated along every dimension that it lacks or that has size 1. It lines up the two shapes at their right ends, so a missing dimension is always one on the left. Here the column is repeated to the right and the row is repeated downwards, and then the two have the same shape.
#
# Keep this small matrix in mind. Its entry (t, s) is t − s, which says how many steps token s lies behind token t. In a few minutes you'll make all kinds of weights from it.
#
# For the sums, `keepdim=True` does what `[:, None]` did. It keeps the dimension that was summed over, with size 1, so the sums stand in a column of shape (3, 1).

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
# These are means of the past, as in rung {bag_of_words}. Check the last row in your head, where a third of each token makes ({{3 * output[-1, 0]:.0f}}/3, {{3 * output[-1, 1]:.0f}}/3).
#
# ## A batch
#
# Now let `x` be a batch of shape (B, T, C). The weights still have shape (T, T). Does the product work?

# %%
torch.manual_seed(1)
B, T, C = 4, 8, 2
x = torch.randn(B, T, C)

# %% tags=["folded"]
# Question
ask("what_broadcasting_does")

# %% [markdown]
# The product works, because `@` multiplies the last two dimensions as matrices, and broadcasting repeats the weights for each sequence of the batch. So every text is mixed by the same recipe. Remember that, because at the end of this rung it will be our problem.
#
# Here's all of it as a function. It uses the number format (`dtype`) and the device of `x`, so it also works in half precision and on a GPU. Then comes the proof that the matrix computes what the loop of rung {bag_of_words} does.


# %%
def causal_mean_matmul(x):
    T = x.shape[-2]
    weights = torch.tril(torch.ones(T, T, dtype=x.dtype, device=x.device))
    weights = weights / weights.sum(dim=-1, keepdim=True)
    return weights @ x


causal_mean_matmul(x).shape

# %% tags=["proof"]
for T in (1, 2, 7, 32):
    x_random = torch.randn(3, T, 5)
    torch.testing.assert_close(
        causal_mean_matmul(x_random), causal_mean_loop(x_random)
    )

# %% [markdown]
# ### More: weights on the right, and products of batches
#
# The weights stand on the left because each output is a weighted mean of *rows* of `x`. A matrix on the right would mix channels, and this one wouldn't even fit there.
#
# `transpose(-2, -1)` swaps the last two dimensions and leaves the batch alone. The transpose of a product is the product of the transposes in reverse order, so with both factors transposed, the weights are on the right. And `torch.bmm`, the batch matrix product, doesn't broadcast, which is why both of its arguments need the batch dimension.

# %%
weights = torch.rand(8, 8)  # any weights
repeated = weights.expand(B, *weights.shape)  # (B, T, T), without a copy
torch.testing.assert_close(torch.bmm(repeated, x), weights @ x)

mirrored = x.transpose(-2, -1) @ weights.transpose(-2, -1)  # (B, C, T)
torch.testing.assert_close(mirrored.transpose(-2, -1), weights @ x)

# %% [markdown]
# ### More: why two right answers are not quite equal
#
# `torch.allclose` also compares two tensors. Will it return True for each of 100 seeds?

# %%
agreed, largest = [], 0.0
for seed in range(100):
    torch.manual_seed(seed)
    x_random = torch.randn(4, 64, 8)
    loop, matmul = causal_mean_loop(x_random), causal_mean_matmul(x_random)
    agreed.append(torch.allclose(loop, matmul))
    largest = max(largest, (loop - matmul).abs().max().item())
all(agreed), largest < 1e-6

# %% tags=["folded"]
# Question
ask("why_not_equal")

# %% [markdown]
# Over all seeds, the largest difference is below one millionth. There is a difference because a computer rounds at every step, and the two methods take different steps. Even the order of two additions matters: float32 keeps about 7 digits, so a small number can vanish beside a large one.

# %%
big, small = torch.tensor(1e8), torch.tensor(1.0)
(big + small) - big, (big - big) + small

# %% [markdown]
# `allclose` allows a difference of 1e-5<!--given--> times the expected value, plus 1e-8<!--given-->. Where a mean lies near 0, that is almost nothing. `assert_close` chooses its tolerance by dtype, for float32 1.3e-6<!--given--> of the value plus 1e-5<!--given-->, and most checks in this course use it.
#
# ### More: how much faster than the loop?
#
# Python starts each of the loop's T steps, while the product is a single call that computes many of its sums in parallel. The picture shows the ratio of their times, measured on the machine that ran this cell.


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
# Most of the loop's time is the overhead of starting T steps, and it grows like T, whereas the matrix has T² entries. At small T there is little overhead to save; at large T the product itself gets expensive. So on most machines the speed-up is largest at medium lengths.
#
# ## A matrix that you choose
#
# Stop here for a moment and look at `weights @ x` once more. Nothing in that line says *mean*. The loop of rung {bag_of_words} could average and do nothing else, but the matrix does whatever you write into it. So what would you like it to do?
#
# Let's try it on letters, the last few of our story before the model has to answer. Each letter has its own channel, with a 1 for the letter that is there and a 0 for all others, because then you can see in every output which letters went into it, and how much of each.
#
# All you need is the matrix of distances from before. Compare it with a number, and you get a matrix of True and False. Take the simplest one, `distance == 1`. What does it do to a text?

# %%
text = "it? Poor"
letters = "it? Por"  # a channel for each


def tokens_of(text):
    return torch.tensor(
        [[float(c == own) for own in letters] for c in text]
    )


x = tokens_of(text)  # (T, C)
T = len(text)
position = torch.arange(T)
distance = position[:, None] - position  # (T, T): t - s

# %% tags=["folded"]
# Question
ask("ones_at_distance_1")

# %%
shift = (distance == 1).float()
shift

# %% [markdown]
# The first letter has none before it, so row 0 stays empty. Now write the mean of the last three tokens the same way, and look at a third matrix, in which a token counts half as much with each step back. (Above the diagonal the distances are negative, so `0.5**distance` is 2, 4 and more there, and `tril` removes it.)

# %% tags=["folded"]
# Fill in: the mean of the last three
fill("window_of_three")

# %% tags=["folded", "name:window_of_three"]
# The window
window = ((distance >= 0) & (distance < 3)).float()
window = window / window.sum(dim=-1, keepdim=True)
window

# %%
decay = torch.tril(0.5**distance)
decay = decay / decay.sum(dim=-1, keepdim=True)

# %% tags=["folded"]
# Picture: the three matrices of weights
shown = [c.replace(" ", "␣") for c in text]


def show(title, weights):
    return Heatmap(
        title, weights, "output t", "token s", shown, shown, limit=1
    )


picture(
    show("shift: copy the previous", shift),
    show("window: mean of the last 3", window),
    show("decay: half as much each step", decay),
    alt="Three weight matrices. Shift has ones right below the diagonal. "
    "Window has a band of width 3. Decay falls by half with each step "
    "away from the diagonal.",
)

# %% [markdown]
# A copy of the letter before, a **window** of three letters, a memory that fades (you may have met it in the exercises of rung {bag_of_words}). You might take them for three machines, each with a loop of its own. But they're one machine with three different matrices, and the mean's triangle is a fourth.
#
# What does the last output hold, the one from which the model has to guess what follows "Poor"?

# %%
mean = torch.tril(torch.ones(T, T)) / torch.arange(1, T + 1)[:, None]
choices = {"mean": mean, "shift": shift, "window": window, "decay": decay}
last = torch.stack([(w @ x)[-1] for w in choices.values()])  # (4, C)

# %% tags=["folded"]
# Picture: the last output, with each of the four matrices
picture(
    Heatmap(
        "The last output",
        last,
        "weights",
        "channel",
        list(choices),
        [c.replace(" ", "␣") for c in letters],
        limit=1,
    ),
    alt="A row for each matrix, a column for each letter. The mean has an "
    "eighth of each letter, and twice as much of the o. The shift has only "
    "o, the window a third of r and the rest o. The decay has half r, "
    "then o, and less and less of the letters before.",
)

# %% tags=["folded"]
# Question
ask("where_are_the_o")

# %% [markdown]
# Read that answer again, because it's the best thing in this rung. The mean threw the order away, so its row says that there are two o's but not where they are. With weights that halve, each distance has a share of its own, like the digits of a binary number, and every share is larger than all those behind it put together. So on paper, no two texts of the same length give the same output. (With a channel of its own for each letter, even a tiny share survives. A trained model mixes letters in shared channels, and there a float32, which keeps about seven digits, loses one thirty steps back.) The order that we lost in rung {bag_of_words} is back, and nobody added anything to the tokens.
#
# Try to fool it. Put the letters of `other` into an order of your own, and see which matrices notice. Can you fool the window as well, and still end in "r"?

# %% tags=["do"]
other = "it? oPor"
for name, w in choices.items():
    moved = ((w @ tokens_of(other))[-1] - (w @ x)[-1]).abs().max() > 1e-6
    print(f"{name:7}", "notices" if moved else "sees no difference")

# %% [markdown]
# ## Choose, and let it write
#
# Now the test that counts. We took the trained mean of rung {bag_of_words}, put other weights into it, and trained it, once for each choice below. Training leaves these weights alone. It adjusts all the rest, the numbers that each letter gets and the table that turns their mix into probabilities, until the loss is low.
#
# Why not use the table that you counted? With fading weights it would only reach 1.93<!--given-->, because the row of an old letter can only repeat what follows *that* letter. Trained numbers are free to say something different, and an old letter can even argue against what the last one suggests.
#
# **Which weights give the lowest loss?** Guess first whether it will be a short memory, a long one, or one that fades. Then look for it. The sliders begin at the mean, with all letters and a decay of 1, so read what the mean writes before you move them.

# %% tags=["folded"]
# Explorer: choose the weights of the past
explore("tril_matmul")

# %% [markdown]
# Did you expect that? The mean sees everything, and its loss of 2.28<!--given--> is worse than that of the letter pairs. A decay of 0 sees nothing but the last letter, which makes it the table of letter pairs again, at 1.46<!--given-->. Between these two settings the loss dips. Let a letter count about half as much with each step back, and the loss falls to 0.46<!--given-->. The model begins to spell. Nothing else changed, and it was you, not training, who chose those weights.
#
# Why about a half? When the weights fade faster, a letter three steps back is too faint to be heard. When they fade more slowly, neighbours count almost alike, so their order blurs. A window that doesn't fade has that trouble from the start. The mean of the last four letters knows which letters they are but not in which order, so its loss stays at 0.74<!--given-->.
#
# ## Break it
#
# One argument is missing here, and yet the code runs and the shapes are right.

# %%
a = torch.tril(torch.ones(4, 4))
broken = a / a.sum(1)
broken

# %% tags=["folded"]
# Question
ask("which_way_it_broadcasts")

# %% [markdown]
# One check catches this bug wherever the weights of a mean are computed. Does every row sum to 1?

# %%
broken.sum(dim=-1)

# %% [markdown]
# Only row 0 does, and the last one sums to more than 2. Add `keepdim=True` to the cell above, run both cells again, and every row will.

# %% tags=["folded"]
# The same with keepdim=True
repaired = a / a.sum(1, keepdim=True)
torch.testing.assert_close(repaired.sum(dim=-1), torch.ones(4))

# %% [markdown]
# ## Exercises
#
# ### 1. The same function, from memory
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
# - In Andrej Karpathy's lecture "Let's build GPT" this is version 2, `wei = torch.tril(torch.ones(T, T)); wei = wei / wei.sum(1, keepdim=True)`. Karpathy's `wei` is what we call `weights`.
# - For one channel, a convolution is a matrix whose rows hold the same numbers, shifted by one. A short kernel leaves only a band.
# - Some variants of attention use weights that fade with the distance, for example ALiBi (Press et al. 2022) and RetNet (Sun et al. 2023).
#
# ## Where we are
#
# ![The transformer as a drawing. Lit is what this rung builds: the weights, and their product with the tokens.](images/transformer_tril_matmul.svg)
#
# <!--step-->
#
# It has learned to spell, more or less. But ask who got it, what it was and where, and only 4 %<!--given--> of its answers are right, although a blind pick among eight names, things or places would get one in eight. How can a model do worse than that? We looked, and it gives the same answer to every story. Who got it? The line above was drawn at random, but its favourite is always Joe, which is right whenever it was Joe. After "What? A " it goes on with a t and after "At the " with an a, and none of the things or places starts with those letters.
#
# So where has the story gone? Let's see how much of "Sam" is left when the model has to answer.

# %%
story = "Kind Ben gave poor Sam a drum at the farm. Who got it? Poor "
steps = len(story) - 1 - story.index("Sam")
print(f"{steps} steps back, {0.5**steps:.0e} of the newest letter's weight")

# %% [markdown]
# Next to nothing. And since a trained model mixes letters in shared channels, rounding loses it there. A slower decay would keep more of Sam, but also more of everything in between. And suppose you wrote a matrix that looks {{steps}} steps back. It would work for this story and fail for the next one, where the name stands somewhere else. That's the problem we noticed with the batch. Weights that don't change from text to text can't know what is *in* a text.
#
# If you've met fully connected networks, you may wonder how attention differs. There, too, each output is a weighted sum of the inputs, but its weights are fixed after training and the same for every input. In attention, the text itself decides on the weights. We'll get there in two steps, and the first is to let weights come from any numbers, even negative ones.
#
# ## Three sentences to remember
#
# 1. A row of weights says how much of each token goes into one output, and a matrix has one row for each position.
# 2. Mean, shift, window and decay are one machine with four matrices, and when the weights halve with each step, the output can tell the order.
# 3. A missing `keepdim=True` divides the columns and raises no error, so check that every row sums to 1.
#
# Next: [rung {masked_softmax}, masked softmax]({masked_softmax}.ipynb), where the weights are computed from scores.
#
# <!--neighbours-->
