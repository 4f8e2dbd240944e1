"""Tokenizers from folders: tokenizer.json, and the special tokens in the files next to it."""

import json

import pytest

from jaxserve.core.errors import ConfigError
from jaxserve.text.tokenizer_from_folder import tokenizer_from_folder
from jaxserve.text.tokenizer_from_gguf import tokenizer_from_gguf
from tests.jaxserve.text.small_vocab import byte_level, sentencepiece


@pytest.fixture
def folder(tmp_path):
    tokenizer_from_gguf(byte_level()).backend.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def write(folder, name, value):
    (folder / name).write_text(json.dumps(value))


def test_a_saved_tokenizer_reads_back_equal(folder):
    original, found = tokenizer_from_gguf(byte_level()), tokenizer_from_folder(folder)
    text = "hello hello <|end|>\u00e9"
    assert found.encode(text) == original.encode(text)
    assert found.token_bytes == original.token_bytes
    assert found.special_ids == original.special_ids
    assert (found.eos_ids, found.bos_id) == ((), None)


def test_end_ids_come_from_the_generation_config_and_the_tokenizer(folder):
    write(folder, "config.json", {"eos_token_id": 5})
    assert tokenizer_from_folder(folder).eos_ids == (5,)
    write(folder, "generation_config.json", {"eos_token_id": [7, 8]})
    assert tokenizer_from_folder(folder).eos_ids == (7, 8)
    write(folder, "special_tokens_map.json", {"eos_token": "<|end|>", "bos_token": {"content": "<|end|>"}})
    end = tokenizer_from_folder(folder).backend.token_to_id("<|end|>") or 0
    assert tokenizer_from_folder(folder).eos_ids == (7, 8, end)
    write(folder, "tokenizer_config.json", {"eos_token": {"content": "<|im_end|>"}})
    assert tokenizer_from_folder(folder).eos_ids == (7, 8, end + 1)
    assert tokenizer_from_folder(folder).bos_id == end


def test_truncation_and_padding_saved_in_the_file_are_not_applied(folder):
    backend = tokenizer_from_gguf(byte_level()).backend
    backend.enable_truncation(2)
    backend.enable_padding(length=8)
    backend.save(str(folder / "tokenizer.json"))
    assert len(tokenizer_from_folder(folder).encode("xyz")) == 3


def test_tokens_that_only_the_config_knows_take_the_ids_that_it_gives_them(folder):
    size = tokenizer_from_folder(folder).vocab_size
    write(folder, "tokenizer_config.json", {"added_tokens_decoder": {str(size): {"content": "<new>", "special": True}}})
    tokenizer = tokenizer_from_folder(folder)
    assert tokenizer.encode("<new>") == [size]
    assert size in tokenizer.special_ids
    assert tokenizer.vocab_size == size + 1
    write(folder, "tokenizer_config.json", {"added_tokens_decoder": {str(size + 5): {"content": "<new>"}}})
    with pytest.raises(ConfigError, match=f"'<new>' the id {size + 5}"):
        tokenizer_from_folder(folder)


def test_files_that_cannot_be_used_are_named(folder, tmp_path_factory):
    with pytest.raises(ConfigError, match=r"holds no tokenizer\.json"):
        tokenizer_from_folder(tmp_path_factory.mktemp("empty"))
    (folder / "config.json").write_text("{")
    with pytest.raises(ConfigError, match=r"config\.json: is not valid JSON"):
        tokenizer_from_folder(folder)
    (folder / "config.json").write_text("[]")
    with pytest.raises(ConfigError, match="must hold a JSON object"):
        tokenizer_from_folder(folder)
    nested = "[" * 50_000 + "]" * 50_000  # within the limit of nested values, for a file of this length
    (folder / "config.json").write_text('{"padding": "' + " " * 10**6 + f'", "a": {nested}}}')
    with pytest.raises(ConfigError, match="nested too deeply"):
        tokenizer_from_folder(folder)
    (folder / "tokenizer.json").write_text('{"version": "1.0"}')
    with pytest.raises(ConfigError, match=r"tokenizer\.json cannot be read"):
        tokenizer_from_folder(folder)


def test_a_decoder_that_does_more_than_join_bytes_is_refused_by_name(folder):
    backend = tokenizer_from_gguf(sentencepiece()).backend
    from tokenizers import decoders

    for decoder in (decoders.WordPiece(), decoders.Metaspace(), decoders.Sequence([decoders.ByteFallback()])):
        backend.decoder = decoder
        backend.save(str(folder / "tokenizer.json"))
        tokenizer = tokenizer_from_folder(folder)
        assert tokenizer.encode("hello")
        if isinstance(decoder, decoders.Sequence):
            assert tokenizer.token_bytes
        else:
            with pytest.raises(ConfigError, match=type(decoder).__name__):
                tokenizer.decode([3])


def test_tokens_that_the_config_names_are_left_out_of_the_text(folder):
    assert tokenizer_from_folder(folder).special_ids == {261, 262}
    config = {
        "pad_token": "h",
        "extra_special_tokens": {"image_token": "e"},
        "additional_special_tokens": [{"content": "l"}],
    }
    write(folder, "tokenizer_config.json", config)
    tokenizer = tokenizer_from_folder(folder)
    assert tokenizer.special_ids == {*map(ord, "hel"), 261, 262}
    assert tokenizer.decode([ord("h"), ord("a")]) == "a"
    write(folder, "tokenizer_config.json", {"extra_special_tokens": 5, "tokenizer_class": "GemmaTokenizerFast"})
    assert tokenizer_from_folder(folder).special_ids == {261, 262}
