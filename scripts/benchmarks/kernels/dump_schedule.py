"""Runs a program that compiles TPU kernels and prints the compiler's schedules: a development tool.

python -m scripts.benchmarks.kernels.dump_schedule [--keep FOLDER] PROGRAM.py [its arguments]
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts.benchmarks.kernels.tpu_schedule import Kernel, Loop, read_kernels

ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",  # without a TPU there is no metadata server
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_MIN_LOG_LEVEL": "3",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}
PASSES = "^(post-delay-converter|final_hlo-static-per-bundle-utilization|final_bundles)$"
"""The passes whose dumps are read; those of all passes take hundreds of megabytes."""


def dump(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a command with the compiler's dumps on. The dumps are valid even if the command fails later."""
    flags = f"--xla_jf_dump_to={folder} --xla_jf_dump_llo_text=true --xla_jf_dump_llo_pass_label_regex={PASSES}"
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    env = os.environ | ENVIRONMENT | {"LIBTPU_INIT_ARGS": flags, "PYTHONPATH": path}
    return subprocess.run(command, env=env, capture_output=True, text=True)


def describe(kernel: Kernel) -> str:
    """The kernel's loops as a table; slots as filled/available in one pass."""
    slots = list(kernel.capacity)
    rows = [["loop", "bundles", "empty", "skippable", *slots, "DMAs of one pass"]]
    rows += [_row(kernel, loop, slots) for loop in kernel.loops]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    memory = f"VMEM {kernel.vmem_bytes:,} B, SMEM {kernel.smem_bytes:,} B"
    return "\n".join([f"{kernel.name}: {memory}", *(f"  {line}" for line in lines)])


def _row(kernel: Kernel, loop: Loop, slots: list[str]) -> list[str]:
    busy = [f"{loop.slots[slot]} ({kernel.occupancy(loop, slot):.0%})" for slot in slots]
    dmas = [f"{count} {direction} of {num_bytes:,} B" for direction, (count, num_bytes) in loop.dmas.items()]
    return [
        loop.path or "none",
        str(loop.bundles),
        str(loop.empty),
        str(loop.branched_over),
        *busy,
        "; ".join(dmas) or "none",
    ]


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.benchmarks.kernels.dump_schedule", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--keep", type=Path, help="an empty folder for the dump (default: a temporary one)")
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="PROGRAM.py [ARGUMENT ...]")
    args = parser.parse_args(argv)
    if not args.program:
        parser.error("name a program that compiles kernels")
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        done = dump([sys.executable, *args.program], folder.resolve())
        print(done.stdout, end="")
        kernels = read_kernels(folder)
        for kernel in kernels:
            print(describe(kernel))
    if done.returncode or not kernels:
        print(done.stderr[-4000:], file=sys.stderr)
        print(f"{args.program[0]} exited with {done.returncode}; {len(kernels)} kernels dumped", file=sys.stderr)
    return 0 if kernels else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
