"""With SmolLM2's tokenizer masks equal brute force over its vocabulary; forced tokens are those of each tokenizer."""

from random import Random

import pytest

from jaxserve.constrained.canonical_tokenizer import CanonicalTokenizer
from jaxserve.constrained.grammar_vocabulary import read_vocabulary
from jaxserve.constrained.matchers import Matchers
from jaxserve.core.options.structured_outputs import StructuredOutputsParams
from jaxserve.engine.build.constraint_vocabulary import constraint_vocabulary
from jaxserve.text.plain_text_tokenizer import PlainTextTokenizer
from jaxserve.text.tokenizer_from_gguf import tokenizer_from_gguf
from tests.jaxserve.constrained.random_walks import expected, tokens_of, walk
from tests.jaxserve.constrained.small_vocabulary import PADDED_SIZE, TOKENIZER, vocabulary
from tests.jaxserve.constrained.viable_prefixes import TokenTree
from tests.jaxserve.text.small_vocab import byte_level, sentencepiece
from tests.support.golden_tokenizers import tokenizer_of

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[A-Za-zé ]{1,12}$"},
        "age": {"type": "integer"},
        "tags": {"type": "array", "items": {"enum": ["red", "green", "reddish", "été"]}},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
TAG = '"(?:red|green|reddish|été)"'
TEXTS = (
    r'\{"name": ?"(?:[A-Za-z ]|é){1,12}", ?"age": ?-?(?:0|[1-9][0-9]*), ?"tags": ?'
    rf"\[(?:{TAG}(?:, ?{TAG})*)?\]\}}"
)
TOKENIZERS = {
    "small": lambda: TOKENIZER,
    "byte-level": lambda: tokenizer_from_gguf(byte_level()),
    "SentencePiece": lambda: tokenizer_from_gguf(sentencepiece()),
    "no space before": lambda: tokenizer_from_gguf(sentencepiece(add_space_prefix=False)),
    "plain text": lambda: PlainTextTokenizer(TOKENIZER),
}


@pytest.fixture(scope="module")
def smollm2():
    return tokenizer_of("smollm2-135m-instruct")


@pytest.fixture(scope="module")
def matchers(smollm2):
    matchers = Matchers(constraint_vocabulary(smollm2, smollm2.vocab_size + 64))
    yield matchers
    matchers.close()


def test_masks_equal_brute_force_over_a_real_vocabulary(smollm2, matchers):
    token_bytes, num_masks = constraint_vocabulary(smollm2, smollm2.vocab_size).token_bytes, 0
    tokens = TokenTree(token_bytes)
    for params, pattern in [
        ({"json": PERSON}, TEXTS),
        ({"regex": "(?:[a-f]+[0-9]{2,4}é?)+"}, "(?:[a-f]+[0-9]{2,4}é?)+"),
    ]:
        for seed in range(3):
            constraint = StructuredOutputsParams(**params)
            for text, found in walk(matchers, constraint, token_bytes, smollm2.eos_ids, Random(seed), max_tokens=15):
                assert found.error is None
                assert tokens_of(found.mask) == expected(pattern, text, tokens, smollm2.eos_ids)
                num_masks += 1
    assert num_masks > 40


def test_special_tokens_are_never_allowed(smollm2, matchers):
    """Not even where their spelling is asked for, or everything is allowed."""
    matchers.start(0, StructuredOutputsParams(regex=r"(?s:.*)"), ())
    matchers.start(1, StructuredOutputsParams(regex=r"<\|im_start\|>[a-z]"), ())
    found = matchers.advance({0: (), 1: ()})
    matchers.drop(0)
    matchers.drop(1)
    assert len(tokens_of(found[0].mask)) > 48_000
    assert not (tokens_of(found[0].mask) | tokens_of(found[1].mask) | {*found[1].forced}) & smollm2.special_ids
    assert b"".join(smollm2.token_bytes[i] for i in found[1].forced) == b"<|im_start|>"


@pytest.mark.parametrize("text", ["orderNumber", '{"zip code": "été', "name_of_the_person", "x" * 50])
def test_forced_tokens_are_those_of_the_whole_text(smollm2, matchers, text):
    """Up to the last ones, which depend on what follows."""
    matchers.start(0, StructuredOutputsParams(regex=text.replace("{", r"\{") + "[1-9]"), smollm2.eos_ids)
    forced = list(matchers.advance({0: ()})[0].forced)
    matchers.drop(0)
    whole = smollm2.encode(text + "1")
    assert forced == whole[: len(forced)]
    assert len(forced) >= len(whole) - 3


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("text", ["hello", " hello", "he llo", "é\n", "<s></s>", "<|end|>", "a  b"])
def test_a_part_of_a_text_becomes_tokens_with_its_bytes(name, text):
    tokenizer = TOKENIZERS[name]()
    record = constraint_vocabulary(tokenizer, tokenizer.vocab_size)
    canonical = CanonicalTokenizer(record.token_bytes, record.vocab_size, record.tokenizer_json)
    ids = canonical(text)
    assert b"".join(record.token_bytes[i] for i in ids) == text.encode()
    assert not tokenizer.special_ids.intersection(ids)
    if name == "byte-level" and "<" not in text:
        assert ids == tokenizer.encode(text, add_special_tokens=False)


def test_a_text_that_the_tokenizer_changes_takes_the_fallback():
    record = constraint_vocabulary(tokenizer_from_gguf(sentencepiece()), 300)
    canonical = CanonicalTokenizer(record.token_bytes, record.vocab_size, record.tokenizer_json)
    canonical.fallback = lambda text: [7, len(text)]
    assert canonical("\u2581x") == [7, 2]


def test_a_vocabulary_is_read_as_it_was_written():
    for record in (vocabulary(), type(vocabulary())(vocabulary().token_bytes, PADDED_SIZE)):
        assert read_vocabulary(record.file) == record
        assert record.file == record.file
    assert vocabulary().token_bytes[TOKENIZER.eos_ids[0]] == b""
    assert vocabulary().token_bytes[0xFF] == b""
    assert len(constraint_vocabulary(TOKENIZER, 100).token_bytes) == 100
