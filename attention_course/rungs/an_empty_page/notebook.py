# %% [markdown]
# # Rung {an_empty_page}: an empty page
#
# <!--ladder-->
#
# **You will build** a GPT on one empty page, and at the end your page talks to you.
#
# You've built every part of a language model, but always inside code that we'd prepared. Can you write all of it, starting from nothing? And how will you know that it's right, when a wrong model has the same shapes and its loss falls just as smoothly?

# %% tags=["hero", "folded"]
# The opening picture: leave out one line, and see who notices
from attention_course.heroes import hero

hero("an_empty_page")

# %% [markdown]
# **You need** all rungs up to [rung {bigram_to_gpt}]({bigram_to_gpt}.ipynb). Only the end needs [rung {a_real_model}]({a_real_model}.ipynb), because your page then takes the parameters of a real model.
#
# <!--time--> Most of the exercise time goes into your GPT, and its version for SmolLM2 isn't counted.
#
# <!--test-out-->
#
# ![The transformer as a drawing. Everything is lit, because this rung builds all of it.](images/transformer_an_empty_page.svg)

# %% tags=["folded"]
# Two questions from the rungs below
from attention_course.questions import warm_up

warm_up("an_empty_page")

# %% tags=["folded"]
# Imports
import math
from dataclasses import replace
from importlib.util import find_spec

import torch
import torch.nn as nn
import torch.nn.functional as F
from IPython.display import display

from attention_course.examine import examine
from attention_course.examine.planted import BUGS, draw_bugs, plant
from attention_course.examine.wrapped_model import WrappedModel
from attention_course.exercises import EXERCISES, check
from attention_course.explorers import LiveTraining, explore
from attention_course.fills import fill
from attention_course.gpt import GPT, GPTConfig, generate
from attention_course.plots import Heatmap, picture
from attention_course.progress import progress
from attention_course.questions import ask
from attention_course.smollm import (
    chat,
    load_smollm,
    skip_cells,
    smollm_path,
    stored_tensors,
)
from attention_course.stories import answer_accuracy, stories_entropy
from attention_course.text import Corpus, conditional_entropy, load_text
from attention_course.training import RECIPES, train

progress("an_empty_page")

# %% tags=["folded"]
# Question
ask("smallest_page")

# %% [markdown]
# ## The page
#
# <!--task gpt-->
#
# Don't write it all at once. Begin with one table, so in `__init__` replace the `raise` with `self.table = nn.Embedding(vocab_size, vocab_size)`, and let `forward` return `self.table(ids)`. Run the cell, read what the check finds wrong, then add the next part.


# %% tags=["do"]
class MyGPT(nn.Module):
    def __init__(self, vocab_size, block_size):
        super().__init__()
        raise NotImplementedError

    def forward(self, ids):
        raise NotImplementedError


check("gpt", MyGPT)

# %% [markdown]
# These are the seven parts. The hints add them step by step, in nearly this order.
#
# 1. A vector for each token, from a table with a row for each id.
# 2. Positions, from a second table with a row for each place.
# 3. Causal attention with several heads, each looking for something different in the past.
# 4. Residual additions, so that a part adds to what it has read instead of replacing it.
# 5. A feed-forward network after each attention, which works on each token alone.
# 6. Norms, one before each part and one at the end, so that the numbers stay in a range.
# 7. Logits, a score for each token of the vocabulary at every position.
#
# If the check reports an error in your code, call `MyGPT(33, 128)(torch.zeros(1, 8, dtype=torch.long))` in a cell of its own to see which line fails. If you'd rather use an editor, write in `my_gpt.py`, next to this notebook, and replace the cell above with `%run my_gpt.py` and `check("gpt", MyGPT)`.

# %% tags=["folded"]
# Question
ask("one_part_missing")

# %% [markdown]
# ## How can it know?
#
# The check never reads your code, so you can choose any names. It treats the model almost as a **black box**: ids go in, logits come out, and that's enough to learn a lot. In rung {bag_of_words} you changed one input at a time and watched which outputs moved. Here the inputs are tokens, so we replace one token with another and compare the logits.


# %% tags=["name:tables"]
def moved(model, ids, V):
    T = len(ids)
    texts = ids.repeat(T + 1, 1)  # the text, and a copy for each token
    for s in range(T):
        texts[s + 1, s] = (ids[s] + 1) % V
    with torch.no_grad():
        logits = model(texts)  # (T + 1, T, V)
    return (logits[1:] - logits[0]).abs().amax(dim=-1).T > 1e-5


V, block_size = 33, 128
torch.manual_seed(0)
ids = torch.randint(V, (6,))
rung_8 = GPT(GPTConfig(V, block_size))
moved(rung_8, ids, V).int()

# %% [markdown]
# Each row is an output, and each column a token that was changed. It's the triangle you know, because no later token moves an output, while all the others do.
#
# Now we plant a bug. In the next model the mask is off by one.

# %% tags=["folded"]
# Question
ask("mask_off_by_one")

# %%
torch.manual_seed(0)
buggy = plant("mask off by one")  # buggy(ids) is (logits, loss)
its_ids = torch.randint(buggy.vocab_size, (6,))
moved(lambda ids: buggy(ids)[0], its_ids, buggy.vocab_size).int()

# %% [markdown]
# No shape shows the bug. The table does, in a second and without any training.
#
# A second test doesn't even change a token. A new model can't know the next token, so its loss on random tokens should be near ln V (rung {scaling_variance}). If it's 10 or 40<!--given-->, the model is confident about something it has no reason to believe.

# %%
random_text = torch.randint(V, (8, block_size + 1))
with torch.no_grad():
    logits = rung_8(random_text[:, :-1])
loss = F.cross_entropy(logits.flatten(0, 1), random_text[:, 1:].flatten())
print(f"{loss.item():.1f}, and ln V is {math.log(V):.1f}")

# %% tags=["folded"]
# Question
ask("first_loss_of_42")

# %% [markdown]
# `examine` asks many questions like these about any model, the most basic ones first. Do the texts of a batch influence each other, and does the future leak? Does the past matter, and does its order? Can the first token of a long text still reach the last output? Does every parameter get a gradient? If the future leaks, it also names the module where the leak begins. Here's its report on the model whose mask is off by one.

# %% tags=["nbval-ignore-output"]
report = examine(
    buggy,
    vocab_size=buggy.vocab_size,
    block_size=buggy.block_size,
    train=False,
)
assert not report
assert report.findings[0].name == "No leak from the future"
report

# %% [markdown]
# Each ✗ names something that a correct model does and this one doesn't. A question mark with “doubtful” means that something is unusual but perhaps intended, and a question that doesn't apply to this model isn't asked. The fold at the end lists what's right.

# %% tags=["folded"]
# Question
ask("which_is_fixed_first")

# %% [markdown]
# ### More: how far can you trust the examiner?
#
# A test that never complains is worthless, and so is one that complains about a correct model. So we tried it on both kinds. Of the correct models that our tests examine, ours and other people's, it calls some doubtful and none wrong. We left out some kinds, such as models with parameters that they never use, which it calls wrong even if their outputs are right. BigBird from `transformers` is one. The examiner also misses some of the planted bugs, and `attention_course/examine/bugs.md` lists them with the reasons.

# %%
found = [bug for bug in BUGS.values() if bug.finding]
print(f"{len(BUGS)} bugs, {len(found)} of them found")

# %% [markdown]
# Don't take this as its score. We wrote the questions for these very bugs, so, like a training loss, the figure says little about anything new. So we also took 12<!--given--> bugs that people really had, rebuilt each from its public thread before the examiner saw it, and examined each once. It called 6<!--given--> of them wrong and 1<!--given--> doubtful, and in 5<!--given--> of the 6 its advice leads to the faulty line. It called none of the repaired models wrong. `attention_course/examine/real_bugs.md` lists today's verdicts, after we changed the examiner for two of them. What it misses shows up only in other ways, such as a comparison with a second implementation, which you can pass as `reference=`.

# %% tags=["folded"]
# Question
ask("what_outside_cannot_see")

# %% [markdown]
# You can also examine a page in a terminal. Without `--no-train` the model is also trained, which takes up to two minutes.
#
# ```
# python -m attention_course.examine my_gpt.py:MyGPT --vocab-size 33 --block-size 128 --no-train
# ```
#
# ### More: examine something you didn't write
#
# `examine` isn't limited to models from this course. If you've installed `transformers`, here's a small version of its GPT-2 with random parameters.

# %% tags=["nbval-ignore-output"]
if find_spec("transformers"):
    from transformers import GPT2Config, GPT2LMHeadModel, logging

    logging.set_verbosity_error()
    small = {"n_positions": block_size, "n_embd": 64, "n_head": 4}
    ends = {"bos_token_id": 0, "eos_token_id": None}
    config = GPT2Config(vocab_size=V, n_layer=2, **small, **ends)
    sizes = {"vocab_size": V, "block_size": block_size}
    report = examine(GPT2LMHeadModel(config), **sizes, train=False)
    assert report
    print(report)

# %% [markdown]
# The question about texts longer than the block isn't asked, because the `generate` in `transformers` leaves cropping to you, unlike rung {bigram_to_gpt}'s.
#
# ## It learns
#
# Back to your page. Until the check finds nothing wrong with it, the cells below use ours, but they look for yours each time you run them. Ours reads the stories of rung {bigram_to_gpt} for 800 steps. Yours gets 1,200, because how quickly a model learns depends on its initial parameters.

# %% tags=["folded"]
# Model: yours if nothing is wrong with it, and ours until then
torch.manual_seed(0)
sizes = {"vocab_size": V, "block_size": block_size}
written = EXERCISES["gpt"].reference(V, block_size)
is_yours = False
try:
    yours = MyGPT(V, block_size)
    logits = WrappedModel(yours, V, block_size)(ids[None])
    wants_ids_alone = logits.shape[1] > 1
    is_yours = wants_ids_alone and bool(
        examine(yours, **sizes, train=False)
    )
except NotImplementedError:
    print("Your page is empty.")
except Exception as error:
    print(error)
if is_yours:
    written = yours
model = WrappedModel(written, V, block_size)  # returns only logits
print("The cells below use", "your model." if is_yours else "our page.")

# %% tags=["folded"]
# Data: the stories, and the losses of simpler models
data = Corpus.of(load_text("stories"))
tokenizer = data.tokenizer
val_text = tokenizer.decode(data.val)
floors = {f"{n}-gram": conditional_entropy(data.val, n) for n in (1, 2, 3)}
floors["entropy"] = stories_entropy(val_text[val_text.index("\n") + 1 :])

# %% tags=["nbval-ignore-output", "long:800"]
recipe = replace(RECIPES["stories"], steps=1200 if is_yours else 800)
live = LiveTraining(tokenizer, floors=floors)
shown = display(live, display_id=True)
history = train(model, data, recipe, callback=live)
shown.update(live)  # as it is now, for a page without a kernel

# %% [markdown]
# `Kind Ben gave poor Sam a drum at the farm. Who got it?` That was the first question of this course, and the first model, a table of letter pairs, answered it with gibberish. Now ask your page, then change the story.

# %% tags=["nbval-ignore-output", "do"]
question = "\nKind Ben gave poor Sam a drum at the farm. Who got it? Poor "
told = generate(model, tokenizer.encode(question)[None], 60, temperature=0)
print(tokenizer.decode(told[0]).strip())

# %% [markdown]
# And how often is it right on the validation text?

# %%
share = answer_accuracy(model, val_text, tokenizer)
if not is_yours:
    assert share > 0.9
how_many = "more than 90 %" if share > 0.9 else f"only {share:.0%}"
print(f"{how_many} of the answers are right")

# %% [markdown]
# It's worth looking back here. Rung {bag_of_words} averaged the past with a loop, and the same idea, with weights that depend on what the tokens say, now answers questions, on a page of your own.
#
# If your page passes the check but answers badly, it's usually for one of two reasons. With a single layer the names are hard to find (rung {bigram_to_gpt}). Or your model has hardly begun to learn, because `nn.Embedding` starts with a standard deviation of 1. With PyTorch's defaults even our own page needs far more steps. Initialize each matrix with `nn.init.normal_(parameter, std=n_embd**-0.5)`, or take more steps.
#
# ## From another model
#
# A trained model comes down to its parameters, which are numbers with names. So if your page has the parts of rung {bigram_to_gpt}'s GPT, it can take over everything that the GPT has learned. Train the GPT a little first, because the norms of a new model all multiply by 1, so you wouldn't notice if you mixed up two of them.

# %% tags=["nbval-ignore-output", "long:100"]
trained = GPT(GPTConfig(V, block_size))  # 2 layers, 4 heads, 64 channels
train(trained, data, replace(recipe, steps=100))
theirs = trained.state_dict()
print(*list(theirs)[:8], "...", sep="\n")

# %% tags=["folded"]
# Question
ask("names_that_do_not_fit")

# %% [markdown]
# So you translate. On the left are the names of the GPT, and on the right you put what your page calls these parts. (Ours has the same names, so our table changes nothing.)


# %% tags=["do", "name:translated"]
my_names = {
    "transformer.wte": "transformer.wte",  # perhaps "tok_emb"
    "transformer.wpe": "transformer.wpe",
    "transformer.h": "transformer.h",
    "ln_1": "ln_1",
    "attn.c_attn": "attn.c_attn",
    "attn.c_proj": "attn.c_proj",
    "ln_2": "ln_2",
    "mlp.c_fc": "mlp.c_fc",
    "mlp.c_proj": "mlp.c_proj",
    "transformer.ln_f": "transformer.ln_f",
    "lm_head": "lm_head",
}


def translated(name):
    for its, mine in my_names.items():
        name = name.replace(its, mine)
    return name


# %% tags=["folded", "name:translated", "proof"]
# Load: the GPT's parameters into a new page, and compare the logits
page = (MyGPT if is_yours else EXERCISES["gpt"].reference)(V, block_size)
state = {translated(name): tensor for name, tensor in theirs.items()}
for name, tensor in page.state_dict().items():
    if name.endswith("bias"):  # the GPT has none, and 0 changes nothing
        state.setdefault(name, torch.zeros_like(tensor))
    elif name in dict(page.named_buffers()):  # such as a mask
        state.setdefault(name, tensor)
block = data.val[None, :block_size]
try:
    page.load_state_dict(state)
    with torch.no_grad():
        mine, its = WrappedModel(page, V, block_size)(block), trained(block)
    if not is_yours:
        torch.testing.assert_close(mine, its, atol=1e-3, rtol=0)
    same = torch.allclose(mine, its, atol=1e-3, rtol=0)
    print(f"All names and shapes fit. The same logits: {same}.")
except RuntimeError as error:
    print("They do not fit:", str(error).splitlines()[1].strip()[:300])

# %% [markdown]
# If they don't fit, nothing is wrong with your model, because names and sizes are a choice. Give `GPTConfig` the sizes of your page. If your queries, keys and values have a matrix each, `chunk(3)` cuts each `attn.c_attn.weight` into these three, and you put them into `state` in the cell above. If everything fits but the logits differ, two parts are mixed up, or one of them computes something else, such as another nonlinearity. At the end of this rung you'll do all this for a real model.
#
# ## Break it
#
# Here are three models with one bug each (and others when you run the cell again). They're smaller than your page, so use ids below `broken[0].vocab_size`, not below V. Look at their tables, test whatever else you like, and guess before the examiner speaks. Good tests are a second call with the same ids, the first loss and the gradients. `broken[0](ids, targets)` returns logits and a loss.

# %% tags=["nbval-ignore-output"]
generator = torch.Generator()
generator.seed()  # other bugs each time
six = draw_bugs(6, generator)
bugs, broken = six[:3], []
for bug in bugs:
    torch.manual_seed(0)
    broken.append(plant(bug))
print("Three of these:", *sorted(bug.name for bug in six), sep="\n- ")

# %% tags=["folded", "nbval-ignore-output", "name:tables"]
# Picture: which outputs of the three change with which tokens
panels = []
for number, each in enumerate(broken, start=1):
    each.eval()
    some = torch.arange(6)
    logits, _ = each(some[None])
    if logits.shape != (1, 6, each.vocab_size):
        print(f"model {number}: logits of shape {tuple(logits.shape)}")
        continue
    table = moved(lambda ids: each(ids)[0], some, each.vocab_size)
    title = f"model {number}"
    panels.append(Heatmap(title, table.float(), "output", "token"))
picture(
    *panels,
    alt="Tables of the three models, each with a row for an output and "
    "a column for a changed token.",
)

# %% tags=["do"]
my_guesses = ["", "", ""]  # which model has which bug?

# %% tags=["nbval-ignore-output"]
for bug, each, guess in zip(bugs, broken, my_guesses):
    sizes = {"vocab_size": each.vocab_size, "block_size": each.block_size}
    report = examine(each, **sizes, train=False)
    assert report.findings[0].name == bug.finding
    print(f"You said: {guess or 'nothing yet'}. It is: {bug.name}.")
    print(report.findings[0], end="\n\n")

# %% [markdown]
# Unless your code raises an error, the examiner can't see which line is wrong. It can only suggest causes, because a leak may come from the mask, from `view` without `transpose`, or from a norm that runs over time.
#
# ## Explore: bugs that look alike
#
# **Which bugs look alike from the outside, and which question tells them apart?** Choose a bug and look at its table first. Then find a second bug with the same table, and see whether another panel tells the two apart. (It doesn't always.)

# %% tags=["folded"]
# Explorer: planted bugs, seen from the outside
explore("planted_bugs")

# %% [markdown]
# ## Exercises
#
# The page was the first exercise. Now write two of the examiner's questions yourself, both of which treat the model as a black box.
#
# ### 2. Does it know the order?
#
# <!--task swaps_noticed-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("swaps_noticed")


# %%
def my_swaps_noticed(model, ids):
    raise NotImplementedError


check("swaps_noticed", my_swaps_noticed)

# %% [markdown]
# ### 3. How far does it see?
#
# <!--task context_length-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("context_length")


# %%
def my_context_length(model, ids):
    raise NotImplementedError


check("context_length", my_context_length)

# %% [markdown]
# ## Your page talks
#
# This is the last step of the climb. Take your page and swap in the four parts of rung {a_real_model}, which are RMSNorm, rotary positions, grouped queries and the gate. Then copy the 135<!--given--> million numbers of SmolLM2 into it, and it speaks English. Give yourself an evening for this one. Until you've written both the page and `my_copies`, the cells below use ours, which are folded underneath.


# %% tags=["do"]
class MyPageOfToday(nn.Module):
    def __init__(self):
        super().__init__()
        raise NotImplementedError

    def forward(self, ids):
        raise NotImplementedError


def my_copies(page, theirs):
    """Yield pairs: a parameter of the page, and the tensor it gets."""
    raise NotImplementedError


# %% [markdown]
# `theirs` is a dictionary from names to tensors, with the names in the file that you opened in rung {a_real_model}. The table says what's in it. V is 49,152<!--given-->, C is 576<!--given--> and the hidden width H is 1,536<!--given-->. There are 30<!--given--> layers, numbered by `i` from 0, each with 9<!--given--> query heads, 3<!--given--> key heads and 3<!--given--> value heads of 64<!--given--> channels. The rotary base is 100,000<!--given-->, and neighbouring channels form a pair.
#
# | name | shape | what it is |
# | --- | --- | --- |
# | `token_embd.weight` | (V, C) | the embedding, which is also the output matrix |
# | `blk.{i}.attn_norm.weight` | (C,) | RMSNorm before attention, with an eps of `1e-5` |
# | `blk.{i}.attn_q.weight` | (C, C) | the queries of all heads |
# | `blk.{i}.attn_k.weight`, `blk.{i}.attn_v.weight` | (C / 3<!--given-->, C) | the keys, the values |
# | `blk.{i}.attn_output.weight` | (C, C) | the output projection |
# | `blk.{i}.ffn_norm.weight` | (C,) | RMSNorm before the gate |
# | `blk.{i}.ffn_gate.weight`, `blk.{i}.ffn_up.weight` | (H, C) | the gate, the hidden layer |
# | `blk.{i}.ffn_down.weight` | (C, H) | back to the residual stream |
# | `output_norm.weight` | (C,) | the last RMSNorm |
#
# ### More: our page of today
#
# Our page has names of its own, so `copies` translates them.


# %% tags=["name:today"]
class TodaysBlock(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        C, n_hidden, self.base = sizes.n_embd, sizes.n_hidden, sizes.base
        self.size = C // sizes.n_head
        self.group = sizes.n_head // sizes.n_kv_head
        kept = (
            sizes.n_kv_head * self.size
        )  # channels of keys, and of values
        self.norm_1 = nn.RMSNorm(C, eps=1e-5)
        self.norm_2 = nn.RMSNorm(C, eps=1e-5)
        self.query = nn.Linear(C, C, bias=False)
        self.key = nn.Linear(C, kept, bias=False)
        self.value = nn.Linear(C, kept, bias=False)
        self.out = nn.Linear(C, C, bias=False)
        self.gate = nn.Linear(C, n_hidden, bias=False)
        self.hidden = nn.Linear(C, n_hidden, bias=False)
        self.down = nn.Linear(n_hidden, C, bias=False)

    def turned(self, x):
        speeds = self.base ** -(torch.arange(0, self.size, 2) / self.size)
        angles = torch.arange(x.shape[-2])[:, None] * speeds
        a, b = x.unflatten(-1, (-1, 2)).unbind(dim=-1)
        cos, sin = angles.cos(), angles.sin()
        turned = torch.stack([a * cos - b * sin, a * sin + b * cos], -1)
        return turned.flatten(-2)

    def forward(self, x):
        B, T, C = x.shape
        normed = self.norm_1(x)
        q, k, v = (
            part(normed).view(B, T, -1, self.size).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        q, k = self.turned(q), self.turned(k)
        k = k.repeat_interleave(self.group, dim=1)
        v = v.repeat_interleave(self.group, dim=1)
        scores = q @ k.transpose(-2, -1) / self.size**0.5
        visible = torch.ones(T, T, dtype=torch.bool).tril()
        scores = scores.masked_fill(~visible, -torch.inf)
        weights = scores.softmax(dim=-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(B, T, C))
        normed = self.norm_2(x)
        return x + self.down(
            F.silu(self.gate(normed)) * self.hidden(normed)
        )


class PageOfToday(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.table = nn.Embedding(sizes.vocab_size, sizes.n_embd)
        layers = range(sizes.n_layer)
        self.blocks = nn.ModuleList(TodaysBlock(sizes) for _ in layers)
        self.norm = nn.RMSNorm(sizes.n_embd, eps=1e-5)

    def forward(self, ids):
        x = self.table(ids)
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.table.weight.T


def copies(page, theirs):
    yield page.table.weight, theirs["token_embd.weight"]
    yield page.norm.weight, theirs["output_norm.weight"]
    names = {
        "norm_1": "attn_norm",
        "query": "attn_q",
        "key": "attn_k",
        "value": "attn_v",
        "out": "attn_output",
        "norm_2": "ffn_norm",
        "gate": "ffn_gate",
        "hidden": "ffn_up",
        "down": "ffn_down",
    }
    for i, block in enumerate(page.blocks):
        for ours, name in names.items():
            mine = block.get_parameter(f"{ours}.weight")
            yield mine, theirs[f"blk.{i}.{name}.weight"]


# %% [markdown]
# ### Copy, compare, talk
#
# How will you know that the numbers ended up where they belong? Compare your logits with those of rung {a_real_model}'s model on the same text. (If you don't have that model yet, run `load_smollm()` first, which downloads 93<!--given--> MB.)

# %%
if not smollm_path().exists():
    skip_cells("# With SmolLM2:")

# %%
# With SmolLM2: every parameter is copied, and the logits are the same.
smollm, smollm_tokenizer = load_smollm()
theirs = stored_tensors(smollm)
with torch.no_grad():
    try:
        page = MyPageOfToday()
        pairs = list(my_copies(page, theirs))
        whose = "your page"
    except NotImplementedError:
        page = PageOfToday(smollm.config)
        pairs = list(copies(page, theirs))
        whose = "our page"
    for mine, tensor in pairs:
        assert mine.shape == tensor.shape, (mine.shape, tensor.shape)
        mine.copy_(tensor)
    some = smollm_tokenizer.encode("The capital of France is")[None]
    away = (page(some) - smollm(some)).abs().amax(dim=(0, 2))
copied = sum(mine.numel() for mine, _ in pairs)
print(f"{copied:,} numbers copied into {whose}")
print("largest difference of the logits at each token:", away, sep="\n")

# %% [markdown]
# If your differences are large, look at where they begin. With the right mask, token 0 attends only to itself, and it isn't rotated. So if the difference is already large there, check your copies, the mask, the norms, the gate, or the order of the value heads. If it begins at token 1, check the rotation, the scaling, or which key head belongs to which query head.

# %% tags=["folded", "lesson"]
# With SmolLM2: the differences are rounding errors.
assert copied == sum(p.numel() for p in smollm.parameters())
assert away.max() < 5e-3

# %% [markdown]
# Up to rounding, the two models agree. All that's left is to let yours write, one token at a time, with the loop of rung {bigram_to_gpt} and the chat template of rung {a_real_model}. Ask it anything.

# %% tags=["nbval-ignore-output", "do"]
# With SmolLM2: it answers.
ids_so_far = smollm_tokenizer.encode(chat("What is the moon?"))[None]
end = smollm_tokenizer.encode("<|im_end|>")
with torch.no_grad():
    for _ in range(30):
        best = page(ids_so_far)[:, -1].argmax(dim=-1, keepdim=True)
        if best == end:
            break
        print(smollm_tokenizer.decode(best[0]), end="", flush=True)
        ids_so_far = torch.cat([ids_so_far, best], dim=1)

# %% [markdown]
# Every line of the model, from the ids of your question to those of the answer, is on this page. Rung {bag_of_words} began with a table of letter pairs, and this is where it led.
#
# (It stops after 30 tokens because the loop does, and it slows down as it writes because the page has no cache. A cache would be a good next thing to write.)
#
# ## In the wild
#
# - Andrej Karpathy (2019) asks the same questions by hand in "A Recipe for Training Neural Networks": check the first loss, overfit one batch, and use gradients to find out which outputs depend on which inputs.
# - `transformers` also tests its models from the outside. A text has to give the same result in a batch as alone, and with a cache as without one.
# - People who rewrite GPT-2 often keep its parameter names, because then the released numbers load with hardly any translation. They still have to transpose four matrices of each block, which are stored as (in, out).
#
# ## What to read, what to build
#
# - nanoGPT's `model.py`: read it from top to bottom, alongside your page. It's 330<!--given--> lines long.
# - "Attention Is All You Need" (Vaswani et al. 2017), and the report on GPT-2 (Radford et al. 2019). You know every part of the models in them, but you'll have to look up beam search, label smoothing and BLEU.
# - "A Mathematical Framework for Transformer Circuits" (Elhage et al. 2021), if you want to know more about what heads do together.
# - Train your page on a text of your own (`train` with `Corpus.of(text)`), use byte pairs instead of characters, or add a cache. Examine it after each change.
#
# ## Three sentences to remember
#
# 1. A GPT is seven parts on one page, and attention is the only one in which tokens meet.
# 2. Right shapes and a falling loss prove little, so ask what each output depends on, and what it must not depend on.
# 3. Fix the first finding, then ask again.
#
# You can now write a GPT from scratch, and test one without reading its code.
#
# <!--neighbours-->
