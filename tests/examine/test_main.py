"""The command line: `python -m attention_course.examine my_gpt.py:GPT`."""

import pytest

from attention_course.examine.__main__ import main

pytestmark = pytest.mark.usefixtures("shapes_unchecked")


FILE = """
import torch
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

class Wide:
    def __init__(self, vocab_size, width):
        pass

class Raising:
    def __init__(self, vocab_size, block_size):
        self.width = missing

class Empty:
    def __init__(self, vocab_size, block_size):
        raise NotImplementedError
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "my_gpt.py"
    path.write_text(FILE)
    return path


@pytest.mark.parametrize(("name", "status"), [("GPT", 0), ("make", 0), ("Nano", 0), ("leaks", 1)])
def test_the_exit_status(file, capsys, name, status):
    with pytest.raises(SystemExit) as exit:
        main([f"{file}:{name}", "--vocab-size=29", "--block-size=24", "--no-train"])
    assert exit.value.code == status
    assert ("Mend this first" in capsys.readouterr().out) == bool(status)


@pytest.mark.parametrize("name", ["my_gpt.py:GTP", "missing.py:GPT", "my_gpt.py", "my_gpt.py:Model"])
def test_what_cannot_be_loaded(file, capsys, name):
    with pytest.raises(SystemExit) as exit:
        main([str(file.parent / name), "--vocab-size=29", "--block-size=24"])
    assert exit.value.code == 2
    assert capsys.readouterr().err.startswith("examine: ")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Wide", "Wide cannot be called with vocab_size and block_size alone: missing"),
        ("Raising", "Raising(vocab_size=29, block_size=24) raised NameError: name 'missing' is not defined."),
        ("Raising", "At my_gpt.py, line 29, in __init__: self.width = missing."),
        ("Empty", "Empty is not written yet."),
    ],
)
def test_what_is_wrong_with_a_constructor(file, capsys, name, says):
    with pytest.raises(SystemExit):
        main([f"{file}:{name}", "--vocab-size=29", "--block-size=24"])
    said = capsys.readouterr().err
    assert says in said
    assert ("Name a function" in said) == (name == "Wide")


def test_the_help_says_that_loading_executes(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "executed" in capsys.readouterr().out
