# %% [markdown]
# # Rung {cross_and_causal}: cross and causal
#
# <!--ladder-->
#
# **You will build** attention from one text to another and a small model that rewrites dates, and you'll learn what a mask's True means.
#
# So far our staircase has one head and a loss of 0.38<!--given-->, and its model reads only its own text. Nothing in a text that begins with `1879-` says which month comes next. To turn `14 march 1879` into `1879-03-14`, a model has to read one text while it writes another.

# %% tags=["hero", "folded"]
# The opening picture: guess first, then type a date and cover a part
from attention_course.heroes import hero

hero("cross_and_causal")

# %% [markdown]
# **You need** [rung {query_key_value}]({query_key_value}.ipynb) for a head, and [rung {scaling_variance}]({scaling_variance}.ipynb) for how a model learns.
#
# <!--time-->
#
# <!--test-out-->

# %% tags=["folded"]
# Two questions from the rungs below
from attention_course.questions import warm_up

warm_up("cross_and_causal")

# %% [markdown]
# ## Cover the year
#
# Type your birthday, and follow the beams. What if you drag over the year, so that the model can't read it?

# %% tags=["folded"]
# Question
from attention_course.questions import ask

ask("cover_the_year")

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
    window_mask,
)
from attention_course.exercises import check
from attention_course.explorers import explore
from attention_course.fills import fill
from attention_course.plots import Heatmap, picture
from attention_course.progress import progress

torch.set_printoptions(precision=3, sci_mode=False)

progress("cross_and_causal")

# %% [markdown]
# ## Ask another text
#
# In the head of rung {query_key_value}, one text both asks and answers. Now the text being written asks, and the text that was read answers. So which of the three matrices does each text need?
#
# Try it with numbers that you can check in your head. The date that was read has three tokens, a day, a month and a year. Each token has a 1 in the channel for its kind, and its number in the last channel. You write a year and then a month, so your two tokens say which kind they want, but their last channel is still empty.

# %%
context = torch.tensor([[1.0, 0, 0, 14], [0, 1, 0, 3], [0, 0, 1, 1879]])
x = torch.tensor([[0.0, 0, 1, 0], [0, 1, 0, 0]])  # a year, a month
# queries and keys are kinds; 20 gives the best key nearly all the weight
W_query, W_key = 20 * torch.eye(4)[:, :3], torch.eye(4)[:, :3]
W_value = torch.eye(4)[:, 3:]  # values are numbers

# %% tags=["folded"]
# Fill in: who asks, and who answers?
fill("from_the_other_text")

# %% tags=["folded", "name:from_the_other_text"]
# Queries from x, keys and values from context
q, k, v = x @ W_query, context @ W_key, context @ W_value
weights = torch.softmax(q @ k.T, dim=-1)  # (2, 3)
output = weights @ v  # (2, 3) @ (3, 1) is (2, 1)
output

# %% [markdown]
# Both of your tokens found what they wanted. This is **cross-attention**. When a text looks at itself, as in the earlier rungs, that's **self-attention**. How does cross-attention change the shapes?

# %% tags=["folded"]
# Question
ask("shape_of_cross_weights")

# %% tags=["folded"]
# Question
ask("other_channels")

# %% [markdown]
# So the two texts may differ in length and in channels. Only queries and keys need the same width, because they meet in a dot product.


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
# If a text is its own context, you're back to self-attention. To check that, copy the parameters into a `Head`, whose linear layers have the same names.

# %% tags=["proof"]
torch.manual_seed(0)
cross = CrossAttentionHead(n_embd=3, n_context=3, head_size=2, d_v=4)
same = Head(n_embd=3, head_size=2, d_v=4)
same.load_state_dict(cross.state_dict())  # copy the parameters
six = torch.randn(6, 3)
torch.testing.assert_close(cross(six, six), same(six))

# %% [markdown]
# ### More: cross-attention with random matrices, number by number
#
# The worked example of rung {query_key_value}, by Sebastian Raschka (2024), continues with cross-attention in [Understanding and Coding Self-Attention, Multi-Head Attention, Cross-Attention, and Causal-Attention in LLMs](https://magazine.sebastianraschka.com/p/understanding-and-coding-self-attention). The six words of "Life is short, eat dessert first" look at eight other tokens, which are random.

# %% tags=["folded", "name:raschka"]
# Data: the six tokens, three matrices and eight other tokens
torch.manual_seed(123)
embedding = nn.Embedding(50_000, 3)
ids = torch.tensor([0, 4, 5, 2, 1, 3])  # places in the sorted list of words
six = embedding(ids).detach()  # (6, 3)
torch.manual_seed(123)
W_query, W_key = torch.rand(3, 2), torch.rand(3, 2)
W_value = torch.rand(3, 4)
eight = torch.rand(8, 3)

# %% tags=["name:raschka"]
cross = CrossAttentionHead(n_embd=3, n_context=3, head_size=2, d_v=4)
cross.query.weight.data = W_query.T  # nn.Linear stores (out, in)
cross.key.weight.data = W_key.T
cross.value.weight.data = W_value.T
output, weights = cross(six, eight)
weights.shape, output

# %% [markdown]
# These are the six rows that Raschka prints. What if you shuffle the eight tokens?

# %% tags=["folded"]
# Question
ask("shuffle_the_context")

# %%
order = torch.tensor([3, 0, 7, 5, 1, 6, 2, 4])
torch.testing.assert_close(
    cross(six, eight[order])[0], cross(six, eight)[0]
)

# %% [markdown]
# ## Who may look ahead?
#
# A translator reads the whole sentence before she starts. While reading, she may look ahead, because every word is already there. While writing, she can't, because the next word doesn't exist yet. In a model, the part that reads is called the **encoder**, and the part that writes is the **decoder**.
#
# A decoder's self-attention head is the masked head that you know. Here it reads six random tokens.

# %%
torch.manual_seed(0)
x = torch.randn(6, 4)
head = Head(n_embd=4, head_size=4)


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
# Picture: the weights with the line, and without it
torch.testing.assert_close(head(x, causal_mask(6)), decode(x))
assert torch.equal(decode(x)[0][-1], head(x)[0][-1])
assert ((decode(x)[0] - head(x)[0]).abs().amax(dim=-1)[:-1] > 1e-3).all()
picture(
    Heatmap("decoder", decode(x)[1], "query t", "key s", limit=1),
    Heatmap("encoder", head(x)[1], "query t", "key s", limit=1),
    alt="Two tables of weights. The decoder's is a lower triangle, the "
    "encoder's is full. Their last rows are the same.",
)

# %% [markdown]
# The mask is the only difference. Without it you have an encoder's head, where every token sees the whole text.
#
# ### More: why a trained model can't drop its mask
#
# The last output doesn't depend on the mask, and a decoder that writes uses only its last output. So could you train with the mask and then write without it? With one head you could. But suppose a second head sits on top of the first. Its last query looks at *earlier* outputs of the first head, and those outputs have changed. (With a cache, which comes later in this rung, you don't need the mask after all, because nothing earlier is computed again.)

# %%
second = Head(n_embd=4, head_size=4)
with_mask = second(head(x, causal_mask(6))[0], causal_mask(6))[0]
without = second(head(x)[0])[0]
(with_mask - without)[-1].detach()

# %% [markdown]
# For the same reason a model such as BERT, which is only an encoder and reads in both directions (it is **bidirectional**), isn't suited to continuing a text. Each new word would change what all earlier positions have made of the text.
#
# ### More: windows, prefixes and padding, a gallery of masks
#
# A mask says which query may look at which key. With a window (rung {tril_matmul}) a query sees only the last few tokens. A **prefix** is a part at the start that every query sees, such as a question whose answer is written from left to right. Finally, no query should look at padding, which fills up the short texts of a batch. The padding mask has shape (B, 1, T), one row per text, which broadcasts to all queries of that text.
#
# With a negative d, `mask.tril(d)` keeps only the distant past, so `& ~` removes the distant past and leaves the last `window` tokens.


# %%
def window_mask(T_q, window, T_k=None, *, device=None):
    mask = causal_mask(T_q, T_k, device=device)
    return mask & ~mask.tril(mask.shape[1] - T_q - window)


def prefix_mask(T_q, prefix, T_k=None, *, device=None):
    mask = causal_mask(T_q, T_k, device=device)
    mask[:, :prefix] = True
    return mask


lengths = torch.tensor([4, 6])  # 4 tokens and 2 of padding; 6 tokens
padding = padding_mask(lengths, 6)  # (B, 1, T) = (2, 1, 6)

# %% tags=["folded"]
# Picture: padding, window and prefix
picture(
    Heatmap(
        "padding, row 0 of B",
        padding[0].expand(6, 6),
        "query t",
        "key s",
        limit=1,
    ),
    Heatmap("window of 3", window_mask(6, 3), "query t", "key s", limit=1),
    Heatmap("prefix of 3", prefix_mask(6, 3), "query t", "key s", limit=1),
    alt="Three masks: four columns of ones and two of zeros; a band of "
    "three ones in each row, up to the diagonal; a lower triangle whose "
    "first three columns are all ones.",
)

# %% [markdown]
# You combine masks with `&`. Padding at the end lies in the future of every real token, so a causal mask already hides it. But to continue several texts at once, people put the padding at the *start*, so that the newest tokens are all in the last column. A causal mask doesn't hide padding at the start.

# %%
both = causal_mask(6) & padding  # (6, 6) & (2, 1, 6) is (2, 6, 6)
padded = torch.cat([torch.ones(2, 4), x[:4]])  # 2 of padding, 4 tokens
alone, _ = head(x[:4], causal_mask(4))
hidden = causal_mask(6) & (torch.arange(6) >= 2)
torch.testing.assert_close(head(padded, hidden)[0][2:], alone)
seen = head(padded, causal_mask(6))[0][2:]
assert ((seen - alone).abs().amax(dim=-1) > 1e-3).all()

# %% [markdown]
# A mask hides keys, not queries, so a padded position still gets an output. No other token looks at that output, but the loss would count it. So give it the target −100, because `F.cross_entropy` skips every target that equals its `ignore_index`, which is −100 unless you change it. (`flatten(0, 1)` joins the texts of the batch, because `F.cross_entropy` wants one prediction per row.)

# %%
logits, targets = torch.randn(2, 6, 9), torch.randint(9, (2, 6))  # V = 9
real = torch.arange(6) < lengths[:, None]  # (B, T)
ignored = torch.where(real, targets, -100)
loss = F.cross_entropy(logits.flatten(0, 1), ignored.flatten())
torch.testing.assert_close(
    loss, F.cross_entropy(logits[real], targets[real])
)

# %% [markdown]
# ## A model that rewrites dates
#
# Now let a model learn what you did by hand. Its tokens are characters. We draw 21,000 different dates from the years 1000 to 9999. The first 1,000 are **held out**, so the model never trains on them but is judged on them. Shorter dates are padded with spaces to 17 characters, and `padding_mask` hides those spaces. A `>` starts what the model writes.

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
# The encoder gives each character a learned vector and adds a vector for its position. Then two heads look at each character, the two before it and the two after it, and what they find is appended to the character's channels. We keep the heads from looking farther so that each token stands for one place, which makes the map below readable.


# %% tags=["name:model"]
near = window_mask(17, 3)  # itself and the two before it
near = near | near.T  # and the two after it


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
# The decoder has two heads, one for what it has written and one for what the encoder has read.

# %% tags=["folded"]
# Question
ask("which_gets_the_mask")

# %% [markdown]
# What each decoder head finds is added to the token, which works because the values have as many channels as a token. Last comes a feed-forward network, which is two linear layers with all negative numbers set to 0 between them. This network combines what was found into a logit for every character.


# %% tags=["name:model"]
def feed_forward(n_in, n_out):
    wide = 4 * n_in
    return nn.Sequential(
        nn.Linear(n_in, wide), nn.ReLU(), nn.Linear(wide, n_out)
    )


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
# Yours is a small version of this model, the transformer of Vaswani et al. (2017). Read the drawing from the bottom up.
#
# ![The transformer with its encoder on the left and its decoder on the right, read from the bottom up. In the encoder, tokens with their positions go through self-attention without a causal mask and a feed-forward network, six times over. In the decoder, they go through self-attention with a causal mask, cross-attention without one, and a feed-forward network, also six times over. After each of these parts, what it found is added to the token, and the sum is normalized. An arrow leads from the top of the encoder to the cross-attention, and carries the keys and values. At the top of the decoder, a linear layer and a softmax give the next character.](images/encoder_decoder.svg)
#
# Each frame is repeated six times, and each time the decoder looks at the encoder's final output. Dotted lines add the token to what was found for it, as in your decoder. (Rung {bigram_to_gpt} explains the norm.) Without the left column and the cross-attention, it's nearly a GPT.
#
# ## Train it
#
# The model learns all ten characters of a date at once. At each position the decoder reads the true characters so far, whatever it would have written itself, and has to predict the next character. This is called **teacher forcing**. So what does the decoder read if the target is `1998-03-03`?

# %% tags=["name:training"]
start = to_ids([">"], 1).expand(len(target), 1)  # one for each date

# %% tags=["folded"]
# Fill in: what the decoder reads
fill("shift_by_one")

# %% tags=["folded", "name:shift_by_one"]
# What the decoder reads: a start, then all but the target's last one
shifted = torch.cat([start, target[:, :-1]], dim=-1)

# %% [markdown]
# The decoder reads `>1998-03-0`. Without the causal mask, each position could peek at the next one, which holds the answer.
#
# Now we give the model 64 dates at a time and move its parameters a little downhill (rung {scaling_variance}), 800 times over, in smaller and smaller steps.

# %% tags=["name:training", "long:800"]
torch.manual_seed(2)
encoder = Encoder(n_embd=64, head_size=16, d_v=8)
decoder = Decoder(n_embd=64, n_context=64 + 2 * 8, head_size=16)
parameters = [*encoder.parameters(), *decoder.parameters()]
optimizer = torch.optim.AdamW(parameters)  # a variant of Adam
for step in tqdm(range(800), bar_format="training {bar}"):
    optimizer.param_groups[0]["lr"] = 4e-3 * (1 - step / 800)
    batch = torch.randint(1_000, 21_000, (64,))
    context = encoder(source[batch], padding[batch])
    logits, _ = decoder(shifted[batch], context, padding[batch])
    # flatten(0, 1): batch and time become one dimension
    loss = F.cross_entropy(logits.flatten(0, 1), target[batch].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# %% [markdown]
# ## Let it write
#
# Now the decoder starts from `>`, appends the character with the highest logit, and runs again on what it has written. A model that reads its own output like this is **autoregressive**, and always taking the highest logit is called greedy decoding. The encoder runs only once, because the date doesn't change.


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


found, _ = rewrite(["3 march 1998", "24 december 2024", "7 july 1066"])
assert found == ["1998-03-03", "2024-12-24", "1066-07-07"]
found

# %% [markdown]
# It gets more than 98% of the 1,000 held-out dates completely right.
#
# Now write a date of your own, and then make the model fail. What will it make of `3 march 998`? The right answer is `0998-03-03`, but no year in training began with a 0.

# %% tags=["do", "nbval-ignore-output"]
my_date = "14 march 1879"
rewrite([my_date, "3 march 998"])[0]

# %% tags=["folded", "nbval-ignore-output"]
# All held-out dates at once: how many are right?
written, weights = rewrite(sources[:1_000])
right = sum(a == b for a, b in zip(written, targets))
assert right / 1_000 > 0.98
assert rewrite(["3 march 998"])[0] != ["0998-03-03"]
right

# %% [markdown]
# ## Read its map
#
# Here are the beams again as a table, for your date. Rows are written characters, columns are characters that were read, and each cell is a weight in percent. Follow the dark cells from top to bottom, and see where they jump.


# %% tags=["folded", "do"]
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
# Nobody told the model where to find a year. Yet it takes four steps along the year at the end of the date, jumps to the name of the month, and then to the day at the start. A map like this, of which parts of two texts belong together, is called an **alignment**.
#
# One date could be luck. What about all 1,000?

# %% tags=["folded", "nbval-ignore-output"]
# Shares of the 1,000 dates: the year's four digits, the month, the day
looked = weights.argmax(dim=-1)  # (1000, 10)
year = lengths[:1_000] - 4  # where the year begins
day_ends = torch.tensor([text.index(" ") for text in sources[:1_000]])
in_year = looked[:, :4] == year[:, None] + torch.arange(4)  # (1000, 4)
in_month = (looked[:, 6] > day_ends) & (looked[:, 6] < year - 1)
in_day = looked[:, 9] < day_ends
found = torch.column_stack([in_year, in_month, in_day]).float().mean(dim=0)
assert found[:4].min() > 0.8
assert found[4:].min() > 0.5
found

# %% [markdown]
# In {{100 * found[:4].mean():.0f}}% of the dates, a written digit of the year looks most at that digit in the source. The month's last digit looks most at the month's name in {{100 * found[4]:.0f}}%, and the day's last digit at the day in {{100 * found[5]:.0f}}%.
#
# ## Does it need what it looks at?
#
# A map looks like an explanation, but a weight says only how much of a value went into the mix. Would the model have written something else without that value? To find out, take the value away, which is called an **ablation**.
#
# Suppose the map is right, and each digit of the year is read at its own place. Then a digit should go wrong when you hide the key at its place, but stay right when you hide another digit's key. Either prediction could fail, because the encoder has told a digit's neighbours about it.
#
# The next cell hides one key in each of the 1,000 dates. Row i hides digit i of the year, and column j says how often digit j is still right. What do you expect on the diagonal, and what off it?

# %% tags=["do", "nbval-ignore-output"]
held_out, position = slice(0, 1_000), torch.arange(17)


@torch.no_grad()
def share_right(mask):
    context = encoder(source[held_out], padding[held_out])
    # it reads the true characters, so one mistake can't cause another
    logits, _ = decoder(shifted[held_out], context, mask)
    return (logits.argmax(dim=-1) == target[held_out]).float().mean(dim=0)


rows = []
for digit in range(4):
    others = position != (year + digit)[:, None]  # (1000, 17)
    mask = padding[held_out] & others[:, None]  # (1000, 1, 17)
    rows.append(share_right(mask)[:4])
shares = torch.stack(rows)
own = torch.eye(4, dtype=torch.bool)
assert shares[own].max() < 0.4
assert 0.05 < shares[own].mean() < 0.2
assert shares[~own].min() > 0.8
shares

# %% [markdown]
# With its own key hidden, a digit is right in about one date in ten, as often as by guessing. With another digit's key hidden, it's right in {{100 * shares[~own].mean():.0f}}%. So for the year you can believe the map.
#
# What about the dashes? Their rows also sum to 1, so each dash has to look somewhere.

# %% tags=["folded"]
# Question
ask("weight_on_the_dash")

# %%
for row in (4, 7):  # the two dashes
    favourite = position == looked[:, row, None]  # (1000, 17)
    shares = share_right(padding[held_out] & ~favourite[:, None])
    assert shares[row] > 0.95

# %% [markdown]
# When you hide what a dash looks at most, the model still predicts a dash in more than 95% of the dates. So here the weight doesn't explain what is written.
#
# One more caution: column s stands for what the encoder has *made* of character s. Our encoder can't look far, but in a deep model a token may have gathered anything from anywhere.
#
# ## Don't compute it twice
#
# In each of the ten rounds of `rewrite`, the decoder runs on everything it has written, although only the last row is new. Earlier positions can't see the newest character, so their keys and values come out as before. A **KV cache** keeps these keys and values, so the decoder runs for the newest token only. Then T_q is 1, while T_k is the length of the text so far.
#
# The newest query may see everything, so it needs no mask. But what if you ask for a causal one? `F.scaled_dot_product_attention` makes one for you if you pass `is_causal=True`.

# %% tags=["folded"]
# Question
ask("one_new_token")

# %%
tokens = torch.randn(5, 4)
F.scaled_dot_product_attention(
    tokens[-1:], tokens, torch.eye(5), is_causal=True
)

# %% [markdown]
# With the identity matrix as values, the output *is* the weights, and all the weight is on token 0. PyTorch lines up the *first* query with the first key, but here the *last* query belongs beside the last key. `causal_mask` puts it there, so if you append two tokens at once, their queries get the same outputs as in the whole text.

# %%
whole, _ = attention(tokens, tokens, tokens, causal_mask(5))
newest, _ = attention(tokens[-2:], tokens, tokens, causal_mask(2, 5))
torch.testing.assert_close(newest, whole[-2:])
causal_mask(2, 5)

# %% [markdown]
# ## Explore
#
# **Which outputs does a changed token reach?**
#
# T_q queries look at a context of T_k keys, and the token marked ▲ has changed. Set T_q to 1 and compare "causal" with "causal, top left". Then find a mask under which ▲ reaches no output. Finally, make T_q larger than T_k.

# %% tags=["folded"]
# Explorer: masks, T_q, T_k and a changed token
explore("cross_and_causal")

# %% [markdown]
# An output moves only if its row of the mask has a 1 in column ▲. When T_q is larger than T_k, the last query still belongs beside the last key, so under "causal" the first queries see nothing and get zeros.
#
# ### More: the leak probe, and how far a change travels
#
# The leak probe, which you've used since rung {bag_of_words}, adds noise to one position after another and compares the outputs bit by bit. (The probe adds a different number to each channel, because a model that sees only differences between channels wouldn't notice the same number in all of them.) The result has a row for each output and a column for each input.


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
# In a decoder, everything above the diagonal has to be False, because a True there is a leak from the future. For one head, the table is the mask itself. (Where a weight is rounded to 0, the probe can show less than the mask allows.) What about two heads, one on top of the other?

# %%
longer, window = torch.randn(8, 4), window_mask(8, 3)
for mask in (causal_mask(8), window):
    found = leak_probe(lambda x, m=mask: head(x, m)[0], longer)
    assert torch.equal(found, mask)

# %% tags=["folded"]
# Question
ask("two_windows")

# %% [markdown]
# Is it enough if only the first head has a causal mask? It isn't. Output s of the first head knows tokens 0 to s, and an earlier query of an unmasked second head can look at that output.

# %%
reach = leak_probe(lambda x: second(head(x, window)[0], window)[0], longer)
mask = causal_mask(8)
leak = leak_probe(lambda x: second(head(x, mask)[0])[0], longer)

# %% tags=["folded"]
# Picture: two windows of 3 reach as far as one of 5
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
# ### More: the same table from derivatives
#
# `jacobian` returns the derivative of every output number with respect to every input number. If you sum the absolute values over the channels, you get the same kind of table. This table also says how strongly each output depends on each input. Here is its row 2.

# %%
slopes = torch.autograd.functional.jacobian(lambda x: decode(x)[0], x)
slopes = slopes.abs().sum(dim=(1, 3))  # (6, 4, 6, 4) to (6, 6)
assert torch.equal(slopes > 0, leak_probe(lambda x: decode(x)[0], x))
slopes[2]

# %% [markdown]
# The two tables can disagree. The derivative of rounding is 0 wherever it exists, but a larger change gets through, and the probe notices.


# %%
def rounded(x):
    return (100 * head(x)[0]).round()


assert not torch.autograd.functional.jacobian(rounded, x).any()
assert leak_probe(rounded, x).all()

# %% [markdown]
# ## Why attention won
#
# Early neural translators were recurrent networks. They read one word after another and passed on a single vector, so what they knew about the first word had to survive every step to the last. Bahdanau, Cho and Bengio (2014) let the decoder look back at all the words, and long sentences came out much better, because they no longer had to squeeze through one vector. Vaswani et al. then dropped the recurrence and kept the looking. Now any two words are one step apart, so gradients pass between them more easily. And in training no position has to wait for the one before it, so your model learned all ten characters of a date at once.
#
# ## Break it
#
# Here's a bug that's easy to write and hard to notice. This function is meant to be a causal head. Its shapes are right, and there's no warning.


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
# Each query sees only the future, and the last query, which has no future, gets zeros. The cheapest check is the first query. In a causal head it sees only token 0, so output 0 has to equal value 0.

# %%
right, _ = head(x, causal_mask(5))
torch.testing.assert_close(right[0], head.value(x)[0])
assert not torch.allclose(almost_causal(x, head)[0], head.value(x)[0])
assert not almost_causal(x, head)[-1].any()

# %% [markdown]
# ## What does True mean?
#
# The mask itself was fine, but it went to a function that reads it the other way round.

# %% tags=["folded"]
# Question
ask("who_gets_the_opposite")

# %% [markdown]
# | the mask goes to | True means |
# | --- | --- |
# | `attention` of this course | look here |
# | `F.scaled_dot_product_attention`, as `attn_mask` | look here |
# | `scores.masked_fill(mask, ...)` | fill here: hide |
# | `nn.MultiheadAttention` and `nn.Transformer`, as any mask | hide |
# | PyTorch's functions, as a mask of floats | nothing, since they add it to the scores: 0 shows, −∞ hides |
#
# Nobody remembers this table, so say aloud what True means.
#
# ### More: each row of the table, tried
#
# First comes `F.scaled_dot_product_attention`, with q = k = v = x. It gets our mask, and then a mask of floats.

# %%
mask = causal_mask(5)
to_add = torch.zeros(5, 5).masked_fill(~mask, float("-inf"))
expected, _ = attention(x, x, x, mask)
for shown in (mask, to_add):
    out = F.scaled_dot_product_attention(x, x, x, attn_mask=shown)
    torch.testing.assert_close(out, expected)

# %% [markdown]
# `nn.MultiheadAttention` has matrices of its own. We set them to the identity, so that its queries, keys and values are also x.

# %%
theirs = nn.MultiheadAttention(4, num_heads=1, bias=False, batch_first=True)
theirs.in_proj_weight.data = torch.eye(4).repeat(3, 1)
theirs.out_proj.weight.data = torch.eye(4)
for hide in (~mask, to_add):
    out, _ = theirs(x, x, x, attn_mask=hide)
    torch.testing.assert_close(out, expected)

# %% [markdown]
# Masks of floats set a trap. `mask.float()` looks like the same mask, but its ones and zeros are added to the scores, so no key is hidden. The functions of this course refuse such a mask.

# %%
floats = mask.float()
added = F.scaled_dot_product_attention(x, x, torch.eye(5), attn_mask=floats)
assert (added > 0).all()
print(added[0])
try:
    attention(x, x, x, floats)
except TypeError as error:
    print(error)

# %% [markdown]
# `nn.MultiheadAttention` takes the padding mask separately, as `key_padding_mask` of shape (B, T_k), True at the padding. And its `is_causal` is only a hint, "this `attn_mask` is the causal one". If the hint is wrong, PyTorch may follow the hint and ignore your mask. If you give the hint without a mask, PyTorch may hide nothing. So pass the mask, and give the hint only when it's true.

# %%
pair, padding_5 = (
    torch.randn(2, 5, 4),
    padding_mask(torch.tensor([4, 5]), 5),
)
hide = {"attn_mask": ~mask, "key_padding_mask": ~padding_5[:, 0]}
out, _ = theirs(pair, pair, pair, **hide)
both = attention(pair, pair, pair, mask & padding_5)[0]
torch.testing.assert_close(out, both)

# a wrong hint replaces the mask
hint = {"is_causal": True, "need_weights": False}
out, _ = theirs(pair, pair, pair, attn_mask=~window_mask(5, 3), **hint)
torch.testing.assert_close(out, attention(pair, pair, pair, mask)[0])

# the hint alone hides nothing (seen with an even number of heads)
two_heads = nn.MultiheadAttention(4, num_heads=2, batch_first=True).eval()
with torch.no_grad():
    hinted, _ = two_heads(pair, pair, pair, is_causal=True)
    unmasked, _ = two_heads(pair, pair, pair)
torch.testing.assert_close(hinted, unmasked)

# %% [markdown]
# `nn.Transformer` is a whole encoder-decoder. Two things are easy to forget. `tgt_mask`, the causal one, is not set by default, and the padding of the source has to be hidden twice, in the encoder (`src_key_padding_mask`) and in cross-attention (`memory_key_padding_mask`). The probe tells you whether you've set them all.

# %%
torch.manual_seed(0)
# width 4, 2 heads, an encoder and a decoder of one step, feed-forward of 8
theirs = nn.Transformer(4, 2, 1, 1, 8, dropout=0.0, batch_first=True)
src, tgt = torch.randn(1, 6, 4), torch.randn(1, 5, 4)
hidden = ~padding_mask(torch.tensor([4]), 6)[:, 0]  # True at the padding
hide = {"src_key_padding_mask": hidden, "memory_key_padding_mask": hidden}
hide["tgt_mask"] = ~causal_mask(5)
moved = leak_probe(lambda tgt: theirs(src, tgt, **hide), tgt)
assert torch.equal(moved, causal_mask(5))
moved = leak_probe(lambda src: theirs(src, tgt, **hide), src)
assert torch.equal(moved, ~hidden.expand(5, 6))

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
# ## More: in the wild
#
# - "Attention Is All You Need" (Vaswani et al. 2017, section 3.2.3) has self-attention in the encoder, masked self-attention in the decoder, and "encoder-decoder attention", which is our cross-attention. A task that turns one text into another, such as translation, is called sequence-to-sequence.
# - BERT is only an encoder, and GPT is only a decoder, without cross-attention.
# - Bahdanau, Cho and Bengio (2014) drew alignments of translations. Their scores were additive, and both of their networks were recurrent.
# - Longformer (Beltagy et al. 2020) uses windows, and Raffel et al. (2020, figure 3) compare full, causal and prefix masks.
# - People disagree about how much attention maps explain. See "Attention is not Explanation" (Jain and Wallace 2019) and "Attention is not not Explanation" (Wiegreffe and Pinter 2019).
#
# ## Where we are
#
# ![The transformer as a drawing. Highlighted: what this rung builds (the context, from which keys and values may come).](images/transformer_cross_and_causal.svg)
#
# Now a head can read another text, and by hiding keys you can test whether a model needs what it looks at. The model on our staircase is a decoder that reads only its own text. Next it gets more heads, because a single head has only one pattern of weights for each letter.
#
# ## Three sentences to remember
#
# 1. In cross-attention the queries come from the text being written, and the keys and values come from the text that was read.
# 2. Self-attention in an encoder and in a decoder differs only in the mask, so say what True means before you pass a mask on, and probe the result.
# 3. A weight says only how much went into the mix, so read a map as a guess about what the model uses, and test that guess by taking something away.
#
# Next: [rung {multi_head}]({multi_head}.ipynb), where several heads look at once.
#
# <!--neighbours-->
