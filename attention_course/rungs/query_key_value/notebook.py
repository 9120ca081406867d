# %% [markdown]
# # Rung {query_key_value}: query, key, value
#
# <!--ladder-->
#
# **You will build** one head of attention. Each token says what it looks for, what it can be found by, and what it hands over. The first two determine the scores of rung {masked_softmax}.

# %% tags=["hero", "folded"]
# The opening picture: pick a letter, and step through
from attention_course.heroes import hero

hero("query_key_value")

# %% [markdown]
# **You need** [rung {masked_softmax}]({masked_softmax}.ipynb), the dot product of two vectors, and near the end what a derivative is.
#
# <!--time-->
#
# ![The transformer as a drawing. Lit is what this rung builds: query, key, value and their dot product.](images/transformer_query_key_value.svg)

# %% [markdown]
# ## The question
#
# In rung {masked_softmax} we wrote most scores ourselves. But how much one word matters to another depends on both words. How can the scores come from the tokens?
#
# Try it. Multiply two tokens channel by channel and add up: the more they point the same way, the larger the number. Score every pair of tokens, and turn each row into weights.

# %% tags=["folded"]
# Fill in: a score for every pair
from attention_course.fills import fill

fill("scores_of_all_pairs")

# %% tags=["folded"]
# Imports
from itertools import permutations

import torch
import torch.nn as nn
import torch.nn.functional as F
from matplotlib.figure import Figure

from attention_course.attention import causal_mask, leak_probe
from attention_course.averaging import causal_mean_loop, causal_mean_matmul
from attention_course.averaging import causal_mean_softmax
from attention_course.exercises import check
from attention_course.explorers import explore
from attention_course.plots import (
    BLUE,
    SKY,
    Bars,
    Heatmap,
    Picture,
    Scatter,
    picture,
)
from attention_course.progress import progress
from attention_course.questions import ask

torch.set_printoptions(precision=3, sci_mode=False)

progress("query_key_value")

# %% [markdown]
# ## Scores from the tokens alone
#
# A score needs two tokens and gives one number. The **dot product** does that: multiply channel by channel, and add up. It is positive when the two point in similar directions, 0 at right angles, negative in opposite ones.

# %%
# (T, C) = (4, 2)
x = torch.tensor([[2.0, 1.0], [1.0, 2.0], [-1.0, 1.0], [0.0, -2.0]])
(x[0] * x[1]).sum()

# %% [markdown]
# That was 2 · 1 + 1 · 2 = {{(x[0] * x[1]).sum():.0f}}. The product `x @ x.T` holds the dot products of all pairs: entry [t, s] is the score of key s for query t.

# %% tags=["folded"]
# Question
ask("largest_score_of_a_row")

# %% tags=["name:scores_of_all_pairs"]
scores = x @ x.T  # (4, 2) @ (2, 4) is (4, 4)
weights = torch.softmax(scores, dim=-1)

# %% tags=["folded"]
# Picture: the tokens, their scores and weights
picture(
    Scatter("Four tokens", x, ["0", "1", "2", "3"], limits=(-3, 3)),
    Heatmap("scores x @ x.T", scores, "query t", "key s"),
    Heatmap("weights", weights, "query t", "key s", limit=1),
    alt="Four points in the plane: 0 at (2, 1), 1 at (1, 2), 2 at (-1, 1), "
    "3 at (0, -2). Their scores are symmetric. The largest score and "
    "the largest weight of each row are on the diagonal.",
)

# %% [markdown]
# ## What is missing
#
# Softmax turns the scores into weights, as in rung {masked_softmax}. Here each token mostly finds itself, and gets nothing new: its score with itself is its squared length, and that is the largest of its row. And look at the scores once more.

# %% tags=["folded"]
# Question
ask("verb_and_subject")

# %% tags=["folded"]
# Check: the scores equal their transpose
torch.testing.assert_close(scores, scores.T)

# %% [markdown]
# The scores are symmetric: entry [t, s] equals [s, t]. What a token looks for and what it is found by have to be two different vectors. So each token gets
#
# - a **query**: what it looks for,
# - a **key**: what it can be found by,
# - and a **value**: what it hands over to those who find it.
#
# In rung {masked_softmax}, query and key meant the two positions; from here on also their vectors.
#
# Each of the three is a **projection** of the token, its product with a matrix: `q = x @ W_query`, `k = x @ W_key`, `v = x @ W_value`. These three matrices are all that a **head** of attention learns: their entries are its **parameters**. The number of channels of a token, C, is also written `n_embd`.
#
# ## One query by hand
#
# We follow one query through the worked example of rung {masked_softmax}. It is from Raschka (2024), [Understanding and Coding Self-Attention, Multi-Head Attention, Cross-Attention, and Causal-Attention in LLMs](https://magazine.sebastianraschka.com/p/understanding-and-coding-self-attention). The sentence has six words. Each gets a number, its **id**: its place in the sorted list.

# %%
words = ["Life", "is", "short", "eat", "dessert", "first"]
ids = torch.tensor([sorted(words).index(word) for word in words])
ids

# %% [markdown]
# An **embedding** is a table with one vector for each id; the vector is called the embedding of its token, too. This table has random numbers; in a model they are learned. (`detach()` drops the bookkeeping that only training needs.)

# %%
torch.manual_seed(123)
embedding = nn.Embedding(50_000, 3)
x = embedding(ids).detach()  # (T, n_embd) = (6, 3)
x

# %% tags=["folded"]
# Check: the six rows as Raschka prints them
printed = torch.tensor(
    [
        [0.3374, -0.1778, -0.3035],
        [0.1794, 1.8951, 0.4954],
        [0.2692, -0.0770, -1.0205],
        [-0.2196, -0.3792, 0.7671],
        [-0.5880, 0.3486, 0.6603],
        [-1.1925, 0.6984, -1.4097],
    ]
)
torch.testing.assert_close(x, printed, atol=1e-4, rtol=0)

# %% [markdown]
# The three matrices are random as well. Queries and keys have 2 channels: that is the **head_size**, also written d_k. Values have 4; this size is written d_v. Such sizes are chosen before training, and training does not change them: they are **hyperparameters**.

# %%
torch.manual_seed(123)
W_query = torch.rand(3, 2)
W_key = torch.rand(3, 2)
W_value = torch.rand(3, 4)

# %% [markdown]
# The token at index 2, "short", asks. Every token, itself included, offers a key.

# %%
query = x[2] @ W_query  # (2,)
keys = x @ W_key  # (6, 2)
query, keys

# %% [markdown]
# The score of key 0 is a dot product, and one product gives all six.

# %%
score_of_key_0 = (query * keys[0]).sum()
scores = keys @ query  # (6, 2) @ (2,) is (6,)
score_of_key_0, scores

# %% [markdown]
# The best match is again the token itself, and the worst is "is". This has no meaning, because the matrices are random.
#
# Softmax turns the scores into weights. Before it, they are divided by the square root of the head_size, here √2: rung {scaling_variance} explains why.

# %%
weights = torch.softmax(scores / 2**0.5, dim=-1)

# %% tags=["folded"]
# Picture: scores and weights of query 2
picture(
    Bars("scores of query 2", scores, words, "key", (-1.5, 1)),
    Bars("weights of query 2", weights, words, "key", (0, 0.4)),
    alt="Bars of six scores and six weights. 'short', the token itself, "
    "has the highest of both, and 'is' the lowest.",
)

# %% tags=["folded"]
# Check: the scores, the best and the worst match, the weights
expected = torch.tensor([0.2432, -1.3934, 0.5869, -0.1851, -0.5191, 0.4730])
torch.testing.assert_close(scores, expected, atol=1e-4, rtol=0)
assert words[scores.argmax()] == "short"
assert words[scores.argmin()] == "is"
expected = torch.tensor([0.1965, 0.0618, 0.2506, 0.1452, 0.1146, 0.2312])
torch.testing.assert_close(weights, expected, atol=1e-4, rtol=0)

# %% [markdown]
# The output for this token is the mean of the *values*, with these weights. It is also called the **context vector**.

# %% tags=["folded"]
# Fill in: what the query gets
fill("mean_of_the_values")

# %% tags=["folded", "name:mean_of_the_values"]
# The mean of the values
values = x @ W_value  # (6, 4)
context = weights @ values  # (6,) @ (6, 4) is (4,)
context

# %% [markdown]
# ## All queries at once

# %% tags=["folded"]
# Question
ask("shape_of_the_output")

# %% tags=["folded"]
# Fill in: a head in four lines
fill("all_queries_at_once")

# %% tags=["folded", "name:all_queries_at_once"]
# All queries, keys and values
q, k, v = x @ W_query, x @ W_key, x @ W_value
scores = q @ k.transpose(-2, -1)  # (6, 2) @ (2, 6) is (6, 6)
weights = torch.softmax(scores / 2**0.5, dim=-1)
output = weights @ v  # (6, 6) @ (6, 4) is (6, 4)
torch.testing.assert_close(output[2], context)

# %% [markdown]
# The transpose puts the keys into columns, so that each query, a row, meets each key. The scores are no longer symmetric: the score that "is" gives "first" differs from the one that "first" gives "is".

# %%
scores[1, 5], scores[5, 1]

# %% tags=["folded"]
# Check: the six rows of outputs as Raschka prints them
printed = torch.tensor(
    [
        [-0.1564, 0.1028, -0.0763, -0.0764],
        [0.5313, 1.3607, 0.7891, 1.3110],
        [-0.3542, -0.1234, -0.2627, -0.3706],
        [0.0071, 0.3345, 0.0969, 0.1998],
        [0.1008, 0.4780, 0.2021, 0.3674],
        [-0.5296, -0.2799, -0.4107, -0.6006],
    ]
)
torch.testing.assert_close(output, printed, atol=1e-4, rtol=0)

# %% [markdown]
# Such scores and weights are called **attention scores** and **attention weights**, and the matrix of all weights is the **attention matrix**. (Parameters are often called weights, too. Here weights are attention weights; in code, `weight` is a matrix of parameters.)
#
# And why mix v, and not the tokens x? Because x has to carry everything: what determines the query, the key, and what later parts of a model may need. W_value picks out what this head should pass on.
#
# ## Build: the weights
#
# Now as a function, with the mask of rung {masked_softmax}. The default of `scale` is 1/√head_size.


# %%
def attention_weights(q, k, mask=None, scale=None):
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = q @ k.transpose(-2, -1) * scale
    if mask is None:
        return torch.softmax(scores, dim=-1)
    scores = scores.masked_fill(~mask, float("-inf"))
    return torch.softmax(scores, dim=-1).masked_fill(~mask, 0.0)


torch.testing.assert_close(attention_weights(q, k), weights)

# %% [markdown]
# The last line looks superfluous: the weight of a hidden key is 0 already. It is there for a fully masked row, whose softmax is NaN (rung {masked_softmax}). Below, row 0 is such a row. `causal_mask` makes the mask of rung {masked_softmax}.

# %%
mask = causal_mask(6)
assert torch.equal(mask, torch.ones(6, 6, dtype=torch.bool).tril())
mask[0] = False
attention_weights(q, k, mask)[:2]

# %% [markdown]
# ## Build: attention
#
# The output is the weighted mean of the values. The function also returns the weights, for our pictures.


# %%
def attention(q, k, v, mask=None, scale=None):
    weights = attention_weights(q, k, mask, scale)
    return weights @ v, weights


torch.testing.assert_close(attention(q, k, v)[0], output)

# %% [markdown]
# ## Build: the head
#
# The three matrices go into one class, a head. `nn.Linear(n_embd, head_size, bias=False)` is a **linear layer**: a matrix that can be trained. Calling it multiplies. `nn.Module` is PyTorch's base class for parts of a model: it keeps track of the matrices, and calling it runs its `forward`. Computing outputs from inputs is called a **forward pass**.


# %%
class Head(nn.Module):
    def __init__(self, n_embd, head_size, d_v=None):
        super().__init__()
        self.query = nn.Linear(n_embd, head_size, bias=False)
        self.key = nn.Linear(n_embd, head_size, bias=False)
        self.value = nn.Linear(n_embd, d_v or head_size, bias=False)

    def forward(self, x, mask=None):
        return attention(self.query(x), self.key(x), self.value(x), mask)


# %% [markdown]
# Here is a batch of B = 4 sequences of T = 8 tokens with C = 32 channels.

# %%
torch.manual_seed(1)
batch = torch.randn(4, 8, 32)
head = Head(n_embd=32, head_size=16)
out, weights = head(batch, causal_mask(8))

# %% tags=["folded"]
# Question
ask("shape_of_the_weights")

# %%
weights.shape, out.shape

# %% [markdown]
# Each sequence has an attention matrix of its own. In rung {tril_matmul} all sequences shared the same weights.

# %% tags=["folded"]
# Picture: the weights of two sequences
picture(
    *(
        Heatmap(
            f"weights of sequence {b}",
            weights[b],
            "query t",
            "key s",
            limit=1,
        )
        for b in range(2)
    ),
    alt="Two lower triangles of weights, different ones.",
)

# %% [markdown]
# Three matrices of 32 times 16 make {{sum(p.numel() for p in head.parameters())}} parameters, whatever T is. `nn.Linear` stores a matrix as (out, in), here (16, 32), and multiplies by its transpose.

# %%
torch.testing.assert_close(head.query(batch), batch @ head.query.weight.T)
sum(parameter.numel() for parameter in head.parameters())

# %% [markdown]
# `bias=False`: no constant is added to the projections. A bias $b$ of the keys would have no effect: it adds the same $q \cdot b$ to all scores of a row, and softmax ignores that (rung {masked_softmax}).

# %%
q, k, b = head.query(batch), head.key(batch), torch.randn(16)
biased = attention_weights(q, k + b)
torch.testing.assert_close(biased, attention_weights(q, k))

# %% [markdown]
# And why two matrices for the scores? The same one for queries and keys would make the scores symmetric again. One matrix *between* the tokens would do: q kᵀ is x W xᵀ, with W = W_query W_keyᵀ of 32 times 32. With a head_size below half of n_embd, the two factors have fewer parameters (here, at half, as many). The rank of W, the number of directions in which it compares tokens, is then at most head_size.

# %%
W = head.query.weight.double().T @ head.key.weight.double()  # (32, 32)
scores = batch.double() @ W @ batch.double().transpose(-2, -1)
torch.testing.assert_close(scores.float(), q @ k.transpose(-2, -1))
assert torch.linalg.matrix_rank(W) == 16

# %% [markdown]
# Queries and keys must have the same head_size, because they meet in a dot product. Values are not compared with anything, and may have any number of channels, d_v. From here on we import the package's three definitions, which are these with a check of their input.

# %%
from attention_course.attention import Head, attention, attention_weights

Head(n_embd=32, head_size=16, d_v=5)(batch)[0].shape

# %% [markdown]
# ## A head that we write ourselves
#
# What can a head do? We set its matrices by hand. The sequence is a word, `potato`. A token has one channel for each letter and one for each position, with a 1 where it applies. Each of these two parts is **one-hot**: a single 1 among zeros. Here is the o at position 1.

# %%
text, letters = "potato", "pota"
letter = torch.tensor([[float(a == b) for b in letters] for a in text])
position = torch.eye(6)  # (6, 6)
x = torch.cat([letter, position], dim=-1)  # (6, 10): letters first
names = [f"{a}{t}" for t, a in enumerate(text)]  # p0, o1, t2, ...
x[1]

# %% [markdown]
# The first task: find the previous token. The query of position t asks for position t − 1, the key says "here is position s", and the value hands over the letter.

# %%
W_query, W_key = torch.zeros(10, 6), torch.zeros(10, 6)
for t in range(1, 6):
    W_query[4 + t, t - 1] = 20  # position t asks for t - 1
W_key[4:] = torch.eye(6)  # position s answers to s
W_value = torch.eye(10)[:, :4]  # pass on the four letter channels
q, k, v = x @ W_query, x @ W_key, x @ W_value
out, found = attention(q, k, v, causal_mask(6))

# %% tags=["folded"]
# Picture: tokens and weights of "previous token"
picture(
    Heatmap(
        "tokens",
        x,
        "token",
        "channel",
        names,
        list(letters + "012345"),
        limit=1,
    ),
    Heatmap("weights", found, "query t", "key s", names, names, limit=1),
    alt="Six tokens, each with a one for its letter and a one for its "
    "position. Except for position 0, which finds itself, the weights are "
    "right below the diagonal.",
)

# %% [markdown]
# The output, read as letters:

# %%
"".join(letters[i] for i in out.argmax(dim=-1))

# %% [markdown]
# Position 0 has nothing before it and finds itself. All others find the letter before them. These are nearly the weights of the shift in rung {tril_matmul}, now computed from queries and keys.
#
# The factor 20 makes them this sharp. With 1 in its place, the last row gives its target not {{found[5, 4]:.2f}} but {{attention(q / 20, k, v, causal_mask(6))[1][5, 4]:.2f}}.

# %%
_, faint = attention(q / 20, k, v, causal_mask(6))
print(f"{found[5, 4]:.2f}, {faint[5, 4]:.2f}")

# %% [markdown]
# The second task depends on the letters: find the last vowel.

# %% tags=["folded"]
# Question
ask("what_the_second_t_finds")

# %% [markdown]
# Two channels are enough. Every token asks the same: "a vowel, and as late as possible". Channel 0 of a key is 20 for a vowel and 0 for any other letter. Channel 1 is four times its position. A vowel wins against any later consonant: even 4 positions after the first vowel, a consonant gains only 4 · 4 = 16. The values stay. In the picture, the scores are those before the scale and the mask.

# %%
W_query, W_key = torch.zeros(10, 2), torch.zeros(10, 2)
W_query[4:] = 1  # every position asks for both channels
W_key[:4, 0] = torch.tensor([0.0, 20.0, 0.0, 20.0])  # p, o, t, a
W_key[4:, 1] = 4 * torch.arange(6)  # the later, the more
q, k = x @ W_query, x @ W_key
out, found = attention(q, k, v, causal_mask(6))
"".join(letters[i] for i in out.argmax(dim=-1))

# %% tags=["folded"]
# Picture: scores and weights of "last vowel"
picture(
    Heatmap("scores q @ k^T", q @ k.T, "query t", "key s", names, names),
    Heatmap("weights", found, "query t", "key s", names, names, limit=1),
    alt="All rows of scores are alike, high for the vowels and rising to "
    "the right. With the mask each position has its weight on the last "
    "vowel up to itself; position 0 finds itself.",
)

# %% [markdown]
# The p at position 0 has no vowel to find, but its weights still sum to 1: it finds itself. For the second t, the a has the highest visible score, {{(q @ k.T)[4, 3]:.0f}}.

# %% tags=["folded"]
# Check: what the first p and the second t find
assert found[0, 0] == 1
assert (q @ k.T)[4, 3] == (q @ k.T)[4, :5].max() == 32
assert found[4, 3] > 0.99

# %% [markdown]
# **Attention is a lookup.** A Python dictionary compares your query with its keys, finds the one that is equal, and gives you its value. Attention compares a query with all keys at once, and gives back a mix of all values, most of it from the keys that match best. In a mix, a small change of a query or a key changes the result a little, and smoothly: the lookup is **differentiable**. That is why a model can learn what to look up.
#
# ## Who talks to whom
#
# The attention weights also define a **directed graph**: the tokens are its nodes, and an arrow from s to t, as wide as weight [t, s], says how much t takes from s. Here are the six words again: `dessert` holds their tokens.

# %% tags=["folded"]
# Data: the head from above, without a mask and with it: no arrow back
torch.manual_seed(123)
dessert = embedding(ids).detach()
W_query, W_key = torch.rand(3, 2), torch.rand(3, 2)
W_value = torch.rand(3, 4)


def dessert_head(x, mask=None):
    return attention(x @ W_query, x @ W_key, x @ W_value, mask)


_, everywhere = dessert_head(dessert)
_, only_back = dessert_head(dessert, causal_mask(6))
assert not only_back.triu(diagonal=1).any()


# %% tags=["folded"]
# Picture: the weights as arrows between the words
def graph(axes, weights, names):
    for t, row in enumerate(weights.tolist()):
        box = {
            "boxstyle": "round,pad=0.55",
            "fc": "white",
            "linewidth": 6 * row[t],
        }
        axes.text(
            t, 0, names[t], ha="center", va="center", bbox=box, size=8
        )
        for s, weight in enumerate(row):
            colour, side = (BLUE, 0.3) if s < t else (SKY, -0.3)
            look = {"arrowstyle": "-|>", "connectionstyle": "arc3,rad=-0.5"}
            look |= {"color": colour, "linewidth": 12 * weight}
            if s != t and weight > 0:
                axes.annotate("", (t, side), (s, side), arrowprops=look)
    axes.set(xlim=(-0.5, 5.5), ylim=(-2, 2))
    axes.axis("off")


figure = Figure(figsize=(6.6, 2.6), layout="constrained")
for axes, weights in zip(figure.subplots(1, 2), (everywhere, only_back)):
    graph(axes, weights, words)
    axes.set_title("causal mask" if weights is only_back else "no mask")
Picture.of(
    figure,
    alt="Two graphs of six words with arrows as wide as the weights. "
    "Without a mask arrows run both ways; with it all run from an "
    "earlier word to a later one.",
)

# %% [markdown]
# The blue arrows above carry something from an earlier word to a later one, the pale ones below from a later word to an earlier one. The frame of a word is as thick as its weight on itself. The causal mask removes all arrows below.
#
# **The sequences of a batch never interact.** Change sequence 0, and the outputs of the other three stay as they are, to the last bit.

# %%
changed = batch.clone()
changed[0] += 1
moved = (head(changed)[0] != head(batch)[0]).any(dim=-1).any(dim=-1)
moved

# %% [markdown]
# ## In a different order

# %% tags=["folded"]
# Question
ask("tokens_in_another_order")

# %% [markdown]
# Here is the sentence turned around: "Eat dessert first, life is short". Each word has the same context vector as before, in its new place. "short" was at index 2 and is at index 5 now. The same happens in every other order of the six words.

# %%
turned = [3, 4, 5, 0, 1, 2]
output = dessert_head(dessert)[0]
for order in map(list, permutations(range(6))):
    reordered = dessert_head(dessert[order])[0]
    torch.testing.assert_close(reordered, output[order])
context, dessert_head(dessert[turned])[0][5]

# %% [markdown]
# So attention without a mask works on a *set* of vectors. Permute the inputs, and the outputs are permuted in the same way: it is **permutation-equivariant**. "dog bites man" and "man bites dog" are one set, as for the bag of words in rung {bag_of_words}.
#
# What does a causal mask change? A single head then knows which tokens came before, but still not in which order. Swap the first two words, and only their own two outputs change. Put a second head on top of the first, and all six change, because output 0 of the first head tells the second one which word came first.

# %%
swapped = [1, 0, 2, 3, 4, 5]
torch.manual_seed(0)
second = Head(n_embd=4, head_size=4)
one = [
    dessert_head(x, causal_mask(6))[0] for x in (dessert, dessert[swapped])
]
two = [second(x, causal_mask(6))[0] for x in one]
for before, after in (one, two):
    print(((after - before).abs() > 1e-4).any(dim=-1))

# %% [markdown]
# So a model with heads on top of heads can work out the order from the mask alone, and language models trained without positions come close to those with them (Haviv et al. 2022). Still, most models are told where each token is, and the simplest way is to put the position into the token. A vector that represents the position of a token is its **positional embedding**. GPT-2 *adds* it to the token's embedding, and so does our model in rung {bigram_to_gpt}. Now it matters which word is where.
#
# The potato had its position appended, as channels of its own. That is a special case of adding: give the letters zeros in the last channels and the positions zeros in the first. So a model that adds can keep the two apart if it has channels to spare, and let them share channels where that does no harm.

# %% tags=["folded"]
# Check: with positions added, the order matters; the potato's x is a sum
torch.manual_seed(0)
places = torch.randn(6, 3)
output = dessert_head(dessert + places)[0]
reordered = dessert_head(dessert[turned] + places)[0]
assert (reordered - output[turned]).abs().max() > 0.1

letters_only = torch.cat([letter, torch.zeros(6, 6)], dim=-1)
positions_only = torch.cat([torch.zeros(6, 4), position], dim=-1)
assert torch.equal(letters_only + positions_only, x)

# %% [markdown]
# The positional embeddings of "Attention Is All You Need" are not learned. They are **sinusoidal**: for each of many frequencies ω, position t has the two channels sin ωt and cos ωt. Because sin a sin b + cos a cos b = cos(a − b), the dot product of two positions depends only on their distance. With sines alone it does not.

# %%
angles = torch.arange(50)[:, None] * 10_000 ** (-torch.arange(8) / 8)
both = torch.cat([angles.sin(), angles.cos()], dim=-1)  # (50, 16)
for vectors in (both, angles.sin()):
    apart = (vectors @ vectors.T).diagonal(5)  # positions 0, 5; 1, 6; ...
    print(f"from {apart.min():.1f} to {apart.max():.1f}")

# %% [markdown]
# ## Prove

# %% tags=["folded"]
# Question
ask("queries_of_zeros")

# %% [markdown]
# With queries of zeros all scores are 0, and a head computes what rungs {bag_of_words} to {masked_softmax} do: the mean of the past, here of the values.

# %% tags=["proof"]
for T in (1, 2, 7, 32):
    tokens = torch.randn(3, T, 5)
    zeroed = Head(n_embd=5, head_size=4, d_v=6)
    nn.init.zeros_(zeroed.query.weight)
    out, _ = zeroed(tokens, causal_mask(T))
    v = zeroed.value(tokens)
    for mean in (causal_mean_softmax, causal_mean_matmul, causal_mean_loop):
        torch.testing.assert_close(out, mean(v))

# %% [markdown]
# With the causal mask, the weights of hidden keys are exactly 0, whatever the matrices are. So a head has no leak, and it gives what PyTorch's own function gives.

# %%
moved = leak_probe(lambda x: head(x, causal_mask(8))[0], batch)
assert torch.equal(moved, causal_mask(8))
q, k, v = head.query(batch), head.key(batch), head.value(batch)
theirs = F.scaled_dot_product_attention(q, k, v, attn_mask=causal_mask(8))
torch.testing.assert_close(head(batch, causal_mask(8))[0], theirs)

# %% [markdown]
# ## Explore
#
# **What does each channel of a query and a key do? How many can you take away before the head stops working?**
#
# One query of the potato passes through four stages, with one row for each key: the products in each channel; their sum, the score, before and after scale and mask; the weight; what the key adds to the output. "Last vowel" starts with 5 channels here, three of which are empty. Lower head_size, first for "last vowel", then for "previous letter" (the first task). Move the query. Switch the mask off.

# %% tags=["folded"]
# Explorer: one query, from products to output
explore("query_key_value")

# %% [markdown]
# In these two heads each channel asks one thing, although fewer channels could do the same. "Last vowel" asks two: with one channel left, all vowels tie. "Previous letter" has one channel for each position: take channel 3 away, and query 4 no longer finds position 3, and its weights are all equal. Without the mask, "last vowel" finds the o at the end of the word, in the future.
#
# ## Break it
#
# Here is a bug that is easy to write. The function runs, its shapes are right, and its weights sum to 1.

# %% tags=["folded"]
# Data: three tokens, and three matrices
torch.manual_seed(0)
x = torch.randn(3, 4)
W_query, W_key, W_value = (
    torch.randn(4, 4, requires_grad=True) for _ in range(3)
)


# %%
def almost_a_head(x, W_query, W_key, W_value):
    q, k, v = (x @ W for W in (W_query, W_key, W_value))
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    weights = torch.softmax(scores, dim=-1)
    return weights @ x


almost_a_head(x, W_query, W_key, W_value).shape

# %% tags=["folded"]
# Question
ask("find_the_head_bug")

# %% [markdown]
# The values are computed, and then the weights mix `x`. The shapes agree because d_v = C = 4.
#
# Two checks catch it. The first: try sizes that are all different. With d_v = 5 the output should have 5 channels.

# %%
almost_a_head(x, W_query, W_key, torch.randn(4, 5)).shape

# %% [markdown]
# The second: every matrix should get a **gradient**, the derivatives of one number with respect to the matrix's entries. Our number is the sum of all outputs. `backward()` goes through the steps of the forward pass in reverse, applies the chain rule at each, and writes the gradients into `.grad`: this is **backpropagation**. Training needs it for every step. Using a trained model, which is called **inference**, does not. PyTorch keeps gradients for tensors made with `requires_grad=True`, as all three are. Here W_value gets none, so training would never change it.

# %%
almost_a_head(x, W_query, W_key, W_value).sum().backward()
[W.grad is None for W in (W_query, W_key, W_value)]

# %% tags=["folded"]
# Check: with the values mixed, W_value gets a gradient
correct, _ = attention(x @ W_query, x @ W_key, x @ W_value)
correct.sum().backward()
assert W_value.grad is not None

# %% [markdown]
# ## Exercises
#
# ### 1. The weights
#
# <!--task attention_weights-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("attention_weights")


# %%
def my_attention_weights(q, k, mask):
    raise NotImplementedError


check("attention_weights", my_attention_weights)

# %% [markdown]
# ### 2. The head
#
# <!--task head_forward-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("head_forward")


# %%
def my_head_forward(x, W_query, W_key, W_value, mask):
    raise NotImplementedError


check("head_forward", my_head_forward)

# %% [markdown]
# ### 3. A head by hand
#
# <!--task previous_token-->
#
# This function computes the weights:

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("previous_token")


# %%
def position_weights(W_query, W_key):
    positions = torch.eye(len(W_query))
    return attention_weights(
        positions @ W_query, positions @ W_key, causal_mask(len(W_query))
    )


# %% [markdown]
# Put your lines in the place of `raise`, and keep the `return`.


# %%
def my_previous_token(T):
    raise NotImplementedError
    return position_weights(W_query, W_key)


check("previous_token", my_previous_token)

# %% [markdown]
# ## In the wild
#
# - "Attention Is All You Need" (Vaswani et al. 2017, section 3.2.1) writes it as softmax(QKᵀ/√d_k)V and calls it **scaled dot-product attention**.
# - nanoGPT writes `att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))`, with its three matrices side by side in one `nn.Linear`, `c_attn` (rung {multi_head}).
# - Bahdanau, Cho and Bengio (2014), who introduced attention in translation, computed scores by a small neural network.
# - Heads that find the previous token exist in trained models: see Olsson et al. (2022), "In-context Learning and Induction Heads".
#
# ## Three sentences to remember
#
# 1. A query says what a token looks for, a key what it can be found by, a value what it hands over.
# 2. The score of a key is its dot product with the query; a mask and a softmax turn scores into weights, and the output is the mean of the values with these weights.
# 3. The attention built here looks things up in a set: what order it knows comes from the mask and from the tokens. (Rung {a_real_model} puts the position into queries and keys.)
#
# Next: [rung {scaling_variance}, scaling]({scaling_variance}.ipynb), which explains the square root of head_size.
#
# <!--neighbours-->
