"""Wiring: `jaxserve quantize SRC DST --scheme NAME`: writes a safetensors folder or a GGUF file with weights
of 4 or 8 bits."""

import argparse
import os
import sys
from functools import partial
from typing import Any

from checkpoints.quantized.forms.form_names import FORM_NAMES, GGUF_NAMES
from jaxserve.cli.args.arg_types import count, existing_file, number
from jaxserve.cli.args.output_model import MAX_SHARD_SIZE, add_folders, add_output_flags, byte_size
from jaxserve.cli.args.verb_parser import VerbParser
from jaxserve.core.options.engine_config import DTYPES

GGUF_SUFFIX = ".gguf"
SMOOTHED, NF4, GPTQ, AWQ = "w8a8", "nf4", "gptq-", "awq-"
ALPHA = 0.5
PIECE_LEN, MAX_PIECES = 256, 128
CALIBRATED_SHARD_SIZE = "500MB"  # an interrupted run computes the file that it was writing anew, which takes longer


def run(argv: list[str]) -> int:
    parser = _parser()
    args = parser.parse_args(argv)
    _check_options(parser, args)
    if args.calibration is None:
        os.environ["JAX_PLATFORMS"] = "cpu"  # nothing is computed: the accelerator stays free for other processes

    from checkpoints.sources import resolve
    from jaxserve.convert.convert_model import ConversionTarget, convert
    from jaxserve.core.progress_bars import LoadBar

    source = resolve(args.source, cache_dir=args.cache_dir, revision=args.revision)
    if args.scheme in GGUF_NAMES:
        return _write_gguf(args, source)
    default_size = MAX_SHARD_SIZE if args.calibration is None else CALIBRATED_SHARD_SIZE
    max_shard_bytes = args.max_shard_size or byte_size(default_size)
    target = ConversionTarget(
        args.folder, "safetensors", args.dtype, max_shard_bytes, args.overwrite, args.scheme, args.outliers
    )
    calibration = {} if args.calibration is None else _calibration(args, source)
    with LoadBar(not args.quiet, "Quantizing") as bar:
        is_new = convert(source, target, bar.update, **calibration)
    if not args.quiet:
        print(f"{args.folder} {'is ready' if is_new else 'was already complete: nothing to do'}", file=sys.stderr)
    return 0


def _write_gguf(args: argparse.Namespace, source: Any) -> int:
    from jaxserve.convert.convert_gguf import convert_to_gguf
    from jaxserve.core.progress_bars import LoadBar

    with LoadBar(not args.quiet, "Quantizing") as bar:
        no_tokenizer = convert_to_gguf(source, args.folder, args.scheme, bar.update, is_overwritten=args.overwrite)
    if no_tokenizer is not None:
        print(f"{args.folder} has no tokenizer, load it with one of a folder: {no_tokenizer}", file=sys.stderr)
    if not args.quiet:
        print(f"{args.folder} is ready", file=sys.stderr)
    return 0


def _check_options(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """An option that the scheme has no use for, or lacks, ends the command."""
    is_gguf = args.scheme in GGUF_NAMES
    if is_gguf != (args.folder.suffix == GGUF_SUFFIX):
        kind = f"one file: name a DST that ends in {GGUF_SUFFIX}" if is_gguf else "a folder, not a file"
        parser.error(f"--scheme {args.scheme} writes {kind}")
    for name in ("dtype", "max_shard_size"):
        if is_gguf and getattr(args, name) != parser.get_default(name):
            parser.error(f"--{name.replace('_', '-')} has no use with --scheme {args.scheme}")
    is_calibrated = args.scheme.startswith((GPTQ, AWQ))
    if is_calibrated and args.calibration is None:
        parser.error(f"--scheme {args.scheme} needs --calibration FILE")
    if args.calibration is not None and not is_calibrated and args.scheme not in (SMOOTHED, NF4):
        parser.error(f"--calibration has no use with --scheme {args.scheme}")
    for name, is_given in (("smooth", args.smooth is not None), ("outliers", args.outliers > 0)):
        if is_given and (args.scheme != SMOOTHED or args.calibration is None):
            parser.error(f"--{name} needs --scheme {SMOOTHED} and --calibration FILE")
    if args.smooth is not None and args.outliers:
        parser.error("--smooth has no use with --outliers, which takes its place")


def _calibration(args: argparse.Namespace, source: Any) -> dict[str, Any]:
    """What `convert` takes of it. The text is read now, the model when the first matrix that needs it is written."""
    from checkpoints.open_checkpoint import open_checkpoint
    from jaxserve.convert.awq_scales import AwqScales, FoldedHessians
    from jaxserve.convert.layer_sums import LayerSums
    from jaxserve.convert.smooth import Smoothing
    from jaxserve.core.errors import RequestError
    from jaxserve.core.options.engine_config import EngineConfig
    from jaxserve.engine.build.model_text import choose_tokenizer
    from jaxserve.engine.pure_model import load
    from jaxserve.functional.cut_text import cut_file
    from jaxserve.functional.layer_inputs import LARGEST, PRODUCTS

    with open_checkpoint(source) as checkpoint:
        tokenizer = choose_tokenizer(EngineConfig.create(args.source), checkpoint, checkpoint.folder)
    if tokenizer is None:
        raise RequestError(f"{args.source} has no tokenizer, which --calibration needs", "calibration")
    pieces = cut_file(args.calibration, "--calibration", tokenizer, PIECE_LEN, MAX_PIECES)
    cache_dir = None if args.cache_dir is None else str(args.cache_dir)
    options = {"revision": args.revision, "cache_dir": cache_dir, "dtype": args.dtype, "quantization": "dense"}
    is_w8a8 = args.scheme == SMOOTHED
    sums = LayerSums(partial(load, args.source, **options), pieces, LARGEST if is_w8a8 else PRODUCTS)
    if args.scheme.startswith(AWQ):
        scales = AwqScales(sums, int(args.scheme.partition("-g")[2]))
        return {"scales": scales, "sums": FoldedHessians(scales)}
    if is_w8a8 and not args.outliers:
        return {"scales": Smoothing(sums, ALPHA if args.smooth is None else args.smooth)}
    return {"sums": sums}


def _parser() -> argparse.ArgumentParser:
    parser = VerbParser(
        prog="jaxserve quantize",
        description="Write a model with the matrices of its layers in fewer bits: "
        "jaxserve quantize smollm2-135m-instruct ./smollm2-w8a8 --scheme w8a8. transformers and others read it, too. "
        "Embedding, head and norms stay as they are; in GGUF embedding and head are Q8_0 and norms float32. "
        "At most one matrix is in memory, a few times, with --calibration also the model's layers. "
        "Run the same command again to resume an interrupted conversion; `jaxserve bench quality` compares models.",
    )
    add_folders(parser, f"folder to write to; for {' and '.join(GGUF_NAMES)} a file that ends in {GGUF_SUFFIX}")
    parser.add_argument(
        "--scheme",
        choices=FORM_NAMES + GGUF_NAMES,
        required=True,
        help="int8: a scale for each row; w8a8: the same for products with activations of 8 bits; fp8: E4M3, a scale "
        "for each row, of some the one with the least error; int4-gN: a scale and a zero point for N values of a row; "
        "nf4: a factor for 64 values; awq-gN: like int4-gN, but large inputs have finer steps; gptq-gN: like int4-gN, "
        "but values make up for what those before have lost by rounding; q8_0, q4_0: blocks of 32 values with a "
        "factor, in a GGUF file",
    )
    parser.add_argument(
        "--calibration",
        type=existing_file,
        metavar="FILE",
        help=f"a UTF-8 text, of which the first {MAX_PIECES} pieces of {PIECE_LEN} tokens are read: for AWQ and GPTQ, "
        f"with {NF4} to choose codes by GPTQ, or with {SMOOTHED} to move outlying channels of the activations into the "
        "weights (SmoothQuant), or to find those of --outliers",
    )
    parser.add_argument(
        "--smooth",
        type=number(0, 1),
        metavar="ALPHA",
        help=f"how much of them is moved; the larger, the more (default: {ALPHA})",
    )
    parser.add_argument(
        "--outliers",
        type=count,
        default=0,
        metavar="K",
        help="instead of moving them, multiply up to K inputs of each matrix (fewer than it has) with uncoded "
        "weights: those of which the text has values above 6 (LLM.int8()). Others than jaxserve read the folder as w8a8"
        " without (default: 0)",
    )
    parser.add_argument(
        "--dtype",
        choices=DTYPES,
        default="auto",
        help="type of the other weights; auto: float32 if config.json says so, else bfloat16 (default: auto)",
    )
    add_output_flags(parser, f"{MAX_SHARD_SIZE}; with --calibration {CALIBRATED_SHARD_SIZE}")
    return parser
