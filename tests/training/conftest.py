"""Shared by the tests of training."""

import signal

import pytest


@pytest.fixture
def listening():
    """Interrupts arrive even if the tests run in the background, where the shell lets them be ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield signal.default_int_handler
    signal.signal(signal.SIGINT, before)
