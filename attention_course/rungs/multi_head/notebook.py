# %% [markdown]
# # Rung {multi_head}: multi-head attention
#
# <!--ladder-->
#
# **You will build** many small heads in place of one large one, first as a list, then all of them at once. It is the attention that GPT uses, and you will compare it with PyTorch's own.
#
# <!--staircase-->
#
# One head has one softmax, so at each moment it makes one choice. But to go on with a story, a letter needs several things at once, such as the letters before it, the question that was asked, and the place where the answer is.

# %% tags=["hero", "folded"]
# The opening picture: split one head into two
from attention_course.heroes import hero

hero("multi_head")

# %% [markdown]
# **You need** [rung {query_key_value}]({query_key_value}.ipynb) for a head, [rung {cross_and_causal}]({cross_and_causal}.ipynb) for masks and for queries from elsewhere. `view` and `transpose` of tensors.
#
# <!--time-->
#
# ![The transformer as a drawing. Lit is what this rung builds: all heads, which together are attention.](images/transformer_multi_head.svg)

# %% [markdown]
# ## The question
#
# A word often needs two things at once: which noun does it belong to, and what came right before it? The weights of one head sum to 1, so it makes one mixture. What can a token do if it has two questions?

# %% tags=["folded"]
# Imports
import time

import torch
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
from attention_course.fills import fill
from attention_course.plots import Bars, Heatmap, Lines, picture
from attention_course.progress import progress
from attention_course.questions import ask

torch.set_printoptions(precision=3, sci_mode=False)

progress("multi_head")

# %% [markdown]
# ## Two cards
#
# Four friends hold a card each, with a number from 0 to 9. A question names two of them, and wants the cards of both, in this order.

# %% tags=["folded"]
# Question
ask("two_cards_one_softmax")

# %%
cards = torch.tensor([[2.0, 6.0], [6.0, 2.0], [4.0, 4.0], [3.0, 3.0]])
print(cards @ torch.tensor([0.5, 0.5]))
print(cards @ torch.tensor([0.75, 0.25]))

# %% [markdown]
# With equal weights, the first three pairs give one mixture, {{cards[0].mean():.0f}}. The weights ¾ and ¼ are no better: 2 and 6 give {{cards[0] @ torch.tensor([0.75, 0.25]):.0f}}, and so do 3 and 3.
#
# ## Would more channels help?
#
# A value has many channels, so let each card have one of its own. Here are the cards 2 and 6, with weights 0.7 and 0.3.

# %%
v = torch.eye(10)  # card c is row c
mixture = 0.7 * v[2] + 0.3 * v[6]
mixture, mixture.topk(2).indices

# %% [markdown]
# Now `topk` reads both cards, and in their order. But a linear layer after the head, which two of our models below have, cannot read both, as long as the two weights do not depend on the cards. Let the first card get a fixed share s, and the second 1 − s. For each answer, the linear layer gives a logit for every card; call the logit of card 2 minus that of card 6 the **lead** of 2 over 6 (in papers, a logit difference).
#
# 1. On two 2s both answers are 2, on two 6s both are 6. So either lead is larger on mix(2, 2) than on mix(6, 6), where mix(a, b) = s · v_a + (1 − s) · v_b is the mixture of the cards a and b, with values v_a and v_b.
# 2. For any values and any share, mix(2, 6) − mix(6, 2) = (2s − 1) · (v_2 − v_6) = (2s − 1) · (mix(2, 2) − mix(6, 6)). A linear layer keeps this equation. So turning (6, 2) into (2, 6) changes either lead by 2s − 1 times a positive number.
# 3. The first answer needs its lead to rise: 2s − 1 must be positive. The second needs its lead to fall: 2s − 1 must be negative.
#
# No share satisfies both.


# %% tags=["folded"]
# Check: the equation, for five shares
def mix(first, second, s):
    return s * v[first] + (1 - s) * v[second]


torch.manual_seed(0)
v = torch.randn(10, 32)
for s in (0.0, 0.3, 0.5, 0.7, 1.0):
    torch.testing.assert_close(
        mix(2, 6, s) - mix(6, 2, s),
        (2 * s - 1) * (mix(2, 2, s) - mix(6, 6, s)),
    )

# %% [markdown]
# Mind what the proof asks for. The shares must not depend on the cards, and everything behind the head must be linear. Behind the attention of rung {cross_and_causal} stood a feed-forward network, which is not linear. Does that make a difference?
#
# ## Train three models
#
# The question is one token: the sum of two embeddings, one for each name. It looks at four tokens, each the embedding of a friend plus that of a card: the cross-attention of rung {cross_and_causal}. One model has one head with head_size 32, another has two heads with head_size 16, and their outputs are put side by side (concatenated). Both have `n_embd` = 32 and a linear layer behind the heads, so they have the same number of parameters.
#
# The third model also has a single head, but behind it comes a feed-forward network like that of rung {cross_and_causal}, from 32 channels to 128 and, after a ReLU, to the answers. The ReLU is what matters here: without it, the two linear layers would be one linear layer with more parameters, and the proof would hold for it. Each model trains for a few seconds.


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
        outputs, weights = zip(
            *(head(question, table) for head in self.heads)
        )
        both = self.answer(torch.cat(outputs, dim=-1))  # (B, 1, 20)
        return both.view(-1, 2, 10), torch.cat(weights, dim=1)


# %% tags=["folded", "long:1000"]
# Data and training: draw questions, train on 1000 batches
sizes = [
    sum(p.numel() for p in Cards(n_head).parameters()) for n_head in (1, 2)
]
assert sizes[0] == sizes[1]


def draw_questions(B):
    cards = torch.randint(10, (B, 4))
    asked = torch.rand(B, 4).argsort(dim=-1)[:, :2]  # two different friends
    answers = cards.gather(1, asked)
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
# New questions: how often is the first answer right, the second, and both?


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
    "less than four questions in ten. With two heads, nearly always, and "
    "so too with one head and a feed-forward network behind it.",
)

# %% tags=["folded"]
# Check: both answers, by each model; equal cards and others
assert scores[0][2] < 0.4
assert scores[1][2] > 0.95
assert scores[2][2] > 0.95

# one head on two equal cards, and on others
answers = test_questions[2]
equal = answers[:, 0] == answers[:, 1]
both_right = share_right(one_head)[:, 2].float()
assert both_right[equal].mean() > 0.9
assert both_right[~equal].mean() < 0.2

# %% [markdown]
# With a linear layer behind it, one head gets both answers right for fewer than four questions in ten. It depends on the cards: where the two are equal, the order does not matter, and one head gets more than nine out of ten right; where they differ, fewer than two in ten. Two heads get nearly all of them. But so does one head with the feed-forward network.
#
# This is one run each, and here luck plays a part. We trained these two models with twelve seeds. Two heads got all the answers right every time. The single head with the feed-forward network did so eight times; in the other four runs it gave all its weight to one of the two friends and was stuck there.
#
# Where did the heads look? Six questions, each pair in both orders:

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
    "its weight between the two who are asked. Of two heads, each "
    "looks at one of the two, and they never look at the same. The only "
    "head before a ReLU looks at both, at one of them much more.",
)

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
# The only head before the linear layer finds both friends, and passes on one mixture of their cards. One of the two has a slightly larger share on average, which is enough to answer for that one, as step 3 allows. The shares hardly depend on the cards, so the proof applies.
#
# Two heads share the work: one follows the first name, the other the second.
#
# How does a single head manage with the ReLU? Its shares hardly depend on the cards either, but one of them is more than twice the other. That is how you pack two digits into one number.

# %%
hands = torch.tensor([[2.0, 6.0], [6.0, 2.0], [4.0, 4.0], [3.0, 3.0]])
11 * hands @ torch.tensor([10 / 11, 1 / 11])

# %% [markdown]
# With these shares no two hands get the same mixture. To take the digits apart again is not linear, so the linear layer could not do it, but the network with the ReLU can.
#
# ## Why several heads, then?
#
# Two cards alone do not need them, because in every GPT a feed-forward network follows the attention. They may have made training more reliable; twelve seeds are too few to be sure. But packing gets harder with each further thing to carry, and one set of scores has to find all of them. So the better reason is that a head has only one pattern to look by. If a word needs the word before it *and* the place where its own name came up earlier, two heads can look for one each, and neither has to share its softmax.
#
# How much that helps has to be measured. When Vaswani et al. (2017, table 3, rows A) changed the number of heads and kept the amount of computation the same, one head was 0.9<!--given--> BLEU worse than eight (BLEU is a score for translations). More is not always better: 32 heads were 0.4<!--given--> worse than 16.
#
# ## Build: a list of heads
#
# Here are the six tokens of the article of rung {query_key_value}, and its four heads. Each has queries and keys of 2 channels, and a value of 1.

# %%
torch.manual_seed(123)
x = nn.Embedding(50_000, 3)(torch.tensor([0, 4, 5, 2, 1, 3])).detach()
heads = [Head(3, 2, d_v=1) for _ in range(4)]

# %% tags=["folded"]
# Data: the numbers of the article, by torch.rand
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
# Check: the numbers as the article prints them
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
# These are the article's numbers.
#
# ## From here on, the width is shared
#
# In the article each head brings its own width, and the output grows with the number of heads: n_head × d_v channels. With 3 channels in and 4 out, one such module cannot follow another.
#
# From here on, a token goes out with as many channels as it came in with, n_embd, and the heads *share* them:
#
# head_size = n_embd / n_head
#
# More heads then means smaller heads, and n_head has to divide n_embd.

# %%
[head_size_of(64, n_head) for n_head in (1, 2, 4, 16)]

# %% [markdown]
# ## The output projection
#
# Concatenation keeps the heads apart: head 0 writes to channel 0 of the output alone. So one more linear layer follows, the **output projection**, which mixes all channels: through it, every head can write to every channel of the token. Each head has its own columns of it, and the output is the sum of what all heads write.

# %%
torch.manual_seed(0)
project = nn.Linear(4, 4, bias=False)
parts = project.weight.split(1, dim=1)  # four columns, one for each head
written = [out @ part.T for out, part in zip(outputs, parts)]  # (6, 4) each
torch.testing.assert_close(sum(written), project(wrapped))

# %% [markdown]
# Heads, `cat`, projection: that is multi-head attention.


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
# Heads come to differ because they start differently. Two that start alike, and that the projection treats alike, get equal gradients at every step, and would stay one head for ever.

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
# ## Build: all heads in one product
#
# The list computes three small matrix products for each head. All have the same `x` on the left, so their matrices can be stacked: all queries, then all keys, then all values. One linear layer from C to 3C does the work of twelve: they are **fused** into it.

# %%
layers = [
    getattr(head, part)
    for part in ("query", "key", "value")
    for head in heads.heads
]
assert len(layers) == 12
joined = torch.cat([layer.weight for layer in layers])  # (96, 32)
one_by_one = torch.cat([layer(x) for layer in layers], dim=-1)
torch.testing.assert_close(x @ joined.T, one_by_one)

# %% [markdown]
# What comes out is (B, T, 3C). `split` cuts it into queries, keys and values, each (B, T, C), with the channels of head 0 first. To let every head work at the same time, we need (B, n_head, T, head_size): a (T, head_size) table for each head. What is cut is q, k and v, not the token: each head's matrices read all C channels of it.

# %% tags=["folded"]
# Question
ask("who_gets_row_zero")

# %%
q = torch.tensor([[0, 1, 2, 3], [10, 11, 12, 13]])  # (T, C) = (2, 4)
q.view(2, 2, 2)[0]  # head 0?

# %% [markdown]
# `view` moves no number. It reads them in the order in which they lie in memory, token after token. So keep T in front, and cut only the last dimension: C becomes (n_head, head_size). Then the heads are in the middle, and `transpose` brings them forward. Here are the queries of five tokens; the tens say which token a number belongs to.

# %%
tens = 10 * torch.arange(5)[:, None] + torch.arange(4)  # (T, C) = (5, 4)
wrong = tens.view(2, 5, 2)
right = tens.view(5, 2, 2).transpose(0, 1)  # (n_head, T, head_size)

# %% tags=["folded"]
# Picture: head 0, by view alone and with the transpose
picture(
    Heatmap("q", tens, "token", "channel"),
    Heatmap("view: head 0", wrong[0], "row", "channel", limit=43),
    Heatmap("transposed: head 0", right[0], "row", "channel", limit=43),
    alt="Queries of five tokens, with four channels. With view alone, head "
    "0 holds queries 0 and 1 and half of query 2. With the transpose "
    "it holds the first two channels of all five queries.",
)

# %% [markdown]
# The way back is the reverse: transpose, then merge. A head's output is newly computed, and after its transpose no longer **contiguous**: its numbers do not lie in memory in reading order. `view` refuses, and `reshape` copies them.

# %%
back = right.contiguous().transpose(0, 1)  # a copy, as if newly computed
try:
    back.view(5, 4)
except RuntimeError:
    print("refused")
assert torch.equal(back.reshape(5, 4), tens)

# %% [markdown]
# Here is the whole module, the one that rung {bigram_to_gpt} uses. It returns the output and no weights. `attend`, a function of the package, returns the output of `attention`; where that is faster, it calls `F.scaled_dot_product_attention`. `is_causal=True` stands for the causal mask, aligned at the last key, so it is not the trap of rung {cross_and_causal}.


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
            # (B, 1, 1 or T, T): one mask per text, for every head
            mask = mask[:, None]
        output = attend(q, k, v, mask, is_causal)
        return self.c_proj(output.transpose(1, 2).reshape(B, T, C))


# %% [markdown]
# `attention` did not have to change: it works on the last two dimensions, and all others are batch dimensions. A mask of shape (T, T) broadcasts over the heads; a mask for each sequence gets one more dimension for them.
#
# To see the weights, run the module inside `with record_weights() as kept:`. Each call then appends a tensor of shape (B, n_head, T, T) to the list `kept`.
#
# ## Prove
#
# To compare the two, copy the parameters of the list into the fused module.


# %%
def fuse(heads):
    # of the same dtype and on the same device
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

# %% [markdown]
# The package has these two classes, and `fuse`. Its `to_torch` copies the parameters into PyTorch's `nn.MultiheadAttention`. Four ways, several sizes, with and without a mask:

# %%
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
# Equal outputs are half of the proof. For training, the gradients have to agree too. They do, and so do the weights. (PyTorch averages these over the heads unless `average_attn_weights=False`.)

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
heads.zero_grad()  # gradients add up: those of an earlier run would stay
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
# ## What does a head cost?

# %% tags=["folded"]
# Question
ask("how_many_parameters")

# %%
for n_head in (1, 4, 16):
    layer = MultiHeadAttention(64, n_head)
    count = sum(p.numel() for p in layer.parameters())
    print(n_head, layer.head_size, count)

# %% [markdown]
# Four matrices of 64 × 64: queries, keys, values, projection. That is 4 · 64 · 64 = {{count}}.
#
# Time and memory depend on the implementation. Here are four: a loop over heads and queries, the list, the fused module with our `attention`, and with `F.scaled_dot_product_attention` (SDPA). For memory, we count the numbers that PyTorch keeps from the forward pass for backpropagation.


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
    assert output.requires_grad  # the output holds on to all that was kept
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
# One product for all heads avoids the overhead of many small ones, which matters most for short sequences. It does not save memory: every head's T × T weights are kept, and so three lines coincide. SDPA picks a fused kernel here, one compiled routine for all steps: **FlashAttention** (Dao et al. 2022). It computes the same output piece by piece and never stores the weights (backpropagation computes them again), so its memory grows like T, not like T². (With a mask tensor, the mask's own T² entries are kept too, once for all heads. Where PyTorch has no such kernel, the weights of every head are kept.)

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
# ## Dropout
#
# **Dropout** keeps a model from relying on any one number. In training it sets each number to 0 with probability p, and multiplies those that are left by 1/(1 − p), so that the mean stays the same. nanoGPT applies it to the embeddings, to what attention and feed-forward return, and to the attention weights. Here are a thousand rows of four equal weights, with p = ½.

# %%
torch.manual_seed(0)
dropout = nn.Dropout(0.5)
uniform = torch.full((1000, 4), 0.25)
dropped = dropout(uniform)
assert dropped.unique().tolist() == [0.0, 0.5]
assert (dropped.sum(dim=-1).mean() - 1).abs() < 0.1

# %% [markdown]
# A weight of 0.25 becomes 0 or {{dropped.max():.1f}}, and a row sums to 1 only on average. After training, `eval()` switches dropout off. `F.scaled_dot_product_attention` has no such switch: its `dropout_p` always applies, so a module passes 0 outside training.

# %% tags=["folded"]
# Check: eval() switches the module off, and not the function
assert torch.equal(dropout.eval()(uniform), uniform)
twice = [
    F.scaled_dot_product_attention(x, x, x, dropout_p=0.25)
    for _ in range(2)
]
assert not torch.equal(*twice)

# %% [markdown]
# ## Explore
#
# **What does a head lose when it has too many jobs, and what when it has too few channels?**
#
# The text is “the cat sat”. Its queries and keys have 64 channels, written by hand: sixteen jobs with 4 channels each. The slider decides how they are split. On the left are the maps of all heads, on the right is one row of each map. ␣ is a space, and the “kinds” are vowel, consonant and space.
#
# The slider starts at 16 heads, one for each job. Point at a map to read which. Then go down to 1, and up to 64.

# %% tags=["folded"]
# Explorer: 64 channels split among the heads
explore("multi_head")

# %% [markdown]
# With fewer than 16 heads, jobs share a softmax, and most maps are compromises. With more, jobs that need several channels are split between heads. One that needs a single channel survives, beside heads with nothing to do, which look at all keys alike. The scale plays a part too: smaller heads divide their scores by a smaller √head_size, so the same dot product makes sharper weights.
#
# ## Break it
#
# Here is the bug from above in a whole module, with one linear layer each for queries, keys and values.


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

# %% [markdown]
# It passes two cheap checks: each row of weights sums to 1, and nothing lies above the diagonal. But its `view` has no `transpose`: head 0 got tokens 0 to 2, head 1 tokens 3 to 5, and the mask hides rows that are not positions any more. The merge then puts row 0 of both heads into output 0: half of it comes from token 3. The leak probe sees that.
#
# Two related bugs: only the merge lacks its transpose, or split and merge both lack it. If both do, nothing leaks from the future, but later tokens do not see the first ones either. So compare the *whole* probe with the lower triangle, or the outputs with those of a list of heads.


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
# In the fused module, q is a slice of wider rows, and there PyTorch refuses the wrong `view`. Its message suggests `reshape`, which would go through and be wrong.

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
# ## In the wild
#
# - "Attention Is All You Need" (Vaswani et al. 2017, section 3.2.2) uses h = 8 heads at d_model = 512<!--given-->, and calls the output projection W^O. Its reason for several heads is that a single one averages, which inhibits attending to different positions at once.
# - nanoGPT's `CausalSelfAttention` is our fused module with a causal mask built in, and with dropout. `c_attn` and `c_proj` are its names.
# - `nn.MultiheadAttention` keeps `in_proj_weight`, queries, keys and values in this order, and `out_proj`. The first dimension of its inputs is time unless `batch_first=True`.
# - The article of rung {query_key_value} names the projection in words, but its `MultiHeadAttentionWrapper` ends with `torch.cat`.
# - Heads may also share: in **multi-query attention** (Shazeer 2019) all heads use one set of keys and values, and in **grouped-query attention** (Ainslie et al. 2023) each group of heads has one. That makes the KV cache smaller (rung {cross_and_causal}).
#
# ## Three sentences to remember
#
# 1. One softmax makes one pattern of weights, and one mixture. Several heads can look for several things at once.
# 2. The heads share the width: head_size = n_embd / n_head, and the number of parameters stays the same.
# 3. Split with `view(B, T, n_head, head_size).transpose(1, 2)`, merge with `transpose(1, 2).reshape(B, T, C)`, and let the output projection mix what the heads found.
#
# Next: [rung {bigram_to_gpt}]({bigram_to_gpt}.ipynb), where these heads become part of a GPT that writes.
#
# <!--neighbours-->
