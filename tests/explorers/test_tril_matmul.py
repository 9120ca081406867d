"""The explorer of weights times tokens."""

import torch
from explorers.words import written

from attention_course.averaging import causal_mean_loop
from attention_course.rungs.tril_matmul.explorer import TOKENS, compute


def says(out, T, decay, triangle, normalize):
    weights = out["weights"]
    assert T == 1 or triangle or weights[0, 1] > 0 or decay == 0
    yield f"The last row of weights sums to {written(weights[-1].sum())}."
    a, b = (weights @ TOKENS[:T])[-1]
    yield f"Its output is ({written(a)}, {written(b)})."


def test_with_triangle_and_normalizing_is_the_mean_of_the_past():
    output = compute(T=6, decay=1.0, triangle=True, normalize=True)["output"]
    torch.testing.assert_close(output, causal_mean_loop(TOKENS[:6]))


def test_weights_decay_with_distance():
    weights = compute(T=4, decay=0.5, triangle=False, normalize=False)["weights"]
    assert weights[1].tolist() == [0.5, 1.0, 0.5, 0.25]
