"""The explorer of rung 8 that writes: the next character's probabilities, and a sample."""

import pytest
import torch
from explorers.words import entropy

from attention_course.explorers import explore
from attention_course.gpt import BigramLanguageModel, generate
from attention_course.rungs.bigram_to_gpt import explorer_sampling as sampling


def says(out, temperature, top_k, seed):
    share = 100 * out["probabilities"].max().item()
    nats = entropy(out["probabilities"])
    yield f"with probability {share:.0f} %. Entropy of these probabilities: {nats:.2f} nats"


def test_probabilities_are_those_from_which_generate_draws(model, tokenizer):
    ids = tokenizer.encode("the c")[None]
    out = sampling.compute(0.7, 4, 0, model, tokenizer, "the c")
    drawn = generate(model, ids.expand(20_000, -1), 1, 0.7, 4, torch.Generator().manual_seed(0))[:, -1]
    shares = torch.bincount(drawn, minlength=tokenizer.vocab_size) / 20_000
    torch.testing.assert_close(out["probabilities"], shares, atol=0.015, rtol=0)
    assert (out["probabilities"] > 0).sum() == 4


def test_temperature_0_takes_the_best_and_top_k_1_does_the_same(model, tokenizer):
    cold = sampling.compute(0.0, 12, 3, model, tokenizer, "the c")
    one = sampling.compute(1.0, 1, 4, model, tokenizer, "the c")
    assert cold["sample"] == one["sample"]
    for out in (cold, one):
        assert out["probabilities"].max() == 1
        assert out["probabilities"].argmax() == out["best"][0]


def test_a_sample_is_what_generate_writes(model, tokenizer, text):
    prompt = 3 * text  # longer than block_size
    out = sampling.compute(1.2, 5, 7, model, tokenizer, prompt)
    ids = generate(
        model, tokenizer.encode(prompt)[None], sampling.LENGTH, 1.2, 5, torch.Generator().manual_seed(7)
    )
    assert out["sample"] == tokenizer.decode(ids[0, len(prompt) :])
    assert len(out["sample"]) == sampling.LENGTH


def test_sampling_shows_prompt_and_sample_and_names_the_best(model, tokenizer):
    explorer = explore("sampling", model=model, tokenizer=tokenizer, prompt="the c")
    bars, written = explorer.figure.panels
    out = sampling.compute(1.0, 12, 1, model, tokenizer, "the c")
    assert written.text == "the c" + out["sample"]
    assert (written.values > 0).sum() == len("the c")
    assert bars.label == "character; drawn among the best 12"
    assert bars.heights.tolist() == sorted(out["probabilities"].tolist(), reverse=True)
    best = tokenizer.characters[out["probabilities"].argmax()].replace(" ", "␣").replace("\n", "↵")
    assert bars.labels[0] == best
    entropy = -(out["probabilities"] * out["probabilities"].log()).sum()
    assert f"the most probable character is “{best}”" in explorer.figure.caption
    assert f"{entropy:.2f} nats, out of at most ln 12 = 2.48" in explorer.figure.caption


def test_sampling_also_looks_at_a_bigram_model(tokenizer):
    bigram = BigramLanguageModel(tokenizer.vocab_size)
    explorer = explore("sampling", model=bigram, tokenizer=tokenizer, prompt="t")
    expected = torch.softmax(bigram.table.weight[tokenizer.encode("t")[0]], dim=-1)
    assert explorer.figure.panels[0].heights[0] == pytest.approx(expected.max().item(), abs=1e-6)


def test_a_sample_of_byte_pairs_is_shown_token_by_token(llama, pair_tokenizer):
    explorer = explore("sampling", model=llama, tokenizer=pair_tokenizer, prompt="the cat")
    bars, written = explorer.figure.panels
    assert written.text[:4] == ["the", " c", "a", "t"]
    assert len(written.text) == 4 + sampling.LENGTH
    assert (written.values > 0).sum() == 4
    assert bars.label == "token; drawn among the best 260"
    assert f"After “the cat” the most probable token is “{bars.labels[0]}”" in explorer.figure.caption
    assert "out of at most ln 260 = 5.56" in explorer.figure.caption
