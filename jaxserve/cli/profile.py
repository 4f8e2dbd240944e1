"""Wiring: `jaxserve profile MODEL`: traces some steps and shows where device and host spend their time."""

import argparse
from pathlib import Path

from jaxserve.cli.args.arg_types import MODEL_HELP, count, out_file, whole_number
from jaxserve.cli.args.dataclass_flags import add_engine_flags, engine_options
from jaxserve.cli.args.verb_parser import VerbParser
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.core.options.sampling_params import SamplingParams


def run(argv: list[str]) -> int:
    args = _parser().parse_args(argv)
    params = SamplingParams(temperature=args.temperature, top_p=args.top_p, seed=args.seed)
    config = EngineConfig.create(args.model, **engine_options(args))

    from rich.console import Console

    from jaxserve.bench.offline.offline_report import about
    from jaxserve.bench.profile.profile_report import tables
    from jaxserve.bench.profile.record_profile import ProfileOptions, record
    from jaxserve.cli.tables.report_output import progress_printer, write_record
    from jaxserve.engine.llm import LLM

    llm = LLM.from_config(config, show_progress=not args.quiet)
    options = ProfileOptions(args.steps, args.batch_size, args.input_len, params, args.seed)
    report = record(llm, options, args.out, progress_printer(args.quiet)) | about(llm)
    console = Console()
    for table in tables(report):
        console.print(table)
    console.print(f"trace for Perfetto (https://ui.perfetto.dev) and XProf: {args.out}", soft_wrap=True)
    write_record(args.json, report)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = VerbParser(
        prog="jaxserve profile",
        description="Trace the first steps of a batch and show where their time goes: "
        "jaxserve profile smollm2-135m-instruct --batch-size 8",
    )
    parser.add_argument("model", help=MODEL_HELP)
    parser.add_argument("--steps", type=count, default=32, help="steps to record, prefill included (default: 32)")
    parser.add_argument("--batch-size", type=count, default=8, help="sequences that arrive together (default: 8)")
    parser.add_argument("--input-len", type=count, default=128, help="tokens of each random prompt (default: 128)")
    parser.add_argument("--temperature", type=float, default=0.0, help="of sampling (default: 0, which is greedy)")
    parser.add_argument("--top-p", type=float, default=1.0, help="top-p of sampling (default: 1)")
    parser.add_argument("--seed", type=whole_number, default=0, help="seed of prompts and sampling (default: 0)")
    parser.add_argument("--out", type=_folder, default=Path("profile"), help="folder of the trace (default: profile)")
    parser.add_argument("--json", type=out_file, metavar="OUT", help="write all figures to this file")
    parser.add_argument("--quiet", action="store_true", help="print the tables only, no progress")
    add_engine_flags(parser, skip=["chat_template", "max_decode_rounds"])  # a profiled step has one round
    return parser


def _folder(text: str) -> Path:
    if Path(text).is_file():
        raise argparse.ArgumentTypeError(f"{text!r} is a file; the trace needs a folder")
    return Path(text)
