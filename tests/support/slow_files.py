"""pytest plugin: prints the ten slowest test files, and fails the run if one takes longer than `--max-file-s`."""

from collections import Counter

import pytest

NUM_SHOWN = 10


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--max-file-s", type=float, help="fail if the tests of one file take longer, set-up included")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # with pytest-xdist, the controller receives the reports of all workers
        config.pluginmanager.register(SlowFiles(config.getoption("--max-file-s")))


class SlowFiles:
    """max_file_s: None for no limit."""

    def __init__(self, max_file_s: float | None):
        self._max_file_s = max_file_s
        self._seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid.partition("::")[0]] += report.duration

    @property
    def too_slow(self) -> list[str]:
        """Files over the limit."""
        return [] if self._max_file_s is None else [f for f, s in self._seconds.items() if s > self._max_file_s]

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.too_slow and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._seconds:
            return
        terminalreporter.section(f"{min(NUM_SHOWN, len(self._seconds))} slowest files")
        for file, seconds in self._seconds.most_common(NUM_SHOWN):
            terminalreporter.line(f"{seconds:6.1f} s  {file}")
        for file in self.too_slow:
            terminalreporter.line(
                f"{file} took longer than {self._max_file_s:g} s: make it faster or split it", red=True
            )
