# %% [markdown]
# # Rung {query_key_value}: query, key, value
#
# <!--ladder-->
#
# **You will build** one head of attention, in which each token asks a question and finds the tokens that answer it.
#
# <!--staircase-->
#
# The weights of rung {masked_softmax} depend on distance alone, so they are the same in every story. To find out who got *this* drum, a token has to ask.

# %% tags=["hero", "folded"]
# The opening picture: guess first, then step through
from attention_course.heroes import hero

hero("query_key_value")

# %% [markdown]
# **You need** [rung {masked_softmax}]({masked_softmax}.ipynb).
#
# <!--time-->
#
# <!--test-out-->

# %% tags=["folded"]
# Two questions from the rungs below
from attention_course.questions import warm_up

warm_up("query_key_value")

# %% [markdown]
# ## Ask for a letter
#
# You are the “a” of `potato`. Each letter holds up a sign with two numbers, its key: 1 for a vowel or −1 for a consonant, and its position. Choose two numbers, a query, so that you find the t. A letter's score is your first number times its first, plus your second times its second.

# %% tags=["folded"]
# Fill in: what does the a ask?
from attention_course.fills import fill

fill("a_query_for_t")

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
# (In rung {masked_softmax} queries and keys were positions. From here on they also mean these numbers.) The −4 makes consonants attractive, and the 2 favours late positions. (The opening picture has 0.93<!--given--> for the t, because it also divides the scores by √2.)
#
# Now change the query so that you find the o. Which of the two numbers has to change its sign? Or do both?

# %%
# p, o, t, a: 1 for a vowel or -1 for a consonant, and the position
keys = torch.tensor([[-1.0, 0.0], [1.0, 1.0], [-1.0, 2.0], [1.0, 3.0]])

# %% tags=["do", "name:a_query_for_t"]
query = torch.tensor([-4.0, 2.0])
scores = keys @ query  # (4, 2) @ (2,) is (4,)
weights = torch.softmax(scores, dim=-1)
weights

# %% [markdown]
# ## A token picks a row
#
# Where do queries and keys come from? Each is a token times a matrix, which you can write by hand once you know a trick.
#
# Give each token of `potato` one channel per letter and one per position, with a 1 for its own two and 0 everywhere else. Such a row of numbers is a vector, and one with a single 1 is **one-hot**. Here is the o at position 1, its letter and its position side by side.

# %%
text, letters = "potato", "pota"
letter = torch.tensor([[float(a == b) for b in letters] for a in text])
position = torch.eye(6)  # ones on the diagonal: row t is one-hot
x = torch.cat([letter, position], dim=-1)  # (6, 10): letters first
names = [f"{a}{t}" for t, a in enumerate(text)]  # p0, o1, t2, ...
x[1]

# %% tags=["folded"]
# Question
ask("one_hot_times_a_matrix")

# %% [markdown]
# A 0 drops its row of the matrix and a 1 keeps it, so this o gets the row of its letter plus the row of its position.

# %%
W = torch.arange(20.0).view(10, 2)  # a row for each of the 10 channels
x[1] @ W, W[1] + W[4 + 1]

# %% [markdown]
# So a matrix is a table with one row per letter and one per position, and you decide what's in them. (A table that turns letters or words into vectors in this way is called an **embedding**.)
#
# ## The previous letter
#
# Suppose each letter wants to know the one before it. Then queries and keys get six channels, one per position. A key has a 1 in the channel of its own position, and a query a 20 in the channel of the position it asks for, which is t − 1. What a position hands over, its **value**, is its letter. A matrix for the queries, one for the keys and one for the values make a **head**.

# %% tags=["do"]
W_query, W_key = torch.zeros(10, 6), torch.zeros(10, 6)
for t in range(1, 6):
    W_query[4 + t, t - 1] = 20  # row 4 + t: t asks for t - 1. Try 1
W_key[4:] = torch.eye(6)  # row 4 + s: s answers to s
W_value = torch.eye(10)[:, :4]  # hand over the four letter channels
mask = causal_mask(6)

# %% [markdown]
# So far you were the only one asking. Now all six ask at once, under the mask from rung {masked_softmax}. A matrix product takes a row times a column, so to compare every query with every key, we turn the keys into columns. `k.transpose(-2, -1)` does that by swapping the last two dimensions. For a plain matrix it's the same as `k.T`.

# %% tags=["folded"]
# Fill in: all queries at once
fill("all_queries_at_once")

# %% tags=["folded", "name:all_queries_at_once"]
# All queries, keys and values
q, k, v = x @ W_query, x @ W_key, x @ W_value
scores = q @ k.transpose(-2, -1)  # (6, 6) @ (6, 6), a row for each query
scores = scores.masked_fill(~mask, float("-inf"))
weights = torch.softmax(scores, dim=-1)
output = weights @ v  # (6, 6) @ (6, 4) is (6, 4)

# %% tags=["folded"]
# Picture: tokens and weights of "previous letter"
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
    Heatmap("weights", weights, "query t", "key s", names, names, limit=1),
    alt="Six tokens, each with a one for its letter and a one for its "
    "position. Except for position 0, which finds itself, the weights are "
    "right below the diagonal.",
)

# %%
previous = output
# argmax: where in each row the largest number is
"".join(letters[i] for i in previous.argmax(dim=-1))

# %% [markdown]
# Every position but 0, which can only find itself, has found the letter before it. You've turned questions and answers into the shift from rung {tril_matmul}.
#
# ### More: why 20?
#
# Set it to 1, and run the cells from there. The last o now gives the t before it {{torch.softmax(scores[5] / 20, dim=-1)[4]:.2f}} of its weight and no more, because five other keys have a score of 0, and exp(0) is 1.
#
# ## The last vowel
#
# Rung {masked_softmax} could have found the previous letter too, because that takes only positions. Now let's build a head that reads the letters.

# %% tags=["folded"]
# Question
ask("what_the_second_t_finds")

# %% [markdown]
# Two channels are enough, and every token asks for both. Channel 0 of a key is 20 for a vowel and 0 for a consonant; channel 1 is four times the position. In `potato` a consonant gains at most 4 · 3 = 12 on a vowel before it, so the latest vowel wins.

# %%
W_query, W_key = torch.zeros(10, 2), torch.zeros(10, 2)
W_query[4:] = 1  # every position asks for both channels
W_key[:4, 0] = torch.tensor([0.0, 20.0, 0.0, 20.0])  # p, o, t, a
W_key[4:, 1] = 4 * torch.arange(6)  # the later, the more

q, k = x @ W_query, x @ W_key
scores = q @ k.transpose(-2, -1)
visible = scores.masked_fill(~mask, float("-inf"))
weights = torch.softmax(visible, dim=-1)
output = weights @ v
"".join(letters[i] for i in output.argmax(dim=-1))

# %% tags=["folded"]
# Picture: scores and weights of "last vowel"
picture(
    Heatmap("scores q @ k^T", scores, "query t", "key s", names, names),
    Heatmap("weights", weights, "query t", "key s", names, names, limit=1),
    alt="All rows of scores are alike, high for the vowels and rising to "
    "the right. With the mask each position has its weight on the last "
    "vowel up to itself; position 0 finds itself.",
)

# %% [markdown]
# The p sees no vowel, but its weights still sum to 1, so it finds itself.
#
# Now change `text` to `topata`, run the cells from there, and change it back. You didn't touch a matrix, and yet each position found the last vowel in *that* word. Weights that depend only on distance can't do this, because they never look at the letters.
#
# **Attention is a lookup.** A Python dictionary compares your query with its keys, finds the one that is equal, and returns its value. Attention compares it with all keys at once and returns a mix of all values, most of it from the best matches. That makes it learnable, because a slightly better query gives a slightly better answer.
#
# ## Why multiply and add up?
#
# A score should say how well a query and a key match. Think of each as an arrow. When two arrows point the same way, the score should be high; when they are at right angles, as (1, 2) and (2, −1) are, it should be 0; and when they point in opposite directions, it should be negative. The **dot product** behaves like that, and it's cheap: multiply channel by channel and sum the products. Your scores were dot products all along.
#
# Could we leave out the matrices, then, and compare the tokens themselves? Here are four.

# %%
x = torch.tensor([[2.0, 1.0], [1.0, 2.0], [-1.0, 1.0], [0.0, -2.0]])
(x[0] * x[1]).sum()  # 2 * 1 + 1 * 2

# %% tags=["folded"]
# Question
ask("largest_score_of_a_row")

# %% tags=["folded"]
# Fill in: a score for every pair
fill("scores_of_all_pairs")

# %% tags=["folded", "name:scores_of_all_pairs"]
# The scores of all pairs
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
# Each token mostly finds itself, which tells it nothing new. Now compare the scores on the two sides of the diagonal.

# %% tags=["folded"]
# Question
ask("verb_and_subject")

# %% [markdown]
# ### More: scores from a small neural network
#
# The attention that changed translation didn't use dot products. Bahdanau, Cho and Bengio (2014) gave each pair of a query and a key to a small neural network with one row of numbers u at its end: score = u · tanh(q + k). This is called **additive attention**, because q and k are added. It needs a whole vector for every *pair* of tokens, here 16 numbers long, before u turns it into a score.

# %%
torch.manual_seed(0)
q, k, u = torch.randn(6, 16), torch.randn(6, 16), torch.randn(16)
pairs = torch.tanh(q[:, None] + k[None, :])  # (6, 1, 16) + (1, 6, 16)
pairs.shape, (pairs @ u).shape, (q @ k.T).shape

# %% [markdown]
# The dot product never has to store all those vectors. "Attention Is All You Need" (Vaswani et al. 2017, section 3.2.1) calls the two similar in theoretical complexity, and the dot product much faster and smaller in memory in practice, because it is one matrix product and every chip is good at those. What about quality? With few channels the two are similar. With many, the dot product falls behind unless its scores are scaled, which is the subject of rung {scaling_variance}.

# %% [markdown]
# ## Three jobs of one token
#
# A dot product doesn't care which of two tokens is asking, but a lookup does. "Poor" has to find out who got the drum, and Sam, who got it, has no use for "Poor". So a token gets three vectors.
#
# - Its *query* says what it looks for.
# - Its *key* says what it can be found under.
# - Its *value* is what it hands over to those who find it.
#
# Each of the three is a **projection** of the token, its product with a matrix. The entries of these matrices, its **parameters**, are all that a head learns. Why hand over a value, and not the token itself? Because a token carries everything that any part of the model needs, and W_value picks out what this head should pass on.
#
# ## Build: the head
#
# The lines that you filled in become two functions, with one new factor, `scale`. It is 1 over the square root of the **head_size**, the number of channels of a query and of a key. A sum of many products gets large, and large scores make softmax give everything to one key, so the head learns badly (rung {scaling_variance}).


# %%
def attention_weights(q, k, mask=None, scale=None):
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = q @ k.transpose(-2, -1) * scale  # (..., T_q, T_k)
    if mask is None:
        return torch.softmax(scores, dim=-1)
    scores = scores.masked_fill(~mask, float("-inf"))
    return torch.softmax(scores, dim=-1).masked_fill(~mask, 0.0)


def attention(q, k, v, mask=None, scale=None):
    weights = attention_weights(q, k, mask, scale)
    return weights @ v, weights


# %% [markdown]
# The last `masked_fill` gives zeros to a query that isn't allowed to look anywhere, whose softmax would be NaN.
#
# The three matrices go into a class. `nn.Linear(n_embd, head_size, bias=False)` is a **linear layer** (n_embd is the number of channels of a token, so far C). It holds a matrix, random at first, and calling it on x multiplies x by that matrix. Calling `head(x)` runs its `forward`, a forward pass.


# %%
class Head(nn.Module):
    def __init__(self, n_embd, head_size, d_v=None):
        super().__init__()
        self.query = nn.Linear(n_embd, head_size, bias=False)
        self.key = nn.Linear(n_embd, head_size, bias=False)
        self.value = nn.Linear(n_embd, d_v or head_size, bias=False)

    def forward(self, x, mask=None):
        return attention(self.query(x), self.key(x), self.value(x), mask)


torch.manual_seed(1)
batch = torch.randn(4, 8, 32)  # (B, T, C)
head = Head(n_embd=32, head_size=16)
out, weights = head(batch, causal_mask(8))

# %% tags=["folded"]
# Question
ask("shape_of_the_weights")

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
# Each sequence gets its own weights now, and yet the head has only {{sum(p.numel() for p in head.parameters())}} parameters. A head doesn't learn weights, it learns how to *make* them. The price is a score for each of T² pairs, which is why long texts are expensive.
#
# Nobody writes a model's matrices by hand, as you did. At first they're random, and what the head finds means nothing until it is trained (rung {scaling_variance}).
#
# Queries and keys need the same head_size, because they meet in a dot product. Values may have any number of channels, d_v.

# %%
# From here on the package's versions: these, with a check of their input
from attention_course.attention import Head, attention, attention_weights

Head(n_embd=32, head_size=16, d_v=5)(batch)[0].shape

# %% [markdown]
# ### More: two pairs of matrices, where to look and what to move
#
# W_query and W_key never act alone. The scores are q kᵀ = x W_query W_keyᵀ xᵀ, so one matrix *between* the tokens, W = W_query W_keyᵀ of 32 times 32, would do. A formula of this kind, a token times a matrix times a token, is called **bilinear**. Why two thin matrices, then? They have fewer parameters if head_size is below half of n_embd, and they force the head to be choosy. With head_size 16, the head compares tokens along 16 directions only, and ignores whatever differs between them in the other 16. The number of such directions is the **rank** of W.
#
# (If both were the *same* matrix, W would be symmetric, and so would the scores, as before. `double()` computes with twice the digits, since counting directions means telling small numbers from 0.)

# %%
W = head.query.weight.double().T @ head.key.weight.double()  # (32, 32)
q, k = head.query(batch), head.key(batch)
scores = batch.double() @ W @ batch.double().transpose(-2, -1)
torch.testing.assert_close(scores.float(), q @ k.transpose(-2, -1))
torch.linalg.matrix_rank(W)

# %% [markdown]
# W_value has a partner, too. The output is weights @ x @ W_value, and what a model does with it next is multiply by one more matrix, W_output (rung {multi_head}). So W_value W_output acts as one matrix as well. Elhage et al. (2021), "A Mathematical Framework for Transformer Circuits", read a head as these two: the query-key matrix says where to look, and the value-output matrix what to move.

# %%
W_output = torch.randn(16, 32)
moved = head(batch)[0] @ W_output
once = head(batch)[1] @ batch @ (head.value.weight.T @ W_output)
torch.testing.assert_close(moved, once, atol=1e-4, rtol=1e-4)

# %% [markdown]
# ### More: what nn.Module and nn.Linear store, and why no bias
#
# `nn.Module` keeps a list of the linear layers that you assign to `self`, so that training can find their parameters. `super().__init__()` starts that list, which is why it comes first.
#
# `nn.Linear` stores its matrix as (out, in), here (16, 32), and multiplies by its transpose. The matrix is called `weight`, and many people call all parameters weights. Here a weight is always what a key gets from a query. (People speak of attention scores and attention weights, and call the table of all weights the attention matrix.) With `bias=False` it adds no constant. A constant b added to all *keys* would change nothing, because it adds the same q · b to every score of a row, and softmax ignores that (rung {masked_softmax}). Added to the queries it would matter, since b · k is different for each key, but many models leave it out there as well.

# %%
torch.testing.assert_close(q, batch @ head.query.weight.T)
biased = attention_weights(q, k + torch.randn(16))
torch.testing.assert_close(biased, attention_weights(q, k))

# %% [markdown]
# ### More: a head with random matrices, number by number
#
# Sebastian Raschka (2024) follows such a head from the first number to the last in [Understanding and Coding Self-Attention, Multi-Head Attention, Cross-Attention, and Causal-Attention in LLMs](https://magazine.sebastianraschka.com/p/understanding-and-coding-self-attention), and we use his numbers. His sentence is "Life is short, eat dessert first", and each word gets a number, its id, which is its place in the sorted list.

# %% tags=["name:raschka"]
words = ["Life", "is", "short", "eat", "dessert", "first"]
ids = torch.tensor([sorted(words).index(word) for word in words])
torch.manual_seed(123)
x = nn.Embedding(50_000, 3)(ids).detach()  # (6, 3); no training here
torch.manual_seed(123)
W_query, W_key, W_value = (torch.rand(3, size) for size in (2, 2, 4))

# %% tags=["folded"]
# Question
ask("shape_of_the_output")

# %% tags=["name:raschka"]
output, weights = attention(x @ W_query, x @ W_key, x @ W_value)
output

# %% [markdown]
# These are the six rows that he prints. "short" gives the largest weight to itself and the smallest to "is", and with random matrices that means nothing.
#
# ### More: one of his queries by hand
#
# Queries and keys have 2 channels, so head_size, also written d_k, is 2. Values have 4, so d_v is 4. Such sizes are chosen before training and not changed by it, and they are called **hyperparameters**. "short", at index 2, asks all six words.

# %%
query = x[2] @ W_query  # (2,)
keys = x @ W_key  # (6, 2)
scores = keys @ query  # (6, 2) @ (2,) is (6,)
weights = torch.softmax(scores / 2**0.5, dim=-1)
scores

# %% tags=["folded"]
# Picture: scores and weights of "short"
picture(
    Bars("scores of query 2", scores, words, "key", (-1.5, 1)),
    Bars("weights of query 2", weights, words, "key", (0, 0.4)),
    alt="Bars of six scores and six weights. 'short', the token itself, "
    "has the highest of both, and 'is' the lowest.",
)

# %% [markdown]
# What "short" gets is the weighted mean of the *values*. It is also called its **context vector**.

# %% tags=["folded"]
# Fill in: what the query gets
fill("mean_of_the_values")

# %% tags=["folded", "name:mean_of_the_values"]
# The mean of the values
values = x @ W_value  # (6, 4)
context = weights @ values  # (6,) @ (6, 4) is (4,)
context

# %% [markdown]
# With all six queries at once, the scores are no longer symmetric. The score that "is" gives "first" differs from the one that "first" gives "is".

# %%
all_scores = x @ W_query @ keys.T
all_scores[1, 5], all_scores[5, 1]

# %% [markdown]
# ### More: the weights as arrows
#
# The weights also define a **directed graph**. The tokens are its nodes, and an arrow from s to t, as wide as weight [t, s], says how much t takes from s.

# %% tags=["folded"]
# Picture: the weights as arrows between the words
q, k = x @ W_query, x @ W_key
everywhere = attention_weights(q, k)
only_back = attention_weights(q, k, causal_mask(6))


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
# Each sequence of a batch is a graph of its own, and no arrow leads from one to another. Change sequence 0, and the outputs of the other three stay as they are, to the last bit.

# %%
changed = batch.clone()
changed[0] += 1
(head(changed)[0] != head(batch)[0]).any(dim=-1).any(dim=-1)

# %% [markdown]
# ## Where is each token?
#
# The tokens of `potato` knew their position, because we gave them channels for it. What if we hadn't?

# %% tags=["folded"]
# Question
ask("tokens_in_another_order")

# %%
order = torch.randperm(8)
shuffled, _ = head(batch[:, order])
torch.testing.assert_close(shuffled, head(batch)[0][:, order])

# %% [markdown]
# Each word of "dog bites man" gets the same output in "man bites dog". A causal mask gives a little of the order away, and yet on our stories such a head ends at a loss of 1.29<!--given-->, hardly better than the table of letter pairs.
#
# So you have to tell each token where it is. Give every position a vector of its own, its **positional embedding**, and add it to the token's vector, as GPT-2 does. With that, the loss falls to 0.38<!--given-->.

# %%
torch.manual_seed(0)
letter_table = nn.Embedding(4, 8)  # 4 rows of 8 numbers, random at first
position_table = nn.Embedding(6, 8)
ids = torch.tensor([letters.index(a) for a in text])  # p 0, o 1, t 2, a 3
only_letters = letter_table(ids)  # looks up six rows: (6, 8)
x = only_letters + position_table(torch.arange(6))  # (6, 8)
torch.equal(only_letters[2], only_letters[4]), torch.equal(x[2], x[4])

# %% [markdown]
# The two t's had the same vector, and now they differ.
#
# ### More: doesn't adding muddle letter and position?
#
# It doesn't have to, because the channels that we set side by side are also a sum, of letters with zeros at the end and positions with zeros at the start. A model with channels to spare can keep the two apart.
#
# ### More: how much order does a mask give away?
#
# Without a mask, reordering the tokens reorders the outputs in the same way and changes nothing else. A function of this kind is **permutation-equivariant**. Here is every order of six tokens.

# %%
six = batch[0, :6]
for new in map(list, permutations(range(6))):
    torch.testing.assert_close(head(six[new])[0], head(six)[0][new])

# %% [markdown]
# Under a causal mask, a head knows which tokens came before, but not in which order. Swap the first two, and only their own two outputs change. Put a second head on top of the first, and all six change, because output 0 of the first head tells the second one which token came first.

# %%
swapped = six[[1, 0, 2, 3, 4, 5]]
second = Head(n_embd=16, head_size=16)
one = [head(x, causal_mask(6))[0] for x in (six, swapped)]
two = [second(x, causal_mask(6))[0] for x in one]
for before, after in (one, two):
    print(((after - before).abs() > 1e-4).any(dim=-1))

# %% [markdown]
# So a model with heads on top of heads can work out the order from the mask alone, and language models trained without positions come close to those with them (Haviv et al. 2022). Most models are given positions anyway, because being told is easier than working it out.
#
# ### More: positions from sines, and why 10,000
#
# "Attention Is All You Need" doesn't learn its positional embeddings. They are **sinusoidal**: for each of many frequencies ω, position t has the two channels sin ωt and cos ωt. Because sin a sin b + cos a cos b = cos(a − b), the dot product of two positions depends only on their distance. With sines alone it would not.

# %%
angles = torch.arange(50)[:, None] * 10_000 ** (-torch.arange(8) / 8)
both = torch.cat([angles.sin(), angles.cos()], dim=-1)  # (50, 16)
for vectors in (both, angles.sin()):
    apart = (vectors @ vectors.T).diagonal(5)  # positions 0, 5; 1, 6; ...
    print(f"from {apart.min():.1f} to {apart.max():.1f}")

# %% [markdown]
# Why many frequencies? Think of the hands of a clock. The fast one tells neighbours apart but soon comes round again, and the slow one says whether it is morning or evening. The waves get longer and longer, from 2π tokens up to nearly 10,000 · 2π. Why 10,000? The paper doesn't say. Our guess is that the slowest wave should be longer than any text, so that no two positions look alike, and that 10,000 was a round number, more than large enough for the sentences of its day. The paper tried learned positions as well and found "nearly identical results", and models for longer texts choose a larger constant (rung {a_real_model}).

# %% [markdown]
# ## What a head finds is added
#
# Your first head found an o for the t at position 2. What should happen to the t now?

# %% tags=["folded"]
# Question
ask("replaced_by_the_output")

# %% [markdown]
# So a model doesn't replace the token but *adds* the output to it, like a note in the margin. (The model on this step still replaces it.) To be added, the output needs as many channels as the token, so a model multiplies it by one more matrix first (rung {multi_head}). Here the tokens of `potato` get four free channels, and the update has zeros in all others.

# %%
tokens = torch.cat([letter, position, torch.zeros(6, 4)], dim=-1)
update = torch.cat([torch.zeros(6, 10), previous], dim=-1)  # (6, 14)
tokens = tokens + update

# %% tags=["folded"]
# Picture: the tokens after the update
picture(
    Heatmap(
        "token + update",
        tokens,
        "token",
        "channel",
        names,
        [*letters, *"012345", *(f"←{a}" for a in letters)],
        limit=1,
    ),
    alt="Six tokens of 14 channels. Each still has a one for its letter "
    "and a one for its position, and now also a one, in the last four "
    "channels, for the letter before it.",
)

# %% [markdown]
# Row t2 now says, "I am a t, I am at position 2, and an o came before me." The next head can ask for any of that.
#
# ## Who got the drum?
#
# Back to the stories that defeated rung {masked_softmax}, in words again. There you told “Poor” to look nine words back, and in the next story it found “at”. What should “Poor” ask, now that it can?

# %% tags=["folded"]
# Question
ask("what_poor_should_ask")

# %% [markdown]
# There's no distance in this question, and no name. (One head could ask for the last name, but only because our stories name the receiver last.) One head can't answer it, because Sam's key is made from Sam's token, and that says only “Sam, at position 4”. Nobody has told Sam that “poor” came before him.
#
# You have a head that could. Let it go first, and write the previous word beside each word. Then a second head asks, with the word itself as query and that note as key.


# %%
def who_got_it(story):
    words = story.lower().split()  # "Poor" and "poor" are the same
    names = sorted(set(words))
    word = torch.tensor([[float(a == b) for b in names] for a in words])
    position, mask = torch.eye(len(words)), causal_mask(len(words))

    # The first head: t asks for t - 1. (roll moves each row down by one,
    # the last to the top, where the mask leaves word 0 only itself.)
    asks = 20 * position.roll(1, dims=0)
    # queries, keys and values without matrices; scale=1 changes no score
    before, _ = attention(asks, position, word, mask, scale=1)

    # The second: a word asks for itself, and finds what came after it
    _, weights = attention(20 * word, before, word, mask, scale=1)
    last, shown = weights[-1], story.split()
    bars = Bars("weights of the last query", last, shown, "key", (0, 1))
    return picture(bars, alt=f"Most weight: {shown[last.argmax()]}.")


who_got_it("Kind Ben gave poor Sam a drum at the farm. Who got it? Poor")

# %% [markdown]
# It finds Sam. Will it find Joe, who is farther back? Guess before you run the cell, and then write a story of your own. (With two names after “poor”, the two share the weight.)

# %% tags=["do"]
other = (
    "Kind Eve gave poor Joe a map at the cave. "
    "What? A map. Who got it? Poor"
)
who_got_it(other)

# %% [markdown]
# There he is, and nothing in the second head said where to look. “Poor” asked all the words at once, and the one that could answer got all the weight. This is what we have been climbing towards since rung {bag_of_words}.
#
# It took two heads because Sam can't be found under “poor” until somebody has told Sam that “poor” came before. In rung {bigram_to_gpt} a model learns this by itself.

# %% [markdown]
# ## Prove

# %% tags=["folded"]
# Question
ask("queries_of_zeros")

# %% [markdown]
# A head with queries of zeros is the mean from rungs {bag_of_words} to {masked_softmax}. And with positions as tokens, it can produce any table of scores that rung {masked_softmax} could use, because you can write the table into W_query.

# %% tags=["proof"]
for T in (1, 2, 7, 32):
    tokens = torch.randn(3, T, 5)
    zeroed = Head(n_embd=5, head_size=4, d_v=6)
    nn.init.zeros_(zeroed.query.weight)
    out, _ = zeroed(tokens, causal_mask(T))
    v = zeroed.value(tokens)
    for mean in (causal_mean_softmax, causal_mean_matmul, causal_mean_loop):
        torch.testing.assert_close(out, mean(v))

    table, mask = torch.randn(T, T), causal_mask(T)
    positions = torch.eye(T)  # one-hot tokens, and W_key is the identity
    asked = attention_weights(positions @ table, positions, mask, scale=1)
    scores = table.masked_fill(~mask, float("-inf"))
    torch.testing.assert_close(asked, torch.softmax(scores, dim=-1))

# %% [markdown]
# The head also agrees with PyTorch's own function, and it has no leak.

# %%
q, k, v = head.query(batch), head.key(batch), head.value(batch)
theirs = F.scaled_dot_product_attention(q, k, v, attn_mask=causal_mask(8))
torch.testing.assert_close(head(batch, causal_mask(8))[0], theirs)
moved = leak_probe(lambda x: head(x, causal_mask(8))[0], batch)
assert torch.equal(moved, causal_mask(8))

# %% [markdown]
# ## Explore
#
# **What does each channel of a query and a key do? How many can you take away before the head stops working?**
#
# Here one query of `potato` passes through all stages, its scores divided by √5 at first. Lower head_size, first for "last vowel", then for "previous letter". Then move the query, and switch the mask off.

# %% tags=["folded"]
# Explorer: one query, from products to output
explore("query_key_value")

# %% [markdown]
# "Last vowel" needs two channels, and with one left all vowels tie. "Previous letter" has a channel for each position. Without the mask, "last vowel" finds the o at the end of the word.
#
# ## Break it
#
# This bug is easy to miss, because the function runs, its shapes are right, and its weights sum to 1.


# %%
def almost_a_head(x, W_query, W_key, W_value):
    q, k, v = (x @ W for W in (W_query, W_key, W_value))
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    weights = torch.softmax(scores, dim=-1)
    return weights @ x


torch.manual_seed(0)
x, W_query, W_key, W_value = torch.randn(4, 4, 4)
almost_a_head(x, W_query, W_key, W_value).shape

# %% tags=["folded"]
# Question
ask("find_the_head_bug")

# %% [markdown]
# The shapes agree only because d_v and C are both 4. So test a head with sizes that are all different.

# %%
bad = almost_a_head(x, W_query, W_key, torch.randn(4, 5))
good, _ = attention(x @ W_query, x @ W_key, x @ torch.randn(4, 5))
assert bad.shape != good.shape
bad.shape, good.shape

# %% [markdown]
# ### More: which matrices would learn?
#
# A second check needs derivatives. Every matrix should get a **gradient**: the derivatives of one number, here the sum of all outputs, with respect to its entries. `backward()` goes through the steps of the forward pass in reverse and applies the chain rule at each, which is called **backpropagation**, and it writes the gradients into `.grad`. Training needs that at every step. Using a trained model, called **inference**, doesn't. PyTorch keeps gradients for tensors with `requires_grad`.

# %%
matrices = [W.requires_grad_() for W in (W_query, W_key, W_value)]
almost_a_head(x, *matrices).sum().backward()
print("almost:", [W.grad is not None for W in matrices])
attention(*(x @ W for W in matrices))[0].sum().backward()
print("right: ", [W.grad is not None for W in matrices])

# %% [markdown]
# In the broken function W_value gets no gradient, so training would never change it. Note the other two: gradients do reach W_query and W_key, through the weights, because softmax and dot products have derivatives everywhere. The lookup is **differentiable**, and that is why a model can learn what to look up.
#
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
# This function computes the weights from your two matrices.

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
# Write your lines where `raise` is, and keep the `return`.


# %%
def my_previous_token(T):
    raise NotImplementedError
    return position_weights(W_query, W_key)


check("previous_token", my_previous_token)

# %% [markdown]
# ## More: in the wild
#
# - "Attention Is All You Need" (Vaswani et al. 2017, section 3.2.1) writes a head as softmax(QKᵀ/√d_k)V and calls it scaled dot-product attention.
# - nanoGPT writes `att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))`, with its three matrices side by side in one `nn.Linear`, `c_attn` (rung {multi_head}).
# - Trained models have heads that find the previous token, as yours did (Olsson et al. 2022, "In-context Learning and Induction Heads").
#
# ## More: the model on this step, in code
#
# This is all of the model whose loss is 0.38<!--given-->. After the head comes one more matrix, and then each letter gets a score, the dot product with its own vector. Softmax turns the scores into probabilities.


# %%
class OneHead(nn.Module):
    def __init__(self, V, block_size, C):
        super().__init__()
        self.letter = nn.Embedding(V, C)
        self.position = nn.Embedding(block_size, C)
        self.head = Head(C, C)
        self.out = nn.Linear(C, C, bias=False)

    def forward(self, ids):  # (B, T)
        T = ids.shape[-1]
        x = self.letter(ids) + self.position(torch.arange(T))  # (B, T, C)
        x = self.out(self.head(x, causal_mask(T))[0])
        return x @ self.letter.weight.T  # (B, T, V)


torch.manual_seed(0)
OneHead(V=33, block_size=128, C=64)(torch.randint(33, (2, 16))).shape

# %% [markdown]
# ## More: the rest of the transformer, in plain words
#
# You have the heart of it. Here is what grows around it, from the bottom of the drawing below to its top. Each token starts as C numbers of its own, plus those of its position. These numbers travel upwards through several stages, and each stage adds to them twice. First, several heads add what the token found in the tokens before it. Then a small network, which sees only this one token, adds what it makes of the news. Before both, the numbers are brought back to a moderate size. At the top, every possible next token gets a score, and softmax turns these scores into probabilities. That is all of GPT.
#
# The transformer of 2017<!--given--> translated, so it had two such towers. One read the German sentence and needed no mask. The other wrote the English one, with the mask, and its heads could also take keys and values from the first (rung {cross_and_causal}).
#
# ## Where we are
#
# ![The transformer as a drawing. Highlighted: what this rung builds (query, key, value and their dot product).](images/transformer_query_key_value.svg)
#
# <!--step-->
#
# The loss has fallen, because a trained head with positions spells better. But nearly every answer is still wrong, and nobody has written “poor” next to Sam. That takes heads on top of heads, which have to be trained, and a head with many channels trains badly unless its scores are scaled. Rung {scaling_variance} finds out why.
#
# ## Three sentences to remember
#
# 1. A query says what a token looks for, a key what it can be found under, a value what it hands over.
# 2. The score of a key is its dot product with the query; softmax turns scores into weights, and the head's output, an update for the token, is the mean of the values with these weights.
# 3. A head compares tokens and not places, so a token has to be told where it is.
#
# Next: [rung {scaling_variance}, scaling]({scaling_variance}.ipynb).
#
# <!--neighbours-->
