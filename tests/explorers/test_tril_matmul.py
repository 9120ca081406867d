"""The explorer of weights times tokens."""

import torch
from explorers.words import written

from attention_course.averaging import causal_mean_loop
from attention_course.rungs.tril_matmul.explorer import TOKENS, compute


def says(out, T, decay, triangle, normalize):
    sees = [[decay ** abs(t - s) * (s <= t or not triangle) for s in range(T)] for t in range(T)]
    expected, weights = torch.tensor(sees), out["weights"]
    if normalize:
        expected /= expected.sum(dim=1, keepdim=True)
    torch.testing.assert_close(weights, expected)
    yield f"The last row of weights sums to {written(weights[-1].sum())}."
    a, b = (weights @ TOKENS[:T])[-1]
    yield f"Its output is ({written(a)}, {written(b)})."


def test_with_triangle_and_normalizing_is_the_mean_of_the_past():
    output = compute(T=6, decay=1.0, triangle=True, normalize=True)["output"]
    torch.testing.assert_close(output, causal_mean_loop(TOKENS[:6]))
