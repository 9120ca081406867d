"""Shared by all tests: properties that are tried the same way each time."""

import os
import signal
import subprocess
import sys

import jaxtyping
import pytest
from filelock import FileLock
from hypothesis import settings
from nbval.plugin import IPyNbCell

os.environ["ATTENTION_PROGRESS"] = (
    ""  # here and in kernels: what tests answer is not kept, what is kept not shown
)

settings.register_profile("course", deadline=None, derandomize=True)  # no clock and no luck decides a test
settings.register_profile("quick", settings.get_profile("course"), max_examples=20)  # make check
settings.load_profile("course")


@pytest.fixture
def shapes_unchecked():
    """Call the package as a learner does: bad input meets the package's own messages, not jaxtyping's."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Keep progress as for a learner, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ATTENTION_PROGRESS")
    return tmp_path / "progress.json"


@pytest.fixture
def listening():
    """Interrupts arrive even if the tests run in the background, where the shell lets them be ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield signal.default_int_handler
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def short_samples():
    """Let explorers write eight characters: where hundreds of settings are tried, they say as much as all."""
    from attention_course.rungs.bigram_to_gpt import (
        explorer_sampling as sampling,  # not above: types are checked in what is imported later
    )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "LENGTH", 8)
        yield


def missing_model() -> str:
    """Return why tests of the real model cannot run: "" if they can."""
    from attention_course.smollm import smollm_path  # not above, for the same reason

    return "" if smollm_path().exists() else "The real model is missing: fetch it with make model."


@pytest.fixture(scope="session")
def smollm():
    """Return SmolLM2 and its tokenizer, if they were fetched before."""
    from attention_course.smollm import load_smollm

    if reason := missing_model():
        if os.environ.get("CI"):
            pytest.fail(f"{reason} In CI no test of it may be skipped.")
        pytest.skip(reason)
    return load_smollm()


@pytest.fixture(scope="session")
def pictures_of_explorers():
    """Have the pictures for the site worked out, in a process of their own: here each tensor is checked.

    Where tests run side by side, one process waits for the other, and finds them.
    """
    from website import explorers  # not above, for the same reason

    load = "from website import explorers\nfor name in explorers.EXPLORERS: explorers.load(name)"
    path = {"PYTHONPATH": os.pathsep.join([str(explorers.ROOT), str(explorers.ROOT / "tools")])}
    explorers.KEPT.mkdir(exist_ok=True)
    with FileLock(explorers.KEPT / "lock"):
        subprocess.run([sys.executable, "-c", load], env=os.environ | path, check=True)
    return explorers


@pytest.fixture(scope="session")
def site(tmp_path_factory, pictures_of_explorers):
    """Build the site, below a path as on a server that has other sites."""
    from website.build import build  # not above, for the same reason

    folder = tmp_path_factory.mktemp("server") / "attention"
    folder.mkdir()
    build(folder)
    return folder


def pytest_collection_modifyitems(items):
    """Skip the notebook of the real model where that is missing, but not in CI; give all time to answer.

    At the end of a cell ipykernel flushes stdout and stderr, and gives each up to 10 seconds; nbval gives up
    after 5.
    """
    cells = [item for item in items if isinstance(item, IPyNbCell)]
    for cell in cells:
        cell.output_timeout = 30
    of_model = [cell for cell in cells if cell.path.stem in ("09_a_real_model", "10_looking_inside")]
    if of_model and not os.environ.get("CI") and (reason := missing_model()):
        for cell in of_model:
            cell.add_marker(pytest.mark.skip(reason=reason))
