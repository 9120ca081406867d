# %% [markdown]
# # Rung {masked_softmax}: masked softmax
#
# <!--ladder-->
#
# **You will build** a function that turns any scores into weights, and gives the future none.
#
# <!--staircase-->
#
# Not bad for weights chosen by hand. But a model should find its own, and what a model computes can be any number.
#
# In the picture, guess what the mask does, then drag scores until “Ben” gets more than half.

# %% tags=["hero", "folded"]
# The opening picture: drag a score, drop the mask
from attention_course.heroes import hero

hero("masked_softmax")

# %% [markdown]
# **You need** [rung {tril_matmul}]({tril_matmul}.ipynb), and two rules: exp turns sums into products, and exp(0) = 1.
#
# <!--time-->
#
# <!--test-out-->

# %% tags=["folded"]
# Two questions from the rungs below
from attention_course.questions import warm_up

warm_up("masked_softmax")

# %% [markdown]
# ## From scores to weights
#
# Call such an unrestricted number a **score**. Weights are pickier, because none may be negative and together they have to add up to 1. But `exp` is always positive. Can you turn the logarithms of 1, 2 and 5 into weights? (Logarithms, because exp undoes them.)

# %% tags=["folded"]
# Fill in: scores to weights
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
from attention_course.text import CharTokenizer, load_text, train_val_split

torch.set_printoptions(precision=3, sci_mode=False)

progress("masked_softmax")

# %%
scores = torch.tensor([1.0, 2.0, 5.0]).log()

# %% tags=["name:softmax_by_hand"]
exp = scores.exp()
weights = exp / exp.sum()
scores, exp, weights

# %% [markdown]
# The exponentials are 1, 2 and 5, so the weights are {{8 * weights[0]:.0f}}/8, {{8 * weights[1]:.0f}}/8 and {{8 * weights[2]:.0f}}/8. These two steps together, exp and then division by the sum, are called **softmax**. That also settles something rung {bag_of_words} left open, because a trained model's last table gives 33 scores, one for each character, and softmax turns them into 33 probabilities.
#
# Couldn't you leave out exp, and divide each score by the sum of them all? Try it with the scores 2, 1 and −3. Their sum is 0, and one of them is negative. So before you divide, something has to make every score positive without mixing up their order, because a higher score should mean more weight.
#
# ## Why exp?
#
# Squares would be positive as well, so what is so special about exp? Guess one thing before you read on.

# %% tags=["folded"]
# Question
ask("one_higher")

# %% [markdown]
# There are four reasons, and you will meet each of them again. (Only the second singles out exponentials.)
#
# - **The order is kept.** A higher score gets more weight, even among negative scores. A square would give −3 as much as 3.
# - **Differences become ratios.** Raise a score by 1, and the ratio of its weight to any other is multiplied by e, about {{torch.tensor(1.0).exp():.2f}}. Where the scores started makes no difference.
# - **No weight is ever quite 0.** Even a poor score keeps a sliver (on paper, that is, because a computer may round it away). That matters in training (rung {scaling_variance}), which adjusts each score by what its word does to the output. A word of weight 0 does nothing, so nothing would tell the model that it should have listened.
# - **It is smooth.** Move a score a little, and the weights move a little. The hard alternative gives everything to the highest score, and it jumps.
#
# You can see such a jump. Sam's score passes Ben's by a hair.

# %%
for sam in (1.9, 2.1):
    scores = torch.tensor([2.0, sam])  # of Ben and of Sam
    hard = (scores == scores.max()).float()
    print(f"Sam {sam}: hard {hard}, soft {torch.softmax(scores, dim=-1)}")

# %% [markdown]
# The hard maximum swings from Ben to Sam, while softmax barely stirs. That is where the name comes from. Softmax is a *soft* way to pick the maximum. It doesn't return the largest score, but says how much to take of each.
#
# ## Only differences count
#
# If differences become ratios, what happens when you raise every score by the same amount?

# %% tags=["folded"]
# Question
ask("add_a_constant")

# %%
scores = torch.tensor([1.0, 2.0, 5.0]).log()
torch.softmax(scores, dim=-1), torch.softmax(scores + 100, dim=-1)

# %% [markdown]
# Nothing happens, because exp(s + 100) is exp(s) times exp(100), and the division cancels that factor. Computers need this, since exp grows so fast that exp(1000) does not fit into a float32. It becomes infinite, which is called **overflow**, and infinity divided by infinity is NaN, "not a number". Where is the limit? Change 1000 to 80, and go up until it breaks.

# %% tags=["do"]
large = 1000 + torch.tensor([0.0, 1.0, 2.0])  # change 1000
large.exp(), large.exp() / large.exp().sum()

# %% [markdown]
# You may subtract any number you like, as long as it's the same for all the scores. So subtract the largest, and exp never sees a number above 0. A computation that survives large numbers like this is called **numerically stable**, and `torch.softmax` is.


# %%
def softmax(x, dim):
    exp = (x - x.amax(dim=dim, keepdim=True)).exp()
    return exp / exp.sum(dim=dim, keepdim=True)


torch.testing.assert_close(softmax(large, -1), torch.softmax(large, -1))
softmax(large, dim=-1)

# %% [markdown]
# ## Build: a mask
#
# In the opening picture, the highest score belonged to “Sam”, and “Sam” is the very word that “poor” has to predict. A model that may look at the answer learns to copy it, and is helpless once it has to write on its own. So words that come later must get no weight.
#
# A **mask** is a table of True and False that says who may look at whom. Each row belongs to a position that looks, which is called a **query**. Each column belongs to a position that is looked at, a **key**. A query may see its own key and those before it.

# %%
T = 4
mask = torch.ones(T, T, dtype=torch.bool).tril()
mask

# %% [markdown]
# The mask has to act on the scores, before the softmax.

# %% tags=["folded"]
# Question
ask("score_of_the_future")

# %% [markdown]
# `masked_fill` writes a number wherever its argument is True. Our mask is True where a query *may* look, so we pass it `~mask`, the opposite. Start with scores that are all 0, and you will see what softmax makes of equal scores.

# %% tags=["folded"]
# Fill in: scores, and their weights
fill("weights_from_a_mask")

# %% tags=["folded", "name:weights_from_a_mask"]
# The scores with the mask, and their weights
scores = torch.zeros(T, T).masked_fill(~mask, float("-inf"))
weights = torch.softmax(scores, dim=-1)
scores, weights

# %% [markdown]
# You know this matrix. It is the mean of the past, and you got it in rung {tril_matmul} when you divided a triangle of ones by its row sums. The zeros above the diagonal are real zeros, because exp(−∞) is 0. No finite score could promise that.
#
# In a batch each text has a table of scores. That makes three dimensions, and softmax will happily run along any of them.

# %% tags=["folded"]
# Question
ask("which_dim")

# %% [markdown]
# ### More: what each `dim` of a softmax does
#
# The sums along the dimension that you name are 1. All three versions run, and no error tells you which one you wanted.

# %%
torch.manual_seed(0)
block = torch.randn(2, 3, 4)
for dim in range(3):
    weights = torch.softmax(block, dim=dim)
    ones = [
        torch.allclose(weights.sum(dim=d), torch.ones(())) for d in range(3)
    ]
    print(f"softmax along dim={dim}: sums of 1 along", ones.index(True))

# %% [markdown]
# ### More: masking after the softmax
#
# Why before the softmax? You could also take the softmax of everything, multiply by the mask, and divide each row by what is left of it. On paper that is the same. Here are the scores of three queries for three keys.

# %%
scores = torch.tensor([[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]])
mask = torch.ones(3, 3, dtype=torch.bool).tril()
before = torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)

# %% tags=["folded"]
# Fill in: first softmax, then the mask
fill("mask_then_divide")

# %% tags=["folded", "name:mask_then_divide"]
# The mask after the softmax
multiplied = torch.softmax(scores, dim=-1) * mask
renormalized = multiplied / multiplied.sum(dim=-1, keepdim=True)
multiplied, multiplied.sum(dim=-1)

# %% [markdown]
# The two agree here, but not always. If a hidden score lies far above all the visible ones, the visible weights are rounded to 0, which is called **underflow**. Then there is nothing left to divide, and 0/0 is NaN.

# %%
torch.testing.assert_close(renormalized, before)  # they agree

far_above = torch.tensor([0.0, 200.0])
only_first = torch.tensor([True, False])
after = torch.softmax(far_above, dim=-1) * only_first
hidden = far_above.masked_fill(~only_first, float("-inf"))
after / after.sum(), torch.softmax(hidden, dim=-1)

# %% [markdown]
# And what if you forget the division?

# %% tags=["folded"]
# Question
ask("mask_by_zero")

# %% [markdown]
# To see such a leak, you need scores that come from the tokens. Rung {query_key_value} does that properly. Until then, let two tokens that are alike have a high score: multiply them channel by channel, and sum the products. `x @ x.transpose(-2, -1)` does so for all pairs at once. It turns the tokens of the second x into columns, because a product takes a row times a column.


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
assert not leak_probe(mask_before, x).triu(diagonal=1).any()
assert leak_probe(multiply_after, x).all()
picture(
    *(
        Heatmap(
            name,
            leak_probe(function, x),
            "output that moves",
            "input that is nudged",
        )
        for name, function in {
            "−∞ before the softmax": mask_before,
            "multiplied after it": multiply_after,
        }.items()
    ),
    alt="Two leak probes. With −∞ before the softmax only the lower "
    "triangle moves. With the multiplication after it, every output "
    "moves with every input.",
)

# %% [markdown]
# In the second picture, output 0 moves when input 5 does. The tokens of the future are gone, yet their scores are still in the sum that each row was divided by.
#
# ### More: a row that may look at nothing, and −1e9 instead of −∞
#
# A mask can hide every key of a query, for example when one text of a batch is empty. Such a row is **fully masked**, and its softmax is NaN. The stable softmax subtracts the largest score, and −∞ − (−∞) is not a number. (Without the subtraction it would be 0/0.) One NaN soon spreads through a whole model, so code that meets such rows sets their weights to 0 afterwards. You will need that in exercise 3.
#
# PyTorch's own function returns zeros for such a row. It takes three inputs, which rung {query_key_value} explains. Here all three are `x`, and query 0 may see nothing.

# %%
nothing = torch.full((2,), float("-inf"))
x = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])  # (B, T, C) = (1, 2, 2)
visible = torch.tensor([[False, False], [True, True]])
out = F.scaled_dot_product_attention(x, x, x, attn_mask=visible)
nothing - nothing.amax(), torch.softmax(nothing, dim=-1), out[0, 0]

# %% [markdown]
# A lot of code fills in `-1e9` or `-1e4` instead of −∞. With ordinary scores you get the same weights. In the next cell you don't. In row 0 the visible score is even lower than the fill, and row 1 is fully masked.

# %%
scores = torch.tensor([[-20_000.0, 0.0], [0.0, 0.0]])
hidden = torch.tensor([[False, True], [True, True]])
for fill_in in (-1e4, float("-inf")):
    print(torch.softmax(scores.masked_fill(hidden, fill_in), dim=-1))
torch.finfo(torch.float16).max

# %% [markdown]
# With `-1e4` the mask leaks in row 0, where the hidden key gets all the weight. In row 1 two hidden keys share it, and no NaN warns you. `-1e9` is far lower, but it has a problem of its own. It doesn't fit into float16, the 16-bit format that many GPUs compute in, whose largest number is {{torch.finfo(torch.float16).max:,.0f}}.
#
# ## Build: the function
#
# Now put the pieces together. Equal scores give the mean of the past, so all scores are 0.


# %%
def causal_mean_softmax(x):
    T = x.shape[-2]
    scores = torch.zeros(T, T, dtype=x.dtype, device=x.device)
    mask = torch.ones(T, T, dtype=torch.bool, device=x.device).tril()
    scores = scores.masked_fill(~mask, float("-inf"))
    weights = torch.softmax(scores, dim=-1)
    return weights @ x


# %% [markdown]
# ### More: where a model keeps its mask
#
# The mask has to be on the device of `x`, so many models make it once and keep it with `register_buffer`, which moves it to the GPU along with the model, and which training leaves alone.
#
# ## Prove
#
# You now have three ways to get the same mean, the loop of rung {bag_of_words}, the matrix of rung {tril_matmul}, and a softmax.

# %% tags=["proof"]
for T in (1, 2, 7, 32):
    x = torch.randn(3, T, 5)
    for mean in (causal_mean_loop, causal_mean_matmul):
        torch.testing.assert_close(causal_mean_softmax(x), mean(x))

# %% [markdown]
# ## How many keys does it look at?
#
# You can make weights sharper or more even without changing the order of the scores. Divide them all by one number, the **temperature**. Their differences are divided too, so below 1 the highest score gets more, and above 1 the weights come closer together. Change the temperature to 0.3<!--given-->, then to 3, and run the cell each time.

# %% tags=["do"]
temperature = 1.0  # change this
scores = torch.tensor([0.0, 1.0, 2.0, 3.0])
weights = softmax(scores / temperature, dim=-1)
surprise = -weights.log()
entropy = (weights * surprise).sum()
weights, entropy, entropy.exp()

# %% [markdown]
# The last two numbers say how sharp the weights are. Suppose you draw a key at random, with the weights as probabilities. A key of weight p surprises you by −ln p, as a letter did in rung {bag_of_words}, where the loss was the average surprise of a text. Here the average surprise is called the **entropy** of the weights. It is 0 when one key has everything, because that draw is no surprise. When n keys share equally it is ln n, and it cannot get larger.
#
# Nats are hard to picture, so take exp, and you have the **perplexity**. Read it as a number of keys. These weights are as undecided as an even split over {{entropy.exp():.1f}} keys.
#
# ## Explore
#
# **When does one key get all the weight, and when do all keys get the same?**
#
# Here are four words of the story again. First bring the perplexity down to 1 without touching a score. Then set the temperature back to 1, and reach a perplexity of 3 by dragging the bars. What happens when you drag “Sam” behind the mask, and when you switch the mask off?

# %% tags=["folded"]
# Explorer: scores, temperature, mask
explore("masked_softmax")

# %% [markdown]
# At a low temperature the highest score gets everything. With equal scores all keys get the same weight, and at a high temperature they nearly do. A masked key gets nothing, whatever its score, and it does not count among the keys that share.
#
# ## The zeros can become data
#
# It looks as if we've taken the long way round, because the third version does what the second did, and takes more lines. What have we gained?
#
# Look at one line again: `scores = torch.zeros(T, T)`. In rung {tril_matmul} every number was a weight, and to get a mean you had to keep all of them at 0 or above and the sum of each row at 1. These zeros need no such care. Write 3 there, or −50, or anything, and softmax still turns it into proper weights. **The zeros can become data.** Numbers that a model learns can go there, or numbers that a model *computes*, fresh for every text.
#
# ## Let it learn
#
# Before we learn scores for places, let's learn simpler ones, for the next letter. Take the pairs of rung {bag_of_words} again, but don't count. Start with a table of scores that are all 0. For each of them, `loss.backward()` finds out how fast the loss would rise if we raised that score. So we subtract 50 times that from the score, which is one step downhill. (Rung {scaling_variance} takes a closer look.) Where will the loss be after 300 such steps?

# %% tags=["do"]
text = load_text("stories")
tokenizer = CharTokenizer(text)
V = tokenizer.vocab_size
ids, _ = train_val_split(tokenizer.encode(text))
before, after = ids[:-1], ids[1:]

scores = torch.zeros(V, V, requires_grad=True)  # to be learned
for step in range(301):
    p = torch.softmax(scores, dim=-1)[before, after]
    loss = -p.log().mean()  # the average surprise
    if step in (0, 3, 10, 30, 300):
        print(f"step {step:3}: loss {loss:.2f}")
    loss.backward()
    with torch.no_grad():  # don't track this change
        scores -= 50 * scores.grad  # try 5, and 500
    scores.grad = None  # backward would add to it

# %% [markdown]
# It falls from ln 33 to {{loss:.2f}}, as low as the table that you counted, and yet nobody told it to count. (With 5 it creeps. With 500<!--given--> it overshoots, and soon the loss is NaN.) Counting works for pairs. This works for any numbers, as long as a small change in them changes the loss a little, and it's how the models on the staircase were trained.
#
# ## Scores for distances
#
# The fading weights of rung {tril_matmul} halve with each step back. Which scores give exactly those weights?

# %%
T = 6
position = torch.arange(T)
distance = position[:, None] - position  # (T, T): steps back to the key
mask = distance >= 0
half = torch.tensor(0.5)

# %% tags=["folded"]
# Fill in: fading weights, from scores
fill("fading_scores")

# %% tags=["folded", "name:fading_scores"]
# The scores, and their weights
scores = distance * half.log()
scores = scores.masked_fill(~mask, float("-inf"))
weights = torch.softmax(scores, dim=-1)
weights

# %% tags=["proof"]
fading = torch.tril(half**distance)
fading = fading / fading.sum(dim=-1, keepdim=True)
torch.testing.assert_close(weights, fading)

# %% [markdown]
# Each step back lowers the score by ln 2, about {{-half.log():.2f}}, and that halves the weight. So your choice was a single number. The model on this step of the staircase has more freedom: *one score for each distance*, all of them learned.
#
# Be that model. Here is the story, in words so that we can see it all. The bars are the weights of the last query, “Poor”, which wants to find out who got the drum.

# %% tags=["do"]
story = "Kind Ben gave poor Sam a drum at the farm. Who got it? Poor"
per_distance = torch.zeros(30)  # a score for 0, 1, 2, ... steps back
per_distance[1] = 4.0  # change this line


def weights_of_last(text):
    T = len(text.split())
    distance = torch.arange(T - 1, -1, -1)  # from the last query
    return torch.softmax(per_distance[distance], dim=-1)  # (T,)


def draw_last(text):
    weights, words = weights_of_last(text), text.split()
    bars = Bars("weights of the last query", weights, words, "key", (0, 1))
    return picture(bars, alt="A bar for the weight of each word.")


draw_last(story)

# %% [markdown]
# Now “Poor” looks one step back, at “it?”. Change the line until it looks at “Sam”, and run the cell again.

# %% tags=["folded"]
# Question
ask("same_scores_other_story")

# %%
per_distance[:] = 0.0
per_distance[9] = 4.0  # Sam is nine steps back
other = (
    "Kind Eve gave poor Joe a map at the cave. "
    "What? A map. Who got it? Poor"
)
draw_last(other)

# %% [markdown]
# “Poor” looks nine words back, whatever is there. In this story it is “at”, and “Joe” gets nothing to speak of. No score for a distance can follow the name around, because it's in a different place in every story. That is what rung {query_key_value} sets out to fix.
#
# **The mask says who *may* look where, and the scores say who *wants* to.** Any finite scores will do, as long as the mask is there.
#
# ## Break it
#
# Here is a bug that runs. The scores come from the tokens, and two tokens that are alike get a high one. (`x @ x.transpose(-2, -1)` multiplies each token with every token, channel by channel, and sums the products. `transpose(-2, -1)` swaps the last two dimensions, because a product takes a row times a column.) The shape is right, the weights lie between 0 and 1, and everything above the diagonal is 0. What is wrong?


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

# %%
print("columns:", broken.sum(dim=-2))
print("rows:   ", broken.sum(dim=-1))
# the probe of rung {bag_of_words}: row t says which inputs move output t
leaks = leak_probe(lambda x: almost_attention(x)[1], x)
assert leaks[0, 1:].all()

# %% [markdown]
# Each *column* sums to 1. Every key hands out a total of 1 to the queries that may see it, and later queries are among them. So output 0 moves with every later input, although the upper triangle is empty. Two checks catch this bug, the sum of each row and the leak probe.
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
# This one is hard, and no later rung needs it, so leave it out if you like. Texts in a batch have different lengths, but a tensor has only one. So short texts are filled up at the end with tokens that mean nothing, the **padding**, and no query should look there. You get scores for T_q queries and T_k keys, which may be two different numbers, and the length of each text. A text of length 0 has no key that may be seen, and softmax turns such a row into NaN.
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
# - Andrej Karpathy's lecture "Let's build GPT" reaches the same function as its third version, and points out, as we did, that its zeros will soon depend on the data.
# - "Attention Is All You Need" (Vaswani et al. 2017, section 3.2.3) masks out "all values in the input of the softmax which correspond to illegal connections", which is −∞ before the softmax.
# - The scores are also called affinities, logits, or `wei` before the softmax.
#
# ## Where we are
#
# ![The transformer as a drawing. Highlighted: what this rung builds (the mask and softmax).](images/transformer_masked_softmax.svg)
#
# <!--step-->
#
# Learned scores are hardly better than the fading by half that you found by hand, because they depend on the distance alone and never change from story to story, although the answer is somewhere else each time. The scores have to come from what the words *are*.
#
# ## Three sentences to remember
#
# 1. Softmax turns any finite scores into weights that are positive and sum to 1, and only differences between scores matter.
# 2. A mask writes −∞ into the scores *before* the softmax, so hidden keys are neither in the output nor in the sum.
# 3. The mask says who may look, the scores say who wants to, and the scores can be data.
#
# Next: [rung {query_key_value}, query, key, value]({query_key_value}.ipynb), where the scores are computed from the tokens.
#
# <!--neighbours-->
