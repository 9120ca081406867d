"""The explorer that writes: the next token's probabilities, and a sample."""

import pytest
import torch
from explorers.words import entropy

from attention_course.explorers import explore
from attention_course.gpt import BigramLanguageModel, generate
from attention_course.plots import visible_character
from attention_course.rungs.bigram_to_gpt import explorer_sampling as sampling


def says(out, temperature, top_k, seed):
    probabilities = out["probabilities"]
    assert (probabilities > 0).sum() == (1 if temperature == 0 else top_k)
    assert probabilities.argmax() == out["best"][0]
    yield f"with probability {100 * probabilities.max().item():.0f} %."
    yield f"Entropy of these probabilities: {entropy(probabilities):.2f} nats, out of at most ln 33 = 3.50"


def test_probabilities_are_those_from_which_generate_draws(model, tokenizer):
    ids = tokenizer.encode("the c")[None]
    out = sampling.compute(0.7, 4, 0, model, tokenizer, "the c")
    drawn = generate(model, ids.expand(20_000, -1), 1, 0.7, 4, torch.Generator().manual_seed(0))[:, -1]
    shares = torch.bincount(drawn, minlength=tokenizer.vocab_size) / 20_000
    torch.testing.assert_close(out["probabilities"], shares, atol=0.015, rtol=0)


@pytest.mark.parametrize(("temperature", "top_k"), [(1.2, 5), (0.0, 12), (1.0, 1)])
def test_a_sample_is_what_generate_writes(temperature, top_k, model, tokenizer, text):
    prompt = 3 * text  # longer than block_size
    given = model, tokenizer.encode(prompt)[None], sampling.LENGTH, temperature, top_k
    for seed in (7, 8):
        ids = generate(*given, torch.Generator().manual_seed(seed))
        out = sampling.compute(temperature, top_k, seed, model, tokenizer, prompt)
        assert out["sample"] == tokenizer.decode(ids[0, len(prompt) :])


@pytest.mark.parametrize(("unit", "entropy"), [("character", "12 = 2.48"), ("token", "260 = 5.56")])
def test_prompt_sample_and_best_tokens_are_shown(unit, entropy, model, tokenizer, llama, pair_tokenizer):
    if unit == "token":
        model, tokenizer = llama, pair_tokenizer
    explorer = explore("sampling", model=model, tokenizer=tokenizer, prompt="the cat")
    bars, written = explorer.figure.panels
    prompt = [tokenizer.decode(one[None]) for one in tokenizer.encode("the cat")]
    sample = sampling.compute(1.0, tokenizer.vocab_size, 1, model, tokenizer, "the cat")["sample"]
    assert list(written.text) == [*prompt, *sample]
    assert (written.values > 0).sum() == len(prompt)
    probabilities = torch.softmax(model.eval()(tokenizer.encode("the cat")[None])[0, -1], dim=-1)
    best = probabilities.topk(sampling.BEST)
    torch.testing.assert_close(bars.heights, best.values)
    assert bars.labels == [visible_character(tokenizer.decode(one[None])) for one in best.indices]
    assert bars.label == f"{unit}; drawn among the best {tokenizer.vocab_size}"
    assert f"After “the cat” the most probable {unit} is “{bars.labels[0]}”" in explorer.figure.caption
    assert f"nats, out of at most ln {entropy}" in explorer.figure.caption


def test_it_also_looks_at_a_bigram_model(tokenizer):
    bigram = BigramLanguageModel(tokenizer.vocab_size)
    explorer = explore("sampling", model=bigram, tokenizer=tokenizer, prompt="t")
    expected = torch.softmax(bigram.table.weight[tokenizer.encode("t")[0]], dim=-1)
    assert explorer.figure.panels[0].heights[0] == pytest.approx(expected.max().item(), abs=1e-6)
