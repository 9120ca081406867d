# %% [markdown]
# # Rung {looking_inside}: looking inside
#
# <!--ladder-->
#
# **You will build** tools that look into a running model, and the tests that tell you whether to believe what they show.
#
# In rung {a_real_model} you loaded SmolLM2 and let your own attention run inside it. It writes English, but you can't say why it writes *this* word, because nobody programmed it to. So let's find the parts that do it.

# %% tags=["hero", "folded"]
# The opening picture: guess first, then point at one of 270 heads
from attention_course.heroes import hero

hero("looking_inside")

# %% [markdown]
# **You need** [rung {a_real_model}]({a_real_model}.ipynb), whose model we open, and [rung {bigram_to_gpt}]({bigram_to_gpt}.ipynb) for the residual stream.
#
# <!--time-->

# %% tags=["folded"]
# Question
from attention_course.questions import ask

ask("where_to_look_for_the_answer")

# %% [markdown]
# ![The transformer as a drawing. Highlighted are the parts that this rung looks into: query and key, softmax, weights times values, all heads, the additions, logits.](images/transformer_looking_inside.svg)
#
# ## It answers
#
# The next cell loads the model, and downloads 93 MB if you skipped rung {a_real_model}. Without a network each cell that needs the model says what it would have shown.

# %% tags=["folded"]
# Imports
import random
from collections import Counter, namedtuple

import torch
import torch.nn.functional as F

from attention_course.attention import attention, causal_mask, window_mask
from attention_course.exercises import check
from attention_course.explorers import explore
from attention_course.fills import fill
from attention_course.heads import (
    HEAD_TARGETS,
    ablate,
    attention_by,
    head_scores,
    read_weights,
)
from attention_course.plots import Bars, Heatmap, Lines, picture
from attention_course.progress import progress
from attention_course.smollm import load_smollm, skip_cells
from attention_course.stories import stories_entropy, write_stories
from attention_course.text import load_text

torch.set_printoptions(precision=3, sci_mode=False)

progress("looking_inside")

# %% tags=["name:fetch", "long"]
try:
    model, tokenizer = load_smollm()
    model.requires_grad_(False)  # we look, and train nothing
except OSError as error:
    print(error)
    skip_cells("# With SmolLM2:")

# %% [markdown]
# SmolLM2 has never read one of our stories, so does it know who got the drum?

# %% tags=["do"]
# With SmolLM2: " Sam" gets 0.4, and " Ben", who gave the drum, 0.3.
asked = "Kind Ben gave poor Sam a drum at the farm. Who got it? Poor"
logits = model(tokenizer.encode(asked)[None])[0, -1]
shares, ids = logits.softmax(dim=-1).topk(4)
for share, i in zip(shares, ids):
    print(f"{tokenizer.decode(i[None])!r:8} {share:.1f}")

# %% [markdown]
# It says Sam, and Ben comes second. Try your own names, then put ours back, because later cells need them.
#
# How much can it learn from what it reads? Give it story after story in one long text, and look at its loss on each. A falling loss alone won't tell you what it learned, so we need something to compare it with. Imagine a reader who knows which words occur and how often, but nothing about their order. A word costs this reader the entropy of those frequencies, on average.


# %% tags=["folded"]
# Helper: the loss of a reader who knows nothing but the words
text = write_stories(seed=3, characters=1500)
stories = text.splitlines()
long_text = write_stories()
counts = Counter(long_text.split())
word_shares = torch.tensor(list(counts.values())) / counts.total()
nats_per_word = -(word_shares * word_shares.log()).sum().item()
words_only = nats_per_word * counts.total() / len(long_text)
print(f"{nats_per_word:.2f} nats per word")
print(f"{words_only:.2f} nats per character")

# %% tags=["folded"]
# Question
ask("what_would_prove_it")


# %% tags=["folded"]
# With SmolLM2: story 1 costs 1.3 nats per character, later ones 0.3.
def loss_by_story(stories):
    pieces = [tokenizer.encode(story + "\n") for story in stories]
    ids = torch.cat(pieces)
    losses = F.cross_entropy(
        model(ids[None, :-1])[0], ids[1:], reduction="none"
    )
    losses = F.pad(losses, (1, 0))  # nothing predicts the first token
    by_story = losses.split([len(piece) for piece in pieces])
    totals = torch.stack([each.sum() for each in by_story])
    return totals / torch.tensor([len(story) + 1 for story in stories])


in_order = loss_by_story(stories)
first, later = in_order[0].item(), in_order[7:].mean().item()
print(f"story 1: {first:.1f}, from story 8 on: {later:.1f}")
assert in_order[7:].max() < words_only - 0.2

# %% tags=["folded"]
# With SmolLM2: the loss falls story by story, but not to the entropy.
picture(
    Lines(
        "SmolLM2 reads our stories",
        torch.arange(1, len(stories) + 1),
        {"its loss": in_order},
        "story",
        "nats per character",
        log=False,
        levels={
            "entropy": stories_entropy(text),
            "the words alone": words_only,
        },
    ),
    alt="Loss per character for each story. It begins above the level of "
    "a reader who knows only the words, falls below that level within a "
    "few stories, and stays above the entropy of the grammar.",
)

# %% [markdown]
# Within a few stories the loss falls far below {{words_only:.1f}}, the price of the words alone, so the model knows something about their order (though some of that may be English, which it knew before). And yet not one parameter has changed. It learned from its context, which is called **in-context learning**.
#
# ### More: the same stories with their words in random order
#
# What can it do with the words alone? Shuffle the words within each story.

# %%
# With SmolLM2: in random order, later stories cost 1.4 nats per character.
shuffle = random.Random(0).sample
mixed = loss_by_story(
    [" ".join(shuffle(s.split(), len(s.split()))) for s in stories]
)
print(f"story 1: {mixed[0]:.1f}, from story 8 on: {mixed[7:].mean():.1f}")
assert mixed[7:].min() > words_only

# %% [markdown]
# The loss falls here too, and by about as much, so most of what the model learned may be the words themselves. It stays above the level of the words, since nobody can foresee a random order. (Even story 1 costs more than it did in its own order, because the model already knew how English orders its words.)
#
# ## 270 heads
#
# SmolLM2 has 30 layers of 9 heads, and we write `18.6` for head 6 of layer 18, counted from 0. How does a model learn from its context? To help continue a story, a head has to find an earlier place like this one and look at what came next. A head that does this is called an induction head (rung {bigram_to_gpt}). For three tokens written twice, here is where it should look.

# %%
a_b_c = torch.tensor([5, 6, 7, 5, 6, 7])
targets = HEAD_TARGETS["induction"](a_b_c)  # a row for each query
targets.int()

# %% [markdown]
# In row 3 the query is the second 5. The first 5 was followed by the 6 in column 1, so that's its target. A head's score is the weight that it puts on its targets, averaged over the queries that have one. Here are the weights of a head that looks at every token equally.

# %%
weights = causal_mask(6) / torch.arange(1, 7)[:, None]

# %% tags=["folded"]
# Fill in: the score of a head
fill("score_of_a_head")

# %% tags=["folded", "name:score_of_a_head"]
# The score of a head
on_targets = (weights * targets).sum(dim=-1)  # for each query
has_target = targets.any(dim=-1)
score = on_targets[has_target].mean()

# %% [markdown]
# Now we need the weights of all 270<!--given--> heads. In rung {a_real_model} your attention ran in every layer, so let it also take notes. The loop below is the model's own forward pass, and we keep the residual stream after each layer.

# %%
Notes = namedtuple("Notes", "q k v output weights")


def walk(ids, off=()):  # ids (B, T)
    notes = []

    def take_notes(q, k, v, mask):
        output, weights = attention(q, k, v, mask)
        notes.append(Notes(q, k, v, output, weights))
        return output, weights

    with attention_by(model, take_notes), ablate(model, off):
        stream = [model.transformer.wte(ids)]
        for block in model.transformer.h:
            stream.append(block(stream[-1], is_causal=True))
    return torch.stack(stream), notes  # (31, B, T, C), 30 notes


# %% tags=["folded", "proof"]
# With SmolLM2: the walk arrives at the model's own logits.
ids = tokenizer.encode(asked)[None]
stream, notes = walk(ids)
own = model.lm_head(model.transformer.ln_f(stream[-1]))
torch.testing.assert_close(own, model(ids), atol=1e-3, rtol=0)

# %% [markdown]
# For a clean test, draw 30 words at random and write them twice. In the second copy, a head can find out what comes next only from the first. We choose heads on four such texts, and keep four others to test them on, because with 270<!--given--> heads to choose from, some will look good by luck. Raise the 2 and the 4 below to list more heads, and see where the scores drop.


# %% tags=["folded"]
# With SmolLM2: thirty words drawn at random, written twice, eight times.
def is_word(text):
    letters = text[1:]
    return text[0] == " " and letters.isascii() and letters.isalpha()


common = [
    i
    for i in range(300, 6000)
    if is_word(word := tokenizer.decode(torch.tensor([i])))
    and len(word) > 4
]
n = 30


def words_twice(seed):
    order = torch.randperm(
        len(common), generator=torch.Generator().manual_seed(seed)
    )
    return torch.tensor(common)[order[:n]].repeat(2)


texts = torch.stack([words_twice(seed) for seed in range(4)])
new_texts = torch.stack([words_twice(seed) for seed in range(4, 8)])
print(tokenizer.decode(texts[0, :8]), "...")


# %% tags=["do", "long"]
# With SmolLM2: previous token 11.1 and 16.0; induction 18.6, 17.4, 17.3.
def scores_of(notes, ids):  # of texts that repeat at the same places
    weights = torch.stack([note.weights for note in notes])
    return {
        job: head_scores(weights, targets(ids[0])).mean(dim=1)
        for job, targets in HEAD_TARGETS.items()
    }


def best(score, n):
    return [divmod(i, 9) for i in score.flatten().topk(n).indices.tolist()]


def name(head):
    return f"{head[0]}.{head[1]}"


old_stream, old_notes = walk(texts)
new_stream, new_notes = walk(new_texts)
scores = scores_of(old_notes, texts)
new_scores = scores_of(new_notes, new_texts)
print("head: its score where we chose it, and on new texts")
for job, many in (("previous token", 2), ("induction", 4)):
    for head in best(scores[job], many):
        was, new = scores[job][head].item(), new_scores[job][head].item()
        print(f"{job:14} {name(head)}: {was:.1f}, {new:.1f}")

# %% tags=["folded"]
# With SmolLM2: three maps of 30 layers by 9 heads.
finders = best(scores["induction"], 4)
assert set(best(scores["previous token"], 2)) == {(16, 0), (11, 1)}
assert set(finders) == {(17, 3), (17, 4), (17, 5), (18, 6)}
assert min(new_scores["induction"][head] for head in finders) > 0.6
picture(
    *(
        Heatmap(job, score, "layer", "head", limit=1)
        for job, score in scores.items()
    ),
    alt="Three maps of 30 layers by 9 heads. Previous token: a handful of "
    "strong heads, among them one each in layers 11 and 16. Induction: "
    "a few, most of them in layers 17 and 18. First token: most heads of "
    "layers 3 to 9, and many from layer 12 on.",
)

# %% [markdown]
# The scores hold up on texts that had no part in the choice, so these four look where an induction head should. Let's call them the finders. (The third map is strange, because so much weight lies on the *first* token. We'll come to that.)
#
# But a head that always looks 29 words back would score just as high, so test them on our story. How much of their weight do the four give to Sam when the last “Poor” is the query? Then try a word other than Sam.

# %% tags=["do"]
# With SmolLM2: the four heads put 0.8 to 1.0 of their weight on " Sam".
place = ids[0].tolist().index(tokenizer.encode(" Sam").item())
for layer, head in finders:
    weight = notes[layer].weights[0, head, -1, place].item()
    print(f"{layer}.{head} {weight:.1f}")
    assert place != 4 or weight > 0.7

# %% [markdown]
# You've found heads that look at the answer, but does the model *use* what they find?
#
# ### More: a head that looks at the right answer need not have read the question
#
# Two facts, and a question about one of them. What do induction heads look at from the last “the”?

# %%
# With SmolLM2: 17.4 puts 0.9 of its weight on "mill", for either question.
tom = "Tom lost his key at the mill."
anna = "Anna found a coin at the bridge."
sentence = f"{tom} {anna} Where did Tom lose his key? At the"
for text in (
    sentence,
    f"{tom} {anna} Where did Anna find a coin? At the",
    f"{anna} {tom} Where did Tom lose his key? At the",
):
    read = tokenizer.encode(text)
    row = read_weights(model, read)[17, 4, -1]
    for word in (" mill", " bridge"):
        at = read.tolist().index(tokenizer.encode(word).item())
        print(f"{word} {row[at]:.1f}", end="  ")
    print()

# %% [markdown]
# It looks at “mill” whatever we ask, so it doesn't answer the question. Both words follow “at the”. Change the question before you believe that a head has understood it.
#
# ## Break it: take a head away
#
# An ablation can tell you (rung {cross_and_causal}). You set the output of a head to 0, and measure how much the loss rises. First, what's the loss on the four new texts with all heads in place?


# %% tags=["folded"]
# With SmolLM2: the first copy costs 11.2 nats per word, the second 2.1.
def onward(x, layer, keep=slice(None)):  # from the stream before a layer
    for block in model.transformer.h[layer:]:
        x = block(x, is_causal=True)
    return model.lm_head(model.transformer.ln_f(x[:, keep]))


def loss_of(x, layer, keep):
    logits = onward(x, layer, keep)
    answers = new_texts[:, keep.start + 1 : keep.stop + 1]
    return F.cross_entropy(logits.transpose(1, 2), answers).item()


# query n - 1 predicts the first word of the second copy: nothing tells
first_copy, second_copy = slice(0, n - 1), slice(n, 2 * n - 1)
whole = loss_of(new_stream[-1], 30, second_copy)
print(f"first copy  {loss_of(new_stream[-1], 30, first_copy):.1f}")
print(f"second copy {whole:.1f}")

# %% [markdown]
# Nobody can foresee a random word, but the second copy costs far less, because there the model can look it up. Which heads does it need for that? Start with the two that put nine tenths of their weight on the previous token, because they look so much alike.

# %% tags=["folded"]
# Question
ask("two_heads_that_look_back")


# %% tags=["do", "nbval-ignore-output", "long"]
# With SmolLM2: without 16.0 +3.8, without 11.1 +0.0, without 18.6 +1.7.
def cost_of(off):
    start = min(layer for layer, _ in off)  # below it nothing changes
    with ablate(model, off):
        return loss_of(new_stream[start], start, second_copy) - whole


cost = {
    "16.0": cost_of([(16, 0)]),
    "11.1": cost_of([(11, 1)]),
    "both": cost_of([(16, 0), (11, 1)]),
    "18.6": cost_of([(18, 6)]),
    "induction": cost_of(finders),
}
for off, added in cost.items():
    print(f"without {off}: {added:+.1f}")

# %% [markdown]
# `11.1` looks at the right place, but this task can do without it. It doesn't even stand in for `16.0`, because without both the cost is about the same.
#
# Is a nat or two a lot? You can only tell by comparison, so take away heads drawn at random from the layers around them, 15 to 19. (Change the seed if you want to draw others.)

# %% tags=["do", "nbval-ignore-output", "long:20"]
# With SmolLM2: the worst of 20 random heads costs 1.0, of 5 fours 1.4.
controls = 20
named = {(16, 0), *finders}
others = [
    (layer, head) for layer in (15, 16, 17, 18, 19) for head in range(9)
]
others = [head for head in others if head not in named]
order = torch.randperm(
    len(others), generator=torch.Generator().manual_seed(0)
)
drawn = [others[i] for i in order][:controls]
singles = torch.tensor([cost_of([head]) for head in drawn])
fours = [drawn[i : i + 4] for i in range(0, controls, 4)]
sets = torch.tensor([cost_of(off) for off in fours])
print(f"heads: median {singles.median():+.1f}, worst {singles.max():+.1f}")
print(f"sets of four: worst {sets.max():+.1f}")
print(f"the costliest head: {name(drawn[singles.argmax()])}")

# %% tags=["folded", "given"]
# With SmolLM2: the costs of named heads, beside the largest controls.
bars = cost | {"worst of 20": singles.max(), "worst of sets": sets.max()}
picture(
    Bars(
        "Added loss",
        torch.tensor(list(bars.values())),
        list(bars),
        "heads taken away",
        (-0.5, 5),
    ),
    alt="Bars: added loss. The largest are 16.0, alone or with 11.1, and "
    "the four induction heads together, then 18.6, then the worst random "
    "set and the worst random head. 11.1 adds almost nothing.",
)

# %% tags=["folded", "long"]
# With SmolLM2: 16.0 and the induction heads cost more than any control.
assert abs(cost["both"] - cost["16.0"]) < 0.5
assert cost["16.0"] > singles.max() + 1
assert cost["induction"] > sets.max() + 1
assert abs(cost["11.1"]) < 0.3
assert cost["18.6"] > singles.max() + 0.3
assert singles.max() > 0.7

# %% [markdown]
# It is a lot. None of these random heads costs as much as `16.0` or `18.6`, and none of the five sets of four as much as the finders. The map isn't complete, though, because one random head costs about a nat, and no score of ours names it.
#
# ### More: what in-context learning loses without it
#
# These costs are for one task only. How much more do the later stories cost without `16.0`? The controls are `11.1` and two of the heads drawn at random.

# %% tags=["nbval-ignore-output", "long"]
# With SmolLM2: without 16.0, later stories cost 0.1 nats more.
added = {}
for head in ((16, 0), (11, 1), *drawn[:2]):
    with ablate(model, [head]):
        by_story = loss_by_story(stories)
    added[name(head)] = (by_story - in_order)[7:].mean().item()
print({head: round(more, 2) for head, more in added.items()})
needed, *rest = added.values()
assert max(map(abs, rest)) < needed / 2

# %% [markdown]
# So `16.0` plays only a small part in this in-context learning, because the later stories still cost far less than story 1 did.
#
# ## Why does it look there?
#
# Without `16.0`, which only looks one token back, the second copy costs {{cost["16.0"]:.1f}} nats more. What use is it to an *induction* head?
#
# Think of the last “Poor”. Its query has to match the key at Sam, but nothing in the word Sam says that “poor” came before it. Some part of the model must have written it there. But which?
#
# The stream is the sum of what all the parts have written, so you can make keys from one part alone, and see how far they put the right word ahead of the others.

# %% tags=["folded"]
# Question
ask("who_wrote_the_key")


# %% tags=["folded"]
# Helper: how far the keys made from one part put the right word ahead
def columns_of(layer, head):  # of the output projection
    W = model.transformer.h[layer].attn.c_proj.weight
    head_size = W.shape[1] // 9
    return W[:, head * head_size : (head + 1) * head_size]


def wrote(notes, layer, head):  # into the stream, (B, T, C)
    return notes[layer].output[:, head] @ columns_of(layer, head).T


def lead_of_target(scores):  # (B, n - 1, n): over the other words
    right = scores.diagonal(1, dim1=-2, dim2=-1)
    return (right - (scores.sum(dim=-1) - right) / (n - 1)).mean().item()


def lead_in_keys(part, layer, head):
    block = model.transformer.h[layer]
    x = new_stream[layer]
    size = (x.square().mean(dim=-1, keepdim=True) + 1e-5).rsqrt()
    # the rows are those of 9 queries, 3 keys and 3 values, one for 3 heads
    W_key = block.attn.c_attn.weight.unflatten(0, (15, -1))[9 + head // 3]
    key = block.attn.rotary(part * size * block.ln_1.weight @ W_key.T)
    scores = new_notes[layer].q[:, head] @ key.transpose(-2, -1)
    return lead_of_target(scores[:, n:-1, :n] * len(W_key) ** -0.5)


# %%
# With SmolLM2: 16.0 wrote nearly all of what 17.3 matches.
parts = {
    "the word": new_stream[0],
    "16.0": wrote(new_notes, 16, 0),
    "11.1": wrote(new_notes, 11, 1),
}
parts["all others"] = new_stream[17] - sum(parts.values())
lead = {name: lead_in_keys(part, 17, 3) for name, part in parts.items()}
for part, size in lead.items():
    print(f"{part:10} {size:+5.1f}")

# %% [markdown]
# Nearly the whole lead comes from `16.0`. At every word, `16.0` has left a note that says which word came before, and the query of `17.3` asks for that note. When one head reads in its keys what another has written, that's called **K-composition**, with a K for key (Elhage et al. 2021).
#
# But does `17.3` need the note? First guess what's left of its score without `16.0`, and without `11.1`.


# %% tags=["do", "long"]
# With SmolLM2: what is left of two scores without 16.0, without 11.1.
found = {"with all heads": new_scores["induction"]}
for head in ((16, 0), (11, 1)):
    without = scores_of(walk(new_texts, [head])[1], new_texts)
    found[f"without {name(head)}"] = without["induction"]
for told, score in found.items():
    print(f"{told:14} 17.3 {score[17, 3]:.1f}, 18.6 {score[18, 6]:.1f}")

# %% tags=["folded", "long"]
# With SmolLM2: these heads depend on 16.0, and not on 11.1.
intact, blind, control = found.values()
assert blind[17, 3] < 0.1 < 0.7 < control[17, 3]
assert blind[18, 6] < 0.5 * intact[18, 6]
assert lead["16.0"] > 3 * max(lead["the word"], lead["11.1"])
assert abs(sum(lead.values()) - lead_in_keys(new_stream[17], 17, 3)) < 1e-2

# %% [markdown]
# Without `16.0`, head `17.3` finds nothing, and without `11.1` nothing changes. (`18.6` keeps a third of its score, so it has another source.)
#
# ## What would it say now?
#
# The stream grows layer by layer, and only its last state is turned into logits. But you can turn any state into logits, with the final norm and the output matrix, and see what the model would say if it stopped there. This is the **logit lens** (nostalgebraist 2020<!--given-->).

# %%
# With SmolLM2: the stream at the last "Poor", and what reads it.
x = stream[:, 0, -1]  # (31, C), from the embedding to the end
scale = model.transformer.ln_f.weight  # of the final RMSNorm, (C,)
W_vocab = model.lm_head.weight  # (V, C), a row for each token

# %% tags=["folded"]
# Fill in: the final norm and the logits, at every layer
fill("what_it_would_say")

# %% tags=["folded", "name:what_it_would_say"]
# With SmolLM2: the logit lens
mean_square = x.square().mean(dim=-1, keepdim=True)
normed = x / (mean_square + 1e-5).sqrt() * scale
logits = normed @ W_vocab.T  # (31, V)

# %% tags=["nbval-ignore-output"]
# With SmolLM2: " Sam" comes first after 29 layers, and not before.
sam = tokenizer.encode(" Sam").item()
for layer in (0, 10, 20, 23, 24, 28, 29, 30):
    says = tokenizer.decode(logits[layer].argmax()[None])
    rank = (logits[layer] > logits[layer, sam]).sum().item()
    print(f"after {layer:2} layers {says!r:8} Sam is number {rank + 1}")
    assert rank > 100 if layer < 24 else rank < 500
    assert (rank == 0) == (layer > 28)

# %% [markdown]
# After 20 layers Sam is still far down the list, although your four finders have looked at him by then. But the lens may be blind there, because a layer doesn't have to write in words that the output matrix understands. So this time, change the stream instead of reading it.
#
# ## Swap it
#
# Take two stories that differ in one word, Sam or Tom. After some layer, replace the stream at *one place* of Sam's story with the stream of Tom's, and let the rest of the model run. If it now answers Tom, then whatever decides the answer was at this place after this layer. The method is called **activation patching**.

# %% tags=["folded"]
# Question
ask("when_the_name_moves")

# %% tags=["do", "long"]
# With SmolLM2: before layer 23 the name's place decides, then "Poor" does.
names = ["Sam", "Tom", "Ann", "Dan"]  # each gets its neighbour's stream
layers = [0, 8, 16, 18, 20, 22, 23, 24, 25, 27, 30]
places = {"the name": 4, "a drum": 6, "Poor": -1}


def run_names(names):
    told = [asked.replace("Sam", each) for each in names]
    ids = torch.stack([tokenizer.encode(each) for each in told])
    return walk(ids)[0], ids[:, 4]  # the stream, and the names as ids


def swapped(stream, name_ids, layer, place):
    x = stream[layer].clone()
    x[:, place] = stream[layer].roll(1, dims=0)[:, place]
    logits = onward(x, layer, [-1])[:, 0]  # (B, V)
    rows = torch.arange(len(x))
    lead = logits[rows, name_ids.roll(1)] - logits[rows, name_ids]
    return lead.mean().item()  # of the other story's name


run_1 = run_names(names)
leads = {
    told: torch.tensor([swapped(*run_1, layer, at) for layer in layers])
    for told, at in places.items()
}

# %% tags=["folded"]
# With SmolLM2: the answer crosses over between layers 23 and 24.
picture(
    Lines(
        "Whose name wins?",
        torch.tensor(layers),
        leads,
        "layers before the swap",
        "lead of the other story's name",
        log=False,
    ),
    alt="Three curves over the number of layers before the swap. Swapped "
    "at the name, the other story's name leads clearly up to 23 layers, "
    "and falls far behind at 24. Swapped at the last word it is the "
    "reverse. Swapped at drum, nothing ever changes.",
)

# %% [markdown]
# See how sharp this is. For 23 layers the answer sits where the name is. One layer later most of it has moved to “Poor”, nine words further on. (Swapped at “drum”, the control, nothing changes.) You found layer 23 with four names, so try it with four others.

# %% tags=["long"]
# With SmolLM2: for four other names the answer moves in the same layer.
run_2 = run_names(["Eve", "Kim", "Ted", "Jim"])
for layer in (22, 23, 24, 25):
    at_name, at_poor = (swapped(*run_2, layer, at) for at in (4, -1))
    print(f"{layer} layers: name {at_name:+5.1f}, Poor {at_poor:+5.1f}")
    assert (at_name > 2) == (at_poor < -2) == (layer < 24)

# %% [markdown]
# But your finders are in layers 17 and 18. They put nearly all of their weight on Sam, and yet they hardly moved the name. So what do they write?
#
# ## What a head writes
#
# A head has two jobs. Its query and key matrices decide *where* it looks (often called QK), and its values and its columns of the output projection decide *what* it writes into the stream (value and output, OV). So far you've looked at the first job only.
#
# For the second, multiply what a head writes by the output matrix. Then you see which logits it raises by itself, without the help of later layers. This is **direct logit attribution**. How far does a head raise the right next word above the 29 other words of the list?

# %% tags=["folded"]
# Question
ask("what_the_finders_write")


# %% tags=["folded"]
# Helper: how far heads raise the right word above the 29 others
def raised(notes, stream, ids, layer, head):
    x = stream[-1]
    size = (x.square().mean(dim=-1, keepdim=True) + 1e-5).rsqrt()
    written = wrote(notes, layer, head) * size * scale  # (B, T, C)
    rows = W_vocab[ids[:, :n]]  # of the words of the list, (B, n, C)
    logits = written[:, n:-1] @ rows.transpose(-2, -1)  # (B, n - 1, n)
    return lead_of_target(logits)


def raised_on_new(heads, notes=None, stream=None):
    notes = new_notes if notes is None else notes
    stream = new_stream if stream is None else stream
    return [raised(notes, stream, new_texts, *head) for head in heads]


# %%
# With SmolLM2: each of the four finders raises the word by 0.2 or less.
at_finders = raised_on_new(finders)
for head, much in zip(finders, at_finders):
    print(f"{name(head)} {much:.1f}")

# %% [markdown]
# The finders look straight at the right word, but hardly say it. So which heads do? They must look there too. Of the 20 that look there most, pick the four that raise the word most on the first four texts, and measure them on the others. In which layer do you expect them?

# %% tags=["do"]
# With SmolLM2: the four that raise the word most, and by how much.
looked = best(scores["induction"], 20)  # they look there at least a bit
writers = sorted(
    looked,
    key=lambda head: raised(old_notes, old_stream, texts, *head),
    reverse=True,
)[:4]  # chosen on the first four texts
at_writers = raised_on_new(writers)
for head, much in zip(writers, at_writers):
    print(f"{name(head)} {much:.1f}")

# %% [markdown]
# All of these writers are in layer 23. That's the very layer in which the name moved, and you found that with other texts and another tool.
#
# Do the writers need the finders? If so, they should lose their place without them. Take the finders away and then, for comparison, four random heads.

# %% tags=["long"]
# With SmolLM2: without the finders the writers hardly look there.
print("how much the writers look at the right word, and raise it")
looks, raises = {}, {}
for told, off in {
    "with all heads": [],
    "without the finders": finders,
    "without four random heads": fours[0],
}.items():
    stream_without, notes_without = walk(new_texts, off)
    found = scores_of(notes_without, new_texts)["induction"]
    raising = raised_on_new(writers, notes_without, stream_without)
    looks[told] = sum(found[head].item() for head in writers) / 4
    raises[told] = sum(raising) / 4
    print(f"{told:25} {looks[told]:.1f}, {raises[told]:.1f}")

# %% tags=["folded", "long"]
# With SmolLM2: what the text says of finders and writers holds.
around = [(at, head) for at in range(20, 25) for head in range(9)]
around = [head for head in around if head not in writers]
around = sorted(raised_on_new(around))
assert max(at_finders) < 0.25 < min(at_writers[:3])
assert {layer for layer, _ in writers} == {23}
assert abs(around[20]) < 0.05
assert sum(at_writers) / 4 > around[-1]
all_on, no_finders, no_four = raises.values()
assert no_finders < 0.5 * all_on
assert no_four > 0.8 * all_on
assert looks["without the finders"] < 0.5 * looks["with all heads"]
assert looks["without four random heads"] > 0.8 * looks["with all heads"]
cost["writers"] = cost_of(writers)
assert cost["writers"] < 0.4 * cost["induction"]

# %% [markdown]
# They do. It looks like a relay of three:
#
# 1. At each word, head `16.0` leaves a note that says which word came before.
# 2. The finders in layers 17 and 18 read these notes, and find out *where* to look.
# 3. The writers in layer 23 put some of their weight on the same place, and move *what* is there.
#
# (Other heads must write it too, because without the writers the second copy costs only {{cost["writers"]:.1f}} nats more, and without the finders {{cost["induction"]:.1f}}.)
#
# But these are random words, so does the relay also explain who got the drum? Guess what happens to Sam's probability without the four writers.


# %%
# With SmolLM2: how probable Sam is without some heads of layer 23.
def share_of_sam(off):
    with torch.no_grad(), ablate(model, off):
        logits = model(tokenizer.encode(asked)[None])[0, -1]
    return logits.softmax(dim=-1)[tokenizer.encode(" Sam")].item()


layer_23 = [(23, head) for head in range(9)]
shares = {}
for told, off in {
    "with all heads": [],
    "without the writers": writers,
    "without the rest of layer 23": [*set(layer_23) - set(writers)],
    "without all of layer 23": layer_23,
}.items():
    shares[told] = share_of_sam(off)
    print(f"{told:29}{shares[told]:.1f}")
intact, *some, none = shares.values()
assert min(some) > 0.8 * intact
assert none < 0.5 * intact

# %% [markdown]
# Hardly anything happens. Without the other five heads of layer 23 hardly anything happens either, and only without all nine does Sam become far less likely. So either group can stand in for the other. An ablation that changes nothing doesn't prove that a head has no part.
#
# ### More: how well a head copies
#
# Can you put a number on *what* a head moves, wherever it looks? Let it write what it would write if it looked at one word only, and see whether that raises this very word above the 29 others. The share of words for which it does is its **copying score**. Pure chance would give 1 in 30.


# %%
# With SmolLM2: the writers copy up to nine words in ten, 17.4 hardly any.
def copying(layer, head, notes=new_notes):
    values = notes[layer].v[:, head]  # of every token
    written = values @ columns_of(layer, head).T * scale
    rows = W_vocab[new_texts[:, :n]]
    logits = written[:, 1:n] @ rows.transpose(-2, -1)  # (B, n - 1, n)
    return (logits.argmax(dim=-1) == torch.arange(1, n)).float().mean()


for head in finders + writers:
    print(f"{name(head)} {copying(*head):.1f}")
copies = torch.tensor([copying(*head) for head in drawn])
print(f"random heads: median {copies.median():.1f}")
assert min(copying(*head) for head in writers) > 0.35
assert max(copying(*head) for head in finders) < 0.35

# %% [markdown]
# Every writer copies more of the words than any finder does.
#
# ### More: a head that writes against the word
#
# A head can also lower the word that it looks at, as `24.4` does with the right next word. Such heads have been found in GPT-2, where they keep the model from copying too confidently (McDougall et al. 2023, copy suppression).

# %%
# With SmolLM2: 24.4 lowers the word that it looks at, by 0.4.
print(f"looks {new_scores['induction'][24, 4]:.1f}")
print(f"raises {raised(new_notes, new_stream, new_texts, 24, 4):.1f}")

# %% [markdown]
# ## A place to rest
#
# Now for the third map. Softmax has to give away its whole 1, even when a head doesn't find what it's looking for. Every token can see the first one, so models learn to leave the rest there, on an **attention sink** (Xiao et al. 2023). You can measure how much that matters on the beginning of the last rung's page, the tale of the ferry.

# %% tags=["folded"]
# Question
ask("what_a_window_takes_away")

# %% tags=["long", "do"]
# With SmolLM2: all 3.4, a window 6.1, with token 0 3.9, with 100 6.2.
tale = tokenizer.encode(load_text("tale"))[:200]
changed = tale.clone()
changed[0] = tokenizer.encode(" beautiful")  # or another word
T = len(tale) - 1
keys, seen, window = torch.arange(T), causal_mask(T), window_mask(T, 16)


def loss_with(mask, ids=tale):
    def own(q, k, v, causal):
        return attention(q, k, v, causal & mask)

    with attention_by(model, own):
        logits = model(ids[None, :-1])[0]
    return F.cross_entropy(logits, ids[1:]).item()


losses = {
    "all tokens": loss_with(seen),
    "16 tokens": loss_with(window),
    "and token 0": loss_with(window | (keys == 0)),
    "and token 100": loss_with(window | (keys == 100)),
    "another token 0": loss_with(window | (keys == 0), changed),
}
for told, loss in losses.items():
    print(f"{told:15} {loss:.1f}")

# %% [markdown]
# One more visible token undoes most of the damage. Not just any token will do, because token 100 doesn't help (though only the second half can see it). And what token 0 says doesn't matter, because another word in its place helps about as much. Try a few.
#
# ### More: who takes over when token 0 can't be seen
#
# Is it position 0 that counts? Hide token 0 from all others, and see which token gets its weight.


# %%
# With SmolLM2: with token 0 hidden, token 1 is the sink.
def hiding_token_0(start):
    """Hide it from token `start` on; return the weights on tokens 0 to 2."""
    hidden, shares = seen.clone(), []
    hidden[start:, 0] = False

    def note_first(q, k, v, causal):
        output, weights = attention(q, k, v, causal & hidden)
        shares.append(weights[0, :, 3:, :3].mean(dim=(0, 1)))
        return output

    with attention_by(model, note_first):
        model(tale[None, :-1])
    return torch.stack(shares).mean(dim=0)


on_first, but_from_1 = hiding_token_0(1), hiding_token_0(2)
for told, weights in (("all", on_first), ("all but 1", but_from_1)):
    print(f"hidden from {told}:", *(f"{weight:.1f}" for weight in weights))

# %% tags=["folded", "long"]
# With SmolLM2: what the section says of the sink holds.
assert losses["16 tokens"] - losses["all tokens"] > 2
assert losses["and token 0"] - losses["all tokens"] < 1
assert abs(losses["and token 100"] - losses["16 tokens"]) < 0.3
assert abs(losses["another token 0"] - losses["and token 0"]) < 0.2
assert on_first[1] > 0.3 > 10 * on_first[2]
assert but_from_1[1] < 0.1 < on_first[1]

# %% [markdown]
# It isn't. Once token 0 is hidden, token 1 takes over, because it now sees only itself, as token 0 did before. (If token 1 may still see token 0, it gets hardly any of the weight.)
#
# ### More: why so much weight does no harm
#
# A head passes on the *values* of what it looks at. Compare the size of token 0's value with that of the others.

# %%
# With SmolLM2: the value of token 0 is about a third as large as others.
sizes = torch.stack([note.v[0].norm(dim=-1) for note in new_notes])
share = sizes[:, :, 0] / sizes[:, :, 1:].median(dim=-1).values
print(f"in the median head: {share.median():.1f} of the others")

# %% [markdown]
# A large weight on a small value passes little on. Xiao et al. keep the first few tokens visible along with a window, so that a model can go on writing past its context length. What has left the window is forgotten.
#
# ## Explore: the heads
#
# **What does a head look at in your own text, and what does the model expect without it?** Choose a score, then a head that stands out on the map, and a query. Then switch `16.0` off, and see whether the model still says “mill”, where Tom lost his key.

# %% tags=["folded"]
# With SmolLM2: an explorer of all 270 heads.
explore("heads", model=model, tokenizer=tokenizer, text=sentence)

# %% [markdown]
# ## Exercises
#
# ### 1. The logit lens
#
# <!--task logit_lens-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("logit_lens")


# %%
def my_logit_lens(stream, scale, W_vocab):
    raise NotImplementedError


check("logit_lens", my_logit_lens)

# %% [markdown]
# ### 2. Find the induction head
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
# ### 3. What each head writes
#
# <!--task direct_logit_attribution-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("direct_logit_attribution")


# %%
def my_direct_logit_attribution(outputs, W_proj, x, scale, W_vocab, ids):
    raise NotImplementedError


check("direct_logit_attribution", my_direct_logit_attribution)

# %% [markdown]
# ## In the wild
#
# - Olsson et al. (2022) repeat random tokens as we do, and call our induction score the prefix-matching score. They ask for both prefix matching and copying.
# - Libraries such as TransformerLens and nnsight take such notes for you, for most models.
# - Heads that cost little on many texts can be removed for good (Michel et al. 2019).
# - With such swaps Meng et al. (2022) looked for the place where a model keeps its facts. A swap tells you what matters for *these* two texts, so choose the pair with care.
#
# ## Three sentences to remember
#
# 1. A map tells you where a head looks, an ablation whether this task needs it, and random heads what counts as a lot.
# 2. What a head looks at and what it writes are two questions with two answers.
# 3. Choose on some texts and measure on others, because among 270<!--given--> heads some look good by luck.
#
# Next: [rung {speed_run}]({speed_run}.ipynb). Training your own model took a while. You'll make it faster, and measure by how much in a way that you can trust.
#
# <!--neighbours-->
