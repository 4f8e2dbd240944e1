"""Batch files in a bucket: downloaded to be read, and uploaded whole, also after runs that were killed."""

import pytest

from jaxserve.batch import bucket_files
from jaxserve.batch.bucket_files import BucketMirror, download, is_remote
from jaxserve.batch.results_journal import ResultsJournal
from jaxserve.core.errors import RequestError
from tests.support.processes.gcs_emulator import emulated_bucket


@pytest.fixture(scope="module")
def bucket():
    from etils import epath

    with emulated_bucket("batches"):
        yield epath.Path("gs://batches")


def test_an_input_is_downloaded(bucket, tmp_path):
    (bucket / "in.jsonl").write_bytes(b"a\nb\n")
    assert download("gs://batches/in.jsonl", tmp_path).read_bytes() == b"a\nb\n"


def test_results_are_uploaded_at_once_periodically_and_at_the_end(bucket, tmp_path, monkeypatch):
    out = bucket / "out.jsonl"
    mirror = BucketMirror(str(out), tmp_path)
    assert not out.exists()
    for contents, seconds, copied in [(b"1\n", 60, b"1\n"), (b"1\n2\n", 60, b"1\n"), (b"1\n2\n", 0, b"1\n2\n")]:
        monkeypatch.setattr(bucket_files, "UPLOAD_PERIOD_S", seconds)
        mirror.path.write_bytes(contents)
        mirror.update()
        assert out.read_bytes() == copied
    mirror.path.write_bytes(b"1\n2\n3\n")
    mirror.update(is_last=True)
    assert out.read_bytes() == b"1\n2\n3\n"
    assert not list(tmp_path.iterdir())


def killed(name, folder):
    """Leaves a result that was uploaded, and one that was not."""
    folder.mkdir()
    mirror = BucketMirror(name, folder)
    mirror.path.write_bytes(b"1\n")
    mirror.update()
    mirror.path.write_bytes(b"1\n2\n")


def test_a_killed_run_resumes_from_the_longer_file(bucket, tmp_path):
    name = str(bucket / "killed.jsonl")
    here, there = tmp_path / "here", tmp_path / "there"
    killed(name, here)
    there.mkdir()
    assert BucketMirror(name, here).path.read_bytes() == b"1\n2\n"
    assert BucketMirror(name, there).path.read_bytes() == b"1\n"  # on another machine


def test_results_that_were_removed_or_replaced_do_not_come_back(bucket, tmp_path):
    out = bucket / "replaced.jsonl"
    killed(str(out), tmp_path / "here")
    for contents in (b"3", b"4\n5\n6\n"):
        out.write_bytes(contents)
        assert BucketMirror(str(out), tmp_path / "here").path.read_bytes() == contents
    killed(str(out), tmp_path / "there")
    out.unlink()
    assert BucketMirror(str(out), tmp_path / "there").path.read_bytes() == b""


def test_two_runs_do_not_write_one_file(bucket, tmp_path):
    name = str(bucket / "two.jsonl")
    source = tmp_path / "in.jsonl"
    source.write_bytes(b"")
    with ResultsJournal(BucketMirror(name, tmp_path).path, source), pytest.raises(RequestError, match="another batch"):
        BucketMirror(name, tmp_path)


def test_only_buckets_are_remote(tmp_path):
    assert [is_remote(name) for name in ("gs://a/b", "in.jsonl", "/data/x", "s3://a/b")] == [True, False, False, True]
    for name in ("s3://a/b", "http://host/in.jsonl", "file:///etc/passwd"):
        with pytest.raises(RequestError, match="batch files must be local"):
            download(name, tmp_path)
