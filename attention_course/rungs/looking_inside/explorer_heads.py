"""All heads of a model over a text of one's own; what it expects next, also without some of them."""

import re
from contextlib import suppress

import ipywidgets
import torch
from torch import Tensor

from attention_course.explorers.figure import LiveFigure
from attention_course.explorers.subject import (
    STORY,
    TOKENIZER,
    UNTRAINED_LLAMA,
    check_subject,
    ids_of,
    name_of,
    read,
    remark,
    state_of,
    tokens_of,
)
from attention_course.gpt import GPT
from attention_course.heads import HEAD_TARGETS, head_scores
from attention_course.plots import Comparison, Heatmap, Text, format_number
from attention_course.text import Tokenizer

MOST = 64  # tokens of a text that are read
BARS = 8  # tokens that may follow
FULL = 0.5  # the weight with full colour
NAMED = 3  # heads in a caption
LOOKED_AT, LEAST = 3, 0.005  # tokens in a caption, and the weight from which one is named

Head = tuple[int, int]  # layer, head


def read_ids(text: str, tokenizer: Tokenizer, model: GPT) -> Tensor:
    """Return the ids (T,) of the last tokens of a text, at most MOST; see `ids_of`."""
    return ids_of(text, tokenizer, model)[0, -MOST:]


def scores_of(weights: Tensor, ids: Tensor, score: str) -> Tensor | None:
    """Return the scores (n_layer, n_head) of weights (n_layer, n_head, T, T), if any query has a target."""
    targets = HEAD_TARGETS[score](ids)
    return head_scores(weights, targets) if targets.any() else None


def heads_of(names: str, n_layer: int, n_head: int) -> frozenset[Head]:
    """Return the heads that are named, for example "1.3, 0.2".

    Raises:
        ValueError: one of the names is not that of a head.
    """
    heads = set()
    for name in re.findall(r"[^\s,;]+", names):
        found = re.fullmatch(r"([0-9]{1,9})\.([0-9]{1,9})", name)
        layer, head = map(int, found.groups()) if found else (n_layer, n_head)
        if layer >= n_layer or head >= n_head:
            raise ValueError(
                f"“{name}” is not a head. Write its layer, 0 to {n_layer - 1}, a point, and its place there, "
                f"0 to {n_head - 1}, and commas between several: {n_layer - 1}.{n_head - 1}, 0.0"
            )
        heads.add((layer, head))
    return frozenset(heads)


FACTS = "Tom lost his key at the mill. Anna found a coin at the bridge."
SITE_VALUES = {  # of the controls, on the site, which has no kernel
    "text": [f"{FACTS} Where did Tom lose his key? At the", f"{FACTS} Where did Anna find a coin? At the"],
    "query": [13, 18, 24],
    "off": ["", "16.0"],
}
NOTE = "Here are two texts, three queries and one head to switch off. The notebook takes any."
SETTINGS = {"off": "16.0"}  # of its picture in README.md


def controls(
    model: GPT = UNTRAINED_LLAMA, tokenizer: Tokenizer = TOKENIZER, text: str = STORY
) -> dict[str, ipywidgets.ValueWidget]:
    """Return the text, the score, the head with the largest one, the query, and the heads switched off.

    A new text puts the query on its last token.

    Raises:
        ValueError: model, tokenizer and text do not match, or the model has no attention weights.
    """
    check_subject(model, tokenizer, text)
    ids = read_ids(text, tokenizer, model)
    weights = read(model, state_of(model), tuple(ids.tolist()), frozenset())[1]
    n_layer, n_head, T, _ = weights.shape
    scores = scores_of(weights, ids, "induction")
    layer, head = divmod(0 if scores is None else int(scores.argmax()), n_head)
    wide, short = {"width": "100%", "max_width": "760px"}, {"width": "220px"}
    typed = ipywidgets.Text(text, description="text", continuous_update=False, layout=wide)
    query = ipywidgets.IntSlider(T - 1, 0, T - 1, description="query", layout={"width": "400px"})

    def follow(change):
        with suppress(TypeError, ValueError):  # the figure tells of it
            query.max = len(read_ids(change.new, tokenizer, model)) - 1
            query.value = query.max

    typed.observe(follow, names="value")
    return {
        "text": typed,
        "score": ipywidgets.Dropdown(
            options=sorted(HEAD_TARGETS, key=lambda name: name != "induction"),
            description="score",
            layout=short,
        ),
        "layer": ipywidgets.IntSlider(layer, 0, n_layer - 1, description="layer", layout=short),
        "head": ipywidgets.IntSlider(head, 0, n_head - 1, description="head", layout=short),
        "query": query,
        "off": ipywidgets.Text(
            description="heads switched off",
            placeholder=f"for example {layer}.{head}",
            continuous_update=False,
            layout={"width": "340px"},
        ),
    }


def compute(
    text: str,
    score: str,
    layer: int,
    head: int,
    query: int,
    off: str,
    model: GPT = UNTRAINED_LLAMA,
    tokenizer: Tokenizer = TOKENIZER,
) -> dict[str, object]:
    """Return the scores of all heads, the weights (T,) of one query in one head, and what may follow it.

    `scores` (n_layer, n_head) and `weights` are those of the model without the heads `off`, `whole` is the
    score of the head with all of them on. `chances` (BARS, 1 or 2): probabilities of the tokens `labels` with
    all heads on, and without those `off`.
    """
    ids = read_ids(text, tokenizer, model)
    key = (model, state_of(model), tuple(ids.tolist()))
    logits, weights = read(*key, frozenset())
    n_layer, n_head, *_ = weights.shape
    dead = heads_of(off, n_layer, n_head)
    logits_without, weights_without = read(*key, dead)
    before, after = torch.softmax(logits[query], dim=-1), torch.softmax(logits_without[query], dim=-1)
    best = torch.maximum(before, after).topk(min(BARS, len(before))).indices
    best = best[before[best].argsort(descending=True, stable=True)]
    whole = scores_of(weights, ids, score)
    return {
        "tokens": tokens_of(ids, tokenizer),
        "left_out": len(tokenizer.encode(text)) - len(ids),
        "score": score,
        "place": (layer, head, query),
        "off": sorted(dead),
        "scores": scores_of(weights_without, ids, score),
        "whole": None if whole is None else whole[layer, head],
        "shape": (n_layer, n_head),
        "weights": weights_without[layer, head, query],
        "chances": torch.stack([before[best], after[best]] if dead else [before[best]], dim=-1),
        "labels": [name_of(token) for token in tokens_of(best, tokenizer)],
        "remark": remark(model),
    }


def draw(
    figure: LiveFigure,
    tokens: str | list[str],
    left_out: int,
    score: str,
    place: tuple[int, int, int],
    off: list[Head],
    scores: Tensor | None,
    whole: Tensor | None,
    shape: tuple[int, int],
    weights: Tensor,
    chances: Tensor,
    labels: list[str],
    remark: str,
) -> None:
    """Show the map of heads, the text shaded by the weights, and what may follow."""
    layer, head, query = place
    shaded = Text(
        f"The query's weights in head {layer}.{head}, full blue from {100 * FULL:.0f} %",
        tokens,
        weights,
        framed=query,
        limit=FULL,
        label="weight",
    )
    unit = shaded.unit
    names = ", ".join(f"{at}.{which}" for at, which in off) if len(off) <= NAMED else f"{len(off)} heads"
    if scores is None or whole is None:
        scored = f"No {unit} of this text has a target of the score “{score}”: the map is empty."
        scores = torch.zeros(shape)
    else:
        before = f" ({format_number(whole.item())} with all heads on)" if off else ""
        value = format_number(scores[layer, head].item())
        scored = f"Head {layer}.{head} has the {score} score {value}{before}."
    keys = weights.argsort(descending=True, stable=True)[:LOOKED_AT].tolist()
    looked_at = [
        f"{unit} {key} “{name_of(tokens[key])}” with {100 * weights[key].item():.0f} %"
        for key in keys
        if weights[key] >= LEAST or key == keys[0]
    ]
    expects = f"Next, the model expects “{labels[0]}” with probability {100 * chances[0, 0].item():.0f} %"
    if off:
        without = chances[:, 1].tolist()
        then = without.index(max(without))
        expects += f"; without {names}, “{labels[0]}” has {100 * without[0]:.0f} %"
        expects += f" and “{labels[then]}” {100 * without[then]:.0f} %" if then else ""
    n_layer, n_head = scores.shape
    reserved = (max(n_layer, 3 * n_head), n_head)  # so narrow that the three panels stand in one row
    part = f" The last {len(tokens)} of {len(tokens) + left_out} {unit}s are read." if left_out else ""
    figure.show(
        Heatmap(
            score, scores, "layer", "head", limit=1, reserved=reserved, framed=(layer, head), crossed_out=off
        ),
        shaded,
        Comparison(
            f"What follows the framed {unit}",
            chances,
            labels,
            ["all heads", f"without {names}"] if off else ["all heads"],
            1,
        ),
        caption=(
            f"{scored} Query {query} “{name_of(tokens[query])}” looks at {', at '.join(looked_at)}. "
            f"{expects}.{part}{remark}"
        ),
    )
