"""The command `attention-course class`: which questions, which address, and what it leaves behind."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from urllib.parse import urlsplit

import pytest
from classes import Client

from attention_course.classroom.__main__ import FORM, chosen, main, own_address
from attention_course.ladder import RUNGS
from attention_course.questions import QUESTIONS

OWN = '[mine]\nquestion = "?"\nchoices = [{ text = "a", explanation = "b", right = true }, { text = "c" }]\n'


def test_questions_are_named_by_themselves_by_rungs_and_by_files(tmp_path):
    (tmp_path / "own.toml").write_text(OWN)
    found = chosen(["after_a_space", "bytes", str(tmp_path / "own.toml")])
    of_bytes = next(rung for rung in RUNGS if rung.stem == "bytes").questions
    assert [name for name, _ in found] == ["after_a_space", *of_bytes, "mine"]
    assert found[0][1] == QUESTIONS["after_a_space"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[mine", "cannot be read as TOML"),
        ("a = " + "[" * 100_000, "cannot be read as TOML"),
        ("", "holds no question"),
        ("mine = 1", "mine is no question"),
        ('[mine]\nquestion = "?"', "mine is no question"),
        ('[mine]\nquestion = "?"\nchoices = [{ text = "a" }]', "mine is no question"),
        ('[mine]\nquestion = 1\nchoices = [{ text = "a" }, { text = "b" }]', "mine is no question"),
        ('[mine]\nquestion = "?"\nchoices = [{ text = "a" }, { text = 2 }]', "mine is no question"),
        ('[mine]\nquestion = "?"\nchoices = [{ text = "a" }, 2]', "mine is no question"),
        ('[mine]\nchoices = [{ text = "a" }, { text = "b" }]', "mine is no question"),
        (OWN.replace("text", "txt"), "mine is no question: 'txt'.*text"),
        (OWN.replace("right", "correct"), "mine is no question: 'correct'.*right"),
        (OWN.replace("question", 'draw = "n"\nquestion'), "mine is no question: 'draw'.*question"),
        (OWN.replace("true", '"false"'), "mine is no question: right = 'false'"),
        (OWN.replace("mine", '"mine "'), "name"),
        (OWN.replace("mine", '" "'), "name"),
        (OWN.replace("mine", r'"\u001b[2J"'), "name"),
        (OWN.replace("mine", r'"a\u009b2J\u202e"'), "name"),
    ],
)
def test_a_file_that_holds_something_else_gets_a_sentence(tmp_path, text, says):
    file = tmp_path / "own.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=f"{says}.*{re.escape(FORM)}"):
        chosen([str(file)])


def test_wrong_names_files_and_ports_get_a_sentence_and_leave_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kept\x9b.jsonl").write_text("a vote\n")
    here = ["--address", "127.0.0.1", "--no-browser"]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for arguments, says in (
            (["after_a_spice"], "Did you mean 'after_a_space'"),
            (["missing.toml"], "missing.toml: No such file"),
            (["mean_at_one", "bag_of_words"], "mean_at_one is there twice"),
            (["after_a_space", "--votes", "kept\x9b.jsonl"], r"kept\\x9b.jsonl.*never written over"),
            (["after_a_space", "--votes", "no/folder.jsonl"], "folder.jsonl: No such file"),
            (["after_a_space", "--port", port], "Name another port"),
            (["after_a_space", "--address", "192.0.2.1"], "one of this computer's own addresses"),
            (["after_a_space", "--address", "\udcff"], r"\\udcff.*one of this computer's own addresses"),
            (["after_a_space", "--address", "a" * 99], "one of this computer's own addresses"),
            (["after_a_space", "--address", ":\udcff"], "one of this computer's own addresses"),
            (["after_a_space", "--address", "0.0.0.0"], "'0.0.0.0' is no address that a phone can open"),
        ):
            with pytest.raises(SystemExit, match=says):
                main([*here, *arguments])
        for port in ("99999", "-1", "http"):
            with pytest.raises(SystemExit) as ended:
                main([*here, "after_a_space", "--port", port])
            assert ended.value.code == 2
            assert port in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["kept\x9b.jsonl"]


def test_its_own_address_is_found_or_a_sentence_says_that_there_is_none(monkeypatch):
    class Nowhere(socket.socket):
        def connect(self, _):
            raise OSError(101, "Network is unreachable")

    with contextlib.suppress(OSError):  # where this machine is in no network
        socket.inet_aton(own_address())
    monkeypatch.setattr(socket, "socket", Nowhere)
    with pytest.raises(SystemExit, match="in no network"):
        main(["after_a_space"])


@pytest.mark.skipif(os.name == "nt", reason="Windows sends no SIGINT to a process")
@pytest.mark.usefixtures("listening")
@pytest.mark.parametrize("limit", ["soft", "hard"])
def test_it_says_who_can_reach_it_and_keeps_the_votes_when_it_is_interrupted(tmp_path, limit):
    """Also with more connections than files that it may have, until it asks for more, or at all."""
    few = ["sh", "-c", f'ulimit -S -n 128; ulimit -{limit[0].upper()} -n 128; exec "$@"', "sh"]
    command = [sys.executable, "-m", "attention_course", "class", "after_a_space", "--address", "LOCALHOST"]
    options = ["--port", "0", "--no-browser", "--votes", "votes\x9b.jsonl"]
    running = subprocess.Popen(
        [*few, *command, *options], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    phones, reach, teacher = (running.stdout.readline().strip() for _ in range(3))
    assert "Every device in the network" in reach
    with contextlib.ExitStack() as stack:
        stack.callback(running.kill)
        host = urlsplit(phones.split()[-1])
        assert host.netloc == f"localhost:{host.port}"  # as browsers ask for it
        first, *_ = [
            stack.enter_context(socket.create_connection((host.hostname, host.port))) for _ in range(150)
        ]
        Client(teacher.split()[-1]).act("begin", "join", "after_a_space")
        assert Client(phones.split()[-1]).vote(2, "after_a_space").status == 303
        if limit == "soft":  # none had to go
            first.sendall(f"GET / HTTP/1.1\r\nHost: {host.netloc}\r\n\r\n".encode())
            assert first.recv(12) == b"HTTP/1.1 200"
        running.send_signal(signal.SIGINT)
        said, wrong = running.communicate(timeout=60)
    assert "after_a_space: 1 of 1 right\nAll votes are in votes\\x9b.jsonl\n" in said
    assert (running.returncode, wrong) == (0, "")
    assert json.loads((tmp_path / "votes\x9b.jsonl").read_text())["right"]
