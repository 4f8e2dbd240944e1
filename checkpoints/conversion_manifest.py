"""Host: what a conversion has done so far, so that it can be interrupted and goes on where it was.

`convert.json` in the destination names the job (its source, format, dtype, shard size) and every file or folder that is
whole, with its size. A destination that another job has begun is refused.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from checkpoints.errors import CheckpointError
from checkpoints.formats.atomic_files import write_json
from checkpoints.formats.bounded_json import read_object

MANIFEST = "convert.json"
MAX_BYTES = 25_000_000


def identity(files: Iterable[Path]) -> list[list[Any]]:
    """What tells a source from another, or from itself after a change: path, bytes and time of change of each file."""
    resolved = sorted(path.resolve() for path in files)
    return [[str(path), path.stat().st_size, path.stat().st_mtime_ns] for path in resolved]


class ConversionManifest:
    """The manifest of `folder` for `job`, a JSON object; begun if there is none."""

    def __init__(self, folder: Path, job: dict[str, Any]) -> None:
        self._folder, self._job = folder, job
        self._done: dict[str, int] = {}
        self._is_finished = False
        path = folder / MANIFEST
        if path.is_file():
            self._done, self._is_finished = _read(path, job)
        else:
            self._write()

    @property
    def is_finished(self) -> bool:
        """Whether the job was done to its end, and all that it wrote is still there."""
        return self._is_finished and all(self.has(name) for name in self._done)

    def has(self, name: str) -> bool:
        """Whether `name` was written, and still has the size that it had then."""
        path = self._folder / name
        return name in self._done and path.exists() and num_bytes(path) == self._done[name]

    def add(self, *names: str) -> None:
        """Notes that these are whole."""
        self._done |= {name: num_bytes(self._folder / name) for name in names}
        self._write()

    def finish(self) -> None:
        """Notes that the job is done."""
        self._is_finished = True
        self._write()

    def _write(self) -> None:
        values = {"job": self._job, "done": self._done, "is_finished": self._is_finished}
        write_json(self._folder / MANIFEST, values)


def num_bytes(path: Path) -> int:
    """Bytes of a file, or of all files below a folder."""
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return path.stat().st_size


def _read(path: Path, job: dict[str, Any]) -> tuple[dict[str, int], bool]:
    again = "give another folder, or --overwrite to begin again"
    try:
        values = read_object(path, MAX_BYTES)
    except CheckpointError as error:
        raise CheckpointError(f"{error}; {again}") from error
    match values:
        case {"job": dict(begun), "done": dict(done), "is_finished": bool(is_finished)} if all(
            type(size) is int for size in done.values()
        ):
            pass
        case _:
            raise CheckpointError(f"{path}: is not a manifest of a conversion; {again}")
    if begun != job:
        changed = ", ".join(sorted(key for key in begun.keys() | job.keys() if begun.get(key) != job.get(key)))
        raise CheckpointError(f"{path.parent} was begun by another conversion (other {changed}); {again}")
    return done, is_finished
