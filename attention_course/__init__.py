"""The attention ladder: eight notebooks from a mean of the past to a GPT.

Read the modules in this order and they are the course again; each imports only from those above it.

- `ladder`, `names`: the rungs, in order; how a thing is looked up by the name that a learner typed.
- `checks`: what the functions ask of their input.
- `averaging`: rungs 1 to 3, the mean of the past.
- `attention`: rungs 3 to 7, from the mask to many heads.
- `gpt`: rung 8, the models.
- `stories`: rung 8, a text whose entropy is known.
- `text`: rung 8, from characters to batches.
- `training`: rung 8, from a batch to a trained model.
- `plots`: pictures of tensors.
- `explorers`, `exercises`, `questions`: what a learner moves, writes and answers.
"""
