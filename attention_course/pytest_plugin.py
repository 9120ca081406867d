"""A fixture for the tests of one's own models, which pytest finds by itself where this package is installed.

    def test_model(examine):
        examine(GPT(config), vocab_size=65, block_size=64)

Each question is a subtest: a wrong answer fails, and what could not be asked is skipped.
"""

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def examine(subtests: pytest.Subtests) -> Callable[..., Any]:
    """Return `attention_course.examine.examine`, without training unless it is asked for."""
    from attention_course.examine import examine  # here, for other tests should not wait for torch

    def examined(model: Any, *, train: bool = False, **options: Any) -> Any:
        report = examine(model, train=train, **options)
        for finding in report.findings:
            with subtests.test(finding.name):
                if finding.verdict == "wrong":
                    pytest.fail(str(finding), pytrace=False)
                if finding.verdict == "not asked":
                    pytest.skip(finding.measured)
        assert report or report.wrong, report.headline  # it was not stopped, and enough could be asked
        return report

    return examined
