"""Pairs of a context and a continuation, as text or token ids, are read as token ids of both parts."""

import pytest

from jaxserve.core.errors import RequestError
from jaxserve.engine.tasks.score_inputs import read_pairs
from jaxserve.text.tokenizer_from_gguf import tokenizer_from_gguf
from tests.jaxserve.text.small_vocab import SPACE, byte_level, sentencepiece

PLAIN = tokenizer_from_gguf(byte_level())
BEGINNING = tokenizer_from_gguf(sentencepiece())  # puts <s> before each text


def pieces(tokenizer, context, continuation):
    (pair,) = read_pairs(tokenizer, [(context, continuation)])
    return [tokenizer.id_to_piece(i) for i in pair.context], [tokenizer.id_to_piece(i) for i in pair.continuation]


def test_both_texts_are_encoded_as_one_and_cut_after_the_context():
    assert pieces(PLAIN, "hello", " hello") == (["hello"], ["\u0120hello"])
    assert pieces(BEGINNING, "hello", " hello") == (["<s>", SPACE + "hello"], [SPACE + "hello"])


def test_spaces_at_the_end_of_the_context_go_to_the_continuation():
    assert pieces(PLAIN, "hello ", "hello") == (["hello"], ["\u0120hello"])
    assert pieces(PLAIN, "hello  \n", "x") == (["hello"], ["\u0120", "\u0120", "\u010a", "x"])
    (pair,) = read_pairs(PLAIN, [("hello ", "hello")])
    assert pair.text == "hello"


def test_a_continuation_that_joins_the_context_is_cut_by_the_number_of_tokens():
    """ "he" and "hello" are one token each, so the cut would leave nothing, which is an error."""
    assert pieces(PLAIN, "he", "llx") == (["he"], ["x"])  # encoded together: hell, x
    with pytest.raises(RequestError, match="pair 0: the continuation adds no token"):
        pieces(PLAIN, "he", "llo")


def test_an_empty_context_is_the_token_that_begins_a_text():
    for context in ("", []):
        assert pieces(BEGINNING, context, "hello") == (["<s>"], [SPACE + "hello"])
        with pytest.raises(RequestError, match="pair 0: the context is empty"):
            pieces(PLAIN, context, "hello")


def test_token_ids_are_taken_as_they_are_on_either_side():
    pairs = [([5, 6], [7]), ([5, 6], "hello"), ("hello", [7]), ({"prompt_token_ids": [8]}, {"prompt": "e"})]
    hello = PLAIN.encode("hello")
    read = read_pairs(PLAIN, pairs)
    assert [(pair.context, pair.continuation) for pair in read] == [
        ([5, 6], [7]),
        ([5, 6], hello),
        (hello, [7]),
        ([8], [ord("e")]),
    ]
    assert [pair.text for pair in read] == [None, "hello", None, "e"]
    assert read_pairs(None, pairs[:1])[0].continuation == [7]


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ("hello", "must be a list"),
        ([("a", "b"), ("a",)], "pair 1 must be"),
        ([("a", "b"), "ab"], "pair 1 must be"),
        ([(3, "b")], "pair 0: the context must be"),
        ([("a", [])], "pair 0: the continuation is empty"),
        ([("a", "")], "pair 0: the continuation adds no token"),
        ([([1, True], "b")], "pair 0: the context"),
    ],
)
def test_unreadable_pairs_are_named(pairs, message):
    with pytest.raises(RequestError, match=message):
        read_pairs(PLAIN, pairs)


def test_text_needs_a_tokenizer():
    with pytest.raises(RequestError, match="no tokenizer"):
        read_pairs(None, [([1], "b")])
