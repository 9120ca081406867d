"""The command line: what it prints, how it is stopped and resumed, and several processes."""

import argparse
import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from training.small import markov_text, press, without_clock

from attention_course.gpt import GPTConfig
from attention_course.stories import write_stories
from attention_course.text import Corpus, conditional_entropy
from attention_course.training import History, Trainer, read_checkpoint, run
from attention_course.training import __main__ as command_line
from attention_course.training.__main__ import main

SMALL = ["--steps=4", "--batch-size=2", "--evaluate-every=2", "--sample=20", "--precision=float32"]


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(write_stories(seed=4, characters=6000))
    return path


def test_the_command_line_prints_its_progress_and_a_table(text, capsys):
    main([f"--text={text}", *SMALL])
    reports, rows, sample = capsys.readouterr().out.split("\n\n", 2)
    progress, (head, unigram, bigram, trigram, gpt) = reports.split("\n"), rows.split("\n")
    assert [line.split("validation loss")[0] for line in progress] == [
        "step     2 of 4   ",
        "step     4 of 4   ",
    ]
    assert all(re.search(r"\d\.\d{3} +\d+\.\d s +\d+\.\d steps/s +\d+ tokens/s$", line) for line in progress)
    for line in progress:
        steps, tokens = map(float, re.search(r"([\d.]+) steps/s +(\d+) tokens/s", line).groups())
        assert tokens / steps == pytest.approx(2 * GPTConfig(40).block_size, rel=0.05)
    assert head.split() == ["model", "parameters", "validation", "loss", "answers"]
    assert [line.split()[:-1] for line in (unigram, bigram, trigram)] == [
        ["best", f"{n}-gram", "table,", "counted"] for n in (1, 2, 3)
    ]
    losses = [float(line[40:57]) for line in (unigram, bigram, trigram, gpt)]
    val = Corpus.of(text.read_text()).val
    assert losses[:3] == pytest.approx([conditional_entropy(val, n) for n in (1, 2, 3)], abs=1e-3)
    assert losses[3] == pytest.approx(float(progress[-1].split()[6]), abs=6e-4)
    assert re.fullmatch(r"GPT, 2 layers +1\d\d,\d{3} +\d\.\d{3} +0\.\d\d", gpt)
    assert sample.startswith(Corpus.of(text.read_text()).tokenizer.decode(val[:1]))
    assert len(sample) == 1 + 20 + 1  # the first character of the text, what was asked for, and a newline


def test_the_default_device_is_a_gpu_where_there_is_one(monkeypatch):
    for device, has_gpu in {"cuda": True, "cpu": False}.items():
        monkeypatch.setattr(torch.cuda, "is_available", lambda has_gpu=has_gpu: has_gpu)
        assert command_line.arguments().get_default("device") == device


def test_the_command_line_takes_a_text_without_questions_and_a_model_size(text, capsys):
    text.write_text(markov_text(3000))
    main([f"--text={text}", *SMALL, "--sample=0", "--config=shakespeare"])
    assert re.search(r"GPT, 4 layers +[\d,]+ +\d\.\d{3} *\n\n.\n$", capsys.readouterr().out)


DEVICES = ("abacus", "cuda:99", "meta", "")
NO_DEVICE = "training: --device {} cannot be used. This machine has: cpu"


@pytest.mark.parametrize(
    ("argument", "status", "message"),
    [
        ("--stepz=3", 2, "unrecognized arguments: --stepz=3"),
        ("--config=huge", 2, "argument --config: invalid choice: 'huge'"),
        ("--steps=many", 2, "argument --steps: invalid int value: 'many'"),
        ("stories", 2, "unrecognized arguments: stories"),
        ("--sample=-5", 2, "argument --sample: -5 characters, expected at least 0"),
        ("--steps=0", 1, "training: Recipe: steps = 0, expected an integer of at least 1, below 2**31."),
        ("--text=~nobody/war.txt", 1, "training: load_text: there is no file"),
        *((f"--device={name}", 1, NO_DEVICE.format(name)) for name in DEVICES),
        ("--device=\x1b[2J", 1, NO_DEVICE.format(r"\x1b[2J")),
        ("--checkpoint=no/such/run.pt", 1, f"training: The checkpoint {Path('no/such/run.pt')} could not be"),
        *((f"--checkpoint={name}", 1, "could not be written: ") for name in (".", "/", "", "a" * 256)),
    ],
)
def test_what_does_not_work_is_said_in_one_line(text, capsys, argument, status, message):
    with pytest.raises(SystemExit) as stopped:
        main([f"--text={text}", *SMALL, argument])
    shown = capsys.readouterr()
    assert shown.out == ""  # said before anything is trained
    said = shown.err.splitlines() if status == 2 else stopped.value.code.splitlines()
    assert message in said[-1]
    assert len(said) <= status
    assert stopped.value.code == 2 or status == 1  # a sentence is printed, and the status is 1


def test_how_to_get_a_text_by_hand_is_said_in_lines(monkeypatch):
    def unreachable(*_, **__):
        raise OSError("no network")

    monkeypatch.setattr("pooch.retrieve", unreachable)
    with pytest.raises(SystemExit) as stopped:
        main(["--text=tiny-shakespeare"])
    assert len(stopped.value.code.splitlines()) > 3
    assert "\\n" not in stopped.value.code


def test_a_training_that_diverges_keeps_its_last_checkpoint(text, tmp_path, capsys, monkeypatch):
    path = tmp_path / "run.pt"

    def spoiled(trainer, callback):
        def then(trainer):
            callback(trainer)
            if trainer.steps_done == 2:
                trainer.model.lm_head.weight.data.fill_(torch.nan)

        return run(trainer, callback=then)

    monkeypatch.setattr(command_line, "run", spoiled)
    with pytest.raises(SystemExit, match=r"^training: After step 2 of 4 the loss is nan: training has div"):
        main([f"--text={text}", *SMALL, f"--checkpoint={path}"])
    assert read_checkpoint(path)["steps_done"] == 2
    assert all(weights.isfinite().all() for weights in read_checkpoint(path)["model"].values())
    assert capsys.readouterr().err == ""


def test_a_sample_is_printed_as_far_as_possible(text, monkeypatch):
    text.write_text("ä\x1b[2J\x07\x9b\x7f\tb\n" * 400)
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)
    main([f"--text={text}", *SMALL, "--sample=60"])
    out.flush()
    printed = out.buffer.getvalue()
    assert b"\\xe4" in printed
    assert b"\\x1b" in printed
    assert not set(printed) - {*range(32, 127), 9, 10}


def test_two_trainings_do_not_write_one_checkpoint(text, tmp_path):
    """The second is refused while the first goes on, and may have it afterwards."""
    options = [f"--text={text}", f"--checkpoint={tmp_path / 'gpt.pt'}", *SMALL]
    with command_line.alone(tmp_path / "gpt.pt"), pytest.raises(SystemExit, match="another training writes"):
        main(options)
    main(options)


def test_a_short_text_and_a_foreign_checkpoint_are_told_from_the_command_line(text):
    with pytest.raises(SystemExit, match="is not a checkpoint of this course"):
        main([f"--text={text}", f"--checkpoint={text}", *SMALL])
    text.write_text("a few words")
    with pytest.raises(SystemExit, match="The training text has 9 tokens, too few for block_size = 128"):
        main([f"--text={text}", *SMALL])


EVIL = "\x1b]52;c;aGk=\x07\x1b[2J"


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda state: state["settings"]["config"].update({EVIL: EVIL}), "match in its config"),
        (lambda state: state["settings"].update(modules={EVIL: EVIL}), "match in its modules"),
        (lambda state: state["optimizer"][0].update({EVIL + "sq": torch.tensor(-1.0)}), "is negative"),
    ],
)
def test_what_a_checkpoint_says_drives_no_terminal(text, tmp_path, spoil, said):
    command = [f"--text={text}", *SMALL, f"--checkpoint={tmp_path / 'run.pt'}"]
    main(command)
    state = read_checkpoint(tmp_path / "run.pt")
    spoil(state)
    torch.save(state, tmp_path / "run.pt")
    with pytest.raises(SystemExit, match=said) as stopped:
        main(command)
    assert r"\x1b]52;c;aGk=\x07" in stopped.value.code
    assert "\x1b" not in stopped.value.code


def test_ctrl_c_before_the_first_step_is_as_polite(listening, text, monkeypatch):
    monkeypatch.setattr(command_line, "load_text", press)
    with pytest.raises(SystemExit) as stopped:
        main([f"--text={text}"])
    assert stopped.value.code == 130


def test_a_finished_run_is_not_repeated(text, tmp_path, capsys):
    command = [f"--text={text}", *SMALL, f"--checkpoint={tmp_path / 'run.pt'}"]
    main(command)
    table = capsys.readouterr().out.partition("model")[2].partition("GPT")[2].split("\n")[0]
    main(command)
    again = capsys.readouterr().out
    assert "step" not in again
    assert table in again


@pytest.mark.parametrize(("presses", "saved"), [(1, 3), (2, 2)])
def test_the_command_line_resumes_to_the_same_result(
    listening, text, tmp_path, monkeypatch, capsys, presses, saved
):
    paths = [tmp_path / "whole.pt", tmp_path / "halves.pt"]
    command = [f"--text={text}", *SMALL]
    main([*command, f"--checkpoint={paths[0]}"])
    usual = Trainer.step

    def step(trainer):
        usual(trainer)
        for _ in range(presses * (trainer.steps_done == 3)):  # step 2 has been saved
            press()

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", step)
        with pytest.raises(SystemExit) as stopped:
            main([*command, f"--checkpoint={paths[1]}"])
    assert stopped.value.code == 130
    said = f"Stopped after step 3 of 4.\nThe same command resumes it from {paths[1]}.\n"
    assert capsys.readouterr().out.endswith(said) == (presses == 1)
    assert read_checkpoint(paths[1])["steps_done"] == saved
    main([*command, f"--checkpoint={paths[1]}"])
    whole, halves = map(read_checkpoint, paths)
    assert without_clock(History(**whole["history"])) == without_clock(History(**halves["history"]))
    assert all(torch.equal(whole["model"][name], halves["model"][name]) for name in whole["model"])


# Several processes


@pytest.mark.slow
def test_two_processes_train_like_one(text, tmp_path):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m"]
    command = [f"--text={text}", *SMALL, "--checkpoint"]
    pair = subprocess.run(
        [*launcher, "attention_course.training", *command, str(tmp_path / "pair.pt")],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert pair.returncode == 0, pair.stderr
    assert pair.stdout.count("GPT, 2 layers") == 1
    main([*command, str(tmp_path / "one.pt")])
    one, two = (read_checkpoint(tmp_path / name) for name in ("one.pt", "pair.pt"))
    for losses in ("losses", "val_losses"):
        assert two["history"][losses] == pytest.approx(one["history"][losses], abs=1e-5)
    for name, weights in one["model"].items():
        torch.testing.assert_close(two["model"][name], weights, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("device", "expected"),
    [("cpu", ["gloo", "cpu"]), ("cuda", ["cuda:1", "nccl", "cuda:1"]), ("cuda:0", ["nccl", "cuda:0"])],
)
@pytest.mark.parametrize("fails", [False, True])
def test_processes_of_torchrun_join_and_leave(monkeypatch, device, expected, fails):
    calls = []
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(command_line, "device_called", lambda name: name)
    monkeypatch.setattr(torch.cuda, "set_device", calls.append)
    monkeypatch.setattr(torch.distributed, "init_process_group", calls.append)
    monkeypatch.setattr(torch.distributed, "barrier", lambda: calls.append("wait"))
    monkeypatch.setattr(torch.distributed, "destroy_process_group", lambda: calls.append("leave"))
    options = argparse.Namespace(device=device)
    with contextlib.suppress(OSError), command_line.process_group(options):
        calls.append(options.device)
        if fails:
            raise OSError
    assert calls == [*expected, *["wait"] * (not fails), "leave"]


@pytest.mark.parametrize("rank", ["0", "x", ""])
def test_a_rank_that_no_torchrun_has_set_is_told(text, monkeypatch, rank):
    for name in ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RANK", rank)
    with pytest.raises(SystemExit, match=f"^training: RANK = '{rank}' is in the environment.*unset RANK"):
        main([f"--text={text}", *SMALL])


def test_a_process_without_a_gpu_of_its_own_is_told_so(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("LOCAL_RANK", "99")
    with pytest.raises(SystemExit, match=r"^training: --device cuda:99 cannot be used\. This"):
        main(["--device=cuda"])
