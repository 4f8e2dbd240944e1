"""Wiring: prints the tables and notes of a report on a terminal or into a file."""

from collections.abc import Iterable

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
