"""What the benchmarks keep of a run: where and when it was, as a page to read and as JSON."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jaxserve.bench import machine
from scripts.benchmarks.compare.comparison_page import commit


def facts_of_run(load: float, hardware: dict[str, Any]) -> dict[str, Any]:
    """load, hardware: as they were when the run began, before a process was bound to a core."""
    return {
        "hardware": hardware,
        "load": (load, os.getloadavg()[0]),
        "versions": machine.versions(),
        "commit": commit(),
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    }


def write(out: Path, page: str, record: dict[str, Any]) -> None:
    """The page, and the record beside it."""
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(page)
    out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n")
    print(f"Wrote {out}")
