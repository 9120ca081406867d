"""Scripts run by QuickJS, on the page of page.js."""

import json
import re
from pathlib import Path

import pytest
import quickjs

from attention_course.plots.style import bundle

PACKAGE = Path(__file__).resolve().parents[2] / "attention_course"


class Page:
    """A page that runs scripts of the package, given their paths within it."""

    def __init__(self, *names: str):
        self.context = quickjs.Context()
        self.context.eval(Path(__file__).with_name("page.js").read_text(encoding="utf-8"))
        scripts = bundle(*(PACKAGE / name for name in names))
        alone = re.sub("^import .*", "", scripts.replace("export default", "const exported ="), flags=re.M)
        self.context.eval(re.sub("^export ", "", alone, flags=re.M))

    def do(self, statements: str) -> None:
        """Run statements, and what follows from them before any time passes."""
        self.context.eval(statements)
        while self.context.execute_pending_job():
            pass

    def get(self, expression: str):
        """Return the value of an expression."""
        return json.loads(self.context.eval(f"[JSON.stringify([{expression}])].join('')"))[0]

    def wait(self, ms: int) -> None:
        """Let time pass, in frames of 10 ms."""
        for _ in range(ms // 10):
            self.do("Page.pass(10)")


@pytest.fixture(scope="session")
def page_of():
    """Return the class, of which a test makes its pages."""
    return Page
