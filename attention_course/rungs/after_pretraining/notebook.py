# %% [markdown]
# # Rung {after_pretraining}: it learns to answer
#
# <!--ladder-->
#
# **You will build** the loops that turn a model that continues texts into one that answers questions, and a reward that it learns to game.
#
# The GPT in rung {bigram_to_gpt} answered because every question in its text came with an answer. Most text isn't like that. What happens if you put a question to a GPT that has read exercise sheets?

# %% tags=["hero", "folded"]
# The opening picture: guess first, then see what it writes
from attention_course.heroes import hero

hero("after_pretraining")

# %% [markdown]
# **You need** [rung {bigram_to_gpt}]({bigram_to_gpt}.ipynb) for the training loop, and near the end [rung {a_real_model}]({a_real_model}.ipynb).
#
# <!--time--> Training takes about a minute and a half in all.
#
# <!--test-out-->

# %% tags=["folded"]
# Two questions from the rungs below
from attention_course.questions import warm_up

warm_up("after_pretraining")

# %% [markdown]
# ![The transformer as a drawing. This rung changes nothing in it, but trains the highlighted logits on other targets.](images/transformer_after_pretraining.svg)
#
# ## An exam
#
# Each line of the training text is one sheet, with a fact and three questions. On four sheets in ten, somebody has filled in the answers.

# %% tags=["folded"]
# Imports
import copy
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrize import register_parametrization

from attention_course.answering import (
    TOKENIZER,
    accuracy,
    new_questions,
    draw_sheet,
    group_advantage,
    kl_per_token,
    sloppy,
    train_base,
    true_answer,
    with_answers,
    write_answers,
)
from attention_course.attention import Cache
from attention_course.examine import examine
from attention_course.exercises import check
from attention_course.explorers import explore
from attention_course.fills import fill
from attention_course.gpt import generate
from attention_course.progress import progress
from attention_course.questions import ask
from attention_course.rungs.after_pretraining.measured import (
    by_kind,
    measured,
    scores,
    spread,
)
from attention_course.smollm import load_smollm, skip_cells

progress("after_pretraining")

# %% tags=["do"]
rng = random.Random(1)
for _ in range(5):
    print(draw_sheet(rng), end="")

# %% tags=["long:1000"]
base = train_base(steps=1000)  # takes about a minute

# %% tags=["nbval-ignore-output", "name:exam"]
# an exam about stories that are in no sheet
exam = new_questions(random.Random(999), 300, held_out=True)


def show(model, questions=exam[2:8]):
    _, _, answers = write_answers(model, questions, temperature=0)
    for question, answer in zip(questions, answers):
        print(f"{question.prompt:56}{answer!r}")
    print(f"right: {accuracy(model, exam):.2f}")


show(base)

# %% tags=["folded"]
# Question
ask("none_of_300")

# %% [markdown]
# It answers none of the questions, because it always takes the likeliest letter, and on most sheets another question comes next. A model that has only been pretrained is called a **base model**. Instead of answering you, it continues your text.
#
# But does it know the answer? Start the answer yourself, then try other questions and other first letters.


# %% tags=["do", "nbval-ignore-output"]
def go_on(model, text):
    # newlines on the left, to the length of the other prompts
    ids = TOKENIZER.encode("\n" * (58 - len(text)) + text)[None]
    written = generate(model, ids, 12, temperature=0, cache=Cache())
    return TOKENIZER.decode(written[0, ids.shape[1] :])


# twelve letters, so it breaks off in the middle of what follows
go_on(base, "Kind Tom gave poor Ben a kite at the barn. Who got it? P")

# %% tags=["folded", "name:base"]
# Measured beforehand: five base models, each from a different seed
print("measured on", measured()["machine"])
begun = by_kind("base", of="begun {}")
sampled = spread("base", "sampled")
print(f"alone:              {by_kind('base')}")
print(f"first letter given: {begun}")
print(f"sampled, all kinds: {sampled}")
assert not any(scores("base", "greedy"))
for kind in ("thing", "place"):
    assert min(scores("base", f"begun {kind}")) > 0.99
who = spread("base", "begun receiver")

# %% [markdown]
# We trained five such models. On its own, each answers nothing in the exam of 300. Given the first letter, all five get every “What?” and every “Where?” right, so that skill is there, and what's missing is the habit of using it. (“Who got it?” is harder, and there the five score {{who}}.) Even the habit isn't missing entirely. When they sample, they score {{sampled}}, because on some sheets the answer did come next.
#
# ## Show it what you want
#
# So let's show it. **Supervised fine-tuning**, or SFT, trains the same model a little longer, on examples of what you want, here questions with answers. Each example is one row, a prompt and its answer.

# %% tags=["nbval-ignore-output", "name:rows"]
three = new_questions(random.Random(1), 3)
ids, is_answer = with_answers(three, [each.answer for each in three])
for row, mask in zip(ids, is_answer):
    print(TOKENIZER.decode(row).replace("\n", "↵"))
    print("".join(" ^"[int(each)] for each in mask))

# %% tags=["folded"]
# Question
ask("what_the_prompt_teaches")

# %% [markdown]
# The usual choice is to leave the prompt out of the loss, because you'll always write it yourself. Its letters are still read, and the answer attends to them, but they aren't targets. For such positions PyTorch's cross-entropy has a special target, `ignore_index`, which it leaves out of the mean.

# %% tags=["folded"]
# Fill in: the loss of the answers alone
fill("answer_loss")


# %% tags=["folded", "name:answer_loss"]
# The loss of the answers alone
def answer_loss(logits, targets, is_answer):
    targets = targets.masked_fill(~is_answer, -100)
    return F.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=-100
    )


# %% [markdown]
# The rest is the training loop you know, with 32 examples per step.


# %%
def fine_tune(
    model, steps, lr=1e-3, seed=0, answer=true_answer, loss_of=answer_loss
):
    rng = random.Random(seed)
    learns = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(learns, lr, weight_decay=0)
    for _ in range(steps):
        questions = new_questions(rng, 32)
        answers = [answer(question, rng) for question in questions]
        ids, is_answer = with_answers(questions, answers)
        loss = loss_of(model(ids[:, :-1]), ids[:, 1:], is_answer[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(learns, 1.0)
        optimizer.step()


# %% tags=["folded"]
# Question
ask("how_many_steps")

# %% tags=["do", "nbval-ignore-output"]
tuned = copy.deepcopy(base)
fine_tune(tuned, steps=10)
show(tuned)

# %% tags=["folded", "long"]
# Check: ten steps are enough for most answers
assert accuracy(base, exam) < 0.05
assert accuracy(tuned, exam) > 0.6

# %% [markdown]
# Ten steps took about a second, and a model that answered nothing now gets most of the exam right. Did it learn to look things up in ten steps? Try one step, then look at three controls with the same ten: a new GPT that has never read a sheet, one that has read as much text as ours, but only blank sheets, and our base model, tuned on answers that belong to *other* stories.

# %% tags=["folded", "name:controls"]
# Measured beforehand: ten steps, and what they do without the skill
controls = ("answers", "a new model", "blank sheets", "answers of others")
for control in controls:
    print(f"{control:20}{by_kind(control, steps=10)}")
blank = spread("blank sheets", "greedy", steps=10)
others_tuned = spread("answers of others", "greedy", steps=10)
assert not any(scores("a new model", "greedy", steps=10))
assert max(scores("answers of others", "greedy", steps=10)) < 0.5
for kind in ("thing", "place"):
    assert min(scores("answers", kind, steps=10)) > 0.98
    assert max(scores("blank sheets", kind, steps=10)) < 0.5
print(f"{'120 steps, new':20}{by_kind('a new model', steps=120)}")
print(f"all kinds: blank sheets {blank}, answers of others {others_tuned}")
assert min(scores("a new model", "greedy", steps=120)) > 0.99

# %% [markdown]
# The new GPTs answer nothing, and those that have read blank sheets score {{blank}} in all. So ten steps don't teach the skill. Tuned on others' answers, our base models score {{others_tuned}}, so form alone isn't enough. With true answers they get nearly every “What?” and “Where?” right, which they could do before, and “Who got it?” about as often as with the first letter given. So ten steps bring out what pretraining put in. Zhou et al. (2023), who tuned a large model on a thousand good answers, suspect the same of large models.
#
# Then why pretrain at all? After 120 steps the new GPT also answers nearly everything. But somebody had to write the 3,840<!--given--> answers that it read, while plain text already exists.
#
# ### More: does it matter that the prompt is left out?
#
# Let's measure it. We tuned copies of the five models on all letters, and other copies with the answers making up over half of the loss, so that the prompts don't swamp them.

# %% tags=["folded", "name:prompts"]
# Measured beforehand: with the prompt in the loss, and without it
ways = ("answers", "with the prompt", "with the prompt, answers heavier")
for way in ways:
    for steps in (10, 120):
        greedy = spread(way, "greedy", steps)
        prompts = spread(way, "prompts", steps)
        print(f"{way:33}{steps:4}  {greedy:13} prompts {prompts}")
by_seed = zip(*(scores(way, "greedy", 120) for way in ways))
fifth, *others = sorted(by_seed)
assert min(map(min, others)) > 0.98 > max(fifth)
for without, counted, heavier in (fifth, *others):
    assert counted <= without
before = scores("base", "prompts")
print(
    f"before, nats per letter of the prompts: {spread('base', 'prompts')}"
)
for way, better in zip(ways, (1, 5, 5)):
    after = scores(way, "prompts", 120)
    assert sum(a < b for a, b in zip(after, before)) == better

# %% [markdown]
# After ten steps all three ways give about equally good answers. After 120 steps, counting every letter equally never helped, and it cost one of the five models a good deal, {{fifth[1]:.2f}} instead of {{fifth[0]:.2f}}. One model isn't much evidence, and when the answers weigh more, most of the damage is gone ({{fifth[2]:.2f}}).
#
# What's left out may be forgotten, though. When the prompt counts, its loss falls in all five models; otherwise it rises in four. That's called catastrophic forgetting, and fewer steps, a smaller learning rate or some of the old text in each batch make it milder. With long prompts, short answers and few examples, Shi et al. (2024) found that counting the prompt can even help the answers, so try both.
#
# ### More: padding, and the token that ends an answer
#
# Rows in a batch have to be equally long, so the short ones are padded. We pad with newlines, on the left of the prompt and after the answer, and none of them is a target. (Prompts with empty lines before them are nothing new to this base model, since its text began with up to 24<!--given--> of them. For other models you'd mask the padding on the left, and count positions from the first real token.)
#
# Here it's a target's position that decides whether it counts. Many programs go by the token instead, and leave out every padding token. That's fine as long as no real token has the same id. But many tokenizers come without a padding token, and then people reuse the token that ends a text. Now leaving out the padding also leaves out the end of each answer, so the model never learns to stop. In our rows the full stop that ends an answer is a target, and the padding is a different character.
#
# ## Two thin matrices
#
# Fine-tuning trained all {{sum(p.numel() for p in base.parameters()):,}} parameters. Here that costs next to nothing, but a model with 70<!--given--> billion parameters takes 140<!--given--> GB at 16<!--given--> bits per number, and so does each tuned copy. Training takes several times as much, for gradients and for AdamW's two numbers per parameter.
#
# **LoRA** (Hu et al. 2021) leaves each matrix W as it is and adds a product of two thin ones, W + B A. If W is 256<!--given--> × 64<!--given-->, then with **rank** 1, B has a single column, and A a single row. B starts at 0, so at first you still have the old model.

# %% tags=["folded"]
# Question
ask("how_many_at_rank_1")


# %%
class LoRA(nn.Module):
    def __init__(self, W, rank):
        super().__init__()
        n_out, n_in = W.shape
        self.A = nn.Parameter(torch.randn(rank, n_in) * n_in**-0.5)
        self.B = nn.Parameter(torch.zeros(n_out, rank))

    def forward(self, W):
        return W + self.B @ self.A


def add_lora(model, rank):
    model.requires_grad_(False)
    for layer in model.transformer.h.modules():
        if isinstance(layer, nn.Linear):
            register_parametrization(
                layer, "weight", LoRA(layer.weight, rank)
            )


# %% [markdown]
# `register_parametrization` puts such a module behind a parameter, so that any code that asks for `layer.weight` gets W + B A. Only A and B get a gradient. Try rank 4, and compare.

# %% tags=["do", "nbval-ignore-output"]
thin = copy.deepcopy(base)
add_lora(thin, rank=1)
learns = sum(p.numel() for p in thin.parameters() if p.requires_grad)
fine_tune(thin, steps=10, lr=1e-2)
print(f"{learns:,} parameters are trained")
show(thin)

# %% tags=["folded", "name:ranks"]
# Measured beforehand: rank 1, 2, 4, and all parameters, after ten steps
rank_1 = spread("rank 1", "greedy", steps=10)
all_tuned = spread("answers", "greedy", steps=10)
for way in ("rank 1", "rank 2", "rank 4", "answers"):
    print(f"{way:8} {spread(way, 'greedy', steps=10)}")
weakest = [
    min(scores(way, "greedy", steps=120))
    for way in ("rank 1", "rank 4", "answers")
]
assert weakest == sorted(weakest)

# %% [markdown]
# Rank 1 scores {{rank_1}}, and tuning all parameters {{all_tuned}}, so here thin matrices are enough to bring the skill out. (The thin matrices got ten times the learning rate.)
#
# ### More: what LoRA is good for, and how it's merged
#
# AdamW keeps two numbers for each parameter that learns, so LoRA saves most of that memory, and all you store for each task is a file with its thin matrices. The forward and the backward pass still go through all of W, so a step isn't much faster.
#
# Hu et al. also multiply the product by a fixed number, α / rank, so that there's less to retune when the rank changes. And most programs don't form W + B A in each step. They compute x Aᵀ and then its product with Bᵀ, which is cheaper because both are thin. After training, the product can be added to W once and for all, which brings the model back to its old size and speed. Added in each step, computed beside W, or merged, B A gives the same outputs.
#
# And which rank? Bringing a skill out took rank 1 here. Learning something new may take more. After 120<!--given--> steps the weakest of our five models scores {{weakest[0]:.2f}} with rank 1, {{weakest[1]:.2f}} with rank 4, and {{weakest[2]:.2f}} with all parameters. (Again, that's one model.)

# %% tags=["proof"]
x = torch.randn(5, 64)
layer = copy.deepcopy(base).transformer.h[0].mlp.c_fc
W = layer.weight.detach()
register_parametrization(layer, "weight", LoRA(W, rank=2))
pair = layer.parametrizations.weight[0]
nn.init.normal_(pair.B)
merged = W + pair.B @ pair.A
beside = x @ W.T + x @ pair.A.T @ pair.B.T
torch.testing.assert_close(layer(x), x @ merged.T)
torch.testing.assert_close(layer(x), beside, atol=1e-4, rtol=1e-4)

# %% [markdown]
# ## No answers, only a verdict
#
# Suppose that nobody has written the answers down, but you can tell whether one is right. Often you can, because a program passes its tests or doesn't, and a sum is right or wrong. A **reward** is a number that grades an answer, and training on rewards is called **reinforcement learning**.


# %%
def right(question, answer):
    return float(answer == question.answer)


# %% [markdown]
# You can't take the gradient of `right`, because the letters were drawn, and a drawn letter doesn't change a little when a parameter does. But you can let the model write, see which answers earn a reward, and make those likelier. How much likelier? Sample eight answers to the same question. An answer that beat the group's mean should become likelier, and one that fell short of it, less likely. Its reward minus the mean is the **advantage**, measured here in standard deviations of the group. (You'll write `group_advantage` yourself, in the exercises.) Change the rewards below until a right answer gets an advantage of less than 1.


# %% tags=["do"]
group_advantage(torch.tensor([[1.0, 0, 0, 0, 0, 0, 0, 0]]))

# %% tags=["folded"]
# Question
ask("a_group_that_is_all_wrong")

# %% [markdown]
# Now turn that into a loss for the model (in this field, the policy). `log_p` holds the log-probability of each letter in each answer, and all letters of an answer share its advantage. If you raise a log-probability, that letter becomes likelier the next time. Gradient descent lowers a loss, and you want the letters of good answers to become likelier, and those of bad ones less likely.

# %% tags=["folded"]
# Fill in: the loss of what was written
fill("policy_loss")


# %% tags=["folded", "name:policy_loss"]
# The loss of what was written
def policy_loss(log_p, advantage, written):
    return -(advantage * log_p * written).sum() / written.sum()


# %% [markdown]
# Now for the loop, which is called REINFORCE (Williams 1992). The model writes 64 answers, in groups of 8 to the same question. Then we turn their rewards into advantages, one for each answer, and take one step. `written` marks the letters of each answer up to its end, and `yield` hands out what happened in each step, so that you can watch. (You'll need `reference` and `kl_weight` further down, and while `kl_weight` is 0 they change nothing.)


# %%
def reinforce(
    model,
    reward,
    steps,
    kl_weight=0.0,
    lr=3e-4,
    seed=0,
    advantage_of=group_advantage,
):
    reference = copy.deepcopy(model).requires_grad_(False)
    rng, generator = (
        random.Random(seed),
        torch.Generator().manual_seed(seed),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr, weight_decay=0)
    for _ in range(steps):
        questions = [q for q in new_questions(rng, 8) for _ in range(8)]
        ids, is_answer, answers = write_answers(
            model, questions, 1.0, generator
        )
        rewards = torch.tensor([*map(reward, questions, answers)]).view(
            8, 8
        )
        advantage = advantage_of(rewards).view(64, 1)

        logits, written = model(ids[:, :-1]), is_answer[:, 1:]
        log_p = -F.cross_entropy(
            logits.transpose(1, 2), ids[:, 1:], reduction="none"
        )
        kl = kl_per_token(logits, reference(ids[:, :-1]))
        loss = policy_loss(log_p, advantage, written)
        loss = loss + kl_weight * (kl * written).sum() / written.sum()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield answers, rewards, (kl * written).sum(dim=1).mean().item()


# %% [markdown]
# We start from the base model, without fine-tuning. Watch the reward from step to step.

# %% tags=["do", "long:40", "nbval-ignore-output", "name:rewarded"]
student = copy.deepcopy(base)
steps = 40
for step, (answers, rewards, _) in enumerate(
    reinforce(student, right, steps), start=1
):
    if step == 1 or step % 5 == 0:
        print(f"{step:3}  reward {rewards.mean():.2f}  {answers[0]!r}")
show(student)

# %% tags=["folded", "name:verdicts"]
# Measured beforehand: other rewards, and a new GPT, after 40 steps
for run in ("base, right", "base, coin", "new, right"):
    print(f"{run:13}{by_kind(run)}")
knew, found = scores("base", "begun"), scores("base, right", "greedy")
coin = scores("base, coin", "greedy")
print("five models, one by one")
for name, each in {"knew": knew, "found": found, "coin": coin}.items():
    print(f"{name:8}", *(f"{score:.2f}" for score in each))
for one, other in zip(knew, found):
    assert abs(one - other) < 0.1
bare = spread("base, right, no advantage", "greedy")
by_coin = [scores("base, coin", kind) for kind in ("thing", "place")]
drawn = zip(scores("base, coin", "sampled"), scores("base", "sampled"))
better = [after > before for after, before in drawn]
assert better == [score > 0.5 for score in coin]
assert all([sorted(kind) == [0, 0, 0, 1, 1] for kind in by_coin])
who_by_coin = zip(coin, scores("base, coin", "receiver"))
assert not any(who for score, who in who_by_coin if score > 0.5)
assert not any(scores("new, right", "greedy"))

# %% [markdown]
# The reward rises (in zigzags, because each step asks so few questions), although nobody showed the model an answer here. (It had read some on its sheets, which is why it sometimes writes one.) Compare what each model scored when you gave it the first letter (“knew”) with its score now (“found”). In 40 steps the reward brought out what was there, and hardly more. A new GPT never writes a right answer, so the rewards in each group are all equal and nothing happens. **Reinforcement finds what the model already writes sometimes.** It can't reward an answer that the model never writes.
#
# Now look at “coin”, where a coin decides the reward. A coin knows no answers, so you'd expect none right. Three models answer next to nothing, but the other two get every “What?” and every “Where?” right, though no “Who got it?”. Sampled, these two score higher than before and the other three lower, so the coin pushed them around at random, which can be enough to turn a question into an answer. With a single seed, you might have credited the coin.
#
# ### More: random rewards, and rewards without a mean
#
# Rulin Shao et al. (2025) saw the maths scores of Qwen models rise under random rewards, and often not those of Llama or OLMo. They trace it to PPO's clipping, a limit on each update (see “in the wild”). Our loop has none, so ours is another effect, with the same warning.
#
# What does the group's mean bring? With the bare reward, 0 or 1, instead of the advantage, our five models score about as well ({{bare}}). Here the questions are easy and the steps few. In general the mean takes out noise, and pushes bad answers down directly.
#
# ## Break it: a reward that's easier to check
#
# `right` needs to know the true answer. That's expensive if people have to check, so let's be clever. “Who got it?” is answered with a name, and it's easy to check whether an answer names somebody from the story.


# %%
def names_somebody(question, answer):
    story = question.story
    return float(story.giver in answer or story.receiver in answer)


# %% [markdown]
# Of course, “What?” and “Where?” aren't answered with a name. But the model knows that already, doesn't it? We start from a model that was tuned for 60 steps on sloppy answers, because real ones are sloppy too. About 13<!--given--> % of them answer another question about the story.

# %% tags=["long:60", "nbval-ignore-output"]
start = copy.deepcopy(base)
fine_tune(start, steps=60, answer=sloppy)
show(start)

# %% tags=["do", "long:40", "nbval-ignore-output", "name:cheated"]
cheat, rose = copy.deepcopy(start), []
for _, rewards, _ in reinforce(cheat, names_somebody, steps=40):
    rose.append(rewards.mean().item())
for i in range(0, 40, 5):
    print(f"{i + 1:3} to {i + 5:2}  reward {sum(rose[i : i + 5]) / 5:.2f}")
show(cheat)

# %% tags=["folded", "long"]
# Check: the reward rises, and most answers become wrong
assert sum(rose[-5:]) > sum(rose[:5]) + 1
assert accuracy(cheat, exam) < 0.6 < accuracy(start, exam)

# %% [markdown]
# It found out that names pay. Ask it what was given, and it names a person. (In three of our five models most answers earn nothing, because it's often somebody outside the story.)
#
# Nothing is broken here. The model moves to where the reward is, but we rewarded the wrong thing. That's called **reward hacking**, and you can't see it in the reward curve. What if we reward `right`, or start from clean answers?

# %% tags=["folded"]
# Question
ask("after_clean_answers")

# %% tags=["folded", "name:cheats"]
# Measured beforehand: the same start, two rewards; and a clean start
runs = {
    "before": "sloppy",
    "rewarded for right": "right, 0.0",
    "rewarded for a name": "names_somebody, 0.0",
    "clean, before": "clean",
    "clean, for a name": "clean, names_somebody",
}
for name, run in runs.items():
    print(f"{name:22}{by_kind(run)}")
sampled_before = spread("sloppy", "sampled")
sampled_free = spread("right, 0.0", "sampled")
cheated = spread("names_somebody, 0.0", "greedy")
print(f"all kinds, rewarded for a name: {cheated}")
print(f"sampled, before and for right: {sampled_before}, {sampled_free}")
earned = [
    sum(seed["rewarded"]["names_somebody, 0.0"]["reward"][-5:]) / 5
    for seed in measured()["seeds"]
]
assert sum(share < 0.5 for share in earned) == 3
kinds = ("thing", "place")
for kind in kinds:
    assert not any(scores("names_somebody, 0.0", kind))
    assert min(scores("right, 0.0", kind)) > 0.99
weakest, *others = sorted(
    zip(
        scores("clean", "greedy"),
        scores("clean, names_somebody", "greedy"),
        scores("clean, names_somebody", "receiver"),
    )
)
assert weakest[2] == 0
assert max(abs(before - after) for before, after, _ in others) < 0.01

# %% [markdown]
# Paid for names, all five get every “What?” and “Where?” wrong, and score only {{cheated}}. Rewarded for right answers from the same start, the models keep both right, and {{sampled_free}} of all sampled answers are right, up from {{sampled_before}}.
#
# Paid for names after clean answers, four of the five hardly change, and the weakest gets worse. It was the sloppy start that let them cheat.
#
# Would rung {an_empty_page}'s examiner, which tests models, have noticed?

# %% tags=["do", "nbval-ignore-output"]
report = examine(cheat, vocab_size=TOKENIZER.vocab_size)
print("anything wrong?", report.wrong)

# %% [markdown]
# It finds nothing wrong, because it only asks whether a program computes what a causal language model has to compute, and this one does. No test of the program can tell you whether you asked for the right thing. That takes an exam of what you meant, such as ours.
#
# ## A leash
#
# So people who train with rewards often keep the model on a leash. The loss then also includes how far the model has moved from its reference, the model it began as. The **KL divergence** is the log-probability of a letter under the model, minus that under the reference, averaged over what the model would write next. In the loop it's `kl`, and a larger `kl_weight` is a shorter leash.
#
# Make `now` more like `before`, then nearly certain, and watch the divergence.

# %% tags=["do"]
# two letters to choose from: the model now, and its reference
now, before = torch.tensor([0.9, 0.1]), torch.tensor([0.5, 0.5])
(now * (now.log() - before.log())).sum()

# %% [markdown]
# It falls to 0, then rises towards ln 2, and `kl_per_token` computes it at each position.

# %% tags=["folded"]
# Question
ask("divergence_at_the_start")

# %% [markdown]
# The explorer's third reward grows with an answer's length, from 0 to 1. **Which leash best keeps the model honest when it's paid for names?** (1 is the shortest.)

# %% tags=["folded"]
# Explorer: three rewards, three leashes, measured beforehand
explore("after_pretraining")


# %% tags=["folded", "name:leashes"]
# Measured beforehand: how far the models move, and a leash of 1
def moved(run):
    kl = [sum(seed["rewarded"][run]["kl"][-5:]) / 5 for seed in seeds]
    return f"{min(kl):.1f} to {max(kl):.1f}"


seeds = measured()["seeds"]
far, near = moved("names_somebody, 0.0"), moved("right, 0.0")
print(f"without a leash: {far} nats for names, {near} for right answers")
sampled_held = spread("right, 1.0", "sampled")
kept = spread("names_somebody, 1.0", "greedy")
print(f"sampled, before: {sampled_before}")
print(f"rewarded for right answers, without a leash: {sampled_free}")
print(f"the same with a leash of 1: {sampled_held}")
cheats_held = spread("names_somebody, 1.0", "sampled")
print(f"rewarded for names, with a leash of 1: {kept}")
print(f"the same, sampled: {cheats_held}")
for kind in ("thing", "place"):
    assert min(scores("names_somebody, 1.0", kind)) > 0.99
    assert not any(scores("names_somebody, 0.1", kind))


def after_leash(reward, what):
    runs = [seed["rewarded"][f"{reward}, 1.0"] for seed in seeds]
    return [run["after"][what] - run["before"][what] for run in runs]


assert max(after_leash("names_somebody", "sampled")) < 0
lost = after_leash("long", "receiver")
assert max(lost) < 0
long = seeds[lost.index(min(lost))]["rewarded"]["long, 1.0"]
long_before, long_after = (
    long[when]["receiver"] for when in ("before", "after")
)
print(
    "paid for length, who got it: "
    f"{long_before:.2f} to {long_after:.2f} at worst"
)

# %% [markdown]
# With a leash of 1<!--given--> the likeliest answers to “What?” and “Where?” stay right in all five models, and with 0.1 in none. Without a leash, the cheating models end up {{far}} nats per answer from where they began, and the honest ones only {{near}}. So a leash of 1 costs a cheat several times what it costs an honest model. Yet when sampled, the models paid for names score {{cheats_held}} on this leash, less than before ({{sampled_before}}).
#
# A leash can work because the model was mostly honest at the start. It doesn't know what you meant. It favours what's close, and if you pay for length, all five models get worse at “Who got it?” even on a leash of 1<!--given-->, one of them from {{long_before:.2f}} to {{long_after:.2f}}. (The explorer's mean hides that.)
#
# ## What it looks like in a real model
#
# SmolLM2, from rung {a_real_model}, was tuned on conversations, in which each turn begins with `<|im_start|>` and ends with `<|im_end|>`, and that leaves traces. Give it a question as plain text, without either.

# %% tags=["name:fetch", "long"]
try:
    model, tokenizer = load_smollm()
except OSError as error:
    print(error)
    skip_cells("# With SmolLM2:")


# %% tags=["do"]
# With SmolLM2: a question as plain text
def say(text, tokens):
    ids = tokenizer.encode(text)[None]
    written = generate(model, ids, tokens, temperature=0, cache=Cache())
    return tokenizer.decode(written[0, ids.shape[1] :])


print(say("What is the capital of France?", 14))

# %% [markdown]
# It writes the end of *your* turn, then opens its own, and only then answers. Hardly any page on the web looks like that, but every conversation it was tuned on does. Ask it something else.
#
# The control would be its base model, which we don't have here. So this shows what the tuned model does, and only hints at which training did it.
#
# ## More: in the wild
#
# - InstructGPT (Ouyang et al. 2022) was trained in three steps, of which you know two. After supervised fine-tuning, its reward came from a second model, which had learned from people's comparisons of answers (reinforcement learning from human feedback, RLHF). The algorithm was PPO (Schulman et al. 2017), which takes several steps on the same answers. After the first of those steps the answers no longer come from the current model, so PPO weights them by the ratio of the new probability to the old one, and clips that ratio. Instead of the mean of a group, it subtracts another network's prediction of the reward.
# - GRPO (Shao et al. 2024) keeps PPO's ratio and clipping, but replaces that network with the mean of a group. With one step per batch of answers, as here, the ratio is 1 and nothing gets clipped, so what's left is nearly your loop. (GRPO first averages within each answer, so a letter of a long answer counts less.)
# - DeepSeek-R1-Zero (2025) was trained with GRPO and rewards that a program can check, such as the result of a calculation. Like your `student`, it started from a base model, without any examples. DeepSeek-R1 itself also had examples at the start, a second fine-tuning, and reward models for what no program can check.
# - DPO (Rafailov et al. 2023) needs neither a reward model nor sampling during training. It takes pairs of answers, a preferred one and a rejected one, and raises the difference of their log-probabilities, both measured against a reference model. (The preferred one's own probability may even fall.) So the reference is a leash again. After its conversations, SmolLM2 was also tuned with DPO.
# - Gao et al. (2023) let a model chase a learned reward for longer and longer. That reward kept rising, while the true reward (a larger reward model stood in for it) rose and then fell. A leash only did what stopping early does.
# - Our leashes of 0.1<!--given--> and 1<!--given--> belong to this toy. GRPO's authors used 0.04<!--given-->, and where a program checks the answers, many people drop the leash, which saves the reference's memory.
#
# ## Exercises
#
# ### 1. The loss of the answers
#
# <!--task masked_loss-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("masked_loss")


# %%
def my_masked_loss(logits, targets, is_answer):
    raise NotImplementedError


check("masked_loss", my_masked_loss)

# %% [markdown]
# ### 2. LoRA
#
# <!--task lora-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("lora")


# %%
def my_lora(x, W, A, B, alpha):
    raise NotImplementedError


check("lora", my_lora)

# %% [markdown]
# ### 3. The advantage of a group
#
# <!--task group_advantage-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("group_advantage")


# %%
def my_group_advantage(rewards):
    raise NotImplementedError


check("group_advantage", my_group_advantage)

# %% [markdown]
# ### 4. How far from the reference
#
# <!--task kl_per_token-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("kl_per_token")


# %%
def my_kl_per_token(logits, reference):
    raise NotImplementedError


check("kl_per_token", my_kl_per_token)

# %% [markdown]
# ## Three sentences to remember
#
# 1. A base model continues your text; a few steps on examples make it answer, mostly by bringing out what pretraining put in.
# 2. Reinforcement makes an answer likelier if it beats its group's mean, so the model has to be right at least sometimes.
# 3. A model learns what you reward, not what you meant, so measure what you meant with an exam that isn't the reward.
#
# Next: [rung {an_empty_page}]({an_empty_page}.ipynb), where you write a GPT on an empty page, and an examiner looks for what's wrong.
#
# <!--neighbours-->
