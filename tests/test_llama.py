"""Llama and its parts: equal to transformers', to the parts of rung 8 in a limit, and free of leaks."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from bench_generate import in_transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from attention_course.attention import MultiHeadAttention, causal_mask, padding_mask, record_weights
from attention_course.gpt import GPT, GPTConfig
from attention_course.llama import (
    GroupedQueryAttention,
    Llama,
    LlamaConfig,
    RMSNorm,
    Rotary,
    SwiGLU,
    group_size_of,
    rotate_pairs,
)

sizes = st.integers(1, 7)
seeds = st.integers(0, 2**31)


def tiny(seed=0, **changes):
    torch.manual_seed(seed)
    sizes = {"vocab_size": 13, "block_size": 11, "n_layer": 3, "n_head": 6, "n_embd": 60, "n_kv_head": 2}
    return Llama(LlamaConfig(**sizes | {"n_hidden": 17} | changes))


def randomize(model, seed):
    """Move each parameter away from where it begins: a weight of ones would hide whether it is used."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data = 0.3 * torch.randn(parameter.shape, generator=generator)
    return model


# Equal to transformers' Llama


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},  # groups of 3
        {"n_kv_head": 6, "bias": True},  # a group for each head
        {"n_head": 5, "n_kv_head": 1, "n_embd": 70, "n_layer": 1, "base": 500.0},  # one for all
        {"n_head": 3, "n_kv_head": 3, "n_embd": 6, "n_layer": 2, "n_hidden": 1, "eps": 0.01},
        {"n_head": 4, "n_embd": 8, "block_size": 37, "vocab_size": 2, "n_hidden": 23, "bias": True},
    ],
)
@given(seed=seeds, share=st.floats(0, 1), B=st.integers(1, 3))
@settings(max_examples=10)
def test_with_the_same_numbers_the_logits_are_those_of_transformers(changes, seed, share, B):
    model = randomize(tiny(**changes), seed)
    T = 1 + round(share * (model.block_size - 1))
    ids = torch.randint(model.config.vocab_size, (B, T), generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        expected = in_transformers(model)(ids).logits
        torch.testing.assert_close(model(ids), expected, atol=1e-4, rtol=1e-4)
        with record_weights():
            torch.testing.assert_close(model(ids), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.slow
def test_with_the_real_numbers_too(smollm):
    model, tokenizer = smollm
    reference = in_transformers(model)
    for text in (
        "The capital of France is Paris, and 1234567 people live in or near it.",
        "def mean(x):\n    return sum(x) / len(x)\n\n\nprint(mean([1, 2, 3]))\n",
        "<|im_start|>user\nЧто такое внимание? 注意力是什么? 😀<|im_end|>\n<|im_start|>assistant\n",
    ):
        ids = tokenizer.encode(text)[None]
        with torch.no_grad():
            torch.testing.assert_close(model(ids), reference(ids).logits, atol=1e-3, rtol=0)


# RMSNorm


@given(B=sizes, T=sizes, C=sizes, seed=seeds, eps=st.sampled_from([1e-5, 0.1]))
def test_rms_norm_is_pytorchs(B, T, C, seed, eps):
    torch.manual_seed(seed)
    ours, theirs, x = randomize(RMSNorm(C, eps), seed), nn.RMSNorm(C, eps), torch.randn(B, T, C)
    theirs.load_state_dict(ours.state_dict())
    torch.testing.assert_close(ours(x), theirs(x))


@given(T=sizes, C=st.integers(2, 9), seed=seeds)
def test_rms_norm_is_layer_norm_where_the_mean_is_0(T, C, seed):
    torch.manual_seed(seed)
    x = torch.randn(T, C)
    ours, theirs = randomize(RMSNorm(C), seed), nn.LayerNorm(C, bias=False)
    theirs.load_state_dict(ours.state_dict())
    centred = x - x.mean(dim=-1, keepdim=True)
    torch.testing.assert_close(ours(centred), theirs(x), atol=1e-5, rtol=1e-5)
    assert not torch.allclose(ours(x), theirs(x), atol=1e-3)


def test_in_bfloat16_the_mean_square_is_taken_in_float32():
    """So a row of equal numbers becomes ones, whatever the number: 8 bits would round its square."""
    x = (1 + torch.arange(128) / 128)[:, None].expand(128, 3).bfloat16()
    y = RMSNorm(3).bfloat16()(x)
    assert y.dtype == torch.bfloat16
    assert torch.equal(y, torch.ones_like(y))


# Rotary


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rotary_keeps_the_dtype(dtype):
    """Otherwise queries and keys are float32 beside values in bfloat16."""
    x = torch.randn(5, 4)
    turned = Rotary(4, block_size=8)(x.to(dtype))
    assert turned.dtype == dtype
    torch.testing.assert_close(turned.float(), Rotary(4, block_size=8)(x), atol=0.02, rtol=0)


@given(T=sizes, pairs=sizes, seed=seeds, base=st.sampled_from([10_000.0, 2.0]), start=st.integers(0, 9))
def test_each_pair_turns_by_its_angle(T, pairs, seed, base, start):
    """A pair of channels is a complex number, and turning it a product."""
    x = torch.randn(2, 3, T, 2 * pairs, generator=torch.Generator().manual_seed(seed))
    angles = torch.arange(start, start + T)[:, None] * base ** -(torch.arange(pairs) / pairs)
    turns = torch.polar(torch.ones_like(angles), angles)
    expected = torch.view_as_complex(x.unflatten(-1, (pairs, 2))) * turns
    rotary = Rotary(2 * pairs, 17, base)
    torch.testing.assert_close(rotary(x, start), torch.view_as_real(expected).flatten(-2))


@given(pairs=sizes, seed=seeds, t=st.integers(0, 50), s=st.integers(0, 50), shift=st.integers(0, 1000))
def test_a_dot_product_depends_on_the_distance_alone(pairs, seed, t, s, shift):
    rotary = Rotary(2 * pairs, 1051)
    q, k = torch.randn(2, 1, 2 * pairs, generator=torch.Generator().manual_seed(seed))
    here, there = (rotary(q, t + far) @ rotary(k, s + far).T for far in (0, shift))
    torch.testing.assert_close(here, there, atol=1e-3, rtol=1e-3)


@given(pairs=sizes, T=sizes, seed=seeds)
def test_turning_keeps_norms_and_leaves_the_first_position_alone(pairs, T, seed):
    x = torch.randn(3, T, 2 * pairs, generator=torch.Generator().manual_seed(seed))
    turned = Rotary(2 * pairs, 7)(x)
    assert torch.equal(turned[:, 0], x[:, 0])
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    assert not (turned[:, 1:] == x[:, 1:]).any()


def test_an_angle_is_no_parameter_and_no_checkpoint_holds_it():
    assert not list(Rotary(6, 5).parameters())
    assert not [name for name in tiny().state_dict() if "rotary" in name]


# Grouped-query attention


def options_of(kind, T):
    return {
        "none": {},
        "causal": {"is_causal": True},
        "mask": {"mask": causal_mask(T)},
        "padding": {"mask": padding_mask(torch.tensor([T, 1]), T)},
    }[kind]


each_mask = pytest.mark.parametrize("kind", ["none", "causal", "mask", "padding"])


@each_mask
@given(T=sizes, n_head=sizes, head_size=sizes, bias=st.booleans(), seed=seeds)
def test_with_as_many_key_heads_it_is_multi_head_attention(kind, T, n_head, head_size, bias, seed):
    torch.manual_seed(seed)
    C = n_head * head_size
    grouped, plain = GroupedQueryAttention(C, n_head, n_head, bias=bias), MultiHeadAttention(C, n_head, bias)
    plain.load_state_dict(grouped.state_dict())  # same names and shapes
    x = torch.randn(2, T, C)
    output = grouped(x, **options_of(kind, T))
    torch.testing.assert_close(output, plain(x, **options_of(kind, T)), atol=1e-5, rtol=1e-5)


@each_mask
@given(T=sizes, n_kv_head=st.integers(1, 3), group=st.integers(2, 3), head_size=sizes, seed=seeds)
def test_it_is_multi_head_attention_with_keys_and_values_repeated(kind, T, n_kv_head, group, head_size, seed):
    torch.manual_seed(seed)
    n_head = n_kv_head * group
    C = n_head * head_size
    grouped, plain = GroupedQueryAttention(C, n_head, n_kv_head), MultiHeadAttention(C, n_head)
    q, *shared = grouped.c_attn.weight.split([C, n_kv_head * head_size, n_kv_head * head_size])
    rows = [part.unflatten(0, (n_kv_head, -1)).repeat_interleave(group, 0).flatten(0, 1) for part in shared]
    plain.load_state_dict({"c_attn.weight": torch.cat([q, *rows]), "c_proj.weight": grouped.c_proj.weight})
    x, options = torch.randn(2, T, C), options_of(kind, T)
    expected = plain(x, **options)
    torch.testing.assert_close(grouped(x, **options), expected, atol=1e-5, rtol=1e-5)
    with record_weights() as layers:
        plain(x, **options)
        torch.testing.assert_close(grouped(x, **options), expected, atol=1e-5, rtol=1e-5)
    assert layers[1].shape == (2, n_head, T, T)
    torch.testing.assert_close(layers[1], layers[0])


def test_values_are_not_turned():
    """Where queries and keys are 0, the output is the mean of the values, wherever their tokens stand."""
    module = GroupedQueryAttention(12, 3, 1, rotary=Rotary(4, 7))
    module.c_attn.weight.data[:16] = 0
    x = torch.randn(1, 7, 12)
    output = module(x)
    torch.testing.assert_close(output, output[:, :1].expand_as(output))
    torch.testing.assert_close(module(x.flip(1)), output)


@pytest.mark.usefixtures("shapes_unchecked")
@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: group_size_of(9, 2), ValueError, "n_head = 9 heads cannot share n_kv_head = 2 .* divides 9"),
        (lambda: group_size_of(2, 4), ValueError, "n_head = 2 heads cannot share n_kv_head = 4"),
        (lambda: group_size_of(2, 0), ValueError, "n_kv_head = 0, expected an integer of at least 1"),
        (lambda: GroupedQueryAttention(12, 4, 3), ValueError, "n_head = 4 heads cannot share n_kv_head = 3"),
        (lambda: GroupedQueryAttention(12, 5, 1), ValueError, "n_embd = 12 cannot be split into n_head = 5"),
        (lambda: tiny(n_kv_head=4), ValueError, "n_head = 6 heads cannot share n_kv_head = 4"),
        (
            lambda: tiny(n_hidden=0),
            ValueError,
            "LlamaConfig: n_hidden = 0, expected an integer of at least 1",
        ),
        (lambda: tiny(vocab_size=0), ValueError, "LlamaConfig: vocab_size = 0"),
        (lambda: tiny(n_embd=18, n_head=6), ValueError, "Rotary: head_size = 3, expected an even number"),
        (lambda: Llama(GPTConfig(13)), TypeError, "Llama: config is GPTConfig, expected LlamaConfig"),
        (lambda: RMSNorm(0), ValueError, "RMSNorm: n_embd = 0"),
        (lambda: Rotary(4, 0), ValueError, "Rotary: block_size = 0"),
        (lambda: Rotary(4, 9, 0), ValueError, "Rotary: base = 0, expected a number of at least 1"),
        (lambda: Rotary(4, 9, math.inf), ValueError, "Rotary: base = inf"),
        (lambda: Rotary(4, 9, "1e4"), ValueError, "Rotary: base = '1e4'"),
        (lambda: RMSNorm(4, -1e-5), ValueError, "RMSNorm: eps = -1e-05, expected a number of at least 0"),
        (lambda: RMSNorm(4, None), ValueError, "RMSNorm: eps = None"),
        (
            lambda: Rotary(4, 9)(torch.zeros(5, 4), 8),  # angles for one of five tokens
            ValueError,
            r"rotate_pairs: for x of shape \(5, 4\), cos has shape \(1, 2\), expected \(T, head_size / 2\)",
        ),
        (lambda: Rotary(4, 9)(torch.zeros(5, 4), -1), ValueError, "Rotary: start = -1"),
        (lambda: Rotary(2, 9)(torch.zeros(5, 4)), ValueError, r"Rotary: x is .* expected .*\(..., T, 2\)"),
        (
            lambda: GroupedQueryAttention(8, 2, 1, rotary=Rotary(2, 9))(torch.zeros(1, 5, 8)),
            ValueError,
            r"Rotary: x is .* expected .*\(..., T, 2\)",
        ),
        (
            lambda: rotate_pairs(torch.zeros(5, 4), torch.ones(5, 2), torch.zeros(1, 2)),
            ValueError,
            r"rotate_pairs: for x of shape \(5, 4\), sin has shape \(1, 2\), expected",
        ),
        (
            lambda: rotate_pairs([[1.0, 0.0]], torch.ones(1, 1), torch.zeros(1, 1)),
            TypeError,
            "rotate_pairs: x is list",
        ),
        (lambda: SwiGLU(4, 0), ValueError, "SwiGLU: n_hidden = 0"),
        (lambda: SwiGLU(4, 3)(torch.zeros(2, 5)), ValueError, r"SwiGLU: x is .* expected .*\(..., T, 4\)"),
        (
            lambda: GroupedQueryAttention(4, 2, 1)(torch.zeros(2, 5)),
            ValueError,
            r"GroupedQueryAttention: x is .* expected .*\(..., T, 4\)",
        ),
    ],
)
def test_parts_say_what_they_take(call, error, words):
    with pytest.raises(error, match=words):
        call()


# SwiGLU


@given(T=sizes, C=sizes, n_hidden=sizes, bias=st.booleans(), seed=seeds)
def test_swiglu_is_its_formula(T, C, n_hidden, bias, seed):
    torch.manual_seed(seed)
    module, x = SwiGLU(C, n_hidden, bias), torch.randn(2, T, C)
    W, V = module.c_fc.weight[:n_hidden], module.c_fc.weight[n_hidden:]
    b, c = module.c_fc.bias.chunk(2) if bias else (0, 0)
    a = x @ W.T + b
    hidden = a / (1 + (-a).exp()) * (x @ V.T + c)
    expected = hidden @ module.c_proj.weight.T + (module.c_proj.bias if bias else 0)
    torch.testing.assert_close(module(x), expected, atol=1e-5, rtol=1e-5)


# Llama


def test_a_llama_is_a_gpt_of_other_parts():
    model = tiny()
    assert isinstance(model, GPT)
    block = model.transformer.h[2]
    kinds = [type(part) for part in (block.ln_1, block.attn, block.ln_2, block.mlp, model.transformer.ln_f)]
    assert kinds == [RMSNorm, GroupedQueryAttention, RMSNorm, SwiGLU, RMSNorm]
    assert model.transformer.wpe is None
    assert len({id(each.attn.rotary) for each in model.transformer.h}) == 1
    assert model.lm_head.weight is model.transformer.wte.weight
    V, C, F, L = 13, 60, 17, 3
    expected = V * C + L * (2 * C + C * (60 + 2 * 20) + C * C + 3 * C * F) + C
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


@given(seed=seeds, t=st.integers(1, 10))
@settings(max_examples=30)
def test_no_logit_depends_on_a_later_token(seed, t):
    model = tiny(seed)
    ids = torch.randint(13, (1, 11), generator=torch.Generator().manual_seed(seed))
    other = ids.clone()
    other[:, t:] = (other[:, t:] + 1) % 13
    before, after = model(ids), model(other)
    assert torch.equal(before[:, :t], after[:, :t])
    assert not torch.allclose(before[:, t:], after[:, t:])


def test_distances_count_and_places_do_not():
    """The same tokens in another order are another text; a token that is repeated has no place."""
    model = tiny()
    once, swapped = model(torch.tensor([[1, 2, 3]])), model(torch.tensor([[2, 1, 3]]))
    assert not torch.allclose(once[:, -1], swapped[:, -1], atol=1e-2)
    logits = model(torch.full((1, 11), 3))
    torch.testing.assert_close(logits, logits[:, :1].expand_as(logits))


def test_weights_of_all_layers_and_heads_are_recorded():
    model, ids = tiny(), torch.randint(13, (2, 7))
    with record_weights() as layers:
        logits = model(ids)
    assert [weights.shape for weights in layers] == [(2, 6, 7, 7)] * 3
    for weights in layers:
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(2, 6, 7))
        assert not weights.triu(diagonal=1).any()
    torch.testing.assert_close(model(ids), logits)


def test_it_runs_in_bfloat16():
    model, ids = tiny(), torch.randint(13, (2, 11))
    expected = model(ids)
    logits = copy.deepcopy(model).bfloat16()(ids)
    assert logits.dtype == torch.bfloat16
    torch.testing.assert_close(logits.float(), expected, atol=0.1, rtol=0.05)


def test_a_copy_is_a_model_of_its_own():
    model, ids = tiny(), torch.randint(13, (2, 11))
    twin = copy.deepcopy(model)
    before = model(ids)
    assert torch.equal(twin(ids), before)
    assert twin.lm_head.weight is twin.transformer.wte.weight
    for parameter in twin.parameters():
        nn.init.zeros_(parameter)
    assert torch.equal(model(ids), before)


def test_a_model_without_numbers_has_its_angles():
    with torch.device("meta"):
        empty = Llama(tiny().config)
    model, ids = tiny(seed=5), torch.randint(13, (2, 11))
    assert all(parameter.is_meta for parameter in empty.parameters())
    empty.load_state_dict(model.state_dict(), assign=True)
    assert torch.equal(empty(ids), model(ids))


def test_it_learns():
    """Gradients reach every parameter, and follow them down."""
    model, ids = tiny(), torch.randint(13, (3, 11), generator=torch.Generator().manual_seed(0))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(40):
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        assert all(parameter.grad.any() for parameter in model.parameters())
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] > 1
    assert losses[-1] < 0.1


def test_rotate_takes_the_angles_of_each_token():
    x = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    quarter = torch.tensor([[0.0], [math.tau / 4]])
    torch.testing.assert_close(rotate_pairs(x, quarter.cos(), quarter.sin()), torch.eye(2))
