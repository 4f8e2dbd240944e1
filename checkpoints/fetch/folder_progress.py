"""Host: a progress line on standard error while a child process fills a folder."""

import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

_PERIOD_S = 0.5


@contextmanager
def watch(folder: Path, label: str) -> Generator[None]:
    """Prints what is being fetched; on a terminal also the size of the folder, twice a second."""
    print(f"{label} ...", file=sys.stderr, flush=True)
    ended = threading.Event()
    reporter = threading.Thread(target=_report, args=(folder, label, ended), daemon=True)
    if sys.stderr.isatty():
        reporter.start()
    try:
        yield
    finally:
        ended.set()
        if reporter.ident is not None:
            reporter.join()


def _report(folder: Path, label: str, ended: threading.Event) -> None:
    while not ended.wait(_PERIOD_S):
        print(f"\r{label}: {_size(folder) / 1e6:.0f} MB ", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr, flush=True)


def _size(folder: Path) -> int:
    """Bytes of the files below `folder`; files that vanish meanwhile are skipped."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size
        except OSError:
            continue
    return total
