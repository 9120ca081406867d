"""The explorer of rung 1: the mean of what is seen."""

import pytest
import torch
from explorers.words import written

from attention_course.rungs.bag_of_words import explorer as bag_of_words


def says(out, t, order):
    x, y = out["tokens"][out["seen"]].mean(dim=0).tolist()
    yield f"At t = {t} the mean of {t + 1} token"
    yield f"is ({written(x)}, {written(y)})."


@pytest.mark.parametrize("order", bag_of_words.ORDERS)
def test_it_computes_the_mean_of_what_is_seen(order):
    for t in range(8):
        out = bag_of_words.compute(t, order)
        assert out["seen"].sum() == t + 1
        torch.testing.assert_close(out["means"][-1], out["tokens"][out["seen"]].mean(dim=0))
