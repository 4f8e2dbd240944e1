"""Models in a bucket are copied into the cache file by file; an emulator of Google Cloud Storage serves them."""

import os
import time
from pathlib import Path

import pytest

from checkpoints.errors import SourceError
from checkpoints.fetch import gcs_bucket
from checkpoints.sources import resolve
from tests.support.processes.gcs_emulator import emulated_bucket


@pytest.fixture(scope="module")
def storage():
    with emulated_bucket("models"):
        yield


@pytest.fixture
def put(storage, request):
    """Writes the files of one model into the bucket and returns its address."""
    import gcsfs
    from etils import epath

    root = epath.Path("gs://models") / request.node.name.partition("[")[0]

    def write(**files):
        for name, data in files.items():
            (root / name.replace("__", "/").replace("_json", ".json").replace("_st", ".safetensors")).write_bytes(data)
        gcsfs.GCSFileSystem.clear_instance_cache()  # the client caches listings, since a process reads a model once
        return str(root)

    return write


@pytest.fixture
def copied(monkeypatch):
    """Names of the copied files."""
    names, copy = [], gcs_bucket._copy

    def count(file, *rest):
        names.append(file.name)
        copy(file, *rest)

    monkeypatch.setattr(gcs_bucket, "_copy", count)
    return names


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_comes_with_the_files_of_a_model(put, tmp_path):
    url = put(config_json=b"{}", model_st=b"weights", readme=b"x", other__model_st=b"y", **{"notes 1.txt": b"z"})
    resolved = resolve(url, cache_dir=tmp_path)
    assert contents(resolved.folder) == {"config.json": b"{}", "model.safetensors": b"weights"}
    assert (resolved.format, resolved.weights.name) == ("safetensors", "model.safetensors")


def test_an_orbax_folder_comes_with_all_that_is_in_it(put, tmp_path):
    url = put(config_json=b"{}", orbax__index_json=b"{}", orbax__outside__d__abc=b"1", other__x_json=b"y")
    resolved = resolve(f"{url}/", cache_dir=tmp_path)
    assert contents(resolved.folder) == {"config.json": b"{}", "orbax/index.json": b"{}", "orbax/outside/d/abc": b"1"}
    assert resolved.format == "orbax"


def test_a_file_may_be_named(put, tmp_path):
    url = put(**{"a.gguf": b"a", "b.gguf": b"bb"})
    assert resolve(f"{url}/b.gguf", cache_dir=tmp_path).weights.read_bytes() == b"bb"
    with pytest.raises(
        SourceError, match=r"has 2 \.gguf files; name one \(as gs://models/.*/a\.gguf\): a\.gguf, b\.gguf"
    ):
        resolve(url, cache_dir=tmp_path)


def test_only_what_changed_is_copied_again(put, copied, tmp_path):
    url = put(config_json=b"{}", model_st=b"weights", old_json=b"1")
    folder = gcs_bucket.fetch(url, tmp_path)
    assert sorted(copied) == ["config.json", "model.safetensors", "old.json"]
    copied.clear()
    assert gcs_bucket.fetch(url, tmp_path) == folder
    assert copied == []
    put(model_st=b"other weights")
    os.truncate(folder / "config.json", 1)
    gcs_bucket.fetch(url, tmp_path)
    assert sorted(copied) == ["config.json", "model.safetensors"]
    assert contents(folder)["model.safetensors"] == b"other weights"


def test_what_left_the_bucket_leaves_the_copy(put, tmp_path):
    from etils import epath

    url = put(config_json=b"{}", model_st=b"weights", old_json=b"1")
    gcs_bucket.fetch(url, tmp_path)
    (epath.Path(url) / "old.json").unlink()
    put()
    assert "old.json" not in contents(gcs_bucket.fetch(url, tmp_path))


def test_an_interrupted_fetch_goes_on_with_the_file_that_was_lost(put, copied, tmp_path, monkeypatch):
    url = put(config_json=b"{}", model_st=b"weights")
    replace = os.replace

    def cut(source, target):
        if str(target).endswith("model.safetensors"):
            raise OSError("cut")
        replace(source, target)

    monkeypatch.setattr(os, "replace", cut)
    with pytest.raises(SourceError, match=r"failed \(OSError: cut\)"):
        gcs_bucket.fetch(url, tmp_path)
    monkeypatch.setattr(os, "replace", replace)
    copied.clear()
    folder = gcs_bucket.fetch(url, tmp_path)
    assert copied == ["model.safetensors"]
    assert contents(folder) == {"config.json": b"{}", "model.safetensors": b"weights"}
    assert [path.name for path in folder.parent.iterdir() if path.name.endswith(".partial")] == []


class Endless:
    """A file without an end; `num_reads` counts reads, and reading fails at `LIMIT` (seconds later)."""

    LIMIT = 1000

    def __init__(self, error=None):
        self.error, self.num_reads = error, 0

    def open(self, mode):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *exception): ...

    def read(self, size):
        if self.error:
            raise self.error
        self.num_reads += 1
        time.sleep(0.005)
        return b"x" if self.num_reads < self.LIMIT else b""


@pytest.mark.parametrize("error", [OSError("full"), KeyboardInterrupt()])
def test_what_stops_one_copy_stops_all(error, tmp_path):
    long = Endless()
    remote = [gcs_bucket._Remote("a.json", Endless(error), 1, 0), gcs_bucket._Remote("b.safetensors", long, 1, 0)]
    with pytest.raises(type(error)):
        gcs_bucket._update(tmp_path / "item", remote, tmp_path, "gs://models/x")
    assert long.num_reads < Endless.LIMIT / 2
    assert not list((tmp_path / "item").iterdir())


def test_a_file_that_comes_short_is_not_kept(put, tmp_path, monkeypatch):
    url = put(config_json=b"{}", model_st=b"weights")
    described = gcs_bucket._described
    monkeypatch.setattr(gcs_bucket, "_described", lambda path, name: _longer(described(path, name)))
    with pytest.raises(SourceError, match=r"arrived with \d bytes, not \d+: try again"):
        gcs_bucket.fetch(url, tmp_path)
    assert not list(tmp_path.rglob("*.safetensors"))


def _longer(file):
    return gcs_bucket._Remote(file.name, file.path, file.num_bytes + 1, file.changed_s)


@pytest.mark.parametrize("name", ["..", "a\\b.json", ".hidden.json", "a b.json"])
def test_names_that_no_model_has_are_refused(name):
    class Listing:
        def iterdir(self):
            return [type("Path", (), {"name": name, "is_dir": lambda self: False})()]

    with pytest.raises(SourceError, match="which is not a file of a model"):
        list(gcs_bucket._below(Listing(), "orbax/", 1))


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("gs://models", "must read gs://BUCKET/FOLDER"),
        ("gs://models/../x", "must read gs://BUCKET/FOLDER"),
        ("gs://models/a//b", "must read gs://BUCKET/FOLDER"),
        ("gs://models/nothing/here", "does not exist, or its bucket does not"),
        ("gs://no-such-bucket/model", "does not exist, or its bucket does not"),
        ("gs://models/nothing/m.gguf", "does not exist, or its bucket does not"),
    ],
)
def test_what_cannot_be_fetched_is_told(url, fault, storage, tmp_path):
    with pytest.raises(SourceError, match=fault):
        gcs_bucket.fetch(url, tmp_path)


def test_a_folder_without_weights_is_told(put, tmp_path):
    with pytest.raises(SourceError, match=r"has no \.safetensors and no \.gguf files and no orbax folder"):
        gcs_bucket.fetch(put(config_json=b"{}"), tmp_path)


def test_missing_packages_are_named(tmp_path, monkeypatch):
    def missing(url):
        raise ModuleNotFoundError("No module named 'gcsfs'")

    monkeypatch.setattr(gcs_bucket, "_remote", missing)
    with pytest.raises(SourceError, match=r"No module named 'gcsfs'.*pip install 'jaxserve-engine\[gcs\]'"):
        gcs_bucket.fetch("gs://models/x", Path(tmp_path))
