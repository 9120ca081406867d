"""The explorer that looks into a model: whose weights, on which characters."""

import pytest
import torch
from explorers.words import seen

from attention_course.attention import record_weights
from attention_course.explorers import explore
from attention_course.explorers.subject import STORY
from attention_course.rungs.bigram_to_gpt import explorer_attention_over_text as attention_over_text
from attention_course.stories import answers


def says(out, layer, head, position):
    most = out["weights"].argmax().item()
    yield f"Layer {layer}, head {head}, query {position} “{seen(STORY[position])}”"
    yield f"”: {100 * out['weights'][most]:.0f} % on character {most} “{seen(STORY[most])}”"
    yield f"“{seen(out['expected'])}”"
    last = position == len(STORY) - 1
    yield "the text ends" if last else f"the text goes on with “{seen(STORY[position + 1])}”"


@pytest.mark.parametrize("unit", ["character", "token"])
def test_weights_and_prediction_are_the_models_and_the_largest_are_named(
    unit, model, tokenizer, llama, pair_tokenizer
):
    if unit == "token":
        model, tokenizer = llama, pair_tokenizer
    text = "the cat the mat"
    ids = tokenizer.encode(text)
    explorer = explore("attention_over_text", model=model, tokenizer=tokenizer, text=text)
    explorer.controls["position"].value = 6
    with record_weights() as layers:
        logits = model.eval()(ids[None])
    expected = attention_over_text.compute(2, 1, 6, model, tokenizer, text)["expected"]
    assert expected == tokenizer.decode(logits[0, 6].argmax()[None])
    shaded, bars = explorer.figure.panels
    torch.testing.assert_close(shaded.values, layers[2][0, explorer.controls["head"].value, 6])
    assert shaded.framed == 6
    assert list(shaded.text) == [tokenizer.decode(one[None]) for one in ids]
    best = shaded.values[:7].sort(descending=True)
    torch.testing.assert_close(bars.heights, best.values[: attention_over_text.BARS])
    most = best.indices[0].item()
    assert bars.labels[0] == f"{most} {seen(shaded.text[most])}"
    assert f"on {unit} {most} “{seen(shaded.text[most])}”" in explorer.figure.caption
    assert f"prediction for the next {unit} is “" in explorer.figure.caption


def test_a_long_text_is_cut_to_what_the_model_can_see(model, tokenizer, text):
    explorer = explore("attention_over_text", model=model, tokenizer=tokenizer, text=text)
    assert explorer.figure.panels[0].text == text[-16:]
    assert [explorer.controls[name].max for name in ("layer", "head", "position")] == [2, 1, 15]


def test_a_story_opens_where_its_first_answer_must_be_found():
    start, _ = answers(STORY)[0]
    assert explore("attention_over_text").controls["position"].value == start - 1
