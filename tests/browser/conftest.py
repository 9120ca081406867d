"""The browser that these tests need: without one they are skipped, and in CI they fail."""

import os

import lab
import pytest


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """Return where Chromium is."""
    if path := lab.find_chromium():
        return path
    reason = "No browser for this test: install Chromium, or name one in $CHROMIUM."
    if os.environ.get("CI"):
        pytest.fail(f"{reason} In CI no browser test may be skipped.")
    pytest.skip(reason)
