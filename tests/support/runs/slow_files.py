"""pytest plugin: prints the slowest test files and folders, and fails the run if a file takes more than
`--max-file-share` of it.

A share instead of seconds: the same file took 40 s on an idle machine and 99 s on a loaded one.
"""

from collections import Counter

import pytest

NUM_SHOWN = 12
FOLDER_DEPTH = 3  # tests/jaxserve/server, with what lies below it


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--max-file-share", type=float, help="fail if one file takes more than this share of the time of all tests"
    )


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # with pytest-xdist, the controller receives the reports of all workers
        config.pluginmanager.register(SlowFiles(config.getoption("--max-file-share")))


class SlowFiles:
    """max_share: None for no limit."""

    def __init__(self, max_share: float | None):
        self._max_share = max_share
        self._seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid.partition("::")[0]] += report.duration

    @property
    def too_slow(self) -> list[str]:
        """Files over the limit."""
        if self._max_share is None:
            return []
        most = self._max_share * self._seconds.total()
        return [file for file, seconds in self._seconds.items() if seconds > most]

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
        folders = Counter[str]()
        for file, seconds in self._seconds.items():
            folders["/".join(file.split("/")[:-1][:FOLDER_DEPTH])] += seconds
        if len(folders) > 1:
            terminalreporter.section(f"{min(NUM_SHOWN, len(folders))} slowest folders")
            for folder, seconds in folders.most_common(NUM_SHOWN):
                terminalreporter.line(f"{seconds:6.1f} s  {folder}")
        for file in self.too_slow:
            terminalreporter.line(
                f"{file} took more than {self._max_share:.1%} of all tests' time: make it faster or split it", red=True
            )
