"""Adapters come from folders, buckets and the hub; only their two files are fetched, and none that is too large."""

import shutil
from types import SimpleNamespace

import huggingface_hub
import pytest

from checkpoints.adapters.adapter_source import FILES, find_adapter
from checkpoints.errors import SourceError
from tests.checkpoints.adapters.adapter_files import write
from tests.support.processes.gcs_emulator import emulated_bucket

MAX_BYTES = 100_000


def find(source, max_bytes=MAX_BYTES, **options):
    return find_adapter(str(source), max_bytes=max_bytes, **options)


def test_a_folder_may_begin_at_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = write(tmp_path / "a")
    assert find("~/a") == folder


@pytest.mark.parametrize(
    ("removed", "added", "reason"),
    [
        ("adapter_config.json", (), r"has no adapter_config\.json"),
        ("adapter_model.safetensors", (), r"has no adapter_model\.safetensors; name a folder with"),
        ("adapter_model.safetensors", ("adapter_model.bin",), "it can run code: save it again as safetensors"),
    ],
)
def test_a_folder_without_its_files_is_refused(removed, added, reason, tmp_path):
    write(tmp_path)
    (tmp_path / removed).unlink()
    for name in added:
        (tmp_path / name).touch()
    with pytest.raises(SourceError, match=reason):
        find(tmp_path)


@pytest.mark.parametrize("source", ["nonsense", "", "a\0b", "a/b/c", "../x", "smollm2-135m-instruct", "pypi:a==1"])
def test_what_names_no_adapter_is_answered_with_all_that_would(source):
    with pytest.raises(SourceError, match=r"is not the name of an adapter; name a folder .* gs://.* Hugging Face id"):
        find(source)


@pytest.mark.parametrize("source", ["~unknown-user-of-this-name/x", "x" * 5000])
def test_a_path_that_cannot_be_read_is_a_mistake(source):
    with pytest.raises(SourceError, match="cannot be read"):
        find(source)


def test_the_file_itself_is_not_its_folder(tmp_path):
    with pytest.raises(SourceError, match="is a file; name a folder"):
        find(write(tmp_path) / FILES[1])


def test_a_large_file_is_refused(tmp_path):
    write(tmp_path)
    size = (tmp_path / FILES[1]).stat().st_size
    assert find(tmp_path, size) == tmp_path
    with pytest.raises(SourceError, match=f"has {size} bytes; one that fits the model has at most {size - 1}"):
        find(tmp_path, size - 1)


def test_a_bucket_gives_the_two_files(tmp_path):
    from etils import epath

    local = write(tmp_path / "local")
    with emulated_bucket("adapters"):
        root = epath.Path("gs://adapters/one")
        for name in (*FILES, "model.safetensors"):
            (root / name).write_bytes((local / name).read_bytes() if name in FILES else b"x")
        found = find(root, cache_dir=tmp_path / "cache")
        with pytest.raises(SourceError, match="one that fits the model has at most 10"):
            find(root, 10, cache_dir=tmp_path / "cache")
        with pytest.raises(SourceError, match="does not exist"):
            find("gs://adapters/two", cache_dir=tmp_path / "cache")
    assert {path.name: path.read_bytes() for path in found.iterdir()} == {n: (local / n).read_bytes() for n in FILES}


def test_the_hub_gives_the_two_files(tmp_path, monkeypatch):
    local, asked = write(tmp_path / "local"), []

    def snapshot_download(repo, *, allow_patterns, token, cache_dir, **_):
        asked.append((repo, allow_patterns, token))
        return str(shutil.copytree(local, cache_dir / "snapshot"))

    def get_paths_info(self, repo, paths):
        return [SimpleNamespace(path=path, size=(local / path).stat().st_size) for path in paths]

    monkeypatch.setattr("huggingface_hub.constants.is_offline_mode", lambda: False)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    monkeypatch.setattr(huggingface_hub.HfApi, "get_paths_info", get_paths_info)
    with pytest.raises(SourceError, match=r"org/name/adapter_config\.json has .* at most 10"):
        find("org/name", 10, cache_dir=tmp_path)
    assert asked == []
    assert find("org/name", cache_dir=tmp_path, token="secret") == tmp_path / "snapshot"
    assert asked == [("org/name", list(FILES), "secret")]
