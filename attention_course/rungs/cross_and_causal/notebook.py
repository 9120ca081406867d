# %% [markdown]
# # Rung {cross_and_causal}: cross and causal
#
# <!--ladder-->
#
# **You will build** attention from one sequence to another, and with it a small encoder-decoder that rewrites dates. On the way: masks of several kinds, a tool that finds leaks, and what an attention map can tell you.

# %% tags=["hero", "folded"]
# The opening picture: type a date, cover a part
from attention_course.heroes import hero

hero("cross_and_causal")

# %% [markdown]
# **You need** [rung {query_key_value}]({query_key_value}.ipynb) for a head, and [rung {scaling_variance}]({scaling_variance}.ipynb) for logits, the loss, the optimizer and the Jacobian.
#
# <!--time-->
#
# ![The transformer as a drawing. Lit is what this rung builds: the context, from which keys and values may come.](images/transformer_cross_and_causal.svg)

# %% [markdown]
# ## The question
#
# A translator has read the whole sentence in one language, and writes the other one word by word. While reading she may look ahead, while writing she cannot. And at each word she looks back at the sentence she read. How much of that is one head of rung {query_key_value}, and what has to change?

# %% tags=["folded", "name:imports"]
# Imports
from datetime import date

import torch
import torch.nn as nn
import torch.nn.functional as F
from tqdm.auto import tqdm

from attention_course.attention import (
    Head,
    attention,
    causal_mask,
    padding_mask,
)
from attention_course.exercises import check
from attention_course.explorers import explore
from attention_course.fills import fill
from attention_course.plots import Heatmap, picture
from attention_course.progress import progress
from attention_course.questions import ask

torch.set_printoptions(precision=3, sci_mode=False)

progress("cross_and_causal")

# %% [markdown]
# ## One line
#
# Here is one head on T = 6 tokens that look at one another: **causal self-attention**, as in a **decoder**, the part of a model that writes. Each query sees itself and the past.

# %%
torch.manual_seed(0)
T, C = 6, 4
x = torch.randn(T, C)
head = Head(n_embd=C, head_size=4)


def decode(x):
    q, k, v = head.query(x), head.key(x), head.value(x)
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    future = ~causal_mask(len(x))
    scores = scores.masked_fill(future, float("-inf"))  # delete this line
    weights = torch.softmax(scores, dim=-1)
    return weights @ v, weights


# %% tags=["folded"]
# Question
ask("delete_one_line")


# %% tags=["folded"]
# Picture: the weights of decode, and of encode, which lacks the line
def encode(x):
    q, k, v = head.query(x), head.key(x), head.value(x)
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    weights = torch.softmax(scores, dim=-1)
    return weights @ v, weights


picture(
    Heatmap(
        "with the line: decoder", decode(x)[1], "query t", "key s", limit=1
    ),
    Heatmap("without: encoder", encode(x)[1], "query t", "key s", limit=1),
    alt="Two tables of weights. The decoder's is a lower triangle, the "
    "encoder's is full. Their last rows are the same.",
)

# %% tags=["folded"]
# Check: the last output stays, the others move
torch.testing.assert_close(decode(x)[0][-1], encode(x)[0][-1])
assert ((decode(x)[0] - encode(x)[0]).abs().amax(dim=-1)[:-1] > 1e-3).all()

# with a second head on top, every output moves
second = Head(n_embd=C, head_size=4)
masked, unmasked = (
    second(f(x)[0], causal_mask(T))[0] for f in (decode, encode)
)
assert ((masked - unmasked).abs().amax(dim=-1) > 1e-3).all()

# %% [markdown]
# Without the line it is the attention of an **encoder**, the part that reads: every token sees the whole text, so attention is **bidirectional**. The last query sees every token either way, so its output stays. With a second head on top it would not: the earlier outputs have changed, and the last query of the second head looks at those. So a decoder that was trained with the mask also needs it while it generates, even though only its last output is used then, as long as it recomputes the earlier positions; with a cache (below), and one new token at a time, it does not.
#
# Nothing else differs: pass `Head` a mask, or leave it out.

# %% tags=["lesson"]
torch.testing.assert_close(head(x, causal_mask(T))[0], decode(x)[0])
torch.testing.assert_close(head(x)[0], encode(x)[0])

# %% [markdown]
# ## A gallery of masks
#
# A mask says which query may look at which key. With a window (rung {tril_matmul}) a query sees only the last few tokens. A **prefix** is a part at the start that every query sees, such as a question, while the answer after it is written from left to right. **Padding** fills up the short sequences of a batch, and no query should look at it. Its mask has shape (B, 1, T): one row, which broadcasts to all queries of a sequence.


# %%
def window_mask(T_q, window, T_k=None, *, device=None):
    mask = causal_mask(T_q, T_k, device=device)
    return mask & ~mask.tril(mask.shape[1] - T_q - window)


def prefix_mask(T_q, prefix, T_k=None, *, device=None):
    mask = causal_mask(T_q, T_k, device=device)
    mask[:, :prefix] = True
    return mask


lengths = torch.tensor([4, 6])  # 4 tokens and 2 of padding; 6 tokens
padding = padding_mask(lengths, T)  # (B, 1, T) = (2, 1, 6)

# %% tags=["folded"]
# Picture: padding, window and prefix
picture(
    Heatmap(
        "padding, row 0 of B",
        padding[0].expand(T, T),
        "query t",
        "key s",
        limit=1,
    ),
    Heatmap("window of 3", window_mask(T, 3), "query t", "key s", limit=1),
    Heatmap("prefix of 3", prefix_mask(T, 3), "query t", "key s", limit=1),
    alt="Three masks: four columns of ones and two of zeros; a band of "
    "three ones in each row, up to the diagonal; a lower triangle whose "
    "first three columns are all ones.",
)

# %% [markdown]
# Masks combine with `&`: `both` is the padding mask and the causal one. Padding at the end, as here, lies in the future of each real token, and the causal mask hides it already. To continue several texts at once, the padding is put at the *start*, so that the newest tokens are all in the last column. There the padding mask is needed.

# %% tags=["folded"]
# Check: padding at the end and at the start, with the causal mask
both = causal_mask(T) & padding  # (T, T) & (B, 1, T) is (B, T, T)
real = torch.arange(T) < lengths[:, None]  # (B, T)
assert torch.equal(both[real], causal_mask(T).repeat(2, 1, 1)[real])
assert not torch.equal(both, causal_mask(T).expand(2, T, T))

padded = torch.cat([torch.ones(2, C), x[:4]])  # 2 of padding, then 4 tokens
alone, _ = head(x[:4], causal_mask(4))
hidden = causal_mask(T) & (torch.arange(T) >= 2)
torch.testing.assert_close(head(padded, hidden)[0][2:], alone)
seen = head(padded, causal_mask(T))[0][2:]
assert ((seen - alone).abs().amax(dim=-1) > 1e-3).all()

# %% [markdown]
# A mask hides keys, not queries: a padded query still gets an output. No other token looks at it, but the loss would. `F.cross_entropy` skips each target that equals its `ignore_index`, by default -100.

# %%
logits, targets = torch.randn(2, T, 9), torch.randint(9, (2, T))  # V = 9
ignored = torch.where(real, targets, -100)
loss = F.cross_entropy(logits.flatten(0, 1), ignored.flatten())
torch.testing.assert_close(
    loss, F.cross_entropy(logits[real], targets[real])
)

# %% [markdown]
# ## True means what?
#
# Our masks are True where a query may look. Not every function agrees.

# %% tags=["folded"]
# Question
ask("who_gets_the_opposite")

# %% [markdown]
# | the mask goes to | True means |
# | --- | --- |
# | `attention` of this course | look here |
# | `F.scaled_dot_product_attention` | look here |
# | `scores.masked_fill(mask, ...)` | fill here: hide |
# | `nn.MultiheadAttention` | hide |
# | either of PyTorch's two, as a float mask | nothing: it is added to the scores, 0 to show and −∞ to hide |
#
# `decode` above is the third row. Here is the second, with q = k = v = x, and with a float mask too.

# %%
mask = causal_mask(T)
to_add = torch.zeros(T, T).masked_fill(~mask, float("-inf"))
expected, _ = attention(x, x, x, mask)
for shown in (mask, to_add):
    out = F.scaled_dot_product_attention(x, x, x, attn_mask=shown)
    torch.testing.assert_close(out, expected)

# %% [markdown]
# `nn.MultiheadAttention` has matrices of its own, here set to the identity, so that its queries, keys and values are x as well.

# %%
theirs = nn.MultiheadAttention(C, num_heads=1, bias=False, batch_first=True)
theirs.in_proj_weight.data = torch.eye(C).repeat(3, 1)
theirs.out_proj.weight.data = torch.eye(C)
for hide in (~mask, to_add):
    out, _ = theirs(x, x, x, attn_mask=hide)
    torch.testing.assert_close(out, expected)

# %% [markdown]
# Float masks set a trap. `mask.float()` looks like the same mask, but its ones and zeros are added to the scores, and no key is hidden. With the identity as values, the output *is* the weights: query 0 looks at all six keys. The functions of this course refuse such a mask.

# %%
floats = mask.float()
added = F.scaled_dot_product_attention(x, x, torch.eye(T), attn_mask=floats)
assert (added > 0).all()
print(added[0])
try:
    attention(x, x, x, floats)
except TypeError as error:
    print(error)

# %% [markdown]
# `nn.MultiheadAttention` takes the padding mask separately, as `key_padding_mask`: (B, T_k), True at the padding.

# %%
pair = torch.randn(2, T, C)  # (B, T, C)
hide = {"attn_mask": ~mask, "key_padding_mask": ~padding[:, 0]}
out, _ = theirs(pair, pair, pair, **hide)
torch.testing.assert_close(out, attention(pair, pair, pair, both)[0])

# %% [markdown]
# It also has an option `is_causal`. That is only a hint: "this `attn_mask` is the causal one". A wrong hint may be used in place of the mask: pass a window with this hint and `need_weights=False`, and you get the causal mask instead of the window. And a hint is no substitute for a mask: in training, a call without `attn_mask` is an error, and in evaluation PyTorch may take a faster path that ignores the hint and hides nothing. Pass the mask, and a hint only where it is true.

# %% tags=["folded"]
# Check: a wrong hint replaces the mask, the hint alone hides nothing
window = window_mask(T, 3)
hint = {"attn_mask": ~window, "is_causal": True, "need_weights": False}
out, _ = theirs(pair, pair, pair, **hint)
torch.testing.assert_close(out, attention(pair, pair, pair, mask)[0])

# the faster path wants an even number of heads
two_heads = nn.MultiheadAttention(C, num_heads=2, batch_first=True).eval()
with torch.no_grad():
    hinted, _ = two_heads(pair, pair, pair, is_causal=True)
    unmasked, _ = two_heads(pair, pair, pair)
torch.testing.assert_close(hinted, unmasked)

# %% [markdown]
# ## When T_q is not T_k
#
# When a causal decoder writes one more token, the keys and values of the past stay the same, since no earlier position sees the new one. So it can keep them, in a **KV cache**, and make one query, for the newest token. Of T_q queries and T_k keys, T_q is then 1, and T_k the length of the text so far.
#
# In `F.scaled_dot_product_attention`, `is_causal=True` is not a hint but the mask. Say the text has five tokens, and the last one makes the query.

# %% tags=["folded"]
# Question
ask("one_new_token")

# %%
tokens = x[:5]
F.scaled_dot_product_attention(
    tokens[-1:], tokens, torch.eye(5), is_causal=True
)

# %% [markdown]
# All the weight of the newest token lies on token 0; it sees neither what came since then nor itself. The option aligns the first query with the first key, top left. A decoder with a cache needs the last query aligned with the last key, bottom right. `causal_mask` does that, and then the last two outputs are those of a forward pass over the whole text.

# %%
whole, _ = attention(tokens, tokens, tokens, causal_mask(5))
continued, _ = attention(tokens[-2:], tokens, tokens, causal_mask(2, 5))
torch.testing.assert_close(continued, whole[-2:])

# %% tags=["folded"]
# Check and picture: the last two queries, by is_causal and by our mask
two = F.scaled_dot_product_attention(
    tokens[-2:], tokens, torch.eye(5), is_causal=True
)

wrong = F.scaled_dot_product_attention(
    tokens[-2:], tokens, tokens, is_causal=True
)
assert ((wrong - whole[-2:]).abs().amax(dim=-1) > 0.1).all()

picture(
    Heatmap("is_causal: top left", two > 0, "query t", "key s", limit=1),
    Heatmap(
        "ours: bottom right", causal_mask(2, 5), "query t", "key s", limit=1
    ),
    alt="Two masks of two queries and five keys. Top left: one key and two "
    "keys. Bottom right: four keys and five keys.",
)

# %% [markdown]
# ## A tool that finds leaks
#
# `leak_probe`, which you have used since rung {bag_of_words}, adds noise to one position after the other, and compares the outputs exactly. The result is a table with a row for each output and a column for each input.


# %%
def leak_probe(function, x):
    noise = torch.randn(
        x.shape, generator=torch.Generator().manual_seed(0)
    ).to(x)
    # beside large tokens, small noise is lost in rounding
    noise = noise * (1 + x.abs())
    # it may return a buffer that it writes to again
    before = function(x.clone()).clone()
    columns = []
    for j in range(x.shape[-2]):
        perturbed = x.clone()
        perturbed[..., j, :] += noise[..., j, :]
        after = function(perturbed)
        moved = (after != before).any(dim=-1)
        columns.append(moved.reshape(-1, moved.shape[-1]).any(dim=0))
    return torch.stack(columns, dim=-1)


# %% [markdown]
# For a decoder, all that lies above the diagonal must be False: a True there is a leak from the future. For this head the table is the mask itself. (Where a weight is rounded to 0, the probe can show less than the mask allows.) For two heads, one on top of the other, it need not be.

# %%
longer, window = torch.randn(8, C), window_mask(8, 3)
for mask in (causal_mask(8), window):
    probe = leak_probe(lambda x, m=mask: head(x, m)[0], longer)
    assert torch.equal(probe, mask)

# %% tags=["folded"]
# Question
ask("two_windows")

# %% [markdown]
# And is a causal mask in the first head enough? No. Its output s knows tokens 0 to s, and without a mask an earlier query of the second head looks at it.

# %%
reach = leak_probe(lambda x: second(head(x, window)[0], window)[0], longer)
mask = causal_mask(8)
leak = leak_probe(lambda x: second(head(x, mask)[0])[0], longer)

# %% tags=["folded"]
# Check and picture: two windows of 3 reach as far as one of 5
labels = "output that moves", "input that is nudged"
assert torch.equal(reach, window_mask(8, 5))
assert leak.all()

picture(
    Heatmap("one head, window of 3", window, *labels),
    Heatmap("two of them", reach, *labels),
    Heatmap("causal, then no mask", leak, *labels),
    alt="Leak probes: with a window of three, one head reaches two tokens "
    "back, and two heads reach four tokens back. With a causal head and "
    "one without a mask on top, every output moves with every input.",
)

# %% [markdown]
# ## By derivatives
#
# Derivatives answer the same question. `jacobian` (rung {scaling_variance}) returns the derivative of every output number with respect to every input number. Sum their absolute values over the channels: a table of the same kind, which also says how much. Here is row 2.

# %%
slopes = torch.autograd.functional.jacobian(lambda x: decode(x)[0], x)
slopes = slopes.abs().sum(dim=(1, 3))  # (T, 4, T, C) to (T, T)
assert torch.equal(slopes > 0, leak_probe(lambda x: decode(x)[0], x))
slopes[2]

# %% [markdown]
# The two can disagree. The derivative of rounding is 0 wherever it exists, but a larger change gets through, and the probe sees it.


# %%
def rounded(x):
    return (100 * encode(x)[0]).round()


assert not torch.autograd.functional.jacobian(rounded, x).any()
assert leak_probe(rounded, x).all()

# %% [markdown]
# ## Keys and values from elsewhere
#
# So far, one text looked at itself: that is **self-attention**. In **cross-attention** the queries come from one sequence, `x`, and the keys and values from another, `context`. (The context vector of rung {query_key_value} is something else.)

# %% tags=["folded"]
# Question
ask("shape_of_cross_weights")

# %% tags=["folded"]
# Question
ask("other_channels")


# %%
class CrossAttentionHead(nn.Module):
    def __init__(self, n_embd, n_context, head_size, d_v=None):
        super().__init__()
        self.query = nn.Linear(n_embd, head_size, bias=False)
        self.key = nn.Linear(n_context, head_size, bias=False)
        self.value = nn.Linear(n_context, d_v or head_size, bias=False)

    def forward(self, x, context, mask=None):
        return attention(
            self.query(x), self.key(context), self.value(context), mask
        )


# %% [markdown]
# Here is the cross-attention step of the worked example from rung {query_key_value}, by Sebastian Raschka (2024): [Understanding and Coding Self-Attention, Multi-Head Attention, Cross-Attention, and Causal-Attention in LLMs](https://magazine.sebastianraschka.com/p/understanding-and-coding-self-attention). The six tokens of "Life is short, eat dessert first" look at eight others, which are random.

# %% tags=["folded"]
# Data: the six tokens, three matrices and eight other tokens
torch.manual_seed(123)
embedding = nn.Embedding(50_000, 3)
ids = torch.tensor([0, 4, 5, 2, 1, 3])  # places in the sorted list of words
six = embedding(ids).detach()  # (6, 3)
torch.manual_seed(123)
W_query, W_key = torch.rand(3, 2), torch.rand(3, 2)
W_value = torch.rand(3, 4)
eight = torch.rand(8, 3)

# %%
cross = CrossAttentionHead(n_embd=3, n_context=3, head_size=2, d_v=4)
cross.query.weight.data = W_query.T  # nn.Linear stores (out, in)
cross.key.weight.data = W_key.T
cross.value.weight.data = W_value.T
output, weights = cross(six, eight)

# %% tags=["folded"]
# Check and picture: weights, and the output as Raschka prints it
printed = torch.tensor(
    [
        [0.4231, 0.8665, 0.6503, 1.0042],
        [0.4874, 0.9718, 0.7359, 1.1353],
        [0.4054, 0.8359, 0.6258, 0.9667],
        [0.4357, 0.8886, 0.6678, 1.0311],
        [0.4429, 0.9006, 0.6775, 1.0460],
        [0.3860, 0.8021, 0.5985, 0.9250],
    ]
)
torch.testing.assert_close(output, printed, atol=1e-4, rtol=0)

picture(
    Heatmap(
        "weights (6, 8)",
        weights,
        "query t of x",
        "key s of context",
        limit=1,
    ),
    Heatmap("output (6, 4)", output, "query t of x", "channel"),
    alt="A table of weights with six rows and eight columns, and an output "
    "with six rows and four columns.",
)

# %% [markdown]
# So the lengths may differ, and so may the numbers of channels. Only queries and keys must agree, because they meet in a dot product.

# %%
wide = torch.randn(8, 5)  # 8 tokens of 5 channels
mixed = CrossAttentionHead(n_embd=3, n_context=5, head_size=2, d_v=4)
mixed(six, wide)[0].shape

# %% [markdown]
# ## Prove
#
# With `context` = `x`, cross-attention is self-attention. Both classes give their linear layers the same names, so one can load the parameters of the other.

# %% tags=["proof"]
same = Head(n_embd=3, head_size=2, d_v=4)
same.load_state_dict(cross.state_dict())
torch.testing.assert_close(cross(six, six), same(six))

# %% tags=["folded"]
# Question
ask("shuffle_the_context")

# %%
order = torch.tensor([3, 0, 7, 5, 1, 6, 2, 4])
torch.testing.assert_close(
    cross(six, eight[order])[0], cross(six, eight)[0]
)

# %% [markdown]
# As in rung {query_key_value}, attention has to be told the position of a token. Here it is part of the token.
#
# ## A working example: dates
#
# We have nearly all the parts of a small translation model; the rest we borrow from rung {bigram_to_gpt}. It reads a date as people write it, `3 march 1998`, and writes it in the ISO format, `1998-03-03`. The parts change places, a name becomes a number, and a zero is added. A task of this kind, one sequence in and another one out, is called **sequence-to-sequence**.
#
# We draw 21,000 dates at random, all different, from the years 1000 to 9999. The first 1,000 are **held out**: the model never trains on them, and is judged on them.
#
# The tokens are characters, and each gets an id. The character `>` marks the start of what is written; in papers it is BOS, beginning of sequence. Short dates are padded with spaces: 17 characters for the longest source, and 10 for each target.

# %% tags=["folded", "name:dates"]
# Data: 21,000 dates, and their characters as ids
names = "january february march april may june july "
names += "august september october november december"
MONTHS = names.split()


def date_pair(number):
    day = date.fromordinal(number)
    return f"{day.day} {MONTHS[day.month - 1]} {day.year}", day.isoformat()


torch.manual_seed(2)
first, last = date(1000, 1, 1).toordinal(), date(9999, 12, 31).toordinal()
numbers = first + torch.randperm(last - first + 1)[:21_000]
sources, targets = zip(*(date_pair(number) for number in numbers.tolist()))
assert len(set(sources)) == 21_000

characters = sorted(set(">".join(sources + targets)))
id_of = {character: i for i, character in enumerate(characters)}


def to_ids(texts, T):
    return torch.tensor(
        [[id_of[c] for c in text.ljust(T)] for text in texts]
    )


source, target = to_ids(sources, 17), to_ids(targets, 10)
lengths = torch.tensor([len(text) for text in sources])
assert lengths.max() == 17
assert {len(text) for text in targets} == {10}
padding = padding_mask(lengths, 17)  # (21000, 1, 17)

# %% [markdown]
# ## The encoder
#
# Each character becomes the sum of two learned vectors: an embedding of the character, and a positional embedding. Two heads follow, without a causal mask, and their outputs are appended to the token. The padding is hidden.
#
# These heads see two characters to either side: enough to know which digit of a year this is. The model would work without this window, but it keeps the day's part of the map below readable: a token stands for its own position and for little else.

# %% tags=["name:model"]
near = window_mask(17, 3)
near = near | near.T  # to both sides


# %% tags=["name:model"]
class Encoder(nn.Module):
    def __init__(self, n_embd, head_size, d_v):
        super().__init__()
        self.character = nn.Embedding(len(characters), n_embd)
        self.position = nn.Embedding(17, n_embd)
        self.heads = nn.ModuleList(
            Head(n_embd, head_size, d_v) for _ in range(2)
        )

    def forward(self, source, padding):
        x = self.character(source) + self.position.weight  # (B, 17, n_embd)
        found = [head(x, padding & near)[0] for head in self.heads]
        return torch.cat([x, *found], dim=-1)  # (B, 17, n_embd + 2 * d_v)


# %% [markdown]
# ## The decoder
#
# It reads what has been written so far, with the causal mask. Then its cross-attention looks at the whole source, where only the padding is hidden. The output of each head is added to the token, so d_v = n_embd here. At the end a **feed-forward** network, two linear layers with a ReLU between them (negative numbers become 0), turns each token into a logit for every character. (Rung {bigram_to_gpt} takes these parts one by one.)


# %% tags=["name:model"]
def feed_forward(n_in, n_out):
    wide = 4 * n_in
    return nn.Sequential(
        nn.Linear(n_in, wide), nn.ReLU(), nn.Linear(wide, n_out)
    )


# %% tags=["name:model"]
class Decoder(nn.Module):
    def __init__(self, n_embd, n_context, head_size):
        super().__init__()
        self.character = nn.Embedding(len(characters), n_embd)
        self.position = nn.Embedding(10, n_embd)
        self.head = Head(n_embd, head_size, n_embd)
        self.cross = CrossAttentionHead(
            n_embd, n_context, head_size, n_embd
        )
        self.feed_forward = feed_forward(n_embd, len(characters))

    def forward(self, y, context, padding):
        T = y.shape[-1]
        y = self.character(y) + self.position.weight[:T]  # (B, T, n_embd)
        y = y + self.head(y, causal_mask(T))[0]
        # weights (B, T, 17)
        found, weights = self.cross(y, context, padding)
        return self.feed_forward(y + found), weights


# %% [markdown]
# ## Train
#
# The decoder learns all ten characters of a date in one forward pass. Its input is the target, shifted by one place with `>` in front, and at each position it has to predict the next character. This is **teacher forcing**: whatever it would have written itself, its input is the true text. Without the causal mask the answer would be one place to the right.

# %% tags=["name:training"]
shifted = to_ids([">" + text[:-1] for text in targets], 10)
print("input:  ", ">" + targets[0][:-1])
print("target: ", targets[0])

# %% [markdown]
# 800 steps, each with a batch of 64 dates that are not held out. The steps get smaller and smaller, so that the last ones only polish. (The optimizer, AdamW, is Adam that also shrinks all parameters a little in each step.)

# %% tags=["name:training", "long:800"]
torch.manual_seed(2)
encoder = Encoder(n_embd=64, head_size=16, d_v=8)
decoder = Decoder(n_embd=64, n_context=64 + 2 * 8, head_size=16)
parameters = [*encoder.parameters(), *decoder.parameters()]
optimizer = torch.optim.AdamW(parameters)
for step in tqdm(range(800), bar_format="training {bar}"):
    optimizer.param_groups[0]["lr"] = 4e-3 * (1 - step / 800)
    batch = torch.randint(1_000, 21_000, (64,))
    context = encoder(source[batch], padding[batch])
    logits, _ = decoder(shifted[batch], context, padding[batch])
    loss = F.cross_entropy(logits.flatten(0, 1), target[batch].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# %% [markdown]
# ## Write
#
# At inference there is no target. The decoder starts from `>`, takes the character with the highest logit, appends it, and runs again on what it has written itself. Such a model is **autoregressive**; always taking the highest logit is **greedy decoding**. The encoder runs once. Under `torch.no_grad()` nothing is recorded for gradients.


# %%
@torch.no_grad()
def rewrite(texts):
    padding = padding_mask(torch.tensor([len(text) for text in texts]), 17)
    context = encoder(to_ids(texts, 17), padding)
    y = to_ids([">"] * len(texts), 1)
    for _ in range(10):
        logits, weights = decoder(y, context, padding)
        y = torch.cat([y, logits[:, -1:].argmax(dim=-1)], dim=-1)
    written = [
        "".join(characters[i] for i in row) for row in y[:, 1:].tolist()
    ]
    return written, weights


# %% [markdown]
# Here is the date from above, and two others.

# %%
found, _ = rewrite(["3 march 1998", "24 december 2024", "7 july 1066"])
assert found == ["1998-03-03", "2024-12-24", "1066-07-07"]
found

# %% [markdown]
# How often is a whole date right, all ten characters? Of the 1,000 held-out dates, more than 98 %.

# %% tags=["folded"]
# Check: more than 98 % of the held-out dates are right
written, weights = rewrite(sources[:1_000])
right = sum(a == b for a, b in zip(written, targets))
assert right / 1_000 > 0.98

# %% [markdown]
# **Your turn.** Write a date of your own: day, month in small letters, year from 1000 to 9999<!--given-->.

# %% tags=["nbval-ignore-output"]
my_date = "14 march 1879"
rewrite([my_date])[0]

# %% [markdown]
# Now make it fail. A year of three digits should be written with a 0 in front, `0998`. But no date that the model has learned to write began with 0, so it begins with another digit, and the year is wrong.

# %% tags=["nbval-ignore-output"]
too_early, _ = rewrite(["3 march 998"])
assert too_early != ["0998-03-03"]
too_early

# %% [markdown]
# ## The map
#
# Each row is a written character, each column a character of the source, and each cell a weight of the cross-attention, in percent.


# %% tags=["folded"]
# Picture: the map of your date, and of another one
def map_of(text):
    written, weights = rewrite([text])
    percent = (100 * weights[0, :, : len(text)]).round()
    columns = list(text.replace(" ", "␣"))
    return Heatmap(
        text, percent, "written", "source", list(written[0]), columns, 100
    )


picture(
    map_of(my_date),
    map_of("7 july 1066"),
    alt="Two maps. While the year is written, the weight walks along its "
    "digits, at the end of the source; then it jumps to the month, and "
    "then to the day.",
)

# %% [markdown]
# Nobody told the model what a year is, or where to find it. From top to bottom: four steps along the year, at the end of the source; then the name of the month; then the day, at the start. An **alignment** like this is what cross-attention was made for.
#
# One date could be luck. Over the 1,000 held-out dates, for each digit of the year, the largest weight of its row lies on that very digit in more than 80 %. For most dates the last row looks at the day, and the last row of the month at its name. With another seed, the model may look for the day at the characters beside it, and write it just as well.

# %% tags=["folded"]
# Check: where the rows of the year, the day and the month look
looked = weights.argmax(dim=-1)  # (1000, 10): keys of the largest weights
year = lengths[:1_000] - 4  # where the year begins
day_ends = torch.tensor([text.index(" ") for text in sources[:1_000]])

for digit in range(4):
    on_the_digit = looked[:, digit] == year + digit
    assert len(on_the_digit) == 1_000
    assert on_the_digit.float().mean() > 0.8

assert (looked[:, 9] < day_ends).float().mean() > 0.5
in_month = (looked[:, 6] > day_ends) & (looked[:, 6] < year - 1)
assert in_month.float().mean() > 0.5

# %% [markdown]
# ## What a map can tell you
#
# A weight says how much of which value went into the mix. Whether the character *depends* on it is another question. To answer it, change something and see what happens: an **ablation** takes a part away.
#
# The map says that each digit of the year is read at its own place. If that is true, a digit should come out wrong when the cross-attention cannot see the key at its place, and right when the key of another digit is hidden. Both could fail: a head of the encoder sees two characters to either side, so the keys beside a digit may know it as well.
#
# The next cell hides one key in each of the 1,000 dates. Its table has a row for each digit whose key is hidden, and a column for each digit of the year: the share of dates in which it comes out right. It uses teacher forcing, so that one mistake does not lead to the next. What do you expect on the diagonal, and what elsewhere?

# %% tags=["nbval-ignore-output"]
held_out, position = slice(0, 1_000), torch.arange(17)


@torch.no_grad()
def share_right(mask):
    context = encoder(source[held_out], padding[held_out])
    logits, _ = decoder(shifted[held_out], context, mask)
    return (logits.argmax(dim=-1) == target[held_out]).float().mean(dim=0)


rows = []
for digit in range(4):
    others = position != (year + digit)[:, None]  # (1000, 17)
    rows.append(share_right(padding[held_out] & others[:, None])[:4])
shares = torch.stack(rows)
shares

# %% tags=["folded"]
# Check: a digit needs its own key, and no other one of the year
own = torch.eye(4, dtype=torch.bool)
assert shares[own].max() < 0.4
assert shares[~own].min() > 0.8

# %% [markdown]
# Without the key at its own place, a digit is right in fewer than 40 % of the dates; guessing would get one in ten or so. Without the key of another digit, it is right in more than 80 %. So each digit of the year is indeed read where the map says it is.
#
# Now the two dashes. Their rows of the map sum to 1 like all others, so each dash has a favourite, the character that gets its largest weight.

# %% tags=["folded"]
# Question
ask("weight_on_the_dash")

# %%
for row in (4, 7):  # the two dashes
    favourite = position == looked[:, row, None]  # (1000, 17)
    shares = share_right(padding[held_out] & ~favourite[:, None])
    assert shares[row] > 0.95

# %% [markdown]
# A dash, for more than 95 % of the dates, and the second dash is no different. So the favourite was not needed. Such a weight need not mean anything: a row has to sum to 1, so its weight has to go somewhere.

# %% [markdown]
# A last caution: column s is what the encoder made of the character at s. Ours was built so that this is the character and its neighbours. In a deep model a token may have gathered anything from anywhere before it is looked at.
#
# ## Explore
#
# **Which outputs does a changed token reach?**
#
# T_q queries look at a context of T_k keys. One token of the context, marked ▲, changes its key and its value. Try the kinds of masks. Then set T_q to 1 and compare "causal" with "causal, top left". And make T_q larger than T_k.

# %% tags=["folded"]
# Explorer: masks, T_q, T_k and a changed token
explore("cross_and_causal")

# %% [markdown]
# An output can move only if its row of the mask has a 1 in column ▲. Where T_q is larger than T_k, the last query still stands beside the last key, so under "causal" the first queries see no key: a fully masked row gives zeros, and nothing reaches it.
#
# ## Break it
#
# Here is a bug that is easy to write. The function is meant to be a causal head. The shapes are right, and there is no warning.


# %%
def almost_causal(x, head):
    T = x.shape[-2]
    # True: the future
    mask = torch.ones(T, T, dtype=torch.bool).triu(diagonal=1)
    q, k, v = head.query(x), head.key(x), head.value(x)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


torch.manual_seed(0)
x, head = torch.randn(5, 4), Head(n_embd=4, head_size=3)
almost_causal(x, head).detach()

# %% tags=["folded"]
# Question
ask("find_the_mask_bug")

# %% [markdown]
# The mask is True at future positions, which is right for `masked_fill` and `nn.MultiheadAttention`. But `F.scaled_dot_product_attention` keeps what is True: each query sees the future and nothing else. The last query has no future. Its row is fully masked. PyTorch's function gives zeros then, as ours does, and not NaN: when a model generates, this head contributes nothing to the newest token.
#
# The leak probe shows it at a glance. A second check is cheaper still: in a causal head, query 0 sees token 0 alone, so output 0 *is* value 0.

# %% tags=["folded"]
# Picture: its leak probe
picture(
    Heatmap(
        "the broken head",
        leak_probe(lambda x: almost_causal(x, head), x),
        "output that moves",
        "input that is nudged",
    ),
    alt="Everything above the diagonal is lit, and nothing below it. The "
    "first three entries of the diagonal are lit, because a token still "
    "makes its own query, and the last two are not.",
)

# %% tags=["folded"]
# Check: output 0 is value 0 in the right head only
right, _ = head(x, causal_mask(5))
torch.testing.assert_close(right[0], head.value(x)[0])
broken = almost_causal(x, head)
assert not torch.allclose(broken[0], head.value(x)[0])
assert not broken[-1].any()

# %% [markdown]
# ## Exercises
#
# ### 1. The causal mask of a decoder with a cache
#
# <!--task causal_mask-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("causal_mask")


# %%
def my_causal_mask(T_q, T_k):
    raise NotImplementedError


check("causal_mask", my_causal_mask)

# %% [markdown]
# ### 2. The mask of a padded batch
#
# <!--task padding_mask-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("padding_mask")


# %%
def my_padding_mask(lengths, T_k):
    raise NotImplementedError


check("padding_mask", my_padding_mask)

# %% [markdown]
# ### 3. Cross-attention
#
# <!--task cross_attention_forward-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("cross_attention_forward")


# %%
def my_cross_attention(x, context, W_query, W_key, W_value, mask):
    raise NotImplementedError


check("cross_attention_forward", my_cross_attention)

# %% [markdown]
# ### 4. Find the leak
#
# <!--task leaks-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("leaks")


# %%
def my_leaks(models, x):
    raise NotImplementedError


check("leaks", my_leaks)

# %% [markdown]
# ## In the wild
#
# - "Attention Is All You Need" (Vaswani et al. 2017, section 3.2.3) has self-attention in the encoder, masked self-attention in the decoder, and "encoder-decoder attention", our cross-attention. BERT is an encoder alone, GPT a decoder alone, without cross-attention.
# - Bahdanau, Cho and Bengio (2014) drew such alignments of translations before that, with attention between two recurrent networks, which read one token after the other.
# - Windows are used in Longformer (Beltagy et al. 2020), and Raffel et al. (2020, figure 3) compare full, causal and prefix masks.
# - How much attention maps explain is disputed: see "Attention is not Explanation" (Jain and Wallace 2019) and "Attention is not not Explanation" (Wiegreffe and Pinter 2019).
# - PyTorch's `nn.Transformer` is a whole encoder-decoder, and True means hide in its masks. Two are often forgotten: `tgt_mask`, the causal one, is not set by default, and the padding of the source has to be hidden twice, in the encoder (`src_key_padding_mask`) and in cross-attention (`memory_key_padding_mask`). The probe tells whether you did.

# %% tags=["folded"]
# Check: the probe of nn.Transformer with its masks
torch.manual_seed(0)
theirs = nn.Transformer(4, 2, 1, 1, 8, dropout=0.0, batch_first=True)
src, tgt = torch.randn(1, 6, 4), torch.randn(1, 5, 4)
# (B, T_k): True at the padding
hidden = ~padding_mask(torch.tensor([4]), 6)[:, 0]
hide = {"src_key_padding_mask": hidden, "memory_key_padding_mask": hidden}
hide["tgt_mask"] = ~causal_mask(5)
assert torch.equal(
    leak_probe(lambda tgt: theirs(src, tgt, **hide), tgt), causal_mask(5)
)
assert torch.equal(
    leak_probe(lambda src: theirs(src, tgt, **hide), src),
    ~hidden.expand(5, 6),
)

# %% [markdown]
# ## Three sentences to remember
#
# 1. Self-attention in an encoder and in a decoder differ only in the mask; say in words what True means before you pass a mask on, and probe the result.
# 2. In cross-attention the queries come from the sequence that is written, and keys and values from the one that is read; lengths and channels may differ.
# 3. A weight says what went into the mix: read a map as a hypothesis about what a model uses, and test it by an ablation.
#
# Next: [rung {multi_head}]({multi_head}.ipynb), where several heads look at once.
#
# <!--neighbours-->
