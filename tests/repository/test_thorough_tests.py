"""Tests that CI leaves out are those that are marked, and of thinned ones most cases."""

import subprocess
import sys

from tests.repository.modules import ROOT
from tests.support.runs.thorough_tests import kept

TESTS = """
import pytest

@pytest.mark.thinned(2)
@pytest.mark.parametrize("i", range(5))
def test_of_cases(i): pass

@pytest.mark.thinned(3)
@pytest.mark.parametrize("one", "abc")
@pytest.mark.parametrize("other", "xy")
def test_of_pairs(one, other): pass

@pytest.mark.thorough
def test_long(): pass

def test_short(): pass
"""


def collected(folder, *args):
    """The names of the tests of `TESTS` that are chosen."""
    (folder / "test_some.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n thorough\n thinned\n")
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "tests.support.runs.thorough_tests", *args]
    done = subprocess.run([*command, str(folder)], cwd=ROOT, capture_output=True, text=True, check=True)
    return [line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line]


def test_ci_leaves_out_what_is_marked(tmp_path):
    pairs = [f"test_of_pairs[{name}]" for name in ("x-a", "x-b", "y-c")]
    short = ["test_of_cases[0]", "test_of_cases[4]", *pairs, "test_short"]
    assert sorted(collected(tmp_path, "-m", "not thorough")) == sorted(short)
    assert len(collected(tmp_path)) == 13


def test_cases_have_most_values_and_lie_far_apart():
    assert kept([{"i": i} for i in range(9)], 3) == [0, 8, 4]
    assert kept([{"i": i} for i in range(2)], 3) == [0, 1]
    pairs = [{"fast": i % 3, "slow": i // 3} for i in range(9)]
    assert sorted(kept(pairs, 3)) == [0, 4, 8]
