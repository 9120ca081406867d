# %% [markdown]
# # Rung {scaling_variance}: scaling and variance
#
# <!--ladder-->
#
# **You will build** the rule for how large scores get, and the one number that lets a wide head learn.
#
# Our staircase is at one head and a loss of 0.38<!--given-->, and no model gets below 0.10<!--given-->. More channels should help, since longer queries can ask more. But a wide head hardly learns.
#
# Guess first. Then drag the bell's edge to the smallest head_size at which one key has nearly everything.

# %% tags=["hero", "folded"]
# The opening picture: guess first, then drag the edge of the bell
from attention_course.heroes import hero

hero("scaling_variance")

# %% [markdown]
# **You need** [rung {query_key_value}]({query_key_value}.ipynb), softmax and entropy from [rung {masked_softmax}]({masked_softmax}.ipynb), and what a derivative is.
#
# <!--time-->

# %% tags=["folded"]
# Imports
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from matplotlib.figure import Figure

from attention_course.attention import (
    Head,
    attention,
    attention_weights,
    causal_mask,
    leak_probe,
)
from attention_course.exercises import check
from attention_course.explorers import explore
from attention_course.fills import fill
from attention_course.plots import (
    BLUE,
    SKY,
    Bars,
    Lines,
    Picture,
    picture,
)
from attention_course.progress import progress
from attention_course.questions import ask
from attention_course.text import Data, get_batch, load_text

torch.set_printoptions(precision=3, sci_mode=False)

progress("scaling_variance")

# %% [markdown]
# ## A head that hardly learns
#
# Three heads are trained on our stories to name the letter before each letter. One has 16 channels, and two have 256. One of these two divides its scores by √256.

# %% tags=["folded"]
# Question
ask("three_heads")

# %% tags=["folded"]
# The model and its training: the next section explains both
data = Data.of(load_text("stories"))
V = data.tokenizer.vocab_size


class LetterBefore(nn.Module):
    def __init__(self, head_size, scale):
        super().__init__()
        self.letter = nn.Embedding(V, 32)
        self.position = nn.Embedding(32, 32)
        self.head = Head(32, head_size, d_v=32)
        self.out = nn.Linear(32, V, bias=False)
        self.scale = scale

    def forward(self, ids):  # (B, 32)
        x = self.letter(ids) + self.position.weight  # (B, 32, 32)
        q, k = self.head.query(x), self.head.key(x)
        v = self.head.value(x)
        found, _ = attention(q, k, v, causal_mask(32), self.scale)
        return self.out(found)  # a score for each of V letters


def train(model, steps=100):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(0)
    losses = torch.zeros(steps)
    for step in range(steps):
        ids, _ = get_batch(data.train, 32, 8, generator)  # (8, 32)
        named = model(ids)[:, 1:]  # the first letter has none before it
        right = ids[:, :-1]
        loss = F.cross_entropy(named.flatten(0, 1), right.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses[step] = loss.item()
    return losses


# %%
losses, models = {}, {}
for name, head_size, scale in (
    ("16 channels", 16, 1.0),
    ("256 channels", 256, 1.0),
    ("256 channels, scores / 16", 256, 1 / 16),
):
    torch.manual_seed(0)
    models[name] = LetterBefore(head_size, scale)
    losses[name] = train(models[name])

# %% tags=["folded"]
# Picture: three losses
narrow, wide, divided = losses.values()
assert max(narrow[-1], divided[-1]) < 0.3 < 1.5 < wide[-1]
picture(
    Lines(
        "Name the letter before",
        torch.arange(100),
        losses,
        "step",
        "loss (nats per letter)",
        log=False,
    ),
    alt="Three losses over 100 steps of training. With 16 channels, and "
    "with 256 whose scores are divided by 16, the loss falls to nearly "
    "0. With 256 channels and no division it stays above 1.5.",
)

# %% [markdown]
# Without a division the wide head ends at {{wide[-1]:.1f}} nats per letter, while the other two are almost at 0. It could do all that the small head does, and more. So the trouble is not what a wide head *could* do but how it learns, and to see why, you have to know what training does.
#
# ## How a model learns
#
# Take the smallest model there is, with a single parameter. “Poor” asks who got the drum, and there are two keys. Ben's score is always 0, and Sam's is w, which training may change. Sam should get all the weight, so let the loss be (1 − Sam's weight)². It is 0 when Sam has everything, and 1 when Ben has.


# %%
def loss_at(w):
    sam = w.exp() / (w.exp() + 1)  # softmax: exp of Ben's score 0 is 1
    return (1 - sam) ** 2


loss_at(torch.tensor(-1.0))

# %% [markdown]
# Suppose w is −1. To find out whether you should move it up or down, nudge it. Add 0.01, look how much the loss changes, and divide by 0.01. That is the slope of the loss, its derivative. Where the slope is negative, the loss falls as w grows, so you let it grow. Where it is positive you let w shrink, so you always go *against* the slope. And because a steep slope promises a lot, let the step be 4 times the slope.

# %% tags=["folded"]
# Fill in: one step downhill
fill("one_step_downhill")

# %% tags=["folded", "name:one_step_downhill"]
# One step downhill
w = torch.tensor(-1.0)
slope = (loss_at(w + 0.01) - loss_at(w)) / 0.01
w = w - 4 * slope
w

# %% [markdown]
# Do that again and again, and you have **gradient descent**, which is how nearly every neural network learns. The number in front of the slope, here 4, is the **learning rate**.
#
# What if you start at −8, where Ben has nearly everything?

# %% tags=["folded"]
# Question
ask("start_on_the_plateau")


# %%
def descend(start, steps=20):
    w = torch.tensor(start)
    path = [start]
    for _ in range(steps):
        slope = (loss_at(w + 0.01) - loss_at(w)) / 0.01
        w = w - 4 * slope
        path.append(w.item())
    return path


# %% tags=["do"]
near, far = descend(-1.0), descend(-8.0)  # try others for -8
near[-1], far[-1]

# %% tags=["folded"]
# Picture: the loss as a hill, and both paths
figure = Figure(figsize=(6.6, 2.8), layout="constrained")
axes = figure.subplots()
everywhere = torch.linspace(-9, 4, 200)
axes.plot(everywhere, loss_at(everywhere), color=SKY)
for path, mark in ((near, "o"), (far, "s")):
    heights = loss_at(torch.tensor(path))
    axes.plot(
        path,
        heights,
        mark,
        color=BLUE,
        label=f"from {path[0]:g}".replace("-", "−"),
    )
axes.set(xlabel="w, the score of Sam", ylabel="loss")
axes.legend()
Picture.of(
    figure,
    alt="The loss over w is flat at 1 on the left, a plateau, falls around "
    "0 and is flat at 0 on the right. Steps from -1 go down the slope, "
    "large at first and then smaller. Steps from -8 stay where they are.",
)

# %% [markdown]
# One point walks downhill. The other stands on a plateau, high up and wrong, and it stays there, because there is no slope to tell it where to go. From how far out can you start, and still get down in 20 steps?
#
# A real head has thousands of parameters, and the loss has a slope for each. All these slopes together are the **gradient**. You can't nudge thousands of parameters one by one, and PyTorch doesn't. `loss.backward()` walks through the computation in reverse, from the loss to the parameters, and applies the chain rule at every operation. That is **backpropagation**, and it finds all slopes in one go. Each parameter then has its own in `.grad`.

# %%
w = torch.tensor(-1.0, requires_grad=True)  # keep track of this one
loss_at(w).backward()
assert (w.grad - slope).abs() < 0.01
w.grad, slope

# %% [markdown]
# The two agree, but for the size of your nudge. Then an **optimizer** changes the parameters. You can now read its lines in the folded cell, where `zero_grad()` clears the old slopes, `backward()` finds the new ones, and `step()` moves every parameter. (Ours, Adam, also adapts the size of the step to each parameter.) When you use a trained model you need none of this, and running it with its parameters left alone is called **inference**.
#
# ## How large is a score?
#
# Up on the plateau, one score was 8 below the other. Where could such scores come from?
#
# A score is a sum with one product per channel. Let a coin decide whether each number in q and k is 1 or −1. The coins are independent, which means that none says anything about another. With 2 channels, the four coins can fall in 16 ways.

# %%
coins = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * 4)  # (16, 4)
q, k = coins[:, :2], coins[:, 2:]
scores = (q * k).sum(dim=-1)
scores

# %% [markdown]
# Their mean is 0. To measure how far they spread, square each score's distance from the mean, and average. That is the **variance**. Eight scores are 0 and eight are 2 or −2, so it is (8 · 0 + 8 · 4) / 16 = {{scores.var(correction=0):.0f}}, and its root is the standard deviation, √2.
#
# Now toss 4000 times. Make it 8 channels, then 32<!--given--> and 128<!--given-->, and look for the rule.

# %% tags=["do"]
channels = 2  # then 8, 32, 128
torch.manual_seed(0)
q, k = 2.0 * torch.randint(2, (2, 4000, channels)) - 1  # 1 or -1
(q * k).sum(dim=-1).var()

# %% tags=["folded"]
# Question
ask("variance_of_a_score")

# %% [markdown]
# Think of a walk in which each channel is a step to the left or to the right. Many steps cancel, so after 16 of them you are not 16 away but typically √16 = 4. Now for other numbers than coins. Let all entries of q and k be independent, with mean 0. E is the mean, and var(q) the variance of one entry of q.
#
# 1. One product has mean 0, because $E[q_i k_i] = E[q_i]\,E[k_i] = 0$.
# 2. So its variance is the mean of its square, $E[q_i^2 k_i^2] = E[q_i^2]\,E[k_i^2] = \operatorname{var}(q)\,\operatorname{var}(k)$.
# 3. The variances of independent terms add up, and a score has one term per channel.
#
# $$\operatorname{var}(q \cdot k) = \text{head\_size} \cdot \operatorname{var}(q) \cdot \operatorname{var}(k)$$
#
# Let's test it on 4000 random queries and keys, up to 1024 channels.

# %%
torch.manual_seed(0)
q, k = torch.randn(2, 4000, 1024)  # mean 0, variance 1
head_sizes = 2 ** torch.arange(11)
measured = torch.stack(
    [(q[:, :d] * k[:, :d]).sum(dim=-1).var() for d in head_sizes]
)
torch.testing.assert_close(measured, head_sizes.float(), rtol=0.1, atol=0)

# %% [markdown]
# All are within 10 % of the formula. Which factor brings the variance back to 1, say with 64 channels?

# %% tags=["folded"]
# Fill in: scores of variance 1
fill("variance_back_to_one")

# %% tags=["folded", "name:variance_back_to_one"]
# Scores of variance 1
head_size = 64
scores = (q[:, :head_size] * k[:, :head_size]).sum(dim=-1)
scaled = scores * head_size**-0.5
scaled.var()

# %% [markdown]
# When you multiply scores by a number, their variance grows by its *square*, so the factor is 1/√head_size. That's the `scale` of rung {query_key_value}, and it's what the third head did.


# %% tags=["folded"]
# Picture: the variance for two var(q), and divided by √head_size
def measure_scores(factor):
    tables = (factor * q[:, :d] * k[:, :d] for d in head_sizes)
    return torch.stack([table.sum(dim=-1).var() for table in tables])


by_root = [
    (q[:, :d] * k[:, :d]).sum(dim=-1) * d**-0.5 for d in head_sizes.tolist()
]
curves = {
    "var(q) = 4": measure_scores(2),
    "var(q) = 1": measure_scores(1),
    "var(q) = 1, scores / √head_size": torch.stack(
        [s.var() for s in by_root]
    ),
}
torch.testing.assert_close(curves["var(q) = 4"], 4 * measured)
picture(
    Lines(
        "Measured variance of the scores",
        head_sizes,
        curves,
        "head_size",
        "variance",
    ),
    alt="Variance over head_size, both axes logarithmic. Two parallel "
    "straight lines climb, the one for var(q) = 4 above the other. "
    "After the division by √head_size the line is level, at 1.",
)

# %% [markdown]
# ## What softmax does to large scores
#
# From head_size 1 to 100<!--given-->, scores spread ten times as far. What does softmax make of that?

# %% tags=["folded"]
# Question
ask("ten_times_the_scores")

# %%
row = torch.tensor([-1.2, 0.3, 1.4, -0.4, 0.7, -1.0, 0.1, -0.2])
weights = {a: torch.softmax(a * row, dim=-1) for a in (1, 3, 10)}

# %% tags=["folded"]
# Picture: the weights at three factors
picture(
    *(
        Bars(
            f"scores times {factor}",
            heights,
            list("01234567"),
            "key",
            (0, 1),
        )
        for factor, heights in weights.items()
    ),
    alt="Weights of one row of scores, multiplied by 1, by 3 and by 10. "
    "First every key has some weight; at 3 most of it is on key 2; at "
    "10 key 2 has nearly all of it.",
)

# %% [markdown]
# A softmax that gives everything to one key is **saturated**. Before training the scores are random, and so is the winner. That would do no harm if training could correct it. Can it?
#
# How far does a weight move when a score does? Write $p_i = e^{s_i} / Z$, where $Z$ is the sum of all exponentials. If a key's own score grows, so do $e^{s_i}$ and $Z$. If another score grows, only $Z$ does. The quotient rule gives
#
# $$\frac{\partial p_i}{\partial s_i} = \frac{e^{s_i} Z - e^{s_i} e^{s_i}}{Z^2} = p_i (1 - p_i)$$
#
# $$\frac{\partial p_i}{\partial s_j} = \frac{0 - e^{s_i} e^{s_j}}{Z^2} = -p_i\, p_j$$
#
# With a row for each weight and a column for each score, that makes a table. This table is called the Jacobian of softmax. Here it is for the weights 1/8, 2/8 and 5/8, times 64.

# %%
p = torch.tensor([1 / 8, 2 / 8, 5 / 8])
table = p.diag() - p.outer(p)  # p_i on the diagonal, minus p_i p_j
table * 64

# %% tags=["folded"]
# Question
ask("when_one_key_has_it_all")

# %% [markdown]
# There's your plateau. Backpropagation multiplies by this table on its way to the scores, so nothing arrives there, nor at q and k behind them, which are what would have to change. The values are *not* cut off, because their way back doesn't lead through softmax. Below, key 2 has all the weight. You see the table, what arrives at the scores, and what arrives at the values.

# %%
scores = torch.tensor([0.0, 0.0, 200.0], requires_grad=True)
v = torch.ones(3, 2, requires_grad=True)
p = torch.softmax(scores, dim=-1)
(p @ v).sum().backward()
assert not scores.grad.any()
p.diag().detach() - p.outer(p).detach(), scores.grad, v.grad

# %% [markdown]
# So a saturated head still learns what to hand over, but not where to look. How many channels does it take? Let's draw 1000 random queries with 8 keys each, and follow the middle one, which has as many below it as above.


# %% tags=["folded"]
# Measure: 1000 queries, three medians, with the scale and without
torch.manual_seed(0)
T = 8
q, k = torch.randn(1000, 1, 1024), torch.randn(1000, T, 1024)
q, k = q.double(), k.double()


def rows_of_weights(head_size, scale):
    products = q[..., :head_size] * k[..., :head_size]
    scores = products.sum(dim=-1) * scale  # (1000, T)
    return torch.softmax(scores, dim=-1)


def entropy(weights):
    return torch.special.entr(weights).sum(dim=-1)  # entr(p) is -p ln p


def left_to_others(weights):
    return 1 - weights.amax(dim=-1)


def jacobian_norm(weights):
    products = weights[..., :, None] * weights[..., None, :]
    return torch.linalg.matrix_norm(weights.diag_embed() - products)


unscaled = [rows_of_weights(d, 1.0) for d in head_sizes.tolist()]
scaled = [rows_of_weights(d, d**-0.5) for d in head_sizes.tolist()]


def compared(title, measure, y_label):
    curves = {
        name: torch.stack([measure(weights).median() for weights in tables])
        for name, tables in (
            ("scores as they are", unscaled),
            ("scores / √head_size", scaled),
        )
    }
    return Lines(title, head_sizes, curves, "head_size", y_label)


measures = (
    compared("Entropy of the weights", entropy, "nats"),
    compared("1 − largest weight", left_to_others, "weight"),
    compared("Size of the derivatives", jacobian_norm, "norm"),
)

# %% tags=["folded"]
# Picture: entropy, largest weight and derivatives over head_size
picture(
    *measures,
    alt="Three pictures over head_size, both axes logarithmic. Without a "
    "scale the entropy, what the largest weight leaves to the others, "
    "and the norm of the Jacobian all fall towards 0. With it all three "
    "stay where they are.",
)

# %% [markdown]
# (The norm is the root of the sum of all squared derivatives.) Without a scale all three collapse, and in the middle row the largest weight is {{rows_of_weights(64, 1.0).amax(dim=-1).median():.2f}} at head_size 64. With the scale, hardly anything changes from 1 channel to 1024.
#
# ## Before and after training
#
# You know how the scores of the two wide heads start. What does training make of them?

# %% tags=["folded"]
# Question
ask("variance_after_training")


# %%
def look(model):
    ids, _ = get_batch(data.train, 32, 64, torch.Generator().manual_seed(1))
    x = model.letter(ids) + model.position.weight
    q, k = model.head.query(x), model.head.key(x)
    weights = attention_weights(q, k, causal_mask(32), model.scale)
    late = weights[:, 16:]  # of queries that see more than 16 letters
    sure = (late.amax(dim=-1) > 0.95).float().mean().item()
    found = late.diagonal(15, 1, 2).mean().item()  # of the letter before
    variance = (q @ k.transpose(-2, -1) * model.scale).var().item()
    return variance, sure, found


looks = {}
for name in list(models)[1:]:
    torch.manual_seed(0)
    fresh = LetterBefore(256, models[name].scale)
    for when, model in (("before", fresh), ("after", models[name])):
        looks[name, when] = look(model)
        variance, sure, found = looks[name, when]
        print(
            f"{name:26} {when:6} {variance:8.1f} {sure:5.0%} {found:5.2f}"
        )

# %% [markdown]
# The columns are the variance of the scores, how often one letter has more than 0.95 of the weight (for queries that see more than 16 letters), and the weight of the letter that they should find. In the end you see two confident heads. But the one with the scale began without an opinion, and it became confident *because* it found the right letter. The other was confident half of the time before it had read a line, and it became more so without ever finding out where to look.
#
# So the scale promises a good start and nothing about later. It needn't, because a softmax may saturate once it has learned something.
#
# ### More: the middle row, and the mean of all rows
#
# The gradients of many queries add up, so their mean matters as well, and it tells a milder story.

# %%
for d in (1, 64, 256, 1024):
    norms = jacobian_norm(rows_of_weights(d, 1.0))
    both = f"median {norms.median():.4f}, mean {norms.mean():.2f}"
    print(f"head_size {d:4}: {both}")

# %% [markdown]
# The norm in the middle row is the **median**. It's below 0.1 at head_size 64, and practically 0 at 1024. Gradients that get lost on their way in this manner are called **vanishing gradients**. But the mean falls much more slowly, about like 1/√head_size, so with four times as many channels it about halves. At 1024 nearly all of it comes from a fifth of the rows, those in which two scores nearly tie, because there a small change of the scores still moves the weights. So a saturated head isn't cut off entirely. A few of its rows still tell it something, and its values learn anyway.
#
# (This is the Jacobian alone. Without a scale the factor 1/√head_size is missing from the gradient as well, so on average the gradient of q and k does not fall. In a typical row it does.)

# %% tags=["folded"]
# Check: the table above; median and mean fall, and stay with the scale
(_, half, _), (_, most, lost), (start, none, _), (end, all_but, found) = (
    looks.values()
)
assert 0.4 < half < 0.6
assert most > 0.9 > 0.2 > lost
assert start < 1
assert none < 0.01
assert end > 10
assert all_but > 0.9
assert found > 0.9
norms = {d: jacobian_norm(rows_of_weights(d, 1.0)) for d in (64, 256, 1024)}
for d, largest in ((64, 0.1), (1024, 1e-5)):
    assert norms[d].median() < largest
assert 0.4 < norms[1024].mean() / norms[256].mean() < 0.65
fifth = norms[1024].sort().values[-200:].sum()
assert fifth > 0.9 * norms[1024].sum()
assert (
    compared("", jacobian_norm, "").curves["scores / √head_size"].min()
    > 0.3
)

# %% tags=["folded"]
# Check: the gradient of q and k, in a typical row and on average
upstream = torch.randn(
    1000, T, generator=torch.Generator().manual_seed(0)
).double()
q.requires_grad_(), k.requires_grad_()


def gradient_norms(d, scale):
    loss = (rows_of_weights(d, scale) * upstream).sum()
    squares = [
        grad.square().sum(dim=(-2, -1))
        for grad in torch.autograd.grad(loss, (q, k))
    ]
    return sum(squares).sqrt()


narrow, wide = gradient_norms(64, 1.0), gradient_norms(1024, 1.0)
assert wide.median() < 1e-3 * narrow.median()
assert wide.mean() > 0.8 * narrow.mean()
q, k = q.detach(), k.detach()

# %% [markdown]
# ### More: isn't that only a bad learning rate?
#
# It's a fair objection. We trained both wide heads for 200<!--given--> steps at the learning rates 0.001<!--given-->, 0.003<!--given-->, 0.01<!--given--> and 0.03<!--given-->, and at each of them the one without the scale ended with the higher loss. You can repeat that by changing `lr` in the folded cell.
#
# And what if the wide head starts with queries and keys a quarter as large, so that its first scores are as small as with the scale? At 0.001<!--given--> it then learns nearly as well, with a loss of 1.39<!--given--> where the scale gives 1.28<!--given-->. But at 0.01<!--given-->, where the head with the scale gets to 0.00<!--given-->, it ends at 2.07<!--given-->, because each step still moves its scores 16<!--given--> times as far, and soon they are up on the plateau. So the scale does two things. It brings the first scores close together, and it keeps a step of the parameters from becoming a leap of the scores.
#
# ## The softmax at the end
#
# A model ends with one more softmax, which turns its scores for all letters into probabilities. These last scores are called **logits**. If the model is confident of the wrong letter, is it stuck as well?

# %% tags=["folded"]
# Question
ask("confident_and_wrong")

# %% [markdown]
# It isn't, thanks to its loss, the average surprise that you know from rung {bag_of_words}. It is called **cross-entropy**, and for one letter it is −ln p, where p is the probability of the right one. The logarithm has the slope −1/p, which cancels the p that makes softmax flat. For the logit of the right letter r and of any other letter j, the slopes are
#
# $$-\frac{1}{p_r} \cdot p_r (1 - p_r) = p_r - 1 \qquad -\frac{1}{p_r} \cdot (-p_r\, p_j) = p_j - 0$$
#
# In short, the gradient is $p - y$, where $y$ is 1 for the right letter and 0 for all others. Below, letter 0 is right and the model is confident of letter 2. (`F.cross_entropy` is softmax and loss in one.)

# %%
logits = torch.tensor([0.0, 0.0, 20.0], requires_grad=True)
F.cross_entropy(logits, torch.tensor(0)).backward()
p, y = torch.softmax(logits.detach(), dim=-1), torch.tensor([1.0, 0.0, 0.0])
torch.testing.assert_close(logits.grad, p - y)
logits.grad

# %% [markdown]
# The more wrong a model is, the harder it is pulled back. The softmax inside a head has no such logarithm behind it, so the scale has to keep it off the plateau.
#
# ### More: the first loss of a model is ln V, or a little more
#
# Say a model has to choose among 87 characters. The simplest guess gives each the same probability, so its loss is ln 87. Such a simple method, which any model has to beat, is a **baseline**. A model that has learned nothing should be no worse.

# %% tags=["folded"]
# Question
ask("loss_of_random_logits")

# %% [markdown]
# How parameters are drawn before training is their **initialization**. That of an `nn.Embedding` has mean 0 and variance 1, and logits that come straight from such a table are random numbers of the same kind.

# %%
torch.manual_seed(0)
logits = torch.randn(20_000, 87)
characters = torch.randint(87, (20_000,))
loss = F.cross_entropy(logits, characters)
predicted = math.log(87) + 1 / 2
print(f"ln 87 {math.log(87):.3f}")
print(f"measured {loss:.2f}, predicted {predicted:.2f}")

# %% [markdown]
# The loss is the logarithm of the sum of all exponentials, minus the true logit, which is 0 on average. For a normally distributed $z$ with mean 0 and variance $v$, the mean of $e^z$ is $e^{v/2}$. So the sum is about $87\,e^{1/2}$, and its logarithm is ln 87 + 1/2 = {{predicted:.2f}}. (We measured a little less, because the sum varies from row to row.)
#
# Small logits remove the 1/2. With a standard deviation of 0.02 the loss begins at ln 87. It's the same lesson at both ends of a model. A softmax that has learned nothing should not be confident of anything, and the variance of its input decides how confident it is.

# %% tags=["folded"]
# Check: the prediction; small logits begin at ln 87
torch.testing.assert_close(loss.item(), predicted, atol=0.03, rtol=0)
torch.testing.assert_close(
    F.cross_entropy(0.02 * logits, characters).item(),
    math.log(87),
    atol=0.002,
    rtol=0,
)

# %% [markdown]
# ### More: QK-norm, for when scores grow too large later
#
# In long runs of large models, the scores sometimes grow until training fails. **QK-norm** (Henry et al. 2020) takes the lengths of q and k out of the score. It divides each q and each k by its own length, and multiplies the scores by one learned number instead of 1/√head_size. Then the dot product is the cosine of an angle, from −1 to 1, however long q and k become. The learned number is needed, because without it, beside 127 others, no key could get even 6 % of the weight. At best it would get e / (e + 127/e).
#
# Many models of today keep 1/√head_size and normalize q and k in another way. Each is divided by the root of the mean of its squares, so that its numbers are about as large as a random start would make them, and each channel is then multiplied by a learned number (OLMo 2 and Qwen3 do this; a vision transformer of 22 billion parameters, Dehghani et al. 2023, used LayerNorm (rung {bigram_to_gpt}) for the same purpose). Neither bounds the scores for good, since the learned numbers have no bound. Gemma 2 does that with a soft cap. It passes the scores through 50 · tanh(score / 50), which never gets beyond ±50.

# %%
assert math.e / (math.e + 127 / math.e) < 0.06
q, k = 30 * torch.randn(2, 4000, 64)  # long queries, long keys
q, k = (
    each / each.square().mean(-1, keepdim=True).sqrt() for each in (q, k)
)
((q * k).sum(dim=-1) * 64**-0.5).var()

# %% [markdown]
# The 30 is gone, and the variance is near 1 again.
#
# ### More: when q and k don't have variance 1
#
# The formula needs the variances of q and k, and these need not be 1. Say that tokens of 4 channels and the matrices for q and k are all drawn by `torch.randn`, with head_size 4. Then each entry of q and k is a sum of 4 products, and has variance 4.

# %% tags=["folded"]
# Question
ask("wide_queries")

# %% [markdown]
# Here are 20,000 such queries and as many keys, each from a token and a matrix of its own. The entries of one q come from the same token, so they are not independent. But they are **uncorrelated**, which means that the mean of $q_i q_j$ is 0 for $i \neq j$. Because q and k are independent of each other, the terms $q_i k_i$ are then uncorrelated as well, and that's enough for their variances to add up. (In a real head q and k of one token do depend on each other, because both are made from it.)

# %% tags=["folded"]
# Measure: the variances of q, scores, scores / √4 and scores / 8
torch.manual_seed(0)
q = torch.randn(20_000, 1, 4) @ torch.randn(20_000, 4, 4)
k = torch.randn(20_000, 1, 4) @ torch.randn(20_000, 4, 4)
scores = (q * k).sum(dim=-1)
variances = torch.stack(
    [each.var() for each in (q, scores, scores / 2, scores * (1 / 8))]
)
predicted = torch.tensor([4.0, 64.0, 16.0, 1.0])
torch.testing.assert_close(variances, predicted, rtol=0.2, atol=0)
assert torch.corrcoef(q[:, 0].T).triu(diagonal=1).abs().max() < 0.05
assert torch.corrcoef(q[:, 0].T ** 2)[0, 1] > 0.1  # not independent
for name, variance in zip(
    ("q", "scores", "scores / √4", "scores / 8"), variances
):
    print(f"{name:12} {variance:4.1f}")

# %% [markdown]
# By the formula the scores have variance 4 · 4 · 4. Dividing them by √4 leaves {{predicted[2]:.0f}}, and it takes a division by 8 to get to {{predicted[3]:.0f}}.
#
# With the linear layers of rung {query_key_value} it's the other way round. The initialization of `nn.Linear` has variance 1/(3 · n_embd), so for tokens of variance 1, q and k have variance 1/3 at first, and scaled scores 1/9, whatever head_size is. So an untrained head takes almost the plain mean. (The tokens of our three heads had variance 2, because each was the sum of two vectors. So q and k had variance 2/3<!--given--> there, and the formula predicts 256<!--given--> · 4/9<!--given-->, about 114<!--given-->, for the wide head. The table above has {{looks['256 channels', 'before'][0]:.0f}}.) If the weights are still that even after training, the head has found nothing to look for, perhaps because its tokens don't know their positions.

# %% tags=["folded"]
# Check: variances of 1/3 and 1/9 at three head sizes
torch.manual_seed(0)
x = torch.randn(4, 64, 384)
for head_size in (4, 64, 1024):
    head = Head(384, head_size)
    torch.testing.assert_close(
        head.query(x).var().item(), 1 / 3, rtol=0.1, atol=0
    )
    torch.testing.assert_close(
        head.key(x).var().item(), 1 / 3, rtol=0.1, atol=0
    )
    scores = head.query(x) @ head.key(x).transpose(-2, -1) * head_size**-0.5
    torch.testing.assert_close(
        scores.var().item(), 1 / 9, rtol=0.15, atol=0
    )
    assert entropy(torch.softmax(scores, dim=-1)).mean() > 0.95 * math.log(
        64
    )

# %% [markdown]
# ## Prove
#
# The measured variance equals the formula, for several variances of q, sizes and scales. And `attention_weights` of rung {query_key_value} multiplies by 1/√head_size, as PyTorch's own function does.

# %% tags=["proof"]
torch.manual_seed(0)
for var_q in (0.25, 1.0, 4.0):
    for head_size in (2, 16, 64):
        for scale in (1.0, head_size**-0.5, 1 / head_size):
            q = torch.randn(20_000, head_size) * var_q**0.5
            k = torch.randn(20_000, head_size) * 3**0.5
            found = ((q * k).sum(dim=-1) * scale).var().item()
            predicted = head_size * var_q * 3 * scale**2
            torch.testing.assert_close(found, predicted, rtol=0.1, atol=0)

q, k, v = torch.randn(3, 4, 8, 16)
weights = attention_weights(q, k)
torch.testing.assert_close(weights, attention_weights(q / 4, k, scale=1.0))
torch.testing.assert_close(
    weights @ v, F.scaled_dot_product_attention(q, k, v)
)

# %% [markdown]
# ## Explore
#
# **At which head_size does one key get nearly all the weight, and which scale brings the others back?**
#
# Drag head_size to the right with the scale on "none", until one bar is almost 1. What has become of the Jacobian? Try other rows as well, because some collapse early and some not even at 64. Then press "1/√head_size", and look for another scale that is right at both ends. Last, set the variance of q to 4, and work out which scale you would need now.

# %% tags=["folded"]
# Explorer: scores, weights and Jacobian over head_size
explore("scaling_variance")

# %% [markdown]
# You won't find one. 1/head_size makes the weights ever more even, and 1/√n_embd is right only at 64, because n_embd is 64 here. With var(q) = 4 you need half of the usual scale.
#
# ### More: how usual is a collapse?
#
# The eight rows of the explorer are the first that were drawn. (Its dashed curve is a normal density with the variance that the formula predicts. The scores approach it as head_size grows, since they are sums of many terms. At small head_size they are more peaked.) To see what is usual, count over 4,000 rows of six keys. In how many does one key have more than 0.95 of the weight?

# %%
torch.manual_seed(0)
q, k = torch.randn(4000, 1, 64), torch.randn(4000, 6, 64)


def share_collapsed(head_size, scale):
    largest = rows_of_weights(head_size, scale).amax(dim=-1)
    return (largest > 0.95).float().mean().item()


for d in (16, 64):
    none, roots = share_collapsed(d, 1.0), share_collapsed(d, d**-0.5)
    print(f"head_size {d}: {none:.1%} without a scale, {roots:.1%} with it")

# %% tags=["folded"]
# Check: the shares of rows in which one key has nearly all the weight
for d, least in ((16, 1 / 5), (64, 1 / 2)):
    assert share_collapsed(d, 1.0) > least
assert max(share_collapsed(d, d**-0.5) for d in (16, 64)) < 0.01

# %% [markdown]
# Without a scale that happens in more than a fifth of the rows at head_size 16, and in more than half at 64. 1/√head_size brings the others back in nearly every row. (Row 6 of the explorer is an exception at head_size 64, where one key keeps most of the weight.)
#
# ## Break it
#
# We all write this bug sooner or later. Here it is in the attention weights of Andrej Karpathy's lecture [Let's build GPT: from scratch, in code, spelled out](https://www.youtube.com/watch?v=kCc8FmEb1nY). ([The code beside it](https://github.com/karpathy/ng-video-lecture) has since been fixed.) Tokens have n_embd = 384 channels, and a head has 64.


# %%
def lecture_weights(x, query, key):
    _, T, C = x.shape
    q, k = query(x), key(x)
    mask = torch.ones(T, T, dtype=torch.bool).tril()
    scores = q @ k.transpose(-2, -1) * C**-0.5
    scores = scores.masked_fill(~mask, float("-inf"))
    return torch.softmax(scores, dim=-1)


# %% tags=["folded"]
# Question
ask("find_the_odd_line")

# %% [markdown]
# The shapes are right, the rows sum to 1, and the leak probe finds no leak. The weights only come out a little too even. You could compare with PyTorch's function, or measure the variance of the scores, for which you need nothing to compare with.

# %%
torch.manual_seed(0)
query, key = nn.Linear(384, 64, bias=False), nn.Linear(384, 64, bias=False)
for layer in (query, key):
    nn.init.normal_(layer.weight, std=384**-0.5)  # q, k of variance 1
x = torch.randn(16, 32, 384)
scores = query(x) @ key(x).transpose(-2, -1)
for size, wanted_variance in ((384, 1 / 6), (64, 1.0)):
    variance = (scores * size**-0.5).var().item()
    torch.testing.assert_close(variance, wanted_variance, rtol=0.1, atol=0)
    print(f"scaled by {size}**-0.5: variance {variance:.2f}")

# %% [markdown]
# A score is a sum of head_size products, and C is six times as many, so a sixth of the variance is left.
#
# ### More: what finds the bug, and what hides it
#
# Shapes, sums and leaks don't show it, and a comparison with PyTorch does. A trained model may hide it, since training can make q √6 times as long, and that gives the weights that were wanted.

# %% tags=["folded"]
# Check: shape, sums, no leak; PyTorch differs; a longer q would hide it
weights = lecture_weights(x, query, key)
mask = causal_mask(32)
assert weights.shape == (16, 32, 32)
torch.testing.assert_close(weights.sum(dim=-1), torch.ones(16, 32))
assert (
    not leak_probe(lambda x: lecture_weights(x, query, key) @ x, x)
    .triu(1)
    .any()
)
wanted = attention_weights(query(x), key(x), mask)
assert entropy(weights[:, -1]).mean() > entropy(wanted[:, -1]).mean() + 0.2
by_torch = F.scaled_dot_product_attention(
    query(x), key(x), x, attn_mask=mask
)
assert (weights @ x - by_torch).abs().max() > 0.5
longer = attention_weights(6**0.5 * query(x), key(x), mask, scale=384**-0.5)
torch.testing.assert_close(longer, wanted)

# %% [markdown]
# ## Exercises
#
# ### 1. The scale in its place
#
# <!--task scaled_weights-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("scaled_weights")


# %%
def my_scaled_weights(x, w_query, w_key):
    raise NotImplementedError


check("scaled_weights", my_scaled_weights)

# %% [markdown]
# ### 2. Predict a variance
#
# <!--task predicted_variance-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("predicted_variance")


# %%
def my_variance(var_q, var_k, head_size, scale):
    raise NotImplementedError


check("predicted_variance", my_variance)

# %% [markdown]
# ### 3. Choose a scale
#
# <!--task scale_for_variance-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("scale_for_variance")


# %%
def my_scale(var_q, var_k, head_size, variance):
    raise NotImplementedError


check("scale_for_variance", my_scale)

# %% [markdown]
# ## More: in the wild
#
# - "Attention Is All You Need" (Vaswani et al. 2017, section 3.2.1) divides by √d_k, which is our √head_size, and gives the formula in a footnote. The authors suspect the reason that we measured, that for large scores the derivatives of softmax are extremely small.
# - The paper uses one table for the embeddings and for the logits (section 3.4). A logit is a dot product with a row of this table, so for variance 1 the entries need variance 1/n_embd. As embeddings they would be tiny beside the sines and cosines. There the paper multiplies the table by √d_model, and it does not say why.
# - `F.scaled_dot_product_attention` has a parameter `scale`, which works as ours does.
# - In μP (Yang et al. 2022), a way to tune hyperparameters on a small model for a large one, the factor is 1/head_size up to a constant. *Trained* q and k point in related directions, so their dot product grows like head_size, and not like its root.
#
# ## Where we are
#
# ![The transformer as a drawing. Highlighted: what this rung builds (the division by √head_size).](images/transformer_scaling_variance.svg)
#
# You can make a head as wide as you like now, and you know how it learns. The staircase hasn't moved, because the head of rung {query_key_value} had its scale from the beginning, and “Poor” still names the wrong person most of the time. Next, a head reads another text than the one it writes.
#
# ## Three sentences to remember
#
# 1. The variance of a score is head_size · var(q) · var(k), so dividing by √head_size keeps it the same for every head_size.
# 2. Large scores saturate softmax, so in many rows one key gets nearly all the weight, and almost no gradient passes through such a row to q and k.
# 3. A wrong scale raises no error and changes no shape, so measure the variance.
#
# Next: [rung {cross_and_causal}, cross and causal]({cross_and_causal}.ipynb), where the mask determines the kind of attention.
#
# <!--neighbours-->
