"""What JupyterLab, started as `make lab` starts it, shows to others: nothing."""

import json
import re
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path

import lab
import psutil
import pytest

ELSEWHERE = "127.0.0.2"  # leads to what listens on every address, and not to what listens on 127.0.0.1


@pytest.fixture(scope="module")
def server():
    """Give address, token and home of a running lab."""
    with lab.jupyter_lab() as address:
        base, token = re.match(r"(http://[^/]+)/.*token=(\w+)", address).groups()
        assert answers("127.0.0.1", int(base.rsplit(":", 1)[1]), patience=20)
        yield base, token, Path(psutil.Process().children()[-1].environ()["HOME"])


def answers(host, port, patience=0.0):
    """Return whether somebody listens, now or within some seconds."""
    deadline = time.monotonic() + patience
    while not _listens(host, port):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.1)
    return True


def _listens(host, port):
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


def ask(base, path, token=None):
    """Return status and text of an answer."""
    headers = {"Authorization": f"token {token}"} if token else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(base + path, headers=headers)) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")


def test_it_listens_on_this_machine_only(server):
    base, token, home = server
    start = urllib.request.Request(f"{base}/api/kernels", b"{}", {"Authorization": f"token {token}"})
    with urllib.request.urlopen(start) as answer:
        kernel = json.load(answer)["id"]
    connection = json.loads(next(home.rglob(f"kernel-{kernel}.json")).read_text())
    ports = [port for name, port in connection.items() if name.endswith("_port")]
    for port in (int(base.rsplit(":", 1)[1]), *ports):
        assert answers("127.0.0.1", port, patience=20)
        assert not answers(ELSEWHERE, port)
    with socket.create_server(("0.0.0.0", 0)) as open_to_all:
        assert answers(ELSEWHERE, open_to_all.getsockname()[1])


@pytest.mark.parametrize("path", ["/api/contents", "/api/kernels", "/api/terminals", "/files/README.md"])
def test_nobody_gets_in_without_the_token(server, path):
    base, token, _ = server
    assert ask(base, path, token)[0] == 200
    for wrong in (None, "0" * len(token), token[:-1]):
        status, text = ask(base, path, wrong)
        assert status == 403 or "Token or password required" in text or "Password or token" in text, text


OUT = ("..", "%2e%2e", "notebooks/../..", "notebooks/..%2f..")


@pytest.mark.parametrize("door", ["/api/contents/", "/files/"])
def test_nothing_above_the_repository_is_served(server, door):
    base, token, home = server
    (home / "secret.txt").write_text("above the repository")
    assert "make lab" in ask(base, door + "README.md", token)[1]
    for way in OUT:
        status, text = ask(base, f"{door}{way}/secret.txt", token)
        assert status >= 400, way
        assert "above the repository" not in text
    listing = json.loads(ask(base, "/api/contents", token)[1])["content"]
    assert "notebooks" in {entry["name"] for entry in listing}
