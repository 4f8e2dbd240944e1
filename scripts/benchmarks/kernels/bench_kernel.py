"""Measures paged attention at named workloads on this machine's device, or computes static figures for other TPUs."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from scripts.benchmarks.kernels import rpa_checkout
from scripts.benchmarks.kernels.kernel_tables import measured_rows, static_rows
from scripts.benchmarks.kernels.tpu_chips import CHIPS
from scripts.benchmarks.kernels.workload_names import HELP, workloads
from scripts.benchmarks.report_page import as_text


def main(argv: list[str]) -> int:
    parser = _parser()
    args = parser.parse_args(argv)
    for name in ("page", "rpa", "fetch_rpa"):
        if getattr(args, name) and not args.target:
            parser.error(f"--{name.replace('_', '-')} needs --target")
    if args.target and args.backend != "auto":
        parser.error("--backend is for measuring: leave --target out")
    try:
        chosen = workloads(args.workloads)
        checkout = rpa_checkout.fetch() if args.fetch_rpa else args.rpa
        if checkout:
            rpa_checkout.check(checkout)
    except (ValueError, OSError) as error:
        print(f"bench_kernel: {error}", file=sys.stderr)
        return 2
    if not args.target:
        result = _measure(chosen, args.backend)
    else:
        result = _count(chosen, args.target, checkout)
        if args.page:
            from scripts.benchmarks.kernels.kernels_page import page

            commit = rpa_checkout.commit(checkout) if checkout else None
            args.page.write_text(page(result["records"], result["notes"], argv, commit))
            print(f"Wrote {args.page}")
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")
        print(f"Wrote {args.json}")
    return 0 if result["records"] else 1


def _measure(chosen: list, backend: str) -> dict[str, Any]:
    import jax

    from scripts.benchmarks.kernels.measure_kernel import ceilings, measure

    device = jax.devices()[0]
    print(f"{device.device_kind}: measuring ceilings", file=sys.stderr, flush=True)
    ceiling = ceilings(is_small=device.platform == "cpu")
    records = []
    for w in chosen:
        print(f"{w.name}: building, compiling, measuring", file=sys.stderr, flush=True)
        records.append(measure(w, ceiling, backend))
    print(as_text(measured_rows(records)))
    copy, product = ceiling["bytes_per_s"] / 1e9, ceiling["ops_per_s"] / 1e12
    print(f"Ceilings, measured: {copy:,.1f} GB/s (copy), {product:,.2f} TFLOP/s (product). A call computes one layer.")
    return {"device": device.device_kind, "backend": backend, "ceilings": ceiling, "records": records}


def _count(chosen: list, targets: list[str], checkout: Path | None) -> dict[str, Any]:
    from scripts.benchmarks.kernels.static_figures import NotCounted, figures

    records, notes = [], []
    for w in chosen:
        for target in targets:
            for side in [None, checkout] if checkout else [None]:
                what = f"{rpa_checkout.NAME if side else 'jaxserve'}, {w.name}"
                print(f"{what}, page {w.page_size}, {target}: compiling", file=sys.stderr, flush=True)
                try:
                    records.append(figures(w, target, side).record())
                except NotCounted as reason:
                    notes += [note for note in [f"{what}: {reason}"] if note not in notes]
    if records:
        print(as_text(static_rows(records)))
    print("\n".join(f"Not counted: {note}" for note in notes), end="\n" if notes else "")
    return {"records": records, "notes": notes}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench_kernel", description=__doc__)
    parser.add_argument("workloads", nargs="+", metavar="WORKLOAD", help=HELP)
    parser.add_argument(
        "--target",
        nargs="+",
        choices=list(CHIPS),
        help="compile for these TPUs and count their schedules, instead of measuring here (needs the extra 'aot')",
    )
    parser.add_argument("--backend", default="auto", help="back end of the op, when measuring (default: %(default)s)")
    parser.add_argument(
        "--rpa",
        type=Path,
        metavar="DIR",
        help=f"also count {rpa_checkout.NAME}, from this checkout of {rpa_checkout.URL}",
    )
    parser.add_argument(
        "--fetch-rpa", action="store_true", help="like --rpa, with a checkout in the cache folder, cloned if missing"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file")
    parser.add_argument(
        "--page", type=Path, metavar="FILE", help="write the markdown page to this file (with --target)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
