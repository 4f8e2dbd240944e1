"""Tables of kernel figures, as text for a terminal and in markdown."""

from collections.abc import Sequence
from typing import Any

STATIC_COLUMNS = (
    ("workload", "workload"),
    ("page", "page_size"),
    ("TPU", "target"),
    ("kernel of", "side"),
    ("bundles per 512 × 8", "bundles"),
    ("operations per bundle", "ops"),
    ("MXU busy", "mxu"),
    ("fills, spills", "spills"),
    ("block", "block"),
    ("DMAs per block", "dmas"),
    ("VMEM, MB", "vmem"),
    ("SMEM, kB", "smem"),
    ("compute, µs", "compute"),
    ("memory, µs", "memory"),
    ("MBU", "mbu"),
    ("MFU", "mfu"),
)


def static_rows(records: Sequence[dict[str, Any]]) -> list[list[str]]:
    """A heading and a row for each record of `static_figures.Figures`."""
    return [[title for title, _ in STATIC_COLUMNS]] + [_static_row(record) for record in records]


def _static_row(r: dict[str, Any]) -> list[str]:
    size = f" of {r['dma_bytes'] // 1024} kB" if r["dma_bytes"] else ""
    cells = {
        **{name: str(r[name]) for name in ("workload", "page_size", "target", "side")},
        "bundles": f"{r['bundles_of_512x8']:,.0f}" if r["is_decode"] else "–",
        "ops": f"{r['ops_of_bundle'] / 1000:,.0f} k",
        "mxu": f"{r['mxu_share']:.0%}",
        "spills": f"{r['slots']['VLOAD:FILL']}, {r['slots']['VSTORE:SPILL']}",
        "block": f"{r['lines']} × {r['block_positions']}",
        "dmas": f"{r['dmas_of_block']}{size}",
        "vmem": f"{r['vmem_bytes'] / 1e6:.1f}",
        "smem": f"{r['smem_bytes'] / 1e3:.1f}",
        "compute": f"{1e6 * r['compute_s']:,.0f}",
        "memory": f"{1e6 * r['memory_s']:,.0f}",
        "mbu": f"{r['mbu']:.0%}",
        "mfu": f"{r['mfu']:.0%}",
    }
    return [cells[name] for _, name in STATIC_COLUMNS]


def measured_rows(records: Sequence[dict[str, Any]]) -> list[list[str]]:
    heading = ["workload", "page", "time, µs", "MB", "GFLOP", "GB/s", "TFLOP/s", "MBU", "MFU"]
    return [heading] + [
        [
            r["workload"],
            str(r["page_size"]),
            f"{1e6 * r['call_s']:,.1f}",
            f"{r['bytes'] / 1e6:,.1f}",
            f"{r['ops'] / 1e9:,.2f}",
            f"{r['bytes'] / r['call_s'] / 1e9:,.1f}",
            f"{r['ops'] / r['call_s'] / 1e12:,.3f}",
            f"{r['mbu']:.0%}",
            f"{r['mfu']:.0%}",
        ]
        for r in records
    ]
