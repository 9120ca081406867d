"""Checkpoints: a training goes on as if nothing had happened, and no other file is taken for one."""

import errno
import math
import os
import pickle
import re
import stat
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
    whole_run,
    with_momentum,
    without_clock,
)

from attention_course.flash import MemoryMeter
from attention_course.gpt import GPT, BigramLanguageModel
from attention_course.text import CharTokenizer
from attention_course.training import Trainer, load_model, read_checkpoint, run
from attention_course.training.checkpoint import FORMAT

on_unix = pytest.mark.skipif(os.name == "nt", reason="Windows has other permissions, locks and block counts")


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
    yield packed(Code(folder / "trace"))
    yield packed({"task": Code(folder / "trace")})
    state = read_checkpoint(folder / "whole")
    yield bytes_of({"format": "attention_course checkpoint 2", **state})
    yield FORMAT.replace(b"3", b"4") + whole[len(FORMAT) :]
    yield from (packed(tiny().state_dict()), packed([1]), packed(state)[:-1] + b"\1")
    yield from (packed({name: value for name, value in state.items() if name != part}) for part in state)
    yield from (packed(state | wrong) for wrong in WRONG)


WRONG = [
    {"model": tiny(n_embd=8).state_dict()},
    {"model": tiny().double().state_dict()},
    {"model": [1]},
    {"task": None},
    {"task": {"recipe": 3}},
    {"steps_done": 1},
    {"steps_done": -1},
    {"steps_done": None},
    {"steps_done": 11, "history": {"losses": [1.0] * 11}},
    {"seconds": math.nan},
    {"seconds": "1"},
    {"history": [1]},
    {"history": {"losses": None}},
    {"history": {"lossez": []}},
    {"history": {"stopped": 1}},
    {"history": {"losses": [1.0]}},
    {"steps_done": 1, "history": {"losses": [math.inf]}},
    {"steps_done": 1, "history": {"losses": [1]}},
    {"steps_done": 1, "history": {"losses": {1.0: 1}}},
    {"steps_done": 1, "history": {"losses": (1.0,)}},
    {"steps_done": True, "history": {"losses": [1.0]}},
    {"seconds": -1.0},
    *(
        {"steps_done": 2, "history": {"losses": [1.0, 2.0], "val_steps": steps, **VALUES}}
        for steps in ([1.0, 2.0], [2, 1], [0, 1], [1, 3], [1, 1], [1])
        for VALUES in [{"val_losses": [1.0, 2.0], "val_seconds": [1.0, 2.0]}]
    ),
    {"steps_done": 1, "history": {"losses": [1.0], "val_steps": [1], "val_losses": [1.0]}},
    {"generator": None},
    {"generator": torch.zeros(3, dtype=torch.uint8)},
    {"generator": torch.zeros_like(torch.Generator().get_state())},
    {"generator": torch.Generator().get_state().long()},
]


def test_foreign_and_damaged_files_are_refused_and_no_code_is_run(tmp_path):
    contents = list(foreign_files(tmp_path))
    assert len(contents) == 5 + 7 + 7 + len(WRONG)
    for content in contents:
        (tmp_path / "run.pt").write_bytes(content)
        for read in (Trainer(tiny(), DATA, RECIPE).load, load_model):
            with pytest.raises(
                ValueError, match=r"run.pt is not a checkpoint of this course, or it is damaged"
            ):
                read(tmp_path / "run.pt")
        assert (tmp_path / "run.pt").read_bytes() == content
    assert not (tmp_path / "trace").exists()


def test_every_changed_bit_is_noticed(tmp_path):
    path = tmp_path / "run.pt"
    Trainer(BigramLanguageModel(4), replace(DATA, tokenizer=CharTokenizer("abcd")), RECIPE).save(path)
    whole = path.read_bytes()
    directory = whole.rindex(b"PK\x01\x02")
    for position in [*range(len(FORMAT) + 40), *range(99, directory, 101), *range(directory, len(whole))]:
        changed = bytearray(whole)
        changed[position] ^= 1 << position % 8
        path.write_bytes(changed)
        with pytest.raises(ValueError, match=r"it does not begin with|its checksum is wrong"):
            read_checkpoint(path)
    path.write_bytes(whole)
    assert bytes_of(read_checkpoint(path)) == whole[len(FORMAT) + 32 :]


def test_why_a_file_is_no_checkpoint_is_said(tmp_path):
    path = tmp_path / "run.pt"
    trainer = Trainer(tiny(), DATA, RECIPE)
    trainer.save(path)
    whole, state = path.read_bytes(), read_checkpoint(path)
    rest = {name: value for name, value in state.items() if name not in ("task", "generator")}
    losses = {"losses": [1.0]}
    for content, reason in [
        (TEXT.encode(), r"it does not begin with b'attention_course checkpoint 3\\n'"),
        (whole[:-1], "its checksum is wrong"),
        (packed([1]), "AttributeError"),
        (packed(rest), "it has no generator, task"),
        (packed(state | {"model": tiny(n_embd=8).state_dict()}), "its parameters are not those of its model"),
        (packed(state | {"steps_done": -1}), "its steps_done is -1, of 10"),
        (packed(state | {"history": losses}), "its losses is not a list of 0 finite numbers, float"),
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
        assert (trainer.steps_done, trainer.seconds) == (0, 0)


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
    with pytest.raises(ValueError, match=r"holds a model that is not a GPT"):
        load_model(tmp_path / "run.pt")


def test_a_gpt_with_parts_of_its_own_is_not_taken_for_another(tmp_path):
    trainer = Trainer(GPT(tiny().config, attn=Unmasked), DATA, RECIPE)
    trainer.save(tmp_path / "run.pt")
    with pytest.raises(ValueError, match=r"run.pt holds a GPT with custom parts. Build that model"):
        load_model(tmp_path / "run.pt")
    with pytest.raises(
        ValueError,
        match=r"its modules is different: transformer.h.0.attn = \S+Unmasked there and \S+MultiHead",
    ):
        Trainer(tiny(), DATA, RECIPE).load(tmp_path / "run.pt")
    other = Trainer(GPT(tiny().config, attn=Unmasked), DATA, RECIPE)
    other.load(tmp_path / "run.pt")
    assert equal(other.model, trainer.model)


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


@pytest.mark.parametrize("error", [RuntimeError("no"), KeyboardInterrupt()])
def test_a_checkpoint_is_loaded_whole_or_not_at_all(saved, monkeypatch, error):
    trainer = Trainer(tiny(dropout=0.3), DATA, RECIPE)
    trainer.step()
    before = bytes_of(trainer._checkpoint())
    set_state, states = torch.optim.Optimizer.load_state_dict, []

    def fail_once(optimizer, state):
        states.append(state)
        if len(states) == 1:
            raise error
        set_state(optimizer, state)

    monkeypatch.setattr(torch.optim.AdamW, "load_state_dict", fail_once)
    with pytest.raises(type(error)):
        trainer.load(saved)
    assert bytes_of(trainer._checkpoint()) == before


def test_a_checkpoint_of_another_dtype_is_refused(saved):
    trainer = Trainer(tiny(dropout=0.3).double(), DATA, RECIPE)
    with pytest.raises(ValueError, match=r"its model is different: \S+ = float32 \[.*\] there and float64"):
        trainer.load(saved)


@pytest.mark.parametrize("config", [{"vocab_size": 4, "n": 1}, {"vocab_size": 0}, [1]])
def test_a_model_is_not_built_from_a_crafted_config(saved, config):
    state = read_checkpoint(saved)
    state["task"]["config"] = config
    saved.write_bytes(packed(state))
    with pytest.raises(ValueError, match=r"run.pt is not a checkpoint of this course, or it is damaged"):
        load_model(saved)


def test_a_model_of_another_size_than_its_config_is_not_loaded(saved):
    state = read_checkpoint(saved)
    state["task"]["config"]["n_embd"] = 8
    saved.write_bytes(packed(state))
    with pytest.raises(ValueError, match=r"run.pt does not match: its model is different: .* there and \("):
        load_model(saved)


@pytest.mark.parametrize("claim", [{"block_size": 10**8}, {"n_layer": 3_000_000}, {"vocab_size": 50}])
def test_what_a_config_claims_is_compared_before_it_is_built(saved, claim):
    state = read_checkpoint(saved)
    state["task"]["config"] |= claim
    saved.write_bytes(packed(state))
    with (
        MemoryMeter() as meter,
        pytest.raises(ValueError, match=r"run.pt (does not match|is not a checkpoint)"),
    ):
        load_model(saved)
    assert meter.peak < 10**6


def test_an_optimizer_state_that_contains_itself_is_refused(saved):
    state = read_checkpoint(saved)
    state["optimizer"]["state"][0]["itself"] = state["optimizer"]
    saved.write_bytes(packed(state))
    with pytest.raises(ValueError, match=r"run.pt is not a checkpoint of this course, or it is damaged"):
        Trainer(tiny(), DATA, RECIPE).load(saved)


def test_parameters_that_are_not_finite_are_not_saved_over_a_good_checkpoint(saved):
    before = saved.read_bytes()
    trainer = Trainer(tiny(), DATA, replace(RECIPE, learning_rate=1e38, warmup=0))
    run(trainer, callback=lambda t: True)
    with pytest.raises(FloatingPointError, match=r"run.pt was not written: .* holds NaN or inf"):
        trainer.save(saved)
    assert saved.read_bytes() == before


# Files: nobody else's is touched


@on_unix
def test_a_linked_checkpoint_stays_a_link_and_keeps_its_permissions(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    target, link = tmp_path / "elsewhere/real.pt", tmp_path / "run.pt"
    trainer = Trainer(tiny(), DATA, RECIPE)
    link.symlink_to(target)
    trainer.save(link)
    assert link.is_symlink()
    assert read_checkpoint(target)["steps_done"] == 0
    target.chmod(0o600)
    trainer.step()
    trainer.save(link)
    assert link.is_symlink()
    assert read_checkpoint(target)["steps_done"] == 1
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert [path.name for path in target.parent.iterdir()] == ["real.pt"]


@on_unix
@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_a_new_checkpoint_has_the_usual_permissions(tmp_path, mask):
    usual = os.umask(mask)
    try:
        Trainer(tiny(), DATA, RECIPE).save(tmp_path / "run.pt")
    finally:
        os.umask(usual)
    assert stat.S_IMODE((tmp_path / "run.pt").stat().st_mode) == 0o666 & ~mask


@on_unix
def test_files_with_names_like_that_of_a_checkpoint_are_left_alone(tmp_path):
    names = ("run.pt.partial", "run.partial", ".run.pt.lock", "run.pt.lock", "b")
    mine = {name: tmp_path / name for name in names}
    for name, path in mine.items():
        path.write_text(name)
    (tmp_path / "c").symlink_to(tmp_path / "b")
    trainer = Trainer(tiny(), DATA, RECIPE)
    trainer.save(tmp_path / "run.pt")
    with trainer.saving(tmp_path / "run.pt") as save:
        save()
    assert {name: path.read_text() for name, path in mine.items()} == {name: name for name in mine}
    assert {path.name for path in tmp_path.iterdir()} == {*mine, "c", "run.pt"}


def test_each_writer_has_a_file_of_its_own(tmp_path, monkeypatch):
    """A second one begins, and ends, while the first one is at work."""
    path, seen = tmp_path / "run.pt", []
    first, second = (Trainer(tiny(seed=seed), DATA, RECIPE) for seed in (1, 2))
    sync = os.fsync

    def meanwhile(file):
        sync(file)
        seen.append(len(list(tmp_path.iterdir())))
        if len(seen) == 1:
            second.save(path)
            assert torch.equal(
                *(t["lm_head.weight"] for t in (read_checkpoint(path)["model"], second.model.state_dict()))
            )

    monkeypatch.setattr(os, "fsync", meanwhile)
    first.save(path)
    assert seen == [1, 2]
    assert torch.equal(read_checkpoint(path)["model"]["lm_head.weight"], first.model.lm_head.weight)
    assert list(tmp_path.iterdir()) == [path]


def test_a_second_run_with_the_same_file_is_refused(tmp_path):
    path, link = tmp_path / "run.pt", tmp_path / "link.pt"
    link.symlink_to(path)
    one, other = Trainer(tiny(), DATA, RECIPE), Trainer(tiny(), DATA, RECIPE)
    with one.saving(path) as save:
        for same in (path, link):
            with pytest.raises(
                OSError, match=f"^Another run is saving to {re.escape(str(same))}. Wait until it ends"
            ):
                other.saving(same).__enter__()
        with other.saving(tmp_path / "other.pt"):
            save()
    with other.saving(path) as save:
        save()


def test_what_a_killed_run_left_is_removed(tmp_path):
    path = tmp_path / "run.pt"
    trainer = Trainer(tiny(), DATA, RECIPE)
    (tmp_path / f".run.pt.{'0' * 16}.partial").touch()
    with trainer.saving(path):
        (partial_file,) = tmp_path.glob("*.partial")
        assert partial_file.name != f".run.pt.{'0' * 16}.partial"
    assert {file.name for file in tmp_path.iterdir()} == {".run.pt.lock"}


# Room on the disk


@pytest.fixture
def disk(monkeypatch):
    """Notes what room is asked for; `disk.full = True` fills the disk."""
    if not hasattr(os, "posix_fallocate"):
        pytest.skip("macOS and Windows reserve no room")

    class Disk:
        full, asked = False, []

        def allocate(self, file, start, length):
            if self.full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.asked.append(length)
            self.usual(file, start, length)

    disk = Disk()
    disk.usual, disk.asked = os.posix_fallocate, []
    monkeypatch.setattr(os, "posix_fallocate", disk.allocate)
    return disk


def test_the_room_of_the_largest_checkpoint_is_taken_at_the_start(tmp_path, disk):
    trainer = Trainer(tiny(), DATA, replace(RECIPE, steps=200, evaluate_every=1))
    path = tmp_path / "run.pt"
    with trainer.saving(path) as save:
        (partial_file,) = tmp_path.glob("*.partial")
        room = partial_file.stat().st_size
        assert partial_file.stat().st_blocks * 512 >= room == disk.asked[0]
        save()
        assert path.stat().st_size < room / 2  # AdamW has no state yet
        run(trainer, callback=lambda t: None)
        save()
        assert room - 8192 < path.stat().st_size <= room
        assert disk.asked == [room] * 3
    assert not list(tmp_path.glob("*.partial"))


def test_a_full_disk_is_told_at_the_start_or_when_a_step_has_been_saved(tmp_path, disk):
    trainer, path = Trainer(tiny(), DATA, RECIPE), tmp_path / "run.pt"
    disk.full = True
    with pytest.raises(OSError, match="could not be written: No space left on device"):
        trainer.saving(path).__enter__()
    assert not path.exists()
    assert not list(tmp_path.glob("*.partial"))
    disk.full = False
    with trainer.saving(path) as save:
        trainer.step()
        disk.full = True
        with pytest.raises(OSError, match="could not be written: No space left on device"):
            save()
    assert read_checkpoint(path)["steps_done"] == 1
    assert not list(tmp_path.glob("*.partial"))


@on_unix
def test_where_room_cannot_be_asked_for_it_is_filled(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    trainer = Trainer(tiny(), DATA, RECIPE)
    with trainer.saving(tmp_path / "run.pt"):
        (partial_file,) = tmp_path.glob("*.partial")
        assert partial_file.stat().st_blocks * 512 >= partial_file.stat().st_size > 4096
