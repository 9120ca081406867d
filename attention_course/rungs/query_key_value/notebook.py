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
# ## Ask for a letter
#
# You are the “a” of `potato`. Each letter holds up a sign with two numbers, its key: 1 for a vowel or −1 for a consonant, and its position. Choose two numbers of your own, a query, so that you find the t.

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
# Your score for a letter is your first number times the first on its sign, plus your second times the second. The −4 makes consonants attractive, because (−4) · (−1) is positive, and the 2 favours late positions.
#
# Now change the query below so that you find the o. Which of the two numbers has to change its sign, or do both?

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
# Give each token of `potato` one channel per letter and one per position, with a 1 for its own letter and its own position and 0 everywhere else. A vector with a single 1 is called **one-hot**, and you can see two of them, side by side, in the o at position 1.

# %%
text, letters = "potato", "pota"
letter = torch.tensor([[float(a == b) for b in letters] for a in text])
position = torch.eye(6)  # (6, 6)
x = torch.cat([letter, position], dim=-1)  # (6, 10): letters first
names = [f"{a}{t}" for t, a in enumerate(text)]  # p0, o1, t2, ...
x[1]

# %% tags=["folded"]
# Question
ask("one_hot_times_a_matrix")

# %% [markdown]
# A 0 drops its row of the matrix and a 1 keeps it, so this o picks the row of its letter and the row of its position, and gets their sum.

# %%
W = torch.arange(20.0).view(10, 2)  # a row for each of the 10 channels
x[1] @ W, W[1] + W[4 + 1]

# %% [markdown]
# So a matrix is a table with one row per letter and one per position, and you decide what the rows say. (A table that turns letters or words into vectors in this way is called an **embedding**.)
#
# ## The previous letter
#
# Suppose each letter wants to know the one before it. Then position t has to ask for position t − 1, and position s has to answer to its own number. What it hands over, its **value**, is its letter. Each of the three needs a matrix, and three such matrices make a **head**.

# %% tags=["do"]
W_query, W_key = torch.zeros(10, 6), torch.zeros(10, 6)
for t in range(1, 6):
    W_query[4 + t, t - 1] = 20  # row 4 + t: t asks for t - 1
W_key[4:] = torch.eye(6)  # row 4 + s: s answers to s
W_value = torch.eye(10)[:, :4]  # hand over the four letter channels
mask = causal_mask(6)

# %% [markdown]
# You asked alone before. Now all six ask at once, under the mask of rung {masked_softmax}.

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
"".join(letters[i] for i in previous.argmax(dim=-1))

# %% [markdown]
# Every position but 0, which has only itself to find, has found the letter before it. You have made the shift of rung {tril_matmul} out of questions and answers.
#
# Why the 20? Set it to 1, and run the cells from there. The last o then gives the t before it only {{torch.softmax(scores[5] / 20, dim=-1)[4]:.2f}} of its weight, because five other keys have a score of 0, and exp(0) is 1.
#
# ## The last vowel
#
# So far only positions mattered, and rung {masked_softmax} could do as much. Now for a head that reads the letters.

# %% tags=["folded"]
# Question
ask("what_the_second_t_finds")

# %% [markdown]
# Two channels are enough, and every token asks for both. Channel 0 of a key is 20 for a vowel and 0 for a consonant; channel 1 is four times the position. A later consonant gains at most 4 · 4 = 16 on the first vowel, so the latest vowel always wins.

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
# The second t gives the a its highest visible score, {{scores[4, 3]:.0f}}. The p at position 0 sees no vowel, but its weights still sum to 1, so it finds itself.
#
# Now change `text` to `topata`, run the cells from there, and change it back. You touched no matrix, and yet each position found the last vowel of *that* word. No weights by distance can do this, because they never look at the letters. That is what we came for.
#
# **Attention is a lookup.** A Python dictionary compares your query with its keys, finds the one that is equal, and returns its value. Attention compares your query with all keys at once and returns a mix of all values, most of it from the best matches. This softness makes it learnable, because a slightly better query gives a slightly better answer.
#
# ## Why multiply and add up?
#
# A score should say how well a query and a key match. Think of each as an arrow. When two arrows point the same way, the match should be high; when they are at right angles, they have nothing to do with each other; and when they point in opposite directions, the number should be negative. The **dot product** behaves like that, and it is cheap: multiply channel by channel, then add up. Your scores were dot products all along.
#
# Could we leave out the matrices, then, and compare the tokens themselves? Here are four, as arrows in the plane.

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
# The first attention did not use dot products. Bahdanau, Cho and Bengio (2014) gave each pair of a query and a key to a small neural network with one row of numbers u at its end: score = u · tanh(q + k). This is called **additive attention**, because q and k are added. It needs a whole vector for every *pair* of tokens, here of 16 numbers, before u makes scores of them.

# %%
torch.manual_seed(0)
q, k, u = torch.randn(6, 16), torch.randn(6, 16), torch.randn(16)
pairs = torch.tanh(q[:, None] + k[None, :])  # (6, 1, 16) + (1, 6, 16)
pairs.shape, (pairs @ u).shape, (q @ k.T).shape

# %% [markdown]
# The dot product gets its scores from one matrix product, which every chip is good at, and never holds that table. "Attention Is All You Need" finds the two similar in quality but the dot product much faster and smaller in memory (Vaswani et al. 2017, section 3.2.1), provided that the scores are scaled, which is the subject of rung {scaling_variance}.

# %% [markdown]
# ## Three jobs of one token
#
# A dot product doesn't care which of two tokens comes first, but looking something up does. "Poor" has to find out who got the drum, and Sam, who got it, has no use for "Poor". So a token needs three vectors, one for each of its jobs.
#
# - Its *query* says what it looks for.
# - Its *key* says what it can be found under.
# - Its *value* is what it hands over to those who find it.
#
# (In rung {masked_softmax}, query and key were positions. From here on they also mean these vectors.)
#
# Each of the three is a **projection** of the token, its product with a matrix. These three matrices are all that a head learns, and their entries are its **parameters**. Why hand over a value, and not the token itself? Because the token has to carry everything, even what it asks and what later parts of the model need. W_value picks out what this head should pass on.
#
# ## Build: the head
#
# The lines that you filled in become two functions, with one new factor, `scale`. It is 1 over the square root of the **head_size**, the number of channels of a query and of a key, for a reason that takes all of rung {scaling_variance}.


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
# The last `masked_fill` gives zeros to a query that may look nowhere, whose softmax is NaN (rung {masked_softmax}). People speak of attention scores and attention weights, and call the table of all weights the attention matrix.
#
# The three matrices go into a class. `nn.Linear(n_embd, head_size, bias=False)` is a **linear layer** (n_embd is the number of channels of a token, so far C). It holds a matrix, random at first, and calling it on x multiplies x by that matrix. `nn.Module` keeps a list of the linear layers that you assign to `self`, so that training can find their parameters, and `super().__init__()` starts that list, so it comes first. Calling `head(x)` runs its `forward`, a forward pass.


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
# Each sequence gets its own weights now, and yet the head has only {{sum(p.numel() for p in head.parameters())}} parameters, three matrices of 32 times 16, however long the text is. A head doesn't learn weights, it learns how to *make* them. The price is a score for each of T² pairs, which is why long texts are expensive.
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
# (If both were the *same* matrix, W would be symmetric, and the scores as mutual as before. `double()` computes with twice the digits, since counting directions means telling small numbers from 0.)

# %%
W = head.query.weight.double().T @ head.key.weight.double()  # (32, 32)
q, k = head.query(batch), head.key(batch)
scores = batch.double() @ W @ batch.double().transpose(-2, -1)
torch.testing.assert_close(scores.float(), q @ k.transpose(-2, -1))
torch.linalg.matrix_rank(W)

# %% [markdown]
# W_value has such a twin. The output is weights @ x @ W_value, and what a model does with it next is multiply by one more matrix, W_output (rung {multi_head}). So W_value W_output acts as one matrix as well. Elhage et al. (2021), "A Mathematical Framework for Transformer Circuits", read a head as these two: the one of queries and keys says where to look, the one of values and outputs what to move.

# %%
W_output = torch.randn(16, 32)
moved = head(batch)[0] @ W_output
once = head(batch)[1] @ batch @ (head.value.weight.T @ W_output)
torch.testing.assert_close(moved, once, atol=1e-4, rtol=1e-4)

# %% [markdown]
# ### More: what nn.Linear stores, and why no bias
#
# `nn.Linear` stores its matrix as (out, in), here (16, 32), and multiplies by its transpose. The matrix is called `weight`, and many people call all parameters weights. Here a weight is always what a key gets from a query. With `bias=False` it adds no constant. A constant b added to all keys would change nothing, because it adds the same q · b to every score of a row, and softmax ignores that (rung {masked_softmax}).

# %%
torch.testing.assert_close(q, batch @ head.query.weight.T)
biased = attention_weights(q, k + torch.randn(16))
torch.testing.assert_close(biased, attention_weights(q, k))

# %% [markdown]
# ## What a head finds is added
#
# One thing is easy to miss. What happens to a token once the head has found something for it?

# %% tags=["folded"]
# Question
ask("replaced_by_the_output")

# %% [markdown]
# So a model does not replace the token but *adds* the output to it, `x + head(x)`. Think of the output as an update, a note in the margin of a token that keeps all it was. This is a residual connection (rung {bigram_to_gpt}). Here the tokens of `potato` get four free channels, and the first head writes into them.

# %%
tokens = torch.cat([letter, position, torch.zeros(6, 4)], dim=-1)
update = torch.cat([torch.zeros(6, 10), previous], dim=-1)  # (6, 14)
tokens = tokens + update

# %% tags=["folded"]
# Picture: the tokens after the update
picture(
    Heatmap(
        "x + head(x)",
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
# Row t2 now says, "I am a t, I am at position 2, and an o came before me." The next head can ask for any of that. This is how heads build on each other, and in rung {bigram_to_gpt} it is what finally answers who got the drum.
#
# ## Where is each token?
#
# The tokens of `potato` knew their position, because we gave them channels for it. And without?

# %% tags=["folded"]
# Question
ask("tokens_in_another_order")

# %%
order = torch.randperm(8)
shuffled, _ = head(batch[:, order])
torch.testing.assert_close(shuffled, head(batch)[0][:, order])

# %% [markdown]
# Without positions a head works on a *set* of tokens. "Dog bites man" and "man bites dog" are the same to it, as they were to the bag of words in rung {bag_of_words}. On our stories such a head ends at a loss of 1.29<!--given-->, hardly better than the table of letter pairs, and far worse than rung {masked_softmax}, whose weights knew nothing *but* positions.
#
# So you have to tell each token where it is. Give every position a vector of its own, its **positional embedding**, and add it to the token's vector, as GPT-2 does. With that, the loss falls to 0.38<!--given-->.

# %%
torch.manual_seed(0)
letter_table, position_table = nn.Embedding(4, 8), nn.Embedding(6, 8)
ids = torch.tensor([letters.index(a) for a in text])  # p 0, o 1, t 2, a 3
only_letters = letter_table(ids)  # (6, 8)
x = only_letters + position_table(torch.arange(6))  # (6, 8)
torch.equal(only_letters[2], only_letters[4]), torch.equal(x[2], x[4])

# %% [markdown]
# The two t's had the same vector, and now they differ. Doesn't adding muddle letter and position? It need not, because the channels that we set side by side are also a sum, of letters with zeros at the end and positions with zeros at the start. A model with channels to spare can keep the two apart.
#
# ### More: how much order does a mask give away?
#
# Without a mask, every order of the tokens gives the same outputs, in that order. A function of this kind is **permutation-equivariant**. Here is every order of six tokens.

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
# So a model with heads on top of heads can work out the order from the mask alone, and language models trained without positions come close to those with them (Haviv et al. 2022). Most models are told all the same, because it is easier to be told than to work it out.
#
# ### More: positions from sines, and why 10,000
#
# "Attention Is All You Need" does not learn its positional embeddings. They are **sinusoidal**: for each of many frequencies ω, position t has the two channels sin ωt and cos ωt. Because sin a sin b + cos a cos b = cos(a − b), the dot product of two positions depends only on their distance. With sines alone it would not.

# %%
angles = torch.arange(50)[:, None] * 10_000 ** (-torch.arange(8) / 8)
both = torch.cat([angles.sin(), angles.cos()], dim=-1)  # (50, 16)
for vectors in (both, angles.sin()):
    apart = (vectors @ vectors.T).diagonal(5)  # positions 0, 5; 1, 6; ...
    print(f"from {apart.min():.1f} to {apart.max():.1f}")

# %% [markdown]
# Why many frequencies? Think of the hands of a clock. The fast one tells neighbours apart but soon comes round again, and the slow one says whether it is morning or evening. The waves get longer and longer, from 2π tokens up to nearly 10,000 · 2π. Why 10,000? The slowest wave has to be longer than any text, so that no two positions look alike, and 10,000 is a round number that is amply large for the sentences of its day. The paper gives no other reason. It tried learned positions as well and found "nearly identical results", and models for longer texts choose a larger constant (rung {a_real_model}).
#
# ## The same with random matrices
#
# Nobody writes a model's matrices by hand, and before training they are random. Sebastian Raschka (2024) follows such a head number by number in [Understanding and Coding Self-Attention, Multi-Head Attention, Cross-Attention, and Causal-Attention in LLMs](https://magazine.sebastianraschka.com/p/understanding-and-coding-self-attention), and we use his numbers. His sentence is "Life is short, eat dessert first", and each word gets a number, its id, which is its place in the sorted list.

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
# These are the six rows that he prints. "short" gives the largest weight to itself and the smallest to "is", which means nothing, because the matrices are random. Giving them a meaning takes training (rung {scaling_variance}).
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
# What "short" gets is the mean of the *values*, with these weights. It is also called its **context vector**.

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
# ## Prove

# %% tags=["folded"]
# Question
ask("queries_of_zeros")

# %% [markdown]
# A head with queries of zeros is the mean of rungs {bag_of_words} to {masked_softmax}. And it can have any table of scores that rung {masked_softmax} could, because you may write it into W_query, row by row.

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
# So a head can do all that came before it. It also agrees with PyTorch's own function, and it has no leak.

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
# One query of `potato` passes through all stages, with a row for each key. Lower head_size, first for "last vowel", which starts with three empty channels, then for "previous letter". Then move the query, and switch the mask off.

# %% tags=["folded"]
# Explorer: one query, from products to output
explore("query_key_value")

# %% [markdown]
# "Last vowel" needs two channels, and with one left all vowels tie. "Previous letter" has a channel for each position. Take channel 3 away, and query 4 no longer finds position 3. Without the mask, "last vowel" finds the o at the end of the word.
#
# ## Break it
#
# This bug is easy to write, because the function runs, its shapes are right, and its weights sum to 1.


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
# The shapes agree only because d_v and C are both 4. So when you test a head, choose sizes that are all different.

# %%
bad = almost_a_head(x, W_query, W_key, torch.randn(4, 5))
good, _ = attention(x @ W_query, x @ W_key, x @ torch.randn(4, 5))
assert bad.shape != good.shape
bad.shape, good.shape

# %% [markdown]
# ### More: which matrices would learn?
#
# A second check needs derivatives. Every matrix should get a **gradient**: the derivatives of one number, here the sum of all outputs, with respect to its entries. `backward()` goes through the steps of the forward pass in reverse and applies the chain rule at each, which is called **backpropagation**, and it writes the gradients into `.grad`. Training needs that at every step. Using a trained model, called **inference**, does not. PyTorch keeps gradients for tensors with `requires_grad`.

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
# ## Where we are
#
# ![The transformer as a drawing. Highlighted: what this rung builds (query, key, value and their dot product).](images/transformer_query_key_value.svg)
#
# <!--step-->
#
# The loss has fallen, and still nearly all answers are wrong. Would a richer question help, with more channels? Try it, and something breaks, and rung {scaling_variance} finds out what.
#
# ## Three sentences to remember
#
# 1. A query says what a token looks for, a key what it can be found under, a value what it hands over.
# 2. The score of a key is its dot product with the query; softmax turns scores into weights, and the mean of the values with these weights is added to the token.
# 3. A head looks things up in a set, so a token has to be told where it is.
#
# Next: [rung {scaling_variance}, scaling]({scaling_variance}.ipynb), which explains the square root of head_size.
#
# <!--neighbours-->
