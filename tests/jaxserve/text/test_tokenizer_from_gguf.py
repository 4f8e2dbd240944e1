"""GGUF metadata becomes the tokenizer that it describes, or is refused with the reason."""

import numpy as np
import pytest

from jaxserve.core.errors import ConfigError, RequestError
from jaxserve.text.pre_tokenizers import BY_NAME
from jaxserve.text.tokenizer_from_gguf import merges_of, tokenizer_from_gguf
from tests.jaxserve.text.small_vocab import NORMAL, SPACE, USER_DEFINED, byte_level, sentencepiece


def pieces_of(tokenizer, text, **options):
    return [tokenizer.id_to_piece(i) for i in tokenizer.encode(text, **options)]


def test_byte_level_merges_and_falls_back_to_bytes():
    tokenizer = tokenizer_from_gguf(byte_level())
    assert pieces_of(tokenizer, "hello hello") == ["hello", "\u0120hello"]
    assert tokenizer.encode("\u00e9\U0001f600") == list("\u00e9\U0001f600".encode())
    assert tokenizer.decode(list("\u00e9\U0001f600".encode())) == "\u00e9\U0001f600"


def test_special_tokens_in_the_text_become_their_ids_and_are_left_out_of_it():
    tokenizer = tokenizer_from_gguf(byte_level())
    ids = tokenizer.encode("hello<|end|><tool>hello")
    assert [tokenizer.id_to_piece(i) for i in ids] == ["hello", "<|end|>", "<tool>", "hello"]
    assert tokenizer.decode(ids) == "hello<tool>hello"
    assert tokenizer.decode(ids, skip_special_tokens=False) == "hello<|end|><tool>hello"


@pytest.mark.parametrize(
    ("pre", "text", "pieces"),
    [
        ("gpt-2", "ab 123", ["ab", " 123"]),
        ("smollm", "ab 123", ["ab", " ", "1", "2", "3"]),
        ("llama-bpe", "ab12345\n", ["ab", "123", "45", "\n"]),
        ("qwen2", "ab 12", ["ab", " ", "1", "2"]),
        ("gpt-4o", "helloWorld's", ["hello", "World's"]),
        ("tekken", "helloWorld's", ["hello", "World", "'s"]),
        ("deepseek-v3", "a,b12345", ["a", ",b", "123", "45"]),
        ("default", "a+1234", ["a", "+", "123", "4"]),
    ],
)
def test_each_pre_tokenizer_cuts_where_its_model_was_trained_to(pre, text, pieces):
    backend = tokenizer_from_gguf(byte_level(pre)).backend
    assert backend.pre_tokenizer is not None
    assert [text[start:end] for _, (start, end) in backend.pre_tokenizer.pre_tokenize_str(text)] == pieces


def test_every_pre_tokenizer_of_the_table_builds_and_loses_nothing():
    text = "Hello  w\u00f6rld's 12345\t\n\n \u4e2d\u6587!? \U0001f600 camelCase"
    for name in BY_NAME:
        tokenizer = tokenizer_from_gguf(byte_level(name))
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_sentencepiece_joins_what_scores_highest_first():
    tokenizer = tokenizer_from_gguf(sentencepiece())
    assert pieces_of(tokenizer, "hello", add_special_tokens=False) == [SPACE + "hello"]
    # "hell" (-3) is merged before "lo" (-4.2): with swapped scores the result would be he + l + lo.
    assert pieces_of(tokenizer, "ohello", add_special_tokens=False) == [SPACE, "o", "hello"]
    assert pieces_of(tokenizer, "elo", add_special_tokens=False) == [SPACE, "e", "lo"]


def test_sentencepiece_spells_unknown_characters_in_bytes():
    tokenizer = tokenizer_from_gguf(sentencepiece())
    assert pieces_of(tokenizer, "\u00e9", add_special_tokens=False) == [SPACE, "<0xC3>", "<0xA9>"]


def test_the_space_before_the_text_is_the_vocabularys_choice():
    with_space = tokenizer_from_gguf(sentencepiece())
    without = tokenizer_from_gguf(sentencepiece(add_space_prefix=False))
    assert pieces_of(with_space, "hello") == pieces_of(without, " hello") == ["<s>", SPACE + "hello"]
    assert pieces_of(without, "hello") == ["<s>", "hello"]
    for tokenizer in (with_space, without):
        assert tokenizer.decode(tokenizer.encode(" hello  hello ")) == " hello  hello "


def test_bos_and_eos_are_added_as_the_file_says_and_by_default_for_sentencepiece():
    assert tokenizer_from_gguf(sentencepiece()).encode("h")[0] == 1
    assert 1 not in tokenizer_from_gguf(sentencepiece(add_bos_token=False)).encode("h")
    assert tokenizer_from_gguf(sentencepiece(add_eos_token=True)).encode("h")[-1] == 2
    assert tokenizer_from_gguf(byte_level(bos_token_id=65)).encode("h") == [byte_level_id("h")]
    assert tokenizer_from_gguf(byte_level("llama-bpe", bos_token_id=65)).encode("h")[0] == 65


def byte_level_id(letter):
    return byte_level()["tokenizer.ggml.tokens"].index(letter)


def test_end_ids_are_the_files_own_and_the_ends_of_turns():
    metadata = byte_level(eos_token_id=65, eot_token_id=np.int32(66))
    end_of_turn = metadata["tokenizer.ggml.tokens"].index("<|im_end|>")
    assert tokenizer_from_gguf(metadata).eos_ids == (65, 66, end_of_turn, end_of_turn - 1)
    assert tokenizer_from_gguf(sentencepiece()).eos_ids == (2,)


def test_arrays_serve_as_lists():
    metadata = sentencepiece()
    plain = tokenizer_from_gguf(metadata).encode("hello \u00e9")
    for key in ("scores", "token_type"):
        metadata[f"tokenizer.ggml.{key}"] = np.array(metadata[f"tokenizer.ggml.{key}"])
    assert tokenizer_from_gguf(metadata).encode("hello \u00e9") == plain


def test_merges_come_best_piece_first_then_longest_left_part():
    pieces = ["a", "b", "ab", "ba", "aba", "  "]
    kinds = [NORMAL] * 5 + [USER_DEFINED]
    assert merges_of(pieces, kinds, [0, 0, -2, -1, -3, -9]) == [("b", "a"), ("a", "b"), ("ab", "a"), ("a", "ba")]


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({}, "holds no tokenizer"),
        (byte_level("someones-own"), "unknown pre-tokenizer 'someones-own'"),
        (byte_level() | {"tokenizer.ggml.model": "rwkv"}, "tokenizer model is 'rwkv'"),
        (byte_level() | {"tokenizer.ggml.merges": ["x yz"]}, "merge of pieces outside its vocabulary: 'x yz'"),
        (byte_level() | {"tokenizer.ggml.merges": ["hello"]}, "merge of pieces outside"),
        (byte_level() | {"tokenizer.ggml.token_type": [1]}, "1 token types"),
        (byte_level() | {"tokenizer.ggml.tokens": []}, "vocabulary has 0 tokens"),
        (byte_level() | {"tokenizer.ggml.tokens": ["x" * 5000], "tokenizer.ggml.token_type": [1]}, "longer than 4096"),
        (sentencepiece() | {"tokenizer.ggml.scores": [0.0]}, "lacks a score"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_reason(metadata, message):
    with pytest.raises(ConfigError, match=message):
        tokenizer_from_gguf(metadata)


def test_half_a_surrogate_pair_is_refused_by_its_place():
    tokenizer = tokenizer_from_gguf(byte_level())
    for refuse in (lambda text: tokenizer.encode(text), lambda text: tokenizer.encode_batch(["x", text])):
        with pytest.raises(RequestError, match="character 1"):
            refuse("a\ud800")
