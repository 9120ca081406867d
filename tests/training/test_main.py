"""The command line of a training: what it prints, how it is stopped and goes on, and several processes."""

import argparse
import contextlib
import io
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from training.small import interrupt, markov_text, press, without_clock

from attention_course.gpt import GPTConfig
from attention_course.stories import write_stories
from attention_course.text import Data, conditional_entropy
from attention_course.training import History, Trainer, read_checkpoint, run
from attention_course.training import __main__ as command_line
from attention_course.training.__main__ import main

SMALL = ["--steps=4", "--batch-size=2", "--evaluate-every=2", "--sample=20", "--precision=float32"]


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(write_stories(seed=4, characters=6000))
    return path


@pytest.fixture
def start():
    """Start the command line in a process of its own; it does not outlive the test."""
    with contextlib.ExitStack() as processes:

        def started(*arguments, launcher=("-m",)):
            command = [sys.executable, *launcher, "attention_course.training", *map(str, arguments)]
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            environment = os.environ | {"OMP_NUM_THREADS": "1"}
            process = processes.enter_context(subprocess.Popen(command, env=environment, **pipes))
            processes.callback(process.kill)
            return process

        yield started


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
    val = Data.of(text.read_text()).val
    assert losses[:3] == pytest.approx([conditional_entropy(val, n) for n in (1, 2, 3)], abs=1e-3)
    assert losses[3] == pytest.approx(float(progress[-1].split()[6]), abs=6e-4)
    assert re.fullmatch(r"GPT, 2 layers +1\d\d,\d{3} +\d\.\d{3} +0\.\d\d", gpt)
    assert sample.startswith(Data.of(text.read_text()).tokenizer.decode(val[:1]))
    assert len(sample) == 1 + 20 + 1  # the first character of the text, what was asked for, and a newline


@pytest.mark.parametrize(("has_gpu", "device"), [(True, "cuda"), (False, "cpu")])
def test_the_default_device_is_a_gpu_where_there_is_one(has_gpu, device, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    assert command_line.arguments().get_default("device") == device


def test_the_command_line_takes_text_that_asks_nothing(text, capsys):
    text.write_text(markov_text(3000))
    main([f"--text={text}", *SMALL, "--sample=0"])
    assert re.search(r"GPT, 2 layers +[\d,]+ +\d\.\d{3} *\n\n.\n$", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--stepz=3"], 2, "unrecognized arguments: --stepz=3"),
        (["--steps=3.5"], 2, "argument --steps: invalid int value: '3.5'"),
        (["--config=huge"], 2, "argument --config: invalid choice: 'huge'"),
        (["--steps=0"], 1, "training: Recipe: steps = 0, expected an integer of at least 1, below 2**31."),
        (
            ["--precision=float23"],
            1,
            "training: There is no precision called 'float23'. Did you mean 'float32'?",
        ),
        (["--device=abacus"], 1, "training: --device abacus cannot be used. This machine has: cpu"),
        (["--device=cuda:99"], 1, "training: --device cuda:99 cannot be used. This machine has: cpu"),
        (["--seed=-1"], 1, "training: Recipe: seed = -1, expected an integer, 0 <= seed < 2**63."),
        ([f"--seed={2**63}"], 1, "training: Recipe: seed = 9223372036854775808, expected an integer"),
        (["--text=nowhere.txt"], 1, "training: load_text: there is no file"),
        (["--text=~nobody/war.txt"], 1, "training: load_text: there is no file"),
        (
            ["--checkpoint=no/such/run.pt"],
            1,
            f"training: The checkpoint {Path('no/such/run.pt')} could not be written: No such",
        ),
        (["--checkpoint=."], 1, "training: The checkpoint . could not be written: Is a directory. Name a"),
        (
            ["--checkpoint=/"],
            1,
            f"training: The checkpoint {Path('/')} could not be written: Is a directory. Name a",
        ),
        (["--checkpoint="], 1, "training: The checkpoint . could not be written: Is a directory. Name a"),
        pytest.param(
            ["--checkpoint=/dev/null/a"],
            1,
            "The checkpoint /dev/null/a could not be written: Not a directory.",
            marks=pytest.mark.skipif(os.name == "nt", reason="Windows has no /dev/null"),
        ),
        (["--device=meta"], 1, "training: --device meta cannot be used. This machine has: cpu"),
        (["--device=hpu"], 1, "training: --device hpu cannot be used. This machine has: cpu"),
        (["--device="], 1, "training: --device  cannot be used. This machine has: cpu"),
        (["--sample=-5"], 2, "argument --sample: -5 characters, expected at least 0"),
        (["--sample=many"], 2, "argument --sample: invalid length value: 'many'"),
        (["--batch-size=2147483647"], 1, "training: A batch of 2147483647 sequences of "),
        ([f"--batch-size={10**20}"], 1, "training: Recipe: batch_size = 100000000000000000000, expected"),
        (["--learning-rate=nan"], 1, "training: Recipe: learning_rate = nan, expected a number above 0."),
    ],
)
def test_what_does_not_work_is_said_in_one_line(text, capsys, arguments, status, message):
    with pytest.raises(SystemExit) as stopped:
        main([f"--text={text}", *SMALL, *arguments])
    shown = capsys.readouterr()
    assert shown.out == ""  # said before anything is trained
    said = shown.err.splitlines() if status == 2 else stopped.value.code.splitlines()
    assert message in said[-1]
    assert len(said) <= status
    assert stopped.value.code == 2 or status == 1  # a sentence is printed, and the status is 1


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
    main([f"--text={text}", *SMALL, "--sample=300", "--steps=40"])
    out.flush()
    printed = out.buffer.getvalue()
    assert b"\\xe4" in printed
    assert b"\\x1b" in printed
    assert not set(printed) - {*range(32, 127), 9, 10}


def test_a_second_run_with_the_same_checkpoint_is_refused(text, tmp_path, monkeypatch):
    command, messages = [f"--text={text}", *SMALL, f"--checkpoint={tmp_path / 'run.pt'}"], []

    def second(trainer):
        with pytest.raises(SystemExit) as stopped:
            main(command)
        messages.append(stopped.value.code)

    monkeypatch.setattr(command_line, "print_progress", second)
    main(command)
    expected = (
        f"training: Another run is saving to {tmp_path / 'run.pt'}. Wait until it ends, or name another file."
    )
    assert messages == [expected] * 2
    assert read_checkpoint(tmp_path / "run.pt")["steps_done"] == 4


def test_the_last_validation_loss_is_measured_once(text, monkeypatch, capsys):
    calls, usual = [], Trainer.evaluate
    monkeypatch.setattr(Trainer, "evaluate", lambda *given: calls.append(given[1]) or usual(*given))
    main([f"--text={text}", *SMALL])
    assert calls == [2000, None]


def test_a_short_text_and_a_foreign_checkpoint_are_told_from_the_command_line(text):
    with pytest.raises(SystemExit, match="is not a checkpoint of this course"):
        main([f"--text={text}", f"--checkpoint={text}", *SMALL])
    text.write_text("a few words")
    with pytest.raises(SystemExit, match="The training text has 9 tokens, too few for block_size = 128"):
        main([f"--text={text}", *SMALL])


def stop_after(step, process):
    """Press Ctrl-C when a command has printed this step or a later one; return its last step and its hint."""
    while int(re.match(r"step +(\d+) of 100000", process.stdout.readline())[1]) < step:
        pass
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "")
    *_, stopped, hint, _ = rest.split("\n")
    return int(re.fullmatch(r"Stopped after step (\d+) of 100000.", stopped)[1]), hint


@pytest.mark.slow
def test_ctrl_c_saves_and_the_same_command_goes_on(text, tmp_path, listening, start):
    path, whole = tmp_path / "run.pt", tmp_path / "whole.pt"
    command = [f"--text={text}", "--steps=100000", "--batch-size=2", "--evaluate-every=3", "--checkpoint"]
    first, hint = stop_after(3, start(*command, path))
    assert hint == f"The same command resumes it from {path}."
    assert read_checkpoint(path)["steps_done"] == len(read_checkpoint(path)["history"]["losses"]) == first
    second, _ = stop_after(first + 1, start(*command, path))
    stop_after(second, start(*command, whole))
    losses, without_a_stop = (read_checkpoint(file)["history"]["losses"] for file in (path, whole))
    assert len(losses) == second > first
    assert losses == without_a_stop[:second]


def test_ctrl_c_before_the_first_step_is_as_polite(text, monkeypatch):
    monkeypatch.setattr(command_line, "load_text", interrupt)
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


def test_the_command_line_takes_the_size_of_the_model(text, capsys):
    main([f"--text={text}", *SMALL, "--config=shakespeare"])
    assert re.search(r"GPT, 4 layers +8\d\d,\d{3} ", capsys.readouterr().out)


@pytest.mark.parametrize(("presses", "saved"), [(1, 2), (2, 0)])
def test_the_command_line_resumes_to_the_same_result(
    listening, text, tmp_path, monkeypatch, capsys, presses, saved
):
    paths = [tmp_path / "whole.pt", tmp_path / "halves.pt"]
    command = [f"--text={text}", *SMALL]
    main([*command, f"--checkpoint={paths[0]}"])
    with monkeypatch.context() as patch:
        patch.setattr(command_line, "print_progress", lambda trainer: [press() for _ in range(presses)])
        with pytest.raises(SystemExit) as stopped:
            main([*command, f"--checkpoint={paths[1]}"])
    assert stopped.value.code == 130
    said = f"Stopped after step 2 of 4.\nThe same command resumes it from {paths[1]}.\n"
    assert capsys.readouterr().out.endswith(said) == (presses == 1)
    assert read_checkpoint(paths[1])["steps_done"] == saved
    main([*command, f"--checkpoint={paths[1]}"])
    whole, halves = map(read_checkpoint, paths)
    assert without_clock(History(**whole["history"])) == without_clock(History(**halves["history"]))
    assert all(torch.equal(whole["model"][name], halves["model"][name]) for name in whole["model"])


# Several processes


@pytest.mark.slow
def test_two_processes_train_like_one(text, tmp_path, start):
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m")
    pair = start(f"--text={text}", *SMALL, f"--checkpoint={tmp_path / 'pair.pt'}", launcher=launcher)
    main([f"--text={text}", *SMALL, f"--checkpoint={tmp_path / 'one.pt'}"])
    shown, errors = pair.communicate(timeout=120)
    assert pair.returncode == 0, errors
    assert shown.count("GPT, 2 layers") == 1
    one, two = (read_checkpoint(tmp_path / name) for name in ("one.pt", "pair.pt"))
    assert two["history"]["losses"] == pytest.approx(one["history"]["losses"], abs=1e-5)
    assert two["history"]["val_losses"] == pytest.approx(one["history"]["val_losses"], abs=1e-5)
    for name, weights in one["model"].items():
        torch.testing.assert_close(two["model"][name], weights, atol=1e-4, rtol=0)


@pytest.mark.parametrize("found", [0, 1])
def test_a_process_without_a_gpu_of_its_own_is_told_so(monkeypatch, found):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: found)
    with pytest.raises(SystemExit, match=rf"training: Process 1, .* machine has {found}\. Start at most"):
        main(["--device=cuda"])


@pytest.mark.parametrize(
    ("device", "joined"), [("cpu", ["gloo"]), ("cuda", ["cuda:1", "nccl"]), ("cuda:0", ["nccl"])]
)
@pytest.mark.parametrize("fails", [False, True])
def test_processes_of_torchrun_join_and_part(monkeypatch, device, joined, fails):
    calls = []
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", calls.append)
    monkeypatch.setattr(torch.distributed, "init_process_group", calls.append)
    monkeypatch.setattr(torch.distributed, "barrier", lambda: calls.append("wait"))
    monkeypatch.setattr(torch.distributed, "destroy_process_group", lambda: calls.append("part"))
    options = argparse.Namespace(device=device)
    with contextlib.suppress(OSError), command_line.process_group(options):
        calls.append(f"train on {options.device}")
        if fails:
            raise OSError
    name = "cuda:1" if device == "cuda" else device
    assert calls == [*joined, f"train on {name}", *["wait"] * (not fails), "part"]


@pytest.mark.parametrize(("rank", "order"), [("0", ["load", "wait"]), ("1", ["wait", "load"])])
@pytest.mark.parametrize("fails", [False, True])
def test_one_process_of_a_machine_downloads_and_the_others_wait(monkeypatch, rank, order, fails):
    calls = []

    def load(name):
        calls.append("load")
        if fails:
            raise OSError("no network")
        return name

    monkeypatch.setenv("LOCAL_RANK", rank)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "barrier", lambda: calls.append("wait"))
    monkeypatch.setattr(command_line, "load_text", load)
    if fails:
        with pytest.raises(OSError, match="no network"):
            command_line.shared_text("stories")
    else:
        assert command_line.shared_text("stories") == "stories"
    assert calls == order
