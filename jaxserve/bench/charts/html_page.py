"""Host: `html_page`: a report as one self-contained HTML file, for light and dark mode."""

from collections.abc import Iterable, Mapping
from html import escape
from importlib import resources

STYLE = "page.css"


def html_page(title: str, body: str, facts: Mapping[str, object]) -> str:
    """body: HTML below the title. facts: settings to list at the end; None and empty ones are left out."""
    style = resources.files(__package__).joinpath(STYLE).read_text("utf-8")
    settings = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(str(value))}</dd>"
        for name, value in facts.items()
        if value is not None and value != {}
    )
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{escape(title)}</title>\n'
        f"<style>{style}</style>\n<h1>{escape(title)}</h1>\n{body}\n"
        f"<h2>Settings</h2>\n<dl>{settings}</dl>\n</html>\n"
    )


def html_table(columns: Iterable[str], rows: Iterable[tuple[str, Iterable[str]]]) -> str:
    """A table with a name in front of each row."""
    head = "".join(f"<th>{escape(column)}</th>" for column in ("", *columns))
    lines = (
        f"<tr><th>{escape(name)}</th>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
        for name, cells in rows
    )
    return f"<table><tr>{head}</tr>{''.join(lines)}</table>"
