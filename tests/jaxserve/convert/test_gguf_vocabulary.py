"""A tokenizer that is written into a GGUF file gives the same ids; one that GGUF cannot describe is refused."""

import json

import pytest
from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors

from jaxserve.convert.gguf_splits import NoVocabulary, splits_name
from jaxserve.convert.gguf_vocabulary import gguf_vocabulary
from jaxserve.text import tokenizer as text
from jaxserve.text.chat_template import ChatTemplate
from jaxserve.text.pre_tokenizers import BY_NAME, DIGIT, GPT2
from jaxserve.text.tokenizer_from_gguf import END_OF_TURN, tokenizer_from_gguf
from tests.jaxserve.text.small_vocab import byte_level, sentencepiece
from tests.support.golden_tokenizers import metadata_of, template_of, tokenizer_of

TEXTS = ("hello hello", "o <|im_end|>hell<tool>", "  hé</s>llo  ", "", " 1,234\n\n  x東京🎉", "helloll  hell")
NO_TEMPLATE = ChatTemplate(None)
SMALL = {
    "bytes": byte_level(bos_token_id=261, eos_token_id=262, add_bos_token=True),
    "bytes, no ends": byte_level(pre="qwen2"),
    "pieces": sentencepiece(eot_token_id=1, add_eos_token=True),
    "pieces without a space": sentencepiece(add_space_prefix=False, add_bos_token=False),
}


def assert_alike(ours, theirs):
    for sample in TEXTS:
        ids = theirs.encode(sample)
        assert ours.encode(sample) == ids
        assert ours.decode(ids) == theirs.decode(ids)
    assert (ours.bos_id, ours.special_ids) == (theirs.bos_id, theirs.special_ids)
    assert set(ours.eos_ids) == set(theirs.eos_ids)


@pytest.mark.parametrize("name", SMALL)
def test_small_vocabularies_are_read_back(name):
    theirs = tokenizer_from_gguf(SMALL[name])
    written = gguf_vocabulary(theirs, ChatTemplate("{{ x }}", {"pad_token": "he"}), theirs.vocab_size + 3)
    assert_alike(tokenizer_from_gguf(written), theirs)
    assert written["tokenizer.chat_template"] == "{{ x }}"
    assert written["tokenizer.ggml.padding_token_id"] == theirs.backend.token_to_id("he")
    assert len(written["tokenizer.ggml.tokens"]) == theirs.vocab_size + 3
    assert written["tokenizer.ggml.token_type"][-3:] == [5, 5, 5]


def test_a_published_vocabulary_has_the_fields_of_its_own_file():
    theirs, name = metadata_of("smollm2-135m-instruct"), "smollm2-135m-instruct"
    tokenizer = tokenizer_of(name)
    ours = gguf_vocabulary(tokenizer, template_of(name), tokenizer.vocab_size)
    for key in ours.keys() & theirs.keys():
        assert list(ours[key]) == list(theirs[key]) if isinstance(ours[key], list) else ours[key] == theirs[key], key
    assert {"tokens", "token_type", "merges", "pre"} <= {key.rpartition(".")[2] for key in ours.keys() & theirs.keys()}


@pytest.mark.parametrize("name", BY_NAME)
def test_every_named_splitting_is_found_again(name):
    backend = tokenizer_from_gguf(byte_level(pre=name)).backend
    found = BY_NAME[splits_name(json.loads(backend.to_str()))]
    assert (found.splits, found.is_nfc, found.ignore_merges) == (
        BY_NAME[name].splits,
        BY_NAME[name].is_nfc,
        BY_NAME[name].ignore_merges,
    )


def test_other_spellings_of_a_splitting_have_its_name():
    backend = tokenizer_from_gguf(byte_level()).backend
    with_regex = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), with_regex])
    assert BY_NAME[splits_name(json.loads(backend.to_str()))].splits == (DIGIT, GPT2)


def changed(metadata, change, **more):
    """A tokenizer whose backend is changed."""
    backend = Tokenizer.from_str(tokenizer_from_gguf(metadata).backend.to_str())
    change(backend)
    return text.Tokenizer(backend, **more)


def setter(name, value):
    return lambda backend: setattr(backend, name, value)


BYTES, PIECES = SMALL["bytes, no ends"], SMALL["pieces"]
OTHERS = {
    "its normalizer Lowercase": (BYTES, setter("normalizer", normalizers.Lowercase())),
    "expressions that have no name": (
        BYTES,
        setter(
            "pre_tokenizer",
            pre_tokenizers.Sequence(
                [
                    pre_tokenizers.Split(Regex("x+"), "isolated"),
                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
                ]
            ),
        ),
    ),
    "its step Digits": (
        BYTES,
        setter("pre_tokenizer", pre_tokenizers.Sequence([pre_tokenizers.Digits(), pre_tokenizers.ByteLevel(False)])),
    ),
    "in a way that has no name": (BYTES, setter("pre_tokenizer", pre_tokenizers.Whitespace())),
    "its step Whitespace": (PIECES, setter("pre_tokenizer", pre_tokenizers.Whitespace())),
    "normalizes text": (PIECES, setter("normalizer", normalizers.NFKC())),
    "surrounds texts": (
        BYTES,
        setter(
            "post_processor",
            processors.TemplateProcessing(single=["<tool>", "$A"], special_tokens=[("<tool>", 263)]),
        ),
    ),
}


@pytest.mark.parametrize("said", OTHERS)
def test_what_gguf_has_no_words_for_is_refused(said):
    metadata, change = OTHERS[said]
    tokenizer = changed(metadata, change)
    with pytest.raises(NoVocabulary, match=said):
        gguf_vocabulary(tokenizer, NO_TEMPLATE, tokenizer.vocab_size)


def test_merges_that_scores_do_not_give_and_more_ends_than_names_are_refused():
    def without_the_last(backend):
        state = json.loads(backend.to_str())
        merges = [tuple(pair) for pair in state["model"]["merges"]]
        backend.model = type(backend.model)(state["model"]["vocab"], merges[:-1], byte_fallback=True)

    tokenizer = changed(PIECES, without_the_last)
    with pytest.raises(NoVocabulary, match="are not those of scores"):
        gguf_vocabulary(tokenizer, NO_TEMPLATE, tokenizer.vocab_size)
    many = changed(BYTES, setter("decoder", decoders.ByteLevel()), eos_ids=(1, 2, 3, 4))
    with pytest.raises(NoVocabulary, match="at most 3 tokens that end a text"):
        gguf_vocabulary(many, NO_TEMPLATE, many.vocab_size)
    with pytest.raises(NoVocabulary, match="a vocabulary of 100"):
        gguf_vocabulary(many, NO_TEMPLATE, 100)
    assert "<|im_end|>" in END_OF_TURN  # which the small vocabulary has
