"""Compares the throughput of jaxserve and transformers on the local CPU; run by scripts/compare_transformers."""

import argparse
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from checkpoints.errors import CheckpointError, SourceError
from checkpoints.open_checkpoint import open_checkpoint
from checkpoints.sources import resolve
from jaxserve.bench.lengths import LengthRange
from jaxserve.bench.machine import num_cores
from jaxserve.bench.offline.workload import RandomWorkload
from jaxserve.cli.args.arg_types import count, lengths
from jaxserve.cli.args.dataclass_flags import add_engine_flags, engine_options
from jaxserve.core.errors import ConfigError, JaxserveError
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.runner.load_weights import read_config
from scripts.benchmarks.compare.alternating_runs import Round, run_round
from scripts.benchmarks.compare.comparison import Comparison, compare
from scripts.benchmarks.compare.comparison_page import page, ratio_lines
from scripts.benchmarks.report_page import commit, now, without_folder, write

REPORT = Path(__file__).resolve().parents[3] / "docs" / "benchmarks" / "cpu-transformers.md"
# Engine options that this script defines itself, or that do not apply to a local GGUF file.
OWN = ("dtype", "load_format", "revision", "hf_token", "cache_dir")


def main(argv: list[str]) -> int:
    args = _parser().parse_args(argv)
    try:
        specs = _specs(args)
    except (JaxserveError, CheckpointError, SourceError, OSError) as error:
        print(f"compare_transformers: {error}", file=sys.stderr)
        return 2
    rounds = []
    for number, spec in enumerate(specs, start=1):
        print(f"round {number} of {args.rounds}", file=sys.stderr, flush=True)
        rounds.append(run_round(spec, os.environ["ORACLE_PYTHON"], is_ours_first=number % 2 == 1))
    comparison = compare(rounds, sum(specs[0]["timed"]["output_lens"]))
    about = {"model": args.model, "jaxserve": rounds[-1].jaxserve, "transformers": rounds[-1].transformers}
    print(ratio_lines(comparison))
    write(args.out, page(comparison, argv, specs[-1], about), _record(comparison, rounds))
    return 0


def _specs(args: argparse.Namespace) -> list[dict[str, Any]]:
    """The input of both sides per round: all rounds have the same lengths, but other tokens."""
    options = engine_options(args)
    EngineConfig.create(args.model, **options)
    source = resolve(args.model)
    if source.weights.suffix != ".gguf":
        raise ConfigError(f"{source.weights.name} is not a GGUF file, the format that both sides read", "model")
    with open_checkpoint(source) as checkpoint:
        vocab_size = read_config(checkpoint).vocab_size
    workload = RandomWorkload(args.num_prompts, args.input_len, args.output_len, vocab_size, args.seed)
    common = {
        "gguf": str(source.weights),
        "dtype": options.pop("dtype"),
        "options": options,
        "num_threads": num_cores(),
        "batch_sizes": args.batch_sizes,
        "warm_up": asdict(workload.of_pass(0)),
    }
    return [common | {"timed": asdict(workload.of_pass(number))} for number in range(1, args.rounds + 1)]


def _record(comparison: Comparison, rounds: list[Round]) -> dict[str, Any]:
    return {
        "date": now(),
        "commit": commit(),
        "ratio": comparison.ratio,
        "fastest_ratio": comparison.fastest_ratio,
        "round_ratios": comparison.round_ratios,
        **asdict(comparison),
        "rounds": [{"jaxserve": figures(r.jaxserve), "transformers": figures(r.transformers)} for r in rounds],
    }


def figures(found: Any) -> Any:
    """The result of one side for the record: without tokens, and with file names in place of paths."""
    if isinstance(found, dict):
        return {key: figures(value) for key, value in found.items() if key != "tokens"}
    return without_folder(found) if isinstance(found, str) else found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/compare_transformers",
        description="Compare the throughput of jaxserve with that of transformers + torch on the local CPU. Run "
        "nothing else meanwhile: the CPU share of other processes is measured and reported.",
    )
    parser.add_argument(
        "--model", default="smollm2-135m-instruct", help="short name or GGUF file (default: %(default)s)"
    )
    parser.add_argument("--num-prompts", type=count, default=64, help="requests (default: %(default)s)")
    for name in ("input", "output"):
        text = f"{name} tokens per request, such as 128 or 16:256 (default: %(default)s)"
        parser.add_argument(f"--{name}-len", type=lengths, default=LengthRange(16, 256), help=text)
    parser.add_argument("--seed", type=int, default=0, help="seed of lengths and tokens (default: %(default)s)")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16", help="default: %(default)s")
    parser.add_argument(
        "--rounds", type=count, default=5, help="runs of each side, of which the median counts (default: %(default)s)"
    )
    sizes = [8, 16, 32, 64]
    parser.add_argument(
        "--batch-sizes", type=count, nargs="+", default=sizes, help="batch sizes of transformers (default: %(default)s)"
    )
    parser.add_argument(
        "--out", type=Path, default=REPORT, help="path of the page; figures go to a .json file next to it"
    )
    add_engine_flags(parser, skip=OWN)
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
