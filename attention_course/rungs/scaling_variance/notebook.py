# %% [markdown]
# # Rung {scaling_variance}: scaling and variance
#
# <!--ladder-->
#
# **You will build** a formula for the variance of scores, and see what softmax does to scores that are too large.

# %% tags=["hero", "folded"]
# The opening picture: drag the edge of the bell
from attention_course.heroes import hero

hero("scaling_variance")

# %% [markdown]
# **You need** [rung {query_key_value}]({query_key_value}.ipynb), softmax and entropy from [rung {masked_softmax}]({masked_softmax}.ipynb), and what a derivative is.
#
# <!--time-->
#
# ![The transformer as a drawing. Lit is what this rung builds: the division by √head_size.](images/transformer_scaling_variance.svg)

# %% [markdown]
# ## The question
#
# A score is the dot product of a query and a key: a sum, with one term for each channel. `attention_weights` multiplies every score by 1/√head_size. Why that number, and what happens without it?

# %% tags=["folded"]
# Imports
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from attention_course.attention import Head, attention_weights, leak_probe
from attention_course.exercises import check
from attention_course.explorers import explore
from attention_course.fills import fill
from attention_course.plots import Bars, Lines, picture
from attention_course.progress import progress
from attention_course.questions import ask

torch.set_printoptions(precision=3, sci_mode=False)

progress("scaling_variance")

# %% [markdown]
# ## How large is a score?
#
# Let each entry of q and of k be 1 or −1, decided by a coin toss. With head_size = 2 there are four coins, and 16 equally likely outcomes.

# %%
coins = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * 4)  # (16, 4)
q, k = coins[:, :2], coins[:, 2:]
scores = (q * k).sum(dim=-1)
scores

# %% [markdown]
# Their mean is 0. How far they are from it is measured by the **variance**, the mean of the squared distances from the mean. Eight scores are 0, and eight are 2 or −2: (8 · 0 + 8 · 4) / 16 = {{scores.var(correction=0):.0f}}. The square root of the variance is the **standard deviation**, √2 here.

# %%
variance = scores.var(correction=0)  # divide by 16
(scores == 0).sum(), (scores.abs() == 2).sum(), variance

# %% [markdown]
# A single coin has mean 0 and variance 1. The coins are **independent**: knowing one says nothing about the others.
#
# ## Predict

# %% tags=["folded"]
# Question
ask("variance_of_a_score")

# %% [markdown]
# ## Three steps
#
# Let all entries of q and k have mean 0 and be independent. E stands for the mean, var(q) for the variance of one entry of q.
#
# 1. One product has mean 0, because the mean of a product of independent numbers is the product of their means: $E[q_i k_i] = E[q_i]\,E[k_i] = 0$.
# 2. With mean 0, its variance is the mean of its square: $\operatorname{var}(q_i k_i) = E[q_i^2 k_i^2] = E[q_i^2]\,E[k_i^2] = \operatorname{var}(q)\,\operatorname{var}(k)$.
# 3. The variances of independent terms add up, and a score has one term for each channel:
#
# $$\operatorname{var}(q \cdot k) = \text{head\_size} \cdot \operatorname{var}(q) \cdot \operatorname{var}(k)$$
#
# Papers write $d_k$ for head_size.
#
# ## Build: measure it
#
# Draw 4000 queries and keys with 1024 channels each, and use the first 1, 2, 4, ... 1024 of them.

# %%
torch.manual_seed(0)
q, k = torch.randn(2, 4000, 1024)  # mean 0, variance 1
head_sizes = 2 ** torch.arange(11)
measured = torch.stack(
    [(q[:, :d] * k[:, :d]).sum(dim=-1).var() for d in head_sizes]
)
torch.testing.assert_close(measured, head_sizes.float(), rtol=0.1, atol=0)

# %% [markdown]
# Every measured variance is within 10 % of the formula. Multiplying the scores by a number multiplies their variance by its *square*. So the factor that brings the variance back to 1 is 1/√head_size.


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
# Twice the head_size, twice the variance. If the entries of q are twice as large, var(q) = 4, so are the scores.
#
# ## What softmax does with it
#
# From head_size 1 to head_size 100<!--given-->, the standard deviation of the scores grows tenfold.

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
# Such a softmax is called **saturated**. To see when it happens, take 1000 queries with 8 keys each, and look at two things: the entropy of a row, which is ln 8 when all keys have the same weight and 0 when one has everything; and what the largest weight leaves to the other keys. The curves show the **median**: half of the rows are below it, half above.

# %%
torch.manual_seed(0)
T = 8
q, k = torch.randn(1000, 1, 1024), torch.randn(1000, T, 1024)
q, k = q.double(), k.double()


def rows_of_weights(head_size, scale):
    products = q[..., :head_size] * k[..., :head_size]
    scores = products.sum(dim=-1) * scale  # (1000, T)
    return torch.softmax(scores, dim=-1)


unscaled = [rows_of_weights(d, 1.0) for d in head_sizes.tolist()]
scaled = [rows_of_weights(d, d**-0.5) for d in head_sizes.tolist()]


# %% tags=["folded"]
# Helpers: entropy of rows, 1 − their largest weight, medians
def entropy(weights):
    return torch.special.entr(weights).sum(dim=-1)  # entr(p) is -p ln p


def left_to_others(weights):
    return 1 - weights.amax(dim=-1)


def medians(measure, tables):
    return torch.stack([measure(weights).median() for weights in tables])


def compared(title, measure, y_label):
    curves = {
        "scores as they are": medians(measure, unscaled),
        "scores / √head_size": medians(measure, scaled),
    }
    return Lines(title, head_sizes, curves, "head_size", y_label)


# %% tags=["folded"]
# Picture: both medians over head_size
picture(
    compared("Entropy of a row", entropy, "nats"),
    compared("1 − largest weight of a row", left_to_others, "weight"),
    alt="Two pictures over head_size, both axes logarithmic. Without a "
    "scale the entropy falls towards 0, and so does what the largest "
    "weight leaves. With it, both stay where they are.",
)

# %% [markdown]
# In rows of 8 keys without a scale, the median of the largest weight is above 0.95 at head_size 64 and above 0.999 at 1024. With the scale, it stays near a third.

# %% tags=["folded"]
# Check: medians of the largest weight, without a scale and with it
for smallest, d in ((3 / 4, 16), (0.95, 64), (0.999, 1024)):
    assert rows_of_weights(d, 1.0).amax(dim=-1).median() > smallest
    assert 0.3 < rows_of_weights(d, d**-0.5).amax(dim=-1).median() < 0.4
assert medians(entropy, unscaled)[-1] < 1e-3
assert medians(entropy, scaled).min() > 1.7

# %% [markdown]
# ## The derivatives of softmax
#
# How far does a weight move when a score does? For softmax that is a matrix: entry [i, j] says how fast weight i changes with score j. With weights $p$ it is
#
# $$\frac{\partial p_i}{\partial s_j} = \begin{cases} p_i (1 - p_i) & i = j \\ -p_i\, p_j & i \neq j \end{cases}$$
#
# in short, $\operatorname{diag}(p) - p\,p^T$. Here it is for the weights 1/8, 2/8, 5/8 of rung {masked_softmax}.

# %%
p = torch.tensor([1 / 8, 2 / 8, 5 / 8])
table = p.diag() - p.outer(p)
table * 64

# %% [markdown]
# Check the corner: 1/8 · 7/8 = 7/64. Each column sums to 0: what one weight gains, others lose. The matrix of all derivatives of a function's outputs with respect to its inputs is called its **Jacobian**. PyTorch's `jacobian` computes the same. (ln p are scores whose softmax is p.)

# %%
by_torch = torch.autograd.functional.jacobian(
    lambda s: torch.softmax(s, dim=-1), p.log()
)
torch.testing.assert_close(table, by_torch)
assert table[0, 0] == (1 / 8) * (7 / 8) == 7 / 64

# %% tags=["folded"]
# Question
ask("when_one_key_has_it_all")

# %%
p = torch.tensor([0.0, 0.0, 1.0])
p.diag() - p.outer(p)

# %% [markdown]
# A small change of a score changes nothing. Backpropagation multiplies by this matrix, so almost no gradient passes through such a row to the scores, or to q and k behind them. Such gradients are called **vanishing gradients**. The values are not cut off, because their gradient does not pass through softmax. Below, key 2 has all the weight, so its value gets all the gradient.

# %%
scores = torch.tensor([0.0, 0.0, 200.0], requires_grad=True)
v = torch.ones(3, 2, requires_grad=True)
(torch.softmax(scores, dim=-1) @ v).sum().backward()
assert not scores.grad.any()
v.grad

# %% [markdown]
# Is a model that is sure of a wrong answer stuck in the same way? At the end of a model that chooses among answers there is a softmax, too. It gives each answer a probability, and one answer is right. Training makes the loss small. Here it is the **cross-entropy**: −ln of the probability of the right answer.
#
# The scores that go into this last softmax are called **logits**. The logarithm undoes the flatness of softmax, because its derivative, 1/p, cancels the factor p of the Jacobian. The gradient of the loss with respect to the logits is $p - y$, where $y$ is 1 for the right answer and 0 for the others. Below, answer 0 is right, and the model is sure of answer 2. (`F.cross_entropy` is softmax and this loss in one.)

# %%
logits = torch.tensor([0.0, 0.0, 20.0], requires_grad=True)
F.cross_entropy(logits, torch.tensor(0)).backward()
p, y = torch.softmax(logits.detach(), dim=-1), torch.tensor([1.0, 0.0, 0.0])
torch.testing.assert_close(logits.grad, p - y)
logits.grad

# %% [markdown]
# Back to the weights of a head. How quickly does the Jacobian vanish? Take its **norm**, the square root of the sum of its squared entries, for the rows from above.


# %%
def jacobian_norm(weights):
    products = weights[..., :, None] * weights[..., None, :]
    return torch.linalg.matrix_norm(weights.diag_embed() - products)


# %% tags=["folded"]
# Picture: the norm of the Jacobian over head_size
picture(
    compared("Jacobian of softmax, of a row", jacobian_norm, "norm"),
    alt="The median norm of the Jacobian over head_size, both axes "
    "logarithmic. Without a scale it falls below a hundred-thousandth. "
    "With it, it stays the same.",
)

# %% [markdown]
# That is the median, the norm in a typical row. The gradients of many queries add up, so their mean norm matters as well.

# %%
for d in (1, 64, 256, 1024):
    norms = jacobian_norm(rows_of_weights(d, 1.0))
    both = f"median {norms.median():.4f}, mean {norms.mean():.2f}"
    print(f"head_size {d:4}: {both}")

# %% [markdown]
# Without a scale, at head_size 64 the median is below 0.1, and at 1024 it is practically 0. The mean falls much more slowly, about like 1/√head_size: from 256 to 1024, with four times as many channels, it about halves. At 1024 nearly all of it comes from a fifth of the rows, those in which two scores nearly tie, because there a small change of the scores still moves the weights.
#
# (This is the Jacobian alone. Without a scale the factor 1/√head_size is missing from the gradient as well, so on average the gradient of q and k does not fall; in a typical row it does.)

# %% tags=["folded"]
# Check: median and mean fall without a scale, and the median stays with it
norms = {d: jacobian_norm(rows_of_weights(d, 1.0)) for d in (64, 256, 1024)}
for d, largest in ((64, 0.1), (1024, 1e-5)):
    assert norms[d].median() < largest
assert 0.4 < norms[1024].mean() / norms[256].mean() < 0.65
fifth = norms[1024].sort().values[-200:].sum()
assert fifth > 0.9 * norms[1024].sum()
assert medians(jacobian_norm, scaled).min() > 0.3

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
# ## What the scale promises
#
# The formula needs the variances of q and k, and these need not be 1. Say that tokens of 4 channels and the matrices for q and k are all drawn by `torch.randn`, with head_size 4. Then each entry of q and k is a sum of 4 products, and has variance 4.

# %% tags=["folded"]
# Question
ask("wide_queries")

# %% [markdown]
# Here are 20,000 such queries and as many keys, each from a token and a matrix of its own, so that the mean is over both. The entries of one q come from the same token, so they are not independent. But they are **uncorrelated**: the mean of $q_i q_j$ is 0 for $i \neq j$. Then the terms $q_i k_i$ are uncorrelated too, and that is enough for their variances to add up.

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
# By the formula the scores have variance 4 · 4 · 4. Dividing them by √4 leaves {{predicted[2]:.0f}}. It takes a division by 8 to get to {{predicted[3]:.0f}}.
#
# With the linear layers of rung {query_key_value} it is the other way round. How parameters are drawn before training is their **initialization**. That of `nn.Linear` has variance 1/(3 · n_embd), so for tokens of variance 1, q and k have variance 1/3 at first, and scaled scores 1/9, whatever head_size is. So an untrained head takes almost the plain mean.

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
# So the scale promises the same variance for every head_size, and no saturation *at initialization*, if q and k are random then, with a variance near 1 or less. It promises nothing about later. Here eight queries learn to find one key each, with the scale in place. `nn.Parameter` marks a tensor that training may change. `loss.backward()` computes the gradient of the loss and adds it to `.grad`, which `zero_grad()` has cleared. Then the **optimizer**, here one called Adam, changes each entry by a small step that should lower the loss.

# %%
torch.manual_seed(0)
q, k = nn.Parameter(torch.randn(8, 16)), nn.Parameter(torch.randn(8, 16))
wanted = torch.arange(8).roll(1)  # query t is to find key t - 1
optimizer = torch.optim.Adam([q, k], lr=0.05)
variance_at_start = (q @ k.T * 16**-0.5).var().item()
for _ in range(200):
    scores = q @ k.T * 16**-0.5
    loss = F.cross_entropy(scores, wanted)  # -ln of the wanted key's weight
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"variance {variance_at_start:.1f} before, {scores.var():.1f} after")

# %% tags=["folded"]
# Check: the variances before and after; what cosines allow
assert loss < 0.01
assert variance_at_start < 1
assert scores.var() > 10
assert q.var() > 2
assert k.var() > 2
assert scores.var() > 1.5 * q.var() * k.var()  # the formula says 1 times
cosines = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).T
assert cosines.abs().max() <= 1 + 1e-6
# one cosine of 1, all others -1
assert math.e / (math.e + 127 / math.e) < 0.06

# %% [markdown]
# The variance of the scores began below 1 and ended above 10. To give one key nearly all the weight, scores must be far apart, and training made q and k longer for that. It also made them depend on each other, and then the formula does not hold.
#
# **QK-norm** (Henry et al. 2020) takes the lengths of q and k out of the score: it divides each q and each k by its own length, and multiplies the scores by one learned number instead of 1/√head_size. Then the dot product is the cosine of an angle, from −1 to 1, however long q and k become. How sharp softmax can get is bounded by the learned number, and that number has no bound. Without it, beside 127 others no key could get even 6 % of the weight: at best, e / (e + 127/e).
#
# ## The same lesson at the other end
#
# A language model ends in a softmax over its vocabulary, the V tokens that it knows. Say these are 87 characters. The simplest guess gives each character the probability 1/V, so its loss, −ln of the probability of the true one, is ln V. Such a simple method, which any model has to beat, is a **baseline**. A model that has learned nothing should be no worse.

# %% tags=["folded"]
# Question
ask("loss_of_random_logits")

# %% [markdown]
# Logits that come straight from an `nn.Embedding` are such random numbers before training, because its initialization has mean 0 and variance 1.

# %%
torch.manual_seed(0)
logits = torch.randn(20_000, 87)
characters = torch.randint(87, (20_000,))
loss = F.cross_entropy(logits, characters)
predicted = math.log(87) + 1 / 2
print(f"ln 87 {math.log(87):.3f}")
print(f"measured {loss:.2f}, predicted {predicted:.2f}")

# %% [markdown]
# The loss is the logarithm of the sum of all exponentials, minus the true logit, which is 0 on average. For a normally distributed $z$ with mean 0 and variance $v$, the mean of $e^z$ is $e^{v/2}$. So the sum is about $87\,e^{1/2}$, and its logarithm ln 87 + 1/2 = {{predicted:.2f}}. (We measured a little less, because the sum varies from row to row.)
#
# Small logits remove the 1/2. With a standard deviation of 0.02 the loss begins at ln 87. It is the same lesson at both ends: a softmax that has learned nothing should not be sure of anything, and the variance of its input determines how sure it is.

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
# ## Prove
#
# Measured variance equals the formula, for several variances of q and k, sizes and scales.

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

# %% [markdown]
# And `attention_weights` multiplies by 1/√head_size by default. The factor may be applied anywhere before the softmax: to the scores, or to q alone.

# %%
q, k, v = torch.randn(3, 4, 8, 16)
weights = attention_weights(q, k)
torch.testing.assert_close(weights, attention_weights(q / 4, k, scale=1.0))
torch.testing.assert_close(
    weights @ v, F.scaled_dot_product_attention(q, k, v)
)

# %% [markdown]
# ## Explore
#
# **At which head_size does one key begin to get all the weight? And what brings the others back?**
#
# Drag head_size to the right with the scale on "none": the scores spread out, and in this row sooner or later one key gets nearly all the weight. Then the Jacobian is close to 0. Try other rows, too. Now press "1/√head_size". Then try the other two scales at both ends of head_size (n_embd is 64 here).
#
# The dashed curve is a normal density with the variance that the formula predicts. The scores approach it as head_size grows; at small head_size they are more peaked.

# %% tags=["folded"]
# Explorer: scores, weights and Jacobian over head_size
explore("scaling_variance")

# %% [markdown]
# Where one key takes over depends on the row. Some rows collapse early, some not even at 64, and many change their favourite on the way, because every new channel changes all six scores. These eight rows are the first that were drawn. To see what is usual, count over 4,000 rows of six keys: in how many does one key have more than 0.95 of the weight?

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
# Without a scale, at head_size 16 that happens in more than a fifth of the rows, and at 64 in more than half. 1/√head_size brings the others back in nearly every row. (Row 6 is an exception at head_size 64: there one key keeps most of the weight.) 1/head_size is right at head_size 1 only. Then it goes further and further too far: at 64 the weights are nearly those of the plain mean again. 1/√n_embd is right at one head_size only, 64, where the two are the same number.
#
# ## Break it
#
# This bug is easy to write. This is how attention weights are computed in Andrej Karpathy's lecture [Let's build GPT: from scratch, in code, spelled out](https://www.youtube.com/watch?v=kCc8FmEb1nY), rewritten with our names; [the code beside it](https://github.com/karpathy/ng-video-lecture) has since been fixed. The model has n_embd = 384 and six heads (rung {multi_head}) of head_size 64. It runs.


# %%
def lecture_weights(x, query, key):
    _, T, C = x.shape
    q, k = query(x), key(x)
    mask = torch.ones(T, T, dtype=torch.bool).tril()
    scores = q @ k.transpose(-2, -1) * C**-0.5
    scores = scores.masked_fill(~mask, float("-inf"))
    return torch.softmax(scores, dim=-1)


# %% [markdown]
# `query` and `key` are linear layers from 384 to 64 channels, drawn so that q and k have variance 1. The shape is right, the rows sum to 1, and the leak probe finds no leak. The last query of a sequence sees 32 keys. This is the mean entropy of its weights, beside the one that we want and the largest possible one.

# %%
torch.manual_seed(0)
query, key = nn.Linear(384, 64, bias=False), nn.Linear(384, 64, bias=False)
for layer in (query, key):
    nn.init.normal_(layer.weight, std=384**-0.5)
x = torch.randn(16, 32, 384)
weights = lecture_weights(x, query, key)
mask = torch.ones(32, 32, dtype=torch.bool).tril()
wanted = attention_weights(query(x), key(x), mask)
for name, table in (("lecture", weights), ("wanted", wanted)):
    print(f"{name:8} {entropy(table[:, -1]).mean():.1f}")
print(f"{'ln 32':8} {math.log(32):.1f}")

# %% tags=["folded"]
# Check: shape, sums of rows, no leak
assert weights.shape == (16, 32, 32)
torch.testing.assert_close(weights.sum(dim=-1), torch.ones(16, 32))
assert (
    not leak_probe(lambda x: lecture_weights(x, query, key) @ x, x)
    .triu(1)
    .any()
)

# %% tags=["folded"]
# Question
ask("find_the_odd_line")

# %% [markdown]
# The scale is `C**-0.5`, and C is n_embd, the size of a token. A score is a sum of head_size products, so the scale has to be `head_size**-0.5`. Here C is six times head_size: the scores have a sixth of the intended variance. The weights are a little too even, which no shape and no sum shows.
#
# Two checks catch it. One compares the output with that of PyTorch's function, as in rung {query_key_value}. The other needs nothing to compare with: use q and k of variance 1, and measure the variance of the scores.

# %%
by_torch = F.scaled_dot_product_attention(
    query(x), key(x), x, attn_mask=mask
)
difference = (weights @ x - by_torch).abs().max()
assert difference > 0.5
print(f"largest difference from PyTorch's output: {difference:.1f}")

scores = query(x) @ key(x).transpose(-2, -1)
for size, wanted_variance in ((384, 1 / 6), (64, 1.0)):
    variance = (scores * size**-0.5).var().item()
    torch.testing.assert_close(variance, wanted_variance, rtol=0.1, atol=0)
    print(f"scaled by {size}**-0.5: variance {variance:.2f}")

# %% [markdown]
# A trained model need not show it either: training can make q √6 times as long, and that gives the weights that were wanted.

# %% tags=["folded"]
# Check: a longer q gives the wanted weights
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
# ## In the wild
#
# - "Attention Is All You Need" (Vaswani et al. 2017, section 3.2.1) divides by √d_k, and gives the formula in a footnote. The authors suspect the reason that we measured: for large scores the derivatives of softmax are extremely small.
# - The paper uses one table for the embeddings and for the logits (section 3.4). A logit is a dot product with a row of this table, so for variance 1 the entries need variance 1/n_embd. As embeddings they would be tiny beside the sines and cosines. There the paper multiplies the table by √d_model; it does not say why.
# - `F.scaled_dot_product_attention` has a parameter `scale`, which works as ours does.
# - In μP (Yang et al. 2022), a way to tune hyperparameters on a small model for a large one, the factor is 1/head_size up to a constant: *trained* q and k point in related directions, and their dot product grows like head_size, not like its root.
#
# ## Three sentences to remember
#
# 1. The variance of a score is head_size · var(q) · var(k), so dividing by √head_size keeps it the same for every head_size.
# 2. Large scores saturate softmax: in many rows one key gets nearly all the weight, and almost no gradient passes through such a row to q and k.
# 3. A wrong scale raises no error and changes no shape, so measure the variance.
#
# Next: [rung {cross_and_causal}, cross and causal]({cross_and_causal}.ipynb), where the mask determines the kind of attention.
#
# <!--neighbours-->
