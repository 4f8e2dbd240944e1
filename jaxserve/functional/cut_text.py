"""Host: `cut_text`: pieces of a text that models read from their beginnings on."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int32

from jaxserve.core.errors import RequestError


def cut_text(tokens: Sequence[int], length: int) -> Int32[np.ndarray, "N T"]:
    """Whole pieces of a text; the rest is left out. Raises RequestError where it has not one, or of one token each."""
    if length < 2:
        raise RequestError("a piece of the text must have at least 2 tokens: the first is not predicted", "context")
    num_pieces = len(tokens) // length
    if not num_pieces:
        raise RequestError(f"the text has {len(tokens)} tokens, fewer than a piece of {length}", "text")
    return np.asarray(tokens[: num_pieces * length], np.int32).reshape(num_pieces, length)
