"""The command line: `python -m attention_course.examine my_gpt.py:GPT`."""

import errno
import json
import os
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from attention_course.apart import Worker
from attention_course.examine import __main__ as command
from attention_course.examine.__main__ import main

pytestmark = pytest.mark.usefixtures("shapes_unchecked")


FILE = """
import ctypes, os, re, sys, torch
from attention_course.gpt import GPT as Model, GPTConfig

class GPT(Model):
    def __init__(self, vocab_size, block_size):
        super().__init__(GPTConfig(vocab_size, block_size, n_embd=32))

class Nano(GPT):
    def __init__(self, config):
        super().__init__(config.vocab_size, config.block_size)

class NanoConfig:
    def __init__(self, block_size=1024, vocab_size=50304):
        self.block_size, self.vocab_size = block_size, vocab_size

def leaks(ids):
    return torch.nn.functional.one_hot(ids.flip(1), 29).float()

def make():
    return GPT(29, 24)

def returns_none():
    GPT(29, 24)

def returns_odd():
    return type("Odd", (), {"__repr__": lambda self: 1 / 0})()

class NoInit(torch.nn.Module):
    def forward(self, ids):
        return leaks(ids)

def of_options(**options):
    return GPT(**options)

class Wide:
    def __init__(self, vocab_size, width):
        pass

class Raising:
    def __init__(self, vocab_size, block_size):
        self.width = missing

class Empty:
    def __init__(self, vocab_size, block_size):
        raise NotImplementedError

def says_what_cannot_be_printed(ids):
    raise ValueError("\\ud800\\x1b[2J")

def says_what_no_xml_holds(ids):
    raise ValueError("\\x80 \\ufffe")

def ends(ids):
    raise SystemExit(0)

class Forks(GPT):
    def forward(self, ids):
        os.fork()
        return super().forward(ids)

def ends_at_once(ids):
    os._exit(0)

def crashes(ids):
    ctypes.string_at(0)

def never_returns(ids):
    re.match("(a+)+$", "a" * 64 + "b")  # in C, without a pause for other threads

class EndsWriting(GPT):
    def generate(self, ids, max_new_tokens):
        exit()

class EndsInInit(GPT):
    def __init__(self, vocab_size, block_size):
        sys.exit()

class EndsAtOnceInInit(GPT):
    def __init__(self, vocab_size, block_size):
        os._exit(0)

class NeverMade(GPT):
    def __init__(self, vocab_size, block_size):
        while True:
            pass
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "my_gpt.py"
    path.write_text(FILE)
    return path


@pytest.mark.parametrize(
    ("name", "status"), [("GPT", 0), ("make", 0), ("Nano", 0), ("of_options", 0), ("leaks", 1), ("NoInit", 1)]
)
def test_the_exit_status(file, capsys, name, status):
    assert examined(f"{file}:{name}") == status
    assert ("Fix this first" in capsys.readouterr().out) == bool(status)


@pytest.mark.parametrize(
    ("name", "status", "says"),
    [
        ("says_what_cannot_be_printed", 1, r"ValueError: \ud800\x1b[2J."),
        ("ends", 1, "SystemExit: 0. At my_gpt.py, line"),
        ("ends_at_once", 1, "Its process ended without an answer"),
        ("crashes", 1, "Its process ended without an answer"),
        ("never_returns", 1, "No answer within"),
        ("EndsWriting", 1, "Fix this first: It keeps writing past its block."),
        ("EndsInInit", 2, "examine: EndsInInit(vocab_size=29, block_size=24) raised SystemExit."),
        ("EndsAtOnceInInit", 2, "my_gpt.py ended its process before there was a model."),
        ("NeverMade", 2, "my_gpt.py made no model within"),
    ],
)
def test_nothing_that_a_file_does_ends_the_command_as_if_all_were_right(
    file, capsys, monkeypatch, name, status, says
):
    monkeypatch.setattr(command, "PATIENCE", 10.0)
    assert examined(f"{file}:{name}") == status
    assert says in "".join(capsys.readouterr()).replace("\n    ", " ")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="There is no fork.")
def test_a_model_that_forks_is_examined_by_one_process(file):
    assert examined(f"{file}:Forks") == 0


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import sys; sys.exit()", "cannot be executed. SystemExit. At my_gpt.py, line 1, in <module>"),
        ("import os; os._exit(0)", "my_gpt.py ended its process before there was a model."),
        ("raise KeyboardInterrupt", "cannot be executed. KeyboardInterrupt."),
        ("def __getattr__(name): 1 / 0", "GPT cannot be looked at. ZeroDivisionError: division by zero."),
    ],
)
def test_nothing_at_the_top_of_a_file_ends_the_command_as_if_all_were_right(file, capsys, source, says):
    file.write_text(source)
    assert examined(f"{file}:GPT") == 2
    assert says in capsys.readouterr().err


def test_machines_read_the_report_and_choose_the_questions(file, capsys, tmp_path):
    leak, padding = "No leak from the future", "Padding on the left changes nothing"
    written = tmp_path / "report.xml"
    assert (
        examined(f"{file}:GPT", "--json", f"--junit={written}", f"--ignore={leak}", f"--require={padding}")
        == 1
    )
    told, said = capsys.readouterr()
    assert not said
    verdicts = {each["name"]: each["verdict"] for each in json.loads(told)["findings"]}
    assert leak not in verdicts
    assert [name for name, verdict in verdicts.items() if verdict == "wrong"] == [padding]
    cases = {case.get("name"): [part.tag for part in case] for case in ElementTree.parse(written).getroot()}
    assert cases.keys() == verdicts.keys()
    assert cases[padding] == ["failure"]
    before = written.read_text()
    assert examined(f"{file}:leaks", f"--junit={written}") == 1  # a report is written over
    assert written.read_text() != before
    capsys.readouterr()
    assert examined(f"{file}:says_what_no_xml_holds", "--json", f"--junit={written}") == 1
    assert json.loads(capsys.readouterr().out)["findings"][0]["verdict"] == "wrong"
    assert ElementTree.parse(written).find(".//failure") is not None
    capsys.readouterr()
    assert examined(f"{file}:GPT", "--ignore=No leek") == 2
    assert "There is no question called 'No leek'" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["{}", "<svg/>", '<testsuite name="another"/>', b"PK\x03\x04\xff", FILE])
def test_only_a_report_of_the_examiner_is_written_over(file, capsys, tmp_path, content):
    kept = tmp_path / "kept"
    kept.write_bytes(content := content.encode() if isinstance(content, str) else content)
    for refused in (kept, tmp_path, tmp_path / "missing" / "report.xml", os.devnull):
        assert examined(f"{file}:missing", f"--junit={refused}") == 2
        assert str(refused) in (said := capsys.readouterr().err)
        assert "'missing'" not in said, "the file was executed"
    assert kept.read_bytes() == content


def test_the_report_is_written_also_where_it_cannot_be_shown(file, tmp_path):
    written, (reads, writes) = tmp_path / "report.xml", os.pipe()
    os.close(reads)
    options = ["--vocab-size=29", "--block-size=24", "--no-train", f"--junit={written}"]
    command = [sys.executable, "-m", "attention_course.examine", f"{file}:make", *options]
    ended = subprocess.run(command, stdout=writes, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writes)
    assert ended.returncode == 0
    assert ended.stderr == "examine: the report cannot be printed. Broken pipe.\n"
    assert len(ElementTree.parse(written).getroot()) > 1


def test_the_report_is_shown_also_where_it_cannot_be_written(file, capsys, monkeypatch, tmp_path):
    def full(path, _):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr("attention_course.examine.__main__.write_at_once", full)
    assert examined(f"{file}:GPT", "--json", f"--junit={tmp_path / 'report.xml'}") == 2
    told, said = capsys.readouterr()
    assert json.loads(told)["findings"]
    assert said.endswith("report.xml: No space left on device.\n")


def examined(name, *options):
    with pytest.raises(SystemExit) as exit:
        main([name, "--vocab-size=29", "--block-size=24", "--no-train", *options])
    return exit.value.code


def test_sizes_that_the_model_tells_need_not_be_given(file, capsys):
    assert without_sizes(f"{file}:make") == 0
    assert without_sizes(f"{file}:GPT") == 2
    assert "GPT cannot be called with no sizes alone: missing" in capsys.readouterr().err
    assert without_sizes(f"{file}:NoInit") == 2
    assert "no vocab_size is given, and NoInit tells none" in capsys.readouterr().err


def without_sizes(name):
    with pytest.raises(SystemExit) as exit:
        main([name, "--no-train"])
    return exit.value.code


def test_a_module_is_imported_by_its_name(file, capsys, monkeypatch):
    package = file.parent / "models_of_mine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "small.py").write_text(f"from . import beside\n{FILE}")
    (package / "beside.py").write_text("")
    (package / "ending.py").write_text("exit()")
    monkeypatch.setattr(command.sys, "path", [str(file.parent), *command.sys.path])
    monkeypatch.setattr(command, "worker", Worker("attention_course.examine.__main__:work"))
    assert without_sizes("models_of_mine.small:make") == 0
    assert examined("models_of_mine.small:Nano") == 0
    capsys.readouterr()
    for name, says in {
        "models_of_mine.small:GTP": "models_of_mine.small has no model, class or function called 'GTP'.",
        "models_of_mine.large:GPT": "models_of_mine.large cannot be imported, in this folder or as",
        "models_of_mine.ending:GPT": "models_of_mine.ending cannot be executed. SystemExit",
        "models_of_mine.small": "names no Python file, or module, and what is in it.",
        "missing.py:GPT": "There is no file missing.py.",
    }.items():
        assert without_sizes(name) == 2
        assert says in capsys.readouterr().err


@pytest.mark.parametrize("name", ["my_gpt.py:GTP", "missing.py:GPT", "my_gpt.py", "my_gpt.py:Model"])
def test_what_cannot_be_loaded(file, capsys, name):
    assert examined(str(file.parent / name)) == 2
    assert capsys.readouterr().err.startswith("examine: ")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Wide", "Wide cannot be called with vocab_size and block_size alone: missing"),
        ("Raising", "Raising(vocab_size=29, block_size=24) raised NameError: name 'missing' is not defined."),
        ("Raising", "At my_gpt.py, line 42, in __init__: self.width = missing."),
        ("Empty", "Empty is not written yet."),
        ("returns_none", "examine: returns_none() returned None. Let it return the model, an nn.Module."),
        ("returns_odd", "examine: returns_odd() returned <Odd>. Let it return the model, an nn.Module."),
    ],
)
def test_what_is_wrong_with_a_constructor(file, capsys, name, says):
    assert examined(f"{file}:{name}") == 2
    said = capsys.readouterr().err
    assert says in said
    assert ("Name a function" in said) == (name == "Wide")


@pytest.mark.parametrize("size", ["1", "-5", "9" * 20])
def test_sizes_are_refused_before_a_model_is_made(file, capsys, size):
    with pytest.raises(SystemExit):
        main([f"{file}:Raising", f"--vocab-size={size}", "--block-size=24"])
    assert capsys.readouterr().err.startswith(f"examine: vocab_size = {size}, expected")
