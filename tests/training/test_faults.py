"""What a machine does to a training: killed at any moment, no room, no right to write. Nothing is lost."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import torch

from attention_course.gpt import GPT, GPTConfig
from attention_course.stories import write_stories
from attention_course.text import Data
from attention_course.training import Recipe, Trainer, read_checkpoint

resource = pytest.importorskip("resource", reason="Windows limits and kills processes in another way")

pytestmark = pytest.mark.slow
COMMAND = [sys.executable, "-m", "attention_course.training", "--batch-size=2", "--sample=1"]
STEPS = 100
DELAYS = (0.0, 0.4, 0.13)  # seconds from the first line that is printed to the kill


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(write_stories(seed=4, characters=6000))
    return f"--text={path}"


def start(*arguments, **options):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen([*COMMAND, *arguments], env=environment, **pipes, **options)


def test_a_training_that_is_killed_again_and_again_ends_like_one_that_was_not(text, tmp_path):
    """A checkpoint is saved after every step; the first kills come while one is being written."""
    arguments = [text, f"--steps={STEPS}", "--evaluate-every=1"]
    whole = start(*arguments, f"--checkpoint={tmp_path / 'whole.pt'}")
    killed = tmp_path / "killed.pt"

    def half_written():
        """Whether one has been begun; before that, it is zeros, or nothing at all."""
        with contextlib.suppress(OSError):
            return any(path.read_bytes()[:1] > b"\0" for path in tmp_path.glob(".killed.pt.*.partial"))

    for _ in range(10):
        with start(*arguments, f"--checkpoint={killed}") as process:
            while not half_written() and process.poll() is None:
                pass
            process.send_signal(signal.SIGKILL)
        if half_written():
            break
    assert half_written(), "no kill met a file that is half written"
    done = []
    for delay in DELAYS:
        with start(*arguments, f"--checkpoint={killed}") as process:
            process.stdout.readline()
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
        done.append(read_checkpoint(killed)["steps_done"])
    assert done == sorted(done)
    assert 0 < done[-1] < STEPS
    last = start(*arguments, f"--checkpoint={killed}")
    for process in (whole, last):
        assert process.communicate()[1] == ""
    one, other = (read_checkpoint(tmp_path / name) for name in ("whole.pt", "killed.pt"))
    assert one["history"]["losses"] == other["history"]["losses"]
    assert one["history"]["val_losses"] == other["history"]["val_losses"]
    for name, weights in one["model"].items():
        assert torch.equal(weights, other["model"][name]), name
    assert {path.name for path in tmp_path.iterdir()} == {
        *("text.txt", "whole.pt", ".whole.pt.lock", "killed.pt", ".killed.pt.lock"),
    }


def test_where_there_is_no_room_the_old_checkpoint_stays(text, tmp_path):
    path = tmp_path / "run.pt"
    arguments = [text, "--steps=4", "--evaluate-every=2", f"--checkpoint={path}"]
    assert start(*arguments).communicate()[1] == ""
    old = path.read_bytes()
    room = (len(old) // 2, len(old) // 2)
    process = start(*arguments, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, room))
    _, errors = process.communicate()
    assert process.returncode == 1
    assert errors.startswith(f"training: The checkpoint {path} could not be written: File too large.")
    assert len(errors.splitlines()) == 1
    assert path.read_bytes() == old
    assert {path.name for path in tmp_path.iterdir()} == {"text.txt", "run.pt", ".run.pt.lock"}


def test_a_second_run_is_refused_until_the_first_one_is_killed(text, tmp_path):
    path = tmp_path / "run.pt"
    arguments = [text, "--steps=100000", "--evaluate-every=1", f"--checkpoint={path}"]
    with start(*arguments) as first:
        first.stdout.readline()
        with start(*arguments) as second:
            _, errors = second.communicate()
        assert second.returncode == 1
        advice = "Wait until it ends, or name another file."
        assert errors == f"training: Another run is saving to {path}. {advice}\n"
        assert first.poll() is None
        first.kill()
    with start(*arguments) as third:
        assert third.stdout.readline().startswith("step ")
        third.kill()


def test_a_checkpoint_can_be_read_at_any_moment(text, tmp_path):
    path = tmp_path / "run.pt"
    arguments = [text, "--steps=100000", "--evaluate-every=1", f"--checkpoint={path}"]
    with start(*arguments) as process:
        process.stdout.readline()
        done = [read_checkpoint(path)["steps_done"] for _ in range(60)]
        process.kill()
    assert done == sorted(done)
    assert done[0] < done[-1]


@contextlib.contextmanager
def without_override():
    """Let permissions hold for root too: drop its CAP_DAC_OVERRIDE for a while (see capabilities(7))."""
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this thread
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable, twice
    assert libc.capget(header, sets) == 0
    usual = sets[0]
    sets[0] &= ~(1 << 1)
    assert libc.capset(header, sets) == 0
    try:
        yield
    finally:
        sets[0] = usual
        assert libc.capset(header, sets) == 0


def test_a_folder_that_may_not_be_written_to_is_named():
    data = Data.of(write_stories(characters=2000))
    model = GPT(GPTConfig(data.tokenizer.vocab_size, block_size=16, n_layer=1, n_head=1, n_embd=8))
    trainer = Trainer(model, data, Recipe(steps=2))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o555)
        with (
            without_override(),
            pytest.raises(OSError, match=r"could not be written: Permission denied\. Name a"),
        ):
            trainer.save(folder / "run.pt")
        assert list(folder.iterdir()) == []
        folder.chmod(0o755)
