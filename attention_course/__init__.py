"""The attention ladder: notebooks that climb from a mean of the past to a GPT, and into a real model.

Read in this order, the modules are the course again; each imports only from those above it.

- `ladder`, `names`: the rungs, in order; lookup of names that a learner typed.
- `apart`: a process apart, for code that may crash or hang.
- `checks`: input validation.
- `averaging`: rungs 1 to 3, the causal mean.
- `attention`: rungs 3 to 7, from the mask to multi-head attention.
- `gpt`: rung 8, the models.
- `llama`: rung 9, the parts of a model of today.
- `smollm`, `heads`: rung 9, a real model, and what its heads look at.
- `flash`: rung 10, attention without its table of scores.
- `stories`: rung 8, a synthetic text whose entropy is known.
- `text`: rung 8, from characters to batches.
- `training`: rung 8, from a batch to a trained model.
- `plots`: figures of tensors.
- `speedrun`: rung 10, a recipe that takes seconds.
- `examine`: rung 11, an examination of any model.
- `progress`: what a learner has done, in a file.
- `heroes`, `explorers`, `exercises`, `questions`: the interactive parts.
- `workspace`: the copy of the notebooks that a learner works in.
- `__main__`: the command that makes it and opens it.
"""

from importlib.metadata import version

__version__ = version("attention-course")
