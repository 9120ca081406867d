"""Of what is many and alike, `make test` takes a sample, and `make thorough` the rest."""

from collections.abc import Iterable

import pytest


def sampled(cases: Iterable, every: int) -> list:
    """Return the cases to parametrize with: each but one in `every` is left to `make thorough`."""
    return [
        pytest.param(case, marks=[pytest.mark.thorough] if at % every else [])
        for at, case in enumerate(cases)
    ]
