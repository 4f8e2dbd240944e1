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

@pytest.mark.thorough
def test_long(): pass

def test_short(): pass
"""


def collected(folder, *args):
    """The names of the tests of `TESTS` that are chosen."""
    (folder / "test_some.py").write_text(TESTS)
    marks = ["-o", "markers=thorough", "-o", "addopts=", "-p", "tests.support.runs.thorough_tests"]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "--rootdir", str(folder), *marks, *args]
    done = subprocess.run([*command, "-W", "ignore", str(folder)], cwd=ROOT, capture_output=True, text=True, check=True)
    return [line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line]


def test_ci_leaves_out_what_is_marked(tmp_path):
    short = ["test_of_cases[0]", "test_of_cases[2]", "test_short"]
    assert collected(tmp_path, "-m", "not thorough") == short
    assert len(collected(tmp_path)) == 7


def test_cases_lie_at_equal_distances():
    assert kept(20, 5) == [0, 4, 8, 12, 16]
    assert kept(7, 3) == [0, 2, 4]
    assert kept(3, 4) == [0, 1, 2]
