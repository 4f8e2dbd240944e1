"""Wiring: `jaxserve convert SRC DST`: writes a model of any readable format as a safetensors or an Orbax folder."""

import argparse
import os
import sys

from jaxserve.cli.args.output_model import MAX_SHARD_SIZE, add_folders, add_output_flags, byte_size
from jaxserve.cli.args.verb_parser import VerbParser
from jaxserve.core.options.engine_config import DTYPES


def run(argv: list[str]) -> int:
    parser = _parser()
    args = parser.parse_args(argv)
    if args.format == "orbax" and args.max_shard_size is not None:
        parser.error("--max-shard-size needs --format safetensors: an Orbax folder has one part per layer")
    # Nothing is computed here: the accelerator stays free for other processes.
    os.environ["JAX_PLATFORMS"] = "cpu"

    from checkpoints.sources import resolve
    from jaxserve.convert.convert_model import ConversionTarget, convert
    from jaxserve.core.progress_bars import LoadBar

    source = resolve(args.source, cache_dir=args.cache_dir, revision=args.revision)
    max_shard_bytes = args.max_shard_size or byte_size(MAX_SHARD_SIZE)
    target = ConversionTarget(args.folder, args.format, args.dtype, max_shard_bytes, args.overwrite)
    with LoadBar(not args.quiet, "Converting") as bar:
        is_new = convert(source, target, bar.update)
    if not args.quiet:
        print(f"{args.folder} {'is ready' if is_new else 'was already complete: nothing to do'}", file=sys.stderr)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = VerbParser(
        prog="jaxserve convert",
        description="Write a model as a Hugging Face folder (safetensors) or an Orbax folder: jaxserve convert "
        "smollm2-135m-instruct ./smollm2. Run the same command again to resume an interrupted conversion.",
    )
    add_folders(parser)
    parser.add_argument(
        "--format",
        choices=("safetensors", "orbax"),
        default="safetensors",
        help="format to write (default: safetensors)",
    )
    parser.add_argument(
        "--dtype",
        choices=DTYPES,
        default="auto",
        help="type of the written weights; auto: float32 if config.json says so, else bfloat16, also for float16 and "
        "GGUF's types (default: auto)",
    )
    add_output_flags(parser)
    return parser
