# %% [markdown]
# # Rung {an_empty_page}: an empty page
#
# <!--ladder-->
#
# **You will build** a GPT, from nothing, on one empty page. A tool examines it from outside, after every attempt, and says what to mend first. At the end your model learns the stories, and writes one.

# %% tags=["hero", "folded"]
# The opening picture: a page, and what is asked about it
from attention_course.heroes import hero

hero("an_empty_page")

# %% [markdown]
# **You need** all rungs up to [rung {bigram_to_gpt}]({bigram_to_gpt}.ipynb). One cell examines the model of [rung {a_real_model}]({a_real_model}.ipynb).
#
# <!--time--> Most of it is yours: the page.
#
# ![The transformer as a drawing. Lit is what this rung builds: all of it.](images/transformer_an_empty_page.svg)

# %% [markdown]
# ## The question
#
# You have built each part of a GPT. Can you write one without looking? And how would you know that it is right? A wrong one has the same shapes, it trains, and its loss falls.

# %% tags=["folded"]
# Imports
import math
from dataclasses import replace
from importlib.util import find_spec

import torch
import torch.nn as nn
import torch.nn.functional as F
from IPython.display import display

from attention_course.attention import causal_mask
from attention_course.examine import examine
from attention_course.examine.planted import BUGS, draw_bugs, plant
from attention_course.examine.subject import Subject
from attention_course.exercises import EXERCISES, check
from attention_course.fills import fill
from attention_course.explorers import LiveTraining, explore
from attention_course.gpt import GPT, GPTConfig, generate
from attention_course.plots import Heatmap, picture
from attention_course.progress import progress
from attention_course.questions import ask
from attention_course.smollm import load_smollm, skip_cells, smollm_path
from attention_course.stories import answer_accuracy, stories_entropy
from attention_course.text import Data, conditional_entropy, load_text
from attention_course.training import RECIPES, train

progress("an_empty_page")

# %% [markdown]
# ## What a GPT needs
#
# 1. **A vector for each token.** A table has a row for each id.
# 2. **Positions.** Something says where a token is.
# 3. **Causal attention with heads.** Each position takes from itself and its past what it looks for, never from its future.
# 4. **Residual additions.** A part adds to the vector that it read. It does not replace it.
# 5. **A feed-forward network.** After each attention, it processes each token by itself.
# 6. **Norms.** One before each part, one at the end.
# 7. **Logits.** One number for each token of the vocabulary, at every position.

# %% tags=["folded"]
# Question
ask("one_part_missing")

# %% [markdown]
# ## Asked from outside
#
# Your GPT will have other names than ours, and other code. So a test of it cannot read its source. It treats the model as a **black box**: ids (B, T) go in, logits (B, T, V) come out, and gradients, if one asks for them. Much can be learned from that.
#
# The leak probe of rung {bag_of_words} changed one input at a time, and looked at which outputs moved. Here the inputs are tokens: put another one in the place of token s, and compare the logits.


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
# Row t is an output, column s a changed token. It is the triangle that you know: no later token moves an output, and every earlier one does.

# %% tags=["folded"]
# Check: the table of a GPT is the causal mask
assert torch.equal(moved(rung_8, ids, V), causal_mask(6))

# %% [markdown]
# (All copies go in as one batch. If the texts of a batch met in a model, that would look like a leak, so it has to be asked first.)
#
# Another question changes nothing. A new model cannot know the next token, so on random tokens its loss is near ln V (rung {scaling_variance}). Much more, for the examination more than ln V + 1, means that it is sure without a reason.

# %%
random_text = torch.randint(V, (8, block_size + 1))
with torch.no_grad():
    logits = rung_8(random_text[:, :-1])
loss = F.cross_entropy(logits.flatten(0, 1), random_text[:, 1:].flatten())
print(f"{loss.item():.1f}, and ln V is {math.log(V):.1f}")

# %% [markdown]
# {{loss:.1f}} beside {{math.log(V):.1f}}: logits with a standard deviation of about 1 cost about half a nat.
#
# The package has another GPT, written in one file, into which a bug can be planted. The next one has a mask that is off by one.

# %% tags=["folded"]
# Question
ask("mask_off_by_one")

# %%
torch.manual_seed(0)
buggy = plant("mask off by one")  # returns logits and a loss
ids_of_its = torch.randint(buggy.vocab_size, (6,))
moved(lambda ids: buggy(ids)[0], ids_of_its, buggy.vocab_size).int()

# %% [markdown]
# ## The examination
#
# `examine` asks such questions, one after the other, in the order of the rungs. Are the logits finite? Does a text change with the others in its batch? Does the future leak? Is the past used, and its order? Does the first token of a full block still reach the last output? Is the first loss near ln V? Does every parameter get a gradient?
#
# It takes any model. Here is what it says of rung {bigram_to_gpt}'s.

# %%
sizes = {"vocab_size": V, "block_size": block_size}
report = examine(rung_8, **sizes, train=False)
assert report
print(report.headline)

# %% [markdown]
# What was not asked makes no sense here: this model returns no loss of its own, and has no method `generate`.
#
# A test that never complains is worth nothing, and neither is one that complains about what is right. So the examiner was tried both ways, on right models, ours and others', and on models with planted bugs. It called none of those right models wrong. It does call BigBird of `transformers` wrong, which has parameters that it never uses, and some right models doubtful: you will meet two of them below. Some of the planted bugs it does not find, and some it only calls doubtful; `attention_course/examine/bugs.md` lists them, with the reason.

# %%
found = [bug for bug in BUGS.values() if bug.finding]
print(f"{len(BUGS)} bugs, {len(found)} of them found")

# %% [markdown]
# Do not take this for the examiner's score. We wrote its questions for these very bugs, so like a training loss it says little about anything new: how many bugs the examiner finds that nobody thought of, you cannot know from this.

# %% tags=["folded"]
# Question
ask("what_outside_cannot_see")

# %% [markdown]
# ## Reading a report
#
# This is the report on the mask that is off by one.

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
# - **The first line is what to mend.** All others can wait: run the examination again afterwards.
# - The words in bold say what a right model does. ✗ is wrong. A question mark is doubtful: unusual, and perhaps meant so. A dash was not asked, and the line says why.
# - Then comes what was measured. For what is not right, the next line says what it should be, the usual cause and its cure, and the rung to read.
# - “This follows from” names an earlier finding that explains this one. Mend that first.

# %% tags=["folded"]
# Question
ask("which_is_mended_first")

# %% [markdown]
# ## The page
#
# <!--task gpt-->
#
# The hints come in the order of the ladder. Small steps are best: a table and a linear layer first, then the next part. The examination says of each step what is still missing.


# %%
class MyGPT(nn.Module):
    def __init__(self, vocab_size, block_size):
        super().__init__()
        raise NotImplementedError

    def forward(self, ids):
        raise NotImplementedError


check("gpt", MyGPT)

# %% [markdown]
# As long as the page is empty, the check says “not tried yet”. If a finding is an error, call your model in a cell of its own, `MyGPT(33, 128)(torch.zeros(1, 8, dtype=torch.long))`, to see the line.
#
# Do you prefer an editor? Beside this notebook lies an empty page, `my_gpt.py`. Write there, and let the cell above be these two lines: `%run my_gpt.py` and `check("gpt", MyGPT)`. Or examine it in a terminal:
#
# ```
# python -m attention_course.examine my_gpt.py:MyGPT --vocab-size 33 --block-size 128
# ```
#
# This also trains it, which takes up to two minutes; `--no-train` leaves that out.

# %% tags=["folded"]
# Question
ask("first_loss_of_42")

# %% [markdown]
# ## It learns
#
# Until nothing is wrong with yours, the cells below use a page that we wrote. They look for your model each time you run them.

# %% tags=["folded"]
# Model: yours if nothing is wrong with it, and ours until then
torch.manual_seed(0)
written = EXERCISES["gpt"].reference(V, block_size)
is_yours = False
try:
    yours = MyGPT(V, block_size)
    wants_ids_alone = Subject(yours, V, block_size)(ids[None]).shape[1] > 1
    is_yours = wants_ids_alone and bool(
        examine(yours, **sizes, train=False)
    )
except NotImplementedError:
    print("Your page is empty.")
except Exception as error:
    print(error)
if is_yours:
    written = yours
model = Subject(written, V, block_size)  # logits, whatever else it returns
print("The cells below use", "your model." if is_yours else "our page.")

# %% [markdown]
# The text is that of rung {bigram_to_gpt}: the stories. So are its floors. The recipe is rung {bigram_to_gpt}'s. Yours gets twice as many steps, because how fast a model learns depends on its initial parameters.

# %%
text = load_text("stories")
data = Data.of(text)
tokenizer = data.tokenizer
val_text = tokenizer.decode(data.val)
recipe = RECIPES["stories"]
if is_yours:
    recipe = replace(recipe, steps=2 * recipe.steps)

# %% tags=["nbval-ignore-output", "long"]
floors = {f"{n}-gram": conditional_entropy(data.val, n) for n in (1, 2, 3)}
floors["entropy"] = stories_entropy(val_text[val_text.index("\n") + 1 :])
live = LiveTraining(tokenizer, floors=floors)
shown = display(live, display_id=True)
history = train(model, data, recipe, callback=live)
shown.update(live)  # as it is now, for a page without a kernel

# %% [markdown]
# Does it find the answers in the stories?

# %%
share = answer_accuracy(model, val_text, tokenizer)
if not is_yours:
    assert share > 0.9
print("above 0.9" if share > 0.9 else f"{share:.2f}: not yet")

# %% [markdown]
# “Not yet” has two usual reasons. With one layer the names are hard to find: in rung {speed_run} two of six single layers got there without token shift, and all six with it, on the parts and the optimizer of that rung. Or your model has hardly begun: how soon it learns depends on its first parameters. `nn.Embedding` is initialized with a standard deviation of 1, and with PyTorch's default initialization our own page learns to answer much later. Initialize each matrix with `nn.init.normal_(parameter, std=n_embd**-0.5)`, or take more steps.
#
# And does it write?

# %% tags=["nbval-ignore-output"]
newline = tokenizer.encode("\n")[None]
told = generate(
    model, newline, 200, generator=torch.Generator().manual_seed(1)
)
print(tokenizer.decode(told[0]))

# %% [markdown]
# ## Into rung {bigram_to_gpt}'s GPT
#
# A trained model is its parameters: numbers, with names. Do they fit into the GPT of rung {bigram_to_gpt}?

# %% tags=["folded"]
# Question
ask("names_that_do_not_fit")

# %%
block = data.val[None, :block_size]
try:
    rung_8.load_state_dict(written.state_dict())
    with torch.no_grad():
        away = (rung_8(block) - model(block)).abs().max()
    same = "are the same" if away < 1e-3 else "differ: look for the part"
    print(f"All names and shapes fit. The logits {same}.")
except RuntimeError as error:
    print("They do not fit:", str(error).splitlines()[1].strip()[:300])

# %% [markdown]
# If yours do not fit, nothing is wrong with it. Names and shapes are a choice: separate matrices for q, k and v, biases, another order. Then a few lines have to translate.
#
# ## Prove
#
# Our page and rung {bigram_to_gpt}'s GPT were written apart: loops, masks and classes differ. With the same parameters they are the same function. And the examination finds nothing in either.

# %% tags=["proof"]
page = EXERCISES["gpt"].reference(V, block_size)
rung_8 = GPT(GPTConfig(V, block_size))
rung_8.load_state_dict(page.state_dict())
texts = torch.randint(V, (4, block_size))
torch.testing.assert_close(page(texts), rung_8(texts))
for each in (page, rung_8):
    assert examine(each, **sizes, train=False)

# %% [markdown]
# ## Explore
#
# **Which bugs look alike from outside, and which question tells them apart?**
#
# Choose a bug, and look at the table first. Find two bugs with the same table, and then the panel in which they differ.

# %% tags=["folded"]
# Explorer: planted bugs, and what is seen of them from outside
explore("planted_bugs")

# %% [markdown]
# ## Break it
#
# Three models, each with one bug, drawn anew whenever you run the cell. Say which, before you examine.

# %% tags=["nbval-ignore-output"]
generator = torch.Generator()
generator.seed()  # other bugs each time
bugs, broken = draw_bugs(3, generator), []
for bug in bugs:
    torch.manual_seed(0)
    broken.append(plant(bug))

# %% [markdown]
# Ask them. Here are their tables; a model whose logits have another shape has none. What would you ask next? A second call with the same ids, the same text in a batch, the first loss, the gradients: `broken[0](torch.arange(8)[None])[0]` are logits. (Or read the code: `print(source_of(bugs[0]))`, from `attention_course.examine.planted`. `print(*BUGS)` lists all names.)

# %% tags=["folded", "nbval-ignore-output", "name:tables"]
# Picture: which outputs of the three change with which tokens
panels = []
for number, each in enumerate(broken, start=1):
    each.eval()
    some = torch.arange(8)
    logits, _ = each(some[None])
    if logits.shape != (1, 8, each.vocab_size):
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

# %%
my_guesses = ["", "", ""]  # which bug has which model?

# %% tags=["nbval-ignore-output"]
for bug, each, guess in zip(bugs, broken, my_guesses):
    its = {"vocab_size": each.vocab_size, "block_size": each.block_size}
    report = examine(each, **its, train=False)
    assert report.findings[0].name == bug.finding
    print(f"You said: {guess or 'nothing yet'}. It is: {bug.name}.")
    print(report.findings[0], end="\n\n")

# %% [markdown]
# The first finding is the one that is meant for the bug. It names the place where to look, not the line: a leak may come from the mask, from `view` without `transpose`, or from a norm over time.
#
# ## Examine something you did not write
#
# `examine` knows nothing about this course. If `transformers` is installed, here is its GPT-2 with random parameters, at a small size.

# %% tags=["nbval-ignore-output"]
if find_spec("transformers"):
    from transformers import GPT2Config, GPT2LMHeadModel, logging

    logging.set_verbosity_error()
    small = {"n_positions": block_size, "n_embd": 64, "n_head": 4}
    ends = {"bos_token_id": 0, "eos_token_id": None}
    config = GPT2Config(vocab_size=V, n_layer=2, **small, **ends)
    report = examine(GPT2LMHeadModel(config), **sizes, train=False)
    assert report
    print(report.headline)
    print(report.findings[0])

# %% [markdown]
# Its `generate` stops with an error where rung {bigram_to_gpt}'s crops the text: doubtful, and meant so.
#
# And the real model of rung {a_real_model}, if it was fetched there. A block of 16 tokens is enough to ask, and takes about half a minute.

# %%
if not smollm_path().exists():
    skip_cells("# With SmolLM2:")

# %% tags=["nbval-ignore-output"]
# With SmolLM2: nothing is wrong, and one finding is doubtful.
real, its_tokenizer = load_smollm()
report = examine(
    real, vocab_size=its_tokenizer.vocab_size, block_size=16, train=False
)
assert report
print(report.headline)
print(report.findings[0])

# %% [markdown]
# Doubtful is the first loss: on random tokens it is far above ln V. Nothing has to be mended. This model is trained, and a trained model is sure of what comes next, also where nothing makes sense. The report says so in brackets.
#
# ## Exercises
#
# The page was the first. Two questions of an examiner follow. Both treat the model as a black box.
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
# ## In the wild
#
# - Andrej Karpathy (2019) does the same by hand, in "A Recipe for Training Neural Networks": verify the first loss, overfit one batch, and find by gradients which outputs depend on which inputs.
# - `transformers` tests each of its models from outside, too: a text in a batch has to give what it gives alone, and a cache what no cache gives.
# - Our questions need seconds. With `train=True`, the default, `examine` also lets the model learn one batch by heart, and then the stories; it warns if the loss falls below their entropy.
#
# ## What to read, what to build
#
# - nanoGPT, `model.py`: read it from top to bottom, beside your page. It is 330<!--given--> lines long.
# - "Attention Is All You Need" (Vaswani et al. 2017), and the report on GPT-2 (Radford et al. 2019). You know every part of the models in them, but you will have to look up beam search, label smoothing and BLEU.
# - "A Mathematical Framework for Transformer Circuits" (Elhage et al. 2021), for what heads do together.
# - Build: your page on a text of your own (rung {bigram_to_gpt} has the command), with byte pairs in place of characters, with the cache and the rotary positions of rung {a_real_model}. Examine it after each change.
#
# ## Three sentences to remember
#
# 1. A GPT is seven parts on one page; attention is the only one in which tokens meet.
# 2. Right shapes and a falling loss prove little: ask what each output depends on, and what it must not depend on.
# 3. Mend the first finding, then ask again.
#
# That is the last rung. The first one was a mean of the past, in two loops.
#
# <!--neighbours-->
