"""Parts of a benchmark's page: its markdown, the table of conditions of the run, and the JSON file with the figures."""

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scripts import prove

Rows = Sequence[Sequence[str]]


def write(out: Path, page: str, record: Mapping[str, Any]) -> None:
    """Writes the page to OUT, and the record as JSON next to it."""
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(page)
    out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n")
    print(f"Wrote {out}")


def document(parts: Sequence[str]) -> str:
    """Joins paragraphs, tables and headings to one page, without empty parts."""
    return "\n\n".join(part for part in parts if part) + "\n"


def conditions(script: str, argv: Sequence[str], **rows: str) -> str:
    """The table with command, commit and date of a run. rows: further lines by heading, without empty ones."""
    found = {
        "command": f"`{shlex.join([script, *map(without_folder, argv)])}`",
        "commit": commit(),
        "date": now(),
    } | rows
    return as_markdown([["", ""], *([name.replace("_", " "), text] for name, text in found.items() if text)])


def machine_facts(load: float, hardware: dict[str, Any]) -> dict[str, Any]:
    """Entries of the record. load, hardware: measured at the start, before the process is bound to a core."""
    from jaxserve.bench import machine

    return {
        "hardware": hardware,
        "load": (load, os.getloadavg()[0]),
        "versions": machine.versions(),
        "commit": commit(),
        "date": now(),
    }


def listing(values: Mapping[str, Any]) -> str:
    """Names with values, such as versions, on one line."""
    return ", ".join(f"{name} {value}" for name, value in values.items())


def hardware_text(host: Mapping[str, Any]) -> str:
    """The result of `machine.host()` on one line."""
    return f"{host['cpu']}, {host['num_cores']} cores, {host['memory_gib']} GiB"


def now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"


def commit() -> str:
    """The measured commit, marked where the working tree differs from it outside docs."""
    return prove.commit("docs")


def without_folder(word: str) -> str:
    """A word of a command line; an existing path is reduced to its last part."""
    flag, equals, value = word.rpartition("=")
    folder, name = os.path.split(os.path.expanduser(value))
    return f"{flag}{equals}{name}" if folder and os.path.isdir(folder) else word


def as_text(rows: Rows) -> str:
    """A table for a terminal: the first column aligned left, the others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines: list[str] = []
    for first, *rest in rows:
        cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))]
        lines.append("  ".join(cells))
    return "\n".join(lines)


def as_markdown(rows: Rows) -> str:
    """A markdown table; the first row is the heading."""
    heading, *body = rows
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heading, ["---"] * len(heading), *body))
