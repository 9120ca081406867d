"""What a training is of: a checkpoint of another one is refused, and a crafted one before anything is set."""

import re
from dataclasses import replace

import pytest
import torch
from training.small import (
    DATA,
    RECIPE,
    TEXT,
    Unmasked,
    bytes_of,
    equal,
    packed,
    tiny,
    with_momentum,
)

from attention_course.gpt import GPT, BigramLanguageModel
from attention_course.text import CharTokenizer
from attention_course.training import Trainer, load_model, read_checkpoint


@pytest.mark.parametrize(
    ("model", "data", "recipe", "message"),
    [
        ({"n_layer": 2}, DATA, RECIPE, "its config is different: n_layer = 1 there and 2 here"),
        ({"dropout": 0.0}, DATA, RECIPE, "its config is different: dropout = 0.3 there and 0.0 here"),
        ({}, DATA, replace(RECIPE, steps=11), "its recipe is different: steps = 10 there and 11 here"),
        ({}, replace(DATA, train=DATA.train[1:]), RECIPE, "its training text is different"),
        ({}, replace(DATA, val=DATA.val.flip(0)), RECIPE, "its validation text is different"),
        ({}, replace(DATA, tokenizer=CharTokenizer(TEXT + "é")), RECIPE, "its characters is different"),
        (None, DATA, RECIPE, "its config is different"),
    ],
)
def test_a_checkpoint_of_another_task_is_refused(saved, model, data, recipe, message):
    other = (
        BigramLanguageModel(DATA.tokenizer.vocab_size) if model is None else tiny(**{"dropout": 0.3} | model)
    )
    trainer = Trainer(other, data, recipe)
    with pytest.raises(ValueError, match=rf"run.pt does not match: {message}"):
        trainer.load(saved)
    assert trainer.steps_done == 0


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_three_differences_are_named(saved, count):
    other = dict(list({"steps": 11, "batch_size": 3, "evaluate_every": 3, "seed": 9}.items())[:count])
    with pytest.raises(ValueError, match="its recipe is different") as caught:
        Trainer(tiny(dropout=0.3), DATA, replace(RECIPE, **other)).load(saved)
    named = [f"{name} = {getattr(RECIPE, name)} there and {value} here" for name, value in other.items()]
    listed = re.search(r"is different: (.*)\. Train", str(caught.value))[1]
    assert listed == ", ".join(named[:3]) + ", ..." * (count > 3)


def test_a_checkpoint_of_a_table_of_another_size_is_refused(tmp_path):
    Trainer(BigramLanguageModel(40), DATA, RECIPE).save(tmp_path / "run.pt")
    with pytest.raises(ValueError, match=r"its model is different: table.weight = float32 \[40, 40\] there"):
        Trainer(BigramLanguageModel(41), DATA, RECIPE).load(tmp_path / "run.pt")


def test_a_checkpoint_of_another_optimizer_is_refused(saved):
    model = tiny(dropout=0.3)
    for optimizer, message in [
        (
            with_momentum(model),
            r"class = AdamW there and SGD here, parameters = \[6, 3\] there and \[9\] here",
        ),
        (torch.optim.AdamW(model.parameters()), r"parameters = \[6, 3\] there and \[9\] here"),
    ]:
        trainer = Trainer(model, DATA, RECIPE, optimizer)
        with pytest.raises(ValueError, match=f"its optimizer is different: {message}"):
            trainer.load(saved)
        assert equal(model, tiny(dropout=0.3))


# Crafted files: everything is checked before anything is set

TABLE = r"state\.0\.exp_avg = {} there and float32 \[\d+, 6\] here"


def put(*place):
    """Return a function that changes one entry of a state."""
    *path, key, value = place

    def change(entries):
        for name in path:
            entries = entries[name]
        entries[key] = value(entries[key]) if callable(value) else value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("state", 0, "exp_avg", torch.zeros(1)), TABLE.format(r"float32 \[1\]")),
        (put("state", 0, "exp_avg", torch.zeros(())), TABLE.format(r"float32 \[\]")),
        (put("state", 0, "exp_avg", torch.Tensor.double), TABLE.format(r"float64 \[\d+, 6\]")),
        (put("state", 0, "exp_avg", torch.Tensor.long), TABLE.format(r"int64 \[\d+, 6\]")),
        (
            put("state", 0, "exp_avg", lambda t: torch.zeros(1).expand(t.shape)),
            TABLE.format(r"float32 \[\d+, 6\], strides \[0, 0\]"),
        ),
        (put("state", 0, "exp_avg", torch.Tensor.to_sparse), TABLE.format("not a plain dense tensor")),
        (put("state", 0, "exp_avg", lambda t: t.to("meta")), TABLE.format("not a plain dense tensor")),
        (put("state", 0, "exp_avg", 3), TABLE.format("number")),
        (put("state", 0, "exp_avg", {}), TABLE.format("dict")),
        (put("state", 0, "step", torch.zeros(2)), r"state\.0\.step = float32 \[2\] there"),
        (put("state", 0, {}), r"state\.0\.step = None there and float32 \[\] here"),
        (put("state", 0, "more", torch.zeros(1)), "state.0.more"),
        (put("state", 99, {}), r"state\.99 = dict there and None here"),
        (put("param_groups", 0, "betas", 3.0), "param_groups.0.betas = number there and list here"),
        (put("param_groups", 0, "betas", (0.9,)), "param_groups.0.betas.1 = None there and number here"),
        (put("param_groups", 0, "fused", False), "param_groups.0.fused = False there and True here"),
        (put("param_groups", 0, "params", [0, 0, 1, 2, 3, 4]), "order of parameters is different"),
        (put("param_groups", 0, {}), "param_groups.0.lr = None there and number here"),
        (put("state", []), "optimizer is different"),
        (put("param_groups", {}), "optimizer is different"),
    ],
)
def test_a_crafted_optimizer_is_refused_and_nothing_is_set(saved, change, message):
    crafted = read_checkpoint(saved)
    change(crafted["optimizer"])
    saved.write_bytes(packed(crafted))
    trainer = Trainer(tiny(dropout=0.3), DATA, RECIPE)
    before = bytes_of(trainer._checkpoint())
    with pytest.raises(ValueError, match=f"run.pt does not match: its .*{message}"):
        trainer.load(saved)
    assert bytes_of(trainer._checkpoint()) == before


@pytest.mark.parametrize("optimizer", ["Adagrad", "Adafactor", "ASGD", "NAdam", "RMSprop", "Rprop", "SGD"])
def test_the_state_of_any_optimizer_is_resumed(tmp_path, optimizer):
    def trainer(seed):
        model = tiny(seed=seed)
        return Trainer(model, DATA, RECIPE, getattr(torch.optim, optimizer)(model.parameters(), lr=1))

    for steps in (0, 3):
        first, second = trainer(0), trainer(8)
        for _ in range(steps):
            first.step()
        first.save(tmp_path / "run.pt")
        second.load(tmp_path / "run.pt")
        assert first.step() == second.step()
        assert equal(first.model, second.model)


class Slowed(torch.optim.SGD):
    """Has attributes of its own, and remembers how often it was asked."""

    def __init__(self, parameters):
        super().__init__(parameters, lr=0.1)
        self.calls = 0

    def step(self, closure=None):
        self.calls += 1
        super().step(closure)


def test_an_optimizer_does_not_notice_that_a_copy_of_it_was_tried(saved, tmp_path):
    model = tiny()
    trainer = Trainer(model, DATA, RECIPE, Slowed(model.parameters()))
    trainer.save(tmp_path / "own.pt")
    trainer.load(tmp_path / "own.pt")
    assert trainer.optimizer.calls == 0
    assert equal(model, tiny())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_class_of_the_same_name_is_another_one(tmp_path):
    other = type("MultiHeadAttention", (Unmasked,), {"__module__": "elsewhere"})
    Trainer(GPT(tiny().config, attn=other), DATA, RECIPE).save(tmp_path / "run.pt")
    with pytest.raises(ValueError, match="holds a GPT with custom parts"):
        load_model(tmp_path / "run.pt")
    with pytest.raises(ValueError, match=r"attn = elsewhere.MultiHeadAttention there and attention_course"):
        Trainer(tiny(), DATA, RECIPE).load(tmp_path / "run.pt")
