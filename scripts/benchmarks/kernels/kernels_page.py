"""The page docs/benchmarks/kernels.md."""

from collections.abc import Sequence
from importlib import metadata
from typing import Any

from scripts.benchmarks.kernels import rpa_checkout
from scripts.benchmarks.kernels.kernel_tables import static_rows
from scripts.benchmarks.kernels.tpu_chips import CHIPS
from scripts.benchmarks.report_page import as_markdown, conditions, document

TITLE = """# Paged attention on TPUs, counted without one

**No TPU has run any of this.** libtpu compiles the kernels for a TPU that is not there, and dumps the schedule that it
made. The tables count its bundles (VLIW instructions, at least a cycle each) in the inner loops; a small model turns
them into times. vLLM's RPA v3 is compiled and counted the same way."""

METHOD = """## How it is counted

- `scripts/bench_kernel` compiles a named workload of `pallas_kernels/paged_attention/workloads.py` for each target in
  a process of its own, with a pool of at least 1 GiB (XLA may keep smaller arrays in VMEM), one layer, one device.
- The inner loop is the one that fills most slots of the matrix units (MXU). *Bundles per 512 × 8* are those of one
  block of positions with all its passes and the issue of its page DMAs, scaled to 512 positions of 8 KV heads. Bundles
  that do nothing but wait are left out, branches count as not taken, and the start and end of a row or tile stand apart
  (the model has them).
- *MXU busy* is the compiler's count of filled MXU slots in the inner loop. It counts a product as long as it takes,
  useful or not: RPA v3 multiplies float32 weights by values, which takes twice the slots of bfloat16. *Operations a
  bundle* are useful ones only (4 · head dim for a query and a position that it sees), over all bundles of a block.
- *block* is the queries of a KV head that are handled together × the positions that are fetched together.
- *compute* is all bundles of a call over the clock: whole blocks by the inner loop, partly seen ones by the loop that
  masks (RPA v3 masks in all), rows and tiles by what stands around them. *memory* is the bytes over the bandwidth,
  pages read once a row and tile. The call takes the longer of the two, and MBU and MFU are the shares of peak that
  follow. Latencies of DMAs, VMEM bank conflicts and waits between rows are **not** in the model, so that these are
  upper bounds, good for comparing two kernels.
- RPA v3 runs with its own default block sizes. `--fetch-rival` clones it into the cache folder; `--rival DIR` takes a
  checkout that is there already. Nothing of it is part of this repository.

On a machine with a device, `scripts/bench_kernel WORKLOAD` without `--target` measures time, MBU and MFU against a copy
and a bfloat16 product timed in the same run. `python -m
scripts.benchmarks.kernels.dump_schedule PROGRAM.py` shows all loops of all kernels that a program compiles."""

CHIP_FACTS = """## What the model knows of TPUs

Of one JAX device (half a chip of 7x; on v5p a kernel runs on one of two cores). Bandwidth and rate are those of the
Cloud TPU documentation. It states no clock: this one makes the documented rate out of the pace at which the compiler
schedules back-to-back products."""


def page(records: Sequence[dict[str, Any]], notes: Sequence[str], argv: Sequence[str], rival_commit: str | None) -> str:
    installed = {d.metadata["Name"] for d in metadata.distributions()}
    versions = [f"{name} {metadata.version(name)}" for name in ("jax", "jaxlib", "libtpu") if name in installed]
    rival = f"{rpa_checkout.URL} at {rival_commit}, `{rpa_checkout.KERNEL}`" if rival_commit else ""
    hardware = "none: compiled for it, not run"
    parts = [
        TITLE,
        conditions("scripts/bench_kernel", argv, versions=", ".join(versions), hardware=hardware, RPA_v3=rival),
    ]
    for title, is_decode in (("## Decode", True), ("## Prefill", False)):
        chosen = [r for r in records if r["is_decode"] == is_decode]
        if chosen:
            parts += [title, as_markdown(static_rows(chosen))]
    if notes:
        parts += ["Not counted:", "\n".join(f"- {note}" for note in notes)]
    return document([*parts, METHOD, _chips()])


def _chips() -> str:
    rows = [["TPU", "GB/s", "TFLOP/s (bf16)", "operations a bundle at peak", "clock that follows, GHz"]]
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
