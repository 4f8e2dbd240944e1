"""Masks are what brute force finds: a token is allowed if and only if its bytes can continue the text."""

from collections.abc import Iterator
from random import Random

import pytest

from jaxserve.constrained.matchers import Matchers
from jaxserve.core.options.structured_outputs import StructuredOutputsParams
from tests.jaxserve.constrained.random_walks import expected, tokens_of, walk
from tests.jaxserve.constrained.small_vocabulary import EOS_IDS, PADDED_SIZE, vocabulary
from tests.jaxserve.constrained.viable_prefixes import NOTHING, TokenTree, after_all, language

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
# Constraints, each with a regular expression of the same texts.
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

TOKEN_BYTES = vocabulary().token_bytes
TOKENS = TokenTree(TOKEN_BYTES)


@pytest.fixture(scope="module")
def matchers() -> Iterator[Matchers]:
    matchers = Matchers(vocabulary())
    yield matchers
    matchers.close()


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_masks_equal_brute_force(matchers, name):
    values, pattern = CONSTRAINTS[name]
    for seed in range(6):
        for text, found in walk(matchers, StructuredOutputsParams(**values), TOKEN_BYTES, EOS_IDS, Random(seed)):
            legal = tokens_of(found.mask)
            assert found.error is None
            assert legal == expected(pattern, text, TOKENS, EOS_IDS)
            assert legal  # no dead end
            assert max(legal) < PADDED_SIZE
            assert found.may_end == (set(EOS_IDS) <= legal) == bool(set(EOS_IDS) & legal)


def test_masks_of_another_language_are_noticed(matchers):
    """The control: the same walks, compared with an expression that allows one more b."""
    values, pattern = CONSTRAINTS["regex"]
    other = pattern.replace("{2,5}", "{2,6}")
    assert other != pattern
    params = StructuredOutputsParams(**values)
    pairs = [pair for seed in range(6) for pair in walk(matchers, params, TOKEN_BYTES, EOS_IDS, Random(seed))]
    assert any(tokens_of(found.mask) != expected(other, text, TOKENS, EOS_IDS) for text, found in pairs)


def test_the_tree_of_tokens_finds_what_trying_each_token_finds():
    for text in (b"", b"ab", b"abbb", b"bbc\xc3"):
        state = after_all(language(CONSTRAINTS["regex"][1]), text)
        one_by_one = {i for i, data in enumerate(TOKEN_BYTES) if data and after_all(state, data) != NOTHING}
        assert TOKENS.allowed(state) == one_by_one
        assert one_by_one
