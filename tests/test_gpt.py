"""The models of rung 8: equal to nanoGPT's, free of leaks, and what `generate` does with them."""

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
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
    block_size_of,
    evaluating,
    generate,
    initialize,
    sinusoidal_positions,
)
from attention_course.llama import Llama, LlamaConfig

seeds = st.integers(0, 2**31)
START = torch.tensor([[0]])


def tiny(seed=0, **changes):
    torch.manual_seed(seed)
    return GPT(
        GPTConfig(**{"vocab_size": 13, "block_size": 11, "n_layer": 3, "n_head": 5, "n_embd": 35} | changes)
    )


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


def random_state(model, seed):
    """Weights of nanoGPT's names and shapes, none of them at its starting value, wte and lm_head tied."""
    generator = torch.Generator().manual_seed(seed)
    state = {
        name: 0.3 * torch.randn(value.shape, generator=generator)
        for name, value in model.state_dict().items()
    }
    state["lm_head.weight"] = state["transformer.wte.weight"]
    return state


@pytest.mark.parametrize("bias", [True, False])
@given(seed=seeds, T=st.integers(1, 11), B=st.integers(1, 3))
def test_with_nano_gpts_weights_the_logits_are_nano_gpts(bias, seed, T, B):
    model = tiny(bias=bias)
    state = random_state(model, seed)
    model.load_state_dict(state)
    ids = torch.randint(13, (B, T), generator=torch.Generator().manual_seed(seed))
    logits = nano_gpt(state, 5, ids)
    torch.testing.assert_close(model(ids), logits, atol=1e-5, rtol=1e-5)
    with record_weights():
        torch.testing.assert_close(model(ids), logits, atol=1e-5, rtol=1e-5)


def test_the_names_are_nano_gpts():
    names = set(tiny(n_layer=1, bias=True).state_dict())
    of_block = [
        f"{part}.{kind}"
        for part in ("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj")
        for kind in ("weight", "bias")
    ]
    assert names == {
        *("transformer.wte.weight", "transformer.wpe.weight", "lm_head.weight"),
        *("transformer.ln_f.weight", "transformer.ln_f.bias"),
        *(f"transformer.h.0.{name}" for name in of_block),
    }


def test_every_layer_asks_sdpa_for_the_plain_causal_mask(monkeypatch):
    calls, usual = [], F.scaled_dot_product_attention

    def spy(q, k, v, **options):
        calls.append(options)
        return usual(q, k, v, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    tiny()(torch.zeros(2, 7, dtype=torch.long))
    assert calls == [{"is_causal": True, "enable_gqa": False}] * 3


@given(seed=seeds, t=st.integers(1, 10))
def test_no_logit_depends_on_a_later_token(seed, t):
    model = tiny(seed)
    ids = torch.randint(13, (1, 11), generator=torch.Generator().manual_seed(seed))
    other = ids.clone()
    other[:, t:] = (other[:, t:] + 1) % 13
    before, after = model(ids), model(other)
    assert torch.equal(before[:, :t], after[:, :t])
    assert not torch.allclose(before[:, t:], after[:, t:])


def test_position_counts():
    logits = tiny()(torch.full((1, 11), 3))
    assert not torch.allclose(logits[:, 0], logits[:, 1], atol=1e-2)


def test_weights_of_all_layers_are_recorded():
    model, ids = tiny(), torch.randint(13, (2, 7))
    with record_weights() as layers:
        logits = model(ids)
    assert len(layers) == 3
    for weights in layers:
        assert weights.shape == (2, 5, 7, 7)
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(2, 5, 7))
        assert not weights.triu(diagonal=1).any()
    torch.testing.assert_close(model(ids), logits)


def test_the_recorded_weights_made_the_logits():
    """What the last layer adds to the tokens is computed anew from its weights."""
    model, ids = tiny(n_layer=1), torch.randint(13, (2, 7))
    with record_weights() as layers:
        logits = model(ids)
    block = model.transformer.h[0]
    x = model.transformer.wte(ids) + model.transformer.wpe.weight[:7]
    v = block.attn.c_attn(block.ln_1(x)).chunk(3, dim=-1)[2].unflatten(-1, (5, 7)).transpose(1, 2)
    x = x + block.attn.c_proj((layers[0] @ v).transpose(1, 2).flatten(2))
    x = x + block.mlp(block.ln_2(x))
    torch.testing.assert_close(model.lm_head(model.transformer.ln_f(x)), logits)


def test_one_table_reads_and_writes():
    model = tiny()
    assert model.lm_head.weight is model.transformer.wte.weight
    C, V, T, L = 35, 13, 11, 3
    expected = V * C + T * C + L * (12 * C**2 + 2 * C) + C
    assert sum(p.numel() for p in model.parameters()) == expected


def test_the_start_costs_about_half_a_nat_more_than_knowing_nothing():
    losses = []
    for seed in range(5):
        model = tiny(seed, vocab_size=87, n_embd=80, block_size=64)
        ids = torch.randint(87, (8, 65), generator=torch.Generator().manual_seed(seed))
        losses.append(F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()).item())
    assert 0.2 < sum(losses) / 5 - math.log(87) < 0.8


@given(T=st.integers(1, 70), C=st.integers(1, 40), k=st.integers(1, 5))
def test_an_offset_rotates_each_sine_cosine_pair(T, C, k):
    """The dot product of two positions depends on their distance alone, for an even number of channels."""
    table = sinusoidal_positions(T + k, 2 * C).double()
    assert table.shape == (T + k, 2 * C)
    products = (table[:-k] * table[k:]).sum(dim=-1)
    torch.testing.assert_close(products, products[:1].expand(T), atol=1e-4, rtol=1e-4)


def test_the_wavelengths_go_from_2_pi_to_block_size():
    t = torch.arange(64)
    table = sinusoidal_positions(64, 8)
    for column, wave in ((0, t.sin()), (3, (math.tau * t / 64).sin()), (4, t.cos())):
        torch.testing.assert_close(table[:, column], wave, atol=1e-4, rtol=0)
    torch.testing.assert_close(
        sinusoidal_positions(4, 4), torch.stack([w(t[:4]) for w in (torch.sin,) * 2 + (torch.cos,) * 2], 1)
    )


def test_where_weights_begin():
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


def test_biases_are_left_out_unless_asked_for():
    assert MLP(8).c_fc.bias is None
    assert not [name for name in tiny().state_dict() if name.endswith("bias")]


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"mask": window_mask(7, 2)}])
def test_a_block_passes_the_mask_on(options):
    block, x = Block(tiny().config), torch.randn(2, 7, 35)
    added = x + block.attn(block.ln_1(x), **options)
    torch.testing.assert_close(block(x, **options), added + block.mlp(block.ln_2(added)))


def test_initialize_draws_as_nano_gpt_does():
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=300, block_size=64, n_layer=8, n_head=4, n_embd=64, bias=True))
    for parameter in model.parameters():
        nn.init.ones_(parameter)
    initialize(model, 0.02, n_layer=8)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            expected = 0.02 / 4 if name.endswith("c_proj.weight") else 0.02
            assert parameter.std().item() == pytest.approx(expected, rel=0.05), name
        else:
            assert torch.equal(parameter.data, torch.full_like(parameter, name.endswith("weight"))), name


# A GPT of other parts


class Window(MultiHeadAttention):
    """Each query looks at the last two tokens."""

    def forward(self, x, mask=None, is_causal=False):
        return super().forward(x, window_mask(x.shape[1], 2), is_causal)


class Swish(MLP):
    def forward(self, x):
        return self.c_proj(F.silu(self.c_fc(x)))


def rms_norm(n_embd, bias):
    return nn.RMSNorm(n_embd)


def parts_of(model, kind):
    return [name for name, module in model.named_modules() if type(module) is kind]


def test_each_part_can_be_another_one():
    config, ids = tiny().config, torch.arange(11)[None]
    for kind, options in (
        (Window, {"attn": Window}),
        (nn.RMSNorm, {"norm": rms_norm}),
        (Swish, {"mlp": Swish}),
    ):
        torch.manual_seed(0)
        model = GPT(config, **options)
        names = {"attn": "attn", "norm": "ln_1", "mlp": "mlp"}
        expected = [f"transformer.h.{layer}.{names[next(iter(options))]}" for layer in range(3)]
        assert set(parts_of(model, kind)) >= set(expected)
        assert model.state_dict().keys() == tiny().state_dict().keys()
        assert model(ids).shape == (1, 11, 13)
        assert not torch.allclose(model(ids), tiny()(ids), atol=1e-3)
    norms = parts_of(GPT(config, norm=rms_norm), nn.RMSNorm)
    assert len(norms) == 7
    assert norms[-1] == "transformer.ln_f"
    assert not parts_of(GPT(config, norm=rms_norm), nn.LayerNorm)


def test_one_block_can_get_a_part_of_its_own():
    model, ids = tiny(), torch.arange(11)[None]
    before = model(ids)
    window = Window(35, 5)
    window.load_state_dict(model.transformer.h[2].attn.state_dict())
    model.transformer.h[2].attn = window
    with record_weights() as layers:
        after = model(ids)
    assert [bool((weights > 0).tril(-2).any()) for weights in layers] == [True, True, False]
    torch.testing.assert_close(after[:, :2], before[:, :2])
    assert not torch.allclose(after, before)


def test_without_positions_tokens_are_told_apart_by_what_stands_before_them_alone():
    torch.manual_seed(0)
    model = GPT(tiny().config, wpe=None)
    assert "transformer.wpe.weight" not in model.state_dict()
    logits = model(torch.full((1, 11), 3))
    torch.testing.assert_close(logits, logits[:, :1].expand_as(logits))


class Ramp(nn.Module):
    """Positions that are not learned."""

    def __init__(self, block_size, n_embd):
        super().__init__()
        self.n_embd = n_embd
        self.asked = []

    def forward(self, positions):
        self.asked.append(positions.tolist())
        return positions[:, None] / torch.arange(1, self.n_embd + 1)


def test_positions_can_be_replaced():
    torch.manual_seed(0)
    model = GPT(tiny().config, wpe=Ramp)
    logits = model(torch.full((1, 7), 3))
    assert model.transformer.wpe.asked == [list(range(7))]
    assert not torch.allclose(logits[:, 0], logits[:, 1], atol=1e-2)


@pytest.mark.usefixtures("shapes_unchecked")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": 0}, "vocab_size = 0, expected an integer of at least 1"),
        ({"block_size": -1}, "block_size = -1"),
        ({"n_layer": 0}, "n_layer = 0"),
        ({"n_head": 3}, "n_embd = 35 cannot be split into n_head = 3"),
        ({"dropout": 1.0}, "dropout = 1.0, expected 0 <= dropout < 1"),
        ({"dropout": "0.5"}, "dropout = '0.5', expected"),
        ({"dropout": math.nan}, "dropout = nan, expected"),
        ({"vocab_size": 13.0}, "vocab_size = 13.0"),
    ],
)
def test_an_impossible_size_is_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=message):
        tiny(**changes)


def test_more_tokens_than_positions_are_refused():
    with pytest.raises(ValueError, match=r"12 tokens, but block_size is 11. Keep ids\[:, -11:\]"):
        tiny()(torch.zeros(1, 12, dtype=torch.long))


EACH_MODEL = {"GPT": tiny, "BigramLanguageModel": lambda: BigramLanguageModel(13)}


@pytest.mark.parametrize("name", EACH_MODEL)
@pytest.mark.parametrize(
    ("ids", "error", "words"),
    [
        (START + 13, ValueError, "ids holds 13, expected integers from 0 to 12"),
        (START - 1, ValueError, "ids holds -1, expected"),
        (START[0], TypeError, r"ids is torch.int64, \(1,\), expected .* \(B, T\).* ids\[None\]"),
        (START[None], TypeError, r"ids is torch.int64, \(1, 1, 1\)"),
        (START.float(), TypeError, r"ids is torch.float32, \(1, 1\)"),
        (START.bool(), TypeError, "ids is torch.bool"),
        (START.short(), TypeError, "ids is torch.int16"),
        ([[0]], TypeError, "ids is list"),
        ("text", TypeError, r"ids is str.*tokenizer.encode\(text\)\[None\]"),
    ],
)
@pytest.mark.usefixtures("shapes_unchecked")
def test_a_model_says_which_ids_it_reads(name, ids, error, words):
    with pytest.raises(error, match=f"^{name}: {words}"):
        EACH_MODEL[name]()(ids)
    if error is TypeError:
        with pytest.raises(error, match=f"^generate: {words}"):
            generate(EACH_MODEL[name](), ids, 3)


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # SDPA in vmap
@pytest.mark.parametrize("name", EACH_MODEL)
def test_a_model_reads_every_id_of_its_vocabulary(name):
    model = EACH_MODEL[name]()
    ids = torch.tensor([[0, 12], [5, 12]])
    assert torch.equal(model(ids), model(ids.int()))
    by_row = torch.func.vmap(lambda row: model(row[None])[0])(ids)  # where no id can be looked at
    torch.testing.assert_close(by_row, model(ids))


def test_ids_on_another_device_are_not_waited_for():
    assert tiny().to("meta")(torch.zeros(2, 3, dtype=torch.long, device="meta")).shape == (2, 3, 13)


@pytest.mark.parametrize("shape", [(0, 3), (2, 0)])
def test_a_gpt_needs_a_token(shape):
    ids = torch.zeros(shape, dtype=torch.long)
    for call in (tiny(), lambda ids: generate(tiny(), ids, 3)):
        with pytest.raises(
            ValueError, match=rf"ids has shape \({shape[0]}, {shape[1]}\). Give at least one token"
        ):
            call(ids)
    assert BigramLanguageModel(13)(ids).shape == (*shape, 13)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: BigramLanguageModel(0), ValueError, "BigramLanguageModel: vocab_size = 0, expected"),
        (lambda: BigramLanguageModel("abc"), TypeError, "BigramLanguageModel: vocab_size = 'abc'"),
        (lambda: GPT(None), TypeError, "GPT: config is NoneType, expected GPTConfig"),
        (lambda: MLP(0), ValueError, "MLP: n_embd = 0"),
        (lambda: MLP(4)(torch.zeros(2, 5)), ValueError, r"MLP: x is .* expected .*\(..., T, 4\)"),
        (lambda: sinusoidal_positions(4, -1), ValueError, "sinusoidal_positions: n_embd = -1"),
        (lambda: sinusoidal_positions(-1, 4), ValueError, "sinusoidal_positions: block_size = -1"),
    ],
)
@pytest.mark.usefixtures("shapes_unchecked")
def test_parts_say_what_they_take(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_no_positions_and_no_channels_are_an_empty_table():
    assert sinusoidal_positions(0, 4).shape == (0, 4)
    assert sinusoidal_positions(4, 0).shape == (4, 0)


def test_dropout_acts_in_training_only():
    model = tiny(dropout=0.5)
    ids = torch.randint(13, (2, 7))
    assert torch.equal(model.eval()(ids), model(ids))
    model.train()
    assert not torch.allclose(model(ids), model(ids))


# Running a model


@pytest.mark.parametrize("mode", [True, False])
def test_evaluating_leaves_the_mode_as_it_was(mode):
    model = tiny(dropout=0.9).train(mode)
    with evaluating(model):
        assert not model.training
        assert not model(START).requires_grad
    assert model.training == mode
    assert model(START).requires_grad
    with pytest.raises(ZeroDivisionError), evaluating(model):
        1 / 0  # noqa: B018
    assert model.training == mode


def test_evaluating_leaves_each_part_as_it_was():
    model = tiny(dropout=0.9).train()
    model.transformer.h[1].eval()
    before = [module.training for module in model.modules()]
    with evaluating(model):
        assert not any(module.training for module in model.modules())
    assert [module.training for module in model.modules()] == before


def test_a_model_says_how_much_it_reads():
    assert block_size_of(tiny()) == 11
    assert block_size_of(BigramLanguageModel(3)) == 128
    with pytest.raises(
        TypeError, match=r"Linear has block_size = None, expected an integer of at least 1: .* = 128"
    ):
        block_size_of(nn.Linear(2, 2))
    model = BigramLanguageModel(3)
    for wrong in (0, -1, 8.0):
        model.block_size = wrong
        with pytest.raises(TypeError, match=f"BigramLanguageModel has block_size = {wrong}, expected"):
            block_size_of(model)


@pytest.mark.parametrize("precision", ["int8", "float16", "auto ", ""])
@pytest.mark.usefixtures("shapes_unchecked")
def test_another_precision_is_refused(precision):
    with pytest.raises(ValueError, match=f"no precision called {precision!r}.*float32, bfloat16, auto"):
        autocast(precision, torch.device("cpu"))
    with pytest.raises(TypeError, match="dtype_of: precision is list, expected str"):
        autocast([precision], torch.device("cpu"))


@pytest.mark.parametrize(("precision", "dtype"), [("float32", torch.float32), ("bfloat16", torch.bfloat16)])
def test_a_precision_that_is_asked_for_is_that_of_the_products(precision, dtype):
    with autocast(precision, torch.device("cpu")):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == dtype


@pytest.mark.parametrize(
    ("found", "expected"),
    [({"amx_bf16": True}, torch.bfloat16), ({"avx512_bf16": True}, torch.bfloat16), ({}, torch.float32)],
)
def test_auto_is_bfloat16_where_a_cpu_has_circuits_for_it(monkeypatch, found, expected):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: found)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    with autocast("auto", torch.device("cpu")):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == expected


def test_auto_is_float32_where_pytorch_is_kept_from_bfloat16(monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    assert autocast_dtype(torch.device("cpu")) is torch.float32


@pytest.mark.parametrize("able", [True, False])
def test_auto_asks_a_gpu_for_circuits_of_its_own(monkeypatch, able):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": not able})
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation: able or including_emulation
    )
    expected = torch.bfloat16 if able else torch.float32
    assert autocast_dtype(torch.device("cuda")) is expected


# generate


def table(*rows):
    """A bigram model with these probabilities."""
    model = BigramLanguageModel(len(rows))
    model.table.weight.data = torch.tensor(rows).log()
    return model


def test_generate_draws_with_the_models_probabilities():
    model = table([0.2, 0.5, 0.3], [0.2, 0.5, 0.3], [0.2, 0.5, 0.3])
    ids = generate(model, START.repeat(100, 1), 200, generator=torch.Generator().manual_seed(0))
    shares = ids[:, 1:].flatten().bincount(minlength=3) / 20_000
    torch.testing.assert_close(shares, torch.tensor([0.2, 0.5, 0.3]), atol=0.015, rtol=0)


@pytest.mark.parametrize(("temperature", "expected"), [(0.5, [4, 25, 9]), (2.0, [2**0.5, 5**0.5, 3**0.5])])
def test_temperature_divides_the_logits(temperature, expected):
    model = table([0.2, 0.5, 0.3], [0.2, 0.5, 0.3], [0.2, 0.5, 0.3])
    ids = generate(model, START.repeat(100, 1), 200, temperature, generator=torch.Generator().manual_seed(0))
    expected = torch.tensor(expected, dtype=torch.float32)
    shares = ids[:, 1:].flatten().bincount(minlength=3) / 20_000
    torch.testing.assert_close(shares, expected / expected.sum(), atol=0.015, rtol=0)


def test_top_k_leaves_the_best():
    model = table(*[[0.1, 0.4, 0.2, 0.3]] * 4)
    drawn = generate(model, START, 500, top_k=2, generator=torch.Generator().manual_seed(0))[0, 1:]
    assert set(drawn.tolist()) == {1, 3}
    assert set(generate(model, START, 50, top_k=1)[0, 1:].tolist()) == {1}
    assert set(generate(model, START, 500, top_k=99)[0].tolist()) == {0, 1, 2, 3}


def test_temperature_0_takes_the_best_and_follows_the_text():
    model = table([0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.8, 0.1, 0.1])
    assert generate(model, START, 5, temperature=0).tolist() == [[0, 1, 2, 0, 1, 2]]
    both = torch.tensor([[0], [1]])
    assert generate(model, both, 3, temperature=0).tolist() == [[0, 1, 2, 0], [1, 2, 0, 1]]


def test_the_same_generator_gives_the_same_text_and_another_seed_another():
    model, ids = tiny(), torch.tensor([[1, 2], [3, 4]])
    first, again, other = (
        generate(model, ids, 40, generator=torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.shape == (2, 42)
    assert torch.equal(first[:, :2], ids)
    assert not torch.equal(first[0, 2:], first[1, 2:])


def test_the_model_sees_the_last_block():
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


@pytest.mark.parametrize("training", [True, False])
def test_generate_writes_without_dropout_and_leaves_the_mode_as_it_was(training):
    model = tiny(dropout=0.9).train(training)
    first, again = (generate(model, START, 20, temperature=0) for _ in range(2))
    assert torch.equal(first, again)
    assert model.training == training


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"temperature": -1.0}, ValueError, "temperature = -1.0, expected a number of at least 0"),
        ({"temperature": math.nan}, ValueError, "temperature = nan"),
        ({"temperature": math.inf}, ValueError, "temperature = inf"),
        ({"temperature": None}, ValueError, "temperature = None"),
        ({"temperature": "1"}, ValueError, "temperature = '1'"),
        ({"top_k": -2}, ValueError, "top_k = -2, expected an integer of at least 1"),
        ({"top_k": 0}, ValueError, "top_k = 0"),
        ({"top_k": 2.0}, TypeError, "top_k = 2.0"),
        ({"max_new_tokens": -1}, ValueError, "max_new_tokens = -1, expected an integer of at least 0"),
        ({"max_new_tokens": 1.0}, TypeError, "max_new_tokens = 1.0"),
        ({"generator": 0}, TypeError, r"generator is int, expected a torch.Generator.*manual_seed\(seed\)"),
    ],
)
@pytest.mark.usefixtures("shapes_unchecked")
def test_generate_refuses_what_it_cannot_do(options, error, words):
    with pytest.raises(error, match=f"^generate: {words}"):
        generate(tiny(), START, **{"max_new_tokens": 3} | options)


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
    model = Broken(*logits).train()
    with pytest.raises(
        ValueError, match=rf"after 3 tokens, .* each sequence is \[0.0, {best}\], expected finite"
    ):
        generate(model, START.repeat(2, 1), 5, **options)
    assert model.training


def test_logits_of_minus_inf_rule_a_token_out():
    model = Broken(-math.inf, 0.0, -math.inf).train()
    assert (generate(model, START.repeat(2, 1), 5)[1, 3] == 1).all()
    assert generate(model, START.repeat(2, 1), 5, temperature=0)[1, 3] == 1


def test_a_temperature_that_makes_logits_overflow_is_named():
    with pytest.raises(ValueError, match=r"at temperature 1e-40, .* expected finite"):
        generate(Broken(5.0, 0.0), START.repeat(2, 1), 5, temperature=1e-40)


# The cache


def tiny_llama(seed=0, **changes):
    torch.manual_seed(seed)
    sizes = {"vocab_size": 13, "block_size": 11, "n_layer": 3, "n_head": 6, "n_embd": 36, "n_kv_head": 2}
    return Llama(LlamaConfig(**sizes | {"n_hidden": 17} | changes))


with_and_without_positions = pytest.mark.parametrize("make", [tiny, tiny_llama])


@with_and_without_positions
@pytest.mark.parametrize("cut", range(1, 11))
def test_a_text_may_be_read_in_parts(make, cut):
    model, ids, cache = make(), torch.randint(13, (3, 11)), Cache()
    with torch.no_grad(), record_weights() as whole:
        expected = model(ids)
    with torch.no_grad():
        torch.testing.assert_close(model(ids[:, :cut], cache), expected[:, :cut])
        with record_weights() as later:
            torch.testing.assert_close(model(ids[:, cut:], cache), expected[:, cut:])
    assert len(cache) == 11
    for rows, weights in zip(later, whole, strict=True):
        torch.testing.assert_close(rows, weights[:, :, cut:])


@with_and_without_positions
@given(seed=seeds, cuts=st.sets(st.integers(1, 10)))
def test_in_any_number_of_parts(make, seed, cuts):
    model, cache = make(seed), Cache()
    ids = torch.randint(13, (2, 11), generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        logits = [model(part, cache) for part in ids.tensor_split(sorted(cuts), dim=1)]
        torch.testing.assert_close(torch.cat(logits, dim=1), model(ids))


def sharpened(model):
    """Make the model choose clearly, and seldom the same token twice."""
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)
    return model


@pytest.mark.slow
@pytest.mark.usefixtures("shapes_unchecked")  # for speed
@with_and_without_positions
def test_with_a_cache_it_writes_what_it_writes_without(make):
    """Each beginning of a greedy text goes on as the text does: one without a cache serves all lengths."""
    model = sharpened(make(block_size=241, n_layer=2))
    text = generate(model, START, 240, temperature=0)
    assert len(text.unique()) > 5
    for length in range(1, 41):
        written = generate(model, text[:, :length], 200, temperature=0, cache=Cache())
        assert torch.equal(written, text[:, : length + 200])


@pytest.mark.slow
@pytest.mark.usefixtures("shapes_unchecked")  # for speed
@with_and_without_positions
@pytest.mark.parametrize("options", [{"temperature": 0}, {}, {"top_k": 5, "temperature": 0.8}])
@pytest.mark.parametrize("length", [1, 7, 40])
def test_so_does_a_batch_and_with_luck(make, options, length):
    model, cache = sharpened(make(block_size=240, n_layer=2)), Cache()
    ids = torch.randint(13, (3, length), generator=torch.Generator().manual_seed(length))
    written, too = (
        generate(model, ids, 200, **options, generator=torch.Generator().manual_seed(7), cache=each)
        for each in (None, cache)
    )
    assert torch.equal(written, too)
    assert len(cache) == length + 199  # nobody has read the last token yet
    assert not torch.equal(written[0, length:], written[1, length:])


@with_and_without_positions
@pytest.mark.parametrize("length", [1, 10, 11, 12, 20])
def test_past_the_block_it_crops_as_without(make, length):
    model = sharpened(make())
    ids = torch.randint(13, (2, length), generator=torch.Generator().manual_seed(length))
    written = generate(model, ids, 30, temperature=0)
    assert torch.equal(generate(model, ids, 30, temperature=0, cache=Cache()), written)


@with_and_without_positions
def test_each_token_is_read_once_until_the_block_is_full(make):
    model, read = make(), []
    model.register_forward_pre_hook(lambda module, inputs: read.append(inputs[0].shape[1]))
    cache = Cache()
    ids = generate(model, torch.zeros(1, 5, dtype=torch.long), 9, cache=cache)
    assert read == [5, 1, 1, 1, 1, 1, 1, 11, 11]
    assert len(cache) == 11
    read.clear()
    assert generate(model, ids[:, :8], 0, cache=Cache()).shape == (1, 8)
    assert read == []


@with_and_without_positions
def test_writing_goes_on_where_it_stopped(make):
    model, cache, read = sharpened(make()), Cache(), []
    expected = generate(model, START, 10, temperature=0)
    first = generate(model, START, 4, temperature=0, cache=cache)
    model.register_forward_pre_hook(lambda module, inputs: read.append(inputs[0].shape[1]))
    assert torch.equal(generate(model, first, 6, temperature=0, cache=cache), expected)
    assert read == [1] * 6


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


def test_positions_are_counted_from_the_first_token_in_the_cache():
    torch.manual_seed(0)
    model, cache = GPT(tiny().config, wpe=Ramp), Cache()
    model(torch.full((1, 4), 3), cache)
    model(torch.full((1, 2), 3), cache)
    assert model.transformer.wpe.asked == [[0, 1, 2, 3], [4, 5]]


def test_what_a_cache_holds_is_counted_in_numbers():
    ids, sizes = torch.zeros(2, 7, dtype=torch.long), []
    for n_kv_head in (1, 2, 6):
        cache = Cache()
        tiny_llama(n_kv_head=n_kv_head)(ids, cache)
        sizes.append(cache.numel())
    cache = Cache()
    assert (len(cache), cache.numel()) == (0, 0)
    tiny(n_head=6, n_embd=36)(ids, cache)
    assert cache.numel() == 2 * 3 * 2 * 7 * 36  # keys and values, n_layer, B, T, n_embd
    assert sizes == [cache.numel() // 6, cache.numel() // 3, cache.numel()]


def filled(B=2, T=4):
    """A cache of another model."""
    cache = Cache()
    tiny(seed=1)(torch.zeros(B, T, dtype=torch.long), cache)
    return cache


@pytest.mark.usefixtures("shapes_unchecked")
def test_a_cache_that_does_not_fit_is_refused():
    model, cache, ids = tiny(), Cache(), torch.zeros(2, 7, dtype=torch.long)
    model(ids[:, :4], cache)
    with pytest.raises(ValueError, match="Cache: it holds nothing of this model, expected 2 sequences"):
        model(ids, filled())
    for B in (1, 3):
        with pytest.raises(ValueError, match=f"Cache: it holds 2 sequences, expected {B} sequences"):
            model(torch.zeros(B, 1, dtype=torch.long), cache)
    with pytest.raises(ValueError, match=r"12 tokens, but block_size is 11.* start with a new Cache\(\)"):
        model(torch.zeros(2, 8, dtype=torch.long), cache)
    for T in (3, 4):
        with pytest.raises(
            ValueError, match=rf"generate: the cache holds 4 tokens, and ids has {T}, expected more\. Pass"
        ):
            generate(model, ids[:, :T], 3, cache=cache)
    with pytest.raises(TypeError, match="generate: cache is dict, expected Cache"):
        generate(model, ids, 3, cache={})
    with pytest.raises(TypeError, match=r"generate: BigramLanguageModel takes no cache\. Leave it out"):
        generate(BigramLanguageModel(13), ids, 3, cache=Cache())
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
