"""A file that is written in parts ends with the bytes of one written in one go, wherever it was interrupted, and what
is left of another job, or of a crash, is never taken for a part of it."""

import json

import pytest

from checkpoints.errors import CheckpointError
from checkpoints.formats.resumable_file import resumable_file

PARTS = [bytes([i]) * (10 + 7 * i) for i in range(5)]
WHOLE = b"".join(PARTS)
NEVER = len(WHOLE)
JOB = {"source": "a", "scheme": "b"}


class Killed(BaseException):
    """What a write is interrupted by."""


def write(path, job=JOB, *, is_renewed=False, kill_at=NEVER):
    """Writes the parts, up to so many bytes of the file; returns the numbers of those that it wrote."""
    written = []
    with resumable_file(path, job, is_renewed=is_renewed) as parts:
        for number in range(parts.num_parts, len(PARTS)):
            written.append(number)
            room = kill_at - parts.file.tell()
            parts.file.write(PARTS[number][:room])
            if room < len(PARTS[number]):
                parts.file.flush()
                raise Killed
            parts.end_part()
    return written


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file"


def interrupted(path, kill_at, job=JOB):
    with pytest.raises(Killed):
        write(path, job, kill_at=kill_at)


@pytest.mark.parametrize("kill_at", range(0, len(WHOLE), 9))
def test_complete_parts_are_not_written_again_wherever_it_was_interrupted(path, kill_at):
    ends = [sum(map(len, PARTS[: i + 1])) for i in range(len(PARTS))]
    interrupted(path, kill_at)
    assert not path.exists()
    if kill_at < ends[0]:
        assert not list(path.parent.iterdir()), "nothing of it is complete"
    interrupted(path, min(kill_at + 20, len(WHOLE) - 1))
    found = write(path)
    assert found == [i for i, end in enumerate(ends) if end > min(kill_at + 20, len(WHOLE) - 1)]
    assert path.read_bytes() == WHOLE
    assert list(path.parent.iterdir()) == [path]


def test_another_job_is_refused_and_replaced_on_demand(path):
    interrupted(path, 60)
    for changed, job in {"source": JOB | {"source": "x"}, "scheme, source": {}, "more": JOB | {"more": 1}}.items():
        with pytest.raises(CheckpointError, match=rf"\(different {changed}\); name another file, or start over with"):
            write(path, job)
    assert write(path, {"source": "x"}, is_renewed=True) == [*range(len(PARTS))]
    assert path.read_bytes() == WHOLE


@pytest.mark.parametrize("record", ["", "[]", "{}", '{"job": {}, "num_parts": -1, "num_bytes": 0}', "\0"])
def test_damaged_records_are_refused_and_replaced_on_demand(path, record):
    interrupted(path, 60)
    (path.parent / "file.partial.json").write_text(record)
    with pytest.raises(CheckpointError, match=r"file\.partial\.json.* start over with --overwrite"):
        write(path)
    assert write(path, is_renewed=True) == [*range(len(PARTS))]


def test_bytes_that_the_record_does_not_know_are_never_kept(path):
    """A shorter file, a file without its record, a record without its file; and the record of another job is gone
    before the file has other bytes."""
    partial, record = path.parent / "file.partial", path.parent / "file.partial.json"
    everything = [*range(len(PARTS))]
    interrupted(path, 60)
    partial.write_bytes(WHOLE[: json.loads(record.read_text())["num_bytes"] - 1])
    assert write(path) == everything
    interrupted(path, 60)
    record.unlink()
    assert write(path) == everything
    interrupted(path, 60)
    partial.unlink()
    assert write(path) == everything
    interrupted(path, 60)
    with resumable_file(path, {}, is_renewed=True):
        assert not record.exists()
    assert write(path) == everything
    assert path.read_bytes() == WHOLE
