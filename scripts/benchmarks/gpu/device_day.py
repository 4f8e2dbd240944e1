"""Checks, tunes and measures on a machine with an NVIDIA GPU; docs/benchmarks/gpu.md describes the method.

Each part runs in processes of its own. What crashes, hangs or breaks the device ends with its process and is listed;
the next process goes on after it. A second call goes on where the first one ended.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from pallas_kernels import tuned_blocks
from scripts.benchmarks.gpu import gpu_page
from scripts.benchmarks.gpu.day_parts import LIMIT_S, PARTS, Part
from scripts.benchmarks.gpu.run_part import NO_GPU
from scripts.benchmarks.gpu.task_list import Journal
from scripts.benchmarks.report_page import as_text
from scripts.prove import digest_of

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs" / "benchmarks"
SCRATCH = ROOT / ".cache" / "device_day"
TASK_LIMIT_S = 240.0
"""A task that takes longer is taken to hang. Compiling the steps of an 8B model takes a minute."""
POLL_S = 0.2


def main(argv: list[str]) -> int:
    parser = _parser()
    args = parser.parse_args(argv)
    chosen = [part for part in PARTS if part.name in args.only]
    folder = SCRATCH / ("dry" if args.dry_run else _state())
    if args.fresh:
        shutil.rmtree(folder, ignore_errors=True)
    out = args.out or (folder if args.dry_run else DOCS)
    if args.dry_run and (ROOT / "docs") in [out.resolve(), *out.resolve().parents]:
        parser.error("--dry-run: its numbers are meaningless and not written to docs; give another --out")
    journal = Journal(folder / "journal.jsonl")
    for part in chosen:
        limit_s = 60 * args.minutes
        code = run_part(part, folder, journal, limit_s, TASK_LIMIT_S, is_dry=args.dry_run)
        if code == NO_GPU:
            return NO_GPU
        files = write_report(journal, out, is_dry=args.dry_run)
    results = journal.results()
    for title, rows in gpu_page.sections(results).items():
        if len(rows) > 1:
            print(f"\n{title}\n{as_text(rows)}")
    left = [part.name for part in chosen if not journal.is_complete(part.name)]
    if left:
        print(f"\nNot complete: {', '.join(left)}. The same command goes on with them.")
    print(f"\nWrote {', '.join(map(str, files))}")
    is_wrong = any(r["fault"] for r in results.of("checks"))
    return 1 if left or is_wrong or results.failed else 0


def run_part(
    part: Part, folder: Path, journal: Journal, limit_s: float, task_limit_s: float, *, is_dry: bool = False
) -> int:
    """Runs the tasks of a part that have not ended, in one process after the other, until its time is over."""
    command = [sys.executable, "-m", "scripts.benchmarks.gpu.run_part", part.name, part.tasks, str(folder)]
    command += ["--dry-run"] * is_dry
    # Compiled programs stay for the next process.
    environment = {"JAX_COMPILATION_CACHE_DIR": str(SCRATCH / "xla")} | os.environ
    if is_dry:
        environment["JAX_PLATFORMS"] = "cpu"
    until_s = time.monotonic() + limit_s
    while not journal.is_complete(part.name) and (left_s := until_s - time.monotonic()) > 0:
        before, started_s = len(journal.of(part.name)), time.monotonic()
        code = _supervise(command, environment, journal, left_s, task_limit_s)
        if code == NO_GPU:
            return code
        own = journal.of(part.name)
        if time.monotonic() >= until_s:
            break
        if len(own) == before:
            reason = f"its process ended with code {code} before its first task"
            journal.does_not_start(part.name, reason)
            break
        if "starts" in own[-1]:
            if code is None:
                how = f"hung, and was ended after {task_limit_s:g} s"
            else:
                how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
            task, reason = own[-1]["starts"], f"its process {how}"
            journal.ends(part.name, task, own[-1]["table"], time.monotonic() - started_s, reason, is_failed=True)
            print(f"{part.name}: {task}: {reason}", file=sys.stderr, flush=True)
    return 0


def _supervise(
    command: list[str], environment: dict[str, str], journal: Journal, limit_s: float, task_limit_s: float
) -> int | None:
    """The exit code; None if the process was ended because the part's time or that of a task was over."""
    process = subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True)
    until_s, num_bytes, moved_s = time.monotonic() + limit_s, -1, time.monotonic()
    while process.poll() is None:
        time.sleep(POLL_S)
        if (found := journal.num_bytes) != num_bytes:
            num_bytes, moved_s = found, time.monotonic()
        if time.monotonic() > min(until_s, moved_s + task_limit_s):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return None
    return process.returncode


def write_report(journal: Journal, out: Path, *, is_dry: bool) -> list[Path]:
    """The page, figures and drawings, and a copy of the tile sizes where they are not the package's own."""
    results, about = journal.results(), dict(journal.about)
    about["took"] = ", ".join(f"{part} {took:.0f} s" for part, took in results.took_s.items())
    name = f"gpu-{tuned_blocks.slug(about.get('device', 'none')).replace('_', '-')}"
    if out != DOCS and not is_dry:
        shutil.copytree(tuned_blocks.TUNED, out / "tuned", dirs_exist_ok=True)
    return gpu_page.write(results, about, out, name, is_dry=is_dry)


def _state() -> str:
    """A name for the sources that are measured, and those that measure and check."""
    folders = ("pallas_kernels", "jaxserve", "scripts/benchmarks", "tests/pallas_kernels")
    return digest_of(file for folder in folders for file in (ROOT / folder).rglob("*.py"))


def _parser() -> argparse.ArgumentParser:
    names = [part.name for part in PARTS]
    parser = argparse.ArgumentParser(prog="scripts/device_day", description=__doc__)
    parser.add_argument(
        "--only", type=_parts, default=names, metavar="PARTS", help=f"some of {','.join(names)} (default: all)"
    )
    parser.add_argument(
        "--minutes", type=_minutes, default=LIMIT_S / 60, help=f"time limit of each part (default: {LIMIT_S // 60})"
    )
    parser.add_argument("--dry-run", action="store_true", help="tiny sizes on the CPU, with GPU kernels interpreted")
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="folder of the page, figures and drawings (default: docs/benchmarks)"
    )
    parser.add_argument("--fresh", action="store_true", help="forget the results of earlier calls")
    return parser


def _parts(text: str) -> Sequence[str]:
    names, known = text.split(","), [part.name for part in PARTS]
    if unknown := [name for name in names if name not in known]:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: parts are {', '.join(known)}")
    return names


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number of minutes above 0")
    return minutes


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
