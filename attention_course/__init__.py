"""The attention ladder: eight notebooks from a mean of the past to a GPT.

Read in this order, the modules are the course again; each imports only from those above it.

- `ladder`, `names`: the rungs, in order; lookup of names that a learner typed.
- `checks`: input validation.
- `averaging`: rungs 1 to 3, the causal mean.
- `attention`: rungs 3 to 7, from the mask to multi-head attention.
- `gpt`: rung 8, the models.
- `stories`: rung 8, a synthetic text whose entropy is known.
- `text`: rung 8, from characters to batches.
- `training`: rung 8, from a batch to a trained model.
- `plots`: figures of tensors.
- `explorers`, `exercises`, `questions`: the interactive parts.
"""
