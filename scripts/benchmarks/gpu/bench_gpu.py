"""Checks, tunes and measures on a machine with an NVIDIA GPU; docs/benchmarks/gpu.md describes the method."""

import argparse
import os
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pallas_kernels import tuned_blocks
from scripts.benchmarks.gpu.task_list import SHARES, Budget, Results, Task, run_part

if TYPE_CHECKING:
    from scripts.benchmarks.gpu.benchmark_sizes import Sizes

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs" / "benchmarks"
SCRATCH = ROOT / ".cache" / "bench_gpu"
GRACE_S = 90
"""Time that a task may take beyond the limit; a longer one is taken to hang."""


def main(argv: list[str]) -> int:
    parser = _parser()
    args = parser.parse_args(argv)
    parts = [part for part in SHARES if part in args.only]
    out = args.out or (SCRATCH if args.dry_run or len(parts) < len(SHARES) else DOCS)
    if args.dry_run and (ROOT / "docs") in [out.resolve(), *out.resolve().parents]:
        parser.error("--dry-run: its numbers are meaningless and not written to docs; give another --out")
    import jax

    device = jax.devices()[0]
    if not args.dry_run and device.platform != "gpu":
        print(f"bench_gpu: {no_gpu()}", file=sys.stderr)
        return 2
    from scripts.benchmarks.gpu import gpu_page
    from scripts.benchmarks.gpu.benchmark_sizes import FULL, TINY
    from scripts.benchmarks.gpu.environment import about
    from scripts.benchmarks.report_page import as_text

    tuned = args.tuned or (out / "tuned" if args.dry_run else tuned_blocks.TUNED)
    name = f"gpu-{tuned_blocks.slug(device.device_kind).replace('_', '-')}"
    header = about(argv, device.device_kind)
    budget, results, started = Budget(args.minutes, parts), Results(), time.monotonic()
    say(f"{device.device_kind}: {', '.join(parts)} in {args.minutes:g} minutes")
    watchdog = threading.Timer(60 * args.minutes + GRACE_S, give_up)
    watchdog.daemon = True
    watchdog.start()
    files: list[Path] = []
    for part in parts:
        sizes = TINY if args.dry_run else FULL
        tasks = tasks_of(part, sizes, tuned, device.device_kind, budget, is_small=args.dry_run)
        run_part(part, tasks, budget, results, say)
        header["took"] = ", ".join(f"{done} {took:.0f} s" for done, took in results.took_s.items())
        # After each part, in case the next one hangs.
        files = gpu_page.write(results, header, out, name, is_dry=args.dry_run)
    watchdog.cancel()
    if args.dry_run:
        print(gpu_page.DRY)
    for title, rows in gpu_page.sections(results).items():
        if len(rows) > 1:
            print(f"\n{title}\n{as_text(rows)}")
    print(f"\n{time.monotonic() - started:.0f} s. Wrote {', '.join(map(str, files))}")
    return 1 if any(r["fault"] for r in results.of("checks")) else 0


def tasks_of(
    part: str, sizes: "Sizes", tuned: Path, device_kind: str, budget: Budget, *, is_small: bool
) -> Iterable[Task]:
    from scripts.benchmarks.gpu import attention_times, reference_checks, step_times, tune_gpu

    match part:
        case "checks":
            return reference_checks.tasks(sizes)
        case "tune":
            return tune_gpu.tasks(sizes, tuned, device_kind)
        case "ceilings":
            return attention_times.ceiling_tasks(sizes, is_small)
        case "attention":
            return attention_times.tasks(sizes)
        case _:
            return step_times.tasks(sizes.engine, lambda: budget.is_over(part))


def no_gpu() -> str:
    """Why no GPU can be measured."""
    from jaxserve.core.hardware.nvidia_driver import unusable_gpu

    reason = unusable_gpu()
    if reason:
        return f"this machine has an NVIDIA GPU, but {reason}."
    return "JAX finds no GPU. The benchmark needs a GPU; --dry-run tests the script on the CPU."


def give_up() -> None:
    """Ends the process, since a kernel that hangs cannot be interrupted; the files hold the earlier parts."""
    say("a task hangs; ending. The files hold the results of the earlier parts.")
    os._exit(3)


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _parts(text: str) -> list[str]:
    parts = text.split(",")
    if unknown := [part for part in parts if part not in SHARES]:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: parts are {', '.join(SHARES)}")
    return parts


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number of minutes above 0")
    return minutes


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench_gpu", description=__doc__)
    parser.add_argument(
        "--minutes",
        type=_minutes,
        default=8,
        help="time limit of all parts together; tasks that are not reached are listed (default: 8)",
    )
    parser.add_argument(
        "--only", type=_parts, default=list(SHARES), metavar="PARTS", help=f"some of {','.join(SHARES)} (default: all)"
    )
    parser.add_argument("--dry-run", action="store_true", help="tiny sizes on the CPU, with GPU kernels interpreted")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="folder of the page (default: docs/benchmarks if all parts run, otherwise .cache/bench_gpu)",
    )
    parser.add_argument(
        "--tuned",
        type=Path,
        metavar="FOLDER",
        help="folder of tile sizes (default: the package's, where the kernels look for them)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
