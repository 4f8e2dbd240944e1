"""`skip_tokenizer_init`: no tokenizer file is read, and end-of-sequence ids come from the model's other files."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from jaxserve.core.errors import ConfigError
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.engine.build.model_text import choose_text, eos_ids


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "tokenizer.json").write_text("not JSON")
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 6], "top_k": 7}))
    return tmp_path


def test_no_tokenizer_is_read_and_texts_end_by_the_ids_of_the_sampling_defaults(folder):
    text = choose_text(EngineConfig.create("m", skip_tokenizer_init=True), None, folder)
    assert (text.tokenizer, text.generation_config["top_k"]) == (None, 7)
    model: Any = SimpleNamespace(eos_ids=(6, 9))
    assert eos_ids(model, text.tokenizer, text.generation_config) == (5, 6, 9)
    with pytest.raises(ConfigError):
        choose_text(EngineConfig.create("m"), None, folder)


def test_a_tokenizer_that_is_named_and_skipped_contradicts():
    with pytest.raises(ConfigError, match="leave tokenizer out"):
        EngineConfig.create("m", skip_tokenizer_init=True, tokenizer="folder")
