"""Masks are what brute force finds: a token is allowed if and only if its bytes can continue the text."""

from collections.abc import Iterator
from random import Random

import numpy as np
import pytest

from jaxserve.constrained.matchers import Advance, Matchers
from jaxserve.core.options.structured_outputs import StructuredOutputsParams
from tests.jaxserve.constrained.small_vocabulary import EOS_IDS, PADDED_SIZE, vocabulary
from tests.jaxserve.constrained.viable_prefixes import after_all, allowed, is_complete, language

INTEGER = "-?(?:0|[1-9][0-9]*)"
ORDER = {
    "type": "object",
    "properties": {
        "orderId": {"type": "integer"},
        "order": {"enum": ["true", "é", "ab"]},
        "list": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
    },
    "required": ["orderId", "list"],
    "additionalProperties": False,
}
BOOLEANS = r"\[(?:(?:true|false)(?:, ?(?:true|false))?)?\]"
# Constraints beside a regular expression of the same texts.
CONSTRAINTS = {
    "regex": ({"regex": "(?:ab|b{2,5}c)+(?:é|true)?"}, "(?:ab|b{2,5}c)+(?:é|true)?"),
    "regex with slashes": ({"regex": "^a/b\\n*\"$"}, "a/b\n*\""),
    "choice": ({"choice": ["ab", "abb", "a.b", "<s>", "é\n\n"]}, r"ab|abb|a\.b|<s>|é\n\n"),
    "schema": (
        {"json": ORDER},
        rf'\{{"orderId": ?{INTEGER}(?:, ?"order": ?(?:"true"|"é"|"ab"))?, ?"list": ?{BOOLEANS}\}}',
    ),
    "compact schema": (
        {"json": ORDER, "disable_any_whitespace": True},
        rf'\{{"orderId":{INTEGER}(?:,"order":(?:"true"|"é"|"ab"))?,"list":{BOOLEANS.replace(" ?", "")}\}}',
    ),
    "lark": ({"grammar": 'start: "{" item ("," item)* "}"\nitem: WORD "=" /[0-9]{1,3}/\nWORD: "ab" | "true"'},
             r"\{(?:ab|true)=[0-9]{1,3}(?:,(?:ab|true)=[0-9]{1,3})*\}"),
    "gbnf": ({"grammar": 'root ::= "{" item ("," item)* "}"\nitem ::= ("ab" | "true") "=" [0-9]+'},
             r"\{(?:ab|true)=[0-9]+(?:,(?:ab|true)=[0-9]+)*\}"),
}  # fmt: skip


@pytest.fixture(scope="module")
def matchers() -> Iterator[Matchers]:
    matchers = Matchers(vocabulary())
    yield matchers
    matchers.close()


def tokens_of(mask: np.ndarray) -> set[int]:
    return set(np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist())


def expected(pattern: str, text: bytes, token_bytes, eos_ids) -> set[int]:
    state = after_all(language(pattern), text)
    return allowed(state, token_bytes) | (set(eos_ids) if is_complete(state) else set())


def walk(matchers: Matchers, params: StructuredOutputsParams, token_bytes, eos_ids, random: Random, max_tokens=60):
    """(text before, what follows) along a random text, up to its end."""
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


def check(pattern: str, text: bytes, found: Advance, token_bytes, eos_ids) -> None:
    assert found.error is None
    legal = tokens_of(found.mask)
    assert legal == expected(pattern, text, token_bytes, eos_ids)
    assert legal  # no dead end
    assert found.is_complete <= (legal == set(eos_ids))


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_masks_equal_brute_force(matchers, name):
    values, pattern = CONSTRAINTS[name]
    token_bytes = vocabulary().token_bytes
    for seed in range(6):
        for text, found in walk(matchers, StructuredOutputsParams(**values), token_bytes, EOS_IDS, Random(seed)):
            check(pattern, text, found, token_bytes, EOS_IDS)
            assert max(tokens_of(found.mask)) < PADDED_SIZE


def test_masks_of_another_language_are_noticed(matchers):
    """The control: the same walks, compared with an expression that allows one more b."""
    values, pattern = CONSTRAINTS["regex"]
    other = pattern.replace("{2,5}", "{2,6}")
    assert other != pattern
    token_bytes = vocabulary().token_bytes
    params = StructuredOutputsParams(**values)
    pairs = [pair for seed in range(6) for pair in walk(matchers, params, token_bytes, EOS_IDS, Random(seed))]
    assert any(tokens_of(found.mask) != expected(other, text, token_bytes, EOS_IDS) for text, found in pairs)
