"""The speed run: each trick does what it says and nothing else, and without any it is rung 8."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from training.small import without_clock

from attention_course import speedrun as speedrun_module
from attention_course.attention import Cache
from attention_course.examine import examine
from attention_course.gpt import GPT, Block, GPTConfig, generate
from attention_course.speedrun import (
    ADAM_LR,
    FAST_CONFIGS,
    MUON_LR,
    WARMUP,
    Muon,
    ShiftedBlock,
    TokenShift,
    linear_decay,
    newton_schulz,
    speedrun,
)
from attention_course.stories import write_stories
from attention_course.text import Corpus
from attention_course.training import MODEL_CONFIGS, RECIPES, Recipe, Trainer, run

DATA = Corpus.of(write_stories(seed=3, characters=20_000))


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# Newton-Schulz


def polynomial(s, steps):
    for _ in range(steps):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    return s


@pytest.mark.parametrize("shape", [(5, 5), (3, 7), (7, 3), (1, 4), (2, 5, 3)])
@pytest.mark.parametrize("steps", [0, 1, 5])
def test_newton_schulz_maps_singular_values_and_keeps_directions(shape, steps):
    matrix = random(*shape).double()
    u, s, vh = torch.linalg.svd(matrix, full_matrices=False)
    scaled = s / s.norm(dim=-1, keepdim=True)
    expected = u @ torch.diag_embed(polynomial(scaled, steps)) @ vh
    torch.testing.assert_close(newton_schulz(matrix, steps), expected, atol=1e-6, rtol=0)


def test_singular_values_become_about_one():
    u, v = (torch.linalg.qr(random(40, 40, seed=seed))[0] for seed in (1, 2))
    matrix = u @ torch.diag(torch.logspace(-2, 0, 40)) @ v  # a hundred times as long in one direction
    values = torch.linalg.svdvals(newton_schulz(matrix))
    assert values.min() > 0.6
    assert values.max() < 1.25
    assert newton_schulz(torch.zeros(3, 2)).abs().max() == 0


# Muon


@pytest.mark.parametrize(("shape", "length"), [((6, 6), 1.0), ((12, 3), 2.0), ((3, 12), 1.0)])
def test_a_step_of_muon_goes_equally_far_in_every_direction(shape, length):
    parameter = nn.Parameter(random(*shape))
    start, parameter.grad = parameter.detach().clone(), random(*shape, seed=1) * 1e-3
    Muon([{"params": [parameter], "orthogonal": True}], lr=0.5).step()
    values = torch.linalg.svdvals(start - parameter.detach()) / 0.5
    assert ((0.6 * length < values) & (values < 1.25 * length)).all()


def test_muon_orthogonalises_nesterov_momentum_and_decays(monkeypatch):
    monkeypatch.setattr(speedrun_module, "autocast_dtype", lambda device: torch.float32)
    parameter = nn.Parameter(random(4, 4))
    optimizer = Muon([{"params": [parameter], "orthogonal": True}], lr=0.1, momentum=0.8, weight_decay=0.5)
    expected, mean = parameter.detach().clone(), torch.zeros(4, 4)
    for seed in range(1, 4):
        parameter.grad = random(4, 4, seed=seed)
        optimizer.step()
        mean = 0.8 * mean + 0.2 * parameter.grad
        step = 0.2 * parameter.grad + 0.8 * mean
        expected = expected * (1 - 0.1 * 0.5) - 0.1 * newton_schulz(step)
        torch.testing.assert_close(parameter.detach(), expected, atol=1e-5, rtol=0)


def test_the_rest_gets_adamw():
    ours, theirs = (nn.Parameter(random(5, 3)) for _ in range(2))
    optimizers = (
        Muon([{"params": [ours]}], lr=0.1, betas=(0.8, 0.9), weight_decay=0.3),
        torch.optim.AdamW([theirs], lr=0.1, betas=(0.8, 0.9), weight_decay=0.3),
    )
    for seed in range(4):
        ours.grad = random(5, 3, seed=seed)
        theirs.grad = ours.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


# Token shift


def shifted(*mixes):
    """Return a block with token shifts whose shares are given, or those it begins with."""
    torch.manual_seed(0)
    block = ShiftedBlock(Block(GPTConfig(13, n_embd=8, n_head=2)), 8)
    for part, mix in zip((block.shift_1, block.shift_2), mixes, strict=False):
        nn.init.constant_(part.mix, mix)
    return block


@pytest.mark.parametrize("mix", [0.0, 0.25, 1.0])
def test_a_shift_mixes_each_token_with_the_one_before(mix):
    shift, x = TokenShift(8), random(2, 5, 8)
    nn.init.constant_(shift.mix, mix)
    before = torch.cat([torch.zeros(2, 1, 8), x[:, :-1]], dim=1)
    torch.testing.assert_close(shift(x), (1 - mix) * x + mix * before)


def test_attention_and_mlp_each_have_a_shift_of_their_own():
    x = random(2, 5, 8)
    plain = shifted(0.0, 0.0)
    torch.testing.assert_close(plain(x), plain.block(x, is_causal=True))
    for mixes in ((0.5, 0.0), (0.0, 0.5)):
        block = shifted(*mixes)
        attn, mlp = (lambda x, mix=mix: x + mix * (F.pad(x, (0, 0, 1, -1)) - x) for mix in mixes)
        y = x + block.block.attn(attn(block.block.ln_1(x)), is_causal=True)
        torch.testing.assert_close(block(x), y + block.block.mlp(mlp(block.block.ln_2(y))))


# The tricks


def losses(trainer, steps):
    return [trainer.step() for _ in range(steps)]


@pytest.mark.parametrize("text", FAST_CONFIGS)
def test_without_tricks_it_is_rung_8(text):
    torch.manual_seed(5)
    base = text.removesuffix("-long")
    model = GPT(GPTConfig(DATA.tokenizer.vocab_size, **MODEL_CONFIGS[base]))
    torch.manual_seed(6)
    before = torch.get_rng_state()
    expected = Trainer(model, DATA, replace(RECIPES[base], seed=5))
    ours = speedrun(DATA, [], text=text, seed=5)
    assert ours.recipe == expected.recipe
    assert ours.model.config == model.config
    assert losses(ours, 2) == losses(expected, 2)
    assert torch.equal(torch.get_rng_state(), before)
    sizes, changes = FAST_CONFIGS[text]
    fast = speedrun(DATA, text=text, steps=7)
    assert all(getattr(fast.model.config, name) == size for name, size in sizes.items())
    expected = {"learning_rate": ADAM_LR, "warmup": WARMUP} | changes | {"steps": 7}
    assert all(getattr(fast.recipe, name) == value for name, value in expected.items())


def changes(name):
    """Return what differs between rung 8's trainer and that with one trick."""
    ours, other = speedrun(DATA, [name]), speedrun(DATA, [])
    classes, others = ({type(m).__name__ for m in each.model.modules()} for each in (ours, other))
    recipe = {key for key, value in vars(ours.recipe).items() if value != getattr(other.recipe, key)}
    return {
        "parts": classes ^ others,
        "optimizer": type(ours.optimizer).__name__,
        "recipe": recipe,
        "sizes": ours.model.config != other.model.config,
        "straight": ours.schedule(600) == linear_decay(ours.recipe, 600),
    }


def test_each_trick_changes_what_it_says():
    none = {"parts": set(), "optimizer": "AdamW", "recipe": set(), "sizes": False, "straight": False}
    rotary = {"GroupedQueryAttention", "MultiHeadAttention", "Rotary"}
    assert changes("rotary") == none | {"parts": rotary}
    assert changes("muon") == none | {"optimizer": "Muon", "recipe": {"learning_rate"}}
    assert changes("schedule") == none | {"recipe": {"warmup"}, "straight": True}
    assert changes("token_shift") == none | {"parts": {"ShiftedBlock", "TokenShift"}}
    assert changes("shape") == none | {"sizes": True, "recipe": {"steps", "batch_size", "learning_rate"}}


def test_muon_holds_the_matrices_of_the_blocks_and_adamw_all_else():
    trainer = speedrun(DATA)
    names = {id(parameter): name for name, parameter in trainer.model.named_parameters()}
    hidden, rest = ([names[id(p)] for p in group["params"]] for group in trainer.optimizer.param_groups)
    parts = ["attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"]
    assert hidden == [f"transformer.h.0.block.{part}.weight" for part in parts]
    assert sorted(hidden + rest) == sorted(names.values())
    trainer.step()
    muon, adam = trainer.optimizer.param_groups
    first = trainer.recipe.learning_rate / WARMUP
    assert (muon["lr"], adam["lr"]) == pytest.approx((first * MUON_LR / ADAM_LR, first))
    assert (muon["weight_decay"], adam["weight_decay"]) == (trainer.recipe.weight_decay, 0.0)


def test_the_learning_rate_rises_and_falls_in_straight_lines():
    recipe = Recipe(steps=10, warmup=2, learning_rate=0.8)
    rates = [linear_decay(recipe, step) for step in range(10)]
    assert rates == pytest.approx([0.4, 0.8, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1])
    assert linear_decay(replace(recipe, warmup=0), 0) == pytest.approx(0.8)


def test_a_fast_training_resumes_bit_by_bit(tmp_path):
    whole, begun, resumed = (speedrun(DATA, steps=6) for _ in range(3))
    run(whole, callback=lambda t: None)
    run(begun, callback=lambda t: t.steps_done == 3)
    begun.save(tmp_path / "run.pt")
    resumed.load(tmp_path / "run.pt")
    assert resumed.steps_done == 3
    run(resumed, callback=lambda t: None)
    assert without_clock(resumed.history) == without_clock(whole.history)


def test_a_fast_model_writes_the_same_with_a_cache():
    model = speedrun(DATA).model
    ids = DATA.val[None, :100]
    with_cache = generate(model, ids, 40, temperature=0, cache=Cache())
    assert torch.equal(generate(model, ids, 40, temperature=0), with_cache)


def test_the_examiner_finds_nothing_wrong():
    model = speedrun(DATA).model
    report = examine(model, vocab_size=model.config.vocab_size, block_size=model.block_size, train=False)
    assert {finding.verdict for finding in report.findings} == {"right", "not asked"}
