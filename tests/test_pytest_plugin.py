"""The fixture for tests of one's own models, which pytest finds where the package is installed."""

import subprocess
import sys

import pytest

TESTS = """
from attention_course.examine.planted import plant

def test_right(examine):
    examine(plant(), vocab_size=29, block_size=24, require=["It writes what it predicts"])

def test_leaking(examine):
    examine(plant("no mask"), vocab_size=29, block_size=24)
"""


@pytest.mark.slow
def test_the_fixture_makes_a_subtest_of_each_question(tmp_path):
    (tmp_path / "test_model.py").write_text(TESTS)
    command = ["-m", "pytest", "-p", "no:cacheprovider", "-v", "."]
    done = subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True)
    assert "test_right PASSED" in done.stdout, done.stdout
    assert "::test_leaking SUBFAILED[No leak from the future]" in done.stdout, done.stdout
    assert "later tokens change an earlier output" in done.stdout
