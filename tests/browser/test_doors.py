"""What JupyterLab, started as `make lab` starts it, shows to others: nothing."""

import contextlib
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


@pytest.fixture(scope="module")
def server():
    """Give address, token and process of a running lab."""
    with lab.jupyter_lab() as address:
        base, token = re.match(r"(http://[^/]+)/.*token=(\w+)", address).groups()
        process = psutil.Process().children()[-1]
        wait_for(process, {int(base.rsplit(":", 1)[1])})
        yield base, token, process


def home_of(process):
    return Path(process.environ()["HOME"])


def addresses(process):
    """Return where a process and those that it started listen, as (host, port)."""
    sockets = []
    for member in (process, *process.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended since
            sockets += member.net_connections("inet")
    return {tuple(each.laddr) for each in sockets if each.status == psutil.CONN_LISTEN}


def wait_for(process, ports):
    """Return when all ports are listened on."""
    deadline = time.monotonic() + 20
    while not ports <= {port for _, port in addresses(process)}:
        assert time.monotonic() < deadline, f"nobody listens on all of {ports}"
        time.sleep(0.1)


def ask(base, path, token=None):
    """Return status and text of an answer."""
    headers = {"Authorization": f"token {token}"} if token else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(base + path, headers=headers)) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")


def test_it_listens_on_this_machine_only(server):
    base, token, process = server
    start = urllib.request.Request(f"{base}/api/kernels", b"{}", {"Authorization": f"token {token}"})
    with urllib.request.urlopen(start) as answer:
        kernel = json.load(answer)["id"]
    connection = json.loads(next(home_of(process).rglob(f"kernel-{kernel}.json")).read_text())
    wait_for(process, {port for name, port in connection.items() if name.endswith("_port")})
    assert {host for host, _ in addresses(process)} <= {"127.0.0.1", "::1"}
    with socket.create_server(("0.0.0.0", 0)) as open_to_all:
        assert open_to_all.getsockname() in addresses(psutil.Process())


@pytest.mark.parametrize("path", ["/api/contents", "/api/kernels", "/api/terminals", "/files/README.md"])
def test_nobody_gets_in_without_the_token(server, path):
    base, token, _ = server
    assert ask(base, path, token)[0] == 200
    for wrong in (None, "0" * len(token), token[:-1]):
        status, text = ask(base, path, wrong)
        assert status == 403 or "Token or password required" in text or "Password or token" in text, text


OUT = ("..", "%2e%2e", "notebooks/../..", "notebooks/..%2f..", "{home}", "%2f{home}")


@pytest.mark.parametrize("door", ["/api/contents/", "/files/"])
def test_nothing_above_the_repository_is_served(server, door):
    base, token, process = server
    home = home_of(process)
    (home / "secret.txt").write_text("above the repository")
    assert "make lab" in ask(base, door + "README.md", token)[1]
    for way in OUT:
        status, text = ask(base, f"{door}{way.format(home=home)}/secret.txt", token)
        assert status >= 400, way
        assert "above the repository" not in text
    listing = json.loads(ask(base, "/api/contents", token)[1])["content"]
    assert "notebooks" in {entry["name"] for entry in listing}
