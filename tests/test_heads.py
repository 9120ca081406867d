"""What a head looks at, scored by hand and by a model; a head that is switched off adds nothing."""

import contextlib

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from attention_course.attention import Cache, attention, causal_mask, record_weights
from attention_course.gpt import GPT, GPTConfig, evaluating
from attention_course.heads import (
    HEAD_TARGETS,
    ablate,
    attention_by,
    first_token,
    head_scores,
    induction_targets,
    previous_token,
    read_weights,
)
from attention_course.llama import Llama, LlamaConfig

SIZES = {"vocab_size": 13, "block_size": 11, "n_layer": 3, "n_head": 5, "n_embd": 30}
MODELS = {
    "GPT": lambda: GPT(GPTConfig(**SIZES, bias=True, dropout=0.5)),
    "Llama": lambda: Llama(LlamaConfig(**SIZES, n_kv_head=1, n_hidden=17)),
}


@pytest.fixture(params=MODELS)
def model(request):
    torch.manual_seed(0)
    return MODELS[request.param]()


# Scores


@given(ids=st.lists(st.integers(0, 4), min_size=1, max_size=12))
def test_targets_are_what_their_names_say(ids):
    tables = {name: target(torch.tensor(ids)) for name, target in HEAD_TARGETS.items()}
    for q in range(len(ids)):
        for k in range(len(ids)):
            assert tables["previous token"][q, k] == (k == q - 1)
            assert tables["first token"][q, k] == (k == 0 < q)
            assert tables["induction"][q, k] == (0 < k <= q and ids[k - 1] == ids[q])


def test_a_score_is_the_mean_weight_on_the_targets():
    weights = torch.tensor(
        [
            [[1.0, 0, 0], [0.25, 0.75, 0], [0.2, 0.3, 0.5]],
            [[1.0, 0, 0], [1, 0, 0], [0, 1, 0]],
        ]
    )
    ids = torch.tensor([4, 4, 4])
    for target, expected in (
        (previous_token, [(0.25 + 0.3) / 2, 1]),
        (first_token, [(0.25 + 0.2) / 2, 0.5]),
        (induction_targets, [(0.75 + 0.8) / 2, 0.5]),
    ):
        scores = head_scores(weights, target(ids))
        torch.testing.assert_close(scores, torch.tensor(expected))
        torch.testing.assert_close(head_scores(weights[None].expand(5, 2, 3, 3), target(ids))[3], scores)

    assert head_scores(torch.eye(3)[None], induction_targets(torch.tensor([1, 2, 3]))).isnan().all()


def test_the_weights_of_all_heads_are_read_in_eval_mode(model):
    model.train()
    ids = torch.randint(13, (7,))
    weights = read_weights(model, ids)
    assert model.training
    assert weights.shape == (3, 5, 7, 7)
    assert not weights.requires_grad
    with record_weights() as layers:
        model.eval()(ids[None])
    for layer in range(3):
        torch.testing.assert_close(weights[layer], layers[layer][0])


# Switched off


def without_columns(model, heads):
    """Let no output of these heads reach the residual stream: what c_proj reads of them is 0."""
    size = 30 // 5
    for layer, head in heads:
        columns = slice(head * size, (head + 1) * size)
        model.transformer.h[layer].attn.c_proj.weight.data[:, columns] = 0
    return model


@pytest.mark.parametrize(
    "heads", [[(2, 4)], [(1, 2), (1, 4)], {(0, 4), (2, 0), (1, 1)}, [(1, h) for h in range(5)], []]
)
def test_ablating_heads_is_zeroing_their_columns(model, heads):
    model.eval()
    ids = torch.randint(13, (2, 7))
    usual = model(ids)
    with contextlib.suppress(KeyboardInterrupt), ablate(model, heads):
        found = model(ids)
        with record_weights() as layers:
            torch.testing.assert_close(model(ids), found)
        assert len(layers) == 3
        with ablate(model, [(0, 0), (1, 3)]):
            assert not torch.allclose(model(ids), found, atol=1e-4)
        assert torch.equal(model(ids), found)
        raise KeyboardInterrupt
    assert torch.equal(model(ids), usual)
    assert torch.allclose(found, usual, atol=1e-4) == (not heads)
    torch.testing.assert_close(without_columns(model, heads)(ids), found)


# What the course says of heads, on texts that it does not use


@pytest.fixture(scope="module", params=[11, 12, 13])
def twice(request, smollm):
    """Return random ids that are written twice, behind the token that begins a text."""
    generator = torch.Generator().manual_seed(request.param)
    ids = torch.randint(100, 49_152, (64,), generator=generator)
    return torch.cat([torch.tensor([0]), ids, ids])


def highest(scores, count):
    return {divmod(index, 9) for index in scores.flatten().topk(count).indices.tolist()}


@pytest.mark.slow
def test_the_same_heads_copy_and_look_back(smollm, twice):
    model, _ = smollm
    weights = read_weights(model, twice)
    assert {(18, 6), (17, 3), (17, 4)} <= highest(head_scores(weights, induction_targets(twice)), 8)
    assert {(16, 0), (11, 1)} == highest(head_scores(weights, previous_token(twice)), 2)


@pytest.mark.slow
def test_one_head_that_looks_back_is_needed_and_the_other_is_not(smollm, twice):
    """What the second copy costs without a head, in nats a token, more than with all of them."""
    model, _ = smollm
    losses = {}
    for head in (None, (18, 6), (16, 0), (11, 1)):
        with torch.no_grad(), ablate(model, [head]) if head else contextlib.nullcontext():
            logits = model(twice[None, :-1])[0]
        losses[head] = F.cross_entropy(logits[-63:], twice[-63:]).item()
    assert losses[18, 6] - losses[None] > 1
    assert losses[16, 0] - losses[None] > 2
    assert losses[11, 1] - losses[None] < 0.6


# Attention of your own


@pytest.fixture
def llama():
    torch.manual_seed(0)
    return MODELS["Llama"]()


def test_your_own_attention_gives_the_logits_and_the_weights_of_ours(llama):
    ids = torch.randint(13, (2, 9))
    with evaluating(llama), record_weights() as theirs:
        logits = llama(ids)
    with evaluating(llama), attention_by(llama, attention), record_weights() as yours:
        torch.testing.assert_close(llama(ids), logits)
        cache = Cache()
        one_by_one = [llama(ids[:, t : t + 1], cache) for t in range(9)]
        torch.testing.assert_close(torch.cat(one_by_one, dim=1), logits)
    torch.testing.assert_close(yours[: len(theirs)], theirs)


def test_a_bug_of_your_own_is_in_every_layer_and_gone_afterwards(llama):
    called = []

    def no_mask(q, k, v, mask):
        assert torch.equal(mask, causal_mask(9))
        called.append(q.shape)
        return attention(q, k, v)[0]

    ids = torch.randint(13, (1, 9))
    with evaluating(llama):
        before = llama(ids)
        with contextlib.suppress(ZeroDivisionError), attention_by(llama, no_mask):
            assert (llama(ids)[0, 0] - before[0, 0]).abs().max() > 1e-4  # sees the future
            raise ZeroDivisionError
        assert called == [(1, 5, 9, 6)] * 3
        torch.testing.assert_close(llama(ids), before)


@pytest.mark.parametrize(
    "output", [lambda q: None, lambda q: q[..., 1:], lambda q: q.long(), lambda q: (q[0], q)]
)
def test_what_your_attention_must_return_is_said(llama, output):
    with attention_by(llama, lambda q, k, v, mask: output(q)), pytest.raises(ValueError, match="of q"):
        llama(torch.zeros(1, 4, dtype=torch.long))
