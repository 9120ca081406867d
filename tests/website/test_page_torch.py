"""The torch of the page: with it the judge says what it says with PyTorch. Chromium tries all answers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import verdicts

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "tools/website/page"
PATHS = {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "tests"))), "OMP_NUM_THREADS": "1"}
HAVE_THE_PAGE = "import sys; sys.path.insert(0, sys.argv[2]); import absent; absent.install();"
RUN = "import runpy; runpy.run_path(sys.argv[3], run_name='__main__')"
CALLS = """
import torch
from attention_course.exercises import EXERCISES
from attention_course.exercises.judging import judge
def softmax(x):
    exp = (x - x.amax(dim=-1, keepdim=True)).exp()
    return exp / exp.sum(dim=-1, keepdim=True)
for answer in (lambda x: softmax(x), lambda x: x.softmax(dim=-1), lambda x: torch.softmax(x, dim=-1)):
    print(judge(EXERCISES["stable_softmax"], answer, 5).passed, end=" ")
"""


def said(*, page: bool) -> dict[str, list]:
    """Return verdicts on a sample, from a process of its own."""
    script = (HAVE_THE_PAGE if page else "import sys;") + RUN
    command = [sys.executable, "-W", "ignore", "-c", script, "25", PAGE, ROOT / "tests/verdicts.py"]
    return json.loads(subprocess.run(command, env=os.environ | PATHS, check=True, capture_output=True).stdout)


def test_verdicts_are_those_under_pytorch():
    native, page = said(page=False), said(page=True)
    assert len(native) > 150
    assert verdicts.differing(native, page) == {}


def test_a_function_of_torch_is_told_from_the_readers_own_of_that_name():
    command = [sys.executable, "-W", "ignore", "-c", HAVE_THE_PAGE + CALLS, "", PAGE]
    found = subprocess.run(command, env=os.environ | PATHS, check=True, capture_output=True, text=True)
    assert found.stdout.split() == ["True", "False", "False"]
