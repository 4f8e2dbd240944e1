"""Wiring: `jaxserve bench quality`: models and packed weights compared on a text."""

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxserve.cli.args.arg_types import MODEL_HELP, count, existing_file, out_file
from jaxserve.cli.args.dataclass_flags import add_engine_flags, engine_options
from jaxserve.core.errors import RequestError
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.core.options.quantization_names import QUANTIZATIONS

if TYPE_CHECKING:
    from jaxserve.bench.quality.compare_quality import Quality  # which imports jax

DEFAULT = ["dense", "int8", "w8a8"]
OPTIONS = {"tokenizer", "revision", "hf_token", "cache_dir", "load_format", "dtype", "seed", "tensor_parallel_size"}
"""Of `EngineConfig`, those that have a meaning here."""


def add_parser(benchmarks: Any) -> None:
    """Adds the parser of `bench quality` to the subparsers of `bench`."""
    parser = benchmarks.add_parser(
        "quality",
        help="models and packed weights on a text: perplexity, distance from the first model, bytes",
        description="Compare models, dense and with packed weights, on a text; distances are those from the first: "
        "jaxserve bench quality smollm2-135m-instruct --text book.txt",
    )
    parser.add_argument("models", nargs="+", metavar="MODEL", help=f"{MODEL_HELP}; several with one vocabulary")
    parser.add_argument("--text", type=existing_file, required=True, metavar="FILE", help="UTF-8 text to be predicted")
    parser.add_argument(
        "--quantizations",
        nargs="+",
        metavar=f"{{{','.join(QUANTIZATIONS)}}}",
        default=DEFAULT,
        help=f"forms of the weights of each model (default: {' '.join(DEFAULT)})",
    )
    parser.add_argument("--context", type=count, default=512, help="tokens of a piece of the text (default: 512)")
    parser.add_argument("--max-pieces", type=count, help="pieces that are read (default: all of the text)")
    parser.add_argument("--json", type=out_file, metavar="OUT", help="write all figures to this file")
    parser.add_argument("--report", type=out_file, metavar="OUT", help="write a page with a plot to this file")
    parser.add_argument("--quiet", action="store_true", help="print the table only, no progress")
    add_engine_flags(parser, skip=[f.name for f in fields(EngineConfig) if f.name not in OPTIONS])


def run(args: argparse.Namespace) -> int:
    options = engine_options(args)
    forms = [(model, form) for model in args.models for form in args.quantizations]
    for model, form in forms:
        EngineConfig.create(model, **options, quantization=form)  # all checked before one is measured

    from jaxserve.bench.quality.compare_quality import Load, PureModel, Quality, compare_quality
    from jaxserve.cli.tables.report_output import progress_printer
    from jaxserve.engine.pure_model import load
    from jaxserve.functional.cut_text import cut_file

    def load_form(model: str, form: str) -> PureModel:
        return load(model, **options, quantization=form)

    first = load_form(*forms[0])
    if first.tokenizer is None:
        raise RequestError(f"{args.models[0]} has no tokenizer: name one by --tokenizer", "tokenizer")
    pieces = cut_file(args.text, "--text", first.tokenizer, args.context, args.max_pieces)
    short = short_names(args.models)
    names = [f"{short[model]}, {form}" for model, form in forms]
    loads: list[Load | None] = [None, *(partial(load_form, *one) for one in forms[1:])]
    on_progress = progress_printer(args.quiet)
    results: list[Quality] = []
    try:
        for result in compare_quality(first, list(zip(names, loads, strict=True)), pieces, on_progress):
            results.append(result)
    finally:
        if results:  # also those before a model that is refused
            report(args, pieces.size, results)
    return 0


def report(args: argparse.Namespace, num_tokens: int, results: "Sequence[Quality]") -> None:
    """Prints the table and writes the files that are asked for."""
    from rich.console import Console

    from jaxserve.bench.machine import host
    from jaxserve.bench.quality.quality_report import quality_page, quality_table
    from jaxserve.cli.tables.report_output import write_record

    title = f"{args.text.name}: {num_tokens:,} tokens in pieces of {args.context}"
    facts = {"text": args.text.name, "tokens": num_tokens, "context": args.context, "cpu": host()["cpu"]}
    Console().print(quality_table(title, results))
    write_record(args.json, facts | {"models": [asdict(result) for result in results]})
    if args.report is not None:
        args.report.write_text(quality_page(title, results, facts))


def short_names(models: Sequence[str]) -> dict[str, str]:
    """The last part of each model's path, or the whole where others end with the same."""
    ends = Counter(Path(model).name for model in set(models))
    return {model: Path(model).name if ends[Path(model).name] == 1 else model for model in models}
