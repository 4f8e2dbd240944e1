"""Host: argparse types that several verbs share."""

import argparse
from pathlib import Path

from jaxserve.bench.lengths import LengthRange


def count(text: str) -> int:
    """How many of something."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be an integer of at least 1")
    return int(text)


def whole_number(text: str) -> int:
    """A count that may be 0, or a seed."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} must be an integer of at least 0")
    return int(text)


def lengths(text: str) -> LengthRange:
    """A range of lengths."""
    try:
        return LengthRange.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def existing_file(text: str) -> Path:
    """A file to read."""
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"there is no file {text!r}")
    return Path(text)


def out_file(text: str) -> Path:
    """A file to write, in a folder that exists."""
    if not Path(text).absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {Path(text).parent} to write {Path(text).name} into")
    if Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a folder")
    return Path(text)
