"""The explorer of rung 2: weights times tokens."""

import torch
from explorers.words import written

from attention_course.averaging import causal_mean_loop
from attention_course.explorers import explore
from attention_course.rungs.tril_matmul import explorer as tril_matmul


def says(out, T, decay, triangle, normalize):
    yield f"The last row of weights sums to {written(out['weights'][-1].sum())}."
    a, b = (out["weights"] @ out["tokens"])[-1]
    yield f"Its output is ({written(a)}, {written(b)})."


def test_with_triangle_and_normalizing_is_the_mean_of_the_past():
    out = tril_matmul.compute(T=6, decay=1.0, triangle=True, normalize=True)
    torch.testing.assert_close(out["output"], causal_mean_loop(out["tokens"]))


def test_decay_falls_with_distance():
    weights = tril_matmul.compute(T=4, decay=0.5, triangle=False, normalize=False)["weights"]
    assert weights[1].tolist() == [0.5, 1.0, 0.5, 0.25]


def test_words_that_are_wrong_are_noticed():
    out = tril_matmul.compute(5, 0.5, True, False)
    caption = explore("tril_matmul").figure.caption
    assert not any(words in caption for words in says(out, 5, 0.5, True, False))
