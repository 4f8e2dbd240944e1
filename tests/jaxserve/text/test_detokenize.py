"""Streamed text equals the decoding of the whole sequence, for any division of the tokens."""

import numpy as np
import pytest

from jaxserve.text.detokenize import Detokenizer
from jaxserve.text.tokenizer_from_gguf import tokenizer_from_gguf
from tests.jaxserve.text.small_vocab import SPACE, byte_level, sentencepiece
from tests.support.golden_tokenizers import ALL, goldens, tokenizer_of


def streamed(detokenizer, ids, rng, prompt_ids=(), **options):
    stream = detokenizer.stream(prompt_ids, **options)
    texts, start = [], 0
    while start < len(ids):
        stop = start + int(rng.integers(0, 4))
        texts.append(stream.push(ids[start:stop]))
        start = stop
    return "".join(texts) + stream.finish()


def byte_ids(tokenizer):
    """Byte → id, for the vocabulary's single-byte tokens."""
    return {data[0]: i for i, data in enumerate(tokenizer.token_bytes) if len(data) == 1}


def some_bytes(rng, wellformed):
    characters = "".join(map(chr, rng.integers(0x80, 0xD7FF, 2))) + chr(int(rng.integers(0x10000, 0x10FFFF)))
    data = characters.encode()
    return data if wellformed else data[: int(rng.integers(0, 4))] + rng.bytes(1)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("skip_special_tokens", [True, False])
def test_streams_of_arbitrary_ids_equal_the_decoding_of_the_whole(name, skip_special_tokens):
    tokenizer, rng = tokenizer_of(name), np.random.default_rng(0)
    detokenizer, bytes_to_id = Detokenizer(tokenizer), byte_ids(tokenizer)
    for _ in range(200):
        ids = rng.integers(0, tokenizer.vocab_size, 12).tolist()
        spelled = [bytes_to_id[byte] for byte in some_bytes(rng, wellformed=False) if byte in bytes_to_id]
        ids[4:6] = [*spelled, int(rng.choice(sorted(tokenizer.special_ids)))]
        whole = tokenizer.decode(ids, skip_special_tokens)
        assert streamed(detokenizer, ids, rng, skip_special_tokens=skip_special_tokens) == whole


@pytest.mark.parametrize("name", ALL)
def test_streams_of_every_text_of_the_corpus_equal_the_decoding_of_the_whole(name):
    tokenizer, rng = tokenizer_of(name), np.random.default_rng(4)
    detokenizer = Detokenizer(tokenizer)
    for ids in goldens()["models"][name]["ids"]:
        for shows_special in (True, False):
            whole = tokenizer.decode(ids, not shows_special)
            assert streamed(detokenizer, ids, rng, skip_special_tokens=not shows_special) == whole


@pytest.mark.parametrize("name", ["smollm2-135m-instruct", "qwen3", "llama3_1"])
def test_byte_level_decoding_is_that_of_tokenizers_for_any_ids(name):
    tokenizer, rng = tokenizer_of(name), np.random.default_rng(1)
    for _ in range(300):
        ids = rng.integers(0, tokenizer.vocab_size, 12).tolist()
        assert tokenizer.decode(ids) == tokenizer.backend.decode(ids)
        assert tokenizer.decode(ids, False) == tokenizer.backend.decode(ids, skip_special_tokens=False)


@pytest.mark.parametrize("name", ["gemma-3-270m", "gemma3"])
def test_byte_fallback_decoding_is_that_of_tokenizers_unless_a_run_of_bytes_is_partly_malformed(name):
    tokenizer, rng = tokenizer_of(name), np.random.default_rng(2)
    bytes_to_id = {i - 238: i for i in range(238, 494)}
    letter = tokenizer.backend.token_to_id("a")
    for _ in range(300):
        ids = [i for i in rng.integers(0, tokenizer.vocab_size, 12).tolist() if not 238 <= i < 494]
        ids += [letter, *(bytes_to_id[byte] for byte in some_bytes(rng, wellformed=True)), letter]
        ids += [bytes_to_id[0xE2], bytes_to_id[0x82], letter, bytes_to_id[0xFF], letter]
        assert tokenizer.decode(ids) == tokenizer.backend.decode(ids)
    newline_then_half = [letter, bytes_to_id[0x0A], bytes_to_id[0xE2], bytes_to_id[0x82]]
    assert tokenizer.decode(newline_then_half) == "a\n\ufffd\ufffd"
    assert tokenizer.backend.decode(newline_then_half) == "a\ufffd\ufffd\ufffd"


@pytest.mark.parametrize("name", ALL)
def test_prompt_and_output_read_as_one_decoding(name):
    tokenizer, rng = tokenizer_of(name), np.random.default_rng(3)
    detokenizer = Detokenizer(tokenizer)
    for ids in goldens()["models"][name]["ids"]:
        cut = int(rng.integers(0, len(ids) + 1))
        first, second = detokenizer.stream(), detokenizer.stream(ids[:cut])
        assert first.push(ids[:cut]) + second.push(ids[cut:]) + second.finish() == tokenizer.decode(ids)


def test_a_completion_keeps_the_space_that_divides_it_from_the_prompt():
    metadata = sentencepiece()
    tokenizer = tokenizer_from_gguf(metadata)
    detokenizer, word = Detokenizer(tokenizer), metadata["tokenizer.ggml.tokens"].index(SPACE + "hello")
    assert tokenizer.decode([word, word]) == "hello hello"
    assert detokenizer.stream([1, word]).push([word]) == " hello"
    for prompt in ([], [1]):
        start = detokenizer.stream(prompt)
        assert (start.push([]), start.push([1]), start.push([word]), start.push([word])) == ("", "", "hello", " hello")


def test_a_character_that_the_prompt_begins_belongs_whole_to_the_completion():
    for metadata in (byte_level(), sentencepiece()):
        tokenizer = tokenizer_from_gguf(metadata)
        detokenizer, ids = Detokenizer(tokenizer), byte_ids(tokenizer)
        euro = [ids[byte] for byte in "x\u20ac".encode()]
        for cut in (2, 3):
            assert detokenizer.stream(euro[:cut]).push(euro[cut:]) == "\u20ac"
        assert detokenizer.stream(euro).push([ids[ord("h")]]) == "h"
        unfinished = detokenizer.stream(euro[:2])
        assert unfinished.push([ids[ord("h")]]) == "\ufffdh"
        only_rest = detokenizer.stream([ids[byte] for byte in "\u20ac\u20ac".encode()[1:5]])
        assert only_rest.push([ids[byte] for byte in "\u20ac".encode()[2:]]) == "\u20ac"


def test_no_part_of_a_character_is_shown():
    tokenizer = tokenizer_from_gguf(byte_level())
    stream, ids = Detokenizer(tokenizer).stream(), byte_ids(tokenizer)
    family = "\U0001f469\u200d\U0001f467"
    shown = [stream.push([ids[byte]]) for byte in family.encode()]
    assert [text for text in shown if text] == list(family)
    assert "\ufffd" not in "".join(shown)
    assert stream.finish() == ""


def test_a_character_cut_off_at_the_end_is_shown_as_a_replacement_once():
    for metadata, replacements in ((byte_level(), "\ufffd"), (sentencepiece(), "\ufffd\ufffd\ufffd")):
        tokenizer = tokenizer_from_gguf(metadata)
        stream, ids = Detokenizer(tokenizer).stream(), byte_ids(tokenizer)
        cut_off = [ids[byte] for byte in "\U0001f600".encode()[:3]]
        assert stream.push(cut_off) == ""
        assert stream.finish() == replacements == tokenizer.decode(cut_off) == tokenizer.backend.decode(cut_off)
        assert stream.finish() == ""


def test_the_padding_of_a_models_vocabulary_adds_nothing():
    tokenizer = tokenizer_from_gguf(byte_level())
    size = tokenizer.vocab_size
    assert Detokenizer(tokenizer, vocab_size=size + 10).stream().push([65, size + 9, 66]) == "AB"
    assert tokenizer.decode([65, size + 9, 66]) == "AB"


def test_a_token_alone_shows_its_name_or_what_it_holds_of_a_character():
    tokenizer = tokenizer_from_gguf(byte_level())
    detokenizer = Detokenizer(tokenizer)
    end = tokenizer.backend.token_to_id("<|end|>") or 0
    assert [detokenizer.token_text(i) for i in (end, 65, 0xE2)] == ["<|end|>", "A", "\ufffd"]


def test_chosen_special_tokens_are_shown():
    tokenizer = tokenizer_from_gguf(byte_level())
    detokenizer = Detokenizer(tokenizer)
    ids = [104, 261, 105, 262]
    for shown, text in (((), "hi"), ((261,), "h<|end|>i"), ((262, 261), "h<|end|>i<|im_end|>"), ((104,), "hi")):
        assert detokenizer.stream((), True, shown).push(ids) == text
        assert detokenizer.stream((), False, shown).push(ids) == "h<|end|>i<|im_end|>"
    assert detokenizer.stream().push(ids) == "hi"
