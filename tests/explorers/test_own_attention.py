"""The explorer of attentions in SmolLM2: what is stored is what the model does with each of them."""

import math

import pytest
import record_own_attention
import torch
from explorers.words import written

from attention_course.attention import attention, causal_mask
from attention_course.explorers import explore
from attention_course.heads import attention_by
from attention_course.rungs.a_real_model import explorer_own_attention as own
from attention_course.text import load_text

T = 6
ROUNDED = 0.006  # of a weight in percent
LEAKS = ("no mask", "sees one token ahead")


def says(out, attention, prompt, head):
    yield own.SAYS[attention]
    yield f"The loss on our page is {written(out['losses'][1])} nats per token"
    yield f"It writes “{''.join(out['written'][1]).replace(chr(10), '↵').strip()}”"
    if attention != "right":
        yield f"With the right attention it is {written(out['losses'][0])}, and a blind guess"


@pytest.fixture
def inputs():
    """Return q, k, v (2, 3, T, 4) and the causal mask."""
    torch.manual_seed(0)
    return *torch.randn(3, 2, 3, T, 4), causal_mask(T)


def softmax_after(q, k, mask):
    """Return the weights of one softmax over all keys, those hidden by the mask then taken out."""
    return torch.softmax(q @ k.mT / 2, dim=-1) * mask


EXPECTED = {  # weights, each from q, k and the causal mask; head_size is 4, and three heads are 12 channels
    "right": lambda q, k, mask: attention(q, k, k, mask)[1],
    "no scale": lambda q, k, mask: attention(2 * q, k, k, mask)[1],
    "scale 1/√n_embd": lambda q, k, mask: attention(q * math.sqrt(4 / 12), k, k, mask)[1],
    "no mask": lambda q, k, mask: attention(q, k, k)[1],
    "sees one token ahead": lambda q, k, mask: attention(q, k, k, torch.ones(T, T).tril(1).bool())[1],
    "does not see itself": lambda q, k, mask: attention(
        q, k, k, (torch.ones(T, T).tril(-1) + torch.eye(T, 1)[:, :1] * torch.eye(1, T)).bool()
    )[1],
    "mask after the softmax": softmax_after,
    "softmax over the queries": lambda q, k, mask: torch.stack(
        [
            (q[..., s:, :] @ k[..., s, :, None] / 2).squeeze(-1).softmax(dim=-1) @ torch.eye(T)[s:]
            for s in range(T)
        ],
        dim=-1,
    ),
    "heads merged without transpose": lambda q, k, mask: attention(q, k, k, mask)[1],
}


@pytest.mark.parametrize("name", own.OWN)
def test_each_attention_does_what_its_name_says(name, inputs):
    q, k, v, mask = inputs
    output, weights = own.OWN[name](q, k, v, mask)
    expected = EXPECTED[name](q, k, mask)
    torch.testing.assert_close(weights, expected)
    assert torch.equal(mask, causal_mask(T)), "the mask was changed"
    joined = output.transpose(1, 2).flatten(2)  # as a layer joins its heads
    if name == "heads merged without transpose":
        torch.testing.assert_close(joined, (expected @ v).reshape(2, T, 12))
    else:
        torch.testing.assert_close(joined, (expected @ v).transpose(1, 2).flatten(2))


def test_each_bug_has_a_sentence_and_is_a_change_of_a_few_lines():
    assert list(own.OWN) == list(own.SAYS) == ["right", *own.BUGS]
    for name in own.OWN:
        rows = own.changes(name)
        assert [line for sign, line in rows if sign != "+"] == own.code_of("right")
        assert [line for sign, line in rows if sign != "−"] == own.code_of(name)
        assert sum(sign != " " for sign, _ in rows) in ((0,) if name == "right" else (1, 2, 3))
        assert all(len(line) + 2 <= own.COLUMNS for _, line in rows)


def test_what_is_stored_is_small_and_complete():
    assert own.FILE.stat().st_size < 100_000
    stored = own.measured()
    assert list(stored["own"]) == list(own.OWN)
    assert ["".join(tokens) for tokens in stored["tokens"]] == list(own.PROMPTS.values())
    for each in stored["own"].values():
        assert all(len(tokens) == own.TOKENS for tokens in each["written"])
        assert len(each["written"]) == len(each["maps"]) == len(own.PROMPTS)


def test_the_bugs_go_wrong_as_the_sentences_say():
    stored = own.measured()["own"]
    losses = {name: each["loss"] for name, each in stored.items()}
    paris = {name: each["written"][0] for name, each in stored.items()}
    assert paris["right"][:2] == paris["sees one token ahead"][:2] == [" Paris", "."]
    assert set(paris["no mask"]) == {"_"}
    assert [name for name, loss in losses.items() if loss < losses["right"]] == list(LEAKS)
    assert min(own.BUGS.keys() - LEAKS, key=losses.get) == "does not see itself"
    assert losses["does not see itself"] < losses["right"] + 0.3
    for prompt in own.PROMPTS:
        maps = {name: own.maps_of(name, prompt) for name in own.OWN}
        size = maps["right"].shape[-1]
        assert sorted({name for name, each in maps.items() if each.triu(1).any()}) == sorted(LEAKS)
        for name in own.OWN.keys() - {"mask after the softmax", "softmax over the queries"}:
            assert (maps[name].sum(dim=-1) - 1).abs().max() < ROUNDED * size
        columns = maps["softmax over the queries"].sum(dim=-2)
        assert (columns - 1).abs().max() < ROUNDED * size
        assert (maps["mask after the softmax"][0].sum(dim=-1).diff() > -ROUNDED * size).sum() > size / 2
        first_layer = maps["right"][0] - maps["heads merged without transpose"][0]
        assert first_layer.abs().max() < ROUNDED
        sure = maps["no scale"][1].amax(dim=-1).mean()
        assert sure > maps["right"][1].amax(dim=-1).mean() > maps["scale 1/√n_embd"][1].amax(dim=-1).mean()


def test_the_right_text_and_map_stand_beside_those_that_are_chosen():
    explorer = explore("own_attention")
    for name in own.OWN:
        explorer.controls["attention"].value = name
        code, bars, first, other, *heat = explorer.figure.panels
        tokens = own.measured()["tokens"][0]
        assert first.text == [*tokens, *own.measured()["own"]["right"]["written"][0]]
        assert other.text == [*tokens, *own.measured()["own"][name]["written"][0]]
        assert [row.rstrip() for row in code.rows()] == [
            f"{sign} {line}".rstrip() for sign, line in own.changes(name)
        ]
        for panel, whose in zip(heat, ("right", name), strict=True):
            torch.testing.assert_close(panel.values, own.maps_of(whose, "the capital")[1])
        assert bars.values[:, 0].tolist() == pytest.approx(
            [3.2925, own.measured()["own"][name]["loss"], math.log(49_152)], abs=1e-3
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["right", "no mask", "mask after the softmax", "does not see itself"])
def test_what_is_stored_is_what_the_model_does(name, smollm, monkeypatch):
    monkeypatch.setattr(own, "TOKENS", 5)
    found, stored = record_own_attention.record(*smollm, name), own.measured()["own"][name]
    assert found["loss"] == pytest.approx(stored["loss"], abs=0.02)
    assert found["written"] == [tokens[:5] for tokens in stored["written"]]
    for one, other in zip(found["maps"], stored["maps"], strict=True):
        numbers = [torch.tensor(list(record_own_attention.base64.b64decode(text))) for text in (one, other)]
        assert (numbers[0] - numbers[1]).abs().max() <= 2


@pytest.mark.slow
def test_a_bug_may_be_one_of_the_readers_own(smollm):
    model, tokenizer = smollm
    ids = tokenizer.encode(load_text("tale"))[:40]
    right = record_own_attention.loss_on(model, ids)
    with attention_by(model, own.right):
        assert record_own_attention.loss_on(model, ids) == pytest.approx(right, abs=1e-3)
    with attention_by(model, own.BUGS["softmax over the queries"]):
        assert record_own_attention.loss_on(model, ids) > right + 2
