"""All tests pass, also those that take too long for CI, with the compilers for absent devices, and none is skipped.

`scripts/test --all` runs, in the three runs that it consists of. Times are those of the machine as it was.
"""

import argparse
import os
import re
import subprocess
import sys

from scripts.proofs.helpers.stored_rows import ROOT

RUNS = ("those that prove the bits of what users run", "all others", "the server")
"""In the order in which `scripts/test` prints their results, before that of all others once more."""
RESULT = re.compile(r"^=+ (?P<counts>\d+ \w+.*) in (?P<seconds>[\d.]+)s")
PASSED = re.compile(r"\d+ passed(, \d+ deselected)?")


def main(argv: list[str]) -> str:
    argparse.ArgumentParser(prog="scripts/prove all_tests").parse_args(argv)
    process = subprocess.Popen(
        ["scripts/test", "--all"],
        cwd=ROOT,
        env=os.environ | {"CI": "true"},  # installs compilers and a browser
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    lines = list[str]()
    for line in process.stdout:
        sys.stderr.write(line)
        lines.append(line)
    return page(lines, process.wait())


def page(lines: list[str], status: int) -> str:
    """The table of what was printed; exits where a run has failed, is missing, or has left out a test."""
    found = [(match["counts"], float(match["seconds"])) for line in lines if (match := RESULT.match(line))]
    rows = [f"| {name} | {counts} | {seconds / 60:.0f} |" for name, (counts, seconds) in zip(RUNS, found, strict=False)]
    table = "\n".join(["| tests | result | minutes |", "|---|---|---|", *rows])
    is_whole = len(found) == len(RUNS) + 1 and found[1] == found[-1]
    has_passed = all(PASSED.fullmatch(counts) for counts, _ in found)
    if status or not is_whole or not has_passed:
        raise SystemExit(f"{table}\n\nfailed (exit {status})")
    return f"{table}\n\nAll tests pass."
