"""Wiring: prints the tables, notes and progress of a report on a terminal or into a file, and writes its JSON."""

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

FILE_WIDTH = 130  # characters per line where there is no terminal


def print_report(tables: Iterable[Table], notes: Iterable[str]) -> None:
    """Prints tables under their titles, then lines of text, on standard output."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = FILE_WIDTH
    for table in tables:
        console.print(table.title, style="bold", soft_wrap=True)
        table.title = None
        console.print(table)
    for line in notes:
        console.print(line, soft_wrap=True, markup=False)


def progress_printer(is_quiet: bool) -> Callable[[str], None]:
    """Prints a line of progress on standard error, or nothing."""

    def print_line(line: str) -> None:
        if not is_quiet:
            print(line, file=sys.stderr)

    return print_line


def write_json(path: Path | None, record: Any) -> None:
    """Writes all figures of a report; None: nowhere."""
    if path is not None:
        path.write_text(json.dumps(record, indent=1) + "\n")


def plain_table(title: str, *columns: str, shows_header: bool = True) -> Table:
    """A table with one rule, under its header; all columns after the first hold numbers."""
    table = Table(title=title, box=box.SIMPLE_HEAD, show_header=shows_header)
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i and shows_header else "left")
    return table


def byte_text(count: int | None) -> str:
    """A size in decimal units; "-" for None."""
    if count is None:
        return "-"
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(count) >= size:
            return f"{count / size:,.2f} {unit}"
    return f"{count} B"
