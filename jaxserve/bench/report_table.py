"""Host: `report_table`: an empty table of a report on the terminal."""

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
