"""The torch of the page: with it the judge says what it says with PyTorch. Chromium tries all answers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import verdicts

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "tools/website/page"
HAVE_THE_PAGE = "import sys; sys.path.insert(0, sys.argv[2]); import absent; absent.install();"
RUN = "import runpy; runpy.run_path(sys.argv[3], run_name='__main__')"


def said(*, page: bool) -> dict[str, list]:
    """Return verdicts on a sample, from a process of its own."""
    script = (HAVE_THE_PAGE if page else "import sys;") + RUN
    command = [sys.executable, "-W", "ignore", "-c", script, "25", PAGE, ROOT / "tests/verdicts.py"]
    path = {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "tests"))), "OMP_NUM_THREADS": "1"}
    return json.loads(subprocess.run(command, env=os.environ | path, check=True, capture_output=True).stdout)


def test_verdicts_are_those_under_pytorch():
    native, page = said(page=False), said(page=True)
    assert len(native) > 150
    assert verdicts.differing(native, page) == {}
