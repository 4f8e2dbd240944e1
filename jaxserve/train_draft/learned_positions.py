"""Wiring: the positions of texts from which heads learn, in rows without the others: prompts, and what follows an end.

SmolLM2's texts have 38 % of those others, whose guesses would take as long.
"""

import numpy as np
from jaxtyping import Bool, Float, Int32

from jaxserve.train_draft.own_texts import OwnTexts


def learned_positions(
    texts: OwnTexts, hidden: Float[np.ndarray, "N L D"], num_before: int
) -> tuple[Int32[np.ndarray, "M L"], Bool[np.ndarray, "M L"], Float[np.ndarray, "M L D"]]:
    """Tokens, which of them are learned, and hidden states: the drawn part of one text after the other, each with the
    `num_before` positions before it, from which its first tokens are guessed. None of these is learned, so no guess of
    so many tokens ahead is held against another text. Zeros stand where a prompt has fewer, and at the end."""
    text_len = texts.tokens.shape[1]
    first, lengths = texts.starts - num_before, texts.ends - texts.starts + num_before
    rows = np.repeat(np.arange(len(first), dtype=np.int64), lengths)
    place = np.arange(len(rows), dtype=np.int64) - np.repeat(np.cumsum(lengths) - lengths - first, lengths)
    is_there = place >= 0
    is_own = place >= texts.starts[rows]

    def cut(values: np.ndarray) -> np.ndarray:
        padding = [(0, -len(values) % text_len)] + [(0, 0)] * (values.ndim - 1)
        return np.pad(values, padding).reshape(-1, text_len, *values.shape[1:])

    def taken(values: np.ndarray) -> np.ndarray:
        found = values[rows, np.maximum(place, 0)]
        found[~is_there] = 0
        return cut(found)

    return taken(texts.tokens), cut(is_own), taken(hidden)
