"""Wiring: flags of the verbs that write a model: where it comes from, and the folder that gets it."""

import argparse
import re
from pathlib import Path

from jaxserve.cli.args.arg_types import MODEL_HELP

MAX_SHARD_SIZE = "5GB"
_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def add_folders(parser: argparse.ArgumentParser, destination: str = "folder to write to") -> None:
    """Source and destination."""
    parser.add_argument("source", metavar="SRC", help=MODEL_HELP)
    parser.add_argument("folder", metavar="DST", type=local_folder, help=destination)


def add_output_flags(parser: argparse.ArgumentParser, default_size: str = MAX_SHARD_SIZE) -> None:
    """All others. default_size: of files, in words."""
    parser.add_argument(
        "--max-shard-size",
        type=byte_size,
        help=f"size limit of a .safetensors file, such as 500MB (default: {default_size})",
    )
    parser.add_argument("--revision", help="branch, tag or commit of a Hugging Face model")
    parser.add_argument("--cache-dir", type=Path, help="folder of fetched models (default: the user's cache folder)")
    parser.add_argument("--overwrite", action="store_true", help="replace the model in the folder")
    parser.add_argument("--quiet", action="store_true", help="print no progress")


def byte_size(text: str) -> int:
    """Bytes of a size such as 500MB."""
    found = re.fullmatch(r"([0-9]{1,12})\s*([KMGT]B)?", text.strip().upper())
    if not found or int(found[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 500MB or 5GB")
    return int(found[1]) * _UNITS[found[2] or ""]


def local_folder(text: str) -> Path:
    """A folder of this machine."""
    if "://" in text:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a local folder: convert to one, then copy it (gcloud storage cp --recursive)"
        )
    return Path(text).expanduser()
