"""A name that nobody knows is answered with those that exist."""

import re

import pytest

from attention_course.names import look_up

THINGS = {"tril_matmul": 1, "masked_softmax": 2}


@pytest.mark.parametrize(("name", "guess"), [("tril_matmull", " Did you mean 'tril_matmul'?"), ("zzz", "")])
def test_another_name_lists_them_and_suggests_the_closest(name, guess):
    assert look_up("masked_softmax", THINGS, "explorer") == 2
    listed = f"There is no explorer called {name!r}.{guess} There are: tril_matmul, masked_softmax."
    with pytest.raises(ValueError, match=f"^{re.escape(listed)}$"):
        look_up(name, THINGS, "explorer")


def test_of_a_long_name_the_beginning_is_said():
    with pytest.raises(ValueError, match="no explorer called 'xxx") as error:
        look_up("x" * 10**6, THINGS, "explorer")
    assert len(str(error.value)) < 200
