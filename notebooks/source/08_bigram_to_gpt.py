# %% [markdown]
# # Rung 8: from a bigram to a GPT
#
# [1 bag of words](01_bag_of_words.ipynb) · [2 one matrix product](02_tril_matmul.ipynb) · [3 masked softmax](03_masked_softmax.ipynb) · [4 query, key, value](04_query_key_value.ipynb) · [5 scaling](05_scaling_variance.ipynb) · [6 cross and causal](06_cross_and_causal.ipynb) · [7 multi-head](07_multi_head.ipynb) · **▶ 8 GPT**
#
# **You will build** a model that writes, character by character. It begins as a table of letter pairs. One part after the other is added, each is measured, and at the end it is a GPT that you trained yourself.
#
# **You need** [rung 1](01_bag_of_words.ipynb) for the mean of the past, [rung 5](05_scaling_variance.ipynb) for what a loss is, [rung 7](07_multi_head.ipynb) for attention with many heads.
#
# **Time** about 60 minutes to read, and 39 for the exercises. The machine trains for about two minutes in all; nothing takes longer than 40 seconds.

# %% [markdown]
# ## The question
#
# A story is read aloud and stops in the middle of a word. You could go on: you know the spelling, the grammar, and what was said before. Which part of a GPT gives it which of these?

# %%
import math
import tempfile
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from IPython.display import display

from attention_course.attention import MultiHeadAttention, causal_mask
from attention_course.averaging import causal_mean_matmul
from attention_course.exercises import check, hint, solution
from attention_course.explorers import LiveTraining, explore
from attention_course.gpt import GPT, MLP, GPTConfig, generate, waves
from attention_course.plots import Bars, Heatmap, Lines, picture
from attention_course.questions import ask
from attention_course.text import CharTokenizer, Data, answers
from attention_course.text import get_batch, load_text, ngram_floor
from attention_course.text import stories_entropy, train_val_split
from attention_course.training import Recipe, Trainer, evaluate
from attention_course.training import load_model, recall, run, train

torch.set_printoptions(precision=3, sci_mode=False)

# %% [markdown]
# ## The text
#
# The course wrote a text of its own: tiny stories, drawn at random by a grammar. In each one somebody gives something to somebody, and four questions follow. The answers are never in the question. They are in the story.

# %%
text = load_text("stories")
print(text[:370])
print(f"... {len(text):,} characters, {text.count(chr(10)):,} stories")

# %% [markdown]
# A text that we made has two advantages over Shakespeare. We know how much of it is chance, so we know how good a model can get. And there are right answers to count.
#
# ## Characters to numbers
#
# A model reads numbers. List the characters that occur; the place in the list is the **id** of a character. That is a **tokenizer**. Its **vocabulary** is the list, and V is how long that is.

# %%
characters = sorted(set(text))
print("".join(characters).replace("\n", "⏎"))
V = len(characters)
V

# %%
ids_of = {character: i for i, character in enumerate(characters)}
ids = [ids_of[character] for character in "Kind Eve"]
print(ids)
print("".join(characters[i] for i in ids))

# %% [markdown]
# There and back, nothing is lost. The package's `CharTokenizer` does the same with large texts in mind.

# %%
tokenizer = CharTokenizer(text)
assert tokenizer.encode("Kind Eve").tolist() == ids
assert tokenizer.decode(tokenizer.encode(text)) == text

# %% [markdown]
# The last tenth of the text is put aside. The model is never trained on it. What it predicts there it has understood, and not learned by heart. The first part is the **training** text, the second the **validation** text.

# %%
ids = tokenizer.encode(text)
train_ids, val_ids = train_val_split(ids, val_share=0.1)
data = Data(train_ids, val_ids, tokenizer)
[round(len(part) / len(ids), 2) for part in (train_ids, val_ids)]

# %% [markdown]
# ## Many questions in one block
#
# A model looks at a limited number of characters: **block_size**.

# %%
ask("pairs_in_a_block")

# %%
block = train_ids[:9]
x, y = block[:8], block[1:]  # the inputs; the targets, one step later
for t in range(8):
    context = tokenizer.decode(x[: t + 1])
    target = tokenizer.decode(y[t : t + 1])
    print(f"after {context!r:10} comes {target!r}")

# %% [markdown]
# Under a causal mask all of them are answered in one pass: position t has seen x[0] to x[t], and must say y[t].
#
# A **batch** holds B such blocks, cut from the text at random places.

# %%
generator = torch.Generator().manual_seed(0)
x, y = get_batch(train_ids, block_size=8, batch_size=4, generator=generator)
x.shape, y.shape  # (B, T) each

# %%
for row_x, row_y in zip(x, y):
    print(repr(tokenizer.decode(row_x)), "->", repr(tokenizer.decode(row_y)))
assert torch.equal(x[:, 1:], y[:, :-1])

# %% [markdown]
# ## How good can a model be?
#
# The loss is the cross-entropy of rung 5: the mean of -ln p, where p is the probability that the model gave to what really came. It is counted in **nats** per character.
#
# Four marks can be known before anything is trained.
#
# 1. Someone who knows nothing gives every character the same probability, 1/V. That costs ln V.
# 2. Someone who knows how often each character occurs.
# 3. Someone who also looks one character back: a table of pairs, or **bigrams**. And two characters back: trigrams. The best table can be counted, and its loss is the **floor** of all such tables.
# 4. Someone who knows the grammar. Only chance is left: which names, which thing, which place, which order. That is the **entropy** of the text. Nobody can expect to get lower.

# %%
stories = text[: text.rindex("\n") + 1]
floors = {f"{n}-gram": ngram_floor(val_ids, n) for n in (1, 2, 3)}
entropy = stories_entropy(stories)
marks = {"nothing": math.log(V), **floors, "grammar": entropy}
picture(
    Bars(
        "Loss of someone who knows ...",
        torch.tensor(list(marks.values())),
        list(marks),
        "what is known",
        (0, 4),
    ),
    alt="Bars falling from 3.5 nats for someone who knows nothing, over 2.9, 1.4 and 0.5 for the best "
    "tables of one, two and three characters, to 0.09 for someone who knows the grammar.",
)

# %% [markdown]
# The entropy can be worked out by hand. A story has 8 × 7 × 8 × 8 × 24 equally likely forms: a giver, another one who gets it, a thing, a place, an order of four questions. That is ln 86016 nats of chance, spread over the characters of a story.

# %%
forms = 8 * 7 * 8 * 8 * math.factorial(4)
per_story = len(stories) / stories.count("\n")
assert math.isclose(entropy, math.log(forms) / per_story)
print(f"{forms} forms, {per_story:.1f} characters a story, {entropy:.3f} nats each")

# %% [markdown]
# ## A table of pairs
#
# The first model is a table. Row i holds the logits of what follows character i. `nn.Embedding` looks rows up.


# %%
class BigramLanguageModel(nn.Module):
    block_size = 128  # what it is shown at once; it looks at the last token only

    def __init__(self, vocab_size):
        super().__init__()
        self.table = nn.Embedding(vocab_size, vocab_size)

    def forward(self, ids):
        return self.table(ids), None


# %% [markdown]
# `None` stands where attention will return its weights.

# %%
ask("loss_before_training")

# %%
torch.manual_seed(0)
bigram = BigramLanguageModel(V)
x, y = get_batch(train_ids, 128, 24, generator)
logits, _ = bigram(x)  # (B, T, V)
loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
print(f"{loss.item():.1f}, and ln V is {math.log(V):.1f}")

# %% [markdown]
# Training repeats four lines: draw a batch, compute the loss, compute its gradient, take a step against it. `AdamW` decides how large the step is for each number.

# %%
optimizer = torch.optim.AdamW(bigram.parameters(), lr=0.1)
for _ in range(300):
    x, y = get_batch(train_ids, 128, 24, generator)
    loss = F.cross_entropy(bigram(x)[0].flatten(0, 1), y.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# %%
ask("below_the_bigram_floor")

# %%
reached = evaluate(bigram, val_ids)
assert floors["2-gram"] < reached < floors["2-gram"] + 0.02
print(f"{reached:.1f}, and the floor is {floors['2-gram']:.1f}")

# %% [markdown]
# The table is as good as a table can be. What does it write? `generate` asks the model, draws one character with the probabilities it gives, appends it, and asks again.

# %%
start = tokenizer.encode("\n")[None]  # (1, 1)
written = generate(bigram, start, 150, generator=torch.Generator().manual_seed(1))
print(tokenizer.decode(written[0]))

# %% [markdown]
# Every pair of neighbours is a pair of the text, and nothing is a story. After one character the rest is forgotten.
#
# ## Does it get the answers right?
#
# In the validation text, take the characters up to the answer of a question. The model has **recalled** it if each character of the answer is the one that it finds most probable. **Recall** is the share of answers for which that is so. There are 8 names, 8 things and 8 places, so a model that has learned the words but guesses among them gets about 1 in 8.

# %%
val_text = tokenizer.decode(val_ids)
begin, end = answers(val_text)[6]
print(repr(val_text[end - 50 : begin]), "->", repr(val_text[begin:end]))
recall(bigram, val_text, tokenizer)

# %% [markdown]
# ## One part at a time
#
# Now the rungs below come together. Every model from here on has the same frame. A token is looked up as a vector of n_embd = 64 channels. Parts work on the vectors. At the end each vector is compared with the vector of every character, by a dot product: these are the logits. One table serves for reading and for writing.

# %%
n_embd, block_size = 64, 128


class Model(nn.Module):
    block_size = block_size

    def __init__(self, *parts, position=False):
        super().__init__()
        self.token = nn.Embedding(V, n_embd)
        self.position = nn.Embedding(block_size, n_embd) if position else None
        self.parts = nn.Sequential(*parts)

    def forward(self, ids):
        x = self.token(ids)  # (B, T, n_embd)
        if self.position:
            x = x + self.position.weight[: ids.shape[1]]
        return self.parts(x) @ self.token.weight.T, None


# %% [markdown]
# The mean of the past is rung 1; attention is rung 7.


# %%
class Mean(nn.Module):
    def forward(self, x):
        return causal_mean_matmul(x)


class Attention(nn.Module):
    def __init__(self, n_head):
        super().__init__()
        self.attn = MultiHeadAttention(n_embd, n_head)

    def forward(self, x):
        return self.attn(x, causal_mask(x.shape[1]), need_weights=True)[0]


# %% [markdown]
# Three parts are new.
#
# **Feed-forward**: two linear layers with a bend between them, for each token by itself. Attention fetches; this part works on what was fetched. In between there are four times as many channels. The bend is `gelu`, which lets positive numbers through and holds negative ones back.


# %%
class MLP(nn.Module):
    def __init__(self, n_embd, bias=False):
        super().__init__()
        self.c_fc = nn.Linear(n_embd, 4 * n_embd, bias=bias)
        self.c_proj = nn.Linear(4 * n_embd, n_embd, bias=bias)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x)))


# %% [markdown]
# **Residual**: a part no longer replaces the vector, it adds to it. What was known stays known, and gradients have a way past every part.


# %%
class Residual(nn.Module):
    def __init__(self, part):
        super().__init__()
        self.part = part

    def forward(self, x):
        return x + self.part(x)


# %% [markdown]
# **LayerNorm**: before a part reads a vector, its channels get mean 0 and variance 1. Then it does not matter how long the vector has become from all that was added.

# %%
v = torch.tensor([[1.0, 2.0, 3.0, 6.0], [10.0, 20.0, 30.0, 60.0]])
normed = nn.LayerNorm(4)(v)
print(normed.detach())
torch.testing.assert_close(normed[0], normed[1], atol=1e-4, rtol=0)


# %%
def norm():
    return nn.LayerNorm(n_embd, bias=False)


def before(part):
    return nn.Sequential(norm(), part)


# %% [markdown]
# Here is the whole climb. Each line is the one above with one thing changed. The last line is the package's GPT: the same two parts with their LayerNorms, twice, one pair on top of the other. Such a pair is called a **block**.

# %%
config = GPTConfig(V, block_size, n_layer=2, n_head=4, n_embd=n_embd)
rungs = {
    "bigram": lambda: BigramLanguageModel(V),
    "mean of the past": lambda: Model(Mean()),
    "one head": lambda: Model(Attention(1)),
    "position": lambda: Model(Attention(1), position=True),
    "four heads": lambda: Model(Attention(4), position=True),
    "feed-forward": lambda: Model(Attention(4), MLP(n_embd), position=True),
    "residual": lambda: Model(
        Residual(Attention(4)), Residual(MLP(n_embd)), position=True
    ),
    "LayerNorm": lambda: Model(
        Residual(before(Attention(4))),
        Residual(before(MLP(n_embd))),
        norm(),
        position=True,
    ),
    "second layer": lambda: GPT(config),
}

# %%
ask("which_part_answers")

# %% [markdown]
# All get the same training: the same number of steps, the same batches, the same seed. Only the table of pairs gets a larger learning rate; it is so shallow that it needs one.
#
# `train` is the loop from above with three additions. The learning rate rises for the first steps and then falls like a cosine (**warm-up** and **cosine decay**). A gradient that is too long is shortened (**clipping**). And where the processor is faster with numbers of 16 bits, matrix products use them.


# %%
def begin(make):
    torch.manual_seed(0)
    model = make()
    if isinstance(model, Model):  # as GPT begins: see its docstring
        for parameter in model.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=n_embd**-0.5)
        if model.position:
            start = waves(block_size, n_embd) * n_embd**-0.5
            model.position.weight.data = start
    return model


recipe = Recipe(steps=900, batch_size=16, evaluate_every=150)
table_recipe = Recipe(
    steps=900, batch_size=16, evaluate_every=150, learning_rate=0.1
)

# %%
models, histories = {}, {}
for name in list(rungs)[:-1]:
    models[name] = begin(rungs[name])
    chosen = table_recipe if name == "bigram" else recipe
    histories[name] = train(models[name], data, chosen, name=name)

# %% [markdown]
# The last one is trained before your eyes. Watch three things: the loss passes the floors of the tables, one after the other; it rests for a while, and then drops once more; and the text becomes a story. **Stop** ends the training, and keeps the model as it is.

# %%
models["second layer"] = gpt = begin(rungs["second layer"])
watch = LiveTraining(tokenizer, floors={**floors, "entropy": entropy}, prompt="\n")
display(watch)
histories["second layer"] = train(gpt, data, recipe, watch=watch)

# %% [markdown]
# ## The table
