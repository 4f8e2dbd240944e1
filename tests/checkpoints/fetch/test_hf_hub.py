"""The hub's client fetches the right files, and each of its errors becomes one sentence."""

import os
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import errors

from checkpoints.errors import SourceError
from checkpoints.fetch import hf_hub


@pytest.fixture
def remote(tmp_path, monkeypatch):
    """A fake model: its files, and the patterns that were requested."""
    monkeypatch.setattr("huggingface_hub.constants.is_offline_mode", lambda: False)
    files: list[str] = []
    asked: list[dict] = []

    def snapshot_download(repo, *, allow_patterns, ignore_patterns, **options):
        asked.append({"patterns": allow_patterns, **options})
        for name in files:
            if any(fnmatch(name, p) for p in allow_patterns) and not any(fnmatch(name, p) for p in ignore_patterns):
                (tmp_path / name).touch()
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    monkeypatch.setattr(huggingface_hub.HfApi, "list_repo_files", lambda self, repo, revision=None: files)
    return files, asked


def test_safetensors_come_without_other_formats(remote, tmp_path):
    files, asked = remote
    files += ["config.json", "model.safetensors", "model.gguf", "tokenizer.json", "chat_template.jinja", "pytorch.bin"]
    assert hf_hub.fetch("org/name", None, None, "v1", "token") == tmp_path
    assert {path.name for path in tmp_path.iterdir()} == {
        "config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"
    }  # fmt: skip
    assert [(call["revision"], call["token"]) for call in asked] == [("v1", "token")]


def test_a_lone_gguf_comes_where_there_are_no_safetensors(remote, tmp_path):
    remote[0].extend(["model.gguf", "other/model.gguf"])
    hf_hub.fetch("org/name", None, None, None, None)
    assert [path.name for path in tmp_path.iterdir()] == ["model.gguf"]


def test_of_several_ggufs_one_must_be_named(remote, tmp_path):
    remote[0].extend(["b.gguf", "a.gguf"])
    with pytest.raises(SourceError, match=r"has 2 \.gguf files; name one \(as org/name/a\.gguf\): a\.gguf, b\.gguf"):
        hf_hub.fetch("org/name", None, None, None, None)
    assert hf_hub.fetch("org/name", "b.gguf", None, None, None) == tmp_path / "b.gguf"
    with pytest.raises(SourceError, match=r"the model 'org/name' has no file 'c\.gguf'"):
        hf_hub.fetch("org/name", "c.gguf", None, None, None)


def test_a_model_without_weights_is_told(remote):
    with pytest.raises(SourceError, match=r"has no \.safetensors and no \.gguf files"):
        hf_hub.fetch("org/name", None, None, None, None)


class ConnectError(Exception):
    """The error of the client's HTTP library."""


def bare(kind: type[Exception]) -> Exception:
    """An error of the client that normally has an HTTP response, without it."""
    return kind.__new__(kind)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (bare(errors.GatedRepoError), "accept its terms on its page, then set HF_TOKEN"),
        (bare(errors.RepositoryNotFoundError), "has no model 'org/name': check the spelling"),
        (bare(errors.RevisionNotFoundError), "has no revision 'v9'"),
        (errors.LocalEntryNotFoundError("x"), "the hub cannot be reached: check the network"),
        (errors.HFValidationError("x"), "not a valid Hugging Face id"),
        (OSError(28, "No space left on device"), "the disk is full"),
        (ConnectError("first line\nsecond"), r"failed \(ConnectError: first line\)$"),
        (RuntimeError(), r"failed \(RuntimeError: no reason given\)$"),
    ],
)
def test_failures_become_one_sentence(error, sentence, monkeypatch):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("huggingface_hub.constants.is_offline_mode", lambda: False)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(SourceError, match=sentence) as refusal:
        hf_hub.fetch("org/name", None, None, "v9", None)
    assert "\n" not in str(refusal.value)


def test_offline_mode_is_honoured_and_named(tmp_path):
    code = "from checkpoints.sources import resolve\ntry: resolve('org/name')\nexcept ValueError as e: print(e)"
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert "not in the local cache, and HF_HUB_OFFLINE forbids fetching it" in done.stdout
