"""Wiring: `jaxserve bench spec`: ways to draft, each against plain decoding on the same engine."""

import argparse
import gc
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from jaxserve.bench.lengths import LengthRange
from jaxserve.cli.args.arg_types import MODEL_HELP, count, dataset, lengths, out_file, whole_number
from jaxserve.cli.args.dataclass_flags import add_engine_flags, engine_options
from jaxserve.core.options.engine_config import EngineConfig

if TYPE_CHECKING:
    from jaxserve.bench.offline.measure import Workloads
    from jaxserve.engine.llm import LLM

NGRAM = '{"method": "ngram", "num_speculative_tokens": 7}'


def add_parser(benchmarks: Any) -> None:
    """Adds the parser of `bench spec` to the subparsers of `bench`."""
    parser = benchmarks.add_parser(
        "spec",
        help="speculative decoding: tokens per second with drafts and without, tokens a pass, acceptance by position, "
        "time of drafting and verification",
        description="Compare ways to draft, each in turns with plain decoding on the same engine: jaxserve bench spec "
        f"smollm2-135m-instruct --dataset prompts.txt --drafts '{NGRAM}'",
    )
    parser.add_argument("model", help=MODEL_HELP)
    parser.add_argument(
        "--drafts",
        type=_drafts,
        action="append",
        metavar="JSON",
        help=f"options of speculative_config; repeat it to compare several (default: {NGRAM})",
    )
    parser.add_argument(
        "--dataset",
        type=dataset,
        default="random",
        help="'random' for random token ids (default), which suit no proposer, a text file with one prompt per line, "
        "or a .jsonl file with prompt or prompt_token_ids and optionally output_len",
    )
    parser.add_argument("--num-prompts", type=count, help="number of requests (default: 8, or all of the file)")
    parser.add_argument("--output-len", type=lengths, help="tokens to generate (default: 64, of a file 16:256)")
    parser.add_argument("--seed", type=whole_number, default=0, help="seed of lengths and token ids (default: 0)")
    parser.add_argument("--repeats", type=count, default=5, help="timed passes of each (default: 5)")
    parser.add_argument("--json", type=out_file, metavar="OUT", help="write all figures to this file")
    parser.add_argument("--report", type=out_file, metavar="OUT", help="write a page with curves to this file")
    parser.add_argument("--quiet", action="store_true", help="print the table only, no progress")
    add_engine_flags(parser, skip=["chat_template", "speculative_config"])


def run(args: argparse.Namespace) -> int:
    config = EngineConfig.create(args.model, **engine_options(args))
    drafts: list[dict[str, Any]] = args.drafts or [json.loads(NGRAM)]
    configs = [replace(config, speculative_config=options) for options in drafts]  # all checked before one is measured

    from rich.console import Console

    from jaxserve.bench.machine import host
    from jaxserve.bench.spec.compare_drafts import DraftResult, compare_drafts
    from jaxserve.bench.spec.draft_report import draft_page, draft_table
    from jaxserve.cli.tables.report_output import progress_printer, write_record
    from jaxserve.engine.llm import LLM

    results = list[DraftResult]()
    for name, one in zip(_names(drafts), configs, strict=True):
        llm = LLM.from_config(one, show_progress=not args.quiet)
        on_progress = progress_printer(args.quiet)
        results.append(compare_drafts(llm, name, _workloads(args, llm), args.repeats, on_progress))
        del llm
        gc.collect()  # the next engine needs the memory
    title = f"{args.model}: drafts against plain decoding"
    facts = {"dataset": args.dataset, "repeats": args.repeats, "cpu": host()["cpu"]}
    Console().print(draft_table(title, results))
    write_record(args.json, {"model": args.model, **facts, "drafts": [asdict(result) for result in results]})
    if args.report is not None:
        args.report.write_text(draft_page(title, results, facts))
    return 0


def _workloads(args: argparse.Namespace, llm: "LLM") -> "Workloads":
    from jaxserve.bench.offline.workload import RandomWorkload, read_workload

    if args.dataset == "random":
        lens = LengthRange(16, 128), args.output_len or LengthRange(64, 64)
        return RandomWorkload(args.num_prompts or 8, *lens, llm.parts.model.vocab_size, args.seed)
    sizes = {"num_prompts": args.num_prompts, "output_len": args.output_len}
    return read_workload(Path(args.dataset), llm.get_tokenizer(), **sizes, seed=args.seed)


def _names(drafts: list[dict[str, Any]]) -> list[str]:
    """The methods, with a number where one is compared several times."""
    methods = [str(options.get("method")) for options in drafts]
    numbered = (f"{method} {1 + methods[:i].count(method)}" for i, method in enumerate(methods))
    return [name if methods.count(method) > 1 else method for method, name in zip(methods, numbered, strict=True)]


def _drafts(text: str) -> dict[str, Any]:
    try:
        options: Any = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not JSON ({error})") from None
    if not isinstance(options, dict):
        raise argparse.ArgumentTypeError(f"{text!r} must be a JSON object, such as {NGRAM}")
    return cast(dict[str, Any], options)
