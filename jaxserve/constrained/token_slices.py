"""Host: `token_slices`: parts of a vocabulary that llguidance allows in a mask as a whole, if a text may go on by them.

A slice has the tokens that match its expression, and no earlier one's. Those of a slice that is not allowed as a whole
are tried one by one, 2 to 5 ms for all of 262,144. llguidance's own slices have tokens of up to 10 and 30 characters of
a JSON string: with a `maxLength` of 12 all longer ones than 10 are tried, and near its end all. With slices of every
fourth length a mask along texts of `scripts/prove grammars` takes 84 µs on average instead of 94, and 0.7 ms instead of
1.0 in the 99th percentile (Gemma's vocabulary, AMD EPYC).
"""

from typing import Any, cast

from llguidance import LLTokenizer

from jaxserve.constrained.canonical_tokenizer import CanonicalTokenizer

LENGTHS = (*range(4, 33, 4), 48, 64)
SPACES = r"[\x20\x0A\x0D\x09]+"
IN_STRING = r'[^"\\\x00-\x1F\x7F]'  # characters that stand for themselves in a string of JSON
SLICES = [SPACES, *(f"{IN_STRING}{{1,{length}}}" for length in LENGTHS), f"{IN_STRING}+"]


def sliced(tokens: CanonicalTokenizer) -> LLTokenizer:
    """What grammars are compiled for."""
    return LLTokenizer(cast(Any, tokens), slices=SLICES)
