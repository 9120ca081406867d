"""The attention ladder: notebooks that climb from a mean of the past to a GPT, and into a real model.

Read in this order, the modules are the course again; each imports only from those above it.

- `variants`: questions with other numbers each time.
- `ladder`, `names`: the rungs, in order; lookup of names that a learner typed.
- `patching`: patches of source code, for mistakes and bugs.
- `files`: writing a file in one step; printing what others wrote.
- `apart`: a process apart, for code that may crash or hang.
- `checks`: input validation.
- `averaging`: the causal mean.
- `attention`: from the mask to multi-head attention.
- `gpt`: the models.
- `llama`: the parts of a model of today.
- `smollm`, `heads`: a real model, and what its heads look at.
- `flash`: attention without its table of scores.
- `stories`: a synthetic text whose entropy is known.
- `text`: from characters to batches.
- `training`: from a batch to a trained model.
- `plots`: figures of tensors.
- `speedrun`: a recipe that takes seconds.
- `answering`: fine-tuning, LoRA, and learning from a reward.
- `examine`: an examination of any model.
- `progress`: what a learner has done, in a file.
- `heroes`, `explorers`, `exercises`, `questions`: the interactive parts, which know no rung.
- `workspace`: the copy of the notebooks that a learner works in.
- `certificate`: what the examiner says of a learner's own GPT, in a file.
- `fills`: code with gaps, all choices judged beforehand.
- `classroom`: questions to vote on with phones.
- `review`: what was missed, again.
- `rungs`: the rungs, a folder each.
- `__main__`: the command that makes it and opens it.
- `pytest_plugin`: a fixture, `examine`, for tests of one's own models.
"""

from importlib.metadata import version

__version__ = version("attention-course")
