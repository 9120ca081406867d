# %% [markdown]
# # Rung {scaling_variance}: scaling and variance
#
# <!--ladder-->
#
# **You will build** the rule for how large scores get, and the number that lets a wide head learn.
#
# With one head, our staircase is at a loss of 0.38<!--given-->, and on these stories no model gets below 0.10<!--given-->. You'd expect a wider head to help. But without scaling, it hardly learns.
#
# Guess, then drag the bell's edge to the smallest head_size where one key gets nearly all the weight.

# %% tags=["hero", "folded"]
# The opening picture: guess first, then drag the edge of the bell
from attention_course.heroes import hero

hero("scaling_variance")

# %% [markdown]
# **You need** [rung {query_key_value}]({query_key_value}.ipynb), softmax and entropy from [rung {masked_softmax}]({masked_softmax}.ipynb), means, and derivatives.
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
from attention_course.text import Corpus, get_batch, load_text

torch.set_printoptions(precision=3, sci_mode=False)

progress("scaling_variance")

# %% [markdown]
# ## A head that hardly learns
#
# For each letter of our stories, three heads learn to name the letter before it. One has 16 channels and two have 256, and one of the wide ones divides its scores by √256.

# %% tags=["folded"]
# Question
ask("three_heads")

# %% tags=["folded"]
# One head of rung {query_key_value} and its training, which the next section explains
data = Corpus.of(load_text("stories"))
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
        return self.out(found)  # what each letter found -> V scores


def train(model, lr=0.01, steps=100, groups=None):
    optimizer = torch.optim.Adam(groups or model.parameters(), lr=lr)
    generator = torch.Generator().manual_seed(0)
    losses = torch.zeros(steps)
    for step in range(steps):
        ids, _ = get_batch(data.train, 32, 8, generator)  # (8, 32)
        named = model(ids)[:, 1:]  # the first letter has none before it
        right = ids[:, :-1]
        # average surprise; flatten joins the texts of the batch
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
# Without the division, the wide head ends above 1.5 nats per letter, while the other two get close to 0. A wide head can do everything a narrow one can, so the trouble must lie in how it learns. To see why, you need to know how training works.
#
# ## How a model learns
#
# Take a model with a single parameter. “Poor” asks who got the drum, and there are two keys. Ben's score is always 0, while Sam's is the parameter, w. Sam should get all the weight, so let the loss be (1 − Sam's weight)². The loss is 0 when Sam has everything, and 1 when Ben does.


# %%
def loss_at(w):
    sam = w.exp() / (w.exp() + 1)  # softmax: exp of Ben's score 0 is 1
    return (1 - sam) ** 2


loss_at(torch.tensor(-1.0))

# %% [markdown]
# Suppose w is −1. To see which way to move it, nudge it by 0.01. Divide the change in the loss by 0.01, and you nearly get the slope of the loss, its derivative. Where the slope is negative, the loss falls as w grows, so you let w grow. Where it's positive, you let w shrink. Either way, you go *against* the slope. Because a step pays off more where the slope is steep, make the step 4 times the slope.

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
# Repeat such steps, and you have **gradient descent**. Nearly every neural network learns by some form of it. The number in front of the slope, here 4, is the **learning rate**.
#
# What if w starts at −8, where Ben has nearly everything?

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
near, far = descend(-1.0), descend(-8.0)  # try other starts than -8
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
    alt="The loss over w is flat at 1 on the left, which is a plateau, "
    "falls around 0, and is flat at 0 on the right. Steps from -1 go down "
    "the slope, large at first and then smaller. Steps from -8 stay put.",
)

# %% [markdown]
# One point walks downhill. The other stays on a plateau, high up and wrong, because there's hardly any slope to tell it where to go. From how far out can you start and still get down in 20 steps?
#
# A real head has thousands of parameters, and the loss has a slope for each. All these slopes together are the **gradient**. Nudging the parameters one by one would take too long, so `loss.backward()` goes through the computation in reverse and applies the chain rule at every operation. This is **backpropagation**, which finds all the slopes in one pass. Each parameter keeps its slope in `.grad`.

# %%
w = torch.tensor(-1.0, requires_grad=True)  # keep track of w
loss_at(w).backward()
assert (w.grad - slope).abs() < 0.01
w.grad, slope

# %% [markdown]
# The two slopes agree as closely as your nudge allows. With the slopes in hand, an **optimizer**, here Adam, changes the parameters. You can now read the loop in `train` above, where `zero_grad()` clears the old slopes, `backward()` finds the new ones, and `step()` moves every parameter. Running a trained model, which needs none of this, is called **inference**.
#
# ## How large is a score?
#
# Where could scores so far apart come from?
#
# A score is a sum with one product per channel. Let a coin decide whether each number in q and k is 1 or −1. The coins are independent, which means that no coin tells you anything about the others. With 2 channels, the four coins can fall in 16 ways.

# %%
coins = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * 4)  # (16, 4)
q, k = coins[:, :2], coins[:, 2:]
scores = (q * k).sum(dim=-1)
scores

# %% [markdown]
# The mean of these scores is 0. To measure how far they spread, square each score's distance from the mean, and average the squares. The result is the **variance**. Eight scores are 0 and eight are 2 or −2, so the variance is (8 · 0 + 8 · 4) / 16 = {{scores.var(correction=0):.0f}}, and its root is the standard deviation, √2.
#
# Now toss the coins 4,000 times. Try 8 channels, then 32<!--given--> and 128<!--given-->, and look for the rule.

# %% tags=["do"]
channels = 2  # then 8, 32, 128
torch.manual_seed(0)
q, k = 2.0 * torch.randint(2, (2, 4000, channels)) - 1  # 1 or -1
(q * k).sum(dim=-1).var()

# %% tags=["folded"]
# Question
ask("variance_of_a_score")

# %% [markdown]
# Think of a score as a walk of 16 random steps to the left or right. Many steps cancel, so you typically end up √16 = 4 steps away. Now let all entries of q and k be independent, with mean 0. Write E for the mean and var(q) for the variance of one entry of q. For independent numbers, the mean of a product is the product of the means.
#
# 1. One product has mean 0, because $E[q_i k_i] = E[q_i]\,E[k_i] = 0$.
# 2. So its variance is the mean of its square, $E[q_i^2 k_i^2] = E[q_i^2]\,E[k_i^2] = \operatorname{var}(q)\,\operatorname{var}(k)$.
# 3. The sum of two such products a and b has variance $E[(a+b)^2] = E[a^2] + 2\,E[ab] + E[b^2]$. Because $E[ab] = E[a]\,E[b] = 0$, their variances add up. So do those of all products in a score, one per channel.
#
# $$\operatorname{var}(q \cdot k) = \text{head\_size} \cdot \operatorname{var}(q) \cdot \operatorname{var}(k)$$
#
# Test the formula on 4,000 random queries and keys.

# %%
torch.manual_seed(0)
q, k = torch.randn(2, 4000, 1024)  # mean 0, variance 1
head_sizes = 2 ** torch.arange(11)
measured = torch.stack(
    [(q[:, :d] * k[:, :d]).sum(dim=-1).var() for d in head_sizes]
)
torch.testing.assert_close(measured, head_sizes.float(), rtol=0.1, atol=0)

# %% [markdown]
# All eleven are within 10% of the formula. With 64 channels, which factor brings the variance back to 1?

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
# When you multiply scores by a number, their variance is multiplied by that number's *square*, so the factor is 1/√head_size. It's the `scale` of rung {query_key_value}, which our third head used.


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
    "straight lines climb, with var(q) = 4 above var(q) = 1. "
    "After dividing by √head_size the line is level, at 1.",
)

# %% [markdown]
# ## What softmax does to large scores
#
# What does softmax do with scores that lie far apart?

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
    "At 1 every key has some weight, at 3 key 2 has most of it, and at "
    "10 key 2 has nearly all of it.",
)

# %% [markdown]
# A softmax that gives nearly everything to one key is **saturated**. Before training, the scores are random, and so is the winner. Can training still put it right?
#
# How far does a weight move when you change a score? Write $p_i = e^{s_i} / Z$, where $Z$ is the sum of all exponentials. If key i's own score grows, so do $e^{s_i}$ and $Z$. If another score grows, only $Z$ does. The quotient rule gives
#
# $$\frac{\partial p_i}{\partial s_i} = \frac{e^{s_i} Z - e^{s_i} e^{s_i}}{Z^2} = p_i (1 - p_i)$$
#
# $$\frac{\partial p_i}{\partial s_j} = \frac{0 - e^{s_i} e^{s_j}}{Z^2} = -p_i\, p_j$$
#
# Put these derivatives in a table, with a row for each weight and a column for each score. This table is called the Jacobian of softmax. Here it is for the weights 1/8, 2/8 and 5/8, times 64.

# %%
p = torch.tensor([1 / 8, 2 / 8, 5 / 8])
table = p.diag() - p.outer(p)  # diagonal: p - p², which is p (1 - p)
table * 64

# %% tags=["folded"]
# Question
ask("when_one_key_has_it_all")

# %% [markdown]
# There's your plateau, because backpropagation multiplies by this table. In a saturated row almost no gradient reaches the scores, or q and k. The values are *not* cut off, because their gradient doesn't pass through softmax. So such a row still learns what to hand over, but not where to look.
#
# ### More: the plateau in numbers
#
# Suppose the loss has the slopes 3, 1 and 0 for the three weights. Score 0 moves all three, so by the chain rule its slope is (3 · 7 − 1 · 2 − 0 · 5) / 64 = 19/64<!--given-->. Below, the values are 3, 1 and 0, so the output has these slopes. The first line is for the weights above, and in the second, key 2 has all the weight.

# %%
for scores in ([0.0, math.log(2), math.log(5)], [0.0, 0.0, 200.0]):
    scores = torch.tensor(scores, requires_grad=True)
    v = torch.tensor([3.0, 1.0, 0.0], requires_grad=True)
    p = torch.softmax(scores, dim=-1)
    (p @ v).backward()
    torch.testing.assert_close(scores.grad, (p.diag() - p.outer(p)) @ v)
    print("64 * scores.grad", 64 * scores.grad, "v.grad", v.grad)
assert not scores.grad.any()

# %% [markdown]
# In the second line no gradient is left for the scores, while the values get theirs.
#
# ### How many channels saturate a row?
#
# Let's draw 1,000 random queries with 8 keys each, and take the middle one of the 1,000 values for each of three measures.


# %% tags=["folded"]
# Measure: the middle of 1000 values, with the scale and without
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
    "and the norm of the Jacobian all fall towards 0. With the scale all "
    "three stay where they are.",
)

# %% [markdown]
# (The norm is the root of the sum of all squared derivatives.) Without a scale, all three measures collapse. At head_size 64, the largest weight is typically {{rows_of_weights(64, 1.0).amax(dim=-1).median():.2f}}. With the scale, hardly anything changes from 1 channel to 1024.
#
# ## Before and after training
#
# In a fresh wide head, q and k (shown below) have variance 2/3<!--given-->. So by the formula, scores have variance 256 · 4/9<!--given-->, about {{256 * 4 / 9:.0f}}, without the scale, and 4/9<!--given--> with it. How does training change that?

# %% tags=["folded"]
# Question
ask("variance_after_training")


# %% tags=["nbval-ignore-output"]
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
# The columns are the variance of the scores, how often one letter has more than 0.95 of the weight, and the weight of the letter that the head should find. Both heads end up confident. But the head with the scale began without an opinion, and became confident *because* it found the right letter. The other was confident half the time before it had read a line, and never found out where to look. Why did its scores still grow? About half of its rows let a gradient through at first. But without the scale, the same step of q and k moves the scores 16 times as far, so each step is a leap. So the scale does two things. It brings the first scores close together, and it keeps each step small.
#
# Then why not just start with smaller numbers? Divide the wide head's matrices for q and k by 4, and its first scores are the same as with the scale.


# %% tags=["nbval-ignore-output"]
def start_small():
    torch.manual_seed(0)
    model = LetterBefore(256, 1.0)
    with torch.no_grad():  # a change that no gradient has to know about
        model.head.query.weight /= 4
        model.head.key.weight /= 4
    return model


small = train(start_small())[-1].item()
assert small > 1.5
small, losses["256 channels"][-1].item(), divided[-1].item()

# %% [markdown]
# A small start cures only the start, and the head still ends above 1.5. Its first step moves the scores 4 times as far as with the scale, and once q and k have grown, a step moves them 16 times as far. Smaller steps for both matrices would help, but every width would need a different size.
#
# ### More: the middle of the rows, and their mean
#
# The gradients of many queries add up, so the mean of the norms matters too, and it tells a milder story.

# %%
for d in (1, 64, 256, 1024):
    norms = jacobian_norm(rows_of_weights(d, 1.0))
    both = f"median {norms.median():.4f}, mean {norms.mean():.2f}"
    print(f"head_size {d:4}: {both}")

# %% [markdown]
# The middle of all values is called the **median**. The median norm is below 0.1 at head_size 64, and practically 0 at 1024. Gradients that get lost on the way like this are called **vanishing gradients**. But the mean falls much more slowly, roughly as 1/√head_size, so with four times as many channels it roughly halves. At 1024 nearly all of the mean comes from a fifth of the rows, the ones in which two scores nearly tie, because there a small change in the scores still moves the weights. So a saturated head isn't cut off entirely. A few of its rows still tell it something, and its values learn anyway.
#
# (So far we've looked at the Jacobian alone. The gradient for q and k also contains the scale, and leaving out the factor 1/√head_size makes that gradient larger. So on average the gradient doesn't fall with head_size, but in a typical row it does.)

# %% tags=["folded"]
# Check: before and after training; median and mean of the norms
ids, _ = get_batch(data.train, 32, 64, torch.Generator().manual_seed(1))
x = fresh.letter(ids) + fresh.position.weight
q_starts = fresh.head.query(x).var().item()
(_, half, _), (_, most, lost), (start, none, _), (end, all_but, found) = (
    looks.values()
)
assert 0.4 < half < 0.6
assert most > 0.9 > 0.2 > lost
assert start < 1
torch.testing.assert_close(q_starts, 2 / 3, rtol=0.1, atol=0)
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
# ### More: isn't that just a bad learning rate?
#
# It's a fair objection. We also trained both wide heads at the learning rates 0.001<!--given-->, 0.003<!--given--> and 0.03<!--given-->, and each time the head without the scale ended with the higher loss. You can repeat that with `train(LetterBefore(256, 1.0), lr=0.003)`. (Our optimizer, Adam, already lengthens steps where slopes are small. But a slope of 0 gives it no direction.)
#
# With a small start, the learning rate matters more. At 0.003<!--given-->, the small start helps somewhat, but the scale helps more, and at 0.001<!--given--> both are about equally slow. So here is the small start again, with steps for q and k that are a quarter as large.

# %% tags=["nbval-ignore-output"]
model = start_small()
layers = model.head.query, model.head.key
slow = [layer.weight for layer in layers]
others = [p for p in model.parameters() if not any(p is w for w in slow)]
lr = 0.01
groups = [{"params": slow, "lr": lr / 4}, {"params": others}]
both = train(model, lr, groups=groups)
scaled_head = losses["256 channels, scores / 16"]
assert (both - scaled_head).abs().max() < 0.1
both[-1].item(), scaled_head[-1].item()

# %% [markdown]
# The two heads learn alike, step by step. That's no accident. Dividing q by 4 gives the same numbers as dividing its matrix by 4, and the length of Adam's steps doesn't depend on the scale of the slopes, so with the smaller matrix you need steps a quarter as long. The same goes for k. What the scale saves you is the tuning.
#
# ## The softmax at the end
#
# A model ends with one more softmax, which turns its scores for all letters into probabilities. These last scores are called **logits**. If a model is confident of the wrong letter, is it stuck too?

# %% tags=["folded"]
# Question
ask("confident_and_wrong")

# %% [markdown]
# The model isn't stuck, thanks to its loss, the average surprise that you know from rung {bag_of_words}. This loss is called **cross-entropy**, and for one letter it is −ln p, where p is the probability of the right letter. The slope of −ln p is −1/p, which cancels the p that makes softmax flat. For the logit of the right letter r and of any other letter j, the slopes are
#
# $$-\frac{1}{p_r} \cdot p_r (1 - p_r) = p_r - 1 \qquad -\frac{1}{p_r} \cdot (-p_r\, p_j) = p_j - 0$$
#
# So the gradient is $p - y$, where $y$ is 1 for the right letter and 0 otherwise. Below, letter 0 is right, but the model is confident of letter 2.

# %%
logits = torch.tensor([0.0, 0.0, 20.0], requires_grad=True)
F.cross_entropy(logits, torch.tensor(0)).backward()  # softmax and loss
p, y = torch.softmax(logits.detach(), dim=-1), torch.tensor([1.0, 0.0, 0.0])
torch.testing.assert_close(logits.grad, p - y)
logits.grad

# %% [markdown]
# The more wrong a model is, the harder the gradient pulls it back. The softmax inside a head isn't followed by such a logarithm, so the scale has to keep it off the plateau.
#
# ### More: the first loss of a model is ln V, or a little more
#
# Our stories have V = 33 characters. The simplest guess gives each of them the same probability, so its loss is ln 33. Such a simple method, which any model has to beat, is a **baseline**. A model that has learned nothing should at least be no worse than that.

# %% tags=["folded"]
# Question
ask("loss_of_random_logits")

# %% [markdown]
# The way parameters are drawn before training is their **initialization**. An `nn.Embedding` is initialized with mean 0 and variance 1, and logits that come straight from such a table are random numbers of the same kind.

# %%
torch.manual_seed(0)
assert V == 33
logits = torch.randn(20_000, V)
characters = torch.randint(V, (20_000,))
loss = F.cross_entropy(logits, characters)
predicted = math.log(V) + 1 / 2
print(f"ln {V} = {math.log(V):.2f}")
print(f"measured {loss:.2f}, predicted {predicted:.2f}")
smaller = F.cross_entropy(0.02 * logits, characters)
print(f"with logits 0.02 times as large: {smaller:.2f}")
assert abs(loss - predicted) < 0.04
assert abs(smaller - math.log(V)) < 0.002

# %% [markdown]
# The loss is the logarithm of the sum of all exponentials, minus the logit of the right character, which is 0 on average. For a normally distributed $z$ with mean 0 and variance $v$, the mean of $e^z$ is $e^{v/2}$. So the sum is about $33\,e^{1/2}$, and its logarithm is ln 33 + 1/2 = {{predicted:.2f}}. (We measured a little less, because the sum varies from row to row.)
#
# Small logits remove the 1/2. With a standard deviation of 0.02, the loss starts at ln 33. The lesson is the same inside a head and at the end of a model. A softmax that has learned nothing shouldn't be confident of anything, and the variance of its input decides how confident the softmax is.
#
# ### More: QK-norm, for when scores grow too large later
#
# In long training runs of large models, the scores sometimes grow until training fails. **QK-norm** (Henry et al. 2020) takes the lengths of q and k out of the score. It divides each q and each k by its own length, and multiplies the scores by one learned number instead of 1/√head_size. Then the dot product is the cosine of an angle, from −1 to 1, however long q and k become. Without the learned number, no key could get even a fifth of the weight among our 32 keys. At best, the key's score is 1 and the other 31 scores are −1, which gives the key e / (e + 31/e).
#
# Many of today's models keep 1/√head_size and normalize q and k in another way. They divide each q and each k by the root of the mean of its squares, so that its numbers are about as large as a random start would make them, and then multiply each channel by a learned number. (Qwen3 does this in each head, and OLMo 2 with all heads together. A vision transformer of 22 billion parameters, Dehghani et al. 2023, used LayerNorm (rung {bigram_to_gpt}) for the same purpose.) Neither method puts a fixed limit on the scores, since the learned numbers can grow. Gemma 2 does set a limit, with a soft cap. It passes the scores through 50 · tanh(score / 50), which never gets beyond ±50.

# %%
assert 0.19 < math.e / (math.e + 31 / math.e) < 1 / 5
q, k = 30 * torch.randn(2, 4000, 64)  # long queries, long keys
q, k = (
    each / each.square().mean(-1, keepdim=True).sqrt() for each in (q, k)
)
((q * k).sum(dim=-1) * 64**-0.5).var()

# %% [markdown]
# The 30 no longer matters, and the variance is near 1 again.
#
# ### More: when q and k don't have variance 1
#
# The formula needs the variances of q and k, which may differ from 1. Say head_size is 4, and we draw tokens of 4 channels and the matrices for q and k with `torch.randn`. Then each entry of q and k is a sum of 4 products, so its variance is 4.

# %% tags=["folded"]
# Question
ask("wide_queries")

# %% [markdown]
# Here are 20,000 such queries and as many keys, each from a token and a matrix of its own. The entries of one q come from the same token, so they aren't independent. But they are **uncorrelated**, which means that the mean of $q_i q_j$ is 0 for $i \neq j$. Because q and k are independent of each other, the products $q_i k_i$ are then uncorrelated as well, which is enough for their variances to add up. (In a real head, the q and the k of one token do depend on each other, because both are made from that token.)

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
# By the formula the scores have variance 4 · 4 · 4. Dividing them by √4 leaves a variance of {{predicted[2]:.0f}}, and you have to divide by 8 to get to {{predicted[3]:.0f}}.
#
# With the linear layers of rung {query_key_value} the variances are too small rather than too large. `nn.Linear` draws its numbers with variance 1/(3 · n_embd). So for tokens of variance 1, q and k have variance 1/3 at first, and the scaled scores have variance 1/9, whatever head_size is. So an untrained head takes almost the plain mean. (The tokens of our three heads had variance 2, because each was the sum of two vectors of variance 1. So their q and k had variance 2/3<!--given-->.) If a trained head still spreads its weights almost evenly, it has probably found nothing to look for, perhaps because its tokens don't know their positions.

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
# The formula holds for other variances and scales too, and `attention_weights` of rung {query_key_value} multiplies by 1/√head_size, as PyTorch's function does.

# %% tags=["proof"]
torch.manual_seed(0)
for var_q, head_size, scale in ((0.25, 2, 1.0), (4.0, 64, 1 / 64)):
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
# With the scale on "none", drag head_size to the right until one bar is almost 1. What happens to the Jacobian? Then press "1/√head_size", and see whether any other scale is right at both ends of the slider. Finally, set the variance of q to 4, and work out which scale you need now.

# %% tags=["folded"]
# Explorer: scores, weights and Jacobian over head_size
explore("scaling_variance")

# %% [markdown]
# Only 1/√head_size is right at both ends, and with var(q) = 4 you need half of it. (At 64 channels, 1/√n_embd is also right, because n_embd is 64.)
#
# ### More: how common is a collapse?
#
# We didn't choose the eight rows of the explorer; they are the first that were drawn. (The dashed curve is a normal density with the variance that the formula predicts. As head_size grows, the scores approach this curve, since they are sums of many products. With a small head_size their distribution is more peaked.) To see how common a collapse is, take 4,000 rows of six keys. In how many of them does one key have more than 0.95 of the weight?

# %%
torch.manual_seed(0)
q, k = torch.randn(4000, 1, 64), torch.randn(4000, 6, 64)


def share_collapsed(head_size, scale):
    largest = rows_of_weights(head_size, scale).amax(dim=-1)
    return (largest > 0.95).float().mean().item()


for d, least in ((16, 1 / 5), (64, 1 / 2)):
    none, roots = share_collapsed(d, 1.0), share_collapsed(d, d**-0.5)
    assert none > least
    assert roots < 0.01
    print(f"head_size {d}: {none:.1%} without a scale, {roots:.1%} with it")

# %% [markdown]
# Without a scale, one key takes over in more than a fifth of the rows at head_size 16, and in more than half at 64. With 1/√head_size, the other keys come back in nearly every row. (Row 6 of the explorer is an exception at head_size 64, where one key keeps most of the weight.)
#
# ## Break it
#
# We all write this bug sooner or later. Here it is in the attention weights from Andrej Karpathy's lecture [Let's build GPT: from scratch, in code, spelled out](https://www.youtube.com/watch?v=kCc8FmEb1nY). ([The code beside it](https://github.com/karpathy/ng-video-lecture) has since been fixed.) Tokens have n_embd = 384 channels, while a head has 64.


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
# Shapes, sums and the leak probe all look right, and the weights are only a little too even. But measure the variance of the scores, and the bug shows.

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
# ### More: what finds the bug, and what hides it
#
# Shapes, sums and leaks don't show the bug, but comparing with PyTorch does. A trained model may hide it, since training can make q √6 times as long, which gives exactly the weights you wanted.

# %% tags=["folded"]
# Check: shape, sums, no leak; PyTorch differs; a longer q hides the bug
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
# - "Attention Is All You Need" (Vaswani et al. 2017, section 3.2.1) divides by √d_k, which is our √head_size, and gives the formula in a footnote. The authors suspect what we measured, that the derivatives of softmax are extremely small for large scores.
# - The paper uses one table for the embeddings and for the logits (section 3.4). A logit is a dot product with a row of this table, so for logits of variance 1 its entries need variance 1/n_embd. As embeddings, such entries would be tiny beside the positions' sines and cosines. For the embeddings the paper multiplies the table by √d_model, but it doesn't say why.
# - `F.scaled_dot_product_attention` has a parameter `scale`, which works like ours.
# - In μP (Yang et al. 2022), a way to tune hyperparameters on a small model for a large one, the factor is 1/head_size up to a constant. *Trained* q and k point in related directions, so their dot product grows like head_size, not like its root.
#
# ## Where we are
#
# ![The transformer as a drawing. Highlighted: what this rung builds (the division by √head_size).](images/transformer_scaling_variance.svg)
#
# You can now make a head as wide as you like, and you know how heads learn. The staircase hasn't moved, because the head of rung {query_key_value} already had its scale, and “Poor” still names the wrong person most of the time.
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
