# %% [markdown]
# # Rung {bigram_to_gpt}: from a bigram to a GPT
#
# <!--ladder-->
#
# **You will build** a GPT, part by part, and the loop that trains it.
#
# <!--staircase-->
#
# With four heads the model spells most words right, but it doesn't answer the questions any better than guessing would. What is missing?

# %% tags=["hero", "folded"]
# The opening picture: guess first, then add one part at a time
from attention_course.heroes import hero

hero("bigram_to_gpt")

# %% [markdown]
# **You need** [rung {scaling_variance}]({scaling_variance}.ipynb) for the loss, [rung {multi_head}]({multi_head}.ipynb) for heads.
#
# <!--time--> Training takes about two minutes in all.
#
# <!--test-out-->

# %% tags=["folded"]
# Two questions from the rungs below
from attention_course.questions import warm_up

warm_up("bigram_to_gpt")

# %% [markdown]
# ![The transformer as a drawing. Highlighted is everything that this rung builds around attention: embedding, position, norm, feed-forward, the additions, logits.](images/transformer_bigram_to_gpt.svg)
#
# ## A text is full of questions
#
# Training needs questions with known answers. Cover the end of a text, guess the next letter, and you have such a question. A model looks at **block_size** characters at most, and a piece of text of that length is a block.

# %% tags=["folded"]
# Question
from attention_course.questions import ask

ask("pairs_in_a_block")

# %% tags=["folded", "name:parts"]
# Imports
import math
import tempfile
from dataclasses import replace
from pathlib import Path
from pydoc_data.topics import topics

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
from attention_course.explorers import LiveTraining, explore
from attention_course.fills import fill
from attention_course.gpt import (
    GPT,
    GPTConfig,
    generate,
    sinusoidal_positions,
)
from attention_course.heads import head_scores, previous_token
from attention_course.plots import (
    BLUE,
    SKY,
    Bars,
    Lines,
    Picture,
    picture,
)
from attention_course.progress import progress
from attention_course.stories import (
    answer_accuracy,
    answers,
    stories_entropy,
)
from attention_course.text import (
    CharTokenizer,
    Corpus,
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
    parameter_groups,
    run,
    train,
)
from IPython.display import display
from matplotlib.figure import Figure

torch.set_printoptions(precision=3, sci_mode=False)

progress("bigram_to_gpt")

# %% [markdown]
# Our text is made of the stories that you know by now. A **tokenizer** turns each character into a number, its place in the sorted list of all characters.

# %% tags=["name:parts"]
text = load_text("stories")
tokenizer = CharTokenizer(text)
V = tokenizer.vocab_size
print(text[:199] + f"... {len(text):,} characters, {V} different ones")
tokenizer.encode("Kind Ben")

# %% [markdown]
# We never train on the last tenth of the text. The loss on this **validation** text tells us whether a model has learned the language or only memorized what it read.

# %% tags=["name:parts"]
train_ids, val_ids = train_val_split(tokenizer.encode(text), val_share=0.1)
data = Corpus(train_ids, val_ids, tokenizer)
block = train_ids[:9]

# %% [markdown]
# From the nine characters of `block`, make eight inputs `x` and eight targets `y`, so that `y[t]` answers the question that ends with `x[t]`.

# %% tags=["folded"]
# Fill in: the inputs and the targets
fill("inputs_and_targets")

# %% tags=["folded", "name:inputs_and_targets"]
# The inputs, and the targets one step later
x = block[:8]
y = block[1:]
x, y

# %% [markdown]
# Under the causal mask one forward pass answers all eight, because position t sees only x[0] to x[t]. A batch holds many such blocks, cut from the text at random places.

# %%
generator = torch.Generator().manual_seed(0)
x, y = get_batch(train_ids, block_size=8, batch_size=4, generator=generator)
for row_x, row_y in zip(x, y):
    print(f"{tokenizer.decode(row_x)!r} -> {tokenizer.decode(row_y)!r}")

# %% [markdown]
# ### More: who shifts, how long a block, and other tokens
#
# In Hugging Face's `transformers` you pass the *same* ids as `input_ids` and as `labels`, and the model shifts the labels inside, before it computes the loss. In nanoGPT, as here, the batch comes with shifted targets, so make sure you don't shift twice. If you do, the model learns to predict the character after the next one. Nothing crashes, and the loss still falls, but less far. (When the input is the whole piece of text, the logits after its last token have no target and are left out. Nothing is lost, because in another block that token has a target.)
#
# The number of tokens that a model can look at, our block_size, is called the **context length** in papers. Choose it just long enough that what the model needs lies within reach, because each head computes T × T scores, so a block twice as long takes more than twice the time. A story has about 98<!--given--> characters, and with blocks of 32<!--given--> instead of 128<!--given-->, and as many characters in each step, the GPT of this rung gives 21<!--given--> % right answers instead of nearly all.
#
# Nothing in a model says that its numbers stand for letters. The notes of a tune or the moves of a chess game would do as well, as long as each kind gets a number from 0 to V − 1, and only the tokenizer and V change.
#
# ## How good can it get?
#
# What should you expect? If you know nothing, you give every character the same probability and pay ln V nats. With a table of letter pairs (**bigrams**) you pay less. The lowest loss that such a table can reach on this text is its **floor**, and you find the floor by counting the pairs of this very text. If you know the grammar, you still pay for chance (the entropy), and no model can expect to pay less.

# %% tags=["folded"]
# Picture: the loss of someone who knows ...
floors = {f"{n}-gram": conditional_entropy(val_ids, n) for n in (1, 2, 3)}
entropy = stories_entropy(text[: text.rindex("\n") + 1])
marks = {"nothing": math.log(V), **floors, "the grammar": entropy}
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
# ### More: the floor by counting, and the entropy by hand
#
# The cell below finds the floor of the tables by counting pairs. `index_put_` adds a 1 at (before, after) for each pair of neighbours, `shares` turns each row into probabilities, and the loss is the mean of −ln p over the pairs of the text. After an "a", no other probabilities cost less on average than the shares with which the characters really follow an "a". Information theory calls this floor the conditional entropy.

# %% tags=["nbval-ignore-output"]
before, after = val_ids[:-1], val_ids[1:]
pairs = torch.zeros(V, V)
pairs.index_put_((before, after), torch.tensor(1.0), accumulate=True)
shares = pairs / pairs.sum(dim=1, keepdim=True)
floor = -shares[before, after].log().mean().item()
assert math.isclose(floor, floors["2-gram"], rel_tol=1e-4)
floor

# %% [markdown]
# How much does chance cost? A story has 8 × 7 × 8 × 8 × 6 equally likely forms, because one of eight people gives, one of the other seven receives, and there are eight things, eight places and six orders of the three questions. That is ln {{8 * 7 * 8 * 8 * math.factorial(3)}} nats of chance per story, spread over its characters.

# %%
forms = 8 * 7 * 8 * 8 * math.factorial(3)
per_story = text.rindex("\n") / text.count("\n")
assert math.isclose(
    entropy, math.log(forms) / (per_story + 1 / 4000), rel_tol=1e-2
)
math.log(forms), math.log(forms) / per_story

# %% [markdown]
# ### More: what is a tenth of a nat worth?
#
# A loss that is lower by 0.1 means that the model gives each character exp(0.1) times the probability on average (a geometric mean), so about a tenth more. That doesn't sound like much, but over a story of a hundred characters the factors multiply. So near the entropy a small difference can decide whether the answers are right, while far above the entropy you won't notice it in the text. What counts is the distance to the floor. (Papers often report the perplexity, exp(loss), as in rung {masked_softmax}. A perplexity of V is a guess among all V characters. You still train on the loss.)

# %%
math.exp(0.1), math.exp(0.1 * 100)

# %% [markdown]
# ## Five lines
#
# The first model is the table of pairs, with a row of logits for each character. How large is the table's loss before any training?

# %% tags=["folded"]
# Question
ask("loss_before_training")

# %% [markdown]
# Training repeats five lines. Run the model on a batch, compute the loss, reset the gradients, compute new gradients by backpropagation, and take a step against them. The optimizer, `AdamW`, takes the step, and the **learning rate**, `lr`, says how large the step is. `F.cross_entropy` wants one row of logits per prediction, so batch and time become one dimension.


# %% tags=["folded", "name:parts"]
# Helper: the table, its batches, and the stories of the validation text
class BigramLanguageModel(nn.Module):
    block_size = 128  # tokens at once; each logit depends on one of them

    def __init__(self, vocab_size):
        super().__init__()
        self.table = nn.Embedding(vocab_size, vocab_size)

    def forward(self, ids):
        return self.table(ids)


batches = [
    get_batch(train_ids, 128, 24, torch.Generator().manual_seed(step))
    for step in range(300)
]
val_text = tokenizer.decode(val_ids)
seen = set(tokenizer.decode(train_ids).splitlines())
val_stories = val_text.splitlines()[1:]  # the first one may be cut
new_stories = [story for story in val_stories if story not in seen]

# %% tags=["folded"]
# Fill in: the five lines
fill("five_lines")

# %% tags=["name:five_lines"]
torch.manual_seed(4)
table = BigramLanguageModel(V)
optimizer = torch.optim.AdamW(table.parameters(), lr=0.1)
losses = []
for x, y in batches:
    logits = table(x)  # (B, T, V)
    loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

# %% [markdown]
# Now look at the loss.

# %% tags=["folded"]
# Picture: the loss of the table, step by step
figure = Figure(figsize=(6, 2.4), layout="constrained")
axes = figure.subplots()
axes.plot(losses)
axes.set(xlabel="step", ylabel="nats per character", ylim=(0, 5))
Picture.of(figure, alt="The loss falls from about 4 to about 1.5.")

# %% tags=["folded"]
# Question
ask("below_the_bigram_floor")

# %% tags=["nbval-ignore-output"]
reached = evaluate(table, val_ids)
assert floors["2-gram"] < reached < floors["2-gram"] + 0.03
print(f"{reached:.2f}, and the floor is {floors['2-gram']:.2f}")

# %% [markdown]
# The table is nearly as good as a table can be. Let it write. The loop below, the core of `generate`, draws a character from the model's probabilities, appends it, and runs the model again. We also count the right answers. The **answer accuracy** is the share of answers in the validation text where, at every letter, the model's highest logit is the right one. There are 8 names, 8 things and 8 places, so a guess is right one time in eight.


# %% tags=["nbval-ignore-output"]
@torch.no_grad()
def write_on(model, ids, characters, draws, temperature=1.0):
    for _ in range(characters):
        logits = model(ids[:, -model.block_size :])  # (B, T, V)
        of_next = (logits[:, -1] / temperature).softmax(dim=-1)
        drawn = torch.multinomial(of_next, 1, generator=draws)  # (B, 1)
        ids = torch.cat([ids, drawn], dim=1)
    return ids


newline = tokenizer.encode("\n")[None]  # (1, 1)
draws = torch.Generator().manual_seed(1)
written = write_on(table, newline, 100, draws)
draws.manual_seed(1)
assert torch.equal(written, generate(table, newline, 100, generator=draws))
print(tokenizer.decode(written[0, 1:]))
answer_accuracy(table, val_text, tokenizer)

# %% [markdown]
# ### More: what AdamW does with a gradient
#
# Gradient descent would subtract lr times the gradient, so entries with large gradients would move far and the others hardly at all. Adam keeps two running means for each parameter, one of its gradients and one of their squares, and its step is lr times the first mean, divided by the root of the second. So every entry moves by about lr per step as long as its gradients point the same way, and by less when they contradict each other. The two `betas` say how far back these means reach, 0.9<!--given--> over about ten steps and 0.95<!--given--> over about twenty. (PyTorch's default for the squares is 0.999<!--given-->, which is about a thousand steps. When gradients suddenly grow, so long a mean stays too small for a while, and the steps are too large, but a mean over twenty steps soon catches up. GPT-3 also takes 0.95<!--given--> (Brown et al. 2020, appendix B).)
#
# So a learning rate belongs to its optimizer. In 100<!--given--> steps of a small GPT, plain gradient descent (`SGD`) did best with a rate of 0.7<!--given-->, at a loss of 0.93<!--given-->, and AdamW with 0.01<!--given-->, at 0.46<!--given-->, but AdamW with 0.3<!--given--> got stuck at 2.9<!--given-->. (SGD that steps along a running sum of the gradients got to 0.55<!--given-->.) If Adam seems to fail where SGD works, lower its rate before you give it up.
#
# The W stands for **weight decay**. At each step AdamW also shrinks the parameters a little, so that a parameter stays large only if that lowers the loss. Usually only matrices shrink, and `parameter_groups` leaves out biases and the scales of norms, since there are few of them and a small scale would switch a channel off.

# %% [markdown]
# ## The parts
#
# From here on all models have the same frame. One table gives each character a vector of 64 channels, another gives one to each position, and the two vectors are added. Some parts transform the sum, and the result's dot products with the vectors of all characters are the logits.


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


# %% [markdown]
# Attention carries information between tokens, but once its weights are fixed a head can only add up values. The *feed-forward* part, often called `mlp`, works on each token by itself. It has two linear layers with a bend between them, so it can, say, switch one channel on only if two others are on. (The bend, or nonlinearity, is `gelu`, a rounded version of ReLU. Without it, two linear layers do no more than one.)
#
# A **residual connection** adds what a part computes to what was there, like the note in the margin of rung {query_key_value}. The vector that all parts read and add to is called the residual stream, and gradients run back along this stream past every part.
#
# Every addition changes how large the stream's numbers are. So before a part reads a vector, **LayerNorm** shifts and scales its channels to mean 0 and variance 1. Then it multiplies each channel by a learned scale (`weight`) and may add a learned `bias` (ours doesn't).


# %% tags=["folded"]
# Question
ask("what_the_stream_needs")


# %% tags=["name:parts"]
class MLP(nn.Module):
    def __init__(self, n_embd, bias=False):
        super().__init__()
        # four times as wide in between, by custom: room for combinations
        self.c_fc = nn.Linear(n_embd, 4 * n_embd, bias=bias)
        self.c_proj = nn.Linear(4 * n_embd, n_embd, bias=bias)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x)))


class Residual(nn.Module):
    def __init__(self, part):
        super().__init__()
        self.part = part

    def forward(self, x):
        return x + self.part(x)


def norm():
    return nn.LayerNorm(n_embd, bias=False)


def normed(part):
    return nn.Sequential(norm(), part)


# %% [markdown]
# From "one head" on, each model is the one above it with one change, up to the package's `GPT`. Attention and feed-forward together are called a **layer**.

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
        norm(),  # once more, because the logits also read the stream
        position=True,
    ),
    "second layer": lambda: GPT(config),
}

# %% [markdown]
# ### More: weight tying, initialization, pre-norm and post-norm
#
# Here the same table is both the embedding and the output matrix (nanoGPT's `wte` and `lm_head`), which is called **weight tying** (Press & Wolf 2017). Tying saves a matrix. It also trains each row at every position, and not only where its character occurs, because softmax pushes *all* logits, the right one up and the others down. Only one initialization of the shared table survives, the last one, and it has to be a small one. With the default of `nn.Embedding`, a standard deviation of 1, our GPT would start at a loss of about 43<!--given-->.
#
# All models but the table begin with random matrices of standard deviation 1/√n_embd, and positions begin as the sines and cosines of rung {query_key_value}. The last matrix of each part, `c_proj`, gets half of that. The GPT's four parts add four outputs to the stream, and a sum of four independent numbers has four times their variance (rung {scaling_variance}), so halving each standard deviation keeps the sum at the size of a single output. For n_layer layers the factor is 1/√(2 · n_layer).
#
# A LayerNorm before the part, as here, is **pre-norm**. It normalizes only what a part reads. The stream itself isn't normalized until the end, so it would grow with every part, which is why `c_proj` starts smaller. In **post-norm**, which "Attention Is All You Need" used, the norm comes after the sum, *on* the stream, and no path leads around it. Xiong et al. (2020) explain why post-norm is hard to train. At initialization the gradients near the output are large, so large first steps do harm. Batch normalization would be worse still, because it takes mean and variance over the batch and over time, which lets the future in.

# %%
v = torch.tensor([[1.0, 2.0, 3.0, 6.0], [10.0, 20.0, 30.0, 60.0]])
nn.LayerNorm(4)(v).detach()

# %% [markdown]
# ### More: does attention need the positions?
#
# Without a mask, attention doesn't notice the order of the tokens (rung {query_key_value}). The causal mask gives some of the order away, because a second head on top of the first notices when tokens 0 and 1 are swapped. A positional embedding makes the order much easier to see, as the table below will show.
#
# ## Run it
#
# All models get the same recipe, which means the same batches, 400 steps and the same learning rate (only the table needs a larger one). The models in the opening picture had three times as many steps, so their losses are lower. (The “one head” at the top of the page also has positions.) `train` runs your five lines, with a progress bar and two refinements that we'll explain below. Before you run it, write down which change you think won't help.


# %% tags=["folded", "name:parts"]
# Helper: fresh(make) initializes a model the way the GPT does it
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


# %% tags=["name:parts", "long:400"]
recipe = replace(RECIPES["stories"], steps=400, evaluate_every=200)
models, histories = {}, {}


def climb(name, recipe=recipe):
    models[name] = fresh(ladder[name])
    histories[name] = train(models[name], data, recipe, name=name)


# %% tags=["long", "do"]
climb("bigram", replace(recipe, learning_rate=0.1))
for name in ("mean of the past", "one head", "position", "four heads"):
    climb(name)

# %% tags=["long"]
for name in ("feed-forward", "residual", "LayerNorm"):
    climb(name)


# %% tags=["folded", "nbval-ignore-output", "proof"]
# Table: the parameters, loss and answers of each model
def table_of(*names):
    print(f"{'part':30}{'parameters':>12}{'loss':>8}{'answers':>9}")
    for name in names:
        model = models[name]
        losses[name] = evaluate(model, val_ids)
        accuracies[name] = answer_accuracy(model, val_text, tokenizer)
        sizes[name] = sum(p.numel() for p in model.parameters())
        print(
            f"{name:30}{sizes[name]:12,}"
            f"{losses[name]:8.2f}{accuracies[name]:9.2f}"
        )


losses, accuracies, sizes = {}, {}, {}
table_of(*models)

assert losses["mean of the past"] > losses["bigram"] > losses["one head"]
assert losses["position"] < 0.75 * losses["one head"]
assert losses["four heads"] < 0.65 * losses["position"]
assert losses["feed-forward"] > 0.85 * losses["four heads"]
assert losses["residual"] < 0.5 * losses["feed-forward"]
assert losses["LayerNorm"] < losses["residual"]
assert max(accuracies.values()) < 0.25

# %% [markdown]
# - The mean of the past no longer knows which character came last, so it's worse than the table.
# - One head chooses where to look, and just beats the table. With positions a head knows where the letters are, and four heads can look at several at once.
# - Feed-forward doesn't help yet. Residual connections then more than halve the loss, at least in so few steps.
# - LayerNorm adds little here.
#
# Now look at the column on the right. You've made seven changes, and the model still answers no better than a guess. One change is left, the same layer once more, and it doesn't look as if that could help. Here is the whole model in your own parts. With the same parameters it computes what `GPT` does.


# %% tags=["proof"]
def layer():
    return Residual(normed(Attention(4))), Residual(normed(MLP(n_embd)))


by_hand = Model(*layer(), *layer(), norm(), position=True)
packaged = GPT(config)
pairs_of = zip(by_hand.parameters(), packaged.parameters(), strict=True)
for mine, theirs in pairs_of:
    mine.data = theirs.data
ids = val_ids[None, :block_size]
torch.testing.assert_close(by_hand(ids), packaged(ids))

# %% [markdown]
# ## Your loop, your GPT
#
# You train the last model yourself, with your five lines and two refinements. A bad batch can give a huge gradient, so you scale any gradient with a norm above 1 down to norm 1, which is called clipping. And since AdamW's steps depend on running means, which at first cover very few batches, the learning rate starts small and rises in a warm-up. Then the rate falls along half a wave, a cosine decay, so that the model can settle.

# %%
step = torch.arange(400)

# %% tags=["folded"]
# Fill in: the learning rate of a step
fill("rate_of_a_step")

# %% tags=["folded", "name:rate_of_a_step"]
# The learning rate of each of 400 steps, as a share of the highest one
rising = (step + 1) / 50
done = (step - 50).clamp(min=0) / 350
falling = 0.5 * (1 + torch.cos(torch.pi * done))
share = torch.minimum(rising, falling)

# %% [markdown]
# Here is the whole loop. Every 25 steps it takes some measurements and asks the model who got Ben's drum. Before you run it, guess what you'll see.

# %% tags=["folded"]
# Question
ask("how_it_learns_to_answer")


# %% tags=["folded"]
# Helper: measure(model) looks into its two layers, on new stories
def looks(model, stories=new_stories[:12]):
    back, at_answer = [], []
    for story in stories:
        ids = tokenizer.encode("\n" + story)
        with torch.no_grad(), record_weights() as layers:
            model(ids[None])
        first, second = (layer[0] for layer in layers)  # (heads, T, T)
        back.append(head_scores(first, previous_token(ids)))
        for start, end in answers("\n" + story):
            told = ("\n" + story).index(("\n" + story)[start:end])
            to_it = second[:, start - 1, told + 1 : told + 6].sum(dim=-1)
            at_answer.append(to_it)
    return (
        torch.stack(back).mean(dim=0).max().item(),
        torch.stack(at_answer)
        .view(-1, 3, 4)
        .mean(dim=0)
        .amax(-1)
        .mean()
        .item(),
    )


def measure(model):
    right = answer_accuracy(model, val_text[:9000], tokenizer)
    return right, *looks(model)


# %% tags=["nbval-ignore-output", "long:400", "do", "name:your_loop"]
gpt = fresh(ladder["second layer"])
optimizer = torch.optim.AdamW(
    parameter_groups(gpt, weight_decay=0.1),  # matrices shrink a little
    betas=(0.9, 0.95),  # how far back its running means reach
)
generator = torch.Generator().manual_seed(0)
asked = "\nKind Ben gave poor Sam a drum at the farm. Who got it? Poor "
steps, my_losses, measured, said = 400, [], {}, {}
for i in range(steps):
    for group in optimizer.param_groups:
        group["lr"] = 8.4e-3 * share[i].item()  # the best of several rates
    x, y = get_batch(train_ids, block_size, 24, generator)
    loss = F.cross_entropy(gpt(x).flatten(0, 1), y.flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(gpt.parameters(), 1.0)
    optimizer.step()
    my_losses.append(loss.item())
    if i % 25 == 0 or i == steps - 1:
        measured[i + 1] = measure(gpt)
        written = generate(
            gpt, tokenizer.encode(asked)[None], 20, temperature=0
        )
        said[i + 1] = tokenizer.decode(written[0, len(asked) :])
        print(f"{i + 1:4} {loss.item():5.2f}  Poor {said[i + 1]!r}")

# %% [markdown]
# ## The moment it clicks
#
# Your model babbles, then it spells, then it guesses names, until at some step it says Sam and sticks with Sam. Was that luck? The picture shows the loss, the answer accuracy, the weight that layer 0 puts on the previous letter, and the weight that layer 1 puts on the answer when it's asked for.

# %% tags=["folded", "given"]
# Picture: loss, answers, and two heads, over the steps of your run
moments = torch.tensor(list(measured))
curves = torch.tensor(list(measured.values())).T
picture(
    Lines(
        "Loss",
        torch.arange(1, len(my_losses) + 1),
        {"loss": torch.tensor(my_losses)},
        "step",
        "nats per character",
        levels=floors | {"entropy": entropy},
    ),
    Lines(
        "Answers and heads",
        moments,
        dict(zip(("answers", "looks back", "finds answer"), curves)),
        "step",
        "share",
        log=False,
    ),
    alt="Left, the loss over the steps, which slows down at the floor of "
    "the pairs. Right, three curves over the same steps. The share of "
    "right answers stays low, and then climbs to 1 within a hundred steps; "
    "the weight on the answer climbs with it.",
)

# %% [markdown]
# The loss slows down at the floor of the pairs, because below this floor the last character isn't enough. In the second picture, this model does no better than guessing for the first 125<!--given--> steps. Then “answers” jumps, and by step 250<!--given--> nearly all of them are right. Such a jump is called a phase change. Meanwhile the loss falls by about a tenth of a nat, and nothing in its curve says what happened. So measure what you want, not just the loss.
#
# Did the second layer do this, or just more parameters? The control is a single layer with about as many parameters as the two.

# %% tags=["long", "nbval-ignore-output"]
models["second layer"] = gpt
control = "one layer, as many parameters"
ladder[control] = lambda: GPT(replace(config, n_layer=1, n_embd=88))
climb(control)
table_of("LayerNorm", control, "second layer")

# %% tags=["folded", "long"]
# Check: the second layer brings the answers, and its parameters do not
assert 0.98 < sizes[control] / sizes["second layer"] < 1
assert accuracies["second layer"] > 0.95 > 0.25 > accuracies[control]
assert abs(losses[control] - losses["LayerNorm"]) < 0.02

# %% [markdown]
# Stop here for a moment. None of your models before this one did better than a guess, but this one *knows*. The control also guesses, so size doesn't make the difference. (With three times as many steps, the single layer in the opening picture finds most things and places, but only 12<!--given--> % of the names.)
#
# ## Two layers, one lookup
#
# What can two layers do that a single layer of the same size didn't learn? At the end of rung {query_key_value}, two heads that we wrote by hand found Sam. The arrows below are weights that your model found by itself.

# %% tags=["folded"]
# Question
ask("what_one_layer_gets")

# %% tags=["folded", "nbval-ignore-output"]
# Picture: which letter, which note, which query
story = asked
with torch.no_grad(), record_weights() as layers:
    gpt(tokenizer.encode(story)[None])
notes, lookup = (layer[0] for layer in layers)  # (heads, T, T)
at, asks = story.index("Sam"), len(story) - 1
by_head = lookup[:, asks, at + 1 : at + 6].sum(dim=-1)
finder = int(by_head.argmax())
noted = at + 1 + int(lookup[finder, asks, at + 1 : at + 6].argmax())

figure = Figure(figsize=(8, 1.8), layout="constrained")
axes = figure.subplots()
for t, letter in enumerate(story[1:]):
    colour = "black" if t + 1 not in (noted, asks) else BLUE
    axes.text(t + 1, 0, letter.replace(" ", "␣"), ha="center", color=colour)


def arrows(weights, t, side, colour):
    for s, weight in enumerate(weights.tolist()):
        if weight > 0.08 and s != t:
            bend = f"arc3,rad={-side * 0.5 * min(1, 8 / (t - s))}"
            axes.annotate(
                "",
                (t, 0.3 + side * 0.6),
                (s, 0.3 + side * 0.6),
                arrowprops={
                    "arrowstyle": "-|>",
                    "connectionstyle": bend,
                    "color": colour,
                    "linewidth": 5 * weight,
                },
            )


arrows(notes[:, noted].amax(dim=0), noted, 1, SKY)
arrows(lookup[finder, asks], asks, -1, BLUE)
axes.set(xlim=(0, len(story)), ylim=(-2.5, 2.5))
axes.axis("off")
Picture.of(
    figure,
    alt="The story, letter by letter. Above it, layer 0: arrows from the S "
    "of Sam and letters near it to a place just after the S. Below it, "
    "layer 1: a thick arrow from that place to the space after “Poor”.",
)

# %% [markdown]
# - **Which letter?** An S has to follow the last “Poor”. But before the first layer, the S of Sam knows only itself, and nothing there says that “poor” came before.
# - **Which note?** In layer 0 (above the line), a letter just after the S looks back, most of all at the S, and several heads together note what they saw, “an S, and before it *poor*”. The space after the last “Poor” has also looked back.
# - **Which query?** So in layer 1 (below the line) this space can ask for a note with *poor*, and finds it just after the S, where the value says S.
#
# The second step needs what the first has written, so a wider layer can't take both at once. A head that finds an earlier place with the same text, and copies what followed it, is called an induction head (Olsson et al. 2022).
#
# Now you can read the jump. The curve “looks back” rises first, so by step 125 there is something to read, and only then can layer 1 learn to read it. Large models make a similar jump as their induction heads form.

# %% tags=["folded"]
# Explorer: the weights of each head over a new story
story = "\n" + new_stories[3]
explore("attention_over_text", model=gpt, tokenizer=tokenizer, text=story)

# %% [markdown]
# **Which head found the answer?** Try the heads of both layers, then open the next cell.

# %% tags=["folded", "nbval-ignore-output"]
# Measure: which head of layer 1 looks at the answer
with record_weights() as layers:
    gpt(tokenizer.encode(story)[None])
weights = torch.stack(layers)
print(tuple(weights.shape), "= layers, texts, heads, queries, keys")
for start, end in answers(story):
    query = start - 1  # here the model has to find the first letter
    told = story.index(story[start:end])  # where the first sentence says it
    stop = told + (end - start) + 4  # the answer, and four characters more
    to_it = weights[1, 0, :, query, told:stop].sum(dim=-1)  # for each head
    assert to_it.max() > 0.3
    print(
        f"{story[start:end]:5} head {to_it.argmax()}: "
        f"{100 * to_it.max():.0f} %"
    )

# %% tags=["folded", "long"]
# Check: the notes come first, then the answers and the finder together
assert said[400][:4] == "Sam."
assert by_head.max() > 0.5  # of the space after “Poor”
assert notes[:, noted, at].max() > 0.2  # on the S
right, back, finds = (
    {moment: each[i] for moment, each in measured.items()} for i in range(3)
)
assert right[101] < 0.3
assert right[276] > 0.9
assert finds[101] < 0.3 < 0.6 < finds[276]
assert back[126] > 0.75 * back[400]
assert sum(my_losses[100:125]) / 25 - sum(my_losses[250:275]) / 25 < 0.15

# %% [markdown]
# ### More: does it always click this soon?
#
# No. We began eight times, each time with other first parameters and other batches. Three of the models answered everything after 400<!--given--> steps, and the rest between 84<!--given--> and 93<!--given--> %. When two heads find each other is partly luck, so don't judge a change to a model by a single run. Rung {speed_run} shows how many runs it takes.

# %% [markdown]
# ### More: change the story, and the answer changes with it
#
# A map of weights shows where a head looked, but not what the model did with what the head found (rung {cross_and_causal}). So change the story.

# %% tags=["nbval-ignore-output"]
for thing in ("map", "cup", "kite", "bell"):
    prompt = f"\nKind Dan gave poor Eve a {thing} at the gate. What? A "
    ids = tokenizer.encode(prompt)[None]
    written = generate(gpt, ids, len(thing) + 1, temperature=0)[0]
    answer = tokenizer.decode(written[ids.shape[1] :])
    print(f"{thing:5} -> {answer}")
    assert answer == f"{thing}."

# %% [markdown]
# ### More: should I add layers, or make them wider?
#
# For our questions the answer is layers, because a lookup takes two steps. Your model answers nearly all of them, while the control, a single layer with about as many parameters, has to guess.
#
# From two layers on, there is no such sharp answer. Kaplan et al. (2020, section 3.1) trained many shapes with about the same number of parameters (not counting the tables of tokens and positions). Over a wide range of shapes the loss differed by only a few percent, and 6 layers of 4288<!--given--> channels came within 3<!--given--> % of 48 layers of 1600<!--given-->, the largest GPT-2. The exceptions had fewer than two layers, like our control, or an extreme shape. So decide how many parameters you can afford, and then take a shape that others have used. The smallest GPT-2 has 64<!--given--> channels for each layer and the largest 33<!--given-->, so 48<!--given--> layers of 64<!--given--> channels would be extreme.
#
# With the same number of parameters, wide models are usually faster, because each layer has to wait for the one before, while the channels of a layer can be computed side by side. And all this is about the loss. As you have seen, a small difference in the loss can hide whether a model answers.

# %% [markdown]
# ### More: what residual connections and norms do for two layers
#
# An ablation, where you leave parts out, shows what they do. Train two layers with neither of them ("bare"), with post-norm, and with pre-norm, for 150 steps each. (A single layer gains only speed from residual connections, because with three times as many steps the bare model of the table above catches up.)


# %%
def two_layers(wrap, *last):
    parts = [
        wrap(part) for _ in range(2) for part in (Attention(4), MLP(n_embd))
    ]
    return Model(*parts, *last, position=True)


ladder |= {
    "two layers, bare": lambda: two_layers(nn.Sequential),
    "two layers, post-norm": lambda: two_layers(
        lambda part: nn.Sequential(Residual(part), norm())
    ),
    "two layers, pre-norm": lambda: two_layers(
        lambda part: Residual(normed(part)), norm()
    ),
}

# %% tags=["long:150"]
for name in list(ladder)[-3:]:
    climb(name, replace(recipe, steps=150, evaluate_every=150))

# %% tags=["folded", "long"]
# Picture: the validation losses after 150 steps
after = [histories[name].val_losses[-1] for name in list(ladder)[-3:]]
assert after[0] > 2 * after[1] > 2 * after[2]
picture(
    Bars(
        "Validation loss after 150 steps",
        torch.tensor(after),
        ["bare", "post-norm", "pre-norm"],
        "two layers",
        (0, 2.5),
    ),
    alt="Three bars. Two bare layers are far above the other two, and two "
    "with pre-norm are lowest.",
)

# %% [markdown]
# ### More: does the stream let the future through?
#
# The stream leads past every head and every mask, so you might fear a leak. But the stream of position t gets only what the parts write at t, and the leak probe confirms this for a whole GPT. So the logits at position t are the same as those for a text that ends at t. Training uses the logits of all positions, while `generate` uses only the last. The earlier positions aren't computed in vain, because in every layer the last one reads their keys and values, which a KV cache (rung {cross_and_causal}) keeps for the next step. But don't draw a character from each of them and expect a text, because each guesses on its own what follows the given beginning, and none reads what the others have drawn.


# %%
def from_embeddings(x):
    for block in untrained.transformer.h:
        x = block(x, is_causal=True)
    return untrained.lm_head(untrained.transformer.ln_f(x))


untrained = fresh(ladder["second layer"])
probe = leak_probe(from_embeddings, torch.randn(1, 9, n_embd))
assert torch.equal(probe, causal_mask(9))

# %% [markdown]
# ## Let it write
#
# Before `generate` draws a character, it can change the odds. A temperature below 1 makes the choice safer, one above 1 makes it wilder (rung {masked_softmax}), and **top-k** keeps only the k most probable characters.

# %% tags=["folded"]
# Question
ask("temperature_zero")

# %% [markdown]
# **Raise the temperature until words break. Then lower top-k until they heal.** The bars show the choices for the first character after “poor”, and the text is what follows.

# %% tags=["folded"]
# Explorer: temperature, top-k, and what the GPT writes with them
prompt = "\nKind Ann gave poor "
explore("sampling", model=gpt, tokenizer=tokenizer, prompt=prompt)

# %% [markdown]
# Now set the temperature back to 1 and look at the bar for A. Ann is the one who gives, and in our stories nobody gives themselves anything. Does your model know that? If it's as high as the others, it doesn't.

# %% tags=["folded"]
# Question
ask("crop")

# %% [markdown]
# ### More: does Ann give herself anything?
#
# A model that knows only the names would give the A of Ann a probability of one in eight, while a model that knows the rule would give it hardly any. Yours gives A about as much as the others, so it has learned the names, but not this rule. The loss hardly shows the difference, since not knowing the rule costs {{math.log(8 / 7):.2f}} nats in a story of about {{math.log(21504):.0f}}.

# %% tags=["long", "nbval-ignore-output"]
with torch.no_grad():
    of_next = gpt(tokenizer.encode(prompt)[None])[0, -1].softmax(dim=-1)
for initial in "ABDEJKST":
    print(initial, f"{of_next[tokenizer.encode(initial)].item():.2f}")
assert of_next[tokenizer.encode("A")].item() > 0.05

# %% [markdown]
# ### More: the order of top-k and temperature, and top-p
#
# `generate` first keeps the k best and then divides the logits by the temperature. For top-k the order makes no difference, because dividing by a positive number leaves the k largest logits the largest. For **top-p**, or nucleus sampling, the order does matter. Top-p keeps the smallest set of characters whose probabilities add up to at least p, and the size of this set depends on the temperature. The seed decides only what is drawn, so it has nothing to do with the seed of the training. Don't judge a model by one text, because a greedy one can fall into a loop while the loss still falls. Draw several, from the same prompts.
#
# `generate` writes as many characters as you ask for. To end after one story, put `if drawn.item() == newline.item(): break` into the loop of `write_on`, which works because every story in the training text ends with a newline, and a model can only learn an end that its text marks.
#
# The model itself refuses a text that is longer than its table of positions.

# %%
written = generate(gpt, newline, 300, top_k=5)
try:
    gpt(written)
except ValueError as error:
    print(error)

# %% [markdown]
# ## Real text
#
# There's a real book on your disk, because Python comes with much of its own manual. Let a GPT of the same size read it. Or set `source` to "tiny-shakespeare", which downloads 1.1<!--given--> million characters of plays.

# %% tags=["do"]
# or "tiny-shakespeare", or the path of a text file of your own
source = "the manual of Python"

# %% tags=["nbval-ignore-output"]
if source == "the manual of Python":
    lines = "\n".join(topics.values()).split("\n")
    words = "\n".join(
        line for line in lines if "|" not in line
    )  # no tables
else:
    words = load_text(source)
real = Corpus.of(words)
print(
    f"{len(words):,} characters, {real.tokenizer.vocab_size} different ones"
)
print(words[:300])

# %% [markdown]
# `train` runs the loop that you know, plots the loss, and has a **Stop** button.

# %% tags=["nbval-ignore-output", "long:400"]
torch.manual_seed(0)
real_gpt = GPT(replace(config, vocab_size=real.tokenizer.vocab_size))
real_floors = {
    f"{n}-gram": conditional_entropy(real.val, n) for n in (1, 2, 3)
}
live = LiveTraining(real.tokenizer, floors=real_floors)
shown = display(live, display_id=True)
real_recipe = replace(RECIPES["stories"], steps=400)
# or your own loop, with real_gpt for gpt and real.train for train_ids
history = train(real_gpt, real, real_recipe, callback=live)
shown.update(live)  # as it is now, for a page without a kernel

# %% tags=["nbval-ignore-output"]
ids = real.tokenizer.encode("The ")[None]
draws = torch.Generator().manual_seed(0)
ids = generate(real_gpt, ids, 400, temperature=0.8, generator=draws)
print(real.tokenizer.decode(ids[0]))

# %% [markdown]
# In less than a minute your GPT has learned line breaks, indents and many short English words. But it's too small, with too little time and text, to know what it's talking about.
#
# ### More: what to do when the validation loss rises
#
# Now the same GPT gets only 1,500 characters of stories, about fifteen of them.

# %%
few = Corpus(train_ids[:1500], val_ids[:8000], tokenizer)
brief = Recipe(
    steps=200,
    batch_size=8,
    final_learning_rate=8e-3,  # no decay: we want to see it go wrong
    evaluate_every=20,
)
short_text = train(
    fresh(ladder["second layer"]), few, brief, name="short text"
)

# %% tags=["folded", "given"]
# Picture: the training loss falls on, the validation loss does not
of_training = torch.tensor(short_text.losses).view(-1, 20).mean(dim=-1)
of_validation = torch.tensor(short_text.val_losses)
assert of_training[-1] < 0.4 * of_validation[-1]
assert of_validation[0] > 1.2 * of_validation.min()
assert of_validation[-1] > of_validation.min()
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
# This is **overfitting**. The training loss goes on falling while the validation loss turns around, because what the model memorizes about its fifteen stories doesn't help with others. More text helps most. If you have no more, stop at the lowest validation loss, use a smaller model, or use dropout, which sets random channels to 0 while you train, so that the model can't rely on any one of them. (If each text is read only about once, dropout only slows the learning down.) A model that has memorized ten texts returns them perfectly, so test it on texts that it hasn't read. No gap between the two losses is right or wrong in itself, so watch whether the validation loss still falls. (Moving the split adds little text, and a smaller validation text makes the measurement noisier. A tenth suits a short text. From a long one you need a smaller share, and nanoGPT holds back 0.05<!--given--> % of its web pages, still 4<!--given--> million tokens.)
#
# Is a model with more parameters than its text has characters bound to overfit? You can't tell from the two numbers alone. This one has {{sizes["second layer"]:,}} parameters for 1,500 characters, and at first its validation loss falls all the same. It turns around later, when the model has read the same text many times. By the end it's {{200 * 8 * 128 / 1500:.0f}} times.
#
# ## Break it
#
# A buggy loop rarely crashes, so you have to recognize it by its curve. Here are five loops with one bug each. The dashed line is the entropy.


# %% tags=["folded"]
# Picture: the loss of five broken loops, A to E
def broken_loop(bug, steps=100):
    model, other = fresh(ladder["LayerNorm"]), fresh(ladder["LayerNorm"])
    optimizer = torch.optim.AdamW(
        (other if bug == "another model" else model).parameters(),
        lr=0.5 if bug == "too large a rate" else 8e-3,
    )
    draws, losses = torch.Generator().manual_seed(0), []
    for _ in range(steps):
        if bug == "one batch":
            draws.manual_seed(0)
        x, y = get_batch(train_ids, block_size, 6, draws)
        if bug == "no shift":
            y = x
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        if bug != "no zero_grad":
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model, losses


bugs = {
    "A": "no zero_grad",
    "B": "another model",
    "C": "no shift",
    "D": "one batch",
    "E": "too large a rate",
}
broken = {letter: broken_loop(bug) for letter, bug in bugs.items()}
picture(
    Lines(
        "Training loss",
        torch.arange(1, 101),
        {
            letter: torch.tensor(losses)
            for letter, (_, losses) in broken.items()
        },
        "step",
        "nats per character",
        levels={"entropy": entropy},
    ),
    alt="Five curves, on logarithmic axes. A falls and then wanders, B "
    "stays where it began, C and D end far below the entropy, C first, "
    "and E jumps up before it falls a little.",
)

# %% tags=["folded"]
# Question
ask("unshifted_targets")

# %% [markdown]
# Guess the bugs of the other four, and then let each loop tell you.

# %% tags=["nbval-ignore-output"]
start = tokenizer.encode("Kind Ann t")[None]
for letter, (model, losses_of_it) in broken.items():
    wrote = tokenizer.decode(generate(model, start, 10, temperature=0)[0])
    print(
        f"{letter} {bugs[letter]:17} training {losses_of_it[-1]:5.2f}  "
        f"validation {evaluate(model, val_ids[:4000]):5.2f}  {wrote!r}"
    )

# %% tags=["folded"]
# Check: what the text below says of the five
last = {
    letter: losses_of_it[-1] for letter, (_, losses_of_it) in broken.items()
}
vals = {
    letter: evaluate(model, val_ids[:4000])
    for letter, (model, _) in broken.items()
}
assert max(last["C"], last["D"]) < entropy < min(last[k] for k in "ABE")
assert min(vals["C"], vals["D"]) > floors["1-gram"]
first = {
    letter: losses_of_it[0] for letter, (_, losses_of_it) in broken.items()
}
assert abs(last["B"] - first["B"]) < 0.3
assert max(broken["E"][1]) > 2 * first["E"]

# %% [markdown]
# - A forgot to reset the gradients, so old ones pile up and drown out the new one.
# - B gave the optimizer the parameters of another model, so nothing changes except the luck of each batch. (Untrained, it may also repeat a letter, but its loss stays high.)
# - C didn't shift the targets, so the model repeats what it sees.
# - D draws the same batch each time, because its generator is seeded inside the loop.
# - E takes steps that are far too large. The loss jumps up, and after that the model learns only how frequent each letter is.
#
# C and D look like a triumph, but a loss below the entropy is an alarm, since nobody can predict what chance will draw next.
#
# ### More: how to choose a learning rate
#
# Try several rates for a few steps each, going up by a factor of about three, and plot the loss. On the left of the plot the steps are too small to get anywhere in this time, and on the right they jump over the valley. Choose a rate a little to the left of the lowest point, because a longer run is less forgiving. (Wider models need smaller rates.) How long should the warm-up be? You find that by trying as well. Ours takes 50<!--given--> of 400<!--given--> steps, and nanoGPT's takes 2,000<!--given--> of 600,000<!--given-->.

# %% tags=["long:100"]
rates, ends = [3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1], []
for rate in rates:
    model = fresh(ladder["LayerNorm"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    draws, last_losses = torch.Generator().manual_seed(0), []
    for _ in range(100):
        x, y = get_batch(train_ids, 64, 8, draws)
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        last_losses.append(loss.item())
    ends.append(sum(last_losses[-10:]) / 10)
best = rates[ends.index(min(ends))]
assert 1e-3 < best < 3e-2

# %% tags=["folded"]
# Picture: the loss after 100 steps, for each learning rate
picture(
    Lines(
        "Loss after 100 steps",
        torch.tensor(rates),
        {"one layer": torch.tensor(ends)},
        "learning rate",
        "nats per character",
    ),
    alt="A valley along logarithmic axes. The loss is lowest near a rate "
    "of 0.01, and higher on both sides.",
)

# %% [markdown]
# ### More: why is my validation loss below my training loss?
#
# There are three common reasons, and none of them is a bug. Dropout is on while you train and off while you validate. The training loss that you print is often a mean over the last steps, when the model was worse than it is now. And a small validation text may just be easier. If the gap is large and stays large, check whether the validation text is also part of the training text.
#
# What switches dropout off is `model.eval()`, and `model.train()` switches it on again. Neither has anything to do with gradients, which `torch.no_grad()` leaves out. Our GPT has no dropout, so both modes give the same logits. But if yours has, call `eval()` before you validate or write, and `train()` before you go on, or the rest of the training runs without dropout. (The package's `evaluate` and `generate` do both for you.) `eval()` reaches only modules such as `nn.Dropout`. `F.dropout` and the `dropout_p` of `F.scaled_dot_product_attention` know nothing of it, so pass them `training=self.training`, and `p if self.training else 0.0`.
#
# ### More: why random batches, how large, and what if one doesn't fit in memory?
#
# Neighbouring blocks resemble each other, while a random batch samples the whole text, so on average its gradient points the right way. If you read a text in order, the model drifts towards what it read last, so the validation loss goes up and down with the topic. After 200<!--given--> steps on our stories a small GPT was at 0.26<!--given--> on new ones, and after 200<!--given--> more on Python's manual at 2.98<!--given-->, while with random blocks of both it ended at 0.26<!--given-->. Inside a batch nothing mixes, because each row of logits has a target of its own. And since all blocks are equally long, the mean over all rows is also the mean of the blocks' losses. If your texts differ in length, divide the sum of all losses by the number of all tokens, as is usual, so that each token counts the same.
#
# A block may start in one story, or document, and end in the next, but as long as a token marks the border, here the newline, the model learns that nothing before it matters (GPT-3 does the same with an end-of-text token, Brown et al. 2020, appendix B). A new story costs yours 0.104<!--given--> nats per character by itself, and just as much behind the end of another story.
#
# A smaller batch has a noisier gradient, so a learning rate that suited a large batch may be too large for it. (A larger batch allows a larger rate, up to a point.) The size also changes how often the model reads the text, so choose the rate and the number of steps anew for each size, and compare the lowest validation losses. On the short text above, 32<!--given--> blocks per step instead of 8 made the model overfit in as many steps, because it read four times as much, and underfit in as many passes over the text, because it took only a quarter of the steps.
#
# If memory is short, lower the rate, or keep the batch and cut it into equal parts. Call `backward()` for each part, and only then take a step. Gradients add up until you reset them. That broke loop A, but here it's what you want, and it's called gradient accumulation. Since the loss is a mean, divide each part's loss by the number of parts. How you cut the batch changes only memory and time. What the model learns depends on the number of tokens per step, which is parts × batch × block_size.

# %%
x, y = get_batch(train_ids, 64, 8, generator)
model = fresh(ladder["LayerNorm"])
F.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
whole = [parameter.grad.clone() for parameter in model.parameters()]
model.zero_grad()
for part in (slice(0, 4), slice(4, 8)):
    loss = F.cross_entropy(model(x[part]).flatten(0, 1), y[part].flatten())
    (loss / 2).backward()
for parameter, grad in zip(model.parameters(), whole):
    torch.testing.assert_close(parameter.grad, grad, atol=1e-5, rtol=1e-3)

# %% [markdown]
# ### More: NaN, or a jump of the loss, after thousands of steps
#
# Usually one step was too large, because of a bad batch, a learning rate that's barely small enough, or a number that overflowed in 16 bits. Once a parameter is NaN, everything becomes NaN, so go back to an earlier state that you saved, lower the learning rate or clip harder, and look at the norm of the gradient, which often grows for many steps before the crash. `Trainer` stops at the first loss or gradient that is not finite, before it changes the model. In float16, try bfloat16 instead, whose numbers reach as far as those of float32. A card without it is left with float32, which is slower. (If you stay with float16 and a `GradScaler`, call `unscale_` before you clip, or you clip the scaled gradients.) And bfloat16 has only two to three decimal digits, so if the loss drifts up and a smaller rate doesn't help, go back to a saved state and continue in float32 to see whether rounding is to blame.
#
# If the loss jumps up and soon comes back, let it run. If it doesn't come back, do what the authors of PaLM did (Chowdhery et al. 2022, section 5.1). They went back about a hundred steps and skipped a few hundred batches. The batches alone weren't to blame, because they did no harm when the model read them in another state.
#
# Why clip at 1? It's a convention that nanoGPT and GPT-3 follow. `clip_grad_norm_` returns the norm before clipping, so print it, and choose a number that only outliers exceed. With AdamW the number matters less than you might think, because the step is divided by the size of recent gradients, and a factor that all of them share cancels out. Clipping keeps a single huge gradient from filling the running means. The norm belongs to one batch, so it needn't fall with the loss, and a slow rise is no alarm while the loss still falls, as in the training of OLMo. In a small GPT of ours the norm stayed near 1 while the loss fell from 2.6<!--given--> to 0.4<!--given-->.
#
# ### More: my loss doesn't fall, or every run ends differently
#
# Where the loss gets stuck tells you what to look for. If it stays where it began, at ln V or a bit above, the model learns nothing. Perhaps the optimizer holds other parameters (as in loop B), or the learning rate is next to 0. If it stays at the floor of single characters, the model has only learned how frequent each character is. Perhaps a step was far too large (loop E), or the targets don't belong to the inputs. If only a deeper model stays there, try a third of the rate, and check its residual connections and norms. If it stays at the floor of pairs, nothing from further back arrives. Perhaps the model just needs more steps, as yours did. If it doesn't, look at the mask and the positions.
#
# With GPT-2's pieces of words the same reading holds on another scale, where ln V is 10.8<!--given--> and the smallest GPT-2 reaches about 2.9<!--given--> on web text (nanoGPT's readme). And if a loop is stable only at rates a hundred times smaller than others use, look for a bug in it instead of tuning the rate.
#
# The loss of a single step jitters, because each batch is easier or harder than the last. Batches of 4<!--given--> blocks cost your finished GPT between 0.14<!--given--> and 0.17<!--given--> nats per character, without a step of training, so average over many steps, or look at the validation loss, before you say that the loss doesn't fall.
#
# To test a new loop, run loop D on purpose. Give it the same small batch each time. A correct loop memorizes that batch within a few hundred steps, and its loss falls far below the entropy. If yours doesn't, look for the bug before you train on more.
#
# Two runs with different seeds end at different losses, because they start from other parameters and see other batches. A difference between two models means something only if it's larger than that, so train each of them with a few seeds (rung {speed_run} does). On another machine even the same seed ends a little differently, because sums are rounded in another order. With another precision the roundings change as well, so give each precision a few seeds before you compare. Four runs of a small GPT ended at losses from 0.34<!--given--> to 0.36<!--given--> in float32, and from 0.32<!--given--> to 0.37<!--given--> in bfloat16, so a single pair of runs could have favoured either.
#
# ### More: early stopping, underfitting, epochs, half precision
#
# Stopping at the lowest validation loss is called **early stopping**. The opposite of overfitting is **underfitting**. For the table of pairs, for example, the two losses are almost equal, but far above the entropy. The remedy is a larger model, or longer training if the loss is still falling. A curve that looks flat often still falls, and with a cosine decay part of the gain comes only near the planned end.
#
# One **epoch** is one pass over the training text, or over as many characters as the text has. Blocks that start at random overlap, so one epoch of them misses about exp(−1) of the characters, more than a third. To miss nothing, you can cut the text into blocks without overlap and shuffle them, but overlap isn't what makes a model overfit. Of the short text above only 11<!--given--> whole blocks remain, and a model that read nothing else had a validation loss above 5<!--given--> after 160<!--given--> steps, while with random starts it was at about 0.7<!--given-->.
#
# If you go through the same blocks again and again, the training loss can fall in steps, one at the start of each epoch, because there the model meets every block once more than before. With 80<!--given--> shuffled blocks it stayed near 0.58<!--given--> through the eighth epoch and began the ninth at 0.47<!--given-->, but whether the model also got better on new text, only the validation loss can tell.
#
# How much text does a model need? If your compute is limited, spend it on about 20 tokens per parameter (Hoffmann et al. 2022). Small models that many people will use are trained on far more, because a small model is cheaper to run. And if your text is short, up to four epochs are worth nearly as much as new text (Muennighoff et al. 2023). These are measurements of large models, so for a small one let the validation loss decide. From 80<!--given--> kB a small model learns to spell, and then memorizes. If you want sentences that make sense, start from a model that somebody else trained, and train it briefly on your text with a small learning rate (nanoGPT's `finetune_shakespeare.py` takes 20<!--given--> steps at 3e-5<!--given-->).
#
# Where the hardware multiplies matrices faster in 16 bits, `train` uses 16 bits for the products and keeps the parameters in 32 (**mixed precision**).

# %%
seen_characters = recipe.steps * recipe.batch_size * block_size
seen_characters / len(train_ids)  # epochs

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
# ### 4. A layer
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
# ## More: save a run, load it, resume it
#
# `Trainer` takes one `step` at a time, and saves a **checkpoint**. A checkpoint is a file with all that you need to resume training, namely the parameters and sizes of the model, the characters of the tokenizer, the number of steps, and the states of the optimizer and of the random number generator. The characters matter because without them the model's numbers mean nothing. A character that wasn't in the training text has no number, so `encode` raises an error (in nanoGPT's `sample.py` a KeyError, which you also get if the vocabulary is that of another text). Compare the validation loss before saving and after loading. If it differs, the model wasn't restored, or dropout is on. If only the next steps are worse, the optimizer's running means are missing.
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
# ## More: longer runs, in a terminal and on many machines
#
# The full recipe of the package, which the opening picture and rung {speed_run} use, takes three times as many steps as ours. For longer runs there is a command for the terminal. If you stop it, the same command resumes from the checkpoint.
#
# How long will a run take? Time twenty steps and multiply, or count about six operations for each parameter and token (Kaplan et al. 2020, section 2.1). The smallest GPT-2 on nanoGPT's 600,000<!--given--> steps of 491,520<!--given--> tokens would take about 25<!--given--> days at 10¹⁴ operations per second, and half the parameters with half the tokens a quarter of that.
#
# ```
# python -m attention_course.training --text tiny-shakespeare --config shakespeare --checkpoint run.pt
# ```
#
# A GPT with four layers and 0.8<!--given--> million parameters reached a validation loss of 1.76<!--given--> nats per character on Tiny Shakespeare, a little below the floor of all tables of three characters, 1.79<!--given-->. That took 155<!--given--> seconds on one core of a 2.8<!--given--> GHz Xeon. Many of its words are English, but the text makes no sense. (nanoGPT's 10<!--given--> million parameters reach 1.47<!--given--> there, and even then only a few words in a row fit together.)
#
# If you start several processes with `torchrun`, they share the work, on one machine or on many. Each takes its part of every batch, and the gradients are averaged before each step. Without dropout, the result is that of a single process, up to rounding.
#
# ```
# torchrun --nproc-per-node=2 -m attention_course.training --text stories
# ```
#
# ## More: how close to the entropy, and bits per byte
#
# The loss of our GPT is still about one and a half times the entropy. Most of the gap isn't the model's fault, because a block may begin in the middle of a story, and then nobody can know what was said before. If you give the model whole stories, all of them new, its loss is close to the entropy.
#
# Don't compare such a loss with that of a model that uses other tokens, because a loss per word is not a loss per character. Don't compare losses on two texts either, because one text is harder to predict than the other, and the one with more characters starts with a higher ln V. Compare each with its own floors. For one text and two kinds of tokens, what you can compare is the total in bits (nats divided by ln 2), divided by the number of bytes of the text, the **bits per byte**.

# %% tags=["folded", "nbval-ignore-output", "long"]
# Measure: the loss on 200 new stories, per character, word and byte
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
assert entropy * 0.97 < total / count < entropy * 1.2
assert per_word > 4 * total / count
assert 0.1 < bits_per_byte < 0.2
print(
    f"nats for each character {total / count:.3f}, "
    f"{total / count / entropy:.2f} times the entropy\n"
    f"nats for each word      {per_word:.3f}\n"
    f"bits for each byte      {bits_per_byte:.3f}"
)

# %% [markdown]
# ## More: from here to GPT-2
#
# The code of the model does not change. With the sizes of the smallest GPT-2 (Radford et al. 2019, table 2), ours has as many parameters as the model that was released. (The paper's table says 117<!--given--> million, which its authors corrected later. Some people count 85<!--given--> million, which leaves out the two tables of tokens and positions.) Without weight tying GPT-2 would have {{50257 * 768 / 1e6:.1f}} million more.

# %% tags=["folded"]
# Count: the parameters of ours and of GPT-2
with torch.device("meta"):  # shapes only: no memory is taken
    gpt_2 = GPT(
        GPTConfig(50257, 1024, n_layer=12, n_head=12, n_embd=768, bias=True)
    )
count_of = [
    sum(p.numel() for p in model.parameters()) for model in (gpt, gpt_2)
]
assert count_of[1] == 124_439_808
print(
    f"ours {count_of[0]:,}, GPT-2 {count_of[1]:,}: "
    f"{count_of[1] / count_of[0]:,.0f} times as many"
)

# %% [markdown]
# Three big differences remain.
#
# - **Size**: a thousand times as many parameters, and 1024 tokens of context instead of {{block_size}}. GPT-2's four sizes grow in depth and width at once, from 12 layers of 768 channels to 48 layers of 1600<!--given-->.
# - **Data**: 40 GB of web pages instead of {{len(text) / 1e6:.1f}} MB of stories, and much more compute. (Training on plain text is called **pretraining**, and a shorter run on one task, **fine-tuning**, may follow, as in rung {after_pretraining}.)
# - **Tokens**: 50,257 pieces of words, chosen by how often they occur (**byte pair encoding**), instead of {{V}} characters. A piece holds about four characters of English, so a context reaches further.
#
# ## More: in the wild
#
# - nanoGPT's `model.py` has the same parts under the same names, and its parameters fit our `GPT` key by key.
# - "Attention Is All You Need" (Vaswani et al. 2017) is post-norm. GPT-2 is pre-norm, and so are most large language models since.
#
# ## Where we are
#
# <!--step-->
#
# “Poor” has its answer, and you've built every part that found it.
#
# ## Three sentences to remember
#
# 1. Training is five lines, the same for a table and for a GPT.
# 2. With one layer, letters can only look at letters, but with two they can read each other's notes, so the model finds Sam.
# 3. Before you train, know what the loss should be, and measure what you want, not just the loss.
#
# Next: [rung {a_real_model}]({a_real_model}.ipynb), where a model with a thousand times as many parameters runs on the same code.
#
# <!--neighbours-->
