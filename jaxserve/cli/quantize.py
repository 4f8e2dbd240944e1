"""Wiring: `jaxserve quantize SRC DST --scheme NAME`: writes a safetensors folder with weights of 4 or 8 bits."""

import argparse
import os
import sys

from checkpoints.quantized.forms.form_names import FORM_NAMES
from jaxserve.cli.args.output_model import MAX_SHARD_SIZE, add_folders, add_output_flags, byte_size
from jaxserve.cli.args.verb_parser import VerbParser
from jaxserve.core.options.engine_config import DTYPES


def run(argv: list[str]) -> int:
    args = _parser().parse_args(argv)
    # Nothing is computed here: the accelerator stays free for other processes.
    os.environ["JAX_PLATFORMS"] = "cpu"

    from checkpoints.sources import resolve
    from jaxserve.convert.convert_model import ConversionTarget, convert
    from jaxserve.core.progress_bars import LoadBar

    source = resolve(args.source, cache_dir=args.cache_dir, revision=args.revision)
    max_shard_bytes = args.max_shard_size or byte_size(MAX_SHARD_SIZE)
    target = ConversionTarget(args.folder, "safetensors", args.dtype, max_shard_bytes, args.overwrite, args.scheme)
    with LoadBar(not args.quiet, "Quantizing") as bar:
        is_new = convert(source, target, bar.update)
    if not args.quiet:
        print(f"{args.folder} {'is ready' if is_new else 'was already complete: nothing to do'}", file=sys.stderr)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = VerbParser(
        prog="jaxserve quantize",
        description="Write a model with the matrices of its layers in fewer bits, each value rounded to the nearest: "
        "jaxserve quantize smollm2-135m-instruct ./smollm2-w8a8 --scheme w8a8. transformers and others read it, too. "
        "Embedding, head and norms stay as they are. At most one matrix is in memory, a few times. Run the same "
        "command again to resume an interrupted conversion; `jaxserve bench quality` compares models.",
    )
    add_folders(parser)
    parser.add_argument(
        "--scheme",
        choices=FORM_NAMES,
        required=True,
        help="int8: a scale for each row; w8a8: the same for products with activations of 8 bits; fp8: E4M3, a scale "
        "for each row; int4-gN: a scale for N values of a row; nf4: a factor for 64 values",
    )
    parser.add_argument(
        "--dtype",
        choices=DTYPES,
        default="auto",
        help="type of the other weights; auto: float32 if config.json says so, else bfloat16 (default: auto)",
    )
    add_output_flags(parser)
    return parser
