"""Checkpoints: a training goes on as if nothing had happened, and no other file is taken for one."""

import contextlib
import errno
import io
import os
import pickle
import re
from dataclasses import replace

import pytest
import torch
from training.small import DATA, RECIPE, TEXT, equal, tiny, whole_run, without_clock

from attention_course.attention import MultiHeadAttention
from attention_course.gpt import GPT, BigramLanguageModel
from attention_course.text import CharTokenizer
from attention_course.training import Trainer, load_model, read_checkpoint, run


@pytest.fixture
def saved(tmp_path):
    """A checkpoint after 5 of 10 steps."""
    trainer, path = Trainer(tiny(dropout=0.3), DATA, RECIPE), tmp_path / "run.pt"
    run(trainer, callback=lambda t: t.steps_done == 5)
    trainer.save(path)
    return path


def test_a_resumed_training_is_the_uninterrupted_one_bit_by_bit(saved):
    trainer = Trainer(tiny(seed=8, dropout=0.3), DATA, RECIPE)
    trainer.load(saved)
    assert trainer.steps_done == 5
    assert trainer.seconds > 0
    torch.manual_seed(99)
    run(trainer, callback=lambda t: None)
    expected = whole_run()
    assert without_clock(trainer.history) == without_clock(expected.history)
    assert equal(trainer.model, expected.model)


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
    assert saved.read_bytes() != old


def test_a_checkpoint_that_cannot_be_written_says_why(tmp_path):
    (tmp_path / "file").touch()
    trainer = Trainer(tiny(), DATA, RECIPE)
    for path in (tmp_path / "nowhere/run.pt", tmp_path / "file/run.pt", tmp_path):
        with pytest.raises(
            OSError, match=f"The checkpoint {re.escape(str(path))} could not be written: [A-Z]"
        ):
            trainer.save(path)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("model", "data", "recipe", "message"),
    [
        ({"n_layer": 2}, DATA, RECIPE, "its config is another one: n_layer = 1 there and 2 here"),
        ({"dropout": 0.0}, DATA, RECIPE, "its config is another one: dropout = 0.3 there and 0.0 here"),
        ({}, DATA, replace(RECIPE, steps=11), "its recipe is another one: steps = 10 there and 11 here"),
        ({}, replace(DATA, train=DATA.train[1:]), RECIPE, "its training text is another one"),
        ({}, replace(DATA, val=DATA.val.flip(0)), RECIPE, "its validation text is another one"),
        ({}, replace(DATA, tokenizer=CharTokenizer(TEXT + "é")), RECIPE, "its characters is another one"),
        (None, DATA, RECIPE, "its config is another one"),
    ],
)
def test_a_checkpoint_of_another_task_is_refused(saved, model, data, recipe, message):
    other = (
        BigramLanguageModel(DATA.tokenizer.vocab_size) if model is None else tiny(**{"dropout": 0.3} | model)
    )
    trainer = Trainer(other, data, recipe)
    with pytest.raises(ValueError, match=rf"run.pt does not fit: {message}"):
        trainer.load(saved)
    assert trainer.steps_done == 0


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_three_differences_are_named(saved, count):
    other = dict(list({"steps": 11, "batch_size": 3, "evaluate_every": 3, "seed": 9}.items())[:count])
    with pytest.raises(ValueError, match="its recipe is another one") as caught:
        Trainer(tiny(dropout=0.3), DATA, replace(RECIPE, **other)).load(saved)
    named = [f"{name} = {getattr(RECIPE, name)} there and {value} here" for name, value in other.items()]
    listed = re.search(r"another one: (.*)\. Train", str(caught.value))[1]
    assert listed == ", ".join(named[:3]) + ", ..." * (count > 3)


def test_a_checkpoint_of_a_table_of_another_size_is_refused(tmp_path):
    Trainer(BigramLanguageModel(40), DATA, RECIPE).save(tmp_path / "run.pt")
    with pytest.raises(ValueError, match=r"its model is another one: table.weight = \[40, 40\] there"):
        Trainer(BigramLanguageModel(41), DATA, RECIPE).load(tmp_path / "run.pt")


class Code:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def foreign_files(folder):
    """Yield contents that are no checkpoints; those with code would create the file `trace`."""
    Trainer(tiny(), DATA, RECIPE).save(folder / "whole")
    whole = (folder / "whole").read_bytes()
    yield from (whole[: len(whole) // 2], whole[:-1], b"", TEXT.encode())
    yield pickle.dumps(Code(folder / "trace"))
    state = torch.load(folder / "whole")
    yield from map(
        bytes_of,
        [
            Code(folder / "trace"),
            {"format": Code(folder / "trace")},
            tiny().state_dict(),
            [1],
            state | {"format": "attention_course checkpoint 0"},
            *({name: value for name, value in state.items() if name != part} for part in state),
            state | {"model": tiny(n_embd=8).state_dict()},
        ],
    )


def bytes_of(state):
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


def test_foreign_and_damaged_files_are_refused_and_no_code_is_run(tmp_path):
    contents = list(foreign_files(tmp_path))
    assert len(contents) == 19
    for content in contents:
        (tmp_path / "run.pt").write_bytes(content)
        for read in (Trainer(tiny(), DATA, RECIPE).load, load_model):
            with pytest.raises(
                ValueError, match=r"run.pt is not a checkpoint of this course, or it is damaged"
            ):
                read(tmp_path / "run.pt")
        assert (tmp_path / "run.pt").read_bytes() == content
    assert not (tmp_path / "trace").exists()


def test_a_changed_bit_is_noticed_or_changes_nothing(tmp_path):
    path = tmp_path / "run.pt"
    Trainer(tiny(), DATA, RECIPE).save(path)
    whole, state = path.read_bytes(), bytes_of(read_checkpoint(path))
    assert bytes_of(read_checkpoint(path)) == state
    noticed = 0
    for position in range(7, len(whole), 101):
        changed = bytearray(whole)
        changed[position] ^= 1 << position % 8
        path.write_bytes(changed)
        with contextlib.suppress(ValueError):
            assert bytes_of(read_checkpoint(path)) == state  # some bytes of the file hold nothing
            continue
        noticed += 1
    assert noticed > 100


def test_why_a_file_is_no_checkpoint_is_said(tmp_path):
    path = tmp_path / "run.pt"
    trainer = Trainer(tiny(), DATA, RECIPE)
    trainer.save(path)
    whole, state = path.read_bytes(), torch.load(path)
    table = trainer.model.transformer.wte.weight.detach().numpy().tobytes()
    rest = {name: value for name, value in state.items() if name not in ("task", "generator")}
    for content, reason in [
        (TEXT.encode(), "BadZipFile"),
        (whole.replace(table, bytes(len(table))), r"the checksum of archive/data/\d+ is wrong"),
        (
            bytes_of(state | {"format": "new"}),
            "its format is 'new', expected 'attention_course checkpoint 2'",
        ),
        (bytes_of(rest), "it has no generator, task"),
        (
            bytes_of(state | {"model": tiny(n_embd=8).state_dict()}),
            "its parameters are not those of its model",
        ),
    ]:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=rf"\(Reading it failed: {reason}\.\)$"):
            read_checkpoint(path)


def test_a_trainer_that_refuses_a_file_stays_as_it_was(tmp_path):
    trainer = Trainer(tiny(), DATA, RECIPE)
    before = bytes_of(trainer.model.state_dict())
    for content in foreign_files(tmp_path):
        (tmp_path / "run.pt").write_bytes(content)
        with pytest.raises(ValueError, match=r"run.pt is not a checkpoint"):
            trainer.load(tmp_path / "run.pt")
        assert bytes_of(trainer.model.state_dict()) == before
        assert trainer.steps_done == 0


def test_a_missing_checkpoint_is_named(tmp_path):
    for path in (tmp_path / "none.pt", tmp_path):
        with pytest.raises(FileNotFoundError, match=re.escape(f"no checkpoint file {path}")):
            read_checkpoint(path)


def test_a_model_comes_back_with_its_tokenizer(saved):
    trainer = Trainer(tiny(dropout=0.3), DATA, RECIPE)
    trainer.load(saved)
    model, tokenizer = load_model(saved)
    assert tokenizer == DATA.tokenizer
    assert not model.training
    assert model.config == trainer.model.config
    ids = DATA.val[None, :7]
    assert torch.equal(model(ids), trainer.model.eval()(ids))


def test_only_a_gpt_is_built_from_its_checkpoint(tmp_path):
    Trainer(BigramLanguageModel(40), DATA, RECIPE).save(tmp_path / "run.pt")
    with pytest.raises(ValueError, match=r"holds a model that is no GPT"):
        load_model(tmp_path / "run.pt")


class Unmasked(MultiHeadAttention):
    """Has the parameters of the default part, and computes something else."""

    def forward(self, x, mask=None, is_causal=False):
        return super().forward(x)


def test_a_gpt_with_parts_of_its_own_is_not_taken_for_another(tmp_path):
    trainer = Trainer(GPT(tiny().config, attn=Unmasked), DATA, RECIPE)
    trainer.save(tmp_path / "run.pt")
    with pytest.raises(ValueError, match=r"run.pt holds a GPT with parts of its own. Build that model"):
        load_model(tmp_path / "run.pt")
    with pytest.raises(
        ValueError, match=r"its modules is another one: transformer.h.0.attn = Unmasked there and MultiHead"
    ):
        Trainer(tiny(), DATA, RECIPE).load(tmp_path / "run.pt")
    other = Trainer(GPT(tiny().config, attn=Unmasked), DATA, RECIPE)
    other.load(tmp_path / "run.pt")
    assert equal(other.model, trainer.model)


def with_momentum(model):
    return torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9)


def falling(step):
    return 0.1 / (step + 1)


def test_a_training_with_an_optimizer_and_a_schedule_is_resumed_bit_by_bit(tmp_path):
    def trainer(seed):
        model = tiny(seed=seed, dropout=0.3)
        return Trainer(model, DATA, RECIPE, with_momentum(model), falling)

    whole, first, second = trainer(0), trainer(0), trainer(8)
    run(whole, callback=lambda t: None)
    run(first, callback=lambda t: t.steps_done == 5)
    first.save(tmp_path / "run.pt")
    second.load(tmp_path / "run.pt")
    run(second, callback=lambda t: None)
    assert without_clock(second.history) == without_clock(whole.history)
    assert equal(second.model, whole.model)


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
        with pytest.raises(ValueError, match=f"its optimizer is another one: {message}"):
            trainer.load(saved)
        assert equal(model, tiny(dropout=0.3))
