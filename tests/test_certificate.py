"""A certificate is written if nothing is wrong, verified by running its source again, and not run unasked."""

import json
import os
import re
import sys

import pytest

from attention_course import certificate
from attention_course.apart import Worker
from attention_course.certificate import main, work
from attention_course.examine import learning
from attention_course.ladder import RUNGS

pytestmark = pytest.mark.usefixtures("shapes_unchecked")

PAGE = """
import pathlib, torch
from attention_course.gpt import GPT, GPTConfig

pathlib.Path({ran!r}).touch()

class MyGPT(GPT):
    def __init__(self, vocab_size, block_size):
        super().__init__(GPTConfig(vocab_size, block_size, n_layer=1, n_embd=16))

class Leaky(torch.nn.Module):
    def __init__(self, vocab_size, block_size):
        super().__init__()
        self.table = torch.nn.Embedding(vocab_size, vocab_size)

    def forward(self, ids):
        return self.table(ids).flip(1)
"""
SMALL = ["--vocab-size", "13", "--block-size", "12", "--no-train"]


@pytest.fixture
def ran(tmp_path, monkeypatch):
    """The file that the page makes where it is executed; the page lies beside it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ATTENTION_PROGRESS", str(tmp_path / "progress.json"))
    made = tmp_path / "ran"
    (tmp_path / "my_gpt.py").write_text(PAGE.format(ran=str(made)))
    return made


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main([*arguments])
    return ended.value.code


@pytest.fixture
def written(ran, tmp_path, capsys):
    """A certificate, and a way to change it."""
    record = {
        "questions": {"mean_at_one": {"answers": ["(3, 6)"], "right_at_first_try": True}},
        "exercises": {},
    }
    (tmp_path / "progress.json").write_text(json.dumps(record))
    assert run("my_gpt.py", "--name", "Ada \x1b[2J", *SMALL) == 0, capsys.readouterr()
    ran.unlink()
    capsys.readouterr()
    return tmp_path / "certificate.json"


def test_a_certificate_holds_all_that_it_takes_to_have_the_report_again(written, ran, capsys):
    content = json.loads(written.read_text())
    assert content["report"]["passed"]
    assert content["source"] == (written.parent / "my_gpt.py").read_text()
    assert content["progress"][0].startswith("Rung 1: 1 of ")
    assert {"attention-course", "torch", "python"} == content["versions"].keys()
    assert run("--verify", "--yes", "certificate.json") == 3
    told = capsys.readouterr().out
    assert "Verified: it is the same report, number for number." in told
    assert "Ada \\x1b[2J" in told
    assert ran.exists()


@pytest.mark.parametrize(
    ("arguments", "asked", "status"),
    [
        (SMALL[:-1], "MyGPT(vocab_size=13, block_size=12), with training", 0),
        (SMALL, "MyGPT(vocab_size=13, block_size=12), without training", 3),
        (["--vocab-size", "3", *SMALL[2:]], "MyGPT(vocab_size=3, block_size=12), without training", 3),
    ],
)
def test_it_says_what_was_asked_and_whether_the_course_asks_more(
    ran, monkeypatch, capsys, arguments, asked, status
):
    monkeypatch.setattr(certificate, "SIZES", {"vocab_size": 13, "block_size": 12})  # the course's: a minute
    assert run("my_gpt.py", *arguments) == 0
    assert run("--verify", "--yes", "certificate.json") == status
    assert run("--show", "certificate.json") == 0
    told = capsys.readouterr().out
    assert told.count(asked) == 3
    assert told.count("is not what the course asks for") == (2 if status else 0)


def test_the_course_asks_what_the_last_rung_does():
    notebook = (RUNGS[-1].folder / "notebook.py").read_text(encoding="utf-8")
    assert f"V, block_size = {', '.join(map(str, certificate.SIZES.values()))}" in notebook


@pytest.mark.parametrize("answer", ["n", "", None])
def test_nothing_is_executed_before_somebody_agrees(written, ran, monkeypatch, capsys, answer):
    def asked(_):
        if answer is None:
            raise EOFError
        return answer

    monkeypatch.setattr("builtins.input", asked)
    assert run("--verify", "certificate.json") == 2
    assert "that is no sandbox" in capsys.readouterr().out
    assert run("--show", "certificate.json") == 0
    assert "class MyGPT(GPT):" in capsys.readouterr().out
    assert not ran.exists()


@pytest.mark.parametrize("change", ["verdict", "second", "source", "passed"])
def test_another_report_than_the_source_gets_is_not_verified(written, monkeypatch, capsys, change):
    content = json.loads(written.read_text())
    if change == "verdict":
        content["report"]["findings"][0]["verdict"] = "doubtful"
    elif change == "second":
        findings = content["report"]["findings"]
        findings.insert(0, findings[0] | {"verdict": "doubtful"})
    elif change == "source":
        content["source"] = content["source"].replace("MyGPT(", "Right(").replace("Leaky(", "MyGPT(")
    else:
        content["report"]["passed"] = False
    written.write_text(json.dumps(content))
    monkeypatch.setattr("builtins.input", lambda _: "y")
    assert run("--verify", "certificate.json") == 1
    assert "Not verified" in capsys.readouterr().out


@pytest.mark.parametrize("invented", ["headline", "measured"])
def test_of_a_report_with_invented_words_only_the_verdicts_are_verified(written, capsys, invented):
    content = json.loads(written.read_text())
    report = content["report"]
    (report if invented == "headline" else report["findings"][0])[invented] = "All is right."
    written.write_text(json.dumps(content))
    assert run("--verify", "--yes", "certificate.json") == 3
    told = capsys.readouterr().out
    assert "Verified: the same verdicts." in told
    assert "number for number" not in told


@pytest.mark.parametrize(
    "hidden",
    [
        "# coding: utf-7\n# +AAo-open({!r}, 'w') # the imports\n",
        "\r# coding: utf-7\n# +AAo-open({!r}, 'w') # the imports\n",
        "# coding: unicode_escape\n# on paper first \\u000aopen({!r}, 'w')\n",
    ],
)
def test_no_other_code_is_executed_than_is_shown(written, ran, capsys, hidden):
    content = json.loads(written.read_text())
    made = written.parent / "hidden"
    content["source"] = hidden.format(str(made)) + content["source"]
    written.write_text(json.dumps(content))
    assert run("--verify", "--yes", "certificate.json") == 2
    assert "declares no encoding" in capsys.readouterr().err
    assert not made.exists()
    assert not ran.exists()


@pytest.mark.parametrize("name", ["my_gpt.py", "list.json", "."])
def test_only_a_certificate_is_written_over(written, ran, capsys, name):
    (written.parent / "list.json").write_text("[1]")
    before = written.parent.joinpath("my_gpt.py").read_text()
    assert run("my_gpt.py", "--out", name, *SMALL) == 2
    assert f"{name} exists, and is no certificate" in capsys.readouterr().err
    assert not ran.exists()
    assert (written.parent / "my_gpt.py").read_text() == before
    assert (written.parent / "list.json").read_text() == "[1]"


def test_only_a_certificate_of_the_same_name_is_written_over(written, ran, capsys):
    before = written.read_text()
    assert run("my_gpt.py", "--name", "Bob", *SMALL) == 2
    assert r"certificate.json is the certificate of Ada \x1b[2J" in capsys.readouterr().err
    assert not ran.exists()
    assert written.read_text() == before
    name = json.loads(before)["name"]
    assert run("my_gpt.py", "--name", name, "--vocab-size", "14", *SMALL[2:]) == 0
    assert json.loads(written.read_text())["vocab_size"] == 14


@pytest.mark.parametrize("change", ["import beside", "open('beside.py')"])
def test_there_is_no_certificate_for_a_page_that_needs_another_file(ran, monkeypatch, capsys, change):
    (ran.parent / "beside.py").write_text("")
    (ran.parent / "two.py").write_text(f"{change}\n{PAGE.format(ran=str(ran))}")
    worker = Worker("attention_course.certificate:work")  # one that starts in this folder
    monkeypatch.setattr(certificate, "worker", worker)
    monkeypatch.setattr(sys, "path", [str(ran.parent), *sys.path])  # as by python -m
    assert run("two.py", *SMALL) == 2
    assert "and needs no other of yours" in capsys.readouterr().err
    assert not os.path.exists("certificate.json")
    assert run("my_gpt.py", *SMALL) == 0
    worker.end()


def test_there_is_no_certificate_for_a_model_with_something_wrong(ran, capsys):
    assert run("my_gpt.py", "--model", "Leaky", *SMALL) == 1
    assert "No certificate: " in (told := capsys.readouterr().out)
    assert "Fix this first: No leak from the future." in told
    assert not os.path.exists("certificate.json")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda content: content.pop("source"), "'source'"),
        (lambda content: content.update(form="another"), "look at form"),
        (lambda content: content.update(block_size="12"), "look at block_size"),
        (lambda content: content.update(model="../../x:Y"), "'../../x:Y' is no name of a class"),
        (lambda content: content["report"].pop("findings"), "'findings'"),
        (lambda content: content["report"].update(findings=[1]), "damaged."),
        (lambda content: content.update(source="x = '\ud800'"), r"a text has '\ud800' in it"),
        (lambda content: content.update(block_size=0), "block_size = 0"),
        (lambda content: content.update(source="import no_such_module"), "no_such_module"),
    ],
)
def test_what_is_no_certificate_gets_a_sentence(written, capsys, change, says):
    content = json.loads(written.read_text())
    change(content)
    written.write_text(json.dumps(content))
    assert run("--verify", "--yes", "certificate.json") == 2
    assert re.search(rf"^certificate: .*{re.escape(says)}", capsys.readouterr().err, re.M)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["missing.py"], "missing.py"),
        (["my_gpt.py", "--model", "Missing"], "The page has no model, class or function called 'Missing'"),
        (["my_gpt.py", "--model", "../../x:Y"], "'../../x:Y' is no name of a class"),
        (["my_gpt.py", "--block-size", "0"], "block_size = 0"),
        (["--verify", "my_gpt.py"], "my_gpt.py is no certificate of this course, or damaged."),
        (["my_gpt.py", "--out", "missing/certificate.json", *SMALL], "There is no folder missing"),
        (["--verify", "missing.json"], "missing.json: No such file or directory."),
        (["--verify", "list.json"], "list.json is no certificate of this course, or damaged."),
        (["."], ". is no page of Python: it is no file of at most 16 MB."),
        (["latin.py"], "latin.py is no page of Python: it is no text in UTF-8."),
        (["my_gpt.py", "--name", "Ada \udcff", *SMALL], r"a text has '\udcff' in it"),
    ],
)
def test_a_wrong_call_gets_a_sentence(ran, capsys, arguments, says):
    (ran.parent / "list.json").write_text("[1]")
    (ran.parent / "latin.py").write_bytes("x = 'é'".encode("latin-1"))
    assert run(*arguments) == 2
    told = capsys.readouterr().err
    assert says in told
    assert len(told.splitlines()) == 1


def test_progress_that_cannot_be_read_is_said_before_anything_runs(ran, capsys):
    (ran.parent / "progress.json").write_text("{")
    assert run("my_gpt.py", *SMALL) == 2
    assert "Your progress cannot be read" in capsys.readouterr().err
    assert not ran.exists()


def test_the_training_takes_all_its_steps_however_slow_the_machine_is(monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path)  # which work() changes
    monkeypatch.setattr(learning, "SECONDS", 0.0)
    monkeypatch.setattr(certificate.command, "work", lambda *_: None)
    work(("", {}, ()), lambda *_: None)
    assert learning.SECONDS > 1e9
