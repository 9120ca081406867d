"""What nbval compares besides outputs: the numbers that the build has put into prose."""

import pytest
from nbval.plugin import IPyNbCell


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Work out the fields of the prose below a cell anew, in the kernel that has just run the cell."""
    yield
    if isinstance(item, IPyNbCell) and (numbers := item.cell.metadata.get("numbers")):
        from build import answered, asked  # not above: jaxtyping checks what is imported later

        now = answered(item.parent.kernel.kc.execute(**asked(numbers)))
        assert now == numbers, "numbers in the prose below have moved: make notebooks"
