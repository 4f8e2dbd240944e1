"""Wiring: `jaxserve bench prefix`: prefix cache hits of a trace, and the best possible."""

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from jaxserve.cli.args.arg_types import count, existing_file, out_file, whole_number
from jaxserve.core.errors import ConfigError
from jaxserve.core.options.engine_config import PREFIX_EVICTIONS

if TYPE_CHECKING:
    from rich.table import Table

    from jaxserve.bench.prefix.prefix_trace import UnitSequences


def add_parser(benchmarks: Any) -> None:
    """Adds the parser of `bench prefix` to the subparsers of `bench`."""
    parser = benchmarks.add_parser(
        "prefix",
        help="prefix cache hits of a trace or of synthetic conversations; needs no model",
        description="Replay requests through the prefix cache alone: jaxserve bench prefix --trace mooncake.jsonl",
    )
    parser.add_argument(
        "--trace", type=existing_file, help="Mooncake trace: JSON lines with hash_ids (default: conversations)"
    )
    parser.add_argument("--unit", type=count, default=512, help="tokens per id of the trace (default: 512)")
    parser.add_argument(
        "--capacity",
        type=_share,
        nargs="+",
        default=[0.1, 0.5, 1.0],
        metavar="SHARE",
        help="sizes of the cache, as shares of all different tokens (default: 0.1 0.5 1.0)",
    )
    parser.add_argument(
        "--policy",
        choices=PREFIX_EVICTIONS,
        nargs="+",
        default=list(PREFIX_EVICTIONS),
        help="eviction policies (default: all)",
    )
    parser.add_argument("--systems", type=count, default=20, help="system prompts of conversations (default: 20)")
    parser.add_argument("--users", type=count, default=500, help="number of conversations (default: 500)")
    parser.add_argument("--turns", type=count, default=8, help="requests per conversation (default: 8)")
    parser.add_argument("--seed", type=whole_number, default=0, help="seed of the conversations (default: 0)")
    parser.add_argument("--json", type=out_file, metavar="OUT", help="write all figures to this file")
    parser.add_argument("--quiet", action="store_true", help="print the table only, no progress")


def run(args: argparse.Namespace) -> int:
    from jaxserve.bench.prefix import replay as prefix
    from jaxserve.bench.prefix.prefix_trace import conversations, read_unit_trace
    from jaxserve.cli.tables.report_output import progress_printer, write_record
    from jaxserve.cli.tables.report_tables import print_report

    if args.trace is not None:
        rows, name = read_unit_trace(args.trace), str(args.trace)
    else:
        rows = conversations(args.systems, args.users, args.turns, seed=args.seed)
        name = f"{args.users} conversations of {args.turns} turns, {args.systems} system prompts"
    num_hit_unlimited = prefix.unlimited(rows)
    replays: list[dict[str, Any]] = []
    report_progress = progress_printer(args.quiet)
    for share in sorted(args.capacity):
        capacity = max(1, round(share * prefix.num_units(rows)))
        if (shortest := min(map(len, rows))) > capacity:
            raise ConfigError(f"a cache of {capacity} units holds no request, of {shortest} or more", "capacity")
        report_progress(f"capacity {capacity:,} units")
        best = prefix.farthest(rows, capacity)
        for policy in args.policy:
            replays.append(asdict(prefix.replay(rows, policy, capacity)) | {"share": share, "num_hit_farthest": best})
    record: dict[str, Any] = {
        "trace": name,
        "unit_tokens": args.unit,
        "num_requests": len(rows),
        "num_units": sum(map(len, rows)),
        "num_different_units": prefix.num_units(rows),
        "num_hit_unlimited": num_hit_unlimited,
        "replays": replays,
    }
    print_report([_table(record)], _notes(record, rows))
    write_record(args.json, record)
    return 0


def _table(record: dict[str, Any]) -> "Table":
    from jaxserve.cli.tables.report_tables import plain_table

    columns = "capacity", "policy", "tokens hit", "of all", "of unlimited", "of farthest", "units evicted", "host, µs"
    table = plain_table(f"Prefix cache: {record['trace']}", *columns)
    for replay in record["replays"]:
        hit = replay["num_hit"]
        shares = (hit / n if n else 0.0 for n in _totals(record, replay))
        table.add_row(
            f"{replay['share']:.0%}",
            replay["policy"],
            f"{hit * record['unit_tokens']:,}",
            *(f"{share:.1%}" for share in shares),
            f"{replay['num_evicted']:,}",
            f"{replay['host_us']:.0f}",
        )
    return table


def _totals(record: dict[str, Any], replay: dict[str, Any]) -> tuple[int, int, int]:
    return record["num_units"], record["num_hit_unlimited"], replay["num_hit_farthest"]


def _notes(record: dict[str, Any], rows: "UnitSequences") -> list[str]:
    unit = record["unit_tokens"]
    return [
        f"{len(rows):,} requests of {record['num_units'] * unit:,} tokens; capacity is a share of the "
        f"{record['num_different_units'] * unit:,} different ones.",
        f"unlimited: {record['num_hit_unlimited'] * unit:,} tokens, the hits of a cache that evicts nothing. farthest: "
        "an oracle that evicts what is used again last.",
        "host: median time to match, take and insert a request.",
        *(
            f"{num:,} requests are longer than a cache of {capacity} units and compute all of their tokens."
            for capacity, num in {replay["capacity"]: replay["num_skipped"] for replay in record["replays"]}.items()
            if num
        ),
    ]


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a share of the different tokens, above 0 and up to 1")
    return share
