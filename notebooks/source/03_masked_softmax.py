# %% [markdown]
# # Rung 3: masked softmax
#
# <!--ladder-->
#
# **You will build** the weights of rung 2 from scores, with softmax and a mask. The scores can then come from anywhere. In attention they are computed from the tokens.

# %% tags=["hero", "folded"]
# The opening picture: drag a score, drop the mask
from attention_course.heroes import hero

hero("masked_softmax")

# %% [markdown]
# **You need** [rung 2](02_tril_matmul.ipynb), and two rules: exp turns sums into products, and exp(0) = 1.
#
# **Time** about 25 minutes to read, and 27 for the exercises.
#
# ![The transformer as a drawing. Lit is what this rung builds: the mask and softmax.](images/transformer_3.svg)

# %% [markdown]
# ## The question
#
# In rung 2 we wrote the weights down ourselves, and made sure that no weight was negative and that each row summed to 1. What a model computes can be any number, positive or negative. How do we turn such numbers into weights, and keep the future out?

# %% tags=["folded"]
# Imports
import torch
import torch.nn.functional as F

from attention_course.attention import leak_probe
from attention_course.averaging import causal_mean_loop, causal_mean_matmul
from attention_course.exercises import check
from attention_course.explorers import explore
from attention_course.plots import Bars, Heatmap, picture
from attention_course.progress import progress
from attention_course.questions import ask

torch.set_printoptions(precision=3, sci_mode=False)

progress("masked_softmax")

# %% [markdown]
# ## Softmax by hand
#
# Numbers that are still to become weights are called **scores**. A score may be any number; a higher score means more weight. **Softmax** turns scores into weights in two steps. First exp, which makes every score positive. Then divide by the sum.
#
# These three scores are chosen so that their exponentials are 1, 2 and 5.

# %%
scores = torch.tensor([1.0, 2.0, 5.0]).log()
scores

# %%
exp = scores.exp()
exp, exp.sum()

# %% [markdown]
# 1<!--shown-->, 2<!--shown--> and 5<!--shown--> sum to 8<!--shown-->. So the weights are 1/8<!--shown-->, 2/8<!--shown--> and 5/8<!--shown-->.

# %%
exp / exp.sum()

# %% tags=["folded"]
# Check: torch.softmax agrees, and 1000 zeros get 1/1000 each
torch.testing.assert_close(exp / exp.sum(), torch.softmax(scores, dim=-1))
assert torch.zeros(1000).exp().sum() == 1000

# %% [markdown]
# Why divide? With weights that sum to 1 the output is a mean, however many tokens there are. Without the division it would be a sum that grows with T: 1000<!--shown--> scores of 0 would give weights that sum to 1000<!--shown-->. (The weights are shares. Nothing is drawn from them.)
#
# ## Along which dimension?
#
# Softmax can be taken along any dimension of a tensor. `dim` names the dimension along which the weights sum to 1.

# %%
torch.manual_seed(0)
block = torch.randn(2, 3, 4)
for dim in range(3):
    sums = torch.softmax(block, dim=dim).sum(dim=dim)
    all_one = torch.allclose(sums, torch.ones(()))
    print(f"dim={dim}: sums {tuple(sums.shape)}, all 1: {all_one}")

# %% [markdown]
# All three run, and all three give weights. No error tells you which one is right. In a matrix of scores, each row belongs to a **query**: the position that looks (output t of rung 2). Each column belongs to a **key**: a position that is looked at (token s). Papers say that a query attends to a key.

# %% tags=["folded"]
# Question
ask("which_dim")

# %% [markdown]
# ## What does a constant do?
#
# Guess, then see.

# %% tags=["folded"]
# Question
ask("add_a_constant")

# %%
torch.softmax(scores, dim=-1), torch.softmax(scores + 100, dim=-1)

# %% [markdown]
# Only differences between scores matter. That solves a problem, **overflow**: exp grows so fast that exp(89) is too large for float32.

# %%
torch.tensor([88.0, 89.0]).exp().isinf()

# %% [markdown]
# And infinity divided by infinity is NaN, not a number.

# %%
large = torch.tensor([1000.0, 1001.0, 1002.0])
large.exp() / large.exp().sum()

# %% [markdown]
# Since a constant changes nothing, subtract the largest score first. The largest becomes 0, and exp is never taken of a number above 0. This softmax is **numerically stable**.


# %%
def softmax(x, dim):
    exp = (x - x.amax(dim=dim, keepdim=True)).exp()
    return exp / exp.sum(dim=dim, keepdim=True)


softmax(large, dim=-1)

# %% tags=["folded"]
# Check: torch.softmax gives the same
torch.testing.assert_close(
    softmax(large, dim=-1), torch.softmax(large, dim=-1)
)
torch.testing.assert_close(
    softmax(block, dim=1), torch.softmax(block, dim=1)
)

# %% [markdown]
# ## Temperature
#
# Multiplying all scores by a number multiplies their differences, too, so the weights change. By convention one divides by a number, the **temperature**: below 1 the largest score gets more weight, above 1 the weights become more even.

# %%
steps = torch.tensor([0.0, 1.0, 2.0, 3.0])
softened = {t: softmax(steps / t, dim=-1) for t in (0.3, 1.0, 3.0)}

# %% tags=["folded"]
# Picture: the same scores at three temperatures
picture(
    *(
        Bars(f"temperature {t}", weights, list("0123"), "key", (0, 1))
        for t, weights in softened.items()
    ),
    alt="Weights of the scores 0, 1, 2, 3 at three temperatures. At 0.3 "
    "the last key has nearly all the weight, at 1.0 about two thirds, "
    "at 3.0 four tenths.",
)

# %% [markdown]
# ## Build: a mask
#
# Back to the mean of the past. Equal scores give equal weights; let all scores be 0. A **mask** says which keys each query may look at: a boolean table, True where it may look.

# %%
T = 4
mask = torch.ones(T, T, dtype=torch.bool).tril()
mask

# %% tags=["folded"]
# Question
ask("score_of_the_future")

# %% [markdown]
# `masked_fill` writes a value where its argument is True. Our mask is True where a query *may* look, so `~` inverts it.

# %%
scores = torch.zeros(T, T)
scores = scores.masked_fill(~mask, float("-inf"))
scores

# %%
weights = torch.softmax(scores, dim=-1)
weights

# %% [markdown]
# Those are the weights of rung 2. The zeros above the diagonal are exact: exp(−∞) is 0, not nearly 0.

# %% tags=["folded"]
# Check: the weights of rung 2, with exact zeros
torch.testing.assert_close(weights, mask / mask.sum(dim=-1, keepdim=True))
assert (weights[~mask] == 0).all()

# %% [markdown]
# ## Build: the function


# %%
def causal_mean_softmax(x):
    T = x.shape[-2]
    scores = torch.zeros(T, T, dtype=x.dtype, device=x.device)
    mask = torch.ones(T, T, dtype=torch.bool, device=x.device).tril()
    scores = scores.masked_fill(~mask, float("-inf"))
    weights = torch.softmax(scores, dim=-1)
    return weights @ x


causal_mean_softmax(torch.tensor([[2.0, 7.0], [6.0, 4.0], [6.0, 5.0]]))

# %% [markdown]
# ## Prove
#
# Rung 3 equals rung 2 equals rung 1.

# %% tags=["proof"]
for T in (1, 2, 7, 32):
    x = torch.randn(3, T, 5)
    torch.testing.assert_close(
        causal_mean_softmax(x), causal_mean_matmul(x)
    )
    torch.testing.assert_close(causal_mean_softmax(x), causal_mean_loop(x))

# %% [markdown]
# ## Two ways to mask
#
# Now with scores that are not all equal. They are from the article "Introduction to Attention Mechanisms in Three Transformer Models and PyTorch Implementation", for the six words of "The sun rises in the east". The article mixes up the order of the words, and we keep its order: the, sun, the, in, east, rises. Rung 4 shows how the scores are computed, and rung 5 why they are divided by √2.

# %% tags=["folded"]
# Data: article_scores of six tokens, divided by √2, and their mask
article_scores = (
    torch.tensor(
        [
            [0.0613, -0.3491, 0.1443, -0.0437, -0.1303, 0.1076],
            [-0.6004, 3.4707, -1.5023, 0.4991, 1.2903, -1.3374],
            [0.2432, -1.3934, 0.5869, -0.1851, -0.5191, 0.4730],
            [-0.0794, 0.4487, -0.1807, 0.0518, 0.1677, -0.1197],
            [-0.1510, 0.8626, -0.3597, 0.1112, 0.3216, -0.2787],
            [0.4344, -2.5037, 1.0740, -0.3509, -0.9315, 0.9265],
        ]
    )
    / 2**0.5
)
mask = torch.ones(6, 6, dtype=torch.bool).tril()

# %% [markdown]
# The first way: −∞ before the softmax.

# %%
masked = article_scores.masked_fill(~mask, float("-inf"))
before = torch.softmax(masked, dim=-1)
before

# %% [markdown]
# The second way: softmax over everything, then multiply by the mask.

# %%
multiplied = torch.softmax(article_scores, dim=-1) * mask
multiplied

# %% [markdown]
# All its rows but the last now sum to less than 1. Divide each row by its sum, and both ways agree.

# %%
renormalized = multiplied / multiplied.sum(dim=-1, keepdim=True)
torch.testing.assert_close(renormalized, before)

# %% [markdown]
# After the multiplication the article prints 0.2449<!--shown--> for position 3, the word "in", on itself. Our matrix says 0.165<!--shown-->. The printed number belongs to its next step, where each row has been divided by its sum.

# %% tags=["folded"]
# Check: 0.165 after the product, 0.2449 after the division
torch.testing.assert_close(
    multiplied[3, 3], torch.tensor(0.1651), atol=1e-4, rtol=0
)
torch.testing.assert_close(
    renormalized[3, 3], torch.tensor(0.2449), atol=1e-4, rtol=0
)

# %% [markdown]
# The two ways of masking agree on paper, and nearly always in float32. But if a hidden score is far above all visible ones, the visible weights are too small for float32 and are rounded to 0 (**underflow**). Then the division is 0/0.

# %%
far_above = torch.tensor([0.0, 200.0])
only_first = torch.tensor([True, False])
second_way = torch.softmax(far_above, dim=-1) * only_first
second_way / second_way.sum()

# %%
torch.softmax(far_above.masked_fill(~only_first, float("-inf")), dim=-1)

# %% [markdown]
# ## Stop after the multiplication
#
# What if we leave out the division?

# %% tags=["folded"]
# Question
ask("mask_by_zero")

# %% [markdown]
# To see the leak, the scores must depend on the tokens. To score two tokens, multiply them channel by channel and add up; rung 4 discusses this choice.


# %%
def mask_before(x):
    scores = x @ x.transpose(-2, -1)  # (T, T)
    mask = torch.ones_like(scores, dtype=torch.bool).tril()
    scores = scores.masked_fill(~mask, float("-inf"))
    return torch.softmax(scores, dim=-1) @ x


def multiply_after(x):
    scores = x @ x.transpose(-2, -1)
    return torch.softmax(scores, dim=-1).tril() @ x


# %% tags=["folded"]
# Picture: the leak probe of mask_before and multiply_after
torch.manual_seed(0)
x = torch.randn(6, 3)
picture(
    Heatmap(
        "−∞ before the softmax",
        leak_probe(mask_before, x),
        "output that moves",
        "input that is nudged",
    ),
    Heatmap(
        "multiplied after it",
        leak_probe(multiply_after, x),
        "output that moves",
        "input that is nudged",
    ),
    alt="Two leak probes. With −∞ before the softmax only the lower "
    "triangle moves. With the multiplication after it, every output "
    "moves with every input.",
)

# %% [markdown]
# On the right, output 0 moves when input 5 does. The tokens of the future are no longer in the output. But their scores are still in the sum that each row was divided by.

# %% tags=["folded"]
# Check: only the second one leaks
assert not leak_probe(mask_before, x).triu(diagonal=1).any()
assert leak_probe(multiply_after, x).all()

# %% [markdown]
# ## A fully masked row
#
# Sometimes a mask hides every key of a query, for example where a batch contains an empty sequence. Such a row is **fully masked**: softmax has no key to give weight to.

# %%
torch.softmax(torch.full((3,), float("-inf")), dim=-1)

# %% [markdown]
# By the formula this is 0/0, which is NaN. (Our stable softmax gets NaN a step earlier, from −∞ − (−∞).) One NaN soon spreads through a whole model. PyTorch's own attention function, `F.scaled_dot_product_attention`, returns zeros for such a query. (Older versions returned NaN; the module `nn.MultiheadAttention`, which rung 6 uses, still does by default.) The function takes three inputs, which rung 4 explains; here all three are `x`. Row 0 is fully masked, and this is its output:

# %%
x = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])  # (B, T, C) = (1, 2, 2)
nothing_for_0 = torch.tensor([[False, False], [True, True]])
F.scaled_dot_product_attention(x, x, x, attn_mask=nothing_for_0)[0, 0]

# %% [markdown]
# ## Why not a large negative number
#
# Much code fills in a large negative number, −1e9 or −1e4, in place of −∞. With ordinary scores the weights come out the same. Here are two rows, with −1e4, where they do not: in row 0 the visible score is below the fill, and row 1 is fully masked.

# %%
scores = torch.tensor([[-20_000.0, 0.0], [0.0, 0.0]])
hidden = torch.tensor([[False, True], [True, True]])
torch.softmax(scores.masked_fill(hidden, -1e4), dim=-1)

# %% [markdown]
# In row 0 the mask has opened: the hidden key gets all the weight. In row 1 two hidden keys get half each, and no NaN warns you. With −∞, row 0 is right. (A real score is much less likely to lie below −1e9; row 1 would be just as wrong.) And in float16, whose largest number is 65,504<!--given-->, −1e9 is out of range:

# %%
right = torch.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1)
assert right[0].tolist() == [1, 0]
try:
    scores.half().masked_fill(hidden, -1e9)
except RuntimeError:
    print("out of range")

# %% [markdown]
# ## Scores need not be zero
#
# With all scores equal, softmax gives the mean. But any finite scores will do. Three preferences, written as scores: for the token itself, for the first token, and for the previous token.

# %%
T = 6
position = torch.arange(T)
mask = torch.ones(T, T, dtype=torch.bool).tril()
preferences = {
    "myself": 3.0 * (position[:, None] == position),
    "the first": 3.0 * (position == 0).expand(T, T),
    "the previous": 3.0 * (position[:, None] == position + 1),
}
tables = {
    name: torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)
    for name, scores in preferences.items()
}

# %% tags=["folded"]
# Picture: the weights of the three preferences
picture(
    *(
        Heatmap(name, w, "query", "key", limit=1)
        for name, w in tables.items()
    ),
    alt="Weights from three matrices of scores: most weight on the "
    "diagonal, in the first column, and right below the diagonal.",
)

# %% [markdown]
# The rows still sum to 1, and the future still has no weight, whatever the scores are.

# %% tags=["folded"]
# Check: rows sum to 1, nothing above the diagonal
for w in tables.values():
    torch.testing.assert_close(w.sum(dim=-1), torch.ones(T))
    assert not w.triu(diagonal=1).any()

# %% [markdown]
# This is the freedom that attention uses. The mask says who *may* look where; the scores say who *wants* to. In rung 4 the tokens produce the scores themselves.
#
# ## Explore
#
# **When does one key get all the weight, and when do all keys get the same?**
#
# The **entropy** of the weights measures how evenly they are spread: 0 when one key has all the weight, ln n when n keys have the same; for weights p it is −Σ p ln p. (The natural logarithm gives it the unit **nat**.) Lower the temperature and watch it fall. Then switch the mask off: key 3 has the highest score and had no weight until now.

# %% tags=["folded"]
# Explorer: scores, temperature, mask
explore("masked_softmax")

# %% [markdown]
# At a low temperature the largest score gets all the weight. Equal scores, or a high temperature, give all keys the same. A masked key gets nothing, whatever its score.
#
# ## Break it
#
# The shapes are right, the weights lie between 0 and 1, and the upper triangle is zero. One line is wrong.


# %%
def almost_attention(x):
    scores = x @ x.transpose(-2, -1)
    mask = torch.ones_like(scores, dtype=torch.bool).tril()
    scores = scores.masked_fill(~mask, float("-inf"))
    weights = torch.softmax(scores, dim=-2)
    return weights, weights @ x


torch.manual_seed(0)
x = torch.randn(5, 3)
broken, _ = almost_attention(x)
broken

# %% tags=["folded"]
# Question
ask("find_the_softmax_bug")

# %% [markdown]
# The softmax runs along `dim=-2`, the queries: each *column* sums to 1. Two checks catch it, and both are cheap. The first is the sum of each row.

# %%
print("columns:", broken.sum(dim=-2))
print("rows:   ", broken.sum(dim=-1))

# %% [markdown]
# The second is the leak probe.

# %% tags=["folded"]
# Picture: the leak probe of almost_attention
picture(
    Heatmap(
        "softmax along the queries",
        leak_probe(lambda x: almost_attention(x)[1], x),
        "output that moves",
        "input that is nudged",
    ),
    alt="The leak probe of the broken function: entries above the diagonal "
    "are lit.",
)

# %% [markdown]
# Each key distributes its weight over all queries that may see it, including later ones. So a later token changes what an earlier one gets.

# %% tags=["folded"]
# Check: almost_attention leaks
assert (
    leak_probe(lambda x: almost_attention(x)[1], x).triu(diagonal=1).any()
)

# %% [markdown]
# ## Exercises
#
# ### 1. The mean of the past, by softmax
#
# <!--task causal_mean_softmax-->


# %%
def my_causal_mean(x):
    raise NotImplementedError


check("causal_mean_softmax", my_causal_mean)

# %% [markdown]
# ### 2. A numerically stable softmax
#
# <!--task stable_softmax-->


# %%
def my_softmax(x):
    raise NotImplementedError


check("stable_softmax", my_softmax)

# %% [markdown]
# ### 3. Padding
#
# The sequences of a batch differ in length. Short ones are padded at the end: **padding** is tokens without content. Here are scores for T_q queries and T_k keys, and not all keys are real.
#
# <!--task padding_weights-->


# %%
def my_padding_weights(scores, lengths):
    raise NotImplementedError


check("padding_weights", my_padding_weights)

# %% [markdown]
# ## In the wild
#
# - "Attention Is All You Need" (Vaswani et al. 2017, section 3.2.3) masks out "all values in the input of the softmax which correspond to illegal connections": −∞ before the softmax, as here.
# - nanoGPT, where it does not call PyTorch's own function, keeps the triangle as a buffer called `bias` and writes `masked_fill(self.bias[...] == 0, float('-inf'))`.
# - `F.scaled_dot_product_attention` takes a boolean mask that is True where a query may look, like ours. `nn.MultiheadAttention` takes the opposite. Rung 6 comes back to this.
# - The scores are also called affinities, logits, or `wei` before the softmax; the temperature that you set when you sample text works the same way, on the scores of the possible next tokens.
#
# ## Three sentences to remember
#
# 1. Softmax turns finite scores into positive weights that sum to 1; only differences between scores matter.
# 2. A mask writes −∞ into the scores *before* the softmax, so that hidden keys are neither in the output nor in the sum.
# 3. The mask says who may look, the scores say who wants to.
#
# Next: [rung 4, query, key, value](04_query_key_value.ipynb), where the scores are computed from the tokens.
#
# <!--neighbours-->
