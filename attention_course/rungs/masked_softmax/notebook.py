# %% [markdown]
# # Rung {masked_softmax}: masked softmax
#
# <!--ladder-->
#
# **You will build** the weights of rung {tril_matmul} from scores, with softmax and a mask. In attention the scores are computed from the tokens.

# %% tags=["hero", "folded"]
# The opening picture: drag a score, drop the mask
from attention_course.heroes import hero

hero("masked_softmax")

# %% [markdown]
# **You need** [rung {tril_matmul}]({tril_matmul}.ipynb), and two rules: exp turns sums into products, and exp(0) = 1.
#
# <!--time-->
#
# ![The transformer as a drawing. Lit is what this rung builds: the mask and softmax.](images/transformer_masked_softmax.svg)

# %% [markdown]
# ## The question
#
# In rung {tril_matmul} the weights of a mean were never negative and summed to 1 in each row. What a model computes can be any number. How do we turn such numbers into weights, and keep the future out?
#
# Try it. `exp` makes any number positive, and keeps their order. Choose the pieces that turn three numbers, the logarithms of 1, 2 and 5, into positive weights that sum to 1.

# %% tags=["folded"]
# Fill in: numbers to weights
from attention_course.fills import fill

fill("softmax_by_hand")

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
# Numbers that are still to become weights are called **scores**. A score may be any number; a higher one means more weight. **Softmax** turns scores into weights in two steps: exp makes every score positive, then divide by the sum. The exponentials of these three scores are 1, 2 and 5.

# %%
scores = torch.tensor([1.0, 2.0, 5.0]).log()

# %% tags=["name:softmax_by_hand"]
exp = scores.exp()
weights = exp / exp.sum()
scores, exp, exp.sum(), weights

# %% tags=["folded"]
# Check: torch.softmax gives these weights
torch.testing.assert_close(weights, torch.softmax(scores, dim=-1))

# %% [markdown]
# The weights are {{8 * weights[0]:.0f}}/8, {{8 * weights[1]:.0f}}/8 and {{8 * weights[2]:.0f}}/8. With weights that sum to 1 the output is a mean. Without the division it would be a sum that grows with T.
#
# ## Along which dimension?
#
# `dim` names the dimension along which the weights sum to 1.

# %%
torch.manual_seed(0)
block = torch.randn(2, 3, 4)
for dim in range(3):
    sums = torch.softmax(block, dim=dim).sum(dim=dim)
    all_one = torch.allclose(sums, torch.ones(()))
    print(f"dim={dim}: sums {tuple(sums.shape)}, all 1: {all_one}")

# %% [markdown]
# All three run: no error tells you which one is right. In a matrix of scores, each row belongs to a **query**: the position that looks (output t of rung {tril_matmul}). Each column belongs to a **key**: a position that is looked at (token s). Papers say that a query attends to a key.

# %% tags=["folded"]
# Question
ask("which_dim")

# %% [markdown]
# ## What does a constant do?

# %% tags=["folded"]
# Question
ask("add_a_constant")

# %%
torch.softmax(scores, dim=-1), torch.softmax(scores + 100, dim=-1)

# %% [markdown]
# Adding 100 multiplies every exponential by exp(100), and the division cancels that: only differences between scores matter. That solves a problem, **overflow**: exp(1000) is too large for float32, and infinity divided by infinity is NaN, not a number.

# %%
large = torch.tensor([1000.0, 1001.0, 1002.0])
large.exp(), large.exp() / large.exp().sum()

# %% [markdown]
# So subtract the largest score first: exp is then never taken of a number above 0. This softmax is **numerically stable**.


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
# Dividing all scores by a number divides their differences, too. The number is called the **temperature**: below 1 the largest score gets more weight, above 1 the weights become more even.

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
# Equal scores give equal weights. For the mean of the past, let all scores be 0. A **mask** says which keys each query may look at: a boolean table, True where it may look.

# %%
T = 4
mask = torch.ones(T, T, dtype=torch.bool).tril()
mask

# %% tags=["folded"]
# Question
ask("score_of_the_future")

# %% [markdown]
# `masked_fill` writes a value where its argument is True. Our mask is True where a query *may* look, so `~` inverts it.

# %% tags=["folded"]
# Fill in: scores, and their weights
fill("weights_from_a_mask")

# %% tags=["folded", "name:weights_from_a_mask"]
# The scores with the mask, and their weights
scores = torch.zeros(T, T).masked_fill(~mask, float("-inf"))
weights = torch.softmax(scores, dim=-1)
scores, weights

# %% [markdown]
# Those are the weights of rung {tril_matmul}. The zeros above the diagonal are exact: exp(−∞) is 0.

# %% tags=["folded"]
# Check: the weights of rung {tril_matmul}, with exact zeros
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


# %% [markdown]
# ## Prove
#
# Rung {masked_softmax} equals rung {tril_matmul} equals rung {bag_of_words}.

# %% tags=["proof"]
for T in (1, 2, 7, 32):
    x = torch.randn(3, T, 5)
    for mean in (causal_mean_loop, causal_mean_matmul):
        torch.testing.assert_close(causal_mean_softmax(x), mean(x))

# %% [markdown]
# ## Two ways to mask
#
# Now with scores that are not all equal. They come from the worked example of Raschka (2024), [Understanding and Coding Self-Attention, Multi-Head Attention, Cross-Attention, and Causal-Attention in LLMs](https://magazine.sebastianraschka.com/p/understanding-and-coding-self-attention), for the six words of "Life is short, eat dessert first". Rung {query_key_value} computes them. They have been divided by √2; rung {scaling_variance} explains why.

# %% tags=["folded"]
# Data: dessert_scores of the six words, divided by √2
dessert_scores = (
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

# %% [markdown]
# The first way: −∞ before the softmax. Here are the scores of queries 2 and 3, and their weights.

# %%
T = 6
mask = torch.ones(T, T, dtype=torch.bool).tril()  # now for six tokens
masked = dessert_scores.masked_fill(~mask, float("-inf"))
before = torch.softmax(masked, dim=-1)
dessert_scores[2:4], before[2:4]

# %% [markdown]
# The second way: softmax over everything, then multiply by the mask. All rows but the last now sum to less than 1. Divide each row by its sum, and both ways agree.

# %% tags=["folded"]
# Fill in: first softmax, then the mask
fill("mask_then_divide")

# %% tags=["folded", "name:mask_then_divide"]
# The second way
multiplied = torch.softmax(dessert_scores, dim=-1) * mask
renormalized = multiplied / multiplied.sum(dim=-1, keepdim=True)
multiplied[2:4], multiplied.sum(dim=-1)

# %% tags=["folded"]
# Check: both ways agree
torch.testing.assert_close(renormalized, before)

# %% [markdown]
# In float32 the two ways can differ. If a hidden score is far above all visible ones, the visible weights are rounded to 0 (**underflow**), and the division is 0/0.

# %%
far_above = torch.tensor([0.0, 200.0])
only_first = torch.tensor([True, False])
second_way = torch.softmax(far_above, dim=-1) * only_first
first_way = far_above.masked_fill(~only_first, float("-inf"))
second_way / second_way.sum(), torch.softmax(first_way, dim=-1)

# %% [markdown]
# ## Stop after the multiplication
#
# What if we leave out the division?

# %% tags=["folded"]
# Question
ask("mask_by_zero")

# %% [markdown]
# To see the leak, the scores must depend on the tokens. To score two tokens, multiply them channel by channel and add up; `x @ x.transpose(-2, -1)` does so for all pairs.


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
# Picture and check: the leak probe of mask_before and multiply_after
torch.manual_seed(0)
x = torch.randn(6, 3)
assert not leak_probe(mask_before, x).triu(diagonal=1).any()
assert leak_probe(multiply_after, x).all()
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
# On the right, output 0 moves when input 5 does. The scores of the future are still in the sum that each row was divided by.
#
# ## A fully masked row
#
# A mask can hide every key of a query, for example when one text of a batch is empty. Such a row is **fully masked**. Its softmax is NaN, because the stable softmax subtracts the largest score, and −∞ − (−∞) is not a number. (Without the subtraction it would be 0/0.) A NaN soon spreads through a whole model. PyTorch's own attention function, `F.scaled_dot_product_attention`, returns zeros for such a query. It takes three inputs (rung {query_key_value}); here all three are `x`, and row 0 is fully masked.

# %%
x = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])  # (B, T, C) = (1, 2, 2)
nothing_for_0 = torch.tensor([[False, False], [True, True]])
out = F.scaled_dot_product_attention(x, x, x, attn_mask=nothing_for_0)
nothing = torch.full((2,), float("-inf"))
nothing - nothing.amax(), torch.softmax(nothing, dim=-1), out[0, 0]

# %% [markdown]
# ## Why not a large negative number
#
# Much code fills in `-1e9` or `-1e4` in place of −∞. With ordinary scores the weights come out the same. Here they do not: in row 0 the visible score is below the fill, and row 1 is fully masked.

# %%
scores = torch.tensor([[-20_000.0, 0.0], [0.0, 0.0]])
hidden = torch.tensor([[False, True], [True, True]])
for hiding in (-1e4, float("-inf")):
    print(torch.softmax(scores.masked_fill(hidden, hiding), dim=-1))
torch.finfo(torch.float16).max

# %% [markdown]
# With `-1e4` the mask has opened in row 0: the hidden key gets all the weight. In row 1 two hidden keys get half each, and no NaN warns you, as it does with −∞. And `-1e9` does not fit into float16, whose largest number is {{torch.finfo(torch.float16).max:,.0f}}.
#
# ## Scores need not be zero
#
# Any finite scores will do. Here are three preferences as scores: for the token itself, for the first, and for the previous token.

# %%
position = torch.arange(T)
query, key = position[:, None], position
preferences = {
    "myself": 3.0 * (query == key),
    "the first": 3.0 * (key == 0).expand(T, T),
    "the previous": 3.0 * (query == key + 1),
}
tables = {
    name: torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)
    for name, scores in preferences.items()
}

# %% tags=["folded"]
# Picture and check: the weights, rows that sum to 1, no future
for w in tables.values():
    torch.testing.assert_close(w.sum(dim=-1), torch.ones(T))
    assert not w.triu(diagonal=1).any()
picture(
    *(
        Heatmap(name, w, "query", "key", limit=1)
        for name, w in tables.items()
    ),
    alt="Weights from three matrices of scores: most weight on the "
    "diagonal, in the first column, and right below the diagonal.",
)

# %% [markdown]
# The rows still sum to 1, and the future still has no weight. This is the freedom that attention uses. The mask says who *may* look where; the scores say who *wants* to. In rung {query_key_value} the tokens produce the scores themselves.
#
# ## Explore
#
# **When does one key get all the weight, and when do all keys get the same?**
#
# The **entropy** of the weights measures how evenly they are spread: 0 when one key has all the weight, ln n when n keys have the same; for weights p it is −Σ p ln p, in **nats**, the unit that belongs to ln. Lower the temperature and watch the entropy fall. Then switch the mask off: key 3 has the highest score.

# %% tags=["folded"]
# Explorer: scores, temperature, mask
explore("masked_softmax")

# %% [markdown]
# At a low temperature the largest score gets all the weight. Equal scores, or a high temperature, give all keys the same. A masked key gets nothing, whatever its score.
#
# ## Break it
#
# The shapes are right, the weights lie between 0 and 1, and the upper triangle is zero.


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
# Two checks catch it: the sum of each row, and the leak probe. Output 0 moves with every later input.

# %%
print("columns:", broken.sum(dim=-2))
print("rows:   ", broken.sum(dim=-1))
assert leak_probe(lambda x: almost_attention(x)[1], x)[0, 1:].all()

# %% [markdown]
# Each *column* sums to 1: each key distributes its weight over the queries, including later ones.
#
# ## Exercises
#
# ### 1. The mean of the past, by softmax
#
# <!--task causal_mean_softmax-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("causal_mean_softmax")


# %%
def my_causal_mean(x):
    raise NotImplementedError


check("causal_mean_softmax", my_causal_mean)

# %% [markdown]
# ### 2. A numerically stable softmax
#
# <!--task stable_softmax-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("stable_softmax")


# %%
def my_softmax(x):
    raise NotImplementedError


check("stable_softmax", my_softmax)

# %% [markdown]
# ### 3. Padding
#
# Short sequences of a batch are padded at the end: **padding** is tokens without content. You get scores for T_q queries and T_k keys (two numbers that may differ), and not all keys are real.
#
# <!--task padding_weights-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("padding_weights")


# %%
def my_padding_weights(scores, lengths):
    raise NotImplementedError


check("padding_weights", my_padding_weights)

# %% [markdown]
# ## In the wild
#
# - "Attention Is All You Need" (Vaswani et al. 2017, section 3.2.3) masks out "all values in the input of the softmax which correspond to illegal connections": −∞ before the softmax, as here.
# - The scores are also called affinities, logits, or `wei` before the softmax.
#
# ## Three sentences to remember
#
# 1. Softmax turns finite scores into weights that are never negative and sum to 1; only differences between scores matter.
# 2. A mask writes −∞ into the scores *before* the softmax, so that hidden keys are neither in the output nor in the sum.
# 3. The mask says who may look, the scores say who wants to.
#
# Next: [rung {query_key_value}, query, key, value]({query_key_value}.ipynb), where the scores are computed from the tokens.
#
# <!--neighbours-->
