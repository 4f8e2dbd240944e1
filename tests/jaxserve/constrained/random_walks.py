"""Random texts along masks, and the masks that brute force finds."""

from collections.abc import Iterator, Sequence
from random import Random

import numpy as np

from jaxserve.constrained.matchers import Advance, Matchers
from jaxserve.core.options.structured_outputs import StructuredOutputsParams
from tests.jaxserve.constrained.viable_prefixes import TokenTree, after_all, is_complete, language


def tokens_of(mask: np.ndarray) -> set[int]:
    return set(np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist())


def expected(pattern: str, text: bytes, tokens: TokenTree, eos_ids: Sequence[int]) -> set[int]:
    """The tokens that may follow a text in the language of a pattern, ends included."""
    state = after_all(language(pattern), text)
    return tokens.allowed(state) | (set(eos_ids) if is_complete(state) else set())


def walk(
    matchers: Matchers,
    params: StructuredOutputsParams,
    token_bytes: Sequence[bytes],
    eos_ids: Sequence[int],
    random: Random,
    max_tokens: int = 60,
) -> Iterator[tuple[bytes, Advance]]:
    """The text so far, and what follows, along a random text up to its end."""
    matchers.start(0, params, eos_ids)
    try:
        text, new = b"", ()
        for _ in range(max_tokens):
            found = matchers.advance({0: new})[0]
            text += b"".join(token_bytes[i] for i in found.forced)
            yield text, found
            legal = tokens_of(found.mask) - set(eos_ids)
            if not legal:
                return
            new = (random.choice(sorted(legal)),)
            text += token_bytes[new[0]]
    finally:
        matchers.drop(0)
