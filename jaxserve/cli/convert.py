"""Wiring: `jaxserve convert SRC DST`: writes a model of any readable format as a safetensors or an Orbax folder."""

import argparse
import os
import re
import sys
from pathlib import Path

from jaxserve.cli.args.arg_types import MODEL_HELP
from jaxserve.cli.args.verb_parser import VerbParser
from jaxserve.core.options.engine_config import DTYPES

MAX_SHARD_SIZE = "5GB"
_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


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
    max_shard_bytes = args.max_shard_size or _size(MAX_SHARD_SIZE)
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
    parser.add_argument("source", metavar="SRC", help=MODEL_HELP)
    parser.add_argument("folder", metavar="DST", type=_folder, help="folder to write to")
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
        "--max-shard-size",
        type=_size,
        help=f"size limit of a .safetensors file, such as 500MB (default: {MAX_SHARD_SIZE})",
    )
    parser.add_argument("--revision", help="branch, tag or commit of a Hugging Face model")
    parser.add_argument("--cache-dir", type=Path, help="folder of fetched models (default: the user's cache folder)")
    parser.add_argument("--overwrite", action="store_true", help="replace the model in DST")
    parser.add_argument("--quiet", action="store_true", help="print no progress")
    return parser


def _folder(text: str) -> Path:
    if "://" in text:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a local folder: convert to one, then copy it (gcloud storage cp --recursive)"
        )
    return Path(text).expanduser()


def _size(text: str) -> int:
    """Bytes of a size such as 500MB."""
    found = re.fullmatch(r"([0-9]{1,12})\s*([KMGT]B)?", text.strip().upper())
    if not found or int(found[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 500MB or 5GB")
    return int(found[1]) * _UNITS[found[2] or ""]
