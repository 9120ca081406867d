"""The models of rung 8: equal to nanoGPT's, free of leaks, and what `generate` does with them."""

import contextlib
import math
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from attention_course.attention import Cache, MultiHeadAttention, record_weights, window_mask
from attention_course.gpt import (
    GPT,
    MLP,
    BigramLanguageModel,
    Block,
    GPTConfig,
    autocast,
    autocast_dtype,
    evaluating,
    generate,
    sinusoidal_positions,
)
from attention_course.llama import Llama, LlamaConfig, SwiGLU

seeds = st.integers(0, 2**31)
few = settings(max_examples=20)  # of what takes long
START = torch.tensor([[0]])


def tiny(seed=0, **changes):
    torch.manual_seed(seed)
    return GPT(
        GPTConfig(**{"vocab_size": 13, "block_size": 11, "n_layer": 3, "n_head": 5, "n_embd": 35} | changes)
    )


def nano_state(n_layer, n_embd, bias, seed):
    """Weights of nanoGPT's names and shapes, none of them at its starting value, wte and lm_head tied."""
    shapes = {"transformer.wte": (13, n_embd), "transformer.wpe": (11, n_embd), "transformer.ln_f": (n_embd,)}
    for block in (f"transformer.h.{layer}" for layer in range(n_layer)):
        shapes |= {f"{block}.{norm}": (n_embd,) for norm in ("ln_1", "ln_2")}
        shapes |= {f"{block}.attn.c_attn": (3 * n_embd, n_embd), f"{block}.attn.c_proj": (n_embd, n_embd)}
        shapes |= {f"{block}.mlp.c_fc": (4 * n_embd, n_embd), f"{block}.mlp.c_proj": (n_embd, 4 * n_embd)}
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for name, shape in shapes.items():
        state[f"{name}.weight"] = 0.3 * torch.randn(shape, generator=generator)
        if bias and not name.endswith(("wte", "wpe")):
            state[f"{name}.bias"] = 0.3 * torch.randn(shape[0], generator=generator)
    return state | {"lm_head.weight": state["transformer.wte.weight"]}


def nano_gpt(state, n_head, ids):
    """nanoGPT's forward pass, written with the functions of PyTorch over its own names."""

    def linear(x, name):
        return F.linear(x, state[f"{name}.weight"], state.get(f"{name}.bias"))

    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], state[f"{name}.weight"], state.get(f"{name}.bias"))

    n_layer = 1 + max(int(name.split(".")[2]) for name in state if ".h." in name)
    x = state["transformer.wte.weight"][ids] + state["transformer.wpe.weight"][: ids.shape[1]]
    for layer in range(n_layer):
        block = f"transformer.h.{layer}"
        joined = linear(norm(x, f"{block}.ln_1"), f"{block}.attn.c_attn").chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (n_head, -1)).transpose(1, 2) for part in joined)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + linear(y, f"{block}.attn.c_proj")
        hidden = F.gelu(linear(norm(x, f"{block}.ln_2"), f"{block}.mlp.c_fc"))
        x = x + linear(hidden, f"{block}.mlp.c_proj")
    return linear(norm(x, "transformer.ln_f"), "lm_head")


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # SDPA in vmap
@pytest.mark.parametrize("bias", [True, False])
@given(seed=seeds, T=st.integers(1, 11), B=st.integers(1, 3))
@few
def test_with_nano_gpts_weights_the_logits_are_nano_gpts(bias, seed, T, B):
    """With weights recorded, with ids in int32, and by vmap, which hides their values."""
    model, state = tiny(bias=bias), nano_state(3, 35, bias, seed)
    model.load_state_dict(state)  # which wants the same names and shapes
    assert model.lm_head.weight is model.transformer.wte.weight
    ids = torch.randint(13, (B, T), generator=torch.Generator().manual_seed(seed))
    expected = nano_gpt(state, 5, ids)
    with record_weights() as layers:
        found = [model(ids)]
    assert [weights.shape for weights in layers] == [(B, 5, T, T)] * 3
    found += [model(ids), model(ids.int()), torch.func.vmap(lambda row: model(row[None])[0])(ids)]
    for logits in found:
        torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)


def test_ids_on_another_device_are_not_waited_for():
    assert tiny().to("meta")(torch.zeros(2, 3, dtype=torch.long, device="meta")).shape == (2, 3, 13)


def test_sinusoidal_wavelengths_go_from_2_pi_to_block_size():
    t = torch.arange(64)
    table = sinusoidal_positions(64, 8)
    waves = [math.tau**0, (math.tau / 64) ** (1 / 3), (math.tau / 64) ** (2 / 3), math.tau / 64]
    expected = [turn(t * wave) for turn in (torch.sin, torch.cos) for wave in waves]
    torch.testing.assert_close(table, torch.stack(expected, dim=1), atol=1e-4, rtol=0)
    short = [t[:4].sin(), t[:4].sin(), t[:4].cos(), t[:4].cos()]  # below 2 pi there is one wavelength
    torch.testing.assert_close(sinusoidal_positions(4, 4), torch.stack(short, dim=1))
    assert sinusoidal_positions(4, 3).shape == (4, 3)
    assert (sinusoidal_positions(0, 4).shape, sinusoidal_positions(4, 0).shape) == ((0, 4), (4, 0))


def test_initialization__where_weights_begin():
    """Two outputs a layer are added up: each begins smaller, so that their sum is as large for any depth."""
    config = GPTConfig(vocab_size=300, block_size=16, n_layer=8, n_head=4, n_embd=64, bias=True)
    torch.manual_seed(0)
    for name, parameter in GPT(config).named_parameters():
        if name.endswith("c_proj.weight"):
            assert parameter.std().item() == pytest.approx(1 / 8 / 4, rel=0.05), name
        elif name.endswith("wpe.weight"):
            torch.testing.assert_close(parameter.data, sinusoidal_positions(16, 64) / 8)
        elif parameter.dim() == 2:
            assert parameter.std().item() == pytest.approx(1 / 8, rel=0.05), name
        else:
            assert torch.equal(parameter.data, torch.full_like(parameter, name.endswith("weight"))), name


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"mask": window_mask(7, 2)}])
def test_a_block_passes_the_mask_on(options):
    block, x = Block(tiny().config), torch.randn(2, 7, 35)
    added = x + block.attn(block.ln_1(x), **options)
    torch.testing.assert_close(block(x, **options), added + block.mlp(block.ln_2(added)))


# A GPT of other parts


class Window(MultiHeadAttention):
    """Each query looks at the last two tokens."""

    def forward(self, x, mask=None, is_causal=False):
        return super().forward(x, window_mask(x.shape[1], 2), is_causal)


def test_each_part_can_be_another_one():
    """Of as many as the model has: three of attention and of the MLP, seven norms, and the positions."""
    made = Counter()

    def counted(kind):
        return lambda *arguments, **options: made.update([kind]) or kind(*arguments, **options)

    torch.manual_seed(0)
    parts = {"attn": Window, "norm": nn.RMSNorm, "mlp": SwiGLU, "wpe": nn.Embedding}
    mlp, norm = (lambda n, bias: counted(SwiGLU)(n, 3, bias)), (lambda n, bias: counted(nn.RMSNorm)(n))
    model = GPT(tiny().config, counted(Window), norm, mlp, counted(nn.Embedding))
    assert [made[kind] for kind in parts.values()] == [3, 7, 3, 1]
    kinds = Counter(type(part) for part in model.modules())
    assert [kinds[kind] for kind in (*parts.values(), MultiHeadAttention, nn.LayerNorm, MLP)] == [
        3,
        7,
        3,
        2,
        0,
        0,
        0,
    ]
    with record_weights() as layers:
        logits = model(torch.full((1, 11), 3))
    assert not any((weights > 0).tril(-2).any() for weights in layers)
    assert not torch.allclose(logits[:, 3], logits[:, 7], atol=1e-2)  # the same window, at other positions
    torch.manual_seed(0)
    model = GPT(tiny().config, wpe=None)
    logits = model(torch.full((1, 11), 3))
    torch.testing.assert_close(logits, logits[:, :1].expand_as(logits))


# Running a model


@pytest.mark.parametrize("mode", [True, False])
def test_evaluating_is_without_dropout_and_leaves_each_part_as_it_was(mode):
    model = tiny(dropout=0.9).train(mode)
    model.transformer.h[1].eval()
    before, ids = [module.training for module in model.modules()], torch.arange(7)[None]
    with contextlib.suppress(KeyboardInterrupt), evaluating(model):
        assert not any(module.training for module in model.modules())
        assert not model(ids).requires_grad
        torch.testing.assert_close(model(ids), model(ids), rtol=0, atol=0)
        raise KeyboardInterrupt
    assert [module.training for module in model.modules()] == before
    assert model(ids).requires_grad
    assert torch.equal(model(ids), model(ids)) == (not mode)
    assert torch.equal(*(generate(model, ids, 3, temperature=0) for _ in range(2)))
    assert [module.training for module in model.modules()] == before


@pytest.mark.parametrize(
    ("precision", "found", "in_use", "expected"),
    [
        ("float32", {"amx_bf16": True}, "AVX512", torch.float32),
        ("bfloat16", {}, "AVX512", torch.bfloat16),
        ("auto", {"amx_bf16": True}, "AVX512", torch.bfloat16),
        ("auto", {"avx512_bf16": True}, "AVX512", torch.bfloat16),
        ("auto", {"avx512_bf16": True}, "AVX2", torch.float32),  # PyTorch is kept from what is there
        ("auto", {}, "AVX512", torch.float32),
    ],
)
def test_precision__auto_is_bfloat16_where_a_cpu_has_circuits_for_it(
    monkeypatch, precision, found, in_use, expected
):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: found)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: in_use)
    with autocast(precision, torch.device("cpu")):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == expected


@pytest.mark.parametrize("able", [True, False])
def test_precision__auto_asks_a_gpu_for_circuits_of_its_own(monkeypatch, able):
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation: able or including_emulation
    )
    expected = torch.bfloat16 if able else torch.float32
    assert autocast_dtype(torch.device("cuda")) is expected


# generate


def table(*rows):
    """A bigram model with these probabilities: a row for each token."""
    model = BigramLanguageModel(len(rows))
    model.table.weight.data = torch.tensor(rows).log()
    return model


@pytest.mark.parametrize(
    ("options", "weights"),
    [
        ({}, [2, 5, 3]),
        ({"temperature": 0.5}, [4, 25, 9]),
        ({"temperature": 2}, [2**0.5, 5**0.5, 3**0.5]),
        ({"top_k": 2}, [0, 5, 3]),
        ({"top_k": 1}, [0, 1, 0]),
        ({"top_k": 99}, [2, 5, 3]),
        ({"top_k": 2, "temperature": 0.5}, [0, 25, 9]),
    ],
)
def test_generate_draws_with_the_models_probabilities(options, weights):
    model, generator = table(*[[0.2, 0.5, 0.3]] * 3), torch.Generator().manual_seed(0)
    ids = generate(model, START.repeat(100, 1), 200, **options, generator=generator)
    shares, weights = ids[:, 1:].flatten().bincount(minlength=3) / 20_000, torch.tensor(weights)
    torch.testing.assert_close(shares, weights / weights.sum(), atol=0.015, rtol=0)
    assert ((shares == 0) == (weights == 0)).all()


def test_generate__temperature_0_takes_the_best_and_follows_the_text():
    model = table([0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.8, 0.1, 0.1])
    both = torch.tensor([[0], [1]])
    assert generate(model, both, 3, temperature=0).tolist() == [[0, 1, 2, 0], [1, 2, 0, 1]]


def test_generate__the_model_sees_the_last_block():
    """Beyond block_size, the tokens before the last block make no difference, and all are returned."""
    model = tiny()
    ids = torch.randint(13, (1, 30), generator=torch.Generator().manual_seed(0))
    other = ids.clone()
    other[:, :-11] = 0
    written, too = (generate(model, each, 8, temperature=0) for each in (ids, other))
    assert torch.equal(written[:, 30:], too[:, 30:])
    assert torch.equal(written[:, :30], ids)
    other[:, -11] = (other[:, -11] + 1) % 13
    assert not torch.equal(model(other[:, -11:])[:, -1], model(ids[:, -11:])[:, -1])


@pytest.mark.usefixtures("shapes_unchecked")
def test_generate_takes_numbers_of_numpy_and_writes_nothing_if_asked_to():
    assert generate(tiny(), START, np.int64(2), np.float32(0), np.int64(3)).shape == (1, 3)
    assert torch.equal(generate(tiny(), START, 0), START)


class Broken(nn.Module):
    """Its logits are fine until it has read three tokens."""

    block_size = 8

    def __init__(self, *logits):
        super().__init__()
        self.logits = torch.tensor(logits)

    def forward(self, ids):
        logits = self.logits if ids.shape[1] == 3 else torch.zeros(len(self.logits))
        return torch.stack([torch.zeros_like(logits), logits])[:, None].expand(-1, ids.shape[1], -1)


@pytest.mark.parametrize("options", [{}, {"top_k": 2}, {"temperature": 0}])
@pytest.mark.parametrize(
    ("logits", "best"),
    [((1.0, math.nan, 0.0), "nan"), ((1.0, math.inf, 0.0), "inf"), ((-math.inf,) * 3, "-inf")],
)
def test_generate_refuses_logits_that_are_not_finite(logits, best, options):
    model, words = (
        Broken(*logits).train(),
        rf"after 3 tokens, .* each sequence is \[0.0, {best}\], expected finite",
    )
    with pytest.raises(ValueError, match=words):
        generate(model, START.repeat(2, 1), 5, **options)
    assert model.training
    with pytest.raises(ValueError, match=r"temperature = 1e-40 is so small"):
        generate(Broken(5.0, 0.0), START.repeat(2, 1), 5, temperature=1e-40)


def test_logits_of_minus_inf_rule_a_token_out():
    model = Broken(-math.inf, 0.0, -math.inf).train()
    assert (generate(model, START.repeat(2, 1), 5)[1, 3] == 1).all()
    assert generate(model, START.repeat(2, 1), 5, temperature=0)[1, 3] == 1


# The cache


def tiny_llama(seed=0, **changes):
    torch.manual_seed(seed)
    sizes = {"vocab_size": 13, "block_size": 11, "n_layer": 3, "n_head": 6, "n_embd": 36, "n_kv_head": 2}
    return Llama(LlamaConfig(**sizes | {"n_hidden": 17} | changes))


with_and_without_positions = pytest.mark.parametrize("make", [tiny, tiny_llama])


@with_and_without_positions
@given(seed=seeds, cuts=st.sets(st.integers(1, 7)))
@few
def test_cache__a_text_may_be_read_in_any_number_of_parts(make, seed, cuts):
    model, cache = make(seed, n_layer=2), Cache()
    ids = torch.randint(13, (2, 8), generator=torch.Generator().manual_seed(seed))
    with torch.no_grad(), record_weights() as whole:
        expected = model(ids)
    logits = []
    for part in ids.tensor_split(sorted(cuts), dim=1):
        with torch.no_grad(), record_weights() as layers:
            logits.append(model(part, cache))
    torch.testing.assert_close(torch.cat(logits, dim=1), expected)
    for rows, weights in zip(layers, whole, strict=True):
        torch.testing.assert_close(rows, weights[:, :, -part.shape[1] :])
    # keys and values of n_layer = 2 layers, for B = 2 texts of T = 8 tokens
    assert cache.numel() == 2 * 2 * 2 * 8 * (35 if make is tiny else 36 * 2 // 6)


def sharpened(model):
    """Make the model choose clearly, and seldom the same token twice."""
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)
    return model


@pytest.mark.usefixtures("shapes_unchecked")  # for speed
@with_and_without_positions
@pytest.mark.parametrize("options", [{"temperature": 0}, {}, {"top_k": 5, "temperature": 0.8}])
@pytest.mark.parametrize("length", [1, 38, 41])
def test_with_a_cache_it_writes_what_it_writes_without(make, options, length):
    """Past the block, too, where the context is cropped."""
    model, cache = sharpened(make(block_size=40, n_layer=2)), Cache()
    ids = torch.randint(13, (3, length), generator=torch.Generator().manual_seed(length))
    written, too = (
        generate(model, ids, 60, **options, generator=torch.Generator().manual_seed(7), cache=each)
        for each in (None, cache)
    )
    assert torch.equal(written, too)
    assert len(written[:, length:].unique()) > 2


@with_and_without_positions
def test_cache__each_token_is_read_once_until_the_block_is_full(make):
    """Nor is it read again by a call that goes on where another stopped."""
    model, read, cache = make(), [], Cache()
    model.register_forward_pre_hook(lambda module, inputs: read.append(inputs[0].shape[1]))
    ids = generate(model, torch.zeros(1, 5, dtype=torch.long), 4, cache=cache)
    assert (read, len(cache)) == ([5, 1, 1, 1], 8)
    generate(model, ids, 5, cache=cache)
    assert (read, len(cache)) == ([5, 1, 1, 1, 1, 1, 1, 11, 11], 11)
    assert torch.equal(generate(model, ids, 0, cache=Cache()), ids)
    assert len(read) == 9


@with_and_without_positions
@pytest.mark.parametrize("before", [0, 4])
def test_a_call_that_is_interrupted_leaves_the_cache_as_it_was(make, before):
    model, cache = make(), Cache()
    ids, other = torch.randint(13, (2, 3, 9), generator=torch.Generator().manual_seed(0))

    def interrupt(*_):
        raise KeyboardInterrupt

    with torch.no_grad():
        if before:
            model(ids[:, :before], cache)
        numbers = cache.numel()
        hook = model.transformer.h[1].mlp.register_forward_pre_hook(interrupt)
        with pytest.raises(KeyboardInterrupt):
            model(other[:, before:], cache)
        hook.remove()
        assert (len(cache), cache.numel()) == (before, numbers)
        torch.testing.assert_close(model(ids[:, before:], cache), model(ids)[:, before:])


def test_a_cache_that_was_refused_is_as_it_was():
    model, cache, ids = tiny(), Cache(), torch.zeros(2, 7, dtype=torch.long)
    model(ids[:, :4], cache)
    for other, wrong in ((tiny(), ids[:, 4:]), (model, ids[:1, :1]), (model, torch.zeros(2, 8).long())):
        with pytest.raises(ValueError, match=r"Start with a new Cache\(\)|start with a new Cache\(\)"):
            other(wrong, cache)
    assert len(cache) == 4
    torch.testing.assert_close(model(ids[:, 4:], cache), model(ids)[:, 4:])


def test_an_attention_that_takes_no_cache_needs_none():
    torch.manual_seed(0)
    model = GPT(tiny().config, attn=Window)
    assert generate(model, START, 15).shape == (1, 16)
    with pytest.raises(TypeError, match="cache"):
        generate(model, START, 15, cache=Cache())


COMPILED = """
import torch
from attention_course.attention import record_weights
from attention_course.gpt import GPT, GPTConfig

model = GPT(GPTConfig(13, 8, n_layer=2, n_head=2, n_embd=8)).eval()
compiled = torch.compile(model, fullgraph=True, backend="eager")
ids = torch.randint(13, (2, 7))
torch.testing.assert_close(compiled(ids), model(ids))
with record_weights() as layers:
    model(ids)
assert len(layers) == 2
"""


@pytest.mark.slow
def test_a_gpt_compiles_into_one_graph():
    """In a process of its own: the check of shapes cannot be compiled."""
    subprocess.run([sys.executable, "-c", COMPILED], check=True, cwd=Path(__file__).parent.parent)
