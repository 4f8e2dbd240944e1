"""Wiring: `jaxserve merge-lora MODEL ADAPTER --output FOLDER`: writes a model with an adapter in its weights."""

import argparse
import os
import sys

from jaxserve.cli.args.arg_types import MODEL_HELP
from jaxserve.cli.args.output_model import MAX_SHARD_SIZE, add_output_flags, byte_size, local_folder
from jaxserve.cli.args.verb_parser import VerbParser
from jaxserve.core.options.engine_config import DTYPES


def run(argv: list[str]) -> int:
    args = _parser().parse_args(argv)
    os.environ["JAX_PLATFORMS"] = "cpu"  # products of numpy: the accelerator stays free for other processes

    from checkpoints.adapters.read_adapter import read_adapter
    from checkpoints.open_checkpoint import open_checkpoint
    from checkpoints.sources import resolve
    from jaxserve.convert.convert_model import ConversionTarget, convert
    from jaxserve.core.progress_bars import LoadBar
    from jaxserve.engine.build.adapter_reading import matrix_shapes
    from jaxserve.runner.load_weights import read_config

    source = resolve(args.model, cache_dir=args.cache_dir, revision=args.revision)
    with open_checkpoint(source) as checkpoint:
        model = read_config(checkpoint)
    shapes = matrix_shapes(model)
    highest = max(map(max, shapes.values()))
    cache_dir = None if args.cache_dir is None else str(args.cache_dir)
    adapter = read_adapter(args.adapter, shapes, model.num_layers, highest, cache_dir=cache_dir)
    max_shard_bytes = args.max_shard_size or byte_size(MAX_SHARD_SIZE)
    target = ConversionTarget(args.output, "safetensors", args.dtype, max_shard_bytes, args.overwrite)
    with LoadBar(not args.quiet, "Merging") as bar:
        is_new = convert(source, target, bar.update, adapter=adapter)
    if not args.quiet:
        print(f"{args.output} {'is ready' if is_new else 'was already complete: nothing to do'}", file=sys.stderr)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = VerbParser(
        prog="jaxserve merge-lora",
        description="Write a model with a LoRA adapter merged into its weights, as a Hugging Face folder: "
        "jaxserve merge-lora org/model ./adapter --output ./merged. Quantized weights are decoded. Sums are "
        "computed in float32 and rounded once. Run the same command again to resume an interrupted one.",
    )
    parser.add_argument("model", help=MODEL_HELP)
    parser.add_argument(
        "adapter",
        help="a folder with adapter_config.json and adapter_model.safetensors, as PEFT writes it, gs://BUCKET/FOLDER, "
        "or a Hugging Face id",
    )
    parser.add_argument("--output", type=local_folder, required=True, metavar="FOLDER", help="folder to write to")
    parser.add_argument(
        "--dtype",
        choices=DTYPES,
        default="auto",
        help="type of the written weights; auto: float32 if config.json says so, else bfloat16 (default: auto)",
    )
    add_output_flags(parser)
    return parser
