"""The explorer of rung 8 that looks into a model: whose weights, on which characters."""

import pytest
import torch
from explorers.words import seen

from attention_course.attention import record_weights
from attention_course.explorers import explore
from attention_course.explorers.subject import STORY
from attention_course.gpt import BigramLanguageModel
from attention_course.rungs.bigram_to_gpt import explorer_attention_over_text as attention_over_text
from attention_course.stories import answers


def says(out, layer, head, position):
    most = out["weights"].argmax().item()
    yield f"Layer {layer}, head {head}, query {position} “"
    yield f"”: {100 * out['weights'][most]:.0f} % on character {most} “{seen(STORY[most])}”"
    yield f"“{seen(out['expected'])}”"


def test_weights_are_the_models_and_the_prediction_is_too(model, tokenizer):
    out = attention_over_text.compute(2, 1, 5, model, tokenizer, "the cat sat")
    with record_weights() as layers:
        logits = model.eval()(tokenizer.encode("the cat sat")[None])
    torch.testing.assert_close(out["weights"], layers[2][0, 1, 5])
    assert out["weights"].sum().item() == pytest.approx(1, abs=1e-5)
    assert out["expected"] == tokenizer.characters[logits[0, 5].argmax()]


def test_the_largest_weights_are_named_with_their_position(model, tokenizer):
    explorer = explore("attention_over_text", model=model, tokenizer=tokenizer, text="the cat sat")
    explorer.controls["position"].value = 3
    text, bars = explorer.figure.panels
    assert (text.framed, text.text) == (3, "the cat sat")
    weights = text.values[:4]
    most = int(weights.argmax())
    assert bars.labels[0] == f"{most} {'the␣'[most]}"
    assert bars.heights.tolist() == sorted(weights.tolist(), reverse=True)
    assert f"query 3 “␣”: {100 * weights[most].item():.0f} % on character {most}" in explorer.figure.caption
    assert "the text goes on with “c”" in explorer.figure.caption
    explorer.controls["position"].value = 10
    assert len(explorer.figure.panels[1].heights) == attention_over_text.BARS
    assert "the text ends" in explorer.figure.caption


def test_a_long_text_is_cut_to_what_the_model_can_see(model, tokenizer, text):
    explorer = explore("attention_over_text", model=model, tokenizer=tokenizer, text=text)
    assert explorer.figure.panels[0].text == text[-16:]
    assert explorer.controls["position"].max == 15
    assert explorer.controls["layer"].max == 2
    assert explorer.controls["head"].max == 1


def test_a_story_opens_where_its_first_answer_must_be_found():
    explorer = explore("attention_over_text")
    start, _ = answers(STORY)[0]
    assert explorer.figure.panels[0].text == STORY
    assert explorer.controls["position"].value == start - 1
    assert f"the text goes on with “{STORY[start]}”" in explorer.figure.caption


def test_a_model_without_weights_is_refused(tokenizer):
    bigram = BigramLanguageModel(tokenizer.vocab_size)
    with pytest.raises(ValueError, match=r"BigramLanguageModel has no attention weights.*Pass a GPT"):
        explore("attention_over_text", model=bigram, tokenizer=tokenizer, text="the")


def test_weights_on_byte_pairs_are_named_token_by_token(llama, pair_tokenizer):
    explorer = explore("attention_over_text", model=llama, tokenizer=pair_tokenizer, text="the cat the é")
    text, bars = explorer.figure.panels
    assert text.text == ["the", " c", "a", "t", " ", "the", " ", "�", "�"]
    assert (text.framed, len(text.values)) == (8, 9)
    most = int(text.values.argmax())
    assert bars.labels[0] == f"{most} {seen(text.text[most])}"
    assert f"on token {most} “{seen(text.text[most])}”" in explorer.figure.caption
    assert "prediction for the next token is “" in explorer.figure.caption
