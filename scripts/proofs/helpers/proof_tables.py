"""A table of a proof, in Markdown, and which of its rows fail."""

import sys
from typing import Any

Table = tuple[list[str], list[str]]
"""Lines, and the names of rows that fail."""


def table(titles: list[str], rows: dict[str, tuple[list[Any], bool]]) -> Table:
    """Of cells by the name of their row, each with whether it passes; it is printed, too."""
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    lines += [f"| {' | '.join(map(str, [name, *cells]))} |" for name, (cells, _) in rows.items()]
    print("\n".join(lines), file=sys.stderr)
    return lines, [name for name, (_, passes) in rows.items() if not passes]


def page_of(tables: list[Table]) -> str:
    """All tables; exits with the names of rows that fail."""
    body = "\n\n".join("\n".join(lines) for lines, _ in tables)
    if failed := [name for _, bad in tables for name in bad]:
        raise SystemExit(f"{body}\n\nfailed: {'; '.join(failed)}")
    return f"{body}\n\nAll rows pass."
