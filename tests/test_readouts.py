"""Every explorer at hundreds of random settings: nothing breaks, and its words say what was computed."""

import math
import re
import warnings

import ipywidgets
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_course.explorers import EXPLORERS, explore
from attention_course.explorers.subject import STORY

SETTINGS = 300
TOKENS_OF_RUNG_4 = ["p0", "o1", "t2", "a3", "t4", "o5"]


pytestmark = pytest.mark.usefixtures("short_samples")


def setting(control):
    """Draw any value that a control can have, its ends more often than the others."""
    if isinstance(control, ipywidgets.Checkbox):
        return st.booleans()
    if hasattr(control, "options"):
        return st.sampled_from(list(control.options))
    steps = round((control.max - control.min) / control.step)
    return st.one_of(
        st.sampled_from([control.min, control.max]),
        st.integers(0, steps).map(lambda step: type(control.value)(control.min + step * control.step)),
    )


def written(value):
    """Write a number as captions do: whole ones bare, others with two decimals."""
    value = float(value)
    return (f"{value:.0f}" if value == round(value) else f"{value:.2f}").replace("-", "−")


def small(value):
    """Write a number as captions do that would be 0.00 with two decimals."""
    if value >= 0.01:
        return written(value)
    return "less than 10⁻³⁰" if value < 1e-30 else f"{value:.1e}".split("e")[0] + " · 10"


def seen(character):
    """Write a character so that it can be seen."""
    return character.replace(" ", "␣").replace("\n", "↵")


def entropy(weights):
    weights = np.asarray(weights, dtype=float).ravel()
    return sum(-weight * math.log(weight) for weight in weights if weight > 0)


def bag_of_words(out, t, order):
    x, y = out["tokens"][out["seen"]].mean(dim=0).tolist()
    yield f"At t = {t} the mean of {t + 1} token"
    yield f"is ({written(x)}, {written(y)})."


def tril_matmul(out, T, decay, triangle, normalise):
    yield f"The last row of weights sums to {written(out['weights'][-1].sum())}."
    a, b = (out["weights"] @ out["tokens"])[-1]
    yield f"Its output is ({written(a)}, {written(b)})."


def masked_softmax(out, temperature, masked, **scores):
    seen = 3 if masked else 4
    yield f"sees {seen} keys. Entropy of its weights: {entropy(out['weights']):.2f} nats, "
    yield f"of at most ln {seen} = {math.log(seen):.2f}."


def query_key_value(out, head, head_size, t, masked):
    weights = out["weights"].flatten()
    found = [
        name for name, weight in zip(TOKENS_OF_RUNG_4, weights, strict=True) if weight > weights.max() - 1e-4
    ]
    yield f"Query {TOKENS_OF_RUNG_4[t]} puts its largest weight, {written(weights.max())}, on "
    yield f" {', '.join(found)}. Its output is "
    yield from (
        f"{written(share)} {letter}"
        for share, letter in zip(out["output"], "pota", strict=True)
        if share >= 0.005
    )


def scaling_variance(out, head_size, scale, var_q, var_k, T):
    factor = {"none": 1, "1/√head_size": head_size**-0.5, "1/head_size": 1 / head_size}.get(scale)
    if factor:
        assert out["predicted"].item() == pytest.approx(head_size * var_q * var_k * factor**2)
    yield f"Variance of the scores: {small(out['measured'].item())}"
    yield f" measured, {small(out['predicted'].item())}"
    yield f"Entropy of the weights: {entropy(out['weights']):.2f} of at most ln {T} = {math.log(T):.2f}."
    w = out["weights"].double().numpy()
    yield f"Norm of the Jacobian: {small(np.linalg.norm(np.diag(w) - np.outer(w, w)))}"


def cross_and_causal(out, kind, T_q, T_k, position):
    yield f"Changing token {min(position, T_k - 1)} of the context"
    moved = [row for row in range(T_q) if out["moved"][row].any()]
    if not moved:
        yield "moves no output"
    elif len(moved) < T_q:
        yield f" {', '.join(map(str, moved))} of {T_q}"
    else:
        yield "moves every output" if T_q > 1 else "moves the only output"
    blind = T_q - int(out["mask"].any(dim=1).sum())
    if blind:
        yield f"{blind} of {T_q} queries may look at nothing"


def multi_head(out, n_head, query, masked):
    row = out["weights"][0, query]
    yield f"n_head = {n_head}, head_size = 64 / {n_head} = {64 // n_head}. Parameters: 4 · 64² = 16,384"
    yield f"gives {100 * row.max():.0f} % of its weight to key {row.argmax()} “"


def of_sampling(out, temperature, top_k, seed):
    share = 100 * out["probabilities"].max().item()
    yield f"with {share:.0f} %. Entropy of these probabilities: {entropy(out['probabilities']):.2f} nats"


def attention_over_text(out, layer, head, position):
    most = out["weights"].argmax().item()
    yield f"Layer {layer}, head {head}, query {position} “"
    yield f"”: {100 * out['weights'][most]:.0f} % on character {most} “{seen(STORY[most])}”"
    yield f"“{seen(out['expected'])}”"


SAYS = {
    "bag_of_words": bag_of_words,
    "tril_matmul": tril_matmul,
    "masked_softmax": masked_softmax,
    "query_key_value": query_key_value,
    "scaling_variance": scaling_variance,
    "cross_and_causal": cross_and_causal,
    "multi_head": multi_head,
    "sampling": of_sampling,
    "attention_over_text": attention_over_text,
}


def numbers_of(panel):
    """Return all numbers that a panel shows, as one array."""
    parts = [value for value in panel.state().values() if isinstance(value, bytes)]
    parts += [curve[axis] for curve in panel.state().get("curves", []) for axis in "xy"]
    return np.concatenate([np.frombuffer(part, dtype=np.float32) for part in parts] or [np.zeros(0)])


@pytest.mark.parametrize("name", EXPLORERS)
def test_any_setting_is_drawn_and_put_into_true_words(name):
    explorer = explore(name)

    @settings(max_examples=SETTINGS)
    @given(data=st.data())
    def at_random(data):
        values = {key: data.draw(setting(control), label=key) for key, control in explorer.controls.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for key, value in values.items():
                explorer.controls[key].value = value
        values = {key: control.value for key, control in explorer.controls.items()}
        assert explorer.figure.error == ""
        for panel in explorer.figure.panels:
            assert not np.isnan(numbers_of(panel)).any()
        caption = explorer.figure.caption
        assert not re.search(r"\bnan\b|\binf\b", caption)
        for words in SAYS[name](EXPLORERS[name].compute(**values), **values):
            assert words in caption

    at_random()


def test_readouts_that_are_wrong_are_noticed():
    explorer = explore("tril_matmul")
    out = EXPLORERS["tril_matmul"].compute(5, 0.5, True, False)
    said = list(tril_matmul(out, 5, 0.5, True, False))
    assert not any(words in explorer.figure.caption for words in said)
