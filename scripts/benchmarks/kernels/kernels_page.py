"""The page docs/benchmarks/kernels.md."""

from collections.abc import Sequence
from typing import Any

from jaxserve.bench import machine
from scripts.benchmarks.kernels import rpa_checkout
from scripts.benchmarks.kernels.kernel_tables import static_rows
from scripts.benchmarks.kernels.tpu_chips import CHIPS
from scripts.benchmarks.report_page import as_markdown, conditions, document, listing

TITLE = """# Paged attention on TPUs, counted without a TPU

**The kernels have not been run on a TPU.** libtpu compiles them for an absent TPU and dumps the resulting schedules.
The tables count the bundles (VLIW instructions of at least one cycle) of the inner loops, and a small model derives
times from them. vLLM's RPA v3 is compiled and counted in the same way."""

METHOD = """## How it is counted

- `scripts/bench_kernel` compiles a named workload of `pallas_kernels/paged_attention/workloads.py` for each target, in
  a separate process, with a pool of at least 1 GiB (XLA may keep smaller arrays in VMEM), one layer, one device.
- The inner loop is the loop that fills most slots of the matrix units (MXU). *Bundles per 512 × 8* are the bundles of
  one block of positions, with all its passes and the issue of its page DMAs, scaled to 512 positions of 8 KV heads.
  Empty bundles are not counted, and branches count as not taken. The start and end of a row or tile are not included;
  the model adds them.
- *MXU busy* is the compiler's count of filled MXU slots in the inner loop. It counts all products by their duration,
  useful or not: RPA v3 multiplies float32 weights by values, which takes twice the slots of bfloat16. *Operations per
  bundle* are only the useful ones (4 · head dim for each query and visible position), over all bundles of a block.
- *block* is the number of queries of a KV head that are processed together × the number of positions that are fetched
  together.
- *compute* is the time of all bundles of one call: entirely visible blocks in the inner loop, partly visible blocks in
  the loop that masks (RPA v3 masks all blocks), and the code around each row and tile. *memory* is the bytes over the
  bandwidth, where pages are read once per row and tile. A call takes the longer of both times, which determines MBU and
  MFU, shares of the peak rates. The model has **no** latencies of DMAs, VMEM bank conflicts or waits between rows, so
  MBU and MFU are upper bounds, useful for comparing two kernels.
- RPA v3 runs with its default block sizes. `--fetch-rpa` clones it into the cache folder; `--rpa DIR` uses an existing
  checkout. This repository contains none of its code.

On a machine with a device, `scripts/bench_kernel WORKLOAD` without `--target` measures time, MBU and MFU relative to a
copy and a bfloat16 product that are timed in the same run. `python -m
scripts.benchmarks.kernels.dump_schedule PROGRAM.py` prints all loops of all kernels that a program compiles."""

CHIP_FACTS = """## TPU data of the model

The data are per JAX device (half a chip of 7x; on v5p a kernel runs on one of two cores). Bandwidth and rate are from
the Cloud TPU documentation. The clock is not documented: it is the documented rate over the operations per bundle at
which the compiler schedules consecutive products."""


def page(records: Sequence[dict[str, Any]], notes: Sequence[str], argv: Sequence[str], rpa_commit: str | None) -> str:
    versions = listing(machine.versions(("jax", "jaxlib", "libtpu")))
    rpa = f"{rpa_checkout.URL} at {rpa_commit}, `{rpa_checkout.KERNEL}`" if rpa_commit else ""
    hardware = "none: compiled, not run"
    parts = [
        TITLE,
        conditions("scripts/bench_kernel", argv, versions=versions, hardware=hardware, RPA_v3=rpa),
    ]
    for title, is_decode in (("## Decode", True), ("## Prefill", False)):
        chosen = [r for r in records if r["is_decode"] == is_decode]
        if chosen:
            parts += [title, as_markdown(static_rows(chosen))]
    if notes:
        parts += ["Not counted:", "\n".join(f"- {note}" for note in notes)]
    return document([*parts, METHOD, _chips()])


def _chips() -> str:
    rows = [["TPU", "GB/s", "TFLOP/s (bf16)", "operations per bundle at peak", "derived clock, GHz"]]
    for name, chip in CHIPS.items():
        rows.append(
            [
                name,
                f"{chip.bytes_per_s / 1e9:,.0f}",
                f"{chip.ops_per_s / 1e12:,.0f}",
                f"{chip.ops_per_bundle:,.0f}",
                f"{chip.clock_hz / 1e9:.2f}",
            ]
        )
    return f"{CHIP_FACTS}\n\n{as_markdown(rows)}"
