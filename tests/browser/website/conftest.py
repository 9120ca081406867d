"""The site on a server of its own, below `/attention/`, and a browser that may ask nobody else."""

import http.server
import threading
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import lab
import pytest


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="session")
def serve():
    """Serve folders: `serve(folder)` returns the address."""
    with ExitStack() as servers:

        def served(folder: Path, handler=Quiet) -> str:
            answering = partial(handler, directory=folder)
            server = servers.enter_context(http.server.ThreadingHTTPServer(("127.0.0.1", 0), answering))
            servers.callback(server.shutdown)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            return f"http://127.0.0.1:{server.server_port}"

        yield served


@pytest.fixture(scope="session")
def address(site, serve) -> str:
    """Return the address of the front page."""
    return f"{serve(site.parent)}/attention/"


@pytest.fixture(scope="module")
def chromium(chromium_path, letters, request):
    """Start the browser; a test can have it with letters of other widths."""
    with lab.browser(chromium_path, letters(request.param) if hasattr(request, "param") else None) as browser:
        yield browser


@pytest.fixture
def visit(chromium, address):
    """Open a page: `visit("01_bag_of_words/", width=360, dark=True)`; pages of one test share what they keep.

    At the end, no page has asked another host, been refused a file or a script, or raised an error.
    """
    contexts, wrong = {}, []

    def opened(path: str, width: int = 1280, dark: bool = False):
        if (width, dark) not in contexts:
            scheme = "dark" if dark else "light"
            contexts[width, dark] = chromium.new_context(
                viewport={"width": width, "height": 800}, color_scheme=scheme, reduced_motion="reduce"
            )
        page = contexts[width, dark].new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        page.on(
            "request",
            lambda request: None if is_own(request.url) else wrong.append(f"asked for {request.url}"),
        )
        page.on(
            "response",
            lambda answer: wrong.append(f"{answer.status} {answer.url}") if answer.status >= 400 else None,
        )
        page.goto(address + path)
        page.wait_for_load_state("networkidle")
        return page

    def is_own(url: str) -> bool:
        return url.startswith(address) or urlsplit(url).scheme in ("data", "blob")

    yield opened
    for context in contexts.values():
        context.close()
    assert wrong == []
