"""What the examination says of real bugs: `python tests/examine/real/table.py [listed or held_out]`."""

import importlib
import inspect
import sys
import time
import warnings
from pathlib import Path

import torch

from attention_course.examine import examine

sys.path.insert(0, str(Path(__file__).parents[2]))


def findings(bug, broken):
    """Examine one of its models; return what is not right, the first first, and the seconds."""
    torch.manual_seed(0)
    model = bug.make(broken)
    known = inspect.signature(examine).parameters
    given = {name: value for name, value in bug.given(model).items() if name in known}
    sizes = dict(vocab_size=model.config.vocab_size, block_size=model.config.block_size)
    start = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = examine(model, **sizes, train=False, **given)
    bad = [(f.verdict, f.name) for f in report.findings if f.verdict in ("wrong", "doubtful")]
    return bad, time.monotonic() - start


def row(name, bug):
    broken, first = findings(bug, True)
    mended, second = findings(bug, False)
    said = ": ".join(broken[0]) if broken else "nothing"
    others = "; ".join(": ".join(each) for each in mended) or "nothing"
    return f"| {name} | {said} | {others} | {first + second:.1f} |"


def table(bugs):
    rows = [row(name, bug) for name, bug in bugs.items()]
    return "\n".join(["| bug | broken: first | mended: all | seconds |", "| --- | --- | --- | --- |", *rows])


if __name__ == "__main__":
    print(table(importlib.import_module(f"examine.real.{(sys.argv[1:] or ['listed'])[0]}").BUGS))
