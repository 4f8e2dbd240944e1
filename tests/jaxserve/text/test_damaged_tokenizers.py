"""Damaged tokenizer files are read or refused with a `ConfigError`; nothing hangs, grows or fails in another way."""

import json

import pytest

from jaxserve.core.errors import ConfigError
from jaxserve.text.chat_template import chat_template_from_folder, chat_template_from_gguf
from jaxserve.text.tokenizer_from_folder import tokenizer_from_folder
from jaxserve.text.tokenizer_from_gguf import tokenizer_from_gguf
from tests.jaxserve.text.small_vocab import byte_level, sentencepiece
from tests.support.damaged_json import damaged, damaged_bytes, refusals

NUM_CASES = 80
TEMPLATE = {"tokenizer.chat_template": "{{ messages }}"}
BESIDE = {
    "tokenizer_config.json": {
        "tokenizer_class": "GemmaTokenizer",
        "eos_token": {"content": "<|end|>"},
        "bos_token": "<|end|>",
        "additional_special_tokens": ["<tool>"],
        "chat_template": [{"name": "default", "template": "{{ messages }}"}],
    },
    "special_tokens_map.json": {"eos_token": "<|end|>"},
    "generation_config.json": {"eos_token_id": [5, 6]},
    "config.json": {"eos_token_id": 5},
}


def use(tokenizer):
    tokenizer.encode("hello hello")
    tokenizer.decode([1, 2, 300])


def write(folder, files):
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value))


@pytest.mark.parametrize("metadata", [byte_level(), sentencepiece(add_space_prefix=True)], ids=["bytes", "pieces"])
def test_metadata_of_gguf_files(metadata):
    def read(rng):
        found = damaged(rng, metadata | TEMPLATE)
        chat_template_from_gguf(found)
        use(tokenizer_from_gguf(found))

    assert 0 < refusals(read, ConfigError, NUM_CASES) < NUM_CASES


@pytest.mark.parametrize("name", ["tokenizer.json", *BESIDE])
@pytest.mark.parametrize("metadata", [byte_level(), sentencepiece()], ids=["bytes", "pieces"])
def test_files_of_a_folder(name, metadata, tmp_path):
    """Each file with damaged values and with damaged bytes."""
    tokenizer = tokenizer_from_gguf(metadata)
    tokenizer.backend.save(str(tmp_path / "tokenizer.json"))
    added = {str(tokenizer.vocab_size): {"content": "<new>", "special": True, "lstrip": False}}
    config = BESIDE["tokenizer_config.json"] | {"added_tokens_decoder": added}
    write(tmp_path, BESIDE | {"tokenizer_config.json": config})
    if name == "config.json":  # which is read without a generation_config.json
        (tmp_path / "generation_config.json").unlink()
    use(tokenizer_from_folder(tmp_path))
    raw = (tmp_path / name).read_bytes()

    def read(rng):
        is_value = rng.random() < 0.6
        (tmp_path / name).write_bytes(
            json.dumps(damaged(rng, json.loads(raw))).encode() if is_value else damaged_bytes(rng, raw)
        )
        chat_template_from_folder(tmp_path)
        use(tokenizer_from_folder(tmp_path))

    assert 0 < refusals(read, ConfigError, NUM_CASES // 4) < NUM_CASES // 4


def test_a_template_that_is_no_text(tmp_path):
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff\xfe{{ messages }}")
    with pytest.raises(ConfigError, match=r"chat_template\.jinja cannot be read"):
        chat_template_from_folder(tmp_path)


@pytest.mark.parametrize("metadata", [byte_level(), sentencepiece()], ids=["bytes", "pieces"])
def test_nothing_else_is_taken_for_the_kind_of_a_field(metadata):
    for name, value in [
        ("tokens", "text"), ("tokens", [1, 2]), ("token_type", ["a"]), ("model", 5), ("bos_token_id", "1"),
        ("add_bos_token", "no"),
    ]:  # fmt: skip
        with pytest.raises(ConfigError, match=rf"tokenizer\.ggml\.{name} in the GGUF file must be"):
            tokenizer_from_gguf(metadata | {f"tokenizer.ggml.{name}": value})
