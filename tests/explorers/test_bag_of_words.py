"""The explorer of the mean: of what is seen."""

from explorers.words import written

from attention_course.rungs.bag_of_words.explorer import ORDERS, TOKENS


def says(out, t, order):
    x, y = TOKENS[ORDERS[order][: t + 1]].mean(dim=0).tolist()
    assert set(out["seen"].nonzero().flatten().tolist()) == set(ORDERS[order][: t + 1])
    yield f"At t = {t} the mean of {t + 1} token"
    yield f"is ({written(x)}, {written(y)})."
