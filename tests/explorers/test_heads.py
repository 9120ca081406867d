"""The explorer that switches heads off: their scores over any text, and what the model expects."""

from contextlib import nullcontext

import pytest
import torch
from explorers.words import seen, written

from attention_course.explorers import explore
from attention_course.heads import HEAD_TARGETS, ablate, head_scores, read_weights
from attention_course.plots import visible_character
from attention_course.rungs.looking_inside import explorer_heads as heads

TEXT = "the cat and the cat"


def says(out, text, score, layer, head, query, off):
    if out["scores"] is None:
        yield f"has a target of the score “{score}”: the map is empty. Query {query} “"
    else:
        before = f" ({written(out['whole'])} with all heads on)" if out["off"] else ""
        yield f"Head {layer}.{head} has the {score} score {written(out['scores'][layer, head])}{before}."
    most = out["weights"].argmax().item()
    yield f"looks at character {most} “{seen(out['tokens'][most])}” with {100 * out['weights'][most]:.0f} %"
    yield f"the model expects “{out['labels'][0]}” with probability {100 * out['chances'][0, 0]:.0f} %"
    if out["off"]:
        yield f"“{out['labels'][0]}” has {100 * out['chances'][0, 1]:.0f} %"


@pytest.fixture
def explorer(llama, pair_tokenizer):
    return explore("heads", model=llama, tokenizer=pair_tokenizer, text=TEXT)


@pytest.mark.parametrize("off", ["", "1.2, 0.1"])
@pytest.mark.parametrize("score", HEAD_TARGETS)
def test_scores_weights_and_chances_are_those_of_the_package(score, off, llama, pair_tokenizer):
    out = heads.compute(TEXT, score, 1, 2, 3, off, llama, pair_tokenizer)
    ids, dead = pair_tokenizer.encode(TEXT), [(0, 1), (1, 2)] if off else []
    targets = HEAD_TARGETS[score](ids)
    before = torch.softmax(llama(ids[None])[0, 3], dim=-1)
    assert out["whole"] == head_scores(read_weights(llama, ids), targets)[1, 2]
    with ablate(llama, dead) if dead else nullcontext():
        weights = read_weights(llama, ids)
        after = torch.softmax(llama(ids[None])[0, 3], dim=-1)
    torch.testing.assert_close(out["scores"], head_scores(weights, targets))
    torch.testing.assert_close(out["weights"], weights[1, 2, 3])
    assert out["off"] == dead
    shown = torch.maximum(before, after).topk(heads.BARS).indices
    shown = shown[before[shown].argsort(descending=True)]
    assert out["labels"] == [visible_character(pair_tokenizer.decode(one[None])) for one in shown]
    chances = [before[shown], after[shown]] if dead else [before[shown]]
    torch.testing.assert_close(out["chances"], torch.stack(chances, dim=-1))


def test_moving_a_slider_does_not_run_the_model_and_each_set_of_heads_runs_it_once(explorer, llama):
    runs = []
    llama.register_forward_hook(lambda *_: runs.append(1))
    controls = explorer.controls
    for key, values in {
        "query": (0, 3),
        "layer": (0, 2),
        "head": (0, 3),
        "score": tuple(HEAD_TARGETS),
    }.items():
        for value in values:
            controls[key].value = value
    assert not runs
    for off in ("0.1", "", "0.1", "0.1, 2.3", "2.3 ; 0.1,", "0.1"):
        controls["off"].value = off
    assert len(runs) == 2
    controls["text"].value = "the the the"
    assert len(runs) == 4


def test_it_opens_on_the_best_head_for_induction_and_shows_map_text_and_what_follows(explorer):
    controls = explorer.controls
    heat, text, bars = explorer.figure.panels
    assert heat.framed == (controls["layer"].value, controls["head"].value)
    assert heat.values[heat.framed] == heat.values.max()
    assert (controls["layer"].max, controls["head"].max, heat.values.shape) == (2, 3, (3, 4))
    assert text.text == ["the", " c", "a", "t", " ", "a", "n", "d", " ", "the", " c", "a", "t"]
    assert (text.framed, controls["query"].value, bars.names) == (12, 12, ["all heads"])
    controls["off"].value = "2.3, 0.1"
    heat, _, bars = explorer.figure.panels
    assert list(heat.crossed_out) == [(0, 1), (2, 3)]
    assert bars.names == ["all heads", "without 0.1, 2.3"]
    assert "; without 0.1, 2.3, “" in explorer.figure.caption
    controls["off"].value = " ".join(f"{layer}.{head}" for layer in range(3) for head in range(4))
    assert explorer.figure.panels[2].names[1] == "without 12 heads"


@pytest.mark.parametrize("off", ["17", "1.2.3", "3.0", "0.4", "-1.0", "1,2", "1.x", "999999999999.0", "١.٢"])
def test_what_is_no_head_is_told_in_a_sentence(off, explorer):
    explorer.controls["off"].value = off
    expected = "is not a head. Write its layer, 0 to 2, a point, and its place there, 0 to 3"
    assert expected in explorer.figure.error
    explorer.controls["off"].value = "1.2"
    assert explorer.figure.error == ""


@pytest.mark.parametrize("text", ["t", "cat", " ", "é😀", "<|end|>", 500 * "the cat ", "the\tcat\r\n\x00"])
def test_unusual_texts_are_shown(text, explorer, pair_tokenizer):
    explorer.controls["query"].value = 5
    explorer.controls["off"].value = "0.1"
    explorer.controls["text"].value = text
    T = len(pair_tokenizer.encode(text))
    for score in HEAD_TARGETS:
        explorer.controls["score"].value = score
        assert explorer.figure.error == ""
        assert explorer.controls["query"].value == explorer.controls["query"].max == min(T, 64) - 1
        assert len(explorer.figure.panels[1].text) == min(T, 64)
        assert (f"The last 64 of {T} tokens are read." in explorer.figure.caption) == (T > 64)
        assert "the map is empty" not in explorer.figure.caption or not explorer.figure.panels[0].values.any()
        assert explorer.figure.still().svg


def test_texts_that_cannot_be_read_are_told_in_a_sentence(model, tokenizer, text):
    explorer = explore("heads", model=model, tokenizer=tokenizer, text=text)
    assert explorer.figure.panels[1].text == text[-16:]
    assert "The last 16 of 24 characters are read." in explorer.figure.caption
    for typed, words in {"": "is empty", "the zoo": "'z' (U+007A) at position 4 is not one of"}.items():
        explorer.controls["text"].value = typed
        assert words in explorer.figure.error
        assert explorer.controls["query"].value == 15
    explorer.controls["text"].value = "the"
    assert explorer.figure.error == ""
    assert (explorer.controls["query"].value, explorer.controls["query"].max) == (2, 2)
