"""The run fails where one test file takes too long, and names the slowest files and folders."""

import pytest

from tests.support.runs.slow_files import SlowFiles


class Terminal:
    def __init__(self):
        self.lines = []

    def section(self, title):
        self.lines.append(title)

    def line(self, text, **markup):
        self.lines.append(text)


class Session:
    exitstatus = pytest.ExitCode.OK


def run_of(durations, max_share):
    """A finished run: its plugin, the exit status, the printed lines."""
    plugin, session, terminal = SlowFiles(max_share), Session(), Terminal()
    for nodeid, duration in durations:
        report = pytest.TestReport(nodeid, ("", 0, ""), {}, "passed", None, "call", duration=duration)
        plugin.pytest_runtest_logreport(report)
    plugin.pytest_sessionfinish(session)
    plugin.pytest_terminal_summary(terminal)
    return session.exitstatus, terminal.lines


DURATIONS = [("a.py::test_1", 40.0), ("a.py::test_2", 25.0), ("b.py::test_1", 59.0)]


def test_the_tests_of_a_file_are_added_up():
    status, lines = run_of(DURATIONS, 0.51)
    assert status == pytest.ExitCode.TESTS_FAILED
    assert lines == [
        "2 slowest files",
        "  65.0 s  a.py",
        "  59.0 s  b.py",
        "a.py took more than 51.0% of all tests' time: make it faster or split it",
    ]


def test_the_files_of_a_folder_are_added_up():
    deep = [("tests/a/b/test_x.py::t", 3.0), ("tests/a/b/c/d/test_y.py::t", 2.0), ("tests/test_z.py::t", 4.0)]
    assert run_of(deep, None)[1][-3:] == ["2 slowest folders", "   5.0 s  tests/a/b", "   4.0 s  tests"]


@pytest.mark.parametrize("max_share", [0.53, None])
def test_within_the_limit_nothing_fails(max_share):
    status, lines = run_of(DURATIONS, max_share)
    assert status == pytest.ExitCode.OK
    assert len(lines) == 3
