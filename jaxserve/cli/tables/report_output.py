"""Host: progress of a measurement on standard error, and its record as JSON."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def progress_printer(is_quiet: bool) -> Callable[[str], None]:
    """Prints a line of progress on standard error, or nothing."""

    def print_line(line: str) -> None:
        if not is_quiet:
            print(line, file=sys.stderr)

    return print_line


def write_record(path: Path | None, record: Any) -> None:
    """Writes all figures of a report as JSON; None: nowhere."""
    if path is not None:
        # Not with `atomic_files.write_json`, which renames a finished file: the path may be a device, /dev/stdout.
        path.write_text(json.dumps(record, indent=1) + "\n")
