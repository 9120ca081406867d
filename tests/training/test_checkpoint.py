"""Checkpoints: a training resumes as if nothing had happened, and no other file is taken for one."""

import errno
import io
import os
import pickle
import zipfile
from dataclasses import asdict, replace
from functools import partial

import pytest
import torch
from training.small import DATA, RECIPE, TEXT, Unmasked, equal, finish, packed, tiny, without_clock

from attention_course.gpt import GPT, BigramLanguageModel
from attention_course.text import CharTokenizer
from attention_course.training import Trainer, checkpoint, load_model, read_checkpoint, run

FOREIGN = r"run.pt is not a checkpoint of this course, or it is damaged"


def state_of(trainer):
    parts = trainer.model.state_dict(), trainer.optimizer.state_dict(), asdict(trainer.history)
    return packed([*parts, trainer.steps_done, trainer.seconds, trainer.generator.get_state()])


# Resuming


@pytest.mark.parametrize("stop", [0, 5])
@pytest.mark.parametrize(
    "optimizer", [None, partial(torch.optim.SGD, momentum=0.9), torch.optim.Adafactor, torch.optim.NAdam]
)
def test_a_resumed_training_is_the_uninterrupted_one_bit_by_bit(tmp_path, optimizer, stop):
    def trainer(seed):
        model = tiny(seed, dropout=0.3)
        if optimizer is None:
            return Trainer(model, DATA, RECIPE)
        return Trainer(model, DATA, RECIPE, optimizer(model.parameters()), lambda step: 0.1 / (step + 1))

    whole, first, second = trainer(0), trainer(0), trainer(8)
    finish(whole)
    for _ in range(stop):
        first.step()
    first.save(tmp_path / "run.pt")
    torch.manual_seed(99)
    second.load(tmp_path / "run.pt")
    assert (second.steps_done, second.seconds) == (stop, first.seconds)
    finish(second)
    assert without_clock(second.history) == without_clock(whole.history)
    assert equal(second.model, whole.model)


def test_a_model_comes_back_with_its_tokenizer(saved):
    trainer = Trainer(tiny(dropout=0.3), DATA, RECIPE)
    trainer.load(saved)
    model, tokenizer = load_model(saved)
    assert tokenizer == DATA.tokenizer
    assert not model.training
    assert model.config == trainer.model.config
    assert equal(model, trainer.model)


def test_only_a_gpt_is_built_from_its_checkpoint(tmp_path):
    Trainer(BigramLanguageModel(40), DATA, RECIPE).save(tmp_path / "run.pt")
    with pytest.raises(ValueError, match=r"run.pt holds a model that is not a GPT. Build that model"):
        load_model(tmp_path / "run.pt")


@pytest.mark.parametrize(
    "part", [Unmasked, type("MultiHeadAttention", (Unmasked,), {"__module__": "elsewhere"})]
)
def test_a_gpt_with_parts_of_its_own_is_not_taken_for_another(tmp_path, part):
    trainer = Trainer(GPT(tiny().config, attn=part), DATA, RECIPE)
    trainer.save(tmp_path / "run.pt")
    with pytest.raises(ValueError, match=r"run.pt holds a GPT with custom parts. Build that model"):
        load_model(tmp_path / "run.pt")
    name = f"{part.__module__}.{part.__qualname__}"
    with pytest.raises(
        ValueError, match=rf"in its modules: transformer.h.0.attn = {name} there and \S+Multi"
    ):
        Trainer(tiny(), DATA, RECIPE).load(tmp_path / "run.pt")
    other = Trainer(GPT(tiny(1).config, attn=part), DATA, RECIPE)
    other.load(tmp_path / "run.pt")
    assert equal(other.model, trainer.model)


# Writing


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_checkpoint_that_cannot_be_finished_leaves_the_old_one(saved, monkeypatch, error):
    def fail(file):
        raise error

    old = saved.read_bytes()
    trainer = Trainer(tiny(), DATA, RECIPE)
    trainer.step()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(type(error), match=r"could not be written: No space left|^$"):
            trainer.save(saved)
    assert saved.read_bytes() == old
    assert list(saved.parent.iterdir()) == [saved]
    trainer.save(saved)
    assert read_checkpoint(saved)["steps_done"] == 1


def test_parameters_that_are_not_finite_are_not_saved_over_a_good_checkpoint(saved):
    before = saved.read_bytes()
    trainer = Trainer(tiny(), DATA, replace(RECIPE, learning_rate=1e38, warmup=0))
    run(trainer, callback=lambda t: True)
    with pytest.raises(FloatingPointError, match=r"run.pt was not written: .* holds NaN or inf"):
        trainer.save(saved)
    assert saved.read_bytes() == before


# Other files


class Code:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def foreign_files(folder, whole, state):
    """Yield contents that are no checkpoints; those with code would create the file `trace`."""
    yield from (whole[: len(whole) // 2], whole[:-1], b"", TEXT.encode(), b"a header of old\n" + whole)
    code = Code(folder / "trace")
    yield from (pickle.dumps(code), packed(code), packed({"settings": code}))
    yield from (packed(tiny().state_dict()), packed([1]))
    yield from (packed({name: value for name, value in state.items() if name != part}) for part in state)
    yield from (packed(state | wrong) for wrong in WRONG)
    broken = {name: tensor * torch.nan for name, tensor in state["model"].items()}
    yield packed(state | {"model": broken})
    yield deflated(whole)


def deflated(whole):
    """Compress a checkpoint: torch.load reads it, and a small file may hold more than memory does."""
    content = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(whole)) as old,
        zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            new.writestr(name, old.read(name))
    return content.getvalue()


V = DATA.tokenizer.vocab_size
HISTORY = {"losses": [1.0] * 5, "val_steps": [4], "val_losses": [1.0], "val_seconds": [1.0], "stopped": True}
WRONG_HISTORY = [
    *({"losses": [value] * 5} for value in (float("nan"), "x", 1)),
    *({"val_steps": steps} for steps in ([], [0], [6], [4.0], [True])),
    {"val_steps": [4, 2], "val_losses": [1.0] * 2, "val_seconds": [1.0] * 2},
    *({"val_losses": losses} for losses in ([], [float("inf")])),
    *({"val_seconds": seconds} for seconds in ([], ["1"])),
    {"stopped": "maybe"},
]
WRONG = [
    {"model": tiny(n_embd=8).state_dict()},
    {"model": tiny().double().state_dict()},
    {"model": {"a": 1}},
    {"settings": {"recipe": 3}},
    {"steps_done": None},
    {"seconds": "1"},
    {"seconds": float("nan")},
    {"seconds": -1.0},
    {"optimizer": {}},
    {"optimizer": {0: {"exp_avg": torch.tensor(torch.nan)}}},
    {"optimizer": {0: {"exp_avg_sq": torch.tensor(-1.0)}}},
    {"optimizer": {0: {"exp_avg": torch.ones(2), "exp_avg_sq": torch.zeros(2)}}},
    {"optimizer": {0: {"step": torch.tensor(-5.0)}}},
    {"optimizer": {0: {"exp_avg": torch.zeros(()), "step": -5}}},
    {"model": tiny().state_dict() | {"lm_head.weight": torch.zeros(V, 6)}},
    {"history": [1]},
    {"history": {"lossez": []}},
    {"steps_done": 6},
    {"steps_done": 11, "history": {"losses": [1.0] * 11}},
    {"steps_done": True, "history": {"losses": [1.0]}},
    *({"history": HISTORY | wrong} for wrong in WRONG_HISTORY),
    {"generator": None},
    {"more": torch.zeros(3)},
]
WRONG_FOR_A_TRAINER = [  # a model is not made of these
    {"generator": torch.zeros(3, dtype=torch.uint8)},
    {"optimizer": {99: {"step": torch.zeros(())}}},
]


def test_foreign_and_damaged_files_are_refused_and_no_code_is_run(saved):
    whole, state = saved.read_bytes(), read_checkpoint(saved)
    trainer = Trainer(tiny(dropout=0.3), DATA, RECIPE)
    before = state_of(trainer)
    everywhere = [(content, load_model) for content in foreign_files(saved.parent, whole, state)]
    for content, read in [*everywhere, *((packed(state | wrong), None) for wrong in WRONG_FOR_A_TRAINER)]:
        saved.write_bytes(content)
        for function in filter(None, (trainer.load, read)):
            with pytest.raises(ValueError, match=FOREIGN):
                function(saved)
        assert state_of(trainer) == before
        assert saved.read_bytes() == content
    assert list(saved.parent.iterdir()) == [saved]


def test_a_changed_bit_is_noticed_or_changes_nothing(tmp_path):
    path, refused = tmp_path / "run.pt", 0
    Trainer(BigramLanguageModel(4), replace(DATA, tokenizer=CharTokenizer("abcd")), RECIPE).save(path)
    whole, state = path.read_bytes(), packed(read_checkpoint(path))
    positions = range(0, len(whole), 29)
    for position in positions:
        changed = bytearray(whole)
        changed[position] ^= 1 << position % 8
        path.write_bytes(changed)
        try:
            assert packed(read_checkpoint(path)) == state
        except ValueError:
            refused += 1
    assert refused > len(positions) / 3, "the rest is padding"


# Other settings


TABLE = BigramLanguageModel(DATA.tokenizer.vocab_size)


@pytest.mark.parametrize(
    ("model", "data", "recipe", "message"),
    [
        ({"n_layer": 2}, DATA, RECIPE, "config: n_layer = 1 there and 2 here"),
        ({"dropout": 0.0}, DATA, RECIPE, "config: dropout = 0.3 there and 0.0 here"),
        (TABLE, DATA, RECIPE, "config"),
        (tiny(dropout=0.3).double(), DATA, RECIPE, r"parameters: \S+ = float32 \[.*\] there and float64"),
        ({}, DATA, replace(RECIPE, steps=11), "recipe: steps = 10 there and 11 here"),
        ({}, replace(DATA, train=DATA.train[1:]), RECIPE, "training text"),
        ({}, replace(DATA, val=DATA.val.flip(0)), RECIPE, "validation text"),
        ({}, replace(DATA, tokenizer=CharTokenizer(TEXT + "é")), RECIPE, "characters"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused(saved, model, data, recipe, message):
    trainer = Trainer(tiny(**{"dropout": 0.3} | model) if isinstance(model, dict) else model, data, recipe)
    before = state_of(trainer)
    with pytest.raises(ValueError, match=rf"run.pt does not match in its {message}"):
        trainer.load(saved)
    assert state_of(trainer) == before


def test_a_name_in_a_checkpoint_drives_no_terminal(saved, tmp_path):
    state = torch.load(saved, weights_only=True)
    state["settings"]["modules"]["\x1b[2J"] = "x"
    torch.save(state, tmp_path / "odd.pt")
    with pytest.raises(ValueError, match=r"its modules: \\x1b\[2J = x there"):
        Trainer(tiny(dropout=0.3), DATA, RECIPE).load(tmp_path / "odd.pt")


def test_a_checkpoint_of_another_optimizer_is_refused(saved):
    model = tiny(dropout=0.3)
    groups = Trainer(model, DATA, RECIPE).optimizer.param_groups
    for optimizer, message in [
        (torch.optim.SGD(model.parameters(), 0.1), "class = AdamW there and SGD here"),
        (torch.optim.AdamW(model.parameters(), fused=True), r"params = \[6, 3\] there and \[9\] here"),
        (
            torch.optim.AdamW([{**group, "betas": (0.5, 0.95)} for group in groups]),
            r"betas = \[\(0.9, 0.95\), \(0.9, 0.95\)\] there and \[\(0.5",
        ),
    ]:
        with pytest.raises(ValueError, match=f"does not match in its optimizer: .*{message}"):
            Trainer(model, DATA, RECIPE, optimizer).load(saved)
        assert equal(model, tiny(dropout=0.3))


# Crafted files


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("config", "n_embd", torch.zeros(3)),
        ("recipe", "final_learning_rate", torch.zeros(3)),
        ("optimizer", "weight_decay", [torch.zeros(3), 0.0]),
    ],
)
def test_settings_that_are_tensors_are_refused(saved, part, name, value):
    state, trainer = read_checkpoint(saved), Trainer(tiny(dropout=0.3), DATA, RECIPE)
    state["settings"][part][name] = value
    saved.write_bytes(packed(state))
    with pytest.raises(ValueError, match=FOREIGN):
        trainer.load(saved)


def of_moment(change):
    """Return what changes one tensor of an optimizer's state."""
    return lambda moments: moments[0].update(exp_avg=change(moments[0]["exp_avg"]))


MOMENTS = [
    of_moment(lambda t: torch.zeros(1)),
    of_moment(lambda t: torch.zeros(())),
    of_moment(torch.Tensor.double),
    of_moment(torch.Tensor.long),
    of_moment(lambda t: torch.zeros(1).expand(t.shape)),  # fewer numbers in memory than it seems to have
    of_moment(torch.Tensor.to_sparse),
    of_moment(lambda t: t.to("meta")),
    of_moment(lambda t: 3),
    of_moment(lambda t: [t]),
]
PARTS = [  # what an optimizer of any kind does not keep
    of_moment(lambda t: None),
    lambda moments: [entries.pop("exp_avg_sq") for entries in moments.values()],
    lambda moments: moments[1].pop("step"),
    lambda moments: moments.update({0: {"itself": moments}}),
]


@pytest.mark.parametrize(
    ("craft", "fused"), [*((craft, True) for craft in MOMENTS + PARTS), *((craft, False) for craft in PARTS)]
)
def test_crafted_moments_are_refused_and_nothing_is_set(tmp_path, craft, fused):
    """The fused AdamW would write beyond their memory."""

    def trainer():
        model = tiny()
        return Trainer(model, DATA, RECIPE, torch.optim.AdamW(model.parameters(), fused=fused))

    path, first, second = tmp_path / "run.pt", trainer(), trainer()
    first.step()
    first.save(path)
    trainer().load(path)
    state, before = read_checkpoint(path), state_of(second)
    craft(state["optimizer"])
    path.write_bytes(packed(state))
    with pytest.raises(ValueError, match=FOREIGN):
        second.load(path)
    assert state_of(second) == before


def test_what_is_trained_only_later_has_taken_fewer_steps(tmp_path):
    path, model = tmp_path / "run.pt", tiny()
    table = model.transformer.wpe.requires_grad_(False)
    trainer = Trainer(model, DATA, RECIPE, torch.optim.AdamW(model.parameters()))
    trainer.step()
    table.requires_grad_(True)
    for _ in range(2):
        trainer.step()
        trainer.save(path)
        trainer.load(path)


def test_a_part_that_got_no_gradient_has_no_moments(tmp_path):
    """A frozen parameter, or a layer that is not called, is right."""
    path, models = tmp_path / "run.pt", (tiny(), BigramLanguageModel(DATA.tokenizer.vocab_size))
    models[0].transformer.wpe.requires_grad_(False)
    models[1].unused = torch.nn.Linear(2, 2)
    for model in models:
        trainer = Trainer(model, DATA, RECIPE)
        trainer.step()
        trainer.save(path)
        trainer.load(path)
        assert len(trainer.optimizer.state) < len(list(model.parameters()))


@pytest.mark.parametrize("error", [RuntimeError("no"), KeyboardInterrupt()])
def test_a_checkpoint_is_loaded_whole_or_not_at_all(saved, monkeypatch, error):
    trainer = Trainer(tiny(dropout=0.3), DATA, RECIPE)
    trainer.step()
    before, usual, calls = state_of(trainer), torch.optim.AdamW.load_state_dict, []

    def fail_once(optimizer, state):
        calls.append(state)
        if len(calls) == 1:
            raise error
        usual(optimizer, state)

    monkeypatch.setattr(torch.optim.AdamW, "load_state_dict", fail_once)
    with pytest.raises((ValueError, KeyboardInterrupt)):
        trainer.load(saved)
    assert state_of(trainer) == before


@pytest.mark.parametrize(
    "claim",
    [
        *({"vocab_size": 4, "n": 1}, {"vocab_size": 0}, {"vocab_size": 50}, {"n_embd": 8}),
        *({"bias": "x"}, {"block_size": 10**6}, {"n_layer": 1000}),
    ],
)
def test_what_a_config_claims_is_compared_before_it_is_built(saved, monkeypatch, claim):
    state, built = read_checkpoint(saved), []
    state["settings"]["config"] |= claim
    saved.write_bytes(packed(state))

    def build(config):
        built.append((config.n_layer, torch.empty(0).device.type))
        return GPT(config)

    monkeypatch.setattr(checkpoint, "GPT", build)
    with pytest.raises(ValueError, match=FOREIGN):
        load_model(saved)
    assert set(built) <= {(1, "meta")}
