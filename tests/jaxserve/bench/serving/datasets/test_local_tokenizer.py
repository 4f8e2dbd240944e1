"""A tokenizer is found by any name of a model; from the hub only small files are fetched."""

import huggingface_hub
import pytest

from checkpoints.errors import SourceError
from jaxserve.bench.serving.datasets.local_tokenizer import find_tokenizer
from jaxserve.core.errors import ConfigError
from tests.support.golden_tokenizers import IN_GGUF, path_of, tokenizer_of

TEXT = "a few words, and ½ of another"


def test_a_tokenizer_has_many_names():
    folder = path_of("qwen3")
    for source in (folder, folder / "tokenizer.json"):
        assert find_tokenizer(str(source)).encode(TEXT) == tokenizer_of("qwen3").encode(TEXT)
    for source in (IN_GGUF[0], path_of(IN_GGUF[0])):
        assert find_tokenizer(str(source)).encode(TEXT) == tokenizer_of(IN_GGUF[0]).encode(TEXT)


def test_of_a_model_of_the_hub_only_small_files_are_fetched(monkeypatch):
    asked = []

    def snapshot_download(repo, *, allow_patterns, **options):
        asked.append((repo, allow_patterns))
        return str(path_of("qwen3"))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    assert find_tokenizer("org/name").encode(TEXT) == tokenizer_of("qwen3").encode(TEXT)
    assert asked == [("org/name", ["*.json", "*.jinja"])]


def test_what_has_no_tokenizer_is_told(tmp_path):
    with pytest.raises(SourceError, match="is not the name of a model"):
        find_tokenizer("no such model")
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(ConfigError, match=r"no tokenizer\.json"):
        find_tokenizer(str(tmp_path))
