"""Wiring: `jaxserve convert SRC DST`: writes a model of any readable format as a safetensors or an Orbax folder:
decoded or, with `--quantization`, packed."""

import argparse
import os
import sys

from jaxserve.cli.args.output_model import MAX_SHARD_SIZE, add_folders, add_output_flags, byte_size
from jaxserve.cli.args.verb_parser import VerbParser
from jaxserve.core.options.engine_config import DTYPES
from jaxserve.core.options.quantization_names import PACKING

LEAST_SIZES = {"max_model_len": 64, "max_num_seqs": 1, "max_num_batched_tokens": 64, "num_pages": 128}
"""Of an engine that computes nothing."""


def run(argv: list[str]) -> int:
    parser = _parser()
    args = parser.parse_args(argv)
    if args.format == "orbax" and args.max_shard_size is not None:
        parser.error("--max-shard-size needs --format safetensors: an Orbax folder has one part per layer")
    if args.quantization is not None and args.format != "orbax":
        parser.error("--quantization needs --format orbax: `jaxserve quantize` writes packed safetensors")
    if args.quantization is not None and args.overwrite:
        parser.error("--overwrite has no use with --quantization: name an empty folder")
    # Nothing is computed here: the accelerator stays free for other processes.
    os.environ["JAX_PLATFORMS"] = "cpu"
    if args.quantization is not None:
        return _write_packed(args)

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


def _write_packed(args: argparse.Namespace) -> int:
    """As an engine on this machine's CPU has the weights, which takes their memory."""
    from jaxserve.engine.build.engine_weights import make_new_folder
    from jaxserve.engine.llm import LLM

    make_new_folder(args.folder)
    cache_dir = None if args.cache_dir is None else str(args.cache_dir)
    options = {"dtype": args.dtype, "revision": args.revision, "cache_dir": cache_dir} | LEAST_SIZES
    LLM(args.source, quantization=args.quantization, **options).save(args.folder)
    if not args.quiet:
        print(f"{args.folder} is ready", file=sys.stderr)
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
    parser.add_argument(
        "--quantization",
        choices=PACKING,
        help="with --format orbax: packed: blocks, groups and rows of codes stay as the file has them; or code the "
        "matrices so; takes the memory of the packed weights, and is not resumed: name an empty folder "
        "(default: decoded)",
    )
    add_output_flags(parser)
    return parser
