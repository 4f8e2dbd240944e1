"""Host: pieces of a text, or of a file, that models read from their beginnings on."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int32

from jaxserve.core.errors import RequestError
from jaxserve.text.tokenizer import Tokenizer

CHARS_PER_TOKEN = 8  # more than texts have, so that most are read once


def cut_text(tokens: Sequence[int], length: int, name: str = "the text") -> Int32[np.ndarray, "N T"]:
    """Whole pieces of a text; the rest is left out. Raises RequestError where it has not one, or of one token each."""
    if length < 2:
        raise RequestError("a piece of the text must have at least 2 tokens: the first is not predicted", "context")
    num_pieces = len(tokens) // length
    if not num_pieces:
        raise RequestError(f"{name} has {len(tokens)} tokens, fewer than a piece of {length}", "text")
    return np.asarray(tokens[: num_pieces * length], np.int32).reshape(num_pieces, length)


def cut_file(path: Path, option: str, tokenizer: Tokenizer, length: int, most: int | None) -> Int32[np.ndarray, "N T"]:
    """The first pieces of a UTF-8 text, at most so many; None: all. No more of the file is read than they need.

    Raises RequestError as `cut_text`, and for a file that is not UTF-8. option: by which it was named, for messages.
    """
    name = f"{option} {path}"
    num_needed = None if most is None else (most + 1) * length  # where a text is cut off its last tokens may differ
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(None if num_needed is None else num_needed * CHARS_PER_TOKEN)
            tokens = tokenizer.encode(text)
            while num_needed is not None and len(tokens) < num_needed and (more := file.read(len(text))):
                text += more
                tokens = tokenizer.encode(text)
    except UnicodeDecodeError as error:
        raise RequestError(f"{name} is not UTF-8 text ({error})", "text") from None
    return cut_text(tokens, length, name)[:most]
