"""Llama and its parts: equal to transformers', to the parts of rung 8 in a limit, and free of leaks."""

import copy

import pytest
import torch
from bench_generate import in_transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from attention_course.attention import MultiHeadAttention, causal_mask, padding_mask, record_weights
from attention_course.llama import (
    GroupedQueryAttention,
    Llama,
    LlamaConfig,
    RMSNorm,
    Rotary,
    SwiGLU,
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


def test_in_bfloat16_the_mean_square_is_taken_in_float32():
    """So a row of equal numbers becomes ones, whatever the number: 8 bits would round its square."""
    x = (1 + torch.arange(128) / 128)[:, None].expand(128, 3).bfloat16()
    y = RMSNorm(3).bfloat16()(x)
    assert y.dtype == torch.bfloat16
    assert torch.equal(y, torch.ones_like(y))


# Rotary


@given(T=sizes, pairs=sizes, seed=seeds, base=st.sampled_from([10_000.0, 2.0]), start=st.integers(0, 9))
def test_rotary__each_pair_turns_by_its_angle(T, pairs, seed, base, start):
    """A pair of channels is a complex number, and turning it a product."""
    x = torch.randn(2, 3, T, 2 * pairs, generator=torch.Generator().manual_seed(seed))
    angles = torch.arange(start, start + T)[:, None] * base ** -(torch.arange(pairs) / pairs)
    turns = torch.polar(torch.ones_like(angles), angles)
    expected = torch.view_as_complex(x.unflatten(-1, (pairs, 2))) * turns
    rotary = Rotary(2 * pairs, 17, base)
    torch.testing.assert_close(rotary(x, start), torch.view_as_real(expected).flatten(-2))


def test_angles_are_shared_by_all_layers_and_no_checkpoint_holds_them():
    model = tiny()
    assert len({id(block.attn.rotary) for block in model.transformer.h}) == 1
    assert not [name for name in model.state_dict() if "rotary" in name]


# Grouped-query attention


def options_of(kind, T):
    return {
        "none": {},
        "causal": {"is_causal": True},
        "mask": {"mask": causal_mask(T)},
        "padding": {"mask": padding_mask(torch.tensor([T, 1]), T)},
    }[kind]


@pytest.mark.parametrize("kind", ["none", "causal", "mask", "padding"])
@given(
    T=sizes,
    heads=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    head_size=sizes,
    bias=st.booleans(),
    seed=seeds,
)
def test_grouped_query_attention__is_multi_head_with_keys_and_values_repeated(
    kind, T, heads, head_size, bias, seed
):
    """With as many key heads as heads, nothing is repeated, and names and shapes are the same."""
    torch.manual_seed(seed)
    (n_kv_head, group), n_head = heads, heads[0] * heads[1]
    C, shared = n_head * head_size, n_kv_head * head_size
    grouped = GroupedQueryAttention(C, n_head, n_kv_head, bias=bias)
    plain, state = MultiHeadAttention(C, n_head, bias), grouped.state_dict()
    for name in [name for name in state if "c_attn" in name]:
        q, *rest = state[name].split([C, shared, shared])
        rows = [x.unflatten(0, (n_kv_head, -1)).repeat_interleave(group, 0).flatten(0, 1) for x in rest]
        state[name] = torch.cat([q, *rows])
    plain.load_state_dict(state)
    x, options = torch.randn(2, T, C), options_of(kind, T)
    expected = plain(x, **options)
    torch.testing.assert_close(grouped(x, **options), expected, atol=1e-5, rtol=1e-5)
    with record_weights() as layers:
        plain(x, **options)
        torch.testing.assert_close(grouped(x, **options), expected, atol=1e-5, rtol=1e-5)
    assert layers[1].shape == (2, n_head, T, T)
    torch.testing.assert_close(layers[1], layers[0])


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


def test_llama__runs_in_bfloat16():
    model, ids = tiny(), torch.randint(13, (2, 11))
    expected = model(ids)
    logits = copy.deepcopy(model).bfloat16()(ids)
    assert logits.dtype == torch.bfloat16
    torch.testing.assert_close(logits.float(), expected, atol=0.1, rtol=0.05)


def test_a_model_without_numbers_has_its_angles():
    with torch.device("meta"):
        empty = Llama(tiny().config)
    model, ids = tiny(seed=5), torch.randint(13, (2, 11))
    assert all(parameter.is_meta for parameter in empty.parameters())
    empty.load_state_dict(model.state_dict(), assign=True)
    assert torch.equal(empty(ids), model(ids))
