"""Batch files in a bucket: read from a copy, and written back whole, however often a run was killed between."""

import pytest

from jaxserve.batch import remote
from jaxserve.batch.remote import Mirror, fetched, is_remote
from jaxserve.core.errors import RequestError
from tests.support.bucket import emulated_bucket


@pytest.fixture(scope="module")
def bucket():
    from etils import epath

    with emulated_bucket("batches"):
        yield epath.Path("gs://batches")


def test_an_input_is_copied(bucket, tmp_path):
    (bucket / "in.jsonl").write_bytes(b"a\nb\n")
    assert fetched("gs://batches/in.jsonl", tmp_path).read_bytes() == b"a\nb\n"


def test_results_are_copied_now_and_then_and_at_the_end(bucket, tmp_path, monkeypatch):
    out = bucket / "out.jsonl"
    mirror = Mirror(str(out), tmp_path)
    mirror.path.write_bytes(b"1\n")
    mirror.update()
    assert not out.exists()
    monkeypatch.setattr(remote, "EVERY_S", 0.0)
    mirror.update()
    assert out.read_bytes() == b"1\n"
    mirror.path.write_bytes(b"1\n2\n")
    mirror.update(is_last=True)
    assert out.read_bytes() == b"1\n2\n"


def test_a_killed_run_goes_on_from_the_longer_of_both(bucket, tmp_path):
    out = bucket / "killed.jsonl"
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    first = Mirror(str(out), here)
    first.path.write_bytes(b"1\n")
    first.update(is_last=True)
    first.path.write_bytes(b"1\n2\n")  # killed before that was copied
    assert Mirror(str(out), here).path.read_bytes() == b"1\n2\n"
    assert Mirror(str(out), there).path.read_bytes() == b"1\n"  # on another machine


def test_only_buckets_are_remote(tmp_path):
    assert [is_remote(name) for name in ("gs://a/b", "in.jsonl", "/data/x", "s3://a/b")] == [True, False, False, True]
    for name in ("s3://a/b", "http://host/in.jsonl", "file:///etc/passwd"):
        with pytest.raises(RequestError, match="batch files are local"):
            fetched(name, tmp_path)
