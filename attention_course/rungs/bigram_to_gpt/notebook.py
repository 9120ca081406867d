# %% [markdown]
# # Rung {bigram_to_gpt}: from a bigram to a GPT
#
# <!--ladder-->
#
# **You will build** a model that writes, character by character. It begins as a table of letter pairs. Parts are added one at a time, each is measured, and at the end it is a GPT that you trained yourself.
#
# <!--staircase-->
#
# Four heads, and the model spells most words right. But it still names the wrong person, the wrong thing and the wrong place, because it gets about one answer in nine right, as a guess among eight would. What is missing?

# %% tags=["hero", "folded"]
# The opening picture: one part of the GPT at a time
from attention_course.heroes import hero

hero("bigram_to_gpt")

# %% [markdown]
# **You need** [rung {bag_of_words}]({bag_of_words}.ipynb) for the mean of the past, [rung {scaling_variance}]({scaling_variance}.ipynb) for what a loss is, [rung {multi_head}]({multi_head}.ipynb) for attention with many heads.
#
# <!--time--> The machine trains for about four minutes in all, and for a minute and a half in one cell.
#
# ![The transformer as a drawing. Lit is what this rung builds: everything around attention: embedding, position, norm, feed-forward, the additions, logits.](images/transformer_bigram_to_gpt.svg)

# %% [markdown]
# ## The question
#
# A story is read aloud and stops in the middle of a word. You could continue it: you know the spelling, the grammar, and what was said before. Which part of a GPT gives it which of these?

# %% tags=["folded", "name:parts"]
# Imports
import math
import tempfile
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from attention_course.attention import (
    MultiHeadAttention,
    causal_mask,
    leak_probe,
    record_weights,
)
from attention_course.averaging import causal_mean_matmul
from attention_course.exercises import check
from attention_course.fills import fill
from attention_course.explorers import LiveTraining, explore
from attention_course.gpt import (
    GPT,
    GPTConfig,
    evaluating,
    generate,
    sinusoidal_positions,
)
from attention_course.plots import Bars, Lines, picture
from attention_course.progress import progress
from attention_course.questions import ask
from attention_course.stories import (
    answer_accuracy,
    answers,
    stories_entropy,
)
from attention_course.text import (
    CharTokenizer,
    Data,
    conditional_entropy,
    get_batch,
    load_text,
    train_val_split,
)
from attention_course.training import (
    RECIPES,
    Recipe,
    Trainer,
    evaluate,
    load_model,
    run,
    train,
)
from IPython.display import display

torch.set_printoptions(precision=3, sci_mode=False)

progress("bigram_to_gpt")

# %% [markdown]
# ## The text
#
# The course comes with a text of its own: tiny stories, drawn at random from a grammar. In each one somebody gives something to somebody. Three questions follow, and their answers are in the story.

# %% tags=["name:parts"]
text = load_text("stories")
print(text[:297])
print(f"... {len(text):,} characters, {text.count(chr(10)):,} stories")

# %% [markdown]
# We know how much of such a text is chance, so we know how good a model can get. And there are right answers to count.
#
# ## Characters to numbers
#
# A model reads numbers. List the characters that occur; the place in the list is the **id** of a character. That is a **tokenizer**. Its vocabulary is the list, and V is how long that is.

# %% tags=["name:parts"]
characters = sorted(set(text))
V = len(characters)
print(V, "characters:", "".join(characters).replace("\n", "⏎"))
ids_of = {character: i for i, character in enumerate(characters)}
ids = [ids_of[character] for character in "Kind Eve"]
print(ids, "is", "".join(characters[i] for i in ids))

# %% [markdown]
# The package's `CharTokenizer` does the same.
#
# The last tenth of the text is set aside, and no model is trained on it. The first part is the **training** text, the second the **validation** text. A model that had only memorized the training text would fail on the validation text. Some stories occur in both, so we also list those that are new.

# %% tags=["name:parts"]
tokenizer = CharTokenizer(text)
assert tokenizer.encode("Kind Eve").tolist() == ids
assert tokenizer.decode(tokenizer.encode(text)) == text
train_ids, val_ids = train_val_split(tokenizer.encode(text), val_share=0.1)
data = Data(train_ids, val_ids, tokenizer)

# %% tags=["folded", "name:parts"]
# Data: val_text, and new_stories: those of its stories that are new
seen = set(tokenizer.decode(train_ids).splitlines())
val_text = tokenizer.decode(val_ids)
val_stories = val_text.splitlines()[1:]  # the first one may be cut
new_stories = [story for story in val_stories if story not in seen]
print(f"{len(val_stories)} stories, {len(new_stories)} of them new")

# %% [markdown]
# ## Many predictions in one block
#
# A model looks at a limited number of characters, a **block** of the text. Their number is its **block_size**, in papers the **context length**.

# %% tags=["folded"]
# Question
ask("pairs_in_a_block")

# %%
block = train_ids[:9]
x, y = block[:8], block[1:]  # the inputs; the targets, one step later
for t in range(8):
    context = tokenizer.decode(x[: t + 1])
    target = tokenizer.decode(y[t : t + 1])
    print(f"after {context!r:10} comes {target!r}")

# %% [markdown]
# Under a causal mask all of them are answered in one forward pass: position t sees x[0] to x[t] and must predict y[t], the next character. This is the teacher forcing of rung {cross_and_causal}. It is why the K of "Kind" may not look at the letters after it: its position must predict the i.
#
# A **batch** holds B such blocks, cut from the text at random places.

# %%
generator = torch.Generator().manual_seed(0)
x, y = get_batch(train_ids, block_size=8, batch_size=4, generator=generator)
print(tuple(x.shape), tuple(y.shape))  # (B, T) each
for row_x, row_y in zip(x, y):
    print(f"{tokenizer.decode(row_x)!r} -> {tokenizer.decode(row_y)!r}")
assert torch.equal(x[:, 1:], y[:, :-1])

# %% [markdown]
# ## How good can a model be?
#
# The loss is the cross-entropy of rung {scaling_variance}: the mean of -ln p, where p is the probability that the model gave to the character that came. It is counted in nats per character. Papers often report its exponential, the perplexity of rung {masked_softmax}: at 8, a model is as uncertain as if it chose among 8 equally likely characters.
#
# Some baselines are known before anything is trained. One may know
#
# 1. nothing: every character gets the probability 1/V, and that costs ln V;
# 2. how often each character occurs (1-gram);
# 3. what follows each character: a table of pairs, or **bigrams** (2-gram); or what follows each two (3-gram);
# 4. the grammar. Only chance is left, the **entropy** of the text. No model can expect a lower loss.
#
# What is the loss of the best table of pairs? Count the pairs of the very text that it will be judged on. After "a", the best probabilities are the shares with which the characters really follow "a". No table can do better on that text: this is the **floor** of all such tables, in information theory the *conditional entropy*.

# %%
before, after = val_ids[:-1], val_ids[1:]
pairs = torch.zeros(V, V).index_put(
    (before, after), torch.tensor(1.0), accumulate=True
)
shares = pairs / pairs.sum(dim=1, keepdim=True)
floor = -shares[before, after].log().mean().item()
assert math.isclose(floor, conditional_entropy(val_ids, 2), rel_tol=1e-4)
floors = {f"{n}-gram": conditional_entropy(val_ids, n) for n in (1, 2, 3)}

# %% [markdown]
# The entropy can be worked out by hand. A story has 8 × 7 × 8 × 8 × 6 equally likely forms: who gives, who gets it, a thing, a place, an order of the questions. That is ln {{8 * 7 * 8 * 8 * math.factorial(3)}} nats of chance, spread over the characters of a story.

# %% tags=["folded"]
# Picture: the baselines; and the entropy worked out by hand
stories = text[: text.rindex("\n") + 1]
entropy = stories_entropy(stories)
marks = {"nothing": math.log(V), **floors, "grammar": entropy}
forms = 8 * 7 * 8 * 8 * math.factorial(3)
per_story = len(stories) / stories.count("\n")
assert math.isclose(entropy, math.log(forms) / per_story)
assert [round(mark, 1) for mark in marks.values()] == [
    3.5,
    2.9,
    1.5,
    0.5,
    0.1,
]
print(
    f"{forms} forms, {per_story:.1f} characters a story, "
    f"{entropy:.3f} nats each"
)
picture(
    Bars(
        "Loss, in nats per character, if you know ...",
        torch.tensor(list(marks.values())),
        list(marks),
        "what is known",
        (0, 4),
    ),
    alt="Bars falling from 3.5 nats for someone who knows nothing, over "
    "2.9, 1.5 and 0.5 for the best n-gram tables of one, two and three "
    "characters, to 0.1 for someone who knows the grammar.",
)

# %% [markdown]
# ## A table of pairs
#
# The first model is a table. Row i holds the logits of what follows character i. `nn.Embedding` looks rows up.


# %% tags=["name:parts"]
class BigramLanguageModel(nn.Module):
    block_size = 128  # tokens at once; each logit depends on one of them

    def __init__(self, vocab_size):
        super().__init__()
        self.table = nn.Embedding(vocab_size, vocab_size)

    def forward(self, ids):
        return self.table(ids)


# %% tags=["folded"]
# Question
ask("loss_before_training")

# %% [markdown]
# `F.cross_entropy` wants (N, V) for N predictions, so `flatten` makes one of batch and time. Of (B, T, V) it takes T for the vocabulary.

# %%
torch.manual_seed(4)
bigram = BigramLanguageModel(V)
x, y = get_batch(train_ids, 128, 24, generator)
logits = bigram(x)  # (B, T, V)
loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
print(f"{loss.item():.1f}, and ln V is {math.log(V):.1f}")
try:
    F.cross_entropy(logits, y)
except RuntimeError as error:
    print(error)

# %% [markdown]
# Training repeats five lines: draw a batch, compute the loss (the forward pass), reset the gradients, compute new ones (backpropagation), take a step against them. The optimizer, `AdamW`, scales the step for each parameter; the **learning rate**, `lr`, scales all of them. Then `evaluate` gives the mean loss over the validation text.

# %%
optimizer = torch.optim.AdamW(bigram.parameters(), lr=0.1)
for _ in range(300):
    x, y = get_batch(train_ids, 128, 24, generator)
    loss = F.cross_entropy(bigram(x).flatten(0, 1), y.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# %% tags=["folded"]
# Question
ask("below_the_bigram_floor")

# %%
reached = evaluate(bigram, val_ids)
assert floors["2-gram"] < reached < floors["2-gram"] + 0.02
print(f"{reached:.1f}, and the floor is {floors['2-gram']:.1f}")

# %% [markdown]
# The table is as good as a table can be. What does it write? `generate` is autoregressive, like the decoder of rung {cross_and_causal}: it samples a character from the model's probabilities, appends it, and runs the model again, as often as it was asked to.

# %% tags=["nbval-ignore-output"]
newline = tokenizer.encode("\n")[None]  # (1, 1)
written = generate(
    bigram, newline, 150, generator=torch.Generator().manual_seed(1)
)
print(tokenizer.decode(written[0]))

# %% [markdown]
# Nearly every pair of neighbours is a pair of the text, and nothing is a story. The table looks at one character, and at nothing before it.
#
# ## Does it get the answers right?
#
# In the validation text, take the characters up to an answer. The model is right if each character of the answer is the one that it finds most probable. The share of answers that it gets right is its **answer accuracy** (papers say *exact match*). There are 8 names, 8 things and 8 places, so a model that has learned the words but guesses among them gets about 1 in 8.

# %%
start, end = answers(val_text)[6]
print(repr(val_text[end - 50 : start]), "->", repr(val_text[start:end]))
accuracy = answer_accuracy(bigram, val_text, tokenizer)
assert accuracy < 1 / 8
accuracy

# %% [markdown]
# ## One part at a time
#
# Every model from here on has the same frame. A token is looked up as a vector of n_embd = 64 channels. Parts transform the vectors. At the end the dot products with the vectors of all characters are the logits. So one table is both the embedding (nanoGPT's `wte`) and the output matrix (its `lm_head`). This is **weight tying** (Press & Wolf 2017). It saves a matrix, and trains each row at every position, not only where its character occurs.
#
# A second table has a vector for each **position**, a learned positional embedding. It is added to the vector of the token.

# %% tags=["name:parts"]
n_embd, block_size = 64, 128


class Model(nn.Module):
    block_size = block_size

    def __init__(self, *parts, position=False):
        super().__init__()
        self.token = nn.Embedding(V, n_embd)
        self.position = position and nn.Embedding(block_size, n_embd)
        self.parts = nn.Sequential(*parts)

    def forward(self, ids):
        x = self.token(ids)  # (B, T, n_embd)
        if self.position:
            x = x + self.position.weight[: ids.shape[1]]
        return self.parts(x) @ self.token.weight.T


# %% [markdown]
# Now the parts. Two of them you know: the mean of the past, from rungs {bag_of_words} and {tril_matmul} (here of the values, as in attention, so that only the weights differ), and attention, from rung {multi_head}.
#
# Does attention need the positions? Without a mask it does not notice the order of the tokens ([rung {query_key_value}]({query_key_value}.ipynb)). The causal mask gives some of it away. Swap tokens 0 and 1: no later output changes, but outputs 0 and 1 do, and a second head, on top of the first, notices. A positional embedding makes it easier.


# %% tags=["name:parts"]
class Mean(nn.Module):
    def __init__(self):
        super().__init__()
        self.value = nn.Linear(n_embd, n_embd, bias=False)

    def forward(self, x):
        return causal_mean_matmul(self.value(x))


class Attention(nn.Module):
    def __init__(self, n_head):
        super().__init__()
        self.attn = MultiHeadAttention(n_embd, n_head)

    def forward(self, x):
        return self.attn(x, is_causal=True)


# %% tags=["folded"]
# Check: swap two tokens: what one head, and one on top of it, see
torch.manual_seed(0)
first, second = Attention(1), Attention(1)
x = torch.randn(1, 6, n_embd)
once, once_swapped = first(x), first(x[:, [1, 0, 2, 3, 4, 5]])
torch.testing.assert_close(once[:, 2:], once_swapped[:, 2:])
assert (
    (second(once) - second(once_swapped)).abs().amax(dim=-1) > 1e-4
).all()

# %% [markdown]
# Three parts are new. **Feed-forward**, in code often `mlp` (multi-layer perceptron): two linear layers with a nonlinear function between them, applied to each token separately. Attention moves information between tokens; this part processes it within each. For given weights, a head takes weighted sums and no more; this part can make a channel large only if two others are. In between there are four times as many channels, as in "Attention Is All You Need". The function is `gelu`, a smooth relative of ReLU. Without it the two linear layers would do no more than one.


# %% tags=["name:parts"]
class MLP(nn.Module):
    def __init__(self, n_embd, bias=False):
        super().__init__()
        self.c_fc = nn.Linear(n_embd, 4 * n_embd, bias=bias)
        self.c_proj = nn.Linear(4 * n_embd, n_embd, bias=bias)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x)))


# %% [markdown]
# **Residual connection**: a part does not replace the vector but adds to it. The vector that all parts read and add to is called the **residual stream**. What was known stays known, positions need adding only once, and gradients have a path around every part.


# %% tags=["name:parts"]
class Residual(nn.Module):
    def __init__(self, part):
        super().__init__()
        self.part = part

    def forward(self, x):
        return x + self.part(x)


# %% [markdown]
# **LayerNorm**: before a part reads a vector, its channels are shifted and scaled to mean 0 and variance 1. Then it does not matter how long the vector has become. A learned factor for each channel follows. Each vector is normalized by itself. (Batch normalization takes mean and variance over the batch and over time, and would let the future in.) One more LayerNorm comes before the logits.
#
# A LayerNorm before the part, as here, is **pre-norm**. With **post-norm** it comes after the sum, *on* the residual stream, and no path leads around it.

# %% tags=["name:parts"]
v = torch.tensor([[1.0, 2.0, 3.0, 6.0], [10.0, 20.0, 30.0, 60.0]])
print(nn.LayerNorm(4)(v).detach())


def norm():
    return nn.LayerNorm(n_embd, bias=False)


def normed(part):
    return nn.Sequential(norm(), part)


# %% [markdown]
# Here is the whole ladder. From "one head" on, each line is the one above with one change. The last line is the package's GPT: the same two parts with their LayerNorms, twice. Such a pair is called a **block** (of the model, not of the text) or a **layer**, and `n_layer` counts them.

# %% tags=["name:parts"]
config = GPTConfig(V, block_size, n_layer=2, n_head=4, n_embd=n_embd)
ladder = {
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
        Residual(normed(Attention(4))),
        Residual(normed(MLP(n_embd))),
        norm(),
        position=True,
    ),
    "second layer": lambda: GPT(config),
}

# %% tags=["folded"]
# Question
ask("which_part_answers")

# %% tags=["folded"]
# Question
ask("what_one_layer_gets")

# %% [markdown]
# All are trained by the same **recipe**: the same batches, seed, number of steps and learning rate. Only the table of pairs gets a larger learning rate: with the small one it would not reach its floor in time. All other models begin as this package's `GPT` does: random matrices with a standard deviation of 1/√n_embd (for `c_proj` half of that, because four of their outputs add up in the GPT), and, for the positions, the sines and cosines of rung {query_key_value}, which training then changes.
#
# `train` is the loop from above with four refinements. AdamW's shrinking (**weight decay**) is stronger here, and for matrices only, so that only entries that lower the loss stay large. The learning rate rises for the first steps, and then falls along a cosine (**warm-up** and **cosine decay**): small steps while the gradients are still erratic, and again at the end, to settle. A gradient whose norm is above a limit is scaled down to it (**clipping**), so that one bad batch does little harm. And where the hardware multiplies matrices faster in 16 bits, it does so (**mixed precision**).


# %% tags=["folded", "name:parts"]
# Helper: fresh(make) initializes a model as the GPT is
def fresh(make):
    torch.manual_seed(0)
    model = make()
    if isinstance(model, Model):
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2:
                less = 0.5 if name.endswith("c_proj.weight") else 1.0
                nn.init.normal_(parameter, std=less * n_embd**-0.5)
        if model.position:
            start = sinusoidal_positions(block_size, n_embd) * n_embd**-0.5
            model.position.weight.data = start
    return model


# %% tags=["name:parts"]
recipe = RECIPES["stories"]
table_recipe = replace(recipe, learning_rate=0.1)
models, histories = {}, {}


def climb(name, recipe=recipe):
    models[name] = fresh(ladder[name])
    histories[name] = train(models[name], data, recipe, name=name)


recipe

# %% [markdown]
# One **epoch** is one pass over the training text, or as many characters as that. Blocks that start at random overlap, and miss a few characters.

# %% tags=["folded"]
# Count: epochs, and how much of the text is seen
size = (recipe.steps * recipe.batch_size, 1)
starts = torch.randint(
    len(train_ids) - block_size, size, generator=generator
)
drawn = starts + torch.arange(block_size)  # (blocks, block_size)
print(f"{drawn.numel() / len(train_ids):.1f} epochs")
print(f"{100 * len(drawn.unique()) / len(train_ids):.0f} % of the text")

# %% tags=["name:climb", "long"]
climb("bigram", table_recipe)
for name in ("mean of the past", "one head", "position"):
    climb(name)

# %% tags=["name:climb", "long"]
for name in ("four heads", "feed-forward", "residual", "LayerNorm"):
    climb(name)

# %% [markdown]
# The last one is trained before your eyes; both axes are logarithmic. The loss falls through the floors of the tables, one after the other. At that of the pairs it slows down: up to there the last character was enough, and now the model has to learn to look back. **Stop** ends the training; then run the cell again before you go on.

# %% tags=["nbval-ignore-output", "long"]
gpt = fresh(ladder["second layer"])
live = LiveTraining(tokenizer, floors={**floors, "entropy": entropy})
shown = display(live, display_id=True)
history = train(gpt, data, recipe, callback=live)
shown.update(live)  # as it is now, for a page without a kernel
models["second layer"], histories["second layer"] = gpt, history

# %% [markdown]
# ## The table
#
# What is each part worth? Before you look, one row needs a control. The second layer also brings 83 % more parameters, and perhaps it is these that help. So let us also train a single layer that is wider, with nearly as many parameters as the two layers have.

# %% tags=["long"]
control = "one layer, as many parameters"
one_layer = ("LayerNorm", control)
ladder[control] = lambda: GPT(replace(config, n_layer=1, n_embd=88))
climb(control)
sizes = {
    name: sum(p.numel() for p in model.parameters())
    for name, model in models.items()
}
assert round(sizes["second layer"] / sizes["LayerNorm"] - 1, 2) == 0.83
assert 0.98 < sizes[control] / sizes["second layer"] < 1

# %% [markdown]
# Each model was trained once, with one seed and with the same learning rate (the table of pairs has its own), so small differences mean little. The numbers are from the machine that ran the notebook last; on yours they may differ a little.

# %% tags=["folded", "nbval-ignore-output", "proof"]
# Table: parameters, loss and answers of each model; the claims below
losses = {name: evaluate(model, val_ids) for name, model in models.items()}
accuracies = {
    name: answer_accuracy(model, val_text, tokenizer)
    for name, model in models.items()
}
print(f"{'part':30}{'parameters':>12}{'validation loss':>17}{'answers':>9}")
for name, size in sizes.items():
    print(f"{name:30}{size:12,}{losses[name]:17.3f}{accuracies[name]:9.2f}")

assert losses["mean of the past"] > losses["bigram"] > losses["one head"]
assert losses["position"] < 0.5 * losses["one head"]
assert 0.35 < losses["four heads"] / losses["position"] < 0.65
assert abs(losses["residual"] - losses["feed-forward"]) < 0.015
assert 0 < losses["four heads"] - losses["feed-forward"] < 0.05
assert 0 < losses["residual"] - losses["LayerNorm"] < 0.05

assert max(accuracies["feed-forward"], accuracies["residual"]) < 0.25
assert accuracies["LayerNorm"] > 0.35
assert accuracies["second layer"] > 0.95
assert all(
    accuracies[name] < 0.8 for name in set(models) - {"second layer"}
)
assert abs(losses[control] - losses["LayerNorm"]) < 0.02

# %% [markdown]
# Row by row:
#
# - The **mean of the past** is worse than the table of pairs. It knows which characters came, and no longer which one came last.
# - **One head** can choose where to look, and beats the table.
# - **Position** tells it where each token is. The loss falls to less than half.
# - With **four heads** it falls again, by about half.
# - **Feed-forward** lowers the loss once more.
# - **Residual** connections hardly change one layer. The next section shows what they are for.
# - **LayerNorm** (pre-norm) lowers the loss about as much as feed-forward did. With it, one layer gets half of the answers or more, without it about one in seven: with each of three seeds.
# - With a **second layer** nearly every answer is right.
# - The control says that depth did this. **One layer** with as many parameters ends at about the loss of the narrow layer, and like that one it gets fewer than 80 % of the answers.
#
# Which answers does one layer get? Each story asks three questions: what, where, and who got it.


# %% tags=["nbval-ignore-output"]
def right_by_question(model, words=("A", "the", "Poor")):
    right = {word: [] for word in words}  # the word before the answer
    with evaluating(model):
        for start, end in answers(val_text)[6:600]:
            ids = tokenizer.encode(val_text[end - block_size - 1 : end])
            hits = model(ids[None, :-1])[0].argmax(dim=-1) == ids[1:]
            word = val_text[:start].split()[-1]
            right[word].append(hits[start - end :].all().item())
    return {word: sum(each) / len(each) for word, each in right.items()}


shares = {
    name: right_by_question(models[name])
    for name in (*one_layer, "second layer")
}
for name, share in shares.items():
    print(
        f"{name:30}",
        *(f"{word} ...: {each:.2f}  " for word, each in share.items()),
    )

# %% tags=["folded"]
# Check: one layer finds some things and places, and guesses names
for name in one_layer:
    assert shares[name]["Poor"] < 0.25
    assert shares[name]["A"] + shares[name]["the"] > 0.6
assert min(shares["second layer"].values()) > 0.9

# %% [markdown]
# With LayerNorm, one layer finds many of the things and places, some seeds more and some fewer. With the names it is hardly better than a guess. A story has one thing and one place, so it is enough to look for letters that fit. But it has two names. To tell them apart by “kind” and “poor” takes two steps: each letter notes what comes before it, then a head looks for the right note. A layer does one step. (There is a way with one step, because in our grammar the one who got it is always named last. The single layers of this rung did not learn it. Some of those in rung {speed_run} do.)
#
# ## What residual connections and LayerNorm are for
#
# An ablation shows what they do for two layers: once without either ("bare"), once with each of them alone, and once post-norm. To save time these four get 300 steps. The others are compared at step 300, before their learning rate has fallen to 0, as that of the four has: a disadvantage for the others, if anything.


# %%
def two_layers(wrap, *last):
    parts = [
        wrap(part) for _ in range(2) for part in (Attention(4), MLP(n_embd))
    ]
    return Model(*parts, *last, position=True)


ablation = {
    "two layers, bare": lambda: two_layers(nn.Sequential),
    "two layers, residual": lambda: two_layers(Residual),
    "two layers, LayerNorm": lambda: two_layers(normed, norm()),
    "two layers, post-norm": lambda: two_layers(
        lambda part: nn.Sequential(Residual(part), norm())
    ),
}
ladder |= ablation

# %% tags=["long:300"]
for name in ablation:
    climb(name, replace(recipe, steps=300, evaluate_every=300))

# %% tags=["folded", "given"]
# Picture: the losses after 300 steps, and a check of what they show
some = [
    histories[name]
    for name in ("feed-forward", "LayerNorm", "second layer", *ablation)
]
after = torch.tensor([history.val_losses[:3][-1] for history in some])
assert {history.val_steps[:3][-1] for history in some} == {300}
bare_1, pre_1, pre_2, bare_2, residual_2, norm_2, post_2 = after
assert bare_2 > bare_1 + 0.05
assert max(residual_2, norm_2) < (bare_1 + bare_2) / 2
assert min(residual_2, norm_2) > pre_1 - 0.03
assert (post_2 - pre_1).abs() < 0.05
assert pre_2 < pre_1 - 0.01
assert pre_2 < min(residual_2, norm_2, post_2)
labels = (
    "one, bare",
    "one, pre-norm",
    "two, pre-norm",
    "two, bare",
    "two, residual",
    "two, LayerNorm",
    "two, post-norm",
)
picture(
    Bars(
        "Validation loss after 300 steps",
        after,
        [*labels],
        "layers",
        (0, 2.5),
    ),
    alt="Seven bars. One bare layer is below 0.4 nats per character, one "
    "with pre-norm at about 0.2, and two with pre-norm are lowest. Two "
    "bare layers are near 2; two with residual connections alone, with "
    "LayerNorm alone and with post-norm are far below that, and above two "
    "with pre-norm.",
)

# %% [markdown]
# Bare, the second layer does harm. Residual connections alone, or LayerNorm alone, undo most of it, but two such layers are hardly better than one layer with both. With post-norm they do about as well. With pre-norm the second layer pays off: what layer 0 knew is still there for the logits, the gradient reaches layer 0 without passing through layer 1, and each part reads normalized vectors. Xiong et al. (2020) say why post-norm is hard to train: at initialization the gradients near the output are large, so large first steps do harm. With enough care post-norm works.
#
# The residual stream leads past every head and every mask. Does it let the future through? No: the stream of position t gets only what the parts write there. The leak probe confirms it for a whole GPT. So the logits at position t are those of a text that ends at t. Training uses all of them, `generate` the last ones only.


# %% tags=["folded"]
# Check: a whole GPT does not leak; logits at t, and of a text up to t
def from_embeddings(x):
    for block in untrained.transformer.h:
        x = block(x, is_causal=True)
    return untrained.lm_head(untrained.transformer.ln_f(x))


untrained = fresh(ladder["second layer"])
probe = leak_probe(from_embeddings, torch.randn(1, 9, n_embd))
assert torch.equal(probe, causal_mask(9))

ids = tokenizer.encode("\n" + new_stories[0])[None]
at_once = untrained(ids)
for t in (0, 20, ids.shape[1] - 1):
    torch.testing.assert_close(
        at_once[:, t], untrained(ids[:, : t + 1])[:, -1]
    )

# %% [markdown]
# ## How much is left
#
# In the table, the loss of the GPT is still about one and a half times the entropy. The gap is mostly not the model's fault: a block may begin in the middle of a story, and then nobody can know what was said before. Give it whole stories, all of them new, and its loss is within a few percent of the entropy.
#
# Beware of comparing such a loss with that of a model that has other tokens: per word it is another number than per character. What can be compared is the total, in bits (nats divided by ln 2), for each byte of the text: **bits per byte**.

# %% tags=["folded", "nbval-ignore-output"]
# Measure: the loss on 200 new stories, for each character, word, byte
told = [f"\n{story}\n" for story in new_stories[:200]]
total = count = 0
with torch.no_grad():
    for story in told:
        ids = tokenizer.encode(story)[None]
        logits = gpt(ids[:, :-1])
        total += F.cross_entropy(
            logits[0], ids[0, 1:], reduction="sum"
        ).item()
        count += ids.shape[1] - 1  # one byte each
per_word = total / len(" ".join(told).split())
bits_per_byte = total / math.log(2) / count
assert entropy * 0.97 < total / count < entropy * 1.15
assert per_word > 4 * total / count
assert 0.1 < bits_per_byte < 0.2
print(
    f"nats for each character {total / count:.3f}, "
    f"{total / count / entropy:.2f} times the entropy\n"
    f"nats for each word      {per_word:.3f}\n"
    f"bits for each byte      {bits_per_byte:.3f}"
)

# %% [markdown]
# ## Overfitting
#
# Now the same GPT gets 1,500 characters of training text, about fifteen stories.

# %%
few = Data(train_ids[:1500], val_ids[:8000], tokenizer)
brief = Recipe(
    steps=200, batch_size=8, final_learning_rate=8e-3, evaluate_every=20
)
short_text = train(
    fresh(ladder["second layer"]), few, brief, name="short text"
)

# %% tags=["folded", "given"]
# Picture: the training loss falls on, the validation loss does not
of_training = torch.tensor(short_text.losses).view(-1, 20).mean(dim=-1)
of_validation = torch.tensor(short_text.val_losses)
assert of_training[-1] < 0.4 * of_validation[-1]
assert of_validation[-1] > of_validation.min()
assert losses["second layer"] < 0.4 * of_validation.min()
assert abs(losses["second layer"] - sum(history.losses[-100:]) / 100) < 0.03
picture(
    Lines(
        "Overfitting",
        torch.tensor(short_text.val_steps),
        {"training": of_training, "validation": of_validation},
        "steps",
        "nats per character",
        log=False,
    ),
    alt="Two curves over 200 steps. The training loss keeps falling, to "
    "about 0.2. The validation loss follows it down to about 0.7, and "
    "then rises again.",
)

# %% [markdown]
# This is **overfitting**: the training loss goes on falling; the validation loss stops falling, rises a little, and ends several times as high as the training loss. The model memorizes its fifteen stories, and that does not help with others. More text helps most: with all of it the same model had no such gap. Otherwise stop at the lowest validation loss (**early stopping**), take a smaller model, or use dropout. The opposite is **underfitting**: the table of pairs has no gap, and its loss is far above the entropy. The remedy is a larger model, or longer training if the loss is still falling.
#
# ## Look inside
#
# Here is a story that the model has never seen. The query stands where it must give the first answer.
#
# **Which head found the answer?** Try each head of both layers. Then move the query, for example to a letter in the middle of a word; it sees nothing to its right.

# %% tags=["folded"]
# Explorer: the weights of each head over a new story
story = "\n" + new_stories[3]
moments = answers(story)  # where the three answers are
start, end = moments[0]
print(repr(story[:start]), "->", repr(story[start:end]))
explore("attention_over_text", model=gpt, tokenizer=tokenizer, text=story)

# %% [markdown]
# In layer 0 most heads look at the last few characters. In layer 1, for each of the three questions, some head goes back to the first sentence, with most of its weight on the answer and the four characters after it. Why there? In layer 0 each position can note the letters before it. So a position *after* the answer's first letter knows that letter, and the words that lead up to it.

# %% tags=["folded", "nbval-ignore-output"]
# Check: which head of layer 1 looks at the answer
with record_weights() as layers:
    gpt(tokenizer.encode(story)[None])
weights = torch.stack(layers)
print(tuple(weights.shape), "= layers, texts, heads, queries, keys")
for start, end in moments:
    query = start - 1  # here the model has to find the first letter
    told = story.index(story[start:end])  # where the first sentence says it
    stop = told + (end - start) + 4  # the answer, and four characters more
    to_it = weights[1, 0, :, query, told:stop].sum(dim=-1)  # for each head
    assert to_it.max() > 0.5
    print(
        f"{story[start:end]:5} head {to_it.argmax()}: "
        f"{100 * to_it.max():.0f} %"
    )

# %% [markdown]
# A map of weights shows where a head looked, not what the model did with what it found (rung {cross_and_causal}). So change the story, and see whether the answer changes with it.

# %% tags=["nbval-ignore-output"]
for thing in ("map", "cup", "kite", "bell"):
    prompt = f"\nKind Dan gave poor Eve a {thing} at the gate. What? A "
    ids = tokenizer.encode(prompt)[None]
    written = generate(gpt, ids, len(thing) + 1, temperature=0)[0]
    answer = tokenizer.decode(written[ids.shape[1] :])
    print(f"{thing:5} -> {answer}")
    assert answer == f"{thing}."

# %% [markdown]
# ## Sample
#
# Before a character is drawn, `generate` changes the logits in two ways. First **top-k** keeps the k most probable characters, and the others get probability 0. Then the logits are divided by a **temperature**, as in rung {masked_softmax}: below 1 the choice gets safer, above 1 wilder. The other order would do the same, because dividing by a positive number leaves the k largest logits the largest. (For **top-p** or nucleus sampling the order does matter. It keeps the smallest set of characters whose probabilities add up to at least p, and how many these are depends on the temperature.)

# %% tags=["folded"]
# Question
ask("temperature_zero")

# %% [markdown]
# **Raise the temperature until words break. Then lower top-k until they heal.** The bars are the choice for the first character; the text is what follows.

# %% tags=["folded"]
# Explorer: temperature, top-k, and what the GPT writes with them
prompt = "\nKind Ann gave poor "
explore("sampling", model=gpt, tokenizer=tokenizer, prompt=prompt)

# %% [markdown]
# After "poor " the model spreads its probability over the names. The grammar leaves one out: Ann, who gives. Only her name begins with A. If the bar of A is low, the model has learned the rule; if it is as high as the others, only the names. The loss hardly shows it: in a story, not knowing the rule costs {{math.log(8 / 7):.2f}} nats of about {{math.log(forms):.0f}}.

# %% tags=["folded", "nbval-ignore-output"]
# Check: the probability of A beside that of one name in eight
ids = tokenizer.encode(prompt)[None]
with torch.no_grad():
    probabilities = torch.softmax(gpt(ids)[0, -1], dim=-1)
names = torch.tensor([ids_of[letter] for letter in "BDEJKST"])
assert probabilities[names].sum() > 0.8
assert probabilities[names].max() < 0.5
print(
    f"A: {probabilities[ids_of['A']]:.3f}, "
    f"and one name in eight is {1 / 8:.3f}"
)

# %% tags=["folded"]
# Question
ask("crop")

# %%
written = generate(gpt, newline, 300, top_k=5)
try:
    gpt(written)
except ValueError as error:
    print(error)

# %% [markdown]
# The model itself refuses more than block_size characters. `generate` shows it the last ones only.
#
# ## Save, load, resume
#
# `Trainer`, which `train` uses inside, takes one `step` at a time, and saves a **checkpoint**. That is a file with all that is needed to resume training: the parameters and sizes of the model, the characters of the tokenizer, the number of steps, and the states of the optimizer and of the random number generator.
#
# Below, `first` takes 10 steps and is saved. `second` loads the file. `run` takes both to step 20, and their losses are the same.

# %%
short = replace(recipe, steps=20, batch_size=4)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "gpt.pt"
    first = Trainer(fresh(ladder["second layer"]), data, short)
    for _ in range(10):
        first.step()
    first.save(path)
    second = Trainer(fresh(ladder["second layer"]), data, short)
    second.load(path)
    went_on = run(first, name="first, going on").losses
    resumed = run(second, name="second, resumed").losses
    loaded, its_tokenizer = load_model(path)
assert went_on == resumed  # to the last bit
assert its_tokenizer.characters == tokenizer.characters

# %% [markdown]
# ## Break it
#
# Here is a bug that many people write at least once. The shapes are right, and the training loss looks very good.

# %% tags=["folded"]
# Question
ask("unshifted_targets")


# %%
def almost_get_batch(ids, block_size, batch_size):
    starts = torch.randint(len(ids) - block_size, (batch_size,))
    x = torch.stack([ids[i : i + block_size] for i in starts])
    y = torch.stack([ids[i : i + block_size] for i in starts])
    return x, y


broken = fresh(ladder["second layer"])
optimizer = torch.optim.AdamW(broken.parameters(), lr=8e-3)
for _ in range(60):
    x, y = almost_get_batch(train_ids, 64, 16)
    loss = F.cross_entropy(broken(x).flatten(0, 1), y.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
assert loss < entropy  # better than possible
print(f"training loss {loss.item():.1f}, entropy {entropy:.1f}")

# %% [markdown]
# A loss far below the entropy is the alarm, unless the text is memorized: nobody can know what chance has not drawn yet. Two checks catch this bug. Are the targets the inputs, one step later? Is the validation loss low, with the right targets?

# %%
print("targets one step later:", torch.equal(x[:, 1:], y[:, :-1]))
val_loss = evaluate(broken, val_ids)
assert val_loss > floors["1-gram"]
print(f"validation loss {val_loss:.0f}")
ids = tokenizer.encode("Kind Ann t")[None]
written = tokenizer.decode(generate(broken, ids, 20, temperature=0)[0])
assert written == "Kind Ann t" + 20 * "t"
print(written)

# %% [markdown]
# ## Exercises
#
# ### 1. A batch
#
# <!--task get_batch-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("get_batch")


# %%
def my_get_batch(ids, block_size, starts):
    raise NotImplementedError


check("get_batch", my_get_batch)

# %% [markdown]
# ### 2. The loss
#
# <!--task cross_entropy_loss-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("cross_entropy_loss")


# %%
def my_loss(logits, targets):
    raise NotImplementedError


check("cross_entropy_loss", my_loss)

# %% [markdown]
# ### 3. Tokens and positions
#
# <!--task embed-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("embed")


# %%
def my_embed(ids, wte, wpe):
    raise NotImplementedError


check("embed", my_embed)

# %% [markdown]
# ### 4. A block
#
# <!--task pre_norm_block-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("pre_norm_block")


# %%
def my_block(x, attn, mlp, ln_1, ln_2):
    raise NotImplementedError


check("pre_norm_block", my_block)

# %% [markdown]
# ### 5. Generate
#
# <!--task generate-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("generate")


# %%
def my_generate(model, ids, block_size, draws):
    raise NotImplementedError


check("generate", my_generate)

# %% [markdown]
# ## Your own text
#
# Any text will do, in any alphabet. `load_text` takes the path of a file. It also knows `"tiny-shakespeare"`, and downloads it the first time: 1.1<!--given--> million characters of plays.

# %%
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "mine.txt"
    path.write_text("Привет, мир! " * 200, encoding="utf-8")
    mine = Data.of(load_text(path))  # put the path of your file here
print(mine.tokenizer.characters)
torch.manual_seed(0)
my_gpt = GPT(GPTConfig(mine.tokenizer.vocab_size))
few_steps = Recipe(steps=20, batch_size=8)  # take more
_ = train(my_gpt, mine, few_steps, name="mine")

# %% [markdown]
# For longer runs there is a command for the terminal. If it is stopped, the same command resumes from the checkpoint.
#
# ```
# python -m attention_course.training --text tiny-shakespeare --config shakespeare --checkpoint run.pt
# ```
#
# A GPT with four layers and 0.8<!--given--> million parameters reached a validation loss of 1.76<!--given--> nats per character, a little below the floor of all tables of three characters, 1.79<!--given-->. That took 155<!--given--> seconds on one core of a 2.8<!--given--> GHz Xeon. Many of its words are English, and it makes no sense.
#
# Several processes share the work if `torchrun` starts them, on one machine or on many. Each takes its part of every batch, and the gradients are averaged before each step. Without dropout, the result is that of one process, up to rounding.
#
# ```
# torchrun --nproc-per-node=2 -m attention_course.training --text stories
# ```
#
# ## From here to GPT-2
#
# The code of the model does not change. With the sizes of the smallest GPT-2 (Radford et al. 2019, table 2), ours has as many parameters as the model that was released. (The table says 117<!--given--> million; its authors corrected that later.) Without weight tying it would have {{50257 * 768 / 1e6:.1f}} million more.

# %% tags=["folded"]
# Count: the parameters of ours and of GPT-2
with torch.device("meta"):  # shapes only: no memory is taken
    gpt_2 = GPT(
        GPTConfig(50257, 1024, n_layer=12, n_head=12, n_embd=768, bias=True)
    )
sizes = [
    sum(p.numel() for p in model.parameters()) for model in (gpt, gpt_2)
]
assert sizes[1] == 124_439_808
print(
    f"ours {sizes[0]:,}, GPT-2 {sizes[1]:,}: "
    f"{sizes[1] / sizes[0]:,.0f} times as many"
)

# %% [markdown]
# Three large things separate ours from it.
#
# - **Size**: a thousand times as many parameters, 1024 tokens of context in place of {{block_size}}.
# - **Data**: 40 GB of web pages in place of {{len(text) / 1e6:.1f}} MB of stories, and much more compute. (Training on plain text is called **pretraining**; a shorter run on one task, **fine-tuning**, may follow.)
# - **Tokens**: 50,257 pieces of words, chosen by how often they occur (**byte pair encoding**), in place of {{V}} characters. A piece holds about four characters of English, so a context reaches further.
#
# ## In the wild
#
# - nanoGPT's `model.py` has the same parts under the same names: its parameters fit our `GPT` key by key.
# - "Attention Is All You Need" (Vaswani et al. 2017) is post-norm. GPT-2 is pre-norm, and so are most large language models since.
# - Note what comes before, then look for the note: that is also how an **induction head** works (Olsson et al. 2022), which finds the earlier place where the same text appeared, and copies what followed.
#
# ## Three sentences to remember
#
# 1. A GPT is a bigram table that has learned to look back: attention moves information between tokens, the feed-forward part processes it, and the residual stream carries the results from layer to layer.
# 2. In one layer, each character looks back once. In two, it can look at what others have noted. With one layer our GPT guessed who got it; with two it knows.
# 3. Know the entropy before you train, if you can: a validation loss clearly below it means that there is a bug.
#
# Next: [rung {a_real_model}]({a_real_model}.ipynb), where a model with a thousand times as many parameters runs on the same code.
#
# <!--neighbours-->
