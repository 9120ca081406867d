"""The explorer of scores, a mask and a temperature."""

import math

import torch
from explorers.words import entropy


def says(out, temperature, masked, **scores):
    seen = 3 if masked else 4
    expected = torch.softmax(torch.tensor(list(scores.values())[:seen]) / temperature, dim=0)
    torch.testing.assert_close(out["weights"][:seen], expected)
    torch.testing.assert_close(out["exp"] / out["exp"].sum(), out["weights"])
    yield f"sees {seen} keys. The entropy of its weights is {entropy(expected):.2f} nats, of at most "
    hidden = " The mask sets the score of “Sam” to −∞, whatever it was." if masked else ""
    perplexity = math.exp(entropy(expected))
    yield f"ln {seen} = {math.log(seen):.2f}, and the perplexity is {perplexity:.1f}.{hidden}"
