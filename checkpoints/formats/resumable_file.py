"""Host: `resumable_file`: a file that is written part after part, and goes on after the last complete one.

Until it is complete the file is called NAME.partial. NAME.partial.json names the job, and says how many parts are
complete and where the last one ends; what follows it was written in part, and is cut off.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from checkpoints.errors import CheckpointError
from checkpoints.formats.atomic_files import sync_folder, write_json
from checkpoints.formats.bounded_json import read_object

MAX_BYTES = 1_000_000  # of the record, which names the files that a job reads


class ResumableFile:
    """file: to write to. num_parts: those that are complete, also those of an earlier run."""

    def __init__(self, file: IO[bytes], record: Path, job: dict[str, Any], num_parts: int) -> None:
        self.file, self.num_parts = file, num_parts
        self._record, self._job = record, job

    def end_part(self) -> None:
        """Records all that is written as complete."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self.num_parts += 1
        write_json(self._record, {"job": self._job, "num_parts": self.num_parts, "num_bytes": self.file.tell()})


@contextmanager
def resumable_file(path: Path, job: dict[str, Any], *, is_renewed: bool = False) -> Generator[ResumableFile]:
    """`path`, which appears when the block ends without error. job: a JSON object; what an earlier run of the same job
    has completed stays. is_renewed: what another job has begun is replaced; else it is refused by `CheckpointError`.
    """
    partial, record = path.with_name(f"{path.name}.partial"), path.with_name(f"{path.name}.partial.json")
    num_parts, num_bytes = _completed(partial, record, job, is_renewed=is_renewed)
    if num_parts == 0:  # a record of other bytes would make these look complete after a crash
        record.unlink(missing_ok=True)
        sync_folder(path.parent)
    with partial.open("r+b" if num_parts else "wb") as file:
        file.truncate(num_bytes)
        file.seek(num_bytes)
        parts = ResumableFile(file, record, job, num_parts)
        try:
            yield parts
        except BaseException:
            if parts.num_parts == 0:
                partial.unlink()
            raise
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    record.unlink(missing_ok=True)
    sync_folder(path.parent)


def changed_keys(earlier: dict[str, Any], job: dict[str, Any]) -> str:
    """The keys of two jobs whose values differ, in words; "" where they are the same job."""
    return ", ".join(sorted(key for key in earlier.keys() | job.keys() if earlier.get(key) != job.get(key)))


def _completed(partial: Path, record: Path, job: dict[str, Any], *, is_renewed: bool) -> tuple[int, int]:
    """(parts, bytes) of an earlier run."""
    if not partial.is_file() or not record.is_file():
        return 0, 0
    try:
        num_parts, num_bytes = _read(record, job)
    except CheckpointError as error:
        if is_renewed:
            return 0, 0
        raise CheckpointError(f"{error}; name another file, or start over with --overwrite") from error
    return (num_parts, num_bytes) if num_bytes <= partial.stat().st_size else (0, 0)


def _read(record: Path, job: dict[str, Any]) -> tuple[int, int]:
    values = read_object(record, MAX_BYTES)
    match values:
        case {"job": dict(), "num_parts": int(num_parts), "num_bytes": int(num_bytes)} if num_parts > 0:
            earlier: dict[str, Any] = values["job"]
        case _:
            raise CheckpointError(f"{record} is not the record of a file that is written")
    if changed := changed_keys(earlier, job):
        raise CheckpointError(f"{record} is of a different conversion (different {changed})")
    return num_parts, num_bytes
