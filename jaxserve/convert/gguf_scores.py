"""Host: scores of SentencePiece's pieces from the merges of a tokenizer.json, which were made of such scores."""

from collections.abc import Sequence
from typing import Any

from jaxserve.convert.gguf_splits import NoVocabulary
from jaxserve.text.token_bytes import SPACE
from jaxserve.text.tokenizer_from_gguf import USER_DEFINED, merges_of

UNMERGED = -1e6
_TO_PIECES = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
# Splits nothing: the normalizer has replaced all spaces before.
_INERT = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}


def adds_space(state: dict[str, Any]) -> bool:
    """Whether a text gets a space in front. Raises `NoVocabulary` for other changes of a text."""
    if state["pre_tokenizer"] not in (None, _INERT):
        raise NoVocabulary(f"its step {state['pre_tokenizer']['type']} has no name in GGUF")
    match state["normalizer"]:
        case {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": str(first)}, step]}:
            if (first, step) == (SPACE, _TO_PIECES):
                return True
        case step:
            if step == _TO_PIECES:
                return False
    raise NoVocabulary("it normalizes text in a way that has no name in GGUF")


def scores_of(pieces: Sequence[str], token_types: Sequence[int], merges: Sequence[Sequence[str]]) -> list[float]:
    """The earlier a piece is merged, the higher its score; whole numbers, which float32 holds.

    Raises `NoVocabulary` where a reader, which tries all pairs of pieces, would merge in another order.
    """
    results = [left + right for left, right in merges]
    ranks = dict[str, int]()
    for result in results:
        ranks.setdefault(result, len(ranks))
    scores = [-float(ranks[piece]) if piece in ranks else UNMERGED for piece in pieces]
    whole = {piece for piece, token_type in zip(pieces, token_types, strict=True) if token_type == USER_DEFINED}
    read = [left + right for left, right in merges_of(pieces, token_types, scores)]
    if [piece for piece in read if piece not in whole] != [piece for piece in results if piece not in whole]:
        raise NoVocabulary("its merges are not those of scores of pieces")
    return scores
