"""A served SmolLM2 stays correct and responsive under cancellation, overload, arbitrary bodies, kills and long prompts.

Each part sends requests to a real `jaxserve serve` (or runs `jaxserve batch`) in a separate process. cancel: clients
disconnect. overload: four times as many requests as can be served. fuzz: bodies generated from the server's OpenAPI
schema (`body_fuzz.py`). stream: streamed answers equal whole ones. batch: a run is killed and restarted. speed:
throughput relative to the engine without a server. loop: how long the event loop is blocked while a prompt of 100,000
tokens arrives.

Rows that hold are stored in .cache/proofs: an interrupted run continues as long as the sources are unchanged. A part
named on the command line always runs.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from scripts.proofs.helpers.serving_clients import cancel, fuzz, overload
from scripts.proofs.helpers.serving_equality import batch, stream
from scripts.proofs.helpers.serving_event_loop import loop
from scripts.proofs.helpers.serving_row import Row
from scripts.proofs.helpers.serving_speed import speed
from scripts.prove import digest_of

ROOT = Path(__file__).parents[2]
PARTS: dict[str, Callable[[float], list[Row]]] = {
    "cancel": cancel,
    "overload": overload,
    "fuzz": fuzz,
    "stream": stream,
    "batch": batch,
    "speed": speed,
    "loop": loop,
}


def main(argv: list[str]) -> str:
    parser = argparse.ArgumentParser(prog="scripts/prove serving")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} (default: all not stored)")
    parser.add_argument("--size", type=float, default=1.0, help="scale of all parts; other than 1 writes no report")
    args = parser.parse_args(argv)
    if unknown := set(args.parts) - set(PARTS):
        raise SystemExit(f"unknown part {', '.join(sorted(unknown))}: must be one of {', '.join(PARTS)}")
    stored = ROOT / ".cache" / "proofs" / f"serving-{state_of_sources()}.json"
    rows: dict[str, list[Row]] = {}
    if stored.exists() and args.size == 1.0:
        rows = {part: [Row(**row) for row in found] for part, found in json.loads(stored.read_text()).items()}
    for part in args.parts or [part for part in PARTS if part not in rows]:
        started_s = time.monotonic()
        print(f"{part} …", file=sys.stderr)
        rows[part] = PARTS[part](args.size)
        print(*table({part: rows[part]})[2:], f"({time.monotonic() - started_s:.0f} s)", sep="\n", file=sys.stderr)
        if args.size == 1.0 and all(row.holds for row in rows[part]):
            stored.parent.mkdir(parents=True, exist_ok=True)
            good = {name: [row.as_dict() for row in found] for name, found in rows.items() if all_hold(found)}
            stored.write_text(json.dumps(good))
    lines = table(rows)
    if args.size != 1.0:
        print(*lines, sep="\n")
        raise SystemExit(not all(map(all_hold, rows.values())))  # before a report is written
    if bad := [part for part, found in rows.items() if not all_hold(found)]:
        raise SystemExit("\n".join([*lines, "", f"failed: {', '.join(bad)}"]))
    return "\n".join([*lines, "", "All rows hold."])


def all_hold(rows: list[Row]) -> bool:
    return all(row.holds for row in rows)


def table(rows: dict[str, list[Row]]) -> list[str]:
    lines = ["| part | | found | wanted |", "|---|---|---|---|"]
    return lines + [row.line(part) for part in PARTS if part in rows for row in rows[part]]


def state_of_sources() -> str:
    """Hash of the files that the rows depend on."""
    patterns = ("jaxserve/**/*.py", "tests/support/**/*.py", "scripts/proofs/**/*serv*.py")
    return digest_of(file for pattern in patterns for file in ROOT.glob(pattern))
