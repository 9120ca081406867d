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
# <!--task after_pretraining_halve-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("after_pretraining_halve")

# %%
def my_half(x):
    raise NotImplementedError


check("after_pretraining_halve", my_half)

# %% [markdown]
# ## To remember
#
# Half and half make {{1 / 2 + 1 / 2:.0f}}.
#
# <!--neighbours-->
