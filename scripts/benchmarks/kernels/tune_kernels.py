"""Measures block sizes of paged attention on this machine's accelerator and stores the fastest correct ones."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pallas_kernels import tuned_blocks
from pallas_kernels.paged_attention.workloads import Workload
from scripts.benchmarks.kernels.workload_names import HELP, workloads
from scripts.benchmarks.report_page import as_text

OP = "paged_attention"


def main(argv: list[str]) -> int:
    args = _parser().parse_args(argv)
    try:
        chosen = workloads(args.workloads)
    except ValueError as error:
        print(f"tune_kernels: {error}", file=sys.stderr)
        return 2
    import jax

    device = jax.devices()[0]
    from scripts.benchmarks.kernels.block_sweep import SIZES, candidates, kind_of, try_block

    if device.platform not in SIZES:
        print(
            "tune_kernels: JAX finds no accelerator. Block sizes are measured on the device that uses them; without "
            "measurements, the rules of pallas_kernels/paged_attention/block_rules.py select them.",
            file=sys.stderr,
        )
        return 2

    entries = []
    for w in chosen:
        if kind_of(w) is None:
            print(f"{w.name}: skipped; a mixed batch runs two kernels, so tune a decode and a prefill workload")
            continue
        tried = [try_block(w, block, args.backend) for block in candidates(w, device.platform)]
        print(f"{w.name}, page {w.page_size}\n{as_text(table(tried))}", flush=True)
        entries += [entry(w, best, device.platform) for best in fastest(tried)]
    if entries:
        file = args.out / tuned_blocks.slug(device.device_kind) / f"{OP}.json"
        write(file, device.device_kind, entries)
        print(f"Wrote {file}")
    return 0 if entries else 1


def fastest(tried: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A list of the entry with the shortest time; empty if none was timed."""
    timed = [one for one in tried if one["time_us"] is not None]
    return [min(timed, key=lambda one: one["time_us"])] if timed else []


def table(tried: list[dict[str, Any]]) -> list[list[str]]:
    best = fastest(tried)
    rows = [["positions", "rows", "queries", "time, µs", ""]]
    for one in sorted(tried, key=lambda one: one["time_us"] or float("inf")):
        sizes = asdict(one["block"])
        time = "–" if one["time_us"] is None else f"{one['time_us']:,.1f}"
        remark = one["problem"] or ("fastest" if one in best else "")
        rows.append([*(str(sizes[name]) for name in ("positions", "rows", "queries")), time, remark])
    return rows


def entry(w: Workload, best: dict[str, Any], platform: str) -> dict[str, Any]:
    """The fastest block sizes of a workload, in the form that `tuned` reads."""
    from scripts.benchmarks.kernels.block_sweep import SIZES, kind_of

    kind, sizes = kind_of(w), asdict(best["block"])
    assert kind
    return {
        "kind": kind,
        "num_rows": tuned_blocks.row_bucket(w.num_rows),
        "page_size": w.page_size,
        "num_heads": w.num_heads,
        "num_kv_heads": w.num_kv_heads,
        "head_dim": w.head_dim,
        "dtype": w.dtype,
        "pool_dtype": w.stored_dtype,
        "block": {name: sizes[name] for name in SIZES[platform][kind]},
        "time_us": best["time_us"],
    }


def write(
    file: Path,
    device_kind: str,
    entries: list[dict[str, Any]],
    *,
    op: str = OP,
    dropped: Sequence[tuned_blocks.Key] = (),
) -> None:
    """Adds entries to a file. An entry replaces an older one with its key; of several new ones the fastest is kept.

    dropped: keys whose older entries are removed. A file without entries is removed too.
    """

    def key_of(one: tuned_blocks.Key) -> tuple[Any, ...]:
        return tuple((name, value) for name, value in sorted(one.items()) if name not in ("block", "time_us"))

    old = json.loads(file.read_text())["entries"] if file.is_file() else []
    by_key = {key_of(one): one for one in old}
    for key in dropped:
        by_key.pop(key_of(key), None)
    by_key |= {key_of(one): one for one in sorted(entries, key=lambda one: -one["time_us"])}
    tuned_blocks.forget()
    if not by_key:
        file.unlink(missing_ok=True)
        return
    content = {
        "op": op,
        "device_kind": device_kind,
        "versions": {name: version(name) for name in ("jax", "jaxlib")},
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "entries": list(by_key.values()),
    }
    tuned_blocks.parse(op, content, str(file))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content, indent=1) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/tune_kernels", description=__doc__)
    parser.add_argument("workloads", nargs="+", metavar="WORKLOAD", help=HELP)
    parser.add_argument("--backend", default="auto", help="back end of the op (default: %(default)s)")
    parser.add_argument(
        "--out",
        type=Path,
        default=tuned_blocks.TUNED,
        metavar="FOLDER",
        help="folder of the file (default: the package's)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
