# %% [markdown]
# # Rung {multi_head}: multi-head attention
#
# <!--ladder-->
#
# **You will build** many small heads instead of one large one, first one after another, and then all at once in a single matrix product.
#
# <!--staircase-->
#
# One head has one softmax, so each letter gets one pattern of weights. But after “Poor” the model needs several things at once, such as the last few letters *and* the place where a name is.

# %% tags=["hero", "folded"]
# The opening picture: guess first, then split one head into two
from attention_course.heroes import hero

hero("multi_head")

# %% [markdown]
# **You need** [rung {query_key_value}]({query_key_value}.ipynb) for heads, and [rung {cross_and_causal}]({cross_and_causal}.ipynb) for queries from elsewhere.
#
# <!--time-->
#
# <!--test-out-->

# %% tags=["folded"]
# Two questions from the rungs below
from attention_course.questions import warm_up

warm_up("multi_head")

# %% [markdown]
# ## Split and merge by hand
#
# To make two heads out of one, you divide its channels. Here are the queries of three tokens, where the tens digit tells you the token. Head 0 gets the first two channels of every query, and head 1 the other two.

# %%
import torch

q = torch.tensor([[0, 1, 2, 3], [10, 11, 12, 13], [20, 21, 22, 23]])

# %% tags=["folded"]
# Fill in: one table for each head
from attention_course.fills import fill

fill("split_by_hand")

# %% tags=["folded", "name:split_by_hand"]
# Split
heads = torch.stack([q[:, :2], q[:, 2:]])  # (n_head, T, head_size)
heads

# %% [markdown]
# Now each head has a table of its own, with a row for every token. (The number of heads is called n_head, and each head has head_size channels.) After the heads have done their work, you put their outputs back side by side.

# %% tags=["folded"]
# Fill in: and back
fill("merge_by_hand")

# %% tags=["folded", "name:merge_by_hand"]
# Merge
torch.cat([heads[0], heads[1]], dim=-1)  # (T, n_head * head_size)

# %% [markdown]
# Between the split and the merge, each head runs the attention you know. But what do you gain?

# %% tags=["folded"]
# Imports
import time

import torch.nn as nn
import torch.nn.functional as F
from tqdm.auto import tqdm

from attention_course.attention import (
    CrossAttentionHead,
    Head,
    attend,
    attention,
)
from attention_course.attention import causal_mask, head_size_of, leak_probe
from attention_course.attention import record_weights
from attention_course.exercises import check
from attention_course.explorers import explore
from attention_course.plots import Bars, Heatmap, Lines, Text, picture
from attention_course.progress import progress
from attention_course.questions import ask
from attention_course.text import Corpus, get_batch, load_text

torch.set_printoptions(precision=3, sci_mode=False)

progress("multi_head")

# %% [markdown]
# ## Two cards
#
# In the opening picture, each of four friends holds a card with a number from 0 to 9. You want the cards of two friends, in order.

# %% tags=["folded"]
# Question
ask("two_cards_one_softmax")

# %% [markdown]
# Each row below is a pair of cards. With weights of ¾ and ¼, the pairs (2, 6) and (3, 3) give the same mixture, so afterwards you can't tell them apart. Can you find two weights that sum to 1 and make all four mixtures differ?

# %% tags=["do"]
cards = torch.tensor([[2.0, 6.0], [6.0, 2.0], [4.0, 4.0], [3.0, 3.0]])
cards @ torch.tensor([0.75, 0.25])

# %%
cards @ torch.tensor([10 / 11, 1 / 11]) * 11

# %% [markdown]
# Many pairs work, but 10/11 and 1/11 are the easiest to read. Multiplied by 11, each mixture is a two-digit number, whose digits are the cards. So the ring in the picture lies on one card at most, but one mixture can still *hold* two. That only helps if what comes next can take them apart. A linear layer can't if the weights ignore the cards (the fold below proves it). What about the feed-forward network of rung {cross_and_causal}, two linear layers with a ReLU between them?
#
# Let's train three models. Each question is one token, the sum of an embedding for each name. It looks at four tokens, each the embedding of a friend plus the embedding of a card. The first model has one head with head_size 32, followed by a linear layer. The second has two heads with head_size 16, so it has just as many parameters. The third has one head again, followed by the feed-forward network.


# %%
class Cards(nn.Module):
    def __init__(self, n_head, n_embd=32, feed_forward=False):
        super().__init__()
        self.friend = nn.Embedding(4, n_embd)
        self.card = nn.Embedding(10, n_embd)
        self.first = nn.Embedding(4, n_embd)
        self.second = nn.Embedding(4, n_embd)
        sizes = n_embd, n_embd, n_embd // n_head
        self.heads = nn.ModuleList(
            CrossAttentionHead(*sizes) for _ in range(n_head)
        )
        if feed_forward:
            self.answer = nn.Sequential(
                nn.Linear(n_embd, 128), nn.ReLU(), nn.Linear(128, 2 * 10)
            )
        else:
            self.answer = nn.Linear(n_embd, 2 * 10)

    def forward(self, cards, asked):
        table = self.friend.weight + self.card(cards)  # (B, 4, n_embd)
        question = self.first(asked[:, :1]) + self.second(asked[:, 1:])
        # each head returns an output and weights: gather all outputs
        outputs, weights = zip(
            *(head(question, table) for head in self.heads)
        )
        both = self.answer(torch.cat(outputs, dim=-1))  # (B, 1, 20)
        return both.view(-1, 2, 10), torch.cat(weights, dim=1)


# %% tags=["folded", "long:1000"]
# Data and training: draw questions, train on 1000 batches
def draw_questions(B):
    cards = torch.randint(10, (B, 4))
    asked = torch.rand(B, 4).argsort(dim=-1)[:, :2]  # two different friends
    answers = cards.gather(1, asked)  # the cards of the two friends
    return cards, asked, answers


def train_cards(n_head, feed_forward=False, steps=1000):
    torch.manual_seed(0)
    model = Cards(n_head, feed_forward=feed_forward)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    name = f"training with n_head = {n_head}" + ", ReLU" * feed_forward
    for _ in tqdm(range(steps), desc=name, bar_format="{desc} {bar}"):
        cards, asked, answers = draw_questions(128)
        logits, _ = model(cards, asked)
        loss = F.cross_entropy(logits.flatten(0, 1), answers.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


# %%
one_head = train_cards(1)
two_heads = train_cards(2)
one_head_relu = train_cards(1, feed_forward=True)


# %% [markdown]
# Before you look, which of the three models will answer new questions correctly?

# %% tags=["folded"]
# Question
ask("three_models_two_cards")

# %% tags=["folded"]
# Picture: how often each model is right, on 5000 new questions
torch.manual_seed(1)
test_questions = draw_questions(5000)


@torch.no_grad()
def share_right(model):
    cards, asked, answers = test_questions
    right = model(cards, asked)[0].argmax(dim=-1) == answers  # (5000, 2)
    return torch.stack(
        [right[:, 0], right[:, 1], right.all(dim=-1)], dim=-1
    )


scores = [
    share_right(model).float().mean(dim=0)
    for model in (one_head, two_heads, one_head_relu)
]
assert scores[0][2] < 0.4
assert min(scores[1][2], scores[2][2]) > 0.95

picture(
    *(
        Bars(
            name,
            score,
            ["first", "second", "both"],
            "answers that are right",
            (0, 1),
        )
        for name, score in zip(
            ("one head of 32", "two heads of 16", "one head and ReLU"),
            scores,
        )
    ),
    alt="Share of right answers. With one head, both answers are right for "
    "fewer than four questions in ten. With two heads they nearly always "
    "are, and also with one head and a feed-forward network behind it.",
)

# %% [markdown]
# The single head with a linear layer gets both cards right in fewer than four questions out of ten. Two heads almost never miss, and in this run neither does the single head with the feed-forward network.
#
# How can a network take a mixture apart? A ReLU replaces negative numbers with 0, so relu(m − 19) − relu(m − 20) is 0 up to m = 19, and 1 from 20 on. This step tells you whether m has reached 20. Nine such steps count the tens, and what's left is the ones. Try other whole numbers below 100.

# %% tags=["do"]
mixed = torch.tensor([26.0, 62.0, 44.0, 33.0])  # 11 times the mixtures
tens = torch.arange(10, 100, 10)
steps = F.relu(mixed[:, None] - tens + 1) - F.relu(mixed[:, None] - tens)
first = steps.sum(dim=-1)
first, mixed - 10 * first

# %% [markdown]
# So one head can look up two things after all, if a feed-forward network follows, as in every GPT. (That's harder to learn, though. In twelve runs with different seeds, the single head failed four times, while two heads never failed.)
#
# ### More: why no linear layer can read both cards
#
# Suppose the first card always gets a share s of the weight, and the second 1 − s. For each answer the linear layer computes a logit for every card. Call the logit of card 2 minus the logit of card 6 the lead of 2 over 6 (papers call it a logit difference), and write mix(a, b) = s · v_a + (1 − s) · v_b for the mixture of the cards a and b, whose values are v_a and v_b.
#
# 1. For two 2s both answers are 2, and for two 6s both answers are 6. So both leads are larger for mix(2, 2) than for mix(6, 6).
# 2. For any values and any share, mix(2, 6) − mix(6, 2) = (2s − 1) · (v_2 − v_6) = (2s − 1) · (mix(2, 2) − mix(6, 6)). The equation still holds behind a linear layer, so turning (6, 2) into (2, 6) changes both leads by 2s − 1 times a positive number.
# 3. The first answer needs its lead to rise, so 2s − 1 must be positive. The second needs its lead to fall, so 2s − 1 must be negative.
#
# No share satisfies both. The proof assumes two things, that the shares don't depend on the cards and that everything behind the head is linear.
#
# You can see this in the trained model. Where the two cards are equal, their order doesn't matter, and the single head with the linear layer gets more than nine in ten right. Where the cards differ, it gets fewer than two out of ten.


# %% tags=["folded"]
# Check: the equation for five shares, and two equal cards or others
def mix(values, first, second, s):
    return s * values[first] + (1 - s) * values[second]


torch.manual_seed(0)
values = torch.randn(10, 32)
for s in (0.0, 0.3, 0.5, 0.7, 1.0):
    torch.testing.assert_close(
        mix(values, 2, 6, s) - mix(values, 6, 2, s),
        (2 * s - 1) * (mix(values, 2, 2, s) - mix(values, 6, 6, s)),
    )

answers = test_questions[2]
equal = answers[:, 0] == answers[:, 1]
both_right = share_right(one_head)[:, 2].float()
assert both_right[equal].mean() > 0.9
assert both_right[~equal].mean() < 0.2

# %% [markdown]
# ## So why several heads?
#
# Let's see where the heads look. Here are three pairs of friends, each in both orders.

# %% tags=["folded"]
# Picture: where the heads look, for six questions
friends = ["Ann", "Bob", "Cem", "Dia"]
asked = torch.tensor([[0, 1], [1, 0], [2, 3], [3, 2], [0, 3], [3, 0]])
names = [f"{friends[a]}, {friends[b]}" for a, b in asked]
cards = torch.tensor([[5, 1, 7, 3]]).expand(6, 4)
with torch.no_grad():
    (_, of_one), (_, of_two), (_, of_relu) = (
        model(cards, asked)
        for model in (one_head, two_heads, one_head_relu)
    )


picture(
    *(
        Heatmap(title, w, "question", "friend", names, friends, limit=1)
        for title, w in (
            ("the only head", of_one[:, 0]),
            ("head 0 of two", of_two[:, 0]),
            ("head 1 of two", of_two[:, 1]),
            ("the only head, ReLU", of_relu[:, 0]),
        )
    ),
    alt="Weights of six questions on four friends. The only head divides "
    "its weight between the two friends. Of two heads, each looks at one "
    "friend, and never both at the same one. The only head before a ReLU "
    "looks at both friends, but much more at one of them.",
)

# %% [markdown]
# Each map has a row for each question, and each row sums to 1. A single head has to fit both friends into one row, so it divides its weight between them. Two heads have two rows, and each head follows one of the names.
#
# That's the reason for heads: **one softmax makes one pattern of weights, and several heads make several.** To spell our story, the model needs the last few letters. To answer the question, it needs the place where the right name is. In a single row, every new pattern takes weight from the others, and one query has to ask for everything. A second head has a row of its own.
#
# ### More: what the three models do with their weights
#
# The single head with the linear layer gives one friend a slightly larger share, and that's the friend whose card it gets right. With the feed-forward network, one share is more than twice as large as the other, much like the tens and the ones of our number. In both models, the shares hardly depend on the cards. (In the four runs out of twelve that failed, the head before the network gave nearly all its weight to one friend.)

# %% tags=["folded"]
# Check: what each head looks at, and which answer the only head got
for w in of_two.unbind(dim=1):
    assert (w.gather(1, asked).max(dim=-1).values > 0.8).all()
assert (of_two.argmax(dim=-1)[:, 0] != of_two.argmax(dim=-1)[:, 1]).all()
assert (of_one[:, 0].gather(1, asked) > 0.2).all()

# the only head answers for the one with the larger share
shares = of_one[:, 0].gather(1, asked).mean(dim=0)
chosen = scores[0][:2].argmax()
assert scores[0][chosen] > 0.8
assert shares.argmax() == chosen

# neither only head lets the cards decide how much weight a friend gets
with torch.no_grad():
    for model in (one_head, one_head_relu):
        weights = model(*test_questions[:2])[1][:, 0]
        shares = weights.gather(1, test_questions[1])
        assert (shares.std(dim=0) < 0.05).all()
least, most = shares.mean(dim=0).sort().values  # with the ReLU
assert 2 * least < most < 5 * least

# %% [markdown]
# ## The heads share the width
#
# How wide should a head be? If each of four heads were as wide as a token, they'd take four times the parameters and four times the work. So instead the heads *share* the width. A token comes out with as many channels as it went in with, n_embd, and each head gets an equal share:
#
# head_size = n_embd / n_head
#
# So more heads means smaller heads, and here n_embd has to be divisible by n_head.

# %%
[head_size_of(64, n_head) for n_head in (1, 2, 4, 16)]

# %% tags=["folded"]
# Question
ask("how_many_parameters")

# %% [markdown]
# ### More: Sebastian Raschka's four heads, in numbers
#
# In [the article](https://magazine.sebastianraschka.com/p/understanding-and-coding-self-attention) that rung {query_key_value} followed, Sebastian Raschka (2024) doesn't share the width. Each of his four heads has queries and keys of 2 channels and values of 1 channel, so the output has one channel for each head.

# %%
torch.manual_seed(123)
x = nn.Embedding(50_000, 3)(torch.tensor([0, 4, 5, 2, 1, 3])).detach()
heads = [Head(3, 2, d_v=1) for _ in range(4)]

# %% tags=["folded"]
# Data: Raschka's numbers, by torch.rand
torch.manual_seed(123)
for head in heads:
    for layer in (head.query, head.key, head.value):
        layer.weight.data = torch.rand(3, layer.out_features).T

# %% tags=["folded"]
# Question
ask("width_of_the_wrapper")

# %%
outputs = [head(x)[0] for head in heads]
wrapped = torch.cat(outputs, dim=-1)
wrapped.shape, wrapped

# %% tags=["folded"]
# Check: the numbers as Raschka prints them
printed = torch.tensor(
    [
        [-0.0185, 0.0170, 0.1999, -0.0860],
        [0.4003, 1.7137, 1.3981, 1.0497],
        [-0.1103, -0.1609, 0.0079, -0.2416],
        [0.0668, 0.3534, 0.2322, 0.1008],
        [0.1180, 0.6949, 0.3157, 0.2807],
        [-0.1827, -0.2060, -0.2393, -0.3167],
    ]
)
torch.testing.assert_close(wrapped, printed, atol=1e-4, rtol=0)

# %% [markdown]
# These are the numbers he prints. With 3 channels in and 4 out, you can't put one such module after another.
#
# ## The output projection
#
# After the merge the heads are still strangers. With 32 channels and four heads, for instance, channels 0 to 7 hold only what head 0 found. So one more linear layer follows, the **output projection**, through which every head can write to every channel of the token. Several heads side by side, followed by a projection, make up **multi-head attention**. (GPT-2 calls it `c_proj`.)


# %%
class MultiHeadAttentionList(nn.Module):
    def __init__(self, n_embd, n_head):
        super().__init__()
        head_size = head_size_of(n_embd, n_head)
        self.heads = nn.ModuleList(
            Head(n_embd, head_size) for _ in range(n_head)
        )
        self.c_proj = nn.Linear(n_embd, n_embd, bias=False)

    def forward(self, x, mask=None):
        outputs, weights = zip(
            *(head(x, mask) for head in self.heads), strict=True
        )
        return self.c_proj(torch.cat(outputs, dim=-1)), torch.stack(
            weights, dim=1
        )


# %%
torch.manual_seed(0)
B, T, n_embd, n_head = 4, 8, 32, 4
x = torch.randn(B, T, n_embd)
heads = MultiHeadAttentionList(n_embd, n_head)
output, weights = heads(x, causal_mask(T))
output.shape, weights.shape  # (B, T, n_embd) and (B, n_head, T, T)

# %% [markdown]
# Each text now has four maps of weights but one output. Nothing tells the heads to look for different things. They differ because they start with different random matrices, and each head learns from its own starting point.
#
# ### More: what one head writes, and twins
#
# Each head has its own columns of the projection, so the output is the sum of what the heads write.

# %%
found = torch.cat([head(x)[0] for head in heads.heads], dim=-1)
columns = heads.c_proj.weight.split(8, dim=1)  # 8 for each head
written = [part @ W.T for part, W in zip(found.split(8, dim=-1), columns)]
torch.testing.assert_close(sum(written), heads.c_proj(found))

# %% [markdown]
# Two heads that start out identical, and that the projection treats identically, get the same gradient at every step. So they stay identical forever.

# %% tags=["folded"]
# Check: twins get equal gradients
twins = MultiHeadAttentionList(n_embd, n_head=2)
one, other = twins.heads
other.load_state_dict(one.state_dict())
with torch.no_grad():
    twins.c_proj.weight[:, 16:] = twins.c_proj.weight[:, :16]
twins(x)[0].square().sum().backward()
for a, b in zip(one.parameters(), other.parameters(), strict=True):
    assert a.grad.any()
    torch.testing.assert_close(a.grad, b.grad)

# %% [markdown]
# ## All heads in one product
#
# The list multiplies the same `x` by twelve small matrices, three for each head. `nn.Linear` stores a matrix with a row for each *output* channel and computes `x @ W.T`, so here each of the twelve has shape (8, 32). Each row produces its own channel, so you can stack all the rows into one tall matrix, the queries first, then the keys, then the values. The twelve matrices are **fused** into one, from C channels to 3C.

# %%
layers = [
    getattr(head, part)
    for part in ("query", "key", "value")
    for head in heads.heads
]
joined = torch.cat([layer.weight for layer in layers])  # (96, 32)
one_by_one = torch.cat([layer(x) for layer in layers], dim=-1)
torch.testing.assert_close(x @ joined.T, one_by_one)

# %% [markdown]
# `split` cuts the result into q, k and v, each of shape (B, T, C). The tokens themselves aren't cut, so every head still reads all their channels.
#
# To get rid of the loop, you need the (T, head_size) tables of all heads at once, and there's a tempting shortcut.

# %% tags=["folded"]
# Question
ask("who_gets_row_zero")

# %%
q.view(2, 3, 2)[0]  # head 0?

# %% [markdown]
# Nearly everyone writes this bug once. `view` reads the numbers as they lie in memory, token after token, and only cuts that line in other places. So head 0 gets all of token 0 and half of token 1, and you get no error, because the shape is right.
#
# How do you split properly? Leave T where it is and cut only the last dimension. Now the heads are in the middle dimension, so you bring them to the front.

# %% tags=["folded"]
# Fill in: split without a loop
fill("split_at_once")

# %% tags=["name:split_at_once"]
heads_of_q = q.view(3, 2, 2)  # (T, n_head, head_size)
heads_of_q.transpose(0, 1)  # (n_head, T, head_size)

# %% tags=["folded"]
# Picture: head 0, by view alone and with the transpose
wrong, right = q.view(2, 3, 2), heads_of_q.transpose(0, 1)
assert torch.equal(right, torch.stack([q[:, :2], q[:, 2:]]))
picture(
    Heatmap("q", q, "token", "channel"),
    Heatmap("view: head 0", wrong[0], "row", "channel", limit=23),
    Heatmap("transposed: head 0", right[0], "row", "channel", limit=23),
    alt="Queries of three tokens, with four channels. With view alone, "
    "head 0 holds query 0 and half of query 1. With the transpose it "
    "holds the first two channels of all three queries.",
)

# %% [markdown]
# The last map is what you cut by hand. To merge, undo the two steps, the last one first, so transpose and then join the last two dimensions. But the heads' outputs are new numbers, which lie in memory head after head, so after the transpose they're no longer in reading order. PyTorch says that such a tensor isn't **contiguous**. `view` refuses to merge it, while `reshape` makes a copy in the right order.

# %%
found = heads_of_q.transpose(0, 1).contiguous()  # as if newly computed

# %% tags=["folded"]
# Fill in: merge without a loop
fill("merge_at_once")

# %% tags=["name:merge_at_once"]
tokens = found.transpose(0, 1)  # (T, n_head, head_size)
tokens.reshape(3, 4)  # (T, n_head * head_size)

# %% [markdown]
# Here is the whole module. Look for your split, `view(...).transpose(1, 2)`, where `-1` leaves it to PyTorch to work out n_head, and for your merge, `transpose(1, 2).reshape(B, T, C)`. Between them, `attend` from the package computes the output of `attention`, with a faster PyTorch routine if possible. `is_causal=True` stands for the causal mask.


# %%
class MultiHeadAttention(nn.Module):
    def __init__(self, n_embd, n_head, bias=False):
        super().__init__()
        self.head_size = head_size_of(n_embd, n_head)
        self.c_attn = nn.Linear(n_embd, 3 * n_embd, bias=bias)
        self.c_proj = nn.Linear(n_embd, n_embd, bias=bias)

    def forward(self, x, mask=None, is_causal=False):
        B, T, C = x.shape
        q, k, v = (
            # (B, T, C) to (B, n_head, T, head_size)
            part.view(B, T, -1, self.head_size).transpose(1, 2)
            for part in self.c_attn(x).split(C, dim=-1)
        )
        if mask is not None and mask.dim() == 3:
            # a mask for each text: insert a dimension for the heads
            mask = mask[:, None]
        output = attend(q, k, v, mask, is_causal)
        return self.c_proj(output.transpose(1, 2).reshape(B, T, C))


# %% [markdown]
# `attention` didn't have to change, because it works on the last two dimensions and treats all others as a batch. A mask of shape (T, T) applies to every text and every head.
#
# ## Prove it
#
# Does the module compute the same thing as the list? Copy the parameters over, and compare. Inside `with record_weights() as kept:`, `attend` uses our own `attention`, and the list `kept` collects the weights. But a check is only worth something if it can fail. So first swap "query" and "key" in `fuse`, run that cell and the next, and see what happens. Then swap back.


# %% tags=["do"]
def fuse(heads):
    # with numbers of the same type, on the same device
    fused = MultiHeadAttention(
        heads.c_proj.out_features, len(heads.heads)
    ).to(heads.c_proj.weight)
    parts = [
        getattr(head, part).weight
        for part in ("query", "key", "value")
        for head in heads.heads
    ]
    with torch.no_grad():
        fused.c_attn.weight.copy_(torch.cat(parts))
        fused.c_proj.weight.copy_(heads.c_proj.weight)
    return fused


# %%
fused = fuse(heads)
output, weights = heads(x, causal_mask(T))
torch.testing.assert_close(fused(x, causal_mask(T)), output)
torch.testing.assert_close(fused(x, is_causal=True), output)
with record_weights() as kept:
    torch.testing.assert_close(fused(x, causal_mask(T)), output)
torch.testing.assert_close(kept, [weights])

# %% tags=["folded"]
# Helpers: the same attention, computed in four ways
from attention_course.attention import MultiHeadAttention, fuse, to_torch
from attention_course.attention import MultiHeadAttentionList


def four_ways(heads, x, mask):
    fused = fuse(heads)
    hidden = None if mask is None else ~mask
    yield heads(x, mask)[0]
    with record_weights():
        recorded = fused(x, mask)  # our attention()
    yield recorded
    yield fused(x, mask)  # F.scaled_dot_product_attention
    yield to_torch(fused)(x, x, x, attn_mask=hidden, need_weights=False)[0]


# %% tags=["proof"]
sizes = (1, 1, 2, 1), (2, 5, 6, 3), (3, 7, 20, 5), (1, 13, 8, 8)
for B, T, C, n_head in sizes:
    x, heads = torch.randn(B, T, C), MultiHeadAttentionList(C, n_head)
    for mask in (None, causal_mask(T)):
        first, *others = four_ways(heads, x, mask)
        for output in others:
            torch.testing.assert_close(output, first)

# %% [markdown]
# All four ways agree. They are the list, the module with our `attention`, the module with PyTorch's fast routine `F.scaled_dot_product_attention` (SDPA), and PyTorch's own `nn.MultiheadAttention`.
#
# ### More: gradients and weights also agree
#
# Equal outputs aren't enough, because training needs equal gradients too. And the weights? Inside `with record_weights() as kept:`, each call of the module appends a tensor of shape (B, n_head, T, T) to the list `kept`. (`nn.MultiheadAttention` averages the weights over the heads unless you pass `average_attn_weights=False`.)

# %% tags=["folded"]
# Check: PyTorch's weights, and the gradients of tokens and parameters
with record_weights() as kept:
    fuse(heads)(x, mask)
_, theirs = to_torch(fuse(heads))(
    x, x, x, attn_mask=~mask, average_attn_weights=False
)
torch.testing.assert_close(theirs, kept[0])

x.requires_grad_()
first, *others = (
    torch.autograd.grad(output.square().sum(), x)[0]
    for output in four_ways(heads, x, causal_mask(13))
)
for gradient in others:
    torch.testing.assert_close(gradient, first)

fused = fuse(heads)
heads.zero_grad()  # or the gradients of an earlier run would be added
heads(x, causal_mask(13))[0].square().sum().backward()
fused(x, causal_mask(13)).square().sum().backward()
pieces = [
    getattr(head, part).weight.grad
    for part in ("query", "key", "value")
    for head in heads.heads
]
torch.testing.assert_close(fused.c_attn.weight.grad, torch.cat(pieces))
torch.testing.assert_close(
    fused.c_proj.weight.grad, heads.c_proj.weight.grad
)

# %% [markdown]
# ### More: what heads cost in time and memory
#
# Here are four ways to compute the same output: a loop over heads and queries, the list, the fused module with our `attention`, and SDPA. Backpropagation needs numbers from the forward pass, since the derivative of a product contains its factors. So to measure memory, we count the numbers that PyTorch keeps for backpropagation.


# %% tags=["folded"]
# Helpers: the four ways, a clock, and a count of the numbers kept
def loop(heads, x):
    outputs = []
    for head in heads.heads:
        q, k, v = head.query(x), head.key(x), head.value(x)
        rows = [
            attention(q[:, t : t + 1], k, v)[0] for t in range(x.shape[1])
        ]
        outputs.append(torch.cat(rows, dim=1))
    return heads.c_proj(torch.cat(outputs, dim=-1))


def recorded(x):
    with record_weights():
        return fused(x)


torch.manual_seed(0)
heads = MultiHeadAttentionList(32, 4)
fused = fuse(heads)
ways = {
    "loop": lambda x: loop(heads, x),
    "list": lambda x: heads(x)[0],
    "fused": recorded,
    "SDPA": fused,
}


def fastest(function, x, repeats=3):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function(x)
        times.append(time.perf_counter() - start)
    return min(times)


def numbers_kept(function, x):
    sizes = {}

    def note(tensor):
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = (
            storage.nbytes() // tensor.element_size()
        )
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(
        note, lambda tensor: tensor
    ):
        output = function(x)
    assert output.requires_grad  # the output keeps these numbers alive
    return sum(sizes.values())


# %% tags=["folded"]
# Picture: time and memory of the four ways, on your machine
lengths = torch.tensor([8, 16, 32, 64, 128, 256, 512])
seconds = {name: torch.zeros(len(lengths)) for name in ways}
kept = {name: torch.zeros(len(lengths)) for name in ways}
for i, T in enumerate(lengths.tolist()):
    x = torch.randn(1, T, 32)
    for name, way in ways.items():
        torch.testing.assert_close(way(x), heads(x)[0])
        seconds[name][i] = fastest(way, x)
        kept[name][i] = numbers_kept(way, x)

picture(
    Lines("Time", lengths, seconds, "tokens T", "seconds on this machine"),
    Lines(
        "Memory",
        lengths,
        kept,
        "tokens T",
        "numbers kept for backpropagation",
    ),
    alt="Time and memory of four ways over T from 8 to 512, all axes "
    "logarithmic. The loop takes by far the longest. In memory, the "
    "loop, the list and the fused module rise together, and SDPA stays "
    "flatter.",
)

# %% [markdown]
# One product for all heads avoids the overhead of many small products, which matters most for short texts. But it doesn't save memory, because every head's T × T weights are kept, which is why three of the lines coincide. SDPA picks a compiled routine that does all steps in one go (such a routine is called a kernel). Here the kernel is **FlashAttention** (Dao et al. 2022), which computes the same output piece by piece and never stores the weights. Backpropagation computes the weights again, so memory grows like T instead of T². (A mask tensor adds T² entries of its own, once for all heads. Where PyTorch has no such kernel, it keeps the weights of every head.)

# %% tags=["folded"]
# Check: how memory grows when T doubles
growth = {
    name: (numbers[-1] / numbers[-2]).item()
    for name, numbers in kept.items()
}
for name in ("loop", "list", "fused"):
    assert growth[name] > 3  # T² would be 4 times as much
assert growth["SDPA"] < 2.1
with_mask = numbers_kept(lambda x: fused(x, causal_mask(T)), x)
assert with_mask == kept["SDPA"][-1] + T * T
assert torch.equal(kept["loop"], kept["list"])
assert torch.equal(kept["list"], kept["fused"])

# %% [markdown]
# ### More: dropout, which you will meet in other people's attention
#
# **Dropout** keeps a model from relying on any single number. During training, it sets each number to 0 with probability p, and multiplies the remaining numbers by 1/(1 − p), so that the mean stays the same. nanoGPT applies dropout to the embeddings, to what attention and feed-forward return, and to the attention weights. Here are a thousand rows of four equal weights, with p = ½.

# %%
torch.manual_seed(0)
dropout = nn.Dropout(0.5)
uniform = torch.full((1000, 4), 0.25)
dropped = dropout(uniform)
assert dropped.unique().tolist() == [0.0, 0.5]
assert (dropped.sum(dim=-1).mean() - 1).abs() < 0.1

# %% [markdown]
# A weight of 0.25 becomes 0 or {{dropped.max():.1f}}, and a row sums to 1 only on average. After training, `eval()` switches dropout off. But `F.scaled_dot_product_attention` has no such switch and always applies its `dropout_p`, so a module has to pass 0 outside training.

# %% tags=["folded"]
# Check: eval() switches off the module, but not the function
assert torch.equal(dropout.eval()(uniform), uniform)
twice = [
    F.scaled_dot_product_attention(x, x, x, dropout_p=0.25)
    for _ in range(2)
]
assert not torch.equal(*twice)

# %% [markdown]
# ## How many heads?
#
# Let's see what heads are worth in our stories. This model is like the one in the staircase, but it sees only 32 letters and trains for a few seconds. Letters and positions have embeddings, your multi-head attention mixes them, and a linear layer predicts the next letter. We train it with 1, 2, 4 and 8 heads, each with three seeds, because a single run could be luck.

# %% tags=["folded"]
# Question
ask("how_many_heads")

# %% tags=["folded"]
# The model and its training
data = Corpus.of(load_text("stories"))
V, width, length = data.tokenizer.vocab_size, 64, 32


class SmallGPT(nn.Module):
    def __init__(self, n_head):
        super().__init__()
        self.letter = nn.Embedding(V, width)
        self.position = nn.Embedding(length, width)
        self.attention = MultiHeadAttention(width, n_head)
        self.out = nn.Linear(width, V)

    def forward(self, ids):  # (B, 32)
        x = self.letter(ids) + self.position.weight
        return self.out(self.attention(x, is_causal=True))


def loss_of(model, ids, targets):
    return F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())


def train(model, generator, steps):
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 0.01 * (1 - step / steps)
        batch = get_batch(data.train, length, 16, generator)
        optimizer.zero_grad()
        loss_of(model, *batch).backward()
        optimizer.step()


# %% tags=["long:300"]
held_out = get_batch(
    data.val, length, 200, torch.Generator().manual_seed(9)
)
losses, models = torch.zeros(4, 3), {}
for row, n_head in enumerate(
    tqdm((1, 2, 4, 8), bar_format="training {bar}")
):
    for seed in range(3):
        torch.manual_seed(seed)
        models[n_head] = SmallGPT(n_head)
        generator = torch.Generator().manual_seed(seed)
        train(models[n_head], generator, steps=300)
        with torch.no_grad():
            losses[row, seed] = loss_of(models[n_head], *held_out)

# %% tags=["folded"]
# Table: the loss on held-out stories, in nats per letter
print("n_head  head_size  parameters   loss with seed 0, 1, 2")
for (n_head, model), row in zip(models.items(), losses.tolist()):
    size = sum(p.numel() for p in model.parameters())
    each = "  ".join(f"{loss:.2f}" for loss in row)
    print(f"{n_head:6}  {width // n_head:9}  {size:10}   {each}")
gains = losses[:-1] - losses[1:]  # of each doubling, for each seed
assert (gains[:2] > 0).all()  # from 1 to 2, and from 2 to 4
assert (gains[0] > 2 * gains[1]).all()
assert (gains[2].abs() < 0.04).all()  # from 4 to 8, hardly anything

# %% [markdown]
# The loss falls without a single new parameter. Most of the drop comes with the second head and a little more with the next two, but from 4 to 8 almost nothing changes. The order of 1, 2 and 4 is the same for all three seeds. So here several patterns are worth more than one wide head. But this model has nothing else. In a GPT, what the heads find is added to the token, and a feed-forward network follows. With both, one head reached 0.35<!--given--> and four 0.28<!--given-->, a much smaller gain. (The fold below shows when it disappears.)
#
# And what are the patterns? Here is where the model with four heads looks after “Poor” and a space.

# %% tags=["folded"]
# Picture: where the last letter looks, in each of four heads
prompt = "Kind Ben gave poor Sam a drum at the farm. Who got it? Poor "[
    -length:
]
with torch.no_grad(), record_weights() as kept:
    models[4](data.tokenizer.encode(prompt)[None])
rows = kept[0][0, :, -1]  # (4, 32)
near = rows[:, -5:-1].sum(dim=-1)  # the weight on "Poor"
spaces = rows[:, [letter == " " for letter in prompt]].sum(dim=-1)
assert ((near > 0.8) | (spaces > 0.8)).all()
assert (near > 0.8).sum() == 2
picture(
    *(
        Text(f"head {head}", prompt, row, limit=0.5, label="weight")
        for head, row in enumerate(rows)
    ),
    alt="The last 32 letters, shaded by the weights of each of four heads. "
    "Two heads look at the word Poor, and two at spaces.",
)

# %% [markdown]
# Two of the heads look at the last word, “Poor”. The other two look at spaces, where words begin. And no head looks at a name, since there's none in these 32 letters.
#
# ### More: does a GPT need several heads?
#
# The model above leaves out three things that a GPT has. It doesn't add what the heads find to the token (rung {query_key_value}), so even the newest letter can be read only through the weights. No feed-forward network follows the heads, and nothing is normalized. We put them in one at a time, and trained each model with three seeds. Here are the mean losses, first after the 300<!--given--> steps from above, and then after 1000<!--given--> steps.
#
# | the model | 1 head, 300<!--given--> steps | 4 heads, 300<!--given--> steps | 1 head, 1000<!--given--> steps | 4 heads, 1000<!--given--> steps |
# | --- | --- | --- | --- | --- |
# | as above | 0.69<!--given--> | 0.33<!--given--> | 0.42<!--given--> | 0.27<!--given--> |
# | what the heads find is added | 0.43<!--given--> | 0.31<!--given--> | 0.33<!--given--> | 0.27<!--given--> |
# | and a feed-forward network | 0.35<!--given--> | 0.28<!--given--> | 0.32<!--given--> | 0.26<!--given--> |
# | and everything normalized (rung {bigram_to_gpt}) | 0.30<!--given--> | 0.28<!--given--> | 0.26<!--given--> | 0.26<!--given--> |
#
# After 300<!--given--> steps, each addition has made the gain smaller, and in the last row it's gone after 1000<!--given-->. So on a task this easy, several heads help a model learn faster, but a single head also gets there if the rest of the model can make up for it. On harder tasks the gain can remain. In the transformer of 2017<!--given-->, which has all of these parts, one head translated a little worse than eight (the numbers are at the end of this rung).
#
# ### More: smaller and larger steps, and 64 heads
#
# Would the losses differ with smaller or larger steps? We also trained with steps about a third as large, and with steps three times as large. One head was the worst each time, with every seed. Whether 2, 4 or 8 heads are best depends on the step size, and it'll differ in other models. At the far end, 64 heads of a single channel had a loss of about 0.36<!--given-->.
#
# ## Explore
#
# **What does a head lose when it has too many jobs, and what does it lose when it has too few channels?**
#
# The text is “the cat sat”. We wrote its queries and keys by hand, for sixteen jobs of 4 channels each, such as finding the previous character, the vowels or the latest space. You decide how the channels are split. On the left are the maps of all heads, and on the right is one row of each map. (The “kinds” are vowel, consonant and space. For “what followed this letter earlier”, we put the preceding letter into each key, which usually takes another head below this one.)
#
# Start at 16 heads, one for each job, and point at a map to read its job. Then go down to 1, and up to 64.

# %% tags=["folded"]
# Explorer: 64 channels split among the heads
explore("multi_head")

# %% [markdown]
# With fewer than 16 heads, jobs have to share a softmax, so most maps become compromises. With more than 16, a job that needs several channels is split between heads, and only jobs that need a single channel survive. (Smaller heads also divide their scores by a smaller √head_size, which makes their weights sharper.)
#
# ## Break it
#
# Here is a module with the wrong `view`. If you didn't know about the bug, which test would catch it?


# %%
def almost_multi_head(x, layers, project, n_head):
    B, T, C = x.shape
    q, k, v = (layer(x).view(B, n_head, T, C // n_head) for layer in layers)
    output, weights = attention(q, k, v, causal_mask(T))
    output = output.transpose(1, 2).reshape(B, T, C)
    return project(output), weights


torch.manual_seed(0)
*layers, project = [nn.Linear(8, 8, bias=False) for _ in range(4)]
x = torch.randn(1, 6, 8)
output, weights = almost_multi_head(x, layers, project, n_head=2)
output.shape, weights.shape

# %% tags=["folded"]
# Question
ask("find_the_split_bug")

# %% tags=["folded"]
# Picture: the leak probe of the wrong module
moved = leak_probe(
    lambda x: almost_multi_head(x, layers, project, n_head=2)[0], x
)
assert moved.triu(diagonal=1).any()
assert moved[0, 3]
picture(
    Heatmap("moved", moved, "output that moves", "input that is nudged"),
    alt="A leak probe of six tokens. Entries above the diagonal are lit, "
    "among them output 0 with input 3.",
)

# %% [markdown]
# Head 0 got tokens 0 to 2 and head 1 got tokens 3 to 5, so the mask hides rows that aren't positions any more. The merge then puts row 0 of both heads into output 0, so output 0 depends on token 3. The leak probe of rung {bag_of_words} shows it at once.
#
# ### More: two related bugs, and when PyTorch refuses
#
# What if only the merge lacks its transpose, or both split and merge do? If both lack it, nothing leaks from the future, but later tokens don't see the first ones either. So compare the *whole* probe with the lower triangle, or compare the outputs with what a list of heads returns.


# %% tags=["folded"]
# Check and picture: the three bugs, their leak probes, a list of heads
torch.testing.assert_close(weights.sum(dim=-1), torch.ones(1, 2, 6))
assert not weights.triu(diagonal=1).any()


def multi_head(x, split, merge):
    q, k, v = (split(layer(x)) for layer in layers)
    return project(merge(attention(q, k, v, causal_mask(x.shape[1]))[0]))


def probe(split, merge):
    return leak_probe(lambda x: multi_head(x, split, merge), x)


splits = (
    lambda x: x.view(1, 6, 2, 4).transpose(1, 2),
    lambda x: x.view(1, 2, 6, 4),
)
merges = (
    lambda x: x.transpose(1, 2).reshape(1, 6, 8),
    lambda x: x.reshape(1, 6, 8),
)
right = probe(splits[0], merges[0])
no_split, no_merge = (
    probe(splits[1], merges[0]),
    probe(splits[0], merges[1]),
)
neither = probe(splits[1], merges[1])

labels = "output that moves", "input that is nudged"

assert torch.equal(right, causal_mask(6))
assert no_split.triu(diagonal=1).any()
assert no_split[0, 3]
assert no_merge.triu(diagonal=1).any()
assert not neither.triu(diagonal=1).any()
assert not neither[3:, :3].any()


def one_by_one(x):
    parts = [layer(x).split(4, dim=-1) for layer in layers]
    outputs = [
        attention(q, k, v, causal_mask(6))[0] for q, k, v in zip(*parts)
    ]
    return project(torch.cat(outputs, dim=-1))


torch.testing.assert_close(
    multi_head(x, splits[0], merges[0]), one_by_one(x)
)
assert not torch.allclose(
    multi_head(x, splits[1], merges[0]), one_by_one(x)
)
assert not torch.allclose(
    multi_head(x, splits[0], merges[1]), one_by_one(x)
)
assert not torch.allclose(
    multi_head(x, splits[1], merges[1]), one_by_one(x)
)

picture(
    Heatmap("split without transpose", no_split, *labels),
    Heatmap("merge without transpose", no_merge, *labels),
    Heatmap("both without", neither, *labels),
    alt="Three leak probes. The split without a transpose and the merge "
    "without one both light up entries above the diagonal. With both, "
    "two separate triangles remain: later tokens never see the first "
    "three.",
)

# %% [markdown]
# In the fused module, q is a slice of wider rows, so PyTorch refuses the wrong `view` there. But its message suggests `reshape`, which runs and gives the wrong result.

# %%
q = fused.c_attn(torch.randn(1, 6, 32)).split(32, dim=-1)[0]
try:
    q.view(1, 4, 6, 8)
except RuntimeError as error:
    print("refused, and reshape suggested:", "reshape" in str(error))
q.reshape(1, 4, 6, 8).shape

# %% [markdown]
# ## Exercises
#
# ### 1. Split
#
# <!--task split_heads-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("split_heads")


# %%
def my_split(x, n_head):
    raise NotImplementedError


check("split_heads", my_split)

# %% [markdown]
# ### 2. Merge
#
# <!--task merge_heads-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("merge_heads")


# %%
def my_merge(heads):
    raise NotImplementedError


check("merge_heads", my_merge)

# %% [markdown]
# ### 3. Multi-head attention
#
# <!--task multi_head_forward-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("multi_head_forward")


# %%
def my_multi_head(x, W_qkv, W_proj, n_head, mask):
    raise NotImplementedError


check("multi_head_forward", my_multi_head)

# %% [markdown]
# ### 4. Fuse
#
# <!--task fuse_heads-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("fuse_heads")


# %%
def my_fuse(W_q, W_k, W_v):
    raise NotImplementedError


check("fuse_heads", my_fuse)

# %% [markdown]
# ## More: in the wild
#
# - "Attention Is All You Need" (Vaswani et al. 2017, section 3.2.2) uses h = 8 heads at d_model = 512<!--given-->, and calls the output projection W^O. Its reason for several heads is that a single head averages, which gets in the way of attending to different positions at once. In its table 3 (rows A), with the same amount of computation, one head was 0.9<!--given--> BLEU worse than eight, and 32 heads were 0.4<!--given--> worse than 16. (BLEU is a score for translations.)
# - nanoGPT's `CausalSelfAttention` is our fused module with a causal mask built in, and with dropout. `c_attn` and `c_proj` are its names for the two linear layers.
# - `nn.MultiheadAttention` keeps `in_proj_weight`, with queries, keys and values in this order, and `out_proj`. The first dimension of its inputs is time unless `batch_first=True`.
# - Raschka's article mentions the projection in words, while his `MultiHeadAttentionWrapper` ends with `torch.cat`.
# - Heads may also share. In **multi-query attention** (Shazeer 2019) all heads use the same set of keys and values, while in **grouped-query attention** (Ainslie et al. 2023) each group of heads has its own set. Either way, the KV cache of rung {cross_and_causal} gets smaller.
#
# ## Where we are
#
# ![The transformer as a drawing. Highlighted: what this rung builds (all heads, which together are attention).](images/transformer_multi_head.svg)
#
# <!--step-->
#
# With four heads the model spells nearly every word, but it still guesses who got the drum. More heads side by side won't change that, because finding the name after “poor” takes heads that build on what other heads have found, as in rung {bigram_to_gpt}.
#
# ## Three sentences to remember
#
# 1. One softmax makes one pattern of weights, so several heads can look for several things at once.
# 2. The heads share the width, head_size = n_embd / n_head, so the number of parameters stays the same.
# 3. You split with `view(B, T, n_head, head_size).transpose(1, 2)`, merge with `transpose(1, 2).reshape(B, T, C)`, and let the output projection mix what the heads found.
#
# Next: [rung {bigram_to_gpt}]({bigram_to_gpt}.ipynb), where these heads become part of a GPT that writes.
#
# <!--neighbours-->
