"""Shared by all tests: pictures without a window, properties that are tried the same way each time."""

import jaxtyping
import matplotlib
import pytest
from hypothesis import settings
from nbval.plugin import IPyNbCell

matplotlib.use("Agg")

settings.register_profile("course", deadline=None, derandomize=True)  # no clock and no luck decides a test
settings.register_profile("quick", settings.get_profile("course"), max_examples=20)  # make check
settings.load_profile("course")


@pytest.fixture
def shapes_unchecked():
    """Call the package as a learner does: bad input meets the package's own messages, not jaxtyping's."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="module")
def short_samples():
    """Let explorers write eight characters: where hundreds of settings are tried, they say as much as all."""
    from attention_course.explorers import sampling  # not above: types are checked in what is imported later

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "LENGTH", 8)
        yield


def pytest_collection_modifyitems(items):
    """Wait for the end of a cell as long as ipykernel may take to tell of it.

    It flushes stdout and stderr first, and gives each up to 10 seconds; nbval gives up after 5.
    """
    for item in items:
        if isinstance(item, IPyNbCell):
            item.output_timeout = 30
