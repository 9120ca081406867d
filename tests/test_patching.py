"""Strings are replaced where they stand once, all at the same time."""

import pytest

from attention_course.patching import replaced, touching


def test_what_one_patch_writes_no_other_one_changes():
    assert replaced("a + b", [("a", "b * b"), ("b", "a")], "sum") == "b * b + a"
    assert replaced("ab", [("a", ""), ("b", "c")], "adjacent") == "c"
    assert replaced("a", [], "nothing") == "a"


@pytest.mark.parametrize(
    ("edits", "words"),
    [
        ([("c", "")], "sum: 'c' occurs 0 times, expected once"),
        ([("a", "")], "sum: 'a' occurs 2 times, expected once"),
        ([("a + b", ""), ("b - a", "")], "sum: two of these patches change the same words"),
    ],
)
def test_what_cannot_be_replaced_is_told(edits, words):
    with pytest.raises(ValueError, match=words.replace("+", r"\+")):
        replaced("a + b - a", edits, "sum")


@pytest.mark.parametrize(
    ("edits", "touch"), [(["a", "b"], False), (["a ", "+"], True), (["a +", "+ b"], True)]
)
def test_adjacent_patches_touch(edits, touch):
    assert touching("a + b", [(old, "") for old in edits]) is touch
