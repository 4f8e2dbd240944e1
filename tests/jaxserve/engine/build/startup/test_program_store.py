"""Programs are found by name and digest, and are whole whenever they are found."""

import threading
from pathlib import PurePosixPath
from typing import ClassVar

import pytest
from etils import epath

from jaxserve.engine.build.startup.program_store import ProgramStore

NAME = "decode[tokens=8, rows=8, page_columns=4]"
DIGEST = "0a1b"


def test_a_store_finds_a_program_by_name_and_digest(tmp_path):
    store = ProgramStore(epath.Path(tmp_path / "programs"))
    for name, digest in (("fork", "a"), ("fork", "b"), (NAME, "a")):
        with pytest.raises(FileNotFoundError):
            store.get(name, digest)
        store.put(name, digest, f"{name} {digest}".encode())
    assert store.get("fork", "a") == b"fork a"
    assert store.get("fork", "b") == b"fork b"
    assert store.get(NAME, "a") == f"{NAME} a".encode()


def test_a_program_that_is_written_many_times_at_once_is_always_whole(tmp_path):
    store, programs = ProgramStore(epath.Path(tmp_path)), [bytes([i]) * 10_000 for i in range(4)]
    threads = [
        threading.Thread(target=lambda i=i: [store.put("fork", DIGEST, programs[i]) for _ in range(20)])
        for i in range(len(programs))
    ]
    store.put("fork", DIGEST, programs[0])
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert store.get("fork", DIGEST) in programs
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["fork.export"]


@pytest.mark.parametrize(
    "change", [lambda d: d[:-1] + b"n", lambda d: d[:-1], lambda d: d + b" and more", lambda d: b""]
)
def test_a_damaged_program_is_none(tmp_path, change):
    store = ProgramStore(epath.Path(tmp_path))
    store.put(NAME, DIGEST, b"a program")
    path = tmp_path / DIGEST / "decode-tokens-8-rows-8-page_columns-4.export"
    path.write_bytes(change(path.read_bytes()))
    assert store.get(NAME, DIGEST) is None


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        ProgramStore(epath.Path(tmp_path / "file")).put(NAME, DIGEST, b"a program")


class BucketPath(PurePosixPath):
    """A path in a bucket, in memory; objects have no folders and no descriptors."""

    objects: ClassVar[dict[str, bytes]] = {}

    def __fspath__(self) -> str:
        return f"gs://{self}"

    def mkdir(self, *, parents: bool, exist_ok: bool) -> None:
        assert parents
        assert exist_ok

    def write_bytes(self, data: bytes) -> None:
        self.objects[str(self)] = data

    def read_bytes(self) -> bytes:
        return self.objects[str(self)]


def test_a_store_may_be_in_a_bucket():
    store = ProgramStore(BucketPath("bucket/programs"))
    store.put(NAME, DIGEST, b"a program")
    assert store.get(NAME, DIGEST) == b"a program"
    assert list(BucketPath.objects) == [f"bucket/programs/{DIGEST}/decode-tokens-8-rows-8-page_columns-4.export"]
