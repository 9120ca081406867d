# %% [markdown]
# # Rung {after_pretraining}: after_pretraining
#
# <!--ladder-->
#
# **You will build** half of a number.

# %% tags=["hero", "folded"]
# The opening picture: drag the ring
from attention_course.heroes import hero

hero("after_pretraining")

# %% [markdown]
# **You need** [rung {bag_of_words}]({bag_of_words}.ipynb).
#
# <!--time-->
#
# <!--test-out-->
#
# ![The transformer as a drawing. Lit is what this rung builds: the logits.](images/transformer_after_pretraining.svg)

# %% tags=["folded"]
# Two questions from the rungs below
from attention_course.questions import warm_up

warm_up("after_pretraining")

# %% [markdown]
# ## The question
#
# How much is half of one?

# %%
from attention_course.exercises import check
from attention_course.explorers import explore
from attention_course.fills import fill
from attention_course.questions import ask

print(1 / 2)

# %% tags=["folded"]
# Question
ask("after_pretraining_half")

# %% [markdown]
# ## Explore

# %% tags=["folded"]
# Explorer
explore("after_pretraining")

# %% [markdown]
# ## Prove

# %% tags=["proof"]
assert 1 / 2 + 1 / 2 == 1

# %% [markdown]
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
# ### 3. Better than the others
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
# ## To remember
#
# Half and half make {{1 / 2 + 1 / 2:.0f}}.
#
# <!--neighbours-->
