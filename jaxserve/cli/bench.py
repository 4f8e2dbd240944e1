"""Wiring: `jaxserve bench throughput|latency|spec|quality|prefix|serve`: benchmarks of the offline engine, of drafts,
of packed weights, of the prefix cache and of a server."""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxserve.bench.lengths import LengthRange
from jaxserve.cli.args.arg_types import MODEL_HELP, count, dataset, lengths, out_file, whole_number
from jaxserve.cli.args.dataclass_flags import add_engine_flags, engine_options
from jaxserve.cli.args.verb_parser import VerbParser
from jaxserve.cli.bench_verbs import bench_adapters, bench_prefix, bench_quality, bench_serve, bench_spec
from jaxserve.core.errors import RequestError
from jaxserve.core.options.engine_config import EngineConfig

if TYPE_CHECKING:
    from jaxserve.bench.offline.measure import Workloads
    from jaxserve.engine.llm import LLM


def run(argv: list[str]) -> int:
    args = _parser().parse_args(argv)
    if args.benchmark == "prefix":
        return bench_prefix.run(args)
    if args.benchmark == "spec":
        return bench_spec.run(args)
    if args.benchmark == "quality":
        return bench_quality.run(args)
    if args.benchmark == "serve":
        return bench_serve.run(args)
    if args.benchmark == "throughput" and args.dataset != "random" and args.input_len is not None:
        raise RequestError("--input-len applies to random prompts only: leave it out with --dataset FILE")
    has_adapters = getattr(args, "num_adapters", None) is not None
    defaults = bench_adapters.engine_defaults(args) if args.benchmark == "throughput" else {}
    config = EngineConfig.create(args.model, **(defaults | engine_options(args)))

    from rich.console import Console

    from jaxserve.bench.offline import offline_report, pass_summaries
    from jaxserve.bench.offline.measure import measure
    from jaxserve.cli.tables.report_output import progress_printer, write_record
    from jaxserve.engine.llm import LLM

    llm = LLM.from_config(config, show_progress=not args.quiet)
    workloads, description = args.workloads(args, llm)
    with tempfile.TemporaryDirectory(prefix="jaxserve-adapters-") as folder:
        if has_adapters:
            workloads, adapters = bench_adapters.with_adapters(args, llm, Path(folder), workloads)
            description |= adapters
        measured = measure(
            llm,
            workloads,
            warm_up=args.warmup,
            repeats=args.repeats,
            use_tqdm=not args.quiet and sys.stderr.isatty(),
            on_progress=progress_printer(args.quiet),
        )
    result = getattr(pass_summaries, args.benchmark)(measured.passes)
    record = offline_report.record(llm, description, {"benchmark": args.benchmark, **result}, measured)
    console = Console()
    for table in offline_report.tables(record):
        console.print(table)
    write_record(args.json, record)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = VerbParser(
        prog="jaxserve bench", description="Measure the offline engine on this machine, the prefix cache, or a server."
    )
    names = "{throughput,latency,spec,quality,prefix,serve}"
    benchmarks = parser.add_subparsers(dest="benchmark", required=True, metavar=names)
    throughput = benchmarks.add_parser(
        "throughput",
        help="requests and tokens per second, all requests at once",
        description="Requests and tokens per second: jaxserve bench throughput smollm2-135m-instruct",
    )
    _add_common(throughput, repeats=3)
    throughput.add_argument("--num-prompts", type=count, help="number of requests (default: 64, or all of the file)")
    throughput.add_argument(
        "--input-len", type=lengths, help="tokens of a random prompt, such as 128 or 16:256 (default: 16:256)"
    )
    throughput.add_argument(
        "--output-len", type=lengths, help="tokens to generate, such as 128 or 16:256 (default: 16:256)"
    )
    throughput.add_argument(
        "--dataset",
        type=dataset,
        default="random",
        help="'random' for random token ids (default), a text file with one prompt per line, or a .jsonl file with "
        "prompt or prompt_token_ids and optionally output_len",
    )
    bench_adapters.add_flags(throughput)
    throughput.set_defaults(workloads=_throughput_workloads)
    latency = benchmarks.add_parser(
        "latency",
        help="milliseconds to the first token, per token and to the end, one batch after the other",
        description="Milliseconds per request: jaxserve bench latency smollm2-135m-instruct --batch-size 1",
    )
    _add_common(latency, repeats=10)
    latency.add_argument("--batch-size", type=count, default=1, help="requests that arrive together (default: 1)")
    latency.add_argument(
        "--input-len", type=lengths, default=LengthRange(128, 128), help="tokens of a prompt (default: 128)"
    )
    latency.add_argument(
        "--output-len", type=lengths, default=LengthRange(64, 64), help="tokens to generate (default: 64)"
    )
    latency.set_defaults(workloads=_latency_workloads)
    bench_spec.add_parser(benchmarks)
    bench_quality.add_parser(benchmarks)
    bench_prefix.add_parser(benchmarks)
    bench_serve.add_parser(benchmarks)
    return parser


def _add_common(parser: argparse.ArgumentParser, repeats: int) -> None:
    parser.add_argument("model", help=MODEL_HELP)
    parser.add_argument(
        "--seed", type=whole_number, default=0, help="seed of the lengths and the token ids (default: 0)"
    )
    parser.add_argument(
        "--warmup",
        choices=("pass", "all", "none"),
        default="pass",
        help="before timing: an untimed pass (default), compilation of all buckets, or nothing",
    )
    parser.add_argument("--repeats", type=count, default=repeats, help=f"timed passes (default: {repeats})")
    parser.add_argument("--json", type=out_file, metavar="OUT", help="write all figures to this file")
    parser.add_argument("--quiet", action="store_true", help="print the tables only, no progress")
    add_engine_flags(parser, skip=["chat_template"])


def _throughput_workloads(args: argparse.Namespace, llm: "LLM") -> "tuple[Workloads, dict[str, Any]]":
    from jaxserve.bench.offline.workload import RandomWorkload, read_workload

    ragged = LengthRange(16, 256)
    if args.dataset == "random":
        description = {"dataset": "random", "num_prompts": args.num_prompts or 64, "seed": args.seed}
        lens = {"input_len": args.input_len or ragged, "output_len": args.output_len or ragged}
        workloads = RandomWorkload(
            args.num_prompts or 64, vocab_size=llm.parts.model.vocab_size, seed=args.seed, **lens
        )
        return workloads, description | {name: str(length) for name, length in lens.items()}
    path = Path(args.dataset)
    workloads = read_workload(
        path, llm.get_tokenizer(), num_prompts=args.num_prompts, output_len=args.output_len, seed=args.seed
    )
    num_prompts = len(workloads.workload.prompts)
    output_len = None if args.output_len is None else str(args.output_len)
    return workloads, {"dataset": str(path), "num_prompts": num_prompts, "seed": args.seed, "output_len": output_len}


def _latency_workloads(args: argparse.Namespace, llm: "LLM") -> "tuple[Workloads, dict[str, Any]]":
    from jaxserve.bench.offline.workload import RandomWorkload

    vocab_size = llm.parts.model.vocab_size
    workloads = RandomWorkload(args.batch_size, args.input_len, args.output_len, vocab_size, args.seed)
    lens = {"input_len": str(args.input_len), "output_len": str(args.output_len)}
    return workloads, {"batch_size": args.batch_size, "seed": args.seed, **lens}
