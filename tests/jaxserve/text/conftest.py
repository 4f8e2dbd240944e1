"""Tokenizers for the tests of text: two real ones, and what an oracle says of them."""

import json
from functools import cache
from pathlib import Path

import pytest

GOLDENS = Path(__file__).parents[2] / "goldens" / "tokenizers.json"


@pytest.fixture(scope="session")
def goldens():
    return json.loads(GOLDENS.read_text())


@pytest.fixture(scope="session")
def real_metadata(real_model):
    from checkpoints.formats.gguf import GgufFile

    @cache
    def read(name):
        file = GgufFile(real_model(name).weights)
        try:
            return file.metadata
        finally:
            file.close()

    return read


@pytest.fixture(scope="session")
def real_tokenizer(real_metadata):
    from jaxserve.text.from_gguf import tokenizer_from_gguf

    return cache(lambda name: tokenizer_from_gguf(real_metadata(name)))
