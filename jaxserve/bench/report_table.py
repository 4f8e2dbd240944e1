"""Host: tables of reports on the terminal: `report_table`, which is empty, and `comparison_table`."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def report_table(title: str, *columns: str) -> "Table":
    """A table as wide as its title at least; all columns after the first hold numbers. Empty names: no header."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(title), title_justify="left", min_width=len(title), show_header=any(columns))
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i else "left")
    return table


def comparison_table(title: str, columns: Sequence[str], rows: Iterable[tuple[str, Iterable[str]]]) -> "Table":
    """A column of each thing that is compared, with a name in front of each row."""
    table = report_table(title, "", *columns)
    for name, cells in rows:
        table.add_row(name, *cells)
    return table
